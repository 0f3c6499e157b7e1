//! What gives the same on every node that has the same rows, and what need not: queries and expressions.
//!
//! Owns: the proof. It is a list of what is known to be the same: anything not on it is an obstacle. So
//! what PostgreSQL adds next year counts as different until it is reviewed.
//! Never: looks at what a statement writes (`replicas.rs` does).
//! Start reading at [`expression_obstacle`].

use std::cell::RefCell;
use std::collections::HashSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AExpr, FuncCall, Node, RangeVar, SelectStmt, SetOperation, SqlValueFunctionOp, SubLinkType,
    TypeCast,
};

use super::context::Context;
use super::current_time::{has_time_of_making, names_current_time};
use super::functions::is_built_in;
use super::syntax::{name_of, string};
use super::temporary::is_temporary;
use crate::built_in_types;
use crate::catalog::{Placement, RelationKind, Volatility};
use crate::walk;

/// Columns that say where a row is stored, or which transaction wrote it.
const SYSTEM_COLUMNS: [&str; 6] = ["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"];
/// Aggregates whose result is the same, to the last bit, for any order of their input.
const EXACT_AGGREGATES: [&str; 4] = ["count", "bool_and", "bool_or", "every"];
/// Immutable functions whose result depends on numbers that each node assigns by itself.
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
/// Why an expression need not have the same value on every node, as a clause; `None` if it provably has.
pub(super) fn expression_obstacle(expression: &Node, context: &Context<'_>) -> Option<String> {
    Proof::new(context).node(expression).err()
}

/// Whether an expression provably has the same value on every node, whenever it is evaluated.
pub(super) fn is_fixed(expression: &Node, context: &Context<'_>) -> bool {
    expression_obstacle(expression, context).is_none()
}

/// A search for what is not proven. An error says what was found.
pub(super) struct Proof<'a> {
    context: &'a Context<'a>,
    /// Views that are proven, or being proven: one may be named in itself, by a CTE of its name.
    seen: RefCell<HashSet<(String, String)>>,
}

/// What was found that is not proven, as a clause, if anything.
pub(super) type Proven = Result<(), String>;

impl<'a> Proof<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Self {
        Self { context, seen: RefCell::default() }
    }

    fn node(&self, node: &Node) -> Proven {
        node.node.as_ref().map_or(Ok(()), |node| self.tree(node))
    }

    fn tree(&self, node: &NodeEnum) -> Proven {
        self.alone(node)?;
        let mut proven = Ok(());
        walk::read::children(node, &mut |child| {
            if proven.is_ok() {
                proven = self.node(child);
            }
        });
        proven
    }

    /// What a node says without its children.
    pub(super) fn alone(&self, node: &NodeEnum) -> Proven {
        match node {
            NodeEnum::SelectStmt(select) => self.select(select)?,
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
        Ok(())
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

    /// A relation that is read or written.
    pub(super) fn relation(&self, range: &RangeVar) -> Proven {
        let name = &range.relname;
        if is_temporary(range, self.context) {
            return Err(format!("{name} is on node 1 only"));
        }
        // An unknown name is one of WITH, or an error that every node finds.
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
                trees.iter().try_for_each(|tree| self.tree(&tree.tree))
            }
            (RelationKind::Table, Placement::Replicated) => Ok(()),
            (RelationKind::Table, placement) if placement.is_distributed() => Ok(()),
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
        let name = cast_to(cast);
        let is_no_text = cast.arg.as_deref().is_some_and(|argument| match &argument.node {
            Some(NodeEnum::AConst(_) | NodeEnum::ParamRef(_)) => true,
            // A time already, of another type.
            Some(NodeEnum::TypeCast(of)) => cast_to(of).is_some_and(built_in_types::is_time),
            _ => false,
        });
        match name {
            // A text may say "now", and each node has a now of its own. For literals and parameters,
            // the planner and the session check the value.
            Some(name) if built_in_types::is_time(name) && !is_no_text => {
                Err(format!("a text that becomes a {name} may say now"))
            }
            Some(name) if !built_in_types::is_built_in(name) => {
                Err(format!("type {name} is a user's, and may be a domain"))
            }
            Some(name) if built_in_types::is_local(name) => {
                Err(format!("values of type {name} differ by node"))
            }
            _ if self.context.catalog.has_unproven_casts => {
                Err("a cast may run code of a user's".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The name of the type to which a cast goes, without its schema.
fn cast_to(cast: &TypeCast) -> Option<&str> {
    cast.type_name.as_ref().and_then(|name| string(name.names.last()?))
}
