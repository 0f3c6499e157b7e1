//! Placements by SQL: ALTER TABLE … DISTRIBUTE BY in all its forms, with CASCADE, beside other sessions; how far it is; and
//! new tables that go with those that they refer to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tutti_tests::answer::{Answer, Outcome};
use tutti_tests::client::{Client, Flight, Request};
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

const NODES: u16 = 3;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn start() -> Result<(TestCluster, Client)> {
    let cluster = TestCluster::start_at_home(servers::start(NODES)?)?;
    let client = Client::connect(&cluster.endpoint())?;
    Ok((cluster, client))
}

/// What `tutti_tables()` says of the tables of these names: `name placement key`.
fn placements(client: &mut Client) -> Result<Vec<String>> {
    let rows = client.query("SELECT * FROM tutti_tables()")?;
    let said = |row: Vec<Option<String>>| {
        let words: Vec<String> = row.into_iter().flatten().collect();
        words.join(" ")
    };
    Ok(rows.into_iter().map(said).collect())
}

fn ensure_placed(client: &mut Client, table: &str, placement: &str) -> Result<()> {
    let placed = placements(client)?;
    let expected = format!("{table} {placement}");
    ensure!(placed.contains(&expected), "not {expected:?}: {placed:?}");
    Ok(())
}

fn tags(answer: &Answer) -> Vec<&str> {
    answer
        .outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Done { tag } | Outcome::Rows { tag, .. } => tag.as_str(),
            _ => "",
        })
        .collect()
}

/// Runs what must end with the tag of ALTER TABLE and without rows. Returns what was noticed.
fn alter(client: &mut Client, sql: &str) -> Result<Vec<String>> {
    let answer = client.simple(sql, b"")?;
    if let Some(error) = answer.error() {
        bail!("{sql}: {} {} {:?}", error.sqlstate(), error.message(), error.get(b'D'));
    }
    ensure!(matches!(&*answer.outcomes, [Outcome::Done { .. }]), "{sql}: {answer}");
    ensure!(tags(&answer) == ["ALTER TABLE"], "{sql}: {answer}");
    Ok(answer.notices.iter().map(|notice| notice.message().to_owned()).collect())
}

/// Runs what must be refused; returns message, detail and hint.
pub(crate) fn refused(client: &mut Client, sql: &str, sqlstate: &str) -> Result<String> {
    let answer = client.simple(sql, b"")?;
    let error = answer.error().with_context(|| format!("{sql}: not refused"))?;
    let parts = [Some(error.message()), error.get(b'D'), error.get(b'H')];
    let said = parts.into_iter().flatten().collect::<Vec<_>>().join(" | ");
    ensure!(error.sqlstate() == sqlstate, "{sql}: {} {said}", error.sqlstate());
    Ok(said)
}

