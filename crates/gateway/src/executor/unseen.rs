//! Code on node 1 that the gateway does not see: what it has touched is asked before its effects become
//! permanent.
//!
//! Owns: the two questions around such a statement, and what follows from the answer: nothing, a
//! refusal of the whole statement, or settings and definitions that the rest of the cluster must learn.
//! Never: decides which statements these are (the planner does).
//! Start reading at [`Executor::begin_accounting`]; the questions are functions of the schema `tutti`.
//!
//! A transaction's table locks last until its end, whatever took them: functions, dynamic SQL, checks.
//! So the statement has touched whatever is locked after it and was not before; for tables that were
//! locked before, and for what was undone inside, the transaction's counters tell. They also do for a
//! statement that has failed, which runs after a savepoint: an error that it raised because it saw only
//! a part of the rows must not reach the client.

use std::collections::BTreeSet;

use tutti_cluster::catalog::share::Wanted;
use tutti_link::Link;
use tutti_link::connection::NodeError;
use tutti_sql::catalog::{NodeId, quote_identifier, quote_literal};
use tutti_sql::closure::Declaration;
use tutti_sql::plan::{
    Access, DataPlan, Ddl, DdlNodes, Plan, Planned, SchemaPlan, SessionPlan, Setting, Unseen,
};
use tutti_sql::refusal::Refusal;
use tutti_wire::error_fields::ErrorFields;

use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done};
use crate::transaction::accounting::Accounting;
use crate::transaction::deferred::{
    CHANGES, RUN_DEFERRED, UNDO_DEFERRED, keeps_order, may_be_mended,
};
use crate::transaction::settings::is_scope_setting;
use crate::transaction::state::Isolation;
use crate::transaction::{Level, Mode};

/// Catalogs of objects that other nodes have too, as far as they name no home table.
const DEFINITIONS: [&str; 7] = [
    "pg_proc",
    "pg_type",
    "pg_namespace",
    "pg_operator",
    "pg_cast",
    "pg_collation",
    "pg_extension",
];
/// Stands between the first question and the statement.
const SAVEPOINT: &str = "tutti_mark";
/// Most names of settings that a statement may mention.
const CANDIDATES_MAX: usize = 200;

