//! Definitions that one session has made are read by another that has set everything else: what is stored
//! by a default, let through by a check or seen through a view is what it is on one PostgreSQL.
//!
//! The gateway prints expressions of the catalog and has others read them, so it prints them under settings
//! that all of them read alike.

use anyhow::{Result, ensure};
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::client::{Client, Flight, Request, text_arguments};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

/// What sessions set: those that create, and those that use.
const SETTINGS: [&str; 4] = [
    "SET DateStyle = 'SQL, DMY'; SET IntervalStyle = sql_standard; SET TimeZone = 'Asia/Kolkata';
     SET extra_float_digits = -15; SET bytea_output = escape; SET quote_all_identifiers = on; SET array_nulls = off",
    "SET DateStyle = 'German, DMY'; SET IntervalStyle = postgres_verbose; SET TimeZone = 'America/St_Johns';
     SET extra_float_digits = 0; SET timezone_abbreviations = 'India'; SET xmloption = document",
    "SET DateStyle = 'Postgres, MDY'; SET IntervalStyle = iso_8601; SET TimeZone = '<+03>-03'; SET extra_float_digits = 3",
    "RESET ALL",
];

/// Columns whose defaults hold literals that are printed otherwise under other settings.
const COLUMNS: &str = "k int, d date DEFAULT date '2020-02-01', ts timestamp DEFAULT timestamp '2020-02-01 03:04:05.678901',
    z timestamptz DEFAULT timestamptz '2020-02-01 12:00:00+02', bc date DEFAULT date '0044-03-05 BC',
    i interval DEFAULT interval '1 mon -3 days 04:05:06.5', n interval DEFAULT interval '-1 year 2 mons',
    f float8 DEFAULT float8 '0.30000000000000004', r float4 DEFAULT float4 '1.0000001', b bytea DEFAULT bytea '\\x00ff5c27',
    a date[] DEFAULT ARRAY[date '2020-02-01', NULL], dr daterange DEFAULT daterange '[2020-02-01,2020-04-03)',
    zs tstzrange DEFAULT tstzrange '[2020-02-01 12:00+02,)', p point DEFAULT point '(0.30000000000000004,1e-300)',
    t text DEFAULT to_char(date '2020-02-01', 'DD Mon YYYY'), c text DEFAULT CASE WHEN true THEN 'a''b' END,
    x xml DEFAULT '<a>1</a>', dom since,
    g int GENERATED ALWAYS AS (d - date '2020-01-02') STORED,
    CHECK (d > date '2019-03-04' AND z > timestamptz '2019-03-04 05:06+00' AND i < interval '2 mons'
        AND f <> float8 '0.3')";

/// Everything of a table in one setting, and binary.
fn contents(client: &mut Client, table: &str) -> Result<Vec<Vec<Option<String>>>> {
    client.query(
        "RESET ALL; SET TimeZone = 'UTC'; SET extra_float_digits = 3; SET bytea_output = hex",
    )?;
    let sql = format!("SELECT * FROM {table} q ORDER BY k");
    let mut all = client.query(&sql)?;
    let request = Request { sql: &sql, ..Request::default() };
    all.extend(client.extended(&request, Flight::TwoFlights, b"")?.texts());
    Ok(all)
}

struct Both {
    here: Client,
    there: Client,
}

impl Both {
    fn connect(cluster: &TestCluster, plain: &tutti_embed::Cluster) -> Result<Self> {
        let here = Client::connect(&cluster.endpoint())?;
        Ok(Self { here, there: Client::connect(&servers::endpoint(plain, 0))? })
    }

    /// On both, with the same answer; the second text is for the plain server.
    fn run_as(&mut self, here: &str, there: &str) -> Result<()> {
        let (one, other) = (self.here.simple(here, b"")?, self.there.simple(there, b"")?);
        let told = |error: &tutti_wire::error_fields::ErrorFields| {
            (error.sqlstate().to_owned(), error.message().to_owned())
        };
        ensure!(
            one.error().map(told) == other.error().map(told) && one.texts() == other.texts(),
            "{here}:\n{one}\n{other}"
        );
        Ok(())
    }

    fn run(&mut self, sql: &str) -> Result<()> {
        self.run_as(sql, sql)
    }

    fn is_equal(&mut self, table: &str, when: &str) -> Result<()> {
        let (one, other) = (contents(&mut self.here, table)?, contents(&mut self.there, table)?);
        for (one, other) in one.iter().zip(&other) {
            ensure!(one == other, "{when}: {table}\n{one:?}\n{other:?}");
        }
        ensure!(one.len() == other.len() && !one.is_empty(), "{when}: {table}: {}", one.len());
        Ok(())
    }
}

