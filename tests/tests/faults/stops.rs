//! No client stops all others: what one client, one role or one node does, others hardly notice.
//!
//! Nothing here depends on how fast a machine is: what others get done is compared with how long the
//! one who would stop them is at work.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tutti_gateway::{Config, PoolConfig};
use tutti_tests::client::{Client, Endpoint, Flight, Request};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::{conversation, programs, servers};

fn start(nodes: u16, pool: PoolConfig) -> Result<TestCluster> {
    let servers = servers::durable(nodes)?;
    let config = Config { pool, ..config(&servers, String::new()) };
    TestCluster::start_configured(servers, config)
}

/// What a statement gives: its first value, or its SQLSTATE.
fn told(client: &mut Client, sql: &str) -> Result<String> {
    let answer = client.simple(sql, b"")?;
    match answer.error() {
        Some(error) => Ok(error.sqlstate().to_owned()),
        None => client.value(sql),
    }
}

fn chain(count: usize, item: &str, between: &str) -> String {
    vec![item; count].join(between)
}

/// Statements that nest, or go on, for long; each with the table that is spread and without.
fn long_statements() -> Vec<String> {
    let nested = |count: usize, before: &str, inner: &str, after: &str| {
        format!("{}{inner}{}", before.repeat(count), after.repeat(count))
    };
    let values = [
        chain(47, "1", "+"),
        chain(3_000, "1", "+"),
        format!("length({})", chain(3_000, "'a'", "||")),
        chain(300, "1", " + 1 * "),
        nested(400, "(", "1", ")"),
        nested(300, "case when true then ", "1", " end"),
        nested(800, "abs(", "1", ")"),
        nested(150, "(select ", "1", ")"),
        format!("({})::int", chain(5_000, "id IS NULL OR true", " AND ")),
        format!("(1 in ({}))::int", chain(20_000, "1", ",")),
        format!("1{}", "::int".repeat(2_000)),
        format!("length('a'{})", " collate \"C\"".repeat(500)),
    ];
    let mut all = Vec::new();
    for value in values {
        all.push(format!("SELECT {value} FROM t WHERE id = 1"));
        all.push(format!("SELECT sum({value}) FROM t"));
    }
    all.push(format!("SELECT count(*) FROM ({}) AS u", chain(700, "SELECT 1", " UNION ALL ")));
    all.push(format!(
        "SELECT count(*) FROM ({}) AS u",
        chain(60, "SELECT id FROM t", " UNION ALL ")
    ));
    let joined = (0..40).map(|n| format!("(SELECT 1) a{n}")).collect::<Vec<_>>();
    all.push(format!("SELECT count(*) FROM {}", joined.join(" CROSS JOIN ")));
    all
}

#[test]
fn statements_nest_as_deeply_as_on_one_server() -> Result<()> {
    let cluster = TestCluster::start_on(servers::durable(2)?)?;
    let plain = servers::durable(1)?;
    let mut one = Client::connect(&servers::endpoint(&plain, 0))?;
    let mut many = Client::connect(&cluster.endpoint())?;
    one.query("CREATE TABLE t (id int PRIMARY KEY)")?;
    many.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    for client in [&mut one, &mut many] {
        client.query("INSERT INTO t SELECT generate_series(1, 5)")?;
    }
    for sql in long_statements() {
        let (expected, found) = (told(&mut one, &sql)?, told(&mut many, &sql)?);
        let (begin, len) = (&sql[..sql.len().min(90)], sql.len());
        ensure!(expected == found, "{begin}… ({len} bytes): {found} instead of {expected}");
    }
    // What is too deep for one server is too deep here, and ends no session.
    let too_deep = format!("SELECT {}", chain(200_000, "1", "+"));
    ensure!(told(&mut many, &too_deep)? == "54001");
    ensure!(many.value("SELECT count(*) FROM t")? == "5");
    Ok(())
}

