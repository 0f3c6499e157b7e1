//! Plans of statements with INSERT, UPDATE or DELETE in WITH whose parts are on several nodes.
//!
//! Owns: the parts, in order, and the proof that running them one after the other is the same as running them at once.
//! Never: plans a part itself; as a statement of its own it is planned like any other.
//! Start reading at [`plan`].
//!
//! PostgreSQL gives all parts one snapshot: none sees what another has changed, but for the rows that it returns. Here a
//! part runs when those before it have run, and may read no table that they write. What a part returns is computed by the
//! parts that read it, from the rows as the part has left them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    BoolExprType, CommonTableExpr, Node, RangeVar, ReturningClause, SelectStmt, SubLinkType,
    WithClause,
};

use super::context::Context;
use super::functions::volatility;
use super::gaps::parse_select;
use super::gather::{is_written_alike, row_text};
use super::mentions;
use super::names::is_system_column;
use super::sql_text::{deparse, parse_expression};
use super::syntax::{string, written, written_in_with};
use crate::catalog::{Catalog, Placement, Relation, RelationKind, Volatility, quote_identifier};
use crate::closure::Reach;
use crate::plan::{DataPlan, Plan, Planned, Step, Steps};
use crate::refusal::Refusal;
use crate::statement::Statement;
use crate::walk;

/// The schema in which parts find what other parts have returned.
const RETURNED_SCHEMA: &str = "tutti";

/// A query of WITH.
struct Query {
    /// As it stands in the statement, or with the rows that it returns in place of what it does.
    cte: CommonTableExpr,
    /// The other queries of WITH that it names.
    names: BTreeSet<usize>,
    /// What it does, if it changes data.
    change: Option<Change>,
}

/// A query of WITH that changes data.
struct Change {
    /// Without RETURNING.
    tree: NodeEnum,
    target: Arc<Relation>,
    /// What its target is called in RETURNING.
    alias: String,
    /// Which of its columns RETURNING names, if there is one.
    returned: Option<Vec<bool>>,
    /// RETURNING: PostgreSQL computes it for each row, and asks for the rights that it needs, whether anybody reads it or
    /// not.
    returning: Option<ReturningClause>,
}

/// Plans a part as a statement of its own, and says what code that can reach.
pub(super) type PlanPart<'a> =
    &'a dyn Fn(&Statement, &Context<'_>) -> Result<(Planned, Reach), Refusal>;

/// Whether a query of the statement's WITH changes data.
pub(super) fn is_meant(tree: &NodeEnum) -> bool {
    targets(tree).next().is_some()
}

/// Whether a query of the statement's WITH changes what is not on node 1 alone.
pub(super) fn changes_beyond_home(tree: &NodeEnum, context: &Context<'_>) -> bool {
    targets(tree).filter_map(|range| context.relation(range)).any(|target| {
        let written = mentions::of_relation(target, context);
        written.distributed.is_some() || written.replicated.is_some()
    })
}

/// What the queries of the statement's WITH change that change data.
fn targets(tree: &NodeEnum) -> impl Iterator<Item = &RangeVar> {
    with_of(tree).into_iter().flat_map(|with| &with.ctes).filter_map(written_in_with)
}

