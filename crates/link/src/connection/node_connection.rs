//! One connection to one node.
//!
//! Owns: the socket, both buffers, and the node's own transaction status as last reported.
//! Never: knows why something is sent.
//! Start reading at [`NodeConnection::flush`]: it reads while it writes, so that neither side can
//! block the other.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::timeout;
use tutti_configuration::Address;
use tutti_sql::catalog::NodeId;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::{Fields, Frame, WireError, take_frame};
use tutti_wire::frontend::{
    Arguments, put_bind, put_copy_fail, put_execute, put_parse, put_query, put_sync, put_terminate,
};
use tutti_wire::startup::put_startup;

use super::answer::{PartialAnswer, Progress, Rows, told, told_notice};
use super::authentication::{Exchange, Step};
use super::credentials::Credentials;
use super::dial::dial;
use super::endpoint::Endpoint;
use super::error::NodeError;
use super::reading::Misreading;
use super::run::{Place, Run};
use crate::net::certificate::end_point;
use crate::net::stream::Stream;

/// How much one read may bring, in bytes.
const READ_CHUNK_BYTES: usize = 64 * 1024;
/// Notices are kept up to this many bytes where they cannot be passed on immediately.
const NOTICES_BYTES_MAX: usize = 4 << 20;
/// How long one of several hosts may take to accept a login.
pub(super) const HOST_PATIENCE: Duration = Duration::from_secs(3);

/// When the transaction began, to the microsecond, whatever the session has set. No two transactions of one
/// server process begin at the same time.
pub const ASK_MOMENT: &str =
    "SELECT pg_catalog.encode(pg_catalog.timestamptz_send(pg_catalog.now()), 'hex')";

/// Up to the end of the transaction, errors do not show the parameters of statements that are bound after it: code
/// that a statement runs may catch an error of its own and read its context.
pub const HIDE_PARAMETERS: &str =
    "SELECT pg_catalog.set_config('log_parameter_max_length_on_error', '0', true)";

/// Appends one statement with its parameters, up to a Sync. Its rows are text, and the last of the answer. The
/// values, which are the gateway's own, are hidden from code that it runs.
pub fn put_statement(out: &mut BytesMut, sql: &str, values: Vec<Option<Bytes>>) {
    if !values.is_empty() {
        put_parse(out, "", HIDE_PARAMETERS, &[]);
        put_bind(out, "", "", &Arguments::default());
        put_execute(out, "", 0);
    }
    put_parse(out, "", sql, &[]);
    put_bind(out, "", "", &Arguments { values, ..Arguments::default() });
    put_execute(out, "", 0);
    put_sync(out);
}

/// An open connection to a node, authenticated, its startup messages read.
#[derive(Debug)]
pub struct NodeConnection {
    node: NodeId,
    place: Place,
    stream: Stream,
    incoming: BytesMut,
    outgoing: BytesMut,
    process_id: i32,
    secret: i32,
    parameters: Vec<(String, String)>,
    /// ParameterStatus messages that came in answers to our own queries.
    reports: Vec<(String, String)>,
    /// NotificationResponses that came in answers to our own queries.
    notifications: Vec<Frame>,
    /// Of the answer to the last query of our own.
    notices: Vec<Frame>,
    notices_bytes: usize,
    /// See [`Self::keep_notices_up_to`].
    notices_bytes_max: usize,
    /// Of the last ReadyForQuery.
    status: u8,
    /// When the transaction that it is in began, if it was asked.
    moment: Option<String>,
    /// It has said that it reads texts differently from the gateway.
    misreading: Option<Misreading>,
    /// See [`NodeConnection::note_own_commit`].
    commits_itself: bool,
    /// Why the gateway has ended it.
    ended_for: Option<Box<ErrorFields>>,
    broken: bool,
}

