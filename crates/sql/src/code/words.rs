//! The names and operators in a text of code, and what its bare words give away.
//!
//! Owns: what counts as a name, in whatever language: a word is taken for all that it may mean.
//! Never: knows where a statement begins or ends, or what a name stands for (`closure` looks that up).
//! Start reading at [`words_of`].

use std::collections::BTreeSet;

use pg_query::protobuf::Token;

use crate::statement::tokens::{Lexeme, scan};

/// A name in a text.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Name {
    /// What stands before the dot, if one does: a schema, or anything that has columns.
    pub(crate) before: Option<String>,
    pub(crate) name: String,
    /// A parenthesis follows.
    pub(crate) called: bool,
    /// It stands where a type may, and a table may not: after `::`, AS, or another name.
    pub(crate) typed: bool,
    /// Hardly anything but a type can stand there: after `::`, at the end of CAST, before a string, behind a column in a
    /// list of such.
    pub(crate) casts: bool,
    /// `[` or ARRAY follows: of a type, that makes it one of arrays.
    pub(crate) listed: bool,
}

impl Name {
    /// Whether it may mean this type, or arrays of it.
    pub(crate) fn may_mean(&self, of: &str) -> bool {
        may_name(&self.name, of)
    }
}

/// The name, and for what may be an array's type (`_t`, or with more of them where that was taken) those that its
/// elements may have.
pub(crate) fn types_of_name(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.strip_prefix('_'))
}

/// Whether it may be the name of this type, or of an array's of it. (Such a name ends where names end.)
pub(crate) fn may_name(name: &str, of: &str) -> bool {
    types_of_name(name).any(|name| name == of) || is_cut_from(name, of)
}

/// Whether it may be the name of an array's type whose elements' name is too long to be all of it.
pub(crate) fn is_cut_from(name: &str, of: &str) -> bool {
    let is_whole = name.len() < NAME_BYTES_MAX - MAX_BYTES_OF_A_CHARACTER;
    let kept = name.trim_start_matches('_');
    !is_whole && name.starts_with('_') && kept.len() < of.len() && of.starts_with(kept)
}

/// What a word may mean that calls code.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Called {
    Function,
    Operator,
    Type,
}

/// Names and operators of a text, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    pub(crate) names: BTreeSet<Name>,
    /// Operators, with the schema if written.
    pub(crate) operators: BTreeSet<(Option<String>, String)>,
}

impl Words {
    /// What they may call: each word with what it may mean by it, and where it may be, if that is not any schema of
    /// the search path.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (Option<&str>, (Called, &str))> {
        let called = self.names.iter().filter(|name| name.called);
        let functions = called.map(|name| (name.before.as_deref(), Called::Function, &*name.name));
        // As if it were a column of something.
        let columns = self.names.iter().filter(|name| name.before.is_some());
        let columns = columns.map(|name| (None, Called::Function, &*name.name));
        let types = self.names.iter();
        let types = types.map(|name| (name.before.as_deref(), Called::Type, &*name.name));
        let operators = self.operators.iter();
        let operators =
            operators.map(|(schema, name)| (schema.as_deref(), Called::Operator, &**name));
        // Types by the names of their arrays.
        let arrays = self.names.iter().filter(|name| name.name.starts_with('_'));
        let arrays = arrays
            .map(|name| (name.before.as_deref(), Called::Type, name.name.trim_start_matches('_')));
        let all = functions.chain(columns).chain(types).chain(arrays).chain(operators);
        all.map(|(schema, called, name)| (schema, (called, name)))
    }
}

/// Names of the form of a setting with a dot in a text.
pub fn dotted_names(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == '.';
    text.split(move |c| !is_part(c))
        .map(|word| word.trim_matches('.'))
        .filter(|word| {
            word.contains('.')
                && word.len() < 64
                && word
                    .split('.')
                    .all(|part| part.starts_with(|c: char| c.is_alphabetic() || c == '_'))
        })
        .map(str::to_lowercase)
}

/// The tokens of a text that every setting of `standard_conforming_strings` reads alike.
pub(crate) fn certain_tokens(text: &str) -> Option<Vec<Lexeme<'_>>> {
    let tokens = scan(text).ok()?;
    let is_odd = |token: &Lexeme<'_>| {
        matches!(token.token, Token::Uident | Token::Usconst)
            || (token.token == Token::Sconst
                && token.text.starts_with('\'')
                && (token.text.contains("\\'") || token.text.ends_with("\\'")))
    };
    (!tokens.iter().any(is_odd)).then_some(tokens)
}

/// The name that a token spells, keywords too; empty if it is no word.
pub(super) fn word(token: &Lexeme<'_>) -> String {
    if let Some(quoted) = token.text.strip_prefix('"') {
        return cut(quoted.strip_suffix('"').unwrap_or(quoted).replace("\"\"", "\""));
    }
    match token.text.chars().next() {
        Some(first) if first.is_alphabetic() || first == '_' => {
            if token.token == Token::Sconst || token.token == Token::Xconst {
                return String::new();
            }
            // As PostgreSQL does where characters have several bytes.
            cut(token.text.to_ascii_lowercase())
        }
        _ => String::new(),
    }
}

/// Whether a table's name, not a type's, follows this word.
fn is_before_table(word: &str) -> bool {
    matches!(
        word,
        "from"
            | "join"
            | "into"
            | "update"
            | "only"
            | "using"
            | "table"
            | "truncate"
            | "copy"
            | "lock"
            | "select"
            | "where"
            | "on"
            | "and"
            | "or"
            | "by"
            | "set"
            | "returning"
            | "distinct"
    )
}