/// Plans such a statement; `refusal`: what is said if its parts cannot be run one after the other.
pub(super) fn plan(
    tree: &NodeEnum,
    refusal: Refusal,
    context: &Context<'_>,
    plan_part: PlanPart<'_>,
) -> Result<Planned, Refusal> {
    let refusal = || refusal.clone();
    let Some(with) = with_of(tree).filter(|with| !with.recursive) else { return Err(refusal()) };
    if context.opaque.is_some() {
        return Err(refusal());
    }
    let mut main = tree.clone();
    if let Some(with) = with_slot(&mut main) {
        *with = None;
    }
    let mut catalog = context.catalog.clone();
    let mut queries = Vec::new();
    for node in &with.ctes {
        let Some(NodeEnum::CommonTableExpr(cte)) = &node.node else { return Err(refusal()) };
        let query = query(cte, &queries, &mut catalog, context)?;
        queries.push(query.ok_or_else(&refusal)?);
    }
    let context = &Context { catalog: &catalog, views: None, ..*context };
    let changes: Vec<usize> =
        (0..queries.len()).filter(|query| queries[*query].change.is_some()).collect();
    let mut parts = Vec::new();
    for &query in &changes {
        let tree = queries[query].change.as_ref().map(|change| &change.tree);
        parts.extend(tree.and_then(|tree| part(tree, &queries[..query], &queries)));
    }
    parts.extend(part(&main, &queries, &queries));
    for query in parts.iter().flat_map(|part| &part.needs).map(|query| &queries[*query]) {
        if query.change.as_ref().is_some_and(|change| change.returned.is_none()) {
            let name = &query.cte.ctename;
            let message = format!("WITH query \"{name}\" does not have a RETURNING clause");
            return Err(Refusal::postgres("0A000", message));
        }
    }
    if context.collects_replicated && 1 < parts.iter().filter(|part| reads(part, context)).count() {
        return Err(Refusal::unsupported(
            "parts of this statement would see several moments of the cluster",
            "Several of them read tables, and at READ COMMITTED each would have a snapshot of its own.",
            "Run it outside of a transaction block, or at REPEATABLE READ.",
        ));
    }
    if parts.len() != changes.len() + 1
        || !are_independent(&parts, &changes, &queries, context)
        || !are_computed_once(&parts, &queries, context)
    {
        return Err(refusal());
    }
    let mut steps = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let is_named = |query: &usize| parts.iter().any(|part| part.needs.contains(query));
        let change = changes.get(index).and_then(|query| {
            let change = queries[*query].change.as_ref()?;
            Some((change, is_named(query)))
        });
        steps.push(step(part, change, context, plan_part)?.ok_or_else(&refusal)?);
    }
    let Some(rest) = steps.pop() else { return Err(refusal()) };
    let steps = Steps { before: steps, rest };
    let why = "statements in WITH change data on several nodes: they run one after the other, and none reads what \
               another has written";
    Ok(Planned::new(DataPlan::Steps(Box::new(steps)), why))
}

/// The query that a COPY copies, or the statement itself.
fn query_within(tree: &NodeEnum) -> &NodeEnum {
    match tree {
        NodeEnum::CopyStmt(copy) if !copy.is_from => {
            copy.query.as_ref().and_then(|query| query.node.as_ref()).unwrap_or(tree)
        }
        _ => tree,
    }
}

fn with_of(tree: &NodeEnum) -> Option<&WithClause> {
    match query_within(tree) {
        NodeEnum::SelectStmt(select) => select.with_clause.as_ref(),
        NodeEnum::InsertStmt(insert) => insert.with_clause.as_ref(),
        NodeEnum::UpdateStmt(update) => update.with_clause.as_ref(),
        NodeEnum::DeleteStmt(delete) => delete.with_clause.as_ref(),
        _ => None,
    }
}

fn with_slot(tree: &mut NodeEnum) -> Option<&mut Option<WithClause>> {
    Some(match tree {
        NodeEnum::SelectStmt(select) => &mut select.with_clause,
        NodeEnum::InsertStmt(insert) => &mut insert.with_clause,
        NodeEnum::UpdateStmt(update) => &mut update.with_clause,
        NodeEnum::DeleteStmt(delete) => &mut delete.with_clause,
        NodeEnum::CopyStmt(copy) => return with_slot(copy.query.as_mut()?.node.as_mut()?),
        _ => return None,
    })
}

fn set_returning(tree: &mut NodeEnum, returning: Option<ReturningClause>) {
    match tree {
        NodeEnum::InsertStmt(of) => of.returning_clause = returning,
        NodeEnum::UpdateStmt(of) => of.returning_clause = returning,
        NodeEnum::DeleteStmt(of) => of.returning_clause = returning,
        _ => (),
    }
}

