//! CSV format: the fields of a row, and further fields for it.
//!
//! Owns: quotes within a row, and the NULL string with its FORCE options. Never: looks for line
//! ends (see `line`).
//!
//! Source: PostgreSQL `src/backend/commands/copyfromparse.c` (`CopyReadAttributesCSV`,
//! `NextCopyFrom`), `copyto.c` (`CopyAttributeOutCSV`).

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use super::{CopyError, CsvFormat};

/// One field as it is written.
struct Raw<'r> {
    /// Quotes and escapes undone.
    value: Cow<'r, [u8]>,
    /// Whether any of it stood in quotes.
    quoted: bool,
    /// What follows the delimiter; `None` for the row's last field.
    after: Option<&'r [u8]>,
}

pub(super) fn field<'r>(
    format: &CsvFormat,
    row: &'r [u8],
    index: usize,
) -> Result<Option<Cow<'r, [u8]>>, CopyError> {
    let mut raw = read_field(format, split_line_end(row).0)?;
    for _ in 0..index {
        let after = raw.after.ok_or(CopyError::MissingField { index })?;
        raw = read_field(format, after)?;
    }
    let looks_null = *raw.value == *format.null;
    if looks_null && !raw.quoted {
        // The NULL string itself is the value then.
        return Ok(format.force_not_null.contains(index).then_some(raw.value));
    }
    if !raw.quoted && Some(&*raw.value) == format.default.as_deref() {
        return Err(CopyError::FieldIsDefault { index });
    }
    if looks_null && format.force_null.contains(index) {
        return Ok(None);
    }
    Ok(Some(raw.value))
}

pub(super) fn append_fields(
    format: &CsvFormat,
    row: &[u8],
    fields: &[Option<&[u8]>],
) -> Result<Vec<u8>, CopyError> {
    let (content, line_end) = split_line_end(row);
    let mut longer = content.to_vec();
    // Only `*` reaches fields that the client's data does not have.
    let all_nullable = format.force_null == super::FieldSet::All;
    let none_nullable = format.force_not_null == super::FieldSet::All;
    for field in fields {
        longer.push(format.delimiter);
        match field {
            None if none_nullable => return Err(CopyError::NotRepresentable),
            None => longer.extend_from_slice(&format.null),
            Some(value) if *value == format.null && all_nullable && !none_nullable => {
                return Err(CopyError::NotRepresentable);
            }
            Some(value) if needs_quotes(format, value) => quote_onto(&mut longer, format, value),
            Some(value) => longer.extend_from_slice(value),
        }
    }
    longer.extend_from_slice(line_end);
    Ok(longer)
}

fn read_field<'r>(format: &CsvFormat, fields: &'r [u8]) -> Result<Raw<'r>, CopyError> {
    let mut value = Cow::Borrowed(&fields[..0]);
    let mut quoted = false;
    let mut rest = fields;
    loop {
        let Some(end) = memchr2(format.delimiter, format.quote, rest) else {
            append(&mut value, rest);
            return Ok(Raw { value, quoted, after: None });
        };
        append(&mut value, &rest[..end]);
        let after = &rest[end + 1..];
        if rest[end] == format.delimiter {
            return Ok(Raw { value, quoted, after: Some(after) });
        }
        quoted = true;
        rest = read_quoted(format, after, &mut value)?;
    }
}

/// Appends what stands before the closing quote; returns what stands after it.
fn read_quoted<'r>(
    format: &CsvFormat,
    mut rest: &'r [u8],
    value: &mut Cow<'r, [u8]>,
) -> Result<&'r [u8], CopyError> {
    // A byte before `from` is data whatever it is.
    let mut from = 0;
    loop {
        let special = match format.escape == format.quote {
            true => memchr(format.quote, &rest[from..]),
            false => memchr2(format.quote, format.escape, &rest[from..]),
        };
        let at = from + special.ok_or(CopyError::UnterminatedQuote)?;
        let next = rest.get(at + 1);
        if rest[at] == format.escape
            && next.is_some_and(|next| [format.escape, format.quote].contains(next))
        {
            append(value, &rest[..at]);
            rest = &rest[at + 1..];
            from = 1;
        } else if rest[at] == format.quote {
            append(value, &rest[..at]);
            return Ok(&rest[at + 1..]);
        } else {
            // An escape before anything else is data itself.
            from = at + 1;
        }
    }
}

fn append<'r>(value: &mut Cow<'r, [u8]>, more: &'r [u8]) {
    if value.is_empty() {
        *value = Cow::Borrowed(more);
    } else if !more.is_empty() {
        value.to_mut().extend_from_slice(more);
    }
}

/// A row's fields and its line end. Data has line ends only within quotes.
fn split_line_end(row: &[u8]) -> (&[u8], &[u8]) {
    let content = row.strip_suffix(b"\n").unwrap_or(row);
    let content = content.strip_suffix(b"\r").unwrap_or(content);
    row.split_at(content.len())
}

