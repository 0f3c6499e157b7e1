//! A connection to a node, used by one session at a time, with what sessions have left there.
//!
//! Owns: which prepared statements the node knows by which name, answers that no client may see,
//! and what must be cleaned before another session gets it.
//! Never: chooses what to send.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::{Bytes, BytesMut};
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::Residue;
use tutti_wire::backend::{decode_parameter_description, put_parameter_description};
use tutti_wire::copy::{BINARY_HEADER_LEN, BINARY_SIGNATURE, BINARY_TRAILER};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::{Frame, HEADER_LEN, WireError};
use tutti_wire::frontend::{Arguments, put_bind, put_execute, put_flush, put_parse, put_query};
use tutti_wire::sqlstate;

use super::backends::{Backend, Backends, Workers};
use super::{Known, SessionState, Slot};
use crate::connection::{
    ASK_MOMENT, HIDE_PARAMETERS, Misreading, NodeConnection, NodeError, Rows, put_statement,
};
use crate::seals::{Seals, Warranted};
use crate::translation::{FIRST_NORMAL_OID, Numbering, OidMaps, PublishedOids};

/// Identifies a client's prepared statement for as long as the session lives: names are reused.
pub type StatementId = u64;

/// How often a query of the gateway's is tried that is hit by cancel requests, or by a tiny
/// `statement_timeout`.
const ATTEMPTS: u32 = 50;

/// An answer that has not been read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Unread {
    /// Of a silent query: matters if it is a refusal.
    Silent,
    /// Of a statement that was abandoned because something failed elsewhere.
    Abandoned,
    /// Of a BEGIN with no ReadyForQuery of its own.
    Begun,
    /// Of what comes ahead of a statement in its flight (a look, for example), likewise.
    Ahead,
}

/// What all links of a gateway share.
#[derive(Debug)]
pub struct Surroundings {
    /// By which nodes recognise the gateway's own statements.
    pub seals: Arc<Seals>,
    /// Which session each backend works for.
    pub backends: Arc<Backends>,
    /// How nodes number types and tables.
    pub oids: Arc<dyn PublishedOids>,
}

/// A connection to a node that serves one session, or waits for the next.
#[derive(Debug)]
pub struct Link {
    surroundings: Arc<Surroundings>,
    connection: NodeConnection,
    backend: Arc<Backend>,
    /// Where it is noted that the backend works for the session.
    workers: Option<Arc<Workers>>,
    _slot: Slot,
    /// Answers that precede the next one, oldest first.
    unread: VecDeque<Unread>,
    /// An answer is due that a caller is about to read.
    awaited: bool,
    /// Messages of a client's flight were written for it, and their Sync is not answered.
    is_in_flight: bool,
    /// Where they begin in what is written and not sent yet, if anything of them is.
    flight_from: usize,
    /// What a silent query was refused with, found while waiting for something else.
    refused: Option<NodeError>,
    /// Something silent was refused: the connection is not in the expected state.
    spoiled: bool,
    /// Named statements that the node knows, of all clients.
    pub known: Known,
    /// The client's statement that is the node's unnamed one.
    pub unnamed: Option<StatementId>,
    /// The node has the client's unnamed portal.
    pub unnamed_portal: bool,
    /// What the node has prepared for the session that it serves, or served last, by PREPARE: names, and
    /// which statements they were.
    pub sql_statements: Vec<(String, StatementId)>,
    /// Number of the session that it serves, or served last; 0: none yet.
    pub owner: u64,
    owner_lives: Weak<Workers>,
    /// The settings that it has.
    pub state: Arc<SessionState>,
    /// Code there has seen a part of a table: the server may have kept what it computed from that in a
    /// plan, as the value of a function declared IMMUTABLE.
    pub has_seen_parts: bool,
    /// Temporary tables of the gateway's own were made on it: its schema of temporary objects would be seen by others.
    pub has_had_tables: bool,
    /// Its owner has made temporary objects on it, which are gone: their schema stays as long as the connection, is
    /// in the search path, and is the owner's.
    pub has_temporary_schema: bool,
    /// What its owner has left there beyond these.
    pub residue: Residue,
    /// A name with a dot has been set: the server never forgets such a name, and RESET leaves it an
    /// empty value, which differs from what a session sees that never set it.
    pub has_placeholders: bool,
    /// How the nodes number what the session's transaction has created, and the rest.
    pub own: Option<Numbering>,
    /// Types of the columns of the rows that come next, see [`Numbering::numbered`].
    numbered: Option<Arc<[u32]>>,
    /// Generation of the node's connections that it belongs to; older ones are not handed out.
    pub generation: u64,
    /// The pool's count of renewals when it was opened.
    pub renewal: u64,
    /// Since when it has been idle, in ticks of the pool.
    pub idle_since_tick: u64,
}

