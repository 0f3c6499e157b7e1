//! Plans of MERGE into a table that several nodes have parts of.
//!
//! Owns: the proof that each row of the source acts on one node only, and what makes it so.
//! Never: says which buckets a node has; the executor fills that in.
//! Start reading at [`plan`]. The argument in full is docs/decisions/2026-11-27-merge-node-by-node.md.
//!
//! A node sees its own rows of the target. What WHEN MATCHED does needs no more, if the node has all rows of the source.
//! WHEN NOT MATCHED needs to know of no match anywhere: so ON must compare the distribution key with a column of the
//! source. Then a row of the source can match on the node of that value only, and that node alone may find that it does
//! not, and inserts it with that key.

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AExprKind, CmdType, ColumnRef, MergeMatchKind, MergeStmt, MergeWhenClause, Node,
    OverridingKind, ResTarget,
};

use super::writes::{
    around, at_pins, beside_collected, brought_from_home, refuse_differing, refuse_home_function,
};
use crate::catalog::{KeyPart, Placement, Relation, RelationKind, Volatility};
use crate::hash::{Bucketing, KeyType};
use crate::plan::{Access, DataPlan, Pin, Planned, RunOn};
use crate::planner::analysis::{
    Analysis, ColumnId, ColumnUse, Constraint, Item, ItemId, Source, Value, Whereabouts,
};
use crate::planner::context::Context;
use crate::planner::defaults::Evaluation;
use crate::planner::filters::{is_equals, value};
use crate::planner::functions::volatility;
use crate::planner::gather::{self, Order};
use crate::planner::locality::{all_pins, home_reason, pinned_reason};
use crate::planner::names::Found;
use crate::planner::own_rows::split;
use crate::planner::pins::{Facts, pin, stored_pin};
use crate::planner::sql_text::parse_expression;
use crate::planner::syntax::{contains, string};
use crate::planner::{gaps, scatter, system_columns, time_gaps, unseen, written_defaults};
use crate::refusal::Refusal;
use crate::walk;

/// Plans a MERGE whose target is spread.
pub(super) fn plan(
    merge: &MergeStmt,
    tree: &NodeEnum,
    relation: &Arc<Relation>,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    refuse_newer(merge)?;
    let merging = Merging { merge, relation, analysis, context };
    if merging.inserts() && !relation.computed_keys.is_empty() {
        return Err(merging.refuse(
            format!(
                "The distribution key of \"{}\" is computed, and where a row that is inserted belongs is not known \
                 before it is there.",
                relation.name
            ),
            "Use INSERT … ON CONFLICT, or INSERT and UPDATE.",
        ));
    }
    if let Some(pins) = merging.pins() {
        let why = pinned_reason(analysis, pins.len());
        let otherwise = || match merging.spread(tree) {
            Ok(planned) => Ok(planned),
            // Whether the values land on one node is known when they are.
            Err(refusal) => Ok(Planned::new(
                DataPlan::Refused(Box::new(refusal)),
                "its keys are on several nodes",
            )),
        };
        if let Some(planned) = at_pins(&pins, why, otherwise, context)? {
            return Ok(planned);
        }
    }
    merging.spread(tree)
}

/// The MERGE with the defaults of its target's columns in place of DEFAULT, and in place of no value where they depend on
/// the time or on the place; `None` if there are none. The planner then sees what they call.
pub(super) fn written_out(
    tree: &NodeEnum,
    context: &Context<'_>,
) -> Result<Option<NodeEnum>, Refusal> {
    let NodeEnum::MergeStmt(merge) = tree else { return Ok(None) };
    let relation = merge.relation.as_ref().and_then(|range| context.relation(range));
    let Some(relation) = relation.filter(|of| of.placement.is_distributed()) else {
        return Ok(None);
    };
    let evaluation = Evaluation::of(relation, context);
    let mut explicit = merge.clone();
    let mut found = false;
    for node in &mut explicit.merge_when_clauses {
        let Some(NodeEnum::MergeWhenClause(clause)) = &mut node.node else { continue };
        match clause.command_type() {
            CmdType::CmdUpdate => {
                found |= written_defaults::assign(&mut clause.target_list, relation, context)?;
            }
            CmdType::CmdInsert => {
                found |= write_out_inserted(clause, relation, &evaluation, context)?
            }
            _ => (),
        }
    }
    Ok(found.then_some(NodeEnum::MergeStmt(explicit)))
}

