//! Distribution keys that are computed: generated columns; and others that only a server can read.
//!
//! Owns: the question that node 1 is asked for the buckets of rows, and where a statement says what a key is computed
//! by. Never: computes anything.
//! Start reading at [`question`], [`question_of_copied`] and [`is_computed_by`].

use std::collections::HashMap;

use pg_query::NodeEnum;
use pg_query::protobuf::{AConst, AExprKind, Node, TypeName, a_const};

use super::context::Context;
use super::printed::Hiding;
use super::sql_text::{deparse_expression, parse_expression};
use super::syntax::{name_of, string};
use super::{gaps, gather};
use crate::catalog::{Column, ComputedKey, Placement, Relation, quote_identifier};
use crate::hash::sql_bucket_of_several;
use crate::plan::Template;
use crate::refusal::Refusal;
use crate::walk;

/// What node 1 is asked for the buckets of rows of a table whose key is computed: the rows go into the gap, and each is
/// answered, in their order. `None`: rows bring their keys with them.
///
/// Errors: 0A000 where the session's names hide what the expression means.
pub(super) fn question(
    relation: &Relation,
    context: &Context<'_>,
) -> Result<Option<Template>, Refusal> {
    if relation.computed_keys.is_empty() {
        return Ok(None);
    }
    question_about(relation, &gather::rows_of_literal(relation, &gaps::gap(0)), context)
}

/// The same of rows of COPY, whose values are read under the session's settings; also where they bring their keys, which
/// may be written as only a server can read them. `None`: the table has no key.
pub(super) fn question_of_copied(
    relation: &Relation,
    context: &Context<'_>,
) -> Result<Option<Template>, Refusal> {
    let rows = format!("pg_catalog.unnest({}::{}[])", gaps::gap(0), relation.sql_name());
    question_about(relation, &rows, context)
}

fn question_about(
    relation: &Relation,
    rows: &str,
    context: &Context<'_>,
) -> Result<Option<Template>, Refusal> {
    let hiding = Hiding::of(context);
    let mut parts = Vec::new();
    for key in relation.placement.key_columns() {
        let column = &relation.columns[key.column];
        let value = match relation.computed_keys.iter().find(|of| of.column == key.column) {
            Some(ComputedKey { expression, .. }) => {
                format!("CAST(({}) AS {})", hiding.qualified(expression)?, column.declared_type)
            }
            None => quote_identifier(&column.name),
        };
        parts.push((key.key_type, value));
    }
    let bucketing = match relation.placement.key_map() {
        Some(map) => context.catalog.maps.get(&map).map(|map| &map.bucketing),
        None => None,
    };
    let bucket = match (&relation.placement, bucketing, &parts[..]) {
        (Placement::HashOfSeveral { .. }, ..) => {
            sql_bucket_of_several(parts.iter().map(|(key_type, value)| (*key_type, value.as_str())))
        }
        (_, Some(bucketing), [(key_type, value)]) => bucketing.sql_bucket(*key_type, value),
        _ => return Ok(None),
    };
    gaps::cut(&format!("SELECT {bucket} FROM {rows} AS u")).map(Some)
}

/// The expression with these columns called as they are now; `None` if it cannot be read.
pub fn renamed_columns(expression: &str, names: &HashMap<String, String>) -> Option<String> {
    if names.iter().all(|(before, now)| before == now) {
        return Some(expression.to_owned());
    }
    let mut tree = parse_expression(expression)?;
    rename(&mut tree, names);
    deparse_expression(&tree).ok()
}

fn rename(node: &mut Node, names: &HashMap<String, String>) {
    let Some(node) = &mut node.node else { return };
    if let NodeEnum::ColumnRef(reference) = node
        && let [field] = &mut reference.fields[..]
        && let Some(NodeEnum::String(name)) = &mut field.node
        && let Some(now) = names.get(&name.sval)
    {
        name.sval.clone_from(now);
        return;
    }
    walk::write::children(node, &mut |child| rename(child, names));
}

