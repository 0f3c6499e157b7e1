//! The simple protocol: a string of statements, answered one by one.
//!
//! Owns: splitting a Query into statements, the implicit transaction around several of them, and
//! what happens when one fails.
//! Never: runs a statement (the executor does).

use std::sync::Arc;
use std::time::Instant;

use tutti_link::connection::UNKNOWN_OUTCOME;
use tutti_sql::plan::{
    Access, DataPlan, NodeChoice, Plan, Planned, PreparedCommand, RequestCall, SessionPlan,
    TuttiCall,
};
use tutti_sql::statement::Statement;
use tutti_wire::backend::{put_bare, put_command_complete};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::Frame;
use tutti_wire::frontend::{self, Message};

use crate::client::ClientError;
use crate::client::failure::{Failure, as_fatal};
use crate::executor::unseen;
use crate::plans::apart;
use crate::plans::reading::SMALL_BYTES;
use crate::plans::request::{Call, Done};
use crate::session::Session;
use crate::transaction::Mode;
use crate::transaction::planning::{ByShape, Parsed, transaction_failed};

/// Where a statement stands in a Query message.
#[derive(Clone, Copy)]
struct PlaceInText<'a> {
    text: &'a str,
    is_first: bool,
    /// There are several statements in it.
    several: bool,
    last: bool,
}

impl Session {
    /// Answers a Query message, with ReadyForQuery at the end whatever happens.
    pub(super) async fn simple_query(&mut self, frame: &Frame) -> Result<(), ClientError> {
        if self.is_skipping() {
            return Ok(());
        }
        if let Err(failure) = self.quiet_pipeline().await {
            // The error belongs to messages of the extended protocol, which only Sync ends.
            return self.skip_on_failure(Err(failure)).await;
        }
        if !self.tx.transaction.failed {
            self.tx.portals.remove("");
        }
        self.tx.statements.remove("");
        let ran = self.run_string(frame).await;
        self.end_statement(ran).await
    }

    /// What follows the answer to a message that ends with ReadyForQuery.
    pub(super) async fn end_statement(
        &mut self,
        ran: Result<(), Failure>,
    ) -> Result<(), ClientError> {
        if ran.is_err() {
            Box::pin(self.report(ran)).await?;
        }
        self.tx.undo_failed().await;
        self.tx.release_exporters();
        self.pass_notifications();
        self.client.put_ready(self.tx.transaction.status());
        Ok(())
    }

    /// Answers a FunctionCall message: node 1 runs it, for large objects, which such calls are made
    /// for, are there.
    pub(super) async fn function_call(&mut self, frame: &Frame) -> Result<(), ClientError> {
        if self.is_skipping() {
            return Ok(());
        }
        if let Err(failure) = self.quiet_pipeline().await {
            return self.skip_on_failure(Err(failure)).await;
        }
        self.tx.residue.anything = true;
        self.tx.residue.values = true;
        let ran = match self.tx.transaction.failed {
            true => Err(transaction_failed()),
            false => self.run_function_call(frame).await,
        };
        self.report(ran).await?;
        self.tx.undo_failed().await;
        self.client.put_ready(self.tx.transaction.status());
        Ok(())
    }

    async fn run_function_call(&mut self, frame: &Frame) -> Result<(), Failure> {
        self.begin_statement("").await?;
        if self.tx.catalog.is_solo() {
            return self.executor().forward_function_call(frame).await;
        }
        let function = frame.body().first_chunk().copied().map(u32::from_be_bytes);
        if function.is_some_and(|oid| self.tx.catalog.code.built_in().touches_no_table(oid)) {
            self.executor().forward_function_call(frame).await?;
            if self.tx.transaction.mode == Mode::Implicit {
                self.commit().await?;
            }
            return Ok(());
        }
        if self.tx.catalog.code.may_hide() {
            return Err(Failure::unsupported(
                "a function cannot be called by a message of the protocol here",
                "Some function sets track_counts or max_parallel_workers, and it may be this one: a \
                 server could be kept from telling what it has touched.",
                "Call it by SELECT.",
            ));
        }
        self.executor().begin_accounting(
            &unseen::of_function_call(),
            &Plan::Session(SessionPlan::Empty),
            "",
            &Call::Simple,
        );
        let ran = self.executor().forward_function_call(frame).await;
        self.executor().finish_accounting(ran).await?;
        if self.tx.transaction.mode == Mode::Implicit {
            self.commit().await?;
        }
        Ok(())
    }

