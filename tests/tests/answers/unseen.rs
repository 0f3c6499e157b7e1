//! Code that the gateway does not see, reached by every kind of object: the answer is one PostgreSQL's
//! or 0A000, copies stay equal, and no setting reaches another session.
//!
//! The cases are made: what a function does, through how many functions it is reached, what object
//! calls it, and how the statement comes.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use tutti_gateway::{Config, DefaultDistribution, PoolConfig};
use tutti_tests::answer::{Answer, Outcome};
use tutti_tests::client::{Client, Endpoint, Flight, Request};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

/// What a function does: its name, and a body in PL/pgSQL that returns a number.
const DEEDS: [(&str, &str); 7] = [
    ("computes", "RETURN x + 1;"),
    ("reads_spread", "RETURN (SELECT count(*) FROM public.h WHERE id <= x);"),
    ("reads_copy", "RETURN (SELECT count(*) FROM public.r);"),
    ("writes_copy", "UPDATE public.r SET v = v + 1; RETURN 1;"),
    ("writes_home", "UPDATE public.l SET v = v + 1; RETURN (SELECT sum(v) FROM public.l);"),
    ("sets", "PERFORM pg_catalog.set_config('app.tenant', '7', false); RETURN 7;"),
    (
        "builds",
        "DECLARE n int; BEGIN EXECUTE 'SELECT count(*) FROM public.' || 'h' INTO n; RETURN n; \
         EXCEPTION WHEN division_by_zero THEN RETURN 0; END;",
    ),
];

/// An object that calls a function `{f}`, and a statement that makes it do so. `{t}` is a name of the
/// case's own.
const KINDS: [(&str, &str, &str); 14] = [
    ("function", "", "SELECT {f}(90)"),
    ("function beside rows", "", "SELECT sum(public.{f}(90)) FROM public.h WHERE id < 4"),
    (
        "operator",
        "CREATE OPERATOR public.### (leftarg = int, rightarg = int, function = public.{t}_of_two)",
        "SELECT 1 OPERATOR(public.###) 90",
    ),
    (
        "aggregate",
        "CREATE AGGREGATE public.{t}_sum(int) (sfunc = {t}_of_two, stype = int, initcond = '0')",
        "SELECT public.{t}_sum(g) FROM generate_series(90, 90) AS g",
    ),
    (
        "cast",
        "CREATE TYPE public.{t}_type AS (n int); CREATE CAST (public.{t}_type AS int) WITH FUNCTION public.{t}_of_type(public.{t}_type)",
        "SELECT ROW(90)::public.{t}_type::int",
    ),
    (
        "domain",
        "CREATE DOMAIN public.{t}_domain AS int CHECK (public.{f}(value) >= 0)",
        "SELECT 90::public.{t}_domain",
    ),
    (
        "view",
        "CREATE VIEW public.{t}_view AS SELECT public.{f}(90) AS x",
        "SELECT * FROM public.{t}_view",
    ),
    (
        "default",
        "CREATE TABLE public.{t} (id int, x int DEFAULT public.{f}(90))",
        "INSERT INTO public.{t} (id) VALUES (1) RETURNING x",
    ),
    (
        "default of a distributed table",
        "CREATE TABLE public.{t} (id int, x int DEFAULT public.{f}(90)) DISTRIBUTE BY HASH (id)",
        "INSERT INTO public.{t} (id) VALUES (1) RETURNING x",
    ),
    (
        "check",
        "CREATE TABLE public.{t} (id int CHECK (public.{f}(id) >= 0))",
        "INSERT INTO public.{t} VALUES (90)",
    ),
    (
        "trigger of a home table",
        "CREATE TABLE public.{t} (id int); CREATE TRIGGER t AFTER INSERT ON public.{t} FOR EACH ROW EXECUTE FUNCTION public.{t}_fires()",
        "INSERT INTO public.{t} VALUES (90)",
    ),
    (
        "trigger of a distributed table",
        "CREATE TABLE public.{t} (id int) DISTRIBUTE BY HASH (id); CREATE TRIGGER t AFTER INSERT ON public.{t} FOR EACH ROW EXECUTE FUNCTION public.{t}_fires()",
        "INSERT INTO public.{t} VALUES (90)",
    ),
    (
        "trigger behind a foreign key",
        "CREATE TABLE public.{t}_p (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED; \
         CREATE TABLE public.{t} (p int REFERENCES public.{t}_p ON DELETE CASCADE) DISTRIBUTE BY REPLICATED; \
         INSERT INTO public.{t}_p VALUES (1); INSERT INTO public.{t} VALUES (1); \
         CREATE TRIGGER t AFTER DELETE ON public.{t} FOR EACH ROW EXECUTE FUNCTION public.{t}_fires()",
        "DELETE FROM public.{t}_p",
    ),
    ("text", "", "SELECT query_to_xml('SELECT public.{f}(90)', true, true, '')"),
];

/// How a statement comes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    Simple,
    Block,
    Extended,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Block => "block",
            Self::Extended => "extended",
        }
    }
}

/// One PostgreSQL, or the cluster.
struct Side {
    client: Client,
    endpoint: Endpoint,
    is_cluster: bool,
}

impl Side {
    fn new(endpoint: Endpoint, is_cluster: bool) -> Result<Self> {
        Ok(Self { client: Client::connect(&endpoint)?, endpoint, is_cluster })
    }

    fn text(&self, sql: &str) -> String {
        if self.is_cluster {
            return sql.to_owned();
        }
        let mut text = sql.to_owned();
        for clause in ["HASH (id)", "REPLICATED", "HOME"] {
            text = text.replace(&format!(" DISTRIBUTE BY {clause}"), "");
        }
        text
    }

    /// Runs a string; false if the cluster refuses it.
    fn make(&mut self, sql: &str) -> Result<bool> {
        let text = self.text(sql);
        let answer = self.client.simple(&text, b"")?;
        match answer.error() {
            None => Ok(true),
            Some(error) if self.is_cluster && error.sqlstate() == "0A000" => Ok(false),
            Some(error) => bail!("{sql}: {} {}", error.sqlstate(), error.message()),
        }
    }

    fn run(&mut self, sql: &str, way: Way) -> Result<String> {
        let text = self.text(sql);
        Ok(match way {
            Way::Simple => shown(&self.client.simple(&text, b"")?),
            Way::Extended => {
                let request = Request { sql: &text, types: &[], arguments: &[], row_limit: 0 };
                shown(&self.client.extended(&request, Flight::TwoFlights, b"")?)
            }
            Way::Block => {
                self.client.query("BEGIN; SELECT count(*) FROM public.h WHERE id = 1")?;
                let answer = shown(&self.client.simple(&text, b"")?);
                // A refusal has failed the block, and this rolls it back.
                self.client.simple("COMMIT", b"")?;
                answer
            }
        })
    }
}

/// Rows, or the SQLSTATE.
fn shown(answer: &Answer) -> String {
    if let Some(error) = answer.error() {
        return error.sqlstate().to_owned();
    }
    let rows = answer.outcomes.iter().any(|outcome| matches!(outcome, Outcome::Rows { .. }));
    if rows { format!("{:?}", answer.texts()) } else { "done".to_owned() }
}

fn start() -> Result<TestCluster> {
    let servers = servers::start(3)?;
    let config = Config {
        pool: PoolConfig { size: 1, ..PoolConfig::default() },
        default_distribution: DefaultDistribution::Home,
        ..config(&servers, String::new())
    };
    TestCluster::start_configured(servers, config)
}

