//! The commit of a transaction that has taken rows to other nodes, as statements that may be looking for these rows see
//! it, as a pure state machine.
//!
//! Owns: whom such a commit waits for, whom it leaves alone, whose statement it cancels and whose connections it ends.
//! Never: reads a clock, asks a node, commits (that is [`crate::coordinator`]).
//! Start reading at [`Seen`], then [`MovedRows::step`].
//!
//! On its old node such a row is deleted. A statement that waits for it there finds nothing when the wait is over, and
//! has no reason to look elsewhere. So before the commit, while no statement begins, those that may look for rows of the
//! table are waited for, and those that wait for the transaction itself are cancelled: they have done nothing, and
//! find the row where it is now when they run again. What runs when the commit begins and only reads is left alone: its
//! snapshot is older.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::placement_change::Session;

/// Statements that end within this are not examined.
pub const GLANCE: Duration = Duration::from_millis(4);
/// A statement that has run for this long has taken its locks.
pub const LOCKS_TAKEN_AFTER: Duration = crate::placement_change::LOCKS_TAKEN_AFTER;
/// A node that has not answered by then is not waited for: all sessions wait meanwhile.
pub const LOOK_PATIENCE: Duration = crate::placement_change::LOOK_PATIENCE;
/// The pause between two looks, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// A statement that may still reach a moved row is cancelled then, and one of which nothing is known is left alone.
const PATIENCE: Duration = Duration::from_secs(1);
/// One whose code survives a cancellation (it can) is ended with its connections after this time.
const STUBBORN_PATIENCE: Duration = Duration::from_secs(2);
/// None is waited for longer; a statement that was cancelled does nothing more.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// What a statement that may look for rows of the table is doing, by what the nodes say of its session's backends. The
/// later variant decides.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Seen {
    /// None of its backends does anything.
    Idle,
    /// It only reads the table, or does not use it.
    Elsewhere,
    /// It may not have taken its locks yet.
    OnItsWay,
    /// It may lock rows of the table.
    AtRows,
    /// It waits for a lock of the transaction's.
    WaitsForUs,
}

/// Something to do. Those that are not answered are done when they are performed; the last of a batch is answered, or
/// is [`Effect::Done`].
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Effect {
    /// List the sessions with plans that may concern the tables, but for statements that commit before they end. Answered:
    /// [`Event::Listed`].
    List,
    /// Ask the nodes what the backends of these sessions are doing; each node for [`LOOK_PATIENCE`] at most. Answered:
    /// [`Event::Looked`].
    Look,
    /// Wait. Answered: [`Event::Paused`].
    Pause(Duration),
    /// Its statement finds its row elsewhere: it is run again, or its client told to retry, whatever ends it.
    Overtake(Session),
    /// Cancel its statement.
    Cancel(Session),
    /// End those of its connections on which something runs.
    EndConnections(Session),
    /// None is in the way any more.
    Done,
}

/// What has happened. `at`: how long after the beginning.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Event {
    /// No statement begins from here on.
    Begun,
    /// Answers [`Effect::List`].
    Listed {
        /// The sessions.
        sessions: BTreeSet<Session>,
        /// When.
        at: Duration,
    },
    /// Answers [`Effect::Look`].
    Looked {
        /// What is known of them; of one that is missing, that no backend works for it.
        seen: BTreeMap<Session, Seen>,
        /// When.
        at: Duration,
    },
    /// Answers [`Effect::Pause`].
    Paused,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct MovedRows {
    listed: BTreeSet<Session>,
    /// When they were cancelled first.
    cancelled: BTreeMap<Session, Duration>,
    pauses: u32,
}

impl MovedRows {
    /// What follows from `event`.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Begun | Event::Paused => vec![Effect::List],
            Event::Listed { sessions, at } if sessions.is_empty() || END_PATIENCE <= at => {
                vec![Effect::Done]
            }
            Event::Listed { at, .. } if at < GLANCE => vec![self.pause()],
            Event::Listed { sessions, .. } => {
                self.listed = sessions;
                vec![Effect::Look]
            }
            Event::Looked { seen, at } => self.looked(&seen, at),
        }
    }

    fn looked(&mut self, seen: &BTreeMap<Session, Seen>, at: Duration) -> Vec<Effect> {
        let is_late = PATIENCE < at;
        let mut effects = Vec::new();
        let mut is_over = true;
        for session in std::mem::take(&mut self.listed) {
            let seen = seen.get(&session).copied().unwrap_or(Seen::Idle);
            match seen {
                Seen::Elsewhere => continue,
                Seen::Idle | Seen::OnItsWay if is_late => continue,
                Seen::Idle | Seen::OnItsWay => (),
                Seen::AtRows if !is_late => (),
                Seen::AtRows | Seen::WaitsForUs => {
                    let is_known = self.cancelled.contains_key(&session);
                    let since = *self.cancelled.entry(session).or_insert(at);
                    effects.push(Effect::Overtake(session));
                    if STUBBORN_PATIENCE < at.saturating_sub(since) {
                        effects.push(Effect::EndConnections(session));
                    } else if !is_known || seen == Seen::WaitsForUs {
                        effects.push(Effect::Cancel(session));
                    }
                }
            }
            is_over = false;
        }
        effects.push(if is_over { Effect::Done } else { self.pause() });
        effects
    }

    fn pause(&mut self) -> Effect {
        let pause = PAUSE.0 * 2_u32.pow(self.pauses.min(10));
        self.pauses += 1;
        Effect::Pause(pause.min(PAUSE.1))
    }
}
