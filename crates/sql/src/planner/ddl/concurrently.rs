//! CREATE INDEX CONCURRENTLY and DROP INDEX CONCURRENTLY where several nodes have the table.
//!
//! Owns: which may be made so, and what an index is called that the statement leaves without a name.
//! Never: orders the nodes; the executor does.
//!
//! They are in no transaction with others, so what a plain CREATE INDEX is refused for after it has run must be known
//! before it runs: whether a unique index can be enforced.

use pg_query::NodeEnum;
use pg_query::protobuf::{DropBehavior, DropStmt, IndexElem, IndexStmt, Node};

use super::refused;
use crate::catalog::{Column, Placement, Relation, quote_identifier};
use crate::plan::{
    AddedIndex, ConcurrentIndex, DroppedIndex, IndexName, Planned, SchemaPlan, Unnamed,
};
use crate::planner::context::Context;
use crate::planner::gaps::refuse_marked;
use crate::planner::output_names::figure;
use crate::planner::sql_text::deparse;
use crate::planner::syntax::string;
use crate::refusal::Refusal;

/// Stands for the index's name until it is known. (Its beginning is what no client's statement may say.)
const NAME: &str = "tutti:gap:name";

/// Bytes that a name may have.
const NAME_MAX: usize = 63;

pub(super) fn plan_create(index: &IndexStmt, context: &Context<'_>) -> Result<Planned, Refusal> {
    let relation = index.relation.as_ref().and_then(|range| context.relation(range));
    let relation = match relation {
        None => return Ok(Planned::at_home("no such table is known; node 1 says so")),
        Some(relation) => relation,
    };
    match relation.placement {
        Placement::Home if context.catalog.home_by_default => {
            return Ok(Planned::at_home("it concerns node 1 alone"));
        }
        Placement::Async { .. } => return Err(refused::concurrently("CREATE INDEX")),
        // Where every node has the whole schema, also of what has its rows on node 1.
        Placement::Home
        | Placement::Hash { .. }
        | Placement::HashOfSeveral { .. }
        | Placement::RoundRobin
        | Placement::Replicated => (),
    }
    if let Some(opaque) = context.opaque {
        return Err(Refusal::unsupported(
            "CREATE INDEX CONCURRENTLY cannot call this code",
            format!("Each node would run it, and nobody could tell what it does: {opaque}."),
            "Leave CONCURRENTLY out.",
        ));
    }
    if index.unique {
        check_unique(index, relation)?;
    }
    let name = match index.idxname.as_str() {
        "" => IndexName::Unnamed(unnamed(index, relation)?),
        name => IndexName::Written(name.to_owned()),
    };
    let added = AddedIndex {
        schema: relation.schema.clone(),
        table: relation.name.clone(),
        name,
        if_not_exists: index.if_not_exists,
    };
    Ok(Planned::new(
        SchemaPlan::Concurrently(ConcurrentIndex::Added(added)),
        "each node makes the index for its own rows, one after the other",
    ))
}

/// A unique index must hold over all nodes.
fn check_unique(index: &IndexStmt, relation: &Relation) -> Result<(), Refusal> {
    if matches!(relation.placement, Placement::Replicated | Placement::Home) {
        return Ok(());
    }
    let key = relation.placement.key_columns().into_iter();
    let key: Vec<_> = key.filter_map(|key| relation.columns.get(key.column)).collect();
    let named = index.index_params.iter().filter_map(element);
    let compared: Vec<_> =
        named.filter(|it| it.collation.is_empty() && it.opclass.is_empty()).collect();
    let is_compared = |key: &&Column| compared.iter().any(|it| it.name == key.name);
    if !key.is_empty() && key.iter().all(is_compared) {
        return Ok(());
    }
    let called = match index.idxname.as_str() {
        "" => "a unique index".to_owned(),
        name => format!("unique constraint \"{name}\""),
    };
    let message = format!("{called} of table \"{}\" cannot be enforced", relation.name);
    let names: Vec<_> = key.iter().map(|column| format!("\"{}\"", column.name)).collect();
    Err(match names.is_empty() {
        false => Refusal::unsupported(
            message,
            format!(
                "Table \"{}\" is distributed by {}. Rows that differ in {} can be on different \
                 nodes, where no node can check the constraint.",
                relation.name,
                names.join(" and "),
                if names.len() == 1 { "it" } else { "one of them" },
            ),
            format!(
                "Include {} in the unique constraint, or make the table REPLICATED.",
                names.join(" and ")
            ),
        ),
        true => Refusal::unsupported(
            message,
            format!(
                "The rows of round robin table \"{}\" can be on any node, where no node can check the \
                 constraint.",
                relation.name
            ),
            "Distribute the table BY HASH of a column of the unique constraint, or make it REPLICATED.",
        ),
    })
}