const TABLES: &str = "
    CREATE TABLE public.h (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
    CREATE TABLE public.r (id int PRIMARY KEY, v int) DISTRIBUTE BY REPLICATED;
    CREATE TABLE public.l (id int PRIMARY KEY, v int) DISTRIBUTE BY HOME;
    INSERT INTO public.h SELECT g, 0 FROM generate_series(1, 90) AS g;
    INSERT INTO public.r VALUES (1, 0), (2, 0);
    INSERT INTO public.l VALUES (1, 0)";

/// One PostgreSQL and the cluster, with the same tables.
fn both_sides(alone: Endpoint, cluster: &TestCluster) -> Result<[Side; 2]> {
    let mut sides = [Side::new(alone, false)?, Side::new(cluster.endpoint(), true)?];
    for side in &mut sides {
        for statement in TABLES.split(';') {
            side.make(statement)?;
        }
    }
    Ok(sides)
}

/// The functions of a deed: itself, and two that reach it.
fn functions(deed: &str, body: &str) -> String {
    format!(
        "CREATE FUNCTION public.{deed}_0(x int) RETURNS int LANGUAGE plpgsql STABLE AS $f$BEGIN {body} END$f$;
         ALTER FUNCTION public.{deed}_0 VOLATILE;
         CREATE FUNCTION public.{deed}_1(x int) RETURNS int LANGUAGE sql AS 'SELECT public.{deed}_0($1)';
         CREATE FUNCTION public.{deed}_2(x int) RETURNS int LANGUAGE plpgsql AS
             $f$DECLARE y int; BEGIN y := public.{deed}_1(x); RETURN y; END$f$"
    )
}

/// What some kinds of object need around the function.
fn helpers(case: &str, function: &str, kind: &str) -> Option<String> {
    Some(match kind {
        "operator" | "aggregate" => format!(
            "CREATE FUNCTION public.{case}_of_two(a int, b int) RETURNS int LANGUAGE sql AS 'SELECT public.{function}($2)'"
        ),
        "cast" => return None,
        _ if kind.starts_with("trigger") => format!(
            "CREATE FUNCTION public.{case}_fires() RETURNS trigger LANGUAGE plpgsql AS
             $f$BEGIN PERFORM public.{function}(90); RETURN NULL; END$f$"
        ),
        _ => return None,
    })
}

/// Makes the object on a side; false if it is refused.
fn make_object(
    side: &mut Side,
    case: &str,
    function: &str,
    kind: &str,
    object: &str,
) -> Result<bool> {
    if let Some(helper) = helpers(case, function, kind)
        && !side.make(&helper)?
    {
        return Ok(false);
    }
    let object = object.replace("{f}", function).replace("{t}", case);
    for step in object.split("; ").filter(|step| !step.is_empty()) {
        if step.starts_with("CREATE CAST") {
            let of_type = format!(
                "CREATE FUNCTION public.{case}_of_type(x public.{case}_type) RETURNS int LANGUAGE sql AS 'SELECT public.{function}($1.n)'"
            );
            if !side.make(&of_type)? {
                return Ok(false);
            }
        }
        if !side.make(step)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn same_copies(cluster: &TestCluster) -> Result<()> {
    let mut seen = Vec::new();
    for node in cluster.nodes() {
        let sql = "SELECT string_agg(id || ':' || v, ' ' ORDER BY id) FROM public.r";
        seen.push(Client::connect(&node)?.value(sql)?);
    }
    ensure!(seen.windows(2).all(|pair| pair[0] == pair[1]), "the copies differ: {seen:?}");
    Ok(())
}

/// Whatever was set holds on all nodes for the session, and for no other.
fn settings_are_the_sessions_own(side: &mut Side) -> Result<()> {
    let sql = "SELECT DISTINCT coalesce(current_setting('app.tenant', true), '') FROM public.h";
    let own = side.client.query(sql)?;
    ensure!(own.len() == 1, "the nodes have different settings: {own:?}");
    let mut next = Client::connect(&side.endpoint)?;
    let others = next.query(sql)?;
    ensure!(others == [[Some(String::new())]], "another session has {others:?}");
    Ok(())
}

/// Which ways are refused for what such code does: a part of a distributed table read, a copy written,
/// or something done beside rows of other nodes that these would not have.
fn cannot_be_answered(kind: &str, deed: &str) -> &'static [&'static str] {
    let is_of_other_nodes =
        kind.ends_with("distributed table") || kind == "trigger behind a foreign key";
    match deed {
        "reads_spread" | "writes_copy" | "builds" => &["simple", "block", "extended"],
        "writes_home" | "sets" if is_of_other_nodes => &["simple", "block", "extended"],
        // READ COMMITTED would give the code another moment than the rows have.
        "reads_copy" | "writes_home" if kind == "function beside rows" => &["block"],
        _ => &[],
    }
}

#[test]
fn whatever_reaches_unseen_code_answers_as_postgresql_or_not_at_all() -> Result<()> {
    let cluster = start()?;
    let alone = servers::start(1)?;
    let mut sides = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    for side in &mut sides {
        for (deed, body) in DEEDS {
            for statement in functions(deed, body).split(";\n") {
                side.make(statement)?;
            }
        }
    }
    let mut number = 0;
    for (kind, object, statement) in KINDS {
        for (deed, _) in DEEDS {
            let mut refused = BTreeSet::new();
            for level in 0..3 {
                number += 1;
                let (case, function) = (format!("c{number}"), format!("{deed}_{level}"));
                let [plain, tutti] = &mut sides;
                if kind == "operator" && 1 < number {
                    for side in [&mut *plain, &mut *tutti] {
                        side.make("DROP OPERATOR IF EXISTS public.### (int, int)")?;
                    }
                }
                ensure!(make_object(plain, &case, &function, kind, object)?);
                if !make_object(tutti, &case, &function, kind, object)? {
                    refused.insert("made");
                    continue;
                }
                let statement = statement.replace("{f}", &function).replace("{t}", &case);
                for way in [Way::Simple, Way::Block, Way::Extended] {
                    let about = || format!("{kind}, {function}, {way:?}: {statement}");
                    let got = tutti.run(&statement, way).with_context(about)?;
                    same_copies(&cluster).with_context(about)?;
                    if deed == "sets" {
                        settings_are_the_sessions_own(tutti).with_context(about)?;
                    }
                    tutti.client.query("RESET app.tenant")?;
                    if got == "0A000" {
                        refused.insert(way.name());
                        continue;
                    }
                    let expected = plain.run(&statement, way).with_context(about)?;
                    plain.client.query("RESET app.tenant")?;
                    ensure!(got == expected, "{}: {got} instead of {expected}", about());
                    for table in ["r", "l"] {
                        let sql = format!(
                            "SELECT string_agg(id || ':' || v, ' ' ORDER BY id) FROM public.{table}"
                        );
                        let (is, should) = (tutti.client.value(&sql)?, plain.client.value(&sql)?);
                        ensure!(is == should, "{}: {table} has {is} instead of {should}", about());
                    }
                }
            }
            let expected = BTreeSet::from_iter(cannot_be_answered(kind, deed).iter().copied());
            ensure!(
                refused == expected,
                "{kind}, {deed}: refused {refused:?}, expected {expected:?}"
            );
        }
    }
    Ok(())
}

/// PostgreSQL keeps a rule's condition apart from what it does.
#[test]
fn conditions_of_rules_are_code_too() -> Result<()> {
    let cluster = start()?;
    let alone = servers::start(1)?;
    let mut sides = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    let [_, tutti] = &mut sides;
    let condition = "query_to_xml('SELECT count(*) FROM public.h', true, true, '')::text ~ '90'";
    ensure!(tutti.make(&format!(
        "CREATE RULE leaves_out AS ON INSERT TO public.l WHERE {condition} DO INSTEAD NOTHING"
    ))?);
    // As it is read for the change alone, and as it is read with all the rest.
    for change in ["", "CREATE FUNCTION public.more() RETURNS int LANGUAGE sql AS 'SELECT 1'"] {
        ensure!(tutti.make(change)?);
        for way in [Way::Simple, Way::Block, Way::Extended] {
            let got = tutti.run("INSERT INTO public.l VALUES (7, 7)", way)?;
            ensure!(got == "0A000", "{way:?}: {got}");
        }
    }
    Ok(())
}

/// A row that a statement has whole is a type, too, whatever it is called there.
#[test]
fn rows_that_are_made_anew_run_the_code_of_their_columns_types() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run_all(
        &mut client,
        &[
            "CREATE TABLE spread (id int PRIMARY KEY, n int) DISTRIBUTE BY HASH (id)",
            "INSERT INTO spread SELECT g, g FROM generate_series(1, 20) g",
            "CREATE FUNCTION low() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM public.spread) < 20; END'",
            "CREATE DOMAIN checked AS int CHECK (value < 0 OR low())",
            "CREATE TABLE dh (id int, a checked)",
            "INSERT INTO dh VALUES (1, -1)",
            "CREATE TABLE dest (id int, a int)",
            "CREATE VIEW v AS SELECT d FROM dh d",
            "CREATE VIEW w AS SELECT jsonb_populate_record(d, '{\"a\": 1}') AS r FROM dh d",
            "CREATE FUNCTION f() RETURNS text LANGUAGE sql AS 'SELECT jsonb_populate_record(d, ''{\"a\": 1}'')::text FROM public.dh d'",
        ],
    )?;
    for sql in [
        "SELECT 6::checked",
        "SELECT jsonb_populate_record(null::dh, '{\"a\": 1}')",
        "SELECT jsonb_populate_record(d, '{\"a\": 1}') FROM dh d",
        "SELECT json_populate_record(d, '{\"a\": 1}') FROM dh d",
        "SELECT (jsonb_populate_record((SELECT d FROM dh d LIMIT 1), '{\"a\": 1}')).a",
        "SELECT jsonb_populate_record(v.d, '{\"a\": 1}') FROM v",
        "WITH c AS (SELECT d FROM dh d) SELECT jsonb_populate_record(c.d, '{\"a\": 1}') FROM c",
        "INSERT INTO dest SELECT (jsonb_populate_record(d, '{\"a\": 1}')).* FROM dh d",
        "SELECT * FROM w",
        "SELECT f()",
    ] {
        let answer = client.simple(sql, b"")?;
        let told = answer.error().map(|error| error.sqlstate().to_owned());
        ensure!(told.as_deref() == Some("0A000"), "{sql}: {answer}");
    }
    // Where no column's type has such code, any node may.
    let sum = "SELECT sum((jsonb_populate_record(s, '{\"n\": 1}')).n) FROM spread s";
    ensure!(client.value(sum)? == "20");
    Ok(())
}

/// One index over such code stops REINDEX of itself, and of no others.
#[test]
fn indexes_over_unseen_code_stop_nobody_elses() -> Result<()> {
    let cluster = start()?;
    let alone = servers::start(1)?;
    let mut sides = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    let [_, tutti] = &mut sides;
    for text in [
        "CREATE FUNCTION public.counts(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN x + (SELECT count(*) FROM public.h WHERE id < 0); END'",
        "CREATE SCHEMA theirs",
        "CREATE TABLE theirs.t (id int)",
        "CREATE INDEX \"A i\" ON theirs.t (public.counts(id))",
        "CREATE SCHEMA mine",
        "CREATE TABLE mine.t (id int); CREATE INDEX i ON mine.t (id)",
    ] {
        ensure!(tutti.make(text)?, "{text}");
    }
    for (text, is_refused) in [
        ("REINDEX INDEX mine.i", false),
        ("REINDEX TABLE mine.t", false),
        ("REINDEX SCHEMA mine", false),
        ("REINDEX SYSTEM postgres", false),
        ("REINDEX INDEX theirs.\"A i\"", true),
        ("REINDEX TABLE theirs.t", true),
        ("REINDEX SCHEMA theirs", true),
        ("REINDEX DATABASE postgres", true),
    ] {
        let got = tutti.run(text, Way::Simple)?;
        ensure!(got == if is_refused { "0A000" } else { "done" }, "{text}: {got}");
    }
    Ok(())
}

/// Which partition a row belongs to is asked of rows that are there when one is attached.
#[test]
fn attaching_partitions_runs_the_keys_code() -> Result<()> {
    let cluster = start()?;
    let alone = servers::start(1)?;
    let mut sides = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    for side in &mut sides {
        for text in [
            "CREATE FUNCTION public.many(x int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN (SELECT count(*) FROM public.h); END'",
            "CREATE TABLE public.top (a int) PARTITION BY RANGE (public.many(a))",
            "CREATE TABLE public.mid (a int) PARTITION BY RANGE (a)",
            "CREATE TABLE public.leaf (a int)",
        ] {
            ensure!(side.make(text)?, "{text}");
        }
    }
    let [_, tutti] = &mut sides;
    tutti.client.query("INSERT INTO public.leaf VALUES (1)")?;
    for attach in [
        "ALTER TABLE public.top ATTACH PARTITION public.leaf FOR VALUES FROM (8) TO (50)",
        "ALTER TABLE public.top ATTACH PARTITION public.leaf FOR VALUES FROM (90) TO (91)",
    ] {
        for way in [Way::Simple, Way::Block, Way::Extended] {
            let got = tutti.run(attach, way)?;
            ensure!(got == "0A000", "{attach}, {way:?}: {got}");
        }
    }
    // Its rows have to belong to where the table above is.
    tutti
        .client
        .query("ALTER TABLE public.top ATTACH PARTITION public.mid FOR VALUES FROM (8) TO (50)")?;
    let below = "ALTER TABLE public.mid ATTACH PARTITION public.leaf FOR VALUES FROM (0) TO (9)";
    ensure!(tutti.run(below, Way::Simple)? == "0A000");
    Ok(())
}

/// Ways to read a distributed table on one node.
const READINGS: [(&str, &str); 9] = [
    ("rows", "SELECT count(*) FROM public.{t}"),
    ("index", "SELECT count(*) FROM public.{t} WHERE id BETWEEN 1 AND 80"),
    ("place", "SELECT count(*) FROM public.{t} WHERE ctid = '(0,1)'"),
    ("places", "SELECT count(*) FROM public.{t} WHERE ctid < '(1000,0)'"),
    ("pages", "SELECT count(*) FROM public.{t} TABLESAMPLE SYSTEM (100)"),
    ("sample", "SELECT count(*) FROM public.{t} TABLESAMPLE BERNOULLI (100)"),
    ("locked", "SELECT count(*) FROM (SELECT id FROM public.{t} FOR UPDATE) AS s"),
    (
        "text",
        "SELECT length(query_to_xml('SELECT id FROM public.{t} ORDER BY id', true, true, '')::text)",
    ),
    ("xml", "SELECT length(table_to_xml('public.{t}', true, true, '')::text)"),
];

/// How a function reads: directly, in a text that it composes, in a block that is undone, and
/// undone in a function that another one calls.
const WRAPPINGS: [&str; 4] = [
    "RETURN ({q});",
    "EXECUTE $q${q}$q$ INTO n; RETURN n;",
    "BEGIN EXECUTE $q${q}$q$ INTO n; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN RETURN n; END;",
    "BEGIN n := ({q}); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END; RETURN n;",
];

#[test]
fn however_code_reads_and_whatever_it_undoes_a_part_is_never_taken_for_the_whole() -> Result<()> {
    let cluster = start()?;
    let alone = servers::start(1)?;
    let [mut plain, mut tutti] = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    read_in_all_ways(&mut plain, &mut tutti, "h")?;
    for side in [&mut plain, &mut tutti] {
        side.make("CREATE TABLE public.s (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
    }
    let key = key_of_another_node(&cluster, &mut tutti.client)?;
    plain.make(&format!("INSERT INTO public.s VALUES ({key}, 0)"))?;
    read_in_all_ways(&mut plain, &mut tutti, "s")
}

/// Puts one row into the table s, on another node: node 1 has no page of it.
fn key_of_another_node(cluster: &TestCluster, client: &mut Client) -> Result<i32> {
    for key in 1..100 {
        client.query(&format!("INSERT INTO public.s VALUES ({key}, 0)"))?;
        let mut home = Client::connect(&cluster.nodes()[0])?;
        if home.value("SELECT count(*) FROM public.s")? == "0" {
            return Ok(key);
        }
        client.query("TRUNCATE public.s")?;
    }
    bail!("all keys are node 1's")
}

fn read_in_all_ways(plain: &mut Side, tutti: &mut Side, table: &str) -> Result<()> {
    let mut number = 0;
    for (reading, query) in READINGS {
        for wrapping in WRAPPINGS {
            number += 1;
            let body = wrapping.replace("{q}", query).replace("{t}", table);
            let create = format!(
                "CREATE FUNCTION public.{table}_{number}() RETURNS bigint LANGUAGE plpgsql AS \
                 $f$DECLARE n bigint; BEGIN {body} END$f$"
            );
            ensure!(plain.make(&create)? && tutti.make(&create)?);
            for way in [Way::Simple, Way::Block, Way::Extended] {
                let sql = format!("SELECT public.{table}_{number}()");
                let about = || format!("{reading} of {table}, {way:?}: {body}");
                let got = tutti.run(&sql, way).with_context(about)?;
                let expected = plain.run(&sql, way).with_context(about)?;
                ensure!(
                    got == "0A000" || got == expected,
                    "{}: {got} instead of {expected}",
                    about()
                );
            }
        }
    }
    Ok(())
}

/// What makes code that reads a part of the table h, and what runs it. `g()` counts h.
const HIDDEN: [(&str, &str); 16] = [
    (
        "CREATE FUNCTION public.b1() RETURNS bigint LANGUAGE plpgsql AS $f$DECLARE n bigint; BEGIN
         SELECT count(*) INTO n FROM public.r a JOIN public.r b ON a.id = CASE WHEN b.id > 0 THEN b.id ELSE 0 END
         JOIN public.h ON h.id = a.id; RETURN n; END$f$",
        "SELECT public.b1()",
    ),
    (
        "CREATE FUNCTION public.b2() RETURNS bigint LANGUAGE plpgsql AS $f$DECLARE n bigint; BEGIN
         SELECT count(*) AS distinct FROM public.h INTO n; RETURN n; END$f$",
        "SELECT public.b2()",
    ),
    (
        "CREATE FUNCTION public.b3() RETURNS bigint LANGUAGE plpgsql AS $f$DECLARE n bigint; BEGIN
         SELECT count(*) INTO n FROM public.r \"end\", public.h; RETURN n; END$f$",
        "SELECT public.b3()",
    ),
    (
        "CREATE FUNCTION public.b4() RETURNS bigint LANGUAGE plpgsql AS $f$DECLARE n bigint; BEGIN
         SELECT count(*) FROM public.r INTO n JOIN public.h USING (id); RETURN n; END$f$",
        "SELECT public.b4()",
    ),
    (
        "CREATE FUNCTION public.b5(a bigint DEFAULT public.g()) RETURNS bigint LANGUAGE sql AS 'SELECT a'",
        "SELECT public.b5()",
    ),
    (
        "CREATE FUNCTION public.b6() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT public.b5(); END",
        "SELECT public.b6()",
    ),
    (
        "CREATE DOMAIN public.dg AS bigint DEFAULT public.g();
         CREATE TABLE public.b7 (id int PRIMARY KEY, u public.dg) DISTRIBUTE BY HASH (id)",
        "INSERT INTO public.b7 (id) VALUES (1), (2), (3) RETURNING u",
    ),
    (
        "CREATE TABLE public.b8 (id int PRIMARY KEY, u public.dg) DISTRIBUTE BY REPLICATED",
        "INSERT INTO public.b8 (id) VALUES (1), (2), (3) RETURNING u",
    ),
    (
        "CREATE FUNCTION public.notes(x int) RETURNS boolean LANGUAGE plpgsql AS
         $f$BEGIN UPDATE public.l SET v = (SELECT count(*) FROM public.h) + x; RETURN true; END$f$;
         CREATE DOMAIN public.dn AS int CHECK (public.notes(value));
         CREATE TABLE public.od (a int, n public.dn)",
        "SELECT ('(1,50)'::public.od).n",
    ),
    ("", "SELECT (ROW(1, 50)::public.od).n"),
    ("", "SELECT (jsonb_populate_record(null::public.od, '{\"n\": 50}')).n"),
    (
        "CREATE FUNCTION public.b9() RETURNS int LANGUAGE plpgsql AS $f$DECLARE x public.od; BEGIN x.n := 50; RETURN x.n; END$f$",
        "SELECT public.b9()",
    ),
    (
        "CREATE FUNCTION public.frow(x public.r) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM public.h'",
        "SELECT DISTINCT (x).frow FROM public.r x",
    ),
    ("CREATE FUNCTION public.\"É\"() RETURNS bigint LANGUAGE sql AS 'SELECT public.g()'", "SELECT É()"),
    ("", "SELECT public.U&\"\\0067\"()"),
    (
        "CREATE FUNCTION public.a_function_whose_name_has_sixty_three_bytes_which_is_what_fits_x() RETURNS bigint LANGUAGE sql AS 'SELECT public.g()'",
        "SELECT public.a_function_whose_name_has_sixty_three_bytes_which_is_what_fits_x_and_more()",
    ),
];

#[test]
fn code_is_found_however_it_is_written() -> Result<()> {
    let cluster = start()?;
    let alone = servers::start(1)?;
    let [mut plain, mut tutti] = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    for side in [&mut plain, &mut tutti] {
        let counts = "CREATE FUNCTION public.g() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM public.h'";
        ensure!(side.make(counts)?);
    }
    for (objects, statement) in HIDDEN {
        for side in [&mut plain, &mut tutti] {
            for object in objects.split(";\n").filter(|object| !object.trim().is_empty()) {
                ensure!(side.make(object).with_context(|| object.to_owned())?, "{object}");
            }
        }
        for way in [Way::Simple, Way::Extended] {
            let got = tutti.run(statement, way)?;
            if got == "0A000" {
                continue;
            }
            let expected = plain.run(statement, way)?;
            ensure!(got == expected, "{statement}: {got} instead of {expected}");
            let left = "SELECT v FROM public.l";
            let (got, expected) = (tutti.client.value(left)?, plain.client.value(left)?);
            ensure!(got == expected, "{statement} leaves {got} instead of {expected}");
        }
        same_copies(&cluster)?;
    }
    Ok(())
}

#[test]
fn names_mean_what_they_mean_now() -> Result<()> {
    let cluster = start()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE SCHEMA s3",
        "CREATE TABLE s3.w (k int, v text) DISTRIBUTE BY HASH (k)",
        "INSERT INTO s3.w SELECT g, 's3' FROM generate_series(1, 30) AS g",
        "CREATE TABLE public.w (k int, v text)",
        "INSERT INTO public.w SELECT g, 'public' FROM generate_series(1, 5) AS g",
        "CREATE ROLE app LOGIN",
        "GRANT SELECT ON public.w TO app",
    ] {
        owner.query(sql)?;
    }
    // What was LOCAL has ended.
    for set in [
        "SET LOCAL search_path = s3",
        "DO $$BEGIN SET LOCAL search_path = s3; END$$",
        "SELECT set_config('search_path', 's3', true)",
    ] {
        owner.query(&format!("BEGIN; {set}; COMMIT"))?;
        ensure!(owner.value("SELECT count(*) FROM w")? == "5", "{set}");
        owner.query("BEGIN")?;
        owner.query(set)?;
        ensure!(owner.value("SELECT count(*) FROM w")? == "30", "{set}");
        owner.query("COMMIT")?;
        ensure!(owner.value("SELECT count(*) FROM w")? == "5", "{set}");
    }
    // A temporary table hides others only where its schema comes first.
    owner.query("CREATE TEMP TABLE w (k int, v text)")?;
    ensure!(owner.value("SELECT count(*) FROM w")? == "0");
    owner.query("SET search_path = s3, pg_temp")?;
    ensure!(owner.value("SELECT count(*) FROM w")? == "30");
    owner.query("RESET search_path")?;
    owner.query("DROP TABLE pg_temp.w")?;
    // A schema of the path that comes later.
    let mut app = Client::connect_as(&cluster.endpoint(), "app")?;
    ensure!(app.value("SELECT count(*) FROM w")? == "5");
    owner.query("CREATE SCHEMA app AUTHORIZATION app")?;
    owner.query("CREATE TABLE app.w (k int, v text) DISTRIBUTE BY HASH (k)")?;
    owner.query("INSERT INTO app.w SELECT g, 'app' FROM generate_series(1, 7) AS g")?;
    owner.query("ALTER TABLE app.w OWNER TO app")?;
    ensure!(app.value("SELECT count(*) FROM w")? == "7");
    // One that may be used later.
    app.query("SET search_path = s3, public")?;
    ensure!(app.value("SELECT count(*) FROM w")? == "5");
    owner.query("GRANT SELECT ON s3.w TO app")?;
    ensure!(app.value("SELECT count(*) FROM w")? == "5");
    owner.query("GRANT USAGE ON SCHEMA s3 TO app")?;
    ensure!(app.value("SELECT count(*) FROM w")? == "30");
    Ok(())
}

#[test]
fn a_cast_of_one_role_stops_nobody_else() -> Result<()> {
    let cluster = start()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    for statement in TABLES.split(';') {
        owner.query(statement)?;
    }
    owner.query("CREATE ROLE mal LOGIN; CREATE SCHEMA mal AUTHORIZATION mal")?;
    let mut mal = Client::connect_as(&cluster.endpoint(), "mal")?;
    mal.query("CREATE TABLE mal.t (k int)")?;
    mal.query(
        "CREATE FUNCTION mal.f(mal.t) RETURNS int LANGUAGE sql AS 'SELECT count(*)::int FROM public.h'",
    )?;
    mal.query("CREATE CAST (mal.t AS int) WITH FUNCTION mal.f(mal.t)")?;
    for sql in [
        "BEGIN",
        "SET LOCAL work_mem = '5MB'",
        "UPDATE public.h SET v = v + 1",
        "ROLLBACK",
        "SELECT sum(v) FROM public.h",
        "INSERT INTO public.r VALUES (100, 1)",
        "CREATE TABLE public.more (id int) DISTRIBUTE BY HASH (id)",
        "DROP TABLE public.more",
    ] {
        owner.query(sql).with_context(|| sql.to_owned())?;
    }
    owner.query("GRANT SELECT ON public.h TO mal")?;
    mal.query("INSERT INTO mal.t VALUES (1)")?;
    let answer = mal.simple("SELECT t::int FROM mal.t", b"")?;
    ensure!(answer.error().is_some_and(|error| error.sqlstate() == "0A000"), "{answer:?}");
    owner.query("DROP CAST (mal.t AS int)")?;
    Ok(())
}

#[test]
fn declarations_let_code_run_where_its_author_says() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE log (id int, what text) DISTRIBUTE BY HASH (id)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
         $$BEGIN INSERT INTO log VALUES (NEW.id, 'in'); RETURN NULL; END$$",
        "CREATE TRIGGER note AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()",
    ] {
        client.query(sql)?;
    }
    let refused = |client: &mut Client, sql: &str| -> Result<()> {
        let answer = client.simple(sql, b"")?;
        let error = answer.error().with_context(|| format!("{sql} was not refused"))?;
        ensure!(error.sqlstate() == "0A000", "{sql}: {error:?}");
        Ok(())
    };
    refused(&mut client, "INSERT INTO t VALUES (1, 1)")?;
    client.query("SELECT tutti_function('note', 'row')")?;
    client.query("INSERT INTO t SELECT g, g FROM generate_series(1, 9) AS g")?;
    ensure!(client.value("SELECT count(*) FROM log JOIN t USING (id)")? == "9");
    let declared = client.query("SELECT * FROM tutti_functions()")?;
    ensure!(declared == [["public.note", "row"].map(|text| Some(text.to_owned()))], "{declared:?}");
    client.query("SELECT tutti_function('note()', NULL)")?;
    refused(&mut client, "INSERT INTO t VALUES (10, 1)")?;
    Ok(())
}

