//! Filling a materialized view on node 1 from tables of which other nodes have rows.
//!
//! Owns: which rows node 1 is lent, of which moment, and that they are gone when the view is filled.
//! Never: runs the view's query in parts; node 1 runs it, as PostgreSQL does.
//! Start reading at [`Executor::fill_view`]; why this way: docs/decisions/2026-11-27-materialized-views.md.
//!
//! A table shows the rows of its children. So each distributed table that the query reads gets a child on node 1, which
//! the transaction makes, fills with the rows of the other nodes, and drops, unseen by any other.
//!
//! **One moment.** A statement by itself takes one snapshot of all nodes. In a transaction block at READ COMMITTED node
//! 1 runs the query later than the other nodes have sent their rows; so its tables are kept as they are from before these
//! are read: writers that come to node 1 wait for the transaction's end.

use std::sync::Arc;

use tutti_cluster::catalog::lending::{Lent, lend_sql, lent, take_back_sql, view_sql};
use tutti_link::connection::NodeError;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, Ddl, FilledView, Lending};
use tutti_sql::planner;
use tutti_sql::statement;
use tutti_wire::backend::decode_data_row;

use super::array_literal::ArrayText;
use super::fan_out::{Answers, SnapshotNeed, ends_answer};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done, IssuedBy};
use crate::transaction::state::Isolation;
use crate::transaction::{Level, Mode};

/// What is stored by one statement, in bytes of the rows' texts, or a row more.
const BATCH_BYTES: usize = 8 << 20;

/// As PostgreSQL calls it.
const CHECK_VIOLATION: &str = "23514";

/// A view that is there.
struct Known {
    oid: u32,
    lending: Lending,
    /// Node 1 will say why it does not refresh it.
    is_refused: bool,
    /// Its query runs no code that may change the schema, nor does REFRESH: nothing has to be known or published after it.
    is_seen: bool,
}