impl Executor<'_> {
    /// Accounts for what has been run of `unseen`, after [`Self::begin_accounting`].
    pub(super) async fn end_accounting(
        &mut self,
        unseen: &Unseen,
        planned: &Planned,
        ran: Result<Done, Failure>,
    ) -> Result<Done, Failure> {
        let done = self.finish_accounting(ran).await?;
        if matches!(planned.plan, Plan::Data(DataPlan::DeclareCursor { .. })) {
            // It runs when rows are fetched.
            self.tx.transaction.unseen = Some(Box::new(unseen.clone()));
        }
        Ok(done)
    }

    /// From here on what node 1 does for the statement is accounted for.
    pub(crate) fn begin_accounting(
        &mut self,
        unseen: &Unseen,
        plan: &Plan,
        text: &str,
        call: &Call,
    ) {
        if self.tx.transaction.mode == Mode::None {
            self.need_transaction();
            if matches!(plan, Plan::Data(DataPlan::Gather(_)))
                && self.tx.level() == Level::ReadCommitted
            {
                // The rows that are gathered and what the code reads are as of one time.
                self.tx.transaction.characteristics.isolation = Some(Isolation::RepeatableRead);
            }
        }
        self.tx.transaction.note_ties(true);
        let names = unseen.sets.then(|| self.setting_names(text, call));
        self.tx.accounting = Some(Accounting {
            unseen: unseen.clone(),
            names,
            nonce: format!("{:032x}", rand::random::<u128>()),
            marked: false,
            changes_schema: matches!(
                plan,
                Plan::Schema(SchemaPlan::TemporaryDdl { .. } | SchemaPlan::Ddl(_))
            ),
            travelling: Vec::new(),
            lent: Vec::new(),
        });
    }

    /// Asks what was touched, after a statement that ended with `ended`.
    pub(crate) async fn finish_accounting<T>(
        &mut self,
        ran: Result<T, Failure>,
    ) -> Result<T, Failure> {
        let accounting = self.tx.accounting.take().filter(|accounting| accounting.marked);
        let Some(accounting) = accounting else {
            self.client.end_notices(true);
            return ran;
        };
        match ran {
            Ok(done) => {
                let settled = self.close_accounts(&accounting).await;
                if settled.is_err() {
                    self.note_seen_tables();
                }
                self.client.end_notices(settled.is_ok());
                settled.map(|()| done)
            }
            Err(failure) => {
                let refusal = match may_come_of_rows(&failure) {
                    true => self.account_for_failed(&accounting).await,
                    false => None,
                };
                if refusal.is_some() {
                    self.note_seen_tables();
                }
                self.client.end_notices(refusal.is_none());
                Err(refusal.unwrap_or(failure))
            }
        }
    }

    fn note_seen_tables(&mut self) {
        if let Some(link) = self.tx.links.get_mut(&NodeId::HOME) {
            link.has_seen_parts = true;
        }
    }

    /// What to report instead of a statement's error, if it has read parts of tables and may have failed
    /// because of what it did not see.
    async fn account_for_failed(&mut self, accounting: &Accounting) -> Option<Failure> {
        let link = self.tx.links.get_mut(&NodeId::HOME).filter(|link| !link.is_broken())?;
        // Locks are released; the counters still know.
        let sql = format!(
            "ROLLBACK TO SAVEPOINT {SAVEPOINT}; \
             SELECT what, name, value FROM tutti.touched(true, false, NULL, '{}')",
            accounting.nonce
        );
        // If it was the first question that failed, there is no savepoint.
        let rows = link.query(&sql).await.ok()?;
        let rows = rows.last()?;
        for row in 0..rows.rows.len() {
            let text = |column| rows.text(row, column).unwrap_or_default();
            let (what, name, value) = (text(0), text(1), text(2));
            match what {
                "writes" if value == "replicated" && accounting.travels(name) => (),
                "reads" if accounting.lends(name) => (),
                "reads" | "writes" => return Some(accounting.refusal(what, name, value)),
                _ => (),
            }
        }
        match accounting.unseen.samples {
            true => self.refuse_empty_tables(&accounting.unseen).await.err(),
            false => None,
        }
    }

    /// Before something is sent to `node`: the first question precedes the statement there.
    pub(super) async fn mark(&mut self, node: NodeId) -> Result<(), Failure> {
        let Some(accounting) = self
            .tx
            .accounting
            .as_mut()
            .filter(|accounting| node == NodeId::HOME && !accounting.marked)
        else {
            return Ok(());
        };
        // All tables, for if the statement fails its locks tell nothing.
        let sql = format!("SELECT tutti.mark(true, {}, $1)", accounting.names());
        let nonce = accounting.nonce.clone();
        let unseen = accounting.unseen.clone();
        // A lock that an earlier statement has taken tells nothing about this one.
        let may_be_locked = self.tx.transaction.mode == Mode::Explicit;
        if unseen.samples && (unseen.catches || may_be_locked) {
            self.refuse_empty_tables(&unseen).await?;
        }
        // A statement refused on the way there has run no code, and has no savepoint to return to.
        let link = self.tx.enlist_begun(node, Access::Write).await?;
        link.put_silent_with(&sql, &nonce);
        link.put_silent(&format!("SAVEPOINT {SAVEPOINT}"));
        self.client.hold_notices();
        if let Some(accounting) = &mut self.tx.accounting {
            accounting.marked = true;
        }
        Ok(())
    }

    /// Refuses code whose reads would leave no trace: a scan by row position of a table that has no
    /// page on node 1, while rows may be on others.
    async fn refuse_empty_tables(&mut self, unseen: &Unseen) -> Result<(), Failure> {
        let sql = "SELECT p.relation::pg_catalog.regclass FROM tutti.placements p \
             JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) p.relation \
             AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,m}') \
             WHERE p.kind OPERATOR(pg_catalog.=) ANY ('{hash,round_robin}') \
             AND pg_catalog.pg_relation_size(p.relation) OPERATOR(pg_catalog.=) 0 LIMIT 1";
        let rows = self.tx.enlist(NodeId::HOME, Access::Write).await?.query(sql).await?;
        let Some(table) = rows.first().and_then(|rows| rows.text(0, 0)) else { return Ok(()) };
        let code = code_of(unseen.reason.as_deref().unwrap_or("a function of this statement"));
        Err(Failure::unsupported(
            format!("{code} may read {table} by TABLESAMPLE or ctid, and nobody could tell"),
            format!(
                "Node 1 has no row of {table}, which other nodes may have, and counts no such \
                 reading there; what the code undoes itself leaves no lock."
            ),
            "Leave out TABLESAMPLE and ctid, or send the statements from the client.",
        ))
    }

    /// The same where the rows of these replicated tables travel after the statement.
    pub(super) async fn mark_travelling(
        &mut self,
        tables: impl Iterator<Item = (String, String)>,
    ) -> Result<(), Failure> {
        if let Some(accounting) = &mut self.tx.accounting {
            accounting.travelling = tables.collect();
        }
        self.mark(NodeId::HOME).await
    }

    async fn close_accounts(&mut self, accounting: &Accounting) -> Result<(), Failure> {
        self.tx.refuse_moved_for_code()?;
        let sql = format!(
            "SELECT what, name, value FROM tutti.touched({}, {}, {}, '{}'); \
             RELEASE SAVEPOINT {SAVEPOINT}",
            accounting.unseen.catches,
            accounting.unseen.one_snapshot,
            accounting.names(),
            accounting.nonce
        );
        let rows = self.tx.enlist(NodeId::HOME, Access::Write).await?.query(&sql).await?;
        let mut settings = Vec::new();
        let (mut schema, mut temporary, mut definitions) = (false, false, false);
        let (mut shared, mut deferred) = (None, false);
        let rows = rows.first();
        for row in 0..rows.map_or(0, |rows| rows.rows.len()) {
            let text = |column| rows.and_then(|rows| rows.text(row, column));
            let (what, name, value) = (text(0), text(1).unwrap_or_default(), text(2));
            match what {
                Some("writes") if value == Some("replicated") && accounting.travels(name) => (),
                Some("reads") if accounting.lends(name) => (),
                Some(did @ ("reads" | "writes")) => {
                    return Err(accounting.refusal(did, name, value.unwrap_or_default()));
                }
                Some("setting") => settings.push((name.to_owned(), value.map(str::to_owned))),
                Some("schema") => {
                    schema = true;
                    definitions |= DEFINITIONS.contains(&name);
                }
                Some("shared") => shared = Some(name.to_owned()),
                Some("definition") => return Err(accounting.schema_refusal(name)),
                Some("deferred") => deferred = true,
                Some("held") if !self.tx.cursors.contains_key(name) => {
                    return Err(held_by_code(name));
                }
                Some("temporary") => temporary = true,
                _ => (),
            }
        }
        if schema && !accounting.changes_schema {
            let shared = match self.tx.catalog.home_by_default {
                true => shared,
                false if temporary => None,
                false => Some("the schema, which all nodes share".to_owned()),
            };
            if let Some(changed) = shared {
                return Err(accounting.schema_refusal(&changed));
            }
            if temporary {
                self.tx.must_anchor(NodeId::HOME)?;
                self.tx.transaction.scope_changed = true;
            }
            if definitions && self.tx.catalog.home_by_default {
                // As if the client had created them: other nodes get those that name no home table and are not
                // temporary. (That a session has temporary objects does not say that these are.)
                self.share(Wanted::Own).await?;
            }
            // Whose rights it has changed is not known.
            self.tx.transaction.changed_sight = true;
            let ddl = Ddl {
                creates: None,
                may_drop: true,
                touches_sequences: false,
                scope: DdlNodes::Home,
                of_relations: false,
                rows: None,
                names_role: None,
                computed: None,
                fills: None,
                global_unique: None,
                foreign_keys: None,
                truncates: None,
            };
            self.after_ddl(&ddl, &[]).await?;
        }
        if accounting.unseen.reason.is_some() {
            self.tx.transaction.note_unseen(&accounting.unseen, deferred);
        }
        self.copy_settings(settings).await
    }

    /// What has to be accounted for in a statement that shows no code itself, but may run what an
    /// earlier one of the transaction has left: a cursor that code has opened, deferred triggers.
    pub(super) fn left_unseen(&self, plan: &Plan) -> Option<Unseen> {
        let transaction = &self.tx.transaction;
        let left = match plan {
            Plan::Data(DataPlan::Cursor { name: Some(name), close: false }) => {
                match self.tx.cursors.get(name) {
                    // It runs none.
                    Some(cursor) if cursor.beside.is_some() => None,
                    Some(_) => transaction.unseen.as_deref(),
                    None => transaction.unseen_ran.as_deref(),
                }
            }
            Plan::Session(SessionPlan::Setting(Setting::SetConstraints { .. }))
                if transaction.defers_unseen =>
            {
                transaction.unseen_ran.as_deref()
            }
            _ => None,
        };
        left.cloned()
    }

    /// Before a commit: runs the triggers that the commit would run too late to be asked about.
    pub(crate) async fn run_deferred(&mut self) -> Result<(), Failure> {
        if !self.tx.transaction.defers_unseen || self.tx.catalog.is_solo() {
            return Ok(());
        }
        let Some(unseen) = self.tx.transaction.unseen_ran.clone() else { return Ok(()) };
        self.begin_accounting(&unseen, &Plan::Session(SessionPlan::Empty), "", &Call::Simple);
        let ran = self.fire_deferred().await;
        self.finish_accounting(ran).await
    }

    async fn fire_deferred(&mut self) -> Result<(), Failure> {
        self.mark(NodeId::HOME).await?;
        let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        let names = link.query("SELECT tutti.deferred()").await?;
        let Some(names) = names.first().and_then(|rows| rows.text(0, 0)) else { return Ok(()) };
        let named = format!("{CHANGES}SET CONSTRAINTS {names} IMMEDIATE; {CHANGES}");
        // With the checks that are deferred, in the order in which all were queued.
        let mut fired = link.query(&format!("{CHANGES}{RUN_DEFERRED}{CHANGES}")).await;
        let mut notices = Vec::new();
        let is_otherwise_at_commit = match &fired {
            Ok(answers) => !keeps_order(answers),
            Err(NodeError::Refused(fields)) => may_be_mended(fields),
            Err(_) => false,
        };
        // At COMMIT, checks of what a trigger has done run after all triggers. A check that fails without
        // any trigger fails there too.
        if is_otherwise_at_commit {
            notices = link.connection().take_notices();
            link.query(UNDO_DEFERRED).await?;
            if fired.is_ok() || checks_hold(link).await? {
                notices.clear();
                fired = link.query(&named).await;
            }
        }
        notices.extend(link.connection().take_notices());
        for notice in notices {
            self.client.pass_notice(&notice);
        }
        if !keeps_order(&fired?) {
            return Err(Refusal::unsupported(
                "a deferred trigger of this transaction makes other deferred triggers run",
                "At COMMIT these would run behind all others. What code does that the gateway has not \
                 read is asked for before COMMIT, where they run at once.",
                "Say by tutti_function where the triggers' functions may run, or run them before COMMIT \
                 by SET CONSTRAINTS ALL IMMEDIATE.",
            )
            .into());
        }
        Ok(())
    }

    /// What code has set on node 1 holds on the transaction's other nodes too. How long it lasts is
    /// asked after the transaction.
    async fn copy_settings(
        &mut self,
        settings: Vec<(String, Option<String>)>,
    ) -> Result<(), Failure> {
        let mut names_change = false;
        for (name, value) in settings {
            let Some(value) = value else { continue };
            names_change |= is_scope_setting(&name);
            let sql = format!(
                "SELECT pg_catalog.set_config({}, {}, true)",
                quote_literal(&name),
                quote_literal(&value)
            );
            let others = self.tx.transaction.nodes.keys().copied().filter(|n| *n != NodeId::HOME);
            for node in others.collect::<Vec<_>>() {
                self.tx.link(node).await?.put_silent(&sql);
            }
            self.tx.transaction.push_setting(&sql, None);
        }
        if names_change {
            self.tx.transaction.scope_changed = true;
            self.tx.refresh_scope().await?;
        }
        Ok(())
    }

    /// Declares where a function may run. One that may run anywhere is created where it is missing.
    pub(super) async fn declare_function(
        &mut self,
        function: &str,
        declared: Option<Declaration>,
    ) -> Result<String, Failure> {
        self.need_transaction();
        let cast = if function.contains('(') { "regprocedure" } else { "regproc" };
        let named = format!("{}::pg_catalog.{cast}::pg_catalog.oid", quote_literal(function));
        let registry = self.tx.registry.clone();
        let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        let found = link.query(&format!("SELECT {named}")).await?;
        let oid = found.first().and_then(|rows| rows.text(0, 0)).unwrap_or("0").to_owned();
        link.learn_moment().await?;
        let seal = registry.cluster.seals.seal_now(link.connection(), &format!("declare {oid}"));
        let kind = declared.map_or("NULL".to_owned(), |kind| quote_literal(kind.as_str()));
        let sql = format!(
            "SELECT tutti.declare('{oid}', {kind}, $1), \
             pg_catalog.pg_get_functiondef({oid}), \
             pg_catalog.format('%I.%I(%s)', n.nspname, p.proname, \
                 pg_catalog.pg_get_function_identity_arguments(p.oid)) \
             FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
             WHERE p.oid OPERATOR(pg_catalog.=) {oid}"
        );
        let rows = link.query_with(&sql, vec![seal]).await?;
        let text = |column| rows.last().and_then(|rows| rows.text(0, column)).unwrap_or_default();
        let (signature, definition) = (text(0).to_owned(), text(1).to_owned());
        if declared == Some(Declaration::Row) && tells_time(&definition) {
            let message = format!("{signature} tells the time of the node that it runs on");
            let notice = ErrorFields::with_severity("NOTICE", "00000", message)
                .with(
                    b'D',
                    "now() and its kin are when the transaction began on that node: rows of one \
                     transaction may have several times.",
                )
                .with(b'H', "Let the client give the time, or a default of the column.");
            self.client.put_notice(&notice);
        }
        let others = match declared {
            Some(Declaration::Row | Declaration::Replicated) if !self.tx.catalog.is_solo() => {
                self.other_nodes()
            }
            _ => Vec::new(),
        };
        for node in others {
            let sql = format!("SELECT pg_catalog.to_regprocedure({})", quote_literal(&signature));
            let link = self.tx.enlist(node, Access::Write).await?;
            let found = link.query(&sql).await?;
            if found.first().and_then(|rows| rows.text(0, 0)).is_none() {
                link.put_warrant(false);
                link.query(&definition).await?;
            }
        }
        let ddl = Ddl { may_drop: true, scope: DdlNodes::Home, ..Ddl::default() };
        self.after_ddl(&ddl, &[]).await?;
        Ok(match declared {
            Some(kind) => format!("{signature} is declared '{}'", kind.as_str()),
            None => format!("nothing is declared of {signature}"),
        })
    }

    /// Settings with a dot that the statement may concern, as an SQL array.
    fn setting_names(&mut self, text: &str, call: &Call) -> String {
        let mut names: BTreeSet<String> = self.tx.catalog.code.setting_names();
        names.extend(tutti_sql::closure::dotted_names(text).take(CANDIDATES_MAX));
        if let Call::Extended { arguments, .. } = call.client() {
            let values = arguments.values.iter().flatten();
            let texts = values.filter_map(|value| std::str::from_utf8(value).ok());
            let texts = texts.filter(|text| text.len() < 64);
            names.extend(texts.flat_map(tutti_sql::closure::dotted_names).take(CANDIDATES_MAX));
        }
        // They are asked for again when the session is no longer in a transaction.
        self.tx.note_settings(&names);
        let names: Vec<_> = names.iter().map(|name| quote_literal(name)).collect();
        format!("ARRAY[{}]::pg_catalog.text[]", names.join(", "))
    }
}