#[test]
fn triggers_must_not_move_a_row_away_from_its_key() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE tk (id int, k int) DISTRIBUTE BY HASH (k)",
        "CREATE FUNCTION tk_f() RETURNS trigger LANGUAGE plpgsql AS
         'begin new.k := coalesce(new.k, 0) + 1; return new; end'",
        "CREATE TRIGGER tk BEFORE INSERT OR UPDATE ON tk FOR EACH ROW EXECUTE FUNCTION tk_f()",
    ] {
        client.query(sql)?;
    }
    let answer =
        client.simple("INSERT INTO tk SELECT n, n FROM generate_series(1, 20) AS n", b"")?;
    ensure!(answer.error().is_some_and(|error| error.sqlstate() == "0A000"), "{answer:?}");
    client.query(
        "CREATE OR REPLACE FUNCTION tk_f() RETURNS trigger LANGUAGE plpgsql AS
         'begin new.id := coalesce(new.id, 0) + 1; return new; end'",
    )?;
    client.query("INSERT INTO tk SELECT n, n FROM generate_series(1, 20) AS n")?;
    ensure!(client.value("SELECT id FROM tk WHERE k = 3")? == "4");
    Ok(())
}

#[test]
fn settings_by_bound_names_and_views_hold_on_all_nodes() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE h (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    client.query("INSERT INTO h SELECT generate_series(1, 30)")?;
    let seen = |client: &mut Client, name: &str| -> Result<Vec<Vec<Option<String>>>> {
        client.query(&format!("SELECT DISTINCT current_setting('{name}', true) FROM h"))
    };
    let set = |client: &mut Client, name: &str, value: &str| -> Result<()> {
        let values = [Some(name.to_owned()), Some(value.to_owned())];
        let request = Request {
            sql: "SELECT set_config($1, $2, false)",
            types: &[],
            arguments: &[tutti_tests::client::text_arguments(&values)],
            row_limit: 0,
        };
        let answer = client.extended(&request, Flight::OneFlight, b"")?;
        ensure!(answer.error().is_none(), "{answer:?}");
        Ok(())
    };
    for (name, value) in [("app.tenant", "t2"), ("TimeZone", "Asia/Tokyo")] {
        set(&mut client, name, value)?;
        ensure!(seen(&mut client, name)? == [[Some(value.to_owned())]], "{name}");
    }
    set(&mut client, "default_transaction_isolation", "serializable")?;
    ensure!(
        client
            .query("BEGIN; SHOW transaction_isolation")?
            .concat()
            .contains(&Some("serializable".to_owned()))
    );
    client.query("COMMIT")?;
    client.query("UPDATE pg_settings SET setting = '7MB' WHERE name = 'work_mem'")?;
    ensure!(seen(&mut client, "work_mem")? == [[Some("7MB".to_owned())]]);
    let mut next = Client::connect(&cluster.endpoint())?;
    for name in ["app.tenant", "default_transaction_isolation", "work_mem"] {
        let others = seen(&mut next, name)?.concat();
        let own = [Some("t2".to_owned()), Some("serializable".to_owned()), Some("7MB".to_owned())];
        ensure!(others.len() == 1 && !own.contains(&others[0]), "{name}: {others:?}");
    }
    Ok(())
}

