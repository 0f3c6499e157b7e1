//! The `DISTRIBUTE BY` clause of CREATE TABLE and ALTER TABLE, taken out before PostgreSQL's grammar sees the text.
//!
//! Owns: the clause's spellings and the errors of a wrong one.
//! Never: decides about placement; it only says what was asked for.

use pg_query::protobuf::Token;

use super::syntax_error;
use super::tokens::{Lexeme, scan, with_depth};
use crate::refusal::Refusal;

/// What a `DISTRIBUTE BY` clause asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DistributeBy {
    /// `DISTRIBUTE BY HASH (column)`; the name is folded as PostgreSQL folds identifiers.
    Hash(String),
    /// `DISTRIBUTE BY ROUND ROBIN` (or `ROUNDROBIN`).
    RoundRobin,
    /// `DISTRIBUTE BY REPLICATED` (or `REPLICATION`).
    Replicated,
    /// `DISTRIBUTE BY REPLICATED ASYNC`: every node has all rows, after a while.
    ReplicatedAsync,
    /// The same, when what carries its rows is there: not for clients.
    Carried,
    /// The same, when it is on its way to be distributed by hash: not for clients.
    Ending,
    /// `DISTRIBUTE BY HOME`: on node 1 alone.
    Home,
}

/// A clause and where it began, in bytes of the client's text.
pub(super) struct Clause {
    /// First byte of `DISTRIBUTE`.
    pub start: usize,
    /// What it asks for.
    pub distribute_by: DistributeBy,
    /// CASCADE: what refers to the table goes along.
    pub cascades: bool,
}

/// What stands in the place of ALTER TABLE's clause, for the grammar wants something there: no clause is shorter, and it
/// changes nothing (PostgreSQL has had no tables WITH OIDS since version 12).
const CHANGES_NOTHING: &str = "SET WITHOUT OIDS";

/// Which statement a clause ends.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Of {
    CreateTable,
    AlterTable,
}

/// Replaces every `DISTRIBUTE BY` clause of a CREATE TABLE by spaces, so that all byte offsets
/// stay; one of an ALTER TABLE by what changes nothing, and spaces. `None` when there is none: the text is then parsed
/// as it is, and a clause in any other statement is a syntax error of PostgreSQL's grammar.
pub(super) fn take_clauses(text: &str) -> Result<Option<(String, Vec<Clause>)>, Refusal> {
    let contains_word =
        text.as_bytes().windows(10).any(|window| window.eq_ignore_ascii_case(b"distribute"));
    if !contains_word {
        return Ok(None);
    }
    // What the scanner refuses the grammar refuses too, with the position.
    let Ok(tokens) = scan(text) else { return Ok(None) };
    let mut clauses = Vec::new();
    let mut blanked = text.to_owned();
    let mut statement_start = 0;
    for (index, (depth, token)) in with_depth(&tokens).enumerate() {
        if token.text == ";" {
            statement_start = index + 1;
        }
        let begins_clause = depth == 0
            && token.token == Token::Ident
            && token.is_word("distribute")
            && tokens.get(index + 1).is_some_and(|next| next.token == Token::By);
        if begins_clause && let Some(of) = whose(&tokens[statement_start..index]) {
            let (clause, end) = read_clause(text, &tokens, index, of)?;
            let instead = if of == Of::AlterTable { CHANGES_NOTHING } else { "" };
            let width = end - token.start;
            blanked.replace_range(token.start..end, &format!("{instead:width$}"));
            clauses.push(clause);
        }
    }
    Ok((!clauses.is_empty()).then_some((blanked, clauses)))
}

