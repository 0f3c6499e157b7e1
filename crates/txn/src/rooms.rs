//! The two rooms: who may make transactions visible now, and who may take snapshots of several nodes.
//!
//! Owns: who is inside which room, who waits, and the order in which the rooms take turns.
//! Never: knows what visitors do inside, nor how long they may.
//! Start reading at [`Rooms::enter`]; why there are rooms is in `docs/protocol/rooms.md`.
//!
//! Algorithm: room synchronisation, which is group mutual exclusion for two groups (Blelloch, Cheng,
//! Gibbons, "Room Synchronizations", SPAA 2001): any number may be in one of the rooms, none is in both, and
//! the rooms take turns when both are wanted. All who wait for a room go in together, so the cost is per
//! change of room and not per visitor.
//!
//! **Bounded waiting.** As soon as a visitor waits for the other room, the present one admits no more. So a
//! visitor waits until those inside have left and, if its own room has just had its turn, until those of the
//! other room who were there before have left as well; never longer, regardless of who else comes.

use std::collections::BTreeSet;

/// One visit, named by the caller. Never used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Visit(pub u64);

/// Which room.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Room {
    /// Decided transactions become visible on one node after the other here.
    Commit,
    /// Snapshots of several nodes are taken here.
    Snapshot,
}

impl Room {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Commit => Self::Snapshot,
            Self::Snapshot => Self::Commit,
        }
    }
}

/// Both rooms and their doors.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Rooms {
    /// Which room is open; `None` while both are empty.
    open: Option<Room>,
    inside: BTreeSet<Visit>,
    waiting_to_commit: BTreeSet<Visit>,
    waiting_for_snapshot: BTreeSet<Visit>,
    /// Local commits that came while the snapshot room was open.
    passing: BTreeSet<Visit>,
}

impl Rooms {
    /// Which room is occupied.
    pub fn open(&self) -> Option<Room> {
        self.open
    }

    /// How many wait, for either room or to pass.
    pub fn waiting(&self) -> usize {
        self.waiting_to_commit.len() + self.waiting_for_snapshot.len() + self.passing.len()
    }

    /// Whether no visitor is inside and none waits.
    pub fn is_quiet(&self) -> bool {
        self.open.is_none() && self.waiting() == 0
    }

    /// A visitor asks to enter `room`. Visits that may begin now, perhaps this one, are appended to
    /// `granted`; each granted visit must be ended by [`Self::leave`].
    pub fn enter(&mut self, visit: Visit, room: Room, granted: &mut Vec<Visit>) {
        self.waiting_for(room).insert(visit);
        self.admit(granted);
    }

    /// A transaction of one node asks to begin its commit. It is granted once the snapshot room is closed; it
    /// is then done, and needs no [`Self::leave`].
    ///
    /// A commit that was begun before the snapshot room opened may end while it is open: on its one
    /// node a snapshot shows it or not. But one that begins while the room is open could be the
    /// effect of another that some snapshot missed.
    pub fn pass(&mut self, visit: Visit, granted: &mut Vec<Visit>) {
        self.passing.insert(visit);
        self.admit(granted);
    }

    /// A visitor leaves the room it was in, or gives up waiting. Visits that may begin now are appended to
    /// `granted`. Nothing happens for a visit that is over.
    pub fn leave(&mut self, visit: Visit, granted: &mut Vec<Visit>) {
        self.inside.remove(&visit);
        self.waiting_to_commit.remove(&visit);
        self.waiting_for_snapshot.remove(&visit);
        self.passing.remove(&visit);
        self.admit(granted);
    }

    fn waiting_for(&mut self, room: Room) -> &mut BTreeSet<Visit> {
        match room {
            Room::Commit => &mut self.waiting_to_commit,
            Room::Snapshot => &mut self.waiting_for_snapshot,
        }
    }

    fn is_wanted(&self, room: Room) -> bool {
        match room {
            // A visit that wants to pass needs the snapshot room closed, as one that wants to commit does.
            Room::Commit => !self.waiting_to_commit.is_empty() || !self.passing.is_empty(),
            Room::Snapshot => !self.waiting_for_snapshot.is_empty(),
        }
    }

    fn admit(&mut self, granted: &mut Vec<Visit>) {
        let last = self.open;
        if self.inside.is_empty() {
            self.open = None;
        }
        if self.open != Some(Room::Snapshot) {
            granted.extend(std::mem::take(&mut self.passing));
        }
        let next = match (self.open, last) {
            // The door is open as long as no one waits at the other one.
            (Some(open), _) if self.is_wanted(open.other()) => return,
            (Some(open), _) => open,
            // The other room's turn, if any visit wants it.
            (None, Some(last)) if self.is_wanted(last.other()) => last.other(),
            (None, Some(last)) => last,
            (None, None) if self.is_wanted(Room::Commit) => Room::Commit,
            (None, None) => Room::Snapshot,
        };
        let entering = std::mem::take(self.waiting_for(next));
        granted.extend(entering.iter().copied());
        self.inside.extend(entering);
        self.open = if self.inside.is_empty() { None } else { Some(next) };
    }
}
