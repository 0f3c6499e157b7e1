//! A link: listens here, carries every connection there, and can be cut.
//!
//! Owns: the listening socket, and the tasks of its connections.
//! Never: starts what it leads to. What happens on one connection is `connection`'s.
//! Start reading at [`Link::open`].

use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::connection;
use super::ledger::{ConnectionCounts, Counts};
use super::shared::{Behaviour, Passage, Shared};
use super::stretch::Stretch;

/// Connections that may wait to be accepted, as the system limits them anyway.
const BACKLOG: u32 = 1_024;
/// What makes accepting fail, such as too many open files, seldom passes at once.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Puts a distance between those who connect to it and an address.
///
/// Lives on the runtime that it was opened on. Dropped, it soon gives up its port, and breaks its
/// connections as [`Self::reset`] does.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    behaviour: watch::Sender<Behaviour>,
    door: watch::Receiver<Door>,
    shared: Arc<Shared>,
}

/// Whether new connections get in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Door {
    Open,
    Shut,
    /// Another process has taken the port.
    Lost,
}

/// The socket behind the door.
#[derive(Debug)]
enum Entrance {
    Listening(TcpListener),
    /// Has the port and does not listen: the system refuses who connects, and gives the port to
    /// nobody else.
    Holding(TcpSocket),
}

impl Link {
    /// Opens a link on a free port of 127.0.0.1 that leads to `HOST:PORT`.
    ///
    /// Errors: no port is free.
    pub async fn open(to: impl Into<String>, stretch: Stretch) -> anyhow::Result<Self> {
        Self::open_on(0, to, stretch).await
    }

