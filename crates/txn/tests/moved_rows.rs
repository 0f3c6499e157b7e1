//! Every small world of a commit that has taken rows to other nodes, next to a few statements: every mixture of what these
//! do, of what a look misses, and of how slowly time passes.
//!
//! Owns: what statements can do, and the list of planted bugs that must be found.
//! Never: samples. What is reachable is visited, all of it.
//! Start reading at [`no_order_of_events_breaks_a_promise`].

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use tutti_txn::moved_rows::{Effect, Event, MovedRows, Seen};
use tutti_txn::placement_change::Session;

/// What one session's statement does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Statement {
    /// It has ended.
    Gone,
    /// It reads, for as long as this takes.
    Reads,
    /// Its client reads slowly, or it is between two steps.
    Idle,
    /// It does not come to its locks.
    Comes,
    /// It writes, and ends by itself after so many looks.
    Writes(u8),
    /// It waits for rows, not for ours, until it is cancelled.
    Queues,
    /// It waits for a row of ours, until it is cancelled.
    Waits,
    /// The same; its code goes on after a cancellation.
    WaitsDeaf,
    /// It is at rows, and its code goes on after a cancellation.
    Deaf,
}

impl Statement {
    const ALL: [Self; 9] = [
        Self::Gone,
        Self::Reads,
        Self::Idle,
        Self::Comes,
        Self::Writes(2),
        Self::Queues,
        Self::Waits,
        Self::WaitsDeaf,
        Self::Deaf,
    ];

    fn seen(self) -> Option<Seen> {
        match self {
            Self::Gone => None,
            Self::Reads => Some(Seen::Elsewhere),
            Self::Idle => Some(Seen::Idle),
            Self::Comes => Some(Seen::OnItsWay),
            Self::Writes(_) | Self::Queues | Self::Deaf => Some(Seen::AtRows),
            Self::Waits | Self::WaitsDeaf => Some(Seen::WaitsForUs),
        }
    }

    /// Whether the commit must not pass it by.
    fn is_in_the_way(self) -> bool {
        matches!(self.seen(), Some(Seen::AtRows | Seen::WaitsForUs))
    }
}

/// What a driver does wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Bug {
    /// It does not ask the nodes.
    DoesNotLook,
    /// It lists nobody.
    ListsNobody,
    /// It does not cancel.
    DoesNotCancel,
    /// It does not end connections.
    DoesNotEnd,
    /// Its clock stands still.
    ClockStands,
    /// It sees all that are at work as waiting for it.
    TakesAllForWaiters,
    /// It cancels without a mark by which a statement is run again.
    DoesNotMark,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct World {
    machine: MovedRows,
    statements: Vec<Statement>,
    marked: BTreeSet<Session>,
    cancelled: BTreeMap<Session, Duration>,
    now: Duration,
    /// What answers the last effect; `None`: it is over.
    next: Option<Event>,
}

fn index(session: Session) -> usize {
    usize::try_from(session.0).expect("numbered from 0")
}

impl World {
    fn new(statements: Vec<Statement>) -> Self {
        Self {
            machine: MovedRows::default(),
            statements,
            marked: BTreeSet::new(),
            cancelled: BTreeMap::new(),
            now: Duration::ZERO,
            next: Some(Event::Begun),
        }
    }

