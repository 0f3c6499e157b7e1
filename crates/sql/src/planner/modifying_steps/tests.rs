//! Plans of statements that change data in WITH on several nodes, as texts.

use expect_test::{Expect, expect};

use crate::planner::fixture::planned;

#[track_caller]
fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&planned(sql, 3));
}

#[test]
fn rows_go_on_to_another_table() {
    check(
        "WITH gone AS (DELETE FROM orders WHERE total > 3 RETURNING id, customer_id AS c, total + 1 AS more) \
         INSERT INTO lines SELECT c, more::text FROM gone",
        expect![[r#"
            step DELETE FROM orders WHERE total > 3 RETURNING ROW(orders.id, orders.customer_id, orders.total, NULL)::pg_catalog.text, total + 1 AS more
              Scatter { access: Write }
            step WITH gone AS (SELECT id, customer_id AS c, total + 1 AS more FROM tutti.returned_0 orders) INSERT INTO lines SELECT c, more::text FROM gone
              insert lines [one row each]
                SELECT s.c1::int, s.c2::pg_catalog.text FROM (WITH gone AS (SELECT id, customer_id AS c, total + 1 AS more FROM tutti.returned_0 orders) SELECT c, more::text FROM gone) s(c1, c2)
                  gather on One(Any) Read
                     from Returned(0)
                    SELECT s.c1::int, s.c2::pg_catalog.text FROM (WITH gone AS (SELECT id, customer_id AS c, total + 1 AS more FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders) SELECT c, more::text FROM gone) s(c1, c2)
                columns [0, 1] key [Some(0)]
                INSERT INTO lines (customer_id, item) SELECT u.customer_id, u.item FROM pg_catalog.unnest(<rows 0>::public.lines[]) u
        "#]],
    );
    check(
        "WITH made AS (INSERT INTO customers VALUES (1, 'a'), (2, 'b') RETURNING id), \
         more AS (INSERT INTO lines SELECT id, 'x' FROM made RETURNING *) \
         UPDATE orders AS o SET total = 0 FROM more WHERE o.customer_id = more.customer_id",
        expect![[r#"
            step INSERT INTO customers VALUES (1, 'a'), (2, 'b') RETURNING ROW(customers.id, NULL)::pg_catalog.text
              insert customers [returning, one row each]
                "INSERT INTO customers VALUES "
                (1, 'a') -> bucket 838
                (2, 'b') -> bucket 246
                " RETURNING ROW(customers.id, NULL)::pg_catalog.text"
            step WITH made AS (SELECT id FROM tutti.returned_0 customers) INSERT INTO lines SELECT id, 'x' FROM made RETURNING ROW(lines.customer_id, lines.item, lines.number)::pg_catalog.text
              insert lines [returning, one row each]
                SELECT s.c1::int, s.c2::pg_catalog.text FROM (WITH made AS (SELECT id FROM tutti.returned_0 customers) SELECT id, 'x' FROM made) s(c1, c2)
                  gather on One(Any) Read
                     from Returned(0)
                    SELECT s.c1::int, s.c2::pg_catalog.text FROM (WITH made AS (SELECT id FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers) SELECT id, 'x' FROM made) s(c1, c2)
                columns [0, 1] key [Some(0)]
                INSERT INTO lines (customer_id, item) SELECT u.customer_id, u.item FROM pg_catalog.unnest(<rows 0>::public.lines[]) u RETURNING ROW(lines.customer_id, lines.item, lines.number)::pg_catalog.text
            step WITH more AS (SELECT * FROM tutti.returned_1 lines) UPDATE orders o SET total = 0 FROM more WHERE o.customer_id = more.customer_id
              gather on EachNode Write
                 from Returned(1)
                WITH more AS (SELECT * FROM pg_catalog.unnest(<rows 0>::public.lines[]) lines) UPDATE orders o SET total = 0 FROM more WHERE o.customer_id = more.customer_id
        "#]],
    );
}

#[test]
fn what_is_returned_is_read() {
    check(
        "WITH up AS (UPDATE orders SET total = total + 1 RETURNING *) SELECT count(*), sum(total) FROM up",
        expect![[r#"
            step UPDATE orders SET total = total + 1 RETURNING tutti.row_output(ROW(orders.id, orders.customer_id, orders.total, orders.placed))
              Scatter { access: Write }
            step WITH up AS (SELECT * FROM tutti.returned_0 orders) SELECT count(*), sum(total) FROM up
              gather on One(Any) Read
                 from Returned(0)
                WITH up AS (SELECT * FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders) SELECT count(*), sum(total) FROM up
        "#]],
    );
    check(
        "WITH ids AS (SELECT id FROM tickets WHERE title = 'x'), \
         up AS (DELETE FROM orders AS o USING ids WHERE o.id = ids.id RETURNING o.id, o.customer_id) \
         SELECT up.id, c.name FROM up JOIN customers AS c ON c.id = up.customer_id",
        expect![[r#"
            step WITH ids AS (SELECT id FROM tickets WHERE title = 'x') DELETE FROM orders o USING ids WHERE o.id = ids.id RETURNING ROW(o.id, o.customer_id, NULL, NULL)::pg_catalog.text
              gather on EachNode Write
                SELECT ROW("tickets"."id", "tickets"."title")::pg_catalog.text FROM "public"."tickets" AS "tickets" ("id", "title") WHERE (title = 'x') from AllNodes
                WITH ids AS (SELECT id FROM pg_catalog.unnest(<rows 0>::public.tickets[]) tickets WHERE title = 'x') DELETE FROM orders o USING ids WHERE o.id = ids.id RETURNING ROW(o.id, o.customer_id, NULL, NULL)::pg_catalog.text
            step WITH up AS (SELECT o.id, o.customer_id FROM tutti.returned_1 o) SELECT up.id, c.name FROM up JOIN customers c ON c.id = up.customer_id
              gather on One(Any) Read
                 from Returned(0)
                SELECT ROW("c"."id", "c"."name")::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") from AllNodes
                WITH up AS (SELECT o.id, o.customer_id FROM pg_catalog.unnest(<rows 0>::public.orders[]) o) SELECT up.id, c.name FROM up JOIN pg_catalog.unnest(<rows 1>::public.customers[]) c ON c.id = up.customer_id
        "#]],
    );
    check(
        "WITH up AS (UPDATE orders SET total = 0) SELECT 1",
        expect![[r#"
            step UPDATE orders SET total = 0
              Scatter { access: Write }
            step SELECT 1
              one speaker Read
        "#]],
    );
}

#[test]
fn tables_of_node_1_are_written_there() {
    check(
        "WITH up AS (UPDATE orders SET total = 0 WHERE customer_id = 5 RETURNING id), \
         h AS (UPDATE home SET a = up.id FROM up RETURNING a) SELECT a FROM h",
        expect![[r#"
            step UPDATE orders SET total = 0 WHERE customer_id = 5 RETURNING ROW(orders.id, NULL, NULL, NULL)::pg_catalog.text
              one pinned bucket 380 Write
            step WITH up AS (SELECT id FROM tutti.returned_0 orders) UPDATE home SET a = up.id FROM up RETURNING ROW(home.a)::pg_catalog.text
              gather on One(Home) Write
                 from Returned(0)
                WITH up AS (SELECT id FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders) UPDATE home SET a = up.id FROM up RETURNING ROW(home.a)::pg_catalog.text
            step WITH h AS (SELECT a FROM tutti.returned_1 home) SELECT a FROM h
              gather on One(Home) Read
                 from Returned(1)
                WITH h AS (SELECT a FROM pg_catalog.unnest(<rows 0>::public.home[]) home) SELECT a FROM h
        "#]],
    );
}

#[test]
fn what_would_see_another_part_is_refused() {
    for sql in [
        // Read by the rest.
        "WITH up AS (DELETE FROM orders RETURNING *) SELECT count(*) FROM orders, up",
        // Read by another part, also through a view.
        "WITH up AS (DELETE FROM orders RETURNING *), l AS (DELETE FROM lines WHERE customer_id IN \
         (SELECT id FROM big_orders)) SELECT * FROM up",
        "WITH up AS (UPDATE orders SET total = 0), more AS (UPDATE orders SET total = 1) SELECT 1",
        // Rows that were added before, or by a part that PostgreSQL may run later.
        "WITH i AS (INSERT INTO customers VALUES (1, 'a'), (2, 'b') RETURNING id) UPDATE customers SET name = 'c' FROM i \
         WHERE customers.name = 'a'",
        "WITH d AS (DELETE FROM customers), i AS (INSERT INTO customers VALUES (1, 'a'), (2, 'b') RETURNING id) SELECT * FROM i",
        // Read twice, and changed in between.
        "WITH ids AS (SELECT id FROM orders), gone AS (DELETE FROM lines WHERE customer_id IN (SELECT id FROM ids)) \
         SELECT * FROM ids",
        // Computed where the rows are.
        "WITH up AS (UPDATE orders SET total = 0 RETURNING random()) SELECT * FROM up",
        "WITH up AS (UPDATE orders SET total = 0 RETURNING ctid) SELECT * FROM up",
        "WITH up AS (UPDATE orders SET total = 0 RETURNING (SELECT 1)) SELECT * FROM up",
        "WITH up AS (DELETE FROM orders USING lines WHERE lines.customer_id = orders.customer_id RETURNING *) \
         SELECT * FROM up",
        "WITH up AS (DELETE FROM orders USING lines WHERE lines.customer_id = orders.customer_id RETURNING item) \
         SELECT * FROM up",
        "WITH RECURSIVE up AS (DELETE FROM orders RETURNING *) SELECT * FROM up",
    ] {
        let plan = planned(sql, 3);
        assert!(plan.starts_with("0A000 a statement in WITH that changes data"), "{sql}: {plan}");
    }
    let without = "WITH up AS (DELETE FROM orders) SELECT * FROM up";
    assert!(
        planned(without, 3).starts_with("0A000 WITH query \"up\" does not have a RETURNING clause")
    );
}

#[test]
fn what_a_change_returns_is_copied() {
    check(
        "COPY (UPDATE orders SET total = total + 1 RETURNING id, total * 2 AS twice) TO STDOUT (FORMAT csv, HEADER)",
        expect![[r#"
            step UPDATE orders SET total = total + 1 RETURNING ROW(orders.id, NULL, orders.total, NULL)::pg_catalog.text, total * 2 AS twice
              Scatter { access: Write }
            step COPY (WITH tutti_changed AS (SELECT id, total * 2 AS twice FROM tutti.returned_0 orders) SELECT * FROM tutti_changed) TO STDOUT WITH (FORMAT CSV, HEADER)
              copy to, binary false, header true
                gather on One(Any) Read
                   from Returned(0)
                  COPY (WITH tutti_changed AS (SELECT id, total * 2 AS twice FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders) SELECT * FROM tutti_changed) TO STDOUT WITH (FORMAT CSV, HEADER)
        "#]],
    );
    check(
        "COPY (WITH gone AS (DELETE FROM orders RETURNING id) SELECT count(*) FROM gone) TO STDOUT",
        expect![[r#"
            step DELETE FROM orders RETURNING ROW(orders.id, NULL, NULL, NULL)::pg_catalog.text
              Scatter { access: Write }
            step COPY (WITH gone AS (SELECT id FROM tutti.returned_0 orders) SELECT count(*) FROM gone) TO STDOUT
              copy to, binary false, header false
                gather on One(Any) Read
                   from Returned(0)
                  COPY (WITH gone AS (SELECT id FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders) SELECT count(*) FROM gone) TO STDOUT
        "#]],
    );
    check(
        "COPY (DELETE FROM orders) TO STDOUT",
        expect![[r#"
        0A000 COPY query must have a RETURNING clause
    "#]],
    );
    check(
        "COPY (DELETE FROM orders USING lines RETURNING lines.item) TO STDOUT",
        expect![[r#"
        0A000 COPY of a statement that changes rows on several nodes is not supported
          Its rows would have to be brought together from several writes.
          Run the statement with RETURNING by itself.
    "#]],
    );
}
