//! Utility statements and schema changes, as texts.

use expect_test::{Expect, expect};

use super::super::fixture;
use super::bind_arguments;

fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&fixture::planned(sql, 3));
}

#[test]
fn transactions() {
    check(
        "BEGIN",
        expect![[r#"
            Transaction(Begin { modes: TransactionModes { isolation: None, read_only: None, deferrable: None }, start: false })
        "#]],
    );
    check(
        "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE",
        expect![[r#"
            Transaction(Begin { modes: TransactionModes { isolation: Some("serializable"), read_only: Some(true), deferrable: Some(true) }, start: true })
        "#]],
    );
    check(
        "COMMIT AND CHAIN; ROLLBACK; END; ABORT",
        expect![[r#"
        Transaction(Commit { chain: true })
        Transaction(Rollback { chain: false })
        Transaction(Commit { chain: false })
        Transaction(Rollback { chain: false })
    "#]],
    );
    check(
        "SAVEPOINT a; RELEASE a; ROLLBACK TO SAVEPOINT \"B\"",
        expect![[r#"
        Transaction(Savepoint("a"))
        Transaction(Release("a"))
        Transaction(RollbackTo("B"))
    "#]],
    );
    check(
        "PREPARE TRANSACTION 'x'",
        expect![[r#"
        Transaction(Prepare("x"))
    "#]],
    );
}

#[test]
fn settings() {
    check(
        "SET search_path TO a, b; SET LOCAL \"Work_Mem\" = '1MB'",
        expect![[r#"
        Setting(Set { name: "search_path" })
        Setting(SetLocal { name: "work_mem", to_default: false })
    "#]],
    );
    check(
        "SET TIME ZONE 'UTC'; SET ROLE x; SET SESSION AUTHORIZATION DEFAULT",
        expect![[r#"
        Setting(Set { name: "timezone" })
        Setting(Set { name: "role" })
        Setting(Reset { name: "session_authorization" })
    "#]],
    );
    check(
        "SET NAMES 'latin1'; SET LOCAL TIME ZONE DEFAULT",
        expect![[r#"
        Setting(Set { name: "client_encoding" })
        Setting(SetLocal { name: "timezone", to_default: true })
    "#]],
    );
    check(
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        expect![[r#"
            Setting(SetTransaction { modes: TransactionModes { isolation: None, read_only: Some(true), deferrable: None }, session: true, snapshot: false })
        "#]],
    );
    check(
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ WRITE",
        expect![[r#"
            Setting(SetTransaction { modes: TransactionModes { isolation: Some("repeatable read"), read_only: Some(false), deferrable: None }, session: false, snapshot: false })
        "#]],
    );
    check(
        "SET TRANSACTION SNAPSHOT '1'",
        expect![[r#"
            Setting(SetTransaction { modes: TransactionModes { isolation: None, read_only: None, deferrable: None }, session: false, snapshot: true })
        "#]],
    );
    check(
        "SET transaction_isolation = 'serializable'",
        expect![[r#"
            Setting(SetTransaction { modes: TransactionModes { isolation: Some("serializable"), read_only: None, deferrable: None }, session: false, snapshot: false })
        "#]],
    );
    check(
        "RESET ALL; RESET timezone; SHOW ALL; SHOW TRANSACTION ISOLATION LEVEL",
        expect![[r#"
        Setting(ResetAll)
        Setting(Reset { name: "timezone" })
        Setting(Show { name: "all" })
        Setting(Show { name: "transaction_isolation" })
    "#]],
    );
    check(
        "DISCARD ALL; DISCARD TEMP; SET CONSTRAINTS ALL DEFERRED; SET CONSTRAINTS a, s.\"B\" IMMEDIATE",
        expect![[r#"
        Setting(Discard { what: "all" })
        Setting(Discard { what: "temp" })
        Setting(SetConstraints { names: [], deferred: true })
        Setting(SetConstraints { names: ["\"a\"", "\"s\".\"B\""], deferred: false })
    "#]],
    );
    check(
        "SELECT pg_catalog.set_config('Search_Path', '', false)",
        expect![[r#"
        Setting(SetConfig { name: "search_path", value: Some(""), local: false })
    "#]],
    );
    check(
        "SELECT set_config('a.b', NULL, 't'::boolean)",
        expect![[r#"
        Setting(SetConfig { name: "a.b", value: None, local: true })
    "#]],
    );
}

#[test]
fn functions_of_tutti() {
    check(
        "SELECT tutti_distribute('orders', 'customer_id')",
        expect![[r#"
        Tutti(Distribute { function: "tutti_distribute", tables: [("orders", Hash("customer_id"))] })
    "#]],
    );
    check(
        "SELECT tutti.tutti_replicate('items'::regclass)",
        expect![[r#"
        Tutti(Distribute { function: "tutti_replicate", tables: [("items", Replicated)] })
    "#]],
    );
    check(
        "SELECT tutti_round_robin('events'); SELECT * FROM tutti_nodes()",
        expect![[r#"
            Tutti(Distribute { function: "tutti_round_robin", tables: [("events", RoundRobin)] })
            Tutti(Show(Nodes))
        "#]],
    );
    check(
        "ALTER TABLE orders DISTRIBUTE BY HASH (customer_id); ALTER TABLE IF EXISTS \"S 1\".\"T\" DISTRIBUTE BY HOME CASCADE",
        expect![[r#"
            Tutti(Place(Placing { table: "\"orders\"", distribute_by: Hash("customer_id"), if_exists: false, cascades: false }))
            Tutti(Place(Placing { table: "\"S 1\".\"T\"", distribute_by: Home, if_exists: true, cascades: true }))
        "#]],
    );
    check(
        "ALTER TABLE ONLY orders DISTRIBUTE BY REPLICATED",
        expect![[r#"
            0A000 ALTER TABLE ONLY … DISTRIBUTE BY is not supported
              Rows of partitions and children are rows of their parent, and must be where the parent's are.
              Leave out ONLY.
        "#]],
    );
    check(
        "ALTER TABLE tutti.placement DISTRIBUTE BY HOME",
        expect![[r#"
            42501 permission denied for schema tutti
              It is the cluster's own catalog, which gateways keep.
              Leave it out of dumps that are restored: pg_dump --exclude-schema=tutti.
        "#]],
    );
    check(
        "SELECT tutti_distribute('orders')",
        expect![[r#"
            42883 function tutti_distribute with these arguments does not exist
              Tutti's functions are tutti_distribute('table', 'column', …), tutti_replicate('table', …), tutti_round_robin('table', …), tutti_home('table', …), tutti_function('function', 'row' or 'replicated' or 'home'), tutti_outcome('gid'), tutti_version(), tutti_nodes(), tutti_tables(), tutti_functions(), tutti_in_doubt(), tutti_lag(), tutti_progress(), tutti_check(); their arguments are literals. Those for requests, whose arguments may be parameters, are tutti_begin('request', instance), tutti_remember('result'), tutti_prepare('request', instance, 'asked', 'result'), tutti_commit('request', instance), tutti_request('request').
        "#]],
    );
    check(
        "SELECT count(*) FROM tutti_tables()",
        expect![[r#"
            0A000 tutti_tables() stands alone in its statement
              The gateway answers it, and no server has it.
              SELECT * FROM tutti_tables()
        "#]],
    );
    check(
        "SELECT tutti_version(1)",
        expect![[r#"
            42883 function tutti_version with these arguments does not exist
              Tutti's functions are tutti_distribute('table', 'column', …), tutti_replicate('table', …), tutti_round_robin('table', …), tutti_home('table', …), tutti_function('function', 'row' or 'replicated' or 'home'), tutti_outcome('gid'), tutti_version(), tutti_nodes(), tutti_tables(), tutti_functions(), tutti_in_doubt(), tutti_lag(), tutti_progress(), tutti_check(); their arguments are literals. Those for requests, whose arguments may be parameters, are tutti_begin('request', instance), tutti_remember('result'), tutti_prepare('request', instance, 'asked', 'result'), tutti_commit('request', instance), tutti_request('request').
        "#]],
    );
}

#[test]
fn prepared_statements() {
    check(
        "PREPARE p (int, numeric(8, 2)) AS SELECT $1, $2",
        expect![[r#"
        PreparedCommand(Prepare { name: "p", types: ["int", "numeric(8, 2)"], text: "SELECT $1, $2" })
    "#]],
    );
    check(
        "PREPARE p AS INSERT INTO customers VALUES ($1, 'as')",
        expect![[r#"
        PreparedCommand(Prepare { name: "p", types: [], text: "INSERT INTO customers VALUES ($1, 'as')" })
    "#]],
    );
    check(
        "EXECUTE p (1 + 1, 'it''s')",
        expect![[r#"
        PreparedCommand(Execute { name: "p", arguments: ["1 + 1", "'it''s'"] })
    "#]],
    );
    check(
        "DEALLOCATE PREPARE p; DEALLOCATE ALL",
        expect![[r#"
        PreparedCommand(Deallocate(Some("p")))
        PreparedCommand(Deallocate(None))
    "#]],
    );
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
    expect!["SELECT (2), '$1', ((1)::int)"].assert_eq(&bind(
        "SELECT $2, '$1', $1",
        &["int", "unknown"],
        &["1", "2"],
    ));
    expect!["SELECT (-1)"].assert_eq(&bind("SELECT $1", &[], &["-1"]));
    expect![[r#"42601 wrong number of parameters for prepared statement "p" Some("Expected 1 parameters but got 0.")"#]].assert_eq(&bind("SELECT $1", &["int"], &[]));
    expect!["42P02 there is no parameter $0 None"].assert_eq(&bind("SELECT $0", &[], &[]));
}

#[test]
fn cursors() {
    check(
        "DECLARE c CURSOR FOR SELECT * FROM orders WHERE customer_id = 1",
        expect![[r#"
            declare c
              one pinned bucket 838 Read
        "#]],
    );
    check(
        "DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT name FROM customers",
        expect![[r#"
            declare c
              gather on One(Any) Read
                SELECT ROW(NULL, "customers"."name")::pg_catalog.text FROM "public"."customers" AS "customers" ("id", "name") from AllNodes
                DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT name FROM pg_catalog.unnest(<rows 0>::public.customers[]) customers
                or CREATE TEMPORARY TABLE pg_temp.tutti_rows_0 ON COMMIT DROP AS SELECT "name" FROM pg_catalog.unnest(<rows 0>::"public"."customers"[]) AS tutti_f
                  ANALYZE pg_temp.tutti_rows_0
                  DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT name FROM pg_temp.tutti_rows_0 customers
        "#]],
    );
    check(
        "FETCH 10 FROM c; MOVE ALL IN c; CLOSE c; CLOSE ALL",
        expect![[r#"
        Cursor { name: Some("c"), close: false }
        Cursor { name: Some("c"), close: false }
        Cursor { name: Some("c"), close: true }
        Cursor { name: None, close: true }
    "#]],
    );
}

#[test]
fn maintenance() {
    check(
        "VACUUM FULL orders; ANALYZE; REINDEX TABLE orders; REINDEX SCHEMA public",
        expect![[r#"
            EveryNodeAlone { refuses_transaction: true, others: None }
            EveryNodeAlone { refuses_transaction: false, others: None }
            EveryNodeAlone { refuses_transaction: false, others: None }
            EveryNodeAlone { refuses_transaction: true, others: None }
        "#]],
    );
    check(
        "CLUSTER; CLUSTER orders USING i; CHECKPOINT",
        expect![[r#"
            EveryNodeAlone { refuses_transaction: true, others: None }
            EveryNodeAlone { refuses_transaction: false, others: None }
            EveryNodeAlone { refuses_transaction: false, others: None }
        "#]],
    );
    check(
        "VACUUM scratch; ANALYZE scratch (a); REINDEX TABLE scratch",
        expect![[r#"
        one home Write
        one home Write
        one home Write
    "#]],
    );
    check(
        "REINDEX TABLE CONCURRENTLY orders",
        expect![[r#"
        EveryNodeAlone { refuses_transaction: true, others: None }
    "#]],
    );
    check(
        "LOCK TABLE orders; LOCK TABLE scratch; LISTEN x; NOTIFY x, 'y'",
        expect![[r#"
            LockEverywhere { others: None, before: Some(LockBefore { home: "LOCK TABLE orders IN EXCLUSIVE MODE", others: "LOCK TABLE orders IN EXCLUSIVE MODE" }) }
            one home Write
            Notification { listens: true }
            Notification { listens: false }
        "#]],
    );
}

#[test]
fn explain_cuts_out_the_statement() {
    check(
        "EXPLAIN SELECT 1",
        expect![[r#"
            explain "EXPLAIN " "SELECT 1" analyze false Text
              one speaker Read
        "#]],
    );
    check(
        "EXPLAIN ANALYZE VERBOSE SELECT * FROM customers WHERE id = 1",
        expect![[r#"
            explain "EXPLAIN ANALYZE VERBOSE " "SELECT * FROM customers WHERE id = 1" analyze true Text
              running nothing: "EXPLAIN (\"verbose\" ) "
              one pinned bucket 838 Read
        "#]],
    );
    check(
        "EXPLAIN (ANALYZE off, FORMAT json) (SELECT 1)",
        expect![[r#"
            explain "EXPLAIN (\"analyze\" 'off', FORMAT JSON) " "(SELECT 1)" analyze false Json
              one speaker Read
        "#]],
    );
    check(
        "EXPLAIN (SELECT 1)",
        expect![[r#"
            explain "EXPLAIN " "(SELECT 1)" analyze false Text
              one speaker Read
        "#]],
    );
}

#[test]
fn code_that_one_node_can_run() {
    check(
        "DO $$ BEGIN PERFORM 1; END $$",
        expect![[r#"
        one home Write
    "#]],
    );
    check(
        "DO $$ BEGIN UPDATE Orders SET total = 1; END $$",
        expect![[r#"
            one home Write
        "#]],
    );
    check(
        "DO $$ BEGIN PERFORM * FROM rates; END $$",
        expect![[r#"
        one home Write
    "#]],
    );
    check(
        "DO $$ BEGIN INSERT INTO rates VALUES ('x'); END $$",
        expect![[r#"
            one home Write
        "#]],
    );
    check(
        "DO $$ BEGIN PERFORM nextval('s'); END $$",
        expect![[r#"
            one home Write
        "#]],
    );
    check(
        "DO $$ BEGIN PERFORM * FROM big_orders; END $$",
        expect![[r#"
            one home Write
        "#]],
    );
    check(
        "CALL tidy(1); CALL place_order(1)",
        expect![[r#"
            one home Write
            one home Write
        "#]],
    );
}

#[test]
fn schema_changes_run_everywhere() {
    check(
        "CREATE TABLE s.t (id serial, a int) DISTRIBUTE BY HASH (a)",
        expect![[r#"
            Ddl(Ddl { creates: Some(CreatedTable { schema: Some("s"), name: "t", distribute_by: Some(Hash("a")), parent: None, follows: false, if_not_exists: false, filled_by: None }), may_drop: false, touches_sequences: true, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "CREATE TABLE IF NOT EXISTS t (a int GENERATED ALWAYS AS IDENTITY)",
        expect![[r#"
            Ddl(Ddl { creates: Some(CreatedTable { schema: None, name: "t", distribute_by: None, parent: None, follows: false, if_not_exists: true, filled_by: None }), may_drop: false, touches_sequences: true, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "CREATE TABLE p PARTITION OF orders FOR VALUES IN (1)",
        expect![[r#"
            Ddl(Ddl { creates: Some(CreatedTable { schema: None, name: "p", distribute_by: None, parent: Some((None, "orders")), follows: false, if_not_exists: false, filled_by: None }), may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "CREATE TABLE p () INHERITS (x.orders) DISTRIBUTE BY REPLICATED",
        expect![[r#"
        0A000 a partition or child table cannot have a placement of its own
          Its rows are rows of its parent and must be where the parent's are.
          Leave out DISTRIBUTE BY.
    "#]],
    );
    check(
        "CREATE INDEX ON orders (total); CREATE SCHEMA s; GRANT SELECT ON orders TO x",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: false, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "DROP TABLE orders, items; ALTER TABLE orders RENAME TO o",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: true, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
            Ddl(Ddl { creates: None, may_drop: true, touches_sequences: false, scope: AllNodes, of_relations: false, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "TRUNCATE orders RESTART IDENTITY; CREATE SEQUENCE s; ALTER SEQUENCE s RESTART",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: true, scope: AllNodes, of_relations: false, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: true, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: true, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "COMMENT ON TABLE orders IS 'x'; CREATE VIEW v AS SELECT * FROM orders",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "ALTER TABLE orders ADD COLUMN note text DEFAULT 'x', DROP COLUMN total",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM rates",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
}

#[test]
fn temporary_things_are_at_home() {
    check(
        "CREATE TEMP TABLE x (a int); CREATE TABLE pg_temp.x (a int)",
        expect![[r#"
            temporary
            temporary
        "#]],
    );
    check(
        "CREATE INDEX ON scratch (a); ALTER TABLE scratch ADD b int; DROP TABLE scratch",
        expect![[r#"
            temporary
            temporary
            temporary
        "#]],
    );
    check(
        "COMMENT ON COLUMN scratch.a IS 'x'; TRUNCATE scratch; GRANT SELECT ON scratch TO x",
        expect![[r#"
            temporary
            temporary
            temporary
        "#]],
    );
    check(
        "CREATE VIEW v AS SELECT * FROM scratch",
        expect![[r#"
            temporary
        "#]],
    );
    check(
        "DROP TABLE scratch, orders",
        expect![[r#"
        0A000 temporary and other relations cannot be changed by one statement
          Temporary ones are on node 1, the others on all nodes.
          Write one statement for the temporary ones and one for the others.
    "#]],
    );
    check(
        "CREATE TEMP TABLE x (a int) DISTRIBUTE BY HASH (a)",
        expect![[r#"
        0A000 a temporary table cannot be distributed
          Temporary tables are on node 1 only.
          Leave out TEMPORARY or DISTRIBUTE BY.
    "#]],
    );
}

#[test]
fn create_table_as() {
    check(
        "CREATE TABLE t AS SELECT id, total FROM orders DISTRIBUTE BY HASH (id)",
        expect![[r#"
            CreateTableAs { ddl: Ddl { creates: Some(CreatedTable { schema: None, name: "t", distribute_by: Some(Hash("id")), parent: None, follows: false, if_not_exists: false, filled_by: Some("INSERT INTO \"t\" SELECT id, total FROM orders") }), may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None }, create: "CREATE TABLE t AS SELECT id, total FROM orders  WITH NO DATA", insert: Some("INSERT INTO \"t\" SELECT id, total FROM orders") }
        "#]],
    );
    check(
        "CREATE TABLE IF NOT EXISTS s.t (a) AS VALUES (1) WITH NO DATA",
        expect![[r#"
            CreateTableAs { ddl: Ddl { creates: Some(CreatedTable { schema: Some("s"), name: "t", distribute_by: None, parent: None, follows: false, if_not_exists: true, filled_by: None }), may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None }, create: "CREATE TABLE IF NOT EXISTS s.t(a) AS VALUES (1)  WITH NO DATA", insert: None }
        "#]],
    );
    check(
        "SELECT id INTO t FROM orders UNION SELECT 1",
        expect![[r#"
            CreateTableAs { ddl: Ddl { creates: Some(CreatedTable { schema: None, name: "t", distribute_by: None, parent: None, follows: false, if_not_exists: false, filled_by: Some("INSERT INTO \"t\" SELECT id FROM orders UNION SELECT 1") }), may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: false, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None }, create: "CREATE TABLE t AS SELECT id FROM orders UNION SELECT 1  WITH NO DATA", insert: Some("INSERT INTO \"t\" SELECT id FROM orders UNION SELECT 1") }
        "#]],
    );
    check(
        "CREATE TEMP TABLE x ON COMMIT DROP AS SELECT count(*) FROM orders",
        expect![[r#"
            temporary
              gather on One(Home) Write
                SELECT ROW(NULL, NULL, NULL, NULL)::pg_catalog.text FROM "public"."orders" AS "orders" ("id", "customer_id", "total", "placed") from AllNodes
                CREATE TEMPORARY TABLE x ON COMMIT DROP AS SELECT count(*) FROM pg_catalog.unnest(<rows 0>::public.orders[]) orders
        "#]],
    );
    check(
        "CREATE TEMP TABLE x AS SELECT 1",
        expect![[r#"
            temporary
        "#]],
    );
    check(
        "CREATE TABLE t AS EXECUTE p",
        expect![[r#"
            PreparedCommand(Within { before: "CREATE TABLE t AS ", name: "p", arguments: [], after: "" })
        "#]],
    );
}

#[test]
fn refused_schema_changes() {
    check(
        "CREATE UNIQUE INDEX CONCURRENTLY i ON orders (id)",
        expect![[r#"
            0A000 unique constraint "i" of table "orders" cannot be enforced
              Table "orders" is distributed by "customer_id". Rows that differ in it can be on different nodes, where no node can check the constraint.
              Include "customer_id" in the unique constraint, or make the table REPLICATED.
        "#]],
    );
    check(
        "CREATE UNIQUE INDEX CONCURRENTLY ON events (what)",
        expect![[r#"
            0A000 a unique index of table "events" cannot be enforced
              The rows of round robin table "events" can be on any node, where no node can check the constraint.
              Distribute the table BY HASH of a column of the unique constraint, or make it REPLICATED.
        "#]],
    );
    check(
        "CREATE DATABASE x",
        expect![[r#"
        0A000 databases are not created, changed or dropped through Tutti
          A cluster serves one database, which has a name of its own on every node.
          Run the statement on each node directly; for a place of its own use CREATE SCHEMA.
    "#]],
    );
    check(
        "ALTER SYSTEM SET work_mem = '1MB'",
        expect![[r#"
        0A000 ALTER SYSTEM is not supported
          It changes one server's configuration file and cannot be undone with the others.
          Change the configuration of each node directly.
    "#]],
    );
    check(
        "CREATE SCHEMA s CREATE TABLE t (a int)",
        expect![[r#"
        0A000 CREATE SCHEMA with objects inside is not supported
          Each table needs a placement of its own.
          Create the schema first and the objects in it by statements of their own.
    "#]],
    );
    check(
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM big_orders",
        expect![[r#"
        0A000 a materialized view over distributed tables is not supported
          Each node would fill its own copy from its own share of "public"."orders".
          Use CREATE TABLE … AS and fill it again when it shall be refreshed.
    "#]],
    );
    check(
        "ALTER TABLE orders DROP COLUMN customer_id",
        expect![[r#"
        0A000 column "customer_id" cannot be dropped
          It is the distribution key of "public"."orders": its value says on which node a row is.
          Distribute the table by another column first (tutti_distribute, tutti_replicate, tutti_round_robin).
    "#]],
    );
    check(
        "ALTER TABLE orders ALTER COLUMN customer_id TYPE bigint",
        expect![[r#"
        0A000 column "customer_id" cannot be changed to another type
          It is the distribution key of "public"."orders": its value says on which node a row is.
          Make the table replicated or round robin first (tutti_distribute, tutti_replicate, tutti_round_robin).
    "#]],
    );
    check(
        "ALTER TABLE rates ADD COLUMN seen timestamptz DEFAULT now()",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: Some(Computed { text: Some(Template([Sql("ALTER TABLE rates ADD COLUMN seen timestamptz DEFAULT "), Time("now()::timestamptz"), Sql(", ALTER COLUMN seen SET DEFAULT now()")])), draws: [], afterwards: None }), fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "ALTER TABLE orders ADD COLUMN n serial",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: true, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: Some(Computed { text: None, draws: [Draws { table: "\"public\".\"orders\"", column: "n", sequence: None }], afterwards: None }), fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "ALTER TABLE orders ATTACH PARTITION rates FOR VALUES IN (1)",
        expect![[r#"
        0A000 "public"."rates" is placed differently from "public"."orders"
          The rows of a child table are rows of its parent and must be where the parent's are.
          Give the child the parent's placement first (tutti_distribute and its kin).
    "#]],
    );
}

#[test]
fn constants_are_arguments_that_need_no_server() {
    use super::{are_constants, name_parameters, say_queries};
    let is_constant = |argument: &str, of: &str| are_constants(&[argument.into()], &[of.into()]);
    for (argument, of) in [
        ("1", "pg_catalog.int4"),
        ("-1", "pg_catalog.\"numeric\""),
        ("'x'", "mal.d"),
        ("NULL", "pg_catalog.date"),
        ("true", "pg_catalog.bool"),
        ("9000000000", "pg_catalog.text"),
    ] {
        assert!(is_constant(argument, of), "{argument} {of}");
    }
    for (argument, of) in [
        ("true", "pg_catalog.int4"),
        ("1", "pg_catalog.bool"),
        ("1", "mal.int4"),
        ("1", "pg_catalog.oid"),
        ("1 + 1", "pg_catalog.int4"),
        ("k", "pg_catalog.int4"),
        ("'a'::text", "pg_catalog.text"),
        ("- 'a'", "pg_catalog.int4"),
    ] {
        assert!(!is_constant(argument, of), "{argument} {of}");
    }
    assert!(name_parameters(&["1".into(), "$1".into()]) && !name_parameters(&["'$1'".into()]));
    assert!(say_queries(&["(SELECT 1)".into()]) && !say_queries(&["'select'".into()]));
}

#[test]
fn indexes_without_a_transaction() {
    check(
        "CREATE INDEX CONCURRENTLY i ON orders (id)",
        expect![[r#"
            Concurrently(Added(AddedIndex { schema: "public", table: "orders", name: Written("i"), if_not_exists: false }))
        "#]],
    );
    check(
        "CREATE INDEX CONCURRENTLY ON orders (id, upper(note)) INCLUDE (customer_id)",
        expect![[r#"
            Concurrently(Added(AddedIndex { schema: "public", table: "orders", name: Unnamed(Unnamed { table: "orders", columns: "id_upper_customer_id", before: "CREATE INDEX CONCURRENTLY ", behind: " ON orders USING btree (id, upper(note)) INCLUDE (customer_id)" }), if_not_exists: false }))
        "#]],
    );
    check(
        "CREATE UNIQUE INDEX CONCURRENTLY i ON orders (id, customer_id)",
        expect![[r#"
            Concurrently(Added(AddedIndex { schema: "public", table: "orders", name: Written("i"), if_not_exists: false }))
        "#]],
    );
    check(
        "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON rates (rate)",
        expect![[r#"
            Concurrently(Added(AddedIndex { schema: "public", table: "rates", name: Written("i"), if_not_exists: true }))
        "#]],
    );
    check(
        "DROP INDEX CONCURRENTLY i",
        expect![[r#"
            Concurrently(Dropped(DroppedIndex { name: Some("\"i\""), if_exists: false }))
        "#]],
    );
    check(
        "DROP INDEX CONCURRENTLY IF EXISTS public.i",
        expect![[r#"
            Concurrently(Dropped(DroppedIndex { name: Some("\"public\".\"i\""), if_exists: true }))
        "#]],
    );
    check(
        "DROP INDEX CONCURRENTLY i, j",
        expect![[r#"
            Concurrently(Dropped(DroppedIndex { name: None, if_exists: false }))
        "#]],
    );
}

#[test]
fn values_of_added_columns() {
    check(
        "ALTER TABLE orders ADD COLUMN at timestamptz NOT NULL DEFAULT now(), DROP COLUMN note",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: Some(Computed { text: Some(Template([Sql("ALTER TABLE orders ADD COLUMN at timestamptz NOT NULL DEFAULT "), Time("now()::timestamptz"), Sql(", ALTER COLUMN at SET DEFAULT now(), DROP note")])), draws: [], afterwards: None }), fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "ALTER TABLE orders ADD COLUMN IF NOT EXISTS since varchar(9) DEFAULT 'today'",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "ALTER TABLE orders ADD COLUMN day date DEFAULT 'today'",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: Some(Computed { text: Some(Template([Sql("ALTER TABLE orders ADD COLUMN day date DEFAULT "), Time("'today'::date"), Sql("")])), draws: [], afterwards: None }), fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "ALTER TABLE orders DROP COLUMN total, ADD COLUMN IF NOT EXISTS total text DEFAULT now()",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: Some(Computed { text: Some(Template([Sql("ALTER TABLE orders DROP total, ADD COLUMN total text DEFAULT "), Time("now()::text"), Sql(", ALTER COLUMN total SET DEFAULT now()")])), draws: [], afterwards: None }), fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "ALTER TABLE orders ADD COLUMN r float DEFAULT random() + 1",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: false, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: None, fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "ALTER TABLE orders ADD COLUMN r timestamptz DEFAULT now() + random() * interval '1 day'",
        expect![[r#"
            0A000 column "r" cannot be computed on each node
              The rows that are there get its value from an expression that each node would evaluate for itself, with different results.
              Add the column without the default, set it with UPDATE, then ALTER COLUMN … SET DEFAULT.
        "#]],
    );
    check(
        "ALTER TABLE orders ADD COLUMN c char(3) DEFAULT now()",
        expect![[r#"
            0A000 column "c" cannot be computed on each node
              The rows that are there get its value from an expression that each node would evaluate for itself, with different results.
              Add the column without the default, set it with UPDATE, then ALTER COLUMN … SET DEFAULT.
        "#]],
    );
    check(
        "ALTER TABLE orders ADD COLUMN n bigint DEFAULT nextval('s'), ADD COLUMN i int GENERATED ALWAYS AS IDENTITY",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: true, scope: AllNodes, of_relations: true, rows: None, names_role: None, computed: Some(Computed { text: None, draws: [Draws { table: "\"public\".\"orders\"", column: "n", sequence: Some("s") }, Draws { table: "\"public\".\"orders\"", column: "i", sequence: None }], afterwards: None }), fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
    check(
        "ALTER TABLE rates ADD COLUMN i int GENERATED ALWAYS AS IDENTITY",
        expect![[r#"
            Ddl(Ddl { creates: None, may_drop: false, touches_sequences: true, scope: AllNodes, of_relations: true, rows: Some(rates compared), names_role: None, computed: Some(Computed { text: Some(Template([Sql("ALTER TABLE rates ADD COLUMN i int GENERATED BY DEFAULT AS IDENTITY")])), draws: [], afterwards: Some("ALTER TABLE \"public\".\"rates\" ALTER COLUMN \"i\" SET GENERATED ALWAYS") }), fills: None, global_unique: None, foreign_keys: None, truncates: None })
        "#]],
    );
}
