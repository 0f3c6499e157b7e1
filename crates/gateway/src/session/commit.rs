//! BEGIN, COMMIT, savepoints: what a transaction's nodes are told, and how it ends.
//!
//! Owns: which kind of commit a transaction needs, and what a session forgets when one is over.
//! Never: commits several writers itself (`global_commit` does).
//! Start reading at [`Session::commit`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, TransactionControl};
use tutti_sql::statement::Statement;
use tutti_wire::error_fields::ErrorFields;

use super::code_at_commit::{LateCode, bounded};
use super::placement_change::PUBLISH_PATIENCE;
use super::{Characteristics, Level, Mode, Session, Transaction};
use crate::client::failure::Failure;
use crate::executor::{Call, Done};
use crate::registry::Registry;
use tutti_cluster::catalog::publisher::OwnChanges;
use tutti_cluster::catalog::{Answer, check};
use tutti_link::connection::{LOOK_THERE, UNKNOWN_OUTCOME, unknown_outcome};
use tutti_link::connection::{NodeError, Rows};
use tutti_link::pool::RESET;

/// SQLSTATE invalid_savepoint_specification.
const NO_SUCH_SAVEPOINT: &str = "3B001";

/// What became of a transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ended {
    Committed,
    Aborted,
    /// Recovery finds out.
    Unknown,
}

/// How identifiers of the gateway's own prepared transactions begin, of any cluster.
const OWN_GIDS: &str = "tutti_";

/// What a node answered.
pub(crate) type Answered = Result<Vec<Rows>, NodeError>;

impl Session {
    /// BEGIN, COMMIT, SAVEPOINT and their kin.
    pub(crate) async fn transaction_control(
        &mut self,
        control: &TransactionControl,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        match control {
            TransactionControl::Begin { modes, start } => {
                self.begin_block(&Characteristics::from(modes)).await?;
                let tag = if *start { "START TRANSACTION" } else { "BEGIN" };
                Ok(Done::Tag(tag.to_owned()))
            }
            TransactionControl::Commit { chain } => {
                let open = self.transaction.mode == Mode::Explicit;
                self.warn_outside_transaction(*chain, "COMMIT AND CHAIN")?;
                // It ends the flight's transaction, and with it the portals, though there be none of ours.
                self.portals.clear();
                let failed = self.transaction.failed;
                let characteristics = self.transaction.characteristics_to_chain(false);
                let ended = if failed { self.rollback().await } else { self.commit().await };
                ended?;
                if *chain && open {
                    self.begin_chained(&characteristics);
                }
                Ok(Done::Tag(if failed { "ROLLBACK" } else { "COMMIT" }.to_owned()))
            }
            TransactionControl::Rollback { chain } => {
                let open = self.transaction.mode == Mode::Explicit;
                self.warn_outside_transaction(*chain, "ROLLBACK AND CHAIN")?;
                self.portals.clear();
                let characteristics = self.transaction.characteristics_to_chain(true);
                self.rollback().await?;
                if *chain && open {
                    self.begin_chained(&characteristics);
                }
                Ok(Done::Tag("ROLLBACK".to_owned()))
            }
            TransactionControl::Savepoint(name) => self.savepoint(name).await,
            TransactionControl::Release(name) => self.release(name).await,
            TransactionControl::RollbackTo(name) => self.rollback_to(name).await,
            TransactionControl::Prepare(gid) => {
                Self::may_name_prepared(gid)?;
                self.prepare_transaction(gid, text, call).await
            }
            TransactionControl::EndPrepared(gid) => {
                Self::may_name_prepared(gid)?;
                // It may have changed the schema.
                self.leaves.schema = true;
                self.run_on_one(NodeId::HOME, Access::Write, text, call).await
            }
        }
    }

    /// Clients' own prepared transactions are node 1's business, and Tutti's are not theirs.
    fn may_name_prepared(gid: &str) -> Result<(), Failure> {
        if !gid.starts_with(OWN_GIDS) {
            return Ok(());
        }
        Err(Failure::unsupported(
            format!("a prepared transaction cannot be named \"{gid}\""),
            "Tutti commits by prepared transactions itself, whose names begin so.",
            "Choose another name.",
        ))
    }