fn write_out_inserted(
    clause: &mut MergeWhenClause,
    relation: &Relation,
    evaluation: &Evaluation<'_>,
    context: &Context<'_>,
) -> Result<bool, Refusal> {
    let mut names: Vec<String> = match clause.target_list.is_empty() {
        true => {
            relation.columns.iter().take(clause.values.len()).map(|it| it.name.clone()).collect()
        }
        false => clause.target_list.iter().filter_map(target_name).map(str::to_owned).collect(),
    };
    if names.len() != clause.values.len() {
        // PostgreSQL has an error for that.
        return Ok(false);
    }
    let mut found = false;
    for (value, name) in clause.values.iter_mut().zip(&names) {
        found |= written_defaults::assign_one(value, name, relation, context)?;
    }
    let mut is_longer = false;
    for (index, column) in relation.columns.iter().enumerate() {
        let is_given = names.contains(&column.name);
        if is_given || column.generated || !evaluation.once_for_several_nodes(index) {
            continue;
        }
        let Some(default) = &column.default else { continue };
        clause.values.push(parse_expression(&evaluation.default_sql(index)?).ok_or_else(|| {
            Refusal::postgres("XX000", format!("the default {default} could not be read"))
        })?);
        names.push(column.name.clone());
        is_longer = true;
    }
    if is_longer && clause.target_list.len() < names.len() {
        let missing = &names[clause.target_list.len()..];
        let target = |name: &String| {
            let target = ResTarget { name: name.clone(), ..ResTarget::default() };
            Node { node: Some(NodeEnum::ResTarget(Box::new(target))) }
        };
        let targets: Vec<_> = missing.iter().map(target).collect();
        clause.target_list.extend(targets);
    }
    Ok(found || is_longer)
}

fn target_name(node: &Node) -> Option<&str> {
    match &node.node {
        Some(NodeEnum::ResTarget(target)) => Some(&target.name),
        _ => None,
    }
}

/// What later versions of PostgreSQL have.
fn refuse_newer(merge: &MergeStmt) -> Result<(), Refusal> {
    let by_source =
        clauses(merge).any(|of| of.match_kind() == MergeMatchKind::MergeWhenNotMatchedBySource);
    match by_source || merge.returning_clause.is_some() {
        true => Err(Refusal::unsupported(
            "this form of MERGE is not supported",
            "PostgreSQL 15 has no RETURNING and no WHEN NOT MATCHED BY SOURCE in it.",
            "Use UPDATE, INSERT and DELETE in one transaction.",
        )),
        false => Ok(()),
    }
}

fn clauses(merge: &MergeStmt) -> impl Iterator<Item = &MergeWhenClause> {
    merge.merge_when_clauses.iter().filter_map(|node| match &node.node {
        Some(NodeEnum::MergeWhenClause(clause)) => Some(&**clause),
        _ => None,
    })
}

/// The clauses that insert.
fn inserting(merge: &MergeStmt) -> impl Iterator<Item = &MergeWhenClause> {
    clauses(merge).filter(|of| of.command_type() == CmdType::CmdInsert)
}

/// What all steps of planning one MERGE share.
struct Merging<'m, 'a> {
    merge: &'m MergeStmt,
    relation: &'m Arc<Relation>,
    analysis: &'m Analysis<'a>,
    context: &'m Context<'a>,
}

/// The column of the source that says where a row acts.
struct SourceKey<'n> {
    column: SourceColumn<'n>,
    /// As ON names it.
    reference: Node,
}

/// A column of the source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SourceColumn<'n> {
    /// One that the analysis knows.
    Known(ColumnId),
    /// One of a function, or of what else has columns that only PostgreSQL knows, by its name.
    Named(&'n str),
}

impl Merging<'_, '_> {
    fn target(&self) -> ItemId {
        self.analysis.target.unwrap_or_default()
    }

    fn inserts(&self) -> bool {
        inserting(self.merge).next().is_some()
    }

    /// The target's distribution key.
    fn key(&self) -> Option<(ColumnId, KeyType)> {
        match self.relation.placement {
            Placement::Hash { key, key_type, .. } => {
                Some((ColumnId { item: self.target(), column: key }, key_type))
            }
            _ => None,
        }
    }

