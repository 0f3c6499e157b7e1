//! What a session itself does: transactions, settings, prepared statements, and Tutti's own functions.
//!
//! Owns: what was asked for. Never: remembers anything of a session.
//! Start reading at [`TransactionControl`], [`Setting`] and [`PreparedCommand`].

use crate::closure::Declaration;
use crate::statement::DistributeBy;

/// Whom a signal is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SignalTarget {
    /// The session itself: `pg_backend_pid()`.
    Own,
    /// A literal.
    Constant(i32),
    /// The client's parameter with this index, counted from 0.
    Parameter(u16),
}

/// Transaction modes, as far as they are given.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TransactionModes {
    /// Isolation level: `read committed`, `repeatable read`, `serializable`, `read uncommitted`.
    pub isolation: Option<String>,
    /// READ ONLY / READ WRITE.
    pub read_only: Option<bool>,
    /// DEFERRABLE / NOT DEFERRABLE.
    pub deferrable: Option<bool>,
}

/// Statements about transactions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TransactionControl {
    /// BEGIN / START TRANSACTION.
    Begin {
        /// What is given.
        modes: TransactionModes,
        /// START TRANSACTION, whose command tag says so.
        start: bool,
    },
    /// COMMIT / END, with AND CHAIN.
    Commit {
        /// AND CHAIN.
        chain: bool,
    },
    /// ROLLBACK / ABORT, with AND CHAIN.
    Rollback {
        /// AND CHAIN.
        chain: bool,
    },
    /// SAVEPOINT name.
    Savepoint(String),
    /// RELEASE name.
    Release(String),
    /// ROLLBACK TO name.
    RollbackTo(String),
    /// PREPARE TRANSACTION with this identifier.
    Prepare(String),
    /// COMMIT PREPARED or ROLLBACK PREPARED with this identifier.
    EndPrepared(String),
}

/// SET and the like.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Setting {
    /// `SET [SESSION] name …`, also `SET TIME ZONE`, `SET ROLE`, `SET SESSION AUTHORIZATION`.
    Set {
        /// Lower-case name (`role`, `session_authorization`, `timezone` for the special forms).
        name: String,
    },
    /// `SET LOCAL name …`.
    SetLocal {
        /// Lower-case name.
        name: String,
        /// `SET LOCAL name TO DEFAULT`.
        to_default: bool,
    },
    /// `SET TRANSACTION …`.
    SetTransaction {
        /// What is given.
        modes: TransactionModes,
        /// SET SESSION CHARACTERISTICS AS TRANSACTION.
        session: bool,
        /// `SET TRANSACTION SNAPSHOT` was used.
        snapshot: bool,
    },
    /// SET CONSTRAINTS: for this transaction, on every node.
    SetConstraints {
        /// As SQL; empty for ALL.
        names: Vec<String>,
        /// DEFERRED or IMMEDIATE.
        deferred: bool,
    },
    /// `RESET name`.
    Reset {
        /// Lower-case name.
        name: String,
    },
    /// RESET ALL.
    ResetAll,
    /// `SHOW name` / SHOW ALL.
    Show {
        /// Lower-case name, `all` for all.
        name: String,
    },
    /// DISCARD ALL / PLANS / SEQUENCES / TEMP.
    Discard {
        /// Lower-case word.
        what: String,
    },
    /// `SELECT set_config('name', 'value', is_local)` with constant arguments: run on node 1 for its
    /// answer, remembered as SET.
    SetConfig {
        /// Lower-case name.
        name: String,
        /// The value; `None` for NULL.
        value: Option<String>,
        /// Third argument.
        local: bool,
    },
}

/// PREPARE, EXECUTE and DEALLOCATE.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PreparedCommand {
    /// `PREPARE name (types) AS text`.
    Prepare {
        /// Name.
        name: String,
        /// Declared types, as written.
        types: Vec<String>,
        /// The statement after AS.
        text: String,
    },
    /// `EXECUTE name (arguments)`.
    Execute {
        /// Name.
        name: String,
        /// Arguments as SQL expressions.
        arguments: Vec<String>,
    },
    /// A statement around EXECUTE: `EXPLAIN EXECUTE name (arguments)`, `CREATE TABLE … AS EXECUTE …`.
    Within {
        /// The text before EXECUTE.
        before: String,
        /// Name.
        name: String,
        /// Arguments as SQL expressions.
        arguments: Vec<String>,
        /// The text after the arguments.
        after: String,
    },
    /// `DEALLOCATE name`; `None` for ALL.
    Deallocate(Option<String>),
}

