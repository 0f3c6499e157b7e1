//! What others see of a session's plan.
//!
//! Owns: whether there is a plan, how far it has got, what it depends on, in how many steps it writes; and that a
//! change which comes between is seen before anything more is sent.
//! Never: decides whom a change waits for (`tutti_txn::placement_change`). A session pays a few stores per message.
//! Start reading at [`PlanInSight`].

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tutti_sql::catalog::{NameScope, Relation};
use tutti_sql::closure::Grown;
use tutti_sql::plan::Concerns;

/// One session's plan. The session itself writes it; changes write only that it is overtaken.
#[derive(Debug, Default)]
pub struct PlanInSight {
    /// How far the session has got with it: one of the constants below.
    progress: AtomicU8,
    /// How many plans there were; only the session itself asks.
    plans: AtomicU64,
    /// What its plan does in several steps, where it `has_steps`.
    steps: Mutex<Steps>,
    has_steps: AtomicBool,
    /// What the plan depends on, where `is_limited`; else it may be anything.
    concerns: Mutex<Option<Arc<Concerns>>>,
    is_limited: AtomicBool,
    /// `concerns` are those of the flight's earlier statements.
    is_joined: AtomicBool,
    /// Further statements were sent after the one whose answer comes next: they are part of the plan, and
    /// begin on their node without the gateway.
    sends_ahead: AtomicBool,
    /// It may come to further tables while it is at work.
    comes_later: AtomicBool,
    /// The plan commits before it ends, and what it has done is not asked: what was proven of it
    /// must hold until then.
    unasked: Mutex<Option<Arc<Unasked>>>,
    is_unasked: AtomicBool,
}

/// What a plan does in several steps.
#[derive(Debug, Default)]
struct Steps {
    /// Tables that it writes, by their OIDs on node 1.
    written: Vec<u32>,
    /// Relations whose rows it brings together and makes anew.
    brought: Vec<Arc<Relation>>,
}

/// A statement of which it was proven that it touches tables of node 1 only, by what its names mean.
#[derive(Debug)]
pub struct Unasked {
    /// Its text.
    pub text: String,
    /// How its session sees names; `None`: not known, so nothing was proven.
    pub scope: Option<NameScope>,
}

/// It depends on no placement.
const NO_PLAN: u8 = 0;
/// It has a plan, or is making one, and has sent nothing yet.
const PLANNED: u8 = 1;
/// Something of the plan may be on its way to a node.
const SENT: u8 = 2;
/// Placements have changed since: what has not been sent must not be sent.
const OVERTAKEN: u8 = 3;
/// The same, before anything of the plan was sent.
const OVERTAKEN_UNSENT: u8 = 4;

/// Whether a statement may come to one of its tables after it has begun its work: by code, or as what it writes is
/// written with others.
fn comes_later(concerns: Option<&Arc<Concerns>>, writes: bool) -> bool {
    concerns.is_none_or(|concerns| match &concerns.relations {
        // Code reads others than the text names.
        None => writes || concerns.calls_users(),
        Some(relations) => writes && 1 < relations.len(),
    })
}

impl PlanInSight {
    /// A plan is being made. From here on a change of placements that does not see this plan will
    /// itself be seen: the caller checks for one after this.
    pub fn begin(&self) {
        self.begin_at(PLANNED);
    }

    /// The same, for what is sent without waiting again.
    pub fn begin_to_send(&self) {
        self.begin_at(SENT);
    }

