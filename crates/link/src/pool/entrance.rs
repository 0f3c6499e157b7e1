//! What a connection for clients does first: its node takes it into the list of a gateway's backends.
//!
//! Owns: that no client's statement runs on a backend which a later gateway would not find and end.
//! Never: ends one (recovery's fence does; docs/protocol/one-gateway.md).

use tutti_wire::frontend::put_query;

use crate::connection::{ASK_MOMENT, NodeConnection, NodeError, put_statement};
use crate::seals::Seals;

/// Has the node take the backend of this connection, whose role is a client's, into its list. Called
/// before anything else runs on it.
///
/// Errors: [`NodeError::Refused`] with SQLSTATE 57P01 when another gateway has taken over.
pub(super) async fn enter(
    connection: &mut NodeConnection,
    incarnation: u64,
    seals: &Seals,
) -> Result<(), NodeError> {
    // Overrides whatever modes the role's transactions have by default.
    let begin = format!("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {ASK_MOMENT}");
    let begun = connection.query(&begin).await?;
    connection.note_moment(&begun[begun.len().saturating_sub(1)..]);
    let seal = seals.seal_now(connection, &format!("serve {incarnation}"));
    let sql = format!("SELECT tutti.serve({incarnation}, $1)");
    put_statement(connection.outgoing(), &sql, vec![Some(seal.into())]);
    put_query(connection.outgoing(), "COMMIT");
    connection.flush().await?;
    let served = connection.finish_query().await;
    connection.finish_query().await?;
    served.map(drop)
}
