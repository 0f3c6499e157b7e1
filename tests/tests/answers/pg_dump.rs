//! pg_dump through the gateway: one moment of the whole cluster, although money moves meanwhile.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::client::Client;
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::{programs, servers};

const ACCOUNTS: i64 = 200;
const TOTAL: i64 = ACCOUNTS * 100;
const TABLES: &str = "
    CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL) DISTRIBUTE BY HASH (id);
    CREATE TABLE branches (id int PRIMARY KEY, city text);
    INSERT INTO accounts SELECT n, 100 FROM generate_series(1, 200) n;
    INSERT INTO branches VALUES (1, 'Basel'), (2, 'Bern')";

/// Goal: a dump is a snapshot of all nodes, and can be restored. Method: dump while transfers over
/// nodes run, restore into one plain PostgreSQL, add up.
#[test]
fn a_dump_under_load_holds_all_money_and_can_be_restored() -> Result<()> {
    let Some(pg_dump) = programs::postgresql_program("pg_dump") else { return Ok(()) };
    let Some(psql) = programs::postgresql_program("psql") else { return Ok(()) };
    let cluster = TestCluster::start(3)?;
    Client::connect(&cluster.endpoint())?.query(TABLES)?;

    let done = AtomicBool::new(false);
    let dumps = thread::scope(|scope| -> Result<Vec<String>> {
        let (cluster, done) = (&cluster, &done);
        let movers: Vec<_> =
            (0..2).map(|mover| scope.spawn(move || move_money(cluster, mover, done))).collect();
        let dumps = (0..3)
            .map(|_| {
                let mut command = Command::new(&pg_dump);
                command.args(["--table=accounts", "--table=branches"]);
                programs::run(command.arg(cluster.endpoint().url()))
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        for mover in movers {
            let moved = mover.join().expect("a mover does not panic")?;
            ensure!(0 < moved, "no money moved");
        }
        dumps
    })?;

    for dump in dumps {
        let plain = servers::start(1)?;
        let endpoint = servers::endpoint(&plain, 0);
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), &dump)?;
        let mut restore = Command::new(&psql);
        restore.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(file.path());
        programs::run(restore.arg(endpoint.url()))?;
        let mut restored = Client::connect(&endpoint)?;
        let sum: i64 = restored.value("SELECT sum(balance) FROM accounts")?.parse()?;
        ensure!(sum == TOTAL, "the dump holds {sum}, not {TOTAL}");
        ensure!(restored.value("SELECT count(*) FROM accounts")? == ACCOUNTS.to_string());
        ensure!(restored.value("SELECT count(*) FROM branches")? == "2");
    }
    Ok(())
}

/// The whole database, where tables are home by default and some have been spread.
#[test]
fn a_database_with_tables_at_home_and_spread_ones_can_be_dumped() -> Result<()> {
    let Some(pg_dump) = programs::postgresql_program("pg_dump") else { return Ok(()) };
    let servers = servers::start(2)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(TABLES)?;
    client.query(
        "CREATE TABLE cities (name text PRIMARY KEY) DISTRIBUTE BY REPLICATED;
        INSERT INTO cities VALUES ('Basel'); CREATE VIEW of_both AS SELECT * FROM branches, cities",
    )?;
    let dump = programs::run(Command::new(&pg_dump).arg(cluster.endpoint().url()))?;
    for (table, rows) in [("accounts", 200), ("branches", 2), ("cities", 1)] {
        let copy = format!("COPY public.{table} (");
        let data = dump.split_once(&copy).with_context(|| format!("no rows of {table}"))?.1;
        let found = data.lines().skip(1).take_while(|line| *line != "\\.").count();
        ensure!(found == rows, "{table} has {found} rows in the dump");
    }
    Ok(())
}

