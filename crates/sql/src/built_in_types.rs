//! The types of PostgreSQL's own that are reviewed, by name.
//!
//! Owns: what the text of each may mean. A type that is not in the table may be a user's, or a domain over any.
//! Never: knows a column's type, which the catalog has by OID.

/// OIDs from here on are of what users have made (`FirstNormalObjectId` in PostgreSQL's transam.h): what reads values of such
/// a type on a node may be their code.
pub(crate) const FIRST_OF_USERS: u32 = 16_384;

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

/// Whose statements have values of a type.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Use {
    /// The gateway's own too, or rows on their way between nodes.
    Ours,
    /// Clients' alone.
    Clients,
}

const TYPES: [(&str, Meaning, Use); 59] = [
    ("bit", Fixed, Use::Clients),
    ("bool", Fixed, Use::Ours),
    ("box", Fixed, Use::Clients),
    ("bpchar", Fixed, Use::Ours),
    ("bytea", Fixed, Use::Ours),
    ("char", Fixed, Use::Ours),
    ("cid", Local, Use::Clients),
    ("cidr", Fixed, Use::Clients),
    ("circle", Fixed, Use::Clients),
    ("date", Time, Use::Ours),
    ("float4", Fixed, Use::Ours),
    ("float8", Fixed, Use::Ours),
    ("inet", Fixed, Use::Clients),
    ("int2", Fixed, Use::Ours),
    ("int4", Fixed, Use::Ours),
    ("int4range", Fixed, Use::Clients),
    ("int8", Fixed, Use::Ours),
    ("int8range", Fixed, Use::Clients),
    ("interval", Fixed, Use::Ours),
    ("json", Fixed, Use::Ours),
    ("jsonb", Fixed, Use::Ours),
    ("jsonpath", Fixed, Use::Clients),
    ("line", Fixed, Use::Clients),
    ("lseg", Fixed, Use::Clients),
    ("macaddr", Fixed, Use::Clients),
    ("macaddr8", Fixed, Use::Clients),
    ("money", Fixed, Use::Clients),
    ("name", Fixed, Use::Ours),
    ("numeric", Fixed, Use::Ours),
    ("numrange", Fixed, Use::Clients),
    ("oid", Local, Use::Ours),
    ("path", Fixed, Use::Clients),
    ("point", Fixed, Use::Clients),
    ("polygon", Fixed, Use::Clients),
    ("regclass", Local, Use::Ours),
    ("regcollation", Local, Use::Clients),
    ("regconfig", Local, Use::Clients),
    ("regdictionary", Local, Use::Clients),
    ("regnamespace", Local, Use::Ours),
    ("regoper", Local, Use::Clients),
    ("regoperator", Local, Use::Ours),
    ("regproc", Local, Use::Ours),
    ("regprocedure", Local, Use::Ours),
    ("regrole", Local, Use::Ours),
    ("regtype", Local, Use::Ours),
    ("text", Fixed, Use::Ours),
    ("tid", Local, Use::Ours),
    ("time", Time, Use::Clients),
    ("timestamp", Time, Use::Ours),
    ("timestamptz", Time, Use::Ours),
    ("timetz", Time, Use::Clients),
    ("tsquery", Fixed, Use::Clients),
    ("tsvector", Fixed, Use::Clients),
    ("uuid", Fixed, Use::Ours),
    ("varbit", Fixed, Use::Clients),
    ("varchar", Fixed, Use::Ours),
    ("xid", Local, Use::Ours),
    ("xid8", Local, Use::Ours),
    ("xml", Fixed, Use::Clients),
];

fn meaning(name: &str) -> Option<Meaning> {
    TYPES.iter().find(|(known, ..)| *known == name).map(|(_, meaning, _)| *meaning)
}

/// Whether it is the name of a type in the table.
pub(crate) fn is_built_in(name: &str) -> bool {
    meaning(name).is_some()
}

/// Whether it is the name of a type that the gateway's own statements have values of.
pub(crate) fn is_of_own_statements(name: &str) -> bool {
    TYPES.iter().any(|(known, _, used)| *known == name && *used == Use::Ours)
}

/// Whether it is the name of a type whose values are a node's own.
pub(crate) fn is_local(name: &str) -> bool {
    meaning(name) == Some(Local)
}

/// Whether it is the name of a type whose texts may say now.
pub(crate) fn is_time(name: &str) -> bool {
    meaning(name) == Some(Time)
}

/// The same, or of a type that is not known: a domain may be of any.
pub(crate) fn may_be_time(name: &str) -> bool {
    meaning(name).is_none_or(|meaning| meaning == Time)
}
