//! What a byte may begin, by the rules of PostgreSQL's scanner.
//!
//! Owns: the class of each byte outside of literals and comments. Never: reads a text.

/// What a byte outside of literals and comments may begin.
#[derive(Clone, Copy)]
pub(super) enum Class {
    /// An identifier or a keyword.
    Word,
    Digit,
    Dot,
    Quote,
    DoubleQuote,
    Blank,
    /// `-`: an operator or a comment.
    Dash,
    /// `/`: the same.
    Slash,
    Semicolon,
    /// Part of an operator, or a token of its own.
    Plain,
    /// What texts with a shape do not contain.
    Odd,
}

pub(super) const CLASSES: [Class; 256] = {
    let mut classes = [Class::Odd; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => Class::Word,
            b'0'..=b'9' => Class::Digit,
            b'.' => Class::Dot,
            b'\'' => Class::Quote,
            b'"' => Class::DoubleQuote,
            b' ' | b'\t' | b'\n' | b'\r' | b'\x0c' => Class::Blank,
            b'-' => Class::Dash,
            b'/' => Class::Slash,
            b';' => Class::Semicolon,
            b',' | b'(' | b')' | b'[' | b']' | b':' | b'+' | b'*' | b'%' | b'^' | b'<' | b'>'
            | b'=' | b'~' | b'!' | b'@' | b'#' | b'&' | b'|' | b'`' | b'?' => Class::Plain,
            _ => Class::Odd,
        };
        byte += 1;
    }
    classes
};

/// Whether a byte can go on an identifier that has begun, for each.
const WORD_BYTES: [bool; 256] = {
    let mut bytes = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        bytes[byte] = matches!(CLASSES[byte], Class::Word | Class::Digit) || byte == b'$' as usize;
        byte += 1;
    }
    bytes
};

/// Whether a byte can go on an identifier that has begun.
pub(super) fn is_word_byte(byte: u8) -> bool {
    WORD_BYTES[usize::from(byte)]
}
