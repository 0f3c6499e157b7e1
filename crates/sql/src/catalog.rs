//! The catalog as the planner sees it: immutable, versioned, shared by many sessions.
//!
//! Owns: which relation is of which kind, on which nodes its rows are, what its columns are, and how
//! volatile functions are.
//! Never: loads itself (`crates/cluster/src/catalog/load.rs` reads it from node 1) and never changes in place.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::code::Code;
pub use crate::code::Volatility;
use crate::hash::{BUCKET_COUNT, Bucket, Bucketing, KeyType, bucket_of_several};

/// A PostgreSQL server of the cluster, counted from 1. Node 1 is [`NodeId::HOME`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub u16);

impl NodeId {
    /// Node 1: answers catalog queries, owns the sequences, is locked first by every write to a
    /// replicated table.
    pub const HOME: Self = Self(1);
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "n{}", self.0)
    }
}

/// Names a map from bucket to node. Tables with one map are colocated.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MapId(pub u32);

/// Which node holds which bucket, and which bucket a key has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BucketMap {
    /// By bucket: exactly [`BUCKET_COUNT`] entries. Of a map of ranges, those of buckets that no range has
    /// hold entries of unique indexes alone, which are placed by hash.
    pub nodes: Vec<NodeId>,
    /// How buckets follow from keys.
    pub bucketing: Bucketing,
}

impl BucketMap {
    /// By hash, to these nodes.
    pub fn by_hash(nodes: Vec<NodeId>) -> Self {
        Self { nodes, bucketing: Bucketing::Hash }
    }

    /// The node that holds `bucket`.
    pub fn node(&self, bucket: Bucket) -> NodeId {
        debug_assert_eq!(self.nodes.len(), usize::from(BUCKET_COUNT));
        self.nodes[usize::from(bucket.0)]
    }

    /// Whether each node's ranges follow one another, so that what is between two of them is too.
    pub fn has_ranges_in_order(&self) -> bool {
        let mut blocks: Vec<NodeId> = self.nodes_of_keys().to_vec();
        blocks.dedup();
        let count = blocks.len();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.len() == count
    }

    /// The nodes of the buckets that keys can have.
    pub fn nodes_of_keys(&self) -> &[NodeId] {
        let ranges = self.bucketing.splits().map(|splits| usize::from(splits.range_count()));
        &self.nodes[..ranges.unwrap_or(self.nodes.len())]
    }
}

/// Bucket maps by id.
pub type Maps = BTreeMap<MapId, BucketMap>;

/// A column of a distribution key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeyPart {
    /// Index in [`Relation::columns`].
    pub column: usize,
    /// How its values are read, and hash.
    pub key_type: KeyType,
}

/// Where the rows of a relation are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Placement {
    /// Each row on the node of its key's bucket, which is by hash or, as the map says, by range.
    Hash {
        /// Index of the distribution key in [`Relation::columns`].
        key: usize,
        /// How key values are read, and hash.
        key_type: KeyType,
        /// Which bucket map; equal maps mean colocated.
        map: MapId,
    },
    /// Each row on the node of the bucket that it has by the hash of several columns together. For all that is said of
    /// rows which are read it may be anywhere ([`Self::RoundRobin`]); but rows that name all of them are found.
    HashOfSeveral {
        /// The columns of the distribution key, in the order in which they were named; at least two.
        key: Arc<[KeyPart]>,
        /// Which bucket map; it is one by hash.
        map: MapId,
    },
    /// Each row on some one node.
    RoundRobin,
    /// Every node has all rows.
    Replicated,
    /// Each row is written on the node of its key's bucket, and carried from there to all others.
    Async {
        /// Index of the distribution key in [`Relation::columns`], a column of the primary key.
        key: usize,
        /// How key values are read, and hash.
        key_type: KeyType,
        /// Which bucket map says where a row's home is.
        map: MapId,
        /// How far that has come.
        stage: Stage,
    },
    /// On node 1 alone: sequences, temporary tables, system catalogs, and every table that is not
    /// spread.
    Home,
}

