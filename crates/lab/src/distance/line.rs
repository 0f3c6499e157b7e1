//! What is under way in one direction, and when it is there.
//!
//! Owns: the wire, which has room for one piece after another, and the delay line, which keeps
//! order. Never: reads a clock or a socket.
//! Start reading at [`Wire::transmit`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};

use super::stretch::Stretch;

/// So long may the wire be promised ahead. It must outlast the time until a task that waits for the
/// wire is woken and run, or the wire is idle meanwhile and bandwidth is lost.
const PROMISED_MAX: Duration = Duration::from_millis(4);

/// The bandwidth of one direction, which all connections of a link share.
#[derive(Debug, Default)]
pub(super) struct Wire {
    free_at: Option<Instant>,
}

impl Wire {
    /// Puts bytes on the wire behind all that is on it, and says when the last of them has left.
    pub(super) fn transmit(&mut self, now: Instant, bytes: usize, stretch: &Stretch) -> Instant {
        let begins = self.free_at.map_or(now, |free_at| free_at.max(now));
        let left = begins + stretch.transmission(bytes);
        self.free_at = Some(left);
        left
    }

    /// When it takes more: before, it is promised for longer than it may be. `None`: at any time.
    pub(super) fn takes_at(&self) -> Option<Instant> {
        self.free_at.and_then(|free_at| free_at.checked_sub(PROMISED_MAX))
    }
}

/// What arrives.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Parcel {
    /// Never empty.
    Bytes(Bytes),
    /// The sender sends no more.
    End,
    /// The sender's connection broke.
    Broken,
}

/// What is under way, in the order of its sending.
#[derive(Debug, Default)]
pub(super) struct DelayLine {
    /// Invariant: due times do not fall.
    parcels: VecDeque<(Instant, Parcel)>,
    byte_count: usize,
}

impl DelayLine {
    /// Sends a parcel that would arrive at `due_at` by itself; it does not overtake.
    pub(super) fn send(&mut self, due_at: Instant, parcel: Parcel) {
        if let Parcel::Bytes(bytes) = &parcel {
            self.byte_count += bytes.len();
        }
        let due_at = self.parcels.back().map_or(due_at, |(last, _)| due_at.max(*last));
        self.parcels.push_back((due_at, parcel));
    }

    /// When the next parcel arrives.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.parcels.front().map(|(due_at, _)| *due_at)
    }

    /// The next parcel, whether it has arrived or not.
    pub(super) fn next(&self) -> Option<&Parcel> {
        self.parcels.front().map(|(_, parcel)| parcel)
    }

    /// So many bytes of the next parcel were taken by the receiver.
    pub(super) fn taken(&mut self, byte_count: usize) {
        let Some((_, Parcel::Bytes(bytes))) = self.parcels.front_mut() else { return };
        bytes.advance(byte_count);
        self.byte_count -= byte_count;
        if bytes.is_empty() {
            self.parcels.pop_front();
        }
    }

    /// Bytes under way.
    pub(super) fn byte_count(&self) -> usize {
        self.byte_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn bytes(text: &'static str) -> Parcel {
        Parcel::Bytes(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_wire_carries_one_piece_after_another() {
        let now = Instant::now();
        // A millisecond for a kilobyte.
        let stretch = Stretch::new(0.0, 0.0, Some(8.0)).unwrap();
        let mut wire = Wire::default();
        assert_eq!(wire.takes_at(), None);
        assert_eq!(wire.transmit(now, 1_000, &stretch), now + MS);
        assert_eq!(wire.transmit(now, 2_000, &stretch), now + 3 * MS);
        // What was idle is not made up for.
        assert_eq!(wire.transmit(now + 10 * MS, 1_000, &stretch), now + 11 * MS);
    }

    #[test]
    fn a_wire_is_promised_only_so_far_ahead() {
        let now = Instant::now();
        let stretch = Stretch::new(0.0, 0.0, Some(8.0)).unwrap();
        let mut wire = Wire::default();
        wire.transmit(now, 10_000, &stretch);
        assert_eq!(wire.takes_at(), Some(now + 10 * MS - PROMISED_MAX));
    }

    #[test]
    fn what_is_sent_later_does_not_arrive_earlier() {
        let now = Instant::now();
        let mut line = DelayLine::default();
        line.send(now + 5 * MS, bytes("one"));
        line.send(now + 2 * MS, bytes("two"));
        line.send(now + 7 * MS, Parcel::End);
        let mut arrived = Vec::new();
        while let (Some(due_at), Some(parcel)) = (line.due_at(), line.next().cloned()) {
            arrived.push((due_at - now, parcel.clone()));
            match parcel {
                Parcel::Bytes(bytes) => line.taken(bytes.len()),
                Parcel::End | Parcel::Broken => break,
            }
        }
        assert_eq!(
            arrived,
            [(5 * MS, bytes("one")), (5 * MS, bytes("two")), (7 * MS, Parcel::End)]
        );
    }

    #[test]
    fn a_receiver_may_take_a_part() {
        let now = Instant::now();
        let mut line = DelayLine::default();
        line.send(now, bytes("abcdef"));
        line.send(now, bytes("gh"));
        assert_eq!(line.byte_count(), 8);
        line.taken(4);
        assert_eq!((line.next(), line.byte_count()), (Some(&bytes("ef")), 4));
        line.taken(2);
        assert_eq!((line.next(), line.byte_count()), (Some(&bytes("gh")), 2));
        line.taken(2);
        assert_eq!((line.next(), line.byte_count()), (None, 0));
    }
}
