//! DEFAULT in UPDATE: the column's default, which nodes may evaluate differently.
//!
//! Owns: writing out the default in place, so that the planner sees what it calls.
//! Never: decides what a call means; the analysis does.

use pg_query::NodeEnum;
use pg_query::protobuf::Node;

use crate::planner::context::Context;
use crate::planner::printed;
use crate::planner::sql_text::parse_expression;

/// The UPDATE with the columns' defaults in place of DEFAULT; `None` if it says DEFAULT nowhere, or
/// is another statement.
pub(super) fn written_out(tree: &NodeEnum, context: &Context<'_>) -> Option<NodeEnum> {
    let NodeEnum::UpdateStmt(update) = tree else { return None };
    let relation = context.relation(update.relation.as_ref()?)?;
    let mut explicit = update.clone();
    let mut found = false;
    for node in &mut explicit.target_list {
        let Some(NodeEnum::ResTarget(target)) = &mut node.node else { continue };
        let Some(value) = target.val.as_deref_mut().filter(|value| is_default(value)) else {
            continue;
        };
        let column = relation.column(&target.name).map(|column| &relation.columns[column]);
        // What generates a column, PostgreSQL alone knows.
        let Some(column) = column.filter(|column| !column.generated) else { continue };
        if let Some(mut default) = column.default.as_deref().and_then(parse_expression) {
            if let Some(node) = default.node.as_mut().filter(|_| printed::is_hidden(context.scope))
            {
                // What cannot be said exactly must still be seen by the planner.
                let _ = printed::qualify(node);
            }
            *value = default;
            found = true;
        }
    }
    found.then_some(NodeEnum::UpdateStmt(explicit))
}

fn is_default(node: &Node) -> bool {
    matches!(node.node, Some(NodeEnum::SetToDefault(_)))
}
