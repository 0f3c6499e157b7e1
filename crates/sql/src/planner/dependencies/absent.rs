//! Which names of a statement mean nothing when it is planned.
//!
//! Owns: telling them from those of WITH, by where these are seen. Never: says what comes of it; changes of the
//! schema that give names do.
//! Start reading at [`names_absent`].

use pg_query::NodeEnum;
use pg_query::protobuf::{RangeVar, SelectStmt, WithClause};

use crate::planner::context::Context;
use crate::planner::mentions::{query_within, ranges_of_utility};
use crate::planner::temporary::is_temporary;
use crate::planner::unseen;
use crate::walk;

/// Whether a statement names a relation that is not there, and may be when its node looks it up. What WITH names is
/// no relation where it is seen.
pub(super) fn names_absent(tree: &NodeEnum, context: &Context<'_>) -> bool {
    let mut search = Absent { context, queries: Vec::new(), is_found: false };
    search.look_into(tree);
    ranges_of_utility(tree).into_iter().for_each(|range| search.look_up_table(Some(range)));
    unseen::for_each_table(tree, &mut |range| search.look_up_table(Some(range)));
    search.is_found
}

/// Whether the name means nothing, and may come to mean a relation of users.
fn is_absent(range: &RangeVar, context: &Context<'_>) -> bool {
    let is_built_in = range.schemaname.is_empty()
        && context.catalog.builtin_relations.contains(&range.relname)
        && !context.scope.puts_others_first();
    !is_built_in
        && !is_temporary(range, context)
        && context.relation(range).is_none()
        && !["pg_catalog", "information_schema", "tutti"].contains(&&*range.schemaname)
}

/// See [`names_absent`].
struct Absent<'s, 't> {
    context: &'s Context<'s>,
    /// The names of WITH that are seen.
    queries: Vec<&'t str>,
    is_found: bool,
}

impl<'t> Absent<'_, 't> {
    fn look_into(&mut self, tree: &'t NodeEnum) {
        if self.is_found {
            return;
        }
        let seen = self.queries.len();
        match tree {
            NodeEnum::RangeVar(range) => return self.look_up(range),
            // With what it belongs to.
            NodeEnum::CommonTableExpr(_) => return,
            NodeEnum::SelectStmt(select) => return self.look_into_select(select),
            NodeEnum::InsertStmt(insert) => {
                self.add_with(insert.with_clause.as_ref());
                self.look_up_table(insert.relation.as_ref());
            }
            NodeEnum::UpdateStmt(update) => {
                self.add_with(update.with_clause.as_ref());
                self.look_up_table(update.relation.as_ref());
            }
            NodeEnum::DeleteStmt(delete) => {
                self.add_with(delete.with_clause.as_ref());
                self.look_up_table(delete.relation.as_ref());
            }
            NodeEnum::MergeStmt(merge) => {
                self.add_with(merge.with_clause.as_ref());
                self.look_up_table(merge.relation.as_ref());
            }
            NodeEnum::CopyStmt(copy) => self.look_up_table(copy.relation.as_ref()),
            _ => (),
        }
        self.look_into_children(tree);
        if let Some(inner) = query_within(tree) {
            self.look_into(inner);
        }
        self.queries.truncate(seen);
    }

    fn look_into_select(&mut self, select: &'t SelectStmt) {
        let seen = self.queries.len();
        self.add_with(select.with_clause.as_ref());
        match (&select.larg, &select.rarg) {
            (Some(left), Some(right)) => {
                // What either names is not seen by the other. Beside them there is order alone.
                self.look_into_select(left);
                self.look_into_select(right);
                let counts = [&select.limit_offset, &select.limit_count].into_iter().flatten();
                for part in select.sort_clause.iter().chain(counts.map(|it| &**it)) {
                    part.node.iter().for_each(|part| self.look_into(part));
                }
            }
            _ => walk::read::select(select, &mut |child| {
                child.node.iter().for_each(|child| self.look_into(child));
            }),
        }
        self.queries.truncate(seen);
    }

    fn look_into_children(&mut self, tree: &'t NodeEnum) {
        walk::read::children(tree, &mut |child| {
            child.node.iter().for_each(|child| self.look_into(child));
        });
    }

    /// Looks into what WITH names, and sees these names from there on.
    fn add_with(&mut self, with: Option<&'t WithClause>) {
        let Some(with) = with else { return };
        let queries = || {
            with.ctes.iter().filter_map(|query| match query.node.as_ref()? {
                NodeEnum::CommonTableExpr(query) => Some(&**query),
                _ => None,
            })
        };
        if with.recursive {
            self.queries.extend(queries().map(|query| &*query.ctename));
        }
        for query in queries() {
            if let Some(tree) = query.ctequery.as_ref().and_then(|it| it.node.as_ref()) {
                self.look_into(tree);
            }
            self.queries.push(&query.ctename);
        }
    }

    fn look_up(&mut self, range: &RangeVar) {
        let is_query =
            range.schemaname.is_empty() && self.queries.iter().any(|name| *name == range.relname);
        self.is_found |= !is_query && is_absent(range, self.context);
    }

    /// What is written is no query of WITH.
    fn look_up_table(&mut self, table: Option<&RangeVar>) {
        self.is_found |= table.is_some_and(|range| is_absent(range, self.context));
    }
}
