//! The rows of a query of a plan's own: rows to insert, mostly.
//!
//! Owns: that they are all read before one is used, for the same connections use them; and where they are until then.
//! Never: says what becomes of them.
//! Start reading at [`SourceRows`].

use bytes::Bytes;
use tutti_link::spool::SpoolError;
use tutti_sql::catalog::{NodeId, Placement};
use tutti_sql::plan::{Access, DataPlan, Gather, Insert, Plan, Planned, RunOn};
use tutti_wire::backend::decode_data_row;

use super::fan_out::{Answers, SnapshotNeed, put_rows};
use super::gather::Filled;
use super::receiver::Receiver;
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, IssuedBy, too_large};
use crate::transaction::named::WaitingRows;

/// So many bytes of rows that are not all kept are taken at a time.
const PORTION_BYTES: usize = 1 << 20;

/// A row's values in text form.
type Row = Vec<Option<Bytes>>;

/// The rows of a query of a plan's own, as text.
pub(super) enum SourceRows<'p> {
    /// Kept by the gateway.
    All(Vec<Row>),
    /// The query is still to be run where what it reads has been collected.
    Received(Receiver<'p>, String, Call),
    /// Too many for that: kept elsewhere.
    Waiting(WaitingRows),
}

impl SourceRows<'_> {
    /// The next portion of rows that are not all kept. `None`: that was all.
    ///
    /// Requires: those that are received are being read.
    pub(super) async fn next_rows(&mut self) -> Result<Option<Vec<Row>>, Failure> {
        let waiting = match self {
            Self::All(rows) => return Ok(Some(std::mem::take(rows)).filter(|it| !it.is_empty())),
            Self::Received(receiver, ..) => return receiver.next_rows().await,
            Self::Waiting(waiting) => waiting,
        };
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while bytes < PORTION_BYTES
            && let Some(frame) = waiting.next_frame().await?
        {
            bytes += frame.as_bytes().len();
            rows.push(decode_data_row(&frame)?);
        }
        Ok(Some(rows).filter(|rows| !rows.is_empty()))
    }

    /// All of them.
    ///
    /// Errors: 54000 if they are more than so many bytes. Requires: as [`Self::next_rows`].
    pub(super) async fn all_rows(mut self, bytes_max: usize) -> Result<Vec<Row>, Failure> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(portion) = self.next_rows().await? {
            bytes += portion.iter().flatten().flatten().map(Bytes::len).sum::<usize>();
            if bytes_max < bytes {
                return Err(too_large(bytes_max));
            }
            rows.extend(portion);
        }
        Ok(rows)
    }
}

