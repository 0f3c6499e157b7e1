//! Many rows that are collected for a final statement: a connection takes them into temporary tables as they come.
//!
//! Owns: that connection. It is none of the session's links: its transaction is thrown away, so that the session's own
//! can still be prepared, and it is closed behind the statement, for its schema of temporary objects would be seen by others.
//! (A cursor that is declared there keeps it for as long as there is the cursor.)
//! Never: collects a row, or decides that rows are too many to be kept.
//! Start reading at [`Executor::open_receiver`].
//!
//! **What it sees.** The final statement reads the temporary tables. Where it reads more than these, its transaction has the
//! snapshot of the session's, and must not lack what that has written.
//!
//! **What it waits for.** The session's own transaction may have locked a table that this one needs, or whose type, and would
//! wait for itself. So all locks are taken at the beginning, and not waited for: then there is no receiver.

use bytes::{Bytes, BytesMut};
use tutti_link::Link;
use tutti_link::connection::{NodeError, told};
use tutti_link::pool::Permit;
use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_sql::plan::{Access, Gather, InTables, NodeChoice, RunOn};
use tutti_wire::backend::decode_data_row;
use tutti_wire::frontend::{put_copy_data, put_copy_done, put_parse, put_sync};
use tutti_wire::sqlstate;

use super::array_literal::{ArrayText, put_copy_line, rows_of};
use super::copy::{finish_copy, open_copy};
use super::fan_out::read_rows;
use super::filled::{Times, fill_template, takes_no_parameters};
use super::relay::{Filter, relay};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done, IssuedBy, Rows, too_large};
use crate::registry::activity::overtaken;
use crate::transaction::state::Level;

/// So many bytes of a table's rows are sent at a time.
const SENT_BYTES: usize = 1 << 20;

/// So long it may wait for a lock, which is its own session's most likely.
const LOCK_PATIENCE_MS: u32 = 200;

/// Settings that decide what a value's text means, as `tutti.rows_input` has them.
const READING: [(&str, &str); 3] =
    [("xmloption", "content"), ("lc_monetary", "C"), ("array_nulls", "on")];

/// Where rows may go when there are too many to keep them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reception<'p> {
    pub(super) in_tables: &'p InTables,
    /// Where the final statement runs.
    pub(super) node: NodeId,
    /// From how many bytes on.
    pub(super) kept_bytes_max: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Receiver<'p> {
    link: Box<Link>,
    permit: Permit,
    in_tables: &'p InTables,
    /// Lines that wait to be sent, for each table.
    waiting: Vec<BytesMut>,
    /// What was sent last is not known to be stored.
    is_owed: bool,
    /// The final statement's rows have been read.
    has_answered: bool,
    /// What the settings are when the final statement runs that are others until then.
    settings: Vec<(&'static str, String)>,
}

