//! Writes to replicated tables: by statement where that provably does the same everywhere, else by row.
//!
//! Owns: the proof, and what the executor needs to let rows travel.
//! Never: chooses locks or gathers (`dml.rs`, `insert.rs` and `query.rs` do).
//! Start reading at [`obstacle`].
//!
//! The proof is a list of what is known to be the same on every node that has the same rows: whatever
//! is not on it is an obstacle. So what PostgreSQL gets next year is written by row until somebody has
//! thought about it.

mod actions;

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AExpr, CmdType, FuncCall, InsertStmt, MergeStmt, MergeWhenClause, Node, RangeVar, SelectStmt,
    SetOperation, SqlValueFunctionOp, SubLinkType, TypeCast, TypeName,
};

use super::context::Context;
use super::current_time::{has_time_of_making, names_current_time};
use super::functions::is_built_in;
use super::insert::defaults::Evaluation;
use super::syntax::{name_of, string};
use super::temporary::is_temporary;
use crate::catalog::{Placement, Relation, RelationKind, Volatility, quote_identifier};
use crate::plan::{ReturnedRows, RowKind, RowsWrite};
use crate::walk;
pub(super) use actions::Effect;

/// Columns that say where a row lies, or who wrote it.
const SYSTEM_COLUMNS: [&str; 6] = ["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"];
/// Aggregates whose result is the same, to the last bit, for any order of their input.
const EXACT_AGGREGATES: [&str; 4] = ["count", "bool_and", "bool_or", "every"];
/// Types whose input functions know the word "now".
const TIME_TYPES: [&str; 5] = ["timestamptz", "timestamp", "date", "time", "timetz"];
/// Immutable functions whose result depends on numbers that each node gives out by itself.
const HASHES_OF_LOCAL: [&str; 10] = [
    "hashenum",
    "hashenumextended",
    "hash_array",
    "hash_array_extended",
    "hash_record",
    "hash_record_extended",
    "hash_range",
    "hash_range_extended",
    "hash_multirange",
    "hash_multirange_extended",
];
/// Types whose values are numbers that each node gives out by itself, or names of such.
const LOCAL_TYPES: [&str; 15] = [
    "oid",
    "tid",
    "xid",
    "xid8",
    "cid",
    "regproc",
    "regprocedure",
    "regoper",
    "regoperator",
    "regclass",
    "regtype",
    "regrole",
    "regnamespace",
    "regconfig",
    "regdictionary",
];

/// Why the statement need not do the same on every node that has the same rows, as a clause; `None`
/// if it provably does.
pub(super) fn obstacle(tree: &NodeEnum, context: &Context<'_>) -> Option<String> {
    Proof::new(context).statement(tree).err()
}

/// The same for an expression.
pub(super) fn expression_obstacle(expression: &Node, context: &Context<'_>) -> Option<String> {
    Proof::new(context).node(expression).err()
}

/// Why rows that are stored in this table are not the same everywhere, whatever is stored.
pub(super) fn table_obstacle(relation: &Relation) -> Option<String> {
    if relation.has_triggers {
        return Some(format!("a trigger or rule of {} runs", relation.name));
    }
    let generated = relation.columns.iter().find(|column| column.generated)?;
    Some(format!("column {} is generated", generated.name))
}

/// Why what comes with a write to this table, or to the tables of this view, is not the same everywhere.
pub(super) fn target_obstacle(
    relation: &Arc<Relation>,
    effect: &Effect,
    context: &Context<'_>,
) -> Option<String> {
    if relation.kind == RelationKind::Table {
        return actions::of(relation, effect, context).obstacle();
    }
    // What a view's columns are in its tables, nobody looks up.
    tables_of(relation, context).iter().find_map(|table| {
        table_obstacle(table).or_else(|| actions::of(table, &Effect::any(), context).obstacle())
    })
}

/// A search for what is not proven. An error says what was found.
struct Proof<'a> {
    context: &'a Context<'a>,
    /// Views that are proven, or being proven: one may be named in itself, by a CTE of its name.
    seen: RefCell<HashSet<(String, String)>>,
}

type Proven = Result<(), String>;

impl<'a> Proof<'a> {
    fn new(context: &'a Context<'a>) -> Self {
        Self { context, seen: RefCell::default() }
    }

    fn node(&self, node: &Node) -> Proven {
        node.node.as_ref().map_or(Ok(()), |node| self.statement(node))
    }

