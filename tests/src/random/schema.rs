//! A random schema: types, tables with their placements and rows, views.
//!
//! Owns: what tables can look like, and which values are in them: few, so that many are equal and many are NULL.
//! Never: asks a server.
//! Start reading at [`Schema::draw`].

use super::dice::Dice;

/// What values can be used for alike.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// smallint, integer, bigint and domains over them.
    Int,
    /// numeric with two digits behind the point: equal values look alike.
    Number,
    /// Floats that binary fractions give exactly.
    Float,
    /// Texts of any collation.
    Text,
    /// boolean.
    Bool,
    /// date.
    Date,
    /// timestamp.
    Stamp,
    /// timestamp with time zone.
    Zoned,
    /// uuid.
    Uuid,
    /// bytea.
    Bytes,
    /// jsonb.
    Json,
    /// int[].
    Array,
    /// The enum.
    Mood,
    /// The composite type.
    Pair,
    /// interval.
    Span,
    /// char(3).
    Padded,
    /// time.
    Time,
    /// inet.
    Address,
    /// int4range.
    Range,
    /// text[].
    Words,
}

/// A type with the values that are drawn of it.
#[derive(Debug)]
pub struct Kind {
    /// As in CREATE TABLE.
    pub sql: &'static str,
    /// As in a cast.
    pub cast: &'static str,
    /// What it can be used for.
    pub class: Class,
    /// As texts.
    pub values: &'static [&'static str],
    /// Rows can be distributed by it.
    pub is_key: bool,
}

const WORDS: &[&str] = &["a", "b", "B", "ab", "", "z", "10", "ä", " ", "it's", "a,b", "\\", "NULL"];

const fn kind(
    sql: &'static str,
    cast: &'static str,
    class: Class,
    is_key: bool,
    values: &'static [&'static str],
) -> Kind {
    Kind { sql, cast, class, values, is_key }
}

/// All types. The first four are integers.
pub const KINDS: &[Kind] = &[
    kind("int", "int", Class::Int, true, &["1", "2", "3", "0", "5", "7", "-1", "10"]),
    kind("bigint", "bigint", Class::Int, true, &["1", "2", "3", "0", "4", "-2", "5000000000"]),
    kind("smallint", "smallint", Class::Int, true, &["1", "2", "3", "0", "4", "-1"]),
    kind("small", "small", Class::Int, false, &["1", "2", "3", "0", "5"]),
    kind(
        "numeric(8,2)",
        "numeric(8,2)",
        Class::Number,
        true,
        &["1.00", "1.50", "2.25", "0.00", "-3.25"],
    ),
    kind("float8", "float8", Class::Float, true, &["1", "2.5", "0", "-0.25", "1024"]),
    kind("real", "real", Class::Float, false, &["1", "2.5", "0", "-0.25"]),
    kind("text", "text", Class::Text, true, WORDS),
    kind("text COLLATE \"C\"", "text", Class::Text, true, WORDS),
    kind("text COLLATE \"en-x-icu\"", "text", Class::Text, true, WORDS),
    kind("varchar(6)", "varchar", Class::Text, true, WORDS),
    kind("boolean", "boolean", Class::Bool, true, &["true", "false"]),
    kind(
        "date",
        "date",
        Class::Date,
        true,
        &["2024-01-01", "2024-01-02", "2024-02-29", "0044-03-15 BC"],
    ),
    kind(
        "timestamp",
        "timestamp",
        Class::Stamp,
        true,
        &["2024-03-10 02:30:00", "2024-03-10 03:30:00", "1999-12-31 23:59:59.5"],
    ),
    kind(
        "timestamptz",
        "timestamptz",
        Class::Zoned,
        true,
        &["2024-11-03 08:30:00Z", "2024-11-03 09:30:00Z", "2000-01-01 00:00:00Z"],
    ),
    kind(
        "uuid",
        "uuid",
        Class::Uuid,
        true,
        &[
            "00000000-0000-0000-0000-000000000001",
            "00000000-0000-0000-0000-000000000002",
            "ffffffff-0000-0000-0000-000000000003",
        ],
    ),
    kind("bytea", "bytea", Class::Bytes, true, &["\\x", "\\x00", "\\xff5c27", "\\x61"]),
    kind(
        "jsonb",
        "jsonb",
        Class::Json,
        false,
        &["{}", "{\"a\": 1}", "{\"a\": \"x y\", \"b\": [1, null]}", "null", "[1, \"2\"]"],
    ),
    kind("int[]", "int[]", Class::Array, false, &["{}", "{1,2}", "{NULL}", "{3}", "{{1,2},{3,4}}"]),
    kind("mood", "mood", Class::Mood, false, &["ok", "sad", "Very Happy"]),
    kind("pair", "pair", Class::Pair, false, &["(1,a)", "(,)", "(2,\"b c\")", "(1,)"]),
    kind(
        "interval",
        "interval",
        Class::Span,
        false,
        &["1 day", "-1 mon +3 days", "1 year 02:00:00", "00:00:00.5"],
    ),
    kind("char(3)", "char(3)", Class::Padded, true, &["a", "b", "ab", "", "A"]),
    kind("time", "time", Class::Time, false, &["01:02:03", "23:59:59.999", "00:00:00"]),
    kind("inet", "inet", Class::Address, false, &["10.0.0.1", "10.0.0.0/8", "::1"]),
    kind("int4range", "int4range", Class::Range, false, &["[1,5)", "empty", "(,3)", "[2,3)"]),
    kind(
        "text[]",
        "text[]",
        Class::Words,
        false,
        &["{}", "{a,\"b c\"}", "{NULL,\"NULL\"}", "{\"\\\\\",\"{\"}"],
    ),
];

