//! What the gateway does for SERIALIZABLE transactions over two nodes, one message at a time.
//!
//! Owns: the state of a small world, what may happen next in it, and what that changes: clients'
//! statements, snapshots of both nodes, tickets, sentinels, votes, places in the order of application.
//! Never: chooses. It is `docs/protocol/serializable.md` and `rooms.md` as a program; where it deviates,
//! it does so by a [`Bug`].
//! Start reading at [`State::next`], then [`State::step`].

use std::fmt;

use super::Bug;
use super::ssi::{Node, Refused, Row, Set, Snapshot, Sx};
use super::world::{Script, Statement, World};

/// Something that happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// The client's next step, where there is no choice.
    Step(usize),
    /// The client's part on the node is prepared.
    Vote(usize, usize),
    /// The client's part on the node becomes visible.
    Apply(usize, usize),
    /// The client waits for something, and waits no longer.
    GiveUp(usize),
    /// The ticket that the client would insert next is refused by chance.
    TicketFails(usize),
    /// The sentinel is killed.
    Kill(usize),
    /// A first sentinel, after a gap.
    Stand(usize),
    /// The next sentinel has searched the tickets.
    Relief(usize),
    /// The one before it ends.
    Relieved(usize),
    /// The node's server restarts. It is not read yet.
    Restart(usize),
    /// All that was prepared there is settled: the node may be read.
    Open(usize),
}

/// Where a client is.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
enum Phase {
    #[default]
    New,
    /// Its statement is on the way, outside of a block.
    Sent,
    /// The snapshot of the second node is missing.
    Snapping,
    Running,
    /// After ROLLBACK TO.
    Renewing,
    /// On one node: checked, not yet visible.
    Checked,
    Voting,
    Decided,
    /// Has its place; those that it had to wait for are noted.
    Waiting,
    Applying,
    Committed,
    Aborted,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Savepoint {
    used: u8,
    tickets: u8,
    rows: [u16; 2],
}

/// A row that a client has read, and whose version it was.
pub type Seen = (u8, Row, Option<Sx>);

#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Client {
    phase: Phase,
    /// Declared so.
    is_read_only: bool,
    /// Nodes whose snapshot is gone.
    lost: u8,
    next: usize,
    snapshots: [Snapshot; 2],
    used: u8,
    /// Nodes that are known to vote.
    recorded: u8,
    /// The chain of sentinels that it relies on.
    tickets: [Option<u8>; 2],
    savepoint: Option<Savepoint>,
    voted: u8,
    applied: u8,
    waits_for: Set,
    /// Who had been answered when this one began.
    after: Set,
    reads: Vec<Seen>,
}

#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Post {
    on_duty: Option<Sx>,
    relief: Option<Sx>,
    chain: u8,
    begun: u8,
}

/// A world at one moment.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct State {
    nodes: [Node; 2],
    clients: Vec<Client>,
    posts: [Post; 2],
    /// Whose snapshots are being taken, in the snapshot room.
    snapshot_room: Option<usize>,
    /// Nodes that have restarted, and are not read yet.
    closed: u8,
    kills: u8,
    reliefs: u8,
    errors: u8,
    restarts: u8,
}

/// Why a step cannot be taken now.
enum Stop {
    /// Another must take a step first.
    Waits,
    /// 40001.
    Refused,
}

impl From<Refused> for Stop {
    fn from(Refused: Refused) -> Self {
        Self::Refused
    }
}

const fn bit(node: usize) -> u8 {
    1 << node
}

fn sx(client: usize) -> Sx {
    Sx(u8::try_from(client).expect("worlds are small"))
}

fn nodes_of(mask: u8) -> impl Iterator<Item = usize> {
    (0..2).filter(move |node| mask & bit(*node) != 0)
}

impl State {
    /// The beginning, with a sentinel on each node.
    pub fn new(world: &World, bug: Option<Bug>) -> Self {
        let mut state = Self {
            nodes: [Node::new(world.rows(0)), Node::new(world.rows(1))],
            clients: vec![Client::default(); world.scripts.len()],
            posts: [Post::default(), Post::default()],
            snapshot_room: None,
            kills: world.kills,
            reliefs: world.reliefs,
            errors: world.errors,
            closed: 0,
            restarts: world.restarts,
        };
        for node in 0..2 {
            if bug == Some(Bug::SentinelIsMissing) {
                // It is believed to stand.
                state.posts[node].on_duty = Some(Sx(15));
            } else {
                let _ = state.stand(node);
            }
        }
        state
    }

