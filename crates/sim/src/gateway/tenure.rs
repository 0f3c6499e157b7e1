//! Driving [`Tenure`]: the lock of the gateway that serves, its loss, and the fence on each node.
//!
//! Owns: the connection whose life is the lock.
//! Never: decides what the loss of the lock means, or when a gateway ends; [`Tenure`] does.
//! Start reading at [`Gateway::live`], then [`Gateway::fence`].

use tutti_txn::Tenure;
use tutti_txn::tenure::{Effect, Event};

use super::{Gateway, HOME, RETRY_PAUSE, WATCH_PAUSE};
use crate::bugs::Bug;
use crate::faults::Fault;
use crate::link::Link;
use crate::network::{ConnId, Lost};
use crate::node::statement::{Answer, SqlState, Statement};
use crate::tasks::Owner;
use crate::world::Event as Happening;

/// How long a gateway tries to get the lock: the backend of one that was killed needs a moment to notice.
const LOCK_PATIENCE: u64 = 10_000;
/// How often a gateway looks whether it still has its lock.
const LOCK_INTERVAL: u64 = 2_000;
/// When node 1 has not answered for this long, the lock is taken anew.
const LOCK_SILENCE: u64 = 10_000;
/// Between two looks whether backends have ended.
const END_PAUSE: u64 = 100;

/// Why a node is not fenced.
pub enum Unfenced {
    /// It did not answer.
    Lost,
    /// It knows a later gateway, of this incarnation.
    Replaced(u64),
}

impl From<Lost> for Unfenced {
    fn from(_: Lost) -> Self {
        Self::Lost
    }
}

impl Gateway {
    /// The gateway's life, from its start until it ends by itself.
    pub(super) async fn live(self) {
        let mut effects = Vec::new();
        let mut tenure = Tenure::begin(&mut effects);
        loop {
            for effect in effects.drain(..) {
                self.sim().note(|| format!("gateway process {}: {effect:?}", self.0.id));
                self.perform_tenure(effect);
            }
            let event = self.0.tenure.next().await;
            self.sim().note(|| format!("gateway process {}: {event:?}", self.0.id));
            tenure.step(event, &mut effects);
        }
    }

    fn perform_tenure(&self, effect: Effect) {
        match effect {
            Effect::Serve => self.begin_to_serve(),
            Effect::End(_) => self.end(),
            Effect::TakeLock => self.tell_tenure(|it| async move { it.take_lock().await }),
            Effect::Draw => self.tell_tenure(|it| async move { it.draw().await }),
            Effect::TakeOver { incarnation } => {
                self.0.incarnation.set(incarnation);
                self.tell_tenure(|it| async move { it.take_over().await });
            }
            Effect::WatchLock => self.tell_tenure(|it| async move { it.await_lock_event().await }),
            Effect::ReadNewest => self.tell_tenure(|it| async move {
                it.read_newest().await.map_or(Event::HomeLost, Event::Newest)
            }),
            Effect::RetryLater => self.tell_tenure(|it| async move {
                it.sim().sleep(RETRY_PAUSE).await;
                Event::RetryDue
            }),
        }
    }