    fn begin_at(&self, progress: u8) {
        self.plans.store(self.plans.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Ordered by the store of `progress`.
        self.sends_ahead.store(false, Ordering::Relaxed);
        self.comes_later.store(false, Ordering::Relaxed);
        self.is_joined.store(false, Ordering::Relaxed);
        self.is_limited.store(false, Ordering::SeqCst);
        self.is_unasked.store(false, Ordering::SeqCst);
        self.has_steps.store(false, Ordering::SeqCst);
        self.progress.store(progress, Ordering::SeqCst);
    }

    /// A number for the plan that has begun.
    pub fn number(&self) -> u64 {
        self.plans.load(Ordering::Relaxed)
    }

    /// Whether the plan of this number has been in sight ever since it began.
    pub fn is_still(&self, plan_number: u64) -> bool {
        self.exists() && self.number() == plan_number
    }

    /// The plan that is about to be carried out depends on this; `None`: on anything. Nothing that was sent
    /// before is unanswered. `writes`: it may.
    pub fn note_concerns(&self, concerns: Option<&Arc<Concerns>>, writes: bool) {
        self.is_unasked.store(false, Ordering::SeqCst);
        self.comes_later.store(comes_later(concerns, writes), Ordering::SeqCst);
        self.limit(&mut self.locked_concerns(), concerns.cloned());
    }

    /// A further statement of a flight is about to be planned, so the plan may depend on anything. As with
    /// [`Self::begin`], the caller checks for a change of placements after this.
    pub fn widen(&self) {
        self.is_limited.store(false, Ordering::SeqCst);
    }

    /// The further statement has not been sent, and begins anew before it is: the plan depends on what it did
    /// before [`Self::widen`].
    pub fn narrow(&self) {
        let is_limited = self.is_joined.load(Ordering::SeqCst) && self.locked_concerns().is_some();
        self.is_limited.store(is_limited, Ordering::SeqCst);
    }

    /// The flight's next statement depends on this; `None`: on anything. What those before it depend on is
    /// kept.
    pub fn join_concerns(&self, next: Option<&Arc<Concerns>>, writes: bool) {
        self.comes_later.fetch_or(comes_later(next, writes), Ordering::SeqCst);
        let mut concerns = self.locked_concerns();
        let joined = match self.is_joined.swap(true, Ordering::SeqCst) {
            false => next.cloned(),
            true => concerns.as_ref().zip(next).map(|(earlier, next)| {
                match Arc::ptr_eq(earlier, next) {
                    true => next.clone(),
                    false => Arc::new(earlier.with(next)),
                }
            }),
        };
        self.limit(&mut concerns, joined);
    }

    fn limit(&self, limits: &mut Option<Arc<Concerns>>, concerns: Option<Arc<Concerns>>) {
        let is_limited = concerns.is_some();
        *limits = concerns;
        self.is_limited.store(is_limited, Ordering::SeqCst);
    }

    fn locked_concerns(&self) -> std::sync::MutexGuard<'_, Option<Arc<Concerns>>> {
        self.concerns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A statement is sent after others that are not answered yet.
    pub fn note_sends_ahead(&self) {
        self.sends_ahead.store(true, Ordering::SeqCst);
    }

    /// What was sent together is answered.
    pub fn note_all_answered(&self) {
        self.sends_ahead.store(false, Ordering::SeqCst);
    }

    /// Whether statements were sent together.
    pub fn sends_ahead(&self) -> bool {
        self.sends_ahead.load(Ordering::SeqCst)
    }

    /// Whether what is at work may come to further tables that the plan depends on.
    pub fn comes_later(&self) -> bool {
        self.comes_later.load(Ordering::SeqCst)
    }

    /// What the plan is known to depend on.
    pub fn concerns(&self) -> Option<Arc<Concerns>> {
        self.locked_concerns().clone().filter(|_| self.is_limited.load(Ordering::SeqCst))
    }

    /// A node is about to analyse a statement, by which it may run code, but touches no rows. Where nothing was bound
    /// before, the plan depends on what the statement depends on, if that is known.
    pub fn note_analysis(&self, of: Option<&Arc<Concerns>>) {
        let Some(next) = of else { return };
        if !self.is_joined.load(Ordering::SeqCst) {
            return self.join_concerns(of, false);
        }
        let mut concerns = self.locked_concerns();
        if let Some(earlier) = concerns.as_mut().filter(|earlier| !earlier.calls_all_of(next)) {
            *earlier = Arc::new(earlier.with_calls_of(next));
        }
    }

    /// Whether it is known on which relations the plan depends, and that it runs no code of users'.
    pub fn has_known_relations(&self) -> bool {
        let is_known = |it: &Concerns| it.relations.is_some() && !it.calls_users();
        self.is_concerned(|concerns| concerns.is_some_and(is_known))
    }

    /// Whether it is known what all statements that the plan has bound depend on.
    pub fn has_known_concerns(&self) -> bool {
        !self.is_joined.load(Ordering::SeqCst) || self.concerns().is_some()
    }

    /// Whether the plan may depend on where these relations are.
    pub fn may_concern(&self, moved: &BTreeSet<u32>) -> bool {
        self.is_concerned(|concerns| concerns.is_none_or(|concerns| concerns.may_use(moved)))
    }

    /// Whether it is known that the plan depends on one of these relations.
    pub fn depends_on(&self, relations: &BTreeSet<u32>) -> bool {
        self.is_concerned(|concerns| concerns.is_some_and(|concerns| concerns.uses(relations)))
    }

    /// Whether it is known that the plan names relations that were not there when it was made.
    pub fn names_absent(&self) -> bool {
        self.is_concerned(|concerns| concerns.is_some_and(|concerns| concerns.names_absent))
    }

    /// Whether the plan may run code that it does not reckon with.
    pub fn may_call(&self, grown: &Grown) -> bool {
        self.is_concerned(|concerns| concerns.is_none_or(|concerns| concerns.may_call(grown)))
    }

    fn is_concerned(&self, by: impl FnOnce(Option<&Concerns>) -> bool) -> bool {
        let concerns = self.locked_concerns();
        by(concerns.as_deref().filter(|_| self.is_limited.load(Ordering::SeqCst)))
    }

    /// The plan whose relations were just noted can neither be ended nor be run again.
    pub fn note_unasked(&self, unasked: Unasked) {
        *self.locked_unasked() = Some(Arc::new(unasked));
        self.is_unasked.store(true, Ordering::SeqCst);
    }

    /// The statement of such a plan.
    pub fn unasked(&self) -> Option<Arc<Unasked>> {
        let unasked = self.is_unasked.load(Ordering::SeqCst).then(|| self.locked_unasked().clone());
        unasked.flatten()
    }

    fn locked_unasked(&self) -> std::sync::MutexGuard<'_, Option<Arc<Unasked>>> {
        self.unasked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before anything of a plan is sent: which tables it writes in several steps, and of which relations it makes
    /// rows anew that it has read in another.
    pub fn note_steps(&self, written: Vec<u32>, brought: Vec<Arc<Relation>>) {
        *self.locked_steps() = Steps { written, brought };
        self.has_steps.store(true, Ordering::SeqCst);
    }

    /// Whether the plan writes one of these tables in several steps.
    pub fn writes_any(&self, is_changed: impl FnMut(&u32) -> bool) -> bool {
        self.has_steps() && self.locked_steps().written.iter().any(is_changed)
    }

    /// Whether the plan makes rows anew of a relation for which `is_meant` holds.
    pub fn brings_any(&self, is_meant: impl FnMut(&Arc<Relation>) -> bool) -> bool {
        self.has_steps() && self.locked_steps().brought.iter().any(is_meant)
    }

    fn has_steps(&self) -> bool {
        self.has_steps.load(Ordering::SeqCst)
    }

    fn locked_steps(&self) -> std::sync::MutexGuard<'_, Steps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan has been carried out, or abandoned.
    pub fn end(&self) {
        self.progress.store(NO_PLAN, Ordering::SeqCst);
        if self.has_steps.swap(false, Ordering::SeqCst) {
            *self.locked_steps() = Steps::default();
        }
    }

    /// Whether there is a plan.
    pub fn exists(&self) -> bool {
        self.progress.load(Ordering::SeqCst) != NO_PLAN
    }

    /// Whether the plan must not be continued.
    pub fn is_overtaken(&self) -> bool {
        matches!(self.progress.load(Ordering::SeqCst), OVERTAKEN | OVERTAKEN_UNSENT)
    }

    /// Whether the plan must not be continued, and nothing of it was sent.
    pub fn is_overtaken_unsent(&self) -> bool {
        self.progress.load(Ordering::SeqCst) == OVERTAKEN_UNSENT
    }

    /// Something of the plan is about to be sent. False: it must not be.
    pub fn may_send(&self) -> bool {
        let sent =
            self.progress.compare_exchange(PLANNED, SENT, Ordering::SeqCst, Ordering::SeqCst);
        !matches!(sent, Err(OVERTAKEN | OVERTAKEN_UNSENT))
    }

    /// Placements change: a session that has sent nothing of its plan will not send it.
    pub fn overtake_unsent(&self) {
        let (from, to) = (PLANNED, OVERTAKEN_UNSENT);
        // If this fails, the state needs no change.
        let _ = self.progress.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Placements change: whatever has not been sent will not be.
    pub fn overtake(&self) {
        self.overtake_unsent();
        let _ = self.progress.compare_exchange(SENT, OVERTAKEN, Ordering::SeqCst, Ordering::SeqCst);
    }
}
