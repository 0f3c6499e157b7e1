//! Copies of replicated tables stay equal, whatever statement writes them and in whatever order rows
//! lie on a node.
//!
//! A generator makes writes whose result may depend on place, time, order and chance. Several sessions
//! run them concurrently, while the rows of some nodes are moved about physically. Afterwards the
//! nodes themselves are asked for their copies.
//!
//! `TUTTI_COPIES_SEED` repeats a run as far as the threads let it, `TUTTI_COPIES_STATEMENTS` makes it longer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_tests::agreement::differing_copies;
use tutti_tests::client::{Client, Endpoint, Flight, Request, text_arguments};
use tutti_tests::environment;
use tutti_tests::gateway::TestCluster;

const SEED: &str = "TUTTI_COPIES_SEED";
const STATEMENTS: &str = "TUTTI_COPIES_STATEMENTS";
const SESSIONS: u64 = 3;
/// Ends a statement that may be tried again, or that the data forbids.
const EXPECTED: [&str; 10] =
    ["40001", "40P01", "23505", "23503", "21000", "22003", "23514", "25P02", "23502", "22012"];

/// `d` is distributed, all others are replicated. Nothing is proven of `keyed_sum`, `@@@` and the trigger.
const SCHEMA: &str = "
CREATE TABLE src (id serial PRIMARY KEY, a int, f float8, t text) DISTRIBUTE BY REPLICATED;
CREATE TABLE k (id int PRIMARY KEY, a int, f float8, t text, at timestamptz DEFAULT now(),
    u uuid DEFAULT gen_random_uuid(), twice int GENERATED ALWAYS AS (a * 2) STORED)
    DISTRIBUTE BY REPLICATED;
CREATE TABLE b (a int, f float8, t text) DISTRIBUTE BY REPLICATED;
CREATE TABLE p (x int, y text, v numeric, PRIMARY KEY (y, x)) DISTRIBUTE BY REPLICATED;
CREATE TABLE own (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED;
CREATE TABLE parent (id int PRIMARY KEY, v float8) DISTRIBUTE BY REPLICATED;
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE, v text)
    DISTRIBUTE BY REPLICATED;
CREATE TABLE stamped (id int PRIMARY KEY, v text, at timestamptz, by_chance float8)
    DISTRIBUTE BY REPLICATED;
CREATE TABLE d (id int PRIMARY KEY, f float8) DISTRIBUTE BY HASH (id);
CREATE VIEW k_view AS SELECT id, a, f, t FROM k WHERE a IS NOT NULL;
CREATE FUNCTION keyed_sum() RETURNS float8 LANGUAGE sql STABLE AS 'SELECT sum(f) FROM src';
CREATE FUNCTION last_text(int) RETURNS text LANGUAGE sql STABLE
    AS 'SELECT t FROM src WHERE a = $1 LIMIT 1';
CREATE FUNCTION near(int, int) RETURNS boolean LANGUAGE sql STABLE
    AS 'SELECT $1 < $2 + (SELECT count(*)::int FROM src WHERE f < 1)';
CREATE OPERATOR @@@ (FUNCTION = near, LEFTARG = int, RIGHTARG = int);
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN NEW.at := clock_timestamp(); NEW.by_chance := random(); RETURN NEW; END';
CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON stamped FOR EACH ROW EXECUTE FUNCTION stamp();
INSERT INTO src (a, f, t) SELECT n % 7, n / 7.0, 't' || n FROM generate_series(1, 60) n;
INSERT INTO k (id, a, f, t) SELECT n, n % 5, n / 3.0, 'k' || n FROM generate_series(1, 40) n;
INSERT INTO b SELECT n % 4, n / 3.0, 'b' || n % 6 FROM generate_series(1, 40) n;
INSERT INTO p SELECT n, 'y' || n % 3, n FROM generate_series(1, 30) n;
INSERT INTO parent SELECT n, n / 3.0 FROM generate_series(1, 30) n;
INSERT INTO child SELECT n, 1 + n % 30, 'c' || n FROM generate_series(1, 60) n;
INSERT INTO stamped (id, v) SELECT n, 's' FROM generate_series(1, 20) n;
INSERT INTO own (v) SELECT 'o' || n FROM generate_series(1, 10) n;
INSERT INTO d SELECT n, n / 9.0 FROM generate_series(1, 40) n;
";

/// What rows are written with: `{n}` and `{m}` are small numbers.
const VALUES: &[&str] = &[
    "'plain {n}'",
    "random()::text",
    "(SELECT sum(f)::text FROM src WHERE a <> {m} % 7)",
    "(SELECT avg(f)::text FROM src)",
    "(SELECT string_agg(t, ',') FROM src WHERE a = {m} % 7)",
    "(SELECT array_agg(id)::text FROM src WHERE a = {m} % 7)",
    "(SELECT t FROM src WHERE a = {m} % 7 LIMIT 1)",
    "(SELECT DISTINCT ON (a) t FROM src WHERE a = {m} % 7)",
    "(SELECT max(f)::text FROM d)",
    "keyed_sum()::text",
    "last_text({m} % 7)",
    "coalesce(last_text({m} % 7), 'none')",
    "CASE WHEN 3 @@@ {m} THEN 'near' ELSE 'far' END",
    "inet_server_port()::text",
    "current_setting('port')",
    "pg_postmaster_start_time()::text",
    "clock_timestamp()::text",
    "now()::text",
    "gen_random_uuid()::text",
    "'k'::regclass::oid::text",
    "(SELECT min(ctid::text) FROM src)",
    "(SELECT xmin::text FROM src ORDER BY id LIMIT 1)",
    "nextval('src_id_seq')::text",
    "pg_backend_pid()::text",
    "(SELECT count(*)::text FROM src TABLESAMPLE BERNOULLI (50))",
];

