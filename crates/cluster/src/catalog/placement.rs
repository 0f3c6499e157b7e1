//! Registering where the rows of a table are, as part of the DDL that creates it.
//!
//! Owns: what a clause asks for, and the rows of `tutti.placement`, `tutti.map`,
//! `tutti.bucket` and `tutti.change`.
//! Never: begins or ends a transaction: the caller is in one on every node, and makes the same
//! registration on each.
//! Start reading at [`register`]; which placement a new table gets is in `new_table`.

use std::ops::Range;
use tutti_link::connection::{NodeConnection, NodeError, Rows};
use tutti_link::seals::{Seals, digest};

use tutti_sql::catalog::{
    MapId, Maps, NodeId, Placement, Relation, Stage, quote_identifier, quote_literal,
};
use tutti_sql::hash::{Bucketing, KeyType, SEVERAL, Splits, sql_bucket_of_several};
use tutti_sql::plan::TableLock;
use tutti_sql::refusal::Refusal;
use tutti_sql::statement::DistributeBy;

use super::keys::{check_key, check_range_key, read_splits};
use super::maps::{map_of, map_of_nodes, map_of_ranges, map_of_several};
use super::rows::Answer;
use super::text_array::TextArray;
use crate::error::GatewayError;

/// Where a table's rows are placed, with the key by name: its attribute number may differ between
/// nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PlacementKind {
    /// Each row on the node of its key's bucket.
    Hash {
        /// The key column, as stored.
        key: String,
        /// The key's type.
        key_type: KeyType,
        /// The bucket map.
        map: MapId,
        /// How the map's buckets follow from keys.
        bucketing: Bucketing,
    },
    /// Each row on the node of the bucket that several columns' values have together.
    HashOfSeveral {
        /// The key columns, as stored, with their types; at least two.
        key: Vec<(String, KeyType)>,
        /// The bucket map, which is one by hash.
        map: MapId,
    },
    /// Each row on some one node.
    RoundRobin,
    /// Every node has all rows.
    Replicated,
    /// Each row is written on the node of its key's bucket, and carried to all others.
    Async {
        /// The key column, as stored.
        key: String,
        /// The key's type.
        key_type: KeyType,
        /// The bucket map.
        map: MapId,
        /// How far that has come.
        stage: Stage,
    },
    /// On node 1 alone.
    Home,
}

impl PlacementKind {
    /// The text in `tutti.placement.kind`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Hash { .. } | Self::HashOfSeveral { .. } => "hash",
            Self::RoundRobin => "round_robin",
            Self::Replicated => "replicated",
            Self::Async { stage, .. } => stage.as_kind(),
            Self::Home => "home",
        }
    }

    /// HASH by a key with the bucket map of the key type's family.
    pub fn hash(key: String, key_type: KeyType) -> Self {
        let bucketing = Bucketing::Hash;
        Self::Hash { key, key_type, map: map_of(key_type), bucketing }
    }

    /// An SQL expression for the bucket of a row of this placement; `None`: it has none. `row`: what qualifies its
    /// columns, with a dot.
    pub fn sql_bucket(&self, row: &str) -> Option<String> {
        let column = |key: &str| format!("{row}{}", quote_identifier(key));
        match self {
            Self::Hash { key, key_type, bucketing, .. } => {
                Some(bucketing.sql_bucket(*key_type, &column(key)))
            }
            Self::HashOfSeveral { key, .. } => {
                let columns: Vec<_> =
                    key.iter().map(|(name, key_type)| (*key_type, column(name))).collect();
                let columns = columns.iter().map(|(key_type, column)| (*key_type, column.as_str()));
                Some(sql_bucket_of_several(columns))
            }
            Self::RoundRobin | Self::Replicated | Self::Async { .. } | Self::Home => None,
        }
    }

    /// The bucket map of [`Self::sql_bucket`].
    pub fn map(&self) -> Option<MapId> {
        match self {
            Self::Hash { map, .. } | Self::HashOfSeveral { map, .. } => Some(*map),
            Self::RoundRobin | Self::Replicated | Self::Async { .. } | Self::Home => None,
        }
    }
}

