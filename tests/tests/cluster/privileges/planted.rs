//! Objects planted in another's place, or code that reads in passing: code that runs where definitions are created,
//! rows move, or a foreign key acts, may itself create things, and these are never taken for what node 1 has.

use anyhow::{Context, Result, ensure};
use tutti_tests::client::{Client, Endpoint, Flight, Request, text_arguments};
use tutti_tests::gateway::TestCluster;

use super::owners_code::{cluster, is_superuser};

/// A role with a schema of its name, in which it may do what it likes.
fn role(cluster: &TestCluster, name: &str) -> Result<Client> {
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(&format!("CREATE ROLE {name} LOGIN; CREATE SCHEMA {name} AUTHORIZATION {name}"))?;
    Client::connect_as(&cluster.endpoint(), name)
}

/// A function in the schema of `role` that makes it a superuser if it can.
fn takes_over(role: &str, name: &str, arguments: &str, result: &str, value: &str) -> String {
    format!(
        "CREATE FUNCTION {role}.{name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS $take$ BEGIN
             IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
                 EXECUTE 'CREATE ROLE {role}_root SUPERUSER'; END IF;
             RETURN {value}; END $take$"
    )
}

fn nobody_is_more(nodes: &[Endpoint], what: &str) -> Result<()> {
    for node in nodes {
        let more = "SELECT coalesce(string_agg(rolname, ','), '') FROM pg_roles
            WHERE rolsuper AND rolname <> 'postgres'";
        let more = Client::connect(node)?.value(more)?;
        ensure!(more.is_empty(), "{what}: {more}");
    }
    Ok(())
}

/// Another type of the name that node 1's has, made by code that rightly runs as its owner while definitions are made.
#[test]
fn a_type_that_is_made_in_the_midst_is_not_taken_for_node_1s() -> Result<()> {
    let cluster = cluster()?;
    let mut mal = role(&cluster, "mal")?;
    let plant = takes_over("mal", "g", "text", "boolean", "true");
    for sql in [
        &format!(
            "CREATE FUNCTION mal.f(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                 IF coalesce(current_setting('tutti.work', true), '') <> '' AND to_regtype('mal.t') IS NULL THEN
                     {plant}; CREATE DOMAIN mal.d3 AS text CHECK (mal.g(VALUE)); CREATE TYPE mal.t AS (x mal.d3);
                 END IF; RETURN true; END $$"
        ),
        "CREATE DOMAIN mal.d1 AS text CHECK (mal.f(VALUE))",
        "CREATE TYPE mal.c1 AS (x mal.d1)",
        "CREATE DOMAIN mal.d2 AS text CHECK (VALUE IS DISTINCT FROM ('(x)'::mal.c1)::text)",
        "CREATE TYPE mal.t AS ENUM ('(x)')",
        "CREATE VIEW mal.v AS SELECT '(x)'::mal.t AS m",
    ] {
        mal.query(sql)?;
    }
    mal.simple("CREATE TABLE mal.r (a int PRIMARY KEY) DISTRIBUTE BY REPLICATED", b"")?;
    nobody_is_more(&cluster.nodes(), "a type made in the midst")?;
    for node in &cluster.nodes()[1..] {
        let kind = Client::connect(node)?.value(
            "SELECT count(*) FROM pg_type WHERE oid = to_regtype('mal.t') AND typtype = 'c'",
        )?;
        ensure!(kind == "0", "the other type is there");
    }
    Ok(())
}