/// Text as a literal.
pub fn quoted(text: &str) -> String {
    // `standard_conforming_strings` is on.
    format!("'{}'", text.replace('\'', "''"))
}

impl Kind {
    /// A value as SQL.
    pub fn literal(&self, value: &str) -> String {
        match self.class {
            Class::Int if self.cast != "small" => value.to_owned(),
            _ => format!("{}::{}", quoted(value), self.cast),
        }
    }
}

/// The kind by which constants of a class are written.
pub fn kind_of(class: Class) -> &'static Kind {
    KINDS.iter().find(|kind| kind.class == class).unwrap_or(&KINDS[0])
}

/// A column of something that can be read.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it has.
    pub class: Class,
    /// With which values.
    pub kind: &'static Kind,
    /// It may be NULL.
    pub may_be_null: bool,
    /// It is computed, or otherwise not written.
    pub is_generated: bool,
    /// Its texts may have any collation.
    pub is_mixed: bool,
}

impl Column {
    fn new(name: &str, kind: &'static Kind) -> Self {
        let name = name.to_owned();
        Self {
            name,
            class: kind.class,
            kind,
            may_be_null: true,
            is_generated: false,
            is_mixed: false,
        }
    }
}

/// A table or view.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// In order.
    pub columns: Vec<Column>,
    /// Columns of the primary key.
    pub key: Vec<String>,
    /// The column by whose hash its rows are distributed.
    pub by: Option<String>,
    /// It is a view.
    pub is_view: bool,
    /// Each node has all its rows.
    pub is_replicated: bool,
    /// The next row's `id`.
    pub next_id: usize,
    /// Column `f` refers to this table's `id`.
    pub refers_to: Option<String>,
}

impl Table {
    /// What is read only: a view, or what a name in WITH stands for.
    pub fn view(name: String, columns: Vec<Column>) -> Self {
        Self {
            name,
            columns,
            key: Vec::new(),
            by: None,
            is_view: true,
            is_replicated: false,
            next_id: 0,
            refers_to: None,
        }
    }

    /// The columns that a statement may write.
    pub fn written(&self) -> Vec<Column> {
        self.columns.iter().filter(|column| !column.is_generated).cloned().collect()
    }

    /// A column by its name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// All that a case's statements can name.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Tables first.
    pub relations: Vec<Table>,
    /// What makes it, without placements and with them.
    pub statements: Vec<(String, String)>,
}

const TYPES: [&str; 4] = [
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'Very Happy')",
    "CREATE DOMAIN small AS int CHECK (VALUE >= -100)",
    "CREATE TYPE pair AS (x int, y text)",
    "CREATE FUNCTION twice(x bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT x * 2'",
];

impl Schema {
    /// One of them.
    pub fn draw(dice: &mut Dice) -> Self {
        let mut schema = Self::default();
        for sql in TYPES {
            schema.say(sql.to_owned(), "");
        }
        for number in 0..dice.between(3, 5) {
            schema.add_table(dice, number);
        }
        let tables = schema.relations.len();
        for number in 0..tables {
            let rows = *dice.pick(&[0, 1, 4, 9, 14, 20, 25]);
            if rows != 0 {
                let sql = schema.insert(dice, number, rows);
                schema.say(sql, "");
            }
        }
        for number in 0..dice.below(3) {
            schema.add_view(dice, number, tables);
        }
        schema
    }

    fn say(&mut self, sql: String, placement: &str) {
        let placed = format!("{sql}{placement}");
        self.statements.push((sql, placed));
    }

