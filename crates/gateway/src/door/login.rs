//! One connection, from its first byte to its session.
//!
//! Owns: the packets before a session, cancel requests, and which requests get no session.
//! Never: acts for a session.
//! Start reading at [`welcome`].

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout_at;
use tutti_link::connection::is_refused_setting;
use tutti_link::net::stream::keep_alive;
use tutti_sql::settings::check_value;
use tutti_wire::backend::put_negotiate_protocol_version;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::WireError;
use tutti_wire::startup::{PROTOCOL_3_0, Startup};

use super::authenticate::authenticate;
use super::{forward, startup_packet};
use crate::client::failure::{Failure, as_fatal};
use crate::client::gate::{Gate, HandshakeSlot};
use crate::client::{Client, ClientError};
use crate::registry::Registry;
use crate::session::Session;

/// One connection, from its first byte.
pub(super) async fn welcome(
    registry: Arc<Registry>,
    gate: Arc<Gate>,
    stream: TcpStream,
    peer: SocketAddr,
    knocking: HandshakeSlot,
) -> Result<(), ClientError> {
    stream.set_nodelay(true)?;
    keep_alive(&stream, gate.keepalive());
    let client = Client::new(stream, peer, gate, knocking);
    // Boxed: a session keeps its task's memory, and opening one takes more than it needs itself.
    match Box::pin(open(registry, client)).await? {
        Some(mut session) => session.run().await,
        None => Ok(()),
    }
}

/// The session that a client comes for. `None`: it came for something else, or was refused.
async fn open(
    registry: Arc<Registry>,
    mut client: Client,
) -> Result<Option<Box<Session>>, ClientError> {
    let deadline = client.deadline();
    match timeout_at(deadline, read_startup(&mut client, &registry)).await {
        Ok(Ok(Some(Startup::Cancel { process_id, secret }))) => {
            if registry.backends.is_session(process_id, secret) {
                registry.cancel_session(process_id).await;
            }
            Ok(None)
        }
        // Others take the lead when those that it has are gone, and until then bring theirs.
        Ok(Ok(Some(Startup::Session { .. })))
            if registry.is_stopping() && !client.was_passed_on() =>
        {
            let error = ErrorFields::fatal("57P03", "the gateway is shutting down").with(
                b'H',
                "Connect to another gateway of the cluster, or again when this one is back.",
            );
            client.put_error(&error);
            client.flush().await?;
            Ok(None)
        }
        Ok(Ok(Some(Startup::OtherProtocol { version }))) => {
            let (major, minor) = (version as u32 >> 16, version & 0xffff);
            let message = format!(
                "unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0"
            );
            client.put_error(&ErrorFields::fatal("0A000", message));
            client.flush().await?;
            Ok(None)
        }
        Ok(Ok(Some(Startup::Session { version, parameters }))) => {
            Ok(log_in(registry, client, version, parameters).await?.map(Box::new))
        }
        // Gone, or too slow. PostgreSQL sends nothing either.
        Ok(Ok(_)) | Err(_) => Ok(None),
        Ok(Err(error @ ClientError::Protocol(_))) => {
            client.put_error(&ErrorFields::fatal("08P01", "invalid startup packet"));
            client.flush().await?;
            Err(error)
        }
        Ok(Err(error)) => Err(error),
    }
}

/// Answers requests for encryption until the client says what it wants. `None` if it leaves, or was
/// refused.
async fn read_startup(
    client: &mut Client,
    registry: &Registry,
) -> Result<Option<Startup>, ClientError> {
    if !may_go_on(client).await? {
        return Ok(None);
    }
    let has_tls = client.gate().tls.is_some();
    let mut is_first = true;
    loop {
        let packet = client.startup().await?;
        match packet {
            // From another gateway: what comes next is the client's.
            Some(Startup::ForwardRequest { nonce }) if is_first && client.session().is_none() => {
                let cluster = &registry.cluster;
                forward::receive(client, &cluster.seals, cluster.incarnation(), nonce).await?;
                if !may_go_on(client).await? {
                    return Ok(None);
                }
            }
            Some(Startup::ForwardRequest { .. } | Startup::Forwarded { .. }) => {
                return Err(WireError::Malformed.into());
            }
            Some(Startup::SslRequest) if client.session().is_none() => {
                // It may have been injected in between, to be taken for the client's own.
                if client.has_read_on() {
                    let message = "received unencrypted data after SSL request";
                    let detail = "This could be either a client-software bug or evidence of an \
                                  attempted man-in-the-middle attack.";
                    let error = ErrorFields::fatal("08P01", message).with(b'D', detail);
                    client.put_error(&error);
                    client.flush().await?;
                    return Ok(None);
                }
                client.answer_encryption_request(if has_tls { b'S' } else { b'N' }).await?;
                if has_tls {
                    client.encrypt().await?;
                }
            }
            // Never offered: the client may go on without it, or leave.
            Some(Startup::GssEncRequest) if client.session().is_none() => {
                client.answer_encryption_request(b'N').await?;
            }
            Some(Startup::SslRequest | Startup::GssEncRequest) => {
                return Err(WireError::Malformed.into());
            }
            other => return Ok(other),
        }
        is_first = false;
    }
}

