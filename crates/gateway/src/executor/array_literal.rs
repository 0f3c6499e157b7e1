//! Rows as PostgreSQL's text forms of composite values and arrays.
//!
//! Owns: writing `{"(1,\"a b\")"}`, reading `(1,"a b")`, and writing such a row as a line of COPY's text.
//! Never: interprets a value.
//!
//! Source: PostgreSQL manual, sections "Array Input and Output Syntax" and "Composite Type Input and
//! Output Syntax"; reference page of COPY, section "File Formats".

use bytes::{BufMut, Bytes, BytesMut};

/// Builds the text of an array of composite values, row by row.
#[derive(Debug)]
pub struct ArrayText {
    text: String,
    rows: usize,
}

impl Default for ArrayText {
    fn default() -> Self {
        Self { text: String::from("{"), rows: 0 }
    }
}

impl ArrayText {
    /// Appends a row given in composite text form, or another value's text. Returns how many bytes that took.
    pub fn push_composite(&mut self, composite: &str) -> usize {
        let before = self.text.len();
        self.begin_next();
        self.text.push('"');
        let mut rest = composite;
        while let Some(at) = rest.find(['\\', '"']) {
            self.text.push_str(&rest[..at]);
            self.text.push('\\');
            self.text.push_str(&rest[at..=at]);
            rest = &rest[at + 1..];
        }
        self.text.push_str(rest);
        self.text.push('"');
        self.text.len() - before
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        self.begin_next();
        self.text.push_str("NULL");
    }

    fn begin_next(&mut self) {
        if 0 < self.rows {
            self.text.push(',');
        }
        self.rows += 1;
    }

    /// How long it is.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// The text.
    pub fn into_bytes(mut self) -> Bytes {
        self.text.push('}');
        self.text.into()
    }
}

/// The rows in a text that [`ArrayText`] has made, none of which is NULL, as they were given.
pub fn rows_of(array: &str) -> impl Iterator<Item = String> {
    let mut rest = array;
    std::iter::from_fn(move || {
        rest = &rest[rest.find('"')? + 1..];
        let mut row = String::new();
        loop {
            let at = rest.find(['\\', '"'])?;
            row.push_str(&rest[..at]);
            let is_end = rest[at..].starts_with('"');
            rest = &rest[at + 1..];
            if is_end {
                return Some(row);
            }
            let escaped = rest.chars().next()?;
            row.push(escaped);
            rest = &rest[escaped.len_utf8()..];
        }
    })
}

/// Appends a row in composite text form, as a server writes it, as a line of COPY's text format. `fields`: for each of
/// its fields whether the line has it. False: it is malformed, or has not so many.
pub fn put_copy_line(out: &mut BytesMut, composite: &str, fields: &[bool]) -> bool {
    let inner = composite.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let Some(inner) = inner.map(str::as_bytes) else { return false };
    let (mut at, mut is_first) = (0, true);
    for (index, is_wanted) in fields.iter().enumerate() {
        if 0 < index {
            if inner.get(at) != Some(&b',') {
                return false;
            }
            at += 1;
        }
        if *is_wanted && !std::mem::take(&mut is_first) {
            out.put_u8(b'\t');
        }
        let (begin, mut quoted) = (at, false);
        let mut put = |bytes: &[u8]| {
            if *is_wanted {
                put_copy_text(out, bytes);
            }
        };
        while let Some(byte) = inner.get(at) {
            match (byte, inner.get(at + 1)) {
                (b'"', Some(b'"')) if quoted => {
                    put(b"\"");
                    at += 2;
                }
                (b'"', _) => {
                    quoted = !quoted;
                    at += 1;
                }
                (b'\\', Some(escaped)) => {
                    put(&[*escaped]);
                    at += 2;
                }
                (b'\\', None) => return false,
                (b',', _) if !quoted => break,
                _ => {
                    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | b',');
                    let len = inner[at + 1..].iter().position(is_special);
                    let end = len.map_or(inner.len(), |len| at + 1 + len);
                    put(&inner[at..end]);
                    at = end;
                }
            }
        }
        if quoted {
            return false;
        }
        if *is_wanted && begin == at {
            out.put_slice(b"\\N");
        }
    }
    out.put_u8(b'\n');
    at == inner.len()
}

