//! OIDs of types and tables differ between nodes; clients know those of node 1.
//!
//! Owns: the maps between them, and rewriting descriptions by them.
//! Never: looks into values. (Binary arrays and composites name their element types inside; a client
//! that asks for these in binary gets the node's own OIDs.)

use std::collections::HashMap;

use tutti_sql::catalog::NodeId;
use tutti_wire::backend::{ColumnDescription, change_oids_of_row_description};
use tutti_wire::frame::WireError;

use super::rows::Answer;
use crate::error::GatewayError;
use crate::node::{NodeConnection, Rows};

/// OIDs from here on were given out after initdb, so they differ between nodes.
pub const FIRST_NORMAL_OID: u32 = 16384;

/// Kind, OID, schema and name; `{}` is the condition on a row's transaction. Exact, for it is asked on
/// clients' connections too.
const OIDS: &str = "SELECT 'type', t.oid, n.nspname, t.typname FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) t.typnamespace
WHERE t.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
    AND n.nspname OPERATOR(pg_catalog.!~) '^pg_(toast|temp)'::pg_catalog.text {t}
UNION ALL SELECT 'table', c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
WHERE c.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
    AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,v,m,f}'::pg_catalog.\"char\"[])
    AND n.nspname OPERATOR(pg_catalog.!~) '^pg_(toast|temp)'::pg_catalog.text {c}";

fn oids(condition: impl Fn(&str) -> String) -> String {
    OIDS.replace("{t}", &condition("t")).replace("{c}", &condition("c"))
}

/// Kind, schema and name of a type or table.
pub(super) type Name = (String, String, String);

/// Names of what is gone are forgotten after so many readings.
const UPDATES_MAX: u32 = 1_000;

/// What one node calls its types and tables.
#[derive(Clone, Debug, Default)]
pub struct NodeOids {
    names: HashMap<Name, u32>,
    /// The oldest transaction that was at work when they were read.
    horizon: Option<String>,
    updates: u32,
}

impl NodeOids {
    /// Reads them all.
    pub async fn load(connection: &mut NodeConnection) -> Result<Self, GatewayError> {
        let mut oids = Self::default();
        oids.update(connection).await?;
        Ok(oids)
    }