    /// Everything that may happen now, and the state that results.
    pub fn next(&self, world: &World, bug: Option<Bug>) -> Vec<(Action, Self)> {
        let mut next = Vec::new();
        let mut offer = |action| {
            let mut after = self.clone();
            let happens = after.happen(action, world, bug);
            if happens {
                next.push((action, after));
            }
            happens
        };
        for (client, me) in self.clients.iter().enumerate() {
            let waits = match me.phase {
                Phase::Committed | Phase::Aborted => continue,
                Phase::Applying => true,
                _ => !offer(Action::Step(client)),
            };
            let is_at_work = matches!(me.phase, Phase::Sent | Phase::Running | Phase::Renewing);
            if waits && is_at_work {
                offer(Action::GiveUp(client));
            }
            if 0 < self.errors {
                offer(Action::TicketFails(client));
            }
            for node in 0..2 {
                match me.phase {
                    Phase::Voting => offer(Action::Vote(client, node)),
                    Phase::Applying => offer(Action::Apply(client, node)),
                    _ => false,
                };
            }
        }
        for node in 0..2 {
            if 0 < self.restarts {
                offer(Action::Restart(node));
            }
            if self.closed & bit(node) != 0 {
                offer(Action::Open(node));
            }
        }
        for (node, post) in self.posts.iter().enumerate() {
            if post.on_duty.is_none() {
                offer(Action::Stand(node));
                continue;
            }
            if 0 < self.kills {
                offer(Action::Kill(node));
            }
            if 0 < self.reliefs {
                offer(Action::Relief(node));
            }
            if post.relief.is_some() {
                offer(Action::Relieved(node));
            }
        }
        next
    }

    /// Whether all clients have been answered.
    pub fn is_over(&self) -> bool {
        self.clients.iter().all(|client| matches!(client.phase, Phase::Committed | Phase::Aborted))
    }

    /// Those that have committed, each with what it has read and who was answered before it began.
    pub fn committed(&self) -> impl Iterator<Item = (Sx, &[Seen], Set)> {
        let all = self.clients.iter().enumerate();
        let all = all.filter(|(_, client)| client.phase == Phase::Committed);
        all.map(|(index, client)| (sx(index), &client.reads[..], client.after))
    }

    /// The nodes, for a look at what is committed there.
    pub fn nodes(&self) -> &[Node; 2] {
        &self.nodes
    }

    /// False if it cannot happen now, and then the state must not be used any more. What is refused has still
    /// been noted on the node.
    fn happen(&mut self, action: Action, world: &World, bug: Option<Bug>) -> bool {
        match action {
            Action::Step(client) => match self.step(client, world, bug) {
                Ok(()) => true,
                Err(Stop::Waits) => false,
                Err(Stop::Refused) => {
                    self.fail(client, &world.scripts[client]);
                    true
                }
            },
            Action::GiveUp(client) => {
                self.abort(client);
                true
            }
            Action::TicketFails(client) => self.ticket_fails(client, world, bug),
            Action::Vote(client, node) => self.vote(client, node, bug),
            Action::Apply(client, node) => self.apply(client, node, bug),
            Action::Kill(node) => self.kill(node),
            Action::Stand(node) => self.posts[node].on_duty.is_none() && self.stand(node).is_ok(),
            Action::Relief(node) => self.relief(node, bug),
            Action::Relieved(node) => self.relieved(node, bug),
            Action::Restart(node) => self.restart(node, bug),
            Action::Open(node) => self.open(node),
        }
    }

