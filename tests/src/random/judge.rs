//! A case on both sides.
//!
//! Owns: in which order things are sent, how two answers are compared, and what is no difference: a refusal; errors of
//! one kind of which each side met another one first; and an answer that PostgreSQL itself gives only by some of its plans.
//! Never: draws a statement.
//! Start reading at [`Arena::run`].

use std::collections::BTreeMap;
use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::case::{By, Case, Statement, Unit};
use crate::answer::{Answer, Outcome};
use crate::client::{Client, Endpoint, Flight, Request, text_arguments};
use crate::compare::{Rules, TypeNames, difference};
use crate::script::Compare;

/// For both sides, in every session.
const SETTINGS: &str = "SET statement_timeout = '30s'; SET client_min_messages = 'error'";
/// Plans that PostgreSQL may make as well.
const OTHER_PLANS: [(&str, &str); 7] = [
    // In PostgreSQL 15 WITH TIES counts for the index that finds a maximum, too: 21000.
    (
        "enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off",
        "enable_indexscan = on; SET enable_indexonlyscan = on; SET enable_bitmapscan = on",
    ),
    ("enable_hashjoin = off", "enable_hashjoin = on"),
    ("enable_hashagg = off", "enable_hashagg = on"),
    ("enable_nestloop = off", "enable_nestloop = on"),
    ("enable_mergejoin = off", "enable_mergejoin = on"),
    ("enable_sort = off", "enable_sort = on"),
    ("join_collapse_limit = 1", "join_collapse_limit = 8"),
];
/// How long the last node may take to show what is committed.
const PATIENCE: Duration = Duration::from_secs(3);
const FEATURE_NOT_SUPPORTED: &str = "0A000";
const CANCELED: &str = "57014";

/// What was compared, and what was not.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Statements with equal answers.
    pub equal: usize,
    /// Of these, statements that failed on both sides.
    pub failed: usize,
    /// By the refusal's message.
    pub refused: BTreeMap<String, usize>,
    /// By both SQLSTATEs: each side met another error first.
    pub other_error: BTreeMap<String, usize>,
    /// PostgreSQL's own answer depends on its plan.
    pub undetermined: usize,
    /// Statements that were cancelled because they took long.
    pub cancelled: usize,
    /// Errors that both sides gave.
    pub states: BTreeMap<String, usize>,
}

/// A difference.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which unit shows it.
    pub unit: usize,
    /// The statement.
    pub statement: Statement,
    /// In a few words.
    pub what: String,
    /// PostgreSQL's answer.
    pub expected: String,
    /// The gateway's.
    pub found: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}", self.what, self.statement)?;
        writeln!(f, "  expected\n{}\n  found\n{}", self.expected, self.found)
    }
}

impl Figures {
    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.equal += other.equal;
        self.failed += other.failed;
        self.undetermined += other.undetermined;
        self.cancelled += other.cancelled;
        let maps = [
            (&mut self.refused, &other.refused),
            (&mut self.other_error, &other.other_error),
            (&mut self.states, &other.states),
        ];
        for (own, others) in maps {
            for (key, count) in others {
                *own.entry(key.clone()).or_default() += count;
            }
        }
    }

    /// How many were refused.
    pub fn refusals(&self) -> usize {
        self.refused.values().sum()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused = self.refusals();
        let all = self.equal + refused + self.undetermined + self.cancelled;
        let share = refused as f64 * 100.0 / all.max(1) as f64;
        writeln!(
            f,
            "{} statements answered alike ({} of them by an error), {refused} refused ({share:.1} %), {} \
             undetermined, {} cancelled",
            self.equal, self.failed, self.undetermined, self.cancelled
        )?;
        for (title, counts) in [
            ("errors", &self.states),
            ("other errors", &self.other_error),
            ("refused", &self.refused),
        ] {
            let mut counts: Vec<_> = counts.iter().collect();
            counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for (what, count) in counts.into_iter().take(25) {
                writeln!(f, "  {title}: {count:5} {what}")?;
            }
        }
        Ok(())
    }
}

/// Where cases are run: one PostgreSQL, and a cluster.
#[derive(Clone, Debug)]
pub struct Arena {
    /// PostgreSQL.
    pub expected: Endpoint,
    /// The gateway.
    pub subject: Endpoint,
    /// Its nodes.
    pub nodes: Vec<Endpoint>,
}

/// The sessions of one case.
struct Sessions {
    expected: Client,
    subject: Client,
    nodes: Vec<Client>,
    expected_types: TypeNames,
    subject_types: TypeNames,
    /// For each node and the plain server (the last): what gives all rows of its tables.
    contents: Vec<String>,
    is_lost: bool,
}

