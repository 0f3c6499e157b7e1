//! Sizes and estimates: what PostgreSQL's functions and `pg_class` say, of all nodes together.
//!
//! Owns: that it is the nodes' sum, however it is asked and by whom; and that what is node 1's alone stays so.

use anyhow::{Result, ensure};
use tutti_tests::client::{Client, Flight, Request, text_arguments};
use tutti_tests::gateway::TestCluster;

const FUNCTIONS: [&str; 4] =
    ["pg_relation_size", "pg_table_size", "pg_indexes_size", "pg_total_relation_size"];
/// Spread tables, partitions, indexes and copies.
const RELATIONS: [&str; 8] =
    ["t", "t_pkey", "long", "parts", "part_1", "part_1_pkey", "copies", "copies_pkey"];

fn start() -> Result<(TestCluster, Client)> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE t (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id)",
        "INSERT INTO t SELECT k, repeat('v', 90) FROM generate_series(1, 3000) k",
        "CREATE TABLE long (id int, v text) DISTRIBUTE BY HASH (id)",
        "ALTER TABLE long ALTER v SET STORAGE EXTERNAL",
        "INSERT INTO long SELECT k, repeat('v', 9000) FROM generate_series(1, 90) k",
        "CREATE TABLE parts (id int, p int, PRIMARY KEY (id, p)) PARTITION BY LIST (p) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1)",
        "INSERT INTO parts SELECT k, 1 FROM generate_series(1, 900) k",
        "CREATE TABLE copies (id int PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED",
        "INSERT INTO copies SELECT k, repeat('v', 90) FROM generate_series(1, 700) k",
        "CREATE TABLE own (id int) DISTRIBUTE BY HOME",
        "INSERT INTO own SELECT generate_series(1, 500)",
        "ANALYZE t, long, parts, copies",
        "ANALYZE own",
    ] {
        let answer = client.simple(sql, b"")?;
        ensure!(answer.error().is_none(), "{sql}\n{answer}");
    }
    Ok((cluster, client))
}

/// What the query gives on each node by itself.
fn on_nodes(cluster: &TestCluster, query: &str) -> Result<Vec<f64>> {
    let of_node = |node| Ok(Client::connect(&node)?.value(query)?.parse()?);
    cluster.nodes().into_iter().map(of_node).collect()
}

fn number(client: &mut Client, query: &str) -> Result<f64> {
    client.value(query)?.parse().map_err(|error| anyhow::anyhow!("{query}: {error}"))
}

#[test]
fn sizes_are_those_of_all_nodes_however_they_are_asked_for() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query("CREATE TABLE wanted (name text, number oid) DISTRIBUTE BY HOME")?;
    for relation in RELATIONS {
        client
            .query(&format!("INSERT INTO wanted VALUES ('{relation}', '{relation}'::regclass)"))?;
        for function in FUNCTIONS {
            let of_nodes = on_nodes(&cluster, &format!("SELECT {function}('{relation}')"))?;
            let sum: f64 = of_nodes.iter().sum();
            for query in [
                format!("SELECT {function}('{relation}')"),
                format!("SELECT pg_catalog.{function}('public.{relation}'::regclass)"),
                format!("SELECT {function}('{relation}'::regclass::oid) + 0"),
                format!("SELECT {function}(oid) FROM pg_class WHERE relname = '{relation}'"),
                format!("SELECT {function}(number) FROM wanted WHERE name = '{relation}'"),
                format!("SELECT {function}((SELECT number FROM wanted WHERE name = '{relation}'))"),
                format!(
                    "SELECT {function}(quote_ident(nspname) || '.' || quote_ident(relname)) \
                     FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relname = '{relation}'"
                ),
                format!(
                    "SELECT sum({function}(c.oid)) FROM pg_class c WHERE c.relname = '{relation}' GROUP BY c.relkind"
                ),
                format!(
                    "WITH a AS (SELECT {function}(oid) AS s FROM pg_class WHERE relname = '{relation}') SELECT s FROM a"
                ),
                format!("SELECT {function}('{relation}') FROM t WHERE id = 7"),
                format!("VALUES ({function}('{relation}'))"),
            ] {
                assert_eq!(number(&mut client, &query)?, sum, "{query} {of_nodes:?}");
            }
            let sql = &format!("SELECT {function}($1)");
            let arguments = [text_arguments(&[Some(relation.to_owned())])];
            let request = Request { sql, arguments: &arguments, ..Request::default() };
            let answer = client.extended(&request, Flight::OneFlight, b"")?;
            ensure!(answer.texts() == [[Some(sum.to_string())]], "{sql} {relation}\n{answer}");
        }
    }
    // What is on node 1 alone, is on none, or is asked for by NULL.
    let own = on_nodes(&cluster, "SELECT coalesce(pg_table_size(to_regclass('own')), 0)")?;
    assert_eq!(own[1..], [0.0, 0.0]);
    assert_eq!(number(&mut client, "SELECT pg_table_size('own')")?, own[0]);
    for query in ["SELECT pg_table_size(1::oid)", "SELECT pg_table_size(NULL)"] {
        assert_eq!(client.query(query)?, [[None]], "{query}");
    }
    let toast = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 'long'";
    let sum: f64 = on_nodes(&cluster, toast)?.iter().sum();
    assert!(0.0 < sum);
    assert_eq!(number(&mut client, toast)?, sum);
    let error = client.simple("SELECT pg_table_size('missing')", b"")?;
    assert_eq!(error.error().map(|error| error.sqlstate().to_owned()).as_deref(), Some("42P01"));
    Ok(())
}

