//! `BEGIN_MIP`, `PREPARE_MIP` and `COMMIT_MIP`, written as the calls that PostgreSQL's grammar knows.
//!
//! Owns: the spelling of these statements, which are those of the paper (Romano, Quaglia, "Integration and
//! Evaluation of Multi-Instance-Precommit Schemes within PostgreSQL", section 3).
//! Never: knows what they do; [`RequestCall`](crate::plan::RequestCall) says it.

use super::tokens::{Lexeme, may_contain, scan};

/// Each statement, the function that does the same, and how many values it takes.
const STATEMENTS: [(&str, &str, usize); 3] = [
    ("begin_mip", "tutti_begin", 2),
    ("prepare_mip", "tutti_prepare", 4),
    ("commit_mip", "tutti_commit", 2),
];

/// A text in which these statements are calls, and where it has grown.
pub(super) struct Rewritten {
    pub(super) text: String,
    /// For each of them, in order: where it ends in the new text, and by how many bytes all so far have grown.
    grown: Vec<(usize, usize)>,
}

impl Rewritten {
    /// Where in the client's text this byte of the new one was. Inside of such a statement: not before its begin.
    pub(super) fn offset(&self, at: usize) -> usize {
        let grown = self.grown.iter().rev().find(|(end, _)| *end <= at);
        at - grown.map_or(0, |(_, grown)| *grown)
    }
}

/// Writes such statements as calls. `None`: there is none in the text.
pub(super) fn write_calls(text: &str) -> Option<Rewritten> {
    if !may_contain(text, "_mip") {
        return None;
    }
    // What the scanner refuses the grammar refuses too, with the position.
    let tokens = scan(text).ok()?;
    let mut rewritten =
        Rewritten { text: String::with_capacity(text.len() + 64), grown: Vec::new() };
    let (mut copied, mut growth) = (0, 0);
    for statement in tokens.split(|token| token.text == ";") {
        let Some(call) = call(text, statement) else { continue };
        let (Some(first), Some(last)) = (statement.first(), statement.last()) else { continue };
        rewritten.text.push_str(&text[copied..first.start]);
        rewritten.text.push_str(&call);
        copied = last.end;
        // A call is longer than the statement by its parentheses and the word SELECT.
        growth += call.len().saturating_sub(last.end - first.start);
        rewritten.grown.push((rewritten.text.len(), growth));
    }
    rewritten.text.push_str(&text[copied..]);
    (!rewritten.grown.is_empty()).then_some(rewritten)
}

/// The call that a statement of these tokens stands for. Its values stand apart by commas, or by nothing, as in the
/// paper; whatever else they are, the call has it, and PostgreSQL's grammar judges.
fn call(text: &str, statement: &[Lexeme<'_>]) -> Option<String> {
    let (word, values) = statement.split_first()?;
    let (_, function, count) = STATEMENTS.into_iter().find(|(name, ..)| word.is_word(name))?;
    let mut listed = String::new();
    let mut begun = 0;
    for token in values {
        let starts = token.text.starts_with(['\'', '$', 'E', 'e', 'U', 'u'])
            || token.text.starts_with(|first: char| first.is_ascii_digit());
        if starts {
            if 0 < begun && !listed.ends_with([',', '-']) {
                listed.push(',');
            }
            begun += 1;
        }
        listed.push_str(&text[token.start..token.end]);
    }
    let is_whole = begun == count || (count == 2 && begun == 0 && values.is_empty());
    // Anything else is a syntax error, which the word itself is.
    is_whole.then(|| {
        // Never shorter than what it stands for, whatever white space that had.
        let length = statement.last().map_or(0, |last| last.end - word.start);
        // Whatever functions the search path has.
        format!("{:length$}", format!("SELECT tutti.{function}({listed})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> Option<String> {
        write_calls(text).map(|it| it.text)
    }

    #[test]
    fn the_papers_statements_are_calls() {
        let call = |text: &str| rewritten(text).map(|text| text.trim_end().to_owned());
        assert_eq!(
            call("BEGIN_MIP 'a b', 1"),
            Some("SELECT tutti.tutti_begin('a b',1)".to_owned())
        );
        assert_eq!(call("begin_mip $1, $2;"), Some("SELECT tutti.tutti_begin($1,$2);".to_owned()));
        assert_eq!(
            call("PREPARE_MIP 'a', 2 'buy it' 'it''s yours'"),
            Some("SELECT tutti.tutti_prepare('a',2,'buy it','it''s yours')".to_owned())
        );
        assert_eq!(
            call("prepare_mip 'a', 2, 'buy', 'yours'"),
            Some("SELECT tutti.tutti_prepare('a',2,'buy','yours')".to_owned())
        );
        assert_eq!(
            call("BEGIN_MIP 'a', -2"),
            Some("SELECT tutti.tutti_begin('a',-2)".to_owned()),
            "which is refused, as the call is"
        );
        assert_eq!(call("COMMIT_MIP 'a', 2"), Some("SELECT tutti.tutti_commit('a',2)".to_owned()));
        assert_eq!(call("COMMIT_MIP"), Some("SELECT tutti.tutti_commit()".to_owned()));
        assert_eq!(call("COMMIT"), None);
        assert_eq!(call("SELECT 'begin_mip 1'"), None);
        assert_eq!(
            call("BEGIN_MIP"),
            Some("SELECT tutti.tutti_begin()".to_owned()),
            "which is refused"
        );
        assert_eq!(call("BEGIN_MIP 'a'"), None, "a syntax error");
    }

    #[test]
    fn what_follows_is_found_where_it_was() {
        let text = "BEGIN_MIP 'a', 1; SELECT 1; COMMIT_MIP ; SELECT 2";
        let it = write_calls(text).expect("there are some");
        for statement in ["SELECT 1", "SELECT 2"] {
            let at = it.text.find(statement).expect("it is kept");
            assert_eq!(it.offset(at), text.find(statement).expect("it is there"));
        }
        let wide = write_calls("BEGIN_MIP     'a'   ,          1     ; x").expect("there is one");
        assert_eq!(wide.offset(wide.text.find('x').expect("kept")), 39);
    }
}
