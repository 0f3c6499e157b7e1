//! The wait graph against what it promises: every small graph, random larger ones, and worlds in
//! which waits come and go while the nodes are being asked one after another.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tutti_txn::NodeId;
use tutti_txn::wait_graph::{Victim, Wait, WaitGraph, victims};

type TestWait = Wait<u8, u32>;

fn wait(waiter: u8, blocker: u8, node: u16) -> TestWait {
    Wait { waiter, blocker, node: NodeId(node), identity: 0 }
}

/// By definition, without any cleverness: whether two parties are on one closed walk of waits, and the closed
/// walks through a party use at least two nodes.
fn knotted(waits: &BTreeSet<TestWait>) -> bool {
    let mut reaches: BTreeSet<(u8, u8)> = waits.iter().map(|w| (w.waiter, w.blocker)).collect();
    loop {
        let longer: BTreeSet<(u8, u8)> = reaches
            .iter()
            .flat_map(|(a, b)| {
                reaches.iter().filter(move |(c, _)| b == c).map(move |(_, d)| (*a, *d))
            })
            .collect();
        let before = reaches.len();
        reaches.extend(longer);
        if reaches.len() == before {
            break;
        }
    }
    // Two waits, on different nodes, on one closed walk.
    let on_a_round =
        |w: &&TestWait| w.waiter == w.blocker || reaches.contains(&(w.blocker, w.waiter));
    let inner: Vec<_> = waits.iter().filter(on_a_round).collect();
    inner.iter().any(|one| {
        inner.iter().any(|other| {
            one.node != other.node
                && (one.waiter == other.waiter || reaches.contains(&(one.waiter, other.waiter)))
                && (one.waiter == other.waiter || reaches.contains(&(other.waiter, one.waiter)))
        })
    })
}

fn anybody<P>(_: &P) -> bool {
    true
}

fn nobody<P>(_: &P) -> bool {
    false
}

fn without(waits: &BTreeSet<TestWait>, ended: &BTreeSet<u8>) -> BTreeSet<TestWait> {
    let lives = |w: &&TestWait| !ended.contains(&w.waiter) && !ended.contains(&w.blocker);
    waits.iter().filter(lives).cloned().collect()
}

fn check(waits: &BTreeSet<TestWait>) {
    let named = victims(waits, anybody, nobody);
    assert_eq!(!named.is_empty(), knotted(waits), "{waits:?}");
    let ended: BTreeSet<u8> = named.iter().map(|victim| victim.party).collect();
    assert_eq!(ended.len(), named.len(), "nobody is named twice: {waits:?}");
    assert!(!knotted(&without(waits, &ended)), "{ended:?} are too few: {waits:?}");
    for Victim { party, cycle } in &named {
        let others = ended.iter().copied().filter(|other| other != party).collect();
        assert!(knotted(&without(waits, &others)), "{party} is ended in vain: {waits:?}");
        let next = cycle.iter().cycle().skip(1);
        assert!(cycle.iter().zip(next).all(|(one, next)| one.blocker == next.waiter), "{cycle:?}");
        assert_eq!(cycle.first().map(|wait| wait.waiter), Some(*party), "{waits:?}");
        assert!(cycle.iter().all(|wait| waits.contains(wait)), "{cycle:?}");
        let nodes: BTreeSet<NodeId> = cycle.iter().map(|wait| wait.node).collect();
        assert!(1 < nodes.len(), "a round on one node: {cycle:?}");
    }
    // One victim that is enough, if only one is named, is the youngest of those that are.
    if let [only] = &named[..] {
        for younger in only.party + 1..8 {
            let alone = BTreeSet::from([younger]);
            assert!(knotted(&without(waits, &alone)), "{younger} would do: {waits:?}");
        }
    }
}

