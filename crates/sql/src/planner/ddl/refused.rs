//! Schema changes that Tutti does not make, and why.
//!
//! Owns: the words of these refusals. Never: refuses what depends on the catalog.

use pg_query::NodeEnum;
use pg_query::protobuf::{CoercionContext, CreateCastStmt, TypeName};

use crate::built_in_types;
use crate::planner::context::Context;
use crate::planner::syntax::string;
use crate::refusal::Refusal;

/// The refusal of statements that are always refused.
pub(super) fn always(tree: &NodeEnum, context: &Context<'_>) -> Option<Refusal> {
    let refusal = match tree {
        NodeEnum::CreatedbStmt(_)
        | NodeEnum::DropdbStmt(_)
        | NodeEnum::AlterDatabaseStmt(_)
        | NodeEnum::AlterDatabaseRefreshCollStmt(_) => Refusal::unsupported(
            "databases are not created, changed or dropped through Tutti",
            "A cluster serves one database, which has a name of its own on every node.",
            "Run the statement on each node directly; for a place of its own use CREATE SCHEMA.",
        ),
        NodeEnum::CreateTableSpaceStmt(_)
        | NodeEnum::DropTableSpaceStmt(_)
        | NodeEnum::AlterTableSpaceOptionsStmt(_) => Refusal::unsupported(
            "tablespaces are not managed through Tutti",
            "A tablespace is a directory of one server and cannot be made in a transaction.",
            "Run the statement on each node directly.",
        ),
        NodeEnum::AlterSystemStmt(_) => Refusal::unsupported(
            "ALTER SYSTEM is not supported",
            "It changes one server's configuration file and cannot be undone with the others.",
            "Change the configuration of each node directly.",
        ),
        NodeEnum::CreateSubscriptionStmt(_)
        | NodeEnum::AlterSubscriptionStmt(_)
        | NodeEnum::DropSubscriptionStmt(_) => Refusal::unsupported(
            "subscriptions are not supported",
            "A subscription would write rows into one node behind the cluster's back.",
            "Bring the rows in through Tutti with COPY or INSERT.",
        ),
        NodeEnum::LoadStmt(_) => Refusal::unsupported(
            "LOAD is not supported",
            "It loads a library into one session of one node; the gateway uses many.",
            "Set shared_preload_libraries on each node.",
        ),
        NodeEnum::CreateSchemaStmt(create)
            if !create.schema_elts.is_empty() && !context.catalog.home_by_default =>
        {
            Refusal::unsupported(
                "CREATE SCHEMA with objects inside is not supported",
                "Each table needs a placement of its own.",
                "Create the schema first and the objects in it by statements of their own.",
            )
        }
        _ => return None,
    };
    Some(refusal)
}

/// Errors: 0A000 for a cast between types of PostgreSQL's own, which would convert differently, or where no
/// conversion was asked for.
pub(in crate::planner) fn refuse_cast(cast: &CreateCastStmt) -> Result<(), Refusal> {
    let changes = cast.func.is_some() || cast.context() == CoercionContext::CoercionImplicit;
    match changes && [&cast.sourcetype, &cast.targettype].into_iter().flatten().all(is_built_in) {
        false => Ok(()),
        true => Err(Refusal::unsupported(
            "casts between built-in types are not supported",
            "A cast belongs to no schema: the gateway's own statements would call it, and so would rows \
             on their way between nodes.",
            "Call the function where the conversion is wanted.",
        )),
    }
}

/// Whether it is a built-in type that the gateway's own statements have values of: by its schema, which the
/// grammar adds to types with a name in the SQL language; or by its name, which nothing else should have.
fn is_built_in(name: &TypeName) -> bool {
    let words: Vec<_> = name.names.iter().filter_map(string).collect();
    matches!(words.as_slice(), ["pg_catalog", name] | [name] if built_in_types::is_of_own_statements(name))
}

/// The refusal of `command … CONCURRENTLY`.
pub(super) fn concurrently(command: &str) -> Refusal {
    Refusal::unsupported(
        format!("{command} CONCURRENTLY is not supported"),
        "It cannot run inside the one global transaction that makes schema changes all-or-nothing.",
        "Leave CONCURRENTLY out.",
    )
}

/// A materialized view over what has no copy on every node.
pub(super) fn materialized(name: &str) -> Refusal {
    Refusal::unsupported(
        "a materialized view over distributed tables is not supported",
        format!("Each node would fill its own copy from its own share of {name}."),
        "Use CREATE TABLE … AS and fill it again when it shall be refreshed.",
    )
}

/// `CREATE TABLE … AS EXECUTE`.
pub(super) fn execute() -> Refusal {
    Refusal::unsupported(
        "CREATE TABLE … AS EXECUTE is not supported",
        "Prepared statements are kept by the gateway, the nodes do not know them.",
        "Write the query itself behind AS.",
    )
}
