//! Comparing a run at a stage with the same run on one PostgreSQL.
//!
//! Owns: what must be equal, and how differences are reported. With one server's rows, or below
//! SERIALIZABLE, everything must be equal. At SERIALIZABLE over several nodes transactions may be
//! refused that one server lets pass, or at another moment; the anomaly must not appear, and nothing
//! but 40001 may come of it.
//! Start reading at [`difference`].

use anyhow::Result;

use super::record::{Record, SERIALIZATION_FAILURE};
use super::script::{Anomaly, Level, Script};
use crate::client::Client;

/// A statement in a transaction that has failed.
const IN_FAILED_TRANSACTION: &str = "25P02";

/// How closely a stage must follow one PostgreSQL at SERIALIZABLE.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rule {
    /// All that sessions receive is equal.
    Equal,
    /// Transactions may be refused that one server does not refuse, unless the script forbids it.
    MayRefuse,
}

/// Two runs of one script, and who judges conditions.
#[derive(Debug)]
pub struct Case<'a> {
    /// The script.
    pub script: &'a Script,
    /// The level, if the script asks for one.
    pub level: Option<Level>,
    /// What one PostgreSQL told.
    pub expected: &'a Record,
    /// What the stage told.
    pub found: &'a Record,
}

/// Whether a run shows the anomaly.
///
/// Errors: the condition is not SQL over the script's sessions and labels.
pub fn appears(
    anomaly: &Anomaly,
    script: &Script,
    record: &Record,
    judge: &mut Client,
) -> Result<bool> {
    let committed = script
        .sessions()
        .into_iter()
        .map(|session| format!("{} AS {session}", record.committed(session)));
    let seen = script.steps.iter().filter_map(|(line, step)| match step {
        super::script::Step::Say { label: Some(label), .. } => {
            let text = record.told(*line).and_then(super::record::Told::seen);
            let value =
                text.map_or("NULL".to_owned(), |text| format!("'{}'", text.replace('\'', "''")));
            Some(format!("{value}::text AS {label}"))
        }
        _ => None,
    });
    let columns: Vec<String> = committed.chain(seen).collect();
    let (condition, columns) = (&anomaly.condition, columns.join(", "));
    let verdict = judge
        .value(&format!("SELECT coalesce({condition}, false) FROM (SELECT {columns}) AS seen"))?;
    Ok(verdict == "t")
}

/// The first thing that is not as it must be.
///
/// Errors: see [`appears`].
pub fn difference(case: &Case<'_>, rule: Rule, judge: &mut Client) -> Result<Option<String>> {
    let may_refuse = rule == Rule::MayRefuse && case.level == Some(Level::Serializable);
    if !may_refuse || (case.script.none_refused && !case.script.other_moment) {
        return Ok(unequal(case, case.expected.entries.len()));
    }
    if let Some(anomaly) = &case.script.anomaly
        && appears(anomaly, case.script, case.found, judge)?
    {
        return Ok(Some(format!("the anomaly appears: {}", anomaly.condition)));
    }
    if let Some(what) = strange_error(case) {
        return Ok(Some(what));
    }
    if case.script.none_refused {
        let refused = case.found.refused();
        return Ok(refused.map(|session| format!("{session} is refused, and need not be")));
    }
    if case.script.other_moment {
        return Ok(None);
    }
    // Refusals aside, SERIALIZABLE reads and waits as any snapshot does.
    Ok(unequal(case, case.expected.undisturbed().min(case.found.undisturbed())))
}

fn unequal(case: &Case<'_>, entry_count: usize) -> Option<String> {
    let pairs = case.expected.entries.iter().zip(&case.found.entries).take(entry_count);
    let first = pairs.into_iter().find(|(expected, found)| expected != found);
    first.map(|(expected, _)| {
        format!("told otherwise than by one PostgreSQL at line {}", expected.line)
    })
}

/// An error that is neither a refusal, nor its consequence, nor what one PostgreSQL said there.
fn strange_error(case: &Case<'_>) -> Option<String> {
    case.found.answers().find_map(|answered| {
        let expected = case.expected.told(answered.line).and_then(|told| told.sqlstate.as_deref());
        match answered.told.sqlstate.as_deref() {
            _ if answered.told.status == '!' => {
                Some(format!("{} is lost at line {}", answered.session, answered.line))
            }
            Some(SERIALIZATION_FAILURE | IN_FAILED_TRANSACTION) | None => None,
            found if found == expected => None,
            Some(found) => Some(format!(
                "{} gets {found} at line {}: {}",
                answered.session, answered.line, answered.told.message.0
            )),
        }
    })
}
