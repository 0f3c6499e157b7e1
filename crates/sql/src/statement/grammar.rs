//! PostgreSQL's parser and scanner, at a cost that grows with a text's length and no faster.
//!
//! Owns: what is done to a text before they read it, and how much memory its tree will take.
//! Never: changes what a text means, or where anything in it is.
//! Start reading at [`parse`].
//!
//! PostgreSQL's scanner reads the rest of a run of operator characters again at each `/*` in it, so that
//! nested comments are read in quadratic time. The inside of a comment means nothing:
//! such a text is read with spaces there.
//!
//! Trees nest as deep as chains of operators are long; `PG_QUERY_PROTOBUF_MAX_DEPTH` in the library ends
//! that at 10,000 levels, which is about where a PostgreSQL with its default `max_stack_depth` ends.
//! **Requires**: threads that read texts of clients have [`STACK_BYTES`] of stack.

use std::borrow::Cow;

use crate::shape::comment_end;

/// The stack that a thread needs to read, to rewrite and to drop the deepest tree there is. (The system
/// gives a thread only what it has touched.)
pub const STACK_BYTES: usize = 64 << 20;
/// With fewer comments than this there is nothing to gain.
const COMMENTS_MIN: usize = 32;
/// What the tree of a call, or of a whole statement, takes while it is made.
const BYTES_OF_CALL: usize = 5_000;
/// The same of any other word or value.
const BYTES_OF_TOKEN: usize = 1_000;

/// The text's statements as trees.
pub(crate) fn parse(text: &str) -> Result<pg_query::ParseResult, pg_query::Error> {
    pg_query::parse(&without_nested_comments(text)?, 0)
}

/// The text's tokens.
pub(crate) fn scan(text: &str) -> Result<Vec<pg_query::protobuf::ScanToken>, pg_query::Error> {
    let text = without_nested_comments(text)?;
    // The library makes a slice of nothing out of a null pointer, which ends a program that checks such things.
    if text.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)) {
        return Ok(Vec::new());
    }
    pg_query::scan_tokens(&text)
}

/// How many bytes reading this text takes, roughly and rather too many; found in one pass over it.
pub fn cost(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
    let (mut cost, mut at) = (BYTES_OF_CALL, 0);
    while let Some(&byte) = bytes.get(at) {
        let begun = at;
        at += 1;
        match byte {
            b'\'' | b'"' => {
                at += memchr::memchr(byte, &bytes[at..]).map_or(bytes.len() - at, |end| end + 1);
                cost += BYTES_OF_TOKEN;
            }
            b';' => cost += BYTES_OF_CALL,
            _ if is_word(byte) => {
                at += bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
                let calls = bytes.get(at) == Some(&b'(') && !byte.is_ascii_digit();
                cost += if calls { BYTES_OF_CALL } else { BYTES_OF_TOKEN };
            }
            b'+' | b'*' | b'<' | b'>' | b'=' | b'|' | b'&' | b'%' | b'^' | b'~' | b'!' | b'#'
            | b'@' | b'[' | b':' => cost += BYTES_OF_TOKEN,
            _ => (),
        }
        cost += 4 * (at - begun);
    }
    cost
}

/// The same text, in which comments are blank inside, if it has many.
///
/// Errors: a comment without an end, which PostgreSQL words so.
fn without_nested_comments(text: &str) -> Result<Cow<'_, str>, pg_query::Error> {
    if memchr::memmem::find_iter(text.as_bytes(), b"/*").nth(COMMENTS_MIN - 1).is_none() {
        return Ok(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut blanked = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        at = match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'*')) => {
                let Some(end) = comment_end(bytes, at) else {
                    let near = &text[at..];
                    let message = format!("unterminated /* comment at or near \"{near}\"");
                    return Err(pg_query::Error::Parse(message));
                };
                for byte in &mut blanked[at + 2..end - 2] {
                    if matches!(byte, b'/' | b'*') {
                        *byte = b' ';
                    }
                }
                end
            }
            (b'-', Some(b'-')) => {
                let line = memchr::memchr2(b'\n', b'\r', &bytes[at..]);
                line.map_or(bytes.len(), |length| at + length)
            }
            _ => match token_end(bytes, at) {
                Some(end) => end,
                // Whatever it is, the grammar will say so.
                None => return Ok(Cow::Borrowed(text)),
            },
        };
    }
    Ok(String::from_utf8(blanked).map_or(Cow::Borrowed(text), Cow::Owned))
}

/// The position after the literal, the name, or the character at `start`, which begins no comment.
/// `None` for an unterminated one, and for a string with backslashes that may continue on another
/// line.
fn token_end(bytes: &[u8], start: usize) -> Option<usize> {
    let begins_word = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | 0x80..);
    let goes_on = |byte: &u8| begins_word(*byte) || byte.is_ascii_digit() || *byte == b'$';
    match bytes[start] {
        quote @ (b'\'' | b'"') => Some(start + 1 + memchr::memchr(quote, &bytes[start + 1..])? + 1),
        b'$' => {
            let tag = bytes[start + 1..].iter();
            let length = tag.take_while(|byte| **byte != b'$' && goes_on(byte)).count();
            let end = start + 1 + length;
            let is_tag = bytes.get(end) == Some(&b'$')
                && !bytes.get(start + 1).is_some_and(u8::is_ascii_digit);
            if !is_tag {
                return Some(start + 1);
            }
            let tag = &bytes[start..=end];
            Some(end + 1 + memchr::memmem::find(&bytes[end + 1..], tag)? + tag.len())
        }
        byte if begins_word(byte) => {
            let end = start + bytes[start..].iter().take_while(|byte| goes_on(byte)).count();
            let is_escaped = end == start + 1 && byte.eq_ignore_ascii_case(&b'e');
            match bytes.get(end) {
                Some(b'\'') if is_escaped => escaped_end(bytes, end),
                _ => Some(end),
            }
        }
        _ => Some(start + 1),
    }
}

