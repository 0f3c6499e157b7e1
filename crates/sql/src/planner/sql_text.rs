//! SQL text of rewritten trees, and the trees of expressions' texts.
//!
//! Owns: writing trees out and reading expressions, and the places where the library's writer would change their meaning.
//! Never: rewrites anything else.
//! Start reading at [`deparse`].

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, TypeName};

use super::syntax::string;
use crate::refusal::Refusal;
use crate::walk;

/// The SQL text of a whole statement's tree.
pub(crate) fn deparse(statement: &NodeEnum) -> Result<String, Refusal> {
    let write = |tree: &NodeEnum| {
        tree.deparse(pg_query::DeparseOptions::default()).map_err(|error| {
            Refusal::postgres(
                "XX000",
                format!("a statement could not be written out again: {error}"),
            )
        })
    };
    if !has_bare_bpchar(statement) {
        return write(statement);
    }
    let mut plain = statement.clone();
    keep_bpchar(&mut plain);
    write(&plain)
}

/// The SQL text of an expression's tree.
pub(crate) fn deparse_expression(expression: &Node) -> Result<String, Refusal> {
    // A SELECT of our own making would lack what only the parser sets, and deparsing would abort.
    let carrier = crate::statement::parse("SELECT 1")?.pop().map(|statement| statement.tree);
    let Some(NodeEnum::SelectStmt(mut select)) = carrier else {
        return Err(Refusal::postgres("XX000", "cannot read our own SQL: SELECT 1"));
    };
    for target in &mut select.target_list {
        if let Some(NodeEnum::ResTarget(target)) = &mut target.node {
            target.val = Some(Box::new(expression.clone()));
        }
    }
    let text = deparse(&NodeEnum::SelectStmt(select))?;
    Ok(text.trim_start_matches("SELECT ").to_owned())
}

/// The tree of an expression's text.
pub(super) fn parse_expression(text: &str) -> Option<Node> {
    let statement = crate::statement::parse(&format!("SELECT {text}")).ok()?.pop()?;
    let NodeEnum::SelectStmt(mut select) = statement.tree else { return None };
    match select.target_list.pop()?.node? {
        NodeEnum::ResTarget(target) if select.target_list.is_empty() => {
            target.val.map(|value| *value)
        }
        _ => None,
    }
}

/// Whether a type is `pg_catalog.bpchar` without a length. The library writes it as `char`, which
/// is one character long: it would cut values.
fn is_bare_bpchar(name: &TypeName) -> bool {
    let names = || name.names.iter().filter_map(string);
    name.typmods.is_empty() && names().eq(["pg_catalog", "bpchar"])
}

fn has_bare_bpchar(tree: &NodeEnum) -> bool {
    if let NodeEnum::TypeCast(cast) = tree
        && cast.type_name.as_ref().is_some_and(is_bare_bpchar)
    {
        return true;
    }
    let mut found = false;
    let visit = &mut |child: &Node| found |= child.node.as_ref().is_some_and(has_bare_bpchar);
    match tree {
        NodeEnum::CreateTableAsStmt(create) => create.query.as_deref().into_iter().for_each(visit),
        NodeEnum::CopyStmt(copy) => {
            copy.query.as_deref().into_iter().for_each(&mut *visit);
            copy.where_clause.as_deref().into_iter().for_each(visit);
        }
        _ => walk::read::children(tree, visit),
    }
    found
}

/// Takes the schema away: `bpchar` alone is written as it is.
fn keep_bpchar(tree: &mut NodeEnum) {
    if let NodeEnum::TypeCast(cast) = tree
        && let Some(name) = cast.type_name.as_mut().filter(|name| is_bare_bpchar(name))
    {
        name.names.remove(0);
    }
    let visit = &mut |child: &mut Node| {
        if let Some(node) = &mut child.node {
            keep_bpchar(node);
        }
    };
    match tree {
        NodeEnum::CreateTableAsStmt(create) => {
            create.query.as_deref_mut().into_iter().for_each(visit);
        }
        NodeEnum::CopyStmt(copy) => {
            copy.query.as_deref_mut().into_iter().for_each(&mut *visit);
            copy.where_clause.as_deref_mut().into_iter().for_each(visit);
        }
        _ => walk::write::children(tree, visit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(sql: &str) -> String {
        deparse(&crate::statement::parse(sql).unwrap().pop().unwrap().tree).unwrap()
    }

    #[test]
    fn a_cast_to_bpchar_does_not_get_a_length() {
        for sql in [
            "SELECT a::bpchar, ARRAY(SELECT b::bpchar[] FROM t)",
            "CREATE TABLE u AS SELECT a::bpchar FROM t",
            "COPY (SELECT a::bpchar FROM t) TO STDOUT",
        ] {
            assert_eq!(again(&sql.replace("bpchar", "pg_catalog.bpchar")), sql);
        }
        assert_eq!(again("SELECT a::char, a::char(3)"), "SELECT a::char(1), a::char(3)");
    }

    #[test]
    fn other_types_without_a_length_keep_their_meaning() {
        let sql = "SELECT a::pg_catalog.bit, a::pg_catalog.varbit, a::bit, a::pg_catalog.\"char\"";
        let written = "SELECT a::pg_catalog.bit, a::pg_catalog.varbit, a::pg_catalog.bit(1), a::pg_catalog.char";
        assert_eq!(again(sql), written);
        assert_eq!(again(written), written);
    }
}
