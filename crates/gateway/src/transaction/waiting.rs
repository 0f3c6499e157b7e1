//! Waiting in the gateway as a statement waits on a node for a lock.
//!
//! Owns: the wait for the end of a hold (a change of the schema that is being committed), that a plan is in sight before
//! one looks for a hold, and which of the client's cancel requests and timeouts end a wait.
//! Never: knows what is waited for otherwise.
//! Start reading at [`TransactionContext::begin_in_sight`] and [`TransactionContext::while_wanted`].

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::Access;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use crate::client::failure::Failure;
use crate::registry::plan_in_sight::PlanInSight;
use crate::transaction::TransactionContext;

/// How long a statement waits while a schema change is committed and read.
pub(crate) const HOLD_PATIENCE: Duration = Duration::from_secs(15);
/// Holds that end within this are waited for without regard to the client's own timeouts.
pub(crate) const GLANCE: Duration = Duration::from_millis(100);

/// How to wait until plans may be made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Waits {
    /// No longer than the client's timeouts allow; node 1 is asked for them.
    AsOnANode,
    /// Until it is over: a question would cost an unnamed portal on node 1, or end what is open there.
    AskingNobody,
}

/// The client's `statement_timeout` and `lock_timeout`; `None`: it has none, or it is not known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timeouts {
    pub(super) statement: Option<Duration>,
    pub(super) lock: Option<Duration>,
}

impl TransactionContext {
    /// Before a commit, or a portal that goes on, which a change of the schema must see, or which waits for it.
    ///
    /// Errors: as [`Self::wait_for_end_of_hold`].
    pub(crate) async fn begin_in_sight(&mut self, waits: Waits) -> Result<(), Failure> {
        let give_up = Instant::now() + HOLD_PATIENCE;
        loop {
            if self.registry.cluster.publisher.is_held() {
                match waits {
                    Waits::AsOnANode => self.wait_for_end_of_hold(give_up).await?,
                    Waits::AskingNobody => {
                        self.wait_for_end_of_hold_for(give_up, None, None).await?
                    }
                }
            }
            if self.comes_into_sight(PlanInSight::begin_to_send) {
                return Ok(());
            }
        }
    }

    /// Has changes see, as `begin` says, that the session has a plan, and then looks whether one is held that may have
    /// looked before that. False: it is, and the plan is out of sight again.
    ///
    /// In this order, so that of a statement and a change at least one sees the other
    /// ([`Publisher`](tutti_cluster::catalog::publisher)).
    pub(crate) fn comes_into_sight(&self, begin: impl FnOnce(&PlanInSight)) -> bool {
        begin(&self.activity.plan);
        let is_free = !self.registry.cluster.publisher.is_held();
        if !is_free {
            self.activity.plan.end();
        }
        is_free
    }

    /// Waits for the end of a hold as a statement waits on its node for a lock: until it is cancelled,
    /// until the client is gone, or until the client's own timeouts have passed.
    ///
    /// Errors: 57014, 55P03; 57P03 after `give_up`.
    pub(crate) async fn wait_for_end_of_hold(&mut self, give_up: Instant) -> Result<(), Failure> {
        let (registry, activity) = (self.registry.clone(), self.activity.clone());
        let soon = Instant::now() + GLANCE;
        tokio::select! {
            is_over = registry.cluster.publisher.wait_for_end_of_hold(soon) => if is_over { return Ok(()) },
            () = activity.cancelled() => return Err(canceled(sqlstate::QUERY_CANCELED, "user request")),
        }
        let Timeouts { statement, lock } = self.timeouts().await?;
        let less = |timeout: Option<Duration>| timeout.map(|it| it.saturating_sub(GLANCE));
        self.wait_for_end_of_hold_for(give_up, less(statement), less(lock)).await
    }

    async fn wait_for_end_of_hold_for(
        &mut self,
        give_up: Instant,
        statement: Option<Duration>,
        lock: Option<Duration>,
    ) -> Result<(), Failure> {
        let (registry, activity) = (self.registry.clone(), self.activity.clone());
        let begun = Instant::now();
        let cancelled = activity.cancelled();
        tokio::pin!(cancelled);
        let of_statement = statement
            .map(|timeout| (begun + timeout, sqlstate::QUERY_CANCELED, "statement timeout"));
        let of_lock =
            lock.map(|timeout| (begun + timeout, sqlstate::LOCK_NOT_AVAILABLE, "lock timeout"));
        let first = [of_statement, of_lock].into_iter().flatten().min();
        let until = first.map_or(give_up, |(until, ..)| until.min(give_up));
        tokio::select! {
            is_over = registry.cluster.publisher.wait_for_end_of_hold(until) => match (is_over, first) {
                (true, _) => Ok(()),
                (false, Some((until, sqlstate, why))) if until < give_up => {
                    Err(canceled(sqlstate, why))
                }
                (false, _) => Err(ErrorFields::error(
                    "57P03",
                    "a change of the schema is being committed, or the catalog is being read",
                )
                .with(b'H', "Nothing was done; retrying is safe.")
                .into()),
            },
            () = &mut cancelled => Err(canceled(sqlstate::QUERY_CANCELED, "user request")),
        }
    }

    /// The client's timeouts, if node 1 can be asked now.
    ///
    /// Errors: the transaction has failed there.
    async fn timeouts(&mut self) -> Result<Timeouts, Failure> {
        if !self.flight.is_empty() || self.transaction.failed {
            return Ok(Timeouts::default());
        }
        // SHOW needs no snapshot, and so gives the transaction none.
        let takes_snapshot = std::mem::replace(&mut self.takes_snapshot, false);
        let joined = self.enlist(NodeId::HOME, Access::Read).await.map(drop);
        self.takes_snapshot = takes_snapshot;
        match joined {
            Ok(()) => self.timeouts_on(NodeId::HOME).await,
            // Whoever sends something next is told of the change.
            Err(_) if self.activity.plan.is_overtaken() => Ok(Timeouts::default()),
            Err(failure) => self.failed_to_ask(NodeId::HOME, failure),
        }
    }

