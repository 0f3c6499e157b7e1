//! Shapes of texts, and that PostgreSQL's scanner sees the same tokens.

use expect_test::{Expect, expect};
use pg_query::protobuf::Token;
use proptest::prelude::*;

use super::*;

/// The key with I, N and S for the kinds of literals, and what the literals are.
fn shape_of(text: &str) -> String {
    let mut scanner = Scanner::default();
    let Some(shape) = scanner.scan(text) else { return "none".to_owned() };
    let shown: Vec<u8> = shape.key.iter().flat_map(|byte| shown(*byte)).collect();
    let literals: Vec<&str> = shape.literals.iter().map(|it| it.written(text)).collect();
    let shown = String::from_utf8(shown).expect("marks are replaced");
    format!("{shown}\n{}", literals.join(" "))
}

fn shown(byte: u8) -> Vec<u8> {
    match byte {
        0xf9 => b"{I}".to_vec(),
        0xfa => b"{N}".to_vec(),
        0xfb => b"{S}".to_vec(),
        byte => vec![byte],
    }
}

fn check(text: &str, expected: Expect) {
    agree(text);
    expected.assert_eq(&shape_of(text));
}

fn declined(text: &str) {
    assert_eq!(shape_of(text), "none", "{text:?}");
}

#[test]
fn literals_leave_holes() {
    check(
        "SELECT abalance FROM pgbench_accounts WHERE aid = 12345;",
        expect![[r"
            SELECT abalance FROM pgbench_accounts WHERE aid = {I}
            12345"]],
    );
    check(
        "select 1, 2147483647, 2147483648, 007, 1.5, .5, 5., 1e5, 1.e-5, 'a', '', 'O''Neil'",
        expect![[r"
            select {I}, {I}, {N}, {I}, {N}, {N}, {N}, {N}, {N}, {S}, {S}, {S}
            1 2147483647 2147483648 007 1.5 .5 5. 1e5 1.e-5 'a' '' 'O''Neil'"]],
    );
    check(
        r"SELECT 'C:\dir', date'2020-01-01', x-1, x -1, x=-1, a1, t1.c2, 1-1",
        expect![[r"
            SELECT {S}, date{S}, x-{I}, x -{I}, x=-{I}, a1, t1.c2, {I}-{I}
            'C:\dir' '2020-01-01' 1 1 1 1 1"]],
    );
    check(
        "SELECT a[1:2], b::numeric(10,2), true, null, \"q 1\", \"q\"\"1\", größe1, _1, a$1",
        expect![[r#"
            SELECT a[{I}:{I}], b::numeric({I},{I}), true, null, "q 1", "q""1", größe1, _1, a$1
            1 2 10 2"#]],
    );
}

#[test]
fn white_space_and_comments_are_one_space() {
    check(
        "/* trace=7 */ SELECT\n\t1 -- one\n , 2/**/+/* a /* b */ c */3 ; -- end",
        expect![[r"
            SELECT {I} , {I} + {I}
            1 2 3"]],
    );
    check(
        "SELECT 1 a/* c */",
        expect![[r"
            SELECT {I} a
            1"]],
    );
    // Operators end where a comment begins.
    check(
        "SELECT 2*/* c */3, a<--c\nb, a@-1, - - 1",
        expect![[r"
            SELECT {I}* {I}, a< b, a@-{I}, - - {I}
            2 3 1 1"]],
    );
}

#[test]
fn the_statement_is_what_nodes_get() {
    let mut scanner = Scanner::default();
    for text in ["SELECT 1", " /* a */ SELECT 1 ; ", "--a\nSELECT 1-- b\n;--c"] {
        let shape = scanner.scan(text).expect("has a shape");
        let statement = crate::statement::parse(text).unwrap().pop().unwrap();
        assert_eq!(&text[shape.start..shape.end], statement.text);
        assert_eq!(shape.start, statement.offset);
    }
}

#[test]
fn what_is_odd_has_no_shape() {
    for text in [
        "",
        ";",
        "BEGIN",
        "SHOW x",
        "selection",
        "select1",
        "SELECT 1; SELECT 2",
        "SELECT 1;;",
        "SELECT $1",
        "SELECT $$a$$",
        "SELECT $a$b$a$",
        r"SELECT E'a\'b'",
        "SELECT e'a'",
        "SELECT B'1'",
        "SELECT x'1f'",
        "SELECT N'a'",
        "SELECT U&'a'",
        "SELECT u&\"a\"",
        "SELECT 'a'\n'b'",
        "SELECT 'a' -- c\n 'b'",
        "SELECT 'a' 'b'",
        "SELECT 0x1f",
        "SELECT 1_000",
        "SELECT 1a",
        "SELECT 1e",
        "SELECT 1e+",
        "SELECT 1..2",
        "SELECT 1.5.",
        "SELECT 1.a",
        "SELECT 'a",
        "SELECT \"a",
        "SELECT /* a",
        "SELECT /* a /* b */",
        "SELECT\x0b1",
        "SELECT \\1",
        "SELECT {1}",
    ] {
        declined(text);
    }
    declined(&format!("SELECT '{}'", "x".repeat(TEXT_BYTES_MAX)));
    declined(&format!("SELECT 1{}", ",1".repeat(LITERALS_MAX)));
}

#[test]
fn kinds_are_part_of_the_shape() {
    let of = |value: &str| shape_of(&format!("SELECT {value}")).lines().next().map(str::to_owned);
    assert_eq!(of("1"), of("42"));
    assert_eq!(of("'1'"), of("'it''s'"));
    for (one, other) in
        [("1", "'1'"), ("1", "1.0"), ("1", "2147483648"), ("1", "-1"), ("1", "NULL"), ("1", "(1)")]
    {
        assert_ne!(of(one), of(other));
    }
}

/// A token as far as a shape keeps it: literals without their values.
fn kept(token: Token, text: &str) -> (Token, &str) {
    match token {
        Token::Iconst | Token::Fconst | Token::Sconst => (token, ""),
        _ => (token, text),
    }
}

/// If a text has a shape, then PostgreSQL's scanner finds the same literals in it, and the same other
/// tokens as in any text of that shape.
fn agree(text: &str) {
    let mut scanner = Scanner::default();
    let Some(shape) = scanner.scan(text) else { return };
    let filled: Vec<u8> = shape
        .key
        .iter()
        .flat_map(|byte| match byte {
            0xf9 => b"7".to_vec(),
            0xfa => b"7.5".to_vec(),
            0xfb => b"'it''s'".to_vec(),
            byte => vec![*byte],
        })
        .collect();
    let filled = String::from_utf8(filled).expect("marks are replaced");
    let body = &text[shape.start..shape.end];
    let (found, again) =
        match (crate::statement::tokens::scan(body), crate::statement::tokens::scan(&filled)) {
            (Ok(found), Ok(again)) => (found, again),
            (Err(_), Err(_)) => return,
            (one, other) => panic!("{text:?} {one:?} {filled:?} {other:?}"),
        };
    let of = |tokens: &[crate::statement::tokens::Lexeme<'_>]| -> Vec<(Token, String)> {
        let kept = tokens.iter().map(|it| kept(it.token, it.text));
        kept.map(|(token, text)| (token, text.to_owned())).collect()
    };
    assert_eq!(of(&found), of(&again), "{text:?}");
    let literals: Vec<_> = found
        .iter()
        .filter_map(|it| {
            let kind = match it.token {
                Token::Iconst => LiteralKind::Integer,
                Token::Fconst => LiteralKind::Number,
                Token::Sconst => LiteralKind::String,
                _ => return None,
            };
            Some(Literal { start: it.start + shape.start, end: it.end + shape.start, kind })
        })
        .collect();
    assert_eq!(shape.literals, literals, "{text:?}");
}

/// The statements of the differential tester's scripts, one per line in most cases.
fn scripts() -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/differential");
    let mut texts = String::new();
    for entry in std::fs::read_dir(folder).expect("the scripts are in the repository") {
        let path = entry.expect("a file").path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            texts.push_str(&std::fs::read_to_string(path).expect("a text"));
        }
    }
    texts
}

#[test]
fn postgresql_agrees_on_all_scripts() {
    let (mut statements, mut shapes) = (0, 0);
    let mut scanner = Scanner::default();
    for text in scripts().split_inclusive(";\n") {
        agree(text);
        statements += 1;
        shapes += usize::from(scanner.scan(text).is_some());
    }
    assert!(statements > 900 && shapes * 2 > statements, "{shapes} of {statements}");
}

/// Pieces that texts are made of at random: those that are hard to tell apart by their beginning.
const PIECES: &[&str] = &[
    "'",
    "''",
    "\"",
    "1",
    "1.",
    ".5",
    "..",
    "e5",
    "E",
    "x",
    "N",
    "U&",
    "-",
    "--",
    "+",
    "*",
    "/",
    "/*",
    "*/",
    "\n",
    " ",
    "\t",
    ";",
    "$",
    "$$",
    "$1",
    "$a$",
    ":",
    "::",
    "=",
    "<",
    "@",
    "a",
    "_",
    "0",
    "0x1",
    "1_0",
    "2147483648",
    "(",
    ")",
    "[",
    "]",
    ",",
    ".",
    "ä",
    "\\",
    "\\'",
    "null",
    "#",
    "::int",
    "'x'",
    "'it''s'",
    "1e-5",
    "\r",
    "\x0c",
    "?",
    "|",
    "~",
    "%",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn postgresql_agrees_on_random_texts(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12),
    ) {
        agree(&format!("SELECT {}", pieces.concat()));
    }

    #[test]
    fn postgresql_agrees_on_changed_statements(
        at in any::<prop::sample::Index>(),
        pieces in prop::collection::vec(prop::sample::select(PIECES), 1..3),
    ) {
        const TEXT: &str = "INSERT INTO t (a, \"b\") VALUES (1, 'x''y'), (-2.5, date '2020-01-01') \
                            /* c */ ON CONFLICT DO NOTHING -- d\n RETURNING a::numeric(8,2);";
        let at = at.index(TEXT.len());
        agree(&format!("{}{}{}", &TEXT[..at], pieces.concat(), &TEXT[at..]));
    }
}