    /// What all keys are that it can match or insert, if ON or the source say so.
    fn pins(&self) -> Option<Vec<Pin>> {
        if home_reason(self.analysis).is_some() || self.assigns_key(None) {
            return None;
        }
        let (key, _) = self.key()?;
        let maps = &self.context.catalog.maps;
        let facts = Facts::from_values(self.analysis);
        if let Some(mut pins) = all_pins(self.analysis, &facts) {
            // ON says which rows of the target count; those that are inserted must be of the same node.
            for clause in inserting(self.merge) {
                let value = value(self.inserted(clause, key.column)?, self.context)?;
                let inserted = stored_pin(value, self.relation, key.column, maps)?;
                if !pins.contains(&inserted) {
                    pins.push(inserted);
                }
            }
            return Some(pins);
        }
        if self.analysis.distributed().any(|(item, ..)| item != self.target()) {
            return None;
        }
        let source = self.source_key().ok()?;
        let SourceColumn::Known(column) = source.column else { return None };
        let values = self.values_of(column)?;
        let mut pins = Vec::new();
        for value in values {
            let value = self::value(value, self.context)?;
            let inserts = self.inserts();
            let stored = inserts.then(|| stored_pin(value, self.relation, key.column, maps));
            for pin in [Some(pin(self.relation, value, maps)), stored].into_iter().flatten() {
                let pin = pin?;
                if !pins.contains(&pin) {
                    pins.push(pin);
                }
            }
        }
        (!pins.is_empty()).then_some(pins)
    }

    /// The expressions that give a column of the source, one for each of its rows, or one for all.
    fn values_of(&self, column: ColumnId) -> Option<Vec<&Node>> {
        let Source::Query(query) = self.analysis.items[column.item].source else { return None };
        let of = &self.analysis.queries[query];
        if of.set.is_some() {
            return None;
        }
        let source = self.merge.source_relation.as_ref()?;
        if let Some(NodeEnum::RangeSubselect(subselect)) = &source.node
            && let Some(NodeEnum::SelectStmt(select)) = &subselect.subquery.as_ref()?.node
            && !select.values_lists.is_empty()
        {
            let rows = select.values_lists.iter().map(|row| match &row.node {
                Some(NodeEnum::List(list)) => list.items.get(column.column),
                _ => None,
            });
            return rows.collect();
        }
        let output = of.outputs.as_ref()?.get(column.column)?;
        Some(vec![output.value.filter(|_| output.column.is_none())?])
    }