/// Everything that a table can have, one statement a line.
const EVERYTHING: &str = r#"CREATE ROLE test_dump_1
CREATE ROLE test_dump_2
CREATE SCHEMA s
COMMENT ON SCHEMA s IS 'of the schema'
GRANT USAGE ON SCHEMA s TO test_dump_1
CREATE TYPE s.e AS ENUM ('a', 'b''c')
COMMENT ON TYPE s.e IS 'of the type'
GRANT USAGE ON TYPE s.e TO test_dump_1
CREATE DOMAIN s.d AS int CONSTRAINT positive CHECK (value > 0)
COMMENT ON DOMAIN s.d IS 'of the domain'
COMMENT ON CONSTRAINT positive ON DOMAIN s.d IS 'of its constraint'
CREATE COLLATION s.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)
COMMENT ON COLLATION s.ci IS 'of the collation'
CREATE FUNCTION s.f() RETURNS trigger LANGUAGE plpgsql AS 'begin return new; end'
COMMENT ON FUNCTION s.f() IS 'of the function'
REVOKE EXECUTE ON FUNCTION s.f() FROM PUBLIC
GRANT EXECUTE ON FUNCTION s.f() TO test_dump_2
CREATE SEQUENCE s.q INCREMENT 3 MINVALUE 2 MAXVALUE 999 START 5 CACHE 7
COMMENT ON SEQUENCE s.q IS 'of the sequence'
GRANT USAGE ON SEQUENCE s.q TO test_dump_2
CREATE TABLE s.r (id int PRIMARY KEY)
CREATE TABLE s.t (id int GENERATED BY DEFAULT AS IDENTITY (INCREMENT BY 5 START 10 MAXVALUE 9999 CACHE 3), k int NOT NULL, t text COLLATE s.ci, c varchar(5) COLLATE "C", e s.e DEFAULT 'a', d s.d, b bigserial, n int DEFAULT nextval('s.q'), g int GENERATED ALWAYS AS (k * 2) STORED, j jsonb, r int4range, a text[] DEFAULT '{}', m numeric(10,2), u int, "Odd Col" text, CONSTRAINT pk PRIMARY KEY (id, k) INCLUDE (c) WITH (fillfactor = 70), CONSTRAINT ck CHECK (k > 0) NO INHERIT, CONSTRAINT uq UNIQUE NULLS NOT DISTINCT (k, u) DEFERRABLE INITIALLY DEFERRED) WITH (fillfactor = 80, autovacuum_enabled = off, toast.autovacuum_enabled = false)
ALTER TABLE s.t ADD CONSTRAINT ckn CHECK (u < 1000) NOT VALID
ALTER TABLE s.t ALTER t SET STORAGE EXTERNAL
ALTER TABLE s.t ALTER j SET COMPRESSION pglz
ALTER TABLE s.t ALTER m SET STATISTICS 77
ALTER TABLE s.t ALTER m SET (n_distinct = 5)
CREATE INDEX i1 ON s.t (c text_pattern_ops DESC NULLS LAST, lower(t)) INCLUDE (m) WITH (fillfactor = 60) WHERE u > 3
CREATE INDEX i2 ON s.t USING gin (j jsonb_path_ops) WITH (fastupdate = off)
CREATE INDEX i3 ON s.t ((k + 1))
ALTER INDEX s.i3 ALTER COLUMN 1 SET STATISTICS 55
CREATE UNIQUE INDEX i4 ON s.t (k, id)
ALTER TABLE s.t CLUSTER ON i4
ALTER TABLE s.t REPLICA IDENTITY USING INDEX i4
CREATE STATISTICS s.st (ndistinct, dependencies) ON k, u FROM s.t
ALTER STATISTICS s.st SET STATISTICS 33
CREATE STATISTICS s.st2 ON (k + 1), u FROM s.t
COMMENT ON STATISTICS s.st IS 'of the statistics'
COMMENT ON TABLE s.t IS 'of the table'
COMMENT ON COLUMN s.t.m IS 'of a column'
COMMENT ON CONSTRAINT ck ON s.t IS 'of a check'
COMMENT ON CONSTRAINT pk ON s.t IS 'of the key'
COMMENT ON INDEX s.i1 IS 'of an index'
COMMENT ON INDEX s.pk IS 'of the key''s index'
COMMENT ON SEQUENCE s.t_id_seq IS 'of the identity'
GRANT SELECT ON SEQUENCE s.t_b_seq TO test_dump_1
CREATE TRIGGER t1 BEFORE UPDATE OF m ON s.t FOR EACH ROW WHEN (old.m IS DISTINCT FROM new.m) EXECUTE FUNCTION s.f('x', 'y')
CREATE TRIGGER t2 AFTER INSERT ON s.t FOR EACH ROW EXECUTE FUNCTION s.f()
CREATE CONSTRAINT TRIGGER t3 AFTER INSERT ON s.t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION s.f()
ALTER TABLE s.t DISABLE TRIGGER t1
ALTER TABLE s.t ENABLE ALWAYS TRIGGER t2
COMMENT ON TRIGGER t1 ON s.t IS 'of a trigger'
CREATE RULE ru AS ON DELETE TO s.t WHERE old.k = 77 DO INSTEAD NOTHING
ALTER TABLE s.t DISABLE RULE ru
COMMENT ON RULE ru ON s.t IS 'of a rule'
CREATE POLICY p1 ON s.t AS RESTRICTIVE FOR UPDATE TO test_dump_1 USING (k > 1) WITH CHECK (k > 2)
CREATE POLICY p2 ON s.t USING (true)
COMMENT ON POLICY p1 ON s.t IS 'of a policy'
ALTER TABLE s.t ENABLE ROW LEVEL SECURITY
ALTER TABLE s.t FORCE ROW LEVEL SECURITY
GRANT SELECT ON s.t TO test_dump_1 WITH GRANT OPTION
GRANT UPDATE (m, u) ON s.t TO test_dump_2
GRANT SELECT ("Odd Col") ON s.t TO PUBLIC
CREATE TABLE s.x (k int, r int4range, CONSTRAINT ex EXCLUDE USING gist (r WITH &&) WHERE (k > 5))
COMMENT ON CONSTRAINT ex ON s.x IS 'of an exclusion'
CREATE TABLE s.p (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)
CREATE TABLE s.p1 PARTITION OF s.p FOR VALUES FROM (1) TO (10) WITH (fillfactor = 50)
CREATE TABLE s.p2 PARTITION OF s.p DEFAULT
CREATE TABLE s.p3 (v int, id int NOT NULL, CHECK (v > 0))
ALTER TABLE s.p ATTACH PARTITION s.p3 FOR VALUES FROM (20) TO (30)
CREATE INDEX pi ON s.p (v)
COMMENT ON TABLE s.p1 IS 'of a partition'
COMMENT ON INDEX s.pi IS 'of a partitioned index'
CREATE TRIGGER pt AFTER INSERT ON s.p FOR EACH ROW EXECUTE FUNCTION s.f()
COMMENT ON TRIGGER pt ON s.p IS 'of a partitioned trigger'
CREATE TABLE s.h (id int PRIMARY KEY, v int)
CREATE TABLE s.c (w int) INHERITS (s.h)
ALTER TABLE s.c ALTER v SET DEFAULT 9
CREATE VIEW s.v WITH (security_barrier) AS SELECT k, m FROM s.t
COMMENT ON VIEW s.v IS 'of the view'
COMMENT ON COLUMN s.v.m IS 'of its column'
GRANT SELECT ON s.v TO test_dump_1
ALTER VIEW s.v ALTER COLUMN m SET DEFAULT 5
CREATE UNLOGGED TABLE s.u (id int PRIMARY KEY)
CREATE TABLE s.o (id int PRIMARY KEY, r int CONSTRAINT fk REFERENCES s.r ON DELETE CASCADE DEFERRABLE)
COMMENT ON CONSTRAINT fk ON s.o IS 'of a foreign key'
ALTER TABLE s.o OWNER TO test_dump_1
SELECT tutti_replicate('s.r')
SELECT tutti_distribute('s.t', 'k')
SELECT tutti_replicate('s.x')
SELECT tutti_replicate('s.p')
SELECT tutti_replicate('s.h')
SELECT tutti_replicate('s.o')
SELECT tutti_replicate('s.u')"#;

