//! What values are cast to before they travel to the column that stores them.
//!
//! Owns: that a value which is too long is refused, as in an assignment, and not cut, as by an explicit cast.
//! Never: casts anything to a type with a length.
//! Start reading at [`cast_to_store`].
//!
//! An explicit cast to a domain over `varchar(3)` cuts, for the length is the domain's (`coerce_type_typmod` in
//! PostgreSQL's parse_coerce.c). So the cast is to what the domain is made of, without a length; and the text that travels
//! is read as a value of the column's own type, which says when it is too long.

use super::context::Context;
use crate::built_in_types::FIRST_OF_USERS;
use crate::catalog::Column;
use crate::code::{Code, TypeKind};

/// Built-in types with a length that an explicit cast cuts values to, with their names without one: characters and bits,
/// and arrays of such.
const WITH_LENGTHS: [(u32, &str); 8] = [
    (1042, "pg_catalog.bpchar"),
    (1043, "pg_catalog.varchar"),
    (1560, "pg_catalog.\"bit\""),
    (1562, "pg_catalog.varbit"),
    (1014, "pg_catalog.bpchar[]"),
    (1015, "pg_catalog.varchar[]"),
    (1561, "pg_catalog.\"bit\"[]"),
    (1563, "pg_catalog.varbit[]"),
];

/// The value, cast to what the column stores.
pub(super) fn cast_to_store(value: &str, of: &Column, context: &Context<'_>) -> String {
    match cast_to(of.type_oid, &context.catalog.code) {
        Cast::ToItself => format!("CAST({value} AS {})", of.type_name),
        Cast::To(name) => format!("CAST({value} AS {name})"),
        Cast::ToNothing => value.to_owned(),
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Cast {
    ToItself,
    To(String),
    /// Fields of a composite type are cast with it, each to its length.
    ToNothing,
}

fn cast_to(type_oid: u32, code: &Code) -> Cast {
    let base = base_of(type_oid, code);
    if let Some(name) = without_length(base) {
        return match base == type_oid {
            true => Cast::ToItself,
            false => Cast::To(name.to_owned()),
        };
    }
    if let Some(element) = code.elements.get(&base).copied() {
        let of_element = base_of(element, code);
        return match without_length(of_element) {
            Some(name) => Cast::To(format!("{}[]", name.trim_end_matches("[]"))),
            None if holds_lengths(of_element, code) => Cast::ToNothing,
            None => Cast::ToItself,
        };
    }
    // What is not known is a table's row: of those only some are read.
    let is_unknown = FIRST_OF_USERS <= base && !code.types.contains_key(&base);
    match is_unknown || holds_lengths(base, code) {
        true => Cast::ToNothing,
        false => Cast::ToItself,
    }
}

fn without_length(oid: u32) -> Option<&'static str> {
    WITH_LENGTHS.iter().find(|(of, _)| *of == oid).map(|(_, name)| *name)
}

/// What a domain is made of, in the end.
fn base_of(oid: u32, code: &Code) -> u32 {
    let domain = code.types.get(&oid).filter(|of| of.kind == TypeKind::Domain);
    match domain.and_then(|of| of.parts.first()) {
        Some(part) => base_of(*part, code),
        None => oid,
    }
}

/// Whether a part of this type has a length, or may have one.
fn holds_lengths(oid: u32, code: &Code) -> bool {
    let parts = || code.types.get(&oid).into_iter().flat_map(|of| &of.parts);
    without_length(oid).is_some()
        || code.elements.get(&oid).is_some_and(|element| holds_lengths(*element, code))
        || parts().any(|part| holds_lengths(*part, code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::TypeCode;

    const OWN: u32 = 20_000;

    /// Types by their numbers: what each is made of, and whether it is a domain. The array of each is 100 above.
    fn cast(types: &[(u32, &[u32], bool)], oid: u32) -> Cast {
        let mut code = Code::default();
        for (oid, parts, is_domain) in types {
            let kind = if *is_domain { TypeKind::Domain } else { TypeKind::Base };
            let of = TypeCode { parts: parts.to_vec(), kind, ..TypeCode::default() };
            code.add_type(*oid, *oid + 100, of);
        }
        cast_to(oid, &code)
    }

    #[test]
    fn lengths_of_domains_are_left_to_what_stores_them() {
        let types: &[(u32, &[u32], bool)] = &[
            (OWN, &[1043], true),
            (OWN + 1, &[OWN], true),
            (OWN + 2, &[23, 1560], false),
            (OWN + 3, &[OWN + 2], true),
            (OWN + 4, &[25], true),
            (OWN + 5, &[OWN + 101], true),
            (OWN + 6, &[23, 25], false),
            (OWN + 7, &[1015], true),
        ];
        let to = |name: &str| Cast::To(name.to_owned());
        assert_eq!(cast(types, OWN), to("pg_catalog.varchar"));
        assert_eq!(cast(types, OWN + 1), to("pg_catalog.varchar"));
        assert_eq!(cast(types, OWN + 101), to("pg_catalog.varchar[]"));
        assert_eq!(cast(types, OWN + 5), to("pg_catalog.varchar[]"));
        assert_eq!(cast(types, OWN + 7), to("pg_catalog.varchar[]"));
        for composite in [OWN + 2, OWN + 3, OWN + 102, OWN + 103] {
            assert_eq!(cast(types, composite), Cast::ToNothing, "{composite}");
        }
        assert_eq!(cast(types, OWN + 50), Cast::ToNothing);
        for plain in [1043, 1560, 23, OWN + 4, OWN + 6, OWN + 104, OWN + 106] {
            assert_eq!(cast(types, plain), Cast::ToItself, "{plain}");
        }
    }
}
