//! What can be on its way in a world, and what can happen next.
//!
//! Owns: the vocabulary, and how a path of moves reads. Never: says when a move is possible or what
//! it does; that is `world.rs`.
//! Start reading at [`Move`].

use std::fmt;

use tutti_txn::{Effect, Event, NodeId, recovery};

use crate::world::ANCHOR;

/// What is on its way.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Flight {
    /// Something a machine wants done. Once no one waits for its answer, it may still happen.
    Order {
        order: Order,
        awaited: bool,
    },
    ToCoordinator(Event),
    ToRecovery(recovery::Event),
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Order {
    Coordinator(Effect),
    Recovery(recovery::Effect),
}

impl Order {
    /// The node on whose session connection it runs, if it does.
    pub fn session(self) -> Option<NodeId> {
        match self {
            Self::Coordinator(Effect::Prepare(node)) => Some(node),
            Self::Coordinator(
                Effect::RecordDecision | Effect::CommitAnchor | Effect::RollbackAnchor,
            ) => Some(ANCHOR),
            Self::Coordinator(_) | Self::Recovery(_) => None,
        }
    }

    /// Whether it is sent to a node: what happens inside the gateway dies with it.
    pub fn leaves_the_gateway(self) -> bool {
        match self {
            Self::Coordinator(effect) => !matches!(
                effect,
                Effect::ConfirmSentinels
                    | Effect::TakeVisibilityPlace
                    | Effect::WaitForCauses
                    | Effect::EnterCommitRoom
                    | Effect::LeaveToRecovery { .. }
            ),
            Self::Recovery(effect) => !matches!(effect, recovery::Effect::RetryLater(_)),
        }
    }
}

/// One thing that can happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Move {
    /// An order happens, and is answered if someone waits.
    Run(Flight),
    /// A PREPARE or the anchor's COMMIT fails: a constraint, a serialization failure. Or the record's
    /// own transaction: a full disk. Or a sentinel was not open all the time.
    Refuse(Flight),
    Deliver(Flight),
    BackendEnds(NodeId),
    StartSweep,
    SweepNode(NodeId),
    StartRecovery,
    // From here on: faults.
    DeliverAndRepeat(Flight),
    /// A session's connection breaks; what was sent over it may still happen.
    Break(NodeId),
    /// No one waits for this answer any longer.
    GiveUp(Flight),
    Deadline,
    Crash,
    StartUncalledSweep,
    ForgetCommit(NodeId),
}

impl Move {
    /// Whether it happens by itself, sooner or later. A world without such moves is quiet.
    pub fn is_progress(self) -> bool {
        match self {
            Self::Run(_)
            | Self::Refuse(_)
            | Self::Deliver(_)
            | Self::BackendEnds(_)
            | Self::StartSweep
            | Self::SweepNode(_)
            | Self::StartRecovery => true,
            Self::DeliverAndRepeat(_)
            | Self::Break(_)
            | Self::GiveUp(_)
            | Self::Deadline
            | Self::Crash
            | Self::StartUncalledSweep
            | Self::ForgetCommit(_) => false,
        }
    }
}

impl Flight {
    /// Whether it is a statement sent over the session's connection to `id`.
    pub fn on_session(&self, id: NodeId) -> bool {
        matches!(self, Self::Order { order, .. } if order.session() == Some(id))
    }
}

impl fmt::Display for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { order, awaited: true } => write!(f, "{order:?}"),
            Self::Order { order, awaited: false } => write!(f, "{order:?}, which nobody awaits"),
            Self::ToCoordinator(event) => write!(f, "{event:?} to the coordinator"),
            Self::ToRecovery(event) => write!(f, "{event:?} to recovery"),
        }
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(flight) => write!(f, "run {flight}"),
            Self::Refuse(flight) => write!(f, "refuse {flight}"),
            Self::Deliver(flight) => write!(f, "deliver {flight}"),
            Self::BackendEnds(id) => write!(f, "the session's backend on {id} ends"),
            Self::StartSweep => write!(f, "a sweep starts"),
            Self::SweepNode(id) => write!(f, "the sweep looks at {id}"),
            Self::StartRecovery => write!(f, "a recovery starts on what was handed over"),
            Self::DeliverAndRepeat(flight) => write!(f, "deliver, and keep, {flight}"),
            Self::Break(id) => write!(f, "the session's connection to {id} breaks"),
            Self::GiveUp(flight) => write!(f, "give up waiting for {flight}"),
            Self::Deadline => write!(f, "the deadline passes"),
            Self::Crash => write!(f, "the gateway dies"),
            Self::StartUncalledSweep => write!(f, "another gateway takes this one for dead"),
            Self::ForgetCommit(id) => write!(f, "{id} restarts without the end of its log"),
        }
    }
}
