//! DISTRIBUTE BY RANGE: where rows go, what is refused, what goes along, and that the auditor knows ranges.

use std::process::Command;

use anyhow::{Result, ensure};
use tutti_tests::client::Client;
use tutti_tests::gateway::TestCluster;
use tutti_tests::programs;

use crate::placement_by_sql::{refused, start};

/// What `sql` says on each node by itself.
fn on_nodes(cluster: &TestCluster, sql: &str) -> Result<Vec<String>> {
    cluster.nodes().iter().map(|node| Client::connect(node)?.value(sql)).collect()
}

fn plan(client: &mut Client, sql: &str) -> Result<String> {
    let rows = client.query(&format!("EXPLAIN {sql}"))?;
    Ok(rows.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n"))
}

fn ensure_placed(client: &mut Client, table: &str, placement: &str) -> Result<()> {
    let rows = client.query("SELECT * FROM tutti_tables()")?;
    let said = rows.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(" "));
    let said: Vec<_> = said.filter(|row| row.starts_with(&format!("public.{table} "))).collect();
    ensure!(said == [format!("public.{table} {placement}")], "{said:?}");
    Ok(())
}

/// Goal: ranges are given to the nodes in order, whatever writes the rows. Method: the nodes are asked by themselves.
#[test]
fn ranges_are_on_the_nodes_in_order() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query(
        "CREATE TABLE t (k int, v int) DISTRIBUTE BY RANGE (k) SPLIT AT VALUES (-10, 0, '10', +20, 30);
         INSERT INTO t SELECT n, n FROM generate_series(-20, 39) n; INSERT INTO t VALUES (NULL, 0)",
    )?;
    ensure_placed(&mut client, "t", "range k")?;
    let spans = "SELECT concat(min(k), ' to ', max(k), ': ', count(*)) FROM t";
    let expected = ["-20 to -1: 21", "0 to 19: 20", "20 to 39: 20"];
    ensure!(on_nodes(&cluster, spans)? == expected, "{:?}", on_nodes(&cluster, spans)?);
    client.query("UPDATE t SET k = k + 60 WHERE k < 0")?;
    client.query("UPDATE t SET k = -5 WHERE k = 7")?;
    let expected = ["-5 to -5: 2", "0 to 19: 19", "20 to 59: 40"];
    ensure!(on_nodes(&cluster, spans)? == expected, "{:?}", on_nodes(&cluster, spans)?);

    // Moved by ALTER TABLE, to and fro.
    let digest = "SELECT md5(string_agg(t::text, ',' ORDER BY k, v)) FROM t";
    let before = client.value(digest)?;
    for (clause, placement, counts) in [
        ("HASH (k)", "hash k", None),
        ("RANGE (k) SPLIT AT VALUES (1000)", "range k", Some(["61", "0", "0"])),
        ("RANGE (k) SPLIT AT VALUES (-1000)", "range k", Some(["1", "60", "0"])),
        ("REPLICATED", "replicated", Some(["61", "61", "61"])),
        ("RANGE (v) SPLIT AT VALUES (-19, -18)", "range v", Some(["1", "1", "59"])),
        ("ROUND ROBIN", "round robin", None),
        ("RANGE (k) SPLIT AT VALUES (0, 20)", "range k", Some(["2", "19", "40"])),
        ("HOME", "node 1 only", None),
        ("RANGE (k) SPLIT AT VALUES (0, 20)", "range k", Some(["2", "19", "40"])),
    ] {
        client.query(&format!("ALTER TABLE t DISTRIBUTE BY {clause}"))?;
        ensure_placed(&mut client, "t", placement)?;
        ensure!(client.value(digest)? == before, "rows differ by {clause}");
        if let Some(counts) = counts {
            let found = on_nodes(&cluster, "SELECT count(*) FROM t")?;
            ensure!(found == counts, "{clause}: {found:?}");
        }
    }
    // As part of a transaction, and taken back with it.
    client.query("BEGIN; ALTER TABLE t DISTRIBUTE BY RANGE (k) SPLIT AT VALUES (50)")?;
    client.query("INSERT INTO t VALUES (51, 51)")?;
    ensure!(client.value("SELECT count(*) FROM t WHERE k > 50")? == "10");
    client.query("ROLLBACK")?;
    ensure!(client.value(digest)? == before);
    let found = on_nodes(&cluster, "SELECT count(*) FROM t")?;
    ensure!(found == ["2", "19", "40"], "{found:?}");
    client.query(
        "CREATE TABLE s DISTRIBUTE BY RANGE (k) SPLIT AT VALUES (0, 20) AS SELECT * FROM t",
    )?;
    let found = on_nodes(&cluster, "SELECT count(*) FROM s")?;
    ensure!(found == ["2", "19", "40"], "{found:?}");
    Ok(())
}