/// How many statements others have had answered while `work` ran, how long that took, and the longest
/// of them.
fn meanwhile(
    endpoint: &Endpoint,
    work: impl FnOnce() -> Result<()>,
) -> Result<(u32, Duration, Duration)> {
    let mut other = Client::connect(endpoint)?;
    other.query("SELECT 1")?;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let asking = std::thread::spawn(move || -> Result<(u32, Duration)> {
        let (mut answered, mut longest) = (0, Duration::ZERO);
        while !over.load(Ordering::Acquire) {
            let begun = Instant::now();
            other.query("SELECT 1")?;
            longest = longest.max(begun.elapsed());
            answered += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok((answered, longest))
    });
    let begun = Instant::now();
    let worked = work();
    let took = begun.elapsed();
    is_over.store(true, Ordering::Release);
    let asked = asking.join().ok().context("the other session panicked")?;
    worked?;
    let (answered, longest) = asked?;
    Ok((answered, longest, took))
}

#[test]
fn reading_large_texts_stops_nobody_else() -> Result<()> {
    let cluster = TestCluster::start_on(servers::durable(2)?)?;
    let endpoint = cluster.endpoint();
    let mut client = Client::connect(&endpoint)?;
    client.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    let comments = format!("SELECT 1 {}{}", "/*".repeat(5_000), "*/".repeat(5_000));
    let texts = [
        comments,
        format!("SELECT {}", chain(6_000, "f(g(h(1)))", ",")),
        "SELECT 1;".repeat(3_000),
        format!("SELECT {}", chain(30_000, "1", "+")),
    ];
    for text in texts {
        let attack = || -> Result<()> {
            let sessions: Vec<_> = (0..4)
                .map(|_| {
                    let (endpoint, text) = (endpoint.clone(), text.clone());
                    std::thread::spawn(move || -> Result<()> {
                        // Whether it is an error does not matter.
                        Client::connect(&endpoint)?.simple(&text, b"")?;
                        Ok(())
                    })
                })
                .collect();
            for session in sessions {
                session.join().ok().context("a session panicked")??;
            }
            Ok(())
        };
        let (answered, longest, took) = meanwhile(&endpoint, attack)?;
        let begin = &text[..30];
        // On the gateway's own threads one text after another would have been read first.
        ensure!(
            took < Duration::from_millis(400) || 3 < answered,
            "{begin}…: {took:?}, others had {answered} answers, one after {longest:?}"
        );
    }
    Ok(())
}

#[test]
fn one_role_locks_out_no_other_and_superusers_always_get_in() -> Result<()> {
    let pool = PoolConfig { size: 10, queue_timeout_s: 1, ..PoolConfig::default() };
    let cluster = start(2, pool)?;
    let endpoint = cluster.endpoint();
    let mut admin = Client::connect(&endpoint)?;
    admin.query("CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN")?;
    drop(admin);
    // As many transactions as each role gets, left open.
    let fill = |role: &str| -> Result<Vec<Client>> {
        let mut open = Vec::new();
        loop {
            // A login waits for no transaction, not even of its own role.
            let mut client = Client::connect_as(&endpoint, role)?;
            let answer = client.simple("BEGIN; SELECT 1", b"")?;
            match answer.error() {
                None => open.push(client),
                Some(full) if full.sqlstate() == "53300" => return Ok(open),
                Some(error) => bail!("{error:?}"),
            }
            ensure!(open.len() <= 10, "no limit");
        }
    };
    let of_ann = fill("ann")?;
    let mut bob = Client::connect_as(&endpoint, "bob")?;
    ensure!(bob.value("SELECT 1")? == "1");
    let of_bob = fill("bob")?;
    ensure!(of_ann.len() + of_bob.len() == 10, "{} and {}", of_ann.len(), of_bob.len());
    let mut admin = Client::connect(&endpoint)?;
    ensure!(admin.value("SELECT count(*) FROM pg_roles WHERE rolname = 'ann'")? == "1");
    drop(of_ann);
    ensure!(bob.value("SELECT 1")? == "1");
    Ok(())
}

/// How long something may take that happens at the next check.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn the_gateways_lock_is_out_of_clients_reach_and_taken_again_when_it_is_lost() -> Result<()> {
    let cluster = TestCluster::start_on(servers::durable(2)?)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE ROLE ann LOGIN; CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
    )?;
    let mut ann = Client::connect_as(&cluster.endpoint(), "ann")?;
    let mut directly = Client::connect_as(&cluster.nodes()[0], "ann")?;
    // What was the lock once.
    ann.query("SELECT pg_advisory_lock(839088022, 3)")?;
    for client in [&mut ann, &mut directly] {
        for mode in ["ACCESS SHARE", "SHARE UPDATE EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"] {
            for name in ["serving", "gateway", "backend"] {
                let sql = format!("BEGIN; LOCK TABLE tutti.{name} IN {mode} MODE");
                let answer = client.simple(&sql, b"")?;
                ensure!(answer.error().is_some(), "{sql}");
                client.query("ROLLBACK")?;
            }
        }
    }
    let forged = directly.simple("SELECT tutti.serve(1000000, 'x')", b"")?;
    ensure!(forged.error().is_some_and(|error| error.sqlstate() == "42501"), "{forged:?}");
    // The connection that holds the lock is ended, as by a firewall or an administrator.
    let mut node = Client::connect(&cluster.nodes()[0])?;
    let holder = "SELECT coalesce(max(l.pid), 0) FROM pg_locks l
        WHERE l.relation = 'tutti.serving'::regclass AND l.granted AND l.mode = 'ExclusiveLock'";
    let before = node.value(holder)?;
    ensure!(before != "0");
    node.query(&format!("SELECT pg_terminate_backend({before})"))?;
    until("the lock is taken again", || {
        Ok(!["0", before.as_str()].contains(&&*node.value(holder)?))
    })?;
    ensure!(admin.value("SELECT count(*) FROM t")? == "0");
    // And no other serves beside it: it passes its clients on.
    let leads = node.value(holder)?;
    let next = start_next(&cluster)?;
    until("the other passes a client on", || {
        let Ok(mut client) = Client::connect(&Endpoint::on(next.port)) else { return Ok(false) };
        Ok(client.value("SELECT count(*) FROM t").is_ok_and(|count| count == "0"))
    })?;
    ensure!(node.value(holder)? == leads, "the other one leads");
    Ok(())
}

/// A gateway in front of a cluster whose first one has ended. It ends with this.
struct Next {
    port: u16,
    _end: tokio::sync::oneshot::Sender<()>,
    _runtime: tokio::runtime::Runtime,
}