/// The query, with what it returns as a relation in `catalog` if it changes data; `None`: it cannot be a part.
fn query(
    cte: &CommonTableExpr,
    before: &[Query],
    catalog: &mut Catalog,
    context: &Context<'_>,
) -> Result<Option<Query>, Refusal> {
    let Some(tree) = cte.ctequery.as_ref().and_then(|query| query.node.as_ref()) else {
        return Ok(None);
    };
    let names = named(tree, before);
    let (range, returning, has_others) = match tree {
        NodeEnum::SelectStmt(_) => {
            return Ok(Some(Query { cte: cte.clone(), names, change: None }));
        }
        NodeEnum::InsertStmt(of) => (&of.relation, &of.returning_clause, false),
        NodeEnum::UpdateStmt(of) => {
            (&of.relation, &of.returning_clause, !of.from_clause.is_empty())
        }
        NodeEnum::DeleteStmt(of) => {
            (&of.relation, &of.returning_clause, !of.using_clause.is_empty())
        }
        _ => return Ok(None),
    };
    let Some(range) = range else { return Ok(None) };
    let Some(target) = context.relation(range) else { return Ok(None) };
    let is_table = target.kind == RelationKind::Table
        && target.returned_by.is_none()
        && !matches!(target.placement, Placement::Async { .. });
    if !is_table {
        return Ok(None);
    }
    let alias = range.alias.as_ref().map_or(&range.relname, |alias| &alias.aliasname).clone();
    let mut returned = None;
    let whole = returning.clone();
    let mut replaced = cte.clone();
    if let Some(returning) = returning.as_ref().filter(|returning| !returning.exprs.is_empty()) {
        let of = Returns { target, alias: &alias, has_others, context };
        let columns = returned.insert(vec![false; target.columns.len()]);
        if !of.are_of_its_rows(returning, columns) {
            return Ok(None);
        }
        let name = format!("returned_{}", before.len());
        let select = select_of(returning, &name, &alias)?;
        replaced.ctequery = Some(Box::new(Node { node: Some(NodeEnum::SelectStmt(select)) }));
        let step = before.iter().filter(|query| query.change.is_some()).count();
        let relation = Relation { returned_by: Some(step), ..(**target).clone() };
        let schema: &mut HashMap<_, _> =
            catalog.relations.entry(RETURNED_SCHEMA.to_owned()).or_default();
        schema.insert(name, Arc::new(relation));
    }
    let mut tree = tree.clone();
    set_returning(&mut tree, None);
    let target = target.clone();
    let change = Some(Change { tree, target, alias, returned, returning: whole });
    Ok(Some(Query { cte: replaced, names, change }))
}

/// `SELECT <what is returned> FROM <the rows> AS <the target's name>`.
fn select_of(
    returning: &ReturningClause,
    rows: &str,
    alias: &str,
) -> Result<Box<SelectStmt>, Refusal> {
    let from =
        format!("{RETURNED_SCHEMA}.{} AS {}", quote_identifier(rows), quote_identifier(alias));
    let mut select = parse_select(&format!("SELECT 1 FROM {from}"))?;
    select.target_list.clone_from(&returning.exprs);
    Ok(select)
}

/// What RETURNING may name.
struct Returns<'a> {
    target: &'a Relation,
    alias: &'a str,
    /// There are tables beside the target.
    has_others: bool,
    context: &'a Context<'a>,
}

impl Returns<'_> {
    /// Whether all that is returned can be computed of the target's rows later, and notes their columns.
    fn are_of_its_rows(&self, returning: &ReturningClause, columns: &mut [bool]) -> bool {
        returning.options.is_empty()
            && returning.exprs.iter().all(|node| {
                volatility(node, self.context) != Volatility::Volatile
                    && node.node.as_ref().is_none_or(|node| self.is_of_its_rows(node, columns))
            })
    }

    fn is_of_its_rows(&self, node: &NodeEnum, columns: &mut [bool]) -> bool {
        match node {
            NodeEnum::SubLink(_) => return false,
            NodeEnum::ColumnRef(reference) => {
                let fields: Vec<_> = reference.fields.iter().map(string).collect();
                let name = match fields[..] {
                    [name] if !self.has_others || name.is_some() => name,
                    [Some(alias), name] if alias == self.alias => name,
                    _ => return false,
                };
                let column = name.and_then(|name| self.target.column(name));
                let is_whole = name.is_none() || (fields.len() == 1 && name == Some(self.alias));
                match column {
                    Some(column) => columns[column] = true,
                    None if is_whole => columns.fill(true),
                    // A column that is not there, which a node will say.
                    None if !self.has_others && !name.is_some_and(is_system_column) => (),
                    None => return false,
                }
            }
            _ => (),
        }
        let mut are = true;
        walk::read::children(node, &mut |child| {
            are &= child.node.as_ref().is_none_or(|child| self.is_of_its_rows(child, columns));
        });
        are
    }
}