    /// What a clause inserts into a column of the target.
    fn inserted<'c>(&self, clause: &'c MergeWhenClause, column: usize) -> Option<&'c Node> {
        let name = &self.relation.columns[column].name;
        // OVERRIDING USER VALUE: what is given for an identity column counts as DEFAULT.
        if clause.r#override() == OverridingKind::OverridingUserValue
            && self.relation.columns[column].identity.is_some()
        {
            return None;
        }
        let at = match clause.target_list.is_empty() {
            true => column,
            false => clause.target_list.iter().position(|target| match &target.node {
                Some(NodeEnum::ResTarget(target)) => {
                    target.name == *name && target.indirection.is_empty()
                }
                _ => false,
            })?,
        };
        clause.values.get(at)
    }

    /// The column that a mere reference means.
    fn column_of(&self, node: &Node) -> Option<ColumnId> {
        let Some(NodeEnum::ColumnRef(reference)) = &node.node else { return None };
        let at = |of: &&ColumnUse| of.location == reference.location;
        let mut uses = self.analysis.uses.iter().filter(at);
        let (used, None) = (uses.next()?, uses.next()) else { return None };
        Some(ColumnId { item: used.item, column: used.column? })
    }

    /// Columns of the source that ON says to be equal to the target's key.
    fn compared_with_key(&self) -> impl Iterator<Item = ColumnId> {
        let key = self.key().map(|(key, _)| key);
        self.analysis.constraints.iter().filter_map(move |constraint| match *constraint {
            // Of conditions in subqueries the target is not said to be pinned.
            Constraint::Equal { left, pins_left: true, right, .. } if Some(left) == key => {
                Some(right)
            }
            Constraint::Equal { right, pins_right: true, left, .. } if Some(right) == key => {
                Some(left)
            }
            _ => None,
        })
    }

    /// Where rows that do not match belong: what ON compares with the key, and what all clauses insert as the key.
    fn source_key(&self) -> Result<SourceKey<'_>, Refusal> {
        let Some((key, key_type)) = self.key() else {
            let name = &self.relation.name;
            return Err(self.refuse(
                match self.relation.placement {
                    Placement::HashOfSeveral { .. } => format!(
                        "\"{name}\" is distributed by several columns together, which the rows of a source are not."
                    ),
                    _ => format!("\"{name}\" has no distribution key, so a row may match on any node."),
                },
                "Use MERGE without WHEN NOT MATCHED THEN INSERT, and insert in a statement of its own.",
            ));
        };
        let key_name = &self.relation.columns[key.column].name;
        let compared = self.source_keys(key);
        let mut inserted = inserting(self.merge).map(|clause| {
            self.inserted(clause, key.column).and_then(|node| self.inserted_column(node))
        });
        let found = match inserted.next() {
            None => compared.into_iter().next(),
            Some(first) => {
                if !compared.is_empty() && inserted.any(|other| other != first) {
                    return Err(self.refuse_other_key(key_name));
                }
                let is_none_compared = compared.is_empty();
                let found = compared.into_iter().find(|of| Some(of.column) == first);
                if found.is_none() && !is_none_compared {
                    return Err(self.refuse_other_key(key_name));
                }
                found
            }
        };
        let Some(found) = found else {
            return Err(self.refuse(
                format!(
                    "Rows are to be inserted where nothing matches, and ON does not say that the \
                     distribution key \"{key_name}\" is equal to a column of the source: what \
                     matches may be on any node."
                ),
                "Let ON compare the distribution key with a column of the source, or use UPDATE and \
                 INSERT in one transaction.",
            ));
        };
        self.refuse_type(found.column, key_type)?;
        Ok(found)
    }

    /// The columns of the source that ON says to be equal to the target's key.
    fn source_keys(&self, key: ColumnId) -> Vec<SourceKey<'_>> {
        let Some(condition) = self.merge.join_condition.as_deref() else { return Vec::new() };
        let is_of_source = |column: &ColumnId| {
            self.analysis.queries[0].items.contains(&column.item) && column.item != key.item
        };
        let known = self.compared_with_key().filter(is_of_source).filter_map(|column| {
            let reference = self.reference_to(column, condition)?;
            Some(SourceKey { column: SourceColumn::Known(column), reference })
        });
        let mut found: Vec<_> = known.collect();
        let mut conjuncts = Vec::new();
        split(condition, &mut conjuncts);
        for conjunct in conjuncts {
            let Some(NodeEnum::AExpr(of)) = &conjunct.node else { continue };
            let (Some(left), Some(right)) = (of.lexpr.as_deref(), of.rexpr.as_deref()) else {
                continue;
            };
            if of.kind() != AExprKind::AexprOp || !is_equals(&of.name, self.context) {
                continue;
            }
            for (one, other) in [(left, right), (right, left)] {
                if self.column_of(one) == Some(key)
                    && let Some(name) = self.named(other)
                {
                    let column = SourceColumn::Named(name);
                    found.push(SourceKey { column, reference: other.clone() });
                }
            }
        }
        found
    }

    /// The column of the source that is inserted as the key: there only the source is in sight.
    fn inserted_column<'n>(&self, node: &'n Node) -> Option<SourceColumn<'n>> {
        let found = self.source_column(node);
        let Some(NodeEnum::ColumnRef(reference)) = &node.node else { return found };
        let ([name], None) = (&reference.fields[..], found) else { return found };
        let (name, target) = (string(name)?, self.target());
        let mut found = Vec::new();
        for &item in &self.analysis.queries[0].items {
            if item == target || self.analysis.items[item].hidden {
                continue;
            }
            match self.analysis.find(item, name) {
                Found::One(column) => found.push(column),
                Found::None => (),
                Found::Uncertain => return None,
            }
        }
        match found[..] {
            [column] => Some(SourceColumn::Known(column)),
            _ => None,
        }
    }

    /// The column of the source that a mere reference means.
    fn source_column<'n>(&self, node: &'n Node) -> Option<SourceColumn<'n>> {
        let known = self.column_of(node).map(SourceColumn::Known);
        known.or_else(|| self.named(node).map(SourceColumn::Named))
    }

    /// The name in a reference to a column of the source, where only PostgreSQL knows what columns that has.
    fn named<'n>(&self, node: &'n Node) -> Option<&'n str> {
        let Some(NodeEnum::ColumnRef(reference)) = &node.node else { return None };
        let source = self.merge.source_relation.as_ref()?.node.as_ref()?;
        let (alias, definitions) = match source {
            NodeEnum::RangeFunction(of) => (of.alias.as_ref(), &of.coldeflist[..]),
            NodeEnum::RangeSubselect(of) => (of.alias.as_ref(), &[][..]),
            NodeEnum::RangeVar(of) => (of.alias.as_ref(), &[][..]),
            _ => return None,
        };
        let called = match (alias, source) {
            (Some(alias), _) => &alias.aliasname,
            (None, NodeEnum::RangeVar(of)) => &of.relname,
            (None, _) => return None,
        };
        let mut items = self.analysis.queries[0]
            .items
            .iter()
            .filter(|item| **item != self.target() && self.analysis.items[**item].name == *called);
        // Where its columns are known, what is none of them is no column.
        let (Some(item), None) = (items.next(), items.next()) else { return None };
        if self.analysis.width(*item).is_some() {
            return None;
        }
        match &reference.fields[..] {
            [qualifier, name] if string(qualifier) == Some(called) => string(name),
            [name] => {
                let name = string(name)?;
                let mut given = alias.iter().flat_map(|alias| &alias.colnames).filter_map(string);
                let mut defined = definitions.iter().filter_map(|node| match &node.node {
                    Some(NodeEnum::ColumnDef(column)) => Some(column.colname.as_str()),
                    _ => None,
                });
                let is_given = given.any(|it| it == name) || defined.any(|it| it == name);
                (is_given && self.relation.column(name).is_none()).then_some(name)
            }
            _ => None,
        }
    }

    fn refuse_other_key(&self, key_name: &str) -> Refusal {
        self.refuse(
            format!(
                "It would insert another \"{key_name}\" than the column of the source with which ON compares it: the \
                 row may belong to another node than the one that finds no match."
            ),
            "Insert the same column that ON compares with the distribution key.",
        )
    }

    fn refuse(&self, detail: String, hint: &str) -> Refusal {
        Refusal::unsupported("this MERGE over several nodes is not supported", detail, hint)
    }

    /// The node in which a condition names this column.
    fn reference_to(&self, column: ColumnId, node: &Node) -> Option<Node> {
        if self.column_of(node) == Some(column) {
            return Some(node.clone());
        }
        let mut found = None;
        walk::read::children(node.node.as_ref()?, &mut |child| {
            found = found.take().or_else(|| self.reference_to(column, child));
        });
        found
    }

    /// Texts that ON takes for equal although their bytes differ are keys of several nodes.
    fn refuse_collations(&self, key_type: KeyType) -> Result<(), Refusal> {
        let is_of_texts =
            matches!(key_type, KeyType::Text | KeyType::Varchar | KeyType::Bpchar | KeyType::Name);
        let relations = self.analysis.items.iter().filter_map(Item::relation);
        let folds = relations.flat_map(|it| &it.columns).any(|column| column.nondeterministic);
        let parts = [&self.merge.source_relation, &self.merge.join_condition];
        let collates =
            |part: &NodeEnum| contains(part, &|node| matches!(node, NodeEnum::CollateClause(_)));
        let mut parts = parts.into_iter().flatten().filter_map(|part| part.node.as_ref());
        match is_of_texts && (folds || parts.any(collates)) {
            true => Err(self.refuse(
                "It may compare the distribution key by a nondeterministic collation: rows that are equal may be on \
                 several nodes."
                    .to_owned(),
                "Use columns of deterministic collations, and no COLLATE.",
            )),
            false => Ok(()),
        }
    }

    /// Equal values of these two types must be of one bucket, once that of the source is one of the key's type.
    fn refuse_type(&self, column: SourceColumn<'_>, key_type: KeyType) -> Result<(), Refusal> {
        self.refuse_collations(key_type)?;
        // Of what is computed the nodes will say it: see `bucket_sql`.
        let SourceColumn::Known(column) = column else { return Ok(()) };
        let Some((base, column)) = self.analysis.base(column) else {
            let is_fraction = |node: &&Node| match value(node, self.context) {
                Some(Value::Number(number)) => number.parse::<i64>().is_err(),
                _ => false,
            };
            let values = self.values_of(column).unwrap_or_default();
            return match key_type.family() == "integer" && values.iter().any(is_fraction) {
                true => Err(self.refuse(
                    "ON compares the distribution key, an integer, with numbers that may be none."
                        .to_owned(),
                    "Compare it with integers.",
                )),
                false => Ok(()),
            };
        };
        let Some(of) = base.columns.get(column) else { return Ok(()) };
        let may = match KeyType::from_oid(of.type_oid) {
            _ if of.domain => true,
            Some(of) => is_exact(key_type, of),
            None => false,
        };
        match may {
            true => Ok(()),
            false => Err(self.refuse(
                format!(
                    "ON compares the distribution key with \"{}\" of type {}, whose values may be equal to keys of \
                     several nodes.",
                    of.name, of.declared_type
                ),
                "Compare it with a column of the key's own type.",
            )),
        }
    }

    /// Whether rows keep their keys: an UPDATE that assigns what it is compared with changes nothing.
    fn assigns_key(&self, source: Option<&SourceKey<'_>>) -> bool {
        let updates = clauses(self.merge).filter(|of| of.command_type() == CmdType::CmdUpdate);
        let mut targets = updates.flat_map(|clause| &clause.target_list);
        let key = self.relation.placement.key_columns();
        targets.any(|target| {
            let Some(NodeEnum::ResTarget(target)) = &target.node else { return false };
            let named = |of: &&KeyPart| self.relation.columns[of.column].name == target.name;
            let mut sources = self.relation.key_sources();
            if sources.any(|source| self.relation.columns[source].name == target.name) {
                return true;
            }
            let Some(KeyPart { column, .. }) = key.iter().find(named) else { return false };
            let assigned = target.val.as_deref().and_then(|value| self.source_column(value));
            let key = ColumnId { item: self.target(), column: *column };
            let is_same = |column: SourceColumn<'_>| {
                column == SourceColumn::Known(key)
                    || source.is_some_and(|source| source.column == column)
            };
            !assigned.is_some_and(is_same)
        })
    }

    /// The MERGE on every node that has a part of the target.
    fn spread(&self, tree: &NodeEnum) -> Result<Planned, Refusal> {
        self.refuse_calls()?;
        let source = match self.source_key() {
            Ok(source) => Some(source),
            Err(refusal) if self.inserts() => return Err(refusal),
            Err(_) => None,
        };
        if self.assigns_key(source.as_ref()) {
            return Err(self.refuse(
                "It may change distribution keys, and rows would have to go to another node.".to_owned(),
                "Leave the distribution key out, or delete such rows and insert them anew, in one transaction.",
            ));
        }
        let analysis = self.analysis;
        let target = self.target();
        let is_apart = self.is_apart(source.as_ref());
        let is_unstable = analysis.queries.iter().skip(1).any(|query| query.unstable);
        time_gaps::refuse_untold(tree, analysis, self.context)?;
        system_columns::refuse_places(tree, analysis, self.context)?;
        system_columns::refuse_number(tree, analysis)?;
        let reads_time =
            analysis.functions.reads_time || time_gaps::has_literals(tree, analysis, self.context)?;
        let others = || analysis.distributed().map(|(item, ..)| item).filter(|it| *it != target);
        let at_home = brought_from_home(analysis)?;
        let stays =
            is_apart && at_home.is_empty() && scatter::unstable_subquery(analysis).is_none();
        let mut collect: Vec<ItemId> = if stays { Vec::new() } else { others().collect() };
        collect.extend(&at_home);
        if !stays && is_unstable {
            // All nodes then compute the source of the same rows, in the same order.
            collect.extend(gather::collectable_on_node_1(analysis));
        }
        if !collect.is_empty() && self.context.collects_replicated {
            // Of another moment than what is collected.
            collect.extend(gather::collectable_on_node_1(analysis));
        }
        collect.sort_unstable();
        collect.dedup();
        if !stays {
            self.refuse_differing(&collect, is_unstable)?;
        } else if let Some(name) = self.differs_by_copy(|item| item.distributed().is_none()) {
            return Err(refuse_differing(&format!(
                "{name} is read by places of rows, which each node has otherwise"
            )));
        }
        if let Some(why) = &analysis.time_in_view {
            return Err(refuse_differing(why));
        }
        let binds = self.inserts() && !stays;
        if collect.is_empty() && !binds && !reads_time {
            let why = "each node has all rows that may match its own";
            return Ok(Planned::new(DataPlan::Scatter { access: Access::Write }, why));
        }
        gaps::refuse_marked(tree)?;
        let mut tree = tree.clone();
        if let (Some(source), true) = (&source, binds) {
            self.bind(&mut tree, source)?;
        }
        let order =
            Order { collect: &collect, brought: &[], literal_time: true, local: &[], away: true };
        let built = beside_collected(tree, analysis, &order, self.context)?;
        let plan = around(built, analysis, RunOn::EachNode);
        let why = match (binds, reads_time) {
            (true, _) => "each node inserts what does not match and belongs to it",
            (false, true) => {
                "each node has all rows that may match its own; all must get the same time"
            }
            (false, false) => "each node is brought all rows that may match its own",
        };
        Ok(Planned::new(plan, why))
    }

    /// What several nodes cannot call.
    fn refuse_calls(&self) -> Result<(), Refusal> {
        if let Some(reason) = self.context.opaque {
            return Err(unseen::refusal(reason));
        }
        if let Some(name) = &self.analysis.functions.home {
            return Err(refuse_home_function(name));
        }
        if !self.analysis.locked.is_empty() {
            return Err(self.refuse(
                "Its source locks rows.".to_owned(),
                "Lock them in a statement before, in one transaction.",
            ));
        }
        Ok(())
    }

    /// What each node would find otherwise in its source.
    fn refuse_differing(&self, collect: &[ItemId], is_unstable: bool) -> Result<(), Refusal> {
        let analysis = self.analysis;
        if self.is_source_volatile() {
            return Err(refuse_differing("the source calls a volatile function, on each node"));
        }
        if let Some(name) = self.differs_by_copy(|_| true) {
            return Err(refuse_differing(&format!(
                "{name} is read by places of rows, which each node has otherwise"
            )));
        }
        let is_read_here = |(id, item): (ItemId, &Item<'_>)| {
            matches!(item.source, Source::Table { .. })
                && id != self.target()
                && !collect.contains(&id)
        };
        match is_unstable && analysis.items.iter().enumerate().any(is_read_here) {
            true => Err(refuse_differing(
                "a subquery with LIMIT, windows or ordered aggregates may differ by node",
            )),
            false => Ok(()),
        }
    }

    /// A table that is sampled, or of which a system column is read, where rows are counted more than once.
    fn differs_by_copy(&self, counts: impl Fn(&Item<'_>) -> bool) -> Option<&str> {
        let analysis = self.analysis;
        let mut items = analysis.items.iter().enumerate();
        let found = items.find(|(id, item)| {
            *id != self.target()
                && counts(item)
                && (item.sample.is_some() || analysis.mentions_system_column(*id))
        });
        found.map(|(_, item)| item.name)
    }

    /// Whether the source, which each node computes, may come out otherwise each time.
    fn is_source_volatile(&self) -> bool {
        let ctes = self.merge.with_clause.iter().flat_map(|with| &with.ctes);
        let mut parts = ctes.chain(self.merge.source_relation.as_deref());
        let is_view = |item: &Item<'_>| match item.source {
            Source::Table { relation, .. } => matches!(relation.kind, RelationKind::View { .. }),
            _ => false,
        };
        parts.any(|part| volatility(part, self.context) == Volatility::Volatile)
            || self.analysis.functions.volatile.is_some() && self.analysis.items.iter().any(is_view)
    }

    /// Whether all that a node needs of other tables is what it has of them, and, where rows may be inserted, each row
    /// of the source is on the node that has its key.
    fn is_apart(&self, source: Option<&SourceKey<'_>>) -> bool {
        let is_placed = |source: &SourceKey<'_>| match source.column {
            SourceColumn::Known(column) => self.is_key_of_its_node(column),
            SourceColumn::Named(_) => false,
        };
        if self.inserts() && !source.is_some_and(is_placed) {
            return false;
        }
        let target = self.target();
        let mut inner = self.analysis.clone();
        let of_target = |id: ColumnId| id.item == target;
        for constraint in &mut inner.constraints {
            // Rows of the source that match nothing of the node's are another node's, or none's.
            if let Constraint::Equal { left, pins_left, right, pins_right } = constraint {
                let is_on = of_target(*left) && *pins_left || of_target(*right) && *pins_right;
                *pins_left |= is_on;
                *pins_right |= is_on;
            }
        }
        let facts = Facts::from_bases(&inner, &[target]);
        let mut others = inner.distributed().map(|(item, ..)| item).filter(|item| *item != target);
        others.all(|item| facts.is_local(item))
    }

    /// Whether the column is the distribution key of a table that is spread as the target is, in each of whose rows
    /// the source is linear.
    fn is_key_of_its_node(&self, column: ColumnId) -> bool {
        let item = &self.analysis.items[column.item];
        match item.source {
            _ if !item.linear || item.sample.is_some() => false,
            Source::Table { relation, spread: Whereabouts::Hash { key, map } } => {
                matches!(
                    (&self.relation.placement, &relation.placement),
                    (
                        Placement::Hash { map: of, key_type, .. },
                        Placement::Hash { key_type: other, .. },
                    ) if *of == map && key == column.column && key_type == other
                ) && relation.returned_by.is_none()
            }
            Source::Query(query) => {
                let of = &self.analysis.queries[query];
                let output =
                    of.outputs.as_ref().and_then(|outputs| outputs.get(column.column)?.column);
                of.set.is_none()
                    && of.takes_filter(column.column)
                    && output.is_some_and(|output| self.is_key_of_its_node(output))
            }
            Source::Table { .. } | Source::Opaque => false,
        }
    }

    /// Lets each node leave alone what does not match and belongs to another: before all else that WHEN NOT MATCHED
    /// may do, so that nothing of it is computed there.
    fn bind(&self, tree: &mut NodeEnum, source: &SourceKey<'_>) -> Result<(), Refusal> {
        let NodeEnum::MergeStmt(merge) = tree else { return Ok(()) };
        let Placement::Hash { key, key_type, map } = self.relation.placement else { return Ok(()) };
        let unknown = || Refusal::postgres("XX000", "a bucket map is not known");
        let map_of = self.context.catalog.maps.get(&map).ok_or_else(unknown)?;
        let bucket = bucket_sql(
            &map_of.bucketing,
            key_type,
            &self.relation.columns[key].declared_type,
            KEY_MARK,
        );
        let condition = format!(
            "{bucket} OPERATOR(pg_catalog.<>) ALL ({}::pg_catalog.int8[])",
            gaps::gap_of_buckets(map)
        );
        let mut condition = parse_expression(&condition)
            .ok_or_else(|| Refusal::postgres("XX000", "the buckets of a node cannot be said"))?;
        put_reference(&mut condition, &source.reference);
        let mut clause =
            MergeWhenClause { condition: Some(Box::new(condition)), ..MergeWhenClause::default() };
        clause.set_match_kind(MergeMatchKind::MergeWhenNotMatchedByTarget);
        clause.set_command_type(CmdType::CmdNothing);
        clause.set_override(OverridingKind::OverridingNotSet);
        let clause = Node { node: Some(NodeEnum::MergeWhenClause(Box::new(clause))) };
        merge.merge_when_clauses.insert(0, clause);
        Ok(())
    }
}

