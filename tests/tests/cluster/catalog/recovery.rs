//! Transactions in doubt, as a dead gateway leaves them.

use std::collections::BTreeSet;
use std::time::Duration;

use tutti_cluster::recovery::{LOCK_PATIENCE, Recoverer, Settled, gateway_lock, next_incarnation};
use tutti_cluster::status;
use tutti_gateway::{Config, GatewayError};
use tutti_link::{Credentials, Endpoint, NodeConnection};
use tutti_sql::catalog::NodeId;
use tutti_txn::decision::Decision;
use tutti_txn::gid::Gid;

use super::support::*;

fn gid(text: &str) -> Gid {
    text.parse().expect("one of ours")
}

async fn prepare(connection: &mut NodeConnection, gid: &str, value: i32) -> Result {
    let sql = format!("BEGIN; INSERT INTO t VALUES ({value}); PREPARE TRANSACTION '{gid}'");
    connection.query(&sql).await?;
    Ok(())
}

async fn values(connections: &mut Connections, node: u16) -> Result<String> {
    text(at(connections, node), "SELECT string_agg(x::text, ',' ORDER BY x) FROM t").await
}

async fn open(config: &Config, node: u16) -> Result<NodeConnection> {
    let place = &config.nodes[usize::from(node) - 1];
    Ok(NodeConnection::open(
        &Endpoint::new(place, "postgres"),
        "postgres",
        &Credentials::Nothing,
        &[],
    )
    .await?)
}