    /// As [`Self::open`], on a port of 127.0.0.1; 0 is a free one.
    ///
    /// Errors: the port is taken.
    pub async fn open_on(
        port: u16,
        to: impl Into<String>,
        stretch: Stretch,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .with_context(|| format!("cannot listen on 127.0.0.1:{port}"))?;
        let address = listener.local_addr().context("a listening socket has no address")?;
        let first = Behaviour { stretch, passage: Passage::Open, resets: 0 };
        let (behaviour, behaviour_seen) = watch::channel(first);
        let (door_moved, door) = watch::channel(Door::Open);
        let shared = Arc::new(Shared::default());
        let host = Host {
            address,
            to: to.into().into(),
            shared: Arc::clone(&shared),
            behaviour: behaviour_seen,
            door: door_moved,
            carried: JoinSet::new(),
        };
        tokio::spawn(host.serve(Entrance::Listening(listener)));
        Ok(Self { address, behaviour, door, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it puts between its two sides.
    pub fn stretch(&self) -> Stretch {
        self.behaviour.borrow().stretch
    }

    /// Changes it for all that is sent from now on, on connections that are open too. What is under
    /// way already keeps its time, and nothing overtakes it.
    pub fn set_stretch(&self, stretch: Stretch) {
        self.behaviour.send_modify(|behaviour| behaviour.stretch = stretch);
    }

    /// Refuses new connections, as a machine on which nobody listens; those that are open go on.
    ///
    /// Errors: another process was faster to take the port, which a link has only while it listens.
    pub async fn refuse(&self) -> anyhow::Result<()> {
        self.pass(Passage::Refusing, Door::Shut).await
    }

    /// Breaks all connections that are open: both sides get a reset, what is under way is lost.
    pub fn reset(&self) {
        self.behaviour.send_modify(|behaviour| behaviour.resets += 1);
    }

    /// Lets nothing pass, and tells nobody. Who connects meanwhile waits; what is under way, or is
    /// sent meanwhile, arrives after [`Self::restore`], as TCP would repeat it.
    ///
    /// Errors: as [`Self::restore`].
    pub async fn silence(&self) -> anyhow::Result<()> {
        self.pass(Passage::Silent, Door::Open).await
    }

    /// Lets everything pass again.
    ///
    /// Errors: the port was lost, see [`Self::refuse`].
    pub async fn restore(&self) -> anyhow::Result<()> {
        self.pass(Passage::Open, Door::Open).await
    }

    /// What has passed since it was opened. Two readings can be subtracted.
    pub fn counts(&self) -> Counts {
        self.shared.ledger().total()
    }

    /// The same by connection: those that are open, and the latest thousand that have ended.
    pub fn connections(&self) -> Vec<ConnectionCounts> {
        self.shared.ledger().connections()
    }

    /// Returns when the door stands as it should.
    async fn pass(&self, passage: Passage, door: Door) -> anyhow::Result<()> {
        self.behaviour.send_modify(|behaviour| behaviour.passage = passage);
        let mut watched = self.door.clone();
        let now = watched.wait_for(|now| *now == door || *now == Door::Lost).await;
        let stands = now.is_ok_and(|now| *now == door);
        ensure!(stands, "{} was taken by another process", self.address);
        Ok(())
    }
}

/// The task of a link.
#[derive(Debug)]
struct Host {
    address: SocketAddr,
    to: Arc<str>,
    shared: Arc<Shared>,
    behaviour: watch::Receiver<Behaviour>,
    door: watch::Sender<Door>,
    carried: JoinSet<()>,
}

impl Host {
    async fn serve(mut self, mut entrance: Entrance) {
        loop {
            let passage = self.behaviour.borrow_and_update().passage;
            entrance = match self.turned(entrance, passage) {
                Ok(entrance) => entrance,
                Err(error) => {
                    tracing::error!(%error, address = %self.address, "a link has lost its port");
                    self.door.send_replace(Door::Lost);
                    // Those that are open go on.
                    return self.ended().await;
                }
            };
            tokio::select! {
                biased;
                changed = self.behaviour.changed() => if changed.is_err() {
                    // The link was dropped, and its connections know it too.
                    drop(entrance);
                    return self.ended().await;
                },
                Some(_ended) = self.carried.join_next() => (),
                accepted = accept(&entrance), if passage == Passage::Open => match accepted {
                    Ok(client) => self.carry(client),
                    Err(error) => {
                        tracing::warn!(%error, "a link cannot accept a connection");
                        sleep(ACCEPT_AGAIN_AFTER).await;
                    }
                },
            }
        }
    }

    /// Returns when no connection is left.
    async fn ended(mut self) {
        while self.carried.join_next().await.is_some() {}
    }

    fn carry(&mut self, client: TcpStream) {
        let (to, shared) = (Arc::clone(&self.to), Arc::clone(&self.shared));
        self.carried.spawn(connection::carry(client, to, shared, self.behaviour.clone()));
    }

    /// Opens or shuts the door, if it does not stand as it should, and says that it does.
    fn turned(&self, entrance: Entrance, passage: Passage) -> io::Result<Entrance> {
        let entrance = match (entrance, passage) {
            (Entrance::Listening(listener), Passage::Refusing) => {
                // Two sockets have one port only if none of them listens.
                drop(listener);
                let socket = TcpSocket::new_v4()?;
                // Connections that are open have the port too.
                socket.set_reuseaddr(true)?;
                socket.bind(self.address)?;
                Entrance::Holding(socket)
            }
            (Entrance::Holding(socket), Passage::Open | Passage::Silent) => {
                Entrance::Listening(socket.listen(BACKLOG)?)
            }
            (unchanged, _) => unchanged,
        };
        self.door.send_replace(match entrance {
            Entrance::Listening(_) => Door::Open,
            Entrance::Holding(_) => Door::Shut,
        });
        Ok(entrance)
    }
}

async fn accept(entrance: &Entrance) -> io::Result<TcpStream> {
    match entrance {
        Entrance::Listening(listener) => listener.accept().await.map(|(client, _from)| client),
        Entrance::Holding(_) => pending().await,
    }
}
