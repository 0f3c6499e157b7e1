//! The schema `tutti`, as it is on every node.
//!
//! Owns: its tables, who may touch them, and the version of their shape.
//! Never: runs anything; `init` does.
//!
//! Every node has the whole schema, so that any of them can answer for the cluster and a node that
//! comes back knows who it is. It is changed only inside the global transaction of the DDL that it
//! describes.

use tutti_sql::catalog::{BucketMap, MapId, NodeId};
use tutti_sql::hash::{BUCKET_COUNT, KeyType};

/// Creates the schema where it is missing. Runs as one transaction, and again without effect.
///
/// Whoever may create a table through the gateway must be able to register it, and whoever writes on
/// several nodes to record a decision: nodes see these statements from the client's own role. So
/// PUBLIC may write these tables, and a client that means harm can damage the catalog until roles
/// are separated (the gateway in front of production is an issue of its own).
pub const CREATE_SCHEMA: &str = "
SET client_min_messages = warning;
SELECT pg_catalog.pg_advisory_xact_lock(8390880220001);
CREATE SCHEMA IF NOT EXISTS tutti;
GRANT USAGE ON SCHEMA tutti TO PUBLIC;
COMMENT ON SCHEMA tutti IS 'Tutti: which rows live on which node, and what was decided about transactions over several nodes. Changed by the gateway only.';

CREATE TABLE IF NOT EXISTS tutti.cluster (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    name text NOT NULL,
    id uuid NOT NULL,
    node integer NOT NULL CHECK (node BETWEEN 1 AND 65535)
);
COMMENT ON TABLE tutti.cluster IS 'Who this server is: its cluster and its number there. Gateways refuse a server that is somebody else.';

CREATE TABLE IF NOT EXISTS tutti.node (
    id integer PRIMARY KEY CHECK (id BETWEEN 1 AND 65535)
);
COMMENT ON TABLE tutti.node IS 'The nodes of the cluster. Their addresses are in the configuration of each gateway.';

CREATE TABLE IF NOT EXISTS tutti.map (
    id integer PRIMARY KEY,
    key_family text NOT NULL
);
COMMENT ON TABLE tutti.map IS 'Bucket maps. Tables with the same map are colocated: equal keys are on one node.';

CREATE TABLE IF NOT EXISTS tutti.bucket (
    map integer NOT NULL REFERENCES tutti.map,
    bucket integer NOT NULL CHECK (bucket BETWEEN 0 AND 1023),
    node integer NOT NULL REFERENCES tutti.node,
    PRIMARY KEY (map, bucket)
);
COMMENT ON TABLE tutti.bucket IS 'Which node holds which of the 1024 slices of the hash space, per map.';

CREATE TABLE IF NOT EXISTS tutti.placement (
    relation oid PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('hash', 'round_robin', 'replicated', 'home')),
    key_attnum smallint,
    key_type oid,
    key_typmod integer,
    map integer REFERENCES tutti.map,
    CHECK ((kind = 'hash') = (key_attnum IS NOT NULL)),
    CHECK ((kind = 'hash') = (key_type IS NOT NULL)),
    CHECK ((kind = 'hash') = (key_typmod IS NOT NULL)),
    CHECK ((kind = 'hash') = (map IS NOT NULL))
);
COMMENT ON TABLE tutti.placement IS 'Where the rows of each table are. Tables are named by their oid on this server, keys by their attribute number, so that renaming needs no change here. Tables that are missing count as kind home: node 1 has all that matters.';
COMMENT ON COLUMN tutti.placement.key_type IS 'Type of the key when it was registered: changing it would leave rows where nobody looks.';

CREATE TABLE IF NOT EXISTS tutti.change (
    weight bigint NOT NULL DEFAULT 1
);
COMMENT ON TABLE tutti.change IS 'One row per change of the schema or of a placement; the sum is the version of the catalog. Rows are added, never updated, so that two changes do not wait for each other.';

CREATE TABLE IF NOT EXISTS tutti.decision (
    gid text PRIMARY KEY,
    decision text NOT NULL CHECK (decision IN ('committed', 'aborted')),
    at timestamptz NOT NULL DEFAULT pg_catalog.now()
);
COMMENT ON TABLE tutti.decision IS 'What was decided about global transactions whose anchor is this node. The primary key is the arbitration: whoever inserts first decides. Removed when no node needs it any more.';

CREATE UNLOGGED TABLE IF NOT EXISTS tutti.ticket (
    gid text NOT NULL
);
COMMENT ON TABLE tutti.ticket IS 'Every SERIALIZABLE transaction over several nodes inserts a row on each of them, which conflicts with the sentinel that has read the table. Rows say nothing and are removed by and by.';

CREATE SEQUENCE IF NOT EXISTS tutti.incarnation;
COMMENT ON SEQUENCE tutti.incarnation IS 'Drawn on node 1 by every gateway when it starts; part of the identifiers of its transactions.';

GRANT SELECT ON ALL TABLES IN SCHEMA tutti TO PUBLIC;
GRANT INSERT ON tutti.decision, tutti.ticket, tutti.change, tutti.map, tutti.bucket TO PUBLIC;
GRANT INSERT, UPDATE, DELETE ON tutti.placement TO PUBLIC;
";

/// The bucket map that tables with keys of this type get: each family of types has one of its own,
/// whose id is the same on all clusters, so that two sessions that need it first agree on it.
pub fn map_of(key_type: KeyType) -> MapId {
    // Ids are stored: append only.
    const FAMILIES: [&str; 13] = [
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
    ];
    let position = FAMILIES.iter().position(|family| *family == key_type.family());
    let position = position.expect("every family of KeyType is in the list, a test checks it");
    MapId(u32::try_from(position).expect("a short list") + 1)
}

/// Buckets dealt out to the nodes in equal, contiguous ranges.
pub fn even_map(nodes: &[NodeId]) -> BucketMap {
    let node_of =
        |bucket: u16| nodes[usize::from(bucket) * nodes.len() / usize::from(BUCKET_COUNT)];
    BucketMap((0..BUCKET_COUNT).map(node_of).collect())
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
                let share = map.0.iter().filter(|owner| *owner == node).count();
                assert!(share.abs_diff(1024 / usize::from(count)) <= 1, "{share} of 1024");
            }
        }
    }
}
