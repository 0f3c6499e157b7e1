//! Foreign keys that hold over all nodes: sessions that add what refers to rows that others delete, gateways that are
//! killed, code past the gateway, other people's rights, and changes of the schema. (What statements answer:
//! `tests/differential/references.sql`.) Every cluster is audited at its end.

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

/// The second refers to the first by its key, and by a value that is unique over all nodes.
const TABLES: [&str; 6] = [
    "CREATE TABLE shops (id int PRIMARY KEY, code text) DISTRIBUTE BY HASH (id)",
    "CREATE UNIQUE INDEX shops_code ON shops (code) WITH (tutti.global_unique)",
    "SET tutti.foreign_keys = 'global'",
    "CREATE TABLE sales (id int PRIMARY KEY, shop int, code text) DISTRIBUTE BY HASH (id)",
    "ALTER TABLE sales ADD CONSTRAINT sales_shop FOREIGN KEY (shop) REFERENCES shops",
    "ALTER TABLE sales ADD CONSTRAINT sales_code FOREIGN KEY (code) REFERENCES shops (code)",
];
/// Few, which all sessions want.
const SHOPS: u32 = 8;
const WRITERS: u64 = 4;
const ROUNDS: u32 = 60;

fn make(endpoint: &Endpoint) -> Result<Client> {
    let mut client = Client::connect(endpoint)?;
    for sql in TABLES {
        client.query(sql)?;
    }
    Ok(client)
}

fn cluster() -> Result<TestCluster> {
    let cluster = TestCluster::start(3)?;
    make(&cluster.endpoint())?;
    Ok(cluster)
}

fn sqlstate(session: &mut Client, sql: &str) -> Result<String> {
    let answer = session.simple(sql, &[])?;
    Ok(answer.error().map_or_else(String::new, |error| error.sqlstate().to_owned()))
}

/// What may happen to a transaction among others.
fn is_expected(sqlstate: &str) -> bool {
    matches!(sqlstate, "" | "23503" | "23505" | "40001" | "40P01")
}