fn start_next(cluster: &TestCluster) -> Result<Next> {
    let runtime = tutti_gateway::runtime()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let port = listener.local_addr()?.port();
    let config = config(cluster.servers(), format!("127.0.0.1:{port}"));
    let (end, asked) = tokio::sync::oneshot::channel();
    runtime.spawn(tutti_gateway::serve(config, listener, async move {
        let _ = asked.await;
    }));
    Ok(Next { port, _end: end, _runtime: runtime })
}

/// Who writes a table of the gateway's without changing a row keeps the lock of a writer, which is in the way
/// of a gateway that takes a node over.
#[test]
fn nobody_who_may_write_all_data_keeps_a_gateway_from_starting() -> Result<()> {
    let mut cluster = TestCluster::start_on(servers::durable(2)?)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE ROLE wr LOGIN; GRANT pg_write_all_data TO wr;
         CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT generate_series(1, 20)",
    )?;
    drop(admin);
    cluster.stop_gateway()?;
    let mut holders = Vec::new();
    for (number, node) in cluster.nodes().iter().enumerate() {
        let mut idle = Client::connect_as(node, "wr")?;
        idle.query("BEGIN; DELETE FROM tutti.backend")?;
        holders.push(idle);
        let mut prepares = Client::connect_as(node, "wr")?;
        let sql =
            format!("BEGIN; DELETE FROM tutti.backend; PREPARE TRANSACTION 'for_ever_{number}'");
        prepares.query(&sql)?;
    }
    let next = start_next(&cluster)?;
    until("the next gateway serves", || {
        let Ok(mut client) = Client::connect(&Endpoint::on(next.port)) else { return Ok(false) };
        Ok(client.value("SELECT count(*) FROM t").is_ok_and(|count| count == "20"))
    })?;
    for node in cluster.nodes() {
        let prepared = "SELECT count(*) FROM pg_prepared_xacts WHERE owner = 'wr'";
        ensure!(Client::connect(&node)?.value(prepared)? == "0");
    }
    Ok(())
}

/// An operator goes back to an older program: it must not make the schema `tutti` an older one.
#[test]
fn a_schema_of_a_later_version_is_left_as_it_is() -> Result<()> {
    let mut cluster = TestCluster::start_on(servers::durable(2)?)?;
    cluster.stop_gateway()?;
    let shapes = || {
        let shape =
            |node: &Endpoint| Client::connect(node)?.value("SELECT shape FROM tutti.secret");
        cluster.nodes().iter().map(shape).collect::<Result<Vec<_>>>()
    };
    let known = shapes()?;
    // The later version has come to one of the nodes only.
    for node in [1, 0] {
        Client::connect(&cluster.nodes()[node])?
            .query("UPDATE tutti.secret SET shape = shape + 1")?;
        let later = shapes()?;
        ensure!(later != known);
        let runtime = tutti_gateway::runtime()?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        let config = config(cluster.servers(), "127.0.0.1:0".to_owned());
        let served = tutti_gateway::serve(config, listener, std::future::pending());
        let Err(error) = runtime.block_on(served) else { bail!("it served and ended") };
        let said = format!("{:#}", anyhow::Error::from(error));
        ensure!(said.contains("a later version of Tutti"), "{said}");
        ensure!(shapes()? == later, "the older program has changed it");
    }
    Ok(())
}

