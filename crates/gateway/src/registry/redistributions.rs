//! Which sessions are moving tables at the moment, for `tutti_progress()`.
//!
//! Owns: that what is listed ends with its statement, however that ends, and that a cancel request reaches it.
//! Never: says who may see it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tutti_cluster::catalog::redistribute::{Progress, Seen};

/// Those that are under way, by the process id of their session.
#[derive(Debug, Default)]
pub struct Redistributions(Mutex<BTreeMap<i32, Running>>);

#[derive(Debug)]
struct Running {
    role: String,
    begun: Instant,
    progress: Arc<Progress>,
}

/// One of them, as it is now.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The session's process id.
    pub process_id: i32,
    /// The role that its client has logged in as.
    pub role: String,
    /// When the statement began.
    pub begun: Instant,
    /// How far it is.
    pub seen: Seen,
}

/// Kept while a session moves tables; dropped with the statement, or with the session.
#[derive(Debug)]
pub struct Shown {
    all: Arc<Redistributions>,
    process_id: i32,
    progress: Arc<Progress>,
}

impl Redistributions {
    /// A session begins to move tables.
    pub fn begin(self: &Arc<Self>, process_id: i32, role: String) -> Shown {
        let progress = Arc::<Progress>::default();
        let running = Running { role, begun: Instant::now(), progress: progress.clone() };
        self.locked().insert(process_id, running);
        Shown { all: self.clone(), process_id, progress }
    }

    /// All that are under way.
    pub fn list(&self) -> Vec<Listed> {
        let locked = self.locked();
        let listed = locked.iter().map(|(process_id, running)| Listed {
            process_id: *process_id,
            role: running.role.clone(),
            begun: running.begun,
            seen: running.progress.seen(),
        });
        listed.collect()
    }

    /// What this session moves, if it does, is to end.
    pub fn cancel(&self, process_id: i32) {
        if let Some(running) = self.locked().get(&process_id) {
            running.progress.cancel();
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<i32, Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shown {
    /// What is shown.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.all.locked().remove(&self.process_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_ends_when_it_is_dropped() {
        let all = Arc::<Redistributions>::default();
        let shown = all.begin(7, "alice".to_owned());
        shown.progress().begin("public.t", 1);
        let [listed] = all.list().try_into().expect("one");
        assert_eq!((listed.process_id, listed.role.as_str()), (7, "alice"));
        assert_eq!(listed.seen.relation, "public.t");
        drop(shown);
        assert!(all.list().is_empty());
    }
}
