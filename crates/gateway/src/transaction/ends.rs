//! How a transaction begins, and those parts of its end that need no client.
//!
//! Owns: opening a transaction, which nodes vote, savepoints, and publishing what it has changed.
//! Never: writes to a client; chooses when a transaction ends (the session does).

use std::collections::BTreeSet;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tutti_cluster::catalog::check;
use tutti_link::connection::NodeError;
use tutti_link::pool::RESET;
use tutti_link::{Link, Rows};
use tutti_sql::catalog::NodeId;
use tutti_sql::statement::Statement;
use tutti_txn::placement_change::PUBLISH_PATIENCE;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use crate::client::failure::Failure;
use crate::plans::request::Done;
use crate::transaction::beside::Beside;
use crate::transaction::named::Portal;
use crate::transaction::{Characteristics, Level, Mode, TransactionContext};

/// How identifiers of the gateway's own prepared transactions begin, of any cluster.
pub(crate) const OWN_GIDS: &str = "tutti_";

/// What a node answered.
pub(crate) type Answered = Result<Vec<Rows>, NodeError>;

/// Whether a query is run again that a cancel request has hit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Insists {
    No,
    UntilNotCancelled,
}

impl Insists {
    async fn query(self, link: &mut Link, sql: &str) -> Answered {
        match self {
            Self::No => link.query(sql).await,
            Self::UntilNotCancelled => link.ask(sql).await,
        }
    }
}

/// Which of several errors the client sees does not depend on which came first.
fn first_failure(mut answered: Vec<(NodeId, Answered)>) -> Result<(), Failure> {
    answered.sort_by_key(|(node, _)| *node);
    for (_, answered) in answered {
        answered?;
    }
    Ok(())
}

impl TransactionContext {
    /// Clients' own prepared transactions are node 1's, and Tutti's own are out of their reach.
    pub(crate) fn may_name_prepared(gid: &str) -> Result<(), Failure> {
        if !gid.starts_with(OWN_GIDS) {
            return Ok(());
        }
        Err(Failure::unsupported(
            format!("a prepared transaction cannot be named \"{gid}\""),
            "Tutti commits by prepared transactions itself, whose names begin so.",
            "Choose another name.",
        ))
    }

    /// From now on there is a transaction, with the session's default modes.
    pub(crate) fn open_transaction(&mut self, mode: Mode) {
        if self.transaction.mode == Mode::None {
            self.transaction.characteristics = self.settings.characteristics.clone();
            self.transaction.began_with = self.settings.characteristics.clone();
            self.transaction.counts_idle_time = self.settings.idle.in_transaction.is_some();
        }
        self.transaction.mode = mode;
    }

    pub(crate) fn begin_transaction(&mut self, given: &Characteristics) {
        self.open_transaction(Mode::Explicit);
        self.transaction.characteristics.update(given);
    }

    /// The transaction that AND CHAIN begins.
    pub(crate) fn begin_chained(&mut self, handed_on: &Characteristics) {
        self.begin_transaction(handed_on);
        self.transaction.began_with = self.transaction.characteristics.clone();
    }

    /// A flight, or a statement in one, is no transaction block, though the gateway runs it in one.
    ///
    /// Errors: 25P01 for what works in blocks only.
    pub(crate) fn refuse_outside_block(&self, statement: &Statement) -> Result<(), Failure> {
        match (self.transaction.mode, statement.needs_block()) {
            (Mode::Implicit, Some(what)) => self.need_block(what),
            _ => Ok(()),
        }
    }

    pub(crate) fn need_block(&self, what: &str) -> Result<(), Failure> {
        if self.transaction.mode == Mode::Explicit {
            return Ok(());
        }
        Err(Failure::error("25P01", format!("{what} can only be used in transaction blocks")))
    }

    pub(crate) async fn savepoint(&mut self, name: &str) -> Result<Done, Failure> {
        self.need_block("SAVEPOINT")?;
        self.import_on_all().await?;
        let on_nodes = self.transaction.name_savepoint();
        self.on_all_participants(&format!("SAVEPOINT {on_nodes}")).await?;
        self.transaction.push_savepoint(name, on_nodes);
        Ok(Done::Tag("SAVEPOINT".to_owned()))
    }

    pub(crate) async fn release(&mut self, name: &str) -> Result<Done, Failure> {
        self.need_block("RELEASE SAVEPOINT")?;
        let sql = format!("RELEASE SAVEPOINT {}", self.need_savepoint(name)?);
        // Not awaited: to a node that is cancelled in it the next statement says so, and until then no other has been
        // told anything that this one could not do as well.
        let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
        self.tell_silently(nodes, &sql).await?;
        self.transaction.release(name);
        // As of what its savepoint stood after.
        let steps = self.transaction.step_count();
        let made = self.cursors.values_mut().filter_map(|cursor| cursor.made.as_mut());
        made.for_each(|made| *made = (*made).min(steps));
        if let Some(request) = &mut self.transaction.request {
            request.release(steps);
        }
        for portal in self.portals.values_mut() {
            if let Portal::Rows { made, .. } = portal {
                *made = (*made).min(steps);
            }
        }
        Ok(Done::Tag("RELEASE".to_owned()))
    }

