//! Writes to replicated tables by row: node 1 runs the statement, the other nodes store its rows.
//!
//! Owns: how the rows are learned (the statement returns them, or the tables are compared), and that
//! the client sees nothing of that.
//! Never: chooses between this and running the statement everywhere: the planner does, or leaves it to the
//! session's state (`write_replicas`).
//! Start reading at [`Executor::write_by_row`]; the protocol is `docs/protocol/replicated-tables.md`.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tutti_cluster::catalog::{self, RowsOf};
use tutti_link::Link;
use tutti_link::connection::ASK_MOMENT;
use tutti_sql::catalog::{NodeId, Relation};
use tutti_sql::plan::{Access, LockMode, ReturnedRows, RowKind, RowsWrite, TableLock};
use tutti_wire::backend::{
    decode_data_row, decode_row_description, put_data_row, put_row_description,
};
use tutti_wire::frame::{Frame, frame_len, take_frame};
use tutti_wire::frontend::{Arguments, put_query};
use tutti_wire::sqlstate;

use super::cursor::not_updatable;
use super::fan_out::Answers;
use super::fan_out::read_rows;
use super::relay::{Filter, Relayed, relay};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done, Rows, too_large};

/// Rows as `tutti.row_text` writes them, separated by commas.
struct RowTexts {
    text: String,
    /// Most bytes that they may take.
    bytes_max: usize,
}

impl RowTexts {
    fn new(bytes_max: usize) -> Self {
        Self { text: String::new(), bytes_max }
    }
}

/// What node 1 says about a statement's tables before it runs.
struct Facts {
    /// The client may see whole rows, and no trigger or child table writes rows other than those
    /// returned.
    rows_are_returned: bool,
    /// The tables, and all that inherit from them, each after those that it refers to: rows of a copy are checked as
    /// they come.
    tables: Vec<(String, String)>,
}

impl Executor<'_> {
    /// Runs `text` on node 1 and makes the copies equal to what it left there.
    pub(super) async fn write_by_row(
        &mut self,
        rows: &RowsWrite,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        self.refuse_cursor_elsewhere(rows)?;
        self.need_transaction();
        if let Some(returned) = &rows.returned
            && self.facts_of(&rows.tables, Some(returned.kind)).await?.rows_are_returned
        {
            return self.write_returned(&rows.tables[0], returned, text, call).await;
        }
        let tables = self.compared_tables(rows).await?;
        self.write_compared(rows, tables, text, call).await
    }

    /// WHERE CURRENT OF: node 1 must have the cursor.
    fn refuse_cursor_elsewhere(&self, rows: &RowsWrite) -> Result<(), Failure> {
        let Some(name) = &rows.cursor else { return Ok(()) };
        match self.tx.cursors.get(name) {
            Some(cursor) if cursor.beside.is_some() => Err(not_updatable(name)),
            Some(cursor) if cursor.node != NodeId::HOME => Err(Failure::unsupported(
                format!("cursor \"{name}\" cannot be used to write a replicated table"),
                "It is not on node 1, where replicated rows are changed first.",
                "Declare it FOR UPDATE.",
            )),
            _ => Ok(()),
        }
    }

    /// All tables whose copies may have to follow.
    async fn compared_tables(
        &mut self,
        rows: &RowsWrite,
    ) -> Result<Vec<(String, String)>, Failure> {
        let all: Vec<_> = rows.tables.iter().chain(&rows.reached).cloned().collect();
        Ok(self.facts_of(&all, None).await?.tables)
    }

    /// `kind`: which table's rows are returned.
    async fn facts_of(
        &mut self,
        of: &[Arc<Relation>],
        kind: Option<RowKind>,
    ) -> Result<Facts, Failure> {
        let fires = match kind {
            Some(RowKind::Insert) => 4,
            Some(RowKind::Update) => 16,
            Some(RowKind::Delete) => 8,
            Some(RowKind::Upsert) | None => 20,
        };
        let oids: Vec<_> = of.iter().map(|table| table.oid.to_string()).collect();
        // Bits of tgtype: 1 for each row, 2 before; then the events.
        let sql = format!(
            "WITH RECURSIVE f (oid) AS (
    SELECT o FROM pg_catalog.unnest('{{{}}}'::pg_catalog.oid[]) AS o
    UNION SELECT i.inhrelid FROM f JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) f.oid
        JOIN pg_catalog.pg_inherits i ON i.inhparent OPERATOR(pg_catalog.=) f.oid
    WHERE c.relkind OPERATOR(pg_catalog.<>) 'p')
