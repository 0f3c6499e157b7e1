//! Connections of the gateway's own, to which no client's settings apply.
//!
//! Owns: what such a connection is set to, and how durable its commits are.
//! Never: runs a client's statement.

use std::io;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tutti_sql::catalog::quote_literal;
use tutti_wire::sqlstate;

use super::node_connection::HOST_PATIENCE;
use super::{Credentials, Endpoint, NodeConnection, NodeError, Run};

/// Settings of the server, the database or the role that must not interfere.
const SETTINGS: [(&str, &str); 14] = [
    ("client_encoding", "UTF8"),
    ("standard_conforming_strings", "on"),
    // A role that may create functions in another schema must not have them run by a superuser.
    ("search_path", "pg_catalog, pg_temp"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    // A gateway whose host has vanished must not keep what is held by its connections (the lock of the
    // gateway that serves) for the two hours that a server waits by default.
    ("tcp_keepalives_idle", "10"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "4"),
    // Keepalive is silent while an answer waits to be acknowledged. In milliseconds.
    ("tcp_user_timeout", "30000"),
];
/// A node that has not let us in within this is unreachable.
const OPEN_PATIENCE: Duration = Duration::from_secs(10);

/// How far a server has written what it acknowledges: the timeline, in hexadecimal digits, always eight, and the bytes.
pub const ASK_WRITTEN: &str = "SELECT pg_catalog.substr(pg_catalog.pg_walfile_name(lsn), 1, 8),
        lsn OPERATOR(pg_catalog.-) '0/0'::pg_catalog.pg_lsn
    FROM pg_catalog.pg_current_wal_flush_lsn() AS w (lsn)";

/// What a commit on a connection waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// As durable as PostgreSQL's default: flushed here and on synchronous standbys, even where the
    /// server, the database or the role has a weaker setting. A stronger one is kept.
    Full,
    /// `synchronous_commit = off`. COMMIT PREPARED is flushed nevertheless, but does not wait for
    /// standbys.
    Relaxed,
}

/// Another server may have come to the node's address: what is asked there must not be believed, and nothing may be
/// written there.
///
/// Errors: [`NodeError::Connect`] if it is not the node of the cluster.
async fn refuse_stranger(
    connection: &mut NodeConnection,
    endpoint: &Endpoint,
) -> Result<(), NodeError> {
    let Some(cluster_id) = endpoint.expected() else { return Ok(()) };
    let node = endpoint.node();
    let sql = format!(
        "SELECT count(*), {} FROM tutti.cluster WHERE id = {} AND node = {}",
        Run::STARTED,
        quote_literal(cluster_id),
        node.0
    );
    let is_it = match connection.rows(&sql).await {
        Ok(rows) => {
            connection.note_run(&Run::told(rows.text(0, 1)));
            rows.text(0, 0) == Some("1")
        }
        Err(NodeError::Refused(fields))
            if [sqlstate::UNDEFINED_TABLE, "3F000"].contains(&fields.sqlstate()) =>
        {
            false
        }
        Err(error) => return Err(error),
    };
    match is_it {
        true => Ok(()),
        false => {
            let message = format!("the server there is not node {node} of this cluster");
            Err(NodeError::unreachable(endpoint, io::Error::other(message)))
        }
    }
}