/// A table and the placement to register it with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Registration {
    /// Schema, as stored.
    pub schema: String,
    /// Name, as stored.
    pub table: String,
    /// Where its rows are.
    pub placement: PlacementKind,
}

impl Registration {
    /// SQL for one node, for the owner of the schema `tutti`: the table's placement, and its bucket map
    /// if the node does not have it. What clients create is registered by [`register`].
    ///
    /// Idempotent. `nodes`: all nodes of the cluster, over which a new map is distributed evenly. Requires: not by
    /// several columns.
    pub fn sql(&self, nodes: &[NodeId]) -> String {
        let table_is = format!(
            "n.nspname OPERATOR(pg_catalog.=) {} AND c.relname OPERATOR(pg_catalog.=) {}",
            quote_literal(&self.schema),
            quote_literal(&self.table)
        );
        let (mut sql, key, map) = match &self.placement {
            PlacementKind::Hash { key, key_type, map, bucketing } => {
                (map_sql(*map, *key_type, bucketing, nodes), key.as_str(), map.0.to_string())
            }
            PlacementKind::Async { key, key_type, map, .. } => {
                let sql = map_sql(*map, *key_type, &Bucketing::Hash, nodes);
                (sql, key.as_str(), map.0.to_string())
            }
            _ => (String::new(), "", "NULL".to_owned()),
        };
        let has_key =
            matches!(self.placement, PlacementKind::Hash { .. } | PlacementKind::Async { .. });
        // A key that is missing becomes NULL, which the table's own CHECK refuses.
        sql.push_str(&format!(
            "INSERT INTO tutti.placement (relation, kind, key_attnum, key_type, key_typmod, map)
SELECT c.oid, '{}', a.attnum, a.atttypid, a.atttypmod, {map}::pg_catalog.int4
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
LEFT JOIN pg_catalog.pg_attribute a
    ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND {has_key} AND a.attname OPERATOR(pg_catalog.=) {} AND NOT a.attisdropped
WHERE {table_is}
ON CONFLICT (relation) DO UPDATE SET kind = excluded.kind, key_attnum = excluded.key_attnum,
    key_type = excluded.key_type, key_typmod = excluded.key_typmod, map = excluded.map,
    key_attnums = NULL, key_types = NULL, key_typmods = NULL, computed = NULL",
            self.placement.as_str(),
            quote_literal(key),
        ));
        sql
    }
}

/// Creates a bucket map that is missing. A second session waits for the first and finds the
/// same map: its content depends on the nodes only.
fn map_sql(map: MapId, key_type: KeyType, bucketing: &Bucketing, nodes: &[NodeId]) -> String {
    let splits = bucketing.splits().map_or("NULL".to_owned(), |it| quote_literal(&it.array()));
    let owners: Vec<_> =
        map_of_nodes(bucketing, nodes).nodes.iter().map(|node| node.0.to_string()).collect();
    format!(
        "INSERT INTO tutti.map (id, key_family, splits) VALUES ({0}, '{1}', {3}) ON CONFLICT DO NOTHING;
INSERT INTO tutti.bucket (map, bucket, node)
SELECT {0}, b.position OPERATOR(pg_catalog.-) 1, b.node
FROM pg_catalog.unnest('{{{2}}}'::pg_catalog.int4[]) WITH ORDINALITY AS b (node, position)
WHERE NOT EXISTS (SELECT FROM tutti.bucket WHERE map OPERATOR(pg_catalog.=) {0})
ON CONFLICT DO NOTHING;\n",
        map.0,
        key_type.family(),
        owners.join(","),
        splits
    )
}

/// Registers a table on one node, inside the transaction that is open there and under its role.
///
/// Errors: [`GatewayError::Refused`] (42P01) if the table is not on this node; the node's own: 42501
/// if the role could not ALTER it.
pub async fn register(
    connection: &mut NodeConnection,
    registration: &Registration,
    seals: &Seals,
) -> Result<(), GatewayError> {
    let (sql, seal) = register_sql(connection, registration, seals).await?;
    let rows = connection.query_with(&sql, vec![Some(seal.into())]).await?;
    check_registered(connection.node(), registration, &rows)
}

