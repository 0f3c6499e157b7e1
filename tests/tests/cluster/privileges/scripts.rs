//! Runs the scripts of `tests/privileges` and compares.
//!
//! Owns: sessions by role, and emptying the databases in between. What is equal is said in
//! `tutti_tests::compare`.
//! Start reading at [`compare_everything`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tutti_tests::agreement::disagreements;
use tutti_tests::answer::Answer;
use tutti_tests::client::{Client, Endpoint, Flight, Request};
use tutti_tests::compare::{Rules, TypeNames, difference};
use tutti_tests::gateway::TestCluster;
use tutti_tests::script::{Compare, CopyData, Placement, Script, Step, has_top_level_order_by};
use tutti_tests::servers;
use tutti_tests::suite::Part;

/// Chooses what runs: `FILE DISTRIBUTION`.
const CHOICE: &str = "TUTTI_PRIVILEGES";

/// Statements of one session, up to the next `--@`.
struct Turn {
    /// `bob` or `bob 2`.
    session: String,
    script: Script,
}

struct File {
    path: PathBuf,
    distributions: BTreeMap<String, Placement>,
    parts: Vec<Turn>,
}

fn read(path: PathBuf) -> Result<File> {
    let text = std::fs::read_to_string(&path)?;
    let mut distributions = BTreeMap::new();
    let mut parts = Vec::new();
    let mut session = "postgres".to_owned();
    let mut part = String::new();
    // Empty lines in place of what is not the part's keep the numbers of lines.
    let mut before = String::new();
    for line in text.lines().chain(["--@ nobody"]) {
        before.push('\n');
        let Some(next) = line.strip_prefix("--@ ") else {
            part.push_str(line);
            part.push('\n');
            continue;
        };
        let script = Script::parse(&part).with_context(|| path.display().to_string())?;
        distributions.extend(script.distributions.clone());
        parts.push(Turn { session: next_session(&mut session, next), script });
        part = before.clone();
    }
    Ok(File { path, distributions, parts })
}

fn next_session(current: &mut String, next: &str) -> String {
    std::mem::replace(current, next.trim().to_owned())
}

/// The sessions on one side, opened when first needed.
struct Sessions {
    endpoint: Endpoint,
    open: BTreeMap<String, Client>,
}

impl Sessions {
    fn on(endpoint: Endpoint) -> Self {
        Self { endpoint, open: BTreeMap::new() }
    }

    fn of(&mut self, name: &str) -> Result<&mut Client> {
        if !self.open.contains_key(name) {
            let role = match name.split(' ').next().unwrap_or_default() {
                "postgres" => "postgres".to_owned(),
                role => format!("test_{role}"),
            };
            let client = Client::connect_as(&self.endpoint, &role);
            let client = client.with_context(|| format!("connect as {role}"))?;
            self.open.insert(name.to_owned(), client);
        }
        Ok(self.open.get_mut(name).expect("just made sure"))
    }
}

fn send(client: &mut Client, step: &Step, sql: &str, extended: bool) -> Result<Answer> {
    let data = match &step.copy_in {
        Some(CopyData::Inline(data)) => data.as_bytes(),
        _ => &[],
    };
    if extended && !step.several {
        let request = Request { sql, ..Request::default() };
        client.extended(&request, Flight::TwoFlights, data)
    } else {
        client.simple(sql, data)
    }
}

/// Drops everything that scripts make.
fn clear(endpoint: &Endpoint) -> Result<()> {
    let mut client = Client::connect(endpoint)?;
    let schemas = client.query(
        "SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname !~ '^pg_' \
         AND nspname NOT IN ('information_schema', 'tutti') ORDER BY 1",
    )?;
    for schema in schemas.into_iter().flatten().flatten() {
        client.query(&format!("DROP SCHEMA {schema} CASCADE"))?;
    }
    client.query("CREATE SCHEMA public")?;
    client.query("GRANT USAGE ON SCHEMA public TO public")?;
    let roles = client.query("SELECT rolname FROM pg_roles WHERE rolname ~ '^test_'")?;
    for role in roles.into_iter().flatten().flatten() {
        client.query(&format!("DROP OWNED BY {role}"))?;
        client.query(&format!("DROP ROLE {role}"))?;
    }
    Ok(())
}

