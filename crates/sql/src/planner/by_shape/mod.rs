//! One plan for all statements of a shape.
//!
//! Owns: the proof that a plan does not depend on the values of a statement's literals except for
//! where keys land, and putting these values in.
//! Never: keeps plans; the gateway's cache does.
//! Start reading at [`plan_shape`]. The argument in full is docs/decisions/2026-11-21-plans-by-shape.md.

use std::sync::Arc;

use super::analysis::Value;
use super::context::Context;
use super::current_time::names_current_time;
use super::dispatch::plan;
use super::pins::{Landing, bucket_of_end, bucket_of_stored_literal, landing};
use super::{holes, utility};
use crate::catalog::{Catalog, NodeId};
use crate::hash::Bucket;
use crate::plan::{Access, Concerns, DataPlan, KeyValue, NodeChoice, Pin, Plan, Planned, Residue};
use crate::shape::{Hole, Literal, LiteralKind, Shape};
use crate::statement::Statement;
use pg_query::NodeEnum;

/// What to do for all statements of a shape.
#[derive(Clone, Debug)]
pub struct ShapePlan {
    /// For literals whose keys land on one node; also where no key is a literal.
    together: Arc<Planned>,
    /// For literals that land on several nodes, if that plan holds no text of the statement.
    apart: Option<Arc<Planned>>,
}

/// The node of a statement that runs on one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OneNode {
    /// This one.
    At(NodeId),
    /// The one that speaks for all: [`NodeChoice::Speaker`].
    Speaker,
    /// Whichever the session prefers.
    Any,
}

/// Why a shape has no plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unfit {
    /// Its statements have to be planned one by one.
    Shape,
    /// The plan could not be checked with the literals at hand; others may do.
    Literals,
}

/// The plan of the shape of `statement`, which is all of `text` and was planned as `fresh`.
///
/// The statement is planned once more with holes for its literals, into which the planner cannot
/// look. The result counts only if it comes out the same as `fresh` when the literals are put in.
pub fn plan_shape(
    statement: &Statement,
    text: &str,
    shape: &Shape<'_>,
    fresh: &Planned,
    context: &Context<'_>,
) -> Result<ShapePlan, Unfit> {
    let is_all = text.get(shape.start..shape.end) == Some(statement.text.as_str())
        && statement.offset == shape.start
        && statement.distribute_by.is_none()
        && statement.parameter_count == 0;
    let reads_literals = match &statement.tree {
        NodeEnum::SelectStmt(select) => utility::reads_literals(select),
        NodeEnum::InsertStmt(_) | NodeEnum::UpdateStmt(_) | NodeEnum::DeleteStmt(_) => false,
        _ => true,
    };
    // Names of settings, and places in the text, are this statement's alone.
    let is_its_own = !fresh.residue.settings.is_empty() || !fresh.session_names.is_empty();
    if !is_all || reads_literals || is_its_own || !holds_no_text(&fresh.plan) {
        return Err(Unfit::Shape);
    }
    let planned = |apart| -> Result<Arc<Planned>, Unfit> {
        let mut tree = statement.tree.clone();
        if !holes::put(&mut tree, text, shape.literals, apart) {
            return Err(Unfit::Shape);
        }
        let text = statement.text.clone();
        let (distribute_by, parameter_count) = (None, 0);
        let blind = Statement {
            text,
            offset: statement.offset,
            tree,
            distribute_by,
            cascades: false,
            global_unique: false,
            parameter_count,
        };
        match plan(&blind, context) {
            Ok(planned) if holds_no_text(&planned.plan) => Ok(Arc::new(planned)),
            _ => Err(Unfit::Shape),
        }
    };
    let together = planned(false)?;
    let apart = match pins(&together.plan) {
        Some(pins) if 1 < pins.len() => {
            planned(true).ok().filter(|apart| self::pins(&apart.plan).is_none())
        }
        _ => None,
    };
    let made = ShapePlan { together, apart };
    match made.resolve(text, shape.literals, context.catalog) {
        Some(resolved) if are_alike(&resolved, fresh) => Ok(made),
        Some(_) => Err(Unfit::Shape),
        None => Err(Unfit::Literals),
    }
}

