//! Types of tables' rows that node 1 alone has, where a statement names them.
//!
//! Owns: which names these are. Every relation gives its name to the type of its rows, and other nodes lack those of
//! home tables: there a bare name means the next one of the search path.
//! Never: decides where a statement runs.

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, TypeName};

use super::built_in_types;
use super::context::Context;
use super::syntax::string;
use crate::catalog::{Placement, Relation};
use crate::walk;

/// The type named, if it is that of a home table's rows.
fn of_home<'a>(name: &TypeName, context: &Context<'a>) -> Option<&'a Arc<Relation>> {
    let (schema, name) = match name.names.as_slice() {
        [name] => (None, string(name)?),
        [schema, name] => (Some(string(schema)?), string(name)?),
        _ => return None,
    };
    if schema.is_none() && built_in_types::is_built_in(name) && !context.scope.puts_others_first() {
        return None;
    }
    let relation = context.catalog.resolve(context.scope, schema, name)?;
    (relation.placement == Placement::Home).then_some(relation)
}

/// A home table whose type of rows the statement names, anywhere.
pub(super) fn named<'a>(tree: &NodeEnum, context: &Context<'a>) -> Option<&'a Arc<Relation>> {
    let mut found = type_name(tree).and_then(|name| of_home(name, context));
    walk::read::children(tree, &mut |child: &Node| {
        if let (None, Some(child)) = (found, &child.node) {
            found = named(child, context);
        }
    });
    found
}

/// The same at this node of a statement alone, where a node that lacks it would take another for it.
pub(super) fn mistakable<'a>(tree: &NodeEnum, context: &Context<'a>) -> Option<&'a Arc<Relation>> {
    let name = type_name(tree)?;
    let [bare] = name.names.as_slice() else { return None };
    let (relation, bare) = (of_home(name, context)?, string(bare)?);
    let catalog = context.catalog;
    let is_elsewhere = |schema: &String| {
        let others = catalog.relations.get(schema).and_then(|all| all.get(bare));
        others.is_some_and(|other| other.placement != Placement::Home)
    };
    let has_type = catalog.code.types_named(bare).next().is_some();
    (has_type || context.scope.search_path.iter().any(is_elsewhere)).then_some(relation)
}

fn type_name(tree: &NodeEnum) -> Option<&TypeName> {
    match tree {
        NodeEnum::TypeCast(cast) => cast.type_name.as_ref(),
        NodeEnum::ColumnDef(column) => column.type_name.as_ref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::fixture;

    #[test]
    fn types_of_home_rows_are_found_by_the_search_path() {
        let (catalog, scope) = (fixture::shop(2), fixture::shop_scope());
        let context = Context::new(&catalog, &scope);
        for (sql, expected) in [
            ("SELECT NULL::home", true),
            ("SELECT f(CAST($1 AS public.home[]))", true),
            ("SELECT * FROM json_to_record('{}') AS t(n home)", true),
            ("SELECT home FROM home", false),
            ("SELECT NULL::text", false),
            ("SELECT NULL::other.home", false),
        ] {
            let statement = crate::statement::parse(sql).unwrap().pop().unwrap();
            assert_eq!(named(&statement.tree, &context).is_some(), expected, "{sql}");
        }
    }
}