    /// What nodes call the savepoint.
    ///
    /// Errors: 3B001 if there is none of that name.
    pub(crate) fn need_savepoint(&self, name: &str) -> Result<&str, Failure> {
        self.transaction.savepoint_on_nodes(name).ok_or_else(|| {
            Failure::error(
                sqlstate::INVALID_SAVEPOINT_SPECIFICATION,
                format!("savepoint \"{name}\" does not exist"),
            )
        })
    }

    /// Goes back to this savepoint, as nodes call it, on every node of the transaction: on each repeatedly until no cancel
    /// request hits it, for a node that has gone back cannot go forward again.
    pub(crate) async fn roll_back_everywhere(&mut self, on_nodes: &str) -> Result<(), Failure> {
        let sql = format!("ROLLBACK TO SAVEPOINT {on_nodes}");
        let sent = self.transaction.nodes.keys().map(|node| (*node, sql.clone())).collect();
        first_failure(self.told_on_links(sent, Insists::UntilNotCancelled).await)
    }

    /// Runs `sql` on every node of the transaction. One that fails there fails the transaction.
    pub(crate) async fn on_all_participants(&mut self, sql: &str) -> Result<(), Failure> {
        let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
        self.on_each_link(&nodes, sql).await
    }

    /// Runs `sql` on several links concurrently. Which of several errors the client sees does not
    /// depend on which came first.
    pub(crate) async fn on_each_link(
        &mut self,
        nodes: &[NodeId],
        sql: &str,
    ) -> Result<(), Failure> {
        let sent = nodes.iter().map(|node| (*node, sql.to_owned())).collect();
        first_failure(self.on_links(sent).await)
    }

    /// Sends one query to several links concurrently, and waits for all answers. A link that is
    /// missing has lost its connection.
    pub(crate) async fn on_links(
        &mut self,
        queries: Vec<(NodeId, String)>,
    ) -> Vec<(NodeId, Answered)> {
        self.told_on_links(queries, Insists::No).await
    }

    async fn told_on_links(
        &mut self,
        queries: Vec<(NodeId, String)>,
        insists: Insists,
    ) -> Vec<(NodeId, Answered)> {
        if let [(node, sql)] = &queries[..] {
            return vec![(*node, self.on_link(*node, sql, insists).await)];
        }
        let mut answers = Vec::new();
        let mut running = JoinSet::new();
        for (node, sql) in queries {
            match self.links.remove(&node) {
                Some(mut link) => {
                    running.spawn(async move {
                        let answered = insists.query(&mut link, &sql).await;
                        (node, link, answered)
                    });
                }
                None => answers.push((node, Err(NodeError::not_connected(node)))),
            }
        }
        while let Some(finished) = running.join_next().await {
            let (node, mut link, answered) = finished.expect("a query does not panic");
            // One that may not be used any more still has to report why.
            if !link.connection().is_broken() {
                self.links.insert(node, link);
            }
            answers.push((node, answered));
        }
        answers
    }

    /// The same for one of them, for which no task is spawned. If dropped half-way, it drops the connection,
    /// as there: its state would be unknown.
    async fn on_link(&mut self, node: NodeId, sql: &str, insists: Insists) -> Answered {
        let Some(mut link) = self.links.remove(&node) else {
            return Err(NodeError::not_connected(node));
        };
        let answered = insists.query(&mut link, sql).await;
        if !link.connection().is_broken() {
            self.links.insert(node, link);
        }
        answered
    }

    /// The nodes that vote on the commit: those that may have written; at SERIALIZABLE, if it
    /// has used several nodes, all of them, for what was only read may have been overwritten.
    pub(crate) fn voters(&self) -> BTreeSet<NodeId> {
        if self.transaction.request.is_some() {
            // What it has led to is committed with all that it has done, also by code that a query calls.
            return self.transaction.nodes.keys().copied().collect();
        }
        let mut voters: BTreeSet<_> = self.transaction.writers().collect();
        if self.takes_votes_of_readers() && 1 < self.transaction.used.len() {
            voters.extend(&self.transaction.used);
        }
        voters
    }

    /// Whether what a node has only read matters until the end.
    pub(crate) fn takes_votes_of_readers(&self) -> bool {
        self.level() == Level::Serializable && !self.transaction.has_safe_snapshot
    }

