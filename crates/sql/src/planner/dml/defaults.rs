//! DEFAULT in UPDATE: the column's default, which nodes may evaluate differently.
//!
//! Owns: writing out the default in place, so that the planner sees what it calls.
//! Never: decides what a call means; the analysis does.

use pg_query::NodeEnum;
use pg_query::protobuf::Node;

use crate::catalog::Relation;
use crate::planner::context::Context;
use crate::planner::printed;
use crate::planner::sql_text::parse_expression;
use crate::planner::syntax::says_default;
use crate::walk;

/// The statement with the columns' defaults in place of DEFAULT in its UPDATE, and in those in WITH; `None` if they say
/// DEFAULT nowhere.
pub(super) fn written_out(tree: &NodeEnum, context: &Context<'_>) -> Option<NodeEnum> {
    if !says_default(tree) {
        return None;
    }
    let mut explicit = tree.clone();
    write_out(&mut explicit, context).then_some(explicit)
}

/// Whether there was one.
fn write_out(tree: &mut NodeEnum, context: &Context<'_>) -> bool {
    let mut found = false;
    if let NodeEnum::UpdateStmt(update) = tree
        && let Some(relation) = update.relation.as_ref().and_then(|range| context.relation(range))
    {
        found = assign(&mut update.target_list, relation, context);
    }
    walk::write::children(tree, &mut |child| {
        found |= child.node.as_mut().is_some_and(|child| write_out(child, context));
    });
    found
}

fn assign(targets: &mut [Node], relation: &Relation, context: &Context<'_>) -> bool {
    let name = |node: &Node| match &node.node {
        Some(NodeEnum::ResTarget(target)) => target.name.clone(),
        _ => String::new(),
    };
    let names: Vec<String> = targets.iter().map(name).collect();
    let mut found = false;
    for (index, node) in targets.iter_mut().enumerate() {
        let Some(NodeEnum::ResTarget(target)) = &mut node.node else { continue };
        let Some(value) = target.val.as_deref_mut() else { continue };
        // Each of the columns that are assigned from one row has the whole row.
        if let Some(NodeEnum::MultiAssignRef(part)) = &mut value.node {
            let first = usize::try_from(part.colno).ok().and_then(|it| (index + 1).checked_sub(it));
            let row = part.source.as_deref_mut().and_then(|source| source.node.as_mut());
            if let (Some(first), Some(NodeEnum::RowExpr(row))) = (first, row) {
                for (value, name) in row.args.iter_mut().zip(names.iter().skip(first)) {
                    found |= assign_one(value, name, relation, context);
                }
            }
            continue;
        }
        found |= assign_one(value, &names[index], relation, context);
    }
    found
}

/// Whether the value was DEFAULT, and is not any more.
fn assign_one(value: &mut Node, name: &str, relation: &Relation, context: &Context<'_>) -> bool {
    let column = relation.column(name).map(|column| &relation.columns[column]);
    // What generates a column, PostgreSQL alone knows.
    let Some(column) = column.filter(|column| is_default(value) && !column.generated) else {
        return false;
    };
    let Some(mut default) = column.default.as_deref().and_then(parse_expression) else {
        return false;
    };
    if let Some(node) = default.node.as_mut().filter(|_| printed::is_hidden(context.scope)) {
        // What cannot be said exactly must still be seen by the planner.
        let _ = printed::qualify(node);
    }
    *value = default;
    true
}

fn is_default(node: &Node) -> bool {
    matches!(node.node, Some(NodeEnum::SetToDefault(_)))
}