impl Executor<'_> {
    /// Runs a query of the plan's own and returns its rows as text.
    pub(super) async fn query_rows(
        &mut self,
        planned: &Planned,
        query: &str,
        call: &Call,
    ) -> Result<Vec<Row>, Failure> {
        match &planned.plan {
            Plan::Data(DataPlan::One { node, access, otherwise }) => {
                match (self.choose(node, call), otherwise) {
                    (Some(node), _) => self.internal_rows(node, *access, query, call).await,
                    (None, Some(otherwise)) => {
                        Box::pin(self.query_rows(otherwise, query, call)).await
                    }
                    (None, None) => Err(Failure::error("XX000", "the source's plan names no node")),
                }
            }
            Plan::Data(DataPlan::Scatter { access }) => {
                let nodes = self.tx.catalog.nodes.clone();
                let texts: Vec<_> = nodes.iter().map(|node| (*node, query)).collect();
                let rows = self.internal_rows_of_each(&texts, *access, call).await?;
                Ok(rows.into_iter().flatten().collect())
            }
            Plan::Data(DataPlan::Gather(gather)) => self.gathered_rows(gather, call).await,
            other => {
                tracing::error!(?other, "a source of rows has a plan that gives none");
                Err(Failure::error("XX000", "the source of the rows cannot be run"))
            }
        }
    }

    /// The rows of an INSERT's query: all of them, but where they may go in portions.
    pub(super) async fn source_rows<'p>(
        &mut self,
        planned: &'p Planned,
        query: &str,
        insert: &Insert,
        call: &Call,
    ) -> Result<SourceRows<'p>, Failure> {
        // Each portion is a statement of its own: nothing may see that.
        let in_portions = insert.one_row_each
            && !insert.returning
            && !insert.relation.has_triggers
            && !insert.relation.row_security
            && insert.relation.placement != Placement::Replicated;
        if !in_portions {
            return Ok(SourceRows::All(self.query_rows(planned, query, call).await?));
        }
        match &planned.plan {
            Plan::Data(DataPlan::Gather(gather)) => self.gathered_source(gather, call).await,
            Plan::Data(DataPlan::Scatter { access }) => {
                let nodes = self.tx.catalog.nodes.clone();
                let texts: Vec<_> = nodes.iter().map(|node| (*node, query)).collect();
                self.rows_in_portions(&texts, *access, call).await
            }
            Plan::Data(DataPlan::One { node, access, .. })
                if let Some(node) = self.choose(node, call) =>
            {
                self.rows_in_portions(&[(node, query)], *access, call).await
            }
            _ => Ok(SourceRows::All(self.query_rows(planned, query, call).await?)),
        }
    }

    /// The rows of a query that is gathered, for the gateway itself, as text.
    pub(super) async fn gathered_rows(
        &mut self,
        gather: &Gather,
        call: &Call,
    ) -> Result<Vec<Row>, Failure> {
        match self.gathered_source(gather, call).await? {
            SourceRows::All(rows) => Ok(rows),
            SourceRows::Received(receiver, text, call) => {
                self.rows_of_receiver(receiver, &text, &call).await
            }
            waiting @ SourceRows::Waiting(_) => waiting.all_rows(self.travelling_bytes_max()).await,
        }
    }

    /// The same, where they may be more than can be kept.
    async fn gathered_source<'p>(
        &mut self,
        gather: &'p Gather,
        call: &Call,
    ) -> Result<SourceRows<'p>, Failure> {
        let (text, call, nodes) = match (self.fill_way(gather, call).await?, &gather.run_on) {
            (Filled::Received(receiver, text, call), _) => {
                return Ok(SourceRows::Received(receiver, text, call));
            }
            (Filled::OnEach(text, call), _) | (Filled::Finally(text, call), RunOn::EachNode) => {
                (text, call, self.tx.catalog.nodes.clone())
            }
            (Filled::Finally(text, call), RunOn::One(choice)) => {
                let node = self.choose(choice, &call).unwrap_or(NodeId::HOME);
                (text, call, vec![node])
            }
            (Filled::OfNodes(..), _)
            | (Filled::Finally(..), RunOn::Replicas { .. } | RunOn::Rows(_)) => {
                return Err(Failure::error("XX000", "a query writes to copies"));
            }
        };
        let texts: Vec<_> = nodes.iter().map(|node| (*node, text.as_str())).collect();
        self.rows_in_portions(&texts, gather.access, &call).await
    }

    /// As [`Self::internal_rows_of_each`] where they may be more than can be kept.
    async fn rows_in_portions<'p>(
        &mut self,
        texts: &[(NodeId, &str)],
        access: Access,
        call: &Call,
    ) -> Result<SourceRows<'p>, Failure> {
        self.refuse_parameters_elsewhere(texts.iter().map(|(node, _)| *node), call)?;
        if let [(node, _)] = texts {
            self.mark(*node).await?;
        }
        let by = IssuedBy::Gateway;
        self.send_to_many(texts, access, SnapshotNeed::Rows, by, call).await?;
        let nodes: Vec<_> = texts.iter().map(|(node, _)| *node).collect();
        let mut spool = self.tx.spool();
        let mut awaited = Answers::of(&nodes);
        while let Some(node) = awaited.next(self).await {
            if let Err(error) = put_rows(self.tx.links.at(&node), &mut spool).await {
                awaited.note(self, error).await?;
            }
        }
        awaited.end()?;
        let bytes_max = self.travelling_bytes_max();
        let kept = spool.end().await.map_err(|error| match error {
            SpoolError::TooMany { .. } => too_large(bytes_max),
            SpoolError::Node(error) => error.into(),
        })?;
        let is_elsewhere = kept.is_elsewhere();
        let waiting = SourceRows::Waiting(WaitingRows::new(kept));
        match is_elsewhere {
            true => Ok(waiting),
            false => Ok(SourceRows::All(waiting.all_rows(bytes_max).await?)),
        }
    }
}
