//! The words of a text that is not parsed yet, for what is decided before parsing.
//!
//! Owns: that comments, strings and quoted names are no words.
//! Never: says what a statement is; that is the parse tree's business.

use super::tokens;
use crate::shape::blank_end;

/// The word with which a text's first statement begins, as written; empty if it begins with none.
pub fn first_word(text: &str) -> &str {
    let bytes = text.as_bytes();
    let mut start = 0;
    while let Some(end) = blank_end(bytes, start) {
        start = end;
        if bytes.get(end) != Some(&b';') {
            break;
        }
        start += 1;
    }
    let rest = text.get(start..).unwrap_or_default();
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    &rest[..end]
}

/// All words and quoted names of a text, as written; `None` if it cannot be read.
pub fn words(text: &str) -> Option<Vec<&str>> {
    let begins_word =
        |text: &str| text.starts_with(|c: char| c.is_alphabetic() || "_\"".contains(c));
    let tokens = tokens::scan(text).ok()?;
    Some(tokens.iter().map(|token| token.text).filter(|text| begins_word(text)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_found_behind_whatever_is_none() {
        for text in [
            "commit",
            "  commit;",
            "/* create /* as */ */commit",
            "-- BEGIN\ncommit --",
            "; ;/* */;commit",
            "commit/* */ and chain",
        ] {
            assert_eq!(first_word(text), "commit", "{text}");
        }
        for text in ["", "/* commit", "(SELECT 1)", "\"commit\"", "--commit", ";", "é"] {
            assert_eq!(first_word(text), "", "{text}");
        }
    }

    #[test]
    fn comments_and_strings_have_no_words() {
        let found =
            words("ALTER /* the */ TABLE \"as\" ADD c text DEFAULT 'select' -- as").unwrap();
        assert_eq!(found, ["ALTER", "TABLE", "\"as\"", "ADD", "c", "text", "DEFAULT"]);
        assert_eq!(words("CREATE 'x"), None);
    }
}