    async fn prepare_transaction(
        &mut self,
        gid: &str,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if self.transaction.mode != Mode::Explicit {
            // Node 1 words the warning.
            return self.run_on_one(NodeId::HOME, Access::Write, text, call).await;
        }
        if self.transaction.failed || self.transaction.doomed {
            self.rollback().await?;
            return Ok(Done::Tag("ROLLBACK".to_owned()));
        }
        self.enlist(NodeId::HOME, Access::Write).await?;
        if let Err(failure) = self.ready_to_prepare().await {
            self.abandon(Ended::Aborted).await;
            return Err(failure);
        }
        let registry = self.registry.clone();
        let preparing = registry.preparing.clone();
        if let Err(failure) = refuse_too_many_prepared(&registry).await {
            self.abandon(Ended::Aborted).await;
            return Err(failure);
        }
        let answered = self.on_links(vec![(NodeId::HOME, text.to_owned())]).await.remove(0).1;
        drop(preparing);
        self.pass_notices(NodeId::HOME);
        match answered {
            Ok(rows) => {
                let tag = rows.first().map_or_else(String::new, |rows| rows.tag.clone());
                self.adopt_settings().await;
                // Its settings stay; whether the rest is committed is decided later.
                self.activity.end_plan();
                self.end_transaction(Ended::Unknown).await;
                Ok(Done::Tag(tag))
            }
            Err(error @ NodeError::Refused(_)) if self.links.contains_key(&NodeId::HOME) => {
                self.abandon(Ended::Aborted).await;
                Err(error.into())
            }
            Err(error) => {
                let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
                self.roll_back_nodes().await;
                self.set_anew(nodes).await;
                self.end_transaction(Ended::Unknown).await;
                let detail = format!("It may be prepared under the name \"{gid}\".");
                let hint = "Look for it in pg_prepared_xacts; what is prepared keeps its locks.";
                Err(unknown_outcome(error).with(b'D', detail).with(b'H', hint).into())
            }
        }
    }

    /// Before a client's own PREPARE TRANSACTION: what it leaves open must be node 1's alone.
    async fn ready_to_prepare(&mut self) -> Result<(), Failure> {
        let refused = |did: &str| {
            Err(Failure::unsupported(
                format!("a transaction that has {did} cannot be prepared"),
                "Tutti commits by prepared transactions itself; a client's own would span them.",
                "Use COMMIT: it is atomic over all nodes.",
            ))
        };
        if self.transaction.writers().any(|node| node != NodeId::HOME) {
            return refused("written on other nodes than node 1");
        }
        let used_others = self.transaction.nodes.keys().any(|node| *node != NodeId::HOME);
        if used_others && self.level() == Level::Serializable {
            return refused("read on other nodes than node 1 at SERIALIZABLE");
        }
        if self.transaction.defers_unseen {
            Box::pin(self.run_deferred()).await?;
            self.pass_notices(NodeId::HOME);
        }
        self.commit_readers(&BTreeSet::from([NodeId::HOME])).await
    }

    /// From now on there is a transaction, of the kind that the session's defaults say.
    pub(crate) fn open_transaction(&mut self, mode: Mode) {
        if self.transaction.mode == Mode::None {
            self.transaction.characteristics = self.settings.characteristics.clone();
            self.transaction.began_with = self.settings.characteristics.clone();
            self.transaction.counts_idle_time = self.settings.idle.in_transaction.is_some();
        }
        self.transaction.mode = mode;
    }

    /// BEGIN, with the modes that it is given. Inside a transaction PostgreSQL warns, and obeys them as
    /// it obeys SET TRANSACTION.
    async fn begin_block(&mut self, given: &Characteristics) -> Result<(), Failure> {
        match self.transaction.mode {
            Mode::None => {
                self.begin_transaction(given);
                return Ok(());
            }
            // It becomes the explicit one, with what it has done so far, if the modes can be had.
            Mode::Implicit => (),
            Mode::Explicit => {
                let warning = "there is already a transaction in progress";
                self.client.put_notice(&ErrorFields::with_severity("WARNING", "25001", warning));
            }
        }
        let modes = given.to_sql();
        if modes.is_empty() {
            self.open_transaction(Mode::Explicit);
            return Ok(());
        }
        // The client hears of the BEGIN, and not of this.
        self.is_part = true;
        let text = format!("SET TRANSACTION{modes}");
        let set = self.set_transaction_modes(given, &text, &Call::Simple).await;
        self.is_part = false;
        set?;
        self.open_transaction(Mode::Explicit);
        Ok(())
    }

