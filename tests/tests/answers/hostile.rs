//! Operators, functions, types, relations and casts of users' with the names of built-in ones stand where a
//! session looks first, and no statement of the gateway's own meets them.
//!
//! Each of them tells of every call in its server's log, which no rollback takes back, and fails. Clients'
//! statements here name the schema of everything, so on one PostgreSQL nothing of this is ever called; the
//! same statements run there, and must answer the same.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use tutti_embed::Cluster;
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::answer::{Answer, Outcome};
use tutti_tests::client::{Client, Flight, Request};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

/// What a call leaves in the log. No text of a statement contains it.
const SIGN: &str = "HOSTILE CODE WAS CALLED";

/// How a body tells of its call, and fails.
const BODY: &str = "BEGIN RAISE LOG ''HOSTILE %% WAS CALLED: %%'', ''CODE'', %L; RAISE EXCEPTION ''hostile %%'', %L; END";

/// Settings that change how values are printed and read and how statements are planned.
const SETTINGS: [(&str, &str); 16] = [
    ("DateStyle", "'German, DMY'"),
    ("IntervalStyle", "sql_standard"),
    ("TimeZone", "'Asia/Kolkata'"),
    ("extra_float_digits", "-15"),
    ("bytea_output", "escape"),
    ("xmloption", "document"),
    ("quote_all_identifiers", "on"),
    ("array_nulls", "off"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_nestloop", "off"),
    ("join_collapse_limit", "1"),
    ("plan_cache_mode", "force_custom_plan"),
    ("transform_null_equals", "on"),
    ("default_text_search_config", "simple"),
    ("lc_monetary", "'C'"),
];

/// Every name that the gateway's own SQL calls or reads in `pg_catalog`.
fn names_in_source() -> Result<BTreeSet<String>> {
    fn read(dir: &Path, all: &mut String) -> Result<()> {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                read(&path, all)?;
            } else if path.extension().is_some_and(|end| end == "rs" || end == "sql") {
                all.push_str(&fs::read_to_string(&path)?);
            }
        }
        Ok(())
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut all = String::new();
    for dir in ["link/src", "cluster/src", "gateway/src", "sql/src"] {
        read(&crates.join(dir), &mut all)?;
    }
    let words = all.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    Ok(words.filter(|word| 1 < word.len()).map(str::to_owned).collect())
}

