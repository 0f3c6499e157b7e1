//! Rows on their way between nodes: no one else sees them, no user-defined code runs on them, and they
//! arrive as they were.

use anyhow::{Context, Result, ensure};
use tutti_gateway::{Config, DefaultDistribution, Switches};
use tutti_tests::client::{Client, Flight, Request};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

fn start() -> Result<TestCluster> {
    let servers = servers::start(3)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    Client::connect(&cluster.endpoint())?.query(
        "CREATE ROLE mallory LOGIN; CREATE ROLE app LOGIN;
         CREATE SCHEMA mal AUTHORIZATION mallory; GRANT ALL ON SCHEMA public TO app",
    )?;
    Ok(cluster)
}

fn is_superuser(cluster: &TestCluster, role: &str) -> Result<bool> {
    for node in cluster.nodes() {
        let sql = format!("SELECT count(*) FROM pg_roles WHERE rolname = '{role}' AND rolsuper");
        if Client::connect(&node)?.value(&sql)? != "0" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What of another session of the role shows a value that only rows have.
fn shown(spy: &mut Client, secret: &str) -> Result<Vec<Vec<Option<String>>>> {
    let (head, tail) = secret.split_at(4);
    spy.query(&format!(
        "SELECT query FROM pg_stat_activity WHERE query LIKE '%{head}' || '{tail}%' AND pid <> pg_backend_pid()"
    ))
}

#[test]
fn rows_are_part_of_no_text_that_others_see() -> Result<()> {
    let cluster = start()?;
    let mut app = Client::connect_as(&cluster.endpoint(), "app")?;
    app.query(
        "CREATE TABLE docs (id int PRIMARY KEY, tags text[], secret text) DISTRIBUTE BY HASH (id);
         CREATE TABLE plain (id int PRIMARY KEY, secret text) DISTRIBUTE BY HASH (id);
         CREATE TABLE words (word text PRIMARY KEY, id int) DISTRIBUTE BY HASH (word);
         CREATE TABLE others (secret text, id int) DISTRIBUTE BY HASH (secret);
         CREATE TABLE copies (id int PRIMARY KEY, secret text) DISTRIBUTE BY REPLICATED",
    )?;
    for table in ["docs (id, secret)", "plain (id, secret)"] {
        app.query(&format!(
            "INSERT INTO {table} SELECT g, chr(83) || 'ECRET' || g FROM generate_series(1, 9) g"
        ))?;
    }
    app.query("INSERT INTO words SELECT 'w' || g, g FROM generate_series(1, 9) g")?;
    let mut spies: Vec<_> = cluster
        .nodes()
        .iter()
        .map(|node| Client::connect_as(node, "app"))
        .collect::<Result<_>>()?;
    spies.push(Client::connect_as(&cluster.endpoint(), "app")?);
    for sql in [
        "SELECT count(*), min(d.secret) FROM docs d JOIN words w ON w.id = d.id AND w.word > ''",
        "SELECT count(*), min(d.secret) FROM plain d JOIN words w ON w.id = d.id AND w.word > ''",
        "INSERT INTO others SELECT secret, id FROM docs",
        "INSERT INTO copies SELECT id, secret FROM plain",
        "UPDATE plain SET id = id + 100",
        "DECLARE c CURSOR FOR SELECT max(d.secret) FROM plain d JOIN words w ON w.id + 100 = d.id",
        "COPY (SELECT d.secret FROM docs d JOIN words w ON w.id = d.id ORDER BY 1) TO STDOUT",
        "COPY (SELECT d.secret FROM plain d JOIN words w ON w.id + 100 = d.id ORDER BY 1) TO STDOUT",
        "CREATE TABLE made AS SELECT d.secret FROM docs d JOIN words w ON w.id = d.id",
        "SELECT tutti_replicate('plain')",
        "SELECT tutti_replicate('docs')",
    ] {
        app.query("BEGIN")?;
        if sql.contains("tutti_") {
            // Only who may turn triggers off moves rows.
            app.query("ROLLBACK")?;
            app = Client::connect(&cluster.endpoint())?;
            app.query("BEGIN")?;
        }
        let answer = app.simple(sql, b"")?;
        ensure!(answer.error().is_none(), "{sql}: {:?}", answer.error());
        for spy in &mut spies {
            let found = shown(spy, "SECRET")?;
            ensure!(found.is_empty(), "{sql}: {found:?}");
        }
        app.query("ROLLBACK")?;
    }
    Ok(())
}

#[test]
fn nobodys_cast_is_called_by_rows() -> Result<()> {
    let cluster = start()?;
    let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
    mallory.query(
        "CREATE TABLE mal.ct (id int PRIMARY KEY, k text, tags text[]) DISTRIBUTE BY HASH (id);
         INSERT INTO mal.ct SELECT g, 'k' || g, ARRAY['a', NULL] FROM generate_series(1, 9) g;
         CREATE FUNCTION mal.become() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
             IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
                 EXECUTE 'ALTER ' || 'ROLE mallory SUPERUSER'; END IF; END $$;
         CREATE FUNCTION mal.to_text(mal.ct) RETURNS text LANGUAGE plpgsql AS
             $$ BEGIN PERFORM mal.become(); RETURN '(' || $1.id || ',,)'; END $$;
         CREATE FUNCTION mal.of_text(text) RETURNS mal.ct[] LANGUAGE plpgsql AS
             $$ BEGIN PERFORM mal.become(); RETURN '{}'::mal.ct[]; END $$;
         CREATE CAST (mal.ct AS text) WITH FUNCTION mal.to_text(mal.ct) AS ASSIGNMENT;
         CREATE CAST (text AS mal.ct[]) WITH FUNCTION mal.of_text(text) AS ASSIGNMENT",
    )?;
    let mut boss = Client::connect(&cluster.endpoint())?;
    for (sql, expected) in [
        ("SELECT count(*) FROM mal.ct a JOIN mal.ct b ON a.k = b.k", "9"),
        ("SELECT count(*) FROM mal.ct a JOIN mal.ct b ON a.tags[1] = b.tags[1]", "81"),
        ("SELECT count(*) FROM (SELECT tutti_distribute('mal.ct', 'k')) x", "1"),
        ("SELECT count(*) FROM mal.ct WHERE tags[2] IS NULL AND k = 'k' || id", "9"),
        ("SELECT count(*) FROM (SELECT tutti_replicate('mal.ct')) x", "1"),
        ("SELECT count(*) FROM mal.ct WHERE tags[1] = 'a' AND k = 'k' || id", "9"),
    ] {
        let sql = sql.replace("count(*) FROM (SELECT tutti_", "tutti_").replace(") x", "");
        let answer = boss.simple(&sql, b"")?;
        // Where there is such a cast it may also be refused.
        let found = answer.texts().first().and_then(|row| row[0].clone());
        let is_refused = answer.error().is_some_and(|error| error.sqlstate() == "0A000");
        ensure!(
            is_refused || found.as_deref() == Some(expected) || sql.contains("tutti_"),
            "{sql}: {answer:?}"
        );
        ensure!(!is_superuser(&cluster, "mallory")?, "{sql}");
    }
    Ok(())
}

/// Stored by the owner: what storing a row computes is the owner's, and has no more rights.
#[test]
fn rows_that_move_are_stored_by_the_tables_owner() -> Result<()> {
    let cluster = start()?;
    let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
    mallory.query(
        "CREATE TABLE mal.t (id int PRIMARY KEY, v text CHECK (current_user = 'mallory'), w int
             GENERATED ALWAYS AS (id + 1) STORED, tags text[]);
         INSERT INTO mal.t (id, v, tags) SELECT g, E'a\\\\b\"c', ARRAY['x', NULL] FROM generate_series(1, 700) g;
         ALTER TABLE mal.t ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON mal.t USING (id < 3)",
    )?;
    let mut boss = Client::connect(&cluster.endpoint())?;
    let sum = "SELECT count(*) || ' ' || sum(w) || ' ' || count(DISTINCT v) || ' ' || count(tags[1]) FROM mal.t";
    let before = boss.value(sum)?;
    for how in [
        "tutti_distribute('mal.t', 'id')",
        "tutti_replicate('mal.t')",
        "tutti_distribute('mal.t', 'id')",
        "tutti_home('mal.t')",
    ] {
        boss.query(&format!("SELECT {how}"))?;
        ensure!(boss.value(sum)? == before, "{how}: {} {before}", boss.value(sum)?);
        ensure!(boss.value("SELECT current_user")? == "postgres");
    }
    for node in cluster.nodes() {
        let left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'work!_%' ESCAPE '!'";
        ensure!(Client::connect(&node)?.value(left)? == "0");
    }
    boss.query("ALTER TABLE mal.t FORCE ROW LEVEL SECURITY")?;
    let refused = boss.simple("SELECT tutti_distribute('mal.t', 'id')", b"")?;
    ensure!(refused.error().is_some_and(|error| error.sqlstate() == "0A000"), "{refused:?}");
    ensure!(boss.value(sum)? == before);
    Ok(())
}

/// Code that has read a part of a table cannot hide it by overwriting what was noted before.
#[test]
fn what_code_has_touched_is_not_to_be_overwritten() -> Result<()> {
    let cluster = start()?;
    let mut app = Client::connect_as(&cluster.endpoint(), "app")?;
    app.query(
        "CREATE TABLE parts (id int PRIMARY KEY) DISTRIBUTE BY HASH (id);
         INSERT INTO parts SELECT g FROM generate_series(1, 90) g",
    )?;
    for forging in [
        "PERFORM set_config('tutti.mark', '{}', true)",
        "PERFORM set_config('tutti.mark', mark, true)",
        "PERFORM tutti.mark(true, NULL, '')",
        "PERFORM set_config('tutti.mark', left(mark, 65) || '{}', true)",
        "NULL",
    ] {
        app.query(&format!(
            "CREATE OR REPLACE FUNCTION hides() RETURNS bigint LANGUAGE plpgsql AS $$
             DECLARE mark text := current_setting('tutti.mark', true); found bigint;
             BEGIN EXECUTE 'SELECT count(*) FROM pa' || 'rts' INTO found; {forging}; RETURN found; END $$"
        ))?;
        let answer = app.simple("SELECT hides()", b"")?;
        let error = answer.error().with_context(|| format!("{forging}: {answer:?}"))?;
        ensure!(error.sqlstate() == "0A000", "{forging}: {error:?}");
    }
    // Honest code is reported as usual.
    app.query(
        "CREATE FUNCTION honest() RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SELECT 1'; RETURN 7; END $$",
    )?;
    ensure!(app.value("SELECT honest()")? == "7");
    Ok(())
}

/// Values of every kind, written and read under settings that would change them, by every way rows go.
#[test]
fn rows_arrive_bit_for_bit() -> Result<()> {
    let cluster = start()?;
    let plain = servers::start(1)?;
    let mut here = Client::connect(&cluster.endpoint())?;
    let mut there = Client::connect(&servers::endpoint(&plain, 0))?;
    let types = "CREATE TYPE mood AS ENUM ('sad', 'not, \"so\" sad'); CREATE DOMAIN small AS int CHECK (value < 100);
        CREATE TYPE pair AS (a int, b text)";
    let columns = "k int, f8 float8, f4 float4, b bytea, i interval, tz timestamptz, x xml, a text[], aa int[],
        p pair, r numrange, mr int4multirange, s small, m mood, c \"char\", bp char(5), vb bit varying(9),
        j json, jb jsonb, mo money, pt point, bo box, tq tsquery, tv tsvector, ip inet, nu numeric, t text";
    let rows = [
        "1, 'NaN', '-Infinity', '\\x00ff5c27', '1 mon -3 days 04:05:06.789', '2024-07-01 12:00+05:30',
         '<a>x</a>', ARRAY['NULL', NULL, 'a,b', '\"', '\\'], ARRAY[[1,2],[NULL,4]], ROW(NULL, 'a \"(b)\\'),
         '[1.10,2)', '{[1,3),[5,7)}', 7, 'not, \"so\" sad', 'ü'::text::bytea::text::\"char\", 'ab', B'101',
         '{\"b\": 1, \"a\": [1.10]}', '{\"b\": 1.10}', 12.34, '(1.5,2)', '(1,2),(3,4)', '''a'' & b', 'a:1 b:2',
         '::1/64', 1.10, E'it''s \\n ü'",
        "2, '-0', 1e-45, '', '-1 year', '0044-03-15 12:00:00+00 BC', NULL, '{}', NULL, NULL, 'empty', '{}', NULL,
         'sad', '', '', B'', 'null', 'null', -0.01, NULL, NULL, '', '', NULL, 'NaN', ''",
        "3, 0.1::float8 + 0.2, 0.1, '\\x5c5c', '0', 'infinity', 'text only', ARRAY[''], '[2:3]={1,2}', ROW(1, ''),
         '(,)', '{(,)}', 99, NULL, NULL, NULL, NULL, '[]', '\"x\"', NULL, '(-0,NaN)', NULL, NULL, NULL, NULL,
         100000000000000000000.00, NULL",
    ];
    for client in [&mut here, &mut there] {
        client.query(types)?;
    }
    for table in ["v", "w"] {
        let create = format!("CREATE TABLE {table} ({columns})");
        let by = if table == "v" { "HASH (k)" } else { "HASH (t)" };
        here.query(&format!("{create} DISTRIBUTE BY {by}"))?;
        there.query(&create)?;
    }
    for row in rows {
        let row = row.replace("'ü'::text::bytea::text::\"char\"", "'x'");
        for client in [&mut here, &mut there] {
            client.query(&format!("INSERT INTO v VALUES ({row})"))?;
        }
    }
    let odd = "SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Kolkata'; SET IntervalStyle = sql_standard;
        SET extra_float_digits = -15; SET bytea_output = escape; SET array_nulls = off; SET xmloption = document;
        SET lc_monetary = 'C'; SET quote_all_identifiers = on; SET row_security = on";
    for client in [&mut here, &mut there] {
        client.query(odd)?;
    }
    let statements = [
        "INSERT INTO w SELECT * FROM v",
        "UPDATE v SET k = k + 100",
        "INSERT INTO w SELECT a.* FROM v a JOIN w b ON a.k = b.k + 100 AND a.nu::text = b.nu::text",
        "CREATE TABLE z AS SELECT a.* FROM v a JOIN w b ON a.k = b.k",
    ];
    for sql in statements {
        let (one, other) = (here.simple(sql, b"")?, there.simple(sql, b"")?);
        ensure!(one.error() == other.error(), "{sql}: {:?} {:?}", one.error(), other.error());
    }
    let calm = "RESET ALL; SET extra_float_digits = 3; SET bytea_output = hex; SET TimeZone = UTC";
    for client in [&mut here, &mut there] {
        client.query(calm)?;
    }
    for table in ["v", "w", "z"] {
        for sql in [
            format!("SELECT * FROM {table} t ORDER BY k, t::text"),
            format!(
                "SELECT q.* FROM {table} q JOIN v y ON y.k = q.k OR y.k = q.k + 100 ORDER BY q.k, q::text"
            ),
        ] {
            let (one, other) = (here.query(&sql)?, there.query(&sql)?);
            ensure!(one == other, "{sql}:\n{one:?}\n{other:?}");
        }
        // As binary, too.
        let sql =
            format!("SELECT f8, f4, b, i, tz, a, aa, nu, t FROM {table} q ORDER BY k, q::text");
        let request = Request { sql: &sql, ..Request::default() };
        let one = here.extended(&request, Flight::TwoFlights, b"")?;
        let other = there.extended(&request, Flight::TwoFlights, b"")?;
        ensure!(one.texts() == other.texts(), "{sql}");
    }
    Ok(())
}

/// Its rows are inserted as they come.
const PORTIONS: &str = "INSERT INTO other SELECT g, pad, b FROM wide";

/// More rows than may travel are refused by every way they go, by the limit's name, and what is just below
/// arrives; the session goes on.
#[test]
fn more_than_may_travel_is_refused() -> Result<()> {
    let servers = servers::start(3)?;
    let config = config(&servers, String::new());
    let switches = Switches { travelling_bytes_max: 1 << 20, ..config.switches };
    let default_distribution = DefaultDistribution::Home;
    let cluster = TestCluster::start_configured(
        servers,
        Config { switches, default_distribution, ..config },
    )?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE TABLE wide (k int PRIMARY KEY, g int, pad text, b bytea) DISTRIBUTE BY HASH (k);
         CREATE TABLE other (g int, pad text, b bytea) DISTRIBUTE BY HASH (g);
         CREATE TABLE copies (k int PRIMARY KEY, pad text) DISTRIBUTE BY REPLICATED;
         CREATE TABLE source (k int, pad text)",
    )?;
    for (what, rows, pad) in [("many rows", 6_000, 600), ("one value", 3, 3_000_000)] {
        client.query("TRUNCATE wide, other, copies, source")?;
        // From the client, which is no travelling of ours.
        let pad = "x\"".repeat(pad / 2);
        let data: String = (0..rows).map(|k| format!("{k}\t{}\t{pad}\t\\N\n", k % 7)).collect();
        let copied = client.simple("COPY wide FROM STDIN", data.as_bytes())?;
        ensure!(copied.error().is_none(), "{copied}");
        client.query(
            "INSERT INTO source SELECT g, repeat('z', 3000) FROM generate_series(1, 900) g",
        )?;
        let count = "SELECT count(*), sum(k), sum(g) FROM wide";
        let before = client.query(count)?;
        for sql in [
            "SELECT count(*) FROM wide a JOIN wide b ON a.g = b.g AND a.pad = b.pad",
            "SELECT count(*) FROM (SELECT pad FROM wide UNION ALL SELECT pad FROM wide WHERE pad > '' LIMIT 50) q WHERE pad > ''",
            PORTIONS,
            "INSERT INTO other SELECT g, pad, b FROM wide RETURNING g",
            "INSERT INTO copies SELECT k, pad FROM wide",
            "INSERT INTO copies SELECT k, pad || left(random()::text, 0) FROM source",
            "UPDATE wide SET k = k + 1000000",
            "COPY (SELECT a.pad FROM wide a JOIN wide b ON a.pad = b.pad AND a.g = b.g) TO STDOUT",
            "CREATE TABLE made AS SELECT a.pad FROM wide a JOIN wide b ON a.pad = b.pad AND a.g = b.g",
        ] {
            let answer = client.simple(sql, b"")?;
            // What each node can do for its own part need not travel.
            if let Some(error) = answer.error() {
                ensure!(error.sqlstate() == "54000", "{what}: {sql}: {answer}");
                let detail = error.get(b'D').unwrap_or_default();
                ensure!(detail.contains("1 MiB"), "{what}: {sql}: {answer}");
            } else {
                // And what goes in portions is never together.
                let is_in_portions = what == "many rows" && sql == PORTIONS;
                ensure!(
                    sql.starts_with("SELECT") || sql.starts_with("UPDATE") || is_in_portions,
                    "{what}: {sql}: {answer}"
                );
                if is_in_portions {
                    client.query("TRUNCATE other")?;
                }
            }
            ensure!(answer.status == b'I', "{what}: {sql}: {answer}");
            if sql.starts_with("UPDATE") && answer.error().is_none() {
                // No node had more to be told than it can be.
                client.query("UPDATE wide SET k = k - 1000000")?;
            }
            let now = client.query(count)?;
            ensure!(now == before, "{what}: {sql}: {now:?} {before:?}");
        }
        // What a client asks for bit by bit waits, however much it is.
        for sql in ["SELECT k, pad FROM wide", "UPDATE wide SET g = g + 1 RETURNING k, pad, b"] {
            let request = Request { sql, types: &[], arguments: &[], row_limit: 5 };
            let answer = client.extended(&request, Flight::TwoFlights, b"")?;
            ensure!(answer.error().is_none(), "{what}: {sql}: {answer}");
            if sql.starts_with("UPDATE") {
                client.query("UPDATE wide SET g = g - 1")?;
            }
            let now = client.query(count)?;
            ensure!(now == before, "{what}: {sql}: {now:?} {before:?}");
        }
        let nothing = "SELECT (SELECT count(*) FROM other) + (SELECT count(*) FROM copies)";
        ensure!(client.value(nothing)? == "0", "{what}");
        // In a transaction, of which the rest is undone as ever.
        client.query("BEGIN; DELETE FROM wide WHERE k = 0")?;
        let refused =
            client.simple("INSERT INTO other SELECT g, pad, b FROM wide RETURNING g", b"")?;
        ensure!(refused.error().is_some_and(|error| error.sqlstate() == "54000"), "{refused}");
        client.query("ROLLBACK")?;
        ensure!(client.query(count)? == before, "{what}");
    }
    // What is below it goes as ever.
    client.query("DELETE FROM wide WHERE k > 0; UPDATE wide SET pad = repeat('q', 400000)")?;
    client.query("INSERT INTO other SELECT g, pad, b FROM wide")?;
    ensure!(
        client.value("SELECT count(*) FROM wide a JOIN other b ON a.pad = b.pad AND a.k = b.g")?
            == "1"
    );
    Ok(())
}

/// Types that run the owner's code when a value is made, by what lies between the column and the check; and
/// the same with a check of PostgreSQL's own, whose rows go as ever.
const CHECKED: [(&str, &str); 14] = [
    ("domain", "mal.checked"),
    ("over_domain", "mal.checked_twice"),
    ("array", "mal.checked[]"),
    ("over_array", "mal.list"),
    ("composite", "mal.pair"),
    ("nested", "mal.pair_of_pair"),
    ("array_of_composite", "mal.pair[]"),
    ("over_composite", "mal.checked_pair"),
    ("range_of_domain", "mal.span"),
    ("multirange", "mal.spans"),
    ("array_of_ranges", "mal.span[]"),
    ("over_range", "mal.checked_span"),
    ("row", "mal.holder"),
    ("not_null", "mal.named"),
];

fn make_checked(check: &str) -> String {
    format!(
        "CREATE DOMAIN mal.checked AS int CHECK ({check});
         CREATE DOMAIN mal.checked_twice AS mal.checked;
         CREATE DOMAIN mal.list AS mal.checked[];
         CREATE TYPE mal.pair AS (a mal.checked, b text);
         CREATE TYPE mal.pair_of_pair AS (a text, b mal.pair);
         CREATE DOMAIN mal.checked_pair AS mal.pair CHECK ((value).a > 0);
         CREATE TYPE mal.span AS RANGE (subtype = mal.checked, multirange_type_name = mal.spans);
         CREATE DOMAIN mal.checked_span AS mal.span;
         CREATE TABLE mal.holder (a mal.checked) DISTRIBUTE BY REPLICATED;
         CREATE DOMAIN mal.named AS mal.checked NOT NULL"
    )
}

/// Reads by which rows are brought to one node, as a reader of all of them may ask.
const READS: [&str; 16] = [
    "SELECT count(*) FROM mal.t a JOIN mal.t b ON a.k = b.k",
    "SELECT a.x FROM mal.t a JOIN mal.t b ON a.k = b.k",
    "SELECT a FROM mal.t a JOIN others o ON a.k = o.id",
    "SELECT array_agg(x ORDER BY id) FROM mal.t",
    "SELECT k, max(id), count(x) FROM mal.t GROUP BY k ORDER BY k",
    "SELECT x, row_number() OVER (ORDER BY k) FROM mal.t",
    "SELECT x FROM mal.t ORDER BY k LIMIT 1",
    "SELECT (SELECT x FROM mal.t t WHERE t.id = o.id) FROM others o ORDER BY id",
    "COPY (SELECT a.x FROM mal.t a JOIN mal.t b ON a.k = b.k) TO STDOUT",
    "INSERT INTO others SELECT 100 + a.id, max(a.k) FROM mal.t a JOIN mal.t b ON a.k = b.k GROUP BY 1",
    "UPDATE others o SET v = a.k FROM mal.t a WHERE a.k = o.v",
    "DELETE FROM others o USING mal.t a WHERE a.k = o.v AND a.x IS NULL",
    "CREATE TABLE made AS SELECT a.x FROM mal.t a JOIN mal.t b ON a.k = b.k",
    "BEGIN; DECLARE c CURSOR FOR SELECT a.x FROM mal.t a JOIN mal.t b ON a.k = b.k; FETCH ALL FROM c",
    "PREPARE p AS SELECT a.x FROM mal.t a JOIN mal.t b ON a.k = b.k; EXECUTE p; DEALLOCATE p",
    "EXPLAIN ANALYZE SELECT a.x FROM mal.t a JOIN mal.t b ON a.k = b.k",
];

/// Reading rows runs no code of their types' owners: not even by a declaration of the owner.
#[test]
fn nobody_checks_the_values_that_others_have_stored() -> Result<()> {
    let cluster = start()?;
    let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
    let mut boss = Client::connect(&cluster.endpoint())?;
    boss.query(
        "CREATE TABLE others (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO others SELECT g, g FROM generate_series(1, 6) g; GRANT SELECT ON others TO mallory",
    )?;
    mallory.query(
        "CREATE FUNCTION mal.become() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
             IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
                 EXECUTE 'ALTER ' || 'ROLE mallory SUPERUSER'; END IF; END $$;
         CREATE FUNCTION mal.check_value(v int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
             IF current_user <> 'mallory' THEN RAISE NOTICE 'SEEN %', current_user; PERFORM mal.become(); END IF;
             RETURN true; END $$;
         CREATE FUNCTION mal.harmless(v int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
             RAISE NOTICE 'SEEN %', current_user; RETURN true; END $$;
         SELECT tutti_function('mal.become', 'replicated');
         SELECT tutti_function('mal.check_value', 'replicated')",
    )?;
    let checks =
        [("mal.check_value(value)", true), ("mal.harmless(value)", true), ("value > 0", false)];
    for (check, is_code) in checks {
        mallory.query(&make_checked(check))?;
        for (kind, of) in CHECKED {
            // What cannot do any harm is refused by the same rule.
            if check.contains("harmless") && !["domain", "nested"].contains(&kind) {
                continue;
            }
            let value = match kind {
                "domain" | "over_domain" | "not_null" => "1",
                "array" | "over_array" => "'{1,2}'",
                "composite" | "over_composite" => "'(1,b)'",
                "nested" => "'(a,\"(1,b)\")'",
                "array_of_composite" => "'{\"(1,b)\"}'",
                "range_of_domain" | "over_range" => "'[1,5)'",
                "multirange" => "'{[1,5)}'",
                "array_of_ranges" => "'{\"[1,5)\"}'",
                _ => "'(1)'",
            };
            mallory.query(&format!(
                "CREATE TABLE mal.t (id int PRIMARY KEY, k int, x {of}) DISTRIBUTE BY HASH (id);
                 INSERT INTO mal.t SELECT g, g % 3, {value} FROM generate_series(1, 6) g"
            ))?;
            for sql in READS {
                for flight in [None, Some(Flight::OneFlight)] {
                    if flight.is_some() && sql.contains(';') {
                        continue;
                    }
                    let answer = match flight {
                        None => boss.simple(sql, b"")?,
                        Some(flight) => {
                            let request = Request { sql, ..Request::default() };
                            boss.extended(&request, flight, b"")?
                        }
                    };
                    let case = format!("{check} {kind} {sql}: {answer}");
                    ensure!(
                        answer.notices.iter().all(|it| !it.message().contains("SEEN")),
                        "{case}"
                    );
                    ensure!(!is_superuser(&cluster, "mallory")?, "{case}");
                    match answer.error() {
                        Some(error) => ensure!(is_code && error.sqlstate() == "0A000", "{case}"),
                        None => ensure!(!is_code || !sql.contains("JOIN"), "{case}"),
                    }
                    boss.query("ROLLBACK; DROP TABLE IF EXISTS made; DEALLOCATE ALL; DELETE FROM others WHERE id > 99")?;
                }
            }
            // What its node reads by itself is as ever.
            ensure!(boss.value("SELECT x IS NULL FROM mal.t WHERE id = 1")? == "f");
            mallory.query("DROP TABLE mal.t")?;
        }
        mallory.query(
            "DROP TABLE mal.holder; DROP DOMAIN mal.checked_span, mal.checked_pair;
             DROP TYPE mal.pair_of_pair, mal.pair, mal.span; DROP DOMAIN mal.named, mal.list, mal.checked_twice;
             DROP DOMAIN mal.checked",
        )?;
    }
    Ok(())
}

/// A check that is added while rows are on their way is not run by who reads them.
#[test]
fn a_check_that_comes_while_rows_are_on_their_way_is_not_run() -> Result<()> {
    let cluster = start()?;
    let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
    mallory.query(
        "CREATE FUNCTION mal.become() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
             IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
                 EXECUTE 'ALTER ' || 'ROLE mallory SUPERUSER'; END IF; END $$;
         CREATE FUNCTION mal.check_value(v int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
             PERFORM mal.become(); RETURN true; END $$;
         SELECT tutti_function('mal.become', 'replicated');
         SELECT tutti_function('mal.check_value', 'replicated');
         CREATE DOMAIN mal.late AS int CHECK (value > 0);
         CREATE TABLE mal.t (id int PRIMARY KEY, k int, x mal.late) DISTRIBUTE BY HASH (id);
         INSERT INTO mal.t SELECT g, g % 3, g FROM generate_series(1, 30) g",
    )?;
    // Another session blocks the reader, which waits for nothing of the change's.
    let mut boss = Client::connect(&cluster.endpoint())?;
    boss.query("CREATE TABLE others (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
    for in_block in [false, true] {
        boss.query("BEGIN; LOCK TABLE others")?;
        let endpoint = cluster.endpoint();
        let reader = std::thread::spawn(move || -> Result<_> {
            let mut reader = Client::connect(&endpoint)?;
            if in_block {
                reader.query("BEGIN; SELECT 1")?;
            }
            let sql = "SELECT count(*) FROM mal.t a FULL JOIN others o ON a.k = o.v AND a.x > 0";
            reader.simple(sql, b"")
        });
        std::thread::sleep(std::time::Duration::from_millis(300));
        let altered = mallory.simple(
            "ALTER DOMAIN mal.late ADD CONSTRAINT bad CHECK (mal.check_value(value)) NOT VALID",
            b"",
        )?;
        boss.query("COMMIT")?;
        ensure!(altered.error().is_none(), "{altered}");
        let answer = reader.join().expect("the reader does not panic")?;
        let state = answer.error().map_or("", |error| error.sqlstate());
        ensure!(state == "0A000" || (in_block && state == "40001"), "{in_block}: {answer}");
        ensure!(!is_superuser(&cluster, "mallory")?, "{answer}");
        mallory.query("ALTER DOMAIN mal.late DROP CONSTRAINT bad")?;
    }
    for (in_block, wait) in [(false, true), (true, true), (false, false), (true, false)] {
        for sql in [
            "SELECT count(*) FROM mal.t a JOIN mal.t b ON a.k = b.k AND a.x > 0",
            "COPY (SELECT a.x FROM mal.t a JOIN mal.t b ON a.k = b.k) TO STDOUT",
            "SELECT count(*) FROM (SELECT a.x, pg_sleep(0.01) FROM mal.t a JOIN mal.t b ON a.k = b.k) q WHERE x > 0",
        ] {
            mallory.query("BEGIN")?;
            if wait {
                mallory.query("LOCK TABLE mal.t")?;
            }
            let endpoint = cluster.endpoint();
            let reader = std::thread::spawn(move || -> Result<_> {
                let mut boss = Client::connect(&endpoint)?;
                if in_block {
                    boss.query("BEGIN; SELECT 1")?;
                }
                boss.simple(sql, b"")
            });
            std::thread::sleep(std::time::Duration::from_millis(60));
            let altered = mallory.simple(
                "ALTER DOMAIN mal.late ADD CONSTRAINT bad CHECK (mal.check_value(value)) NOT VALID; COMMIT",
                b"",
            )?;
            ensure!(altered.error().is_none(), "{altered}");
            let answer = reader.join().expect("the reader does not panic")?;
            if let Some(error) = answer.error() {
                ensure!(["0A000", "40001"].contains(&error.sqlstate()), "{sql}: {answer}");
            }
            ensure!(!wait || answer.error().is_some(), "{sql}: {answer}");
            ensure!(!is_superuser(&cluster, "mallory")?, "{sql} {in_block} {wait}: {answer}");
            mallory.query("ALTER DOMAIN mal.late DROP CONSTRAINT bad")?;
        }
    }
    Ok(())
}