/// Of several hosts that take writes, the one of the latest timeline is the node: a standby that was promoted, not the
/// primary whose place it has taken, which may go on for a while. All are asked at once; clients' connections go where
/// the answer says.
///
/// Errors: of those that take writes none is of the latest timeline that this process has seen: the node is away, and
/// what answers is a primary whose place it has taken.
pub async fn settle_on_newest(endpoint: &Endpoint) -> Result<(), NodeError> {
    if !endpoint.is_open_question() {
        return Ok(());
    }
    let mut asking = JoinSet::new();
    for (position, address) in endpoint.addresses() {
        let endpoint = endpoint.clone();
        asking.spawn(async move {
            let own = endpoint.config();
            let credentials = Credentials::of_gateway(own);
            let asked = async {
                let opening = NodeConnection::open_at(
                    &endpoint,
                    position,
                    &address,
                    &own.user,
                    &credentials,
                    &SETTINGS,
                );
                let mut connection = opening.await?;
                refuse_stranger(&mut connection, &endpoint).await?;
                let timeline =
                    connection.rows(ASK_WRITTEN).await?.text(0, 0).unwrap_or_default().to_owned();
                connection.close();
                Ok::<_, NodeError>(timeline)
            };
            let timeline = timeout(HOST_PATIENCE, asked).await.ok().and_then(Result::ok)?;
            Some((timeline, position))
        });
    }
    let mut newest = None;
    while let Some(asked) = asking.join_next().await {
        newest = newest.max(asked.ok().flatten());
    }
    if let Some((timeline, position)) = newest {
        if !endpoint.note_timeline(&timeline) {
            return Err(succeeded(endpoint));
        }
        endpoint.note_writable(position);
        endpoint.settle();
    }
    Ok(())
}

fn succeeded(endpoint: &Endpoint) -> NodeError {
    let message = "only a former primary answers, whose place another server has taken (the other nodes know, in \
                   tutti.seen)";
    NodeError::unreachable(endpoint, io::Error::other(message))
}

/// A host that was asked may be down by now, and another be taken that answers.
async fn refuse_succeeded(
    connection: &mut NodeConnection,
    endpoint: &Endpoint,
) -> Result<(), NodeError> {
    if !endpoint.has_several_hosts() {
        return Ok(());
    }
    let rows = connection.rows(ASK_WRITTEN).await?;
    match endpoint.note_timeline(rows.text(0, 0).unwrap_or_default()) {
        true => Ok(()),
        false => Err(succeeded(endpoint)),
    }
}

/// Until another server has taken the place of the one that this connection leads to: all of the node's hosts are asked
/// again and again. Never ends for a node of a single host. Never asks over the connection, except at the beginning.
///
/// Returns what is then said of it; or that the connection is lost.
pub async fn until_succeeded(connection: &mut NodeConnection, endpoint: &Endpoint) -> NodeError {
    const INTERVAL: Duration = Duration::from_secs(1);
    let own = match connection.rows(ASK_WRITTEN).await {
        Ok(rows) => rows.text(0, 0).unwrap_or_default().to_owned(),
        Err(error) => return error,
    };
    loop {
        tokio::time::sleep(INTERVAL).await;
        endpoint.unsettle();
        let asked = settle_on_newest(endpoint).await;
        if asked.is_err() || !endpoint.note_timeline(&own) {
            return succeeded(endpoint);
        }
    }
}

/// Opens a connection of the gateway's own; `name` is what `pg_stat_activity` shows.
pub async fn open_own(
    endpoint: &Endpoint,
    name: &str,
    durability: Durability,
) -> Result<NodeConnection, NodeError> {
    let mut settings = vec![("application_name", name)];
    settings.extend(SETTINGS);
    if durability == Durability::Relaxed {
        settings.push(("synchronous_commit", "off"));
    }
    let own = endpoint.config();
    let credentials = Credentials::of_gateway(own);
    let opening = async {
        settle_on_newest(endpoint).await?;
        let mut connection =
            NodeConnection::open(endpoint, &own.user, &credentials, &settings).await?;
        refuse_stranger(&mut connection, endpoint).await?;
        refuse_succeeded(&mut connection, endpoint).await?;
        if durability == Durability::Full {
            connection
                .rows(
                    "SELECT pg_catalog.set_config('synchronous_commit', 'on', false)
                     WHERE pg_catalog.current_setting('synchronous_commit')
                         NOT IN ('on', 'remote_apply')",
                )
                .await?;
        }
        Ok(connection)
    };
    match timeout(OPEN_PATIENCE, opening).await {
        Ok(opened) => opened,
        Err(_) => Err(NodeError::unreachable(endpoint, std::io::ErrorKind::TimedOut.into())),
    }
}