SELECT n.nspname, c.relname,
    pg_catalog.has_table_privilege(c.oid, 'SELECT') AND NOT pg_catalog.row_security_active(c.oid)
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_rewrite r
        WHERE r.ev_class OPERATOR(pg_catalog.=) c.oid AND r.ev_type OPERATOR(pg_catalog.<>) '1')
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t
        WHERE (t.tgrelid OPERATOR(pg_catalog.=) c.oid OR t.tgrelid OPERATOR(pg_catalog.=) ANY
            (SELECT p.relid::pg_catalog.oid FROM pg_catalog.pg_partition_tree(c.oid) AS p))
        AND NOT t.tgisinternal AND t.tgenabled OPERATOR(pg_catalog.<>) 'D'
        AND (t.tgtype OPERATOR(pg_catalog.&) {fires}::pg_catalog.int2) OPERATOR(pg_catalog.<>) 0
        AND (t.tgtype OPERATOR(pg_catalog.&) 3::pg_catalog.int2) OPERATOR(pg_catalog.<>) 3)
FROM f JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) f.oid
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
ORDER BY (WITH RECURSIVE up (oid) AS (
        SELECT c.oid
        UNION SELECT k.confrelid FROM up JOIN pg_catalog.pg_constraint k
            ON k.conrelid OPERATOR(pg_catalog.=) up.oid AND k.contype OPERATOR(pg_catalog.=) 'f')
    SELECT pg_catalog.count(*) FROM up), n.nspname, c.relname",
            oids.join(",")
        );
        let answer = self.internal_rows(NodeId::HOME, Access::Write, &sql, &Call::Simple).await?;
        let text = |row: &[Option<Bytes>], column: usize| {
            let value = row.get(column).and_then(Option::as_ref)?;
            Some(String::from_utf8_lossy(value).into_owned())
        };
        let tables: Option<Vec<_>> =
            answer.iter().map(|row| Some((text(row, 0)?, text(row, 1)?))).collect();
        let tables = tables.unwrap_or_default();
        if tables.len() < of.len() {
            return Err(Failure::error(
                sqlstate::SERIALIZATION_FAILURE,
                "a table was dropped or replaced meanwhile",
            ));
        }
        let is_plain = answer.iter().all(|row| text(row, 2).as_deref() == Some("t"));
        Ok(Facts { rows_are_returned: is_plain && tables.len() == 1, tables })
    }

    /// The statement returns its rows: they are stored under their keys.
    async fn write_returned(
        &mut self,
        relation: &Relation,
        returned: &ReturnedRows,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let text = format!("{text}{}", returned.returning);
        // No unproven code gets here: all that is written, the statement itself writes.
        let written = (relation.schema.clone(), relation.name.clone());
        self.mark_travelling(std::iter::once(written)).await?;
        let (answer, rows) = self.run_and_take(&text, call).await?;
        if !rows.text.is_empty() {
            let of = RowsOf {
                schema: &relation.schema,
                table: &relation.name,
                kind: returned.kind.as_str(),
            };
            self.store(&[(of, rows)]).await?;
        }
        Ok(Done::Tag(answer.tag))
    }

    /// Nothing tells what the statement wrote except, with the tables locked, all their rows.
    async fn write_compared(
        &mut self,
        rows: &RowsWrite,
        tables: Vec<(String, String)>,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        self.lock_compared(&tables).await?;
        self.tx.wait_for_visible(NodeId::HOME).await?;
        self.mark_travelling(tables.iter().cloned()).await?;
        let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        call.put(link, text);
        link.connection().flush().await?;
        let link = self.tx.links.at(&NodeId::HOME);
        let answer = relay(self.client, link, Filter::rows(call, false)).await?;
        self.copy_tables(&tables, rows.is_referred_to).await?;
        Ok(Done::Tag(answer.tag))
    }

    /// The same for all tables that a statement may have written, and what inherits from them.
    pub(super) async fn copy_tables_of(&mut self, rows: &RowsWrite) -> Result<(), Failure> {
        let tables = self.compared_tables(rows).await?;
        self.copy_tables(&tables, rows.is_referred_to).await
    }

    /// The same where not all of them are locked yet.
    pub(super) async fn lock_and_copy_tables_of(
        &mut self,
        rows: &RowsWrite,
    ) -> Result<(), Failure> {
        let tables = self.compared_tables(rows).await?;
        self.lock_compared(&tables).await?;
        self.copy_tables(&tables, rows.is_referred_to).await
    }

    async fn lock_compared(&mut self, tables: &[(String, String)]) -> Result<(), Failure> {
        let mode = LockMode::ShareRowExclusive;
        let locks: Vec<_> = tables
            .iter()
            .cloned()
            .map(|(schema, table)| TableLock { schema, table, mode })
            .collect();
        self.lock_at_home(&locks).await
    }

    /// Makes the copies of these tables equal to node 1's. Requires: they are locked there, and
    /// nothing else has been written there by foreign keys.
    async fn copy_tables(
        &mut self,
        tables: &[(String, String)],
        is_referred_to: bool,
    ) -> Result<(), Failure> {
        // Rows that are on one node only are checked there; all others have been on node 1.
        let kind = if is_referred_to { "all" } else { "whole" };
        let mut all = Vec::new();
        for (schema, table) in tables {
            let registry = self.tx.registry.clone();
            let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
            link.learn_moment().await?;
            let (sql, seal) =
                catalog::table_rows_sql(link.connection(), schema, table, &registry.cluster.seals);
            let call = Call::Simple
                .carrying(Rows::Everywhere(vec![seal.into()]), self.travelling_bytes_max())?;
            let answer = self.internal_rows(NodeId::HOME, Access::Write, &sql, &call).await?;
            let mut rows = RowTexts::new(self.travelling_bytes_max());
            for row in answer {
                add_row(&mut rows, row.first().and_then(Option::as_ref))?;
            }
            all.push((RowsOf { schema, table, kind }, rows));
        }
        self.store(&all).await
    }

    /// Runs a statement on node 1 whose last column is a row's text; the client gets the others.
    async fn run_and_take(
        &mut self,
        text: &str,
        call: &Call,
    ) -> Result<(Relayed, RowTexts), Failure> {
        self.tx.wait_for_visible(NodeId::HOME).await?;
        let call = call.with_a_text_more();
        let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        call.put(link, text);
        link.connection().flush().await?;
        let bytes_max = self.travelling_bytes_max();
        let link = self.tx.links.at(&NodeId::HOME);
        let outer = self.client.take_capture();
        self.client.begin_capture(bytes_max);
        let relayed = relay(self.client, link, Filter::rows(&call, false)).await;
        let captured = self.client.end_capture();
        self.client.resume_capture(outer);
        let mut rows = RowTexts::new(bytes_max);
        let taken = captured.map(|it| take_last_column(self.client.out(), it, &mut rows));
        let answer = relayed?;
        taken.ok_or_else(|| too_large(bytes_max))??;
        Ok((answer, rows))
    }

    /// Stores rows of node 1 on all other nodes.
    async fn store(&mut self, all: &[(RowsOf<'_>, RowTexts)]) -> Result<(), Failure> {
        // All that the statement saw on node 1 must be visible on the other nodes, or the rows it
        // changed are not there to be changed.
        self.tx.wait_for_all_visible().await?;
        let registry = self.tx.registry.clone();
        let others: Vec<_> =
            self.tx.catalog.nodes.iter().copied().filter(|node| *node != NodeId::HOME).collect();
        self.learn_moments(&others).await?;
        for (of, rows) in all {
            for node in &others {
                let link = self.tx.enlist(*node, Access::Write).await?;
                let seal = of.seal(link.connection(), &rows.text, &registry.cluster.seals);
                let values = [of.schema, of.table, of.kind, &rows.text, &seal];
                put_store(link, &values);
                link.connection().flush().await?;
            }
            let mut awaited = Answers::of(&others);
            while let Some(node) = awaited.next(self).await {
                let link = self.tx.links.at(&node);
                if let Err(error) = read_rows(link, |_| Ok(())).await {
                    awaited.note(self, error).await?;
                }
            }
            awaited.end()?;
        }
        Ok(())
    }
}

impl Executor<'_> {
    /// Asks these nodes, concurrently, when the transaction began on each, where that is not known
    /// yet.
    async fn learn_moments(&mut self, nodes: &[NodeId]) -> Result<(), Failure> {
        let mut asked = Vec::new();
        for node in nodes {
            let link = self.tx.enlist(*node, Access::Write).await?;
            if link.connection().moment().is_empty() {
                link.begin();
                put_query(link.connection().outgoing(), ASK_MOMENT);
                link.connection().flush().await?;
                asked.push(*node);
            }
        }
        let mut awaited = Answers::of(&asked);
        while let Some(node) = awaited.next(self).await {
            let link = self.tx.links.at(&node);
            let mut told = tutti_link::connection::Rows::default();
            let read = read_rows(link, |row| {
                told.rows.push(row.to_vec());
                Ok(())
            });
            match read.await {
                Ok(()) => link.connection().note_moment(&[told]),
                Err(error) => awaited.note(self, error).await?,
            }
        }
        awaited.end()
    }
}

