//! Entries: unique indexes that hold over all nodes without containing the distribution key, and foreign keys that do
//! without pairing the distribution keys.
//!
//! Owns: the SQL by which a node makes what keeps one, tells what has changed of its values, keeps its entries, and checks
//! what they refer to, with the seals it takes; and what the catalog stores of them.
//! Never: sends any of it, or decides on which node an entry is; the gateway's executor does.
//! Start reading at [`drain_sql`]; what it calls is `entries.sql`, `unique.sql` and `references.sql`, the reasons are
//! docs/decisions/2026-11-27-global-unique.md and 2026-11-30-foreign-keys-over-nodes.md.

use serde::Deserialize;
use tutti_link::connection::NodeConnection;
use tutti_link::seals::{Seals, digest};
use tutti_sql::catalog::{Column, Kept, KeptKind, MapId, quote_literal};
use tutti_sql::hash::KeyType;
use tutti_sql::plan::Truncated;
use tutti_wire::error_fields::ErrorFields;

use super::placement::sealed_message;
use super::text_array::TextArray;

/// Of what there are entries: in this order they are changed, for what refers to values of unique indexes comes behind
/// these.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum EntryKind {
    /// A unique index.
    Unique,
    /// A foreign key.
    Reference,
}

impl EntryKind {
    /// As the schema `tutti` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::Reference => "reference",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Unique, Self::Reference].into_iter().find(|kind| kind.name() == name)
    }
}

impl From<&KeptKind> for EntryKind {
    fn from(kind: &KeptKind) -> Self {
        match kind {
            KeptKind::Unique => Self::Unique,
            KeptKind::Reference { .. } => Self::Reference,
        }
    }
}

/// What entries are kept of, of one relation, and which of its columns entries refer to.
#[derive(Debug, Default)]
pub(super) struct OfRelation {
    pub kept: Vec<Kept>,
    pub referred: Vec<usize>,
}

/// As `tutti.kept_of` tells it. Columns are attribute numbers.
#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    unique: Vec<StoredIndex>,
    #[serde(default)]
    references: Vec<StoredReference>,
    #[serde(default)]
    referred: Vec<i16>,
}

#[derive(Deserialize)]
struct StoredIndex {
    number: u32,
    columns: Vec<i16>,
}

#[derive(Deserialize)]
struct StoredReference {
    number: u32,
    columns: Vec<i16>,
    map: u32,
    name: String,
    deferrable: bool,
    deferred: bool,
}

/// `None` if it is not such a text, or names columns that are not there.
pub(super) fn read(stored: &str, columns: &[(i16, Column)]) -> Option<OfRelation> {
    let stored: Stored = serde_json::from_str(stored).ok()?;
    let positions = |attnums: Vec<i16>| -> Option<Vec<usize>> {
        let position = |attnum| columns.iter().position(|(found, _)| *found == attnum);
        attnums.into_iter().map(position).collect()
    };
    let mut kept = Vec::new();
    for StoredIndex { number, columns } in stored.unique {
        kept.push(Kept { number, columns: positions(columns)?, kind: KeptKind::Unique });
    }
    for StoredReference { number, columns, map, name, deferrable, deferred } in stored.references {
        let kind = KeptKind::Reference { map: MapId(map), name, deferrable, deferred };
        kept.push(Kept { number, columns: positions(columns)?, kind });
    }
    Some(OfRelation { kept, referred: positions(stored.referred)? })
}

/// Computes the bucket of a value; the value stands for `{}`.
fn bucket_sql(key_type: KeyType) -> String {
    key_type.sql_hash_bucket("{}")
}

/// SQL that makes what keeps a unique index on one node, and its parameters. Requires: the connection knows its moment.
///
/// Its errors are the node's: 0A000 for an index that cannot be kept so.
pub fn make_unique_sql(
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

/// A foreign key that is to hold over all nodes, as `tutti.wanted_references` tells of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WantedReference {
    /// What its entries are to be called by.
    pub number: u32,
    /// The schema of its table.
    pub schema: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Where its entries can be; `None`: nowhere.
    pub place: Option<EntryPlace>,
    /// Of the column that its table is distributed by, if that is one: its type, as node 1 numbers it, and the map.
    pub key: Option<(u32, MapId)>,
}

/// What says on which node an entry is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EntryPlace {
    /// The column whose value is hashed.
    pub column: String,
    /// The column's type, as node 1 numbers it.
    pub type_oid: u32,
    /// The type of the column that it refers to, likewise.
    pub referred_type_oid: u32,
    /// The bucket map.
    pub map: MapId,
}