    fn sessions(&self) -> impl Iterator<Item = (Session, Statement)> + '_ {
        (0..).map(Session).zip(self.statements.iter().copied())
    }

    /// The worlds that may follow; an error is a promise that is broken.
    fn steps(&self, bug: Option<Bug>) -> Result<Vec<Self>, String> {
        let Some(event) = self.next.clone() else { return Ok(Vec::new()) };
        let mut world = self.clone();
        let effects = world.machine.step(event);
        let (last, others) = effects.split_last().ok_or("nothing is done")?;
        for effect in others {
            world.perform(effect, bug)?;
        }
        world.end_batch(last, bug)
    }

    fn perform(&mut self, effect: &Effect, bug: Option<Bug>) -> Result<(), String> {
        match *effect {
            Effect::Overtake(session) => {
                if bug != Some(Bug::DoesNotMark) {
                    self.marked.insert(session);
                }
            }
            Effect::Cancel(session) => {
                let statement = self.statements[index(session)];
                let is_early = self.now <= Duration::from_secs(1);
                match statement.seen() {
                    Some(Seen::WaitsForUs) | None => (),
                    Some(Seen::AtRows) if !is_early => (),
                    seen => return Err(format!("{session:?} was cancelled, and is {seen:?}")),
                }
                if !self.marked.contains(&session) {
                    return Err(format!("{session:?} is told that it was cancelled"));
                }
                self.cancelled.entry(session).or_insert(self.now);
                if bug != Some(Bug::DoesNotCancel)
                    && matches!(
                        statement,
                        Statement::Waits | Statement::Queues | Statement::Writes(_)
                    )
                {
                    self.statements[index(session)] = Statement::Gone;
                }
            }
            Effect::EndConnections(session) => {
                let since = self.cancelled.get(&session).ok_or("ended without a warning")?;
                if self.now - *since <= Duration::from_secs(2) {
                    return Err(format!("{session:?} was ended too soon"));
                }
                let statement = self.statements[index(session)];
                if matches!(statement, Statement::Waits | Statement::Queues) {
                    return Err(format!("{session:?} was ended, and would have been cancelled"));
                }
                if bug != Some(Bug::DoesNotEnd) {
                    self.statements[index(session)] = Statement::Gone;
                }
            }
            _ => return Err(format!("{effect:?} is not the last of its batch")),
        }
        Ok(())
    }

    fn end_batch(mut self, last: &Effect, bug: Option<Bug>) -> Result<Vec<Self>, String> {
        let at = if bug == Some(Bug::ClockStands) { Duration::ZERO } else { self.now };
        match last {
            Effect::Done => {
                for (session, statement) in self.sessions() {
                    if statement.is_in_the_way() {
                        return Err(format!(
                            "passed {session:?} by: {statement:?} at {:?}",
                            self.now
                        ));
                    }
                    let may_come = matches!(statement, Statement::Idle | Statement::Comes);
                    if may_come && self.now <= Duration::from_secs(1) {
                        return Err(format!("did not wait for {session:?}: {statement:?}"));
                    }
                }
                self.next = None;
                Ok(vec![self])
            }
            Effect::List => {
                let is_there = |(_, statement): &(Session, Statement)| {
                    *statement != Statement::Gone && bug != Some(Bug::ListsNobody)
                };
                let sessions: BTreeSet<_> =
                    self.sessions().filter(is_there).map(|(session, _)| session).collect();
                self.next = Some(Event::Listed { sessions, at });
                Ok(vec![self])
            }
            Effect::Look => {
                let mut seen = BTreeMap::new();
                for (session, statement) in self.sessions() {
                    let found = match (bug, statement.seen()) {
                        (Some(Bug::DoesNotLook), _) | (_, None) => continue,
                        (Some(Bug::TakesAllForWaiters), Some(Seen::AtRows)) => Seen::WaitsForUs,
                        (_, Some(found)) => found,
                    };
                    seen.insert(session, found);
                }
                for statement in &mut self.statements {
                    *statement = match *statement {
                        Statement::Writes(0) => Statement::Gone,
                        Statement::Writes(left) => Statement::Writes(left - 1),
                        other => other,
                    };
                }
                self.next = Some(Event::Looked { seen, at });
                Ok(vec![self])
            }
            Effect::Pause(pause) => {
                if Duration::from_secs(30) < self.now {
                    return Err("it does not end".to_owned());
                }
                self.next = Some(Event::Paused);
                // A little longer than it was meant to, or much longer.
                let slowly = |time: Duration| Self { now: self.now + time, ..self.clone() };
                Ok(vec![
                    slowly(pause.max(&Duration::from_millis(170)).to_owned()),
                    slowly(Duration::from_millis(1_200)),
                ])
            }
            effect => Err(format!("{effect:?} is not answered")),
        }
    }
}

/// Visits all that can happen. How many worlds there are, or what goes wrong.
fn visit(statements: &[Statement], bug: Option<Bug>) -> Result<usize, String> {
    let mut seen = HashSet::new();
    let mut left = vec![World::new(statements.to_vec())];
    while let Some(world) = left.pop() {
        // What differs by milliseconds only is the same.
        let key = World {
            now: Duration::from_millis(u64::try_from(world.now.as_millis()).unwrap_or(0) / 50 * 50),
            ..world.clone()
        };
        if !seen.insert(key) {
            continue;
        }
        left.extend(world.steps(bug).map_err(|broken| format!("{statements:?}: {broken}"))?);
    }
    Ok(seen.len())
}

fn all_worlds(bug: Option<Bug>) -> Result<usize, String> {
    let mut worlds = 0;
    for first in Statement::ALL {
        for second in Statement::ALL {
            worlds += visit(&[first, second], bug)?;
        }
    }
    Ok(worlds)
}

#[test]
fn no_order_of_events_breaks_a_promise() {
    let worlds = all_worlds(None).unwrap_or_else(|broken| panic!("{broken}"));
    assert!(1_000 < worlds, "{worlds}");
}

#[test]
fn planted_bugs_are_found() {
    for bug in [
        Bug::DoesNotLook,
        Bug::ListsNobody,
        Bug::DoesNotCancel,
        Bug::DoesNotEnd,
        Bug::ClockStands,
        Bug::TakesAllForWaiters,
        Bug::DoesNotMark,
    ] {
        assert!(all_worlds(Some(bug)).is_err(), "{bug:?} is not found");
    }
}
