//! The connections to nodes that clients' transactions run on: opened when needed, checked out for
//! one transaction, kept for the next.
//!
//! Owns: how many there are, which session gets which, which must wait, and when an idle one is
//! closed.
//! Never: runs a client's statement, or decides what binds a session to its connection.
//! Start reading at [`Pool::admit`], then [`Pool::checkout`].
//!
//! **Why there is no deadlock here.** A transaction is admitted before it gets its first connection,
//! and has at most one connection to each node. So if at most `size` transactions are admitted,
//! `size` connections per node are enough for all of them: a transaction that has a connection never
//! waits for another one. (Superusers and logins come on top of `size`; they open connections of
//! their own.)

pub mod admission;
pub mod backends;
mod entrance;
mod idle;
pub mod link;
pub mod links;
mod request;
mod slot;
mod state;
mod statements;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tutti_configuration::PoolConfig;
use tutti_sql::catalog::{NodeId, quote_identifier};
use tutti_sql::plan::Residue;
use tutti_wire::sqlstate;

use crate::availability::{Availability, OPEN_PATIENCE};
use crate::connection::{Endpoints, NodeConnection, NodeError, SETTINGS_OF_READING};
use admission::Admission;
use backends::{Backend, BackendKey};
use idle::IdleList;
use link::{Link, Surroundings};

pub use admission::{Full, Permit, Room, Share};
pub use request::CheckoutRequest;
pub use slot::Slot;
pub use state::SessionState;
pub use statements::{
    Known, Lookup, SchemaVersion, SharedStatements, StatementKey, name_of, put_name_of,
};

/// How often idle connections are checked.
const TICK: Duration = Duration::from_secs(5);

/// Brings a connection to the state of a session that has set nothing.
pub const RESET: &str = "SET SESSION AUTHORIZATION DEFAULT; RESET ALL";
/// Precedes it where unseen code may have left anything. Code may also have replaced a prepared statement by one of
/// its own, which would run as the next session's role.
const RESET_ANYTHING: &str = "SET SESSION AUTHORIZATION DEFAULT; CLOSE ALL; UNLISTEN *; \
     SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DEALLOCATE ALL";
/// No session's `random()` may follow another's `setseed()`. No operators: the search path is the
/// session's.
const RESET_SEQUENCES: &str = "DISCARD SEQUENCES; SELECT pg_catalog.setseed(pg_catalog.float8div(\
     pg_catalog.float8(pg_catalog.uuid_hash(pg_catalog.gen_random_uuid())), 2147483649))";

/// What `ALTER ROLE … SET` and `ALTER DATABASE … SET` give a new session, by name.
pub type RoleSettings = BTreeMap<String, String>;

/// See the module's documentation.
#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    endpoints: Endpoints,
    nodes: Arc<Availability>,
    /// By which nodes know this gateway's backends.
    incarnation: u64,
    surroundings: Arc<Surroundings>,
    admission: Arc<Admission>,
    idle_lists: Vec<Arc<IdleList>>,
    /// How often what servers give new connections has changed.
    renewals: AtomicU64,
    /// What sessions of a role (by its number) began with last.
    begun_with: Mutex<HashMap<u32, RoleSettings>>,
}

impl Pool {
    /// Empty.
    pub fn new(
        config: PoolConfig,
        endpoints: Endpoints,
        nodes: Arc<Availability>,
        incarnation: u64,
        surroundings: Arc<Surroundings>,
    ) -> Self {
        let idle_lists = endpoints.iter().map(|it| Arc::new(IdleList::new(it.node())));
        Self {
            admission: Arc::new(Admission::new(&config)),
            idle_lists: idle_lists.collect(),
            endpoints,
            nodes,
            incarnation,
            surroundings,
            config,
            renewals: AtomicU64::new(0),
            begun_with: Mutex::default(),
        }
    }

    /// Waits until one more transaction of this role may have connections.
    ///
    /// Errors: [`Full`] when the configured time in the queue is over.
    pub async fn admit(&self, share: &Share) -> Result<Permit, Full> {
        self.admission.admit(share).await
    }

