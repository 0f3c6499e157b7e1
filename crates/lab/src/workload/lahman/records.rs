//! The records: three tables of the Lahman baseball database, or ones of their shape.
//!
//! Owns: reading the CSV files, making records like them, what a table of them looks like, and the comparison of
//! what is there with what was inserted. Never: decides who inserts which record.
//! Start reading at [`Lahman`]. Source: the cost model's paper inserts `Batting.csv`, `Fielding.csv` and
//! `Pitching.csv`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::dialect::Dialect;
use super::super::session::{Failure, Rows, Session, Value};

/// Tables, the files of their records, and the columns of which a generated one has values.
const TABLES: [(&str, &str, &[&str]); 3] = [
    (
        "batting",
        "Batting.csv",
        &[
            "playerID", "yearID", "stint", "teamID", "lgID", "G", "AB", "R", "H", "2B", "3B", "HR",
            "RBI", "SB", "CS", "BB", "SO", "IBB", "HBP", "SH", "SF", "GIDP",
        ],
    ),
    (
        "fielding",
        "Fielding.csv",
        &[
            "playerID", "yearID", "stint", "teamID", "lgID", "POS", "G", "GS", "InnOuts", "PO",
            "A", "E", "DP", "PB", "WP", "SB", "CS", "ZR",
        ],
    ),
    (
        "pitching",
        "Pitching.csv",
        &[
            "playerID", "yearID", "stint", "teamID", "lgID", "W", "L", "G", "GS", "CG", "SHO",
            "SV", "IPouts", "H", "ER", "HR", "BB", "SO", "BAOpp", "ERA", "IBB", "WP", "HBP", "BK",
            "BFP", "GF", "R", "SH", "SF", "GIDP",
        ],
    ),
];
/// Records of each table in the paper's version of the database.
const SIZES: [usize; 3] = [105_861, 140_921, 46_699];

/// Where a record goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "bench", derive(clap::ValueEnum))]
pub enum Placement {
    /// One node, by its number
    Hash,
    /// Every node, in a transaction over all of them
    Replicated,
}

impl Placement {
    /// As it is written on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Replicated => "replicated",
        }
    }
}

/// What a column holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Text,
    Integer,
    Real,
}

impl Kind {
    fn of(column: &str) -> Self {
        match column {
            "playerID" | "teamID" | "lgID" | "POS" => Self::Text,
            "BAOpp" | "ERA" => Self::Real,
            _ => Self::Integer,
        }
    }

    fn sql(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Real => "double precision",
        }
    }

    fn read(self, text: &str) -> anyhow::Result<Value> {
        Ok(match (self, text) {
            (Self::Text, "") | (Self::Integer | Self::Real, "" | "NA") => Value::Null,
            (Self::Text, text) => Value::Text(text.to_owned()),
            // Some of the files' columns have their integers as "10.0".
            (Self::Integer, text) => {
                Value::Integer(text.strip_suffix(".0").unwrap_or(text).parse()?)
            }
            (Self::Real, text) => Value::Real(text.parse()?),
        })
    }
}

/// A table and its records. The n-th one has the number n, from 1; all else as the files have it.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it is called.
    pub name: &'static str,
    columns: Vec<(String, Kind)>,
    /// What is to be inserted.
    pub records: Vec<Vec<Value>>,
}

/// All that is inserted.
#[derive(Clone, Debug)]
pub struct Lahman {
    /// Batting, fielding and pitching.
    pub tables: Vec<Table>,
    /// Where it comes from, for people.
    pub source: String,
}

impl Lahman {
    /// Those of the files in a directory, or generated ones where none is given.
    ///
    /// Errors: as [`Self::read`].
    pub fn of(dir: Option<&Path>, records: Option<usize>) -> anyhow::Result<Self> {
        match dir {
            Some(dir) => Self::read(dir, records),
            None => Ok(Self::generated(records)),
        }
    }

