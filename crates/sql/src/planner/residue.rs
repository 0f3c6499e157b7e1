//! What a statement may leave behind in the server session that runs it.
//!
//! Owns: the reading of a statement by which a pool decides what to clean before the connection
//! serves another client, and when to ask the server what still binds it to this one.
//! Never: looks into the code of functions: one that is not built in may leave anything.
//! Start reading at [`residue`].

use pg_query::NodeEnum;
use pg_query::protobuf::{FuncCall, Node, RangeVar, UpdateStmt};

use super::context::Context;
use super::functions::is_built_in;
use super::sql_text::parse_expression;
use super::syntax::{name_of, string};
use super::unseen;
use crate::catalog::{Column, RelationKind, Volatility};
use crate::closure::Reach;
use crate::plan::Residue;
use crate::walk;

/// Built-in functions that draw from a sequence for the session.
const SEQUENCE_FUNCTIONS: [&str; 2] = ["nextval", "setval"];
/// Built-in functions that take or release session locks, besides transaction locks.
const LOCK_PREFIXES: [&str; 2] = ["pg_advisory_", "pg_try_advisory_"];
/// What those of transactions have in their names.
const TRANSACTION_LOCK: &str = "_xact_";

/// Reads `tree`, a whole statement.
pub(super) fn residue(tree: &NodeEnum, reach: &Reach, context: &Context<'_>) -> Residue {
    let mut found = of_tree(tree, context);
    found.anything |= reach.opaque.is_some() || reach.sets || reach.leaves;
    found.values |= reach.sets;
    found
}

/// What the query that a new table is made from leaves; nothing for other statements.
pub(super) fn of_made_table(tree: &NodeEnum, context: &Context<'_>) -> Residue {
    match tree {
        NodeEnum::CreateTableAsStmt(create) => create
            .query
            .as_ref()
            .and_then(|query| query.node.as_ref())
            .map_or_else(Residue::default, |query| of_tree(query, context)),
        _ => Residue::default(),
    }
}

fn of_tree(tree: &NodeEnum, context: &Context<'_>) -> Residue {
    let mut found = Residue::default();
    match tree {
        NodeEnum::SelectStmt(select) => {
            found.anything |= select.into_clause.is_some();
            found.schema |= select.into_clause.is_some();
            visit(tree, context, &mut found);
        }
        NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_) => visit(tree, context, &mut found),
        NodeEnum::CopyStmt(copy) => {
            found.sequences = copy.is_from;
            found.anything |= copy.is_from && runs_code(copy.relation.as_ref(), context);
            if let Some(query) = copy.query.as_ref().and_then(|query| query.node.as_ref()) {
                found.merge(of_tree(query, context));
            }
        }
        NodeEnum::ExplainStmt(explain) => {
            if let Some(query) = explain.query.as_ref().and_then(|query| query.node.as_ref()) {
                found.merge(of_tree(query, context));
            }
        }
        NodeEnum::NotifyStmt(_) => found.notifies = true,
        NodeEnum::PrepareStmt(_)
        | NodeEnum::DeallocateStmt(_)
        | NodeEnum::TransactionStmt(_)
        | NodeEnum::VariableSetStmt(_)
        | NodeEnum::VariableShowStmt(_)
        | NodeEnum::LockStmt(_)
        | NodeEnum::ConstraintsSetStmt(_)
        | NodeEnum::FetchStmt(_)
        | NodeEnum::VacuumStmt(_)
        | NodeEnum::TruncateStmt(_) => (),
        NodeEnum::ExecuteStmt(_)
        | NodeEnum::DeclareCursorStmt(_)
        | NodeEnum::ClosePortalStmt(_)
        | NodeEnum::ListenStmt(_)
        | NodeEnum::UnlistenStmt(_)
        | NodeEnum::DiscardStmt(_)
        | NodeEnum::CheckPointStmt(_)
        | NodeEnum::LoadStmt(_) => found.anything = true,
        // DO, CALL, temporary tables, schema changes, and whatever else there may be.
        _ => {
            found.anything = true;
            found.schema = true;
        }
    }
    found
}