/// Which of these queries the tree names, or may name.
fn named(tree: &NodeEnum, queries: &[Query]) -> BTreeSet<usize> {
    let mut names = BTreeSet::new();
    if let NodeEnum::RangeVar(range) = tree
        && range.schemaname.is_empty()
    {
        names.extend(queries.iter().position(|query| query.cte.ctename == range.relname));
    }
    walk::read::children(tree, &mut |child: &Node| {
        names.extend(child.node.iter().flat_map(|child| named(child, queries)));
    });
    names
}

/// A part as a statement of its own.
struct Part {
    tree: NodeEnum,
    /// The queries of WITH that it needs, also by others.
    needs: BTreeSet<usize>,
}

/// The tree with the queries of WITH that it needs; `None` if these cannot be put before its own.
fn part(tree: &NodeEnum, in_sight: &[Query], queries: &[Query]) -> Option<Part> {
    let mut needs = named(query_within(tree), in_sight);
    let mut open: Vec<usize> = needs.iter().copied().collect();
    while let Some(query) = open.pop() {
        // What a part does names nothing for those who read what it returns.
        if queries[query].change.is_none() {
            open.extend(queries[query].names.iter().copied().filter(|name| needs.insert(*name)));
        }
    }
    let mut tree = tree.clone();
    if needs.is_empty() {
        return Some(Part { tree, needs });
    }
    let own = with_slot(&mut tree)?;
    let with = own.get_or_insert_default();
    let collides = |node: &Node| match &node.node {
        Some(NodeEnum::CommonTableExpr(cte)) => {
            needs.iter().any(|query| queries[*query].cte.ctename == cte.ctename)
        }
        _ => true,
    };
    if with.recursive || with.ctes.iter().any(collides) {
        return None;
    }
    let before = needs.iter().map(|query| {
        let cte = Box::new(queries[*query].cte.clone());
        Node { node: Some(NodeEnum::CommonTableExpr(cte)) }
    });
    with.ctes = before.chain(std::mem::take(&mut with.ctes)).collect();
    Some(Part { tree, needs })
}

/// Whether a part adds rows only if a query of WITH returns none: `INSERT … SELECT … WHERE NOT EXISTS (SELECT FROM up)`.
fn adds_if_none(part: &Part, query: usize, queries: &[Query]) -> bool {
    let name = &queries[query].cte.ctename;
    let NodeEnum::InsertStmt(insert) = &part.tree else { return false };
    let source = insert.select_stmt.as_deref().and_then(|source| source.node.as_ref());
    let Some(NodeEnum::SelectStmt(select)) = source else { return false };
    let conditions = match select.where_clause.as_deref().and_then(|it| it.node.as_ref()) {
        Some(NodeEnum::BoolExpr(all)) if all.boolop() == BoolExprType::AndExpr => &all.args[..],
        Some(_) => select.where_clause.as_deref().map_or(&[][..], std::slice::from_ref),
        None => &[],
    };
    mentions_of(&part.tree, name) == 1
        && conditions.iter().any(|condition| is_none(condition, name))
}

/// Whether it is `NOT EXISTS (SELECT … FROM name)`, of all rows.
fn is_none(condition: &Node, name: &str) -> bool {
    let Some(NodeEnum::BoolExpr(not)) = &condition.node else { return false };
    let ([argument], BoolExprType::NotExpr) = (&not.args[..], not.boolop()) else { return false };
    let Some(NodeEnum::SubLink(link)) = &argument.node else { return false };
    let Some(NodeEnum::SelectStmt(select)) =
        link.subselect.as_deref().and_then(|select| select.node.as_ref())
    else {
        return false;
    };
    let plain = parse_select("SELECT").map(|plain| {
        let (from_clause, target_list) = (select.from_clause.clone(), select.target_list.clone());
        SelectStmt { from_clause, target_list, ..*plain }
    });
    let [Node { node: Some(NodeEnum::RangeVar(range)) }] = &select.from_clause[..] else {
        return false;
    };
    link.sub_link_type() == SubLinkType::ExistsSublink
        && plain.is_ok_and(|plain| plain == **select)
        && range.relname == name
}

