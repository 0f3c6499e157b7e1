//! One run of one server, and the connections that lead to it.
//!
//! Owns: how runs are told apart, and the sockets that are open to a node's servers, so that those to a server that
//! was replaced can be ended.
//! Never: decides which server is the node; its watch does.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use socket2::SockRef;
use tokio::net::TcpStream;

/// One run of one server, from its start to its end. A promoted standby has one of its own.
///
/// The postmaster's start, to the microsecond: it differs between servers, and no server's history
/// changes while it runs. (A crash that the postmaster survives ends all connections
/// but not the run; what was acknowledged survives it.)
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Run(String);

impl Run {
    /// What a statement computes that [`Run::told`] reads. A number: a client's settings do not change how it looks.
    pub(super) const STARTED: &str = "extract(epoch FROM pg_catalog.pg_postmaster_start_time())";

    /// As the server has told it.
    pub(crate) fn told(started: Option<&str>) -> Self {
        Self(started.unwrap_or_default().to_owned())
    }
}

/// The connections that are open to one node.
#[derive(Debug, Default)]
pub(super) struct OpenConnections(Mutex<Listed>);

#[derive(Debug, Default)]
struct Listed {
    next: u64,
    connections: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    socket: Weak<TcpStream>,
    /// Of its host in the configuration.
    position: usize,
    /// `None`: it was not asked.
    run: Option<Run>,
}

/// A connection's place among them, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    all: Arc<OpenConnections>,
    number: u64,
}

impl OpenConnections {
    /// A further one.
    pub(super) fn add(self: &Arc<Self>, position: usize, socket: &Arc<TcpStream>) -> Place {
        let mut listed = self.listed();
        let number = listed.next;
        listed.next += 1;
        let open = Open { socket: Arc::downgrade(socket), position, run: None };
        listed.connections.insert(number, open);
        Place { all: self.clone(), number }
    }

    /// Ends those that lead elsewhere than this one: to another run or, where that was not asked, to another host.
    /// Whoever waits for an answer over them finds that they are lost. Their number.
    pub(super) fn end_all_unlike(&self, place: &Place) -> usize {
        let listed = self.listed();
        let Some(Open { position, run, .. }) = listed.connections.get(&place.number) else {
            return 0;
        };
        let is_unlike = |open: &&Open| match (&open.run, run) {
            (Some(its), Some(run)) => its != run,
            _ => open.position != *position,
        };
        let ended = listed.connections.values().filter(is_unlike).filter_map(|open| {
            // Also where the peer is silent, it ends here.
            SockRef::from(&*open.socket.upgrade()?).shutdown(Shutdown::Both).ok()
        });
        ended.count()
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Its server was asked.
    pub(super) fn note_run(&self, run: &Run) {
        if let Some(open) = self.all.listed().connections.get_mut(&self.number) {
            open.run = Some(run.clone());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.listed().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn those_to_a_replaced_server_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let all = Arc::<OpenConnections>::default();
        let mut kept = Vec::new();
        let mut ends = Vec::new();
        for (position, run, stays) in [
            (1, Some("2"), true),
            (1, None, true),
            // The same host, before the server that is there was started.
            (1, Some("1"), false),
            (0, Some("1"), false),
            (0, None, false),
            // Reached by another name.
            (0, Some("2"), true),
        ] {
            let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let socket = Arc::new(socket);
            let place = all.add(position, &socket);
            if let Some(run) = run {
                place.note_run(&Run::told(Some(run)));
            }
            ends.push((accepted, stays));
            kept.push((socket, place));
        }
        assert_eq!(all.end_all_unlike(&kept[0].1), 3);
        for (mut accepted, stays) in ends {
            let mut byte = [0];
            let read = timeout(Duration::from_millis(50), accepted.read(&mut byte));
            assert_eq!(read.await.is_err(), stays);
        }
        drop(kept);
        assert!(all.listed().connections.is_empty());
    }
}