    /// Reads so many records of the files in a directory, from each the same share, evenly over the file.
    /// `None`: all.
    ///
    /// Errors: a file is missing, or has a value that is none of its column; there is no record.
    pub fn read(dir: &Path, records: Option<usize>) -> anyhow::Result<Self> {
        let mut tables = Vec::new();
        for (name, file, _) in TABLES {
            let path = dir.join(file);
            let mut file = csv::Reader::from_path(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let columns: Vec<_> =
                file.headers()?.iter().map(|name| (name.to_owned(), Kind::of(name))).collect();
            let mut all = Vec::new();
            for (number, record) in file.records().enumerate() {
                let record = record?;
                let fields = record.iter().zip(&columns).map(|(text, (_, kind))| kind.read(text));
                let fields = fields.collect::<anyhow::Result<Vec<_>>>();
                all.push(
                    fields.with_context(|| format!("{}, record {}", path.display(), number + 1))?,
                );
            }
            tables.push(Table { name, columns, records: all });
        }
        let whole: usize = tables.iter().map(|table| table.records.len()).sum();
        ensure!(0 < whole, "the files in {} have no record", dir.display());
        if let Some(wanted) = records.filter(|wanted| *wanted < whole) {
            for table in &mut tables {
                let of = table.records.len();
                let keep = (of * wanted).div_ceil(whole);
                table.records = (0..keep).map(|n| table.records[n * of / keep].clone()).collect();
            }
        }
        Ok(Self { tables, source: "the Lahman database".to_owned() })
    }

    /// Makes so many records of the same shape (tables in the same proportion, columns of the same types), the
    /// same ones every time. `None`: as many as the files have.
    pub fn generated(records: Option<usize>) -> Self {
        let mut random = StdRng::seed_from_u64(1871);
        let whole: usize = SIZES.iter().sum();
        let wanted = records.unwrap_or(whole);
        let tables = TABLES.into_iter().zip(SIZES).map(|((name, _, columns), size)| {
            let columns: Vec<_> =
                columns.iter().map(|name| ((*name).to_owned(), Kind::of(name))).collect();
            let count = (size * wanted).div_ceil(whole);
            let mut field = |(name, kind): &(String, Kind)| match (name.as_str(), kind) {
                ("playerID", _) => {
                    let letters = (0..7).map(|_| char::from(random.random_range(b'a'..=b'z')));
                    Value::Text(letters.collect::<String>() + "01")
                }
                ("yearID", _) => Value::Integer(random.random_range(1871..=2019)),
                (_, Kind::Text) => {
                    let letters = (0..3).map(|_| char::from(random.random_range(b'A'..=b'Z')));
                    Value::Text(letters.collect())
                }
                _ if random.random_bool(0.15) => Value::Null,
                (_, Kind::Integer) => Value::Integer(random.random_range(0..200)),
                (_, Kind::Real) => Value::Real(f64::from(random.random_range(0..1000)) / 100.0),
            };
            let record = |_| columns.iter().map(&mut field).collect();
            let records = (0..count).map(record).collect();
            Table { name, columns, records }
        });
        Self { tables: tables.collect(), source: "generated records of the same shape".to_owned() }
    }

    /// How many records there are; never none.
    #[expect(clippy::len_without_is_empty, reason = "each table has a record at least")]
    pub fn len(&self) -> usize {
        self.tables.iter().map(|table| table.records.len()).sum()
    }
}

impl Table {
    /// The statements that make it, without a key or an index, as in the paper.
    pub fn create_sql(&self, dialect: Dialect, placement: Placement) -> Vec<String> {
        let columns: Vec<String> =
            self.columns.iter().map(|(name, kind)| format!("\"{name}\" {}", kind.sql())).collect();
        let columns = format!("record bigint, {}", columns.join(", "));
        match placement {
            Placement::Hash => dialect.by_hash(self.name, &columns, "record"),
            Placement::Replicated => dialect.replicated(self.name, &columns),
        }
    }

    /// The statement that gives all of it, as [`Self::compare`] and [`Self::verify`] want it.
    pub fn select_sql(&self) -> String {
        format!("SELECT * FROM {}", self.name)
    }

    /// The statement of [`insert`]: a record's number, then its fields.
    pub fn insert_sql(&self) -> String {
        let parameters: Vec<String> =
            (1..=self.columns.len() + 1).map(|n| format!("${n}")).collect();
        format!("INSERT INTO {} VALUES ({})", self.name, parameters.join(", "))
    }

    /// Compares what is there with what was inserted, record by record: the n-th one has the number n, from 1.
    /// `rows` have the number first.
    ///
    /// Errors: what differs.
    pub fn verify(&self, rows: &Rows) -> anyhow::Result<()> {
        let meant = |number: i64| self.records.get(usize::try_from(number).ok()?.checked_sub(1)?);
        let there = self.compare(rows, meant)?;
        let lost = (1..).take(self.records.len()).find(|number| !there.contains(number));
        ensure!(lost.is_none(), "record {lost:?} of {} was acknowledged and is gone", self.name);
        Ok(())
    }