impl ShapePlan {
    /// The plan for a text of this shape with these literals; `None`: it has to be planned by itself.
    ///
    /// Requires: `catalog` is the one that the shape was planned with.
    pub fn resolve(
        &self,
        text: &str,
        literals: &[Literal],
        catalog: &Catalog,
    ) -> Option<Arc<Planned>> {
        if literals.iter().any(|literal| is_time(literal, text)) {
            return None;
        }
        let Plan::Data(DataPlan::One { node: NodeChoice::Pinned(pins), access, .. }) =
            &self.together.plan
        else {
            return Some(self.together.clone());
        };
        let resolved = pins.iter().map(|pin| {
            let bucket = pin.bucket(|part| match part.value {
                KeyValue::Literal(hole) => bucket(part, hole, text, literals, catalog),
                KeyValue::Bucket(bucket) => Some(bucket),
                KeyValue::Parameter(_) | KeyValue::Several(_) => None,
            })?;
            Some(Pin { value: KeyValue::Bucket(bucket), ..pin.clone() })
        });
        let resolved = resolved.collect::<Option<Vec<Pin>>>()?;
        match landing(&resolved, catalog) {
            Landing::Certain => {
                let node = NodeChoice::Pinned(resolved);
                let plan = Plan::Data(DataPlan::One { node, access: *access, otherwise: None });
                Some(Arc::new(Planned {
                    plan,
                    why: self.together.why.clone(),
                    residue: self.together.residue.clone(),
                    session_names: Vec::new(),
                    unseen: self.together.unseen.clone(),
                    concerns: self.together.concerns.clone(),
                    unasked: self.together.unasked,
                    one_moment: false,
                    in_moments: self.together.in_moments,
                    may_be_late: self.together.may_be_late,
                    keeps_entries: self.together.keeps_entries,
                    checks_references: self.together.checks_references,
                    as_owner_of: Vec::new(),
                    written_out: Vec::new(),
                }))
            }
            Landing::Several => self.apart.clone(),
            Landing::Open => None,
        }
    }

    /// What a text of this shape depends on.
    pub fn concerns(&self) -> Option<&Arc<Concerns>> {
        self.together.concerns.as_ref()
    }

    /// Where a text of this shape with these literals runs, and what it does there, if that is one
    /// node and nothing is left behind: what [`Self::resolve`] says, without making a plan.
    ///
    /// `None` also where that cannot be determined as quickly. Requires: as there.
    pub fn one_node(
        &self,
        text: &str,
        literals: &[Literal],
        catalog: &Catalog,
    ) -> Option<(OneNode, Access)> {
        let Planned {
            plan: Plan::Data(DataPlan::One { node, access, .. }),
            residue,
            session_names,
            unseen,
            keeps_entries: false,
            ..
        } = &*self.together
        else {
            return None;
        };
        let is_plain =
            *residue == Residue::default() && session_names.is_empty() && unseen.is_none();
        if !is_plain || literals.iter().any(|literal| is_time(literal, text)) {
            return None;
        }
        let pins = match node {
            NodeChoice::Home => return Some((OneNode::At(NodeId::HOME), *access)),
            NodeChoice::Speaker => return Some((OneNode::Speaker, *access)),
            NodeChoice::Any => return Some((OneNode::Any, *access)),
            NodeChoice::Pinned(pins) => pins,
        };
        let mut found = OneNode::Any;
        for pin in pins {
            let bucket = pin.bucket(|part| match part.value {
                KeyValue::Literal(hole) if !hole.apart => {
                    bucket(part, hole, text, literals, catalog)
                }
                KeyValue::Bucket(bucket) => Some(bucket),
                KeyValue::Literal(_) | KeyValue::Parameter(_) | KeyValue::Several(_) => None,
            })?;
            let node = OneNode::At(catalog.maps.get(&pin.map)?.node(bucket));
            if found != OneNode::Any && found != node {
                return None;
            }
            found = node;
        }
        Some((found, *access))
    }

