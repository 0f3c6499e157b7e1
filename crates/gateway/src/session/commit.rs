//! Ending transactions: drives the anchored commit over the session's links.
//!
//! Owns: turning the coordinator's effects into statements on links and their answers into events.
//! Never: decides what comes next (`tutti_txn::coordinator` does).
//! Start reading at [`Session::commit`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::task::JoinSet;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::TransactionControl;
use tutti_txn::Coordinator;
use tutti_txn::coordinator::{AbortCause, Effect, Event, Form, Outcome};
use tutti_txn::gid::{self, Gid};
use tutti_wire::error_fields::ErrorFields;

use super::{Characteristics, Mode, Session, Transaction};
use crate::executor::Done;
use crate::failure::Failure;
use crate::node::{NodeError, Rows};

/// How long nodes may take to vote before the transaction is aborted.
const VOTE_DEADLINE: Duration = Duration::from_secs(60);
/// How long we try to find out whether an anchor's COMMIT happened before we say that we do not know.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// What a node answered to one effect.
type Answered = Result<Vec<Rows>, NodeError>;

impl Session {
    /// BEGIN, COMMIT, SAVEPOINT and their kin.
    pub(crate) async fn transaction_control(
        &mut self,
        control: &TransactionControl,
    ) -> Result<Done, Failure> {
        match control {
            TransactionControl::Begin { isolation, read_only, start } => {
                let given = Characteristics { isolation: isolation.clone(), read_only: *read_only };
                self.begin_transaction(&given);
                let tag = if *start { "START TRANSACTION" } else { "BEGIN" };
                Ok(Done::Tag(tag.to_owned()))
            }
            TransactionControl::Commit { chain } => {
                let open = self.transaction.mode == Mode::Explicit;
                self.warn_outside_transaction(*chain, "COMMIT AND CHAIN")?;
                let failed = self.transaction.failed;
                let characteristics = self.transaction.characteristics.clone();
                let ended = if failed { self.rollback().await } else { self.commit().await };
                ended?;
                if *chain && open {
                    self.begin_transaction(&characteristics);
                }
                Ok(Done::Tag(if failed { "ROLLBACK" } else { "COMMIT" }.to_owned()))
            }
            TransactionControl::Rollback { chain } => {
                let open = self.transaction.mode == Mode::Explicit;
                self.warn_outside_transaction(*chain, "ROLLBACK AND CHAIN")?;
                let characteristics = self.transaction.characteristics.clone();
                self.rollback().await?;
                if *chain && open {
                    self.begin_transaction(&characteristics);
                }
                Ok(Done::Tag("ROLLBACK".to_owned()))
            }
            TransactionControl::Savepoint(name) => self.savepoint(name).await,
            TransactionControl::Release(name) => self.release(name).await,
            TransactionControl::RollbackTo(name) => self.rollback_to(name).await,
            TransactionControl::TwoPhase => Err(Failure::unsupported(
                "PREPARE TRANSACTION and COMMIT PREPARED are not supported through the gateway",
                "Tutti commits by prepared transactions itself; a client's own would span them.",
                "Use COMMIT: it is atomic over all nodes.",
            )),
        }
    }

