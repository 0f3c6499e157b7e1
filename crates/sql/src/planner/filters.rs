//! Reads WHERE and ON conditions for what they say about keys.
//!
//! Owns: which conjuncts are equalities that can pin, and the values they compare with.
//! Never: concludes anything from several of them (`pins.rs` does).
//! Start reading at [`Analyser::filter`].

use std::ops::Range;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AConst, AExpr, AExprKind, BoolExprType, Node, SubLink, SubLinkType, TypeCast, TypeName, a_const,
};

use super::analyse::Analyser;
use super::analysis::{ColumnId, Constraint, ItemId, Side, Value};
use super::context::Context;
use super::names::Meaning;
use super::syntax::{exists, string};
use super::{computed_keys, holes};
use crate::catalog::ComputedKey;
use crate::hash::KeyType;
use crate::refusal::Refusal;
use crate::shape::{Hole, LiteralKind};

impl<'a> Analyser<'a> {
    /// Reads a condition. Rows of the items in `pinnable` that break one of its conjuncts have no
    /// effect on the level's result.
    pub(super) fn filter(
        &mut self,
        node: &'a Node,
        pinnable: Range<ItemId>,
    ) -> Result<(), Refusal> {
        match &node.node {
            Some(NodeEnum::BoolExpr(all)) if all.boolop() == BoolExprType::AndExpr => {
                all.args.iter().try_for_each(|node| self.filter(node, pinnable.clone()))
            }
            Some(NodeEnum::AExpr(comparison)) => {
                self.comparison(comparison, &pinnable);
                self.expression(node)
            }
            Some(NodeEnum::SubLink(link)) if is_in(link, &self.context) => {
                self.in_query(link, &pinnable)
            }
            Some(of) => match exists(of) {
                Some(link) => self.joined(link),
                None => self.expression(node),
            },
            None => Ok(()),
        }
    }

    /// `x IN (SELECT …)`.
    fn in_query(&mut self, link: &'a SubLink, pinnable: &Range<ItemId>) -> Result<(), Refusal> {
        let Some(test) = &link.testexpr else { return Ok(()) };
        self.expression(test)?;
        let Some(NodeEnum::SelectStmt(select)) =
            link.subselect.as_ref().and_then(|node| node.node.as_ref())
        else {
            return Ok(());
        };
        let query = self.query(select)?;
        let item = self.add_nameless_item(query);
        let row;
        let tests = match &test.node {
            Some(NodeEnum::RowExpr(expression)) => &expression.args[..],
            _ => {
                row = std::slice::from_ref(&**test);
                row
            }
        };
        for (column, test) in tests.iter().enumerate() {
            let right = ColumnId { item, column };
            match self.column(test) {
                Some(left) => {
                    let pins_left = pinnable.contains(&left.item);
                    let equal = Constraint::Equal { left, pins_left, right, pins_right: true };
                    self.analysis.constraints.push(equal);
                }
                None => {
                    if let Some(value) = value(test, &self.context) {
                        let values = vec![value];
                        self.analysis.constraints.push(Constraint::OneOf { column: right, values });
                    }
                }
            }
        }
        Ok(())
    }

    fn comparison(&mut self, comparison: &'a AExpr, pinnable: &Range<ItemId>) {
        let (Some(left), Some(right)) = (&comparison.lexpr, &comparison.rexpr) else { return };
        if !is_equals(&comparison.name, &self.context) {
            if self.analysis.has_ranges() {
                self.bounds(comparison, left, right, pinnable);
            }
            return;
        }
        match comparison.kind() {
            AExprKind::AexprOp => self.equality(left, right, pinnable),
            AExprKind::AexprIn => {
                if let Some(NodeEnum::List(list)) = &right.node {
                    self.one_of(left, &list.items, pinnable);
                }
            }
            AExprKind::AexprOpAny => {
                if let Some(NodeEnum::AArrayExpr(array)) = &right.node {
                    self.one_of(left, &array.elements, pinnable);
                }
            }
            _ => (),
        }
    }

    /// `<` and its kin between a column and a value, and BETWEEN.
    fn bounds(
        &mut self,
        comparison: &'a AExpr,
        left: &'a Node,
        right: &'a Node,
        pinnable: &Range<ItemId>,
    ) {
        if comparison.kind() == AExprKind::AexprBetween {
            if let Some(NodeEnum::List(list)) = &right.node
                && let [low, high] = &list.items[..]
                && ![">=", "<="].iter().any(|name| self.context.replaces_operator(name))
            {
                self.bound(left, low, Side::From, pinnable);
                self.bound(left, high, Side::To, pinnable);
            }
            return;
        }
        if comparison.kind() != AExprKind::AexprOp {
            return;
        }
        let (of_left, of_right) = match operator(&comparison.name, &self.context) {
            Some("<") => (Side::Below, Side::From),
            Some("<=") => (Side::To, Side::From),
            Some(">") => (Side::From, Side::Below),
            Some(">=") => (Side::From, Side::To),
            _ => return,
        };
        self.bound(left, right, of_left, pinnable);
        self.bound(right, left, of_right, pinnable);
    }

