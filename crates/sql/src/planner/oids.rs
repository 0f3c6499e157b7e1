//! Values in which a statement would show the OIDs of whichever node answers.
//!
//! Owns: finding them. Clients know the OIDs of node 1 (RowDescription has them), so what shows OIDs
//! is computed there.
//! Never: cares for conditions: `tableoid = 't'::regclass` means the same on every node.

use pg_query::NodeEnum;
use pg_query::protobuf::{ColumnRef, Node, TypeCast};

use super::syntax::{name_of, string};
use crate::walk;

/// Whether a value that the statement returns, stores or hands on is an OID, or a name of one: in
/// binary form that is its number. `tableoid::regclass` is taken for a name; it cannot be brought
/// together from several nodes.
pub(super) fn shows(tree: &NodeEnum) -> bool {
    let mut found = match tree {
        NodeEnum::ResTarget(target) => target.val.as_deref().is_some_and(shown),
        _ => false,
    };
    walk::read::children(tree, &mut |child| {
        found = found || child.node.as_ref().is_some_and(shows);
    });
    found
}

/// The same for the value itself.
pub(super) fn shown(value: &Node) -> bool {
    let Some(node) = &value.node else { return false };
    let is_oid = match node {
        NodeEnum::TypeCast(cast) if is_reg_type(cast) => {
            if names_table(cast) {
                return false;
            }
            true
        }
        NodeEnum::ColumnRef(reference) => is_tableoid(reference),
        NodeEnum::FuncCall(call) => name_of(call).1.starts_with("to_reg"),
        // A query's own outputs are found when they are reached.
        NodeEnum::SubLink(_) => return false,
        _ => false,
    };
    let mut found = is_oid;
    walk::read::children(node, &mut |child| found = found || shown(child));
    found
}

/// Whether the statement computes with OIDs anywhere, conditions included.
pub(super) fn computes(tree: &NodeEnum) -> bool {
    let mut found = match tree {
        NodeEnum::TypeCast(cast) => is_reg_type(cast),
        NodeEnum::FuncCall(call) => name_of(call).1.starts_with("to_reg"),
        _ => false,
    };
    walk::read::children(tree, &mut |child| {
        found = found || child.node.as_ref().is_some_and(computes);
    });
    found
}

fn is_reg_type(cast: &TypeCast) -> bool {
    let name = cast.type_name.as_ref().and_then(|name| string(name.names.last()?));
    name.is_some_and(|name| name.starts_with("reg") && name != "regexp")
}

/// `tableoid::regclass`.
fn names_table(cast: &TypeCast) -> bool {
    match cast.arg.as_ref().and_then(|arg| arg.node.as_ref()) {
        Some(NodeEnum::ColumnRef(reference)) => is_tableoid(reference),
        _ => false,
    }
}

fn is_tableoid(reference: &ColumnRef) -> bool {
    reference.fields.last().and_then(string) == Some("tableoid")
}

#[cfg(test)]
mod tests {
    use super::shows;

    fn check(sql: &str, expected: bool) {
        let statement = crate::statement::parse(sql).unwrap().pop().unwrap();
        assert_eq!(shows(&statement.tree), expected, "{sql}");
    }

    #[test]
    fn what_shows_oids() {
        check("SELECT 't'::regclass::oid FROM t", true);
        check("SELECT a, tableoid FROM t", true);
        check("SELECT (SELECT to_regclass('t')) FROM t", true);
        check("UPDATE t SET a = 't'::regclass::oid", true);
        check("SELECT tableoid::regclass FROM t", false);
        check("SELECT a FROM t WHERE tableoid = 't'::regclass", false);
        check("SELECT 1 FROM t ORDER BY tableoid", false);
    }
}