const NAME_BYTES_MAX: usize = 63;
const MAX_BYTES_OF_A_CHARACTER: usize = 4;

/// As much of a name as PostgreSQL takes.
fn cut(mut name: String) -> String {
    if NAME_BYTES_MAX < name.len() {
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    }
    name
}

fn is_string(token: Token) -> bool {
    matches!(token, Token::Sconst | Token::Usconst)
}

/// Names and operators among tokens.
pub(crate) fn words_of(tokens: &[Lexeme<'_>]) -> Words {
    let mut words = Words::default();
    let text_at = |index: Option<usize>| index.and_then(|at| tokens.get(at)).map_or("", |t| t.text);
    let implied = |of: &[&str], words: &mut Words| {
        words.operators.extend(of.iter().map(|name| (None, (*name).to_owned())));
    };
    for (index, token) in tokens.iter().enumerate() {
        let before = index.checked_sub(1);
        let qualifier = (text_at(before) == ".")
            .then(|| before.and_then(|at| at.checked_sub(1)).and_then(|at| tokens.get(at)))
            .flatten()
            .map(word)
            .filter(|name| !name.is_empty())
            // After an expression: a column of it, or a function.
            .or_else(|| (text_at(before) == ".").then(String::new));
        let name = word(token);
        if !name.is_empty() {
            match name.as_str() {
                "in" | "distinct" | "nullif" | "case" | "using" | "natural" | "any" | "all"
                | "some" | "group" | "union" | "intersect" | "except" | "row" => {
                    implied(&["=", "<>"], &mut words);
                }
                "between" | "order" | "min" | "max" | "greatest" | "least" | "partition" => {
                    implied(&["<", ">", "<=", ">=", "="], &mut words);
                }
                "like" | "ilike" => implied(&["~~", "!~~", "~~*", "!~~*"], &mut words),
                "similar" => implied(&["~", "!~"], &mut words),
                _ => (),
            }
            let called = text_at(Some(index + 1)) == "(";
            // A type's name may have a database before its schema.
            let mut begins = index;
            while 2 <= begins
                && tokens[begins - 1].text == "."
                && !word(&tokens[begins - 2]).is_empty()
            {
                begins -= 2;
            }
            let typed = begins.checked_sub(1).is_some_and(|at| {
                let word = word(&tokens[at]);
                tokens[at].text == "::" || !(word.is_empty() || is_before_table(&word))
            });
            let after = text_at(Some(index + 1));
            let listed = after == "[" || after.eq_ignore_ascii_case("array");
            let casts = begins.checked_sub(1).is_some_and(|at| {
                let comes_before =
                    |text: &str| at.checked_sub(1).is_some_and(|it| tokens[it].text == text);
                match word(&tokens[at]).as_str() {
                    "" => tokens[at].text == "::",
                    "setof" => true,
                    "as" => matches!(after, ")" | "[") || listed,
                    // A column's, in a list of such.
                    _ => {
                        let ends = matches!(after, ")" | "," | "[")
                            || listed
                            || ["path", "not", "null", "default"]
                                .iter()
                                .any(|word| after.eq_ignore_ascii_case(word));
                        let begins = comes_before("(")
                            || comes_before(",")
                            || at.checked_sub(1).is_some_and(|it| word(&tokens[it]) == "columns");
                        typed && ends && begins
                    }
                }
            });
            // `t '…'` is a value of the type t.
            let has_value = tokens.get(index + 1).is_some_and(|next| is_string(next.token));
            let casts = casts || has_value;
            words.names.insert(Name { before: qualifier, name, called, typed, casts, listed });
            continue;
        }
        let is_operator = match token.token {
            Token::Op | Token::LessEquals | Token::GreaterEquals => true,
            Token::NotEquals => {
                words.operators.insert((qualifier, "<>".to_owned()));
                continue;
            }
            _ => matches!(token.text, "+" | "-" | "*" | "/" | "%" | "^" | "<" | ">" | "="),
        };
        if is_operator {
            words.operators.insert((qualifier, token.text.to_owned()));
        }
    }
    words
}

/// Whether a text may read rows by their place: a server counts no such scan, only the pages that it
/// reads. Literals count, for they may be run.
pub(crate) fn reads_uncounted(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("tablesample") || text.contains("ctid")
}

/// Whether a text may give the current time, or what another server has otherwise: two nodes, or a node a little later,
/// would give another value. Literals count.
pub(crate) fn names_what_differs(text: &str) -> bool {
    const WORDS: [&str; 16] = [
        "now",
        "today",
        "tomorrow",
        "yesterday",
        "current_date",
        "current_time",
        "current_timestamp",
        "localtime",
        "localtimestamp",
        "transaction_timestamp",
        "statement_timestamp",
        "inet_server_addr",
        "inet_server_port",
        "pg_postmaster_start_time",
        "pg_is_in_recovery",
        "pg_current_snapshot",
    ];
    says_any(text, &WORDS)
}

/// Whether a text names a setting by which a server stops telling what code has touched: it counts no
/// scans, or has workers run code, whose locks and counts are their own. Literals count.
pub fn names_accounting(text: &str) -> bool {
    const SETTINGS: [&str; 2] = ["track_counts", "max_parallel_workers"];
    says_any(text, &SETTINGS)
}

/// Whether one of these words stands in a text, wherever that is.
fn says_any(text: &str, words: &[&str]) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.split(|c| !is_part(c)).any(|word| words.iter().any(|it| word.eq_ignore_ascii_case(it)))
}