    /// The client's next step, where there is no choice.
    fn step(&mut self, client: usize, world: &World, bug: Option<Bug>) -> Result<(), Stop> {
        let script = &world.scripts[client];
        match self.clients[client].phase {
            Phase::New => self.begin(client, script, bug),
            Phase::Snapping if self.closed != 0 => {
                // No one waits in the room.
                self.snapshot_room = None;
                self.clients[client].phase = Phase::New;
                Ok(())
            }
            Phase::Snapping => {
                self.clients[client].snapshots[1] = self.nodes[1].snapshot();
                self.snapshot_room = None;
                self.clients[client].phase = Phase::Running;
                Ok(())
            }
            Phase::Sent => {
                let (Statement::Read(node, _) | Statement::Write(node, _)) = script.statements[0]
                else {
                    return Err(Stop::Waits);
                };
                self.clients[client].snapshots[node] = self.nodes[node].snapshot();
                self.join(client, node, script.is_read_only);
                self.run(client, &script.statements[0])?;
                self.nodes[node].prepare(sx(client), false)?;
                self.clients[client].phase = Phase::Checked;
                Ok(())
            }
            Phase::Running => match script.statements.get(self.clients[client].next) {
                Some(statement) => self.statement(client, statement, bug),
                None => self.ask_for_commit(client, bug),
            },
            Phase::Renewing => self.renew(client, bug),
            Phase::Checked => {
                for node in nodes_of(self.clients[client].used) {
                    if self.clients[client].applied & bit(node) == 0 {
                        self.commit_ignoring_errors(client, node);
                    }
                }
                self.clients[client].phase = Phase::Committed;
                Ok(())
            }
            Phase::Voting => self.decide(client, bug),
            Phase::Decided => {
                let others = self.in_application();
                let is_free = self
                    .clients
                    .iter()
                    .all(|other| !matches!(other.phase, Phase::Waiting | Phase::Applying));
                if !is_free && bug != Some(Bug::PlacesAreSkipped) {
                    return Err(Stop::Waits);
                }
                self.clients[client].waits_for = others;
                self.clients[client].phase = Phase::Waiting;
                Ok(())
            }
            Phase::Waiting => {
                let is_through =
                    |other: Sx| self.clients[usize::from(other.0)].phase != Phase::Applying;
                let may = self.clients[client].waits_for.iter().all(is_through);
                if !may || self.snapshot_room.is_some() {
                    return Err(Stop::Waits);
                }
                self.clients[client].phase = Phase::Applying;
                Ok(())
            }
            Phase::Applying | Phase::Committed | Phase::Aborted => Err(Stop::Waits),
        }
    }

    fn begin(&mut self, client: usize, script: &Script, bug: Option<Bug>) -> Result<(), Stop> {
        let mut after = Set::default();
        for (other, _, _) in self.committed() {
            after.add(other);
        }
        if script.is_auto {
            let (Statement::Read(node, _) | Statement::Write(node, _)) = script.statements[0]
            else {
                return Err(Stop::Waits);
            };
            let is_write = matches!(script.statements[0], Statement::Write(..));
            let is_closed = self.closed & bit(node) != 0;
            let waits =
                is_closed || self.is_in_application(node) && bug != Some(Bug::ReaderDoesNotWait);
            if waits || (is_write && self.snapshot_room.is_some()) {
                return Err(Stop::Waits);
            }
            self.clients[client].phase = Phase::Sent;
        } else {
            let is_applying = !self.in_application().iter().eq([]);
            if self.closed != 0 || self.snapshot_room.is_some() || is_applying {
                return Err(Stop::Waits);
            }
            self.snapshot_room = Some(client);
            self.clients[client].snapshots[0] = self.nodes[0].snapshot();
            self.clients[client].phase = Phase::Snapping;
        }
        self.clients[client].is_read_only = script.is_read_only;
        self.clients[client].lost = 0;
        self.clients[client].after = after;
        Ok(())
    }

    fn join(&mut self, client: usize, node: usize, read_only: bool) {
        let snapshot = self.clients[client].snapshots[node];
        self.nodes[node].begin(sx(client), snapshot, read_only);
        self.clients[client].used |= bit(node);
    }

    fn statement(
        &mut self,
        client: usize,
        statement: &Statement,
        bug: Option<Bug>,
    ) -> Result<(), Stop> {
        match statement {
            Statement::Read(node, _) | Statement::Write(node, _) => {
                let other = 1 - node;
                let me = &self.clients[client];
                let is_second = me.used == bit(other);
                if is_second && me.tickets[other].is_none() {
                    if bug != Some(Bug::ReaderIsIgnored) {
                        self.clients[client].recorded |= bit(other);
                    }
                    return self.ticket(client, other, bug);
                }
                let has_ticket = is_second || me.is_read_only;
                if me.used & bit(*node) == 0 {
                    if self.closed & bit(*node) != 0 {
                        return Err(Stop::Waits);
                    }
                    if me.lost & bit(*node) != 0 {
                        return Err(Stop::Refused);
                    }
                    // What is READ ONLY becomes so after its ticket.
                    self.join(client, *node, false);
                    if has_ticket {
                        if bug != Some(Bug::ReaderIsIgnored) {
                            self.clients[client].recorded |= bit(*node);
                        }
                        self.ticket(client, *node, bug)?;
                    }
                }
                self.run(client, statement)?;
            }
            Statement::Savepoint => {
                let me = &self.clients[client];
                let has = nodes_of(me.used).filter(|node| self.nodes[*node].has_ticket(sx(client)));
                let savepoint = Savepoint {
                    used: me.used,
                    tickets: has.map(bit).sum(),
                    rows: [0, 1].map(|node| match me.used & bit(node) {
                        0 => 0,
                        _ => self.nodes[node].pending(sx(client)),
                    }),
                };
                self.clients[client].savepoint = Some(savepoint);
            }
            Statement::RollbackTo => {
                let savepoint = self.clients[client].savepoint.unwrap_or_default();
                for node in nodes_of(self.clients[client].used) {
                    // READ ONLY that came later repeated the savepoint after its ticket.
                    let came_later = savepoint.used & bit(node) == 0;
                    let is_before = came_later && self.clients[client].is_read_only;
                    let kept = is_before || savepoint.tickets & bit(node) != 0;
                    self.nodes[node].undo(sx(client), !savepoint.rows[node], !kept);
                }
                self.clients[client].phase = Phase::Renewing;
            }
        }
        self.clients[client].next += 1;
        Ok(())
    }

