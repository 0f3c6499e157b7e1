//! Reading the catalog: everything the planner knows, from node 1, in one round trip.
//!
//! Owns: the queries and how their answers become a [`Catalog`]; which parts of an earlier catalog still
//! hold.
//! Never: caches; the caller keeps the result until the version grows. Never keeps a lock on a client's
//! table: printing a view's definition takes some, so that is done only for views whose rule is not
//! known, in a transaction of its own, or in a client's transaction after a savepoint.
//! Start reading at [`load()`], then [`reload_own`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tutti_link::connection::{NodeConnection, NodeError, Rows};
use tutti_sql::catalog::{
    BucketMap, CLUSTER_VIEWS, Catalog, Column, Function, Identity, KeyPart, MapId, Maps, NodeId,
    Placement, Relation, RelationKind, Stage,
};
use tutti_sql::closure::Code;
use tutti_sql::hash::{BUCKET_COUNT, KeyType};
use tutti_wire::sqlstate;

use super::code;
use super::computed_keys;
use super::entries;
use super::functions::{BuiltIns, fold, function_at, load_built_ins};
use super::maps::read_bucketing;
use super::rows::Answer;
use crate::error::GatewayError;

/// With no schema but its own in search_path PostgreSQL writes every name qualified when it prints
/// expressions. Temporary tables come last, for a client can give them any name.
///
/// For one of the gateway's own connections. A change between two of the queries may make the
/// answer unreadable; then it is read again.
const BEGIN_OUTSIDE: [&str; 3] = [
    "SELECT pg_catalog.set_config('tutti.search_path',
    pg_catalog.current_setting('search_path'), true);",
    "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);",
    PRINTS_ALIKE,
];

/// What is printed is read by other sessions, under their settings: so it must mean the same under
/// all.
const PRINTS_ALIKE: &str = "SELECT pg_catalog.set_config(s.name, s.value, true)
FROM (VALUES ('quote_all_identifiers', 'off'), ('datestyle', 'ISO, YMD'), ('intervalstyle', 'iso_8601'),
    ('timezone', 'UTC'), ('extra_float_digits', '1'), ('bytea_output', 'hex')) AS s (name, value);";

const END_OUTSIDE: [&str; 1] = ["SELECT pg_catalog.set_config('search_path',
    pg_catalog.current_setting('tutti.search_path'), true);"];

/// Precedes a query in a client's transaction that reads the catalog: it waits for no lock for
/// long, and is not part of the client's statement.
pub const READS_CATALOG: &str = "SAVEPOINT tutti_catalog;";

/// In a client's transaction the planner's settings are the client's, and locks are kept; both end
/// at a savepoint.
const BEGIN_INSIDE: [&str; 3] = [
    READS_CATALOG,
    PRINTS_ALIKE,
    "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
    pg_catalog.set_config('jit', 'off', true), pg_catalog.set_config(s.name, 'on', true)
FROM pg_catalog.unnest('{enable_seqscan,enable_indexscan,enable_bitmapscan,enable_hashjoin,
    enable_mergejoin,enable_nestloop,enable_sort,enable_hashagg,enable_indexonlyscan,row_security}'
    ::pg_catalog.text[]) AS s (name);",
];

pub(super) const END_INSIDE: [&str; 2] =
    ["ROLLBACK TO SAVEPOINT tutti_catalog;", "RELEASE SAVEPOINT tutti_catalog;"];

/// How often objects dropped by others may disturb one reading.
const DROPS_MAX: u32 = 20;

/// Runs a query that reads the catalog. What another session has dropped meanwhile is still in the
/// query's snapshot, and opening it fails (`could not open relation with OID`, `cache lookup
/// failed`): then it is run again.
pub(super) async fn query_past_drops(
    home: &mut NodeConnection,
    sql: &str,
) -> Result<Vec<Rows>, NodeError> {
    for _ in 0..DROPS_MAX {
        match home.query(sql).await {
            Err(NodeError::Refused(fields)) if fields.sqlstate() == "XX000" => (),
            answered => return answered,
        }
        if sql.starts_with(READS_CATALOG) {
            home.query(&END_INSIDE.join("\n")).await?;
        }
    }
    home.query(sql).await
}

