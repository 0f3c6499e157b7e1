//! Checks of what reads SQL texts: splitting into statements, and shapes.
//!
//! Owns: that statements are where they are reported to be, and that a shape's literals are those
//! of PostgreSQL's own scanner. Never: plans anything.

use pg_query::protobuf::Token;
use tutti_sql::shape::{Literal, LiteralKind, Scanner};
use tutti_sql::statement::{STACK_BYTES, parse};

/// Longer texts only cost time: the parser is not ours.
const TEXT_BYTES_MAX: usize = 4096;
/// Shorter ones cannot nest deeply.
const FLAT_BYTES_MAX: usize = 512;

/// Splitting a text into statements.
pub fn statements(data: &[u8]) {
    let Some(text) = as_text(data) else { return };
    with_stack(text, split);
}

fn split(text: &str) {
    let Ok(statements) = parse(text) else { return };
    let mut end = 0;
    for statement in &statements {
        assert!(end <= statement.offset, "statements come one after another");
        end = statement.offset + statement.text.len();
        assert!(text.is_char_boundary(statement.offset), "a position within a character");
        if statement.distribute_by.is_some() {
            continue;
        }
        assert_eq!(text.get(statement.offset..end), Some(statement.text.as_str()));
        // What a node is sent is the same statement again, and alone.
        let again = parse(&statement.text).expect("the text of a statement is a statement");
        assert_eq!(again.len(), 1, "{:?}", statement.text);
        assert_eq!(again[0].offset, 0, "{:?}", statement.text);
        assert_eq!(again[0].text, statement.text);
        assert_eq!(again[0].parameter_count, statement.parameter_count);
    }
}

/// Shapes against PostgreSQL's scanner and parser.
pub fn shapes(data: &[u8]) {
    let Some(text) = as_text(data) else { return };
    with_stack(text, shape);
}

fn shape(text: &str) {
    let mut scanner = Scanner::default();
    let Some(shape) = scanner.scan(text) else { return };
    let statement = text.get(shape.start..shape.end).expect("whole characters");
    if let Ok(tokens) = pg_query::scan_tokens(statement) {
        let literals: Vec<Literal> = tokens
            .iter()
            .filter_map(|token| {
                let kind = match token.token() {
                    Token::Iconst => LiteralKind::Integer,
                    Token::Fconst => LiteralKind::Number,
                    Token::Sconst => LiteralKind::String,
                    _ => return None,
                };
                let (start, end) =
                    (usize::try_from(token.start).ok()?, usize::try_from(token.end).ok()?);
                Some(Literal { start: shape.start + start, end: shape.start + end, kind })
            })
            .collect();
        assert_eq!(shape.literals, literals, "{text:?}");
    }
    if let Ok(parsed) = parse(text) {
        let found: Vec<_> = parsed.iter().map(|it| (it.offset, it.text.as_str())).collect();
        assert_eq!(found, [(shape.start, statement)], "{text:?}");
    }
}

/// Gives a check the stack that deeply nested texts need.
fn with_stack(text: &str, check: fn(&str)) {
    if text.len() <= FLAT_BYTES_MAX {
        return check(text);
    }
    std::thread::scope(|scope| {
        let threads = std::thread::Builder::new().stack_size(STACK_BYTES);
        let checking = threads.spawn_scoped(scope, || check(text)).expect("a thread");
        if let Err(panic) = checking.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn as_text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok().filter(|text| text.len() <= TEXT_BYTES_MAX)
}
