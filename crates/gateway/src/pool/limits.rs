//! How many transactions may be at work at once.
//!
//! Owns: the queue of those that wait, its deadline, and the error that it ends with.
//! Never: knows of connections.
//! Start reading at [`Limits::admit`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tutti_wire::error_fields::ErrorFields;

/// `[pool]` of the configuration.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolConfig {
    /// Most transactions at work at once, and so most connections to each node for clients. The
    /// gateway's own connections (about 20 per node) come on top.
    pub size: usize,
    /// Most of them by one role; 0: as many as there are.
    pub size_per_user: usize,
    /// Seconds that a transaction waits for its turn before it is refused.
    pub queue_timeout_s: u64,
    /// Seconds after which an idle connection is closed.
    pub idle_timeout_s: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { size: 50, size_per_user: 0, queue_timeout_s: 30, idle_timeout_s: 600 }
    }
}

impl PoolConfig {
    /// After which an idle connection is closed.
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_s)
    }
}

/// The right to have a connection to each node.
#[derive(Debug)]
pub struct Permit {
    _cluster: OwnedSemaphorePermit,
    _user: Option<OwnedSemaphorePermit>,
}

/// A transaction has waited in vain.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no connection to the nodes became free within {waited_s} s")]
pub struct Full {
    waited_s: u64,
    size: usize,
    of_user: bool,
    waiting: usize,
}

impl Full {
    /// As a client shall see it.
    pub fn to_fields(&self) -> ErrorFields {
        let Self { size, waiting, .. } = self;
        let (whose, name) = match self.of_user {
            true => (" of this role", "size_per_user"),
            false => ("", "size"),
        };
        ErrorFields::error("53300", self.to_string())
            .with(
                b'D',
                format!(
                    "{size} transactions{whose} are at work, as many as [pool] {name} allows; \
                     {waiting} more wait."
                ),
            )
            .with(
                b'H',
                "Retrying is safe: nothing was sent to a node. Shorten transactions, or allow more.",
            )
    }
}

/// Who is at work, and who waits.
#[derive(Debug)]
pub(super) struct Limits {
    config: PoolConfig,
    cluster: Arc<Semaphore>,
    users: Mutex<HashMap<String, Arc<Semaphore>>>,
    waiting: AtomicUsize,
}

impl Limits {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Self {
            cluster: Arc::new(Semaphore::new(config.size)),
            users: Mutex::default(),
            waiting: AtomicUsize::new(0),
            config: config.clone(),
        }
    }

    /// First come, first served. Whoever waits has no connection, so waiting blocks nobody.
    pub(super) async fn admit(&self, user: &str) -> Result<Permit, Full> {
        if let Some(permit) = self.admit_at_once() {
            return Ok(permit);
        }
        let user = (0 < self.config.size_per_user).then(|| self.of_user(user));
        let _waiting = Waiting::begin(&self.waiting);
        let give_up = Instant::now() + Duration::from_secs(self.config.queue_timeout_s);
        let of_user = match user {
            Some(semaphore) => Some(self.acquire(semaphore, give_up, true).await?),
            None => None,
        };
        let cluster = self.acquire(self.cluster.clone(), give_up, false).await?;
        Ok(Permit { _cluster: cluster, _user: of_user })
    }

    /// The same, without waiting; `None` also where roles are counted apart.
    pub(super) fn admit_at_once(&self) -> Option<Permit> {
        let cluster = (self.config.size_per_user == 0).then(|| self.cluster.clone())?;
        Some(Permit { _cluster: cluster.try_acquire_owned().ok()?, _user: None })
    }

    async fn acquire(
        &self,
        semaphore: Arc<Semaphore>,
        give_up: Instant,
        of_user: bool,
    ) -> Result<OwnedSemaphorePermit, Full> {
        let acquired = timeout_at(give_up, semaphore.acquire_owned()).await;
        acquired.map(|permit| permit.expect("never closed")).map_err(|_| Full {
            waited_s: self.config.queue_timeout_s,
            size: if of_user { self.config.size_per_user } else { self.config.size },
            of_user,
            waiting: self.waiting().saturating_sub(1),
        })
    }

    fn of_user(&self, user: &str) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = users.get(user) {
            return semaphore.clone();
        }
        let semaphore = Arc::new(Semaphore::new(self.config.size_per_user));
        users.insert(user.to_owned(), semaphore.clone());
        semaphore
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(size: usize, size_per_user: usize, queue_timeout_s: u64) -> Limits {
        Limits::new(&PoolConfig { size, size_per_user, queue_timeout_s, ..PoolConfig::default() })
    }

    #[tokio::test]
    async fn whoever_waits_in_vain_is_told_what_to_do() {
        let limits = limits(1, 0, 0);
        let first = limits.admit("a").await.expect("there is room");
        let full = limits.admit("b").await.expect_err("there is none");
        let fields = full.to_fields();
        assert_eq!(fields.sqlstate(), "53300");
        assert_eq!(
            fields.get(b'D'),
            Some("1 transactions are at work, as many as [pool] size allows; 0 more wait.")
        );
        drop(first);
        limits.admit("b").await.expect("there is room again");
        assert_eq!(limits.waiting(), 0);
    }

    #[tokio::test]
    async fn one_role_leaves_room_for_others() {
        let limits = limits(2, 1, 0);
        let _first = limits.admit("a").await.expect("there is room");
        let full = limits.admit("a").await.expect_err("not for this role");
        assert!(full.of_user);
        limits.admit("b").await.expect("for another one");
    }

    #[tokio::test]
    async fn whoever_waits_gets_what_becomes_free() {
        let limits = limits(1, 0, 60);
        let first = limits.admit("a").await.expect("there is room");
        let waiting = limits.admit("b");
        let leaving = async {
            tokio::task::yield_now().await;
            assert_eq!(limits.waiting(), 1);
            drop(first);
        };
        let (admitted, ()) = tokio::join!(waiting, leaving);
        admitted.expect("the first one has left");
    }
}
