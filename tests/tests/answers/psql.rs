//! psql through the gateway: what people type.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;
use tutti_tests::{lahman, programs, servers};

/// psql against an endpoint.
struct Psql {
    program: PathBuf,
    url: String,
}

impl Psql {
    fn find(endpoint: &Endpoint) -> Option<Self> {
        Some(Self { program: programs::postgresql_program("psql")?, url: endpoint.url() })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-X").args(arguments).arg(&self.url).env("PGCLIENTENCODING", "UTF8");
        command
    }

    /// Unaligned output of commands that must succeed.
    fn run(&self, commands: &[&str]) -> Result<String> {
        let mut arguments = vec!["-At", "-v", "ON_ERROR_STOP=1"];
        arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
        programs::run(&mut self.command(&arguments))
    }

    fn output(&self, arguments: &[&str]) -> Result<Output> {
        programs::output(&mut self.command(arguments))
    }
}

#[test]
fn descriptions_are_those_of_one_postgresql() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let plain = servers::start(1)?;
    let (Some(through), Some(direct)) =
        (Psql::find(&cluster.endpoint()), Psql::find(&servers::endpoint(&plain, 0)))
    else {
        return Ok(());
    };
    let tables = [
        (
            "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL DEFAULT 'x', n numeric(5,2))",
            "HASH (id)",
        ),
        (
            "CREATE TABLE orders (id int REFERENCES customers, at date, PRIMARY KEY (id, at))",
            "HASH (id)",
        ),
        ("CREATE TABLE items (id serial PRIMARY KEY, name text UNIQUE)", "REPLICATED"),
        ("CREATE TABLE log (line text)", "ROUND ROBIN"),
    ];
    for (table, clause) in tables {
        direct.run(&[table])?;
        through.run(&[&format!("{table} DISTRIBUTE BY {clause}")])?;
    }
    for psql in [&direct, &through] {
        psql.run(&[
            "CREATE VIEW names AS SELECT name FROM customers",
            "CREATE INDEX ON log (line)",
        ])?;
        psql.run(&["COMMENT ON TABLE items IS 'what we sell'"])?;
    }
    let questions = [
        "\\d",
        "\\dt",
        "\\d customers",
        "\\d orders",
        "\\d items",
        "\\d log",
        "\\d names",
        "\\di",
        "\\dv",
        "\\ds",
        "\\dn",
        "\\du",
        "\\l",
        "\\df",
        "\\dT",
        "\\dp",
        "\\d no_such_table",
        "SELECT 1 AS a, 'x' AS b \\gdesc",
        "SELECT * FROM customers \\gdesc",
    ];
    for question in questions {
        let expected = direct.output(&["-At", "-c", question])?;
        let found = through.output(&["-At", "-c", question])?;
        let text = |output: &Output| {
            let shown = [&output.stdout[..], &output.stderr[..]].concat();
            String::from_utf8_lossy(&shown).replace("tutti", "")
        };
        // Our own schema may be seen.
        let kept = |text: String| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('|')).map(str::to_owned).collect()
        };
        let (expected, found) = (kept(text(&expected)), kept(text(&found)));
        ensure!(
            expected == found,
            "{question}\nexpected\n{}\nfound\n{}",
            expected.join("\n"),
            found.join("\n")
        );
        ensure!(!found.is_empty() || expected.is_empty(), "{question}: nothing");
    }
    Ok(())
}

