//! What each session is doing, for deadlock detection and changes of the schema, and the mark on a
//! session whose statement was ended.
//!
//! Owns: which message a session handles, who asks it to end or to look up, and that a mark rewords only the
//! error of the statement for which it was made. Its plan is in `plan_in_sight`.
//! Never: decides who is ended. A session pays a few stores per message.
//! Start reading at [`Activity`].

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Poll;

use atomic_waker::AtomicWaker;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tutti_cluster::SessionsAtWork;
use tutti_txn::gid::Gid;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::plan_in_sight::PlanInSight;

/// What PostgreSQL says where a row has gone to another partition.
const MOVED_MESSAGE: &str =
    "tuple to be locked was already moved to another partition due to concurrent update";
/// What PostgreSQL says where a session is ended.
pub const TERMINATED_MESSAGE: &str = "terminating connection due to administrator command";
/// What the client of an earlier instance of a request is told.
pub const SUPERSEDED_MESSAGE: &str =
    "terminating connection because a later instance of its request has begun";
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
    /// What others see of its plan.
    pub plan: PlanInSight,
    mark: Mutex<Option<Mark>>,
    /// The client's socket.
    stream: Weak<TcpStream>,
    /// The session was asked to end: what its client is told last.
    terminated: OnceLock<&'static str>,
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

/// As `by_row.sql` has it.
const REWRITTEN_MESSAGE: &str = "could not read a table that was rewritten behind the snapshot";
const OVERTAKEN_MESSAGE: &str =
    "could not run the statement as planned, for something that it uses has changed meanwhile";

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

    fn terminate(&self, why: &'static str) {
        // The first reason is as good as another.
        let _ = self.terminated.set(why);
        self.ask_to_look_up();
    }

    fn cancel(&self) {
        self.cancelled_at.store(self.message.load(Ordering::Relaxed), Ordering::SeqCst);
        self.cancelled.notify_waiters();
    }

    /// Whether the session was asked to end.
    pub fn is_terminated(&self) -> bool {
        self.terminated.get().is_some()
    }

    /// What the client is told of that.
    pub fn farewell(&self) -> ErrorFields {
        let why = self.terminated.get().copied().unwrap_or(TERMINATED_MESSAGE);
        ErrorFields::fatal(sqlstate::ADMIN_SHUTDOWN, why)
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
            return self.farewell();
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

    /// Makes this session end as soon as its statement does; `why` is what its client is told.
    pub fn terminate(&self, process_id: i32, why: &'static str) {
        if let Some(activity) = self.of(process_id) {
            activity.terminate(why);
        }
    }

    /// Ends a session's wait in the gateway, if there is one.
    pub fn cancel(&self, process_id: i32) {
        if let Some(activity) = self.of(process_id) {
            activity.cancel();
        }
    }

    /// Whether this session was asked to end and is still there.
    pub fn is_ending(&self, process_id: i32) -> bool {
        self.of(process_id).is_some_and(|activity| activity.is_terminated())
    }

    /// Ends a session's connection to its client, whether that reads or not.
    pub fn cut_off(&self, process_id: i32) {
        if let Some(stream) = self.of(process_id).and_then(|activity| activity.stream.upgrade()) {
            // It may be gone already.
            let _ = socket2::SockRef::from(&*stream).shutdown(std::net::Shutdown::Both);
        }
    }

    /// Makes every session end as soon as its statement does, whose waits in the gateway end now.
    pub fn terminate_all(&self, why: &'static str) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for activity in all.values().filter_map(Weak::upgrade) {
            activity.cancel();
            activity.terminate(why);
        }
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
            (*process_id != own && activity.plan.exists()).then_some((*process_id, activity))
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
            activity.plan.overtake_unsent();
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
