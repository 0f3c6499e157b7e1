//! Messages between gateways and nodes: how long each takes, and what happens when it arrives.
//!
//! Owns: the draws of flights, and what a message does at its end.
//! Start reading at [`World::happen`].

use tutti_txn::NodeId;

use super::{Event, World};
use crate::clock::Time;
use crate::invariants;
use crate::network::{ConnId, Lost, Opening};
use crate::node::statement::{Answer, BackendId, Statement};
use crate::tasks::{GatewayId, Slot};

impl World {
    fn flight(&mut self) -> Time {
        let (from, to) = self.plan.latency;
        let usual = self.draw(from, to);
        let drawn =
            if self.chance(self.plan.delays_percent) { usual * self.draw(5, 30) } else { usual };
        drawn.min(self.plan.flight_max)
    }

    /// A gateway asks to be connected.
    pub fn open(&mut self, gateway: GatewayId, node: NodeId) -> (ConnId, Slot<Opening>) {
        let arrives = self.now + self.flight();
        let (id, opening) = self.network.open(gateway, node, arrives);
        self.at(arrives, Event::Knock(id));
        (id, opening)
    }

    /// A gateway sends a statement.
    pub fn send(&mut self, id: ConnId, statement: Statement) -> Slot<Result<Answer, Lost>> {
        let is_slow = matches!(statement, Statement::Read(_) | Statement::Bind(_))
            && self.chance(self.plan.slow_reads_percent);
        let drawn = if is_slow { self.flight() * self.draw(5, 30) } else { self.flight() };
        let flight = drawn.min(self.plan.flight_max);
        let Some((arrives, answer)) = self.network.send(id, self.now + flight) else {
            return Slot::filled(Err(Lost));
        };
        self.at(arrives, Event::ToNode(id, statement));
        answer
    }

    /// A node answered on one of its backends.
    pub fn answer(&mut self, node: NodeId, backend: BackendId, answer: Answer) {
        let of = (node, self.server(node).epoch, backend);
        if let Some(incarnation) = self.network.served_by(of)
            && self.fenced.get(&node).is_some_and(|newest| incarnation < *newest)
            && !matches!(answer, Answer::Error(_) | Answer::RolledBack)
        {
            invariants::nobody_is_served_after_the_fence(&mut self.history, node, incarnation);
        }
        let flight = self.flight();
        if let Some((id, arrives)) = self.network.answer(of, self.now + flight) {
            self.at(arrives, Event::ToGateway(id, answer));
        }
    }

    /// A backend ended.
    pub fn backend_ended(&mut self, node: NodeId, backend: BackendId) {
        let of = (node, self.server(node).epoch, backend);
        if let Some((id, notices)) = self.network.backend_ended(of, self.now) {
            self.at(notices, Event::GatewayNotices(id));
        }
    }

    /// The connection breaks: of what is in flight some front part arrives, and each side notices
    /// after a while.
    pub fn break_connection(&mut self, id: ConnId) {
        self.break_unnoticed(id, 0);
    }

    /// The same; the gateway notices this much later.
    pub fn break_unnoticed(&mut self, id: ConnId, unnoticed: Time) {
        let (spread, now) = (self.plan.latency.1 * 2, self.now);
        // A message may still be sent again by a host whose process is gone.
        let lingers = if self.chance(30) { 20 } else { 1 };
        let to_node = now + self.draw(0, spread * lingers).min(self.plan.flight_max);
        let to_gateway = now + self.draw(0, spread);
        let late = self.draw(1, spread * 4);
        if self.network.cut(id, to_node, to_gateway) {
            self.at(to_node + late, Event::BackendNotices(id));
            self.at(to_gateway + late + unnoticed, Event::GatewayNotices(id));
        }
    }

    /// The gateway closes its end: what it sent still arrives, and then the backend ends. If a gateway dies,
    /// the last of it may be lost.
    pub fn close(&mut self, id: ConnId) {
        if self.gateway_is_dying {
            self.break_connection(id);
        }
        let spread = self.plan.latency.1;
        let late = self.draw(0, spread);
        if let Some(arrived) = self.network.close(id, self.now) {
            self.at(arrived + late, Event::BackendNotices(id));
        }
    }

    /// The connections of backends that wait for a lock.
    pub fn connections_of_waiters(&self) -> Vec<ConnId> {
        let of = |(node, server): (&NodeId, &super::Server)| {
            let (node, epoch) = (*node, server.epoch);
            let waiting = server.node.waiting().to_vec();
            waiting.into_iter().filter_map(move |it| self.network.of_backend((node, epoch, it)))
        };
        self.servers.iter().flat_map(of).collect()
    }

    /// From now on the gateway does not reach the node: what is in flight may still arrive.
    pub fn partition(&mut self, gateway: GatewayId, node: NodeId) {
        for id in self.network.partition(gateway, node) {
            self.break_connection(id);
        }
    }

    /// All connections of a server that has just stopped: nothing reaches it any more, and what it
    /// had answered may still arrive.
    pub fn server_stopped(&mut self, node: NodeId) {
        let epoch = self.server(node).epoch;
        for id in self.network.of_server(node, epoch) {
            self.break_connection(id);
        }
        self.network.server_stopped(node, epoch, self.now);
    }

    /// An event of the network or of a node.
    pub fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Wake(_) | Event::Fault(_) => (),
            Event::Knock(id) => {
                let Some(end) = self.network.node_end(id) else { return };
                let is_partitioned = self.network.is_partitioned(id);
                let server = self.server(end.node);
                let is_there = server.is_up && !is_partitioned;
                let opened = is_there.then(|| (server.node.connect(), server.epoch));
                if let Some((backend, epoch)) = opened {
                    self.network.accept(id, backend, epoch);
                }
                let arrives = now + self.flight();
                self.at(arrives, Event::Opened(id, opened));
            }
            Event::Opened(id, opened) => self.network.opened(id, now, opened),
            Event::ToNode(id, statement) => {
                let Some(end) = self.network.node_end(id) else { return };
                if !self.network.is_lost_on_the_way(id, now)
                    && let Some(backend) = end.backend
                    && self.runs(end.node, end.epoch)
                {
                    let node = end.node;
                    self.trace.note(now, || format!("{node}: connection {id} runs {statement}"));
                    self.server(node).node.submit(backend, statement);
                    self.deliver_outputs(node);
                }
            }
            Event::ToGateway(id, answer) => {
                if let Some(waiting) = self.network.arrive(id, now) {
                    self.trace.note(now, || format!("connection {id} is answered {answer:?}"));
                    waiting.set(Ok(answer));
                }
            }
            Event::BackendNotices(id) => {
                let Some(end) = self.network.node_end(id) else { return };
                if let Some(backend) = end.backend
                    && self.server(end.node).epoch == end.epoch
                {
                    self.server(end.node).node.hang_up(backend);
                    self.deliver_outputs(end.node);
                }
            }
            Event::GatewayNotices(id) => self.network.gateway_notices(id),
            Event::Flushed(node, epoch, backend) => {
                if self.runs(node, epoch) {
                    self.server(node).node.flush(backend);
                    self.deliver_outputs(node);
                }
            }
            Event::LockTimeout(node, epoch, backend, wait) => {
                if self.runs(node, epoch) {
                    self.server(node).node.lock_timeout(backend, wait);
                    self.deliver_outputs(node);
                }
            }
        }
    }

    fn runs(&mut self, node: NodeId, epoch: u64) -> bool {
        let server = self.server(node);
        server.is_up && server.epoch == epoch
    }
}
