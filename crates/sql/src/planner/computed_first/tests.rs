//! Statements with scalar subqueries that are computed first, as texts.

use expect_test::{Expect, expect};

use crate::planner::fixture::planned;

#[track_caller]
fn check(sql: &str, expected: Expect) {
    let lines = planned(sql, 3);
    let of_it = lines.lines().skip_while(|line| !line.starts_with("  first "));
    let of_it: Vec<_> = of_it.map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
    expected.assert_eq(&of_it.join("\n"));
}

#[test]
fn values_stand_in_conditions() {
    check(
        "SELECT * FROM orders WHERE total > (SELECT sum(total) FROM orders WHERE placed < now())",
        expect![[r#"
            first SELECT tutti.value_output(sum(total)) FROM orders WHERE placed < now()
              gather on One(Any) Read
                parts SELECT tutti_f.c1::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT sum(total) FROM orders WHERE placed < <pg_catalog.now()>::timestamp with time zone) AS tutti_f (c1)
                WITH tutti_z(c1) AS (SELECT sum(total) FROM orders WHERE placed < <pg_catalog.now()>::timestamp with time zone LIMIT 0) SELECT tutti.value_output(pg_catalog.sum(tutti_f.c1)) AS value_output FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) ) tutti_f(c1)
              then SELECT * FROM orders WHERE total > <rows 0>
            or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "customer_id", "total", "placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
              ANALYZE pg_temp.tutti_rows_0
              SELECT * FROM pg_temp.tutti_rows_0 orders WHERE total > (SELECT sum(total) FROM pg_temp.tutti_rows_0 orders WHERE placed < <pg_catalog.now()>::timestamp with time zone)
            or bring SELECT tutti.row_output(ROW(NULL, NULL, "orders"."total", "orders"."placed")) FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") WHERE (placed < <pg_catalog.now()>::timestamp with time zone) from AllNodes
              SELECT * FROM orders WHERE total > (SELECT sum(total) FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders WHERE placed < <pg_catalog.now()>::timestamp with time zone)"#]],
    );
    check(
        "SELECT customer_id, sum(total) FROM orders GROUP BY 1 HAVING sum(total) > (SELECT sum(total) * 0.1 FROM orders) \
         AND customer_id <> (SELECT id FROM customers ORDER BY id DESC, name LIMIT 1)",
        expect![[r#"
            first SELECT tutti.value_output(sum(total) * 0.1) FROM orders
              gather on One(Any) Read
                parts SELECT tutti_f.c1::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT sum(total) FROM orders) AS tutti_f (c1)
                WITH tutti_z(c1) AS (SELECT sum(total) FROM orders LIMIT 0) SELECT tutti.value_output(pg_catalog.sum(tutti_f.c1) * 0.1) AS value_output FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) ) tutti_f(c1)
            first SELECT tutti.value_output(id) FROM customers ORDER BY id DESC, name LIMIT 1
              gather on One(Any) Read
                SELECT ROW("customers"."id", "customers"."name")::pg_catalog.text FROM (SELECT "customers"."id", "customers"."name" FROM "public"."customers" AS "customers" ("id", "name") ORDER BY id DESC, name LIMIT 1) AS "customers" from AllNodes
                SELECT tutti.value_output(id) FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers ORDER BY id DESC, name LIMIT 1
                or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
                  ANALYZE pg_temp.tutti_rows_0
                  SELECT tutti.value_output(id) FROM pg_temp.tutti_rows_0 customers ORDER BY id DESC, name LIMIT 1
              then SELECT customer_id, sum(total) FROM orders GROUP BY 1 HAVING sum(total) > <rows 0> AND customer_id <> <rows 1>
            or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "customer_id", "total" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
            or CREATE TEMPORARY TABLE pg_temp.tutti_rows_1 ON COMMIT DROP AS SELECT "id", "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
              ANALYZE pg_temp.tutti_rows_0; ANALYZE pg_temp.tutti_rows_1
              SELECT customer_id, sum(total) FROM pg_temp.tutti_rows_0 orders GROUP BY 1 HAVING sum(total) > (SELECT sum(total) * 0.1 FROM pg_temp.tutti_rows_0 orders) AND customer_id <> (SELECT id FROM pg_temp.tutti_rows_1 customers ORDER BY id DESC, name LIMIT 1)"#]],
    );
    check(
        "SELECT * FROM lines WHERE number = (SELECT max(number) FROM lines AS l WHERE l.customer_id = $1)",
        expect![[r#"
            first SELECT tutti.value_output(max(number)) FROM lines l WHERE l.customer_id = $1
              one pinned $1 Read
              otherwise
                gather on One(Any) Read
                  parts SELECT CASE WHEN pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid OPERATOR(pg_catalog.=) ANY ('{16,19,20,21,23,25,1043,1700,2950}'::pg_catalog.oid[]) THEN tutti_f.c1::pg_catalog.text ELSE tutti.value_output(tutti_f.c1) END, pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT max(number) FROM lines l WHERE l.customer_id = $1) AS tutti_f (c1)
                  WITH tutti_z(c1) AS (SELECT max(number) FROM lines l WHERE l.customer_id = $1 LIMIT 0) SELECT tutti.value_output(pg_catalog.max(tutti_f.c1)) AS value_output FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) ) tutti_f(c1)
              then SELECT * FROM lines WHERE number = <rows 0>
            or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "customer_id", "item", "number" FROM pg_catalog.unnest(<rows 0>::"public"."lines"[]) AS tutti_f
              ANALYZE pg_temp.tutti_rows_0
              SELECT * FROM pg_temp.tutti_rows_0 lines WHERE number = (SELECT max(number) FROM pg_temp.tutti_rows_0 l WHERE l.customer_id = $1)
            or bring SELECT ROW("l"."customer_id", NULL, "l"."number")::pg_catalog.text FROM "public"."lines" AS "l" ("customer_id", "item", "number") WHERE (l.customer_id = $1) from One(Pinned([Pin { map: MapId(1), key_type: Int4, value: Parameter(0), stored: None, ends: false }]))
              SELECT * FROM lines WHERE number = (SELECT max(number) FROM pg_catalog.unnest(<rows 0>::public.lines[]) l WHERE l.customer_id = $1)"#]],
    );
}

