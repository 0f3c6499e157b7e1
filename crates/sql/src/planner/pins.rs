//! Which keys a statement's conditions fix, and what follows from that.
//!
//! Owns: carrying values along equalities, into subqueries and out of them, and the pins that
//! result. Never: carries a value against an outer join (see [`Constraint`]).
//! Start reading at [`Facts::spread`].
//!
//! A fact about a column says: leaving out all rows of its item for which the fact does not hold
//! (and so, at most, keeping rows with NULL there) does not change the statement's result. Each
//! step from fact to fact keeps the result, so any number of steps does.

use std::borrow::Cow;

use super::analysis::{
    Analysis, ColumnId, Constraint, ItemId, QueryId, Side, Source, Value, Whereabouts,
};
use crate::catalog::{BucketMap, Catalog, KeyPart, MapId, Maps, NodeId, Placement, Relation};
use crate::hash::{Bucket, Bucketing, KeyType};
use crate::plan::{KeyValue, Pin};
use crate::shape::{Hole, LiteralKind};

/// Of lists of values for the columns of a key, more combinations are not looked at.
const COMBINATIONS_MAX: usize = 256;

/// What is known of a column's values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fact {
    /// One of the values of the [`Constraint::OneOf`] with this index.
    OneOf(usize),
    /// Not beyond the value of the [`Constraint::Bound`] with this index.
    Bound(usize),
    /// Hashes to the node on which the statement runs, by this map.
    Local(MapId),
    /// One of the values that rows have which are there already.
    Among,
}

/// All facts about a statement.
#[derive(Debug)]
pub(super) struct Facts<'s, 'a> {
    analysis: &'s Analysis<'a>,
    known: Vec<(ColumnId, Fact)>,
    /// Lower and upper bounds, where tables are distributed by ranges.
    bounds: [Vec<(ColumnId, Fact)>; 2],
    /// Tables distributed by several columns of whose rows only the node's own matter.
    local: Vec<ItemId>,
}

impl<'s, 'a> Facts<'s, 'a> {
    /// What follows from the values that the statement compares columns with.
    pub(super) fn from_values(analysis: &'s Analysis<'a>) -> Self {
        let constraints = analysis.constraints.iter().enumerate();
        let known = constraints.filter_map(|(index, constraint)| match constraint {
            Constraint::OneOf { column, .. } => Some((*column, Fact::OneOf(index))),
            Constraint::Equal { .. } | Constraint::Bound { .. } => None,
        });
        let mut facts = Self::following(analysis, known);
        if analysis.has_ranges() {
            facts.bounds = [true, false].map(|is_lower| Self::bounds_of(analysis, is_lower));
        }
        facts
    }

    /// What follows from these.
    fn following(
        analysis: &'s Analysis<'a>,
        known: impl Iterator<Item = (ColumnId, Fact)>,
    ) -> Self {
        let mut facts = Self {
            analysis,
            known: Vec::new(),
            bounds: [Vec::new(), Vec::new()],
            local: Vec::new(),
        };
        for (column, fact) in known {
            facts.learn(column, fact);
        }
        facts.propagate();
        facts
    }

    fn bounds_of(analysis: &'s Analysis<'a>, is_lower: bool) -> Vec<(ColumnId, Fact)> {
        let constraints = analysis.constraints.iter().enumerate();
        let known = constraints.filter_map(|(index, constraint)| match constraint {
            Constraint::Bound { column, side, .. } if (*side == Side::From) == is_lower => {
                Some((*column, Fact::Bound(index)))
            }
            _ => None,
        });
        Self::following(analysis, known).known
    }

    /// What follows when only the rows that one node has are taken of the tables `bases`.
    pub(super) fn from_bases(analysis: &'s Analysis<'a>, bases: &[ItemId]) -> Self {
        let local = bases.iter().filter_map(|item| match analysis.items[*item].distributed()? {
            (_, Whereabouts::Hash { key, map }) => {
                Some((ColumnId { item: *item, column: key }, Fact::Local(map)))
            }
            _ => None,
        });
        let mut facts = Self::following(analysis, local);
        let is_several = |item: &&ItemId| analysis.items[**item].several().is_some();
        facts.local = bases.iter().filter(is_several).copied().collect();
        facts.propagate_to_tables();
        facts
    }

