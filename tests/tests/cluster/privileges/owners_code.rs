//! What hangs on a table runs as its owner, or as who uses it: never as the gateway, nor as a superuser who
//! moves its rows.
//!
//! PostgreSQL computes what is constant in an expression wherever it plans or compares it, and reads constants of
//! a user's type wherever it parses them. So every way in which code can hang on a table is tried with everything
//! that a gateway does with tables.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;
use tutti_tests::suite::Part;

/// What code can hang on: a name, and statements of `mallory`'s, who owns the schema `mal` and nothing else.
/// `{t}` is the table, which has the columns id and a; where it is made, `{at}` is where.
const WAYS: [(&str, &[&str]); 25] = [
    ("check", &["CREATE TABLE {t} (id int PRIMARY KEY, a int CHECK (mal.is(1))){at}"]),
    (
        "generated",
        &["CREATE TABLE {t} (id int PRIMARY KEY, a int, g int GENERATED ALWAYS AS (mal.one(1)) STORED){at}"],
    ),
    ("index", &[PLAIN, "CREATE INDEX ON {t} ((a + mal.one(1)))"]),
    ("predicate", &[PLAIN, "CREATE INDEX ON {t} (a) WHERE mal.is(1)"]),
    (
        "exclusion",
        &["CREATE TABLE {t} (id int PRIMARY KEY, a int, EXCLUDE (id WITH =) WHERE (mal.is(1))){at}"],
    ),
    ("statistics", &[PLAIN, "CREATE STATISTICS {t}_s ON (mal.one(1) + a), id FROM {t}"]),
    (
        "partition key of another table",
        &[
            PLAIN,
            "DO $$ BEGIN EXECUTE format('CREATE STATISTICS {t}_s ON (CASE WHEN satisfies_hash_partition(%s, 2, 0, 1) THEN 1 ELSE 0 END + a), id FROM {t}', 'mal.hashed'::regclass::oid); END $$",
        ],
    ),
    (
        "child",
        &[
            "CREATE TABLE {t} (id int, a int, CHECK (mal.is(1))){at}",
            "CREATE TABLE {t}_c (PRIMARY KEY (id)) INHERITS ({t})",
        ],
    ),
    (
        "partition",
        &[
            "CREATE TABLE {t} (id int, a int) PARTITION BY RANGE (id){at}",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (100000)",
            "ALTER TABLE {t}_1 ADD CHECK (mal.is(1))",
        ],
    ),
    (
        "default partition",
        &[
            "CREATE TABLE {t} (id int, a int) PARTITION BY RANGE (a){at}",
            "CREATE TABLE {t}_d PARTITION OF {t} DEFAULT",
            "ALTER TABLE {t}_d ADD CHECK (mal.is(1))",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (100) TO (200)",
        ],
    ),
    (
        "partition key",
        &[
            "CREATE TABLE {t} (id int, a int) PARTITION BY RANGE ((id + mal.one(1))){at}",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (100000)",
        ],
    ),
    ("domain", &["CREATE TABLE {t} (id int PRIMARY KEY, a mal.checked){at}"]),
    ("default", &["CREATE TABLE {t} (id int PRIMARY KEY, a int DEFAULT mal.one(1)){at}"]),
    (
        "default of a domain",
        &["CREATE TABLE {t} (id int PRIMARY KEY, a int, d mal.checked DEFAULT 1){at}"],
    ),
    (
        "default of a row with a domain",
        &["CREATE TABLE {t} (id int PRIMARY KEY, a int, d mal.pair DEFAULT '(1,2)'::mal.pair){at}"],
    ),
    (
        "policy",
        &[
            PLAIN,
            "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY p ON {t} USING (mal.is(1) AND '(1,2)'::mal.pair IS NOT NULL)",
        ],
    ),
    (
        "trigger",
        &[
            PLAIN,
            "CREATE TRIGGER t AFTER UPDATE ON {t} FOR EACH ROW
                 WHEN (mal.is(1) AND '(1,2)'::mal.pair IS NOT NULL) EXECUTE FUNCTION mal.fires()",
        ],
    ),
    (
        "deferred trigger",
        &[
            PLAIN,
            "CREATE CONSTRAINT TRIGGER t AFTER INSERT OR DELETE ON {t} DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION mal.fires()",
        ],
    ),
    (
        "view",
        &[PLAIN, "CREATE VIEW {t}_v AS SELECT id, mal.one(1) AS o, '(1,2)'::mal.pair AS p FROM {t}"],
    ),
    (
        "range",
        &["CREATE TABLE {t} (id int PRIMARY KEY, a int, r mal.span DEFAULT '[1,3)'::mal.span){at}"],
    ),
    (
        "range behind an index",
        &[
            "CREATE TABLE {t} (id int PRIMARY KEY, a int){at}",
            "CREATE INDEX ON {t} USING gist (mal.reach(id, id + 9))",
            // Where it is no longer one page, it is asked how far ranges are apart.
            "INSERT INTO {t} SELECT g, 1 FROM generate_series(1000, 2000) g",
        ],
    ),
    (
        "domain in a partition key",
        &[
            "CREATE TABLE {t} (id int, a int) PARTITION BY RANGE ((a::mal.checked)){at}",
            "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES FROM (0) TO (100000)",
        ],
    ),
    (
        "function with a default",
        &[
            "CREATE FUNCTION {t}_f(int, mal.pair DEFAULT '(1,2)') RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 1'",
            "CREATE TABLE {t} (id int PRIMARY KEY, a int CHECK ({t}_f(a) = mal.one(1))){at}",
        ],
    ),
    (
        "foreign key",
        &[
            "CREATE TABLE {t} (id int PRIMARY KEY, a int REFERENCES mal.words){at}",
            "CREATE INDEX ON {t} ((a + mal.one(1)))",
        ],
    ),
    (
        "cascade",
        &[
            PLAIN,
            "CREATE TABLE {t}_c (id int PRIMARY KEY, p int REFERENCES {t} ON DELETE CASCADE){at}",
            "CREATE TRIGGER t AFTER DELETE ON {t}_c FOR EACH ROW EXECUTE FUNCTION mal.fires()",
        ],
    ),
];

