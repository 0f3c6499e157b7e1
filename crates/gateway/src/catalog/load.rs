//! Reading the catalog: everything the planner knows, from node 1, in one round trip.
//!
//! Owns: the queries and how their answers become a [`Catalog`].
//! Never: caches; the caller keeps what it gets until the version grows.
//! Start reading at [`load()`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tutti_sql::catalog::{
    BucketMap, Catalog, Column, Function, Identity, MapId, NodeId, Placement, Relation,
    RelationKind,
};
use tutti_sql::closure::Code;
use tutti_sql::hash::{BUCKET_COUNT, KeyType};

use super::code;
use super::functions::{BuiltIns, fold, function_at, load_builtin_functions};
use super::rows::Answer;
use crate::error::GatewayError;
use crate::node::{NodeConnection, NodeError, Rows};

/// With no schema but its own in search_path PostgreSQL writes every name qualified when it prints
/// expressions. Temporary tables come last, for a client can give them any name. The setting is put back by the last statement, for connections that are inside a client's
/// transaction; elsewhere the whole string is one transaction, at whose end it is put back anyway.
const HIDE_SEARCH_PATH: &str = "SELECT pg_catalog.set_config('tutti.search_path',
    pg_catalog.current_setting('search_path'), true);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);";

const SHOW_SEARCH_PATH: &str = "SELECT pg_catalog.set_config('search_path',
    pg_catalog.current_setting('tutti.search_path'), true)";

const VERSION: &str = "SELECT coalesce(sum(weight), 0) FROM tutti.change;";
const NODES: &str = "SELECT id FROM tutti.node ORDER BY id;";
const MAPS: &str = "SELECT map, string_agg(node::text, ' ' ORDER BY bucket) FROM tutti.bucket
GROUP BY map ORDER BY map;";

/// What a client may name: not the system's schemas, not those of temporary objects, not ours.
const USER_SCHEMA: &str = "n.nspname <> ALL ('{pg_catalog,information_schema,pg_toast,tutti}')
    AND n.nspname !~ '^pg_(toast_)?temp_'";

fn relations() -> String {
    format!(
        "SELECT c.oid, n.nspname, c.relname, c.relkind,
    CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END,
    p.kind, p.key_attnum, p.map,
    (SELECT array_to_string(k.conkey, ' ') FROM pg_constraint k
     WHERE k.conrelid = c.oid AND k.contype = 'p')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN tutti.placement p ON p.relation = c.oid
WHERE c.relkind = ANY ('{{r,p,v,m,S,f}}') AND {USER_SCHEMA};"
    )
}

/// An array is written as its element type with brackets: `int4[]`, since `_int4` is nobody's idea
/// of a name. An identity column's default is the draw from its sequence, which for a partition may
/// belong to the root; `pg_get_serial_sequence` would ask for rights on the schema.
fn columns() -> String {
    format!(
        "SELECT a.attrelid, a.attnum, a.attname, a.atttypid,
    CASE WHEN e.oid IS NULL THEN format('%I.%I', tn.nspname, t.typname)
         ELSE format('%I.%I[]', en.nspname, e.typname) END,
    a.attnotnull,
    CASE WHEN a.attgenerated <> '' THEN NULL
         WHEN a.attidentity <> '' THEN (
            SELECT format('nextval(%L::regclass)', format('%I.%I', sn.nspname, s.relname))
            FROM pg_attribute o
            JOIN pg_depend k ON k.refclassid = 'pg_class'::regclass AND k.refobjid = o.attrelid
                AND k.refobjsubid = o.attnum AND k.classid = 'pg_class'::regclass
                AND k.deptype = 'i'
            JOIN pg_class s ON s.oid = k.objid AND s.relkind = 'S'
            JOIN pg_namespace sn ON sn.oid = s.relnamespace
            WHERE o.attrelid IN (c.oid, pg_partition_root(c.oid)) AND o.attname = a.attname
                AND NOT o.attisdropped
            ORDER BY o.attrelid <> c.oid LIMIT 1)
         ELSE coalesce(pg_get_expr(d.adbin, d.adrelid), pg_get_expr(t.typdefaultbin, 0)) END,
    a.attgenerated <> '', a.attidentity, t.typtype = 'd',
    format_type(a.atttypid, a.atttypmod), a.atttypmod
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_namespace tn ON tn.oid = t.typnamespace
LEFT JOIN pg_type e ON e.typarray = t.oid
LEFT JOIN pg_namespace en ON en.oid = e.typnamespace
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attnum > 0 AND NOT a.attisdropped
    AND c.relkind = ANY ('{{r,p,v,m,S,f}}') AND {USER_SCHEMA}
ORDER BY a.attrelid, a.attnum;"
    )
}

