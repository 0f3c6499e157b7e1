//! How many transactions may run at a time.
//!
//! Owns: the queue of waiting transactions, its deadline, and the error at its end; what is kept for
//! superusers, for logins, and for roles other than the one that asks.
//! Never: knows about connections.
//! Start reading at [`Admission::admit`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tutti_configuration::PoolConfig;
use tutti_wire::error_fields::ErrorFields;

/// The right to have a connection to each node.
#[derive(Debug)]
pub struct Permit {
    _cluster: OwnedSemaphorePermit,
    _role: Option<OwnedSemaphorePermit>,
}

/// What a role may have at a time; its sessions share it.
#[derive(Clone, Debug)]
pub struct Share {
    /// `None`: a superuser's.
    role: Option<Arc<Semaphore>>,
}

impl Share {
    /// Whether it is a superuser's.
    pub fn is_superuser(&self) -> bool {
        self.role.is_none()
    }
}

/// What may be asked later for one more permit of a role's.
#[derive(Clone, Debug)]
pub struct Room {
    admission: Arc<Admission>,
    share: Share,
}

impl Room {
    pub(super) fn new(admission: &Arc<Admission>, share: &Share) -> Self {
        Self { admission: admission.clone(), share: share.clone() }
    }

    /// A permit for rows that wait for their client, if more than half of the places are free: who leaves rows waiting
    /// stops no one.
    pub fn admit_to_wait(&self) -> Option<Permit> {
        match self.is_half_free() {
            true => self.admission.admit_at_once(&self.share),
            false => None,
        }
    }

    /// Whether more than half of the places are free, of the role's and of all.
    pub fn is_half_free(&self) -> bool {
        let Admission { config, cluster, .. } = &*self.admission;
        let of_role = self.share.role.as_ref();
        of_role.is_none_or(|role| config.most_of_a_role() < 2 * role.available_permits())
            && config.size < 2 * cluster.available_permits()
    }
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
    /// As the client sees it.
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

/// How many logins and the like may check out a connection while all permits are taken.
const SHORT: usize = 4;

/// How many are running, and how many wait.
#[derive(Debug)]
pub(super) struct Admission {
    config: PoolConfig,
    cluster: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    short: Arc<Semaphore>,
    roles: Mutex<HashMap<u32, Arc<Semaphore>>>,
    waiting: AtomicUsize,
}

impl Admission {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Self {
            cluster: Arc::new(Semaphore::new(config.size)),
            reserved: Arc::new(Semaphore::new(config.reserved())),
            short: Arc::new(Semaphore::new(SHORT)),
            roles: Mutex::default(),
            waiting: AtomicUsize::new(0),
            config: config.clone(),
        }
    }

    /// What sessions of the role of this number share.
    pub(super) fn share(&self, role: u32, is_superuser: bool) -> Share {
        if is_superuser {
            return Share { role: None };
        }
        let mut roles = self.roles.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing runs for a role that no session is logged in as.
        roles.retain(|_, semaphore| 1 < Arc::strong_count(semaphore));
        let new = || Arc::new(Semaphore::new(self.config.most_of_a_role()));
        Share { role: Some(roles.entry(role).or_insert_with(new).clone()) }
    }

    /// First come, first served. A waiting transaction has no connection, so waiting blocks no one.
    pub(super) async fn admit(&self, share: &Share) -> Result<Permit, Full> {
        if let Some(permit) = self.admit_at_once(share) {
            return Ok(permit);
        }
        let _waiting = Waiting::begin(&self.waiting);
        let give_up = Instant::now() + Duration::from_secs(self.config.queue_timeout_s);
        let (of_role, rest) = match &share.role {
            Some(role) => (Some(self.acquire(role, give_up, true).await?), None),
            None => (None, Some(&self.reserved)),
        };
        let cluster = match rest {
            None => self.acquire(&self.cluster, give_up, false).await?,
            Some(reserved) => tokio::select! {
                biased;
                cluster = self.acquire(&self.cluster, give_up, false) => cluster?,
                reserved = self.acquire(reserved, give_up, false) => reserved?,
            },
        };
        Ok(Permit { _cluster: cluster, _role: of_role })
    }

    /// The same, without waiting.
    pub(super) fn admit_at_once(&self, share: &Share) -> Option<Permit> {
        let of_role = match &share.role {
            Some(role) => Some(role.clone().try_acquire_owned().ok()?),
            None => None,
        };
        let cluster = self.cluster.clone().try_acquire_owned();
        let cluster = match (cluster, &share.role) {
            (Ok(cluster), _) => cluster,
            (Err(_), None) => self.reserved.clone().try_acquire_owned().ok()?,
            (Err(_), Some(_)) => return None,
        };
        Some(Permit { _cluster: cluster, _role: of_role })
    }

