//! The rules that keep a distributed schema correct, checked after every DDL.
//!
//! Owns: which constraints, foreign keys, partitions and materialized views a placement allows, and
//! how a client is told.
//! Never: changes anything. It runs on node 1 inside the DDL's transaction; a violation is an error
//! there, so that nothing of the DDL remains.
//! Start reading at [`verify`]; what it asks for is `tutti.ties_of_changes` (`changes.sql`).
//!
//! A node checks uniqueness and foreign keys among its own rows only. So a constraint holds over the
//! cluster exactly if all rows that it compares are on one node: those with equal keys are.

use std::collections::BTreeMap;

use tutti_link::connection::{NodeConnection, Rows};
use tutti_sql::catalog::Stage;
use tutti_sql::hash::{Bucketing, KeyType};
use tutti_sql::refusal::Refusal;

use super::changes::RowsByKind;
use super::load::{END_INSIDE, READS_CATALOG, query_past_drops};
use super::placement::{PlacementKind, stored_placement};
use super::rows::Answer;
use crate::error::GatewayError;

/// What a rule needs to know about a registered table.
struct Table {
    name: String,
    placement: PlacementKind,
}

type Tables = BTreeMap<u32, Table>;

/// Checks what the transaction on node 1 has changed of the schema, with what depends on it.
///
/// Errors: [`GatewayError::Refused`] with the first rule that is broken; the caller must roll the
/// transaction back.
pub async fn verify(home: &mut NodeConnection) -> Result<(), GatewayError> {
    // What the transaction has not touched is unchanged.
    let sql =
        [READS_CATALOG, "SELECT * FROM tutti.ties_of_changes();", END_INSIDE[0], END_INSIDE[1]];
    let node = home.node();
    let told = query_past_drops(home, &sql.join("\n")).await?.into_iter().nth(1);
    let told = told.ok_or(GatewayError::Unreadable { node, what: "the schema's constraints" })?;
    let mut parts = RowsByKind::of(told);
    let kinds = ["table", "unique", "namesake", "global", "key", "child", "number", "materialized"];
    let results: [Rows; 8] = kinds.map(|kind| parts.take(&[kind]));
    let [tables, unique, namesakes, global, foreign_keys, children, numbers, materialized] =
        &results;
    let answer = |what, rows| Answer { node, what, rows };
    let tables = read_tables(&answer("placements", tables))?;
    check_unique(&tables, &answer("unique indexes", unique))?;
    check_namesakes(&answer("names of constraints", namesakes))?;
    check_kept(&answer("what entries are kept of", global))?;
    check_foreign_keys(&tables, &answer("foreign keys", foreign_keys))?;
    check_children(&tables, &answer("partitions", children))?;
    check_numbers(&answer("columns", numbers))?;
    check_materialized(&answer("materialized views", materialized))
}

/// A table's name for people.
pub(super) fn qualified(schema: &str, name: &str) -> String {
    if schema == "public" { name.to_owned() } else { format!("{schema}.{name}") }
}

/// Reads the registered tables and checks each one's key.
fn read_tables(answer: &Answer<'_>) -> Result<Tables, GatewayError> {
    let mut tables = Tables::new();
    let mut first = 0;
    while first < answer.len() {
        let oid: u32 = answer.number(first, 0)?;
        let name = qualified(answer.text(first, 1)?, answer.text(first, 2)?);
        let kind = answer.text(first, 3)?;
        let is_hash = kind == "hash" || Stage::of_kind(kind).is_some();
        // Each column of its key has a row.
        let mut end = first;
        while end < answer.len() && answer.number::<u32>(end, 0)? == oid {
            if is_hash {
                check_key(answer, end, &name)?;
            }
            end += 1;
        }
        // The rules compare maps by their ids: equal ones have equal ranges.
        let placement = stored_placement(answer, first..end, 3, Bucketing::default())?;
        tables.insert(oid, Table { name, placement });
        first = end;
    }
    Ok(tables)
}

