//! A client's session with a gateway or a node, by tokio-postgres.
//!
//! Owns: where clients connect, connecting, driving the connection, and waiting for a first answer.
//! Never: knows what is asked.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};

/// The gateway settles what a predecessor left in doubt before it serves.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// The role that initdb makes.
const USER: &str = "postgres";

/// The URL of what listens on an address.
pub fn url(listens_on: SocketAddr, database: &str) -> String {
    // One cannot connect to "any address".
    let host = match listens_on.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    format!("postgres://{USER}@{}/{database}", SocketAddr::new(host, listens_on.port()))
}

/// Connects; the connection is driven by a task that ends with the client.
pub async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .with_context(|| format!("cannot connect to {url}"))?;
    tokio::spawn(async move {
        // Users of the client get the error there.
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended");
        }
    });
    Ok(client)
}

/// Waits until a statement works.
pub async fn first_answer(url: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let ask = async {
            let client = connect(url).await?;
            client.query_one("SELECT 1", &[]).await.context("a first statement failed")?;
            anyhow::Ok(())
        };
        match ask.await {
            Ok(()) => return Ok(()),
            Err(error) if deadline < Instant::now() => return Err(error),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_names_an_address_one_can_connect_to() {
        let url = |address: &str| url(address.parse().unwrap(), "postgres");
        assert_eq!(url("127.0.0.1:7432"), "postgres://postgres@127.0.0.1:7432/postgres");
        assert_eq!(url("0.0.0.0:7000"), "postgres://postgres@127.0.0.1:7000/postgres");
        assert_eq!(url("[::1]:7000"), "postgres://postgres@[::1]:7000/postgres");
    }
}
