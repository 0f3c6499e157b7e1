//! Text format: the fields of a row, and further fields for it.
//!
//! Owns: backslash escapes and the NULL string. Never: looks for line ends (see `line`), but for
//! telling a row's own from its data.
//!
//! Source: PostgreSQL `src/backend/commands/copyfromparse.c` (`CopyReadAttributesText`),
//! `copyto.c` (`CopyAttributeOutText`).

use std::borrow::Cow;

use memchr::memchr2;

use super::{CopyError, TextFormat};

pub(super) fn field<'r>(
    format: &TextFormat,
    row: &'r [u8],
    index: usize,
) -> Result<Option<Cow<'r, [u8]>>, CopyError> {
    let mut rest = split_line_end(row).0;
    for _ in 0..index {
        let end = field_end(format, rest).ok_or(CopyError::MissingField { index })?;
        rest = &rest[end + 1..];
    }
    let raw = field_end(format, rest).map_or(rest, |end| &rest[..end]);
    if raw == format.null {
        return Ok(None);
    }
    if Some(raw) == format.default.as_deref() {
        return Err(CopyError::FieldIsDefault { index });
    }
    Ok(Some(unescaped(raw)))
}

pub(super) fn append_fields(
    format: &TextFormat,
    row: &[u8],
    fields: &[Option<&[u8]>],
) -> Result<Vec<u8>, CopyError> {
    let (content, line_end) = split_line_end(row);
    let mut longer = content.to_vec();
    for field in fields {
        longer.push(format.delimiter);
        match field {
            // Such a NULL string would escape the delimiter or line end after it.
            None if ends_with_escape(&format.null) => return Err(CopyError::NotRepresentable),
            None => longer.extend_from_slice(&format.null),
            Some(value) => escape_onto(&mut longer, format, value)?,
        }
    }
    longer.extend_from_slice(line_end);
    Ok(longer)
}

/// A row's fields and its line end.
///
/// An escaped newline or carriage return is no line end. A backslash at the very end of the
/// data escapes nothing and means nothing; it is left out.
fn split_line_end(row: &[u8]) -> (&[u8], &[u8]) {
    let mut content = row;
    for byte in [b'\n', b'\r'] {
        if let [before @ .., last] = content
            && *last == byte
            && !ends_with_escape(before)
        {
            content = before;
        }
    }
    let line_end = &row[content.len()..];
    if line_end.is_empty() && ends_with_escape(content) {
        content = &content[..content.len() - 1];
    }
    (content, line_end)
}

/// Whether what follows `bytes` is escaped.
fn ends_with_escape(bytes: &[u8]) -> bool {
    let backslashes = bytes.iter().rev().take_while(|byte| **byte == b'\\').count();
    !backslashes.is_multiple_of(2)
}

/// Where the delimiter after the first field is.
fn field_end(format: &TextFormat, fields: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(format.delimiter, b'\\', fields.get(at..)?)?;
        if fields[at] == format.delimiter {
            return Some(at);
        }
        at += 2;
    }
}

fn unescaped(raw: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr(b'\\', raw) else {
        return Cow::Borrowed(raw);
    };
    let mut value = raw[..first].to_vec();
    let mut rest = &raw[first..];
    loop {
        let (byte, after) = match *rest {
            [] => return Cow::Owned(value),
            [b'\\', b'b', ref after @ ..] => (0x08, after),
            [b'\\', b'f', ref after @ ..] => (0x0c, after),
            [b'\\', b'n', ref after @ ..] => (b'\n', after),
            [b'\\', b'r', ref after @ ..] => (b'\r', after),
            [b'\\', b't', ref after @ ..] => (b'\t', after),
            [b'\\', b'v', ref after @ ..] => (0x0b, after),
            [b'\\', b'0'..=b'7', ..] => digits_value(&rest[1..], 8, 3),
            [b'\\', b'x', digit, ..] if digit.is_ascii_hexdigit() => {
                digits_value(&rest[2..], 16, 2)
            }
            [b'\\', byte, ref after @ ..] => (byte, after),
            [byte, ref after @ ..] => (byte, after),
        };
        value.push(byte);
        rest = after;
    }
}

/// The byte that at most `count_max` leading digits stand for (`\477` wraps around, as in
/// PostgreSQL), and what follows them.
fn digits_value(text: &[u8], radix: u32, count_max: usize) -> (u8, &[u8]) {
    let digits = text.iter().take(count_max).map_while(|byte| char::from(*byte).to_digit(radix));
    let (value, count) =
        digits.fold((0, 0), |(value, count), digit| (value * radix + digit, count + 1));
    (value as u8, &text[count..])
}

/// Appends a value in such a spelling that the server takes it neither for NULL nor for default.
fn escape_onto(row: &mut Vec<u8>, format: &TextFormat, value: &[u8]) -> Result<(), CopyError> {
    let start = row.len();
    let marked = |raw: &[u8]| raw == format.null || Some(raw) == format.default.as_deref();
    escape_bytes_onto(row, format, value);
    if !marked(&row[start..]) {
        return Ok(());
    }
    // Three more spellings, so one of them is neither; only nothing has a single spelling.
    let [first, others @ ..] = value else {
        return Err(CopyError::NotRepresentable);
    };
    for first in [format!("\\x{first:02x}"), format!("\\x{first:02X}"), format!("\\{first:03o}")] {
        row.truncate(start);
        row.extend_from_slice(first.as_bytes());
        escape_bytes_onto(row, format, others);
        if !marked(&row[start..]) {
            return Ok(());
        }
    }
    Err(CopyError::NotRepresentable)
}

