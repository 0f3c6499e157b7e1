//! Which calls and columns ask all nodes, and what is left to node 1.

use super::of_all_nodes;
use crate::planner::context::Context;
use crate::planner::fixture::{shop, shop_scope};
use crate::planner::sql_text::deparse;
use pg_query::NodeEnum;

/// The query without the queries that were added to its WITH, and the names of these.
fn asked(sql: &str) -> (String, Vec<String>) {
    let (catalog, scope) = (shop(3), shop_scope());
    let context = Context::new(&catalog, &scope);
    let statement = crate::statement::parse(sql).unwrap().pop().unwrap();
    let NodeEnum::SelectStmt(select) = statement.tree else { panic!("{sql}") };
    let Some(mut of_all) = of_all_nodes(&select, &context) else {
        return (String::new(), Vec::new());
    };
    let mut names = Vec::new();
    let with = of_all.with_clause.as_mut().unwrap();
    with.ctes.retain(|cte| match &cte.node {
        Some(NodeEnum::CommonTableExpr(cte)) if cte.ctename.starts_with("tutti_") => {
            names.push(cte.ctename.clone());
            false
        }
        _ => true,
    });
    if with.ctes.is_empty() {
        of_all.with_clause = None;
    }
    (deparse(&NodeEnum::SelectStmt(of_all)).unwrap(), names)
}

fn check(sql: &str, expected: &str, names: &[&str]) {
    let of_all = asked(sql);
    assert_eq!(
        (of_all.0.as_str(), &of_all.1[..]),
        (expected, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()[..]),
        "{sql}"
    );
}

#[test]
fn calls_and_columns_ask_all_nodes() {
    check(
        "SELECT pg_total_relation_size($1)",
        "SELECT tutti.pg_total_relation_size($1, (SELECT sizes FROM tutti_total_bytes))",
        &["tutti_total_bytes"],
    );
    check(
        "SELECT relname, reltuples FROM pg_class ORDER BY reltuples DESC, relpages",
        "SELECT relname, tutti.reltuples(pg_class.oid, pg_class.reltuples, (SELECT sizes FROM tutti_tuples)) \
         FROM pg_class ORDER BY reltuples DESC, tutti.relpages(pg_class.oid, pg_class.relpages, (SELECT sizes FROM tutti_pages))",
        &["tutti_pages", "tutti_tuples"],
    );
    check(
        "WITH a AS (SELECT 1) SELECT (SELECT c.relpages FROM a) p FROM pg_catalog.pg_class c JOIN orders o ON o.id = c.relpages",
        "WITH a AS (SELECT 1) SELECT (SELECT tutti.relpages(c.oid, c.relpages, (SELECT sizes FROM tutti_pages)) FROM a) AS p \
         FROM pg_catalog.pg_class c JOIN orders o ON o.id = tutti.relpages(c.oid, c.relpages, (SELECT sizes FROM tutti_pages))",
        &["tutti_pages"],
    );
    check(
        "SELECT pg_database_size(d.datname) FROM pg_database d",
        "SELECT tutti.pg_database_size(d.datname, (SELECT sizes FROM tutti_pg_database_size)) \
         FROM pg_database d",
        &["tutti_pg_database_size"],
    );
}

#[test]
fn what_is_not_certain_is_left() {
    for sql in [
        "SELECT * FROM pg_class",
        "SELECT relpages FROM pg_class, orders",
        "SELECT relpages FROM orders",
        "SELECT c.relpages FROM orders c",
        "SELECT c.relpages FROM pg_class c, LATERAL (SELECT 1) a, orders o FOR UPDATE OF o",
        "WITH pg_class AS (SELECT 1 AS relpages) SELECT relpages FROM pg_class",
        "SELECT j.relpages FROM (pg_class c JOIN pg_namespace n ON true) j",
        "SELECT other.pg_total_relation_size('orders')",
        "SELECT pg_total_relation_size('orders', 'fsm')",
        "SELECT c.relpages, tc.relpages AS toastpages FROM pg_class c, pg_class tc",
        "SELECT c.relpages, c.relallvisible FROM pg_class c",
        "WITH d AS (DELETE FROM orders RETURNING 1) SELECT pg_total_relation_size('orders')",
    ] {
        check(sql, "", &[]);
    }
}

#[test]
fn relations_that_are_named_are_the_only_ones_asked_for() {
    let with = |sql: &str| {
        let (catalog, scope) = (shop(3), shop_scope());
        let context = Context::new(&catalog, &scope);
        let statement = crate::statement::parse(sql).unwrap().pop().unwrap();
        let NodeEnum::SelectStmt(select) = statement.tree else { panic!("{sql}") };
        deparse(&NodeEnum::SelectStmt(of_all_nodes(&select, &context).unwrap())).unwrap()
    };
    let is_restricted = |sql: &str| with(sql).contains("ARRAY['orders']");
    let whole = with("SELECT pg_total_relation_size('public.orders')");
    assert!(!whole.contains(" = "), "{whole}");
    assert!(is_restricted("SELECT pg_total_relation_size('public.orders')"));
    assert!(is_restricted("SELECT pg_total_relation_size('orders'::regclass)"));
    for sql in [
        "SELECT pg_total_relation_size('\"orders\"')",
        "SELECT pg_total_relation_size('Orders')",
        "SELECT pg_total_relation_size('16384')",
        "SELECT pg_total_relation_size($1), pg_total_relation_size('orders')",
        "SELECT pg_total_relation_size('orders'), pg_total_relation_size(c.oid) FROM pg_class c",
    ] {
        assert!(!is_restricted(sql), "{sql}");
    }
}
