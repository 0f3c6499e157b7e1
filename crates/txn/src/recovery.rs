//! Settling a global transaction in doubt, as a pure state machine.
//!
//! Owns: the rule that the anchor's record decides, that its absence is turned into a refusal before
//! anyone acts on it, and that only a look at the node shows that a part is gone.
//! Never: guesses, waits by a clock, needs a log of its own. Any gateway may run it for any other,
//! also while the transaction's own coordinator is alive, and any number of times.
//! Start reading at [`Phase`], then [`Recovery::step`]; [`in_doubt`] is where the work comes from.
//!
//! Algorithm: presumed abort (Mohan, Lindsay, Obermarck, "Transaction Management in the R*
//! Distributed Database Management System", ACM TODS 11(4), 1986), with the presumption made a fact
//! by a row under a unique key.

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::Decision;
use crate::gid::{ClusterTag, Gid, NodeId};

/// The settlement of one transaction, in order:
///
/// 1. `Asking`: the anchor is being asked for the record. Nothing else may be done before.
/// 2. `AnchorDown`: it could not be asked; it will be again, and until then all parts stay prepared.
/// 3. `Applying`: the decision is known, cannot change any more, and is being applied.
/// 4. `Finished`: a look at every node, after the decision, found nothing of this gid.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// Life cycle, 1.
    Asking,
    /// Life cycle, 2.
    AnchorDown,
    /// Life cycle, 3.
    Applying {
        /// What the anchor's record says.
        decision: Decision,
        /// The nodes that may still hold a part.
        open: BTreeMap<NodeId, Step>,
    },
    /// Life cycle, 4.
    Finished {
        /// What the anchor's record says.
        decision: Decision,
    },
}

/// What is going on with one node.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Step {
    /// COMMIT PREPARED or ROLLBACK PREPARED is out.
    Finishing,
    /// Its prepared transactions are being looked at.
    Listing,
    /// It did not answer; it will be looked at again.
    Pausing,
}

/// Something to do. The order of effects in one batch carries no meaning.
///
/// Below, `<gid>` is [`Recovery::gid`] as text. All of it runs on connections of the gateway's own,
/// outside any transaction, as the role that the cluster's sessions use or a superior one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Effect {
    /// On the anchor (`gid.anchor`), each statement a transaction of its own, `synchronous_commit`
    /// at least `on`:
    ///
    /// ```sql
    /// INSERT INTO tutti.decision (gid, decision) VALUES ('<gid>', 'aborted') ON CONFLICT DO NOTHING;
    /// SELECT decision FROM tutti.decision WHERE gid = '<gid>';
    /// ```
    ///
    /// The INSERT is the fence: once there is a row, the coordinator's own INSERT can only fail. It waits as
    /// long as an old backend holds `committed` uncommitted, and then knows the outcome. A `SELECT` alone
    /// must never be taken for an answer when it finds nothing. If that wait would be long (a gateway died
    /// without closing its connections), the old backend may be terminated with `pg_terminate_backend`: that
    /// is safe at any moment, also during its COMMIT.
    ///
    /// Found: [`Event::DecisionFound`]. Any error, a timeout of the wait included, or no answer:
    /// [`Event::AnchorUnreachable`].
    ReadOrRefuseDecision,
    /// `COMMIT PREPARED '<gid>'` on the node.
    ///
    /// Answered: [`Event::ParticipantCommitted`]. Error 42704: [`Event::ParticipantUnknown`]. Any
    /// other error, or no answer: [`Event::ParticipantLost`].
    CommitPrepared(NodeId),
    /// `ROLLBACK PREPARED '<gid>'` on the node.
    ///
    /// Answered: [`Event::ParticipantRolledBack`]. Error 42704: [`Event::ParticipantUnknown`]. Any
    /// other error, or no answer: [`Event::ParticipantLost`].
    RollbackPrepared(NodeId),
    /// Look at the node, after fencing it.
    ///
    /// 1. End every backend there that may still run, or still receive, a `PREPARE TRANSACTION
    ///    '<gid>'` that no one waits for: those of dead incarnations of the gateway, and of
    ///    connections that the living one has given up. `pg_terminate_backend(pid, timeout)`, and
    ///    wait until each is gone from `pg_stat_activity`: a termination that is still pending is no fence.
    /// 2. `SELECT EXISTS (SELECT FROM pg_prepared_xacts WHERE gid = '<gid>' AND database =
    ///    current_database())`.
    ///
    /// [`Event::Listed`] says what was seen. Any error, or no answer: [`Event::ParticipantLost`].
    ListPrepared(NodeId),
    /// Come back with [`Event::RetryDue`] of this node after a pause.
    RetryLater(NodeId),
    /// The transaction is settled: no node of this recovery holds a part of it, and none will.
    /// Nodes that were closed to reads for its sake may be opened. Happens exactly once.
    Announce(Decision),
}

