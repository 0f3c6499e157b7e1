//! Which placement a new table gets: what it says, its parent's, that of a table to which it refers, or the
//! configuration's.
//!
//! Owns: that order, and what node 1 says of a table that was just created.
//! Never: registers it (`placement` does).
//! Start reading at [`choose_placement`]; why foreign keys come before the configuration is
//! docs/decisions/2026-11-28-placement-by-sql.md.

use tutti_configuration::DefaultDistribution;
use tutti_link::connection::NodeConnection;
use tutti_sql::catalog::{Catalog, quote_literal};
use tutti_sql::plan::CreatedTable;

use super::colocation::{Followed, column_of_new};
use super::maps::{SPLITS_SQL, read_bucketing};
use super::placement::{PlacementKind, Registration, placement_of, stored_placement};
use super::rows::Answer;
use crate::error::GatewayError;

/// What is chosen.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The table with its placement.
    pub registration: Registration,
    /// Why, if it goes with a table to which it refers.
    pub followed: Option<Followed>,
}

/// What a table that a statement has just created on node 1 is to be registered as, everywhere.
///
/// `home` is in the transaction that created it. `None`: nothing to register (IF NOT EXISTS found
/// a table that has its registration; or the table is temporary).
///
/// Errors: [`GatewayError::Refused`] if the key cannot be one, or if the table refers to one that is distributed by hash,
/// says nothing of its own placement, and cannot go with that one.
pub async fn choose_placement(
    home: &mut NodeConnection,
    default: DefaultDistribution,
    created: &CreatedTable,
    catalog: &Catalog,
) -> Result<Option<Chosen>, GatewayError> {
    let Some(facts) = read_created(home, created).await? else { return Ok(None) };
    let known = catalog
        .relations
        .get(&facts.schema)
        .and_then(|tables| tables.get(&created.name))
        .is_some_and(|relation| relation.oid == facts.oid);
    if facts.temporary || (created.if_not_exists && known) {
        return Ok(None);
    }
    let followed = match created.follows {
        true => column_of_new(home, facts.oid).await?,
        false => None,
    };
    let placement = match (&created.distribute_by, &created.parent) {
        (Some(wanted), _) => placement_of(home, facts.oid, wanted).await?,
        (None, Some((schema, parent))) => {
            placement_of_parent(home, schema.as_deref(), parent).await?
        }
        (None, None) if let Some(followed) = &followed => followed.placement(),
        (None, None) => match default {
            DefaultDistribution::Home => PlacementKind::Home,
            DefaultDistribution::Replicated => PlacementKind::Replicated,
            DefaultDistribution::RoundRobin => PlacementKind::RoundRobin,
        },
    };
    let registration =
        Registration { schema: facts.schema, table: created.name.clone(), placement };
    Ok(Some(Chosen { registration, followed }))
}

/// What node 1 says about a table that was just created.
struct CreatedFacts {
    oid: u32,
    schema: String,
    temporary: bool,
}

async fn read_created(
    home: &mut NodeConnection,
    created: &CreatedTable,
) -> Result<Option<CreatedFacts>, GatewayError> {
    let schema = created.schema.as_deref().map_or_else(
        || "pg_catalog.current_schema()".to_owned(),
        |schema| if schema == "pg_temp" { "NULL".to_owned() } else { quote_literal(schema) },
    );
    let name = quote_literal(&created.name);
    let rows = home
        .rows(&format!(
            "SELECT c.oid, n.nspname, c.relpersistence OPERATOR(pg_catalog.=) 't' FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
WHERE c.relname OPERATOR(pg_catalog.=) {name}
    AND (n.nspname OPERATOR(pg_catalog.=) {schema} OR n.oid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())
ORDER BY n.nspname OPERATOR(pg_catalog.=) {schema} DESC NULLS LAST LIMIT 1"
        ))
        .await?;
    let answer = Answer { node: home.node(), what: "a new table", rows: &rows };
    if answer.is_empty() {
        return Ok(None);
    }
    Ok(Some(CreatedFacts {
        oid: answer.number(0, 0)?,
        schema: answer.text(0, 1)?.to_owned(),
        temporary: answer.boolean(0, 2)?,
    }))
}

async fn placement_of_parent(
    home: &mut NodeConnection,
    schema: Option<&str>,
    parent: &str,
) -> Result<PlacementKind, GatewayError> {
    let quote = tutti_sql::catalog::quote_identifier;
    let name = match schema {
        Some(schema) => format!("{}.{}", quote(schema), quote(parent)),
        None => quote(parent),
    };
    let sql = format!(
        "SELECT p.kind, a.attname, a.atttypid, p.map, m.key_family, {SPLITS_SQL} FROM tutti.placements p
LEFT JOIN tutti.map m ON m.id OPERATOR(pg_catalog.=) p.map
LEFT JOIN LATERAL pg_catalog.unnest(coalesce(p.key_attnums, ARRAY[p.key_attnum])) WITH ORDINALITY AS k (attnum, place) ON true
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) p.relation AND a.attnum OPERATOR(pg_catalog.=) k.attnum
WHERE p.relation OPERATOR(pg_catalog.=) {}::pg_catalog.regclass::pg_catalog.oid ORDER BY k.place",
        quote_literal(&name)
    );
    let rows = home.rows(&sql).await?;
    let answer = Answer { node: home.node(), what: "the placement of a parent", rows: &rows };
    if answer.is_empty() {
        return Ok(PlacementKind::Home);
    }
    let bucketing =
        read_bucketing(answer.optional(0, 4).unwrap_or_default(), answer.optional(0, 5));
    stored_placement(&answer, 0..answer.len(), 0, bucketing.ok_or_else(|| answer.unreadable())?)
}