#[test]
fn what_is_made_under_settings_means_the_same_under_others() -> Result<()> {
    let servers = servers::start(3)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let plain = servers::start(1)?;
    for (turn, made_under) in SETTINGS.iter().enumerate() {
        let mut maker = Both::connect(&cluster, &plain)?;
        let schema = format!("m{turn}");
        maker.run(made_under)?;
        maker.run(&format!("CREATE SCHEMA {schema}; SET search_path = {schema}"))?;
        maker.run("CREATE DOMAIN since AS date DEFAULT date '2020-02-03' CHECK (value > date '2001-02-03')")?;
        maker.run(
            "CREATE FUNCTION age_of(x date DEFAULT date '2020-02-01', y float8 DEFAULT 0.30000000000000004) RETURNS text
             LANGUAGE sql IMMUTABLE AS $$ SELECT to_char(x, 'DD Mon YYYY') || (y - 0.3 > 0) $$",
        )?;
        let tables = [
            ("hashed", " DISTRIBUTE BY HASH (k)"),
            ("copied", " DISTRIBUTE BY REPLICATED"),
            ("home", ""),
            ("moved", ""),
        ];
        for (table, how) in tables {
            let create = format!("CREATE TABLE {table} ({COLUMNS})");
            maker.run_as(&format!("{create}{how}"), &create)?;
            maker.run(&format!(
                "CREATE VIEW {table}_seen AS SELECT * FROM {table}
                     WHERE d = date '2020-02-01' AND z = timestamptz '2020-02-01 12:00:00+02'
                     AND f = float8 '0.30000000000000004' AND i = interval '1 mon -3 days 04:05:06.5';
                 CREATE INDEX ON {table} (k) WHERE d = date '2020-02-01'"
            ))?;
        }
        for used_under in SETTINGS {
            let mut user = Both::connect(&cluster, &plain)?;
            for (table, _) in tables {
                user.run(&format!("SET search_path = {schema}"))?;
                // Brought to other nodes by a session that would print it differently.
                if table == "moved" && used_under == SETTINGS[1] {
                    user.run(used_under)?;
                    user.run(&format!("SET search_path = {schema}"))?;
                    user.here.query("SELECT tutti_distribute('moved', 'k')")?;
                }
                user.run(used_under)?;
                user.run(&format!("SET search_path = {schema}"))?;
                for sql in [
                    "INSERT INTO @ (k) VALUES (1), (2)",
                    "INSERT INTO @ (k) VALUES (3)",
                    "INSERT INTO @ VALUES (4, DEFAULT, DEFAULT), (5, date '2021-02-03', DEFAULT)",
                    "INSERT INTO @ (k) SELECT g FROM generate_series(11, 19) g",
                    "INSERT INTO @ (k, f) SELECT k + 20, f FROM @",
                    "INSERT INTO @ (k, c) SELECT a.k + 100, b.c FROM hashed a JOIN copied b ON a.k = b.k + 1",
                    "UPDATE @ SET d = DEFAULT, z = DEFAULT, i = DEFAULT WHERE k = 5",
                    "UPDATE @ SET k = k + 1000, f = DEFAULT WHERE k < 3",
                    "PREPARE p AS INSERT INTO @ (k) VALUES ($1); EXECUTE p (50)",
                    "SELECT count(*) FROM @_seen",
                    "SELECT count(*) FROM @_seen a JOIN hashed b ON a.k = b.k + 1",
                    "SELECT count(*) FROM @_seen a JOIN copied_seen b ON a.d = b.d AND a.k = b.k",
                    "SELECT age_of(), age_of(d), age_of(y => f) FROM @ ORDER BY k LIMIT 1",
                    "SELECT count(*) FROM @ a JOIN hashed b ON a.k = b.k + 1 WHERE age_of(a.d) = age_of()",
                    "INSERT INTO @ (k, d) VALUES (60, date '2019-03-04')",
                    "INSERT INTO @ (k, dom) VALUES (61, date '2001-02-03')",
                ] {
                    user.run(&sql.replace('@', table))?;
                }
                let copied = format!("COPY {table} (k, a, x) FROM STDIN");
                let rows = b"70\t\\N\t\\N\n71\t{2020-02-03}\t<b/>\n72\t{}\t\\N\n";
                let (one, other) =
                    (user.here.simple(&copied, rows)?, user.there.simple(&copied, rows)?);
                ensure!(other.error().is_none(), "{copied}: {other}");
                // Where the data and the defaults would be read under settings that do not go together.
                let refused = one.error().map(|error| error.sqlstate());
                let may_be = used_under.contains("array_nulls") || used_under.contains("xmloption");
                ensure!(
                    refused.is_none() || (may_be && refused == Some("0A000")),
                    "{copied}: {one}"
                );
                if refused.is_some() {
                    user.there.query(&format!("DELETE FROM {table} WHERE k BETWEEN 70 AND 72"))?;
                }
                let sql = format!("INSERT INTO {table} (k) VALUES ($1)");
                let arguments: Vec<_> =
                    (80..83).map(|k: i32| text_arguments(&[Some(k.to_string())])).collect();
                let types = [23];
                let request = Request {
                    sql: &sql,
                    types: &types,
                    arguments: &arguments,
                    ..Request::default()
                };
                for client in [&mut user.here, &mut user.there] {
                    let answer = client.extended(&request, Flight::OneFlight, b"")?;
                    ensure!(answer.error().is_none(), "{sql}: {answer}");
                }
                // What comes later.
                user.run("DEALLOCATE ALL")?;
                maker.run(&format!(
                    "ALTER TABLE {table} ADD COLUMN later date DEFAULT date '2020-05-04';
                     ALTER TABLE {table} ADD COLUMN much float8 DEFAULT float8 '0.1' + 0.2;
                     ALTER TABLE {table} ADD COLUMN long interval DEFAULT interval '-1 year 2 mons -3 days';
                     ALTER TABLE {table} ALTER COLUMN ts SET DEFAULT timestamp '2021-04-03 02:01'"
                ))?;
                user.run(&format!("INSERT INTO {table} (k) VALUES (90), (91)"))?;
                user.run(&format!(
                    "INSERT INTO {table} (k) SELECT k + 2000 FROM {table} WHERE k > 80"
                ))?;
                let when = format!("made under {made_under}, used under {used_under}");
                user.is_equal(&format!("{schema}.{table}"), &when)?;
                user.is_equal(&format!("{schema}.{table}_seen"), &when)?;
                maker.run(&format!(
                    "ALTER TABLE {table} DROP COLUMN later, DROP COLUMN much, DROP COLUMN long; DELETE FROM {table}"
                ))?;
            }
        }
    }
    Ok(())
}