/// Makes, in a schema, what has the names and arguments of what is built in: `functions` and `relations` of
/// these names, types that hide those of `pg_catalog`, and operators between all pairs of common types.
fn hostile_objects(schema: &str, names: &BTreeSet<String>) -> Vec<String> {
    let names: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    let names = names.join(",");
    let types = "int4 int8 oid text name char"
        .split(' ')
        .map(|name| format!("'{name}'"))
        .collect::<Vec<_>>()
        .join(",");
    let body = |of: &str| format!("pg_catalog.format('{BODY}', {of}, {of})");
    let make = |body: String| {
        format!(
            "DO LANGUAGE plpgsql $do$ DECLARE r pg_catalog.record; n pg_catalog.int4; BEGIN {body} END $do$"
        )
    };
    vec![
        // As built-in functions.
        make(format!(
            "FOR r IN SELECT p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid) AS arguments,
                pg_catalog.format_type(p.prorettype, NULL) AS result
            FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
                AND p.prokind = 'f' AND NOT p.proretset AND p.provariadic = 0 AND p.proargnames IS NULL
                AND p.proname = ANY (ARRAY[{names}]) AND p.pronargs < 6
                AND NOT EXISTS (SELECT FROM pg_catalog.unnest(p.proargtypes::pg_catalog.oid[] || p.prorettype) AS u (oid)
                    JOIN pg_catalog.pg_type t ON t.oid = u.oid WHERE t.typtype = 'p')
            LOOP
                EXECUTE pg_catalog.format('CREATE FUNCTION {schema}.%I(%s) RETURNS %s LANGUAGE plpgsql IMMUTABLE AS %L',
                    r.proname, r.arguments, r.result, {});
            END LOOP;",
            body("'function ' || r.proname")
        )),
        // As operators, the exact ones and such as fit better than what is built in.
        make(format!(
            "FOR r IN SELECT l.oid AS l, x.oid AS r, o.sign, o.result, pg_catalog.row_number() OVER () AS number
            FROM pg_catalog.pg_type l, pg_catalog.pg_type x,
                (VALUES ('=', 'bool'), ('<>', 'bool'), ('<', 'bool'), ('>', 'bool'), ('||', 'text'), ('~~', 'bool'))
                    AS o (sign, result)
            WHERE l.typnamespace = 'pg_catalog'::pg_catalog.regnamespace
                AND x.typnamespace = l.typnamespace
                AND l.typname = ANY (ARRAY[{types}]) AND x.typname = ANY (ARRAY[{types}])
            LOOP
                EXECUTE pg_catalog.format('CREATE FUNCTION {schema}.op_%s(%s, %s) RETURNS pg_catalog.%s LANGUAGE plpgsql IMMUTABLE AS %L',
                    r.number, pg_catalog.format_type(r.l, NULL), pg_catalog.format_type(r.r, NULL), r.result, {});
                EXECUTE pg_catalog.format('CREATE OPERATOR {schema}.%s (FUNCTION = {schema}.op_%s, LEFTARG = %s, RIGHTARG = %s)',
                    r.sign, r.number, pg_catalog.format_type(r.l, NULL), pg_catalog.format_type(r.r, NULL));
            END LOOP;",
            body("pg_catalog.concat('operator ', r.sign, ' of ', pg_catalog.format_type(r.l, NULL), ' and ', pg_catalog.format_type(r.r, NULL))")
        )),
        make(format!(
            "EXECUTE pg_catalog.format('CREATE FUNCTION {schema}.trap(x pg_catalog.text) RETURNS pg_catalog.bool LANGUAGE plpgsql AS %L', {});",
            body("'trap'")
        )),
        // As relations and types of the system.
        make(format!(
            "FOR r IN SELECT c.relname, (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ')
                FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND t.typtype <> 'p') AS columns
            FROM pg_catalog.pg_class c
            WHERE c.relnamespace = 'pg_catalog'::pg_catalog.regnamespace AND c.relkind IN ('r', 'v')
                AND c.relname = ANY (ARRAY[{names}])
            LOOP
                EXECUTE pg_catalog.format('CREATE VIEW {schema}.%I AS SELECT %s FROM pg_catalog.%I WHERE {schema}.trap(%L)',
                    r.relname, r.columns, r.relname, r.relname);
            END LOOP;
            FOR r IN SELECT t FROM pg_catalog.unnest('{{text,name,oid,int4,int8,bool,regclass,timestamptz,jsonb,bytea}}'::pg_catalog.text[]) t
            LOOP
                EXECUTE pg_catalog.format('CREATE DOMAIN {schema}.%I AS pg_catalog.%I CHECK ({schema}.trap(%L))', r.t, r.t, r.t);
            END LOOP;"
        )),
    ]
}

/// A statement as clients write it, short: what is short for `pg_catalog`, and what one PostgreSQL does without.
fn written(sql: &str) -> (String, String) {
    let here = sql.replace("==", "OPERATOR(pg_catalog.=)").replace("##", "pg_catalog.");
    let mut there = here.clone();
    while let Some(at) = there.find(" DISTRIBUTE BY ") {
        let rest = there[at + 1..]
            .find([';', '\n'])
            .map_or(String::new(), |end| there[at + 1 + end..].to_owned());
        there.truncate(at);
        there.push_str(&rest);
    }
    (here, there)
}

