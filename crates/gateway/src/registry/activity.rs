//! What each session is doing, for deadlock detection and changes of the schema, and the mark on a
//! session whose statement was ended.
//!
//! Owns: what others see of a session's plan (whether there is one, how far it has got, what it depends on, in
//! how many steps it writes), that a change which comes between is seen before anything more is sent, and that
//! a mark rewords only the error of the statement for which it was made.
//! Never: decides whom a change waits for (`tutti_txn::placement_change`). A session pays a few stores per message.
//! Start reading at [`Activity`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;

use atomic_waker::AtomicWaker;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tutti_cluster::SessionsAtWork;
use tutti_sql::catalog::{NameScope, Relation};
use tutti_sql::closure::Grown;
use tutti_sql::plan::Concerns;
use tutti_txn::gid::Gid;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

/// What PostgreSQL says where a row has gone to another partition.
const MOVED_MESSAGE: &str =
    "tuple to be locked was already moved to another partition due to concurrent update";
/// What PostgreSQL says with it.
pub const TERMINATED_MESSAGE: &str = "terminating connection due to administrator command";
const HINT: &str = "The transaction is the youngest of those that waited for each other over several nodes. Retry it.";

/// One session's activity. The session itself writes it; others write only the mark (deadlock detection, signals)
/// and whether the plan is overtaken (changes).
#[derive(Debug, Default)]
pub struct Activity {
    /// Grows; odd while the session handles a message of its client.
    message: AtomicU64,
    /// Its transaction is on several nodes.
    spans: AtomicBool,
    /// It can be ended at no cost.
    gives_way: AtomicBool,
    /// How far it has got with a plan: one of the constants below.
    plan: AtomicU8,
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
    mark: Mutex<Option<Mark>>,
    /// The client's socket.
    stream: Weak<TcpStream>,
    /// The session was asked to end.
    terminated: AtomicBool,
    /// The session was asked to notice that the gateway's state has changed.
    asked: AtomicBool,
    /// Wakes the session when it waits for its client.
    waker: AtomicWaker,
    /// Ends a COPY whose node waits for the client's data, and heeds no cancel request until they come.
    stops: Arc<Notify>,
    /// Cancels the statement while it waits in the gateway and not on a node.
    cancelled: Notify,
    /// The message at which that was last asked for.
    cancelled_at: AtomicU64,
    /// By which name its transaction is being prepared on nodes, if it is.
    committing: Mutex<Option<Gid>>,
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

/// As `by_row.sql` has it.
const REWRITTEN_MESSAGE: &str = "could not read a table that was rewritten behind the snapshot";
const OVERTAKEN_MESSAGE: &str =
    "could not run the statement as planned, for something that it uses has changed meanwhile";

/// Whether a statement may come to one of its tables after it has begun its work: by code, or as what it writes is
/// written with others.
fn comes_later(concerns: Option<&Arc<Concerns>>, writes: bool) -> bool {
    concerns.is_none_or(|concerns| match &concerns.relations {
        // Code reads others than the text names.
        None => writes || concerns.calls_users(),
        Some(relations) => writes && 1 < relations.len(),
    })
}

/// What a client is told whose statement was overtaken, if it cannot be run again.
pub fn overtaken() -> ErrorFields {
    ErrorFields::error(sqlstate::SERIALIZATION_FAILURE, OVERTAKEN_MESSAGE)
        .with(b'H', "Nothing of the statement was done. The transaction might succeed if retried.")
}

/// Whether this is what [`overtaken`] says, or a node's `tutti.refuse_rewritten`.
pub fn says_overtaken(error: &ErrorFields) -> bool {
    [OVERTAKEN_MESSAGE, REWRITTEN_MESSAGE].contains(&error.message())
}

/// That the session's statement was ended.
#[derive(Debug)]
struct Mark {
    /// For later messages it means nothing.
    last_message: u64,
    why: Why,
}

#[derive(Debug)]
enum Why {
    /// It was the victim of a deadlock; words for the client.
    Deadlock(String),
    /// It waited with a plan whose placements are being changed.
    Overtaken,
    /// It may have waited for a row that goes to another node.
    Moved,
}

impl Activity {
    /// A message of the client came.
    pub fn begin_message(&self) {
        self.message.store(self.message.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    }

    /// The session waits for its client.
    pub fn end_message(&self) {
        let next = self.message.load(Ordering::Relaxed).next_multiple_of(2);
        self.message.store(next, Ordering::Relaxed);
    }

    /// Whether the session was asked to end.
    pub fn is_terminated(&self) -> bool {
        self.terminated.load(Ordering::Acquire)
    }

    /// Waits until the session is asked to notice that the gateway's state has changed.
    pub async fn asked_to_look_up(&self) {
        std::future::poll_fn(|context| {
            // Registered before the check, so that nothing is missed.
            self.waker.register(context.waker());
            match self.asked.swap(false, Ordering::AcqRel) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Whether the current statement was cancelled: then it is not run again.
    pub fn is_cancelled(&self) -> bool {
        let message = self.message.load(Ordering::Relaxed);
        message % 2 == 1 && self.cancelled_at.load(Ordering::SeqCst) == message
    }

    /// Returns when what the session does from now on is cancelled.
    pub async fn cancelled(&self) {
        self.cancelled.notified().await;
    }

    fn ask_to_look_up(&self) {
        self.asked.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Notified whenever the statement is being cancelled because placements change.
    pub(crate) fn stops(&self) -> Arc<Notify> {
        self.stops.clone()
    }

    /// The current statement only reads, in a transaction of its own, and can be run again.
    pub fn give_way(&self) {
        self.gives_way.store(true, Ordering::Relaxed);
    }

    /// Whether it is the one to end, of several that wait for each other.
    pub fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Relaxed)
    }

    /// The transaction is on so many nodes now; 0 when it has ended.
    pub fn note_nodes(&self, count: usize) {
        if count == 0 {
            self.gives_way.store(false, Ordering::Relaxed);
        }
        self.spans.store(1 < count, Ordering::Relaxed);
    }

    /// A plan is being made. From here on a change of placements that does not see this plan will
    /// itself be seen: the caller checks for one after this.
    pub fn begin_plan(&self) {
        self.begin(PLANNED);
    }

    /// The same, for what is sent without waiting again.
    pub fn begin_to_send(&self) {
        self.begin(SENT);
    }

    fn begin(&self, plan: u8) {
        self.plans.store(self.plans.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Ordered by the store of `plan`.
        self.sends_ahead.store(false, Ordering::Relaxed);
        self.comes_later.store(false, Ordering::Relaxed);
        self.is_joined.store(false, Ordering::Relaxed);
        self.is_limited.store(false, Ordering::SeqCst);
        self.is_unasked.store(false, Ordering::SeqCst);
        self.has_steps.store(false, Ordering::SeqCst);
        self.plan.store(plan, Ordering::SeqCst);
    }

    /// A number for the plan that has begun.
    pub fn plan_number(&self) -> u64 {
        self.plans.load(Ordering::Relaxed)
    }

    /// Whether the plan of this number has been in sight ever since it began.
    pub fn is_still(&self, plan_number: u64) -> bool {
        self.has_plan() && self.plan_number() == plan_number
    }

    /// The plan that is about to be carried out depends on this; `None`: on anything. Nothing that was sent
    /// before is unanswered. `writes`: it may.
    pub fn note_concerns(&self, concerns: Option<&Arc<Concerns>>, writes: bool) {
        self.is_unasked.store(false, Ordering::SeqCst);
        self.comes_later.store(comes_later(concerns, writes), Ordering::SeqCst);
        self.limit(&mut self.locked_concerns(), concerns.cloned());
    }

    /// A further statement of a flight is about to be planned, so the plan may depend on anything. As with
    /// [`Self::begin_plan`], the caller checks for a change of placements after this.
    pub fn widen_plan(&self) {
        self.is_limited.store(false, Ordering::SeqCst);
    }

    /// The further statement has not been sent, and begins anew before it is: the plan depends on what it did
    /// before [`Self::widen_plan`].
    pub fn narrow_plan(&self) {
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
    pub fn end_plan(&self) {
        self.plan.store(NO_PLAN, Ordering::SeqCst);
        if self.has_steps.swap(false, Ordering::SeqCst) {
            *self.locked_steps() = Steps::default();
        }
    }

    /// Whether there is a plan.
    pub fn has_plan(&self) -> bool {
        self.plan.load(Ordering::SeqCst) != NO_PLAN
    }

    /// Whether the plan must not be continued.
    pub fn is_overtaken(&self) -> bool {
        matches!(self.plan.load(Ordering::SeqCst), OVERTAKEN | OVERTAKEN_UNSENT)
    }

    /// Whether the plan must not be continued, and nothing of it was sent.
    pub fn is_overtaken_unsent(&self) -> bool {
        self.plan.load(Ordering::SeqCst) == OVERTAKEN_UNSENT
    }

    /// Something of the plan is about to be sent. False: it must not be.
    pub fn may_send(&self) -> bool {
        let sent = self.plan.compare_exchange(PLANNED, SENT, Ordering::SeqCst, Ordering::SeqCst);
        !matches!(sent, Err(OVERTAKEN | OVERTAKEN_UNSENT))
    }

    /// Placements change: a session that has sent nothing of its plan will not send it.
    pub fn overtake_unsent(&self) {
        let (from, to) = (PLANNED, OVERTAKEN_UNSENT);
        // If this fails, the state needs no change.
        let _ = self.plan.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Placements change: whatever has not been sent will not be.
    pub fn overtake(&self) {
        self.overtake_unsent();
        let _ = self.plan.compare_exchange(SENT, OVERTAKEN, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Its transaction is being committed by this name: what is prepared under it holds the session's locks. Until
    /// this is told `None`.
    pub(crate) fn note_commit(&self, gid: Option<Gid>) {
        *self.committing.lock().unwrap_or_else(PoisonError::into_inner) = gid;
    }

    /// The statement that runs now is being cancelled because of this deadlock.
    pub(crate) fn mark(&self, detail: String) {
        self.put_mark(Why::Deadlock(detail));
    }

    /// The statement that runs now is being cancelled because placements change.
    pub fn mark_overtaken(&self) {
        self.put_mark(Why::Overtaken);
        self.stops.notify_waiters();
    }

    /// The same because rows that it may wait for go to other nodes.
    pub fn mark_moved(&self) {
        self.put_mark(Why::Moved);
    }

    /// Whether the statement that runs now was cancelled because placements change, which this error
    /// says. Then it may be run again: the mark is taken away.
    pub fn take_overtaken(&self, error: &ErrorFields) -> bool {
        self.take_mark(error, |why| matches!(why, Why::Overtaken | Why::Moved))
    }

    /// The same for a deadlock's victim.
    pub fn take_deadlock(&self, error: &ErrorFields) -> bool {
        self.take_mark(error, |why| matches!(why, Why::Deadlock(_)))
    }

    fn take_mark(&self, error: &ErrorFields, is_wanted: impl Fn(&Why) -> bool) -> bool {
        let mut mark = self.locked_mark();
        let is_ours = error.sqlstate() == sqlstate::QUERY_CANCELED
            && mark.as_ref().is_some_and(|mark| {
                is_wanted(&mark.why) && self.message.load(Ordering::Relaxed) <= mark.last_message
            });
        if is_ours {
            *mark = None;
        }
        is_ours
    }

    fn put_mark(&self, why: Why) {
        // A session whose client has not asked for the answer yet fetches it with its next message.
        let last_message = self.message.load(Ordering::Relaxed) | 1;
        *self.locked_mark() = Some(Mark { last_message, why });
    }

    /// It was not cancelled after all.
    pub(crate) fn unmark(&self) {
        *self.locked_mark() = None;
    }

    /// An error as the client will see it: a cancellation by the gateway is reported as a deadlock
    /// or a changed placement.
    ///
    /// To be called where a failure is reported to the client, while its message is handled.
    #[must_use]
    pub fn reword(&self, error: ErrorFields) -> ErrorFields {
        if self.is_terminated()
            && [sqlstate::QUERY_CANCELED, sqlstate::ADMIN_SHUTDOWN].contains(&error.sqlstate())
        {
            return ErrorFields::fatal(sqlstate::ADMIN_SHUTDOWN, TERMINATED_MESSAGE);
        }
        // A node has ended its connection. The session goes on, and its client must not be told to
        // leave.
        let error = error.not_fatal();
        let Some(mark) = self.locked_mark().take() else { return error };
        if error.sqlstate() != sqlstate::QUERY_CANCELED
            || mark.last_message < self.message.load(Ordering::Relaxed)
        {
            return error;
        }
        let mut fields = match mark.why {
            Why::Deadlock(detail) => {
                ErrorFields::error(sqlstate::DEADLOCK_DETECTED, "deadlock detected")
                    .with(b'D', detail)
                    .with(b'H', HINT)
            }
            Why::Overtaken => overtaken(),
            Why::Moved => ErrorFields::error(sqlstate::SERIALIZATION_FAILURE, MOVED_MESSAGE)
                .with(b'H', "The transaction might succeed if retried."),
        };
        // The statement and position still hold; the line of PostgreSQL that raised it does not.
        let context = error.fields.into_iter().filter(|(code, _)| b"WPpq".contains(code));
        fields.fields.extend(context);
        fields
    }

    fn locked_mark(&self) -> std::sync::MutexGuard<'_, Option<Mark>> {
        self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The activities of all sessions, by process id.
#[derive(Debug, Default)]
pub struct Activities(Mutex<HashMap<i32, Weak<Activity>>>);

impl Activities {
    /// For a new session with a client on this socket. It is forgotten when the session drops it.
    pub fn register(&self, process_id: i32, stream: Weak<TcpStream>) -> Arc<Activity> {
        let activity = Arc::new(Activity { stream, ..Activity::default() });
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(process_id, Arc::downgrade(&activity));
        activity
    }

    /// Makes this session end as soon as its statement does.
    pub fn terminate(&self, process_id: i32) {
        if let Some(activity) = self.of(process_id) {
            activity.terminated.store(true, Ordering::Release);
            activity.ask_to_look_up();
        }
    }

    /// Ends a session's wait in the gateway, if there is one.
    pub fn cancel(&self, process_id: i32) {
        if let Some(activity) = self.of(process_id) {
            let message = activity.message.load(Ordering::Relaxed);
            activity.cancelled_at.store(message, Ordering::SeqCst);
            activity.cancelled.notify_waiters();
        }
    }

    /// Whether this session was asked to end and is still there.
    pub fn is_ending(&self, process_id: i32) -> bool {
        self.of(process_id).is_some_and(|activity| activity.is_terminated())
    }

    /// Wakes every session that waits for its client.
    pub fn wake_all(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for activity in all.values().filter_map(Weak::upgrade) {
            activity.ask_to_look_up();
        }
    }

    /// Every session that is handling a message: which message, and the client's socket.
    pub fn busy(&self) -> Vec<(i32, u64, Arc<TcpStream>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(process_id, activity): (&i32, &Weak<Activity>)| {
            let activity = activity.upgrade()?;
            let message = activity.message.load(Ordering::Relaxed);
            (message % 2 == 1).then_some((*process_id, message, activity.stream.upgrade()?))
        };
        all.iter().filter_map(of).collect()
    }

    /// Every session but `own` that has a plan.
    pub fn with_plans(&self, own: i32) -> Vec<(i32, Arc<Activity>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(process_id, activity): (&i32, &Weak<Activity>)| {
            let activity = activity.upgrade()?;
            (*process_id != own && activity.has_plan()).then_some((*process_id, activity))
        };
        all.iter().filter_map(of).collect()
    }

    /// For each session whose transaction is on several nodes, the message it is handling.
    pub(crate) fn at_work(&self) -> BTreeMap<i32, u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = BTreeMap::new();
        all.retain(|process_id, activity| {
            let Some(activity) = activity.upgrade() else { return false };
            let message = activity.message.load(Ordering::Relaxed);
            if message % 2 == 1 && activity.spans.load(Ordering::Relaxed) {
                found.insert(*process_id, message);
            }
            true
        });
        found
    }

    /// Sessions by the names under which their transactions are being prepared.
    pub(crate) fn committing(&self) -> HashMap<String, i32> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(process_id, activity): (&i32, &Weak<Activity>)| {
            let activity = activity.upgrade()?;
            let committing = activity.committing.lock().unwrap_or_else(PoisonError::into_inner);
            Some((committing.as_ref()?.to_string(), *process_id))
        };
        all.iter().filter_map(of).collect()
    }

    /// One session's activity, if it is still there.
    pub(crate) fn of(&self, process_id: i32) -> Option<Arc<Activity>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&process_id).and_then(Weak::upgrade)
    }
}

impl SessionsAtWork for Activities {
    fn wake_all(&self) {
        self.wake_all();
    }

    fn plan_again(&self) {
        for (_, activity) in self.with_plans(0) {
            activity.overtake_unsent();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canceled() -> ErrorFields {
        ErrorFields::error(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
            .with(b'W', "while updating tuple (0,1) in relation \"t\"")
            .with(b'R', "ProcessInterrupts")
    }

    #[test]
    fn a_marked_statement_that_was_cancelled_was_in_a_deadlock() {
        let activity = Activity::default();
        activity.begin_message();
        activity.mark("Process 1 waits.".to_owned());
        let told = activity.reword(canceled());
        assert_eq!(
            (told.sqlstate(), told.message()),
            (sqlstate::DEADLOCK_DETECTED, "deadlock detected")
        );
        assert_eq!(told.get(b'D'), Some("Process 1 waits."));
        assert_eq!(told.get(b'W'), canceled().get(b'W'));
        assert_eq!((told.get(b'H'), told.get(b'R')), (Some(HINT), None));
        assert_eq!(activity.reword(canceled()), canceled(), "once");
    }

    #[test]
    fn a_stale_mark_turns_nothing() {
        let activity = Activity::default();
        activity.begin_message();
        activity.mark(String::new());
        let other = ErrorFields::error("23505", "duplicate key");
        assert_eq!(activity.reword(other.clone()), other, "it failed for another reason");
        assert_eq!(activity.reword(canceled()), canceled());

        activity.mark(String::new());
        activity.end_message();
        activity.begin_message();
        assert_eq!(activity.reword(canceled()), canceled(), "of a later message");

        activity.mark(String::new());
        activity.unmark();
        assert_eq!(activity.reword(canceled()), canceled(), "it was not cancelled by us");
    }

    #[test]
    fn only_sessions_at_work_on_several_nodes_count() {
        let all = Activities::default();
        let (one, other) = (all.register(1, Weak::new()), all.register(2, Weak::new()));
        one.begin_message();
        other.begin_message();
        one.note_nodes(1);
        other.note_nodes(2);
        assert_eq!(all.at_work(), BTreeMap::from([(2, 1)]));
        other.end_message();
        assert_eq!(all.at_work(), BTreeMap::new());
        other.begin_message();
        assert_eq!(all.at_work(), BTreeMap::from([(2, 3)]), "another message");
        drop(other);
        assert_eq!(all.at_work(), BTreeMap::new());
        assert!(all.of(1).is_some() && all.of(2).is_none());
    }
}