    /// Writes an error. One that ends the session is the last that the client is sent.
    pub(super) async fn put_failure(&mut self, error: ErrorFields) -> Result<(), ClientError> {
        if error.get(b'R') == Some("RevalidateCachedQuery") && self.tx.catalog.is_solo() {
            // Code has changed the schema without being noted: statements have to be parsed again.
            self.tx.registry.cluster.publisher.note_changed();
        }
        let error = match self.tx.ended_by.take() {
            // It is the last that the client is told about its transaction, and the session ends
            // with it.
            Some(_) if error.sqlstate() == UNKNOWN_OUTCOME => as_fatal(error),
            Some(why) => why,
            None => self.tx.activity.reword(error),
        };
        self.client.put_error(&error);
        if error.is_fatal() {
            self.client.flush().await?;
            return Err(ClientError::SentAway);
        }
        Ok(())
    }

    /// Tells the client of a failure, and fails or ends the transaction it happened in.
    pub(super) async fn report(&mut self, ran: Result<(), Failure>) -> Result<(), ClientError> {
        match ran {
            Ok(()) => Ok(()),
            Err(Failure::Client(error)) => Err(error),
            Err(Failure::Statement(error)) => {
                // If what bound the session is lost with it, this is the last that the client is
                // sent.
                self.tx.fail_transaction();
                self.put_failure(*error).await?;
                if self.tx.transaction.mode == Mode::Implicit {
                    self.rollback().await;
                }
                Ok(())
            }
        }
    }

    async fn run_string(&mut self, frame: &Frame) -> Result<(), Failure> {
        let Message::Query(text) = frontend::decode(frame)? else {
            unreachable!("called for Query only");
        };
        let is_outside = self.tx.transaction.mode == Mode::None;
        let begun = Instant::now();
        let mut overtaken = 0_u32;
        loop {
            let written = self.client.written();
            let ran = self.run_text(&text).await;
            self.tx.starving = None;
            self.tx.locks_in_turn = false;
            let said = self.client.said_again(written);
            if is_outside
                && let Some(start) = said
                && self.is_to_run_again(&ran, overtaken)
            {
                self.take_back(start, &mut overtaken);
                if self.tx.transaction.is_open() {
                    self.rollback().await;
                }
                self.heed_timeout(begun).await?;
            } else if written != self.client.written() || !self.is_unsent(&ran) {
                return ran;
            }
        }
    }

    async fn run_text(&mut self, text: &str) -> Result<(), Failure> {
        self.begin_statement(text).await?;
        let by_shape = self.tx.plan_by_shape(text)?;
        if let ByShape::Plan { planned, statement } = by_shape {
            let statement = if self.is_seen_whole(&planned) { 0..text.len() } else { statement };
            let offset = statement.start;
            let ran = self.run_planned(&planned, &text[statement], false, true).await;
            return ran.map_err(|failure| shift_position(failure, text, offset));
        }
        let statements = match self.parse_text(text).await? {
            Parsed::Statements(statements) => statements,
            Parsed::ByNodesOnly(_) => {
                // Whatever they are.
                self.tx.residue.anything = true;
                self.tx.residue.values = true;
                self.tx.residue.schema = true;
                let (node, access) = (NodeChoice::Home, Access::Write);
                let plan = Plan::Data(DataPlan::One { node, access, otherwise: None });
                let planned = Planned::new(plan, "only node 1 can read it");
                return self.run_planned(&planned, text, false, true).await;
            }
        };
        if statements.is_empty() {
            put_bare(self.client.out(), b'I');
            return Ok(());
        }
        // Several statements in one message are one transaction, unless they say otherwise.
        let (count, several) = (statements.len(), 1 < statements.len());
        let all: Vec<_> = statements.iter().cloned().collect();
        drop(statements);
        for (index, statement) in all.into_iter().enumerate() {
            if several && self.tx.transaction.mode == Mode::None {
                self.tx.open_transaction(Mode::Implicit);
            }
            let last = index + 1 == count;
            // One whose text is kept can be planned again alone; what was before it stays done.
            let again =
                (0 < index && statement.text.len() < SMALL_BYTES).then(|| statement.clone());
            let learns = matches!(by_shape, ByShape::Unknown);
            let place = PlaceInText { text, is_first: index == 0, several, last };
            let written = self.client.written();
            let mut ran = self.run_one(place, statement, learns).await;
            while let Some(statement) = &again
                && written == self.client.written()
                && self.is_unsent(&ran)
            {
                ran = self.run_one(place, statement.clone(), learns).await;
            }
            ran?;
        }
        Ok(())
    }