#[test]
fn wrong_ranges_are_refused() -> Result<()> {
    let (_cluster, mut client) = start()?;
    client.query(
        "CREATE TABLE t (i int, b text, c text COLLATE \"C\", d date, n numeric, z timestamptz)",
    )?;
    let clause = |rest: &str| format!("ALTER TABLE t DISTRIBUTE BY RANGE {rest}");
    for (rest, sqlstate, says) in [
        ("(i)", "42601", "SPLIT AT VALUES"),
        ("(i) SPLIT AT VALUES ()", "42601", "syntax error"),
        ("(i) SPLIT AT VALUES (1,)", "42601", "syntax error"),
        ("(i) SPLIT AT VALUES (1 + 1)", "42601", "syntax error"),
        ("(i, b) SPLIT AT VALUES (1)", "42601", "syntax error"),
        ("(lower(b)) SPLIT AT VALUES ('a')", "0A000", "by an expression"),
        ("(i) SPLIT AT VALUES (1) , ADD COLUMN x int", "42601", "syntax error"),
        ("(i) SPLIT AT VALUES (1, NULL)", "22023", "cannot begin at NULL"),
        ("(i) SPLIT AT VALUES (2, 1)", "22023", "\"1\" does not come after \"2\""),
        ("(i) SPLIT AT VALUES (1, 1)", "22023", "ascending order"),
        ("(c) SPLIT AT VALUES ('a', 'B')", "22023", "by their bytes"),
        ("(i) SPLIT AT VALUES ('one')", "22P02", "invalid input syntax"),
        ("(i) SPLIT AT VALUES (1.5)", "22P02", "invalid input syntax"),
        ("(i) SPLIT AT VALUES (99999999999999999999)", "22003", "out of range"),
        ("(c) SPLIT AT VALUES (1)", "42804", "Write it as a string"),
        ("(d) SPLIT AT VALUES (20240101)", "42804", "Write it as a string"),
        ("(d) SPLIT AT VALUES ('2024-02-30')", "22008", "out of range"),
        ("(d) SPLIT AT VALUES ('infinity')", "22023", "years 1 to 9999"),
        ("(z) SPLIT AT VALUES ('0044-03-15 BC')", "22023", "years 1 to 9999"),
        ("(b) SPLIT AT VALUES ('a')", "0A000", "COLLATE \"C\""),
        ("(n) SPLIT AT VALUES (1)", "0A000", "smallint, integer"),
        ("(missing) SPLIT AT VALUES (1)", "42703", "does not exist"),
    ] {
        let said = refused(&mut client, &clause(rest), sqlstate)?;
        ensure!(said.contains(says), "{rest}: {said}");
    }
    let many: Vec<_> = (0..1024).map(|n| n.to_string()).collect();
    let of = |values: &[String]| clause(&format!("(i) SPLIT AT VALUES ({})", values.join(", ")));
    refused(&mut client, &of(&many), "22023")?;
    client.query(&of(&many[1..]))?;
    ensure_placed(&mut client, "t", "range i")?;

    // In the session's own spelling.
    client.query("SET DateStyle = 'German'; SET TimeZone = 'Asia/Tokyo'")?;
    client.query(&clause("(d) SPLIT AT VALUES ('01.02.2024', '03.02.2024')"))?;
    client.query(&clause("(z) SPLIT AT VALUES ('01.02.2024 09:00')"))?;
    let splits = "SELECT splits::text FROM tutti.map JOIN tutti.placements p ON p.map = id WHERE relation = 't'::regclass";
    ensure!(client.value(splits)? == "{\"2024-02-01 00:00:00.000000+00\"}");
    // The order stays that of bytes.
    client.query(&clause("(c) SPLIT AT VALUES ('B', 'a')"))?;
    let said = refused(&mut client, "ALTER TABLE t ALTER c TYPE text COLLATE \"en_US\"", "0A000")?;
    ensure!(said.contains("distribution key"), "{said}");
    refused(&mut client, "ALTER TABLE t ALTER c TYPE bytea USING NULL", "0A000")?;
    refused(&mut client, "ALTER TABLE t DROP c", "0A000")?;
    refused(&mut client, "SELECT tutti_distribute('t', 'i', 5)", "42883")?;
    Ok(())
}

