//! How much of the catalog a schema change can change.
//!
//! Owns: which statements change relations alone, with what belongs to them: then only those that the
//! transaction has locked have to be read again, however many there are.
//! Never: trusts a statement that runs user-defined code, or that drops dependents (CASCADE):
//! functions, types and casts may be among them.
//! Start reading at [`is_of_relations`].

use pg_query::NodeEnum;
use pg_query::protobuf::{AlterTableType, DropBehavior, GrantTargetType, Node, ObjectType};

use super::temporary;
use crate::closure::Reach;
use crate::planner::context::Context;

/// Whether a statement creates, changes and drops only relations that are not temporary, and what
/// belongs to them: columns, constraints, indexes, triggers, rules, policies, statistics, comments.
pub(in crate::planner) fn is_of_relations(
    tree: &NodeEnum,
    reach: &Reach,
    context: &Context<'_>,
) -> bool {
    let runs_code = reach.opaque.is_some() || reach.sets || reach.leaves;
    !runs_code
        && !context.catalog.code.has_event_triggers()
        && changes_relations(tree)
        && matches!(temporary::concerns_only_temporary(tree, context), Ok(false))
}

fn changes_relations(tree: &NodeEnum) -> bool {
    match tree {
        NodeEnum::CreateStmt(_)
        | NodeEnum::ViewStmt(_)
        | NodeEnum::CreateTrigStmt(_)
        | NodeEnum::RuleStmt(_)
        | NodeEnum::CreatePolicyStmt(_)
        | NodeEnum::AlterPolicyStmt(_)
        | NodeEnum::CreateSeqStmt(_)
        | NodeEnum::AlterSeqStmt(_)
        | NodeEnum::CommentStmt(_) => true,
        NodeEnum::CreateTableAsStmt(create) => {
            let query = create.query.as_ref().and_then(|query| query.node.as_ref());
            let lasts = |range: &pg_query::protobuf::RangeVar| range.relpersistence != "t";
            matches!(query, Some(NodeEnum::SelectStmt(_)))
                && create.into.as_ref().and_then(|into| into.rel.as_ref()).is_some_and(lasts)
        }
        NodeEnum::IndexStmt(index) => !index.concurrent,
        NodeEnum::AlterTableStmt(alter) => {
            is_relation(alter.objtype()) && alter.cmds.iter().all(is_contained)
        }
        NodeEnum::DropStmt(drop) => {
            let belongs = matches!(
                drop.remove_type(),
                ObjectType::ObjectTrigger | ObjectType::ObjectRule | ObjectType::ObjectPolicy
            );
            (belongs || is_relation(drop.remove_type()))
                && drop.behavior() != DropBehavior::DropCascade
                && !drop.concurrent
        }
        NodeEnum::GrantStmt(grant) => {
            grant.targtype() == GrantTargetType::AclTargetObject && is_relation(grant.objtype())
        }
        _ => false,
    }
}

/// Not composite types, whose ALTER TABLE says what they are to the tables that use them.
fn is_relation(kind: ObjectType) -> bool {
    matches!(
        kind,
        ObjectType::ObjectTable
            | ObjectType::ObjectView
            | ObjectType::ObjectMatview
            | ObjectType::ObjectIndex
            | ObjectType::ObjectSequence
    )
}

/// Whether a part of ALTER TABLE changes only what the statement locks.
fn is_contained(command: &Node) -> bool {
    let Some(NodeEnum::AlterTableCmd(command)) = &command.node else { return false };
    command.behavior() != DropBehavior::DropCascade
        && !matches!(
            command.subtype(),
            // In transactions of its own where it is CONCURRENTLY.
            AlterTableType::AtDetachPartition | AlterTableType::AtDetachPartitionFinalize
        )
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture;

    #[test]
    fn what_changes_relations_alone() {
        for sql in [
            "CREATE TABLE t (id int PRIMARY KEY, at timestamptz DEFAULT now())",
            "CREATE TABLE t AS SELECT id FROM orders",
            "ALTER TABLE orders ADD COLUMN x int, DROP COLUMN y",
            "CREATE UNIQUE INDEX ON orders (id, lower(note))",
            "CREATE VIEW v AS SELECT id FROM orders",
            "CREATE TRIGGER t BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION audit()",
            "DROP TABLE orders, items",
            "COMMENT ON TABLE orders IS 'sold'",
        ] {
            let planned = fixture::planned(sql, 3);
            assert!(planned.contains("of_relations: true"), "{sql}: {planned}");
        }
        for sql in [
            "DROP TABLE orders CASCADE",
            "ALTER TABLE orders DROP COLUMN x CASCADE",
            "ALTER TABLE orders RENAME TO sold",
            "CREATE TYPE mood AS ENUM ('glad')",
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "DROP FUNCTION tidy()",
            "CREATE SCHEMA s",
            "CREATE EXTENSION hstore",
            "ALTER TABLE orders ADD COLUMN x int DEFAULT place_order()",
            "CREATE TEMP TABLE t (id int)",
            "DROP TABLE scratch",
        ] {
            let planned = fixture::planned(sql, 3);
            assert!(!planned.contains("of_relations: true"), "{sql}: {planned}");
        }
    }
}