/// Functions that the gateway answers itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TuttiCall {
    /// `tutti_distribute('table', 'column', …)`: HASH by that column;
    /// `tutti_replicate('table', …)`; `tutti_round_robin('table', …)`; `tutti_home('table', …)`.
    Distribute {
        /// The function's name (the answer's column name).
        function: String,
        /// Table names as given (may be qualified; parsed as regclass does), and to what. They go
        /// together: what may be when all are there, may be.
        tables: Vec<(String, DistributeBy)>,
    },
    /// `ALTER TABLE t DISTRIBUTE BY …`: the same for one table, and perhaps what refers to it.
    Place(Placing),
    /// `tutti_function('f', 'row')`: says where a function may run; NULL or `none` takes it back.
    Declare {
        /// The function, perhaps with the types of its arguments.
        function: String,
        /// What is said of it.
        declared: Option<Declaration>,
    },
    /// `tutti_outcome('gid')`: what became of a transaction.
    Outcome {
        /// Its identifier, as given.
        gid: String,
    },
    /// `pg_cancel_backend(n)`, `pg_terminate_backend(n)`: where n is a session of the gateway's, the
    /// gateway obeys; else it is a process of node 1.
    Signal {
        /// It is `pg_terminate_backend`.
        terminates: bool,
        /// The session or process.
        target: SignalTarget,
    },
    /// `tutti_begin('request', 1)` and its like: a request that is executed once, however often it is sent.
    Request(RequestCall),
    /// `tutti_version()`, `tutti_nodes()` and so on: information.
    Show(Shown),
}

/// What a client says of a request, each attempt at which is an instance of its family.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RequestCall {
    /// `tutti_begin(family, instance)`: begins the transaction of an instance, or tells what an earlier one has
    /// committed.
    Begin {
        /// Which instance of which family.
        instance: InstanceNamed,
    },
    /// `tutti_prepare(family, instance, request, result)`: what is to be remembered of it; tells what is known of its
    /// family.
    Prepare {
        /// The one whose transaction is open.
        instance: InstanceNamed,
        /// What was asked for.
        request: Value,
        /// What the client was to be told.
        result: Value,
    },
    /// `tutti_remember(result)`: the result, of the instance whose transaction is open.
    Remember {
        /// What the client was to be told.
        result: Value,
    },
    /// `tutti_commit(family, instance)`: COMMIT, of this instance.
    Commit {
        /// The one whose transaction is open; `None`: whichever it is.
        instance: Option<InstanceNamed>,
    },
    /// `tutti_request(family)`: what is known of a family.
    Look {
        /// The family.
        family: Value,
    },
}

/// An instance as it was named in a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InstanceNamed {
    /// The request's identifier, which all its instances have in common.
    pub family: Value,
    /// Its number among these.
    pub number: Value,
}

/// A value in a call that the gateway answers itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// A literal, as text.
    Text(String),
    /// The client's parameter with this index, counted from 0.
    Parameter(u16),
    /// NULL.
    Null,
}

impl RequestCall {
    /// Its values, in the order of its arguments, and whether each is a number.
    pub fn values(&self) -> Vec<(&Value, bool)> {
        fn named(it: &InstanceNamed) -> [(&Value, bool); 2] {
            [(&it.family, false), (&it.number, true)]
        }
        match self {
            Self::Begin { instance } => named(instance).to_vec(),
            Self::Prepare { instance, request, result } => {
                let [family, number] = named(instance);
                vec![family, number, (request, false), (result, false)]
            }
            Self::Remember { result } => vec![(result, false)],
            Self::Commit { instance } => {
                instance.as_ref().map_or_else(Vec::new, |it| named(it).to_vec())
            }
            Self::Look { family } => vec![(family, false)],
        }
    }
}

/// What ALTER TABLE … DISTRIBUTE BY asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Placing {
    /// The table, as a SQL name.
    pub table: String,
    /// Its new placement.
    pub distribute_by: DistributeBy,
    /// IF EXISTS.
    pub if_exists: bool,
    /// CASCADE: tables that refer to it go along.
    pub cascades: bool,
}

/// What [`TuttiCall::Show`] shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shown {
    /// The gateway's version.
    Version,
    /// Where the nodes are.
    Nodes,
    /// Where the rows of tables are.
    Tables,
    /// What has been declared of functions.
    Functions,
    /// Transactions in doubt.
    InDoubt,
    /// How the catalog in memory differs from the nodes'.
    Check,
    /// How far asynchronously replicated tables are behind.
    Lag,
    /// How far tables are that are getting another placement.
    Progress,
}

impl Shown {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Version,
        Self::Nodes,
        Self::Tables,
        Self::Functions,
        Self::InDoubt,
        Self::Lag,
        Self::Progress,
        Self::Check,
    ];

    /// The function that shows it, which takes no arguments.
    pub fn function(self) -> &'static str {
        match self {
            Self::Version => "tutti_version",
            Self::Nodes => "tutti_nodes",
            Self::Tables => "tutti_tables",
            Self::Functions => "tutti_functions",
            Self::InDoubt => "tutti_in_doubt",
            Self::Check => "tutti_check",
            Self::Lag => "tutti_lag",
            Self::Progress => "tutti_progress",
        }
    }
}
