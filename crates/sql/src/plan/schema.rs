//! Changes of the schema.
//!
//! Owns: which nodes a change concerns, and what the executor must do with it.
//! Never: checks what the change leaves behind; the executor does, on the catalog after the change.
//! Start reading at [`Ddl`].

use super::gather::Template;
use super::rows::RowsWrite;
use crate::statement::DistributeBy;

/// A statement that changes the schema.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ddl {
    /// Tables (not views) that it creates: `None` schema means the first of the search path. Their
    /// placement is registered in the same transaction.
    pub creates: Option<CreatedTable>,
    /// Something may have been dropped or renamed: registrations without a table are removed.
    pub may_drop: bool,
    /// Sequences may have been created, reset or altered (serial columns, TRUNCATE … RESTART
    /// IDENTITY): copies outside node 1 are disarmed again.
    pub touches_sequences: bool,
    /// Which nodes it is for.
    pub scope: DdlNodes,
    /// It changes relations alone and what belongs to them: no function, type, operator or cast.
    pub of_relations: bool,
    /// It recomputes rows of a replicated table, which need not come out the same everywhere: the
    /// copies then get those of node 1.
    pub rows: Option<RowsWrite>,
    /// The role whose name it takes. Other nodes may still have one of that name, which was dropped while
    /// all was on node 1.
    pub names_role: Option<String>,
    /// It adds columns of which rows that are there get what no node may compute by itself.
    pub computed: Option<Box<Computed>>,
    /// It fills a materialized view, which node 1 does, from rows that may be on several nodes.
    pub fills: Option<Box<FilledView>>,
    /// The unique index that it makes is to hold over all nodes by entries of its own.
    pub global_unique: Option<Box<GlobalIndex>>,
    /// It adds foreign keys, which hold over all nodes by entries of their own if the session wants that.
    pub foreign_keys: Option<Box<AddedForeignKeys>>,
    /// It truncates tables to which entries of foreign keys may refer.
    pub truncates: Option<Box<Truncated>>,
}

/// Tables that are truncated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Truncated {
    /// Those that it names, as SQL names.
    pub tables: Vec<String>,
    /// Those that refer to them are truncated as well.
    pub cascades: bool,
}

/// Foreign keys that a statement adds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AddedForeignKeys {
    /// The statement, if it is another, as nodes run it where such keys hold over all nodes: NOT VALID, for the rows that
    /// there are refer to rows of other nodes.
    pub unvalidated: Option<String>,
}

/// Such an index, as it is called.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GlobalIndex {
    /// Its table, by its OID on node 1.
    pub table: u32,
    /// The schema, its table's.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Its first column, by the position in the table's columns.
    pub first: usize,
}

/// A materialized view that a statement fills.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FilledView {
    /// A new one, over these tables.
    Made(Lending),
    /// One that is there: node 1 knows its query.
    Again {
        /// Its schema.
        schema: String,
        /// Its name.
        name: String,
        /// Readers go on reading it, for which a temporary table is made.
        concurrently: bool,
    },
}

/// What a query reads that node 1 runs as it is, for which tables are lent the rows of other nodes. OIDs are node 1's.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Lending {
    /// The distributed tables. None: nothing need be lent.
    pub tables: Vec<u32>,
    /// The views through which it reads.
    pub views: Vec<u32>,
    /// Tables of which node 1 has all rows.
    pub whole: Vec<u32>,
    /// Something that cannot be kept as it is until the transaction ends.
    pub unlockable: Option<String>,
}

impl Lending {
    pub(crate) fn add(&mut self, other: Self) {
        self.tables.extend(other.tables);
        self.views.extend(other.views);
        self.whole.extend(other.whole);
        self.unlockable = self.unlockable.take().or(other.unlockable);
    }
}

/// Values for rows that are there, of columns that are added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Computed {
    /// What all nodes are sent instead of the client's text, if it is another: gaps are for values that node 1 computes
    /// once for all.
    pub text: Option<Template>,
    /// Columns of distributed tables whose values come from sequences.
    pub draws: Vec<Draws>,
    /// A further change of the schema, once the copies are alike.
    pub afterwards: Option<String>,
}

/// A column whose values are drawn from a sequence: each node draws those of its rows from its own copy, and they are
/// then moved to a range of their own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Draws {
    /// The table, as a qualified SQL name.
    pub table: String,
    /// The column, as stored.
    pub column: String,
    /// The sequence as the client has written it; `None`: the column's own, which the statement makes.
    pub sequence: Option<String>,
}

/// Which nodes a schema change is for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum DdlNodes {
    /// All, alike: everything is on all nodes.
    #[default]
    AllNodes,
    /// Node 1 alone.
    Home,
    /// Node 1 alone, and no rule of placement can be broken by it: nothing is asked after it until the
    /// transaction needs to know what it has changed.
    HomeAsItIs,
    /// Node 1, and the others as far as they have what it concerns.
    Shared {
        /// OIDs (on node 1) of the tables on several nodes that it changes: with these it must succeed
        /// everywhere. None: on other nodes it may name what only node 1 has, and is then left out.
        relations: Vec<u32>,
        /// These may need more than before, which other nodes may lack.
        brings: bool,
        /// What other nodes are sent, if it is not the client's text.
        others: Option<String>,
        /// Further statements for other nodes, each about one object that they may have or not.
        each: Vec<String>,
    },
}

/// A table that a DDL statement creates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CreatedTable {
    /// Schema as written, if written.
    pub schema: Option<String>,
    /// Its name.
    pub name: String,
    /// The clause, if written.
    pub distribute_by: Option<DistributeBy>,
    /// `PARTITION OF` / `INHERITS`: takes the parent's placement (schema as written, name).
    pub parent: Option<(Option<String>, String)>,
    /// It says nothing of where its rows are, and refers to a table that is distributed by hash: it may go with that one.
    pub follows: bool,
    /// IF NOT EXISTS: an existing table keeps its registration.
    pub if_not_exists: bool,
    /// `CREATE TABLE … AS` / `SELECT INTO`: the nodes create it empty (`SchemaPlan::CreateTableAs`).
    pub filled_by: Option<String>,
}

/// An index that is made or dropped without keeping out writers: on one node after the other, outside of any
/// transaction block.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ConcurrentIndex {
    /// CREATE INDEX CONCURRENTLY: node 1 first.
    Added(AddedIndex),
    /// DROP INDEX CONCURRENTLY: node 1 last. Of what is not on several nodes: on node 1 alone.
    Dropped(DroppedIndex),
}

/// An index of a table of several nodes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AddedIndex {
    /// The table's schema, which is the index's too.
    pub schema: String,
    /// The table.
    pub table: String,
    /// What it is called.
    pub name: IndexName,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
}

/// What an index is to be called.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum IndexName {
    /// So.
    Written(String),
    /// As PostgreSQL would call it, the same on all nodes.
    Unnamed(Unnamed),
}

/// A statement that names no index.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unnamed {
    /// The first part of its name.
    pub table: String,
    /// The second.
    pub columns: String,
    /// The statement up to where the name stands.
    pub before: String,
    /// The rest of it.
    pub behind: String,
}

/// An index that is dropped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DroppedIndex {
    /// As a SQL name; `None`: there are several, or what depends on it is to go too, which PostgreSQL refuses.
    pub name: Option<String>,
    /// IF EXISTS.
    pub if_exists: bool,
}