    fn ticket(&mut self, client: usize, node: usize, bug: Option<Bug>) -> Result<(), Stop> {
        let post = &self.posts[node];
        if post.on_duty.is_none() {
            return Err(Stop::Waits);
        }
        let chain = post.chain;
        if bug != Some(Bug::TicketIsMissing) {
            self.nodes[node].insert_ticket(sx(client))?;
        }
        self.clients[client].tickets[node] = Some(chain);
        Ok(())
    }

    /// The first node's, or that of one that joins, with the statement after it.
    fn ticket_fails(&mut self, client: usize, world: &World, bug: Option<Bug>) -> bool {
        let me = &self.clients[client];
        let script = &world.scripts[client];
        let next = script.statements.get(me.next);
        let (Phase::Running, Some(Statement::Read(node, _) | Statement::Write(node, _))) =
            (me.phase, next)
        else {
            return false;
        };
        let other = 1 - node;
        if self.errors == 0 || me.used != bit(other) {
            return false;
        }
        if me.tickets[other].is_some() {
            // It relies on the sentinel, and gets a ticket after ROLLBACK TO, or is rolled back.
            let may_join = (self.closed | me.lost) & bit(*node) == 0;
            if !may_join || self.posts[*node].on_duty.is_none() {
                return false;
            }
            self.join(client, *node, false);
            self.clients[client].tickets[*node] = Some(self.posts[*node].chain);
            self.clients[client].recorded |= bit(*node);
        } else if bug == Some(Bug::TicketCountsUnanswered) {
            self.clients[client].tickets[other] = Some(self.posts[other].chain);
        } else {
            self.clients[client].recorded |= bit(other);
        }
        self.errors -= 1;
        self.fail(client, script);
        true
    }

    fn renew(&mut self, client: usize, bug: Option<Bug>) -> Result<(), Stop> {
        for node in nodes_of(self.clients[client].used) {
            let is_gone = self.clients[client].tickets[node].is_some()
                && !self.nodes[node].has_ticket(sx(client));
            let inserts = !matches!(bug, Some(Bug::TicketIsNotRenewed | Bug::TicketIsMissing));
            if is_gone && inserts && !self.clients[client].is_read_only {
                self.nodes[node].insert_ticket(sx(client))?;
            }
        }
        self.clients[client].phase = Phase::Running;
        Ok(())
    }

    fn run(&mut self, client: usize, statement: &Statement) -> Result<(), Stop> {
        match statement {
            Statement::Read(node, rows) => {
                for row in rows {
                    let seen = self.nodes[*node].read(sx(client), *row)?;
                    if seen != Some(sx(client)) {
                        let node = u8::try_from(*node).expect("two nodes");
                        self.clients[client].reads.push((node, *row, seen));
                    }
                }
            }
            Statement::Write(node, row) => {
                if self.nodes[*node].waits(sx(client), *row) {
                    return Err(Stop::Waits);
                }
                self.nodes[*node].write(sx(client), *row)?;
                self.clients[client].recorded |= bit(*node);
            }
            Statement::Savepoint | Statement::RollbackTo => (),
        }
        Ok(())
    }

    fn voters(&self, client: usize, bug: Option<Bug>) -> u8 {
        let me = &self.clients[client];
        match bug {
            Some(Bug::ReaderIsIgnored | Bug::TicketCountsUnanswered) => me.recorded,
            _ if me.used == 3 => me.used,
            _ => me.recorded,
        }
    }

