//! One gateway at a time: the lock, the incarnation, and that no statement of an earlier gateway runs
//! when the next one serves.
//!
//! Owns: the lock on node 1, the incarnations that nodes know, and the end of earlier gateways' backends.
//! Never: settles what those have prepared (the rest of `recovery` does), nor ends other backends.
//! Start reading at [`gateway_lock`], then [`fence`]. The reasons: docs/protocol/one-gateway.md.
//!
//! The lock keeps a second gateway from starting; it is not what makes a takeover safe, for a gateway
//! that has lost it may not know. That is the fence: each node takes a backend into its list before a
//! client's statement runs on it (`tutti.serve`), and refuses those of earlier incarnations; and a
//! gateway that takes over ends those on the list before it reads the node.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tutti_link::Endpoint;
use tutti_link::connection::{Durability, NodeConnection, NodeError, open_own};
use tutti_wire::sqlstate;

use super::trespass::{blockers, end_trespassers};
use crate::catalog::Answer;
use crate::catalog::load::not_initialised;
use crate::catalog::upgrade_schema;
use crate::error::GatewayError;

/// So many bits of an incarnation are random. The rest suffices for a start every second for eight years,
/// in the 18 digits that fit a bigint.
const CHANCE_BITS: u32 = 31;

/// The backend of a gateway that was killed needs a moment to notice.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How often a gateway says something over the connection of its lock, and checks whether it still has it.
pub(crate) const LOCK_INTERVAL: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(100);
/// How long a backend may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// How long the fence waits for backends that are being taken into the list, before it checks who
/// blocks it.
const LOCK_TIMEOUT_MS: u32 = 1_500;

/// Who has the lock: its process, and a description.
const HOLDER: &str = "SELECT a.pid, pg_catalog.format('role %I from %s, since %s', a.usename,
        coalesce(pg_catalog.host(a.client_addr), 'this machine'), a.backend_start)
    FROM pg_catalog.pg_locks l
    JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) l.pid
    WHERE l.relation OPERATOR(pg_catalog.=) pg_catalog.to_regclass('tutti.serving')::pg_catalog.oid
        AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
        AND l.database OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database
            WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())";

/// Opens a connection on which the gateway starts, or holds its lock.
pub(crate) async fn open(endpoint: &Endpoint) -> Result<NodeConnection, GatewayError> {
    let opened = open_own(endpoint, "tutti gateway", Durability::Full).await;
    opened.map_err(|error| match error {
        source @ NodeError::Refused(_) => GatewayError::Unready { node: endpoint.node(), source },
        error => error.into(),
    })
}

/// Refuses to be the second gateway of a cluster. The lock is held as long as `home` is open, and
/// nothing else runs over it: it stays in the transaction of the lock.
///
/// What is locked is a view: nothing but another gateway takes such a lock on one (VACUUM, REINDEX and
/// pg_dump do not). A client that does is ended.
///
/// That its holder still says something is seen from what the server shows of the session
/// ([`Follower`](crate::following::Follower)).
///
/// Errors: [`GatewayError::GatewayRunning`] after so long.
pub async fn gateway_lock(
    home: &mut NodeConnection,
    patience: Duration,
) -> Result<(), GatewayError> {
    const LOCK: &str =
        "SET track_activities = on; BEGIN; LOCK TABLE tutti.serving IN EXCLUSIVE MODE NOWAIT";
    let give_up = Instant::now() + patience;
    let mut is_complete = false;
    loop {
        let Err(error) = home.query(LOCK).await else { return Ok(()) };
        let NodeError::Refused(refused) = &error else { return Err(error.into()) };
        home.query("ROLLBACK").await?;
        match refused.sqlstate() {
            sqlstate::LOCK_NOT_AVAILABLE if Instant::now() < give_up => {
                end_trespassers(home).await?;
                sleep(RETRY).await;
            }
            sqlstate::LOCK_NOT_AVAILABLE => return Err(holder(home).await?),
            // A cluster created by an earlier version.
            sqlstate::UNDEFINED_TABLE if !is_complete => {
                is_complete = true;
                upgrade_schema(home).await?;
            }
            _ => return Err(not_initialised(home.node(), error)),
        }
    }
}

/// Whether a gateway has the cluster's lock.
pub async fn is_served(home: &mut NodeConnection) -> Result<bool, GatewayError> {
    Ok(!home.rows(HOLDER).await?.rows.is_empty())
}

