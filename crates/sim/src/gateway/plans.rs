//! Plans in sight: what each session has planned and sent, as a placement change sees it.
//!
//! Owns: that a session is in sight before it looks for holds, and that nothing is sent of a plan that a
//! change has stopped.
//! Never: decides which plans a change stops; `tutti_txn::PlacementChange` does.
//! Start reading at [`Gateway::begin_statement`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use tutti_txn::NodeId;
use tutti_txn::placement_change::{Plan, Session};

use super::Gateway;
use super::publisher::Catalog;
use crate::bugs::Bug;
use crate::link::Link;
use crate::network::Lost;
use crate::node::statement::{Answer, BackendId, Key, SqlState, Statement};

/// How long a statement waits for the end of holds.
const REST_PATIENCE: u64 = 300_000;
/// How long planning takes at most.
const PLANNING: u64 = 400;

/// Why a statement has not been carried out.
#[derive(Clone, Copy, Debug)]
pub enum Failed {
    /// A connection was lost, or an error says that nothing was done.
    Lost,
    /// A change has overtaken its plan. Nothing of the current step was done.
    Overtaken,
}

impl From<Lost> for Failed {
    fn from(_: Lost) -> Self {
        Self::Lost
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Progress {
    NoPlan,
    Planned,
    Sent,
    Overtaken,
    OvertakenUnsent,
}

/// What one session is doing.
pub struct Activity {
    /// Its number.
    pub session: Session,
    progress: Cell<Progress>,
    concerns: RefCell<BTreeSet<Key>>,
    written_in_steps: RefCell<BTreeSet<Key>>,
    backends: RefCell<BTreeSet<(NodeId, BackendId)>>,
    /// What it runs is cancelled because of a change.
    is_marked: Cell<bool>,
}

impl Activity {
    /// The backends that it uses.
    pub fn backends(&self) -> BTreeSet<(NodeId, BackendId)> {
        self.backends.borrow().clone()
    }

    /// Whether it has a plan.
    pub fn has_plan(&self) -> bool {
        self.progress.get() != Progress::NoPlan
    }

    /// What a change of this table must know of its plan.
    pub fn plan_for(&self, table: Key) -> Plan {
        let concerns = self.concerns.borrow().contains(&table);
        Plan {
            cannot_end: None,
            may_use_moved: concerns,
            may_use_changed: concerns,
            uses_changed: concerns,
            uses_changed_names: false,
            writes_changed_in_steps: self.written_in_steps.borrow().contains(&table),
            rebuilds_changed: false,
            brings_checked: false,
            may_call_grown: false,
            sends_ahead: false,
            comes_later: false,
        }
    }

    /// Nothing of the plan will be sent if nothing was.
    pub fn overtake_unsent(&self) {
        if self.progress.get() == Progress::Planned {
            self.progress.set(Progress::OvertakenUnsent);
        }
    }

    /// Nothing more of the plan will be sent.
    pub fn overtake(&self) {
        self.overtake_unsent();
        if self.progress.get() == Progress::Sent {
            self.progress.set(Progress::Overtaken);
        }
    }

    /// What runs now is cancelled because of a change.
    pub fn mark(&self) {
        self.is_marked.set(true);
    }

    /// The plan writes this table after other steps.
    pub fn note_written_in_steps(&self, table: Key) {
        self.written_in_steps.borrow_mut().insert(table);
    }

    /// Something of the plan is about to be sent. False: it must not be.
    fn may_send(&self) -> bool {
        if self.progress.get() == Progress::Planned {
            self.progress.set(Progress::Sent);
        }
        !matches!(self.progress.get(), Progress::Overtaken | Progress::OvertakenUnsent)
    }

    /// The plan has been carried out or abandoned. Returns whether a change has overtaken it before anything
    /// of it was sent.
    pub fn end_plan(&self) -> bool {
        self.written_in_steps.borrow_mut().clear();
        self.is_marked.set(false);
        self.progress.replace(Progress::NoPlan) == Progress::OvertakenUnsent
    }
}

/// A session that is served. Out of sight when dropped.
pub struct AtWork {
    gateway: Gateway,
    /// What it does.
    pub activity: Rc<Activity>,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.gateway.0.activities.borrow_mut().remove(&self.activity.session);
    }
}

impl Gateway {
    /// A session begins.
    pub(super) fn begin_session(&self) -> AtWork {
        let number = self.0.sessions_begun.get() + 1;
        self.0.sessions_begun.set(number);
        let activity = Rc::new(Activity {
            session: Session(number),
            progress: Cell::new(Progress::NoPlan),
            concerns: RefCell::default(),
            written_in_steps: RefCell::default(),
            backends: RefCell::default(),
            is_marked: Cell::new(false),
        });
        self.0.activities.borrow_mut().insert(activity.session, activity.clone());
        AtWork { gateway: self.clone(), activity }
    }

