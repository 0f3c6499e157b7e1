//! Values of added columns for the rows that are there.
//!
//! Owns: asking node 1 for what all rows get, and moving what nodes have drawn from their copies of a sequence to
//! ranges of their own.
//! Never: decides which columns that concerns; the planner does.
//!
//! Each node has drawn values for its rows, from the beginning of its copy of the sequence. Node 1's are right. For each
//! other node as many are drawn on node 1, in one range, and the node's are moved there, by ALTER COLUMN … TYPE to the
//! type that the column has: that is one pass over the table and fires no trigger.

use tutti_sql::catalog::{NodeId, quote_identifier, quote_literal};
use tutti_sql::plan::{Access, Ddl, Draws, Template};
use tutti_wire::sqlstate;

use super::ddl::put_warrant_for;
use super::filled::{Times, fill_template};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::Call;
use tutti_sql::plan::Piece;

/// How often a range of values is drawn between which others draw.
const ATTEMPTS: usize = 5;

/// What a node's copy of a sequence has given, of which it was at its beginning.
struct Drawn {
    first: i128,
    increment: i128,
    count: i128,
    /// The column's type, as the node writes it.
    type_name: String,
}

impl Executor<'_> {
    /// The text with what its expressions give on node 1.
    pub(super) async fn with_values_of_home(
        &mut self,
        template: &Template,
    ) -> Result<String, Failure> {
        let mut values = Times::new();
        for piece in &template.0 {
            if let Piece::Time(sql) = piece {
                values.entry(sql.clone()).or_default();
            }
        }
        if !values.is_empty() {
            // Text that is read the same under any session settings. NULL is none.
            let literal = |sql: &String| {
                format!("coalesce(pg_catalog.quote_literal(tutti.value_output({sql})), 'NULL')")
            };
            let asked: Vec<_> = values.keys().map(literal).collect();
            // It is a query even where the statement is none.
            self.tx.takes_snapshot = true;
            let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
            let rows = link.query(&format!("SELECT {}", asked.join(", "))).await;
            let rows = rows.map_err(|error| Failure::from(error).without_position())?;
            for (column, literal) in values.values_mut().enumerate() {
                let said = rows.first().and_then(|rows| rows.text(0, column));
                said.ok_or_else(|| Failure::error("XX000", "node 1 did not say the value"))?
                    .clone_into(literal);
            }
        }
        Ok(fill_template(template, &Call::Simple, &values))
    }

    /// Makes the values that these nodes have drawn different from those of node 1, and of each other.
    pub(super) async fn part_draws(&mut self, ddl: &Ddl, others: &[NodeId]) -> Result<(), Failure> {
        let Some(computed) = &ddl.computed else { return Ok(()) };
        for draws in &computed.draws {
            for node in others {
                let Some(drawn) = self.drawn_on(*node, draws).await? else { continue };
                let first = self.draw_at_home(draws, &drawn).await?;
                let by = first - drawn.first;
                if by != 0 {
                    self.move_values(*node, draws, &drawn.type_name, by).await?;
                }
            }
        }
        Ok(())
    }

    /// What the node has drawn; `None`: nothing, it has no rows.
    async fn drawn_on(&mut self, node: NodeId, draws: &Draws) -> Result<Option<Drawn>, Failure> {
        let sql = format!(
            "SELECT q.seqstart, q.seqincrement,
                 pg_catalog.pg_sequence_last_value(q.seqrelid::pg_catalog.regclass),
                 pg_catalog.format_type(a.atttypid, a.atttypmod)
             FROM pg_catalog.pg_sequence q, pg_catalog.pg_attribute a
             WHERE q.seqrelid OPERATOR(pg_catalog.=) {}
                 AND a.attrelid OPERATOR(pg_catalog.=) {}::pg_catalog.regclass
                 AND a.attname OPERATOR(pg_catalog.=) {}::pg_catalog.name",
            sequence_of(draws),
            quote_literal(&draws.table),
            quote_literal(&draws.column)
        );
        let rows = self.tx.link(node).await?.query(&sql).await?;
        let rows = rows.first().filter(|rows| !rows.rows.is_empty());
        let rows = rows.ok_or_else(|| Failure::error("XX000", "a node has no such sequence"))?;
        let number = |column| rows.text(0, column)?.parse::<i128>().ok();
        let (Some(first), Some(increment), Some(type_name)) =
            (number(0), number(1), rows.text(0, 3))
        else {
            return Err(Failure::error("XX000", "a node does not say what its sequence is"));
        };
        Ok(number(2).map(|last| Drawn {
            first,
            increment,
            count: (last - first) / increment + 1,
            type_name: type_name.to_owned(),
        }))
    }

    /// Draws as many on node 1, where others may draw too, one after the other. Returns the first.
    async fn draw_at_home(&mut self, draws: &Draws, drawn: &Drawn) -> Result<i128, Failure> {
        let sequence = sequence_of(draws);
        let link = self.tx.link(NodeId::HOME).await?;
        let Drawn { increment, count, .. } = drawn;
        if draws.sequence.is_none() {
            // No one else knows it yet.
            let sql = format!(
                "SELECT pg_catalog.setval(s.id::pg_catalog.regclass, s.first OPERATOR(pg_catalog.+) {}::pg_catalog.int8, true), s.first
                 FROM (SELECT q.seqrelid, coalesce(pg_catalog.pg_sequence_last_value(q.seqrelid::pg_catalog.regclass)
                         OPERATOR(pg_catalog.+) q.seqincrement, q.seqstart)
                     FROM pg_catalog.pg_sequence q WHERE q.seqrelid OPERATOR(pg_catalog.=) {sequence}) AS s (id, first)",
                increment * (count - 1)
            );
            let rows = link.query(&sql).await?;
            let first = rows.first().and_then(|rows| rows.text(0, 1)?.parse().ok());
            return first.ok_or_else(|| Failure::error("XX000", "node 1 has no such sequence"));
        }
        for _ in 0..ATTEMPTS {
            let sql = format!(
                "SELECT pg_catalog.min(d.value), pg_catalog.max(d.value) FROM (SELECT pg_catalog.nextval({sequence}::pg_catalog.regclass)
                     FROM pg_catalog.generate_series(1::pg_catalog.int8, {count}::pg_catalog.int8)) AS d (value)"
            );
            let rows = link.query(&sql).await?;
            let number =
                |column| rows.first().and_then(|rows| rows.text(0, column)?.parse::<i128>().ok());
            let (Some(least), Some(most)) = (number(0), number(1)) else { break };
            if most - least == (count - 1) * increment.abs() {
                return Ok(if 0 < *increment { least } else { most });
            }
        }
        Err(Failure::error(
            sqlstate::SERIALIZATION_FAILURE,
            format!("values of column \"{}\" could not be drawn together", draws.column),
        ))
    }

    async fn move_values(
        &mut self,
        node: NodeId,
        draws: &Draws,
        type_name: &str,
        by: i128,
    ) -> Result<(), Failure> {
        let column = quote_identifier(&draws.column);
        let text = format!(
            "ALTER TABLE {} ALTER COLUMN {column} TYPE {type_name} \
             USING ({column}::pg_catalog.text::pg_catalog.numeric \
                 OPERATOR(pg_catalog.+) ({by})::pg_catalog.numeric)::{type_name}",
            draws.table
        );
        let link = self.tx.enlist_begun(node, Access::Write).await?;
        put_warrant_for(link, &text)?;
        link.query(&text).await?;
        Ok(())
    }
}

/// The OID of the sequence, as an expression.
fn sequence_of(draws: &Draws) -> String {
    match &draws.sequence {
        Some(sequence) => {
            format!("{}::pg_catalog.regclass::pg_catalog.oid", quote_literal(sequence))
        }
        None => format!(
            "pg_catalog.pg_get_serial_sequence({}, {})::pg_catalog.regclass::pg_catalog.oid",
            quote_literal(&draws.table),
            quote_literal(&draws.column)
        ),
    }
}
