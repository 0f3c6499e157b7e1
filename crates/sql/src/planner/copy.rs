//! Plans of COPY.
//!
//! Owns: which columns the data has, which must be added to it, and where the rows of COPY TO come
//! from. Never: reads or splits data; the executor does, by the plan's options.
//! Start reading at [`plan_copy`].

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{CommonTableExpr, CopyStmt, CteMaterialize, Node, SelectStmt, WithClause};

use super::carried::refuse_change;
use super::context::Context;
use super::defaults::Evaluation;
use super::determinism::expression_obstacle;
use super::gaps::parse_select;
use super::gather::{is_read_alike, travelling};
use super::sql_text::deparse;
use super::syntax::{contains, is_on, option, option_text, string};
use super::unseen::{refuse_opaque_default, refuse_unsafe_code};
use super::{cluster_sizes, computed_keys, mentions, query, replicas};
use crate::catalog::{Placement, Relation, RelationKind};
use crate::closure::events;
use crate::plan::{
    Access, CopiedColumns, CopyFrom, CopyTo, CopyToPlan, DataPlan, NodeChoice, Plan, Planned,
};
use crate::refusal::Refusal;
use crate::statement::Statement;
use crate::statement::tokens::{list, scan};

/// Plans COPY in both directions; `inner` is the plan of [`changing`].
pub(super) fn plan_copy(
    copy: &CopyStmt,
    statement: &Statement,
    inner: Option<Planned>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    if !copy.filename.is_empty() && is_home_alone(copy, context) {
        return Ok(Planned::at_home("only node 1 has it"));
    }
    if !copy.filename.is_empty() {
        let what = if copy.is_program { "a program" } else { "a file" };
        return Err(Refusal::unsupported(
            format!("COPY with {what} is not supported"),
            "It would be one on the server of a node, not the client's.",
            "Use COPY … FROM STDIN or TO STDOUT; in psql \\copy does.",
        ));
    }
    if copy.is_from {
        plan_from(copy, statement, context)
    } else {
        plan_to(copy, statement, inner, context)
    }
}

/// Whether all that it names is on node 1 alone, where the file is then too.
fn is_home_alone(copy: &CopyStmt, context: &Context<'_>) -> bool {
    if !context.catalog.home_by_default {
        return false;
    }
    let named = match (&copy.relation, copy.query.as_ref().and_then(|query| query.node.as_ref())) {
        (Some(range), _) => mentions::of(&NodeEnum::RangeVar(range.clone()), context),
        // What is changed counts as what is read does.
        (None, Some(query)) => mentions::with_targets(query, context),
        (None, None) => return false,
    };
    named.distributed.is_none() && named.replicated.is_none()
}

fn plan_to(
    copy: &CopyStmt,
    statement: &Statement,
    inner: Option<Planned>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let (plan, why) = match (&copy.relation, copy.query.as_ref().and_then(|it| it.node.as_ref())) {
        (Some(range), _) => match context.relation(range).map(|relation| &relation.placement) {
            Some(
                Placement::Hash { .. } | Placement::HashOfSeveral { .. } | Placement::RoundRobin,
            ) => (CopyToPlan::Scatter, "every node has a share of the rows".to_owned()),
            Some(Placement::Replicated) => (
                CopyToPlan::One(NodeChoice::Any, Access::Read),
                "every node has all rows".to_owned(),
            ),
            Some(Placement::Home | Placement::Async { .. }) | None => {
                (CopyToPlan::One(NodeChoice::Home, Access::Read), "only node 1 has it".to_owned())
            }
        },
        (None, Some(NodeEnum::SelectStmt(select))) => {
            let of_select = |select: &SelectStmt| query_to(select, statement, context);
            cluster_sizes::planned_with(select, context, &of_select)?
        }
        (None, _) if let Some(inner) = inner => changing_to(inner)?,
        (None, _) => return Err(Refusal::postgres("42601", "syntax error at end of input")),
    };
    let format = option(&copy.options, "format").and_then(option_text);
    let binary = format.is_some_and(|format| format.eq_ignore_ascii_case("binary"));
    let header = option(&copy.options, "header").is_some_and(is_on);
    let columns = match binary {
        true => columns_to(copy, context)?,
        false => CopiedColumns::OfTypes(Vec::new()),
    };
    Ok(Planned::new(DataPlan::CopyTo(CopyTo { plan, binary, header, columns }), why))
}