    /// Plans and runs one of a text's statements. `learns`: another text of this shape will be planned alike.
    async fn run_one(
        &mut self,
        place: PlaceInText<'_>,
        statement: Arc<Statement>,
        learns: bool,
    ) -> Result<(), Failure> {
        let PlaceInText { text, is_first, several, last } = place;
        let mut offset = statement.offset;
        let ran = async {
            if !is_first {
                self.begin_statement(&statement.text).await?;
            }
            let planned = self.tx.plan(&statement)?;
            if !planned.plan.is_read_by_a_node() {
                // Rows that travel would be taken for the values.
                statement.refuse_parameters()?;
            }
            if learns {
                self.tx.learn_shape(text, &statement, &planned);
            }
            let whole = !several && statement.distribute_by.is_none();
            let (kept, without_tree);
            let sql = match statement.text.len() < SMALL_BYTES {
                true => {
                    kept = statement;
                    &*kept.text
                }
                false => {
                    without_tree = self.drop_tree(statement, last);
                    &*without_tree
                }
            };
            // One of which something was taken out is not what the client wrote.
            let is_as_written =
                || text.get(offset..).is_some_and(|written| written.starts_with(sql));
            if whole && self.is_seen_whole(&planned) && is_as_written() {
                offset = 0;
                return self.run_planned(&planned, text, several, last).await;
            }
            self.run_planned(&planned, sql, several, last).await
        };
        let ran = ran.await;
        ran.map_err(|failure| shift_position(failure, text, offset))
    }

    /// The text of a large statement, whose tree is not needed while it runs.
    fn drop_tree(&mut self, statement: Arc<Statement>, last: bool) -> String {
        let text = statement.text.clone();
        apart(&text, || drop(statement));
        if last {
            self.tx.reading = None;
        }
        text
    }

    /// Whether the client's whole string, with semicolon and comments, is sent to the node or
    /// session for a lone statement: views show it like that.
    fn is_seen_whole(&self, planned: &Planned) -> bool {
        let is_passed_on = matches!(
            planned.plan,
            Plan::Data(DataPlan::One { .. }) | Plan::Data(DataPlan::DeclareCursor { .. })
        ) && planned.session_names.is_empty()
            && self.tx.catalog.is_solo();
        is_passed_on
            || matches!(
                planned.plan,
                Plan::Session(SessionPlan::PreparedCommand(PreparedCommand::Prepare { .. }))
            )
    }

    async fn run_planned(
        &mut self,
        planned: &Planned,
        text: &str,
        several: bool,
        last: bool,
    ) -> Result<(), Failure> {
        // VACUUM and the like are refused by nodes inside a block; a lone one is not in a block.
        let ends_itself = matches!(
            planned.plan,
            Plan::Session(
                SessionPlan::Transaction(_)
                    | SessionPlan::Tutti(TuttiCall::Request(RequestCall::Commit { .. }))
            )
        );
        if self.tx.transaction.mode == Mode::Implicit && !several {
            // After messages of a flight, which are no block.
            for statement in tutti_sql::statement::parse(text)? {
                self.tx.refuse_outside_block(&statement)?;
            }
        }
        let done = self.execute(planned, text, &Call::Simple).await?;
        if self.tx.transaction.mode == Mode::Implicit && !ends_itself && (last || !several) {
            self.commit().await?;
        }
        self.tell(done);
        Ok(())
    }

    /// Writes the end of a statement.
    pub(crate) fn tell(&mut self, done: Done) {
        match done {
            Done::Told => (),
            Done::Tag(tag) => put_command_complete(self.client.out(), &tag),
            Done::Empty => put_bare(self.client.out(), b'I'),
        }
    }
}

/// Positions in errors count from the statement that a node saw; the client sent the whole string.
fn shift_position(failure: Failure, text: &str, offset: usize) -> Failure {
    let Failure::Statement(mut error) = failure else { return failure };
    let shift = text.get(..offset).map_or(0, |before| before.chars().count());
    if 0 < shift {
        shift_field(&mut error, shift);
    }
    Failure::Statement(error)
}

fn shift_field(error: &mut ErrorFields, shift: usize) {
    for (code, value) in &mut error.fields {
        if *code == b'P'
            && let Ok(position) = value.parse::<usize>()
        {
            *value = (position + shift).to_string();
        }
    }
}
