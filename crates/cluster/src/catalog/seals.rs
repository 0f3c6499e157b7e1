//! Reading the nodes' secrets, of which seals are made.
//!
//! Owns: where a node keeps its secret, and completing a schema that an earlier version created.
//! Never: makes a seal ([`tutti_link::seals`] does).

use tutti_link::seals::Seals;
use tutti_link::{NodeConnection, NodeError};

use super::rows::Answer;
use super::schema::{CREATE_SCHEMA, SHAPE};
use crate::error::GatewayError;

/// Reads a node's secret over a connection of the gateway's own. A schema created by an earlier
/// version is completed first.
pub async fn learn_secret(
    seals: &Seals,
    connection: &mut NodeConnection,
) -> Result<(), GatewayError> {
    let sql =
        format!("SELECT pg_catalog.encode(secret, 'hex') FROM tutti.secret WHERE shape = {SHAPE}");
    let node = connection.node();
    let rows = match connection.rows(&sql).await {
        Ok(rows) if !rows.rows.is_empty() => rows,
        Err(NodeError::Refused(fields)) if !matches!(fields.sqlstate(), "42P01" | "3F000") => {
            return Err(NodeError::Refused(fields).into());
        }
        Err(error @ (NodeError::Lost { .. } | NodeError::Protocol(_))) => {
            return Err(error.into());
        }
        _ => {
            connection.query(CREATE_SCHEMA).await?;
            connection.rows(&sql).await?
        }
    };
    let answer = Answer { node, what: "the secret of its schema", rows: &rows };
    if answer.len() != 1 {
        return Err(answer.unreadable());
    }
    let secret = answer.text(0, 0)?.to_owned();
    seals.learn(node, secret);
    Ok(())
}