/// Statements; `{v}` is one of [`VALUES`].
const WRITES: &[&str] = &[
    "UPDATE k SET t = {v} WHERE id = {n}",
    "UPDATE k SET t = {v}, a = a + 1 WHERE id BETWEEN {n} AND {n} + 3",
    "UPDATE k SET a = {m}, at = now() WHERE a = {m} % 5 RETURNING id, at = now()",
    "UPDATE k SET a = src.a, t = src.t, f = src.f FROM src WHERE src.a = k.a",
    "UPDATE k SET t = ctid::text WHERE id = {n}",
    "UPDATE k SET t = DEFAULT, at = DEFAULT, u = DEFAULT WHERE id = {n} RETURNING *",
    "UPDATE k SET (a, t) = (SELECT s.a, s.t FROM src s WHERE s.a = {m} % 7 LIMIT 1) WHERE id = {n}",
    "UPDATE k SET id = id + 1000 + (random() * 0)::int WHERE id = {n}",
    "UPDATE k SET id = id - 1000 WHERE id > 1000",
    "UPDATE k SET at = 'now' WHERE id = {n}",
    "UPDATE k_view SET t = {v} WHERE id = {n}",
    "DELETE FROM k WHERE id IN (SELECT id FROM k ORDER BY random() LIMIT 1)",
    "DELETE FROM k WHERE id = {n} RETURNING id, {v}",
    "INSERT INTO k (id, a, t) VALUES ({n}, {m}, {v}), ({n} + 1, {m}, 'next')",
    "INSERT INTO k (id, a, t) VALUES ({n}, {m}, {v}) ON CONFLICT DO NOTHING RETURNING *",
    "INSERT INTO k (id, a, t) VALUES ({n}, {m}, 'c') ON CONFLICT (id) DO UPDATE \
     SET t = excluded.t || {v}, a = k.a + 1 RETURNING id, xmax = 0, {v}",
    "INSERT INTO k (id, a, f, t) SELECT src.a, src.id, src.f, src.t FROM src ON CONFLICT DO NOTHING",
    "INSERT INTO k (id, a) SELECT 100 + id, f FROM d ORDER BY random() LIMIT 3 \
     ON CONFLICT (id) DO UPDATE SET t = random()::text",
    "INSERT INTO k_view (id, a, t) VALUES (200 + {n}, {m}, {v})",
    "MERGE INTO k USING (SELECT * FROM src WHERE a = {m} % 7) s ON s.id = k.id \
     WHEN MATCHED AND k.a > 2 THEN DELETE WHEN MATCHED THEN UPDATE SET t = {v} \
     WHEN NOT MATCHED THEN INSERT (id, a, t) VALUES (s.id, s.a, {v})",
    "MERGE INTO b USING (SELECT DISTINCT a FROM src) s ON s.a = b.a \
     WHEN MATCHED AND random() < 0.2 THEN DELETE WHEN MATCHED THEN UPDATE SET t = b.t || 'm'",
    "UPDATE b SET t = {v} WHERE a = {m} % 4",
    "UPDATE b SET f = f + 1 WHERE a = {m} % 4",
    "DELETE FROM b WHERE ctid = (SELECT min(ctid) FROM b)",
    "INSERT INTO b SELECT a, f, {v} FROM src ORDER BY random() LIMIT 2",
    "INSERT INTO b VALUES ({m} % 4, random(), {v})",
    "UPDATE p SET v = v / 3 + {m} WHERE y = 'y1'",
    "UPDATE p SET v = (SELECT sum(f) FROM src) WHERE x = {n} RETURNING *",
    "INSERT INTO p VALUES ({n}, 'y{m}', random()) ON CONFLICT (x, y) DO UPDATE SET v = excluded.v",
    "DELETE FROM p USING src WHERE src.a = p.x AND random() < 0.3",
    "INSERT INTO own (v) VALUES ({v}) RETURNING id",
    "INSERT INTO own (id, v) OVERRIDING SYSTEM VALUE VALUES (1000 + {n}, {v}) \
     ON CONFLICT (id) DO UPDATE SET v = random()::text",
    "UPDATE own SET v = {v} WHERE id = {n}",
    "DELETE FROM parent WHERE id = (SELECT id FROM parent ORDER BY random() LIMIT 1)",
    "INSERT INTO parent VALUES ({n}, (SELECT sum(f) FROM src)) ON CONFLICT (id) DO UPDATE SET v = random()",
    "UPDATE child SET v = {v}, parent = (SELECT id FROM parent LIMIT 1) WHERE id = {n}",
    "INSERT INTO child SELECT 100 + {n}, id, {v} FROM parent WHERE id = {m} ON CONFLICT DO NOTHING",
    "INSERT INTO stamped (id, v) VALUES ({n}, 'i') ON CONFLICT (id) DO UPDATE SET v = stamped.v || 'u'",
    "UPDATE stamped SET v = 'w' WHERE id < {n}",
    "DELETE FROM stamped WHERE id = {n}",
    "UPDATE src SET f = f + 0.1, t = 't{m}' WHERE id = {n}",
    "UPDATE src SET f = f * 1.01 WHERE a = {m} % 7",
    "INSERT INTO src (a, f, t) VALUES ({m} % 7, {n} / 7.0, {v})",
    "WITH gone AS (DELETE FROM b WHERE a = {m} % 4 RETURNING *) \
     INSERT INTO b SELECT a, f + 1, t || random() FROM gone",
    "WITH gone AS (DELETE FROM b WHERE a = {m} % 4 RETURNING *) INSERT INTO b SELECT a, f, t FROM gone",
    "WITH new AS (UPDATE k SET t = {v} WHERE id = {n} RETURNING id) SELECT id FROM new",
];

/// Moves rows about on one node, and changes none.
const SHUFFLES: &[&str] = &[
    "VACUUM FULL src",
    "CLUSTER src USING src_by_text",
    "CLUSTER k USING k_by_text",
    "VACUUM FULL b",
    "SET session_replication_role = replica; UPDATE src SET a = a WHERE random() < 0.5",
    "SET session_replication_role = replica; UPDATE b SET a = a WHERE random() < 0.5",
    "SET session_replication_role = replica; BEGIN; UPDATE k SET t = 'dead'; ROLLBACK",
];

