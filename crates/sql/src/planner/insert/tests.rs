//! INSERT, as texts.

use expect_test::{Expect, expect};

use super::super::fixture;

fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&fixture::planned(sql, 3));
}

#[test]
fn one_row_by_key() {
    check(
        "INSERT INTO customers VALUES (1, 'x')",
        expect![[r#"
        one pinned bucket 838 Write
    "#]],
    );
    check(
        "INSERT INTO customers (name, id) VALUES (upper($2), $1) RETURNING *",
        expect![[r#"
        one pinned $1 Write
        otherwise
          insert customers [returning, one row each]
            "INSERT INTO customers (name, id) VALUES "
            (upper($2), $1) -> $1
            " RETURNING *"
    "#]],
    );
    check(
        "INSERT INTO customers VALUES (NULL, random()::text)",
        expect![[r#"
        one pinned bucket 0 Write
    "#]],
    );
    check(
        "INSERT INTO customers VALUES ('5'::bigint, DEFAULT)",
        expect![[r#"
        one pinned bucket 380 Write
    "#]],
    );
}

#[test]
fn many_rows_by_key() {
    check(
        "INSERT INTO customers AS c VALUES (1, 'a'), (2, '),('), (3, 'c')",
        expect![[r#"
        insert customers [one row each]
          "INSERT INTO customers AS c VALUES "
          (1, 'a') -> bucket 838
          (2, '),(') -> bucket 246
          (3, 'c') -> bucket 919
          ""
    "#]],
    );
    check(
        "INSERT INTO customers VALUES (1, 'a'), (1, 'b')",
        expect![[r#"
        one pinned bucket 838 bucket 838 Write
    "#]],
    );
    check(
        "INSERT INTO customers VALUES ($1, 'a'), ($2, 'b') ON CONFLICT (id) DO UPDATE SET name = excluded.name RETURNING id",
        expect![[r#"
            one pinned $1 $2 Write
            otherwise
              insert customers [returning]
                "INSERT INTO customers VALUES "
                ($1, 'a') -> $1
                ($2, 'b') -> $2
                " ON CONFLICT (id) DO UPDATE SET name = excluded.name RETURNING id"
        "#]],
    );
}

#[test]
fn values_that_must_be_computed_first() {
    check(
        "INSERT INTO orders (customer_id) VALUES (1), (2) RETURNING id",
        expect![[r#"
            insert orders [returning, one row each]
              VALUES (1::int, nextval('public.orders_id_seq'::regclass)::int, tutti.value_output(now()::timestamp with time zone)), (2::int, nextval('public.orders_id_seq'::regclass)::int, tutti.value_output(now()::timestamp with time zone))
                one home Write
              columns [1, 0, 3] key [Some(0)]
              INSERT INTO orders (customer_id, id, placed) SELECT u.customer_id, u.id, u.placed FROM pg_catalog.unnest(<rows 0>::public.orders[]) u RETURNING id
        "#]],
    );
    check(
        "INSERT INTO customers VALUES (1 + 1, 'x')",
        expect![[r#"
            insert customers [one row each]
              VALUES ((1 + 1)::int, 'x'::pg_catalog.text)
                one speaker Read
              columns [0, 1] key [Some(0)]
              INSERT INTO customers (id, name) SELECT u.id, u.name FROM pg_catalog.unnest(<rows 0>::public.customers[]) u
        "#]],
    );
    check(
        "INSERT INTO tickets (title) VALUES ($1)",
        expect![[r#"
            insert tickets [one row each]
              VALUES ($1::pg_catalog.text, nextval('public.tickets_id_seq'::regclass)::int)
                one home Write
              columns [1, 0] key [Some(1)]
              INSERT INTO tickets (title, id) SELECT u.title, u.id FROM pg_catalog.unnest(<rows 0>::public.tickets[]) u
        "#]],
    );
    check(
        "INSERT INTO tickets DEFAULT VALUES RETURNING id",
        expect![[r#"
            insert tickets [returning, one row each]
              VALUES (nextval('public.tickets_id_seq'::regclass)::int)
                one home Write
              columns [0] key [Some(0)]
              INSERT INTO tickets (id) SELECT u.id FROM pg_catalog.unnest(<rows 0>::public.tickets[]) u RETURNING id
        "#]],
    );
    check(
        "INSERT INTO orders VALUES (DEFAULT, 1, DEFAULT, now()), (7, 2, 5, DEFAULT)",
        expect![[r#"
            insert orders [one row each]
              VALUES (nextval('public.orders_id_seq'::regclass)::int, 1::int, 0::numeric, tutti.value_output(now()::timestamp with time zone)), (7::int, 2::int, 5::numeric, tutti.value_output(now()::timestamp with time zone))
                one home Write
              columns [0, 1, 2, 3] key [Some(1)]
              INSERT INTO orders (id, customer_id, total, placed) SELECT u.id, u.customer_id, u.total, u.placed FROM pg_catalog.unnest(<rows 0>::public.orders[]) u
        "#]],
    );
    check(
        "INSERT INTO customers VALUES (1, (SELECT max(name) FROM customers))",
        expect![[r#"
            insert customers [one row each]
              VALUES (1::int, (SELECT max(name) FROM customers)::pg_catalog.text)
                gather on One(Any) Read
                  SELECT ROW(NULL, "customers"."name")::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
                  VALUES (1::int, (SELECT max(name) FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers)::pg_catalog.text)
                  or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
                    ANALYZE pg_temp.tutti_rows_0
                    VALUES (1::int, (SELECT max(name) FROM pg_temp.tutti_rows_0 customers)::pg_catalog.text)
              columns [0, 1] key [Some(0)]
              INSERT INTO customers (id, name) SELECT u.id, u.name FROM pg_catalog.unnest(<rows 0>::public.customers[]) u
        "#]],
    );
}

#[test]
fn replicated() {
    check(
        "INSERT INTO rates VALUES ('EUR', 1.5), ($1, DEFAULT)",
        expect![[r#"
            Replicas { locks: [], rows: rates returned by insert }
        "#]],
    );
    check(
        "INSERT INTO rates VALUES ('EUR', random())",
        expect![[r#"
            insert rates [one row each]
              VALUES ('EUR'::pg_catalog.text, random()::numeric)
                one home Read
              columns [0, 1] key []
              INSERT INTO rates (code, rate) SELECT u.code, u.rate FROM pg_catalog.unnest(<rows 0>::public.rates[]) u
        "#]],
    );
    check(
        "INSERT INTO items (name) VALUES ('x') RETURNING id",
        expect![[r#"
            insert items [returning, one row each]
              VALUES ('x'::pg_catalog.text, nextval('public.items_id_seq'::regclass)::int, tutti.value_output(now()::timestamp with time zone))
                one home Write
              columns [1, 0, 2] key []
              INSERT INTO items (name, id, added) OVERRIDING SYSTEM VALUE SELECT u.name, u.id, u.added FROM pg_catalog.unnest(<rows 0>::public.items[]) u RETURNING id
        "#]],
    );
    check(
        "INSERT INTO items VALUES (1, 'x', 'now')",
        expect![[r#"
        428C9 cannot insert a non-DEFAULT value into column "id"
          Column "id" is an identity column defined as GENERATED ALWAYS.
          Use OVERRIDING SYSTEM VALUE to override.
    "#]],
    );
    check(
        "INSERT INTO items OVERRIDING SYSTEM VALUE VALUES (1, 'x', 'now')",
        expect![[r#"
            insert items [one row each]
              VALUES (1::int, 'x'::pg_catalog.text, tutti.value_output('now'::timestamp with time zone))
                one speaker Read
              columns [0, 1, 2] key []
              INSERT INTO items (id, name, added) OVERRIDING SYSTEM VALUE SELECT u.id, u.name, u.added FROM pg_catalog.unnest(<rows 0>::public.items[]) u
        "#]],
    );
    check(
        "INSERT INTO items OVERRIDING USER VALUE VALUES (1, 'x', '2026-01-01')",
        expect![[r#"
            insert items [one row each]
              VALUES (nextval('public.items_id_seq'::regclass)::int, 'x'::pg_catalog.text, tutti.value_output('2026-01-01'::timestamp with time zone))
                one home Write
              columns [0, 1, 2] key []
              INSERT INTO items (id, name, added) OVERRIDING SYSTEM VALUE SELECT u.id, u.name, u.added FROM pg_catalog.unnest(<rows 0>::public.items[]) u
        "#]],
    );
    check(
        "INSERT INTO rates DEFAULT VALUES",
        expect![[r#"
            Replicas { locks: [], rows: rates returned by insert }
        "#]],
    );
    check(
        "INSERT INTO rates SELECT 'a', 2 ON CONFLICT DO NOTHING",
        expect![[r#"
            Rows(rates returned by insert)
        "#]],
    );
    check(
        "INSERT INTO items (name) VALUES ('x') ON CONFLICT (id) DO UPDATE SET added = now() \
         WHERE items.added < CURRENT_TIMESTAMP",
        expect![[r#"
            insert items []
              VALUES ('x'::pg_catalog.text, nextval('public.items_id_seq'::regclass)::int, tutti.value_output(now()::timestamp with time zone))
                one home Write
              columns [1, 0, 2] key []
              INSERT INTO items (name, id, added) OVERRIDING SYSTEM VALUE SELECT u.name, u.id, u.added FROM pg_catalog.unnest(<rows 0>::public.items[]) u ON CONFLICT (id) DO UPDATE SET added = <pg_catalog.now()>::timestamp with time zone WHERE items.added < <current_timestamp>::timestamp with time zone
        "#]],
    );
    check(
        "INSERT INTO items (name) VALUES ('x') ON CONFLICT (id) DO UPDATE SET added = CURRENT_DATE + LOCALTIME(0)",
        expect![[r#"
            insert items []
              VALUES ('x'::pg_catalog.text, nextval('public.items_id_seq'::regclass)::int, tutti.value_output(now()::timestamp with time zone))
                one home Write
              columns [1, 0, 2] key []
              INSERT INTO items (name, id, added) OVERRIDING SYSTEM VALUE SELECT u.name, u.id, u.added FROM pg_catalog.unnest(<rows 0>::public.items[]) u ON CONFLICT (id) DO UPDATE SET added = <current_date>::pg_catalog.date + <localtime(0)>::time(0)
        "#]],
    );
    check(
        "INSERT INTO rate_codes VALUES ('x')",
        expect![[r#"
            Replicas { locks: [], rows: rates compared }
        "#]],
    );
}

#[test]
fn round_robin() {
    check(
        "INSERT INTO events (what) VALUES ('x'), ('y')",
        expect![[r#"
            insert events [one row each]
              VALUES ('x'::pg_catalog.text, tutti.value_output(now()::timestamp with time zone)), ('y'::pg_catalog.text, tutti.value_output(now()::timestamp with time zone))
                one speaker Read
              columns [1, 0] key []
              INSERT INTO events (what, at) SELECT u.what, u.at FROM pg_catalog.unnest(<rows 0>::public.events[]) u
        "#]],
    );
    check(
        "INSERT INTO events DEFAULT VALUES",
        expect![[r#"
        insert events [one row each]
          "INSERT INTO events (at) VALUES "
          (DEFAULT) -> anywhere
          ""
    "#]],
    );
}

#[test]
fn from_queries() {
    check(
        "INSERT INTO lines SELECT id, name FROM customers",
        expect![[r#"
        Scatter { access: Write }
    "#]],
    );
    check(
        "INSERT INTO lines (customer_id) SELECT customer_id FROM orders WHERE customer_id = 5",
        expect![[r#"
            one pinned bucket 380 Write
        "#]],
    );
    check(
        "INSERT INTO customers SELECT total::int, 'x' FROM orders ORDER BY 1 LIMIT 5",
        expect![[r#"
            insert customers [one row each]
              SELECT s.c1::int, s.c2::pg_catalog.text FROM (SELECT total::int, 'x' FROM orders ORDER BY 1 LIMIT 5) s(c1, c2)
                gather on One(Any) Read
                  SELECT ROW(NULL, NULL, "orders"."total", NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
                  SELECT s.c1::int, s.c2::pg_catalog.text FROM (SELECT total::int, 'x' FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders ORDER BY 1 LIMIT 5) s(c1, c2)
                  or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "total" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                    ANALYZE pg_temp.tutti_rows_0
                    SELECT s.c1::int, s.c2::pg_catalog.text FROM (SELECT total::int, 'x' FROM pg_temp.tutti_rows_0 orders ORDER BY 1 LIMIT 5) s(c1, c2)
              columns [0, 1] key [Some(0)]
              INSERT INTO customers (id, name) SELECT u.id, u.name FROM pg_catalog.unnest(<rows 0>::public.customers[]) u
        "#]],
    );
    check(
        "WITH x AS (SELECT 1 AS a) INSERT INTO customers SELECT a, 'x' FROM x",
        expect![[r#"
            insert customers [one row each]
              SELECT s.c1::int, s.c2::pg_catalog.text FROM (WITH x AS (SELECT 1 AS a) SELECT a, 'x' FROM x) s(c1, c2)
                one speaker Read
              columns [0, 1] key [Some(0)]
              INSERT INTO customers (id, name) SELECT u.id, u.name FROM pg_catalog.unnest(<rows 0>::public.customers[]) u
        "#]],
    );
    check(
        "INSERT INTO scratch SELECT id FROM customers RETURNING *",
        expect![[r#"
            gather on One(Home) Write
              SELECT ROW("customers"."id", NULL)::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
              INSERT INTO scratch SELECT id FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers RETURNING *
              or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
                ANALYZE pg_temp.tutti_rows_0
                INSERT INTO scratch SELECT id FROM pg_temp.tutti_rows_0 customers RETURNING *
        "#]],
    );
    check(
        "INSERT INTO scratch VALUES (1)",
        expect![[r#"
        one home Write
    "#]],
    );
}

#[test]
fn refused() {
    check(
        "INSERT INTO customers VALUES (1, 'x', 2)",
        expect![[r#"
        42601 INSERT has more expressions than target columns
    "#]],
    );
    check(
        "INSERT INTO customers (id, nope) VALUES (1, 2)",
        expect![[r#"
        42703 column "nope" of relation "customers" does not exist
    "#]],
    );
    check(
        "INSERT INTO customers VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET id = 2",
        expect![[r#"
        0A000 ON CONFLICT DO UPDATE cannot set the distribution key "id"
          The row would have to move to another node in the middle of the statement.
          Leave the key out of SET (it equals EXCLUDED's in most cases), or use UPDATE.
    "#]],
    );
    check(
        "INSERT INTO rates VALUES ('x') ON CONFLICT (code) DO UPDATE SET rate = random()",
        expect![[r#"
            Rows(rates compared)
        "#]],
    );
    check(
        "INSERT INTO customers VALUES (1, 'x') RETURNING (SELECT count(*) FROM home)",
        expect![[r#"
            0A000 reading home table "public"."home" in ON CONFLICT or RETURNING is not supported
              The clause runs on the row's node, and the table is on node 1.
              Replicate the table (tutti_replicate('"public"."home"')), or read it in a statement of its own.
        "#]],
    );
    check(
        "INSERT INTO customers VALUES (1, 'x')
        ON CONFLICT (id) DO UPDATE SET name = 'y' WHERE EXISTS (SELECT FROM home)",
        expect![[r#"
            0A000 reading home table "public"."home" in ON CONFLICT or RETURNING is not supported
              The clause runs on the row's node, and the table is on node 1.
              Replicate the table (tutti_replicate('"public"."home"')), or read it in a statement of its own.
        "#]],
    );
    check(
        "INSERT INTO big_orders VALUES (1)",
        expect![[r#"
            0A000 this INSERT into view "big_orders" is not supported
              It does not show the distribution key of orders.
              Insert into the table itself.
        "#]],
    );
    check(
        "INSERT INTO audited VALUES (1)",
        expect![[r#"
            0A000 writing to "public"."audited" would fire "audit"
              It runs inside the node that has the row, which sees its own rows only: function audit() writes (INSERT).
              Send its statements from the client; or, if all that it touches belongs to the row's key, say so: SELECT tutti_function('audit', 'row').
        "#]],
    );
    check(
        "WITH d AS (DELETE FROM lines RETURNING *) INSERT INTO lines SELECT * FROM d",
        expect![[r#"
            0A000 INSERT behind a WITH query that changes data is not supported here
              The parts of the statement would write on different nodes, and each must see what the others saw.
              Run the parts as statements of their own in one transaction.
        "#]],
    );
}

#[test]
fn one_node_takes_everything() {
    expect![[r#"
        one home Write
    "#]]
    .assert_eq(&fixture::planned("INSERT INTO orders (customer_id) VALUES (1), (2)", 1));
}

#[test]
fn without_a_column_list() {
    check(
        "INSERT INTO customers SELECT 1 + n % 3, (ARRAY['a', 'b'])[n] FROM generate_series(1, 3) n",
        expect![[r#"
            insert customers [one row each]
              SELECT s.c1::int, s.c2::pg_catalog.text FROM (SELECT 1 + n % 3, (ARRAY['a', 'b'])[n] FROM generate_series(1, 3) n) s(c1, c2)
                one speaker Read
              columns [0, 1] key [Some(0)]
              INSERT INTO customers (id, name) SELECT u.id, u.name FROM pg_catalog.unnest(<rows 0>::public.customers[]) u
        "#]],
    );
    check(
        "INSERT INTO rates SELECT nullif('a', name), CASE WHEN id = 1 THEN 2 END FROM customers",
        expect![[r#"
            insert rates [one row each]
              SELECT s.c1::pg_catalog.text, s.c2::numeric FROM (SELECT NULLIF('a', name), CASE WHEN id = 1 THEN 2 END FROM customers) s(c1, c2)
                Scatter { access: Read }
              columns [0, 1] key []
              INSERT INTO rates (code, rate) SELECT u.code, u.rate FROM pg_catalog.unnest(<rows 0>::public.rates[]) u
        "#]],
    );
    check(
        "INSERT INTO customers SELECT * FROM pg_get_keywords()",
        expect![[r#"
        0A000 this INSERT needs a column list
          The number of columns that its query yields is not known to the planner.
          Name the target columns: INSERT INTO table (columns) SELECT ….
    "#]],
    );
    check(
        "INSERT INTO customers SELECT * FROM generate_series(1, 3)",
        expect![[r#"
            insert customers [one row each]
              SELECT s.c1::int FROM (SELECT * FROM generate_series(1, 3)) s(c1)
                one speaker Read
              columns [0] key [Some(0)]
              INSERT INTO customers (id) SELECT u.id FROM pg_catalog.unnest(<rows 0>::public.customers[]) u
        "#]],
    );
    check(
        "INSERT INTO customers SELECT * FROM json_to_record('{}') r (a int)",
        expect![[r#"
            insert customers [one row each]
              SELECT s.c1::int FROM (SELECT * FROM json_to_record('{}') r (a int)) s(c1)
                one home Write
              columns [0] key [Some(0)]
              INSERT INTO customers (id) SELECT u.id FROM pg_catalog.unnest(<rows 0>::public.customers[]) u
        "#]],
    );
    check(
        "INSERT INTO rates SELECT * FROM unnest(ARRAY['a', 'b']) WITH ORDINALITY",
        expect![[r#"
            insert rates [one row each]
              SELECT s.c1::pg_catalog.text, s.c2::numeric FROM (SELECT * FROM unnest(ARRAY['a', 'b']) WITH ORDINALITY) s(c1, c2)
                one speaker Read
              columns [0, 1] key []
              INSERT INTO rates (code, rate) SELECT u.code, u.rate FROM pg_catalog.unnest(<rows 0>::public.rates[]) u
        "#]],
    );
    check(
        "INSERT INTO rates SELECT 1, 2, 3",
        expect![[r#"
        42601 INSERT has more expressions than target columns
    "#]],
    );
}

/// `placed` and `at` default to `now()`: rows on several nodes must get one time.
#[test]
fn one_statement_has_one_time() {
    check(
        "INSERT INTO orders (id, customer_id) VALUES (1, 5)",
        expect![[r#"
        one pinned bucket 380 Write
    "#]],
    );
    check(
        "INSERT INTO orders (id, customer_id) VALUES (1, $1)",
        expect![[r#"
        one pinned $1 Write
        otherwise
          insert orders [one row each]
            "INSERT INTO orders (id, customer_id) VALUES "
            (1, $1) -> $1
            ""
    "#]],
    );
    check(
        "INSERT INTO orders (id, customer_id) VALUES (1, $1), (2, $2)",
        expect![[r#"
            one pinned $1 $2 Write
            otherwise
              insert orders [one row each]
                VALUES (1::int, $1::int, tutti.value_output(now()::timestamp with time zone)), (2::int, $2::int, tutti.value_output(now()::timestamp with time zone))
                  one speaker Read
                columns [0, 1, 3] key [Some(1)]
                INSERT INTO orders (id, customer_id, placed) SELECT u.id, u.customer_id, u.placed FROM pg_catalog.unnest(<rows 0>::public.orders[]) u
        "#]],
    );
    check(
        "INSERT INTO orders (id, customer_id) VALUES (1, 5), (2, 6)",
        expect![[r#"
        one pinned bucket 380 bucket 752 Write
    "#]],
    );
    check(
        "INSERT INTO orders VALUES (1, 5, 0, 'now'), (2, 6, 0, '2026-01-01')",
        expect![[r#"
        one pinned bucket 380 bucket 752 Write
    "#]],
    );
    check(
        "INSERT INTO customers VALUES (1, 'here and now'), (2, 'b')",
        expect![[r#"
        insert customers [one row each]
          "INSERT INTO customers VALUES "
          (1, 'here and now') -> bucket 838
          (2, 'b') -> bucket 246
          ""
    "#]],
    );
    check(
        "INSERT INTO events (what) VALUES ('a')",
        expect![[r#"
        insert events [one row each]
          "INSERT INTO events (what) VALUES "
          ('a') -> anywhere
          ""
    "#]],
    );
    check(
        "INSERT INTO events (what) VALUES ('a'), ('b')",
        expect![[r#"
            insert events [one row each]
              VALUES ('a'::pg_catalog.text, tutti.value_output(now()::timestamp with time zone)), ('b'::pg_catalog.text, tutti.value_output(now()::timestamp with time zone))
                one speaker Read
              columns [1, 0] key []
              INSERT INTO events (what, at) SELECT u.what, u.at FROM pg_catalog.unnest(<rows 0>::public.events[]) u
        "#]],
    );
    check(
        "INSERT INTO events SELECT now(), name FROM customers",
        expect![[r#"
            insert events [one row each]
              SELECT tutti.value_output(s.c1::timestamp with time zone), s.c2::pg_catalog.text FROM (SELECT now(), name FROM customers) s(c1, c2)
                gather on One(Any) Read
                  SELECT ROW(NULL, "customers"."name")::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
                  SELECT tutti.value_output(s.c1::timestamp with time zone), s.c2::pg_catalog.text FROM (SELECT <pg_catalog.now()>::timestamp with time zone AS now, name FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers) s(c1, c2)
                  or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
                    ANALYZE pg_temp.tutti_rows_0
                    SELECT tutti.value_output(s.c1::timestamp with time zone), s.c2::pg_catalog.text FROM (SELECT <pg_catalog.now()>::timestamp with time zone AS now, name FROM pg_temp.tutti_rows_0 customers) s(c1, c2)
              columns [0, 1] key []
              INSERT INTO events (at, what) SELECT u.at, u.what FROM pg_catalog.unnest(<rows 0>::public.events[]) u
        "#]],
    );
    check(
        "INSERT INTO orders (id, customer_id) SELECT number, customer_id FROM lines",
        expect![[r#"
            insert orders [one row each]
              SELECT s.c1::int, s.c2::int, tutti.value_output(now()::timestamp with time zone) FROM (SELECT number, customer_id FROM lines) s(c1, c2)
                gather on One(Any) Read
                  SELECT ROW("lines"."customer_id", NULL, "lines"."number")::pg_catalog.text FROM "public"."lines" AS "lines" ("customer_id", "item", "number") from AllNodes
                  SELECT s.c1::int, s.c2::int, tutti.value_output(<pg_catalog.now()>::timestamp with time zone::timestamp with time zone) FROM (SELECT number, customer_id FROM pg_catalog.unnest(<rows 0>::public.lines[]) lines) s(c1, c2)
                  or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "customer_id", "number" FROM pg_catalog.unnest(<rows 0>::"public"."lines"[]) AS tutti_f
                    ANALYZE pg_temp.tutti_rows_0
                    SELECT s.c1::int, s.c2::int, tutti.value_output(<pg_catalog.now()>::timestamp with time zone::timestamp with time zone) FROM (SELECT number, customer_id FROM pg_temp.tutti_rows_0 lines) s(c1, c2)
              columns [0, 1, 3] key [Some(1)]
              INSERT INTO orders (id, customer_id, placed) SELECT u.id, u.customer_id, u.placed FROM pg_catalog.unnest(<rows 0>::public.orders[]) u
        "#]],
    );
    check(
        "INSERT INTO orders (id, customer_id) SELECT number, customer_id FROM lines \
         WHERE customer_id = 5",
        expect![[r#"
            one pinned bucket 380 Write
        "#]],
    );
}

#[test]
fn default_in_on_conflict() {
    check(
        "INSERT INTO items (name) VALUES ('x') ON CONFLICT (id) DO UPDATE SET added = DEFAULT",
        expect![[r#"
            0A000 ON CONFLICT DO UPDATE SET "added" = DEFAULT is not supported
              The default must be evaluated once for the whole cluster.
              Give the value among the inserted ones and use EXCLUDED.column.
        "#]],
    );
    check(
        "INSERT INTO rates VALUES ('a', 2) ON CONFLICT (code) DO UPDATE SET rate = DEFAULT",
        expect![[r#"
            Replicas { locks: [], rows: rates compared }
        "#]],
    );
}

#[test]
fn from_a_view_over_several_nodes() {
    check(
        "INSERT INTO tickets (title) SELECT x.id FROM pairs x",
        expect![[r#"
            insert tickets [one row each]
              SELECT s.c1::pg_catalog.text, nextval('public.tickets_id_seq'::regclass)::int FROM (SELECT x.id FROM pairs x) s(c1)
                gather on One(Home) Read
                  SELECT ROW(t."id", t."customer_id", NULL, NULL)::pg_catalog.text FROM "public"."orders" AS t ("id", "customer_id", "total", "placed") from AllNodes
                  SELECT s.c1::pg_catalog.text, nextval('public.tickets_id_seq'::regclass)::int FROM (SELECT x.id FROM (SELECT o.id FROM pg_catalog.unnest(<rows 0>::public.orders[]) o JOIN pg_catalog.unnest(<rows 0>::public.orders[]) p ON o.id = p.customer_id) x(id)) s(c1)
              columns [1, 0] key [Some(1)]
              INSERT INTO tickets (title, id) SELECT u.title, u.id FROM pg_catalog.unnest(<rows 0>::public.tickets[]) u
        "#]],
    );
    check(
        "INSERT INTO rates SELECT x.id FROM pairs x",
        expect![[r#"
            insert rates [one row each]
              SELECT s.c1::pg_catalog.text FROM (SELECT x.id FROM pairs x) s(c1)
                gather on One(Any) Read
                  SELECT ROW(t."id", t."customer_id", NULL, NULL)::pg_catalog.text FROM "public"."orders" AS t ("id", "customer_id", "total", "placed") from AllNodes
                  SELECT s.c1::pg_catalog.text FROM (SELECT x.id FROM (SELECT o.id FROM pg_catalog.unnest(<rows 0>::public.orders[]) o JOIN pg_catalog.unnest(<rows 0>::public.orders[]) p ON o.id = p.customer_id) x(id)) s(c1)
                  or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "id", "customer_id" FROM pg_catalog.unnest(<rows 0>::"public"."orders"[]) AS tutti_f
                    ANALYZE pg_temp.tutti_rows_0
                    SELECT s.c1::pg_catalog.text FROM (SELECT x.id FROM (SELECT o.id FROM pg_temp.tutti_rows_0 o JOIN pg_temp.tutti_rows_0 p ON o.id = p.customer_id) x(id)) s(c1)
                  or bring SELECT ROW(NULL, "p"."customer_id", NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "p" ("id", "customer_id", "total", "placed") from AllNodes
                    SELECT s.c1::pg_catalog.text FROM (SELECT x.id FROM (SELECT o.id FROM public.orders o JOIN pg_catalog.unnest(<rows 0>::public.orders[]) p ON o.id = p.customer_id) x(id)) s(c1)
                  or bring to its node SELECT ROW("o"."id", NULL, NULL, NULL)::pg_catalog.text, COALESCE(pg_catalog.hashint4extended(("o"."id"), 0) OPERATOR(pg_catalog.&) 1023::pg_catalog.int8, 0::pg_catalog.int8) FROM "public"."orders" AS "o" ("id", "customer_id", "total", "placed") from AllNodes
                    SELECT s.c1::pg_catalog.text FROM (SELECT x.id FROM (SELECT o.id FROM pg_catalog.unnest(<rows 0>::public.orders[]) o JOIN public.orders p ON o.id = p.customer_id) x(id)) s(c1)
              columns [0] key []
              INSERT INTO rates (code) SELECT u.code FROM pg_catalog.unnest(<rows 0>::public.rates[]) u
        "#]],
    );
}

/// A row goes where the column belongs that shows the key.
#[test]
fn into_views() {
    check(
        "INSERT INTO paid_lines VALUES ('a', 5)",
        expect![[r#"
            one pinned bucket 380 Write
        "#]],
    );
    check(
        "INSERT INTO paid_lines (customer, item) VALUES (5, 'a'), (6, 'b') RETURNING *",
        expect![[r#"
            one pinned bucket 380 bucket 752 Write
        "#]],
    );
    check(
        "INSERT INTO paid_lines (customer) VALUES ($1)",
        expect![[r#"
            one pinned $1 Write
            otherwise
              insert paid_lines [one row each]
                "INSERT INTO paid_lines (customer) VALUES "
                ($1) -> $1
                ""
        "#]],
    );
    check(
        "INSERT INTO paid_lines SELECT name, id FROM customers",
        expect![[r#"
            Scatter { access: Write }
        "#]],
    );
    check(
        "INSERT INTO paid_lines SELECT name, id FROM items",
        expect![[r#"
            insert paid_lines [one row each]
              SELECT s.c1::pg_catalog.text, s.c2::int FROM (SELECT name, id FROM items) s(c1, c2)
                one any Read
              columns [0, 1] key [Some(1)]
              INSERT INTO paid_lines (item, customer) SELECT u.item, u.customer FROM pg_catalog.unnest(<rows 0>::public.paid_lines[]) u
        "#]],
    );
    check(
        "INSERT INTO paid_by_first VALUES (1), (2), (3)",
        expect![[r#"
            insert paid_by_first [one row each]
              "INSERT INTO paid_by_first VALUES "
              (1) -> bucket 838
              (2) -> bucket 246
              (3) -> bucket 919
              ""
        "#]],
    );
    check(
        "INSERT INTO placed_orders (customer_id, id) VALUES (5, 1)",
        expect![[r#"
            one pinned bucket 380 Write
        "#]],
    );
    check(
        "INSERT INTO placed_orders (customer_id) VALUES (5)",
        expect![[r#"
            0A000 this INSERT into view "placed_orders" is not supported
              It does not show "placed" of orders, and each node would give its rows another time there.
              Insert into the table itself.
        "#]],
    );
    check(
        "INSERT INTO placed_orders (customer_id, id) VALUES (5, 1), (6, 2), (7, 3)",
        expect![[r#"
            0A000 this INSERT into view "placed_orders" is not supported
              It does not show "placed" of orders, and each node would give its rows another time there.
              Insert into the table itself.
        "#]],
    );
    check(
        "INSERT INTO big_orders VALUES (1)",
        expect![[r#"
            0A000 this INSERT into view "big_orders" is not supported
              It does not show the distribution key of orders.
              Insert into the table itself.
        "#]],
    );
    check(
        "INSERT INTO pairs VALUES (1)",
        expect![[r#"
            0A000 view "pairs" cannot be written
              It reads a distributed table, whose rows are on several nodes.
              Write to the table itself.
        "#]],
    );
}
