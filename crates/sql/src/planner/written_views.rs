//! Views that PostgreSQL writes through by itself, over tables that several nodes have parts of.
//!
//! Owns: what such a view is to a statement that writes it: a table, spread as the one below is by the column that shows
//! its distribution key.
//! Never: rewrites a statement. Each node has the view, and does what that asks for: its condition, its CHECK OPTION, its
//! owner's rights. What cannot be written PostgreSQL says there.
//! Start reading at [`as_table`].

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SelectStmt};

use super::context::Context;
use super::defaults::Evaluation;
use super::syntax::string;
use super::views::{contents, read_query, refuse_write};
use crate::catalog::{ComputedKey, KeyPart, Placement, Relation, RelationKind};
use crate::refusal::Refusal;

/// Views over one another are looked through so deep at most.
const DEPTH_MAX: usize = 64;

/// A view that is written as its table would be.
pub(super) struct WrittenView<'a> {
    /// The view as a table: its name and columns, the placement and the OID of the one below.
    pub(super) table: Arc<Relation>,
    /// That one.
    pub(super) base: &'a Arc<Relation>,
    /// Columns of it that the view does not show.
    hidden: Vec<usize>,
}

/// The view as a table, if it shows rows of one spread table, each node its own.
///
/// Errors: 0A000 if it is another view over what is spread.
pub(super) fn as_table<'a>(
    view: &'a Arc<Relation>,
    context: &Context<'a>,
) -> Result<WrittenView<'a>, Refusal> {
    let refuse = || refuse_write(view);
    let mut relation = view;
    // For each column of the view, which column it is of the relation that has been come to.
    let mut shown: Vec<Option<usize>> = (0..view.columns.len()).map(Some).collect();
    for _ in 0..DEPTH_MAX {
        let RelationKind::View { definition } = &relation.kind else {
            return table(view, relation, &shown).ok_or_else(refuse);
        };
        let contents = contents(relation, definition, context)?;
        // A trigger or a rule does something else than PostgreSQL would by itself.
        if relation.has_triggers || !contents.is_apart(context.opaque.is_some()) {
            return Err(refuse());
        }
        let Ok(NodeEnum::SelectStmt(select)) = read_query(relation, definition) else {
            return Err(refuse());
        };
        let [Node { node: Some(NodeEnum::RangeVar(range)) }] = &select.from_clause[..] else {
            return Err(refuse());
        };
        let below = context.relation(range).ok_or_else(refuse)?;
        let columns = columns_of(&select, below);
        shown = shown.iter().map(|column| *columns.get((*column)?)?).collect();
        relation = below;
    }
    Err(refuse())
}

/// For each output of a view's query, which column of the only relation in its FROM it is.
fn columns_of(select: &SelectStmt, below: &Relation) -> Vec<Option<usize>> {
    let column = |target: &Node| {
        let Some(NodeEnum::ResTarget(target)) = &target.node else { return None };
        match &target.val.as_ref()?.node {
            Some(NodeEnum::ColumnRef(reference)) => {
                below.column(reference.fields.last().and_then(string)?)
            }
            _ => None,
        }
    };
    select.target_list.iter().map(column).collect()
}

