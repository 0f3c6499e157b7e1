//! Finishers alone: answers reach the caller, breaks are reported, decisions are recorded once.
//!
//! Owns: also the measurement behind `docs/decisions/2026-11-21-finishers.md`, an ignored test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::task::JoinSet;
use tutti_cluster::commit::finishers::Finishers;
use tutti_gateway::Config;
use tutti_link::Endpoints;
use tutti_link::{NodeConnection, NodeError};
use tutti_sql::catalog::NodeId;

use super::support::*;

async fn prepare(connection: &mut NodeConnection, gid: &str, value: u64) -> Result {
    let sql = format!("BEGIN; INSERT INTO t VALUES ({value}); PREPARE TRANSACTION '{gid}'");
    connection.query(&sql).await?;
    Ok(())
}

fn sqlstate<T>(answered: &Result<T, NodeError>) -> Option<&str> {
    match answered {
        Err(NodeError::Refused(fields)) => Some(fields.sqlstate()),
        _ => None,
    }
}

#[tokio::test]
async fn many_requests_share_one_connection_and_each_gets_its_own_answer() -> Result {
    let (_servers, config) = initialised(1).await?;
    let mut node = open(&config, 1).await?;
    node.query("CREATE TABLE t (x bigint)").await?;
    for number in 1..=20 {
        prepare(&mut node, &gid(1, number, 2).to_string(), number).await?;
    }
    let finishers = Arc::new(Finishers::new(&Endpoints::new(&config), 1));
    let mut running = JoinSet::new();
    // Those above 20 are not there: a refusal in between disturbs no other.
    for number in 1..=40 {
        let finishers = finishers.clone();
        running.spawn(async move {
            let verb = if number % 2 == 0 { "COMMIT" } else { "ROLLBACK" };
            let sql = format!("{verb} PREPARED '{}'", gid(1, number, 2));
            (number, finishers.run(NodeId(1), sql).await)
        });
    }
    while let Some(finished) = running.join_next().await {
        let (number, answered) = finished?;
        match &answered {
            Ok(rows) => {
                let verb = if number % 2 == 0 { "COMMIT" } else { "ROLLBACK" };
                ensure!(number <= 20 && rows[0].tag == format!("{verb} PREPARED"), "{number}");
            }
            Err(_) => ensure!(number > 20 && sqlstate(&answered) == Some("42704"), "{answered:?}"),
        }
    }
    let found = text(&mut node, "SELECT string_agg(x::text, ',' ORDER BY x) FROM t").await?;
    assert_eq!(found, "2,4,6,8,10,12,14,16,18,20");
    let backends =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tutti finisher'";
    assert_eq!(text(&mut node, backends).await?, "1");
    Ok(())
}

#[tokio::test]
async fn a_break_is_told_to_all_who_wait_and_the_next_request_opens_anew() -> Result {
    let (_servers, config) = initialised(1).await?;
    let mut node = open(&config, 1).await?;
    node.query("CREATE TABLE t (x bigint)").await?;
    prepare(&mut node, "tutti_test_1_1_2", 1).await?;
    let finishers = Arc::new(Finishers::new(&Endpoints::new(&config), 1));
    // Waits until it is ended; the second waits for it.
    let hanging: Vec<_> = ["SELECT pg_sleep(600)", "COMMIT PREPARED 'tutti_test_1_1_2'"]
        .into_iter()
        .map(|sql| {
            let finishers = finishers.clone();
            tokio::spawn(async move { finishers.run(NodeId(1), sql.to_owned()).await })
        })
        .collect();
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name = 'tutti finisher' AND query LIKE '%pg_sleep%' AND state = 'active'";
    while text(&mut node, end).await? == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for answered in hanging {
        let answered = answered.await?;
        ensure!(matches!(answered, Err(NodeError::Lost { .. })), "{answered:?}");
    }
    finishers.run(NodeId(1), "ROLLBACK PREPARED 'tutti_test_1_1_2'".to_owned()).await?;
    Ok(())
}

#[tokio::test]
async fn a_node_that_is_away_refuses_and_is_used_again_when_it_is_back() -> Result {
    let (mut servers, config) = initialised(1).await?;
    let finishers = Finishers::new(&Endpoints::new(&config), 2);
    let ask = || finishers.run(NodeId(1), "SELECT 1".to_owned());
    ask().await?;
    servers.server_mut(0).kill9()?;
    // The first may find the old connection broken; then there is none to be had.
    let _ = ask().await;
    let answered = ask().await;
    ensure!(matches!(answered, Err(NodeError::Connect { .. })), "{answered:?}");
    servers.server_mut(0).start()?;
    ask().await?;
    Ok(())
}