const PLAIN: &str = "CREATE TABLE {t} (id int PRIMARY KEY, a int){at}";

const PLACEMENTS: [&str; 3] = ["", " DISTRIBUTE BY HASH (id)", " DISTRIBUTE BY REPLICATED"];

/// What is done with such a table, by whom; what is refused does no harm.
const ACTS: [(&str, &str); 13] = [
    ("mallory", "UPDATE {t} SET a = 2 WHERE random() < 2"),
    ("postgres", "SELECT tutti_distribute('{t}', 'id')"),
    ("mallory", "DELETE FROM {t} WHERE id = 9 AND random() < 2"),
    ("postgres", "SELECT tutti_replicate('{t}')"),
    ("mallory", "UPDATE {t} SET a = 2 WHERE id < 5 AND random() < 2"),
    ("mallory", "DELETE FROM {t} WHERE id > 7 AND random() < 2"),
    (
        "mallory",
        "INSERT INTO {t} (id, a) SELECT g, 2 FROM generate_series(30, 39) g WHERE random() < 2",
    ),
    ("mallory", "UPDATE {t} SET id = id + 100 WHERE random() < 2"),
    ("postgres", "SELECT tutti_distribute('{t}', 'id')"),
    ("postgres", "SELECT tutti_home('{t}')"),
    ("mallory", "SELECT tutti_replicate('{t}')"),
    ("mallory", "DROP TABLE {t} CASCADE"),
    ("postgres", "DROP TABLE IF EXISTS {t} CASCADE"),
];

/// Where tables are on node 1 until they are spread.
pub(crate) fn cluster() -> Result<TestCluster> {
    let servers = servers::start(2)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    TestCluster::start_configured(servers, config)
}

/// Commands that only a superuser can give leave a file behind, even if what gave them is undone.
struct Trap {
    file: String,
}

impl Trap {
    fn set(cluster: &TestCluster) -> Result<Self> {
        let file = format!("/tmp/tutti-test-{}-mallory", std::process::id());
        let mut admin = Client::connect(&cluster.endpoint())?;
        admin.query("CREATE ROLE mallory LOGIN; CREATE SCHEMA mal AUTHORIZATION mallory")?;
        let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
        mallory.query(&format!(
            "CREATE FUNCTION mal.snap() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
                 IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
                     EXECUTE $x$COPY (SELECT 1) TO PROGRAM 'id > {file}'$x$; END IF; END $$"
        ))?;
        mallory.query(
            "CREATE FUNCTION mal.one(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
                 $$ BEGIN PERFORM mal.snap(); RETURN 1; END $$;
             CREATE FUNCTION mal.is(int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS
                 $$ BEGIN PERFORM mal.snap(); RETURN true; END $$;
             CREATE FUNCTION mal.fires() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN PERFORM mal.snap(); RETURN NULL; END $$;
             CREATE DOMAIN mal.checked AS int CHECK (mal.is(value));
             CREATE TYPE mal.pair AS (a mal.checked, b int);
             CREATE TYPE mal.span AS RANGE (SUBTYPE = mal.checked);
             CREATE FUNCTION mal.apart(int, int) RETURNS float8 IMMUTABLE LANGUAGE plpgsql AS
                 $$ BEGIN PERFORM mal.snap(); RETURN $1 - $2; END $$;
             CREATE TYPE mal.reach AS RANGE (SUBTYPE = int, SUBTYPE_DIFF = mal.apart);
             CREATE TABLE mal.hashed (id int, a int) PARTITION BY HASH ((a + mal.one(1)));
             CREATE TABLE mal.words (id int PRIMARY KEY);
             INSERT INTO mal.words SELECT generate_series(1, 30)",
        )?;
        admin.query("SELECT tutti_replicate('mal.words')")?;
        for declared in ["mal.snap", "mal.one", "mal.is", "mal.fires", "mal.apart"] {
            mallory.query(&format!("SELECT tutti_function('{declared}', 'replicated')"))?;
        }
        Ok(Self { file })
    }

    fn is_untouched(&self, what: &str) -> Result<()> {
        let told = std::fs::read_to_string(&self.file).unwrap_or_default();
        ensure!(!Path::new(&self.file).exists(), "{what}: mallory's code has run as {told}");
        Ok(())
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.file);
    }
}