#[test]
fn every_graph_of_three_parties_on_two_nodes() {
    let all: Vec<TestWait> = (0..3)
        .flat_map(|a| (0..3).flat_map(move |b| (1..3).map(move |node| wait(a, b, node))))
        .filter(|wait| wait.waiter != wait.blocker)
        .collect();
    assert_eq!(all.len(), 12);
    let mut knots = 0;
    for chosen in 0_u32..1 << all.len() {
        let waits: BTreeSet<_> = all
            .iter()
            .enumerate()
            .filter(|(i, _)| chosen >> i & 1 == 1)
            .map(|(_, w)| w.clone())
            .collect();
        check(&waits);
        knots += u32::from(!victims(&waits, anybody, nobody).is_empty());
    }
    assert!(1000 < knots && knots < 4000, "{knots} of 4096 graphs are knotted");
}

#[test]
fn the_youngest_of_a_cycle_is_the_victim_and_the_cycle_is_told_from_it() {
    let waits = BTreeSet::from([wait(1, 3, 1), wait(3, 2, 2), wait(2, 1, 3), wait(7, 1, 1)]);
    let named = victims(&waits, anybody, nobody);
    assert_eq!(
        named,
        [Victim { party: 3, cycle: vec![wait(3, 2, 2), wait(2, 1, 3), wait(1, 3, 1)] }]
    );
}

#[test]
fn a_cycle_on_one_node_is_that_nodes_own_business() {
    assert!(victims(&BTreeSet::from([wait(1, 2, 1), wait(2, 1, 1)]), anybody, nobody).is_empty());
}

#[test]
fn one_old_party_in_all_cycles_is_ended_alone() {
    // 1 waits for 2 and 3, which both wait for it: ending 3 and 2 would end two.
    let waits = BTreeSet::from([wait(1, 2, 1), wait(1, 3, 1), wait(2, 1, 2), wait(3, 1, 2)]);
    let named: Vec<u8> =
        victims(&waits, anybody, nobody).iter().map(|victim| victim.party).collect();
    assert_eq!(named, [1]);
    // Also when another knot is there.
    let other = BTreeSet::from([wait(5, 6, 1), wait(6, 5, 2)]);
    let named: Vec<u8> =
        victims(&(&waits | &other), anybody, nobody).iter().map(|v| v.party).collect();
    assert_eq!(named, [1, 6]);
}

#[test]
fn who_may_not_be_ended_is_spared() {
    // 3 is the youngest, and the only one in both cycles.
    let waits = BTreeSet::from([wait(3, 1, 1), wait(3, 2, 1), wait(1, 3, 2), wait(2, 3, 2)]);
    let spare = |spared: &'static [u8]| {
        let named = victims(&waits, |party| !spared.contains(party), nobody);
        named.into_iter().map(|victim| victim.party).collect::<Vec<u8>>()
    };
    assert_eq!(spare(&[]), [3]);
    assert_eq!(spare(&[3]), [1, 2]);
    assert_eq!(spare(&[1, 3]), [2], "the other cycle stays");
    assert_eq!(spare(&[1, 2, 3]), []);
}

#[test]
fn those_who_run_again_are_ended_for_one_whose_client_would_hear_of_it() {
    // 1 has locked on node 1 and waits on node 2 for 2, 3 and 4, which wait for it on node 1.
    let readers = [2, 3, 4];
    let waits: BTreeSet<_> =
        readers.iter().flat_map(|reader| [wait(1, *reader, 2), wait(*reader, 1, 1)]).collect();
    let ended = |runs_again: &'static [u8]| {
        let named = victims(&waits, anybody, |party| runs_again.contains(party));
        named.into_iter().map(|victim| victim.party).collect::<Vec<u8>>()
    };
    assert_eq!(ended(&[]), [1]);
    assert_eq!(ended(&[2, 3, 4]), [2, 3, 4]);
    assert_eq!(ended(&[2, 3]), [1], "4 would have to end as well");
    assert_eq!(ended(&[1, 2, 3, 4]), [2, 3, 4], "nobody in vain");
}