fn functions() -> String {
    format!(
        "SELECT p.oid, n.nspname, p.proname, p.provolatile, p.prokind, p.proretset
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE {USER_SCHEMA};"
    )
}

/// Operators and casts that run code which nobody has proven to look at its operands only: built-in
/// code has, and what somebody has written in C and calls immutable, as extensions do.
const UNPROVEN: &str = "SELECT o.oprname FROM pg_operator o
JOIN pg_proc p ON p.oid = o.oprcode JOIN pg_language l ON l.oid = p.prolang
WHERE o.oid >= 16384 AND NOT (l.lanname = ANY ('{c,internal}') AND p.provolatile = 'i')
UNION SELECT NULL FROM pg_cast k JOIN pg_proc p ON p.oid = k.castfunc
JOIN pg_language l ON l.oid = p.prolang
WHERE k.oid >= 16384 AND NOT (l.lanname = ANY ('{c,internal}') AND p.provolatile = 'i');";

/// Reads the catalog from node 1, as the transaction that `home` is in sees it (or as committed, if
/// it is in none). Leaves the connection's settings as they were.
///
/// Errors: [`GatewayError::NotInitialised`] without a schema `tutti`; a node's own error, after
/// which a transaction that was open is aborted.
pub async fn load(home: &mut NodeConnection) -> Result<Catalog, GatewayError> {
    let built_ins = load_builtin_functions(home).await?;
    load_with(home, built_ins, None).await
}

/// As [`load()`], but takes what no client can change from a catalog that was read before: much
/// cheaper, for after each DDL.
pub async fn reload(
    home: &mut NodeConnection,
    previous: &Catalog,
) -> Result<Catalog, GatewayError> {
    let mut catalog = {
        let built_ins = BuiltIns {
            functions: Arc::clone(&previous.builtin_functions),
            code: Arc::clone(previous.code.built_in()),
        };
        load_with(home, built_ins, Some(&previous.code)).await?
    };
    catalog.home_by_default = previous.home_by_default;
    Ok(catalog)
}

async fn load_with(
    home: &mut NodeConnection,
    built_ins: BuiltIns,
    previous: Option<&Code>,
) -> Result<Catalog, GatewayError> {
    let sql = [
        HIDE_SEARCH_PATH,
        VERSION,
        NODES,
        MAPS,
        &relations(),
        &columns(),
        &functions(),
        UNPROVEN,
        &code::queries(&built_ins.code),
        SHOW_SEARCH_PATH,
    ]
    .join("\n");
    let node = home.node();
    let results = home.query(&sql).await.map_err(|error| not_initialised(node, error))?;
    let results: [Rows; 10 + code::QUERIES] =
        results.try_into().map_err(|_| GatewayError::Unreadable { node, what: "the catalog" })?;
    let [_, _, version, nodes, maps, relations, columns, functions, unproven, code @ .., _] =
        &results;
    let answer = |what, rows| Answer { node, what, rows };

    let mut catalog = Catalog {
        version: answer("the catalog's version", version).number(0, 0)?,
        maps: read_maps(&answer("bucket maps", maps))?,
        builtin_functions: built_ins.functions,
        ..Catalog::default()
    };
    let unproven = answer("operators and casts", unproven);
    for row in 0..unproven.len() {
        match unproven.optional(row, 0) {
            Some(operator) => {
                catalog.unproven_operators.insert(operator.to_owned());
            }
            None => catalog.has_unproven_casts = true,
        }
    }
    let nodes = answer("nodes", nodes);
    for row in 0..nodes.len() {
        catalog.nodes.push(NodeId(nodes.number(row, 0)?));
    }
    let columns = read_columns(&answer("columns", columns))?;
    let relations = read_relations(&answer("relations", relations), columns)?;

    catalog.functions = read_functions(&answer("functions", functions))?;
    let code = code.each_ref().map(|rows| answer("code", rows));
    catalog.code = Arc::new(code::read(&code, previous, built_ins.code)?);
    for mut relation in relations.into_values() {
        relation.has_triggers = catalog.code.fires(relation.oid);
        catalog.is_spread |= relation.placement != Placement::Home;
        let schema = catalog.relations.entry(relation.schema.clone()).or_default();
        schema.insert(relation.name.clone(), Arc::new(relation));
    }
    Ok(catalog)
}

/// A missing table or schema means that nobody ran `tutti init`.
pub(crate) fn not_initialised(node: NodeId, error: NodeError) -> GatewayError {
    match &error {
        NodeError::Refused(fields) if matches!(fields.sqlstate(), "42P01" | "3F000") => {
            GatewayError::NotInitialised { node }
        }
        _ => error.into(),
    }
}