impl Accounting {
    /// Whether a table, as a node writes its name, is one whose rows travel. A name may be quoted.
    fn travels(&self, name: &str) -> bool {
        self.travelling.iter().any(|table| is_called(table, name))
    }

    /// Whether it is one that is whole for the statement.
    fn lends(&self, name: &str) -> bool {
        self.lent.iter().any(|table| is_called(table, name))
    }

    fn names(&self) -> &str {
        self.names.as_deref().unwrap_or("NULL")
    }

    fn refusal(&self, did: &str, table: &str, placement: &str) -> Failure {
        let reason = self.unseen.reason.as_deref().unwrap_or("a function of this statement");
        let code = code_of(reason);
        if placement == "home" || (placement == "replicated" && did == "reads") {
            return Failure::unsupported(
                "this statement would see two moments of the cluster",
                format!(
                    "It brings rows of distributed tables together, and {code} has then read \
                     {table}: at READ COMMITTED that is a later snapshot."
                ),
                "Run it in a transaction with ISOLATION LEVEL REPEATABLE READ.",
            );
        }
        if table.is_empty() {
            return self.schema_refusal(&format!("a {placement} table, which it dropped"));
        }
        let (message, detail) = match placement {
            "replicated" => (
                format!("{code} cannot write replicated table {table}"),
                format!("It ran on node 1, whose copy alone it has changed: {reason}."),
            ),
            "async" | "async_pending" | "async_ending" => (
                format!("{code} cannot use {table}, which is replicated asynchronously"),
                format!(
                    "It ran on node 1, where rows of the table may be late, and not at the homes of these rows: \
                     {reason}."
                ),
            ),
            _ => (
                format!("{code} cannot use distributed table {table}"),
                format!("It ran on node 1, which has a part of the rows only: {reason}."),
            ),
        };
        let hint = "Nothing was done. Send its statements from the client; or keep the tables that \
                    it uses on node 1 (tutti_home). For a trigger whose tables have its row's key: \
                    SELECT tutti_function('function', 'row').";
        Failure::unsupported(message, detail, hint)
    }

