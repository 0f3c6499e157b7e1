//! What sessions do: the statements of a client's request, each after what it must wait for.
//!
//! Owns: which kind of statement waits for what: rooms, transactions in application, closed nodes.
//! Start reading at [`Gateway::serve`].

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use tutti_txn::NodeId;
use tutti_txn::rooms::Room;

use super::Gateway;
use super::commit::{Links, told_of_one};
use crate::bugs::Bug;
use crate::history::{Observation, Register, SessionId, Told};
use crate::invariants;
use crate::link::Link;
use crate::network::Lost;
use crate::node::statement::{Answer, Isolation, Key, Rows, Statement, TxnNo};

/// How often a reader may enter the room and find a node closed before it gives up.
const ROOM_TRIES: u32 = 10;

/// What a client asks for.
#[derive(Clone, Debug)]
pub enum Operation {
    /// READ COMMITTED: append to registers, in this order, and commit.
    Write {
        /// The transaction.
        txn: TxnNo,
        /// Where.
        writes: Vec<Register>,
        /// A node that it reads last, just before its COMMIT.
        glance: Option<NodeId>,
        /// Whether it votes in its turn.
        takes_turns: bool,
        /// One statement on one node, without a BEGIN.
        is_autocommit: bool,
    },
    /// READ COMMITTED: one statement that reads these nodes.
    Read(BTreeSet<NodeId>),
    /// REPEATABLE READ: read these nodes one after the other, append, and commit.
    Snapshot {
        /// The nodes, in this order.
        reads: Vec<NodeId>,
        /// What to append, if anything.
        write: Option<(TxnNo, Vec<Register>)>,
    },
}

/// What it is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reply {
    /// The end of a transaction that writes.
    Told(Told),
    /// It has read, or an error says that it has not.
    Read,
}

impl Gateway {
    /// Does what a client asks for. What the client sees and is told is noted in the history when the gateway
    /// sends it.
    pub async fn serve(&self, session: SessionId, operation: Operation) -> Reply {
        match operation {
            Operation::Write { txn, writes, glance, takes_turns, is_autocommit } => {
                let told = match is_autocommit {
                    true => self.autocommit(session, txn, writes[0]).await,
                    false => match self.write(session, txn, writes, glance).await {
                        Ok(links) => self.commit(txn, links, takes_turns).await,
                        Err(Lost) => Told::Aborted,
                    },
                };
                self.tell(txn, told)
            }
            Operation::Read(nodes) => {
                // A failed read proves nothing.
                let _ = match nodes.len() {
                    1 => self.read_one(session, nodes).await,
                    _ => self.read_several(session, nodes).await,
                };
                Reply::Read
            }
            Operation::Snapshot { reads, write } => {
                let mut links = Links::new();
                let seen = self.read_snapshot(session, &reads, write.as_ref(), &mut links).await;
                let Some((txn, _)) = write else { return Reply::Read };
                let told = match seen {
                    Ok(()) => self.commit(txn, links, false).await,
                    Err(Lost) => Told::Aborted,
                };
                self.tell(txn, told)
            }
        }
    }

    fn tell(&self, txn: TxnNo, told: Told) -> Reply {
        self.sim().note(|| format!("the client of T{txn} hears {told:?}"));
        invariants::tell(&mut self.sim().world().history, txn, told);
        Reply::Told(told)
    }

    fn all_keys(&self) -> BTreeSet<Key> {
        (1..=self.sim().world().plan.keys).collect()
    }

    fn begin_observation(
        &self,
        session: SessionId,
        own: Option<TxnNo>,
        reader: &'static str,
    ) -> Observation {
        let mark = self.sim().world().history.mark();
        Observation { session, mark, own, rows: BTreeMap::new(), reader }
    }

    fn observe(&self, seen: Observation) {
        self.sim().note(|| format!("session {} sees {:?}", seen.session, seen.rows));
        invariants::observe(&mut self.sim().world().history, &seen);
    }

    async fn commit(&self, txn: TxnNo, mut links: Links, takes_turns: bool) -> Told {
        self.sim().world().history.asks_for_commit(txn);
        if links.len() != 1 {
            return self.commit_global(txn, links, takes_turns).await;
        }
        let Some((node, link)) = links.pop_first() else { return Told::Aborted };
        let causes = self.wait_for_causes([node]);
        causes.take().await;
        self.pass().await;
        let told = told_of_one(link.ask(Statement::Commit).await);
        self.give_back(link);
        told
    }

    /// The client pauses.
    async fn think(&self) {
        let duration = {
            let mut world = self.sim().world();
            let longest = world.plan.think;
            world.draw(0, longest)
        };
        self.sim().sleep(duration).await;
    }

    /// What a transaction at READ COMMITTED does before its COMMIT.
    async fn write(
        &self,
        session: SessionId,
        txn: TxnNo,
        writes: Vec<Register>,
        glance: Option<NodeId>,
    ) -> Result<Links, Lost> {
        let mut links = Links::new();
        for (node, key) in writes {
            self.append(session, txn, &mut links, node, key).await?;
            self.think().await;
        }
        if let Some(node) = glance.filter(|node| !links.contains_key(node)) {
            self.read_one(session, [node].into()).await?;
        }
        Ok(links)
    }