fn check_key(answer: &Answer<'_>, row: usize, table: &str) -> Result<(), GatewayError> {
    let Some(key) = answer.optional(row, 4) else {
        return Err(Refusal::unsupported(
            format!("cannot drop the distribution key of table \"{table}\""),
            "Without it no row of the table can be found.",
            format!(
                "First run SELECT tutti_replicate('{table}'), or distribute by another column."
            ),
        )
        .into());
    };
    let registered: u32 = answer.number(row, 5)?;
    let now: u32 = answer.number(row, 7)?;
    let (typmod_now, typmod_registered): (i32, i32) =
        (answer.number(row, 8)?, answer.number(row, 9)?);
    let varchar_grew = now == KeyType::Varchar.oid()
        && typmod_registered >= 0
        && (typmod_now < 0 || typmod_now >= typmod_registered);
    if now != registered || (typmod_now != typmod_registered && !varchar_grew) {
        return Err(Refusal::unsupported(
            format!("cannot change the type of distribution key \"{key}\" of table \"{table}\""),
            format!("Converted to {}, values may belong on other nodes.", answer.text(row, 10)?),
            format!(
                "First run SELECT tutti_replicate('{table}'), change the type, then run SELECT \
                 tutti_distribute('{table}', '{key}')."
            ),
        )
        .into());
    }
    if answer.text(row, 11)? == "ranges" {
        return Err(Refusal::unsupported(
            format!("distribution key \"{key}\" of table \"{table}\" needs the collation \"C\""),
            "The table is distributed by ranges of it, and another collation may order texts otherwise than by their bytes.",
            format!("Keep the collation, or distribute the table first: ALTER TABLE {table} DISTRIBUTE BY HASH ({key})."),
        )
        .into());
    }
    if !answer.boolean(row, 11)? {
        return Err(Refusal::unsupported(
            format!(
                "distribution key \"{key}\" of table \"{table}\" needs a deterministic collation"
            ),
            "With a nondeterministic one, values that are equal can be on different nodes.",
            "Keep the collation of the distribution key, or make the table REPLICATED.",
        )
        .into());
    }
    if let Some(problem) = answer.optional(row, 12) {
        return Err(Refusal::unsupported(
            format!("distribution key \"{key}\" of table \"{table}\" cannot be this generated column"),
            problem,
            "Distribute by a column that the row brings with it, or by a stored one that built-in functions compute.",
        )
        .into());
    }
    Ok(())
}

fn check_unique(tables: &Tables, answer: &Answer<'_>) -> Result<(), GatewayError> {
    for row in 0..answer.len() {
        let Some(table) = tables.get(&answer.number(row, 0)?) else { continue };
        let index = answer.text(row, 1)?;
        let what = if answer.boolean(row, 2)? {
            "primary key"
        } else if answer.boolean(row, 3)? {
            "exclusion constraint"
        } else {
            "unique constraint"
        };
        let (detail, hint) = match key_words(&table.placement) {
            Some(_) if answer.boolean(row, 4)? => continue,
            Some((key, it)) => (
                format!(
                    "Table \"{}\" is distributed by {key}. Rows that differ in {it} can be on \
                         different nodes, where no node can check the constraint.",
                    table.name
                ),
                match &table.placement {
                    PlacementKind::HashOfSeveral { .. } => format!(
                        "Include {key} in the {what}, distribute the table by fewer columns, or make it REPLICATED."
                    ),
                    _ => match what {
                        "unique constraint" => format!(
                            "Include {key} in the {what}, make the table REPLICATED, or have the values kept in \
                             a table of their own: CREATE UNIQUE INDEX … WITH (tutti.global_unique)."
                        ),
                        _ => format!("Include {key} in the {what}, or make the table REPLICATED."),
                    },
                },
            ),
            None => (
                format!(
                    "The rows of round robin table \"{}\" can be on any node, where no node can \
                     check the constraint.",
                    table.name
                ),
                format!(
                    "Distribute the table BY HASH of a column of the {what}, or make it REPLICATED."
                ),
            ),
        };
        let message = format!("{what} \"{index}\" of table \"{}\" cannot be enforced", table.name);
        return Err(Refusal::unsupported(message, detail, hint).into());
    }
    Ok(())
}