fn any<'a>(rng: &mut StdRng, of: &[&'a str]) -> &'a str {
    of[rng.random_range(0..of.len())]
}

fn statement(rng: &mut StdRng) -> String {
    let (n, m) = (rng.random_range(1..40), rng.random_range(1..9));
    let mut text = any(rng, WRITES).to_owned();
    while text.contains("{v}") {
        text = text.replacen("{v}", any(rng, VALUES), 1);
    }
    text.replace("{n}", &n.to_string()).replace("{m}", &m.to_string())
}

/// Runs statements of one session, some in transactions. Returns how many took effect.
fn run_session(endpoint: &Endpoint, seed: u64, statements: u64) -> Result<usize> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut client = Client::connect(endpoint)?;
    let (mut done, mut strange) = (0, Vec::new());
    let mut run = |client: &mut Client, rng: &mut StdRng, sql: &str| -> Result<()> {
        let answer = match rng.random_bool(0.7) {
            true => client.simple(sql, b"")?,
            false => {
                let request = Request { sql, ..Request::default() };
                client.extended(&request, Flight::TwoFlights, b"")?
            }
        };
        match answer.error() {
            None => done += 1,
            Some(error) if EXPECTED.contains(&error.sqlstate()) => (),
            // Some of what reads distributed rows is refused.
            Some(error) if error.sqlstate() == "0A000" && sql.contains("FROM d)") => (),
            Some(error) => strange.push(format!("{sql}\n{error:?}")),
        }
        Ok(())
    };
    for _ in 0..statements {
        match rng.random_range(0..10) {
            0 | 1 => {
                let level = any(&mut rng, &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]);
                run(&mut client, &mut rng, &format!("BEGIN ISOLATION LEVEL {level}"))?;
                for _ in 0..rng.random_range(1..4) {
                    let sql = statement(&mut rng);
                    run(&mut client, &mut rng, &sql)?;
                }
                let end = any(&mut rng, &["COMMIT", "COMMIT", "ROLLBACK"]);
                run(&mut client, &mut rng, end)?;
            }
            2 => {
                let n: i32 = rng.random_range(1..40);
                let value = any(&mut rng, &["now", "today", "plain"]);
                let arguments = [text_arguments(&[Some(n.to_string()), Some(value.to_owned())])];
                let sql = match value {
                    "plain" => "UPDATE k SET t = $2 WHERE id = $1",
                    _ => "UPDATE k SET at = $2 WHERE id = $1",
                };
                let request = Request { sql, arguments: &arguments, ..Request::default() };
                client.extended(&request, Flight::OneFlight, b"")?;
            }
            _ => {
                let sql = statement(&mut rng);
                run(&mut client, &mut rng, &sql)?;
            }
        }
    }
    ensure!(strange.is_empty(), "{}", strange.join("\n\n"));
    Ok(done)
}

/// Moves rows about until told to stop.
fn shuffle(nodes: &[Endpoint], seed: u64, stop: &AtomicBool) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    while !stop.load(Ordering::Relaxed) {
        let node = &nodes[rng.random_range(0..nodes.len())];
        let mut client = Client::connect(node)?;
        // What others hold is not waited for: the gateway's deadlocks are not ours.
        client.query("SET lock_timeout = '100ms'")?;
        for statement in any(&mut rng, SHUFFLES).split("; ") {
            client.simple(statement, b"")?;
        }
        std::thread::sleep(std::time::Duration::from_millis(rng.random_range(5..60)));
    }
    Ok(())
}

/// What is no INSERT, UPDATE, DELETE or MERGE and writes rows all the same.
#[test]
fn copies_stay_equal_under_copy_and_ddl() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(SCHEMA)?;
    let copy = |client: &mut Client, sql: &str, data: &[u8]| -> Result<()> {
        let answer = client.simple(sql, data)?;
        ensure!(answer.error().is_none(), "{sql}: {answer}");
        Ok(())
    };
    copy(&mut client, "COPY stamped (id, v) FROM STDIN", b"101\ta\n102\tb\n")?;
    copy(&mut client, "COPY k (id, a) FROM STDIN WHERE a > random() * 0", b"101\t1\n102\t2\n")?;
    copy(&mut client, "COPY own (v) FROM STDIN", b"copied\n")?;
    ensure!(client.value("SELECT count(*) FROM stamped WHERE id > 100 AND at IS NOT NULL")? == "2");
    for statement in [
        "ALTER TABLE b ADD COLUMN c float8 DEFAULT random()",
        "ALTER TABLE p ADD COLUMN u uuid DEFAULT gen_random_uuid(), ADD COLUMN n serial",
        "ALTER TABLE b ALTER COLUMN f TYPE text USING f::text || random()",
        "ALTER TABLE stamped ADD COLUMN added timestamptz DEFAULT clock_timestamp()",
        "BEGIN; ALTER TABLE own ADD COLUMN r float8 DEFAULT random(); UPDATE own SET v = r::text; COMMIT",
        "BEGIN; DECLARE c CURSOR FOR SELECT * FROM k FOR UPDATE; FETCH c; \
         UPDATE k SET t = random()::text WHERE CURRENT OF c; COMMIT",
    ] {
        copy(&mut client, statement, b"")?;
    }
    client.query(
        "CREATE DOMAIN moment AS timestamptz;
CREATE TABLE timed (id int PRIMARY KEY, t text, at timestamptz, m moment, r tstzrange)
    DISTRIBUTE BY REPLICATED",
    )?;
    copy(&mut client, "COPY timed (id, t, at) FROM STDIN", b"1\tnow\t2020-01-01\n")?;
    copy(&mut client, "COPY timed (id, t, at) FROM STDIN", b"2\tx\tNow\n3\ty\tn\\ow\n")?;
    copy(&mut client, "COPY timed (id, at) FROM STDIN CSV", b"5,n\"o\"w\n")?;
    copy(&mut client, "COPY timed (id, m) FROM STDIN", b"6\tnow\n")?;
    copy(&mut client, "COPY timed (id, r) FROM STDIN", b"7\t[now,infinity)\n")?;
    copy(&mut client, "COPY timed (id, m) FROM STDIN", b"8\t\\x6eow\n9\t\\N\n")?;
    // Settings of the session's do not change what travels.
    client.query(
        "SET datestyle = 'SQL, DMY'; SET extra_float_digits = 0; SET intervalstyle = sql_standard",
    )?;
    client.query("SET timezone = 'Asia/Kolkata'; SET bytea_output = escape")?;
    client.query(
        "CREATE TABLE kinds (id int PRIMARY KEY, f float8, d date, ts timestamptz, i interval, y bytea, \
         r tstzrange, c box, j jsonb, a float8[], x xml, m money) DISTRIBUTE BY REPLICATED",
    )?;
    client.query(
        "INSERT INTO kinds SELECT n, random(), '2026-03-02'::date + n, clock_timestamp(), \
         '-1 mon +2 days -03:04:05.06'::interval * n, decode('00ff', 'hex'), \
         tstzrange(now(), now() + '1 day'), box(point(random(), 1), point(2, 3)), '{\"a\": [1, null]}', \
         ARRAY[random(), 'nan'], '<a>b</a>c', 12.34 FROM generate_series(1, 3) n ON CONFLICT DO NOTHING",
    )?;
    client.query(
        "UPDATE kinds SET f = f * (1 + random()), ts = ts + i, i = i * 2 WHERE random() < 2",
    )?;
    let differing = differing_copies(&cluster.nodes())?;
    ensure!(differing.is_empty(), "{}", differing.join("\n"));
    Ok(())
}

