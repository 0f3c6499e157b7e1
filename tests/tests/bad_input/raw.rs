//! A connection that sends any bytes, and what a server makes of them.
//!
//! Owns: reading to the end of the connection, and the text of what was said. Never: hangs: a server
//! that neither speaks nor closes is an error.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use tutti_tests::client::{Endpoint, SILENCE_LIMIT};
use tutti_tests::conversation::told;
use tutti_wire::frame::take_frame;
use tutti_wire::frontend::{put_copy_fail, put_query, put_sync, put_terminate};
use tutti_wire::startup::put_startup;

/// What the probe's answer looks like in a session that goes on.
const STILL_HERE: &str = "still here";

/// A connection on which nothing is taken for granted.
pub struct Raw {
    stream: TcpStream,
    inbox: BytesMut,
}

impl Raw {
    /// Connects, and says nothing.
    pub fn open(endpoint: &Endpoint) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", endpoint.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_LIMIT))?;
        stream.set_write_timeout(Some(SILENCE_LIMIT))?;
        Ok(Self { stream, inbox: BytesMut::new() })
    }

    /// Begins a session as every client does.
    pub fn begin(endpoint: &Endpoint) -> Result<Self> {
        let mut raw = Self::open(endpoint)?;
        raw.send(&startup_packet())?;
        raw.wait_for(b'Z')?;
        Ok(raw)
    }

    /// Sends bytes as they are. A server may have closed the connection already: no error.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        match self.stream.write_all(bytes) {
            Err(error) if !is_closed(error.kind()) => Err(error).context("send"),
            _ => Ok(()),
        }
    }

    /// Reads up to a message with this tag.
    pub fn wait_for(&mut self, tag: u8) -> Result<()> {
        loop {
            while let Some(frame) = take_frame(&mut self.inbox)? {
                if frame.tag() == tag {
                    return Ok(());
                }
            }
            ensure!(self.read_more()?, "closed before {:?}", char::from(tag));
        }
    }

    /// Reads one byte: the answer to a request for encryption.
    pub fn byte(&mut self) -> Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn read_more(&mut self) -> Result<bool> {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => Ok(false),
            Ok(len) => {
                self.inbox.extend_from_slice(&piece[..len]);
                Ok(true)
            }
            Err(error) if is_closed(error.kind()) => Ok(false),
            Err(error) => Err(error).context("the server neither speaks nor closes"),
        }
    }

    /// Says that nothing more will be sent, and reads what is said until the server closes.
    pub fn finish(mut self) -> Result<Vec<String>> {
        match self.stream.shutdown(Shutdown::Write) {
            Err(error) if !is_closed(error.kind()) => return Err(error.into()),
            _ => (),
        }
        while self.read_more()? {}
        let mut said = Vec::new();
        loop {
            match take_frame(&mut self.inbox) {
                // Settings and keys are every server's own, and so is whether a setting in the
                // startup packet is judged before or after its user.
                Ok(Some(frame)) if b"SKNR".contains(&frame.tag()) => (),
                Ok(Some(frame)) => said.push(told(&frame)?),
                Ok(None) if self.inbox.is_empty() => return Ok(said),
                _ => bail!("half a message behind {said:?}: {:?}", self.inbox),
            }
        }
    }
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
    )
}

/// The startup packet of these tests.
pub fn startup_packet() -> Vec<u8> {
    let mut out = BytesMut::new();
    let parameters =
        [("user", "postgres"), ("database", "postgres"), ("application_name", "tutti-tests")];
    put_startup(&mut out, &parameters);
    out.to_vec()
}

/// Ends whatever is going on, in each state, and then asks whether the session is still there.
pub fn probe() -> Vec<u8> {
    let mut out = BytesMut::new();
    put_copy_fail(&mut out, "probe");
    put_sync(&mut out);
    put_query(&mut out, &format!("SELECT '{STILL_HERE}'"));
    put_terminate(&mut out);
    out.to_vec()
}

/// What became of a session.
#[derive(Debug, Eq, PartialEq)]
pub enum Fate {
    /// It answered the probe; this is all that it said.
    Lives(Vec<String>),
    /// It ended before; this is what it sent before its first error. How many messages servers send
    /// when they close a connection that is out of step differs between them, and is not compared.
    Ends(Vec<String>),
}

impl Fate {
    /// By what was said.
    pub fn of(mut said: Vec<String>) -> Self {
        let answered = match said.as_slice() {
            [.., row, _, ready] if ready.starts_with("ReadyForQuery") => {
                row.starts_with("DataRow") && row.contains(STILL_HERE)
                    || said[said.len() - 2] == "Error 25P02"
            }
            [error, ready] => error == "Error 25P02" && ready.starts_with("ReadyForQuery"),
            _ => false,
        };
        if !answered {
            said.truncate(said.iter().take_while(|line| !line.starts_with("Error")).count());
            return Self::Ends(said);
        }
        Self::Lives(said)
    }
}
