//! Connections between gateways and nodes.
//!
//! Owns: that messages keep their order on a connection and none is delivered twice, and that a
//! connection may break with anything in flight: of what is on its way, some front part still arrives and the
//! rest is lost.
//! Never: knows what a statement means, or how long anything takes; the world draws that, and says when a
//! message is due.
//! Start reading at [`Network`].

use std::collections::{BTreeMap, VecDeque};

use tutti_txn::NodeId;

use crate::clock::Time;
use crate::node::statement::{Answer, BackendId};
use crate::tasks::{GatewayId, Slot};

/// A connection; never used twice.
pub type ConnId = u32;
/// How a request to connect ended: the backend, and which start of the node it belongs to.
pub type Opening = Result<(BackendId, u64), Lost>;

/// The connection was lost before the answer came: the statement may have been done, may be done
/// later, or never.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lost;

struct Conn {
    gateway: GatewayId,
    node: NodeId,
    /// Whose clients' statements run on it: the gateway's incarnation.
    serves: Option<u64>,
    backend: Option<BackendId>,
    epoch: u64,
    opening: Option<Slot<Opening>>,
    /// Who waits for answers, in order.
    pending: VecDeque<Slot<Result<Answer, Lost>>>,
    /// When the last message in each direction arrives; the next one does not before.
    to_node_at: Time,
    to_gateway_at: Time,
    /// After these, nothing arrives any more.
    to_node_until: Time,
    to_gateway_until: Time,
    gateway_knows: bool,
}

impl Conn {
    fn lose_what_is_pending(&mut self) {
        if let Some(opening) = self.opening.take() {
            opening.set(Err(Lost));
        }
        for waiting in std::mem::take(&mut self.pending) {
            waiting.set(Err(Lost));
        }
    }
}

/// The node's end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct NodeEnd {
    /// The node.
    pub node: NodeId,
    /// Its start.
    pub epoch: u64,
    /// None before it has accepted the connection, and after the backend's end.
    pub backend: Option<BackendId>,
}

/// All connections.
#[derive(Default)]
pub struct Network {
    begun: ConnId,
    conns: BTreeMap<ConnId, Conn>,
    /// Which connection each backend serves.
    of_backend: BTreeMap<(NodeId, u64, BackendId), ConnId>,
    /// Which gateway does not reach which node, and how often that was said.
    partitioned: BTreeMap<(GatewayId, NodeId), usize>,
}

impl Network {
    /// Connections that are established.
    pub fn standing(&self) -> Vec<ConnId> {
        let stands = |conn: &Conn| conn.to_node_until == Time::MAX && !conn.gateway_knows;
        self.conns.iter().filter(|(_, conn)| stands(conn)).map(|(id, _)| *id).collect()
    }

    /// Connections to one start of a node.
    pub fn of_server(&self, node: NodeId, epoch: u64) -> Vec<ConnId> {
        let is_of_it = |conn: &Conn| conn.node == node && conn.epoch == epoch;
        self.conns.iter().filter(|(_, conn)| is_of_it(conn)).map(|(id, _)| *id).collect()
    }

    /// From now on the gateway does not reach the node. Returns the connections that break.
    pub fn partition(&mut self, gateway: GatewayId, node: NodeId) -> Vec<ConnId> {
        *self.partitioned.entry((gateway, node)).or_default() += 1;
        let is_between = |conn: &Conn| conn.gateway == gateway && conn.node == node;
        self.conns.iter().filter(|(_, conn)| is_between(conn)).map(|(id, _)| *id).collect()
    }

    /// One reason for that is gone.
    pub fn rejoin(&mut self, gateway: GatewayId, node: NodeId) {
        if let Some(count) = self.partitioned.get_mut(&(gateway, node)) {
            *count -= 1;
            self.partitioned.retain(|_, count| 0 < *count);
        }
    }

