//! OIDs of types and tables differ between nodes; clients know those of node 1.
//!
//! Owns: the maps between them, and rewriting descriptions by them, and values in binary format, which may say such
//! numbers, too (`values`).
//! Never: asks a node for its numbers (the catalog does).

mod values;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tutti_sql::catalog::{Catalog, NodeId};
use tutti_wire::backend::{ColumnDescription, change_oids_of_row_description};
use tutti_wire::frame::{HEADER_LEN, WireError};
use tutti_wire::frontend::Arguments;

use self::values::Renumbering;

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

/// How the nodes number types and tables, and which types there are.
#[derive(Clone, Debug)]
pub struct Numbering {
    /// The numbers.
    pub oids: Arc<OidMaps>,
    /// Of the same moment.
    pub catalog: Arc<Catalog>,
}

/// Source of the newest numbers: those published with the catalog.
pub trait PublishedOids: fmt::Debug + Send + Sync {
    /// The newest.
    fn oids(&self) -> Arc<OidMaps>;

    /// The newest, with the catalog.
    fn numbering(&self) -> Numbering;
}

/// The difference between one node and node 1; empty where they agree.
#[derive(Clone, Debug, Default)]
struct Difference {
    types_to_home: HashMap<u32, u32>,
    types_from_home: HashMap<u32, u32>,
    tables_to_home: HashMap<u32, u32>,
    tables_from_home: HashMap<u32, u32>,
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
            put(&mut self.tables_from_home, at_home, there);
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

    /// The same for a RowDescription, a whole frame, in place. `described` is told of each column its type, as node 1
    /// numbers it, and its format, unless nothing differs.
    pub fn description_to_home(
        &self,
        node: NodeId,
        frame: &mut [u8],
        mut described: impl FnMut(u32, i16),
    ) -> Result<(), WireError> {
        match self.nodes.get(&node) {
            Some(difference) if !difference.is_none() => {
                change_oids_of_row_description(frame, |table_oid, type_oid, format| {
                    let table_oid = difference.tables_to_home.get(&table_oid).unwrap_or(&table_oid);
                    let type_oid = difference.types_to_home.get(&type_oid).unwrap_or(&type_oid);
                    described(*type_oid, format);
                    (*table_oid, *type_oid)
                })
            }
            _ => Ok(()),
        }
    }

    /// Whether `node` numbers something otherwise than node 1.
    pub fn differs(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|difference| !difference.is_none())
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

impl Numbering {
    /// The types of columns whose values say, in binary, numbers that `node` may have given otherwise; 0 for others.
    /// `None`: there is no such column. Types are as node 1 numbers them.
    pub fn numbered(
        &self,
        node: NodeId,
        columns: impl Iterator<Item = (u32, i16)>,
    ) -> Option<Arc<[u32]>> {
        if !self.oids.differs(node) {
            return None;
        }
        let code = &self.catalog.code;
        let types: Vec<_> = columns
            .map(|(oid, format)| if format == 1 && code.says_numbers(oid) { oid } else { 0 })
            .collect();
        types.iter().any(|oid| *oid != 0).then(|| types.into())
    }

    /// Rewrites a DataRow of `node`, a whole frame, into what node 1 would have sent; `types` as from
    /// [`Self::numbered`].
    pub fn row_to_home(
        &self,
        node: NodeId,
        types: &[u32],
        frame: &mut [u8],
    ) -> Result<(), WireError> {
        match frame.get_mut(HEADER_LEN..) {
            Some(row) => self.fields_to_home(node, types, row),
            None => Err(WireError::Malformed),
        }
    }

    /// The same for a row of a COPY in binary format.
    pub fn fields_to_home(
        &self,
        node: NodeId,
        types: &[u32],
        row: &mut [u8],
    ) -> Result<(), WireError> {
        let Some(difference) = self.oids.nodes.get(&node) else { return Ok(()) };
        let types_to_home = |oid: u32| {
            let at_home = *difference.types_to_home.get(&oid).unwrap_or(&oid);
            (at_home, at_home)
        };
        let tables_to_home = |oid: u32| *difference.tables_to_home.get(&oid).unwrap_or(&oid);
        let code = &self.catalog.code;
        Renumbering { code, types: types_to_home, tables: tables_to_home }.fields(types, row)
    }

    /// Parameters of these types, as node 1 would be given them, as `node` is. What is malformed is left for it to refuse.
    pub fn arguments_there<'a>(
        &self,
        node: NodeId,
        types: &[u32],
        arguments: &'a Arguments,
    ) -> Cow<'a, Arguments> {
        let Some(difference) = self.oids.nodes.get(&node).filter(|it| !it.is_none()) else {
            return Cow::Borrowed(arguments);
        };
        let code = &self.catalog.code;
        let there = self.to(difference);
        let mut changed = Cow::Borrowed(arguments);
        for (index, oid) in types.iter().enumerate() {
            let Some(Some(value)) = arguments.values.get(index) else { continue };
            if arguments.format(index) != 1 || !code.says_numbers(*oid) {
                continue;
            }
            let mut value = value.to_vec();
            if there.value(*oid, &mut value).is_ok() {
                changed.to_mut().values[index] = Some(value.into());
            }
        }
        changed
    }

    /// A row of a COPY in binary format, as node 1 would be given it, as `node` is; `types` as from [`Self::numbered`]. What
    /// is malformed is left for it to refuse.
    pub fn fields_there(&self, node: NodeId, types: &[u32], row: &[u8]) -> Vec<u8> {
        let mut changed = row.to_vec();
        if let Some(difference) = self.oids.nodes.get(&node)
            && self.to(difference).fields(types, &mut changed).is_err()
        {
            changed.copy_from_slice(row);
        }
        changed
    }

    /// Of node 1's numbers another node's.
    fn to<'a>(
        &'a self,
        there: &'a Difference,
    ) -> Renumbering<'a, impl Fn(u32) -> (u32, u32), impl Fn(u32) -> u32> {
        let types = |oid: u32| (oid, *there.types_from_home.get(&oid).unwrap_or(&oid));
        let tables = |oid: u32| *there.tables_from_home.get(&oid).unwrap_or(&oid);
        Renumbering { code: &self.catalog.code, types, tables }
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
        maps.description_to_home(NodeId(2), &mut there, |_, _| ()).expect("it is well formed");
        assert_eq!(there, told);
        let end = there.len() - 1;
        assert!(maps.description_to_home(NodeId(2), &mut there[..end], |_, _| ()).is_err());
    }
}
