//! Unique indexes that hold over all nodes: sessions that want the same values, gateways that are killed, and what else
//! might leave an entry without a row. (What statements answer: `tests/differential/global_unique.sql`.) Every cluster is
//! audited at its end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::servers;

const TABLE: &str = "CREATE TABLE users (id int PRIMARY KEY, email text) DISTRIBUTE BY HASH (id)";
const INDEX: &str = "CREATE UNIQUE INDEX users_email ON users (email) WITH (tutti.global_unique)";
/// Few values, which all sessions want.
const VALUES: u32 = 12;
const WRITERS: u64 = 4;
const ROUNDS: u32 = 60;

fn cluster() -> Result<TestCluster> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(TABLE)?;
    client.query(INDEX)?;
    Ok(cluster)
}

fn sqlstate(session: &mut Client, sql: &str) -> Result<String> {
    let answer = session.simple(sql, &[])?;
    Ok(answer.error().map_or_else(String::new, |error| error.sqlstate().to_owned()))
}

/// What may happen to a transaction among others.
fn is_expected(sqlstate: &str) -> bool {
    matches!(sqlstate, "" | "23505" | "40001" | "40P01")
}

/// Inserts, changes, moves and deletes rows with values that others want, in transactions of one statement or several.
fn write(endpoint: &Endpoint, next: &AtomicI64, seed: u64) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut session = Client::connect(endpoint)?;
    for _ in 0..ROUNDS {
        let is_block = rng.random_bool(0.4);
        if is_block {
            let level =
                ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][rng.random_range(0..3)];
            session.query(&format!("BEGIN ISOLATION LEVEL {level}"))?;
        }
        for _ in 0..if is_block { rng.random_range(1..4) } else { 1 } {
            let value = format!("v{}", rng.random_range(0..VALUES));
            let id = next.fetch_add(1, Ordering::Relaxed);
            let sql = match rng.random_range(0..5) {
                0 | 1 => format!("INSERT INTO users VALUES ({id}, '{value}')"),
                2 => format!("DELETE FROM users WHERE email = '{value}'"),
                3 => format!("UPDATE users SET email = email || 'x' WHERE email = '{value}'"),
                _ => format!("UPDATE users SET id = {id} WHERE email = '{value}'"),
            };
            let failed = sqlstate(&mut session, &sql)?;
            ensure!(is_expected(&failed), "{failed}: {sql}");
            if !failed.is_empty() {
                break;
            }
        }
        if is_block {
            let failed = sqlstate(&mut session, "COMMIT")?;
            ensure!(is_expected(&failed), "{failed} at COMMIT");
        }
    }
    Ok(())
}

fn ensure_unique(endpoint: &Endpoint) -> Result<()> {
    let mut client = Client::connect(endpoint)?;
    let sql = "SELECT email, count(*) FROM users GROUP BY email HAVING count(*) > 1";
    let twice = client.query(sql)?;
    ensure!(twice.is_empty(), "{twice:?}");
    Ok(())
}

#[test]
fn sessions_that_want_the_same_values_do_not_both_get_them() -> Result<()> {
    let cluster = cluster()?;
    let (endpoint, next) = (cluster.endpoint(), AtomicI64::new(1));
    thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..WRITERS)
            .map(|seed| {
                scope.spawn({
                    let (endpoint, next) = (&endpoint, &next);
                    move || write(endpoint, next, seed)
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("it does not panic"))
    })?;
    ensure_unique(&endpoint)?;
    // Of values of longer names some stay for sure.
    let mut client = Client::connect(&endpoint)?;
    client.query("INSERT INTO users VALUES (-1, 'kept') ")?;
    ensure!(sqlstate(&mut client, "INSERT INTO users VALUES (-2, 'kept')")? == "23505");
    Ok(())
}

