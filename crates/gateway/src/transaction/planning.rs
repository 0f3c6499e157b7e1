//! From a text to a plan, by what the gateway knows already wherever it can.
//!
//! Owns: when a statement may be planned, the order in which the caches are asked, and when they are
//! bypassed: while the transaction sees a catalog of its own, or has a snapshot from before the
//! newest one. Never: keeps a plan (`plans` does) nor makes one (`tutti_sql` does).
//! Start reading at [`TransactionContext::plan`], then [`TransactionContext::plan_by_shape`].

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tutti_sql::catalog::{Catalog, Placement, Relation};
use tutti_sql::closure::{grown, is_elsewhere, turned};
use tutti_sql::plan::{
    Access, Concerns, DataPlan, Plan, Planned, RequestCall, SessionPlan, TransactionControl,
    TuttiCall,
};
use tutti_sql::planner::{self, Context, Unfit};
use tutti_sql::refusal::Refusal;
use tutti_sql::statement::{self, Statement};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use crate::client::failure::Failure;
use crate::plans::reading::SMALL_BYTES;
use crate::plans::{Basis, ShapeEntry, apart};
use crate::registry::plan_in_sight::Unasked;
use crate::transaction::TransactionContext;
use crate::transaction::bound_with::{BoundWith, LateCalls};
use crate::transaction::scope::REFRESH_CACHES;
use crate::transaction::waiting::{Waits, canceled};

/// What is known of a text by its shape.
pub(crate) enum ByShape {
    /// How to run it.
    Plan {
        /// The plan.
        planned: Arc<Planned>,
        /// Where in the text the statement is.
        statement: Range<usize>,
    },
    /// Nothing yet: worth finding out.
    Unknown,
    /// It has no shape, or none that helps.
    Never,
}

/// A client's text as far as the gateway can read it.
pub(crate) enum Parsed {
    /// Its statements.
    Statements(Arc<[Arc<Statement>]>),
    /// One statement that node 1 can read and the gateway cannot, because its strings are written
    /// differently (`standard_conforming_strings`). Node 1 has everything and may run it as it is.
    /// With the gateway's own refusal.
    ByNodesOnly(Refusal),
}

/// Whether a text begins like statements that a session need not know of.
pub(crate) fn is_of_rows_or_objects(text: &str) -> bool {
    let word = statement::first_word(text);
    [
        "select", "insert", "update", "delete", "merge", "with", "values", "create", "alter",
        "comment",
    ]
    .iter()
    .any(|known| word.eq_ignore_ascii_case(known))
}

/// Whether an SQLSTATE is one that parsing and analysing a statement give.
pub(crate) fn is_of_analysis(sqlstate: &str) -> bool {
    ["42", "22", "0A", "54"].iter().any(|class| sqlstate.starts_with(class))
}

impl TransactionContext {
    /// Before a plan is executed: which tables must not change before it has locked them, or before it has made
    /// their rows anew.
    pub(crate) fn note_steps(&self, plan: &Plan) {
        let (written, brought) = (plan.written_in_steps(), plan.brought());
        if !written.is_empty() || !brought.is_empty() {
            self.activity.plan.note_steps(written, brought.into_iter().cloned().collect());
        }
    }

    /// The same for what will not be asked about afterwards.
    pub(crate) fn note_unasked(&self, planned: &Planned, text: &str) {
        if planned.unasked {
            let scope = (!self.catalog.is_solo()).then(|| self.scope.clone());
            self.activity.plan.note_unasked(Unasked { text: text.to_owned(), scope });
        }
    }

    /// Whether a table that is not known yet, or was dropped, may hide another of its name.
    pub(crate) fn may_hide_names(&self) -> bool {
        let is_of_users = |schema: &&String| *schema != "pg_catalog";
        1 < self.scope.search_path.iter().filter(is_of_users).count() || self.scope_state.is_stale
    }

    /// Whether catalogs have been published since the transaction's snapshot.
    pub(crate) fn has_older_snapshot(&self) -> bool {
        let Some(of) = &self.transaction.snapshot_catalog else { return false };
        !Arc::ptr_eq(of, &self.catalog)
    }

