//! Tables that become asynchronously replicated, and something else again, when that is difficult.
//!
//! Owns: sessions that do it at the same time, gateways killed in the middle, slots that have lost rows, what is left on
//! the nodes, rights, names, and isolation levels. What such tables do is tested in `replicated_async`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use tutti_tests::client::{Client, Endpoint, Flight, Request};
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::servers;

use super::replicated_async::{World, refused};

const PATIENCE: Duration = Duration::from_secs(60);

/// What carries rows, on all nodes together.
fn carriers(nodes: &[Endpoint]) -> Result<usize> {
    let mut count = 0;
    for node in nodes {
        let here = Client::connect(node)?.value(
            "SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_replication_slots)
                 + (SELECT count(*) FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid
                     WHERE d.datname = current_database())",
        )?;
        count += here.parse::<usize>()?;
    }
    Ok(count)
}

fn comes(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn nothing_is_left_on_the_nodes_when_no_table_needs_it() -> Result<()> {
    let mut world = World::start()?;
    let nodes = world.cluster.nodes();
    let mut client = world.session()?;
    // A publication, two slots and two subscriptions on each.
    ensure!(carriers(&nodes)? == 15);
    client.query("CREATE TABLE b (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED ASYNC")?;
    client.query("SELECT tutti_replicate('b')")?;
    ensure!(carriers(&nodes)? == 15, "another table needs them");
    client.query("SELECT tutti_replicate('a')")?;
    ensure!(carriers(&nodes)? == 0);
    client.query("DROP TABLE a")?;
    // What fails leaves nothing either.
    refused(&mut client, "CREATE TABLE n (v int) DISTRIBUTE BY REPLICATED ASYNC", "0A000")?;
    ensure!(carriers(&nodes)? == 0);
    // Subscriptions of another database's are none of ours.
    for node in &nodes {
        let mut node = Client::connect(node)?;
        node.query("CREATE DATABASE other")?;
        let port = node.value("SHOW port")?.parse()?;
        let database = "other".to_owned();
        let mut other = Client::connect(&Endpoint { database, ..Endpoint::on(port) })?;
        for from in 1..=3 {
            other.query(&format!(
                "CREATE SUBSCRIPTION tutti_async_{from} CONNECTION 'host=127.0.0.1' PUBLICATION p
                     WITH (connect = false, slot_name = NONE)"
            ))?;
        }
    }
    client.query("CREATE TABLE a (id int PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED ASYNC")?;
    client.query("INSERT INTO a SELECT g, 'x' FROM generate_series(1, 20) g")?;
    ensure!(world.converge()?.matches('x').count() == 20);
    // Somebody has sent a subscription elsewhere, as a change of the configuration would.
    Client::connect(&nodes[1])?
        .query("ALTER SUBSCRIPTION tutti_async_1 CONNECTION 'host=127.0.0.1 port=1'")?;
    client.query("INSERT INTO a SELECT g, 'y' FROM generate_series(21, 40) g")?;
    ensure!(world.converge()?.matches('y').count() == 20);
    world.cluster.stop_gateway()
}

#[test]
fn a_slot_that_is_lost_is_not_made_anew_while_rows_depend_on_it() -> Result<()> {
    let mut world = World::start()?;
    let nodes = world.cluster.nodes();
    let mut client = world.session()?;
    client.query("CREATE TABLE b (id int PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED ASYNC")?;
    for table in ["a", "b"] {
        client
            .query(&format!("INSERT INTO {table} SELECT g, 'x' FROM generate_series(1, 30) g"))?;
    }
    world.converge()?;
    let mut second = Client::connect(&nodes[1])?;
    second.query("ALTER SUBSCRIPTION tutti_async_1 DISABLE")?;
    let mut first = Client::connect(&nodes[0])?;
    comes("the slot is not free", || {
        Ok(first.value(
            "SELECT count(*) FROM pg_replication_slots WHERE slot_name LIKE '%\\_1\\_2' AND active",
        )? == "0")
    })?;
    first.query(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE '%\\_1\\_2'",
    )?;
    for table in ["a", "b"] {
        client
            .query(&format!("INSERT INTO {table} SELECT g, 'x' FROM generate_series(31, 90) g"))?;
    }
    let lag = client.query("SELECT * FROM tutti_lag()")?;
    ensure!(lag.iter().any(|row| row[2].is_none() && row[1].as_deref() == Some("n2")), "{lag:?}");
    // Whatever would make a new one, which begins now, or would count on the old one.
    refused(
        &mut client,
        "CREATE TABLE c (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED ASYNC",
        "55000",
    )?;
    refused(&mut client, "SELECT tutti_replicate('a')", "55000")?;
    // All rows are at their homes.
    second.query("ALTER SUBSCRIPTION tutti_async_1 ENABLE")?;
    for table in ["a", "b"] {
        client.query(&format!("SELECT tutti_distribute('{table}', 'id')"))?;
        ensure!(client.value(&format!("SELECT count(*) FROM {table}"))? == "90");
    }
    ensure!(carriers(&nodes)? == 0);
    for table in ["a", "b"] {
        client.query(&format!("SELECT tutti_replicate('{table}', async => true)"))?;
        client.query(&format!("UPDATE {table} SET v = 'new' WHERE id = 7"))?;
        for node in &nodes {
            let mut node = Client::connect(node)?;
            let count = format!("SELECT count(*) FILTER (WHERE v = 'new') + count(*) FROM {table}");
            comes("rows are missing", || Ok(node.value(&count)? == "91"))?;
        }
    }
    world.cluster.stop_gateway()
}

/// Rows that are on their way when a table is distributed by its key arrive nowhere any more.
#[test]
fn a_table_is_distributed_while_rows_are_on_their_way() -> Result<()> {
    let mut world = World::start()?;
    let nodes = world.cluster.nodes();
    let mut client = world.session()?;
    client.query("INSERT INTO a SELECT g, 'x' FROM generate_series(1, 60) g")?;
    world.converge()?;
    // Node 2 receives slowly.
    let mut second = Client::connect(&nodes[1])?;
    second.query(
        "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_sleep(0.05); RETURN NEW; END';
         CREATE TRIGGER waits BEFORE INSERT ON a FOR EACH ROW EXECUTE FUNCTION waits();
         ALTER TABLE a ENABLE REPLICA TRIGGER waits",
    )?;
    for id in 1000..1400 {
        client.query(&format!("INSERT INTO a VALUES ({id}, 'y')"))?;
    }
    let count = "SELECT count(*) || ' ' || count(DISTINCT id) FROM a";
    ensure!(second.value(count)? != "460 460", "node 2 was not slow");
    client.query("SELECT tutti_distribute('a', 'id')")?;
    ensure!(client.value(count)? == "460 460");
    std::thread::sleep(Duration::from_secs(3));
    ensure!(client.value(count)? == "460 460");
    second.query("DROP TRIGGER waits ON a; DROP FUNCTION waits()")?;
    world.cluster.stop_gateway()
}

/// Rows that are on their way, behind those of another table, do not come to what has the table's name later.
#[test]
fn what_was_on_its_way_does_not_come_to_a_table_that_is_carried_again() -> Result<()> {
    let mut world = World::start()?;
    let nodes = world.cluster.nodes();
    let mut client = world.session()?;
    client.query("CREATE TABLE other (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED ASYNC")?;
    client.query("INSERT INTO a SELECT g, 'old' FROM generate_series(1, 20) g")?;
    world.converge()?;
    // What node 2 receives waits for a lock.
    let mut second = Client::connect(&nodes[1])?;
    second.query(
        "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END';
         CREATE TRIGGER waits BEFORE INSERT ON other FOR EACH ROW EXECUTE FUNCTION waits();
         ALTER TABLE other ENABLE REPLICA TRIGGER waits",
    )?;
    second.query("SELECT pg_advisory_lock(7)")?;
    client.query("INSERT INTO other SELECT g FROM generate_series(1, 50) g")?;
    client.query("INSERT INTO a SELECT g, 'late' FROM generate_series(101, 120) g")?;
    for id in 1..=10 {
        client.query(&format!("DELETE FROM a WHERE id = {id}"))?;
        client.query(&format!("UPDATE a SET v = 'late' WHERE id = {}", id + 10))?;
    }
    let endpoint = world.cluster.endpoint();
    let distributing = std::thread::spawn(move || {
        Client::connect(&endpoint)?.query("SELECT tutti_distribute('a', 'id')")
    });
    std::thread::sleep(Duration::from_secs(3));
    ensure!(!distributing.is_finished(), "rows are on their way that are behind a lock");
    refused(&mut client, "INSERT INTO a VALUES (500, 'x')", "55000")?;
    second.query("SELECT pg_advisory_unlock(7)")?;
    distributing.join().map_err(|_| anyhow!("it panicked"))??;
    client.query("DELETE FROM a WHERE id > 100")?;
    client.query("INSERT INTO a SELECT g, 'again' FROM generate_series(1, 10) g")?;
    client.query("UPDATE a SET v = 'newest' WHERE id BETWEEN 11 AND 20")?;
    client.query("SELECT tutti_replicate('a')")?;
    client.query("SELECT tutti_replicate('a', async => true)")?;
    client.query("INSERT INTO a VALUES (21, 'last')")?;
    let mut expected: Vec<_> = (1..=21)
        .map(|id| match id {
            1..=10 => format!("({id},again)"),
            11..=20 => format!("({id},newest)"),
            _ => format!("({id},last)"),
        })
        .collect();
    expected.sort();
    let copies = world.converge()?;
    ensure!(copies == expected.join(" "), "{copies}");
    second.query("DROP TRIGGER waits ON other; DROP FUNCTION waits()")?;
    world.cluster.stop_gateway()
}

#[test]
fn a_gateway_that_is_killed_in_the_middle_leaves_a_table_that_can_go_on() -> Result<()> {
    let servers = servers::durable(3)?;
    process::init(&servers)?;
    let nodes: Vec<_> = (0..3).map(|index| servers::endpoint(&servers, index)).collect();
    let mut gateway = GatewayProcess::start(&servers)?;
    for goes_on in [true, false] {
        let mut client = Client::connect(&gateway.endpoint())?;
        client.query("CREATE TABLE other (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED ASYNC")?;
        client.query("CREATE TABLE t (id int PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED")?;
        client.query("INSERT INTO t SELECT g, 'old' FROM generate_series(1, 30) g")?;
        // The last node's publication is taken: the table is published by the others, and pending.
        let mut last = Client::connect(&nodes[2])?;
        last.query("CREATE TABLE own (id int PRIMARY KEY)")?;
        last.query("BEGIN; ALTER PUBLICATION tutti_async ADD TABLE own")?;
        let endpoint = gateway.endpoint();
        let converting = std::thread::spawn(move || {
            Client::connect(&endpoint)?.query("SELECT tutti_replicate('t', async => true)")
        });
        let published = "SELECT count(*) FROM pg_publication_tables WHERE tablename = 't'";
        let mut second = Client::connect(&nodes[1])?;
        comes("it is not published", || Ok(second.value(published)? == "1"))?;
        gateway.leave_unaudited("it is killed");
        gateway.kill9()?;
        ensure!(converting.join().is_ok_and(|ended| ended.is_err()), "it has ended");
        last.query("ROLLBACK; DROP TABLE own")?;
        gateway = GatewayProcess::start(&servers)?;
        let mut client = Client::connect(&gateway.endpoint())?;
        refused(&mut client, "INSERT INTO t VALUES (31, 'x')", "55000")?;
        refused(&mut client, "DROP TABLE t", "0A000")?;
        ensure!(client.value("SELECT count(*) FROM t")? == "30");
        let placed = client.query("SELECT tutti_tables()")?;
        ensure!(format!("{placed:?}").contains("replicated async, pending"), "{placed:?}");
        if goes_on {
            client.query("SELECT tutti_replicate('t', async => true)")?;
            client.query("INSERT INTO t SELECT g, 'new' FROM generate_series(31, 60) g")?;
            for node in &nodes {
                let mut node = Client::connect(node)?;
                comes("rows are missing", || Ok(node.value("SELECT count(*) FROM t")? == "60"))?;
            }
        }
        client.query("SELECT tutti_replicate('t')")?;
        client.query("INSERT INTO t VALUES (61, 'x')")?;
        client.query("UPDATE t SET v = 'all'")?;
        client.query("DROP TABLE t")?;
        client.query("SELECT tutti_replicate('other')")?;
        client.query("DROP TABLE other")?;
        ensure!(carriers(&nodes)? == 0);
    }
    // Killed while a table is distributed by its key: rows on their way may be gone, and this has one end.
    let mut client = Client::connect(&gateway.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED ASYNC")?;
    client.query("INSERT INTO t SELECT g, 'x' FROM generate_series(1, 30) g")?;
    let mut last = Client::connect(&nodes[2])?;
    last.query("CREATE TABLE own (id int PRIMARY KEY)")?;
    last.query("BEGIN; ALTER PUBLICATION tutti_async ADD TABLE own")?;
    let endpoint = gateway.endpoint();
    let ending = std::thread::spawn(move || {
        Client::connect(&endpoint)?.query("SELECT tutti_distribute('t', 'id')")
    });
    let published = "SELECT count(*) FROM pg_publication_tables WHERE tablename = 't'";
    let mut second = Client::connect(&nodes[1])?;
    comes("it is still published", || Ok(second.value(published)? == "0"))?;
    gateway.leave_unaudited("it is killed");
    gateway.kill9()?;
    ensure!(ending.join().is_ok_and(|ended| ended.is_err()), "it has ended");
    last.query("ROLLBACK; DROP TABLE own")?;
    let mut gateway = GatewayProcess::start(&servers)?;
    let mut client = Client::connect(&gateway.endpoint())?;
    for sql in [
        "SELECT tutti_replicate('t')",
        "SELECT tutti_replicate('t', async => true)",
        "INSERT INTO t VALUES (31, 'x')",
    ] {
        refused(&mut client, sql, "55000")?;
    }
    client.query("SELECT tutti_distribute('t', 'id')")?;
    ensure!(client.value("SELECT count(*) FROM t")? == "30");
    client.query("DROP TABLE t")?;
    // Killed while the first table sets everything up: the next gateway removes what no table needs.
    let mut third = Client::connect(&nodes[2])?;
    third.query("BEGIN; CREATE TABLE open (id int)")?;
    let endpoint = gateway.endpoint();
    let creating = std::thread::spawn(move || {
        Client::connect(&endpoint)?
            .query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED ASYNC")
    });
    comes("nothing was set up", || Ok(carriers(&nodes)? >= 5))?;
    gateway.leave_unaudited("it is killed");
    gateway.kill9()?;
    ensure!(creating.join().is_ok_and(|ended| ended.is_err()), "it has ended");
    third.query("ROLLBACK")?;
    let gateway = GatewayProcess::start(&servers)?;
    comes("it is left", || Ok(carriers(&nodes)? == 0))?;
    drop(gateway);
    Ok(())
}

/// A transaction that does not end keeps a slot from being made: whoever waits can stop.
#[test]
fn who_waits_for_a_slot_can_stop() -> Result<()> {
    let mut world = World::start()?;
    let nodes = world.cluster.nodes();
    let mut client = world.session()?;
    client.query("SELECT tutti_replicate('a')")?;
    let mut third = Client::connect(&nodes[2])?;
    third.query("BEGIN; CREATE TABLE open (id int)")?;
    client.query("SET statement_timeout = '1s'")?;
    let answer = client.simple("SELECT tutti_replicate('a', async => true)", b"")?;
    let error = answer.error().context("it did not wait")?;
    ensure!(error.sqlstate() == "57014", "{error:?}");
    client.query("RESET statement_timeout")?;
    // Nobody else comes between until that has ended, which then leaves nothing.
    third.query("ROLLBACK")?;
    client.query("INSERT INTO a VALUES (1, 'x')")?;
    comes("it is left", || Ok(carriers(&nodes)? == 0))?;
    client.query("SELECT tutti_replicate('a', async => true)")?;
    client.query("INSERT INTO a SELECT g, 'x' FROM generate_series(2, 20) g")?;
    world.converge()?;
    world.cluster.stop_gateway()
}

#[test]
fn only_an_owner_converts_a_table_and_rights_hold_on_every_node() -> Result<()> {
    let mut world = World::start()?;
    let mut client = world.session()?;
    client.query("CREATE ROLE bob LOGIN; CREATE SCHEMA bobs AUTHORIZATION bob")?;
    client.query("INSERT INTO a SELECT g, 'x' FROM generate_series(1, 20) g")?;
    let endpoint = world.cluster.endpoint();
    let denied = |sql: &str| -> Result<()> {
        // Each session prefers another node.
        for _ in 0..3 {
            let answer = Client::connect_as(&endpoint, "bob")?.simple(sql, b"")?;
            let error = answer.error().with_context(|| format!("{sql}: not refused"))?;
            ensure!(error.sqlstate() == "42501", "{sql}: {error:?}");
        }
        Ok(())
    };
    for sql in [
        "SELECT tutti_replicate('a')",
        "SELECT tutti_replicate('a', async => true)",
        "SELECT tutti_distribute('a', 'id')",
        "SELECT count(*) FROM a",
        "INSERT INTO a VALUES (21, 'x')",
        "CREATE TABLE public.bobs (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED ASYNC",
    ] {
        denied(sql)?;
    }
    client.query("GRANT SELECT, INSERT, UPDATE ON a TO bob")?;
    for id in 21..30 {
        let mut bob = Client::connect_as(&endpoint, "bob")?;
        bob.query(&format!("INSERT INTO a VALUES ({id}, 'bob')"))?;
        bob.query(&format!("UPDATE a SET v = 'bobs' WHERE id = {id}"))?;
        bob.query("SELECT count(*) FROM a")?;
    }
    ensure!(world.converge()?.matches("bobs").count() == 9);
    client.query("REVOKE ALL ON a FROM bob")?;
    denied("SELECT count(*) FROM a")?;
    // His own, in his schema; names that need quotes, and a temporary table of the same name.
    let (table, key) = (r#""A ""b"" 'c'""#, r#""Key 'k'""#);
    let mut bob = Client::connect_as(&endpoint, "bob")?;
    bob.query("SET search_path = bobs")?;
    bob.query(&format!(
        r#"CREATE TABLE {table} ({key} text PRIMARY KEY, "v""w" int) DISTRIBUTE BY REPLICATED ASYNC"#
    ))?;
    bob.query(&format!("CREATE TEMP TABLE {table} (id int)"))?;
    let table = format!("bobs.{table}");
    for value in ["x", "y", "it''s", "Ä"] {
        bob.query(&format!("INSERT INTO {table} VALUES ('{value}', 1)"))?;
        bob.query(&format!(r#"UPDATE {table} SET "v""w" = 2 WHERE {key} = '{value}'"#))?;
    }
    for node in world.cluster.nodes() {
        let mut node = Client::connect(&node)?;
        let sum = format!(r#"SELECT coalesce(sum("v""w"), 0) FROM {table}"#);
        comes("rows are missing", || Ok(node.value(&sum)? == "8"))?;
    }
    let literal = table.replace('\'', "''");
    bob.query(&format!("SELECT tutti_replicate('{literal}')"))?;
    bob.query(&format!("SELECT tutti_replicate('{literal}', async => true)"))?;
    // Deleting copies takes more than that; it is left what it is.
    let distribute = format!("SELECT tutti_distribute('{literal}', 'Key ''k''')");
    refused(&mut bob, &distribute, "0A000")?;
    bob.query(&format!("INSERT INTO {table} VALUES ('z', 1)"))?;
    bob.query(&format!("DELETE FROM {table} WHERE {key} = 'z'"))?;
    client.query(&distribute)?;
    ensure!(bob.value(&format!("SELECT count(*) FROM {table}"))? == "4");
    // A table of the name that is there already stays what it is.
    client.query("CREATE TABLE r (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED")?;
    client.query(
        "CREATE TABLE IF NOT EXISTS r (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED ASYNC",
    )?;
    let placed = client.query("SELECT tutti_tables()")?;
    let of = |row: &&Vec<Option<String>>| row[0].as_deref() == Some("public.r");
    let of_r = placed.iter().find(of).context("it is there")?;
    ensure!(of_r[1].as_deref() == Some("replicated"), "{placed:?}");
    world.cluster.stop_gateway()
}

/// What may be late is not read where a transaction is to be as if alone.
#[test]
fn serializable_transactions_write_such_tables_and_do_not_read_them() -> Result<()> {
    let mut world = World::start()?;
    let mut client = world.session()?;
    client.query("INSERT INTO a SELECT g, 'x' FROM generate_series(1, 20) g")?;
    world.converge()?;
    client.query("CREATE VIEW seen AS SELECT * FROM a")?;
    client.query("CREATE TABLE h (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id)")?;
    client.query("PREPARE p AS SELECT v FROM a WHERE id = $1")?;
    let reads = [
        "SELECT v FROM a WHERE id = 3",
        "SELECT count(*) FROM seen",
        "SELECT (SELECT max(v) FROM a)",
        "INSERT INTO h SELECT id, v FROM a WHERE id < 3 ON CONFLICT DO NOTHING",
        "SELECT count(*) FROM h WHERE id IN (SELECT id FROM a)",
        "EXECUTE p (3)",
        "COPY a TO STDOUT",
    ];
    // Where it may, so that its plan is known.
    for sql in reads {
        for _ in 0..2 {
            let answer = client.simple(sql, b"")?;
            ensure!(answer.error().is_none(), "{sql}: {answer:?}");
        }
    }
    for begin in
        ["BEGIN ISOLATION LEVEL SERIALIZABLE", "SET default_transaction_isolation = 'serializable'"]
    {
        for sql in reads {
            client.query(begin)?;
            refused(&mut client, sql, "0A000")?;
            client.query("ROLLBACK")?;
            for flight in [Flight::OneFlight, Flight::TwoFlights] {
                if sql.starts_with("COPY") {
                    continue;
                }
                client.query(begin)?;
                let request = Request { sql, types: &[], arguments: &[], row_limit: 0 };
                let answer = client.extended(&request, flight, b"")?;
                let error = answer.error().with_context(|| format!("{sql}: not refused"))?;
                ensure!(error.sqlstate() == "0A000", "{sql}: {error:?}");
                client.query("ROLLBACK")?;
            }
            client.query("RESET default_transaction_isolation")?;
        }
    }
    client.query("BEGIN ISOLATION LEVEL SERIALIZABLE")?;
    client.query("UPDATE a SET v = 'mine' WHERE id = 3")?;
    client.query("INSERT INTO a VALUES (30, 'mine')")?;
    client.query("COMMIT")?;
    ensure!(world.converge()?.matches("mine").count() == 2);
    world.cluster.stop_gateway()
}

/// Sessions that give two tables one placement after another, while others write them.
#[test]
fn sessions_that_convert_the_same_tables_lose_no_row() -> Result<()> {
    const LASTS: Duration = Duration::from_secs(15);
    let mut world = World::start()?;
    let mut client = world.session()?;
    client.query("CREATE TABLE b (id int PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED ASYNC")?;
    let (stops, next) = (AtomicBool::new(false), AtomicU32::new(1));
    let endpoint = world.cluster.endpoint();
    let written = std::thread::scope(|scope| -> Result<Vec<Vec<u32>>> {
        let begun = |table| {
            let (stops, next, endpoint) = (&stops, &next, &endpoint);
            scope.spawn(move || writes(endpoint, table, next, stops))
        };
        let writers: Vec<_> = ["a", "b"].into_iter().map(begun).collect();
        let begun = |number| {
            let (stops, endpoint) = (&stops, &endpoint);
            scope.spawn(move || converts(endpoint, number, stops))
        };
        let converters: Vec<_> = (0..3).map(begun).collect();
        std::thread::sleep(LASTS);
        stops.store(true, Ordering::Relaxed);
        let mut done = 0;
        for converter in converters {
            done += converter.join().map_err(|_| anyhow!("a session panicked"))??;
        }
        println!("{done} changes");
        ensure!(done > 3, "{done} changes");
        let ended = writers.into_iter().map(|it| it.join().map_err(|_| anyhow!("a panic"))?);
        ended.collect()
    })?;
    for (table, ids) in ["a", "b"].into_iter().zip(written) {
        println!("{table}: {} rows", ids.len());
        ensure!(!ids.is_empty());
        client.query(&format!("SELECT tutti_replicate('{table}')"))?;
        let expected: Vec<_> = ids.iter().map(ToString::to_string).collect();
        let read = format!("SELECT id FROM {table} ORDER BY id");
        for node in world.cluster.nodes() {
            let rows = Client::connect(&node)?.query(&read)?;
            let there: Vec<_> = rows.into_iter().filter_map(|mut row| row.remove(0)).collect();
            ensure!(there == expected, "{table}: {} rows of {}", there.len(), expected.len());
        }
    }
    ensure!(carriers(&world.cluster.nodes())? == 0);
    world.cluster.stop_gateway()
}

/// Numbers of the rows that were acknowledged.
fn writes(
    endpoint: &Endpoint,
    table: &str,
    next: &AtomicU32,
    stops: &AtomicBool,
) -> Result<Vec<u32>> {
    let (mut client, mut written) = (Client::connect(endpoint)?, Vec::new());
    while !stops.load(Ordering::Relaxed) {
        let id = next.fetch_add(1, Ordering::Relaxed);
        let answer = client.simple(&format!("INSERT INTO {table} VALUES ({id}, 'x')"), b"")?;
        match answer.error() {
            None => written.push(id),
            // Its placement is being changed.
            Some(error) => {
                let is_told = ["55000", "40001", "57P03", "55P03"].contains(&error.sqlstate());
                ensure!(is_told, "{error:?}");
            }
        }
    }
    Ok(written)
}

/// How many changes of placements were done.
fn converts(endpoint: &Endpoint, number: usize, stops: &AtomicBool) -> Result<usize> {
    const WAYS: [&str; 5] = [
        "tutti_replicate('T', async => true)",
        "tutti_replicate('T')",
        "tutti_distribute('T', 'id')",
        "tutti_home('T')",
        "tutti_replicate('T', async => true)",
    ];
    let (mut client, mut done, mut turn) = (Client::connect(endpoint)?, 0, number);
    while !stops.load(Ordering::Relaxed) {
        turn += number + 1;
        let way = WAYS[turn % WAYS.len()].replace('T', ["a", "b"][turn % 2]);
        let answer = client.simple(&format!("SELECT {way}"), b"")?;
        match answer.error() {
            None => done += 1,
            Some(error) => {
                let is_told = ["55000", "40001", "0A000", "40P01", "57P03", "55P03"]
                    .contains(&error.sqlstate());
                ensure!(is_told, "{way}: {error:?}");
            }
        }
    }
    Ok(done)
}
