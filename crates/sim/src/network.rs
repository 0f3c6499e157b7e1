//! Connections between gateways and nodes.
//!
//! Owns: that messages keep their order on a connection and none is delivered twice, that each takes
//! some time, and that a connection may break with anything in flight: of what is on its way, the
//! front part still arrives and the rest is lost.
//! Never: knows what a statement means.
//! Start reading at [`Link`], a gateway's end of a connection.

use std::collections::{BTreeMap, VecDeque};

use tutti_txn::NodeId;

use crate::node::statement::{Answer, BackendId, Statement};
use crate::tasks::Slot;
use crate::world::{ConnId, Event, Sim, Time, World};

/// The connection was lost before the answer came: the statement may have been done, may be done
/// later, or never.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lost;

struct Conn {
    node: NodeId,
    incarnation: u64,
    backend: Option<BackendId>,
    epoch: u64,
    opening: Option<Slot<Result<(BackendId, u64), Lost>>>,
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

/// All connections.
#[derive(Default)]
pub struct Network {
    begun: ConnId,
    conns: BTreeMap<ConnId, Conn>,
    /// Which connection each backend serves.
    of_backend: BTreeMap<(NodeId, u64, BackendId), ConnId>,
}

impl Network {
    /// Connections that stand.
    pub fn standing(&self) -> Vec<ConnId> {
        let stands = |conn: &Conn| conn.to_node_until == Time::MAX && !conn.gateway_knows;
        self.conns.iter().filter(|(_, conn)| stands(conn)).map(|(id, _)| *id).collect()
    }
}

impl World {
    fn flight(&mut self) -> Time {
        let (from, to) = self.plan.latency;
        let usual = self.draw(from, to);
        if self.chance(self.plan.delays_percent) { usual * self.draw(5, 30) } else { usual }
    }