    /// One UPDATE inside a transaction at READ COMMITTED: a statement on one node.
    async fn append(
        &self,
        session: SessionId,
        txn: TxnNo,
        links: &mut Links,
        node: NodeId,
        key: Key,
    ) -> Result<(), Lost> {
        let mut seen = self.begin_observation(session, Some(txn), "an UPDATE");
        let link = match links.entry(node) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let link = self.link(node).await?;
                link.send(Statement::Begin(Isolation::ReadCommitted));
                place.insert(link)
            }
        };
        self.barrier(link).await?;
        let Answer::Rows(rows) = link.ask(Statement::Append(key, txn)).await? else {
            return Err(Lost);
        };
        seen.add(node, rows);
        self.observe(seen);
        Ok(())
    }

    async fn autocommit(&self, session: SessionId, txn: TxnNo, (node, key): Register) -> Told {
        let mut seen = self.begin_observation(session, Some(txn), "an UPDATE without BEGIN");
        self.sim().world().history.asks_for_commit(txn);
        let Ok(link) = self.link(node).await else { return Told::Aborted };
        loop {
            if self.barrier(&link).await.is_err() {
                return Told::Aborted;
            }
            self.pass().await;
            if self.may_read(&link) {
                break;
            }
        }
        let answer = link.ask(Statement::Append(key, txn)).await;
        if let Ok(Answer::Rows(rows)) = &answer {
            seen.add(node, rows.clone());
            self.observe(seen);
        }
        self.give_back(link);
        told_of_one(answer)
    }

    /// READ COMMITTED on one node.
    async fn read_one(&self, session: SessionId, nodes: BTreeSet<NodeId>) -> Result<(), Lost> {
        let mut seen = self.begin_observation(session, None, "a statement on one node");
        for node in nodes {
            let link = self.link(node).await?;
            self.barrier(&link).await?;
            if let Answer::Rows(rows) = link.ask(Statement::Read(self.all_keys())).await? {
                seen.add(node, rows);
            }
            self.give_back(link);
        }
        self.observe(seen);
        Ok(())
    }

    /// READ COMMITTED on several nodes: all of them bind inside the room.
    async fn read_several(&self, session: SessionId, nodes: BTreeSet<NodeId>) -> Result<(), Lost> {
        let mut seen = self.begin_observation(session, None, "a statement on several nodes");
        for _ in 0..ROOM_TRIES {
            let mut links = Vec::new();
            for node in &nodes {
                links.push(self.link(*node).await?);
            }
            if let Some(rows) = self.bind_and_execute(&links).await? {
                for (link, rows) in links.into_iter().zip(rows) {
                    seen.add(link.node, rows);
                    self.give_back(link);
                }
                self.observe(seen);
                return Ok(());
            }
        }
        Err(Lost)
    }

    /// None: a node was closed when the room opened.
    async fn bind_and_execute(&self, links: &[Link]) -> Result<Option<Vec<Rows>>, Lost> {
        let visiting = if self.sim().has(Bug::ReaderSkipsTheRoom) {
            None
        } else {
            let (visiting, granted) = self.enter(Room::Snapshot);
            granted.take().await;
            Some(visiting)
        };
        if !links.iter().all(|link| self.may_read(link)) {
            return Ok(None);
        }
        let leaves_early = self.sim().has(Bug::ReaderLeavesTheRoomEarly);
        let binds_late = self.sim().has(Bug::SnapshotAtExecute);
        let mut visiting = visiting;
        if !binds_late {
            let bind = |link: &Link| link.send(Statement::Bind(self.all_keys()));
            for bound in links.iter().map(bind).collect::<Vec<_>>() {
                bound.take().await?;
                if leaves_early {
                    visiting = None;
                }
            }
        }
        drop(visiting);
        let execute = |link: &Link| {
            if binds_late {
                link.send(Statement::Bind(self.all_keys()));
            }
            link.send(Statement::Execute)
        };
        let executing: Vec<_> = links.iter().map(execute).collect();
        let mut found = Vec::new();
        for answer in executing {
            let Answer::Rows(rows) = answer.take().await? else { return Err(Lost) };
            found.push(rows);
        }
        Ok(Some(found))
    }

    /// REPEATABLE READ: everything of one snapshot of the cluster.
    async fn read_snapshot(
        &self,
        session: SessionId,
        reads: &[NodeId],
        write: Option<&(TxnNo, Vec<Register>)>,
        links: &mut Links,
    ) -> Result<(), Lost> {
        let own = write.map(|(txn, _)| *txn);
        let mut seen = self.begin_observation(session, own, "a REPEATABLE READ transaction");
        let snapshot = self.snapshot().await.ok_or(Lost)?;
        let mut readers = Links::new();
        let writes = write.into_iter().flat_map(|(txn, writes)| {
            writes.iter().map(|(node, key)| (*node, Statement::Append(*key, *txn)))
        });
        let keys = self.all_keys();
        let steps = reads.iter().map(|node| (*node, Statement::Read(keys.clone())));
        for (node, statement) in steps.chain(writes) {
            let link = match readers.entry(node) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(place) => {
                    let link = self.link(node).await?;
                    let (export, epoch) = snapshot.part(node).ok_or(Lost)?;
                    if epoch != link.epoch {
                        return Err(Lost);
                    }
                    link.send(Statement::Begin(Isolation::RepeatableRead));
                    link.send(Statement::Import(export));
                    place.insert(link)
                }
            };
            let Answer::Rows(rows) = link.ask(statement).await? else {
                return Err(Lost);
            };
            seen.add(node, rows);
            self.think().await;
        }
        self.observe(seen);
        let written: BTreeSet<_> = write
            .into_iter()
            .flat_map(|(_, writes)| writes.iter().map(|(node, _)| *node))
            .collect();
        links.extend(readers.into_iter().filter(|(node, _)| written.contains(node)));
        Ok(())
    }
}
