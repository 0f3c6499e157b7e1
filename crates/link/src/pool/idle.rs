//! The idle connections to one node.
//!
//! Owns: which of them a request gets, and the count of all connections to the node.
//! Never: opens or cleans one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::Residue;

use super::link::Link;
use super::request::CheckoutRequest;
use super::slot::Slot;

type Idle = HashMap<u32, Vec<Kept>>;

/// An idle connection. Its last session is here too, so that the search for a session's own touches
/// no connection.
#[derive(Debug)]
struct Kept {
    owner: u64,
    link: Box<Link>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct IdleList {
    node: NodeId,
    /// By role, as node 1 numbers them; last used last.
    idle: Mutex<Idle>,
    open: Arc<AtomicUsize>,
    tick: AtomicU64,
}

impl IdleList {
    pub(super) fn new(node: NodeId) -> Self {
        Self { node, idle: Mutex::default(), open: Arc::default(), tick: AtomicU64::new(0) }
    }

    pub(super) fn node(&self) -> NodeId {
        self.node
    }

    /// An idle connection of the requesting role: its own last one, else one with its settings, else
    /// the one used last. One that still answers `currval` for another session, or is known
    /// as the sender of another's notifications, or cannot be cleaned, is taken only if `size` leaves no room for a new one.
    pub(super) fn take(&self, request: &CheckoutRequest<'_>, size: usize) -> Option<Box<Link>> {
        let has_room = self.open.load(Ordering::Relaxed) < size;
        let mut idle = self.idle();
        let links = idle.get_mut(&request.role)?;
        let (mut alike, mut any) = (None, None);
        for (index, Kept { owner, link }) in links.iter().enumerate().rev() {
            if *owner == request.session {
                return Some(links.remove(index).link);
            }
            if has_room && (link.is_kept_for_somebody() || !request.may_have(link)) {
                continue;
            }
            any = any.or(Some(index));
            if alike.is_none() && link.state.is_like(request.state) {
                alike = Some(index);
            }
        }
        Some(links.remove(alike.or(any)?).link)
    }

    /// What [`Self::take`] would return, if nothing has to be sent over it before the request's own
    /// statements.
    pub(super) fn take_ready(&self, request: &CheckoutRequest<'_>) -> Option<Box<Link>> {
        let mut idle = self.idle();
        let links = idle.get_mut(&request.role)?;
        let own = links.iter().rposition(|kept| kept.owner == request.session);
        let is_like = |link: &Link| link.state.is_like(request.state);
        let ready = match own {
            Some(index) => Some(index).filter(|index| is_like(&links[*index].link)),
            None => links.iter().rposition(|Kept { link, .. }| {
                is_like(link)
                    && request.may_have(link)
                    && link.residue == Residue::default()
                    && link.sql_statements.is_empty()
            }),
        };
        Some(links.remove(ready?).link)
    }

    pub(super) fn put(&self, role: u32, mut link: Box<Link>) {
        link.idle_since_tick = self.tick.load(Ordering::Relaxed);
        let kept = Kept { owner: link.owner, link };
        let mut idle = self.idle();
        idle.entry(role).or_default().push(kept);
    }

    /// Counts one more connection. Where `size` are open already, an idle one of another role is
    /// closed for it; there is one, because at most `size` are checked out.
    pub(super) fn slot(&self, size: usize) -> Slot {
        if size <= self.open.fetch_add(1, Ordering::Relaxed) {
            let mut idle = self.idle();
            let longest = idle
                .iter()
                .filter_map(|(role, links)| Some((links.first()?.link.idle_since_tick, *role)))
                .min();
            if let Some((_, role)) = longest
                && let Some(links) = idle.get_mut(&role)
            {
                links.remove(0);
            }
        }
        Slot::of(self.open.clone())
    }

    /// Closes what has not been used for so many ticks, and what its server has closed. One on which
    /// unseen code may have left something is kept for its session as long as that lives.
    pub(super) fn close_idle(&self, idle_ticks: u64) {
        let now = self.tick.fetch_add(1, Ordering::Relaxed) + 1;
        let mut closed = Vec::new();
        let mut idle = self.idle();
        for links in idle.values_mut() {
            closed.extend(links.extract_if(.., |Kept { link, .. }| {
                let may_be_missed = link.residue.anything && link.has_living_owner();
                idle_ticks <= now - link.idle_since_tick && !may_be_missed
                    || !link.connection().is_quiet()
            }));
        }
        idle.retain(|_, links| !links.is_empty());
        drop(idle);
        // Terminate is sent without the lock.
        drop(closed);
    }

    /// Closes what no session may come back for.
    pub(super) fn close_nobodys(&self) {
        let mut closed = Vec::new();
        let mut idle = self.idle();
        for links in idle.values_mut() {
            closed.extend(links.extract_if(.., |Kept { link, .. }| !link.has_living_owner()));
        }
        idle.retain(|_, links| !links.is_empty());
        drop(idle);
        drop(closed);
    }

    /// How many there are.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// How many are checked out, and how many idle.
    pub(super) fn census(&self) -> (usize, usize) {
        let idle = self.idle().values().map(Vec::len).sum();
        (self.open.load(Ordering::Relaxed).saturating_sub(idle), idle)
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
