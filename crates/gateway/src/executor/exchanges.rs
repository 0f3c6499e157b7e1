//! What EXPLAIN ANALYZE notes of rows that have been brought together.
//!
//! Owns: asking the nodes to explain what they have just read, and the words for it.
//! Never: collects a row; of a statement that is not explained nothing is noted.
//! Start reading at [`Executor::note_round`].

use std::collections::BTreeMap;
use std::time::Duration;

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, Collect};

use super::fan_out::SnapshotNeed;
use super::plan_tree::{Exchange, Measured, nodes_in_words};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::Call;

/// A round of collecting that is over.
pub(super) struct Came<'c> {
    pub(super) collects: &'c [Collect],
    /// Each table of it, and by which of its ways fewer rows were asked for.
    pub(super) round: &'c [(usize, Option<usize>)],
    /// What each node was asked for.
    pub(super) wanted: &'c BTreeMap<NodeId, Vec<(usize, Option<usize>)>>,
    pub(super) elapsed: Duration,
}

impl Executor<'_> {
    /// `of`: how many rows, of how many bytes, have come of a table. `texts`: what each node was sent.
    pub(super) async fn note_round(
        &mut self,
        came: &Came<'_>,
        of: impl Fn(&usize) -> (u64, usize),
        texts: &[(NodeId, &str)],
        access: Access,
        call: &Call,
    ) -> Result<(), Failure> {
        let (mut names, mut details) = (Vec::new(), Vec::new());
        let (mut rows, mut bytes) = (0, 0);
        for (index, _) in came.round {
            let asked = |asked: &&(usize, Option<usize>)| asked.0 == *index;
            let nodes = came.wanted.iter().filter(|(_, of)| of.iter().any(|it| asked(&it)));
            let nodes: Vec<_> = nodes.map(|(node, _)| *node).collect();
            if nodes.is_empty() {
                continue;
            }
            let collect = &came.collects[*index];
            let way = came.wanted.values().flatten().find(asked).and_then(|(_, way)| *way);
            let matching = way.map(|way| &came.collects[collect.reduced[way].by].relation.name);
            let matching = matching.map(|by| format!(", what matches {by}")).unwrap_or_default();
            let from = nodes_in_words(&nodes);
            names.push(format!("{} from {from}{matching}", collect.relation.name));
            let (rows_of, bytes_of) = of(index);
            details.push(format!("{}: rows={rows_of} bytes={bytes_of}", collect.relation.name));
            rows += rows_of;
            bytes += bytes_of;
        }
        if names.len() < 2 {
            details.clear();
        }
        let measured =
            Measured { rows: Some(rows), bytes: Some(bytes as u64), elapsed: came.elapsed };
        let title = format!("Collect {}", names.join(", "));
        let kind = "Tutti Collect";
        let exchange = Exchange { kind, title, details, measured, said: Vec::new() };
        self.note_exchange(exchange, texts, access, call).await
    }

    /// What was locked row by row is not explained: it would be locked anew.
    pub(super) fn note_locked(&mut self, table: &str, bytes: usize, elapsed: Duration) {
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.done.push(Exchange {
                kind: "Tutti Collect",
                title: format!("Collect {table}, locking the first rows"),
                details: Vec::new(),
                measured: Measured { rows: None, bytes: Some(bytes as u64), elapsed },
                said: Vec::new(),
            });
        }
    }

    /// What every node has answered for its own rows.
    pub(super) async fn note_parts(
        &mut self,
        measured: Measured,
        texts: &[(NodeId, &str)],
        call: &Call,
    ) -> Result<(), Failure> {
        let nodes: Vec<_> = texts.iter().map(|(node, _)| *node).collect();
        let title = format!("Parts of {}", nodes_in_words(&nodes));
        let (kind, details) = ("Tutti Parts", Vec::new());
        let exchange = Exchange { kind, title, details, measured, said: Vec::new() };
        self.note_exchange(exchange, texts, Access::Read, call).await
    }

    async fn note_exchange(
        &mut self,
        mut exchange: Exchange,
        texts: &[(NodeId, &str)],
        access: Access,
        call: &Call,
    ) -> Result<(), Failure> {
        let Some(exchanges) = &self.exchanges else { return Ok(()) };
        let prefix = &exchanges.prefix;
        let texts: Vec<_> =
            texts.iter().map(|(node, text)| (*node, format!("{prefix}{text}"))).collect();
        let texts: Vec<_> = texts.iter().map(|(node, text)| (*node, text.as_str())).collect();
        // EXPLAIN takes its snapshot when it is executed, as DECLARE does.
        let need = SnapshotNeed::RowsOfCursor;
        let rows = self.internal_rows_with(&texts, access, need, call).await?;
        exchange.said = texts.iter().map(|(node, _)| *node).zip(rows).collect();
        if let Some(exchanges) = &mut self.exchanges {
            exchanges.done.push(exchange);
        }
        Ok(())
    }
}
