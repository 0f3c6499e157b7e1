//! Statements and plans that all sessions of a gateway share, so that nothing is parsed twice.
//!
//! Owns: three caches, each bounded by bytes: the statements of a text, the plan of a text, and the
//! plan of a shape (all texts that differ only in the values of literals). Never: plans anything;
//! `transaction/planning.rs` has it done, and says when a cache must be bypassed.
//! Start reading at [`Plans`].
//!
//! A plan depends on the statement, the catalog and how names are seen, which is the key it is kept
//! under ([`Basis`]); a change of the schema makes another basis, and what was kept for the old one
//! is evicted over time. It does *not* depend on the role: the planner looks at no privilege and no
//! policy. Every text that a plan makes is run by nodes under the client's own role, and they
//! refuse and filter as they would without a gateway. So sharing plans between roles costs no
//! security: all a role can learn, from how long an answer takes, is that such a statement was sent
//! before.
//!
//! Texts are kept only of statements that clients repeat and whose kind carries no secrets:
//! CREATE ROLE … PASSWORD is never here (see [`Statement::may_be_kept`]).

mod basis;
mod password;
pub mod reading;
pub(crate) mod request;
pub(crate) mod route;

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};
use tutti_sql::plan::{Plan, Planned, SchemaPlan};
use tutti_sql::planner::ShapePlan;
use tutti_sql::refusal::Refusal;
use tutti_sql::statement::{self, Statement};

pub use basis::{Bases, Basis};
pub use reading::{Reading, ReadingPermit, apart};

/// How many bytes each of the caches may take, roughly.
const BYTES_MAX: u64 = 32 * 1024 * 1024;
/// What an entry takes in most cases; only to choose the size of the first tables.
const BYTES_USUAL: u64 = 4 * 1024;
/// Longer texts are not kept: parsing them costs little compared with what they do.
const TEXT_BYTES_MAX: usize = 16 * 1024;
/// How many bytes of tree the parser makes of one byte of text, roughly.
const TREE_BYTES_PER_TEXT_BYTE: u64 = 100;
/// The same for a plan, whose texts are generated.
const PLAN_BYTES_PER_TEXT_BYTE: u64 = 8;
/// What an entry takes besides.
const ENTRY_BYTES: u64 = 256;

/// What is known of a shape.
#[derive(Clone, Debug)]
pub enum ShapeEntry {
    /// How to run its statements.
    Plan(Arc<ShapePlan>),
    /// Its statements have to be planned one by one.
    Never,
}

/// The caches.
#[derive(Debug)]
pub struct Plans {
    statements: Cache<Box<str>, Arc<[Arc<Statement>]>, Weights>,
    texts: Cache<Key, Arc<Planned>, Weights>,
    shapes: Cache<Key, ShapeEntry, Weights>,
    /// The numbers of the bases that plans depend on.
    pub bases: Bases,
    /// How often the caches were hit and missed.
    pub counts: Counts,
    /// Limits on reading large texts.
    pub reading: Reading,
}

/// Look-ups in the caches since the gateway started.
#[derive(Debug, Default)]
pub struct Counts {
    /// Statements that were planned by their shape: neither parsed nor planned.
    pub shape_hits: AtomicU64,
    /// Texts that have a shape whose plan was not there, or not for these literals.
    pub shape_misses: AtomicU64,
    /// Texts that had been parsed before.
    pub parse_hits: AtomicU64,
    /// Texts that were parsed.
    pub parse_misses: AtomicU64,
    /// Statements that had been planned before, by their text.
    pub plan_hits: AtomicU64,
    /// Statements that were planned.
    pub plan_misses: AtomicU64,
}

impl Counts {
    fn note<T>(&self, found: Option<T>, hits: &AtomicU64, misses: &AtomicU64) -> Option<T> {
        let counter = if found.is_some() { hits } else { misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }
}

impl Default for Plans {
    fn default() -> Self {
        Self::of_size(BYTES_MAX)
    }
}

impl Plans {
    /// Each cache takes so many bytes.
    fn of_size(bytes: u64) -> Self {
        let items = usize::try_from(bytes / BYTES_USUAL).unwrap_or(0);
        Self {
            statements: Cache::with_weighter(items, bytes, Weights),
            texts: Cache::with_weighter(items, bytes, Weights),
            shapes: Cache::with_weighter(items, bytes, Weights),
            bases: Bases::default(),
            counts: Counts::default(),
            reading: Reading::default(),
        }
    }

    /// The statements of a text, parsed now or before.
    ///
    /// Errors: as [`statement::parse`]; they are not kept.
    pub fn parse(&self, text: &str) -> Result<Arc<[Arc<Statement>]>, Refusal> {
        let Counts { parse_hits, parse_misses, .. } = &self.counts;
        let found = self.statements.get(text);
        if let Some(statements) = self.counts.note(found, parse_hits, parse_misses) {
            return Ok(statements);
        }
        let mut statements = apart(text, || statement::parse(text))?;
        password::seal(&mut statements)?;
        let statements: Arc<[_]> = statements.into_iter().map(Arc::new).collect();
        if text.len() <= TEXT_BYTES_MAX && statements.iter().all(|it| it.may_be_kept()) {
            self.statements.insert(text.into(), statements.clone());
        }
        Ok(statements)
    }

