//! The schema `tutti` is the gateways' own, and so is what carries rows between nodes.
//!
//! Owns: refusing statements of clients that would change these, or call what it has: a restored dump brings rows that name
//! another cluster's tables by number, and `--clean` drops what this one knows of its own.
//! Never: hides it: it may be read. What a role may do there is up to the nodes; code that a node runs
//! is not checked here.
//! Start reading at [`refuse_changes`].

use std::slice;

use pg_query::NodeEnum;
use pg_query::protobuf::{FuncCall, Node, ObjectType, RangeVar};

use super::syntax::{string, written};
use crate::catalog::{CARRIERS, OUTPUT_FUNCTIONS};
use crate::refusal::Refusal;
use crate::statement::Statement;
use crate::walk;

const SCHEMA: &str = "tutti";
/// As `LockStmt` has it.
const ACCESS_SHARE: i32 = 1;

/// Errors: 42501 for a statement that writes rows of the schema `tutti`, or changes or locks what is in it.
pub(super) fn refuse_changes(statement: &Statement) -> Result<(), Refusal> {
    // Most statements do not say the word, and need not be looked through.
    let may_say = statement.text.contains(SCHEMA) || hides_words(&statement.text);
    if may_say && calls(&statement.tree) {
        return Err(Refusal::postgres("42501", "permission denied for functions of schema tutti")
            .with_detail("They are what gateways run on nodes, and do nothing for others."));
    }
    if may_say && changes(&statement.tree) {
        return Err(Refusal::postgres("42501", "permission denied for schema tutti")
            .with_detail("It is the cluster's own catalog, which gateways keep.")
            .with_hint(
                "Leave it out of dumps that are restored: pg_dump --exclude-schema=tutti.",
            ));
    }
    if may_say && changes_carriers(&statement.tree) {
        return Err(Refusal::postgres("42501", "permission denied for what carries rows between nodes")
            .with_detail("Rows of asynchronously replicated tables would not arrive.")
            .with_hint(
                "Leave it out of dumps that are restored: pg_dump --no-publications --no-subscriptions.",
            ));
    }
    Ok(())
}

/// Whether it changes publications or subscriptions of the gateways'.
fn changes_carriers(tree: &NodeEnum) -> bool {
    let is_own = |name: &str| name.starts_with(CARRIERS);
    let named = |object: &Node| string(object).is_some_and(is_own);
    let is_kind =
        |kind| matches!(kind, ObjectType::ObjectPublication | ObjectType::ObjectSubscription);
    match tree {
        NodeEnum::CreatePublicationStmt(create) => is_own(&create.pubname),
        NodeEnum::AlterPublicationStmt(alter) => is_own(&alter.pubname),
        NodeEnum::CreateSubscriptionStmt(create) => is_own(&create.subname),
        NodeEnum::AlterSubscriptionStmt(alter) => is_own(&alter.subname),
        NodeEnum::DropSubscriptionStmt(drop) => is_own(&drop.subname),
        NodeEnum::DropStmt(drop) => is_kind(drop.remove_type()) && drop.objects.iter().any(named),
        NodeEnum::RenameStmt(rename) => {
            is_kind(rename.rename_type()) && rename.object.as_deref().is_some_and(named)
        }
        NodeEnum::AlterOwnerStmt(alter) => {
            is_kind(alter.object_type()) && alter.object.as_deref().is_some_and(named)
        }
        _ => false,
    }
}

/// Whether names may be written as `U&"\0074utti"`.
fn hides_words(text: &str) -> bool {
    text.contains("U&\"") || text.contains("u&\"")
}

