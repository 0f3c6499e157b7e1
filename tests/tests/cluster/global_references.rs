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

/// The second refers to the first by its key, and by a value that is unique over all nodes; others go with its rows, or
/// forget them.
const TABLES: [&str; 9] = [
    "CREATE TABLE shops (id int PRIMARY KEY, code text) DISTRIBUTE BY HASH (id)",
    "CREATE UNIQUE INDEX shops_code ON shops (code) WITH (tutti.global_unique)",
    "SET tutti.foreign_keys = 'global'",
    "CREATE TABLE sales (id int PRIMARY KEY, shop int, code text) DISTRIBUTE BY HASH (id)",
    "ALTER TABLE sales ADD CONSTRAINT sales_shop FOREIGN KEY (shop) REFERENCES shops",
    "ALTER TABLE sales ADD CONSTRAINT sales_code FOREIGN KEY (code) REFERENCES shops (code)",
    "CREATE TABLE doors (id int PRIMARY KEY, shop int REFERENCES shops ON DELETE CASCADE) DISTRIBUTE BY HASH (id)",
    "CREATE TABLE locks (id int PRIMARY KEY, door int REFERENCES doors ON DELETE CASCADE) DISTRIBUTE BY HASH (id)",
    "CREATE TABLE visits (id int PRIMARY KEY, shop int REFERENCES shops ON DELETE SET NULL) DISTRIBUTE BY HASH (id)",
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
            let door = rng.random_range(0..4 * SHOPS);
            let sql = match rng.random_range(0..14) {
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
                8 => format!(
                    "INSERT INTO doors VALUES ({door}, {shop}) ON CONFLICT (id) DO UPDATE SET shop = {other}"
                ),
                9 => format!("INSERT INTO locks SELECT {id}, {door} WHERE {door} % 2 = 0"),
                10 => format!("INSERT INTO locks VALUES ({id}, {door})"),
                11 => format!("INSERT INTO visits VALUES ({id}, {shop}), ({id} + 100000, {other})"),
                12 => format!("DELETE FROM doors WHERE id IN ({door}, {})", door / 2),
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
    for (table, column, referred) in
        [("doors", "shop", "shops"), ("locks", "door", "doors"), ("visits", "shop", "shops")]
    {
        let sql = format!(
            "SELECT t.* FROM {table} t LEFT JOIN {referred} r ON r.id = t.{column} \
             WHERE t.{column} IS NOT NULL AND r.id IS NULL"
        );
        let dangling = client.query(&sql)?;
        ensure!(dangling.is_empty(), "{table}: {dangling:?}");
    }
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
    let number = owner.value(
        "SELECT r.number FROM tutti.reference r JOIN pg_constraint k ON k.oid = r.foreign_key \
         WHERE k.conname = 'sales_shop'",
    )?;
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

/// What goes with what is deleted, whoever deletes it, goes as its table's owner would delete it, and as nobody more.
#[test]
fn rows_go_with_others_as_their_owner_deletes_them() -> Result<()> {
    let cluster = cluster()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE ROLE clerk LOGIN",
        "CREATE ROLE keeper LOGIN",
        "GRANT CREATE, USAGE ON SCHEMA public TO keeper",
        "GRANT SELECT, DELETE, REFERENCES ON shops TO clerk, keeper",
        "ALTER TABLE doors OWNER TO keeper",
        "INSERT INTO shops SELECT g, 'c' || g FROM generate_series(1, 9) g",
        "INSERT INTO doors SELECT g, g FROM generate_series(1, 9) g",
        "INSERT INTO locks SELECT g, g FROM generate_series(1, 9) g",
    ] {
        owner.query(sql)?;
    }
    let mut clerk = Client::connect_as(&cluster.endpoint(), "clerk")?;
    let mut keeper = Client::connect_as(&cluster.endpoint(), "keeper")?;
    // As scripts of dumps begin.
    clerk.query("SET row_security = off")?;
    clerk.query("DELETE FROM shops WHERE id = 1")?;
    clerk.query("RESET row_security")?;
    ensure!(owner.value("SELECT count(*) FROM locks")? == "8");
    ensure!(sqlstate(&mut clerk, "DELETE FROM doors WHERE id = 2")? == "42501");
    let number = owner.value(
        "SELECT r.number FROM tutti.reference r JOIN pg_constraint k ON k.oid = r.foreign_key \
         WHERE k.conname = 'doors_shop_fkey'",
    )?;
    for sql in [
        format!("SELECT tutti.act_reference_{number}('{{}}', 'doors')"),
        format!("SELECT tutti.act_on_rows({number}, '{{}}', 'x')"),
        format!("SELECT tutti.action_of({number}, '{{}}', 'x')"),
    ] {
        let told = sqlstate(&mut clerk, &sql)?;
        ensure!(told == "42501" || told == "0A000", "{told}: {sql}");
    }

    // Whoever its code runs as.
    keeper.query(
        "CREATE FUNCTION public.say() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION '% for %', current_user, session_user; END $$",
    )?;
    keeper
        .query("CREATE TRIGGER say BEFORE DELETE ON doors FOR EACH ROW EXECUTE FUNCTION say()")?;
    let said = |session: &mut Client, sql: &str| -> Result<String> {
        let answer = session.simple(sql, &[])?;
        let error = answer.error().context("it does not fail")?;
        Ok(error.message().to_owned())
    };
    let told = said(&mut clerk, "DELETE FROM shops WHERE id = 2")?;
    ensure!(told == "keeper for clerk", "{told}");
    // Nor if its owner makes what acts another.
    let acting = format!("tutti.act_reference_{number}(tutti.reference_{number}[], regclass)");
    for change in ["SECURITY INVOKER", "OWNER TO clerk", "RENAME TO mine"] {
        let changed = sqlstate(&mut keeper, &format!("ALTER FUNCTION {acting} {change}"))?;
        if changed.is_empty() {
            let told = said(&mut owner, "DELETE FROM shops WHERE id = 2")?;
            ensure!(!told.starts_with("postgres"), "{change}: {told}");
        }
    }
    ensure!(sqlstate(&mut keeper, &format!("DROP FUNCTION {acting}"))? != "");

    owner.query("DROP TRIGGER say ON doors")?;
    owner.query("ALTER TABLE doors DROP CONSTRAINT doors_shop_fkey")?;
    owner.query("SET tutti.foreign_keys = 'global'")?;
    owner.query("ALTER TABLE doors ADD FOREIGN KEY (shop) REFERENCES shops ON DELETE CASCADE")?;
    owner.query("ALTER TABLE doors OWNER TO postgres")?;
    owner.query("DROP OWNED BY keeper")?;
    owner.query("DROP ROLE keeper")?;
    clerk.query("DELETE FROM shops WHERE id = 2")?;
    ensure!(owner.value("SELECT count(*) FROM locks")? == "7");

    for sql in ["CREATE ROLE warden", "ALTER TABLE doors OWNER TO warden"] {
        owner.query(sql)?;
    }
    owner.query("ALTER TABLE doors ENABLE ROW LEVEL SECURITY")?;
    // It would hide rows from who deletes them.
    let forced = sqlstate(&mut owner, "ALTER TABLE doors FORCE ROW LEVEL SECURITY")?;
    ensure!(forced == "0A000", "{forced}");
    clerk.query("DELETE FROM shops WHERE id = 3")?;
    ensure!(owner.value("SELECT count(*) FROM doors")? == "6");
    for sql in ["DROP OWNED BY warden CASCADE", "DROP ROLE warden"] {
        owner.query(sql)?;
    }
    clerk.query("DELETE FROM shops WHERE id = 4")?;
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
        (
            "global",
            "ALTER TABLE sales ADD FOREIGN KEY (shop) REFERENCES shops ON DELETE SET DEFAULT",
        ),
        ("global", "ALTER TABLE sales ADD FOREIGN KEY (shop) REFERENCES shops ON UPDATE SET NULL"),
        (
            "global",
            "ALTER TABLE sales ADD FOREIGN KEY (code) REFERENCES shops (code) ON DELETE CASCADE",
        ),
        (
            "global",
            "ALTER TABLE sales ADD FOREIGN KEY (shop, id) REFERENCES pairs ON DELETE SET NULL",
        ),
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
    client.query("DROP TABLE doors CASCADE")?;
    for node in cluster.nodes() {
        let left = "SELECT count(*) FROM pg_class WHERE relname ~ '^(reference|unique)_[0-9]' AND relkind = 'r'";
        ensure!(Client::connect(&node)?.value(left)? == "0", "entries are left");
        let left =
            "SELECT count(*) FROM pg_proc WHERE proname ~ '^(note|tell|act)_(reference|unique)_'";
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