/// Whether writing this relation runs code of the user's: a trigger, or a rule.
fn runs_code(range: Option<&RangeVar>, context: &Context<'_>) -> bool {
    range
        .and_then(|range| context.relation(range))
        .is_none_or(|relation| unseen::leaves_anything(relation, context))
}

/// Whether a default of this relation's columns may draw from a sequence.
fn may_draw(range: Option<&RangeVar>, context: &Context<'_>) -> bool {
    if context.catalog.is_solo() {
        // Nobody waits there until a change of the schema has been read.
        return true;
    }
    let relation = range.and_then(|range| context.relation(range));
    // What stands behind a view or a foreign table has defaults of its own; so has a domain.
    let is_plain = |column: &Column| {
        !column.domain
            && column.identity.is_none()
            && column.default.as_deref().is_none_or(|default| {
                parse_expression(default).is_some_and(|default| is_value(&default))
            })
    };
    relation.is_none_or(|relation| {
        relation.kind != RelationKind::Table || !relation.columns.iter().all(is_plain)
    })
}

/// Whether an UPDATE sets anything to its default.
fn sets_default(update: &UpdateStmt) -> bool {
    let targets = update.target_list.iter();
    targets.filter_map(|target| target.node.as_ref()).any(asks_for_default)
}

fn asks_for_default(node: &NodeEnum) -> bool {
    let mut asks = matches!(node, NodeEnum::SetToDefault(_));
    walk::read::children(node, &mut |child| {
        asks |= child.node.as_ref().is_some_and(asks_for_default);
    });
    asks
}

/// Whether a default, as a server prints it, is a constant of a type that is built in, or the time.
fn is_value(default: &Node) -> bool {
    match &default.node {
        Some(NodeEnum::AConst(_) | NodeEnum::SqlvalueFunction(_)) => true,
        Some(NodeEnum::FuncCall(call)) => {
            call.args.is_empty() && matches!(name_of(call), (None | Some("pg_catalog"), "now"))
        }
        Some(NodeEnum::TypeCast(cast)) => {
            // A server names a type of somebody's with its schema.
            let is_built_in = cast.type_name.as_ref().is_some_and(|it| match &*it.names {
                [_] => true,
                [schema, _] => string(schema) == Some("pg_catalog"),
                _ => false,
            });
            is_built_in && cast.arg.as_deref().is_some_and(is_value)
        }
        _ => false,
    }
}

/// Adds what this node and those below it leave behind: a statement may also stand in a WITH clause.
fn visit(node: &NodeEnum, context: &Context<'_>, found: &mut Residue) {
    match node {
        NodeEnum::FuncCall(call) => add_call(call, context, found),
        NodeEnum::InsertStmt(insert) => {
            found.sequences |= may_draw(insert.relation.as_ref(), context);
            found.anything |= runs_code(insert.relation.as_ref(), context);
        }
        NodeEnum::UpdateStmt(update) => {
            found.sequences |= sets_default(update) && may_draw(update.relation.as_ref(), context);
            found.anything |= runs_code(update.relation.as_ref(), context);
        }
        NodeEnum::DeleteStmt(delete) => {
            found.anything |= runs_code(delete.relation.as_ref(), context);
        }
        NodeEnum::MergeStmt(merge) => {
            found.sequences = true;
            found.anything |= runs_code(merge.relation.as_ref(), context);
        }
        _ => (),
    }
    walk::read::children(node, &mut |child| {
        if let Some(child) = &child.node {
            visit(child, context, found);
        }
    });
}

fn add_call(call: &FuncCall, context: &Context<'_>, found: &mut Residue) {
    let (schema, name) = name_of(call);
    if !is_built_in(schema, name, context) {
        let function = context.catalog.function(context.scope, schema, name);
        found.anything |=
            function.is_none_or(|function| function.volatility == Volatility::Volatile);
        return;
    }
    if SEQUENCE_FUNCTIONS.contains(&name) || name == "setseed" {
        found.sequences = true;
    } else if name == "pg_notify" {
        found.notifies = true;
    } else if LOCK_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        found.anything |= !name.contains(TRANSACTION_LOCK);
    } else if name == "set_config" {
        match call.args.first().and_then(constant_text) {
            Some(setting) => found.settings.push(setting.to_ascii_lowercase()),
            None => found.anything = true,
        }
    }
}