/// Goal: tables with equal ranges are colocated, and others are not. Method: foreign keys, CASCADE, and tables that follow.
#[test]
fn tables_with_equal_ranges_are_together() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query(
        "CREATE TABLE p (id bigint PRIMARY KEY); CREATE TABLE c (p int REFERENCES p, n int, PRIMARY KEY (p, n));
         CREATE TABLE g (p int, n int, x int, FOREIGN KEY (p, n) REFERENCES c);
         INSERT INTO p SELECT generate_series(1, 60); INSERT INTO c SELECT n, n FROM generate_series(1, 60) n;
         INSERT INTO g SELECT n, n, n FROM generate_series(1, 60) n",
    )?;
    let range = "RANGE (\"id\") SPLIT AT VALUES (20, 30)";
    let said = refused(&mut client, &format!("ALTER TABLE p DISTRIBUTE BY {range}"), "0A000")?;
    ensure!(
        said.contains(&format!("ALTER TABLE \"public\".\"p\" DISTRIBUTE BY {range} CASCADE.")),
        "{said}"
    );
    client.query(&format!("ALTER TABLE p DISTRIBUTE BY {range} CASCADE"))?;
    for table in ["p", "c", "g"] {
        let found = on_nodes(&cluster, &format!("SELECT count(*) FROM {table}"))?;
        ensure!(found == ["19", "10", "31"], "{table}: {found:?}");
    }
    ensure_placed(&mut client, "g", "range p")?;
    client
        .query("CREATE TABLE f (p int REFERENCES p, PRIMARY KEY (p)); INSERT INTO f VALUES (25)")?;
    ensure_placed(&mut client, "f", "range p")?;
    let found = on_nodes(&cluster, "SELECT count(*) FROM f")?;
    ensure!(found == ["0", "1", "0"], "{found:?}");
    refused(&mut client, "INSERT INTO f VALUES (99)", "23503")?;
    for (clause, sqlstate) in [
        ("RANGE (p) SPLIT AT VALUES (20, 31)", "0A000"),
        ("HASH (p)", "0A000"),
        ("RANGE (p) SPLIT AT VALUES (20, 30)", "00000"),
    ] {
        let sql =
            format!("CREATE TABLE h (p int REFERENCES p, PRIMARY KEY (p)) DISTRIBUTE BY {clause}");
        match sqlstate {
            "00000" => drop(client.query(&sql)?),
            sqlstate => drop(refused(&mut client, &sql, sqlstate)?),
        }
    }
    let joined = plan(&mut client, "SELECT p.id, g.x FROM p JOIN g ON g.p = p.id")?;
    ensure!(!joined.contains("gather") && !joined.contains("Gather"), "{joined}");
    ensure!(client.value("SELECT count(*) FROM p JOIN g ON g.p = p.id")? == "60");
    client
        .query("CREATE TABLE o (p int PRIMARY KEY) DISTRIBUTE BY RANGE (p) SPLIT AT VALUES (5)")?;
    client.query("INSERT INTO o SELECT generate_series(1, 60)")?;
    ensure!(client.value("SELECT count(*) FROM p JOIN o ON o.p = p.id")? == "60");
    client.query("ALTER TABLE p DISTRIBUTE BY HOME CASCADE")?;
    ensure_placed(&mut client, "g", "node 1 only")?;
    Ok(())
}

