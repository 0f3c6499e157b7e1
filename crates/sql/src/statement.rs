//! A client's text as single statements, parsed by PostgreSQL's own grammar.
//!
//! Owns: splitting, the `DISTRIBUTE BY` clause and `BEGIN_MIP` with its like (which PostgreSQL's grammar does not
//! know), parse errors as PostgreSQL words them.
//! Never: looks at the catalog.
//! Start reading at [`parse`].

mod distribute;
mod global_unique;
pub(crate) mod grammar;
mod password;
mod requests;
mod syntax_error;
pub(crate) mod tokens;
mod words;

use crate::refusal::Refusal;
use distribute::Clause;
pub use distribute::{DistributeBy, SplitValue};
pub use grammar::{STACK_BYTES, cost};
pub use password::replace_passwords;
pub use words::{first_word, words};

/// One statement of a client's text.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Its text, without the semicolon, `DISTRIBUTE BY` taken out: what nodes receive.
    pub text: String,
    /// Where its text begins in the client's string, in bytes, for error positions.
    pub offset: usize,
    /// Its parse tree (`stmt` of PostgreSQL's `RawStmt`).
    pub tree: pg_query::NodeEnum,
    /// The clause that was taken out.
    pub distribute_by: Option<DistributeBy>,
    /// CASCADE was in it: what refers to the table goes along.
    pub cascades: bool,
    /// `WITH (tutti.global_unique)` was taken out.
    pub global_unique: bool,
    /// Highest `$n` in it; 0 if none.
    pub parameter_count: u16,
}

impl Statement {
    /// For a statement of the simple protocol, which has no parameters.
    ///
    /// Errors: 42P02 if it names one, at the first.
    pub fn refuse_parameters(&self) -> Result<(), Refusal> {
        if self.parameter_count == 0 {
            return Ok(());
        }
        let tokens = tokens::scan(&self.text)
            .map_err(|error| syntax_error::from_parse(&self.text, &error))?;
        let Some(first) = tokens.iter().find(|token| token.parameter().is_some()) else {
            return Ok(());
        };
        Err(Refusal {
            position: Some(syntax_error::characters_to(&self.text, first.start)),
            ..Refusal::postgres("42P02", format!("there is no parameter {}", first.text))
        })
    }
}

/// Whether `$n` in the statement are parameters of what it defines, not of itself.
fn keeps_parameters_inside(tree: &pg_query::NodeEnum) -> bool {
    use pg_query::NodeEnum;
    matches!(tree, NodeEnum::PrepareStmt(_) | NodeEnum::CreateFunctionStmt(_))
}

/// Whether it is DECLARE … WITH HOLD.
pub(crate) fn holds(declare: &pg_query::protobuf::DeclareCursorStmt) -> bool {
    /// Of PostgreSQL's parsenodes.h.
    const CURSOR_OPT_HOLD: i32 = 0x20;
    declare.options & CURSOR_OPT_HOLD != 0
}

impl Statement {
    /// Whether it creates a table of which other nodes will have a part.
    pub fn spreads(&self) -> bool {
        self.distribute_by.as_ref().is_some_and(|wanted| *wanted != DistributeBy::Home)
    }

    /// Whether it is a COPY, in whose middle data flows.
    pub fn is_copy(&self) -> bool {
        matches!(self.tree, pg_query::NodeEnum::CopyStmt(_))
    }

    /// Whether it is DECLARE … WITH HOLD.
    pub fn is_held_cursor(&self) -> bool {
        matches!(&self.tree, pg_query::NodeEnum::DeclareCursorStmt(declare) if holds(declare))
    }

    /// What it is called, if it works in transaction blocks only.
    pub fn needs_block(&self) -> Option<&'static str> {
        match &self.tree {
            pg_query::NodeEnum::DeclareCursorStmt(declare) if !holds(declare) => {
                Some("DECLARE CURSOR")
            }
            pg_query::NodeEnum::LockStmt(_) => Some("LOCK TABLE"),
            _ => None,
        }
    }

    /// Whether it is EXPLAIN.
    pub fn is_explain(&self) -> bool {
        matches!(self.tree, pg_query::NodeEnum::ExplainStmt(_))
    }

    /// Whether it reads or changes rows, and can be undone with what is sent after it.
    pub fn is_of_rows(&self) -> bool {
        use pg_query::NodeEnum;
        matches!(
            self.tree,
            NodeEnum::InsertStmt(_)
                | NodeEnum::UpdateStmt(_)
                | NodeEnum::DeleteStmt(_)
                | NodeEnum::MergeStmt(_)
                | NodeEnum::SelectStmt(_)
        )
    }

    /// Whether it is a SELECT, whose portal shows rows as they were when it was bound.
    pub fn is_select(&self) -> bool {
        matches!(self.tree, pg_query::NodeEnum::SelectStmt(_))
    }

    /// Whether it concerns the session itself, whatever tables there are: its transactions, settings,
    /// prepared statements, cursors and channels.
    pub fn is_of_session(&self) -> bool {
        use pg_query::NodeEnum;
        matches!(
            self.tree,
            NodeEnum::TransactionStmt(_)
                | NodeEnum::VariableSetStmt(_)
                | NodeEnum::VariableShowStmt(_)
                | NodeEnum::ConstraintsSetStmt(_)
                | NodeEnum::DiscardStmt(_)
                | NodeEnum::PrepareStmt(_)
                | NodeEnum::ExecuteStmt(_)
                | NodeEnum::DeallocateStmt(_)
                | NodeEnum::DeclareCursorStmt(_)
                | NodeEnum::FetchStmt(_)
                | NodeEnum::ClosePortalStmt(_)
                | NodeEnum::ListenStmt(_)
                | NodeEnum::UnlistenStmt(_)
                | NodeEnum::NotifyStmt(_)
        )
    }

    /// Whether it may be kept for clients that send it again: it is of a kind that clients repeat.
    /// Statements that define things are not, and some of them hold passwords.
    pub fn may_be_kept(&self) -> bool {
        use pg_query::NodeEnum;
        self.is_of_rows()
            || self.is_of_session()
            || matches!(self.tree, NodeEnum::CopyStmt(_) | NodeEnum::LockStmt(_))
    }
}

