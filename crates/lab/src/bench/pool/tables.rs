//! The tables that are measured: pgbench's own, and those of TPC-B within one branch.
//!
//! Owns: how they are made and distributed, the script of the second, and what must hold of both
//! after any load. Never: starts a server.

use anyhow::{Context, ensure};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::pgbench::Pgbench;

/// Branches of the local TPC-B: more than clients, so that these seldom wait for each other.
pub(super) const BRANCHES: u32 = 200;
const TELLERS_PER_BRANCH: u32 = 10;
const ACCOUNTS_PER_BRANCH: u32 = 1_000;
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
    for statement in by_branch(is_gateway) {
        client.batch_execute(&statement).await?;
    }
    Ok(())
}

/// TPC-B's tables as one would distribute them: by the branch, which every key begins with.
fn by_branch(is_gateway: bool) -> Vec<String> {
    let distributed = if is_gateway { " DISTRIBUTE BY HASH (bid)" } else { "" };
    let tables = [
        "branches (bid int PRIMARY KEY, bbalance int NOT NULL, filler char(88))",
        "tellers (bid int, tid int, tbalance int NOT NULL, filler char(84), PRIMARY KEY (bid, tid))",
        "accounts (bid int, aid int, abalance int NOT NULL, filler char(84), PRIMARY KEY (bid, aid))",
        "history (bid int, tid int, aid int, delta int, mtime timestamp, filler char(22))",
    ];
    let mut statements = vec!["CREATE SCHEMA by_branch".to_owned()];
    statements.extend(tables.map(|table| format!("CREATE TABLE by_branch.{table}{distributed}")));
    statements.push(format!(
        "INSERT INTO by_branch.branches SELECT b, 0, '' FROM generate_series(1, {BRANCHES}) b"
    ));
    for (table, per_branch) in [("tellers", TELLERS_PER_BRANCH), ("accounts", ACCOUNTS_PER_BRANCH)]
    {
        statements.push(format!(
            "INSERT INTO by_branch.{table} SELECT b, n, 0, '' \
             FROM generate_series(1, {BRANCHES}) b, generate_series(1, {per_branch}) n"
        ));
    }
    statements
}

/// pgbench's TPC-B, but the teller and the account are of the branch, and every statement says
/// which branch that is.
pub(super) fn tpcb_local() -> String {
    format!(
        "\\set bid random(1, :branches)\n\
         \\set tid random(1, {TELLERS_PER_BRANCH})\n\
         \\set aid random(1, {ACCOUNTS_PER_BRANCH})\n\
         \\set delta random(-5000, 5000)\n\
         BEGIN;\n\
         UPDATE by_branch.accounts SET abalance = abalance + :delta WHERE bid = :bid AND aid = :aid;\n\
         SELECT abalance FROM by_branch.accounts WHERE bid = :bid AND aid = :aid;\n\
         UPDATE by_branch.tellers SET tbalance = tbalance + :delta WHERE bid = :bid AND tid = :tid;\n\
         UPDATE by_branch.branches SET bbalance = bbalance + :delta WHERE bid = :bid;\n\
         INSERT INTO by_branch.history (bid, tid, aid, delta, mtime) \
         VALUES (:bid, :tid, :aid, :delta, CURRENT_TIMESTAMP);\n\
         END;\n"
    )
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