    /// The same for the duration of a login, which waits for no transaction.
    ///
    /// Errors: as [`Self::admit`].
    pub async fn admit_short(&self, share: &Share) -> Result<Permit, Full> {
        self.admission.admit_short(share).await
    }

    /// What sessions of the role of this number share.
    pub fn share(&self, role: u32, is_superuser: bool) -> Share {
        self.admission.share(role, is_superuser)
    }

    /// As [`Self::admit`], if there is room now and no one waits.
    pub fn admit_at_once(&self, share: &Share) -> Option<Permit> {
        self.admission.admit_at_once(share)
    }

    /// By which whoever may need a further connection later is admitted then.
    pub fn room(&self, share: &Share) -> Room {
        Room::new(&self.admission, share)
    }

    /// What [`Self::checkout`] returns, if that is an idle connection that is ready for the session as it
    /// is.
    pub fn try_checkout(&self, node: NodeId, request: &CheckoutRequest<'_>) -> Option<Box<Link>> {
        let mut link = self.idle_list(node).take_ready(request)?;
        // One that is not used is closed, as in [`Self::checkout`].
        if link.generation != self.nodes.generation(node)
            || !self.is_new_enough(&link, request)
            || !link.connection().is_quiet()
        {
            return None;
        }
        link.owner = request.session;
        Some(link)
    }

    /// A connection to `node` for an admitted transaction: the one that the session had last if it is
    /// free, else the one that needs least to become the session's, else a new one. It has the
    /// session's settings.
    ///
    /// Errors: as [`NodeConnection::open`]; [`NodeError::Closed`]; [`NodeError::Refused`] where one of
    /// the session's settings is no longer accepted.
    pub async fn checkout(
        &self,
        node: NodeId,
        request: &CheckoutRequest<'_>,
    ) -> Result<Box<Link>, NodeError> {
        let idle_list = self.idle_list(node);
        let generation = self.nodes.generation(node);
        let renewal = self.renewal();
        while let Some(mut link) = idle_list.take(request, self.config.size) {
            // Its server may have restarted since, or have closed it. One that is not used is
            // closed.
            if request.may_have(&link)
                && link.generation == generation
                && self.is_new_enough(&link, request)
                && link.connection().is_quiet()
            {
                self.hand_over(&mut link, request).await?;
                return Ok(link);
            }
        }
        let slot = idle_list.slot(self.config.size);
        let CheckoutRequest { user, credentials, .. } = request;
        let endpoint = self.endpoints.of(node);
        let mut connection =
            NodeConnection::open(endpoint, user, credentials, &SETTINGS_OF_READING).await?;
        // Before it is recognised: what is learned meanwhile makes the connection an old one.
        self.nodes.recognise(&mut connection, OPEN_PATIENCE).await?;
        let Surroundings { seals, backends, .. } = &*self.surroundings;
        entrance::enter(&mut connection, self.incarnation, seals).await?;
        let (process_id, secret) = connection.backend_key();
        let backend = Backend::new(BackendKey { node, process_id, secret });
        backends.note_open(&backend);
        let mut link = Link::new(self.surroundings.clone(), connection, backend, slot);
        link.generation = generation;
        link.renewal = renewal;
        self.hand_over(&mut link, request).await?;
        Ok(link)
    }