/// One that is asked to end waits for transactions; asked twice, it does not.
#[test]
fn a_gateway_that_is_asked_twice_to_end_waits_for_nobody() -> Result<()> {
    let servers = servers::durable(2)?;
    process::init(&servers)?;
    let mut gateway = GatewayProcess::start(&servers)?;
    let mut client = Client::connect(&gateway.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    client.query("BEGIN; INSERT INTO t SELECT generate_series(1, 20)")?;
    gateway.terminate()?;
    until("no more clients are let in", || Ok(Client::connect(&gateway.endpoint()).is_err()))?;
    ensure!(client.value("SELECT count(*) FROM t")? == "20", "a transaction does not go on");
    ensure!(!gateway.has_ended()?);
    gateway.terminate()?;
    let begun = Instant::now();
    until("it ends", || gateway.has_ended())?;
    ensure!(begun.elapsed() < Duration::from_secs(15), "it waited for the transaction");
    let next = GatewayProcess::start(&servers)?;
    ensure!(Client::connect(&next.endpoint())?.value("SELECT count(*) FROM t")? == "0");
    Ok(())
}

/// A COMMIT by the extended protocol is told of as done before its client is sent away; and who is in a transaction
/// when there is no more time is told so.
#[test]
fn whoever_is_sent_away_has_been_told_what_was_done() -> Result<()> {
    let servers = servers::durable(2)?;
    process::init(&servers)?;
    let mut config = config(&servers, String::new());
    config.drain_timeout_s = 3;
    let mut gateway = GatewayProcess::start_configured(config, &[])?;
    let at = gateway.endpoint();
    let mut open = Client::connect(&at)?;
    open.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    let mut commits = Client::connect(&at)?;
    commits.query("BEGIN; INSERT INTO t SELECT generate_series(1, 20)")?;
    open.query("BEGIN; INSERT INTO t VALUES (21)")?;
    commits.send_bytes(&conversation::messages("P |COMMIT\nB |\nD P \nE |0\nH")?)?;
    let mut said = Vec::new();
    let mut hear_until = |client: &mut Client, last: &str| -> Result<()> {
        while said.last().is_none_or(|it: &String| it != last) {
            said.push(conversation::told(&client.receive()?)?);
            ensure!(said.len() < 20, "{said:?}");
        }
        Ok(())
    };
    hear_until(&mut commits, "CommandComplete COMMIT")?;
    gateway.terminate()?;
    until("no more clients are let in", || Ok(Client::connect(&at).is_err()))?;
    commits.send_bytes(&conversation::messages("S")?)?;
    hear_until(&mut commits, "ReadyForQuery I")?;
    hear_until(&mut commits, "Error 57P01")?;
    let expected = ["ParseComplete", "BindComplete", "NoData", "CommandComplete COMMIT"];
    ensure!(said[..4] == expected && said.len() == 6, "{said:?}");
    until("it ends", || gateway.has_ended())?;
    ensure!(conversation::told(&open.receive()?)? == "Error 57P01");
    let next = GatewayProcess::start(&servers)?;
    ensure!(Client::connect(&next.endpoint())?.value("SELECT count(*) FROM t")? == "20");
    Ok(())
}

/// A node that cannot be taken over (here because of a superuser's lock) stays closed; the others serve, and it
/// does when it can be.
#[test]
fn a_gateway_starts_without_a_node_that_it_cannot_take_over() -> Result<()> {
    let mut cluster = TestCluster::start_on(servers::durable(2)?)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE TABLE here (id int) DISTRIBUTE BY HOME; INSERT INTO here VALUES (1);
         CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT generate_series(1, 20)",
    )?;
    drop(admin);
    cluster.stop_gateway()?;
    let mut locker = Client::connect(&cluster.nodes()[1])?;
    locker.query("BEGIN; LOCK TABLE tutti.backend")?;
    let next = start_next(&cluster)?;
    let count = |table: &str| {
        let mut client = Client::connect(&Endpoint::on(next.port)).ok()?;
        client.value(&format!("SELECT count(*) FROM {table}")).ok()
    };
    until("what is on node 1 is served", || Ok(count("here").as_deref() == Some("1")))?;
    ensure!(count("t").is_none(), "a node was read that is not taken over");
    locker.query("ROLLBACK")?;
    until("node 2 is served", || Ok(count("t").as_deref() == Some("20")))
}

/// A role that may write all data may lock all tables, on a node: those of the gateway only for a
/// moment.
#[test]
fn nobody_keeps_the_tables_of_the_gateway() -> Result<()> {
    const TABLES: [&str; 5] = ["serving", "backend", "decision", "ticket", "gateway"];
    let cluster = TestCluster::start_on(servers::durable(2)?)?;
    let endpoint = cluster.endpoint();
    let mut admin = Client::connect(&endpoint)?;
    admin.query(
        "CREATE ROLE wr LOGIN; GRANT pg_write_all_data TO wr;
         CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT n, 0 FROM generate_series(1, 20) AS n",
    )?;
    let mut wr = Client::connect_as(&endpoint, "wr")?;
    for table in TABLES {
        for mode in ["ROW SHARE", "ROW EXCLUSIVE", "SHARE", "EXCLUSIVE", "ACCESS EXCLUSIVE"] {
            for schema in ["tutti", "U&\"\\0074utti\""] {
                let sql = format!("BEGIN; LOCK TABLE {schema}.{table} IN {mode} MODE");
                ensure!(told(&mut wr, &sql)? == "42501", "{sql}");
                wr.query("ROLLBACK")?;
            }
        }
    }
    for table in TABLES {
        // In code, and past the gateway.
        let lock = format!("LOCK TABLE tutti.{table}");
        let hidden = format!("DO $$ BEGIN EXECUTE '{lock}'; PERFORM pg_sleep(900); END $$");
        let mut hiding = Client::connect_as(&endpoint, "wr")?;
        let hiding = std::thread::spawn(move || hiding.simple(&hidden, b""));
        let mut holders = Vec::new();
        for (number, node) in cluster.nodes().iter().enumerate() {
            let mut prepares = Client::connect_as(node, "wr")?;
            let left = format!("BEGIN; {lock}; PREPARE TRANSACTION '{table}_{number}'");
            holders.push(std::thread::spawn(move || {
                // It waits for others, and may be ended meanwhile.
                let _ = prepares.simple(&left, b"");
                prepares
            }));
            let mut idles = Client::connect_as(node, "wr")?;
            let held = format!("BEGIN; {lock}");
            holders.push(std::thread::spawn(move || {
                let _ = idles.simple(&held, b"");
                idles
            }));
        }
        let mut others = Vec::new();
        for number in 1..=12 {
            let mut other = Client::connect(&endpoint)?;
            others.push(std::thread::spawn(move || -> Result<Client> {
                until("transactions over nodes", || {
                    let update = format!("UPDATE t SET v = v + 1 WHERE id = {number}");
                    let all = "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT sum(v) FROM t; COMMIT";
                    for sql in ["BEGIN; SELECT sum(v) FROM t; SELECT 1", &update, "COMMIT", all] {
                        if other.simple(sql, b"")?.error().is_some() {
                            other.simple("ROLLBACK", b"")?;
                            return Ok(false);
                        }
                    }
                    Ok(true)
                })?;
                Ok(other)
            }));
        }
        for other in others {
            other.join().ok().context("another session panicked")??;
        }
        let told = hiding.join().ok().context("who hides panicked")?;
        ensure!(told.is_err() || told.is_ok_and(|answer| answer.error().is_some()), "{table}");
        for holder in holders {
            drop(holder.join().ok().context("a holder panicked")?);
        }
        for node in cluster.nodes() {
            let mut node = Client::connect(&node)?;
            until("what was prepared is gone", || {
                Ok(node.value("SELECT count(*) FROM pg_prepared_xacts WHERE owner = 'wr'")? == "0")
            })?;
        }
    }
    // Nor does the gateway lose its own lock to one that waits for it.
    let mut node = Client::connect(&cluster.nodes()[0])?;
    let holder = "SELECT coalesce(max(l.pid), 0) FROM pg_locks l
        WHERE l.relation = 'tutti.serving'::regclass AND l.granted AND l.mode = 'ExclusiveLock'";
    for _ in 0..5 {
        let before = node.value(holder)?;
        let mut waits = Client::connect_as(&cluster.nodes()[0], "wr")?;
        let waiting = std::thread::spawn(move || {
            let locked = waits.simple("BEGIN; LOCK TABLE tutti.serving", b"");
            (waits, locked.is_ok_and(|answer| answer.error().is_none()))
        });
        node.query(&format!("SELECT pg_terminate_backend({before})"))?;
        until("the lock is taken again", || {
            Ok(!["0", before.as_str()].contains(&&*node.value(holder)?)
                && node.value(&format!(
                    "SELECT usename FROM pg_stat_activity WHERE pid = ({holder})"
                ))? != "wr")
        })?;
        drop(waiting.join().ok().context("who waits panicked")?);
        ensure!(admin.value("SELECT count(*) FROM t")? == "20");
    }
    Ok(())
}