#[test]
fn several_statements_and_errors_behave() -> Result<()> {
    let cluster = TestCluster::start(2)?;
    let Some(psql) = Psql::find(&cluster.endpoint()) else { return Ok(()) };
    psql.run(&["CREATE TABLE t (a int PRIMARY KEY, b text) DISTRIBUTE BY HASH (a)"])?;
    let shown =
        psql.run(&["INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'z'); SELECT count(*) FROM t"])?;
    ensure!(shown == "INSERT 0 3\n3\n", "{shown:?}");

    // One -c with several statements is one transaction.
    let output = psql.output(&["-c", "INSERT INTO t VALUES (4, 'w'); SELECT 1 / 0"])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(String::from_utf8_lossy(&output.stderr).contains("division by zero"), "{output:?}");
    ensure!(psql.run(&["SELECT count(*) FROM t"])? == "3\n");

    let stopped =
        psql.output(&["-v", "ON_ERROR_STOP=1", "-c", "SELECT nothing", "-c", "DELETE FROM t"])?;
    ensure!(stopped.status.code() == Some(1), "{stopped:?}");
    ensure!(psql.run(&["SELECT count(*) FROM t"])? == "3\n");

    let files = tempfile::tempdir()?;
    let script = files.path().join("script.sql");
    std::fs::write(
        &script,
        "\\set ON_ERROR_STOP on\nBEGIN;\nUPDATE t SET b = b || '!';\nSELECT b FROM t ORDER BY a;\nCOMMIT;\n\
         \\if true\nSELECT 'yes';\n\\endif\nSELECT 1 AS one \\gset\nSELECT :one + 1;\nSELECT nothing;\nDELETE FROM t;\n",
    )?;
    let output = psql.output(&["-At", "-f", &script.display().to_string()])?;
    ensure!(output.status.code() == Some(3), "{output:?}");
    let shown = String::from_utf8_lossy(&output.stdout);
    ensure!(shown == "BEGIN\nUPDATE 3\nx!\ny!\nz!\nCOMMIT\nyes\n2\n", "{shown:?}");
    // The position of an error points into the statement as it was typed.
    ensure!(
        String::from_utf8_lossy(&output.stderr).contains("LINE 1: SELECT nothing"),
        "{output:?}"
    );

    let output = psql.output(&[
        "-1",
        "-At",
        "-c",
        "INSERT INTO t VALUES (9, 'nine')",
        "-c",
        "SELECT 1 / 0",
    ])?;
    ensure!(!output.status.success(), "{output:?}");
    ensure!(psql.run(&["SELECT count(*) FROM t WHERE a = 9"])? == "0\n");

    let shown = psql.run(&[
        "EXPLAIN SELECT * FROM t WHERE a = 1",
        "EXPLAIN (COSTS OFF) SELECT count(*) FROM t",
    ])?;
    ensure!(shown.to_lowercase().contains("node"), "EXPLAIN does not tell the nodes: {shown}");
    Ok(())
}

#[test]
fn copy_goes_in_and_out() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let Some(psql) = Psql::find(&cluster.endpoint()) else { return Ok(()) };
    let files = tempfile::tempdir()?;
    let (first, second) = (files.path().join("in.csv"), files.path().join("out.csv"));
    std::fs::write(&first, "1,one\n2,\"t,wo\"\n3,\n4,\"fo\"\"ur\"\n5,\"fi\nve\"\n")?;
    for (table, clause) in [("h", "HASH (a)"), ("r", "ROUND ROBIN"), ("w", "REPLICATED")] {
        psql.run(&[&format!("CREATE TABLE {table} (a int, b text) DISTRIBUTE BY {clause}")])?;
        let shown = psql.run(&[&format!("\\copy {table} FROM '{}' CSV", first.display())])?;
        ensure!(shown == "COPY 5\n", "{table}: {shown:?}");
        psql.run(&[&format!(
            "\\copy (SELECT * FROM {table} ORDER BY a) TO '{}' CSV",
            second.display()
        )])?;
        ensure!(std::fs::read(&first)? == std::fs::read(&second)?, "{table}: other data came out");
        psql.run(&[&format!("\\copy {table} TO '{}' CSV", second.display())])?;
        let lines = std::fs::read_to_string(&second)?.lines().count();
        ensure!(lines == 6, "{table}: {lines} lines");
    }
    Ok(())
}