/// One waits for the other on the node of the value's entry, and gets it if the other is undone.
#[test]
fn a_value_that_another_transaction_has_is_waited_for() -> Result<()> {
    let cluster = cluster()?;
    for (id, end, expected) in [(1, "ROLLBACK", ""), (10, "COMMIT", "23505")] {
        let value = format!("waited{id}");
        let mut first = Client::connect(&cluster.endpoint())?;
        first.query("BEGIN")?;
        first.query(&format!("INSERT INTO users VALUES ({id}, '{value}')"))?;
        let endpoint = cluster.endpoint();
        let second = thread::spawn(move || -> Result<String> {
            let mut second = Client::connect(&endpoint)?;
            sqlstate(&mut second, &format!("INSERT INTO users VALUES ({}, '{value}')", id + 1))
        });
        ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?, "it does not wait");
        first.query(end)?;
        let told = second.join().expect("it does not panic")?;
        ensure!(told == expected, "{told} after {end}");
    }
    Ok(())
}

#[test]
fn what_a_node_changes_by_itself_is_refused() -> Result<()> {
    let cluster = cluster()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("INSERT INTO users SELECT g, 'u' || g FROM generate_series(1, 30) g")?;
    for node in cluster.nodes() {
        let mut node = Client::connect(&node)?;
        for sql in [
            "DELETE FROM users",
            "UPDATE users SET email = email || 'x'",
            "INSERT INTO users VALUES (-1, 'past the gateway')",
            "BEGIN; SET CONSTRAINTS ALL IMMEDIATE; DELETE FROM users",
        ] {
            let told = sqlstate(&mut node, sql)?;
            ensure!(told == "0A000", "{told}: {sql}");
            node.query("ROLLBACK")?;
        }
    }
    // The same of what the gateway is told to have run in a way that it cannot follow.
    client.query("BEGIN")?;
    client.query("SET CONSTRAINTS ALL IMMEDIATE")?;
    ensure!(sqlstate(&mut client, "DELETE FROM users WHERE id = 1")? == "0A000");
    client.query("ROLLBACK")?;
    ensure!(client.value("SELECT count(*) FROM users")? == "30");
    Ok(())
}

/// Code that somebody has declared to belong beside its rows writes the table.
#[test]
fn what_declared_triggers_write_is_kept() -> Result<()> {
    let cluster = cluster()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE people (id int PRIMARY KEY, mail text) DISTRIBUTE BY HASH (id)")?;
    client.query(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO users VALUES (NEW.id, NEW.mail); RETURN NEW; END'",
    )?;
    client.query("SELECT tutti_function('note', 'row')")?;
    client
        .query("CREATE TRIGGER note AFTER INSERT ON people FOR EACH ROW EXECUTE FUNCTION note()")?;
    client.query("INSERT INTO people SELECT g, 'p' || g FROM generate_series(1, 9) g")?;
    client.query("INSERT INTO people VALUES (10, 'p10')")?;
    for sql in ["INSERT INTO people VALUES (11, 'p3')", "INSERT INTO users VALUES (11, 'p10')"] {
        ensure!(sqlstate(&mut client, sql)? == "23505", "{sql}");
    }
    ensure!(client.value("SELECT count(*) FROM people")? == "10");
    Ok(())
}

#[test]
fn clients_cannot_touch_entries() -> Result<()> {
    let cluster = cluster()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    owner.query("CREATE ROLE plain LOGIN")?;
    owner.query("GRANT ALL ON SCHEMA public TO plain")?;
    let mut plain = Client::connect_as(&cluster.endpoint(), "plain")?;
    // An owner who is nobody special has such indexes too.
    plain.query("CREATE TABLE own (id int PRIMARY KEY, code int) DISTRIBUTE BY HASH (id)")?;
    plain.query("INSERT INTO own SELECT g, g FROM generate_series(1, 50) g")?;
    plain.query("CREATE UNIQUE INDEX own_code ON own (code) WITH (tutti.global_unique)")?;
    ensure!(sqlstate(&mut plain, "INSERT INTO own VALUES (51, 50)")? == "23505");
    plain.query("DELETE FROM own WHERE code = 50")?;
    plain.query("INSERT INTO own VALUES (51, 50)")?;
    let number = owner.value("SELECT number FROM tutti.unique_index WHERE columns = '{code}'")?;
    for (node, is_gateway) in
        cluster.nodes().into_iter().map(|node| (node, false)).chain([(cluster.endpoint(), true)])
    {
        let mut session = Client::connect_as(&node, "plain")?;
        for sql in [
            format!("SELECT * FROM tutti.unique_{number}"),
            format!("DELETE FROM tutti.unique_{number}"),
            "DELETE FROM tutti.unique_index".to_owned(),
            "SELECT tutti.drain_entries('')".to_owned(),
            format!("SELECT tutti.keep_unique({number}, '{{}}', '{{}}', false, '')"),
            "SELECT tutti.make_unique('public', 'own_code', 1, '0', '')".to_owned(),
        ] {
            let told = sqlstate(&mut session, &sql)?;
            ensure!(told == "42501", "{told}: {sql} (gateway: {is_gateway})");
        }
    }
    let namesake = format!("ALTER TABLE own ADD CONSTRAINT tutti_unique_{number}_i CHECK (id > 0)");
    ensure!(!sqlstate(&mut plain, &namesake)?.is_empty(), "{namesake}");
    Ok(())
}

