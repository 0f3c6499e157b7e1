//! Bringing rows together: plan 4 of the design.
//!
//! Owns: running the collecting selects (one statement per node, so that a node's tables are read
//! in one snapshot), and putting the rows into the final statement.
//! Never: looks into a row.

use std::collections::BTreeMap;

use bytes::Bytes;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, CollectFrom, Gather, Piece, RunOn, Template};
use tutti_wire::backend::decode_data_row;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::take_frame;

use super::Done;
use super::call::Call;
use super::many::{Failures, Looks, Origin};
use super::rows::ArrayLiteral;
use crate::failure::Failure;
use crate::session::{Link, Session};

/// Most bytes of SQL that gathered rows may take. A query string may have 1 GiB at most, and the
/// server copies it.
const GATHERED_BYTES_MAX: usize = 512 << 20;

impl Session {
    /// An error's position is left out: it would count in a text that the client does not know.
    pub(super) async fn gather(&mut self, gather: &Gather, call: &Call) -> Result<Done, Failure> {
        self.run_gather(gather, call).await.map_err(Failure::without_position)
    }

    async fn run_gather(&mut self, gather: &Gather, call: &Call) -> Result<Done, Failure> {
        let text = self.fill(gather, call).await?;
        match &gather.run_on {
            RunOn::One(choice) => {
                let node = self.choose(choice, call).unwrap_or(NodeId::HOME);
                self.run_on_one(node, gather.access, &text, call).await
            }
            RunOn::EachNode => self.run_on_each(gather.access, &text, call).await,
            RunOn::Replicas { locks, rows } => self.write_replicas(locks, rows, &text, call).await,
            RunOn::Rows(rows) => self.write_by_row(rows, &text, call).await,
        }
    }

    /// Collects what `gather` asks for and returns the final statement with the rows in it.
    pub(super) async fn fill(&mut self, gather: &Gather, call: &Call) -> Result<String, Failure> {
        if gather.access == Access::Write && !matches!(gather.run_on, RunOn::One(_)) {
            self.need_transaction();
        }
        let collected = self.collect(gather, call).await?;
        let now = self.now_for(&gather.statement).await?;
        Ok(fill_template(&gather.statement, &collected, now.as_deref()))
    }

    /// The transaction's time on node 1 if the template has a gap for it.
    pub(super) async fn now_for(&mut self, template: &Template) -> Result<Option<String>, Failure> {
        Ok(match template.0.contains(&Piece::Now) {
            true => Some(self.now_literal().await?),
            false => None,
        })
    }

    /// The transaction's time on node 1, as an SQL literal.
    async fn now_literal(&mut self) -> Result<String, Failure> {
        let link = self.enlist(NodeId::HOME, Access::Read).await?;
        let rows = link
            .query(
                "SELECT pg_catalog.quote_literal(pg_catalog.now()) || '::pg_catalog.timestamptz'",
            )
            .await?;
        let literal = rows.first().and_then(|rows| rows.text(0, 0)).unwrap_or_default();
        Ok(literal.to_owned())
    }

    /// One literal per collect, in order.
    async fn collect(&mut self, gather: &Gather, call: &Call) -> Result<Vec<String>, Failure> {
        let mut wanted: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (index, collect) in gather.collects.iter().enumerate() {
            let chosen = match &collect.from {
                CollectFrom::AllNodes => None,
                CollectFrom::One(choice) => self.choose(choice, call),
            };
            let nodes = chosen.map_or_else(|| self.catalog.nodes.clone(), |node| vec![node]);
            for node in nodes {
                wanted.entry(node).or_default().push(index);
            }
        }
        let texts: Vec<(NodeId, String)> = wanted
            .iter()
            .map(|(node, indexes)| {
                let selects: Vec<_> = indexes
                    .iter()
                    .map(|index| {
                        let select = &gather.collects[*index].select;
                        format!("SELECT {index}, tutti_r FROM ({select}) AS tutti_q(tutti_r)")
                    })
                    .collect();
                (*node, selects.join(" UNION ALL "))
            })
            .collect();
        let texts: Vec<_> = texts.iter().map(|(node, text)| (*node, text.as_str())).collect();
        self.send_to_many(&texts, Access::Read, Looks::AtRows, Origin::Gateway, call).await?;
        let mut arrays: Vec<_> = gather.collects.iter().map(|_| ArrayLiteral::default()).collect();
        let nodes: Vec<_> = wanted.into_keys().collect();
        let mut failures = Failures::default();
        for (index, node) in nodes.iter().enumerate() {
            let rest = &nodes[index + 1..];
            self.await_turn(*node, rest, &mut failures).await;
            let link = self.links.get_mut(node).expect("enlisted");
            let read = read_rows(link, |row| {
                let [Some(index), Some(composite)] = row else { return Ok(()) };
                let array = std::str::from_utf8(index)
                    .ok()
                    .and_then(|index| index.parse::<usize>().ok())
                    .and_then(|index| arrays.get_mut(index));
                if let (Some(array), Ok(composite)) = (array, std::str::from_utf8(composite)) {
                    if GATHERED_BYTES_MAX < array.sql_len() + composite.len() {
                        return Err(too_large());
                    }
                    array.push_composite(composite);
                }
                Ok(())
            });
            if let Err(error) = read.await {
                self.note_failure(&mut failures, *node, rest, error).await;
            }
        }
        failures.into_result()?;
        Ok(arrays.into_iter().map(ArrayLiteral::into_sql).collect())
    }