/// Rows and seal are parameters: statement texts are shown to other sessions, parameters are not.
fn put_store(link: &mut Link, values: &[&str]) {
    const TEXT: u32 = 25;
    let call = Call::Extended {
        types: vec![TEXT; values.len()],
        arguments: Arguments {
            formats: Vec::new(),
            values: values.iter().map(|it| Some(Bytes::copy_from_slice(it.as_bytes()))).collect(),
            result_formats: Vec::new(),
        },
    };
    link.put_hidden();
    call.put(link, "SELECT tutti.write_rows($1, $2, $3, $4, $5)");
}

/// Writes an answer without its last column, whose values are added to `rows`.
fn take_last_column(
    out: &mut BytesMut,
    captured: Bytes,
    rows: &mut RowTexts,
) -> Result<(), Failure> {
    let mut rest = BytesMut::from(captured);
    while frame_len(&rest)?.is_some() {
        let Some(frame) = take_frame(&mut rest)? else { break };
        match frame.tag() {
            b'D' => put_row_without_last(out, &frame, rows)?,
            b'T' => {
                let mut columns = decode_row_description(&frame)?;
                columns.pop();
                if !columns.is_empty() {
                    put_row_description(out, &columns);
                }
            }
            _ => out.extend_from_slice(frame.as_bytes()),
        }
    }
    Ok(())
}

