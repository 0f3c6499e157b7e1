//! Which nodes may be read, and which run of which server each of them is.
//!
//! Owns: the reasons for which a node is closed to reads, and the run of its server that has been
//! searched for transactions in doubt.
//! Never: settles anything; `recovery` does, and opens the node.
//! Start reading at [`Availability::wait_until_open`] and [`Availability::recognise`].
//!
//! A node is closed while a part of a decided transaction may still be prepared on it, because
//! elsewhere that transaction may be visible already. When a server restarts or another takes over
//! for it, acknowledged COMMIT PREPAREDs may be undone (by a fail-over to a standby that did not
//! have them), so every run of a server is searched before it is read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tutti_configuration::Config;
use tutti_sql::catalog::NodeId;
use tutti_txn::gid::Gid;

use crate::connection::{NodeConnection, NodeError, Run};

/// How long a statement waits for a node to be recovered.
pub const OPEN_PATIENCE: Duration = Duration::from_secs(10);

/// Why a node is closed to reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Why {
    /// It is unreachable, or its server has restarted and was not searched yet.
    Away,
    /// A part of this transaction may be prepared there, and it may be visible elsewhere.
    Unsettled(Gid),
}

/// See the module's documentation. All nodes begin closed.
#[derive(Debug)]
pub struct Availability {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    id: NodeId,
    /// What `state` says, to be read without the lock.
    open: AtomicBool,
    /// See [`Availability::note_late`].
    late: AtomicBool,
    generation: AtomicU64,
    state: Mutex<State>,
    changed: Notify,
    suspected: Notify,
}

#[derive(Debug)]
struct State {
    away: bool,
    /// Why it is away, if that is known.
    reason: Option<String>,
    /// And since when.
    unsettled: BTreeMap<Gid, Instant>,
    run: Option<Run>,
}

impl State {
    fn is_open(&self) -> bool {
        !self.away && self.unsettled.is_empty()
    }
}

impl Node {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes those that wait.
    fn change(&self, what: impl FnOnce(&mut State)) {
        let mut state = self.state();
        let was_open = state.is_open();
        what(&mut state);
        let is_open = state.is_open();
        self.open.store(is_open, Ordering::Release);
        drop(state);
        if was_open != is_open {
            tracing::info!(node = %self.id, open = is_open, "the node may be read, or not");
        }
        self.changed.notify_waiters();
    }

    /// Waits until `ready` says so. `Err`: not in time.
    async fn wait(
        &self,
        give_up: Instant,
        ready: impl Fn(&State) -> bool,
    ) -> Result<(), NodeError> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the check, so that no change is missed.
            changed.as_mut().enable();
            if ready(&self.state()) {
                return Ok(());
            }
            if timeout_at(give_up, changed).await.is_err() {
                return Err(NodeError::Closed {
                    node: self.id,
                    reason: self.state().reason.clone(),
                });
            }
        }
    }
}

impl Availability {
    /// The nodes of this configuration.
    pub fn new(config: &Config) -> Self {
        let node = |id| Node {
            id,
            open: AtomicBool::new(false),
            late: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            state: Mutex::new(State {
                away: true,
                reason: None,
                unsettled: BTreeMap::new(),
                run: None,
            }),
            changed: Notify::new(),
            suspected: Notify::new(),
        };
        Self { nodes: config.nodes.iter().map(|place| node(NodeId(place.id))).collect() }
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[usize::from(id.0) - 1]
    }

    /// From now on no caller that asks first reads the node.
    pub fn close(&self, node: NodeId, why: Why) {
        self.node(node).change(|state| match why {
            Why::Away => state.away = true,
            Why::Unsettled(gid) => {
                state.unsettled.entry(gid).or_insert_with(Instant::now);
            }
        });
    }

    /// Why the node is away, for those who wait for it.
    pub fn note_reason(&self, node: NodeId, reason: String) {
        self.node(node).state().reason = Some(reason);
    }

    /// Removes this reason; the node is open when none is left.
    pub fn open(&self, node: NodeId, why: &Why) {
        self.node(node).change(|state| match why {
            Why::Away => (state.away, state.reason) = (false, None),
            Why::Unsettled(gid) => {
                state.unsettled.remove(gid);
            }
        });
    }

    /// This run of the node's server has been searched: what was prepared there is known.
    pub fn learn(&self, node: NodeId, run: Run) {
        let node = self.node(node);
        node.change(|state| {
            if state.run.as_ref() != Some(&run) {
                node.generation.fetch_add(1, Ordering::AcqRel);
            }
            state.run = Some(run);
        });
    }

    /// Changes when connections that were opened before must no longer be used.
    pub fn generation(&self, node: NodeId) -> u64 {
        self.node(node).generation.load(Ordering::Acquire)
    }

    /// Whether the node answers and has been searched; it may still be closed.
    pub fn is_there(&self, node: NodeId) -> bool {
        !self.node(node).state().away
    }

    /// Whether this is the run that was searched last, and the node was not lost since.
    pub fn is_current(&self, node: NodeId, run: &Run) -> bool {
        let state = self.node(node).state();
        !state.away && state.run.as_ref() == Some(run)
    }

    /// Whether the node may be read now.
    pub fn is_open(&self, node: NodeId) -> bool {
        self.node(node).open.load(Ordering::Acquire)
    }