fn changes(tree: &NodeEnum) -> bool {
    match tree {
        // A dump reads the schema under a lock that blocks no one.
        NodeEnum::LockStmt(lock) => lock.mode != ACCESS_SHARE && any(&lock.relations),
        NodeEnum::CopyStmt(copy) if copy.is_from => range(copy.relation.as_ref()),
        NodeEnum::TruncateStmt(truncate) => any(&truncate.relations),
        NodeEnum::DropStmt(drop) => of_kind(drop.remove_type(), &drop.objects),
        NodeEnum::GrantStmt(grant) => of_kind(grant.objtype(), &grant.objects),
        NodeEnum::CommentStmt(comment) => {
            of_kind(comment.objtype(), comment.object.as_deref().map_or(&[], slice::from_ref))
        }
        NodeEnum::CreateStmt(create) => range(create.relation.as_ref()),
        NodeEnum::CreateSchemaStmt(create) => create.schemaname == SCHEMA,
        NodeEnum::CreateFunctionStmt(create) => qualified(&create.funcname),
        NodeEnum::CreateTrigStmt(create) => range(create.relation.as_ref()),
        NodeEnum::CreatePolicyStmt(create) => range(create.table.as_ref()),
        NodeEnum::AlterPolicyStmt(alter) => range(alter.table.as_ref()),
        NodeEnum::CreateSeqStmt(create) => range(create.sequence.as_ref()),
        NodeEnum::AlterSeqStmt(alter) => range(alter.sequence.as_ref()),
        NodeEnum::ViewStmt(view) => range(view.view.as_ref()),
        NodeEnum::RuleStmt(rule) => range(rule.relation.as_ref()),
        NodeEnum::IndexStmt(index) => range(index.relation.as_ref()),
        NodeEnum::AlterTableStmt(alter) => range(alter.relation.as_ref()),
        NodeEnum::AlterFunctionStmt(alter) => {
            alter.func.as_ref().is_some_and(|function| qualified(&function.objname))
        }
        NodeEnum::RenameStmt(rename) => {
            range(rename.relation.as_ref())
                || object(rename.object.as_deref())
                || rename.rename_type() == ObjectType::ObjectSchema && rename.subname == SCHEMA
        }
        NodeEnum::AlterOwnerStmt(alter) => {
            range(alter.relation.as_ref())
                || of_kind(
                    alter.object_type(),
                    alter.object.as_deref().map_or(&[], slice::from_ref),
                )
        }
        NodeEnum::AlterObjectSchemaStmt(alter) => {
            range(alter.relation.as_ref()) || object(alter.object.as_deref())
        }
        tree => writes_rows(tree),
    }
}

/// What a gateway itself calls in a client's statement, and what it answers by itself, counts as built in. Where a
/// call is nested deeper, in a function or a PREPARE, its body is unseen code like any other.
fn calls(tree: &NodeEnum) -> bool {
    let is_own = |call: &FuncCall| {
        let name = call.funcname.last().and_then(string).unwrap_or_default();
        qualified(&call.funcname)
            && !OUTPUT_FUNCTIONS.contains(&name)
            && !name.starts_with("tutti_")
    };
    let mut found = matches!(tree, NodeEnum::FuncCall(call) if is_own(call));
    walk::read::children(tree, &mut |child| {
        found = found || child.node.as_ref().is_some_and(calls);
    });
    found
}

/// Rows, by the statement or by one within it.
fn writes_rows(tree: &NodeEnum) -> bool {
    let target = written(tree);
    let within = match tree {
        NodeEnum::ExplainStmt(explain) => explain.query.as_deref(),
        NodeEnum::PrepareStmt(prepare) => prepare.query.as_deref(),
        NodeEnum::CopyStmt(copy) => copy.query.as_deref(),
        NodeEnum::CreateTableAsStmt(create) => create.query.as_deref(),
        _ => None,
    };
    let mut found =
        range(target) || within.and_then(|query| query.node.as_ref()).is_some_and(writes_rows);
    walk::read::children(tree, &mut |child| {
        found = found || child.node.as_ref().is_some_and(writes_rows);
    });
    found
}

fn range(range: Option<&RangeVar>) -> bool {
    range.is_some_and(|range| range.schemaname == SCHEMA)
}

fn of_kind(kind: ObjectType, objects: &[Node]) -> bool {
    let is_schema = |node: &Node| match &node.node {
        Some(NodeEnum::String(name)) => kind == ObjectType::ObjectSchema && name.sval == SCHEMA,
        _ => false,
    };
    any(objects) || objects.iter().any(is_schema)
}

fn any(objects: &[Node]) -> bool {
    objects.iter().any(|node| object(Some(node)))
}

