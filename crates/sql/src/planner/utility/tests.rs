//! Utility statements and schema changes, as texts.

use expect_test::{Expect, expect};

use super::super::fixture;
use super::bind_arguments;

fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&fixture::planned(sql, 3));
}

#[test]
fn transactions() {
    check("BEGIN", expect![[r#""#]]);
    check("START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE", expect![[r#""#]]);
    check("COMMIT AND CHAIN; ROLLBACK; END; ABORT", expect![[r#""#]]);
    check("SAVEPOINT a; RELEASE a; ROLLBACK TO SAVEPOINT \"B\"", expect![[r#""#]]);
    check("PREPARE TRANSACTION 'x'", expect![[r#""#]]);
}

#[test]
fn settings() {
    check("SET search_path TO a, b; SET LOCAL \"Work_Mem\" = '1MB'", expect![[r#""#]]);
    check("SET TIME ZONE 'UTC'; SET ROLE x; SET SESSION AUTHORIZATION DEFAULT", expect![[r#""#]]);
    check("SET NAMES 'latin1'; SET LOCAL TIME ZONE DEFAULT", expect![[r#""#]]);
    check("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", expect![[r#""#]]);
    check("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ WRITE", expect![[r#""#]]);
    check("SET TRANSACTION SNAPSHOT '1'", expect![[r#""#]]);
    check("SET transaction_isolation = 'serializable'", expect![[r#""#]]);
    check("RESET ALL; RESET timezone; SHOW ALL; SHOW TRANSACTION ISOLATION LEVEL", expect![[r#""#]]);
    check("DISCARD ALL; DISCARD TEMP; SET CONSTRAINTS ALL DEFERRED", expect![[r#""#]]);
    check("SELECT pg_catalog.set_config('Search_Path', '', false)", expect![[r#""#]]);
    check("SELECT set_config('a.b', NULL, 't'::boolean)", expect![[r#""#]]);
}

#[test]
fn functions_of_tutti() {
    check("SELECT tutti_distribute('orders', 'customer_id')", expect![[r#""#]]);
    check("SELECT tutti.tutti_replicate('items'::regclass)", expect![[r#""#]]);
    check("SELECT tutti_round_robin('events'); SELECT * FROM tutti_nodes()", expect![[r#""#]]);
    check("SELECT tutti_distribute('orders')", expect![[r#""#]]);
    check("SELECT tutti_version(1)", expect![[r#""#]]);
}

#[test]
fn prepared_statements() {
    check("PREPARE p (int, numeric(8, 2)) AS SELECT $1, $2", expect![[r#""#]]);
    check("PREPARE p AS INSERT INTO customers VALUES ($1, 'as')", expect![[r#""#]]);
    check("EXECUTE p (1 + 1, 'it''s')", expect![[r#""#]]);
    check("DEALLOCATE PREPARE p; DEALLOCATE ALL", expect![[r#""#]]);
}

#[test]
fn arguments_stand_in_for_parameters() {
    let bind = |text: &str, types: &[&str], arguments: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        match bind_arguments("p", text, &owned(types), &owned(arguments)) {
            Ok(text) => text,
            Err(refusal) => {
                format!("{} {} {:?}", refusal.sqlstate, refusal.message, refusal.detail)
            }
        }
    };
    expect![[r#""#]].assert_eq(&bind("SELECT $2, '$1', $1", &["int", "unknown"], &["1", "2"]));
    expect![[r#""#]].assert_eq(&bind("SELECT $1", &[], &["-1"]));
    expect![[r#""#]].assert_eq(&bind("SELECT $1", &["int"], &[]));
    expect![[r#""#]].assert_eq(&bind("SELECT $0", &[], &[]));
}

#[test]
fn cursors() {
    check("DECLARE c CURSOR FOR SELECT * FROM orders WHERE customer_id = 1", expect![[r#""#]]);
    check("DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT name FROM customers", expect![[r#""#]]);
    check("FETCH 10 FROM c; MOVE ALL IN c; CLOSE c; CLOSE ALL", expect![[r#""#]]);
}

#[test]
fn maintenance() {
    check("VACUUM FULL orders; ANALYZE; REINDEX TABLE orders; REINDEX SCHEMA public", expect![[r#""#]]);
    check("CLUSTER; CLUSTER orders USING i; CHECKPOINT", expect![[r#""#]]);
    check("VACUUM scratch; ANALYZE scratch (a); REINDEX TABLE scratch", expect![[r#""#]]);
    check("REINDEX TABLE CONCURRENTLY orders", expect![[r#""#]]);
    check("LOCK TABLE orders; LOCK TABLE scratch; LISTEN x; NOTIFY x, 'y'", expect![[r#""#]]);
}

#[test]
fn explain_cuts_out_the_statement() {
    check("EXPLAIN SELECT 1", expect![[r#""#]]);
    check("EXPLAIN ANALYZE VERBOSE SELECT * FROM customers WHERE id = 1", expect![[r#""#]]);
    check("EXPLAIN (ANALYZE off, FORMAT json) (SELECT 1)", expect![[r#""#]]);
    check("EXPLAIN (SELECT 1)", expect![[r#""#]]);
}

#[test]
fn code_that_one_node_can_run() {
    check("DO $$ BEGIN PERFORM 1; END $$", expect![[r#""#]]);
    check("DO $$ BEGIN UPDATE Orders SET total = 1; END $$", expect![[r#""#]]);
    check("DO $$ BEGIN PERFORM * FROM rates; END $$", expect![[r#""#]]);
    check("DO $$ BEGIN INSERT INTO rates VALUES ('x'); END $$", expect![[r#""#]]);
    check("DO $$ BEGIN PERFORM nextval('s'); END $$", expect![[r#""#]]);
    check("DO $$ BEGIN PERFORM * FROM big_orders; END $$", expect![[r#""#]]);
    check("CALL tidy(1); CALL place_order(1)", expect![[r#""#]]);
}

#[test]
fn schema_changes_run_everywhere() {
    check("CREATE TABLE s.t (id serial, a int) DISTRIBUTE BY HASH (a)", expect![[r#""#]]);
    check("CREATE TABLE IF NOT EXISTS t (a int GENERATED ALWAYS AS IDENTITY)", expect![[r#""#]]);
    check("CREATE TABLE p PARTITION OF orders FOR VALUES IN (1)", expect![[r#""#]]);
    check("CREATE TABLE p () INHERITS (x.orders) DISTRIBUTE BY REPLICATED", expect![[r#""#]]);
    check("CREATE INDEX ON orders (total); CREATE SCHEMA s; GRANT SELECT ON orders TO x", expect![[r#""#]]);
    check("DROP TABLE orders, items; ALTER TABLE orders RENAME TO o", expect![[r#""#]]);
    check("TRUNCATE orders RESTART IDENTITY; CREATE SEQUENCE s; ALTER SEQUENCE s RESTART", expect![[r#""#]]);
    check("COMMENT ON TABLE orders IS 'x'; CREATE VIEW v AS SELECT * FROM orders", expect![[r#""#]]);
    check("ALTER TABLE orders ADD COLUMN note text DEFAULT 'x', DROP COLUMN total", expect![[r#""#]]);
    check("CREATE MATERIALIZED VIEW m AS SELECT * FROM rates", expect![[r#""#]]);
}

#[test]
fn temporary_things_are_at_home() {
    check("CREATE TEMP TABLE x (a int); CREATE TABLE pg_temp.x (a int)", expect![[r#""#]]);
    check("CREATE INDEX ON scratch (a); ALTER TABLE scratch ADD b int; DROP TABLE scratch", expect![[r#""#]]);
    check("COMMENT ON COLUMN scratch.a IS 'x'; TRUNCATE scratch; GRANT SELECT ON scratch TO x", expect![[r#""#]]);
    check("CREATE VIEW v AS SELECT * FROM scratch", expect![[r#""#]]);
    check("DROP TABLE scratch, orders", expect![[r#""#]]);
    check("CREATE TEMP TABLE x (a int) DISTRIBUTE BY HASH (a)", expect![[r#""#]]);
}

#[test]
fn create_table_as() {
    check("CREATE TABLE t AS SELECT id, total FROM orders DISTRIBUTE BY HASH (id)", expect![[r#""#]]);
    check("CREATE TABLE IF NOT EXISTS s.t (a) AS VALUES (1) WITH NO DATA", expect![[r#""#]]);
    check("SELECT id INTO t FROM orders UNION SELECT 1", expect![[r#""#]]);
    check("CREATE TEMP TABLE x ON COMMIT DROP AS SELECT count(*) FROM orders", expect![[r#""#]]);
    check("CREATE TEMP TABLE x AS SELECT 1", expect![[r#""#]]);
    check("CREATE TABLE t AS EXECUTE p", expect![[r#""#]]);
}

#[test]
fn refused_schema_changes() {
    check("CREATE INDEX CONCURRENTLY i ON orders (id)", expect![[r#""#]]);
    check("DROP INDEX CONCURRENTLY i", expect![[r#""#]]);
    check("CREATE DATABASE x", expect![[r#""#]]);
    check("ALTER SYSTEM SET work_mem = '1MB'", expect![[r#""#]]);
    check("CREATE SCHEMA s CREATE TABLE t (a int)", expect![[r#""#]]);
    check("CREATE MATERIALIZED VIEW m AS SELECT * FROM big_orders", expect![[r#""#]]);
    check("ALTER TABLE orders DROP COLUMN customer_id", expect![[r#""#]]);
    check("ALTER TABLE orders ALTER COLUMN customer_id TYPE bigint", expect![[r#""#]]);
    check("ALTER TABLE rates ADD COLUMN seen timestamptz DEFAULT now()", expect![[r#""#]]);
    check("ALTER TABLE orders ADD COLUMN n serial", expect![[r#""#]]);
    check("ALTER TABLE orders ATTACH PARTITION rates FOR VALUES IN (1)", expect![[r#""#]]);
}
