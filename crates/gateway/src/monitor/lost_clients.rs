//! Clients that are gone while a node still works for them.
//!
//! Owns: noticing that, and ending their statements on every node, so that no session waits for
//! locks of a client that is gone.
//! Never: ends a session: the session finds its client gone and rolls back.
//! Start reading at [`run`].
//!
//! A session that waits for a node does not read from its client, and so does not notice when it is
//! gone; and a node that waits for a lock does not notice when its own client, the gateway, is
//! gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::registry::Registry;

/// How often busy sessions are checked. One that is seen handling the same message twice is checked
/// more closely.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs as long as the gateway.
pub async fn run(registry: Arc<Registry>) {
    let mut before = HashMap::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let busy = registry.activities.busy();
        for (process_id, message, stream) in &busy {
            if before.get(process_id) == Some(message) && is_gone(stream).await {
                tracing::info!(session = process_id, "a client has gone; its statement is ended");
                let (registry, process_id) = (registry.clone(), *process_id);
                tokio::spawn(async move { registry.cancel_session(process_id).await });
            }
        }
        before = busy.into_iter().map(|(process_id, message, _)| (process_id, message)).collect();
    }
}

/// Whether the client has closed its side or vanished; what it has sent before may still be unread.
/// PostgreSQL's `client_connection_check_interval` relies on the same sign.
async fn is_gone(stream: &TcpStream) -> bool {
    let look = async {
        let is_closed = match stream.ready(Interest::READABLE).await {
            Ok(ready) => ready.is_read_closed(),
            Err(_) => true,
        };
        is_closed || matches!(stream.peek(&mut [0]).await, Ok(0) | Err(_))
    };
    tokio::time::timeout(Duration::ZERO, look).await.unwrap_or(false)
}