    fn begin_transaction(&mut self, given: &Characteristics) {
        if self.transaction.mode == Mode::Explicit {
            let warning = "there is already a transaction in progress";
            self.client.put_notice(&ErrorFields::with_severity("WARNING", "25001", warning));
        } else {
            // An implicit transaction becomes the explicit one, with what it has done so far.
            self.transaction.mode = Mode::Explicit;
            self.transaction.characteristics.update(given);
        }
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

    fn need_block(&self, what: &str) -> Result<(), Failure> {
        if self.transaction.is_open() {
            return Ok(());
        }
        Err(Failure::error("25P01", format!("{what} can only be used in transaction blocks")))
    }

    async fn savepoint(&mut self, name: &str) -> Result<Done, Failure> {
        self.need_block("SAVEPOINT")?;
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
        Ok(Done::Tag("RELEASE".to_owned()))
    }

    async fn rollback_to(&mut self, name: &str) -> Result<Done, Failure> {
        self.need_block("ROLLBACK TO SAVEPOINT")?;
        self.need_savepoint(name)?;
        if self.transaction.doomed {
            let message = "a node lost its part of this transaction";
            return Err(ErrorFields::error("08006", message)
                .with(b'H', "Roll back the whole transaction and retry.")
                .into());
        }
        let sql = format!("ROLLBACK TO SAVEPOINT {}", tutti_sql::catalog::quote_identifier(name));
        self.on_all_participants(&sql).await?;
        self.transaction.rollback_to(name);
        self.transaction.failed = false;
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
        Err(Failure::error("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    /// Runs `sql` on every node of the transaction. One that fails there fails the transaction.
    async fn on_all_participants(&mut self, sql: &str) -> Result<(), Failure> {
        let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
        let sent = nodes.into_iter().map(|node| (node, sql.to_owned())).collect();
        for (_, answered) in self.on_links(sent).await {
            answered?;
        }
        Ok(())
    }

    /// Sends one query to each of several links at once, and waits for all answers. A link that is
    /// not there has lost its connection.
    async fn on_links(&mut self, queries: Vec<(NodeId, String)>) -> Vec<(NodeId, Answered)> {
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
                None => answers.push((node, Err(lost(node)))),
            }
        }
        while let Some(finished) = running.join_next().await {
            let (node, link, answered) = finished.expect("a query does not panic");
            if !link.is_broken() {
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
        let writers: Vec<_> = self.transaction.writers().collect();
        let committed = match writers[..] {
            [] => self.commit_readers(&BTreeSet::new()).await,
            [writer] => self.commit_one_writer(writer).await,
            _ => self.commit_global(&writers).await,
        };
        match committed {
            Ok(()) => {
                self.adopt_settings().await?;
                self.end_transaction(true).await
            }
            Err(failure) => {
                self.abandon().await?;
                Err(failure)
            }
        }
    }

    /// Plain COMMIT where nothing was written.
    async fn commit_readers(&mut self, writers: &BTreeSet<NodeId>) -> Result<(), Failure> {
        let readers: Vec<_> = self
            .transaction
            .nodes
            .keys()
            .filter(|node| !writers.contains(node))
            .map(|node| (*node, "COMMIT".to_owned()))
            .collect();
        for (_, answered) in self.on_links(readers).await {
            answered?;
        }
        Ok(())
    }

    async fn commit_one_writer(&mut self, writer: NodeId) -> Result<(), Failure> {
        let answered = self.on_links(vec![(writer, "COMMIT".to_owned())]).await.remove(0).1;
        match answered {
            Ok(rows) if rows.first().is_some_and(|rows| rows.tag == "ROLLBACK") => {
                return Err(Failure::error("40000", "the transaction was rolled back by its node"));
            }
            Ok(_) => (),
            Err(error @ NodeError::Refused(_)) if self.links.contains_key(&writer) => {
                return Err(error.into());
            }
            Err(error) => {
                let message = format!("the outcome of this transaction is not known: {error}");
                return Err(ErrorFields::error("08007", message)
                    .with(
                        b'H',
                        "It wrote on one node only; look there whether its rows are present.",
                    )
                    .into());
            }
        }
        // What was read elsewhere cannot undo what was committed.
        let _ = self.commit_readers(&BTreeSet::from([writer])).await;
        Ok(())
    }

    async fn commit_global(&mut self, writers: &[NodeId]) -> Result<(), Failure> {
        let number_spread = usize::try_from(self.number).unwrap_or(0) % writers.len();
        // Node 1 cannot prepare what has touched temporary tables or notifications.
        let home_must_anchor =
            self.transaction.home_must_anchor || !self.scope.temporary.is_empty();
        let anchor = match home_must_anchor && writers.contains(&NodeId::HOME) {
            true => NodeId::HOME,
            false => writers[number_spread],
        };
        let participants = writers
            .iter()
            .filter(|node| **node != anchor)
            .map(|node| gid::NodeId(node.0))
            .collect();
        let shared = self.shared.clone();
        // From before the anchor's COMMIT until all nodes have answered it may be visible on some
        // nodes and not on others; votes are quick, so the whole commit counts.
        let _entered = shared.applying.enter();
        let driver = Driver { gid: self.shared.next_gid(anchor), refusals: BTreeMap::new() };
        let outcome = driver.run(self, participants).await;
        let readers = self.commit_readers(&writers.iter().copied().collect()).await;
        drop(readers);
        outcome
    }

    /// Rolls the transaction back on every node, if there is one.
    pub(crate) async fn rollback(&mut self) -> Result<(), Failure> {
        self.abandon().await
    }

    /// Ends whatever part of the transaction is still open on any node, and forgets it.
    async fn abandon(&mut self) -> Result<(), Failure> {
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
            if answered.is_err() {
                self.links.remove(&node);
            }
        }
        self.end_transaction(false).await
    }

    async fn end_transaction(&mut self, committed: bool) -> Result<(), Failure> {
        let ended = std::mem::take(&mut self.transaction);
        let Transaction { mode, catalog_changed, scope_changed, .. } = ended;
        if mode != Mode::None {
            self.portals.clear();
        }
        self.pass_reports_on();
        self.cursors.retain(|_, (_, holds)| *holds);
        if catalog_changed {
            self.publish_catalog(committed).await?;
        }
        if catalog_changed || (scope_changed && !committed) {
            self.refresh_scope().await?;
        }
        Ok(())
    }

    /// Settings that ended with the transaction: the client hears what they are now.
    fn pass_reports_on(&mut self) {
        let Some(home) = self.links.get_mut(&NodeId::HOME) else { return };
        let reports = home.connection().take_reports();
        for (name, value) in reports {
            self.client.report(name, value);
        }
    }

    async fn refresh_scope_if_changed(&mut self) -> Result<(), Failure> {
        if self.transaction.scope_changed || self.transaction.catalog_changed {
            self.refresh_scope().await?;
        }
        Ok(())
    }
}

fn lost(node: NodeId) -> NodeError {
    NodeError::Lost { node, source: std::io::ErrorKind::NotConnected.into() }
}

/// Drives one [`Coordinator`] over a session's links.
struct Driver {
    gid: Gid,
    /// What nodes refused with, to be told if it is the cause.
    refusals: BTreeMap<NodeId, ErrorFields>,
}

impl Driver {
    async fn run(
        mut self,
        session: &mut Session,
        participants: BTreeSet<gid::NodeId>,
    ) -> Result<(), Failure> {
        let mut effects = Vec::new();
        let mut coordinator =
            Coordinator::begin(self.gid.clone(), Form::Anchored, participants, &mut effects);
        let mut outcome = Outcome::Unknown;
        let mut all_flushed = true;
        while !effects.is_empty() {
            let batch = std::mem::take(&mut effects);
            let mut queries = Vec::new();
            let mut events = Vec::new();
            for effect in batch {
                match effect {
                    Effect::Reply(told) => outcome = told,
                    Effect::EnterCommitRoom => events.push(Event::CommitRoomEntered),
                    // Rooms come with isolation over several nodes; a PREPARE that is not wanted any
                    // more is simply awaited, bounded by the deadline.
                    Effect::LeaveCommitRoom | Effect::CancelPrepare(_) => (),
                    Effect::Settle => events.push(self.settle(session).await),
                    Effect::LeaveToRecovery { node, .. } => {
                        all_flushed = false;
                        session.shared.leave_to_recovery(self.gid.clone(), [NodeId(node.0)]);
                        events.push(Event::HandedOver(node));
                    }
                    Effect::Prepare(node)
                    | Effect::CommitPrepared(node)
                    | Effect::RollbackPrepared(node) => {
                        queries.push((NodeId(node.0), effect));
                    }
                    Effect::RecordDecision
                    | Effect::Decide
                    | Effect::CommitAnchor
                    | Effect::RollbackAnchor => {
                        queries.push((NodeId(self.gid.anchor.0), effect));
                    }
                }
            }
            events.extend(self.perform(session, queries).await);
            for event in events {
                coordinator.step(event, &mut effects);
            }
        }
        assert!(coordinator.is_finished(), "{}: nothing to do and not finished", self.gid);
        self.conclude(session, outcome, all_flushed)
    }

    /// Sends all statements at once and waits for their answers, at most [`VOTE_DEADLINE`]: a node
    /// that has not answered by then has lost its link.
    async fn perform(
        &mut self,
        session: &mut Session,
        queries: Vec<(NodeId, Effect)>,
    ) -> Vec<Event> {
        let effects: BTreeMap<NodeId, Effect> = queries.iter().copied().collect();
        let sql = queries.into_iter().map(|(node, effect)| (node, self.sql(effect))).collect();
        let answers = tokio::time::timeout(VOTE_DEADLINE, session.on_links(sql)).await;
        let answers = answers
            .unwrap_or_else(|_| effects.keys().map(|node| (*node, Err(lost(*node)))).collect());
        answers
            .into_iter()
            .map(|(node, answered)| {
                let alive = session.links.contains_key(&node);
                self.event(node, effects[&node], answered, alive)
            })
            .collect()
    }

    fn sql(&self, effect: Effect) -> String {
        let gid = &self.gid;
        match effect {
            Effect::Prepare(_) => format!("PREPARE TRANSACTION '{gid}'"),
            Effect::RecordDecision => format!(
                "SET LOCAL synchronous_commit = on; \
                 INSERT INTO tutti.decision (gid, decision) VALUES ('{gid}', 'committed')"
            ),
            // One simple query of two statements: one transaction, and the setting ends with it.
            Effect::Decide => format!(
                "SET LOCAL synchronous_commit = on; \
                 INSERT INTO tutti.decision (gid, decision) VALUES ('{gid}', 'committed') \
                 ON CONFLICT DO NOTHING RETURNING gid"
            ),
            Effect::CommitAnchor => "COMMIT".to_owned(),
            Effect::RollbackAnchor => "ROLLBACK".to_owned(),
            Effect::CommitPrepared(_) => format!("COMMIT PREPARED '{gid}'"),
            Effect::RollbackPrepared(_) => format!("ROLLBACK PREPARED '{gid}'"),
            Effect::CancelPrepare(_)
            | Effect::EnterCommitRoom
            | Effect::LeaveCommitRoom
            | Effect::Settle
            | Effect::LeaveToRecovery { .. }
            | Effect::Reply(_) => unreachable!("{effect:?} is not a statement"),
        }
    }

    fn event(&mut self, node: NodeId, effect: Effect, answered: Answered, alive: bool) -> Event {
        let rolled_back =
            matches!(&answered, Ok(rows) if rows.last().is_some_and(|rows| rows.tag == "ROLLBACK"));
        let row_returned =
            matches!(&answered, Ok(rows) if rows.last().is_some_and(|rows| !rows.rows.is_empty()));
        let at = gid::NodeId(node.0);
        let refused = match &answered {
            // A FATAL is followed by the end of the connection: what it interrupted is not known.
            Err(NodeError::Refused(fields)) if alive => {
                self.refusals.insert(node, (**fields).clone());
                Some(fields.sqlstate().to_owned())
            }
            _ => None,
        };
        let answered = answered.is_ok();
        match (effect, answered, refused.as_deref()) {
            (Effect::Prepare(_), true, _) if !rolled_back => Event::VotedYes(at),
            (Effect::Prepare(_), true, _) | (Effect::Prepare(_), false, Some(_)) => {
                Event::VotedNo(at)
            }
            (Effect::Prepare(_), false, None) => Event::VoteLost(at),
            (Effect::RecordDecision, true, _) => Event::DecisionRecorded,
            (Effect::RecordDecision, false, Some(_)) => Event::DecisionRefused,
            (Effect::Decide, true, _) if row_returned => Event::DecisionRecorded,
            (Effect::Decide, true, _) | (Effect::Decide, false, Some(_)) => Event::DecisionRefused,
            (Effect::Decide, false, None) => Event::DecisionLost,
            (Effect::CommitAnchor, true, _) if !rolled_back => Event::AnchorCommitted,
            (Effect::CommitAnchor, true, _) | (Effect::CommitAnchor, false, Some(_)) => {
                Event::AnchorRefused
            }
            (Effect::RollbackAnchor, true, _) | (Effect::RollbackAnchor, false, Some(_)) => {
                Event::AnchorRolledBack
            }
            (
                Effect::RecordDecision | Effect::CommitAnchor | Effect::RollbackAnchor,
                false,
                None,
            ) => Event::AnchorLost,
            (Effect::CommitPrepared(_), true, _) => Event::ParticipantCommitted(at),
            (Effect::RollbackPrepared(_), true, _) => Event::ParticipantRolledBack(at),
            (Effect::CommitPrepared(_) | Effect::RollbackPrepared(_), false, Some("42704")) => {
                Event::ParticipantUnknown(at)
            }
            (Effect::CommitPrepared(_) | Effect::RollbackPrepared(_), false, _) => {
                Event::ParticipantLost(at)
            }
            (
                Effect::CancelPrepare(_)
                | Effect::EnterCommitRoom
                | Effect::LeaveCommitRoom
                | Effect::Settle
                | Effect::LeaveToRecovery { .. }
                | Effect::Reply(_),
                ..,
            ) => unreachable!("{effect:?} is not answered by a node"),
        }
    }

    /// Asks the record, over new connections, until it answers or patience is over.
    async fn settle(&self, session: &Session) -> Event {
        let shared = session.shared.clone();
        let asked = tokio::time::timeout(SETTLE_PATIENCE, async {
            loop {
                match crate::recovery::read_or_refuse_decision(&shared.config, &self.gid).await {
                    Ok(decision) => return decision,
                    Err(error) => {
                        tracing::warn!(gid = %self.gid, %error, "cannot ask for the decision yet");
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                }
            }
        });
        match asked.await {
            Ok(decision) => Event::Settled(decision),
            Err(_) => Event::SettleTimedOut,
        }
    }

    fn conclude(
        mut self,
        session: &mut Session,
        outcome: Outcome,
        all_flushed: bool,
    ) -> Result<(), Failure> {
        let anchor = NodeId(self.gid.anchor.0);
        let hint = "Nothing was committed; retrying is safe.";
        let plain = |sqlstate: &str, message: String| {
            Err(ErrorFields::error(sqlstate, message).with(b'H', hint).into())
        };
        match outcome {
            Outcome::Committed => {
                if all_flushed {
                    session.shared.note_applied(self.gid);
                }
                Ok(())
            }
            Outcome::Unknown => {
                let message = "the outcome of this transaction is not known yet";
                Err(ErrorFields::error("08007", message)
                    .with(b'H', format!("Its decision will be recorded under {}.", self.gid))
                    .into())
            }
            Outcome::Aborted { cause } => match cause {
                AbortCause::VotedNo(node) => match self.refusals.remove(&NodeId(node.0)) {
                    Some(fields) => Err(fields.into()),
                    None => plain("40000", format!("node {node} rolled the transaction back")),
                },
                AbortCause::DecisionRefused | AbortCause::AnchorRefused => {
                    match self.refusals.remove(&anchor) {
                        Some(fields)
                            if fields.sqlstate() == "23505"
                                && cause == AbortCause::DecisionRefused =>
                        {
                            plain("40001", "recovery has aborted this transaction".to_owned())
                        }
                        Some(fields) => Err(fields.into()),
                        None if cause == AbortCause::DecisionRefused => {
                            plain("40001", "recovery has aborted this transaction".to_owned())
                        }
                        None => {
                            plain("40000", format!("node {anchor} rolled the transaction back"))
                        }
                    }
                }
                AbortCause::VoteLost(node) => {
                    plain("08006", format!("connection to node {node} lost before it voted"))
                }
                AbortCause::AnchorLost | AbortCause::FoundAborted => {
                    plain("08006", format!("connection to node {anchor} lost during the commit"))
                }
                AbortCause::DeadlineReached => {
                    plain("40000", "not all nodes voted in time".to_owned())
                }
            },
        }
    }
}