    /// With a snapshot from before its rows were moved a table is not to be read: they are not where
    /// the snapshot sees them.
    ///
    /// Errors: 40001.
    fn refuse_moved(&self, statement: &Statement) -> Result<(), Failure> {
        let Some(old) = self.transaction.snapshot_catalog.as_ref() else { return Ok(()) };
        // The transaction sees rows that it has moved itself where they are now.
        let published = self.registry.cluster.catalog();
        if Arc::ptr_eq(old, &published) {
            return Ok(());
        }
        let context = Context::new(&published, &self.scope);
        let moved = |relation: &Arc<Relation>| has_moved(relation, old, &published);
        let named = planner::relations_of(statement, &context).into_iter().find(moved);
        let moved = named.map(|relation| relation.name.clone()).or_else(|| {
            // What functions read is not visible here: each node would return its part of it.
            let read = planner::read_by_code(statement, &context);
            let mut moved = published.relations.values().flat_map(HashMap::values);
            let found = moved.find(|it| read.may_be(it) && has_moved(it, old, &published))?;
            Some(found.name.clone())
        });
        moved.map_or(Ok(()), |name| Err(moved_since(&name)))
    }

    /// Before and after code that runs on node 1 unseen: it may read or write any table, and with an older
    /// snapshot what node 1 itself says of what it has touched is as of then.
    ///
    /// Errors: 40001 if any table was moved since the transaction's snapshot.
    pub(crate) fn refuse_moved_for_code(&self) -> Result<(), Failure> {
        let Some(old) = self.transaction.snapshot_catalog.as_ref() else { return Ok(()) };
        refuse_if_moved(old, &self.registry.cluster.catalog(), |_| true)
    }

    /// What code means now.
    pub(crate) fn bound_now(&self) -> BoundWith {
        let path_changes = self.registry.path_changes.load(Ordering::SeqCst);
        BoundWith {
            catalog: self.catalog.clone(),
            path_changes,
            sight_changes: self.scope_state.sight_changes,
        }
    }

    /// Errors: 40001 if code that is called has come to do more than it did then.
    pub(super) fn refuse_if_grown(
        &self,
        old: &BoundWith,
        new: &Catalog,
        concerns: Option<&Concerns>,
    ) -> Result<(), Failure> {
        if old.catalog.is_solo() {
            return Ok(());
        }
        let others_see = self.registry.path_changes.load(Ordering::SeqCst) != old.path_changes;
        if let Some(detail) = found_otherwise(old, new, others_see, concerns) {
            let message =
                "could not go on with a statement that may call code which was changed meanwhile";
            return Err(ErrorFields::error(sqlstate::SERIALIZATION_FAILURE, message)
                .with(b'D', detail)
                .with(b'H', "The transaction might succeed if retried.")
                .into());
        }
        let sees_otherwise = self.scope_state.sight_changes != old.sight_changes;
        match sees_otherwise && found_otherwise(old, new, true, concerns).is_some() {
            false => Ok(()),
            true => Err(Failure::unsupported(
                "going on with a statement that may call other code since its session sees other schemas",
                "By the search path or role of now a function of it may mean others, or other tables.",
                "Change these before it is bound or declared.",
            )),
        }
    }

    /// Before a COMMIT at which code may run that the transaction's statements have left for it: deferred
    /// triggers, the rows of cursors WITH HOLD. From here on changes see it.
    ///
    /// Errors: 40001 as above, if a node may run such code; otherwise as [`Self::begin_in_sight`].
    pub(crate) async fn begin_late_calls(&mut self) -> Result<(), Failure> {
        if !self.begin_to_end(Waits::AsOnANode).await? {
            return Ok(());
        }
        if self.must_refresh_scope() {
            self.refresh_scope().await?;
        }
        if let Err(failure) = self.refuse_late_calls(&self.registry.cluster.catalog())
            && self.leaves_code_to_its_end().await?
        {
            return Err(failure);
        }
        self.refresh_catalog();
        for node in self.transaction.writers().collect::<Vec<_>>() {
            if self.must_refresh(node) {
                self.note_refreshed(node);
                self.link(node).await?.query(REFRESH_CACHES).await?;
            }
        }
        Ok(())
    }

    /// The same outside of a transaction, before the Sync by which a node commits: it cannot be asked whether such
    /// code was left, which may have been.
    pub(crate) async fn begin_late_calls_of_flight(&mut self) -> Result<(), Failure> {
        match self.begin_to_end(Waits::AskingNobody).await? {
            true => self.refuse_late_calls(&self.registry.cluster.catalog()),
            false => Ok(()),
        }
    }