#[test]
fn others_stay() {
    for sql in [
        // Of the row around it.
        "SELECT * FROM orders o WHERE total > (SELECT sum(total) FROM tickets t WHERE t.id = o.id)",
        "SELECT * FROM orders o WHERE total > (SELECT max(id) FROM tickets WHERE title = customer_id::text)",
        // Not asked for in each case.
        "SELECT * FROM orders WHERE CASE WHEN total > 3 THEN total > (SELECT sum(total) FROM orders) END",
        "SELECT coalesce(total, (SELECT sum(total) FROM orders)) FROM orders ORDER BY 1",
        // What WITH has.
        "WITH o AS (SELECT * FROM orders) SELECT * FROM o WHERE total > (SELECT sum(total) FROM o)",
        // Every node has it, or it is another value each time.
        "SELECT count(DISTINCT placed) FROM orders WHERE total > (SELECT max(rate) FROM rates)",
        "SELECT * FROM orders WHERE total > (SELECT max(random()) FROM orders)",
        // It may fail, and nobody may ask for it.
        "SELECT * FROM orders WHERE id = (SELECT 1 / max(id) FROM orders)",
        "SELECT * FROM orders WHERE id = (SELECT max(id) + 1 FROM orders)",
        "SELECT * FROM orders WHERE id = (SELECT max(id) FROM orders WHERE upper(total::text)::int = 3)",
        "SELECT * FROM orders WHERE id = (SELECT id FROM big_orders)",
        // It must be as in GROUP BY.
        "SELECT 1 FROM orders GROUP BY id > (SELECT max(id) FROM tickets) HAVING id > (SELECT max(id) FROM tickets)",
        "SELECT id > (SELECT max(id) FROM tickets) AS q FROM orders GROUP BY q HAVING id > (SELECT max(id) FROM tickets)",
        "SELECT * FROM orders WHERE id = (SELECT max(id) FROM orders WHERE id > 2147483647 + 1)",
        "SELECT * FROM orders WHERE id = (SELECT max(id) FROM orders WHERE total > '3'::text::int)",
        "SELECT * FROM orders WHERE id = (SELECT max(c.id) FROM customers c JOIN tickets t ON c.name = t.title)",
        "SELECT * FROM orders WHERE id = (SELECT max(id) FROM orders WHERE total = $1)",
        // Its name would be another.
        "SELECT id FROM orders WHERE id > (SELECT o.id FROM orders o, tickets t ORDER BY id LIMIT 1) ORDER BY id",
        "SELECT id FROM orders WHERE id > (SELECT o.id AS n FROM orders o ORDER BY n LIMIT 1) ORDER BY id",
        "SELECT id FROM orders WHERE id > (SELECT o.id FROM orders o ORDER BY 1 LIMIT 1) ORDER BY id",
        "SELECT (SELECT max(total) FROM orders) FROM tickets ORDER BY id",
    ] {
        check(sql, expect![""]);
    }
}