    /// The numbers of the rows that are there, each of which must be what was meant by its number, and be there once.
    /// `rows` have the number first.
    ///
    /// Errors: what differs; what nobody inserted.
    pub fn compare<'a>(
        &self,
        rows: &Rows,
        meant: impl Fn(i64) -> Option<&'a Vec<Value>>,
    ) -> anyhow::Result<BTreeSet<i64>> {
        let name = self.name;
        let mut there = BTreeSet::new();
        for row in rows {
            let number: i64 = row[0].as_deref().unwrap_or_default().parse()?;
            let Some(meant) = meant(number) else {
                bail!("{name} has a record {number} that nobody inserted");
            };
            ensure!(there.insert(number), "{name} has record {number} twice");
            let read = |(text, (_, kind)): (&Option<String>, &(String, Kind))| match text {
                None => Ok(Value::Null),
                Some(text) => kind.read(text),
            };
            let found = row[1..].iter().zip(&self.columns).map(read);
            let found = found.collect::<anyhow::Result<Vec<_>>>()?;
            ensure!(&found == meant, "record {number} of {name} is {found:?}, not {meant:?}");
        }
        Ok(there)
    }
}

/// Inserts a record with a number by the statement of its table, and gives the number of rows.
pub async fn insert<S: Session>(
    session: &mut S,
    insert_sql: &str,
    number: i64,
    record: &[Value],
) -> Result<u64, Failure> {
    let mut values = vec![Value::Integer(number)];
    values.extend_from_slice(record);
    session.execute_with(insert_sql, &values).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(table: &Table) -> Rows {
        let row = |(place, record): (usize, &Vec<Value>)| {
            std::iter::once(Some((place + 1).to_string()))
                .chain(record.iter().map(Value::text))
                .collect()
        };
        table.records.iter().enumerate().map(row).collect()
    }

    #[test]
    fn what_is_there_is_compared_record_by_record() {
        let lahman = Lahman::generated(Some(300));
        assert!(300 <= lahman.len() && lahman.len() <= 303);
        let table = &lahman.tables[2];
        assert_eq!(table.columns.len(), 30);
        let right = rows(table);
        table.verify(&right).unwrap();
        let refusal = |rows: &Rows| table.verify(rows).unwrap_err().to_string();
        assert!(refusal(&right[1..].to_vec()).contains("was acknowledged and is gone"));
        let mut twice = right.clone();
        twice.push(right[0].clone());
        assert!(refusal(&twice).contains("twice"));
        let mut changed = right.clone();
        changed[3][2] = Some("1".to_owned());
        assert!(refusal(&changed).starts_with("record 4 of pitching is"));
        let mut stranger = right;
        stranger[0][0] = Some("1000".to_owned());
        assert!(refusal(&stranger).contains("nobody inserted"));
    }

    #[test]
    fn files_are_read_evenly() {
        let dir = tempfile::tempdir().unwrap();
        for (_, file, columns) in TABLES {
            let mut text = columns.join(",") + "\n";
            for year in 1900..2000 {
                let fields: Vec<String> = columns
                    .iter()
                    .map(|column| match (*column, Kind::of(column)) {
                        ("yearID", _) => year.to_string(),
                        ("lgID", _) => "NA".to_owned(),
                        (_, Kind::Text) => "x".to_owned(),
                        ("HBP", _) => "10.0".to_owned(),
                        (_, Kind::Integer) => String::new(),
                        (_, Kind::Real) => "1.5".to_owned(),
                    })
                    .collect();
                text.push_str(&(fields.join(",") + "\n"));
            }
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let few = Lahman::read(dir.path(), Some(30)).unwrap();
        assert_eq!(few.len(), 30);
        let years: Vec<_> = few.tables[0].records.iter().map(|record| record[1].clone()).collect();
        assert_eq!(years, (1900..2000).step_by(10).map(Value::Integer).collect::<Vec<_>>());
        // A league of that name; numbers that are not known.
        assert_eq!(few.tables[0].records[0][4], Value::Text("NA".to_owned()));
        assert_eq!(few.tables[0].records[0][5], Value::Null);
        assert_eq!(Lahman::read(dir.path(), None).unwrap().len(), 300);
        std::fs::remove_file(dir.path().join("Batting.csv")).unwrap();
        assert!(Lahman::read(dir.path(), None).is_err());
    }
}
