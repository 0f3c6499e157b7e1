//! Which subqueries are answered in parts. What they give is compared with PostgreSQL: `differential/over_groups.sql`.

use crate::planner::fixture::planned;

/// How many are.
#[track_caller]
fn check(sql: &str, parts: usize) {
    let plan = planned(sql, 3);
    assert_eq!(plan.matches("  parts SELECT").count(), parts, "{sql}\n{plan}");
}

#[test]
fn groups_that_cannot_fail_are_computed_first() {
    check("SELECT sum(n) FROM (SELECT placed, count(*) AS n FROM orders GROUP BY 1) s", 1);
    check(
        "SELECT * FROM (SELECT placed, sum(total) FROM orders GROUP BY 1) s WHERE placed > now()",
        1,
    );
    check(
        "WITH s AS (SELECT placed, count(*) AS n FROM orders GROUP BY 1) SELECT max(n) FROM s",
        1,
    );
    check("SELECT n FROM (SELECT id % 7 AS m, count(*) AS n FROM orders GROUP BY 1) s", 1);
    check("SELECT n FROM (SELECT placed::date AS d, count(*) AS n FROM orders GROUP BY 1) s", 1);
    check(
        "SELECT n FROM (SELECT placed, sum(CASE WHEN total > 3 THEN 1 ELSE 0 END) AS n FROM orders GROUP BY 1) s",
        1,
    );
    check(
        "SELECT * FROM (SELECT placed, count(*) AS n FROM orders GROUP BY 1) s JOIN items i ON i.id = s.n",
        1,
    );
    check(
        "SELECT * FROM (SELECT placed, count(*) AS n FROM orders GROUP BY 1) s,
            (SELECT item, max(number) AS m FROM lines GROUP BY 1) l WHERE l.m = s.n",
        2,
    );
    check(
        "SELECT max(n) FROM (SELECT * FROM (SELECT placed, count(*) AS n FROM orders GROUP BY 1) i WHERE n > 3) o",
        1,
    );
}

#[test]
fn what_may_fail_is_computed_first_only_if_all_of_it_is_asked_for() {
    const FAILS: &str = "(SELECT placed, max(1 / id) AS n FROM orders GROUP BY 1)";
    check(&format!("SELECT max(n) FROM {FAILS} s"), 0);
    check(&format!("SELECT * FROM {FAILS} s WHERE placed > now()"), 0);
    check(&format!("SELECT * FROM {FAILS} s LIMIT 0"), 0);
    check(&format!("SELECT * FROM {FAILS} s JOIN items i ON i.id = s.n"), 0);
    check(&format!("WITH s AS {FAILS} SELECT count(*) FROM items"), 0);
    check(&format!("SELECT c.b FROM {FAILS} c (a, b)"), 0);
    check(&format!("SELECT * FROM {FAILS} s ORDER BY n"), 1);
    check(&format!("SELECT c.b::text, c.a FROM {FAILS} c (a, b)"), 1);
    check("SELECT n FROM (SELECT max(id) % (min(id) - 3) AS n FROM orders) s WHERE n > 3", 0);
    check("SELECT n FROM (SELECT id % 0 AS m, count(*) AS n FROM orders GROUP BY 1) s", 0);
    check("SELECT n FROM (SELECT id * 3 AS m, count(*) AS n FROM orders GROUP BY 1) s", 0);
}

#[test]
fn all_that_is_spread_must_be_in_such_subqueries() {
    const GROUPS: &str = "(SELECT placed, count(*) AS n FROM orders GROUP BY 1)";
    check(&format!("SELECT * FROM {GROUPS} s JOIN lines l ON l.number = s.n"), 0);
    check(&format!("SELECT * FROM {GROUPS} s WHERE n IN (SELECT number FROM lines)"), 0);
    check(&format!("SELECT n FROM {GROUPS} s UNION SELECT 1"), 1);
    check("SELECT 'o', count(*) FROM orders UNION ALL SELECT 'l', count(*) FROM lines", 2);
    check("SELECT count(*) FROM orders UNION SELECT id FROM lines", 0);
    check("SELECT max(n) FROM (SELECT max(1 / id) AS n FROM orders UNION SELECT 1) s", 0);
    check("SELECT max(1 / id) AS n FROM orders UNION SELECT 1", 1);
    check("(SELECT max(1 / id) AS n FROM orders UNION SELECT 1) LIMIT 1", 0);
    check("SELECT DISTINCT '2020-01-01' FROM orders UNION SELECT now()", 0);
    check(
        &format!(
            "WITH items AS {GROUPS}, s AS (SELECT n, count(*) FROM items GROUP BY 1) SELECT * FROM s"
        ),
        1,
    );
    // Names of what is around it.
    check(
        "WITH o AS (SELECT 1 AS placed), s AS (SELECT placed, count(*) FROM o, orders GROUP BY 1) SELECT * FROM s",
        0,
    );
    check(
        "SELECT * FROM items i, LATERAL (SELECT placed, count(*) AS n FROM orders WHERE id = i.id GROUP BY 1) s",
        0,
    );
    check("SELECT * FROM (SELECT placed, count(*), random() AS r FROM orders GROUP BY 1) s", 0);
    check(
        "SELECT * FROM (SELECT lower(o.id::text) AS t FROM orders o JOIN lines l ON l.customer_id = o.customer_id) s JOIN items i ON i.name = s.t",
        0,
    );
    // Of what is on node 1 alone, each node has nothing.
    check("SELECT max(n) FROM (SELECT placed, count(*) AS n FROM orders, home GROUP BY 1) s", 0);
    check("SELECT * FROM (SELECT placed, count(*) AS n FROM orders GROUP BY 1) s, home", 1);
    // Rows, as many as there are.
    check("SELECT max(total) FROM (SELECT total FROM orders WHERE id > 3 OFFSET 0) s", 0);
}