#[test]
fn a_table_goes_wherever_alter_table_says() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query(
        "CREATE SCHEMA \"S 1\"; CREATE TABLE \"S 1\".\"T ö\" (\"Id\" int, v text);
         INSERT INTO \"S 1\".\"T ö\" SELECT g, 'v' || g FROM generate_series(1, 900) g;
         CREATE TABLE plain (id int PRIMARY KEY); INSERT INTO plain SELECT generate_series(1, 90)",
    )?;
    let digest = "SELECT md5(string_agg(t::text, ',' ORDER BY \"Id\")) FROM \"S 1\".\"T ö\" t";
    let before = client.value(digest)?;
    for (clause, placement) in [
        ("HASH (\"Id\")", "hash Id"),
        ("REPLICATED", "replicated"),
        ("ROUND ROBIN", "round robin"),
        ("HASH (v)", "hash v"),
        ("HOME", "node 1 only"),
        ("HOME", "node 1 only"),
        ("ROUNDROBIN", "round robin"),
        ("REPLICATION", "replicated"),
    ] {
        alter(&mut client, &format!("ALTER TABLE \"S 1\".\"T ö\" DISTRIBUTE BY {clause}"))?;
        ensure_placed(&mut client, "S 1.T ö", placement)?;
        ensure!(client.value(digest)? == before, "rows differ by {clause}");
    }
    let mut other = Client::connect(&cluster.nodes()[1])?;
    ensure!(other.value(digest)? == before);

    // By the search path, in a text of several statements, in the extended protocol.
    client.query("SET search_path = \"S 1\", public")?;
    let answer = client.simple(
        "SELECT 1; alter table if exists plain distribute by hash (id); SELECT count(*) FROM plain",
        b"",
    )?;
    ensure!(tags(&answer) == ["SELECT 1", "ALTER TABLE", "SELECT 1"], "{answer}");
    ensure!(answer.texts() == [[Some("90".to_owned())]], "{answer}");
    let request = Request {
        sql: "ALTER TABLE plain * DISTRIBUTE BY REPLICATED",
        types: &[],
        arguments: &[],
        row_limit: 0,
    };
    for flight in [Flight::OneFlight, Flight::TwoFlights] {
        let answer = client.extended(&request, flight, b"")?;
        ensure!(answer.error().is_none() && tags(&answer) == ["ALTER TABLE"], "{answer}");
    }
    ensure_placed(&mut client, "public.plain", "replicated")?;

    let notices = alter(&mut client, "ALTER TABLE IF EXISTS nowhere.t DISTRIBUTE BY HOME")?;
    ensure!(notices.len() == 1 && notices[0].ends_with("does not exist, skipping"), "{notices:?}");
    for (sql, sqlstate) in [
        ("ALTER TABLE missing DISTRIBUTE BY HOME", "42P01"),
        ("ALTER TABLE plain DISTRIBUTE BY HASH (missing)", "42703"),
        ("ALTER TABLE plain DISTRIBUTE BY ROUND ROBIN", "0A000"),
        ("ALTER TABLE ONLY plain DISTRIBUTE BY HOME", "0A000"),
        ("ALTER TABLE plain DISTRIBUTE BY HASH (id), ADD COLUMN x int", "42601"),
        ("ALTER TABLE tutti.placement DISTRIBUTE BY HOME", "42501"),
        ("CREATE VIEW w AS SELECT 1; ALTER TABLE w DISTRIBUTE BY HOME", "42809"),
        ("CREATE TEMPORARY TABLE e (); ALTER TABLE e DISTRIBUTE BY HOME", "0A000"),
    ] {
        refused(&mut client, sql, sqlstate)?;
        ensure_placed(&mut client, "public.plain", "replicated")?;
    }
    Ok(())
}

#[test]
fn it_is_part_of_its_transaction() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 300)",
    )?;
    client.query("BEGIN")?;
    client.query("INSERT INTO t VALUES (0)")?;
    client.query("SAVEPOINT s")?;
    alter(&mut client, "ALTER TABLE t DISTRIBUTE BY HASH (id)")?;
    ensure_placed(&mut client, "public.t", "hash id")?;
    ensure!(client.value("SELECT count(*) FROM t")? == "301");
    client.query("ROLLBACK TO s")?;
    ensure!(client.value("SELECT count(*) FROM t")? == "301");
    client.query("ROLLBACK")?;
    ensure_placed(&mut client, "public.t", "node 1 only")?;
    ensure!(client.value("SELECT count(*) FROM t")? == "300");
    let mut other = Client::connect(&cluster.nodes()[2])?;
    ensure!(other.value("SELECT to_regclass('t') IS NULL")? == "t");

    client.query("BEGIN")?;
    alter(&mut client, "ALTER TABLE t DISTRIBUTE BY HASH (id)")?;
    client.query("INSERT INTO t VALUES (301)")?;
    client.query("COMMIT")?;
    ensure_placed(&mut client, "public.t", "hash id")?;
    ensure!(client.value("SELECT count(*) FROM t")? == "301");
    ensure!(other.value("SELECT count(*) BETWEEN 1 AND 300 FROM t")? == "t");

    client.query("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    refused(&mut client, "ALTER TABLE t DISTRIBUTE BY HOME", "0A000")?;
    client.query("ROLLBACK")?;
    Ok(())
}

