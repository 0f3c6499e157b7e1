//! SET, SHOW, RESET and DISCARD: what changes the session's own settings.
//!
//! Owns: carrying them out, on the nodes that must learn of them.
//! Never: keeps what is set (`transaction::settings` does).

use tutti_link::connection::is_refused_setting;
use tutti_sql::catalog::{NodeId, quote_identifier};
use tutti_sql::plan::{Access, Setting};
use tutti_sql::settings::{COMMIT, FOREIGN_KEYS, check_value};
use tutti_wire::error_fields::ErrorFields;

use crate::client::failure::Failure;
use crate::plans::request::{Call, Done};
use crate::session::Session;
use crate::transaction::settings::{
    IDLE_SETTINGS, PINNED, RESET, SCOPE_SETTINGS, SETTINGS_BYTES_MAX, is_own_setting,
    is_placeholder, isolation_differs, misread, put_notices, set_constraints_elsewhere, set_sql,
};
use crate::transaction::{Characteristics, Mode};

impl Session {
    /// Runs SET, RESET, SHOW, DISCARD… A failure after node 1's answer fails the statement, whose tag the
    /// client then does not get.
    pub(crate) async fn execute_setting(
        &mut self,
        setting: &Setting,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let outer = self.client.take_capture();
        self.client.begin_capture(usize::MAX);
        let ran = self.apply_setting(setting, text, call).await;
        let said = self.client.end_capture().unwrap_or_default();
        self.client.resume_capture(outer);
        match &ran {
            Ok(_) => self.client.out().extend_from_slice(&said),
            Err(_) => put_notices(self.client.out(), &said)?,
        }
        ran
    }

    async fn apply_setting(
        &mut self,
        setting: &Setting,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let bytes = self.tx.settings.bytes + self.tx.transaction.settings_bytes() + text.len();
        let is_more = matches!(
            setting,
            Setting::Set { .. } | Setting::SetLocal { .. } | Setting::SetConfig { .. }
        );
        if is_more && SETTINGS_BYTES_MAX < bytes {
            let message =
                format!("the settings of a session take more than {SETTINGS_BYTES_MAX} bytes");
            return Err(ErrorFields::error("54000", message)
                .with(
                    b'D',
                    "They are set anew on every connection to a node that the session gets.",
                )
                .into());
        }
        if let Setting::Set { name }
        | Setting::SetLocal { name, .. }
        | Setting::Reset { name }
        | Setting::SetConfig { name, .. } = setting
        {
            self.tx.settings.has_placeholders |= is_placeholder(name);
        }
        match setting {
            Setting::Show { name } if is_own_setting(name) => {
                if [COMMIT, FOREIGN_KEYS].contains(&name.as_str())
                    && (self.tx.must_refresh_scope() || self.tx.scope_state.is_due)
                {
                    self.tx.refresh_scope().await?;
                }
                let text = match name.as_str() {
                    PINNED => self.tx.bindings_text(),
                    COMMIT => self.tx.settings.commit.name().to_owned(),
                    FOREIGN_KEYS => match self.tx.settings.global_foreign_keys {
                        true => "global".to_owned(),
                        false => "colocated".to_owned(),
                    },
                    _ => self.tx.registry.pool.census(),
                };
                self.executor().show(name, &text, call);
                Ok(Done::Tag("SHOW".to_owned()))
            }
            Setting::Show { .. } => self.run_on_speaker(text, call).await,
            Setting::Set { name } | Setting::SetLocal { name, .. }
                if is_refused_setting(name, text) =>
            {
                Err(misread(name))
            }
            Setting::SetConfig { name, value: Some(value), .. }
                if is_refused_setting(name, value) =>
            {
                Err(misread(name))
            }
            Setting::SetConfig { name, value: Some(value), .. }
                if let Err(refusal) = check_value(name, value) =>
            {
                Err(refusal.into())
            }
            Setting::Set { name } => self.set_everywhere(name, text, true, call).await,
            Setting::Reset { name } => self.reset(name, text, call).await,
            Setting::SetLocal { name, to_default } => {
                self.hold_local_settings("SET LOCAL", call);
                if self.tx.transaction.mode == Mode::None {
                    return self.run_on_speaker(text, call).await;
                }
                self.tx.hold_what_it_began_with().await?;
                match self.tx.settings.startup_value(name).filter(|_| *to_default) {
                    Some(value) => {
                        let sql = set_sql(name, value).replacen("SET ", "SET LOCAL ", 1);
                        self.set_everywhere(name, &sql, false, call).await
                    }
                    None => self.set_everywhere(name, text, false, call).await,
                }
            }
            Setting::SetConstraints { names, deferred } => {
                if !deferred {
                    // What was left to the end runs now.
                    self.tx.begin_late_calls().await?;
                    if self.tx.transaction.own_is_stale {
                        Box::pin(self.executor().reload_own_catalog()).await?;
                    }
                    self.tx.refuse_own_late_calls().await?;
                    Box::pin(self.executor().check_deferred_references(Some(names))).await?;
                }
                self.tx.transaction.set_constraints.push((names.clone(), *deferred));
                self.hold_local_settings("SET CONSTRAINTS", call);
                let done = self.run_on_speaker(text, call).await?;
                let sql = set_constraints_elsewhere(names, *deferred, text);
                self.remember_setting("", &sql, false, true).await?;
                if !deferred {
                    self.hear_what_was_deferred().await?;
                    if names.is_empty() {
                        self.tx.forget_late_calls();
                    }
                }
                Ok(done)
            }
            Setting::SetConfig { name, value, local } => {
                let done = self.run_on_speaker(text, call).await?;
                // The text may contain parameters or settings that only the function form spells,
                // so other nodes get the function form with the constants.
                let literal = value
                    .as_deref()
                    .map_or_else(|| "NULL".to_owned(), tutti_sql::catalog::quote_literal);
                let sql = format!(
                    "SELECT pg_catalog.set_config({}, {literal}, {local})",
                    tutti_sql::catalog::quote_literal(name)
                );
                self.remember_setting(name, &sql, !local, true).await?;
                Ok(done)
            }
            Setting::SetTransaction { modes, session, snapshot } => {
                let given = Characteristics::try_from(modes)?;
                self.set_transaction(&given, *session, *snapshot, text, call).await
            }
            Setting::ResetAll if self.tx.transaction.is_open() => {
                let done = self.run_on_speaker(text, call).await?;
                self.reset_all_if_committed().await?;
                self.tx.renew_scope_in_time().await?;
                Ok(done)
            }
            Setting::ResetAll => {
                self.tx.hold_what_it_began_with().await?;
                let done = self.set_everywhere("", text, false, call).await?;
                self.reset_all(false).await;
                self.tx.renew_scope().await?;
                Ok(done)
            }
            Setting::Discard { what } => self.discard(what, text, call).await,
        }
    }