/// All 293,481 records of the three files, into tables without and with a primary key.
#[test]
fn the_whole_of_lahman_is_loaded() -> Result<()> {
    let Some(data) = lahman::directory_or_skip("the_whole_of_lahman_is_loaded") else {
        return Ok(());
    };
    let cluster = TestCluster::start(3)?;
    let Some(psql) = Psql::find(&cluster.endpoint()) else { return Ok(()) };
    let tables = [
        (
            "batting",
            "Batting.csv",
            105_861_u32,
            "PRIMARY KEY (\"playerID\", \"yearID\", stint)",
            "\"HR\"",
        ),
        ("fielding", "Fielding.csv", 140_921, "", "\"PO\""),
        ("pitching", "Pitching.csv", 46_699, "", "\"SO\""),
    ];
    for (table, file, rows, key, column) in tables {
        let path = data.join(file);
        let header = std::fs::read_to_string(&path)?.lines().next().unwrap_or_default().to_owned();
        let columns: Vec<String> =
            header.trim().split(',').map(|name| format!("\"{name}\" text")).collect();
        let columns = columns.join(", ").replace("\"stint\"", "stint");
        let key = if key.is_empty() { String::new() } else { format!(", {key}") };
        let clause = match table {
            "fielding" => "ROUND ROBIN",
            _ => "HASH (\"playerID\")",
        };
        psql.run(&[&format!("CREATE TABLE {table} ({columns}{key}) DISTRIBUTE BY {clause}")])?;
        let copied =
            psql.run(&[&format!("\\copy {table} FROM '{}' CSV HEADER", path.display())])?;
        ensure!(copied == format!("COPY {rows}\n"), "{table}: {copied:?}");
        let found = psql
            .run(&[&format!("SELECT count(*), sum(nullif({column}, '')::bigint) FROM {table}")])?;
        let expected = format!("{rows}|{}\n", column_sum(&path, column.trim_matches('"'))?);
        ensure!(found == expected, "{table}: {found:?} instead of {expected:?}");
        // Every node has a fair share of a distributed table.
        for index in 0..3 {
            let mut node = Client::connect(&servers::endpoint(cluster.servers(), index))?;
            let share: u32 = node.value(&format!("SELECT count(*) FROM {table}"))?.parse()?;
            ensure!(
                share > rows / 5 && share < rows / 2,
                "{table}: node {} has {share}",
                index + 1
            );
        }
    }
    let joined = psql.run(&[
        "SELECT count(*) FROM batting b JOIN pitching p USING (\"playerID\", \"yearID\", stint)",
    ])?;
    ensure!(joined.trim().parse::<u32>()? > 40_000, "{joined:?}");
    Ok(())
}

/// The sum of a numeric column, reckoned here from the file. No field of these files is quoted.
fn column_sum(path: &std::path::Path, column: &str) -> Result<u64> {
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let index = header.trim().split(',').position(|name| name == column);
    let index = index.ok_or_else(|| anyhow::anyhow!("no column {column}"))?;
    let value =
        |line: &str| line.trim_end().split(',').nth(index).and_then(|v| v.parse::<u64>().ok());
    Ok(lines.filter_map(value).sum())
}

#[test]
fn sizes_and_placements_are_the_clusters() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let Some(psql) = Psql::find(&cluster.endpoint()) else { return Ok(()) };
    psql.run(&[
        "CREATE TABLE spread (id int PRIMARY KEY, v text) WITH (fillfactor = 70) DISTRIBUTE BY HASH (id)",
        "INSERT INTO spread SELECT n, repeat('v', 900) FROM generate_series(1, 900) n",
        "CREATE TABLE copies (id int) DISTRIBUTE BY REPLICATED",
        "CREATE TABLE own (id int) DISTRIBUTE BY HOME",
    ])?;
    let (mut table, mut index) = (0, 0);
    for node in cluster.nodes() {
        let mut client = Client::connect(&node)?;
        table += client.value("SELECT pg_table_size('spread')")?.parse::<i64>()?;
        index += client.value("SELECT pg_relation_size('spread_pkey')")?.parse::<i64>()?;
    }
    let pretty = |bytes: i64| psql.run(&[&format!("SELECT pg_size_pretty({bytes}::bigint)")]);
    for (command, bytes) in [("\\dt+ spread", table), ("\\di+ spread_pkey", index)] {
        let (told, expected) = (psql.run(&[command])?, pretty(bytes)?);
        ensure!(told.contains(&format!("|{}|", expected.trim())), "{command}: {told} {expected}");
    }
    ensure!(psql.run(&["\\l+"])?.contains("postgres"));
    for (table, options) in [
        ("spread", "Options: fillfactor=70, distribute by hash (id)"),
        ("copies", "Options: distribute by replicated"),
        ("own", "Options: distribute by home"),
    ] {
        // Without -t, which leaves footers out.
        let told = psql.output(&["-A", "-c", &format!("\\d+ {table}")])?;
        let told = String::from_utf8(told.stdout)?;
        ensure!(told.lines().any(|line| line == options), "{table}: {told}");
    }
    let index = psql.output(&["-A", "-c", "\\d+ spread_pkey"])?;
    ensure!(!String::from_utf8(index.stdout)?.contains("distribute"));
    Ok(())
}
