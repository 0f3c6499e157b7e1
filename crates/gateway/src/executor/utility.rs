//! Statements that concern every node, or node 1 for the whole cluster, and are not ordinary DDL.
//!
//! Owns: VACUUM and the like, LOCK TABLE.
//! Never: changes the schema of several nodes.

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, LockBefore};

use super::ddl::is_unknown_name;
use super::relay::{Filter, relay};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done};

impl Executor<'_> {
    /// On every node, each by itself: PostgreSQL refuses most of these inside transaction blocks.
    pub(super) async fn on_every_node_alone(
        &mut self,
        refuses_transaction: bool,
        text: &str,
        text_of_others: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if refuses_transaction && self.tx.transaction.is_open() {
            // Node 1 words the refusal.
            return self.run_on_one(NodeId::HOME, Access::Write, text, call).await;
        }
        if refuses_transaction {
            // Nor can these be run again, which commit on their way.
            self.tx.activity.plan.end();
        }
        let nodes = self.tx.catalog.nodes.clone();
        let mut tag = String::new();
        for node in nodes {
            let link = self.tx.enlist(node, Access::Write).await?;
            call.put(link, if node == NodeId::HOME { text } else { text_of_others });
            link.connection().flush().await?;
            let filter = match node {
                NodeId::HOME => Filter::rows(call, false),
                _ => Filter::discard(call),
            };
            let link = self.tx.links.at(&node);
            let answer = match relay(self.client, link, filter).await {
                // For example an index of a table that is on node 1 alone.
                Err(Failure::Statement(error))
                    if node != NodeId::HOME
                        && self.tx.catalog.home_by_default
                        && is_unknown_name(error.sqlstate()) =>
                {
                    continue;
                }
                answered => answered?,
            };
            if node == NodeId::HOME {
                tag = answer.tag;
            }
        }
        Ok(Done::Tag(tag))
    }

    /// LOCK TABLE: node 1 first and alone, so that two sessions never hold some of the locks each.
    pub(super) async fn lock_everywhere(
        &mut self,
        text: &str,
        text_of_others: &str,
        before: Option<&LockBefore>,
        call: &Call,
    ) -> Result<Done, Failure> {
        if !self.tx.transaction.is_open() {
            return self.run_on_one(NodeId::HOME, Access::Read, text, call).await;
        }
        if let Some(before) = before.filter(|_| self.tx.will_import_snapshot()) {
            self.internal_rows(NodeId::HOME, Access::Read, &before.home, &Call::Simple).await?;
            self.lock_elsewhere(&before.others, &Call::Simple).await?;
            self.tx.import_on_all().await?;
        }
        let answer = self.forward(NodeId::HOME, Access::Read, text, call, false).await?;
        self.lock_elsewhere(text_of_others, call).await?;
        Ok(Done::Tag(answer.tag))
    }

    /// On the nodes after node 1; empty: they have none of the tables.
    async fn lock_elsewhere(&mut self, text: &str, call: &Call) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        let nodes = self.tx.catalog.nodes.clone();
        for node in nodes.into_iter().filter(|node| *node != NodeId::HOME) {
            self.internal_rows(node, Access::Read, text, call).await?;
        }
        Ok(())
    }
}