impl Executor<'_> {
    /// CREATE and REFRESH MATERIALIZED VIEW, where the view is node 1's.
    pub(super) async fn fill_view(
        &mut self,
        ddl: &Ddl,
        fills: &FilledView,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let (lending, refreshed, changes_schema) = match fills {
            FilledView::Made(lending) => (lending.clone(), None, true),
            FilledView::Again { schema, name, concurrently } => {
                let known = self.view_known(schema, name, *concurrently).await?;
                match known.filter(|known| !known.is_refused) {
                    Some(known) => (known.lending, Some(known.oid), !known.is_seen),
                    None => (Lending::default(), None, true),
                }
            }
        };
        let lent = match lending.tables.is_empty() {
            true => Vec::new().into(),
            false => {
                let keeps = self.takes_one_moment(&lending)?;
                let lent = self.lend(&lending, keeps, refreshed).await?;
                self.bring(&lent).await?;
                lent
            }
        };
        if let Some(accounting) = &mut self.tx.accounting {
            accounting.lent =
                lent.iter().map(|lent| (lent.schema.clone(), lent.table.clone())).collect();
        }
        let answer = self.forward(NodeId::HOME, Access::Write, text, call, false).await?;
        // Before what was lent is taken back, which code must not be blamed for.
        self.finish_accounting(Ok(())).await?;
        if !lent.is_empty() {
            self.take_back_lent(&lent).await?;
        }
        if matches!(fills, FilledView::Again { concurrently: true, .. }) {
            // It has made a temporary table.
            self.tx.must_anchor(NodeId::HOME)?;
        }
        if changes_schema {
            self.after_ddl(ddl, &[]).await?;
        }
        Ok(Done::Tag(answer.tag))
    }

    /// What a REFRESH of this view reads; `None`: there is none.
    ///
    /// Errors: 0A000 where its query cannot be run over rows that are lent.
    async fn view_known(
        &mut self,
        schema: &str,
        name: &str,
        concurrently: bool,
    ) -> Result<Option<Known>, Failure> {
        let sql = view_sql(schema, name);
        let rows = match self.tx.transaction.nodes.is_empty()
            && self.tx.transaction.mode == Mode::Implicit
        {
            // Its snapshot is still to be chosen.
            true => self.tx.link(NodeId::HOME).await?.query(&sql).await?,
            false => self.tx.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?,
        };
        let Some(rows) = rows.last() else { return Ok(None) };
        let (Some(oid), Some(definition)) = (rows.text(0, 0), rows.text(0, 1)) else {
            return Ok(None);
        };
        let oid = oid.parse().map_err(|_| Failure::error("XX000", "an OID is no number"))?;
        let is = |column, value| rows.text(0, column) == Some(value);
        let is_refused = !is(2, "t") || (concurrently && !is(3, "t")) || is(4, "on");
        let lending = match is_refused {
            true => Lending::default(),
            false => planner::lending_of(definition, &self.tx.catalog)?,
        };
        let is_seen = !is_refused && self.runs_no_code(definition);
        Ok(Some(Known { oid, lending, is_refused, is_seen }))
    }

    /// Whether it is known of all that a view's query calls that it only looks at its arguments.
    fn runs_no_code(&self, definition: &str) -> bool {
        let statements = statement::parse(definition).unwrap_or_default();
        let [statement] = &statements[..] else { return false };
        let context = planner::Context::new(&self.tx.catalog, &self.tx.scope);
        planner::plan(statement, &context).is_ok_and(|planned| planned.unseen.is_none())
    }

    /// Chooses how all that the view's query reads comes to be of one moment: true if node 1's tables must be kept.
    ///
    /// Errors: 0A000 if one cannot be.
    fn takes_one_moment(&mut self, lending: &Lending) -> Result<bool, Failure> {
        if self.tx.level() != Level::ReadCommitted {
            return Ok(false);
        }
        let transaction = &mut self.tx.transaction;
        if transaction.mode == Mode::Implicit
            && transaction.nodes.is_empty()
            && self.tx.registry.cluster.config.switches.rooms
        {
            transaction.characteristics.isolation = Some(Isolation::RepeatableRead);
            transaction.at_one_moment =
                Some([&lending.tables[..], &lending.whole[..]].concat().into());
            return Ok(false);
        }
        match &lending.unlockable {
            None => Ok(true),
            Some(name) => Err(Failure::unsupported(
                format!("this materialized view cannot be filled here, for it reads {name}"),
                "In a transaction block at READ COMMITTED nothing keeps that as it is while rows of \
                 other nodes are read, so the view would show two moments.",
                "Fill it outside of a transaction block, or in one at REPEATABLE READ.",
            )),
        }
    }

    async fn lend(
        &mut self,
        lending: &Lending,
        keeps: bool,
        refreshed: Option<u32>,
    ) -> Result<Arc<[Lent]>, Failure> {
        let registry = self.tx.registry.clone();
        self.tx.wait_for_visible(NodeId::HOME).await?;
        let link = self.tx.enlist_begun(NodeId::HOME, Access::Write).await?;
        link.learn_moment().await?;
        let seals = &registry.cluster.seals;
        let (sql, values) = lend_sql(link.connection(), lending, keeps, refreshed, seals);
        let rows = link.query_with(&sql, values).await.map_err(without_place)?;
        let lent = rows.last().and_then(lent);
        Ok(lent.ok_or_else(|| Failure::error("XX000", "what was lent is not readable"))?.into())
    }

    /// Stores the rows of the other nodes on node 1, as they come.
    async fn bring(&mut self, lent: &Arc<[Lent]>) -> Result<(), Failure> {
        let nodes = self.other_nodes();
        let selects: Vec<_> =
            lent.iter().enumerate().map(|(number, lent)| lent.select(number)).collect();
        let select = selects.join(" UNION ALL ");
        let texts: Vec<_> = nodes.iter().map(|node| (*node, select.as_str())).collect();
        if texts.is_empty() {
            return Ok(());
        }
        let need = SnapshotNeed::Rows;
        self.send_to_many(&texts, Access::Read, need, IssuedBy::Gateway, &Call::Simple).await?;
        let mut batches: Vec<Batch> = lent.iter().map(|_| Batch::default()).collect();
        let mut awaited = Answers::of(&nodes);
        while let Some(node) = awaited.next(self).await {
            let is_wanted = awaited.are_good();
            if let Err(failure) = self.bring_from(node, lent, &mut batches, is_wanted).await {
                awaited.note(self, failure).await?;
            }
        }
        awaited.end()?;
        for (lent, batch) in lent.iter().zip(batches) {
            self.store_lent(lent, batch).await?;
        }
        Ok(())
    }

    /// Reads one node's answer to its end.
    async fn bring_from(
        &mut self,
        node: NodeId,
        lent: &[Lent],
        batches: &mut [Batch],
        is_wanted: bool,
    ) -> Result<(), Failure> {
        let refused_before = self.tx.links.at(&node).catch_up().await?;
        let mut failure: Option<Failure> = None;
        loop {
            let link = self.tx.links.at(&node);
            let Some(frame) = link.connection().take_frame()? else {
                link.connection().read_more().await?;
                continue;
            };
            match frame.tag() {
                b'D' if failure.is_none() && is_wanted => {
                    let row = decode_data_row(&frame)?;
                    let number = row.first().and_then(|number| {
                        std::str::from_utf8(number.as_deref()?).ok()?.parse::<usize>().ok()
                    });
                    let text =
                        row.get(1).and_then(|text| std::str::from_utf8(text.as_deref()?).ok());
                    let (Some(number), Some(text)) = (number, text) else {
                        failure =
                            Some(Failure::error("XX000", "a row that is lent is not readable"));
                        continue;
                    };
                    let Some(batch) = batches.get_mut(number) else { continue };
                    batch.bytes += batch.rows.push_composite(text);
                    if BATCH_BYTES <= batch.bytes {
                        let batch = std::mem::take(batch);
                        failure = self.store_lent(&lent[number], batch).await.err();
                    }
                }
                _ if ends_answer(link, &frame, &mut failure)? => break,
                _ => (),
            }
        }
        refused_before.map_or(Ok(()), Err)?;
        failure.map_or(Ok(()), |failure| Err(failure.without_position()))
    }

    async fn store_lent(&mut self, lent: &Lent, batch: Batch) -> Result<(), Failure> {
        if batch.bytes == 0 {
            return Ok(());
        }
        let registry = self.tx.registry.clone();
        let rows = String::from_utf8_lossy(&batch.rows.into_bytes()).into_owned();
        let link = self.tx.links.at(&NodeId::HOME);
        let (sql, values) = lent.store_sql(link.connection(), rows, &registry.cluster.seals);
        match link.query_with(&sql, values).await {
            // The child has the table's constraints, and is no table that anybody knows.
            Err(NodeError::Refused(fields)) if fields.sqlstate() == CHECK_VIOLATION => {
                Err(Failure::unsupported(
                    format!(
                        "rows of \"{}\" cannot be lent to fill a materialized view",
                        lent.table
                    ),
                    "The table has a constraint that is NOT VALID, and rows for which it does not hold.",
                    "Correct the rows and ALTER TABLE … VALIDATE CONSTRAINT, or use CREATE TABLE … AS.",
                ))
            }
            stored => stored.map(|_| ()).map_err(without_place),
        }
    }

    async fn take_back_lent(&mut self, lent: &[Lent]) -> Result<(), Failure> {
        let registry = self.tx.registry.clone();
        let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        let (sql, values) = take_back_sql(link.connection(), lent, &registry.cluster.seals);
        link.query_with(&sql, values).await.map_err(without_place)?;
        Ok(())
    }
}

/// Rows of one table that are not stored yet.
#[derive(Debug, Default)]
struct Batch {
    rows: ArrayText,
    bytes: usize,
}

/// Where in a function of ours it happened does not concern the client.
fn without_place(error: NodeError) -> Failure {
    match error {
        NodeError::Refused(mut fields) => {
            fields.fields.retain(|(code, _)| !b"PWpq".contains(code));
            NodeError::Refused(fields).into()
        }
        error => error.into(),
    }
}
