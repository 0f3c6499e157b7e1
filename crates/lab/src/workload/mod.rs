//! Workloads: what clients do to a cluster, and what must hold when they have done it.
//!
//! Owns: the trait, what a client may believe of a transaction, and the comparison of that with what
//! is there. Never: starts anything, nor decides how many clients there are or what fails meanwhile;
//! that is up to what runs a workload.
//! Start reading at [`Workload`], then [`transfers`].

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Add;
use std::time::Duration;

use anyhow::{bail, ensure};
use rand::rngs::StdRng;

pub mod batches;
mod filling;
mod fnv;
// Reads files that others wrote, which whoever tests by workloads need not.
pub mod dialect;
mod draws;
#[cfg(feature = "model")]
pub mod lahman;
mod questions;
pub mod session;
pub mod shop;
pub mod ssb;
mod steps;
mod totals;
pub mod tpcc;
pub mod tpch;
pub mod tpcw;
pub mod transfers;
mod words;
pub mod ycsb;
mod zipf;

pub use session::{Failure, Session};

/// What the server says where it cannot tell a transaction's fate.
const RESOLUTION_UNKNOWN: &str = "08007";

/// What is done to a cluster again and again, and can be checked.
///
/// Runs on any [`Session`]: asynchronous clients measure with it, blocking ones that have exact
/// control over the protocol test with it.
pub trait Workload {
    /// Makes its tables and fills them.
    fn setup<S: Session>(&self, session: &mut S)
    -> impl Future<Output = anyhow::Result<()>> + Send;

    /// What each client's session is told before its first transaction.
    fn settings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Runs one transaction, of a number that no other has, and says what came of it.
    ///
    /// Where it was refused the session may be inside of a failed transaction.
    /// Errors: an answer that cannot be.
    fn transaction<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        random: &mut StdRng,
    ) -> impl Future<Output = anyhow::Result<Outcome>> + Send;

    /// Checks a cluster at rest: each transaction is there whole or not at all, and
    /// as its client believes.
    ///
    /// `parts` together have all rows: each node itself, or the gateway alone. `whole`, the gateway,
    /// must see the same. `asked` are all transactions that ever ran, unless the workload leaves no
    /// traces of single ones.
    fn check<S: Session>(
        &self,
        parts: &mut [S],
        whole: Option<&mut S>,
        asked: &Asked,
    ) -> impl Future<Output = anyhow::Result<Found>> + Send;

    /// A key of the rows that a transaction is about, if it has one: where these are, what comes of it may be kept.
    fn key_of(&self, number: i64) -> Option<i64> {
        let _ = number;
        None
    }

    /// How long a client pauses after a transaction of a kind.
    fn pause(&self, kind: &str, random: &mut StdRng) -> Duration {
        let _ = (kind, random);
        Duration::ZERO
    }

    /// What clients were told, counted.
    fn figures(&self, asked: &Asked) -> Figures {
        let mut figures = Figures::default();
        for believed in asked.values() {
            match believed {
                Believed::Acknowledged => figures.acknowledged += 1,
                Believed::Refused => figures.refused += 1,
                Believed::Unknown(_) => figures.unknown += 1,
            }
        }
        figures
    }
}

/// What a client may believe about a transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Believed {
    /// It is there, and stays.
    Acknowledged,
    /// It is not there, and never will be.
    Refused,
    /// 08007, or nothing at all; with the gid to ask about if there was one.
    Unknown(Option<String>),
}

/// All transactions that were asked for, by number.
pub type Asked = BTreeMap<i64, Believed>;

/// Those of the transactions for whose number `is_meant` holds.
fn those(asked: &Asked, is_meant: impl Fn(i64) -> bool) -> Asked {
    let meant = asked.iter().filter(|(number, _)| is_meant(**number));
    meant.map(|(number, believed)| (*number, believed.clone())).collect()
}

/// What came of a transaction.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which of the workload's kinds of transaction it was; empty where there is one kind.
    pub kind: &'static str,
    /// What its client may believe.
    pub believed: Believed,
    /// Why, unless it was acknowledged, or rolled back as it was meant to be.
    pub failure: Option<Failure>,
    /// How long the statement took that decides: the COMMIT, or what commits by itself. Zero where
    /// it was not reached.
    pub decided_in: Duration,
}

impl Outcome {
    /// Of a transaction whose client never asked to commit, so that it cannot have happened.
    fn not_asked(failure: Failure) -> Self {
        let decided_in = Duration::ZERO;
        Self { kind: "", believed: Believed::Refused, failure: Some(failure), decided_in }
    }