    /// What was left, unless changes have seen the statements that left it until now.
    pub(crate) fn unseen_late_calls(&self) -> Option<&LateCalls> {
        let late = self.transaction.late_calls.as_ref()?;
        (!self.activity.plan.is_still(late.plan_number)).then_some(late)
    }

    /// False: there is no such.
    async fn begin_to_end(&mut self, waits: Waits) -> Result<bool, Failure> {
        let Some(late) = self.unseen_late_calls() else { return Ok(false) };
        let concerns = late.concerns.clone();
        self.begin_in_sight(waits).await?;
        self.activity.plan.note_concerns(Some(&concerns), true);
        Ok(true)
    }

    /// Errors: 40001 if by this catalog what was left does more than when it was left.
    fn refuse_late_calls(&self, new: &Catalog) -> Result<(), Failure> {
        let Some(late) = &self.transaction.late_calls else { return Ok(()) };
        self.refuse_if_grown(&late.then, new, Some(&late.concerns))
    }

    /// A transaction's deferred triggers have run, and none is deferred any more.
    pub(crate) fn forget_late_calls(&mut self) {
        // ROLLBACK TO a savepoint defers again what has run since.
        let is_for_good = self.transaction.last_savepoint().is_none();
        if is_for_good && !self.cursors.values().any(|cursor| cursor.holds) {
            self.transaction.late_calls = None;
        }
    }

    /// Before a COMMIT, of what the transaction has changed itself since its statements left code to it.
    ///
    /// Requires: its own catalog is read.
    /// Errors: 0A000 if that code may do more than they reckoned with.
    pub(crate) async fn refuse_own_late_calls(&mut self) -> Result<(), Failure> {
        let is_as_it_was =
            !self.transaction.catalog_changed || self.refuse_late_calls(&self.catalog).is_ok();
        if is_as_it_was || !self.leaves_code_to_its_end().await? {
            return Ok(());
        }
        Err(Failure::unsupported(
            "committing statements whose deferred triggers, or cursor WITH HOLD, call code that was changed after them",
            "A function, operator or type that they use has come to do more than look at its arguments.",
            "Change it in a transaction of its own, or let them run before: SET CONSTRAINTS ALL IMMEDIATE.",
        ))
    }