/// Statements that run when an action of a foreign key reaches `{t}`, or that it takes values of.
/// Nothing is proven of any.
const ACTION_CODE: &[&str] = &[
    "",
    "CREATE TRIGGER a BEFORE UPDATE ON {t} FOR EACH ROW EXECUTE FUNCTION by_chance()",
    "CREATE TRIGGER b BEFORE DELETE ON {t} FOR EACH ROW EXECUTE FUNCTION mostly()",
    "CREATE TRIGGER c AFTER UPDATE OR DELETE ON {t} FOR EACH ROW EXECUTE FUNCTION nothing()",
    "CREATE TRIGGER d BEFORE INSERT OR UPDATE ON {t} FOR EACH ROW WHEN (random() < 0.7) \
     EXECUTE FUNCTION stamped()",
    "ALTER TABLE {t} ADD COLUMN made text GENERATED ALWAYS AS (looked_up(up)) STORED",
    "ALTER TABLE {t} ADD COLUMN made int GENERATED ALWAYS AS (up * 2) STORED",
];

/// Defaults of the referring column.
const ACTION_DEFAULTS: &[&str] = &[
    "NULL",
    "3",
    "(1 + random() * 5)::int",
    "nextval('drawn')",
    "extract(second FROM clock_timestamp())::int % 5",
];

const ACTIONS: &[&str] = &["NO ACTION", "RESTRICT", "CASCADE", "SET NULL", "SET DEFAULT"];

/// Tables that refer to each other in a chain or a tree, to a primary key or to another.
fn family(rng: &mut StdRng, name: &str) -> Vec<String> {
    let mut made = Vec::new();
    let count = rng.random_range(2..5);
    for number in 0..count {
        let table = format!("{name}_{number}");
        let mut sql = format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, code int UNIQUE, v text, at timestamptz, up int DEFAULT {}",
            any(rng, ACTION_DEFAULTS)
        );
        if 0 < number {
            let parent = rng.random_range(0..number);
            let key = any(rng, &["id", "code"]);
            let (update, delete) = (any(rng, ACTIONS), any(rng, ACTIONS));
            sql += &format!(
                " REFERENCES {name}_{parent} ({key}) ON UPDATE {update} ON DELETE {delete}"
            );
        }
        made.push(format!("{sql}) DISTRIBUTE BY REPLICATED"));
        let code = any(rng, ACTION_CODE).replace("{t}", &table);
        if !code.is_empty() && (0 < number || rng.random_bool(0.3)) {
            made.push(code);
        }
        made.push(format!(
            "INSERT INTO {table} (id, code, v, up) SELECT n, n, 'v' || n, {} FROM generate_series(1, 30) n",
            if number == 0 { "NULL::int" } else { "n" }
        ));
    }
    if rng.random_bool(0.3) {
        let action = any(rng, ACTIONS);
        made.push(format!(
            "CREATE TABLE {name}_h (id int PRIMARY KEY, up int REFERENCES {name}_0 ON DELETE {action} \
             ON UPDATE {action}) DISTRIBUTE BY HASH (id)"
        ));
        made.push(format!("INSERT INTO {name}_h SELECT n, n FROM generate_series(1, 9) n"));
    }
    made
}