    fn schema_refusal(&self, changed: &str) -> Failure {
        let reason = self.unseen.reason.as_deref().unwrap_or("a function of this statement");
        Failure::unsupported(
            format!("{} cannot change {changed}", code_of(reason)),
            format!("It ran on node 1 alone, and other nodes would differ: {reason}."),
            "Nothing was done. Send the statements that change the schema from the client.",
        )
    }
}

/// Whether a statement's error may be what its code has made of the rows that it saw: not if it was
/// ended, or refused by the gateway.
fn may_come_of_rows(failure: &Failure) -> bool {
    match failure {
        Failure::Statement(error) => {
            let sqlstate = error.sqlstate();
            sqlstate != "0A000" && !sqlstate.starts_with("57") && !sqlstate.starts_with("08")
        }
        Failure::Client(_) => false,
    }
}

/// Whether a text may ask for the time of its transaction.
fn tells_time(text: &str) -> bool {
    const NAMES: [&str; 7] = [
        "now()",
        "current_timestamp",
        "current_time",
        "current_date",
        "localtime",
        "transaction_timestamp",
        "statement_timestamp",
    ];
    let text = text.to_ascii_lowercase();
    NAMES.iter().any(|name| text.contains(name))
}

/// `function f()` of `function f() reads …`.
fn code_of(reason: &str) -> String {
    let end = reason.find("() ").map_or(reason.len(), |end| end + 2);
    let reason = reason.strip_suffix(" runs its query").unwrap_or(reason);
    let end = end.min(reason.len());
    match reason.strip_prefix("this DO block") {
        Some(_) => "this DO block".to_owned(),
        None => reason[..end].to_owned(),
    }
}

