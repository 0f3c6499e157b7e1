//! Reaching a node's server, and asking it to cancel what a backend runs.
//!
//! Owns: sockets to nodes as they are configured, with TLS or without.
//! Never: logs in.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::net::TcpStream;
use tutti_configuration::Address;
use tutti_wire::startup::put_cancel;

use super::endpoint::Endpoint;
use super::tls;
use crate::net::stream::{Stream, keep_alive};

/// A connection on which the startup packet is sent next.
pub(super) async fn dial(endpoint: &Endpoint, address: &Address) -> io::Result<Stream> {
    let socket = TcpStream::connect((address.host.as_str(), address.port)).await?;
    socket.set_nodelay(true)?;
    keep_alive(&socket, &endpoint.config().keepalive);
    tls::secure(Arc::new(socket), address, &endpoint.config().tls, endpoint.connector()).await
}

/// Asks the node to cancel what this backend runs, and waits until it has accepted that: what is sent
/// to the backend afterwards is no longer hit.
pub async fn cancel(endpoint: &Endpoint, process_id: i32, secret: i32) -> io::Result<()> {
    let mut stream = dial(endpoint, &endpoint.address()).await?;
    let mut packet = BytesMut::new();
    put_cancel(&mut packet, process_id, secret);
    stream.write_all(&mut packet).await?;
    // The node closes the connection when it has sent the signal.
    let mut nothing = BytesMut::new();
    loop {
        stream.readable().await?;
        match stream.try_read(&mut nothing, 16) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            _ => return Ok(()),
        }
    }
}