/// What foreign keys' actions write, through several tables, with code of all kinds on the way.
#[test]
fn copies_stay_equal_under_actions_of_foreign_keys() -> Result<()> {
    let seed = environment::number(SEED, rand::random());
    println!("{SEED}={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE SEQUENCE drawn;
CREATE FUNCTION by_chance() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN NEW.v := random()::text; RETURN NEW; END';
CREATE FUNCTION stamped() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN NEW.at := clock_timestamp(); RETURN NEW; END';
CREATE FUNCTION mostly() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN IF random() < 0.1 THEN RAISE ''by chance'' USING ERRCODE = ''23514''; END IF; RETURN OLD; END';
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE FUNCTION looked_up(int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN RETURN $1 || ''x''; END';",
    )?;
    const STATEMENTS: &[&str] = &[
        "DELETE FROM {t} WHERE id = {n}",
        "DELETE FROM {t} WHERE id BETWEEN {n} AND {n} + 2",
        "DELETE FROM {t} WHERE v = (SELECT v FROM {t} ORDER BY random() LIMIT 1)",
        "UPDATE {t} SET id = id + 100 WHERE id = {n}",
        "UPDATE {t} SET code = code + 100 WHERE id = {n}",
        "UPDATE {t} SET code = code + (random() * 50)::int + 100 WHERE id = {n}",
        "UPDATE {t} SET v = v || 'u' WHERE id = {n}",
        "UPDATE {t} SET v = random()::text WHERE id < {n} RETURNING id",
        "INSERT INTO {t} (id, code) VALUES ({n}, {n}) ON CONFLICT (id) DO UPDATE SET code = {t}.code + 200",
        "WITH gone AS (DELETE FROM {t} WHERE id = {n} RETURNING *) SELECT count(*) FROM gone",
        "MERGE INTO {t} USING (SELECT {n} AS id) s ON s.id = {t}.id WHEN MATCHED THEN DELETE",
        "MERGE INTO {t} USING (SELECT {n} AS id) s ON s.id = {t}.id \
         WHEN MATCHED THEN UPDATE SET code = {t}.code + 300",
    ];
    let (mut done, mut refused) = (0, 0);
    for round in 0..environment::number("TUTTI_COPIES_FAMILIES", 14) {
        let name = format!("f{round}");
        let schema = family(&mut rng, &name);
        for sql in &schema {
            let answer = client.simple(sql, b"")?;
            let allowed = ["0A000", "23503", "42P17"];
            let error = answer.error().filter(|error| !allowed.contains(&error.sqlstate()));
            ensure!(error.is_none(), "{sql}: {error:?}");
        }
        let mut told = String::new();
        for _ in 0..16 {
            let table = format!("{name}_{}", rng.random_range(0..2));
            let sql = any(&mut rng, STATEMENTS)
                .replace("{t}", &table)
                .replace("{n}", &rng.random_range(1..30).to_string());
            let answer = client.simple(&sql, b"")?;
            match answer.error() {
                None => done += 1,
                Some(error) if error.sqlstate() == "0A000" => refused += 1,
                Some(error) => ensure!(
                    EXPECTED.contains(&error.sqlstate()) || error.sqlstate() == "23001",
                    "{sql}: {error:?}\n{}",
                    schema.join(";\n")
                ),
            }
            told += &format!("{sql} -- {}\n", answer.error().map_or("done", |it| it.message()));
        }
        let differing = differing_copies(&cluster.nodes())?;
        ensure!(
            differing.is_empty(),
            "{SEED}={seed}\n{}\n{}\n{told}",
            differing.join("\n"),
            schema.join(";\n")
        );
    }
    println!("{done} statements took effect, {refused} were refused");
    ensure!(refused < done, "{refused} of {done} statements were refused");
    Ok(())
}

/// Triggers that are not the written table's own: of partitions, and of tables below views.
#[test]
fn copies_stay_equal_under_triggers_of_others() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE FUNCTION by_chance() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN NEW.v := random()::text; RETURN NEW; END';
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TABLE whole (id int PRIMARY KEY, v text) PARTITION BY RANGE (id) DISTRIBUTE BY REPLICATED;
CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (10);
CREATE TRIGGER c BEFORE INSERT OR UPDATE ON part FOR EACH ROW EXECUTE FUNCTION by_chance();
CREATE TABLE below (id int PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED;
CREATE TRIGGER c BEFORE INSERT OR UPDATE ON below FOR EACH ROW EXECUTE FUNCTION by_chance();
CREATE VIEW above AS SELECT id, v FROM below;
CREATE TABLE product (id int PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED;
CREATE TABLE sold (id int PRIMARY KEY, product int REFERENCES product) DISTRIBUTE BY HASH (id);
CREATE TRIGGER c BEFORE UPDATE ON product FOR EACH ROW EXECUTE FUNCTION by_chance();
CREATE TRIGGER n AFTER UPDATE ON product FOR EACH ROW EXECUTE FUNCTION nothing();
INSERT INTO whole VALUES (1, 'a'), (2, 'b');
UPDATE whole SET v = 'c' WHERE id = 1;
INSERT INTO above VALUES (1, 'a'), (2, 'b');
UPDATE above SET v = 'd' WHERE id = 1;
INSERT INTO product SELECT n, 'x' FROM generate_series(1, 9) n;
INSERT INTO sold SELECT n, n FROM generate_series(1, 5) n;
UPDATE product SET v = 'y' WHERE id < 7;",
    )?;
    let copied = client.simple("COPY whole FROM STDIN", b"3\tc\n4\td\n")?;
    ensure!(copied.error().is_none(), "{copied}");
    // Only the node of the row that refers to it knows.
    for referred in 1..=5 {
        let sql = format!("DELETE FROM product WHERE id = {referred}");
        let error = client.simple(&sql, b"")?.error().map(|error| error.sqlstate().to_owned());
        ensure!(error.as_deref() == Some("23503"), "{sql}: {error:?}");
        let sql = format!("UPDATE product SET id = 100 WHERE id = {referred}");
        ensure!(client.simple(&sql, b"")?.error().is_some(), "{sql}");
    }
    let differing = differing_copies(&cluster.nodes())?;
    ensure!(differing.is_empty(), "{}", differing.join("\n"));
    Ok(())
}

/// What looks as if it were the same everywhere.
#[test]
fn copies_stay_equal_under_what_only_seems_fixed() -> Result<()> {
    let mut cluster = TestCluster::start(3)?;
    // Its `DEFAULT 'now'` is a constant that each node has read at a moment of its own; node 1's counts.
    cluster.leave_unaudited("a default is another constant on each node");
    let nodes = cluster.nodes();
    // From here on the nodes give out different numbers.
    for (node, count) in nodes.iter().zip([0, 3, 7]) {
        let mut client = Client::connect(node)?;
        for number in 0..count {
            client
                .query(&format!("CREATE TYPE skip{number} AS (a int); DROP TYPE skip{number}"))?;
        }
    }
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE TYPE mood AS ENUM ('sad', 'fine');
CREATE DOMAIN moment AS timestamptz;
CREATE DOMAIN thing AS regclass;
",
    )?;
    // What says now when it is made is another time on each node.
    client.query(
        "CREATE TABLE made (id int PRIMARY KEY, at timestamptz DEFAULT 'now', t timestamp DEFAULT 'now')
    DISTRIBUTE BY REPLICATED;
CREATE VIEW moments AS SELECT 'now'::timestamptz AS at;
INSERT INTO made (id) VALUES (1);
INSERT INTO made (id, at) VALUES (2, DEFAULT);
INSERT INTO made (id) SELECT 3;
UPDATE made SET at = DEFAULT WHERE id = 1;
MERGE INTO made USING (SELECT 5 AS id) s ON s.id = made.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
UPDATE made SET t = (SELECT at FROM moments) WHERE id = 2;
CREATE DOMAIN making AS timestamptz DEFAULT 'now';
ALTER TABLE made ADD COLUMN m making",
    )?;
    let copied = client.simple("COPY made (id) FROM STDIN", b"4\n")?;
    ensure!(copied.error().is_none(), "{copied}");
    let differing = differing_copies(&nodes)?;
    ensure!(differing.is_empty(), "{}", differing.join("\n"));
    let statements = [
        "UPDATE said SET at = t::timestamptz WHERE id = 1",
        "UPDATE said SET at = CAST('n' || 'ow' AS timestamptz) WHERE id = 1",
        "UPDATE said SET at = t::moment WHERE id = 1",
        "UPDATE said SET at = 'now'::moment WHERE id = 1",
        "UPDATE said SET h = hashenum(m) WHERE id = 1",
        "UPDATE said SET h = hashenumextended(m, 1) WHERE id = 1",
        "UPDATE said SET h = hash_array(ARRAY[m]) WHERE id = 1",
        "UPDATE said SET h = hash_record(ROW(m, 1)) WHERE id = 1",
        "UPDATE said SET h = 'said'::thing::oid::bigint WHERE id = 1",
        "UPDATE said SET h = 'said'::regclass::oid::bigint WHERE id = 1",
        "UPDATE said SET h = 'mood'::regtype::oid::bigint WHERE id = 1",
        "INSERT INTO said (id, at) VALUES (20, ('no' || 'w')::timestamptz)",
        "INSERT INTO said (id, at) VALUES (21, 'now') ON CONFLICT (id) DO UPDATE SET at = said.t::moment",
        "INSERT INTO said (id, t) VALUES (1, 'now') ON CONFLICT (id) DO UPDATE SET at = said.t::moment",
        "INSERT INTO said (id, h) SELECT id + 30, hashenum(m) FROM said",
    ];
    let mut parted = Vec::new();
    for sql in statements {
        client.query(
            "DROP TABLE IF EXISTS said;
CREATE TABLE said (id int PRIMARY KEY, t text, at timestamptz, d date, m mood, h bigint)
    DISTRIBUTE BY REPLICATED;
INSERT INTO said SELECT n, 'now', NULL, NULL, 'fine', 0 FROM generate_series(1, 3) n;",
        )?;
        let answer = client.simple(sql, b"")?;
        ensure!(answer.error().is_none(), "{sql}: {answer}");
        if !differing_copies(&nodes)?.is_empty() {
            parted.push(sql);
        }
    }
    ensure!(parted.is_empty(), "{}", parted.join("\n"));
    Ok(())
}

