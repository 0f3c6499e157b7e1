//! A client's text as single statements, parsed by PostgreSQL's own grammar.
//!
//! Owns: splitting, the `DISTRIBUTE BY` clause (which PostgreSQL's grammar does not know), parse
//! errors as PostgreSQL words them.
//! Never: looks at the catalog.

/// What a `DISTRIBUTE BY` clause asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DistributeBy {
    /// `DISTRIBUTE BY HASH (column)`; the name is folded as PostgreSQL folds identifiers.
    Hash(String),
    /// `DISTRIBUTE BY ROUND ROBIN` (or `ROUNDROBIN`).
    RoundRobin,
    /// `DISTRIBUTE BY REPLICATED` (or `REPLICATION`).
    Replicated,
}

/// One statement of a client's text.
#[derive(Clone, Debug)]
pub struct Statement {
    /// Its text, without the semicolon, `DISTRIBUTE BY` taken out: what nodes receive.
    pub text: String,
    /// Where its text begins in the client's string, in bytes, for error positions.
    pub offset: usize,
    /// Its parse tree (`stmt` of PostgreSQL's `RawStmt`).
    pub tree: pg_query::NodeEnum,
    /// The clause that was taken out.
    pub distribute_by: Option<DistributeBy>,
    /// Highest `$n` in it; 0 if none.
    pub parameter_count: u16,
}