/// The first column that an expression refers to.
pub(super) fn first_reference(node: &Node) -> Option<&pg_query::protobuf::ColumnRef> {
    match node.node.as_ref()? {
        NodeEnum::ColumnRef(reference) => Some(reference),
        node @ (NodeEnum::FuncCall(_) | NodeEnum::AExpr(_) | NodeEnum::TypeCast(_)) => {
            let mut found = None;
            walk::read::children(node, &mut |child| {
                if found.is_none() {
                    found = first_reference(child);
                }
            });
            found
        }
        _ => None,
    }
}

/// Whether an expression is the one that a column of the key has the value of, in each row and where the row is none
/// (all NULL). `column_of`: which column of the table a reference means.
///
/// Only of functions and operators that give NULL for NULL, written as PostgreSQL prints them but for what it adds: a
/// text's cast to `text`, and a varchar's.
pub(super) fn is_computed_by(
    key: &ComputedKey,
    written: &Node,
    relation: &Relation,
    column_of: &dyn Fn(&Node) -> Option<usize>,
    context: &Context<'_>,
) -> bool {
    let Some(printed) = parse_expression(&key.expression).filter(|_| key.exact) else {
        return false;
    };
    Likeness { relation, column_of, context }.is(written, &printed)
}

struct Likeness<'l, 'c> {
    relation: &'l Relation,
    column_of: &'l dyn Fn(&Node) -> Option<usize>,
    context: &'l Context<'c>,
}

impl Likeness<'_, '_> {
    fn is(&self, written: &Node, printed: &Node) -> bool {
        let (Some(of_written), Some(of_printed)) = (&written.node, &printed.node) else {
            return false;
        };
        match (of_written, of_printed) {
            (NodeEnum::TypeCast(written), NodeEnum::TypeCast(printed)) => {
                let types = (&written.type_name, &printed.type_name);
                let (Some(of_written), Some(of_printed)) = types else { return false };
                (!is_a_text(of_printed) || self.is_printed_alike(printed.arg.as_deref()))
                    && self.same_type(of_written, of_printed)
                    && self.both(written.arg.as_deref(), printed.arg.as_deref())
            }
            // What the parser adds.
            (_, NodeEnum::TypeCast(printed)) => {
                let (Some(type_name), Some(argument)) =
                    (&printed.type_name, printed.arg.as_deref())
                else {
                    return false;
                };
                let is_added = match of_written {
                    NodeEnum::AConst(AConst { val: Some(a_const::Val::Sval(_)), .. }) => true,
                    NodeEnum::ColumnRef(_) => (self.column_of)(written)
                        .is_some_and(|column| is_varchar(&self.relation.columns[column])),
                    _ => false,
                };
                is_added && is_text(type_name) && self.is(written, argument)
            }
            (NodeEnum::ColumnRef(_), NodeEnum::ColumnRef(reference)) => {
                let printed = match &reference.fields[..] {
                    [name] => string(name).and_then(|name| self.relation.column(name)),
                    _ => None,
                };
                printed.is_some() && (self.column_of)(written) == printed
            }
            (NodeEnum::AConst(written), NodeEnum::AConst(printed)) => {
                !written.isnull && !printed.isnull && written.val == printed.val
            }
            (NodeEnum::FuncCall(written), NodeEnum::FuncCall(printed)) => {
                let is_plain = |of: &pg_query::protobuf::FuncCall| {
                    of.agg_order.is_empty()
                        && of.agg_filter.is_none()
                        && of.over.is_none()
                        && !of.agg_within_group
                        && !of.agg_star
                        && !of.agg_distinct
                        && !of.func_variadic
                };
                let (schema, name) = name_of(written);
                let code = &self.context.catalog.code;
                let is_built_in = match schema {
                    Some(schema) => schema == "pg_catalog",
                    None => !self.context.scope.puts_others_first() && !code.has_function(name),
                };
                is_built_in
                    && is_plain(written)
                    && is_plain(printed)
                    && is_strict(name)
                    && name == name_of(printed).1
                    && self.all(&written.args, &printed.args)
            }
            (NodeEnum::AExpr(written), NodeEnum::AExpr(printed)) => {
                let operator = |name: &[Node]| match name {
                    [name] => string(name).map(str::to_owned),
                    _ => None,
                };
                let (Some(of_written), Some(of_printed)) =
                    (operator(&written.name), operator(&printed.name))
                else {
                    return false;
                };
                written.kind() == AExprKind::AexprOp
                    && printed.kind() == AExprKind::AexprOp
                    && of_written == of_printed
                    && ["+", "-", "*", "/", "%"].contains(&of_written.as_str())
                    && !self.context.scope.puts_others_first()
                    && !self.context.catalog.code.has_operator(&of_written)
                    && self.both(written.lexpr.as_deref(), printed.lexpr.as_deref())
                    && self.both(written.rexpr.as_deref(), printed.rexpr.as_deref())
            }
            _ => false,
        }
    }

