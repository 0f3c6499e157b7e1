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
use super::plans::{Activity, Failed};
use crate::bugs::Bug;
use crate::history::{Observation, Register, SessionId, TABLES, Told};
use crate::invariants;
use crate::link::Link;
use crate::network::Lost;
use crate::node::statement::{Answer, Isolation, Key, Rows, Statement, TxnNo, is_table};

/// How often a statement may be overtaken by changes, or find a node closed in the room, before it gives up.
const REPETITIONS: u32 = 10;

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
    /// READ COMMITTED: one statement that reads these nodes' registers, and these tables.
    Read(BTreeSet<NodeId>, BTreeSet<Key>),
    /// REPEATABLE READ: read these nodes or tables one after the other, append, and commit.
    Snapshot {
        /// What to read, in this order.
        reads: Vec<Source>,
        /// What to append, if anything.
        write: Option<(TxnNo, Vec<Register>)>,
    },
    /// READ COMMITTED: one statement of two steps. It reads a table or appends to a register, and then
    /// appends to a table.
    InSteps {
        /// The transaction.
        txn: TxnNo,
        /// The table or the register.
        first: Register,
        /// The table that it writes last.
        then: Key,
    },
    /// Move a table to this node, or if it is there to the next.
    Move {
        /// The transaction.
        txn: TxnNo,
        /// The table.
        table: Key,
        /// Where to.
        to: NodeId,
    },
}