/// Which statement begins with these tokens, if it is one that may have the clause behind them.
fn whose(tokens: &[Lexeme<'_>]) -> Option<Of> {
    if creates_table(tokens) {
        return Some(Of::CreateTable);
    }
    alters_table(tokens).then_some(Of::AlterTable)
}

/// Whether these are ALTER TABLE and a table's name, and no more.
fn alters_table(tokens: &[Lexeme<'_>]) -> bool {
    let [alter, table, rest @ ..] = tokens else { return false };
    if alter.token != Token::Alter || table.token != Token::Table {
        return false;
    }
    let rest = match rest {
        [condition, exists, rest @ ..]
            if condition.token == Token::IfP && exists.token == Token::Exists =>
        {
            rest
        }
        rest => rest,
    };
    let (rest, is_only) = match rest {
        [only, rest @ ..] if only.token == Token::Only => (rest, true),
        rest => (rest, false),
    };
    let name = match rest {
        [open, name @ .., close] if is_only && open.text == "(" && close.text == ")" => name,
        [name @ .., star] if !is_only && star.text == "*" => name,
        name => name,
    };
    // A name's first part is no reserved word, which the grammar sees to; parts stand between dots.
    name.len() % 2 == 1
        && name.iter().enumerate().all(|(index, token)| (index % 2 == 1) == (token.text == "."))
}

/// Whether these first tokens of a statement are those of CREATE TABLE.
fn creates_table(tokens: &[Lexeme<'_>]) -> bool {
    let mut words = tokens.iter().map(|token| token.token);
    words.next() == Some(Token::Create)
        && words.find(|token| {
            !matches!(
                token,
                Token::Global | Token::Local | Token::Temp | Token::Temporary | Token::Unlogged
            )
        }) == Some(Token::Table)
}

/// Reads the clause that begins at `tokens[start]`; also returns the byte where it ends.
fn read_clause(
    text: &str,
    tokens: &[Lexeme<'_>],
    start: usize,
    of: Of,
) -> Result<(Clause, usize), Refusal> {
    let kind = start + 2;
    let wrong = |index: usize| {
        let near = tokens.get(index).map(|token| (token.start, token.text));
        syntax_error::near(text, near).with_hint(match of {
            Of::CreateTable => {
                "Write DISTRIBUTE BY HASH (column), ROUND ROBIN, REPLICATED [ASYNC] or HOME."
            }
            Of::AlterTable => {
                "Write DISTRIBUTE BY HASH (column) [CASCADE], ROUND ROBIN, REPLICATED [ASYNC] or HOME [CASCADE], and \
                 nothing else."
            }
        })
    };
    let is = |index: usize, word: &str| {
        tokens.get(index).is_some_and(|token: &Lexeme<'_>| token.is_word(word))
    };
    let (distribute_by, next) = if is(kind, "hash") {
        if !is(kind + 1, "(") {
            return Err(wrong(kind + 1));
        }
        let column = tokens
            .get(kind + 2)
            .and_then(Lexeme::column_name)
            .filter(|name| !name.is_empty())
            .ok_or_else(|| wrong(kind + 2))?;
        if !is(kind + 3, ")") {
            return Err(wrong(kind + 3));
        }
        (DistributeBy::Hash(column), kind + 4)
    } else if is(kind, "roundrobin") {
        (DistributeBy::RoundRobin, kind + 1)
    } else if is(kind, "round") {
        if !is(kind + 1, "robin") {
            return Err(wrong(kind + 1));
        }
        (DistributeBy::RoundRobin, kind + 2)
    } else if (is(kind, "replicated") || is(kind, "replication")) && is(kind + 1, "async") {
        (DistributeBy::ReplicatedAsync, kind + 2)
    } else if is(kind, "replicated") || is(kind, "replication") {
        (DistributeBy::Replicated, kind + 1)
    } else if is(kind, "home") {
        (DistributeBy::Home, kind + 1)
    } else {
        return Err(wrong(kind));
    };
    // Tables of other placements need none of those that refer to them.
    let takes_others = matches!(distribute_by, DistributeBy::Hash(_) | DistributeBy::Home);
    let cascades = of == Of::AlterTable && takes_others && is(next, "cascade");
    let next = next + usize::from(cascades);
    let ends = tokens
        .get(next)
        .is_none_or(|token| token.text == ";" || (of == Of::CreateTable && token.is_word("as")));
    if !ends {
        return Err(wrong(next));
    }
    Ok((Clause { start: tokens[start].start, distribute_by, cascades }, tokens[next - 1].end))
}