/// Stands for the source's key in a text of ours.
const KEY_MARK: &str = "tutti_key";

/// Puts the client's reference in place of ours.
fn put_reference(node: &mut Node, reference: &Node) {
    let is_mark =
        |of: &ColumnRef| matches!(&of.fields[..], [name] if string(name) == Some(KEY_MARK));
    match &mut node.node {
        Some(NodeEnum::ColumnRef(of)) if is_mark(of) => *node = reference.clone(),
        Some(of) => walk::write::children(of, &mut |child| put_reference(child, reference)),
        None => (),
    }
}

/// The bucket of the key that a value becomes where it is inserted. A value that is equal to a key has that key's.
///
/// Where values of some other type may be equal to several keys, a function that does not take such comes first: the
/// nodes then say that there is none for it.
fn bucket_sql(
    bucketing: &Bucketing,
    key_type: KeyType,
    declared_type: &str,
    value: &str,
) -> String {
    let of = |key_type, value: String| bucketing.sql_bucket(key_type, &value);
    match key_type {
        // As it would be stored: a fraction is no key, and where it is inserted it is rounded so. No float, to which
        // several keys may be equal.
        KeyType::Int2 | KeyType::Int4 | KeyType::Int8 => {
            of(KeyType::Int8, format!("CAST(pg_catalog.numeric_uplus({value}) AS pg_catalog.int8)"))
        }
        KeyType::Numeric => {
            of(key_type, format!("CAST(pg_catalog.numeric_uplus({value}) AS {declared_type})"))
        }
        KeyType::Time => of(
            key_type,
            format!("CAST(pg_catalog.time_larger({value}, {value}) AS {declared_type})"),
        ),
        _ => of(key_type, format!("CAST({value} AS {declared_type})")),
    }
}

/// Whether a value of type `other` that is equal to a key, as PostgreSQL compares the two, becomes that key where it is
/// cast to its type.
fn is_exact(key: KeyType, other: KeyType) -> bool {
    let is_integer = |of: KeyType| matches!(of, KeyType::Int2 | KeyType::Int4 | KeyType::Int8);
    let is_float = |of: KeyType| matches!(of, KeyType::Float4 | KeyType::Float8);
    let is_text = |of: KeyType| {
        matches!(of, KeyType::Text | KeyType::Varchar | KeyType::Name | KeyType::Bpchar)
    };
    let is_day =
        |of: KeyType| matches!(of, KeyType::Date | KeyType::Timestamp | KeyType::Timestamptz);
    key == other
        || is_integer(key) && is_integer(other)
        || key == KeyType::Numeric && is_integer(other)
        || is_float(key) && (is_float(other) || is_integer(other) || other == KeyType::Numeric)
        || is_text(key) && is_text(other)
        || is_day(key) && is_day(other)
}
