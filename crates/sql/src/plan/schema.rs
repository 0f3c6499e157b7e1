//! Changes of the schema.
//!
//! Owns: which nodes a change concerns, and what the executor must do with it.
//! Never: checks what the change leaves behind; the executor does, on the catalog after the change.
//! Start reading at [`Ddl`].

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
    /// IF NOT EXISTS: an existing table keeps its registration.
    pub if_not_exists: bool,
    /// `CREATE TABLE … AS` / `SELECT INTO`: the nodes create it empty (`SchemaPlan::CreateTableAs`).
    pub filled_by: Option<String>,
}