/// Something that happened. See [`Effect`] for what each of them answers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Event {
    /// The record, found or just written.
    DecisionFound(Decision),
    /// The anchor returned no record, for any reason.
    AnchorUnreachable,
    /// The part is committed.
    ParticipantCommitted(NodeId),
    /// The part is rolled back.
    ParticipantRolledBack(NodeId),
    /// 42704: at that moment the node knew no prepared transaction of this gid.
    ParticipantUnknown(NodeId),
    /// The node did not answer, or with an error that decides nothing.
    ParticipantLost(NodeId),
    /// The fenced node was looked at.
    Listed {
        /// The node.
        node: NodeId,
        /// Whether it holds this gid prepared.
        prepared: bool,
    },
    /// The pause that [`Effect::RetryLater`] asked for is over.
    RetryDue(NodeId),
}

/// Settles one transaction on the nodes that may hold a part of it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Recovery {
    gid: Gid,
    nodes: BTreeSet<NodeId>,
    phase: Phase,
}

impl Recovery {
    /// Starts to settle `gid` on `nodes`: where it was found prepared, or where a coordinator left
    /// it. The anchor may be among them; with no other node there is then only the record to make.
    pub fn begin(gid: Gid, nodes: BTreeSet<NodeId>, effects: &mut Vec<Effect>) -> Self {
        effects.push(Effect::ReadOrRefuseDecision);
        Self { gid, nodes, phase: Phase::Asking }
    }

    /// The transaction's identifier; names the anchor.
    pub fn gid(&self) -> &Gid {
        &self.gid
    }

    /// Where the settlement is.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Whether the transaction is settled on all nodes given.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished { .. })
    }

    /// Takes one event, moves on, and appends what must now be done.
    ///
    /// Total, like [`crate::Coordinator::step`]: an event that is late or repeated at most causes
    /// one more look.
    pub fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        let anchor = self.gid.anchor;
        match (&mut self.phase, event) {
            (Phase::Asking, Event::DecisionFound(decision)) => {
                let open = self.nodes.iter().map(|node| (*node, Step::Finishing)).collect();
                effects.extend(self.nodes.iter().map(|node| finish(*node, decision)));
                self.phase = Phase::Applying { decision, open };
                self.finish_if_nothing_is_open(effects);
            }
            (Phase::Asking, Event::AnchorUnreachable) => {
                self.phase = Phase::AnchorDown;
                effects.push(Effect::RetryLater(anchor));
            }
            (Phase::AnchorDown, Event::RetryDue(node)) if node == anchor => {
                self.phase = Phase::Asking;
                effects.push(Effect::ReadOrRefuseDecision);
            }

            // Whatever a node answers, only a look shows that nothing is left: 42704 may come before
            // an old backend's PREPARE lands.
            (
                Phase::Applying { open, .. },
                Event::ParticipantCommitted(node)
                | Event::ParticipantRolledBack(node)
                | Event::ParticipantUnknown(node),
            ) if open.get(&node) == Some(&Step::Finishing) => {
                open.insert(node, Step::Listing);
                effects.push(Effect::ListPrepared(node));
            }
            (Phase::Applying { open, .. }, Event::ParticipantLost(node))
                if matches!(open.get(&node), Some(Step::Finishing | Step::Listing)) =>
            {
                open.insert(node, Step::Pausing);
                effects.push(Effect::RetryLater(node));
            }
            (Phase::Applying { open, .. }, Event::RetryDue(node))
                if open.get(&node) == Some(&Step::Pausing) =>
            {
                open.insert(node, Step::Listing);
                effects.push(Effect::ListPrepared(node));
            }
            (Phase::Applying { decision, open }, Event::Listed { node, prepared: true })
                if open.get(&node) == Some(&Step::Listing) =>
            {
                open.insert(node, Step::Finishing);
                effects.push(finish(node, *decision));
            }
            (Phase::Applying { open, .. }, Event::Listed { node, prepared: false })
                if open.get(&node) == Some(&Step::Listing) =>
            {
                open.remove(&node);
                self.finish_if_nothing_is_open(effects);
            }

            // Late or repeated. Listed so that a new event does not compile until it is handled.
            (
                _,
                Event::DecisionFound(_)
                | Event::AnchorUnreachable
                | Event::ParticipantCommitted(_)
                | Event::ParticipantRolledBack(_)
                | Event::ParticipantUnknown(_)
                | Event::ParticipantLost(_)
                | Event::Listed { .. }
                | Event::RetryDue(_),
            ) => (),
        }
    }

    fn finish_if_nothing_is_open(&mut self, effects: &mut Vec<Effect>) {
        if let Phase::Applying { decision, open } = &self.phase
            && open.is_empty()
        {
            let decision = *decision;
            effects.push(Effect::Announce(decision));
            self.phase = Phase::Finished { decision };
        }
    }
}

