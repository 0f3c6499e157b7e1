//! One direction of one connection: reads what comes, delays it, writes it.
//!
//! Owns: the order of reading and writing. Never: decides when anything is due (`line` does), or what
//! becomes of the other direction (`connection` does).
//! Start reading at [`Pump::run`].

use std::io;
use std::time::Instant;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::task::consume_budget;

use super::alarm::Alarm;
use super::ledger::Direction;
use super::line::{DelayLine, Parcel};
use super::shared::{Behaviour, Passage, Shared};
use super::stretch::{CHUNK_MAX, Stretch};

/// How a direction came to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    /// The sender had no more to say, and the receiver knows.
    Said,
    /// The receiver does not listen any more.
    Unheard,
    /// The sender's connection broke, or the link was told to reset or dropped.
    Broken,
}

/// A direction.
#[derive(Debug)]
pub(super) struct Pump<'a> {
    pub source: ReadHalf<'a>,
    pub sink: WriteHalf<'a>,
    pub direction: Direction,
    /// The connection's.
    pub number: u64,
    /// Resets of the link when the connection began.
    pub resets: u64,
    pub shared: &'a Shared,
    pub behaviour: watch::Receiver<Behaviour>,
}

/// What may be done next.
#[derive(Debug)]
struct Turn {
    may_read: bool,
    may_write: bool,
    /// When there may be more to do, if nothing else happens.
    wake_at: Option<Instant>,
}

impl Pump<'_> {
    /// Carries everything until the end.
    ///
    /// Errors: no timer could be made.
    pub(super) async fn run(mut self) -> io::Result<Ended> {
        let mut line = DelayLine::default();
        let mut alarm = Alarm::default();
        // Copied from, so that what is under way takes as much memory as it has bytes.
        let mut buffer = vec![0; CHUNK_MAX].into_boxed_slice();
        let mut source_ended = false;
        loop {
            // With everything at hand at once, no await below would ever let others run.
            consume_budget().await;
            let behaviour = *self.behaviour.borrow_and_update();
            if behaviour.resets != self.resets {
                return Ok(Ended::Broken);
            }
            let turn = self.turn(&behaviour, &line, source_ended);
            if turn.may_write {
                match line.next() {
                    Some(Parcel::End) => {
                        return Ok(match self.sink.shutdown().await {
                            Ok(()) => Ended::Said,
                            Err(_gone) => Ended::Unheard,
                        });
                    }
                    Some(Parcel::Broken) => return Ok(Ended::Broken),
                    Some(Parcel::Bytes(_)) | None => (),
                }
            }
            tokio::select! {
                biased;
                changed = self.behaviour.changed() => if changed.is_err() {
                    return Ok(Ended::Broken);
                },
                ready = self.sink.writable(), if turn.may_write => {
                    match ready.and_then(|()| self.write(&mut line)) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                        Err(_gone) => return Ok(Ended::Unheard),
                        Ok(()) => (),
                    }
                }
                ready = self.source.readable(), if turn.may_read => {
                    let room = &mut buffer[..behaviour.stretch.chunk()];
                    let parcel = match ready.and_then(|()| self.source.try_read(room)) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                        Err(_broken) => Parcel::Broken,
                        Ok(0) => Parcel::End,
                        Ok(read) => Parcel::Bytes(Bytes::copy_from_slice(&room[..read])),
                    };
                    source_ended = !matches!(parcel, Parcel::Bytes(_));
                    self.send(parcel, &behaviour.stretch, &mut line);
                }
                rung = alarm.until(turn.wake_at.unwrap_or_else(Instant::now)),
                    if turn.wake_at.is_some() => rung?,
            }
        }
    }

    fn turn(&self, behaviour: &Behaviour, line: &DelayLine, source_ended: bool) -> Turn {
        if behaviour.passage == Passage::Silent {
            return Turn { may_read: false, may_write: false, wake_at: None };
        }
        let now = Instant::now();
        let due_at = line.due_at();
        let has_room = !source_ended && line.byte_count() < behaviour.stretch.window();
        let takes_at = if has_room { self.shared.wire(self.direction).takes_at() } else { None };
        let is_later = |moment: &Instant| now < *moment;
        Turn {
            may_read: has_room && !takes_at.as_ref().is_some_and(is_later),
            may_write: due_at.is_some_and(|due_at| due_at <= now),
            wake_at: [due_at, takes_at].into_iter().flatten().filter(is_later).min(),
        }
    }

    /// Puts what was read on its way.
    fn send(&self, parcel: Parcel, stretch: &Stretch, line: &mut DelayLine) {
        let now = Instant::now();
        let byte_count = match &parcel {
            Parcel::Bytes(bytes) => bytes.len(),
            Parcel::End | Parcel::Broken => 0,
        };
        // The side that opened the connection is where turns are counted: what it sent, when it
        // has left it.
        if self.direction == Direction::Forth {
            self.shared.ledger().passed(self.number, self.direction, byte_count);
        }
        let left = self.shared.wire(self.direction).transmit(now, byte_count, stretch);
        line.send(left + stretch.delay(rand::random()), parcel);
    }

    /// Gives the receiver of the next parcel what it takes at once.
    fn write(&self, line: &mut DelayLine) -> io::Result<()> {
        let Some(Parcel::Bytes(bytes)) = line.next() else { return Ok(()) };
        let taken = match self.direction {
            Direction::Forth => self.sink.try_write(bytes)?,
            // Locked before: who has an answer finds it counted.
            Direction::Back => {
                let mut ledger = self.shared.ledger();
                let taken = self.sink.try_write(bytes)?;
                ledger.passed(self.number, self.direction, taken);
                taken
            }
        };
        line.taken(taken);
        Ok(())
    }
}
