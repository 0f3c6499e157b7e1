//! Planning as a session does it: between messages and within a flight.
//!
//! Owns: when a statement begins, and that its text is parsed only once.
//! Never: chooses a plan.

use std::sync::Arc;

use tokio::time::Instant;
use tutti_sql::catalog::Catalog;

use super::Session;
use crate::client::failure::Failure;
use crate::registry::activity::overtaken;
use crate::registry::plan_in_sight::PlanInSight;
use crate::transaction::planning::{
    Parsed, is_of_analysis, is_of_rows_or_objects, is_setting, is_transaction_control,
    names_no_rows,
};
use crate::transaction::waiting::{HOLD_PATIENCE, Waits};

/// What comes of a message of a flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    /// Something is looked up, or analysed by a node; no statement is run by it.
    Nothing,
    /// A node runs a statement behind what was sent before it.
    ByNode,
    /// The same, of a portal that has locks on all that it uses: its plan is not made anew, but changes of the
    /// code that it calls must see it.
    OfPortal,
    /// The executor runs a statement, with nothing unanswered before it.
    ByExecutor,
}

impl Session {
    /// Before a statement is planned: waits while a schema change is being committed and published
    /// (`placement_change` says why), and brings what is known of names and tables up to date.
    ///
    /// Errors: 57P03 if that takes long; 57014 and 55P03 as on a node.
    pub(super) async fn begin_statement(&mut self, text: &str) -> Result<(), Failure> {
        self.tx.activity.plan.end();
        // They depend on no table; and a hold that waits for the end of a transaction must not
        // delay that end.
        if self.tx.transaction.failed || is_transaction_control(text) {
            // Looked up in the transaction, names would cost it its snapshot, before a LOCK.
            self.tx.refresh_catalog();
            if !self.tx.transaction.is_open() && self.tx.must_refresh_scope() {
                self.tx.refresh_scope().await?;
            }
            return Ok(());
        }
        let give_up = Instant::now() + HOLD_PATIENCE;
        loop {
            if self.tx.registry.cluster.publisher.is_held() {
                self.tx.wait_for_end_of_hold(give_up).await?;
            }
            self.renew_own_catalog(text).await?;
            self.tx.refresh_catalog();
            let is_early =
                self.tx.scope_state.is_due && !self.tx.transaction.queried && is_setting(text);
            if self.tx.must_refresh_scope() && !is_early {
                self.tx.refresh_scope().await?;
            }
            if self.tx.comes_into_sight(PlanInSight::begin) {
                return Ok(());
            }
        }
    }

    /// The same for one of several messages of a flight, whose plans may be running already.
    ///
    /// Errors: as above; 40001 if a change has stopped the plan, or is being committed and the flight must not
    /// be interrupted.
    pub(super) async fn begin_statement_of_flight(
        &mut self,
        text: &str,
        next: Next,
    ) -> Result<(), Failure> {
        if self.tx.activity.plan.is_overtaken_unsent() {
            // What the flight has sent before that plan is answered.
            self.tx.activity.plan.end();
        }
        if self.tx.scope_state.is_due && !self.is_at_rest() {
            self.quiet_pipeline().await?;
        }
        if self.is_between_statements() && !self.resume_flight().await? {
            self.quiet_pipeline().await?;
        }
        let looks = self.tx.must_refresh_scope() && self.is_at_rest();
        let begins = self.has_sent_nothing() || !self.tx.activity.plan.exists();
        if next == Next::OfPortal && begins {
            return self.begin_portal().await;
        }
        if looks || begins {
            return self.begin_statement(text).await;
        }
        if next == Next::ByExecutor && !self.tx.transaction.failed {
            // What was sent is answered first anyway, and depends on what it depended on until then.
            self.quiet_pipeline().await?;
            return self.begin_statement(text).await;
        }
        if self.tx.activity.plan.is_overtaken() {
            return Err(overtaken().into());
        }
        if next == Next::Nothing {
            return Ok(());
        }
        self.tx.activity.plan.widen();
        if !self.tx.registry.cluster.publisher.is_held() {
            // Changes that the flight had nothing to do with have passed it by.
            self.tx.refresh_catalog();
            return Ok(());
        }
        // The change may have looked already what the flight uses, and not wait for it.
        if self.has_snapshot_of_flight() {
            return Err(overtaken().into());
        }
        self.quiet_pipeline().await?;
        match next {
            Next::OfPortal => self.begin_portal().await,
            _ => self.begin_statement(text).await,
        }
    }

