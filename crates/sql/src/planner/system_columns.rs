//! System columns (`ctid`, `xmin`, `tableoid`, …) of tables whose rows are on several nodes.
//!
//! Owns: where they mean something, what is refused, and how they travel beside a row.
//! Never: cares for what runs on one node.
//! Start reading at [`refuse_places`] and [`Beside`].
//!
//! Places and transactions are counted by each node for itself: they may be shown, and compared within a node, but do not
//! name one row among those of all. A table's OID is told as node 1 has it.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{AExpr, AExprKind, ColumnRef, Node, SelectStmt, TypeCast};

use super::analysis::{Analysis, Constraint, ItemId, NOWHERE, Source, SystemUse};
use super::context::Context;
use super::names::is_system_column;
use super::syntax::{contains, string};
use crate::catalog::Relation;
use crate::refusal::Refusal;
use crate::walk;

/// What finds a table's name by its OID, and the other way round.
const NAMES: &str = "pg_catalog.pg_class tutti_c \
     JOIN pg_catalog.pg_namespace tutti_n ON tutti_n.oid OPERATOR(pg_catalog.=) tutti_c.relnamespace";
const TABLE: &str = "tableoid";

/// Errors: 0A000 if one row is meant by a place that rows of several nodes may have.
pub(super) fn refuse_places(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    if !analysis.system_columns.iter().any(|of| of.name == "ctid") {
        return Ok(());
    }
    let mut found = None;
    find_place(tree, analysis, context, &mut found);
    let Some(relation) = found else { return Ok(()) };
    Err(Refusal::unsupported(
        format!("rows of \"{}\" cannot be found by ctid on several nodes", relation.name),
        "Each node counts places by itself, so that rows of several nodes may be at this one.",
        "Pin the table's distribution key too, or each column of its primary key.",
    ))
}

fn find_place<'a>(
    tree: &NodeEnum,
    analysis: &Analysis<'a>,
    context: &Context<'_>,
    found: &mut Option<&'a Relation>,
) {
    let compared: Option<(&Node, &Node)> = match tree {
        NodeEnum::AExpr(of) if is_equality(of) => of.lexpr.as_deref().zip(of.rexpr.as_deref()),
        NodeEnum::SubLink(of) => of.testexpr.as_deref().zip(of.subselect.as_deref()),
        _ => None,
    };
    if let Some((left, right)) = compared {
        for (place, other) in [(left, right), (right, left)] {
            let Some(item) = place_in(place, analysis) else { continue };
            if let Some((relation, _)) = analysis.items[item].distributed()
                && !is_of_a_node(other, analysis, context)
                && !names_key(item, relation, analysis)
            {
                *found = Some(relation);
            }
        }
    }
    walk::read::children(tree, &mut |child| {
        if let Some(child) = &child.node {
            find_place(child, analysis, context, found);
        }
    });
}

/// `=`, IN, `= ANY`, IS NOT DISTINCT FROM.
fn is_equality(of: &AExpr) -> bool {
    use AExprKind as Kind;
    let is_equal = of.name.last().and_then(string) == Some("=");
    match of.kind() {
        Kind::AexprNotDistinct => true,
        Kind::AexprOp | Kind::AexprIn | Kind::AexprOpAny => is_equal,
        _ => false,
    }
}

/// Whose `ctid` is in an expression, outside of its subqueries.
fn place_in(value: &Node, analysis: &Analysis<'_>) -> Option<ItemId> {
    match value.node.as_ref()? {
        NodeEnum::SubLink(_) => None,
        NodeEnum::ColumnRef(reference) => {
            use_at(reference, analysis).filter(|of| of.name == "ctid").map(|of| of.item)
        }
        node => {
            let mut found = None;
            walk::read::children(node, &mut |child| {
                found = found.or_else(|| place_in(child, analysis));
            });
            found
        }
    }
}