    /// The client's timeouts as the session's connection to `node` has them. Requires: it has one, which owes nothing.
    ///
    /// Errors: the transaction has failed there.
    pub(super) async fn timeouts_on(&mut self, node: NodeId) -> Result<Timeouts, Failure> {
        let shown = self.links.at(&node).query("SHOW statement_timeout; SHOW lock_timeout").await;
        let shown = match shown {
            Ok(shown) => shown,
            Err(error) => return self.failed_to_ask(node, error.into()),
        };
        let at = |index: usize| shown.get(index)?.text(0, 0).and_then(read_duration);
        Ok(Timeouts { statement: at(0), lock: at(1) })
    }

    /// A question of the gateway's that fails in the client's transaction has failed that: a cancel request may have met
    /// its BEGIN, for example. Elsewhere nothing is lost by it but the answer.
    fn failed_to_ask(&self, node: NodeId, failure: Failure) -> Result<Timeouts, Failure> {
        match self.transaction.nodes.contains_key(&node) {
            true => Err(failure),
            false => Ok(Timeouts::default()),
        }
    }

    /// Waits in the gateway as a statement waits on a node for a lock: until it is cancelled, or until the
    /// client's `statement_timeout` or `lock_timeout` has passed. The wait is given up by dropping its
    /// future.
    ///
    /// Errors: 57014, 55P03.
    pub(crate) async fn while_wanted<T>(
        &mut self,
        awaited: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let activity = self.activity.clone();
        let begun = Instant::now();
        let cancelled = activity.cancelled();
        tokio::pin!(awaited, cancelled);
        tokio::select! {
            biased;
            done = &mut awaited => return Ok(done),
            () = &mut cancelled => return Err(canceled(sqlstate::QUERY_CANCELED, "user request")),
            () = sleep_until(begun + GLANCE) => (),
        }
        // Node 1 may have no part in this, and not answer: what is awaited is not missed for it.
        let is_asked_apart = self.transaction.nodes.is_empty() && !self.must_outlive(NodeId::HOME);
        let asked = tokio::select! {
            biased;
            done = &mut awaited, if is_asked_apart => Err(Ok(done)),
            () = &mut cancelled, if is_asked_apart => {
                Err(Err(canceled(sqlstate::QUERY_CANCELED, "user request")))
            }
            timeouts = self.timeouts_of_wait() => Ok(timeouts?),
        };
        let Timeouts { statement, lock } = match asked {
            Ok(timeouts) => timeouts,
            Err(over) => {
                // It owes an answer that nobody will read, or is not connected yet.
                if self.links.get(&NodeId::HOME).is_some_and(|link| !link.is_quiet()) {
                    self.links.remove(&NodeId::HOME);
                    self.checked_out.remove(&NodeId::HOME);
                }
                return over;
            }
        };
        let too_long = |timeout: Option<Duration>| async move {
            match timeout {
                Some(timeout) => sleep_until(begun + timeout).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            done = &mut awaited => Ok(done),
            () = &mut cancelled => Err(canceled(sqlstate::QUERY_CANCELED, "user request")),
            () = too_long(lock) => Err(canceled(sqlstate::LOCK_NOT_AVAILABLE, "lock timeout")),
            () = too_long(statement) => Err(canceled(sqlstate::QUERY_CANCELED, "statement timeout")),
        }
    }

    /// The same in the middle of a flight, whose nodes enforce `statement_timeout` as soon as they
    /// resume.
    ///
    /// Errors: 57014.
    pub(crate) async fn unless_cancelled<T>(
        &self,
        awaited: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            done = awaited => Ok(done),
            () = self.activity.cancelled() => Err(canceled(sqlstate::QUERY_CANCELED, "user request")),
        }
    }

    /// The client's `statement_timeout`, as [`Self::timeouts_of_wait`].
    pub(crate) async fn statement_timeout(&mut self) -> Result<Option<Duration>, Failure> {
        Ok(self.timeouts_of_wait().await?.statement)
    }

    /// The client's timeouts, for a wait in the gateway. They are not known while a flight is under way: asking would
    /// end its unnamed portal.
    ///
    /// Errors: the transaction has failed where it was asked.
    async fn timeouts_of_wait(&mut self) -> Result<Timeouts, Failure> {
        if !self.flight.is_empty() || self.transaction.failed {
            return Ok(Timeouts::default());
        }
        // A node of the transaction knows also what was set in it.
        let mut nodes = self.transaction.nodes.keys().copied();
        let node = nodes.find(|node| self.links.get(node).is_some_and(|link| link.is_ready()));
        let node = match node {
            None if self.transaction.nodes.is_empty() => {
                self.link(NodeId::HOME).await.is_ok().then_some(NodeId::HOME)
            }
            node => node,
        };
        match node {
            Some(node) => self.timeouts_on(node).await,
            None => Ok(Timeouts::default()),
        }
    }
}

pub(crate) fn canceled(sqlstate: &str, why: &str) -> Failure {
    Failure::error(sqlstate, format!("canceling statement due to {why}"))
}

/// A setting of time as SHOW writes it; `None` for none.
fn read_duration(shown: &str) -> Option<Duration> {
    let digits = shown.find(|c: char| !c.is_ascii_digit()).unwrap_or(shown.len());
    let (number, unit) = shown.split_at(digits);
    let milliseconds = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    (0 < number).then(|| Duration::from_millis(number.saturating_mul(milliseconds)))
}