/// Ways in which code that reads a part of h, and undoes that, is kept from being told of.
const HIDING: [(&str, &str); 8] = [
    ("SET track_counts = off", "SELECT public.undoes()"),
    ("SELECT set_config('track_counts', 'off', false)", "SELECT public.undoes()"),
    ("ALTER ROLE CURRENT_USER SET track_counts = off", "SELECT public.undoes()"),
    ("ALTER FUNCTION public.undoes() SET track_counts = off", "SELECT public.undoes()"),
    (
        "CREATE FUNCTION public.uncounted() RETURNS bigint LANGUAGE plpgsql AS $f$DECLARE n bigint; BEGIN \
         PERFORM set_config('track_counts', 'off', true); n := public.undoes(); \
         PERFORM set_config('track_counts', 'on', true); RETURN n; END$f$",
        "SELECT public.uncounted()",
    ),
    ("SET force_parallel_mode = on", "SELECT public.works()"),
    ("ALTER FUNCTION public.works() SET max_parallel_workers = 8", "SELECT public.works()"),
    (
        "ALTER FUNCTION public.works() RESET ALL; SET parallel_setup_cost = 0; \
         SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0",
        "SELECT max(public.works()) FROM public.l WHERE id = 1",
    ),
];

/// Statements with `; ` between them, or one that has a body.
fn steps(sql: &str) -> impl Iterator<Item = &str> {
    sql.split(if sql.contains("$f$") { "\n\n" } else { "; " })
}

/// What accounting rests on cannot be turned off anywhere.
#[test]
fn settings_and_parallel_workers_hide_nothing_from_the_accounting() -> Result<()> {
    let cluster = start()?;
    let alone = servers::start(1)?;
    let mut sides = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    for (function, manner, wrapped) in [
        (
            "undoes",
            "",
            "BEGIN n := public.g(); PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END",
        ),
        ("works", "PARALLEL SAFE", "EXECUTE 'SELECT count(*) FROM public.' || 'h' INTO n"),
    ] {
        for side in &mut sides {
            side.make(
                "CREATE OR REPLACE FUNCTION public.g() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM public.h'",
            )?;
            side.make(&format!(
                "CREATE FUNCTION public.{function}() RETURNS bigint {manner} LANGUAGE plpgsql AS \
                 $f$DECLARE n bigint; BEGIN {wrapped}; RETURN n; END$f$"
            ))?;
        }
    }
    for (hiding, sql) in HIDING {
        for side in &mut sides {
            // A role's settings are those of sessions that begin later.
            for step in steps(hiding) {
                ensure!(side.make(step)?, "{step}");
            }
            side.client = Client::connect(&side.endpoint)?;
            for step in steps(hiding).filter(|step| step.starts_with("SE")) {
                ensure!(side.make(step)?, "{step}");
            }
        }
        let [plain, tutti] = &mut sides;
        for way in [Way::Simple, Way::Block, Way::Extended] {
            let (got, expected) = (tutti.run(sql, way)?, plain.run(sql, way)?);
            ensure!(got == "0A000" || got == expected, "{hiding}, {way:?}: {got}, not {expected}");
        }
        for side in &mut sides {
            side.make("ALTER ROLE CURRENT_USER RESET ALL")?;
        }
    }
    Ok(())
}

/// What rules do: the action, where `{n}` is the new or the old row.
const ACTIONS: [&str; 12] = [
    "DO INSTEAD NOTHING",
    "WHERE {n}.v > 5 DO INSTEAD NOTHING",
    "WHERE (SELECT count(*) FROM public.{t}) > 20 DO INSTEAD NOTHING",
    "DO INSTEAD SELECT 1 AS a",
    "DO INSTEAD SELECT count(*) FROM public.{t}",
    "DO ALSO SELECT 2 AS b",
    "DO ALSO VALUES (1), (2)",
    "DO ALSO SELECT set_config('app.rule', {n}.v::text, false)",
    "DO ALSO INSERT INTO public.{t}_log VALUES ({n}.id + 1000, {n}.v)",
    "DO INSTEAD (DELETE FROM public.{t}_log WHERE id = 1; SELECT 5 AS c)",
    "DO INSTEAD DELETE FROM public.{t} WHERE id = 1",
    "DO ALSO NOTIFY n",
];

/// Rules on tables of which several nodes have a part or a copy.
#[test]
fn rules_answer_as_postgresql_or_are_refused() -> Result<()> {
    let cluster = start()?;
    let alone = servers::start(1)?;
    let mut sides = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    let (mut number, mut answered) = (0, 0);
    for placed in ["HASH (id)", "REPLICATED"] {
        for (event, row, statements) in [
            (
                "INSERT",
                "new",
                [
                    "INSERT INTO {t} VALUES (50, 5), (51, 6), (52, 7)",
                    "INSERT INTO {t} VALUES (53, 9) RETURNING id",
                ],
            ),
            (
                "UPDATE",
                "new",
                ["UPDATE {t} SET v = v + 1", "UPDATE {t} SET v = 7 WHERE id = 4 RETURNING v"],
            ),
            (
                "DELETE",
                "old",
                ["DELETE FROM {t} WHERE v > 15", "DELETE FROM {t} WHERE id = 5 RETURNING v"],
            ),
        ] {
            for action in ACTIONS {
                number += 1;
                let table = format!("ru{number}");
                let action = action.replace("{n}", row).replace("{t}", &table);
                let rule = format!("CREATE RULE a AS ON {event} TO public.{table} {action}");
                let mut is_made = true;
                for side in &mut sides {
                    for sql in [
                        format!(
                            "CREATE TABLE public.{table} (id int PRIMARY KEY, v int) DISTRIBUTE BY {placed}"
                        ),
                        format!(
                            "CREATE TABLE public.{table}_log (id int, v int) DISTRIBUTE BY HASH (id)"
                        ),
                        format!(
                            "INSERT INTO public.{table} SELECT g, g FROM generate_series(1, 20) AS g"
                        ),
                        format!("INSERT INTO public.{table}_log VALUES (1, 1), (2, 2)"),
                    ] {
                        ensure!(side.make(&sql)?, "{sql}");
                    }
                    is_made &= side.make(&rule)?;
                }
                if !is_made {
                    continue;
                }
                for sql in statements {
                    let sql = sql.replace("{t}", &format!("public.{table}"));
                    let [plain, tutti] = &mut sides;
                    let got = tutti.run(&sql, Way::Simple)?;
                    if got == "0A000" {
                        continue;
                    }
                    let expected = plain.run(&sql, Way::Simple)?;
                    ensure!(got == expected, "{rule}, {sql}: {got} instead of {expected}");
                    for of in [table.clone(), format!("{table}_log")] {
                        let all = format!("SELECT * FROM public.{of} ORDER BY 1, 2");
                        let (here, there) =
                            (tutti.run(&all, Way::Simple)?, plain.run(&all, Way::Simple)?);
                        ensure!(here == there, "{rule}, {sql}: {of} has {here} instead of {there}");
                    }
                    answered += 1;
                }
            }
        }
    }
    ensure!(answered >= 8, "{answered} answered");
    Ok(())
}