#[tokio::test]
async fn decisions_go_together_and_yield_to_what_recovery_wrote() -> Result {
    let (_servers, config) = initialised(1).await?;
    let mut node = open(&config, 1).await?;
    for number in [3, 5] {
        let refusal = format!(
            "INSERT INTO tutti.decision (gid, decision) VALUES ('{}', 'aborted')",
            gid(1, number, 1)
        );
        node.query(&refusal).await?;
    }
    let finishers = Arc::new(Finishers::new(&Endpoints::new(&config), 1));
    let mut running = JoinSet::new();
    for number in 1..=50 {
        let finishers = finishers.clone();
        running
            .spawn(async move { (number, finishers.decide(NodeId(1), &gid(1, number, 1)).await) });
    }
    while let Some(finished) = running.join_next().await {
        let (number, recorded) = finished?;
        assert_eq!(recorded?, ![3, 5].contains(&number), "{number}");
    }
    let count = "SELECT count(*), count(DISTINCT xmin::text) FROM tutti.decision WHERE decision = 'committed'";
    let counted = node.rows(count).await?;
    assert_eq!(counted.text(0, 0), Some("48"));
    let statements: u64 = counted.text(0, 1).unwrap_or_default().parse()?;
    ensure!(statements < 48, "each of the decisions had a statement of its own");
    Ok(())
}

/// Who sends COMMIT PREPARED.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The session, over its own connection.
    Session,
    /// Finishers, so many per node; the anchor's COMMIT is the decision.
    Anchored(usize),
    /// Finishers, so many per node; both nodes prepare, the decision is recorded apart.
    Apart(usize),
}

/// Transfers per second of so many clients, each on rows of its own.
async fn transfers(config: &Arc<Config>, way: Way, clients: u64, run: u64) -> Result<f64> {
    const LASTS: Duration = Duration::from_millis(1500);
    let lanes = match way {
        Way::Session => 1,
        Way::Anchored(lanes) | Way::Apart(lanes) => lanes,
    };
    let finishers = Arc::new(Finishers::new(&Endpoints::new(config), lanes));
    let done = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    let until = Instant::now() + LASTS;
    for client in 0..clients {
        let (config, finishers, done) = (config.clone(), finishers.clone(), done.clone());
        running.spawn(async move {
            // Half of the transactions have their anchor on either node.
            let anchor = u16::try_from(client % 2 + 1)?;
            let other = 3 - anchor;
            let mut a = open(&config, anchor).await?;
            let mut b = open(&config, other).await?;
            let begin = |amount: i64| {
                format!(
                    "BEGIN; UPDATE account SET balance = balance + {amount} WHERE id = {client}"
                )
            };
            let mut number = client << 32;
            while Instant::now() < until {
                number += 1;
                let gid = gid(run, number, anchor);
                let (from, to) = (begin(-1), begin(1));
                let (x, y) = tokio::join!(a.query(&from), b.query(&to));
                x?;
                y?;
                let prepare = format!("PREPARE TRANSACTION '{gid}'");
                let commit = format!("COMMIT PREPARED '{gid}'");
                let record = format!("INSERT INTO tutti.decision VALUES ('{gid}', 'committed')");
                match way {
                    Way::Session | Way::Anchored(_) => {
                        let (x, y) = tokio::join!(a.query(&record), b.query(&prepare));
                        x?;
                        y?;
                        a.query("COMMIT").await?;
                        match way {
                            Way::Session => b.query(&commit).await?,
                            _ => finishers.run(NodeId(other), commit).await?,
                        };
                    }
                    Way::Apart(_) => {
                        let (x, y) = tokio::join!(a.query(&prepare), b.query(&prepare));
                        x?;
                        y?;
                        ensure!(finishers.decide(NodeId(anchor), &gid).await?, "refused");
                        let (x, y) = tokio::join!(
                            finishers.run(NodeId(anchor), commit.clone()),
                            finishers.run(NodeId(other), commit)
                        );
                        x?;
                        y?;
                    }
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    let started = Instant::now();
    while let Some(finished) = running.join_next().await {
        finished??;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

/// `./dev test --test faults recovery::finishers::measure -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_connections_per_node() -> Result {
    const ROUNDS: u64 = 5;
    const WAYS: [Way; 9] = [
        Way::Session,
        Way::Anchored(1),
        Way::Anchored(2),
        Way::Anchored(4),
        Way::Anchored(8),
        Way::Anchored(16),
        Way::Apart(1),
        Way::Apart(4),
        Way::Apart(8),
    ];
    let (_servers, config) = initialised(2).await?;
    for node in [1, 2] {
        let make = "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL); \
                    INSERT INTO account SELECT n, 0 FROM generate_series(0, 99) n";
        open(&config, node).await?.query(make).await?;
    }
    let config = Arc::new(config);
    let mut run = 0;
    for clients in [1, 8, 32] {
        let mut of_way = vec![Vec::new(); WAYS.len()];
        for _ in 0..ROUNDS {
            for (way, found) in WAYS.iter().zip(&mut of_way) {
                run += 1;
                found.push(transfers(&config, *way, clients, run).await?);
            }
        }
        let medians: Vec<f64> = of_way
            .into_iter()
            .map(|mut found| {
                found.sort_by(f64::total_cmp);
                found[found.len() / 2]
            })
            .collect();
        for (way, median) in WAYS.iter().zip(&medians) {
            println!("{clients} clients, {way:?}: {median:.0}/s, {:.2}", median / medians[0]);
        }
    }
    Ok(())
}