impl Link {
    /// Wraps a fresh connection.
    pub fn new(
        surroundings: Arc<Surroundings>,
        connection: NodeConnection,
        backend: Arc<Backend>,
        slot: Slot,
    ) -> Box<Self> {
        Box::new(Self {
            surroundings,
            connection,
            backend,
            workers: None,
            _slot: slot,
            unread: VecDeque::new(),
            awaited: false,
            is_in_flight: false,
            flight_from: 0,
            refused: None,
            spoiled: false,
            known: Known::default(),
            unnamed: None,
            unnamed_portal: false,
            sql_statements: Vec::new(),
            owner: 0,
            owner_lives: Weak::new(),
            state: Arc::default(),
            has_seen_parts: false,
            has_had_tables: false,
            has_temporary_schema: false,
            residue: Residue::default(),
            has_placeholders: false,
            own: None,
            numbered: None,
            generation: 0,
            renewal: 0,
            idle_since_tick: 0,
        })
    }

    /// Which node it leads to.
    pub fn node(&self) -> NodeId {
        self.connection.node()
    }

    /// Whether something on it belongs to a session that may come back for it.
    pub fn is_kept_for_somebody(&self) -> bool {
        let Residue { sequences, notifies, values, .. } = &self.residue;
        (*sequences || *notifies || *values) && self.has_living_owner()
    }

    /// Whether the session that it has served last may come back.
    pub fn has_living_owner(&self) -> bool {
        self.owner_lives.strong_count() != 0
    }

    /// Whether no session has used it yet.
    pub fn is_new(&self) -> bool {
        self.owner == 0
    }

    /// From now on its backend works for this session.
    pub fn work_for(&mut self, workers: &Arc<Workers>) {
        workers.add(self.backend.clone());
        self.workers = Some(workers.clone());
        self.owner_lives = Arc::downgrade(workers);
        self.connection.note_own_commit(false);
    }

    /// The session no longer uses it: from now on its backend is not aimed at.
    ///
    /// True if another session can have it immediately. Otherwise a cancel request is still on its
    /// way: [`Self::wait_until_delivered`].
    pub fn stop_work(&mut self) -> bool {
        if let Some(workers) = self.workers.take() {
            workers.remove(&self.backend);
        }
        self.unnamed = None;
        self.unnamed_portal = false;
        !self.backend.is_aimed_at()
    }

    /// Waits until no cancel request is on its way to the backend.
    pub async fn wait_until_delivered(&self) {
        self.backend.wait_until_delivered().await;
    }

    /// Appends a RowDescription or ParameterDescription of this node, in node 1's OIDs. Rows that come next are understood
    /// by it.
    pub fn put_description(&mut self, out: &mut BytesMut, frame: &Frame) -> Result<(), WireError> {
        let node = self.connection.node();
        match frame.tag() {
            b'T' if node != NodeId::HOME => {
                let at = out.len();
                out.extend_from_slice(frame.as_bytes());
                // Of texts, which say no numbers, nothing is kept.
                let (mut columns, mut count) = (Vec::new(), 0);
                self.oids().description_to_home(node, &mut out[at..], |type_oid, format| {
                    if format == 1 {
                        columns.resize(count, (0, 0));
                        columns.push((type_oid, format));
                    }
                    count += 1;
                })?;
                self.numbered = match columns.is_empty() {
                    true => None,
                    false => self.numbering().numbered(node, columns.into_iter()),
                };
                return Ok(());
            }
            b't' if node != NodeId::HOME => {
                let types = decode_parameter_description(frame)?;
                put_parameter_description(out, &self.oids().types_to_home(node, &types));
                return Ok(());
            }
            _ => (),
        }
        out.extend_from_slice(frame.as_bytes());
        Ok(())
    }

