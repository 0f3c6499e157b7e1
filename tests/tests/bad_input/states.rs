//! The states that a session can be in when something wrong arrives.
//!
//! Owns: how to get there. Never: what is sent then.

use anyhow::{Result, ensure};
use bytes::BytesMut;
use tutti_tests::client::Endpoint;
use tutti_wire::frontend::{Arguments, put_bind, put_execute, put_flush, put_parse, put_query};

use super::raw::{Raw, startup_packet};

/// A state of the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// Nothing has been said.
    Connected,
    /// Encryption was asked for and declined.
    Declined,
    /// Half of a startup packet has been sent.
    InStartup,
    /// Between transactions.
    Idle,
    /// In the COPY … FROM STDIN of a Query, over several nodes.
    Copying,
    /// The same into a replicated table.
    CopyingToReplicas,
    /// In a COPY … FROM STDIN by the extended protocol.
    CopyingExtended,
    /// A statement has been executed by messages that no Sync has ended.
    InFlight,
    /// The transaction has failed.
    Failed,
    /// A message has failed and everything up to Sync is skipped.
    Skipping,
    /// In a transaction, a portal has given some of its rows.
    Suspended,
    /// The same, and the portal's rows come from several nodes.
    SuspendedOverNodes,
}

/// Those before a session.
pub const BEFORE: [State; 3] = [State::Connected, State::Declined, State::InStartup];

/// Those in a session.
pub const WITHIN: [State; 9] = [
    State::Idle,
    State::Copying,
    State::CopyingToReplicas,
    State::CopyingExtended,
    State::InFlight,
    State::Failed,
    State::Skipping,
    State::Suspended,
    State::SuspendedOverNodes,
];

/// Puts the unnamed statement, its portal and an Execute, and asks for the answers.
fn put_flight(out: &mut BytesMut, sql: &str, row_limit: i32) {
    put_parse(out, "", sql, &[]);
    put_bind(out, "", "", &Arguments::default());
    put_execute(out, "", row_limit);
    put_flush(out);
}

impl State {
    /// Whether the server waits for COPY data.
    pub fn copies(self) -> bool {
        matches!(self, Self::Copying | Self::CopyingToReplicas | Self::CopyingExtended)
    }

    /// A connection in this state.
    pub fn reach(self, endpoint: &Endpoint) -> Result<Raw> {
        let mut out = BytesMut::new();
        let last = match self {
            Self::Connected => return Raw::open(endpoint),
            Self::Declined => {
                let mut raw = Raw::open(endpoint)?;
                raw.send(&[0, 0, 0, 8, 4, 210, 22, 47])?;
                ensure!(raw.byte()? == b'N', "encryption was not declined");
                return Ok(raw);
            }
            Self::InStartup => {
                let mut raw = Raw::open(endpoint)?;
                raw.send(&startup_packet()[..20])?;
                return Ok(raw);
            }
            Self::Idle => return Raw::begin(endpoint),
            Self::Copying => {
                put_query(&mut out, "COPY t FROM STDIN");
                b'G'
            }
            Self::CopyingToReplicas => {
                put_query(&mut out, "COPY copied FROM STDIN");
                b'G'
            }
            Self::CopyingExtended => {
                put_flight(&mut out, "COPY t FROM STDIN", 0);
                b'G'
            }
            Self::InFlight => {
                put_flight(&mut out, "UPDATE t SET v = v WHERE id = 1", 0);
                b'C'
            }
            Self::Failed => {
                put_query(&mut out, "BEGIN; UPDATE t SET v = v WHERE id = 2; SELECT 1 / 0");
                b'Z'
            }
            Self::Skipping => {
                put_flight(&mut out, "SELECT nothing FROM nowhere", 0);
                b'E'
            }
            Self::Suspended | Self::SuspendedOverNodes => {
                put_query(&mut out, "BEGIN");
                put_flight(
                    &mut out,
                    match self {
                        Self::Suspended => "SELECT generate_series(1, 9)",
                        _ => "SELECT id FROM witness ORDER BY id",
                    },
                    2,
                );
                b's'
            }
        };
        let mut raw = Raw::begin(endpoint)?;
        raw.send(&out)?;
        raw.wait_for(last)?;
        Ok(raw)
    }
}