    /// Runs a query of the gateway's own on one node, with the client's parameters, and returns its
    /// rows as text.
    pub(super) async fn internal_rows(
        &mut self,
        node: NodeId,
        access: Access,
        sql: &str,
        call: &Call,
    ) -> Result<Vec<Vec<Option<Bytes>>>, Failure> {
        let mut rows = self.internal_rows_of_each(&[(node, sql)], access, call).await?;
        Ok(rows.pop().unwrap_or_default())
    }

    /// The same on several nodes at once, on one snapshot; one list of rows per node, in order.
    pub(super) async fn internal_rows_of_each(
        &mut self,
        texts: &[(NodeId, &str)],
        access: Access,
        call: &Call,
    ) -> Result<Vec<Vec<Vec<Option<Bytes>>>>, Failure> {
        if let [(node, _)] = texts {
            self.mark(*node).await?;
        }
        self.send_to_many(texts, access, Looks::AtRows, Origin::Gateway, call).await?;
        let nodes: Vec<_> = texts.iter().map(|(node, _)| *node).collect();
        let mut all = Vec::with_capacity(texts.len());
        let mut failures = Failures::default();
        for (index, node) in nodes.iter().enumerate() {
            let rest = &nodes[index + 1..];
            self.await_turn(*node, rest, &mut failures).await;
            let link = self.links.get_mut(node).expect("enlisted");
            let mut rows = Vec::new();
            let read = read_rows(link, |row| {
                rows.push(row.to_vec());
                Ok(())
            });
            if let Err(error) = read.await {
                self.note_failure(&mut failures, *node, rest, error).await;
            }
            all.push(rows);
        }
        failures.into_result()?;
        Ok(all)
    }
}

pub(super) fn too_large() -> Failure {
    ErrorFields::error("54000", "the statement would gather too many rows on one node")
        .with(b'D', format!("More than {} MiB would have to travel.", GATHERED_BYTES_MAX >> 20))
        .with(b'H', "Restrict the tables by conditions, or join them by their distribution keys.")
        .into()
}

/// `template` with its gaps filled.
pub(super) fn fill_template(template: &Template, rows: &[String], now: Option<&str>) -> String {
    let mut text = String::new();
    for piece in &template.0 {
        match piece {
            Piece::Sql(sql) => text.push_str(sql),
            Piece::Rows(index) => text.push_str(rows.get(*index).map_or(" '{}'", String::as_str)),
            Piece::Now => text.push_str(now.unwrap_or("pg_catalog.now()")),
        }
    }
    text
}

/// Reads one internal answer to ReadyForQuery; every row goes to `take`.
///
/// Errors: what the node answered with, or the first error of `take`; read to the end either way.
pub(super) async fn read_rows(
    link: &mut Link,
    mut take: impl FnMut(&[Option<Bytes>]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let refused_before = link.settle().await?;
    let mut failure: Option<Failure> = None;
    loop {
        let Some(frame) = take_frame(link.connection().incoming())? else {
            link.connection().read_more().await?;
            continue;
        };
        match frame.tag() {
            b'D' if failure.is_none() => failure = take(&decode_data_row(&frame)?).err(),
            b'E' => {
                let error = ErrorFields::decode(&frame)?;
                let fatal = error.is_fatal();
                failure = failure.or(Some(error.into()));
                if fatal {
                    link.connection().note_end();
                    break;
                }
            }
            b'Z' => {
                link.answered();
                break;
            }
            _ => (),
        }
    }
    refused_before.map_or(Ok(()), Err)?;
    failure.map_or(Ok(()), Err)
}
