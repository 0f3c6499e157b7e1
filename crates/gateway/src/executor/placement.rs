//! From key values to nodes.
//!
//! Owns: hashing bound parameters and rows' keys by the catalog's maps.
//! Never: guesses: a value that cannot be hashed here has no node here.

use tutti_sql::catalog::{Catalog, MapId, NodeId};
use tutti_sql::hash::{Bucket, CannotHash, KeyType};
use tutti_sql::plan::{KeyValue, Pin};

use super::call::Call;

/// `unknown`: a literal whose type the server has not settled yet.
const UNKNOWN_OID: u32 = 705;

/// The node on which the rows with this key value are; `None` if that cannot be told here.
pub(super) fn node_of_pin(catalog: &Catalog, pin: &Pin, call: &Call) -> Option<NodeId> {
    let bucket = match &pin.value {
        KeyValue::Bucket(bucket) => *bucket,
        KeyValue::Parameter(index) => bucket_of_parameter(pin.key_type, *index, call)?,
    };
    node_of_bucket(catalog, pin.map, bucket)
}

/// The node that holds a bucket of a map.
pub(super) fn node_of_bucket(catalog: &Catalog, map: MapId, bucket: Bucket) -> Option<NodeId> {
    Some(catalog.maps.get(&map)?.node(bucket))
}

fn bucket_of_parameter(key_type: KeyType, index: u16, call: &Call) -> Option<Bucket> {
    let Call::Extended { types, arguments } = call else { return None };
    let index = usize::from(index);
    let Some(value) = arguments.values.get(index)? else { return Some(Bucket(0)) };
    // An open type is inferred by the server from the comparison with the key: it is the key's.
    let given = match types.get(index).copied().unwrap_or(0) {
        0 | UNKNOWN_OID => key_type,
        oid => KeyType::from_oid(oid).filter(|given| given.family() == key_type.family())?,
    };
    let hashed = if arguments.format(index) == 1 {
        given.bucket_of_binary(value)
    } else {
        given.bucket_of_text(std::str::from_utf8(value).ok()?)
    };
    hashed.ok()
}

/// The bucket of a key value in text form as a node gave it; NULL has bucket 0.
pub(super) fn bucket_of_value(
    key_type: KeyType,
    value: Option<&str>,
) -> Result<Bucket, CannotHash> {
    value.map_or(Ok(Bucket(0)), |value| key_type.bucket_of_text(value))
}
