//! What has passed on a link, counted.
//!
//! Owns: bytes, flights and round trips, by connection and in total.
//! Never: reads a socket or a clock: it is told what passed, in the order in which the side that
//! opened the connection sees it.
//! Start reading at [`Conversation`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Sub;

/// So many ended connections are still known one by one.
const ENDED_MAX: usize = 1_000;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// From the side that opened the connection.
    Forth,
    /// To it.
    Back,
}

/// What has passed. A **flight** is what one side sends before anything of the other side comes
/// after it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Connections that were opened; each costs a round trip more than those below, the handshake.
    pub connections: u64,
    /// Bytes from the side that opened the connection, when they had left it.
    pub bytes_forth: u64,
    /// Bytes to it, when they were there.
    pub bytes_back: u64,
    /// Flights of the side that opened the connection.
    pub flights_forth: u64,
    /// Flights of the other side.
    pub flights_back: u64,
    /// Flights back that came after a flight forth: so often the side that opened the connection
    /// may have waited.
    pub round_trips: u64,
}

/// What passed after an earlier reading.
impl Sub for Counts {
    type Output = Self;

    /// Requires: `earlier` is of the same link or connection, and not later.
    fn sub(self, earlier: Self) -> Self {
        Self {
            connections: self.connections - earlier.connections,
            bytes_forth: self.bytes_forth - earlier.bytes_forth,
            bytes_back: self.bytes_back - earlier.bytes_back,
            flights_forth: self.flights_forth - earlier.flights_forth,
            flights_back: self.flights_back - earlier.flights_back,
            round_trips: self.round_trips - earlier.round_trips,
        }
    }
}

/// One connection's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionCounts {
    /// Its number: 1 is the first of the link.
    pub number: u64,
    /// Whether it has not ended.
    pub open: bool,
    /// What passed; it is one connection.
    pub counts: Counts,
}

/// Whose turn it is on one connection.
#[derive(Clone, Copy, Debug, Default)]
struct Conversation {
    counts: Counts,
    last: Option<Direction>,
}

impl Conversation {
    fn opened() -> Self {
        Self { counts: Counts { connections: 1, ..Counts::default() }, last: None }
    }

    /// Takes bytes into account; none are no flight.
    fn passed(&mut self, direction: Direction, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let turned = self.last.replace(direction) != Some(direction);
        let counts = &mut self.counts;
        match direction {
            Direction::Forth => {
                counts.bytes_forth += bytes as u64;
                counts.flights_forth += u64::from(turned);
            }
            Direction::Back => {
                counts.bytes_back += bytes as u64;
                counts.flights_back += u64::from(turned);
                // What a server says before it was asked, nobody has waited for by asking.
                counts.round_trips += u64::from(turned && 0 < counts.flights_forth);
            }
        }
    }
}

/// All connections of a link.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    open: BTreeMap<u64, Conversation>,
    /// The latest, oldest first.
    ended: VecDeque<(u64, Conversation)>,
    /// Of all that have ended, also those that are not known one by one any more.
    ended_total: Counts,
    opened: u64,
}

impl Ledger {
    /// Counts a connection and gives it its number.
    pub(super) fn opened(&mut self) -> u64 {
        self.opened += 1;
        self.open.insert(self.opened, Conversation::opened());
        self.opened
    }

    /// Counts bytes of a connection that is open.
    pub(super) fn passed(&mut self, number: u64, direction: Direction, bytes: usize) {
        if let Some(conversation) = self.open.get_mut(&number) {
            conversation.passed(direction, bytes);
        }
    }

    /// The connection has ended.
    pub(super) fn ended(&mut self, number: u64) {
        let Some(conversation) = self.open.remove(&number) else { return };
        add(&mut self.ended_total, &conversation.counts);
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((number, conversation));
    }

    /// Of all connections since the link was opened.
    pub(super) fn total(&self) -> Counts {
        let mut total = self.ended_total;
        for conversation in self.open.values() {
            add(&mut total, &conversation.counts);
        }
        total
    }

    /// Of every connection that is open, and of the latest that have ended; by number.
    pub(super) fn connections(&self) -> Vec<ConnectionCounts> {
        let ended = self.ended.iter().map(|(number, it)| (*number, false, it.counts));
        let open = self.open.iter().map(|(number, it)| (*number, true, it.counts));
        let mut all: Vec<ConnectionCounts> = ended
            .chain(open)
            .map(|(number, open, counts)| ConnectionCounts { number, open, counts })
            .collect();
        all.sort_by_key(|it| it.number);
        all
    }
}

