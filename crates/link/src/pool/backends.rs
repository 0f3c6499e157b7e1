//! Which server processes work for which session: which one a cancel request is for.
//!
//! Owns: the registry by which cancel requests find their backends, and that a request on its way
//! never hits the next session that checks out the connection.
//! Never: sends anything.
//! Start reading at [`Workers`], then [`Target`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;
use tutti_sql::catalog::NodeId;

/// Sessions are numbered from here on: no server's process has such an id (Linux's limit is lower).
const FIRST_PROCESS_ID: i32 = 1 << 22;
/// How many such numbers there are.
const PLACES: i32 = 1 << 30;

/// A backend on a node: what a cancel request to it must carry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BackendKey {
    /// Which node.
    pub node: NodeId,
    /// Its process id.
    pub process_id: i32,
    /// Its secret.
    pub secret: i32,
}

/// One backend, for as long as its connection lives.
#[derive(Debug)]
pub struct Backend {
    key: BackendKey,
    /// The session that it works for or has worked for last; 0: none yet.
    session: AtomicI32,
    /// Something may be on its way to it, or it has not answered that.
    owes_answer: AtomicBool,
    /// Cancel requests that were decided on and not yet delivered.
    aimed: AtomicUsize,
    delivered: Notify,
}

impl Backend {
    /// Nothing is aimed at it yet.
    pub fn new(key: BackendKey) -> Arc<Self> {
        let (session, aimed) = (AtomicI32::new(0), AtomicUsize::new(0));
        let (owes_answer, delivered) = (AtomicBool::new(false), Notify::new());
        Arc::new(Self { key, session, owes_answer, aimed, delivered })
    }

    /// Whether something may be on its way to it, or being done: it was about to be sent, and its answer has not
    /// been read. What a session does not send because it was told so before this is asked does not count.
    pub fn owes_answer(&self) -> bool {
        self.owes_answer.load(Ordering::SeqCst)
    }

    /// Something is about to be sent, or everything is answered. The first is to be said before the sender looks
    /// whether it may still send. Says what was so before.
    pub(super) fn note_owed(&self, owes_answer: bool) -> bool {
        self.owes_answer.swap(owes_answer, Ordering::SeqCst)
    }

    /// Whether a cancel request is on its way to it.
    pub fn is_aimed_at(&self) -> bool {
        self.aimed.load(Ordering::Acquire) != 0
    }

    /// Waits until no cancel request is on its way to it.
    pub async fn wait_until_delivered(&self) {
        loop {
            let delivered = self.delivered.notified();
            tokio::pin!(delivered);
            // Registered before the check, so that no delivery is missed.
            delivered.as_mut().enable();
            if !self.is_aimed_at() {
                return;
            }
            delivered.await;
        }
    }
}

/// The right to send one backend a cancel request. As long as it is held, no other session checks
/// out the backend's connection.
#[derive(Debug)]
pub struct Target(Arc<Backend>);

impl Target {
    fn aim(backend: &Arc<Backend>) -> Self {
        backend.aimed.fetch_add(1, Ordering::AcqRel);
        Self(backend.clone())
    }

    /// What the request must carry.
    pub fn key(&self) -> BackendKey {
        self.0.key
    }

    /// The backend, without the right.
    pub fn backend(&self) -> Arc<Backend> {
        self.0.clone()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.0.aimed.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.delivered.notify_waiters();
        }
    }
}

/// The backends that work for one session at the moment.
#[derive(Debug)]
pub struct Workers {
    process_id: i32,
    secret: i32,
    /// The role that the session's client has logged in as.
    user: String,
    backends: Mutex<Vec<Arc<Backend>>>,
}

impl Workers {
    /// From now on this backend works for the session.
    pub fn add(&self, backend: Arc<Backend>) {
        backend.session.store(self.process_id, Ordering::Relaxed);
        self.backends().push(backend);
    }

    /// This backend no longer works for the session. A target aimed at it before still holds
    /// it; see [`Backend::wait_until_delivered`].
    pub fn remove(&self, backend: &Arc<Backend>) {
        self.backends().retain(|known| !Arc::ptr_eq(known, backend));
    }

    fn targets(&self) -> Vec<Target> {
        // Under the lock: a backend that has been removed is not aimed at.
        self.backends().iter().map(Target::aim).collect()
    }