/// How far a table has come to be asynchronously replicated, or something else again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stage {
    /// Every node has the same rows, or will when those have arrived that are on their way; no one writes it.
    Pending,
    /// The nodes subscribe to each other's rows.
    Carried,
    /// Rows may be dropped on their way, and each is at its home; no one writes it.
    Ending,
}

impl Stage {
    /// Of all of them.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Carried, Self::Ending];

    /// As the nodes' catalog has it.
    pub fn as_kind(self) -> &'static str {
        match self {
            Self::Pending => "async_pending",
            Self::Carried => "async",
            Self::Ending => "async_ending",
        }
    }

    /// What [`Self::as_kind`] gives.
    pub fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_kind() == kind)
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Pending => "replicated async, pending",
            Self::Carried => "replicated async",
            Self::Ending => "replicated async, ending",
        }
    }
}

impl Placement {
    /// Whether no single node need have all rows.
    pub fn is_distributed(&self) -> bool {
        matches!(self, Self::Hash { .. } | Self::HashOfSeveral { .. } | Self::RoundRobin)
    }

    /// The columns by whose values a row is stored on one node; none of tables that have no such.
    pub fn key_columns(&self) -> Vec<KeyPart> {
        (0..).map_while(|place| self.key_column(place)).collect()
    }

    /// The column at this place of [`Self::key_columns`].
    pub fn key_column(&self, place: usize) -> Option<KeyPart> {
        match self {
            Self::Hash { key, key_type, .. } => {
                (place == 0).then_some(KeyPart { column: *key, key_type: *key_type })
            }
            Self::HashOfSeveral { key, .. } => key.get(place).copied(),
            Self::RoundRobin | Self::Replicated | Self::Async { .. } | Self::Home => None,
        }
    }

    /// The bucket of a row whose key columns have these, in the order of [`Self::key_columns`].
    pub fn bucket(&self, of_columns: &[Bucket]) -> Bucket {
        match (self, of_columns) {
            (Self::HashOfSeveral { .. }, several) => bucket_of_several(several.iter().copied()),
            (_, [bucket]) => *bucket,
            (_, _) => Bucket::OF_NULL,
        }
    }

    /// The map that says which node a row is on by its key.
    pub fn key_map(&self) -> Option<MapId> {
        match self {
            Self::Hash { map, .. } | Self::HashOfSeveral { map, .. } => Some(*map),
            Self::RoundRobin | Self::Replicated | Self::Async { .. } | Self::Home => None,
        }
    }
}

/// What sort of thing a relation's name means.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RelationKind {
    /// A table, partitioned or not.
    Table,
    /// A view, with the text of its query as `pg_get_viewdef` gives it (every name qualified).
    View {
        /// The query, without a final semicolon.
        definition: String,
    },
    /// A materialized view: on node 1, or with a copy on every node where tables are so by default.
    MaterializedView,
    /// A sequence: values are drawn on node 1 only.
    Sequence,
    /// Foreign tables and all else that has a row in `pg_class`.
    Other,
}

/// One column of a relation, in `attnum` order, dropped columns left out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Column {
    /// Its name, as stored (not quoted).
    pub name: String,
    /// Type OID on node 1 (built-in types have the same OID everywhere).
    pub type_oid: u32,
    /// The type as SQL text without type modifier, qualified so that any search_path finds it
    /// (`pg_catalog.int4`, `public.mood`).
    pub type_name: String,
    /// The type with its modifier, as SQL text that any search_path reads alike
    /// (`numeric(8,2)`, `public.mood`).
    pub declared_type: String,
    /// `atttypmod`; -1 for none. Storing into such a column may round or cut a value.
    pub type_modifier: i32,
    /// Declared NOT NULL.
    pub not_null: bool,
    /// Default expression as SQL text that any search_path reads alike. For an identity column:
    /// the `nextval` call on its sequence.
    pub default: Option<String>,
    /// `GENERATED ALWAYS AS (…) STORED`: never written by anyone.
    pub generated: bool,
    /// `GENERATED … AS IDENTITY`.
    pub identity: Option<Identity>,
    /// The type is a domain (whose constraints a NULL may violate).
    pub domain: bool,
    /// Its collation is nondeterministic: values that are equal may have different bytes, and different hashes.
    pub nondeterministic: bool,
    /// Its collation, as SQL text that any search_path reads alike, if it is another than its type's.
    pub collation: Option<Box<str>>,
}