pub(crate) fn is_superuser(node: &Endpoint, role: &str) -> Result<bool> {
    let sql = format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{role}'");
    Ok(Client::connect(node)?.value(&sql)? == "t")
}

#[test]
fn code_that_hangs_on_a_table_never_runs_as_a_superuser() -> Result<()> {
    let cluster = cluster()?;
    let trap = Trap::set(&cluster)?;
    let mut moved = 0;
    for (number, (name, makes)) in WAYS.iter().enumerate() {
        for (how, placement) in PLACEMENTS.iter().enumerate() {
            if !Part::EVEN.has(number + how) {
                continue;
            }
            let table = format!("mal.t{number}_{how}");
            let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
            for make in *makes {
                let sql = make.replace("{t}", &table).replace("{at}", placement);
                let answer = mallory.simple(&sql, b"")?;
                ensure!(how > 0 || answer.error().is_none(), "{name}: {sql}: {answer}");
                trap.is_untouched(&format!("{name}: {sql}"))?;
            }
            let rows =
                format!("INSERT INTO {table} (id, a) SELECT g, 1 FROM generate_series(1, 20) g");
            mallory.simple(&rows, b"")?;
            for (who, act) in ACTS {
                let sql = act.replace("{t}", &table);
                // A new connection each: what a backend has planned it does not compute again.
                let mut client = Client::connect_as(&cluster.endpoint(), who)?;
                let answer = client.simple(&sql, b"")?;
                trap.is_untouched(&format!("{name}{placement}: {sql}: {answer}"))?;
                let is_moved = sql.contains("tutti_") && answer.error().is_none();
                moved += usize::from(is_moved);
            }
        }
    }
    for node in cluster.nodes() {
        ensure!(!is_superuser(&node, "mallory")?, "mallory is a superuser");
    }
    // Or it would be refusals that held.
    ensure!(moved > WAYS.len() * 3, "only {moved} tables could be moved");
    Ok(())
}

/// What the code of a table may try while its rows move.
const TRIES: [&str; 13] = [
    "EXECUTE 'UPDATE mal.guarded SET x = 2'",
    "DECLARE c refcursor := 'tutti_moving_rows'; BEGIN IF EXISTS (SELECT FROM pg_cursors WHERE name = 'tutti_moving_rows')
         THEN CLOSE c; OPEN c FOR SELECT '2', mal.later(1)::text; END IF; END",
    "PERFORM set_config('search_path', 'mal, pg_catalog', false)",
    "PERFORM set_config('work_mem', '3MB', false)",
    "EXECUTE 'INSERT INTO mal.other VALUES (1)'",
    "EXECUTE 'SET ROLE postgres'",
    "EXECUTE 'RESET SESSION AUTHORIZATION'",
    "EXECUTE 'LISTEN mal'",
    "EXECUTE 'DECLARE kept CURSOR WITH HOLD FOR SELECT 1'",
    "EXECUTE 'CREATE TEMP TABLE pg_class_of_mal (a int)'",
    "EXECUTE 'ALTER FUNCTION tutti.run_work() SECURITY DEFINER'",
    "EXECUTE (SELECT format('CREATE STATISTICS mal.s ON (mal.later(1)), is_done FROM %s', oid::regclass)
         FROM pg_class WHERE relkind = 'm' AND relname LIKE 'work%')",
    "EXECUTE (SELECT format('ALTER MATERIALIZED VIEW %s RENAME TO other', oid::regclass)
         FROM pg_class WHERE relkind = 'm' AND relname LIKE 'work%')",
];