/// What every kind of operation of the gateway comes by. `==` is `pg_catalog`'s, `##` its name.
const STATEMENTS: &[&str] = &[
    "CREATE TABLE public.a (k ##int4 PRIMARY KEY, v ##text, d ##date, z ##timestamptz, f ##float8, b ##bytea, i ##interval, l ##text[], x ##xml) DISTRIBUTE BY HASH (k)",
    "CREATE TABLE public.b (v ##text PRIMARY KEY, k ##int4, d ##date, z ##timestamptz, f ##float8, b ##bytea, i ##interval, l ##text[], x ##xml) DISTRIBUTE BY HASH (v)",
    "CREATE TABLE public.c (k ##int4 PRIMARY KEY, v ##text) DISTRIBUTE BY REPLICATED",
    "CREATE TABLE public.h (k ##int4 PRIMARY KEY, v ##text, f ##float8)",
    "CREATE TABLE public.s (k ##int4 GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, v ##text DEFAULT 'v') DISTRIBUTE BY HASH (k)",
    "INSERT INTO public.a SELECT g, ##concat('v', g), ##make_date(2024, 2, ##mod(g, 28) OPERATOR(pg_catalog.+) 1), ##make_timestamptz(2024, 7, 1, 12, g, 0.5, 'UTC'), ##sqrt(g::##float8), ##decode('00ff5c27', 'hex'), ##make_interval(0, g, 3), ARRAY['a', NULL, 'NULL'], NULL FROM ##generate_series(1, 40) g",
    "INSERT INTO public.b SELECT v, k, d, z, f, b, i, l, x FROM public.a",
    "INSERT INTO public.c SELECT k, v FROM public.a",
    "INSERT INTO public.c VALUES (100, 'x'), (101, 'y') RETURNING k, v",
    "INSERT INTO public.c SELECT 102, ##concat('r', ##\"left\"(##concat(##random()), 0))",
    "INSERT INTO public.h SELECT k, v, f FROM public.b",
    "INSERT INTO public.s (v) VALUES ('one'), ('two') RETURNING v",
    "INSERT INTO public.s (v) SELECT v FROM public.h",
    "INSERT INTO public.a (k, v) VALUES (200, 'x'), (201, 'y'), (202, 'z') RETURNING k, v",
    "INSERT INTO public.a (k, v) VALUES (200, 'x'), (203, 'y') ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING k",
    "UPDATE public.a SET v = ##concat(v, '!') WHERE k OPERATOR(pg_catalog.>) 30",
    "UPDATE public.a SET k = 300 WHERE k == 203",
    "UPDATE public.b SET v = ##concat(v, '?') WHERE k == 7",
    "UPDATE public.c SET v = ##concat(v, ##\"left\"(##concat(##random()), 0)) WHERE k == 3",
    "UPDATE public.c SET v = ##concat(v, '.')",
    "UPDATE public.c SET v = x.v FROM public.b x WHERE x.k == c.k AND c.k == 6 RETURNING c.k",
    "DELETE FROM public.a WHERE k == 202 RETURNING v",
    "DELETE FROM public.c WHERE k == 101",
    "DELETE FROM public.b USING public.c WHERE b.k == c.k AND c.k == 9",
    "SELECT * FROM public.a WHERE k == 5",
    "SELECT ##count(*), ##max(v) FROM public.a",
    "SELECT * FROM public.a ORDER BY k",
    "SELECT a.k, b.v, a.f, a.l, a.i, a.z FROM public.a JOIN public.b ON a.k == b.k ORDER BY a.k",
    "SELECT DISTINCT v FROM public.b ORDER BY v LIMIT 3",
    "SELECT a.k, ##row_number() OVER (ORDER BY a.f) FROM public.a ORDER BY 1 LIMIT 4",
    "SELECT k FROM public.a UNION SELECT k FROM public.b EXCEPT SELECT k FROM public.h ORDER BY 1",
    "SELECT x.k FROM public.c x JOIN public.a y ON x.k == y.k LEFT JOIN public.h z ON z.k == y.k ORDER BY 1 LIMIT 3",
    "SELECT k FROM public.a WHERE EXISTS (SELECT FROM public.b WHERE b.k == a.k) ORDER BY k LIMIT 2",
    "BEGIN",
    "DECLARE cur CURSOR FOR SELECT a.k, b.f, b.x FROM public.a JOIN public.b ON a.k == b.k ORDER BY a.k",
    "FETCH 3 FROM cur",
    "CLOSE cur",
    "SAVEPOINT s1",
    "UPDATE public.a SET v = 'gone'",
    "ROLLBACK TO s1",
    "INSERT INTO public.b (v, k) VALUES ('in block', 401), ('in block 2', 402)",
    "COMMIT",
    "PREPARE p (##int4) AS SELECT v FROM public.a WHERE k == $1",
    "EXECUTE p(5)",
    "PREPARE q (##text) AS INSERT INTO public.b (v, k) VALUES ($1, 77), (##concat($1, '2'), 78)",
    "EXECUTE q('prepared')",
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "SELECT ##count(*) FROM public.a JOIN public.b ON a.k == b.k",
    "UPDATE public.a SET v = 'rr' WHERE k == 8",
    "UPDATE public.b SET l = ARRAY['rr'] WHERE k == 8",
    "COMMIT",
    "BEGIN ISOLATION LEVEL SERIALIZABLE",
    "SELECT ##sum(k) FROM public.a",
    "UPDATE public.a SET v = 'ser' WHERE k == 12",
    "INSERT INTO public.b (v, k) VALUES ('ser', 500), ('ser2', 501), ('ser3', 502)",
    "UPDATE public.c SET v = 'ser' WHERE k == 4",
    "COMMIT",
    "CREATE TEMPORARY TABLE tmp AS SELECT a.k, b.v FROM public.a JOIN public.b ON a.k == b.k",
    "BEGIN",
    "INSERT INTO tmp VALUES (1, 'x')",
    "UPDATE public.a SET v = 'with temporary' WHERE k OPERATOR(pg_catalog.<) 4",
    "COMMIT",
    "SELECT ##count(*) FROM tmp x JOIN public.a y ON x.k == y.k",
    "DROP TABLE tmp",
    "LISTEN chan",
    "BEGIN",
    "NOTIFY chan, 'said'",
    "UPDATE public.c SET v = 'said' WHERE k == 5",
    "COMMIT",
    "UNLISTEN chan",
    "ALTER TABLE public.a ADD COLUMN n ##int4 DEFAULT 5, ADD CHECK (n OPERATOR(pg_catalog.>) 0)",
    "ALTER TABLE public.a ADD COLUMN dd ##date DEFAULT date '2024-02-01'",
    "INSERT INTO public.a (k) VALUES (600), (601), (602)",
    "CREATE INDEX ON public.a (v, d)",
    "CREATE VIEW public.seen AS SELECT a.k, b.v, a.d FROM public.a JOIN public.b ON a.k == b.k WHERE a.d OPERATOR(pg_catalog.>) date '2024-02-03'",
    "SELECT * FROM public.seen ORDER BY k LIMIT 3",
    "CREATE TABLE public.made AS SELECT a.k, b.v, a.f, a.z, a.i FROM public.a JOIN public.b ON a.k == b.k",
    "ALTER TABLE public.c RENAME COLUMN v TO w",
    "ALTER TABLE public.c RENAME COLUMN w TO v",
    "CREATE TABLE public.child (k ##int4 PRIMARY KEY REFERENCES public.a ON DELETE CASCADE, v ##text) DISTRIBUTE BY HASH (k)",
    "INSERT INTO public.child SELECT k, v FROM public.a WHERE k OPERATOR(pg_catalog.<) 20",
    "DELETE FROM public.a WHERE k == 1",
    "SELECT ##count(*) FROM public.child",
    "CREATE FUNCTION public.unseen(n ##int4) RETURNS ##int8 LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'UPDATE public.h SET v = ''unseen'' WHERE k OPERATOR(pg_catalog.=) $1' USING n; RETURN 1; END $$",
    "SELECT public.unseen(3)",
    "DO LANGUAGE plpgsql $$ BEGIN UPDATE public.h SET v = 'done' WHERE k OPERATOR(pg_catalog.=) 4; END $$",
    "COPY public.b (v, k) FROM STDIN",
    "COPY public.c (k, v) FROM STDIN",
    "COPY (SELECT a.k, b.v, b.z FROM public.a JOIN public.b ON a.k == b.k ORDER BY a.k) TO STDOUT",
    "COPY (SELECT k, v FROM public.c ORDER BY k) TO STDOUT",
    "CREATE SEQUENCE public.q",
    "SELECT ##nextval('public.q'), ##currval('public.q')",
    "SELECT ##pg_advisory_lock(77)",
    "SELECT ##count(*) FROM ##pg_locks WHERE locktype == 'advisory' AND objid == 77::##oid",
    "SELECT ##pg_advisory_unlock(77)",
    "SELECT ##count(*) FROM ##pg_stat_activity WHERE pid == ##pg_backend_pid()",
    "SET search_path = pg_catalog",
    "RESET search_path",
    "SET LOCAL search_path = pg_catalog",
    "SELECT ##set_config('app.x', 'y', false)",
    "SELECT ##current_setting('app.x')",
    "TRUNCATE public.child",
    "LOCK TABLE public.c",
    "ANALYZE public.a",
    "DISCARD TEMP",
    "DROP TABLE public.child",
    "SELECT ##pg_sleep(20)",
    "SELECT k, v, d, z, f, b, i, l, x::##text FROM public.b ORDER BY k, v",
    "RESET ALL",
];