/// However a trigger gives the row another key, and whatever is declared of it.
#[test]
fn no_trigger_moves_a_row_whatever_it_is_declared() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE PROCEDURE public.bump(INOUT x int) LANGUAGE plpgsql AS 'BEGIN x := x + 1; END'",
    )?;
    client.query("CREATE PROCEDURE public.bump2(a int, INOUT x int) LANGUAGE plpgsql AS 'BEGIN x := x + a; END'")?;
    let ways = [
        "CALL public.bump(NEW.k)",
        "CALL public.bump2(1, NEW.k)",
        "CALL public.bump2(x => NEW.k, a => 1)",
        "FOR i, NEW.k IN SELECT 1, NEW.k + 1 LOOP NULL; END LOOP",
        "FOR NEW.id, NEW.k IN SELECT NEW.id, NEW.k + 1 LOOP NULL; END LOOP",
        "SELECT 1, NEW.k + 1 INTO i, NEW.k",
        "{t}.new.k = new.k + 1",
        "GET DIAGNOSTICS i = ROW_COUNT, NEW.k = ROW_COUNT",
        "EXECUTE 'SELECT $1 + 1' INTO NEW.k USING NEW.k",
        "NEW := ROW(NEW.id, NEW.k + 1)",
        "RETURN ROW(NEW.id, NEW.k + 1)",
        "n.k := n.k + 1",
    ];
    for (number, way) in ways.iter().enumerate() {
        let name = format!("mv{number}");
        let way = way.replace("{t}", &format!("{name}_f"));
        client
            .query(&format!("CREATE TABLE public.{name} (id int, k int) DISTRIBUTE BY HASH (k)"))?;
        client.query(&format!(
            "CREATE FUNCTION public.{name}_f() RETURNS trigger LANGUAGE plpgsql AS \
             $f$DECLARE i int; n ALIAS FOR NEW; BEGIN {way}; RETURN NEW; END$f$"
        ))?;
        client.query(&format!(
            "CREATE TRIGGER t BEFORE INSERT ON public.{name} FOR EACH ROW EXECUTE FUNCTION public.{name}_f()"
        ))?;
        client.query(&format!("SELECT tutti_function('public.{name}_f', 'row')"))?;
        let sql = format!("INSERT INTO public.{name} SELECT g, g FROM generate_series(1, 20) AS g");
        let answer = client.simple(&sql, b"")?;
        ensure!(answer.error().is_some_and(|error| error.sqlstate() == "0A000"), "{way}: {answer}");
    }
    Ok(())
}

/// A setting whose name code puts together holds wherever something names it in full.
#[test]
fn settings_by_composed_names_hold_where_policies_and_views_name_them() -> Result<()> {
    let cluster = start()?;
    let alone = servers::start(1)?;
    let mut sides = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    for side in &mut sides {
        for sql in [
            "CREATE TABLE public.p (id int PRIMARY KEY, t text) DISTRIBUTE BY HASH (id)",
            "INSERT INTO public.p SELECT g, g % 3 FROM generate_series(1, 90) AS g",
            "CREATE POLICY own ON public.p USING (t = current_setting('app.tenant', true))",
            "ALTER TABLE public.p ENABLE ROW LEVEL SECURITY; ALTER TABLE public.p FORCE ROW LEVEL SECURITY",
            "CREATE VIEW public.v AS SELECT id FROM public.h WHERE id = current_setting('app.wanted', true)::int",
            "CREATE TABLE public.d (id int PRIMARY KEY, t text DEFAULT current_setting('app.made', true)) DISTRIBUTE BY HASH (id)",
            "CREATE FUNCTION public.sets(k text, v text) RETURNS text LANGUAGE plpgsql AS \
             $f$BEGIN RETURN set_config('app.' || k, v, false); END$f$",
            "DROP ROLE IF EXISTS test_tenant",
            "CREATE ROLE test_tenant",
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO test_tenant",
            "SET ROLE test_tenant",
        ] {
            for step in steps(sql) {
                ensure!(side.make(step)?, "{step}");
            }
        }
    }
    let [plain, tutti] = &mut sides;
    for sql in [
        "SELECT sets('ten' || 'ant', '1')",
        "SELECT count(*) FROM p",
        "SELECT sets('want' || 'ed', '7')",
        "SELECT id FROM v",
        "SELECT sets('ma' || 'de', 'x')",
        "INSERT INTO d (id) SELECT generate_series(1, 20)",
        "SELECT count(*) FROM d WHERE t = 'x'",
        "SELECT count(*) FROM p",
    ] {
        for way in [Way::Simple, Way::Block] {
            if sql.starts_with("INSERT") && way == Way::Block {
                continue;
            }
            let (got, expected) = (tutti.run(sql, way)?, plain.run(sql, way)?);
            ensure!(got == expected, "{sql}, {way:?}: {got} instead of {expected}");
        }
    }
    let mut next = Client::connect(&cluster.endpoint())?;
    ensure!(next.value("SELECT coalesce(current_setting('app.tenant', true), '')")?.is_empty());
    Ok(())
}

/// Code that only a parameter's type has, and code of indexes where these are rebuilt.
#[test]
fn parameters_and_rebuilt_indexes_run_no_code_unseen() -> Result<()> {
    let cluster = start()?;
    let alone = servers::start(1)?;
    let mut sides = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    for side in &mut sides {
        for sql in [
            "CREATE FUNCTION public.counts(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS \
             $f$DECLARE n int; BEGIN EXECUTE 'SELECT count(*) FROM public.' || 'h' INTO n; RETURN n + x; END$f$",
            "CREATE DOMAIN public.few AS int CHECK (public.counts(value) < 90)",
        ] {
            ensure!(side.make(sql)?, "{sql}");
        }
    }
    let mut answers = Vec::new();
    for side in &mut sides {
        let domain: u32 = side.client.value("SELECT 'public.few'::regtype::oid")?.parse()?;
        let array: u32 = side.client.value("SELECT 'public.few[]'::regtype::oid")?.parse()?;
        for (oid, value) in [(domain, "5"), (array, "{5}")] {
            for sql in [
                "SELECT $1",
                "SELECT id FROM public.l WHERE $1 IS NOT NULL",
                "SELECT v FROM public.h WHERE id = 1 AND $1 IS NOT NULL",
            ] {
                let arguments = [tutti_tests::client::text_arguments(&[Some(value.to_owned())])];
                let request = Request { sql, types: &[oid], arguments: &arguments, row_limit: 0 };
                answers.push(shown(&side.client.extended(&request, Flight::OneFlight, b"")?));
            }
        }
        for sql in ["PREPARE p (public.few) AS SELECT $1", "PREPARE q (public.few[]) AS SELECT $1"]
        {
            side.client.query(sql)?;
        }
        // On the cluster the domain sees a part only, and says so where it fails.
        for sql in ["EXECUTE p(NULL)", "EXECUTE q('{}')"] {
            answers.push(side.run(sql, Way::Simple)?);
        }
    }
    let (plain, tutti) = answers.split_at(answers.len() / 2);
    for (got, expected) in tutti.iter().zip(plain) {
        ensure!(got == "0A000" || got == expected, "{tutti:?} instead of {plain:?}");
    }
    // The index was made where h was at home.
    let client = &mut sides[1].client;
    client.query("SELECT tutti_home('public.h')")?;
    client.query("CREATE TABLE public.ix (id int); INSERT INTO public.ix VALUES (1)")?;
    client.query("CREATE INDEX ix_counts ON public.ix (public.counts(id))")?;
    client.query("CREATE INDEX ix_some ON public.ix (id) WHERE public.counts(id) > 80")?;
    client.query("SELECT tutti_distribute('public.h', 'id')")?;
    for sql in [
        "REINDEX TABLE public.ix",
        "REINDEX INDEX public.ix_counts",
        "REINDEX INDEX public.ix_some",
        "REINDEX SCHEMA public",
        "CLUSTER public.ix USING ix_counts",
        "VACUUM FULL public.ix",
        "VACUUM FULL",
        "VACUUM (FULL) public.ix",
        "ALTER TABLE public.ix SET UNLOGGED",
        "ALTER TABLE public.ix ADD COLUMN z float DEFAULT random()",
        "CREATE INDEX ON public.ix ((public.counts(id) + 1))",
        "INSERT INTO public.ix VALUES (2)",
    ] {
        let answer = client.simple(sql, b"")?;
        ensure!(answer.error().is_some_and(|error| error.sqlstate() == "0A000"), "{sql}: {answer}");
    }
    client.query("VACUUM public.ix")?;
    client.query("REINDEX TABLE public.l")?;
    Ok(())
}

/// What nodes have of the tables that all of them know: rights, triggers, policies, columns.
fn same_definitions(cluster: &TestCluster) -> Result<()> {
    let sql = "SELECT string_agg(concat_ws(' ', c.relname, c.relacl, c.relowner::regrole,
            c.relrowsecurity, c.relkind, (SELECT string_agg(concat(a.attname, a.attacl), ',' ORDER BY a.attnum)
                FROM pg_attribute a WHERE a.attrelid = c.oid AND 0 < a.attnum),
            (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal),
            (SELECT count(*) FROM pg_policy p WHERE p.polrelid = c.oid),
            (SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid)), '; ' ORDER BY c.relname)
        || (SELECT concat(nspacl, nspowner::regrole) FROM pg_namespace WHERE nspname = 'public')
        || (SELECT count(*) FROM pg_default_acl)
        FROM pg_class c WHERE c.oid IN ('public.h'::regclass, 'public.r'::regclass)";
    let mut seen = Vec::new();
    for node in cluster.nodes() {
        seen.push(Client::connect(&node)?.value(sql)?);
    }
    ensure!(seen.windows(2).all(|pair| pair[0] == pair[1]), "the nodes differ: {seen:#?}");
    Ok(())
}

/// Runs statements; those after an error are left out, and whatever is open is ended. The SQLSTATE, if
/// any statement has one.
fn run_all(client: &mut Client, statements: &[&str]) -> Result<Option<String>> {
    let mut failed = None;
    for statement in statements {
        let answer = client.simple(statement, b"")?;
        if let Some(error) = answer.error() {
            failed = Some(format!("{} {}", error.sqlstate(), error.message()));
            break;
        }
    }
    client.simple("ROLLBACK", b"")?;
    Ok(failed)
}

const WRITES: &str = "begin insert into public.r values (50, 0); \
    insert into public.h values (500, 0); return null; end";