    /// A connection for a session.
    pub(super) async fn link_of(&self, activity: &Activity, node: NodeId) -> Result<Link, Lost> {
        let link = self.link(node).await?;
        activity.backends.borrow_mut().insert((node, link.backend));
        Ok(link)
    }

    /// A statement that uses these tables begins: the catalog that it is planned with.
    ///
    /// Errors: changes keep it waiting for long.
    pub(super) async fn begin_statement(
        &self,
        activity: &Activity,
        tables: &BTreeSet<Key>,
    ) -> Result<Rc<Catalog>, Failed> {
        let has_tables = 0 < self.sim().world().plan.tables;
        if !has_tables {
            return Ok(self.catalog());
        }
        loop {
            self.wait_for_rest(REST_PATIENCE).await?;
            let looks_first = self.sim().has(Bug::LooksBeforeItIsInSight);
            let early = looks_first.then(|| self.catalog());
            if looks_first {
                self.plan_for_a_while().await;
            }
            activity.concerns.borrow_mut().clone_from(tables);
            activity.progress.set(Progress::Planned);
            if let Some(catalog) = early {
                return Ok(catalog);
            }
            if self.is_at_rest() {
                let catalog = self.catalog();
                self.plan_for_a_while().await;
                return Ok(catalog);
            }
            activity.progress.set(Progress::NoPlan);
        }
    }

    async fn plan_for_a_while(&self) {
        let duration = self.sim().world().draw(0, PLANNING);
        self.sim().sleep(duration).await;
    }

    /// Sends a step of a plan, and waits for its answer.
    pub(super) async fn step(
        &self,
        activity: &Activity,
        link: &Link,
        statement: Statement,
    ) -> Result<Answer, Failed> {
        self.may_send(activity)?;
        let answer = link.ask(statement).await;
        if answer.is_err() && !self.sim().has(Bug::LeftBackendsAreForgotten) {
            // What was sent goes on, though its session does not.
            let mut left = self.0.left.borrow_mut();
            let number = left.keys().next().map_or(-1, |Session(least)| least - 1);
            left.insert(Session(number), (link.node, link.backend));
        }
        self.judge(activity, answer)
    }

    /// Whether a step of the plan may be sent now.
    pub(super) fn may_send(&self, activity: &Activity) -> Result<(), Failed> {
        match activity.may_send() || self.sim().has(Bug::StopIsNotHeeded) {
            true => Ok(()),
            false => Err(Failed::Overtaken),
        }
    }

    /// Of an answer: whether a change has cancelled the statement.
    pub(super) fn judge(
        &self,
        activity: &Activity,
        answer: Result<Answer, Lost>,
    ) -> Result<Answer, Failed> {
        match answer? {
            Answer::Error(SqlState::QueryCanceled) if activity.is_marked.get() => {
                Err(Failed::Overtaken)
            }
            answer => Ok(answer),
        }
    }
}