    fn ask_for_commit(&mut self, client: usize, bug: Option<Bug>) -> Result<(), Stop> {
        let voters = self.voters(client, bug);
        if voters == 3 {
            let others = self.clients.iter().any(|other| other.phase == Phase::Voting);
            if others && bug != Some(Bug::VotesOutOfTurn) {
                return Err(Stop::Waits);
            }
            self.clients[client].phase = Phase::Voting;
            return Ok(());
        }
        let nodes = if voters == 0 { self.clients[client].used } else { voters };
        for node in nodes_of(nodes) {
            if self.is_in_application(node) || self.snapshot_room.is_some() {
                return Err(Stop::Waits);
            }
            self.nodes[node].prepare(sx(client), false)?;
        }
        self.clients[client].phase = Phase::Checked;
        Ok(())
    }

    fn vote(&mut self, client: usize, node: usize, bug: Option<Bug>) -> bool {
        let voters = self.voters(client, bug);
        let me = &self.clients[client];
        if me.phase != Phase::Voting || voters & bit(node) == 0 || me.voted & bit(node) != 0 {
            return false;
        }
        match self.nodes[node].prepare(sx(client), true) {
            Ok(()) => self.clients[client].voted |= bit(node),
            Err(Refused) => self.abort(client),
        }
        true
    }

    fn decide(&mut self, client: usize, bug: Option<Bug>) -> Result<(), Stop> {
        let me = &self.clients[client];
        if me.voted != self.voters(client, bug) {
            return Err(Stop::Waits);
        }
        let stood = |node: usize| {
            let post = &self.posts[node];
            post.on_duty.is_some() && me.tickets[node] == Some(post.chain)
        };
        let is_covered = nodes_of(me.voted).all(stood);
        if !is_covered && bug != Some(Bug::SentinelIsRemembered) {
            self.abort(client);
        } else {
            self.clients[client].phase = Phase::Decided;
        }
        Ok(())
    }

    fn apply(&mut self, client: usize, node: usize, bug: Option<Bug>) -> bool {
        let me = &self.clients[client];
        if me.phase != Phase::Applying || (me.voted & !me.applied) & bit(node) == 0 {
            return false;
        }
        self.nodes[node].commit(sx(client));
        self.clients[client].applied |= bit(node);
        let me = &self.clients[client];
        if me.applied == self.voters(client, bug) {
            self.clients[client].phase = Phase::Committed;
        }
        true
    }

    /// Where a check has been made it holds; where none was, no one is told.
    fn commit_ignoring_errors(&mut self, client: usize, node: usize) {
        let is_checked = self.nodes[node].is_prepared(sx(client));
        match is_checked || self.nodes[node].prepare(sx(client), false).is_ok() {
            true => self.nodes[node].commit(sx(client)),
            false => self.nodes[node].roll_back(sx(client)),
        }
        self.clients[client].applied |= bit(node);
    }

    /// A statement was refused: the client goes back to its savepoint, or gives up.
    fn fail(&mut self, client: usize, script: &Script) {
        let me = &self.clients[client];
        let back = script.statements.iter().enumerate().skip(me.next);
        let back = back
            .filter(|(_, statement)| **statement == Statement::RollbackTo)
            .map(|(index, _)| index)
            .next();
        match (me.phase, me.savepoint, back) {
            (Phase::Running, Some(_), Some(back)) => self.clients[client].next = back,
            _ => self.abort(client),
        }
    }

    fn abort(&mut self, client: usize) {
        for node in nodes_of(self.clients[client].used) {
            self.nodes[node].roll_back(sx(client));
        }
        self.clients[client].phase = Phase::Aborted;
    }

    fn in_application(&self) -> Set {
        let mut set = Set::default();
        for (index, client) in self.clients.iter().enumerate() {
            if client.phase == Phase::Applying {
                set.add(sx(index));
            }
        }
        set
    }

    fn is_in_application(&self, node: usize) -> bool {
        self.clients.iter().any(|client| {
            client.phase == Phase::Applying && (client.voted & !client.applied) & bit(node) != 0
        })
    }

    fn new_sentinel(&mut self, node: usize) -> Sx {
        let post = &mut self.posts[node];
        post.begun += 1;
        Sx(sx(self.clients.len()).0 + post.begun - 1)
    }

    fn search(&mut self, node: usize, sentinel: Sx) -> Result<(), Refused> {
        let snapshot = self.nodes[node].snapshot();
        self.nodes[node].begin(sentinel, snapshot, false);
        self.nodes[node].read_tickets(sentinel)
    }

