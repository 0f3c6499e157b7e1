//! SET and its kin: what a session has set, on every node it uses.
//!
//! Owns: the settings that outlive transactions, replayed on links that open later.
//! Never: interprets a value, but for what names and isolation depend on.

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, Setting};
use tutti_wire::error_fields::ErrorFields;

use super::{Characteristics, Mode, Session};
use crate::executor::{Call, Done};
use crate::failure::Failure;

/// Settings after which names may mean something else, or transactions be of another kind.
const SCOPE_SETTINGS: [&str; 6] = [
    "search_path",
    "role",
    "session_authorization",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "session characteristics",
];

/// What the session has set outside transactions, or in ones that committed.
#[derive(Debug, Default)]
pub struct Settings {
    /// Name and SQL, in the order they were last set.
    kept: Vec<(String, String)>,
    /// Session default of isolation level and access mode, as node 1 says.
    pub characteristics: Characteristics,
}

impl Settings {
    /// Remembers a setting; an older one of the same name is forgotten.
    pub fn keep(&mut self, name: &str, sql: &str) {
        self.kept.retain(|(known, _)| known != name);
        self.kept.push((name.to_owned(), sql.to_owned()));
    }

    /// RESET ALL.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// One query string that brings a fresh connection to where the session is; may be empty.
    pub fn replay_sql(&self) -> String {
        self.kept.iter().map(|(_, sql)| sql.as_str()).collect::<Vec<_>>().join("; ")
    }
}

/// Whether a text that sets the client's encoding (or a value of it) leaves it readable to us.
pub(super) fn encoding_is_known(text: &str) -> bool {
    let text = text.to_ascii_lowercase().replace(['-', '_', '\'', '"'], "");
    ["utf8", "unicode", "sqlascii", "default"].iter().any(|name| text.contains(name))
}

/// Whether `given` asks for another level than the transaction has.
fn isolation_differs(now: Option<&str>, given: &Characteristics) -> bool {
    let now = now.unwrap_or("read committed");
    given.isolation.as_deref().is_some_and(|wanted| wanted != now)
}

impl Session {
    /// Runs SET, RESET, SHOW, DISCARD…
    pub(crate) async fn execute_setting(
        &mut self,
        setting: &Setting,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        match setting {
            Setting::Show { .. } => self.run_on_one(NodeId::HOME, Access::Read, text, call).await,
            Setting::Set { name } if name == "client_encoding" && !encoding_is_known(text) => {
                Err(Failure::unsupported(
                    "client encodings other than UTF8 are not supported",
                    "The gateway reads keys out of statements and rows, and reads them as UTF-8.",
                    "SET client_encoding = 'UTF8'.",
                ))
            }
            Setting::Set { name } | Setting::Reset { name } => {
                self.set_everywhere(name, text, true, call).await
            }
            Setting::SetLocal { name } => {
                if self.transaction.mode == Mode::None {
                    return self.run_on_one(NodeId::HOME, Access::Read, text, call).await;
                }
                self.set_everywhere(name, text, false, call).await
            }
            Setting::SetConstraints => self.set_everywhere("", text, false, call).await,
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
            Setting::ResetAll => {
                let done = self.set_everywhere("", text, false, call).await?;
                self.settings.clear();
                self.refresh_scope().await?;
                Ok(done)
            }
            Setting::Discard { what } => self.discard(what, text, call).await,
        }
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
            // In a transaction the setting itself may be a query that needs the snapshot.
            let link = match in_transaction {
                true => self.enlist(node, Access::Read).await?,
                false => self.link(node).await?,
            };
            link.put_silent(sql);
            link.connection().flush().await?;
        }
        if in_transaction {
            self.transaction.push_setting(sql, outlives.then(|| name.to_owned()));
        } else if outlives {
            self.settings.keep(name, sql);
        }
        if SCOPE_SETTINGS.contains(&name) {
            self.transaction.scope_changed = in_transaction;
            self.refresh_scope().await?;
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
            return self.set_everywhere("session characteristics", text, true, call).await;
        }
        if self.transaction.mode != Mode::Explicit {
            // Node 1 words the warning.
            return self.run_on_one(NodeId::HOME, Access::Read, text, call).await;
        }
        if self.transaction.last_savepoint().is_some() {
            let now = self.transaction.characteristics.isolation.as_deref();
            if !self.transaction.queried && isolation_differs(now, given) {
                let message =
                    "SET TRANSACTION ISOLATION LEVEL must not be called in a subtransaction";
                return Err(ErrorFields::error("25001", message).into());
            }
        }
        if !self.transaction.queried && !self.transaction.nodes.is_empty() {
            // Nodes that join later begin with it; those that are there are told.
            self.transaction.characteristics.update(given);
            let done = self.run_on_one(NodeId::HOME, Access::Read, text, call).await?;
            let others = self.transaction.nodes.keys().copied().filter(|n| *n != NodeId::HOME);
            for node in others.collect::<Vec<_>>() {
                let link = self.link(node).await?;
                link.put_silent(text);
                link.connection().flush().await?;
            }
            return Ok(done);
        }
        if !self.transaction.nodes.is_empty() {
            let now = &self.transaction.characteristics.isolation;
            let now = now.as_deref().or(self.settings.characteristics.isolation.as_deref());
            if isolation_differs(now, given) {
                let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
                return Err(ErrorFields::error("25001", message).into());
            }
            return self.set_everywhere("", text, false, call).await;
        }
        self.transaction.characteristics.update(given);
        Ok(Done::Tag("SET".to_owned()))
    }

    async fn discard(&mut self, what: &str, text: &str, call: &Call) -> Result<Done, Failure> {
        if what == "all" && self.transaction.is_open() {
            let message = "DISCARD ALL cannot run inside a transaction block";
            return Err(ErrorFields::error("25001", message).into());
        }
        let done = self.run_on_one(NodeId::HOME, Access::Read, text, call).await?;
        let others: Vec<_> = self.links.keys().copied().filter(|n| *n != NodeId::HOME).collect();
        for node in others {
            self.link(node).await?.query(text).await?;
        }
        if what == "all" {
            self.settings.clear();
            self.statements.clear();
            self.portals.clear();
            self.cursors.clear();
            self.listening = false;
            for link in self.links.values_mut() {
                link.prepared.clear();
            }
        }
        if matches!(what, "all" | "temp") {
            self.refresh_scope().await?;
        }
        Ok(done)
    }

    /// The transaction committed: its settings are the session's, also on nodes that were not in it.
    pub(crate) async fn adopt_settings(&mut self) -> Result<(), Failure> {
        let kept: Vec<(String, String)> = self
            .transaction
            .kept_settings()
            .map(|(name, sql)| (name.to_owned(), sql.to_owned()))
            .collect();
        if kept.is_empty() {
            return Ok(());
        }
        let outside: Vec<_> = self
            .links
            .keys()
            .copied()
            .filter(|node| !self.transaction.nodes.contains_key(node))
            .collect();
        for (name, sql) in &kept {
            self.settings.keep(name, sql);
            for node in &outside {
                if let Some(link) = self.links.get_mut(node) {
                    link.put_silent(sql);
                }
            }
        }
        Ok(())
    }
}
