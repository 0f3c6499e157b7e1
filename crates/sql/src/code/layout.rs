//! Where values in binary format say numbers of types and of tables.
//!
//! Owns: which types' values do, as their send functions write them (`array_send`, `record_send`, `range_send`, … of
//! PostgreSQL). Never: reads a value (`tutti_link` does).
//! Start reading at [`Code::layout`].

use super::{Code, FIRST_USER_OID, TypeKind};

const RECORD: u32 = 2249;
const RECORD_ARRAY: u32 = 2287;
/// anyarray, as some statistics are.
const ANY_ARRAY: u32 = 2277;
const REGCLASS: u32 = 2205;
const REGCLASS_ARRAY: u32 = 2210;
const REGTYPE: u32 = 2206;
const REGTYPE_ARRAY: u32 = 2211;

/// How values of a type are written in binary, as far as they say numbers of types or of tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layout {
    /// They say none.
    Plain,
    /// The type of the elements, and then these.
    Array,
    /// Each field with its type.
    Row,
    /// The one or the other: a table's row, or an array of such, all fields of which are of PostgreSQL's own types.
    RowOrArray,
    /// Two bounds of this type.
    Range(u32),
    /// Ranges of this type.
    Multirange(u32),
    /// A type's number.
    OfType,
    /// A table's number.
    OfTable,
}

impl Code {
    /// How values of a type are written. Types are as node 1 numbers them.
    pub fn layout(&self, oid: u32) -> Layout {
        match oid {
            RECORD => return Layout::Row,
            RECORD_ARRAY | ANY_ARRAY | REGCLASS_ARRAY | REGTYPE_ARRAY => return Layout::Array,
            REGCLASS => return Layout::OfTable,
            REGTYPE => return Layout::OfType,
            _ if oid < FIRST_USER_OID => return Layout::Plain,
            _ if self.elements.contains_key(&oid) => return Layout::Array,
            _ => (),
        }
        // Of tables' row types, only those are read that have code, or parts that may have.
        let Some(of) = self.types.get(&oid) else { return Layout::RowOrArray };
        match (of.kind, of.parts.first()) {
            (TypeKind::Domain, Some(below)) => self.layout(*below),
            (TypeKind::Row, _) => Layout::Row,
            (TypeKind::Range, Some(bound)) => Layout::Range(*bound),
            (TypeKind::Multirange, Some(range)) => Layout::Multirange(*range),
            (TypeKind::Base | TypeKind::Domain | TypeKind::Range | TypeKind::Multirange, _) => {
                Layout::Plain
            }
        }
    }

    /// Whether values of a type say, in binary, numbers that may differ between servers.
    pub fn says_numbers(&self, oid: u32) -> bool {
        match self.layout(oid) {
            Layout::Plain => false,
            Layout::Range(below) | Layout::Multirange(below) => self.says_numbers(below),
            Layout::Row => self.types.get(&oid).is_none_or(|of| {
                of.parts.iter().any(|part| FIRST_USER_OID <= *part || self.says_numbers(*part))
            }),
            Layout::Array | Layout::RowOrArray | Layout::OfType | Layout::OfTable => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::TypeCode;

    #[test]
    fn domains_are_written_as_what_they_are_made_of() {
        let mut code = Code::default();
        let mut add = |oid: u32, kind, parts: &[u32]| {
            code.add_type(
                oid,
                oid + 100,
                TypeCode { kind, parts: parts.to_vec(), ..TypeCode::default() },
            );
        };
        add(20_000, TypeKind::Base, &[]);
        add(20_001, TypeKind::Domain, &[20_100]);
        add(20_002, TypeKind::Domain, &[25]);
        add(20_003, TypeKind::Row, &[25, 20_000]);
        add(20_004, TypeKind::Row, &[25, 23]);
        add(20_005, TypeKind::Range, &[701]);
        add(20_006, TypeKind::Range, &[20_003]);
        for (oid, layout, says) in [
            (20_000, Layout::Plain, false),
            (20_100, Layout::Array, true),
            (20_001, Layout::Array, true),
            (20_002, Layout::Plain, false),
            (20_003, Layout::Row, true),
            (20_004, Layout::Row, false),
            (20_005, Layout::Range(701), false),
            (20_006, Layout::Range(20_003), true),
            (20_200, Layout::RowOrArray, true),
            (RECORD, Layout::Row, true),
            (1009, Layout::Plain, false),
        ] {
            assert_eq!((code.layout(oid), code.says_numbers(oid)), (layout, says), "{oid}");
        }
    }
}
