//! Which runs may stand in one directory: those that were made alike.
//!
//! Owns: what must agree between a run that is to be made and those that are there. Never: reads a file, knows a study.
//! Start reading at [`Configuration::refusal`].

use serde_json::Value;

use crate::record::{Parameters, Record};

/// Far above what a number loses when it is written and read, far below what anyone would ask for.
const RELATIVE_DIFFERENCE_MIN: f64 = 1e-12;

/// A run that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    /// All that differs from the study's other runs, repetitions too.
    pub name: String,
    /// All that decides its figures.
    pub parameters: Parameters,
}

impl Planned {
    /// Of values by name.
    pub(crate) fn of<const N: usize>(name: String, parameters: [(&str, Value); N]) -> Self {
        let parameters = parameters.into_iter().map(|(name, value)| (name.to_owned(), value));
        Self { name, parameters: parameters.collect() }
    }
}

/// What a study's page takes for alike, by names of parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Configuration {
    /// What tells kinds of runs apart. Runs of one kind are repetitions of each other: they agree in everything,
    pub kind: &'static [&'static str],
    /// but for these.
    pub varies: &'static [&'static str],
    /// What runs of all kinds share, as the page sets them side by side.
    pub shared: &'static [&'static str],
}

impl Configuration {
    /// In what the first run that is there and cannot stand beside the planned ones differs from them; `None` if
    /// all can. What a run of an older version does not say counts as different here: it may be anything.
    pub(crate) fn refusal(&self, there: &[Record], planned: &[Planned]) -> Option<String> {
        there
            .iter()
            .find_map(|record| planned.iter().find_map(|plan| self.difference(record, plan)))
    }

    fn difference(&self, record: &Record, planned: &Planned) -> Option<String> {
        let was = |name: &str| record.parameters.get(name);
        let agrees = |name: &str, is: &Value| was(name).is_some_and(|was| is_same(was, is));
        let of_one_kind = planned
            .parameters
            .iter()
            .filter(|(name, _)| self.kind.contains(&name.as_str()))
            .all(|(name, is)| agrees(name, is));
        let must_agree = |name: &str| match of_one_kind {
            true => !self.varies.contains(&name),
            false => self.shared.contains(&name),
        };
        let differences: Vec<String> = planned
            .parameters
            .iter()
            .filter(|(name, is)| must_agree(name) && !agrees(name, is))
            .map(|(name, is)| match was(name) {
                Some(was) => format!("with {name} {was}, not {is}"),
                None => {
                    format!("and does not say its {name}, here {is} (an older version made it)")
                }
            })
            .collect();
        let run = &record.run;
        (!differences.is_empty())
            .then(|| format!("the run {run:?} is there {}", differences.join(", ")))
    }
}

/// Whether two values are the same to people: 8 is 8.0, and a number that was written and read is what it was.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other
                || one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| {
                    (one - other).abs() <= RELATIVE_DIFFERENCE_MIN * one.abs().max(other.abs())
                })
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| other.get(name).is_some_and(|it| is_same(one, it)))
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::record::Machine;

    const CONFIGURATION: Configuration =
        Configuration { kind: &["nodes"], varies: &["repetition"], shared: &["seconds"] };

    fn planned(nodes: u16, seconds: f64, writers: u16, repetition: u32) -> Planned {
        Planned::of(
            format!("{nodes} nodes #{repetition}"),
            [
                ("nodes", nodes.into()),
                ("seconds", seconds.into()),
                ("writers", writers.into()),
                ("repetition", repetition.into()),
            ],
        )
    }

    fn made(planned: Planned) -> Record {
        Record {
            study: "scale".to_owned(),
            run: planned.name,
            parameters: planned.parameters,
            lasted_s: 1.0,
            clients: BTreeMap::new(),
            figures: BTreeMap::new(),
            checked: String::new(),
            made_on: Machine::this("PostgreSQL", "tutti-lab scale"),
        }
    }

    fn refusal(there: Planned, planned: Planned) -> Option<String> {
        CONFIGURATION.refusal(&[made(there)], &[planned])
    }

    #[test]
    fn repetitions_and_other_kinds_are_carried_on_with() {
        assert_eq!(refusal(planned(3, 10.0, 8, 1), planned(3, 10.0, 8, 1)), None);
        assert_eq!(refusal(planned(3, 10.0, 8, 1), planned(3, 10.0, 8, 2)), None);
        // Of another kind, what only a kind has may differ.
        assert_eq!(refusal(planned(3, 10.0, 8, 1), planned(5, 10.0, 9, 1)), None);
    }

    #[test]
    fn what_was_made_in_another_way_is_named() {
        let said = refusal(planned(3, 2.0, 4, 1), planned(3, 10.0, 8, 1)).unwrap();
        let expected =
            "the run \"3 nodes #1\" is there with seconds 2.0, not 10.0, with writers 4, not 8";
        assert_eq!(said, expected);
        // A repetition of its own, or another kind, does not make a mixture right.
        assert!(refusal(planned(3, 10.0, 4, 1), planned(3, 10.0, 8, 2)).is_some());
        assert!(refusal(planned(5, 2.0, 8, 1), planned(3, 10.0, 8, 1)).is_some());
    }

    #[test]
    fn what_an_older_version_did_not_say_is_not_taken_for_the_same() {
        let mut old = planned(3, 10.0, 8, 1);
        old.parameters.remove("seconds");
        let said = refusal(old, planned(3, 10.0, 8, 1)).unwrap();
        assert!(said.contains("does not say its seconds, here 10.0 (an older version"), "{said}");
        // What came of a run, as against what was asked of it, is recorded besides.
        let mut more = planned(3, 10.0, 8, 1);
        more.parameters.insert("limited".to_owned(), "yes".into());
        assert_eq!(refusal(more, planned(3, 10.0, 8, 1)), None);
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        let same = |one: &str, other: &str| {
            is_same(&serde_json::from_str(one).unwrap(), &serde_json::from_str(other).unwrap())
        };
        assert!(same("8", "8.0") && same("1.7188524649999999", "1.718852465"));
        assert!(same("{\"a\": [1, 2.0]}", "{\"a\": [1.0, 2]}") && !same("[1]", "[1, 2]"));
        assert!(!same("8", "8.001") && !same("8", "\"8\"") && !same("{\"a\": 1}", "{\"b\": 1}"));
    }
}
