//! BEGIN, COMMIT, savepoints: what a transaction's nodes are told, and how it ends.
//!
//! Owns: what comes before and after the commit of a transaction, and what a session forgets when one is over.
//! (Which kind of commit it needs: `transaction::kind_of_commit`.)
//! Never: commits several writers itself (`global_commit` and `node_by_node` do).
//! Start reading at [`Session::commit`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tutti_cluster::catalog::Answer;
use tutti_cluster::catalog::publisher::Hold;
use tutti_cluster::requests::Record;
use tutti_link::connection::{LOOK_THERE, NodeError, UNKNOWN_OUTCOME, unknown_outcome};
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, TransactionControl};
use tutti_txn::placement_change::Ended;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::code_at_commit::{LateCode, bounded};
use super::requests::ASK_LATER;
use crate::client::failure::Failure;
use crate::plans::request::{Call, Done};
use crate::registry::Registry;
use crate::session::Session;
use crate::transaction::ends::OWN_GIDS;
use crate::transaction::named::Portal;
use crate::transaction::placement_change::CHANGED_DEFINITIONS;
use crate::transaction::state::OpenRequest;
use crate::transaction::{Characteristics, Level, Mode, Transaction, TransactionContext};

impl Session {
    /// BEGIN, COMMIT, SAVEPOINT and the like.
    pub(crate) async fn transaction_control(
        &mut self,
        control: &TransactionControl,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        match control {
            TransactionControl::Begin { modes, start } => {
                self.begin_block(&Characteristics::try_from(modes)?).await?;
                let tag = if *start { "START TRANSACTION" } else { "BEGIN" };
                Ok(Done::Tag(tag.to_owned()))
            }
            TransactionControl::Commit { chain } => {
                let open = self.tx.transaction.mode == Mode::Explicit;
                self.warn_outside_transaction(*chain, "COMMIT AND CHAIN")?;
                // It ends the flight's transaction, and with it the portals, even where the gateway has
                // none.
                self.tx.portals.clear();
                let failed = self.tx.transaction.failed;
                let characteristics = self.tx.transaction.characteristics_to_chain(false);
                match failed {
                    true => self.rollback().await,
                    false => self.commit().await?,
                }
                if *chain && open {
                    Box::pin(self.tx.learn_what_is_chained()).await;
                    self.tx.begin_chained(&characteristics);
                }
                Ok(Done::Tag(if failed { "ROLLBACK" } else { "COMMIT" }.to_owned()))
            }
            TransactionControl::Rollback { chain } => {
                let open = self.tx.transaction.mode == Mode::Explicit;
                self.warn_outside_transaction(*chain, "ROLLBACK AND CHAIN")?;
                self.tx.portals.clear();
                let characteristics = self.tx.transaction.characteristics_to_chain(true);
                self.rollback().await;
                if *chain && open {
                    Box::pin(self.tx.learn_what_is_chained()).await;
                    self.tx.begin_chained(&characteristics);
                }
                Ok(Done::Tag("ROLLBACK".to_owned()))
            }
            TransactionControl::Savepoint(name) => self.tx.savepoint(name).await,
            TransactionControl::Release(name) => self.tx.release(name).await,
            TransactionControl::RollbackTo(name) => self.rollback_to(name).await,
            TransactionControl::Prepare(gid) => {
                TransactionContext::may_name_prepared(gid)?;
                self.prepare_transaction(gid, text, call).await
            }
            TransactionControl::EndPrepared(gid) => {
                TransactionContext::may_name_prepared(gid)?;
                // It may have changed the schema.
                self.tx.residue.schema = true;
                if self.tx.permit.is_none() {
                    let admitted = self.tx.registry.pool.admit_short(&self.tx.share).await;
                    self.tx.permit =
                        Some(admitted.map_err(|full| Failure::from(full.to_fields()))?);
                }
                self.executor().run_on_one(NodeId::HOME, Access::Write, text, call).await
            }
        }
    }

    async fn prepare_transaction(
        &mut self,
        gid: &str,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if self.tx.transaction.mode != Mode::Explicit {
            // Node 1 words the warning.
            return self.executor().run_on_one(NodeId::HOME, Access::Write, text, call).await;
        }
        if self.tx.transaction.failed || self.tx.transaction.doomed {
            self.rollback().await;
            return Ok(Done::Tag("ROLLBACK".to_owned()));
        }
        self.tx.enlist(NodeId::HOME, Access::Write).await?;
        match self.prepare_part_at_home(gid, text).await {
            Ok(tag) => {
                self.adopt_settings().await;
                // Its settings stay; whether the rest is committed is decided later.
                self.tx.activity.plan.end();
                self.end_transaction(Ended::Unknown).await;
                Ok(Done::Tag(tag))
            }
            Err(failure) => {
                self.end_failed(&failure).await;
                Err(failure)
            }
        }
    }

