//! SET and its kin: what a session has set, on every node it uses.
//!
//! Owns: the settings that outlive transactions, which every connection gets that the session borrows.
//! Never: interprets a value, but for what names and isolation depend on.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use tutti_sql::catalog::{NodeId, quote_identifier, quote_literal};
use tutti_sql::plan::{Access, Setting};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::{WireError, frame_len};

use super::{Characteristics, Mode, Session};
use crate::client::failure::Failure;
use crate::executor::{Call, Done};
use tutti_link::connection::is_refused_setting;
use tutti_link::pool::SessionState;

/// How a RESET of ours begins.
const RESET: &str = "RESET ";
/// What a session has set, and is setting in its transaction, may take so much memory.
const SETTINGS_BYTES_MAX: usize = 16 << 20;
/// The gateway's own setting that says what binds connections to the session.
const PINNED: &str = "tutti.pinned";
/// And the one that counts the gateway's connections to nodes.
const POOL: &str = "tutti.pool";
/// Settings that count from the end of the statement that sets them.
const IDLE_SETTINGS: [&str; 2] = ["idle_in_transaction_session_timeout", "idle_session_timeout"];
/// Settings after which names may mean something else, transactions be of another kind, or idle
/// clients be sent away.
const SCOPE_SETTINGS: [&str; 7] = [
    IDLE_SETTINGS[0],
    IDLE_SETTINGS[1],
    "search_path",
    "role",
    "session_authorization",
    "default_transaction_isolation",
    "default_transaction_read_only",
];

/// What the session has set outside transactions, or in ones that committed.
#[derive(Debug, Default)]
pub struct Settings {
    /// Name and value: where RESET goes back to if not to what the servers say. First what the session
    /// began with and new sessions would not, then what the startup packet said.
    startup: Vec<(String, String)>,
    /// How many of the former there are.
    held: usize,
    /// By name.
    kept: BTreeMap<String, Kept>,
    /// How many times something was kept.
    turns: u64,
    /// Bytes of all that is kept.
    bytes: usize,
    /// Of what is kept now; made when somebody asks, for many settings may come at once.
    state: OnceLock<Arc<SessionState>>,
    /// What was set of the role, as SQL; likewise.
    role: OnceLock<String>,
    /// Values that code has left, as node 1 said last.
    learnt: BTreeMap<String, String>,
    /// Names with a dot have been set, if only for a transaction.
    pub has_placeholders: bool,
    /// Session default of isolation level and access mode, as node 1 says.
    pub characteristics: Characteristics,
    /// How long the client may be idle, as node 1 says.
    pub idle: IdleTimeouts,
}

/// A setting of the session's.
#[derive(Debug)]
struct Kept {
    /// They are set in this order.
    turn: u64,
    sql: String,
}

/// After how much silence the client is sent away; `None`: never.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct IdleTimeouts {
    /// `idle_in_transaction_session_timeout`.
    pub in_transaction: Option<Duration>,
    /// `idle_session_timeout`.
    pub outside: Option<Duration>,
}

impl Settings {
    /// Of a session that begins with these (name and value).
    pub fn of_startup(startup: Vec<(String, String)>) -> Self {
        let has_placeholders = startup.iter().any(|(name, _)| is_placeholder(name));
        Self { startup, has_placeholders, ..Self::default() }
    }

    /// Holds on to what the session began with, by name and value: connections that are opened from now
    /// on begin with something else. Earlier such values are forgotten; the startup packet's win.
    pub fn hold(&mut self, begun_with: Vec<(String, String)>) {
        let of_packet = self.startup.split_off(self.held);
        self.startup = begun_with;
        self.startup.retain(|(name, _)| of_packet.iter().all(|(known, _)| known != name));
        self.held = self.startup.len();
        self.startup.extend(of_packet);
        self.has_placeholders |= self.startup.iter().any(|(name, _)| is_placeholder(name));
        self.renew_state();
    }