    fn bound(&mut self, column: &'a Node, bound: &'a Node, side: Side, pinnable: &Range<ItemId>) {
        if let (Some(column), Some(value)) = (self.column(column), value(bound, &self.context))
            && pinnable.contains(&column.item)
        {
            self.analysis.constraints.push(Constraint::Bound { column, value, side });
        }
    }

    fn equality(&mut self, left: &'a Node, right: &'a Node, pinnable: &Range<ItemId>) {
        if let (Some(NodeEnum::RowExpr(left)), Some(NodeEnum::RowExpr(right))) =
            (&left.node, &right.node)
        {
            if left.args.len() == right.args.len() {
                for (left, right) in left.args.iter().zip(&right.args) {
                    self.equality(left, right, pinnable);
                }
            }
            return;
        }
        match (self.column(left), self.column(right)) {
            (Some(left), Some(right)) => {
                let pins_left = pinnable.contains(&left.item);
                let pins_right = pinnable.contains(&right.item);
                if pins_left || pins_right {
                    let equal = Constraint::Equal { left, pins_left, right, pins_right };
                    self.analysis.constraints.push(equal);
                }
            }
            (Some(column), None) => self.pin(column, std::slice::from_ref(right), pinnable),
            (None, Some(column)) => self.pin(column, std::slice::from_ref(left), pinnable),
            (None, None) => (),
        }
    }

    fn one_of(&mut self, left: &'a Node, list: &'a [Node], pinnable: &Range<ItemId>) {
        if let Some(NodeEnum::RowExpr(row)) = &left.node {
            // `(a, b) IN ((1, 2), (3, 4))` says something of each column.
            for (index, left) in row.args.iter().enumerate() {
                let nth = |node: &'a Node| match &node.node {
                    Some(NodeEnum::RowExpr(row)) => row.args.get(index),
                    _ => None,
                };
                let values =
                    list.iter().map(|node| nth(node).and_then(|node| value(node, &self.context)));
                if let (Some(column), Some(values)) = (self.column(left), values.collect()) {
                    self.pin_to(column, values, pinnable);
                }
            }
        } else if let Some(column) = self.column(left) {
            self.pin(column, list, pinnable);
        }
    }

    fn pin(&mut self, column: ColumnId, list: &'a [Node], pinnable: &Range<ItemId>) {
        // A NULL in the list lets no row pass.
        let not_null = list.iter().filter(|node| !is_null(node));
        if let Some(values) = not_null.map(|node| value(node, &self.context)).collect() {
            self.pin_to(column, values, pinnable);
        }
    }

    fn pin_to(&mut self, column: ColumnId, values: Vec<Value<'a>>, pinnable: &Range<ItemId>) {
        if pinnable.contains(&column.item) && !values.is_empty() {
            self.analysis.constraints.push(Constraint::OneOf { column, values });
        }
    }

    /// The column that an expression merely refers to, or that has its value.
    fn column(&self, node: &Node) -> Option<ColumnId> {
        match &node.node {
            Some(NodeEnum::ColumnRef(_)) => self.referred(node),
            Some(NodeEnum::FuncCall(_) | NodeEnum::AExpr(_) | NodeEnum::TypeCast(_)) => {
                self.computed(node)
            }
            _ => None,
        }
    }

    fn referred(&self, node: &Node) -> Option<ColumnId> {
        let Some(NodeEnum::ColumnRef(reference)) = &node.node else { return None };
        match self.analysis.meaning(reference, &self.scopes) {
            Meaning::Column(column) => Some(column),
            _ => None,
        }
    }

    /// The column of a distribution key that is computed by this expression.
    fn computed(&self, node: &Node) -> Option<ColumnId> {
        if !self.context.catalog.has_computed_keys {
            return None;
        }
        let reference = computed_keys::first_reference(node)?;
        let Meaning::Column(ColumnId { item, .. }) = self.analysis.meaning(reference, &self.scopes)
        else {
            return None;
        };
        let (relation, _) = self.analysis.items[item].distributed()?;
        let column_of =
            |node: &Node| self.referred(node).filter(|of| of.item == item).map(|of| of.column);
        let is_meant = |key: &&ComputedKey| {
            computed_keys::is_computed_by(key, node, relation, &column_of, &self.context)
        };
        let key = relation.computed_keys.iter().find(is_meant)?;
        Some(ColumnId { item, column: key.column })
    }
}

