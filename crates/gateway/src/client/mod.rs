//! The client's side of a session: its socket, both buffers, and its slot among the clients.
//!
//! Owns: framed reading, buffered writing, the capture of answers that must not be sent yet, and
//! which settings the client has been told of.
//! Never: interprets messages.

pub mod failure;
pub mod gate;
pub(crate) mod identity;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tutti_link::Link;
use tutti_link::net::stream::Stream;
use tutti_link::spool::Spool;
use tutti_wire::backend::{
    TransactionStatus, decode_parameter_status, put_parameter_status, put_ready_for_query,
};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::{Frame, WireError, frame_len, take_frame};
use tutti_wire::startup::{self, Startup};

use self::gate::{ClientSlot, Gate, HandshakeSlot};

/// Answers are sent when this many bytes have gathered, or before waiting for the client.
const FLUSH_BYTES: usize = 64 * 1024;
/// Most bytes that wait in memory for a client that goes on sending without reading its answers.
const HELD_BYTES_MAX: usize = 8 << 20;
/// Held-back notices that exceed this are passed on.
const HELD_NOTICES_BYTES_MAX: usize = 64 * 1024;
/// How much one read may bring, in bytes: most messages are short.
const READ_CHUNK_BYTES: usize = 1024;
/// The same after one that was full.
const READ_CHUNK_BYTES_MAX: usize = 8 * 1024;
/// What each of its buffers may keep while waiting for the client, in bytes.
const IDLE_BUFFER_BYTES_MAX: usize = 2 * READ_CHUNK_BYTES;
/// Most room that is made for the rest of a message in one step.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// Why no further message can be read from a client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection ended or broke.
    #[error("client connection lost")]
    Lost(#[from] io::Error),
    /// The client sent what the protocol does not allow; the stream cannot be followed further.
    #[error(transparent)]
    Protocol(#[from] WireError),
    /// It was told why its session ends; nothing more will be read from it.
    #[error("the client was sent away")]
    SentAway,
}

/// A connected client.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    incoming: BytesMut,
    /// The last read was full.
    sends_much: bool,
    outgoing: BytesMut,
    captured: Option<Capture>,
    /// Notices of a statement that may be undone and run again.
    held_notices: Option<BytesMut>,
    /// Bytes that were sent.
    sent: u64,
    /// Reported settings as the client knows them.
    told: HashMap<String, String>,
    /// Reported settings as nodes have reported them since the last ReadyForQuery.
    reported: Vec<(String, String)>,
    /// Types of the columns of a COPY TO STDOUT in binary format whose values say numbers of types.
    pub(crate) copied_types: Vec<u32>,
    /// Notified when its session's statement is ended for the sake of others.
    stops: Arc<Notify>,
    peer: SocketAddr,
    gate: Arc<Gate>,
    /// When it must have logged in.
    deadline: Instant,
    /// Its slots while it logs in and afterwards.
    knocking: Option<HandshakeSlot>,
    place: Option<ClientSlot>,
    was_passed_on: bool,
    /// Hash of our certificate, on TLS.
    end_point: Option<Vec<u8>>,
}

/// Answers that are kept.
#[derive(Debug)]
pub(crate) struct Capture {
    bytes: BytesMut,
    bytes_max: usize,
    /// There was too much: all of it was dropped.
    is_over: bool,
    /// What keeps them instead, however many they are.
    spool: Option<Spool>,
}

impl Capture {
    fn buffer(&mut self) -> &mut BytesMut {
        self.spool.as_mut().map_or(&mut self.bytes, Spool::buffer)
    }

    fn heed_limit(&mut self) {
        if self.bytes_max < self.bytes.len() || self.is_over {
            self.is_over = true;
            self.bytes = BytesMut::new();
        }
    }
}

impl Client {
    /// From here on what it sends for a statement is waited for only until this is notified.
    pub(crate) fn heed(&mut self, stops: Arc<Notify>) {
        self.stops = stops;
    }

    /// See [`Self::heed`].
    pub(crate) fn stops(&self) -> Arc<Notify> {
        self.stops.clone()
    }

    /// Takes over a socket, and the slot of its connection among those that are logging in.
    pub(crate) fn new(
        stream: TcpStream,
        peer: SocketAddr,
        gate: Arc<Gate>,
        knocking: HandshakeSlot,
    ) -> Self {
        Self {
            stream: Stream::Plain(Arc::new(stream)),
            incoming: BytesMut::new(),
            sends_much: false,
            outgoing: BytesMut::new(),
            captured: None,
            held_notices: None,
            sent: 0,
            told: HashMap::new(),
            reported: Vec::new(),
            copied_types: Vec::new(),
            stops: Arc::default(),
            peer,
            deadline: Instant::now() + gate.patience(),
            gate,
            knocking: Some(knocking),
            place: None,
            was_passed_on: false,
            end_point: None,
        }
    }

