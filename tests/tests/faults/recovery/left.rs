//! A session is lost while its statement waits on a node for a table that is being moved. The server goes on
//! with what it was sent; it must not do that with a plan by the old placement.
//!
//! Owns: how the session is lost: its connection to the node, or its client.

use anyhow::ensure;
use tutti_tests::client::Client;
use tutti_tests::conversation;
use tutti_tests::gateway::{self, TestCluster};
use tutti_tests::servers;

use super::proxy::{Proxy, Rule, When};
use super::support::*;

/// How the session is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// Its connection to the node breaks.
    Connection,
    /// The same, of a statement by the extended protocol.
    ConnectionOfFlight,
    /// Its client goes.
    Client,
}

/// One that a node carries out, and commits, by itself. By the placement that comes, half of the rows are
/// another node's.
const INSERT: &str = "INSERT INTO moved SELECT generate_series(1, 20)";

fn lose(how: Loss) -> Result {
    let servers = servers::durable(2)?;
    let mut config = gateway::config(&servers, String::new());
    let proxy = Proxy::before(&mut config.nodes[0])?;
    let cluster = TestCluster::start_configured(servers, config)?;
    let (endpoint, nodes) = (cluster.endpoint(), cluster.nodes());
    let mut changer = Client::connect(&endpoint)?;
    changer.query("CREATE TABLE other (k int PRIMARY KEY) DISTRIBUTE BY HASH (k)")?;
    changer.query("CREATE TABLE moved (k int) DISTRIBUTE BY HOME")?;
    let mut home = Client::connect(&nodes[0])?;
    let mut waiting = || home.value("SELECT count(*) FROM pg_locks WHERE NOT granted");
    changer.query("BEGIN")?;
    changer.query("SELECT tutti_distribute('moved', 'k')")?;
    let mut writer = Client::connect(&endpoint)?;
    match how {
        Loss::Connection => {
            let rule = Rule { text: INSERT, when: When::Meanwhile, then_away: false };
            proxy.set(Some(rule));
            let told = writer.simple(INSERT, &[])?;
            let state = told.error().map(|error| error.sqlstate().to_owned());
            ensure!(state.as_deref() == Some("08007"), "{told}");
        }
        Loss::ConnectionOfFlight => {
            proxy.set(Some(Rule { text: INSERT, when: When::Meanwhile, then_away: false }));
            let said = conversation::hold(&mut writer, &format!("P |{INSERT}\nB |\nE |0\nS"))?;
            ensure!(said.iter().any(|line| line == "Error 08007"), "{said:#?}");
        }
        Loss::Client => {
            let mut query = vec![b'Q'];
            query.extend(u32::try_from(INSERT.len() + 5)?.to_be_bytes());
            query.extend(INSERT.as_bytes());
            query.push(0);
            writer.send_bytes(&query)?;
            eventually("the INSERT waits", || {
                let count = waiting()?;
                ensure!(count == "1", "{count} wait");
                Ok(())
            })?;
            drop(writer);
        }
    }
    changer.query("COMMIT")?;
    eventually("nobody waits on node 1", || {
        let count = waiting()?;
        ensure!(count == "0", "{count} wait");
        Ok(())
    })?;
    // Whether it was done is unknown to the client; if so, it was done by the new placement.
    let count = changer.value("SELECT count(*) FROM moved")?;
    ensure!(count == "0" || count == "20", "{how:?}: {count} rows");
    let mut alone = Client::connect(&nodes[0])?;
    let at_home: i64 = alone.value("SELECT count(*) FROM moved")?.parse()?;
    ensure!(count == "0" || at_home < 20, "{how:?}: all rows are on node 1");
    Ok(())
}

#[test]
fn a_statement_whose_connection_broke_does_not_run_after_a_move() -> Result {
    lose(Loss::Connection)
}

#[test]
fn a_flight_whose_connection_broke_does_not_run_after_a_move() -> Result {
    lose(Loss::ConnectionOfFlight)
}

#[test]
fn a_statement_whose_client_has_gone_does_not_run_after_a_move() -> Result {
    lose(Loss::Client)
}
