//! Bugs to plant, between the machines and the world, so that the machines carry no test switches.
//!
//! Owns: the list. Each is applied in `world.rs` where its comment says.
//! Never: is active outside `every_planted_bug_is_found`.
//! Start reading at [`Mutation`].

/// One planted bug.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mutation {
    /// The first yes counts for all participants.
    CommitBeforeAllVotes,
    /// COMMIT PREPARED goes out together with the anchor's COMMIT.
    CommitPreparedBeforeDecision,
    /// The client hears `Committed` when the anchor has committed.
    ReplyAtDecision,
    /// A connection lost during the anchor's COMMIT is taken for a refusal.
    LostAnchorMeansAborted,
    /// The deadline aborts although the anchor's COMMIT is out.
    DeadlineAbortsWhileDeciding,
    /// 42704 is taken for success by the coordinator.
    UnknownMeansDone,
    /// 42704 is taken for success by recovery.
    UnknownMeansSettled,
    /// On abort, a PREPARE without an answer is taken for one that failed.
    UnansweredPrepareIsForgotten,
    /// Recovery only reads: an absent record means aborted, and stays absent.
    RecoveryLeavesNoRecord,
    /// Recovery looks at a node without ending old backends first.
    ListingDoesNotFence,
    /// A node that lost the end of its log is not looked at again.
    RestartIsNotSwept,
    /// The coordinator is told that recovery has a node, before that node is closed to reads.
    LostParticipantIsNotClosed,
    /// A driver that gives up waiting for an answer does not say so to its machine.
    LossIsNotReported,
}
