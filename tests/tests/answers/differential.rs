//! The same statements on one PostgreSQL and on clusters of one, two and three nodes: equal answers.
//!
//! Owns: which cluster runs which scripts by which protocol: each script by all three, half of them over two nodes and
//! half over three, there under all distributions, and under every other one over one node and beside tables of node 1; all
//! of them on each cluster with `TUTTI_WHOLE`. The scripts are in `tests/differential`, the tester is
//! `tutti_tests::differential`.

use anyhow::Result;
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::agreement::Others;
use tutti_tests::differential::{Protocol, Stage};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;
use tutti_tests::suite::{Choice, Part, Share, judge, run_all};

/// Every other script, under all its distributions.
const EVEN: Share = Share { scripts: Part::EVEN, distributions: Part::WHOLE };
/// The others.
const ODD: Share = Share { scripts: Part::ODD, distributions: Part::WHOLE };
/// Every script, under every other distribution.
const HALF: Share = Share { scripts: Part::WHOLE, distributions: Part::EVEN };

fn compare_with_cluster(nodes: u16, protocols: &[Protocol], share: Share) -> Result<()> {
    compare_with(nodes, protocols, Others::HaveAll, share)
}

/// `others`: where tables are that say nothing, on all nodes or on node 1 alone.
fn compare_with(nodes: u16, protocols: &[Protocol], others: Others, share: Share) -> Result<()> {
    let choice = Choice::from_environment();
    if !choice.allows(2, &nodes.to_string()) {
        return Ok(());
    }
    let protocols = if choice.is_made() { &Protocol::ALL } else { protocols };
    let share = if choice.is_made() { Share::WHOLE } else { share };
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
    judge(&run_all(&stage, protocols, share, &choice)?, &choice);
    cluster.stop_gateway()
}

#[test]
fn a_cluster_of_one_node_answers_like_postgresql() -> Result<()> {
    compare_with_cluster(1, &[Protocol::Pipelined], HALF)
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
    compare_with(
        3,
        &[Protocol::Simple],
        Others::HaveWhatIsSpread,
        Share { scripts: Part::EVEN, distributions: Part::EVEN },
    )
}

#[test]
fn tables_at_home_beside_others_answer_like_postgresql_in_the_extended_protocol() -> Result<()> {
    compare_with(
        3,
        &[Protocol::Extended],
        Others::HaveWhatIsSpread,
        Share { scripts: Part::ODD, distributions: Part::ODD },
    )
}
