//! OIDs of types and tables differ between nodes; clients know those of node 1.
//!
//! Owns: the maps between them, and rewriting descriptions by them.
//! Never: asks a node for its numbers (the catalog does), or reads values. (Binary arrays and
//! composites name their element types inside; a client that asks for these in binary gets the node's
//! own OIDs.)

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tutti_sql::catalog::NodeId;
use tutti_wire::backend::{ColumnDescription, change_oids_of_row_description};
use tutti_wire::frame::WireError;

/// OIDs from here on were assigned after initdb, so they differ between nodes.
pub const FIRST_NORMAL_OID: u32 = 16384;

/// What has an OID that clients are told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Numbered {
    /// A type.
    Type,
    /// A table, a view or the like.
    Table,
}

/// Source of the newest maps: those published with the catalog.
pub trait PublishedOids: fmt::Debug + Send + Sync {
    /// The newest.
    fn oids(&self) -> Arc<OidMaps>;
}

/// The difference between one node and node 1; empty where they agree.
#[derive(Clone, Debug, Default)]
struct Difference {
    types_to_home: HashMap<u32, u32>,
    types_from_home: HashMap<u32, u32>,
    tables_to_home: HashMap<u32, u32>,
}

impl Difference {
    fn note(&mut self, what: Numbered, at_home: u32, there: u32) {
        let is_same = at_home == there;
        let put = |map: &mut HashMap<u32, u32>, from: u32, to: u32| match is_same {
            true => drop(map.remove(&from)),
            false => drop(map.insert(from, to)),
        };
        if what == Numbered::Type {
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
    /// What node 1 calls `at_home`, `node` calls `there`. Its former OID is kept: nothing else gets that
    /// number.
    pub fn note(&mut self, node: NodeId, what: Numbered, at_home: u32, there: u32) {
        self.nodes.entry(node).or_default().note(what, at_home, there);
    }

    /// What `newer` has and this does not. (What was dropped may be known here forever.)
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

    /// Rewrites a description by `node` into what node 1 would have sent. False if nothing
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

    /// The same for a RowDescription, a whole frame, in place.
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

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tutti_wire::backend::put_row_description;

    use super::*;

    #[test]
    fn descriptions_are_told_in_the_numbers_of_node_1() {
        let mut maps = OidMaps::default();
        maps.note(NodeId(2), Numbered::Type, 20000, 30000);
        maps.note(NodeId(2), Numbered::Table, 20001, 20000);
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
