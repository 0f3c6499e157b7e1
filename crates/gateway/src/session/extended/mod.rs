//! The extended protocol: Parse, Bind, Describe, Execute, Close, Flush, Sync.
//!
//! Owns: dispatching a message to its handler, what happens to the rest of a flight when one
//! fails, and looking statements and portals up.
//! Never: waits for a node while more messages for it may come.
//! Start reading at [`Session::extended_message`]; then `pipeline`.
//!
//! As long as the messages between two Syncs concern one node, they are forwarded as the client
//! wrote them and only their answers are counted ([`due::Expect`]). Anything else first brings
//! the pipeline to rest ([`Session::quiet_pipeline`]).

mod again;
mod bind;
mod describe;
mod due;
mod execute;
mod parse;
mod pipeline;
mod sync;
mod values;

use std::sync::Arc;

use tutti_sql::plan::{Access, Planned, SessionPlan};
use tutti_wire::frame::Frame;
use tutti_wire::frontend::{self, Message, Target};

use super::Session;
use super::planning::Next;
use crate::client::ClientError;
use crate::client::failure::Failure;
use crate::transaction::named::{Bound, CachedPlan, Portal, PreparedStatement};
use crate::transaction::plan_needs::takes_snapshot;

pub(super) use due::Pipeline;

impl Session {
    /// Handles one message of the extended protocol.
    pub(super) async fn extended_message(&mut self, frame: &Frame) -> Result<(), ClientError> {
        if frame.tag() == b'S' {
            return self.sync().await;
        }
        if self.pipeline.skipping {
            return Ok(());
        }
        self.keep_message(frame);
        let mut taken = self.take_message(frame).await;
        if taken.is_ok() && !self.client.has_frame() {
            taken = self.rest_before_pause().await;
        }
        if taken.is_err() {
            taken = Box::pin(self.run_flight_again(taken, false)).await;
        }
        self.skip_on_failure(taken).await
    }

    /// The client may pause in the middle of a flight, for as long as it likes. What it has sent depends on some
    /// relations, and can wait for more; or it may depend on any, or calls code, and changes would have to stop it:
    /// what was only analysed or bound by then is answered, as PostgreSQL has done by now, and so rests.
    async fn rest_before_pause(&mut self) -> Result<(), Failure> {
        let activity = &self.tx.activity;
        if self.has_sent_nothing()
            || !activity.plan.exists()
            || activity.plan.has_known_relations()
            || self.pipeline.executes()
        {
            return Ok(());
        }
        self.drain().await?;
        self.rest_in_flight();
        Ok(())
    }

    /// Whether an error makes PostgreSQL ignore everything up to the next Sync, a Query included.
    pub(super) fn is_skipping(&self) -> bool {
        self.pipeline.skipping
    }

    /// After a failure: tells the client, after the answers to earlier messages, and skips what
    /// comes until Sync.
    pub(super) async fn skip_on_failure(
        &mut self,
        taken: Result<(), Failure>,
    ) -> Result<(), ClientError> {
        let failure = match taken {
            Ok(()) => return Ok(()),
            Err(failure) if self.pipeline.skipping => failure,
            // Answers to earlier messages come first; one of them may itself be an error.
            Err(failure) => match self.answer_earlier().await {
                Ok(()) => failure,
                // What failed on a node has failed the transaction there: that is nothing new.
                Err(earlier) if !self.tx.transaction.failed && is_of_failed(&earlier) => failure,
                Err(earlier) => earlier,
            },
        };
        self.skip_rest();
        match failure {
            Failure::Client(error) => Err(error),
            Failure::Statement(error) => {
                // If what bound the session is lost with it, this is the last that the client is
                // sent.
                self.tx.fail_transaction();
                self.put_failure(*error).await?;
                self.rest_after_failure();
                // A client that has much more to send before its Sync may stop.
                self.client.flush_early().await
            }
        }
    }