/// SQL that tells which foreign keys that the open transaction has made hold by entries alone.
pub const WANTED_REFERENCES: &str = "SELECT * FROM tutti.wanted_references()";

impl WantedReference {
    /// A row of the answer to [`WANTED_REFERENCES`]; `None` if it is none.
    pub fn read(rows: &tutti_link::Rows, row: usize) -> Option<Self> {
        let text = |column| rows.text(row, column).map(str::to_owned);
        let place = match text(4) {
            Some(column) => Some(EntryPlace {
                column,
                type_oid: text(5)?.parse().ok()?,
                referred_type_oid: text(6)?.parse().ok()?,
                map: MapId(text(7)?.parse().ok()?),
            }),
            None => None,
        };
        let key = match (text(8), text(9)) {
            (Some(key_type), Some(map)) => Some((key_type.parse().ok()?, MapId(map.parse().ok()?))),
            _ => None,
        };
        Some(Self {
            number: text(0)?.parse().ok()?,
            schema: text(1)?,
            table: text(2)?,
            name: text(3)?,
            place,
            key,
        })
    }

    /// SQL that makes what keeps it on one node, and its parameters. `key_type`: of the value that says where an entry is;
    /// any, if it cannot be kept. `row_bucket`: computes the bucket of a row of its table, of the distribution key that stands
    /// for `{}` in it; empty, if it cannot be said so. Requires: the connection knows its moment.
    ///
    /// Its errors are the node's: 0A000 for one that cannot be kept so.
    pub fn make_sql(
        &self,
        connection: &NodeConnection,
        key_type: KeyType,
        row_bucket: &str,
        seals: &Seals,
    ) -> (String, Vec<String>) {
        let Self { number, schema, table, name, .. } = self;
        let (number, bucket) = (number.to_string(), bucket_sql(key_type));
        let message =
            sealed_message("make reference", &[schema, table, name, &number, &bucket, row_bucket]);
        let seal = seals.seal_now(connection, &message);
        let [schema, table, name, bucket, row_bucket] =
            [schema, table, name, &bucket, row_bucket].map(quote_literal);
        let sql = format!(
            "SELECT tutti.make_reference({schema}, {table}, {name}, {number}, {bucket}, {row_bucket}, $1)"
        );
        (sql, vec![seal])
    }
}

/// SQL that opens a cursor of this name over the entries that a node's rows have in what is being made, each with its
/// bucket; as the role that makes it.
pub fn entries_sql(cursor: &str, kind: EntryKind, number: u32, key_type: KeyType) -> String {
    format!(
        "DECLARE {cursor} NO SCROLL CURSOR FOR \
         SELECT in_bucket, entry FROM tutti.entries_of_rows('{}', {number}, {})",
        kind.name(),
        quote_literal(&bucket_sql(key_type))
    )
}

/// SQL that has a node tell, by a notice each, what its open transaction has changed; and its parameters. Requires: the
/// connection knows its moment.
pub fn drain_sql(connection: &NodeConnection, seals: &Seals) -> (String, Vec<String>) {
    let seal = seals.seal_now(connection, "drain entries");
    ("SELECT tutti.drain_entries($1)".to_owned(), vec![seal])
}

/// What has become of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// Its row has it from now on.
    Added,
    /// Its row has it no more.
    Removed,
    /// It is gone with what it refers to, and its row is to be acted on.
    Orphaned,
}

impl Change {
    fn sign(self) -> char {
        match self {
            Self::Added => '+',
            Self::Removed => '-',
            Self::Orphaned => '!',
        }
    }

    fn signed(sign: &str) -> Option<Self> {
        let mut all = [Self::Added, Self::Removed, Self::Orphaned].into_iter();
        all.find(|change| sign.chars().eq([change.sign()]))
    }
}

/// What a notice of [`drain_sql`] tells.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Changed {
    /// Of what the entry is.
    pub kind: EntryKind,
    /// Its number.
    pub number: u32,
    /// What has become of it.
    pub change: Change,
    /// The bucket of the value that says where it is; of one that is orphaned, where its row is.
    pub bucket: u16,
    /// The entry, as the text of a composite value.
    pub entry: String,
}

impl Changed {
    /// `None` if it is another notice. Then, too, if the node's functions have not made it, in the transaction that the
    /// connection is in: code of others may tell anything.
    pub fn read(notice: &ErrorFields, connection: &NodeConnection, seals: &Seals) -> Option<Self> {
        let (changed, seal) = Self::parse(notice)?;
        let Self { kind, number, change, bucket, entry } = &changed;
        let message = format!("told {} {number} {} {bucket} {entry}", kind.name(), change.sign());
        (!seal.is_empty() && seals.seal_now(connection, &message) == seal).then_some(changed)
    }