#[test]
fn what_code_leaves_for_later_is_accounted_for_when_it_runs() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for statement in TABLES.split(';') {
        client.query(statement)?;
    }
    for sql in [
        format!("CREATE FUNCTION tg() RETURNS trigger LANGUAGE plpgsql AS $${WRITES}$$"),
        "CREATE TABLE o (id int)".to_owned(),
        "CREATE CONSTRAINT TRIGGER ct AFTER INSERT ON o DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION tg()"
            .to_owned(),
        "CREATE TRIGGER tt BEFORE TRUNCATE ON o EXECUTE FUNCTION tg()".to_owned(),
        "CREATE FUNCTION fine() RETURNS trigger LANGUAGE plpgsql AS
         'begin insert into public.l values (new.id, 0); return null; end'"
            .to_owned(),
        "CREATE TABLE o2 (id int)".to_owned(),
        "CREATE CONSTRAINT TRIGGER ct2 AFTER INSERT ON o2 DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION fine()"
            .to_owned(),
        "CREATE FUNCTION refc(n text, q text) RETURNS text LANGUAGE plpgsql AS
         'declare c refcursor := n; begin open c for execute q; return n; end'"
            .to_owned(),
        "CREATE TABLE o3 (id int)".to_owned(),
        "CREATE FUNCTION ok(x int) RETURNS boolean LANGUAGE plpgsql AS
         'begin return (select count(*) from public.h) >= 0; end'"
            .to_owned(),
        "INSERT INTO o3 VALUES (1)".to_owned(),
        "CREATE DOMAIN d AS int".to_owned(),
        "CREATE FUNCTION changing() RETURNS bigint LANGUAGE plpgsql AS 'begin return 1; end'"
            .to_owned(),
        "CREATE MATERIALIZED VIEW mv AS SELECT changing() AS n".to_owned(),
        "CREATE OR REPLACE FUNCTION changing() RETURNS bigint LANGUAGE plpgsql AS
         'begin return (select count(*) from public.h); end'"
            .to_owned(),
        "ALTER TABLE o3 ADD CONSTRAINT ck CHECK (ok(id)) NOT VALID".to_owned(),
    ] {
        client.query(&sql).with_context(|| sql.clone())?;
    }
    let refused: [&[&str]; 10] = [
        &["INSERT INTO o VALUES (1)"],
        &["BEGIN", "INSERT INTO o VALUES (1)", "COMMIT"],
        &["BEGIN", "SELECT count(*) FROM h", "INSERT INTO o VALUES (1)", "SELECT 1", "COMMIT"],
        &["BEGIN", "INSERT INTO o VALUES (1)", "SET CONSTRAINTS ALL IMMEDIATE", "COMMIT"],
        &["BEGIN", "INSERT INTO o VALUES (1)", "SET CONSTRAINTS ct IMMEDIATE", "COMMIT"],
        &["TRUNCATE o"],
        &["REFRESH MATERIALIZED VIEW mv"],
        &["ALTER TABLE o3 VALIDATE CONSTRAINT ck"],
        &[
            "BEGIN",
            "SELECT count(*) FROM h",
            "SELECT refc('rc', 'SELECT id FROM public.h')",
            "FETCH ALL FROM rc",
        ],
        &[
            "BEGIN",
            "SELECT count(*) FROM h",
            "SELECT refc('rc', 'SELECT id FROM public.h')",
            "MOVE ALL FROM rc",
        ],
    ];
    for statements in refused {
        let failed = run_all(&mut client, statements)?;
        ensure!(
            failed.as_deref().is_some_and(|it| it.starts_with("0A000")),
            "{statements:?}: {failed:?}"
        );
        same_copies(&cluster).with_context(|| format!("{statements:?}"))?;
        ensure!(client.value("SELECT count(*) FROM h")? == "90", "{statements:?}");
        ensure!(client.value("SELECT count(*) FROM o")? == "0", "{statements:?}");
    }
    let taken: [&[&str]; 5] = [
        &["INSERT INTO o2 VALUES (101)"],
        &["BEGIN", "INSERT INTO o2 VALUES (102)", "COMMIT"],
        &["BEGIN", "INSERT INTO o2 VALUES (103)", "SET CONSTRAINTS ALL IMMEDIATE", "COMMIT"],
        &["BEGIN", "SELECT refc('rc', 'SELECT id FROM public.o2')", "FETCH ALL FROM rc", "COMMIT"],
        &["ALTER DOMAIN d ADD CONSTRAINT positive CHECK (value > 0)"],
    ];
    for statements in taken {
        let failed = run_all(&mut client, statements)?;
        ensure!(failed.is_none(), "{statements:?}: {failed:?}");
    }
    ensure!(client.value("SELECT count(*) FROM l WHERE id > 100")? == "3");
    Ok(())
}

#[test]
fn code_changes_no_definition_that_other_nodes_have() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for statement in TABLES.split(';') {
        client.query(statement)?;
    }
    for sql in [
        "CREATE ROLE alice",
        "CREATE FUNCTION tg() RETURNS trigger LANGUAGE plpgsql AS 'begin return new; end'",
        "CREATE TRIGGER kept BEFORE INSERT ON r FOR EACH ROW EXECUTE FUNCTION tg()",
        "CREATE POLICY kept ON r USING (true)",
        "GRANT SELECT ON r TO alice",
        "CREATE TABLE o (id int)",
    ] {
        client.query(sql)?;
    }
    let deeds = [
        "truncate public.r",
        "truncate public.h",
        "alter table public.r add column x int",
        "alter table public.r enable row level security",
        "alter table public.h owner to alice",
        "create trigger t before insert on public.r for each row execute function public.tg()",
        "drop trigger kept on public.r",
        "drop policy kept on public.r",
        "create index on public.h (v)",
        "drop table public.h",
        "drop table public.r",
        "grant insert on public.r to alice",
        "grant select (id) on public.h to alice",
        "revoke select on public.r from alice",
        "grant create on schema public to alice",
        "grant all on function public.tg() to alice",
        "alter default privileges grant select on tables to alice",
        "drop owned by alice",
    ];
    let before: [&[&str]; 5] = [
        &[],
        &["UPDATE r SET v = v WHERE id = 1", "UPDATE h SET v = v WHERE id < 50"],
        &["LOCK TABLE r, h IN ACCESS EXCLUSIVE MODE"],
        &["CREATE TABLE r2 (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED"],
        &["ALTER TABLE r ADD COLUMN w int", "GRANT UPDATE ON h TO alice"],
    ];
    for deed in deeds {
        for before in before {
            let code = format!("DO $$begin execute '{deed}'; end$$");
            let mut statements = vec!["BEGIN"];
            statements.extend(before);
            statements.extend([&*code, "COMMIT"]);
            let failed = run_all(&mut client, &statements)?;
            ensure!(
                failed.as_deref().is_some_and(|it| it.starts_with("0A000")),
                "{statements:?}: {failed:?}"
            );
            same_definitions(&cluster).with_context(|| format!("{statements:?}"))?;
            ensure!(client.value("SELECT count(*) FROM h")? == "90", "{statements:?}");
        }
    }
    // What is node 1's alone may be changed.
    for code in [
        "grant select on public.o to alice",
        "create table public.o2 (id int)",
        "alter table public.o add column x int",
        "create schema tenant; grant usage on schema tenant to alice",
    ] {
        for before in before {
            let mut statements = vec!["BEGIN"];
            statements.extend(before);
            let code = format!("DO $$begin {code}; end$$");
            statements.extend([&*code, "ROLLBACK"]);
            let failed = run_all(&mut client, &statements)?;
            ensure!(failed.is_none(), "{statements:?}: {failed:?}");
        }
    }
    Ok(())
}

/// What names mean goes back with what is undone, however that happens.
#[test]
fn names_that_are_undone_are_forgotten() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run_all(
        &mut client,
        &[
            "CREATE SCHEMA n; SET search_path = n, public",
            "CREATE TABLE spread (id int, v int) DISTRIBUTE BY HASH (id)",
            "CREATE TABLE public.r (id int, v int) DISTRIBUTE BY REPLICATED",
            "INSERT INTO spread SELECT g, g FROM generate_series(1, 20) AS g",
            "INSERT INTO public.r SELECT g, g FROM generate_series(1, 20) AS g",
        ],
    )?;
    let undone: [&[&str]; 8] = [
        &["BEGIN", "SAVEPOINT s", "CREATE TEMP TABLE spread (id int)", "ROLLBACK TO s"],
        &["BEGIN", "CREATE TEMP TABLE spread (id int)", "SELECT * FROM spread", "ROLLBACK"],
        &["BEGIN", "CREATE TEMP TABLE spread (id int) ON COMMIT DROP", "TABLE spread", "COMMIT"],
        &["BEGIN", "CREATE TEMP VIEW spread AS SELECT 1 AS id", "ROLLBACK"],
        &["BEGIN", "SAVEPOINT s", "CREATE TEMP TABLE r (id int)", "TABLE r", "ROLLBACK TO s"],
        &["BEGIN", "SAVEPOINT s", "RESET ALL", "ROLLBACK"],
        &["BEGIN", "SAVEPOINT s", "SET search_path = public", "SAVEPOINT t", "ROLLBACK TO s"],
        &["BEGIN", "CREATE TABLE public.spread (id int)", "SET search_path = public", "ROLLBACK"],
    ];
    for steps in undone {
        for is_one_message in [false, true] {
            let what = steps.join("; ");
            match is_one_message {
                true => drop(client.query(&what)?),
                false => steps.iter().try_for_each(|sql| client.query(sql).map(drop))?,
            }
            ensure!(client.value("SELECT count(*) FROM spread")? == "20", "{what}");
            client.query("UPDATE spread SET v = v")?;
            client.query("INSERT INTO r VALUES (21, 1)")?;
            ensure!(client.value("SELECT count(*) FROM r")? == "21", "{what}");
            same_copies(&cluster)?;
            client.query("DELETE FROM r WHERE id = 21; COMMIT")?;
            ensure!(client.value("SELECT count(*) FROM spread")? == "20", "after COMMIT: {what}");
        }
    }
    // Statements of one flight know what those before them have made.
    let seen = client.query(
        "SELECT count(*) FROM spread; BEGIN; CREATE TEMP TABLE spread (id int); SELECT count(*) FROM spread; \
         ROLLBACK; SELECT count(*) FROM spread",
    )?;
    ensure!(seen.iter().flatten().flatten().eq(["20"]), "{seen:?}");
    client.query("CREATE TEMP TABLE spread (id int); INSERT INTO spread VALUES (1)")?;
    ensure!(client.value("SELECT count(*) FROM spread")? == "1");
    client.query("DROP TABLE spread")?;
    // What a text does that is put together, it may undo.
    client.query(
        "CREATE FUNCTION undoes() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE c bigint; BEGIN
            BEGIN c := (SELECT count(*) FROM n.spread); RAISE EXCEPTION 'x';
            EXCEPTION WHEN OTHERS THEN NULL; END; RETURN c; END $$;
         CREATE FUNCTION runs(q text) RETURNS bigint LANGUAGE plpgsql AS
            'DECLARE c bigint; BEGIN EXECUTE q INTO c; RETURN c; END'",
    )?;
    for sql in [
        "SELECT runs('SELECT n.undoes()')",
        "SELECT query_to_xml('SELECT n.undoes()', false, false, '')",
        "DO $$ DECLARE c bigint; BEGIN EXECUTE 'SELECT n.und' || 'oes()' INTO c; END $$",
    ] {
        let told = client.query(sql).expect_err(sql).to_string();
        ensure!(told.contains("0A000"), "{sql}: {told}");
    }
    Ok(())
}

/// What waits for the end of a transaction in another role's schema does not concern others.
#[test]
fn deferred_triggers_of_one_role_stop_nobody_else() -> Result<()> {
    let cluster = start()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    owner.query("CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN")?;
    owner.query("CREATE SCHEMA anns AUTHORIZATION ann; CREATE SCHEMA bobs AUTHORIZATION bob")?;
    let mut bob = Client::connect_as(&cluster.endpoint(), "bob")?;
    bob.query("SET search_path = bobs; CREATE TABLE h (id int)")?;
    bob.query("CREATE FUNCTION tg() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")?;
    bob.query(
        "CREATE CONSTRAINT TRIGGER ct AFTER INSERT ON h DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION tg()",
    )?;
    let mut ann = Client::connect_as(&cluster.endpoint(), "ann")?;
    ann.query("SET search_path = anns; CREATE TABLE h (id int)")?;
    ann.query(
        "CREATE FUNCTION f(x int) RETURNS int LANGUAGE plpgsql
            AS 'BEGIN EXECUTE ''INSERT INTO anns.h VALUES ($1)'' USING x; RETURN x; END'",
    )?;
    ann.query("SELECT f(1)")?;
    ann.query("BEGIN; SELECT f(2); COMMIT")?;
    ensure!(ann.value("SELECT count(*) FROM h")? == "2");
    bob.query("INSERT INTO h VALUES (1)")?;
    bob.query("BEGIN; DO $$BEGIN EXECUTE 'INSERT INTO bobs.h VALUES (2)'; END$$; COMMIT")?;
    ensure!(bob.value("SELECT count(*) FROM h")? == "2");
    Ok(())
}

