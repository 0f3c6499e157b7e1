//! When two answers count as equal.
//!
//! Owns: the rules. Names, types, rows, tags, SQLSTATEs, notices, reported settings and the
//! transaction's state must be equal; texts of errors may differ, and so may OIDs of types that users
//! made (their names are compared).
//! Start reading at [`difference`].

use std::collections::BTreeMap;

use tutti_wire::error_fields::ErrorFields;

use crate::answer::{Answer, Column, Outcome, Row, row_text};
use crate::script::Compare;

/// Names of types that users made, by OID, for one server.
pub type TypeNames = BTreeMap<u32, String>;

/// What is asked of both answers.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// From the script.
    pub compare: Compare,
    /// The rows' order is fixed.
    pub ordered: bool,
}

/// Says in a few words how `found` differs from `expected`; `None` if it does not.
pub fn difference(
    expected: (&Answer, &TypeNames),
    found: (&Answer, &TypeNames),
    rules: Rules,
) -> Option<String> {
    let (expected, expected_types) = expected;
    let (found, found_types) = found;
    if expected.outcomes.len() != found.outcomes.len() {
        let (one, other) = (expected.outcomes.len(), found.outcomes.len());
        return Some(format!("{other} statements answered instead of {one}"));
    }
    for (one, other) in expected.outcomes.iter().zip(&found.outcomes) {
        if let Some(text) = outcome_difference((one, expected_types), (other, found_types), rules) {
            return Some(text);
        }
    }
    if expected.status != found.status {
        let (one, other) = (char::from(expected.status), char::from(found.status));
        return Some(format!("transaction status {other} instead of {one}"));
    }
    if sorted_notices(&expected.notices) != sorted_notices(&found.notices) {
        return Some("other notices".to_owned());
    }
    if expected.notifications != found.notifications {
        return Some("other notifications".to_owned());
    }
    let sorted = |answer: &Answer| {
        let mut parameters = answer.parameters.clone();
        parameters.sort();
        parameters
    };
    if sorted(expected) != sorted(found) {
        return Some("other settings reported".to_owned());
    }
    None
}

fn outcome_difference(
    expected: (&Outcome, &TypeNames),
    found: (&Outcome, &TypeNames),
    rules: Rules,
) -> Option<String> {
    match (expected.0, found.0) {
        (
            Outcome::Rows { columns, rows, suspensions, tag },
            Outcome::Rows {
                columns: found_columns,
                rows: found_rows,
                suspensions: found_suspensions,
                tag: found_tag,
            },
        ) => {
            let shape = |columns: &[Column], types: &TypeNames| -> Vec<(String, String, i32)> {
                let named = |c: &Column| (c.name.clone(), type_name(c, types), c.type_modifier);
                columns.iter().map(named).collect()
            };
            if shape(columns, expected.1) != shape(found_columns, found.1) {
                return Some(format!(
                    "columns {:?} instead of {:?}",
                    shape(found_columns, found.1),
                    shape(columns, expected.1)
                ));
            }
            if tag != found_tag {
                return Some(format!("tag {found_tag:?} instead of {tag:?}"));
            }
            if suspensions != found_suspensions {
                return Some(format!("suspended {found_suspensions} times, not {suspensions}"));
            }
            rows_difference(rows, found_rows, rules)
        }
        (Outcome::Done { tag }, Outcome::Done { tag: found_tag }) => {
            (tag != found_tag).then(|| format!("tag {found_tag:?} instead of {tag:?}"))
        }
        (
            Outcome::CopyOut { binary, data, tag },
            Outcome::CopyOut { binary: found_binary, data: found_data, tag: found_tag },
        ) => {
            if (binary, tag) != (found_binary, found_tag) {
                return Some(format!("COPY {found_tag:?} instead of {tag:?}"));
            }
            if rules.compare == Compare::Shape {
                return None;
            }
            let (one, other) = (copied(data, *binary), copied(found_data, *binary));
            let equal = if rules.ordered { one == other } else { sorted(&one) == sorted(&other) };
            (!equal).then(|| "other data copied out".to_owned())
        }
        (Outcome::Empty, Outcome::Empty) => None,
        (Outcome::Failed(one), Outcome::Failed(other)) => (one.sqlstate() != other.sqlstate())
            .then(|| format!("SQLSTATE {} instead of {}", other.sqlstate(), one.sqlstate())),
        (_, Outcome::Failed(error)) => Some(format!("failed with {}", error.sqlstate())),
        (Outcome::Failed(error), _) => Some(format!("no error instead of {}", error.sqlstate())),
        _ => Some("another kind of answer".to_owned()),
    }
}

