//! Values of scalar subqueries before the statement around them is planned.
//!
//! Owns: computing them, which types' values may stand in a statement's text, and running what comes of it.
//! Never: says which subqueries these are; the planner does.
//! Start reading at [`Executor::run_computed_first`].

use tutti_sql::catalog::quote_literal;
use tutti_sql::plan::{ComputedFirst, Piece, Plan, Planned};
use tutti_sql::statement::{self, Statement};

use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done};

/// Types of PostgreSQL's own without a collation, whose values are read as they are written: boolean, integers, OIDs,
/// floats, times, interval, numeric, uuid.
const TYPES: [(u32, &str); 14] = [
    (16, "bool"),
    (20, "int8"),
    (21, "int2"),
    (23, "int4"),
    (26, "oid"),
    (700, "float4"),
    (701, "float8"),
    (1082, "date"),
    (1083, "time"),
    (1114, "timestamp"),
    (1184, "timestamptz"),
    (1186, "interval"),
    (1700, "numeric"),
    (2950, "uuid"),
];

impl Executor<'_> {
    /// Computes the subqueries, and plans and runs the statement with their values; `None` if one is of another type, or gives more
    /// than one row.
    ///
    /// Requires: all parts of the statement have one snapshot.
    pub(super) async fn run_computed_first(
        &mut self,
        first: &ComputedFirst,
        call: &Call,
    ) -> Result<Option<Done>, Failure> {
        let Some((planned, statement)) = self.plan_computed_first(first, call).await? else {
            return Ok(None);
        };
        let Planned { plan: Plan::Data(plan), .. } = &planned else { return Ok(None) };
        Box::pin(self.obey_data(plan, &statement.text, call)).await.map(Some)
    }

    /// Computes the subqueries; returns the plan of the statement with their values, and this.
    pub(super) async fn plan_computed_first(
        &mut self,
        first: &ComputedFirst,
        call: &Call,
    ) -> Result<Option<(Planned, Statement)>, Failure> {
        if self.passes_over(first) {
            return Ok(None);
        }
        let mut types = Vec::new();
        for subquery in &first.subqueries {
            let (_, columns) = self.describe_text(&subquery.text, call.client_types()).await?;
            let oid = columns.as_ref().and_then(|columns| Some(columns.first()?.type_oid));
            let known = TYPES.iter().find(|(known, _)| oid == Some(*known));
            let Some((_, name)) = known else { return Ok(None) };
            types.push(name);
        }
        let mut values = Vec::new();
        for (subquery, type_name) in first.subqueries.iter().zip(types) {
            let rows = self.query_rows(&subquery.planned, &subquery.query, call).await?;
            if 1 < rows.len() {
                // That is an error if a row asks for it.
                return Ok(None);
            }
            let value = rows.first().and_then(|row| row.first()?.as_deref());
            let value = match value.map(std::str::from_utf8) {
                None => "NULL".to_owned(),
                Some(Ok(value)) => quote_literal(value),
                Some(Err(_)) => return Err(Failure::error("XX000", "a value is not UTF-8")),
            };
            values.push(format!("CAST({value} AS pg_catalog.{type_name})"));
        }
        let mut text = String::new();
        for piece in &first.rest.0 {
            match piece {
                Piece::Sql(sql) | Piece::Time(sql) => text.push_str(sql),
                Piece::Rows(index) => {
                    text.push_str(values.get(*index).map_or("NULL", String::as_str));
                }
                // A query's has none.
                Piece::Buckets(_) => return Ok(None),
            }
        }
        let Some(statement) = statement::parse(&text)?.pop() else { return Ok(None) };
        let planned = self.tx.plan_part(&statement)?;
        Ok(matches!(planned.plan, Plan::Data(_)).then_some((planned, statement)))
    }

    /// Any way is to be taken, and this statement's is another.
    fn passes_over(&self, first: &ComputedFirst) -> bool {
        self.drawn("computed first", &first.rest, 3) == Some(0)
    }
}