    /// Of a transaction that its client has rolled back, as it was meant to.
    fn rolled_back(decided_in: Duration) -> Self {
        Self { kind: "", believed: Believed::Refused, failure: None, decided_in }
    }

    /// By the answer to the statement that decides.
    fn decided(answer: Result<(), Failure>, decided_in: Duration) -> Self {
        let failure = answer.err();
        let believed = match &failure {
            None => Believed::Acknowledged,
            Some(Failure::Lost { .. }) => Believed::Unknown(None),
            Some(Failure::Error { sqlstate, hint, .. }) if sqlstate == RESOLUTION_UNKNOWN => {
                // The hint has the call that asks, with the gid in it.
                Believed::Unknown(hint.split('\'').nth(1).map(str::to_owned))
            }
            Some(Failure::Error { .. }) => Believed::Refused,
        };
        Self { kind: "", believed, failure, decided_in }
    }

    /// Of a kind.
    fn of_kind(self, kind: &'static str) -> Self {
        Self { kind, ..self }
    }
}

/// What clients were told.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Transactions that were acknowledged.
    pub acknowledged: usize,
    /// That were refused.
    pub refused: usize,
    /// Whose fate their clients do not know.
    pub unknown: usize,
}

/// How what clients believed turned out.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Found {
    /// Acknowledged, and there.
    pub acknowledged: usize,
    /// Unknown to their clients, and there.
    pub unknown_done: usize,
    /// Unknown to their clients, and not there.
    pub unknown_absent: usize,
}

impl Add for Found {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            acknowledged: self.acknowledged + other.acknowledged,
            unknown_done: self.unknown_done + other.unknown_done,
            unknown_absent: self.unknown_absent + other.unknown_absent,
        }
    }
}

impl Found {
    /// Compares what was believed with the numbers of the transactions that are there.
    fn compare(what: &str, asked: &Asked, done: &BTreeSet<i64>) -> anyhow::Result<Self> {
        let mut found = Self::default();
        for (number, believed) in asked {
            match (believed, done.contains(number)) {
                (Believed::Acknowledged, true) => found.acknowledged += 1,
                (Believed::Acknowledged, false) => {
                    bail!("{what} {number} was acknowledged and is gone")
                }
                (Believed::Refused, true) => bail!("{what} {number} was refused and is there"),
                (Believed::Refused, false) => (),
                (Believed::Unknown(_), true) => found.unknown_done += 1,
                (Believed::Unknown(_), false) => found.unknown_absent += 1,
            }
        }
        let stranger = done.iter().find(|number| !asked.contains_key(number));
        ensure!(stranger.is_none(), "{what} {stranger:?} is there and nobody asked for it");
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(sqlstate: &str, hint: &str) -> Failure {
        let (sqlstate, hint) = (sqlstate.to_owned(), hint.to_owned());
        Failure::Error { sqlstate, message: "said so".to_owned(), hint }
    }

    #[test]
    fn what_a_client_may_believe_follows_from_the_last_answer() {
        let believed = |answer| Outcome::decided(answer, Duration::ZERO).believed;
        assert_eq!(believed(Ok(())), Believed::Acknowledged);
        assert_eq!(believed(Err(error("40001", ""))), Believed::Refused);
        let lost = Failure::Lost { reason: "closed".to_owned() };
        assert_eq!(believed(Err(lost.clone())), Believed::Unknown(None));
        let hint = "SELECT tutti_outcome('tutti_c_1_2_3')";
        let gid = Some("tutti_c_1_2_3".to_owned());
        assert_eq!(believed(Err(error("08007", hint))), Believed::Unknown(gid));
        // Nothing was decided, so nothing can be unknown.
        assert_eq!(Outcome::not_asked(lost).believed, Believed::Refused);
    }

    #[test]
    fn what_is_there_must_be_as_it_was_believed() {
        let asked = |believed| Asked::from([(1, believed)]);
        let compare = |believed, done: &[i64]| {
            Found::compare("transfer", &asked(believed), &done.iter().copied().collect())
        };
        assert_eq!(compare(Believed::Acknowledged, &[1]).unwrap().acknowledged, 1);
        assert_eq!(compare(Believed::Unknown(None), &[1]).unwrap().unknown_done, 1);
        assert_eq!(compare(Believed::Unknown(None), &[]).unwrap().unknown_absent, 1);
        assert_eq!(compare(Believed::Refused, &[]).unwrap(), Found::default());
        assert!(compare(Believed::Acknowledged, &[]).is_err(), "lost");
        assert!(compare(Believed::Refused, &[1]).is_err(), "done all the same");
        assert!(compare(Believed::Refused, &[2]).is_err(), "a stranger");
    }
}
