//! Bringing a node's schema `tutti` up to this gateway's version.
//!
//! Owns: running what `schema` says. Never: finds out whether that is needed; who reads a node's secret does
//! (`seals`), and `setup` makes it on new nodes.

use tutti_link::NodeConnection;

use super::schema::CREATE_SCHEMA;
use crate::error::GatewayError;

/// Creates the schema, or completes one that an earlier version created. Running it again does no harm.
///
/// Errors: the node's; 55000 if a later version created it.
pub async fn upgrade_schema(connection: &mut NodeConnection) -> Result<(), GatewayError> {
    connection.query(CREATE_SCHEMA).await?;
    Ok(())
}
