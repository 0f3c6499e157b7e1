//! A statement's shape: its text without the values of its literals.
//!
//! Owns: reading a text once, byte by byte, by the rules of PostgreSQL's scanner, far enough to tell
//! literals from everything else. Never: knows the grammar; `planner/by_shape/mod.rs` finds out what the
//! literals of a shape mean, with the help of the parser.
//! Start reading at [`Scanner::scan`].
//!
//! Two texts with the same [`Shape::key`] have the same tokens except for the values of their
//! literals, and literals of the same kinds, so that the parser makes the same tree of both except
//! for these values. That is all that is promised, and it is enough: what the parser said about one
//! text holds for all of its shape. Where the rules are subtle (see [`Scanner::scan`]) a text has no
//! shape, which only costs time.

mod class;
mod literal;

use self::class::{CLASSES, Class, is_word_byte};
pub use literal::{Hole, Literal, LiteralKind};

/// Longer texts have no shape: they are rarely sent twice, and reading them is not what they cost.
const TEXT_BYTES_MAX: usize = 8 * 1024;
/// The same for texts with more literals.
const LITERALS_MAX: usize = 128;

/// Reads shapes; keeps its buffers between texts.
#[derive(Debug, Default)]
pub struct Scanner {
    key: Vec<u8>,
    literals: Vec<Literal>,
}

/// What [`Scanner::scan`] found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shape<'s> {
    /// The tokens, each literal replaced by one byte for its kind (which no UTF-8 text contains),
    /// white space and comments between two tokens by one space.
    pub key: &'s [u8],
    /// The literals, in the order of the text.
    pub literals: &'s [Literal],
    /// The statement's first byte in the text.
    pub start: usize,
    /// The first byte after its last token, the semicolon left out.
    pub end: usize,
}

impl Scanner {
    /// The shape of a text that is one statement: SELECT, INSERT, UPDATE, DELETE or WITH.
    ///
    /// `None` for all else, and for what is not worth the effort or cannot be recognised without more
    /// of PostgreSQL's scanner: parameters and dollar quotes, strings with a prefix (`E''`, `B''`,
    /// `X''`, `N''`, `U&''`) or continued on another line, numbers with anything unusual after them
    /// (`1_000`, `0x1f`, `1..2`), vertical tabs, and anything unterminated.
    pub fn scan(&mut self, text: &str) -> Option<Shape<'_>> {
        let bytes = text.as_bytes();
        if TEXT_BYTES_MAX < bytes.len() {
            return None;
        }
        self.key.clear();
        self.literals.clear();
        let start = blank_end(bytes, 0)?;
        if !begins_well(&bytes[start..]) {
            return None;
        }
        // Bytes from `run` to `at` are copied as they are when something else follows.
        let (mut run, mut at) = (start, start);
        let end = loop {
            let Some(&byte) = bytes.get(at) else { break at };
            match CLASSES[usize::from(byte)] {
                Class::Word => at = word_end(bytes, at)?,
                Class::Plain => at += 1,
                Class::Digit => {
                    self.key.extend_from_slice(&bytes[run..at]);
                    (at, run) = self.literal(at, literal::number(bytes, at)?)?;
                }
                Class::Dot => match bytes.get(at + 1) {
                    // `t1.5` is a name and a number, though not what was meant; `..` is one token.
                    Some(b'0'..=b'9') if is_word_byte(bytes[at - 1]) => return None,
                    Some(b'.') => return None,
                    Some(b'0'..=b'9') => {
                        self.key.extend_from_slice(&bytes[run..at]);
                        (at, run) = self.literal(at, literal::number(bytes, at)?)?;
                    }
                    _ => at += 1,
                },
                Class::Quote => {
                    let end = quoted_end(bytes, at)?;
                    if bytes.get(blank_end(bytes, end)?) == Some(&b'\'') {
                        return None;
                    }
                    self.key.extend_from_slice(&bytes[run..at]);
                    (at, run) = self.literal(at, (end, LiteralKind::String))?;
                }
                Class::DoubleQuote => at = quoted_end(bytes, at)?,
                Class::Blank | Class::Dash | Class::Slash => {
                    let end = blank_end(bytes, at)?;
                    if end == at {
                        // An operator.
                        at += 1;
                    } else if end == bytes.len() || bytes[end] == b';' {
                        break at;
                    } else if end == at + 1 && byte == b' ' {
                        at = end;
                    } else {
                        self.key.extend_from_slice(&bytes[run..at]);
                        self.key.push(b' ');
                        (at, run) = (end, end);
                    }
                }
                Class::Semicolon => break at,
                Class::Odd => return None,
            }
        };
        self.key.extend_from_slice(&bytes[run..end]);
        // After the end there may be one semicolon, and no other token.
        let mut behind = blank_end(bytes, end)?;
        if bytes.get(behind) == Some(&b';') {
            behind = blank_end(bytes, behind + 1)?;
        }
        let is_all = behind == bytes.len();
        is_all.then_some(Shape { key: &self.key, literals: &self.literals, start, end })
    }

    /// Notes a literal; returns the first byte after it twice.
    fn literal(
        &mut self,
        start: usize,
        (end, kind): (usize, LiteralKind),
    ) -> Option<(usize, usize)> {
        if self.literals.len() == LITERALS_MAX {
            return None;
        }
        self.key.push(kind.mark());
        self.literals.push(Literal { start, end, kind });
        Some((end, end))
    }
}

/// The end of the word at `start`; `None` if it is the prefix of a string or of a quoted identifier.
fn word_end(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = bytes.get(start + 1..)?;
    let more = rest.iter().position(|byte| !is_word_byte(*byte));
    let end = start + 1 + more.unwrap_or(rest.len());
    let is_prefix = end == start + 1
        && match bytes.get(end) {
            Some(b'\'') => b"eEbBxXnN".contains(&bytes[start]),
            Some(b'&') => b"uU".contains(&bytes[start]),
            _ => false,
        };
    (!is_prefix).then_some(end)
}

/// The position after the quote that ends what the quote at `start` began; a doubled one is part of
/// it.
fn quoted_end(bytes: &[u8], start: usize) -> Option<usize> {
    let quote = bytes[start];
    let mut at = start + 1;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == quote)? + 1;
        if bytes.get(at) != Some(&quote) {
            return Some(at);
        }
        at += 1;
    }
}

/// The end of the white space and comments that begin at `start`; `None` for a comment without end.
pub(crate) fn blank_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(b' ' | b'\t' | b'\n' | b'\r' | b'\x0c'), _) => at += 1,
            (Some(b'-'), Some(b'-')) => {
                let rest = &bytes[at..];
                let line = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                at += line.unwrap_or(rest.len());
            }
            (Some(b'/'), Some(b'*')) => at = comment_end(bytes, at)?,
            _ => return Some(at),
        }
    }
}

/// The end of a comment with slashes and stars, which may contain others.
pub(crate) fn comment_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 2;
    let mut depth = 1;
    while 0 < depth {
        match bytes.get(at..at + 2)? {
            b"/*" => (at, depth) = (at + 2, depth + 1),
            b"*/" => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    Some(at)
}

/// Whether the first word is that of a statement whose plan may be the same for all of its shape.
fn begins_well(bytes: &[u8]) -> bool {
    const WORDS: [&[u8]; 5] = [b"select", b"insert", b"update", b"delete", b"with"];
    WORDS.iter().any(|word| {
        bytes.get(..word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word))
            && !bytes.get(word.len()).is_some_and(|next| is_word_byte(*next))
    })
}

#[cfg(test)]
mod tests;