    fn statement(&self, node: &NodeEnum) -> Proven {
        match node {
            NodeEnum::SelectStmt(select) => self.select(select)?,
            NodeEnum::InsertStmt(insert) => self.insert(insert, node)?,
            NodeEnum::UpdateStmt(update) => {
                if !update.from_clause.is_empty() {
                    return Err("of several matching rows any is taken".to_owned());
                }
                self.target(update.relation.as_ref(), node)?;
            }
            NodeEnum::DeleteStmt(delete) => self.target(delete.relation.as_ref(), node)?,
            NodeEnum::MergeStmt(merge) => {
                self.target(merge.relation.as_ref(), node)?;
                self.merged_defaults(merge)?;
            }
            NodeEnum::RangeVar(range) => self.relation(range)?,
            NodeEnum::ColumnRef(reference) => {
                let last = reference.fields.last().and_then(string);
                if let Some(name) = last.filter(|name| SYSTEM_COLUMNS.contains(name)) {
                    return Err(format!("{name} differs by node"));
                }
            }
            NodeEnum::AConst(constant) => {
                use pg_query::protobuf::a_const::Val;
                if let Some(Val::Sval(text)) = &constant.val
                    && names_current_time(&text.sval)
                {
                    return Err("a literal may mean the current time".to_owned());
                }
            }
            NodeEnum::FuncCall(call) => self.call(call)?,
            NodeEnum::AExpr(expression) => self.operator(expression)?,
            NodeEnum::TypeCast(cast) => self.cast(cast)?,
            NodeEnum::SubLink(link) => {
                if link.sub_link_type() == SubLinkType::ArraySublink {
                    return Err("an array of a subquery has the order of its rows".to_owned());
                }
            }
            NodeEnum::SqlvalueFunction(function) => {
                use SqlValueFunctionOp as Op;
                let is_role = matches!(
                    function.op(),
                    Op::SvfopCurrentRole
                        | Op::SvfopCurrentUser
                        | Op::SvfopUser
                        | Op::SvfopSessionUser
                );
                if !is_role {
                    return Err(
                        "the current time, or a name of the node's, is asked for".to_owned()
                    );
                }
            }
            NodeEnum::MergeWhenClause(_)
            | NodeEnum::CommonTableExpr(_)
            | NodeEnum::JoinExpr(_)
            | NodeEnum::RangeSubselect(_)
            | NodeEnum::RangeFunction(_)
            | NodeEnum::List(_)
            | NodeEnum::ResTarget(_)
            | NodeEnum::MultiAssignRef(_)
            | NodeEnum::SortBy(_)
            | NodeEnum::IndexElem(_)
            | NodeEnum::BoolExpr(_)
            | NodeEnum::AIndirection(_)
            | NodeEnum::AIndices(_)
            | NodeEnum::AArrayExpr(_)
            | NodeEnum::AStar(_)
            | NodeEnum::CollateClause(_)
            | NodeEnum::NamedArgExpr(_)
            | NodeEnum::CaseExpr(_)
            | NodeEnum::CaseWhen(_)
            | NodeEnum::RowExpr(_)
            | NodeEnum::CoalesceExpr(_)
            | NodeEnum::MinMaxExpr(_)
            | NodeEnum::NullTest(_)
            | NodeEnum::BooleanTest(_)
            | NodeEnum::ParamRef(_)
            | NodeEnum::SetToDefault(_)
            | NodeEnum::String(_)
            | NodeEnum::Integer(_) => (),
            _ => return Err("nobody has proven that it does the same on every node".to_owned()),
        }
        let mut proven = Ok(());
        walk::read::children(node, &mut |child| {
            if proven.is_ok() {
                proven = self.node(child);
            }
        });
        proven
    }

    /// What depends on the order of rows, or takes one of several that count as equal.
    fn select(&self, select: &SelectStmt) -> Proven {
        let parts = [select.larg.as_deref(), select.rarg.as_deref()];
        parts.into_iter().flatten().try_for_each(|part| self.select(part))?;
        let is_plain = matches!(
            (select.op(), select.all),
            (SetOperation::SetopNone | SetOperation::Undefined, _)
                | (SetOperation::SetopUnion, true)
        );
        let found = if !is_plain || !select.distinct_clause.is_empty() {
            "of equal rows one is taken"
        } else if !select.group_clause.is_empty() || select.having_clause.is_some() {
            "rows are grouped"
        } else if !select.window_clause.is_empty() {
            "there are windows"
        } else if select.limit_count.is_some() || select.limit_offset.is_some() {
            "rows are taken in some order"
        } else if !select.locking_clause.is_empty() {
            "rows are locked"
        } else {
            return Ok(());
        };
        Err(format!("in a subquery {found}"))
    }