    /// The plan of a statement that was planned on this basis.
    pub fn of_text(&self, basis: Basis, statement: &Statement) -> Option<Arc<Planned>> {
        self.counts.note(
            self.kept(basis, statement),
            &self.counts.plan_hits,
            &self.counts.plan_misses,
        )
    }

    fn kept(&self, basis: Basis, statement: &Statement) -> Option<Arc<Planned>> {
        // The clause is not in the text.
        let is_whole = statement.distribute_by.is_none();
        let key = KeyRef { basis, text: statement.text.as_bytes() };
        is_whole.then(|| self.texts.get(&key)).flatten()
    }

    /// What is known of a text that is one statement: that, and its plan on this basis.
    pub fn of_one(&self, basis: Basis, text: &str) -> Option<(Arc<Statement>, Arc<Planned>)> {
        let statement = self.only_statement(text)?;
        let planned = self.kept(basis, &statement)?;
        self.counts.parse_hits.fetch_add(1, Ordering::Relaxed);
        self.counts.plan_hits.fetch_add(1, Ordering::Relaxed);
        Some((statement, planned))
    }

    /// A known text's statement, if it is of rows and has no plan on this basis.
    pub fn outdated(&self, basis: Basis, text: &str) -> Option<Arc<Statement>> {
        let statement = self.only_statement(text)?;
        // The clause is in no statement of rows.
        (statement.is_of_rows() && self.kept(basis, &statement).is_none()).then_some(statement)
    }

    fn only_statement(&self, text: &str) -> Option<Arc<Statement>> {
        let statements = self.statements.get(text)?;
        let [statement] = &*statements else { return None };
        Some(statement.clone())
    }

    /// Keeps a plan, if it is worth keeping.
    pub fn keep_text(&self, basis: Basis, statement: &Statement, planned: &Arc<Planned>) {
        if statement.distribute_by.is_none()
            && statement.text.len() <= TEXT_BYTES_MAX
            && statement.may_be_kept()
            && !matches!(
                planned.plan,
                Plan::Schema(SchemaPlan::Ddl(_) | SchemaPlan::CreateTableAs { .. })
            )
        {
            let key = Key { basis, text: statement.text.as_bytes().into() };
            self.texts.insert(key, planned.clone());
        }
    }

    /// What is known of the shape with this key.
    pub fn of_shape(&self, basis: Basis, key: &[u8]) -> Option<ShapeEntry> {
        self.shapes.get(&KeyRef { basis, text: key })
    }

    /// Keeps what has been found out about a shape.
    pub fn keep_shape(&self, basis: Basis, key: &[u8], known: ShapeEntry) {
        self.shapes.insert(Key { basis, text: key.into() }, known);
    }

    /// Counts whether a statement was planned by its shape.
    pub fn note_by_shape(&self, hit: bool) {
        let counter = if hit { &self.counts.shape_hits } else { &self.counts.shape_misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a plan is found by.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Key {
    basis: Basis,
    /// A statement's text or the key of a shape, each in a cache of its own.
    text: Box<[u8]>,
}

/// The same, borrowed.
#[derive(Hash)]
struct KeyRef<'a> {
    basis: Basis,
    text: &'a [u8],
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KeyRef { basis: self.basis, text: &self.text }.hash(state);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.basis == key.basis && *self.text == *key.text
    }
}

/// What entries weigh: bytes, estimated from lengths.
#[derive(Clone, Debug)]
struct Weights;

impl Weighter<Box<str>, Arc<[Arc<Statement>]>> for Weights {
    fn weight(&self, text: &Box<str>, statements: &Arc<[Arc<Statement>]>) -> u64 {
        let own = (size_of::<Statement>() * statements.len()) as u64;
        ENTRY_BYTES + own + text.len() as u64 * TREE_BYTES_PER_TEXT_BYTE
    }
}

impl Weighter<Key, Arc<Planned>> for Weights {
    fn weight(&self, key: &Key, _: &Arc<Planned>) -> u64 {
        let own = size_of::<Planned>() as u64;
        ENTRY_BYTES + own + key.text.len() as u64 * PLAN_BYTES_PER_TEXT_BYTE
    }
}

impl Weighter<Key, ShapeEntry> for Weights {
    fn weight(&self, key: &Key, known: &ShapeEntry) -> u64 {
        let own = match known {
            ShapeEntry::Plan(plan) => plan.size() as u64,
            ShapeEntry::Never => 0,
        };
        ENTRY_BYTES + own + key.text.len() as u64
    }
}

#[cfg(test)]
mod tests;