    fn backends(&self) -> MutexGuard<'_, Vec<Arc<Backend>>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The backends of all sessions, by the process ids that clients are told.
#[derive(Debug, Default)]
pub struct Backends {
    sessions: Mutex<HashMap<i32, Arc<Workers>>>,
    /// Every backend with an open connection, by node and process id there.
    open: Mutex<HashMap<(NodeId, i32), Weak<Backend>>>,
    left: Mutex<Left>,
}

/// Backends of which connections have ended in the middle of something: a server does what it was sent, and
/// only then sees that nobody is there. Each has a number, below 0, as sessions have theirs.
#[derive(Debug, Default)]
struct Left {
    backends: BTreeMap<i32, Arc<Backend>>,
    last: i32,
}

impl Left {
    /// Of more the oldest are forgotten: when so many connections broke, their server has ended.
    const MAX: usize = 10_000;
}

impl Backends {
    /// Registers the session of this number. Returns its process id, its secret, and where its
    /// backends are noted.
    pub fn register(&self, number: u64, user: &str) -> (i32, i32, Arc<Workers>) {
        let mut sessions = self.sessions();
        let mut place = i32::try_from(number % u64::from(PLACES.unsigned_abs())).unwrap_or(0);
        while sessions.contains_key(&(FIRST_PROCESS_ID + place)) {
            place = (place + 1) % PLACES;
        }
        let process_id = FIRST_PROCESS_ID + place;
        let secret = rand::random();
        let user = user.to_owned();
        let workers = Arc::new(Workers { process_id, secret, user, backends: Mutex::default() });
        sessions.insert(process_id, workers.clone());
        (process_id, secret, workers)
    }

    /// The session ended.
    pub fn unregister(&self, process_id: i32) {
        self.sessions().remove(&process_id);
    }

    /// All backends of a session.
    pub fn of(&self, process_id: i32) -> Vec<Target> {
        let workers = self.sessions().get(&process_id).cloned();
        workers.map_or_else(Vec::new, |workers| workers.targets())
    }

    /// The connection to this backend has ended, and it had something to do.
    pub fn note_left(&self, backend: &Arc<Backend>) {
        let place = (backend.key.node, backend.key.process_id);
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let now = open.get(&place).and_then(Weak::upgrade);
        drop(open);
        if now.is_some_and(|other| !Arc::ptr_eq(&other, backend)) {
            // Its process id is another's already.
            return;
        }
        let mut left = self.all_left();
        if Left::MAX <= left.backends.len() {
            left.backends.pop_last();
        }
        left.last = left.last.checked_sub(1).unwrap_or(-1);
        let number = left.last;
        left.backends.insert(number, backend.clone());
    }

    /// The numbers of those that were left on these nodes, and may not have ended.
    pub fn left_on(&self, is_meant: impl Fn(NodeId) -> bool) -> Vec<i32> {
        let left = self.all_left();
        let there = left.backends.iter().filter(|(_, backend)| is_meant(backend.key.node));
        there.map(|(number, _)| *number).collect()
    }

    /// The one that was left and has this number.
    pub fn left(&self, number: i32) -> Option<Target> {
        self.all_left().backends.get(&number).map(Target::aim)
    }

    /// Its node says that it is gone.
    pub fn forget_left(&self, number: i32) {
        self.all_left().backends.remove(&number);
    }

    fn all_left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The role of the session of this process id, if there is one.
    pub fn user_of(&self, process_id: i32) -> Option<String> {
        self.sessions().get(&process_id).map(|workers| workers.user.clone())
    }

    /// A connection has been opened. Whoever had its process id before has ended.
    pub fn note_open(&self, backend: &Arc<Backend>) {
        let place = (backend.key.node, backend.key.process_id);
        let place_of = |other: &Backend| (other.key.node, other.key.process_id);
        self.all_left().backends.retain(|_, other| place_of(other) != place);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(place, Arc::downgrade(backend));
        // Swept rarely: few are closed between two that are opened.
        if open.len().is_multiple_of(64) {
            open.retain(|_, backend| backend.strong_count() != 0);
        }
    }

    /// The session that a node's process works for, or has worked for last.
    pub fn session_of(&self, node: NodeId, process_id: i32) -> Option<i32> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let session = open.get(&(node, process_id))?.upgrade()?.session.load(Ordering::Relaxed);
        (session != 0).then_some(session)
    }

    /// Whether a cancel request names a session, and knows its secret.
    pub fn is_session(&self, process_id: i32, secret: i32) -> bool {
        self.sessions().get(&process_id).is_some_and(|workers| workers.secret == secret)
    }