    /// Where it comes from.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Another gateway has passed it on, and says where it comes from. False: there are too many from there.
    pub(crate) fn comes_from(&mut self, peer: SocketAddr) -> bool {
        let knocking = self.gate.knock(peer.ip());
        let may_come = knocking.is_some();
        (self.peer, self.knocking) = (peer, knocking);
        self.was_passed_on = true;
        may_come
    }

    /// Whether it has come through another gateway.
    pub(crate) fn was_passed_on(&self) -> bool {
        self.was_passed_on
    }

    /// What it has to pass.
    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// When it must have logged in.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// It has logged in and has a slot among the clients.
    pub(crate) fn take_slot(&mut self, place: ClientSlot) {
        self.knocking = None;
        self.place = Some(place);
    }

    /// The TLS session, if there is one.
    pub(crate) fn session(&self) -> Option<&rustls::Connection> {
        self.stream.session()
    }

    /// The hash of the gateway's certificate by which a login is bound to this TLS session.
    pub(crate) fn end_point(&self) -> Option<&[u8]> {
        self.end_point.as_deref()
    }

    /// Performs the TLS handshake.
    ///
    /// Errors: `InvalidData` also if something has been read already: it was not encrypted, and
    /// an attacker may have injected it.
    pub(crate) async fn encrypt(&mut self) -> Result<(), ClientError> {
        let gate = self.gate.clone();
        let Some(tls) = gate.tls.as_ref().filter(|_| self.incoming.is_empty()) else {
            return Err(ClientError::Lost(io::ErrorKind::InvalidData.into()));
        };
        let under = self.take_stream();
        (self.stream, self.end_point) = tls.accept(under).await?;
        Ok(())
    }

    /// Performs the TLS handshake with another gateway that brings a client: what comes then is within it.
    pub(crate) async fn encrypt_between(&mut self) -> Result<(), ClientError> {
        if !self.incoming.is_empty() {
            return Err(ClientError::Lost(io::ErrorKind::InvalidData.into()));
        }
        let under = self.take_stream();
        self.stream = self.gate.between.accept(under).await?;
        Ok(())
    }

    /// What is left is the socket, to see whether the client is there.
    fn take_stream(&mut self) -> Stream {
        let socket = Stream::Plain(self.stream.socket().clone());
        std::mem::replace(&mut self.stream, socket)
    }

    /// Whether the client begins with TLS, without asking first. Waits for its first byte.
    pub(crate) async fn begins_with_tls(&mut self) -> Result<bool, ClientError> {
        /// The type of the record that a ClientHello is in.
        const HANDSHAKE: u8 = 0x16;
        Ok(self.stream.first_byte().await? == Some(HANDSHAKE))
    }