/// A statement whose condition bounds the key goes to one node where that has all ranges between.
#[test]
fn bounds_pin_a_statement_to_the_node_of_its_ranges() -> Result<()> {
    let (_cluster, mut client) = start()?;
    client.query(
        "CREATE TABLE t (k date, v int) DISTRIBUTE BY RANGE (k) SPLIT AT VALUES ('2024-02-01', '2024-03-01', '2024-04-01', '2024-05-01', '2024-06-01');
         INSERT INTO t SELECT date '2024-01-01' + n, n FROM generate_series(0, 181) n;
         CREATE TABLE h (k int, v int) DISTRIBUTE BY HASH (k)",
    )?;
    for (condition, rows, is_one) in [
        ("k >= '2024-03-01' AND k < '2024-05-01'", "61", true),
        ("k >= '2024-03-01' AND k <= '2024-05-01'", "62", false),
        ("k BETWEEN '2024-03-01' AND '2024-04-30'", "61", true),
        ("k > '2024-02-29' AND k < '2024-03-03'", "2", false),
        ("k < '2024-03-01'", "60", true),
        ("'2024-03-01' > k", "60", true),
        ("k <= '2024-03-01'", "61", false),
        ("k >= '2024-05-01'", "61", true),
        ("k > DATE '2024-06-29'", "1", true),
        ("k > '2024-06-29'::timestamp", "1", false),
        ("NOT k < '2024-06-29'", "2", false),
        ("k < '2024-01-03' OR k > '2024-06-29'", "3", false),
    ] {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        ensure!(client.value(&sql)? == rows, "{condition}: {}", client.value(&sql)?);
        // Once more, by its shape.
        ensure!(client.value(&sql)? == rows, "{condition} again");
        let planned = plan(&mut client, &sql)?;
        ensure!(planned.contains("is pinned to") == is_one, "{condition}: {planned}");
    }
    let rows = "SELECT count(*) FROM t WHERE k >= $1 AND k < $2";
    for (from, to, count) in [
        ("2024-03-01", "2024-05-01", "61"),
        ("2024-02-29", "2024-05-02", "63"),
        ("1.3.2024", "2024-03-02", "1"),
    ] {
        client.query("SET DateStyle = 'ISO, DMY'")?;
        client.query(&format!("PREPARE q (date, date) AS {rows}"))?;
        ensure!(client.value(&format!("EXECUTE q ('{from}', '{to}')"))? == count, "{from} {to}");
        client.query("DEALLOCATE q")?;
    }
    ensure!(!plan(&mut client, "SELECT * FROM h WHERE k < 5")?.contains("is pinned to"));
    Ok(())
}

/// Goal: rows on a wrong node, and a map that differs, are found. Method: put them there, past the gateway.
#[test]
fn the_auditor_knows_ranges() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query(
        "CREATE TABLE t (k text COLLATE \"C\" PRIMARY KEY) DISTRIBUTE BY RANGE (k) SPLIT AT VALUES ('h', 'it''s');
         INSERT INTO t SELECT chr(n) FROM generate_series(97, 122) n; INSERT INTO t VALUES ('it''s'), ('B')",
    )?;
    let found = || -> Result<Vec<String>> {
        Ok(cluster.audit()?.findings.iter().map(ToString::to_string).collect())
    };
    ensure!(found()?.is_empty(), "{:?}", found()?);
    let mut node = Client::connect(&cluster.nodes()[1])?;
    node.query("INSERT INTO t VALUES ('zz')")?;
    let findings = found()?;
    ensure!(findings.len() == 1 && findings[0].contains("(zz) belongs to n3"), "{findings:?}");
    node.query("DELETE FROM t WHERE k = 'zz'")?;
    node.query("UPDATE tutti.map SET splits = '{i,j}' WHERE splits IS NOT NULL")?;
    let findings = found()?;
    ensure!(findings.iter().any(|it| it.contains("map ")), "{findings:?}");
    node.query("UPDATE tutti.map SET splits = '{h,it''s}' WHERE splits IS NOT NULL")?;
    ensure!(found()?.is_empty(), "{:?}", found()?);
    Ok(())
}

