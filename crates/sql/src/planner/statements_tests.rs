//! Properties of the planner over many statements: it never panics, and every text that it writes is
//! SQL to PostgreSQL's own grammar.
//!
//! Owns: the list. Never: says which plan is right; the tests of each part do.

use super::context::Context;
use super::fixture::{shop, shop_scope, texts_of};
use super::plan;
use super::sql_text::deparse;
use crate::statement::parse;

/// Every combination of these is planned: what is selected, from where, which rows, what else.
const OUTPUTS: [&str; 6] =
    ["*", "c.*", "count(*)", "DISTINCT c.name", "now(), random()", "c, 'x'::pg_catalog.bpchar"];
const SOURCES: [&str; 6] = [
    "customers c",
    "customers c JOIN orders o ON o.customer_id = c.id",
    "customers c LEFT JOIN items i USING (id)",
    "customers c NATURAL JOIN scratch",
    "(SELECT * FROM customers LIMIT 3) c, LATERAL (SELECT c.id) l",
    "big_orders b, customers AS c (id, name)",
];
const ROWS: [&str; 5] = [
    "",
    "WHERE c.id = 5",
    "WHERE c.id IN ($1, $2) AND c.name <> 'now'",
    "WHERE EXISTS (SELECT 1 FROM lines WHERE customer_id = c.id AND number > 3)",
    "WHERE c.name = (SELECT max(title) FROM tickets) OR c.id = ANY ($1)",
];
const ENDS: [&str; 4] = ["", "ORDER BY 1 LIMIT 3", "FOR UPDATE", "UNION SELECT 1"];

/// Statements that change something, or are merely odd.
const OTHERS: [&str; 28] = [
    "",
    "SELECT",
    "SELECT FROM customers",
    "TABLE customers",
    "VALUES (1), (2)",
    "SELECT (SELECT (SELECT max(id) FROM orders))",
    "SELECT x.* FROM customers x, x",
    "SELECT nosuch.y FROM customers ORDER BY nosuch.z",
    "SELECT ((c).name) FROM customers c ORDER BY (c).id",
    "SELECT count(*) FILTER (WHERE id > 1) OVER w FROM customers WINDOW w AS (ORDER BY name)",
    "SELECT id FROM orders GROUP BY GROUPING SETS ((id), ())",
    "WITH a AS (SELECT 1), a AS (SELECT 2) SELECT * FROM a",
    "WITH RECURSIVE a AS (SELECT * FROM a) SELECT * FROM a, customers",
    "SELECT JSON_OBJECTAGG(name: id) FROM customers",
    "SELECT * FROM ROWS FROM (generate_series(1, 2), unnest(ARRAY[1])) WITH ORDINALITY, customers",
    "INSERT INTO customers DEFAULT VALUES",
    "INSERT INTO customers VALUES (1), (1, 2)",
    "INSERT INTO customers (nosuch) SELECT 1",
    "INSERT INTO items (name) SELECT name FROM customers ON CONFLICT DO NOTHING RETURNING *",
    "INSERT INTO lines SELECT customer_id, now()::text FROM orders WHERE customer_id = $1",
    "UPDATE customers SET (id, name) = ROW(1, 'a')",
    "UPDATE customers SET name = o.id::text FROM orders o, items i WHERE o.id = i.id RETURNING *",
    "UPDATE customers SET id = DEFAULT",
    "DELETE FROM customers USING orders WHERE placed < now() RETURNING customers.*, now()",
    "COPY (SELECT name::pg_catalog.bpchar FROM customers ORDER BY 1) TO STDOUT CSV HEADER",
    "CREATE TEMP TABLE x AS SELECT now(), * FROM customers",
    "DECLARE c CURSOR FOR SELECT now() FROM customers",
    "EXPLAIN (ANALYZE) UPDATE customers SET name = upper(name)",
];

fn statements() -> Vec<String> {
    let mut statements: Vec<String> = OTHERS.iter().map(|sql| (*sql).to_owned()).collect();
    for output in OUTPUTS {
        for source in SOURCES {
            for rows in ROWS {
                for end in ENDS {
                    statements.push(format!("SELECT {output} FROM {source} {rows} {end}"));
                }
            }
        }
    }
    statements
}

#[test]
fn every_text_of_a_plan_is_sql() {
    let scope = shop_scope();
    let catalog = shop(3);
    let context = Context::new(&catalog, &scope);
    let (mut planned, mut texts) = (0, 0);
    for sql in statements() {
        for statement in parse(&sql).unwrap_or_else(|refusal| panic!("{sql}: {}", refusal.message))
        {
            let Ok(of) = plan(&statement, &context) else { continue };
            planned += 1;
            for text in texts_of(&of) {
                texts += 1;
                let tree = parse(&text).unwrap_or_else(|it| panic!("{text}: {}", it.message));
                assert_eq!(tree.len(), 1, "{text}");
            }
        }
    }
    // Most of them are neither refused nor forwarded as they are.
    assert!(planned > 500 && texts > 500, "{planned} planned, {texts} texts");
}

/// What the library writes it must read as the same: else a rewritten statement changes its meaning.
#[test]
fn written_statements_read_as_they_were() {
    for sql in statements() {
        for statement in parse(&sql).expect("planned above") {
            if let pg_query::NodeEnum::ExplainStmt(_) = statement.tree {
                continue;
            }
            let Ok(once) = deparse(&statement.tree) else { continue };
            let again = parse(&once).unwrap_or_else(|it| panic!("{once}: {}", it.message));
            let twice = again.iter().map(|it| deparse(&it.tree)).collect::<Result<String, _>>();
            assert_eq!(twice.ok().as_deref(), Some(once.as_str()), "{sql}");
        }
    }
}