    /// Remembers a setting; an older one of the same name is forgotten. RESET only forgets.
    pub fn keep(&mut self, name: &str, sql: &str) {
        self.has_placeholders |= is_placeholder(name);
        self.forget(name);
        if name == "session_authorization" {
            // A session that is somebody else's begins without a role of its own.
            self.forget("role");
        }
        if !sql.starts_with(RESET) {
            self.turns += 1;
            self.bytes += sql.len();
            self.kept.insert(name.to_owned(), Kept { turn: self.turns, sql: sql.to_owned() });
        }
        self.renew_state();
    }

    fn forget(&mut self, name: &str) {
        if let Some(forgotten) = self.kept.remove(name) {
            self.bytes -= forgotten.sql.len();
        }
    }

    /// Remembers a value that node 1 says the session has. False: it is not new.
    pub fn learn(&mut self, name: &str, value: &str) -> bool {
        let known = self.learnt.insert(name.to_owned(), value.to_owned());
        let sql = set_sql(name, value);
        let is_kept = self.kept.get(name).is_some_and(|kept| kept.sql == sql);
        if is_kept && known.as_deref() == Some(value) {
            return false;
        }
        self.keep(name, &sql);
        true
    }

    /// Whether it has been set.
    pub fn has_set(&self, name: &str) -> bool {
        self.kept.contains_key(name)
    }

    /// Names of what is set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.kept.keys().map(String::as_str).filter(|name| !name.is_empty())
    }

    /// RESET ALL, which leaves the session the role that it has, or more.
    pub fn clear(&mut self, role_too: bool) {
        self.kept.retain(|name, _| !role_too && is_role(name));
        self.bytes = self.kept.values().map(|kept| kept.sql.len()).sum();
        self.characteristics = Characteristics::default();
        self.renew_state();
    }

    /// What connections are brought to.
    pub fn state(&self) -> &Arc<SessionState> {
        self.state.get_or_init(|| {
            let kept = self.in_order(|_| true);
            Arc::new(SessionState::new(&self.startup, kept.into_iter()))
        })
    }

    /// What was set of the role, as SQL.
    pub fn role(&self) -> &str {
        self.role.get_or_init(|| self.in_order(is_role).join("; "))
    }

    /// SQL of what is set of some names.
    fn in_order(&self, wanted: impl Fn(&str) -> bool) -> Vec<&str> {
        let mut kept: Vec<_> =
            self.kept.iter().filter(|(name, _)| wanted(name)).map(|(_, kept)| kept).collect();
        kept.sort_unstable_by_key(|kept| kept.turn);
        kept.into_iter().map(|kept| kept.sql.as_str()).collect()
    }

    fn startup_value(&self, name: &str) -> Option<&str> {
        self.startup.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn renew_state(&mut self) {
        self.state = OnceLock::new();
        self.role = OnceLock::new();
    }
}

fn is_role(name: &str) -> bool {
    ["role", "session_authorization"].contains(&name)
}

/// Servers that are set so read other statements out of a text than the gateway.
fn misread(name: &str) -> Failure {
    let (message, hint) = match name {
        "client_encoding" => {
            ("client encodings other than UTF8 are not supported", "SET client_encoding = 'UTF8'.")
        }
        _ => (
            "standard_conforming_strings = off is not supported",
            "Leave it on, and write E'...' where backslashes shall escape.",
        ),
    };
    let detail = "The gateway and the nodes would read different statements out of one text.";
    Failure::unsupported(message, detail, hint)
}

/// SET to a value as the server shows it. A query (`set_config`) would cost a transaction its snapshot,
/// and with it the choice of its isolation level.
fn set_sql(name: &str, value: &str) -> String {
    // Of these SET takes each name by itself.
    const LISTS: [&str; 4] =
        ["search_path", "temp_tablespaces", "local_preload_libraries", "session_preload_libraries"];
    let value = match LISTS.contains(&name) {
        true => split_names(value).iter().map(|name| quote_literal(name)).collect(),
        false => vec![quote_literal(value)],
    };
    let name: Vec<_> = name.split('.').map(quote_identifier).collect();
    match value.is_empty() {
        true => format!("SET {} TO ''", name.join(".")),
        false => format!("SET {} TO {}", name.join("."), value.join(", ")),
    }
}