/// Goal: what is unique over all nodes, and what is dumped, do not depend on ranges. Method: a table by range has both.
#[test]
fn unique_indexes_over_all_nodes_and_dumps_work() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query(
        "CREATE TABLE t (k int PRIMARY KEY, mail text) DISTRIBUTE BY RANGE (k) SPLIT AT VALUES (100, 200);
         INSERT INTO t SELECT n, 'm' || n FROM generate_series(1, 300) n;
         CREATE UNIQUE INDEX t_mail ON t (mail) WITH (tutti.global_unique)",
    )?;
    refused(&mut client, "INSERT INTO t VALUES (301, 'm5')", "23505")?;
    refused(&mut client, "UPDATE t SET mail = 'm7' WHERE k = 250", "23505")?;
    client.query("UPDATE t SET k = 1000 WHERE k = 7; INSERT INTO t VALUES (7, 'new')")?;
    refused(&mut client, "INSERT INTO t VALUES (8000, 'm7')", "23505")?;
    refused(&mut client, "ALTER TABLE t DISTRIBUTE BY RANGE (k) SPLIT AT VALUES (1)", "0A000")?;
    ensure!(client.query("SELECT * FROM tutti_check()")?.is_empty());
    client.query("DROP INDEX t_mail")?;

    let Some(pg_dump) = programs::postgresql_program("pg_dump") else { return Ok(()) };
    let Some(psql) = programs::postgresql_program("psql") else { return Ok(()) };
    let mut command = Command::new(&pg_dump);
    let dump = programs::run(command.arg("--table=t").arg(cluster.endpoint().url()))?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), &dump)?;
    client.query("DROP TABLE t")?;
    let mut restore = Command::new(&psql);
    restore.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(file.path());
    programs::run(restore.arg(cluster.endpoint().url()))?;
    ensure!(client.value("SELECT count(*) FROM public.t")? == "301");
    client.query("ALTER TABLE public.t DISTRIBUTE BY RANGE (k) SPLIT AT VALUES (100, 200)")?;
    let found = on_nodes(&cluster, "SELECT count(*) FROM t")?;
    ensure!(found == ["99", "100", "102"], "{found:?}");
    let mut describe = Command::new(&psql);
    describe.args(["-X", "-c", "\\d+ public.t"]).arg(cluster.endpoint().url());
    let told = programs::run(&mut describe)?;
    let option = "distribute by range (k) split at values ('100', '200')";
    ensure!(told.contains(option), "{told}");
    Ok(())
}

/// A key that is stored otherwise than it is written, rounded or trimmed, may belong to another range.
#[test]
fn keys_that_storing_changes_go_where_what_is_stored_belongs() -> Result<()> {
    let (_cluster, mut client) = start()?;
    for (create, first, written, stored) in [
        (
            "k timestamp(0) PRIMARY KEY, v int) DISTRIBUTE BY RANGE (k) SPLIT AT VALUES ('2026-01-02')",
            "2026-01-01 12:00:00",
            "2026-01-01 23:59:59.6",
            "2026-01-02 00:00:00",
        ),
        (
            "k varchar(3) COLLATE \"C\" PRIMARY KEY, v int) DISTRIBUTE BY RANGE (k) SPLIT AT VALUES ('ab  ', 'b')",
            "ac",
            "ab     ",
            "ab ",
        ),
        (
            "k timestamp(0) PRIMARY KEY, v int) DISTRIBUTE BY HASH (k)",
            "2026-01-01 12:00:00",
            "2026-01-01 23:59:59.6",
            "2026-01-02 00:00:00",
        ),
    ] {
        client.query(&format!("CREATE TABLE kept ({create}"))?;
        for prepares in [false, true] {
            client.query(&format!("INSERT INTO kept VALUES ('{first}', 1)"))?;
            let update = match prepares {
                false => format!("UPDATE kept SET k = '{written}' WHERE k = '{first}'"),
                true => format!(
                    "PREPARE u AS UPDATE kept SET k = $1 WHERE k = $2; EXECUTE u ('{written}', '{first}'); DEALLOCATE u"
                ),
            };
            client.query(&update)?;
            let found = client.value(&format!("SELECT count(*) FROM kept WHERE k = '{stored}'"))?;
            ensure!(found == "1", "{create}, prepared {prepares}: {found}");
            let again = client.simple(&format!("INSERT INTO kept VALUES ('{stored}', 2)"), b"")?;
            let refused = again.error().is_some_and(|error| error.sqlstate() == "23505");
            ensure!(refused, "{create}, prepared {prepares}: {again}");
            client.query("DELETE FROM kept")?;
        }
        client.query("DROP TABLE kept")?;
    }
    Ok(())
}