    /// Appends a NotificationResponse. The sender is given by its session's number, if it is one of
    /// this gateway's.
    pub fn put_notification(&self, out: &mut BytesMut, frame: &Frame) {
        let at = out.len() + HEADER_LEN;
        out.extend_from_slice(frame.as_bytes());
        let Some(place) = out.get_mut(at..at + 4) else { return };
        let sender = i32::from_be_bytes(place.try_into().expect("four bytes"));
        if let Some(session) = self.surroundings.backends.session_of(self.node(), sender) {
            place.copy_from_slice(&session.to_be_bytes());
        }
    }

    /// Parameter types, which the client gives in node 1's OIDs, in this node's.
    pub fn types_here(&self, types: &[u32]) -> Vec<u32> {
        match self.connection.node() {
            NodeId::HOME => types.to_vec(),
            _ if types.iter().all(|oid| *oid < FIRST_NORMAL_OID) => types.to_vec(),
            node => self.oids().types_from_home(node, types),
        }
    }

    fn oids(&self) -> Arc<OidMaps> {
        match &self.own {
            Some(own) => own.oids.clone(),
            None => self.surroundings.oids.oids(),
        }
    }

    fn numbering(&self) -> Numbering {
        self.own.clone().unwrap_or_else(|| self.surroundings.oids.numbering())
    }

    /// Rows of these columns come next: the types, as node 1 numbers them, and the formats.
    pub fn numbered(&self, columns: impl Iterator<Item = (u32, i16)>) -> Option<Arc<[u32]>> {
        match self.connection.node() {
            NodeId::HOME => None,
            node => self.numbering().numbered(node, columns),
        }
    }

    /// An answer is about to be read: what its rows are is not known yet.
    pub fn begin_answer(&mut self) {
        self.numbered = None;
    }

    /// Whether rows say numbers that node 1 may have given otherwise: [`Self::put_row`] is for these.
    pub fn has_numbered_rows(&self) -> bool {
        self.numbered.is_some()
    }

    /// Whether its node numbers some types or tables otherwise than node 1.
    fn numbers_otherwise(&self) -> bool {
        let node = self.connection.node();
        node != NodeId::HOME && self.oids().differs(node)
    }

