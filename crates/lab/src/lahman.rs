//! The records that the cost study inserts: three tables of the Lahman baseball database, or ones of their shape.
//!
//! Owns: reading the CSV files, making records like them, what a table of them looks like, and the comparison of
//! what is there with what was inserted. Never: inserts.
//! Start reading at [`Lahman`]. Source: the cost model's paper inserts `Batting.csv`, `Fielding.csv` and
//! `Pitching.csv`.

use std::error::Error;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use bytes::BytesMut;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use tutti_lab::workload::session::Rows;

/// Files, and tables of the same names, with the columns of which a generated one has values.
const TABLES: [(&str, &[&str]); 3] = [
    (
        "Batting",
        &[
            "playerID", "yearID", "stint", "teamID", "lgID", "G", "AB", "R", "H", "2B", "3B", "HR",
            "RBI", "SB", "CS", "BB", "SO", "IBB", "HBP", "SH", "SF", "GIDP",
        ],
    ),
    (
        "Fielding",
        &[
            "playerID", "yearID", "stint", "teamID", "lgID", "POS", "G", "GS", "InnOuts", "PO",
            "A", "E", "DP", "PB", "WP", "SB", "CS", "ZR",
        ],
    ),
    (
        "Pitching",
        &[
            "playerID", "yearID", "stint", "teamID", "lgID", "W", "L", "G", "GS", "CG", "SHO",
            "SV", "IPouts", "H", "ER", "HR", "BB", "SO", "BAOpp", "ERA", "IBB", "WP", "HBP", "BK",
            "BFP", "GF", "R", "SH", "SF", "GIDP",
        ],
    ),
];
/// Records of each table in the paper's version of the database.
const SIZES: [usize; 3] = [105_861, 140_921, 46_699];

/// A value of a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field {
    Null,
    Text(String),
    Integer(i32),
    Real(f64),
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

    fn read(self, text: &str) -> anyhow::Result<Field> {
        Ok(match (self, text) {
            (Self::Text, "") | (Self::Integer | Self::Real, "" | "NA") => Field::Null,
            (Self::Text, text) => Field::Text(text.to_owned()),
            // Some of the files' columns have their integers as "10.0".
            (Self::Integer, text) => {
                Field::Integer(text.strip_suffix(".0").unwrap_or(text).parse()?)
            }
            (Self::Real, text) => Field::Real(text.parse()?),
        })
    }
}

impl ToSql for Field {
    fn to_sql(
        &self,
        r#type: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Text(text) => text.to_sql(r#type, out),
            Self::Integer(value) => value.to_sql(r#type, out),
            Self::Real(value) => value.to_sql(r#type, out),
        }
    }

    fn accepts(r#type: &Type) -> bool {
        matches!(*r#type, Type::TEXT | Type::INT4 | Type::FLOAT8)
    }

    to_sql_checked!();
}

/// A table and its records. The n-th one has the number n, from 1; all else as the files have it.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub name: String,
    columns: Vec<(String, Kind)>,
    pub records: Vec<Vec<Field>>,
}

/// All that is inserted.
#[derive(Clone, Debug)]
pub(crate) struct Lahman {
    pub tables: Vec<Table>,
    /// Where it comes from, for people.
    pub source: String,
}

impl Lahman {
    /// Reads so many records of the files in a directory, from each the same share, evenly over the file.
    /// `None`: all.
    ///
    /// Errors: a file is missing, or has a value that is none of its column.
    pub(crate) fn read(dir: &Path, records: Option<usize>) -> anyhow::Result<Self> {
        let mut tables = Vec::new();
        for (name, _) in TABLES {
            let path = dir.join(name).with_extension("csv");
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
            tables.push(Table { name: name.to_lowercase(), columns, records: all });
        }
        let whole: usize = tables.iter().map(|table| table.records.len()).sum();
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
    pub(crate) fn generated(records: Option<usize>) -> Self {
        let mut random = StdRng::seed_from_u64(1871);
        let whole: usize = SIZES.iter().sum();
        let wanted = records.unwrap_or(whole);
        let tables = TABLES.iter().zip(SIZES).map(|((name, columns), size)| {
            let columns: Vec<_> =
                columns.iter().map(|name| ((*name).to_owned(), Kind::of(name))).collect();
            let count = (size * wanted).div_ceil(whole);
            let mut field = |(name, kind): &(String, Kind)| match (name.as_str(), kind) {
                ("playerID", _) => {
                    let letters = (0..7).map(|_| char::from(random.random_range(b'a'..=b'z')));
                    Field::Text(letters.collect::<String>() + "01")
                }
                ("yearID", _) => Field::Integer(random.random_range(1871..=2019)),
                (_, Kind::Text) => {
                    let letters = (0..3).map(|_| char::from(random.random_range(b'A'..=b'Z')));
                    Field::Text(letters.collect())
                }
                _ if random.random_bool(0.15) => Field::Null,
                (_, Kind::Integer) => Field::Integer(random.random_range(0..200)),
                (_, Kind::Real) => Field::Real(f64::from(random.random_range(0..1000)) / 100.0),
            };
            let record = |_| columns.iter().map(&mut field).collect();
            let records = (0..count).map(record).collect();
            Table { name: name.to_lowercase(), columns, records }
        });
        Self { tables: tables.collect(), source: "generated records of the same shape".to_owned() }
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.tables.iter().map(|table| table.records.len()).sum()
    }
}

impl Table {
    /// The statement that makes it, without a key or an index, as in the paper; `spread` is what follows the
    /// columns.
    pub(crate) fn create_sql(&self, spread: &str) -> String {
        let columns: Vec<String> =
            self.columns.iter().map(|(name, kind)| format!("\"{name}\" {}", kind.sql())).collect();
        format!("CREATE TABLE {} (record bigint, {}){spread}", self.name, columns.join(", "))
    }