/// The columns of a distribution key, quoted, and what stands for what rows differ in.
fn key_words(placement: &PlacementKind) -> Option<(String, &'static str)> {
    match placement {
        PlacementKind::Hash { key, .. } | PlacementKind::Async { key, .. } => {
            Some((format!("\"{key}\""), "it"))
        }
        PlacementKind::HashOfSeveral { key, .. } => {
            let names: Vec<_> = key.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            Some((names.join(" and "), "one of them"))
        }
        PlacementKind::RoundRobin | PlacementKind::Replicated | PlacementKind::Home => None,
    }
}

/// SET CONSTRAINTS means all constraints of a name, and the gateway says it of its own.
fn check_namesakes(answer: &Answer<'_>) -> Result<(), GatewayError> {
    if answer.is_empty() {
        return Ok(());
    }
    let (name, table) = (answer.text(0, 0)?, answer.text(0, 1)?);
    let message = format!("constraint \"{name}\" of {table} has a name that is reserved");
    Err(Refusal::postgres("42939", message)
        .with_detail(
            "Constraints of such names keep unique indexes and foreign keys over all nodes.",
        )
        .with_hint("Call it otherwise.")
        .into())
}

/// Those that are kept by entries of their own, and what would keep them no more.
fn check_kept(answer: &Answer<'_>) -> Result<(), GatewayError> {
    if answer.is_empty() {
        return Ok(());
    }
    let (name, table, problem) = (answer.text(0, 0)?, answer.text(0, 1)?, answer.text(0, 2)?);
    let (message, hint) = match answer.text(0, 3)? {
        "reference" => (
            format!("foreign key \"{name}\" of {table} would not hold over all nodes any more"),
            format!(
                "ALTER TABLE {table} DROP CONSTRAINT {name} first, and add it again, in one transaction."
            ),
        ),
        _ => (
            format!("index \"{name}\" of {table} would not be unique over all nodes any more"),
            format!(
                "DROP INDEX {name} first, and make it again WITH (tutti.global_unique), in one transaction."
            ),
        ),
    };
    Err(Refusal::unsupported(message, problem, hint).into())
}

fn check_foreign_keys(tables: &Tables, answer: &Answer<'_>) -> Result<(), GatewayError> {
    let home = PlacementKind::Home;
    for row in 0..answer.len() {
        let placement = |oid| tables.get(&oid).map_or(&home, |table| &table.placement);
        let from = placement(answer.number(row, 1)?);
        let to = placement(answer.number(row, 2)?);
        let from_name = qualified(answer.text(row, 3)?, answer.text(row, 4)?);
        let to_name = qualified(answer.text(row, 5)?, answer.text(row, 6)?);
        let foreign_key = answer.text(row, 0)?;
        let keys_paired = answer.boolean(row, 7)?;
        let message =
            format!("foreign key \"{foreign_key}\" of table \"{from_name}\" cannot be enforced");
        if let Some((detail, hint)) = foreign_key_problem(from, to, keys_paired, &to_name) {
            return Err(Refusal::unsupported(message, detail, hint).into());
        }
        if answer.optional(row, 8) == Some("t") {
            return Err(Refusal::unsupported(
                format!(
                    "foreign key \"{foreign_key}\" of table \"{from_name}\" would change its \
                     distribution key"
                ),
                "ON UPDATE CASCADE, SET NULL and SET DEFAULT change rows where they are, but a row \
                 with another distribution key belongs on another node.",
                "Use NO ACTION or RESTRICT (or ON DELETE CASCADE), or distribute the table by \
                 another column.",
            )
            .into());
        }
    }
    Ok(())
}

