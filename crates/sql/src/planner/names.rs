//! What a column reference means at its place in a statement.
//!
//! Owns: PostgreSQL's rules for unqualified, qualified and schema-qualified names, as far as they
//! can be applied without the nodes. Never: guesses; what is not certain is [`Meaning::Unknown`],
//! and the planner then takes a plan that is correct whatever the name means.
//! Start reading at [`Analysis::meaning`].

use pg_query::NodeEnum;
use pg_query::protobuf::ColumnRef;

use super::analysis::{Analysis, ColumnId, ItemId, QueryId, Source};
use super::syntax::string;

/// Columns that every table has.
const SYSTEM_COLUMNS: [&str; 6] = ["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"];

/// What a column reference means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Meaning {
    /// A column.
    Column(ColumnId),
    /// The whole row of an item, or all its columns.
    Row(ItemId),
    /// `*` of a query level.
    Star(QueryId),
    /// A system column of an item.
    System(ItemId),
    /// Not certain, or nothing.
    Unknown,
}

/// Whether `name` is a system column's.
pub(super) fn is_system_column(name: &str) -> bool {
    SYSTEM_COLUMNS.contains(&name)
}

impl<'a> Analysis<'a> {
    /// What `reference` means; `scopes` are the query levels around it, innermost last.
    pub(super) fn meaning(&self, reference: &ColumnRef, scopes: &[QueryId]) -> Meaning {
        let last = reference.fields.last();
        let is_star = last.is_some_and(|node| matches!(node.node, Some(NodeEnum::AStar(_))));
        let column = last.and_then(string);
        let qualifier = match &reference.fields[..] {
            [_] if is_star => {
                return scopes.last().map_or(Meaning::Unknown, |scope| Meaning::Star(*scope));
            }
            [_] => return column.map_or(Meaning::Unknown, |name| self.unqualified(name, scopes)),
            [table, _] => string(table).and_then(|table| self.by_name(table, scopes)),
            [schema, table, _] | [_, schema, table, _] => string(schema)
                .zip(string(table))
                .and_then(|(schema, table)| self.by_qualified_name(schema, table, scopes)),
            _ => None,
        };
        match (qualifier, column) {
            (Some(item), None) if is_star => Meaning::Row(item),
            (Some(item), Some(column)) => self.column_of(item, column),
            _ => Meaning::Unknown,
        }
    }

    /// The column `name` of `item`.
    pub(super) fn column_of(&self, item: ItemId, name: &str) -> Meaning {
        match self.find(item, name) {
            Found::One(column) => Meaning::Column(column),
            Found::None if is_system_column(name) => Meaning::System(item),
            Found::None | Found::Uncertain => Meaning::Unknown,
        }
    }

    /// A column of any level comes before a whole row of a nearer one (`colNameToVar` in PostgreSQL's
    /// `parse_relation.c`).
    fn unqualified(&self, name: &str, scopes: &[QueryId]) -> Meaning {
        let mut row = None;
        for &scope in scopes.iter().rev() {
            let query = &self.queries[scope];
            if let Some((_, column)) = query.merged.iter().rev().find(|(merged, _)| *merged == name)
            {
                return column.map_or(Meaning::Unknown, Meaning::Column);
            }
            let mut found = None;
            for &item in &query.items {
                if self.items[item].hidden {
                    continue;
                }
                match (self.find(item, name), found) {
                    (Found::None, _) => (),
                    (Found::One(column), None) => found = Some(column),
                    (Found::One(_), Some(_)) | (Found::Uncertain, _) => return Meaning::Unknown,
                }
            }
            if query.names_unknown {
                return Meaning::Unknown;
            }
            if let Some(column) = found {
                return Meaning::Column(column);
            }
            if is_system_column(name)
                && let Some(&item) = query.items.first()
            {
                return Meaning::System(item);
            }
            let called = query.items.iter().find(|item| self.is_called(**item, name));
            row = row.or_else(|| called.copied());
        }
        row.map_or(Meaning::Unknown, Meaning::Row)
    }

    fn is_called(&self, item: ItemId, name: &str) -> bool {
        !self.items[item].hidden && self.items[item].name == name
    }

    fn by_name(&self, name: &str, scopes: &[QueryId]) -> Option<ItemId> {
        scopes.iter().rev().find_map(|scope| {
            self.queries[*scope].items.iter().copied().find(|item| self.is_called(*item, name))
        })
    }

    fn by_qualified_name(&self, schema: &str, table: &str, scopes: &[QueryId]) -> Option<ItemId> {
        scopes.iter().rev().find_map(|scope| {
            self.queries[*scope].items.iter().copied().find(|&id| {
                let item = &self.items[id];
                let Source::Table { relation, .. } = item.source else { return false };
                !item.hidden
                    && item.alias.is_none()
                    && relation.name == table
                    && relation.schema == schema
            })
        })
    }

    /// Looks for a column among those of one item.
    pub(super) fn find(&self, item: ItemId, name: &str) -> Found {
        let Some(width) = self.width(item) else { return Found::Uncertain };
        let mut found = Found::None;
        for column in 0..width {
            if self.column_name(item, column) == Some(name) {
                if matches!(found, Found::One(_)) {
                    return Found::Uncertain;
                }
                found = Found::One(ColumnId { item, column });
            }
        }
        found
    }
}

/// What looking for a name among an item's columns gave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Found {
    None,
    One(ColumnId),
    /// The item's columns are not known, or two have the name.
    Uncertain,
}