/// What [`register`] asks a node, and the seal, which is its parameter, so that no one else sees
/// it.
async fn register_sql(
    connection: &mut NodeConnection,
    registration: &Registration,
    seals: &Seals,
) -> Result<(String, String), NodeError> {
    let Registration { schema, table, placement } = registration;
    let several;
    let (key, map, family, splits) = match placement {
        PlacementKind::Hash { key, key_type, map, bucketing } => {
            let splits = bucketing.splits().map(Splits::array).unwrap_or_default();
            (key.as_str(), map.0, key_type.family(), splits)
        }
        PlacementKind::HashOfSeveral { key, map } => {
            let mut names = TextArray::default();
            key.iter().for_each(|(name, _)| names.push(name));
            several = names.finish();
            (several.as_str(), map.0, SEVERAL, String::new())
        }
        PlacementKind::Async { key, key_type, map, .. } => {
            (key.as_str(), map.0, key_type.family(), String::new())
        }
        _ => ("", 0, "", String::new()),
    };
    let map = map.to_string();
    let parts = [schema, table, placement.as_str(), key, &map, family, &splits];
    let seal = seals.seal(connection, &sealed_message("placement", &parts)).await?;
    let arguments: Vec<_> = [schema, table, placement.as_str(), key].map(quote_literal).into();
    let (arguments, splits) = (arguments.join(", "), quote_literal(&splits));
    Ok((format!("SELECT tutti.register({arguments}, {map}, '{family}', {splits}, $1)"), seal))
}

/// Whether a node's answer says that the table was there.
///
/// Errors: as [`register`].
fn check_registered(
    node: NodeId,
    registration: &Registration,
    rows: &Rows,
) -> Result<(), GatewayError> {
    let Registration { schema, table, .. } = registration;
    if (Answer { node, what: "a registration", rows }).boolean(0, 0)? {
        return Ok(());
    }
    let message = format!("relation \"{schema}.{table}\" does not exist on node {node}");
    Err(Refusal::postgres("42P01", message).into())
}

/// What is sealed: a word, and parts encoded unambiguously.
pub(super) fn sealed_message(word: &str, parts: &[&str]) -> String {
    let parts: String = parts.iter().map(|part| format!("{}:{part}", part.len())).collect();
    format!("{word} {parts}")
}

/// SQL that takes locks on one node, in this order, inside the transaction that is open there; and its
/// parameters, the seals. Requires: the connection knows its moment.
///
/// Its errors are the node's: 42501 if the role has no right at all on a table.
pub fn lock_tables_sql(
    connection: &NodeConnection,
    locks: &[TableLock],
    seals: &Seals,
) -> (String, Vec<String>) {
    let of_one = |(index, TableLock { schema, table, mode }): (usize, &TableLock)| {
        let parts = [schema.as_str(), table.as_str(), mode.as_sql()];
        let seal = seals.seal_now(connection, &sealed_message("lock", &parts));
        let [schema, table, mode] = parts.map(quote_literal);
        (format!("tutti.lock_table({schema}, {table}, {mode}, ${})", index + 1), seal)
    };
    let (calls, seals): (Vec<_>, Vec<_>) = locks.iter().enumerate().map(of_one).unzip();
    (format!("SELECT {}", calls.join(", ")), seals)
}

/// What is written of a replicated table's rows on a node.
#[derive(Clone, Copy, Debug)]
pub struct RowsOf<'a> {
    /// The table's schema.
    pub schema: &'a str,
    /// Its name.
    pub table: &'a str,
    /// What was done to the rows, as `tutti.write_rows` calls it.
    pub kind: &'a str,
}