fn read_maps(answer: &Answer<'_>) -> Result<BTreeMap<MapId, BucketMap>, GatewayError> {
    let mut maps = BTreeMap::new();
    for row in 0..answer.len() {
        let nodes = answer.text(row, 1)?.split(' ');
        let nodes: Result<Vec<_>, _> = nodes.map(|id| id.parse().map(NodeId)).collect();
        let nodes = nodes.map_err(|_| answer.unreadable())?;
        if nodes.len() != usize::from(BUCKET_COUNT) {
            return Err(answer.unreadable());
        }
        maps.insert(MapId(answer.number(row, 0)?), BucketMap(nodes));
    }
    Ok(maps)
}

/// Columns with their attribute numbers, by relation.
type ColumnsOf = HashMap<u32, Vec<(i16, Column)>>;

fn read_columns(answer: &Answer<'_>) -> Result<ColumnsOf, GatewayError> {
    let mut columns = ColumnsOf::new();
    for row in 0..answer.len() {
        let column = Column {
            name: answer.text(row, 2)?.to_owned(),
            type_oid: answer.number(row, 3)?,
            type_name: answer.text(row, 4)?.to_owned(),
            not_null: answer.boolean(row, 5)?,
            default: answer.optional(row, 6).map(str::to_owned),
            generated: answer.boolean(row, 7)?,
            identity: match answer.text(row, 8)? {
                "a" => Some(Identity::Always),
                "d" => Some(Identity::ByDefault),
                _ => None,
            },
            domain: answer.boolean(row, 9)?,
            declared_type: answer.text(row, 10)?.to_owned(),
            type_modifier: answer.number(row, 11)?,
        };
        columns.entry(answer.number(row, 0)?).or_default().push((answer.number(row, 1)?, column));
    }
    Ok(columns)
}

fn read_relations(
    answer: &Answer<'_>,
    mut columns: ColumnsOf,
) -> Result<HashMap<u32, Relation>, GatewayError> {
    let mut relations = HashMap::with_capacity(answer.len());
    for row in 0..answer.len() {
        let oid = answer.number(row, 0)?;
        let columns = columns.remove(&oid).unwrap_or_default();
        let kind = match answer.text(row, 3)? {
            "r" | "p" => RelationKind::Table,
            "v" => {
                let definition = answer.text(row, 4)?.trim().trim_end_matches(';').to_owned();
                RelationKind::View { definition }
            }
            "m" => RelationKind::MaterializedView,
            "S" => RelationKind::Sequence,
            _ => RelationKind::Other,
        };
        let placement = read_placement(answer, row, &columns)?;
        let mut primary_key = Vec::new();
        for attnum in answer.optional(row, 8).into_iter().flat_map(|key| key.split(' ')) {
            let attnum: i16 = attnum.parse().map_err(|_| answer.unreadable())?;
            let position = columns.iter().position(|(found, _)| *found == attnum);
            primary_key.push(position.ok_or_else(|| answer.unreadable())?);
        }
        relations.insert(
            oid,
            Relation {
                schema: answer.text(row, 1)?.to_owned(),
                name: answer.text(row, 2)?.to_owned(),
                oid,
                kind,
                placement,
                columns: columns.into_iter().map(|(_, column)| column).collect(),
                primary_key,
                has_triggers: false,
            },
        );
    }
    Ok(relations)
}

fn read_placement(
    answer: &Answer<'_>,
    row: usize,
    columns: &[(i16, Column)],
) -> Result<Placement, GatewayError> {
    match answer.optional(row, 5) {
        None | Some("home") => Ok(Placement::Home),
        Some("replicated") => Ok(Placement::Replicated),
        Some("round_robin") => Ok(Placement::RoundRobin),
        Some("hash") => {
            let attnum: i16 = answer.number(row, 6)?;
            let key = columns.iter().position(|(found, _)| *found == attnum);
            let key = key.ok_or_else(|| answer.unreadable())?;
            let key_type = KeyType::from_oid(columns[key].1.type_oid);
            let key_type = key_type.ok_or_else(|| answer.unreadable())?;
            Ok(Placement::Hash { key, key_type, map: MapId(answer.number(row, 7)?) })
        }
        Some(_) => Err(answer.unreadable()),
    }
}

fn read_functions(
    answer: &Answer<'_>,
) -> Result<HashMap<String, HashMap<String, Function>>, GatewayError> {
    let mut functions: HashMap<String, HashMap<String, Function>> = HashMap::new();
    for row in 0..answer.len() {
        let function = function_at(answer, row, 3)?;
        let schema = functions.entry(answer.text(row, 1)?.to_owned()).or_default();
        fold(schema, answer.text(row, 2)?, function);
    }
    Ok(functions)
}
