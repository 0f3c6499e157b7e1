//! Whether all nodes have the same definitions of what they share, and the schema `tutti` is
//! intact.
//!
//! Owns: what is compared, and which differences matter.
//! Never: changes anything; judges what is just being changed: a difference counts if three looks
//! find it.
//! Start reading at [`check`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tutti_link::connection::Rows;
use tutti_sql::catalog::NodeId;

use super::moment::Moment;
use super::report::{Finding, Kind, Report};
use crate::catalog::{Answer, schema};
use crate::error::{GatewayError, in_full};

const DEFINITIONS: &str = include_str!("definitions.sql");
const SPREAD: &str = "SELECT format('%I.%I', n.nspname, c.relname)
FROM tutti.placement p JOIN pg_class c ON c.oid = p.relation
JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.kind <> 'home';";
const HOME_BY_DEFAULT: &str = "SELECT coalesce(home_by_default, true) FROM tutti.cluster;";
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(80);

/// Kind and name.
type Key = (String, String);

/// The definitions on one node.
#[derive(Debug, Default)]
struct Definitions {
    /// The table it belongs to, and the text.
    facts: BTreeMap<Key, (Option<String>, String)>,
    spread: BTreeSet<String>,
    home_by_default: bool,
}

/// Compares the nodes' definitions.
pub(super) async fn check(moment: &mut Moment, report: &mut Report) -> Result<(), GatewayError> {
    let mut found: Option<BTreeMap<String, Finding>> = None;
    for attempt in 1..=ATTEMPTS {
        let (definitions, failed) = read(moment).await?;
        let differences = compare(&definitions);
        found = Some(match found {
            None => differences,
            Some(mut before) => {
                before.retain(|told, _| differences.contains_key(told));
                before
            }
        });
        let is_clean = found.as_ref().is_some_and(BTreeMap::is_empty);
        if is_clean && failed.is_empty() {
            return Ok(());
        }
        if attempt == ATTEMPTS {
            for (node, why) in failed {
                report.unchecked(format!("definitions on {node}"), why);
            }
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    for finding in found.unwrap_or_default().into_values() {
        report.find(finding);
    }
    Ok(())
}

async fn read(
    moment: &mut Moment,
) -> Result<(BTreeMap<NodeId, Definitions>, BTreeMap<NodeId, String>), GatewayError> {
    // In one transaction, which is left open as it was, whatever fails.
    let sql = format!("{DEFINITIONS} {SPREAD} {HOME_BY_DEFAULT}");
    let (mut all, mut failed) = (BTreeMap::new(), BTreeMap::new());
    for (node, answer) in moment.workers.ask_all(&sql).await {
        match answer {
            Ok(results) => drop(all.insert(node, read_one(node, &results)?)),
            Err(error) => drop(failed.insert(node, in_full(&error))),
        }
    }
    Ok((all, failed))
}

fn read_one(node: NodeId, results: &[Rows]) -> Result<Definitions, GatewayError> {
    let what = "its definitions";
    let [facts, spread, home] = results else {
        return Err(GatewayError::Unreadable { node, what });
    };
    let answer = |rows| Answer { node, what, rows };
    let (facts, spread) = (answer(facts), answer(spread));
    let mut found = Definitions {
        home_by_default: answer(home).optional(0, 0) == Some("t"),
        ..Definitions::default()
    };
    for row in 0..facts.len() {
        let key = (facts.text(row, 0)?.to_owned(), facts.text(row, 2)?.to_owned());
        let table = facts.optional(row, 1).map(str::to_owned);
        let text = facts.optional(row, 3).unwrap_or_default().to_owned();
        found.facts.insert(key, (table, text));
    }
    for row in 0..spread.len() {
        found.spread.insert(spread.text(row, 0)?.to_owned());
    }
    Ok(found)
}

/// Keyed by what identifies a difference, so that two looks can be compared.
fn compare(all: &BTreeMap<NodeId, Definitions>) -> BTreeMap<String, Finding> {
    let mut found = BTreeMap::new();
    let mut tell = |kind, node: NodeId, name: &str, message: String| {
        let finding = Finding::new(kind, Some(node), name.to_owned(), message);
        found.insert(finding.to_string(), finding);
    };
    let Some((reference, expected)) = all.first_key_value() else { return found };
    let is_shared = !expected.home_by_default || !expected.spread.is_empty();
    for (node, here) in all {
        for ((kind, name), (_, text)) in &here.facts {
            match kind.as_str() {
                "armed" => {
                    let message = "the sequence can give values here; only node 1 gives them";
                    tell(Kind::Sequence, *node, name, message.to_owned());
                }
                // A cluster of one node is swept from time to time (`recovery::forget`).
                "placement of nothing" if all.len() == 1 => (),
                "placement of nothing" => {
                    let message = format!("a placement ({text}) of a table that is not there");
                    tell(Kind::Placement, *node, name, message);
                }
                "map" if !text.contains(" 1024 ") => {
                    let message = "it has not 1024 buckets".to_owned();
                    tell(Kind::Map, *node, name, message);
                }
                "tutti"
                    if name == "version of the schema"
                        && *text != schema::SCHEMA_VERSION.to_string() =>
                {
                    let message = format!(
                        "it is {text}, and this program's {}; a gateway completes it when it starts",
                        schema::SCHEMA_VERSION
                    );
                    tell(Kind::Schema, *node, name, message);
                }
                _ => (),
            }
        }
        if node == reference {
            continue;
        }
        let names: BTreeSet<&Key> = expected.facts.keys().chain(here.facts.keys()).collect();
        for key @ (kind, name) in names {
            let kind_found = match kind.as_str() {
                "armed" | "placement of nothing" => continue,
                "map" => Kind::Map,
                "tutti" => Kind::Schema,
                _ => Kind::Definition,
            };
            let (one, other) = (expected.facts.get(key), here.facts.get(key));
            let is_wanted = match (one, other) {
                // Until the first table is spread, the other nodes are not told of these.
                _ if !is_shared && matches!(&**kind, "role" | "schema" | "type" | "owner") => false,
                (Some((_, one)), Some((_, other))) if one == other => false,
                (Some(_), Some(_)) => true,
                // Each server may have a superuser of its own.
                (Some((_, text)), None) | (None, Some((_, text)))
                    if kind == "role" && text.starts_with("superuser") =>
                {
                    false
                }
                // Ordinary roles create nothing on other nodes that node 1 does not have.
                (one, _) if kind == "owner" => one.is_none(),
                (Some(_), None) | (None, Some(_)) if kind == "role" => true,
                (Some((table, _)), None) | (None, Some((table, _))) => {
                    let is_spread =
                        table.as_ref().is_some_and(|table| expected.spread.contains(table));
                    let is_ours = matches!(kind_found, Kind::Map | Kind::Schema);
                    is_spread || is_ours || !expected.home_by_default
                }
                (None, None) => false,
            };
            if is_wanted {
                let shown = |text: Option<&(Option<String>, String)>| match text {
                    Some((_, text)) => format!("\"{text}\""),
                    None => "missing".to_owned(),
                };
                let message =
                    format!("{kind}: {} here, {} on {reference}", shown(other), shown(one));
                tell(kind_found, *node, name, message);
            }
        }
    }
    found
}
