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
}

/// All that an expression may name.
pub type Scope = Vec<Source>;

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
    next_name: usize,
}

impl<'a> Writer<'a> {
    /// Begins a statement.
    pub fn new(dice: &'a mut Dice, schema: &'a mut Schema) -> Self {
        Self { dice, schema, parameters: None, ctes: Vec::new(), next_name: 0 }
    }

    /// A name that the statement has not used.
    pub fn name(&mut self, prefix: &str) -> String {
        self.next_name += 1;
        format!("{prefix}{}", self.next_name)
    }

    /// A constant of this kind, or a parameter.
    pub fn constant(&mut self, kind: &Kind) -> String {
        let value = kind.values[self.dice.low(kind.values.len())];
        let sql = match (&mut self.parameters, self.dice.chance(60)) {
            (Some(parameters), true) if parameters.len() < 8 => {
                parameters.push(Some(value.to_owned()));
                return format!("${}::{}", parameters.len(), kind.cast);
            }
            _ => kind.literal(value),
        };
        sql
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