impl RowsOf<'_> {
    /// The seal of these rows. Requires: the connection knows its moment.
    pub fn seal(&self, connection: &NodeConnection, rows: &str, seals: &Seals) -> String {
        let parts = [self.schema, self.table, self.kind, &digest(rows)];
        let message = sealed_message("write", &parts);
        seals.seal_now(connection, &message)
    }
}

/// SQL that reads all rows of a replicated table on one node, and its parameter, the seal. Requires:
/// the connection knows its moment.
pub fn table_rows_sql(
    connection: &NodeConnection,
    schema: &str,
    table: &str,
    seals: &Seals,
) -> (String, String) {
    let seal = seals.seal_now(connection, &sealed_message("rows", &[schema, table]));
    let [schema, table] = [schema, table].map(quote_literal);
    (format!("SELECT tutti.table_rows({schema}, {table}, $1)"), seal)
}

/// Removes the registrations of tables that no longer exist on this node.
pub async fn unregister_dropped(connection: &mut NodeConnection) -> Result<(), GatewayError> {
    connection.rows("SELECT tutti.forget_dropped()").await?;
    Ok(())
}

/// Increments the catalog's version when the transaction commits. Needed on node 1; done on all
/// nodes, it keeps them alike.
pub async fn note_change(connection: &mut NodeConnection) -> Result<(), GatewayError> {
    connection.rows("SELECT tutti.note_change()").await?;
    Ok(())
}

/// The placement that a clause asks for, after checking the key column on node 1.
pub async fn placement_of(
    home: &mut NodeConnection,
    oid: u32,
    wanted: &DistributeBy,
) -> Result<PlacementKind, GatewayError> {
    match wanted {
        DistributeBy::RoundRobin => Ok(PlacementKind::RoundRobin),
        DistributeBy::Replicated => Ok(PlacementKind::Replicated),
        DistributeBy::Home => Ok(PlacementKind::Home),
        DistributeBy::ReplicatedAsync => async_placement(home, oid, Stage::Pending).await,
        DistributeBy::Carried => async_placement(home, oid, Stage::Carried).await,
        DistributeBy::Ending => async_placement(home, oid, Stage::Ending).await,
        DistributeBy::Hash(column) => {
            let key_type = check_key(home, oid, column).await?;
            Ok(PlacementKind::hash(column.clone(), key_type))
        }
        DistributeBy::HashOfSeveral(columns) => {
            let mut key = Vec::with_capacity(columns.len());
            for column in columns {
                key.push((column.clone(), check_key(home, oid, column).await?));
            }
            Ok(PlacementKind::HashOfSeveral { key, map: map_of_several() })
        }
        DistributeBy::Range { column, splits } => {
            let key_type = check_range_key(home, oid, column).await?;
            let splits = read_splits(home, column, key_type, splits).await?;
            let map = map_of_ranges(&splits);
            let bucketing = Bucketing::Range(splits.into());
            Ok(PlacementKind::Hash { key: column.clone(), key_type, map, bucketing })
        }
    }
}

/// The name of a table, the first column of its primary key, and what it has, if anything, that rows which arrive by
/// logical replication would pass by (triggers, foreign keys) or be stopped by: there, functions find nothing by an
/// unqualified name, and what was sent by an old definition of a type is not of the new one.
///
/// A server applies rows as a superuser (PostgreSQL 15: as the owner of the subscription, who must be one), with
/// settings that are not the client's. So all that it evaluates must be by functions that are built in, or written in
/// C, and IMMUTABLE: others could become more than their table's owner is (also built-in ones, to which a query can be
/// given), or hold at home and not there. What an expression calls is read from its tree: built-in objects are in
/// no `pg_depend`.
const FACTS_OF_CARRYING: &str = r#"SELECT c.relname,
    (SELECT a.attname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
        ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid AND a.attnum OPERATOR(pg_catalog.=) i.indkey[0]
        WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisprimary AND i.indisvalid),
    facts.has
