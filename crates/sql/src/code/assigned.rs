//! What a trigger function in PL/pgSQL may do to the row that it is given.
//!
//! Owns: finding assignments to NEW by the tokens around it; in doubt it is one.
//! Never: knows which trigger runs the function, or when.
//! Start reading at [`assigned`].

use std::collections::BTreeSet;

use crate::statement::tokens::Lexeme;

/// What a trigger function may do to the row that it is given.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Assigned {
    pub(super) columns: BTreeSet<String>,
    /// All of it, or it returns another.
    pub(super) whole: bool,
}

/// What a trigger function's text may assign to NEW.
pub(super) fn assigned(tokens: &[Lexeme<'_>], words: &[String]) -> Assigned {
    let mut assigned = Assigned::default();
    let text_at = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let word_at = |at: usize| words.get(at).map_or("", String::as_str);
    let mut target = |at: usize| {
        // NEW, or NEW.column, at `at`; returns what follows.
        if text_at(at + 1) == "." {
            assigned.columns.insert(word_at(at + 2).to_owned());
        } else {
            assigned.whole = true;
        }
    };
    let mut returns_other = false;
    for (index, name) in words.iter().enumerate() {
        match name.as_str() {
            "new" => {
                let behind = if text_at(index + 1) == "." { index + 3 } else { index + 1 };
                // A block's name may stand before it.
                let first = match text_at(index.wrapping_sub(1)) {
                    "." => index.saturating_sub(2),
                    _ => index,
                };
                let assigns = text_at(behind) == ":="
                    || text_at(behind) == "["
                    || (matches!(text_at(behind), "=" | ".")
                        && begins_statement(first, tokens, words));
                let is_target = matches!(
                    first.checked_sub(1).map(word_at),
                    Some("into" | "strict" | "for" | "foreach" | "diagnostics")
                );
                let is_listed =
                    text_at(first.wrapping_sub(1)) == "," && is_in_into(first, words, tokens);
                // A procedure gives values to its arguments.
                if assigns || is_target || is_listed || is_in_call(index, words, tokens) {
                    target(index);
                }
            }
            "return" => {
                let ends = text_at(index + 2) == ";";
                returns_other |= !(ends && matches!(word_at(index + 1), "new" | "old" | "null"))
                    && text_at(index + 1) != ";";
            }
            _ => (),
        }
    }
    assigned.whole |= returns_other;
    assigned
}

/// Whether the token stands in a CALL.
fn is_in_call(index: usize, words: &[String], tokens: &[Lexeme<'_>]) -> bool {
    let statement = (0..index).rev().take_while(|at| tokens[*at].text != ";");
    statement.into_iter().any(|at| words[at] == "call")
}

/// Whether the token stands in the list after an INTO, or of what a FOR gives values to.
fn is_in_into(index: usize, words: &[String], tokens: &[Lexeme<'_>]) -> bool {
    // Brackets hold expressions.
    let mut depth = 0_usize;
    for at in (0..index).rev() {
        match tokens[at].text {
            "]" => depth += 1,
            "[" => depth = depth.saturating_sub(1),
            _ => (),
        }
        if 0 < depth {
            continue;
        }
        match (tokens[at].text, words[at].as_str()) {
            (_, "into" | "diagnostics" | "for" | "foreach") => return true,
            ("," | "." | "[" | "]" | "=", _) => (),
            (_, "") => return false,
            (_, "from" | "select" | "where") => return false,
            _ => (),
        }
    }
    false
}

/// Whether a PL/pgSQL statement begins at this token.
pub(super) fn begins_statement(index: usize, tokens: &[Lexeme<'_>], words: &[String]) -> bool {
    let Some(before) = index.checked_sub(1) else { return true };
    tokens[before].text == ";"
        || tokens[before].text == ">>"
        || matches!(words[before].as_str(), "begin" | "then" | "else" | "loop" | "atomic")
}
