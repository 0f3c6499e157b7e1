//! Waiting to enter the commit room and the snapshot room.
//!
//! Owns: the one [`rooms::Rooms`] of this gateway, and whom to wake.
//! Never: holds its lock across an await; keeps a visitor inside whose task has ended.
//! Start reading at [`Rooms::enter`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tutti_link::NodeError;
use tutti_link::availability::{Availability, OPEN_PATIENCE};
use tutti_sql::catalog::NodeId;
use tutti_txn::rooms::{self, Room, Visit};

use super::waiters::Waiters;

/// Both rooms, and who waits for them.
#[derive(Debug)]
pub struct Rooms {
    /// Off only in tests and measurements.
    rooms_are_on: bool,
    state: Mutex<State>,
}

type State = Waiters<rooms::Rooms, Visit>;

/// A visit: waiting or inside. The room is left, or the wait given up, when it is dropped.
#[derive(Debug)]
pub struct RoomVisit {
    rooms: Arc<Rooms>,
    visit: Visit,
}

impl Rooms {
    /// Empty rooms; with `rooms_are_on` false nothing waits.
    pub fn new(rooms_are_on: bool) -> Arc<Self> {
        Arc::new(Self { rooms_are_on, state: Mutex::default() })
    }

    /// Waits until `room` may be entered, and stays inside until the value is dropped.
    pub async fn enter(self: &Arc<Self>, room: Room) -> RoomVisit {
        let (visiting, granted) = {
            let mut state = self.state();
            let visit = Visit(state.next_number());
            let visiting = RoomVisit { rooms: self.clone(), visit };
            if !self.rooms_are_on {
                return visiting;
            }
            let granted = state.wait(visit);
            state.change(|rooms, granted| rooms.enter(visit, room, granted));
            (visiting, granted)
        };
        let _ = granted.await;
        visiting
    }

    /// Enters the snapshot room at a time when all nodes to `read` may be read. Use it in place of
    /// [`Self::enter`]: a coordinator closes nodes from within the commit room, so a check made before
    /// entering may have been too early.
    ///
    /// Errors: [`NodeError::Closed`] when a node was not opened within [`OPEN_PATIENCE`].
    pub async fn enter_snapshot_room(
        self: &Arc<Self>,
        nodes: &Availability,
        read: &[NodeId],
    ) -> Result<RoomVisit, NodeError> {
        loop {
            for node in read {
                nodes.wait_until_open(*node, OPEN_PATIENCE).await?;
            }
            let visiting = self.enter(Room::Snapshot).await;
            if read.iter().all(|node| nodes.is_open(*node)) {
                return Ok(visiting);
            }
        }
    }

    /// Whether a transaction of one node may begin its commit now.
    pub fn may_pass(&self) -> bool {
        !self.rooms_are_on || self.state().machine.open() != Some(Room::Snapshot)
    }

    /// Waits until a transaction of one node may begin its commit: while no snapshot is being taken.
    pub async fn pass(self: &Arc<Self>) {
        let (_visiting, granted) = {
            let mut state = self.state();
            if !self.rooms_are_on || state.machine.open() != Some(Room::Snapshot) {
                return;
            }
            let visit = Visit(state.next_number());
            let granted = state.wait(visit);
            state.change(|rooms, granted| rooms.pass(visit, granted));
            (RoomVisit { rooms: self.clone(), visit }, granted)
        };
        let _ = granted.await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RoomVisit {
    fn drop(&mut self) {
        let mut state = self.rooms.state();
        state.give_up(self.visit);
        state.change(|rooms, granted| rooms.leave(self.visit, granted));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn whoever_gives_up_waiting_keeps_nobody_out() {
        let rooms = Rooms::new(true);
        let reading = rooms.enter(Room::Snapshot).await;
        let impatient = tokio::time::timeout(Duration::from_millis(10), rooms.enter(Room::Commit));
        assert!(impatient.await.is_err());
        let second = rooms.enter(Room::Snapshot).await;
        drop(reading);
        drop(second);
        drop(rooms.enter(Room::Commit).await);
        rooms.pass().await;
    }
}
