//! Readers that sum all accounts while money moves, each at an isolation level of its own.
//!
//! Owns: the ways of reading, and what each reader saw. Never: hides a wrong reading.
//! Start reading at [`ALL`].

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::ensure;
use indicatif::HumanCount;
use tokio::time::sleep;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::shop::MONEY;
use crate::accounts::Accounts;
use crate::client;
use crate::table::layout;

/// A reader is one more client, not a flood.
const PAUSE_BETWEEN_READINGS: Duration = Duration::from_millis(20);

/// The whole in one statement.
pub(super) const SUM_SQL: &str = "SELECT sum(balance)::bigint FROM shop.accounts";

/// A way of reading all accounts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    name: &'static str,
    /// What begins the transaction; nothing for a statement by itself.
    begin: Option<&'static str>,
    /// Whether the first sum is put together from a statement for each node.
    node_by_node: bool,
}

/// One reader for each. In a transaction all is summed twice; both sums must be right.
pub(super) const ALL: [Way; 6] = [
    Way { name: "READ COMMITTED", begin: None, node_by_node: false },
    Way {
        name: "READ COMMITTED, in a transaction",
        begin: Some("BEGIN ISOLATION LEVEL READ COMMITTED"),
        node_by_node: false,
    },
    Way {
        name: "REPEATABLE READ",
        begin: Some("BEGIN ISOLATION LEVEL REPEATABLE READ"),
        node_by_node: false,
    },
    Way {
        name: "REPEATABLE READ, node by node",
        begin: Some("BEGIN ISOLATION LEVEL REPEATABLE READ"),
        node_by_node: true,
    },
    Way {
        name: "SERIALIZABLE",
        begin: Some("BEGIN ISOLATION LEVEL SERIALIZABLE"),
        node_by_node: false,
    },
    Way {
        name: "SERIALIZABLE, node by node",
        begin: Some("BEGIN ISOLATION LEVEL SERIALIZABLE"),
        node_by_node: true,
    },
];

/// What one reader saw.
#[derive(Debug, Default)]
struct Seen {
    right: AtomicU64,
    wrong: AtomicU64,
    /// Refused with 40001, as a client must expect; it just tries again.
    retried: AtomicU64,
    /// How many failed, by what the client was told.
    failures: Mutex<BTreeMap<String, u64>>,
}

/// What all readers saw, in the order of [`ALL`].
#[derive(Debug, Default)]
pub(super) struct Readings {
    seen: [Seen; ALL.len()],
}

impl Readings {
    /// All together: how many, and how many of them were wrong.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.seen.iter().fold((0, 0), |(all, all_wrong), seen| {
            let wrong = seen.wrong.load(Relaxed);
            (all + seen.right.load(Relaxed) + wrong, all_wrong + wrong)
        })
    }

    /// A table by isolation level.
    pub(super) fn summary(&self) -> String {
        let names = ["isolation level", "readings", "wrong", "retried (40001)", "failed"];
        let mut lines = vec![names.map(str::to_owned).to_vec()];
        let mut reasons = String::new();
        for (way, seen) in ALL.iter().zip(&self.seen) {
            let wrong = seen.wrong.load(Relaxed);
            let failures = seen.failures.lock().expect("no holder panics");
            let counts = [
                seen.right.load(Relaxed) + wrong,
                wrong,
                seen.retried.load(Relaxed),
                failures.values().sum(),
            ];
            let mut line = vec![way.name.to_owned()];
            line.extend(counts.map(|count| HumanCount(count).to_string()));
            lines.push(line);
            for (reason, count) in &*failures {
                reasons += &format!("{} failed {count} times: {reason}\n", way.name);
            }
        }
        format!("{}{reasons}", layout(&lines))
    }

    /// That every reader read, and none of them a sum that never was.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        for (way, seen) in ALL.iter().zip(&self.seen) {
            let (right, wrong) = (seen.right.load(Relaxed), seen.wrong.load(Relaxed));
            ensure!(wrong == 0, "{}: {wrong} readings of {} were wrong", way.name, right + wrong);
            ensure!(0 < right, "{}: no reading succeeded", way.name);
        }
        Ok(())
    }
}

/// One reader: reads in the way of this index in [`ALL`] until the end.
pub(super) async fn read_until(
    end: Instant,
    index: usize,
    url: &str,
    accounts: &Accounts,
    readings: &Readings,
) -> anyhow::Result<()> {
    let (way, seen) = (ALL[index], &readings.seen[index]);
    let parts = parts(way, accounts);
    let mut client = client::connect(url).await?;
    while Instant::now() < end {
        match read(&client, way, &parts).await {
            Ok(true) => _ = seen.right.fetch_add(1, Relaxed),
            Ok(false) => _ = seen.wrong.fetch_add(1, Relaxed),
            Err(error) => {
                if error.code() == Some(&SqlState::T_R_SERIALIZATION_FAILURE) {
                    seen.retried.fetch_add(1, Relaxed);
                } else {
                    let mut failures = seen.failures.lock().expect("no holder panics");
                    *failures.entry(reason(&error)).or_default() += 1;
                }
                // Without a transaction this only gives a warning.
                let _ = client.batch_execute("ROLLBACK").await;
                if client.is_closed() {
                    client = client::connect(url).await?;
                }
            }
        }
        sleep(PAUSE_BETWEEN_READINGS).await;
    }
    Ok(())
}

/// The statements whose sums together are the whole.
fn parts(way: Way, accounts: &Accounts) -> Vec<String> {
    if !way.node_by_node {
        return vec![SUM_SQL.to_owned()];
    }
    let of_node = |ids: &Vec<i64>| {
        let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
        format!("{SUM_SQL} WHERE account_id IN ({})", ids.join(", "))
    };
    accounts.by_node().iter().map(of_node).collect()
}

/// One reading: whether all its sums are right.
async fn read(client: &Client, way: Way, parts: &[String]) -> Result<bool, tokio_postgres::Error> {
    let Some(begin) = way.begin else {
        return Ok(sum(client, SUM_SQL).await? == MONEY);
    };
    client.batch_execute(begin).await?;
    let mut of_parts = 0;
    for part in parts {
        of_parts += sum(client, part).await?;
    }
    let whole = sum(client, SUM_SQL).await?;
    // What a SERIALIZABLE transaction read counts once it has committed, not before.
    client.batch_execute("COMMIT").await?;
    Ok([of_parts, whole] == [MONEY; 2])
}

pub(super) async fn sum(client: &Client, sql: &str) -> Result<i64, tokio_postgres::Error> {
    client.query_one(sql, &[]).await?.try_get(0)
}

/// What a client was told, in a line.
fn reason(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} {}", error.code().code(), error.message()),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_reading_fails_the_check_and_is_counted_by_its_level() {
        let readings = Readings::default();
        assert!(readings.check().is_err(), "nobody read anything");
        for seen in &readings.seen {
            seen.right.store(5, Relaxed);
        }
        readings.check().unwrap();
        readings.seen[2].wrong.store(1, Relaxed);
        let told = readings.check().unwrap_err().to_string();
        assert_eq!(told, "REPEATABLE READ: 1 readings of 6 were wrong");
        assert_eq!(readings.totals(), (31, 1));
        let summary = readings.summary();
        assert!(
            summary.contains(" REPEATABLE READ                  | 6        | 1     | 0"),
            "{summary}"
        );
    }
}
