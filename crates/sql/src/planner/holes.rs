//! A statement's tree with holes where its literals were.
//!
//! Owns: finding the constant that each literal became, and the node that stands for a hole.
//! Never: decides what a hole may be used for; to the planner it is a value that it cannot see.
//!
//! A hole is a parameter with a negative number, which no client can write: code that looks for a
//! constant in the tree finds none, and only `filters::value` recognises it.

use pg_query::NodeEnum;
use pg_query::protobuf::{AConst, ParamRef, a_const};

use crate::shape::{Hole, Literal, LiteralKind, blank_end};
use crate::walk;

const KINDS: [LiteralKind; 3] = [LiteralKind::Integer, LiteralKind::Number, LiteralKind::String];

/// Puts holes in place of the literals; whether each was found, and once.
///
/// A literal that is no constant of the tree has become part of something else (the precision of a
/// type, say), and one that is two has two meanings: neither may vary.
pub(super) fn put(tree: &mut NodeEnum, text: &str, literals: &[Literal], apart: bool) -> bool {
    let mut digger = Digger { text, literals, apart, met: vec![0; literals.len()] };
    digger.children(tree);
    digger.met.iter().all(|times| *times == 1)
}

struct Digger<'a> {
    text: &'a str,
    literals: &'a [Literal],
    apart: bool,
    met: Vec<u8>,
}

impl Digger<'_> {
    fn children(&mut self, node: &mut NodeEnum) {
        walk::write::children(node, &mut |child| {
            let Some(child) = &mut child.node else { return };
            if let NodeEnum::AConst(constant) = child {
                if let Some(hole) = self.hole_for(constant) {
                    let met = &mut self.met[usize::from(hole.index)];
                    *met = met.saturating_add(1);
                    let location = constant.location;
                    *child = NodeEnum::ParamRef(ParamRef { number: number_of(hole), location });
                }
            } else {
                self.children(child);
            }
        });
    }

    /// The hole that a constant leaves; `None` for what is no literal: NULL, TRUE, or a word that the
    /// grammar makes a constant of.
    fn hole_for(&self, constant: &AConst) -> Option<Hole> {
        let kind_fits = |kind| {
            matches!(
                (constant.val.as_ref(), kind),
                (Some(a_const::Val::Ival(_)), LiteralKind::Integer)
                    | (Some(a_const::Val::Fval(_)), LiteralKind::Number)
                    | (Some(a_const::Val::Sval(_)), LiteralKind::String)
            )
        };
        let bytes = self.text.as_bytes();
        let at = usize::try_from(constant.location).ok()?;
        // The grammar makes one constant of a minus sign and the number after it.
        let negative = bytes.get(at) == Some(&b'-');
        let start = if negative { blank_end(bytes, at + 1)? } else { at };
        let index = self.literals.binary_search_by_key(&start, |literal| literal.start).ok()?;
        let kind = self.literals[index].kind;
        let index = u16::try_from(index).ok()?;
        kind_fits(kind).then_some(Hole { index, kind, negative, cast: None, apart: self.apart })
    }
}

fn number_of(hole: Hole) -> i32 {
    let kind = match hole.kind {
        LiteralKind::Integer => 0,
        LiteralKind::Number => 1,
        LiteralKind::String => 2,
    };
    let flags = kind << 2 | i32::from(hole.negative) << 1 | i32::from(hole.apart);
    -1 - (i32::from(hole.index) << 4 | flags)
}

/// The hole that a parameter of the tree stands for; `None` for the client's parameters.
pub(super) fn hole_of(parameter: &ParamRef) -> Option<Hole> {
    let number = -1 - parameter.number;
    if number < 0 {
        return None;
    }
    Some(Hole {
        index: u16::try_from(number >> 4).ok()?,
        kind: *KINDS.get(usize::try_from(number >> 2 & 3).ok()?)?,
        negative: number & 2 != 0,
        cast: None,
        apart: number & 1 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_survive_their_numbers() {
        for kind in KINDS {
            for bits in 0..4 {
                for index in [0, 1, 127] {
                    let (negative, apart) = (bits & 1 != 0, bits & 2 != 0);
                    let hole = Hole { index, kind, negative, cast: None, apart };
                    let number = number_of(hole);
                    assert!(number < 0, "a client's parameter");
                    assert_eq!(hole_of(&ParamRef { number, location: 0 }), Some(hole));
                }
            }
        }
        assert_eq!(hole_of(&ParamRef { number: 1, location: 0 }), None);
        assert_eq!(hole_of(&ParamRef { number: 0, location: 0 }), None);
    }
}
