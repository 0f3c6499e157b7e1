//! What a statement asks of its own session that no node knows.
//!
//! Owns: finding `pg_backend_pid()` and `pg_prepared_statements` in a statement's text.
//! Never: answers; the session puts the answer in the place of the words.
//! Start reading at [`own_names`].

use pg_query::protobuf::{ScanToken, Token};

use crate::plan::{Own, OwnName};

const PROCESS_ID: &str = "pg_backend_pid";
const PREPARED_STATEMENTS: &str = "pg_prepared_statements";

/// Views and functions of the server's that show its processes.
const SHOWING_PROCESSES: [&str; 3] = ["pg_stat_", "pg_locks", "pg_blocking_pids"];

/// Where in `text`, which is one statement, such words are.
pub(super) fn own_names(text: &str) -> Vec<OwnName> {
    let lower = text.to_ascii_lowercase();
    // Beside the numbers of a server's processes, `pg_backend_pid()` is meant as one of them.
    let shows_processes = SHOWING_PROCESSES.iter().any(|name| lower.contains(name));
    let asks_for_number = lower.contains(PROCESS_ID) && !shows_processes;
    if !asks_for_number && !lower.contains(PREPARED_STATEMENTS) {
        return Vec::new();
    }
    let Ok(scanned) = pg_query::scan(text) else { return Vec::new() };
    let is_comment =
        |token: &ScanToken| matches!(token.token(), Token::SqlComment | Token::CComment);
    let tokens: Vec<_> = scanned.tokens.into_iter().filter(|token| !is_comment(token)).collect();
    let mut found = Words { text, tokens }.find();
    found.retain(|name| asks_for_number || !matches!(name.own, Own::ProcessId { .. }));
    found
}

struct Words<'a> {
    text: &'a str,
    tokens: Vec<ScanToken>,
}

impl Words<'_> {
    fn find(&self) -> Vec<OwnName> {
        let mut found = Vec::new();
        let mut depth = 0_i32;
        for index in 0..self.tokens.len() {
            match self.word(index) {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => (),
            }
            let Some(start) = self.start_of_name(index) else { continue };
            let is = |name: &str| self.word(index).eq_ignore_ascii_case(name);
            if is(PROCESS_ID) && self.word(index + 1) == "(" && self.word(index + 2) == ")" {
                let before = self.before(start);
                let is_item =
                    depth == 0 && (before.eq_ignore_ascii_case("select") || before == ",");
                let behind = self.word(index + 3);
                let unnamed = is_item
                    && (["", ",", ";"].contains(&behind) || behind.eq_ignore_ascii_case("from"));
                found.push(self.name(start, index + 2, Own::ProcessId { unnamed }));
            } else if is(PREPARED_STATEMENTS) && self.follows_table_word(start) {
                let aliased = self
                    .tokens
                    .get(index + 1)
                    .is_some_and(|token| matches!(token.token(), Token::Ident | Token::As));
                found.push(self.name(start, index, Own::PreparedStatements { aliased }));
            }
        }
        found
    }

    fn name(&self, first: usize, last: usize, own: Own) -> OwnName {
        let position = |at: i32| usize::try_from(at).unwrap_or(0);
        let range = position(self.tokens[first].start)..position(self.tokens[last].end);
        OwnName { range, own }
    }

    /// The first token of the possibly qualified name that ends at `index`; `None`: it is qualified by
    /// something else than `pg_catalog`.
    fn start_of_name(&self, index: usize) -> Option<usize> {
        if index == 0 || self.word(index - 1) != "." {
            return Some(index);
        }
        let schema = index.checked_sub(2)?;
        self.word(schema).eq_ignore_ascii_case("pg_catalog").then_some(schema)
    }

    fn follows_table_word(&self, start: usize) -> bool {
        let before = self.before(start);
        before == "," || ["from", "join"].iter().any(|word| before.eq_ignore_ascii_case(word))
    }

    fn before(&self, index: usize) -> &str {
        index.checked_sub(1).map_or("", |before| self.word(before))
    }

    fn word(&self, index: usize) -> &str {
        let Some(token) = self.tokens.get(index) else { return "" };
        let range =
            usize::try_from(token.start).unwrap_or(0)..usize::try_from(token.end).unwrap_or(0);
        self.text.get(range).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, Own)]) {
        let found: Vec<_> =
            own_names(text).into_iter().map(|name| (&text[name.range], name.own)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn process_ids_are_found_where_they_are_called() {
        let (unnamed, named) =
            (Own::ProcessId { unnamed: true }, Own::ProcessId { unnamed: false });
        check("SELECT pg_backend_pid()", &[("pg_backend_pid()", unnamed)]);
        check("select 1, PG_Backend_PID ( ) from t", &[("PG_Backend_PID ( )", unnamed)]);
        check("SELECT pg_catalog.pg_backend_pid() AS x", &[("pg_catalog.pg_backend_pid()", named)]);
        check("SELECT f(1, pg_backend_pid(), 2)", &[("pg_backend_pid()", named)]);
        check("SELECT 1 WHERE pid = pg_backend_pid()", &[("pg_backend_pid()", named)]);
        check("SELECT * FROM pg_stat_activity WHERE pid = pg_backend_pid()", &[]);
        check("SELECT 'pg_backend_pid()', my.pg_backend_pid(), pg_backend_pid", &[]);
    }

    #[test]
    fn prepared_statements_are_found_where_they_are_a_table() {
        let (aliased, not) =
            (Own::PreparedStatements { aliased: true }, Own::PreparedStatements { aliased: false });
        check("SELECT * FROM pg_prepared_statements", &[("pg_prepared_statements", not)]);
        check("TABLE pg_prepared_statements", &[]);
        check(
            "SELECT p.* FROM a, pg_catalog.pg_prepared_statements p JOIN pg_prepared_statements ON true",
            &[("pg_catalog.pg_prepared_statements", aliased), ("pg_prepared_statements", not)],
        );
        check("SELECT pg_prepared_statements FROM t", &[]);
    }
}
