//! `tutti.commit = 'base'`: nodes commit one by one, and what must be whole is whole all the same.
//!
//! Owns: which transactions are prepared and which are not, by the nodes' own logs; where the setting comes
//! from; what others see meanwhile; a node that refuses. Lost nodes and connections are in
//! `faults/recovery/node_by_node.rs`.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use tutti_tests::answer::Answer;
use tutti_tests::client::{Client, Flight, Request, text_arguments};
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frontend::put_query;

const NODES: u16 = 2;
/// Long after anything that is to happen.
const PATIENCE: Duration = Duration::from_secs(20);

struct World {
    cluster: TestCluster,
    /// A key of each node.
    keys: Vec<i32>,
}

impl World {
    /// The table `t` by hash with 40 rows, `copies` replicated, and nodes that log what they are sent.
    fn start() -> Result<Self> {
        let servers = servers::start_with(NODES, &[("log_statement", "all")])?;
        let cluster = TestCluster::start_on(servers)?;
        Client::connect(&cluster.endpoint())?.query(
            "CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
             CREATE TABLE copies (id int PRIMARY KEY, v int) DISTRIBUTE BY REPLICATED;
             INSERT INTO t SELECT n, 0 FROM generate_series(1, 40) n;
             INSERT INTO copies SELECT n, 0 FROM generate_series(1, 40) n",
        )?;
        let mut keys = Vec::new();
        for node in cluster.nodes() {
            keys.push(Client::connect(&node)?.value("SELECT min(id) FROM t")?.parse()?);
        }
        Ok(Self { cluster, keys })
    }

    fn session(&self) -> Result<Client> {
        Client::connect(&self.cluster.endpoint())
    }

    /// How often a node was asked to prepare a transaction.
    fn prepared(&self) -> Result<usize> {
        let mut found = 0;
        for server in self.cluster.servers().servers() {
            let log = fs::read_to_string(server.log_path()).context("read a node's log")?;
            found += log.matches("PREPARE TRANSACTION").count();
        }
        Ok(found)
    }

    /// The same, of what is done now.
    fn prepared_by(&self, doing: impl FnOnce() -> Result<()>) -> Result<usize> {
        let before = self.prepared()?;
        doing()?;
        Ok(self.prepared()? - before)
    }

    /// A row on each node is changed in one transaction.
    fn write_on_both(&self, client: &mut Client) -> Result<()> {
        client.query("BEGIN")?;
        self.change_both(client)?;
        client.query("COMMIT")?;
        Ok(())
    }

    fn change_both(&self, client: &mut Client) -> Result<()> {
        for key in &self.keys {
            client.query(&format!("UPDATE t SET v = v + 1 WHERE id = {key}"))?;
        }
        Ok(())
    }
}

/// Runs a statement by the extended protocol, which must not fail.
fn extended(client: &mut Client, sql: &str) -> Result<Answer> {
    let request = Request { sql, types: &[], arguments: &[], row_limit: 0 };
    let answer = client.extended(&request, Flight::OneFlight, b"")?;
    match answer.error() {
        Some(error) => anyhow::bail!("{sql}: {} {}", error.sqlstate(), error.message()),
        None => Ok(answer),
    }
}