FROM pg_catalog.pg_class c CROSS JOIN LATERAL (
    WITH RECURSIVE parts AS (
        SELECT a.atttypid AS type FROM pg_catalog.pg_attribute a
            WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0::pg_catalog.int2
                AND NOT a.attisdropped
        UNION SELECT inner_type.type FROM parts w
            JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) w.type
            LEFT JOIN pg_catalog.pg_range r
                ON w.type OPERATOR(pg_catalog.=) ANY (ARRAY[r.rngtypid, r.rngmultitypid])
            CROSS JOIN LATERAL (SELECT t.typelem AS type UNION ALL SELECT t.typbasetype
                UNION ALL SELECT r.rngsubtype) AS inner_type
            WHERE inner_type.type OPERATOR(pg_catalog.<>) 0::pg_catalog.oid),
    printing AS (SELECT '{float4out,float8out,byteaout,interval_out,point_out,lseg_out,line_out,path_out,box_out,poly_out,circle_out,quote_ident,timezone}'::pg_catalog.name[] AS functions),
    code AS (
        SELECT k.conbin::pg_catalog.text AS tree FROM pg_catalog.pg_constraint k
            WHERE k.conrelid OPERATOR(pg_catalog.=) c.oid AND k.conbin IS NOT NULL
        UNION ALL SELECT e.adbin::pg_catalog.text FROM pg_catalog.pg_attrdef e JOIN pg_catalog.pg_attribute a
            ON a.attrelid OPERATOR(pg_catalog.=) e.adrelid AND a.attnum OPERATOR(pg_catalog.=) e.adnum
            WHERE e.adrelid OPERATOR(pg_catalog.=) c.oid AND a.attgenerated OPERATOR(pg_catalog.=) 's'
        UNION ALL SELECT pg_catalog.concat(i.indexprs::pg_catalog.text, ' ', i.indpred::pg_catalog.text)
            FROM pg_catalog.pg_index i WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid),
    used AS (
        SELECT code.tree, t.oid, t.typtype, t.typelem, i.provolatile OPERATOR(pg_catalog.=) 'i'
                AND o.provolatile OPERATOR(pg_catalog.=) 'i'
                -- These are declared to be, and obey settings that say how values are printed.
                AND o.proname OPERATOR(pg_catalog.<>) ALL (printing.functions) AS is_immutable
            FROM code CROSS JOIN LATERAL
                pg_catalog.regexp_matches(code.tree, ':[a-z_]*type(?:id)? ([0-9]+)', 'gi') AS found (it)
            JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) it[1]::pg_catalog.oid
            JOIN pg_catalog.pg_proc i ON i.oid OPERATOR(pg_catalog.=) t.typinput::pg_catalog.oid
            JOIN pg_catalog.pg_proc o ON o.oid OPERATOR(pg_catalog.=) t.typoutput::pg_catalog.oid
            CROSS JOIN printing)
    SELECT CASE WHEN c.relkind OPERATOR(pg_catalog.<>) 'r' OR c.relispartition
                OR EXISTS (SELECT FROM pg_catalog.pg_inherits h
                    WHERE c.oid OPERATOR(pg_catalog.=) ANY (ARRAY[h.inhrelid, h.inhparent])) THEN 'partitions, children or parents'
            WHEN c.relpersistence OPERATOR(pg_catalog.<>) 'p' THEN 'no durable rows (UNLOGGED)'
            WHEN c.relreplident OPERATOR(pg_catalog.<>) 'd' THEN 'another REPLICA IDENTITY than its primary key'
            WHEN c.relrowsecurity THEN 'row security'
            WHEN EXISTS (SELECT FROM pg_catalog.pg_trigger t
                WHERE t.tgrelid OPERATOR(pg_catalog.=) c.oid AND NOT t.tgisinternal) THEN 'triggers'
            WHEN EXISTS (SELECT FROM pg_catalog.pg_rewrite r WHERE r.ev_class OPERATOR(pg_catalog.=) c.oid) THEN 'rules'
            WHEN EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.contype OPERATOR(pg_catalog.=) 'f'
                AND c.oid OPERATOR(pg_catalog.=) ANY (ARRAY[k.conrelid, k.confrelid])) THEN 'foreign keys'
            WHEN EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid OPERATOR(pg_catalog.=) c.oid
                AND k.condeferrable) THEN 'deferrable constraints'
            WHEN EXISTS (SELECT FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) a.atttypid
                WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0::pg_catalog.int2
                    AND NOT a.attisdropped AND t.typtype OPERATOR(pg_catalog.=) 'd') THEN 'columns of domains'
            WHEN EXISTS (SELECT FROM parts w JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) w.type
                WHERE t.typtype OPERATOR(pg_catalog.=) ANY ('{c,d}'::pg_catalog."char"[]))
                THEN 'columns made of composite types or domains'
            WHEN EXISTS (SELECT FROM parts w WHERE w.type OPERATOR(pg_catalog.=) ANY
                    ('{regrole,aclitem}'::pg_catalog.regtype[]::pg_catalog.oid[]))
                THEN 'columns of roles, which other nodes know by other numbers'
            WHEN EXISTS (SELECT FROM parts w JOIN pg_catalog.pg_range r
                        ON w.type OPERATOR(pg_catalog.=) ANY (ARRAY[r.rngtypid, r.rngmultitypid])
                    JOIN pg_catalog.pg_proc f ON f.oid OPERATOR(pg_catalog.=) ANY (ARRAY[r.rngsubdiff::pg_catalog.oid, r.rngcanonical::pg_catalog.oid])
                    JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) f.prolang
                WHERE l.lanname OPERATOR(pg_catalog.<>) ALL ('{internal,c}'::pg_catalog.name[]))
                THEN 'columns of range types that call functions of users'
            WHEN EXISTS (SELECT FROM code CROSS JOIN LATERAL
                        pg_catalog.regexp_matches(code.tree, ':(funcid|opno) ([0-9]+)', 'g') AS called (it)
                    LEFT JOIN pg_catalog.pg_operator o ON it[1] OPERATOR(pg_catalog.=) 'opno'
                        AND o.oid OPERATOR(pg_catalog.=) it[2]::pg_catalog.oid
                    LEFT JOIN pg_catalog.pg_proc f ON f.oid OPERATOR(pg_catalog.=) CASE WHEN it[1] OPERATOR(pg_catalog.=) 'funcid'
                        THEN it[2]::pg_catalog.oid ELSE o.oprcode::pg_catalog.oid END
                    LEFT JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) f.prolang
                WHERE ((l.lanname OPERATOR(pg_catalog.=) ANY ('{internal,c}'::pg_catalog.name[])
                        OR f.oid OPERATOR(pg_catalog.<) 16384::pg_catalog.oid) AND f.provolatile OPERATOR(pg_catalog.=) 'i'
                        AND f.proname OPERATOR(pg_catalog.<>) ALL (SELECT pg_catalog.unnest(functions) FROM printing)) IS NOT TRUE)
                OR EXISTS (SELECT FROM code WHERE code.tree OPERATOR(pg_catalog.~) '[{](SQLVALUEFUNCTION|NEXTVALUEEXPR|XMLEXPR|COERCETODOMAIN)')
                OR EXISTS (SELECT FROM used w LEFT JOIN pg_catalog.pg_type e ON e.oid OPERATOR(pg_catalog.=) w.typelem
                WHERE w.typtype OPERATOR(pg_catalog.=) ANY ('{c,d}'::pg_catalog."char"[])
                    OR e.typtype OPERATOR(pg_catalog.=) ANY ('{c,d}'::pg_catalog."char"[])
                    OR w.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid
                        AND coalesce(e.typtype, w.typtype) OPERATOR(pg_catalog.<>) ALL ('{b,e}'::pg_catalog."char"[])
                    OR NOT w.is_immutable AND w.tree OPERATOR(pg_catalog.~) '[{]COERCEVIAIO')
                THEN 'checks, generated columns or indexes that call what users have written, or what is not IMMUTABLE'
        END AS has) AS facts