    /// Has node 1 prepare the transaction, and the others commit what they have read.
    async fn prepare_part_at_home(&mut self, gid: &str, text: &str) -> Result<String, Failure> {
        self.ready_to_prepare().await?;
        let registry = self.tx.registry.clone();
        let preparing = registry.preparing.clone();
        refuse_too_many_prepared(&registry).await?;
        let answered = self.tx.on_links(vec![(NodeId::HOME, text.to_owned())]).await.remove(0).1;
        drop(preparing);
        self.pass_notices(NodeId::HOME);
        match answered {
            Ok(rows) => Ok(rows.first().map_or_else(String::new, |rows| rows.tag.clone())),
            Err(error) => Err(self.unconfirmed(NodeId::HOME, error, |unknown| {
                let detail = format!("It may be prepared under the name \"{gid}\".");
                let hint = "Look for it in pg_prepared_xacts; what is prepared keeps its locks.";
                unknown.with(b'D', detail).with(b'H', hint)
            })),
        }
    }

    /// Before a client's own PREPARE TRANSACTION: it must leave nothing open but on node 1.
    async fn ready_to_prepare(&mut self) -> Result<(), Failure> {
        let refused = |did: &str| {
            Err(Failure::unsupported(
                format!("a transaction that has {did} cannot be prepared"),
                "Tutti commits by prepared transactions itself; a client's own would span them.",
                "Use COMMIT: it is atomic over all nodes.",
            ))
        };
        if self.tx.transaction.request.is_some() {
            return refused("begun an instance of a request");
        }
        if self.tx.transaction.writers().any(|node| node != NodeId::HOME) {
            return refused("written on other nodes than node 1");
        }
        if self.tx.transaction.own_is_stale {
            Box::pin(self.executor().reload_own_catalog()).await?;
        }
        if self.tx.transaction.catalog_changed && !self.tx.overtakes_nobody() {
            // Its COMMIT PREPARED is anybody's, and ends no statement that was planned before.
            return refused("changed what statements are planned with");
        }
        let used_others = self.tx.transaction.nodes.keys().any(|node| *node != NodeId::HOME);
        if used_others && self.tx.level() == Level::Serializable {
            return refused("read on other nodes than node 1 at SERIALIZABLE");
        }
        self.tx.refuse_to_prepare_held()?;
        self.tx.begin_late_calls().await?;
        if self.tx.transaction.defers_unseen {
            Box::pin(self.executor().run_deferred()).await?;
            self.pass_notices(NodeId::HOME);
        }
        Box::pin(self.executor().check_deferred_references(None)).await?;
        self.tx.may_commit_alone().await?;
        if self.tx.transaction.changed_alone {
            // Kept by what is prepared: who spreads the first table must know of it.
            let sql =
                format!("SELECT pg_catalog.pg_advisory_xact_lock_shared({CHANGED_DEFINITIONS})");
            self.tx.link(NodeId::HOME).await?.query(&sql).await?;
        }
        self.commit_readers(&BTreeSet::from([NodeId::HOME])).await
    }

    /// BEGIN, with the modes that it is given. Inside a transaction PostgreSQL warns, and applies them
    /// as SET TRANSACTION does.
    async fn begin_block(&mut self, given: &Characteristics) -> Result<(), Failure> {
        match self.tx.transaction.mode {
            Mode::None => {
                self.tx.begin_transaction(given);
                return Ok(());
            }
            // It becomes the explicit one, with what it has done so far, if the modes can still be
            // set.
            Mode::Implicit => (),
            Mode::Explicit => {
                let warning = "there is already a transaction in progress";
                self.client.put_notice(&ErrorFields::with_severity("WARNING", "25001", warning));
            }
        }
        let modes = given.to_sql();
        if modes.is_empty() {
            self.tx.open_transaction(Mode::Explicit);
            return Ok(());
        }
        // The client is told of the BEGIN, and not of this.
        self.tx.is_part = true;
        let text = format!("SET TRANSACTION{modes}");
        let set = self.set_transaction_modes(given, &text, &Call::Simple).await;
        self.tx.is_part = false;
        set?;
        self.tx.open_transaction(Mode::Explicit);
        Ok(())
    }

