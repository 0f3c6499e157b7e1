//! From key values to nodes.
//!
//! Owns: hashing bound parameters and rows' keys by the catalog's maps, and that several keys must agree on
//! one node.
//! Never: guesses: for a value that cannot be hashed here, it names no node.

use tutti_sql::catalog::{Catalog, MapId, NodeId};
use tutti_sql::hash::{Bucket, Bucketing, CannotHash, KeyType};
use tutti_sql::plan::{KeyValue, NodeChoice, Pin};
use tutti_sql::planner::OneNode;

use super::request::Call;

/// `unknown`: a literal whose type the server has not resolved yet.
const UNKNOWN_OID: u32 = 705;

/// What a client has bound to a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundParameter<'a> {
    /// 0 or none: not specified.
    pub(crate) type_oid: Option<u32>,
    /// 0: text; 1: binary.
    pub(crate) format: i16,
    /// None: NULL.
    pub(crate) value: Option<&'a [u8]>,
}

/// The node that a one-node statement runs on; `None` if its pins do not agree, or if one cannot be
/// evaluated here. `bound`: the parameter at a position.
pub(crate) fn one_node<'a>(
    catalog: &Catalog,
    choice: &NodeChoice,
    bound: impl Fn(usize) -> Option<BoundParameter<'a>>,
) -> Option<OneNode> {
    let pins = match choice {
        NodeChoice::Home => return Some(OneNode::At(NodeId::HOME)),
        NodeChoice::Speaker => return Some(OneNode::Speaker),
        NodeChoice::Any => return Some(OneNode::Any),
        NodeChoice::Pinned(pins) => pins,
    };
    let mut agreed = OneNode::Any;
    for pin in pins {
        let node = OneNode::At(node_of_pin(catalog, pin, &bound)?);
        if agreed != OneNode::Any && agreed != node {
            return None;
        }
        agreed = node;
    }
    Some(agreed)
}

/// The node on which the rows with this key value are; `None` if that cannot be determined here.
pub(crate) fn node_of_pin<'a>(
    catalog: &Catalog,
    pin: &Pin,
    bound: impl Fn(usize) -> Option<BoundParameter<'a>>,
) -> Option<NodeId> {
    let map = catalog.maps.get(&pin.map)?;
    let bucket = pin.bucket(|part| match &part.value {
        KeyValue::Bucket(bucket) => Some(*bucket),
        KeyValue::Parameter(index) => {
            bucket_of_bound(&map.bucketing, part, bound(usize::from(*index))?)
        }
        // Only in plans of shapes, which are not executed themselves; or never in a part.
        KeyValue::Literal(_) | KeyValue::Several(_) => None,
    })?;
    Some(map.node(bucket))
}

/// The node that holds a bucket of a map.
pub(crate) fn node_of_bucket(catalog: &Catalog, map: MapId, bucket: Bucket) -> Option<NodeId> {
    Some(catalog.maps.get(&map)?.node(bucket))
}

/// The parameter at a position of what a client has sent.
pub(crate) fn parameter(call: &Call, index: usize) -> Option<BoundParameter<'_>> {
    let Call::Extended { types, arguments } = call.client() else { return None };
    let value = arguments.values.get(index)?.as_deref();
    Some(BoundParameter {
        type_oid: types.get(index).copied(),
        format: arguments.format(index),
        value,
    })
}

/// The bucket of a bound value; `None` if it cannot be determined here.
fn bucket_of_bound(bucketing: &Bucketing, pin: &Pin, bound: BoundParameter<'_>) -> Option<Bucket> {
    let BoundParameter { type_oid, format, value } = bound;
    let key_type = pin.key_type;
    let Some(value) = value else { return Some(Bucket::OF_NULL) };
    // An open type is inferred by the server from the comparison with the key: it is the key's.
    let given = match type_oid.unwrap_or(0) {
        0 | UNKNOWN_OID => key_type,
        oid => KeyType::from_oid(oid).filter(|given| given.family() == key_type.family())?,
    };
    let hashed = match (format == 1, pin.stored) {
        (true, None) if pin.ends => bucketing.bucket_before_binary(given, value),
        (true, None) => bucketing.bucket_of_binary(given, value),
        (false, None) if pin.ends => {
            bucketing.bucket_before_text(given, std::str::from_utf8(value).ok()?)
        }
        (false, None) => bucketing.bucket_of_text(given, std::str::from_utf8(value).ok()?),
        // The value is converted to the column's type, such as a text stored in a varchar(3)
        // column.
        (true, Some(modifier)) => {
            bucketing.bucket_of_stored_binary(given, value, key_type, modifier)
        }
        (false, Some(modifier)) => {
            let text = std::str::from_utf8(value).ok()?;
            bucketing.bucket_of_stored_text(given, text, key_type, modifier)
        }
    };
    hashed.ok()
}

/// The bucket of a key in text form that is about to be stored in a column with this modifier; NULL
/// has bucket 0.
pub(crate) fn bucket_of_value(
    bucketing: &Bucketing,
    key_type: KeyType,
    modifier: i32,
    value: Option<&str>,
) -> Result<Bucket, CannotHash> {
    let bucket = |value| bucketing.bucket_of_stored_text(key_type, value, key_type, modifier);
    value.map_or(Ok(Bucket::OF_NULL), bucket)
}
