//! Prepared transactions that nobody coordinates, and questions about transactions.

use std::time::Duration;

use anyhow::ensure;
use tutti_tests::client::Client;
use tutti_tests::gateway::TestCluster;

use crate::support::*;

#[test]
fn what_nobody_coordinates_is_settled_by_its_record_or_refused() -> Result {
    let cluster = TestCluster::start(2)?;
    let (gateway, nodes) = (cluster.endpoint(), cluster.nodes());
    let mut client = Client::connect(&gateway)?;
    client.query("CREATE TABLE t (x bigint) DISTRIBUTE BY ROUND ROBIN")?;
    let mut first = Client::connect(&nodes[0])?;
    let incarnation: u64 = first.value("SELECT last_value FROM tutti.incarnation")?.parse()?;
    let (with_record, without) = (gid(incarnation, 1_000_001, 1), gid(incarnation, 1_000_002, 1));
    first.query(&format!(
        "INSERT INTO tutti.decision (gid, decision) VALUES ('{with_record}', 'committed')"
    ))?;
    let mut second = Client::connect(&nodes[1])?;
    for (value, gid) in [(1, &with_record), (2, &without)] {
        for statement in [
            "BEGIN".to_owned(),
            format!("INSERT INTO t VALUES ({value})"),
            format!("PREPARE TRANSACTION '{gid}'"),
        ] {
            second.query(&statement)?;
        }
    }
    let listed = client.query("SELECT * FROM tutti_in_doubt()")?;
    for row in &listed {
        ensure!(row[1].as_deref() == Some("n2"), "{listed:?}");
    }
    come_to_rest(&nodes)?;
    assert_eq!(second.value("SELECT string_agg(x::text, ',') FROM t")?, "1");
    assert_eq!(client.value("SELECT count(*) FROM t")?, "1");
    for (gid, expected) in [(with_record, "committed"), (without, "aborted")] {
        assert_eq!(client.value(&format!("SELECT tutti_outcome('{gid}')"))?, expected);
    }
    assert_eq!(client.query("SELECT * FROM tutti_in_doubt()")?.len(), 0);
    // Never prepared, never recorded: nobody was told to ask.
    let never = gid(incarnation, 1_000_003, 2);
    assert_eq!(client.value(&format!("SELECT tutti_outcome('{never}')"))?, "unknown");
    for bad in ["", "tutti_other_1_1_1", "tutti_test_1_1_3", "tutti_test_999999_1_1", "x"] {
        let answer = client.simple(&format!("SELECT tutti_outcome('{bad}')"), &[])?;
        assert_eq!(answer.error().map(|error| error.sqlstate().to_owned()), Some("22023".into()));
    }
    Ok(())
}

#[test]
fn records_go_when_everybody_has_applied_them() -> Result {
    let cluster = TestCluster::start(2)?;
    let (gateway, nodes) = (cluster.endpoint(), cluster.nodes());
    make_accounts(&gateway)?;
    let (from, to) = accounts_on_two_nodes(&nodes)?;
    let mut client = Client::connect(&gateway)?;
    for number in 1..=20 {
        assert_eq!(transfer(&mut client, number, from, to), Believed::Acknowledged);
    }
    eventually("no record is left", || {
        for node in &nodes {
            let left = Client::connect(node)?.value("SELECT count(*) FROM tutti.decision")?;
            ensure!(left == "0", "{left} records");
        }
        Ok(())
    })
}

#[test]
fn a_watch_that_is_ended_is_replaced_and_the_node_opened_again() -> Result {
    let cluster = TestCluster::start(2)?;
    let (gateway, nodes) = (cluster.endpoint(), cluster.nodes());
    make_accounts(&gateway)?;
    let mut client = Client::connect(&gateway)?;
    for _ in 0..5 {
        for node in &nodes {
            let ended = Client::connect(node)?.value(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE application_name LIKE 'tutti watch%'",
            )?;
            ensure!(ended != "0", "nobody watches port {}", node.port);
        }
        // Waits until the nodes are open.
        client.value("SELECT sum(balance) FROM account")?;
        eventually("both nodes are watched again", || {
            for node in &nodes {
                let count = Client::connect(node)?.value(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tutti watch%'",
                )?;
                ensure!(count == "1", "{count} watches");
            }
            Ok(())
        })?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
