//! Schema changes: the same statement on all nodes, in one global transaction.
//!
//! Owns: the order of nodes, registering placements, checking the rules of distribution, and the
//! session's own catalog until the transaction ends.
//! Never: half-done DDL: whatever fails here fails the transaction.

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, CreatedTable, Ddl, Gather};

use super::Done;
use super::call::Call;
use crate::catalog::{self, NodeOids, OidMaps};
use crate::error::GatewayError;
use crate::failure::Failure;
use crate::session::{Session, changes_what_sessions_begin_with};

impl Session {
    /// DDL takes no parameters, so it runs by the simple protocol whatever the client used.
    pub(super) async fn ddl(&mut self, ddl: &Ddl, text: &str) -> Result<Done, Failure> {
        self.need_transaction();
        // A refusal can still take the place of the answer, so it is held back.
        let answer = self.forward(NodeId::HOME, Access::Write, text, &Call::Simple, false).await?;
        let nodes = self.catalog.nodes.clone();
        let others: Vec<_> = nodes.into_iter().filter(|node| *node != NodeId::HOME).collect();
        let alters =
            text.trim_start().get(..5).is_some_and(|word| word.eq_ignore_ascii_case("alter"));
        self.transaction.changed_defaults |= changes_what_sessions_begin_with(text);
        for node in &others {
            if ddl.touches_sequences && alters {
                // The copy stands at the old bounds' end, which new bounds may leave out.
                self.enlist(*node, Access::Write).await?.query("SELECT 1").await?;
                catalog::rearm_sequences(self.link(*node).await?.connection()).await?;
            }
            self.internal_rows(*node, Access::Write, text, &Call::Simple).await?;
        }
        self.after_ddl(ddl, &others).await?;
        Ok(Done::Tag(answer.tag))
    }

    /// Temporary objects: node 1 has them, and from now on must be the anchor of this transaction,
    /// for it can be neither prepared nor told apart by names.
    pub(super) async fn temporary_ddl(
        &mut self,
        gather: Option<&Gather>,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let done = match gather {
            Some(gather) => self.gather(gather, call).await?,
            None => self.run_on_one(NodeId::HOME, Access::Write, text, call).await?,
        };
        self.must_anchor(NodeId::HOME)?;
        self.transaction.scope_changed |= self.transaction.is_open();
        self.refresh_scope().await?;
        Ok(done)
    }

    /// Registers what was created, forgets what was dropped, checks the rules, and gives this
    /// session the catalog that results.
    pub(super) async fn after_ddl(&mut self, ddl: &Ddl, others: &[NodeId]) -> Result<(), Failure> {
        if let Some(created) = &ddl.creates {
            self.register_created(created).await?;
        }
        for node in [&[NodeId::HOME], others].concat() {
            let connection = self.link(node).await?.connection();
            if ddl.may_drop {
                catalog::unregister_dropped(connection).await?;
            }
            if ddl.touches_sequences && node != NodeId::HOME {
                catalog::disarm_sequences(connection).await?;
            }
            catalog::note_change(connection).await?;
        }
        self.verify_schema().await?;
        self.reload_own_catalog().await?;
        self.refresh_scope().await
    }

    async fn register_created(&mut self, created: &CreatedTable) -> Result<(), Failure> {
        let default = self.shared.config.default_distribution;
        let catalog = self.catalog.clone();
        let home = self.link(NodeId::HOME).await?.connection();
        let Some(registration) =
            catalog::choose_placement(home, default, created, &catalog).await?
        else {
            return Ok(());
        };
        let shared = self.shared.clone();
        for node in catalog.nodes.clone() {
            let connection = self.link(node).await?.connection();
            catalog::register(connection, &registration, &shared.seals).await?;
        }
        Ok(())
    }

    /// The rules of distribution, checked on node 1 inside the transaction.
    pub(super) async fn verify_schema(&mut self) -> Result<(), Failure> {
        Ok(catalog::verify(self.link(NodeId::HOME).await?.connection()).await?)
    }

    /// Reads the catalog as this transaction sees it.
    pub(crate) async fn reload_own_catalog(&mut self) -> Result<(), Failure> {
        let previous = self.catalog.clone();
        let connection = self.link(NodeId::HOME).await?.connection();
        let catalog = catalog::reload(connection, &previous).await?;
        self.catalog = std::sync::Arc::new(catalog);
        self.transaction.catalog_changed = true;
        Ok(())
    }

    /// A transaction that changed the schema has ended: everybody gets the result.
    ///
    /// It is read over connections of the gateway's own. What the client's connection says is good
    /// enough for the client alone: its operators and temporary tables may go by the names of
    /// PostgreSQL's.
    pub(crate) async fn publish_catalog(&mut self, committed: bool) -> Result<(), Failure> {
        if committed {
            let shared = self.shared.clone();
            let mut home = shared.connections.lend(&shared.config, NodeId::HOME).await?;
            let catalog = catalog::reload(&mut home, &self.catalog).await?;
            let at_home = NodeOids::load(&mut home).await?;
            shared.connections.give_back(home);
            let mut others = Vec::new();
            for node in catalog.nodes.iter().copied().filter(|node| *node != NodeId::HOME) {
                let mut connection = shared.connections.lend(&shared.config, node).await?;
                others.push((node, NodeOids::load(&mut connection).await?));
                shared.connections.give_back(connection);
            }
            shared.publish(catalog, OidMaps::compare(&at_home, &others));
        }
        self.catalog = self.shared.catalog();
        Ok(())
    }
}

impl From<GatewayError> for Failure {
    fn from(error: GatewayError) -> Self {
        error.to_fields().into()
    }
}
