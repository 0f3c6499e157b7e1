//! What a statement asks that no node knows: of its own session, and of processes.
//!
//! Owns: finding `pg_backend_pid()`, `pg_prepared_statements`, views that show processes and functions
//! that take one, in a statement's text.
//! Never: answers; the session replaces the words by the answer.
//! Start reading at [`session_names`].

use pg_query::NodeEnum;
use pg_query::protobuf::{ObjectType, ScanToken, Token};

use crate::plan::{ProcessFunction, SessionName, SessionNameAt};
use crate::statement::Statement;

const PROCESS_ID: &str = "pg_backend_pid";
const PREPARED_STATEMENTS: &str = "pg_prepared_statements";

/// The server's views with a column `pid`.
const PROCESS_VIEWS: [&str; 11] = [
    "pg_stat_activity",
    "pg_locks",
    "pg_stat_progress_analyze",
    "pg_stat_progress_basebackup",
    "pg_stat_progress_cluster",
    "pg_stat_progress_copy",
    "pg_stat_progress_create_index",
    "pg_stat_progress_vacuum",
    "pg_stat_ssl",
    "pg_stat_gssapi",
    "pg_stat_replication",
];

/// What one of the names below contains; most statements contain none.
const HINTS: [&str; 7] = [
    PROCESS_ID,
    PREPARED_STATEMENTS,
    "pg_stat_",
    "pg_locks",
    "_backend",
    "blocking_pids",
    "pg_isolation_test",
];

/// Where in the text of `statement` such words are, in order. What defines an object is left alone: it
/// will be asked later, by others.
pub(super) fn session_names(statement: &Statement) -> Vec<SessionNameAt> {
    let text = &*statement.text;
    let lower = text.to_ascii_lowercase();
    if !HINTS.iter().any(|hint| lower.contains(hint)) || !is_asked_now(&statement.tree) {
        return Vec::new();
    }
    let Ok(scanned) = crate::statement::grammar::scan(text) else { return Vec::new() };
    let is_comment =
        |token: &ScanToken| matches!(token.token(), Token::SqlComment | Token::CComment);
    let tokens: Vec<_> = scanned.into_iter().filter(|token| !is_comment(token)).collect();
    Words { text, tokens }.find()
}

/// Whether the statement's queries run when it does.
fn is_asked_now(tree: &NodeEnum) -> bool {
    match tree {
        NodeEnum::SelectStmt(_)
        | NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_)
        | NodeEnum::DeclareCursorStmt(_)
        | NodeEnum::ExplainStmt(_)
        | NodeEnum::ExecuteStmt(_)
        | NodeEnum::CallStmt(_)
        | NodeEnum::CopyStmt(_) => true,
        NodeEnum::CreateTableAsStmt(create) => create.objtype() == ObjectType::ObjectTable,
        _ => false,
    }
}

struct Words<'a> {
    text: &'a str,
    tokens: Vec<ScanToken>,
}