#[test]
fn names_of_columns_are_nothing_but_names() -> Result<()> {
    let cluster = cluster()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    owner.query("CREATE ROLE plain LOGIN")?;
    owner.query("GRANT ALL ON SCHEMA public TO plain")?;
    let mut plain = Client::connect_as(&cluster.endpoint(), "plain")?;
    plain.query("SET check_function_bodies = off")?;
    for (table, key, column) in [
        ("a", "$body$;ALTER ROLE plain SUPERUSER;SELECT $body$", "c"),
        ("b", "k", "$body$;ALTER ROLE plain SUPERUSER;SELECT $body$"),
        ("c", "k'; ALTER ROLE plain SUPERUSER; --", "v' || '"),
        ("d", "it's \\", "%s %1$s {}"),
    ] {
        plain.query(&format!(
            "CREATE TABLE {table} (\"{key}\" int PRIMARY KEY, \"{column}\" int) DISTRIBUTE BY HASH (\"{key}\")"
        ))?;
        let make = format!(
            "CREATE UNIQUE INDEX {table}_u ON {table} (\"{column}\") WITH (tutti.global_unique)"
        );
        if !sqlstate(&mut plain, &make)?.is_empty() {
            // A name of which no SQL can be made may be refused.
            ensure!(table == "d", "{make}");
            continue;
        }
        plain.query(&format!("INSERT INTO {table} SELECT g, g FROM generate_series(1, 20) g"))?;
        plain.query(&format!("UPDATE {table} SET \"{column}\" = 100 WHERE \"{column}\" = 20"))?;
        let twice = format!("INSERT INTO {table} VALUES (21, 100)");
        ensure!(sqlstate(&mut plain, &twice)? == "23505", "{twice}");
    }
    let rights = "SELECT rolsuper FROM pg_roles WHERE rolname = 'plain'";
    for node in cluster.nodes() {
        ensure!(Client::connect(&node)?.value(rights)? == "f");
    }
    Ok(())
}

