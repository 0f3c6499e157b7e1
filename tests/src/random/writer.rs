//! What a statement is written with: names that are its own, constants, parameters.
//!
//! Owns: the state of one statement while it is drawn. Never: knows a clause.

use super::dice::Dice;
use super::schema::{Class, Column, Kind, Schema, Table, kind_of};

/// Something in FROM, by its alias.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its alias.
    pub alias: String,
    /// What can be read of it.
    pub columns: Vec<Column>,
    /// Its rows have a type with a name, which is the same where they are brought together.
    pub is_table: bool,
}

/// All that an expression may name.
pub type Scope = Vec<Source>;

/// A source by its alias.
pub fn source(alias: &str, columns: Vec<Column>) -> Source {
    Source { alias: alias.to_owned(), columns, is_table: false }
}

/// Draws one statement.
#[derive(Debug)]
pub struct Writer<'a> {
    /// All draws.
    pub dice: &'a mut Dice,
    /// What can be named.
    pub schema: &'a mut Schema,
    /// Values of `$1`, `$2`, …; `None`: constants are written out.
    pub parameters: Option<Vec<Option<String>>>,
    /// CTEs that can be named.
    pub ctes: Vec<Table>,
    /// Texts have the collation that is said: they are put together with others.
    pub one_collation: bool,
    next_name: usize,
}

impl<'a> Writer<'a> {
    /// Begins a statement.
    pub fn new(dice: &'a mut Dice, schema: &'a mut Schema) -> Self {
        Self {
            dice,
            schema,
            parameters: None,
            ctes: Vec::new(),
            one_collation: false,
            next_name: 0,
        }
    }

    /// A name that the statement has not used.
    pub fn name(&mut self, prefix: &str) -> String {
        self.next_name += 1;
        format!("{prefix}{}", self.next_name)
    }

    /// A constant of this kind, or a parameter.
    pub fn constant(&mut self, kind: &Kind) -> String {
        let value = kind.values[self.dice.low(kind.values.len())];
        match (&mut self.parameters, self.dice.chance(60)) {
            (Some(parameters), true) if parameters.len() < 8 => {
                parameters.push(Some(value.to_owned()));
                format!("${}::{}", parameters.len(), kind.cast)
            }
            _ => kind.literal(value),
        }
    }

    /// A constant that is compared with this kind, or becomes it, and is written otherwise; not always there is one.
    pub fn other_constant(&mut self, kind: &Kind) -> Option<String> {
        if !self.dice.chance(18) {
            return None;
        }
        let value = kind.values[self.dice.low(kind.values.len())];
        let forms: &[&str] = match kind.class {
            Class::Int => &[
                "V::bigint",
                "V::smallint",
                "V.0",
                "'V'",
                "(V + 0)",
                "(SELECT V)",
                "'V'::text::int",
            ],
            Class::Number => &["V", "'V'", "V::numeric", "(V + 0)"],
            Class::Float => &["V", "'V'", "(V * 1)"],
            Class::Text | Class::Padded => {
                &["Q", "Q::text", "Q::varchar", "(Q || '')", "lower(Q)", "(SELECT Q)"]
            }
            Class::Date | Class::Stamp | Class::Zoned => &["Q", "(SELECT Q::date)", "date Q"],
            Class::Bool => &["V", "'V'", "(NOT V)"],
            Class::Uuid | Class::Bytes | Class::Mood => &["Q"],
            _ => return None,
        };
        if value == "5000000000" || (kind.class == Class::Date && value.contains("BC")) {
            return None;
        }
        let form = *self.dice.pick(forms);
        if form == "date Q" && value.len() < 10 || kind.cast == "small" && form.contains('.') {
            return None;
        }
        let quoted =
            super::schema::quoted(if form.contains("date") { &value[..10] } else { value });
        Some(form.replace('V', value).replace('Q', &quoted))
    }

    /// A row for these columns of a table, with parameters and values that must be converted.
    pub fn row(&mut self, at: usize, columns: &[Column]) -> String {
        let mut values = Vec::new();
        for column in columns {
            let is_free = !["id", "f"].contains(&column.name.as_str());
            let value = match is_free && !self.dice.chance(30) {
                true => match self.other_constant(column.kind) {
                    Some(value) => value,
                    None => self.constant(column.kind),
                },
                false => self.schema.value(self.dice, at, column),
            };
            values.push(value);
        }
        format!("({})", values.join(", "))
    }

    /// A constant of this class.
    pub fn constant_of(&mut self, class: Class) -> String {
        self.constant(kind_of(class))
    }

    /// A table, or a view.
    pub fn relation(&mut self) -> Table {
        if !self.ctes.is_empty() && self.dice.chance(50) {
            return self.dice.pick(&self.ctes).clone();
        }
        self.dice.pick(&self.schema.relations).clone()
    }

    /// A table.
    pub fn table(&mut self) -> usize {
        let tables = self.schema.relations.iter().filter(|table| !table.is_view).count();
        self.dice.below(tables)
    }

    /// Columns of this class, with their aliases.
    pub fn columns_of(&self, scope: &Scope, class: Class) -> Vec<(String, Column)> {
        let all = scope.iter().flat_map(|source| {
            source.columns.iter().map(|column| (source.alias.clone(), column.clone()))
        });
        all.filter(|(_, column)| column.class == class).collect()
    }

    /// Any column.
    pub fn any_column(&mut self, scope: &Scope) -> (String, Column) {
        let source = self.dice.pick(scope);
        (source.alias.clone(), self.dice.pick(&source.columns).clone())
    }
}