    fn warn_outside_transaction(&mut self, chain: bool, name: &str) -> Result<(), Failure> {
        if self.tx.transaction.mode == Mode::Explicit {
            return Ok(());
        }
        if chain {
            let message = format!("{name} can only be used in transaction blocks");
            return Err(Failure::error("25P01", message));
        }
        let warning = "there is no transaction in progress";
        self.client.put_notice(&ErrorFields::with_severity("WARNING", "25P01", warning));
        Ok(())
    }

    async fn rollback_to(&mut self, name: &str) -> Result<Done, Failure> {
        self.tx.need_block("ROLLBACK TO SAVEPOINT")?;
        let on_nodes = self.tx.need_savepoint(name)?.to_owned();
        let lost = || {
            let message = "a node lost its part of this transaction";
            let hint = "Roll back the whole transaction and retry.";
            ErrorFields::error(sqlstate::CONNECTION_FAILURE, message).with(b'H', hint)
        };
        if self.tx.transaction.doomed {
            return Err(lost().into());
        }
        match self.tx.roll_back_everywhere(&on_nodes).await {
            // A node that failed while joining did not reach the savepoint.
            Err(Failure::Statement(error))
                if error.sqlstate() == sqlstate::INVALID_SAVEPOINT_SPECIFICATION =>
            {
                self.tx.transaction.doomed = true;
                return Err(lost().into());
            }
            told => told?,
        }
        self.pass_reports_on();
        self.tx.transaction.rollback_to(name);
        let steps = self.tx.transaction.step_count();
        self.tx.cursors.retain(|_, cursor| cursor.made.is_none_or(|made| made < steps));
        if let Some(request) = &mut self.tx.transaction.request {
            request.go_back(steps);
        }
        let is_undone = |it: &Portal| matches!(it, Portal::Rows { made, .. } if steps <= *made);
        self.tx.portals.retain(|_, portal| !is_undone(portal));
        self.tx.transaction.failed = false;
        self.tx.transaction.undone = false;
        self.tx.forget_seen_tables().await?;
        self.tx.renew_tickets().await?;
        // What node 1 shows after the savepoint is what the transaction sees.
        if self.tx.transaction.catalog_changed {
            self.executor().reload_own_catalog().await?;
        }
        self.tx.refresh_scope_if_changed().await?;
        Ok(Done::Tag("ROLLBACK".to_owned()))
    }

    /// Commits the transaction, if there is one, on all its nodes.
    ///
    /// Errors: the transaction is aborted and nothing of it remains; or SQLSTATE 08007: it is not
    /// known yet whether it committed, and the hint gives its gid.
    pub(crate) async fn commit(&mut self) -> Result<(), Failure> {
        if self.tx.transaction.doomed {
            self.rollback().await;
            let message = "a node lost its part of this transaction, which was rolled back";
            return Err(ErrorFields::error(sqlstate::CONNECTION_FAILURE, message)
                .with(b'H', "Nothing was committed; retrying is safe.")
                .into());
        }
        let (writers, late, _hold) = match self.ready_to_commit().await {
            Ok(ready) => ready,
            Err(failure) => {
                self.rollback().await;
                return Err(failure);
            }
        };
        let request = self.tx.transaction.request.as_ref().map(OpenRequest::record);
        let committed = match writers[..] {
            _ if let Some(record) = request => {
                self.commit_request(record, &writers, late.clone()).await
            }
            [] => self.commit_readers(&BTreeSet::new()).await,
            [writer] => self.commit_one_writer(writer, late.as_ref(), None).await,
            _ if self.tx.commits_node_by_node() => self.commit_node_by_node(&writers).await,
            _ => {
                let decided = self.tx.form_of_commit(&writers);
                self.commit_global(&writers, late.clone(), decided, None).await
            }
        };
        let committed = match late {
            Some(late) => committed.map_err(|failure| late.reword(failure)),
            None => committed,
        };
        match committed {
            Ok(()) => {
                self.adopt_settings().await;
                let undone = std::mem::take(&mut self.tx.transaction.has_undone);
                self.tx.set_anew(undone).await;
                self.end_transaction(Ended::Committed).await;
                Ok(())
            }
            Err(failure) => {
                self.end_failed(&failure).await;
                Err(failure)
            }
        }
    }