/// Who has the lock.
async fn holder(home: &mut NodeConnection) -> Result<GatewayError, GatewayError> {
    let rows = home.rows(HOLDER).await?;
    let pid = rows.text(0, 0).and_then(|pid| pid.parse().ok()).unwrap_or(0);
    let who = rows.text(0, 1).unwrap_or("it has just gone").to_owned();
    Ok(GatewayError::GatewayRunning { pid, who })
}

/// Draws this gateway's incarnation. Never drawn twice, even across crashes of node 1: PostgreSQL makes a
/// draw durable before it answers. Random bits follow the drawn number: a node 1 restored from a backup
/// draws the same number again, and so no one can predict an incarnation that has not begun.
pub async fn next_incarnation(home: &mut NodeConnection) -> Result<u64, GatewayError> {
    let node = home.node();
    let rows = home.rows("SELECT pg_catalog.nextval('tutti.incarnation')").await;
    let rows = rows.map_err(|error| not_initialised(node, error))?;
    let drawn: u64 = (Answer { node, what: "the next incarnation", rows: &rows }).number(0, 0)?;
    Ok(drawn << CHANCE_BITS | u64::from(rand::random::<u32>() >> (u32::BITS - CHANCE_BITS)))
}

/// Whether no other gateway has served since this one drew its incarnation.
///
/// Errors: [`GatewayError::Replaced`].
pub(super) async fn check_newest(
    connection: &mut NodeConnection,
    incarnation: u64,
) -> Result<(), GatewayError> {
    let newest = newest_incarnation(connection).await?;
    match newest <= incarnation {
        true => Ok(()),
        false => Err(GatewayError::Replaced { incarnation, newest }),
    }
}

/// The newest incarnation that the node knows of.
pub async fn newest_incarnation(connection: &mut NodeConnection) -> Result<u64, GatewayError> {
    let rows = connection.rows("SELECT incarnation FROM tutti.gateway").await?;
    let answer = Answer { node: connection.node(), what: "the newest gateway", rows: &rows };
    answer.number(0, 0)
}

/// When this returns, no statement of an earlier gateway's client runs on the node, nor ever will.
/// Called before the node is searched for what they have prepared.
///
/// Errors: [`GatewayError::Replaced`]; [`GatewayError::Unfenced`]; [`GatewayError::Locked`].
pub async fn fence(connection: &mut NodeConnection, incarnation: u64) -> Result<(), GatewayError> {
    // A backend that is just being taken into the list is waited for; a later one is refused.
    let raise = format!(
        "BEGIN; SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS};
LOCK TABLE tutti.backend IN SHARE ROW EXCLUSIVE MODE;
UPDATE tutti.gateway SET incarnation = {incarnation}
    WHERE incarnation OPERATOR(pg_catalog.<) {incarnation};
COMMIT"
    );
    let end = format!(
        "SELECT pg_catalog.count(*),
    pg_catalog.count(*) FILTER (WHERE pg_catalog.pg_terminate_backend(a.pid))
FROM tutti.backend b JOIN pg_catalog.pg_stat_activity a
    ON a.pid OPERATOR(pg_catalog.=) b.pid AND a.backend_start OPERATOR(pg_catalog.=) b.started
WHERE b.incarnation OPERATOR(pg_catalog.<) {incarnation}"
    );
    let node = connection.node();
    let give_up = Instant::now() + END_PATIENCE;
    while let Err(error) = connection.query(&raise).await {
        let is_late = give_up < Instant::now();
        match error {
            NodeError::Refused(refused) if refused.sqlstate() == sqlstate::LOCK_NOT_AVAILABLE => {
                connection.query("ROLLBACK").await?;
                if is_late {
                    let who = blockers(connection).await?;
                    return Err(GatewayError::Locked { node, who });
                }
                end_trespassers(connection).await?;
            }
            error => return Err(error.into()),
        }
    }
    check_newest(connection, incarnation).await?;
    let give_up = Instant::now() + END_PATIENCE;
    loop {
        let rows = connection.rows(&end).await?;
        let left: u64 =
            (Answer { node, what: "backends of earlier gateways", rows: &rows }).number(0, 0)?;
        if left == 0 {
            break;
        }
        if give_up < Instant::now() {
            return Err(GatewayError::Unfenced { node, left });
        }
        sleep(RETRY / 10).await;
    }
    connection
        .query(&format!(
            "DELETE FROM tutti.backend WHERE incarnation OPERATOR(pg_catalog.<) {incarnation}"
        ))
        .await?;
    Ok(())
}
