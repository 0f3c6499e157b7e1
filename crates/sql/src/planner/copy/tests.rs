//! COPY, as texts.

use expect_test::{Expect, expect};

use super::super::fixture;

fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&fixture::planned(sql, 3));
}

#[test]
fn from_stdin() {
    check(
        "COPY customers FROM STDIN",
        expect![[r#"
            copy from COPY customers FROM STDIN
              columns [0, 1] key [Some(0)]
              fill [] options []
        "#]],
    );
    check(
        "COPY lines (item, customer_id) FROM STDIN WITH CSV HEADER DELIMITER AS ';'",
        expect![[r#"
            copy from COPY lines (item, customer_id) FROM STDIN WITH CSV HEADER DELIMITER AS ';'
              columns [1, 0] key [Some(1)]
              fill [] options [("format", "csv"), ("header", "true"), ("delimiter", ";")]
        "#]],
    );
    check(
        "COPY orders (customer_id, total) FROM STDIN (FORMAT csv, FORCE_NULL (total))",
        expect![[r#"
            copy from COPY orders(customer_id, total, id, placed) FROM STDIN WITH (FORMAT CSV, FORCE_NULL (total))
              columns [1, 2] key [Some(0)]
              fill [(0, "CAST(nextval('public.orders_id_seq'::regclass) AS pg_catalog.int4)"), (3, "tutti.value_output(CAST(now() AS pg_catalog.timestamptz))")] options [("format", "csv"), ("force_null", "total")]
        "#]],
    );
    check(
        "COPY orders (total) FROM STDIN",
        expect![[r#"
            copy from COPY orders(total, id, customer_id, placed) FROM STDIN
              columns [2] key [Some(2)]
              fill [(0, "CAST(nextval('public.orders_id_seq'::regclass) AS pg_catalog.int4)"), (1, "CAST(NULL AS pg_catalog.int4)"), (3, "tutti.value_output(CAST(now() AS pg_catalog.timestamptz))")] options []
        "#]],
    );
    check(
        "COPY tickets (title) FROM STDIN BINARY",
        expect![[r#"
            copy from COPY tickets(title, id) FROM STDIN WITH (FORMAT BINARY)
              columns [1] key [Some(1)]
              fill [(0, "CAST(nextval('public.tickets_id_seq'::regclass) AS pg_catalog.int4)")] options [("format", "binary")]
        "#]],
    );
    check(
        "COPY items (name) FROM STDIN WHERE name <> ''",
        expect![[r#"
            copy from COPY items(name, id, added) FROM STDIN WHERE name <> ''
              columns [1] key []
              fill [(0, "CAST(nextval('public.items_id_seq'::regclass) AS pg_catalog.int4)"), (2, "tutti.value_output(CAST(now() AS pg_catalog.timestamptz))")] options []
        "#]],
    );
    check(
        "COPY rates FROM STDIN; COPY events (what) FROM STDIN (FREEZE)",
        expect![[r#"
            copy from COPY rates FROM STDIN
              columns [0, 1] key []
              fill [] options []
            copy from COPY events(what, at) FROM STDIN WITH (FREEZE)
              columns [1] key []
              fill [(0, "tutti.value_output(CAST(now() AS pg_catalog.timestamptz))")] options [("freeze", "true")]
        "#]],
    );
    check(
        "COPY scratch FROM STDIN; COPY home FROM STDIN",
        expect![[r#"
        one home Write
        one home Write
    "#]],
    );
}

#[test]
fn to_stdout() {
    check(
        "COPY customers TO STDOUT WITH (FORMAT binary)",
        expect![[r#"
        copy to, binary true, header false
          scatter
    "#]],
    );
    check(
        "COPY rates (code) TO STDOUT CSV HEADER; COPY home TO STDOUT",
        expect![[r#"
        copy to, binary false, header true
          one any
        copy to, binary false, header false
          one home
    "#]],
    );
    check(
        "COPY (SELECT * FROM orders WHERE customer_id = 7) TO STDOUT",
        expect![[r#"
            copy to, binary false, header false
              one pinned bucket 1023
        "#]],
    );
    check(
        "COPY (SELECT * FROM customers) TO STDOUT",
        expect![[r#"
        copy to, binary false, header false
          scatter
    "#]],
    );
    check(
        "COPY (SELECT count(*) FROM customers) TO STDOUT WITH CSV",
        expect![[r#"
            copy to, binary false, header false
              gather on One(Any) Read
                parts SELECT tutti_f.c1::pg_catalog.text, pg_catalog.pg_typeof(tutti_f.c1)::pg_catalog.oid, pg_catalog.current_setting('array_nulls') FROM (SELECT count(*) FROM customers) AS tutti_f (c1)
                COPY (WITH tutti_z(c1) AS (SELECT count(*) FROM customers LIMIT 0) SELECT COALESCE(pg_catalog.sum(tutti_f.c1), 0)::bigint AS count FROM ROWS FROM (pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c1) FROM tutti_z), <rows 0>)) ) tutti_f(c1)) TO STDOUT WITH CSV
        "#]],
    );
}

#[test]
fn refused() {
    check(
        "COPY customers FROM '/etc/passwd'",
        expect![[r#"
        0A000 COPY with a file is not supported
          It would be one on the server of a node, not the client's.
          Use COPY … FROM STDIN or TO STDOUT; in psql \copy does.
    "#]],
    );
    check(
        "COPY customers TO PROGRAM 'cat'",
        expect![[r#"
        0A000 COPY with a program is not supported
          It would be one on the server of a node, not the client's.
          Use COPY … FROM STDIN or TO STDOUT; in psql \copy does.
    "#]],
    );
    check(
        "COPY customers (nope) FROM STDIN",
        expect![[r#"
        42703 column "nope" of relation "customers" does not exist
    "#]],
    );
    check(
        "COPY big_orders FROM STDIN",
        expect![[r#"
        0A000 COPY into the view "public"."big_orders" is not supported
          Its rows would go through a trigger on one node.
          Copy into the table itself.
    "#]],
    );
    check(
        "COPY audited FROM STDIN",
        expect![[r#"
            0A000 writing to "public"."audited" would fire "audit"
              It runs inside the node that has the row, which sees its own rows only: function audit() writes (INSERT).
              Send its statements from the client; or, if all that it touches belongs to the row's key, say so: SELECT tutti_function('audit', 'row').
        "#]],
    );
    check(
        "COPY orders FROM STDIN (DEFAULT 'x')",
        expect![[r#"
        0A000 COPY with DEFAULT is not supported for this table
          The default of column "id" must be evaluated once for the whole cluster.
          Leave the column out of the column list, or the DEFAULT option out.
    "#]],
    );
    check(
        "COPY rates FROM STDIN WHERE random() < 0.5",
        expect![[r#"
            Rows(rates compared)
        "#]],
    );
}
