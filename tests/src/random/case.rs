//! A random case: a schema and what is run on it.
//!
//! Owns: which statements follow each other, in which blocks. Never: runs them.
//! Start reading at [`Case::draw`].

use std::fmt;

use super::dice::Dice;
use super::schema::{Schema, quoted};
use super::writer::Writer;

/// What sessions may be set to.
const SETTINGS: [&str; 18] = [
    "DateStyle = 'SQL, DMY'",
    "DateStyle = 'German'",
    "DateStyle = 'Postgres, MDY'",
    "TimeZone = 'America/New_York'",
    "TimeZone = 'Asia/Kolkata'",
    "TimeZone = 'Europe/Lisbon'",
    "extra_float_digits = 0",
    "extra_float_digits = -3",
    "bytea_output = 'escape'",
    "IntervalStyle = 'postgres_verbose'",
    "IntervalStyle = 'iso_8601'",
    "default_transaction_isolation = 'repeatable read'",
    "default_transaction_isolation = 'serializable'",
    "transform_null_equals = on",
    "quote_all_identifiers = on",
    "plan_cache_mode = 'force_generic_plan'",
    "jit = off",
    "array_nulls = off",
];

/// One thing that is sent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Statement {
    /// For PostgreSQL.
    pub sql: String,
    /// For the gateway, where that is another.
    pub placed: Option<String>,
    /// Values of its parameters.
    pub parameters: Vec<Option<String>>,
    /// Its rows have one order.
    pub is_ordered: bool,
    /// By which protocol.
    pub by: By,
    /// It changes nothing: what it gives may be asked again.
    pub only_reads: bool,
    /// So many rows are asked for at a time, where it is sent in parts; 0: all.
    pub rows_at_a_time: i32,
}

/// By which protocol a statement is sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum By {
    /// Query.
    #[default]
    Query,
    /// Parse and Describe; then the rest, with binary results.
    Parts,
    /// All at once.
    OneFlight,
}

/// What succeeds or fails together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unit {
    /// `BEGIN …`; `None`: it is one statement by itself.
    pub begin: Option<String>,
    /// In order. `SAVEPOINT s` and `ROLLBACK TO s` are among them.
    pub statements: Vec<Statement>,
    /// `COMMIT` or `ROLLBACK`.
    pub end: &'static str,
    /// The gateway's `tutti.draw`.
    pub draw: u32,
}

/// All that comes of one seed.
#[derive(Clone, Debug)]
pub struct Case {
    /// It makes the case again.
    pub seed: u64,
    /// What makes the schema, and its rows.
    pub setup: Vec<Statement>,
    /// What is compared.
    pub units: Vec<Unit>,
    /// What the sessions are set to.
    pub settings: Vec<&'static str>,
    /// Tables with their rows, for a look at all of these.
    pub tables: Vec<(String, bool)>,
}

impl Case {
    /// The case of this seed, with so many statements or a few more.
    pub fn draw(seed: u64, statements: usize) -> Self {
        let mut dice = Dice::new(seed);
        let mut schema = Schema::draw(&mut dice);
        let mut settings = Vec::new();
        while dice.chance(40) {
            settings.push(*dice.pick(&SETTINGS));
        }
        let setup = schema.statements.iter().map(|(sql, placed)| Statement {
            sql: sql.clone(),
            placed: (sql != placed).then(|| placed.clone()),
            ..Statement::default()
        });
        let setup = setup.collect();
        let tables = schema.relations.iter().filter(|table| !table.is_view);
        let tables = tables.map(|table| (table.name.clone(), table.is_replicated)).collect();
        let (mut units, mut count) = (Vec::new(), 0);
        while count < statements {
            let unit = unit(&mut dice, &mut schema);
            count += unit.statements.len();
            units.push(unit);
        }
        Self { seed, setup, units, settings, tables }
    }
}

fn unit(dice: &mut Dice, schema: &mut Schema) -> Unit {
    let draw = u32::try_from(dice.below(1_000_000)).unwrap_or(0);
    if dice.chance(80) {
        let statements = match dice.below(40) {
            // Not in blocks: a cursor of the gateway's own has its rows and no table open, where PostgreSQL says 55006.
            2 if dice.chance(20) => {
                let at = Writer::new(dice, schema).table();
                vec![plain(format!("TRUNCATE {}", schema.relations[at].name))]
            }
            0 => prepared(dice, schema),
            1 => made(dice, schema),
            _ => vec![statement(dice, schema, 28)],
        };
        return Unit { begin: None, statements, end: "", draw };
    }
    let level = dice.pick(&[
        "",
        " ISOLATION LEVEL READ COMMITTED",
        " ISOLATION LEVEL REPEATABLE READ",
        " ISOLATION LEVEL REPEATABLE READ",
        " ISOLATION LEVEL SERIALIZABLE",
        " ISOLATION LEVEL SERIALIZABLE, READ ONLY",
        " READ ONLY",
    ]);
    let mut statements = Vec::new();
    let mut has_savepoint = false;
    for _ in 0..dice.between(1, 6) {
        if dice.chance(20) {
            let sql = match (has_savepoint, dice.below(3)) {
                (true, 0) => "RELEASE s",
                (true, _) => "ROLLBACK TO s",
                (false, _) => "SAVEPOINT s",
            };
            has_savepoint = sql != "RELEASE s";
            statements.push(plain(sql));
        }
        match dice.chance(12) {
            true => statements.extend(cursor(dice, schema)),
            false => statements.push(statement(dice, schema, 45)),
        }
    }
    let end = if dice.chance(75) { "COMMIT" } else { "ROLLBACK" };
    Unit { begin: Some(format!("BEGIN{level}")), statements, end, draw }
}