    /// Whether a request to connect comes through.
    pub fn is_partitioned(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|it| self.partitioned.contains_key(&(it.gateway, it.node)))
    }

    /// Whether the gateway knows that the connection is lost.
    pub fn is_known_lost(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_none_or(|conn| conn.gateway_knows)
    }

    // ---- the gateway's end ----

    /// A request to connect is sent, and arrives then.
    pub fn open(
        &mut self,
        gateway: GatewayId,
        node: NodeId,
        arrives: Time,
    ) -> (ConnId, Slot<Opening>) {
        self.begun += 1;
        let opening = Slot::default();
        let conn = Conn {
            gateway,
            node,
            serves: None,
            backend: None,
            epoch: 0,
            opening: Some(opening.clone()),
            pending: VecDeque::new(),
            to_node_at: arrives,
            to_gateway_at: 0,
            to_node_until: Time::MAX,
            to_gateway_until: Time::MAX,
            gateway_knows: false,
        };
        self.conns.insert(self.begun, conn);
        (self.begun, opening)
    }

    /// From now on clients' statements of this gateway run on it.
    pub fn serve(&mut self, id: ConnId, incarnation: u64) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.serves = Some(incarnation);
        }
    }

    /// A statement is sent that arrives at `earliest`, or right after the one before it. None: the gateway
    /// knows that the connection is lost.
    pub fn send(
        &mut self,
        id: ConnId,
        earliest: Time,
    ) -> Option<(Time, Slot<Result<Answer, Lost>>)> {
        let conn = self.conns.get_mut(&id).filter(|conn| !conn.gateway_knows)?;
        let answer = Slot::default();
        conn.pending.push_back(answer.clone());
        conn.to_node_at = conn.to_node_at.max(earliest);
        Some((conn.to_node_at, answer))
    }

    /// The answer to a request to connect arrives.
    pub fn opened(&mut self, id: ConnId, now: Time, opened: Option<(BackendId, u64)>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let is_lost = conn.to_gateway_until < now;
        if let Some(opening) = conn.opening.take() {
            opening.set(opened.filter(|_| !is_lost).ok_or(Lost));
        }
    }

    /// An answer arrives, unless it is lost. Returns the slot that waits for it.
    pub fn arrive(&mut self, id: ConnId, now: Time) -> Option<Slot<Result<Answer, Lost>>> {
        let conn = self.conns.get_mut(&id)?;
        if conn.to_gateway_until < now || conn.gateway_knows {
            return None;
        }
        conn.pending.pop_front()
    }

    /// The gateway finds that the connection is lost.
    pub fn gateway_notices(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.gateway_knows = true;
            conn.lose_what_is_pending();
        }
    }

    /// The gateway closes its end. What it sent still arrives; returns when the last of it does.
    pub fn close(&mut self, id: ConnId, now: Time) -> Option<Time> {
        let conn = self.conns.get_mut(&id)?;
        conn.gateway_knows = true;
        for waiting in std::mem::take(&mut conn.pending) {
            waiting.set(Err(Lost));
        }
        Some(conn.to_node_at.min(conn.to_node_until).max(now))
    }

    // ---- the node's end ----

    /// A node's postmaster has made a backend for the connection.
    pub fn accept(&mut self, id: ConnId, backend: BackendId, epoch: u64) {
        if let Some(conn) = self.conns.get_mut(&id) {
            (conn.backend, conn.epoch) = (Some(backend), epoch);
            self.of_backend.insert((conn.node, epoch, backend), id);
        }
    }

    /// The node's end.
    pub fn node_end(&self, id: ConnId) -> Option<NodeEnd> {
        let conn = self.conns.get(&id)?;
        Some(NodeEnd { node: conn.node, epoch: conn.epoch, backend: conn.backend })
    }

    /// Whether what arrives at the node now is lost.
    pub fn is_lost_on_the_way(&self, id: ConnId, now: Time) -> bool {
        self.conns.get(&id).is_none_or(|conn| conn.to_node_until < now)
    }

    /// The connection of a backend.
    pub fn of_backend(&self, backend: (NodeId, u64, BackendId)) -> Option<ConnId> {
        self.of_backend.get(&backend).copied()
    }

    /// For which gateway a backend runs clients' statements.
    pub fn served_by(&self, backend: (NodeId, u64, BackendId)) -> Option<u64> {
        self.conns.get(self.of_backend.get(&backend)?)?.serves
    }

    /// An answer is sent that arrives at `earliest`, or right after the one before it.
    pub fn answer(
        &mut self,
        (node, epoch, backend): (NodeId, u64, BackendId),
        earliest: Time,
    ) -> Option<(ConnId, Time)> {
        let id = self.of_backend.get(&(node, epoch, backend)).copied()?;
        let conn = self.conns.get_mut(&id)?;
        conn.to_gateway_at = conn.to_gateway_at.max(earliest);
        Some((id, conn.to_gateway_at))
    }

    /// A backend ended: its connection closes after what it has sent.
    pub fn backend_ended(
        &mut self,
        (node, epoch, backend): (NodeId, u64, BackendId),
        now: Time,
    ) -> Option<(ConnId, Time)> {
        let id = self.of_backend.remove(&(node, epoch, backend))?;
        let conn = self.conns.get_mut(&id)?;
        conn.backend = None;
        Some((id, conn.to_gateway_at.max(now) + 1))
    }

    /// A server has stopped: nothing reaches it any more.
    pub fn server_stopped(&mut self, node: NodeId, epoch: u64, now: Time) {
        for id in self.of_server(node, epoch) {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.to_node_until = now;
                conn.backend = None;
            }
        }
        self.of_backend.retain(|(of, _, _), _| *of != node);
    }

    // ---- between them ----

    /// The connection breaks: nothing arrives after these times. False: there is none of that number.
    pub fn cut(&mut self, id: ConnId, to_node: Time, to_gateway: Time) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        conn.to_node_until = conn.to_node_until.min(to_node);
        conn.to_gateway_until = conn.to_gateway_until.min(to_gateway);
        true
    }
}