/// The first one hangs (its machine is suspended, say), loses its lock, and comes back when another has
/// taken over. Its clients' statements do nothing any more, whether it has noticed or not.
#[test]
fn a_gateway_that_was_taken_for_dead_serves_nobody() -> Result<()> {
    let servers = servers::durable(2)?;
    process::init(&servers)?;
    let mut first = GatewayProcess::start(&servers)?;
    let mut client = Client::connect(&first.endpoint())?;
    client.query(
        "CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT n, 0 FROM generate_series(1, 20) AS n",
    )?;
    // One in a transaction, one between two, and one that will log in.
    let mut inside = Client::connect(&first.endpoint())?;
    inside.query("BEGIN; UPDATE t SET v = v + 1 WHERE id = 1")?;
    first.pause()?;
    let mut node = Client::connect(&servers::endpoint(&servers, 0))?;
    node.query(
        "SELECT pg_terminate_backend(l.pid) FROM pg_locks l
         WHERE l.relation = 'tutti.serving'::regclass AND l.granted",
    )?;
    let second = GatewayProcess::start(&servers)?;
    let mut successor = Client::connect(&second.endpoint())?;
    ensure!(successor.value("SELECT sum(v) FROM t")? == "0");
    successor.query("UPDATE t SET v = v + 100 WHERE id = 1")?;
    first.resume()?;
    for (name, sql) in [
        ("inside", "COMMIT"),
        ("client", "UPDATE t SET v = v + 1"),
        ("client", "SELECT sum(v) FROM t"),
    ] {
        let session = if name == "inside" { &mut inside } else { &mut client };
        // Or its connection has ended.
        if let Ok(answer) = session.simple(sql, b"") {
            ensure!(answer.error().is_some(), "{name}: {sql} was done");
        }
    }
    // It has become one that passes its clients on.
    until("the first one follows", || {
        let through = Client::connect(&first.endpoint())
            .and_then(|mut client| client.value("SELECT sum(v) FROM t"));
        Ok(through.is_ok_and(|sum| sum == "100"))
    })?;
    ensure!(!first.has_ended()?);
    ensure!(successor.value("SELECT sum(v) FROM t")? == "100");
    Ok(())
}

/// Another one had drawn its number, lost its lock to the first, which took its own again, and took the nodes
/// over all the same. The first would hold the lock for ever, and its clients would be refused for ever.
#[test]
fn a_gateway_that_has_its_lock_begins_anew_when_a_later_one_has_come() -> Result<()> {
    let servers = servers::durable(2)?;
    process::init(&servers)?;
    let mut gateway = GatewayProcess::start(&servers)?;
    let mut client = Client::connect(&gateway.endpoint())?;
    ensure!(client.value("SELECT 1")? == "1");
    let mut node = Client::connect(&servers::endpoint(&servers, 0))?;
    node.query("UPDATE tutti.gateway SET incarnation = incarnation + 1")?;
    until("its sessions end", || Ok(client.simple("SELECT 1", b"").is_err()))?;
    until("it serves again", || {
        let again = Client::connect(&gateway.endpoint());
        Ok(again.and_then(|mut client| client.value("SELECT 1")).is_ok())
    })?;
    ensure!(!gateway.has_ended()?);
    Ok(())
}