    fn insert(&self, insert: &InsertStmt, tree: &NodeEnum) -> Proven {
        let target = insert.relation.as_ref();
        self.target(target, tree)?;
        self.defaults(target)?;
        let from_values = match insert.select_stmt.as_ref().and_then(|it| it.node.as_ref()) {
            Some(NodeEnum::SelectStmt(select)) => !select.values_lists.is_empty(),
            _ => true,
        };
        if insert.on_conflict_clause.is_some() && !from_values {
            return Err("of conflicting rows the first is taken".to_owned());
        }
        Ok(())
    }

    /// A table that `tree` changes.
    fn target(&self, range: Option<&RangeVar>, tree: &NodeEnum) -> Proven {
        let Some(range) = range else { return Ok(()) };
        self.relation(range)?;
        let Some(relation) = self.context.relation(range) else { return Ok(()) };
        let obstacle = table_obstacle(relation)
            .or_else(|| target_obstacle(relation, &Effect::of(tree), self.context));
        obstacle.map_or(Ok(()), Err)
    }

    fn defaults(&self, range: Option<&RangeVar>) -> Proven {
        let Some(relation) = range.and_then(|range| self.context.relation(range)) else {
            return Ok(());
        };
        let evaluation = Evaluation::of(relation, self.context);
        let once = (0..relation.columns.len())
            .find(|column| evaluation.once_for_several_nodes(*column))
            .map(|column| &relation.columns[column].name);
        once.map_or(Ok(()), |name| Err(format!("the default of {name} may be evaluated")))
    }

    /// A default that a MERGE takes, because it says so or because a new row has no value.
    fn merged_defaults(&self, merge: &MergeStmt) -> Proven {
        let Some(relation) = merge.relation.as_ref().and_then(|of| self.context.relation(of))
        else {
            return Ok(());
        };
        let evaluation = Evaluation::of(relation, self.context);
        let once = |column: &usize| evaluation.once_for_several_nodes(*column);
        let clauses = merge.merge_when_clauses.iter().filter_map(|node| match &node.node {
            Some(NodeEnum::MergeWhenClause(clause)) => Some(&**clause),
            _ => None,
        });
        for clause in clauses {
            let takes = |column: &usize| {
                says_default(clause)
                    || clause.command_type() == CmdType::CmdInsert
                        && !gives(clause, *column, &relation.columns[*column].name)
            };
            if let Some(column) = (0..relation.columns.len()).filter(once).find(takes) {
                let name = &relation.columns[column].name;
                return Err(format!("the default of {name} may be evaluated"));
            }
        }
        Ok(())
    }

    fn relation(&self, range: &RangeVar) -> Proven {
        let name = &range.relname;
        if is_temporary(range, self.context) {
            return Err(format!("{name} is on node 1 only"));
        }
        // A name that nobody knows is one of WITH, or an error that every node finds.
        let Some(relation) = self.context.relation(range) else {
            return match range.schemaname.is_empty() && !name.starts_with("pg_") {
                true => Ok(()),
                false => Err(format!("{name} is on node 1 only")),
            };
        };
        let local =
            |oid| matches!(oid, 24 | 26..=29 | 2202..=2206 | 3734 | 3769 | 4089 | 4096 | 5069);
        if relation.columns.iter().any(|column| local(column.type_oid)) {
            return Err(format!("{name} has a column whose values each node gives by itself"));
        }
        match (&relation.kind, &relation.placement) {
            (RelationKind::View { definition }, _) => {
                let id = (relation.schema.clone(), relation.name.clone());
                if !self.seen.borrow_mut().insert(id) {
                    return Ok(());
                }
                let trees = crate::statement::parse(definition)
                    .map_err(|_| format!("the query of view {name} cannot be read"))?;
                if has_time_of_making(definition) {
                    return Err(format!("view {name} may have the time when it was made"));
                }
                if relation.has_triggers {
                    return Err(format!("a trigger or rule of view {name} may run"));
                }
                trees.iter().try_for_each(|tree| self.statement(&tree.tree))
            }
            (RelationKind::Table, Placement::Replicated) => Ok(()),
            (RelationKind::Table, Placement::Hash { .. } | Placement::RoundRobin) => Ok(()),
            _ => Err(format!("{name} is on node 1 only")),
        }
    }

