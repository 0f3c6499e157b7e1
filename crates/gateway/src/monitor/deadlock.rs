//! Deadlocks over several nodes, which no node can see: found, and ended with 40P01.
//!
//! Owns: when the nodes are asked, the end of a victim, and what its client is told.
//! Never: decides what a deadlock is ([`tutti_txn::wait_graph`] does).
//! Start reading at [`run`]; `registry::activity` is the sessions' side of it, `wait_edges` the nodes'.
//!
//! It costs nothing as long as nothing waits: sessions count their messages and say whether their
//! transaction is on several nodes; nodes are asked only when a session of that kind has been
//! handling one message for a whole interval while another such session is busy as well. Every
//! deadlock over nodes has two of them: where its cycle of waits leaves a node, a session waits
//! there that others wait for elsewhere, and the cycle must come back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use tutti_cluster::numbers::sql_node;
use tutti_txn::WaitGraph;
use tutti_txn::wait_graph::{Victim, Wait};

use super::wait_edges::{LockWait, Monitors, Party};
use crate::registry::Registry;

/// How often it is checked whether any session waits.
const INTERVAL: Duration = Duration::from_millis(500);
/// Before a second look, to confirm what the first one showed.
const CONFIRM_PAUSE: Duration = Duration::from_millis(100);
/// After so many intervals without need for a look, the connections are closed.
const IDLE_INTERVALS: u32 = 120;

/// Looks for deadlocks for as long as it is polled.
pub async fn run(registry: Arc<Registry>) {
    let mut monitors = Monitors::default();
    let mut graph = WaitGraph::default();
    let mut before = BTreeMap::new();
    let mut idle = 0;
    loop {
        let pause = if graph.is_suspicious() { CONFIRM_PAUSE } else { INTERVAL };
        tokio::time::sleep(pause).await;
        let at_work = registry.activities.at_work();
        let stuck = at_work.iter().any(|(session, message)| before.get(session) == Some(message));
        let needed = stuck && 1 < at_work.len();
        before = at_work;
        if !needed {
            graph.forget();
            idle += 1;
            if idle == IDLE_INTERVALS {
                monitors.close();
            }
            continue;
        }
        idle = 0;
        let seen = monitors.collect(&registry).await;
        for victim in graph.observe(seen.clone(), Party::is_session, Party::runs_again) {
            end(&registry, &mut monitors, &victim, &seen).await;
        }
    }
}

/// Ends a victim's statement wherever it waits. Its transaction fails with the statement.
async fn end(
    registry: &Registry,
    monitors: &mut Monitors,
    victim: &Victim<Party, LockWait>,
    seen: &BTreeSet<Wait<Party, LockWait>>,
) {
    let Party::Session { process_id, .. } = victim.party else { return };
    let Some(activity) = registry.activities.of(process_id) else { return };
    let detail = describe(&victim.cycle);
    // Before the cancellation, whose answer may arrive before this line is reached.
    activity.mark(detail.clone());
    let waits: BTreeSet<_> = seen
        .iter()
        .filter(|wait| wait.waiter == victim.party)
        .map(|wait| (sql_node(wait.node), &wait.identity))
        .collect();
    let mut cancelled = false;
    // As long as they are held, no other session can check out the connections that the
    // cancellation aims at.
    let _aimed = registry.backends.of(process_id);
    for (node, wait) in waits {
        match monitors.cancel(node, wait).await {
            Ok(done) => cancelled |= done,
            Err(error) => tracing::warn!(%node, %error, "cannot end the victim of a deadlock"),
        }
    }
    if cancelled {
        tracing::info!(process_id, detail, "deadlock over several nodes; ended its youngest");
    } else {
        activity.unmark();
    }
}

/// The cycle of waits, as PostgreSQL words it.
fn describe(cycle: &[Wait<Party, LockWait>]) -> String {
    let mut text = String::new();
    for Wait { waiter, blocker, node, identity } in cycle {
        if !text.is_empty() {
            text.push('\n');
        }
        let (who, what) = (waiter.to_string(), &identity.what);
        let who = who.replacen('p', "P", 1);
        let written = write!(text, "{who} waits for {what} on node {node}; blocked by {blocker}.");
        written.expect("a String takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use tutti_txn::NodeId;

    use super::*;

    #[test]
    fn the_cycle_is_told_as_postgresql_tells_it() {
        let session = |process_id| Party::Session { gives_way: false, started_us: 0, process_id };
        let wait = |waiter, blocker, node, what: &str| Wait {
            waiter,
            blocker,
            node: NodeId(node),
            identity: LockWait { pid: 1, since_us: 2, what: what.to_owned() },
        };
        let outsider = Party::Outsider { node: NodeId(2), pid: 4711 };
        let cycle = [
            wait(session(5), outsider, 2, "ShareLock on transaction 7"),
            wait(outsider, session(9), 2, "ShareLock on transaction 8"),
            wait(session(9), session(5), 1, "AccessExclusiveLock on relation t"),
        ];
        expect![[r#"
            Process 5 waits for ShareLock on transaction 7 on node n2; blocked by process 4711 of node n2.
            Process 4711 of node n2 waits for ShareLock on transaction 8 on node n2; blocked by process 9.
            Process 9 waits for AccessExclusiveLock on relation t on node n1; blocked by process 5."#]]
        .assert_eq(&describe(&cycle));
    }
}
