//! TPC-B within one branch: its tables and its script.
//!
//! Owns: how many of everything a branch has. Never: runs a statement.

/// Branches of the local TPC-B: more than clients, so that these seldom wait for each other.
pub(super) const BRANCHES: u32 = 200;
const TELLERS_PER_BRANCH: u32 = 10;
const ACCOUNTS_PER_BRANCH: u32 = 1_000;
/// TPC-B's tables as one would distribute them: by the branch, which every key begins with.
pub(super) fn by_branch(is_gateway: bool) -> Vec<String> {
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