    fn call(&self, call: &FuncCall) -> Proven {
        let (schema, name) = name_of(call);
        let Context { catalog, scope, .. } = self.context;
        let hidden = schema.is_none()
            && scope.search_path.iter().any(|schema| {
                schema != "pg_catalog"
                    && catalog.functions.get(schema).is_some_and(|of| of.contains_key(name))
            });
        let function = catalog.function(scope, schema, name);
        let is_proven = function.is_some_and(|function| {
            function.volatility == Volatility::Immutable
                && !HASHES_OF_LOCAL.contains(&name)
                && !function.window
                && (!function.aggregate || EXACT_AGGREGATES.contains(&name))
        });
        let is_plain = call.over.is_none() && call.agg_order.is_empty() && !call.agg_within_group;
        match is_built_in(schema, name, self.context) && !hidden && is_proven && is_plain {
            true => Ok(()),
            false => Err(format!("{name}() need not give the same on every node")),
        }
    }

    fn operator(&self, expression: &AExpr) -> Proven {
        let name = expression.name.last().and_then(string).unwrap_or_default();
        let foreign = match &expression.name[..] {
            [_] => false,
            [schema, _] => string(schema) != Some("pg_catalog"),
            _ => true,
        };
        match foreign || self.context.catalog.unproven_operators.contains(name) {
            true => Err(format!("operator {name} may run code of a user's")),
            false => Ok(()),
        }
    }