/// Does the handshake of a client that begins with TLS. False: it was not meant for this protocol.
async fn may_go_on(client: &mut Client) -> Result<bool, ClientError> {
    if client.gate().tls.is_none() || !client.begins_with_tls().await? {
        return Ok(true);
    }
    client.encrypt().await?;
    // As PostgreSQL.
    Ok(client.session().is_some_and(|session| session.alpn_protocol().is_some()))
}

/// What the packet asks for, where that can be granted.
struct Wanted {
    user: String,
    database: String,
    /// All of the packet's parameters.
    parameters: Vec<(String, String)>,
}

/// Errors: requests that get no session.
fn read_wanted(parameters: Vec<(String, String)>) -> Result<Wanted, ErrorFields> {
    let find = |name: &str| {
        parameters.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone())
    };
    let Some(user) = find("user").filter(|user| !user.is_empty()) else {
        let message = "no PostgreSQL user name specified in startup packet";
        return Err(ErrorFields::fatal("28000", message));
    };
    let database = find("database").unwrap_or_else(|| user.clone());
    if find("replication").is_some_and(|value| !matches!(value.as_str(), "false" | "off" | "0")) {
        let message = "replication connections are not supported by Tutti";
        let hint = "Connect to a node directly.";
        return Err(ErrorFields::fatal("0A000", message).with(b'H', hint));
    }
    if find("client_encoding").is_some_and(|it| is_refused_setting("client_encoding", &it)) {
        let message = "client encodings other than UTF8 are not supported";
        let hint = "Connect with client_encoding=UTF8.";
        return Err(ErrorFields::fatal("0A000", message).with(b'H', hint));
    }
    Ok(Wanted { user, database, parameters })
}

/// Answers the startup of a client: finds out who it is, checks the database, and begins its session. `None`:
/// refused, and the client has been told.
async fn log_in(
    registry: Arc<Registry>,
    mut client: Client,
    version: i32,
    parameters: Vec<(String, String)>,
) -> Result<Option<Session>, ClientError> {
    let Wanted { user, database, parameters } = match read_wanted(parameters) {
        Ok(wanted) => wanted,
        Err(error) => return refuse(client, error).await,
    };
    let (unknown_options, parameters): (Vec<_>, Vec<_>) =
        parameters.into_iter().partition(|(name, _)| name.starts_with("_pq_."));
    let startup = match startup_packet::settings_of(parameters) {
        Ok(startup) => startup,
        Err(error) => return refuse(client, error).await,
    };
    let checked = startup.iter().try_for_each(|(name, value)| check_value(name, value));
    if let Err(Failure::Statement(error)) = checked.map_err(Failure::from) {
        return refuse(client, as_fatal(*error)).await;
    }
    if version != PROTOCOL_3_0 || !unknown_options.is_empty() {
        let names: Vec<_> = unknown_options.iter().map(|(name, _)| name.as_str()).collect();
        put_negotiate_protocol_version(client.out(), PROTOCOL_3_0, &names);
    }
    let renewal = registry.pool.renewal();
    let identity = match authenticate(&registry, &mut client, &user, &database).await {
        Ok(identity) => identity,
        Err(Failure::Client(error)) => return Err(error),
        Err(Failure::Statement(error)) => return refuse(client, as_fatal(*error)).await,
    };
    registry.pool.note_login(identity.role, &identity.settings);
    if database != registry.cluster.config.database {
        let message = format!("database \"{database}\" does not exist");
        let hint =
            format!("This cluster serves the database \"{}\".", registry.cluster.config.database);
        return refuse(client, ErrorFields::fatal("3D000", message).with(b'H', hint)).await;
    }
    Session::open(registry, client, identity, startup, renewal).await
}

async fn refuse(mut client: Client, error: ErrorFields) -> Result<Option<Session>, ClientError> {
    client.put_error(&error);
    client.flush().await?;
    Ok(None)
}
