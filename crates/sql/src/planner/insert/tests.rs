//! INSERT, as texts.

use expect_test::{Expect, expect};

use super::super::fixture;

fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&fixture::planned(sql, 3));
}

#[test]
fn one_row_by_key() {
    check("INSERT INTO customers VALUES (1, 'x')", expect![[r#""#]]);
    check("INSERT INTO customers (name, id) VALUES (upper($2), $1) RETURNING *", expect![[r#""#]]);
    check("INSERT INTO customers VALUES (NULL, random()::text)", expect![[r#""#]]);
    check("INSERT INTO customers VALUES ('5'::bigint, DEFAULT)", expect![[r#""#]]);
}

#[test]
fn many_rows_by_key() {
    check("INSERT INTO customers AS c VALUES (1, 'a'), (2, '),('), (3, 'c')", expect![[r#""#]]);
    check("INSERT INTO customers VALUES (1, 'a'), (1, 'b')", expect![[r#""#]]);
    check(
        "INSERT INTO customers VALUES ($1, 'a'), ($2, 'b') ON CONFLICT (id) DO UPDATE SET name = excluded.name RETURNING id",
        expect![[r#""#]],
    );
}

#[test]
fn values_that_must_be_computed_first() {
    check("INSERT INTO orders (customer_id) VALUES (1), (2) RETURNING id", expect![[r#""#]]);
    check("INSERT INTO customers VALUES (1 + 1, 'x')", expect![[r#""#]]);
    check("INSERT INTO tickets (title) VALUES ($1)", expect![[r#""#]]);
    check("INSERT INTO tickets DEFAULT VALUES RETURNING id", expect![[r#""#]]);
    check("INSERT INTO orders VALUES (DEFAULT, 1, DEFAULT, now()), (7, 2, 5, DEFAULT)", expect![[r#""#]]);
    check("INSERT INTO customers VALUES (1, (SELECT max(name) FROM customers))", expect![[r#""#]]);
}

#[test]
fn replicated() {
    check("INSERT INTO rates VALUES ('EUR', 1.5), ($1, DEFAULT)", expect![[r#""#]]);
    check("INSERT INTO rates VALUES ('EUR', random())", expect![[r#""#]]);
    check("INSERT INTO items (name) VALUES ('x') RETURNING id", expect![[r#""#]]);
    check("INSERT INTO items VALUES (1, 'x', 'now')", expect![[r#""#]]);
    check("INSERT INTO items OVERRIDING SYSTEM VALUE VALUES (1, 'x', 'now')", expect![[r#""#]]);
    check("INSERT INTO items OVERRIDING USER VALUE VALUES (1, 'x', '2026-01-01')", expect![[r#""#]]);
    check("INSERT INTO rates DEFAULT VALUES", expect![[r#""#]]);
    check("INSERT INTO rates SELECT 'a', 2 ON CONFLICT DO NOTHING", expect![[r#""#]]);
    check("INSERT INTO rate_codes VALUES ('x')", expect![[r#""#]]);
}

#[test]
fn round_robin() {
    check("INSERT INTO events (what) VALUES ('x'), ('y')", expect![[r#""#]]);
    check("INSERT INTO events DEFAULT VALUES", expect![[r#""#]]);
}

#[test]
fn from_queries() {
    check("INSERT INTO lines SELECT id, name FROM customers", expect![[r#""#]]);
    check("INSERT INTO lines (customer_id) SELECT customer_id FROM orders WHERE customer_id = 5", expect![[r#""#]]);
    check("INSERT INTO customers SELECT total::int, 'x' FROM orders ORDER BY 1 LIMIT 5", expect![[r#""#]]);
    check("WITH x AS (SELECT 1 AS a) INSERT INTO customers SELECT a, 'x' FROM x", expect![[r#""#]]);
    check("INSERT INTO scratch SELECT id FROM customers RETURNING *", expect![[r#""#]]);
    check("INSERT INTO scratch VALUES (1)", expect![[r#""#]]);
}

#[test]
fn refused() {
    check("INSERT INTO customers VALUES (1, 'x', 2)", expect![[r#""#]]);
    check("INSERT INTO customers (id, nope) VALUES (1, 2)", expect![[r#""#]]);
    check("INSERT INTO customers VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET id = 2", expect![[r#""#]]);
    check("INSERT INTO rates VALUES ('x') ON CONFLICT (code) DO UPDATE SET rate = random()", expect![[r#""#]]);
    check("INSERT INTO big_orders VALUES (1)", expect![[r#""#]]);
    check("INSERT INTO audited VALUES (1)", expect![[r#""#]]);
    check("WITH d AS (DELETE FROM lines RETURNING *) INSERT INTO lines SELECT * FROM d", expect![[r#""#]]);
}

#[test]
fn one_node_takes_everything() {
    expect![[r#"
        one home Write
    "#]]
    .assert_eq(&fixture::planned("INSERT INTO orders (customer_id) VALUES (1), (2)", 1));
}