/// How often the tree names a relation so.
fn mentions_of(tree: &NodeEnum, name: &str) -> usize {
    let own = matches!(tree, NodeEnum::RangeVar(range) if range.schemaname.is_empty() && range.relname == name);
    let mut count = usize::from(own);
    walk::read::children(tree, &mut |child| {
        count += child.node.as_ref().map_or(0, |child| mentions_of(child, name));
    });
    count
}

/// Whether no part could tell that those before it have run: none reads or writes what they write. Rows may be added to a
/// table that a part before would have changed, if they are added only where it has changed none.
fn are_independent(
    parts: &[Part],
    changes: &[usize],
    queries: &[Query],
    context: &Context<'_>,
) -> bool {
    let effects: Vec<_> = parts.iter().map(|part| Effects::of(&part.tree, context)).collect();
    effects.iter().enumerate().all(|(index, one)| {
        !one.is_unfit
            && effects.iter().zip(parts).skip(index + 1).all(|(later, part)| {
                let follows = later.only_adds
                    && changes.get(index).is_some_and(|query| adds_if_none(part, *query, queries));
                one.writes.is_disjoint(&later.reads)
                    && later.writes.is_disjoint(&one.reads)
                    && (one.writes.is_disjoint(&later.writes) || follows)
                    && !one.is_tied(later, context)
            })
    })
}

/// Whether a part reads rows of tables: those that it changes, too.
fn reads(part: &Part, context: &Context<'_>) -> bool {
    let tree = query_within(&part.tree);
    let finds = !matches!(tree, NodeEnum::InsertStmt(_) | NodeEnum::SelectStmt(_));
    let mentioned = mentions::of(tree, context);
    finds || mentioned.relations.values().any(|relation| relation.returned_by.is_none())
}

/// What a part does to tables, by OID.
struct Effects {
    reads: BTreeSet<u32>,
    writes: BTreeSet<u32>,
    /// It writes by adding rows alone.
    only_adds: bool,
    /// It writes by taking rows away alone.
    only_removes: bool,
    /// Code of users' runs with it, or nothing can be written there.
    is_unfit: bool,
}

impl Effects {
    fn of(tree: &NodeEnum, context: &Context<'_>) -> Self {
        let code = &context.catalog.code;
        let tree = query_within(tree);
        let is_real = |relation: &&Arc<Relation>| relation.returned_by.is_none();
        let mentioned = mentions::of(tree, context);
        let reads = mentioned.relations.values().filter(is_real);
        let reads = reads.flat_map(|relation| code.with_children(relation.oid)).collect();
        let only_adds = matches!(tree, NodeEnum::InsertStmt(of) if of.on_conflict_clause.is_none());
        let only_removes = matches!(tree, NodeEnum::DeleteStmt(_));
        let target = written(tree).and_then(|range| context.relation(range));
        let mut is_unfit = target.is_some_and(|target| target.returned_by.is_some());
        let mut writes = BTreeSet::new();
        let mut open: Vec<u32> = target.map(|target| target.oid).into_iter().collect();
        while let Some(relation) = open.pop() {
            if writes.insert(relation) {
                is_unfit |= code.fires(relation);
                open.extend(code.with_children(relation));
                // A foreign key that is only checked writes nothing.
                let along = code.written_with(relation).iter();
                open.extend(along.filter(|of| of.by != 0 || of.is_child()).map(|of| of.relation));
            }
        }
        Self { reads, writes, only_adds, only_removes, is_unfit }
    }

    /// Whether a foreign key ties them, which PostgreSQL checks when all parts have run: then it makes a difference
    /// which is first, unless rows are added before those that refer to them, or taken away after them.
    fn is_tied(&self, later: &Self, context: &Context<'_>) -> bool {
        let refers = |from: &Self, to: &Self| {
            to.writes.iter().any(|referred| {
                let others = context.catalog.code.written_with(*referred).iter();
                let mut others = others.filter(|of| !of.is_child());
                others.any(|of| from.writes.contains(&of.relation))
            })
        };
        (refers(later, self) && !self.only_adds) || (refers(self, later) && !self.only_removes)
    }
}

