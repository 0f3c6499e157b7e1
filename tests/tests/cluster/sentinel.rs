//! Sentinels on real servers: what PostgreSQL refuses because they stand, also across replacements.
//!
//! Transactions are played by hand on the nodes, so that each step's place is known; the gateway's
//! part here is only [`Sentinels`].

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::runtime::Runtime;
use tutti_cluster::authority::sentinels::{Pace, Sentinels};
use tutti_embed::Cluster;
use tutti_gateway::{Config, NodeConfig};
use tutti_link::Endpoints;
use tutti_sql::catalog::NodeId;
use tutti_tests::client::Client;
use tutti_tests::{gateway, servers};

/// Given up then; nothing here takes a second.
const PATIENCE: Duration = Duration::from_secs(30);
const QUICK: Pace = Pace { turn: Duration::from_millis(50), idle_turns: u32::MAX };

/// Nodes with the tables of tickets and one of data, and no gateway.
struct Nodes {
    servers: Cluster,
    config: Config,
    runtime: Runtime,
}

impl Nodes {
    fn start(nodes: u16) -> Result<Self> {
        let servers = servers::start(nodes)?;
        let config = gateway::config(&servers, "127.0.0.1:0".to_owned());
        let runtime = Runtime::new()?;
        runtime.block_on(tutti_gateway::init(&config, false)).context("write the catalog")?;
        let nodes = Self { servers, config, runtime };
        for NodeConfig { id, .. } in &nodes.config.nodes {
            let mut client = nodes.client(*id)?;
            client.query("CREATE TABLE v (x int); INSERT INTO v VALUES (0)")?;
        }
        Ok(nodes)
    }

    fn client(&self, node: u16) -> Result<Client> {
        Client::connect(&servers::endpoint(&self.servers, usize::from(node) - 1))
    }

    /// Sentinels that already stand on every node.
    fn sentinels(&self, pace: Pace) -> Result<std::sync::Arc<Sentinels>> {
        let _entered = self.runtime.enter();
        let sentinels = Sentinels::start_with(&Endpoints::new(&self.config), pace);
        for NodeConfig { id, .. } in &self.config.nodes {
            let covered = sentinels.wait_for_coverage(NodeId(*id), PATIENCE);
            self.runtime.block_on(covered).context("no sentinel")?;
        }
        Ok(sentinels)
    }