/// What a superuser does besides.
const MOVES: [&str; 9] = [
    "tutti_replicate('public.b')",
    "tutti_replicate('public.a')",
    "tutti_distribute('public.a', 'k')",
    "tutti_distribute('public.h', 'k')",
    "tutti_home('public.h')",
    "tutti_distribute('public.c', 'k')",
    "tutti_replicate('public.c')",
    "tutti_round_robin('public.made')",
    "tutti_distribute('public.b', 'v')",
];

/// Error, rows, and what was copied out.
type Told = (Option<(String, String)>, Vec<Vec<Option<String>>>, Vec<Vec<u8>>);

fn told(answer: &Answer) -> Told {
    let error = answer.error();
    let copied = |outcome: &Outcome| match outcome {
        Outcome::CopyOut { data, .. } => Some(data.to_vec()),
        _ => None,
    };
    (
        error.map(|error| (error.sqlstate().to_owned(), error.message().to_owned())),
        answer.texts(),
        answer.outcomes.iter().filter_map(copied).collect(),
    )
}

/// Lines of servers' logs that tell of a call.
fn calls(servers: &Cluster) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for server in servers.servers() {
        let log = fs::read_to_string(server.log_path())?;
        let mut lines = log.lines().peekable();
        while let Some(line) = lines.next() {
            if line.contains(SIGN) {
                let behind: Vec<_> =
                    std::iter::from_fn(|| lines.next_if(|next| !next.contains("LOG:")))
                        .take(12)
                        .collect();
                found.push(format!("{line}\n{}", behind.join("\n")));
            }
        }
    }
    Ok(found)
}