    /// Whether the text of what is cast is the same whatever a session has set: a column of such a type.
    fn is_printed_alike(&self, cast: Option<&Node>) -> bool {
        let reference = match cast.and_then(|cast| cast.node.as_ref()) {
            Some(NodeEnum::ColumnRef(reference)) => &reference.fields[..],
            _ => return false,
        };
        let [name] = reference else { return false };
        let column = string(name).and_then(|name| self.relation.column(name));
        // Of numbers without a fraction or with an exact one, booleans, texts and uuid.
        const ALIKE: [u32; 8] = [16, 20, 21, 23, 25, 1043, 1700, 2950];
        column.is_some_and(|column| ALIKE.contains(&self.relation.columns[column].type_oid))
    }

    fn both(&self, written: Option<&Node>, printed: Option<&Node>) -> bool {
        match (written, printed) {
            (Some(written), Some(printed)) => self.is(written, printed),
            (None, None) => true,
            _ => false,
        }
    }

    fn all(&self, written: &[Node], printed: &[Node]) -> bool {
        written.len() == printed.len()
            && written.iter().zip(printed).all(|(written, printed)| self.is(written, printed))
    }

    fn same_type(&self, written: &TypeName, printed: &TypeName) -> bool {
        let names = |of: &TypeName| {
            of.names.iter().map(string).map(|it| it.map(str::to_owned)).collect::<Vec<_>>()
        };
        let is_plain =
            |of: &TypeName| of.typmods.is_empty() && of.array_bounds.is_empty() && !of.setof;
        let last = |names: &[Option<String>]| names.last().cloned().flatten();
        let (of_written, of_printed) = (names(written), names(printed));
        let is_built_in = match &of_written[..] {
            [Some(name)] => !self.context.hides_type(name),
            [Some(schema), Some(_)] => schema == "pg_catalog",
            _ => false,
        };
        is_built_in
            && is_plain(written)
            && is_plain(printed)
            && last(&of_written) == last(&of_printed)
    }
}

fn is_varchar(column: &Column) -> bool {
    const VARCHAR: u32 = 1043;
    column.type_oid == VARCHAR
}

/// Whether a cast to the type prints.
fn is_a_text(name: &TypeName) -> bool {
    let name = name.names.last().and_then(string);
    matches!(name, None | Some("text" | "varchar" | "bpchar" | "name" | "char"))
}

fn is_text(name: &TypeName) -> bool {
    name.typmods.is_empty()
        && name.array_bounds.is_empty()
        && name.names.last().and_then(string) == Some("text")
}

/// Functions of PostgreSQL's own that give NULL wherever an argument is NULL, and do not depend on settings, as some do
/// that are declared IMMUTABLE (`timezone`, by the abbreviations that a session knows).
fn is_strict(function: &str) -> bool {
    const STRICT: [&str; 23] = [
        "abs",
        "btrim",
        "ceil",
        "ceiling",
        "date_part",
        "date_trunc",
        "div",
        "extract",
        "floor",
        "initcap",
        "left",
        "length",
        "lower",
        "ltrim",
        "md5",
        "mod",
        "reverse",
        "right",
        "round",
        "rtrim",
        "split_part",
        "substr",
        "upper",
    ];
    STRICT.contains(&function)
}