    fn parse(notice: &ErrorFields) -> Option<(Self, &str)> {
        let mut words = notice.message().split(' ');
        let kind = EntryKind::named(words.next()?)?;
        let number = words.next()?.parse().ok()?;
        let change = Change::signed(words.next()?)?;
        let bucket = words.next()?.parse().ok()?;
        let seal = words.next()?;
        (words.next().is_none() && notice.get(b'V') == Some("INFO")).then_some(())?;
        Some((Self { kind, number, change, bucket, entry: notice.get(b'D')?.to_owned() }, seal))
    }
}

/// SQL that removes and adds entries, given as texts of arrays, on the node where they belong; and its parameters. `flag`:
/// of a unique index, that it is being made; of a foreign key, that what is added must refer to what is there by now.
/// Requires: the connection knows its moment.
///
/// Its errors are the node's: 23505 and 23503 as PostgreSQL words them for the index or constraint.
pub fn keep_sql(
    connection: &NodeConnection,
    (kind, number): (EntryKind, u32),
    (removed, added): (String, String),
    flag: bool,
    seals: &Seals,
) -> (String, Vec<String>) {
    let kind = kind.name();
    let flagged = if flag { "t" } else { "f" };
    let message = format!("keep {kind} {number} {flagged} {} {}", digest(&removed), digest(&added));
    let seal = seals.seal_now(connection, &message);
    (format!("SELECT tutti.keep_{kind}({number}, $1, $2, {flag}, $3)"), vec![removed, added, seal])
}

/// SQL that does to rows of a node what their foreign key says, given the text of an array of their entries, which are gone
/// because what they refer to is deleted; and its parameters. Requires: the connection knows its moment.
///
/// Its errors are the node's, those of the table's triggers among them.
pub fn act_sql(
    connection: &NodeConnection,
    number: u32,
    entries: String,
    seals: &Seals,
) -> (String, Vec<String>) {
    let message = format!("act reference {number} {}", digest(&entries));
    let seal = seals.seal_now(connection, &message);
    (format!("SELECT tutti.act_on_rows({number}, $1, $2)"), vec![entries, seal])
}

/// SQL that fails if rows, or values of unique indexes over all nodes, that the open transaction has changed on a node are
/// referred to; and its parameters. `later`: the numbers of foreign keys that are checked later. Requires: the connection
/// knows its moment.
///
/// Its errors are the node's: 23503 as PostgreSQL words it for the foreign key.
pub fn check_sql(
    connection: &NodeConnection,
    later: &[u32],
    seals: &Seals,
) -> (String, Vec<String>) {
    let later: Vec<_> = later.iter().map(u32::to_string).collect();
    let later = format!("{{{}}}", later.join(","));
    let seal = seals.seal_now(connection, &format!("check references {later}"));
    ("SELECT tutti.check_references($1, $2)".to_owned(), vec![later, seal])
}

/// SQL that lets tables be truncated although entries refer to them; and its parameters. Requires: the connection knows its
/// moment, and [`bind_sql`] follows.
pub fn free_sql(
    connection: &NodeConnection,
    Truncated { tables, cascades }: &Truncated,
    seals: &Seals,
) -> (String, Vec<String>) {
    let mut names = TextArray::default();
    tables.iter().for_each(|table| names.push(table));
    let tables = names.finish();
    let flagged = if *cascades { "t" } else { "f" };
    let seal = seals.seal_now(connection, &format!("free references {flagged} {tables}"));
    (format!("SELECT tutti.free_references($1, {cascades}, $2)"), vec![tables, seal])
}

/// SQL that undoes [`free_sql`], behind the statement; and its parameters.
pub fn bind_sql(connection: &NodeConnection, seals: &Seals) -> (String, Vec<String>) {
    let seal = seals.seal_now(connection, "bind references");
    ("SELECT tutti.bind_references($1)".to_owned(), vec![seal])
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
            Changed::parse(&notice("INFO", "unique 17 + 1023 5ea1")),
            Some((
                Changed {
                    kind: EntryKind::Unique,
                    number: 17,
                    change: Change::Added,
                    bucket: 1023,
                    entry: "(a,1)".to_owned()
                },
                "5ea1"
            ))
        );
        for (severity, message) in [
            ("NOTICE", "unique 17 + 3 5ea1"),
            ("INFO", "unique 17 * 3 5ea1"),
            ("INFO", "unique 17 + 3"),
            ("INFO", "unique 17 + 3 5ea1 4"),
            ("INFO", "17 + 3 5ea1"),
            ("INFO", "hello"),
        ] {
            assert_eq!(Changed::parse(&notice(severity, message)), None);
        }
    }
}
