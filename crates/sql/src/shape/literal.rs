//! Literals: where they are in a text, of which kind, and their values.
//!
//! Owns: reading numbers and strings as PostgreSQL's scanner does.
//! Never: knows what a literal is compared with.

use std::borrow::Cow;

use super::class::is_word_byte;

/// What a literal is, as far as the planner treats them differently.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LiteralKind {
    /// An integer that fits 32 bits: a constant of type integer.
    Integer,
    /// Any other number.
    Number,
    /// `'…'`.
    String,
}

impl LiteralKind {
    /// The byte that represents it in a key.
    pub(super) fn mark(self) -> u8 {
        match self {
            Self::Integer => 0xf9,
            Self::Number => 0xfa,
            Self::String => 0xfb,
        }
    }
}

/// A literal of a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Literal {
    /// Its first byte.
    pub start: usize,
    /// The first byte after it.
    pub end: usize,
    /// What it is.
    pub kind: LiteralKind,
}

impl Literal {
    /// As written; the text must be the one it was found in.
    pub fn written<'t>(&self, text: &'t str) -> &'t str {
        // A literal begins and ends with ASCII.
        text.get(self.start..self.end).unwrap_or_default()
    }

    /// What a string says, without its quotes.
    pub(crate) fn unquoted<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let written = self.written(text);
        let inner = written.strip_prefix('\'').and_then(|it| it.strip_suffix('\''));
        let inner = inner.unwrap_or_default();
        if inner.contains('\'') { inner.replace("''", "'").into() } else { inner.into() }
    }
}

/// The place of a literal in a statement's tree, and how the tree refers to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hole {
    /// Which of the shape's literals.
    pub index: u16,
    /// What it is.
    pub kind: LiteralKind,
    /// A minus sign belongs to the constant.
    pub negative: bool,
    /// A string that is cast to a type of this family of key types.
    pub cast: Option<&'static str>,
    /// Planned for literals that land on several nodes; else for those that agree on one.
    pub apart: bool,
}

/// The number at `start`: its end and kind. `None` if what follows makes it unusual.
pub(super) fn number(bytes: &[u8], start: usize) -> Option<(usize, LiteralKind)> {
    let digits_end = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        from + rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())
    };
    let whole = digits_end(start);
    let mut end = whole;
    if bytes.get(end) == Some(&b'.') {
        end = digits_end(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = end + 1 + sign;
        end = digits_end(exponent);
        if end == exponent {
            return None;
        }
    }
    if bytes.get(end).is_some_and(|next| *next == b'.' || is_word_byte(*next)) {
        return None;
    }
    let is_integer = end == whole && fits_32_bits(&bytes[start..end]);
    Some((end, if is_integer { LiteralKind::Integer } else { LiteralKind::Number }))
}

/// Whether these digits are a number below 2^31.
fn fits_32_bits(digits: &[u8]) -> bool {
    let value = digits.iter().try_fold(0_i32, |value, digit| {
        value.checked_mul(10)?.checked_add(i32::from(digit - b'0'))
    });
    value.is_some()
}
