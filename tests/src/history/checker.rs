//! The verdict over a history.
//!
//! Owns: the order of the checks. Never: reads a socket, a clock or a random number.
//! Start reading at [`check`].
//!
//! What is looked for, and therefore promised, at each level:
//!
//! | | READ COMMITTED | REPEATABLE READ | SERIALIZABLE |
//! |---|---|---|---|
//! | values nobody wrote, elements twice, own writes not seen, G1a, G1b, incompatible orders | x | x | x |
//! | lost and half-applied writes, at rest | x | x | x |
//! | cycles of ww, wr and real time: G0, G1c | x | x | x |
//! | fractured, skewed and stale reads | in a statement | in the transaction | in the transaction |
//! | non-repeatable reads, lost updates, long forks | – | x | x |
//! | every other cycle of ww, wr and rw (write skew: G2-item, G2) | – | – | among SERIALIZABLE |
//!
//! A test prints this table from examples (`tests/tests/faults/history_checker.rs`).

use super::cycles;
use super::graph::Graph;
use super::model::History;
use super::reads;
use super::report::Report;
use super::versions::Versions;

/// Finds what is wrong with a history. Nothing found does not prove that the servers are right, but
/// each finding proves that they are wrong.
pub fn check(history: &History) -> Report {
    let mut anomalies = Vec::new();
    let versions = Versions::infer(history, &mut anomalies);
    let external = reads::collect(history, &versions, &mut anomalies);
    reads::find_lost(history, &versions, &mut anomalies);
    reads::find_fractured(history, &versions, &external, &mut anomalies);
    reads::find_lost_updates(history, &versions, &external, &mut anomalies);
    let graph = Graph::new(history, &versions, &external);
    cycles::find(history, &graph, &mut anomalies);
    Report::new(history, &versions, anomalies)
}
