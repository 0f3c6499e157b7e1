//! The same statements on one PostgreSQL and on clusters of one, two and three nodes: equal answers.
//!
//! Owns: which cluster runs which scripts by which protocol: each script by all three, half of them over two nodes and
//! half over three; all of them on each cluster with `TUTTI_DIFFERENTIAL_WHOLE`. The scripts are in `tests/differential`,
//! the tester is `tutti_tests::differential`.

use anyhow::Result;
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::agreement::Others;
use tutti_tests::differential::{Protocol, Stage};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;
use tutti_tests::suite::{Choice, Part, judge, run_all};

/// Whether each of these runs every script.
const WHOLE: &str = "TUTTI_DIFFERENTIAL_WHOLE";
/// Every other script.
const EVEN: Part = Part { first: 0, of: 2 };
/// The others.
const ODD: Part = Part { first: 1, of: 2 };

fn compare_with_cluster(nodes: u16, protocols: &[Protocol], part: Part) -> Result<()> {
    compare_with(nodes, protocols, Others::HaveAll, part)
}

/// `others`: where tables are that say nothing, on all nodes or on node 1 alone.
fn compare_with(nodes: u16, protocols: &[Protocol], others: Others, part: Part) -> Result<()> {
    let choice = Choice::from_environment();
    if !choice.allows(2, &nodes.to_string()) {
        return Ok(());
    }
    let protocols = if choice.is_made() { &Protocol::ALL } else { protocols };
    let is_whole = choice.is_made() || std::env::var_os(WHOLE).is_some();
    let part = if is_whole { Part::WHOLE } else { part };
    let plain = servers::start(1)?;
    let servers = servers::start(nodes)?;
    let default_distribution = match others {
        Others::HaveAll => DefaultDistribution::Replicated,
        Others::HaveWhatIsSpread => DefaultDistribution::Home,
    };
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let mut cluster = TestCluster::start_configured(servers, config)?;
    let stage = Stage {
        expected: servers::endpoint(&plain, 0),
        subject: cluster.endpoint(),
        nodes: cluster.nodes(),
        others,
    };
    judge(&run_all(&stage, protocols, part, &choice)?, &choice);
    cluster.stop_gateway()
}

#[test]
fn a_cluster_of_one_node_answers_like_postgresql() -> Result<()> {
    compare_with_cluster(1, &[Protocol::Pipelined], Part::WHOLE)
}

#[test]
fn a_cluster_of_two_nodes_answers_like_postgresql() -> Result<()> {
    compare_with_cluster(2, &[Protocol::Extended], EVEN)
}

#[test]
fn a_cluster_of_three_nodes_answers_like_postgresql() -> Result<()> {
    compare_with_cluster(3, &[Protocol::Simple], ODD)
}

#[test]
fn tables_at_home_beside_others_answer_like_postgresql() -> Result<()> {
    compare_with(3, &[Protocol::Simple], Others::HaveWhatIsSpread, EVEN)
}

#[test]
fn tables_at_home_beside_others_answer_like_postgresql_in_the_extended_protocol() -> Result<()> {
    compare_with(3, &[Protocol::Extended], Others::HaveWhatIsSpread, ODD)
}