    /// Which session each backend works for, by node and process id there; sessions by the process
    /// ids that clients are told.
    pub fn sessions_by_backend(&self) -> HashMap<(NodeId, i32), i32> {
        let sessions = self.sessions();
        let mut found = HashMap::new();
        for (session, workers) in sessions.iter() {
            for backend in workers.backends().iter() {
                found.insert((backend.key.node, backend.key.process_id), *session);
            }
        }
        found
    }

    /// All sessions, with the roles that their clients have logged in as.
    pub fn users(&self) -> Vec<(i32, String)> {
        let sessions = self.sessions();
        sessions.iter().map(|(session, workers)| (*session, workers.user.clone())).collect()
    }

    /// A node's processes that are idle in the pool.
    pub fn idle_on(&self, node: NodeId) -> Vec<i32> {
        let busy = self.sessions_by_backend();
        let left: HashSet<_> = {
            let left = self.all_left();
            let there = left.backends.values().filter(|backend| backend.key.node == node);
            there.map(|backend| backend.key.process_id).collect()
        };
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let there =
            open.iter().filter(|((on, _), backend)| *on == node && backend.strong_count() != 0);
        let idle = there.map(|((_, pid), _)| *pid).filter(|pid| !busy.contains_key(&(node, *pid)));
        idle.filter(|pid| !left.contains(pid)).collect()
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<i32, Arc<Workers>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(process_id: i32) -> Arc<Backend> {
        Backend::new(BackendKey { node: NodeId(1), process_id, secret: 7 })
    }

    #[test]
    fn a_request_needs_the_right_secret() {
        let all = Backends::default();
        let (process_id, secret, workers) = all.register(1, "a");
        workers.add(backend(4711));
        assert!(all.is_session(process_id, secret));
        assert!(!all.is_session(process_id, secret.wrapping_add(1)));
        assert!(!all.is_session(process_id + 1, secret));
    }

    #[test]
    fn a_backend_that_was_given_back_is_not_aimed_at() {
        let all = Backends::default();
        let (process_id, _, workers) = all.register(1, "a");
        let (one, other) = (backend(1), backend(2));
        workers.add(one.clone());
        workers.add(other.clone());
        workers.remove(&one);
        let targets = all.of(process_id);
        assert_eq!(targets.iter().map(|it| it.key().process_id).collect::<Vec<_>>(), [2]);
        assert!(!one.is_aimed_at() && other.is_aimed_at());
        drop(targets);
        assert!(!other.is_aimed_at());
    }

    #[tokio::test]
    async fn a_connection_waits_for_the_requests_on_their_way() {
        let backend = backend(1);
        let target = Target::aim(&backend);
        let waiting = backend.wait_until_delivered();
        let delivering = async {
            tokio::task::yield_now().await;
            drop(target);
        };
        tokio::join!(waiting, delivering);
        assert!(!backend.is_aimed_at());
    }

    #[test]
    fn a_backend_is_remembered_by_the_session_it_worked_for_last() {
        let all = Backends::default();
        let (process_id, _, workers) = all.register(1, "a");
        let backend = backend(4711);
        all.note_open(&backend);
        assert_eq!(all.session_of(NodeId(1), 4711), None);
        workers.add(backend.clone());
        workers.remove(&backend);
        assert_eq!(all.session_of(NodeId(1), 4711), Some(process_id));
        drop(backend);
        assert_eq!(all.session_of(NodeId(1), 4711), None);
    }

    #[test]
    fn what_was_left_is_known_until_it_is_gone() {
        let all = Backends::default();
        let (one, other) = (backend(1), backend(2));
        all.note_left(&one);
        all.note_left(&other);
        let left = all.left_on(|node| node == NodeId(1));
        let pids = |left: &[i32]| -> Vec<_> {
            left.iter().filter_map(|it| all.left(*it)).map(|it| it.key().process_id).collect()
        };
        assert_eq!(pids(&left), [2, 1]);
        assert!(all.left_on(|node| node == NodeId(2)).is_empty());
        all.forget_left(left[0]);
        assert_eq!(pids(&all.left_on(|_| true)), [1]);
        all.note_open(&backend(1));
        assert!(all.left_on(|_| true).is_empty(), "its process id is another's now");
    }

    #[test]
    fn process_ids_in_use_are_passed_over() {
        let all = Backends::default();
        let (first, ..) = all.register(1, "a");
        let (second, ..) = all.register(1 + (1 << 30), "a");
        assert_ne!(first, second);
    }
}