/// Code of a client that runs while a node tells what has changed tells nothing to the gateway.
#[test]
fn nobody_else_can_tell_what_has_changed() -> Result<()> {
    let cluster = cluster()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    owner.query("INSERT INTO users SELECT g, 'u' || g FROM generate_series(1, 20) g")?;
    owner.query("CREATE ROLE plain LOGIN")?;
    owner.query("GRANT ALL ON SCHEMA public TO plain")?;
    let mut plain = Client::connect_as(&cluster.endpoint(), "plain")?;
    plain.query("CREATE TABLE own (id int PRIMARY KEY, code int) DISTRIBUTE BY HASH (id)")?;
    plain.query("CREATE UNIQUE INDEX own_code ON own (code) WITH (tutti.global_unique)")?;
    plain.query("CREATE TABLE at_home (id int)")?;
    let of =
        |column| format!("SELECT number FROM tutti.unique_index WHERE columns = '{{{column}}}'");
    let (theirs, own) = (owner.value(&of("email"))?, owner.value(&of("code"))?);
    plain.query(&format!(
        "CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
            FOR b IN 0..1023 LOOP
                RAISE INFO '{theirs} + %', b USING DETAIL = format('(blocked%s,777)', b);
                RAISE INFO '{theirs} + % ', b USING DETAIL = format('(blocked%s,777)', b);
            END LOOP;
            RETURN NULL; END$$"
    ))?;
    // The namesake is not in the snapshot of the other's transaction, and is fired all the same.
    let mut older = Client::connect_as(&cluster.endpoint(), "plain")?;
    older.query("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    older.query("SELECT * FROM own, at_home")?;
    let mut past = Client::connect_as(&cluster.nodes()[0], "plain")?;
    past.query(&format!(
        "CREATE CONSTRAINT TRIGGER tutti_unique_{own}_u AFTER INSERT ON at_home DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION evil()"
    ))?;
    for sql in ["INSERT INTO at_home VALUES (1)", "INSERT INTO own VALUES (1, 1)", "COMMIT"] {
        sqlstate(&mut older, sql)?;
    }
    plain.query("DROP TABLE at_home")?;
    ensure!(sqlstate(&mut owner, "INSERT INTO users VALUES (100, 'blocked7')")?.is_empty());
    ensure!(sqlstate(&mut owner, "INSERT INTO users VALUES (101, 'blocked1023')")?.is_empty());
    // What the triggers are called by is not changed.
    for sql in [
        format!("ALTER TABLE own RENAME CONSTRAINT tutti_unique_{own}_i TO foo"),
        format!("ALTER TRIGGER tutti_unique_{own}_i ON own RENAME TO foo"),
    ] {
        ensure!(!sqlstate(&mut plain, &sql)?.is_empty(), "{sql}");
    }
    owner.query("INSERT INTO users VALUES (102, 'after')")?;
    Ok(())
}

#[test]
fn what_others_have_stops_nobody() -> Result<()> {
    let cluster = cluster()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    owner.query("CREATE ROLE plain LOGIN")?;
    owner.query("GRANT ALL ON users TO plain")?;
    owner.query("CREATE SCHEMA hidden")?;
    owner.query("CREATE TABLE hidden.s (id int PRIMARY KEY, e text) DISTRIBUTE BY HASH (id)")?;
    owner.query("CREATE UNIQUE INDEX s_e ON hidden.s (e) WITH (tutti.global_unique)")?;
    let mut plain = Client::connect_as(&cluster.endpoint(), "plain")?;
    plain.query("INSERT INTO users SELECT g, 'p' || g FROM generate_series(1, 10) g")?;
    let number = owner.value("SELECT number FROM tutti.unique_index WHERE columns = '{email}'")?;
    // In no schema of the table's.
    plain.query(&format!(
        "CREATE TEMP TABLE t (c int CONSTRAINT tutti_unique_{number}_i CHECK (c > 0))"
    ))?;
    plain.query("INSERT INTO users SELECT g, 'p' || g FROM generate_series(11, 20) g")?;
    // One that is gone meanwhile.
    let mut older = Client::connect(&cluster.endpoint())?;
    older.query("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    older.query("SELECT count(*) FROM users")?;
    owner.query("DROP TABLE hidden.s")?;
    older.query("INSERT INTO users VALUES (200, 'p200')")?;
    older.query("COMMIT")?;
    Ok(())
}

#[test]
fn values_are_compared_and_not_their_texts_alone() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    owner
        .query("CREATE TABLE times (id int PRIMARY KEY, t timestamptz) DISTRIBUTE BY HASH (id)")?;
    owner.query("CREATE UNIQUE INDEX times_t ON times (t) WITH (tutti.global_unique)")?;
    owner.query("SET timezone = 'Europe/Moscow'")?;
    owner.query("SET datestyle = 'SQL'")?;
    // That night an hour came twice.
    owner.query("INSERT INTO times VALUES (1, '2014-10-25 21:30:00Z')")?;
    owner.query("UPDATE times SET t = t + interval '1 hour' WHERE id = 1")?;
    for id in 2..6 {
        let twice = format!("INSERT INTO times VALUES ({id}, '2014-10-25 22:30:00Z')");
        ensure!(sqlstate(&mut owner, &twice)? == "23505", "{twice}");
    }
    owner.query("INSERT INTO times VALUES (12, '2014-10-25 21:30:00Z')")?;
    owner
        .query("CREATE UNLOGGED TABLE lost (id int PRIMARY KEY, e text) DISTRIBUTE BY HASH (id)")?;
    let unlogged = "CREATE UNIQUE INDEX lost_e ON lost (e) WITH (tutti.global_unique)";
    ensure!(sqlstate(&mut owner, unlogged)? == "0A000");
    ensure!(!sqlstate(&mut owner, "ALTER TABLE times SET UNLOGGED")?.is_empty());
    Ok(())
}

#[test]
fn a_value_is_told_to_those_who_may_read_it() -> Result<()> {
    let cluster = cluster()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    owner.query("INSERT INTO users SELECT g, 'u' || g FROM generate_series(1, 20) g")?;
    owner.query("CREATE ROLE writer LOGIN")?;
    owner.query("GRANT INSERT ON users TO writer")?;
    let mut writer = Client::connect_as(&cluster.endpoint(), "writer")?;
    for (id, reads) in (100..110).map(|id| (id, false)).chain((110..120).map(|id| (id, true))) {
        if id == 110 {
            owner.query("GRANT SELECT (email) ON users TO writer")?;
        }
        let twice = writer.simple(&format!("INSERT INTO users VALUES ({id}, 'u7')"), &[])?;
        let error = twice.error().context("two rows have one value")?;
        ensure!(error.sqlstate() == "23505", "{error:?}");
        // Where both rows are on one node, PostgreSQL says it, and asks for the right to read all columns of the key.
        let told = error.get(b'D').is_some_and(|it| it.contains("u7"));
        ensure!(reads || !told, "{error:?}");
    }
    Ok(())
}

#[test]
fn a_killed_gateway_leaves_no_entry_without_its_row() -> Result<()> {
    let servers = servers::durable(3)?;
    process::init(&servers)?;
    {
        let gateway = GatewayProcess::start(&servers)?;
        let mut client = Client::connect(&gateway.endpoint())?;
        client.query(TABLE)?;
        client.query(INDEX)?;
    }
    let next = AtomicI64::new(1);
    let mut acknowledged = BTreeSet::new();
    for round in 0..5_u64 {
        let gateway = GatewayProcess::start(&servers)?;
        let (endpoint, stop) = (gateway.endpoint(), AtomicBool::new(false));
        let told = thread::scope(|scope| -> Result<Vec<i64>> {
            let writers: Vec<_> = (0..WRITERS)
                .map(|_| scope.spawn(|| insert_until(&endpoint, &next, &stop)))
                .collect();
            thread::sleep(Duration::from_millis(700 + 200 * round));
            let killed = gateway.kill9();
            stop.store(true, Ordering::Relaxed);
            let told: Vec<Vec<i64>> =
                writers.into_iter().map(|it| it.join().expect("it does not panic")).collect();
            killed.map(|()| told.concat())
        })?;
        acknowledged.extend(told);
        let gateway = GatewayProcess::start(&servers)?;
        ensure_unique(&gateway.endpoint())?;
        let mut client = Client::connect(&gateway.endpoint())?;
        let rows = client.query("SELECT id FROM users")?;
        let there: BTreeSet<i64> =
            rows.iter().filter_map(|row| row.first()?.as_deref()?.parse().ok()).collect();
        let lost: Vec<_> = acknowledged.difference(&there).collect();
        ensure!(lost.is_empty(), "acknowledged and not there: {lost:?}");
        // The auditor compares entries with rows.
        let report = gateway.audit().context("the audit")?;
        ensure!(report.findings.is_empty(), "{report}");
    }
    ensure!(!acknowledged.is_empty(), "nothing was ever acknowledged");
    Ok(())
}

/// Rows with values of two alternating kinds: those that only this row has, and those that all want.
fn insert_until(endpoint: &Endpoint, next: &AtomicI64, stop: &AtomicBool) -> Vec<i64> {
    let mut acknowledged = Vec::new();
    let Ok(mut session) = Client::connect(endpoint) else { return acknowledged };
    while !stop.load(Ordering::Relaxed) {
        let id = next.fetch_add(1, Ordering::Relaxed);
        let value = if id % 2 == 0 { id } else { id / 10 };
        let sql = format!("INSERT INTO users VALUES ({id}, 'k{}{value}')", id % 2);
        match session.simple(&sql, &[]) {
            Ok(answer) if answer.error().is_none() => acknowledged.push(id),
            Ok(_) => (),
            Err(_) => break,
        }
    }
    acknowledged
}