/// A trigger, a default, a rule that is made while a write is on its way: whatever the write was planned
/// with, it is done with what the table has when it is locked.
#[test]
fn copies_stay_equal_beside_changes_of_their_tables() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE TABLE t (id int PRIMARY KEY, v text, r float8) DISTRIBUTE BY REPLICATED;
CREATE TABLE h (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id);
INSERT INTO h SELECT n, 'h' FROM generate_series(1, 9) n;
CREATE FUNCTION by_chance() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN NEW.r := random(); RETURN NEW; END';
CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN RAISE ''never''; RETURN NULL; END';",
    )?;
    const CHANGES: [(&str, &str); 3] = [
        (
            "CREATE TRIGGER c BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION by_chance()",
            "DROP TRIGGER c ON t",
        ),
        (
            "ALTER TABLE t ALTER COLUMN r SET DEFAULT random()",
            "ALTER TABLE t ALTER COLUMN r DROP DEFAULT",
        ),
        ("ALTER TABLE t ADD COLUMN more float8 DEFAULT random()", "ALTER TABLE t DROP COLUMN more"),
    ];
    // The first waits for the change's lock, the others read for a while before they write.
    const WRITES: [&str; 3] = [
        "UPDATE t SET v = 'w' WHERE id = 1",
        "INSERT INTO t (id, v) SELECT id + 100, v FROM h WHERE pg_sleep(0.2) IS NOT NULL",
        "UPDATE t SET v = (SELECT max(v) FROM h WHERE pg_sleep(0.1) IS NOT NULL)",
    ];
    for (change, undo) in CHANGES {
        for write in WRITES {
            client
                .query("DELETE FROM t; INSERT INTO t SELECT n, 't' FROM generate_series(1, 5) n")?;
            let waits = !write.contains("pg_sleep");
            let endpoint = cluster.endpoint();
            if waits {
                client.query("BEGIN")?;
                client.query(change)?;
            }
            let writer = std::thread::spawn(move || -> Result<Option<String>> {
                let answer = Client::connect(&endpoint)?.simple(write, b"")?;
                Ok(answer.error().map(|error| error.sqlstate().to_owned()))
            });
            std::thread::sleep(std::time::Duration::from_millis(150));
            client.query(if waits { "COMMIT" } else { change })?;
            let error = writer.join().expect("no panic")?;
            ensure!(error.as_deref().is_none_or(|state| state == "40001"), "{write}: {error:?}");
            let differing = differing_copies(&cluster.nodes())?;
            ensure!(differing.is_empty(), "{change}\n{write}\n{}", differing.join("\n"));
            client.query(undo)?;
        }
    }
    Ok(())
}

