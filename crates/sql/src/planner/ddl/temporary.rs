//! Whether a schema change is about temporary objects, which node 1 alone has.
//!
//! Owns: finding the relations that a statement changes. Never: tracks what is temporary; the
//! session does ([`crate::catalog::NameScope::temporary`]).

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, ObjectType, RangeVar};

use crate::catalog::Placement;
use crate::planner::context::Context;
use crate::planner::mentions;
use crate::planner::syntax::string;
use crate::planner::temporary::{
    all_temporary, is_in_temporary_schema, is_temporary, is_temporary_code, is_temporary_type,
    names_temporary,
};
use crate::refusal::Refusal;

/// A temporary child is on node 1, where its session is; its parent's rows must be there too, for a
/// statement about the parent is about the child.
fn refuse_spread_parent(parents: &[Node], context: &Context<'_>) -> Result<(), Refusal> {
    for parent in parents {
        let Some(NodeEnum::RangeVar(range)) = &parent.node else { continue };
        let Some(relation) = context.relation(range) else { continue };
        if relation.placement != Placement::Home {
            return Err(Refusal::unsupported(
                format!("a temporary table cannot be a child of \"{}\"", relation.name),
                "The parent's rows are on several nodes, a temporary table is on node 1: statements \
                 about the parent would miss it or not, depending on where they run.",
                "Bring the parent to node 1 (tutti_home), or use a temporary table without a parent.",
            ));
        }
    }
    Ok(())
}

/// Whether everything that the statement creates, changes or drops is temporary.
///
/// Errors: 0A000 for temporary and other relations in one statement: the ones are on node 1, the
/// others on all.
pub(super) fn concerns_only_temporary(
    tree: &NodeEnum,
    context: &Context<'_>,
) -> Result<bool, Refusal> {
    let range =
        |range: &Option<RangeVar>| range.as_ref().is_some_and(|range| is_temporary(range, context));
    let object = |object: &Option<Box<Node>>, parts_behind: usize| {
        object.as_ref().is_some_and(|object| {
            names_object(object, parts_behind, context) || is_temporary_code(object, context)
        })
    };
    let code =
        |object: &Option<Box<Node>>| object.as_ref().is_some_and(|o| is_temporary_code(o, context));
    Ok(match tree {
        NodeEnum::CreateStmt(create) => {
            let temporary = range(&create.relation);
            if temporary {
                refuse_spread_parent(&create.inh_relations, context)?;
            }
            temporary
        }
        NodeEnum::CreateTableAsStmt(_) => false,
        // A view over a temporary table is temporary even if it does not say so.
        NodeEnum::ViewStmt(view) => {
            range(&view.view)
                || view
                    .query
                    .as_ref()
                    .and_then(|query| query.node.as_ref())
                    .is_some_and(|query| mentions::of(query, context).temporary.is_some())
        }
        NodeEnum::CreateFunctionStmt(create) => is_in_temporary_schema(&create.funcname),
        NodeEnum::CreateEnumStmt(create) => is_in_temporary_schema(&create.type_name),
        NodeEnum::CreateRangeStmt(create) => is_in_temporary_schema(&create.type_name),
        NodeEnum::CreateDomainStmt(create) => is_in_temporary_schema(&create.domainname),
        NodeEnum::CompositeTypeStmt(create) => range(&create.typevar),
        NodeEnum::CreateSeqStmt(create) => range(&create.sequence),
        NodeEnum::AlterSeqStmt(alter) => range(&alter.sequence),
        NodeEnum::AlterTableStmt(alter) => {
            let temporary = range(&alter.relation);
            if temporary {
                let commands = alter.cmds.iter().filter_map(|command| match &command.node {
                    Some(NodeEnum::AlterTableCmd(command)) => command.def.as_deref().cloned(),
                    _ => None,
                });
                refuse_spread_parent(&commands.collect::<Vec<_>>(), context)?;
            }
            temporary
        }
        NodeEnum::IndexStmt(index) => range(&index.relation),
        NodeEnum::CreateTrigStmt(trigger) => range(&trigger.relation),
        NodeEnum::RuleStmt(rule) => range(&rule.relation),
        NodeEnum::CreatePolicyStmt(policy) => range(&policy.table),
        NodeEnum::AlterPolicyStmt(policy) => range(&policy.table),
        NodeEnum::RenameStmt(rename) => range(&rename.relation) || code(&rename.object),
        NodeEnum::AlterObjectSchemaStmt(alter) => range(&alter.relation) || code(&alter.object),
        NodeEnum::AlterOwnerStmt(alter) => range(&alter.relation) || code(&alter.object),
        NodeEnum::DefineStmt(define) => is_in_temporary_schema(&define.defnames),
        NodeEnum::AlterFunctionStmt(alter) => {
            alter.func.as_ref().is_some_and(|function| is_in_temporary_schema(&function.objname))
        }
        NodeEnum::AlterOperatorStmt(alter) => alter
            .opername
            .as_ref()
            .is_some_and(|operator| is_in_temporary_schema(&operator.objname)),
        NodeEnum::AlterEnumStmt(alter) => is_temporary_type(&alter.type_name, context),
        NodeEnum::AlterTypeStmt(alter) => is_temporary_type(&alter.type_name, context),
        NodeEnum::AlterDomainStmt(alter) => is_temporary_type(&alter.type_name, context),
        // A cast belongs to no schema, and goes with its types.
        NodeEnum::CreateCastStmt(cast) => {
            let sides = [&cast.sourcetype, &cast.targettype];
            sides.into_iter().flatten().any(|side| is_temporary_type(&side.names, context))
        }
        NodeEnum::ReplicaIdentityStmt(_) => false,
        NodeEnum::CreateStatsStmt(statistics) => all_temporary(&statistics.relations, context),
        NodeEnum::CommentStmt(comment) => {
            object(&comment.object, parts_behind_relation(comment.objtype()))
        }
        NodeEnum::SecLabelStmt(label) => {
            object(&label.object, parts_behind_relation(label.objtype()))
        }
        NodeEnum::TruncateStmt(truncate) => {
            one_kind(truncate.relations.iter().map(|relation| match &relation.node {
                Some(NodeEnum::RangeVar(range)) => is_temporary(range, context),
                _ => false,
            }))?
        }
        NodeEnum::GrantStmt(grant) => {
            one_kind(grant.objects.iter().map(|relation| match &relation.node {
                Some(NodeEnum::RangeVar(range)) => is_temporary(range, context),
                _ => false,
            }))?
        }
        NodeEnum::DropStmt(drop) => match drop.remove_type() {
            kind if parts_behind_relation(kind) == NO_RELATION => {
                one_kind(drop.objects.iter().map(|object| is_temporary_code(object, context)))?
            }
            kind => one_kind(
                drop.objects
                    .iter()
                    .filter(|object| !is_nowhere(object, kind, context))
                    .map(|object| names_object(object, parts_behind_relation(kind), context)),
            )?,
        },
        _ => false,
    })
}