    fn open(&mut self, node: NodeId, incarnation: u64) -> (ConnId, Slot<Opening>) {
        self.network.begun += 1;
        let id = self.network.begun;
        let opening = Slot::default();
        let arrives = self.now + self.flight();
        let conn = Conn {
            node,
            incarnation,
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
        self.network.conns.insert(id, conn);
        self.at(arrives, Event::Knock(id));
        (id, opening)
    }

    fn send(&mut self, id: ConnId, statement: Statement) -> Slot<Result<Answer, Lost>> {
        let is_slow = matches!(statement, Statement::Read(_) | Statement::Bind(_))
            && self.chance(self.plan.slow_reads_percent);
        let flight = if is_slow { self.flight() * self.draw(5, 30) } else { self.flight() };
        let now = self.now;
        let Some(conn) = self.network.conns.get_mut(&id).filter(|conn| !conn.gateway_knows) else {
            return Slot::filled(Err(Lost));
        };
        let answer = Slot::default();
        conn.pending.push_back(answer.clone());
        conn.to_node_at = conn.to_node_at.max(now + flight);
        let arrives = conn.to_node_at;
        self.at(arrives, Event::ToNode(id, statement));
        answer
    }

    /// A node answered on one of its backends.
    pub fn answer(&mut self, node: NodeId, backend: BackendId, answer: Answer) {
        let epoch = self.server(node).epoch;
        let flight = self.flight();
        let Some(id) = self.network.of_backend.get(&(node, epoch, backend)).copied() else {
            return;
        };
        let now = self.now;
        if let Some(conn) = self.network.conns.get_mut(&id) {
            conn.to_gateway_at = conn.to_gateway_at.max(now + flight);
            let arrives = conn.to_gateway_at;
            self.at(arrives, Event::ToGateway(id, answer));
        }
    }

    /// A backend ended: its connection closes after what it has sent.
    pub fn backend_ended(&mut self, node: NodeId, backend: BackendId) {
        let epoch = self.server(node).epoch;
        if let Some(id) = self.network.of_backend.remove(&(node, epoch, backend))
            && let Some(conn) = self.network.conns.get_mut(&id)
        {
            conn.backend = None;
            let notices = conn.to_gateway_at.max(self.now) + 1;
            self.at(notices, Event::GatewayNotices(id));
        }
    }

    /// The connection breaks: of what is in flight some front part arrives, and each side notices
    /// after a while.
    pub fn break_connection(&mut self, id: ConnId) {
        let (spread, now) = (self.plan.latency.1 * 2, self.now);
        // A message may still be sent again by a host whose process is gone.
        let lingers = if self.chance(30) { 20 } else { 1 };
        let to_node = now + self.draw(0, spread * lingers);
        let to_gateway = now + self.draw(0, spread);
        let late = self.draw(1, spread * 4);
        let Some(conn) = self.network.conns.get_mut(&id) else { return };
        conn.to_node_until = conn.to_node_until.min(to_node);
        conn.to_gateway_until = conn.to_gateway_until.min(to_gateway);
        self.at(to_node + late, Event::BackendNotices(id));
        self.at(to_gateway + late, Event::GatewayNotices(id));
    }

    /// The gateway closes its end: what it sent still arrives, and then the backend ends. A gateway
    /// that dies may take the last of it along.
    fn close(&mut self, id: ConnId) {
        if self.gateway_is_dying {
            self.break_connection(id);
        }
        let spread = self.plan.latency.1;
        let late = self.draw(0, spread);
        let Some(conn) = self.network.conns.get_mut(&id) else { return };
        conn.gateway_knows = true;
        let closes = conn.to_node_at.min(conn.to_node_until).max(self.now) + late;
        for waiting in std::mem::take(&mut conn.pending) {
            waiting.set(Err(Lost));
        }
        self.at(closes, Event::BackendNotices(id));
    }

    /// All connections of a server that has just stopped: nothing reaches it any more, and what it
    /// had answered may still arrive.
    pub fn server_stopped(&mut self, node: NodeId) {
        let epoch = self.server(node).epoch;
        let of_server = |conn: &Conn| conn.node == node && conn.epoch == epoch;
        let conns = self.network.conns.iter().filter(|(_, conn)| of_server(conn));
        let ids: Vec<_> = conns.map(|(id, _)| *id).collect();
        for id in ids {
            self.break_connection(id);
            let now = self.now;
            if let Some(conn) = self.network.conns.get_mut(&id) {
                conn.to_node_until = now;
                conn.backend = None;
            }
        }
        self.network.of_backend.retain(|(of, _, _), _| *of != node);
    }

    /// An event of the network or of a node.
    pub fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Wake(_) | Event::Fault(_) => (),
            Event::Knock(id) => {
                let Some(conn) = self.network.conns.get(&id) else { return };
                let (node, incarnation) = (conn.node, conn.incarnation);
                let server = self.server(node);
                let opened = server.is_up.then(|| (server.node.connect(incarnation), server.epoch));
                if let Some((backend, epoch)) = opened {
                    self.network.of_backend.insert((node, epoch, backend), id);
                    if let Some(conn) = self.network.conns.get_mut(&id) {
                        (conn.backend, conn.epoch) = (Some(backend), epoch);
                    }
                }
                let arrives = now + self.flight();
                self.at(arrives, Event::Opened(id, opened));
            }
            Event::Opened(id, opened) => {
                let Some(conn) = self.network.conns.get_mut(&id) else { return };
                let lost = conn.to_gateway_until < now;
                if let Some(opening) = conn.opening.take() {
                    opening.set(opened.filter(|_| !lost).ok_or(Lost));
                }
            }
            Event::ToNode(id, statement) => {
                let Some(conn) = self.network.conns.get(&id) else { return };
                let (node, epoch) = (conn.node, conn.epoch);
                if conn.to_node_until < now {
                    return;
                }
                if let Some(backend) = conn.backend
                    && self.server(node).is_up
                    && self.server(node).epoch == epoch
                {
                    self.trace.note(now, || format!("{node}: connection {id} runs {statement}"));
                    self.server(node).node.submit(backend, statement);
                    self.deliver_outputs(node);
                }
            }
            Event::ToGateway(id, answer) => {
                let Some(conn) = self.network.conns.get_mut(&id) else { return };
                if conn.to_gateway_until < now || conn.gateway_knows {
                    return;
                }
                if let Some(waiting) = conn.pending.pop_front() {
                    self.trace.note(now, || format!("connection {id} is answered {answer:?}"));
                    waiting.set(Ok(answer));
                }
            }
            Event::BackendNotices(id) => {
                let Some(conn) = self.network.conns.get(&id) else { return };
                let (node, epoch, backend) = (conn.node, conn.epoch, conn.backend);
                if let Some(backend) = backend
                    && self.server(node).epoch == epoch
                {
                    self.server(node).node.hang_up(backend);
                    self.deliver_outputs(node);
                }
            }
            Event::GatewayNotices(id) => {
                let Some(conn) = self.network.conns.get_mut(&id) else { return };
                conn.gateway_knows = true;
                if let Some(opening) = conn.opening.take() {
                    opening.set(Err(Lost));
                }
                for waiting in std::mem::take(&mut conn.pending) {
                    waiting.set(Err(Lost));
                }
            }
            Event::Flushed(node, epoch, backend) => {
                if self.server(node).epoch == epoch && self.server(node).is_up {
                    self.server(node).node.flush(backend);
                    self.deliver_outputs(node);
                }
            }
            Event::LockTimeout(node, epoch, backend, wait) => {
                if self.server(node).epoch == epoch && self.server(node).is_up {
                    self.server(node).node.lock_timeout(backend, wait);
                    self.deliver_outputs(node);
                }
            }
        }
    }
}

type Opening = Result<(BackendId, u64), Lost>;

/// A gateway's end of a connection. Closed when dropped.
pub struct Link {
    sim: Sim,
    id: ConnId,
    /// The node.
    pub node: NodeId,
    /// The node's start that it is connected to.
    pub epoch: u64,
    /// The backend, as BackendKeyData tells.
    pub backend: BackendId,
}

impl Link {
    /// Connects to a node.
    ///
    /// Errors: the node does not answer, or it is down.
    pub async fn open(sim: &Sim, node: NodeId, incarnation: u64) -> Result<Self, Lost> {
        let (id, opening) = sim.world().open(node, incarnation);
        let mut link = Self { sim: sim.clone(), id, node, epoch: 0, backend: 0 };
        // The network itself tells when it is lost.
        (link.backend, link.epoch) = opening.take().await?;
        Ok(link)
    }

    /// Sends a statement; its answer comes later.
    pub fn send(&self, statement: Statement) -> Slot<Result<Answer, Lost>> {
        self.sim.world().send(self.id, statement)
    }

    /// Sends a statement and waits for its answer.
    pub async fn ask(&self, statement: Statement) -> Result<Answer, Lost> {
        self.send(statement).take().await
    }

    /// Whether it is known to be broken.
    pub fn is_broken(&self) -> bool {
        self.sim.world().network.conns.get(&self.id).is_none_or(|conn| conn.gateway_knows)
    }

    /// Gives the connection up; whoever waits for an answer hears that it is lost.
    pub fn close(&self) {
        self.sim.world().close(self.id);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}