/// What differed, in words.
struct Findings {
    compared: usize,
    refused: usize,
    differences: Vec<String>,
}

fn run(
    file: &File,
    distribution: &str,
    plain: &Endpoint,
    cluster: &TestCluster,
    extended: bool,
    findings: &mut Findings,
) -> Result<()> {
    let placement = &file.distributions[distribution];
    clear(plain).context("empty PostgreSQL")?;
    clear(&cluster.endpoint()).context("empty the cluster")?;
    let (mut expecting, mut subject) =
        (Sessions::on(plain.clone()), Sessions::on(cluster.endpoint()));
    let protocol = if extended { "extended" } else { "simple" };
    for Turn { session, script } in &file.parts {
        for step in &script.steps {
            let mut note = |what: String, expected: &str, found: &str| {
                let name = file.path.file_name().unwrap_or_default().to_string_lossy();
                findings.differences.push(format!(
                    "{name}:{} {distribution} {protocol}, by {session}: {what}\n    {}\n  expected\n{expected}\n  found\n{found}",
                    step.line, step.sql
                ));
            };
            let found = send(subject.of(session)?, step, &step.placed(placement), extended)
                .with_context(|| format!("line {} through the gateway", step.line))?;
            let refused = found.error().is_some_and(|error| error.sqlstate() == "0A000");
            if step.is_refused_in(distribution) {
                findings.refused += 1;
                if !refused {
                    note("not refused with 0A000".to_owned(), "", &found.to_string());
                }
                // The plain server must not go on where the cluster does not.
                continue;
            }
            let expected = send(expecting.of(session)?, step, &step.sql, extended)
                .with_context(|| format!("line {} on PostgreSQL", step.line))?;
            findings.compared += 1;
            let rules = Rules {
                compare: step.compare,
                ordered: step.compare == Compare::All && has_top_level_order_by(&step.sql),
            };
            let types = TypeNames::new();
            if let Some(what) = difference((&expected, &types), (&found, &types), rules) {
                note(what, &expected.to_string(), &found.to_string());
            }
        }
    }
    for what in disagreements(&cluster.nodes())? {
        findings.differences.push(format!("{}: the nodes disagree: {what}", file.path.display()));
    }
    Ok(())
}

fn compare_everything(extended: bool) -> Result<()> {
    let choice = std::env::var(CHOICE).unwrap_or_default();
    let mut choice = choice.split_whitespace();
    let (only_file, only_distribution) = (choice.next(), choice.next());
    let plain = servers::start(1)?;
    let mut cluster = TestCluster::start(3)?;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("privileges");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    paths.sort();
    let mut findings = Findings { compared: 0, refused: 0, differences: Vec::new() };
    // Each file by both protocols, and each of its distributions by one of them.
    let share = if extended { Part::ODD } else { Part::EVEN };
    for (number, path) in paths.into_iter().enumerate() {
        let file = read(path)?;
        let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if only_file.is_some_and(|only| only != name) {
            continue;
        }
        for (place, distribution) in file.distributions.keys().enumerate() {
            if only_file.is_none() && !share.has(number + place) {
                continue;
            }
            if only_distribution.is_some_and(|only| only != distribution) {
                continue;
            }
            let plain = servers::endpoint(&plain, 0);
            run(&file, distribution, &plain, &cluster, extended, &mut findings)
                .with_context(|| format!("{name} {distribution}"))?;
        }
    }
    let Findings { compared, refused, differences } = findings;
    println!("{compared} statements compared, {refused} refused on purpose");
    for difference in &differences {
        println!("──── {difference}");
    }
    assert!(differences.is_empty(), "{} differences, see above", differences.len());
    ensure!(only_file.is_some() || 500 < compared, "hardly anything was compared");
    cluster.stop_gateway()
}

#[test]
fn roles_get_from_a_cluster_what_they_get_from_postgresql() -> Result<()> {
    compare_everything(false)
}

#[test]
fn roles_get_it_by_the_extended_protocol_too() -> Result<()> {
    compare_everything(true)
}
