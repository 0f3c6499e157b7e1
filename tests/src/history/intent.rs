//! What a random transaction will ask for, decided before it begins.
//!
//! Owns: the choice, from a seed and the transaction's number alone, and the SQL of each step. So the
//! same seed asks for the same, whichever client comes to it.
//! Never: sends anything (`session`). Start reading at [`Intent::random`].

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, SeedableRng};

use super::model::{Access, Level, Value};

/// Rows that transactions choose from at a time, in each table. Few, so that they meet.
pub const ROWS_IN_USE: u32 = 8;
/// After so many transactions the oldest row goes out of use and a new one comes in, so that lists
/// stay short however long a run is.
const TRANSACTIONS_PER_ROW: u32 = 30;
/// Values are the transaction's number and one digit, so that a value tells who wrote it.
const VALUES_PER_TRANSACTION: Value = 10;

/// Which levels transactions have.
#[derive(Clone, Copy, Debug)]
pub struct Levels {
    /// Those of transactions that may write.
    pub writers: &'static [Level],
    /// Those of transactions that only read.
    pub readers: &'static [Level],
}

/// The rows that a statement names, and how.
#[derive(Clone, Debug)]
pub enum Rows {
    /// `id = …`
    One(u32),
    /// `id IN (…)`
    In(Vec<u32>),
    /// `id = ANY (…)`
    Any(Vec<u32>),
    /// `id BETWEEN … AND …`: the planner cannot name the nodes, so all are asked.
    Range {
        /// The first.
        first: u32,
        /// The last.
        last: u32,
        /// Whether the answer is sorted, which needs a final step over all nodes.
        is_sorted: bool,
    },
}

/// What a read gives of each row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tables {
    /// `registers`.
    Registers,
    /// `lists`.
    Lists,
    /// Both, joined by their key.
    Both,
}

/// One or two statements of a transaction.
#[derive(Clone, Debug)]
pub enum Step {
    /// A SELECT.
    Read(Tables, Rows),
    /// An UPDATE of registers.
    Write(Rows, Value),
    /// An UPDATE that appends to lists.
    Append(Rows, Value),
    /// A SELECT of a list, then an UPDATE to what was read and one element more.
    ReadThenAppend(u32, Value),
}

/// How a transaction is begun.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Begin {
    /// Not at all: one statement, which commits by itself.
    Autocommit,
    /// `BEGIN`, with the session's default.
    Default,
    /// `BEGIN ISOLATION LEVEL …`
    WithLevel,
    /// `BEGIN ISOLATION LEVEL … READ ONLY`
    ReadOnly,
}

/// A transaction to be.
#[derive(Clone, Debug)]
pub struct Intent {
    /// Counts from 1.
    pub number: u32,
    /// Its isolation level.
    pub level: Level,
    /// How it begins.
    pub begin: Begin,
    /// What it does.
    pub steps: Vec<Step>,
    /// Whether its statements are sent by Parse, Bind and Execute with parameters.
    pub is_extended: bool,
    /// Whether it changes its mind at the end.
    pub gives_up: bool,
}

/// A statement with parameters.
#[derive(Clone, Debug)]
pub struct Sql {
    /// With `$1`, `$2`…
    pub text: String,
    /// Their values as text.
    pub arguments: Vec<String>,
}

/// How many rows each table needs for so many transactions.
pub fn rows_needed(transactions: u32) -> u32 {
    transactions / TRANSACTIONS_PER_ROW + ROWS_IN_USE + 1
}

impl Intent {
    /// The transaction of this number in the run of this seed.
    pub fn random(seed: u64, number: u32, levels: Levels) -> Self {
        // A multiplier with well-mixed bits (that of splitmix64): seeds of neighbours differ much.
        let mixed = seed ^ u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = StdRng::seed_from_u64(mixed);
        let first_row = number / TRANSACTIONS_PER_ROW + 1;
        let mut steps = Steps { first_row, next: Value::from(number) * VALUES_PER_TRANSACTION };
        let (begin, steps) = match rng.random_range(0..100) {
            0..20 => (Begin::Autocommit, vec![steps.read(&mut rng)]),
            20..35 => (Begin::Autocommit, vec![steps.write(&mut rng)]),
            35..50 => {
                let begin = [Begin::Default, Begin::WithLevel, Begin::ReadOnly];
                let count = rng.random_range(2..=3);
                let begin = *begin.choose(&mut rng).expect("not empty");
                (begin, (0..count).map(|_| steps.read(&mut rng)).collect())
            }
            50..65 => (Begin::WithLevel, vec![steps.read(&mut rng), steps.write(&mut rng)]),
            _ => {
                let begin = if rng.random() { Begin::Default } else { Begin::WithLevel };
                let count = rng.random_range(2..=4);
                (begin, (0..count).map(|_| steps.any(&mut rng)).collect())
            }
        };
        let writes = steps.iter().any(|step| !matches!(step, Step::Read(..)));
        let levels = if writes { levels.writers } else { levels.readers };
        Self {
            number,
            level: *levels.choose(&mut rng).expect("a run has levels"),
            begin,
            steps,
            is_extended: rng.random(),
            gives_up: begin != Begin::Autocommit && rng.random_ratio(1, 15),
        }
    }
}

/// Chooses the steps of one transaction.
struct Steps {
    first_row: u32,
    next: Value,
}

impl Steps {
    fn any(&mut self, rng: &mut StdRng) -> Step {
        if rng.random() { self.read(rng) } else { self.write(rng) }
    }