/// Code of which nothing is known runs on node 1, and what it leaves in the written table travels.
#[test]
fn copies_stay_equal_under_unseen_code() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE TABLE r (id int PRIMARY KEY, v int) DISTRIBUTE BY REPLICATED;
CREATE TABLE \"R 2\" (id int PRIMARY KEY, v int, up int REFERENCES r ON DELETE CASCADE) DISTRIBUTE BY REPLICATED;
CREATE TABLE other (id int PRIMARY KEY, v int) DISTRIBUTE BY REPLICATED;
CREATE TABLE h (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
CREATE TABLE l (id int PRIMARY KEY, v int) DISTRIBUTE BY HOME;
CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql AS
    $$DECLARE n int; BEGIN EXECUTE 'SELECT $1 + (random() * 1000)::int' INTO n USING $1; RETURN n; END$$;
CREATE FUNCTION own(int) RETURNS int LANGUAGE plpgsql AS
    $$BEGIN EXECUTE format('INSERT INTO r VALUES (%s, (random() * 1000)::int) ON CONFLICT DO NOTHING', $1 + 1000); RETURN 1; END$$;
CREATE FUNCTION catches(int) RETURNS int LANGUAGE plpgsql AS
    $$BEGIN EXECUTE 'UPDATE other SET v = 1'; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN RETURN 7; END$$;
CREATE FUNCTION writes(int) RETURNS int LANGUAGE plpgsql AS
    $$BEGIN EXECUTE 'INSERT INTO other VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET v = 0'; RETURN 1; END$$;
CREATE FUNCTION reads(int) RETURNS int LANGUAGE plpgsql AS
    $$DECLARE n int; BEGIN EXECUTE 'SELECT count(*) FROM h' INTO n; RETURN n; END$$;
CREATE FUNCTION home(int) RETURNS int LANGUAGE plpgsql AS
    $$DECLARE n int; BEGIN INSERT INTO l VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET v = l.v + 1 RETURNING v INTO n; RETURN n; END$$;
INSERT INTO r SELECT n, n FROM generate_series(1, 30) n;
INSERT INTO \"R 2\" SELECT n, n, n FROM generate_series(1, 30) n;
INSERT INTO other VALUES (1, 5);
INSERT INTO h SELECT n, n FROM generate_series(1, 30) n",
    )?;
    let statements = [
        "UPDATE {t} SET v = {f}(v) WHERE id < 4",
        "UPDATE {t} SET v = 0 WHERE {f}(id) > 3",
        "DELETE FROM {t} WHERE id = 5 AND {f}(id) IS NOT NULL",
        "INSERT INTO {t} (id, v) VALUES (40, {f}(1))",
        "INSERT INTO {t} (id, v) SELECT 50 + id, {f}(id) FROM other",
        "INSERT INTO {t} (id, v) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET v = {f}(2)",
        "UPDATE {t} SET v = 1 WHERE id = 2 RETURNING {f}(id)",
        "MERGE INTO {t} USING other o ON o.id = {t}.id WHEN MATCHED THEN UPDATE SET v = {f}(3)",
        "WITH w AS (UPDATE {t} SET v = {f}(4) WHERE id = 6 RETURNING *) SELECT count(*) FROM w",
    ];
    for table in ["r", "\"R 2\""] {
        for function in ["f", "own", "catches", "writes", "reads", "home"] {
            client.query(&format!("DELETE FROM {table} WHERE id >= 40"))?;
            for sql in statements {
                let sql = sql.replace("{t}", table).replace("{f}", function);
                let answer = client.simple(&sql, b"")?;
                let must_be_done = matches!(function, "f" | "home") && !sql.starts_with("INSERT");
                let must_be_refused =
                    matches!(function, "writes" | "reads") && !sql.contains("id = 5");
                let error = answer.error().map(|error| error.sqlstate().to_owned());
                match error.as_deref() {
                    None => ensure!(!must_be_refused, "{sql}: done"),
                    Some("0A000") => ensure!(!must_be_done, "{sql}: {answer}"),
                    Some(_) => ensure!(false, "{sql}: {answer}"),
                }
                let differing = differing_copies(&cluster.nodes())?;
                ensure!(differing.is_empty(), "{sql}\n{}", differing.join("\n"));
            }
        }
    }
    ensure!(client.value("SELECT v FROM other")? == "5");
    Ok(())
}

/// Rows without values, and triggers and domains that are in the way of rows that travel.
#[test]
fn what_postgresql_stores_is_stored() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE DOMAIN given AS int NOT NULL DEFAULT 5;
CREATE TABLE h (id int PRIMARY KEY, v given, w text) DISTRIBUTE BY HASH (id);
CREATE TABLE r (id int PRIMARY KEY, v given, at timestamptz DEFAULT clock_timestamp())
    DISTRIBUTE BY REPLICATED;