    fn tell_tenure<F: Future<Output = Event> + 'static>(&self, work: impl FnOnce(Self) -> F) {
        let (gateway, work) = (self.clone(), work(self.clone()));
        self.spawn(async move { gateway.0.tenure.put(work.await) });
    }

    /// The process ends as soon as the world gets to it.
    fn end(&self) {
        let mut world = self.sim().world();
        let now = world.now;
        world.at(now, Happening::Fault(Fault::GatewayEnds { gateway: self.0.id }));
    }

    /// The connection of the lock, if it has or had it.
    pub fn lock_connection(&self) -> Option<ConnId> {
        self.0.lock.borrow().as_ref().map(Link::id)
    }

    async fn take_lock(&self) -> Event {
        let before = self.0.lock.borrow_mut().take().map(|link| link.backend);
        self.try_lock(before).await.unwrap_or(Event::HomeLost)
    }

    async fn try_lock(&self, before: Option<u32>) -> Result<Event, Lost> {
        let link = self.connect(HOME).await?;
        if let Some(before) = before {
            link.ask(Statement::EndBackends([before].into())).await?;
        }
        let give_up = self.sim().now() + LOCK_PATIENCE;
        while link.ask(Statement::TakeLock).await? != Answer::Done {
            if give_up < self.sim().now() {
                return Ok(Event::LockHeld);
            }
            self.sim().sleep(RETRY_PAUSE).await;
        }
        *self.0.lock.borrow_mut() = Some(link);
        Ok(Event::LockTaken)
    }

    async fn draw(&self) -> Event {
        let drawn = async {
            let link = self.connect(HOME).await?;
            link.ask(Statement::NextIncarnation).await
        };
        match drawn.await {
            Ok(Answer::Incarnation(number)) => Event::Drawn(number),
            _ => Event::HomeLost,
        }
    }

    async fn read_newest(&self) -> Result<u64, Lost> {
        let asked = match self.0.lock.borrow().as_ref() {
            Some(link) => link.send(Statement::ReadNewest),
            None => return Err(Lost),
        };
        match asked.take_before(self.sim().bell(LOCK_SILENCE)).await {
            Some(Ok(Answer::Incarnation(newest))) => Ok(newest),
            _ => Err(Lost),
        }
    }

    /// Returns when the lock is lost, or with what node 1 knows after a while.
    async fn await_lock_event(&self) -> Event {
        loop {
            self.sim().sleep(LOCK_INTERVAL).await;
            match self.read_newest().await {
                Ok(_) if self.sim().has(Bug::LaterOnesAreNotNoticed) => (),
                Ok(newest) => return Event::Newest(newest),
                Err(Lost) => return Event::LockLost,
            }
        }
    }

    /// Fences the nodes that answer, and if these are all, settles what is in doubt. Otherwise the nodes are
    /// closed until their sweep has done so.
    async fn take_over(&self) -> Event {
        let nodes: Vec<_> = self.0.nodes.borrow().keys().copied().collect();
        if self.sim().has(Bug::GatewayServesUnsettled) {
            self.open_unsettled(&nodes).await;
            return Event::TakenOver;
        }
        let mut are_all_there = true;
        for node in &nodes {
            let link = match self.connect(*node).await {
                Ok(link) => link,
                Err(Lost) if *node == HOME => return self.fail_to_start().await,
                Err(Lost) => {
                    are_all_there = false;
                    continue;
                }
            };
            if self.sim().has(Bug::LooksBeforeTheFence) {
                continue;
            }
            match self.fence(&link).await {
                Ok(()) => (),
                Err(Unfenced::Replaced(newest)) => return Event::Newest(newest),
                Err(Unfenced::Lost) => return self.fail_to_start().await,
            }
        }
        if are_all_there && self.settle_in_doubt(&nodes).await.is_err() {
            return self.fail_to_start().await;
        }
        for node in &nodes {
            self.begin_sweep(*node);
        }
        if are_all_there {
            for node in &nodes {
                // One that stays closed is no reason not to serve the others.
                let _ = self.wait_until_open(*node).await;
            }
        }
        Event::TakenOver
    }

    /// A start that fails ends the process; another one is started.
    async fn fail_to_start(&self) -> Event {
        self.end();
        std::future::pending().await
    }

    /// Only with [`Bug::GatewayServesUnsettled`]: the nodes are fenced, and swept a while later.
    async fn open_unsettled(&self, nodes: &[tutti_txn::NodeId]) {
        for node in nodes.iter().copied() {
            let epoch = loop {
                if let Ok(link) = self.connect(node).await
                    && self.fence(&link).await.is_ok()
                {
                    break link.epoch;
                }
                self.sim().sleep(RETRY_PAUSE).await;
            };
            self.with_node(node, |state| state.settled_epoch = Some(epoch));
            let sweeping = self.clone();
            self.spawn(async move {
                sweeping.sim().sleep(WATCH_PAUSE).await;
                sweeping.begin_sweep(node);
            });
        }
    }

    /// Once this has returned, no statement of a client of an earlier gateway runs on the node, nor will any.
    ///
    /// Errors: what is seen next proves nothing.
    pub(super) async fn fence(&self, link: &Link) -> Result<(), Unfenced> {
        let (incarnation, sim) = (self.0.incarnation.get(), self.sim());
        if sim.has(Bug::EndsBeforeTheRaise) {
            self.end_listed(link, incarnation).await?;
        }
        if !sim.has(Bug::NodeIsNotRaised) {
            while link.ask(Statement::Raise(incarnation)).await? != Answer::Done {}
            match link.ask(Statement::ReadNewest).await? {
                Answer::Incarnation(newest) if newest <= incarnation => (),
                Answer::Incarnation(newest) => return Err(Unfenced::Replaced(newest)),
                _ => return Err(Unfenced::Lost),
            }
        }
        if !sim.has(Bug::EndsBeforeTheRaise) && !sim.has(Bug::ListedBackendsGoOn) {
            self.end_listed(link, incarnation).await?;
        }
        link.ask(Statement::ClearList(incarnation)).await?;
        let mut world = sim.world();
        let newest = world.fenced.entry(link.node).or_default();
        *newest = incarnation.max(*newest);
        Ok(())
    }

    async fn end_listed(&self, link: &Link, incarnation: u64) -> Result<(), Lost> {
        loop {
            match link.ask(Statement::EndListed(incarnation)).await? {
                Answer::Count(0) => return Ok(()),
                Answer::Count(_) if self.sim().has(Bug::TheirEndIsNotAwaited) => return Ok(()),
                Answer::Count(_) => self.sim().sleep(END_PAUSE).await,
                _ => return Err(Lost),
            }
        }
    }

    /// A node takes the backend of a new connection into its list, before any client's statement runs on it.
    ///
    /// Errors: the node knows a later gateway, or does not answer.
    pub(super) async fn list_backend(&self, link: &mut Link) -> Result<(), Lost> {
        let incarnation = self.0.incarnation.get();
        link.serve_clients(incarnation);
        if self.sim().has(Bug::BackendIsNotListed) {
            return Ok(());
        }
        let served = link.send(Statement::Serve(incarnation));
        if self.sim().has(Bug::RefusalIsNotHeeded) {
            return Ok(());
        }
        match served.take().await? {
            Answer::Done => Ok(()),
            Answer::Error(SqlState::AdminShutdown) => {
                self.sim().note(|| format!("{} refuses gateway {incarnation}", link.node));
                Err(Lost)
            }
            _ => Err(Lost),
        }
    }

    fn begin_to_serve(&self) {
        self.sim().note(|| format!("gateway {} serves", self.0.incarnation.get()));
        self.0.is_serving.set(true);
        if 0 < self.sim().world().plan.tables {
            // Nothing is planned until the catalog is read.
            self.note_change();
        }
        let nodes: Vec<_> = self.0.nodes.borrow().keys().copied().collect();
        for node in nodes {
            let watching = self.clone();
            self.spawn(async move {
                loop {
                    watching.sim().sleep(WATCH_PAUSE).await;
                    watching.watch(node).await;
                }
            });
        }
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.sim().spawn(Owner::Gateway(self.0.id), work);
    }
}
