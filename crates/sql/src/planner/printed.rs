//! Expressions that PostgreSQL has printed with `pg_catalog` first in the path, for sessions to which its names may mean
//! something else: they put another schema before it, or there are users' operators and types of such names.
//!
//! Owns: which sessions these are, and giving every bare name of such an expression its schema.
//! Never: touches what a client has written.
//! Start reading at [`qualify`].
//!
//! A default or a view's query is stored with what its names meant at creation. Printed, a name that is
//! found in `pg_catalog` is bare. Read under another path it could be anything placed before that.

use pg_query::NodeEnum;
use pg_query::protobuf::{self, AExprKind, Node, TypeName};

use super::built_in_types;
use super::context::Context;
use super::sql_text::{deparse_expression, parse_expression};
use crate::refusal::Refusal;
use crate::walk;

const BUILT_IN: &str = "pg_catalog";

/// Whether names of `pg_catalog` may be hidden by others, or its operators by better matches.
pub(super) fn is_hidden(context: &Context<'_>) -> bool {
    let code = &context.catalog.code;
    let mut types = code.type_names().chain(context.scope.temporary.iter().map(String::as_str));
    context.scope.puts_others_first()
        || code.replaces_operators()
        || types.any(built_in_types::is_built_in)
}

/// Gives every bare name its schema.
///
/// Errors: 0A000 for what has an operator in it that cannot be given one.
pub(super) fn qualify(tree: &mut NodeEnum) -> Result<(), Refusal> {
    let mut named = Vec::new();
    note_queries(tree, &mut named);
    qualify_in(tree, &named)
}

/// The same for an expression's text.
pub(super) fn qualified(text: &str) -> Result<String, Refusal> {
    let Some(mut expression) = parse_expression(text) else {
        return Err(unreadable("Its text cannot be read."));
    };
    if let Some(node) = &mut expression.node {
        qualify(node)?;
    }
    deparse_expression(&expression)
}

/// Names that WITH gives.
fn note_queries(tree: &NodeEnum, named: &mut Vec<String>) {
    if let NodeEnum::CommonTableExpr(cte) = tree {
        named.push(cte.ctename.clone());
    }
    walk::read::children(tree, &mut |child| {
        if let Some(child) = &child.node {
            note_queries(child, named);
        }
    });
}

fn qualify_in(tree: &mut NodeEnum, named: &[String]) -> Result<(), Refusal> {
    match tree {
        NodeEnum::FuncCall(call) => add_schema(&mut call.funcname),
        NodeEnum::AExpr(expression) => match expression.kind() {
            AExprKind::AexprOp | AExprKind::AexprOpAny | AExprKind::AexprOpAll => {
                add_schema(&mut expression.name);
            }
            _ => {
                return Err(unreadable(
                    "It compares by words, such as IS DISTINCT FROM or NULLIF.",
                ));
            }
        },
        NodeEnum::CaseExpr(case) if case.arg.is_some() => {
            return Err(unreadable("It compares by CASE with an operand."));
        }
        NodeEnum::JoinExpr(join) if join.is_natural || !join.using_clause.is_empty() => {
            return Err(unreadable("It compares by JOIN … USING."));
        }
        NodeEnum::SubLink(link) if link.testexpr.is_some() => {
            if link.oper_name.is_empty() {
                link.oper_name.push(word("="));
            }
            add_schema(&mut link.oper_name);
        }
        NodeEnum::SortBy(sort) if !sort.use_op.is_empty() => add_schema(&mut sort.use_op),
        NodeEnum::CollateClause(collate) => add_schema(&mut collate.collname),
        NodeEnum::TypeCast(cast) => add_schema_of(&mut cast.type_name),
        NodeEnum::XmlSerialize(serialize) => add_schema_of(&mut serialize.type_name),
        NodeEnum::ColumnDef(column) => add_schema_of(&mut column.type_name),
        NodeEnum::RangeVar(range)
            if range.schemaname.is_empty() && !named.contains(&range.relname) =>
        {
            range.schemaname = BUILT_IN.to_owned();
        }
        _ => (),
    }
    let mut result = Ok(());
    walk::write::children(tree, &mut |child| {
        if let (Ok(()), Some(child)) = (&result, &mut child.node) {
            result = qualify_in(child, named);
        }
    });
    result
}

fn add_schema_of(name: &mut Option<TypeName>) {
    if let Some(name) = name {
        add_schema(&mut name.names);
    }
}

fn add_schema(name: &mut Vec<Node>) {
    if let [_] = name.as_slice() {
        name.insert(0, word(BUILT_IN));
    }
}

fn word(text: &str) -> Node {
    Node { node: Some(NodeEnum::String(protobuf::String { sval: text.to_owned() })) }
}

fn unreadable(why: &str) -> Refusal {
    Refusal::unsupported(
        "a default or view cannot be written out where search_path has a schema before pg_catalog, or operators of \
         users' have the names of its own",
        format!("{why} Written out, it might mean what is in another schema."),
        "Leave pg_catalog out of search_path, or put it first; give such operators other names.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, NameScope};

    #[test]
    fn bare_names_get_their_schema() {
        for (printed, expected) in [
            (
                "nextval('public.s'::regclass)",
                "pg_catalog.nextval('public.s'::pg_catalog.regclass)",
            ),
            (
                "((a)::text || 'x'::text)",
                "a::pg_catalog.text OPERATOR(pg_catalog.||) 'x'::pg_catalog.text",
            ),
            ("(a = ANY (ARRAY[1, 2]))", "a OPERATOR(pg_catalog.=) ANY(ARRAY[1, 2])"),
            ("public.mine(a)", "public.mine(a)"),
            ("(a COLLATE \"C\")", "a COLLATE pg_catalog.\"C\""),
        ] {
            assert_eq!(qualified(printed).unwrap(), expected, "{printed}");
        }
        for printed in ["(a IS DISTINCT FROM b)", "NULLIF(a, b)", "CASE a WHEN 1 THEN 2 END"] {
            assert!(qualified(printed).is_err(), "{printed}");
        }
    }

    #[test]
    fn a_path_hides_what_is_built_in_if_that_is_not_first() {
        let catalog = Catalog::default();
        let is_hidden_by = |path: &[&str], temporary: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let scope = NameScope {
                search_path: owned(path),
                temporary: owned(temporary),
                ..NameScope::default()
            };
            is_hidden(&Context::new(&catalog, &scope))
        };
        assert!(is_hidden_by(&["public", "pg_catalog"], &[]));
        assert!(!is_hidden_by(&["pg_catalog", "public"], &["mine"]));
        assert!(!is_hidden_by(&["public"], &[]));
        // A temporary table gives its name to a type, which comes first.
        assert!(is_hidden_by(&["pg_catalog", "public"], &["text"]));
    }
}