    /// What follows when of a table only the rows are there of which this column hashes to the node.
    pub(super) fn from_meeting(analysis: &'s Analysis<'a>, column: ColumnId, map: MapId) -> Self {
        Self::following(analysis, std::iter::once((column, Fact::Local(map))))
    }

    /// What follows when only rows with some values in these columns are there.
    pub(super) fn from_columns(
        analysis: &'s Analysis<'a>,
        columns: impl Iterator<Item = ColumnId>,
    ) -> Self {
        Self::following(analysis, columns.map(|column| (column, Fact::Among)))
    }

    /// What is known of a column.
    pub(super) fn of(&self, column: ColumnId) -> Option<Fact> {
        self.known.iter().find(|(known, _)| *known == column).map(|(_, fact)| *fact)
    }

    fn learn(&mut self, column: ColumnId, fact: Fact) -> bool {
        if self.of(column).is_some() {
            return false;
        }
        self.known.push((column, fact));
        if let Source::Query(query) = self.analysis.items[column.item].source {
            self.push_into(query, column.column, fact);
        }
        true
    }

    /// Moves a filter on a query's output into the query.
    fn push_into(&mut self, query: QueryId, column: usize, fact: Fact) {
        let of = &self.analysis.queries[query];
        if !of.takes_filter(column) {
            return;
        }
        if let Some(set) = of.set {
            // Where its parts are of several types, the value is compared in a type that may be none of theirs.
            if self.analysis.base_of_output(query, column).is_some() {
                self.push_into(set.left, column, fact);
                self.push_into(set.right, column, fact);
            }
            return;
        }
        let inner = of.outputs.as_ref().and_then(|outputs| outputs.get(column)?.column);
        if let Some(inner) = inner {
            self.learn(inner, fact);
        }
    }

    /// What is known of a query's output from inside.
    fn pull_from(&self, query: QueryId, column: usize) -> Option<Fact> {
        let of = &self.analysis.queries[query];
        if of.recursive {
            return None;
        }
        if let Some(set) = of.set {
            let left = self.pull_from(set.left, column)?;
            return (self.pull_from(set.right, column)? == left).then_some(left);
        }
        self.of(of.outputs.as_ref()?.get(column)?.column?)
    }

    /// Carries facts along equalities until nothing new is learnt.
    fn propagate(&mut self) {
        let analysis = self.analysis;
        let mut learnt = !self.known.is_empty();
        while learnt {
            learnt = false;
            for constraint in &analysis.constraints {
                let Constraint::Equal { left, pins_left, right, pins_right } = *constraint else {
                    continue;
                };
                match (self.of(left), self.of(right)) {
                    (Some(fact), None) if pins_right && self.are_comparable(left, right) => {
                        learnt |= self.learn(right, fact);
                    }
                    (None, Some(fact)) if pins_left && self.are_comparable(left, right) => {
                        learnt |= self.learn(left, fact);
                    }
                    _ => (),
                }
            }
            for (item, of) in analysis.items.iter().enumerate() {
                let Source::Query(query) = of.source else { continue };
                for column in 0..analysis.width(item).unwrap_or(0) {
                    let id = ColumnId { item, column };
                    if self.of(id).is_none()
                        && let Some(fact) = self.pull_from(query, column)
                    {
                        learnt |= self.learn(id, fact);
                    }
                }
            }
        }
    }

    /// Carries from table to table, along equalities of all columns of their keys, that only the node's own rows matter.
    fn propagate_to_tables(&mut self) {
        let mut next = 0;
        while let Some(from) = self.local.get(next).copied() {
            next += 1;
            let found = self
                .analysis
                .distributed()
                .map(|(item, ..)| item)
                .filter(|item| !self.local.contains(item) && self.has_equal_key(from, *item));
            let found: Vec<_> = found.collect();
            self.local.extend(found);
        }
    }