/// Appends a value, or a part of it.
fn put_copy_text(out: &mut BytesMut, mut value: &[u8]) {
    let is_special = |byte: &u8| matches!(byte, b'\\' | b'\n' | b'\r' | b'\t');
    while let Some(at) = value.iter().position(is_special) {
        out.put_slice(&value[..at]);
        out.put_slice(match value[at] {
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            _ => b"\\\\",
        });
        value = &value[at + 1..];
    }
    out.put_slice(value);
}

/// A row in composite text form; `None` is NULL.
pub fn composite<'a>(fields: impl Iterator<Item = Option<&'a str>>) -> String {
    let mut text = String::from("(");
    for (index, field) in fields.enumerate() {
        if 0 < index {
            text.push(',');
        }
        let Some(field) = field else { continue };
        let plain = !field.is_empty()
            && !field
                .contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\\' | '(' | ')' | ','));
        if plain {
            text.push_str(field);
            continue;
        }
        text.push('"');
        for char in field.chars() {
            if matches!(char, '"' | '\\') {
                text.push(char);
            }
            text.push(char);
        }
        text.push('"');
    }
    text.push(')');
    text
}

/// The fields of a row in composite text form, as a server writes it; `None` where it is malformed.
pub fn split_composite(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?;
    let mut fields = Vec::new();
    let mut field: Option<String> = None;
    let mut quoted = false;
    let mut chars = inner.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.get_or_insert_default().push('"');
            }
            '"' => {
                quoted = !quoted;
                field.get_or_insert_default();
            }
            '\\' => field.get_or_insert_default().push(chars.next()?),
            ',' if !quoted => fields.push(field.take()),
            other => field.get_or_insert_default().push(other),
        }
    }
    if quoted {
        return None;
    }
    fields.push(field);
    Some(fields)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(fields: &[Option<&str>], expected: Expect) {
        let text = composite(fields.iter().copied());
        let read = split_composite(&text).unwrap();
        let read: Vec<_> = read.iter().map(Option::as_deref).collect();
        assert_eq!(read, fields);
        let mut array = ArrayText::default();
        array.push_composite(&text);
        array.push_composite("(again)");
        let array = array.into_bytes();
        let array = std::str::from_utf8(&array).unwrap();
        assert_eq!(rows_of(array).collect::<Vec<_>>(), [&*text, "(again)"]);
        expected.assert_eq(array);
    }

    fn line(fields: &[Option<&str>], wanted: &[bool]) -> Option<String> {
        let mut out = BytesMut::new();
        let is_whole = put_copy_line(&mut out, &composite(fields.iter().copied()), wanted);
        is_whole.then(|| String::from_utf8(out.to_vec()).unwrap())
    }

    #[test]
    fn rows_become_lines_of_copy() {
        assert_eq!(line(&[Some("1"), Some("ä, b")], &[true, true]).unwrap(), "1\tä, b\n");
        assert_eq!(line(&[Some("1"), None, Some("")], &[true; 3]).unwrap(), "1\t\\N\t\n");
        assert_eq!(line(&[Some("1"), Some("2"), None], &[false, true, false]).unwrap(), "2\n");
        let odd = "a\tb\nc\rd\\e\"f(,)\\.";
        let expected = "a\\tb\\nc\\rd\\\\e\"f(,)\\\\.\t\\N\n";
        assert_eq!(line(&[Some(odd), None], &[true, true]).unwrap(), expected);
        assert_eq!(line(&[None], &[true]).unwrap(), "\\N\n");
        assert_eq!(line(&[Some("1"), Some("2")], &[true]), None);
        assert_eq!(line(&[Some("1")], &[true, true]), None);
    }

    #[test]
    fn rows_survive_both_levels_of_quoting() {
        check(&[Some("1"), Some("foo")], expect![[r#"{"(1,foo)","(again)"}"#]]);
        check(&[Some("a b"), None, Some("")], expect![[r#"{"(\"a b\",,\"\")","(again)"}"#]]);
        check(
            &[Some(r#"it's "q" \ end"#)],
            expect![[r#"{"(\"it's \"\"q\"\" \\\\ end\")","(again)"}"#]],
        );
    }

    #[test]
    fn malformed_rows_are_not_read() {
        assert_eq!(split_composite("1,2"), None);
        assert_eq!(split_composite("(\"1"), None);
    }
}