    /// Returns as soon as the node may be read: immediately, without a lock, when it is open.
    ///
    /// Errors: [`NodeError::Closed`] (SQLSTATE 57P03) when `patience` is over.
    pub async fn wait_until_open(&self, node: NodeId, patience: Duration) -> Result<(), NodeError> {
        let node = self.node(node);
        if node.open.load(Ordering::Acquire) {
            return Ok(());
        }
        node.wait(Instant::now() + patience, State::is_open).await
    }

    /// Waits until nothing that is decided is left to recovery on the node, or the node is unreachable,
    /// so that it is not read. `patience` is for each part, from when it was left, or from `since` if
    /// that is later: callers that queue for this must not wait one after another.
    pub async fn wait_until_settled(&self, node: NodeId, since: Instant, patience: Duration) {
        let node = self.node(node);
        if node.open.load(Ordering::Acquire) {
            return;
        }
        let newest = || {
            let state = node.state();
            state.unsettled.values().max().copied().filter(|_| !state.away)
        };
        let is_settled = |state: &State| state.away || state.unsettled.is_empty();
        while let Some(left) = newest() {
            let give_up = left.max(since) + patience;
            if node.wait(give_up, is_settled).await.is_ok() || newest() == Some(left) {
                return;
            }
        }
    }

    /// Makes sure that a connection which was just opened leads to the run of the server that has
    /// been searched. Called before anything is read over it: a connection can be open sooner than
    /// the restart of the server is noticed. Costs one round trip.
    ///
    /// Errors: [`NodeError::Closed`] when the run was not searched in time, or was another
    /// one; [`NodeError::Lost`].
    pub async fn recognise(
        &self,
        connection: &mut NodeConnection,
        patience: Duration,
    ) -> Result<(), NodeError> {
        let node = self.node(connection.node());
        let run = connection.ask_run().await?;
        let is_known = |state: &State| state.run.as_ref() == Some(&run);
        if is_known(&node.state()) {
            return Ok(());
        }
        // Its watch does not know yet, or this is a server that was replaced.
        if node.state().run.is_some() {
            self.close(node.id, Why::Away);
            node.suspected.notify_one();
        }
        node.wait(Instant::now() + patience, is_known).await
    }

    /// It has kept others waiting who did nothing but wait for its answer: from now on it is asked whether it answers at
    /// all before anybody waits for it where others wait for them.
    pub fn note_late(&self, node: NodeId) {
        self.node(node).late.store(true, Ordering::Relaxed);
    }

    /// It has answered.
    pub fn note_prompt(&self, node: NodeId) {
        self.node(node).late.store(false, Ordering::Relaxed);
    }

    /// Whether it was late and has not answered since.
    pub fn is_late(&self, node: NodeId) -> bool {
        self.node(node).late.load(Ordering::Relaxed)
    }

    /// Waits until a connection has found a run of the node's server that its watch does not know.
    pub async fn suspected(&self, node: NodeId) {
        self.node(node).suspected.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(1);
    const SHORT: Duration = Duration::from_millis(10);

    fn nodes() -> Availability {
        let config =
            Config::from_toml("[[node]]\nid = 1\nhost = '127.0.0.1'\n").expect("it is right");
        Availability::new(&config)
    }

    fn unsettled(text: &str) -> Why {
        Why::Unsettled(text.parse().expect("one of ours"))
    }

    #[tokio::test]
    async fn a_node_is_open_when_no_reason_is_left() {
        let nodes = nodes();
        let (first, second) = (unsettled("tutti_main_1_1_1"), unsettled("tutti_main_1_2_1"));
        nodes.close(NODE, first.clone());
        nodes.close(NODE, second.clone());
        for why in [Why::Away, second, first] {
            let waited = nodes.wait_until_open(NODE, SHORT).await;
            assert!(matches!(waited, Err(NodeError::Closed { node: NODE, .. })), "{why:?}");
            nodes.open(NODE, &why);
        }
        nodes.wait_until_open(NODE, SHORT).await.expect("nothing keeps it closed");
    }

    #[tokio::test]
    async fn those_who_queue_for_a_part_wait_for_it_once() {
        let nodes = nodes();
        nodes.open(NODE, &Why::Away);
        nodes.close(NODE, unsettled("tutti_main_1_1_1"));
        let (begun, patience) = (Instant::now(), SHORT * 4);
        for _ in 0..5 {
            nodes.wait_until_settled(NODE, begun, patience).await;
        }
        let waited = begun.elapsed();
        assert!(patience <= waited && waited < patience * 3, "{waited:?}");
        // Another part has a patience of its own.
        tokio::time::sleep(patience).await;
        let left = Instant::now();
        nodes.close(NODE, unsettled("tutti_main_1_2_1"));
        nodes.wait_until_settled(NODE, begun, patience).await;
        assert!(patience <= left.elapsed());
        nodes.close(NODE, Why::Away);
        nodes.wait_until_settled(NODE, Instant::now(), Duration::from_secs(60)).await;
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let nodes = nodes();
        let waiting = nodes.wait_until_open(NODE, Duration::from_secs(60));
        let opening = async {
            tokio::task::yield_now().await;
            nodes.open(NODE, &Why::Away);
        };
        let (waited, ()) = tokio::join!(waiting, opening);
        waited.expect("it was opened");
    }

    #[test]
    fn a_run_counts_only_while_its_node_is_there() {
        let nodes = nodes();
        let run = Run::told(Some("1.5"));
        nodes.learn(NODE, run.clone());
        assert!(!nodes.is_current(NODE, &run));
        nodes.open(NODE, &Why::Away);
        assert!(nodes.is_current(NODE, &run));
        assert!(!nodes.is_current(NODE, &Run::told(Some("1.6"))));
    }
}