WHERE c.oid OPERATOR(pg_catalog.=) "#;

/// Of a table that is to be replicated asynchronously: by the first column of its primary key, and not carried
/// yet.
///
/// Errors: 0A000 for a table that has no primary key, or what would not be carried with its rows.
async fn async_placement(
    home: &mut NodeConnection,
    oid: u32,
    stage: Stage,
) -> Result<PlacementKind, GatewayError> {
    let rows = home.rows(&format!("{FACTS_OF_CARRYING}{oid}::pg_catalog.oid")).await?;
    let answer = Answer { node: home.node(), what: "a table to be carried", rows: &rows };
    let table = answer.text(0, 0)?;
    let refused = |why: &str, hint: &str| -> GatewayError {
        let message = format!("table \"{table}\" cannot be replicated asynchronously");
        Refusal::unsupported(message, why, hint).into()
    };
    if let Some(has) = answer.optional(0, 2) {
        return Err(refused(
            &format!(
                "It has {has}: rows that arrive by logical replication would pass these by, or be stopped by them."
            ),
            "Make it REPLICATED, or do without.",
        ));
    }
    let Some(key) = answer.optional(0, 1) else {
        return Err(refused(
            "It has no primary key, whose first column says where each row is written.",
            "Give it a primary key, or make it REPLICATED.",
        ));
    };
    let key = key.to_owned();
    let key_type = check_key(home, oid, &key).await?;
    Ok(PlacementKind::Async { key, key_type, map: map_of(key_type), stage })
}