#[test]
fn every_way_to_say_base_is_heard_and_acid_is_the_default() -> Result<()> {
    let mut world = World::start()?;
    let endpoint = world.cluster.endpoint();
    let mut owner = world.session()?;
    owner.query("CREATE ROLE shopper LOGIN")?;
    owner.query("GRANT ALL ON t TO shopper")?;
    ensure!(owner.value("SHOW tutti.commit")? == "acid");
    ensure!(world.prepared_by(|| world.write_on_both(&mut owner))? == 2, "the default is ACID");

    for set in [
        "SET tutti.commit = 'base'",
        "SET tutti.commit TO Base",
        "SELECT set_config('tutti.commit', 'base', false)",
    ] {
        owner.query(set)?;
        ensure!(owner.value("SHOW tutti.commit")? == "base", "{set}");
        ensure!(world.prepared_by(|| world.write_on_both(&mut owner))? == 0, "{set}");
        owner.query("RESET tutti.commit")?;
        ensure!(owner.value("SHOW tutti.commit")? == "acid", "{set}");
        ensure!(world.prepared_by(|| world.write_on_both(&mut owner))? == 2, "{set}, undone");
    }

    // Of one transaction, wherever in it.
    for when in 0..3 {
        let prepared = world.prepared_by(|| {
            owner.query("BEGIN")?;
            for step in 0..3 {
                if step == when {
                    owner.query("SET LOCAL tutti.commit = 'base'")?;
                }
                if let Some(key) = world.keys.get(step) {
                    owner.query(&format!("UPDATE t SET v = v + 1 WHERE id = {key}"))?;
                }
            }
            owner.query("COMMIT").map(drop)
        })?;
        ensure!(prepared == 0, "SET LOCAL at step {when}: {prepared}");
        ensure!(world.prepared_by(|| world.write_on_both(&mut owner))? == 2, "it was LOCAL");
    }

    // What is undone does not count.
    let prepared = world.prepared_by(|| {
        owner.query("BEGIN")?;
        world.change_both(&mut owner)?;
        owner.query("SAVEPOINT s")?;
        owner.query("SET tutti.commit = 'base'")?;
        ensure!(owner.value("SHOW tutti.commit")? == "base");
        owner.query("ROLLBACK TO s")?;
        owner.query("COMMIT").map(drop)
    })?;
    ensure!(prepared == 2, "undone by ROLLBACK TO: {prepared}");
    owner.query("BEGIN")?;
    owner.query("SET tutti.commit = 'base'")?;
    owner.query("ROLLBACK")?;
    ensure!(owner.value("SHOW tutti.commit")? == "acid");
    owner.query("SET tutti.commit = 'base'")?;
    owner.query("RESET ALL")?;
    ensure!(owner.value("SHOW tutti.commit")? == "acid");
    owner.query("SET tutti.commit = 'base'")?;
    owner.query("DISCARD ALL")?;
    ensure!(owner.value("SHOW tutti.commit")? == "acid");

    // From outside of the session; what a session sets itself wins.
    for settings in [[("tutti.commit", "base")], [("options", "-c tutti.commit=base")]] {
        let mut client = Client::connect_with(&endpoint, "postgres", &settings)?;
        ensure!(client.value("SHOW tutti.commit")? == "base", "{settings:?}");
        ensure!(world.prepared_by(|| world.write_on_both(&mut client))? == 0, "{settings:?}");
        client.query("SET tutti.commit = 'acid'")?;
        ensure!(world.prepared_by(|| world.write_on_both(&mut client))? == 2, "{settings:?}");
        client.query("RESET tutti.commit")?;
        ensure!(client.value("SHOW tutti.commit")? == "base", "{settings:?}");
    }
    for (set, reset) in [
        ("ALTER ROLE shopper SET tutti.commit = 'base'", "ALTER ROLE shopper RESET tutti.commit"),
        (
            "ALTER DATABASE postgres SET tutti.commit = 'base'",
            "ALTER DATABASE postgres RESET tutti.commit",
        ),
    ] {
        owner.query(set)?;
        let mut client = Client::connect_as(&endpoint, "shopper")?;
        ensure!(client.value("SHOW tutti.commit")? == "base", "{set}");
        ensure!(world.prepared_by(|| world.write_on_both(&mut client))? == 0, "{set}");
        ensure!(world.prepared_by(|| world.write_on_both(&mut owner))? == 2, "{set}: others");
        owner.query(reset)?;
        let mut client = Client::connect_as(&endpoint, "shopper")?;
        ensure!(client.value("SHOW tutti.commit")? == "acid", "{reset}");
        ensure!(world.prepared_by(|| world.write_on_both(&mut client))? == 2, "{reset}");
    }

    for wrong in [
        "SET tutti.commit = 'fast'",
        "SET LOCAL tutti.commit = 1",
        "SELECT set_config('tutti.commit', 'fast', false)",
        "ALTER ROLE shopper SET tutti.commit = 'fast'",
        "ALTER DATABASE postgres SET tutti.commit = 'fast'",
    ] {
        let answer = owner.simple(wrong, b"")?;
        let error = answer.error().with_context(|| wrong.to_owned())?;
        ensure!(error.sqlstate() == "22023", "{wrong}: {error:?}");
        ensure!(error.get(b'H') == Some("Available values: acid, base."), "{wrong}: {error:?}");
    }
    let refused = Client::connect_with(&endpoint, "postgres", &[("tutti.commit", "fast")]);
    ensure!(format!("{:#}", refused.err().context("it is refused")?).contains("22023"));
    ensure!(owner.value("SHOW tutti.commit")? == "acid");
    world.cluster.stop_gateway()
}