#[test]
fn who_does_not_own_a_table_does_not_place_it() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query(
        "CREATE ROLE app LOGIN; CREATE TABLE t (id int PRIMARY KEY); GRANT ALL ON t TO app;
         CREATE TABLE refers (id int REFERENCES t PRIMARY KEY); CREATE SCHEMA app AUTHORIZATION app",
    )?;
    let mut app = Client::connect_as(&cluster.endpoint(), "app")?;
    for sql in [
        "ALTER TABLE t DISTRIBUTE BY HASH (id) CASCADE",
        "ALTER TABLE t DISTRIBUTE BY HASH (id)",
        "ALTER TABLE t DISTRIBUTE BY REPLICATED",
        "ALTER TABLE IF EXISTS t DISTRIBUTE BY HASH (id) CASCADE",
    ] {
        let said = refused(&mut app, sql, "42501")?;
        ensure!(said.contains("must be owner of table t"), "{said}");
    }
    // Its own tables it does, as far as servers let it move rows; those of others do not go along.
    client.query("CREATE TABLE spread () DISTRIBUTE BY REPLICATED")?;
    client.query("GRANT SET ON PARAMETER session_replication_role TO app")?;
    app.query("CREATE TABLE app.mine (id int PRIMARY KEY); INSERT INTO app.mine SELECT generate_series(1, 9)")?;
    client.query("CREATE TABLE theirs (id int REFERENCES app.mine PRIMARY KEY)")?;
    let said = refused(&mut app, "ALTER TABLE app.mine DISTRIBUTE BY HASH (id) CASCADE", "42501")?;
    ensure!(said.contains("theirs"), "{said}");
    ensure_placed(&mut client, "app.mine", "node 1 only")?;
    client.query("DROP TABLE theirs")?;
    alter(&mut app, "ALTER TABLE app.mine DISTRIBUTE BY HASH (id) CASCADE")?;
    ensure_placed(&mut client, "app.mine", "hash id")?;
    ensure!(app.value("SELECT count(*) FROM app.mine")? == "9");
    Ok(())
}

const SHOP: &str = "
CREATE TABLE customers (id int PRIMARY KEY, name text);
CREATE TABLE orders (customer int REFERENCES customers, id int, PRIMARY KEY (customer, id));
CREATE TABLE \"Lines\" (c int, o int, n int, PRIMARY KEY (c, o, n), FOREIGN KEY (o, c) REFERENCES orders (id, customer),
    FOREIGN KEY (c) REFERENCES customers);
INSERT INTO customers SELECT g, 'c' || g FROM generate_series(1, 200) g;
INSERT INTO orders SELECT g % 200 + 1, g FROM generate_series(1, 600) g;
INSERT INTO \"Lines\" SELECT customer, id, 1 FROM orders";
const JOINED: &str = "SELECT count(*) FROM customers c JOIN orders o ON customer = c.id JOIN \"Lines\" l ON l.c = customer AND o = o.id";

#[test]
fn what_refers_to_a_table_goes_along() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query(SHOP)?;
    let said = refused(&mut client, "ALTER TABLE customers DISTRIBUTE BY HASH (id)", "0A000")?;
    for part in [
        "foreign key \"orders_customer_fkey\" of table \"orders\" cannot be enforced",
        "ALTER TABLE \"public\".\"customers\" DISTRIBUTE BY HASH (\"id\") CASCADE",
        "SELECT tutti_distribute('\"public\".\"customers\"', 'id', '\"public\".\"orders\"', 'customer', \
         '\"public\".\"Lines\"', 'c')",
    ] {
        ensure!(said.contains(part), "no {part:?}: {said}");
    }
    let home =
        ["public.Lines node 1 only", "public.customers node 1 only", "public.orders node 1 only"];
    ensure!(placements(&mut client)? == home);

    let notices = alter(&mut client, "ALTER TABLE customers DISTRIBUTE BY HASH (id) CASCADE")?;
    ensure!(
        notices
            == [
                "distribution cascades to table \"orders\", by its column \"customer\"",
                "distribution cascades to table \"Lines\", by its column \"c\"",
            ],
        "{notices:?}"
    );
    let spread = ["public.Lines hash c", "public.customers hash id", "public.orders hash customer"];
    ensure!(placements(&mut client)? == spread);
    ensure!(client.value(JOINED)? == "600");
    refused(&mut client, "INSERT INTO orders VALUES (1000, 1)", "23503")?;
    // They are where they would go.
    ensure!(
        alter(&mut client, "ALTER TABLE customers DISTRIBUTE BY HASH (id) CASCADE")?.is_empty()
    );
    ensure!(alter(&mut client, "ALTER TABLE customers DISTRIBUTE BY HASH (id)")?.is_empty());

    let said = refused(&mut client, "ALTER TABLE customers DISTRIBUTE BY HOME", "0A000")?;
    ensure!(
        said.contains("tutti_home('\"public\".\"customers\"', '\"public\".\"orders\"'"),
        "{said}"
    );
    let notices = alter(&mut client, "ALTER TABLE customers DISTRIBUTE BY HOME CASCADE")?;
    ensure!(notices.len() == 2, "{notices:?}");
    ensure!(placements(&mut client)? == home);
    ensure!(client.value(JOINED)? == "600");
    let mut other = Client::connect(&cluster.nodes()[1])?;
    ensure!(other.value("SELECT to_regclass('orders') IS NULL")? == "t");
    Ok(())
}

