//! The `DISTRIBUTE BY` clause of CREATE TABLE and ALTER TABLE, taken out before PostgreSQL's grammar sees the text.
//!
//! Owns: the clause's spellings and the errors of a wrong one.
//! Never: decides about placement; it only says what was asked for.

use pg_query::protobuf::Token;

use super::syntax_error;
use super::tokens::{Lexeme, may_contain, scan, with_depth};
use crate::hash::KEY_COLUMNS_MAX;
use crate::refusal::Refusal;

/// What a `DISTRIBUTE BY` clause asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DistributeBy {
    /// `DISTRIBUTE BY HASH (column)`; the name is folded as PostgreSQL folds identifiers.
    Hash(String),
    /// `DISTRIBUTE BY HASH (column, column, …)`: by their values together; at least two, each once.
    HashOfSeveral(Box<[String]>),
    /// `DISTRIBUTE BY RANGE (column) SPLIT AT VALUES (value, …)`.
    Range {
        /// Folded in the same way.
        column: String,
        /// Where ranges begin, as the client has said it.
        splits: Box<[SplitValue]>,
    },
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

/// A constant at which a range begins.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SplitValue {
    /// With its sign.
    Number(String),
    /// A string, without its quotes.
    Text(String),
}

impl SplitValue {
    /// What the type's input function is given.
    pub fn text(&self) -> &str {
        match self {
            Self::Number(text) | Self::Text(text) => text,
        }
    }
}

impl DistributeBy {
    /// The column of the distribution key, if it names a single one.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Hash(column) | Self::Range { column, .. } => Some(column),
            _ => None,
        }
    }

    /// The same of a table that has its key in another column.
    pub fn by(&self, column: String) -> Self {
        match self {
            Self::Range { splits, .. } => Self::Range { column, splits: splits.clone() },
            _ => Self::Hash(column),
        }
    }
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
    if !may_contain(text, "distribute") {
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
                "Write DISTRIBUTE BY HASH (column, …), RANGE (column) SPLIT AT VALUES (value, …), ROUND ROBIN, REPLICATED \
                 [ASYNC] or HOME."
            }
            Of::AlterTable => {
                "Write DISTRIBUTE BY HASH (column) [CASCADE], HASH (column, column, …), RANGE (column) SPLIT AT VALUES \
                 (value, …) [CASCADE], ROUND ROBIN, REPLICATED [ASYNC] or HOME [CASCADE], and nothing else."
            }
        })
    };
    let is = |index: usize, word: &str| {
        tokens.get(index).is_some_and(|token: &Lexeme<'_>| token.is_word(word))
    };
    // What cannot be in a list of columns: perhaps it is of an expression.
    let no_column = |index: usize| match tokens.get(index) {
        Some(token)
            if kind + 1 < index && ["(", "+", "-", "*", "/", "%", "||"].contains(&token.text) =>
        {
            refuse_expression()
        }
        _ => wrong(index),
    };
    let column = || {
        if !is(kind + 1, "(") {
            return Err(wrong(kind + 1));
        }
        let column = tokens.get(kind + 2).and_then(Lexeme::column_name);
        let column = column.filter(|name| !name.is_empty()).ok_or_else(|| wrong(kind + 2))?;
        if is(kind + 3, ")") { Ok(column) } else { Err(no_column(kind + 3)) }
    };
    let (distribute_by, next) = if is(kind, "hash") {
        let (mut columns, next) = columns(tokens, kind + 1).map_err(no_column)?;
        match columns.len() {
            1 => (DistributeBy::Hash(columns.remove(0)), next),
            _ => (several(columns)?, next),
        }
    } else if is(kind, "range") {
        let column = column()?;
        let words = ["split", "at", "values", "("];
        let missing = words.iter().enumerate().find(|(index, word)| !is(kind + 4 + index, word));
        if let Some((index, _)) = missing {
            return Err(wrong(kind + 4 + index));
        }
        let (splits, next) =
            split_values(tokens, kind + 8).map_err(|index| match tokens.get(index) {
                Some(token) if token.token == Token::NullP => {
                    Refusal::postgres("22023", "a range cannot begin at NULL")
                        .with_detail("Rows whose key is NULL are in the first range.")
                }
                _ => wrong(index),
            })?;
        (DistributeBy::Range { column, splits: splits.into() }, next)
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
    let takes_others = distribute_by.key().is_some() || distribute_by == DistributeBy::Home;
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

/// Of `HASH (lower(name))` and the like.
fn refuse_expression() -> Refusal {
    Refusal::unsupported(
        "cannot distribute a table by an expression",
        "Rows are found by the values of columns.",
        "Let a column have its value, name GENERATED ALWAYS AS (expression) STORED, and distribute by that: conditions on \
         the expression find its rows, too.",
    )
}

/// The names in a list whose parenthesis is `tokens[open]`, and the index of the token behind it; or that of the token
/// that cannot be there.
fn columns(tokens: &[Lexeme<'_>], open: usize) -> Result<(Vec<String>, usize), usize> {
    let text = |index: usize| tokens.get(index).map(|token| token.text);
    if text(open) != Some("(") {
        return Err(open);
    }
    let mut columns = Vec::new();
    let mut next = open + 1;
    loop {
        let column = tokens.get(next).and_then(Lexeme::column_name);
        columns.push(column.filter(|name| !name.is_empty()).ok_or(next)?);
        match text(next + 1) {
            Some(",") => next += 2,
            Some(")") => return Ok((columns, next + 2)),
            _ => return Err(next + 1),
        }
    }
}

/// A key of these columns.
fn several(columns: Vec<String>) -> Result<DistributeBy, Refusal> {
    let is_again = |(index, column): &(usize, &String)| columns[..*index].contains(column);
    if let Some((_, column)) = columns.iter().enumerate().find(is_again) {
        let message = format!("column \"{column}\" appears twice in a distribution key");
        return Err(Refusal::postgres("42701", message));
    }
    if KEY_COLUMNS_MAX < columns.len() {
        let message =
            format!("cannot use more than {KEY_COLUMNS_MAX} columns in a distribution key");
        return Err(Refusal::postgres("54011", message));
    }
    Ok(DistributeBy::HashOfSeveral(columns.into()))
}

/// The constants of a list whose first item is `tokens[first]`, and the index of the token behind its closing parenthesis;
/// or that of the token that cannot be there.
fn split_values(tokens: &[Lexeme<'_>], first: usize) -> Result<(Vec<SplitValue>, usize), usize> {
    let mut values = Vec::new();
    let mut next = first;
    loop {
        let is_signed = tokens.get(next).is_some_and(|token| matches!(token.text, "-" | "+"));
        let sign = if is_signed { tokens[next].text } else { "" };
        next += usize::from(is_signed);
        let value = tokens.get(next).ok_or(next)?;
        values.push(match value.token {
            Token::Iconst | Token::Fconst => {
                SplitValue::Number(format!("{}{}", sign.trim_start_matches('+'), value.text))
            }
            // Other quotes, and strings that go on in another line, need not be read.
            Token::Sconst if !is_signed => {
                let text = value.text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
                let text = text.map(|text| text.replace("\'\'", "\0"));
                let text = text.filter(|text| !text.contains('\'')).ok_or(next)?;
                SplitValue::Text(text.replace('\0', "'"))
            }
            _ => return Err(next),
        });
        match tokens.get(next + 1).map(|token| token.text) {
            Some(",") => next += 2,
            Some(")") => return Ok((values, next + 2)),
            _ => return Err(next + 1),
        }
    }
}