/// A session that moves rows has the same rights, settings and role after it, whatever the rows' code
/// has tried.
#[test]
fn code_that_runs_while_rows_move_leaves_nothing_behind() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE ROLE mallory LOGIN; CREATE SCHEMA mal AUTHORIZATION mallory")?;
    let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
    mallory.query(
        "CREATE FUNCTION mal.fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             EXECUTE 'ALTER ROLE mallory SUPERUSER'; RETURN NULL; END $$;
         CREATE FUNCTION mal.later(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
             EXECUTE 'ALTER ROLE mallory SUPERUSER'; RETURN 1; END $$;
         CREATE FUNCTION mal.guards() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE EXCEPTION 'not so'; END $$;
         CREATE TABLE mal.guarded (x int); INSERT INTO mal.guarded VALUES (1);
         CREATE TRIGGER t BEFORE UPDATE ON mal.guarded FOR EACH ROW EXECUTE FUNCTION mal.guards();
         CREATE TABLE mal.other (x int) DISTRIBUTE BY REPLICATED",
    )?;
    admin.query("SELECT tutti_replicate('mal.guarded')")?;
    mallory.query(
        "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON mal.other DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION mal.fires()",
    )?;
    mallory.query("ALTER TABLE mal.other ENABLE ALWAYS TRIGGER t")?;
    let mut moved = 0;
    for (number, tries) in TRIES.iter().enumerate() {
        for caught in ["", "EXCEPTION WHEN OTHERS THEN NULL; "] {
            let table = format!("mal.t{number}_{}", caught.len());
            mallory.query(&format!(
                "CREATE TABLE {table} (id int PRIMARY KEY, a int);
                 INSERT INTO {table} SELECT g, g FROM generate_series(1, 700) g;
                 CREATE OR REPLACE FUNCTION mal.is(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
                     BEGIN {tries}; {caught}END; RETURN true; END $$;
                 CREATE OR REPLACE FUNCTION mal.planned(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
                     PERFORM mal.is(1); RETURN 1; END $$"
            ))?;
            // Elsewhere, who reads the table later would run it, as on one server.
            if tries.starts_with("DECLARE") {
                mallory.query(&format!(
                    "CREATE STATISTICS {table}_s ON (mal.planned(1) + a), id FROM {table}"
                ))?;
            }
            mallory.query("SELECT tutti_function('mal.is', 'replicated')")?;
            mallory.query(&format!(
                "ALTER TABLE {table} ADD CONSTRAINT c CHECK (mal.is(a)) NOT VALID"
            ))?;
            let mut boss = Client::connect(&cluster.endpoint())?;
            let before = state(&mut boss, &table)?;
            for act in
                ["tutti_distribute('{t}', 'id')", "tutti_replicate('{t}')", "tutti_home('{t}')"]
            {
                let sql = format!("SELECT {}", act.replace("{t}", &table));
                let answer = boss.simple(&sql, b"")?;
                moved += usize::from(answer.error().is_none());
                ensure!(state(&mut boss, &table)? == before, "{tries}: {sql}: {answer}");
                for node in cluster.nodes() {
                    let guarded = Client::connect(&node)?.value("SELECT x FROM mal.guarded")?;
                    ensure!(guarded == "1", "{tries}: {sql}: {answer}: a trigger was off");
                    ensure!(!is_superuser(&node, "mallory")?, "{tries}: {answer}");
                    let left = "SELECT count(*) FROM pg_class WHERE relkind = 'm'";
                    ensure!(Client::connect(&node)?.value(left)? == "0", "{tries}: {answer}");
                }
            }
        }
    }
    ensure!(moved > TRIES.len() * 3, "only {moved} tables could be moved");
    Ok(())
}

/// Who a session is, and what it has set and opened, on the nodes of nine rows.
fn state(client: &mut Client, table: &str) -> Result<String> {
    let mut state = client.value(
        "SELECT concat_ws(' ', current_user, session_user, current_setting('search_path'), current_setting('work_mem'),
             (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_cursors WHERE name = 'kept'))",
    )?;
    for id in 1..=9 {
        let sql = format!(
            "SELECT concat_ws(' ', current_user, current_setting('search_path'), current_setting('work_mem'), a)
             FROM {table} WHERE id = {id}"
        );
        state.push_str(&client.value(&sql)?);
    }
    Ok(state)
}

/// What default privileges have given since a table was made is not given on other nodes.
#[test]
fn a_table_gives_on_other_nodes_what_it_gives_on_node_1() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE ROLE mallory LOGIN; CREATE ROLE reader LOGIN; CREATE SCHEMA mal AUTHORIZATION mallory",
    )?;
    let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
    mallory.query(
        "GRANT USAGE ON SCHEMA mal TO reader;
         CREATE FUNCTION mal.one(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$;
         CREATE TABLE mal.g (id int PRIMARY KEY, g int GENERATED ALWAYS AS (mal.one(id)) STORED);
         CREATE TABLE mal.p (id int PRIMARY KEY, g int);
         INSERT INTO mal.g SELECT generate_series(1, 30); INSERT INTO mal.p SELECT generate_series(1, 30);
         ALTER DEFAULT PRIVILEGES IN SCHEMA mal GRANT SELECT ON TABLES TO reader;
         CREATE TABLE mal.h (id int PRIMARY KEY, g int GENERATED ALWAYS AS (mal.one(id)) STORED)",
    )?;
    admin.query("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC")?;
    for table in ["mal.g", "mal.p", "mal.h"] {
        admin.query(&format!("SELECT tutti_distribute('{table}', 'id')"))?;
    }
    let given = "SELECT string_agg(concat_ws(' ', c.oid::regclass, g.grantee::regrole, g.privilege_type), ', '
            ORDER BY c.oid::regclass::text, g.grantee::regrole::text, g.privilege_type)
        FROM pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) g
        WHERE c.oid = ANY ('{mal.g,mal.p,mal.h}'::regclass[])";
    let nodes = cluster.nodes();
    let found: Vec<_> =
        nodes.iter().map(|node| Client::connect(node)?.value(given)).collect::<Result<_>>()?;
    let first = found.first().context("a cluster has nodes")?;
    ensure!(found.iter().all(|other| other == first), "{found:#?}");
    let mut reader = Client::connect_as(&cluster.endpoint(), "reader")?;
    for table in ["mal.g", "mal.p"] {
        for sql in [format!("SELECT * FROM {table}"), format!("SELECT * FROM {table} WHERE id = 7")]
        {
            let answer = reader.simple(&sql, b"")?;
            ensure!(answer.error().is_some_and(|it| it.sqlstate() == "42501"), "{sql}: {answer}");
        }
    }
    Ok(())
}