/// `view` as a table over `base`, of which it shows these columns.
fn table<'a>(
    view: &Relation,
    base: &'a Arc<Relation>,
    shown: &[Option<usize>],
) -> Option<WrittenView<'a>> {
    if base.kind != RelationKind::Table || shown.len() != view.columns.len() {
        return None;
    }
    // In which columns the view shows one of the key.
    let places = |column: usize| {
        let of_column =
            |(place, shown): (usize, &Option<usize>)| (*shown == Some(column)).then_some(place);
        shown.iter().enumerate().filter_map(of_column).collect::<Vec<_>>()
    };
    let placement = match &base.placement {
        Placement::Hash { key, key_type, map } => match places(*key)[..] {
            [key] => Placement::Hash { key, key_type: *key_type, map: *map },
            // Nobody can say where a row is, nor put it elsewhere.
            [] => Placement::RoundRobin,
            // It could be changed by either name.
            _ => return None,
        },
        Placement::HashOfSeveral { key, map } => {
            let columns: Vec<_> = key.iter().map(|key| places(key.column)).collect();
            // A part of it could be changed.
            let shows_part = columns.iter().any(|places| places.len() != 1);
            match columns.iter().all(Vec::is_empty) {
                true => Placement::RoundRobin,
                false if shows_part => return None,
                false => {
                    let column = |(key, places): (&KeyPart, &Vec<usize>)| KeyPart {
                        column: places[0],
                        ..*key
                    };
                    let key = key.iter().zip(&columns).map(column).collect();
                    Placement::HashOfSeveral { key, map: *map }
                }
            }
        }
        Placement::RoundRobin => Placement::RoundRobin,
        Placement::Replicated | Placement::Async { .. } | Placement::Home => return None,
    };
    let computed_keys = base.computed_keys.iter();
    let computed_keys =
        computed_keys.map(|key| shown_of(key, &places)).collect::<Option<Vec<_>>>()?;
    let computed_keys = computed_keys.into_iter().flatten().collect();
    let mut columns = view.columns.clone();
    for (column, shown) in columns.iter_mut().zip(shown) {
        let Some(of) = shown.and_then(|shown| base.columns.get(shown)) else { continue };
        // What the view says of a default comes first.
        column.default = column.default.take().or_else(|| of.default.clone());
        column.generated = of.generated;
        column.identity = of.identity;
        column.type_modifier = of.type_modifier;
        column.declared_type.clone_from(&of.declared_type);
    }
    let table = Relation {
        kind: RelationKind::Table,
        placement,
        columns,
        oid: base.oid,
        primary_key: Vec::new(),
        has_triggers: base.has_triggers,
        row_security: base.row_security,
        computed_keys,
        ..view.clone()
    };
    let hidden = (0..base.columns.len()).filter(|column| !shown.contains(&Some(*column))).collect();
    Some(WrittenView { table: Arc::new(table), base, hidden })
}

/// A computed column of a table's key as a view shows it, with all that it is computed from; nothing where it shows
/// none of these. `None`: some of them, so that nobody could say where a row belongs whose part is changed.
fn shown_of(
    key: &ComputedKey,
    places: &dyn Fn(usize) -> Vec<usize>,
) -> Option<Option<ComputedKey>> {
    let reads: Vec<_> = key.reads.iter().map(|read| places(*read)).collect();
    if reads.iter().all(Vec::is_empty) {
        return Some(None);
    }
    let [column] = places(key.column)[..] else { return None };
    let reads = reads.iter().map(|places| match places[..] {
        [place] => Some(place),
        _ => None,
    });
    // By other names, the expression would be another: nothing is computed by it.
    let key = ComputedKey {
        column,
        expression: String::new(),
        reads: reads.collect::<Option<_>>()?,
        exact: false,
    };
    Some(Some(key))
}

impl WrittenView<'_> {
    /// Whether each row says where it belongs, or may be anywhere.
    pub(super) fn shows_key(&self) -> bool {
        self.table.placement.is_distributed()
            && self.table.placement.key_map() == self.base.placement.key_map()
    }

    /// The first column that the view does not show and whose default the nodes cannot give: `several` of them, of which
    /// each would take its own time, or any.
    pub(super) fn hidden_default(&self, several: bool, context: &Context<'_>) -> Option<&str> {
        let evaluation = Evaluation::of(self.base, context);
        let is_once = |column: usize| match several {
            true => evaluation.once_for_several_nodes(column),
            false => evaluation.once(column),
        };
        let has_default = |column: usize| self.base.columns[column].default.is_some();
        let mut hidden = self.hidden.iter().copied();
        let found = hidden.find(|column| has_default(*column) && is_once(*column))?;
        Some(&self.base.columns[found].name)
    }
}
