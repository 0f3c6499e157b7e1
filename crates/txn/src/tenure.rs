//! How long a gateway may serve its cluster, as a pure state machine.
//!
//! Owns: the order lock, incarnation, takeover, service; what the loss of the lock means, and what it means
//! that a later gateway has come.
//! Never: makes a takeover safe: the lock keeps a second gateway from starting by mistake, and a gateway that
//! has lost it may not know. What is safe is the fence on each node (`docs/protocol/one-gateway.md`).
//! Start reading at [`Phase`], then [`Tenure::step`].

/// The life of a gateway, in order:
///
/// 1. `Locking`: the lock is being taken. Nothing else may be done before.
/// 2. `Drawing`: its incarnation is being drawn, which only the holder of the lock may do: so a gateway that
///    has drawn a later one has had the lock later.
/// 3. `TakingOver`: the nodes are being fenced, and what is in doubt is settled.
/// 4. `Serving`.
/// 5. `Relocking`: the lock was lost, and is being taken again. It goes on serving: it may be that no other
///    has come.
/// 6. `Checking`: it has the lock again, and asks whether another gateway has come and gone meanwhile.
/// 7. `Over`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Life cycle, 1.
    Locking,
    /// Life cycle, 2.
    Drawing,
    /// Life cycle, 3.
    TakingOver,
    /// Life cycle, 4.
    Serving,
    /// Life cycle, 5.
    Relocking,
    /// Life cycle, 6.
    Checking,
    /// Life cycle, 7.
    Over(End),
}

/// Why a gateway must end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// Another one has the lock.
    Refused,
    /// A later one has taken a node over. What this one's clients send there is refused.
    Replaced {
        /// Its incarnation.
        newest: u64,
    },
}

/// Something to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// On a connection of its own to node 1, in a transaction that stays open:
    /// `LOCK TABLE tutti.serving IN EXCLUSIVE MODE`. If it was lost before, the backend that held it is
    /// ended first: its server may not know that the connection is gone.
    ///
    /// [`Event::LockTaken`]; [`Event::LockHeld`] if another gateway has it for longer than one that was
    /// killed needs to vanish; no answer: [`Event::HomeLost`].
    TakeLock,
    /// `SELECT nextval('tutti.incarnation')` on node 1: [`Event::Drawn`] or [`Event::HomeLost`].
    Draw,
    /// Fence every node that answers, then settle what earlier gateways have left in doubt
    /// ([`crate::recovery::in_doubt`]); a node that is away stays closed until the same is done there:
    /// [`Event::TakenOver`], or [`Event::Newest`] of a node that knows a later gateway.
    TakeOver {
        /// This gateway's.
        incarnation: u64,
    },
    /// Let clients in.
    Serve,
    /// Watch the connection of the lock, and after a while read node 1's newest incarnation over it:
    /// [`Event::LockLost`] or [`Event::Newest`].
    ///
    /// Reading it is necessary. One that starts may lose the lock to this one, and take the nodes over all
    /// the same; this one has the lock then, and can serve no one.
    WatchLock,
    /// Read node 1's newest incarnation: [`Event::Newest`], or [`Event::HomeLost`].
    ReadNewest,
    /// Come back with [`Event::RetryDue`] after a pause.
    RetryLater,
    /// End the process, and all its connections with it. Happens once.
    End(End),
}

/// Something that happened. See [`Effect`] for what each of them answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// The lock is held.
    LockTaken,
    /// Another gateway holds it.
    LockHeld,
    /// The incarnation of this gateway.
    Drawn(u64),
    /// The nodes that answer are taken over.
    TakenOver,
    /// The connection that holds the lock is lost, or silent.
    LockLost,
    /// The newest incarnation that a node knows.
    Newest(u64),
    /// Node 1 did not answer.
    HomeLost,
    /// The pause is over.
    RetryDue,
}

/// One gateway's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tenure {
    incarnation: u64,
    phase: Phase,
}

impl Tenure {
    /// A gateway starts.
    pub fn begin(effects: &mut Vec<Effect>) -> Self {
        effects.push(Effect::TakeLock);
        Self { incarnation: 0, phase: Phase::Locking }
    }

    /// A gateway has started: it has the lock, has drawn its incarnation after that, and has taken the nodes
    /// over. For a driver whose start is a straight line, which ends with its process where it fails.
    pub fn serving(incarnation: u64, effects: &mut Vec<Effect>) -> Self {
        effects.push(Effect::WatchLock);
        Self { incarnation, phase: Phase::Serving }
    }