/// The position after the string with backslashes whose quote is at `start`.
fn escaped_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    let end = loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'\'' if bytes.get(at + 1) == Some(&b'\'') => at += 2,
            b'\'' => break at + 1,
            _ => at += 1,
        }
    };
    let behind = bytes[end..].iter().find(|byte| !byte.is_ascii_whitespace() && **byte != 0x0b);
    (!matches!(behind, Some(b'\'' | b'-'))).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(inside: &str) -> String {
        format!("/*{}{}*/{inside}", "/*".repeat(COMMENTS_MIN), "*/".repeat(COMMENTS_MIN))
    }

    #[test]
    fn nothing_has_no_tokens() {
        for text in ["", " ", "\n\t \r\u{b}\u{c}"] {
            assert_eq!(scan(text).expect("it can be scanned"), [], "{text:?}");
        }
        // What looks like a space, and is a name.
        assert_eq!(scan("\u{a0}").expect("it can be scanned").len(), 1);
    }

    #[test]
    fn only_what_is_inside_comments_is_blanked() {
        for literal in [
            "'/*/**/*/'",
            "'it''s /*/**/*/'",
            "\"/*/**/*/\"",
            "$$/*/**/*/$$",
            "$a$ $$ /*/**/*/ $a$",
            "E'\\'/*/**/*/'",
            "e'''/*/**/*/'",
            "U&'/*/**/*/'",
            "name'/*/**/*/'",
        ] {
            let text = many(&format!("SELECT {literal}, 1 --/*/*\n"));
            let read = without_nested_comments(&text).unwrap();
            assert_eq!(read.len(), text.len(), "{literal}");
            assert!(read.ends_with(&format!("*/SELECT {literal}, 1 --/*/*\n")), "{read}");
            assert!(!read.starts_with("/*/*"), "{read}");
        }
    }

    #[test]
    fn what_is_not_certain_stays() {
        for text in ["SELECT E'a'\n'b\\'/*'", "SELECT 'a", "SELECT $a$ $b$"] {
            let text = many(text);
            assert_eq!(without_nested_comments(&text).unwrap(), *text);
        }
    }

    /// Whatever a text is made of, PostgreSQL's scanner must find the same tokens in both readings.
    #[test]
    fn random_texts_have_the_same_tokens() {
        const PIECES: [&str; 24] = [
            "/*", "*/", "/", "*", "'", "\"", "$$", "$a$", "$1", "E'", "\\", "--", "\n", " ", "x",
            "e", "U&'", "+", "-", ";", "(", ")", "1", "é",
        ];
        let mut state = 7_u64;
        let mut next = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap_or(0) % below
        };
        let mut compared = 0;
        for _ in 0..20_000 {
            let length = 1 + next(14);
            let piece: String = (0..length).map(|_| PIECES[next(PIECES.len())]).collect();
            let text = format!("{piece} {}", many(""));
            let tokens = |text: &str| -> Option<Vec<(i32, i32, i32)>> {
                let tokens = pg_query::scan_tokens(text).ok()?;
                let is_code = |token: &pg_query::protobuf::Token| {
                    !matches!(token, pg_query::protobuf::Token::CComment)
                };
                let kept = tokens.iter().filter(|token| is_code(&token.token()));
                Some(kept.map(|token| (token.start, token.end, token.token)).collect())
            };
            let Some(plain) = tokens(&text) else { continue };
            let read = without_nested_comments(&text).expect("it can be scanned");
            assert_eq!(Some(plain), tokens(&read), "{text}");
            compared += 1;
        }
        assert!(2_000 < compared, "{compared}");
    }

    /// Counted in repetitions that a quadratic reader could not do.
    #[test]
    fn nested_comments_are_read_in_one_pass() {
        let depth = 300_000;
        let text = format!("SELECT 1 {}{}", "/*".repeat(depth), "*/".repeat(depth));
        assert_eq!(parse(&text).unwrap().protobuf.stmts.len(), 1);
        let open = format!("SELECT 1 {}", "/*".repeat(depth));
        assert!(parse(&open).is_err_and(|error| error.to_string().contains("unterminated /*")));
    }

    #[test]
    fn cost_follows_calls_and_not_bytes() {
        let calls = cost(&format!("SELECT {}", vec!["f(g(h(1)))"; 1_000].join(",")));
        let literal = cost(&format!("SELECT '{}'", "x".repeat(11_000)));
        assert!(100 * literal < calls * 2, "{literal} {calls}");
    }
}