    fn read(&self, rng: &mut StdRng) -> Step {
        let tables = [Tables::Registers, Tables::Lists, Tables::Both];
        let tables = *tables.choose(rng).expect("not empty");
        let all = (self.first_row, self.first_row + ROWS_IN_USE - 1);
        let rows = match rng.random_range(0..6) {
            0 => Rows::One(self.some_rows(rng, 1)[0]),
            1 | 2 => Rows::In(self.some_rows(rng, 4)),
            3 => Rows::Any(self.some_rows(rng, 4)),
            turn => Rows::Range { first: all.0, last: all.1, is_sorted: turn == 4 },
        };
        Step::Read(tables, rows)
    }

    fn write(&mut self, rng: &mut StdRng) -> Step {
        let value = self.next;
        self.next += 1;
        let rows = match rng.random_range(0..4) {
            0 => Rows::One(self.some_rows(rng, 1)[0]),
            1 | 2 => Rows::In(self.some_rows(rng, 3)),
            _ => Rows::Any(self.some_rows(rng, 3)),
        };
        match rng.random_range(0..7) {
            0..3 => Step::Write(rows, value),
            3..6 => Step::Append(rows, value),
            _ => Step::ReadThenAppend(self.some_rows(rng, 1)[0], value),
        }
    }

    /// Between one and so many different rows, in order.
    fn some_rows(&self, rng: &mut StdRng, most: usize) -> Vec<u32> {
        let count = if most == 1 { 1 } else { rng.random_range(2..=most) };
        let mut rows = (self.first_row..self.first_row + ROWS_IN_USE).choose_multiple(rng, count);
        rows.sort_unstable();
        rows
    }
}

impl Rows {
    /// The condition, and its parameters after the existing ones.
    fn condition(&self, arguments: &mut Vec<String>) -> String {
        let mut parameter = |value: String| {
            arguments.push(value);
            format!("${}", arguments.len())
        };
        match self {
            Self::One(row) => format!("id = {}", parameter(row.to_string())),
            Self::In(rows) => {
                let rows: Vec<String> = rows.iter().map(|row| parameter(row.to_string())).collect();
                format!("id IN ({})", rows.join(", "))
            }
            Self::Any(rows) => {
                let rows: Vec<String> = rows.iter().map(u32::to_string).collect();
                format!("id = ANY ({}::int[])", parameter(format!("{{{}}}", rows.join(","))))
            }
            Self::Range { first, last, is_sorted } => {
                let (first, last) = (parameter(first.to_string()), parameter(last.to_string()));
                let order = if *is_sorted { " ORDER BY id" } else { "" };
                format!("id BETWEEN {first} AND {last}{order}")
            }
        }
    }

    /// The rows by number.
    pub fn ids(&self) -> Vec<u32> {
        match self {
            Self::One(row) => vec![*row],
            Self::In(rows) | Self::Any(rows) => rows.clone(),
            Self::Range { first, last, .. } => (*first..=*last).collect(),
        }
    }

    /// How a read finds them.
    pub fn access(&self) -> Access {
        match self {
            Self::One(_) | Self::In(_) | Self::Any(_) => Access::Keys,
            Self::Range { .. } => Access::Predicate,
        }
    }
}

/// Reads rows: `id`, then `value` and `previous` of registers, then `elements` of lists.
pub fn select(tables: Tables, rows: &Rows, is_locking: bool) -> Sql {
    let (columns, from) = match tables {
        Tables::Registers => ("id, value, previous", "registers"),
        Tables::Lists => ("id, elements", "lists"),
        Tables::Both => ("id, value, previous, elements", "registers JOIN lists USING (id)"),
    };
    let mut arguments = Vec::new();
    let condition = rows.condition(&mut arguments);
    let lock = if is_locking { " FOR UPDATE" } else { "" };
    Sql { text: format!("SELECT {columns} FROM {from} WHERE {condition}{lock}"), arguments }
}

/// Writes registers and says what each held: `id`, `previous`.
pub fn update_registers(rows: &Rows, value: Value) -> Sql {
    let mut arguments = vec![value.to_string()];
    let condition = rows.condition(&mut arguments);
    let text = format!(
        "UPDATE registers SET previous = value, value = $1 WHERE {condition} RETURNING id, previous"
    );
    Sql { text, arguments }
}

/// Appends to lists: `id`.
pub fn append_to_lists(rows: &Rows, element: Value) -> Sql {
    let mut arguments = vec![element.to_string()];
    let condition = rows.condition(&mut arguments);
    let text = format!(
        "UPDATE lists SET elements = elements || $1::bigint WHERE {condition} RETURNING id"
    );
    Sql { text, arguments }
}

/// Replaces a list by what its writer believes it should be: `id`.
pub fn replace_list(list: u32, elements: &[Value]) -> Sql {
    let elements: Vec<String> = elements.iter().map(Value::to_string).collect();
    Sql {
        text: "UPDATE lists SET elements = $1::bigint[] WHERE id = $2 RETURNING id".to_owned(),
        arguments: vec![format!("{{{}}}", elements.join(",")), list.to_string()],
    }
}

impl Sql {
    /// The text with the values in it.
    pub fn literal(&self) -> String {
        let mut text = self.text.clone();
        // The last first, because `$1` is also the beginning of `$10`.
        for (index, argument) in self.arguments.iter().enumerate().rev() {
            let is_number = argument.parse::<Value>().is_ok();
            let value = if is_number { argument.clone() } else { format!("'{argument}'") };
            text = text.replace(&format!("${}", index + 1), &value);
        }
        text
    }
}
