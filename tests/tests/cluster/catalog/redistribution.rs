//! Tables that hold rows and get another placement.

use tutti_cluster::catalog::redistribute::Progress;
use tutti_cluster::catalog::{self, Redistribution, verify};
use tutti_link::seals::Seals;
use tutti_sql::catalog::NodeId;
use tutti_sql::hash::KeyType;
use tutti_sql::statement::DistributeBy;

use super::support::*;

/// What `SELECT tutti_distribute(…)` and the like do.
async fn redistribute(connections: &mut Connections, table: &str, to: DistributeBy) -> Result {
    everywhere(connections, "BEGIN").await?;
    let catalog = load(connections).await?;
    let relation = catalog.relations["public"][table].clone();
    let seals = Seals::default();
    for connection in connections.values_mut() {
        catalog::learn_secret(&seals, connection).await?;
    }
    let plan = Redistribution::plan(home(connections), &catalog, &relation, &to, &seals).await?;
    let mut lent = connections.iter_mut().map(|(node, connection)| (*node, connection)).collect();
    plan.perform(&mut lent, &Progress::default(), &seals).await?;
    verify(home(connections)).await?;
    everywhere(connections, "COMMIT").await
}

/// Number and sum of the rows on each node, misplaced ones not forgiven.
async fn shares(connections: &mut Connections, table: &str) -> Result<Vec<u64>> {
    let mut shares = Vec::new();
    for connection in connections.values_mut() {
        shares.push(text(connection, &format!("SELECT count(*) FROM {table}")).await?.parse()?);
    }
    Ok(shares)
}

async fn assert_placed(
    connections: &mut Connections,
    table: &str,
    key: &str,
    key_type: KeyType,
) -> Result {
    let map = tutti_cluster::catalog::maps::map_of(key_type).0;
    let bucket = key_type.sql_hash_bucket(key);
    for node in 1..=3 {
        let misplaced = format!(
            "SELECT count(*) FROM {table} WHERE (SELECT b.node FROM tutti.bucket b
             WHERE b.map = {map} AND b.bucket = {bucket}) <> {node}"
        );
        assert_eq!(text(at(connections, node), &misplaced).await?, "0", "{table} on node {node}");
    }
    Ok(())
}

const TABLE: &str = "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY, name text, at timestamptz,
    price numeric, tags text[], f float8, b bytea, twice int GENERATED ALWAYS AS (n * 2) STORED, n int)";
const ROWS: &str = "INSERT INTO t (name, at, price, tags, f, b, n)
    SELECT CASE WHEN i % 7 > 0 THEN format('%s \"quoted\" \\ ''%s'', (x)', i, i) END, now() + i * interval '1 s',
        i / 7.0, ARRAY[i::text, NULL, '{}'], i / 3.0::float8, decode(md5(i::text), 'hex'), i % 100
    FROM generate_series(1, 1500) i";
const DIGEST: &str = "SELECT md5(string_agg(t::text, E'\n' ORDER BY id)) FROM t";

#[tokio::test]
async fn rows_survive_every_change_of_placement() -> Result {
    let (_cluster, _, mut connections) = initialised(3).await?;
    // As adopted: the table is everywhere, its rows are on node 1; a stray row does not count.
    everywhere(&mut connections, TABLE).await?;
    home(&mut connections).query(ROWS).await?;
    at(&mut connections, 2).query("INSERT INTO t (name) VALUES ('stray')").await?;
    everywhere(
        &mut connections,
        "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
         CREATE TRIGGER fails BEFORE INSERT OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION fails();
         SET datestyle = 'German'; SET extra_float_digits = 0",
    )
    .await?;
    let digest = text(home(&mut connections), DIGEST).await?;
    let hash = |key: &str| DistributeBy::Hash(key.to_owned());

    redistribute(&mut connections, "t", hash("id")).await?;
    assert_eq!(shares(&mut connections, "t").await?.iter().sum::<u64>(), 1500);
    assert_placed(&mut connections, "t", "id", KeyType::Int8).await?;
    redistribute(&mut connections, "t", hash("name")).await?;
    assert_eq!(shares(&mut connections, "t").await?.iter().sum::<u64>(), 1500);
    assert_placed(&mut connections, "t", "name", KeyType::Text).await?;
    redistribute(&mut connections, "t", DistributeBy::Replicated).await?;
    for node in 1..=3 {
        assert_eq!(text(at(&mut connections, node), DIGEST).await?, digest, "node {node}");
    }
    redistribute(&mut connections, "t", DistributeBy::RoundRobin).await?;
    assert_eq!(shares(&mut connections, "t").await?, [500, 500, 500]);
    redistribute(&mut connections, "t", DistributeBy::Replicated).await?;
    redistribute(&mut connections, "t", hash("n")).await?;
    assert_placed(&mut connections, "t", "n", KeyType::Int4).await?;
    redistribute(&mut connections, "t", DistributeBy::RoundRobin).await?;
    redistribute(&mut connections, "t", DistributeBy::Replicated).await?;
    for node in 1..=3 {
        assert_eq!(text(at(&mut connections, node), DIGEST).await?, digest, "node {node}");
    }
    // The client's settings are its own again.
    assert_eq!(text(home(&mut connections), "SHOW datestyle").await?, "German, DMY");
    assert_eq!(text(home(&mut connections), "SHOW session_replication_role").await?, "origin");
    Ok(())
}

#[tokio::test]
async fn partitions_move_with_their_root() -> Result {
    let (_cluster, _, mut connections) = initialised(3).await?;
    everywhere(
        &mut connections,
        "CREATE TABLE p (k int, day int) PARTITION BY RANGE (day);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (50);
         CREATE TABLE p2 (day int, k int); ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (50) TO (100)",
    )
    .await?;
    home(&mut connections)
        .query("INSERT INTO p SELECT i, i % 100 FROM generate_series(1, 300) i")
        .await?;
    redistribute(&mut connections, "p", DistributeBy::Hash("k".to_owned())).await?;
    for table in ["p", "p1", "p2"] {
        assert_placed(&mut connections, table, "k", KeyType::Int4).await?;
    }
    assert_eq!(shares(&mut connections, "p").await?.iter().sum::<u64>(), 300);
    let part = redistribute(&mut connections, "p1", DistributeBy::Replicated).await;
    assert_eq!(sqlstate(&part.unwrap_err()).as_deref(), Some("0A000"));
    everywhere(&mut connections, "ROLLBACK").await?;
    let catalog = load(&mut connections).await?;
    assert_eq!(catalog.nodes, [NodeId(1), NodeId(2), NodeId(3)]);
    Ok(())
}