fn constant_text(node: &Node) -> Option<&str> {
    match node.node.as_ref()? {
        NodeEnum::AConst(constant) => match constant.val.as_ref()? {
            pg_query::protobuf::a_const::Val::Sval(text) => Some(&text.sval),
            _ => None,
        },
        NodeEnum::TypeCast(cast) => constant_text(cast.arg.as_deref()?),
        _ => string(node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::NameScope;
    use crate::planner::fixture::shop;

    /// Whether the statement may leave something of sequences, and whether anything else.
    fn left(sql: &str) -> (bool, bool) {
        let (catalog, scope) = (shop(3), NameScope::public());
        let context = Context::new(&catalog, &scope);
        let statement = crate::statement::parse(sql).unwrap().pop().unwrap();
        let left = of_tree(&statement.tree, &context);
        let rest = Residue { sequences: false, ..left.clone() };
        (left.sequences, rest != Residue::default())
    }

    #[test]
    fn an_insert_draws_from_a_sequence_where_a_default_may() {
        for sql in [
            "INSERT INTO customers VALUES (1, 'x')",
            "INSERT INTO lines (customer_id) VALUES (1) ON CONFLICT DO NOTHING",
            "INSERT INTO events (what) VALUES (CURRENT_TIMESTAMP)",
            "INSERT INTO events (what) SELECT name FROM customers",
            "WITH x AS (INSERT INTO customers VALUES (1, 'x') RETURNING id) SELECT * FROM x",
            "UPDATE items SET name = 'x'",
            "UPDATE customers SET name = DEFAULT",
        ] {
            assert_eq!(left(sql), (false, false), "{sql}");
        }
        for sql in [
            "INSERT INTO orders (customer_id) VALUES (1)",
            // The column is given, but ON CONFLICT may ask for its default.
            "INSERT INTO tickets VALUES (1, 'x')",
            "INSERT INTO items (name) VALUES ('x')",
            "INSERT INTO rate_codes VALUES ('x')",
            "INSERT INTO customers VALUES (nextval('s'), 'x')",
            "INSERT INTO customers SELECT nextval('s'), 'x'",
            "WITH x AS (INSERT INTO items (name) VALUES ('x') RETURNING id) SELECT * FROM x",
            "WITH x AS (INSERT INTO items (name) VALUES ('x')) DELETE FROM customers WHERE id = 1",
            "SELECT 1 WHERE 1 = 1 UNION ALL (WITH x AS (INSERT INTO items (name) VALUES ('x') \
             RETURNING 1) SELECT 1 FROM x)",
            "UPDATE items SET id = DEFAULT",
            "UPDATE items SET (id, name) = ROW (DEFAULT, 'x')",
            "WITH x AS (UPDATE items SET id = DEFAULT RETURNING id) SELECT * FROM x",
        ] {
            assert_eq!(left(sql), (true, false), "{sql}");
        }
        assert!(left("INSERT INTO nowhere VALUES (1)").0);
    }

    #[test]
    fn only_constants_and_the_time_are_known_to_draw_from_nothing() {
        let is_value = |text: &str| parse_expression(text).is_some_and(|it| is_value(&it));
        for text in ["0", "'x'::text", "'{}'::jsonb", "now()", "CURRENT_DATE", "NULL::varchar(3)"] {
            assert!(is_value(text), "{text}");
        }
        for text in [
            "nextval('s'::regclass)",
            "nextval('s'::regclass)::text",
            "public.now()",
            "public.f(now())",
            "'x'::public.mood",
            "1 OPERATOR(public.+) 2",
            "COALESCE(nextval('s'::regclass), 1)",
        ] {
            assert!(!is_value(text), "{text}");
        }
    }
}
