//! What must hold, each as a function named for the property.
//!
//! Owns: the properties. Never: changes a world.
//! Start reading at [`ALWAYS`] and [`AFTER_QUIET`].

use tutti_txn::{Form, Outcome};

use crate::world::{Part, Row, World};

/// A property: its name, and whether a world has it.
pub type Invariant = (&'static str, fn(&World) -> bool);

/// Must hold in every state.
pub const ALWAYS: &[Invariant] = &[
    ("decision_before_any_commit_prepared", decision_before_any_commit_prepared),
    ("no_rollback_behind_the_decision", no_rollback_behind_the_decision),
    ("committed_is_applied_or_handed_over", committed_is_applied_or_handed_over),
    ("half_applied_only_in_the_room", half_applied_only_in_the_room),
    ("half_applied_only_in_application", half_applied_only_in_application),
    ("unwatched_is_not_committed", unwatched_is_not_committed),
    ("record_outlives_what_may_ask", record_outlives_what_may_ask),
    ("apart_in_the_room_only_when_decided", apart_in_the_room_only_when_decided),
    ("told_at_most_once", told_at_most_once),
];

/// Must hold when nothing is left to happen but new faults.
pub const AFTER_QUIET: &[Invariant] = &[
    ("atomicity", atomicity),
    ("told_the_truth", told_the_truth),
    ("no_orphan_after_quiet", no_orphan_after_quiet),
    ("everybody_is_answered", everybody_is_answered),
];

/// No part commits without the durable record.
fn decision_before_any_commit_prepared(world: &World) -> bool {
    world.row == Row::Committed || world.nodes.values().all(|node| node.part != Part::Committed)
}

/// No part rolls back once the record says `committed`.
fn no_rollback_behind_the_decision(world: &World) -> bool {
    world.row != Row::Committed || world.nodes.values().all(|node| node.part != Part::RolledBack)
}

/// At the moment the client is told `Committed`, and ever after, it is true on every node that may be
/// read.
fn committed_is_applied_or_handed_over(world: &World) -> bool {
    world.told != [Outcome::Committed]
        || world
            .nodes
            .iter()
            .all(|(id, node)| node.part == Part::Committed || world.is_closed_to_reads(*id))
}

/// While the gateway lives and the transaction is outside the commit room, a snapshot of all nodes
/// that may be read sees all of it or nothing.
fn half_applied_only_in_the_room(world: &World) -> bool {
    let visible = |part: Part| {
        world
            .nodes
            .iter()
            .filter(|(id, _)| !world.is_closed_to_reads(**id))
            .any(|(_, node)| (node.part == Part::Committed) == (part == Part::Committed))
    };
    world.coordinator.is_none()
        || world.in_commit_room
        || !(visible(Part::Committed) && visible(Part::Prepared))
}

/// While the gateway lives, a client that has seen the transaction on one node waits for it on another that
/// does not show it yet.
fn half_applied_only_in_application(world: &World) -> bool {
    let readable = || world.nodes.iter().filter(|(id, _)| !world.is_closed_to_reads(**id));
    world.coordinator.is_none()
        || !readable().any(|(_, node)| node.part == Part::Committed)
        || readable()
            .filter(|(_, node)| node.part == Part::Prepared)
            .all(|(id, _)| world.is_waited_for_on(*id))
}

/// A transaction that no sentinel has watched for a moment does not commit anywhere.
fn unwatched_is_not_committed(world: &World) -> bool {
    !world.is_unwatched || world.nodes.values().all(|node| node.part != Part::Committed)
}

/// The record may be forgotten only once no node can hold a part that is prepared.
fn record_outlives_what_may_ask(world: &World) -> bool {
    !world.was_forgotten_early
}

/// With the decision apart, readers do not wait for a decision: the room is held only to apply one,
/// or to give up.
fn apart_in_the_room_only_when_decided(world: &World) -> bool {
    world.form == Form::Anchored
        || !world.in_commit_room
        || world.row == Row::Committed
        || world.is_surrendering()
}

fn told_at_most_once(world: &World) -> bool {
    world.told.len() <= 1
}

/// All committed or none.
fn atomicity(world: &World) -> bool {
    let committed = |part: Part| part == Part::Committed;
    world.nodes.values().all(|node| committed(node.part))
        || !world.nodes.values().any(|node| committed(node.part))
}

/// `Committed` told: committed everywhere. `Aborted` told: nowhere.
fn told_the_truth(world: &World) -> bool {
    world.told.iter().all(|outcome| match outcome {
        Outcome::Committed => world.nodes.values().all(|node| node.part == Part::Committed),
        Outcome::Aborted { .. } => world.nodes.values().all(|node| node.part != Part::Committed),
        Outcome::Unknown => true,
    })
}

/// No part is left prepared or open, holding locks.
fn no_orphan_after_quiet(world: &World) -> bool {
    world.row != Row::Pending
        && world.nodes.values().all(|node| matches!(node.part, Part::Committed | Part::RolledBack))
}

/// No machine waits for something that never comes, a client whose gateway lives has been told, and nothing
/// is held that others wait for.
fn everybody_is_answered(world: &World) -> bool {
    let coordinator_is_done = world
        .coordinator
        .as_ref()
        .is_none_or(|coordinator| coordinator.is_finished() && world.told.len() == 1);
    coordinator_is_done && world.recovery.is_none() && !world.holds_anything()
}
