//! A client's session with a gateway or a node, by tokio-postgres.
//!
//! Owns: connecting and driving the connection. Never: knows what is asked.

use anyhow::Context;
use tokio_postgres::{Client, NoTls};

/// Connects; the connection is driven by a task that ends with the client.
pub(crate) async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .with_context(|| format!("cannot connect to {url}"))?;
    tokio::spawn(async move {
        // Whoever uses the client hears of it there.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended");
        }
    });
    Ok(client)
}
