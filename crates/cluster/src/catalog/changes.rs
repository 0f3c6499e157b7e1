//! What a client's transaction has changed of relations, asked on the nodes where it has.
//!
//! Owns: the reading of `tutti.changes` and `tutti.changed_oids` (`changes.sql`, which says what they
//! cost: in proportion to what was changed, not to what exists).
//! Never: is asked where functions, types or names may have changed too; then `load` reads
//! everything.
//! Start reading at [`read`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tutti_link::connection::{NodeConnection, Rows};
use tutti_sql::catalog::{Catalog, Maps, Relation, RelationKind};
use tutti_sql::closure::Code;

use super::code;
use super::load::{
    END_INSIDE, READS_CATALOG, print_definition, query_past_drops, read_columns, read_maps,
    read_relations, rules_of,
};
use super::oids::NodeOids;
use super::rows::Answer;
use crate::error::GatewayError;

/// Relations that a transaction has changed, as it sees them.
#[derive(Debug)]
pub struct RelationChanges {
    /// All of them; `None`: dropped, or not one that a client could name.
    pub relations: BTreeMap<u32, Option<Arc<Relation>>>,
    /// For views among them, the version of the rule that the definition belongs to.
    pub view_rules: BTreeMap<u32, String>,
    /// The bucket maps that they use.
    pub maps: Maps,
    /// The code that belongs to them.
    pub code: Code,
    /// Node 1's OIDs of them and of their row types.
    pub oids: NodeOids,
    /// Some of them are temporary.
    pub has_temporary: bool,
    /// Some of them are compared by a user-defined operator class, which the types know.
    pub compares_otherwise: bool,
}

/// Asks node 1, in the transaction that `home` is in.
///
/// Errors: a node's own, after which the transaction is aborted.
pub async fn read(
    home: &mut NodeConnection,
    base: &Catalog,
) -> Result<RelationChanges, GatewayError> {
    let [all, grave] = code::built_in_lists(base.code.built_in());
    let ask = format!("SELECT * FROM tutti.changes({all}, {grave});");
    let sql = [READS_CATALOG, &*ask, END_INSIDE[0], END_INSIDE[1]].join("\n");
    let node = home.node();
    let results = query_past_drops(home, &sql).await?;
    let told = results.into_iter().nth(1);
    let told = told.ok_or(GatewayError::Unreadable { node, what: "what was changed" })?;
    let mut parts = RowsByKind::of(told);
    let mut take = move |kinds: &[&str]| parts.take(kinds);

    let rows = take(&["changed"]);
    let changed = Answer { node, what: "locks", rows: &rows };
    let mut relations = BTreeMap::new();
    let (mut has_temporary, mut compares_otherwise) = (false, false);
    for row in 0..changed.len() {
        relations.insert(changed.number(row, 0)?, None);
        has_temporary |= changed.optional(row, 1) == Some("t");
        compares_otherwise |= changed.optional(row, 2) == Some("t");
    }

    let mut part = Code::new(Arc::clone(base.code.built_in()));
    code::read_types(&Answer { node, what: "types of rows", rows: &take(&["row"]) }, &mut part)?;
    code::read_attached(&Answer { node, what: "code", rows: &take(&["attached"]) }, &mut part)?;
    let written = take(&["child", "key"]);
    code::read_written_with(&Answer { node, what: "foreign keys", rows: &written }, &mut part)?;

    let rows = take(&["literal"]);
    for row in 0..rows.rows.len() {
        part.add_literal(&code::read_literal(rows.text(row, 0).unwrap_or_default()));
    }

    let rows = take(&["column"]);
    let columns = read_columns(&Answer { node, what: "columns", rows: &rows })?;
    let rows = take(&["relation"]);
    let answer = Answer { node, what: "relations", rows: &rows };
    let view_rules = rules_of(&answer)?;
    for (oid, mut relation) in read_relations(&answer, columns)? {
        relation.has_triggers = part.fires(oid);
        if let RelationKind::View { definition } = &mut relation.kind
            && definition.is_empty()
        {
            *definition = match known_definition(base, oid, view_rules.get(&oid)) {
                Some(known) => known,
                None => print_definition(home, oid).await?,
            };
        }
        relations.insert(oid, Some(Arc::new(relation)));
    }
    let mut oids = NodeOids::default();
    oids.add(node, &take(&["oid"]))?;
    Ok(RelationChanges {
        relations,
        view_rules,
        maps: read_maps(&Answer { node, what: "bucket maps", rows: &take(&["map"]) })?,
        code: part,
        oids,
        has_temporary,
        compares_otherwise,
    })
}

/// The known definition of a view whose rule is still the same.
fn known_definition(base: &Catalog, view: u32, rule: Option<&String>) -> Option<String> {
    base.view_rules.get(&view).filter(|known| Some(*known) == rule)?;
    let mut all = base.relations.values().flat_map(HashMap::values);
    match &all.find(|relation| relation.oid == view)?.kind {
        RelationKind::View { definition } => Some(definition.clone()),
        _ => None,
    }
}

/// The node's OIDs of what the transaction that `connection` is in has changed there.
pub async fn read_oids(connection: &mut NodeConnection) -> Result<NodeOids, GatewayError> {
    const ASK: &str = "SELECT * FROM tutti.changed_oids(tutti.changed_relations())";
    let rows = connection.rows(ASK).await?;
    let mut oids = NodeOids::default();
    oids.add(connection.node(), &rows)?;
    Ok(oids)
}

/// Rows of several kinds, told apart by their first column.
pub(super) struct RowsByKind(Vec<(String, Rows)>);

impl RowsByKind {
    /// Of what a function returned.
    pub(super) fn of(told: Rows) -> Self {
        let mut parts: Vec<(String, Rows)> = Vec::new();
        for mut row in told.rows {
            let Some(Some(kind)) = (!row.is_empty()).then(|| row.remove(0)) else { continue };
            let kind = String::from_utf8_lossy(&kind);
            match parts.last_mut().filter(|(known, _)| *known == kind) {
                Some((_, rows)) => rows.rows.push(row),
                None => {
                    let rows = Rows { rows: vec![row], tag: String::new() };
                    parts.push((kind.into_owned(), rows));
                }
            }
        }
        Self(parts)
    }

    /// The rows of these kinds.
    pub(super) fn take(&mut self, kinds: &[&str]) -> Rows {
        let mut taken = Rows::default();
        for (kind, rows) in &mut self.0 {
            if kinds.contains(&kind.as_str()) {
                taken.rows.append(&mut rows.rows);
            }
        }
        taken
    }
}