impl Executor<'_> {
    /// Where rows that are collected for `gather` may go when they are many. `None`: they must be kept.
    pub(super) fn reception_of<'p>(&self, gather: &'p Gather) -> Option<Reception<'p>> {
        let (Some(in_tables), RunOn::One(NodeChoice::Home | NodeChoice::Any)) =
            (&gather.in_tables, &gather.run_on)
        else {
            return None;
        };
        let transaction = &self.tx.transaction;
        // Others have a guard against tables that come without a warrant.
        let node = NodeId::HOME;
        // Types that the transaction has made are seen by none but its own connections.
        let has_own_schema = transaction.changed_alone
            || transaction.changes_more
            || transaction.catalog_changed && !self.are_of_all(gather);
        let may_be = gather.access == Access::Read
            && !gather.locks_rows()
            && !has_own_schema
            && self.tx.accounting.is_none()
            // What it has there (settings that code has made, types) is on its own connection.
            && !self.tx.may_leave_on(node)
            && !self.tx.bindings.contains_key(&node)
            && (!in_tables.reads_in_place || self.is_read_alike_beside(node))
            // What takes no parameters is not analysed before it runs.
            && !(in_tables.reads_in_place && takes_no_parameters(&in_tables.statement));
        let switches = self.tx.registry.cluster.config.switches;
        let is_drawn = self.drawn("receiver", &in_tables.statement, 3) == Some(0);
        let kept_bytes_max = if is_drawn { 0 } else { switches.kept_bytes_max };
        may_be.then_some(Reception { in_tables, node, kept_bytes_max })
    }

    /// Whether all tables that are collected are what they are to all sessions.
    fn are_of_all(&self, gather: &Gather) -> bool {
        let published = self.tx.registry.cluster.catalog();
        gather.collects.iter().map(|collect| &*collect.relation).all(|relation| {
            let of_schema = published.relations.get(&relation.schema);
            let of = of_schema.and_then(|of_schema| of_schema.get(&relation.name));
            of.is_some_and(|of| **of == *relation)
        })
    }

    /// Whether a further transaction finds what the session's would find in the tables of `node`.
    fn is_read_alike_beside(&self, node: NodeId) -> bool {
        let transaction = &self.tx.transaction;
        // Where it counts what a transaction reads, it must read it itself.
        transaction.nodes.get(&node) != Some(&Access::Write)
            && self.tx.level() != Level::Serializable
            // Before its first statement it has none yet.
            && transaction.snapshot.as_ref().is_none_or(|it| it.open_name(node).is_some())
    }

    /// Opens it, with its tables. `None`: there is no room for it, or the role may have no temporary tables.
    pub(super) async fn open_receiver<'p>(
        &mut self,
        reception: &Reception<'p>,
        times: &Times,
        call: &Call,
    ) -> Result<Option<Receiver<'p>>, Failure> {
        let Reception { in_tables, node, .. } = *reception;
        let snapshot = self.tx.transaction.snapshot.as_ref().and_then(|it| it.open_name(node));
        let snapshot = snapshot.map(quote_literal).filter(|_| in_tables.reads_in_place);
        if in_tables.reads_in_place && snapshot.is_none() {
            return Ok(None);
        }
        let Some((mut link, permit)) = self.tx.further_link(node).await? else { return Ok(None) };
        let level = match self.tx.level() {
            Level::ReadCommitted => "READ COMMITTED",
            Level::RepeatableRead => "REPEATABLE READ",
            Level::Serializable => "SERIALIZABLE",
        };
        let mut begin = vec![format!("BEGIN ISOLATION LEVEL {level} READ WRITE")];
        begin.extend(snapshot.map(|name| format!("SET TRANSACTION SNAPSHOT {name}")));
        // Between two portions it waits for other nodes.
        begin.push("SET LOCAL idle_in_transaction_session_timeout = 0".to_owned());
        let steps = self.tx.transaction.steps_sql();
        begin.extend(Some(steps).filter(|steps| !steps.is_empty()));
        let mut settings = vec!["lock_timeout"];
        settings.extend(READING.map(|(name, _)| name));
        // A trigger would take the tables for something of the client's.
        const MAY: &str = "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY') \
             AND pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off' \
             AND NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger \
                 WHERE evtenabled OPERATOR(pg_catalog.<>) 'D')";
        // In one row, behind the rest.
        let asked = settings.iter().map(|name| format!("pg_catalog.current_setting('{name}')"));
        begin.push(format!(
            "{MAY}, pg_catalog.current_setting('default_transaction_read_only'), {}",
            asked.collect::<Vec<_>>().join(", ")
        ));
        let answers = link.query(&begin.join("; ")).await.map_err(of_receiver)?;
        let said = |column| answers.last().and_then(|rows| rows.text(0, column));
        if said(0) != Some("t") {
            return Ok(None);
        }
        let value = |column: usize| said(column + 2).unwrap_or_default().to_owned();
        let settings = settings.into_iter().enumerate();
        let mut settings: Vec<_> = settings.map(|(column, name)| (name, value(column))).collect();
        let only_reads = match self.tx.transaction.characteristics.read_only {
            Some(only_reads) => only_reads,
            None => said(1) == Some("on"),
        };
        if only_reads {
            settings.push(("transaction_read_only", "on".to_owned()));
        }
        let set =
            READING.map(|(name, value)| format!("SET LOCAL {name} = {}", quote_literal(value)));
        let set = format!("SET LOCAL lock_timeout = '{LOCK_PATIENCE_MS}ms'; {}", set.join("; "));
        link.query(&set).await.map_err(of_receiver)?;
        match self.make_tables(&mut link, in_tables, times, call).await {
            Ok(()) => (),
            Err(Failure::Statement(error)) if error.sqlstate() == sqlstate::LOCK_NOT_AVAILABLE => {
                return Ok(None);
            }
            Err(failure) => return Err(without_context(failure).without_position()),
        }
        let waiting = in_tables.tables.iter().map(|_| BytesMut::new()).collect();
        let (is_owed, has_answered) = (false, false);
        let receiver =
            Receiver { link, permit, in_tables, waiting, is_owed, has_answered, settings };
        Ok(Some(receiver))
    }

    /// Makes the tables, and takes the locks of the final statement.
    async fn make_tables(
        &self,
        link: &mut Link,
        in_tables: &InTables,
        times: &Times,
        call: &Call,
    ) -> Result<(), Failure> {
        let none = vec![ArrayText::default().into_bytes()];
        let none = Call::Simple.carrying(Rows::Everywhere(none), self.travelling_bytes_max())?;
        for table in &in_tables.tables {
            none.put_internal(link, &fill_template(&table.create, &Call::Simple, times));
            link.connection().flush().await?;
            read_rows(link, |_| Ok(())).await?;
        }
        let text = fill_template(&in_tables.statement, call, times);
        if in_tables.reads_in_place && !takes_no_parameters(&in_tables.statement) {
            link.begin();
            let types = link.types_here(&call.parts(IssuedBy::Gateway, link.node()).0);
            let out = link.connection().outgoing();
            put_parse(out, "", &text, &types);
            put_sync(out);
            link.connection().flush().await?;
            read_rows(link, |_| Ok(())).await?;
        }
        Ok(())
    }

    /// Runs the final statement, and passes its answer on to the client.
    pub(super) async fn run_on_receiver(
        &mut self,
        mut receiver: Receiver<'_>,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let complete = self.tells_at_once(call);
        self.put_on_receiver(&mut receiver, text, call, false)?;
        receiver.link.connection().flush().await?;
        let answer = relay(self.client, &mut receiver.link, Filter::rows(call, complete)).await?;
        Ok(if complete { Done::Told } else { Done::Tag(answer.tag) })
    }

    /// Runs what returns no rows where a receiver has them. Returns its tag.
    pub(super) async fn tell_receiver(
        &mut self,
        receiver: &mut Receiver<'_>,
        text: &str,
        call: &Call,
    ) -> Result<String, Failure> {
        self.put_on_receiver(receiver, text, call, false)?;
        receiver.link.connection().flush().await?;
        Ok(relay(self.client, &mut receiver.link, Filter::rows(call, false)).await?.tag)
    }

    /// Sends the final statement, for the client or for the gateway itself.
    fn put_on_receiver(
        &mut self,
        receiver: &mut Receiver<'_>,
        text: &str,
        call: &Call,
        is_internal: bool,
    ) -> Result<(), Failure> {
        let link = &mut receiver.link;
        // As [`crate::transaction::TransactionContext::enlist`] has it.
        link.note_sending();
        if self.tx.activity.plan.is_overtaken() {
            return Err(overtaken().into());
        }
        let stored_here = self.tx.transaction.stored_on(link.node());
        if let Some(relations) = stored_here.filter(|_| !matches!(call, Call::Simple)) {
            call.put_age_check(link, text, &relations);
        }
        match is_internal {
            true => call.put_internal(link, text),
            false => call.put(link, text),
        }
        Ok(())
    }

    /// Sends the final statement; its rows are for the gateway itself, see [`Receiver::next_rows`].
    pub(super) async fn read_from_receiver(
        &mut self,
        receiver: &mut Receiver<'_>,
        text: &str,
        call: &Call,
    ) -> Result<(), Failure> {
        self.put_on_receiver(receiver, text, call, true)?;
        Ok(receiver.link.connection().flush().await?)
    }

    /// All of the final statement's rows, as text.
    pub(super) async fn rows_of_receiver(
        &mut self,
        mut receiver: Receiver<'_>,
        text: &str,
        call: &Call,
    ) -> Result<Vec<Vec<Option<Bytes>>>, Failure> {
        self.read_from_receiver(&mut receiver, text, call).await?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let bytes_max = self.travelling_bytes_max();
        while let Some(portion) = receiver.next_rows().await? {
            bytes += portion.iter().flatten().flatten().map(Bytes::len).sum::<usize>();
            if bytes_max < bytes {
                return Err(too_large(bytes_max));
            }
            rows.extend(portion);
        }
        Ok(rows)
    }
}

