//! Isolation over several nodes: drives the rooms, the vote order and the snapshots of the whole cluster.
//!
//! Owns: who waits for whom inside this gateway, the exporters of snapshots, and the sentinels.
//! Never: decides who may go on (`tutti_txn` does), or when a statement needs which snapshot (the
//! session and the executor do).
//! Start reading at [`Authority`], then [`rooms::Rooms`], then [`snapshots::Snapshots`].

pub mod causes;
pub mod in_application;
pub mod rooms;
pub mod sentinels;
pub mod serializable_in_progress;
pub mod snapshots;
pub mod vote_order;
mod waiters;

use std::sync::Arc;

use tutti_configuration::Switches;
use tutti_link::Endpoints;
use tutti_link::availability::Availability;
use tutti_link::control_pool::ControlPool;

use self::in_application::InApplication;
use self::rooms::Rooms;
use self::sentinels::Sentinels;
use self::serializable_in_progress::SerializableInProgress;
use self::snapshots::Snapshots;
use self::vote_order::VoteOrder;

/// All that orders what transactions of this cluster see and when they become visible.
#[derive(Debug)]
pub struct Authority {
    /// The commit room and the snapshot room.
    pub rooms: Arc<Rooms>,
    /// Transactions that are decided and not applied everywhere.
    pub in_application: Arc<InApplication>,
    /// The order of the votes of SERIALIZABLE transactions.
    pub vote_order: Arc<VoteOrder>,
    /// The order in which they become visible.
    pub visibility_order: Arc<VoteOrder>,
    /// SERIALIZABLE transactions that may write.
    pub serializable_in_progress: Arc<SerializableInProgress>,
    /// Snapshots of all nodes.
    pub snapshots: Arc<Snapshots>,
    /// What makes nodes see SERIALIZABLE transactions over several of them.
    pub sentinels: Arc<Sentinels>,
}

impl Authority {
    /// Nothing waits yet, and no node is contacted.
    ///
    /// Requires: a tokio runtime.
    pub fn new(
        switches: &Switches,
        endpoints: &Endpoints,
        nodes: &Arc<Availability>,
        connections: &Arc<ControlPool>,
    ) -> Self {
        let rooms = Rooms::new(switches.rooms);
        let snapshots =
            Snapshots::new(endpoints, nodes.clone(), rooms.clone(), connections.clone());
        Self {
            rooms,
            in_application: InApplication::new(switches.rooms),
            vote_order: Arc::default(),
            visibility_order: Arc::default(),
            serializable_in_progress: Arc::default(),
            snapshots,
            sentinels: Sentinels::start(endpoints),
        }
    }
}
