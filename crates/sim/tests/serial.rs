//! Small worlds of SERIALIZABLE transactions over two nodes, every order of each.

use tutti_sim::serial::world::World;
use tutti_sim::serial::{Bug, explore};

/// A world that has more states is visited that far.
const LIMIT: u64 = 300_000;

fn again(world: &World, bug: Option<Bug>) -> String {
    let bug = bug.map_or(String::new(), |bug| format!(" --serial-bug {bug:?}"));
    format!("again: cargo sim --serial \"{world}\"{bug}")
}

fn must_be_serializable(text: &str, bug: Option<Bug>) {
    let world: World = text.parse().expect(text);
    let found = explore(&world, bug, LIMIT);
    if let Some((trace, circle)) = found.anomaly {
        panic!("{circle}\n{}\n{}", trace.join("\n"), again(&world, bug));
    }
    println!("{world}: {} states, {} ends, cut: {}", found.states, found.ends, found.is_cut);
    assert_ne!(found.all_committed, 0, "{world}: nobody can commit");
}

/// Goal: no history is found that one transaction after another could not have made.
#[test]
fn histories_over_two_nodes_are_serializable() {
    for world in [
        // Write skew, alone and with what can go wrong.
        "rx1 wy2 | ry2 wx1 ; kill relief",
        "rx1 wy2 | ry2 wx1 ; kill kill",
        "rx1 sp ry2 rb wy2 | ry2 wx1 ; error relief",
        // A third transaction on one node closes the cycle, or sees half of it.
        "rx1 wy2 | wx1 | ry2 rx1",
        "rx1 wy2 | auto wx1 | ry2 rx1",
        "wx1 wy2 | rx1 wu1 | ru1 ry2",
        "rx1 wy2 | ry2 wx1 | auto rx1",
        "wx1 wy2 | auto rx1 | auto ry2",
        // Both are global, a local one reads between them: its dependencies lead backward in the order
        // of the votes.
        "wx1 ry2 | wy2 wu1 | rx1 ru1",
        "wx1 wy2 | wu1 wv2 | auto rx1u1",
        // Transactions that only read, on both.
        "rx1 ry2 | wx1 | wy2",
        "rx1 ry2 | rx1 wx1 | ry2 wy2",
        // Declared READ ONLY, in a block and outside of one.
        "ro rx1 ry2 | rx1 wx1 | ry2 wy2",
        "ro rx1 ry2 | rx1 wy2 | wx1",
        "auto ro rx1 | rx1 wy2 | ry2 wx1",
        "auto ro rx1u1 | wx1 ry2 | wy2 wu1",
        // The ticket of the node that joins fails.
        "rx1 sp ry2 rb wy2 | ry2 wx1 ; error",
        "rx1 sp wy2 rb ry2 wy2 | ry2 wx1 ; error relief",
        // A node restarts.
        "rx1 wy2 | ry2 wx1 ; restart",
        "ro rx1 ry2 | wx1 wy2 ; restart",
        "rx1 wy2 | ry2 wx1 ; restart relief",
        "rx1 wy2 | auto wx1 | rx1 wu2 | auto ru2y2 ; restart",
    ] {
        must_be_serializable(world, None);
    }
}

/// Goal: turns at the votes are for progress alone; the argument does not need them.
#[test]
fn votes_out_of_turn_break_nothing() {
    for world in ["rx1 wy2 | ry2 wx1 ; kill", "rx1 wy2 | ry2 wx1 | auto rx1"] {
        must_be_serializable(world, Some(Bug::VotesOutOfTurn));
    }
}

/// Goal: each rule is needed, and its absence found. Without the bug the same world is clean.
#[test]
fn planted_bugs_of_the_protocol_are_found() {
    for (bug, text) in Bug::ALL {
        let world: World = text.parse().expect(text);
        let found = explore(&world, Some(*bug), LIMIT);
        let (trace, circle) = found
            .anomaly
            .unwrap_or_else(|| panic!("{bug:?} broke nothing\n{}", again(&world, Some(*bug))));
        println!("{bug:?}: {circle}, {} steps; {}", trace.len(), again(&world, Some(*bug)));
        must_be_serializable(text, None);
    }
}

/// Goal: the text printed for a world can be typed in again.
#[test]
fn a_world_is_what_its_text_says() {
    for text in ["rx1 wy2 | sp ry2 rb wx1 | auto rx1u1 | ro rx1 ; kill relief error restart", "wx1"]
    {
        assert_eq!(text.parse::<World>().expect(text).to_string(), text);
    }
    for text in ["rx3", "rx1y2", "wx1u1", "auto rx1 ry2", "ro wx1", "x1 ; storm"] {
        assert!(text.parse::<World>().is_err(), "{text}");
    }
}