/// What a server has computed from a part of a table, for a statement that was refused, it must not use for
/// the next one.
#[test]
fn a_refused_statement_is_refused_again() -> Result<()> {
    let mut cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run_all(
        &mut client,
        &[
            "CREATE TABLE spread (id int PRIMARY KEY, n int) DISTRIBUTE BY HASH (id)",
            "INSERT INTO spread SELECT g, g FROM generate_series(1, 20) g",
            "CREATE TABLE kept (id int PRIMARY KEY, n bigint); INSERT INTO kept VALUES (1, 1)",
            "CREATE FUNCTION counted() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT count(*) FROM public.spread'",
            "CREATE FUNCTION price(x int) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN x * public.counted(); END'",
            "CREATE FUNCTION low() RETURNS bool LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN (SELECT count(*) FROM public.spread) < 20; END'",
            "CREATE DOMAIN checked AS int CHECK (low() OR value < 0)",
            "CREATE FUNCTION sets() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN new.n := public.counted(); RETURN new; END'",
            "CREATE TABLE fired (id int, n bigint)",
            "CREATE TRIGGER s BEFORE INSERT ON fired FOR EACH ROW EXECUTE FUNCTION sets()",
        ],
    )?;
    let statements = [
        "SELECT price(1)",
        "UPDATE kept SET n = price(1)",
        "INSERT INTO fired VALUES (1, 1)",
        "SELECT 5::checked",
        "DO $$ DECLARE c checked; BEGIN c := 5; END $$",
    ];
    // On a connection that goes back, on one that is bound to the session, and within a transaction.
    for bind in ["SELECT 1", "SELECT pg_advisory_lock(7)"] {
        client.query(bind)?;
        for sql in &statements[..3] {
            for _ in 0..3 {
                let answer = client.simple(sql, b"")?;
                let told = answer.error().map(|error| error.sqlstate().to_owned());
                ensure!(told.as_deref() == Some("0A000"), "{bind}; {sql}: {answer}");
            }
        }
    }
    client.query("SELECT pg_advisory_unlock_all()")?;
    for sql in statements {
        for _ in 0..2 {
            let mut other = Client::connect(&cluster.endpoint())?;
            let answer = other.simple(sql, b"")?;
            let told = answer.error().map(|error| error.sqlstate().to_owned());
            ensure!(told.as_deref() == Some("0A000"), "{sql}: {answer}");
        }
    }
    for sql in &statements[..3] {
        client.query("BEGIN; SAVEPOINT s")?;
        for _ in 0..3 {
            let answer = client.simple(sql, b"")?;
            let told = answer.error().map(|error| error.sqlstate().to_owned());
            ensure!(told.as_deref() == Some("0A000"), "in a transaction: {sql}: {answer}");
            client.query("ROLLBACK TO s")?;
        }
        client.query("COMMIT")?;
    }
    ensure!(client.value("SELECT n FROM kept")? == "1");
    cluster.stop_gateway()
}

/// What writes with rows of spread tables, and runs code that reads, is of one moment outside transactions.
#[test]
fn a_write_that_gathers_runs_code_beside_it() -> Result<()> {
    let mut cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run_all(
        &mut client,
        &[
            "CREATE TABLE spread (id int PRIMARY KEY, n int) DISTRIBUTE BY HASH (id)",
            "INSERT INTO spread SELECT g, g FROM generate_series(1, 12) g",
            "CREATE TABLE copied (id int PRIMARY KEY, n int) DISTRIBUTE BY REPLICATED",
            "INSERT INTO copied SELECT g, g FROM generate_series(1, 12) g",
            "CREATE TABLE h (id serial PRIMARY KEY, n int); CREATE TABLE audit (n int)",
            "CREATE FUNCTION audits() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN INSERT INTO audit VALUES (new.n); RETURN new; END'",
            "CREATE TRIGGER a AFTER INSERT OR UPDATE ON h FOR EACH ROW EXECUTE FUNCTION audits()",
            "CREATE FUNCTION looks(x int) RETURNS int LANGUAGE plpgsql STABLE AS
                'BEGIN RETURN (SELECT c.n FROM public.copied c WHERE c.id = x); END'",
        ],
    )?;
    for (sql, audited) in [
        ("INSERT INTO h (n) SELECT n FROM spread", "12"),
        ("UPDATE h SET n = s.n FROM spread s WHERE s.id = h.id", "24"),
        ("INSERT INTO h (n) VALUES ((SELECT max(n) FROM spread))", "25"),
        ("WITH q AS (SELECT n FROM spread) INSERT INTO h (n) SELECT n FROM q", "37"),
        ("INSERT INTO h (n) SELECT looks(s.id) FROM spread s JOIN spread o ON o.n = s.n", "49"),
    ] {
        run_all(&mut client, &[sql])?;
        let count = client.value("SELECT count(*) FROM audit")?;
        ensure!(count == audited, "{sql}: {count}");
    }
    cluster.stop_gateway()
}

/// What code makes on node 1 is made on other nodes, and nothing that others have made or are dropping.
#[test]
fn code_brings_what_it_has_made_itself() -> Result<()> {
    let mut cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run_all(
        &mut client,
        &[
            "CREATE TABLE spread (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
            "INSERT INTO spread SELECT generate_series(1, 20)",
            "CREATE TYPE going AS ENUM ('a')",
            "CREATE FUNCTION goes(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'",
        ],
    )?;
    // As if another session's DROP were committed there and not yet on node 1.
    let mut node = Client::connect(&cluster.nodes()[1])?;
    node.query("DROP TYPE going; DROP FUNCTION goes(int)")?;
    cluster.leave_unaudited("what it drops on one node alone stays dropped there");
    for make in [
        "DO $$ BEGIN CREATE TYPE mine AS ENUM ('a'); CREATE FUNCTION made(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1'; END $$",
        "DO $$ BEGIN BEGIN CREATE DOMAIN also AS int; EXCEPTION WHEN division_by_zero THEN NULL; END; END $$",
    ] {
        run_all(&mut client, &[make])?;
    }
    let there = "SELECT concat_ws(' ', to_regtype('going'), to_regproc('goes'), to_regtype('mine'), to_regproc('made'), to_regtype('also'))";
    let found = node.value(there)?;
    ensure!(found == "mine made also", "{found}");
    ensure!(client.value("SELECT count(*) FROM spread WHERE made(id) > 10")? == "10");
    cluster.stop_gateway()
}

/// Which rows belong into a partition is computed by code that is accounted for.
#[test]
fn a_partition_that_is_attached_is_accounted_for() -> Result<()> {
    let mut cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run_all(
        &mut client,
        &[
            "CREATE TABLE spread (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
            "INSERT INTO spread SELECT generate_series(1, 20)",
            "CREATE FUNCTION counts(x int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS
                'BEGIN RETURN (SELECT count(*) FROM public.spread); END'",
            "CREATE TABLE ranges (a int) PARTITION BY RANGE (counts(a))",
            "CREATE TABLE lists (a int, b int) PARTITION BY LIST (b)",
            "CREATE TABLE inner_ranges (a int, b int) PARTITION BY RANGE (counts(a))",
            "CREATE TABLE part (a int); INSERT INTO part VALUES (1)",
            "CREATE TABLE part_of_lists (a int, b int); INSERT INTO part_of_lists VALUES (1, 1)",
            "CREATE TABLE checked (a int); INSERT INTO checked VALUES (1)",
        ],
    )?;
    for sql in [
        "ALTER TABLE ranges ATTACH PARTITION part FOR VALUES FROM (8) TO (9)",
        "ALTER TABLE ranges ATTACH PARTITION part FOR VALUES FROM (20) TO (21)",
        "BEGIN; CREATE TABLE own (a int) PARTITION BY RANGE (counts(a));
         ALTER TABLE own ATTACH PARTITION part FOR VALUES FROM (8) TO (9)",
        "ALTER TABLE lists ATTACH PARTITION inner_ranges FOR VALUES IN (1);
         ALTER TABLE inner_ranges ATTACH PARTITION part_of_lists FOR VALUES FROM (8) TO (9)",
        "BEGIN; ALTER TABLE checked ADD CONSTRAINT c CHECK (counts(a) < 20) NOT VALID;
         ALTER TABLE checked VALIDATE CONSTRAINT c",
    ] {
        let answer = client.simple(sql, b"")?;
        let told = answer.error().map(|error| error.sqlstate().to_owned());
        ensure!(told.as_deref() == Some("0A000"), "{sql}: {answer}");
        client.query("ROLLBACK")?;
    }
    // What is in a DEFAULT partition is checked when another one is created.
    run_all(
        &mut client,
        &[
            "SELECT tutti_home('spread')",
            "CREATE TABLE others PARTITION OF ranges DEFAULT; INSERT INTO ranges VALUES (1)",
            "SELECT tutti_distribute('spread', 'id')",
        ],
    )?;
    let sql = "CREATE TABLE twenty PARTITION OF ranges FOR VALUES FROM (20) TO (21)";
    let answer = client.simple(sql, b"")?;
    let told = answer.error().map(|error| error.sqlstate().to_owned());
    ensure!(told.as_deref() == Some("0A000"), "{sql}: {answer}");
    // Others are attached as ever.
    run_all(
        &mut client,
        &[
            "CREATE TABLE plain (a int) PARTITION BY RANGE (a)",
            "ALTER TABLE plain ATTACH PARTITION part FOR VALUES FROM (1) TO (2)",
            "CREATE TABLE further PARTITION OF plain FOR VALUES FROM (2) TO (3)",
        ],
    )?;
    cluster.stop_gateway()
}

/// Whatever changes the schema of what node 1 alone has, for event triggers to see.
const SCHEMA_CHANGES: [&str; 22] = [
    "CREATE TABLE public.e (a int, b int)",
    "ALTER TABLE public.e ADD COLUMN c int",
    "INSERT INTO public.e VALUES (1, 2, 3)",
    "ALTER TABLE public.e ALTER COLUMN a TYPE bigint",
    "CREATE INDEX e_a ON public.e (a)",
    "COMMENT ON TABLE public.e IS 'e'",
    "GRANT SELECT ON public.e TO PUBLIC",
    "CREATE VIEW public.e_view AS SELECT a FROM public.e",
    "CREATE MATERIALIZED VIEW public.e_kept AS SELECT a FROM public.e",
    "REFRESH MATERIALIZED VIEW public.e_kept",
    "CREATE TRIGGER e_trigger AFTER INSERT ON public.e FOR EACH ROW EXECUTE FUNCTION public.fires()",
    "ALTER TABLE public.e RENAME TO e_other",
    "ALTER TABLE public.e_other RENAME COLUMN b TO d",
    "ALTER TABLE public.e_other SET SCHEMA other",
    "CREATE TABLE public.e_copy AS SELECT a FROM other.e_other",
    "SELECT a INTO public.e_into FROM other.e_other",
    "CREATE TEMPORARY TABLE e_temporary (a int)",
    "DROP TABLE e_temporary",
    "DROP TRIGGER e_trigger ON other.e_other",
    "DROP VIEW public.e_view",
    "DROP TABLE public.e_copy, public.e_into",
    "DROP TABLE other.e_other CASCADE",
];

