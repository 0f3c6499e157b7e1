//! COPY, as texts.

use expect_test::{Expect, expect};

use super::super::fixture;

fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&fixture::planned(sql, 3));
}

#[test]
fn from_stdin() {
    check("COPY customers FROM STDIN", expect![[r#""#]]);
    check("COPY lines (item, customer_id) FROM STDIN WITH CSV HEADER DELIMITER AS ';'", expect![[r#""#]]);
    check("COPY orders (customer_id, total) FROM STDIN (FORMAT csv, FORCE_NULL (total))", expect![[r#""#]]);
    check("COPY orders (total) FROM STDIN", expect![[r#""#]]);
    check("COPY tickets (title) FROM STDIN BINARY", expect![[r#""#]]);
    check("COPY items (name) FROM STDIN WHERE name <> ''", expect![[r#""#]]);
    check("COPY rates FROM STDIN; COPY events (what) FROM STDIN (FREEZE)", expect![[r#""#]]);
    check("COPY scratch FROM STDIN; COPY home FROM STDIN", expect![[r#""#]]);
}

#[test]
fn to_stdout() {
    check("COPY customers TO STDOUT WITH (FORMAT binary)", expect![[r#""#]]);
    check("COPY rates (code) TO STDOUT CSV HEADER; COPY home TO STDOUT", expect![[r#""#]]);
    check("COPY (SELECT * FROM orders WHERE customer_id = 7) TO STDOUT", expect![[r#""#]]);
    check("COPY (SELECT * FROM customers) TO STDOUT", expect![[r#""#]]);
    check("COPY (SELECT count(*) FROM customers) TO STDOUT WITH CSV", expect![[r#""#]]);
}

#[test]
fn refused() {
    check("COPY customers FROM '/etc/passwd'", expect![[r#""#]]);
    check("COPY customers TO PROGRAM 'cat'", expect![[r#""#]]);
    check("COPY customers (nope) FROM STDIN", expect![[r#""#]]);
    check("COPY big_orders FROM STDIN", expect![[r#""#]]);
    check("COPY audited FROM STDIN", expect![[r#""#]]);
    check("COPY orders FROM STDIN (DEFAULT 'x')", expect![[r#""#]]);
    check("COPY rates FROM STDIN WHERE random() < 0.5", expect![[r#""#]]);
}
