//! `tutti-lab bench`: measurements on servers of its own.
//!
//! Owns: the benchmarks' names.
//! Never: measures; each benchmark has its own directory.
//! Start reading at [`BenchCommand`].

use clap::Subcommand;

mod aim;
mod commit;
mod median;
pub(crate) mod output;
mod pool;
mod sql;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure transactions over one node and over several, with and without what isolates them.
    ///
    /// Starts PostgreSQL servers of its own in the system's temporary directory (TMPDIR), with
    /// fsync on, and removes them at the end. A gateway runs in this process, and so do the clients.
    ///
    /// Workloads, each with every number of clients: SELECT 1; SELECT and UPDATE of one row, in
    /// autocommit; local transfers (BEGIN, two UPDATEs on one node, COMMIT), alone, beside as many
    /// clients that do the same, and beside as many whose transfers are global; global transfers
    /// (the two UPDATEs on different nodes), alone and beside a reader that sums all accounts again
    /// and again. A sum that never was is a wrong reading.
    ///
    /// Ways: `direct` (clients of each PostgreSQL node itself) and the gateway's variants:
    /// `rooms-on` (as it is shipped), `rooms-off` (nobody waits for anybody; readings may be wrong),
    /// and, if asked for, `apart` and `anchored` (where the decision of a transaction is made). In
    /// each round every workload runs in all ways, one right after another; ratios are taken within
    /// a round, and shown with the lowest and the highest of all rounds.
    ///
    /// Per second: transactions, or statements, of all measured clients together. Durations (p50,
    /// p99): of the COMMIT alone where the work is a transaction, of the statement otherwise.
    /// Clients send when they have their last answer. The first half second is not counted.
    ///
    /// After each measurement the accounts must hold what they did, or the command fails.
    #[command(after_help = "Examples:\n  \
        tutti-lab bench commit                            about a quarter of an hour\n  \
        tutti-lab bench commit --rounds 1 --seconds 1     a first look\n  \
        tutti-lab bench commit --clients 8 --rounds 15    for a noisy machine\n  \
        tutti-lab bench commit --variants apart,anchored  which form of the decision is faster\n  \
        tutti-lab bench commit --flush-us 1000            as if the disk needed 1 ms more\n  \
        tutti-lab bench commit --json run.jsonl           every measurement, one line of JSON each")]
    Commit(commit::CommitArgs),

    /// Compare the gateway with PgBouncer and with PostgreSQL itself, by pgbench.
    ///
    /// Starts PostgreSQL servers of its own in the system's temporary directory (TMPDIR), with
    /// fsync on, and removes them at the end. PgBouncer and every gateway are processes of their own,
    /// so that the processor time and the memory of each are known. Needs pgbench, and pgbouncer
    /// unless it is left out of --targets.
    ///
    /// Targets: `direct` (one PostgreSQL server), `pgbouncer` (in front of that server), and
    /// `tutti-1`, `tutti-3`, … (a gateway in front of so many servers of its own). With
    /// --gateway-binary every `tutti-N` is measured with that build too, as `tutti-N@NAME`.
    /// PgBouncer pools by transaction, except that with --protocols prepared an older one than 1.21
    /// pools by session: it knows nothing of prepared statements.
    ///
    /// Scripts: `select` is pgbench -S; `tpcb-local` is TPC-B whose teller and account are of the
    /// branch, and whose tables are distributed by the branch, so that a transaction is on one node;
    /// `tpcb` is pgbench's own, whose three rows are on two or three nodes of `tutti-3`.
    ///
    /// In each round every load runs on all targets, one right after another; ratios are taken
    /// within a round, and shown with the lowest and the highest of all rounds. The first half
    /// second of each measurement is not counted. At the end the sums of the accounts, tellers,
    /// branches and histories must agree, or the command fails.
    ///
    /// Idle clients: so many connections that each ran one query, and what the process grew by.
    #[command(after_help = "Examples:\n  \
        tutti-lab bench pool                              about ten minutes\n  \
        tutti-lab bench pool --quick                      about one minute\n  \
        tutti-lab bench pool --idle 5000 --rounds 0       memory of idle clients only\n  \
        tutti-lab bench pool --gateway-binary old=/tmp/tutti --targets direct,tutti-1 --idle 0\n  \
        tutti-lab bench pool --json run.jsonl --plot run.svg")]
    Pool(pool::PoolArgs),

    /// Compare statements over several nodes with the same on one PostgreSQL, shape by shape.
    ///
    /// Starts PostgreSQL servers of its own in the system's temporary directory (TMPDIR), with fsync on, and removes
    /// them at the end; a gateway runs in this process. One client sends thirty statements: answered node by node, in
    /// parts that are put together, with rows that travel, changes, COPY, and definitions.
    ///
    /// In each round every statement runs on both, one right after the other; ratios are taken within a round, and
    /// shown with the lowest and the highest of all rounds. The answers must be equal, or the command fails. A first
    /// round is not counted.
    #[command(after_help = "Examples:\n  \
        tutti-lab bench sql                               some minutes\n  \
        tutti-lab bench sql --quick                       about a minute\n  \
        tutti-lab bench sql --rows 5000000 --only join    the joins, over more rows\n  \
        tutti-lab bench sql --json run.jsonl              every measurement, one line of JSON each")]
    Sql(sql::SqlArgs),
}

/// Runs a benchmark and prints what came of it.
pub(crate) async fn run(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Commit(args) => commit::commit(args).await,
        BenchCommand::Pool(args) => pool::pool(args).await,
        BenchCommand::Sql(args) => sql::sql(args).await,
    }
}