impl NodeConnection {
    /// Connects and authenticates as `user` by `credentials`, with further startup `settings`. Of
    /// several hosts the one that takes writes is chosen.
    ///
    /// Errors: [`NodeError::Connect`], also for a standby; [`NodeError::Authentication`], or
    /// [`NodeError::Refused`] with what the node answered (no such database, too many connections…).
    pub async fn open(
        endpoint: &Endpoint,
        user: &str,
        credentials: &Credentials,
        settings: &[(&str, &str)],
    ) -> Result<Self, NodeError> {
        let addresses = endpoint.addresses();
        let is_alone = addresses.len() == 1;
        let mut failure = None;
        for (position, address) in addresses {
            let opening = Self::open_at(endpoint, position, &address, user, credentials, settings);
            let opened = if is_alone {
                opening.await
            } else {
                // A silent host must not keep us from the others.
                timeout(HOST_PATIENCE, opening).await.unwrap_or_else(|_| {
                    let source = io::ErrorKind::TimedOut.into();
                    Err(NodeError::unreachable_at(endpoint, &address, source))
                })
            };
            match opened {
                Ok(connection) => {
                    endpoint.note_writable(position);
                    return Ok(connection);
                }
                // A server's own error says more than that another host is unreachable.
                Err(error @ NodeError::Connect { .. }) => failure = failure.or(Some(error)),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("a node has an address"))
    }

    /// The same at one of the hosts.
    pub(super) async fn open_at(
        endpoint: &Endpoint,
        position: usize,
        address: &Address,
        user: &str,
        credentials: &Credentials,
        settings: &[(&str, &str)],
    ) -> Result<Self, NodeError> {
        let node = endpoint.node();
        let connect = |source| NodeError::unreachable_at(endpoint, address, source);
        let stream = dial(endpoint, address).await.map_err(connect)?;
        let is_here = stream.socket().peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
        let is_private = stream.session().is_some() || is_here;
        let end_point = stream
            .session()
            .and_then(|session| session.peer_certificates()?.first())
            .and_then(|certificate| end_point(certificate));
        let place = endpoint.open_connections().add(position, stream.socket());
        let mut connection = Self {
            node,
            place,
            stream,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            process_id: 0,
            secret: 0,
            parameters: Vec::new(),
            reports: Vec::new(),
            notifications: Vec::new(),
            notices: Vec::new(),
            notices_bytes: 0,
            notices_bytes_max: NOTICES_BYTES_MAX,
            status: b'I',
            moment: None,
            misreading: None,
            commits_itself: false,
            ended_for: None,
            broken: false,
        };
        let mut startup = vec![("user", user), ("database", endpoint.database())];
        startup.extend_from_slice(settings);
        put_startup(&mut connection.outgoing, &startup);
        // A client that has proved to be the gateway's own role gains nothing from its password;
        // and that role's verifiers were often created on each node separately.
        let own = Credentials::of_gateway(endpoint.config());
        let credentials = match (credentials, &own) {
            (Credentials::Keys(_), Credentials::Password(_)) if user == endpoint.config().user => {
                &own
            }
            _ => credentials,
        };
        let exchange = Exchange::new(node, user, credentials, is_private, end_point);
        connection.finish_startup(exchange).await?;
        connection.refuse_misreading()?;
        // Reported by every PostgreSQL since version 14.
        if connection
            .parameters
            .iter()
            .any(|(name, value)| name == "in_hot_standby" && value == "on")
        {
            connection.close();
            return Err(connect(io::Error::other("the server is a standby and takes no writes")));
        }
        Ok(connection)
    }

    async fn finish_startup(&mut self, mut exchange: Exchange<'_>) -> Result<(), NodeError> {
        self.flush().await?;
        loop {
            let frame = self.next_frame().await?;
            match frame.tag() {
                b'R' => {
                    if let Step::Answer(answer) = exchange.step(&frame)? {
                        self.outgoing.extend_from_slice(&answer);
                        self.flush().await?;
                    }
                }
                b'K' => {
                    let mut fields = Fields::of(&frame);
                    (self.process_id, self.secret) = (fields.int32()?, fields.int32()?);
                }
                b'S' => {
                    let mut fields = Fields::of(&frame);
                    self.parameters.push((fields.string()?, fields.string()?));
                }
                b'E' => return Err(NodeError::Refused(Box::new(told(&frame)?))),
                b'Z' => return Ok(()),
                _ => (),
            }
        }
    }

    /// Errors: [`NodeError::Misreads`] if the server has reported so.
    pub fn refuse_misreading(&self) -> Result<(), NodeError> {
        match &self.misreading {
            Some(found) => {
                Err(NodeError::Misreads { node: self.node, why: Box::new(found.to_fields()) })
            }
            None => Ok(()),
        }
    }

    /// Why no further text may be sent, if the server would read it differently from the gateway.
    pub fn misreading(&self) -> Option<&Misreading> {
        self.misreading.as_ref()
    }

    /// Whether the server is in no transaction, as its last ReadyForQuery said.
    pub fn is_outside_transaction(&self) -> bool {
        self.status == b'I'
    }

    /// Which node this leads to.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Process id and secret of the backend, for cancel requests.
    pub fn backend_key(&self) -> (i32, i32) {
        (self.process_id, self.secret)
    }

    /// Settings that the node reports, as of the startup and of answers to our own queries.
    pub fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    /// Takes the ParameterStatus messages that came in answers to our own queries, in order.
    pub fn take_reports(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.reports)
    }

