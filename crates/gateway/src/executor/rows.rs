//! Rows as PostgreSQL's text forms of composite values and arrays.
//!
//! Owns: writing `{"(1,\"a b\")"}` as an SQL literal, and reading `(1,"a b")`.
//! Never: interprets a value.
//!
//! Source: PostgreSQL manual, sections "Array Input and Output Syntax" and "Composite Type Input and
//! Output Syntax".

/// Builds an SQL literal with an array of composite values, row by row.
///
/// The literal is an escape string (`E'…'`), so it means the same whatever
/// `standard_conforming_strings` is.
#[derive(Debug)]
pub struct ArrayLiteral {
    sql: String,
    rows: usize,
}

impl Default for ArrayLiteral {
    fn default() -> Self {
        Self { sql: String::from(" E'{"), rows: 0 }
    }
}

impl ArrayLiteral {
    /// Appends a row given in composite text form.
    pub fn push_composite(&mut self, composite: &str) {
        if 0 < self.rows {
            self.sql.push(',');
        }
        self.rows += 1;
        self.sql.push('"');
        for char in composite.chars() {
            match char {
                // Array level: \\ ; string level doubles that.
                '\\' => self.sql.push_str("\\\\\\\\"),
                // Array level: \" ; string level: \\".
                '"' => self.sql.push_str("\\\\\""),
                '\'' => self.sql.push_str("''"),
                other => self.sql.push(other),
            }
        }
        self.sql.push('"');
    }

    /// Bytes of SQL so far.
    pub fn sql_len(&self) -> usize {
        self.sql.len()
    }

    /// The literal.
    pub fn into_sql(mut self) -> String {
        self.sql.push_str("}'");
        self.sql
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

/// The fields of a row in composite text form as a server writes it; `None` where it is malformed.
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
        let mut array = ArrayLiteral::default();
        array.push_composite(&text);
        expected.assert_eq(&array.into_sql());
    }

    #[test]
    fn rows_survive_both_levels_of_quoting() {
        check(&[Some("1"), Some("foo")], expect![[r#" E'{"(1,foo)"}'"#]]);
        check(&[Some("a b"), None, Some("")], expect![[r#" E'{"(\\"a b\\",,\\"\\")"}'"#]]);
        check(
            &[Some(r#"it's "q" \ end"#)],
            expect![[r#" E'{"(\\"it''s \\"\\"q\\"\\" \\\\\\\\ end\\")"}'"#]],
        );
    }

    #[test]
    fn malformed_rows_are_not_read() {
        assert_eq!(split_composite("1,2"), None);
        assert_eq!(split_composite("(\"1"), None);
    }
}