/// Why rows of `from` cannot refer to rows of `to`, and what to do; `None` if they can.
fn foreign_key_problem(
    from: &PlacementKind,
    to: &PlacementKind,
    keys_paired: bool,
    to_name: &str,
) -> Option<(String, String)> {
    let replicate = format!("Make table \"{to_name}\" REPLICATED.");
    // One of them alone never suffices.
    let together = format!(
        "{replicate} Or distribute both in one statement, by the columns that the foreign key pairs: \
         ALTER TABLE {to_name} DISTRIBUTE BY HASH (key) CASCADE, or SELECT tutti_distribute('{to_name}', 'key', 'referring table', 'column')."
    );
    let together = match (from, to) {
        (PlacementKind::HashOfSeveral { .. }, _) | (_, PlacementKind::HashOfSeveral { .. }) => {
            format!(
                "{replicate} It may be distributed by several columns when the other table is, by those that the foreign key \
             pairs, in one order."
            )
        }
        _ => together,
    };
    match (from, to) {
        (PlacementKind::Async { .. }, _) | (_, PlacementKind::Async { .. }) => Some((
            "One of the tables is replicated asynchronously: rows that arrive are not checked, and those \
             that others refer to may be late."
                .to_owned(),
            "Make both tables REPLICATED, or do without the foreign key.".to_owned(),
        )),
        (_, PlacementKind::Replicated) | (PlacementKind::Home, PlacementKind::Home) => None,
        (
            PlacementKind::Hash { map, key, .. },
            PlacementKind::Hash { map: to_map, key: to_key, .. },
        ) => {
            if map == to_map && keys_paired {
                return None;
            }
            Some((
                format!(
                    "A row and the row of \"{to_name}\" that it refers to can be on different \
                     nodes: the foreign key does not pair the distribution keys (\"{key}\" and \
                     \"{to_key}\", which must be of kindred types)."
                ),
                format!(
                    "Distribute both tables by columns that the foreign key pairs, or make table \
                     \"{to_name}\" REPLICATED."
                ),
            ))
        }
        (
            PlacementKind::HashOfSeveral { key, .. },
            PlacementKind::HashOfSeveral { key: to_key, .. },
        ) => {
            let families = |key: &[(String, KeyType)]| -> Vec<_> {
                key.iter().map(|(_, key_type)| key_type.family()).collect()
            };
            if keys_paired && families(key) == families(to_key) {
                return None;
            }
            Some((
                format!(
                    "A row and the row of \"{to_name}\" that it refers to can be on different nodes: the foreign key \
                     does not pair the columns of both distribution keys, each with the one in its place, of a kindred type."
                ),
                format!(
                    "Distribute both tables by columns that the foreign key pairs, in one order, or make table \
                     \"{to_name}\" REPLICATED."
                ),
            ))
        }
        (PlacementKind::Replicated, _) => Some((
            format!(
                "The table has all its rows on every node, but no node need have all rows of \
                 \"{to_name}\"."
            ),
            format!("{replicate} Or distribute the referencing table by the referring column."),
        )),
        (_, PlacementKind::Home) => Some((
            format!("All rows of table \"{to_name}\" are on node 1, the referring rows are not."),
            together,
        )),
        (
            _,
            PlacementKind::Hash { .. }
            | PlacementKind::HashOfSeveral { .. }
            | PlacementKind::RoundRobin,
        ) => Some((
            format!(
                "A row and the row of \"{to_name}\" that it refers to can be on different nodes."
            ),
            together,
        )),
    }
}

fn check_children(tables: &Tables, answer: &Answer<'_>) -> Result<(), GatewayError> {
    let home = PlacementKind::Home;
    for row in 0..answer.len() {
        let placement = |oid| tables.get(&oid).map_or(&home, |table| &table.placement);
        let child = placement(answer.number(row, 0)?);
        let parent = placement(answer.number(row, 1)?);
        if child == parent {
            continue;
        }
        let child_name = qualified(answer.text(row, 2)?, answer.text(row, 3)?);
        let parent_name = qualified(answer.text(row, 4)?, answer.text(row, 5)?);
        return Err(Refusal::unsupported(
            format!("table \"{child_name}\" must be distributed like its parent \"{parent_name}\""),
            format!(
                "A statement about the parent is about its children too, so their rows must be on \
                 the same nodes; the child is {}, the parent {}.",
                describe(child),
                describe(parent)
            ),
            "Give both the same DISTRIBUTE BY, or leave it out of the child: it then takes its \
             parent's.",
        )
        .into());
    }
    Ok(())
}