    /// SET CONSTRAINTS … IMMEDIATE checks what was deferred: an error belongs to this statement.
    async fn hear_what_was_deferred(&mut self) -> Result<(), Failure> {
        let speaker = self.tx.speaker();
        for node in self.tx.transaction.nodes.keys().copied().collect::<Vec<_>>() {
            let Some(link) = self.tx.links.get_mut(&node).filter(|_| node != speaker) else {
                continue;
            };
            link.connection().flush().await?;
            if let Some(error) = link.catch_up().await? {
                let mut fields = error.to_fields();
                // The block that it was asked in is the gateway's own.
                fields.fields.retain(|(code, _)| *code != b'W');
                return Err(fields.into());
            }
        }
        Ok(())
    }

    /// RESET, and SET … TO DEFAULT: back to what the startup packet said, else the server's default.
    async fn reset(&mut self, name: &str, text: &str, call: &Call) -> Result<Done, Failure> {
        self.tx.hold_what_it_began_with().await?;
        let Some(value) = self.tx.settings.startup_value(name).map(str::to_owned) else {
            let sql = format!("{RESET}{}", quote_identifier(name));
            let done = self.run_on_speaker(text, call).await?;
            self.remember_setting(name, &sql, true, true).await?;
            return Ok(done);
        };
        let sql = set_sql(name, &value);
        let speaker = self.tx.speaker();
        self.tx.enlist(speaker, Access::Read).await?.query(&sql).await?;
        self.pass_reports_on();
        self.remember_setting(name, &sql, true, true).await?;
        let is_reset = text.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("reset"));
        Ok(Done::Tag(if is_reset { "RESET" } else { "SET" }.to_owned()))
    }

    /// RESET ALL went to all links; the startup packet's settings are sent after it.
    async fn reset_all(&mut self, role_too: bool) {
        self.tx.settings.clear(role_too);
        let state = self.tx.settings.state().clone();
        let nodes: Vec<_> = self.tx.links.keys().copied().collect();
        for node in nodes {
            if !state.sql().is_empty() {
                self.set_outside(node, state.sql()).await;
            }
            if let Some(link) = self.tx.links.get_mut(&node) {
                link.state = state.clone();
            }
        }
        self.pass_reports_on();
    }

    /// RESET ALL in a transaction, which is a step of it and undone with it: on each node, after it, the
    /// startup packet's settings.
    async fn reset_all_if_committed(&mut self) -> Result<(), Failure> {
        let startup = self.tx.settings.startup.iter().map(|(name, value)| set_sql(name, value));
        let sql: Vec<_> = std::iter::once("RESET ALL".to_owned()).chain(startup).collect();
        self.remember_setting("", &sql.join("; "), true, false).await?;
        self.tx.transaction.scope_changed = true;
        // The client is told a setting's value after both steps, and not between them.
        let speaker = self.tx.speaker();
        if let Some(link) = self.tx.links.get_mut(&speaker) {
            link.catch_up_early().await?;
        }
        self.pass_reports_on();
        Ok(())
    }

    async fn set_everywhere(
        &mut self,
        name: &str,
        text: &str,
        outlives: bool,
        call: &Call,
    ) -> Result<Done, Failure> {
        let done = self.run_on_speaker(text, call).await?;
        self.remember_setting(name, text, outlives, true).await?;
        Ok(done)
    }

    /// What a node decides for all: node 1, unless it is away.
    async fn run_on_speaker(&mut self, text: &str, call: &Call) -> Result<Done, Failure> {
        let speaker = self.tx.speaker();
        self.executor().run_on_one(speaker, Access::Read, text, call).await
    }

    /// The node that speaks for all has accepted a setting: the others follow, now or when they join.
    async fn remember_setting(
        &mut self,
        name: &str,
        sql: &str,
        outlives: bool,
        speaker_has_it: bool,
    ) -> Result<(), Failure> {
        let in_transaction = self.tx.transaction.is_open();
        let speaker = self.tx.speaker();
        let nodes: Vec<_> = self
            .tx
            .links
            .keys()
            .copied()
            .filter(|node| !(speaker_has_it && *node == speaker))
            .filter(|node| !in_transaction || self.tx.transaction.nodes.contains_key(node))
            .collect();
        for node in nodes {
            if !in_transaction {
                self.set_outside(node, sql).await;
                continue;
            }
            // In a transaction the setting itself may be a query that needs the snapshot.
            let link = self.tx.enlist(node, Access::Read).await?;
            link.put_silent(sql);
            link.connection().flush().await?;
        }
        if in_transaction {
            self.tx.transaction.push_setting(sql, outlives.then(|| name.to_owned()));
        } else if outlives {
            self.tx.settings.keep(name, sql);
            let state = self.tx.settings.state();
            for link in self.tx.links.values_mut() {
                link.state = state.clone();
            }
        }
        if SCOPE_SETTINGS.contains(&name) {
            self.tx.transaction.scope_changed |= in_transaction;
            match IDLE_SETTINGS.contains(&name) {
                true => self.tx.renew_scope().await?,
                false => self.tx.renew_scope_in_time().await?,
            }
        }
        Ok(())
    }

    async fn set_transaction(
        &mut self,
        given: &Characteristics,
        session: bool,
        snapshot: bool,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if snapshot {
            return Err(Failure::unsupported(
                "SET TRANSACTION SNAPSHOT is not supported",
                "An exported snapshot belongs to one node, a transaction here may use several.",
                "Use one transaction for what has to be read together.",
            ));
        }
        if session {
            let done = self.run_on_speaker(text, call).await?;
            // Each is a setting in its own right, known to other forms of SET and RESET.
            for (name, value) in given.as_defaults() {
                let sql = set_sql(name, value);
                self.remember_setting(name, &sql, true, true).await?;
            }
            return Ok(done);
        }
        self.hold_local_settings("SET TRANSACTION", call);
        match self.tx.transaction.mode {
            // Node 1 words the warning.
            Mode::None => self.run_on_speaker(text, call).await,
            Mode::Implicit | Mode::Explicit => self.set_transaction_modes(given, text, call).await,
        }
    }

    /// What is set LOCAL in a flight lasts until its Sync; and PostgreSQL warns that this is no block.
    fn hold_local_settings(&mut self, what: &str, call: &Call) {
        if !call.is_extended() || self.tx.transaction.mode == Mode::Explicit {
            return;
        }
        if self.tx.transaction.mode == Mode::None && self.client.comes_to_sync() {
            // Nothing follows that it could apply to; node 1 words the warning.
            return;
        }
        self.executor().need_transaction();
        let warning = format!("{what} can only be used in transaction blocks");
        self.client.put_notice(&ErrorFields::with_severity("WARNING", "25P01", warning));
    }

    /// SET TRANSACTION in a transaction: what it is from now on, on all its nodes.
    pub(super) async fn set_transaction_modes(
        &mut self,
        given: &Characteristics,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let has_savepoint = self.tx.transaction.last_savepoint().is_some();
        let now = self.tx.transaction.characteristics_now();
        let now = now.isolation.or(self.tx.settings.characteristics.isolation);
        let changes_level = isolation_differs(now, given);
        if has_savepoint && !self.tx.transaction.queried && changes_level {
            let message = "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction";
            return Err(ErrorFields::error("25001", message).into());
        }
        if !has_savepoint && self.tx.transaction.nodes.is_empty() {
            self.tx.transaction.characteristics.update(given);
            return Ok(Done::Tag("SET".to_owned()));
        }
        if !has_savepoint && !self.tx.transaction.queried {
            // Nodes that join later begin with it; those that take part already are told.
            self.tx.transaction.characteristics.update(given);
            let done = self.run_on_speaker(text, call).await?;
            self.tell_other_nodes(text).await?;
            return Ok(done);
        }
        if changes_level {
            let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
            return Err(ErrorFields::error("25001", message).into());
        }
        if given.read_only == Some(true) {
            // Later it could not insert one; nor on node 1, which joins for this.
            self.tx.enlist(NodeId::HOME, Access::Read).await?;
            self.tx.insert_tickets().await?;
        }
        let done = self.run_on_speaker(text, call).await?;
        self.tell_other_nodes(text).await?;
        // ROLLBACK TO undoes it.
        self.tx.transaction.push_modes(text, given.clone());
        Ok(done)
    }

    /// The node that speaks for all has accepted it: the others of the transaction follow.
    async fn tell_other_nodes(&mut self, text: &str) -> Result<(), Failure> {
        let speaker = self.tx.speaker();
        let others = self.tx.transaction.nodes.keys().copied().filter(|node| *node != speaker);
        for node in others.collect::<Vec<_>>() {
            let link = self.tx.link(node).await?;
            link.put_silent(text);
            link.connection().flush().await?;
        }
        Ok(())
    }

    async fn discard(&mut self, what: &str, text: &str, call: &Call) -> Result<Done, Failure> {
        if what == "all" && self.tx.transaction.is_open() {
            let message = "DISCARD ALL cannot run inside a transaction block";
            return Err(ErrorFields::error("25001", message).into());
        }
        let done = self.run_on_speaker(text, call).await?;
        let speaker = self.tx.speaker();
        let others: Vec<_> =
            self.tx.links.keys().copied().filter(|node| *node != speaker).collect();
        for node in others {
            match self.tx.transaction.is_open() {
                true => drop(self.tx.link(node).await?.query(text).await?),
                false => self.set_outside(node, text).await,
            }
        }
        if what == "all" {
            for link in self.tx.links.values_mut() {
                link.known.clear();
                link.sql_statements.clear();
                link.unnamed = None;
            }
            self.reset_all(true).await;
            self.tx.statements.clear();
            self.tx.portals.clear();
            self.tx.cursors.clear();
            self.tx.listening = false;
        }
        if matches!(what, "all" | "temp") {
            self.tx.renew_scope().await?;
        }
        Ok(done)
    }

    /// Where no transaction is open, the answer is awaited: a statement must not run where a setting was
    /// refused. A connection that has not accepted it is no longer the session's.
    async fn set_outside(&mut self, node: NodeId, sql: &str) {
        let Some(link) = self.tx.links.get_mut(&node) else { return };
        if let Err(error) = link.ask(sql).await {
            tracing::debug!(%node, %error, "a connection does not follow a setting");
            self.tx.links.remove(&node);
            self.tx.end_if_bound(node);
        }
    }

    /// The transaction committed: its settings are the session's, also on nodes that were not in it.
    pub(crate) async fn adopt_settings(&mut self) {
        let kept: Vec<(String, String)> = self
            .tx
            .transaction
            .kept_settings()
            .map(|(name, sql)| (name.to_owned(), sql.to_owned()))
            .collect();
        if kept.is_empty() {
            return;
        }
        let outside: Vec<_> = self
            .tx
            .links
            .keys()
            .copied()
            .filter(|node| !self.tx.transaction.nodes.contains_key(node))
            .collect();
        for (name, sql) in &kept {
            match name.is_empty() {
                true => self.tx.settings.clear(false),
                false => self.tx.settings.keep(name, sql),
            }
        }
        let sql = kept.iter().map(|(_, sql)| sql.as_str()).collect::<Vec<_>>().join("; ");
        for node in outside {
            self.set_outside(node, &sql).await;
        }
        let state = self.tx.settings.state();
        for link in self.tx.links.values_mut() {
            link.state = state.clone();
        }
    }
}