fn put_row_without_last(
    out: &mut BytesMut,
    frame: &Frame,
    rows: &mut RowTexts,
) -> Result<(), Failure> {
    let mut values = decode_data_row(frame)?;
    let last = values.pop().flatten();
    add_row(rows, last.as_ref())?;
    if !values.is_empty() {
        let values: Vec<_> = values.iter().map(Option::as_deref).collect();
        put_data_row(out, values.into_iter());
    }
    Ok(())
}

fn add_row(rows: &mut RowTexts, row: Option<&Bytes>) -> Result<(), Failure> {
    let row = row.and_then(|row| std::str::from_utf8(row).ok());
    let row = row.ok_or_else(|| Failure::error("XX000", "node 1 did not return a written row"))?;
    if rows.bytes_max < rows.text.len() + row.len() {
        return Err(too_large(rows.bytes_max));
    }
    if !rows.text.is_empty() {
        rows.text.push(',');
    }
    rows.text.push_str(row);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tutti_wire::backend::{ColumnDescription, put_command_complete};

    use super::*;

    #[test]
    fn the_client_sees_nothing_of_the_last_column() {
        let mut answer = BytesMut::new();
        let columns = ["a", "tutti"].map(ColumnDescription::text);
        put_row_description(&mut answer, &columns);
        put_data_row(&mut answer, [None, Some(&b"00ff"[..])].into_iter());
        put_data_row(&mut answer, [Some(&b"x"[..]), Some(&b"0a"[..])].into_iter());
        put_command_complete(&mut answer, "UPDATE 2");

        let (mut out, mut rows) = (BytesMut::new(), RowTexts::new(1000));
        take_last_column(&mut out, answer.freeze(), &mut rows).unwrap();

        let mut expected = BytesMut::new();
        put_row_description(&mut expected, &columns[..1]);
        put_data_row(&mut expected, [None].into_iter());
        put_data_row(&mut expected, [Some(&b"x"[..])].into_iter());
        put_command_complete(&mut expected, "UPDATE 2");
        assert_eq!((out, rows.text.as_str()), (expected, "00ff,0a"));
    }

    #[test]
    fn without_returning_there_are_no_rows() {
        let mut answer = BytesMut::new();
        put_row_description(&mut answer, &[ColumnDescription::text("tutti")]);
        put_data_row(&mut answer, [Some(&b"00"[..])].into_iter());
        let (mut out, mut rows) = (BytesMut::new(), RowTexts::new(1000));
        take_last_column(&mut out, answer.freeze(), &mut rows).unwrap();
        assert_eq!((out.len(), rows.text.as_str()), (0, "00"));
    }
}
