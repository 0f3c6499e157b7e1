//! Values in binary format that say numbers of types and tables: clients get node 1's, whichever node answers, and give
//! node 1's, whichever node stores.
//!
//! Owns: arrays, rows and what is made of them, by every way on which rows and parameters travel.

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use tutti_tests::answer::Outcome;
use tutti_tests::client::{Client, Flight, Request};
use tutti_tests::gateway::TestCluster;
use tutti_wire::backend::{decode_data_row, decode_parameter_description};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frontend::{
    Arguments, Target, put_bind, put_describe, put_execute, put_parse, put_sync,
};

const ROWS: u32 = 20;

/// What row `i` has.
const VALUES: &str =
    "ARRAY['sad', 'glad', NULL]::mood[] || (CASE i % 2 WHEN 0 THEN 'ok' ELSE 'sad' END)::mood,
    ROW(i, 'glad', ARRAY['sad', 'ok']::mood[])::note,
    ARRAY[ROW(i, 'ok', NULL)::note, NULL, ROW(NULL, NULL, '{}')::note],
    ARRAY['ok']::moods, ARRAY[ROW('plain ' || i, i)::plain], numrange(i, i + 1)";

type Rows = Vec<Vec<Option<Bytes>>>;

const BINARY: [i16; 1] = [1];

/// Rows in binary format, described in the flight that asks for them.
fn asked(client: &mut Client, sql: &str) -> Result<Rows> {
    let arguments = [Arguments { result_formats: BINARY.to_vec(), ..Arguments::default() }];
    let request = Request { sql, arguments: &arguments, ..Request::default() };
    rows_of(client.extended(&request, Flight::OneFlight, &[])?.outcomes, sql)
}

fn rows_of(outcomes: Vec<Outcome>, sql: &str) -> Result<Rows> {
    let last = outcomes.into_iter().rev().find_map(|outcome| match outcome {
        Outcome::Rows { rows, .. } if !rows.is_empty() => Some(Ok(rows)),
        Outcome::Failed(error) => {
            Some(Err(anyhow::anyhow!("{sql}: {} {}", error.sqlstate(), error.message())))
        }
        _ => None,
    });
    last.with_context(|| format!("{sql}: no rows"))?
}

/// A statement that is described when it is prepared, and not again.
struct Prepared {
    types: Vec<u32>,
}

fn finish(client: &mut Client, out: &BytesMut) -> Result<(Rows, Vec<u32>)> {
    client.send_bytes(out)?;
    let (mut rows, mut types) = (Vec::new(), Vec::new());
    let mut refused = None;
    loop {
        let frame = client.receive()?;
        match frame.tag() {
            b'D' => rows.push(decode_data_row(&frame)?),
            b't' => types = decode_parameter_description(&frame)?,
            b'E' => refused = Some(ErrorFields::decode(&frame)?),
            b'Z' => break,
            _ => (),
        }
    }
    match refused {
        Some(error) => anyhow::bail!("{} {}", error.sqlstate(), error.message()),
        None => Ok((rows, types)),
    }
}

impl Prepared {
    fn new(client: &mut Client, name: &str, sql: &str) -> Result<Self> {
        let mut out = BytesMut::new();
        put_parse(&mut out, name, sql, &[]);
        put_describe(&mut out, Target::Statement, name);
        put_sync(&mut out);
        let (_, types) = finish(client, &out).with_context(|| sql.to_owned())?;
        Ok(Self { types })
    }

    /// Several executions in one flight.
    fn run(client: &mut Client, name: &str, all: &[Vec<Option<Bytes>>]) -> Result<Rows> {
        let mut out = BytesMut::new();
        for values in all {
            let (formats, result_formats) = (BINARY.to_vec(), BINARY.to_vec());
            let arguments = Arguments { formats, values: values.clone(), result_formats };
            put_bind(&mut out, "", name, &arguments);
            put_execute(&mut out, "", 0);
        }
        put_sync(&mut out);
        Ok(finish(client, &out).with_context(|| name.to_owned())?.0)
    }
}

fn int4(number: u32) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&number.to_be_bytes()))
}

const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// The data of a COPY in binary format.
fn copied(rows: &Rows) -> Vec<u8> {
    let mut data = COPY_HEADER.to_vec();
    for row in rows {
        data.extend(i16::try_from(row.len()).expect("few").to_be_bytes());
        for value in row {
            let len = value.as_ref().map_or(-1, |it| i32::try_from(it.len()).expect("short"));
            data.extend(len.to_be_bytes());
            data.extend(value.iter().flatten());
        }
    }
    data.extend([0xff, 0xff]);
    data
}

/// What stands in it.
fn rows_copied(data: &[u8]) -> Result<Rows> {
    let mut rest = data.strip_prefix(COPY_HEADER).context("it has no header")?;
    let mut rows = Rows::new();
    loop {
        let (count, behind) = rest.split_first_chunk().context("it ends early")?;
        rest = behind;
        let Ok(count) = usize::try_from(i16::from_be_bytes(*count)) else { break };
        let mut row = Vec::new();
        for _ in 0..count {
            let (len, behind) = rest.split_first_chunk().context("it ends early")?;
            let len = usize::try_from(i32::from_be_bytes(*len)).ok();
            let (value, behind) =
                behind.split_at_checked(len.unwrap_or(0)).context("it ends early")?;
            row.push(len.map(|_| Bytes::copy_from_slice(value)));
            rest = behind;
        }
        rows.push(row);
    }
    ensure!(rest.is_empty(), "there is something behind its end");
    Ok(rows)
}

