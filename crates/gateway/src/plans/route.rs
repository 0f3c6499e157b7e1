//! From key values to nodes.
//!
//! Owns: hashing bound parameters and rows' keys by the catalog's maps.
//! Never: guesses: a value that cannot be hashed here has no node here.

use tutti_sql::catalog::{Catalog, MapId, NodeId};
use tutti_sql::hash::{Bucket, CannotHash, KeyType};
use tutti_sql::plan::{KeyValue, Pin};

use super::request::Call;

/// `unknown`: a literal whose type the server has not settled yet.
const UNKNOWN_OID: u32 = 705;

/// The node on which the rows with this key value are; `None` if that cannot be told here.
pub(crate) fn node_of_pin(catalog: &Catalog, pin: &Pin, call: &Call) -> Option<NodeId> {
    let bucket = match &pin.value {
        KeyValue::Bucket(bucket) => *bucket,
        KeyValue::Parameter(index) => bucket_of_parameter(pin, *index, call)?,
        // Only in plans of shapes, which are not executed themselves.
        KeyValue::Literal(_) => return None,
    };
    node_of_bucket(catalog, pin.map, bucket)
}

/// The node that holds a bucket of a map.
pub(crate) fn node_of_bucket(catalog: &Catalog, map: MapId, bucket: Bucket) -> Option<NodeId> {
    Some(catalog.maps.get(&map)?.node(bucket))
}

fn bucket_of_parameter(pin: &Pin, index: u16, call: &Call) -> Option<Bucket> {
    let Call::Extended { types, arguments } = call.client() else { return None };
    let index = usize::from(index);
    let value = arguments.values.get(index)?.as_deref();
    bucket_of_bound(pin, types.get(index).copied(), arguments.format(index), value)
}

/// The bucket of a bound value; `None` if it cannot be told here. Type 0 or none: nobody has said one.
pub(crate) fn bucket_of_bound(
    pin: &Pin,
    type_oid: Option<u32>,
    format: i16,
    value: Option<&[u8]>,
) -> Option<Bucket> {
    let key_type = pin.key_type;
    let Some(value) = value else { return Some(Bucket::OF_NULL) };
    // An open type is inferred by the server from the comparison with the key: it is the key's.
    let given = match type_oid.unwrap_or(0) {
        0 | UNKNOWN_OID => key_type,
        oid => KeyType::from_oid(oid).filter(|given| given.family() == key_type.family())?,
    };
    let hashed = match (format == 1, pin.stored) {
        (true, None) => given.bucket_of_binary(value),
        (false, None) => given.bucket_of_text(std::str::from_utf8(value).ok()?),
        // The value becomes the column's: an int8 stored in an int4 column, say.
        (true, Some(modifier)) => given.bucket_of_stored_binary(value, modifier),
        (false, Some(modifier)) => {
            given.bucket_of_stored_text(std::str::from_utf8(value).ok()?, modifier)
        }
    };
    hashed.ok()
}

/// The bucket of a key in text form that is about to be stored in a column with this modifier; NULL
/// has bucket 0.
pub(crate) fn bucket_of_value(
    key_type: KeyType,
    modifier: i32,
    value: Option<&str>,
) -> Result<Bucket, CannotHash> {
    value.map_or(Ok(Bucket::OF_NULL), |value| key_type.bucket_of_stored_text(value, modifier))
}