    /// Whether a node may run users' code when the transaction ends there.
    async fn leaves_code_to_its_end(&mut self) -> Result<bool, Failure> {
        const DEFERS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_trigger \
             WHERE tgdeferrable AND (NOT tgisinternal \
                 OR tgfoid OPERATOR(pg_catalog.=) 'pg_catalog.unique_key_recheck'::pg_catalog.regproc) \
             AND tgenabled OPERATOR(pg_catalog.<>) 'D' \
             AND pg_catalog.pg_stat_get_xact_tuples_inserted(tgrelid) \
                 OPERATOR(pg_catalog.+) pg_catalog.pg_stat_get_xact_tuples_updated(tgrelid) \
                 OPERATOR(pg_catalog.+) pg_catalog.pg_stat_get_xact_tuples_deleted(tgrelid) \
                 OPERATOR(pg_catalog.>) 0)";
        if self.cursors.values().any(|cursor| cursor.holds && cursor.made.is_some()) {
            return Ok(true);
        }
        for node in self.transaction.writers().collect::<Vec<_>>() {
            let rows = self.link(node).await?.query(DEFERS).await?;
            if rows.first().and_then(|rows| rows.text(0, 0)) != Some("f") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// As [`PlanInSight::note_concerns`](crate::registry::plan_in_sight::PlanInSight::note_concerns), of a statement with this
    /// access.
    pub(crate) fn note_concerns(&mut self, concerns: Option<&Arc<Concerns>>, access: Access) {
        self.activity.plan.note_concerns(concerns, access == Access::Write);
        if access == Access::Write {
            self.note_late_calls(concerns);
        }
    }

    /// As [`PlanInSight::join_concerns`](crate::registry::plan_in_sight::PlanInSight::join_concerns), of a statement with this
    /// access.
    pub(crate) fn join_concerns(&mut self, concerns: Option<&Arc<Concerns>>, access: Access) {
        self.activity.plan.join_concerns(concerns, access == Access::Write);
        if access == Access::Write {
            self.note_late_calls(concerns);
        }
    }

    /// A statement was planned that writes or declares a cursor: code that it calls may run when the
    /// transaction ends.
    fn note_late_calls(&mut self, concerns: Option<&Arc<Concerns>>) {
        let Some(concerns) = concerns.filter(|concerns| concerns.calls_users()) else { return };
        match &mut self.transaction.late_calls {
            Some(known) if known.concerns.calls_all_of(concerns) => (),
            Some(known) => known.concerns = Arc::new(known.concerns.with(concerns)),
            None => {
                let (then, plan_number) = (self.bound_now(), self.activity.plan.number());
                let concerns = concerns.clone();
                self.transaction.late_calls = Some(LateCalls { then, concerns, plan_number });
            }
        }
    }

    /// What plans depend on at the moment; `None` if no other session can use what this one plans.
    pub(crate) fn basis(&mut self) -> Option<Basis> {
        if self.transaction.catalog_changed || self.transaction.own_is_stale {
            return None;
        }
        let number = match &self.planning.number {
            Some((catalog, changes, number))
                if Arc::ptr_eq(catalog, &self.catalog) && *changes == self.scope_state.changes =>
            {
                *number
            }
            _ => {
                let number = self.registry.plans.bases.number(&self.catalog, &self.scope);
                let known = (self.catalog.clone(), self.scope_state.changes, number);
                self.planning.number = Some(known);
                number
            }
        };
        Some(Basis {
            number,
            collects_replicated: self.has_snapshot_per_part(),
            collects_to_write: self.begins_with_snapshot_per_part(),
        })
    }

    /// The plan of a text, if its shape is known: without parsing it.
    pub(crate) fn plan_by_shape(&mut self, text: &str) -> Result<ByShape, Failure> {
        self.refresh_catalog();
        if self.has_older_snapshot() {
            return Ok(ByShape::Never);
        }
        let Some(basis) = self.basis() else { return Ok(ByShape::Never) };
        let Some(shape) = self.planning.scanner.scan(text) else { return Ok(ByShape::Never) };
        let plans = &self.registry.plans;
        let known = plans.of_shape(basis, shape.key);
        let resolved = match &known {
            Some(ShapeEntry::Plan(plan)) => plan.resolve(text, shape.literals, &self.catalog),
            Some(ShapeEntry::Never) | None => None,
        };
        plans.note_by_shape(resolved.is_some());
        let statement = shape.start..shape.end;
        match (resolved, known) {
            (Some(planned), _) => {
                self.check_plan(text, &planned)?;
                self.refuse_in_failed(&planned)?;
                Ok(ByShape::Plan { planned, statement })
            }
            (None, None) => Ok(ByShape::Unknown),
            (None, Some(_)) => Ok(ByShape::Never),
        }
    }

    /// Finds out whether the shape of a text, which is the one statement just planned, has a plan.
    pub(crate) fn learn_shape(&mut self, text: &str, statement: &Statement, planned: &Planned) {
        let Some(basis) = self.basis() else { return };
        let Some(shape) = self.planning.scanner.scan(text) else { return };
        if basis.collects_to_write && planner::gathers_to_write(&planned.plan) {
            return self.registry.plans.keep_shape(basis, shape.key, ShapeEntry::Never);
        }
        let collects_replicated = basis.collects_replicated;
        let context = Context { collects_replicated, ..Context::new(&self.catalog, &self.scope) };
        let known = match planner::plan_shape(statement, text, &shape, planned, &context) {
            Ok(plan) => ShapeEntry::Plan(Arc::new(plan)),
            Err(Unfit::Shape) => ShapeEntry::Never,
            Err(Unfit::Literals) => return,
        };
        self.registry.plans.keep_shape(basis, shape.key, known);
    }

    /// Waits until a text may be read, if it is large, as long as its client waits. The session keeps
    /// the permit until it has planned the text's last statement.
    pub(crate) async fn begin_reading(&mut self, text: &str) -> Result<(), Failure> {
        if text.len() < SMALL_BYTES {
            return Ok(());
        }
        // It is done with what it read before.
        self.reading = None;
        let (registry, activity) = (self.registry.clone(), self.activity.clone());
        tokio::select! {
            biased;
            () = activity.cancelled() => Err(canceled(sqlstate::QUERY_CANCELED, "user request")),
            permit = registry.plans.reading.begin(text) => {
                self.reading = permit?;
                Ok(())
            }
        }
    }

    /// The plan of a statement, made now or before, unless the transaction has failed.
    pub(crate) fn plan(&mut self, statement: &Statement) -> Result<Arc<Planned>, Failure> {
        self.refresh_catalog();
        if self.has_older_snapshot() {
            self.refuse_moved(statement)?;
        }
        let basis = self.basis();
        if let Some(basis) = basis
            && let Some(planned) = self.registry.plans.of_text(basis, statement)
        {
            self.check_plan(&statement.text, &planned)?;
            self.refuse_in_failed(&planned)?;
            return Ok(planned);
        }
        let planned = self.plan_anew(statement).map(Arc::new);
        match &planned {
            Ok(planned) => self.refuse_in_failed(planned)?,
            Err(_) if self.transaction.failed => return Err(transaction_failed()),
            Err(_) => (),
        }
        let planned = planned?;
        if let Some(basis) = basis {
            self.registry.plans.keep_text(basis, statement, &planned);
        }
        Ok(planned)
    }

    /// The plan of what has become of a statement while it runs: by what it is planned itself, and not kept, for it
    /// has values of its own.
    ///
    /// Errors: what the planner refuses.
    pub(crate) fn plan_part(&self, statement: &Statement) -> Result<Planned, Refusal> {
        self.plan_anew(statement)
    }

    /// The plan of a statement by which a table is filled that its transaction has just made, where there is one that keeps
    /// fewer rows than `planned`.
    pub(crate) fn plan_filling(
        &self,
        statement: &Statement,
        planned: Arc<Planned>,
    ) -> Result<Arc<Planned>, Refusal> {
        let is_gathered = matches!(planned.plan, Plan::Data(DataPlan::Gather(_)));
        if !is_gathered || planned.unseen.is_some() || planned.keeps_entries {
            return Ok(planned);
        }
        let context = Context {
            collects_replicated: self.has_snapshot_per_part(),
            ..Context::new(&self.catalog, &self.scope)
        };
        // Over views, of which nothing is known here, the plan that there is does.
        let filling = apart(&statement.text, || planner::plan_filling(statement, &context));
        Ok(filling
            .ok()
            .flatten()
            .map_or(planned.clone(), |plan| Arc::new(Planned { plan, ..(*planned).clone() })))
    }

    fn plan_anew(&self, statement: &Statement) -> Result<Planned, Refusal> {
        let context = Context {
            collects_replicated: self.has_snapshot_per_part(),
            ..Context::new(&self.catalog, &self.scope)
        };
        apart(&statement.text, || match self.begins_with_snapshot_per_part() {
            true => planner::plan_by_itself(statement, &context),
            false => planner::plan(statement, &context),
        })
    }

    fn refuse_in_failed(&self, planned: &Planned) -> Result<(), Failure> {
        if self.transaction.failed && !ends_failed_transaction(planned) {
            return Err(transaction_failed());
        }
        Ok(())
    }

    /// For tests: a plan that was kept must be the one that the statement would get now.
    fn check_plan(&self, text: &str, kept: &Planned) -> Result<(), Failure> {
        if !self.registry.cluster.config.switches.check_plans {
            return Ok(());
        }
        let statements = tutti_sql::statement::parse(text)?;
        let fresh = statements.first().map(|statement| self.plan_anew(statement));
        match fresh {
            Some(Ok(fresh)) if planner::are_alike(&fresh, kept) => Ok(()),
            fresh => {
                let message = format!("the plan that was kept for {text} is not its own");
                let error = ErrorFields::error("XX000", message);
                Err(error.with(b'D', format!("Kept: {kept:?}. Its own: {fresh:?}.")).into())
            }
        }
    }
}

/// Whether what is called or read by code is not what it was then, and what.
fn found_otherwise(
    old: &BoundWith,
    new: &Catalog,
    changed_sight: bool,
    concerns: Option<&Concerns>,
) -> Option<&'static str> {
    let old = &*old.catalog;
    if std::ptr::eq(old, new) && !changed_sight {
        return None;
    }
    let grown = grown(old, new, changed_sight);
    if !grown.is_empty() && concerns.is_none_or(|concerns| concerns.may_call(&grown)) {
        return Some(
            "A function, operator or type that it uses has come to do more than look at its arguments.",
        );
    }
    // Its own tables are locked since; those that code reads are not.
    let reads_others = concerns.is_none_or(|it| it.calls_users() && it.relations.is_none());
    (reads_others && turned(old, new, changed_sight)).then_some(
        "A table or view that a function of it may read is elsewhere, is another, or runs more code than before.",
    )
}

