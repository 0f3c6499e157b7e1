//! Each node's OIDs of types and tables, and how they differ from node 1's.
//!
//! Owns: asking the nodes for their OIDs, and comparing them.
//! Never: translates by them ([`tutti_link::translation`] does).

use std::collections::HashMap;

use tutti_link::translation::{Numbered, OidMaps};
use tutti_link::{NodeConnection, Rows};
use tutti_sql::catalog::NodeId;

use super::rows::Answer;
use crate::error::GatewayError;

/// Kind, OID, schema and name; `{}` is the condition on a row's transaction. Exact types, for it is
/// run on clients' connections too. Types of arrays are known by their elements: what they are called themselves is a
/// server's choice, for the name that they would have may be taken.
const OIDS: &str = "SELECT CASE WHEN e.oid IS NULL THEN 'type' ELSE 'array' END, t.oid, n.nspname, coalesce(e.typname, t.typname)
FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) t.typnamespace
LEFT JOIN pg_catalog.pg_type e ON e.oid OPERATOR(pg_catalog.=) t.typelem AND e.typarray OPERATOR(pg_catalog.=) t.oid
WHERE t.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
    AND n.nspname OPERATOR(pg_catalog.!~) '^pg_(toast|temp)'::pg_catalog.text {t}
UNION ALL SELECT 'table', c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
WHERE c.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
    AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,v,m,f}'::pg_catalog.\"char\"[])
    AND n.nspname OPERATOR(pg_catalog.!~) '^pg_(toast|temp)'::pg_catalog.text {c}";

fn all_oids() -> String {
    OIDS.replace("{t}", "").replace("{c}", "")
}

/// What this transaction, or a later one, has created or renamed; a schema's name is that of all in it.
fn oids_since(xid: &str) -> String {
    let is_since = |of: &str| {
        format!("pg_catalog.age({of}.xmin) OPERATOR(pg_catalog.<=) pg_catalog.age({xid})")
    };
    let condition = |of: &str| format!("AND ({} OR {})", is_since(of), is_since("n"));
    OIDS.replace("{t}", &condition("t")).replace("{c}", &condition("c"))
}

/// Kind, schema and name of a table, of a type, or of the elements of a type of arrays.
pub(super) type Name = (String, String, String);

/// Names of dropped objects are forgotten after so many readings.
const UPDATES_MAX: u32 = 1_000;

/// One node's OIDs of types and tables.
#[derive(Clone, Debug, Default)]
pub struct NodeOids {
    names: HashMap<Name, u32>,
    /// The oldest transaction that was in progress when they were read.
    horizon: Option<String>,
    updates: u32,
}

impl NodeOids {
    /// Reads all of them.
    pub async fn load(connection: &mut NodeConnection) -> Result<Self, GatewayError> {
        let mut oids = Self::default();
        oids.update(connection).await?;
        Ok(oids)
    }

    /// Reads what has been created or renamed since the last time, over a connection that is in no
    /// transaction. Returns the names.
    pub(super) async fn update(
        &mut self,
        connection: &mut NodeConnection,
    ) -> Result<Vec<Name>, GatewayError> {
        if self.updates == UPDATES_MAX {
            *self = Self::default();
        }
        let sql = match &self.horizon {
            Some(horizon) => oids_since(&format!("'{horizon}'::pg_catalog.xid")),
            None => all_oids(),
        };
        // The horizon is read first: what is committed between the two is read again next time.
        const MOMENT: &str =
            "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::pg_catalog.xid";
        let results = connection.query(&format!("{MOMENT}; {sql}")).await?;
        let node = connection.node();
        let unreadable = || GatewayError::Unreadable { node, what: "oids" };
        let [moment, rows] = &results[..] else { return Err(unreadable()) };
        let horizon = moment.text(0, 0).ok_or_else(unreadable)?.to_owned();
        let changed = self.add(node, rows)?;
        self.horizon = Some(horizon);
        self.updates += 1;
        Ok(changed)
    }

    /// What the transaction that `connection` is in has created or renamed.
    pub async fn load_own(connection: &mut NodeConnection) -> Result<Self, GatewayError> {
        let own = "pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.xid";
        let rows = connection.rows(&oids_since(own)).await?;
        let mut oids = Self::default();
        oids.add(connection.node(), &rows)?;
        Ok(oids)
    }

    /// Adds rows of kind, number, schema and name. Returns the names.
    pub(super) fn add(&mut self, node: NodeId, rows: &Rows) -> Result<Vec<Name>, GatewayError> {
        let answer = Answer { node, what: "oids", rows };
        let mut changed = Vec::with_capacity(answer.len());
        for row in 0..answer.len() {
            let name = (
                answer.text(row, 0)?.to_owned(),
                answer.text(row, 2)?.to_owned(),
                answer.text(row, 3)?.to_owned(),
            );
            self.names.insert(name.clone(), answer.number(row, 1)?);
            changed.push(name);
        }
        Ok(changed)
    }
}

/// How every other node differs from node 1.
pub fn compare(home: &NodeOids, others: &[(NodeId, NodeOids)]) -> OidMaps {
    with_own(&OidMaps::default(), home, others)
}

/// Compares these names of `node` with node 1's again.
pub(super) fn compare_again<'a>(
    maps: &mut OidMaps,
    home: &NodeOids,
    node: NodeId,
    other: &NodeOids,
    names: impl IntoIterator<Item = &'a Name>,
) {
    for name in names {
        if let (Some(at_home), Some(there)) = (home.names.get(name), other.names.get(name)) {
            let what = if name.0 == "table" { Numbered::Table } else { Numbered::Type };
            maps.note(node, what, *at_home, *there);
        }
    }
}

/// These maps, with what a transaction has created itself, as it sees it on its nodes.
pub fn with_own(maps: &OidMaps, home: &NodeOids, others: &[(NodeId, NodeOids)]) -> OidMaps {
    let mut maps = maps.clone();
    for (node, oids) in others {
        compare_again(&mut maps, home, *node, oids, oids.names.keys());
    }
    maps
}
