//! The SQL that moves one table's rows, and that asks whether it has any.
//!
//! Owns: how rows are read, deleted and stored, as the table's owner, and how they are written in between.
//! Never: decides which rows travel (`travel` does), or commits.
//! Start reading at [`Leaf::steps`].

use tutti_link::connection::NodeConnection;
use tutti_link::seals::{Seals, digest};
use tutti_sql::catalog::{NodeId, quote_literal};

use super::super::placement::{PlacementKind, sealed_message};
use super::super::rows::Answer;
use super::travel::Travel;
use crate::error::GatewayError;

/// One table (not partitioned) whose rows move.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Leaf {
    /// Qualified and quoted.
    pub(super) name: String,
    pub(super) schema: String,
    pub(super) table: String,
}

/// Name of the cursor that is open on each source; no client is called so.
pub(super) const CURSOR: &str = "tutti_moving_rows";

/// Name of the row in our statements; hides no column unless one has this name.
const ROW: &str = "tutti_moved_row";

/// What happens on which node, in this order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Steps {
    /// Statements before any row is read.
    pub(super) first: Vec<(NodeId, String)>,
    /// Queries that yield target node and row text.
    pub(super) sources: Vec<(NodeId, String)>,
    /// Statements after the cursors are open.
    pub(super) then: Vec<(NodeId, String)>,
}

impl Leaf {
    /// What moves its rows so. `map`: of the new placement, where rows are dealt out by it.
    pub(super) fn steps(&self, travel: &Travel, nodes: &[NodeId], map: &str) -> Steps {
        let name = &self.name;
        let mut steps = Steps::default();
        let delete_all = |node: NodeId| (node, format!("DELETE FROM ONLY {name}"));
        let copies = || nodes.iter().copied().filter(|node| *node != NodeId::HOME);
        let all_rows =
            format!("SELECT NULL, ROW({ROW}.*)::pg_catalog.text FROM ONLY {name} AS {ROW}");
        match travel {
            Travel::Nothing => (),
            Travel::CopyEverywhere { sources, empty_copies } => {
                if *empty_copies {
                    steps.first.extend(copies().map(delete_all));
                }
                steps.sources.extend(sources.iter().map(|node| (*node, all_rows.clone())));
            }
            Travel::DealOut => {
                steps.sources.push((NodeId::HOME, all_rows));
                steps.then.extend(nodes.iter().copied().map(delete_all));
            }
            Travel::BringHome { sources } => {
                steps.sources.extend(sources.iter().map(|node| (*node, all_rows.clone())));
                steps.then.extend(sources.iter().copied().map(delete_all));
            }
            Travel::EmptyCopies => steps.then.extend(copies().map(delete_all)),
            Travel::DropForeign { target } => {
                steps.then.extend(
                    nodes.iter().map(|node| (*node, self.delete_foreign(*node, target, map))),
                );
            }
            Travel::SendForeign { sources, target, empty_copies } => {
                if *empty_copies {
                    steps.first.extend(copies().map(delete_all));
                }
                for node in sources {
                    let owner = owner(target, map);
                    let select = format!(
                        "SELECT {owner}, ROW({ROW}.*)::pg_catalog.text FROM ONLY {name} AS {ROW} \
                         WHERE {owner} OPERATOR(pg_catalog.<>) {}",
                        node.0
                    );
                    steps.sources.push((*node, select));
                    steps.then.push((*node, self.delete_foreign(*node, target, map)));
                }
            }
        }
        steps
    }

    fn delete_foreign(&self, node: NodeId, target: &PlacementKind, map: &str) -> String {
        format!(
            "DELETE FROM ONLY {} AS {ROW} WHERE {} OPERATOR(pg_catalog.<>) {}",
            self.name,
            owner(target, map),
            node.0
        )
    }

    /// The rows are its `$1`.
    pub(super) async fn insert(&self, home: &mut NodeConnection) -> Result<String, GatewayError> {
        let sql = format!(
            "SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum),
    pg_catalog.string_agg(pg_catalog.concat('u.', pg_catalog.quote_ident(a.attname)), ', ' ORDER BY a.attnum)
FROM pg_catalog.pg_attribute a
WHERE a.attrelid OPERATOR(pg_catalog.=) {}::pg_catalog.regclass::pg_catalog.oid AND a.attnum OPERATOR(pg_catalog.>) 0
    AND NOT a.attisdropped AND a.attgenerated OPERATOR(pg_catalog.=) ''",
            quote_literal(&self.name)
        );
        let rows = home.rows(&sql).await?;
        let answer = Answer { node: home.node(), what: "a table's columns", rows: &rows };
        // A table without columns has rows, too.
        let into = match rows.text(0, 0) {
            Some(columns) => {
                format!("({columns}) OVERRIDING SYSTEM VALUE SELECT {}", answer.text(0, 1)?)
            }
            None => String::from(" SELECT"),
        };
        Ok(format!("INSERT INTO {} {into} FROM pg_catalog.unnest($1) AS u", self.name))
    }