/// What a statement of a REPEATABLE READ transaction reads.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// All registers of a node.
    Node(NodeId),
    /// A table.
    Table(Key),
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
        let at_work = self.begin_session();
        let activity = &*at_work.activity;
        match operation {
            Operation::Write { txn, writes, glance, takes_turns, is_autocommit } => {
                let told = match is_autocommit {
                    true => self.autocommit(session, activity, txn, writes[0]).await,
                    false => match self.write(session, activity, txn, writes, glance).await {
                        Ok(links) => self.commit(txn, links, takes_turns).await,
                        Err(_) => Told::Aborted,
                    },
                };
                self.tell(txn, told)
            }
            Operation::Read(nodes, tables) => {
                // A failed read proves nothing.
                let _ = self.read(session, activity, &nodes, &tables).await;
                Reply::Read
            }
            Operation::Snapshot { reads, write } => {
                let mut links = Links::new();
                let seen =
                    self.read_snapshot(session, activity, &reads, write.as_ref(), &mut links).await;
                let Some((txn, _)) = write else { return Reply::Read };
                let told = match seen {
                    Ok(()) => self.commit(txn, links, false).await,
                    Err(_) => Told::Aborted,
                };
                self.tell(txn, told)
            }
            Operation::InSteps { txn, first, then } => {
                let told = match self.in_steps(session, activity, txn, first, then).await {
                    Ok(links) => self.commit(txn, links, false).await,
                    Err(_) => Told::Aborted,
                };
                self.tell(txn, told)
            }
            Operation::Move { txn, table, to } => {
                let told = self.move_table(activity, txn, table, to).await;
                self.tell(txn, told.unwrap_or(Told::Aborted))
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

    /// Commits what was written over these connections.
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
    pub(super) async fn think(&self) {
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
        activity: &Activity,
        txn: TxnNo,
        writes: Vec<Register>,
        glance: Option<NodeId>,
    ) -> Result<Links, Failed> {
        let mut links = Links::new();
        for register in writes {
            self.append(session, activity, txn, &mut links, register).await?;
            self.think().await;
        }
        if let Some(node) = glance.filter(|node| !links.contains_key(node)) {
            self.read(session, activity, &[node].into(), &BTreeSet::new()).await?;
        }
        Ok(links)
    }

    /// One UPDATE or INSERT inside a transaction at READ COMMITTED: a statement on one node.
    async fn append(
        &self,
        session: SessionId,
        activity: &Activity,
        txn: TxnNo,
        links: &mut Links,
        (of, key): Register,
    ) -> Result<(), Failed> {
        let mut seen = self.begin_observation(session, Some(txn), "an UPDATE");
        for _ in 0..REPETITIONS {
            let catalog = self.begin_statement(activity, &tables_among([key])).await?;
            let node = if is_table(key) { self.place(&catalog, key) } else { of };
            let done = self.append_on(activity, txn, links, (node, key)).await;
            match (done, activity.end_plan()) {
                // Nothing of it was sent.
                (Err(Failed::Overtaken), true) => (),
                (Err(failed), _) => return Err(failed),
                (Ok(rows), _) => {
                    seen.add(node, rows);
                    self.observe(seen);
                    return Ok(());
                }
            }
        }
        Err(Failed::Overtaken)
    }

    /// The transaction's connection to a node; BEGIN is sent over a new one.
    async fn begun<'a>(
        &self,
        activity: &Activity,
        links: &'a mut Links,
        node: NodeId,
    ) -> Result<&'a Link, Lost> {
        match links.entry(node) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(place) => {
                let link = self.link_of(activity, node).await?;
                link.send(Statement::Begin(Isolation::ReadCommitted));
                Ok(place.insert(link))
            }
        }
    }

    async fn append_on(
        &self,
        activity: &Activity,
        txn: TxnNo,
        links: &mut Links,
        (node, key): Register,
    ) -> Result<Rows, Failed> {
        self.step_on(activity, links, node, Statement::Append(key, txn)).await
    }

    /// A step of the transaction on a node, which answers with rows.
    async fn step_on(
        &self,
        activity: &Activity,
        links: &mut Links,
        node: NodeId,
        statement: Statement,
    ) -> Result<Rows, Failed> {
        let link = self.begun(activity, links, node).await?;
        self.barrier(link).await?;
        match self.step(activity, link, statement).await? {
            Answer::Rows(rows) => Ok(rows),
            _ => Err(Failed::Lost),
        }
    }

    /// One statement of two steps. It is planned once.
    async fn in_steps(
        &self,
        session: SessionId,
        activity: &Activity,
        txn: TxnNo,
        first: Register,
        then: Key,
    ) -> Result<Links, Failed> {
        for _ in 0..REPETITIONS {
            let mut seen =
                self.begin_observation(session, Some(txn), "the first step of a statement");
            let tables = tables_among([first.1, then]);
            let catalog = self.begin_statement(activity, &tables).await?;
            activity.note_written_in_steps(then);
            let source = if is_table(first.1) { self.place(&catalog, first.1) } else { first.0 };
            let target = self.place(&catalog, then);
            let mut links = Links::new();
            let done = self.first_step(activity, txn, &mut links, (source, first.1)).await;
            let done = match done {
                Ok(rows) => {
                    let written = self.append_on(activity, txn, &mut links, (target, then)).await;
                    written.map(|_| rows)
                }
                failed => failed,
            };
            activity.end_plan();
            match done {
                // Nothing was committed, and the client was told nothing.
                Err(Failed::Overtaken) => (),
                Err(failed) => return Err(failed),
                Ok(rows) => {
                    seen.add(source, rows);
                    self.observe(seen);
                    if is_table(first.1)
                        && source != target
                        && let Some(reader) = links.remove(&source)
                    {
                        reader.ask(Statement::Commit).await?;
                        self.give_back(reader);
                    }
                    return Ok(links);
                }
            }
        }
        Err(Failed::Overtaken)
    }

    async fn first_step(
        &self,
        activity: &Activity,
        txn: TxnNo,
        links: &mut Links,
        (node, key): Register,
    ) -> Result<Rows, Failed> {
        let statement = match is_table(key) {
            true => Statement::Read([key].into()),
            false => Statement::Append(key, txn),
        };
        self.step_on(activity, links, node, statement).await
    }

    async fn autocommit(
        &self,
        session: SessionId,
        activity: &Activity,
        txn: TxnNo,
        (of, key): Register,
    ) -> Told {
        let mut seen = self.begin_observation(session, Some(txn), "an UPDATE without BEGIN");
        self.sim().world().history.asks_for_commit(txn);
        for _ in 0..REPETITIONS {
            let Ok(catalog) = self.begin_statement(activity, &tables_among([key])).await else {
                return Told::Aborted;
            };
            let node = if is_table(key) { self.place(&catalog, key) } else { of };
            let answer = self.autocommit_on(activity, txn, (node, key)).await;
            activity.end_plan();
            match answer {
                Err(NotSent(Failed::Overtaken)) => continue,
                Err(NotSent(Failed::Lost)) => return Told::Aborted,
                Ok(answer) => {
                    if let Ok(Answer::Rows(rows)) = &answer {
                        seen.add(node, rows.clone());
                        self.observe(seen);
                    }
                    return told_of_one(answer);
                }
            }
        }
        Told::Aborted
    }

    /// Errors: nothing was done.
    async fn autocommit_on(
        &self,
        activity: &Activity,
        txn: TxnNo,
        (node, key): Register,
    ) -> Result<Result<Answer, Lost>, NotSent> {
        let link = self.link_of(activity, node).await.map_err(|lost| NotSent(lost.into()))?;
        loop {
            self.barrier(&link).await.map_err(|lost| NotSent(lost.into()))?;
            self.pass().await;
            if self.may_read(&link) {
                break;
            }
        }
        let answer = self.step(activity, &link, Statement::Append(key, txn)).await;
        self.give_back(link);
        match answer {
            Ok(answer) => Ok(Ok(answer)),
            Err(Failed::Lost) => Ok(Err(Lost)),
            Err(Failed::Overtaken) => Err(NotSent(Failed::Overtaken)),
        }
    }

    /// READ COMMITTED: one statement.
    async fn read(
        &self,
        session: SessionId,
        activity: &Activity,
        nodes: &BTreeSet<NodeId>,
        tables: &BTreeSet<Key>,
    ) -> Result<(), Failed> {
        let mut seen = self.begin_observation(session, None, "a statement");
        for _ in 0..REPETITIONS {
            let catalog = self.begin_statement(activity, tables).await?;
            let mut parts: BTreeMap<NodeId, BTreeSet<Key>> =
                nodes.iter().map(|node| (*node, self.all_keys())).collect();
            for table in tables {
                parts.entry(self.place(&catalog, *table)).or_default().insert(*table);
            }
            let done = match parts.len() {
                1 => self.read_one(activity, &parts).await.map(Some),
                _ => self.read_several(activity, &parts).await,
            };
            activity.end_plan();
            match done {
                // A node was closed when the room opened.
                Ok(None) | Err(Failed::Overtaken) => (),
                Err(Failed::Lost) => return Err(Failed::Lost),
                Ok(Some(found)) => {
                    found.into_iter().for_each(|(node, rows)| seen.add(node, rows));
                    self.observe(seen);
                    return Ok(());
                }
            }
        }
        Err(Failed::Lost)
    }

    /// Of one node.
    async fn read_one(
        &self,
        activity: &Activity,
        parts: &BTreeMap<NodeId, BTreeSet<Key>>,
    ) -> Result<Vec<(NodeId, Rows)>, Failed> {
        let mut found = Vec::new();
        for (node, keys) in parts {
            let link = self.link_of(activity, *node).await?;
            self.barrier(&link).await?;
            let read = self.step(activity, &link, Statement::Read(keys.clone())).await?;
            if let Answer::Rows(rows) = read {
                found.push((*node, rows));
            }
            self.give_back(link);
        }
        Ok(found)
    }

    /// Of several nodes: all of them bind inside the room. None: a node was closed when the room opened.
    async fn read_several(
        &self,
        activity: &Activity,
        parts: &BTreeMap<NodeId, BTreeSet<Key>>,
    ) -> Result<Option<Vec<(NodeId, Rows)>>, Failed> {
        let mut links = Vec::new();
        for (node, keys) in parts {
            let link = self.link_of(activity, *node).await?;
            if keys.iter().any(|key| is_table(*key)) {
                // Nobody waits for a table inside the room.
                self.barrier(&link).await?;
                let parsed = self.step(activity, &link, Statement::Parse(keys.clone())).await?;
                if parsed != Answer::Done {
                    return Err(Failed::Lost);
                }
            }
            links.push((link, keys.clone()));
        }
        let Some(rows) = self.bind_and_execute(activity, &links).await? else { return Ok(None) };
        let mut found = Vec::new();
        for ((link, _), rows) in links.into_iter().zip(rows) {
            found.push((link.node, rows));
            self.give_back(link);
        }
        Ok(Some(found))
    }

    /// None: a node was closed when the room opened.
    async fn bind_and_execute(
        &self,
        activity: &Activity,
        links: &[(Link, BTreeSet<Key>)],
    ) -> Result<Option<Vec<Rows>>, Failed> {
        let visiting = if self.sim().has(Bug::ReaderSkipsTheRoom) {
            None
        } else {
            let (visiting, granted) = self.enter(Room::Snapshot);
            granted.take().await;
            Some(visiting)
        };
        if !links.iter().all(|(link, _)| self.may_read(link)) {
            return Ok(None);
        }
        self.may_send(activity)?;
        let leaves_early = self.sim().has(Bug::ReaderLeavesTheRoomEarly);
        let binds_late = self.sim().has(Bug::SnapshotAtExecute);
        let mut visiting = visiting;
        if !binds_late {
            let bind =
                |(link, keys): &(Link, BTreeSet<Key>)| link.send(Statement::Bind(keys.clone()));
            for bound in links.iter().map(bind).collect::<Vec<_>>() {
                let bound = self.judge(activity, bound.take().await)?;
                if bound != Answer::Done {
                    return Err(Failed::Lost);
                }
                if leaves_early {
                    visiting = None;
                }
            }
        }
        drop(visiting);
        let execute = |(link, keys): &(Link, BTreeSet<Key>)| {
            if binds_late {
                link.send(Statement::Bind(keys.clone()));
            }
            link.send(Statement::Execute)
        };
        let executing: Vec<_> = links.iter().map(execute).collect();
        let mut found = Vec::new();
        for answer in executing {
            let Answer::Rows(rows) = self.judge(activity, answer.take().await)? else {
                return Err(Failed::Lost);
            };
            found.push(rows);
        }
        Ok(Some(found))
    }

    /// REPEATABLE READ: everything of one snapshot of the cluster.
    async fn read_snapshot(
        &self,
        session: SessionId,
        activity: &Activity,
        reads: &[Source],
        write: Option<&(TxnNo, Vec<Register>)>,
        links: &mut Links,
    ) -> Result<(), Failed> {
        let own = write.map(|(txn, _)| *txn);
        let mut seen = self.begin_observation(session, own, "a REPEATABLE READ transaction");
        // What is known of tables is not newer than the snapshot.
        let first = self.begin_statement(activity, &BTreeSet::new()).await?;
        let snapshot = self.snapshot().await.ok_or(Lost)?;
        activity.end_plan();
        let mut readers = Links::new();
        let keys = self.all_keys();
        let reads = reads.iter().map(|source| match source {
            Source::Node(node) => (*node, keys.clone(), Statement::Read(keys.clone())),
            Source::Table(table) => (TABLES, [*table].into(), Statement::Read([*table].into())),
        });
        let writes = write.into_iter().flat_map(|(txn, writes)| {
            writes.iter().map(|(of, key)| (*of, [*key].into(), Statement::Append(*key, *txn)))
        });
        let mut written = BTreeSet::new();
        for (of, keys, statement) in reads.chain(writes) {
            let tables = tables_among(keys);
            let catalog = self.begin_statement(activity, &tables).await?;
            if catalog.differs(&first, &tables) && !self.sim().has(Bug::OldSnapshotIsNotRefused) {
                activity.end_plan();
                return Err(Failed::Overtaken);
            }
            let table = tables.first().copied().filter(|_| of == TABLES);
            let node = table.map_or(of, |table| self.place(&catalog, table));
            if matches!(statement, Statement::Append(..)) {
                written.insert(node);
            }
            let link = match readers.entry(node) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(place) => {
                    let link = self.link_of(activity, node).await?;
                    let (export, epoch) = snapshot.part(node).ok_or(Lost)?;
                    if epoch != link.epoch {
                        return Err(Failed::Lost);
                    }
                    link.send(Statement::Begin(Isolation::RepeatableRead));
                    link.send(Statement::Import(export));
                    place.insert(link)
                }
            };
            let Answer::Rows(rows) = self.step(activity, link, statement).await? else {
                return Err(Failed::Lost);
            };
            activity.end_plan();
            seen.add(node, rows);
            self.think().await;
        }
        self.observe(seen);
        links.extend(readers.into_iter().filter(|(node, _)| written.contains(node)));
        Ok(())
    }
}

/// Nothing of a statement was done.
struct NotSent(Failed);

fn tables_among(keys: impl IntoIterator<Item = Key>) -> BTreeSet<Key> {
    keys.into_iter().filter(|key| is_table(*key)).collect()
}