    /// Brings connections to what the session has set. What a transaction sets stays on a node that has
    /// prepared it, for that ends it like a commit, and goes on one that could not commit; whatever the
    /// outcome elsewhere.
    pub(crate) async fn set_anew(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        let state = self.settings.state().clone();
        let steps = [RESET, state.sql()];
        let sql = steps.into_iter().filter(|sql| !sql.is_empty()).collect::<Vec<_>>().join("; ");
        for node in nodes {
            let Some(link) = self.links.get_mut(&node) else { continue };
            match link.ask(&sql).await {
                Ok(_) => link.state = state.clone(),
                Err(error) => {
                    tracing::debug!(%node, %error, "a connection is given up behind a commit");
                    self.links.remove(&node);
                    self.end_if_bound(node);
                }
            }
        }
    }

    pub(crate) async fn roll_back_nodes(&mut self) {
        self.activity.plan.end();
        self.roll_back_parts().await;
    }

    /// The same while its statement is still the session's.
    pub(super) async fn roll_back_parts(&mut self) {
        let nodes: Vec<_> = self
            .transaction
            .nodes
            .keys()
            .filter(|node| self.links.contains_key(node))
            .map(|node| (*node, "ROLLBACK".to_owned()))
            .collect();
        // A node that cannot be reached has rolled back by itself, or does so when it sees the
        // connection gone: its link is dropped.
        for (node, answered) in self.on_links(nodes).await {
            let Some(link) = self.links.get_mut(&node) else { continue };
            if answered.is_err() && !link.mend().await {
                self.links.remove(&node);
            }
        }
    }

    /// Before the transaction commits: cursors WITH HOLD outlive it.
    ///
    /// Errors: the transaction must not commit.
    pub(crate) async fn hold_cursors(&mut self) -> Result<(), Failure> {
        for cursor in self.cursors.values_mut() {
            if let Some(beside) = cursor.beside.as_mut().filter(|_| cursor.holds) {
                beside.hold().await?;
            }
        }
        // One that has failed ends with its transaction.
        let has_failed = |beside: &Beside| beside.link.is_none();
        self.cursors.retain(|_, cursor| !cursor.beside.as_ref().is_some_and(has_failed));
        Ok(())
    }

    /// Errors: 0A000 where the transaction has declared a cursor WITH HOLD, as PostgreSQL words it.
    pub(crate) fn refuse_to_prepare_held(&self) -> Result<(), Failure> {
        let mut declared = self.cursors.values().filter(|cursor| cursor.made.is_some());
        match declared.any(|cursor| cursor.holds && cursor.beside.is_some()) {
            true => Err(Failure::error(
                "0A000",
                "cannot PREPARE a transaction that has created a cursor WITH HOLD",
            )),
            false => Ok(()),
        }
    }

    /// Cursors declared in the transaction or flight that has ended are now permanent, or undone.
    pub(crate) fn conclude_cursors(&mut self, committed: bool) {
        self.cursors.retain(|_, cursor| cursor.holds && (committed || cursor.made.is_none()));
        self.cursors.values_mut().for_each(|cursor| cursor.made = None);
    }

    /// The session has changed the schema by statements of which it is not known what they change.
    pub(crate) async fn publish_unseen(&mut self) {
        let publisher = self.registry.cluster.publisher.clone();
        if std::mem::take(&mut self.renamed) {
            publisher.note_renamed();
        }
        let change = publisher.need_changed();
        if self.registry.cluster.config.switches.check_catalog {
            publisher.wait_for(change, Instant::now() + PUBLISH_PATIENCE).await;
            self.check_catalog().await;
        }
    }

    /// For tests: what is published must be what there is.
    pub(crate) async fn check_catalog(&mut self) {
        let cluster = self.registry.cluster.clone();
        if !cluster.config.switches.check_catalog || cluster.catalog().is_solo() {
            return;
        }
        if let Some(difference) = check::difference(&cluster.publisher, &cluster.connections).await
        {
            tracing::error!(%difference, "the published catalog is not what there is");
            let message = format!("the published catalog is not what there is: {difference}");
            self.ended_by.get_or_insert(ErrorFields::fatal("XX000", message));
        }
    }

    pub(crate) async fn refresh_scope_if_changed(&mut self) -> Result<(), Failure> {
        if self.transaction.scope_changed
            || (self.transaction.catalog_changed && self.transaction.may_change_scope())
        {
            self.refresh_scope().await?;
        }
        Ok(())
    }

    /// `node` is about to do, or has done, what it cannot prepare: if the transaction is committed on
    /// several nodes, the decision must be made there.
    ///
    /// Errors: 0A000 when another node must be that already.
    pub(crate) fn must_anchor(&mut self, node: NodeId) -> Result<(), Failure> {
        if !self.transaction.is_open() {
            return Ok(());
        }
        let taken = *self.transaction.must_anchor.get_or_insert(node);
        if taken == node {
            return Ok(());
        }
        Err(Failure::unsupported(
            format!("this cannot be done on node {node} in the same transaction"),
            format!(
                "The transaction has used temporary tables, LISTEN, NOTIFY or a cursor WITH HOLD on \
                 node {taken}; a transaction can be committed with such things on one node only."
            ),
            "Use two transactions.",
        ))
    }
}
