//! Reading the nodes' secrets, of which seals are made.
//!
//! Owns: where a node keeps its secret, and that its schema is of this gateway's version before anything else is
//! asked of it.
//! Never: makes a seal ([`tutti_link::seals`] does).

use tutti_link::seals::Seals;
use tutti_link::{NodeConnection, NodeError};

use super::rows::Answer;
use super::schema::SCHEMA_VERSION;
use super::upgrade::upgrade_schema;
use crate::error::GatewayError;

/// Reads a node's secret over a connection of the gateway's own. A schema of an earlier version is upgraded first.
pub async fn learn_secret(
    seals: &Seals,
    connection: &mut NodeConnection,
) -> Result<(), GatewayError> {
    let sql = format!(
        "SELECT pg_catalog.encode(secret, 'hex') FROM tutti.secret WHERE shape = {SCHEMA_VERSION}"
    );
    let node = connection.node();
    let current = match connection.rows(&sql).await {
        Ok(rows) if !rows.rows.is_empty() => Some(rows),
        Ok(_) => None,
        Err(NodeError::Refused(error)) if matches!(error.sqlstate(), "42P01" | "3F000") => None,
        Err(error) => return Err(error.into()),
    };
    let rows = match current {
        Some(rows) => rows,
        None => {
            upgrade_schema(connection).await?;
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