fn cancel(port: u16, process_id: i32, secret: i32) -> Result<()> {
    let mut out = BytesMut::new();
    tutti_wire::startup::put_cancel(&mut out, process_id, secret);
    TcpStream::connect(("127.0.0.1", port))?.write_all(&out).context("cancel")
}

/// One statement; a sleep is cancelled.
fn run(client: &mut Client, port: u16, sql: &str) -> Result<Answer> {
    let copied: &[u8] = match sql {
        _ if sql.starts_with("COPY public.b") => b"copied\t801\ncopied2\t802\ncopied3\t803\n",
        _ => b"901\tcopied\n902\tcopied\n",
    };
    if !sql.contains("pg_sleep") {
        return client.simple(sql, copied);
    }
    let (process_id, secret) = (client.process_id, client.secret);
    let canceller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        cancel(port, process_id, secret)
    });
    let answer = client.simple(sql, b"");
    canceller.join().expect("no panic")?;
    answer
}

/// Everything in each table, as binary, under settings of this test's.
fn contents(client: &mut Client) -> Result<Vec<String>> {
    client.query("SET search_path = pg_catalog, public")?;
    let mut all = Vec::new();
    for table in ["a", "b", "c", "h", "s", "made"] {
        let sql = match table {
            "s" => "SELECT q.v FROM public.s q ORDER BY 1".to_owned(),
            _ => format!("SELECT q.* FROM public.{table} q ORDER BY k, v"),
        };
        let request = Request { sql: &sql, ..Request::default() };
        let answer = client.extended(&request, Flight::TwoFlights, b"")?;
        ensure!(answer.error().is_none(), "{sql}: {answer}");
        all.extend(answer.outcomes.iter().map(|outcome| match outcome {
            Outcome::Rows { rows, .. } => format!("{table}: {rows:?}"),
            other => format!("{table}: {other}"),
        }));
    }
    Ok(all)
}

struct Case {
    /// Where hostile things are.
    schema: &'static str,
    /// Where victims look.
    path: &'static str,
    /// Who has made them.
    by: &'static str,
}