fn use_at<'u, 'a>(reference: &ColumnRef, analysis: &'u Analysis<'a>) -> Option<&'u SystemUse<'a>> {
    let at = |of: &&SystemUse<'_>| of.location != NOWHERE && of.location == reference.location;
    analysis.system_columns.iter().find(at)
}

/// Whether a value is read out of rows that are each on one node: where such are joined, it is within a node.
fn is_of_a_node(value: &Node, analysis: &Analysis<'_>, context: &Context<'_>) -> bool {
    let Some(tree) = &value.node else { return false };
    contains(tree, &|of| match of {
        NodeEnum::ColumnRef(reference) => {
            let of_columns = analysis.uses.iter().filter(|of| of.location != NOWHERE);
            let mut of_columns = of_columns.filter(|of| of.location == reference.location);
            let item = of_columns.next().map(|of| of.item);
            let item = item.or_else(|| use_at(reference, analysis).map(|of| of.item));
            item.is_some_and(|item| match analysis.items[item].source {
                Source::Query(query) => analysis.reads_distributed(query),
                _ => analysis.items[item].distributed().is_some(),
            })
        }
        NodeEnum::RangeVar(range) => context.relation(range).is_some_and(|relation| {
            let is_it =
                |(_, of, _): (_, &std::sync::Arc<Relation>, _)| std::ptr::eq(&**of, &**relation);
            analysis.distributed().any(is_it)
        }),
        _ => false,
    })
}

/// Whether one row of the table is named by its primary key.
fn names_key(item: ItemId, relation: &Relation, analysis: &Analysis<'_>) -> bool {
    let is_named = |key: &usize| {
        analysis.constraints.iter().any(|of| match of {
            Constraint::OneOf { column, values } => {
                column.item == item && column.column == *key && values.len() == 1
            }
            Constraint::Equal { .. } | Constraint::Bound { .. } => false,
        })
    };
    !relation.primary_key.is_empty() && relation.primary_key.iter().all(is_named)
}

/// Why each node by itself would compare, or tell, another OID of a table than node 1 has.
pub(super) fn number_of_table(tree: &NodeEnum, analysis: &Analysis<'_>) -> Option<String> {
    let tables = analysis.system_columns.iter().filter(|of| of.name == TABLE);
    let mut tables = tables.filter(|of| analysis.items[of.item].distributed().is_some()).peekable();
    tables.peek()?;
    let mut named = BTreeSet::new();
    note_named(tree, &mut named);
    let is_told = tables.any(|of| !named.contains(&of.location));
    is_told.then(|| "each node has another tableoid".to_owned())
}

/// Errors: 0A000 for such an OID in a change that each node makes by itself.
pub(super) fn refuse_number(tree: &NodeEnum, analysis: &Analysis<'_>) -> Result<(), Refusal> {
    match number_of_table(tree, analysis) {
        None => Ok(()),
        Some(_) => Err(Refusal::unsupported(
            "tableoid cannot be used so in a change of several nodes",
            "A table has another OID on each node.",
            "Compare it with the table's name: tableoid = 'name'::regclass.",
        )),
    }
}