#[test]
fn a_gateway_starts_while_a_node_is_away_and_takes_it_in_later() -> Result<()> {
    let mut servers = servers::durable(3)?;
    process::init(&servers)?;
    let gateway = GatewayProcess::start(&servers)?;
    Client::connect(&gateway.endpoint())?.query(
        "CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT generate_series(1, 90);
         CREATE TABLE r (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED;
         INSERT INTO r SELECT generate_series(1, 7);
         CREATE TYPE mood AS ENUM ('sad', 'ok');
         CREATE TABLE m (id int PRIMARY KEY, m mood) DISTRIBUTE BY HASH (id);
         INSERT INTO m SELECT n, 'ok' FROM generate_series(1, 30) AS n",
    )?;
    gateway.kill9()?;
    servers.server_mut(2).stop()?;
    let gateway = GatewayProcess::start(&servers)?;
    // Sessions prefer one node or another: all of them are served.
    for _ in 0..6 {
        let mut client = Client::connect(&gateway.endpoint())?;
        ensure!(client.value("SELECT count(*) FROM r")? == "7");
        client.query("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        ensure!(client.value("SELECT count(*) FROM r")? == "7");
        client.query("COMMIT")?;
    }
    let mut client = Client::connect(&gateway.endpoint())?;
    let refused = client.simple("SELECT count(*) FROM t", b"")?;
    ensure!(
        refused.error().is_some_and(|error| ["57P03", "08001"].contains(&error.sqlstate())),
        "{refused:?}"
    );
    servers.server_mut(2).start()?;
    until("the node is taken in", || {
        Ok(client.simple("SELECT count(*) FROM t", b"")?.error().is_none())
    })?;
    ensure!(client.value("SELECT count(*) FROM t")? == "90");
    ensure!(client.value("SELECT count(*) FROM m WHERE m = 'ok'")? == "30");
    client.query(
        "BEGIN; UPDATE r SET id = id + 100; INSERT INTO t VALUES (91), (92), (93); COMMIT",
    )?;
    Ok(())
}

/// Stops all processes of a server, as a disk that never answers would.
fn freeze(server: &tutti_embed::Server, signal: &str) -> Result<()> {
    let postmaster = server.pid().context("it runs")?.to_string();
    let children = Command::new("pgrep").args(["-P", &postmaster]).output()?.stdout;
    let children = String::from_utf8(children)?;
    let pids = children.split_whitespace().chain([&*postmaster]);
    // One that has just ended is no matter.
    Command::new("kill").arg(signal).args(pids).output()?;
    Ok(())
}

#[test]
fn a_node_that_hangs_delays_only_those_who_need_it() -> Result<()> {
    let servers = servers::durable(3)?;
    process::init(&servers)?;
    let gateway = GatewayProcess::start(&servers)?;
    let endpoint = gateway.endpoint();
    let mut admin = Client::connect(&endpoint)?;
    admin.query(
        "CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT n, 0 FROM generate_series(1, 90) AS n;
         CREATE TABLE r (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED;
         INSERT INTO r SELECT generate_series(1, 7);
         CREATE TABLE h (id int PRIMARY KEY) DISTRIBUTE BY HOME",
    )?;
    let mut keys = Vec::new();
    for node in 0..2 {
        let mut there = Client::connect(&servers::endpoint(&servers, node))?;
        keys.push(there.value("SELECT min(id) FROM t")?);
    }
    // A change of the schema that will want to commit while node 3 hangs.
    let mut changing = Client::connect(&endpoint)?;
    changing.query("BEGIN; ALTER TABLE t ADD w int")?;
    freeze(servers.server(2), "-STOP")?;
    let frozen = Frozen(servers.server(2));
    let commit = std::thread::spawn(move || changing.simple("COMMIT", b""));
    // A session that has asked it something just before waits for its answer, as on one server.
    until("it is noticed", || Ok(gateway.log().contains("it is closed to reads")))?;
    let worker = |mut client: Client, sql: Vec<String>| -> Result<()> {
        for sql in sql {
            until(&sql, || Ok(client.simple(&sql, b"")?.error().is_none()))?;
        }
        Ok(())
    };
    // Logins, statements of other nodes, transactions over both. (Changes of the schema concern all nodes
    // of this cluster.)
    let mut workers = Vec::new();
    for number in 0..6 {
        let mut statements = vec![
            "SELECT 1".to_owned(),
            "SELECT count(*) FROM r".to_owned(),
            format!("INSERT INTO h VALUES ({number})"),
            format!("BEGIN; SELECT count(*) FROM r; INSERT INTO h VALUES ({number} + 100); COMMIT"),
        ];
        for level in ["READ COMMITTED", "REPEATABLE READ"] {
            statements
                .push(format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM r; COMMIT"));
        }
        let client = Client::connect(&endpoint)?;
        workers.push(std::thread::spawn(move || worker(client, statements)));
    }
    for done in workers {
        done.join().ok().context("a worker panicked")??;
    }
    let refused = commit.join().ok().context("the commit panicked")??;
    ensure!(refused.error().is_some(), "a node that hangs has voted");
    // Rows of the other nodes.
    let mut client = Client::connect(&endpoint)?;
    let [one, two] = &keys[..] else { bail!("two nodes") };
    until("a transaction over the other nodes", || {
        let sql = format!(
            "BEGIN; UPDATE t SET v = 1 WHERE id = {one}; UPDATE t SET v = 1 WHERE id = {two}; COMMIT"
        );
        let is_done = client.simple(&sql, b"")?.error().is_none();
        if !is_done {
            client.simple("ROLLBACK", b"")?;
        }
        Ok(is_done)
    })?;
    // The operator sees which one it is, and may stop reading.
    let status = || -> Result<Command> {
        let mut status = Command::new(programs::tutti()?);
        status.arg("status").arg("--config").arg(gateway.config_path());
        Ok(status)
    };
    let told = programs::run(&mut status()?)?;
    ensure!(told.contains("no answer") && told.matches(" up ").count() == 2, "{told}");
    let mut reading = status()?.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(reading.stdout.take());
    ensure!(reading.wait()?.success(), "it fails when nobody reads on");
    drop(frozen);
    until("all nodes are back", || {
        Ok(client.simple("SELECT sum(v) FROM t", b"")?.error().is_none())
    })?;
    ensure!(client.value("SELECT sum(v) FROM t")? == "2");
    ensure!(client.value("SELECT count(*) FROM t")? == "90");
    Ok(())
}

/// A server that does nothing until this is dropped.
struct Frozen<'a>(&'a tutti_embed::Server);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = freeze(self.0, "-CONT");
    }
}

/// Answers of a new session, or none in time.
fn answers(endpoint: &Endpoint, sql: &'static str) -> Result<bool> {
    let (told, hears) = std::sync::mpsc::channel();
    let endpoint = endpoint.clone();
    // It may wait forever; the process ends with the test.
    std::thread::spawn(move || {
        let answer = Client::connect(&endpoint).and_then(|mut client| client.value(sql));
        _ = told.send(answer);
    });
    Ok(hears.recv_timeout(Duration::from_secs(60)).is_ok_and(|answer| answer.is_ok()))
}

/// A backend that ends while the gateway asks it what it keeps for a session that listens.
#[test]
fn backends_that_end_under_listeners_stop_nobody() -> Result<()> {
    let servers = servers::durable(2)?;
    process::init(&servers)?;
    let gateway = GatewayProcess::start(&servers)?;
    let endpoint = gateway.endpoint();
    let mut admin = Client::connect(&endpoint)?;
    admin.query("CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let mut workers = Vec::new();
        for worker in 0..5 {
            let (endpoint, stop) = (&endpoint, &stop);
            workers.push(scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Sessions end with their backends.
                    _ = listen_and_write(endpoint, worker, stop);
                }
            }));
        }
        let terminate =
            "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
            WHERE application_name = 'tutti-tests' AND pid <> pg_backend_pid() AND state <> 'idle'
            ORDER BY random() LIMIT 1) a";
        let mut nodes = Vec::new();
        for node in 0..2 {
            nodes.push(Client::connect(&servers::endpoint(&servers, node))?);
        }
        let mut ended = 0;
        let begun = Instant::now();
        while ended < 400 && begun.elapsed() < Duration::from_secs(30) {
            for node in &mut nodes {
                ended += node.value(terminate)?.parse::<u32>()?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let serves = answers(&endpoint, "SELECT 1");
        stop.store(true, Ordering::Relaxed);
        if !matches!(serves, Ok(true)) {
            let log = gateway.log();
            // Or its clients wait forever.
            gateway.kill9()?;
            bail!("nobody is served any more, behind {ended} ends: {serves:?}\n{log}");
        }
        ensure!(9 < ended, "only {ended} backends ended");
        Ok(())
    })
}