/// The relations that the transaction has locked in a mode that only changes take. All relations it
/// has changed are among them, and no other session is changing them now.
const TOUCHED: &str = "SELECT DISTINCT l.relation FROM pg_locks l
WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.relation >= 16384
    AND l.mode = ANY ('{ShareUpdateExclusiveLock,ShareLock,ShareRowExclusiveLock,ExclusiveLock,\
AccessExclusiveLock}')";

const VERSION: &str = "SELECT coalesce(sum(weight), 0) FROM tutti.change;";
const NODES: &str = "SELECT id FROM tutti.node ORDER BY id;";
/// Ranges that no table has any more need not be known.
const MAPS: &str = "SELECT b.map, string_agg(b.node::text, ' ' ORDER BY b.bucket), m.key_family,
    (SELECT string_agg(encode(convert_to(u.split, 'UTF8'), 'hex'), ' ' ORDER BY u.place)
        FROM unnest(m.splits) WITH ORDINALITY AS u (split, place))
FROM tutti.bucket b JOIN tutti.map m ON m.id = b.map
WHERE m.splits IS NULL OR EXISTS (SELECT FROM tutti.placement p WHERE p.map = m.id)
GROUP BY b.map, m.key_family, m.splits ORDER BY b.map;";

/// Schemas that a client may name: not the system's, not those of temporary objects, not the
/// gateway's.
const USER_SCHEMA: &str = "n.nspname <> ALL ('{pg_catalog,information_schema,pg_toast,tutti}')
    AND n.nspname !~ '^pg_(toast_)?temp_'";

/// Relations that a client may name: those of [`USER_SCHEMA`], and what every node says of itself.
fn named_by_clients() -> String {
    let views = CLUSTER_VIEWS.join(",");
    format!("({USER_SCHEMA} OR n.nspname = 'tutti' AND c.relname = ANY ('{{{views}}}'))")
}

/// Which relations are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Extent {
    All,
    /// Those of [`TOUCHED`], with the definitions of views.
    Touched,
}

impl Extent {
    /// The condition on `c.oid`. An array is looked up by index however many relations there are.
    fn condition(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Touched => format!("AND c.oid = ANY (ARRAY({TOUCHED}))"),
        }
    }
}

fn relations(part: Extent) -> String {
    let (condition, named) = (part.condition(), named_by_clients());
    let definition = match part {
        Extent::All => "NULL",
        Extent::Touched => "CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END",
    };
    format!(
        "SELECT c.oid, n.nspname, c.relname, c.relkind, {definition},
    CASE n.nspname WHEN 'tutti' THEN 'round_robin' ELSE p.kind END,
    coalesce(array_to_string(p.key_attnums, ' '), p.key_attnum::text), p.map,
    (SELECT array_to_string(k.conkey, ' ') FROM pg_constraint k
     WHERE k.conrelid = c.oid AND k.contype = 'p'),
    CASE WHEN c.relkind = 'v' AND n.nspname <> 'tutti' THEN (SELECT concat(r.oid, ' ', r.xmin) FROM pg_rewrite r
        WHERE r.ev_class = c.oid AND r.ev_type = '1') END,
    c.relrowsecurity,
    CASE WHEN c.oid IN (SELECT k.relation FROM tutti.kept k UNION ALL SELECT r.referred FROM tutti.reference r)
        THEN tutti.kept_of(c.oid) END,
    p.computed
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN tutti.placement p ON p.relation = c.oid
WHERE c.relkind = ANY ('{{r,p,v,m,S,f}}') AND {named} {condition};"
    )
}

