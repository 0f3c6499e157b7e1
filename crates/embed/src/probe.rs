//! Asks a server whether it takes sessions.
//!
//! Owns: one start of a session, to the first ReadyForQuery. Never: sends a statement.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::{backend, frontend};

/// A server that is alive answers immediately; this only bounds a server that hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether role `postgres` gets a session in database `postgres` on this port.
///
/// False also while the server is starting up or recovering (SQLSTATE 57P03).
pub(crate) fn takes_sessions(port: u16) -> bool {
    start_session(port).unwrap_or(false)
}

fn start_session(port: u16) -> io::Result<bool> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;

    let mut out = BytesMut::new();
    frontend::startup_message([("user", "postgres"), ("database", "postgres")], &mut out)?;
    stream.write_all(&out)?;

    let mut received = BytesMut::new();
    let mut chunk = [0; 4096];
    loop {
        while let Some(message) = backend::Message::parse(&mut received)? {
            match message {
                backend::Message::ReadyForQuery(_) => {
                    out.clear();
                    frontend::terminate(&mut out);
                    stream.write_all(&out)?;
                    return Ok(true);
                }
                backend::Message::ErrorResponse(_) => return Ok(false),
                _ => (),
            }
        }
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            return Ok(false);
        }
        received.extend_from_slice(&chunk[..length]);
    }
}