/// Transactions over two nodes, of a session that listens and has something of its own.
fn listen_and_write(endpoint: &Endpoint, worker: u32, stop: &AtomicBool) -> Result<()> {
    let mut client = Client::connect(endpoint)?;
    if worker.is_multiple_of(2) {
        client.query("CREATE TEMP TABLE own (a int)")?;
        client.query(&format!("SELECT pg_advisory_lock({})", 1_000 + worker))?;
    }
    client.query("SET work_mem = '3MB'; NOTIFY c")?;
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = turn % 10 + worker * 10;
        let level = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][turn as usize % 3];
        let block = [
            format!("BEGIN ISOLATION LEVEL {level}"),
            format!("SET LOCAL statement_timeout = '{}ms'", 5 + turn % 50),
            format!("SELECT set_config('work_mem', '{}MB', false)", 3 + turn % 5),
            "SAVEPOINT s".to_owned(),
            "SELECT count(*) FROM t WHERE v = 99".to_owned(),
            "ROLLBACK TO s".to_owned(),
            format!(
                "INSERT INTO t VALUES ({id}, 0), ({id} + 1000, 0), ({id} + 2000, 0) ON CONFLICT DO NOTHING"
            ),
            "SET work_mem = '4MB'".to_owned(),
            "COMMIT".to_owned(),
        ];
        match turn / 3 % 3 {
            0 => {
                for sql in &block {
                    client.simple(sql, b"")?;
                }
            }
            1 => drop(client.simple(&block.join("; "), b"")?),
            _ => {
                let request = Request { sql: &block[6], ..Request::default() };
                client.extended(&request, Flight::OneFlight, b"")?;
            }
        }
        client.simple("ROLLBACK", b"")?;
        client.simple("SET work_mem = '5MB'", b"")?;
        client.simple("SELECT set_config('a.b', 'c', false)", b"")?;
    }
    Ok(())
}

