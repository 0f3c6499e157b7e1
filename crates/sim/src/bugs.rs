//! Bugs to plant, between the machines and the world, so that the machines carry no test switches.
//!
//! Owns: the list, and for each bug the properties of which one must be found broken.
//! Never: active unless asked for.
//! Start reading at [`Bug`].

macro_rules! bugs {
    ($($(#[$doc:meta])+ $name:ident breaks $properties:expr;)+) => {
        /// One planted bug.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Bug { $($(#[$doc])+ $name,)+ }

        impl Bug {
            /// All of them, with the properties meant to find each.
            pub const ALL: &[(Self, &[&str])] = &[$((Self::$name, &$properties),)+];

            /// The bug of this name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().map(|(bug, _)| *bug).find(|bug| format!("{bug:?}") == name)
            }
        }
    };
}

bugs! {
    /// A statement over several nodes takes its snapshots without entering the snapshot room.
    ReaderSkipsTheRoom breaks ["atomic_visibility"];
    /// The snapshot room is left when the first of the nodes has bound.
    ReaderLeavesTheRoomEarly breaks ["atomic_visibility"];
    /// The snapshots are taken at Execute, outside the room, instead of at Bind.
    SnapshotAtExecute breaks ["atomic_visibility"];
    /// A global transaction becomes visible without entering the commit room.
    CommitterSkipsTheRoom breaks ["atomic_visibility"];
    /// The commit room is left when the first COMMIT PREPARED is answered.
    CommitterLeavesTheRoomEarly breaks ["atomic_visibility"];
    /// COMMIT PREPARED goes out together with the decision.
    CommitPreparedBeforeTheDecision breaks ["decision_before_any_commit_prepared"];
    /// A local commit begins although the snapshot room is open.
    LocalCommitDoesNotPass breaks ["causality"];
    /// A commit begins although what its session may have seen is not applied on its nodes yet.
    CommitOvertakesItsCause breaks ["causality"];
    /// A statement on one node does not wait for what others may have seen elsewhere.
    OneNodeReaderDoesNotWait breaks ["snapshot_monotonic"];
    /// A REPEATABLE READ transaction gets a snapshot that was taken before it asked.
    OldSnapshotIsReused breaks ["snapshot_monotonic"];
    /// A node that has restarted is read before its prepared transactions are settled.
    RestartedNodeIsRead breaks ["atomic_visibility", "snapshot_monotonic"];
    /// A node that a coordinator has handed to recovery is read before it is settled.
    HandedOverNodeIsRead breaks ["atomic_visibility", "snapshot_monotonic"];
    /// A gateway serves before it has settled what the last one left in doubt.
    GatewayServesUnsettled breaks ["atomic_visibility", "snapshot_monotonic"];
    /// Recovery only reads: no record means aborted, and it stays absent.
    RecoveryDoesNotRefuse breaks ["atomicity", "told_the_truth", "atomic_visibility"];
    /// 42704 is taken for success.
    UnknownPreparedMeansDone breaks ["no_orphan_after_quiet"];
    /// Recovery looks at a node without terminating old backends first.
    LookDoesNotFence breaks ["no_orphan_after_quiet"];
    /// A gateway that takes a node over does not terminate the backends on its list.
    ListedBackendsGoOn breaks ["atomic_visibility", "snapshot_monotonic"];
    /// It terminates them, and does not wait until they have ended.
    TheirEndIsNotAwaited breaks ["no_orphan_after_quiet", "nobody_is_served_after_the_fence"];
    /// It terminates them first, and raises the node's newest incarnation afterwards.
    EndsBeforeTheRaise breaks ["nobody_is_served_after_the_fence"];
    /// It does not raise it: the node refuses no earlier gateway.
    NodeIsNotRaised breaks ["atomic_visibility", "snapshot_monotonic"];
    /// A client's statement runs on a backend that its node has not listed.
    BackendIsNotListed breaks ["atomic_visibility", "snapshot_monotonic"];
    /// A client's statement runs although the node has refused to serve this gateway.
    RefusalIsNotHeeded breaks ["atomic_visibility", "snapshot_monotonic"];
    /// A node is looked at for what is prepared, and fenced afterwards.
    LooksBeforeTheFence breaks ["atomic_visibility", "no_orphan_after_quiet"];
    /// A node that was away when its gateway started is swept, and not fenced.
    AwayNodeIsNotFenced breaks ["everybody_is_answered"];
    /// A gateway that has the lock does not look whether a later one has come all the same.
    LaterOnesAreNotNoticed breaks ["everybody_is_answered"];
    /// The decision's row is deleted when COMMIT PREPARED is answered, not when it is safe.
    DecisionIsForgottenEarly breaks ["atomicity", "told_the_truth", "snapshot_monotonic"];
    /// The door of a room stays open for newcomers while others wait for the other room.
    DoorStaysOpen breaks ["every_waiter_enters"];
    /// A connection that was lost during the decision is taken for a refusal.
    LostDecisionMeansAborted breaks ["told_the_truth"];
    /// A change of a placement is committed while statements begin.
    NothingIsHeld breaks ["snapshot_monotonic", "rows_are_where_the_catalog_says"];
    /// A session looks for holds and makes a plan, and only then is it in sight.
    LooksBeforeItIsInSight breaks ["snapshot_monotonic", "rows_are_where_the_catalog_says"];
    /// A further step of a plan is sent although a change has stopped the plan.
    StopIsNotHeeded breaks ["snapshot_monotonic", "rows_are_where_the_catalog_says"];
    /// What waits for the change's locks is not recognised: it goes on with its plan after the change.
    LookSeesNobodyWaiting breaks ["snapshot_monotonic", "rows_are_where_the_catalog_says"];
    /// A backend whose connection was lost is not looked at: what it waits to do is done after the change.
    LeftBackendsAreForgotten breaks ["rows_are_where_the_catalog_says"];
    /// Statements are planned before a change that is committed is published.
    ChangeIsNotNoted breaks ["snapshot_monotonic", "rows_are_where_the_catalog_says"];
    /// A reading of the catalog counts as one that shows what was committed while it was read.
    ReadingKnowsWhatCameMeanwhile breaks ["snapshot_monotonic", "rows_are_where_the_catalog_says"];
    /// A REPEATABLE READ transaction reads a table that was moved after its snapshot.
    OldSnapshotIsNotRefused breaks ["snapshot_monotonic", "atomic_visibility"];
    /// SERIALIZABLE transactions do not take turns on the nodes that they share.
    TurnsAreSkipped breaks ["votes_in_one_order"];
}
