//! Splitting, the `DISTRIBUTE BY` clause and syntax errors, as texts.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::{STACK_BYTES, parse};

/// The one place that knows the API.
fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&show(sql));
}

fn show(sql: &str) -> String {
    let mut shown = String::new();
    match parse(sql) {
        Ok(statements) => {
            for statement in statements {
                write!(shown, "{} {:?}", statement.offset, statement.text).unwrap();
                if statement.parameter_count > 0 {
                    write!(shown, " parameters {}", statement.parameter_count).unwrap();
                }
                if let Some(clause) = statement.distribute_by {
                    write!(shown, " {clause:?}").unwrap();
                }
                if statement.cascades {
                    shown.push_str(" cascades");
                }
                shown.push('\n');
            }
        }
        Err(refusal) => {
            write!(shown, "{} {}", refusal.sqlstate, refusal.message).unwrap();
            if let Some(position) = refusal.position {
                write!(shown, " @{position}").unwrap();
            }
            shown.push('\n');
        }
    }
    shown
}

#[test]
fn a_string_is_split_by_the_grammar() {
    check(
        "SELECT 1; select ';' ;;",
        expect![[r#"
        0 "SELECT 1"
        10 "select ';'"
    "#]],
    );
    check("", expect![[r#""#]]);
    check(" -- nothing\n /* at all */ ; ", expect![[r#""#]]);
    check(
        "/* hint */ SELECT 1 -- why\n; SELECT /* inside */ 2 /* behind */",
        expect![[r#"
        11 "SELECT 1"
        29 "SELECT /* inside */ 2"
    "#]],
    );
    check(
        "SELECT 'größe', $1; SELECT $12 + $3, '$99', $$ $7 $$",
        expect![[r#"
        0 "SELECT 'größe', $1" parameters 1
        22 "SELECT $12 + $3, '$99', $$ $7 $$" parameters 12
    "#]],
    );
    check(
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END; SELECT 3",
        expect![[r#"
            0 "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END"
            70 "SELECT 3"
        "#]],
    );
}

#[test]
fn distribute_by_is_taken_out_of_create_table() {
    check(
        "CREATE TABLE t (a int) DISTRIBUTE BY HASH (a)",
        expect![[r#"
        0 "CREATE TABLE t (a int)" Hash("a")
    "#]],
    );
    check(
        "create table t (\"A b\" int) with (fillfactor=70) distribute by hash(\"A b\");",
        expect![[r#"
            0 "create table t (\"A b\" int) with (fillfactor=70)" Hash("A b")
        "#]],
    );
    check(
        "CREATE UNLOGGED TABLE t (a int) Distribute By Round Robin; SELECT 1",
        expect![[r#"
        0 "CREATE UNLOGGED TABLE t (a int)" RoundRobin
        59 "SELECT 1"
    "#]],
    );
    check(
        "CREATE TABLE t (a int) DISTRIBUTE BY ROUNDROBIN",
        expect![[r#"
        0 "CREATE TABLE t (a int)" RoundRobin
    "#]],
    );
    check(
        "CREATE TABLE t (a int) DISTRIBUTE BY REPLICATION",
        expect![[r#"
        0 "CREATE TABLE t (a int)" Replicated
    "#]],
    );
    check(
        "CREATE TABLE t DISTRIBUTE BY HASH (Name) AS SELECT 1 AS name",
        expect![[r#"
        0 "CREATE TABLE t                           AS SELECT 1 AS name" Hash("name")
    "#]],
    );
    check(
        "SELECT 1; CREATE TABLE t AS SELECT 1 AS ö DISTRIBUTE BY HASH (ö); SELECT 2",
        expect![[r#"
            0 "SELECT 1"
            10 "CREATE TABLE t AS SELECT 1 AS ö" Hash("ö")
            68 "SELECT 2"
        "#]],
    );
    check(
        "CREATE TABLE distribute (by_ int, s text DEFAULT 'distribute by hash (a)')",
        expect![[r#"
            0 "CREATE TABLE distribute (by_ int, s text DEFAULT 'distribute by hash (a)')"
        "#]],
    );
}

#[test]
fn a_wrong_distribute_by_is_a_syntax_error() {
    check(
        "CREATE TABLE t (a int) DISTRIBUTE BY MODULO (a)",
        expect![[r#"
        42601 syntax error at or near "MODULO" @38
    "#]],
    );
    check(
        "CREATE TABLE t (a int) DISTRIBUTE BY HASH (a, b)",
        expect![[r#"
            0 "CREATE TABLE t (a int)" HashOfSeveral(["a", "b"])
        "#]],
    );
    check(
        "CREATE TABLE t (a int) DISTRIBUTE BY",
        expect![[r#"
        42601 syntax error at end of input @37
    "#]],
    );
    check(
        "CREATE TABLE t (a int) DISTRIBUTE BY REPLICATED TABLESPACE x",
        expect![[r#"
        42601 syntax error at or near "TABLESPACE" @49
    "#]],
    );
    check(
        "SELECT 1 DISTRIBUTE BY HASH (a)",
        expect![[r#"
        42601 syntax error at or near "BY" @21
    "#]],
    );
    check(
        "CREATE VIEW v AS SELECT 1 DISTRIBUTE BY HASH (a)",
        expect![[r#"
        42601 syntax error at or near "BY" @38
    "#]],
    );
}

#[test]
fn distribute_by_is_taken_out_of_alter_table() {
    check(
        "ALTER TABLE t DISTRIBUTE BY HASH (a)",
        expect![[r#"
            0 "ALTER TABLE t SET WITHOUT OIDS" Hash("a")
        "#]],
    );
    check(
        "SELECT 1; alter table if exists \"S\".\"t ö\" distribute by hash (\"Ä\") cascade; SELECT 2",
        expect![[r#"
            0 "SELECT 1"
            10 "alter table if exists \"S\".\"t ö\" SET WITHOUT OIDS" Hash("Ä") cascades
            78 "SELECT 2"
        "#]],
    );
    check(
        "ALTER TABLE ONLY (distribute) DISTRIBUTE BY ROUNDROBIN",
        expect![[r#"
            0 "ALTER TABLE ONLY (distribute) SET WITHOUT OIDS" RoundRobin
        "#]],
    );
    check(
        "ALTER TABLE a.b * DISTRIBUTE BY HOME",
        expect![[r#"
            0 "ALTER TABLE a.b * SET WITHOUT OIDS" Home
        "#]],
    );
    check(
        "ALTER TABLE t DISTRIBUTE BY REPLICATED ASYNC; ALTER TABLE t DISTRIBUTE BY ROUND ROBIN -- so",
        expect![[r#"
            0 "ALTER TABLE t SET WITHOUT OIDS" ReplicatedAsync
            46 "ALTER TABLE t SET WITHOUT OIDS" RoundRobin
        "#]],
    );
}

#[test]
fn alter_table_takes_the_clause_alone() {
    check(
        "ALTER TABLE t DISTRIBUTE BY HASH (a), ADD COLUMN b int",
        expect![[r#"
            42601 syntax error at or near "," @37
        "#]],
    );
    check(
        "ALTER TABLE t ADD COLUMN b int DISTRIBUTE BY HASH (a)",
        expect![[r#"
            42601 syntax error at or near "DISTRIBUTE" @32
        "#]],
    );
    check(
        "ALTER TABLE t DISTRIBUTE BY REPLICATED CASCADE",
        expect![[r#"
            42601 syntax error at or near "CASCADE" @40
        "#]],
    );
    check(
        "ALTER TABLE t DISTRIBUTE BY HASH (a) AS SELECT 1",
        expect![[r#"
            42601 syntax error at or near "AS" @38
        "#]],
    );
    check(
        "CREATE TABLE t (a int) DISTRIBUTE BY HASH (a) CASCADE",
        expect![[r#"
            42601 syntax error at or near "CASCADE" @47
        "#]],
    );
    check(
        "ALTER TABLE DISTRIBUTE BY HOME",
        expect![[r#"
            42601 syntax error at or near "BY" @24
        "#]],
    );
    check(
        "ALTER TABLE a. DISTRIBUTE BY HOME",
        expect![[r#"
            42601 syntax error at or near "BY" @27
        "#]],
    );
    check(
        "ALTER VIEW v DISTRIBUTE BY HOME",
        expect![[r#"
            42601 syntax error at or near "DISTRIBUTE" @14
        "#]],
    );
}

#[test]
fn syntax_errors_are_postgresqls() {
    check(
        "SELEC 1",
        expect![[r#"
        42601 syntax error at or near "SELEC" @1
    "#]],
    );
    check(
        "SELECT 1; SELECT 'ü' FROM FROM t",
        expect![[r#"
        42601 syntax error at or near "FROM" @27
    "#]],
    );
    check(
        "SELECT (1, 2, , 3, , 4)",
        expect![[r#"
        42601 syntax error at or near "," @15
    "#]],
    );
    check(
        "SELECT",
        expect![[r#"
        0 "SELECT"
    "#]],
    );
    check(
        "SELECT (1 ",
        expect![[r#"
        42601 syntax error at end of input @11
    "#]],
    );
    check(
        "SELECT 'abc",
        expect![[r#"
        42601 unterminated quoted string at or near "'abc" @8
    "#]],
    );
    check(
        "SELECT 1 /* abc",
        expect![[r#"
        42601 unterminated /* comment at or near "/* abc" @10
    "#]],
    );
    check(
        "SELECT 123abc",
        expect![[r#"
        42601 trailing junk after numeric literal at or near "123abc" @8
    "#]],
    );
    check(
        "SELECT \"\"",
        expect![[r#"
        42601 zero-length delimited identifier at or near """" @8
    "#]],
    );
    check(
        "SELECT $70000",
        expect![[r#"
        42P02 there is no parameter $70000
    "#]],
    );
    check(
        "CREATE ASSERTION a CHECK (true)",
        expect![[r#"
        0A000 CREATE ASSERTION is not yet implemented
    "#]],
    );
    check(
        "SELECT '\0'",
        expect![[r#"
        22021 invalid byte sequence for encoding "UTF8": 0x00
    "#]],
    );
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    let reading = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(read_deep_nesting);
    reading.expect("a thread").join().expect("no panic");
}

fn read_deep_nesting() {
    for depth in [50, 1_000, 20_000, 200_000] {
        let sum = format!("SELECT {}", vec!["1"; depth].join("+"));
        let parentheses = format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth));
        let negations = format!("SELECT {} true", "NOT ".repeat(depth));
        for text in [sum, parentheses, negations] {
            if let Err(refusal) = parse(&text) {
                assert!(["54001", "42601"].contains(&refusal.sqlstate), "{refusal:?}");
            }
        }
    }
}

/// Statements whose mutations the property test tries.
const SEEDS: [&str; 7] = [
    "SELECT 1; ALTER TABLE IF EXISTS \"größe\".t DISTRIBUTE BY HASH (\"ö\") CASCADE; SELECT 2",
    "CREATE TABLE t (a int, \"b c\" text) DISTRIBUTE BY HASH (\"b c\"); SELECT $1::text",
    "INSERT INTO t (a, b) VALUES (1, 'größe'), ($2, E'\\n') ON CONFLICT DO NOTHING RETURNING *",
    "SELECT $tag$ body; $tag$, /* c /* d */ */ U&'\\0041' -- end\n FROM t",
    "CREATE TABLE t AS SELECT 1 DISTRIBUTE BY ROUND ROBIN; -- done",
    "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; END; SELECT 1",
    "WITH x AS (SELECT 1) UPDATE t SET a = a + 1 WHERE b IN (SELECT * FROM x)",
];

proptest! {
    #[test]
    fn random_text_never_panics(text in "\\PC*") {
        let _ = parse(&text);
    }

    #[test]
    fn mutated_statements_never_panic_and_texts_lie_where_they_say(
        seed in prop::sample::select(&SEEDS[..]),
        cut in 0_usize..80,
        with in prop::sample::select(&["", "'", "\"", "(", ")", ";", "ß", "$", "/*", "--", "distribute by", "\\"][..]),
        length in 0_usize..4,
    ) {
        let characters: Vec<char> = seed.chars().collect();
        let cut = cut.min(characters.len());
        let rest = (cut + length).min(characters.len());
        let text: String =
            characters[..cut].iter().collect::<String>() + with + &characters[rest..].iter().collect::<String>();
        match parse(&text) {
            Ok(statements) => for statement in statements {
                let there = &text[statement.offset..];
                if statement.distribute_by.is_none() {
                    prop_assert!(there.starts_with(&statement.text));
                }
            },
            Err(refusal) => if let Some(position) = refusal.position {
                prop_assert!(position <= text.chars().count() + 1);
            },
        }
    }
}
