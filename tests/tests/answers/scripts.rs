//! The differential scripts and their tester, on plain PostgreSQL alone.
//!
//! Owns: that a script compares only what PostgreSQL promises, and that the tester finds differences.

use anyhow::{Result, ensure};
use tutti_tests::agreement::Others;
use tutti_tests::client::Client;
use tutti_tests::differential::{Protocol, Setting, Stage};
use tutti_tests::script::{Placement, Script};
use tutti_tests::servers;
use tutti_tests::suite::{Choice, Share, judge, run_all};

/// The scripts themselves: two servers whose planners prefer different ways must agree, or a script
/// relies on an order that PostgreSQL does not promise.
#[test]
fn scripts_fix_what_they_compare() -> Result<()> {
    let choice = Choice::from_environment();
    let one = servers::start(1)?;
    let other = servers::start_with(
        1,
        &[("enable_hashagg", "off"), ("enable_hashjoin", "off"), ("enable_indexscan", "off")],
    )?;
    let (expected, subject) = (servers::endpoint(&one, 0), servers::endpoint(&other, 0));
    let stage = Stage { expected, subject, nodes: Vec::new(), others: Others::default() };
    let protocols = if choice.is_made() { &Protocol::ALL[..] } else { &[Protocol::Simple] };
    judge(&run_all(&stage, protocols, Share::WHOLE, &choice)?, &choice);
    Ok(())
}

/// The tester itself: what differs is found, and where.
#[test]
fn a_difference_is_found() -> Result<()> {
    let servers = servers::start(2)?;
    let (expected, subject) = (servers::endpoint(&servers, 0), servers::endpoint(&servers, 1));
    Client::connect(&expected)?.query("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2)")?;
    Client::connect(&subject)?.query("CREATE TABLE t (a int8); INSERT INTO t VALUES (1), (3)")?;
    let stage = Stage { expected, subject, nodes: Vec::new(), others: Others::default() };
    let text = "SELECT count(*) FROM t;\nSELECT a FROM t WHERE a = 1;\nSELECT a::int FROM t;\n\
                SELECT 1 / (a - 3) FROM t;\nSELECT a::text FROM t WHERE a < 2;\n";
    let script = Script::parse(text)?;
    for protocol in Protocol::ALL {
        let setting = Setting { script: &script, distribution: "none", protocol };
        let report = stage.run(&setting, &Placement::new())?;
        let places: Vec<String> = report.differences.iter().map(|d| d.place()).collect();
        ensure!(places == [":2", ":3", ":4"], "{protocol:?}: {places:?}");
        ensure!(report.compared == 5, "{protocol:?}: {}", report.compared);
    }
    Ok(())
}