/// Names between commas, as PostgreSQL reads them: folded, unless in quotes.
fn split_names(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut name: Option<String> = None;
    let mut characters = list.chars().peekable();
    let mut is_quoted = false;
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                name.get_or_insert_default().push('"');
            }
            '"' => {
                is_quoted = !is_quoted;
                name.get_or_insert_default();
            }
            _ if is_quoted => name.get_or_insert_default().push(character),
            ',' => names.extend(name.take()),
            _ if character.is_ascii_whitespace() => (),
            _ => name.get_or_insert_default().push(character.to_ascii_lowercase()),
        }
    }
    names.extend(name);
    names
}

/// Whether it is a name that PostgreSQL takes without knowing it.
pub(super) fn is_placeholder(name: &str) -> bool {
    name.contains('.')
}

/// Whether names, or the kind of transactions, depend on this setting.
pub(crate) fn is_scope_setting(name: &str) -> bool {
    SCOPE_SETTINGS.contains(&name)
}

/// Whether it is the gateway that answers SHOW of this name.
pub(crate) fn is_own_setting(name: &str) -> bool {
    [PINNED, POOL].contains(&name)
}

/// SET CONSTRAINTS where those of tables of node 1 do not exist. Node 1 has accepted all names.
fn set_constraints_elsewhere(names: &[String], deferred: bool, text: &str) -> String {
    let mode = if deferred { "DEFERRED" } else { "IMMEDIATE" };
    if names.is_empty() {
        return text.to_owned();
    }
    let of_name = |name: &String| {
        let body = format!(
            "BEGIN SET CONSTRAINTS {name} {mode}; EXCEPTION WHEN undefined_object THEN NULL; END"
        );
        format!("DO LANGUAGE plpgsql {}", quote_literal(&body))
    };
    names.iter().map(of_name).collect::<Vec<_>>().join("; ")
}

/// Whether `given` asks for another level than the transaction has.
fn isolation_differs(now: Option<&str>, given: &Characteristics) -> bool {
    let now = now.unwrap_or("read committed");
    given.isolation.as_deref().is_some_and(|wanted| wanted != now)
}

/// Of these messages, the notices.
fn put_notices(out: &mut BytesMut, messages: &[u8]) -> Result<(), WireError> {
    let mut rest = messages;
    while let Some(len) = frame_len(rest)?.filter(|len| *len <= rest.len()) {
        let (message, behind) = rest.split_at(len);
        if message[0] == b'N' {
            out.extend_from_slice(message);
        }
        rest = behind;
    }
    Ok(())
}

