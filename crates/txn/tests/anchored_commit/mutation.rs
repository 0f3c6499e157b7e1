//! Bugs to plant, between the machines and the world, so that the machines carry no test switches.
//!
//! Owns: the list. Each is applied in `world.rs` where its comment says.
//! Never: is active outside `every_planted_bug_is_found`.
//! Start reading at [`Mutation`].

/// One planted bug.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mutation {
    /// The first yes counts for all voters.
    CommitBeforeAllVotes,
    /// COMMIT PREPARED goes out together with the decision.
    CommitPreparedBeforeDecision,
    /// The client is told `Committed` when the decision has been made.
    ReplyAtDecision,
    /// A decision whose answer was lost is taken for a refused one.
    LostDecisionMeansAborted,
    /// The deadline aborts although the decision is out.
    DeadlineAbortsWhileDeciding,
    /// The driver says that the room is entered without entering it.
    RoomIsNotEntered,
    /// 42704 is taken for success by the coordinator.
    UnknownMeansDone,
    /// 42704 is taken for success by recovery.
    UnknownMeansSettled,
    /// On abort, a PREPARE without an answer is taken for one that failed.
    UnansweredPrepareIsForgotten,
    /// Recovery only reads: an absent record means aborted, and stays absent.
    RecoveryLeavesNoRecord,
    /// Recovery looks at a node without terminating old backends first.
    ListingDoesNotFence,
    /// A node that lost the end of its log is not looked at again.
    RestartIsNotSwept,
    /// The coordinator is told that recovery has a node, before that node is closed to reads.
    LostParticipantIsNotClosed,
    /// A driver that gives up waiting for an answer does not say so to its machine.
    LossIsNotReported,
    /// The driver does not announce that the transaction comes into application.
    ApplicationIsNotBegun,
    /// The driver keeps its place to become visible.
    PlaceIsKept,
    /// A missing sentinel is taken for one that was open.
    MissingSentinelIsOverlooked,
    /// Committed is taken for applied everywhere: the record may go.
    RecordOfHandedOverIsForgotten,
    /// Apart: a record that is refused is taken for one that is written.
    RefusedDecisionMeansRecorded,
    /// Apart: the room is asked for together with the decision, not after it.
    RoomIsAskedForWithTheDecision,
    /// Apart: a sweep does not look for the anchor's prepared part.
    SweepOverlooksTheAnchor,
    /// Apart: a sweep whose coordinator may live settles only on the nodes where it saw a part.
    SweepSettlesOnlyWhatItFound,
}