#[test]
fn where_one_cannot_go_none_goes() -> Result<()> {
    let (_cluster, mut client) = start()?;
    client.query("CREATE TABLE p (id int PRIMARY KEY, code int UNIQUE); CREATE TABLE items (id int PRIMARY KEY)")?;
    let cases = [
        (
            "CREATE TABLE r (id int PRIMARY KEY, p int REFERENCES p)",
            "Its primary key \"r_pkey\" does not contain \"p\"",
        ),
        (
            "CREATE TABLE r (p int REFERENCES p ON UPDATE CASCADE)",
            "ON UPDATE CASCADE, SET NULL and SET DEFAULT",
        ),
        ("CREATE TABLE r (p int REFERENCES p, q int REFERENCES p)", "is to be by \"p\""),
        ("CREATE TABLE r (code int REFERENCES p (code))", "does not name the column"),
        (
            "CREATE TABLE r (p int REFERENCES p, item int REFERENCES items)",
            "\"items\" are on node 1",
        ),
    ];
    for (create, why) in cases {
        client.query(create)?;
        // The key that `code` is refers to nothing that can be kept by `id`.
        if !create.contains("(code)") {
            client.query("ALTER TABLE p DROP CONSTRAINT IF EXISTS p_code_key")?;
        }
        let said = refused(&mut client, "ALTER TABLE p DISTRIBUTE BY HASH (id) CASCADE", "0A000")?;
        ensure!(said.contains(why) && said.contains("table \"r\""), "{create}: {said}");
        let home = ["public.items node 1 only", "public.p node 1 only", "public.r node 1 only"];
        ensure!(placements(&mut client)? == home, "{create}");
        client.query("DROP TABLE r; ALTER TABLE p DROP CONSTRAINT IF EXISTS p_code_key; ALTER TABLE p ADD UNIQUE (code)")?;
    }
    Ok(())
}