    /// What fails on a node of whose rows a generated column would get another value if it were computed anew, as it is
    /// of each row that moves; `None`: it has none. Otherwise copies would differ, or values change unasked.
    pub(super) async fn check_generated(
        &self,
        home: &mut NodeConnection,
    ) -> Result<Option<String>, GatewayError> {
        let table = format!("{}::pg_catalog.regclass::pg_catalog.oid", quote_literal(&self.name));
        let of_table = format!(
            "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_attrdef d
        ON d.adrelid OPERATOR(pg_catalog.=) a.attrelid AND d.adnum OPERATOR(pg_catalog.=) a.attnum
    WHERE a.attrelid OPERATOR(pg_catalog.=) {table} AND a.attgenerated OPERATOR(pg_catalog.=) 's'"
        );
        let rows = home.rows(&format!("SELECT {of_table} LIMIT 1")).await?;
        if rows.rows.is_empty() {
            return Ok(None);
        }
        let message = format!("generated columns of {} would get other values", self.name);
        let detail = "Rows that move are computed anew, and what computes them has changed since they were stored.";
        let hint =
            format!("Compute all of them anew first: UPDATE {} SET column = column.", self.name);
        // Names in the expressions are printed by the search path that they are read by; what makes a value one of the
        // column's type is not printed.
        let block = format!(
            "DECLARE stored text; computed text; differs boolean;
BEGIN
    SELECT pg_catalog.string_agg(pg_catalog.concat('{ROW}.', pg_catalog.quote_ident(a.attname)), ', ' ORDER BY a.attnum),
        pg_catalog.string_agg(pg_catalog.concat('(', pg_catalog.pg_get_expr(d.adbin, d.adrelid), ')::',
            pg_catalog.format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
    INTO stored, computed {of_table};
    EXECUTE pg_catalog.concat({}, stored, ')::pg_catalog.text IS DISTINCT FROM ROW(', computed,
        ')::pg_catalog.text)') INTO differs;
    IF differs THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = {}, DETAIL = {}, HINT = {};
    END IF;
END",
            quote_literal(&format!(
                "SELECT EXISTS (SELECT FROM ONLY {} AS {ROW} WHERE ROW(",
                self.name
            )),
            quote_literal(&message),
            quote_literal(detail),
            quote_literal(&hint),
        );
        Ok(Some(format!("DO {}", quote_literal(&block))))
    }

    /// Runs a statement on a node as the owner of this table. `rows` are its `$1`, unless they are empty.
    pub(super) async fn as_owner(
        &self,
        connection: &mut NodeConnection,
        statement: &str,
        rows: &str,
        seals: &Seals,
    ) -> Result<(), GatewayError> {
        let Self { schema, table, .. } = self;
        let message = sealed_message("as owner", &[schema, table, statement, &digest(rows)]);
        let seal = seals.seal(connection, &message).await?;
        // The code of the table has the search path of the session.
        let sql = format!(
            "SELECT tutti.as_owner({}, {}, $1, $2, pg_catalog.current_setting('search_path'), $3)",
            quote_literal(schema),
            quote_literal(table)
        );
        let values = [statement.to_owned(), rows.to_owned(), seal].map(|value| Some(value.into()));
        connection.query_with(&sql, values.into()).await?;
        Ok(())
    }
}

/// SQL for the node that a row belongs to. `map`: the nodes of its buckets, as the text of an array.
fn owner(target: &PlacementKind, map: &str) -> String {
    let bucket = target.sql_bucket(&format!("{ROW}."));
    let bucket = bucket.expect("only placements by a key give rows an owner");
    format!("(({}::pg_catalog.int4[])[({bucket})::pg_catalog.int4])", quote_literal(map))
}

/// Whether any of these tables has rows on node 1. Requires: they are locked.
pub(super) async fn has_rows(
    home: &mut NodeConnection,
    tables: &[Leaf],
    seals: &Seals,
) -> Result<bool, GatewayError> {
    for table in tables {
        let sql =
            format!("DECLARE {CURSOR} NO SCROLL CURSOR FOR SELECT NULL FROM ONLY {}", table.name);
        table.as_owner(home, &sql, "", seals).await?;
        let rows = home.rows(&format!("FETCH 1 FROM {CURSOR}")).await?;
        home.rows(&format!("CLOSE {CURSOR}")).await?;
        if !rows.rows.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many rows these tables have on a node, by its statistics; `None`: there are none of any of them.
pub(super) async fn estimated_rows(
    connection: &mut NodeConnection,
    tables: &[Leaf],
) -> Result<Option<u64>, GatewayError> {
    let names: Vec<_> = tables.iter().map(|table| quote_literal(&table.name)).collect();
    let sql = format!(
        "SELECT pg_catalog.sum(c.reltuples)::pg_catalog.int8 FROM pg_catalog.pg_class c
WHERE c.oid OPERATOR(pg_catalog.=) ANY (ARRAY[{}]::pg_catalog.regclass[]::pg_catalog.oid[])
    AND c.reltuples OPERATOR(pg_catalog.>=) 0::pg_catalog.float4",
        names.join(", ")
    );
    let rows = connection.rows(&sql).await?;
    let answer = Answer { node: connection.node(), what: "how many rows tables have", rows: &rows };
    answer.optional(0, 0).map(|_| answer.number(0, 0)).transpose()
}

/// Whether none of these tables has ever had a row since it was made or emptied, on node 1: for tables that
/// hide rows from the role that asks.
pub(super) async fn has_no_pages(
    home: &mut NodeConnection,
    tables: &[Leaf],
) -> Result<bool, GatewayError> {
    let names = tables.iter().map(|table| format!("({})", quote_literal(&table.name)));
    let sql = format!(
        "SELECT pg_catalog.bool_and(pg_catalog.pg_relation_size(t.name::pg_catalog.regclass)
    OPERATOR(pg_catalog.=) 0) FROM (VALUES {}) AS t (name)",
        names.collect::<Vec<_>>().join(", ")
    );
    let rows = home.rows(&sql).await?;
    Answer { node: home.node(), what: "whether a table has pages", rows: &rows }.boolean(0, 0)
}