    /// All that must succeed before any node is told to commit. Returns who votes, code that may run meanwhile,
    /// and the hold where rows were moved (where the schema changes, statements are held until that is
    /// published).
    async fn ready_to_commit(
        &mut self,
    ) -> Result<(Vec<NodeId>, Option<Arc<LateCode>>, Option<Hold>), Failure> {
        self.tx.activity.plan.end();
        self.tx.begin_late_calls().await?;
        if self.tx.transaction.defers_unseen {
            Box::pin(self.executor().run_deferred()).await?;
            self.pass_notices(NodeId::HOME);
        }
        if self.tx.transaction.own_is_stale {
            Box::pin(self.executor().reload_own_catalog()).await?;
        }
        self.tx.refuse_own_late_calls().await?;
        Box::pin(self.executor().check_deferred_references(None)).await?;
        let writers: Vec<_> = self.tx.voters().into_iter().collect();
        let late = self.run_code_early(&writers).await?;
        self.tx.hold_cursors().await?;
        self.tx.may_commit_alone().await?;
        self.tx.begin_change().await?;
        let hold = self.tx.begin_to_move().await?;
        Ok((writers, late, hold))
    }

    /// What a COMMIT or PREPARE TRANSACTION that failed on `node` tells: the node's refusal, or that it is not
    /// known whether it was carried out, to which `look` adds where to find out.
    fn unconfirmed(
        &self,
        node: NodeId,
        error: NodeError,
        look: impl FnOnce(ErrorFields) -> ErrorFields,
    ) -> Failure {
        match error {
            // A FATAL is no answer: it is followed by the end of the connection.
            NodeError::Refused(_) if self.tx.links.contains_key(&node) => error.into(),
            lost => look(unknown_outcome(lost)).into(),
        }
    }

    /// Ends a transaction that some of its nodes may have committed or prepared, others not.
    async fn end_failed(&mut self, failure: &Failure) {
        let unknown = matches!(failure,
            Failure::Statement(error) if error.sqlstate() == UNKNOWN_OUTCOME);
        let nodes: Vec<_> = self.tx.transaction.nodes.keys().copied().collect();
        self.tx.roll_back_nodes().await;
        self.tx.set_anew(nodes).await;
        self.end_transaction(if unknown { Ended::Unknown } else { Ended::Aborted }).await;
    }

    /// Plain COMMIT where nothing was written, before it is decided whether the transaction commits: a
    /// node that may refuse it is heeded.
    pub(super) async fn commit_readers_first(
        &mut self,
        writers: &BTreeSet<NodeId>,
    ) -> Result<(), Failure> {
        match self.tx.takes_votes_of_readers() {
            true => self.commit_readers(writers).await,
            false => Ok(()),
        }
    }

    /// Plain COMMIT where nothing was written.
    pub(super) async fn commit_readers(
        &mut self,
        writers: &BTreeSet<NodeId>,
    ) -> Result<(), Failure> {
        let readers: Vec<_> = self
            .tx
            .transaction
            .nodes
            .keys()
            .filter(|node| !writers.contains(node))
            .map(|node| (*node, "COMMIT".to_owned()))
            .collect();
        let mut all = Ok(());
        for (node, answered) in self.tx.on_links(readers).await {
            self.pass_notices(node);
            if let Err(error) = answered {
                self.tx.transaction.has_undone.insert(node);
                all = all.and(Err(error));
            }
        }
        Ok(all?)
    }

    /// Notices of deferred triggers that run at the end.
    pub(super) fn pass_notices(&mut self, node: NodeId) {
        let Some(link) = self.tx.links.get_mut(&node) else { return };
        for notice in link.connection().take_notices() {
            self.client.out().extend_from_slice(notice.as_bytes());
        }
    }

    /// Plain COMMIT where all was written; in front of it, what is kept of a request that this node keeps.
    pub(super) async fn commit_one_writer(
        &mut self,
        writer: NodeId,
        late: Option<&Arc<LateCode>>,
        request: Option<&Record>,
    ) -> Result<(), Failure> {
        // A session that sees this commit must see what its client may have seen elsewhere.
        self.tx.wait_for_visible(writer).await?;
        let only_writer = BTreeSet::from([writer]);
        self.commit_readers_first(&only_writer).await?;
        if let Some(record) = request {
            self.keep_request(writer, record).await?;
        }
        self.tx.pass_rooms().await?;
        let commit = self.tx.on_links(vec![(writer, "COMMIT".to_owned())]);
        let answered = bounded(late, writer, commit).await.remove(0).1;
        self.pass_notices(writer);
        match answered {
            Ok(rows) if rows.first().is_some_and(|rows| rows.tag == "ROLLBACK") => {
                return Err(Failure::error("40000", "the transaction was rolled back by its node"));
            }
            Ok(_) => (),
            Err(error) => {
                let hint = if request.is_some() { ASK_LATER } else { LOOK_THERE };
                let look = |unknown: ErrorFields| unknown.with(b'H', hint);
                return Err(self.unconfirmed(writer, error, look));
            }
        }
        if !self.tx.takes_votes_of_readers() {
            // What was read elsewhere cannot undo what was committed.
            let _ = self.commit_readers(&only_writer).await;
        }
        Ok(())
    }