fn add(total: &mut Counts, more: &Counts) {
    total.connections += more.connections;
    total.bytes_forth += more.bytes_forth;
    total.bytes_back += more.bytes_back;
    total.flights_forth += more.flights_forth;
    total.flights_back += more.flights_back;
    total.round_trips += more.round_trips;
}

#[cfg(test)]
mod tests {
    use super::Direction::{Back, Forth};
    use super::*;

    /// Plays a conversation of one byte each: `>` forth, `<` back.
    fn played(script: &str) -> Counts {
        let mut conversation = Conversation::opened();
        for step in script.chars() {
            conversation.passed(if step == '>' { Forth } else { Back }, 1);
        }
        conversation.counts
    }

    fn flights(script: &str) -> (u64, u64, u64) {
        let counts = played(script);
        (counts.flights_forth, counts.flights_back, counts.round_trips)
    }

    #[test]
    fn a_question_and_its_answer_are_one_round_trip() {
        assert_eq!(flights("><"), (1, 1, 1));
        assert_eq!(flights("><><><"), (3, 3, 3));
    }

    #[test]
    fn what_is_sent_in_pieces_is_one_flight() {
        assert_eq!(flights(">>><<"), (1, 1, 1));
        assert_eq!(flights(">>><<>><"), (2, 2, 2));
        assert_eq!(played(">>><<").bytes_forth, 3);
        assert_eq!(played(">>><<").bytes_back, 2);
    }

    #[test]
    fn what_is_not_answered_is_no_round_trip() {
        assert_eq!(flights(""), (0, 0, 0));
        assert_eq!(flights(">"), (1, 0, 0));
        assert_eq!(flights("><>"), (2, 1, 1));
    }

    #[test]
    fn a_server_that_speaks_first_was_not_waited_for_by_asking() {
        assert_eq!(flights("<"), (0, 1, 0));
        assert_eq!(flights("<><"), (1, 2, 1));
    }

    #[test]
    fn no_bytes_are_no_flight() {
        let mut conversation = Conversation::opened();
        conversation.passed(Forth, 4);
        conversation.passed(Back, 0);
        conversation.passed(Forth, 4);
        assert_eq!(conversation.counts.flights_forth, 1);
        assert_eq!(conversation.counts.flights_back, 0);
    }

    #[test]
    fn connections_take_turns_each_for_itself() {
        let mut ledger = Ledger::default();
        let (one, two) = (ledger.opened(), ledger.opened());
        ledger.passed(one, Forth, 10);
        ledger.passed(two, Forth, 20);
        ledger.passed(one, Back, 1);
        ledger.passed(two, Back, 2);
        ledger.passed(one, Forth, 10);
        ledger.passed(one, Back, 1);
        ledger.ended(one);
        // Later than its end: no longer its own.
        ledger.passed(one, Back, 1);

        let expected = Counts {
            connections: 2,
            bytes_forth: 40,
            bytes_back: 4,
            flights_forth: 3,
            flights_back: 3,
            round_trips: 3,
        };
        assert_eq!(ledger.total(), expected);
        let each: Vec<(u64, bool, u64)> = ledger
            .connections()
            .iter()
            .map(|it| (it.number, it.open, it.counts.round_trips))
            .collect();
        assert_eq!(each, [(one, false, 2), (two, true, 1)]);
    }

    #[test]
    fn many_connections_are_counted_and_the_latest_are_known() {
        let mut ledger = Ledger::default();
        let opened = ENDED_MAX as u64 + 10;
        for _ in 0..opened {
            let number = ledger.opened();
            ledger.passed(number, Forth, 1);
            ledger.ended(number);
        }
        assert_eq!(ledger.total().connections, opened);
        assert_eq!(ledger.total().bytes_forth, opened);
        let known = ledger.connections();
        assert_eq!((known.len(), known[0].number), (ENDED_MAX, 11));
    }

    #[test]
    fn two_readings_give_what_passed_between_them() {
        let mut ledger = Ledger::default();
        let number = ledger.opened();
        ledger.passed(number, Forth, 5);
        ledger.passed(number, Back, 5);
        let before = ledger.total();
        ledger.passed(number, Forth, 7);
        ledger.passed(number, Back, 9);
        let between = ledger.total() - before;
        assert_eq!((between.connections, between.round_trips), (0, 1));
        assert_eq!((between.bytes_forth, between.bytes_back), (7, 9));
    }
}