/// Where `tableoid` stands for a name, which is the same on every node: cast to regclass, or compared with such.
fn note_named(tree: &NodeEnum, named: &mut BTreeSet<i32>) {
    let is_regclass = |cast: &TypeCast| {
        let name = cast.type_name.as_ref().and_then(|name| string(name.names.last()?));
        name == Some("regclass")
    };
    let mut note = |node: Option<&Node>| {
        if let Some(NodeEnum::ColumnRef(reference)) = node.and_then(|node| node.node.as_ref()) {
            named.insert(reference.location);
        }
    };
    match tree {
        NodeEnum::TypeCast(cast) if is_regclass(cast) => note(cast.arg.as_deref()),
        NodeEnum::AExpr(of) => {
            let is_name = |node: &Node| match &node.node {
                Some(NodeEnum::TypeCast(cast)) if is_regclass(cast) => {
                    let of = cast.arg.as_ref().and_then(|of| of.node.as_ref());
                    use pg_query::protobuf::a_const::Val;
                    matches!(of, Some(NodeEnum::AConst(of)) if matches!(&of.val, Some(Val::Sval(name))
                        if !name.sval.bytes().all(|byte| byte.is_ascii_digit())))
                }
                _ => false,
            };
            let are_names = |node: &Node| match &node.node {
                Some(NodeEnum::List(list)) => list.items.iter().all(is_name),
                _ => is_name(node),
            };
            let operator = of.name.last().and_then(string);
            let is_plain = matches!(of.kind(), AExprKind::AexprOp | AExprKind::AexprIn)
                && matches!(operator, Some("=" | "<>"));
            let sides = [(&of.lexpr, &of.rexpr), (&of.rexpr, &of.lexpr)];
            for (table, other) in sides {
                if is_plain && other.as_deref().is_some_and(are_names) {
                    note(table.as_deref());
                }
            }
        }
        _ => (),
    }
    walk::read::children(tree, &mut |child| {
        if let Some(child) = &child.node {
            note_named(child, named);
        }
    });
}

/// The system columns of a table that are collected beside its rows.
pub(super) struct Beside<'a> {
    names: BTreeSet<&'a str>,
}

/// What is collected beside the rows of `item`; `None` where a system column would mean nothing once rows of several
/// nodes are together: anywhere but in the outputs of a query that does not group them.
pub(super) fn beside<'a>(
    item: ItemId,
    tree: &NodeEnum,
    analysis: &Analysis<'a>,
) -> Option<Beside<'a>> {
    let NodeEnum::SelectStmt(select) = tree else { return None };
    let uses = || analysis.system_columns.iter().filter(|of| of.item == item);
    let level = analysis.queries.iter().position(|query| query.items.contains(&item))?;
    let query = &analysis.queries[level];
    let is_known = !analysis.loose_star
        && !analysis.loose_names.iter().any(|name| {
            *name == analysis.items[item].name || is_system_column(name)
        })
        && !query.names_unknown
        && query.merged.is_empty()
        && !analysis.items[item].hidden
        && !analysis.locked.contains(&item)
        && analysis.target != Some(item)
        // Where others are beside it, a bare name may mean theirs.
        && (query.items.len() == 1 || uses().all(|of| !of.is_bare))
        && is_expandable(item, select, analysis);
    if !is_known || analysis.target.is_some() {
        return None;
    }
    let is_shown = level == 0
        && query.set.is_none()
        && !query.has_grouping
        && !query.has_aggregates
        && !query.has_distinct
        && !query.has_distinct_on
        && !query.has_windows;
    let mut shown = BTreeSet::new();
    select.target_list.iter().chain(&select.sort_clause).for_each(|of| note_shown(of, &mut shown));
    let means_something =
        |of: &SystemUse<'_>| of.name == TABLE || (is_shown && shown.contains(&of.location));
    uses().all(means_something).then(|| Beside { names: uses().map(|of| of.name).collect() })
}

fn note_shown(node: &Node, shown: &mut BTreeSet<i32>) {
    match &node.node {
        Some(NodeEnum::ColumnRef(reference)) => _ = shown.insert(reference.location),
        Some(NodeEnum::SubLink(_)) | None => (),
        Some(tree) => walk::read::children(tree, &mut |child| note_shown(child, shown)),
    }
}

/// Whether all that stands for whole rows of the table are stars among the query's own outputs, which [`stars`] writes out.
fn is_expandable(item: ItemId, select: &SelectStmt, analysis: &Analysis<'_>) -> bool {
    let whole: Vec<_> =
        analysis.uses.iter().filter(|of| of.item == item && of.column.is_none()).collect();
    if whole.is_empty() {
        return true;
    }
    let query = &analysis.queries[0];
    let stars: Vec<_> = select.target_list.iter().filter_map(star).map(|of| of.location).collect();
    query.set.is_none()
        && query.items.contains(&item)
        && query
            .items
            .iter()
            .all(|item| !analysis.items[*item].hidden && analysis.width(*item).is_some())
        && whole.iter().all(|of| of.location != NOWHERE && stars.contains(&of.location))
}