    /// Takes the notifications that came in answers to our own queries, in order.
    pub fn take_notifications(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.notifications)
    }

    /// Takes the notices that came in the answer to our last query, in order.
    pub fn take_notices(&mut self) -> Vec<Frame> {
        self.notices_bytes = 0;
        std::mem::take(&mut self.notices)
    }

    /// For answers that are notices: these are kept up to so many bytes; `None`: no more than what clients are told of
    /// otherwise.
    pub fn keep_notices_up_to(&mut self, bytes_max: Option<usize>) {
        self.notices_bytes_max = bytes_max.unwrap_or(NOTICES_BYTES_MAX);
    }

    /// Keeps a notice for the caller to take. Beyond a limit the rest is dropped, and a notice says
    /// so.
    fn keep_notice(&mut self, frame: Frame) -> Result<(), WireError> {
        let before = self.notices_bytes;
        let bytes_max = self.notices_bytes_max;
        self.notices_bytes = before.saturating_add(frame.as_bytes().len());
        if self.notices_bytes <= bytes_max {
            self.notices.push(told_notice(frame)?);
        } else if before <= bytes_max {
            let mut out = BytesMut::new();
            ErrorFields::with_severity("WARNING", "01000", "further notices are not passed on")
                .with(b'D', format!("A commit's are kept up to {} MiB.", bytes_max >> 20))
                .put(&mut out, b'N');
            self.notices.extend(take_frame(&mut out)?);
        }
        Ok(())
    }

    /// Whether the node may commit by itself what is about to be sent, or was sent and is not answered yet:
    /// outside of a transaction, anything not known to be read-only. If the connection is lost before that
    /// is answered, its outcome is not known.
    pub fn note_own_commit(&mut self, may_commit: bool) {
        self.commits_itself = may_commit;
    }

    /// See [`Self::note_own_commit`].
    pub fn may_commit_itself(&self) -> bool {
        self.commits_itself
    }

    /// Asks the server at the other end which run it is in.
    pub async fn ask_run(&mut self) -> Result<Run, NodeError> {
        let rows = self.rows(&format!("SELECT {}", Run::STARTED)).await?;
        let run = Run::told(rows.text(0, 0));
        self.note_run(&run);
        Ok(run)
    }

    /// It leads to this run of the node's server.
    pub(crate) fn note_run(&self, run: &Run) {
        self.place.note_run(run);
    }

    /// The server at its other end is the node: connections to one that was the node before are ended, also where it is
    /// still there, or silent, so that nobody waits for it or reads what it has. Their number.
    pub fn end_all_to_others(&self, endpoint: &Endpoint) -> usize {
        endpoint.open_connections().end_all_unlike(&self.place)
    }

    /// After an error on the socket nothing can be sent or read any more.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// The node has announced that it closes the connection.
    pub fn note_end(&mut self) {
        self.broken = true;
    }

    /// Whether nothing unsolicited has arrived, such as the end of the connection. For one that was
    /// idle.
    pub fn is_quiet(&mut self) -> bool {
        self.incoming.is_empty() && matches!(self.try_read(), Ok(false))
    }

    /// Where messages to the node are written; [`Self::flush`] sends them.
    pub fn outgoing(&mut self) -> &mut BytesMut {
        &mut self.outgoing
    }

    /// Sends everything written so far. Meanwhile all that the node sends is read into memory, so
    /// that a node that blocks because its answers are not read does not block us forever.
    pub async fn flush(&mut self) -> Result<(), NodeError> {
        while !self.outgoing.is_empty() || self.stream.holds_output() {
            let written = match self.outgoing.is_empty() {
                true => self.stream.try_flush().map(|()| None),
                false => self.stream.try_write(&self.outgoing).map(Some),
            };
            match written {
                Ok(None) => continue,
                Ok(Some(0)) => return Err(self.lost(io::ErrorKind::WriteZero.into())),
                Ok(Some(len)) => {
                    let _ = self.outgoing.split_to(len);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                Err(error) => return Err(self.lost(error)),
            }
            tokio::select! {
                ready = self.stream.writable() => ready.map_err(|error| self.lost(error))?,
                ready = self.stream.readable() => {
                    ready.map_err(|error| self.lost(error))?;
                    self.try_read()?;
                }
            }
        }
        Ok(())
    }

    /// Reads what has arrived, without waiting. False if there was nothing.
    pub fn try_read(&mut self) -> Result<bool, NodeError> {
        match self.stream.try_read(&mut self.incoming, READ_CHUNK_BYTES) {
            Ok(0) => Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(self.lost(error)),
        }
    }

    /// Waits until [`Self::try_read`] may find something. Cancel-safe.
    pub async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }

    /// Waits until at least one more byte is in the incoming buffer. Cancel-safe.
    pub async fn read_more(&mut self) -> Result<(), NodeError> {
        loop {
            if self.try_read()? {
                return Ok(());
            }
            self.stream.readable().await.map_err(|error| self.lost(error))?;
        }
    }

    /// What has been read and not consumed yet.
    pub fn incoming(&mut self) -> &mut BytesMut {
        &mut self.incoming
    }

    /// The next message, if it is there. All readers of answers take ParameterStatus and ReadyForQuery this
    /// way: what they say about the server holds for what is sent next.
    pub fn take_frame(&mut self) -> Result<Option<Frame>, WireError> {
        let Some(frame) = take_frame(&mut self.incoming)? else { return Ok(None) };
        match frame.tag() {
            b'Z' => {
                self.status = frame.body().first().copied().unwrap_or_default();
                if self.status == b'I' {
                    self.moment = None;
                }
            }
            b'S' => {
                let mut fields = Fields::of(&frame);
                let (name, value) = (fields.string()?, fields.string()?);
                if let Some(found) = Misreading::reported(&name, &value) {
                    self.misreading.get_or_insert(found);
                }
            }
            _ => (),
        }
        Ok(Some(frame))
    }

    /// The next message, waiting for it. Cancel-safe.
    pub async fn next_frame(&mut self) -> Result<Frame, NodeError> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(frame);
            }
            self.read_more().await?;
        }
    }

    /// The same, for a caller that waits for several connections.
    pub fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Result<Frame, NodeError>> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Poll::Ready(Ok(frame));
            }
            ready!(self.stream.poll_readable(context)).map_err(|error| self.lost(error))?;
            self.try_read()?;
        }
    }

    /// Reads what there is, while the incoming buffer holds less than `limit` bytes; the polling task
    /// is woken when there is more.
    ///
    /// Errors: the connection is lost.
    pub fn poll_read_ahead(
        &mut self,
        context: &mut Context<'_>,
        limit: usize,
    ) -> Result<(), NodeError> {
        while self.incoming.len() < limit {
            match self.stream.poll_readable(context) {
                Poll::Ready(Ok(())) => self.try_read()?,
                Poll::Ready(Err(error)) => return Err(self.lost(error)),
                Poll::Pending => return Ok(()),
            };
        }
        Ok(())
    }

    /// Runs `sql` (one or more statements) by the simple protocol and returns all rows.
    ///
    /// Errors: the first error that the node answers with, after ReadyForQuery was read: the
    /// connection stays usable. Requires: no answers are outstanding.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<Rows>, NodeError> {
        put_query(&mut self.outgoing, sql);
        self.flush().await?;
        self.finish_query().await
    }

    /// Runs one statement with these parameters, as texts whose types the server infers, and returns its rows.
    /// Parameters are not shown to other sessions.
    ///
    /// Errors and requirement: as [`Self::query`].
    pub async fn query_with(
        &mut self,
        sql: &str,
        values: Vec<Option<Bytes>>,
    ) -> Result<Rows, NodeError> {
        put_statement(&mut self.outgoing, sql, values);
        self.flush().await?;
        Ok(self.finish_query().await?.pop().unwrap_or_default())
    }

    /// When the transaction that it is in began, as the server reported in it; empty if it was not asked.
    pub fn moment(&self) -> &str {
        self.moment.as_deref().unwrap_or_default()
    }

    /// Notes what the server has answered to [`ASK_MOMENT`].
    pub fn note_moment(&mut self, answer: &[Rows]) {
        // An answer from outside of a transaction block belongs to one that has ended.
        if self.status == b'T' {
            self.moment = answer.first().and_then(|rows| rows.text(0, 0)).map(str::to_owned);
        }
    }

    /// Asks for it, once in a transaction. Requires: a transaction block is open; as [`Self::query`].
    pub async fn learn_moment(&mut self) -> Result<(), NodeError> {
        if self.moment.is_none() {
            let answer = self.query(ASK_MOMENT).await?;
            self.note_moment(&answer);
        }
        Ok(())
    }

    /// Reads the answer to a query that was sent, to its ReadyForQuery.
    pub async fn finish_query(&mut self) -> Result<Vec<Rows>, NodeError> {
        let mut answer = PartialAnswer::default();
        self.take_notices();
        loop {
            let frame = self.next_frame().await?;
            match frame.tag() {
                // An abandoned COPY: its data will never come.
                b'G' => {
                    put_copy_fail(&mut self.outgoing, "the statement was given up");
                    self.flush().await?;
                }
                b'S' | b'A' | b'N' => self.keep_noise(frame)?,
                _ => match answer.take(&frame)? {
                    Progress::Going => (),
                    Progress::Complete => break,
                    Progress::Fatal => {
                        self.broken = true;
                        break;
                    }
                },
            }
        }
        answer.finish()
    }

    /// Reads the answer to a Parse, Bind and Execute that no Sync follows, to its CommandComplete.
    ///
    /// Errors: the error that the node refused it with: it skips what follows, to the next Sync.
    pub async fn finish_execute(&mut self) -> Result<(), NodeError> {
        let mut answer = PartialAnswer::default();
        loop {
            let frame = self.next_frame().await?;
            match frame.tag() {
                b'S' | b'A' | b'N' => self.keep_noise(frame)?,
                tag => {
                    self.broken |= answer.take(&frame)? == Progress::Fatal;
                    if matches!(tag, b'C' | b'E') {
                        return answer.finish().map(drop);
                    }
                }
            }
        }
    }

    /// Keeps what may come at any time, for the caller to take.
    fn keep_noise(&mut self, frame: Frame) -> Result<(), WireError> {
        match frame.tag() {
            b'S' => {
                let mut fields = Fields::of(&frame);
                let (name, value) = (fields.string()?, fields.string()?);
                match self.parameters.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, known)) => known.clone_from(&value),
                    None => self.parameters.push((name.clone(), value.clone())),
                }
                self.reports.push((name, value));
            }
            b'A' => self.notifications.push(frame),
            _ => self.keep_notice(frame)?,
        }
        Ok(())
    }

    /// Runs `sql` and returns the rows of its last statement.
    pub async fn rows(&mut self, sql: &str) -> Result<Rows, NodeError> {
        Ok(self.query(sql).await?.pop().unwrap_or_default())
    }

    /// Sends Terminate, if that is possible without waiting.
    pub fn close(mut self) {
        self.say_goodbye();
    }

    /// Tells the node that nothing more will come, if that is possible without waiting.
    pub fn say_goodbye(&mut self) {
        if self.broken {
            return;
        }
        self.broken = true;
        self.outgoing.clear();
        put_terminate(&mut self.outgoing);
        let _ = self.stream.try_write(&self.outgoing);
    }

    /// The same because of what it has said, which is what readers of further answers are told.
    pub fn say_goodbye_for(&mut self, refused: &NodeError) {
        if let NodeError::Refused(error) = refused {
            self.ended_for.get_or_insert_with(|| error.clone());
        }
        self.say_goodbye();
    }

    fn lost(&mut self, source: io::Error) -> NodeError {
        self.broken = true;
        if let Some(error) = &self.ended_for {
            return NodeError::Refused(error.clone());
        }
        let node = self.node;
        match self.commits_itself {
            true => NodeError::Unresolved { node, source },
            false => NodeError::Lost { node, source },
        }
    }
}
