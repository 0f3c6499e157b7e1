//! Every command of PostgreSQL's reference on tables of node 1, where others are spread: what it answers is
//! what one PostgreSQL answers.
//!
//! Owns: the comparison, line by line. The statements are `tests/home/statements.sql`.

use anyhow::{Result, ensure};
use tutti_tests::answer::{Answer, Outcome};
use tutti_tests::client::Client;
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

const STATEMENTS: &str = include_str!("../../home/statements.sql");

/// A line of the file.
struct Line<'a> {
    sql: &'a str,
    /// The cluster refuses it.
    is_refused: bool,
}

fn lines() -> impl Iterator<Item = Line<'static>> {
    let lines = STATEMENTS.lines().filter(|line| !line.is_empty() && !line.starts_with("--"));
    lines.map(|line| match line.strip_prefix("! ") {
        Some(sql) => Line { sql, is_refused: true },
        None => Line { sql: line, is_refused: false },
    })
}

/// What a client sees of an answer, but for the line that EXPLAIN has of Tutti's.
fn shown(answer: &Answer) -> String {
    let mut seen = Vec::new();
    for outcome in &answer.outcomes {
        match outcome {
            Outcome::Rows { tag, .. } => {
                let is_ours = |row: &Vec<Option<String>>| match row.first() {
                    Some(Some(line)) => line.starts_with("Tutti: runs on node n1"),
                    _ => false,
                };
                let mut rows = answer.texts();
                rows.retain(|row| !is_ours(row));
                seen.push(format!("{rows:?} {tag:?}"));
            }
            Outcome::Failed(error) => seen.push(error.sqlstate().to_owned()),
            other => seen.push(format!("{other:?}")),
        }
    }
    seen.join("; ")
}

#[test]
fn every_statement_on_home_tables_is_answered_as_one_postgresql_does() -> Result<()> {
    let alone = servers::start(1)?;
    let mut cluster = TestCluster::start_at_home(servers::start(3)?)?;
    let mut one = Client::connect(&servers::endpoint(&alone, 0))?;
    let mut many = Client::connect(&cluster.endpoint())?;
    for (table, placement) in [("spread", "HASH (id)"), ("copied", "REPLICATED")] {
        let sql = format!("CREATE TABLE {table} (id int PRIMARY KEY, v int)");
        one.query(&sql)?;
        many.query(&format!("{sql} DISTRIBUTE BY {placement}"))?;
    }
    let [file_of_one, file_of_many] = [&mut one, &mut many].map(|client| -> Result<String> {
        Ok(format!("{}/home_statements.txt", client.value("SHOW data_directory")?))
    });
    let (file_of_one, file_of_many) = (file_of_one?, file_of_many?);
    let mut differences = String::new();
    for line in lines() {
        let found = shown(&many.simple(&line.sql.replace("{file}", &file_of_many), b"")?);
        let expected = match line.is_refused {
            true => "0A000".to_owned(),
            false => shown(&one.simple(&line.sql.replace("{file}", &file_of_one), b"")?),
        };
        let is_right = found == expected;
        if !is_right {
            differences += &format!("{}\n  one: {expected}\n  tutti: {found}\n", line.sql);
        }
    }
    ensure!(differences.is_empty(), "{differences}");
    cluster.stop_gateway()
}
