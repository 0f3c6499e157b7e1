//! UPDATEs that change distribution keys: rows may belong to another node afterwards.
//!
//! Owns: the statements by which rows are locked and their new values computed, and those by which they are changed in
//! place, or deleted and inserted where they belong.
//! Never: knows where a row belongs: that is known when its new values are.
//! Start reading at [`plan`].

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, ResTarget, UpdateStmt};

use crate::catalog::{Column, Relation, quote_identifier};
use crate::plan::{DataPlan, Move, Piece, Planned, Template};
use crate::planner::analysis::Analysis;
use crate::planner::context::Context;
use crate::planner::defaults::Evaluation;
use crate::planner::names::is_system_column;
use crate::planner::sql_text::{deparse, deparse_expression};
use crate::planner::stored_types::cast_to_store;
use crate::planner::syntax::string;
use crate::planner::{computed_keys, gaps, gather, scatter, time_gaps};
use crate::refusal::Refusal;
use crate::walk;

/// Plans an UPDATE that may change distribution keys of rows that are `on_one_node` or anywhere. Each node is asked for
/// the new values of its rows first, with the rows locked.
pub(super) fn plan(
    tree: &NodeEnum,
    relation: &Arc<Relation>,
    analysis: &Analysis<'_>,
    on_one_node: bool,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let (NodeEnum::UpdateStmt(update), Some(target)) = (tree, analysis.target) else {
        return Err(Refusal::postgres("XX000", "only UPDATE changes distribution keys"));
    };
    let refuse = |detail: &str| refusal(relation, detail);
    if analysis.home_relation.is_some() || analysis.functions.home.is_some() {
        return Err(refuse(
            "The new values depend on what node 1 alone has: tables, or sequences.",
        ));
    }
    if let Some(obstacle) = scatter::write_obstacle(analysis, target) {
        return Err(refuse(&format!(
            "Each node computes the new values of its own rows, but {obstacle}."
        )));
    }
    if analysis.time_in_view.is_some() {
        return Err(refuse("The new values depend on a view that asks for the current time."));
    }
    if !on_one_node {
        time_gaps::refuse_untold(tree, analysis, context)?;
        if analysis.functions.reads_time || time_gaps::has_literals(tree, analysis, context)? {
            return Err(refuse("The rows are on several nodes, and each would take its own time."));
        }
    }
    let of = Moving { update, relation, alias: alias(update), context };
    let returning = of.returning()?;
    let assigned = relation.columns.iter().filter(|column| of.assignment(column).is_some());
    let of = Move {
        assigned: assigned.map(|column| column.name.clone()).collect(),
        relation: relation.clone(),
        select: of.select()?,
        update: of.update(returning.as_deref())?,
        delete: of.delete(),
        insert: of.insert(returning.as_deref())?,
        returns: returning.is_some(),
        bucket_question: computed_keys::question(relation, context)?,
    };
    Ok(Planned::new(
        DataPlan::Move(Box::new(of)),
        "its distribution key changes, so rows may belong to another node",
    ))
}

fn refusal(relation: &Relation, detail: &str) -> Refusal {
    Refusal::unsupported(
        format!("changing the distribution key of \"{}\" is not supported here", relation.name),
        detail,
        "Delete the rows and insert them with their new key, in one transaction.",
    )
}

/// What the statement calls its target.
fn alias(update: &UpdateStmt) -> &str {
    update.relation.as_ref().map_or("", |range| match &range.alias {
        Some(alias) => &alias.aliasname,
        None => &range.relname,
    })
}

struct Moving<'a> {
    update: &'a UpdateStmt,
    relation: &'a Arc<Relation>,
    alias: &'a str,
    context: &'a Context<'a>,
}

