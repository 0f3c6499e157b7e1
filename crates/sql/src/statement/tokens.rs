//! A statement's tokens by PostgreSQL's scanner, for cutting parts out of a text.
//!
//! Owns: finding clauses, lists and parameters in a text by tokens, so that strings, comments and
//! quoted identifiers never mislead.
//! Never: interprets a statement; that is the parse tree's business.

use pg_query::protobuf::{KeywordKind, Token};

/// One token; comments are never among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexeme<'a> {
    /// First byte in the text.
    pub start: usize,
    /// First byte after it.
    pub end: usize,
    /// As written.
    pub text: &'a str,
    /// What PostgreSQL's scanner takes it for.
    pub token: Token,
    keyword: KeywordKind,
}

impl Lexeme<'_> {
    /// Whether it is this word, not quoted, in any case.
    pub fn is_word(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    /// The stored name that it spells as a column name, if it can be one.
    pub fn column_name(&self) -> Option<String> {
        if let Some(quoted) = self.text.strip_prefix('"') {
            let name = quoted.strip_suffix('"')?.replace("\"\"", "\"");
            return Some(truncate_identifier(&name).to_owned());
        }
        let can_be_column = self.token == Token::Ident
            || matches!(self.keyword, KeywordKind::UnreservedKeyword | KeywordKind::ColNameKeyword);
        can_be_column.then(|| truncate_identifier(&self.text.to_ascii_lowercase()).to_owned())
    }

    /// The number of a `$n`; in the error case the text of one that is out of range.
    pub fn parameter(&self) -> Option<Result<u16, String>> {
        (self.token == Token::Param).then(|| {
            let digits = self.text.trim_start_matches('$');
            digits.parse().map_err(|_| self.text.to_owned())
        })
    }
}

/// PostgreSQL cuts identifiers to 63 bytes (NAMEDATALEN - 1), never inside a character.
fn truncate_identifier(name: &str) -> &str {
    let mut end = name.len().min(63);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Whether the letters of a word stand somewhere in the text, in any case: if not, it need not be scanned for it.
pub(super) fn may_contain(text: &str, word: &str) -> bool {
    text.as_bytes().windows(word.len()).any(|it| it.eq_ignore_ascii_case(word.as_bytes()))
}

/// The text's tokens, comments left out.
pub(crate) fn scan(text: &str) -> Result<Vec<Lexeme<'_>>, pg_query::Error> {
    let tokens = super::grammar::scan(text)?;
    let lexemes = tokens.iter().filter_map(|scanned| {
        let token = scanned.token();
        if matches!(token, Token::SqlComment | Token::CComment) {
            return None;
        }
        let start = usize::try_from(scanned.start).ok()?;
        let end = usize::try_from(scanned.end).ok()?;
        let text = text.get(start..end)?;
        Some(Lexeme { start, end, text, token, keyword: scanned.keyword_kind() })
    });
    Ok(lexemes.collect())
}

/// Pairs every token with the number of parentheses and brackets open before it (a closing one is
/// at the depth of its opening one).
pub(crate) fn with_depth<'a>(
    tokens: &'a [Lexeme<'a>],
) -> impl Iterator<Item = (usize, &'a Lexeme<'a>)> {
    let mut depth = 0_usize;
    tokens.iter().map(move |token| match token.text {
        "(" | "[" => {
            depth += 1;
            (depth - 1, token)
        }
        ")" | "]" => {
            depth = depth.saturating_sub(1);
            (depth, token)
        }
        _ => (depth, token),
    })
}

/// The items of the parenthesised list that begins at `tokens[open]`, as written, and the index of
/// the token after the closing parenthesis. `None` if no list begins there.
pub(crate) fn list<'a>(
    text: &'a str,
    tokens: &[Lexeme<'_>],
    open: usize,
) -> Option<(Vec<&'a str>, usize)> {
    let first = tokens.get(open).filter(|token| token.text == "(")?;
    let mut items = Vec::new();
    let mut item_start = first.end;
    for (index, (depth, token)) in with_depth(&tokens[open..]).enumerate() {
        match (depth, token.text) {
            (1, ",") => {
                items.push(text[item_start..token.start].trim());
                item_start = token.end;
            }
            (0, ")") => {
                let last = text[item_start..token.start].trim();
                if !(items.is_empty() && last.is_empty()) {
                    items.push(last);
                }
                return Some((items, open + index + 1));
            }
            _ => {}
        }
    }
    None
}
