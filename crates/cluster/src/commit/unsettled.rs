//! What this gateway has to settle or may forget.
//!
//! Owns: transactions that recovery must finish, by node, and so why nodes are closed; and those
//! whose record may be removed.
//! Never: talks to a node; `resolver` and `forget` do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;
use tutti_link::availability::{Availability, Why};
use tutti_sql::catalog::NodeId;
use tutti_txn::gid::Gid;

use crate::numbers::sql_node;

/// Beyond this many, transactions are not kept here; their records are removed when they are old.
const APPLIED_MAX: usize = 1_000_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Unsettled {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    unsettled: BTreeMap<Gid, Part>,
    applied: Vec<Gid>,
}

/// A transaction that must be finished.
#[derive(Debug, Default)]
struct Part {
    /// Where it may be prepared.
    nodes: BTreeSet<NodeId>,
    /// A worker is settling it.
    in_work: bool,
    /// Where it was found again meanwhile: what the worker sees there may be older.
    again: BTreeSet<NodeId>,
    /// Not to be retried before this.
    not_before: Option<Instant>,
}

impl Unsettled {
    /// The transaction may be prepared on the node, and nothing else will finish it. `closes`:
    /// until then the node may not be read, because it may be visible on others.
    pub fn add(&self, nodes: &Availability, gid: &Gid, node: NodeId, closes: bool) {
        let mut state = self.state();
        if closes {
            nodes.close(node, Why::Unsettled(gid.clone()));
        }
        let unsettled = state.unsettled.entry(gid.clone()).or_default();
        unsettled.nodes.insert(node);
        if unsettled.in_work {
            unsettled.again.insert(node);
        }
        drop(state);
        self.news.notify_one();
    }

    /// Whether the transaction has still to be settled somewhere.
    pub fn contains(&self, gid: &Gid) -> bool {
        self.state().unsettled.contains_key(gid)
    }

    /// Whether nothing has to be settled.
    pub fn is_empty(&self) -> bool {
        self.state().unsettled.is_empty()
    }

    /// Waits until something was added.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Takes a transaction that can be worked on now. [`Self::worked`] returns it.
    pub fn take_due(&self, is_there: impl Fn(NodeId) -> bool) -> Option<(Gid, BTreeSet<NodeId>)> {
        let now = Instant::now();
        let mut state = self.state();
        let (gid, unsettled) = state.unsettled.iter_mut().find(|(gid, unsettled)| {
            !unsettled.in_work
                && unsettled.not_before.is_none_or(|due| due <= now)
                && is_there(sql_node(gid.anchor))
                && unsettled.nodes.iter().any(|node| is_there(*node))
        })?;
        unsettled.in_work = true;
        Some((gid.clone(), unsettled.nodes.clone()))
    }

    /// The transaction is settled on these nodes, which are opened. The rest is due again at
    /// `not_before`.
    pub fn worked(
        &self,
        nodes: &Availability,
        gid: &Gid,
        settled: &BTreeSet<NodeId>,
        not_before: Instant,
    ) {
        let mut state = self.state();
        let Some(unsettled) = state.unsettled.get_mut(gid) else { return };
        for node in settled.difference(&std::mem::take(&mut unsettled.again)) {
            unsettled.nodes.remove(node);
            nodes.open(*node, &Why::Unsettled(gid.clone()));
        }
        unsettled.in_work = false;
        unsettled.not_before = Some(not_before);
        if unsettled.nodes.is_empty() {
            state.unsettled.remove(gid);
        }
    }

    /// The transaction has committed on each of its nodes: its record may be forgotten.
    pub fn note_applied(&self, gids: impl IntoIterator<Item = Gid>) {
        let mut state = self.state();
        state.applied.extend(gids);
        state.applied.truncate(APPLIED_MAX);
    }

    /// Takes those whose records may be forgotten.
    pub fn take_applied(&self) -> Vec<Gid> {
        std::mem::take(&mut self.state().applied)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_worked_on_once_at_a_time_until_no_node_is_left() {
        let unsettled = Unsettled::default();
        let config: String =
            (1..=3).map(|id| format!("[[node]]\nid = {id}\nhost = '127.0.0.1'\n")).collect();
        let all = Availability::new(
            &tutti_configuration::Config::from_toml(&config).expect("it is right"),
        );
        let gid: Gid = "tutti_main_1_1_1".parse().expect("one of ours");
        let (one, two, three) = (NodeId(1), NodeId(2), NodeId(3));
        unsettled.add(&all, &gid, two, true);
        unsettled.add(&all, &gid, three, true);
        assert_eq!(unsettled.take_due(|node| node != one), None, "its anchor is away");
        assert_eq!(unsettled.take_due(|node| node == one), None, "its nodes are away");
        let (_, nodes) = unsettled.take_due(|_| true).expect("due");
        assert_eq!(nodes, BTreeSet::from([two, three]));
        assert_eq!(unsettled.take_due(|_| true), None, "somebody is at it");
        // Another part is found meanwhile, and one for the second time.
        unsettled.add(&all, &gid, one, true);
        unsettled.add(&all, &gid, two, true);
        unsettled.worked(&all, &gid, &BTreeSet::from([two, three]), Instant::now());
        let (_, nodes) = unsettled.take_due(|_| true).expect("due again");
        assert_eq!(nodes, BTreeSet::from([one, two]));
        unsettled.worked(&all, &gid, &nodes, Instant::now());
        assert!(unsettled.is_empty() && !unsettled.contains(&gid));
    }
}