/// Who has given what on other nodes: or REVOKE … CASCADE would end it on node 1 alone.
#[test]
fn what_was_given_on_is_taken_back_everywhere() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE ROLE owner1 LOGIN; CREATE ROLE app LOGIN; CREATE ROLE other LOGIN; CREATE ROLE mallory LOGIN;
         CREATE SCHEMA o AUTHORIZATION owner1; GRANT USAGE ON SCHEMA o TO PUBLIC",
    )?;
    let as_role = |role: &str, sql: &str| Client::connect_as(&cluster.endpoint(), role)?.query(sql);
    for table in ["whole", "parts"] {
        let columns = if table == "parts" { "(id, v)" } else { "" };
        as_role(
            "owner1",
            &format!(
                "CREATE TABLE o.{table} (id int PRIMARY KEY, v text);
                 INSERT INTO o.{table} SELECT g, 's' FROM generate_series(1, 30) g;
                 GRANT SELECT {columns} ON o.{table} TO other WITH GRANT OPTION"
            ),
        )?;
        // Its name comes before that of who gave it to him.
        as_role("other", &format!("GRANT SELECT {columns} ON o.{table} TO app WITH GRANT OPTION"))?;
        as_role("app", &format!("GRANT SELECT {columns} ON o.{table} TO mallory"))?;
        admin.query(&format!("SELECT tutti_distribute('o.{table}', 'id')"))?;
        let sql = format!("SELECT count(v) FROM o.{table}");
        ensure!(as_role("mallory", &sql)?[0][0].as_deref() == Some("30"));
        as_role("owner1", &format!("REVOKE SELECT {columns} ON o.{table} FROM other CASCADE"))?;
        for id in 1..=30 {
            let sql = format!("SELECT v FROM o.{table} WHERE id = {id}");
            let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
            let answer = mallory.simple(&sql, b"")?;
            ensure!(answer.error().is_some_and(|it| it.sqlstate() == "42501"), "{sql}: {answer}");
        }
    }
    Ok(())
}

/// What was made since a transaction's snapshot is planned with, though a query does not see it.
#[test]
fn code_that_a_snapshot_does_not_see_runs_as_its_owner() -> Result<()> {
    let cluster = cluster()?;
    let trap = Trap::set(&cluster)?;
    for (number, make) in [
        "CREATE STATISTICS mal.s0 ON (mal.one(1) + a), id FROM mal.late0",
        "CREATE INDEX ON mal.late1 ((mal.one(1) + a))",
    ]
    .iter()
    .enumerate()
    {
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            for fires in [false, true] {
                let mut one = Client::connect_as(&cluster.endpoint(), "mallory")?;
                let table = format!("mal.late{number}");
                one.query(&format!(
                    "CREATE TABLE {table} (id int PRIMARY KEY, a int, b int) DISTRIBUTE BY REPLICATED"
                ))?;
                one.query(&format!(
                    "INSERT INTO {table} SELECT g, 0, 0 FROM generate_series(1, 9) g"
                ))?;
                one.query(
                    "CREATE OR REPLACE FUNCTION mal.noop() RETURNS trigger LANGUAGE plpgsql AS
                         $$ BEGIN RETURN NULL; END $$",
                )?;
                if fires {
                    one.query(&format!(
                        "CREATE TRIGGER t AFTER UPDATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION mal.noop()"
                    ))?;
                }
                let mut two = Client::connect_as(&cluster.endpoint(), "mallory")?;
                two.query(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM {table}"))?;
                one.query(make)?;
                for sql in [
                    "UPDATE {t} SET a = (random() * 100)::int WHERE id = 3",
                    "UPDATE {t} SET a = (random() * 100)::int WHERE b = 0 AND id < 5",
                    "DELETE FROM {t} WHERE b = 0 AND random() < 0.5",
                ] {
                    two.query("SAVEPOINT s")?;
                    let answer = two.simple(&sql.replace("{t}", &table), b"")?;
                    trap.is_untouched(&format!("{make}; {sql} at {level}: {answer}"))?;
                    if answer.error().is_some() {
                        two.simple("ROLLBACK TO s", b"")?;
                    }
                }
                two.simple("COMMIT", b"")?;
                trap.is_untouched(&format!("{make} at {level}"))?;
                one.query(&format!("DROP TABLE {table}"))?;
            }
        }
    }
    Ok(())
}

