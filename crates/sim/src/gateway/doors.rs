//! Driving the rooms: visits, and which of them may begin.
//!
//! Owns: the one [`Rooms`] of a gateway, and the count by which `every_waiter_enters` is judged.
//! Start reading at [`Gateway::enter`].

use std::collections::{BTreeMap, BTreeSet};

use tutti_txn::rooms::{Room, Rooms, Visit};

use super::Gateway;
use crate::bugs::Bug;
use crate::invariants;
use crate::tasks::Slot;

#[derive(Default)]
pub struct Doors {
    rooms: Rooms,
    begun: u64,
    /// The visits that wait; they are numbered in the order of asking.
    waiting: BTreeMap<Visit, Waiting>,
    /// Only with [`Bug::DoorStaysOpen`]: those that entered without asking the machine, and visits
    /// that are over but keep the room open for them.
    aside: BTreeSet<Visit>,
    kept_open: Vec<Visit>,
}

struct Waiting {
    wish: Wish,
    granted: Slot<()>,
    overtaken: u32,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Wish {
    Enter(Room),
    Pass,
}

impl Wish {
    /// Which room must be closed for it.
    fn excludes(self) -> Room {
        match self {
            Self::Enter(room) => room.other(),
            Self::Pass => Room::Snapshot,
        }
    }
}

impl Doors {
    pub fn is_quiet(&self) -> bool {
        self.rooms.is_quiet() && self.waiting.is_empty()
    }

    fn ask(&mut self, wish: Wish) -> (Visit, Slot<()>) {
        self.begun += 1;
        let visit = Visit(self.begun);
        let granted = Slot::default();
        self.waiting.insert(visit, Waiting { wish, granted: granted.clone(), overtaken: 0 });
        (visit, granted)
    }

    /// Lets in those that the machine lets in. Returns a visitor that was overtaken too often.
    fn admit(&mut self, granted: &[Visit]) -> Option<Visit> {
        let mut entered = Vec::new();
        for visit in granted {
            if let Some(waiting) = self.waiting.remove(visit) {
                waiting.granted.set(());
                entered.push((*visit, waiting.wish));
            }
        }
        let mut starved = None;
        for (visit, waiting) in &mut self.waiting {
            let excluded = Wish::Enter(waiting.wish.excludes());
            if entered.iter().any(|(later, wish)| visit < later && *wish == excluded) {
                waiting.overtaken += 1;
                if 1 < waiting.overtaken {
                    starved = Some(*visit);
                }
            }
        }
        starved
    }
}

/// A visit of a room, or the request for one. Ended on drop.
pub struct Visiting {
    gateway: Gateway,
    visit: Visit,
}

impl Drop for Visiting {
    fn drop(&mut self) {
        self.gateway.change_doors(|doors, granted| {
            doors.waiting.remove(&self.visit);
            if !doors.aside.remove(&self.visit) {
                doors.kept_open.push(self.visit);
            }
            if doors.aside.is_empty() {
                for visit in std::mem::take(&mut doors.kept_open) {
                    doors.rooms.leave(visit, granted);
                }
            }
        });
    }
}

impl Gateway {
    /// Asks for a room. The slot tells when it may be entered.
    pub(super) fn enter(&self, room: Room) -> (Visiting, Slot<()>) {
        let stays_open = self.sim().has(Bug::DoorStaysOpen);
        let mut asked = None;
        self.change_doors(|doors, granted| {
            let (visit, slot) = doors.ask(Wish::Enter(room));
            if stays_open && doors.rooms.open() == Some(room) {
                doors.aside.insert(visit);
                granted.push(visit);
            } else {
                doors.rooms.enter(visit, room, granted);
            }
            asked = Some((visit, slot));
        });
        let (visit, slot) = asked.expect("it was asked for");
        (Visiting { gateway: self.clone(), visit }, slot)
    }

    /// Waits until a local commit may begin.
    pub(super) async fn pass(&self) {
        if self.sim().has(Bug::LocalCommitDoesNotPass) {
            return;
        }
        let mut asked = None;
        self.change_doors(|doors, granted| {
            let (visit, slot) = doors.ask(Wish::Pass);
            doors.rooms.pass(visit, granted);
            asked = Some(slot);
        });
        asked.expect("it was asked for").take().await;
    }

    fn change_doors(&self, step: impl FnOnce(&mut Doors, &mut Vec<Visit>)) {
        let starved = {
            let mut doors = self.0.doors.borrow_mut();
            let mut granted = Vec::new();
            step(&mut doors, &mut granted);
            doors.admit(&granted)
        };
        if let Some(Visit(visit)) = starved {
            invariants::every_waiter_enters(&mut self.sim().world().history, visit);
        }
    }
}
