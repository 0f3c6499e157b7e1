//! The differential tester: one script on one PostgreSQL and on a cluster, step by step.
//!
//! Owns: running scripts and telling differences so that a reader can act on them.
//! Never: knows what a statement means; what is compared is in `compare`, what is run in `script`.
//! Start reading at [`Stage::run`].

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::agreement::{Others, disagreements_where};
use crate::answer::{Answer, Outcome};
use crate::client::{Client, Endpoint, Flight, Request, text_arguments};
use crate::compare::{Rules, TypeNames, difference};
use crate::lahman;
use crate::script::{Compare, CopyData, Placement, Script, Step, has_top_level_order_by};

/// OIDs from here on differ between servers.
const FIRST_USER_OID: u32 = 16_384;
/// What a refusal on purpose must say.
const FEATURE_NOT_SUPPORTED: &str = "0A000";

/// By which protocol statements are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// Query messages.
    Simple,
    /// Parse, Describe; then Bind with binary results, Execute; then Sync.
    Extended,
    /// Everything up to Sync in one write.
    Pipelined,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Simple, Self::Extended, Self::Pipelined];

    /// For messages and for choosing.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Extended => "extended",
            Self::Pipelined => "pipelined",
        }
    }
}

/// Two endpoints that must answer alike.
#[derive(Clone, Debug)]
pub struct Stage {
    /// One PostgreSQL: always right.
    pub expected: Endpoint,
    /// The gateway, or another PostgreSQL.
    pub subject: Endpoint,
    /// The subject's nodes; none: it is a plain PostgreSQL, which knows no DISTRIBUTE BY and refuses
    /// nothing.
    pub nodes: Vec<Endpoint>,
    /// Whether tables that say nothing are on node 1 alone: there much works that is refused where
    /// they are on several nodes.
    pub others: Others,
}

/// Where and how something was run.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The script.
    pub script: &'a Script,
    /// Its distribution's name.
    pub distribution: &'a str,
    /// The protocol.
    pub protocol: Protocol,
}

/// One difference, in words for a reader.
#[derive(Clone, Debug)]
pub struct Difference {
    path: PathBuf,
    line: usize,
    sql: String,
    distribution: String,
    protocol: Protocol,
    nodes: usize,
    what: String,
    expected: String,
    found: String,
}

impl Difference {
    /// All in one line.
    pub fn summary(&self) -> String {
        let (protocol, what) = (self.protocol.name(), &self.what);
        format!("{} {} {} {protocol}: {what}", self.place(), self.distribution, self.nodes)
    }

    /// File name and line, for tests of the tester.
    pub fn place(&self) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{file}:{}", self.line)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        let protocol = self.protocol.name();
        writeln!(f, "──── {}:{}: {}", self.path.display(), self.line, self.what)?;
        writeln!(f, "{} nodes, distribution {}, {protocol}", self.nodes, self.distribution)?;
        writeln!(f, "{}", self.sql)?;
        writeln!(f, "  expected\n{}", indented(&self.expected))?;
        writeln!(f, "  found\n{}", indented(&self.found))?;
        writeln!(
            f,
            "  again: TUTTI_DIFFERENTIAL='{file} {} {} {protocol}' \
             ./dev test --test answers differential::",
            self.distribution, self.nodes
        )
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

/// How many statements were compared, and what differed.
#[derive(Debug, Default)]
pub struct Report {
    /// Statements whose answers were compared.
    pub compared: usize,
    /// Statements that were refused as expected.
    pub refused: usize,
    /// Everything that differed.
    pub differences: Vec<Difference>,
}

impl Report {
    /// Adds another report's findings.
    pub fn add(&mut self, other: Report) {
        self.compared += other.compared;
        self.refused += other.refused;
        self.differences.extend(other.differences);
    }
}

/// Two sessions in which a script runs side by side.
struct Sessions {
    expected: Client,
    subject: Client,
    /// What COPY … TO STDOUT gave last, for `\previous`.
    copied: (Vec<u8>, Vec<u8>),
}

impl Stage {
    /// Empties the database on both sides.
    pub fn clear(&self) -> Result<()> {
        for endpoint in [&self.expected, &self.subject] {
            clear(endpoint).with_context(|| format!("empty the database at {endpoint:?}"))?;
        }
        Ok(())
    }

    /// Runs a script and compares answer by answer. Ends early when a session is lost.
    ///
    /// Errors: the expected side does not work.
    pub fn run(&self, setting: &Setting<'_>, placement: &Placement) -> Result<Report> {
        let mut report = Report::default();
        let mut sessions = Sessions {
            expected: Client::connect(&self.expected).context("connect to PostgreSQL")?,
            subject: match Client::connect(&self.subject) {
                Ok(client) => client,
                Err(error) => {
                    let step = setting.script.steps.first().cloned().unwrap_or_default();
                    let what = format!("cannot connect: {error:#}");
                    report.differences.push(self.difference(setting, &step, what));
                    return Ok(report);
                }
            },
            copied: Default::default(),
        };
        for step in &setting.script.steps {
            let goes_on = self.run_step(setting, placement, step, &mut sessions, &mut report)?;
            if !goes_on {
                break;
            }
        }
        drop(sessions);
        if let Some(last) = setting.script.steps.last() {
            let found = disagreements_where(&self.nodes, self.others);
            for what in found.unwrap_or_else(|error| vec![error.to_string()]) {
                let what = format!("after the script the nodes do not agree: {what}");
                report.differences.push(self.difference(setting, last, what));
            }
        }
        Ok(report)
    }