impl Arena {
    /// Makes the case's schema, and runs its units until one of them, or what they leave, differs.
    ///
    /// Errors: the expected side does not work.
    pub fn run(&self, case: &Case, figures: &mut Figures) -> Result<Option<Finding>> {
        let mut sessions = self.begin()?;
        sessions.set(case)?;
        for statement in &case.setup {
            let unit = Unit { begin: None, statements: vec![statement.clone()], end: "", draw: 0 };
            if let Some(finding) = sessions.run_unit(&unit, 0, figures)? {
                return Ok(Some(finding));
            }
        }
        sessions.learn(case)?;
        let mut draw = None;
        for (number, unit) in case.units.iter().enumerate() {
            if draw != Some(unit.draw) {
                sessions.subject.query(&format!("SET tutti.draw = {}", unit.draw))?;
                draw = Some(unit.draw);
            }
            if let Some(finding) = sessions.run_unit(unit, number, figures)? {
                return Ok(Some(finding));
            }
            let changes = unit.statements.iter().any(|statement| !statement.only_reads);
            if changes && let Some(what) = sessions.contents(case)? {
                let statement = unit.statements.iter().rfind(|statement| !statement.only_reads);
                let statement = statement.cloned().unwrap_or_default();
                let (expected, found) = (String::new(), unit.to_string());
                let what = format!("afterwards {what}");
                return Ok(Some(Finding { unit: number, statement, what, expected, found }));
            }
        }
        Ok(None)
    }

    /// Sessions on empty databases.
    fn begin(&self) -> Result<Sessions> {
        let clean = |endpoint: &Endpoint| {
            let mut client = Client::connect(endpoint)?;
            client.query(SETTINGS)?;
            client.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")?;
            anyhow::Ok(client)
        };
        let subject = clean(&self.subject).context("empty the cluster")?;
        let expected = clean(&self.expected).context("empty the plain server")?;
        let nodes = self.nodes.iter().map(Client::connect).collect::<Result<Vec<_>>>()?;
        let (expected_types, subject_types) = Default::default();
        let (contents, is_lost) = (Vec::new(), false);
        Ok(Sessions { expected, subject, nodes, expected_types, subject_types, contents, is_lost })
    }

    /// Whether a statement that only reads differs in the state that a case has left, by itself.
    pub fn differs_now(
        &self,
        case: &Case,
        statement: &Statement,
        draw: u32,
    ) -> Result<Option<Finding>> {
        let mut sessions = Sessions {
            expected: Client::connect(&self.expected)?,
            subject: Client::connect(&self.subject)?,
            nodes: Vec::new(),
            expected_types: TypeNames::new(),
            subject_types: TypeNames::new(),
            contents: Vec::new(),
            is_lost: false,
        };
        sessions.expected.query(SETTINGS)?;
        sessions.subject.query(SETTINGS)?;
        sessions.subject.query(&format!("SET tutti.draw = {draw}"))?;
        sessions.set(case)?;
        sessions.learn_types()?;
        let unit = Unit { begin: None, statements: vec![statement.clone()], end: "", draw };
        sessions.run_unit(&unit, 0, &mut Figures::default())
    }
}

impl Sessions {
    /// The case's settings, on the nodes too, whose rows are looked at.
    fn set(&mut self, case: &Case) -> Result<()> {
        let clients = [&mut self.expected, &mut self.subject];
        for client in clients.into_iter().chain(&mut self.nodes) {
            for setting in &case.settings {
                client.query(&format!("SET {setting}"))?;
            }
        }
        Ok(())
    }

    fn learn_types(&mut self) -> Result<()> {
        const TYPES: &str = "SELECT oid, pg_catalog.format_type(oid, -1) FROM pg_catalog.pg_type WHERE oid >= 16384";
        let names = |client: &mut Client| {
            let mut names = TypeNames::new();
            for row in client.query(TYPES)? {
                if let [Some(oid), Some(name)] = &row[..] {
                    names.insert(oid.parse()?, name.clone());
                }
            }
            anyhow::Ok(names)
        };
        self.expected_types = names(&mut self.expected)?;
        self.subject_types = names(&mut self.subject)?;
        Ok(())
    }

    /// What there is once the schema has been made.
    fn learn(&mut self, case: &Case) -> Result<()> {
        self.learn_types()?;
        for client in self.nodes.iter_mut().chain([&mut self.expected]) {
            let mut parts = Vec::new();
            for (table, _) in &case.tables {
                let exists = format!("SELECT pg_catalog.to_regclass('{table}') IS NOT NULL");
                if client.value(&exists)? == "t" {
                    parts.push(format!("SELECT '{table}', {table}::text FROM {table}"));
                }
            }
            let none = || "SELECT WHERE false".to_owned();
            let all = (!parts.is_empty()).then(|| parts.join(" UNION ALL "));
            self.contents.push(all.unwrap_or_else(none));
        }
        Ok(())
    }

