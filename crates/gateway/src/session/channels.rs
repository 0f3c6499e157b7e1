//! LISTEN, UNLISTEN and NOTIFY: a session hears what is said on its channels on every node.
//!
//! Owns: on which nodes the session listens. Never: passes notifications on, or knows the channels' names: node 1
//! does.
//! Start reading at [`Session::notification`].

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::Access;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::Session;
use crate::client::failure::Failure;
use crate::plans::request::{Call, Done};
use crate::transaction::Mode;

impl Session {
    /// LISTEN, UNLISTEN, NOTIFY. A client's own notifications are node 1's.
    pub(super) async fn notification(
        &mut self,
        listens: bool,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let done = self.executor().run_on_one(NodeId::HOME, Access::Write, text, call).await?;
        // PREPARE TRANSACTION refuses them, so node 1 must be the node that need not prepare.
        self.tx.must_anchor(NodeId::HOME)?;
        self.tx.listening = true;
        match self.tx.transaction.is_open() {
            // It listens once it has committed.
            true => self.tx.transaction.listens |= listens,
            false if listens => self.listen_everywhere().await?,
            false => (),
        }
        Ok(done)
    }

    /// Makes the other nodes listen to what node 1 listens to: a trigger notifies on the node of its
    /// row. No notification comes twice, for PREPARE TRANSACTION refuses them: a transaction can notify
    /// on one node only.
    async fn listen_everywhere(&mut self) -> Result<(), Failure> {
        const CHANNELS: &str = "SELECT pg_catalog.string_agg('LISTEN ' \
            OPERATOR(pg_catalog.||) pg_catalog.quote_ident(channel), '; ' ORDER BY channel) \
            FROM pg_catalog.pg_listening_channels() AS channels (channel)";
        self.tx.hears_node_1_alone = true;
        if self.tx.catalog.is_solo() {
            return Ok(());
        }
        let rows = self.tx.link(NodeId::HOME).await?.ask(CHANNELS).await?;
        let listen = rows.first().and_then(|rows| rows.text(0, 0)).unwrap_or_default().to_owned();
        for node in self.tx.catalog.nodes.clone() {
            let is_silent = listen.is_empty() && !self.tx.links.contains_key(&node);
            if node != NodeId::HOME && !is_silent {
                // One transaction: channels that it keeps listening to are not interrupted.
                let sql = format!("UNLISTEN *; {listen}");
                self.tx.link(node).await?.ask(&sql).await?;
            }
        }
        self.tx.hears_node_1_alone = false;
        Ok(())
    }

    /// Once other nodes have tables, their triggers send notifications there.
    pub(super) async fn listen_further(&mut self) {
        self.tx.refresh_catalog();
        if !self.tx.catalog.is_solo() && self.tx.transaction.mode == Mode::None && self.is_at_rest()
        {
            Box::pin(self.listen_everywhere_or_end()).await;
        }
    }

    /// A client that cannot be sent its notifications must not be left waiting for them.
    pub(super) async fn listen_everywhere_or_end(&mut self) {
        // Another connection to node 1 would know of no channel.
        let has_home = self.tx.links.get(&NodeId::HOME).is_some_and(|home| !home.is_broken());
        let listens = match has_home {
            true => self.listen_everywhere().await,
            false => Err(Failure::error(
                sqlstate::CONNECTION_FAILURE,
                "connection to node n1 lost after the commit",
            )),
        };
        if let Err(failure) = listens {
            tracing::info!(?failure, "a client listens, and cannot on every node");
            let message = "connection to a node lost, and with it the session's channels";
            self.tx.ended_by.get_or_insert(ErrorFields::fatal(sqlstate::ADMIN_SHUTDOWN, message));
        }
    }
}
