//! On which single node something runs, and whether it may write there.
//!
//! Owns: pins, of which the last are decided at Bind. Never: hashes a value.
//! Start reading at [`NodeChoice`].

use crate::catalog::MapId;
use crate::hash::{Bucket, KeyType, bucket_of_several};
use crate::shape::Hole;

/// What the statement does to the data of the nodes it runs on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Access {
    /// Reads only; its transaction needs no vote from the node.
    Read,
    /// May write (also: calls volatile functions that are not built in).
    Write,
}

/// A value that the distribution key is pinned to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum KeyValue {
    /// A literal, hashed at plan time (NULL too).
    Bucket(Bucket),
    /// The client's parameter with this index, counted from 0.
    Parameter(u16),
    /// The literal in this hole of the statement's shape. Only plans of shapes have it; what is
    /// executed comes from [`ShapePlan::resolve`](crate::planner::ShapePlan::resolve), which has put
    /// buckets there.
    Literal(Hole),
    /// Of a key of several columns, each one's.
    Several(Box<[Pin]>),
}

impl Pin {
    /// The pin of a key of several columns, from each one's.
    pub fn of_several(map: MapId, parts: Vec<Self>) -> Self {
        let bucket = |part: &Self| match part.value {
            KeyValue::Bucket(bucket) => Some(bucket),
            _ => None,
        };
        let value = match parts.iter().map(bucket).collect::<Option<Vec<_>>>() {
            Some(buckets) => KeyValue::Bucket(bucket_of_several(buckets)),
            None => KeyValue::Several(parts.into()),
        };
        // That of each is in its part.
        Self { map, key_type: KeyType::Int8, value, stored: None, ends: false }
    }

    /// The pins of single values that it is made of: itself, or those of a key's columns.
    pub fn parts(&self) -> &[Self] {
        match &self.value {
            KeyValue::Several(parts) => parts,
            _ => std::slice::from_ref(self),
        }
    }

    /// Its bucket, where `of` says that of a pin of a single value.
    pub fn bucket(&self, of: impl FnMut(&Self) -> Option<Bucket>) -> Option<Bucket> {
        match &self.value {
            KeyValue::Several(parts) => {
                Some(bucket_of_several(parts.iter().map(of).collect::<Option<Vec<_>>>()?))
            }
            _ => Some(self).and_then(of),
        }
    }
}

/// One value of one pinned distribution key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pin {
    /// The bucket map of the table it pins.
    pub map: MapId,
    /// How the value hashes; a parameter must have a type of the same family (or be text that is
    /// not typed yet), else the pin does not hold.
    pub key_type: KeyType,
    /// The value.
    pub value: KeyValue,
    /// The value will be stored in a column with this type modifier (-1: none), which may change
    /// it; `None`: it is compared with the key.
    pub stored: Option<i32>,
    /// Keys are less than the value: it stands for the last bucket of such. Only of a map of ranges.
    pub ends: bool,
}

/// Which single node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeChoice {
    /// Node 1 (catalogs, sequences, temporary tables, volatile things, locks on replicated rows).
    Home,
    /// Node 1, or any while that is away: it reads nothing that a node has of its own, and leaves nothing behind.
    Speaker,
    /// Any node will do; the executor prefers one that the transaction already uses.
    Any,
    /// The node on which all these values land. If they land on several, or one cannot be hashed,
    /// the plan's `otherwise` is used.
    Pinned(Vec<Pin>),
}