    /// Whether of rows of `to` only those matter whose keys, of several columns, are those of rows of `from`.
    fn has_equal_key(&self, from: ItemId, to: ItemId) -> bool {
        let items = &self.analysis.items;
        let (Some((of_from, map)), Some((of_to, other))) =
            (items[from].several(), items[to].several())
        else {
            return false;
        };
        let is_equal = |(from_part, to_part): (&KeyPart, &KeyPart)| {
            let from = ColumnId { item: from, column: from_part.column };
            let to = ColumnId { item: to, column: to_part.column };
            let mut constraints = self.analysis.constraints.iter();
            self.are_comparable(from, to)
                && constraints.any(|constraint| match *constraint {
                    Constraint::Equal { left, right, pins_right, .. } if left == from => {
                        right == to && pins_right
                    }
                    Constraint::Equal { left, right, pins_left, .. } if right == from => {
                        left == to && pins_left
                    }
                    _ => false,
                })
        };
        map == other && of_from.len() == of_to.len() && of_from.iter().zip(of_to).all(is_equal)
    }

    /// Equal values of the two columns hash equally, and a literal means the same for both.
    fn are_comparable(&self, left: ColumnId, right: ColumnId) -> bool {
        let key_type = |column| {
            let (relation, column) = self.analysis.base(column)?;
            let column = relation.columns.get(column).filter(|of| !of.nondeterministic)?;
            KeyType::from_oid(column.type_oid)
        };
        match (key_type(left), key_type(right)) {
            (Some(left), Some(right)) => {
                let is_text = |of| matches!(of, KeyType::Text | KeyType::Varchar);
                left == right
                    || (left.family() == "integer" && right.family() == "integer")
                    || (is_text(left) && is_text(right))
            }
            _ => false,
        }
    }

    /// The values that a table's key is pinned to; `None` if it is not.
    pub(super) fn pins_of(&self, item: ItemId) -> Option<Vec<Pin>> {
        let (relation, spread) = self.analysis.items[item].distributed()?;
        if let Some((key, map)) = self.analysis.items[item].several() {
            return self.pins_of_several(item, key, map);
        }
        let Whereabouts::Hash { key, .. } = spread else { return None };
        let Placement::Hash { key_type, map, .. } = relation.placement else { return None };
        let key = ColumnId { item, column: key };
        match self.of(key) {
            Some(Fact::OneOf(_)) => self.pins_of_column(key, key_type, map),
            Some(Fact::Local(_) | Fact::Among | Fact::Bound(_)) => None,
            None => self.ends_of(key, relation),
        }
    }

    /// The values that a column of a key is pinned to.
    fn pins_of_column(&self, column: ColumnId, key_type: KeyType, map: MapId) -> Option<Vec<Pin>> {
        let Some(Fact::OneOf(index)) = self.of(column) else { return None };
        let Constraint::OneOf { values, .. } = &self.analysis.constraints[index] else {
            return None;
        };
        let maps = self.analysis.maps?;
        values.iter().map(|value| pin_of_column(key_type, map, *value, maps)).collect()
    }

    /// The same of a key of several columns: each value of the first with each of the second, and so on.
    fn pins_of_several(&self, item: ItemId, key: &[KeyPart], map: MapId) -> Option<Vec<Pin>> {
        let mut combinations = vec![Vec::new()];
        for KeyPart { column, key_type } in key {
            let column = ColumnId { item, column: *column };
            let values = self.pins_of_column(column, *key_type, map)?;
            if COMBINATIONS_MAX < combinations.len().saturating_mul(values.len()) {
                return None;
            }
            let with = |combination: &Vec<Pin>| {
                let values = values.iter().cloned();
                values.map(|value| [&combination[..], &[value]].concat()).collect::<Vec<_>>()
            };
            combinations = combinations.iter().flat_map(with).collect();
        }
        Some(combinations.into_iter().map(|parts| Pin::of_several(map, parts)).collect())
    }

    /// Whether a column of a table's key is certain to keep the bucket that it has where it is assigned this value: all
    /// rows that count have that value there already.
    pub(super) fn keeps(&self, item: ItemId, column: usize, assigned: Value<'_>) -> bool {
        let Some((relation, _)) = self.analysis.items[item].distributed() else { return false };
        let Some(map) = relation.placement.key_map() else { return false };
        let key = relation.placement.key_columns();
        let Some(KeyPart { key_type, .. }) = key.into_iter().find(|it| it.column == column) else {
            return false;
        };
        let pins = self.pins_of_column(ColumnId { item, column }, key_type, map);
        // The same bucket is enough: the row stays where it is. That of what is stored, which may not be what is
        // written (rounded, trimmed); a parameter that the key is equal to is stored as it is.
        match (self.stored_pin(relation, column, assigned), pins.as_deref()) {
            (Some(assigned), Some([pinned])) => assigned.value == pinned.value,
            _ => false,
        }
    }