    /// Makes the connection the requesting session's.
    async fn hand_over(
        &self,
        link: &mut Link,
        request: &CheckoutRequest<'_>,
    ) -> Result<(), NodeError> {
        // What the session itself left there may stay.
        let is_own = link.owner == request.session;
        let left = if is_own { Residue::default() } else { std::mem::take(&mut link.residue) };
        let Residue { anything, settings, sequences, .. } = left;
        let anything = anything || !settings.is_empty();
        let mut forgotten = Vec::new();
        if !is_own {
            let statements = std::mem::take(&mut link.sql_statements);
            match anything {
                true => link.forget_prepared(),
                false => {
                    let deallocate =
                        |(name, _): &(String, _)| format!("DEALLOCATE {}", quote_identifier(name));
                    forgotten.extend(statements.iter().map(deallocate));
                }
            }
        }
        let clean_sequences = if anything || sequences { RESET_SEQUENCES } else { "" };
        if !anything && link.state.is_like(request.state) {
            forgotten.extend((!clean_sequences.is_empty()).then(|| clean_sequences.to_owned()));
            // Awaited: a cancel request that ends this must not let the statement run, and commit.
            for sql in &forgotten {
                match link.ask_unhurried(sql, false).await {
                    // Where the first run was cancelled when it was done.
                    Err(NodeError::Refused(error))
                        if error.sqlstate() == sqlstate::INVALID_SQL_STATEMENT_NAME => {}
                    asked => drop(asked?),
                }
            }
        } else {
            let clean = if anything { RESET_ANYTHING } else { "" };
            let steps = match link.is_new() {
                true => ["", "", "", request.state.sql()],
                false => [clean, clean_sequences, RESET, request.state.sql()],
            };
            let steps = steps.into_iter().filter(|sql| !sql.is_empty()).map(str::to_owned);
            let steps: Vec<_> = forgotten.into_iter().chain(steps).collect();
            // Awaited: a statement must not run where a setting was refused.
            if !steps.is_empty() {
                link.query(&steps.join("; ")).await?;
                link.connection().refuse_misreading()?;
            }
            link.state = request.state.clone();
            // They belong to these steps.
            let _ = link.connection().take_reports();
        }
        link.owner = request.session;
        Ok(())
    }

    /// Whether what servers give new connections has not changed since it was opened. To its last
    /// session it is always good, like a session's own process on one server: it still answers
    /// `currval`.
    fn is_new_enough(&self, link: &Link, request: &CheckoutRequest<'_>) -> bool {
        link.renewal == self.renewal() || link.owner == request.session
    }

    /// Takes a connection back. Requires: it is quiet, in no transaction, and nothing binds it to its
    /// session.
    pub fn release(&self, role: u32, link: Box<Link>) {
        if !link.is_broken() && link.generation == self.nodes.generation(link.node()) {
            self.idle_list(link.node()).put(role, link);
        }
    }

    /// What the servers give new connections has changed: open ones are no longer given to other
    /// sessions.
    pub fn renew(&self) {
        self.renewals.fetch_add(1, Ordering::AcqRel);
        for idle_list in &self.idle_lists {
            idle_list.close_nobodys();
        }
    }

    /// A session of this role begins, with these settings. If they differ from those of the last one,
    /// however they were changed, open connections are not used for it.
    pub fn note_login(&self, role: u32, settings: &RoleSettings) {
        let mut begun_with = self.begun_with.lock().unwrap_or_else(PoisonError::into_inner);
        let known = begun_with.get(&role);
        if known == Some(settings) {
            return;
        }
        let has_changed = known.is_some();
        begun_with.insert(role, settings.clone());
        drop(begun_with);
        if has_changed {
            self.renew();
        }
    }

    /// How often that has happened.
    pub fn renewal(&self) -> u64 {
        self.renewals.load(Ordering::Acquire)
    }

    /// Closes what has been idle for long. Runs as long as the gateway.
    pub async fn tend(&self) {
        let idle_ticks = self.config.idle_timeout().as_secs().div_ceil(TICK.as_secs()).max(1);
        loop {
            tokio::time::sleep(TICK).await;
            for idle_list in &self.idle_lists {
                idle_list.close_idle(idle_ticks);
            }
        }
    }

    /// Whether most of the connections that a node may have are not open: for a while no session
    /// will get one that another wants back.
    pub fn has_room(&self, node: NodeId) -> bool {
        2 * self.idle_list(node).open() < self.config.size
    }

    /// Checked-out and idle connections to each node, and how many transactions wait, in words.
    pub fn census(&self) -> String {
        let of_node = |idle_list: &Arc<IdleList>| {
            let (lent, idle) = idle_list.census();
            format!("node {}: {lent} lent, {idle} idle; ", idle_list.node())
        };
        let nodes: String = self.idle_lists.iter().map(of_node).collect();
        format!("{nodes}{} transactions waiting", self.admission.waiting())
    }

    fn idle_list(&self, node: NodeId) -> &Arc<IdleList> {
        &self.idle_lists[usize::from(node.0) - 1]
    }
}