    /// What differs between the rows of the plain server and those of the nodes, asked without the gateway.
    fn contents(&mut self, case: &Case) -> Result<Option<String>> {
        let Some(all) = self.contents.last() else { return Ok(None) };
        let mut expected = self.expected.query(all)?;
        expected.sort();
        let mut waited = Duration::ZERO;
        loop {
            let mut found = Vec::new();
            for (number, node) in self.nodes.iter_mut().enumerate() {
                let rows = node.query(&self.contents[number])?;
                found.push(rows);
            }
            let mut what = None;
            for (table, is_replicated) in &case.tables {
                let of = |rows: &[Vec<Option<String>>]| -> Vec<Vec<Option<String>>> {
                    let of_table = rows.iter().filter(|row| row[0].as_ref() == Some(table));
                    let mut rows: Vec<_> = of_table.cloned().collect();
                    rows.sort();
                    rows
                };
                let one = of(&expected);
                let others = match is_replicated {
                    true => found.iter().map(|rows| of(rows)).collect(),
                    false => vec![of(&found.concat())],
                };
                for other in others.into_iter().filter(|other| *other != one) {
                    let row = |rows: &[Vec<Option<String>>], than: &[Vec<Option<String>>]| {
                        let row = rows.iter().find(|row| !than.contains(row));
                        row.map_or_else(|| "fewer of some".to_owned(), |row| format!("{row:?}"))
                    };
                    what = Some(format!(
                        "{table} has {} rows instead of {}: {} instead of {}",
                        other.len(),
                        one.len(),
                        row(&other, &one),
                        row(&one, &other)
                    ));
                }
            }
            if what.is_none() || waited >= PATIENCE {
                return Ok(what);
            }
            let pause = Duration::from_millis(100);
            sleep(pause);
            waited += pause;
        }
    }

    fn run_unit(
        &mut self,
        unit: &Unit,
        number: usize,
        figures: &mut Figures,
    ) -> Result<Option<Finding>> {
        let plain = |sql: &str| Statement { sql: sql.to_owned(), ..Statement::default() };
        if let Some(begin) = &unit.begin
            && let Some(finding) = self.compare(&plain(begin), number, figures)?
        {
            return Ok(Some(finding));
        }
        let mut has_savepoint = false;
        for statement in &unit.statements {
            let finding = self.compare(statement, number, figures)?;
            if finding.is_some() {
                return Ok(finding);
            }
            match statement.sql.as_str() {
                "SAVEPOINT s" => has_savepoint = true,
                "RELEASE s" => has_savepoint = false,
                _ => (),
            }
            if unit.begin.is_some() && self.is_lost {
                self.is_lost = false;
                let back = if has_savepoint { "ROLLBACK TO s" } else { "ROLLBACK" };
                for client in [&mut self.subject, &mut self.expected] {
                    client.simple(back, b"")?;
                }
                if !has_savepoint {
                    return Ok(None);
                }
            }
            self.is_lost = false;
        }
        match &unit.begin {
            Some(_) => self.compare(&plain(unit.end), number, figures),
            None => Ok(None),
        }
    }

