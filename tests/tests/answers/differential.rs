//! The same statements on one PostgreSQL and on clusters of one, two and three nodes: equal answers.
//!
//! Owns: which cluster runs which protocol. The scripts are in `tests/differential`, the tester is
//! `tutti_tests::differential`.

use anyhow::Result;
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::agreement::Others;
use tutti_tests::differential::{Protocol, Stage};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;
use tutti_tests::suite::{Choice, Part, judge, run_all};

fn compare_with_cluster(nodes: u16, protocols: &[Protocol]) -> Result<()> {
    compare_with(nodes, protocols, Others::HaveAll, Part::WHOLE)
}

/// `others`: where tables are that say nothing, on all nodes or on node 1 alone.
fn compare_with(nodes: u16, protocols: &[Protocol], others: Others, part: Part) -> Result<()> {
    let choice = Choice::from_environment();
    if !choice.allows(2, &nodes.to_string()) {
        return Ok(());
    }
    let protocols = if choice.is_made() { &Protocol::ALL } else { protocols };
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
    compare_with_cluster(1, &[Protocol::Pipelined])
}

#[test]
fn a_cluster_of_two_nodes_answers_like_postgresql() -> Result<()> {
    compare_with_cluster(2, &[Protocol::Extended])
}

#[test]
fn a_cluster_of_three_nodes_answers_like_postgresql() -> Result<()> {
    compare_with_cluster(3, &[Protocol::Simple])
}

// Each script by one protocol: by the others the clusters above run it. (`TUTTI_DIFFERENTIAL="FILE"` runs one by all.)

#[test]
fn tables_at_home_beside_others_answer_like_postgresql() -> Result<()> {
    let part = Part { first: 0, of: 2 };
    compare_with(3, &[Protocol::Simple], Others::HaveWhatIsSpread, part)
}

#[test]
fn tables_at_home_beside_others_answer_like_postgresql_in_the_extended_protocol() -> Result<()> {
    let part = Part { first: 1, of: 2 };
    compare_with(3, &[Protocol::Extended], Others::HaveWhatIsSpread, part)
}