impl Words<'_> {
    fn find(&self) -> Vec<SessionNameAt> {
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
                found.push(self.name(start, index + 2, SessionName::ProcessId { unnamed }));
            } else if is(PREPARED_STATEMENTS) && self.is_table(start, index) {
                let aliased = self.is_aliased(index);
                found.push(self.name(start, index, SessionName::PreparedStatements { aliased }));
            } else if let Some(view) = PROCESS_VIEWS.into_iter().find(|view| is(view)) {
                if self.is_table(start, index) {
                    let aliased = self.is_aliased(index);
                    found.push(self.name(start, index, SessionName::Processes { view, aliased }));
                }
            } else if let Some((function, end)) = self.call(index) {
                let unaliased = self.follows_table_word(start) && !self.is_aliased(end);
                // Between two expressions a comma is no sign of a table.
                let unaliased = unaliased && self.before(start) != ",";
                found.push(self.name(start, index + 1, SessionName::Call(function)));
                found.push(self.name(end, end, SessionName::CallEnd { function, unaliased }));
            }
        }
        found.sort_by_key(|name| name.range.start);
        found
    }

    fn name(&self, first: usize, last: usize, name: SessionName) -> SessionNameAt {
        let position = |at: i32| usize::try_from(at).unwrap_or(0);
        let range = position(self.tokens[first].start)..position(self.tokens[last].end);
        SessionNameAt { range, name }
    }

    /// The function that is called by the name at `index`, with arguments by position, and where the
    /// call ends.
    fn call(&self, index: usize) -> Option<(ProcessFunction, usize)> {
        if self.word(index + 1) != "(" {
            return None;
        }
        let (count, end) = self.arguments(index + 1)?;
        let function = match (self.word(index).to_ascii_lowercase().as_str(), count) {
            ("pg_cancel_backend", 1) => ProcessFunction::Cancel,
            ("pg_terminate_backend", 1) => ProcessFunction::Terminate { waits: false },
            ("pg_terminate_backend", 2) => ProcessFunction::Terminate { waits: true },
            ("pg_blocking_pids", 1) => ProcessFunction::Blocking,
            ("pg_safe_snapshot_blocking_pids", 1) => ProcessFunction::SafeSnapshotBlocking,
            ("pg_isolation_test_session_is_blocked", 2) => ProcessFunction::IsBlocked,
            ("pg_log_backend_memory_contexts", 1) => ProcessFunction::LogMemory,
            _ => return None,
        };
        Some((function, end))
    }

    /// How many arguments there are in the bracket that `opening` opens, and where it ends; `None`: they
    /// are given by name, or are no list.
    fn arguments(&self, opening: usize) -> Option<(usize, usize)> {
        let (mut depth, mut commas) = (0_usize, 0_usize);
        for index in opening..self.tokens.len() {
            match self.word(index) {
                "(" | "[" => depth += 1,
                "," if depth == 1 => commas += 1,
                ":=" | "=>" if depth == 1 => return None,
                ")" | "]" => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return (opening + 1 < index).then_some((commas + 1, index));
                    }
                }
                _ => (),
            }
        }
        None
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

    /// Whether the name from `start` to `index` is that of a table which a query reads, and not of one
    /// that a WITH defines.
    fn is_table(&self, start: usize, index: usize) -> bool {
        let defined = self.word(index + 1).eq_ignore_ascii_case("as")
            && ["(", "not", "materialized"]
                .iter()
                .any(|word| self.word(index + 2).eq_ignore_ascii_case(word));
        self.follows_table_word(start) && !defined && ![".", "("].contains(&self.word(index + 1))
    }

    /// Whether an alias follows the token at `index`.
    fn is_aliased(&self, index: usize) -> bool {
        self.tokens
            .get(index + 1)
            .is_some_and(|token| matches!(token.token(), Token::Ident | Token::As))
    }

    fn follows_table_word(&self, start: usize) -> bool {
        let before = self.before(start);
        before == ","
            || ["from", "join", "using"].iter().any(|word| before.eq_ignore_ascii_case(word))
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

    fn check(text: &str, expected: &[(&str, SessionName)]) {
        let statement = crate::statement::parse(text).unwrap().remove(0);
        let found = session_names(&statement);
        let found: Vec<_> =
            found.into_iter().map(|name| (&statement.text[name.range], name.name)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn process_ids_are_found_where_they_are_called() {
        let (unnamed, named) =
            (SessionName::ProcessId { unnamed: true }, SessionName::ProcessId { unnamed: false });
        check("SELECT pg_backend_pid()", &[("pg_backend_pid()", unnamed)]);
        check("select 1, PG_Backend_PID ( ) from t", &[("PG_Backend_PID ( )", unnamed)]);
        check("SELECT pg_catalog.pg_backend_pid() AS x", &[("pg_catalog.pg_backend_pid()", named)]);
        check("SELECT f(1, pg_backend_pid(), 2)", &[("pg_backend_pid()", named)]);
        check("SELECT 1 WHERE pid = pg_backend_pid()", &[("pg_backend_pid()", named)]);
        check("SELECT 'pg_backend_pid()', my.pg_backend_pid(), pg_backend_pid", &[]);
        check("CREATE VIEW v AS SELECT pg_backend_pid() FROM pg_locks", &[]);
    }

    #[test]
    fn prepared_statements_are_found_where_they_are_a_table() {
        let (aliased, not) = (
            SessionName::PreparedStatements { aliased: true },
            SessionName::PreparedStatements { aliased: false },
        );
        check("SELECT * FROM pg_prepared_statements", &[("pg_prepared_statements", not)]);
        check("TABLE pg_prepared_statements", &[]);
        check(
            "SELECT p.* FROM a, pg_catalog.pg_prepared_statements p JOIN pg_prepared_statements ON true",
            &[("pg_catalog.pg_prepared_statements", aliased), ("pg_prepared_statements", not)],
        );
        check("SELECT pg_prepared_statements FROM t", &[]);
    }

    #[test]
    fn views_of_processes_are_found_where_they_are_a_table() {
        let of = |view, aliased| SessionName::Processes { view, aliased };
        check(
            "SELECT * FROM pg_stat_activity a JOIN pg_catalog.pg_locks USING (pid)",
            &[
                ("pg_stat_activity", of("pg_stat_activity", true)),
                ("pg_catalog.pg_locks", of("pg_locks", false)),
            ],
        );
        check("WITH pg_locks AS (SELECT 1), b AS (SELECT 2) SELECT 1", &[]);
        check("SELECT * FROM my.pg_locks", &[]);
        check("SELECT pg_stat_get_activity(1), pg_locks.pid FROM t AS pg_locks", &[]);
    }

    #[test]
    fn calls_with_processes_are_found_with_their_ends() {
        let terminate = ProcessFunction::Terminate { waits: false };
        check(
            "SELECT pg_terminate_backend($1::int)",
            &[
                ("pg_terminate_backend(", SessionName::Call(terminate)),
                (")", SessionName::CallEnd { function: terminate, unaliased: false }),
            ],
        );
        let (cancel, blocking) = (ProcessFunction::Cancel, ProcessFunction::Blocking);
        check(
            "SELECT * FROM pg_blocking_pids(pg_backend_pid()), pg_cancel_backend((SELECT 1)) x",
            &[
                ("pg_blocking_pids(", SessionName::Call(blocking)),
                ("pg_backend_pid()", SessionName::ProcessId { unnamed: false }),
                (")", SessionName::CallEnd { function: blocking, unaliased: true }),
                ("pg_cancel_backend(", SessionName::Call(cancel)),
                (")", SessionName::CallEnd { function: cancel, unaliased: false }),
            ],
        );
        check("SELECT pg_terminate_backend(pid => 1), my.pg_cancel_backend(1)", &[]);
    }
}