    fn stand(&mut self, node: usize) -> Result<(), Refused> {
        let sentinel = self.new_sentinel(node);
        self.search(node, sentinel)?;
        self.posts[node].on_duty = Some(sentinel);
        self.posts[node].chain += 1;
        Ok(())
    }

    fn kill(&mut self, node: usize) -> bool {
        let (Some(on_duty), Some(left)) = (self.posts[node].on_duty, self.kills.checked_sub(1))
        else {
            return false;
        };
        self.kills = left;
        for ended in [Some(on_duty), self.posts[node].relief.take()].into_iter().flatten() {
            self.nodes[node].roll_back(ended);
        }
        self.posts[node].on_duty = None;
        true
    }

    /// What is prepared there outlives it. A transaction that was running there has lost its part, and with
    /// it all.
    fn restart(&mut self, node: usize, bug: Option<Bug>) -> bool {
        let Some(left) = self.restarts.checked_sub(1) else { return false };
        self.restarts = left;
        self.nodes[node].restart();
        for client in 0..self.clients.len() {
            let me = &mut self.clients[client];
            let is_there = (me.used & !me.voted & !me.applied) & bit(node) != 0;
            match me.phase {
                Phase::New | Phase::Committed | Phase::Aborted => (),
                Phase::Snapping => {
                    self.snapshot_room = None;
                    me.phase = Phase::New;
                }
                _ if is_there => self.abort(client),
                // Where it will be sent is not known here; it begins anew, or not at all.
                Phase::Sent => self.abort(client),
                _ => me.lost |= bit(node),
            }
        }
        let post = &mut self.posts[node];
        (post.on_duty, post.relief) = (None, None);
        if bug != Some(Bug::RestartedNodeIsRead) {
            self.closed |= bit(node);
        }
        true
    }

    fn open(&mut self, node: usize) -> bool {
        let is_prepared_there = self.clients.iter().any(|client| {
            let is_over = matches!(client.phase, Phase::Committed | Phase::Aborted);
            !is_over && (client.voted & !client.applied) & bit(node) != 0
        });
        if is_prepared_there {
            return false;
        }
        self.closed &= !bit(node);
        true
    }

    fn relief(&mut self, node: usize, bug: Option<Bug>) -> bool {
        let post = &self.posts[node];
        let (Some(on_duty), None, Some(left)) =
            (post.on_duty, post.relief, self.reliefs.checked_sub(1))
        else {
            return false;
        };
        self.reliefs = left;
        let relief = self.new_sentinel(node);
        self.posts[node].relief = Some(relief);
        if bug == Some(Bug::ReliefComesLate) {
            self.nodes[node].roll_back(on_duty);
            return true;
        }
        self.search(node, relief).is_ok()
    }

    fn relieved(&mut self, node: usize, bug: Option<Bug>) -> bool {
        let (Some(on_duty), Some(relief)) = (self.posts[node].on_duty, self.posts[node].relief)
        else {
            return false;
        };
        if bug == Some(Bug::ReliefComesLate) {
            if self.search(node, relief).is_err() {
                return false;
            }
        } else {
            self.nodes[node].roll_back(on_duty);
        }
        self.posts[node].on_duty = Some(relief);
        self.posts[node].relief = None;
        true
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(client) => write!(f, "T{client} goes on"),
            Self::Vote(client, node) => write!(f, "T{client} votes on node {}", node + 1),
            Self::Apply(client, node) => write!(f, "T{client} is shown on node {}", node + 1),
            Self::GiveUp(client) => write!(f, "T{client} waits no longer"),
            Self::TicketFails(client) => write!(f, "the ticket of T{client} fails"),
            Self::Kill(node) => write!(f, "the sentinel on node {} is ended", node + 1),
            Self::Stand(node) => write!(f, "a new sentinel stands on node {}", node + 1),
            Self::Relief(node) => write!(f, "a relief comes to node {}", node + 1),
            Self::Restart(node) => write!(f, "node {} restarts", node + 1),
            Self::Open(node) => write!(f, "node {} may be read", node + 1),
            Self::Relieved(node) => write!(f, "the relieved sentinel ends on node {}", node + 1),
        }
    }
}

/// What a state is after an action, for a trace.
impl State {
    /// Where the client is.
    pub fn phase_of(&self, client: usize) -> String {
        let me = &self.clients[client];
        format!("{:?}, {} statements", me.phase, me.next)
    }
}