fn escape_bytes_onto(row: &mut Vec<u8>, format: &TextFormat, value: &[u8]) {
    for byte in value {
        match *byte {
            b'\n' => row.extend_from_slice(b"\\n"),
            b'\r' => row.extend_from_slice(b"\\r"),
            b'\t' => row.extend_from_slice(b"\\t"),
            byte if byte == b'\\' || byte == format.delimiter => row.extend([b'\\', byte]),
            byte => row.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(row: &[u8], index: usize) -> Result<Option<Vec<u8>>, CopyError> {
        field(&TextFormat::default(), row, index).map(|value| value.map(Cow::into_owned))
    }

    fn some(value: &[u8]) -> Result<Option<Vec<u8>>, CopyError> {
        Ok(Some(value.to_vec()))
    }

    #[test]
    fn fields_are_unescaped() {
        let cases: [(&[u8], usize, &[u8]); 15] = [
            (b"a\tb\n", 0, b"a"),
            (b"a\tb\tc\n", 1, b"b"),
            (b"a\tb", 1, b"b"),
            (b"a\tb\r\n", 1, b"b"),
            (b"a\tb\r", 1, b"b"),
            (b"a\t\n", 1, b""),
            (b"\n", 0, b""),
            (b"\\b\\f\\n\\r\\t\\v\\q\\\\\n", 0, b"\x08\x0c\n\r\t\x0bq\\"),
            (b"\\x4a\\x4\\xg\\1\\1019\\477\n", 0, b"J\x04xg\x01A9\x3f"),
            (b"a\\\tb\tc\n", 0, b"a\tb"),
            (b"a\\\tb\tc\n", 1, b"c"),
            (b"a\\\nb\tc\n", 0, b"a\nb"),
            (b"x\ta\\\r\n", 1, b"a\r"),
            (b"x\ta\\\n", 1, b"a\n"),
            (b"x\ta\\", 1, b"a"),
        ];
        for (row, index, expected) in cases {
            assert_eq!(value(row, index), some(expected), "{}", row.escape_ascii());
        }
    }

    #[test]
    fn null_is_compared_before_unescaping() {
        assert_eq!(value(b"\\N\t\\\\N\n", 0), Ok(None));
        assert_eq!(value(b"\\N\t\\\\N\n", 1), some(b"\\N"));
        assert_eq!(value(b"a\n", 1), Err(CopyError::MissingField { index: 1 }));
        let format = TextFormat { default: Some(b"D".to_vec()), ..TextFormat::default() };
        assert_eq!(field(&format, b"a\tD\n", 1), Err(CopyError::FieldIsDefault { index: 1 }));
    }

    #[test]
    fn appended_fields_stand_before_the_line_end() {
        let append = |row: &[u8]| {
            append_fields(&TextFormat::default(), row, &[Some(b"5"), None, Some(b"\\\t")])
        };
        assert_eq!(append(b"a\tb\n"), Ok(b"a\tb\t5\t\\N\t\\\\\\t\n".to_vec()));
        assert_eq!(append(b"a\r\n"), Ok(b"a\t5\t\\N\t\\\\\\t\r\n".to_vec()));
        assert_eq!(append(b"a\\"), Ok(b"a\t5\t\\N\t\\\\\\t".to_vec()));
    }

    #[test]
    fn a_value_that_looks_like_null_is_spelled_otherwise() {
        let format = TextFormat { null: b"0".to_vec(), ..TextFormat::default() };
        assert_eq!(append_fields(&format, b"a\n", &[Some(b"0")]), Ok(b"a\t\\x30\n".to_vec()));
        let format = TextFormat { null: Vec::new(), ..TextFormat::default() };
        assert_eq!(append_fields(&format, b"a\n", &[Some(b"")]), Err(CopyError::NotRepresentable));
    }

    proptest! {
        #[test]
        fn what_is_appended_is_read_back(
            row in "[ab\\\\\\t]{0,8}[ab]\n",
            values in prop::collection::vec(prop::option::of("[N\\\\\t\r\n|ab0x]{0,4}"), 1..4),
            null in "[N\\\\ab0x]{0,2}[Nab0x]",
            delimiter in prop::sample::select(vec![b'\t', b'|']),
        ) {
            let format = TextFormat { delimiter, null: null.into_bytes(), ..TextFormat::default() };
            let fields: Vec<Option<&[u8]>> =
                values.iter().map(|value| value.as_deref().map(str::as_bytes)).collect();
            let count = (0..).take_while(|index| field(&format, row.as_bytes(), *index).is_ok()).count();
            let longer = append_fields(&format, row.as_bytes(), &fields)?;
            for (index, expected) in fields.iter().enumerate() {
                let found = field(&format, &longer, count + index)?;
                prop_assert_eq!(found.as_deref(), *expected);
            }
        }
    }
}
