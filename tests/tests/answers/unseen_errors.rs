//! Errors that code raises which the gateway does not see: what it raises because of rows that it saw is one
//! PostgreSQL's error to the letter, or a refusal if it saw a part of the rows only.
//!
//! The cases are made: what reaches the code, how it fails, whose rows it has read, and how the statement
//! comes.

use anyhow::{Context as _, Result, ensure};
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::answer::{Answer, Outcome};
use tutti_tests::client::{Client, Flight, Request};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

/// Tables: home, replicated and distributed.
const TABLES: [&str; 3] = ["l", "r", "h"];

/// How code fails having read `{t}`: a name, and statements in PL/pgSQL that may use a variable `n`.
const FAILINGS: [(&str, &str); 7] = [
    (
        "raises",
        "SELECT count(*) INTO n FROM public.{t}; RAISE NOTICE 'there are %', n; \
         RAISE EXCEPTION 'there are %', n USING ERRCODE = 'P0009', DETAIL = 'd', HINT = 'h';",
    ),
    ("misses", "SELECT v INTO STRICT n FROM public.{t} WHERE id = -1;"),
    ("divides", "SELECT 1 / (count(*) - count(*)) INTO n FROM public.{t};"),
    ("asserts", "ASSERT (SELECT count(*) FROM public.{t}) < 0, 'too many';"),
    ("builds", "EXECUTE 'SELECT 1 / (count(*) - count(*)) FROM public.' || '{t}' INTO n;"),
    (
        "catches",
        "BEGIN SELECT count(*) INTO n FROM public.{t}; RAISE 'inner'; \
         EXCEPTION WHEN OTHERS THEN RAISE EXCEPTION 'outer %', n USING ERRCODE = 'P0008'; END;",
    ),
    ("collides", "INSERT INTO public.l SELECT 1, count(*) FROM public.{t};"),
];

/// What reaches the code: objects over a function `{f}` that fails with the statements `{body}`, and a
/// statement. `{c}` is a name of the case's own.
const KINDS: [(&str, &str, &str); 11] = [
    ("function", "", "SELECT {f}()"),
    (
        "function in SQL",
        "CREATE FUNCTION {c}_s() RETURNS int LANGUAGE sql AS 'SELECT {f}()'",
        "SELECT {c}_s()",
    ),
    ("DO", "", "DO $f$ DECLARE n int; BEGIN {body} END $f$"),
    (
        "procedure",
        "CREATE PROCEDURE {c}_p() LANGUAGE plpgsql AS 'BEGIN PERFORM {f}(); END'",
        "CALL {c}_p()",
    ),
    (
        "trigger of a home table",
        "CREATE TABLE {c} (id int) ;; CREATE FUNCTION {c}_t() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM {f}(), 1; RETURN NULL; END' ;; \
         CREATE TRIGGER t AFTER INSERT ON {c} FOR EACH ROW EXECUTE FUNCTION {c}_t()",
        "INSERT INTO {c} VALUES (1)",
    ),
    (
        "deferred trigger",
        "CREATE TABLE {c} (id int) ;; CREATE FUNCTION {c}_t() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM {f}(), 1; RETURN NULL; END' ;; \
         CREATE CONSTRAINT TRIGGER t AFTER INSERT ON {c} DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION {c}_t()",
        "INSERT INTO {c} VALUES (1)",
    ),
    ("domain", "CREATE DOMAIN {c} AS int CHECK ({f}() = value)", "SELECT 1::{c}"),
    (
        "operator",
        "CREATE FUNCTION {c}_o(text, int) RETURNS int LANGUAGE sql AS 'SELECT {f}()' ;; \
         CREATE OPERATOR public.{op} (leftarg = text, rightarg = int, function = {c}_o)",
        "SELECT 'a'::text OPERATOR(public.{op}) 1",
    ),
    ("view", "CREATE VIEW {c} AS SELECT {f}() AS x", "SELECT x FROM {c}"),
    (
        "default",
        "CREATE TABLE {c} (id int, x int DEFAULT {f}())",
        "INSERT INTO {c} (id) VALUES (1)",
    ),
    ("source of rows", "", "INSERT INTO public.l SELECT 100, {f}()"),
];

/// How a statement comes.
#[derive(Clone, Copy, Debug)]
enum Way {
    Simple,
    Extended,
    Block,
}