fn rows_difference(expected: &[Row], found: &[Row], rules: Rules) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!("{} rows instead of {}", found.len(), expected.len()));
    }
    match rules.compare {
        Compare::Shape => None,
        Compare::All if rules.ordered => {
            let position = expected.iter().zip(found).position(|(one, other)| one != other)?;
            Some(format!(
                "row {} is {:?} instead of {:?}",
                position + 1,
                row_text(&found[position]),
                row_text(&expected[position])
            ))
        }
        Compare::All | Compare::AnyOrder => {
            let (one, other) = (sorted(expected), sorted(found));
            let position = one.iter().zip(&other).position(|(one, other)| one != other)?;
            Some(format!(
                "rows differ, for example {:?} instead of {:?}",
                row_text(other[position]),
                row_text(one[position])
            ))
        }
    }
}

fn type_name(column: &Column, types: &TypeNames) -> String {
    types.get(&column.type_oid).cloned().unwrap_or_else(|| column.type_oid.to_string())
}

fn sorted<T: Ord>(items: &[T]) -> Vec<&T> {
    let mut items: Vec<&T> = items.iter().collect();
    items.sort();
    items
}

fn sorted_notices(notices: &[ErrorFields]) -> Vec<(String, String)> {
    let mut all: Vec<_> =
        notices.iter().map(|n| (n.sqlstate().to_owned(), n.message().to_owned())).collect();
    all.sort();
    all
}

/// Bytes of the signature, flags and extension length of binary COPY data.
const BINARY_HEADER_LEN: usize = 19;

/// Copied data as rows: lines, or tuples of the binary format. Header and trailer count as rows, so
/// that a second one is noticed.
fn copied(data: &[u8], binary: bool) -> Vec<Vec<u8>> {
    if !binary {
        return data.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    }
    let mut rows = vec![data[..data.len().min(BINARY_HEADER_LEN)].to_vec()];
    let mut rest = data.get(BINARY_HEADER_LEN..).unwrap_or_default();
    while !rest.is_empty() {
        let len = tuple_len(rest).unwrap_or(rest.len());
        rows.push(rest[..len].to_vec());
        rest = &rest[len..];
    }
    rows
}

/// Length of the tuple at the start of `data`; `None` if it is not whole.
fn tuple_len(data: &[u8]) -> Option<usize> {
    let count = i16::from_be_bytes(data.get(..2)?.try_into().ok()?);
    let mut len = 2;
    for _ in 0..count.max(0) {
        let value_len = i32::from_be_bytes(data.get(len..len + 4)?.try_into().ok()?);
        len += 4 + usize::try_from(value_len).unwrap_or(0);
    }
    (len <= data.len()).then_some(len)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn rows(values: &[&str], tag: &str) -> Answer {
        let column = Column { name: "a".into(), type_oid: 25, type_modifier: -1, format: 0 };
        let row = |value: &&str| vec![Some(Bytes::copy_from_slice(value.as_bytes()))];
        let outcome = Outcome::Rows {
            columns: vec![column],
            rows: values.iter().map(row).collect(),
            suspensions: 0,
            tag: tag.to_owned(),
        };
        Answer { outcomes: vec![outcome], status: b'I', ..Answer::default() }
    }

    fn compare(one: &Answer, other: &Answer, ordered: bool) -> Option<String> {
        let none = TypeNames::new();
        difference((one, &none), (other, &none), Rules { compare: Compare::All, ordered })
    }

    #[test]
    fn order_counts_only_where_it_is_fixed() {
        let (one, other) = (rows(&["1", "2"], "SELECT 2"), rows(&["2", "1"], "SELECT 2"));
        assert_eq!(compare(&one, &other, false), None);
        assert!(compare(&one, &other, true).is_some());
    }

    #[test]
    fn duplicates_tags_states_and_errors_count() {
        let one = rows(&["1", "1", "2"], "SELECT 3");
        assert!(compare(&one, &rows(&["1", "2", "2"], "SELECT 3"), false).is_some());
        assert!(compare(&one, &rows(&["1", "1", "2"], "SELECT 4"), false).is_some());
        let in_transaction = Answer { status: b'T', ..one.clone() };
        assert!(compare(&one, &in_transaction, false).is_some());
        let failed = |sqlstate: &str| Answer {
            outcomes: vec![Outcome::Failed(ErrorFields::error(sqlstate, "x"))],
            status: b'I',
            ..Answer::default()
        };
        assert!(compare(&failed("23505"), &failed("23503"), false).is_some());
        assert_eq!(compare(&failed("23505"), &failed("23505"), false), None);
        assert!(compare(&one, &failed("0A000"), false).is_some());
    }

    #[test]
    fn binary_copies_are_compared_tuple_by_tuple() {
        let mut data = vec![0; BINARY_HEADER_LEN];
        data.extend([0, 1, 0, 0, 0, 1, 7, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        let pieces = copied(&data, true);
        assert_eq!(
            pieces[1..],
            [vec![0, 1, 0, 0, 0, 1, 7], vec![0, 1, 255, 255, 255, 255], vec![255, 255]]
        );
    }
}
