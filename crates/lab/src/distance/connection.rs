//! One connection of a link, from its handshake to its end.
//!
//! Owns: both directions, and how the end of one ends the other.
//! Never: delays bytes; that is `pump`.
//! Start reading at [`carry`].

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::net::TcpStream;
use tokio::sync::watch;

use super::alarm::Alarm;
use super::ledger::Direction;
use super::pump::{Ended, Pump};
use super::shared::{Behaviour, Shared};

/// Ends the count of a connection also if its task is dropped.
struct Counted<'a> {
    number: u64,
    shared: &'a Shared,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.shared.ledger().ended(self.number);
    }
}

/// Carries a connection that was accepted, until it has ended.
pub(super) async fn carry(
    client: TcpStream,
    to: Arc<str>,
    shared: Arc<Shared>,
    behaviour: watch::Receiver<Behaviour>,
) {
    let number = shared.ledger().opened();
    let _counted = Counted { number, shared: &shared };
    let resets = behaviour.borrow().resets;
    let (mut client, mut server) = match connect(client, &to, resets, behaviour.clone()).await {
        Ok(Some(pair)) => pair,
        // The client knows.
        Ok(None) => return,
        Err(error) => {
            tracing::debug!(%error, %to, "a link's other side cannot be reached");
            return;
        }
    };
    let ended = both(&mut client, &mut server, number, resets, &shared, &behaviour).await;
    match ended {
        Ok(Ended::Said) => (),
        Ok(Ended::Unheard | Ended::Broken) => reset([client, server]),
        Err(error) => {
            tracing::warn!(%error, "a link's connection ends");
            reset([client, server]);
        }
    }
}

/// Reaches the other side after the time of TCP's own round trip; `None` if the link was reset.
/// Both sockets, or the client is reset.
///
/// Errors: the other side cannot be reached.
async fn connect(
    client: TcpStream,
    to: &str,
    resets: u64,
    mut behaviour: watch::Receiver<Behaviour>,
) -> io::Result<Option<(TcpStream, TcpStream)>> {
    let answered_at = Instant::now() + behaviour.borrow().stretch.rtt();
    let mut alarm = Alarm::default();
    let answered = tokio::select! {
        biased;
        () = was_reset(&mut behaviour, resets) => {
            reset([client]);
            return Ok(None);
        }
        rung = alarm.until(answered_at) => rung,
    };
    let mut connecting = pin!(async {
        answered?;
        TcpStream::connect(to).await
    });
    let connected = tokio::select! {
        biased;
        connected = &mut connecting => connected,
        () = was_reset(&mut behaviour, resets) => {
            reset([client]);
            // The other side may have accepted already, and must not take this for a usual end.
            connecting.await.map(|server| reset([server]))?;
            return Ok(None);
        }
    };
    match connected {
        Ok(server) => Ok(Some((client, server))),
        Err(error) => {
            reset([client]);
            Err(error)
        }
    }
}

/// Returns once the link was reset, or is gone.
async fn was_reset(behaviour: &mut watch::Receiver<Behaviour>, resets: u64) {
    // An error: it is gone.
    let _ = behaviour.wait_for(|it| it.resets != resets).await;
}

/// Carries both directions until both have ended, or one has broken.
async fn both(
    client: &mut TcpStream,
    server: &mut TcpStream,
    number: u64,
    resets: u64,
    shared: &Shared,
    behaviour: &watch::Receiver<Behaviour>,
) -> io::Result<Ended> {
    // Bytes wait here as long as they must, and nowhere else.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_source, client_sink) = client.split();
    let (server_source, server_sink) = server.split();
    let pump = |source, sink, direction| {
        Pump { source, sink, direction, number, resets, shared, behaviour: behaviour.clone() }.run()
    };
    let mut forth = pin!(pump(client_source, server_sink, Direction::Forth));
    let mut back = pin!(pump(server_source, client_sink, Direction::Back));
    let (first, second) = tokio::select! {
        ended = &mut forth => match ended? {
            Ended::Broken => return Ok(Ended::Broken),
            first => (first, back.await?),
        },
        ended = &mut back => match ended? {
            Ended::Broken => return Ok(Ended::Broken),
            first => (first, forth.await?),
        },
    };
    // Who was not heard learns it only now: what the other side had said before it went away comes
    // first.
    Ok(if first == Ended::Said { second } else { first })
}

/// Ends connections as broken ones end.
fn reset(sockets: impl IntoIterator<Item = TcpStream>) {
    for socket in sockets {
        // If it cannot be set, it ends in the usual way.
        let _ = socket.set_zero_linger();
    }
}