    /// The statement that inserts a record: its number, then its fields.
    pub(crate) fn insert_sql(&self) -> String {
        let parameters: Vec<String> =
            (1..=self.columns.len() + 1).map(|n| format!("${n}")).collect();
        format!("INSERT INTO {} VALUES ({})", self.name, parameters.join(", "))
    }

    /// Compares what is there with what was inserted, record by record. `rows` have the number first.
    ///
    /// Errors: what differs.
    pub(crate) fn verify(&self, rows: &Rows) -> anyhow::Result<()> {
        let name = &self.name;
        let mut seen = vec![false; self.records.len()];
        for row in rows {
            let number: usize = row[0].as_deref().unwrap_or_default().parse()?;
            let Some(place) = number.checked_sub(1).filter(|place| *place < seen.len()) else {
                bail!("{name} has a record {number} that nobody inserted");
            };
            ensure!(!seen[place], "{name} has record {number} twice");
            seen[place] = true;
            let read = |(text, (_, kind)): (&Option<String>, &(String, Kind))| match text {
                None => Ok(Field::Null),
                Some(text) => kind.read(text),
            };
            let found = row[1..].iter().zip(&self.columns).map(read);
            let found = found.collect::<anyhow::Result<Vec<_>>>()?;
            let meant = &self.records[place];
            ensure!(&found == meant, "record {number} of {name} is {found:?}, not {meant:?}");
        }
        let lost = seen.iter().position(|seen| !seen);
        ensure!(
            lost.is_none(),
            "record {:?} of {name} was acknowledged and is gone",
            lost.map(|n| n + 1)
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(table: &Table) -> Rows {
        let text = |field: &Field| match field {
            Field::Null => None,
            Field::Text(text) => Some(text.clone()),
            Field::Integer(value) => Some(value.to_string()),
            Field::Real(value) => Some(value.to_string()),
        };
        let row = |(place, record): (usize, &Vec<Field>)| {
            std::iter::once(Some((place + 1).to_string())).chain(record.iter().map(text)).collect()
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
        for (name, columns) in TABLES {
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
            std::fs::write(dir.path().join(name).with_extension("csv"), text).unwrap();
        }
        let few = Lahman::read(dir.path(), Some(30)).unwrap();
        assert_eq!(few.len(), 30);
        let years: Vec<_> = few.tables[0].records.iter().map(|record| record[1].clone()).collect();
        assert_eq!(years, (1900..2000).step_by(10).map(Field::Integer).collect::<Vec<_>>());
        // A league of that name; numbers that are not known.
        assert_eq!(few.tables[0].records[0][4], Field::Text("NA".to_owned()));
        assert_eq!(few.tables[0].records[0][5], Field::Null);
        assert_eq!(Lahman::read(dir.path(), None).unwrap().len(), 300);
        std::fs::remove_file(dir.path().join("Batting.csv")).unwrap();
        assert!(Lahman::read(dir.path(), None).is_err());
    }
}
