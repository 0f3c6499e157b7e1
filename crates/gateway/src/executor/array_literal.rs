//! Rows as PostgreSQL's text forms of composite values and arrays.
//!
//! Owns: writing `{"(1,\"a b\")"}`, and reading `(1,"a b")`.
//! Never: interprets a value.
//!
//! Source: PostgreSQL manual, sections "Array Input and Output Syntax" and "Composite Type Input and
//! Output Syntax".

use bytes::Bytes;

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

    /// The text.
    pub fn into_bytes(mut self) -> Bytes {
        self.text.push('}');
        self.text.into()
    }
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
        expected.assert_eq(std::str::from_utf8(&array.into_bytes()).unwrap());
    }

    #[test]
    fn rows_survive_both_levels_of_quoting() {
        check(&[Some("1"), Some("foo")], expect![[r#"{"(1,foo)"}"#]]);
        check(&[Some("a b"), None, Some("")], expect![[r#"{"(\"a b\",,\"\")"}"#]]);
        check(&[Some(r#"it's "q" \ end"#)], expect![[r#"{"(\"it's \"\"q\"\" \\\\ end\")"}"#]]);
    }

    #[test]
    fn malformed_rows_are_not_read() {
        assert_eq!(split_composite("1,2"), None);
        assert_eq!(split_composite("(\"1"), None);
    }
}