fn is_in(link: &SubLink, context: &Context<'_>) -> bool {
    link.sub_link_type() == SubLinkType::AnySublink
        && match &link.oper_name[..] {
            [] => !context.replaces_operator("="),
            name => is_equals(name, context),
        }
}

/// The operator `=` as `pg_catalog` has it, for values of PostgreSQL's own types.
pub(super) fn is_equals(name: &[Node], context: &Context<'_>) -> bool {
    operator(name, context) == Some("=")
}

/// The operator's name, unless it is said to be of another schema than `pg_catalog`, or may be one of the user's.
fn operator<'n>(name: &'n [Node], context: &Context<'_>) -> Option<&'n str> {
    match name {
        [operator] => string(operator).filter(|name| !context.replaces_operator(name)),
        [schema, operator] if string(schema) == Some("pg_catalog") => {
            string(operator).filter(|name| !context.catalog.code.adds_to_built_in_operator(name))
        }
        _ => None,
    }
}

fn is_null(node: &Node) -> bool {
    matches!(&node.node, Some(NodeEnum::AConst(AConst { isnull: true, .. })))
}

/// The value of a literal or a parameter.
pub(super) fn value<'n>(node: &'n Node, context: &Context<'_>) -> Option<Value<'n>> {
    match node.node.as_ref()? {
        NodeEnum::ParamRef(parameter) => match holes::hole_of(parameter) {
            Some(hole) => Some(Value::Hole(hole)),
            None => index_of(parameter.number).map(Value::Parameter),
        },
        NodeEnum::AConst(constant) => literal(constant),
        NodeEnum::TypeCast(cast) => cast_value(cast, context),
        _ => None,
    }
}

/// A parameter's index, counted from 0.
fn index_of(number: i32) -> Option<u16> {
    u16::try_from(number).ok()?.checked_sub(1)
}

fn literal(constant: &AConst) -> Option<Value<'_>> {
    match constant.val.as_ref()? {
        a_const::Val::Ival(integer) => Some(Value::Integer(i64::from(integer.ival))),
        a_const::Val::Fval(number) => Some(Value::Number(&number.fval)),
        a_const::Val::Sval(text) => Some(Value::Untyped(&text.sval)),
        a_const::Val::Boolval(it) => {
            let text = if it.boolval { "true" } else { "false" };
            Some(Value::Typed(text, KeyType::Bool.family()))
        }
        a_const::Val::Bsval(_) => None,
    }
}

/// A cast literal; the cast must not change what the literal says.
fn cast_value<'n>(cast: &'n TypeCast, context: &Context<'_>) -> Option<Value<'n>> {
    let family = family_of(cast.type_name.as_ref()?, context)?;
    match value(cast.arg.as_ref()?, context)? {
        Value::Untyped(text) => Some(Value::Typed(text, family)),
        integer @ Value::Integer(_) if family == "integer" => Some(integer),
        number @ (Value::Integer(_) | Value::Number(_)) if family == "numeric" => Some(number),
        Value::Parameter(index) => Some(Value::CastParameter(index, family)),
        Value::Hole(hole) => match hole.kind {
            // As for the literals above.
            LiteralKind::String if hole.cast.is_none() => {
                Some(Value::Hole(Hole { cast: Some(family), ..hole }))
            }
            LiteralKind::Integer if family == "integer" => Some(Value::Hole(hole)),
            LiteralKind::Integer | LiteralKind::Number if family == "numeric" => {
                Some(Value::Hole(hole))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The family of key types that a type name without modifiers belongs to.
fn family_of(name: &TypeName, context: &Context<'_>) -> Option<&'static str> {
    if !name.typmods.is_empty() || !name.array_bounds.is_empty() || name.setof || name.pct_type {
        return None;
    }
    let name = match &name.names[..] {
        [name] => string(name).filter(|name| !context.hides_type(name)),
        [schema, name] if string(schema) == Some("pg_catalog") => string(name),
        _ => None,
    }?;
    let key_type = match name {
        "bool" => KeyType::Bool,
        "int2" => KeyType::Int2,
        "int4" => KeyType::Int4,
        "int8" => KeyType::Int8,
        "oid" => KeyType::Oid,
        "text" => KeyType::Text,
        "varchar" => KeyType::Varchar,
        "bytea" => KeyType::Bytea,
        "uuid" => KeyType::Uuid,
        "date" => KeyType::Date,
        "time" => KeyType::Time,
        "timestamp" => KeyType::Timestamp,
        "timestamptz" => KeyType::Timestamptz,
        "numeric" => KeyType::Numeric,
        // Not the floats: the same text is another number in the other of the two.
        _ => return None,
    };
    Some(key_type.family())
}