#[test]
fn a_new_table_goes_with_what_it_refers_to() -> Result<()> {
    for cluster in [TestCluster::start_at_home(servers::start(NODES)?)?, TestCluster::start(NODES)?]
    {
        let mut client = Client::connect(&cluster.endpoint())?;
        client.query(
            "CREATE TABLE customers (id int PRIMARY KEY) DISTRIBUTE BY HASH (id);
             CREATE TABLE kinds (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED;
             CREATE TABLE alone (id int PRIMARY KEY) DISTRIBUTE BY HOME;
             CREATE TABLE decimals (id numeric PRIMARY KEY) DISTRIBUTE BY HASH (id);
             INSERT INTO customers SELECT generate_series(1, 100); INSERT INTO kinds VALUES (1)",
        )?;
        let answer = client.simple(
            "CREATE TABLE orders (id int, kind int REFERENCES kinds, customer bigint REFERENCES customers, PRIMARY KEY (customer, id))",
            b"",
        )?;
        ensure!(answer.error().is_none() && answer.notices.len() == 1, "{answer}");
        let said = answer.notices[0].message();
        ensure!(
            said == "table \"orders\" is distributed by \"customer\", to be with \"customers\"",
            "{said}"
        );
        ensure_placed(&mut client, "public.orders", "hash customer")?;
        client
            .query("INSERT INTO orders SELECT g, 1, g % 100 + 1 FROM generate_series(1, 500) g")?;
        refused(&mut client, "INSERT INTO orders VALUES (1, 1, 101)", "23503")?;
        let mut node = Client::connect(&cluster.nodes()[1])?;
        ensure!(node.value("SELECT count(*) BETWEEN 1 AND 499 FROM orders")? == "t");
        ensure!(
            node.value("SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT FROM customers c WHERE c.id = customer)")?
                == "0"
        );

        // The first by which all can be checked, not the first.
        client.query(
            "CREATE TABLE lines (a int REFERENCES customers, o int, c bigint REFERENCES customers, n int,
                 FOREIGN KEY (c, o) REFERENCES orders (customer, id), CHECK (a IS NULL)) DISTRIBUTE BY HOME",
        )
        .err()
        .context("a table of node 1 refers to others")?;
        client.query(
            "CREATE TABLE lines (n int, o int, c bigint, FOREIGN KEY (c, o) REFERENCES orders (customer, id),
                 FOREIGN KEY (c) REFERENCES customers)",
        )?;
        ensure_placed(&mut client, "public.lines", "hash c")?;
        client.query("CREATE TABLE tree (c int REFERENCES customers, id int, up int, PRIMARY KEY (c, id), FOREIGN KEY (c, up) REFERENCES tree)")?;
        ensure_placed(&mut client, "public.tree", "hash c")?;
        client.query("CREATE TABLE IF NOT EXISTS tree (c int REFERENCES customers)")?;
        // In a block it is seen, and undone.
        client.query(
            "BEGIN; CREATE TABLE gone (c int REFERENCES customers); INSERT INTO gone VALUES (7)",
        )?;
        ensure_placed(&mut client, "public.gone", "hash c")?;
        client.query("ROLLBACK")?;

        for (create, why) in [
            (
                "CREATE TABLE r (id int PRIMARY KEY, c int REFERENCES customers)",
                "Include \"c\" in the primary key",
            ),
            (
                "CREATE TABLE r (c int REFERENCES customers, d int REFERENCES customers)",
                "foreign key \"r_d_fkey\"",
            ),
            ("CREATE TABLE r (c int REFERENCES customers ON UPDATE CASCADE)", "ON UPDATE CASCADE"),
            ("CREATE TABLE r (c int REFERENCES decimals)", "same type"),
            (
                "CREATE TABLE r (c int REFERENCES customers, a int REFERENCES alone)",
                "foreign key \"r_a_fkey\"",
            ),
            (
                "CREATE TABLE r (c int REFERENCES customers, id int, up int, PRIMARY KEY (c, id), UNIQUE (c, up), FOREIGN KEY (c, up) REFERENCES r (up, c), FOREIGN KEY (up, c) REFERENCES r (c, up))",
                "cannot be enforced",
            ),
        ] {
            let said = refused(&mut client, create, "0A000")?;
            ensure!(said.contains("cannot be enforced") && said.contains(why), "{create}: {said}");
            ensure!(client.value("SELECT to_regclass('r') IS NULL")? == "t");
        }
    }
    Ok(())
}

/// Waits until this holds of the rows of `tutti_progress()`.
fn wait_for(
    client: &mut Client,
    holds: impl Fn(&[Vec<Option<String>>]) -> bool,
) -> Result<Vec<Vec<Option<String>>>> {
    let begun = Instant::now();
    loop {
        let rows = client.query("SELECT * FROM tutti_progress()")?;
        if holds(&rows) {
            return Ok(rows);
        }
        ensure!(begun.elapsed() < PATIENCE, "it does not come to that: {rows:?}");
        sleep(Duration::from_millis(2));
    }
}

fn number(value: &Option<String>) -> u64 {
    value.as_deref().and_then(|value| value.parse().ok()).unwrap_or(0)
}