fn plain(sql: impl Into<String>) -> Statement {
    Statement { sql: sql.into(), ..Statement::default() }
}

/// A query by a cursor.
fn cursor(dice: &mut Dice, schema: &mut Schema) -> Vec<Statement> {
    let query = Writer::new(dice, schema).top_query();
    let scroll = dice.pick(&["", " SCROLL", " NO SCROLL"]);
    let is_ordered = query.is_ordered && !query.classes.is_empty();
    let mut statements = vec![plain(format!("DECLARE c{scroll} CURSOR FOR {}", query.sql))];
    let fetched = |sql: &str| Statement { is_ordered, only_reads: false, ..plain(sql) };
    if is_ordered {
        statements.push(fetched("FETCH 2 FROM c"));
        if *scroll == " SCROLL" {
            statements.push(fetched("FETCH BACKWARD 1 FROM c"));
            statements.push(fetched("FETCH LAST FROM c"));
        }
    }
    statements.push(fetched("FETCH ALL FROM c"));
    statements.push(plain("CLOSE c"));
    statements
}

/// A statement that is prepared, and executed twice.
fn prepared(dice: &mut Dice, schema: &mut Schema) -> Vec<Statement> {
    let mut writer = Writer::new(dice, schema);
    writer.parameters = Some(Vec::new());
    let query = writer.top_query();
    let drawn = writer.parameters.take().unwrap_or_default();
    let (sql, values) = with_parameters_in_use(query.sql, drawn);
    let values = values.iter().map(|value| quoted(value.as_deref().unwrap_or_default()));
    let values = values.collect::<Vec<_>>().join(", ");
    let values = if values.is_empty() { values } else { format!(" ({values})") };
    let is_ordered = query.is_ordered && !query.classes.is_empty();
    let execute = Statement { is_ordered, only_reads: true, ..plain(format!("EXECUTE p{values}")) };
    vec![plain(format!("PREPARE p AS {sql}")), execute.clone(), execute, plain("DEALLOCATE ALL")]
}

/// A table that a query fills.
fn made(dice: &mut Dice, schema: &mut Schema) -> Vec<Statement> {
    let query = Writer::new(dice, schema).top_query();
    let names: Vec<_> = (0..query.classes.len()).map(|column| format!("z{column}")).collect();
    if names.is_empty() {
        return vec![statement(dice, schema, 0)];
    }
    let head = format!("CREATE TABLE made ({})", names.join(", "));
    let placement = *dice.pick(&[
        "",
        " DISTRIBUTE BY ROUND ROBIN",
        " DISTRIBUTE BY HASH (z0)",
        " DISTRIBUTE BY HOME",
    ]);
    let mut create = plain(format!("{head} AS {}", query.sql));
    create.placed = Some(format!("{head}{placement} AS {}", query.sql));
    let read = Statement { only_reads: true, ..plain("SELECT * FROM made") };
    vec![create, read, plain("DROP TABLE IF EXISTS made")]
}

fn statement(dice: &mut Dice, schema: &mut Schema, changes: u32) -> Statement {
    let is_change = dice.chance(changes);
    let by = match dice.below(6) {
        0 => By::Parts,
        1 => By::OneFlight,
        _ => By::Query,
    };
    let with_parameters = by != By::Query && dice.chance(70);
    let mut writer = Writer::new(dice, schema);
    writer.parameters = with_parameters.then(Vec::new);
    let (sql, is_ordered) = match is_change {
        true => (writer.change(), false),
        false => {
            let query = writer.top_query();
            (query.sql, query.is_ordered && !query.classes.is_empty())
        }
    };
    let drawn = writer.parameters.take().unwrap_or_default();
    let (sql, parameters) = with_parameters_in_use(sql, drawn);
    let mut sql = sql;
    if !is_change && by == By::Query {
        match dice.below(25) {
            0 => sql = format!("COPY ({sql}) TO STDOUT"),
            1 => sql = format!("{sql}; SELECT count(*) FROM t0"),
            _ => (),
        }
    }
    let is_ordered = is_ordered && !sql.ends_with("FROM t0");
    let rows_at_a_time = if by == By::Parts && dice.chance(20) { 2 } else { 0 };
    let only_reads = !is_change;
    Statement { sql, placed: None, parameters, is_ordered, by, only_reads, rows_at_a_time }
}

/// Without the parameters of what was drawn and not used.
fn with_parameters_in_use(
    sql: String,
    drawn: Vec<Option<String>>,
) -> (String, Vec<Option<String>>) {
    // Nothing else that is drawn has a `$`, and there are fewer than ten.
    let (mut text, mut values) = (sql, Vec::new());
    for (at, value) in drawn.into_iter().enumerate() {
        let mark = format!("${}", at + 1);
        if text.contains(&mark) {
            values.push(value);
            text = text.replace(&mark, &format!("${}", values.len()));
        }
    }
    (text, values)
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sql = self.placed.as_ref().unwrap_or(&self.sql);
        match self.by {
            By::Query => write!(f, "{sql};"),
            by => {
                let values = self.parameters.iter().map(|value| value.as_deref().unwrap_or("NULL"));
                let values = values.collect::<Vec<_>>().join(" | ");
                write!(f, "-- {by:?}, bind: {values}\n{sql};")
            }
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "SET tutti.draw = {};", self.draw)?;
        if let Some(begin) = &self.begin {
            writeln!(f, "{begin};")?;
        }
        for statement in &self.statements {
            writeln!(f, "{statement}")?;
        }
        if self.begin.is_some() {
            writeln!(f, "{};", self.end)?;
        }
        Ok(())
    }
}
