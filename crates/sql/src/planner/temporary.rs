//! Which names mean temporary objects of the session, which node 1 alone has.
//!
//! Owns: reading that off a name. Never: tracks what is temporary; the session does
//! ([`crate::catalog::NameScope::temporary`]).
//! Start reading at [`is_temporary`].

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, RangeVar};

use super::context::Context;
use super::syntax::string;

/// Whether `range` means, or will be, a temporary relation of this session.
pub(super) fn is_temporary(range: &RangeVar, context: &Context<'_>) -> bool {
    range.relpersistence == "t" || names_temporary(&range.schemaname, &range.relname, context)
}

/// Whether all of these nodes are temporary relations; false for none.
pub(super) fn all_temporary(ranges: &[Node], context: &Context<'_>) -> bool {
    !ranges.is_empty()
        && ranges.iter().all(|range| match &range.node {
            Some(NodeEnum::RangeVar(range)) => is_temporary(range, context),
            _ => false,
        })
}

pub(super) fn names_temporary(schema: &str, name: &str, context: &Context<'_>) -> bool {
    match schema {
        "" => context.scope.temporary.iter().any(|temporary| temporary == name),
        schema => is_temporary_schema(schema),
    }
}

/// Whether a qualified name begins with `pg_temp`.
pub(super) fn is_in_temporary_schema(name: &[Node]) -> bool {
    1 < name.len() && name.first().and_then(string).is_some_and(is_temporary_schema)
}

pub(super) fn is_temporary_schema(schema: &str) -> bool {
    schema == "pg_temp" || schema.starts_with("pg_temp_")
}

/// Whether a function, an operator, an aggregate or a type is temporary. Only types are looked up among
/// temporary objects where no schema is named.
pub(super) fn is_temporary_code(object: &Node, context: &Context<'_>) -> bool {
    match &object.node {
        Some(NodeEnum::ObjectWithArgs(object)) => is_in_temporary_schema(&object.objname),
        Some(NodeEnum::TypeName(name)) => is_temporary_type(&name.names, context),
        // Of an operator class or family the access method comes first.
        Some(NodeEnum::List(list)) => {
            is_in_temporary_schema(&list.items)
                || list.items.get(1..).is_some_and(is_in_temporary_schema)
        }
        _ => false,
    }
}

pub(super) fn is_temporary_type(names: &[Node], context: &Context<'_>) -> bool {
    let known = |name: &str| {
        let scope = &context.scope;
        scope.temporary.iter().chain(&scope.temporary_code).any(|temporary| temporary == name)
    };
    match names {
        [name] => string(name).is_some_and(known),
        names => is_in_temporary_schema(names),
    }
}