#[tokio::test]
async fn the_record_decides_and_its_absence_becomes_a_refusal() -> Result {
    let (_cluster, config, mut connections) = initialised(3).await?;
    everywhere(&mut connections, "CREATE TABLE t (x int)").await?;
    // Decided, applied on node 2 only; not decided; foreign; another cluster's.
    at(&mut connections, 1)
        .query("INSERT INTO tutti.decision VALUES ('tutti_test_1_1_1', 'committed')")
        .await?;
    prepare(at(&mut connections, 3), "tutti_test_1_1_1", 1).await?;
    prepare(at(&mut connections, 2), "tutti_test_1_2_3", 2).await?;
    prepare(at(&mut connections, 1), "tutti_test_1_2_3", 2).await?;
    prepare(at(&mut connections, 2), "1_pgjdbc", 3).await?;
    prepare(at(&mut connections, 2), "tutti_other_1_1_1", 4).await?;

    let shown = status(&config).await?.to_string();
    assert_eq!(shown.matches("1 (oldest ").count(), 3, "one of ours on each node:\n{shown}");

    assert_eq!(
        Recoverer::new(&config)?.settle_in_doubt(5).await?,
        Settled { committed: 1, aborted: 1 }
    );
    assert_eq!(Recoverer::new(&config)?.settle_in_doubt(5).await?, Settled::default());
    for (node, expected) in [(1, "NULL"), (2, "NULL"), (3, "1")] {
        assert_eq!(values(&mut connections, node).await?, expected, "node {node}");
    }
    let left = "SELECT string_agg(gid, ' ' ORDER BY gid) FROM pg_prepared_xacts";
    assert_eq!(text(at(&mut connections, 2), left).await?, "1_pgjdbc tutti_other_1_1_1");
    let refused = "SELECT decision FROM tutti.decision WHERE gid = 'tutti_test_1_2_3'";
    assert_eq!(text(at(&mut connections, 3), refused).await?, "aborted");
    assert_eq!(
        Recoverer::new(&config)?.read_or_refuse_decision(&gid("tutti_test_1_2_3")).await?,
        Decision::Aborted
    );

    // Old records go, young ones stay.
    assert_eq!(Recoverer::new(&config)?.clean_decisions(2).await?, 0);
    let age = "UPDATE tutti.decision SET at = now() - interval '8 days'";
    at(&mut connections, 1).query(age).await?;
    assert_eq!(Recoverer::new(&config)?.clean_decisions(2).await?, 1);
    let count = "SELECT count(*) FROM tutti.decision";
    assert_eq!(text(at(&mut connections, 1), count).await?, "0");
    assert_eq!(text(at(&mut connections, 3), count).await?, "1");
    Recoverer::new(&config)?.forget_decisions(&[gid("tutti_test_1_2_3")]).await?;
    assert_eq!(text(at(&mut connections, 3), count).await?, "0");
    for other in ["1_pgjdbc", "tutti_other_1_1_1"] {
        at(&mut connections, 2).query(&format!("ROLLBACK PREPARED '{other}'")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_sweep_leaves_the_living_incarnation_alone() -> Result {
    let (_cluster, config, mut connections) = initialised(2).await?;
    everywhere(&mut connections, "CREATE TABLE t (x int)").await?;
    prepare(at(&mut connections, 2), "tutti_test_4_1_1", 1).await?;
    prepare(at(&mut connections, 2), "tutti_test_5_1_1", 2).await?;
    let settled = Recoverer::new(&config)?.sweep(5).await?;
    assert_eq!(settled, Settled { committed: 0, aborted: 1 });
    let left = "SELECT string_agg(gid, ' ') FROM pg_prepared_xacts";
    assert_eq!(text(at(&mut connections, 2), left).await?, "tutti_test_5_1_1");

    // Its own coordinator gave it up: settled by name.
    let nodes = BTreeSet::from([NodeId(1), NodeId(2)]);
    let decision = Recoverer::new(&config)?
        .settle(&gid("tutti_test_5_1_1"), &nodes, Duration::from_secs(5))
        .await?;
    assert_eq!(decision, Decision::Aborted);
    assert_eq!(text(at(&mut connections, 2), left).await?, "NULL");
    Ok(())
}

#[tokio::test]
async fn recovery_waits_for_a_backend_that_decides_and_ends_one_that_hangs() -> Result {
    let (_cluster, config, mut connections) = initialised(2).await?;
    everywhere(&mut connections, "CREATE TABLE t (x int)").await?;
    for (number, commits) in [(1, true), (2, false)] {
        let name = format!("tutti_test_1_{number}_1");
        prepare(at(&mut connections, 2), &name, number).await?;
        let mut old = open(&config, 1).await?;
        let insert = format!("BEGIN; INSERT INTO tutti.decision VALUES ('{name}', 'committed')");
        old.query(&insert).await?;
        let mut recoverer = Recoverer::new(&config)?;
        let settling = recoverer.settle_in_doubt(5);
        let deciding = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            if commits {
                old.query("COMMIT").await?;
            }
            Ok::<_, anyhow::Error>(old)
        };
        let (settled, old) = tokio::join!(settling, deciding);
        let expected = Settled { committed: commits.into(), aborted: (!commits).into() };
        assert_eq!(settled?, expected, "{name}");
        // The one that hung finds its transaction gone.
        assert_eq!(old?.query("COMMIT").await.is_ok(), commits);
    }
    assert_eq!(values(&mut connections, 2).await?, "1");
    Ok(())
}

#[tokio::test]
async fn one_gateway_serves_and_each_start_has_a_number_of_its_own() -> Result {
    let (_cluster, config, _) = initialised(1).await?;
    let mut first = open(&config, 1).await?;
    let mut second = open(&config, 1).await?;
    gateway_lock(&mut first, LOCK_PATIENCE).await?;
    let error = gateway_lock(&mut second, LOCK_PATIENCE).await.unwrap_err();
    let GatewayError::GatewayRunning { pid, who } = error else { panic!("{error}") };
    assert!(who.starts_with("role postgres from 127.0.0.1, since "), "{who}");
    assert_eq!(pid, i64::from(first.backend_key().0));
    let mut third = open(&config, 1).await?;
    let numbers = (next_incarnation(&mut third).await?, next_incarnation(&mut third).await?);
    assert!(numbers.0 < numbers.1, "{numbers:?}");
    first.close();
    gateway_lock(&mut second, LOCK_PATIENCE).await?;
    Ok(())
}
