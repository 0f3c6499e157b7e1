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
use tutti_sql::hash::{BUCKET_COUNT, KeyType};

use super::functions::{Taint, Taints, fold, function_at, load_builtin_functions};
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

pub(super) fn functions() -> String {
    format!(
        "SELECT p.oid, n.nspname, p.proname, p.provolatile, p.prokind, p.proretset,
    CASE WHEN l.lanname <> ALL ('{{c,internal}}')
         THEN coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) END
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
JOIN pg_language l ON l.oid = p.prolang
WHERE {USER_SCHEMA};"
    )
}

/// Both relations and functions that views use.
pub(super) const VIEW_USES: &str = "SELECT DISTINCT r.ev_class, d.refobjid
FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
WHERE c.relkind = ANY ('{v,m}') AND r.ev_type = '1' AND d.refobjid <> r.ev_class
    AND d.refclassid = ANY (ARRAY['pg_class'::regclass, 'pg_proc'::regclass]::oid[])
    AND c.oid >= 16384;";

const TRIGGERS: &str = "SELECT t.tgrelid, t.tgname, t.tgfoid FROM pg_trigger t
WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' ORDER BY t.tgname;";

const RULES: &str = "SELECT r.ev_class, r.rulename, pg_get_ruledef(r.oid) FROM pg_rewrite r
WHERE r.ev_type <> '1' AND r.ev_class >= 16384 AND r.ev_enabled <> 'D' ORDER BY r.rulename;";

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
    let builtin_functions = load_builtin_functions(home).await?;
    load_with(home, builtin_functions).await
}

/// As [`load()`], but takes what no client can change from a catalog that was read before: much
/// cheaper, for after each DDL.
pub async fn reload(
    home: &mut NodeConnection,
    previous: &Catalog,
) -> Result<Catalog, GatewayError> {
    let mut catalog = load_with(home, Arc::clone(&previous.builtin_functions)).await?;
    catalog.home_by_default = previous.home_by_default;
    Ok(catalog)
}

async fn load_with(
    home: &mut NodeConnection,
    builtin_functions: Arc<HashMap<String, Function>>,
) -> Result<Catalog, GatewayError> {
    let sql = [
        HIDE_SEARCH_PATH,
        VERSION,
        NODES,
        MAPS,
        &relations(),
        &columns(),
        &functions(),
        VIEW_USES,
        TRIGGERS,
        RULES,
        UNPROVEN,
        SHOW_SEARCH_PATH,
    ]
    .join("\n");
    let node = home.node();
    let results = home.query(&sql).await.map_err(|error| not_initialised(node, error))?;
    let results: [Rows; 13] =
        results.try_into().map_err(|_| GatewayError::Unreadable { node, what: "the catalog" })?;
    let [
        _,
        _,
        version,
        nodes,
        maps,
        relations,
        columns,
        functions,
        uses,
        triggers,
        rules,
        unproven,
        _,
    ] = &results;
    let answer = |what, rows| Answer { node, what, rows };

    let mut catalog = Catalog {
        version: answer("the catalog's version", version).number(0, 0)?,
        maps: read_maps(&answer("bucket maps", maps))?,
        builtin_functions,
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
    let mut relations = read_relations(&answer("relations", relations), columns)?;

    let taints =
        read_taints(&relations, &answer("functions", functions), &answer("what views use", uses))?;
    catalog.functions = read_functions(&answer("functions", functions), &taints)?;
    mark_triggers(&mut relations, &answer("triggers", triggers), |oid_text| {
        Ok(taints.of(oid_text.parse().map_err(|_| answer("triggers", triggers).unreadable())?))
    })?;
    mark_triggers(&mut relations, &answer("rules", rules), |text| Ok(taints.of_text(text)))?;
    for relation in relations.into_values() {
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
                unsafe_trigger: None,
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

fn read_taints(
    relations: &HashMap<u32, Relation>,
    functions: &Answer<'_>,
    uses: &Answer<'_>,
) -> Result<Taints, GatewayError> {
    let mut taints = Taints::new();
    for relation in relations.values() {
        taints.add_relation(relation.oid, &relation.name, &relation.kind, &relation.placement);
    }
    for row in 0..uses.len() {
        taints.add_use(uses.number(row, 0)?, uses.number(row, 1)?);
    }
    for row in 0..functions.len() {
        let (oid, name) = (functions.number(row, 0)?, functions.text(row, 2)?);
        taints.add_function(oid, name, functions.optional(row, 6));
    }
    taints.spread();
    Ok(taints)
}

fn read_functions(
    answer: &Answer<'_>,
    taints: &Taints,
) -> Result<HashMap<String, HashMap<String, Function>>, GatewayError> {
    let mut functions: HashMap<String, HashMap<String, Function>> = HashMap::new();
    for row in 0..answer.len() {
        let mut function = function_at(answer, row, 3)?;
        function.needs_cluster = taints.of(answer.number(row, 0)?) > Taint::None;
        let schema = functions.entry(answer.text(row, 1)?.to_owned()).or_default();
        fold(schema, answer.text(row, 2)?, function);
    }
    Ok(functions)
}

/// Marks the relations whose triggers or rules cannot run where the relation's rows are written.
/// Rows: relation, name, and what `taint_of` reads.
fn mark_triggers(
    relations: &mut HashMap<u32, Relation>,
    answer: &Answer<'_>,
    taint_of: impl Fn(&str) -> Result<Taint, GatewayError>,
) -> Result<(), GatewayError> {
    for row in 0..answer.len() {
        let Some(relation) = relations.get_mut(&answer.number(row, 0)?) else { continue };
        relation.has_triggers = true;
        let taint = taint_of(answer.text(row, 2)?)?;
        // What counts on node 1 only may run there: the relation's own rows are there too.
        let is_view = matches!(relation.kind, RelationKind::View { .. });
        let runs_at_home = relation.placement == Placement::Home && !is_view;
        if taint == Taint::Cluster || (taint == Taint::Home && !runs_at_home) {
            relation.unsafe_trigger.get_or_insert(answer.text(row, 1)?.to_owned());
        }
    }
    Ok(())
}
