//! A socket to a client or to a node, plain or with TLS.
//!
//! Owns: reading and writing without waiting, and the TLS session between bytes and socket.
//! Never: knows what the bytes mean, or keeps a buffer while there is nothing to read.
//! Start reading at [`Stream`]. TLS is driven here rather than by an asynchronous wrapper, so that
//! both kinds have the same way to wait, which loses nothing when it is given up half-way.

use std::future::poll_fn;
use std::io::{self, BufRead, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use rustls::Connection;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tutti_configuration::Keepalive;

/// See the module's documentation.
#[derive(Debug)]
pub enum Stream {
    /// As it is.
    Plain(Arc<TcpStream>),
    /// Through TLS.
    Tls(Box<TlsStream>),
    /// Through TLS that is not the peer's: another gateway has brought its bytes.
    Carried(Box<TlsStream>),
}

/// A TLS session, its handshake done.
#[derive(Debug)]
pub struct TlsStream {
    /// A socket, or a session with whoever brings the peer's bytes.
    under: Stream,
    session: Connection,
    /// The session may hold what came with the end of the handshake.
    has_more: bool,
}

impl Stream {
    /// The socket, to see from elsewhere whether the peer is still there.
    pub fn socket(&self) -> &Arc<TcpStream> {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) | Self::Carried(tls) => tls.under.socket(),
        }
    }

    /// The peer's TLS session, if there is one.
    pub fn session(&self) -> Option<&Connection> {
        match self {
            Self::Plain(_) | Self::Carried(_) => None,
            Self::Tls(tls) => Some(&tls.session),
        }
    }

    /// Reads what has arrived, about `chunk` bytes at most; 0 at the end. WouldBlock if there is nothing.
    pub fn try_read(&mut self, into: &mut BytesMut, chunk: usize) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => {
                into.reserve(chunk);
                read_drained(socket, into)
            }
            Self::Tls(tls) | Self::Carried(tls) => tls.try_read(into, chunk),
        }
    }

    /// Takes some of `bytes`. They may wait inside for [`Self::try_flush`]. WouldBlock if none can be
    /// taken now.
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_write(bytes),
            Self::Tls(tls) | Self::Carried(tls) => {
                tls.try_flush()?;
                let taken = tls.session.writer().write(bytes)?;
                match tls.try_flush() {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                    _ => Ok(taken),
                }
            }
        }
    }

    /// Sends what was taken and waits inside. WouldBlock if some of it stays.
    pub fn try_flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(tls) | Self::Carried(tls) => tls.try_flush(),
        }
    }

    /// Ends what is written; the peer may go on. WouldBlock if some of it has not been sent: then it is to be ended again.
    ///
    /// TLS is told nothing: its library takes none of the peer's errors any more once it has said close_notify.
    pub fn try_end(&mut self) -> io::Result<()> {
        self.try_flush()?;
        socket2::SockRef::from(&**self.socket()).shutdown(Shutdown::Write)
    }

    /// Whether something that was taken waits inside.
    pub fn holds_output(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) | Self::Carried(tls) => {
                tls.session.wants_write() || tls.under.holds_output()
            }
        }
    }

    /// Waits until it is worth reading. Cancel-safe.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_readable(context)).await
    }

    /// The same. One task at a time waits, for which this needs no list of those that wait.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => socket.poll_read_ready(context),
            Self::Tls(tls) | Self::Carried(tls) if tls.has_more => Poll::Ready(Ok(())),
            Self::Tls(tls) | Self::Carried(tls) => tls.under.poll_readable(context),
        }
    }

    /// Waits until it is worth writing. Cancel-safe.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|context| self.socket().poll_write_ready(context)).await
    }

    /// The next byte that will be read, which stays; `None` at the end. Cancel-safe.
    pub async fn first_byte(&mut self) -> io::Result<Option<u8>> {
        let tls = match self {
            Self::Plain(socket) => {
                let mut first = [0];
                return Ok((socket.peek(&mut first).await? == 1).then_some(first[0]));
            }
            Self::Tls(tls) | Self::Carried(tls) => tls,
        };
        loop {
            match tls.session.reader().fill_buf() {
                Ok(bytes) => {
                    tls.has_more = true;
                    return Ok(bytes.first().copied());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(error),
            }
            match tls.receive() {
                Ok(_) => (),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tls.under.readable().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends as much of `bytes` as can be sent without waiting, and takes it out of the buffer.
    pub fn write_at_once(&mut self, bytes: &mut BytesMut) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => drop(bytes.split_to(len)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends all of `bytes`. What has been sent is gone from the buffer, so that this is cancel-safe.
    pub async fn write_all(&mut self, bytes: &mut BytesMut) -> io::Result<()> {
        loop {
            let done = if bytes.is_empty() {
                self.try_flush().map(|()| None)
            } else {
                self.try_write(bytes).map(Some)
            };
            match done {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(Some(len)) => drop(bytes.split_to(len)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads once. What did not fill the buffer has emptied the socket: then it counts as not readable
/// until more comes, so that the next wait need not ask the kernel in vain.
fn read_drained(socket: &TcpStream, into: &mut BytesMut) -> io::Result<usize> {
    let room = into.capacity() - into.len();
    let mut drained = None;
    // The readiness that this clears is the one from before the read; what comes after it counts.
    let read = socket.try_io(Interest::READABLE, || {
        let len = socket.try_read_buf(into)?;
        if 0 < len && len < room {
            drained = Some(len);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(len)
    });
    drained.map_or(read, Ok)
}

impl TlsStream {
    /// Performs the TLS handshake over a stream of which nothing that belongs to TLS has been read yet.
    ///
    /// Errors: `InvalidData` with what TLS says is wrong, after the peer was told.
    pub async fn shake_hands(under: Stream, session: impl Into<Connection>) -> io::Result<Self> {
        let mut tls = Self { under, session: session.into(), has_more: true };
        loop {
            match tls.try_flush() {
                Ok(()) if !tls.session.is_handshaking() => return Ok(tls),
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tls.under.writable().await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            tls.under.readable().await?;
            match tls.receive() {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => (),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                Err(error) => return Err(error),
            }
        }
    }

    fn try_read(&mut self, into: &mut BytesMut, chunk: usize) -> io::Result<usize> {
        let before = into.len();
        loop {
            let end = self.take_plaintext(into)?;
            let read = into.len() - before;
            if end {
                return Ok(read);
            }
            if chunk <= read {
                return Ok(read);
            }
            match self.receive() {
                Ok(_) => (),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && 0 < read => {
                    return Ok(read);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Moves everything that is decrypted; true at the end of the stream.
    fn take_plaintext(&mut self, into: &mut BytesMut) -> io::Result<bool> {
        self.has_more = false;
        let mut reader = self.session.reader();
        loop {
            match reader.fill_buf() {
                Ok([]) => return Ok(true),
                Ok(bytes) => {
                    into.extend_from_slice(bytes);
                    let len = bytes.len();
                    reader.consume(len);
                }
                Err(error) => {
                    return match error.kind() {
                        io::ErrorKind::WouldBlock => Ok(false),
                        // Without close_notify. Messages have lengths, so that no partial one is taken for
                        // whole.
                        io::ErrorKind::UnexpectedEof => Ok(true),
                        _ => Err(error),
                    };
                }
            }
        }
    }

    /// Reads what there is, as it is decrypted; 0 at the end.
    fn read_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.has_more = false,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => {
                    // There may be more than `into` could take.
                    self.has_more = true;
                    return read;
                }
            }
            self.receive()?;
        }
    }

    /// Reads once from below and decrypts; 0 at the end.
    fn receive(&mut self) -> io::Result<usize> {
        let len = self.session.read_tls(&mut Below(&mut self.under))?;
        if let Err(error) = self.session.process_new_packets() {
            // The peer may learn what is wrong; whether it does changes nothing.
            let _ = self.try_flush();
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        // What TLS itself has to say goes out with the next flush at the latest.
        match self.try_flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(len),
        }
    }

    fn try_flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(&mut Below(&mut self.under))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.under.try_flush()
    }
}

impl Drop for TlsStream {
    /// Sends close_notify, if that is possible without waiting: a peer that gets none may suspect that the
    /// stream was truncated by an attacker.
    fn drop(&mut self) {
        self.session.send_close_notify();
        let _ = self.try_flush();
    }
}

/// What lies below a session, as the TLS library wants it: WouldBlock where it would wait.
struct Below<'a>(&'a mut Stream);

impl Read for Below<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0 {
            Stream::Plain(socket) => socket.try_read(into),
            Stream::Tls(tls) | Stream::Carried(tls) => tls.read_some(into),
        }
    }
}

impl Write for Below<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a peer noticed that has vanished silently. A socket that cannot be configured works all the same.
pub fn keep_alive(socket: &TcpStream, settings: &Keepalive) {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(settings.idle_s))
        .with_interval(Duration::from_secs(settings.interval_s))
        .with_retries(settings.probes);
    if let Err(error) = socket2::SockRef::from(socket).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "cannot set TCP keepalive");
    }
}