    /// Waits until every sentinel that stands now has been relieved.
    fn await_replacement(&self) -> Result<()> {
        for NodeConfig { id, .. } in &self.config.nodes {
            let mut client = self.client(*id)?;
            let now = client.value("SELECT clock_timestamp()")?;
            let relieved = format!(
                "SELECT count(*) > 0 AND min(xact_start) > '{now}' FROM pg_stat_activity
                 WHERE application_name = 'tutti sentinel' AND xact_start IS NOT NULL"
            );
            until("a relief", || Ok(client.value(&relieved)? == "t"))?;
        }
        Ok(())
    }
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds()? {
        ensure!(started.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Runs statements up to the first error, whose SQLSTATE is returned.
fn run(client: &mut Client, statements: &[&str]) -> Result<Option<String>> {
    for sql in statements {
        if let Some(error) = client.simple(sql, &[])?.error() {
            return Ok(Some(error.sqlstate().to_owned()));
        }
    }
    Ok(None)
}

fn refused(client: &mut Client, statements: &[&str]) -> Result<()> {
    match run(client, statements)?.as_deref() {
        Some("40001") => Ok(()),
        other => bail!("{statements:?} on a node: {other:?} instead of 40001"),
    }
}

fn done(client: &mut Client, statements: &[&str]) -> Result<()> {
    let failed = run(client, statements)?;
    ensure!(failed.is_none(), "{statements:?}: {failed:?}");
    Ok(())
}

const BEGIN: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE";
const TICKET: &str = "INSERT INTO tutti.ticket (gid) VALUES ('t')";
const READ: &str = "SELECT * FROM v";
const WRITE: &str = "UPDATE v SET x = x + 1";

/// When a global transaction asks for the second node, it has worked on the first already.
#[derive(Clone, Copy, Debug)]
enum TicketCome {
    First,
    Last,
}

/// One transaction of the write skew: reads on one node, writes on the other.
struct Skewed {
    reads: Client,
    writes: Client,
    gid: &'static str,
}

impl Skewed {
    fn work(&mut self, ticket: TicketCome) -> Result<()> {
        for (client, work) in [(&mut self.reads, READ), (&mut self.writes, WRITE)] {
            match ticket {
                TicketCome::First => done(client, &[BEGIN, TICKET, work])?,
                TicketCome::Last => done(client, &[BEGIN, work, TICKET])?,
            }
        }
        Ok(())
    }

    /// Anchored commit; the SQLSTATE if a node refuses, in which case nothing is left.
    fn commit(&mut self, between: impl FnOnce() -> Result<()>) -> Result<Option<String>> {
        let gid = self.gid;
        if let Some(state) = run(&mut self.reads, &[&format!("PREPARE TRANSACTION '{gid}'")])? {
            run(&mut self.writes, &["ROLLBACK"])?;
            return Ok(Some(state));
        }
        between()?;
        // A COMMIT that a doomed transaction's node refuses is the anchor's refusal.
        if let Some(state) = run(&mut self.writes, &["COMMIT"])? {
            done(&mut self.reads, &[&format!("ROLLBACK PREPARED '{gid}'")])?;
            return Ok(Some(state));
        }
        done(&mut self.reads, &[&format!("COMMIT PREPARED '{gid}'")])?;
        Ok(None)
    }
}

/// Plays the write skew over two nodes and says what the second transaction to commit was told.
fn write_skew(
    nodes: &Nodes,
    ticket: TicketCome,
    other_first: bool,
    replace: impl Fn() -> Result<()>,
) -> Result<Option<String>> {
    let mut one = Skewed { reads: nodes.client(1)?, writes: nodes.client(2)?, gid: "one" };
    let mut other = Skewed { reads: nodes.client(2)?, writes: nodes.client(1)?, gid: "other" };
    one.work(ticket)?;
    other.work(ticket)?;
    replace()?;
    let (first, second) = if other_first { (other, one) } else { (one, other) };
    let (mut first, mut second) = (first, second);
    let told = first.commit(&replace)?;
    ensure!(told.is_none(), "the first transaction was refused: {told:?}");
    second.commit(&replace)
}

#[test]
fn write_skew_over_two_nodes_is_refused_whoever_commits_first() -> Result<()> {
    let nodes = Nodes::start(2)?;
    let orders = [false, true];
    for other_first in orders {
        let told = write_skew(&nodes, TicketCome::First, other_first, || Ok(()))?;
        ensure!(told.is_none(), "without sentinels nobody can know: {told:?}");
    }
    let _sentinels = nodes.sentinels(QUICK)?;
    for ticket in [TicketCome::First, TicketCome::Last] {
        for other_first in orders {
            let told = write_skew(&nodes, ticket, other_first, || Ok(()))?;
            ensure!(told.as_deref() == Some("40001"), "{ticket:?}, {other_first}: {told:?}");
            let told = write_skew(&nodes, ticket, other_first, || nodes.await_replacement())?;
            ensure!(
                told.as_deref() == Some("40001"),
                "{ticket:?}, {other_first}, replaced: {told:?}"
            );
        }
    }
    Ok(())
}

/// One node's view: T has a ticket and has read; U, which has none, overwrites that and commits.
#[test]
fn a_relief_covers_transactions_whose_tickets_it_did_not_see() -> Result<()> {
    let nodes = Nodes::start(1)?;
    let _sentinels = nodes.sentinels(QUICK)?;
    let (mut t, mut u) = (nodes.client(1)?, nodes.client(1)?);

    // The ticket is uncommitted while the sentinel changes: U may commit, T may not any more.
    done(&mut t, &[BEGIN, TICKET, READ])?;
    nodes.await_replacement()?;
    done(&mut u, &[BEGIN, READ, WRITE, "COMMIT"])?;
    refused(&mut t, &["PREPARE TRANSACTION 't'"])?;

    // It is prepared: T cannot be refused any more, so U is.
    done(&mut t, &[BEGIN, TICKET, READ, "PREPARE TRANSACTION 't'"])?;
    nodes.await_replacement()?;
    refused(&mut u, &[BEGIN, READ, WRITE, "COMMIT"])?;
    done(&mut u, &["ROLLBACK"])?;
    done(&mut t, &["COMMIT PREPARED 't'"])?;

    // It is committed: nothing is left to protect.
    nodes.await_replacement()?;
    done(&mut u, &[BEGIN, READ, WRITE, "COMMIT"])?;
    Ok(())
}

#[test]
fn an_empty_table_is_locked_as_a_whole_and_old_tickets_go() -> Result<()> {
    let nodes = Nodes::start(1)?;
    let _sentinels = nodes.sentinels(QUICK)?;
    let mut client = nodes.client(1)?;
    let locks = "SELECT count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'tutti sentinel' AND mode = 'SIReadLock' AND locktype = 'relation'
            AND relation = 'tutti.ticket'::regclass";
    ensure!(client.value("SELECT count(*) FROM tutti.ticket")? == "0");
    ensure!(client.value(locks)? == "t", "no lock on the relation");

    client.query(TICKET)?;
    until("the removal of the ticket", || {
        Ok(client.value("SELECT count(*) FROM tutti.ticket")? == "0")
    })
}

#[test]
fn a_killed_sentinel_breaks_the_coverage_and_is_followed_by_another() -> Result<()> {
    let nodes = Nodes::start(2)?;
    let sentinels = nodes.sentinels(QUICK)?;
    let (killed, spared) = (NodeId(1), NodeId(2));
    let before = sentinels.coverage(killed).context("covered")?;
    let elsewhere = sentinels.coverage(spared).context("covered")?;
    nodes.await_replacement()?;
    ensure!(sentinels.is_unbroken(killed, &before), "a replacement is no gap");

    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'tutti sentinel'";
    nodes.client(killed.0)?.query(kill)?;
    until("the end of the coverage", || Ok(!sentinels.is_unbroken(killed, &before)))?;
    let after = sentinels.wait_for_coverage(killed, PATIENCE);
    let after = nodes.runtime.block_on(after).context("no new sentinel")?;
    ensure!(sentinels.is_unbroken(killed, &after));
    ensure!(!sentinels.is_unbroken(killed, &before), "what was broken stays broken");
    ensure!(sentinels.is_unbroken(spared, &elsewhere), "the other node was not touched");
    Ok(())
}

#[test]
fn sentinels_stand_only_while_somebody_needs_them() -> Result<()> {
    let nodes = Nodes::start(1)?;
    let mut client = nodes.client(1)?;
    let standing =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tutti sentinel'";
    let _entered = nodes.runtime.enter();
    let sentinels =
        Sentinels::start_with(&Endpoints::new(&nodes.config), Pace { idle_turns: 2, ..QUICK });
    ensure!(client.value(standing)? == "0", "a sentinel that nobody has asked for");

    let covered = sentinels.wait_for_coverage(NodeId(1), PATIENCE);
    let covered = nodes.runtime.block_on(covered).context("no sentinel")?;
    for _ in 0..5 {
        nodes.await_replacement()?;
    }
    ensure!(sentinels.is_unbroken(NodeId(1), &covered), "it went although it was needed");
    drop(covered);
    until("the end of the sentinel", || Ok(client.value(standing)? == "0"))?;

    let covered = sentinels.wait_for_coverage(NodeId(1), PATIENCE);
    nodes.runtime.block_on(covered).context("it does not come back")?;
    Ok(())
}
