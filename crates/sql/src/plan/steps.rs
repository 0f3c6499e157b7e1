//! Statements that are run part by part, because no node can run them whole.
//!
//! Owns: the parts, in order, and what the later ones take from the earlier ones.
//! Never: says how rows travel; the executor does.
//! Start reading at [`Steps`].

use super::Planned;

/// A statement whose WITH changes data on several nodes: what is in WITH, one after the other, then the rest over the
/// rows that these have returned ([`super::CollectFrom::Returned`]).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Steps {
    /// What changes data, in the order of WITH.
    pub before: Vec<Step>,
    /// The rest: the statement itself. Its answer is the answer.
    pub rest: Step,
}

/// A part of a statement, as a statement of its own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// Its text.
    pub text: String,
    /// How to run it.
    pub planned: Box<Planned>,
    /// The first column that it returns are rows of its target as text, which later parts need.
    pub returns: bool,
}

impl Steps {
    /// All parts, in order.
    pub fn all(&self) -> impl Iterator<Item = &Step> {
        self.before.iter().chain([&self.rest])
    }
}