/// Whether such a statement may change what code does, or what is there of it.
pub(super) fn changes_code(tree: &NodeEnum) -> bool {
    matches!(
        tree,
        NodeEnum::CreateFunctionStmt(_)
            | NodeEnum::AlterFunctionStmt(_)
            | NodeEnum::AlterDomainStmt(_)
            | NodeEnum::AlterTypeStmt(_)
            | NodeEnum::AlterOperatorStmt(_)
            | NodeEnum::DefineStmt(_)
            | NodeEnum::CreateCastStmt(_)
            | NodeEnum::RenameStmt(_)
            | NodeEnum::AlterObjectSchemaStmt(_)
            | NodeEnum::AlterOwnerStmt(_)
            | NodeEnum::DropStmt(_)
    )
}

/// Whether a statement that drops relations names one that is not there: node 1 says so, whatever the others are.
fn is_nowhere(object: &Node, kind: ObjectType, context: &Context<'_>) -> bool {
    // All of these are in the catalog.
    let are_known = matches!(
        kind,
        ObjectType::ObjectTable
            | ObjectType::ObjectView
            | ObjectType::ObjectMatview
            | ObjectType::ObjectSequence
            | ObjectType::ObjectForeignTable
    );
    let Some((schema, name)) = relation_of(object, 0) else { return false };
    are_known
        && !names_object(object, 0, context)
        && context.catalog.resolve(context.scope, schema, name).is_none()
}

/// All of them, or none; anything between is refused.
fn one_kind(temporary: impl Iterator<Item = bool>) -> Result<bool, Refusal> {
    let answers: Vec<bool> = temporary.collect();
    match (answers.contains(&true), answers.contains(&false)) {
        (true, true) => Err(Refusal::unsupported(
            "temporary and other relations cannot be changed by one statement",
            "Temporary ones are on node 1, the others on all nodes.",
            "Write one statement for the temporary ones and one for the others.",
        )),
        (any, _) => Ok(any),
    }
}

/// Marks kinds of objects that do not belong to a relation.
const NO_RELATION: usize = usize::MAX;

/// How many parts of an object's name follow its relation's.
fn parts_behind_relation(kind: ObjectType) -> usize {
    match kind {
        ObjectType::ObjectTable
        | ObjectType::ObjectView
        | ObjectType::ObjectSequence
        | ObjectType::ObjectIndex
        | ObjectType::ObjectMatview
        | ObjectType::ObjectForeignTable => 0,
        ObjectType::ObjectColumn
        | ObjectType::ObjectTrigger
        | ObjectType::ObjectRule
        | ObjectType::ObjectPolicy
        | ObjectType::ObjectTabconstraint => 1,
        _ => NO_RELATION,
    }
}

/// Whether an object's name (a list of its parts) is, or belongs to, a temporary relation.
fn names_object(object: &Node, parts_behind: usize, context: &Context<'_>) -> bool {
    relation_of(object, parts_behind)
        .is_some_and(|(schema, name)| names_temporary(schema.unwrap_or_default(), name, context))
}

/// Schema as written and name of the relation that an object's name (a list of its parts) begins with.
fn relation_of(object: &Node, parts_behind: usize) -> Option<(Option<&str>, &str)> {
    let Some(NodeEnum::List(list)) = &object.node else { return None };
    let parts: Vec<&str> = list.items.iter().filter_map(string).collect();
    match parts[..parts.len().checked_sub(parts_behind)?] {
        [.., schema, name] => Some((Some(schema), name)),
        [name] => Some((None, name)),
        [] => None,
    }
}