    /// A flight that has failed runs nothing more, and its client may take its time with the Sync: no change waits
    /// for it. What is still written for a node must not run by then, not even to be undone.
    fn rest_after_failure(&mut self) {
        for node in self.tx.flight.keys().copied().collect::<Vec<_>>() {
            let Some(link) = self.tx.links.get_mut(&node) else { continue };
            if link.drop_unsent_flight() {
                self.tx.doubt_refreshed(node);
            }
        }
        self.tx.activity.plan.end();
    }

    async fn answer_earlier(&mut self) -> Result<(), Failure> {
        self.check_unchecked().await?;
        self.drain().await
    }

    async fn take_message(&mut self, frame: &Frame) -> Result<(), Failure> {
        loop {
            let told = self.told_for_messages();
            // What is due without a plan depends on none: descriptions of portals.
            let due = self.pipeline.expects.len();
            let of_none = if self.tx.activity.plan.exists() { 0 } else { due };
            let taken = self.take_message_once(frame).await;
            // What the flight has sent before is answered, and was not of this plan.
            let is_due = self.pipeline.expects.len();
            let is_untold = told == self.told_for_messages() && (is_due == 0 || is_due == of_none);
            if !is_untold || !self.is_unsent(&taken) {
                return taken;
            }
            // It may be a message that begins none: without one it is not stopped again, for ever.
            self.tx.activity.plan.end();
        }
    }

    /// What the client has been told except for answers that were due: those to the message that is handled.
    fn told_for_messages(&self) -> u64 {
        self.client.written().wrapping_sub(self.pipeline.passed_on)
    }

    async fn take_message_once(&mut self, frame: &Frame) -> Result<(), Failure> {
        let message = frontend::decode(frame)?;
        // A Parse waits only for the message that says where its statement will run.
        if let Some(unchecked) = &self.pipeline.unchecked
            && !concerns(&message, unchecked)
        {
            self.check_unchecked().await?;
        }
        if let Some((text, next)) = self.begun_by(&message) {
            self.begin_statement_of_flight(&text, next).await?;
        }
        match message {
            Message::Parse(parse) => self.parse(parse).await,
            Message::Bind(bind) => self.bind(frame, bind).await,
            Message::Describe(Target::Statement, name) => self.describe_statement(name).await,
            Message::Describe(Target::Portal, name) => self.describe_portal(&name).await,
            Message::Execute { portal, row_limit } => self.execute_portal(&portal, row_limit).await,
            Message::Close(target, name) => self.close(target, name).await,
            Message::Flush => {
                self.drain().await?;
                self.rest_in_flight();
                self.client.flush().await?;
                self.keep_from_here();
                Ok(())
            }
            other => unreachable!("{other:?} is not of the extended protocol"),
        }
    }

    /// The text of the statement that a message is about, and what comes of that; `None`: it has no text, or goes
    /// on with what has begun.
    fn begun_by(&self, message: &Message) -> Option<(Arc<str>, Next)> {
        let of = |name: &str| self.tx.statements.get(name)?.statement.clone();
        let (statement, next) = match message {
            Message::Parse(parse) => return Some((parse.sql.as_str().into(), Next::Nothing)),
            Message::Bind(bind) => (of(&bind.statement)?, Next::ByNode),
            Message::Describe(Target::Statement, name) => (of(name)?, Next::Nothing),
            Message::Describe(Target::Portal, portal) => match self.tx.portals.get(portal)? {
                Portal::Plan(pending) => (pending.parsed.clone(), Next::Nothing),
                _ => return None,
            },
            Message::Execute { portal, .. } if self.is_running_cursor(portal) => {
                return Some(("FETCH".into(), Next::OfPortal));
            }
            Message::Execute { portal, .. } => match self.tx.portals.get(portal)? {
                Portal::Plan(pending) => (pending.parsed.clone(), Next::ByExecutor),
                Portal::Node { bound: Some(bound), runs, .. } if self.begins_anew(bound, *runs) => {
                    (bound.statement.clone(), Next::ByNode)
                }
                Portal::Node { bound: Some(bound), .. }
                    if !self.tx.activity.plan.is_still(bound.plan_number) =>
                {
                    (bound.statement.clone(), Next::OfPortal)
                }
                _ => return None,
            },
            _ => return None,
        };
        Some((statement.text.as_str().into(), next))
    }