    /// Both answers. Sets `is_lost` if the block must be gone back in.
    fn compare(
        &mut self,
        statement: &Statement,
        unit: usize,
        figures: &mut Figures,
    ) -> Result<Option<Finding>> {
        let placed = statement.placed.as_deref().unwrap_or(&statement.sql);
        let finding = |what: String, expected: String, found: String| {
            Some(Finding { unit, statement: statement.clone(), what, expected, found })
        };
        let found = match send(&mut self.subject, statement, placed) {
            Ok(found) => found,
            Err(error) => {
                return Ok(finding(
                    format!("the session was lost: {error:#}"),
                    String::new(),
                    String::new(),
                ));
            }
        };
        let state = |answer: &Answer| answer.error().map(|error| error.sqlstate().to_owned());
        let of_subject = state(&found);
        self.is_lost = of_subject.is_some();
        if of_subject.as_deref() == Some(FEATURE_NOT_SUPPORTED) {
            let message = found.error().map_or("", |error| error.message());
            *figures.refused.entry(without_names(message)).or_default() += 1;
            return Ok(None);
        }
        let expected = send(&mut self.expected, statement, &statement.sql);
        let expected = expected.with_context(|| format!("on PostgreSQL: {}", statement.sql))?;
        let of_expected = state(&expected);
        self.is_lost |= of_expected.is_some();
        if [&of_subject, &of_expected].iter().any(|it| it.as_deref() == Some(CANCELED)) {
            figures.cancelled += 1;
            // A write that one side has made and the other not.
            if !statement.only_reads && of_subject != of_expected {
                bail!("cancelled on one side: {}", statement.sql);
            }
            return Ok(None);
        }
        let rules = Rules { compare: Compare::All, ordered: statement.is_ordered };
        let (types, other_types) = (&self.expected_types, &self.subject_types);
        let Some(what) = difference((&expected, types), (&found, other_types), rules) else {
            figures.equal += 1;
            if let Some(state) = of_expected {
                figures.failed += 1;
                let message = expected.error().map_or("", |error| error.message());
                let what = format!("{state} {}", without_names(message));
                *figures.states.entry(what).or_default() += 1;
            }
            return Ok(None);
        };
        if let (Some(one), Some(other)) = (&of_expected, &of_subject)
            && one != other
            && one[..2] == other[..2]
        {
            *figures.other_error.entry(format!("{other} instead of {one}")).or_default() += 1;
            return Ok(None);
        }
        if let Some(like) = with_modifiers(&expected, &found)
            && difference((&expected, types), (&like, other_types), rules).is_none()
        {
            figures.undetermined += 1;
            return Ok(None);
        }
        if statement.only_reads && self.is_undetermined(statement, &expected, rules)? {
            figures.undetermined += 1;
            return Ok(None);
        }
        Ok(finding(what, expected.to_string(), found.to_string()))
    }

    /// Whether PostgreSQL gives another answer by another plan.
    fn is_undetermined(
        &mut self,
        statement: &Statement,
        expected: &Answer,
        rules: Rules,
    ) -> Result<bool> {
        let in_block = expected.status != b'I';
        if in_block {
            if expected.status == b'E' {
                return Ok(false);
            }
            self.expected.query("SAVEPOINT other_plans")?;
        }
        let mut is_undetermined = false;
        for (set, unset) in OTHER_PLANS {
            self.expected.query(&format!("SET {set}"))?;
            let again = send(&mut self.expected, statement, &statement.sql)?;
            if in_block {
                self.expected.query("ROLLBACK TO other_plans")?;
            }
            self.expected.query(&format!("SET {unset}"))?;
            let types = &self.expected_types;
            is_undetermined |= difference((expected, types), (&again, types), rules).is_some();
        }
        if in_block {
            self.expected.query("RELEASE other_plans")?;
        }
        Ok(is_undetermined)
    }
}

/// `found` with the modifiers that `expected` has of computed columns: PostgreSQL says that of what its planner has made of
/// an expression (of `coalesce(NULL, 1::numeric(8, 2))`, say). `None`: nothing would change.
fn with_modifiers(expected: &Answer, found: &Answer) -> Option<Answer> {
    let mut like = found.clone();
    let (Outcome::Rows { columns, .. }, Outcome::Rows { columns: of, .. }) =
        (expected.outcomes.first()?, like.outcomes.first_mut()?)
    else {
        return None;
    };
    // Columns of tables and of what is like a table are called by a letter, with a number perhaps; those of a table that a
    // query has made, with z, and of a query in FROM, with e, are as computed as the query's.
    let is_column = |name: &str| {
        let is_numbered = name.bytes().skip(1).all(|c| c.is_ascii_digit());
        name == "id" || is_numbered && !name.starts_with(['z', 'e'])
    };
    for (column, of) in columns.iter().zip(of) {
        if column.type_oid == of.type_oid && !is_column(&of.name) {
            of.type_modifier = column.type_modifier;
        }
    }
    (like != *found).then_some(like)
}

fn send(client: &mut Client, statement: &Statement, sql: &str) -> Result<Answer> {
    if statement.by == By::Query {
        return client.simple(sql, b"");
    }
    let arguments = [text_arguments(&statement.parameters)];
    let row_limit = statement.rows_at_a_time;
    let request = Request { sql, arguments: &arguments, row_limit, ..Request::default() };
    let flight = if statement.by == By::Parts { Flight::TwoFlights } else { Flight::OneFlight };
    client.extended(&request, flight, b"")
}

/// A message without what stands in quotes.
fn without_names(message: &str) -> String {
    let parts = message.split('"').step_by(2);
    let text = parts.collect::<Vec<_>>().join("…");
    text.chars().filter(|c| !c.is_ascii_digit()).take(110).collect()
}