/// Whether a query that several parts need gives each of them the same: it reads no table.
fn are_computed_once(parts: &[Part], queries: &[Query], context: &Context<'_>) -> bool {
    queries.iter().enumerate().all(|(index, query)| {
        let readers = parts.iter().filter(|part| part.needs.contains(&index)).count();
        let Some(tree) = query.cte.ctequery.as_deref() else { return false };
        let names_tables = || {
            let mentioned = tree.node.as_ref().map(|tree| mentions::of(tree, context));
            mentioned.is_none_or(|mentioned| !mentioned.relations.is_empty())
        };
        readers < 2
            || query.change.is_some()
            || (!names_tables() && volatility(tree, context) != Volatility::Volatile)
    })
}

/// How to run a part, which returns the rows of a change if later parts need them.
fn step(
    part: &Part,
    change: Option<(&Change, bool)>,
    context: &Context<'_>,
    plan_part: PlanPart<'_>,
) -> Result<Option<Step>, Refusal> {
    let mut tree = part.tree.clone();
    let returns = change.is_some_and(|(_, is_needed)| is_needed);
    if let Some((change, is_needed)) = change {
        let returning = match is_needed {
            true => {
                let returning = change.returning.iter().flat_map(|returning| &returning.exprs);
                let computed = returning.filter(|node| !is_column(node)).cloned();
                let exprs = [returned_rows(change)?].into_iter().chain(computed);
                Some(ReturningClause { exprs: exprs.collect(), ..Default::default() })
            }
            false => change.returning.clone(),
        };
        set_returning(&mut tree, returning);
    }
    let text = deparse(&tree)?;
    let Some(statement) = crate::statement::parse(&text)?.pop() else { return Ok(None) };
    let (planned, reach) = plan_part(&statement, context)?;
    let is_seen = reach.opaque.is_none() && reach.reads.is_empty() && !reach.sets;
    let is_of_rows = matches!(
        planned.plan,
        Plan::Data(
            DataPlan::One { .. }
                | DataPlan::Scatter { .. }
                | DataPlan::Replicas { .. }
                | DataPlan::Rows(_)
                | DataPlan::Gather(_)
                | DataPlan::Insert(_)
                | DataPlan::Move(_)
                | DataPlan::CopyTo(_)
        )
    );
    let step = Step { text, planned: Box::new(planned), returns };
    Ok((is_seen && is_of_rows && step.planned.session_names.is_empty()).then_some(step))
}

/// Whether there is nothing to compute for an output.
fn is_column(node: &Node) -> bool {
    match &node.node {
        Some(NodeEnum::ResTarget(target)) => target.val.as_deref().is_some_and(|value| {
            matches!(value.node, Some(NodeEnum::ColumnRef(_) | NodeEnum::AConst(_)))
        }),
        _ => false,
    }
}

/// The target's rows as text, as rows that are gathered travel, for RETURNING.
fn returned_rows(change: &Change) -> Result<Node, Refusal> {
    let alias = quote_identifier(&change.alias);
    // NULL is no value of every domain.
    let columns = change.target.columns.iter().zip(change.returned.iter().flatten());
    let columns: Vec<_> =
        columns.map(|(column, is_returned)| (column, *is_returned || column.domain)).collect();
    let value = |(column, is_needed): &(&crate::catalog::Column, bool)| match is_needed {
        true => format!("{alias}.{}", quote_identifier(&column.name)),
        false => "NULL".to_owned(),
    };
    let values: Vec<_> = columns.iter().map(value).collect();
    let are_alike =
        columns.iter().all(|(column, is_needed)| !is_needed || is_written_alike(column.type_oid));
    let text = row_text(&values.join(", "), are_alike);
    let unreadable = || Refusal::postgres("XX000", format!("{text} could not be read"));
    let target = pg_query::protobuf::ResTarget {
        val: Some(Box::new(parse_expression(&text).ok_or_else(unreadable)?)),
        ..Default::default()
    };
    Ok(Node { node: Some(NodeEnum::ResTarget(Box::new(target))) })
}

#[cfg(test)]
mod tests;
