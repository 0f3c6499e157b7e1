//! Another server comes to a node's address while the gateway runs: an older copy of the node, or a node of another
//! cluster.
//!
//! Owns: that neither is read, asked what became of a transaction, or written to, and that clients are told why.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

use super::support::*;

/// Copies a stopped server's data, with their owner.
fn copy(from: &Path, to: &Path) -> Result {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(copied.success(), "cp -a {} {}", from.display(), to.display());
    Ok(())
}

/// What a client is told that asks for a row of node 2.
fn told(gateway: &Endpoint, account: i64) -> Result<(String, String)> {
    let mut client = Client::connect(gateway)?;
    let answer =
        client.simple(&format!("SELECT balance FROM account WHERE id = {account}"), b"")?;
    let error = answer
        .error()
        .map(|error| (error.sqlstate().to_owned(), error.get(b'D').unwrap_or_default().to_owned()));
    Ok(error.unwrap_or_default())
}

/// Waits until clients are told this of node 2, and then for a while whether they are told otherwise.
fn is_told(gateway: &Endpoint, account: i64, reason: &str) -> Result {
    let is_so = || {
        let (sqlstate, detail) = told(gateway, account)?;
        ensure!(sqlstate == "57P03" && detail.contains(reason), "{sqlstate} {detail:?}");
        Ok(())
    };
    eventually("clients are told why", is_so)?;
    thread::sleep(Duration::from_millis(500));
    is_so()
}

#[test]
fn an_older_copy_of_a_node_is_not_served() -> Result {
    let mut cluster = TestCluster::start_on(servers::durable(2)?)?;
    let (gateway, nodes) = (cluster.endpoint(), cluster.nodes());
    make_accounts(&gateway)?;
    let (from, to) = accounts_on_two_nodes(&nodes)?;
    let dir = cluster.servers().server(1).dir().to_owned();
    cluster.servers_mut().server_mut(1).stop()?;
    copy(&dir.join("data"), &dir.join("older"))?;
    cluster.servers_mut().server_mut(1).start()?;
    let mut client = eventually("node 2 is read again", || {
        let mut client = Client::connect(&gateway)?;
        client.query("SELECT sum(balance) FROM account")?;
        Ok(client)
    })?;
    assert_eq!(transfer(&mut client, 1, from, to), Believed::Acknowledged);
    // It is looked once a second how far a node has written.
    thread::sleep(Duration::from_millis(2_500));

    cluster.servers_mut().server_mut(1).stop()?;
    std::fs::rename(dir.join("data"), dir.join("newer"))?;
    std::fs::rename(dir.join("older"), dir.join("data"))?;
    cluster.servers_mut().server_mut(1).start()?;
    is_told(&gateway, to, "restored from an older copy")?;

    cluster.servers_mut().server_mut(1).stop()?;
    std::fs::rename(dir.join("data"), dir.join("older"))?;
    std::fs::rename(dir.join("newer"), dir.join("data"))?;
    cluster.servers_mut().server_mut(1).start()?;
    check(&nodes, &gateway, &[(1, Believed::Acknowledged)].into_iter().collect())
}

#[test]
fn a_node_of_another_cluster_is_neither_asked_nor_written_to() -> Result {
    const NUMBER: &str = "SELECT incarnation FROM tutti.gateway";
    let mut cluster = TestCluster::start_on(servers::durable(2)?)?;
    let (gateway, nodes) = (cluster.endpoint(), cluster.nodes());
    make_accounts(&gateway)?;
    let (_, to) = accounts_on_two_nodes(&nodes)?;
    let dir = cluster.servers().server(1).dir().to_owned();
    let mut other = TestCluster::start_on(servers::durable(2)?)?;
    let number = Client::connect(&other.nodes()[1])?.value(NUMBER)?;
    other.servers_mut().server_mut(1).stop()?;
    let of_other = other.servers().server(1).dir().join("data");

    cluster.servers_mut().server_mut(1).stop()?;
    std::fs::rename(dir.join("data"), dir.join("true"))?;
    copy(&of_other, &dir.join("data"))?;
    cluster.servers_mut().server_mut(1).start()?;
    is_told(&gateway, to, "is not node n2 of this cluster")?;
    let now = Client::connect(&nodes[1])?.value(NUMBER)?;
    ensure!(now == number, "the other cluster's number was {number} and is {now}");

    cluster.servers_mut().server_mut(1).stop()?;
    std::fs::remove_dir_all(dir.join("data"))?;
    std::fs::rename(dir.join("true"), dir.join("data"))?;
    cluster.servers_mut().server_mut(1).start()?;
    check(&nodes, &gateway, &std::iter::empty().collect())
}