    /// Rolls the transaction back on every node, if there is one, and forgets it.
    pub(crate) async fn rollback(&mut self) {
        self.tx.roll_back_nodes().await;
        self.end_transaction(Ended::Aborted).await;
    }

    /// The session forgets its transaction. Its outcome is decided, so no failure here is reported:
    /// what is missing is made up for before the next statement, or ends the session.
    async fn end_transaction(&mut self, how: Ended) {
        let committed = how == Ended::Committed;
        let ended = std::mem::take(&mut self.tx.transaction);
        self.tx.activity.note_nodes(0);
        self.tx.forget_refreshed();
        let may_change_scope = ended.may_change_scope();
        let Transaction {
            mode,
            catalog_changed,
            own_changes,
            change,
            scope_changed,
            changed_defaults,
            changed_paths,
            listens,
            ..
        } = ended;
        if committed && listens {
            // It is committed, and a failure here must not suggest otherwise.
            self.listen_everywhere_or_end().await;
        }
        if changed_paths && how != Ended::Aborted {
            self.tx.registry.path_changes.fetch_add(1, Ordering::SeqCst);
        }
        if committed && changed_defaults {
            self.tx.registry.pool.renew();
        }
        if mode != Mode::None {
            self.tx.portals.clear();
            self.pipeline.forget_portals();
        }
        self.pass_reports_on();
        self.tx.conclude_cursors(committed);
        if catalog_changed {
            self.tx.use_own_oids(None);
            self.tx.publish_change(how, own_changes, change).await;
        }
        if (catalog_changed && may_change_scope) || (scope_changed && !committed) {
            self.tx.refresh_scope_if_possible().await;
        } else if scope_changed {
            // What was set LOCAL ended with it.
            self.tx.scope_state.is_stale = true;
        }
    }

    /// Settings that ended with the transaction: the client is told their values now.
    pub(super) fn pass_reports_on(&mut self) {
        let Some(home) = self.tx.links.get_mut(&NodeId::HOME) else { return };
        let reports = home.connection().take_reports();
        for (name, value) in reports {
            self.client.report(name, value);
        }
    }
}

/// Transactions that write on several nodes are prepared too, and find no slot where clients' own hold all of
/// them. The caller's counts as one that is being prepared.
///
/// Errors: 53200, as from a server that has no free slot; node 1 cannot be asked.
async fn refuse_too_many_prepared(registry: &Registry) -> Result<(), Failure> {
    let sql = format!(
        "SELECT pg_catalog.count(*), pg_catalog.current_setting('max_prepared_transactions')
FROM pg_catalog.pg_prepared_xacts WHERE NOT pg_catalog.starts_with(gid, '{OWN_GIDS}')"
    );
    // Read before the list: one that ends between the two is in the list.
    let at_work = Arc::strong_count(&registry.preparing) as u64 - 1;
    let mut home = registry.cluster.connections.checkout(NodeId::HOME).await?;
    let rows = home.rows(&sql).await?;
    registry.cluster.connections.release(home);
    let answer = Answer { node: NodeId::HOME, what: "what is prepared", rows: &rows };
    let (prepared, most): (u64, u64) = (answer.number(0, 0)?, answer.number(0, 1)?);
    if prepared + at_work <= most / 2 || most == 0 {
        return Ok(());
    }
    let message = "maximum number of clients' prepared transactions reached";
    let detail = format!(
        "Half of node 1's max_prepared_transactions ({most}) is kept for transactions that write on several nodes."
    );
    Err(ErrorFields::error("53200", message)
        .with(b'D', detail)
        .with(b'H', "Commit or roll back some of those that pg_prepared_xacts shows, or increase max_prepared_transactions.")
        .into())
}
