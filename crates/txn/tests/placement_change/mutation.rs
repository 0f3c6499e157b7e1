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
    /// A session that waits for the change is reported as running.
    WaitingIsOverlooked,
    /// Each part that runs is reported to have its locks.
    LocksAreTakenAtOnce,
    /// A session that waits for another's table is reported as running.
    QueuedIsAtWork,
    /// Each part that runs is reported to wait for the change.
    BusyMeansWaiting,
    /// Of several backends of a session only one is reported.
    OneBackendIsAsked,
    /// What was seen first is reported again: one look for two.
    FirstLookIsKept,
    /// Plans of which something was sent are not listed.
    SentPlansAreOverlooked,
    /// That a statement commits before it ends is not reported.
    EndingIsForAll,
    /// What was proven by the old catalog is reported to hold.
    ProofIsNotMadeAnew,
    /// Each plan is reported to depend on the change.
    EveryPlanUsesAll,
    /// That a table is written in several steps is not reported.
    WritingInStepsIsOverlooked,
    /// That a table of the change is read is not reported.
    ReadingIsOverlooked,
    /// That something was sent which has not arrived is not reported.
    WhatIsOnItsWayIsOverlooked,
    /// That rows of the changed table are made anew is not reported.
    RebuildingIsOverlooked,
    /// That rows are brought together is not reported.
    BroughtRowsAreOverlooked,
    /// That steps were sent together is not reported.
    FlightsAreOverlooked,
    /// That code is called which has come to do more is not reported.
    CallsAreOverlooked,
    /// That a relation is used which loses its name, or gets one, is not reported.
    ChangedNamesAreOverlooked,
    /// Each look is reported to be at the beginning.
    TimeStandsStill,
    /// A change that is committed is not noted: no session waits until it is published.
    NothingIsNoted,
    /// The hold is not released.
    HoldIsKept,
}
