//! Schema changes that Tutti does not make, and why.
//!
//! Owns: the words of these refusals. Never: refuses what depends on the catalog.

use pg_query::NodeEnum;

use super::super::Context;
use crate::refusal::Refusal;

/// The refusal of statements that are refused whatever they are about.
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
        NodeEnum::IndexStmt(index) if index.concurrent => concurrently("CREATE INDEX"),
        NodeEnum::DropStmt(drop) if drop.concurrent && !context.catalog.home_by_default => {
            concurrently("DROP INDEX")
        }
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

/// The refusal of `command … CONCURRENTLY`.
pub(in crate::planner) fn concurrently(command: &str) -> Refusal {
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
