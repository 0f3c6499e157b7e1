//! Bringing to the other nodes what a table needs that is not on node 1 alone any more.
//!
//! Owns: asking node 1 for definitions and having them made elsewhere, inside the client's
//! transaction. What is walked and written is in `definitions.sql`.
//! Never: moves a row, registers a placement, or changes what is there already.
//! Start reading at [`read_definitions`].

use tutti_sql::catalog::quote_literal;

use super::Answer;
use super::seals::Seals;
use crate::error::GatewayError;
use crate::node::NodeConnection;

/// What shall be on other nodes too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wanted<'a> {
    /// These relations (OIDs on node 1), their partitions and children, and all that they need.
    Relations(&'a [u32]),
    /// Schemas, types, functions, operators, casts: whatever can be there.
    Definitions,
}

/// Reads from node 1, as the transaction that `home` is in sees it, how the wanted things are made.
/// The text is for [`make_definitions_sql`].
pub async fn read_definitions(
    home: &mut NodeConnection,
    wanted: Wanted<'_>,
    seals: &Seals,
) -> Result<String, GatewayError> {
    let (roots, everything) = match wanted {
        Wanted::Relations(relations) => {
            (relations.iter().map(u32::to_string).collect::<Vec<_>>().join(","), false)
        }
        Wanted::Definitions => (String::new(), true),
    };
    let seal = seals.seal(home, &format!("definitions {{{roots}}} {everything}"));
    let sql = format!("SELECT tutti.definitions('{{{roots}}}', {everything}, '{seal}')");
    let rows = home.rows(&sql).await?;
    let answer = Answer { node: home.node(), what: "definitions", rows: &rows };
    Ok(answer.text(0, 0)?.to_owned())
}

/// Whether tables that other nodes have may need what these lack: a change of theirs has been made on
/// node 1.
pub async fn need_more(home: &mut NodeConnection, relations: &[u32]) -> Result<bool, GatewayError> {
    let relations: Vec<_> = relations.iter().map(u32::to_string).collect();
    let sql = format!("SELECT tutti.need_more('{{{}}}')", relations.join(","));
    let rows = home.rows(&sql).await?;
    Answer { node: home.node(), what: "what tables need", rows: &rows }.boolean(0, 0)
}

/// What makes on another node what is not there yet, inside the transaction that is open there. It
/// answers whether anything but tables was missing.
///
/// Its errors are the node's: 0A000 with the name of what cannot be made there, if `wanted` are relations.
pub fn make_definitions_sql(
    other: &NodeConnection,
    definitions: &str,
    wanted: Wanted<'_>,
    seals: &Seals,
) -> String {
    let whatever_can_be = wanted == Wanted::Definitions;
    let message = format!("make {} {definitions}", if whatever_can_be { "t" } else { "f" });
    let seal = seals.seal(other, &message);
    let definitions = quote_literal(definitions);
    format!("SELECT tutti.make_definitions({definitions}, {whatever_can_be}, '{seal}')")
}

/// Code that sees this table (its OID on node 1) and would not any more, or would see a part of it,
/// once it is on several nodes; in words, with names.
pub async fn objections(
    home: &mut NodeConnection,
    relation: u32,
) -> Result<Vec<String>, GatewayError> {
    let rows = home.rows(&format!("SELECT tutti.objections({relation})")).await?;
    let answer = Answer { node: home.node(), what: "what speaks against it", rows: &rows };
    (0..answer.len()).map(|row| Ok(answer.text(row, 0)?.to_owned())).collect()
}