    fn add_table(&mut self, dice: &mut Dice, number: usize) {
        let name = format!("t{number}");
        let mut columns = vec![
            Column { may_be_null: false, ..Column::new("id", &KINDS[0]) },
            Column::new("k", &KINDS[dice.low(4)]),
            Column::new("s", &KINDS[dice.between(7, 10)]),
        ];
        for extra in 0..dice.below(5) {
            columns.push(Column::new(&format!("c{extra}"), dice.pick(KINDS)));
        }
        let keyed = |columns: &[Column], at: usize| columns.get(at).is_some_and(|c| c.kind.is_key);
        let mut by = None;
        let placement = match dice.weighted(&[4, 5, 3, 1, 2, 1]) {
            0 => {
                by = Some(0);
                String::new()
            }
            1 if keyed(&columns, 1) => {
                by = Some(1);
                String::new()
            }
            2 => {
                let keys: Vec<_> = (0..columns.len()).filter(|at| keyed(&columns, *at)).collect();
                by = Some(*dice.pick(&keys));
                String::new()
            }
            3 => " DISTRIBUTE BY ROUND ROBIN".to_owned(),
            4 => " DISTRIBUTE BY REPLICATED".to_owned(),
            _ => " DISTRIBUTE BY HOME".to_owned(),
        };
        let mut key = Vec::new();
        if dice.chance(60) && !placement.ends_with("ROBIN") {
            key.push("id".to_owned());
            if let Some(at) = by.filter(|at| *at != 0) {
                columns[at].may_be_null = false;
                key.insert(dice.below(2), columns[at].name.clone());
            }
        }
        // Not by the dice: seeds that have once failed must still draw what they drew then.
        let is_by_several = by.is_some_and(|at| at != 0) && columns.len() % 3 == 1;
        let by = by.map(|at| columns[at].name.clone());
        let placement = match &by {
            Some(by) if is_by_several => format!(" DISTRIBUTE BY HASH (id, {by})"),
            Some(by) => format!(" DISTRIBUTE BY HASH ({by})"),
            None => placement,
        };
        let by = by.filter(|_| !is_by_several);
        let parents =
            self.relations.iter().filter(|table| table.is_replicated && table.key.len() == 1);
        let parents: Vec<_> = parents.map(|table| table.name.clone()).collect();
        let mut refers_to =
            (dice.chance(35) && !parents.is_empty()).then(|| dice.pick(&parents).clone());
        // By its parent's key, on its parent's node.
        let parents = self.relations.iter();
        let parents =
            parents.filter(|table| table.by.as_deref() == Some("id") && table.key.len() == 1);
        let parents: Vec<_> = parents.map(|table| table.name.clone()).collect();
        let (mut by, mut placement) = (by, placement);
        if key.is_empty() && !parents.is_empty() && dice.chance(35) {
            refers_to = Some(dice.pick(&parents).clone());
            by = Some("f".to_owned());
            placement = " DISTRIBUTE BY HASH (f)".to_owned();
        }
        let is_replicated = placement.ends_with("REPLICATED");
        if refers_to.is_some() {
            columns.push(Column::new("f", &KINDS[0]));
        }
        let dropped = dice.chance(20).then(|| dice.below(columns.len()));
        let partitioned = !key.is_empty() && dice.chance(12);
        let mut items = Vec::new();
        for (at, column) in columns.iter().enumerate() {
            if dropped == Some(at) {
                items.push("gone int DEFAULT 5".to_owned());
            }
            let mut item = format!("{} {}", column.name, column.kind.sql);
            if !column.may_be_null {
                item.push_str(" NOT NULL");
            }
            match column.name.as_str() {
                "f" => {
                    let deletes = ["", " ON DELETE CASCADE", " ON DELETE SET NULL"];
                    let deferred = [" ON DELETE CASCADE", " DEFERRABLE INITIALLY DEFERRED"];
                    let action = match by.as_deref() {
                        // A key that is set to NULL would be another node's.
                        Some("f") => dice.pick(&deferred),
                        _ => dice.pick(&deletes),
                    };
                    let parent = refers_to.as_deref().unwrap_or_default();
                    item.push_str(&format!(" REFERENCES {parent} (id){action}"));
                }
                "k" if dice.chance(30) => item.push_str(" DEFAULT 3"),
                "s" if dice.chance(30) => item.push_str(" DEFAULT 'none'"),
                "s" if dice.chance(15) => item.push_str(" CHECK (s <> 'never')"),
                _ => (),
            }
            items.push(item);
        }
        if dice.chance(25) {
            let class = &KINDS[1];
            columns.push(Column { is_generated: true, ..Column::new("g", class) });
            items.push("g bigint GENERATED ALWAYS AS (id * 2 + 1) STORED".to_owned());
        }
        if !key.is_empty() {
            items.push(format!("PRIMARY KEY ({})", key.join(", ")));
        }
        let by_range = partitioned && dice.chance(50);
        let partition = match (partitioned, by_range) {
            (true, true) => " PARTITION BY RANGE (id)",
            (true, false) => " PARTITION BY HASH (id)",
            _ => "",
        };
        self.say(format!("CREATE TABLE {name} ({}){partition}", items.join(", ")), &placement);
        if partitioned {
            let ranges = ["FROM (MINVALUE) TO (8)", "FROM (8) TO (MAXVALUE)"];
            for (part, range) in ranges.into_iter().enumerate() {
                if by_range {
                    let sql = format!(
                        "CREATE TABLE {name}_{part} PARTITION OF {name} FOR VALUES {range}"
                    );
                    self.say(sql, "");
                    continue;
                }
                self.say(
                    format!("CREATE TABLE {name}_{part} PARTITION OF {name} FOR VALUES WITH (MODULUS 2, REMAINDER {part})"),
                    "",
                );
            }
        }
        if dropped.is_some() {
            self.say(format!("ALTER TABLE {name} DROP COLUMN gone"), "");
        }
        if dice.chance(30) {
            let what = dice.pick(&["k", "s", "k, s", "lower(s)", "k) WHERE (k > 1"]);
            self.say(format!("CREATE INDEX ON {name} ({what})"), "");
        }
        let table =
            Table { name, columns, key, by, is_view: false, is_replicated, next_id: 1, refers_to };
        self.relations.push(table);
    }

