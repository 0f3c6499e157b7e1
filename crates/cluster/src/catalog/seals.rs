//! Reading the nodes' secrets, of which seals are made.
//!
//! Owns: where a node keeps its secret, and that its schema is of this gateway's version before anything else is
//! asked of it.
//! Never: makes a seal ([`tutti_link::seals`] does).

use tutti_link::seals::Seals;
use tutti_link::{NodeConnection, NodeError};

use super::schema::SCHEMA_VERSION;
use super::upgrade::upgrade_schema;
use crate::error::GatewayError;

/// Reads a node's secret over a connection of the gateway's own. A schema of an earlier version is upgraded first.
pub async fn learn_secret(
    seals: &Seals,
    connection: &mut NodeConnection,
) -> Result<(), GatewayError> {
    if !learn_secret_as_it_is(seals, connection).await? {
        upgrade_schema(connection).await?;
        if !learn_secret_as_it_is(seals, connection).await? {
            return Err(unreadable(connection));
        }
    }
    Ok(())
}

/// The same, and nothing is upgraded. False: the schema is of another version.
pub(crate) async fn learn_secret_as_it_is(
    seals: &Seals,
    connection: &mut NodeConnection,
) -> Result<bool, GatewayError> {
    let sql = format!(
        "SELECT pg_catalog.encode(secret, 'hex') FROM tutti.secret WHERE shape = {SCHEMA_VERSION}"
    );
    let rows = match connection.rows(&sql).await {
        Ok(rows) => rows,
        Err(NodeError::Refused(error)) if matches!(error.sqlstate(), "42P01" | "3F000") => {
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    match (rows.rows.len(), rows.text(0, 0)) {
        (0, _) => Ok(false),
        (1, Some(secret)) => {
            seals.learn(connection.node(), secret.to_owned());
            Ok(true)
        }
        _ => Err(unreadable(connection)),
    }
}

fn unreadable(connection: &NodeConnection) -> GatewayError {
    GatewayError::Unreadable { node: connection.node(), what: "the secret of its schema" }
}