/// The two spellings of an identity column.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Identity {
    /// `GENERATED ALWAYS`: a value in INSERT needs OVERRIDING SYSTEM VALUE.
    Always,
    /// `GENERATED BY DEFAULT`.
    ByDefault,
}

/// A table, view or sequence that the catalog knows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Relation {
    /// Schema, as stored.
    pub schema: String,
    /// Name, as stored.
    pub name: String,
    /// OID on node 1.
    pub oid: u32,
    /// Table, view, sequence…
    pub kind: RelationKind,
    /// Where its rows are. For views: [`Placement::Home`], meaningless.
    pub placement: Placement,
    /// Columns in order, dropped ones left out.
    pub columns: Vec<Column>,
    /// Columns of the primary key, as indexes in `columns`; empty without one.
    pub primary_key: Vec<usize>,
    /// Writing it runs code of the user's: a trigger, or a rule.
    pub has_triggers: bool,
    /// Roles see, and write, the rows that its policies let them.
    pub row_security: bool,
    /// It stands for the rows of a table that this one of [`crate::plan::Steps::before`] has returned, which are on no
    /// node; the placement is the table's, and says where its type is. Only while a statement is planned.
    pub returned_by: Option<usize>,
    /// Its unique indexes and foreign keys that hold over all nodes by entries of their own.
    pub kept: Vec<Kept>,
    /// The columns that entries of foreign keys refer to, as indexes in `columns`.
    pub referred: Vec<usize>,
    /// Those columns of its distribution key that are generated.
    pub computed_keys: Vec<ComputedKey>,
}

/// A column of a distribution key that is computed from others: `GENERATED ALWAYS AS (…) STORED`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ComputedKey {
    /// Index in [`Relation::columns`].
    pub column: usize,
    /// As PostgreSQL prints it, over the columns' names of now; it calls nothing of users'.
    pub expression: String,
    /// The columns that are in it, as indexes in [`Relation::columns`].
    pub reads: Vec<usize>,
    /// The column has the expression's value as it is, not cast to another type.
    pub exact: bool,
}

/// What holds over all nodes by entries in a table of the gateway's own, which are spread by their values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// What its entries are called by, with the kind: the OID that the index, or the constraint, got on node 1.
    pub number: u32,
    /// A row has another entry when one of these changes, or the distribution key: indexes in [`Relation::columns`].
    pub columns: Vec<usize>,
    /// What it is.
    pub kind: KeptKind,
}

/// Of what there are entries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum KeptKind {
    /// A unique index that does not contain the distribution key. The entries are placed by the table's own bucket map.
    Unique,
    /// A foreign key that does not pair the distribution keys.
    Reference {
        /// The bucket map by which its entries are placed: that of the table that it refers to.
        map: MapId,
        /// The constraint's name.
        name: String,
        /// DEFERRABLE.
        deferrable: bool,
        /// INITIALLY DEFERRED.
        deferred: bool,
    },
}

impl Kept {
    /// Whether it is a unique index.
    pub fn is_unique(&self) -> bool {
        self.kind == KeptKind::Unique
    }
}