/// Errors and notices as the client gets them, but for where in PostgreSQL's source they come from.
fn shown(answer: &Answer) -> String {
    let mut seen = String::new();
    for notice in &answer.notices {
        seen += &format!("notice {:?}\n", notice.get(b'M'));
    }
    for outcome in &answer.outcomes {
        match outcome {
            Outcome::Failed(error) => {
                let fields = error.fields.iter().filter(|(code, _)| !b"FLR".contains(code));
                let fields = fields.map(|(code, text)| format!("{}: {text}", char::from(*code)));
                seen += &fields.collect::<Vec<_>>().join("\n");
            }
            other => seen += &format!("{other:?}"),
        }
        seen.push('\n');
    }
    seen
}

/// What a side says to the statement, and in a block to what follows.
fn run(client: &mut Client, sql: &str, way: Way) -> Result<String> {
    Ok(match way {
        Way::Simple => shown(&client.simple(sql, b"")?),
        Way::Extended => {
            let request = Request { sql, types: &[], arguments: &[], row_limit: 0 };
            shown(&client.extended(&request, Flight::TwoFlights, b"")?)
        }
        Way::Block => {
            client.query("BEGIN; UPDATE public.l SET v = v + 1; SAVEPOINT s")?;
            let mut said = shown(&client.simple(sql, b"")?);
            // What the statement has left for the end comes here.
            said += &shown(&client.simple("SET CONSTRAINTS ALL IMMEDIATE", b"")?);
            said += &shown(&client.simple("ROLLBACK TO s", b"")?);
            said += &shown(&client.simple("SELECT sum(v) FROM public.l", b"")?);
            said += &shown(&client.simple("COMMIT", b"")?);
            said
        }
    })
}

fn make(client: &mut Client, sql: &str) -> Result<()> {
    for step in sql.split(" ;; ").filter(|step| !step.is_empty()) {
        let answer = client.simple(step, b"")?;
        ensure!(answer.error().is_none(), "{step}\n{answer}");
    }
    Ok(())
}

#[test]
fn an_error_for_rows_that_were_not_seen_is_none_that_a_client_hears() -> Result<()> {
    let servers = servers::start(3)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let mut cluster = TestCluster::start_configured(servers, config)?;
    let alone = servers::start(1)?;
    let mut one = Client::connect(&servers::endpoint(&alone, 0))?;
    let mut many = Client::connect(&cluster.endpoint())?;
    for (table, placement) in
        [("l", ""), ("r", " DISTRIBUTE BY REPLICATED"), ("h", " DISTRIBUTE BY HASH (id)")]
    {
        let sql = format!("CREATE TABLE public.{table} (id int PRIMARY KEY, v int)");
        one.query(&sql)?;
        many.query(&format!("{sql}{placement}"))?;
        for client in [&mut one, &mut many] {
            client.query(&format!(
                "INSERT INTO public.{table} SELECT g, g FROM generate_series(1, 30) g"
            ))?;
        }
    }
    let mut number = 0;
    for (failing, body) in FAILINGS {
        for table in TABLES {
            let body = body.replace("{t}", table);
            let function = format!("{failing}_{table}");
            let sql = format!(
                "CREATE FUNCTION {function}() RETURNS int LANGUAGE plpgsql AS \
                 $f$ DECLARE n int; BEGIN {body} RETURN n; END $f$"
            );
            one.query(&sql)?;
            many.query(&sql)?;
            for (kind, objects, statement) in KINDS {
                number += 1;
                let operator: String =
                    (0..8).map(|bit| if number >> bit & 1 == 1 { '#' } else { '&' }).collect();
                let fill = |text: &str| {
                    text.replace("{f}", &function)
                        .replace("{c}", &format!("c{number}"))
                        .replace("{body}", &body)
                        .replace("{op}", &operator)
                };
                let about = |way| format!("{kind}, {function}, {way:?}");
                let objects = fill(objects);
                make(&mut one, &objects)?;
                make(&mut many, &objects)?;
                for way in [Way::Simple, Way::Extended, Way::Block] {
                    let statement = fill(statement);
                    let expected = run(&mut one, &statement, way).with_context(|| about(way))?;
                    let found = run(&mut many, &statement, way).with_context(|| about(way))?;
                    if table == "h" {
                        ensure!(
                            found.contains("C: 0A000") && !found.contains("notice"),
                            "{}: {found}",
                            about(way)
                        );
                        let codes = found.matches("C: ").count();
                        ensure!(
                            codes == expected.matches("C: ").count(),
                            "{}: {found}",
                            about(way)
                        );
                    } else {
                        ensure!(
                            found == expected,
                            "{}:\n{found}instead of\n{expected}",
                            about(way)
                        );
                    }
                }
            }
        }
    }
    cluster.stop_gateway()
}