/// What a transaction is told that uses a table which was moved after its snapshot.
fn moved_since(name: &str) -> Failure {
    let message = format!("could not access relation \"{name}\" due to a change of its placement");
    ErrorFields::error(sqlstate::SERIALIZATION_FAILURE, message)
        .with(b'D', "The transaction's snapshot is older than the placement.")
        .with(b'H', "The transaction might succeed if retried.")
        .into()
}

/// Errors: 40001 if one of the relations that are meant is elsewhere than it was by `old`.
pub(super) fn refuse_if_moved(
    old: &Arc<Catalog>,
    new: &Arc<Catalog>,
    is_meant: impl Fn(&Arc<Relation>) -> bool,
) -> Result<(), Failure> {
    if Arc::ptr_eq(old, new) {
        return Ok(());
    }
    let mut relations = new.relations.values().flat_map(HashMap::values);
    match relations.find(|relation| has_moved(relation, old, new) && is_meant(relation)) {
        Some(relation) => Err(moved_since(&relation.name)),
        None => Ok(()),
    }
}

/// A relation as an earlier catalog has it, if it does.
pub(super) fn as_it_was<'a>(relation: &Relation, old: &'a Catalog) -> Option<&'a Arc<Relation>> {
    let by_name = old.relations.get(&relation.schema).and_then(|of| of.get(&relation.name));
    let is_it = |known: &&Arc<Relation>| known.oid == relation.oid;
    by_name.filter(is_it).or_else(|| {
        // It may have had another name.
        old.relations.values().flat_map(HashMap::values).find(is_it)
    })
}