    /// Where it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What it has drawn; 0 before.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Takes one event, moves on, and appends what must now be done. Total: what is late changes nothing.
    pub fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match (self.phase, event) {
            (Phase::Over(_), _) => (),
            // Whichever node says it: another gateway has had the lock after this one.
            (
                Phase::TakingOver | Phase::Serving | Phase::Relocking | Phase::Checking,
                Event::Newest(newest),
            ) if self.incarnation < newest => self.end(End::Replaced { newest }, effects),
            (Phase::Locking | Phase::Relocking, Event::LockHeld) => {
                self.end(End::Refused, effects);
            }
            (Phase::Locking | Phase::Relocking, Event::HomeLost) => {
                effects.push(Effect::RetryLater);
            }
            (Phase::Locking | Phase::Relocking, Event::RetryDue) => effects.push(Effect::TakeLock),

            (Phase::Locking, Event::LockTaken) => {
                self.phase = Phase::Drawing;
                effects.push(Effect::Draw);
            }
            (Phase::Drawing, Event::Drawn(incarnation)) => {
                (self.incarnation, self.phase) = (incarnation, Phase::TakingOver);
                effects.push(Effect::TakeOver { incarnation });
            }
            // The lock has gone with node 1, or is about to.
            (Phase::Drawing, Event::HomeLost) => {
                self.phase = Phase::Locking;
                effects.push(Effect::RetryLater);
            }
            (Phase::TakingOver, Event::TakenOver) => {
                self.phase = Phase::Serving;
                effects.extend([Effect::Serve, Effect::WatchLock]);
            }

            // No later one has come: the watch goes on.
            (Phase::Serving, Event::Newest(_)) => effects.push(Effect::WatchLock),
            (Phase::Serving, Event::LockLost) => {
                self.phase = Phase::Relocking;
                effects.push(Effect::TakeLock);
            }
            (Phase::Relocking, Event::LockTaken) => {
                self.phase = Phase::Checking;
                effects.push(Effect::ReadNewest);
            }
            (Phase::Checking, Event::Newest(_)) => {
                self.phase = Phase::Serving;
                effects.push(Effect::WatchLock);
            }
            (Phase::Checking, Event::HomeLost | Event::LockLost) => {
                self.phase = Phase::Relocking;
                effects.push(Effect::RetryLater);
            }

            // Late. Listed so that a new event does not compile until it is handled.
            (
                _,
                Event::LockTaken
                | Event::LockHeld
                | Event::Drawn(_)
                | Event::TakenOver
                | Event::LockLost
                | Event::Newest(_)
                | Event::HomeLost
                | Event::RetryDue,
            ) => (),
        }
    }

    fn end(&mut self, end: End, effects: &mut Vec<Effect>) {
        self.phase = Phase::Over(end);
        effects.push(Effect::End(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The effects of these events, one after the other.
    fn after(events: &[Event]) -> (Phase, Vec<Effect>) {
        let mut effects = Vec::new();
        let mut tenure = Tenure::begin(&mut effects);
        for event in events {
            effects.clear();
            tenure.step(*event, &mut effects);
        }
        (tenure.phase(), effects)
    }

    const START: [Event; 3] = [Event::LockTaken, Event::Drawn(5), Event::TakenOver];

    fn served_and(more: &[Event]) -> (Phase, Vec<Effect>) {
        after(&[&START, more].concat())
    }

    #[test]
    fn nothing_is_drawn_before_the_lock_nor_served_before_the_takeover() {
        assert_eq!(after(&[]).1, [Effect::TakeLock]);
        assert_eq!(after(&START[..1]).1, [Effect::Draw]);
        assert_eq!(after(&START[..2]).1, [Effect::TakeOver { incarnation: 5 }]);
        assert_eq!(after(&START).1, [Effect::Serve, Effect::WatchLock]);
        // Out of turn.
        assert_eq!(after(&[Event::Drawn(5), Event::TakenOver]), (Phase::Locking, vec![]));
    }

    #[test]
    fn who_has_lost_the_lock_serves_on_until_another_has_come() {
        assert_eq!(served_and(&[Event::LockLost]), (Phase::Relocking, vec![Effect::TakeLock]));
        let again = [Event::LockLost, Event::LockTaken, Event::Newest(5)];
        assert_eq!(served_and(&again), (Phase::Serving, vec![Effect::WatchLock]));
        assert_eq!(served_and(&[Event::Newest(5)]), (Phase::Serving, vec![Effect::WatchLock]));
        let held = [Event::LockLost, Event::HomeLost, Event::RetryDue, Event::LockHeld];
        assert_eq!(served_and(&held).0, Phase::Over(End::Refused));
    }

    #[test]
    fn who_came_and_went_meanwhile_is_noticed_and_so_is_who_came_without_the_lock() {
        let replaced = End::Replaced { newest: 6 };
        let gone = [Event::LockLost, Event::LockTaken, Event::Newest(6)];
        assert_eq!(served_and(&gone), (Phase::Over(replaced), vec![Effect::End(replaced)]));
        assert_eq!(served_and(&[Event::Newest(6)]).0, Phase::Over(replaced));
        assert_eq!(after(&[START[0], START[1], Event::Newest(6)]).0, Phase::Over(replaced));
        assert_eq!(served_and(&[Event::Newest(6), Event::Newest(7)]).1, []);
    }
}