    /// A client that has asked for what is due need not go on soon: what it has sent is answered, so that changes
    /// need not wait for it, as little as for a transaction that is open.
    pub(super) fn rest_in_flight(&self) {
        let activity = &self.tx.activity;
        // Of what may depend on anything it is not known what may still run at its end.
        if activity.plan.has_known_concerns() && !activity.plan.is_overtaken() {
            activity.plan.end();
        }
    }

    /// Whether a flight has begun and everything of it is answered.
    fn is_between_statements(&self) -> bool {
        !self.has_sent_nothing() && !self.tx.activity.plan.exists()
    }

    /// A flight goes on after [`Self::rest_in_flight`]. False: something has changed meanwhile, which must be looked
    /// at with nothing open on a node outside of a transaction.
    ///
    /// Errors: 40001 if that would need two snapshots.
    async fn resume_flight(&mut self) -> Result<bool, Failure> {
        if self.tx.comes_into_sight(PlanInSight::begin) {
            let known = self.tx.catalog.clone();
            self.tx.refresh_catalog();
            if Arc::ptr_eq(&known, &self.tx.catalog) && !self.tx.must_refresh_scope() {
                return Ok(true);
            }
            self.tx.activity.plan.end();
        }
        match self.has_snapshot_of_flight() {
            true => Err(overtaken().into()),
            false => Ok(false),
        }
    }

    /// Whether what runs outside of a transaction keeps a snapshot of one node, so that it cannot become a
    /// transaction that waits.
    fn has_snapshot_of_flight(&self) -> bool {
        let has_own_snapshot = self.tx.is_autocommit() && self.tx.keeps_its_snapshot();
        has_own_snapshot && self.tx.flight.values().any(|ran| *ran)
    }

    /// Before a portal goes on that was bound before what is in sight.
    async fn begin_portal(&mut self) -> Result<(), Failure> {
        self.tx.activity.plan.end();
        match self.tx.transaction.failed {
            true => Ok(()),
            false => {
                self.tx.begin_in_sight(Waits::AskingNobody).await?;
                // By which it is judged whether it may go on: it may have waited for a change's end.
                self.tx.refresh_catalog();
                Ok(())
            }
        }
    }

    /// A transaction that has its own changes sees what others have committed, and these. Where
    /// more has been committed, the catalog is read again.
    async fn renew_own_catalog(&mut self, text: &str) -> Result<(), Failure> {
        if self.tx.transaction.own_is_stale && (self.tx.may_hide_names() || !names_no_rows(text)) {
            Box::pin(self.executor().reload_own_catalog()).await?;
            // Names that came with it may hide others.
            self.tx.scope_state.is_stale |= self.tx.transaction.may_change_scope();
            return Ok(());
        }
        if !self.tx.transaction.catalog_changed {
            return Ok(());
        }
        let published = self.tx.registry.cluster.catalog();
        let is_of = |of: &Arc<Catalog>| Arc::ptr_eq(of, &published);
        if self.tx.transaction.own_catalog_of.as_ref().is_some_and(is_of) {
            return Ok(());
        }
        match &self.tx.transaction.own_changes {
            Some(changes) if changes.is_all() => {
                self.tx.catalog = Arc::new(changes.apply(&published).of_open_change(&published));
                self.tx.transaction.own_catalog_of = Some(published);
                Ok(())
            }
            _ => self.executor().reload_own_catalog().await,
        }
    }

    /// Splits a client's text into its statements.
    ///
    /// Errors: what PostgreSQL says about an invalid text, in its own words: node 1 is asked to analyse
    /// what the gateway cannot parse. The gateway's grammar is of another version, and cannot report
    /// everything.
    pub(super) async fn parse_text(&mut self, text: &str) -> Result<Parsed, Failure> {
        self.tx.begin_reading(text).await?;
        let parsed = self.tx.registry.plans.parse(text);
        if let Some(permit) = &mut self.tx.reading {
            permit.end_reading();
        }
        let refusal = match parsed {
            Ok(statements) => return Ok(Parsed::Statements(statements)),
            Err(refusal) => refusal,
        };
        // A text that only the gateway can parse would be called invalid there.
        if self.tx.transaction.failed || text.to_ascii_lowercase().contains("distribute") {
            return Err(refusal.into());
        }
        self.quiet_pipeline().await?;
        match self.executor().describe_text(text, &[]).await {
            Ok(_) if self.tx.catalog.is_solo() && is_of_rows_or_objects(text) => {
                Ok(Parsed::ByNodesOnly(refusal))
            }
            Err(Failure::Statement(error)) if is_of_analysis(error.sqlstate()) => {
                Err(Failure::Statement(error))
            }
            Err(failure @ Failure::Client(_)) => Err(failure),
            Ok(_) | Err(_) => Err(refusal.into()),
        }
    }
}
