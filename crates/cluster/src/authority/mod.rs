//! Isolation over several nodes: drives the rooms, the vote order and the snapshots of the whole cluster.
//!
//! Owns: who waits for whom inside this gateway, the exporters of snapshots, and the sentinels.
//! Never: decides who may go on (`tutti_txn` does), or when a statement needs which snapshot (the
//! session and the executor do).
//! Start reading at [`Authority`], then [`rooms::Doors`], then [`snapshots::Snapshots`].

pub mod in_application;
pub mod rooms;
pub mod sentinels;
pub mod serializable_writers;
pub mod snapshots;
pub mod vote_order;

use std::sync::Arc;

use tutti_link::Endpoints;
use tutti_link::availability::Nodes;
use tutti_link::control_pool::OwnConnections;
use tutti_settings::Switches;

use self::in_application::Applying;
use self::rooms::Doors;
use self::sentinels::Sentinels;
use self::serializable_writers::Writers;
use self::snapshots::Snapshots;
use self::vote_order::Turns;

/// All that orders what transactions of this cluster see and when they become visible.
#[derive(Debug)]
pub struct Authority {
    /// The commit room and the snapshot room.
    pub doors: Arc<Doors>,
    /// Transactions that are decided and not applied everywhere.
    pub applying: Arc<Applying>,
    /// Turns for the votes of SERIALIZABLE transactions.
    pub turns: Arc<Turns>,
    /// Turns for their becoming visible.
    pub places: Arc<Turns>,
    /// SERIALIZABLE transactions that may write.
    pub serial_writers: Arc<Writers>,
    /// Snapshots of all nodes.
    pub snapshots: Arc<Snapshots>,
    /// What makes nodes see SERIALIZABLE transactions over several of them.
    pub sentinels: Arc<Sentinels>,
}

impl Authority {
    /// Nobody waits yet, and no node is reached.
    ///
    /// Requires: a tokio runtime.
    pub fn new(
        switches: &Switches,
        endpoints: &Endpoints,
        nodes: &Arc<Nodes>,
        connections: &Arc<OwnConnections>,
    ) -> Self {
        let doors = Doors::new(switches.rooms);
        let snapshots =
            Snapshots::new(endpoints, nodes.clone(), doors.clone(), connections.clone());
        Self {
            doors,
            applying: Applying::new(switches.rooms),
            turns: Arc::default(),
            places: Arc::default(),
            serial_writers: Arc::default(),
            snapshots,
            sentinels: Sentinels::start(endpoints),
        }
    }
}