/// Adds, changes, moves and deletes rows on both sides, in transactions of one statement or several, until `stop`.
fn write(endpoint: &Endpoint, next: &AtomicI64, seed: u64, stop: &AtomicBool) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut session = Client::connect(endpoint)?;
    for _ in 0..ROUNDS {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let is_block = rng.random_bool(0.4);
        if is_block {
            let level =
                ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][rng.random_range(0..3)];
            session.query(&format!("BEGIN ISOLATION LEVEL {level}"))?;
        }
        for _ in 0..if is_block { rng.random_range(1..4) } else { 1 } {
            let shop = rng.random_range(0..SHOPS);
            let other = rng.random_range(0..SHOPS);
            let id = next.fetch_add(1, Ordering::Relaxed);
            let sql = match rng.random_range(0..9) {
                0 | 1 => format!(
                    "INSERT INTO shops VALUES ({shop}, 'c{shop}') ON CONFLICT (id) DO NOTHING"
                ),
                2 => format!("DELETE FROM shops WHERE id = {shop}"),
                3 => format!("UPDATE shops SET code = 'd' || {other} WHERE id = {shop}"),
                4 => format!("INSERT INTO sales VALUES ({id}, {shop}, 'c{shop}')"),
                5 => format!(
                    "INSERT INTO sales SELECT {id} + 100000 * g, {shop}, 'c{other}' FROM generate_series(1, 3) g"
                ),
                6 => format!("UPDATE sales SET shop = {other} WHERE shop = {shop}"),
                7 => format!("UPDATE sales SET id = {id} WHERE id = {}", rng.random_range(0..id)),
                _ => format!("DELETE FROM sales WHERE shop = {shop} OR code = 'c{other}'"),
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

fn ensure_none_dangles(endpoint: &Endpoint) -> Result<()> {
    let mut client = Client::connect(endpoint)?;
    let sql = "SELECT s.* FROM sales s LEFT JOIN shops a ON a.id = s.shop LEFT JOIN shops b ON b.code = s.code \
               WHERE s.shop IS NOT NULL AND a.id IS NULL OR s.code IS NOT NULL AND b.code IS NULL";
    let dangling = client.query(sql)?;
    ensure!(dangling.is_empty(), "{dangling:?}");
    Ok(())
}

#[test]
fn nothing_refers_to_what_others_have_deleted_meanwhile() -> Result<()> {
    let cluster = cluster()?;
    let (endpoint, next, stop) = (cluster.endpoint(), AtomicI64::new(1), AtomicBool::new(false));
    thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..WRITERS)
            .map(|seed| {
                scope.spawn({
                    let (endpoint, next, stop) = (&endpoint, &next, &stop);
                    move || write(endpoint, next, seed, stop)
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("it does not panic"))
    })?;
    ensure_none_dangles(&endpoint)
}

/// Whoever deletes what another has just referred to waits on the node of the row, and so does whoever refers to what
/// another has just deleted.
#[test]
fn who_refers_and_who_deletes_wait_for_each_other() -> Result<()> {
    let cluster = cluster()?;
    for (number, (first, second, end, expected)) in [
        (
            "INSERT INTO sales VALUES ({n}, {n}, NULL)",
            "DELETE FROM shops WHERE id = {n}",
            "COMMIT",
            "23503",
        ),
        (
            "INSERT INTO sales VALUES ({n}, {n}, NULL)",
            "DELETE FROM shops WHERE id = {n}",
            "ROLLBACK",
            "",
        ),
        (
            "DELETE FROM shops WHERE id = {n}",
            "INSERT INTO sales VALUES ({n}, {n}, NULL)",
            "COMMIT",
            "23503",
        ),
        (
            "DELETE FROM shops WHERE id = {n}",
            "INSERT INTO sales VALUES ({n}, {n}, NULL)",
            "ROLLBACK",
            "",
        ),
        (
            "DELETE FROM shops WHERE id = {n}",
            "INSERT INTO sales VALUES ({n}, NULL, 'k{n}')",
            "COMMIT",
            "23503",
        ),
        (
            "UPDATE shops SET code = 'x{n}' WHERE id = {n}",
            "INSERT INTO sales VALUES ({n}, NULL, 'k{n}')",
            "ROLLBACK",
            "",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let of = |sql: &str| sql.replace("{n}", &number.to_string());
        let mut one = Client::connect(&cluster.endpoint())?;
        one.query(&of("INSERT INTO shops VALUES ({n}, 'k{n}')"))?;
        one.query("BEGIN")?;
        one.query(&of(first))?;
        let (endpoint, sql) = (cluster.endpoint(), of(second));
        let other = thread::spawn(move || -> Result<String> {
            sqlstate(&mut Client::connect(&endpoint)?, &sql)
        });
        ensure!(
            cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?,
            "{second} does not wait"
        );
        one.query(end)?;
        let told = other.join().expect("it does not panic")?;
        ensure!(told == expected, "{told}: {second} after {end} of {first}");
    }
    Ok(())
}

#[test]
fn what_a_node_changes_by_itself_is_refused() -> Result<()> {
    let cluster = cluster()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("INSERT INTO shops SELECT g, 'c' || g FROM generate_series(1, 30) g")?;
    client.query("INSERT INTO sales SELECT g, g, 'c' || g FROM generate_series(1, 30) g")?;
    for node in cluster.nodes() {
        let mut node = Client::connect(&node)?;
        for (sql, expected) in [
            ("DELETE FROM sales", "0A000"),
            ("UPDATE sales SET shop = shop + 1", "0A000"),
            ("INSERT INTO sales VALUES (-1, 1, 'c1')", "0A000"),
            // The entries of the same node refer to these.
            ("DELETE FROM shops", "0A000 23503"),
        ] {
            let told = sqlstate(&mut node, sql)?;
            ensure!(!told.is_empty() && expected.contains(&told), "{told}: {sql}");
        }
    }
    ensure!(client.value("SELECT count(*) FROM sales")? == "30");
    Ok(())
}

#[test]
fn clients_cannot_touch_entries_and_are_told_what_they_may_read() -> Result<()> {
    let cluster = cluster()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    owner.query("INSERT INTO shops VALUES (1, 'one'), (2, 'two')")?;
    owner.query("INSERT INTO sales VALUES (1, 1, NULL)")?;
    owner.query("CREATE ROLE clerk LOGIN")?;
    owner.query("GRANT INSERT, UPDATE, DELETE ON sales, shops TO clerk")?;
    owner.query("GRANT SELECT (id) ON shops TO clerk")?;
    let number = owner.value("SELECT number FROM tutti.reference WHERE columns = '{shop}'")?;
    let mut clerk = Client::connect_as(&cluster.endpoint(), "clerk")?;
    for sql in [
        format!("SELECT * FROM tutti.reference_{number}"),
        format!("DELETE FROM tutti.reference_{number}"),
        format!("TRUNCATE tutti.reference_{number}"),
        "DELETE FROM tutti.reference".to_owned(),
        format!("SELECT tutti.keep_reference({number}, '{{}}', '{{}}', false, 'x')"),
        "SELECT tutti.check_references('{}', 'x')".to_owned(),
        "SELECT tutti.make_reference('public', 'sales', 'sales_shop', 1, '0', 'x')".to_owned(),
        "SELECT tutti.raise_violation('x', 'y')".to_owned(),
    ] {
        let told = sqlstate(&mut clerk, &sql)?;
        ensure!(told == "42501" || told == "0A000", "{told}: {sql}");
    }
    // It may write what it may not read, as on one server.
    let detail = |session: &mut Client, sql: &str| -> Result<String> {
        let answer = session.simple(sql, &[])?;
        let error = answer.error().context("it does not fail")?;
        Ok(format!("{} {}", error.sqlstate(), error.get(b'D').unwrap_or_default()))
    };
    let told = detail(&mut clerk, "INSERT INTO sales VALUES (9, 99, NULL)")?;
    ensure!(told == "23503 Key is not present in table \"shops\".", "{told}");
    let told = detail(&mut clerk, "DELETE FROM shops WHERE id = 1")?;
    ensure!(told == "23503 Key (id)=(1) is still referenced from table \"sales\".", "{told}");
    let told = detail(&mut owner, "INSERT INTO sales VALUES (9, 99, NULL)")?;
    ensure!(told == "23503 Key (shop)=(99) is not present in table \"shops\".", "{told}");
    clerk.query("INSERT INTO sales VALUES (2, 2, 'two')")?;
    Ok(())
}

#[test]
fn changes_of_the_schema_that_would_break_it_are_refused() -> Result<()> {
    let cluster = cluster()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("INSERT INTO shops VALUES (1, 'one'), (2, 'two')")?;
    client.query("INSERT INTO sales VALUES (1, 1, 'one')")?;
    for (sql, expected) in [
        ("ALTER TABLE sales RENAME COLUMN shop TO store", "0A000"),
        ("ALTER TABLE sales ALTER COLUMN shop TYPE bigint", "0A000"),
        ("ALTER TABLE shops ALTER COLUMN code TYPE varchar(9)", "0A000"),
        ("ALTER TABLE sales ENABLE TRIGGER ALL", "0A000"),
        ("ALTER TABLE shops ENABLE TRIGGER ALL", "0A000"),
        ("ALTER TABLE sales DISABLE TRIGGER ALL", "0A000"),
        ("ALTER TABLE shops DISABLE TRIGGER ALL", "0A000"),
        ("ALTER TABLE sales SET UNLOGGED", "0A000"),
        ("ALTER TABLE sales DISTRIBUTE BY HASH (shop)", "0A000"),
        ("SELECT tutti_replicate('shops')", "0A000"),
        ("TRUNCATE shops", "0A000"),
        ("ALTER TABLE shops ALTER COLUMN id TYPE bigint", "0A000"),
        ("DROP INDEX shops_code", "2BP01"),
        ("DROP TABLE shops", "2BP01"),
    ] {
        let told = sqlstate(&mut client, sql)?;
        ensure!(told == expected, "{told}: {sql}");
    }
    for sql in ["INSERT INTO sales VALUES (2, 3, NULL)", "DELETE FROM shops WHERE id = 1"] {
        ensure!(sqlstate(&mut client, sql)? == "23503", "{sql}");
    }
    client.query("CREATE TABLE moments (at timestamp PRIMARY KEY) DISTRIBUTE BY HASH (at)")?;
    client.query(
        "CREATE TABLE times (k int, at timestamptz, PRIMARY KEY (k, at)) DISTRIBUTE BY HASH (k)",
    )?;
    client.query("CREATE TABLE pairs (a int, b int, PRIMARY KEY (a, b)) DISTRIBUTE BY HASH (a)")?;
    // What cannot be kept so is refused, and what the setting is not wanted for.
    for (setting, sql) in [
        ("global", "ALTER TABLE sales ADD FOREIGN KEY (shop) REFERENCES shops ON DELETE CASCADE"),
        ("global", "ALTER TABLE sales ADD FOREIGN KEY (shop) REFERENCES shops MATCH FULL"),
        (
            "global",
            "CREATE TABLE few (id int PRIMARY KEY, at date REFERENCES moments) DISTRIBUTE BY HASH (id)",
        ),
        (
            "global",
            "CREATE TABLE few (id int PRIMARY KEY, k int, at timestamp, FOREIGN KEY (k, at) REFERENCES times) DISTRIBUTE BY HASH (id)",
        ),
        ("global", "ALTER TABLE sales ADD FOREIGN KEY (shop, shop) REFERENCES pairs"),
        ("colocated", "ALTER TABLE sales ADD FOREIGN KEY (shop) REFERENCES shops"),
    ] {
        client.query(&format!("SET tutti.foreign_keys = '{setting}'"))?;
        let told = sqlstate(&mut client, sql)?;
        ensure!(told == "0A000", "{told}: {sql}");
    }
    client.query("DROP TABLE shops CASCADE")?;
    client.query("INSERT INTO sales VALUES (2, 3, NULL)")?;
    for node in cluster.nodes() {
        let left = "SELECT count(*) FROM pg_class WHERE relname ~ '^(reference|unique)_[0-9]' AND relkind = 'r'";
        ensure!(Client::connect(&node)?.value(left)? == "0", "entries are left");
        let left = "SELECT count(*) FROM pg_proc WHERE proname ~ '^note_(reference|unique)_'";
        ensure!(Client::connect(&node)?.value(left)? == "0", "functions are left");
    }
    Ok(())
}

#[test]
fn a_killed_gateway_leaves_no_row_that_refers_to_nothing() -> Result<()> {
    let servers = servers::durable(3)?;
    process::init(&servers)?;
    make(&GatewayProcess::start(&servers)?.endpoint())?;
    let next = AtomicI64::new(1);
    for round in 0..4_u64 {
        let gateway = GatewayProcess::start(&servers)?;
        let (endpoint, stop) = (gateway.endpoint(), AtomicBool::new(false));
        thread::scope(|scope| -> Result<()> {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (endpoint, next, stop) = (&endpoint, &next, &stop);
                    // They are cut off.
                    scope.spawn(move || {
                        while write(endpoint, next, 100 * round + writer, stop).is_ok()
                            && !stop.load(Ordering::Relaxed)
                        {}
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(700 + 200 * round));
            let killed = gateway.kill9();
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().for_each(|it| it.join().expect("it does not panic"));
            killed
        })?;
        let gateway = GatewayProcess::start(&servers)?;
        ensure_none_dangles(&gateway.endpoint())?;
        // The auditor compares entries with rows.
        let report = gateway.audit().context("the audit")?;
        ensure!(report.findings.is_empty(), "{report}");
    }
    ensure!(1 < next.into_inner(), "nothing was ever written");
    Ok(())
}