    /// Reads what has been made or renamed since the last time, over a connection that is in no
    /// transaction. Returns the names.
    pub(super) async fn update(
        &mut self,
        connection: &mut NodeConnection,
    ) -> Result<Vec<Name>, GatewayError> {
        if self.updates == UPDATES_MAX {
            *self = Self::default();
        }
        let sql = match &self.horizon {
            Some(horizon) => oids(|of| {
                let horizon = format!("'{horizon}'::pg_catalog.xid");
                format!(
                    "AND pg_catalog.age({of}.xmin) OPERATOR(pg_catalog.<=) pg_catalog.age({horizon})"
                )
            }),
            None => oids(|_| String::new()),
        };
        // The moment comes first: what is committed between the two is read again next time.
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

    /// What the transaction that `connection` is in has made or renamed.
    pub async fn load_own(connection: &mut NodeConnection) -> Result<Self, GatewayError> {
        let own = "pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.xid";
        let rows = connection
            .rows(&oids(|of| {
                format!(
                    "AND pg_catalog.age({of}.xmin) OPERATOR(pg_catalog.<=) pg_catalog.age({own})"
                )
            }))
            .await?;
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

/// The difference between one node and node 1; empty where they agree.
#[derive(Clone, Debug, Default)]
struct Difference {
    types_to_home: HashMap<u32, u32>,
    types_from_home: HashMap<u32, u32>,
    tables_to_home: HashMap<u32, u32>,
}

impl Difference {
    fn note(&mut self, name: &Name, at_home: u32, there: u32) {
        let is_same = at_home == there;
        let put = |map: &mut HashMap<u32, u32>, from: u32, to: u32| match is_same {
            true => drop(map.remove(&from)),
            false => drop(map.insert(from, to)),
        };
        if name.0 == "type" {
            put(&mut self.types_to_home, there, at_home);
            put(&mut self.types_from_home, at_home, there);
        } else {
            put(&mut self.tables_to_home, there, at_home);
        }
    }

    fn is_none(&self) -> bool {
        self.types_to_home.is_empty() && self.tables_to_home.is_empty()
    }
}

/// The differences of all nodes.
#[derive(Clone, Debug, Default)]
pub struct OidMaps {
    nodes: HashMap<NodeId, Difference>,
}

impl OidMaps {
    /// Compares every node with node 1.
    pub fn compare(home: &NodeOids, others: &[(NodeId, NodeOids)]) -> Self {
        let nodes = others.iter().map(|(node, oids)| (*node, difference(home, oids))).collect();
        Self { nodes }
    }

    /// Compares these names of `node` with node 1's again. What it called them before is kept: nothing
    /// else gets its number.
    pub(super) fn compare_again<'a>(
        &mut self,
        home: &NodeOids,
        node: NodeId,
        other: &NodeOids,
        names: impl IntoIterator<Item = &'a Name>,
    ) {
        let difference = self.nodes.entry(node).or_default();
        for name in names {
            if let (Some(at_home), Some(there)) = (home.names.get(name), other.names.get(name)) {
                difference.note(name, *at_home, *there);
            }
        }
    }

    /// With what a transaction has made itself, as it sees it on its nodes.
    pub fn with_own(&self, home: &NodeOids, others: &[(NodeId, NodeOids)]) -> Self {
        let mut maps = self.clone();
        for (node, oids) in others {
            maps.compare_again(home, *node, oids, oids.names.keys());
        }
        maps
    }

    /// What `newer` says and this does not. (What is gone may be known here for ever.)
    pub fn lack_of(&self, newer: &Self) -> Vec<String> {
        let mut lack = Vec::new();
        for (node, wanted) in &newer.nodes {
            let Some(known) = self.nodes.get(node) else {
                lack.push(format!("nothing of {node}"));
                continue;
            };
            for (what, wanted, known) in [
                ("type", &wanted.types_to_home, &known.types_to_home),
                ("type of node 1", &wanted.types_from_home, &known.types_from_home),
                ("table", &wanted.tables_to_home, &known.tables_to_home),
            ] {
                let missing = wanted.iter().filter(|(from, to)| known.get(*from) != Some(*to));
                lack.extend(missing.map(|(from, to)| format!("{what} {from} of {node} is {to}")));
            }
        }
        lack
    }

    /// Rewrites a description that `node` gave into what node 1 would have said. False if nothing
    /// had to change.
    pub fn to_home(&self, node: NodeId, columns: &mut [ColumnDescription]) -> bool {
        let Some(difference) = self.nodes.get(&node) else { return false };
        let mut changed = false;
        for column in columns {
            for (oid, map) in [
                (&mut column.type_oid, &difference.types_to_home),
                (&mut column.table_oid, &difference.tables_to_home),
            ] {
                if let Some(home) = map.get(oid) {
                    *oid = *home;
                    changed = true;
                }
            }
        }
        changed
    }

    /// The same for a RowDescription, a whole frame, where it lies.
    pub fn description_to_home(&self, node: NodeId, frame: &mut [u8]) -> Result<(), WireError> {
        match self.nodes.get(&node) {
            Some(difference) if !difference.is_none() => {
                change_oids_of_row_description(frame, |table_oid, type_oid| {
                    let table_oid = difference.tables_to_home.get(&table_oid).unwrap_or(&table_oid);
                    let type_oid = difference.types_to_home.get(&type_oid).unwrap_or(&type_oid);
                    (*table_oid, *type_oid)
                })
            }
            _ => Ok(()),
        }
    }

    /// Types as node 1 numbers them, as `node` does.
    pub fn types_from_home(&self, node: NodeId, types: &[u32]) -> Vec<u32> {
        let difference = self.nodes.get(&node);
        let translate = |oid: &u32| {
            difference.and_then(|map| map.types_from_home.get(oid)).copied().unwrap_or(*oid)
        };
        types.iter().map(translate).collect()
    }

    /// Types as `node` numbers them, as node 1 does.
    pub fn types_to_home(&self, node: NodeId, types: &[u32]) -> Vec<u32> {
        let difference = self.nodes.get(&node);
        let translate = |oid: &u32| {
            difference.and_then(|map| map.types_to_home.get(oid)).copied().unwrap_or(*oid)
        };
        types.iter().map(translate).collect()
    }
}

fn difference(home: &NodeOids, other: &NodeOids) -> Difference {
    let mut difference = Difference::default();
    for (name, oid) in &other.names {
        if let Some(at_home) = home.names.get(name).filter(|at_home| *at_home != oid) {
            difference.note(name, *at_home, *oid);
        }
    }
    difference
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tutti_wire::backend::put_row_description;

    use super::*;

    fn oids(entries: &[(&str, &str, u32)]) -> NodeOids {
        let name = |kind: &str, name: &str| (kind.to_owned(), "public".to_owned(), name.to_owned());
        let names = entries.iter().map(|(kind, n, oid)| (name(kind, n), *oid)).collect();
        NodeOids { names, ..NodeOids::default() }
    }

    #[test]
    fn descriptions_are_told_in_the_numbers_of_node_1() {
        let home = oids(&[("type", "mood", 20000), ("table", "t", 20001)]);
        let other = oids(&[("type", "mood", 30000), ("table", "t", 20000)]);
        let maps = OidMaps::compare(&home, &[(NodeId(2), other)]);
        let mut columns = vec![ColumnDescription {
            type_oid: 30000,
            table_oid: 20000,
            ..ColumnDescription::text("m")
        }];
        assert!(maps.to_home(NodeId(2), &mut columns));
        assert_eq!((columns[0].type_oid, columns[0].table_oid), (20000, 20001));
        assert_eq!(maps.types_from_home(NodeId(2), &[20000, 23]), [30000, 23]);
        assert_eq!(maps.types_to_home(NodeId(2), &[30000, 23]), [20000, 23]);
        assert!(!maps.to_home(NodeId(3), &mut columns));

        let (mut there, mut told) = (BytesMut::new(), BytesMut::new());
        let foreign = ColumnDescription { type_oid: 30000, ..columns[0].clone() };
        put_row_description(&mut there, &[ColumnDescription::text("n"), foreign]);
        put_row_description(&mut told, &[ColumnDescription::text("n"), columns[0].clone()]);
        maps.description_to_home(NodeId(2), &mut there).expect("it is well formed");
        assert_eq!(there, told);
        let end = there.len() - 1;
        assert!(maps.description_to_home(NodeId(2), &mut there[..end]).is_err());
    }
}