impl Moving<'_> {
    /// Locks the rows, and says of each its place, its table there, and its new value.
    fn select(&self) -> Result<String, Refusal> {
        let values = (0..self.relation.columns.len()).map(|index| self.new_value(index));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let are_written_alike =
            self.relation.columns.iter().all(|column| gather::is_written_alike(column.type_oid));
        let alias = quote_identifier(self.alias);
        // Called by its schema too (`SET a = public.t.b`), unless it has been given another name.
        let is_renamed = self.update.relation.as_ref().is_some_and(|range| range.alias.is_some());
        let called = match is_renamed {
            true => format!("{} AS {alias}", self.relation.sql_name()),
            false => self.relation.sql_name(),
        };
        let mut select = gaps::parse_select(&format!(
            "SELECT {alias}.ctid, {alias}.tableoid::pg_catalog.int8, {} FROM {called} \
             FOR NO KEY UPDATE OF {alias}",
            gather::row_text(&values.join(", "), are_written_alike),
        ))?;
        let is_only = self.update.relation.as_ref().is_some_and(|range| !range.inh);
        if let Some(Node { node: Some(NodeEnum::RangeVar(range)) }) = select.from_clause.first_mut()
        {
            range.inh = !is_only;
        }
        select.from_clause.extend_from_slice(&self.update.from_clause);
        select.where_clause.clone_from(&self.update.where_clause);
        select.with_clause.clone_from(&self.update.with_clause);
        deparse(&NodeEnum::SelectStmt(select))
    }

    /// What the column has afterwards, as an expression over the row before.
    fn new_value(&self, index: usize) -> Result<String, Refusal> {
        let column = &self.relation.columns[index];
        let value = match self.assignment(column) {
            None => format!("{}.{}", quote_identifier(self.alias), quote_identifier(&column.name)),
            Some(assignment) => {
                let plain = assignment.indirection.is_empty();
                match assignment.val.as_deref() {
                    Some(Node { node: Some(NodeEnum::SetToDefault(_)) }) => {
                        Evaluation::of(self.relation, self.context).default_sql(index)?
                    }
                    None => return Err(self.refuse("A column is assigned nothing.")),
                    Some(value) if plain => deparse_expression(self.of_several(value)?)?,
                    Some(_) => return Err(self.refuse("A part of a column is assigned.")),
                }
            }
        };
        Ok(cast_to_store(&format!("({value})"), column, self.context))
    }

    /// `SET (a, b) = (1, 2)`: what of it this column is assigned.
    fn of_several<'n>(&self, value: &'n Node) -> Result<&'n Node, Refusal> {
        let Some(NodeEnum::MultiAssignRef(of)) = &value.node else { return Ok(value) };
        let row = match of.source.as_ref().and_then(|source| source.node.as_ref()) {
            Some(NodeEnum::RowExpr(row)) => row,
            _ => return Err(self.refuse("Several columns are assigned from one row.")),
        };
        let at = usize::try_from(of.colno - 1).ok();
        match at.and_then(|at| row.args.get(at)) {
            Some(value) if !matches!(value.node, Some(NodeEnum::SetToDefault(_))) => Ok(value),
            _ => Err(self.refuse("Several columns are assigned from one row.")),
        }
    }

    fn assignment(&self, column: &Column) -> Option<&ResTarget> {
        self.update.target_list.iter().find_map(|node| match &node.node {
            Some(NodeEnum::ResTarget(assignment)) if assignment.name == column.name => {
                Some(&**assignment)
            }
            _ => None,
        })
    }

    /// For rows that stay on their node.
    fn update(&self, returning: Option<&str>) -> Result<Template, Refusal> {
        let name = |index: usize| format!("tutti_{index}");
        let columns = self.relation.columns.iter().enumerate();
        let assigned = columns
            .filter(|(_, column)| !column.generated && self.assignment(column).is_some())
            .map(|(index, column)| {
                let name = name(index);
                format!("{} = {}.{name}", quote_identifier(&column.name), self.rows_name())
            });
        let assigned = assigned.collect::<Vec<_>>().join(", ");
        let alias = quote_identifier(self.alias);
        let head = format!(
            "UPDATE {} AS {alias} SET {assigned} FROM ROWS FROM (",
            self.relation.sql_name()
        );
        let rows = gather::rows_of_literal(self.relation, &gaps::gap(2));
        let rows = gaps::cut(&format!(", {rows}"))?.0;
        // RETURNING names the target's columns without the target.
        let names = (0..self.relation.columns.len()).map(name);
        Ok(self.of_places(head, rows, names, returning))
    }

    /// What the rows that come with a change are called: not as the target is.
    fn rows_name(&self) -> &'static str {
        match self.alias {
            "tutti_rows" => "tutti_new_rows",
            _ => "tutti_rows",
        }
    }

    /// For rows that leave it.
    fn delete(&self) -> Template {
        let alias = quote_identifier(self.alias);
        let head = format!("DELETE FROM {} AS {alias} USING ROWS FROM (", self.relation.sql_name());
        self.of_places(head, Vec::new(), std::iter::empty(), None)
    }

    /// A change of rows by their places. `columns`: names of those that come after the places.
    fn of_places(
        &self,
        head: String,
        rows: Vec<Piece>,
        columns: impl Iterator<Item = String>,
        returning: Option<&str>,
    ) -> Template {
        let alias = quote_identifier(self.alias);
        let mut pieces = vec![
            Piece::Sql(format!("{head}pg_catalog.unnest(")),
            Piece::Rows(0),
            Piece::Sql("::pg_catalog.tid[]), pg_catalog.unnest(".to_owned()),
            Piece::Rows(1),
            Piece::Sql("::pg_catalog.int8[])".to_owned()),
        ];
        pieces.extend(rows);
        let columns: String = columns.map(|name| format!(", {name}")).collect();
        let rows = self.rows_name();
        pieces.push(Piece::Sql(format!(
            ") AS {rows} (tutti_place, tutti_table{columns}) \
             WHERE {alias}.ctid OPERATOR(pg_catalog.=) {rows}.tutti_place \
             AND {alias}.tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) {rows}.tutti_table{}",
            returning.unwrap_or_default()
        )));
        Template(pieces)
    }

    /// For rows that come to a node.
    fn insert(&self, returning: Option<&str>) -> Result<Template, Refusal> {
        let columns = self.relation.columns.iter().filter(|column| !column.generated);
        let columns: Vec<_> = columns.map(|column| quote_identifier(&column.name)).collect();
        let selected: Vec<_> = columns.iter().map(|column| format!("u.{column}")).collect();
        let before = format!(
            "INSERT INTO {} AS {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM ",
            self.relation.sql_name(),
            quote_identifier(self.alias),
            columns.join(", "),
            selected.join(", ")
        );
        let rows = gaps::cut(&gather::rows_of_literal(self.relation, &gaps::gap(0)))?;
        let after = format!(" AS u{}", returning.unwrap_or_default());
        Ok(rows.wrap(&before, &after))
    }

    /// The clause, as each node runs it over the rows that it has stored.
    ///
    /// Errors: 0A000 where it returns anything else.
    fn returning(&self) -> Result<Option<String>, Refusal> {
        let Some(clause) = &self.update.returning_clause else { return Ok(None) };
        if clause.exprs.is_empty() {
            return Ok(None);
        }
        if !clause.options.is_empty() || !clause.exprs.iter().all(|node| self.is_of_its_row(node)) {
            return Err(self.refuse(
                "RETURNING is computed of the new row alone, where it is then: not of FROM, of subqueries, nor of where \
                 the row is stored.",
            ));
        }
        let mut select = gaps::parse_select("SELECT 1")?;
        select.target_list.clone_from(&clause.exprs);
        for node in &mut select.target_list {
            self.qualify(node);
        }
        let select = deparse(&NodeEnum::SelectStmt(select))?;
        Ok(Some(format!(" RETURNING {}", select.trim_start_matches("SELECT "))))
    }

    fn is_of_its_row(&self, node: &Node) -> bool {
        let Some(node) = &node.node else { return true };
        match node {
            NodeEnum::SubLink(_) => return false,
            NodeEnum::ColumnRef(reference) => {
                let fields: Vec<_> = reference.fields.iter().map(string).collect();
                let (of, name) = match fields[..] {
                    [name] => (None, name),
                    [of, name] | [_, of, name] => (of, name),
                    _ => return false,
                };
                let is_own = match (of, name) {
                    (Some(of), _) => of == self.alias,
                    (None, Some(name)) => {
                        self.relation.column(name).is_some() || name == self.alias
                    }
                    // `*`
                    (None, None) => false,
                };
                let is_alone = self.update.from_clause.is_empty();
                return (is_own || is_alone) && !name.is_some_and(is_system_column);
            }
            _ => (),
        }
        let mut is = true;
        walk::read::children(node, &mut |child| is &= self.is_of_its_row(child));
        is
    }

    /// Names of columns with the target's: there are other columns beside.
    fn qualify(&self, node: &mut Node) {
        let Some(node) = &mut node.node else { return };
        if let NodeEnum::ColumnRef(reference) = node {
            let of_target = Node {
                node: Some(NodeEnum::String(pg_query::protobuf::String {
                    sval: self.alias.to_owned(),
                })),
            };
            match reference.fields.len() {
                1 if string(&reference.fields[0])
                    .is_none_or(|name| self.relation.column(name).is_some()) =>
                {
                    reference.fields.insert(0, of_target);
                }
                // With the schema: here the target has a name of its own.
                3 => drop(reference.fields.remove(0)),
                _ => (),
            }
            return;
        }
        walk::write::children(node, &mut |child| self.qualify(child));
    }

    fn refuse(&self, detail: &str) -> Refusal {
        refusal(self.relation, detail)
    }
}