    /// Pins to the first and the last range in which keys of a table may be that matter: if one node has both, it has
    /// those between, for ranges are given to the nodes in order. `None`: there are no ranges, or all may matter.
    fn ends_of(&self, key: ColumnId, relation: &Relation) -> Option<Vec<Pin>> {
        let Placement::Hash { key_type, map, .. } = relation.placement else { return None };
        let of = self.analysis.maps?.get(&map)?;
        let last = of.bucketing.splits()?.range_count() - 1;
        if !of.has_ranges_in_order() {
            return None;
        }
        let bound = |known: &[(ColumnId, Fact)]| {
            let (_, fact) = known.iter().find(|(column, _)| *column == key)?;
            let Fact::Bound(index) = fact else { return None };
            let Constraint::Bound { value, side, .. } = &self.analysis.constraints[*index] else {
                return None;
            };
            end_pin(relation, *value, of, *side == Side::Below)
        };
        let [low, high] = [bound(&self.bounds[0]), bound(&self.bounds[1])];
        if low.is_none() && high.is_none() {
            return None;
        }
        let at = |bucket| Pin {
            map,
            key_type,
            value: KeyValue::Bucket(Bucket(bucket)),
            stored: None,
            ends: false,
        };
        Some(vec![low.unwrap_or_else(|| at(0)), high.unwrap_or_else(|| at(last))])
    }

    /// The pin of a value that is stored in a column of a table's key, as [`stored_pin`].
    fn stored_pin(&self, relation: &Relation, column: usize, value: Value<'_>) -> Option<Pin> {
        stored_pin(value, relation, column, self.analysis.maps?)
    }

    /// Whether only rows matter whose column has one of the values of [`Self::from_columns`].
    pub(super) fn are_among(&self, column: ColumnId) -> bool {
        self.of(column) == Some(Fact::Among)
    }

    /// The column by which a table is as if it were spread by the hash of it: of whose rows only those matter that
    /// hash to the node, by the map.
    pub(super) fn local_column(&self, item: ItemId) -> Option<(usize, MapId)> {
        self.known.iter().find_map(|(column, fact)| match fact {
            Fact::Local(map) if column.item == item => Some((column.column, *map)),
            _ => None,
        })
    }

    /// Whether only the node's own rows of a table matter.
    pub(super) fn is_local(&self, item: ItemId) -> bool {
        match self.analysis.items[item].distributed() {
            Some((_, Whereabouts::Hash { key, map })) => {
                self.of(ColumnId { item, column: key }) == Some(Fact::Local(map))
            }
            _ => self.local.contains(&item),
        }
    }
}

/// The pin of a table's key, of one column, to a value; `None` if the value's bucket cannot be known for certain.
pub(super) fn pin(relation: &Relation, value: Value<'_>, maps: &Maps) -> Option<Pin> {
    let Placement::Hash { key_type, map, .. } = relation.placement else { return None };
    pin_of_column(key_type, map, value, maps)
}

/// The same of a column of this type.
fn pin_of_column(key_type: KeyType, map: MapId, value: Value<'_>, maps: &Maps) -> Option<Pin> {
    let value = match open(key_type, value) {
        Some(open) => open,
        None => {
            let bucketing = &maps.get(&map)?.bucketing;
            KeyValue::Bucket(bucket_of_literal(bucketing, key_type, value)?)
        }
    };
    Some(Pin { map, key_type, value, stored: None, ends: false })
}

/// The pin to the range of a value, or (`ends`) of the keys below it.
fn end_pin(relation: &Relation, value: Value<'_>, of: &BucketMap, ends: bool) -> Option<Pin> {
    let Placement::Hash { key_type, map, .. } = relation.placement else { return None };
    let value = match open(key_type, value) {
        Some(open) => open,
        None => KeyValue::Bucket(bucket_of_end(&of.bucketing, key_type, value, ends)?),
    };
    Some(Pin { map, key_type, value, stored: None, ends })
}