fn describe(placement: &PlacementKind) -> String {
    match placement {
        PlacementKind::Hash { .. } | PlacementKind::HashOfSeveral { .. } => {
            let (key, _) = key_words(placement).unwrap_or_default();
            format!("distributed by {key}")
        }
        PlacementKind::RoundRobin => "distributed round robin".to_owned(),
        PlacementKind::Replicated => "replicated".to_owned(),
        PlacementKind::Async { .. } => "replicated asynchronously".to_owned(),
        PlacementKind::Home => "on node 1 only".to_owned(),
    }
}

fn check_numbers(answer: &Answer<'_>) -> Result<(), GatewayError> {
    if answer.is_empty() {
        return Ok(());
    }
    let table = qualified(answer.text(0, 0)?, answer.text(0, 1)?);
    let (column, of) = (answer.text(0, 2)?, answer.text(0, 3)?);
    Err(Refusal::unsupported(
        format!(
            "column \"{column}\" of table \"{table}\" cannot be on several nodes: its type is {of}"
        ),
        "Its values are a server's own numbers of objects; other nodes have other numbers, and not \
         all objects.",
        "Store names as text, or leave the table on node 1.",
    )
    .into())
}

fn check_materialized(answer: &Answer<'_>) -> Result<(), GatewayError> {
    if answer.is_empty() {
        return Ok(());
    }
    let view = qualified(answer.text(0, 0)?, answer.text(0, 1)?);
    let table = qualified(answer.text(0, 2)?, answer.text(0, 3)?);
    Err(Refusal::unsupported(
        format!("materialized view \"{view}\" cannot use distributed table \"{table}\""),
        "Each node fills its own copy of a materialized view, and would see its own rows only.",
        format!("Use CREATE TABLE … AS instead, or make table \"{table}\" REPLICATED."),
    )
    .into())
}

#[cfg(test)]
mod tests {
    use tutti_sql::catalog::MapId;

    use super::*;

    fn hash(key: &str, key_type: KeyType) -> PlacementKind {
        PlacementKind::hash(key.to_owned(), key_type)
    }

    #[test]
    fn foreign_keys_between_kinds() {
        let integer = hash("a", KeyType::Int4);
        let bigint = hash("b", KeyType::Int8);
        let text = hash("c", KeyType::Text);
        let (replicated, home, round_robin) =
            (PlacementKind::Replicated, PlacementKind::Home, PlacementKind::RoundRobin);
        let allowed = |from: &PlacementKind, to: &PlacementKind, paired| {
            foreign_key_problem(from, to, paired, "t").is_none()
        };
        assert!(allowed(&integer, &bigint, true));
        assert!(!allowed(&integer, &bigint, false));
        assert!(!allowed(&integer, &text, true));
        for from in [&integer, &replicated, &home, &round_robin] {
            assert!(allowed(from, &replicated, false));
            assert!(!allowed(from, &round_robin, false));
        }
        assert!(!allowed(&replicated, &integer, true));
        assert!(allowed(&home, &home, false));
        assert!(!allowed(&replicated, &home, false));
        assert!(!allowed(&integer, &home, false));
        assert!(!allowed(&home, &integer, false));
        let several = |types: [KeyType; 2]| PlacementKind::HashOfSeveral {
            key: types.map(|it| ("k".to_owned(), it)).into(),
            map: MapId(14),
        };
        let pair = several([KeyType::Int4, KeyType::Text]);
        assert!(allowed(&pair, &several([KeyType::Int8, KeyType::Varchar]), true));
        assert!(!allowed(&pair, &several([KeyType::Text, KeyType::Int4]), true));
        assert!(!allowed(&pair, &pair, false));
        assert!(allowed(&pair, &replicated, false));
        for other in [&integer, &round_robin, &home] {
            assert!(!allowed(&pair, other, true) && !allowed(other, &pair, true));
        }
    }
}