    /// A statement that puts rows into a table.
    pub fn insert(&mut self, dice: &mut Dice, at: usize, rows: usize) -> String {
        let columns = self.relations[at].written();
        let rows: Vec<_> = (0..rows).map(|_| self.row(dice, at, &columns)).collect();
        let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
        let name = &self.relations[at].name;
        format!("INSERT INTO {name} ({}) VALUES {}", names.join(", "), rows.join(", "))
    }

    /// A row for these columns of a table.
    pub fn row(&mut self, dice: &mut Dice, at: usize, columns: &[Column]) -> String {
        let values: Vec<_> = columns.iter().map(|column| self.value(dice, at, column)).collect();
        format!("({})", values.join(", "))
    }

    /// A value for a column, as SQL.
    pub fn value(&mut self, dice: &mut Dice, at: usize, column: &Column) -> String {
        match column.name.as_str() {
            "id" => {
                let table = &mut self.relations[at];
                table.next_id += 1;
                (table.next_id - 1).to_string()
            }
            _ if column.may_be_null && dice.chance(20) => "NULL".to_owned(),
            "f" => {
                let parent = self.relations[at].refers_to.clone();
                let parent =
                    self.relations.iter().find(|table| Some(&table.name) == parent.as_ref());
                match parent.map_or(1, |parent| parent.next_id) {
                    0 | 1 => "NULL".to_owned(),
                    next => dice.between(1, next - 1).to_string(),
                }
            }
            _ => {
                let values = column.kind.values;
                column.kind.literal(values[dice.low(values.len())])
            }
        }
    }

    fn add_view(&mut self, dice: &mut Dice, number: usize, tables: usize) {
        let name = format!("v{number}");
        let table = self.relations[dice.below(tables)].clone();
        let other = self.relations[dice.below(tables)].clone();
        let of = |table: &Table, column: &str| table.column(column).cloned();
        let int = |name: &str| Column::new(name, &KINDS[1]);
        let (sql, columns) = match dice.below(4) {
            0 | 1 => {
                let condition = if dice.chance(50) { " WHERE k > 0" } else { "" };
                let columns = ["id", "k", "s"].iter().filter_map(|column| of(&table, column));
                (format!("SELECT id, k, s FROM {}{condition}", table.name), columns.collect())
            }
            2 => (
                format!("SELECT k, count(*) AS id, max(s) AS s FROM {} GROUP BY k", table.name),
                of(&table, "k").into_iter().chain([int("id")]).chain(of(&table, "s")).collect(),
            ),
            _ => (
                format!(
                    "SELECT a.id, b.k, a.s FROM {} a {} {} b ON a.{} = b.{}",
                    table.name,
                    dice.pick(&["JOIN", "LEFT JOIN"]),
                    other.name,
                    dice.pick(&["k", "id"]),
                    dice.pick(&["k", "id"]),
                ),
                of(&table, "id")
                    .into_iter()
                    .chain(of(&other, "k"))
                    .chain(of(&table, "s"))
                    .collect::<Vec<_>>(),
            ),
        };
        self.say(format!("CREATE VIEW {name} AS {sql}"), "");
        let columns =
            columns.into_iter().map(|column| Column { may_be_null: true, ..column }).collect();
        self.relations.push(Table::view(name, columns));
    }
}
