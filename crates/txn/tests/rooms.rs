//! The rooms, exhaustively: every order of a few visitors' asking, leaving and giving up.
//!
//! Owns: the properties that the rooms promise, and the walk through all states.
//! Start reading at [`Walk::check`].

use std::collections::{BTreeMap, BTreeSet};

use tutti_txn::rooms::{Room, Rooms, Visit};

/// What a visitor wants.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Wish {
    Enter(Room),
    Pass,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Stage {
    Outside,
    /// Waits, and has seen this many changes of room since it asked.
    Waiting {
        changes: u8,
    },
    Inside,
    Gone,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct World {
    rooms: Rooms,
    wishes: Vec<Wish>,
    stages: Vec<Stage>,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Ask(usize),
    Leave(usize),
    GiveUp(usize),
}

impl World {
    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (visitor, stage) in self.stages.iter().enumerate() {
            match stage {
                Stage::Outside => moves.push(Move::Ask(visitor)),
                Stage::Waiting { .. } => moves.push(Move::GiveUp(visitor)),
                Stage::Inside => moves.push(Move::Leave(visitor)),
                Stage::Gone => (),
            }
        }
        moves
    }

    fn step(&self, taken: Move) -> Self {
        let mut next = self.clone();
        let mut granted = Vec::new();
        let open_before = self.rooms.open();
        match taken {
            Move::Ask(visitor) => {
                next.stages[visitor] = Stage::Waiting { changes: 0 };
                match self.wishes[visitor] {
                    Wish::Enter(room) => next.rooms.enter(visit(visitor), room, &mut granted),
                    Wish::Pass => next.rooms.pass(visit(visitor), &mut granted),
                }
            }
            Move::Leave(visitor) | Move::GiveUp(visitor) => {
                next.stages[visitor] = Stage::Gone;
                next.rooms.leave(visit(visitor), &mut granted);
            }
        }
        let mut seen = BTreeSet::new();
        for Visit(number) in granted {
            let visitor = usize::try_from(number).unwrap();
            assert!(seen.insert(visitor), "granted twice: {taken:?} in {self:?}");
            assert!(matches!(next.stages[visitor], Stage::Waiting { .. }), "{taken:?} in {self:?}");
            next.stages[visitor] = match self.wishes[visitor] {
                Wish::Enter(_) => Stage::Inside,
                Wish::Pass => Stage::Gone,
            };
        }
        if next.rooms.open().is_some() && next.rooms.open() != open_before {
            for stage in &mut next.stages {
                if let Stage::Waiting { changes } = stage {
                    *changes += 1;
                }
            }
        }
        next
    }

    fn inside(&self, room: Room) -> usize {
        self.stages
            .iter()
            .zip(&self.wishes)
            .filter(|(stage, wish)| **stage == Stage::Inside && **wish == Wish::Enter(room))
            .count()
    }

    fn check(&self) {
        let (committing, looking) = (self.inside(Room::Commit), self.inside(Room::Snapshot));
        assert!(committing == 0 || looking == 0, "in both rooms: {self:?}");
        let open = match (committing, looking) {
            (0, 0) => None,
            (0, _) => Some(Room::Snapshot),
            _ => Some(Room::Commit),
        };
        assert_eq!(self.rooms.open(), open, "{self:?}");
        for (stage, wish) in self.stages.iter().zip(&self.wishes) {
            let Stage::Waiting { changes } = stage else { continue };
            assert!(open.is_some(), "somebody waits for empty rooms: {self:?}");
            match wish {
                Wish::Pass => assert_eq!(open, Some(Room::Snapshot), "held for nothing: {self:?}"),
                // Its own room's turn, already under way when it came, and the other's.
                Wish::Enter(_) => assert!(*changes <= 1, "overtaken: {self:?}"),
            }
        }
    }
}

fn visit(visitor: usize) -> Visit {
    Visit(u64::try_from(visitor).unwrap())
}

/// Visits every state that these visitors can bring about. Returns how many there are.
fn walk(wishes: &[Wish]) -> usize {
    let first = World {
        rooms: Rooms::default(),
        wishes: wishes.to_vec(),
        stages: vec![Stage::Outside; wishes.len()],
    };
    let mut known: BTreeMap<String, ()> = BTreeMap::new();
    let mut open = vec![first];
    while let Some(world) = open.pop() {
        if known.insert(format!("{world:?}"), ()).is_some() {
            continue;
        }
        world.check();
        let moves = world.moves();
        assert!(!moves.is_empty() || world.rooms.is_quiet(), "stuck: {world:?}");
        open.extend(moves.into_iter().map(|taken| world.step(taken)));
    }
    known.len()
}

/// Goal: exclusion, no lost visitor, and bounded waiting. Method: every state of up to six visitors
/// in every mixture of requests.
#[test]
fn nobody_is_in_both_rooms_and_nobody_is_overtaken() {
    let all = [Wish::Enter(Room::Commit), Wish::Enter(Room::Snapshot), Wish::Pass];
    let mut states = 0;
    for commits in 0..=3 {
        for snapshots in 0..=3 {
            for passes in 0..=1 {
                let counts = [commits, snapshots, passes];
                let wishes: Vec<_> = all
                    .iter()
                    .zip(counts)
                    .flat_map(|(wish, count)| std::iter::repeat_n(*wish, count))
                    .collect();
                states += walk(&wishes);
            }
        }
    }
    println!("{states} states");
}

/// A stream of readers that never ends does not keep a writer out, nor the other way round.
#[test]
fn a_stream_of_visitors_ends_when_the_other_room_is_wanted() {
    for (stream, wanted) in [(Room::Snapshot, Room::Commit), (Room::Commit, Room::Snapshot)] {
        let mut rooms = Rooms::default();
        let mut granted = Vec::new();
        rooms.enter(Visit(1), stream, &mut granted);
        rooms.enter(Visit(2), stream, &mut granted);
        rooms.enter(Visit(3), wanted, &mut granted);
        rooms.enter(Visit(4), stream, &mut granted);
        assert_eq!(granted, [Visit(1), Visit(2)], "the door is closed behind the first two");
        rooms.leave(Visit(1), &mut granted);
        rooms.leave(Visit(2), &mut granted);
        assert_eq!(granted[2..], [Visit(3)]);
        rooms.leave(Visit(3), &mut granted);
        assert_eq!(granted[3..], [Visit(4)]);
    }
}