#[test]
fn others_see_how_far_it_is_and_may_cancel_it() -> Result<()> {
    const ROWS: u64 = 120_000;
    let (cluster, mut client) = start()?;
    client.query(&format!(
        "CREATE ROLE looker LOGIN; CREATE TABLE t (id int PRIMARY KEY, v text);
         INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, {ROWS}) g"
    ))?;
    client.query("ANALYZE t")?;
    ensure!(client.query("SELECT * FROM tutti_progress()")?.is_empty());
    let mut looker = Client::connect_as(&cluster.endpoint(), "looker")?;
    for (sql, ends) in [
        ("ALTER TABLE t DISTRIBUTE BY HASH (id)", "pg_cancel_backend"),
        ("ALTER TABLE t DISTRIBUTE BY HASH (id)", "pg_terminate_backend"),
        ("ALTER TABLE t DISTRIBUTE BY HASH (id)", ""),
    ] {
        let mut mover = Client::connect(&cluster.endpoint())?;
        let pid = mover.process_id;
        let moving = std::thread::spawn(move || mover.simple(sql, b""));
        let rows = wait_for(&mut client, |rows| {
            rows.first()
                .is_some_and(|row| row[2].as_deref() == Some("moving rows") && number(&row[3]) > 0)
        })?;
        let [row] = rows.as_slice() else { bail!("{rows:?}") };
        ensure!(
            row[0] == Some(pid.to_string()) && row[1].as_deref() == Some("public.t"),
            "{row:?}"
        );
        ensure!(number(&row[3]) <= ROWS && number(&row[4]) >= 100 * number(&row[3]), "{row:?}");
        ensure!(number(&row[5]).abs_diff(ROWS) < ROWS / 10, "{row:?}");
        ensure!(row[6..8] == [Some("0".to_owned()), Some("1".to_owned())], "{row:?}");
        ensure!(
            client.value(&format!(
                "SELECT now() - '{}' < interval '1 min'",
                row[8].as_deref().unwrap_or("")
            ))? == "t"
        );
        let hidden = looker.query("SELECT * FROM tutti_progress()")?;
        ensure!(
            hidden
                .iter()
                .all(|row| row[0] == Some(pid.to_string()) && row[1..].iter().all(Option::is_none)),
            "{hidden:?}"
        );
        if ends.is_empty() {
            let answer = moving.join().expect("a thread")?;
            ensure!(answer.error().is_none() && answer.notices.is_empty(), "{answer}");
            ensure_placed(&mut client, "public.t", "hash id")?;
        } else {
            client.query(&format!("SELECT {ends}({pid})"))?;
            match moving.join().expect("a thread") {
                Ok(answer) => {
                    let error = answer.error().context("not ended")?;
                    ensure!(["57014", "57P01"].contains(&error.sqlstate()), "{answer}");
                }
                Err(_) if ends == "pg_terminate_backend" => (),
                Err(error) => return Err(error),
            }
            // Nothing is left of it.
            wait_for(&mut client, <[_]>::is_empty)?;
            ensure_placed(&mut client, "public.t", "node 1 only")?;
            let mut node = Client::connect(&cluster.nodes()[1])?;
            ensure!(node.value("SELECT to_regclass('t') IS NULL")? == "t");
        }
        ensure!(client.query("SELECT * FROM tutti_progress()")?.is_empty());
        ensure!(client.value("SELECT count(*) FROM t")? == ROWS.to_string());
    }

    // A role that may read all statistics sees what waits for a lock; so does who is of the same role.
    client.query("GRANT pg_read_all_stats TO looker")?;
    client.query("BEGIN; LOCK TABLE t IN ACCESS SHARE MODE")?;
    let mut mover = Client::connect(&cluster.endpoint())?;
    let moving = std::thread::spawn(move || mover.simple("ALTER TABLE t DISTRIBUTE BY HOME", b""));
    let mut own = Client::connect(&cluster.endpoint())?;
    let waits = |rows: &[Vec<Option<String>>]| {
        rows.first().is_some_and(|row| row[2].as_deref() == Some("waiting for locks"))
    };
    wait_for(&mut own, waits)?;
    client.query("COMMIT")?;
    ensure!(moving.join().expect("a thread")?.error().is_none());
    client.query("BEGIN; LOCK TABLE t IN ACCESS SHARE MODE")?;
    let mut mover = Client::connect(&cluster.endpoint())?;
    let moving =
        std::thread::spawn(move || mover.simple("ALTER TABLE t DISTRIBUTE BY REPLICATED", b""));
    wait_for(&mut looker, waits)?;
    client.query("ROLLBACK")?;
    ensure!(moving.join().expect("a thread")?.error().is_none());
    ensure_placed(&mut client, "public.t", "replicated")?;
    Ok(())
}