/// An output that is `*` or `t.*`.
fn star(target: &Node) -> Option<&ColumnRef> {
    let Some(NodeEnum::ResTarget(target)) = &target.node else { return None };
    match target.val.as_ref()?.node.as_ref()? {
        NodeEnum::ColumnRef(reference) if super::syntax::is_star(reference) => Some(reference),
        _ => None,
    }
}

/// The columns for which a star stands, if it is one of a query in which some table has columns beside its own: by the
/// item that has them.
pub(super) fn stars(target: &Node, analysis: &Analysis<'_>) -> Option<Vec<(ItemId, usize)>> {
    let reference = star(target)?;
    let at = |item: &&ItemId| {
        analysis
            .uses
            .iter()
            .any(|of| of.item == **item && of.column.is_none() && of.location == reference.location)
    };
    let query = analysis.queries.first()?;
    let items: Vec<_> = query.items.iter().filter(at).copied().collect();
    let columns = items.iter().flat_map(|item| {
        let width = analysis.width(*item).unwrap_or_default();
        (0..width).map(|column| (*item, column))
    });
    Some(columns.collect())
}

impl Beside<'_> {
    /// What a node says for a row of `alias`: the text of an array of the row's own text and these columns'.
    pub(super) fn said(&self, row: &str, alias: &str) -> String {
        let of = |name: &&str| match *name {
            TABLE => format!(
                "(SELECT ARRAY[tutti_n.nspname::pg_catalog.text, tutti_c.relname::pg_catalog.text]::pg_catalog.text \
                 FROM {NAMES} WHERE tutti_c.oid OPERATOR(pg_catalog.=) {alias}.{TABLE})"
            ),
            name => format!("{alias}.{name}::pg_catalog.text"),
        };
        let values: Vec<_> = self.names.iter().map(of).collect();
        format!("ARRAY[{row}, {}]::pg_catalog.text", values.join(", "))
    }

    /// What stands in FROM for such rows: `rows` makes the table's own out of the literal of an array of their texts.
    pub(super) fn from(&self, gap: &str, rows: impl Fn(&str) -> String) -> String {
        let of = |(index, name): (usize, &&str)| {
            let value = format!("tutti_f.tutti_v[{}]", index + 2);
            match *name {
                TABLE => format!(
                    "(SELECT tutti_c.oid FROM {NAMES} WHERE tutti_n.nspname OPERATOR(pg_catalog.=) ({value}::pg_catalog.text[])[1] \
                     AND tutti_c.relname OPERATOR(pg_catalog.=) ({value}::pg_catalog.text[])[2]) AS {TABLE}"
                ),
                "ctid" => format!("{value}::pg_catalog.tid AS ctid"),
                name @ ("cmin" | "cmax") => format!("{value}::pg_catalog.cid AS {name}"),
                name => format!("{value}::pg_catalog.xid AS {name}"),
            }
        };
        let values: Vec<_> = self.names.iter().enumerate().map(of).collect();
        let rows = rows("(ARRAY[tutti_f.tutti_v[1]])::pg_catalog.text");
        format!(
            "(SELECT tutti_r.*, {} FROM pg_catalog.unnest({gap}::pg_catalog.text[]) AS tutti_g (tutti_v) \
             CROSS JOIN LATERAL (SELECT tutti_g.tutti_v::pg_catalog.text[] OFFSET 0) AS tutti_f (tutti_v) \
             CROSS JOIN LATERAL {rows} AS tutti_r)",
            values.join(", ")
        )
    }
}