impl Relation {
    /// The qualified, quoted name.
    pub fn sql_name(&self) -> String {
        format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.name))
    }

    /// The columns by which its rows are placed, for people; `None`: there are none.
    pub fn key_names(&self) -> Option<String> {
        let names = self.placement.key_columns().into_iter();
        let names: Vec<_> = names.map(|key| self.columns[key.column].name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// The columns from which its key is computed, where it is, as indexes in [`Self::columns`].
    pub fn key_sources(&self) -> impl Iterator<Item = usize> {
        self.computed_keys.iter().flat_map(|key| key.reads.iter().copied())
    }

    /// Whether it is one of [`CLUSTER_VIEWS`]: on several nodes, and no reason to share definitions with these.
    pub fn is_cluster_view(&self) -> bool {
        self.schema == "tutti"
    }

    /// Index of the column with this (stored) name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

/// What is known of all functions of one name in one schema (overloads folded together).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Function {
    /// The most volatile overload.
    pub volatility: Volatility,
    /// `prokind = 'a'`.
    pub aggregate: bool,
    /// `prokind = 'w'` or usable only with OVER.
    pub window: bool,
    /// `proretset`.
    pub returns_set: bool,
}

/// Everything the planner knows about the cluster, at one version.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Grows with every change.
    pub version: u64,
    /// All nodes, ascending; never empty in a running gateway; the first is [`NodeId::HOME`].
    pub nodes: Vec<NodeId>,
    /// Tables without a clause are on node 1 alone, as configured.
    pub home_by_default: bool,
    /// Some table is on other nodes than node 1.
    pub is_spread: bool,
    /// Some table is replicated asynchronously.
    pub has_async: bool,
    /// Some table has something [`Kept`].
    pub has_kept: bool,
    /// Some of it is a foreign key.
    pub has_references: bool,
    /// Some table has a [`ComputedKey`].
    pub has_computed_keys: bool,
    /// Bucket maps by id.
    pub maps: Maps,
    /// Relations by schema, then name (user schemas only: not `pg_catalog`,
    /// `information_schema`, `pg_toast`, nor temporary ones).
    pub relations: HashMap<String, HashMap<String, Arc<Relation>>>,
    /// The version of the rule that each view's definition belongs to, by the view's OID. For reading
    /// the catalog again: what has not changed need not be asked for.
    pub view_rules: HashMap<u32, String>,
    /// Functions by schema, then name. Those of `pg_catalog` are looked for here only if
    /// [`Self::builtin_functions`] has none of the name.
    pub functions: HashMap<String, HashMap<String, Function>>,
    /// The functions of `pg_catalog` by name: some thousands that no client changes, read once and
    /// shared by all versions of the catalog.
    pub builtin_functions: Arc<HashMap<String, Function>>,
    /// The names of the relations of `pg_catalog`, which hide others of the name from whoever names no schema.
    pub builtin_relations: Arc<HashSet<String>>,
    /// Names of operators that run user-defined code that is not proven to look at its operands only.
    pub unproven_operators: HashSet<String>,
    /// The same of some cast.
    pub has_unproven_casts: bool,
    /// What functions, operators, triggers and the like run.
    pub code: Arc<Code>,
}

/// How one session sees names.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct NameScope {
    /// Effective search path in order (as `current_schemas(true)` gives it, without `pg_temp_N`).
    pub search_path: Vec<String>,
    /// Names of this session's temporary relations; they hide others of the same name when not
    /// qualified.
    pub temporary: Vec<String>,
    /// Names by which a statement may run code of this session's temporary objects: triggers, checks,
    /// types, functions, views. The catalog does not know them.
    pub temporary_code: Vec<String>,
    /// Users' types of columns of temporary relations, by the relations' names and as node 1 numbers them. The
    /// catalog knows what code these have.
    pub temporary_types: Vec<(String, u32)>,
}

impl NameScope {
    /// Whether a schema comes before `pg_catalog`, whose names it may hide.
    pub fn puts_others_first(&self) -> bool {
        let place = self.search_path.iter().position(|schema| schema == "pg_catalog");
        place.is_some_and(|place| 0 < place)
    }

    /// Of a session that has only the schema `public` in its path, and nothing temporary.
    pub fn public() -> Self {
        Self { search_path: vec!["public".to_owned()], ..Self::default() }
    }
}

/// How the names of the publication and the subscriptions begin that carry rows of asynchronously replicated tables.
pub const CARRIERS: &str = "tutti_async";

/// The views of the schema `tutti` in which every node has rows of its own, about itself. They are read as tables that are
/// spread without a key, and nobody writes them.
pub const CLUSTER_VIEWS: [&str; 9] = [
    "stat_activity",
    "locks",
    "stat_user_tables",
    "stat_user_indexes",
    "stats",
    "table_sizes",
    "stat_statements",
    "relation_sizes",
    "database_sizes",
];