/// For a function call that came as a protocol message.
pub(crate) fn of_function_call() -> Unseen {
    Unseen {
        reason: Some("the function that was called has code that is not looked at".to_owned()),
        sets: true,
        catches: true,
        samples: true,
        one_snapshot: false,
    }
}

/// A cursor whose rows are computed at COMMIT, where what they come from is not asked.
pub(crate) fn held_beyond_block() -> Failure {
    Failure::unsupported(
        "a cursor WITH HOLD over code that the gateway does not see cannot be declared in a transaction",
        "Its rows would be computed at COMMIT, and until then a table may be spread that the code reads.",
        "Declare it outside of a transaction, or without HOLD.",
    )
}

/// Its query would run at the COMMIT, and what it touches is not asked then.
fn held_by_code(name: &str) -> Failure {
    Failure::unsupported(
        format!("cursor \"{name}\" WITH HOLD, which code has declared"),
        "Its query runs when the transaction commits, where what it touches is not asked.",
        "Declare it by a statement of the client's, or without WITH HOLD.",
    )
}

/// For callers that could not refuse earlier: nothing of a transaction's cursor may be read without being
/// accounted for.
pub(crate) fn cursor_of_unseen_code() -> Failure {
    ErrorFields::error("0A000", "this cursor cannot be read by a message of the protocol")
        .with(b'D', "Its query runs code that the gateway does not see.")
        .with(b'H', "Use FETCH.")
        .into()
}

/// Whether all keys and foreign keys that the transaction has deferred to COMMIT hold. Requires: the
/// transaction continues after this.
async fn checks_hold(home: &mut Link) -> Result<bool, Failure> {
    let checks = home.query("SELECT tutti.deferred_checks()").await?;
    let Some(checks) = checks.first().and_then(|rows| rows.text(0, 0)) else { return Ok(true) };
    let checked =
        home.query(&format!("SAVEPOINT tutti_commit; SET CONSTRAINTS {checks} IMMEDIATE")).await;
    let holds = match checked {
        Ok(_) => true,
        Err(NodeError::Refused(_)) => false,
        Err(error) => return Err(error.into()),
    };
    home.query(UNDO_DEFERRED).await?;
    Ok(holds)
}

/// Whether a node writes the table's name so.
fn is_called((schema, table): &(String, String), name: &str) -> bool {
    [schema.clone(), quote_identifier(schema)].iter().any(|schema| {
        let rest = name.strip_prefix(&**schema).and_then(|rest| rest.strip_prefix('.'));
        rest.is_some_and(|rest| rest == table || rest == quote_identifier(table))
    })
}