#[test]
fn sizes_are_told_in_blocks_by_cursors_and_to_any_role() -> Result<()> {
    let (cluster, mut client) = start()?;
    let asked = "SELECT pg_total_relation_size(oid) FROM pg_class WHERE relname = 't'";
    let sum: f64 = on_nodes(&cluster, asked)?.iter().sum();
    client.query("CREATE ROLE plain LOGIN")?;
    for role in ["postgres", "plain"] {
        client.query(&format!("SET ROLE {role}"))?;
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            client.query(&format!("BEGIN ISOLATION LEVEL {level}"))?;
            assert_eq!(number(&mut client, asked)?, sum, "{level}");
            client.query(&format!("DECLARE c CURSOR FOR {asked}"))?;
            assert_eq!(number(&mut client, "FETCH c")?, sum, "{level}");
            client.query("COMMIT")?;
        }
        client.query(&format!("PREPARE p AS {asked}"))?;
        assert_eq!(number(&mut client, "EXECUTE p")?, sum);
        client.query("DEALLOCATE p")?;
        let copied = client.simple(&format!("COPY ({asked}) TO STDOUT"), b"")?;
        ensure!(copied.error().is_none(), "{copied}");
        ensure!(copied.to_string().contains(&sum.to_string()), "{copied}");
        ensure!(!client.query(&format!("EXPLAIN {asked}"))?.is_empty());
        let size = "SELECT pg_database_size(current_database())";
        let of_nodes: f64 = on_nodes(&cluster, size)?.iter().sum();
        for size in [
            size,
            "SELECT pg_database_size(oid) FROM pg_database WHERE datname = current_database()",
            "SELECT pg_database_size(datname) FROM pg_database WHERE datname = current_database()",
        ] {
            // Meanwhile servers write.
            let told = number(&mut client, size)?;
            ensure!((told - of_nodes).abs() < of_nodes / 10.0, "{size}: {told} of {of_nodes}");
        }
    }
    client.query("RESET ROLE")?;
    let other = "SELECT pg_database_size('template1')";
    let of_first = on_nodes(&cluster, other)?[0];
    assert_eq!(number(&mut client, other)?, of_first);
    // In a transaction's own table.
    client.query("BEGIN")?;
    client.query("CREATE TABLE fresh (id int) DISTRIBUTE BY HASH (id)")?;
    client.query("INSERT INTO fresh SELECT generate_series(1, 900)")?;
    let fresh = number(&mut client, "SELECT pg_relation_size('fresh')")?;
    assert_eq!(fresh, 3.0 * 16384.0);
    client.query("ROLLBACK")?;
    Ok(())
}

#[test]
fn estimates_are_those_of_all_rows() -> Result<()> {
    let (cluster, mut client) = start()?;
    for column in ["reltuples", "relpages"] {
        for relation in RELATIONS {
            let query = format!("SELECT {column} FROM pg_class WHERE relname = '{relation}'");
            let of_nodes = on_nodes(&cluster, &query)?;
            let expected = match relation.starts_with("copies") {
                true => of_nodes[0],
                false => of_nodes.iter().sum(),
            };
            for query in [
                query,
                format!(
                    "SELECT c.{column}::bigint AS n FROM pg_catalog.pg_class c WHERE c.oid = '{relation}'::regclass"
                ),
                format!(
                    "SELECT max({column}) FROM pg_class WHERE relname = '{relation}' GROUP BY relname"
                ),
                format!(
                    "SELECT {column} FROM pg_class WHERE relname = '{relation}' GROUP BY {column}"
                ),
                format!(
                    "SELECT (SELECT {column} FROM pg_class WHERE oid = a.oid) FROM pg_class a WHERE relname = '{relation}'"
                ),
            ] {
                assert_eq!(number(&mut client, &query)?, expected, "{query} {of_nodes:?}");
            }
        }
    }
    assert_eq!(client.value("SELECT reltuples FROM pg_class WHERE relname = 't'")?, "3000");
    let large = "SELECT relname FROM pg_class WHERE relkind = 'r' AND reltuples = 3000 ORDER BY reltuples DESC, 1";
    assert_eq!(client.value(large)?, "t");
    assert_eq!(client.value("SELECT reltuples FROM pg_class WHERE relname = 'own'")?, "500");
    client.query("CREATE TABLE unknown (id int) DISTRIBUTE BY HASH (id)")?;
    assert_eq!(client.value("SELECT reltuples FROM pg_class WHERE relname = 'unknown'")?, "-1");
    Ok(())
}
