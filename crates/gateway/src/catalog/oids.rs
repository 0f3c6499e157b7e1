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

const OIDS: &str = "SELECT 'type', t.oid, n.nspname, t.typname FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE t.oid >= 16384 AND n.nspname !~ '^pg_(toast|temp)'
UNION ALL SELECT 'table', c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_(toast|temp)'";

/// What one node calls its types and tables.
#[derive(Debug, Default)]
pub struct NodeOids {
    names: HashMap<(String, String, String), u32>,
}

impl NodeOids {
    /// Reads them, as the transaction that `connection` is in sees them.
    pub async fn load(connection: &mut NodeConnection) -> Result<Self, GatewayError> {
        let rows: Rows = connection.rows(OIDS).await?;
        let answer = Answer { node: connection.node(), what: "oids", rows: &rows };
        let mut names = HashMap::with_capacity(answer.len());
        for row in 0..answer.len() {
            let name = (
                answer.text(row, 0)?.to_owned(),
                answer.text(row, 2)?.to_owned(),
                answer.text(row, 3)?.to_owned(),
            );
            names.insert(name, answer.number(row, 1)?);
        }
        Ok(Self { names })
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
    fn is_none(&self) -> bool {
        self.types_to_home.is_empty() && self.tables_to_home.is_empty()
    }
}

/// The differences of all nodes.
#[derive(Debug, Default)]
pub struct OidMaps {
    nodes: HashMap<NodeId, Difference>,
}

impl OidMaps {
    /// Compares every node with node 1.
    pub fn compare(home: &NodeOids, others: &[(NodeId, NodeOids)]) -> Self {
        let nodes = others.iter().map(|(node, oids)| (*node, difference(home, oids))).collect();
        Self { nodes }
    }

    /// For these nodes what `previous` knows still holds.
    pub(super) fn keep_of(&mut self, previous: &Self, nodes: &[NodeId]) {
        for node in nodes {
            if let Some(difference) = previous.nodes.get(node) {
                self.nodes.insert(*node, difference.clone());
            }
        }
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
        let Some(at_home) = home.names.get(name).filter(|at_home| *at_home != oid) else {
            continue;
        };
        if name.0 == "type" {
            difference.types_to_home.insert(*oid, *at_home);
            difference.types_from_home.insert(*at_home, *oid);
        } else {
            difference.tables_to_home.insert(*oid, *at_home);
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
        NodeOids { names }
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
