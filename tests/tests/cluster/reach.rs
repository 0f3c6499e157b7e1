//! What ends a statement ends it on every node: a timeout, a failure, a cancel request, a client that
//! has gone.
//!
//! Each case has an UPDATE over both nodes of which one node waits for a row's lock. Afterwards the
//! other node must have let go of its rows too, although the client has said nothing further.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::BytesMut;
use tutti_tests::client::Client;
use tutti_tests::gateway::TestCluster;
use tutti_wire::frontend::put_query;

/// Long after anything that is to happen.
const PATIENCE: Duration = Duration::from_secs(30);
const UPDATE_ALL: &str = "UPDATE t SET v = v + 1";

struct World {
    cluster: TestCluster,
    /// A row of each node.
    rows: Vec<i32>,
}

impl World {
    fn start() -> Result<Self> {
        let cluster = TestCluster::start(2)?;
        Client::connect(&cluster.endpoint())?.query(
            "CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
             INSERT INTO t SELECT n, 0 FROM generate_series(1, 40) n",
        )?;
        let mut rows = Vec::new();
        for node in cluster.nodes() {
            rows.push(Client::connect(&node)?.value("SELECT min(id) FROM t")?.parse()?);
        }
        Ok(Self { cluster, rows })
    }

    fn session(&self) -> Result<Client> {
        Client::connect(&self.cluster.endpoint())
    }

    /// A transaction that holds a row of this node, from outside the gateway.
    fn hold_row_of(&self, node: usize) -> Result<Client> {
        let mut holder = Client::connect(&self.cluster.nodes()[node])?;
        holder.query("BEGIN")?;
        holder.query(&format!("UPDATE t SET v = 0 WHERE id = {}", self.rows[node]))?;
        Ok(holder)
    }

    /// Sends a statement without waiting for its answer.
    fn send(client: &mut Client, sql: &str) -> Result<()> {
        let mut bytes = BytesMut::new();
        put_query(&mut bytes, sql);
        client.send_bytes(&bytes)
    }

    fn count_on(&self, node: usize, sql: &str) -> Result<String> {
        Client::connect(&self.cluster.nodes()[node])?.value(sql)
    }

    fn await_waiter_on(&self, node: usize) -> Result<()> {
        let waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted";
        until("the wait", || Ok(self.count_on(node, waiting)? == "1"))
    }

    /// No session holds or awaits rows of `t` on this node.
    fn await_release_on(&self, node: usize) -> Result<()> {
        let locked = "SELECT count(*) FROM pg_locks \
                      WHERE relation = 't'::regclass AND mode = 'RowExclusiveLock'";
        until("the release", || Ok(self.count_on(node, locked)? == "0"))
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

#[test]
fn a_client_that_has_gone_leaves_no_locks() -> Result<()> {
    let world = World::start()?;
    for blocked in [0, 1] {
        let mut holder = world.hold_row_of(blocked)?;
        let mut client = world.session()?;
        client.query("BEGIN")?;
        World::send(&mut client, UPDATE_ALL)?;
        world.await_waiter_on(blocked)?;
        drop(client);
        world.await_release_on(1 - blocked)?;
        holder.query("ROLLBACK")?;
        world.await_release_on(blocked)?;
    }
    Ok(())
}

#[test]
fn a_statement_that_fails_on_one_node_is_ended_on_all() -> Result<()> {
    let world = World::start()?;
    for blocked in [0, 1] {
        let mut holder = world.hold_row_of(blocked)?;
        let mut client = world.session()?;
        client.query("SET lock_timeout = '300ms'")?;
        client.query("BEGIN")?;
        let refused = client.query(UPDATE_ALL);
        ensure!(refused.is_err(), "the lock was to be had");
        // The client has not said ROLLBACK, and need not: PostgreSQL lets go at the error.
        world.await_release_on(1 - blocked)?;
        ensure!(client.query("SELECT 1").is_err(), "the transaction goes on");
        client.query("ROLLBACK")?;
        ensure!(client.value("SELECT 1")? == "1", "the session does not go on");
        holder.query("ROLLBACK")?;
        world.await_release_on(blocked)?;
    }
    Ok(())
}

#[test]
fn behind_a_savepoint_only_what_came_later_is_let_go() -> Result<()> {
    let world = World::start()?;
    let mut holder = world.hold_row_of(1)?;
    let mut client = world.session()?;
    client.query("SET lock_timeout = '300ms'")?;
    client.query("BEGIN")?;
    let before = format!("UPDATE t SET v = 7 WHERE id = {}", world.rows[0]);
    client.query(&before)?;
    client.query("SAVEPOINT s")?;
    ensure!(client.query(UPDATE_ALL).is_err(), "the lock was to be had");
    // Another row of node 1 is free again, the one from before the savepoint is not.
    let others = format!(
        "SELECT count(*) FROM (SELECT FROM t WHERE id <> {} FOR UPDATE NOWAIT) AS free",
        world.rows[0]
    );
    until("the release", || Ok(world.count_on(0, &others).is_ok()))?;
    let held = format!("SELECT v FROM t WHERE id = {} FOR UPDATE NOWAIT", world.rows[0]);
    ensure!(world.count_on(0, &held).is_err(), "the first update's row is free");
    client.query("ROLLBACK TO s")?;
    holder.query("ROLLBACK")?;
    client.query(UPDATE_ALL)?;
    client.query("COMMIT")?;
    let value = client.value(&format!("SELECT v FROM t WHERE id = {}", world.rows[0]))?;
    ensure!(value == "8", "the row has {value}");
    Ok(())
}

#[test]
fn a_statement_timeout_ends_a_read_of_all_nodes() -> Result<()> {
    let world = World::start()?;
    let mut client = world.session()?;
    client.query("SET statement_timeout = '300ms'")?;
    let read = "SELECT count(*) FROM t WHERE pg_sleep(1) IS NOT NULL";
    ensure!(client.query(read).is_err(), "it has had all the time it wanted");
    for node in [0, 1] {
        let busy = "SELECT count(*) FROM pg_stat_activity \
                    WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%pg_sleep%'";
        until("the end", || Ok(world.count_on(node, busy)? == "0"))?;
    }
    client.query("RESET statement_timeout")?;
    ensure!(client.value("SELECT count(*) FROM t")? == "40", "the session does not go on");
    Ok(())
}