CREATE TABLE d (id serial PRIMARY KEY, v int DEFAULT 3) DISTRIBUTE BY REPLICATED;
CREATE TABLE e (id serial PRIMARY KEY, v int DEFAULT 3) DISTRIBUTE BY HASH (id);
CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.v := 99; RETURN NEW; END';
CREATE TRIGGER n BEFORE INSERT ON d FOR EACH ROW EXECUTE FUNCTION never();
ALTER TABLE d ENABLE REPLICA TRIGGER n;",
    )?;
    for table in ["h", "r"] {
        for sql in [
            "INSERT INTO {t} (id) VALUES (1)",
            "INSERT INTO {t} (id, v) VALUES (2, DEFAULT), (3, 5)",
            "INSERT INTO {t} (id) SELECT generate_series(4, 6)",
            "INSERT INTO {t} (id) VALUES (7) ON CONFLICT (id) DO NOTHING RETURNING v",
            "UPDATE {t} SET v = DEFAULT WHERE id = 1",
        ] {
            let sql = sql.replace("{t}", table);
            let answer = client.simple(&sql, b"")?;
            ensure!(answer.error().is_none(), "{sql}: {answer}");
        }
        let copied = client.simple(&format!("COPY {table} (id) FROM STDIN"), b"8\n9\n")?;
        ensure!(copied.error().is_none(), "{copied}");
        ensure!(client.value(&format!("SELECT count(*) FROM {table} WHERE v = 5"))? == "9");
        let null = client.simple(&format!("INSERT INTO {table} VALUES (10, NULL)"), b"")?;
        ensure!(null.error().is_some_and(|error| error.sqlstate() == "23502"), "{null}");
    }
    for table in ["d", "e"] {
        client.query(&format!("INSERT INTO {table} SELECT"))?;
        client.query(&format!("INSERT INTO {table} SELECT FROM generate_series(1, 3)"))?;
        client.query(&format!("INSERT INTO {table} (v) VALUES (3)"))?;
        ensure!(client.value(&format!("SELECT count(*) FROM {table} WHERE v = 3"))? == "5");
    }
    let differing = differing_copies(&cluster.nodes())?;
    ensure!(differing.is_empty(), "{}", differing.join("\n"));
    Ok(())
}

/// Settings by which a text means something else, and what is stored under them.
#[test]
fn whatever_a_session_reads_and_writes_texts_by_rows_travel_unchanged() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    let columns = "id int PRIMARY KEY, a text[], n int[], x xml, f float8, d date, i interval, b bytea, m money";
    client.query(&format!(
        "CREATE TABLE h ({columns}) DISTRIBUTE BY HASH (id);
CREATE TABLE r ({columns}) DISTRIBUTE BY REPLICATED;
CREATE TABLE l ({columns}) DISTRIBUTE BY HOME;
INSERT INTO l SELECT g, ARRAY['x', NULL, 'NULL'], ARRAY[g, NULL], ('<a>' || g || '</a>x')::xml, 1 / (g + 2.0)::float8,
    date '2021-01-02' + g, make_interval(-g, g, 0, -1, 2), decode(md5(g::text), 'hex'), g * 1234.5 * 1::money
    FROM generate_series(1, 30) AS g"
    ))?;
    for settings in [
        "array_nulls = off",
        "xmloption = document",
        "extra_float_digits = -10",
        "DateStyle = 'SQL, DMY'",
        "IntervalStyle = sql_standard",
        "bytea_output = escape",
    ] {
        client.query(&format!("SET {settings}"))?;
        for sql in [
            "INSERT INTO h SELECT * FROM l",
            "INSERT INTO r SELECT * FROM l ORDER BY random()",
            "INSERT INTO h SELECT id + 100, a, n, x, f, d, i, b, m FROM h",
            "UPDATE r SET f = f * 2 WHERE id IN (SELECT id FROM h WHERE random() < 2)",
            "UPDATE h SET id = id + 1000",
            "SELECT tutti_home('h')",
            "SELECT tutti_distribute('h', 'id')",
        ] {
            let answer = client.simple(sql, b"")?;
            ensure!(answer.error().is_none(), "{settings}, {sql}: {answer}");
        }
        let joined = "SELECT count(*) FROM h JOIN l ON h.id = l.id + 1000 AND h.a = l.a AND h.n = l.n
            AND h.x::text = l.x::text AND h.f = l.f AND h.d = l.d AND h.i = l.i AND h.b = l.b AND h.m = l.m";
        let stored =
            "SELECT count(*) FROM h JOIN r ON h.id = r.id + 1000 AND h.a = r.a AND h.n = r.n
            AND h.f * 2 = r.f AND r.a[2] IS NULL AND r.a[3] = 'NULL'";
        let nulls = "SELECT count(*) FROM h WHERE a[2] IS NULL AND a[3] = 'NULL' AND n[2] IS NULL";
        for (sql, count) in [(joined, "30"), (stored, "30"), (nulls, "60")] {
            let found = client.value(sql)?;
            ensure!(found == count, "{settings}: {found} instead of {count} of {sql}");
        }
        client.query("RESET ALL")?;
        let differing = differing_copies(&cluster.nodes())?;
        ensure!(differing.is_empty(), "{settings}: {}", differing.join("\n"));
        client.query("DELETE FROM h; DELETE FROM r")?;
    }
    Ok(())
}

#[test]
fn copies_stay_equal() -> Result<()> {
    let seed = environment::number(SEED, rand::random());
    let statements = environment::number(STATEMENTS, 120);
    println!("{SEED}={seed} {STATEMENTS}={statements}");
    let cluster = TestCluster::start(3)?;
    Client::connect(&cluster.endpoint())?.query(SCHEMA)?;
    for node in &cluster.nodes() {
        let sql = "CREATE INDEX src_by_text ON src (t); CREATE INDEX k_by_text ON k (t)";
        Client::connect(node)?.query(sql)?;
    }
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (endpoint, nodes) = (cluster.endpoint(), cluster.nodes());
    std::thread::scope(|scope| -> Result<()> {
        let shuffling = scope.spawn(|| shuffle(&nodes, seed, &stop));
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let (endpoint, done) = (&endpoint, &done);
                scope.spawn(move || -> Result<()> {
                    let effective = run_session(endpoint, seed ^ number, statements)?;
                    done.fetch_add(effective, Ordering::Relaxed);
                    Ok(())
                })
            })
            .collect();
        let ended: Vec<_> = sessions.into_iter().map(|it| it.join().expect("no panic")).collect();
        stop.store(true, Ordering::Relaxed);
        shuffling.join().expect("no panic")?;
        ended.into_iter().collect()
    })?;
    let differing = differing_copies(&nodes)?;
    ensure!(differing.is_empty(), "{SEED}={seed}\n{}", differing.join("\n"));
    let done = done.into_inner();
    println!("{done} statements took effect");
    ensure!(done > 100, "only {done} statements took effect");
    Ok(())
}