    /// For what is short, and waits for others of its kind at most: a login, for other sessions' transactions may stay
    /// open indefinitely; COMMIT PREPARED, for they may wait for it.
    pub(super) async fn admit_short(&self, share: &Share) -> Result<Permit, Full> {
        if let Some(permit) = self.admit_at_once(share) {
            return Ok(permit);
        }
        let give_up = Instant::now() + Duration::from_secs(self.config.queue_timeout_s);
        let cluster = self.acquire(&self.short, give_up, false).await?;
        Ok(Permit { _cluster: cluster, _role: None })
    }

    async fn acquire(
        &self,
        semaphore: &Arc<Semaphore>,
        give_up: Instant,
        of_user: bool,
    ) -> Result<OwnedSemaphorePermit, Full> {
        let acquired = timeout_at(give_up, semaphore.clone().acquire_owned()).await;
        acquired.map(|permit| permit.expect("never closed")).map_err(|_| Full {
            waited_s: self.config.queue_timeout_s,
            size: if of_user { self.config.most_of_a_role() } else { self.config.size },
            of_user,
            waiting: self.waiting().saturating_sub(1),
        })
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

    const ANN: u32 = 1;
    const BOB: u32 = 2;
    const ROOT: u32 = 10;

    fn admission(size: usize, size_per_user: usize, queue_timeout_s: u64) -> Admission {
        Admission::new(&PoolConfig {
            size,
            size_per_user,
            queue_timeout_s,
            ..PoolConfig::default()
        })
    }

    #[tokio::test]
    async fn whoever_waits_in_vain_is_told_what_to_do() {
        let admission = admission(1, 0, 0);
        let (ann, bob) = (admission.share(ANN, false), admission.share(BOB, false));
        let first = admission.admit(&ann).await.expect("there is room");
        let full = admission.admit(&bob).await.expect_err("there is none");
        let fields = full.to_fields();
        assert_eq!(fields.sqlstate(), "53300");
        assert_eq!(
            fields.get(b'D'),
            Some("1 transactions are at work, as many as [pool] size allows; 0 more wait.")
        );
        drop(first);
        admission.admit(&bob).await.expect("there is room again");
        assert_eq!(admission.waiting(), 0);
    }

    #[tokio::test]
    async fn one_role_leaves_room_for_others() {
        let admission = admission(2, 1, 0);
        let ann = admission.share(ANN, false);
        let _first = admission.admit(&ann).await.expect("there is room");
        let full =
            admission.admit(&admission.share(ANN, false)).await.expect_err("not for this role");
        assert!(full.of_user);
        admission.admit(&admission.share(BOB, false)).await.expect("for another one");
    }

    #[tokio::test]
    async fn nothing_said_one_role_cannot_take_all_and_superusers_get_in_all_the_same() {
        let admission = admission(10, 0, 0);
        let (ann, bob) = (admission.share(ANN, false), admission.share(BOB, false));
        let mut taken = Vec::new();
        while let Some(permit) = admission.admit_at_once(&ann) {
            taken.push(permit);
        }
        assert_eq!(taken.len(), 8);
        while let Some(permit) = admission.admit_at_once(&bob) {
            taken.push(permit);
        }
        assert_eq!(taken.len(), 10);
        let root = admission.share(ROOT, true);
        taken.push(admission.admit(&root).await.expect("one is reserved"));
        taken.push(admission.admit(&root).await.expect("and another"));
        admission.admit(&root).await.expect_err("no more than a quarter");
        admission.admit_short(&bob).await.expect("a login waits for no transaction");
    }

    #[tokio::test]
    async fn a_share_lives_as_long_as_somebody_has_it() {
        let admission = admission(2, 1, 0);
        let ann = admission.share(ANN, false);
        let permit = admission.admit(&ann).await.expect("there is room");
        drop(ann);
        let again = admission.share(ANN, false);
        drop(permit);
        admission.admit(&again).await.expect("it has left");
    }

    #[tokio::test]
    async fn whoever_waits_gets_what_becomes_free() {
        for (role, is_superuser) in [(BOB, false), (ROOT, true)] {
            let admission = admission(1, 0, 60);
            let (ann, other) = (admission.share(ANN, false), admission.share(role, is_superuser));
            let first = admission.admit(&ann).await.expect("there is room");
            let waiting = admission.admit(&other);
            let leaving = async {
                tokio::task::yield_now().await;
                assert_eq!(admission.waiting(), 1);
                drop(first);
            };
            let (admitted, ()) = tokio::join!(waiting, leaving);
            admitted.expect("the first one has left");
        }
    }
}