/// Seals and rows are parameters, which the server tells in the context of an error where a client wants it.
#[test]
fn no_error_tells_parameters_of_the_gateways_own() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE ROLE mallory LOGIN; CREATE SCHEMA mal AUTHORIZATION mallory")?;
    let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
    let first = Client::connect(&cluster.nodes()[0])?.value("SELECT inet_server_port()")?;
    mallory.query(&format!(
        "CREATE TABLE mal.r (id int PRIMARY KEY, a int,
             CONSTRAINT c CHECK (a < 100 OR coalesce(inet_server_port(), 0) = {first})) DISTRIBUTE BY REPLICATED"
    ))?;
    mallory.query("INSERT INTO mal.r SELECT g, g FROM generate_series(1, 9) g")?;
    mallory.query("SET log_parameter_max_length_on_error = -1; SET client_min_messages = log")?;
    for sql in [
        "UPDATE mal.r SET a = 200 + random()::int WHERE id = 3",
        "INSERT INTO mal.r SELECT 77, 200 + random()::int",
        "SELECT tutti.table_rows_as_owner('mal', 'r', '')",
        "SELECT tutti.store_rows_as_owner('mal', 'r', 'all', '', '')",
    ] {
        let answer = mallory.simple(sql, b"")?;
        let error = answer.error().with_context(|| format!("{sql}: {answer}"))?;
        let told = format!("{:?}", error.fields);
        ensure!(!told.contains("$1 =") && !told.contains("PL/pgSQL"), "{sql}: {told}");
    }
    Ok(())
}