fn attack(case: &Case) -> Result<()> {
    let Case { schema, path, by } = case;
    let servers = servers::start(3)?;
    let plain = servers::start(1)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let names = names_in_source()?;
    for endpoint in [cluster.endpoint(), servers::endpoint(&plain, 0)] {
        let mut dba = Client::connect(&endpoint)?;
        dba.query(
            "CREATE ROLE mallory LOGIN; CREATE ROLE app LOGIN; CREATE ROLE boss LOGIN SUPERUSER;
             GRANT ALL ON SCHEMA public TO app, mallory; CREATE SCHEMA mal AUTHORIZATION mallory;
             GRANT ALL ON SCHEMA mal TO PUBLIC",
        )?;
        let mut maker = Client::connect_as(&endpoint, by)?;
        for sql in hostile_objects(schema, &names) {
            maker.query(&sql).with_context(|| sql.clone())?;
        }
        let count = format!(
            "SELECT pg_catalog.count(*) FROM pg_catalog.pg_proc WHERE pronamespace OPERATOR(pg_catalog.=) '{schema}'::pg_catalog.regnamespace"
        );
        let count: u32 = dba.value(&count)?.parse()?;
        ensure!(200 < count, "only {count} hostile functions");
        for role in ["app", "boss"] {
            dba.query(&format!("ALTER ROLE {role} SET search_path = {path}"))?;
            for (name, value) in SETTINGS {
                dba.query(&format!("ALTER ROLE {role} SET {name} = {value}"))?;
            }
        }
    }
    let mut refused = Vec::new();
    let mut complaints = Vec::new();
    let mut here = Client::connect_as(&cluster.endpoint(), "app")?;
    let mut there = Client::connect_as(&servers::endpoint(&plain, 0), "app")?;
    for sql in STATEMENTS {
        let (sql_here, sql_there) = written(sql);
        let one = run(&mut here, cluster.endpoint().port, &sql_here)
            .with_context(|| format!("{sql_here}: {:?}", calls(cluster.servers())))?;
        let other = run(&mut there, plain.server(0).port(), &sql_there)?;
        if one.error().is_some_and(|error| error.sqlstate() == "0A000") {
            refused.push(format!("{sql}: {}", one.error().expect("one").message()));
        } else if told(&one) != told(&other) {
            complaints.push(format!("{sql}:\n{one}\n{other}"));
        }
    }
    let called = calls(cluster.servers())?;
    ensure!(called.is_empty(), "{} calls:\n{}", called.len(), called.join("\n"));
    ensure!(complaints.is_empty(), "{}\nrefused: {refused:#?}", complaints.join("\n\n"));
    ensure!(refused.is_empty(), "{refused:#?}");
    drop((here, there));
    let (mut here, mut there) =
        (Client::connect(&cluster.endpoint())?, Client::connect(&servers::endpoint(&plain, 0))?);
    let before = contents(&mut there)?;
    ensure!(contents(&mut here)? == before, "{:?}\n{before:?}", contents(&mut here)?);
    for how in MOVES {
        let mut boss = Client::connect_as(&cluster.endpoint(), "boss")?;
        boss.query(&format!("SELECT {how}"))?;
        let now = contents(&mut here)?;
        ensure!(now == before, "{how}: {now:?}\n{before:?}");
    }
    cluster.audit()?;
    let called = calls(cluster.servers())?;
    ensure!(called.is_empty(), "{} calls:\n{}", called.len(), called.join("\n"));
    ensure!(calls(&plain)?.is_empty(), "{:?}", calls(&plain)?);
    Ok(())
}

#[test]
fn what_stands_first_in_the_path_is_never_called() -> Result<()> {
    attack(&Case { schema: "mal", path: "mal, public, pg_catalog", by: "mallory" })
}

#[test]
fn what_fits_better_in_public_is_never_called() -> Result<()> {
    attack(&Case { schema: "public", path: "\"$user\", public", by: "mallory" })
}

/// The gateway's own statements convert between them, and casts belong to no schema.
#[test]
fn casts_between_built_in_types_are_refused() -> Result<()> {
    let servers = servers::start(1)?;
    let cluster = TestCluster::start_on(servers)?;
    let mut boss = Client::connect(&cluster.endpoint())?;
    boss.query(
        "CREATE TYPE pair AS (a int, b text);
         CREATE FUNCTION f(int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'x' $$;
         CREATE FUNCTION g(pair) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'x' $$;
         CREATE FUNCTION h(text) RETURNS int8 LANGUAGE sql IMMUTABLE AS $$ SELECT 1::int8 $$",
    )?;
    for sql in [
        "CREATE CAST (int AS text) WITH FUNCTION f(int)",
        "CREATE CAST (int AS text) WITH FUNCTION f(int) AS ASSIGNMENT",
        "CREATE CAST (int4 AS pg_catalog.text) WITH FUNCTION f(int) AS IMPLICIT",
        "CREATE CAST (text AS bigint) WITH FUNCTION h(text) AS IMPLICIT",
        "CREATE CAST (integer AS text) WITH INOUT AS IMPLICIT",
    ] {
        let answer = boss.simple(sql, b"")?;
        let error = answer.error().with_context(|| sql.to_owned())?;
        ensure!(error.sqlstate() == "0A000", "{sql}: {answer}");
    }
    boss.query("CREATE CAST (pair AS text) WITH FUNCTION g(pair) AS ASSIGNMENT")?;
    boss.query("CREATE CAST (int AS text) WITH INOUT AS ASSIGNMENT; DROP CAST (int AS text)")?;
    ensure!(boss.value("SELECT 5::text")? == "5");
    Ok(())
}