    /// What its node has sent in a CopyData message, in binary format, in node 1's OIDs: columns of these types, as node 1
    /// numbers them. (Servers send each row by itself.)
    pub fn copied_to_home<'d>(
        &self,
        types: &[u32],
        data: &'d [u8],
    ) -> Result<Cow<'d, [u8]>, WireError> {
        if !self.copies_numbers(types) {
            return Ok(Cow::Borrowed(data));
        }
        let mut data = data.to_vec();
        let has_header = data.starts_with(BINARY_SIGNATURE);
        let at = if has_header { BINARY_HEADER_LEN.min(data.len()) } else { 0 };
        let row = &mut data[at..];
        if row.len() > BINARY_TRAILER.len() {
            self.numbering().fields_to_home(self.node(), types, row)?;
        }
        Ok(Cow::Owned(data))
    }

    /// A row for a COPY in binary format, which the client gives in node 1's OIDs, in its node's.
    pub fn copied_here<'d>(&self, types: &[u32], row: &'d [u8]) -> Cow<'d, [u8]> {
        match self.copies_numbers(types) {
            true => Cow::Owned(self.numbering().fields_there(self.node(), types, row)),
            false => Cow::Borrowed(row),
        }
    }

    /// Whether a COPY of columns of these types, those whose values say OIDs, has other numbers at its node.
    pub fn copies_numbers(&self, types: &[u32]) -> bool {
        !types.is_empty() && self.numbers_otherwise()
    }

    /// Appends a DataRow, in node 1's OIDs.
    pub fn put_row(&self, out: &mut BytesMut, frame: &Frame) -> Result<(), WireError> {
        self.put_row_of(out, frame, self.numbered.as_deref())
    }

    /// The same where the columns are these.
    pub fn put_row_of(
        &self,
        out: &mut BytesMut,
        frame: &Frame,
        numbered: Option<&[u32]>,
    ) -> Result<(), WireError> {
        let at = out.len();
        out.extend_from_slice(frame.as_bytes());
        match numbered {
            Some(types) => self.numbering().row_to_home(self.node(), types, &mut out[at..]),
            None => Ok(()),
        }
    }

    /// Parameters, which the client gives in node 1's OIDs where they say such, in this node's.
    pub fn arguments_here<'a>(
        &self,
        types: &[u32],
        arguments: &'a Arguments,
    ) -> Cow<'a, Arguments> {
        match self.connection.node() {
            NodeId::HOME => Cow::Borrowed(arguments),
            _ if !arguments.formats.contains(&1) => Cow::Borrowed(arguments),
            node => self.numbering().arguments_there(node, types, arguments),
        }
    }

    /// Whether values of these types may have to be changed: see [`Self::arguments_here`].
    pub fn may_number_otherwise(&self, types: &[u32]) -> bool {
        match self.connection.node() {
            NodeId::HOME => false,
            node => {
                let Numbering { oids, catalog } = self.numbering();
                oids.differs(node) && types.iter().any(|oid| catalog.code.says_numbers(*oid))
            }
        }
    }

    /// Whether a client that wants these results gets some in binary format that may have to be changed: they must be
    /// described before they come.
    pub fn must_describe(&self, arguments: &Arguments) -> bool {
        arguments.result_formats.contains(&1) && self.numbers_otherwise()
    }

    /// The connection, for writing, and for reading once [`Self::catch_up`] has returned.
    pub fn connection(&mut self) -> &mut NodeConnection {
        &mut self.connection
    }

    /// Ends whatever transaction is open there, after a silent query or a cancelled ROLLBACK has left it in
    /// one. False: that was not possible. Requires: nothing silent sets anything outside of
    /// transactions.
    pub async fn mend(&mut self) -> bool {
        let ended = self.catch_up().await.is_ok() && self.ask("ROLLBACK").await.is_ok();
        self.spoiled &= !ended;
        ended
    }

    /// Sees to it that no transaction is open there, where none should be: a silent query that was to end one may have been
    /// cancelled.
    ///
    /// Errors: it is lost.
    pub async fn be_in_none(&mut self) -> Result<(), NodeError> {
        if !self.is_quiet() {
            self.come_to_rest().await?;
        }
        if self.spoiled && !self.mend().await {
            self.connection.note_end();
            return Err(NodeError::not_connected(self.node()));
        }
        Ok(())
    }

    /// Runs a query of the gateway's after a client's statement, repeatedly until no cancel request hits
    /// it: those are meant for the statement. Requires: running it more than once does no harm.
    pub async fn ask(&mut self, sql: &str) -> Result<Vec<Rows>, NodeError> {
        let is_cancelled = |asked: &Result<_, NodeError>| {
            matches!(asked,
            Err(NodeError::Refused(error)) if error.sqlstate() == sqlstate::QUERY_CANCELED)
        };
        let mut asked = self.query(sql).await;
        for _ in 1..ATTEMPTS {
            if !is_cancelled(&asked) || self.is_broken() {
                break;
            }
            asked = self.query(sql).await;
        }
        asked
    }

    /// The same for queries that the client's `statement_timeout` must not end: they take as long as they take, and it
    /// may be shorter. `is_in_block`: a transaction block is open there, which goes on with the timeout that it had.
    pub async fn ask_unhurried(
        &mut self,
        sql: &str,
        is_in_block: bool,
    ) -> Result<Vec<Rows>, NodeError> {
        // A timeout applies to each statement of a query by itself. One that is set in a block is its own until the end,
        // or until what has set it is undone.
        let unhurried = "SET LOCAL statement_timeout = 0";
        let (sql, around) = match is_in_block {
            true => (
                format!(
                    "SAVEPOINT tutti_asks; {unhurried}; {sql}; \
                     ROLLBACK TO SAVEPOINT tutti_asks; RELEASE SAVEPOINT tutti_asks"
                ),
                (2, 2),
            ),
            // The end of the query is that of what it sets.
            false => (format!("{unhurried}; {sql}"), (1, 0)),
        };
        let (before, behind) = around;
        let mut answers = self.ask(&sql).await?;
        answers.truncate(answers.len().saturating_sub(behind));
        answers.drain(..before.min(answers.len()));
        Ok(answers)
    }

    /// Whether the connection can no longer be used.
    pub fn is_broken(&self) -> bool {
        self.connection.is_broken() || self.connection.misreading().is_some()
    }

    /// Why the session must end, if its server reads texts differently from the gateway.
    pub fn misread(&self) -> Option<ErrorFields> {
        self.connection.misreading().map(Misreading::to_fields)
    }

    /// Whether its server has reported, after the last answer, that it is in no transaction.
    pub fn is_outside_transaction(&self) -> bool {
        self.connection.is_outside_transaction()
    }

    /// Whether a silent query was refused on it: it must not serve another session.
    pub fn is_spoiled(&self) -> bool {
        self.spoiled
    }

    /// Appends a query whose answer only matters if it is an error. It is sent with whatever is
    /// flushed next.
    ///
    /// Requires: in a transaction block. Outside, what follows would run, and be committed, although this was refused, and
    /// its client be told of the refusal.
    pub fn put_silent(&mut self, sql: &str) {
        self.begin();
        self.awaited = false;
        put_query(self.connection.outgoing(), sql);
        self.unread.push_back(Unread::Silent);
    }

    /// What is sent next has values of the gateway's own, which code that it runs must not see; see
    /// [`HIDE_PARAMETERS`]. By the extended protocol, in one flight with this: if this fails, the node skips it, and
    /// where no transaction is open, it would not hold for it otherwise.
    pub fn put_hidden(&mut self) {
        self.begin();
        self.awaited = false;
        let out = self.connection.outgoing();
        put_parse(out, "", HIDE_PARAMETERS, &[]);
        put_bind(out, "", "", &Arguments::default());
        put_execute(out, "", 0);
        // Answered now, not with the statement: whoever waits for several nodes must see which of them runs it.
        put_flush(out);
        self.unread.push_back(Unread::Ahead);
    }

    /// Forgets all its prepared statements: it is no longer known what they are.
    pub fn forget_prepared(&mut self) {
        self.known = Known::default();
        self.unnamed = None;
    }

    /// The same for one statement with a value that no one else may see: servers do not show parameters.
    ///
    /// Requires: no BEGIN is unanswered. This ends with a Sync, after which a node that has refused BEGIN would run what
    /// follows, and commit it by itself.
    pub fn put_silent_with(&mut self, sql: &str, value: &str) {
        assert!(!self.owes_begin(), "a Sync behind a BEGIN that is not answered");
        self.begin();
        self.awaited = false;
        let value = Some(Bytes::copy_from_slice(value.as_bytes()));
        put_statement(self.connection.outgoing(), sql, vec![value]);
        self.unread.push_back(Unread::Silent);
    }

    /// What is sent next may change the schema of this node, which guards it unless it is node 1: one statement,
    /// or several if `is_many`, provided that no user-defined code runs between them. In a transaction block,
    /// until whose end it is valid at the latest; see `guard.sql`. Requires: as [`Self::put_silent_with`].
    pub fn put_warrant(&mut self, is_many: bool) {
        self.put_warrant_for(if is_many { Warranted::Many } else { Warranted::One });
    }

    /// The same outside of a transaction, for one command that commits by itself: its end is the caller's to tell
    /// (`tutti.end_warrants`).
    pub fn put_lone_warrant(&mut self, command: Warranted) {
        self.put_warrant_for(command);
    }

    fn put_warrant_for(&mut self, scope: Warranted) {
        if self.node() != NodeId::HOME {
            let warrant = self.surroundings.seals.warrant(&self.connection, scope);
            self.put_silent_with("SELECT tutti.give_warrant($1)", &warrant);
        }
    }

    /// Appends BEGIN. It is sent with whatever is flushed next, which does not run without it: a statement
    /// sent after a BEGIN with an answer of its own would run, and commit, even where BEGIN has failed, as
    /// it does when a cancel request arrives at that moment. So BEGIN is sent by the extended protocol
    /// without Sync: if it fails, the node skips what follows. Its answer comes with the next statement's.
    pub fn put_begin(&mut self, sql: &str) {
        self.begin();
        self.awaited = false;
        let out = self.connection.outgoing();
        put_parse(out, "", sql, &[]);
        put_bind(out, "", "", &Arguments::default());
        put_execute(out, "", 0);
        self.unread.push_back(Unread::Begun);
    }

    /// The same, and a silent query after it, which may be empty: both are answered immediately, for a caller
    /// that waits for several nodes must know which of them is running the statement.
    ///
    /// Flush would not do. A `statement_timeout` that runs out at the very end of BEGIN is reported when the
    /// next message is read. If that is Flush, the node skips what follows up to a Sync, simple queries too,
    /// which are then never answered; a simple query fails in its place, with the one answer that is due.
    pub fn put_begin_answered(&mut self, sql: &str, silent: &str) {
        self.put_begin(sql);
        self.put_silent(silent);
    }

    /// Begins a transaction, and waits until it has begun: if it is refused, the connection is unchanged.
    pub async fn begin_at_once(&mut self, sql: &str) -> Result<(), NodeError> {
        let begun = self.query(sql).await;
        let is_half_way = begun.is_err() && !self.is_broken() && !self.is_outside_transaction();
        if is_half_way && !self.mend().await {
            self.connection.note_end();
        }
        begun.map(drop)
    }

    /// Appends the analysis of a statement, which locks the tables that it names, and then a check whether
    /// the transaction's snapshot is too old for these `relations`. What is appended next is the
    /// statement, by the extended protocol: if the check fails, the node skips it.
    pub fn put_age_check(&mut self, sql: &str, types: &[u32], relations: &[u32]) {
        self.begin();
        self.awaited = false;
        let oids: Vec<_> = relations.iter().map(u32::to_string).collect();
        let oids = Some(Bytes::from(format!("{{{}}}", oids.join(","))));
        let out = self.connection.outgoing();
        put_parse(out, "", sql, types);
        put_parse(out, "", "SELECT tutti.refuse_rewritten($1)", &[]);
        put_bind(out, "", "", &Arguments { values: vec![oids], ..Arguments::default() });
        put_execute(out, "", 0);
        // Answered now, not with the statement: whoever waits for several nodes must see which of them runs it.
        put_flush(out);
        self.unread.push_back(Unread::Ahead);
    }

    /// Whether such a check precedes what is appended next.
    pub fn has_age_check(&self) -> bool {
        self.unread.back() == Some(&Unread::Ahead)
    }

    /// A statement is about to be written whose answer will be read to ReadyForQuery. Its reader
    /// then calls [`Self::answered`]; an answer that was abandoned half-way is skipped later.
    pub fn begin(&mut self) {
        self.note_sending();
        self.forget_unnamed();
        if self.awaited {
            self.unread.push_back(Unread::Abandoned);
        }
        self.awaited = true;
    }

    /// The answer has been read to ReadyForQuery: what was sent is committed, or is not.
    pub fn answered(&mut self) {
        self.awaited = false;
        self.is_in_flight = false;
        self.note_heard();
        self.connection.note_own_commit(false);
    }

    /// Reads the answers that precede the next one. Returns the first refusal among them; the caller must first
    /// read the answer that follows, then report the refusal.
    ///
    /// If dropped half-way, the next call continues where it was.
    ///
    /// Errors: the connection is lost, or closed because BEGIN was refused; there is no further answer.
    pub async fn catch_up(&mut self) -> Result<Option<NodeError>, NodeError> {
        self.read_ahead(self.unread.len()).await?;
        // What a client's flight has sent behind these is not answered by them.
        if !self.is_in_flight {
            self.note_heard();
        }
        Ok(self.refused.take())
    }

    /// Waits until all silent queries are answered, and so the BEGIN before them; a refusal is kept for
    /// [`Self::catch_up`]. What has been sent behind them is not waited for. Cancel-safe.
    ///
    /// Errors: as [`Self::catch_up`].
    pub async fn await_silent(&mut self) -> Result<(), NodeError> {
        match self.unread.iter().rposition(|unread| *unread == Unread::Silent) {
            Some(last) => self.read_ahead(last + 1).await,
            None => Ok(()),
        }
    }

    /// Whether one of them is not.
    pub fn owes_silent(&self) -> bool {
        self.unread.contains(&Unread::Silent)
    }

    /// Reads so many of the answers that precede the next one.
    async fn read_ahead(&mut self, count: usize) -> Result<(), NodeError> {
        if !self.unread.is_empty() {
            // What was to be sent with a statement that was never sent.
            self.connection.flush().await?;
        }
        let behind = self.unread.len() - count;
        while behind < self.unread.len()
            && let Some(unread) = self.unread.front().copied()
        {
            let read = match unread {
                Unread::Begun => self.finish_begin().await,
                Unread::Ahead => self.connection.finish_execute().await,
                Unread::Silent | Unread::Abandoned => {
                    self.connection.finish_query().await.map(drop)
                }
            };
            self.unread.pop_front();
            match (read, unread) {
                (Err(error), _) if self.connection.is_broken() => return Err(error),
                (Err(error), Unread::Silent) => {
                    self.spoiled = true;
                    self.refused.get_or_insert(error);
                }
                (Err(error), Unread::Ahead) => {
                    self.refused.get_or_insert(error);
                    // What follows in the same flight is skipped.
                    while self.unread.pop_front_if(|next| *next == Unread::Ahead).is_some() {}
                }
                (Ok(()), _) | (Err(_), Unread::Abandoned | Unread::Begun) => (),
            }
        }
        Ok(())
    }

    /// Where BEGIN was refused, nothing that was sent after it has run or will, and the number of
    /// answers to come is unknown: the connection is closed.
    async fn finish_begin(&mut self) -> Result<(), NodeError> {
        let begun = self.connection.finish_execute().await;
        if let Err(refused) = &begun {
            self.connection.say_goodbye_for(refused);
        }
        begun
    }

    /// Waits for a message that comes before the rows of an answer: ParseComplete (`1`) or
    /// BindComplete (`2`), and takes it. False: there is an error instead, which the reader of the
    /// answer will find. Cancel-safe. Requires: what has been written is flushed.
    pub async fn wait_for(&mut self, tag: u8) -> Result<bool, NodeError> {
        if !self.unread.is_empty() {
            self.catch_up_early().await?;
        }
        loop {
            match self.connection.incoming().first().copied() {
                Some(b'E') => return Ok(false),
                // CloseComplete, and what may come at any time.
                Some(found) if found == tag || matches!(found, b'3' | b'N' | b'S' | b'A') => {
                    let frame = self.connection.next_frame().await?;
                    if frame.tag() == tag {
                        return Ok(true);
                    }
                }
                Some(_) => return Ok(false),
                None => self.connection.read_more().await?,
            }
        }
    }

    /// Reads silent answers now; a refusal among them is kept for the next call of
    /// [`Self::catch_up`].
    pub async fn catch_up_early(&mut self) -> Result<(), NodeError> {
        self.refused = self.catch_up().await?;
        Ok(())
    }

    /// Reads and discards every answer that is due: after this the link is quiet, or lost.
    ///
    /// Errors: it is lost.
    pub async fn come_to_rest(&mut self) -> Result<(), NodeError> {
        if self.is_broken() {
            return Err(NodeError::not_connected(self.node()));
        }
        if std::mem::take(&mut self.awaited) {
            self.unread.push_back(Unread::Abandoned);
        }
        self.catch_up_early().await
    }

    /// Waits until the node has sent something that has not been consumed. Cancel-safe.
    pub async fn wait_for_anything(&mut self) -> Result<(), NodeError> {
        if self.connection.incoming().is_empty() {
            self.connection.read_more().await?;
        }
        Ok(())
    }

    /// Whether it is not known yet that a transaction has begun on it.
    pub fn owes_begin(&self) -> bool {
        self.unread.contains(&Unread::Begun)
    }

    /// Whether answers of silent queries precede the next one.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// From here on messages of a client's flight are written for the node.
    pub fn begin_flight(&mut self) {
        let len = self.connection.outgoing().len();
        if !self.is_in_flight || len < self.flight_from {
            self.flight_from = len;
        }
        self.is_in_flight = true;
    }

    /// What is written of a client's flight and not sent yet is not sent any more; what the gateway itself has written
    /// before that is. Says whether there was something. Nobody may wait for an answer to it.
    pub fn drop_unsent_flight(&mut self) -> bool {
        let outgoing = self.connection.outgoing();
        let is_unsent = self.is_in_flight && self.flight_from < outgoing.len();
        if is_unsent {
            outgoing.truncate(self.flight_from);
            self.forget_unnamed();
        }
        self.note_heard();
        is_unsent
    }

    /// Something is about to be sent: to be said before one looks whether it may still be. Says whether an answer
    /// was owed already.
    pub fn note_sending(&self) -> bool {
        self.backend.note_owed(true)
    }

    /// It is not sent after all, or what was sent of a client's flight is answered.
    pub fn note_heard(&self) {
        if self.is_quiet() {
            self.backend.note_owed(false);
        }
    }

    /// Whether the node has answered everything.
    pub fn is_quiet(&self) -> bool {
        self.unread.is_empty() && !self.awaited
    }

    /// Whether the next statement can be sent, and the next answer is its own.
    pub fn is_ready(&self) -> bool {
        self.is_quiet() && self.refused.is_none() && !self.spoiled && !self.is_broken()
    }

    /// Runs the gateway's own query and returns all rows of all statements.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<Rows>, NodeError> {
        self.begin();
        put_query(self.connection.outgoing(), sql);
        self.own_answer().await
    }

    /// Sends what is to be sent of the gateway's own, and reads its answer.
    async fn own_answer(&mut self) -> Result<Vec<Rows>, NodeError> {
        self.connection.flush().await?;
        let refused_before = self.catch_up().await?;
        let rows = self.connection.finish_query().await;
        // (Not [`Self::answered`]: the client's statement may be still to come.)
        self.awaited = false;
        self.note_heard();
        refused_before.map_or(rows, Err)
    }

    /// Reads a flight of the gateway's to its end, and discards the answers.
    ///
    /// Errors: the connection is lost.
    pub async fn finish_flight(&mut self) -> Result<(), NodeError> {
        self.catch_up_early().await?;
        match self.connection.finish_query().await {
            Err(error) if self.connection.is_broken() => Err(error),
            Ok(_) | Err(_) => {
                self.connection.take_notices();
                self.answered();
                Ok(())
            }
        }
    }

    /// The same for one statement with parameters, as texts.
    pub async fn query_with(
        &mut self,
        sql: &str,
        values: Vec<String>,
    ) -> Result<Vec<Rows>, NodeError> {
        self.query_with_nulls(sql, values.into_iter().map(Some).collect()).await
    }

    /// The same, where a value may be NULL.
    pub async fn query_with_nulls(
        &mut self,
        sql: &str,
        values: Vec<Option<String>>,
    ) -> Result<Vec<Rows>, NodeError> {
        self.begin();
        let values = values.into_iter().map(|value| value.map(Into::into)).collect();
        put_statement(self.connection.outgoing(), sql, values);
        self.own_answer().await
    }

    /// Asks when its transaction began, once in a transaction, for a caller that must seal what it sends.
    /// Requires: one was begun.
    pub async fn learn_moment(&mut self) -> Result<(), NodeError> {
        if self.connection.moment().is_empty() {
            let answer = self.query(ASK_MOMENT).await?;
            self.connection.note_moment(&answer);
        }
        Ok(())
    }

    /// A simple query destroys the node's unnamed statement and portal.
    fn forget_unnamed(&mut self) {
        self.unnamed = None;
        self.unnamed_portal = false;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.is_quiet() || self.is_in_flight {
            // Nobody waits for it any more.
            self.backend.note_owed(false);
            // Before the session is out of sight of whoever looks for what it does.
            self.surroundings.backends.note_left(&self.backend);
        }
        self.stop_work();
        self.connection.say_goodbye();
    }
}