/// What is known only when the statement is run; `None`: a literal, or what is compared otherwise.
fn open(key_type: KeyType, value: Value<'_>) -> Option<KeyValue> {
    match value {
        Value::Parameter(index) => Some(KeyValue::Parameter(index)),
        Value::CastParameter(index, family) if family == key_type.family() => {
            Some(KeyValue::Parameter(index))
        }
        Value::Hole(hole) if may_pin(hole, key_type) => Some(KeyValue::Literal(hole)),
        _ => None,
    }
}

/// As [`bucket_of_literal`]; `ends`: of the keys below it.
pub(super) fn bucket_of_end(
    bucketing: &Bucketing,
    key_type: KeyType,
    literal: Value<'_>,
    ends: bool,
) -> Option<Bucket> {
    match ends {
        true => bucketing.bucket_before_text(key_type, &as_key(key_type, literal)?).ok(),
        false => bucket_of_literal(bucketing, key_type, literal),
    }
}

/// The bucket of a literal that is compared with a key of this type; `None` if it is not certain.
pub(super) fn bucket_of_literal(
    bucketing: &Bucketing,
    key_type: KeyType,
    literal: Value<'_>,
) -> Option<Bucket> {
    bucketing.bucket_of_text(key_type, &as_key(key_type, literal)?).ok()
}

/// The same for a literal that is stored in a key column with this type modifier.
pub(super) fn bucket_of_stored_literal(
    bucketing: &Bucketing,
    key_type: KeyType,
    modifier: i32,
    literal: Value<'_>,
) -> Option<Bucket> {
    let text = as_key(key_type, literal)?;
    bucketing.bucket_of_stored_text(key_type, &text, key_type, modifier).ok()
}

/// The pin of a value that is stored in this column of the key; `None` if its bucket is not certain.
pub(super) fn stored_pin(
    value: Value<'_>,
    relation: &Relation,
    column: usize,
    maps: &Maps,
) -> Option<Pin> {
    let map = relation.placement.key_map()?;
    let mut key = relation.placement.key_columns().into_iter();
    let KeyPart { key_type, .. } = key.find(|it| it.column == column)?;
    let modifier = relation.columns[column].type_modifier;
    let stored = Some(modifier);
    let value = match value {
        open @ (Value::Parameter(_) | Value::CastParameter(..) | Value::Hole(_)) => {
            return pin_of_column(key_type, map, open, maps).map(|pin| Pin { stored, ..pin });
        }
        literal => {
            let bucketing = &maps.get(&map)?.bucketing;
            KeyValue::Bucket(bucket_of_stored_literal(bucketing, key_type, modifier, literal)?)
        }
    };
    Some(Pin { map, key_type, value, stored, ends: false })
}

/// What a literal says as a value of the key's type; `None` if it is one of another family.
fn as_key(key_type: KeyType, literal: Value<'_>) -> Option<Cow<'_, str>> {
    let family = key_type.family();
    match literal {
        Value::Integer(integer) if is_number(family) => Some(integer.to_string().into()),
        Value::Number(text) if is_number(family) => Some(text.into()),
        Value::Untyped(text) => Some(text.into()),
        Value::Typed(text, of) if of == family => Some(text.into()),
        _ => None,
    }
}

/// Whether keys of a family are compared with numbers by their value, and given them, as by their text.
///
/// A float4 is compared with a number as a float8: it equals the number only if it need not be rounded, and
/// then it has the bucket of the number's text as a float4. What an oid makes of a negative number is not asked.
fn is_number(family: &str) -> bool {
    matches!(family, "integer" | "numeric" | "float" | "oid")
}

/// Whether some literal in this hole has a bucket by [`bucket_of_literal`].
fn may_pin(hole: Hole, key_type: KeyType) -> bool {
    let family = key_type.family();
    match hole.kind {
        LiteralKind::Integer | LiteralKind::Number => is_number(family),
        LiteralKind::String => hole.cast.is_none_or(|of| of == family),
    }
}

/// What is certain at plan time about where pins land.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Landing {
    /// On one node, always.
    Certain,
    /// Perhaps on several, depending on parameters.
    Open,
    /// On several.
    Several,
}

