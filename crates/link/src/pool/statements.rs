//! Prepared statements that many clients share on one connection.
//!
//! Owns: the names that nodes know statements by, and which of them a connection knows.
//! Never: prepares one.
//! Start reading at [`SharedStatements::number`], then [`Known`].
//!
//! A client's own name means nothing on a node: the same text, meant in the same way, has the same
//! name for every client. What a text means depends on the types its client gave its parameters, on
//! where names are looked up, on the role, and on the schema: DDL gives all statements new names, so
//! that no one is served by an older analysis.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use lru::LruCache;
use tutti_sql::catalog::NameScope;

/// Texts that are remembered; the ones used least recently are forgotten, and get another number when
/// they recur.
const SHARED_MAX: NonZeroUsize = NonZeroUsize::new(20_000).expect("it is not zero");
/// Statements that one connection keeps.
const KNOWN_MAX: NonZeroUsize = NonZeroUsize::new(500).expect("it is not zero");

/// Which schema a statement was analysed with: a version of the catalog, and, where all tables are
/// node 1's so that plans need not know, how many committed changes have not been read yet.
pub type SchemaVersion = (u64, u64);

/// What a statement's meaning depends on.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct StatementKey {
    /// As nodes receive it.
    pub text: Arc<str>,
    /// Types that the client gave, as OIDs of node 1.
    pub types: Vec<u32>,
    /// The version of the schema.
    pub version: SchemaVersion,
    /// Where names are looked up.
    pub scope: NameScope,
    /// The role settings, as SQL.
    pub role: String,
    /// Not 0 where the meaning is one session's alone: it has temporary tables, or has changed the
    /// schema in a transaction that is still open.
    pub private: u64,
}

/// The numbers of all statements.
#[derive(Debug)]
pub struct SharedStatements {
    numbers: Mutex<LruCache<StatementKey, u64>>,
    last: AtomicU64,
}

impl Default for SharedStatements {
    fn default() -> Self {
        Self { numbers: Mutex::new(LruCache::new(SHARED_MAX)), last: AtomicU64::new(0) }
    }
}

impl SharedStatements {
    /// The number of this statement: the same for all sessions, and no other statement's.
    pub fn number(&self, key: StatementKey) -> u64 {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let next = || self.last.fetch_add(1, Ordering::Relaxed) + 1;
        *numbers.get_or_insert(key, next)
    }
}

/// The name by which nodes know the statement of this number.
pub fn name_of(number: u64) -> String {
    format!("tutti_{number}")
}

/// Appends it to a message.
pub fn put_name_of(out: &mut BytesMut, number: u64) {
    write!(out, "tutti_{number}").expect("a buffer takes everything");
}

/// What a connection knows of a statement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lookup {
    /// It knows it.
    There,
    /// It does not know it.
    Missing,
    /// It may or may not know it: the name must be closed before it is used.
    Unsure,
}

/// The statements that one connection knows.
#[derive(Debug)]
pub struct Known(LruCache<u64, Lookup>);

impl Default for Known {
    fn default() -> Self {
        // Grows as needed: most connections know few.
        Self(LruCache::unbounded())
    }
}

impl Known {
    /// Whether the connection has the statement of this number, which counts as a use of it.
    pub fn find(&mut self, number: u64) -> Lookup {
        self.0.get(&number).copied().unwrap_or(Lookup::Missing)
    }

    /// The connection is being given the statement. Returns the number of one that must be closed in
    /// exchange.
    pub fn add(&mut self, number: u64) -> Option<u64> {
        self.0.put(number, Lookup::There);
        if KNOWN_MAX.get() < self.0.len() { self.0.pop_lru().map(|(old, _)| old) } else { None }
    }

    /// It is not known whether the statement reached the connection.
    pub fn doubt(&mut self, number: u64) {
        self.0.put(number, Lookup::Unsure);
    }

    /// It is not known whether the connection's statements are still what they were.
    pub fn doubt_all(&mut self) {
        self.0.iter_mut().for_each(|(_, lookup)| *lookup = Lookup::Unsure);
    }

    /// Forgets all statements.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str, version: u64, path: &str) -> StatementKey {
        let version = (version, 0);
        let scope = NameScope { search_path: vec![path.to_owned()], ..NameScope::default() };
        StatementKey {
            text: text.into(),
            types: vec![23],
            version,
            scope,
            role: String::new(),
            private: 0,
        }
    }

    #[test]
    fn the_same_statement_has_one_number_and_another_meaning_another() {
        let shared = SharedStatements::default();
        let number = shared.number(key("SELECT $1", 1, "public"));
        assert_eq!(shared.number(key("SELECT $1", 1, "public")), number);
        for other in [
            key("SELECT $1 ", 1, "public"),
            key("SELECT $1", 2, "public"),
            key("SELECT $1", 1, "s"),
            StatementKey { types: vec![20], ..key("SELECT $1", 1, "public") },
            StatementKey { role: "SET ROLE r".to_owned(), ..key("SELECT $1", 1, "public") },
            StatementKey { private: 1, ..key("SELECT $1", 1, "public") },
        ] {
            assert_ne!(shared.number(other), number);
        }
    }

    #[test]
    fn a_connection_keeps_the_statements_used_last() {
        let mut known = Known::default();
        for number in 1..=KNOWN_MAX.get() as u64 {
            assert_eq!(known.add(number), None);
        }
        assert_eq!(known.find(1), Lookup::There);
        assert_eq!(known.add(1000), Some(2), "1 was used after it");
        assert_eq!(known.find(2), Lookup::Missing);
        known.doubt(1);
        assert_eq!(known.find(1), Lookup::Unsure);
        known.clear();
        assert_eq!(known.find(3), Lookup::Missing);
    }
}
