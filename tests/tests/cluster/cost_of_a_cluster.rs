//! What a cluster costs a test that has one: a measurement, by part.
//!
//! Owns: which parts there are. Never: fails for being slow; machines differ.
//! `./dev test --test cluster cost_of_a_cluster -- --ignored --nocapture`

use std::time::{Duration, Instant};

use anyhow::Result;
use tutti_embed::{Cluster, ClusterOptions, ServerOptions};
use tutti_tests::client::Client;
use tutti_tests::gateway::{self, TestCluster};

const ROUNDS: usize = 5;
const PARTS: [&str; 6] = ["copy", "start", "init", "gateway", "audit", "end"];

/// What `work` gives, and how long it took.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let started = Instant::now();
    let done = work()?;
    Ok((done, started.elapsed()))
}

/// One life: each of [`PARTS`].
fn live(nodes: u16, fsync: bool) -> Result<[Duration; PARTS.len()]> {
    let place = tempfile::Builder::new().prefix("tutti-temp-").tempdir()?;
    let server = ServerOptions { fsync, ..ServerOptions::for_tests() };
    let options = ClusterOptions { nodes: Some(nodes), server };
    let (mut servers, copy) = timed(|| Ok(Cluster::open(place.path(), &options)?))?;
    let ((), start) = timed(|| Ok(servers.start()?))?;
    let runtime = tutti_gateway::runtime()?;
    let config = gateway::config(&servers, "127.0.0.1:0".to_owned());
    let (_, init) = timed(|| Ok(runtime.block_on(tutti_gateway::init(&config, false))?))?;
    // With a second `init`, which finds all that it would write.
    let (mut cluster, gateway) = timed(|| {
        let cluster = TestCluster::start_on(servers)?;
        Client::connect(&cluster.endpoint())?.value("SELECT 1")?;
        Ok(cluster)
    })?;
    let (_, audit) = timed(|| cluster.audit())?;
    cluster.leave_unaudited("it was looked at just now");
    // As the end of a temporary cluster, whose servers get no time for a checkpoint.
    let ((), end) = timed(|| {
        for node in 0..usize::from(nodes) {
            cluster.servers_mut().server_mut(node).kill9()?;
        }
        drop(cluster);
        Ok(place.close()?)
    })?;
    Ok([copy, start, init, gateway, audit, end])
}

#[test]
#[ignore = "a measurement"]
fn measure_by_part() -> Result<()> {
    for (nodes, fsync) in [(1, true), (1, false), (2, true), (2, false), (3, true), (3, false)] {
        let lives = (0..ROUNDS).map(|_| live(nodes, fsync)).collect::<Result<Vec<_>>>()?;
        let median = |part: usize| {
            let mut times: Vec<_> = lives.iter().map(|life| life[part].as_millis()).collect();
            times.sort_unstable();
            times[ROUNDS / 2]
        };
        let parts: Vec<_> = PARTS.iter().enumerate().map(|(i, it)| (*it, median(i))).collect();
        let whole: u128 = parts.iter().map(|(_, time)| time).sum();
        println!("{nodes} nodes, fsync {fsync}: {whole} ms of {parts:?}");
    }
    Ok(())
}
