//! Parse errors with the SQLSTATE and position that a PostgreSQL server would give.
//!
//! Owns: finding the position, which the parser's binding does not hand out.
//! Never: words a message of its own for what the grammar refuses.

use super::grammar;
use super::tokens::{Lexeme, scan};
use crate::refusal::Refusal;

/// The refusal for what `pg_query` said about `text`.
pub(super) fn from_parse(text: &str, error: &pg_query::Error) -> Refusal {
    match error {
        pg_query::Error::Parse(message)
            if message.starts_with("stack depth limit")
                || message.contains("nested too deeply") =>
        {
            too_deep()
        }
        pg_query::Error::Parse(message) | pg_query::Error::Scan(message) => {
            let refusal = Refusal::postgres(sqlstate(message), message.clone());
            Refusal { position: position(text, message), ..refusal }
        }
        pg_query::Error::Conversion(_) => {
            Refusal::postgres("22021", "invalid byte sequence for encoding \"UTF8\": 0x00")
        }
        // The library's bound on the nesting of trees is a parse error by its kind; what is left is the
        // decoder's.
        _ => too_deep(),
    }
}

fn too_deep() -> Refusal {
    Refusal::postgres("54001", "stack depth limit exceeded")
        .with_hint("The statement is nested too deeply; split it or use fewer operators.")
}

/// A syntax error at the token that begins at this byte; `None` means the end of the text.
pub(super) fn near(text: &str, token: Option<(usize, &str)>) -> Refusal {
    let (at, message) = match token {
        Some((start, token)) => (start, format!("syntax error at or near \"{token}\"")),
        None => (text.len(), "syntax error at end of input".to_owned()),
    };
    Refusal { position: Some(characters_to(text, at)), ..Refusal::postgres("42601", message) }
}

/// The SQLSTATE of what PostgreSQL's grammar and scanner raise besides plain syntax errors.
fn sqlstate(message: &str) -> &'static str {
    const OTHERS: [(&str, &str); 9] = [
        ("not yet implemented", "0A000"),
        ("not implemented", "0A000"),
        ("frame ", "42P20"),
        ("invalid Unicode escape value", "42601"),
        ("invalid Unicode escape", "22025"),
        ("invalid Unicode surrogate pair", "42601"),
        ("invalid byte sequence", "22021"),
        ("unsafe use of \\'", "22P06"),
        ("stack depth limit exceeded", "54001"),
    ];
    OTHERS.iter().find(|(part, _)| message.contains(part)).map_or("42601", |(_, state)| state)
}

/// Where the error is, in characters from 1, as far as its message tells.
fn position(text: &str, message: &str) -> Option<usize> {
    if message.ends_with("at end of input") {
        return Some(characters_to(text, text.len()));
    }
    let (_, quoted) = message.split_once(" at or near \"")?;
    let near = quoted.strip_suffix('"')?;
    let at = match scan(text) {
        Ok(tokens) => first_failing(text, &tokens, near, message)?,
        // The scanner itself failed: it quotes the rest of the text from the bad token on, or
        // just the token.
        Err(_) if text.ends_with(near) => text.len() - near.len(),
        Err(_) => text.find(near)?,
    };
    Some(characters_to(text, at))
}

/// The byte at which the token begins that the message quotes.
///
/// The grammar refuses a text at the first token that no statement could have there, so a prefix of
/// the text gives the same message exactly if it reaches that token: a binary search over the
/// tokens spelt like the quoted one finds it with few parses.
fn first_failing(text: &str, tokens: &[Lexeme<'_>], near: &str, message: &str) -> Option<usize> {
    let candidates: Vec<&Lexeme<'_>> = tokens
        .iter()
        .filter(|token| token.text == near || text[token.start..].starts_with(near))
        .collect();
    let fails = |token: &Lexeme<'_>| {
        let end = (token.start + near.len()).max(token.end);
        matches!(
            grammar::parse(&text[..end]),
            Err(pg_query::Error::Parse(found)) if found == message
        )
    };
    let first = match candidates.as_slice() {
        [] => return None,
        [only] => return Some(only.start),
        several => several.partition_point(|token| !fails(token)),
    };
    candidates.get(first).map(|token| token.start)
}

/// The number, from 1, of the character at this byte.
pub(super) fn characters_to(text: &str, byte: usize) -> usize {
    text.char_indices().take_while(|(index, _)| *index < byte).count() + 1
}