/// What COPY … TO STDOUT copies. (What changes data returns its rows as one node has them.)
fn columns_to(copy: &CopyStmt, context: &Context<'_>) -> Result<CopiedColumns, Refusal> {
    let query = copy.query.as_ref().and_then(|it| it.node.as_ref());
    if let Some(select @ NodeEnum::SelectStmt(_)) = query {
        let is_returned = |tree: &NodeEnum| match tree {
            NodeEnum::RangeVar(range) => {
                context.relation(range).is_some_and(|relation| relation.returned_by.is_some())
            }
            _ => false,
        };
        return Ok(match contains(select, &is_returned) {
            true => CopiedColumns::OfTypes(Vec::new()),
            false => CopiedColumns::OfQuery(deparse(select)?),
        });
    }
    let relation = copy.relation.as_ref().and_then(|range| context.relation(range));
    let columns = relation.into_iter().flat_map(|relation| &relation.columns);
    let of_types = match copy.attlist.is_empty() {
        true => columns.filter(|column| !column.generated).map(|column| column.type_oid).collect(),
        false => {
            let named = copy.attlist.iter().filter_map(string);
            let of_name = |name| columns.clone().find(|column| column.name == name);
            named.map(|name| of_name(name).map_or(0, |column| column.type_oid)).collect()
        }
    };
    Ok(CopiedColumns::OfTypes(of_types))
}

