//! SET and the like: what a session has set, on every node it uses.
//!
//! Owns: the settings that outlive transactions, which every connection gets that the session checks
//! out.
//! Never: interprets a value, except those that names and isolation depend on.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use tutti_link::pool::SessionState;
use tutti_sql::catalog::{quote_identifier, quote_literal};
use tutti_sql::settings::{COMMIT, FOREIGN_KEYS};
use tutti_wire::frame::{WireError, frame_len};

use crate::client::failure::Failure;
use crate::transaction::Characteristics;
use crate::transaction::state::Isolation;

/// How the gateway's own RESET begins.
pub(crate) const RESET: &str = "RESET ";
/// What a session has set, and is setting in its transaction, may take this much memory.
pub(crate) const SETTINGS_BYTES_MAX: usize = 16 << 20;
/// The gateway's own setting that says what binds connections to the session.
pub(crate) const PINNED: &str = "tutti.pinned";
/// The one that counts the gateway's connections to nodes.
const POOL: &str = "tutti.pool";
/// Settings that take effect at the end of the statement that sets them.
pub(crate) const IDLE_SETTINGS: [&str; 2] =
    ["idle_in_transaction_session_timeout", "idle_session_timeout"];
/// Settings after which names may mean something else, transactions have other modes, or idle
/// clients be disconnected.
pub(crate) const SCOPE_SETTINGS: [&str; 9] = [
    COMMIT,
    FOREIGN_KEYS,
    IDLE_SETTINGS[0],
    IDLE_SETTINGS[1],
    "search_path",
    "role",
    "session_authorization",
    "default_transaction_isolation",
    "default_transaction_read_only",
];

/// How transactions that have written on several nodes are committed, as the session wants it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CommitMode {
    /// On all of them or on none, and visible everywhere at the same time.
    #[default]
    Acid,
    /// Each node commits its part by itself, where that leaves no copies that differ.
    Base,
}

impl CommitMode {
    /// By the setting's value. What is no mode's name is the safe one: code can set anything.
    pub fn named(name: &str) -> Self {
        match name.eq_ignore_ascii_case(Self::Base.name()) {
            true => Self::Base,
            false => Self::Acid,
        }
    }

    /// As SHOW tells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Acid => "acid",
            Self::Base => "base",
        }
    }
}

/// What the session has set outside transactions, or in ones that committed.
#[derive(Debug, Default)]
pub struct Settings {
    /// Name and value: what RESET goes back to, if not to the servers' own. First what the session
    /// began with and new sessions would not, then what the startup packet said.
    pub(crate) startup: Vec<(String, String)>,
    /// How many of the first kind there are.
    held: usize,
    /// By name.
    kept: BTreeMap<String, Kept>,
    /// How many times something was kept.
    turns: u64,
    /// Bytes of all that is kept.
    pub(crate) bytes: usize,
    /// Of what is kept now; made on demand, for many settings may change together.
    state: OnceLock<Arc<SessionState>>,
    /// The role settings, as SQL; likewise.
    role: OnceLock<String>,
    /// Values that code has left, as node 1 said last.
    learnt: BTreeMap<String, String>,
    /// Names with a dot have been set, if only for a transaction.
    pub has_placeholders: bool,
    /// Session default of isolation level and access mode, as node 1 says.
    pub characteristics: Characteristics,
    /// How transactions over several nodes are committed, as node 1 says.
    pub commit: CommitMode,
    /// Foreign keys that no node can check by itself are added nevertheless, and hold by entries; as node 1 says.
    pub global_foreign_keys: bool,
    /// How long the client may be idle, as node 1 says.
    pub idle: IdleTimeouts,
}

/// One of the session's settings.
#[derive(Debug)]
struct Kept {
    /// Settings are applied in this order.
    turn: u64,
    sql: String,
}

/// After how much silence the client is disconnected; `None`: never.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct IdleTimeouts {
    /// `idle_in_transaction_session_timeout`.
    pub in_transaction: Option<Duration>,
    /// `idle_session_timeout`.
    pub outside: Option<Duration>,
}

impl Settings {
    /// For a session that begins with these (name and value).
    pub fn of_startup(startup: Vec<(String, String)>) -> Self {
        let has_placeholders = startup.iter().any(|(name, _)| is_placeholder(name));
        Self { startup, has_placeholders, ..Self::default() }
    }

    /// Holds on to what the session began with, by name and value: connections opened from now on begin
    /// with other values. Earlier such values are forgotten; the startup packet's win.
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
            // A session that has become another user's begins without a role of its own.
            self.forget("role");
        }
        if !sql.starts_with(RESET) {
            self.turns += 1;
            self.bytes += sql.len();
            self.kept.insert(name.to_owned(), Kept { turn: self.turns, sql: sql.to_owned() });
        }
        self.renew_state();
    }

    /// The statement that set a setting, if the session has done so, outside transactions or in one that committed.
    pub(crate) fn kept_sql(&self, name: &str) -> Option<&str> {
        self.kept.get(name).map(|kept| kept.sql.as_str())
    }

    fn forget(&mut self, name: &str) {
        if let Some(forgotten) = self.kept.remove(name) {
            self.bytes -= forgotten.sql.len();
        }
    }

    /// Remembers a value that node 1 says the session has. False: it is unchanged.
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

    /// RESET ALL, which leaves the session its role, unless `role_too`.
    pub fn clear(&mut self, role_too: bool) {
        self.kept.retain(|name, _| !role_too && is_role(name));
        self.bytes = self.kept.values().map(|kept| kept.sql.len()).sum();
        self.characteristics = Characteristics::default();
        self.renew_state();
    }

    /// The state that connections are brought to.
    pub fn state(&self) -> &Arc<SessionState> {
        self.state.get_or_init(|| {
            let kept = self.in_order(|_| true);
            Arc::new(SessionState::new(&self.startup, kept.into_iter()))
        })
    }

    /// The role settings, as SQL.
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

    pub(crate) fn startup_value(&self, name: &str) -> Option<&str> {
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

/// Servers set like this read other statements in a text than the gateway does.
pub(crate) fn misread(name: &str) -> Failure {
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
pub(crate) fn set_sql(name: &str, value: &str) -> String {
    // For these, SET takes each name separately.
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
pub(crate) fn is_placeholder(name: &str) -> bool {
    name.contains('.')
}

/// Whether names, or the modes of transactions, depend on this setting.
pub(crate) fn is_scope_setting(name: &str) -> bool {
    SCOPE_SETTINGS.contains(&name)
}

/// Whether it is the gateway that answers SHOW of this name.
pub(crate) fn is_own_setting(name: &str) -> bool {
    [PINNED, POOL, COMMIT, FOREIGN_KEYS].contains(&name)
}

/// SET CONSTRAINTS where the constraints of node 1's tables do not exist. Node 1 has accepted all
/// names.
pub(crate) fn set_constraints_elsewhere(names: &[String], deferred: bool, text: &str) -> String {
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
pub(crate) fn isolation_differs(now: Option<Isolation>, given: &Characteristics) -> bool {
    let now = now.unwrap_or(Isolation::ReadCommitted);
    given.isolation.is_some_and(|wanted| wanted != now)
}

/// Of these messages, the notices.
pub(crate) fn put_notices(out: &mut BytesMut, messages: &[u8]) -> Result<(), WireError> {
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