/// Errors after which a client tries again.
fn is_passing(sqlstate: &str) -> bool {
    ["40001", "40P01"].contains(&sqlstate)
}

#[test]
fn readers_and_writers_beside_it_lose_nothing() -> Result<()> {
    const ACCOUNTS: i64 = 300;
    let (cluster, mut client) = start()?;
    client.query(&format!(
        "CREATE TABLE accounts (id int PRIMARY KEY, amount bigint);
         CREATE TABLE moves (account int REFERENCES accounts, n int, PRIMARY KEY (account, n));
         INSERT INTO accounts SELECT g, 100 FROM generate_series(1, {ACCOUNTS}) g"
    ))?;
    let ends = Arc::new(AtomicBool::new(false));
    let endpoint = cluster.endpoint();
    let writer = |number: i64| {
        let (ends, endpoint) = (ends.clone(), endpoint.clone());
        std::thread::spawn(move || -> Result<i64> {
            let mut client = Client::connect(&endpoint)?;
            let (mut done, mut tries) = (0, 0);
            while !ends.load(Ordering::Relaxed) {
                tries += 1;
                let (from, to) =
                    (1 + (tries * 7 + number) % ACCOUNTS, 1 + (tries * 13 + number * 5) % ACCOUNTS);
                // One writer has no two transactions that wait for each other.
                let (first, second) = (from.min(to), from.max(to));
                let n = tries * 10 + number;
                let answer = client.simple(
                    &format!(
                        "BEGIN; UPDATE accounts SET amount = amount - 1 WHERE id = {first};
                         UPDATE accounts SET amount = amount + 1 WHERE id = {second};
                         INSERT INTO moves VALUES ({first}, {n}); COMMIT"
                    ),
                    b"",
                )?;
                match answer.error() {
                    None => done += 1,
                    Some(error) if is_passing(error.sqlstate()) => {
                        client.query("ROLLBACK")?;
                    }
                    Some(error) => bail!("{} {}", error.sqlstate(), error.message()),
                }
            }
            Ok(done)
        })
    };
    let reader = || {
        let (ends, endpoint) = (ends.clone(), endpoint.clone());
        std::thread::spawn(move || -> Result<i64> {
            let mut client = Client::connect(&endpoint)?;
            let mut done = 0;
            while !ends.load(Ordering::Relaxed) {
                let answer = client.simple("SELECT sum(amount), count(*) FROM accounts", b"")?;
                match answer.error() {
                    Some(error) if is_passing(error.sqlstate()) => continue,
                    Some(error) => bail!("{} {}", error.sqlstate(), error.message()),
                    None => (),
                }
                let expected = [Some((ACCOUNTS * 100).to_string()), Some(ACCOUNTS.to_string())];
                ensure!(answer.texts() == [expected], "{answer}");
                done += 1;
            }
            Ok(done)
        })
    };
    let (writers, readers) = ([writer(1), writer(2)], [reader()]);
    let changes = [
        "ALTER TABLE accounts DISTRIBUTE BY HASH (id) CASCADE",
        "ALTER TABLE accounts DISTRIBUTE BY REPLICATED",
        "ALTER TABLE accounts DISTRIBUTE BY HASH (id) CASCADE",
        "ALTER TABLE accounts DISTRIBUTE BY HOME CASCADE",
    ];
    let mut tried = 0;
    for sql in changes.iter().chain(&changes) {
        loop {
            sleep(Duration::from_millis(300));
            tried += 1;
            let answer = client.simple(sql, b"")?;
            match answer.error() {
                None => break,
                Some(error) if is_passing(error.sqlstate()) && tried < 100 => (),
                Some(error) => {
                    bail!("{sql}: {} {} {:?}", error.sqlstate(), error.message(), error.get(b'D'))
                }
            }
        }
    }
    ends.store(true, Ordering::Relaxed);
    let mut done = 0;
    for writer in writers {
        done += writer.join().expect("a thread")?;
    }
    let mut read = 0;
    for reader in readers {
        read += reader.join().expect("a thread")?;
    }
    ensure!(done > 10 && read > 10, "{done} written, {read} read");
    ensure!(client.value("SELECT count(*) FROM moves")? == done.to_string());
    ensure!(client.value("SELECT sum(amount) FROM accounts")? == (ACCOUNTS * 100).to_string());
    Ok(())
}