    /// Whether a portal was bound and does not run yet, has no locks on all that it uses, and changes have not
    /// seen the plan that it was bound with ever since: executing it is the beginning of a statement.
    fn begins_anew(&self, bound: &Bound, runs: bool) -> bool {
        bound.begins(runs) && !self.tx.activity.plan.is_still(bound.plan_number)
    }

    /// Whether a name is that of an SQL cursor whose query runs when rows are asked for.
    fn is_running_cursor(&self, name: &str) -> bool {
        let is_portal = self.tx.portals.contains_key(name);
        !is_portal && self.tx.cursors.get(name).is_some_and(|cursor| !cursor.has_all_rows())
    }

    fn statement(&self, name: &str) -> Result<&PreparedStatement, Failure> {
        self.tx.statements.get(name).ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            Failure::error("26000", message)
        })
    }

    /// A client's portal; SQL cursors are portals too.
    fn portal(&self, name: &str) -> Result<Portal, Failure> {
        if let Some(portal) = self.tx.portals.get(name) {
            return Ok(portal.clone());
        }
        match self.tx.cursors.get(name) {
            Some(_) if self.tx.transaction.unseen.is_some() => {
                Err(crate::executor::unseen::cursor_of_unseen_code())
            }
            Some(cursor) if cursor.beside.is_some() => {
                self.tx.refuse_declared_otherwise(cursor)?;
                Ok(Portal::Beside)
            }
            Some(cursor) => {
                let (node, access) = (cursor.node, Access::Write);
                self.tx.refuse_declared_otherwise(cursor)?;
                Ok(Portal::Node { node, access, copies: false, bound: None, runs: true })
            }
            None => Err(Failure::error("34000", format!("portal \"{name}\" does not exist"))),
        }
    }

    /// The statement's plan, made again if the catalog or the meaning of names has changed.
    pub(in crate::session) fn plan_of(&mut self, name: &str) -> Result<Arc<Planned>, Failure> {
        self.tx.refresh_catalog();
        let basis = self.tx.basis();
        let statement = self.statement(name)?;
        if let Some(cached) = &statement.plan
            && Some(cached.basis) == basis
            && !self.tx.has_older_snapshot()
        {
            let planned = cached.planned.clone();
            self.tx.takes_snapshot = takes_snapshot(&planned.plan);
            return Ok(planned);
        }
        let Some(parsed) = statement.statement.clone() else {
            let why = "the statement is empty".to_owned();
            return Ok(Arc::new(Planned::new(SessionPlan::Empty, why)));
        };
        let types = statement.types_given.clone();
        let planned = self.tx.plan(&parsed)?;
        // A server reads parameters where it runs the statement, which may run code of their types.
        tutti_sql::planner::refuse_types(&types, &self.tx.catalog, &self.tx.scope)?;
        if planned.unseen.is_some() {
            tutti_sql::planner::refuse_analysis(&parsed.text, &self.tx.catalog, &self.tx.scope)?;
        }
        // So does its analysis by a node, which precedes execution.
        self.tx.takes_snapshot = takes_snapshot(&planned.plan);
        if let (Some(basis), Some(statement)) = (basis, self.tx.statements.get_mut(name)) {
            statement.plan = Some(CachedPlan { basis, planned: planned.clone() });
        }
        Ok(planned)
    }
}

/// Whether it only says that the transaction has failed before.
fn is_of_failed(failure: &Failure) -> bool {
    matches!(failure, Failure::Statement(error) if error.sqlstate() == "25P02")
}

/// Whether a message tells where the statement `name`, parsed just before, will run.
fn concerns(message: &Message, name: &str) -> bool {
    match message {
        Message::Bind(bind) => bind.statement == name,
        Message::Describe(Target::Statement, described) => described == name,
        _ => false,
    }
}