fn object(node: Option<&Node>) -> bool {
    match node.and_then(|node| node.node.as_ref()) {
        Some(NodeEnum::RangeVar(named)) => range(Some(named)),
        Some(NodeEnum::List(list)) => qualified(&list.items),
        Some(NodeEnum::ObjectWithArgs(object)) => qualified(&object.objname),
        Some(NodeEnum::TypeName(name)) => qualified(&name.names),
        _ => false,
    }
}

fn qualified(name: &[Node]) -> bool {
    1 < name.len() && name.first().and_then(string) == Some(SCHEMA)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses(text: &str) -> bool {
        let statements = crate::statement::parse(text).expect("it is SQL");
        statements.iter().any(|statement| refuse_changes(statement).is_err())
    }

    #[test]
    fn whatever_changes_the_gateways_schema_is_refused() {
        for text in [
            "COPY tutti.placement FROM stdin",
            "INSERT INTO tutti.placement VALUES (1)",
            "WITH w AS (DELETE FROM tutti.bucket RETURNING *) SELECT * FROM w",
            "EXPLAIN ANALYZE UPDATE tutti.node SET id = 2",
            "COPY (DELETE FROM tutti.change RETURNING 1) TO stdout",
            "PREPARE p AS INSERT INTO tutti.change VALUES (1)",
            "DROP SCHEMA IF EXISTS tutti CASCADE",
            "DROP TABLE a, tutti.node",
            "DROP FUNCTION tutti.mark(boolean, text[])",
            "CREATE OR REPLACE FUNCTION tutti.mark() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "ALTER TABLE tutti.placement DISABLE ROW LEVEL SECURITY",
            "ALTER SCHEMA tutti RENAME TO t",
            "ALTER FUNCTION tutti.f() OWNER TO a",
            "GRANT ALL ON TABLE tutti.secret TO a",
            "GRANT ALL ON SCHEMA tutti TO a",
            "COMMENT ON TABLE tutti.node IS 'x'",
            "TRUNCATE tutti.decision",
            "LOCK TABLE tutti.serving",
            "CREATE PUBLICATION tutti_async FOR ALL TABLES",
            "ALTER PUBLICATION tutti_async DROP TABLE a",
            "ALTER PUBLICATION tutti_async RENAME TO b",
            "ALTER PUBLICATION tutti_async OWNER TO b",
            "DROP PUBLICATION a, tutti_async",
            "ALTER SUBSCRIPTION tutti_async_2 DISABLE",
            "ALTER SUBSCRIPTION tutti_async_2 RENAME TO b",
            "DROP SUBSCRIPTION tutti_async_1",
            "CREATE SUBSCRIPTION tutti_async_1 CONNECTION '' PUBLICATION a",
            "LOCK a, tutti.backend IN ROW SHARE MODE NOWAIT",
            "LOCK TABLE U&\"\\0074utti\".ticket",
            "SELECT tutti.run_work()",
            "SELECT * FROM t, LATERAL tutti.table_rows(a, b, '') WHERE id = 1",
            "INSERT INTO t SELECT coalesce((SELECT tutti.store_rows('a', 'b', 'all', '', NULL)), 1)",
        ] {
            assert!(refuses(text), "{text}");
        }
    }

    #[test]
    fn whoever_looks_may_read() {
        for text in [
            "SELECT * FROM tutti.placement",
            "COPY tutti.placement TO stdout",
            "LOCK TABLE tutti.placement IN ACCESS SHARE MODE",
            "CREATE TABLE t AS SELECT * FROM tutti.node",
            "INSERT INTO t SELECT * FROM tutti.node",
            "DROP TABLE tutti",
            "ALTER TABLE t RENAME tutti TO u",
            "SELECT tutti_home('t')",
            "GRANT ALL ON DATABASE tutti TO a",
            "COMMENT ON ROLE tutti IS 'x'",
            "DROP EXTENSION tutti",
            "CREATE PUBLICATION tutti FOR TABLE a",
            "DROP TABLE tutti_async",
        ] {
            assert!(!refuses(text), "{text}");
        }
    }
}
