//! Unique indexes that hold over all nodes without containing the distribution key.
//!
//! Owns: the SQL by which a node makes what keeps such an index, tells what has changed of its values, and keeps its
//! entries, with the seals it takes.
//! Never: sends any of it, or decides on which node an entry is; the gateway's executor does.
//! Start reading at [`drain_sql`]; what it calls is `unique.sql`, the reasons are
//! docs/decisions/2026-11-27-global-unique.md.

use tutti_link::connection::NodeConnection;
use tutti_link::seals::{Seals, digest};
use tutti_sql::catalog::quote_literal;
use tutti_sql::hash::KeyType;
use tutti_wire::error_fields::ErrorFields;

use super::placement::sealed_message;

/// Computes the bucket of a value; the value stands for `{}`.
fn bucket_sql(key_type: KeyType) -> String {
    key_type.sql_hash_bucket("{}")
}

/// SQL that makes what keeps the index unique on one node, and its parameters. Requires: the connection knows its moment.
///
/// Its errors are the node's: 0A000 for an index that cannot be kept so.
pub fn make_sql(
    connection: &NodeConnection,
    (schema, index): (&str, &str),
    number: u32,
    key_type: KeyType,
    seals: &Seals,
) -> (String, Vec<String>) {
    let (number, bucket) = (number.to_string(), bucket_sql(key_type));
    let message = sealed_message("make unique", &[schema, index, &number, &bucket]);
    let seal = seals.seal_now(connection, &message);
    let [schema, index, bucket] = [schema, index, &bucket].map(quote_literal);
    (format!("SELECT tutti.make_unique({schema}, {index}, {number}, {bucket}, $1)"), vec![seal])
}

/// SQL that opens a cursor of this name over the entries that a node's rows have in a new index, each with its bucket;
/// as the role that makes the index.
pub fn entries_sql(cursor: &str, number: u32, key_type: KeyType) -> String {
    format!(
        "DECLARE {cursor} NO SCROLL CURSOR FOR \
         SELECT in_bucket, entry FROM tutti.unique_entries({number}, {})",
        quote_literal(&bucket_sql(key_type))
    )
}

/// SQL that has a node tell, by a notice each, what its open transaction has changed; and its parameters. Requires: the
/// connection knows its moment.
pub fn drain_sql(connection: &NodeConnection, seals: &Seals) -> (String, Vec<String>) {
    let seal = seals.seal_now(connection, "drain unique");
    ("SELECT tutti.drain_unique($1)".to_owned(), vec![seal])
}

/// What a notice of [`drain_sql`] tells.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Changed {
    /// The index.
    pub number: u32,
    /// The entry is there from now on; otherwise it is not any more.
    pub is_added: bool,
    /// The bucket of its first value.
    pub bucket: u16,
    /// The entry, as the text of a composite value.
    pub entry: String,
}

impl Changed {
    /// `None` if it is another notice. Then, too, if the node's functions have not made it, in the transaction that the
    /// connection is in: code of others may tell anything.
    pub fn read(notice: &ErrorFields, connection: &NodeConnection, seals: &Seals) -> Option<Self> {
        let (changed, seal) = Self::parse(notice)?;
        let sign = if changed.is_added { '+' } else { '-' };
        let Self { number, bucket, entry, .. } = &changed;
        let message = format!("told {number} {sign} {bucket} {entry}");
        (!seal.is_empty() && seals.seal_now(connection, &message) == seal).then_some(changed)
    }

    fn parse(notice: &ErrorFields) -> Option<(Self, &str)> {
        let mut words = notice.message().split(' ');
        let number = words.next()?.parse().ok()?;
        let is_added = match words.next()? {
            "+" => true,
            "-" => false,
            _ => return None,
        };
        let bucket = words.next()?.parse().ok()?;
        let seal = words.next()?;
        (words.next().is_none() && notice.get(b'V') == Some("INFO")).then_some(())?;
        Some((Self { number, is_added, bucket, entry: notice.get(b'D')?.to_owned() }, seal))
    }
}

/// SQL that removes and adds entries, given as texts of arrays, on the node where they belong; and its parameters.
/// `builds`: the index is being made. Requires: the connection knows its moment.
///
/// Its errors are the node's: 23505 as PostgreSQL words it for the index.
pub fn keep_sql(
    connection: &NodeConnection,
    number: u32,
    (removed, added): (String, String),
    builds: bool,
    seals: &Seals,
) -> (String, Vec<String>) {
    let is_built = if builds { "t" } else { "f" };
    let message =
        format!("keep unique {number} {is_built} {} {}", digest(&removed), digest(&added));
    let seal = seals.seal_now(connection, &message);
    (
        format!("SELECT tutti.keep_unique({number}, $1, $2, {builds}, $3)"),
        vec![removed, added, seal],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_of_changes_are_told_from_others() {
        let notice = |severity, message: &str| {
            ErrorFields::with_severity(severity, "00000", message).with(b'D', "(a,1)")
        };
        assert_eq!(
            Changed::parse(&notice("INFO", "17 + 1023 5ea1")),
            Some((
                Changed { number: 17, is_added: true, bucket: 1023, entry: "(a,1)".to_owned() },
                "5ea1"
            ))
        );
        for (severity, message) in [
            ("NOTICE", "17 + 3 5ea1"),
            ("INFO", "17 * 3 5ea1"),
            ("INFO", "17 + 3"),
            ("INFO", "17 + 3 5ea1 4"),
            ("INFO", "hello"),
        ] {
            assert_eq!(Changed::parse(&notice(severity, message)), None);
        }
    }
}