    fn run_step(
        &self,
        setting: &Setting<'_>,
        placement: &Placement,
        step: &Step,
        sessions: &mut Sessions,
        report: &mut Report,
    ) -> Result<bool> {
        let (expected_in, subject_in) = match &step.copy_in {
            None => Default::default(),
            Some(CopyData::Inline(data)) => (data.clone().into_bytes(), data.clone().into_bytes()),
            Some(CopyData::Previous) => sessions.copied.clone(),
            Some(CopyData::File { name, rows }) => {
                let data = lahman::first_lines(name, *rows)?;
                (data.clone(), data)
            }
        };
        let is_cluster = !self.nodes.is_empty();
        let sql = if is_cluster { step.placed(placement) } else { step.plain() };
        let answered = send(&mut sessions.subject, step, &sql, setting.protocol, &subject_in);
        let found = match answered {
            Ok(found) => found,
            Err(error) => {
                let what = format!("the session was lost: {error:#}");
                report.differences.push(self.difference(setting, step, what));
                return Ok(false);
            }
        };
        if is_cluster && step.is_refused_in(setting.distribution) {
            if found.error().map(|error| error.sqlstate()) == Some(FEATURE_NOT_SUPPORTED) {
                report.refused += 1;
                return Ok(true);
            }
            // What is refused because of several nodes may work on one.
            if self.nodes.len() > 1 && self.others == Others::HaveAll {
                let mut difference =
                    self.difference(setting, step, "not refused with 0A000".to_owned());
                difference.found = found.to_string();
                report.differences.push(difference);
                return Ok(true);
            }
        }
        let expected =
            send(&mut sessions.expected, step, &step.plain(), setting.protocol, &expected_in)
                .with_context(|| format!("line {} on PostgreSQL", step.line))?;
        report.compared += 1;
        let rules = Rules {
            compare: step.compare,
            ordered: step.compare == Compare::All && has_top_level_order_by(&step.sql),
        };
        let expected_types = user_types(&expected, &self.expected);
        let found_types = user_types(&found, &self.subject);
        if let Some(what) = difference((&expected, &expected_types), (&found, &found_types), rules)
        {
            let mut difference = self.difference(setting, step, what);
            difference.expected = expected.to_string();
            difference.found = found.to_string();
            report.differences.push(difference);
        }
        if let Some(data) = copied_out(expected) {
            sessions.copied = (data, copied_out(found).unwrap_or_default());
        }
        Ok(true)
    }

    fn difference(&self, setting: &Setting<'_>, step: &Step, what: String) -> Difference {
        Difference {
            path: setting.script.path.clone(),
            line: step.line,
            sql: step.sql.clone(),
            distribution: setting.distribution.to_owned(),
            protocol: setting.protocol,
            nodes: self.nodes.len(),
            what,
            expected: String::new(),
            found: String::new(),
        }
    }
}

fn send(
    client: &mut Client,
    step: &Step,
    sql: &str,
    protocol: Protocol,
    copy_in: &[u8],
) -> Result<Answer> {
    let arguments: Vec<_> = step.bind.iter().map(|values| text_arguments(values)).collect();
    let request =
        Request { sql, types: &step.types, arguments: &arguments, row_limit: step.row_limit };
    let needs_extended = !step.bind.is_empty() || step.row_limit > 0;
    match protocol {
        _ if step.several => client.simple(sql, copy_in),
        Protocol::Simple if !needs_extended => client.simple(sql, copy_in),
        Protocol::Pipelined if step.row_limit == 0 => {
            client.extended(&request, Flight::OneFlight, copy_in)
        }
        _ => client.extended(&request, Flight::TwoFlights, copy_in),
    }
}

/// Names of the types in an answer whose OIDs mean nothing on another server. Asked in a session of
/// its own, so that the script's is not disturbed; types it cannot see keep no name.
fn user_types(answer: &Answer, endpoint: &Endpoint) -> TypeNames {
    let mut names = TypeNames::new();
    for outcome in &answer.outcomes {
        let Outcome::Rows { columns, .. } = outcome else { continue };
        for oid in columns.iter().map(|c| c.type_oid).filter(|oid| *oid >= FIRST_USER_OID) {
            if names.contains_key(&oid) {
                continue;
            }
            let asked = Client::connect(endpoint).and_then(|mut client| {
                client.value(&format!("SELECT format_type(oid, -1) FROM pg_type WHERE oid = {oid}"))
            });
            names.insert(oid, asked.unwrap_or_else(|_| "not visible yet".to_owned()));
        }
    }
    names
}

fn copied_out(answer: Answer) -> Option<Vec<u8>> {
    answer.outcomes.into_iter().find_map(|outcome| match outcome {
        Outcome::CopyOut { data, .. } => Some(data),
        _ => None,
    })
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
    let roles =
        client.query("SELECT quote_ident(rolname) FROM pg_roles WHERE rolname ~ '^test_'")?;
    client.query("CREATE SCHEMA public")?;
    client.query("GRANT USAGE ON SCHEMA public TO public")?;
    for role in roles.into_iter().flatten().flatten() {
        client.query(&format!("DROP ROLE {role}"))?;
    }
    Ok(())
}

/// All scripts of a directory, by name; those in `setup/` are not among them.
pub fn scripts(dir: &Path) -> Result<Vec<Script>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "sql"));
    paths.sort();
    paths.iter().map(|path| Script::read(path)).collect()
}