/// COPY (query) TO STDOUT.
fn query_to(
    select: &SelectStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<(CopyToPlan, String), Refusal> {
    let Planned { plan, why, .. } = query::plan_select(select, context)?;
    let plan = match plan {
        Plan::Data(DataPlan::One { node, access, otherwise: None }) => {
            CopyToPlan::One(node, access)
        }
        Plan::Data(DataPlan::Scatter { access: Access::Read }) => CopyToPlan::Scatter,
        _ => {
            let text = statement.text.as_str();
            let tokens =
                scan(text).map_err(|error| Refusal::postgres("42601", error.to_string()))?;
            let behind = list(text, &tokens, 1).map(|(_, behind)| behind);
            let (Some(open), Some(close)) =
                (tokens.get(1), behind.and_then(|behind| tokens.get(behind - 1)))
            else {
                return Err(Refusal::postgres("42601", "syntax error at end of input"));
            };
            let (before, after) = (&text[..open.end], &text[close.start..]);
            let gather = query::gather_query_in_parts(select, before, after, context)?;
            CopyToPlan::Gather(Box::new(gather))
        }
    };
    Ok((plan, why))
}

/// The statement of COPY (INSERT … RETURNING) TO STDOUT and the like, which is planned first.
pub(super) fn changing(
    copy: &CopyStmt,
    statement: &Statement,
) -> Result<Option<Statement>, Refusal> {
    let tree = match copy.query.as_ref().and_then(|query| query.node.as_ref()) {
        None | Some(NodeEnum::SelectStmt(_)) => return Ok(None),
        Some(_) if copy.is_from || copy.relation.is_some() || !copy.filename.is_empty() => {
            return Ok(None);
        }
        Some(tree) => tree,
    };
    Ok(Some(Statement {
        text: deparse(tree)?,
        offset: 0,
        tree: tree.clone(),
        distribute_by: None,
        cascades: false,
        global_unique: false,
        parameter_count: statement.parameter_count,
    }))
}

/// COPY (INSERT … RETURNING …) TO STDOUT and the like as COPY of a query that reads what the change in its WITH returns.
/// `None`: it is none.
pub(super) fn of_returned(copy: &CopyStmt) -> Result<Option<NodeEnum>, Refusal> {
    const CHANGED: &str = "tutti_changed";
    let returning = match copy.query.as_ref().and_then(|query| query.node.as_ref()) {
        _ if copy.is_from || !copy.filename.is_empty() => return Ok(None),
        Some(NodeEnum::InsertStmt(of)) => &of.returning_clause,
        Some(NodeEnum::UpdateStmt(of)) => &of.returning_clause,
        Some(NodeEnum::DeleteStmt(of)) => &of.returning_clause,
        _ => return Ok(None),
    };
    if returning.as_ref().is_none_or(|returning| returning.exprs.is_empty()) {
        return Err(Refusal::postgres("0A000", "COPY query must have a RETURNING clause"));
    }
    let changing = CommonTableExpr {
        ctename: CHANGED.to_owned(),
        ctematerialized: CteMaterialize::Default.into(),
        ctequery: copy.query.clone(),
        ..Default::default()
    };
    let mut select = parse_select(&format!("SELECT * FROM {CHANGED}"))?;
    select.with_clause = Some(WithClause {
        ctes: vec![Node { node: Some(NodeEnum::CommonTableExpr(Box::new(changing))) }],
        ..Default::default()
    });
    let query = Some(Box::new(Node { node: Some(NodeEnum::SelectStmt(select)) }));
    Ok(Some(NodeEnum::CopyStmt(Box::new(CopyStmt { query, ..copy.clone() }))))
}

/// COPY of what a changing statement with this plan returns.
fn changing_to(changing: Planned) -> Result<(CopyToPlan, String), Refusal> {
    match changing {
        Planned {
            plan: Plan::Data(DataPlan::One { node, access, otherwise: None }), why, ..
        } => Ok((CopyToPlan::One(node, access), why)),
        _ => Err(Refusal::unsupported(
            "COPY of a statement that changes rows on several nodes is not supported",
            "Its rows would have to be brought together from several writes.",
            "Run the statement with RETURNING by itself.",
        )),
    }
}

fn plan_from(
    copy: &CopyStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let relation = copy.relation.as_ref().and_then(|range| context.relation(range));
    if context.catalog.is_solo() {
        return Ok(Planned::at_home("no table is on other nodes"));
    }
    let Some(relation) = relation else {
        return Ok(Planned::at_home("only node 1 has it"));
    };
    if let RelationKind::View { .. } = relation.kind {
        let tables = mentions::of_relation(relation, context);
        if tables.distributed.is_some() || tables.replicated.is_some() {
            return Err(Refusal::unsupported(
                format!("COPY into the view {} is not supported", relation.sql_name()),
                "Its rows would go through a trigger on one node.",
                "Copy into the table itself.",
            ));
        }
        return Ok(Planned::at_home("only node 1 has it"));
    }
    if relation.placement == Placement::Home {
        return Ok(Planned::at_home("only node 1 has it"));
    }
    if let Placement::Async { .. } = relation.placement {
        return Err(refuse_change(relation));
    }
    refuse_unsafe_code(relation, events::INSERT, context)?;
    let columns = data_columns(copy, relation)?;
    let evaluation = Evaluation::of(relation, context);
    if let Some(why) = by_row(copy, relation, &columns, &evaluation, context) {
        let effect = replicas::Effect::inserted();
        let rows = replicas::rows_of_tables([relation].into_iter(), &effect, context);
        let why = format!("node 1 computes the rows for all copies: {why}");
        return Ok(Planned::new(DataPlan::Rows(rows), why));
    }
    check_options(copy, relation, &columns, &evaluation)?;
    let fill: Vec<(usize, String)> = (0..relation.columns.len())
        .filter(|column| !columns.contains(column) && evaluation.once_for_several_nodes(*column))
        .map(|column| {
            let default = evaluation.default_sql(column)?;
            Ok((column, travelling(&default, &relation.columns[column])))
        })
        .collect::<Result<_, Refusal>>()?;
    for (column, _) in &fill {
        refuse_opaque_default(relation, *column, context)?;
    }
    let key = relation.placement.key_columns().into_iter().map(|key| {
        let mut sent = columns.iter().chain(fill.iter().map(|(column, _)| column));
        sent.position(|column| *column == key.column)
    });
    let key = key.collect();
    let text = if fill.is_empty() {
        statement.text.clone()
    } else {
        let mut filled = copy.clone();
        filled.attlist = columns
            .iter()
            .chain(fill.iter().map(|(column, _)| column))
            .map(|column| name_node(&relation.columns[*column].name))
            .collect();
        deparse(&NodeEnum::CopyStmt(Box::new(filled)))?
    };
    let why = match relation.placement {
        Placement::Hash { .. } | Placement::HashOfSeveral { .. } => {
            "each row goes to the node of its distribution key"
        }
        Placement::RoundRobin => "the rows are spread over the nodes",
        _ => "every node receives all rows",
    };
    let timed = match relation.placement {
        Placement::Replicated => timed(&columns, relation),
        _ => Vec::new(),
    };
    let rows = (!timed.is_empty()).then(|| {
        let effect = replicas::Effect::inserted();
        replicas::rows_of_tables([relation].into_iter(), &effect, context)
    });
    let fill_is_read_alike =
        fill.iter().all(|(column, _)| is_read_alike(relation.columns[*column].type_oid));
    let copy_from = CopyFrom {
        relation: relation.clone(),
        statement: text,
        options: copy.options.iter().flat_map(written_options).collect(),
        columns,
        key,
        fill,
        fill_is_read_alike,
        timed,
        rows,
        bucket_question: computed_keys::question_of_copied(relation, context)?,
    };
    Ok(Planned::new(DataPlan::CopyFrom(copy_from), why))
}

/// Why node 1 alone must take data for a replicated table, and the other nodes what has become of it.
fn by_row(
    copy: &CopyStmt,
    relation: &Arc<Relation>,
    columns: &[usize],
    evaluation: &Evaluation<'_>,
    context: &Context<'_>,
) -> Option<String> {
    if relation.placement != Placement::Replicated {
        return None;
    }
    if relation.has_triggers {
        return Some(format!("a trigger or rule of {} runs", relation.name));
    }
    let effect = replicas::Effect::inserted();
    if let Some(obstacle) = replicas::target_obstacle(relation, &effect, context) {
        return Some(obstacle);
    }
    let filter = copy.where_clause.as_ref();
    if let Some(obstacle) = filter.and_then(|filter| expression_obstacle(filter, context)) {
        return Some(obstacle);
    }
    let once = |column: &usize| evaluation.once_for_several_nodes(*column);
    let format = option(&copy.options, "format").and_then(option_text);
    let is_binary = format.is_some_and(|format| format.eq_ignore_ascii_case("binary"));
    let omitted = (0..relation.columns.len()).filter(|column| !columns.contains(column));
    let takes_default = option(&copy.options, "default").is_some();
    if is_binary && omitted.into_iter().any(|column| once(&column))
        || takes_default && columns.iter().any(once)
    {
        return Some("a default is evaluated".to_owned());
    }
    None
}

/// Positions of columns whose values may be read from texts that say `now`: of dates and times, of
/// types made of them, and of user-defined types, which may be.
fn timed(columns: &[usize], relation: &Relation) -> Vec<usize> {
    const TIMED: [u32; 19] = [
        1082, 1083, 1114, 1184, 1266, 1182, 1183, 1115, 1185, 1270, 3908, 3909, 3910, 3911, 3912,
        3913, 4533, 4534, 4535,
    ];
    const FIRST_USER_OID: u32 = 16384;
    let is_timed = |column: usize| {
        let of = relation.columns[column].type_oid;
        FIRST_USER_OID <= of || TIMED.contains(&of)
    };
    (0..columns.len()).filter(|position| is_timed(columns[*position])).collect()
}

/// The columns that the data has, in its order.
fn data_columns(copy: &CopyStmt, relation: &Relation) -> Result<Vec<usize>, Refusal> {
    if copy.attlist.is_empty() {
        let all = relation.columns.iter().enumerate();
        return Ok(all.filter(|(_, column)| !column.generated).map(|(index, _)| index).collect());
    }
    copy.attlist
        .iter()
        .filter_map(string)
        .map(|name| {
            relation.column(name).ok_or_else(|| {
                let message =
                    format!("column \"{name}\" of relation \"{}\" does not exist", relation.name);
                Refusal::postgres("42703", message)
            })
        })
        .collect()
}

/// Refuses options whose effect would differ from one PostgreSQL's.
fn check_options(
    copy: &CopyStmt,
    relation: &Relation,
    columns: &[usize],
    evaluation: &Evaluation<'_>,
) -> Result<(), Refusal> {
    if option(&copy.options, "reject_limit").is_some() {
        return Err(Refusal::unsupported(
            "COPY with REJECT_LIMIT is not supported",
            "Each node would count its own rejected rows.",
            "Leave REJECT_LIMIT out.",
        ));
    }
    if option(&copy.options, "default").is_some()
        && let Some(column) =
            columns.iter().find(|column| evaluation.once_for_several_nodes(**column))
    {
        return Err(Refusal::unsupported(
            "COPY with DEFAULT is not supported for this table",
            format!(
                "The default of column \"{}\" must be evaluated once for the whole cluster.",
                relation.columns[*column].name
            ),
            "Leave the column out of the column list, or the DEFAULT option out.",
        ));
    }
    Ok(())
}

/// An option for the executor: lower-case name, value as text; a list of columns gives one entry per
/// column, named as stored; an option without value is `true`.
fn written_options(node: &Node) -> Vec<(String, String)> {
    let Some(NodeEnum::DefElem(element)) = &node.node else { return Vec::new() };
    let name = element.defname.to_ascii_lowercase();
    let values = match element.arg.as_ref().and_then(|arg| arg.node.as_ref()) {
        None => vec!["true".to_owned()],
        Some(NodeEnum::List(columns)) => {
            columns.items.iter().filter_map(string).map(str::to_owned).collect()
        }
        Some(_) => option_text(element).into_iter().collect(),
    };
    values.into_iter().map(|value| (name.clone(), value)).collect()
}

fn name_node(name: &str) -> Node {
    let name = pg_query::protobuf::String { sval: name.to_owned() };
    Node { node: Some(NodeEnum::String(name)) }
}

#[cfg(test)]
mod tests;