/// A change of what node 1 alone has fires event triggers there, which see a part of what is spread.
#[test]
fn event_triggers_are_accounted_for() -> Result<()> {
    let mut cluster = start()?;
    let alone = servers::start(1)?;
    let mut sides = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    let deeds = [
        ("reads_spread", "INSERT INTO public.log VALUES ((SELECT count(*) FROM public.h), 0)"),
        ("writes_copy", "UPDATE public.r SET v = v + 1"),
        ("writes_home", "INSERT INTO public.log VALUES (1, (SELECT count(*) FROM public.r))"),
    ];
    let tables = ["h", "r", "log"];
    for side in &mut sides {
        side.run(
            "CREATE FUNCTION public.fires() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; \
             CREATE SCHEMA other; CREATE TABLE public.log (id int, v int)",
            Way::Simple,
        )?;
        for (deed, body) in deeds {
            side.run(
                &format!(
                    "CREATE FUNCTION public.{deed}_on() RETURNS event_trigger LANGUAGE plpgsql AS \
                     $f$BEGIN {body}; END$f$"
                ),
                Way::Simple,
            )?;
        }
    }
    for (deed, _) in deeds {
        let events = ["ddl_command_end", "sql_drop", "ddl_command_start", "table_rewrite"];
        for event in &events[..if deed == "writes_home" { 4 } else { 2 }] {
            let mut refused = Vec::new();
            let trigger =
                format!("CREATE EVENT TRIGGER e ON {event} EXECUTE FUNCTION public.{deed}_on()");
            for statement in SCHEMA_CHANGES {
                let [plain, tutti] = &mut sides;
                for (side, sql) in [(&mut *plain, &trigger), (tutti, &trigger)] {
                    side.run(sql, Way::Simple)?;
                }
                let [plain, tutti] = &mut sides;
                let got = tutti.run(statement, Way::Simple)?;
                if got != "0A000" {
                    let expected = plain.run(statement, Way::Simple)?;
                    ensure!(got == expected, "{deed} on {event}, {statement}: {got}");
                }
                for side in &mut sides {
                    side.run("DROP EVENT TRIGGER e", Way::Simple)?;
                }
                let [plain, tutti] = &mut sides;
                if got == "0A000" {
                    refused.push(statement);
                    ensure!(
                        tutti.run(statement, Way::Simple)? == plain.run(statement, Way::Simple)?
                    );
                }
                for table in tables {
                    let all = format!("SELECT * FROM public.{table} ORDER BY 1, 2");
                    let (here, there) =
                        (tutti.run(&all, Way::Simple)?, plain.run(&all, Way::Simple)?);
                    ensure!(here == there, "{deed} on {event}, {statement}: {table} has {here}");
                }
            }
            // Other nodes may have a view.
            refused.retain(|statement| *statement != "DROP VIEW public.e_view");
            ensure!(deed != "writes_home" || refused.is_empty(), "{deed} on {event}: {refused:?}");
        }
        same_copies(&cluster)?;
    }
    cluster.stop_gateway()
}

/// A server may put another operator in an operator's place.
#[test]
fn negators_and_commutators_are_code_too() -> Result<()> {
    let cluster = start()?;
    let alone = servers::start(1)?;
    let mut sides = both_sides(servers::endpoint(&alone, 0), &cluster)?;
    let body = "RETURN {is} AND (SELECT count(*) FROM public.h) = 90;";
    for side in &mut sides {
        for (name, is) in
            [("same", "a = b"), ("other", "a <> b"), ("below", "a < b"), ("above", "a > b")]
        {
            // Those that are written look at nothing.
            let body = match name {
                "same" | "below" => format!("RETURN {is};"),
                _ => body.replace("{is}", is),
            };
            ensure!(side.make(&format!(
                "CREATE FUNCTION public.{name}(a int, b int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS \
                 $f$BEGIN {body} END$f$"
            ))?);
        }
        for operator in [
            "=== (leftarg = int, rightarg = int, function = public.same, negator = OPERATOR(public.!==))",
            "!== (leftarg = int, rightarg = int, function = public.other, negator = OPERATOR(public.===))",
            "<<< (leftarg = int, rightarg = int, function = public.below, commutator = OPERATOR(public.>>>))",
            ">>> (leftarg = int, rightarg = int, function = public.above, commutator = OPERATOR(public.<<<))",
        ] {
            ensure!(side.make(&format!("CREATE OPERATOR public.{operator}"))?);
        }
    }
    let mut answered = 0;
    for table in ["h", "r", "l"] {
        for condition in [
            "NOT (id OPERATOR(public.===) 5)",
            "NOT (id OPERATOR(public.===) ANY (ARRAY[1, 2]))",
            "NOT (id OPERATOR(public.===) 5 OR id OPERATOR(public.===) 7)",
            "5 OPERATOR(public.<<<) id",
        ] {
            for sql in [
                format!("SELECT count(*) FROM public.{table} WHERE {condition}"),
                format!("SELECT id FROM public.{table} WHERE id < 20 AND {condition} ORDER BY 1"),
                format!("UPDATE public.{table} SET v = 1 WHERE {condition} RETURNING id"),
            ] {
                let [plain, tutti] = &mut sides;
                let sorted = |answer: String| {
                    let mut rows: Vec<_> = answer.split(", [").map(str::to_owned).collect();
                    rows.sort();
                    rows.concat().replace(['[', ']'], "")
                };
                let got = tutti.run(&sql, Way::Simple)?;
                if got == "0A000" {
                    continue;
                }
                let expected = plain.run(&sql, Way::Simple)?;
                ensure!(
                    sorted(got.clone()) == sorted(expected.clone()),
                    "{sql}: {got} instead of {expected}"
                );
                answered += 1;
            }
        }
    }
    ensure!(0 < answered);
    same_copies(&cluster)
}

/// What was declared of a function, and what then happens to what its text names.
#[test]
fn a_declaration_ends_with_what_it_was_said_of() -> Result<()> {
    let mut cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for statement in TABLES.split(';') {
        client.query(statement)?;
    }
    client.query(
        "CREATE FUNCTION public.inner_of() RETURNS bigint LANGUAGE plpgsql STABLE AS \
         $f$DECLARE n bigint; BEGIN EXECUTE 'SELECT count(*) FROM public.side' INTO n; RETURN n; END$f$",
    )?;
    client.query(
        "CREATE FUNCTION public.outer_of() RETURNS bigint LANGUAGE plpgsql STABLE AS \
         'BEGIN RETURN public.inner_of(); END'",
    )?;
    let counts = "SELECT count(*) FROM public.h WHERE public.outer_of() = 2";
    let told =
        |client: &mut Client, sql: &str| -> Result<String> { Ok(shown(&client.simple(sql, b"")?)) };
    let all = "[[Some(\"90\")]]";
    for (declared, placed, changes, still) in [
        // Said before the table goes to where it is said to be.
        ("replicated", "HOME", "SELECT tutti_replicate('public.side')", true),
        ("replicated", "REPLICATED", "ALTER TABLE public.side ADD COLUMN w int", true),
        ("replicated", "REPLICATED", "SELECT tutti_distribute('public.side', 'id')", false),
        ("replicated", "REPLICATED", "SELECT tutti_home('public.side')", false),
        (
            "replicated",
            "REPLICATED",
            "ALTER TABLE public.side RENAME TO side2;; \
             CREATE TABLE public.side (id int) DISTRIBUTE BY HASH (id)",
            false,
        ),
        (
            "replicated",
            "REPLICATED",
            "DROP TABLE public.side;; CREATE TABLE public.side (id int) DISTRIBUTE BY HASH (id)",
            false,
        ),
        (
            "replicated",
            "REPLICATED",
            "CREATE OR REPLACE FUNCTION public.outer_of() RETURNS bigint LANGUAGE plpgsql STABLE AS \
             'BEGIN RETURN 1 + public.inner_of(); END'",
            false,
        ),
        (
            "replicated",
            "REPLICATED",
            "CREATE OR REPLACE FUNCTION public.inner_of() RETURNS bigint LANGUAGE plpgsql STABLE AS \
             'BEGIN RETURN 2; END'",
            false,
        ),
        ("replicated", "REPLICATED", "ALTER FUNCTION public.outer_of() SET search_path = a", false),
        ("home", "HOME", "SELECT tutti_distribute('public.side', 'id')", false),
        ("home", "HOME", "ALTER TABLE public.side ADD COLUMN w int", true),
    ] {
        for way in [false, true] {
            client.query(&format!(
                "CREATE TABLE public.side (id int PRIMARY KEY) DISTRIBUTE BY {placed}"
            ))?;
            client.query("INSERT INTO public.side VALUES (1), (2)")?;
            client.query(&format!("SELECT tutti_function('public.outer_of', '{declared}')"))?;
            let steps: Vec<_> = changes.split(";; ").collect();
            if way {
                client.query("BEGIN")?;
            }
            for step in &steps {
                client.query(step).with_context(|| format!("{declared}: {step}"))?;
            }
            if way {
                client.query("COMMIT")?;
            }
            let declarations = told(&mut client, "SELECT * FROM tutti_functions()")?;
            ensure!(
                declarations.contains("outer_of") == still,
                "{declared}, {placed}, {changes}, in a block: {way}: {declarations}"
            );
            let answer = told(&mut client, counts)?;
            let is_right = match (declared, still) {
                ("replicated", true) => answer == all,
                _ => answer == "0A000" || answer == all,
            };
            ensure!(
                is_right || changes.contains("CREATE"),
                "{declared}, {placed}, {changes}: {answer}"
            );
            for statement in [
                "SELECT tutti_function('public.outer_of', NULL)",
                "ALTER FUNCTION public.outer_of() RESET ALL",
                "DROP TABLE IF EXISTS public.side, public.side2",
                "CREATE OR REPLACE FUNCTION public.inner_of() RETURNS bigint LANGUAGE plpgsql STABLE AS \
                 $f$DECLARE n bigint; BEGIN EXECUTE 'SELECT count(*) FROM public.side' INTO n; RETURN n; END$f$",
                "CREATE OR REPLACE FUNCTION public.outer_of() RETURNS bigint LANGUAGE plpgsql STABLE AS \
                 'BEGIN RETURN public.inner_of(); END'",
            ] {
                client.query(statement)?;
            }
        }
    }
    cluster.stop_gateway()
}

/// The bounds of a partition may be computed.
#[test]
fn bounds_of_partitions_are_code_too() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for statement in TABLES.split(';') {
        client.query(statement)?;
    }
    client.query(
        "CREATE FUNCTION public.bound() RETURNS int LANGUAGE plpgsql VOLATILE AS \
         'BEGIN RETURN (SELECT count(*) FROM public.h); END'",
    )?;
    client.query(
        "CREATE FUNCTION public.copies() RETURNS int LANGUAGE plpgsql VOLATILE AS \
         'BEGIN UPDATE public.r SET v = v + 1; RETURN 7; END'",
    )?;
    client.query("CREATE TABLE public.p (id int) PARTITION BY RANGE (id)")?;
    client.query("CREATE TABLE public.q (id int) PARTITION BY LIST (id)")?;
    client.query("CREATE TABLE public.x (id int)")?;
    for function in ["bound", "copies"] {
        for sql in [
            "CREATE TABLE public.p1 PARTITION OF public.p FOR VALUES FROM (0) TO (public.{f}())",
            "CREATE TABLE public.q1 PARTITION OF public.q FOR VALUES IN (public.{f}())",
            "ALTER TABLE public.q ATTACH PARTITION public.x FOR VALUES IN (public.{f}() + 1)",
        ] {
            let sql = sql.replace("{f}", function);
            let answer = shown(&client.simple(&sql, b"")?);
            ensure!(answer == "0A000", "{sql}: {answer}");
        }
    }
    client
        .query("CREATE TABLE public.p1 PARTITION OF public.p FOR VALUES FROM (0) TO (abs(-9))")?;
    client.query("ALTER TABLE public.q ATTACH PARTITION public.x FOR VALUES IN (1, 2)")?;
    same_copies(&cluster)
}
