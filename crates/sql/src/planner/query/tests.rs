//! Plans of queries against the shop, as texts.

use expect_test::{Expect, expect};

use crate::planner::fixture::planned;

#[track_caller]
fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&planned(sql, 3));
}

#[test]
fn one_node_by_key() {
    check(
        "SELECT * FROM orders WHERE customer_id = 5",
        expect![[r#"
        one pinned bucket 380 Read
    "#]],
    );
    check(
        "SELECT * FROM orders WHERE customer_id = $1 AND total > 3",
        expect![[r#"
        one pinned $1 Read
        otherwise
          Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT * FROM orders WHERE customer_id IN (5, 6)",
        expect![[r#"
        one pinned bucket 380 bucket 752 Read
    "#]],
    );
    check(
        "SELECT * FROM orders WHERE customer_id IN (1, 2)",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT * FROM orders WHERE customer_id = ANY ('{5}')",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT * FROM orders WHERE customer_id = 1.5",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT * FROM orders WHERE customer_id = 5 OR total = 1",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT * FROM customers c JOIN orders o ON o.customer_id = c.id WHERE c.id = 5",
        expect![[r#"
            one pinned bucket 380 Read
        "#]],
    );
    check(
        "SELECT * FROM customers c LEFT JOIN orders o ON o.customer_id = c.id WHERE c.id = 5",
        expect![[r#"
            one pinned bucket 380 Read
        "#]],
    );
    check(
        "SELECT * FROM customers c LEFT JOIN orders o ON o.customer_id = c.id WHERE o.customer_id = 5",
        expect![[r#"
            Scatter { access: Read }
        "#]],
    );
    check(
        "SELECT * FROM customers c LEFT JOIN orders o ON o.customer_id = c.id AND c.id = 5",
        expect![[r#"
            Scatter { access: Read }
        "#]],
    );
    check(
        "SELECT * FROM customers WHERE id = 5 AND EXISTS (SELECT 1 FROM orders WHERE customer_id = customers.id)",
        expect![[r#"
            one pinned bucket 380 Read
        "#]],
    );
    check(
        "SELECT name FROM (SELECT * FROM customers) AS c WHERE id = 5",
        expect![[r#"
        one pinned bucket 380 Read
    "#]],
    );
    check(
        "WITH c AS (SELECT * FROM customers) SELECT * FROM c WHERE id = 5",
        expect![[r#"
        one pinned bucket 380 Read
    "#]],
    );
    check(
        "SELECT count(*), max(total) FROM orders WHERE customer_id = 5",
        expect![[r#"
        one pinned bucket 380 Read
    "#]],
    );
    check(
        "SELECT * FROM orders, items WHERE customer_id = 5 AND items.id = orders.id",
        expect![[r#"
            one pinned bucket 380 Read
        "#]],
    );
    check(
        "SELECT * FROM orders WHERE customer_id = 5 FOR UPDATE",
        expect![[r#"
        one pinned bucket 380 Write
    "#]],
    );
}

#[test]
fn no_distributed_table() {
    check(
        "SELECT 1",
        expect![[r#"
            one speaker Read
        "#]],
    );
    check(
        "SELECT * FROM items",
        expect![[r#"
        one any Read
    "#]],
    );
    check(
        "SELECT * FROM items FOR UPDATE",
        expect![[r#"
        one home Write
    "#]],
    );
    check(
        "SELECT * FROM pg_class",
        expect![[r#"
        one home Read
    "#]],
    );
    check(
        "SELECT * FROM scratch JOIN items USING (id)",
        expect![[r#"
        one home Read
    "#]],
    );
    check(
        "SELECT nextval('s'), name FROM items",
        expect![[r#"
        one home Write
    "#]],
    );
    check(
        "SELECT * FROM rate_codes",
        expect![[r#"
        one any Read
    "#]],
    );
    check(
        "SELECT tidy() FROM items",
        expect![[r#"
        one home Write
    "#]],
    );
    check(
        "SELECT place_order() FROM items",
        expect![[r#"
            one home Write
        "#]],
    );
}

#[test]
fn scatter() {
    check(
        "SELECT * FROM orders",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT o.total, c.name FROM orders o JOIN customers c ON c.id = o.customer_id",
        expect![[r#"
            Scatter { access: Read }
        "#]],
    );
    check(
        "SELECT * FROM orders JOIN items USING (id)",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT customer_id, count(*) FROM orders GROUP BY customer_id",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT DISTINCT customer_id FROM orders",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT id FROM customers UNION ALL SELECT customer_id FROM orders",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT * FROM customers WHERE id IN (SELECT customer_id FROM orders)",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT * FROM customers WHERE name = $1",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT what FROM events",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT id FROM big_orders",
        expect![[r#"
        Scatter { access: Read }
    "#]],
    );
    check(
        "SELECT now(), name FROM customers",
        expect![[r#"
            gather on EachNode Read
              SELECT <pg_catalog.now()>::timestamp with time zone AS now, name FROM customers
        "#]],
    );
    check(
        "SELECT CURRENT_DATE AS today, coalesce(now(), placed) FROM orders",
        expect![[r#"
            gather on EachNode Read
              SELECT <current_date>::pg_catalog.date AS today, COALESCE(<pg_catalog.now()>::timestamp with time zone, placed) FROM orders
        "#]],
    );
    check(
        "SELECT * FROM orders WHERE placed > CURRENT_DATE FOR UPDATE",
        expect![[r#"
            gather on EachNode Write
              SELECT * FROM orders WHERE placed > <current_date>::pg_catalog.date FOR UPDATE
        "#]],
    );
}

#[test]
fn gather() {
    check(
        "SELECT * FROM orders ORDER BY total",
        expect![[r#"
            gather on One(Any) Read
              SELECT tutti.row_output(ROW("orders"."id", "orders"."customer_id", "orders"."total", "orders"."placed")) FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
              SELECT * FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders ORDER BY total
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "customer_id", "total", "placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0
                SELECT * FROM pg_temp.tutti_rows_0 orders ORDER BY total
        "#]],
    );
    check(
        "SELECT * FROM orders LIMIT 3",
        expect![[r#"
            gather on One(Any) Read
              SELECT tutti.row_output(ROW("orders"."id", "orders"."customer_id", "orders"."total", "orders"."placed")) FROM (SELECT "orders"."id", "orders"."customer_id", "orders"."total", "orders"."placed" FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") LIMIT 3) AS "orders" from AllNodes
              SELECT * FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders LIMIT 3
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "customer_id", "total", "placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0
                SELECT * FROM pg_temp.tutti_rows_0 orders LIMIT 3
        "#]],
    );
    check(
        "SELECT count(*) FROM orders WHERE total > 3",
        expect![[r#"
            gather on One(Any) Read
              parts SELECT tutti_f.c1::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT count(*) FROM orders WHERE total > 3) AS tutti_f (c1)
              WITH tutti_z(c1) AS (SELECT count(*) FROM orders WHERE total > 3 LIMIT 0) SELECT COALESCE(pg_catalog.sum(tutti_f.c1), 0)::bigint AS count FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) ) tutti_f(c1)
        "#]],
    );
    check(
        "SELECT total, count(*) FROM orders GROUP BY total",
        expect![[r#"
            gather on One(Any) Read
              parts SELECT tutti_f.c1::pg_catalog.text, tutti_f.c2::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c2)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT total, count(*) FROM orders GROUP BY 1) AS tutti_f (c1, c2)
              WITH tutti_z(c1, c2) AS (SELECT total, count(*) FROM orders GROUP BY 1 LIMIT 0) SELECT tutti_f.c1 AS total, COALESCE(pg_catalog.sum(tutti_f.c2), 0)::bigint AS count FROM ROWS FROM (pg_catalog.unnest(<rows 0>::numeric[]) , pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c2) FROM tutti_z), <rows 1>)) ) tutti_f(c1, c2) GROUP BY tutti_f.c1
        "#]],
    );
    check(
        "SELECT DISTINCT total FROM orders",
        expect![[r#"
            gather on One(Any) Read
              parts SELECT tutti_f.c1::pg_catalog.text, pg_catalog.current_setting('array_nulls') FROM (SELECT total FROM orders GROUP BY 1) AS tutti_f (c1)
              WITH tutti_z(c1) AS (SELECT total FROM orders GROUP BY 1 LIMIT 0) SELECT DISTINCT tutti_f.c1 AS total FROM ROWS FROM (pg_catalog.unnest(<rows 0>::numeric[]) ) tutti_f(c1) GROUP BY tutti_f.c1
        "#]],
    );
    check(
        "SELECT a.name, b.name FROM customers a JOIN customers b ON a.name = b.name",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW(NULL, t."name")::pg_catalog.text FROM "public"."customers" AS t ("id", "name") from AllNodes
              SELECT a.name, b.name FROM pg_catalog.unnest(<rows 0>::public.customers[]) a JOIN pg_catalog.unnest(<rows 0>::public.customers[]) b ON a.name = b.name
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0
                SELECT a.name, b.name FROM pg_temp.tutti_rows_0 a JOIN pg_temp.tutti_rows_0 b ON a.name = b.name
              or bring SELECT ROW(NULL, "b"."name")::pg_catalog.text FROM "public"."customers" AS "b" ("id", "name") from AllNodes
                SELECT a.name, b.name FROM customers a JOIN pg_catalog.unnest(<rows 0>::public.customers[]) b ON a.name = b.name
              or bring SELECT ROW(NULL, "a"."name")::pg_catalog.text FROM "public"."customers" AS "a" ("id", "name") from AllNodes
                SELECT a.name, b.name FROM pg_catalog.unnest(<rows 0>::public.customers[]) a JOIN customers b ON a.name = b.name
              or bring to its node SELECT ROW(NULL, t."name")::pg_catalog.text, COALESCE(pg_catalog.hashtextextended((t."name") COLLATE pg_catalog."C", 0) OPERATOR(pg_catalog.&) 1023::pg_catalog.int8, 0::pg_catalog.int8) FROM "public"."customers" AS t ("id", "name") from AllNodes
                SELECT a.name, b.name FROM pg_catalog.unnest(<rows 0>::public.customers[]) a JOIN pg_catalog.unnest(<rows 0>::public.customers[]) b ON a.name = b.name
        "#]],
    );
    check(
        "SELECT c.name FROM customers c FULL JOIN orders o ON o.id = c.id",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("c"."id", "c"."name")::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") from AllNodes
              SELECT ROW("o"."id", NULL, NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") from AllNodes
              SELECT c.name FROM pg_catalog.unnest(<rows 0>::public.customers[]) c FULL JOIN pg_catalog.unnest(<rows 1>::public.orders[]) o ON o.id = c.id
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_1 ON COMMIT DROP AS SELECT "id" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0; ANALYZE pg_temp.tutti_rows_1
                SELECT c.name FROM pg_temp.tutti_rows_0 c FULL JOIN pg_temp.tutti_rows_1 o ON o.id = c.id
        "#]],
    );
    check(
        "SELECT public.customers.name FROM public.customers ORDER BY public.customers.id",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("customers"."id", "customers"."name")::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
              SELECT customers.name FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers ORDER BY customers.id
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0
                SELECT customers.name FROM pg_temp.tutti_rows_0 customers ORDER BY customers.id
        "#]],
    );
    check(
        "SELECT \"Name\" FROM customers AS \"Cust\" (id, \"Name\") ORDER BY \"Cust\".id",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("Cust"."id", "Cust"."Name")::pg_catalog.text FROM "public"."customers" AS "Cust" ("id", "Name") from AllNodes
              SELECT "Name" FROM pg_catalog.unnest(<rows 0>::public.customers[]) "Cust"(id, "Name") ORDER BY "Cust".id
        "#]],
    );
    check(
        "WITH customers AS (SELECT 1 AS id) SELECT * FROM customers",
        expect![[r#"
            one speaker Read
        "#]],
    );
    check(
        "WITH customers AS (SELECT * FROM public.customers ORDER BY id) SELECT name FROM customers",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("customers"."id", "customers"."name")::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
              WITH customers AS (SELECT * FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers ORDER BY id) SELECT name FROM customers
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0
                WITH customers AS (SELECT * FROM pg_temp.tutti_rows_0 customers ORDER BY id) SELECT name FROM customers
        "#]],
    );
    check(
        "SELECT row_number() OVER (ORDER BY total) FROM orders",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW(NULL, NULL, "orders"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
              SELECT row_number() OVER (ORDER BY total) FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "total" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0
                SELECT row_number() OVER (ORDER BY total) FROM pg_temp.tutti_rows_0 orders
        "#]],
    );
    check(
        "SELECT id FROM customers UNION SELECT customer_id FROM orders",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("customers"."id", NULL)::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
              SELECT ROW(NULL, "orders"."customer_id", NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
              SELECT id FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers UNION SELECT customer_id FROM pg_catalog.unnest(<rows 1>::public.orders[]) orders
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_1 ON COMMIT DROP AS SELECT "customer_id" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0; ANALYZE pg_temp.tutti_rows_1
                SELECT id FROM pg_temp.tutti_rows_0 customers UNION SELECT customer_id FROM pg_temp.tutti_rows_1 orders
        "#]],
    );
    check(
        "SELECT id FROM customers EXCEPT SELECT 5",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("customers"."id", NULL)::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
              SELECT id FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers EXCEPT SELECT 5
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0
                SELECT id FROM pg_temp.tutti_rows_0 customers EXCEPT SELECT 5
        "#]],
    );
    check(
        "SELECT c.name, o.total FROM customers c, LATERAL (SELECT total FROM orders WHERE id = c.id ORDER BY total LIMIT 1) o",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("c"."id", "c"."name")::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") from AllNodes
              SELECT ROW("orders"."id", NULL, "orders"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
                or, after 0: SELECT ROW("orders"."id", NULL, "orders"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") WHERE "orders"."id" OPERATOR(pg_catalog.=) ANY (SELECT tutti_k."id" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_k)
              SELECT c.name, o.total FROM pg_catalog.unnest(<rows 0>::public.customers[]) c, LATERAL (SELECT total FROM pg_catalog.unnest(<rows 1>::public.orders[]) orders WHERE id = c.id ORDER BY total LIMIT 1) o
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_1 ON COMMIT DROP AS SELECT "id", "total" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0; ANALYZE pg_temp.tutti_rows_1
                SELECT c.name, o.total FROM pg_temp.tutti_rows_0 c, LATERAL (SELECT total FROM pg_temp.tutti_rows_1 orders WHERE id = c.id ORDER BY total LIMIT 1) o
              or bring to its node SELECT ROW("orders"."id", NULL, "orders"."total", NULL)::pg_catalog.text, COALESCE(pg_catalog.hashint4extended(("orders"."id"), 0) OPERATOR(pg_catalog.&) 1023::pg_catalog.int8, 0::pg_catalog.int8) FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
                SELECT c.name, o.total FROM customers c, LATERAL (SELECT total FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders WHERE id = c.id ORDER BY total LIMIT 1) o
        "#]],
    );
    check(
        "SELECT max(total) FROM orders WHERE placed < now()",
        expect![[r#"
            gather on One(Any) Read
              parts SELECT CASE WHEN pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid OPERATOR(pg_catalog.=) ANY ('{16,19,20,21,23,25,1043,1700,2950}'::pg_catalog.oid[]) THEN tutti_f.c1::pg_catalog.text ELSE tutti.value_output(tutti_f.c1) END, pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT max(total) FROM orders WHERE placed < <pg_catalog.now()>::timestamp with time zone) AS tutti_f (c1)
              WITH tutti_z(c1) AS (SELECT max(total) FROM orders WHERE placed < <pg_catalog.now()>::timestamp with time zone LIMIT 0) SELECT pg_catalog.max(tutti_f.c1) AS max FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) ) tutti_f(c1)
        "#]],
    );
    check(
        "SELECT max(id) FROM big_orders",
        expect![[r#"
            gather on One(Any) Read
              parts SELECT CASE WHEN pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid OPERATOR(pg_catalog.=) ANY ('{16,19,20,21,23,25,1043,1700,2950}'::pg_catalog.oid[]) THEN tutti_f.c1::pg_catalog.text ELSE tutti.value_output(tutti_f.c1) END, pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT max(id) FROM big_orders) AS tutti_f (c1)
              WITH tutti_z(c1) AS (SELECT max(id) FROM big_orders LIMIT 0) SELECT pg_catalog.max(tutti_f.c1) AS max FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) ) tutti_f(c1)
        "#]],
    );
    check(
        "SELECT * FROM customers WHERE name = (SELECT max(name) FROM customers)",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW(t."id", t."name")::pg_catalog.text FROM "public"."customers" AS t ("id", "name") from AllNodes
              SELECT * FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers WHERE name = (SELECT max(name) FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers)
              first SELECT tutti.value_output(max(name)) FROM customers
                gather on One(Any) Read
                  parts SELECT CASE WHEN pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid OPERATOR(pg_catalog.=) ANY ('{16,19,20,21,23,25,1043,1700,2950}'::pg_catalog.oid[]) THEN tutti_f.c1::pg_catalog.text ELSE tutti.value_output(tutti_f.c1) END, pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT max(name) FROM customers) AS tutti_f (c1)
                  WITH tutti_z(c1) AS (SELECT max(name) FROM customers LIMIT 0) SELECT tutti.value_output(pg_catalog.max(tutti_f.c1)) AS value_output FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) ) tutti_f(c1)
                then SELECT * FROM customers WHERE name = <rows 0>
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0
                SELECT * FROM pg_temp.tutti_rows_0 customers WHERE name = (SELECT max(name) FROM pg_temp.tutti_rows_0 customers)
              or bring SELECT ROW(NULL, "customers"."name")::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
                SELECT * FROM customers WHERE name = (SELECT max(name) FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers)
        "#]],
    );
    check(
        "SELECT random() FROM customers",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW(NULL, NULL)::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
              SELECT random() FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers
        "#]],
    );
    check(
        "SELECT * FROM orders, scratch WHERE customer_id = 5",
        expect![[r#"
            gather on One(Home) Read
              SELECT tutti.row_output(ROW("orders"."id", "orders"."customer_id", "orders"."total", "orders"."placed")) FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
              SELECT * FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders, scratch WHERE customer_id = 5
        "#]],
    );
    check(
        "SELECT name FROM customers ORDER BY name FOR UPDATE",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW(NULL, "customers"."name")::pg_catalog.text AS tutti_row, ROW(NULL, tutti_was.tutti_1)::pg_catalog.text AS tutti_old FROM "public"."customers" AS "customers" ("id", "name"), LATERAL (SELECT NULL::pg_catalog.int4, "customers"."name" OFFSET 0) AS tutti_was (tutti_0, tutti_1) ORDER BY name LIMIT 9223372036854775807 FOR UPDATE OF "customers" from AllNodes
                the first 9223372036854775807 after 0, in turn
                ranks: SELECT pg_catalog.rank() OVER (ORDER BY name) FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) WITH ORDINALITY AS "customers" ("id", "name", tutti_place) ORDER BY tutti_place
              SELECT name FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers ORDER BY name
        "#]],
    );
    check(
        "SELECT name FROM customers WHERE name = 'x' AND EXISTS (SELECT 1 FROM home) FOR UPDATE",
        expect![[r#"
            0A000 locking rows of several nodes is not supported with this condition
              It must be checked where the rows are, before they are locked.
              Use conditions on the table's own columns without subqueries or volatile functions.
        "#]],
    );
    check(
        "SELECT c FROM customers c ORDER BY 1",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("c"."id", "c"."name")::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") from AllNodes
              SELECT c FROM pg_catalog.unnest(<rows 0>::public.customers[]) c ORDER BY 1
        "#]],
    );
    check(
        "SELECT sum(DISTINCT total) FROM orders JOIN lines USING (customer_id)",
        expect![[r#"
            gather on One(Any) Read
              parts SELECT tutti_f.c1::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT total FROM orders JOIN lines USING (customer_id) GROUP BY 1) AS tutti_f (c1)
              WITH tutti_z(c1) AS (SELECT total FROM orders JOIN lines USING (customer_id) GROUP BY 1 LIMIT 0) SELECT pg_catalog.sum(DISTINCT tutti_f.c1) AS sum FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) ) tutti_f(c1)
        "#]],
    );
    check(
        "WITH RECURSIVE r AS (SELECT id FROM customers UNION SELECT r.id + 1 FROM r JOIN orders ON orders.id = r.id) SELECT * FROM r",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("customers"."id", NULL)::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
              SELECT ROW("orders"."id", NULL, NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
              WITH RECURSIVE r AS (SELECT id FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers UNION SELECT r.id + 1 FROM r JOIN pg_catalog.unnest(<rows 1>::public.orders[]) orders ON orders.id = r.id) SELECT * FROM r
        "#]],
    );
    check(
        "VALUES ((SELECT count(*) FROM customers))",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW(NULL, NULL)::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
              VALUES ((SELECT count(*) FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers))
        "#]],
    );
    check(
        "SELECT $1::int + count(*) FROM customers",
        expect![[r#"
            gather on One(Any) Read
              parts SELECT tutti_f.c1::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT count(*) FROM customers) AS tutti_f (c1)
              WITH tutti_z(c1) AS (SELECT count(*) FROM customers LIMIT 0) SELECT $1::int + COALESCE(pg_catalog.sum(tutti_f.c1), 0)::bigint AS "?column?" FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) ) tutti_f(c1)
        "#]],
    );
}

/// What each node says of its own rows, with some tables brought to it or without.
#[test]
fn parts() {
    check(
        "SELECT c.name, o.* FROM customers c JOIN orders o ON o.customer_id = c.id ORDER BY o.total DESC, 2 LIMIT 3 OFFSET 1",
        expect![[r#"
            gather on One(Any) Read
              parts SELECT tutti_f.c1::pg_catalog.text, tutti_f.c2::pg_catalog.text, tutti_f.c3::pg_catalog.text, tutti_f.c4::pg_catalog.text, tutti.value_output(tutti_f.c5), pg_catalog.current_setting('array_nulls') FROM (SELECT c.name, o.id, o.customer_id, o.total, o.placed FROM customers c JOIN orders o ON o.customer_id = c.id) AS tutti_f (c1, c2, c3, c4, c5)
              WITH tutti_z(c1, c2, c3, c4, c5) AS (SELECT c.name, o.id, o.customer_id, o.total, o.placed FROM customers c JOIN orders o ON o.customer_id = c.id LIMIT 0) SELECT tutti_f.c1 AS name, tutti_f.c2 AS id, tutti_f.c3 AS customer_id, tutti_f.c4 AS total, tutti_f.c5 AS placed FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) , pg_catalog.unnest(<rows 1>::int[]) , pg_catalog.unnest(<rows 2>::int[]) , pg_catalog.unnest(<rows 3>::numeric[]) , pg_catalog.unnest(<rows 4>::timestamp with time zone[]) ) tutti_f(c1, c2, c3, c4, c5) ORDER BY tutti_f.c4 DESC, 2 LIMIT 3 OFFSET 1
        "#]],
    );
    check(
        "SELECT c.id, upper(c.name) AS name, count(*) FROM customers c JOIN orders o ON o.customer_id = c.id GROUP BY c.id ORDER BY name",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("c"."id", "c"."name")::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") from AllNodes
                or, after 1: SELECT ROW("c"."id", "c"."name")::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") WHERE "c"."id" OPERATOR(pg_catalog.=) ANY (SELECT tutti_k."customer_id" FROM pg_catalog.unnest(<rows 1>::"public"."orders"[]) AS tutti_k)
              SELECT ROW(NULL, "o"."customer_id", NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") from AllNodes
                or, after 0: SELECT ROW(NULL, "o"."customer_id", NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") WHERE "o"."customer_id" OPERATOR(pg_catalog.=) ANY (SELECT tutti_k."id" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_k)
              SELECT c.id, upper(c.name) AS name, count(*) FROM pg_catalog.unnest(<rows 0>::public.customers[]) c JOIN pg_catalog.unnest(<rows 1>::public.orders[]) o ON o.customer_id = c.id GROUP BY c.id ORDER BY name
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_1 ON COMMIT DROP AS SELECT "customer_id" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0; ANALYZE pg_temp.tutti_rows_1
                SELECT c.id, upper(c.name) AS name, count(*) FROM pg_temp.tutti_rows_0 c JOIN pg_temp.tutti_rows_1 o ON o.customer_id = c.id GROUP BY c.id ORDER BY name
        "#]],
    );
    check(
        "SELECT c.name, sum(o.total) AS s FROM customers c JOIN orders o ON o.id = c.id AND o.total > 3 GROUP BY c.name ORDER BY s",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("c"."id", "c"."name")::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") from AllNodes
                or, after 1: SELECT ROW("c"."id", "c"."name")::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") WHERE "c"."id" OPERATOR(pg_catalog.=) ANY (SELECT tutti_k."id" FROM pg_catalog.unnest(<rows 1>::"public"."orders"[]) AS tutti_k)
              SELECT ROW("o"."id", NULL, "o"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") WHERE (o.total > 3) from AllNodes
                or, after 0: SELECT ROW("o"."id", NULL, "o"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") WHERE (o.total > 3) AND "o"."id" OPERATOR(pg_catalog.=) ANY (SELECT tutti_k."id" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_k)
              SELECT c.name, sum(o.total) AS s FROM pg_catalog.unnest(<rows 0>::public.customers[]) c JOIN pg_catalog.unnest(<rows 1>::public.orders[]) o ON o.id = c.id AND o.total > 3 GROUP BY c.name ORDER BY s
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_1 ON COMMIT DROP AS SELECT "id", "total" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0; ANALYZE pg_temp.tutti_rows_1
                SELECT c.name, sum(o.total) AS s FROM pg_temp.tutti_rows_0 c JOIN pg_temp.tutti_rows_1 o ON o.id = c.id AND o.total > 3 GROUP BY c.name ORDER BY s
              or bring to its node SELECT ROW("o"."id", NULL, "o"."total", NULL)::pg_catalog.text, COALESCE(pg_catalog.hashint4extended(("o"."id"), 0) OPERATOR(pg_catalog.&) 1023::pg_catalog.int8, 0::pg_catalog.int8) FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") WHERE (o.total > 3) from AllNodes
                parts SELECT tutti_f.c1::pg_catalog.text, tutti_f.c2::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c2)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT c.name, sum(o.total) FROM customers c JOIN pg_catalog.unnest(<rows 0>::public.orders[]) o ON o.id = c.id AND o.total > 3 GROUP BY 1) AS tutti_f (c1, c2)
                WITH tutti_z(c1, c2) AS (SELECT c.name, sum(o.total) FROM customers c JOIN pg_catalog.unnest(<rows 0>::public.orders[]) o ON o.id = c.id AND o.total > 3 GROUP BY 1 LIMIT 0) SELECT tutti_f.c1 AS name, pg_catalog.sum(tutti_f.c2) AS s FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 1>)) , pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c2) FROM tutti_z), <rows 2>)) ) tutti_f(c1, c2) GROUP BY tutti_f.c1 ORDER BY s
              or bring SELECT ROW("c"."id", "c"."name")::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") from AllNodes
                parts SELECT tutti_f.c1::pg_catalog.text, tutti_f.c2::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c2)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT c.name, sum(o.total) FROM pg_catalog.unnest(<rows 0>::public.customers[]) c JOIN orders o ON o.id = c.id AND o.total > 3 GROUP BY 1) AS tutti_f (c1, c2)
                WITH tutti_z(c1, c2) AS (SELECT c.name, sum(o.total) FROM pg_catalog.unnest(<rows 0>::public.customers[]) c JOIN orders o ON o.id = c.id AND o.total > 3 GROUP BY 1 LIMIT 0) SELECT tutti_f.c1 AS name, pg_catalog.sum(tutti_f.c2) AS s FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 1>)) , pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c2) FROM tutti_z), <rows 2>)) ) tutti_f(c1, c2) GROUP BY tutti_f.c1 ORDER BY s
        "#]],
    );
    check(
        "SELECT c.name, o.total FROM customers c LEFT JOIN orders o ON o.id = c.id AND o.total > 3",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("c"."id", "c"."name")::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") from AllNodes
              SELECT ROW("o"."id", NULL, "o"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") WHERE (o.total > 3) from AllNodes
                or, after 0: SELECT ROW("o"."id", NULL, "o"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") WHERE (o.total > 3) AND "o"."id" OPERATOR(pg_catalog.=) ANY (SELECT tutti_k."id" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_k)
              SELECT c.name, o.total FROM pg_catalog.unnest(<rows 0>::public.customers[]) c LEFT JOIN pg_catalog.unnest(<rows 1>::public.orders[]) o ON o.id = c.id AND o.total > 3
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_1 ON COMMIT DROP AS SELECT "id", "total" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0; ANALYZE pg_temp.tutti_rows_1
                SELECT c.name, o.total FROM pg_temp.tutti_rows_0 c LEFT JOIN pg_temp.tutti_rows_1 o ON o.id = c.id AND o.total > 3
              or bring to its node SELECT ROW("o"."id", NULL, "o"."total", NULL)::pg_catalog.text, COALESCE(pg_catalog.hashint4extended(("o"."id"), 0) OPERATOR(pg_catalog.&) 1023::pg_catalog.int8, 0::pg_catalog.int8) FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") WHERE (o.total > 3) from AllNodes
                SELECT c.name, o.total FROM customers c LEFT JOIN pg_catalog.unnest(<rows 0>::public.orders[]) o ON o.id = c.id AND o.total > 3
        "#]],
    );
    check(
        "SELECT id FROM customers c WHERE EXISTS (SELECT * FROM orders o WHERE o.id = c.id) ORDER BY id",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("c"."id", NULL)::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") from AllNodes
              SELECT ROW("o"."id", NULL, NULL, NULL)::pg_catalog.text FROM (SELECT * FROM "public"."orders") AS "o" ("id", "customer_id", "total", "placed") from AllNodes
                or, after 0: SELECT ROW("o"."id", NULL, NULL, NULL)::pg_catalog.text FROM (SELECT * FROM "public"."orders") AS "o" ("id", "customer_id", "total", "placed") WHERE "o"."id" OPERATOR(pg_catalog.=) ANY (SELECT tutti_k."id" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_k)
              SELECT id FROM pg_catalog.unnest(<rows 0>::public.customers[]) c WHERE EXISTS (SELECT * FROM pg_catalog.unnest(<rows 1>::public.orders[]) o WHERE o.id = c.id) ORDER BY id
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_1 ON COMMIT DROP AS SELECT "id" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0; ANALYZE pg_temp.tutti_rows_1
                SELECT id FROM pg_temp.tutti_rows_0 c WHERE EXISTS (SELECT * FROM pg_temp.tutti_rows_1 o WHERE o.id = c.id) ORDER BY id
              or bring to its node SELECT ROW("o"."id", NULL, NULL, NULL)::pg_catalog.text, COALESCE(pg_catalog.hashint4extended(("o"."id"), 0) OPERATOR(pg_catalog.&) 1023::pg_catalog.int8, 0::pg_catalog.int8) FROM (SELECT * FROM "public"."orders") AS "o" ("id", "customer_id", "total", "placed") from AllNodes
                parts SELECT tutti_f.c1::pg_catalog.text, pg_catalog.current_setting('array_nulls') FROM (SELECT id FROM customers c WHERE EXISTS (SELECT * FROM pg_catalog.unnest(<rows 0>::public.orders[]) o WHERE o.id = c.id)) AS tutti_f (c1)
                WITH tutti_z(c1) AS (SELECT id FROM customers c WHERE EXISTS (SELECT * FROM pg_catalog.unnest(<rows 0>::public.orders[]) o WHERE o.id = c.id) LIMIT 0) SELECT tutti_f.c1 AS id FROM ROWS FROM (pg_catalog.unnest(<rows 1>::int[]) ) tutti_f(c1) ORDER BY id
        "#]],
    );
}

/// Each group is on one node, which leaves out those that the conditions do, and says the first ones only.
#[test]
fn groups_that_are_whole_on_their_nodes() {
    check(
        "SELECT customer_id, sum(total) FROM orders GROUP BY customer_id HAVING sum(total) > 3 ORDER BY 2 DESC LIMIT 4",
        expect![[r#"
            gather on One(Any) Read
              parts SELECT tutti_f.c1::pg_catalog.text, tutti_f.c2::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c2)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT customer_id AS tutti_c1, sum(total) AS tutti_c2 FROM orders GROUP BY 1 HAVING (sum(total) > 3) ORDER BY sum(total) DESC LIMIT 4) AS tutti_f (c1, c2)
              WITH tutti_z(c1, c2) AS (SELECT * FROM (SELECT customer_id AS tutti_c1, sum(total) AS tutti_c2 FROM orders GROUP BY 1 HAVING sum(total) > 3 ORDER BY sum(total) DESC LIMIT 4) tutti_f LIMIT 0) SELECT tutti_f.c1 AS customer_id, pg_catalog.sum(tutti_f.c2) AS sum FROM ROWS FROM (pg_catalog.unnest(<rows 0>::int[]) , pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c2) FROM tutti_z), <rows 1>)) ) tutti_f(c1, c2) GROUP BY tutti_f.c1 HAVING pg_catalog.sum(tutti_f.c2) > 3 ORDER BY 2 DESC LIMIT 4
        "#]],
    );
    // Two nodes may have rows of one.
    check(
        "SELECT id, sum(total) FROM orders GROUP BY id HAVING sum(total) > 3 ORDER BY 2 DESC LIMIT 4",
        expect![[r#"
            gather on One(Any) Read
              parts SELECT tutti_f.c1::pg_catalog.text, tutti_f.c2::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c2)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT id, sum(total) FROM orders GROUP BY 1) AS tutti_f (c1, c2)
              WITH tutti_z(c1, c2) AS (SELECT id, sum(total) FROM orders GROUP BY 1 LIMIT 0) SELECT tutti_f.c1 AS id, pg_catalog.sum(tutti_f.c2) AS sum FROM ROWS FROM (pg_catalog.unnest(<rows 0>::int[]) , pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c2) FROM tutti_z), <rows 1>)) ) tutti_f(c1, c2) GROUP BY tutti_f.c1 HAVING pg_catalog.sum(tutti_f.c2) > 3 ORDER BY 2 DESC LIMIT 4
        "#]],
    );
    // What is put together may be another value, in its last digit.
    check(
        "SELECT customer_id, avg(total) FROM orders GROUP BY 1 ORDER BY avg(total) LIMIT 4",
        expect![[r#"
            gather on One(Home) Write
              SELECT ROW(NULL, "orders"."customer_id", "orders"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
              SELECT customer_id, avg(total) FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders GROUP BY 1 ORDER BY avg(total) LIMIT 4
        "#]],
    );
    // Of one group there are as many as it has values.
    check(
        "SELECT customer_id, count(DISTINCT total) FROM orders GROUP BY 1 ORDER BY 1 LIMIT 4",
        expect![[r#"
            gather on One(Any) Read
              parts SELECT tutti_f.c1::pg_catalog.text, CASE WHEN pg_catalog.pg_typeof(tutti_f.c2)::pg_catalog.oid OPERATOR(pg_catalog.=) ANY ('{16,19,20,21,23,25,1043,1700,2950}'::pg_catalog.oid[]) THEN tutti_f.c2::pg_catalog.text ELSE tutti.value_output(tutti_f.c2) END, pg_catalog.pg_typeof(tutti_f.c2)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT customer_id, total FROM orders GROUP BY 1, 2) AS tutti_f (c1, c2)
              WITH tutti_z(c1, c2) AS (SELECT customer_id, total FROM orders GROUP BY 1, 2 LIMIT 0) SELECT tutti_f.c1 AS customer_id, pg_catalog.count(DISTINCT tutti_f.c2) AS count FROM ROWS FROM (pg_catalog.unnest(<rows 0>::int[]) , pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c2) FROM tutti_z), <rows 1>)) ) tutti_f(c1, c2) GROUP BY tutti_f.c1 ORDER BY 1 LIMIT 4
        "#]],
    );
}

#[test]
fn refused() {
    check(
        "SELECT count(DISTINCT ctid) FROM orders",
        expect![[r#"
            0A000 system columns of "orders" cannot be read here
              Its rows are brought together from several nodes, where these columns have meanings of their own: they can be shown, and nothing can be computed by them.
              Leave ctid, xmin and their kin out, or pin the table's distribution key.
        "#]],
    );
    check(
        "SELECT place_order() FROM orders",
        expect![[r#"
            gather on One(Home) Write
              SELECT ROW(NULL, NULL, NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
              SELECT place_order() FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders
        "#]],
    );
    check(
        "SELECT * FROM orders TABLESAMPLE system_rows (10) ORDER BY 1",
        expect![[r#"
            0A000 this TABLESAMPLE of "orders" is not supported here
              Each node would have to take a sample of its own rows before they are brought together.
              Use BERNOULLI or SYSTEM with literals or parameters, and no row locks.
        "#]],
    );
    check(
        "SELECT * FROM orders JOIN items USING (id) FOR UPDATE",
        expect![[r#"
        0A000 FOR UPDATE cannot lock rows of replicated table "items" here
          A lock on one copy of a replicated row does not keep others from locking another copy.
          Name the distributed tables to lock (FOR UPDATE OF …), and lock replicated rows in a statement of its own.
    "#]],
    );
    check(
        "SELECT * FROM orders LIMIT 1 FOR UPDATE OF orders",
        expect![[r#"
            gather on One(Any) Read
              SELECT tutti.row_output(ROW("orders"."id", "orders"."customer_id", "orders"."total", "orders"."placed")) AS tutti_row FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") LIMIT 1 FOR UPDATE from AllNodes
                the first 1 after 0, in turn
              SELECT * FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders
        "#]],
    );
    check(
        "WITH d AS (DELETE FROM orders RETURNING *) SELECT * FROM d",
        expect![[r#"
            step DELETE FROM orders RETURNING tutti.row_output(ROW(orders.id, orders.customer_id, orders.total, orders.placed))
              Scatter { access: Write }
            step WITH d AS (SELECT * FROM tutti.returned_0 orders) SELECT * FROM d
              gather on One(Any) Read
                 from Returned(0)
                WITH d AS (SELECT * FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders) SELECT * FROM d
        "#]],
    );
}

#[test]
fn changes_in_with() {
    check(
        "WITH d AS (DELETE FROM orders WHERE customer_id = 5 RETURNING *) SELECT * FROM d",
        expect![[r#"
            one pinned bucket 380 Write
        "#]],
    );
    check(
        "WITH d AS (DELETE FROM scratch RETURNING *) SELECT * FROM d",
        expect![[r#"
        one home Write
    "#]],
    );
    check(
        "WITH d AS (DELETE FROM rates WHERE code = 'a' RETURNING *) SELECT * FROM d",
        expect![[r#"
            Replicas { locks: ["LOCK TABLE \"public\".\"rates\" IN SHARE ROW EXCLUSIVE MODE"], rows: rates compared }
        "#]],
    );
}

#[test]
fn first_rows_are_locked() {
    for sql in [
        "SELECT * FROM tickets ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
        "SELECT title AS t FROM tickets x WHERE title <> 'x' ORDER BY t DESC, 1 LIMIT $1 OFFSET $2 FOR SHARE OF x",
        "SELECT id FROM orders WHERE placed < now() LIMIT 3 FOR NO KEY UPDATE NOWAIT",
        "SELECT id FROM tickets ORDER BY id FETCH FIRST ROW ONLY FOR UPDATE NOWAIT",
        "SELECT id FROM tickets ORDER BY id LIMIT ALL OFFSET 1 FOR UPDATE",
        "SELECT count(*) FROM (SELECT id FROM tickets ORDER BY id LIMIT 2 FOR UPDATE) t",
        "WITH t AS (SELECT id FROM tickets FOR UPDATE) SELECT count(*) FROM t",
        "SELECT id FROM tickets ORDER BY id LIMIT -1 FOR UPDATE",
    ] {
        let plan = planned(sql, 3);
        assert!(plan.starts_with("gather on One(Any) Read"), "{sql}\n{plan}");
    }
    check(
        "SELECT title FROM tickets x WHERE title <> 'x' ORDER BY title DESC, 1 LIMIT $1 OFFSET $2 FOR SHARE OF x",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW(NULL, "x"."title")::pg_catalog.text AS tutti_row, ROW(NULL, tutti_was.tutti_1)::pg_catalog.text AS tutti_old FROM "public"."tickets" AS "x" ("id", "title"), LATERAL (SELECT NULL::pg_catalog.int4, "x"."title" OFFSET 0) AS tutti_was (tutti_0, tutti_1) WHERE (title <> 'x') ORDER BY title DESC, title LIMIT LEAST(GREATEST(COALESCE(($1)::pg_catalog.int8::pg_catalog.numeric OPERATOR(pg_catalog.+) ($2)::pg_catalog.int8::pg_catalog.numeric, 9223372036854775807), 0), 9223372036854775807)::pg_catalog.int8 FOR SHARE OF "x" from AllNodes
                the first $1 after $2, in turn
                ranks: SELECT pg_catalog.rank() OVER (ORDER BY title DESC, title) FROM pg_catalog.unnest(<rows 0>::"public"."tickets"[]) WITH ORDINALITY AS "x" ("id", "title", tutti_place) ORDER BY tutti_place
              SELECT title FROM pg_catalog.unnest(<rows 0>::public.tickets[]) x WHERE title <> 'x' ORDER BY title DESC, 1
        "#]],
    );
    check(
        "SELECT id FROM orders WHERE placed < now() LIMIT 3 FOR NO KEY UPDATE SKIP LOCKED",
        expect![[r#"
            gather on One(Any) Read
              SELECT tutti.row_output(ROW("orders"."id", NULL, NULL, "orders"."placed")) AS tutti_row FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") WHERE (placed < <pg_catalog.now()>::timestamp with time zone) LIMIT 3 FOR NO KEY UPDATE SKIP LOCKED from AllNodes
                the first 3 after 0
              SELECT id FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders WHERE placed < <pg_catalog.now()>::timestamp with time zone
        "#]],
    );
    check(
        "SELECT id FROM orders o WHERE total > 3 AND NOT EXISTS (SELECT 1 FROM lines l, items i WHERE l.customer_id = o.customer_id AND i.name = l.item) ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
        expect![[r#"
            gather on One(Any) Read
              SELECT ROW("o"."id", "o"."customer_id", "o"."total", NULL)::pg_catalog.text AS tutti_row, ROW(tutti_was.tutti_0, tutti_was.tutti_1, tutti_was.tutti_2, NULL)::pg_catalog.text AS tutti_old FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed"), LATERAL (SELECT "o"."id", "o"."customer_id", "o"."total", NULL::pg_catalog.int4 OFFSET 0) AS tutti_was (tutti_0, tutti_1, tutti_2, tutti_3) WHERE (total > 3 AND NOT EXISTS (SELECT 1 FROM lines l, items i WHERE l.customer_id = o.customer_id AND i.name = l.item)) ORDER BY id LIMIT 1 FOR UPDATE OF "o" SKIP LOCKED from AllNodes
                the first 1 after 0
                ranks: SELECT pg_catalog.rank() OVER (ORDER BY id) FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) WITH ORDINALITY AS "o" ("id", "customer_id", "total", "placed", tutti_place) ORDER BY tutti_place
              SELECT id FROM pg_catalog.unnest(<rows 0>::public.orders[]) o ORDER BY id
        "#]],
    );
    for sql in [
        // Whoever reads them may want fewer.
        "SELECT * FROM (SELECT id FROM tickets FOR UPDATE) t LIMIT 1",
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM tickets FOR UPDATE)",
        "SELECT id FROM tickets ORDER BY id FETCH FIRST ROW WITH TIES FOR UPDATE",
        "SELECT id FROM tickets ORDER BY id LIMIT (SELECT 1) FOR UPDATE",
        "SELECT id FROM tickets ORDER BY random() LIMIT 1 FOR UPDATE",
        "SELECT id FROM orders WHERE id IN (SELECT customer_id FROM lines) LIMIT 1 FOR UPDATE",
        "WITH items AS (SELECT 1) SELECT id FROM orders WHERE id IN (SELECT * FROM items) LIMIT 1 FOR UPDATE",
        "SELECT id FROM orders WHERE id IN (SELECT k FROM home) LIMIT 1 FOR UPDATE",
        // What is read beside would be of another moment.
        "SELECT * FROM (SELECT id FROM tickets LIMIT 1 FOR UPDATE) t, customers",
        "SELECT * FROM (SELECT id FROM tickets FOR UPDATE) t, tickets",
        "SELECT * FROM tickets t JOIN customers c ON t.title = c.name FOR UPDATE OF t",
    ] {
        let plan = planned(sql, 3);
        assert!(plan.starts_with("0A000 locking rows of several nodes"), "{sql}\n{plan}");
    }
}

#[test]
fn samples_and_system_columns() {
    for (sql, expected) in [
        (
            "SELECT total FROM orders TABLESAMPLE SYSTEM ($1) REPEATABLE (-3) ORDER BY 1",
            expect![[r#"
                gather on One(Any) Read
                  SELECT ROW(NULL, NULL, "orders"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") TABLESAMPLE pg_catalog.system ($1) REPEATABLE (-3) from AllNodes
                  SELECT total FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders ORDER BY 1
                  or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "total" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                    ANALYZE pg_temp.tutti_rows_0
                    SELECT total FROM pg_temp.tutti_rows_0 orders ORDER BY 1
            "#]],
        ),
        (
            "SELECT count(*) FROM orders AS o TABLESAMPLE BERNOULLI (10)",
            expect![[r#"
            gather on One(Any) Read
              parts SELECT tutti_f.c1::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT count(*) FROM orders o TABLESAMPLE bernoulli(10)) AS tutti_f (c1)
              WITH tutti_z(c1) AS (SELECT count(*) FROM orders o TABLESAMPLE bernoulli(10) LIMIT 0) SELECT COALESCE(pg_catalog.sum(tutti_f.c1), 0)::bigint AS count FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) ) tutti_f(c1)
        "#]],
        ),
        (
            "SELECT * FROM orders TABLESAMPLE BERNOULLI (10) JOIN events ON at = placed",
            expect![[r#"
                gather on One(Any) Read
                  SELECT tutti.row_output(ROW("orders"."id", "orders"."customer_id", "orders"."total", "orders"."placed")) FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") TABLESAMPLE pg_catalog.bernoulli (10) from AllNodes
                    or, after 1: SELECT tutti.row_output(ROW("orders"."id", "orders"."customer_id", "orders"."total", "orders"."placed")) FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") TABLESAMPLE pg_catalog.bernoulli (10) WHERE "orders"."placed" OPERATOR(pg_catalog.=) ANY (SELECT tutti_k."at" FROM pg_catalog.unnest(<rows 1>::"public"."events"[]) AS tutti_k)
                  SELECT tutti.row_output(ROW("events"."at", "events"."what")) FROM "public"."events" AS "events" ("at", "what") from AllNodes
                  SELECT * FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders JOIN pg_catalog.unnest(<rows 1>::public.events[]) events ON at = placed
                  or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "customer_id", "total", "placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                  or CREATE TEMPORARY TABLE pg_temp.tutti_rows_1 ON COMMIT DROP AS SELECT "at", "what" FROM pg_catalog.unnest(<rows 0>::"public"."events"[]) AS tutti_f
                    ANALYZE pg_temp.tutti_rows_0; ANALYZE pg_temp.tutti_rows_1
                    SELECT * FROM pg_temp.tutti_rows_0 orders JOIN pg_temp.tutti_rows_1 events ON at = placed
                  or bring SELECT tutti.row_output(ROW("events"."at", "events"."what")) FROM "public"."events" AS "events" ("at", "what") from AllNodes
                    SELECT * FROM orders TABLESAMPLE bernoulli(10) JOIN pg_catalog.unnest(<rows 0>::public.events[]) events ON at = placed
            "#]],
        ),
        (
            "SELECT name FROM customers JOIN items i TABLESAMPLE BERNOULLI (10) USING (id)",
            expect![[r#"
                gather on One(Any) Read
                  SELECT ROW("customers"."id", "customers"."name")::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
                  SELECT name FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers JOIN items i TABLESAMPLE bernoulli(10) USING (id)
            "#]],
        ),
        (
            "SELECT ctid, * FROM orders ORDER BY total",
            expect![[r#"
            gather on One(Any) Read
              SELECT ARRAY[tutti.row_output(ROW("orders"."id", "orders"."customer_id", "orders"."total", "orders"."placed")), "orders".ctid::pg_catalog.text]::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
              SELECT ctid, orders.id, orders.customer_id, orders.total, orders.placed FROM (SELECT tutti_r.*, tutti_f.tutti_v[2]::pg_catalog.tid AS ctid FROM pg_catalog.unnest(<rows 0>::pg_catalog.text[]) tutti_g(tutti_v) CROSS JOIN LATERAL (SELECT tutti_g.tutti_v::pg_catalog.text[] OFFSET 0) tutti_f(tutti_v) CROSS JOIN LATERAL pg_catalog.unnest(ARRAY[tutti_f.tutti_v[1]]::pg_catalog.text::public.orders[]) tutti_r) orders ORDER BY total
        "#]],
        ),
        (
            "SELECT tableoid, customers.tableoid::regclass FROM customers",
            expect![[r#"
                gather on One(Home) Read
                  SELECT ARRAY[ROW(NULL, NULL)::pg_catalog.text, (SELECT ARRAY[tutti_n.nspname::pg_catalog.text, tutti_c.relname::pg_catalog.text]::pg_catalog.text FROM pg_catalog.pg_class tutti_c JOIN pg_catalog.pg_namespace tutti_n ON tutti_n.oid OPERATOR(pg_catalog.=) tutti_c.relnamespace WHERE tutti_c.oid OPERATOR(pg_catalog.=) "customers".tableoid)]::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
                  SELECT tableoid, customers.tableoid::regclass FROM (SELECT tutti_r.*, (SELECT tutti_c.oid FROM pg_catalog.pg_class tutti_c JOIN pg_catalog.pg_namespace tutti_n ON tutti_n.oid OPERATOR(pg_catalog.=) tutti_c.relnamespace WHERE tutti_n.nspname OPERATOR(pg_catalog.=) (tutti_f.tutti_v[2]::pg_catalog.text[])[1] AND tutti_c.relname OPERATOR(pg_catalog.=) (tutti_f.tutti_v[2]::pg_catalog.text[])[2]) AS tableoid FROM pg_catalog.unnest(<rows 0>::pg_catalog.text[]) tutti_g(tutti_v) CROSS JOIN LATERAL (SELECT tutti_g.tutti_v::pg_catalog.text[] OFFSET 0) tutti_f(tutti_v) CROSS JOIN LATERAL pg_catalog.unnest(ARRAY[tutti_f.tutti_v[1]]::pg_catalog.text::public.customers[]) tutti_r) customers
            "#]],
        ),
        (
            "SELECT id FROM orders WHERE tableoid = 16384",
            expect![[r#"
                gather on One(Home) Read
                  SELECT ARRAY[ROW("orders"."id", NULL, NULL, NULL)::pg_catalog.text, (SELECT ARRAY[tutti_n.nspname::pg_catalog.text, tutti_c.relname::pg_catalog.text]::pg_catalog.text FROM pg_catalog.pg_class tutti_c JOIN pg_catalog.pg_namespace tutti_n ON tutti_n.oid OPERATOR(pg_catalog.=) tutti_c.relnamespace WHERE tutti_c.oid OPERATOR(pg_catalog.=) "orders".tableoid)]::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
                  SELECT id FROM (SELECT tutti_r.*, (SELECT tutti_c.oid FROM pg_catalog.pg_class tutti_c JOIN pg_catalog.pg_namespace tutti_n ON tutti_n.oid OPERATOR(pg_catalog.=) tutti_c.relnamespace WHERE tutti_n.nspname OPERATOR(pg_catalog.=) (tutti_f.tutti_v[2]::pg_catalog.text[])[1] AND tutti_c.relname OPERATOR(pg_catalog.=) (tutti_f.tutti_v[2]::pg_catalog.text[])[2]) AS tableoid FROM pg_catalog.unnest(<rows 0>::pg_catalog.text[]) tutti_g(tutti_v) CROSS JOIN LATERAL (SELECT tutti_g.tutti_v::pg_catalog.text[] OFFSET 0) tutti_f(tutti_v) CROSS JOIN LATERAL pg_catalog.unnest(ARRAY[tutti_f.tutti_v[1]]::pg_catalog.text::public.orders[]) tutti_r) orders WHERE tableoid = 16384
            "#]],
        ),
        (
            "SELECT id FROM orders WHERE tableoid = 'orders'::regclass",
            expect![[r#"
            Scatter { access: Read }
        "#]],
        ),
        (
            "SELECT id FROM orders WHERE ctid = '(0,1)' AND customer_id = 5",
            expect![[r#"
            one pinned bucket 380 Read
        "#]],
        ),
    ] {
        check(sql, expected);
    }
}
