//! Statements that concern every node, or node 1 for the whole cluster, and are no ordinary DDL.
//!
//! Owns: VACUUM and its kin, LOCK TABLE, LISTEN and NOTIFY.
//! Never: changes the schema.

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::Access;

use super::Done;
use super::call::Call;
use super::relay::{Filter, relay};
use crate::failure::Failure;
use crate::session::Session;

impl Session {
    /// On every node, each by itself: PostgreSQL refuses most of these inside transaction blocks.
    pub(super) async fn on_every_node_alone(
        &mut self,
        refuses_transaction: bool,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if refuses_transaction && self.transaction.is_open() {
            // Node 1 words the refusal.
            return self.run_on_one(NodeId::HOME, Access::Write, text, call).await;
        }
        let nodes = self.catalog.nodes.clone();
        let mut tag = String::new();
        for node in nodes {
            let link = self.enlist(node, Access::Write).await?;
            call.put(link, text);
            link.connection().flush().await?;
            let filter = match node {
                NodeId::HOME => Filter::rows(call, false),
                _ => Filter::discard(call),
            };
            let link = self.links.get_mut(&node).expect("enlisted");
            let answer = relay(&mut self.client, link, filter).await?;
            if node == NodeId::HOME {
                tag = answer.tag;
            }
        }
        Ok(Done::Tag(tag))
    }

    /// LOCK TABLE: node 1 first and alone, so that two lockers never hold a part each.
    pub(super) async fn lock_everywhere(
        &mut self,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if !self.transaction.is_open() {
            return self.run_on_one(NodeId::HOME, Access::Read, text, call).await;
        }
        let answer = self.forward(NodeId::HOME, Access::Read, text, call, false).await?;
        let others: Vec<_> =
            self.catalog.nodes.iter().copied().filter(|node| *node != NodeId::HOME).collect();
        for node in others {
            self.internal_rows(node, Access::Read, text, call).await?;
        }
        Ok(Done::Tag(answer.tag))
    }

    /// LISTEN, UNLISTEN, NOTIFY: node 1 carries all notifications of the cluster.
    pub(super) async fn notification(&mut self, text: &str, call: &Call) -> Result<Done, Failure> {
        let done = self.run_on_one(NodeId::HOME, Access::Write, text, call).await?;
        // PREPARE TRANSACTION refuses them, so node 1 must be the one that need not prepare.
        self.must_anchor(NodeId::HOME)?;
        self.listening = true;
        Ok(done)
    }
}