/// A session that waits for another's lock on a table must not make a change of yet another table wait.
/// Compared with the same changes without such a session; before, each took a second for all.
#[test]
fn a_change_does_not_wait_for_who_waits_for_another_table() -> Result<()> {
    const CHANGES: u32 = 20;
    let cluster = start(2, PoolConfig::default())?;
    let endpoint = cluster.endpoint();
    let mut admin = Client::connect(&endpoint)?;
    admin.query("CREATE ROLE ann LOGIN; CREATE SCHEMA ann AUTHORIZATION ann")?;
    let mut ann = Client::connect_as(&endpoint, "ann")?;
    ann.query("CREATE TABLE ann.t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    let mut change = |name: &str| -> Result<Duration> {
        let begun = Instant::now();
        for number in 0..CHANGES {
            ann.query(&format!(
                "CREATE TABLE ann.{name}{number} (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)"
            ))?;
        }
        Ok(begun.elapsed())
    };
    let alone = change("a")?;
    let mut locking = Client::connect_as(&endpoint, "ann")?;
    locking.query("BEGIN; LOCK TABLE ann.t IN ACCESS EXCLUSIVE MODE")?;
    let mut waiting = Client::connect_as(&endpoint, "ann")?;
    let waits = std::thread::spawn(move || waiting.simple("SELECT count(*) FROM ann.t", b""));
    let mut node = Client::connect(&cluster.nodes()[0])?;
    until(
        "it waits",
        || Ok(node.value("SELECT count(*) FROM pg_locks WHERE NOT granted")? != "0"),
    )?;
    let beside = change("b")?;
    locking.query("COMMIT")?;
    waits.join().ok().context("the reader panicked")??;
    ensure!(beside < alone * 3 + Duration::from_secs(10), "{beside:?}, alone {alone:?}");
    Ok(())
}

/// Half of what can be prepared on node 1 is kept for transactions over several nodes.
#[test]
fn clients_prepared_transactions_leave_room_for_commits() -> Result<()> {
    let cluster = start(2, PoolConfig::default())?;
    let endpoint = cluster.endpoint();
    let mut admin = Client::connect(&endpoint)?;
    admin.query(
        "CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT n, 0 FROM generate_series(1, 20) AS n;
         CREATE TABLE h (id int) DISTRIBUTE BY HOME;
         CREATE ROLE ann LOGIN; GRANT ALL ON h TO ann",
    )?;
    let most: usize = admin.value("SHOW max_prepared_transactions")?.parse()?;
    let mut ann = Client::connect_as(&endpoint, "ann")?;
    let mut prepared = 0;
    loop {
        ann.query("BEGIN; INSERT INTO h VALUES (1)")?;
        let answer = ann.simple(&format!("PREPARE TRANSACTION 'p{prepared}'"), b"")?;
        if let Some(error) = answer.error() {
            ensure!(error.sqlstate() == "53200", "{answer}");
            break;
        }
        prepared += 1;
        ensure!(prepared <= most, "all of them");
    }
    ensure!(prepared == most / 2, "{prepared} of {most}");
    admin.query(
        "BEGIN; UPDATE t SET v = 1; COMMIT; CREATE TABLE u (id int) DISTRIBUTE BY REPLICATED",
    )?;
    for number in 0..prepared {
        ann.query(&format!("ROLLBACK PREPARED 'p{number}'"))?;
    }
    ann.query("BEGIN; INSERT INTO h VALUES (1); PREPARE TRANSACTION 'p'")?;
    ann.query("ROLLBACK PREPARED 'p'")?;
    Ok(())
}

/// A node does not answer the gateway's own connections any more while a change looks who is at work.
#[test]
fn a_node_that_hangs_under_a_change_stops_nobody_elsewhere() -> Result<()> {
    let servers = servers::durable(2)?;
    process::init(&servers)?;
    let gateway = GatewayProcess::start(&servers)?;
    let endpoint = gateway.endpoint();
    let mut admin = Client::connect(&endpoint)?;
    admin.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    // A session with a plan, so that there is something to check.
    let mut locking = Client::connect(&endpoint)?;
    locking.query("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE")?;
    let mut waiting = Client::connect(&endpoint)?;
    let waits = std::thread::spawn(move || waiting.simple("SELECT count(*) FROM t", b""));
    let mut node = Client::connect(&servers::endpoint(&servers, 1))?;
    until(
        "it waits",
        || Ok(node.value("SELECT count(*) FROM pg_locks WHERE NOT granted")? != "0"),
    )?;
    let mut changing = Client::connect(&endpoint)?;
    changing.query("BEGIN; CREATE TABLE u (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    let own = node.value(
        "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE application_name LIKE 'tutti %'",
    )?;
    let signal = |signal: &str| {
        Command::new("kill").arg(signal).args(own.split(' ')).stderr(Stdio::null()).status()
    };
    signal("-STOP")?;
    let commit = std::thread::spawn(move || changing.simple("COMMIT", b""));
    let mut serves = true;
    for _ in 0..5 {
        serves &= answers(&endpoint, "SELECT 1")?;
        std::thread::sleep(Duration::from_millis(300));
    }
    signal("-CONT")?;
    ensure!(serves, "nobody was served while a node did not answer");
    // Whether it could be committed before the node stood still, is not the question.
    commit.join().ok().context("the commit panicked")??;
    _ = locking.simple("COMMIT", b"");
    waits.join().ok().context("the reader panicked")??;
    Ok(())
}