/// Reads kind, key's name, key's type and map from four columns of the first of these rows; a key of several columns has
/// as many rows. `bucketing`: the map's.
pub(super) fn stored_placement(
    answer: &Answer<'_>,
    rows: Range<usize>,
    column: usize,
    bucketing: Bucketing,
) -> Result<PlacementKind, GatewayError> {
    let row = rows.start;
    let key_at = |row| -> Result<_, GatewayError> {
        let key_type = KeyType::from_oid(answer.number(row, column + 2)?);
        let key_type = key_type.ok_or_else(|| answer.unreadable())?;
        Ok((answer.text(row, column + 1)?.to_owned(), key_type))
    };
    let map = || Ok::<_, GatewayError>(MapId(answer.number(row, column + 3)?));
    Ok(match answer.optional(row, column) {
        None | Some("home") => PlacementKind::Home,
        Some("replicated") => PlacementKind::Replicated,
        Some("round_robin") => PlacementKind::RoundRobin,
        Some(kind) if let Some(stage) = Stage::of_kind(kind) => {
            let (key, key_type) = key_at(row)?;
            PlacementKind::Async { key, key_type, map: map()?, stage }
        }
        Some("hash") if 1 < rows.len() => {
            let key = rows.map(key_at).collect::<Result<_, _>>()?;
            PlacementKind::HashOfSeveral { key, map: map()? }
        }
        Some("hash") => {
            let (key, key_type) = key_at(row)?;
            PlacementKind::Hash { key, key_type, map: map()?, bucketing }
        }
        Some(_) => return Err(answer.unreadable()),
    })
}

/// The placement as the planner's catalog has it, with the key by name.
pub fn placement_in_catalog(relation: &Relation, maps: &Maps) -> PlacementKind {
    match &relation.placement {
        Placement::Hash { key, key_type, map } => PlacementKind::Hash {
            key: relation.columns[*key].name.clone(),
            key_type: *key_type,
            map: *map,
            bucketing: maps.get(map).map(|map| map.bucketing.clone()).unwrap_or_default(),
        },
        Placement::HashOfSeveral { key, map } => PlacementKind::HashOfSeveral {
            key: key
                .iter()
                .map(|it| (relation.columns[it.column].name.clone(), it.key_type))
                .collect(),
            map: *map,
        },
        Placement::RoundRobin => PlacementKind::RoundRobin,
        Placement::Replicated => PlacementKind::Replicated,
        Placement::Async { key, key_type, map, stage } => PlacementKind::Async {
            key: relation.columns[*key].name.clone(),
            key_type: *key_type,
            map: *map,
            stage: *stage,
        },
        Placement::Home => PlacementKind::Home,
    }
}