impl Receiver<'_> {
    /// Its connection, which is still to be closed, and not released.
    pub(super) fn into_link(self) -> (Box<Link>, Permit) {
        (self.link, self.permit)
    }

    /// Takes a row of this table, in composite text form.
    pub(super) async fn take(&mut self, table: usize, composite: &str) -> Result<(), Failure> {
        let waiting = &mut self.waiting[table];
        if !put_copy_line(waiting, composite, &self.in_tables.tables[table].fields) {
            return Err(Failure::error("XX000", "a row that travels is not readable"));
        }
        match waiting.len() < SENT_BYTES {
            true => Ok(()),
            false => self.send(table).await,
        }
    }

    /// Takes rows that were kept, as text of an array.
    pub(super) async fn take_kept(&mut self, table: usize, rows: &[u8]) -> Result<(), Failure> {
        let unreadable = |_| Failure::error("XX000", "rows that travel are not UTF-8");
        for row in rows_of(std::str::from_utf8(rows).map_err(unreadable)?) {
            self.take(table, &row).await?;
        }
        Ok(())
    }

    /// The next portion of what the final statement has answered, as text; the server waits meanwhile. `None`: that was
    /// all.
    pub(super) async fn next_rows(&mut self) -> Result<Option<Vec<Vec<Option<Bytes>>>>, Failure> {
        if let Some(refused) = self.link.catch_up().await? {
            return Err(refused.into());
        }
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while !self.has_answered && bytes < SENT_BYTES {
            let frame = self.link.connection().next_frame().await?;
            match frame.tag() {
                b'D' => {
                    bytes += frame.as_bytes().len();
                    rows.push(decode_data_row(&frame)?);
                }
                // The connection is closed with what it has to say yet.
                b'E' => return Err(told(&frame)?.into()),
                b'Z' => {
                    self.link.answered();
                    self.has_answered = true;
                }
                _ => (),
            }
        }
        Ok(Some(rows).filter(|rows| !rows.is_empty()))
    }

    async fn send(&mut self, table: usize) -> Result<(), Failure> {
        self.settle().await?;
        let sent = open_copy(&mut self.link, &self.in_tables.tables[table].copy).await;
        sent.map_err(without_context)?;
        let out = self.link.connection().outgoing();
        put_copy_data(out, &self.waiting[table]);
        put_copy_done(out);
        self.waiting[table].clear();
        // The server stores the last of it while further rows come.
        self.is_owed = true;
        Ok(self.link.connection().flush().await?)
    }

    async fn settle(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_owed) {
            finish_copy(&mut self.link).await.map_err(without_context)?;
        }
        Ok(())
    }

    /// There are no more rows: the tables get their indexes and statistics.
    pub(super) async fn finish(&mut self) -> Result<(), Failure> {
        for table in 0..self.waiting.len() {
            if !self.waiting[table].is_empty() {
                self.send(table).await?;
            }
            self.waiting[table] = BytesMut::new();
        }
        self.settle().await?;
        for sql in &self.in_tables.prepare {
            self.link.query(sql).await.map_err(of_receiver)?;
        }
        let set = self
            .settings
            .iter()
            .map(|(name, value)| format!("SET LOCAL {name} = {}", quote_literal(value)));
        let set = set.collect::<Vec<_>>().join("; ");
        self.link.query(&set).await.map_err(of_receiver)?;
        Ok(())
    }
}

/// Where in a COPY of the gateway's own it happened does not concern the client.
fn without_context(failure: Failure) -> Failure {
    match failure {
        Failure::Statement(mut fields) => {
            fields.fields.retain(|(code, _)| !b"PWpq".contains(code));
            Failure::Statement(fields)
        }
        failure => failure,
    }
}

fn of_receiver(error: NodeError) -> Failure {
    without_context(error.into())
}