/// Rows by their first column.
fn sorted(mut rows: Rows) -> Rows {
    rows.sort();
    rows
}

#[test]
fn numbers_within_values_are_those_of_node_1() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let nodes = cluster.nodes();
    for (index, node) in nodes.iter().enumerate() {
        // Each server has given other numbers.
        let mut there = Client::connect(node)?;
        for _ in 0..7 * index {
            there.query("CREATE TYPE tutti_passes AS ENUM (); DROP TYPE tutti_passes")?;
        }
    }
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE TYPE mood AS ENUM ('sad', 'ok', 'glad');
         CREATE TYPE note AS (n int, m mood, ms mood[]);
         CREATE TYPE plain AS (t text, n int);
         CREATE DOMAIN moods AS mood[];
         CREATE TABLE t (id int PRIMARY KEY, ms mood[], n note, ns note[], d moods, p plain[], r numrange)
             DISTRIBUTE BY HASH (id);
         CREATE TABLE u (id int, v int) DISTRIBUTE BY HASH (v);
         CREATE TABLE p (id int PRIMARY KEY, ms mood[], n note, ns note[], d moods, p plain[], r numrange)
             DISTRIBUTE BY HASH (id)",
    )?;
    client.query(&format!("INSERT INTO t SELECT i, {VALUES} FROM generate_series(1, {ROWS}) i"))?;
    client.query(&format!("INSERT INTO u SELECT i, i + 1 FROM generate_series(1, {ROWS}) i"))?;
    let mut home = Client::connect(&nodes[0])?;
    let all = asked(&mut home, &format!("SELECT i, {VALUES} FROM generate_series(1, {ROWS}) i"))?;

    // One node's rows, by each way of asking for them.
    let of_one = Prepared::new(&mut client, "of_one", "SELECT * FROM t WHERE id = $1")?;
    ensure!(of_one.types == [23]);
    for (row, id) in all.iter().zip(1..) {
        let literal = format!("SELECT * FROM t WHERE id = {id}");
        ensure!(asked(&mut client, &literal)?[..] == [row.clone()], "{literal}");
        let bound = Prepared::run(&mut client, "of_one", &[vec![int4(id)]])?;
        ensure!(bound[..] == [row.clone()], "prepared, {id}");
        client.query("BEGIN")?;
        client.query(&format!("DECLARE c BINARY CURSOR FOR {literal}"))?;
        let fetched = rows_of(client.simple("FETCH ALL FROM c", &[])?.outcomes, "FETCH")?;
        ensure!(fetched[..] == [row.clone()], "by a cursor, {id}");
        client.query("COMMIT")?;
    }
    let flights: Vec<_> = (1..=ROWS).map(|id| vec![int4(id)]).collect();
    ensure!(Prepared::run(&mut client, "of_one", &flights)? == all, "many in one flight");

    // All nodes' rows, gathered ones, and what is made of rows.
    for (sql, of_literals) in [
        ("SELECT * FROM t", "SELECT * FROM given"),
        ("SELECT t.* FROM t JOIN u ON u.v = t.id + 1", "SELECT * FROM given"),
        ("SELECT t.* FROM t JOIN u USING (id) WHERE u.v > 5", "SELECT * FROM given WHERE id > 4"),
        ("SELECT id, ROW(id, ms, n) FROM t", "SELECT id, ROW(id, ms, n) FROM given"),
        (
            "SELECT id, ARRAY[ROW(n), ROW(ms)] FROM t",
            "SELECT id, ARRAY[ROW(n), ROW(ms)] FROM given",
        ),
        ("SELECT id, pg_typeof(ns) FROM t", "SELECT id, pg_typeof(ns) FROM given"),
        ("SELECT id, tableoid::regclass FROM t", "SELECT id, 't'::regclass FROM given"),
        (
            "SELECT id, array_agg(u) FROM u GROUP BY id",
            "SELECT i, ARRAY[ROW(i, i + 1)::u] FROM generate_series(1, 20) i",
        ),
        ("SELECT id, u FROM u", "SELECT i, ROW(i, i + 1)::u FROM generate_series(1, 20) i"),
    ] {
        let given = format!(
            "WITH given (id, ms, n, ns, d, p, r) AS (SELECT i, {VALUES} FROM generate_series(1, {ROWS}) i) {of_literals}"
        );
        let expected = sorted(asked(&mut home, &given)?);
        ensure!(sorted(asked(&mut client, sql)?) == expected, "{sql}");
        Prepared::new(&mut client, sql, sql)?;
        ensure!(sorted(Prepared::run(&mut client, sql, &[vec![]])?) == expected, "prepared: {sql}");
    }

    // A table's rows, of types that are known, made and changed since.
    client.query("CREATE TABLE w (id int, m mood) DISTRIBUTE BY HASH (id)")?;
    client.query(&format!("INSERT INTO w SELECT i, 'ok' FROM generate_series(1, {ROWS}) i"))?;
    for (change, row) in [
        ("SELECT 1", "ROW(i, 'ok')::w"),
        ("ALTER TABLE w ADD COLUMN ms mood[]", "ROW(i, 'ok', NULL)::w"),
        ("UPDATE w SET ms = '{sad}'", "ROW(i, 'ok', '{sad}')::w"),
        ("ALTER TABLE w DROP COLUMN m", "ROW(i, '{sad}')::w"),
    ] {
        client.query(change)?;
        let rows = format!("SELECT i, {row} FROM generate_series(1, {ROWS}) i");
        let expected = sorted(asked(&mut home, &rows)?);
        ensure!(sorted(asked(&mut client, "SELECT id, w FROM w")?) == expected, "{change}");
        let arrays = sorted(asked(&mut client, "SELECT id, array_agg(w) FROM w GROUP BY id")?);
        let rows = format!("SELECT i, ARRAY[{row}] FROM generate_series(1, {ROWS}) i");
        ensure!(arrays == sorted(asked(&mut home, &rows)?), "{change}: arrays");
    }

    // Parameters, of types that a node has found out, and of types that the client has named.
    let insert = "INSERT INTO p VALUES ($1, $2, $3, $4, $5, $6, $7)";
    let described = Prepared::new(&mut client, "insert", insert)?;
    for row in &all[..10] {
        Prepared::run(&mut client, "insert", std::slice::from_ref(row))?;
    }
    Prepared::run(&mut client, "insert", &all[10..15])?;
    for row in &all[15..] {
        let arguments =
            [Arguments { formats: BINARY.to_vec(), values: row.clone(), ..Arguments::default() }];
        let request =
            Request { sql: insert, types: &described.types, arguments: &arguments, row_limit: 0 };
        let answer = client.extended(&request, Flight::OneFlight, &[])?;
        ensure!(answer.error().is_none(), "{answer}");
    }
    let alike = "SELECT count(*) FROM t JOIN p USING (id) WHERE (t.ms, t.n, t.ns, t.d, t.r) = (p.ms, p.n, p.ns, p.d, p.r)
        AND t.p::text = p.p::text";
    ensure!(client.value(alike)? == ROWS.to_string());
    // COPY in binary format, both ways.
    client.query("TRUNCATE p")?;
    let answer = client.simple("COPY p FROM STDIN (FORMAT binary)", &copied(&all))?;
    ensure!(answer.error().is_none(), "{answer}");
    ensure!(client.value(alike)? == ROWS.to_string());
    for what in ["t", "(SELECT * FROM p)", "(SELECT t.* FROM t JOIN u ON u.v = t.id + 1)"] {
        let answer = client.simple(&format!("COPY {what} TO STDOUT (FORMAT binary)"), &[])?;
        let Some(Outcome::CopyOut { data, .. }) = answer.outcomes.first() else {
            anyhow::bail!("{what}: {answer}");
        };
        ensure!(sorted(rows_copied(data)?) == all, "{what}");
    }
    for (id, row) in (1..).zip(&all) {
        let one = format!("COPY (SELECT * FROM t WHERE id = {id}) TO STDOUT (FORMAT binary)");
        let answer = client.simple(&one, &[])?;
        let Some(Outcome::CopyOut { data, .. }) = answer.outcomes.first() else {
            anyhow::bail!("{one}: {answer}");
        };
        ensure!(rows_copied(data)?[..] == [row.clone()], "{one}");
    }
    // To all nodes at once, and of what a transaction has made itself.
    let mut ids = Vec::new();
    for sql in [
        "SELECT id FROM p WHERE ns = $1",
        "SELECT a.id FROM p a JOIN u ON u.v = a.id + 1 WHERE a.ns = $1",
    ] {
        Prepared::new(&mut client, sql, sql)?;
        for row in &all {
            ids.extend(
                Prepared::run(&mut client, sql, &[vec![row[3].clone()]])?.into_iter().flatten(),
            );
        }
    }
    let expected: Vec<_> = (1..=ROWS).map(int4).collect();
    ensure!(ids == [&expected[..], &expected[..]].concat());
    client.query(
        "BEGIN; CREATE TYPE hue AS ENUM ('red', 'blue');
         CREATE TABLE h (id int PRIMARY KEY, hues hue[]) DISTRIBUTE BY HASH (id);
         INSERT INTO h SELECT i, '{red,blue}' FROM generate_series(1, 20) i",
    )?;
    let hues = asked(&mut client, "SELECT hues FROM h WHERE id < 20")?;
    let mut distinct = hues.clone();
    distinct.dedup();
    ensure!(hues.len() == 19 && distinct.len() == 1, "{distinct:?}");
    let number = client.value("SELECT 'hue'::regtype::oid")?.parse::<u32>()?;
    ensure!(hues[0][0].as_ref().is_some_and(|value| value[8..12] == number.to_be_bytes()));
    client.query("ROLLBACK")?;
    Ok(())
}
