//! Plans of UPDATE, DELETE and MERGE against the shop, as texts.

use expect_test::{Expect, expect};

use crate::planner::fixture::planned;

#[track_caller]
fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&planned(sql, 3));
}

#[test]
fn by_key() {
    check(
        "UPDATE orders SET total = 0 WHERE customer_id = 5",
        expect![[r#"
        one pinned bucket 380 Write
    "#]],
    );
    check(
        "UPDATE orders SET total = total + $2 WHERE customer_id = $1 RETURNING *",
        expect![[r#"
            one pinned $1 Write
            otherwise
              Scatter { access: Write }
        "#]],
    );
    check(
        "DELETE FROM orders WHERE customer_id = 5 AND id = 3",
        expect![[r#"
        one pinned bucket 380 Write
    "#]],
    );
    check(
        "DELETE FROM orders WHERE customer_id IN ($1, $2)",
        expect![[r#"
        one pinned $1 $2 Write
        otherwise
          Scatter { access: Write }
    "#]],
    );
    check(
        "UPDATE orders SET placed = now() WHERE customer_id = 5",
        expect![[r#"
        one pinned bucket 380 Write
    "#]],
    );
    check(
        "UPDATE orders SET customer_id = 5, total = 1 WHERE customer_id = 5",
        expect![[r#"
        one pinned bucket 380 Write
    "#]],
    );
}

#[test]
fn on_every_node() {
    check(
        "UPDATE orders SET total = 0",
        expect![[r#"
        Scatter { access: Write }
    "#]],
    );
    check(
        "DELETE FROM orders WHERE id = 3",
        expect![[r#"
        Scatter { access: Write }
    "#]],
    );
    check(
        "UPDATE events SET what = 'a'",
        expect![[r#"
        Scatter { access: Write }
    "#]],
    );
    check(
        "UPDATE orders SET total = 0 FROM customers c WHERE c.id = orders.customer_id AND c.name = 'x'",
        expect![[r#"
            Scatter { access: Write }
        "#]],
    );
    check(
        "UPDATE orders o SET total = i.id FROM items i WHERE i.id = o.id",
        expect![[r#"
        Scatter { access: Write }
    "#]],
    );
    check(
        "UPDATE orders SET placed = now() WHERE placed < CURRENT_DATE",
        expect![[r#"
            gather on EachNode Write
              UPDATE orders SET placed = <pg_catalog.now()>::timestamp with time zone WHERE placed < <current_date>::pg_catalog.date
        "#]],
    );
    check(
        "DELETE FROM orders USING customers c WHERE c.name = 'x' AND orders.id = c.id",
        expect![[r#"
            gather on EachNode Write
              SELECT ROW("c"."id", "c"."name")::pg_catalog.text FROM "public"."customers" AS "c" ("id", "name") WHERE (c.name = 'x') from AllNodes
              DELETE FROM orders USING pg_catalog.unnest(<rows 0>::public.customers[]) c WHERE c.name = 'x' AND orders.id = c.id
        "#]],
    );
    check(
        "DELETE FROM orders WHERE total = (SELECT max(total) FROM orders)",
        expect![[r#"
            gather on EachNode Write
              SELECT ROW(NULL, NULL, "orders"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
              DELETE FROM orders WHERE total = (SELECT max(total) FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders)
        "#]],
    );
}

#[test]
fn replicated() {
    check(
        "UPDATE rates SET rate = 2",
        expect![[r#"
            Replicas { locks: ["LOCK TABLE \"public\".\"rates\" IN SHARE ROW EXCLUSIVE MODE"], rows: rates compared }
        "#]],
    );
    check(
        "UPDATE rates SET rate = 2 WHERE code = 'a'",
        expect![[r#"
            Replicas { locks: ["LOCK TABLE \"public\".\"rates\" IN SHARE ROW EXCLUSIVE MODE"], rows: rates compared }
        "#]],
    );
    check(
        "UPDATE items SET name = 'x' WHERE id = 3",
        expect![[r#"
            Replicas { locks: [], rows: items returned by update }
        "#]],
    );
    check(
        "UPDATE items SET name = 'x' WHERE id = $1 AND added < '2026-01-01'",
        expect![[r#"
            Replicas { locks: [], rows: items returned by update }
        "#]],
    );
    check(
        "UPDATE items SET name = 'x' WHERE id > 3",
        expect![[r#"
            Replicas { locks: ["LOCK TABLE \"public\".\"items\" IN SHARE ROW EXCLUSIVE MODE"], rows: items returned by update }
        "#]],
    );
    check(
        "UPDATE items SET added = now() WHERE id = 3",
        expect![[r#"
            Rows(items returned by update)
        "#]],
    );
    check(
        "DELETE FROM items USING rates WHERE rates.code = items.name",
        expect![[r#"
            Replicas { locks: ["LOCK TABLE \"public\".\"items\" IN SHARE ROW EXCLUSIVE MODE", "LOCK TABLE \"public\".\"rates\" IN SHARE MODE"], rows: items returned by delete }
        "#]],
    );
    check(
        "UPDATE rates SET rate = (SELECT count(*) FROM orders)",
        expect![[r#"
            gather on Replicas { locks: ["LOCK TABLE \"public\".\"rates\" IN SHARE ROW EXCLUSIVE MODE"], rows: rates compared } Write
              SELECT ROW(NULL, NULL, NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
              UPDATE rates SET rate = (SELECT count(*) FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders)
        "#]],
    );
    check(
        "UPDATE rates SET rate = random()",
        expect![[r#"
            Rows(rates compared)
        "#]],
    );
    check(
        "UPDATE rates SET rate = (SELECT id FROM items LIMIT 1)",
        expect![[r#"
            Rows(rates compared)
        "#]],
    );
    check(
        "UPDATE rates SET rate = (SELECT max(a) FROM home)",
        expect![[r#"
            Rows(rates compared)
        "#]],
    );
}

#[test]
fn defaults() {
    check(
        "UPDATE items SET added = DEFAULT WHERE id = 3",
        expect![[r#"
            Rows(items returned by update)
        "#]],
    );
    check(
        "UPDATE rates SET rate = DEFAULT",
        expect![[r#"
            Replicas { locks: ["LOCK TABLE \"public\".\"rates\" IN SHARE ROW EXCLUSIVE MODE"], rows: rates compared }
        "#]],
    );
    check(
        "UPDATE orders SET placed = DEFAULT",
        expect![[r#"
            gather on EachNode Write
              UPDATE orders SET placed = <pg_catalog.now()>::timestamp with time zone
        "#]],
    );
    check(
        "UPDATE orders SET placed = DEFAULT WHERE customer_id = 5",
        expect![[r#"
        one pinned bucket 380 Write
    "#]],
    );
    check(
        "UPDATE orders SET id = DEFAULT WHERE customer_id = 5",
        expect![[r#"
        0A000 nextval() in a write to several nodes is not supported
          It must be called on node 1.
          Pin the distribution key, or compute the value first.
    "#]],
    );
    check(
        "MERGE INTO items USING rates ON code = name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (1, code)",
        expect![[r#"
            Rows(items compared)
        "#]],
    );
    check(
        "MERGE INTO items USING rates ON code = name WHEN MATCHED THEN UPDATE SET added = DEFAULT",
        expect![[r#"
            Rows(items compared)
        "#]],
    );
    check(
        "MERGE INTO items USING rates ON code = name WHEN NOT MATCHED THEN INSERT VALUES (1, code, '2026-01-01')",
        expect![[r#"
            Replicas { locks: ["LOCK TABLE \"public\".\"items\" IN SHARE ROW EXCLUSIVE MODE", "LOCK TABLE \"public\".\"rates\" IN SHARE MODE"], rows: items compared }
        "#]],
    );
}

#[test]
fn moving_keys() {
    check(
        "UPDATE orders SET customer_id = 6 WHERE customer_id = 5",
        expect![[r#"
            move rows of orders
              SELECT orders.ctid, orders.tableoid::bigint, tutti.row_output(ROW(orders.id::int, 6::int, orders.total::numeric, orders.placed::timestamp with time zone)) FROM public.orders WHERE customer_id = 5 FOR NO KEY UPDATE OF orders
              UPDATE "public"."orders" AS "orders" SET "customer_id" = tutti_rows.tutti_1 FROM ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[]), pg_catalog.unnest(<rows 2>::"public"."orders"[])) AS tutti_rows (tutti_place, tutti_table, tutti_0, tutti_1, tutti_2, tutti_3) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              DELETE FROM "public"."orders" AS "orders" USING ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[])) AS tutti_rows (tutti_place, tutti_table) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              INSERT INTO "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") OVERRIDING SYSTEM VALUE SELECT u."id", u."customer_id", u."total", u."placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS u
        "#]],
    );
    check(
        "UPDATE orders AS o SET customer_id = o.id, total = DEFAULT WHERE o.total > 3",
        expect![[r#"
            move rows of orders
              SELECT o.ctid, o.tableoid::bigint, tutti.row_output(ROW(o.id::int, o.id::int, 0::numeric, o.placed::timestamp with time zone)) FROM public.orders o WHERE o.total > 3 FOR NO KEY UPDATE OF o
              UPDATE "public"."orders" AS "o" SET "customer_id" = tutti_rows.tutti_1, "total" = tutti_rows.tutti_2 FROM ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[]), pg_catalog.unnest(<rows 2>::"public"."orders"[])) AS tutti_rows (tutti_place, tutti_table, tutti_0, tutti_1, tutti_2, tutti_3) WHERE "o".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "o".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              DELETE FROM "public"."orders" AS "o" USING ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[])) AS tutti_rows (tutti_place, tutti_table) WHERE "o".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "o".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              INSERT INTO "public"."orders" AS "o" ("id", "customer_id", "total", "placed") OVERRIDING SYSTEM VALUE SELECT u."id", u."customer_id", u."total", u."placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS u
        "#]],
    );
    check(
        "UPDATE orders SET customer_id = 6, placed = now() WHERE customer_id = 5",
        expect![[r#"
            move rows of orders
              SELECT orders.ctid, orders.tableoid::bigint, tutti.row_output(ROW(orders.id::int, 6::int, orders.total::numeric, now()::timestamp with time zone)) FROM public.orders WHERE customer_id = 5 FOR NO KEY UPDATE OF orders
              UPDATE "public"."orders" AS "orders" SET "customer_id" = tutti_rows.tutti_1, "placed" = tutti_rows.tutti_3 FROM ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[]), pg_catalog.unnest(<rows 2>::"public"."orders"[])) AS tutti_rows (tutti_place, tutti_table, tutti_0, tutti_1, tutti_2, tutti_3) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              DELETE FROM "public"."orders" AS "orders" USING ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[])) AS tutti_rows (tutti_place, tutti_table) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              INSERT INTO "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") OVERRIDING SYSTEM VALUE SELECT u."id", u."customer_id", u."total", u."placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS u
        "#]],
    );
    check(
        "UPDATE orders SET customer_id = 6, placed = now()",
        expect![[r#"
        0A000 changing the distribution key of "orders" is not supported here
          The rows are on several nodes, and each would take its own time.
          Delete the rows and insert them with their new key, in one transaction.
    "#]],
    );
    check(
        "UPDATE orders SET customer_id = 6 RETURNING id",
        expect![[r#"
            move rows of orders
              SELECT orders.ctid, orders.tableoid::bigint, tutti.row_output(ROW(orders.id::int, 6::int, orders.total::numeric, orders.placed::timestamp with time zone)) FROM public.orders FOR NO KEY UPDATE OF orders
              UPDATE "public"."orders" AS "orders" SET "customer_id" = tutti_rows.tutti_1 FROM ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[]), pg_catalog.unnest(<rows 2>::"public"."orders"[])) AS tutti_rows (tutti_place, tutti_table, tutti_0, tutti_1, tutti_2, tutti_3) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table RETURNING orders.id
              DELETE FROM "public"."orders" AS "orders" USING ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[])) AS tutti_rows (tutti_place, tutti_table) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              INSERT INTO "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") OVERRIDING SYSTEM VALUE SELECT u."id", u."customer_id", u."total", u."placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS u RETURNING orders.id
        "#]],
    );
    check(
        "UPDATE orders SET customer_id = c.id FROM customers c",
        expect![[r#"
            0A000 changing the distribution key of "orders" is not supported here
              Each node computes the new values of its own rows, but customers is not joined to orders on both distribution keys.
              Delete the rows and insert them with their new key, in one transaction.
        "#]],
    );
    check(
        "UPDATE orders o SET customer_id = 6 WHERE o.customer_id = 5 RETURNING *, o.id + total AS sum, o, orders.id",
        expect![[r#"
            move rows of orders
              SELECT o.ctid, o.tableoid::bigint, tutti.row_output(ROW(o.id::int, 6::int, o.total::numeric, o.placed::timestamp with time zone)) FROM public.orders o WHERE o.customer_id = 5 FOR NO KEY UPDATE OF o
              UPDATE "public"."orders" AS "o" SET "customer_id" = tutti_rows.tutti_1 FROM ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[]), pg_catalog.unnest(<rows 2>::"public"."orders"[])) AS tutti_rows (tutti_place, tutti_table, tutti_0, tutti_1, tutti_2, tutti_3) WHERE "o".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "o".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table RETURNING o.*, o.id + o.total AS sum, o, orders.id
              DELETE FROM "public"."orders" AS "o" USING ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[])) AS tutti_rows (tutti_place, tutti_table) WHERE "o".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "o".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              INSERT INTO "public"."orders" AS "o" ("id", "customer_id", "total", "placed") OVERRIDING SYSTEM VALUE SELECT u."id", u."customer_id", u."total", u."placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS u RETURNING o.*, o.id + o.total AS sum, o, orders.id
        "#]],
    );
    check(
        "UPDATE orders SET customer_id = c.id + 1 FROM customers c WHERE c.id = customer_id RETURNING orders.*, total",
        expect![[r#"
            move rows of orders
              SELECT orders.ctid, orders.tableoid::bigint, tutti.row_output(ROW(orders.id::int, (c.id + 1)::int, orders.total::numeric, orders.placed::timestamp with time zone)) FROM public.orders, customers c WHERE c.id = customer_id FOR NO KEY UPDATE OF orders
              UPDATE "public"."orders" AS "orders" SET "customer_id" = tutti_rows.tutti_1 FROM ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[]), pg_catalog.unnest(<rows 2>::"public"."orders"[])) AS tutti_rows (tutti_place, tutti_table, tutti_0, tutti_1, tutti_2, tutti_3) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table RETURNING orders.*, orders.total
              DELETE FROM "public"."orders" AS "orders" USING ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[])) AS tutti_rows (tutti_place, tutti_table) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              INSERT INTO "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") OVERRIDING SYSTEM VALUE SELECT u."id", u."customer_id", u."total", u."placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS u RETURNING orders.*, orders.total
        "#]],
    );
    check(
        "UPDATE orders SET customer_id = i.id FROM items i WHERE orders.id = i.id RETURNING public.orders.id",
        expect![[r#"
            move rows of orders
              SELECT orders.ctid, orders.tableoid::bigint, tutti.row_output(ROW(orders.id::int, i.id::int, orders.total::numeric, orders.placed::timestamp with time zone)) FROM public.orders, items i WHERE orders.id = i.id FOR NO KEY UPDATE OF orders
              UPDATE "public"."orders" AS "orders" SET "customer_id" = tutti_rows.tutti_1 FROM ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[]), pg_catalog.unnest(<rows 2>::"public"."orders"[])) AS tutti_rows (tutti_place, tutti_table, tutti_0, tutti_1, tutti_2, tutti_3) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table RETURNING orders.id
              DELETE FROM "public"."orders" AS "orders" USING ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[])) AS tutti_rows (tutti_place, tutti_table) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              INSERT INTO "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") OVERRIDING SYSTEM VALUE SELECT u."id", u."customer_id", u."total", u."placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS u RETURNING orders.id
        "#]],
    );
    check(
        "WITH w AS (SELECT max(id) AS id FROM items) UPDATE orders SET (customer_id, total) = (w.id, 3) FROM w",
        expect![[r#"
            move rows of orders
              WITH w AS (SELECT max(id) AS id FROM items) SELECT orders.ctid, orders.tableoid::bigint, tutti.row_output(ROW(orders.id::int, w.id::int, 3::numeric, orders.placed::timestamp with time zone)) FROM public.orders, w FOR NO KEY UPDATE OF orders
              UPDATE "public"."orders" AS "orders" SET "customer_id" = tutti_rows.tutti_1, "total" = tutti_rows.tutti_2 FROM ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[]), pg_catalog.unnest(<rows 2>::"public"."orders"[])) AS tutti_rows (tutti_place, tutti_table, tutti_0, tutti_1, tutti_2, tutti_3) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              DELETE FROM "public"."orders" AS "orders" USING ROWS FROM (pg_catalog.unnest(<rows 0>::pg_catalog.tid[]), pg_catalog.unnest(<rows 1>::pg_catalog.int8[])) AS tutti_rows (tutti_place, tutti_table) WHERE "orders".ctid OPERATOR(pg_catalog.=) tutti_rows.tutti_place AND "orders".tableoid::pg_catalog.int8 OPERATOR(pg_catalog.=) tutti_rows.tutti_table
              INSERT INTO "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") OVERRIDING SYSTEM VALUE SELECT u."id", u."customer_id", u."total", u."placed" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS u
        "#]],
    );
    // Not of the new row.
    check(
        "UPDATE orders SET customer_id = i.id FROM items i WHERE orders.id = i.id RETURNING i.name",
        expect![[r#"
            0A000 changing the distribution key of "orders" is not supported here
              RETURNING is computed of the new row alone, where it is then: not of FROM, of subqueries, nor of where the row is stored.
              Delete the rows and insert them with their new key, in one transaction.
        "#]],
    );
    check(
        "UPDATE orders SET customer_id = i.id FROM items i WHERE orders.id = i.id RETURNING *",
        expect![[r#"
            0A000 changing the distribution key of "orders" is not supported here
              RETURNING is computed of the new row alone, where it is then: not of FROM, of subqueries, nor of where the row is stored.
              Delete the rows and insert them with their new key, in one transaction.
        "#]],
    );
    check(
        "UPDATE orders SET customer_id = 6 RETURNING (SELECT max(id) FROM items)",
        expect![[r#"
            0A000 changing the distribution key of "orders" is not supported here
              RETURNING is computed of the new row alone, where it is then: not of FROM, of subqueries, nor of where the row is stored.
              Delete the rows and insert them with their new key, in one transaction.
        "#]],
    );
    check(
        "UPDATE orders SET customer_id = 6 RETURNING ctid",
        expect![[r#"
            0A000 changing the distribution key of "orders" is not supported here
              RETURNING is computed of the new row alone, where it is then: not of FROM, of subqueries, nor of where the row is stored.
              Delete the rows and insert them with their new key, in one transaction.
        "#]],
    );
    check(
        "UPDATE orders SET customer_id = 6, placed = 'now'",
        expect![[r#"
            0A000 changing the distribution key of "orders" is not supported here
              The rows are on several nodes, and each would take its own time.
              Delete the rows and insert them with their new key, in one transaction.
        "#]],
    );
    check(
        "UPDATE orders SET (customer_id, total) = (SELECT 1, 2)",
        expect![[r#"
        0A000 changing the distribution key of "orders" is not supported here
          Several columns are assigned from one row.
          Delete the rows and insert them with their new key, in one transaction.
    "#]],
    );
}

#[test]
fn elsewhere() {
    check(
        "UPDATE scratch SET a = 1",
        expect![[r#"
        one home Write
    "#]],
    );
    check(
        "DELETE FROM home WHERE a IN (SELECT id FROM customers)",
        expect![[r#"
            gather on One(Home) Write
              SELECT ROW("customers"."id", NULL)::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
              DELETE FROM home WHERE a IN (SELECT id FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers)
        "#]],
    );
    check(
        "UPDATE rate_codes SET code = 'x'",
        expect![[r#"
            Replicas { locks: ["LOCK TABLE \"public\".\"rate_codes\" IN SHARE ROW EXCLUSIVE MODE"], rows: rates compared }
        "#]],
    );
    check(
        "DELETE FROM big_orders",
        expect![[r#"
            Scatter { access: Write }
        "#]],
    );
    check(
        "UPDATE audited SET id = 1",
        expect![[r#"
            0A000 writing to "public"."audited" would fire "audit"
              It runs inside the node that has the row, which sees its own rows only: function audit() writes (INSERT).
              Send its statements from the client; or, if all that it touches belongs to the row's key, say so: SELECT tutti_function('audit', 'row').
        "#]],
    );
    check(
        "UPDATE orders SET total = 1 WHERE CURRENT OF c",
        expect![[r#"
        Cursor { name: Some("c"), close: false }
    "#]],
    );
    check(
        "MERGE INTO orders USING customers c ON c.id = customer_id WHEN MATCHED THEN DELETE",
        expect![[r#"
            Scatter { access: Write }
        "#]],
    );
    check(
        "MERGE INTO rates r USING (VALUES ('a')) v (code) ON v.code = r.code WHEN NOT MATCHED THEN INSERT VALUES ('a', 1)",
        expect![[r#"
            Replicas { locks: ["LOCK TABLE \"public\".\"rates\" IN SHARE ROW EXCLUSIVE MODE"], rows: rates compared }
        "#]],
    );
    check(
        "UPDATE orders SET total = nextval('s')",
        expect![[r#"
        0A000 nextval() in a write to several nodes is not supported
          It must be called on node 1.
          Pin the distribution key, or compute the value first.
    "#]],
    );
    check(
        "UPDATE orders SET total = (SELECT max(a) FROM scratch)",
        expect![[r#"
        0A000 "scratch" cannot be used in a write to several nodes
          It is on node 1 only, and the other nodes do not see it.
          Insert its rows into a replicated table first, or write the rows one by one.
    "#]],
    );
}

/// Other nodes have no such table, and no type of its rows.
#[test]
fn what_only_node_1_has_is_brought_to_the_rows() {
    check(
        "UPDATE orders SET total = h.a FROM home h WHERE h.a = orders.id",
        expect![[r#"
            gather on EachNode Write
              SELECT pg_catalog.json_build_array(("h"."a")::pg_catalog.text)::pg_catalog.text FROM "public"."home" AS "h" ("a") from One(Home)
              UPDATE orders SET total = h.a FROM (SELECT (tutti_row OPERATOR(pg_catalog.->>) 0)::int AS a FROM pg_catalog.unnest(<rows 0>::pg_catalog.json[]) tutti_row) h WHERE h.a = orders.id
        "#]],
    );
    check(
        "DELETE FROM tickets t USING home h, orders o WHERE o.id = h.a AND t.id = o.id",
        expect![[r#"
            gather on EachNode Write
              SELECT ROW("o"."id", NULL, NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") from AllNodes
              SELECT pg_catalog.json_build_array(("h"."a")::pg_catalog.text)::pg_catalog.text FROM "public"."home" AS "h" ("a") from One(Home)
                or, after 0: SELECT pg_catalog.json_build_array(("h"."a")::pg_catalog.text)::pg_catalog.text FROM "public"."home" AS "h" ("a") WHERE "h"."a" OPERATOR(pg_catalog.=) ANY (SELECT tutti_k."id" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_k)
              DELETE FROM tickets t USING (SELECT (tutti_row OPERATOR(pg_catalog.->>) 0)::int AS a FROM pg_catalog.unnest(<rows 1>::pg_catalog.json[]) tutti_row) h, pg_catalog.unnest(<rows 0>::public.orders[]) o WHERE o.id = h.a AND t.id = o.id
        "#]],
    );
    check(
        "UPDATE orders SET total = 1 FROM home h WHERE h.ctid IS NOT NULL",
        expect![[r#"
        0A000 "h" cannot be used in a write to several nodes
          It is on node 1 only, and the other nodes do not see it.
          Insert its rows into a replicated table first, or write the rows one by one.
    "#]],
    );
    check(
        "UPDATE orders SET total = 1 WHERE (NULL::home) IS NULL",
        expect![[r#"
        0A000 this statement cannot run on one node
          It has values of the type of rows of "public"."home", which node 1 alone has, and a node sees only its own rows.
          Drop it, or send the statements that it stands for from the client.
    "#]],
    );
}

#[test]
fn rows_that_a_subquery_locks() {
    check(
        "UPDATE tickets SET title = 'taken' WHERE id = (SELECT id FROM tickets WHERE title = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING *",
        expect![[r#"
            gather on EachNode Write
              SELECT ROW("tickets"."id", "tickets"."title")::pg_catalog.text AS tutti_row, ROW(tutti_was.tutti_0, tutti_was.tutti_1)::pg_catalog.text AS tutti_old FROM "public"."tickets" AS "tickets" ("id", "title"), LATERAL (SELECT "tickets"."id", "tickets"."title" OFFSET 0) AS tutti_was (tutti_0, tutti_1) WHERE (title = 'new') ORDER BY id LIMIT 1 FOR UPDATE OF "tickets" SKIP LOCKED from AllNodes
                the first 1 after 0
                ranks: SELECT pg_catalog.rank() OVER (ORDER BY id) FROM pg_catalog.unnest(<rows 0>::"public"."tickets"[]) WITH ORDINALITY AS "tickets" ("id", "title", tutti_place) ORDER BY tutti_place
              UPDATE tickets SET title = 'taken' WHERE id = (SELECT id FROM pg_catalog.unnest(<rows 0>::public.tickets[]) tickets WHERE title = 'new' ORDER BY id) RETURNING *
        "#]],
    );
    check(
        "DELETE FROM tickets t USING (SELECT id FROM tickets LIMIT 3 FOR UPDATE SKIP LOCKED) u WHERE t.id = u.id",
        expect![[r#"
            gather on EachNode Write
              SELECT ROW("tickets"."id", NULL)::pg_catalog.text AS tutti_row FROM "public"."tickets" AS "tickets" ("id", "title") LIMIT 3 FOR UPDATE SKIP LOCKED from AllNodes
                the first 3 after 0
              DELETE FROM tickets t USING (SELECT id FROM pg_catalog.unnest(<rows 0>::public.tickets[]) tickets) u WHERE t.id = u.id
        "#]],
    );
}

/// Of a source that is spread with the target nothing moves.
#[test]
fn merge_of_what_is_beside_the_target() {
    check(
        "MERGE INTO lines l USING customers c ON l.customer_id = c.id \
         WHEN MATCHED THEN UPDATE SET item = c.name \
         WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (c.id, c.name)",
        expect![[r#"
            Scatter { access: Write }
        "#]],
    );
    check(
        "MERGE INTO lines l USING (SELECT customer_id AS k, count(*) AS n FROM orders GROUP BY 1) s \
         ON l.customer_id = s.k WHEN NOT MATCHED THEN INSERT (customer_id, number) VALUES (s.k, s.n)",
        expect![[r#"
            Scatter { access: Write }
        "#]],
    );
    check(
        "MERGE INTO orders o USING customers c ON o.customer_id = c.id \
         WHEN MATCHED THEN UPDATE SET placed = 'now' \
         WHEN NOT MATCHED THEN INSERT (id, customer_id) VALUES (1, c.id)",
        expect![[r#"
            gather on EachNode Write
              MERGE INTO orders o USING customers c ON o.customer_id = c.id WHEN MATCHED THEN UPDATE SET placed = <CAST('now' AS pg_catalog.timestamptz)>::timestamp with time zone WHEN NOT MATCHED THEN INSERT (id, customer_id, placed) VALUES (1, c.id, <pg_catalog.now()>::timestamp with time zone)
        "#]],
    );
    check(
        "MERGE INTO lines l USING items i ON l.item = i.name WHEN MATCHED THEN DELETE",
        expect![[r#"
            Scatter { access: Write }
        "#]],
    );
}

/// Each row of the source acts on the node of its key alone.
#[test]
fn merge_by_the_key_of_the_source() {
    check(
        "MERGE INTO lines l USING items i ON l.customer_id = i.id \
         WHEN MATCHED THEN UPDATE SET item = i.name \
         WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (i.id, i.name)",
        expect![[r#"
            gather on EachNode Write
              MERGE INTO lines l USING items i ON l.customer_id = i.id WHEN NOT MATCHED AND COALESCE(pg_catalog.hashint8extended(pg_catalog.numeric_uplus(i.id)::bigint, 0) OPERATOR(pg_catalog.&) 1023::bigint, 0::bigint) OPERATOR(pg_catalog.<>) ALL(<buckets>::bigint[]) THEN DO NOTHING WHEN MATCHED THEN UPDATE SET item = i.name WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (i.id, i.name)
        "#]],
    );
    check(
        "MERGE INTO lines l USING unnest($1::int[], $2::text[]) v (k, x) ON l.customer_id = v.k \
         WHEN MATCHED THEN UPDATE SET item = v.x \
         WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (k, v.x)",
        expect![[r#"
            gather on EachNode Write
              MERGE INTO lines l USING unnest($1::int[], $2::text[]) v(k, x) ON l.customer_id = v.k WHEN NOT MATCHED AND COALESCE(pg_catalog.hashint8extended(pg_catalog.numeric_uplus(v.k)::bigint, 0) OPERATOR(pg_catalog.&) 1023::bigint, 0::bigint) OPERATOR(pg_catalog.<>) ALL(<buckets>::bigint[]) THEN DO NOTHING WHEN MATCHED THEN UPDATE SET item = v.x WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (k, v.x)
        "#]],
    );
    check(
        "MERGE INTO lines l USING (VALUES (1, 'a'), (2, 'b')) v (k, x) ON l.customer_id = v.k \
         WHEN MATCHED THEN UPDATE SET item = v.x \
         WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (v.k, v.x)",
        expect![[r#"
            gather on EachNode Write
              MERGE INTO lines l USING (VALUES (1, 'a'), (2, 'b')) v(k, x) ON l.customer_id = v.k WHEN NOT MATCHED AND COALESCE(pg_catalog.hashint8extended(pg_catalog.numeric_uplus(v.k)::bigint, 0) OPERATOR(pg_catalog.&) 1023::bigint, 0::bigint) OPERATOR(pg_catalog.<>) ALL(<buckets>::bigint[]) THEN DO NOTHING WHEN MATCHED THEN UPDATE SET item = v.x WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (v.k, v.x)
        "#]],
    );
    check(
        "MERGE INTO lines l USING (SELECT * FROM items ORDER BY name LIMIT 3) i ON l.customer_id = i.id \
         WHEN MATCHED THEN UPDATE SET item = i.name \
         WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (i.id, i.name)",
        expect![[r#"
            gather on EachNode Write
              SELECT tutti.row_output(ROW("items"."id", "items"."name", "items"."added")) FROM "public"."items" AS "items" ("id", "name", "added") from One(Home)
              MERGE INTO lines l USING (SELECT * FROM pg_catalog.unnest(<rows 0>::public.items[]) items ORDER BY name LIMIT 3) i ON l.customer_id = i.id WHEN NOT MATCHED AND COALESCE(pg_catalog.hashint8extended(pg_catalog.numeric_uplus(i.id)::bigint, 0) OPERATOR(pg_catalog.&) 1023::bigint, 0::bigint) OPERATOR(pg_catalog.<>) ALL(<buckets>::bigint[]) THEN DO NOTHING WHEN MATCHED THEN UPDATE SET item = i.name WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (i.id, i.name)
        "#]],
    );
    check(
        "MERGE INTO lines l USING orders o ON l.customer_id = o.id \
         WHEN MATCHED THEN UPDATE SET item = o.total \
         WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (o.id, o.total)",
        expect![[r#"
            gather on EachNode Write
              SELECT ROW("o"."id", NULL, "o"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") from AllNodes
              MERGE INTO lines l USING pg_catalog.unnest(<rows 0>::public.orders[]) o ON l.customer_id = o.id WHEN NOT MATCHED AND COALESCE(pg_catalog.hashint8extended(pg_catalog.numeric_uplus(o.id)::bigint, 0) OPERATOR(pg_catalog.&) 1023::bigint, 0::bigint) OPERATOR(pg_catalog.<>) ALL(<buckets>::bigint[]) THEN DO NOTHING WHEN MATCHED THEN UPDATE SET item = o.total WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (o.id, o.total)
        "#]],
    );
    check(
        "MERGE INTO lines l USING (SELECT o.customer_id AS k, r.code FROM rates r LEFT JOIN orders o ON o.id = 1) s \
         ON l.customer_id = s.k WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (s.k)",
        expect![[r#"
            gather on EachNode Write
              SELECT ROW("o"."id", "o"."customer_id", NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") WHERE (o.id = 1) from AllNodes
              MERGE INTO lines l USING (SELECT o.customer_id AS k, r.code FROM rates r LEFT JOIN pg_catalog.unnest(<rows 0>::public.orders[]) o ON o.id = 1) s ON l.customer_id = s.k WHEN NOT MATCHED AND COALESCE(pg_catalog.hashint8extended(pg_catalog.numeric_uplus(s.k)::bigint, 0) OPERATOR(pg_catalog.&) 1023::bigint, 0::bigint) OPERATOR(pg_catalog.<>) ALL(<buckets>::bigint[]) THEN DO NOTHING WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (s.k)
        "#]],
    );
    check(
        "MERGE INTO lines l USING home h ON l.customer_id = h.a \
         WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (h.a)",
        expect![[r#"
            gather on EachNode Write
              SELECT pg_catalog.json_build_array(("h"."a")::pg_catalog.text)::pg_catalog.text FROM "public"."home" AS "h" ("a") from One(Home)
              MERGE INTO lines l USING (SELECT (tutti_row OPERATOR(pg_catalog.->>) 0)::int AS a FROM pg_catalog.unnest(<rows 0>::pg_catalog.json[]) tutti_row) h ON l.customer_id = h.a WHEN NOT MATCHED AND COALESCE(pg_catalog.hashint8extended(pg_catalog.numeric_uplus(h.a)::bigint, 0) OPERATOR(pg_catalog.&) 1023::bigint, 0::bigint) OPERATOR(pg_catalog.<>) ALL(<buckets>::bigint[]) THEN DO NOTHING WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (h.a)
        "#]],
    );
}

/// Of constants and parameters the node is known.
#[test]
fn merge_on_one_node() {
    check(
        "MERGE INTO lines l USING (VALUES (5, 'a')) v (k, x) ON l.customer_id = v.k \
         WHEN MATCHED THEN UPDATE SET item = v.x \
         WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (v.k, v.x)",
        expect![[r#"
            one pinned bucket 380 bucket 380 Write
        "#]],
    );
    check(
        "MERGE INTO lines l USING (SELECT $1::int AS k, $2::text AS x) v ON l.customer_id = v.k \
         WHEN MATCHED THEN UPDATE SET item = v.x \
         WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (v.k, v.x)",
        expect![[r#"
            one pinned $1 $1 Write
            otherwise
              gather on EachNode Write
                MERGE INTO lines l USING (SELECT $1::int AS k, $2::text AS x) v ON l.customer_id = v.k WHEN NOT MATCHED AND COALESCE(pg_catalog.hashint8extended(pg_catalog.numeric_uplus(v.k)::bigint, 0) OPERATOR(pg_catalog.&) 1023::bigint, 0::bigint) OPERATOR(pg_catalog.<>) ALL(<buckets>::bigint[]) THEN DO NOTHING WHEN MATCHED THEN UPDATE SET item = v.x WHEN NOT MATCHED THEN INSERT (customer_id, item) VALUES (v.k, v.x)
        "#]],
    );
    check(
        "MERGE INTO lines l USING (SELECT 1) v ON l.customer_id = 5 \
         WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (5)",
        expect![[r#"
            one pinned bucket 380 bucket 380 Write
        "#]],
    );
    check(
        "MERGE INTO lines l USING rates r ON l.customer_id = 5 AND l.item = r.code WHEN MATCHED THEN DELETE",
        expect![[r#"
            one pinned bucket 380 Write
        "#]],
    );
}

/// What might act on two nodes, or on a wrong one.
#[test]
fn merge_refused() {
    check(
        "MERGE INTO lines l USING items i ON l.item = i.name WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (i.id)",
        expect![[r#"
            0A000 this MERGE over several nodes is not supported
              Rows are to be inserted where nothing matches, and ON does not say that the distribution key "customer_id" is equal to a column of the source: what matches may be on any node.
              Let ON compare the distribution key with a column of the source, or use UPDATE and INSERT in one transaction.
        "#]],
    );
    check(
        "MERGE INTO lines l USING items i ON l.customer_id = i.id WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (i.id + 1)",
        expect![[r#"
            0A000 this MERGE over several nodes is not supported
              It would insert another "customer_id" than the column of the source with which ON compares it: the row may belong to another node than the one that finds no match.
              Insert the same column that ON compares with the distribution key.
        "#]],
    );
    check(
        "MERGE INTO lines l USING items i ON l.customer_id = i.id WHEN NOT MATCHED THEN INSERT (item) VALUES (i.name)",
        expect![[r#"
            0A000 this MERGE over several nodes is not supported
              It would insert another "customer_id" than the column of the source with which ON compares it: the row may belong to another node than the one that finds no match.
              Insert the same column that ON compares with the distribution key.
        "#]],
    );
    check(
        "MERGE INTO lines l USING items i ON l.customer_id = i.id WHEN MATCHED THEN UPDATE SET customer_id = 5",
        expect![[r#"
            0A000 this MERGE over several nodes is not supported
              It may change distribution keys, and rows would have to go to another node.
              Leave the distribution key out, or delete such rows and insert them anew, in one transaction.
        "#]],
    );
    check(
        "MERGE INTO lines l USING rates r ON l.customer_id = r.rate WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (r.rate)",
        expect![[r#"
            0A000 this MERGE over several nodes is not supported
              ON compares the distribution key with "rate" of type pg_catalog.numeric, whose values may be equal to keys of several nodes.
              Compare it with a column of the key's own type.
        "#]],
    );
    check(
        "MERGE INTO lines l USING (VALUES (1.5), (2)) v (k) ON l.customer_id = v.k WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (v.k)",
        expect![[r#"
            0A000 this MERGE over several nodes is not supported
              ON compares the distribution key, an integer, with numbers that may be none.
              Compare it with integers.
        "#]],
    );
    check(
        "MERGE INTO lines l USING (SELECT random()::int AS k FROM items) v ON l.customer_id = v.k WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (v.k)",
        expect![[r#"
            0A000 this write to several nodes may differ by node
              In it the source calls a volatile function, on each node.
              Compute what it reads first and send the result with the statement.
        "#]],
    );
    check(
        "MERGE INTO lines l USING (SELECT id FROM items ORDER BY ctid) v ON l.customer_id = v.id WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (v.id)",
        expect![[r#"
            0A000 this write to several nodes may differ by node
              In it items is read by places of rows, which each node has otherwise.
              Compute what it reads first and send the result with the statement.
        "#]],
    );
    check(
        "MERGE INTO lines l USING scratch v ON l.customer_id = v.id WHEN MATCHED THEN DELETE",
        expect![[r#"
            0A000 "scratch" cannot be used in a write to several nodes
              It is on node 1 only, and the other nodes do not see it.
              Insert its rows into a replicated table first, or write the rows one by one.
        "#]],
    );
    check(
        "MERGE INTO orders o USING items i ON o.customer_id = i.id WHEN NOT MATCHED THEN INSERT (customer_id) VALUES (i.id)",
        expect![[r#"
            0A000 nextval() in a write to several nodes is not supported
              It must be called on node 1.
              Pin the distribution key, or compute the value first.
        "#]],
    );
    check(
        "MERGE INTO events e USING rates r ON e.what = r.code WHEN NOT MATCHED THEN INSERT (what) VALUES (r.code)",
        expect![[r#"
            0A000 this MERGE over several nodes is not supported
              "events" has no distribution key, so a row may match on any node.
              Use MERGE without WHEN NOT MATCHED THEN INSERT, and insert in a statement of its own.
        "#]],
    );
    check(
        "MERGE INTO lines l USING items i ON l.customer_id = i.id WHEN NOT MATCHED BY SOURCE THEN DELETE",
        expect![[r#"
            0A000 this form of MERGE is not supported
              PostgreSQL 15 has no RETURNING and no WHEN NOT MATCHED BY SOURCE in it.
              Use UPDATE, INSERT and DELETE in one transaction.
        "#]],
    );
    check(
        "MERGE INTO paid_lines l USING items i ON l.customer = i.id WHEN MATCHED THEN DELETE",
        expect![[r#"
            0A000 cannot execute MERGE on relation "paid_lines"
              This operation is not supported for views.
        "#]],
    );
}

/// The nodes have the view.
#[test]
fn through_views() {
    check(
        "UPDATE paid_lines SET item = 'x' WHERE customer = 5 RETURNING *",
        expect![[r#"
            one pinned bucket 380 Write
        "#]],
    );
    check(
        "UPDATE paid_lines SET item = 'x' WHERE customer = $1",
        expect![[r#"
            one pinned $1 Write
            otherwise
              Scatter { access: Write }
        "#]],
    );
    check(
        "UPDATE paid_lines SET item = 'x'",
        expect![[r#"
            Scatter { access: Write }
        "#]],
    );
    check(
        "DELETE FROM paid_lines p USING orders o WHERE o.customer_id = p.customer AND o.id = 1",
        expect![[r#"
            Scatter { access: Write }
        "#]],
    );
    check(
        "DELETE FROM paid_lines p USING orders o WHERE o.id = p.customer",
        expect![[r#"
            gather on EachNode Write
              SELECT ROW("o"."id", NULL, NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") from AllNodes
              DELETE FROM paid_lines p USING pg_catalog.unnest(<rows 0>::public.orders[]) o WHERE o.id = p.customer
        "#]],
    );
    check(
        "DELETE FROM paid_by_first WHERE customer IN (5, 6)",
        expect![[r#"
            one pinned bucket 380 bucket 752 Write
        "#]],
    );
    check(
        "UPDATE placed_orders SET total = 0 WHERE customer_id = 5",
        expect![[r#"
            one pinned bucket 380 Write
        "#]],
    );
    check(
        "UPDATE big_orders SET id = 0",
        expect![[r#"
            Scatter { access: Write }
        "#]],
    );
    check(
        "UPDATE paid_lines SET customer = 5 WHERE customer = 5",
        expect![[r#"
            one pinned bucket 380 Write
        "#]],
    );
    check(
        "UPDATE paid_lines SET customer = 6",
        expect![[r#"
            0A000 this UPDATE of view "paid_lines" is not supported
              It may change distribution keys, and rows would have to go to another node.
              Update the table itself.
        "#]],
    );
    check(
        "UPDATE placed_orders SET total = DEFAULT",
        expect![[r#"
            0A000 this UPDATE of view "placed_orders" is not supported
              It asks for a default, which each node would evaluate by itself.
              Update the table itself.
        "#]],
    );
    check(
        "UPDATE pairs SET id = 5",
        expect![[r#"
            0A000 view "pairs" cannot be written
              It reads a distributed table, whose rows are on several nodes.
              Write to the table itself.
        "#]],
    );
}

/// A literal that means the current time is one time on all nodes, or the statement is refused.
#[test]
fn literals_beside_times_are_of_one_time() {
    for sql in [
        "DELETE FROM orders WHERE now() <> 'now'",
        "UPDATE orders SET placed = greatest(placed, 'now')",
        "UPDATE orders SET placed = CASE WHEN id = 1 THEN placed ELSE 'today' END",
        "UPDATE orders SET total = 1 WHERE 'now' = ANY (ARRAY[placed, now()])",
        "UPDATE orders SET total = 1 WHERE (placed, id) >= ('now', 1)",
        "UPDATE orders SET total = 1 WHERE 'now' IN (SELECT now())",
        "UPDATE orders SET total = 1 WHERE nullif(placed, 'now') IS NULL",
        "UPDATE orders SET placed = placed + ('now' - placed)",
        "UPDATE orders SET total = 1 WHERE (id, now()) IN ((id, 'now'))",
        "UPDATE orders SET total = 1 WHERE now() = ANY (ARRAY['now']::timestamptz[])",
        "INSERT INTO orders (id, customer_id, placed) SELECT id + 100, id, 'now' FROM customers",
        "INSERT INTO orders (id, customer_id) SELECT id, id FROM customers WHERE now() IN (SELECT 'now' UNION SELECT now())",
    ] {
        let plan = planned(sql, 3);
        assert!(
            plan.contains("::timestamp with time zone") || plan.contains("AS timestamp"),
            "{sql}\n{plan}"
        );
        assert!(!plan.contains("Scatter"), "{sql}\n{plan}");
    }
    for sql in [
        "UPDATE orders SET total = 1 WHERE tstzrange('now', NULL) @> placed",
        "DELETE FROM orders WHERE placed = ANY ('{now}'::timestamptz[])",
        "DELETE FROM orders WHERE age('now', placed) > '1 day'",
        "SELECT count(*) FROM orders WHERE age('now', placed) > '1 day'",
        "UPDATE orders SET total = 1 WHERE placed < (CASE WHEN id > 0 THEN 'now' END)::timestamptz",
        "SELECT now() = 'now'::my_time, count(*) FROM orders",
        "SELECT count(*) FROM (SELECT now() AS x FROM orders) y WHERE x = 'now'",
        "SELECT now() = ANY ('{now}') FROM orders",
        "SELECT count(*) FROM orders, json_to_record('{\"x\": \"now\"}') AS z (x timestamptz)",
    ] {
        let plan = planned(sql, 3);
        assert!(plan.starts_with("0A000 '"), "{sql}\n{plan}");
    }
    for sql in [
        "DELETE FROM customers WHERE name = 'now'",
        "DELETE FROM customers WHERE lower(name) IN ('now', 'today')",
        "UPDATE customers SET name = coalesce(name, 'now')",
    ] {
        check(
            sql,
            expect![[r#"
            Scatter { access: Write }
        "#]],
        );
    }
}
