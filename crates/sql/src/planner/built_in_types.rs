//! The types of PostgreSQL's own that are reviewed, by name.
//!
//! Owns: what the text of each may mean. A type that is not in the table may be a user's, or a domain over any.
//! Never: knows a column's type, which the catalog has by OID.

/// What a text may mean that becomes a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Meaning {
    /// The same everywhere and at any time.
    Fixed,
    /// The time when it is read ("now", "today").
    Time,
    /// A number that each node assigns by itself, or the name of something that has one.
    Local,
}

use Meaning::{Fixed, Local, Time};

const TYPES: [(&str, Meaning); 59] = [
    ("bit", Fixed),
    ("bool", Fixed),
    ("box", Fixed),
    ("bpchar", Fixed),
    ("bytea", Fixed),
    ("char", Fixed),
    ("cid", Local),
    ("cidr", Fixed),
    ("circle", Fixed),
    ("date", Time),
    ("float4", Fixed),
    ("float8", Fixed),
    ("inet", Fixed),
    ("int2", Fixed),
    ("int4", Fixed),
    ("int4range", Fixed),
    ("int8", Fixed),
    ("int8range", Fixed),
    ("interval", Fixed),
    ("json", Fixed),
    ("jsonb", Fixed),
    ("jsonpath", Fixed),
    ("line", Fixed),
    ("lseg", Fixed),
    ("macaddr", Fixed),
    ("macaddr8", Fixed),
    ("money", Fixed),
    ("name", Fixed),
    ("numeric", Fixed),
    ("numrange", Fixed),
    ("oid", Local),
    ("path", Fixed),
    ("point", Fixed),
    ("polygon", Fixed),
    ("regclass", Local),
    ("regcollation", Local),
    ("regconfig", Local),
    ("regdictionary", Local),
    ("regnamespace", Local),
    ("regoper", Local),
    ("regoperator", Local),
    ("regproc", Local),
    ("regprocedure", Local),
    ("regrole", Local),
    ("regtype", Local),
    ("text", Fixed),
    ("tid", Local),
    ("time", Time),
    ("timestamp", Time),
    ("timestamptz", Time),
    ("timetz", Time),
    ("tsquery", Fixed),
    ("tsvector", Fixed),
    ("uuid", Fixed),
    ("varbit", Fixed),
    ("varchar", Fixed),
    ("xid", Local),
    ("xid8", Local),
    ("xml", Fixed),
];

fn meaning(name: &str) -> Option<Meaning> {
    TYPES.iter().find(|(known, _)| *known == name).map(|(_, meaning)| *meaning)
}

/// Whether it is the name of a type in the table.
pub(super) fn is_built_in(name: &str) -> bool {
    meaning(name).is_some()
}

/// Whether it is the name of a type whose values are a node's own.
pub(super) fn is_local(name: &str) -> bool {
    meaning(name) == Some(Local)
}

/// Whether it is the name of a type whose texts may say now.
pub(super) fn is_time(name: &str) -> bool {
    meaning(name) == Some(Time)
}

/// The same, or of a type that is not known: a domain may be of any.
pub(super) fn may_be_time(name: &str) -> bool {
    meaning(name).is_none_or(|meaning| meaning == Time)
}
