//! The tables that are measured: pgbench's own, and those of TPC-B within one branch.
//!
//! Owns: how they are made and distributed, and what must hold of both after any load. Never: starts
//! a server.

use anyhow::{Context, ensure};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::pgbench::Pgbench;
use super::tpcb;

/// Those that are updated so often that dead rows would slow down who comes later.
const HOT: [&str; 4] =
    ["by_branch.branches", "by_branch.tellers", "pgbench_branches", "pgbench_tellers"];

/// pgbench's tables and their distribution keys: each script names rows by these.
const PGBENCH_KEYS: [(&str, &str); 4] = [
    ("pgbench_accounts", "aid"),
    ("pgbench_tellers", "tid"),
    ("pgbench_branches", "bid"),
    // With its account, so that the insert goes where the transaction has been already.
    ("pgbench_history", "aid"),
];

/// Makes and fills all tables, on a plain server or through a gateway.
pub(super) async fn make(
    pgbench: &Pgbench,
    port: u16,
    client: &Client,
    is_gateway: bool,
    scale: u32,
) -> anyhow::Result<()> {
    // Distributed while they are empty: moving rows is not what is measured.
    pgbench.initialise(port, "dt", scale).await?;
    if is_gateway {
        for (table, key) in PGBENCH_KEYS {
            let distribute = format!("SELECT tutti_distribute('{table}', '{key}')");
            client.batch_execute(&distribute).await?;
        }
    }
    pgbench.initialise(port, "gvp", scale).await?;
    for statement in tpcb::by_branch(is_gateway) {
        client.batch_execute(&statement).await?;
    }
    Ok(())
}

/// Lets no measurement on a node pay for what the ones before it left.
pub(super) async fn tidy(node: &Client) -> anyhow::Result<()> {
    for table in HOT {
        node.batch_execute(&format!("VACUUM {table}")).await?;
    }
    Ok(node.batch_execute("CHECKPOINT").await?)
}

/// In both sets of tables, accounts, tellers, branches and histories tell of the same money.
pub(super) async fn check(client: &Client) -> anyhow::Result<()> {
    for prefix in ["by_branch.", "pgbench_"] {
        let sql = format!(
            "SELECT (SELECT sum(abalance) FROM {prefix}accounts), \
             (SELECT sum(tbalance) FROM {prefix}tellers), \
             (SELECT sum(bbalance) FROM {prefix}branches), \
             (SELECT coalesce(sum(delta), 0) FROM {prefix}history)"
        );
        // By the simple protocol, which whoever pools by transaction serves too.
        let messages = client.simple_query(&sql).await?;
        let row = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let row = row.context("the sums have no row")?;
        let sums = [0, 1, 2, 3].map(|column| row.get(column).unwrap_or_default());
        ensure!(
            sums.iter().all(|sum| *sum == sums[0] && !sum.is_empty()),
            "the sums of {prefix}accounts, tellers, branches and history differ: {sums:?}"
        );
    }
    Ok(())
}
