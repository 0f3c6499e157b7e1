//! The client's side of a session: its socket and both buffers.
//!
//! Owns: framed reading, buffered writing, the capture of answers that are not to be sent yet, and
//! which settings the client has been told of.
//! Never: interprets messages.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::TcpStream;
use tutti_wire::backend::{TransactionStatus, put_parameter_status, put_ready_for_query};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::{Frame, WireError, take_frame};
use tutti_wire::startup::{self, Startup};

/// Answers are sent when this many bytes have gathered, or when the client is waited for.
const FLUSH_BYTES: usize = 64 * 1024;

/// Why no further message can be read from a client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection ended or broke.
    #[error("client connection lost")]
    Lost(#[from] io::Error),
    /// The client sent what the protocol does not allow; the stream cannot be followed further.
    #[error(transparent)]
    Protocol(#[from] WireError),
}

/// A connected client.
#[derive(Debug)]
pub struct Client {
    stream: Arc<TcpStream>,
    incoming: BytesMut,
    outgoing: BytesMut,
    captured: Option<BytesMut>,
    /// Reported settings as the client knows them.
    told: HashMap<String, String>,
    /// Reported settings as nodes have told them since the last ReadyForQuery.
    reported: Vec<(String, String)>,
}

impl Client {
    /// Takes over a socket.
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream: Arc::new(stream),
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            captured: None,
            told: HashMap::new(),
            reported: Vec::new(),
        }
    }

    /// Reads one startup packet; `None` if the client left without a word.
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

    /// Sends one byte at once: the answer to a request for encryption.
    pub async fn answer_encryption_request(&mut self, answer: u8) -> Result<(), ClientError> {
        Ok(write_all(&self.stream, &mut &[answer][..]).await?)
    }

    /// The next message; sends what is buffered before it waits. `None` at the end of the stream.
    /// Cancel-safe.
    pub async fn next_frame(&mut self) -> Result<Option<Frame>, ClientError> {
        loop {
            if let Some(frame) = take_frame(&mut self.incoming)? {
                return Ok(Some(frame));
            }
            self.flush().await?;
            self.incoming.reserve(8 * 1024);
            if self.read_more().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Reads what is there, at least one byte; 0 at the end of the stream. Cancel-safe.
    async fn read_more(&mut self) -> io::Result<usize> {
        loop {
            self.stream.readable().await?;
            match self.stream.try_read_buf(&mut self.incoming) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                read => return read,
            }
        }
    }

    /// The socket, to see from elsewhere whether the client is still there.
    pub fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    /// Whether a whole message is waiting in memory already.
    pub fn has_frame(&self) -> bool {
        matches!(tutti_wire::frame::frame_len(&self.incoming), Ok(Some(len)) if len <= self.incoming.len())
    }

    /// Where answers are written.
    pub fn out(&mut self) -> &mut BytesMut {
        self.captured.as_mut().unwrap_or(&mut self.outgoing)
    }

    /// Sends what is buffered if it is much.
    pub async fn flush_if_full(&mut self) -> Result<(), ClientError> {
        if self.outgoing.len() < FLUSH_BYTES { Ok(()) } else { self.flush().await }
    }

    /// Sends what is buffered.
    pub async fn flush(&mut self) -> Result<(), ClientError> {
        if !self.outgoing.is_empty() {
            write_all(&self.stream, &mut self.outgoing).await?;
        }
        Ok(())
    }

    /// From now on answers are kept instead of sent, until [`Self::end_capture`].
    pub fn begin_capture(&mut self) {
        self.captured = Some(BytesMut::new());
    }

    /// What was kept since [`Self::begin_capture`].
    pub fn end_capture(&mut self) -> Bytes {
        self.captured.take().unwrap_or_default().freeze()
    }

    /// Writes an error.
    pub fn put_error(&mut self, error: &ErrorFields) {
        error.put(self.out(), b'E');
    }

    /// Writes a notice or warning.
    pub fn put_notice(&mut self, notice: &ErrorFields) {
        notice.put(self.out(), b'N');
    }

    /// A setting is now this. As PostgreSQL does, the client is told with the next ReadyForQuery,
    /// and only if it is something else than it knows.
    pub fn report(&mut self, name: String, value: String) {
        self.reported.retain(|(known, _)| *known != name);
        self.reported.push((name, value));
    }

    /// Tells what has been reported and is new to the client.
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

/// Cancel-safe: what has been sent is gone from the buffer.
async fn write_all(stream: &TcpStream, bytes: &mut impl Buf) -> io::Result<()> {
    while bytes.has_remaining() {
        match stream.try_write(bytes.chunk()) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => bytes.advance(len),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
