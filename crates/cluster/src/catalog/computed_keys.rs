//! What is stored of generated columns of a distribution key.
//!
//! Owns: reading that. Never: prints an expression, which opens its table and waits for whoever changes that; it is
//! printed when the table is registered (`schema.rs`, `tutti.register`).

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use tutti_sql::catalog::{Column, ComputedKey, Placement};
use tutti_sql::planner::renamed_columns;

/// One of `tutti.placement.computed`.
#[derive(Deserialize)]
struct Stored {
    /// Attribute number.
    column: i16,
    expression: String,
    exact: bool,
    /// The columns in the expression by the names that they have there, with their attribute numbers.
    names: BTreeMap<String, i16>,
}

/// The computed columns of the key of a table with these columns; `None` if the text is not what is stored of it.
///
/// A column that is not generated any more is like any other.
pub(super) fn read(
    stored: &str,
    placement: &Placement,
    columns: &[(i16, Column)],
) -> Option<Vec<ComputedKey>> {
    let position = |attnum: i16| columns.iter().position(|(found, _)| *found == attnum);
    let stored: Vec<Stored> = serde_json::from_str(stored).ok()?;
    let mut keys = Vec::new();
    for Stored { column, expression, exact, names } in stored {
        let is_computed = |at: &usize| {
            let is_key = placement.key_columns().iter().any(|key| key.column == *at);
            is_key && columns[*at].1.generated
        };
        let Some(column) = position(column).filter(is_computed) else { continue };
        let mut reads = Vec::new();
        let mut renamed = HashMap::new();
        for (name, attnum) in names {
            let at = position(attnum)?;
            reads.push(at);
            renamed.insert(name, columns[at].1.name.clone());
        }
        let expression = renamed_columns(&expression, &renamed)?;
        keys.push(ComputedKey { column, expression, reads, exact });
    }
    Some(keys)
}