fn needs_quotes(format: &CsvFormat, value: &[u8]) -> bool {
    value.is_empty()
        || value == format.null
        || Some(value) == format.default.as_deref()
        || value.iter().any(|byte| {
            [format.delimiter, format.quote, format.escape, b'\n', b'\r'].contains(byte)
        })
}

fn quote_onto(row: &mut Vec<u8>, format: &CsvFormat, value: &[u8]) {
    row.push(format.quote);
    for byte in value {
        if [format.quote, format.escape].contains(byte) {
            row.push(format.escape);
        }
        row.push(*byte);
    }
    row.push(format.quote);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::FieldSet;
    use super::*;

    fn value(format: &CsvFormat, row: &str, index: usize) -> Result<Option<String>, CopyError> {
        let text = |value: Cow<'_, [u8]>| String::from_utf8_lossy(&value).into_owned();
        field(format, row.as_bytes(), index).map(|value| value.map(text))
    }

    #[test]
    fn fields_are_unquoted() {
        let usual = CsvFormat::default();
        let escaping = CsvFormat { quote: b'\'', escape: b'\\', ..CsvFormat::default() };
        let cases = [
            (&usual, "a,b\n", 1, "b"),
            (&usual, "a,b", 1, "b"),
            (&usual, "a,\"b,\"\"c\"\"\n\"\r\n", 1, "b,\"c\"\n"),
            (&usual, "a\"b,\"c,d\n", 0, "ab,c"),
            (&usual, "\"\"\"\"\n", 0, "\""),
            (&usual, " a , b \n", 1, " b "),
            (&usual, "\"\",x\n", 0, ""),
            (&usual, "\"\",x\n", 1, "x"),
            (&escaping, "'it\\'s \\\\ \\n',x\n", 0, "it's \\ \\n"),
            (&escaping, "'it\\'s \\\\ \\n',x\n", 1, "x"),
            (&escaping, "a\\'b'\n", 0, "a\\b"),
        ];
        for (format, row, index, expected) in cases {
            assert_eq!(value(format, row, index), Ok(Some(expected.to_owned())), "{row:?}");
        }
        assert_eq!(value(&usual, "a\n", 2), Err(CopyError::MissingField { index: 2 }));
        assert_eq!(value(&usual, "\"a\n", 0), Err(CopyError::UnterminatedQuote));
    }

    #[test]
    fn only_unquoted_null_strings_are_null_unless_forced() {
        let usual = CsvFormat { null: b"nil".to_vec(), ..CsvFormat::default() };
        let forced = CsvFormat {
            force_null: FieldSet::Indexes(vec![1]),
            force_not_null: FieldSet::Indexes(vec![0]),
            ..usual.clone()
        };
        let row = "nil,\"nil\",nil\n";
        let nil = || Ok(Some("nil".to_owned()));
        assert_eq!([0, 1, 2].map(|i| value(&usual, row, i)), [Ok(None), nil(), Ok(None)]);
        assert_eq!([0, 1, 2].map(|i| value(&forced, row, i)), [nil(), Ok(None), Ok(None)]);
        assert_eq!(value(&CsvFormat::default(), "\n", 0), Ok(None));
    }

    #[test]
    fn the_default_marker_is_no_value() {
        let format = CsvFormat { default: Some(b"D".to_vec()), ..CsvFormat::default() };
        assert_eq!(value(&format, "D,\"D\"\n", 0), Err(CopyError::FieldIsDefault { index: 0 }));
        assert_eq!(value(&format, "D,\"D\"\n", 1), Ok(Some("D".to_owned())));
    }

    #[test]
    fn appended_fields_are_quoted_where_needed() {
        let fields: [Option<&[u8]>; 4] = [Some(b"5"), None, Some(b""), Some(b"a\"b")];
        assert_eq!(
            append_fields(&CsvFormat::default(), b"x\r\n", &fields),
            Ok(b"x,5,,\"\",\"a\"\"b\"\r\n".to_vec())
        );
        let forced = CsvFormat { force_null: FieldSet::All, ..CsvFormat::default() };
        assert_eq!(append_fields(&forced, b"x\n", &[Some(b"")]), Err(CopyError::NotRepresentable));
    }

    proptest! {
        #[test]
        fn what_is_appended_is_read_back(
            row in "[ab,]{0,8}(\"[ab,\n]{0,4}\")?\n",
            values in prop::collection::vec(prop::option::of("[N\"\\\\,;'\r\nab]{0,4}"), 1..4),
            null in "[Nab]{0,2}",
            escape in prop::sample::select(vec![b'"', b'\\', b'\'']),
        ) {
            let format = CsvFormat { escape, null: null.into_bytes(), ..CsvFormat::default() };
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