/// Splits a client's string into its statements.
///
/// White space and comments around a statement are dropped, inside it they stay. A string without
/// any statement gives an empty vector. As in PostgreSQL, one syntax error refuses all of the
/// string; its position counts characters from the string's beginning.
///
/// Cost: one parse; a second pass of the scanner only where the text holds a comment, a `$` or the
/// word `distribute`.
pub fn parse(text: &str) -> Result<Vec<Statement>, Refusal> {
    let Some(rewritten) = requests::write_calls(text) else { return parse_grammatical(text) };
    let mut statements = parse_grammatical(&rewritten.text)?;
    for statement in &mut statements {
        statement.offset = rewritten.offset(statement.offset);
    }
    Ok(statements)
}

/// The same for a text without statements of our own.
fn parse_grammatical(text: &str) -> Result<Vec<Statement>, Refusal> {
    let (text, clauses) = match distribute::take_clauses(text)? {
        Some((blanked, clauses)) => (std::borrow::Cow::Owned(blanked), clauses),
        None => (std::borrow::Cow::Borrowed(text), Vec::new()),
    };
    let parsed = grammar::parse(&text).map_err(|error| syntax_error::from_parse(&text, &error))?;
    parsed
        .protobuf
        .stmts
        .into_iter()
        .filter_map(|raw| {
            let start = usize::try_from(raw.stmt_location).unwrap_or(0);
            let end = match usize::try_from(raw.stmt_len) {
                // PostgreSQL's way to say "to the end of the string".
                Ok(0) | Err(_) => text.len(),
                Ok(length) => start + length,
            };
            Some((raw.stmt?.node?, start, end))
        })
        .map(|(tree, start, end)| statement(&text, tree, start, end, &clauses))
        .collect()
}

/// The statement that lies between two byte offsets of the client's text.
fn statement(
    text: &str,
    mut tree: pg_query::NodeEnum,
    start: usize,
    end: usize,
    clauses: &[Clause],
) -> Result<Statement, Refusal> {
    // Offsets come from the grammar's tokens, which never split a character.
    let raw = text.get(start..end).unwrap_or(text);
    let clause = clauses.iter().find(|clause| (start..end.max(start + 1)).contains(&clause.start));
    let distribute_by = clause.map(|clause| clause.distribute_by.clone());
    let cascades = clause.is_some_and(|clause| clause.cascades);
    let mut piece = (0, raw.len());
    let mut parameter_count = 0;
    if raw.contains(['$']) || raw.contains("--") || raw.contains("/*") {
        let tokens = tokens::scan(raw).map_err(|error| syntax_error::from_parse(raw, &error))?;
        if let (Some(first), Some(last)) = (tokens.first(), tokens.last()) {
            piece = (first.start, last.end);
        }
        for token in &tokens {
            if let Some(number) = token.parameter() {
                parameter_count = parameter_count.max(number.map_err(|too_large| {
                    Refusal::postgres("42P02", format!("there is no parameter {too_large}"))
                })?);
            }
        }
    }
    let inner = raw[piece.0..piece.1].trim_end_matches(is_space);
    let trimmed = inner.trim_start_matches(is_space);
    let offset = start + piece.0 + (inner.len() - trimmed.len());
    if keeps_parameters_inside(&tree) {
        parameter_count = 0;
    }
    let wish = global_unique::take_wish(&mut tree)?;
    let global_unique = wish.as_ref().is_some_and(|(_, is_wanted)| *is_wanted);
    let text = wish.map_or_else(|| trimmed.to_owned(), |(text, _)| text);
    Ok(Statement { text, offset, tree, distribute_by, cascades, global_unique, parameter_count })
}

/// White space as PostgreSQL's scanner sees it (not Unicode's).
fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

#[cfg(test)]
mod tests;