    /// Roughly how many bytes it takes.
    pub fn size(&self) -> usize {
        let size = |planned: &Arc<Planned>| size_of::<Planned>() + planned.why.len();
        let pins = pins(&self.together.plan).map_or(0, size_of_val);
        size_of::<Self>() + size(&self.together) + self.apart.as_ref().map_or(0, size) + pins
    }
}

/// Whether the literal may be read as the current time. The planner asks that of a constant; in holes
/// it finds none.
fn is_time(literal: &Literal, text: &str) -> bool {
    literal.kind == LiteralKind::String && names_current_time(literal.written(text))
}

/// Whether nothing of the statement's text is in its plan: all nodes get what the client wrote.
fn holds_no_text(plan: &Plan) -> bool {
    match plan {
        Plan::Data(DataPlan::One { otherwise, .. }) => otherwise.is_none(),
        Plan::Data(DataPlan::Scatter { .. } | DataPlan::Replicas { .. } | DataPlan::Rows(_)) => {
            true
        }
        _ => false,
    }
}

fn pins(plan: &Plan) -> Option<&[Pin]> {
    match plan {
        Plan::Data(DataPlan::One { node: NodeChoice::Pinned(pins), .. }) => Some(pins),
        _ => None,
    }
}

/// Whether two plans do the same and leave the same after; why they were chosen makes no
/// difference, nor how often one value is named as a pin, nor for how many snapshots the same was planned.
pub fn are_alike(one: &Planned, other: &Planned) -> bool {
    let does_the_same = match (pins(&one.plan), pins(&other.plan)) {
        (Some(pins), Some(others)) => {
            without_pins(&one.plan) == without_pins(&other.plan)
                && pins.iter().all(|pin| others.contains(pin))
                && others.iter().all(|pin| pins.contains(pin))
        }
        _ => one.plan == other.plan,
    };
    does_the_same
        && one.residue == other.residue
        && one.session_names == other.session_names
        && one.unseen == other.unseen
        && one.keeps_entries == other.keeps_entries
        && one.checks_references == other.checks_references
}

fn without_pins(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    if let Plan::Data(DataPlan::One { node, otherwise, .. }) = &mut plan {
        *node = NodeChoice::Any;
        if let Some(otherwise) = otherwise {
            otherwise.in_moments = false;
        }
    }
    plan
}

/// The bucket of the literal in a hole, as the planner finds it for a constant.
fn bucket(
    pin: &Pin,
    hole: Hole,
    text: &str,
    literals: &[Literal],
    catalog: &Catalog,
) -> Option<Bucket> {
    let bucketing = &catalog.maps.get(&pin.map)?.bucketing;
    let literal = literals.get(usize::from(hole.index)).filter(|it| it.kind == hole.kind)?;
    let written = literal.written(text);
    let (number, unquoted);
    let value = match hole.kind {
        LiteralKind::Integer => {
            let value = written.parse::<i64>().ok()?;
            Value::Integer(if hole.negative { -value } else { value })
        }
        LiteralKind::Number if hole.negative => {
            number = format!("-{written}");
            Value::Number(&number)
        }
        LiteralKind::Number => Value::Number(written),
        LiteralKind::String => {
            unquoted = literal.unquoted(text);
            match hole.cast {
                Some(family) => Value::Typed(&unquoted, family),
                None => Value::Untyped(&unquoted),
            }
        }
    };
    match pin.stored {
        Some(modifier) => bucket_of_stored_literal(bucketing, pin.key_type, modifier, value),
        None => bucket_of_end(bucketing, pin.key_type, value, pin.ends),
    }
}

#[cfg(test)]
pub(super) mod tests;