#[test]
fn asynchronous_replication_begins_and_ends_by_it() -> Result<()> {
    let cluster = TestCluster::start_on(servers::durable(NODES)?)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE a (id int PRIMARY KEY, v text); INSERT INTO a SELECT g, 'v' FROM generate_series(1, 50) g")?;
    alter(&mut client, "ALTER TABLE a DISTRIBUTE BY REPLICATED ASYNC")?;
    let placed = placements(&mut client)?;
    ensure!(
        placed.iter().any(|it| it.starts_with("public.a ") && it.contains("async")),
        "{placed:?}"
    );
    let notices =
        alter(&mut client, "ALTER TABLE IF EXISTS missing DISTRIBUTE BY REPLICATED ASYNC")?;
    ensure!(notices.len() == 1, "{notices:?}");
    client.query("BEGIN")?;
    refused(&mut client, "ALTER TABLE a DISTRIBUTE BY REPLICATED", "25001")?;
    client.query("ROLLBACK")?;
    alter(&mut client, "ALTER TABLE IF EXISTS a DISTRIBUTE BY REPLICATED")?;
    ensure_placed(&mut client, "public.a", "replicated")?;
    ensure!(client.value("SELECT count(*) FROM a")? == "50");
    Ok(())
}

/// Rows that move get their generated columns anew. Where that would give other values than are stored, copies of a row
/// would differ, so nothing moves; and the auditor compares them.
#[test]
fn rows_do_not_move_where_generated_columns_would_change() -> Result<()> {
    let mut cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE TEXT SEARCH CONFIGURATION words (COPY = pg_catalog.simple);
         CREATE TABLE t (k int PRIMARY KEY, t text, g int GENERATED ALWAYS AS (k * 2) STORED,
             n numeric(8,2) GENERATED ALWAYS AS (k * 1.234) STORED, c char(5) GENERATED ALWAYS AS ('ab') STORED,
             ts tsvector GENERATED ALWAYS AS (to_tsvector('public.words', t)) STORED) DISTRIBUTE BY HASH (k);
         INSERT INTO t (k, t) SELECT n, 'running ' || n FROM generate_series(1, 30) n",
    )?;
    // They move where nothing has changed, to and fro.
    client.query("ALTER TABLE t DISTRIBUTE BY REPLICATED")?;
    client.query("ALTER TABLE t DISTRIBUTE BY HASH (k)")?;
    client.query(
        "ALTER TEXT SEARCH CONFIGURATION words ALTER MAPPING FOR asciiword WITH pg_catalog.english_stem",
    )?;
    let found = "SELECT count(*) FROM t WHERE ts @@ 'running'::tsquery";
    for by in ["REPLICATED", "HOME"] {
        let told = client.simple(&format!("ALTER TABLE t DISTRIBUTE BY {by}"), b"")?;
        let error = told.error().with_context(|| format!("{by}: rows moved"))?;
        ensure!(error.sqlstate() == "55000" && error.get(b'H').is_some(), "{by}: {error:?}");
        ensure!(client.value(found)? == "30", "{by}");
    }
    client.query("UPDATE t SET t = t")?;
    ensure!(client.value(found)? == "0");
    client.query("ALTER TABLE t DISTRIBUTE BY REPLICATED")?;
    for node in cluster.nodes() {
        ensure!(Client::connect(&node)?.value(found)? == "0");
    }
    // A copy that is of another mind.
    let mut second = Client::connect(&cluster.nodes()[1])?;
    second.query(
        "ALTER TEXT SEARCH CONFIGURATION words ALTER MAPPING FOR asciiword WITH pg_catalog.simple",
    )?;
    second.query("UPDATE t SET t = t WHERE k = 7")?;
    let report = cluster.audit()?;
    ensure!(report.findings.iter().any(|it| it.object == "public.t"), "{report}");
    cluster.leave_unaudited("a copy is wrong");
    cluster.stop_gateway()
}