    /// Whether more has been read than consumed.
    pub(crate) fn has_read_on(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Reads one startup packet; `None` if the client left without sending anything.
    pub async fn startup(&mut self) -> Result<Option<Startup>, ClientError> {
        loop {
            if let Some(len) = startup::packet_len(&self.incoming)?
                && len <= self.incoming.len()
            {
                let packet = self.incoming.split_to(len).freeze();
                return Ok(Some(startup::decode(packet)?));
            }
            if self.read_more().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Sends one byte immediately: the answer to a request for encryption.
    pub async fn answer_encryption_request(&mut self, answer: u8) -> Result<(), ClientError> {
        self.answer_at_once(&[answer]).await
    }

    /// Sends what is no message immediately.
    pub(crate) async fn answer_at_once(&mut self, answer: &[u8]) -> Result<(), ClientError> {
        Ok(self.stream.write_all(&mut BytesMut::from(answer)).await?)
    }

    /// The next message; sends what is buffered before it waits. `None` at the end of the stream.
    /// Cancel-safe.
    pub async fn next_frame(&mut self) -> Result<Option<Frame>, ClientError> {
        match self.wait_for_frame().await? {
            true => Ok(take_frame(&mut self.incoming)?),
            false => Ok(None),
        }
    }

    /// Waits until a whole message has been read; sends what is buffered before that. False at the end
    /// of the stream. Cancel-safe.
    pub async fn wait_for_frame(&mut self) -> Result<bool, ClientError> {
        loop {
            match frame_len(&self.incoming)? {
                Some(len) if len <= self.incoming.len() => return Ok(true),
                // Not in one step: a header alone must not make us allocate a gigabyte.
                Some(len) => {
                    self.incoming.reserve((len - self.incoming.len()).min(ROOM_BYTES_MAX));
                }
                None => (),
            }
            self.flush().await?;
            if self.read_more().await? == 0 {
                return Ok(false);
            }
        }
    }

    /// What has been read and not consumed, as it is.
    pub fn unread(&self) -> &[u8] {
        &self.incoming
    }

    /// Consumes `len` bytes of it, which end with a message.
    pub fn skip(&mut self, len: usize) {
        self.incoming.advance(len);
    }

    /// The same, for a client that is not authenticated yet: a longer message is refused before
    /// memory is spent on it.
    pub(crate) async fn next_short_frame(
        &mut self,
        len_max: usize,
    ) -> Result<Option<Frame>, ClientError> {
        loop {
            if let Some(len) = frame_len(&self.incoming)?.filter(|len| len_max < *len) {
                let length = i64::try_from(len).unwrap_or(i64::MAX);
                return Err(WireError::Length { length }.into());
            }
            if let Some(frame) = take_frame(&mut self.incoming)? {
                return Ok(Some(frame));
            }
            self.flush().await?;
            if self.read_more().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Reads what is there, at least one byte; 0 at the end of the stream. Cancel-safe.
    ///
    /// While nothing arrives, an idle client costs no large buffer.
    async fn read_more(&mut self) -> io::Result<usize> {
        for buffer in [&mut self.incoming, &mut self.outgoing] {
            // (Its capacity alone does not count what has been taken from its front.)
            if buffer.is_empty() && buffer.try_reclaim(IDLE_BUFFER_BYTES_MAX + 1) {
                *buffer = BytesMut::new();
            }
        }
        loop {
            self.stream.readable().await?;
            let chunk = if self.sends_much { READ_CHUNK_BYTES_MAX } else { READ_CHUNK_BYTES };
            match self.stream.try_read(&mut self.incoming, chunk) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                read => {
                    self.sends_much = self.incoming.len() == self.incoming.capacity();
                    return read;
                }
            }
        }
    }

    /// The socket, to see from elsewhere whether the client is still there.
    pub fn stream(&self) -> &Arc<TcpStream> {
        self.stream.socket()
    }

    /// Whether a whole message is waiting in memory already.
    pub fn has_frame(&self) -> bool {
        matches!(frame_len(&self.incoming), Ok(Some(len)) if len <= self.incoming.len())
    }

    /// Whether the next message is there and ends what the client has sent so far.
    pub fn comes_to_sync(&self) -> bool {
        self.has_frame() && self.incoming.first() == Some(&b'S')
    }

    /// Whether what has arrived of the client's flight is at most one Execute, perhaps with a Describe before
    /// it, and a Sync.
    pub fn ends_with_execution(&self) -> bool {
        let mut executions = 0;
        for tag in self.arrived() {
            match tag {
                b'S' => return true,
                b'D' => (),
                b'E' if executions == 0 => executions += 1,
                _ => return false,
            }
        }
        false
    }

    /// Whether what has arrived goes on with an Execute, perhaps with a Describe before it.
    pub fn comes_to_execution(&self) -> bool {
        self.arrived().find(|tag| *tag != b'D') == Some(b'E')
    }

    /// The types of the messages that have arrived and are not taken yet; the last may not be whole.
    fn arrived(&self) -> impl Iterator<Item = u8> {
        let mut rest = &self.incoming[..];
        std::iter::from_fn(move || {
            let len = frame_len(rest).ok()??;
            let tag = *rest.first()?;
            rest = rest.get(len..).unwrap_or_default();
            Some(tag)
        })
    }

    /// Where answers are written.
    pub fn out(&mut self) -> &mut BytesMut {
        self.captured.as_mut().map_or(&mut self.outgoing, Capture::buffer)
    }

    /// How many bytes have been written for the client since the session began. While answers are
    /// kept, those do not count.
    pub fn written(&self) -> u64 {
        self.sent + self.outgoing.len() as u64
    }

    /// Where in the buffer what has been written since [`Self::written`] was this begins, if none of it has
    /// been sent and running the statement again would write all of it again.
    pub fn said_again(&self, written: u64) -> Option<usize> {
        let start = usize::try_from(written.checked_sub(self.sent)?).ok()?;
        let mut at = start;
        while at < self.outgoing.len() {
            // Answers to Parse, Bind and Describe, and rows and notices, but no statement's end.
            let is_said_again =
                matches!(self.outgoing[at], b'1' | b'2' | b'n' | b't' | b'T' | b'D' | b'N');
            at += frame_len(&self.outgoing[at..]).ok()?.filter(|_| is_said_again)?;
        }
        Some(start)
    }

    /// Takes back what has been written from there on.
    pub fn take_back(&mut self, start: usize) {
        self.outgoing.truncate(start);
    }

    /// Sends what is buffered if it is much. A capture that has grown too large is dropped, or goes elsewhere.
    pub async fn flush_if_full(&mut self) -> Result<(), ClientError> {
        self.heed_capture().await;
        if self.outgoing.len() < FLUSH_BYTES { Ok(()) } else { self.flush().await }
    }

    async fn heed_capture(&mut self) {
        let Some(captured) = &mut self.captured else { return };
        match &mut captured.spool {
            Some(spool) => spool.make_room().await,
            None => captured.heed_limit(),
        }
    }

    /// Sends what is buffered.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        self.sent += self.outgoing.len() as u64;
        if !self.outgoing.is_empty() || self.stream.holds_output() {
            self.stream.write_all(&mut self.outgoing).await?;
        }
        Ok(())
    }

    /// Sends what can be sent without waiting. What the client does not take stays buffered; if that is
    /// much, waits as [`Self::flush`] does.
    pub async fn flush_early(&mut self) -> Result<(), ClientError> {
        self.heed_capture().await;
        if HELD_BYTES_MAX < self.outgoing.len() {
            return self.flush().await;
        }
        let before = self.outgoing.len();
        let written = self.stream.write_at_once(&mut self.outgoing);
        self.sent += (before - self.outgoing.len()) as u64;
        Ok(written?)
    }

    /// From now on answers are kept instead of sent, until [`Self::end_capture`]: up to so many bytes.
    pub fn begin_capture(&mut self, bytes_max: usize) {
        let (bytes, is_over, spool) = (BytesMut::new(), false, None);
        self.captured = Some(Capture { bytes, bytes_max, is_over, spool });
    }

    /// The same until [`Self::end_spool`]: as many as there are.
    pub(crate) fn begin_spool(&mut self, spool: Spool) {
        self.begin_capture(0);
        if let Some(captured) = &mut self.captured {
            captured.spool = Some(spool);
        }
    }

    /// Where it is that was kept since [`Self::begin_spool`].
    pub(crate) fn end_spool(&mut self) -> Option<Spool> {
        self.captured.take()?.spool
    }

    /// What was kept since [`Self::begin_capture`]; `None`: there was too much.
    pub fn end_capture(&mut self) -> Option<Bytes> {
        let Some(mut captured) = self.captured.take() else { return Some(Bytes::new()) };
        captured.heed_limit();
        (!captured.is_over).then(|| captured.bytes.freeze())
    }

    /// Sets a capture aside, so that another can be made inside it.
    pub(crate) fn take_capture(&mut self) -> Option<Capture> {
        self.captured.take()
    }

    /// Goes on with a capture that was set aside.
    pub(crate) fn resume_capture(&mut self, captured: Option<Capture>) {
        self.captured = captured;
    }

    /// Writes an error.
    pub fn put_error(&mut self, error: &ErrorFields) {
        error.put(self.out(), b'E');
    }

    /// Writes a notice or warning.
    pub fn put_notice(&mut self, notice: &ErrorFields) {
        notice.put(self.out(), b'N');
    }

    /// From now on notices of nodes are held back, until it is known whether they stand.
    pub(crate) fn hold_notices(&mut self) {
        self.held_notices.get_or_insert_default();
    }

    /// Writes what was held back, if it stands, and stops holding notices back.
    pub(crate) fn end_notices(&mut self, are_true: bool) {
        let held = self.held_notices.take().filter(|_| are_true);
        self.out().extend_from_slice(&held.unwrap_or_default());
    }

    /// Passes on a node's notice. False if it is held back, unless there are too many.
    pub(crate) fn pass_notice(&mut self, notice: &Frame) -> bool {
        if let Some(held) = &mut self.held_notices
            && held.len() + notice.as_bytes().len() <= HELD_NOTICES_BYTES_MAX
        {
            held.extend_from_slice(notice.as_bytes());
            return false;
        }
        self.end_notices(true);
        self.out().extend_from_slice(notice.as_bytes());
        true
    }

    /// Tells the client what a setting is now, after an answer of the gateway's own has changed it.
    pub fn report_setting(&mut self, link: &mut Link, frame: &Frame) -> Result<(), WireError> {
        let (name, value) = decode_parameter_status(frame)?;
        for (name, value) in link.connection().take_reports() {
            self.report(name, value);
        }
        self.report(name, value);
        Ok(())
    }

    /// A setting has this value now. As in PostgreSQL, the client is told with the next
    /// ReadyForQuery, and only if the value differs from the one it knows.
    pub fn report(&mut self, name: String, value: String) {
        self.reported.retain(|(known, _)| *known != name);
        self.reported.push((name, value));
    }

    /// Writes what has been reported and is new to the client.
    pub fn put_reports(&mut self) {
        for (name, value) in std::mem::take(&mut self.reported) {
            if self.told.get(&name) != Some(&value) {
                put_parameter_status(self.out(), &name, &value);
                self.told.insert(name, value);
            }
        }
    }

    /// Writes ReadyForQuery.
    pub fn put_ready(&mut self, status: TransactionStatus) {
        self.put_reports();
        put_ready_for_query(self.out(), status);
    }
}
