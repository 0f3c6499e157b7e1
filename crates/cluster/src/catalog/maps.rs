//! The bucket maps that tables get: their numbers, which node has which bucket, and how they are read.
//!
//! Owns: that two sessions which need a map at the same time make the same one.
//! Never: asks or tells a node (`schema` says how the maps are stored, `placement` registers them).
//! Start reading at [`map_by`].

use tutti_sql::catalog::{BucketMap, MapId, NodeId};
use tutti_sql::hash::{BUCKET_COUNT, Bucket, Bucketing, KeyType, SEVERAL, Splits};

/// The bucket map that tables with keys of this type get: each type family has its own,
/// whose id is the same on all clusters, so that two sessions that need it first agree on it.
pub fn map_of(key_type: KeyType) -> MapId {
    map_of_family(key_type.family())
}

/// The same of keys of several columns: they share one, for their buckets say nothing of their types.
pub fn map_of_several() -> MapId {
    map_of_family(SEVERAL)
}

fn map_of_family(family: &str) -> MapId {
    // Ids are stored: append only.
    const FAMILIES: [&str; 14] = [
        "integer",
        "text",
        "uuid",
        "numeric",
        "float",
        "boolean",
        "oid",
        "character",
        "bytea",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        SEVERAL,
    ];
    let position = FAMILIES.iter().position(|known| *known == family);
    let position = position.expect("every family of KeyType is in the list, a test checks it");
    MapId(u32::try_from(position).expect("a short list") + 1)
}

/// The map of these ranges: its id is the same on all clusters, and beyond those of [`map_of`]. Whoever registers it
/// refuses, should other ranges have the id.
pub fn map_of_ranges(splits: &Splits) -> MapId {
    const FIRST: u32 = 1 << 30;
    MapId(FIRST | (splits.fingerprint() % u64::from(FIRST)) as u32)
}

/// The map that tables get whose keys of this type have their buckets so; `None`: these ranges are of other types.
pub fn map_by(bucketing: &Bucketing, key_type: KeyType) -> Option<MapId> {
    match bucketing {
        Bucketing::Hash => Some(map_of(key_type)),
        Bucketing::Range(splits) => {
            (splits.family() == key_type.family()).then(|| map_of_ranges(splits))
        }
    }
}

/// The node of a bucket where they are distributed over the nodes in equal, contiguous parts.
pub fn even_node(nodes: &[NodeId], bucket: Bucket) -> NodeId {
    nodes[usize::from(bucket.0) * nodes.len() / usize::from(BUCKET_COUNT)]
}

/// All buckets distributed so.
pub fn even_map(nodes: &[NodeId]) -> BucketMap {
    BucketMap::by_hash((0..BUCKET_COUNT).map(|it| even_node(nodes, Bucket(it))).collect())
}

/// The same for ranges; the buckets that are none are as those of a hash.
pub fn map_of_nodes(bucketing: &Bucketing, nodes: &[NodeId]) -> BucketMap {
    let mut map = even_map(nodes);
    if let Some(splits) = bucketing.splits() {
        let ranges = usize::from(splits.range_count());
        for (range, node) in map.nodes.iter_mut().take(ranges).enumerate() {
            *node = nodes[range * nodes.len() / ranges];
        }
    }
    map.bucketing = bucketing.clone();
    map
}

/// SQL for the split values of `tutti.map m`, which [`read_bucketing`] reads.
pub const SPLITS_SQL: &str = "(SELECT pg_catalog.string_agg(pg_catalog.encode(pg_catalog.convert_to(u.split, 'UTF8'), 'hex'), ' ' \
     ORDER BY u.place) FROM pg_catalog.unnest(m.splits) WITH ORDINALITY AS u (split, place))";

/// Reads a map's family and [`SPLITS_SQL`]; `None` if they are not readable.
pub fn read_bucketing(family: &str, splits: Option<&str>) -> Option<Bucketing> {
    let Some(splits) = splits else { return Some(Bucketing::Hash) };
    let texts = splits.split(' ').map(text_of_hex).collect::<Option<Vec<_>>>()?;
    Some(Bucketing::Range(Splits::new(family, texts).ok()?.into()))
}

/// The text whose bytes are these pairs of hexadecimal digits; `None` if it is none.
pub fn text_of_hex(digits: &str) -> Option<String> {
    let bytes = digits.as_bytes().chunks(2).map(|pair| {
        let digits = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(digits, 16).ok()
    });
    String::from_utf8(bytes.collect::<Option<Vec<_>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn each_family_has_one_map_of_its_own() {
        let mut family_of_map = BTreeMap::new();
        for key_type in KeyType::ALL {
            let family = family_of_map.entry(map_of(key_type)).or_insert(key_type.family());
            assert_eq!(*family, key_type.family());
        }
        let families: BTreeSet<_> = KeyType::ALL.into_iter().map(KeyType::family).collect();
        assert_eq!(family_of_map.len(), families.len());
    }

    #[test]
    fn buckets_are_dealt_out_evenly() {
        for count in 1..=7_u16 {
            let nodes: Vec<_> = (1..=count).map(NodeId).collect();
            let map = even_map(&nodes);
            for node in &nodes {
                let share = map.nodes.iter().filter(|owner| *owner == node).count();
                assert!(share.abs_diff(1024 / usize::from(count)) <= 1, "{share} of 1024");
            }
        }
    }

    fn ranges(texts: &[&str]) -> Bucketing {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        Bucketing::Range(Splits::new("text", texts).expect("splits").into())
    }

    #[test]
    fn ranges_are_given_to_the_nodes_in_order() {
        let nodes: Vec<_> = (1..=3).map(NodeId).collect();
        let owners = |texts: &[&str]| {
            let map = map_of_nodes(&ranges(texts), &nodes);
            assert_eq!(map.nodes.len(), usize::from(BUCKET_COUNT));
            map.nodes_of_keys().iter().map(|node| node.0).collect::<Vec<_>>()
        };
        assert_eq!(owners(&["a"]), [1, 2]);
        assert_eq!(owners(&["a", "b"]), [1, 2, 3]);
        assert_eq!(owners(&["a", "b", "c", "d", "e", "f"]), [1, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn equal_ranges_of_kindred_types_have_one_map() {
        let by = ranges(&["a", "b"]);
        let map = map_by(&by, KeyType::Text);
        assert!(map.is_some_and(|map| 1 << 30 <= map.0 && i32::try_from(map.0).is_ok()));
        assert_eq!(map_by(&by, KeyType::Varchar), map);
        assert_eq!(map_by(&by, KeyType::Int4), None);
        assert_ne!(map_by(&ranges(&["a", "c"]), KeyType::Text), map);
        assert_ne!(map_by(&ranges(&["ab"]), KeyType::Text), map);
    }

    #[test]
    fn split_values_are_read_as_they_were_written() {
        let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        for texts in [&["", "é \"'\\,{}"][..], &[""], &["a"]] {
            let told = texts.iter().map(|text| hex(text)).collect::<Vec<_>>().join(" ");
            assert_eq!(read_bucketing("text", Some(&told)), Some(ranges(texts)));
        }
        assert_eq!(read_bucketing("text", None), Some(Bucketing::Hash));
        assert_eq!(read_bucketing("text", Some("zz")), None);
        assert_eq!(read_bucketing("text", Some("62 61")), None, "not ascending");
    }
}
