//! Bugs to plant, between the machine and the world, so that the machine carries no test switches.
//!
//! Owns: the list. Each is applied in `world.rs` where its comment says.
//! Never: is active outside `every_planted_bug_is_found`.
//! Start reading at [`Mutation`].

/// One planted bug.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mutation {
    /// New statements begin although there is a hold.
    NobodyIsHeld,
    /// Plans of which nothing was sent are not marked.
    UnsentGoesOn,
    /// A plan that is stopped sends its next step.
    StoppedPlansGoOn,
    /// Whoever waits for the change is told to be at work.
    WaitingIsOverlooked,
    /// Whatever runs is told to have its locks.
    LocksAreTakenAtOnce,
    /// Whoever waits for another's table is told to be at work.
    QueuedIsAtWork,
    /// Whatever runs is told to wait for the change.
    BusyMeansWaiting,
    /// Of several backends of a session one is told.
    OneBackendIsAsked,
    /// What was seen first is told again: one look for two.
    FirstLookIsKept,
    /// Plans of which something was sent are not listed.
    SentPlansAreOverlooked,
    /// That a statement commits before it ends is not told.
    EndingIsForAll,
    /// What was proven by the old catalog is told to hold.
    ProofIsNotMadeAnew,
    /// Each plan is told to depend on the change.
    EveryPlanUsesAll,
    /// That a table is written in several steps is not told.
    WritingInStepsIsOverlooked,
    /// That a table of the change is read is not told.
    ReadingIsOverlooked,
    /// That rows are brought together is not told.
    BroughtRowsAreOverlooked,
    /// Each look is told to be at the beginning.
    TimeStandsStill,
    /// A change that is committed is not noted: nobody waits until it is published.
    NothingIsNoted,
    /// The hold is not released.
    HoldIsKept,
}