    fn begin_transaction(&mut self, given: &Characteristics) {
        self.open_transaction(Mode::Explicit);
        self.transaction.characteristics.update(given);
    }

    /// The transaction that AND CHAIN begins.
    fn begin_chained(&mut self, handed_on: &Characteristics) {
        self.begin_transaction(handed_on);
        self.transaction.began_with = self.transaction.characteristics.clone();
    }

    fn warn_outside_transaction(&mut self, chain: bool, name: &str) -> Result<(), Failure> {
        if self.transaction.mode == Mode::Explicit {
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

    /// A flight, or a statement in one, is no transaction block, though the gateway has made one of it.
    ///
    /// Errors: 25P01 for what works in blocks only.
    pub(super) fn refuse_outside_block(&self, statement: &Statement) -> Result<(), Failure> {
        match (self.transaction.mode, statement.needs_block()) {
            (Mode::Implicit, Some(what)) => self.need_block(what),
            _ => Ok(()),
        }
    }

    fn need_block(&self, what: &str) -> Result<(), Failure> {
        if self.transaction.mode == Mode::Explicit {
            return Ok(());
        }
        Err(Failure::error("25P01", format!("{what} can only be used in transaction blocks")))
    }

    async fn savepoint(&mut self, name: &str) -> Result<Done, Failure> {
        self.need_block("SAVEPOINT")?;
        self.import_on_all().await?;
        let sql = format!("SAVEPOINT {}", tutti_sql::catalog::quote_identifier(name));
        self.on_all_participants(&sql).await?;
        self.transaction.push_savepoint(name);
        Ok(Done::Tag("SAVEPOINT".to_owned()))
    }

    async fn release(&mut self, name: &str) -> Result<Done, Failure> {
        self.need_block("RELEASE SAVEPOINT")?;
        self.need_savepoint(name)?;
        let sql = format!("RELEASE SAVEPOINT {}", tutti_sql::catalog::quote_identifier(name));
        self.on_all_participants(&sql).await?;
        self.transaction.release(name);
        // As of what its savepoint stood behind.
        let steps = self.transaction.step_count();
        let made = self.cursors.values_mut().filter_map(|cursor| cursor.made.as_mut());
        made.for_each(|made| *made = (*made).min(steps));
        Ok(Done::Tag("RELEASE".to_owned()))
    }

    async fn rollback_to(&mut self, name: &str) -> Result<Done, Failure> {
        self.need_block("ROLLBACK TO SAVEPOINT")?;
        self.need_savepoint(name)?;
        let lost = || {
            let message = "a node lost its part of this transaction";
            let hint = "Roll back the whole transaction and retry.";
            ErrorFields::error("08006", message).with(b'H', hint)
        };
        if self.transaction.doomed {
            return Err(lost().into());
        }
        let sql = format!("ROLLBACK TO SAVEPOINT {}", tutti_sql::catalog::quote_identifier(name));
        match self.on_all_participants(&sql).await {
            // A node that failed while it joined has not come as far as the savepoint.
            Err(Failure::Statement(error)) if error.sqlstate() == NO_SUCH_SAVEPOINT => {
                self.transaction.doomed = true;
                return Err(lost().into());
            }
            told => told?,
        }
        self.transaction.rollback_to(name);
        let steps = self.transaction.step_count();
        self.cursors.retain(|_, cursor| cursor.made.is_none_or(|made| made < steps));
        self.transaction.failed = false;
        self.transaction.undone = false;
        self.forget_parts().await?;
        self.renew_tickets().await?;
        // What node 1 shows behind the savepoint is what the transaction sees.
        if self.transaction.catalog_changed {
            self.reload_own_catalog().await?;
        }
        self.refresh_scope_if_changed().await?;
        Ok(Done::Tag("ROLLBACK".to_owned()))
    }

    fn need_savepoint(&self, name: &str) -> Result<(), Failure> {
        if self.transaction.has_savepoint(name) {
            return Ok(());
        }
        Err(Failure::error(NO_SUCH_SAVEPOINT, format!("savepoint \"{name}\" does not exist")))
    }

    /// Runs `sql` on every node of the transaction. One that fails there fails the transaction.
    pub(super) async fn on_all_participants(&mut self, sql: &str) -> Result<(), Failure> {
        let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
        self.on_each_link(&nodes, sql).await
    }

    /// Runs `sql` on each of several links at once. What the client hears of several errors does not
    /// depend on which came first.
    pub(crate) async fn on_each_link(
        &mut self,
        nodes: &[NodeId],
        sql: &str,
    ) -> Result<(), Failure> {
        let sent = nodes.iter().map(|node| (*node, sql.to_owned())).collect();
        let mut answered = self.on_links(sent).await;
        answered.sort_by_key(|(node, _)| *node);
        for (_, answered) in answered {
            answered?;
        }
        Ok(())
    }

    /// Sends one query to each of several links at once, and waits for all answers. A link that is
    /// not there has lost its connection.
    pub(crate) async fn on_links(
        &mut self,
        queries: Vec<(NodeId, String)>,
    ) -> Vec<(NodeId, Answered)> {
        let mut answers = Vec::new();
        let mut running = JoinSet::new();
        for (node, sql) in queries {
            match self.links.remove(&node) {
                Some(mut link) => {
                    running.spawn(async move {
                        let answered = link.query(&sql).await;
                        (node, link, answered)
                    });
                }
                None => answers.push((node, Err(super::global_commit::lost(node)))),
            }
        }
        while let Some(finished) = running.join_next().await {
            let (node, mut link, answered) = finished.expect("a query does not panic");
            // One that may not be used further is still to tell why.
            if !link.connection().is_broken() {
                self.links.insert(node, link);
            }
            answers.push((node, answered));
        }
        answers
    }

    /// Commits the transaction, if there is one, on all its nodes.
    ///
    /// Errors: the transaction is aborted and nothing of it remains; or SQLSTATE 08007: it is not
    /// known yet whether it committed, and the hint names its gid.
    pub(crate) async fn commit(&mut self) -> Result<(), Failure> {
        if self.transaction.doomed {
            self.rollback().await?;
            let message = "a node lost its part of this transaction, which was rolled back";
            return Err(ErrorFields::error("08006", message)
                .with(b'H', "Nothing was committed; retrying is safe.")
                .into());
        }
        self.activity.end_plan();
        if self.transaction.defers_unseen {
            if let Err(failure) = Box::pin(self.run_deferred()).await {
                self.abandon(Ended::Aborted).await;
                return Err(failure);
            }
            self.pass_notices(NodeId::HOME);
        }
        if self.transaction.own_is_stale
            && let Err(failure) = Box::pin(self.reload_own_catalog()).await
        {
            self.abandon(Ended::Aborted).await;
            return Err(failure);
        }
        let writers: Vec<_> = self.voters().into_iter().collect();
        let late = match self.run_code_early(&writers).await {
            Ok(late) => late,
            Err(failure) => {
                self.abandon(Ended::Aborted).await;
                return Err(failure);
            }
        };
        if let Err(failure) = self.may_commit_alone().await {
            self.abandon(Ended::Aborted).await;
            return Err(failure);
        }
        // Held until the result is published.
        let hold = match self.begin_change().await {
            Ok(hold) => self.begin_to_move(hold).await,
            Err(failure) => Err(failure),
        };
        let _hold = match hold {
            Ok(hold) => hold,
            Err(failure) => {
                self.abandon(Ended::Aborted).await;
                return Err(failure);
            }
        };
        let committed = match writers[..] {
            [] => self.commit_readers(&BTreeSet::new()).await,
            [writer] => self.commit_one_writer(writer, late.as_deref()).await,
            _ => self.commit_global(&writers, late.clone()).await,
        };
        let committed = match late {
            Some(late) => committed.map_err(|failure| late.reword(failure)),
            None => committed,
        };
        match committed {
            Ok(()) => {
                self.adopt_settings().await;
                let undone = std::mem::take(&mut self.transaction.has_undone);
                self.set_anew(undone).await;
                self.end_transaction(Ended::Committed).await;
                Ok(())
            }
            Err(failure) => {
                let unknown = matches!(&failure,
                    Failure::Statement(error) if error.sqlstate() == UNKNOWN_OUTCOME);
                let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
                self.roll_back_nodes().await;
                self.set_anew(nodes).await;
                self.end_transaction(if unknown { Ended::Unknown } else { Ended::Aborted }).await;
                Err(failure)
            }
        }
    }

    /// Who has a say in whether the transaction commits: those that may have written; at SERIALIZABLE, if it
    /// has used several nodes, all of them, for what was only read may have been overwritten.
    fn voters(&self) -> BTreeSet<NodeId> {
        let mut voters: BTreeSet<_> = self.transaction.writers().collect();
        if self.takes_votes_of_readers() && 1 < self.transaction.used.len() {
            voters.extend(&self.transaction.used);
        }
        voters
    }

    /// Whether what a node has only read matters until the end.
    fn takes_votes_of_readers(&self) -> bool {
        self.level() == Level::Serializable && !self.transaction.has_safe_snapshot
    }

    /// Plain COMMIT where nothing was written, before it is decided whether the transaction commits: where
    /// such a node may refuse it, that is heard.
    pub(super) async fn commit_readers_first(
        &mut self,
        writers: &BTreeSet<NodeId>,
    ) -> Result<(), Failure> {
        match self.takes_votes_of_readers() {
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
            .transaction
            .nodes
            .keys()
            .filter(|node| !writers.contains(node))
            .map(|node| (*node, "COMMIT".to_owned()))
            .collect();
        let mut all = Ok(());
        for (node, answered) in self.on_links(readers).await {
            self.pass_notices(node);
            if let Err(error) = answered {
                self.transaction.has_undone.insert(node);
                all = all.and(Err(error));
            }
        }
        Ok(all?)
    }

    /// Brings connections to what the session has set. What a transaction sets stays on a node that has
    /// prepared it, for that ends it like a commit, and goes on one that could not commit; whatever became of
    /// the transaction elsewhere.
    async fn set_anew(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
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

    /// What deferred triggers say when they run at the end.
    pub(super) fn pass_notices(&mut self, node: NodeId) {
        let Some(link) = self.links.get_mut(&node) else { return };
        for notice in link.connection().take_notices() {
            self.client.out().extend_from_slice(notice.as_bytes());
        }
    }

    async fn commit_one_writer(
        &mut self,
        writer: NodeId,
        late: Option<&LateCode>,
    ) -> Result<(), Failure> {
        // Whoever sees this commit must see what its client may have seen elsewhere.
        self.wait_for_visible(writer).await?;
        let only_writer = BTreeSet::from([writer]);
        self.commit_readers_first(&only_writer).await?;
        self.pass_rooms().await?;
        let commit = self.on_links(vec![(writer, "COMMIT".to_owned())]);
        let answered = bounded(late, writer, commit).await.remove(0).1;
        self.pass_notices(writer);
        match answered {
            Ok(rows) if rows.first().is_some_and(|rows| rows.tag == "ROLLBACK") => {
                return Err(Failure::error("40000", "the transaction was rolled back by its node"));
            }
            Ok(_) => (),
            Err(error @ NodeError::Refused(_)) if self.links.contains_key(&writer) => {
                return Err(error.into());
            }
            Err(error) => return Err(unknown_outcome(error).with(b'H', LOOK_THERE).into()),
        }
        if !self.takes_votes_of_readers() {
            // What was read elsewhere cannot undo what was committed.
            let _ = self.commit_readers(&only_writer).await;
        }
        Ok(())
    }

    /// Rolls the transaction back on every node, if there is one.
    pub(crate) async fn rollback(&mut self) -> Result<(), Failure> {
        self.abandon(Ended::Aborted).await;
        Ok(())
    }

    /// Ends whatever part of the transaction is still open on any node, and forgets it.
    async fn abandon(&mut self, ended: Ended) {
        self.roll_back_nodes().await;
        self.end_transaction(ended).await;
    }

    async fn roll_back_nodes(&mut self) {
        self.activity.end_plan();
        let nodes: Vec<_> = self
            .transaction
            .nodes
            .keys()
            .filter(|node| self.links.contains_key(node))
            .map(|node| (*node, "ROLLBACK".to_owned()))
            .collect();
        // A node that cannot be told has rolled back by itself, or does so when it sees the
        // connection gone: its link is dropped.
        for (node, answered) in self.on_links(nodes).await {
            let Some(link) = self.links.get_mut(&node) else { continue };
            if answered.is_err() && !link.mend().await {
                self.links.remove(&node);
            }
        }
    }

    /// The session forgets its transaction. What became of it is decided, so nothing that fails here
    /// is told: what is missing is made up for before the next statement, or ends the session.
    async fn end_transaction(&mut self, how: Ended) {
        let committed = how == Ended::Committed;
        let ended = std::mem::take(&mut self.transaction);
        self.activity.note_nodes(0);
        let may_change_scope = ended.may_change_scope();
        let Transaction {
            mode,
            catalog_changed,
            own_changes,
            scope_changed,
            changed_defaults,
            changed_paths,
            listens,
            ..
        } = ended;
        if committed && listens {
            // It is committed, and must not look as if it were not.
            self.listen_everywhere_or_end().await;
        }
        if changed_paths && how != Ended::Aborted {
            self.registry.path_changes.fetch_add(1, Ordering::SeqCst);
        }
        if committed && changed_defaults {
            self.registry.pool.renew();
        }
        if mode != Mode::None {
            self.portals.clear();
        }
        self.pass_reports_on();
        self.settle_cursors(committed);
        if catalog_changed {
            self.use_own_oids(None);
            self.publish_change(how, own_changes).await;
        }
        if (catalog_changed && may_change_scope) || (scope_changed && !committed) {
            self.refresh_scope_if_possible().await;
        } else if scope_changed {
            // What was set LOCAL ended with it.
            self.scope_is_stale = true;
        }
    }

    /// What cursors were declared in the transaction, or in the flight, that has ended is for good, or undone.
    pub(super) fn settle_cursors(&mut self, committed: bool) {
        self.cursors.retain(|_, cursor| cursor.holds && (committed || cursor.made.is_none()));
        self.cursors.values_mut().for_each(|cursor| cursor.made = None);
    }

    /// A transaction that changed the schema has ended: everybody gets the result.
    async fn publish_change(&mut self, how: Ended, own: Option<OwnChanges>) {
        let publisher = self.registry.cluster.publisher.clone();
        if how != Ended::Aborted {
            let change = match (how, own) {
                (Ended::Committed, Some(own)) => publisher.need_own(&own),
                _ => publisher.need_changed(),
            };
            // Where it is not known, recovery will say so again.
            let give_up = Instant::now() + PUBLISH_PATIENCE;
            if how == Ended::Committed && !publisher.wait_for(change, give_up).await {
                tracing::warn!("a change of the schema is committed and could not be read yet");
            }
            self.check_catalog().await;
        }
        self.catalog = self.registry.cluster.catalog();
    }

    /// The session has changed the schema by statements of which nobody knows what they change.
    pub(super) async fn publish_unseen(&mut self) {
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
    async fn check_catalog(&mut self) {
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

    /// Settings that ended with the transaction: the client hears what they are now.
    pub(super) fn pass_reports_on(&mut self) {
        let Some(home) = self.links.get_mut(&NodeId::HOME) else { return };
        let reports = home.connection().take_reports();
        for (name, value) in reports {
            self.client.report(name, value);
        }
    }

    async fn refresh_scope_if_changed(&mut self) -> Result<(), Failure> {
        if self.transaction.scope_changed
            || (self.transaction.catalog_changed && self.transaction.may_change_scope())
        {
            self.refresh_scope().await?;
        }
        Ok(())
    }
}

/// Transactions that write on several nodes are prepared too, and find no place where clients' own keep all of
/// them. The caller's counts as one that is being prepared.
///
/// Errors: 53200, as of a server that has no place; node 1 cannot be asked.
async fn refuse_too_many_prepared(registry: &Registry) -> Result<(), Failure> {
    let sql = format!(
        "SELECT pg_catalog.count(*), pg_catalog.current_setting('max_prepared_transactions')
FROM pg_catalog.pg_prepared_xacts WHERE NOT pg_catalog.starts_with(gid, '{OWN_GIDS}')"
    );
    // Before the list: what ends between the two is in the list.
    let at_work = Arc::strong_count(&registry.preparing) as u64 - 1;
    let mut home = registry.cluster.connections.lend(NodeId::HOME).await?;
    let rows = home.rows(&sql).await?;
    registry.cluster.connections.give_back(home);
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