/// Looks up where the pins land.
pub(super) fn landing(pins: &[Pin], catalog: &Catalog) -> Landing {
    let mut node: Option<NodeId> = None;
    let mut open = false;
    for pin in pins {
        let is_apart =
            |part: &Pin| matches!(part.value, KeyValue::Literal(Hole { apart: true, .. }));
        if pin.parts().iter().any(is_apart) {
            return Landing::Several;
        }
        open |= pin.parts().iter().any(|part| matches!(part.value, KeyValue::Parameter(_)));
        let KeyValue::Bucket(bucket) = pin.value else { continue };
        let Some(map) = catalog.maps.get(&pin.map) else { return Landing::Several };
        match node {
            Some(node) if node != map.node(bucket) => return Landing::Several,
            _ => node = Some(map.node(bucket)),
        }
    }
    if open { Landing::Open } else { Landing::Certain }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number is a key of every type that it is compared with by value, if the type can have it.
    #[test]
    fn numbers_are_keys_of_floats_and_oids_too() {
        let (one, half, third) = (Value::Integer(1), Value::Number("0.5"), Value::Number("0.1"));
        for key_type in [KeyType::Float4, KeyType::Float8] {
            for literal in [one, half, third] {
                assert!(
                    bucket_of_literal(&Bucketing::Hash, key_type, literal).is_some(),
                    "{key_type:?} {literal:?}"
                );
            }
            assert_eq!(bucket_of_literal(&Bucketing::Hash, key_type, Value::Number("1e400")), None);
        }
        assert!(
            bucket_of_stored_literal(&Bucketing::Hash, KeyType::Float4, -1, third).is_some(),
            "rounded once"
        );
        assert!(bucket_of_literal(&Bucketing::Hash, KeyType::Oid, one).is_some());
        assert!(
            bucket_of_literal(&Bucketing::Hash, KeyType::Oid, Value::Number("4294967295"))
                .is_some()
        );
        for literal in [Value::Integer(-1), half, Value::Number("4294967296")] {
            assert_eq!(
                bucket_of_literal(&Bucketing::Hash, KeyType::Oid, literal),
                None,
                "{literal:?}"
            );
        }
        for (key_type, expected) in [(KeyType::Bool, true), (KeyType::Text, false)] {
            let pinned =
                bucket_of_literal(&Bucketing::Hash, key_type, Value::Typed("true", "boolean"));
            assert_eq!(pinned.is_some(), expected, "{key_type:?}");
        }
        assert_eq!(bucket_of_literal(&Bucketing::Hash, KeyType::Text, one), None);
        assert_eq!(bucket_of_literal(&Bucketing::Hash, KeyType::Uuid, one), None);
    }

    /// Of a column's type with its modifier, a literal that is kept as it is, and one that storing changes.
    #[test]
    fn a_stored_literal_is_placed_where_storing_does_not_change_it() {
        let numeric = |precision: i32, scale: i32| ((precision << 16) | (scale & 0x7ff)) + 4;
        let cases = [
            (KeyType::Varchar, 3 + 4, Value::Untyped("abc"), Value::Untyped("abc ")),
            (KeyType::Varchar, 3 + 4, Value::Typed("ab ", "text"), Value::Typed("ab  ", "text")),
            (KeyType::Numeric, numeric(8, 2), Value::Number("1.50"), Value::Number("1.501")),
            (KeyType::Numeric, numeric(3, -2), Value::Integer(1200), Value::Integer(1250)),
            (KeyType::Time, 0, Value::Untyped("10:00:00"), Value::Untyped("10:00:00.5")),
        ];
        for (key_type, modifier, kept, changed) in cases {
            let case = format!("{key_type:?}({modifier})");
            for literal in [kept, changed] {
                let compared = bucket_of_literal(&Bucketing::Hash, key_type, literal);
                assert!(compared.is_some(), "{case}");
                assert_eq!(
                    bucket_of_stored_literal(&Bucketing::Hash, key_type, -1, literal),
                    compared,
                    "{case}"
                );
            }
            let kept_bucket = bucket_of_stored_literal(&Bucketing::Hash, key_type, modifier, kept);
            assert_eq!(kept_bucket, bucket_of_literal(&Bucketing::Hash, key_type, kept), "{case}");
            assert_eq!(
                bucket_of_stored_literal(&Bucketing::Hash, key_type, modifier, changed),
                None,
                "{case}"
            );
        }
    }
}