fn element(node: &Node) -> Option<&IndexElem> {
    match &node.node {
        Some(NodeEnum::IndexElem(element)) => Some(element),
        _ => None,
    }
}

/// Servers choose names that they do not have yet, and have not the same: it is chosen here.
fn unnamed(index: &IndexStmt, relation: &Relation) -> Result<Unnamed, Refusal> {
    let tree = |index: &IndexStmt| NodeEnum::IndexStmt(Box::new(index.clone()));
    refuse_marked(&tree(index))?;
    let text = deparse(&tree(&IndexStmt { idxname: NAME.to_owned(), ..index.clone() }))?;
    let Some((before, behind)) = text.split_once(&quote_identifier(NAME)) else {
        return Err(Refusal::postgres("XX000", "the name of an index cannot be put in its text"));
    };
    let mut names: Vec<String> = Vec::new();
    for column in index.index_params.iter().chain(&index.index_including_params) {
        names.push(column_name(column, &names));
    }
    let mut columns = String::new();
    for name in names {
        if !columns.is_empty() {
            columns.push('_');
        }
        columns.push_str(&name);
        if NAME_MAX < columns.len() {
            break;
        }
    }
    Ok(Unnamed {
        table: relation.name.clone(),
        columns,
        before: before.to_owned(),
        behind: behind.to_owned(),
    })
}

/// `ChooseIndexColumnNames` of PostgreSQL's indexcmds.c.
fn column_name(column: &Node, others: &[String]) -> String {
    let name = element(column).map_or("expr", |element| {
        let figured = || Some(figure(element.expr.as_deref()?.node.as_ref()?));
        match (element.indexcolname.as_str(), element.name.as_str()) {
            ("", "") => figured().filter(|name| *name != "?column?").unwrap_or("expr"),
            ("", name) | (name, _) => name,
        }
    });
    let taken = |name: &String| others.contains(name);
    let first = name.to_owned();
    if !taken(&first) {
        return first;
    }
    let numbered = (1_u32..).map(|number| {
        let number = number.to_string();
        format!("{}{number}", clipped(name, NAME_MAX - number.len()))
    });
    let mut free = numbered.filter(|name| !taken(name));
    free.next().unwrap_or(first)
}

/// `makeObjectName` of the same file: `table_columns_label`, cut to what a name may have.
pub fn index_name(table: &str, columns: &str, label: &str) -> String {
    let available = NAME_MAX.saturating_sub(label.len() + 2);
    let (mut of_table, mut of_columns) = (table.len(), columns.len());
    while available < of_table + of_columns {
        match of_columns < of_table {
            true => of_table -= 1,
            false => of_columns -= 1,
        }
    }
    format!("{}_{}_{label}", clipped(table, of_table), clipped(columns, of_columns))
}

/// As much as fits into so many bytes.
fn clipped(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// DROP INDEX CONCURRENTLY: of which table the index is, only node 1 knows.
pub(super) fn plan_drop(drop: &DropStmt) -> Planned {
    let name = |object: &Node| match &object.node {
        Some(NodeEnum::List(list)) => {
            let parts: Vec<_> =
                list.items.iter().filter_map(string).map(quote_identifier).collect();
            parts.join(".")
        }
        _ => String::new(),
    };
    let name = match &drop.objects[..] {
        [only] if drop.behavior() != DropBehavior::DropCascade => Some(name(only)),
        // PostgreSQL refuses it.
        _ => None,
    };
    let dropped = DroppedIndex { name, if_exists: drop.missing_ok };
    Planned::new(
        SchemaPlan::Concurrently(ConcurrentIndex::Dropped(dropped)),
        "each node drops its own index, node 1 last",
    )
}

#[cfg(test)]
mod tests {
    use super::{clipped, index_name};

    #[test]
    fn names_are_cut_as_postgresql_cuts_them() {
        assert_eq!(index_name("orders", "customer_id", "idx"), "orders_customer_id_idx");
        let long = "a".repeat(40);
        assert_eq!(
            index_name(&long, &"b".repeat(40), "idx"),
            format!("{}_{}_idx", "a".repeat(29), "b".repeat(29))
        );
        assert_eq!(index_name(&long, "id", "idx1"), format!("{long}_id_idx1"));
        assert_eq!(clipped("aäb", 2), "a");
    }
}