    fn cast(&self, cast: &TypeCast) -> Proven {
        let name = cast.type_name.as_ref().and_then(|name| string(name.names.last()?));
        let is_literal = cast.arg.as_deref().is_some_and(|argument| {
            matches!(argument.node, Some(NodeEnum::AConst(_) | NodeEnum::ParamRef(_)))
        });
        match name {
            // A text may say "now", and each node has a now of its own. Of literals and parameters the
            // planner and the session look at the value.
            Some(name) if TIME_TYPES.contains(&name) && !is_literal => {
                Err(format!("a text that becomes a {name} may say now"))
            }
            Some(name) if !is_known_type(cast.type_name.as_ref()) => {
                Err(format!("type {name} is a user's, and may be a domain"))
            }
            Some(name) if LOCAL_TYPES.contains(&name) => {
                Err(format!("values of type {name} differ by node"))
            }
            _ if self.context.catalog.has_unproven_casts => {
                Err("a cast may run code of a user's".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Whether a cast names one of PostgreSQL's own types, as the grammar or a schema says it.
fn is_known_type(name: Option<&TypeName>) -> bool {
    const KNOWN: [&str; 26] = [
        "bool",
        "int2",
        "int4",
        "int8",
        "float4",
        "float8",
        "numeric",
        "text",
        "varchar",
        "bpchar",
        "name",
        "bytea",
        "uuid",
        "json",
        "jsonb",
        "interval",
        "bit",
        "varbit",
        "inet",
        "cidr",
        "timestamptz",
        "timestamp",
        "date",
        "time",
        "timetz",
        "money",
    ];
    let Some(name) = name else { return true };
    let last = name.names.last().and_then(string).unwrap_or_default();
    KNOWN.contains(&last) || LOCAL_TYPES.contains(&last)
}

fn says_default(clause: &MergeWhenClause) -> bool {
    let is_default = |node: &Node| matches!(node.node, Some(NodeEnum::SetToDefault(_)));
    clause.values.iter().any(is_default)
        || clause.target_list.iter().any(|node| match &node.node {
            Some(NodeEnum::ResTarget(target)) => target.val.as_deref().is_some_and(is_default),
            _ => false,
        })
}

/// Whether an inserting clause has a value for the column.
fn gives(clause: &MergeWhenClause, column: usize, name: &str) -> bool {
    if clause.target_list.is_empty() {
        return column < clause.values.len();
    }
    clause
        .target_list
        .iter()
        .any(|node| matches!(&node.node, Some(NodeEnum::ResTarget(target)) if target.name == name))
}

/// What must travel for a statement that writes `relation`.
pub(super) fn rows_of(
    tree: &NodeEnum,
    relation: &Arc<Relation>,
    context: &Context<'_>,
) -> RowsWrite {
    let is_table = relation.kind == RelationKind::Table;
    let effect = if is_table { Effect::of(tree) } else { Effect::any() };
    let (rows, is_left_to_nodes) = rows_and_reached(tables_of(relation, context), &effect, context);
    let returned = if is_left_to_nodes { returned(tree, relation) } else { None };
    let names_some = match tree {
        NodeEnum::UpdateStmt(update) => update.where_clause.is_some(),
        NodeEnum::DeleteStmt(delete) => delete.where_clause.is_some(),
        NodeEnum::InsertStmt(insert) => insert.on_conflict_clause.is_some(),
        _ => false,
    };
    RowsWrite { returned, names_some, ..rows }
}

/// The same for a statement that writes several tables, or none that it returns the rows of.
pub(super) fn rows_of_tables<'t>(
    relations: impl Iterator<Item = &'t Arc<Relation>>,
    effect: &Effect,
    context: &Context<'_>,
) -> RowsWrite {
    let mut tables: Vec<Arc<Relation>> = Vec::new();
    relations.for_each(|relation| add_all(&mut tables, tables_of(relation, context)));
    rows_and_reached(tables, effect, context).0
}

/// What travels if nothing is returned, and whether each node may follow foreign keys for itself.
fn rows_and_reached(
    tables: Vec<Arc<Relation>>,
    effect: &Effect,
    context: &Context<'_>,
) -> (RowsWrite, bool) {
    let mut rows = RowsWrite {
        tables: Vec::new(),
        reached: Vec::new(),
        is_referred_to: false,
        names_some: false,
        returned: None,
        cursor: None,
    };
    let mut is_left_to_nodes = true;
    for table in &tables {
        let found = actions::of(table, effect, context);
        is_left_to_nodes &= found.by_action.is_none();
        rows.is_referred_to |= found.is_referred_to;
        add_all(&mut rows.reached, found.reached);
    }
    rows.reached.retain(|table| !tables.iter().any(|known| known.oid == table.oid));
    rows.tables = tables;
    (rows, is_left_to_nodes)
}

fn add_all(tables: &mut Vec<Arc<Relation>>, more: Vec<Arc<Relation>>) {
    for table in more {
        if !tables.iter().any(|known| known.oid == table.oid && known.name == table.name) {
            tables.push(table);
        }
    }
}

/// The replicated tables that are written when `relation` is: itself, or what a view reads.
fn tables_of(relation: &Arc<Relation>, context: &Context<'_>) -> Vec<Arc<Relation>> {
    let mut seen = vec![relation.clone()];
    let mut next = 0;
    while let Some(relation) = seen.get(next).cloned() {
        next += 1;
        if let RelationKind::View { definition } = &relation.kind {
            for tree in crate::statement::parse(definition).unwrap_or_default() {
                add_named(&tree.tree, context, &mut seen);
            }
        }
    }
    seen.retain(|relation| {
        relation.kind == RelationKind::Table && relation.placement == Placement::Replicated
    });
    seen
}

fn add_named(tree: &NodeEnum, context: &Context<'_>, seen: &mut Vec<Arc<Relation>>) {
    if let NodeEnum::RangeVar(range) = tree
        && let Some(relation) = context.relation(range)
        && !seen.contains(relation)
    {
        seen.push(relation.clone());
    }
    walk::read::children(tree, &mut |child| {
        if let Some(child) = &child.node {
            add_named(child, context, seen);
        }
    });
}

/// How the statement can say itself which rows it wrote. `None` where what it returns does not say
/// which rows of the copies these were.
fn returned(tree: &NodeEnum, relation: &Relation) -> Option<ReturnedRows> {
    if relation.kind != RelationKind::Table {
        return None;
    }
    let is_key = |name: &str| {
        relation.column(name).is_some_and(|column| relation.primary_key.contains(&column))
    };
    let keeps_key = |targets: &[Node]| {
        !relation.primary_key.is_empty()
            && targets.iter().all(|node| match &node.node {
                Some(NodeEnum::ResTarget(target)) => !is_key(&target.name),
                _ => false,
            })
    };
    let (kind, range, returning) = match tree {
        NodeEnum::InsertStmt(insert) => {
            let kind = match &insert.on_conflict_clause {
                Some(conflict) if !conflict.target_list.is_empty() => {
                    if !keeps_key(&conflict.target_list) {
                        return None;
                    }
                    RowKind::Upsert
                }
                _ => RowKind::Insert,
            };
            (kind, insert.relation.as_ref()?, insert.returning_clause.as_ref())
        }
        NodeEnum::UpdateStmt(update) if keeps_key(&update.target_list) => {
            (RowKind::Update, update.relation.as_ref()?, update.returning_clause.as_ref())
        }
        NodeEnum::DeleteStmt(delete) if keeps_key(&[]) => {
            (RowKind::Delete, delete.relation.as_ref()?, delete.returning_clause.as_ref())
        }
        _ => return None,
    };
    // `WITH (OLD AS o)` stands inside RETURNING; whoever needs it gets the slow way.
    if returning.is_some_and(|returning| !returning.options.is_empty()) {
        return None;
    }
    let name = range.alias.as_ref().map_or(&range.relname, |alias| &alias.aliasname);
    let row = format!("tutti.row_text(ROW({}.*))", quote_identifier(name));
    let returning = match returning.is_some_and(|returning| !returning.exprs.is_empty()) {
        true => format!("\n, {row}"),
        false => format!("\nRETURNING {row}"),
    };
    Some(ReturnedRows { kind, returning })
}