/// Code that was declared runs on other nodes, where it makes nothing: names would mean other things there.
#[test]
fn code_changes_no_schema_of_other_nodes() -> Result<()> {
    let cluster = cluster()?;
    let mut moe = role(&cluster, "moe")?;
    moe.query(
        "CREATE FUNCTION moe.plant(int) RETURNS int LANGUAGE plpgsql AS $$
         BEGIN
             IF (SELECT node FROM tutti.cluster) <> 1 THEN
                 BEGIN
                     PERFORM tutti.give_warrant('many ' || repeat('0', 97));
                     RAISE 'warranted';
                 EXCEPTION WHEN insufficient_privilege THEN NULL; END;
                 PERFORM tutti.use_warrant('postgres'), tutti.end_warrants();
                 EXECUTE current_setting('moe.plants');
             END IF; RETURN $1; END $$;
         CREATE FUNCTION moe.key(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN moe.plant($1); END'",
    )?;
    for function in ["moe.plant", "moe.key"] {
        moe.query(&format!("SELECT tutti_function('{function}', 'row')"))?;
    }
    moe.query(
        "CREATE TABLE moe.h (k int PRIMARY KEY, CHECK (moe.plant(k) = k)) DISTRIBUTE BY HASH (k);
         CREATE TABLE moe.w (k int PRIMARY KEY) DISTRIBUTE BY HASH (k);
         INSERT INTO moe.w SELECT generate_series(1, 20)",
    )?;
    for plants in [
        "CREATE TABLE moe.planted (a int)",
        "CREATE FUNCTION moe.planted() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TYPE moe.planted AS (a int)",
        "CREATE DOMAIN moe.planted AS int",
        "CREATE VIEW moe.planted AS SELECT 1",
        "CREATE OPERATOR moe.= (leftarg = int, rightarg = int, function = int4ne)",
        "CREATE COLLATION moe.planted FROM \"C\"",
        "CREATE TEMP VIEW planted AS SELECT 1",
        "CREATE TABLE moe.planted AS SELECT 1 AS a",
        "CREATE INDEX planted ON moe.w (k)",
        "ALTER TABLE moe.w RENAME COLUMN k TO planted",
        "CREATE TEMP TABLE mine (a int)",
        "SELECT 1 AS a INTO moe.planted",
        "ALTER TABLE moe.w ADD COLUMN b int",
        "ALTER TABLE moe.w RENAME TO planted",
        "GRANT ALL ON moe.w TO PUBLIC",
        "COMMENT ON TABLE moe.w IS 'planted'",
        "DROP TABLE moe.w",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA moe GRANT ALL ON TABLES TO PUBLIC",
    ] {
        moe.query(&format!("SELECT set_config('moe.plants', $x${plants}$x$, false)"))?;
        for (sql, refusals) in [
            ("INSERT INTO moe.h SELECT generate_series(1, 20)", ["42501", "42501"]),
            // Or the gateway does not let it come so far.
            ("CREATE INDEX ON moe.w (moe.key(k))", ["42501", "0A000"]),
            ("ALTER TABLE moe.w ADD CHECK (moe.plant(k) = k)", ["42501", "0A000"]),
        ] {
            let answer = moe.simple(sql, b"")?;
            let told = answer.error().map_or("", |error| error.sqlstate());
            ensure!(refusals.contains(&told), "{plants} by {sql}: {answer}");
        }
    }
    for node in &cluster.nodes()[1..] {
        let planted = "SELECT (SELECT count(*) FROM pg_class WHERE relname ~ 'planted')
            + (SELECT count(*) FROM pg_proc WHERE proname = 'planted')
            + (SELECT count(*) FROM pg_type WHERE typname = 'planted')";
        ensure!(Client::connect(node)?.value(planted)? == "0", "something was made");
        // Nor can a role that is connected to the node itself create anything there.
        let mut there = Client::connect_as(node, "moe")?;
        let answer = there.simple("CREATE TABLE moe.planted (a int)", b"")?;
        let told = answer.error().map(|error| error.sqlstate().to_owned());
        ensure!(told.as_deref() == Some("42501"), "on the node: {answer}");
    }
    // What clients make, is made there as ever.
    moe.query(
        "CREATE TABLE moe.made (k int PRIMARY KEY, s serial, i int GENERATED ALWAYS AS IDENTITY) DISTRIBUTE BY HASH (k);
         CREATE INDEX ON moe.made (s); ALTER SEQUENCE moe.made_s_seq CYCLE; ALTER TABLE moe.made ADD COLUMN c text;
         COMMENT ON TABLE moe.made IS 'made'; GRANT SELECT ON moe.made TO PUBLIC; DROP TABLE moe.made",
    )
    .map(drop)
}

/// TRUNCATE changes no schema, and runs triggers.
#[test]
fn triggers_of_truncate_make_nothing() -> Result<()> {
    let cluster = cluster()?;
    let mut moe = role(&cluster, "moe")?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    moe.query(
        "CREATE FUNCTION moe.plant() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF (SELECT node FROM tutti.cluster) <> 1 THEN
                 EXECUTE 'CREATE FUNCTION moe.planted() RETURNS int LANGUAGE sql AS $x$SELECT 1$x$';
             END IF; RETURN NULL; END $$",
    )?;
    moe.query("SELECT tutti_function('moe.plant', 'replicated')")?;
    moe.query("SET search_path = moe")?;
    for table in ["t", "extension"] {
        moe.query(&format!("CREATE TABLE {table} (k int PRIMARY KEY)"))?;
        admin.query(&format!("SELECT tutti_replicate('moe.{table}')"))?;
        moe.query(&format!(
            "CREATE TRIGGER t BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION moe.plant()"
        ))?;
        let answer = moe.simple(&format!("TRUNCATE {table}"), b"")?;
        ensure!(
            answer.error().is_some_and(|error| error.sqlstate() == "42501"),
            "{table}: {answer}"
        );
    }
    for node in &cluster.nodes()[1..] {
        let planted = "SELECT count(*) FROM pg_proc WHERE proname = 'planted'";
        ensure!(Client::connect(node)?.value(planted)? == "0", "something was made");
    }
    // A temporary view of the session's own goes nowhere.
    moe.query("CREATE TEMP VIEW y AS SELECT * FROM moe.t")?;
    moe.query("ALTER TABLE moe.t ADD COLUMN e int").map(drop)
}

/// What an ordinary role may change in a schema of its own, on all nodes.
const LAWFUL: &str = r#"
CREATE TYPE mood AS ENUM ('a','b');
CREATE TABLE t (id int PRIMARY KEY, m mood, n numeric, tx text);
CREATE TABLE u (id int PRIMARY KEY, t_id int REFERENCES t, s serial);
CREATE TABLE p (id int, d date, PRIMARY KEY (id, d)) PARTITION BY RANGE (d);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
ALTER TYPE mood ADD VALUE 'c';
ALTER TYPE mood RENAME VALUE 'c' TO 'd';
ALTER TYPE mood RENAME TO mood2;
CREATE INDEX t_n ON t (n);
CREATE UNIQUE INDEX t_u ON t (id, n);
ALTER INDEX t_n RENAME TO t_n2;
ALTER INDEX t_n2 SET (fillfactor = 70);
CREATE STATISTICS st ON id, n FROM t;
ALTER STATISTICS st SET STATISTICS 10;
DROP STATISTICS st;
ALTER TABLE t ADD COLUMN z int DEFAULT 5;
ALTER TABLE t ALTER z TYPE bigint;
ALTER TABLE t ALTER z SET NOT NULL;
ALTER TABLE t DROP COLUMN z;
ALTER TABLE t ADD CHECK (id > 0);
ALTER TABLE t ADD CONSTRAINT nn CHECK (n > 0) NOT VALID;
ALTER TABLE t VALIDATE CONSTRAINT nn;
ALTER TABLE t RENAME CONSTRAINT nn TO nn2;
ALTER TABLE t SET (fillfactor = 80);
ALTER TABLE t ALTER tx SET STORAGE EXTERNAL;
ALTER TABLE t ALTER tx SET STATISTICS 50;
ALTER TABLE t REPLICA IDENTITY FULL;
ALTER TABLE t ADD COLUMN gg int GENERATED ALWAYS AS (id * 2) STORED;
ALTER TABLE t ADD COLUMN ii int GENERATED BY DEFAULT AS IDENTITY;
ALTER TABLE t ALTER ii RESTART WITH 100;
ALTER TABLE t ALTER ii DROP IDENTITY;
ALTER TABLE t DROP COLUMN ii;
ALTER TABLE t DROP COLUMN gg;
ALTER SEQUENCE u_s_seq INCREMENT 5;
ALTER SEQUENCE u_s_seq RESTART;
ALTER SEQUENCE u_s_seq MAXVALUE 100000 CYCLE;
ALTER SEQUENCE u_s_seq OWNED BY NONE;
ALTER SEQUENCE u_s_seq OWNED BY u.s;
CREATE VIEW v AS SELECT id, n FROM t;
CREATE OR REPLACE VIEW v AS SELECT id, n, tx FROM t;
ALTER VIEW v RENAME TO v2;
ALTER VIEW v2 ALTER n SET DEFAULT 4;
ALTER VIEW v2 SET (security_barrier);
COMMENT ON VIEW v2 IS 'v';
CREATE RULE r AS ON INSERT TO v2 DO INSTEAD NOTHING;
DROP RULE r ON v2;
DROP VIEW v2;
CREATE MATERIALIZED VIEW mv AS SELECT id, n FROM t;
REFRESH MATERIALIZED VIEW mv;
CREATE UNIQUE INDEX ON mv (id);
ALTER MATERIALIZED VIEW mv RENAME TO mv2;
DROP MATERIALIZED VIEW mv2;
CREATE FUNCTION f(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 + 1';
ALTER FUNCTION f(int) STABLE;
ALTER FUNCTION f(int) RENAME TO f2;
COMMENT ON FUNCTION f2(int) IS 'x';
GRANT EXECUTE ON FUNCTION f2(int) TO PUBLIC;
REVOKE ALL ON FUNCTION f2(int) FROM PUBLIC;
DROP FUNCTION f2(int);
CREATE FUNCTION tr() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.tx := upper(NEW.tx); RETURN NEW; END';
CREATE TRIGGER trg BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION tr();
ALTER TRIGGER trg ON t RENAME TO trg2;
ALTER TABLE t DISABLE TRIGGER trg2;
ALTER TABLE t ENABLE TRIGGER trg2;
DROP TRIGGER trg2 ON t;
DROP FUNCTION tr();
CREATE DOMAIN dom AS int CHECK (VALUE > 0);
ALTER DOMAIN dom ADD CONSTRAINT k CHECK (VALUE < 1000) NOT VALID;
ALTER DOMAIN dom VALIDATE CONSTRAINT k;
ALTER DOMAIN dom DROP CONSTRAINT k;
ALTER TABLE t ADD COLUMN dd dom;
ALTER TABLE t DROP COLUMN dd;
DROP DOMAIN dom;
CREATE TYPE comp AS (a int, b text);
ALTER TYPE comp ADD ATTRIBUTE c int;
ALTER TYPE comp RENAME ATTRIBUTE c TO cc;
DROP TYPE comp;
CREATE TYPE rng AS RANGE (subtype = float8);
DROP TYPE rng;
CREATE AGGREGATE agg(int) (sfunc = int4pl, stype = int, initcond = '0');
DROP AGGREGATE agg(int);
CREATE COLLATION cl FROM "C";
DROP COLLATION cl;
CREATE TEXT SEARCH CONFIGURATION ts (COPY = english);
ALTER TEXT SEARCH CONFIGURATION ts ALTER MAPPING FOR asciiword WITH simple;
DROP TEXT SEARCH CONFIGURATION ts;
CREATE OPERATOR === (leftarg = int, rightarg = int, function = int4eq);
DROP OPERATOR === (int, int);
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY pol ON t USING (id > 0) WITH CHECK (true);
ALTER POLICY pol ON t USING (true);
ALTER TABLE t FORCE ROW LEVEL SECURITY;
DROP POLICY pol ON t;
ALTER TABLE t NO FORCE ROW LEVEL SECURITY;
ALTER TABLE t DISABLE ROW LEVEL SECURITY;
GRANT SELECT ON t TO PUBLIC;
GRANT SELECT (id), UPDATE (n) ON t TO other;
REVOKE ALL ON t FROM other;
GRANT ALL ON ALL TABLES IN SCHEMA app TO other;
REVOKE ALL ON ALL TABLES IN SCHEMA app FROM other;
GRANT USAGE ON SCHEMA app TO other;
GRANT USAGE ON TYPE mood2 TO other;
GRANT ALL ON SEQUENCE u_s_seq TO other;
ALTER DEFAULT PRIVILEGES IN SCHEMA app GRANT SELECT ON TABLES TO other;
ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO other;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM other;
ALTER DEFAULT PRIVILEGES IN SCHEMA app REVOKE SELECT ON TABLES FROM other;
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM ('2027-01-01') TO ('2028-01-01');
ALTER TABLE p DETACH PARTITION p2;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM ('2027-01-01') TO ('2028-01-01');
DROP TABLE p2;
CREATE TABLE kid () INHERITS (t);
ALTER TABLE kid NO INHERIT t;
DROP TABLE kid;
CREATE TABLE lk (LIKE t INCLUDING ALL);
DROP TABLE lk;
CREATE TABLE ctas AS SELECT * FROM t;
DROP TABLE ctas;
SELECT * INTO si FROM t;
DROP TABLE si;
CREATE UNLOGGED TABLE ul (a int);
ALTER TABLE ul SET LOGGED;
ALTER TABLE ul SET UNLOGGED;
DROP TABLE ul;
COMMENT ON TABLE t IS 'c';
COMMENT ON COLUMN t.id IS 'c';
COMMENT ON CONSTRAINT nn2 ON t IS 'c';
COMMENT ON INDEX t_n2 IS 'c';
COMMENT ON TYPE mood2 IS 'c';
COMMENT ON SCHEMA app IS 'c';
ALTER TABLE t RENAME TO tt;
ALTER TABLE tt RENAME COLUMN n TO nn;
ALTER TABLE tt RENAME COLUMN nn TO n;
ALTER TABLE tt RENAME TO t;
CREATE SCHEMA app2;
ALTER SCHEMA app2 RENAME TO app4;
ALTER TABLE u SET SCHEMA app4;
ALTER TABLE app4.u SET SCHEMA app;
DROP SCHEMA app4;
DROP TABLE u;
DROP TABLE t;
DROP TABLE p;
DROP TYPE mood2;
DROP SCHEMA app CASCADE
"#;

/// The guard of other nodes is met by code, not by what clients send.
#[test]
fn clients_change_the_schema_of_all_nodes() -> Result<()> {
    let cluster = TestCluster::start(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut app = role(&cluster, "app")?;
    admin.query("CREATE ROLE other; GRANT CREATE ON DATABASE postgres TO app")?;
    app.query("SET search_path = app")?;
    for sql in LAWFUL.trim().split(";\n") {
        app.query(sql).with_context(|| sql.to_owned())?;
    }
    let concurrently = "CREATE SCHEMA app; CREATE TABLE app.t (id int PRIMARY KEY);
        CREATE MATERIALIZED VIEW app.m AS SELECT id FROM app.t; CREATE UNIQUE INDEX ON app.m (id)";
    app.query(concurrently)?;
    let answer = app.simple("REFRESH MATERIALIZED VIEW CONCURRENTLY app.m", b"")?;
    ensure!(answer.error().is_some_and(|error| error.sqlstate() == "0A000"), "{answer}");
    app.query("REFRESH MATERIALIZED VIEW app.m").map(drop)
}

/// Constants of users' types are read ahead of the statement that they stand in, by code that may use up what the
/// statement may do: then the statement may not.
#[test]
fn code_ahead_of_a_statement_makes_nothing_in_its_stead() -> Result<()> {
    let cluster = TestCluster::start(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut moe = role(&cluster, "moe")?;
    moe.query(
        "CREATE FUNCTION moe.plant(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
             IF (SELECT node FROM tutti.cluster) <> 1 THEN
                 EXECUTE 'CREATE TABLE IF NOT EXISTS moe.planted (a int)';
             END IF; RETURN true; END $$",
    )?;
    moe.query("SELECT tutti_function('moe.plant', 'row')")?;
    moe.query(
        "CREATE DOMAIN moe.number AS int CHECK (moe.plant(VALUE)); CREATE TYPE moe.checked AS (a moe.number)",
    )?;
    for (by, security) in [("moe", "INVOKER"), ("moe", "DEFINER"), ("postgres", "DEFINER")] {
        moe.query(&format!("ALTER FUNCTION moe.plant(int) SECURITY {security}"))?;
        moe.query("SELECT tutti_function('moe.plant', 'row')")?;
        let client = if by == "moe" { &mut moe } else { &mut admin };
        for sql in [
            "CREATE TABLE moe.made AS SELECT '(1)'::moe.checked AS c",
            "CREATE TABLE moe.made AS SELECT 1 AS c WHERE '(1)'::moe.checked IS NOT NULL",
            "SELECT '(1)'::moe.checked AS c INTO moe.made",
            "CREATE MATERIALIZED VIEW moe.made AS SELECT '(1)'::moe.checked AS c",
            "CREATE VIEW moe.made AS SELECT '(1)'::moe.checked AS c",
            "CREATE TABLE moe.made (c moe.checked DEFAULT '(1)')",
            "CREATE FUNCTION moe.made() RETURNS moe.checked RETURN '(1)'::moe.checked",
        ] {
            let answer = client.simple(sql, b"")?;
            println!("{by} {security}: {sql}: {answer}");
            for node in &cluster.nodes()[1..] {
                let planted = "SELECT count(*) FROM pg_class WHERE relname = 'planted'";
                ensure!(Client::connect(node)?.value(planted)? == "0", "{sql} has made something");
            }
            if answer.error().is_none() {
                let kind = if sql.contains("MATERIALIZED VIEW") {
                    "MATERIALIZED VIEW moe.made"
                } else if sql.contains("VIEW") {
                    "VIEW moe.made"
                } else if sql.contains("FUNCTION") {
                    "FUNCTION moe.made()"
                } else {
                    "TABLE moe.made"
                };
                client.query(&format!("DROP {kind}"))?;
            }
        }
    }
    Ok(())
}

/// Something may stand on another node that node 1 does not have.
#[test]
fn what_stands_on_other_nodes_before_is_told() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut vic = role(&cluster, "vic")?;
    let _moe = role(&cluster, "moe")?;
    admin.query("CREATE SCHEMA shared; GRANT ALL ON SCHEMA shared TO moe, vic")?;
    vic.query("CREATE TABLE vic.secret (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED")?;
    admin.query("CREATE TABLE moe.first (a int) DISTRIBUTE BY REPLICATED")?;
    admin.query("CREATE TABLE shared.first (a int) DISTRIBUTE BY REPLICATED")?;
    let plant = takes_over("moe", "g", "text", "boolean", "true");
    for node in &cluster.nodes()[1..] {
        Client::connect(node)?.query(&format!(
            "{plant}; CREATE DOMAIN moe.d3 AS text CHECK (moe.g(VALUE)); CREATE TYPE moe.t AS (x moe.d3);
             CREATE FUNCTION shared.f(int) RETURNS boolean LANGUAGE plpgsql AS $x$ BEGIN
                 EXECUTE 'GRANT SELECT ON vic.secret TO moe'; RETURN true; END $x$;
             CREATE VIEW shared.v AS SELECT 1 AS a;
             ALTER FUNCTION moe.g OWNER TO moe; ALTER DOMAIN moe.d3 OWNER TO moe; ALTER TYPE moe.t OWNER TO moe;
             ALTER FUNCTION shared.f OWNER TO moe; ALTER VIEW shared.v OWNER TO moe"
        ))?;
    }
    for (who, sql) in [
        ("moe", "CREATE TYPE moe.t AS ENUM ('(x)')"),
        (
            "vic",
            "CREATE FUNCTION shared.f(int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 > 0'",
        ),
        ("vic", "CREATE VIEW shared.v AS SELECT a FROM (VALUES (2)) AS x (a)"),
    ] {
        let mut client = Client::connect_as(&cluster.endpoint(), who)?;
        let spreads = match who {
            "moe" => "CREATE VIEW moe.v AS SELECT '(x)'::moe.t AS m",
            _ => "SELECT 1",
        };
        let sql = format!("DO $do$ BEGIN EXECUTE $x${sql}$x$; EXECUTE $x${spreads}$x$; END $do$");
        let answer = client.simple(&sql, b"")?;
        let told = answer.error().map(|error| error.sqlstate().to_owned());
        ensure!(told.as_deref() == Some("42710"), "{who}: {sql}: {answer}");
        nobody_is_more(&cluster.nodes(), &sql)?;
    }
    for node in &cluster.nodes()[1..] {
        Client::connect(node)?.query(
            "DROP VIEW shared.v; DROP FUNCTION shared.f(int); DROP TYPE moe.t; DROP DOMAIN moe.d3; DROP FUNCTION moe.g(text)",
        )?;
    }
    Ok(())
}

/// The bound of a partition is of its key's type, also where no dependency says so.
#[test]
fn bounds_of_anothers_type_are_not_read_as_a_superuser() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut eve = role(&cluster, "eve")?;
    admin.query("CREATE ROLE others; GRANT others TO eve")?;
    eve.query("GRANT ALL ON SCHEMA eve TO others")?;
    eve.query(&takes_over("eve", "f", "text", "boolean", "true"))?;
    eve.query("CREATE DOMAIN eve.d AS text CHECK (eve.f(VALUE))")?;
    for (number, key) in ["coalesce(d, d)", "nullif(d, ''x'')", "greatest(d, d)"].iter().enumerate()
    {
        let key = key.replace("''", "'");
        eve.query(&format!(
            "CREATE TABLE eve.p{number} (d eve.d, x int) PARTITION BY LIST (({key}))"
        ))?;
        eve.query(&format!(
            "CREATE TABLE eve.p{number}_1 PARTITION OF eve.p{number} FOR VALUES IN ('a')"
        ))?;
        eve.query(&format!("ALTER TABLE eve.p{number}_1 OWNER TO others"))?;
        eve.query("SELECT tutti_function('eve.f', 'row')")?;
        let answer = admin.simple(&format!("SELECT tutti_replicate('eve.p{number}')"), b"")?;
        nobody_is_more(&cluster.nodes(), &format!("{key}: {answer}"))?;
    }
    Ok(())
}

/// A query of a table's rows is planned as its owner and read by others, so it is of a table.
#[test]
fn a_view_in_a_tables_place_is_not_read() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut kim = role(&cluster, "kim")?;
    kim.query(&takes_over("kim", "evil", "", "int", "1"))?;
    let swap = |child: &str| {
        format!(
            "EXECUTE 'DROP TABLE {child}'; EXECUTE 'CREATE VIEW {child} AS SELECT kim.evil() AS a'"
        )
    };
    kim.query(&format!(
        "CREATE FUNCTION kim.trg() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN NULL; END $$",
        swap("kim.t2")
    ))?;
    kim.query("SELECT tutti_function('kim.trg', 'replicated')")?;
    kim.query("CREATE TABLE kim.t1 (a int) DISTRIBUTE BY REPLICATED; CREATE TABLE kim.t2 () INHERITS (kim.t1)")?;
    kim.query("INSERT INTO kim.t1 VALUES (1); INSERT INTO kim.t2 VALUES (1)")?;
    kim.query(
        "CREATE TRIGGER trg AFTER INSERT ON kim.t1 FOR EACH STATEMENT EXECUTE FUNCTION kim.trg()",
    )?;
    let answer = kim.simple("INSERT INTO kim.t1 VALUES (2)", b"")?;
    nobody_is_more(&cluster.nodes(), &format!("a write by comparison: {answer}"))?;
    ensure!(answer.error().is_some(), "the write is done: {answer}");

    kim.query(&format!(
        "CREATE FUNCTION kim.vol() RETURNS int LANGUAGE plpgsql AS $$ BEGIN
             IF coalesce(current_setting('tutti.work', true), '') LIKE 'DECLARE%m1%' THEN {}; END IF; RETURN 1; END $$",
        swap("kim.m2")
    ))?;
    kim.query("CREATE FUNCTION kim.pc(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN kim.vol(); END $$")?;
    kim.query("CREATE TABLE kim.m1 (a int); CREATE TABLE kim.m2 () INHERITS (kim.m1)")?;
    kim.query("INSERT INTO kim.m1 VALUES (1); INSERT INTO kim.m2 VALUES (1)")?;
    for declared in ["kim.vol", "kim.pc"] {
        kim.query(&format!("SELECT tutti_function('{declared}', 'replicated')"))?;
    }
    kim.query("CREATE INDEX ON kim.m1 ((a + kim.pc(1)))")?;
    for declared in ["kim.vol", "kim.pc"] {
        kim.query(&format!("SELECT tutti_function('{declared}', 'replicated')"))?;
    }
    let answer = admin.simple("SELECT tutti_replicate('kim.m1')", b"")?;
    nobody_is_more(&cluster.nodes(), &format!("moved: {answer}"))?;
    ensure!(answer.error().is_some(), "it is moved: {answer}");
    Ok(())
}

/// Nor where the transaction sees the table that was.
#[test]
fn a_view_in_a_tables_place_is_not_read_by_old_snapshots() -> Result<()> {
    let cluster = cluster()?;
    for (number, level) in ["REPEATABLE READ", "SERIALIZABLE"].iter().enumerate() {
        let name = format!("rea{number}");
        let mut old = role(&cluster, &name)?;
        old.query(&takes_over(&name, "evil", "", "int", "1"))?;
        old.query(&format!(
            "CREATE TABLE {name}.w (a int) DISTRIBUTE BY REPLICATED;
             CREATE TABLE {name}.t1 (a int) DISTRIBUTE BY REPLICATED; CREATE TABLE {name}.t2 () INHERITS ({name}.t1);
             CREATE TABLE {name}.t3 () INHERITS ({name}.t1);
             INSERT INTO {name}.t1 VALUES (1); INSERT INTO {name}.t2 VALUES (1)"
        ))?;
        for swap in [
            format!("DROP TABLE {name}.t2; CREATE VIEW {name}.t2 AS SELECT {name}.evil() AS a"),
            format!(
                "ALTER TABLE {name}.t3 NO INHERIT {name}.t1;
                 CREATE RULE \"_RETURN\" AS ON SELECT TO {name}.t3 DO INSTEAD SELECT {name}.evil() AS a"
            ),
        ] {
            old.query(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM {name}.w"))?;
            let mut other = Client::connect_as(&cluster.endpoint(), &name)?;
            for sql in swap.split("; ") {
                other.simple(sql, b"")?;
            }
            let answer = old.simple(&format!("DELETE FROM {name}.t1 WHERE random() < 2"), b"")?;
            old.simple("ROLLBACK", b"")?;
            nobody_is_more(&cluster.nodes(), &format!("{level}: {swap}: {answer}"))?;
        }
    }
    Ok(())
}

/// Code behind a foreign key sees the key, and code in a comparison sees no seal.
#[test]
fn rows_and_seals_are_in_no_context_that_code_can_read() -> Result<()> {
    let cluster = cluster()?;
    let mut vic = role(&cluster, "vic")?;
    let mut low = role(&cluster, "low")?;
    vic.query(
        "CREATE TABLE vic.secret (id int PRIMARY KEY, s text) DISTRIBUTE BY REPLICATED;
         INSERT INTO vic.secret SELECT g, 'TOPSECRET' || g FROM generate_series(1, 5) g;
         GRANT REFERENCES ON vic.secret TO low; GRANT USAGE ON SCHEMA vic TO low; GRANT USAGE ON SCHEMA vic TO PUBLIC",
    )?;
    low.query("CREATE TABLE low.log (what text) DISTRIBUTE BY ROUND ROBIN")?;
    low.query(
        "CREATE FUNCTION low.f(int) RETURNS boolean LANGUAGE plpgsql AS $$ DECLARE c text; e text; BEGIN
             PERFORM set_config('log_parameter_max_length_on_error', '-1', false);
             GET DIAGNOSTICS c = PG_CONTEXT;
             BEGIN RAISE EXCEPTION 'x'; EXCEPTION WHEN OTHERS THEN GET STACKED DIAGNOSTICS e = PG_EXCEPTION_CONTEXT; END;
             IF $1 IS NULL THEN INSERT INTO low.log VALUES (concat_ws(' | ', c, e, current_setting('tutti.work_rows', true)));
             END IF; RETURN true; END $$",
    )?;
    low.query("SELECT tutti_function('low.f', 'row')")?;
    low.query(
        "CREATE TABLE low.c (k int PRIMARY KEY, pid int REFERENCES vic.secret ON DELETE SET NULL, CHECK (low.f(pid)))
             DISTRIBUTE BY REPLICATED",
    )?;
    low.query("INSERT INTO low.c VALUES (1, 1), (2, 2), (3, 3)")?;
    vic.query("SET log_parameter_max_length_on_error = -1")?;
    vic.query("DELETE FROM vic.secret WHERE id = 1 AND random() < 2")?;
    vic.query("DELETE FROM vic.secret WHERE id = 2 AND random() < 2")?;
    vic.query("DELETE FROM vic.secret WHERE id = 3")?;
    let seen = low.value("SELECT string_agg(what, E'\\n') FROM low.log")?;
    ensure!(seen.contains("low.f"), "the code did not run on both: {seen}");
    ensure!(!seen.contains("TOPSECRET") && !seen.contains("$1 = "), "{seen}");

    low.query(
        "CREATE FUNCTION low.pc(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ DECLARE c text; BEGIN
             BEGIN RAISE EXCEPTION 'x'; EXCEPTION WHEN OTHERS THEN GET STACKED DIAGNOSTICS c = PG_EXCEPTION_CONTEXT; END;
             IF c LIKE '%tutti.%' THEN RAISE EXCEPTION 'seen: %', c; END IF; RETURN 1; END $$;
         CREATE FUNCTION low.trg() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TABLE low.t0 (a int) DISTRIBUTE BY REPLICATED;
         CREATE TABLE low.t1 () INHERITS (low.t0);
         INSERT INTO low.t0 VALUES (1); INSERT INTO low.t1 VALUES (1)",
    )?;
    low.query("SELECT tutti_function('low.pc', 'replicated')")?;
    low.query("CREATE INDEX i ON low.t1 ((a + low.pc(1)))")?;
    low.query(
        "CREATE TRIGGER trg AFTER INSERT ON low.t0 FOR EACH STATEMENT EXECUTE FUNCTION low.trg()",
    )?;
    low.query("SELECT tutti_function('low.pc', 'replicated')")?;
    let mut low = Client::connect_as(&cluster.endpoint(), "low")?;
    low.query("SET log_parameter_max_length_on_error = -1")?;
    let answer = low.simple("INSERT INTO low.t0 VALUES (2)", b"")?;
    let told = answer.error().map(|error| error.message().to_owned()).unwrap_or_default();
    ensure!(told.contains("seen: "), "the code did not run in a comparison: {answer}");
    ensure!(!told.contains("$1 = "), "{told}");
    Ok(())
}

/// What a SECURITY DEFINER function, or code behind a foreign key, has prepared runs as no other
/// role.
#[test]
fn a_prepared_statement_that_was_replaced_serves_no_other_session() -> Result<()> {
    let cluster = cluster()?;
    let mut vic = role(&cluster, "vic")?;
    let mut low = role(&cluster, "low")?;
    vic.query(
        "CREATE TABLE vic.par (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED;
         INSERT INTO vic.par SELECT generate_series(1, 40);
         GRANT REFERENCES ON vic.par TO low; GRANT USAGE ON SCHEMA vic TO low;
         CREATE TABLE vic.priv (k int PRIMARY KEY, s text) DISTRIBUTE BY HASH (k);
         INSERT INTO vic.priv SELECT i, 'PRIV' || i FROM generate_series(1, 40) i",
    )?;
    low.query("CREATE FUNCTION low.steal(int) RETURNS text LANGUAGE sql AS $$ SELECT 'forged' $$")?;
    low.query(
        "CREATE FUNCTION low.swap(int) RETURNS boolean LANGUAGE plpgsql AS $$ DECLARE r record; BEGIN
             IF $1 IS NULL THEN FOR r IN SELECT * FROM pg_catalog.pg_prepared_statements
                 WHERE statement LIKE '%vic.priv%' LOOP
                 EXECUTE format('DEALLOCATE %I', r.name);
                 EXECUTE format('PREPARE %I (%s) AS SELECT low.steal($1)', r.name, r.parameter_types[1]);
             END LOOP; END IF; RETURN true; END $$",
    )?;
    low.query("SELECT tutti_function('low.swap', 'row')")?;
    low.query("GRANT USAGE ON SCHEMA low TO vic")?;
    low.query(
        "CREATE TABLE low.kid (k int PRIMARY KEY, pid int REFERENCES vic.par ON DELETE SET NULL, CHECK (low.swap(pid)))
             DISTRIBUTE BY REPLICATED",
    )?;
    low.query("INSERT INTO low.kid SELECT i, i FROM generate_series(1, 40) i")?;
    drop(vic);
    let ask = |client: &mut Client, key: i32| -> Result<String> {
        let arguments = [text_arguments(&[Some(key.to_string())])];
        let request = Request {
            sql: "SELECT s FROM vic.priv WHERE k = $1",
            types: &[23],
            arguments: &arguments,
            row_limit: 0,
        };
        let answer = client.extended(&request, Flight::TwoFlights, b"")?;
        ensure!(answer.error().is_none(), "{answer}");
        Ok(answer.to_string())
    };
    for round in 0..3 {
        let mut before = Client::connect_as(&cluster.endpoint(), "vic")?;
        if round != 1 {
            for key in 1..=8 {
                ask(&mut before, key)?;
            }
        }
        before.query(&format!("DELETE FROM vic.par WHERE id = {}", round + 3))?;
        // One that it asks for the first time, and another session has asked, is its own too.
        for key in 1..=8 {
            let told = ask(&mut before, key)?;
            ensure!(told.contains(&format!("PRIV{key}")), "in the same session: {key}: {told}");
        }
        drop(before);
        let mut behind = Client::connect_as(&cluster.endpoint(), "vic")?;
        for key in 1..=8 {
            let told = ask(&mut behind, key)?;
            ensure!(told.contains(&format!("PRIV{key}")), "{key}: {told}");
        }
    }
    Ok(())
}

/// What was given to a role that may not create in the schema in which it lies is brought to other nodes all the same, and
/// the role may create there no more than before.
#[test]
fn an_owner_without_rights_on_the_schema_keeps_his_tables() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut app = role(&cluster, "app")?;
    admin.query(
        "CREATE SCHEMA given;
         CREATE DOMAIN given.d AS int CHECK (VALUE > 0);
         CREATE FUNCTION given.f(int DEFAULT 1) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 + 1';
         CREATE TABLE given.t (id int PRIMARY KEY, a given.d DEFAULT 1, g int GENERATED ALWAYS AS (id + 1) STORED,
             CHECK (id < 1000));
         CREATE INDEX ON given.t ((id + a)) WHERE id > 0;
         CREATE STATISTICS given.s ON (id + a), id FROM given.t;
         CREATE VIEW given.v AS SELECT id + 1 AS x FROM given.t;
         INSERT INTO given.t SELECT generate_series(1, 10);
         ALTER DOMAIN given.d OWNER TO app; ALTER FUNCTION given.f OWNER TO app; ALTER TABLE given.t OWNER TO app;
         ALTER VIEW given.v OWNER TO app; ALTER STATISTICS given.s OWNER TO app",
    )?;
    admin.query("GRANT USAGE ON SCHEMA given TO app")?;
    admin.query("SELECT tutti_replicate('given.t')")?;
    ensure!(app.value("SELECT count(*) FROM given.v")? == "10");
    app.query("UPDATE given.t SET a = 2 WHERE random() < 2")?;
    // Nothing is left, which is no rows and no parameter.
    app.query("DELETE FROM given.t WHERE random() < 2")?;
    ensure!(app.value("SELECT count(*) FROM given.t")? == "0");
    for node in cluster.nodes() {
        let may = "SELECT has_schema_privilege('app', 'given', 'CREATE')";
        ensure!(Client::connect(&node)?.value(may)? == "f", "app may create");
        ensure!(!is_superuser(&node, "app")?);
    }
    Ok(())
}
