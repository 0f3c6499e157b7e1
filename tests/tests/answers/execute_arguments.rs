//! The arguments of EXECUTE: assigned to the types of the parameters, once, as one PostgreSQL does it.

use anyhow::{Result, ensure};
use tutti_tests::answer::{Answer, Outcome};
use tutti_tests::client::Client;
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

/// From here on they are each server's own.
const FIRST_USER_OID: u32 = 16384;

/// Types of parameters; `unknown` leaves it to the statement, whose key is an int4.
const TYPES: [&str; 24] = [
    "unknown",
    "int2",
    "int4",
    "int8",
    "numeric",
    "float8",
    "text",
    "varchar",
    "varchar(1)",
    "char(3)",
    "name",
    "\"char\"",
    "bool",
    "date",
    "timestamptz",
    "oid",
    "regclass",
    "uuid",
    "inet",
    "interval",
    "bytea",
    "jsonb",
    "int4[]",
    "numeric(3,1)",
];

/// Arguments of many types: constants, and what has to be computed.
const ARGUMENTS: [&str; 31] = [
    "1",
    "'1'",
    "-5",
    "1.5",
    "9000000000",
    "NULL",
    "true",
    "'t'",
    "'a  '",
    "'abc'",
    "1::int2",
    "1::int8",
    "2.5::numeric",
    "1::float8",
    "'1'::text",
    "'a'::varchar",
    "'a'::name",
    "date '2020-02-01'",
    "timestamptz '2020-02-01 00:00+00'",
    "interval '1 day'",
    "'{1,2}'",
    "ARRAY[1,2]",
    "ARRAY[1.5]",
    "'\\x61'::bytea",
    "'10.0.0.1'::inet",
    "1 + 0",
    "upper('a')",
    "ROW(1)",
    "'1'::jsonb",
    "'00000000-0000-0000-0000-000000000001'::uuid",
    "'pg_class'::regclass",
];

fn told(answer: &Answer) -> String {
    match answer.error() {
        Some(error) => {
            format!("{} {} {:?}", error.sqlstate(), error.message(), error.get(b'H'))
        }
        None => format!("{:?}", answer.outcomes.iter().map(rows).collect::<Vec<_>>()),
    }
}

fn rows(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Rows { columns, rows, .. } => {
            let types: Vec<_> =
                columns.iter().map(|column| column.type_oid.min(FIRST_USER_OID)).collect();
            let mut rows: Vec<_> = rows.iter().map(|row| format!("{row:?}")).collect();
            rows.sort();
            format!("{types:?} {rows:?}")
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn arguments_become_values_as_on_one_server() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let plain = servers::start(1)?;
    let mut here = Client::connect(&cluster.endpoint())?;
    let mut there = Client::connect(&servers::endpoint(&plain, 0))?;
    here.query("CREATE TABLE kt (k int, n int) DISTRIBUTE BY HASH (k)")?;
    there.query("CREATE TABLE kt (k int, n int)")?;
    let mut compare = |sql: &str| -> Result<()> {
        let (found, expected) = (here.simple(sql, b"")?, there.simple(sql, b"")?);
        ensure!(told(&found) == told(&expected), "{sql}\n{}\n{}", told(&found), told(&expected));
        Ok(())
    };
    for sql in [
        "INSERT INTO kt SELECT g, g FROM generate_series(-9, 9) g",
        "CREATE DOMAIN few AS int CHECK (value < 3)",
        "CREATE DOMAIN some AS few NOT NULL",
        "CREATE TYPE mood AS ENUM ('sad', 'so')",
        "CREATE TYPE pair AS (a int, b text)",
    ] {
        compare(sql)?;
    }
    for of in TYPES.into_iter().chain(["few", "some", "mood", "pair", "few[]"]) {
        let is_key = ["unknown", "int2", "int4", "int8"].contains(&of);
        let where_key = if is_key { " WHERE k = $1" } else { " WHERE k = 1" };
        for text in [
            format!("PREPARE read ({of}) AS SELECT n, $1 FROM kt{where_key}"),
            format!("PREPARE all_of ({of}) AS SELECT sum(n), count($1) FROM kt"),
        ] {
            compare(&text)?;
        }
        for argument in
            ARGUMENTS.into_iter().chain(["2::few", "5", "'so'::mood", "ROW(1,'b')::pair"])
        {
            for name in ["read", "all_of"] {
                compare(&format!("EXECUTE {name} ({argument})"))?;
            }
        }
        compare("DEALLOCATE ALL")?;
    }
    // What an argument may not be, and what stands around EXECUTE.
    compare("PREPARE p (int) AS SELECT n FROM kt WHERE k = $1")?;
    compare("PREPARE twice (float8) AS SELECT $1 = $1, n FROM kt WHERE k = 1")?;
    for sql in [
        "EXECUTE p (true)",
        "EXECUTE p (k)",
        "EXECUTE p (sum(1))",
        "EXECUTE p ((SELECT 1))",
        "EXECUTE p ((SELECT max(k) FROM kt))",
        "EXECUTE p (generate_series(1, 2))",
        "EXECUTE p (row_number() OVER ())",
        "EXECUTE p (nowhere(1))",
        "EXECUTE p (1 / 0)",
        "EXECUTE p ()",
        "EXECUTE p (1, 2)",
        "EXECUTE p (true, 2)",
        "EXECUTE twice (random())",
        "CREATE TEMP TABLE made AS EXECUTE p (true)",
        "CREATE TEMP TABLE made AS EXECUTE p (1.5)",
        "TABLE made",
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "EXECUTE p (1 + 1)",
        "SELECT count(*) FROM kt",
        "EXECUTE p (true)",
        "SELECT 1",
        "ROLLBACK",
        "SET search_path = pg_catalog, public",
        "EXECUTE p (1.4)",
    ] {
        compare(sql)?;
    }
    Ok(())
}