/// Goal: a table that is spread is on other nodes what it is on node 1. Method: pg_dump says of both
/// the same.
#[test]
fn a_table_that_is_spread_is_dumped_alike_by_every_node() -> Result<()> {
    let Some(pg_dump) = programs::postgresql_program("pg_dump") else { return Ok(()) };
    let servers = servers::start(2)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for sql in EVERYTHING.lines() {
        client.query(sql).with_context(|| sql.to_owned())?;
    }
    let mut dumps = Vec::new();
    for node in cluster.nodes() {
        let mut command = Command::new(&pg_dump);
        let dump = programs::run(command.args(["-s", "-n", "s"]).arg(node.url()))?;
        // Newer ones keep psql from reading more by a word that is generated each time.
        let lines = dump
            .lines()
            .filter(|line| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict"));
        dumps.push(lines.map(str::to_owned).collect::<Vec<_>>());
    }
    let sorted = |lines: &[String]| {
        let mut lines = lines.to_vec();
        lines.sort();
        lines
    };
    let (here, there) = (sorted(&dumps[0]), sorted(&dumps[1]));
    let differs: Vec<_> =
        here.iter().zip(&there).filter(|(here, there)| here != there).take(5).collect();
    ensure!(here == there, "{} and {} lines, {differs:#?}", here.len(), there.len());
    ensure!(here.iter().filter(|line| line.starts_with("COMMENT ON")).count() == 25);
    Ok(())
}

/// Transfers from account to account until `done`. Returns how many there were.
fn move_money(cluster: &TestCluster, mover: i64, done: &AtomicBool) -> Result<u64> {
    let mut client = Client::connect(&cluster.endpoint())?;
    let mut moved = 0;
    let mut step = mover;
    while !done.load(Ordering::Relaxed) {
        step += 7;
        // In the order of the numbers, so that none waits in a cycle.
        let (from, to) = (step % ACCOUNTS + 1, (step * 13 + 5) % ACCOUNTS + 1);
        if from == to {
            continue;
        }
        let (low, high) = (from.min(to), from.max(to));
        client.query("BEGIN")?;
        client.query(&format!("UPDATE accounts SET balance = balance - 1 WHERE id = {low}"))?;
        client.query(&format!("UPDATE accounts SET balance = balance + 1 WHERE id = {high}"))?;
        client.query("COMMIT").context("a transfer")?;
        moved += 1;
    }
    Ok(moved)
}
