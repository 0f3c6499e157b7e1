//! The text of an array of texts, as PostgreSQL reads it.
//!
//! Owns: the quoting of its elements. Never: knows what they are.

/// An array of texts as PostgreSQL reads it, each element quoted.
#[derive(Debug, Default)]
pub(super) struct TextArray(String);

impl TextArray {
    pub(super) fn push(&mut self, element: &str) {
        self.0.push_str(if self.0.is_empty() { "{\"" } else { ",\"" });
        for character in element.chars() {
            if matches!(character, '"' | '\\') {
                self.0.push('\\');
            }
            self.0.push(character);
        }
        self.0.push('"');
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(super) fn finish(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_elements_are_quoted_as_postgresql_reads_them() {
        let mut batch = TextArray::default();
        assert_eq!(std::mem::take(&mut batch).finish(), "{}");
        batch.push("(1,\"a\\b\")");
        batch.push("()");
        assert_eq!(batch.finish(), r#"{"(1,\"a\\b\")","()"}"#);
    }
}