/// The schema `tutti` is not a user's; these of its functions occur in statements that the planner
/// generates and plans again.
pub(crate) const OUTPUT_FUNCTIONS: [&str; 3] = ["row_output", "value_output", "rows_input"];
/// The same of those that add up what nodes take up, and of what tells a placement: only where node 1's system catalog is
/// read, too.
pub(crate) const CATALOG_FUNCTIONS: [&str; 8] = [
    "pg_relation_size",
    "pg_table_size",
    "pg_indexes_size",
    "pg_total_relation_size",
    "pg_database_size",
    "relpages",
    "reltuples",
    "placement_option",
];
static OUTPUT_FUNCTION: Function = Function {
    volatility: Volatility::Immutable,
    aggregate: false,
    window: false,
    returns_set: false,
};

impl Catalog {
    /// Whether node 1 has all there is, so that every statement is its business alone.
    pub fn is_solo(&self) -> bool {
        self.nodes.len() <= 1 || (self.home_by_default && !self.is_spread)
    }

    /// As a transaction sees it that has changed `published` to this: while others have tables on several nodes,
    /// definitions are shared with these, also when the transaction has dropped the last such table.
    #[must_use]
    pub fn of_open_change(mut self, published: &Self) -> Self {
        self.is_spread |= published.is_spread;
        self
    }

    /// All that it says of what clients can change, one fact to a line: two readings of the same
    /// database give the same lines.
    pub fn facts(&self) -> BTreeSet<String> {
        let known: BTreeSet<u32> = self
            .relations
            .values()
            .flat_map(HashMap::values)
            .map(|relation| relation.oid)
            .collect();
        let mut facts = self.code.facts(|relation| known.contains(&relation));
        for (schema, relations) in &self.relations {
            let facts_of = relations.iter().map(|(name, of)| format!("{schema}.{name}: {of:?}"));
            facts.extend(facts_of);
        }
        facts.extend(self.maps.iter().map(|(id, map)| format!("{id:?}: {map:?}")));
        for (schema, functions) in &self.functions {
            facts.extend(functions.iter().map(|(name, of)| format!("{schema}.{name}: {of:?}")));
        }
        facts.extend(self.unproven_operators.iter().map(|name| format!("unproven {name}")));
        facts.extend(self.view_rules.iter().map(|(view, rule)| format!("rule of {view}: {rule}")));
        facts.insert(format!("unproven casts: {}", self.has_unproven_casts));
        facts.insert(format!("nodes {:?}, spread: {}", self.nodes, self.is_spread));
        facts
    }

    /// The relation that `name` means in `scope`; `None` for temporary tables, system catalogs and
    /// unknown names, which are node 1's to answer for.
    pub fn resolve(
        &self,
        scope: &NameScope,
        schema: Option<&str>,
        name: &str,
    ) -> Option<&Arc<Relation>> {
        if let Some(schema) = schema {
            return self.relations.get(schema)?.get(name);
        }
        if scope.temporary.iter().any(|temporary| temporary == name) {
            return None;
        }
        scope.search_path.iter().find_map(|schema| self.relations.get(schema)?.get(name))
    }

    /// What is known of the functions that `name` may mean in `scope`: with several schemas on the
    /// path, the first that has it, `pg_catalog` first.
    pub fn function(
        &self,
        scope: &NameScope,
        schema: Option<&str>,
        name: &str,
    ) -> Option<&Function> {
        let find = |schema: &str| {
            let builtin = (schema == "pg_catalog").then(|| self.builtin_functions.get(name));
            builtin.flatten().or_else(|| self.functions.get(schema)?.get(name))
        };
        let is_own = OUTPUT_FUNCTIONS.contains(&name) || CATALOG_FUNCTIONS.contains(&name);
        if schema == Some("tutti") && is_own {
            return Some(&OUTPUT_FUNCTION);
        }
        if let Some(schema) = schema {
            return find(schema);
        }
        find("pg_catalog").or_else(|| scope.search_path.iter().find_map(|schema| find(schema)))
    }
}

/// `name` as an SQL identifier, always quoted, so that no keyword list is needed.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `value` as an SQL string literal that means the same whatever `standard_conforming_strings` is.
pub fn quote_literal(value: &str) -> String {
    let doubled = value.replace('\'', "''");
    if doubled.contains('\\') {
        format!(" E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}
