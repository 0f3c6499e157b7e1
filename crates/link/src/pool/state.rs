//! What a session has set, as far as it outlives transactions.
//!
//! Owns: the SQL that brings a fresh connection there, and when two sessions are alike.
//! Never: interprets a value.

use std::fmt::Write;
use std::sync::Arc;

use tutti_sql::catalog::quote_literal;

/// Settings from the startup packet and from SET. Immutable: a session that sets something gets
/// another one.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct SessionState {
    sql: String,
}

impl SessionState {
    /// From the startup packet's settings (name, value) and what was SET since (SQL), in order.
    pub fn new<'a>(startup: &[(String, String)], kept: impl Iterator<Item = &'a str>) -> Self {
        let mut sql = String::new();
        for (index, (name, value)) in startup.iter().enumerate() {
            let (name, value) = (quote_literal(name), quote_literal(value));
            let before = if index == 0 { "SELECT " } else { ", " };
            write!(sql, "{before}pg_catalog.set_config({name}, {value}, false)")
                .expect("a String takes everything");
        }
        for setting in kept {
            if !sql.is_empty() {
                sql.push_str("; ");
            }
            sql.push_str(setting);
        }
        Self { sql }
    }

    /// One query string that brings a fresh connection to this state; may be empty.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Whether a connection in this state needs nothing to reach the other.
    pub fn is_like(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn startup_settings_come_before_what_was_set() {
        let startup = [("a.b".to_owned(), "it's".to_owned()), ("jit".to_owned(), "off".to_owned())];
        let state = SessionState::new(&startup, ["SET jit = on", "SET ROLE r"].into_iter());
        expect_test::expect![[
            "SELECT pg_catalog.set_config('a.b', 'it''s', false), pg_catalog.set_config('jit', 'off', false); SET jit = on; SET ROLE r"
        ]]
        .assert_eq(state.sql());
    }

    #[test]
    fn sessions_that_have_set_the_same_are_alike() {
        let state = |value: &str| {
            Arc::new(SessionState::new(&[("jit".to_owned(), value.to_owned())], [].into_iter()))
        };
        assert!(state("on").is_like(&state("on")));
        assert!(!state("on").is_like(&state("off")));
        assert_eq!(SessionState::default().sql(), "");
    }
}