#[test]
fn hundreds_in_a_queue_are_no_deadlock_and_one_cycle_among_them_is_found() {
    let big = |waiter: u16, blocker: u16, node: u16| Wait {
        waiter,
        blocker,
        node: NodeId(node),
        identity: 0_u32,
    };
    let mut waits: BTreeSet<_> = (1..400_u16)
        .flat_map(|waiter| (0..waiter).map(move |ahead| big(waiter, ahead, 1)))
        .collect();
    assert!(victims(&waits, anybody, nobody).is_empty());
    waits.insert(big(0, 5, 2));
    let named: Vec<u16> =
        victims(&waits, anybody, nobody).iter().map(|victim| victim.party).collect();
    assert_eq!(named, [5], "the youngest that is in every cycle");
}

#[test]
fn only_what_two_looks_show_is_believed() {
    let cycle = BTreeSet::from([wait(1, 2, 1), wait(2, 1, 2)]);
    let again = BTreeSet::from([wait(1, 2, 1), Wait { identity: 1, ..wait(2, 1, 2) }]);
    let mut graph = WaitGraph::default();
    assert!(graph.observe(cycle.clone(), anybody, nobody).is_empty());
    assert!(graph.is_suspicious());
    assert!(
        graph.observe(again.clone(), anybody, nobody).is_empty(),
        "another wait of the same two"
    );
    assert_eq!(graph.observe(again.clone(), anybody, nobody).len(), 1);
    assert!(graph.observe(again.clone(), anybody, nobody).is_empty(), "they are just being ended");
    assert_eq!(
        graph.observe(again, anybody, nobody).len(),
        1,
        "the victim was not ended, so it is named again"
    );
    graph.forget();
    assert!(graph.observe(cycle, anybody, nobody).is_empty());
}

proptest! {
    #[test]
    fn any_graph(edges in prop::collection::btree_set((0_u8..8, 0_u8..8, 1_u16..4), 0..24)) {
        let waits = edges.into_iter().filter(|(a, b, _)| a != b).map(|(a, b, n)| wait(a, b, n)).collect();
        check(&waits);
    }

    /// Waits begin and end while the nodes are asked one after another. Whenever victims are named,
    /// the whole cycle was there at one instant: that between the two looks.
    #[test]
    fn a_cycle_that_never_was_is_never_believed(
        moves in prop::collection::vec((0_u8..4, 0_u8..4, 1_u16..4, prop::bool::ANY), 0..60),
    ) {
        let mut world: BTreeMap<(u8, u8, u16), u32> = BTreeMap::new();
        let mut graph = WaitGraph::default();
        let mut seen = BTreeSet::new();
        let mut between_looks: BTreeSet<TestWait> = BTreeSet::new();
        let mut identities = 0;
        for (step, (waiter, blocker, node, begins)) in moves.into_iter().enumerate() {
            if waiter != blocker && begins {
                identities += 1;
                world.entry((waiter, blocker, node)).or_insert(identities);
            } else {
                world.remove(&(waiter, blocker, node));
            }
            let now = |asked: Option<u16>| -> BTreeSet<TestWait> {
                world
                    .iter()
                    .filter(|((_, _, node), _)| asked.is_none_or(|asked| asked == *node))
                    .map(|((waiter, blocker, node), identity)| {
                        Wait { identity: *identity, ..wait(*waiter, *blocker, *node) }
                    })
                    .collect()
            };
            // One node is asked per step; after the third the look is complete.
            let asked = u16::try_from(step % 3 + 1).unwrap();
            seen.extend(now(Some(asked)));
            if asked == 3 {
                for victim in graph.observe(std::mem::take(&mut seen), anybody, nobody) {
                    for wait in &victim.cycle {
                        prop_assert!(between_looks.contains(wait), "{wait:?} was not there");
                    }
                }
                between_looks = now(None);
            }
        }
    }
}
