//! What a commit waits for before it becomes visible: its place, and its causes.
//!
//! Owns: how long what is left to recovery is waited for.
//! Never: decides that something is waited for, or in which order (`tutti_txn` does).
//! Start reading at [`Causes::shown`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::Instant;
use tutti_link::availability::Availability;
use tutti_txn::gid;

use super::in_application::InApplication;
use super::vote_order::{VoteOrder, VotePermit};
use crate::numbers::sql_node;

/// The waits of one commit.
#[derive(Debug, Default)]
pub struct Causes {
    /// When it first had to wait for what is before it: its patience counts from here, for those who queue
    /// for their place must not each have it anew.
    waits_since: Option<Instant>,
}

impl Causes {
    /// Waits for its place on these nodes.
    pub fn place(
        &mut self,
        order: &Arc<VoteOrder>,
        nodes: BTreeSet<gid::NodeId>,
    ) -> impl Future<Output = VotePermit> + Send + use<> {
        self.waits_since.get_or_insert_with(Instant::now);
        let order = order.clone();
        async move { order.take(nodes).await }
    }

    /// Waits until each of these nodes shows all that is in application there now, and what recovery has to
    /// settle there: a reader that sees a commit on one of its nodes must see there what its client may have
    /// seen elsewhere before (docs/protocol/rooms.md, causes). What is left to recovery is waited for as long
    /// as a statement would wait for its node: `patience`.
    pub fn shown(
        &mut self,
        in_application: &Arc<InApplication>,
        availability: &Arc<Availability>,
        nodes: &BTreeSet<gid::NodeId>,
        patience: Duration,
    ) -> impl Future<Output = ()> + Send + use<> {
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        let waits = nodes.iter().map(|node| {
            let (node, in_application, availability) =
                (sql_node(*node), in_application.clone(), availability.clone());
            async move {
                in_application.wait(Some(node)).await;
                // What is left to recovery there counts as applied, for the node is not read; but what runs
                // on it goes on.
                availability.wait_until_settled(node, since, patience).await;
            }
        });
        join_all(waits.collect::<Vec<_>>()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;
    use tokio::time::timeout;
    use tutti_configuration::Config;
    use tutti_link::availability::Why;
    use tutti_sql::catalog::NodeId;

    use super::*;

    const ONE: gid::NodeId = gid::NodeId(1);
    const TWO: gid::NodeId = gid::NodeId(2);

    /// Two nodes that answer.
    fn nodes() -> Arc<Availability> {
        let config: String =
            (1..=2).map(|id| format!("[[node]]\nid = {id}\nhost = '127.0.0.1'\n")).collect();
        let nodes = Availability::new(&Config::from_toml(&config).expect("it is right"));
        nodes.open(NodeId(1), &Why::Away);
        nodes.open(NodeId(2), &Why::Away);
        Arc::new(nodes)
    }

    fn part(gid: &str) -> Why {
        Why::Unsettled(gid.parse().expect("one of ours"))
    }

    /// Each has its place when the one before it has given up waiting.
    #[tokio::test]
    async fn those_who_queue_for_their_place_wait_once_for_what_recovery_has() {
        let patience = Duration::from_millis(300);
        let (nodes, in_application, order) = (nodes(), InApplication::new(true), Arc::default());
        nodes.close(NodeId(1), part("tutti_main_1_1_1"));
        let begun = Instant::now();
        let mut commits = JoinSet::new();
        for _ in 0..4 {
            let (nodes, in_application) = (nodes.clone(), in_application.clone());
            let writers = BTreeSet::from([ONE, TWO]);
            let mut causes = Causes::default();
            let place = causes.place(&order, writers.clone());
            commits.spawn(async move {
                let place = place.await;
                causes.shown(&in_application, &nodes, &writers, patience).await;
                drop(place);
            });
        }
        while let Some(commit) = commits.join_next().await {
            commit.expect("it does not panic");
        }
        let waited = begun.elapsed();
        assert!(patience <= waited && waited < patience * 3, "{waited:?}");
    }

    #[tokio::test]
    async fn what_comes_later_to_another_node_is_no_cause() {
        let (nodes, in_application) = (nodes(), InApplication::new(true));
        nodes.close(NodeId(1), part("tutti_main_1_1_1"));
        let writers = BTreeSet::from([ONE, TWO]);
        let mut causes = Causes::default();
        let shown = causes.shown(&in_application, &nodes, &writers, Duration::from_secs(3600));
        tokio::pin!(shown);
        let early = timeout(Duration::from_millis(20), shown.as_mut()).await;
        assert!(early.is_err(), "recovery has a part on node 1");
        nodes.close(NodeId(2), part("tutti_main_1_2_1"));
        nodes.open(NodeId(1), &part("tutti_main_1_1_1"));
        timeout(Duration::from_secs(60), shown).await.expect("node 2 had shown all there was");
    }

    /// Its node is closed before it ceases to be in application.
    #[tokio::test]
    async fn what_was_in_application_is_a_cause_when_it_is_left_to_recovery() {
        let (nodes, in_application) = (nodes(), InApplication::new(true));
        let entered = in_application.begin([ONE, TWO]);
        let mut causes = Causes::default();
        let writers = BTreeSet::from([ONE, TWO]);
        let shown = causes.shown(&in_application, &nodes, &writers, Duration::from_secs(3600));
        tokio::pin!(shown);
        assert!(timeout(Duration::from_millis(20), shown.as_mut()).await.is_err());
        nodes.close(NodeId(2), part("tutti_main_1_1_1"));
        drop(entered);
        assert!(timeout(Duration::from_millis(20), shown.as_mut()).await.is_err());
        nodes.open(NodeId(2), &part("tutti_main_1_1_1"));
        timeout(Duration::from_secs(60), shown).await.expect("it is settled");
    }
}
