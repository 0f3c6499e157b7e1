//! What an analysis says of the nodes on which its statement can run.
//!
//! Owns: what keeps a statement on node 1, what pins it to one node, and the words for both.
//! Never: chooses a plan.
//! Start reading at [`home_reason`] and [`all_pins`].

use super::analysis::{Analysis, Whereabouts};
use super::pins::Facts;
use crate::plan::{Access, Pin};

/// What the statement does to the nodes it runs on.
pub(super) fn access(analysis: &Analysis<'_>) -> Access {
    let writes = !analysis.locked.is_empty()
        || analysis.functions.may_write.is_some()
        || analysis.functions.sequence
        || !analysis.modifications.is_empty();
    if writes { Access::Write } else { Access::Read }
}

/// Why node 1 must take part, if it must.
pub(super) fn home_reason(analysis: &Analysis<'_>) -> Option<String> {
    if let Some(relation) = &analysis.home_relation {
        return Some(format!("{relation} is on node 1 only"));
    }
    analysis.functions.home.as_ref().map(|name| format!("{name}() must be called on node 1"))
}

/// The pins of all distributed tables together, if all are pinned.
pub(super) fn all_pins(analysis: &Analysis<'_>, facts: &Facts<'_, '_>) -> Option<Vec<Pin>> {
    let mut pins = Vec::new();
    for (item, ..) in analysis.distributed() {
        for pin in facts.pins_of(item)? {
            if !pins.contains(&pin) {
                pins.push(pin);
            }
        }
    }
    Some(pins)
}

pub(super) fn pinned_reason(analysis: &Analysis<'_>, values: usize) -> String {
    let mut keys = Vec::new();
    let mut tables = 0;
    for (item, relation, spread) in analysis.distributed() {
        tables += 1;
        let key = match (spread, analysis.items[item].several()) {
            (Whereabouts::Hash { key, .. }, _) => relation.columns[key].name.clone(),
            (_, Some(_)) => format!("({})", relation.key_names().unwrap_or_default()),
            (_, None) => continue,
        };
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let keys = keys.join(", ");
    let by = if values == 1 { "one value" } else { "values" };
    match tables {
        1 => format!("its distributed table is pinned to {by} of {keys}"),
        _ => format!("all its distributed tables are pinned to {by} of {keys}"),
    }
}

/// The first table that is not pinned, and why, as a clause.
pub(super) fn not_pinned(analysis: &Analysis<'_>) -> Option<String> {
    let facts = Facts::from_values(analysis);
    analysis.distributed().find(|(item, ..)| facts.pins_of(*item).is_none()).map(
        |(item, relation, spread)| match (spread, analysis.items[item].several()) {
            (Whereabouts::Hash { key, .. }, _) => format!(
                "{} is not pinned: no usable equality on its distribution key {}",
                relation.name, relation.columns[key].name
            ),
            (_, Some(_)) => format!(
                "{} is not pinned: no usable equalities on all columns of its distribution key {}",
                relation.name,
                relation.key_names().unwrap_or_default()
            ),
            (_, None) => format!("{} has no distribution key", relation.name),
        },
    )
}