/// Code behind foreign keys runs as its owner in the middle of what the gateway does as another role, and what it
/// sets is set there: names must not mean its functions then.
#[test]
fn code_behind_foreign_keys_takes_no_names_over() -> Result<()> {
    let cluster = cluster()?;
    let trap = Trap::set(&cluster)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE ROLE boss LOGIN; CREATE ROLE app LOGIN; CREATE SCHEMA b AUTHORIZATION boss",
    )?;
    let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
    mallory.query("GRANT USAGE ON SCHEMA mal TO PUBLIC")?;
    // Each says who has called it, if that is not mallory.
    for (arguments, result, value) in [
        ("current_setting(text)", "text", "pg_catalog.current_setting($1)"),
        ("set_config(text, text, boolean)", "text", "pg_catalog.set_config($1, $2, $3)"),
        ("cardinality(text[])", "int", "pg_catalog.cardinality($1)"),
        ("format(text, text)", "text", "pg_catalog.format($1, $2)"),
        ("unnest(text[])", "SETOF text", "x FROM pg_catalog.unnest($1) AS x"),
        ("count_of(bigint)", "bigint", "$1"),
    ] {
        mallory.query(&format!(
            "CREATE FUNCTION mal.{arguments} RETURNS {result} LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM mal.snap();
                 IF current_user <> 'mallory' THEN RAISE EXCEPTION 'taken over as %', current_user; END IF;
                 {} END $$",
            match result.strip_prefix("SETOF ") {
                Some(_) => format!("RETURN QUERY SELECT {value};"),
                None => format!("RETURN {value};"),
            }
        ))?;
    }
    mallory.query(
        "CREATE FUNCTION mal.takes(int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_catalog.set_config('search_path', 'mal,pg_catalog', false);
             PERFORM pg_catalog.set_config('search_path', 'mal,pg_catalog', true); RETURN true; END $$;
         CREATE FUNCTION mal.takes_too(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_catalog.set_config('search_path', 'mal,pg_catalog', false);
             PERFORM pg_catalog.set_config('search_path', 'mal,pg_catalog', true); RETURN 1; END $$",
    )?;
    for declared in ["mal.takes", "mal.takes_too"] {
        mallory.query(&format!("SELECT tutti_function('{declared}', 'replicated')"))?;
    }
    let mut done = 0;
    for (number, (who, schema)) in [("postgres", "public"), ("boss", "b")].into_iter().enumerate() {
        let mut owner = Client::connect_as(&cluster.endpoint(), who)?;
        let table = format!("{schema}.tt{number}");
        owner.query(&format!(
            "CREATE TABLE {table} (a int PRIMARY KEY, b int) DISTRIBUTE BY REPLICATED;
             INSERT INTO {table} SELECT g, g FROM generate_series(1, 10) g;
             GRANT USAGE ON SCHEMA {schema} TO PUBLIC;
             GRANT REFERENCES, SELECT ON {table} TO mallory; GRANT ALL ON {table} TO app"
        ))?;
        mallory.query(&format!(
            "CREATE TABLE mal.f{number} (id int PRIMARY KEY,
                 x int REFERENCES {table} ON DELETE SET NULL ON UPDATE CASCADE, CHECK (mal.takes(x))) DISTRIBUTE BY REPLICATED;
             INSERT INTO mal.f{number} SELECT g, g FROM generate_series(1, 5) g;
             CREATE TABLE mal.p{number} (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED;
             INSERT INTO mal.p{number} SELECT g FROM generate_series(1, 5) g;
             GRANT REFERENCES ON mal.p{number} TO {who}"
        ))?;
        let second = format!("{schema}.uu{number}");
        owner.query(&format!(
            "CREATE TABLE {second} (a int PRIMARY KEY, x int REFERENCES mal.p{number}) DISTRIBUTE BY REPLICATED;
             INSERT INTO {second} SELECT g, g FROM generate_series(1, 5) g; GRANT ALL ON {second} TO app"
        ))?;
        mallory.query(&format!("CREATE INDEX ON mal.p{number} ((id + mal.takes_too(1)))"))?;
        for sql in [
            format!("DELETE FROM {table} WHERE a = 1 + (random() * 0)::int"),
            format!("UPDATE {table} SET a = a + 100 WHERE a = 2 + (random() * 0)::int"),
            format!("UPDATE {table} SET b = random()"),
            format!("DELETE FROM {table} WHERE random() < 0.3"),
            format!("INSERT INTO {second} SELECT 7 + (random() * 0)::int, 2"),
            format!("UPDATE {second} SET x = 4 + (random() * 0)::int WHERE a = 5"),
            format!("UPDATE {second} SET x = 1 + (random() * 3)::int"),
        ] {
            let mut app = Client::connect_as(&cluster.endpoint(), "app")?;
            let answer = app.simple(&sql, b"")?;
            trap.is_untouched(&format!("{sql}: {answer}"))?;
            let said = answer.error().map(|error| error.message().to_owned()).unwrap_or_default();
            ensure!(!said.contains("taken over"), "{sql}: {answer}");
            done += usize::from(answer.error().is_none());
        }
        for act in
            [format!("tutti_distribute('{second}', 'a')"), format!("tutti_replicate('{second}')")]
        {
            let answer = admin.simple(&format!("SELECT {act}"), b"")?;
            trap.is_untouched(&format!("{act}: {answer}"))?;
        }
    }
    ensure!(done >= 8, "only {done} writes were done");
    Ok(())
}

/// The auditor plans nothing over tables of users', whatever they get while it looks.
#[test]
fn the_auditor_runs_no_code_that_comes_while_it_looks() -> Result<()> {
    let cluster = cluster()?;
    let trap = Trap::set(&cluster)?;
    let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
    let mut node = Client::connect(&cluster.nodes()[0])?;
    for (number, at) in ["REPLICATED", "HASH (id)", "HOME"].iter().enumerate() {
        let table = format!("mal.h{number}");
        mallory.query(&format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, b int) DISTRIBUTE BY {at};
             INSERT INTO {table} SELECT g, g FROM generate_series(1, 50) g;
             BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"
        ))?;
        std::thread::scope(|scope| -> Result<()> {
            let looking = scope.spawn(|| cluster.audit());
            let begun = std::time::Instant::now();
            let waits = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
                WHERE NOT l.granted AND a.application_name = 'tutti check'
                    AND a.query LIKE '%pg_relation_size%'";
            while node.value(waits)? == "0" && !looking.is_finished() {
                ensure!(begun.elapsed().as_secs() < 60, "{table}: the auditor does not come");
            }
            mallory.query(&format!(
                "CREATE INDEX ON {table} ((b + mal.one(1)));
                 CREATE STATISTICS {table}_s ON (mal.one(1) + b), id FROM {table}; COMMIT"
            ))?;
            let report = looking.join().ok().context("the auditor panicked")??;
            ensure!(report.findings.is_empty(), "{table}: {report}");
            Ok(())
        })?;
        trap.is_untouched(&table)?;
        let report = cluster.audit()?;
        ensure!(report.findings.is_empty(), "{table}: {report}");
        trap.is_untouched(&table)?;
    }
    Ok(())
}