/// Whether a relation's rows are elsewhere than they were by `old`.
fn has_moved(relation: &Arc<Relation>, old: &Catalog, new: &Catalog) -> bool {
    // An unknown table was created later, or while every statement was node 1's.
    let Some(before) = as_it_was(relation, old) else {
        return relation.placement != Placement::Home;
    };
    is_elsewhere(before, relation, old, new)
}

/// Whether a text changes the schema and reads no rows: an object it names that is not known yet is
/// node 1's, as it would be if it were known. (Spread tables are known immediately.)
pub(crate) fn names_no_rows(text: &str) -> bool {
    const COMMANDS: [&str; 6] = ["create", "alter", "drop", "comment", "grant", "revoke"];
    // After these there may be a query, or rows may be read by code that the table has acquired
    // meanwhile.
    const READING_WORDS: [&str; 6] = ["as", "select", "validate", "attach", "type", "partition"];
    // In an ALTER that rewrites the rows.
    const WRITES: [&str; 4] = ["default", "generated", "logged", "unlogged"];
    let is_of = |word: &str, known: &[&str]| known.iter().any(|it| word.eq_ignore_ascii_case(it));
    let first = statement::first_word(text);
    let alters = is_of(first, &["alter"]);
    let looks = |word: &&str| is_of(word, &READING_WORDS) || alters && is_of(word, &WRITES);
    is_of(first, &COMMANDS)
        && statement::words(text).is_some_and(|words| !words.iter().any(|it| looks(&&**it)))
}

/// Whether a text begins with a command that begins or ends a transaction, or part of one.
pub(crate) fn is_transaction_control(text: &str) -> bool {
    const WORDS: [&str; 8] =
        ["begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release"];
    let word = statement::first_word(text);
    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Whether a text begins with a command that uses no names of tables or functions, and needs no snapshot.
pub(crate) fn is_setting(text: &str) -> bool {
    let word = statement::first_word(text);
    ["set", "reset", "show"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// What a failed transaction still accepts.
pub(crate) fn ends_failed_transaction(planned: &Planned) -> bool {
    matches!(
        planned.plan,
        Plan::Session(
            SessionPlan::Transaction(
                TransactionControl::Commit { .. }
                    | TransactionControl::Rollback { .. }
                    | TransactionControl::RollbackTo(_)
                    | TransactionControl::Prepare(_)
            ) | SessionPlan::Tutti(TuttiCall::Request(RequestCall::Commit { .. }))
        )
    )
}

/// What a failed transaction says to everything else.
pub(crate) fn transaction_failed() -> Failure {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    Failure::error("25P02", message)
}