impl Session {
    /// Runs SET, RESET, SHOW, DISCARD… What fails behind node 1's answer fails the statement, whose tag the
    /// client does not get then.
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
        let bytes = self.settings.bytes + self.transaction.settings_bytes() + text.len();
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
            self.settings.has_placeholders |= is_placeholder(name);
        }
        match setting {
            Setting::Show { name } if is_own_setting(name) => {
                let text = match name.as_str() {
                    PINNED => self.bindings_text(),
                    _ => self.registry.pool.census(),
                };
                self.show(name, &text, call);
                Ok(Done::Tag("SHOW".to_owned()))
            }
            Setting::Show { .. } => self.run_on_one(NodeId::HOME, Access::Read, text, call).await,
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
            Setting::Set { name } => self.set_everywhere(name, text, true, call).await,
            Setting::Reset { name } => self.reset(name, text, call).await,
            Setting::SetLocal { name, to_default } => {
                self.hold_local_settings("SET LOCAL", call);
                if self.transaction.mode == Mode::None {
                    return self.run_on_one(NodeId::HOME, Access::Read, text, call).await;
                }
                self.hold_what_it_began_with().await?;
                match self.settings.startup_value(name).filter(|_| *to_default) {
                    Some(value) => {
                        let sql = set_sql(name, value).replacen("SET ", "SET LOCAL ", 1);
                        self.set_everywhere(name, &sql, false, call).await
                    }
                    None => self.set_everywhere(name, text, false, call).await,
                }
            }
            Setting::SetConstraints { names, deferred } => {
                self.hold_local_settings("SET CONSTRAINTS", call);
                let done = self.run_on_one(NodeId::HOME, Access::Read, text, call).await?;
                let sql = set_constraints_elsewhere(names, *deferred, text);
                self.remember_setting("", &sql, false, true).await?;
                if !deferred {
                    self.hear_what_was_deferred().await?;
                }
                Ok(done)
            }
            Setting::SetConfig { name, value, local } => {
                let done = self.run_on_one(NodeId::HOME, Access::Read, text, call).await?;
                // The text may hold parameters or settings that only the function form spells, so
                // other nodes get the function form with the constants.
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
                let given = Characteristics::from(modes);
                self.set_transaction(&given, *session, *snapshot, text, call).await
            }
            Setting::ResetAll if self.transaction.is_open() => {
                let done = self.run_on_one(NodeId::HOME, Access::Read, text, call).await?;
                self.reset_all_if_committed().await?;
                self.renew_scope_in_time().await?;
                Ok(done)
            }
            Setting::ResetAll => {
                self.hold_what_it_began_with().await?;
                let done = self.set_everywhere("", text, false, call).await?;
                self.reset_all(false).await;
                self.renew_scope().await?;
                Ok(done)
            }
            Setting::Discard { what } => self.discard(what, text, call).await,
        }
    }

    /// SET CONSTRAINTS … IMMEDIATE checks what was deferred: an error is of this statement.
    async fn hear_what_was_deferred(&mut self) -> Result<(), Failure> {
        for node in self.transaction.nodes.keys().copied().collect::<Vec<_>>() {
            let Some(link) = self.links.get_mut(&node).filter(|_| node != NodeId::HOME) else {
                continue;
            };
            link.connection().flush().await?;
            if let Some(error) = link.settle().await? {
                let mut fields = error.to_fields();
                // The block that it was asked in is ours.
                fields.fields.retain(|(code, _)| *code != b'W');
                return Err(fields.into());
            }
        }
        Ok(())
    }

    /// RESET, and SET … TO DEFAULT: back to what the startup packet said, else the server's default.
    async fn reset(&mut self, name: &str, text: &str, call: &Call) -> Result<Done, Failure> {
        self.hold_what_it_began_with().await?;
        let Some(value) = self.settings.startup_value(name).map(str::to_owned) else {
            let sql = format!("{RESET}{}", quote_identifier(name));
            let done = self.run_on_one(NodeId::HOME, Access::Read, text, call).await?;
            self.remember_setting(name, &sql, true, true).await?;
            return Ok(done);
        };
        let sql = set_sql(name, &value);
        self.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        self.pass_reports_on();
        self.remember_setting(name, &sql, true, true).await?;
        let is_reset = text.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("reset"));
        Ok(Done::Tag(if is_reset { "RESET" } else { "SET" }.to_owned()))
    }

    /// RESET ALL went to all links; what the startup packet said goes behind it.
    async fn reset_all(&mut self, role_too: bool) {
        self.settings.clear(role_too);
        let state = self.settings.state().clone();
        let nodes: Vec<_> = self.links.keys().copied().collect();
        for node in nodes {
            if !state.sql().is_empty() {
                self.set_outside(node, state.sql()).await;
            }
            if let Some(link) = self.links.get_mut(&node) {
                link.state = state.clone();
            }
        }
        self.pass_reports_on();
    }

    /// RESET ALL in a transaction, which is a step of it and undone with it: on each node, behind it, what
    /// the startup packet said.
    async fn reset_all_if_committed(&mut self) -> Result<(), Failure> {
        let startup = self.settings.startup.iter().map(|(name, value)| set_sql(name, value));
        let sql: Vec<_> = std::iter::once("RESET ALL".to_owned()).chain(startup).collect();
        self.remember_setting("", &sql.join("; "), true, false).await?;
        self.transaction.scope_changed = true;
        // The client hears of what a setting is behind both steps, and not between them.
        if let Some(home) = self.links.get_mut(&NodeId::HOME) {
            home.settle_early().await?;
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
        let done = self.run_on_one(NodeId::HOME, Access::Read, text, call).await?;
        self.remember_setting(name, text, outlives, true).await?;
        Ok(done)
    }

    /// Node 1 has accepted a setting: the other nodes follow, now or when they join.
    async fn remember_setting(
        &mut self,
        name: &str,
        sql: &str,
        outlives: bool,
        home_has_it: bool,
    ) -> Result<(), Failure> {
        let in_transaction = self.transaction.is_open();
        let nodes: Vec<_> = self
            .links
            .keys()
            .copied()
            .filter(|node| !(home_has_it && *node == NodeId::HOME))
            .filter(|node| !in_transaction || self.transaction.nodes.contains_key(node))
            .collect();
        for node in nodes {
            if !in_transaction {
                self.set_outside(node, sql).await;
                continue;
            }
            // In a transaction the setting itself may be a query that needs the snapshot.
            let link = self.enlist(node, Access::Read).await?;
            link.put_silent(sql);
            link.connection().flush().await?;
        }
        if in_transaction {
            self.transaction.push_setting(sql, outlives.then(|| name.to_owned()));
        } else if outlives {
            self.settings.keep(name, sql);
            let state = self.settings.state();
            for link in self.links.values_mut() {
                link.state = state.clone();
            }
        }
        if SCOPE_SETTINGS.contains(&name) {
            self.transaction.scope_changed |= in_transaction;
            match IDLE_SETTINGS.contains(&name) {
                true => self.renew_scope().await?,
                false => self.renew_scope_in_time().await?,
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
            let done = self.run_on_one(NodeId::HOME, Access::Read, text, call).await?;
            // Each is a setting of its own, that other forms of SET and RESET know.
            for (name, value) in given.as_defaults() {
                let sql = set_sql(name, value);
                self.remember_setting(name, &sql, true, true).await?;
            }
            return Ok(done);
        }
        self.hold_local_settings("SET TRANSACTION", call);
        match self.transaction.mode {
            // Node 1 words the warning.
            Mode::None => self.run_on_one(NodeId::HOME, Access::Read, text, call).await,
            Mode::Implicit | Mode::Explicit => self.set_transaction_modes(given, text, call).await,
        }
    }

    /// What is set LOCAL in a flight holds up to its Sync; and PostgreSQL warns that this is no block.
    fn hold_local_settings(&mut self, what: &str, call: &Call) {
        if !call.is_extended() || self.transaction.mode == Mode::Explicit {
            return;
        }
        if self.transaction.mode == Mode::None && self.client.comes_to_sync() {
            // Nothing comes for which it could hold; node 1 words the warning.
            return;
        }
        self.need_transaction();
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
        let has_savepoint = self.transaction.last_savepoint().is_some();
        let now = self.transaction.characteristics_now();
        let now = now.isolation.or_else(|| self.settings.characteristics.isolation.clone());
        let changes_level = isolation_differs(now.as_deref(), given);
        if has_savepoint && !self.transaction.queried && changes_level {
            let message = "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction";
            return Err(ErrorFields::error("25001", message).into());
        }
        if !has_savepoint && self.transaction.nodes.is_empty() {
            self.transaction.characteristics.update(given);
            return Ok(Done::Tag("SET".to_owned()));
        }
        if !has_savepoint && !self.transaction.queried {
            // Nodes that join later begin with it; those that are there are told.
            self.transaction.characteristics.update(given);
            let done = self.run_on_one(NodeId::HOME, Access::Read, text, call).await?;
            self.tell_other_nodes(text).await?;
            return Ok(done);
        }
        if changes_level {
            let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
            return Err(ErrorFields::error("25001", message).into());
        }
        if given.read_only == Some(true) {
            // Later it could insert none; nor on node 1, which joins for this.
            self.enlist(NodeId::HOME, Access::Read).await?;
            self.insert_tickets().await?;
        }
        let done = self.run_on_one(NodeId::HOME, Access::Read, text, call).await?;
        self.tell_other_nodes(text).await?;
        // ROLLBACK TO undoes it.
        self.transaction.push_modes(text, given.clone());
        Ok(done)
    }

    /// Node 1 has accepted it: the other nodes of the transaction follow.
    async fn tell_other_nodes(&mut self, text: &str) -> Result<(), Failure> {
        let others = self.transaction.nodes.keys().copied().filter(|n| *n != NodeId::HOME);
        for node in others.collect::<Vec<_>>() {
            let link = self.link(node).await?;
            link.put_silent(text);
            link.connection().flush().await?;
        }
        Ok(())
    }

    async fn discard(&mut self, what: &str, text: &str, call: &Call) -> Result<Done, Failure> {
        if what == "all" && self.transaction.is_open() {
            let message = "DISCARD ALL cannot run inside a transaction block";
            return Err(ErrorFields::error("25001", message).into());
        }
        let done = self.run_on_one(NodeId::HOME, Access::Read, text, call).await?;
        let others: Vec<_> = self.links.keys().copied().filter(|n| *n != NodeId::HOME).collect();
        for node in others {
            match self.transaction.is_open() {
                true => drop(self.link(node).await?.query(text).await?),
                false => self.set_outside(node, text).await,
            }
        }
        if what == "all" {
            for link in self.links.values_mut() {
                link.known.clear();
                link.sql_statements.clear();
                link.unnamed = None;
            }
            self.reset_all(true).await;
            self.statements.clear();
            self.portals.clear();
            self.cursors.clear();
            self.listening = false;
        }
        if matches!(what, "all" | "temp") {
            self.renew_scope().await?;
        }
        Ok(done)
    }

    /// Where no transaction is open, the answer is awaited: a statement must not run where a setting was
    /// refused. A connection that has not taken it is not the session's any more.
    async fn set_outside(&mut self, node: NodeId, sql: &str) {
        let Some(link) = self.links.get_mut(&node) else { return };
        if let Err(error) = link.ask(sql).await {
            tracing::debug!(%node, %error, "a connection does not follow a setting");
            self.links.remove(&node);
            self.end_if_bound(node);
        }
    }

    /// The transaction committed: its settings are the session's, also on nodes that were not in it.
    pub(crate) async fn adopt_settings(&mut self) {
        let kept: Vec<(String, String)> = self
            .transaction
            .kept_settings()
            .map(|(name, sql)| (name.to_owned(), sql.to_owned()))
            .collect();
        if kept.is_empty() {
            return;
        }
        let outside: Vec<_> = self
            .links
            .keys()
            .copied()
            .filter(|node| !self.transaction.nodes.contains_key(node))
            .collect();
        for (name, sql) in &kept {
            match name.is_empty() {
                true => self.settings.clear(false),
                false => self.settings.keep(name, sql),
            }
        }
        let sql = kept.iter().map(|(_, sql)| sql.as_str()).collect::<Vec<_>>().join("; ");
        for node in outside {
            self.set_outside(node, &sql).await;
        }
        let state = self.settings.state();
        for link in self.links.values_mut() {
            link.state = state.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_comes_before_the_startup_packet_and_is_replaced() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut settings = Settings::of_startup(vec![pair("jit", "off")]);
        settings.hold(vec![pair("a.b", "1"), pair("jit", "on")]);
        let expected = [pair("a.b", "1"), pair("jit", "off")];
        assert_eq!(settings.startup, expected);
        settings.hold(Vec::new());
        assert_eq!(settings.startup, expected[1..]);
    }

    #[test]
    fn a_value_is_set_as_the_server_shows_it() {
        assert_eq!(set_sql("work_mem", "4MB"), r#"SET "work_mem" TO '4MB'"#);
        assert_eq!(set_sql("a.b", "x, y"), r#"SET "a"."b" TO 'x, y'"#);
        let path = r#""$user", Public,"A ""b" "#;
        let expected = r#"SET "search_path" TO '$user', 'public', 'A "b'"#;
        assert_eq!(set_sql("search_path", path), expected);
        let empty = r#"SET "search_path" TO ''"#;
        assert_eq!(set_sql("search_path", ""), empty);
        assert_eq!(set_sql("search_path", "\"\""), empty);
    }

    #[test]
    fn reset_forgets_and_order_is_that_of_the_last_set() {
        let mut settings = Settings::of_startup(vec![("jit".to_owned(), "off".to_owned())]);
        let fresh = settings.state().clone();
        settings.keep("role", "SET ROLE a");
        settings.keep("search_path", "SET search_path = s");
        settings.keep("role", "SET ROLE b");
        assert_eq!(settings.role(), "SET ROLE b");
        assert!(settings.state().sql().ends_with("; SET search_path = s; SET ROLE b"));
        settings.keep("role", "RESET role");
        settings.keep("search_path", "RESET search_path");
        assert!(settings.state().is_like(&fresh));
    }
}