/// What each of these writes on both nodes goes without votes, alone or in a block, by either protocol.
#[test]
fn writes_of_distributed_tables_are_not_prepared() -> Result<()> {
    let mut world = World::start()?;
    let mut owner = world.session()?;
    owner.query("CREATE TABLE other (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
    owner.query("CREATE TABLE dealt (id int, v int) DISTRIBUTE BY ROUND ROBIN")?;
    owner.query("CREATE TABLE at_home (id int, v int) DISTRIBUTE BY HOME")?;
    owner.query("SET tutti.commit = 'base'")?;
    let away = world.keys[1];
    let kinds = [
        "UPDATE t SET v = v + 1".to_owned(),
        "UPDATE t SET v = v + 1 RETURNING id".to_owned(),
        "UPDATE t SET id = id WHERE v > 0".to_owned(),
        "DELETE FROM other".to_owned(),
        "INSERT INTO other VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)".to_owned(),
        "DELETE FROM other WHERE v > 0".to_owned(),
        "INSERT INTO other SELECT id + 1000, v FROM t".to_owned(),
        "INSERT INTO other SELECT id, v FROM t ON CONFLICT DO NOTHING".to_owned(),
        "UPDATE other SET v = c.v FROM copies c WHERE c.id = other.id".to_owned(),
        "DELETE FROM other".to_owned(),
        "INSERT INTO dealt SELECT id, v FROM t".to_owned(),
        format!("INSERT INTO at_home VALUES (1, 1); UPDATE t SET v = v + 1 WHERE id = {away}"),
        "SELECT id FROM t FOR UPDATE".to_owned(),
        "LOCK TABLE t IN SHARE MODE; UPDATE t SET v = v + 1".to_owned(),
    ];
    for level in ["READ COMMITTED", "REPEATABLE READ"] {
        for kind in &kinds {
            let prepared = world.prepared_by(|| {
                owner.query(&format!("BEGIN ISOLATION LEVEL {level}"))?;
                owner.query(kind)?;
                owner.query("COMMIT").map(drop)
            })?;
            ensure!(prepared == 0, "{level}: {kind}: {prepared}");
            if kind.contains(';') {
                continue;
            }
            if !kind.starts_with("SELECT") {
                let prepared = world.prepared_by(|| {
                    owner.query(&format!("SET default_transaction_isolation = '{level}'"))?;
                    if kind.contains("INSERT INTO other") {
                        owner.query("DELETE FROM other")?;
                    }
                    owner.query(kind)?;
                    if kind.contains("INSERT INTO other") {
                        owner.query("DELETE FROM other")?;
                    }
                    extended(&mut owner, kind)?;
                    owner.query("RESET default_transaction_isolation").map(drop)
                })?;
                ensure!(prepared == 0, "{level}: {kind} by itself: {prepared}");
            }
        }
    }
    let prepared = world.prepared_by(|| {
        owner.query("DELETE FROM other")?;
        let answer = owner.simple("COPY other FROM STDIN", b"1\t1\n2\t2\n3\t3\n4\t4\n5\t5\n")?;
        ensure!(answer.error().is_none(), "{answer:?}");
        Ok(())
    })?;
    ensure!(prepared == 0, "COPY: {prepared}");
    for node in world.cluster.nodes() {
        let rows: usize = Client::connect(&node)?.value("SELECT count(*) FROM other")?.parse()?;
        ensure!(rows > 0 && rows < 5, "a node has {rows} rows");
    }
    // Several statements of one message, or executions of one flight, are one transaction.
    let before: i64 = owner.value("SELECT sum(v) FROM t")?.parse()?;
    let prepared = world.prepared_by(|| {
        let keys = world.keys.iter().map(|key| text_arguments(&[Some(key.to_string())]));
        let arguments: Vec<_> = keys.collect();
        let sql = "UPDATE t SET v = v - 1 WHERE id = $1";
        let request = Request { sql, types: &[], arguments: &arguments, row_limit: 0 };
        let answer = owner.extended(&request, Flight::OneFlight, b"")?;
        ensure!(answer.error().is_none(), "{answer:?}");
        Ok(())
    })?;
    ensure!(prepared == 0, "a flight: {prepared}");
    ensure!(owner.value("SELECT sum(v) FROM t")?.parse::<i64>()? == before - 2);
    let prepared = world.prepared_by(|| {
        let both = world.keys.iter().map(|key| format!("UPDATE t SET v = v + 1 WHERE id = {key}"));
        owner.query(&both.collect::<Vec<_>>().join("; ")).map(drop)
    })?;
    ensure!(prepared == 0, "a string of statements: {prepared}");
    ensure!(owner.value("SELECT sum(v) FROM t")?.parse::<i64>()? == before);
    world.cluster.stop_gateway()
}

/// One such statement makes the whole transaction one that is on all nodes or on none.
#[test]
fn what_must_be_whole_is_prepared_all_the_same() -> Result<()> {
    let mut world = World::start()?;
    let mut owner = world.session()?;
    owner.query(
        "CREATE FUNCTION adds(x int) RETURNS int LANGUAGE plpgsql AS
             'BEGIN INSERT INTO seen VALUES (x); RETURN x; END';
         CREATE TABLE seen (x int) DISTRIBUTE BY HOME;
         CREATE TABLE empty (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)",
    )?;
    owner.query("SET tutti.commit = 'base'")?;
    for (number, tie) in [
        "INSERT INTO copies VALUES (100, 1)",
        "UPDATE copies SET v = v + 1",
        "UPDATE copies SET v = (SELECT max(v) FROM t)",
        "DELETE FROM copies WHERE id = 2",
        "INSERT INTO copies SELECT id + 1000, v FROM t",
        "SELECT adds(1)",
        "CREATE TABLE made (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
        "ALTER TABLE t ADD COLUMN more int",
        "CREATE INDEX ON t (v)",
        "DROP TABLE made",
        "TRUNCATE empty",
        "ALTER ROLE postgres SET work_mem = '5MB'",
        "NOTIFY somebody",
        "SELECT pg_notify('somebody', 'something')",
        "INSERT INTO seen VALUES (length(pg_notify('somebody', 'something')::text))",
        "SELECT tutti_replicate('empty')",
    ]
    .into_iter()
    .enumerate()
    {
        // Before the other writes, and behind them.
        for first in [true, false] {
            if number > 5 && !first {
                continue;
            }
            let tie = tie.replace("100", if first { "100" } else { "200" });
            let prepared = world.prepared_by(|| {
                owner.query("BEGIN")?;
                if first {
                    owner.query(&tie)?;
                }
                world.change_both(&mut owner)?;
                if !first {
                    owner.query(&tie)?;
                }
                owner.query("COMMIT").map(drop)
            });
            let prepared = prepared.with_context(|| tie.clone())?;
            ensure!(prepared > 0, "{tie}: not prepared");
        }
    }
    owner.query("ALTER ROLE postgres RESET work_mem")?;
    let prepared = world.prepared_by(|| {
        owner.query("UPDATE copies SET v = v + 1")?;
        extended(&mut owner, "UPDATE copies SET v = v + 1").map(drop)
    })?;
    ensure!(prepared == 4, "by itself: {prepared}");

    // A row leaves its node.
    let prepared = world.prepared_by(|| owner.query("UPDATE t SET id = id + 5000").map(drop))?;
    ensure!(prepared == 2, "rows that move: {prepared}");
    owner.query("UPDATE t SET id = id - 5000")?;

    // What promises more is given.
    let prepared = world.prepared_by(|| {
        owner.query("BEGIN ISOLATION LEVEL SERIALIZABLE")?;
        world.change_both(&mut owner)?;
        owner.query("COMMIT").map(drop)
    })?;
    ensure!(prepared == 2, "SERIALIZABLE: {prepared}");

    // It was of those transactions only.
    ensure!(world.prepared_by(|| world.write_on_both(&mut owner))? == 0);
    // What has committed by itself before a transaction begins is not part of it.
    owner.query("CREATE TABLE h (id int) DISTRIBUTE BY HOME")?;
    for before in ["SELECT adds(1)", "UPDATE copies SET v = v + 1", "INSERT INTO h VALUES (1)"] {
        owner.query(before)?;
        ensure!(world.prepared_by(|| world.write_on_both(&mut owner))? == 0, "{before}");
    }
    world.cluster.stop_gateway()
}

/// A session whose COMMIT waits on the second node, for another's uncommitted row.
struct Held {
    committing: Client,
    holder: Client,
}

impl World {
    /// The COMMIT of a `base` transaction is sent; node 1 has done it, node 2 waits.
    fn hold_up(&self) -> Result<Held> {
        let mut owner = self.session()?;
        owner.query(
            "CREATE TABLE u (id int, once int, UNIQUE (id, once) DEFERRABLE INITIALLY DEFERRED)
                 DISTRIBUTE BY HASH (id)",
        )?;
        let away = self.keys[1];
        let mut holder = Client::connect(&self.cluster.nodes()[1])?;
        holder.query("BEGIN")?;
        holder.query(&format!("INSERT INTO u VALUES ({away}, 1)"))?;
        let mut committing = self.session()?;
        committing.query("SET tutti.commit = 'base'")?;
        committing.query("BEGIN")?;
        for key in &self.keys {
            committing.query(&format!("INSERT INTO u VALUES ({key}, 1)"))?;
        }
        let mut bytes = BytesMut::new();
        put_query(&mut bytes, "COMMIT");
        committing.send_bytes(&bytes)?;
        let mut first = Client::connect(&self.cluster.nodes()[0])?;
        let deadline = Instant::now() + PATIENCE;
        while first.value("SELECT count(*) FROM u")? != "1" {
            ensure!(Instant::now() < deadline, "node 1 does not commit");
        }
        Ok(Held { committing, holder })
    }
}

/// The error that comes where an answer is awaited.
fn awaited_error(client: &mut Client) -> Result<Option<ErrorFields>> {
    let mut error = None;
    loop {
        let frame = client.receive()?;
        match frame.tag() {
            b'E' => error = Some(ErrorFields::decode(&frame)?),
            b'Z' => return Ok(error),
            _ => (),
        }
    }
}

#[test]
fn others_may_see_it_on_one_node_before_another() -> Result<()> {
    let mut world = World::start()?;
    let Held { mut committing, mut holder } = world.hold_up()?;
    let mut reader = world.session()?;
    // At every level: it is no moment of the cluster at which nodes commit one by one.
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        reader.query(&format!("BEGIN ISOLATION LEVEL {level}"))?;
        ensure!(reader.value("SELECT count(*) FROM u")? == "1", "{level}");
        reader.query("COMMIT")?;
    }
    // A snapshot stays what it is; and nobody is held up by it: neither snapshots nor global commits.
    reader.query("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    ensure!(reader.value("SELECT count(*) FROM u")? == "1");
    let mut owner = world.session()?;
    world.write_on_both(&mut owner)?;
    holder.query("ROLLBACK")?;
    ensure!(awaited_error(&mut committing)?.is_none());
    ensure!(reader.value("SELECT count(*) FROM u")? == "1");
    reader.query("COMMIT")?;
    // Whoever asks when its client has been told sees all of it.
    ensure!(reader.value("SELECT count(*) FROM u")? == "2");
    drop(holder);
    world.cluster.stop_gateway()
}

#[test]
fn a_node_that_refuses_is_told_with_those_that_have_committed() -> Result<()> {
    let mut world = World::start()?;
    let Held { mut committing, mut holder } = world.hold_up()?;
    holder.query("COMMIT")?;
    let error = awaited_error(&mut committing)?.context("node 2 refuses")?;
    ensure!(error.sqlstate() == "08007", "{error:?}");
    let detail = error.get(b'D').unwrap_or_default();
    ensure!(
        detail.starts_with("It is committed on node n1; not committed on node n2 (duplicate key"),
        "{detail}"
    );
    ensure!(error.get(b'H').is_some_and(|hint| hint.contains("tutti.commit")), "{error:?}");
    // The session goes on, with what it has set.
    ensure!(committing.value("SHOW tutti.commit")? == "base");
    ensure!(committing.value("SELECT count(*) FROM u")? == "2", "node 1's, and the holder's");
    world.write_on_both(&mut committing)?;
    // Where every node refuses, nothing is committed, and that is told.
    let first = world.keys[0];
    committing.query("BEGIN")?;
    for key in &world.keys {
        committing.query(&format!("INSERT INTO u VALUES ({key}, 1)"))?;
    }
    let answer = committing.simple("COMMIT", b"")?;
    let error = answer.error().context("both refuse")?;
    ensure!(error.sqlstate() == "23505", "{error:?}");
    ensure!(committing.value(&format!("SELECT count(*) FROM u WHERE id = {first}"))? == "1");
    world.cluster.stop_gateway()
}