/// What gateways run on nodes is open to all there, and a client that calls it gets no more done than by code of its
/// own: rows are where they belong, and copies equal.
#[test]
fn the_gateways_functions_write_nothing_past_it() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE ROLE mallory LOGIN; CREATE SCHEMA mal AUTHORIZATION mallory")?;
    let mut mallory = Client::connect_as(&cluster.endpoint(), "mallory")?;
    mallory.query(
        "CREATE TABLE mal.d (id int PRIMARY KEY, b int) DISTRIBUTE BY HASH (id);
         CREATE TABLE mal.r (id int PRIMARY KEY, b int) DISTRIBUTE BY REPLICATED",
    )?;
    mallory.query("INSERT INTO mal.d SELECT g, g FROM generate_series(1, 10) g")?;
    mallory.query("INSERT INTO mal.r SELECT g, g FROM generate_series(1, 10) g")?;
    mallory.query(
        "CREATE FUNCTION mal.runs() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM tutti.run_work(); END $$;
         CREATE FUNCTION mal.stores() RETURNS void LANGUAGE sql AS
             $$ SELECT tutti.store_rows('mal', 'r', 'all', '', 'mal') $$",
    )?;
    for work in [
        "INSERT INTO mal.d SELECT g, g FROM generate_series(21, 30) g",
        "DELETE FROM mal.r WHERE id < 4",
    ] {
        let set = format!(
            "SET LOCAL tutti.work = '{work}'; SET LOCAL tutti.work_rows = ''; SET LOCAL tutti.work_path = 'mal'"
        );
        for call in [
            "SELECT tutti.run_work()",
            "SET LOCAL search_path = mal, tutti; SELECT run_work()",
            "SELECT mal.runs()",
            "DO $$ BEGIN PERFORM tutti.run_work(); END $$",
            "PREPARE p AS SELECT tutti.run_work(); EXECUTE p",
            "EXPLAIN ANALYZE SELECT tutti.run_work()",
            "DECLARE c CURSOR FOR SELECT tutti.run_work(); FETCH c",
            "SELECT tutti.store_rows('mal', 'r', 'all', '', 'mal')",
            "SELECT tutti.write_rows('mal', 'r', 'all', '', '')",
            "SET LOCAL search_path = tutti; SELECT store_rows('mal', 'r', 'all', '', 'mal')",
            "SELECT mal.stores()",
        ] {
            let mut client = Client::connect_as(&cluster.endpoint(), "mallory")?;
            let answer = client.simple(&format!("BEGIN; {set}; {call}; COMMIT"), b"")?;
            let report = cluster.audit()?;
            ensure!(report.findings.is_empty(), "{call}: {answer}\n{report}");
            for id in 1..=30 {
                let by_key =
                    mallory.value(&format!("SELECT count(*) FROM mal.d WHERE id = {id}"))?;
                let by_scan = mallory
                    .value(&format!("SELECT count(*) FROM mal.d WHERE id + random() * 0 = {id}"))?;
                ensure!(by_key == by_scan, "{call}: {answer}: row {id}");
            }
        }
    }
    Ok(())
}

/// What a definition means on other nodes, and where it lies there, is not for the mover's settings to say.
#[test]
fn settings_do_not_change_what_is_made_elsewhere() -> Result<()> {
    let cluster = cluster()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE TABLE dd (a int PRIMARY KEY, b text[] DEFAULT '{NULL,x}', c interval DEFAULT '-1 day 2:03:04',
             d money DEFAULT 1234.5, e timestamptz DEFAULT '2026-03-04 05:06:07+00', f bytea DEFAULT '\\x0001',
             CHECK (b <> '{null,y}'))",
    )?;
    client.query(
        "SET array_nulls = off; SET default_toast_compression = lz4; SET IntervalStyle = sql_standard;
         SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Tokyo'; SET bytea_output = escape;
         SET transform_null_equals = on; SET xmloption = document",
    )?;
    client.query("SELECT tutti_distribute('dd', 'a')")?;
    let defined = "SELECT string_agg(pg_get_expr(adbin, adrelid), '; ' ORDER BY adnum) || ' '
        || (SELECT string_agg(pg_get_constraintdef(oid), '; ' ORDER BY conname) FROM pg_constraint WHERE conrelid = 'dd'::regclass)
        FROM pg_attrdef WHERE adrelid = 'dd'::regclass";
    let found: Vec<_> = cluster
        .nodes()
        .iter()
        .map(|node| Client::connect(node)?.value(defined))
        .collect::<Result<_>>()?;
    ensure!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:#?}");
    Ok(())
}
