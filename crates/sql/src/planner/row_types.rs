//! Types of tables' rows that node 1 alone has, where a statement names them.
//!
//! Owns: which names these are. Every relation gives its name to the type of its rows, and other nodes lack those of
//! home tables: there a bare name means the next one of the search path.
//! Never: decides where a statement runs.

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, ObjectType, TypeName};

use super::context::Context;
use super::syntax::{OWN_CAST, string};
use crate::built_in_types;
use crate::catalog::{Placement, Relation};
use crate::closure::mistakable_rows;
use crate::code::{may_name, types_of_name, words_of};
use crate::refusal::Refusal;
use crate::statement::{Statement, tokens};
use crate::walk;

/// The type named, if it is that of a home table's rows.
fn of_home<'a>(name: &TypeName, context: &Context<'a>) -> Option<&'a Arc<Relation>> {
    let (schema, bare) = parts(name)?;
    let is_built_in = types_of_name(bare).any(built_in_types::is_built_in);
    if schema.is_none() && is_built_in && !context.scope.puts_others_first() {
        return None;
    }
    of_rows(name, context, &is_home)
}

/// Its schema, if it is said, and the name itself.
fn parts(name: &TypeName) -> Option<(Option<&str>, &str)> {
    Some(match name.names.as_slice() {
        [name] => (None, string(name)?),
        [.., schema, name] => (Some(string(schema)?), string(name)?),
        _ => return None,
    })
}

/// The relation whose rows, or arrays of them, the name may mean, if it is one of these.
fn of_rows<'a>(
    name: &TypeName,
    context: &Context<'a>,
    is_one: &dyn Fn(&Arc<Relation>) -> bool,
) -> Option<&'a Arc<Relation>> {
    let (schema, name) = parts(name)?;
    let relation = |name: &str| context.catalog.resolve(context.scope, schema, name);
    types_of_name(name).find_map(|name| relation(name).filter(|it| is_one(it)))
}

fn is_home(relation: &Arc<Relation>) -> bool {
    relation.placement == Placement::Home
}

/// A home table whose type of rows the statement names, anywhere.
pub(super) fn named<'a>(tree: &NodeEnum, context: &Context<'a>) -> Option<&'a Arc<Relation>> {
    first_named(tree, &|name| of_home(name, context))
}

/// What the first name of a type in the tree means of which something is found.
fn first_named<'a>(
    tree: &NodeEnum,
    find: &dyn Fn(&TypeName) -> Option<&'a Arc<Relation>>,
) -> Option<&'a Arc<Relation>> {
    let mut found = type_name(tree).and_then(find);
    walk::read::children(tree, &mut |child: &Node| {
        if let (None, Some(child)) = (found, &child.node) {
            found = first_named(child, find);
        }
    });
    found
}

/// A change of the schema that other nodes make too names a type bare that means another one there.
///
/// Errors: 0A000.
pub(super) fn refuse_mistakable(
    statement: &Statement,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let Ok(tokens) = tokens::scan(&statement.text) else { return Ok(()) };
    let is_of_types = is_of_types(&statement.tree);
    let path = &context.scope.search_path;
    let names = words_of(&tokens).names;
    let bare = names.iter().filter(|it| it.before.is_none() && (it.casts || is_of_types));
    for name in bare {
        let other = if is_temporary_namesake(&name.name, context) {
            "It is a temporary one, which node 1 alone has; other nodes find one in a schema of the search path."
                .to_owned()
        } else if let Some(table) = mistakable_rows(context.catalog, path, &name.name) {
            format!(
                "It is the type of rows of {}, which node 1 alone has; other nodes find one in a later schema of the \
                 search path.",
                table.sql_name()
            )
        } else {
            continue;
        };
        return Err(Refusal::unsupported(
            format!("type \"{}\" is another one on other nodes", name.name),
            other,
            "Write the type with its schema.",
        ));
    }
    Ok(())
}

/// Whether a temporary object's name is that of a type in a schema of the search path too.
fn is_temporary_namesake(name: &str, context: &Context<'_>) -> bool {
    let (scope, catalog) = (context.scope, context.catalog);
    let is_there = |schema: &String| {
        types_of_name(name).any(|name| {
            catalog.relations.get(schema).is_some_and(|all| all.contains_key(name))
                || catalog.code.has_type(schema, name)
        })
    };
    scope.temporary.iter().chain(&scope.temporary_code).any(|of| may_name(name, of))
        && scope.search_path.iter().any(is_there)
}

/// Whether types stand in it without anything that says so.
fn is_of_types(tree: &NodeEnum) -> bool {
    let is_code = |kind: ObjectType| {
        matches!(
            kind,
            ObjectType::ObjectFunction
                | ObjectType::ObjectProcedure
                | ObjectType::ObjectRoutine
                | ObjectType::ObjectAggregate
                | ObjectType::ObjectOperator
                | ObjectType::ObjectCast
                | ObjectType::ObjectOpclass
                | ObjectType::ObjectOpfamily
        )
    };
    match tree {
        NodeEnum::CreateFunctionStmt(_)
        | NodeEnum::AlterFunctionStmt(_)
        | NodeEnum::DefineStmt(_)
        | NodeEnum::CompositeTypeStmt(_)
        | NodeEnum::CreateDomainStmt(_)
        | NodeEnum::CreateRangeStmt(_)
        | NodeEnum::CreateCastStmt(_)
        | NodeEnum::CreateOpClassStmt(_)
        | NodeEnum::AlterOpFamilyStmt(_)
        | NodeEnum::AlterOperatorStmt(_) => true,
        NodeEnum::DropStmt(drop) => is_code(drop.remove_type()),
        NodeEnum::RenameStmt(rename) => is_code(rename.rename_type()),
        NodeEnum::AlterOwnerStmt(alter) => is_code(alter.object_type()),
        NodeEnum::AlterObjectSchemaStmt(alter) => is_code(alter.object_type()),
        NodeEnum::GrantStmt(grant) => is_code(grant.objtype()),
        _ => false,
    }
}

fn type_name(tree: &NodeEnum) -> Option<&TypeName> {
    match tree {
        NodeEnum::TypeCast(cast) if cast.location != OWN_CAST => cast.type_name.as_ref(),
        NodeEnum::ColumnDef(column) => column.type_name.as_ref(),
        NodeEnum::RangeTableFuncCol(column) => column.type_name.as_ref(),
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