fn finish(node: NodeId, decision: Decision) -> Effect {
    match decision {
        Decision::Committed => Effect::CommitPrepared(node),
        Decision::Aborted => Effect::RollbackPrepared(node),
    }
}

/// Sorts what the nodes' `pg_prepared_xacts` hold into transactions in doubt, each to be given to
/// [`Recovery::begin`]: those of incarnations before `before`.
///
/// A gateway settles what is older than itself, and of its own what its coordinators have given up; never
/// what is newer: it may have been replaced without knowing, and the newer gateway's transactions are alive
/// then. Settling one of them where it is found would show it there before its coordinator is in the commit
/// room.
///
/// `listing`: rows `(node, gid)` of `SELECT gid FROM pg_prepared_xacts WHERE database =
/// current_database()` on each node. What is not spelled like a gid of `cluster` is someone else's and left
/// out.
///
/// For a sweep that misses nothing, fence each node first as for [`Effect::ListPrepared`]: a PREPARE
/// that lands after the listing is not in it. The gids of transactions whose coordinator runs in this gateway
/// should be taken out by the caller: settling them is safe, but aborts them.
///
/// A transaction whose coordinator may live elsewhere with its decision apart must be settled on all
/// nodes, not only on those found here, and none of them may be read before all are settled: it can
/// be decided and still outside the commit room (`docs/protocol/anchored-commit.md`).
pub fn in_doubt<'a>(
    cluster: &ClusterTag,
    before: u64,
    listing: impl IntoIterator<Item = (NodeId, &'a str)>,
) -> BTreeMap<Gid, BTreeSet<NodeId>> {
    let mut found: BTreeMap<Gid, BTreeSet<NodeId>> = BTreeMap::new();
    for (node, text) in listing {
        match text.parse::<Gid>() {
            Ok(gid) if gid.cluster == *cluster && gid.incarnation < before => {
                found.entry(gid).or_default().insert(node);
            }
            Ok(_) | Err(_) => (),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_sorted_by_transaction_and_foreign_or_newer_ones_are_left_alone() {
        let cluster: ClusterTag = "shop".parse().expect("fits");
        let listing = [
            (NodeId(2), "tutti_shop_4_17_1"),
            (NodeId(3), "tutti_shop_4_17_1"),
            (NodeId(3), "tutti_shop_4_18_2"),
            (NodeId(3), "tutti_other_4_17_1"),
            (NodeId(3), "tutti_shop_4_17"),
            (NodeId(3), "tutti_shop_5_18_2"),
            (NodeId(2), "1_pgjdbc"),
        ];
        let found: Vec<_> = in_doubt(&cluster, 5, listing)
            .into_iter()
            .map(|(gid, nodes)| (gid.to_string(), nodes))
            .collect();
        assert_eq!(
            found,
            [
                ("tutti_shop_4_17_1".to_owned(), [NodeId(2), NodeId(3)].into()),
                ("tutti_shop_4_18_2".to_owned(), [NodeId(3)].into()),
            ]
        );
    }
}