/// An array is written as its element type with brackets: `int4[]`, since `_int4` is not what users
/// write. An identity column's default is the draw from its sequence, which for a partition may belong
/// to the root; `pg_get_serial_sequence` would ask for rights on the schema. Defaults mention no
/// column: printed without a table, they lock none.
fn columns(part: Extent) -> String {
    let (condition, named) = (part.condition(), named_by_clients());
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
         ELSE coalesce(pg_get_expr(d.adbin, 0), pg_get_expr(t.typdefaultbin, 0)) END,
    a.attgenerated <> '', a.attidentity, t.typtype = 'd',
    format_type(a.atttypid, a.atttypmod), a.atttypmod,
    concat(CASE WHEN NOT l.collisdeterministic THEN '!' END,
        CASE WHEN a.attcollation <> t.typcollation THEN format('%I.%I', ln.nspname, l.collname) END)
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_namespace tn ON tn.oid = t.typnamespace
LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
LEFT JOIN pg_namespace en ON en.oid = e.typnamespace
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_collation l ON l.oid = a.attcollation
LEFT JOIN pg_namespace ln ON ln.oid = l.collnamespace
WHERE a.attnum > 0 AND NOT a.attisdropped
    AND c.relkind = ANY ('{{r,p,v,m,S,f}}') AND {named} {condition}
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

/// Operators and casts that run code not known to look at its operands only: built-in code is, and
/// so is code in C that is declared immutable, as in extensions.
const UNPROVEN: &str = "SELECT o.oprname FROM pg_operator o
JOIN pg_proc p ON p.oid = o.oprcode JOIN pg_language l ON l.oid = p.prolang
WHERE o.oid >= 16384 AND NOT (l.lanname = ANY ('{c,internal}') AND p.provolatile = 'i')
UNION SELECT NULL FROM pg_cast k JOIN pg_proc p ON p.oid = k.castfunc
JOIN pg_language l ON l.oid = p.prolang
WHERE k.oid >= 16384 AND NOT (l.lanname = ANY ('{c,internal}') AND p.provolatile = 'i');";

/// Reads the catalog from node 1 over one of the gateway's own connections.
///
/// Errors: [`GatewayError::NotInitialised`] without a schema `tutti`; a node's own error.
pub async fn load(home: &mut NodeConnection) -> Result<Catalog, GatewayError> {
    let BuiltIns { functions, code, relations } = load_built_ins(home).await?;
    let code = Arc::new(Code::new(code));
    let previous = Catalog {
        builtin_functions: functions,
        builtin_relations: relations,
        code,
        ..Catalog::default()
    };
    reload(home, &previous).await
}

/// As [`load()`], but reuses, from a catalog read before, what no client can change and the
/// definitions of views that have not changed since.
pub async fn reload(
    home: &mut NodeConnection,
    previous: &Catalog,
) -> Result<Catalog, GatewayError> {
    let answers = Answers::read(home, previous, Extent::All, &BEGIN_OUTSIDE, &END_OUTSIDE).await?;
    let mut relations = answers.relations()?;
    let mut view_rules = answers.view_rules()?;
    let mut known = definitions_of(previous);
    for (oid, relation) in &mut relations {
        let RelationKind::View { definition } = &mut Arc::make_mut(relation).kind else { continue };
        let is_as_it_was = previous.view_rules.get(oid) == view_rules.get(oid);
        *definition = match (known.remove(oid), is_as_it_was) {
            (Some(definition), true) => definition,
            (known, _) => match (read_definition(home, *oid).await, known) {
                (Ok(definition), _) => definition,
                (Err(NodeError::Refused(fields)), Some(known))
                    if fields.sqlstate() == sqlstate::LOCK_NOT_AVAILABLE =>
                {
                    // One of its tables is being changed. The next reading tries again.
                    view_rules.remove(oid);
                    known
                }
                (Err(error), _) => return Err(error.into()),
            },
        };
    }
    answers.catalog(relations, view_rules, previous)
}

/// A catalog as a client's transaction has changed it.
#[derive(Debug)]
pub struct OwnCatalog {
    /// As the transaction sees it.
    pub catalog: Catalog,
    /// The relations that it may have changed; all other relations are as they were.
    pub touched: Vec<u32>,
}

/// Reads what the transaction on node 1 has changed; the rest is as in `base`, the newest that was
/// published.
///
/// A rename may change how other, untouched objects are printed: then
/// `all` is wanted, and every definition is read.
///
/// Errors: a node's own, after which the transaction is aborted.
pub async fn reload_own(
    home: &mut NodeConnection,
    base: &Catalog,
    all: bool,
) -> Result<OwnCatalog, GatewayError> {
    for _ in 0..DROPS_MAX {
        match reload_own_once(home, base, all).await {
            // Each query has a snapshot of its own: what is committed between two may not fit together.
            Err(GatewayError::Unreadable { .. }) => (),
            read => return read,
        }
    }
    reload_own_once(home, base, all).await
}

async fn reload_own_once(
    home: &mut NodeConnection,
    base: &Catalog,
    all: bool,
) -> Result<OwnCatalog, GatewayError> {
    let part = if all { Extent::All } else { Extent::Touched };
    let answers = Answers::read(home, base, part, &BEGIN_INSIDE, &END_INSIDE).await?;
    let touched = answers.touched()?;
    let mut relations: HashMap<_, _> = match all {
        true => HashMap::new(),
        false => base
            .relations
            .values()
            .flat_map(HashMap::values)
            .map(|it| (it.oid, it.clone()))
            .collect(),
    };
    let mut view_rules = if all { HashMap::new() } else { base.view_rules.clone() };
    for oid in &touched {
        relations.remove(oid);
        view_rules.remove(oid);
    }
    relations.extend(answers.relations()?);
    view_rules.extend(answers.view_rules()?);
    if all {
        let mut definitions = read_all_definitions(home).await?;
        for (oid, relation) in &mut relations {
            if let RelationKind::View { definition } = &mut Arc::make_mut(relation).kind {
                *definition = definitions.remove(oid).unwrap_or_default();
            }
        }
    }
    Ok(OwnCatalog { catalog: answers.catalog(relations, view_rules, base)?, touched })
}

fn definitions_of(catalog: &Catalog) -> HashMap<u32, String> {
    let of = |relation: &Arc<Relation>| match &relation.kind {
        RelationKind::View { definition } => Some((relation.oid, definition.clone())),
        _ => None,
    };
    catalog.relations.values().flat_map(HashMap::values).filter_map(of).collect()
}

/// How long printing a view waits for the locks that it takes. Less than `deadlock_timeout`: no
/// client may become a deadlock victim because of us.
const DEFINITION_PATIENCE_MS: u32 = 200;

/// Over one of the gateway's own connections. Empty for a view that was dropped meanwhile.
async fn read_definition(home: &mut NodeConnection, oid: u32) -> Result<String, NodeError> {
    let print = format!(
        "SELECT pg_catalog.set_config('lock_timeout', '{DEFINITION_PATIENCE_MS}', true);
SELECT pg_catalog.pg_get_viewdef({oid}::pg_catalog.oid);"
    );
    let sql = [&BEGIN_OUTSIDE[..], &[print.as_str()], &END_OUTSIDE].concat().join("\n");
    let rows = home.query(&sql).await?;
    let definition = rows.get(BEGIN_OUTSIDE.len() + 1).and_then(|rows| rows.text(0, 0));
    Ok(written(definition.unwrap_or_default()))
}

/// How long a client's transaction waits for a lock that is only wanted for printing a view. Others
/// may wait for its own locks meanwhile, in a cycle.
const OWN_DEFINITION_PATIENCE_MS: u32 = 20;

/// In a client's transaction. Leaves out views whose tables others are changing.
async fn read_all_definitions(
    home: &mut NodeConnection,
) -> Result<HashMap<u32, String>, GatewayError> {
    // A transaction that has looked at temporary objects cannot be prepared.
    let views = "relkind = 'v' AND relpersistence <> 't' AND oid >= 16384";
    match print_definitions(home, views).await {
        Err(error) if says_locked(&error) => (),
        read => return read,
    }
    let list = format!("SELECT oid FROM pg_class WHERE {views};");
    let sql = [&BEGIN_INSIDE[..], &[list.as_str()], &END_INSIDE].concat().join("\n");
    let rows = home.query(&sql).await?;
    let oids: Vec<String> = rows.get(BEGIN_INSIDE.len()).map_or_else(Vec::new, |rows| {
        (0..rows.rows.len()).filter_map(|row| rows.text(row, 0).map(str::to_owned)).collect()
    });
    let mut definitions = HashMap::new();
    for oid in oids {
        match print_definitions(home, &format!("c.oid = {oid}")).await {
            Err(error) if says_locked(&error) => (),
            read => definitions.extend(read?),
        }
    }
    Ok(definitions)
}

/// In a client's transaction. Empty for a view whose tables another session is changing.
pub(super) async fn print_definition(
    home: &mut NodeConnection,
    view: u32,
) -> Result<String, GatewayError> {
    match print_definitions(home, &format!("c.oid = {view}")).await {
        Err(error) if says_locked(&error) => Ok(String::new()),
        printed => Ok(printed?.remove(&view).unwrap_or_default()),
    }
}

fn says_locked(error: &GatewayError) -> bool {
    matches!(error, GatewayError::Node(NodeError::Refused(fields))
        if fields.sqlstate() == sqlstate::LOCK_NOT_AVAILABLE)
}

/// After a savepoint, which is rolled back whatever the outcome.
async fn print_definitions(
    home: &mut NodeConnection,
    condition: &str,
) -> Result<HashMap<u32, String>, GatewayError> {
    let print = format!(
        "SELECT set_config('lock_timeout', '{OWN_DEFINITION_PATIENCE_MS}', true);
SELECT c.oid, coalesce(pg_get_viewdef(c.oid), '') FROM pg_class c WHERE {condition};"
    );
    let sql = [&BEGIN_INSIDE[..], &[print.as_str()]].concat().join("\n");
    let printed = query_past_drops(home, &sql).await;
    home.query(&END_INSIDE.join("\n")).await?;
    let results = printed?;
    let node = home.node();
    let what = "definitions of views";
    let rows =
        results.get(BEGIN_INSIDE.len() + 1).ok_or(GatewayError::Unreadable { node, what })?;
    let answer = Answer { node, what, rows };
    (0..answer.len())
        .map(|row| Ok((answer.number(row, 0)?, written(answer.text(row, 1)?))))
        .collect()
}

/// A definition without its terminator.
fn written(definition: &str) -> String {
    definition.trim().trim_end_matches(';').to_owned()
}

/// Node 1's answers.
struct Answers {
    node: NodeId,
    results: [Rows; 8],
    code: [Rows; code::QUERIES],
}

impl Answers {
    async fn read(
        home: &mut NodeConnection,
        previous: &Catalog,
        part: Extent,
        begin: &[&str],
        end: &[&str],
    ) -> Result<Self, GatewayError> {
        let (relations, columns, functions) = (relations(part), columns(part), functions());
        let touched = format!("{TOUCHED};");
        let code = code::queries(previous.code.built_in());
        let queries: [&str; 9] =
            [VERSION, NODES, MAPS, &relations, &columns, &functions, UNPROVEN, &touched, &code];
        let sql = [begin, &queries, end].concat().join("\n");
        let node = home.node();
        let unreadable = || GatewayError::Unreadable { node, what: "the catalog" };
        let results =
            query_past_drops(home, &sql).await.map_err(|error| not_initialised(node, error))?;
        if results.len() != begin.len() + 8 + code::QUERIES + end.len() {
            return Err(unreadable());
        }
        let mut results = results.into_iter().skip(begin.len());
        let first: Vec<Rows> = results.by_ref().take(8).collect();
        let code: Vec<Rows> = results.take(code::QUERIES).collect();
        Ok(Self {
            node,
            results: first.try_into().map_err(|_| unreadable())?,
            code: code.try_into().map_err(|_| unreadable())?,
        })
    }

    fn answer(&self, what: &'static str, query: usize) -> Answer<'_> {
        Answer { node: self.node, what, rows: &self.results[query] }
    }

    fn relations(&self) -> Result<HashMap<u32, Arc<Relation>>, GatewayError> {
        let columns = read_columns(&self.answer("columns", 4))?;
        let relations = read_relations(&self.answer("relations", 3), columns)?;
        Ok(relations.into_iter().map(|(oid, relation)| (oid, Arc::new(relation))).collect())
    }

    fn view_rules(&self) -> Result<HashMap<u32, String>, GatewayError> {
        Ok(rules_of(&self.answer("relations", 3))?.into_iter().collect())
    }

    fn touched(&self) -> Result<Vec<u32>, GatewayError> {
        let answer = self.answer("locks", 7);
        (0..answer.len()).map(|row| answer.number(row, 0)).collect()
    }

    /// Assembles the catalog.
    fn catalog(
        &self,
        mut relations: HashMap<u32, Arc<Relation>>,
        view_rules: HashMap<u32, String>,
        previous: &Catalog,
    ) -> Result<Catalog, GatewayError> {
        let mut catalog = Catalog {
            version: self.answer("the catalog's version", 0).number(0, 0)?,
            maps: read_maps(&self.answer("bucket maps", 2))?,
            builtin_functions: previous.builtin_functions.clone(),
            builtin_relations: previous.builtin_relations.clone(),
            home_by_default: previous.home_by_default,
            view_rules,
            ..Catalog::default()
        };
        let unproven = self.answer("operators and casts", 6);
        for row in 0..unproven.len() {
            match unproven.optional(row, 0) {
                Some(operator) => {
                    catalog.unproven_operators.insert(operator.to_owned());
                }
                None => catalog.has_unproven_casts = true,
            }
        }
        let nodes = self.answer("nodes", 1);
        for row in 0..nodes.len() {
            catalog.nodes.push(NodeId(nodes.number(row, 0)?));
        }
        catalog.functions = read_functions(&self.answer("functions", 5))?;
        let answers =
            self.code.each_ref().map(|rows| Answer { node: self.node, what: "code", rows });
        let built_in = Arc::clone(previous.code.built_in());
        catalog.code = Arc::new(code::read(&answers, Some(&previous.code), built_in)?);
        for (oid, relation) in &mut relations {
            let fires = catalog.code.fires(*oid);
            if relation.has_triggers != fires {
                Arc::make_mut(relation).has_triggers = fires;
            }
        }
        for relation in relations.into_values() {
            catalog.is_spread |=
                relation.placement != Placement::Home && !relation.is_cluster_view();
            catalog.has_async |= matches!(relation.placement, Placement::Async { .. });
            catalog.has_kept |= !relation.kept.is_empty();
            catalog.has_references |= !relation.referred.is_empty();
            catalog.has_computed_keys |= !relation.computed_keys.is_empty();
            let schema = catalog.relations.entry(relation.schema.clone()).or_default();
            schema.insert(relation.name.clone(), relation);
        }
        Ok(catalog)
    }
}

/// A missing table or schema means that `tutti init` was not run.
pub fn not_initialised(node: NodeId, error: NodeError) -> GatewayError {
    match &error {
        NodeError::Refused(fields) if matches!(fields.sqlstate(), "42P01" | "3F000") => {
            GatewayError::NotInitialised { node }
        }
        _ => error.into(),
    }
}

/// For each view among these relations, the version of the rule that its definition belongs to.
pub(super) fn rules_of(answer: &Answer<'_>) -> Result<BTreeMap<u32, String>, GatewayError> {
    let mut rules = BTreeMap::new();
    for row in 0..answer.len() {
        if let Some(rule) = answer.optional(row, 9) {
            rules.insert(answer.number(row, 0)?, rule.to_owned());
        }
    }
    Ok(rules)
}

pub(super) fn read_maps(answer: &Answer<'_>) -> Result<Maps, GatewayError> {
    let mut maps = Maps::new();
    for row in 0..answer.len() {
        let nodes = answer.text(row, 1)?.split(' ');
        let nodes: Result<Vec<_>, _> = nodes.map(|id| id.parse().map(NodeId)).collect();
        let nodes = nodes.map_err(|_| answer.unreadable())?;
        if nodes.len() != usize::from(BUCKET_COUNT) {
            return Err(answer.unreadable());
        }
        let bucketing = read_bucketing(answer.text(row, 2)?, answer.optional(row, 3));
        let bucketing = bucketing.ok_or_else(|| answer.unreadable())?;
        maps.insert(MapId(answer.number(row, 0)?), BucketMap { nodes, bucketing });
    }
    Ok(maps)
}

/// Columns with their attribute numbers, by relation.
pub(super) type ColumnsOf = HashMap<u32, Vec<(i16, Column)>>;

pub(super) fn read_columns(answer: &Answer<'_>) -> Result<ColumnsOf, GatewayError> {
    let mut columns = ColumnsOf::new();
    for row in 0..answer.len() {
        let collation = answer.text(row, 12)?;
        let nondeterministic = collation.strip_prefix('!');
        let named = nondeterministic.unwrap_or(collation);
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
            declared_type: declared(answer.text(row, 10)?, answer.text(row, 4)?).to_owned(),
            type_modifier: answer.number(row, 11)?,
            nondeterministic: nondeterministic.is_some(),
            collation: (!named.is_empty()).then(|| named.into()),
        };
        columns.entry(answer.number(row, 0)?).or_default().push((answer.number(row, 1)?, column));
    }
    Ok(columns)
}

/// A column's type as any session reads it. What the grammar has words for is built in whoever says it; other built-in
/// types, such as `date` and `text`, have no length or precision, and are named with their schema: a session may have one of
/// the name.
fn declared<'t>(printed: &'t str, qualified: &'t str) -> &'t str {
    const WORDS: [&str; 9] = [
        "bigint",
        "bit",
        "boolean",
        "character",
        "integer",
        "interval",
        "numeric",
        "real",
        "smallint",
    ];
    let name = printed.trim_end_matches("[]");
    let is_bare = !name.contains([' ', '(', '.', '"']) && !WORDS.contains(&name);
    if is_bare { qualified } else { printed }
}

pub(super) fn read_relations(
    answer: &Answer<'_>,
    mut columns: ColumnsOf,
) -> Result<HashMap<u32, Relation>, GatewayError> {
    let mut relations = HashMap::with_capacity(answer.len());
    for row in 0..answer.len() {
        let oid = answer.number(row, 0)?;
        let columns = columns.remove(&oid).unwrap_or_default();
        let kind = match answer.text(row, 3)? {
            // What it reads is each node's own business.
            "v" if answer.text(row, 1)? == "tutti" => RelationKind::Other,
            "r" | "p" => RelationKind::Table,
            "v" => RelationKind::View {
                definition: written(answer.optional(row, 4).unwrap_or_default()),
            },
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
        let entries = match answer.optional(row, 11) {
            Some(stored) => entries::read(stored, &columns).ok_or_else(|| answer.unreadable())?,
            None => entries::OfRelation::default(),
        };
        let computed_keys = match answer.optional(row, 12) {
            Some(stored) => {
                let read = computed_keys::read(stored, &placement, &columns);
                read.ok_or_else(|| answer.unreadable())?
            }
            None => Vec::new(),
        };
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
                row_security: answer.boolean(row, 10)?,
                returned_by: None,
                kept: entries.kept,
                referred: entries.referred,
                computed_keys,
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
        Some(kind) if kind == "hash" || Stage::of_kind(kind).is_some() => {
            let part = |attnum: &str| {
                let attnum: i16 = attnum.parse().ok()?;
                let column = columns.iter().position(|(found, _)| *found == attnum)?;
                let key_type = KeyType::from_oid(columns[column].1.type_oid)?;
                Some(KeyPart { column, key_type })
            };
            let key = answer.text(row, 6)?.split(' ').map(part).collect::<Option<Vec<_>>>();
            let map = MapId(answer.number(row, 7)?);
            match (key.as_deref(), Stage::of_kind(kind)) {
                (Some(&[KeyPart { column: key, key_type }]), None) => {
                    Ok(Placement::Hash { key, key_type, map })
                }
                (Some(&[KeyPart { column: key, key_type }]), Some(stage)) => {
                    Ok(Placement::Async { key, key_type, map, stage })
                }
                (Some(key @ [_, _, ..]), None) => {
                    Ok(Placement::HashOfSeveral { key: key.into(), map })
                }
                // A column of its key is gone, or of another type: past the gateway, or on a cluster of one node, where
                // code may do as it likes. Its rows are where they are.
                (None, None) => Ok(Placement::RoundRobin),
                _ => Err(answer.unreadable()),
            }
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
