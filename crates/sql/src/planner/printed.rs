//! Expressions that PostgreSQL has printed with `pg_catalog` first in the path, where its names may mean something else: a
//! session puts another schema before it, or there are functions, operators and types of users' of such names, which
//! may match more exactly than one that takes any type.
//!
//! Owns: which names these are, and giving every such bare name of an expression its schema.
//! Never: touches what a client has written.
//! Start reading at [`qualify`].
//!
//! A default or a view's query is stored with what its names meant at creation. Printed, a name that is
//! found in `pg_catalog` is bare. Read under another path it could be anything placed before that.

use pg_query::NodeEnum;
use pg_query::protobuf::{self, AExprKind, Node, TypeName};

use super::context::Context;
use super::sql_text::{deparse_expression, parse_expression};
use super::syntax::{contains, string};
use crate::built_in_types;
use crate::catalog::{Catalog, NameScope};
use crate::code::{Code, FIRST_USER_OID};
use crate::refusal::Refusal;
use crate::walk;

const BUILT_IN: &str = "pg_catalog";

/// Whether names of `pg_catalog` that comparisons, calculations and types have may be hidden by others, or its operators
/// by better matches.
pub(super) fn is_hidden(context: &Context<'_>) -> bool {
    let code = &context.catalog.code;
    let mut types = code.type_names().chain(context.scope.temporary.iter().map(String::as_str));
    context.scope.puts_others_first()
        || context.replaces_operators()
        || types.any(built_in_types::is_built_in)
}

/// What hides names of `pg_catalog` from a session.
#[derive(Clone, Copy)]
pub(super) struct Hiding<'a> {
    /// Other schemas come before it.
    all: bool,
    temporary: &'a [String],
    catalog: &'a Catalog,
    /// Values of users' types may be compared in what is looked at.
    compares_users_types: bool,
}

impl<'a> Hiding<'a> {
    /// From the session of a statement.
    pub(super) fn of(context: &Context<'a>) -> Self {
        let NameScope { temporary, .. } = context.scope;
        let all = context.scope.puts_others_first();
        Self { all, temporary, catalog: context.catalog, compares_users_types: true }
    }

    fn code(&self) -> &'a Code {
        &self.catalog.code
    }

    /// Whether there is anything that could.
    fn may_hide(&self) -> bool {
        self.all || !self.temporary.is_empty() || self.code().has_names()
    }

    fn operator(&self, name: &[Node]) -> bool {
        matches!(name, [name] if string(name).is_none_or(|name| self.hides_operator(name)))
    }

    fn hides_operator(&self, name: &str) -> bool {
        self.all || self.code().has_operator(name)
    }

    /// The same of one that is meant by other words (`USING`, `NULLIF`), which cannot be given a schema: by the types that
    /// are compared.
    fn hides_by_words(&self, name: &str) -> bool {
        self.all
            || self.code().is_over_built_in(name)
            || (self.compares_users_types && self.code().has_operator(name))
    }

    /// Whether there may be values of other types than PostgreSQL's own. What is printed says the schema of whatever is not
    /// of `pg_catalog`.
    fn may_compare_users_types(&self, tree: &NodeEnum, named: &[String]) -> bool {
        let is_users = |names: &[Node]| matches!(names, [schema, _] if string(schema).is_none_or(|schema| schema != BUILT_IN));
        contains(tree, &|of| match of {
            NodeEnum::TypeCast(cast) => {
                cast.type_name.as_ref().is_some_and(|name| is_users(&name.names))
            }
            NodeEnum::FuncCall(call) => is_users(&call.funcname),
            NodeEnum::AExpr(expression) => is_users(&expression.name),
            NodeEnum::RangeVar(range) => {
                let is_query = range.schemaname.is_empty() && named.contains(&range.relname);
                let known = self.catalog.relations.get(&range.schemaname);
                let relation = known.and_then(|schema| schema.get(&range.relname));
                !is_query
                    && range.schemaname != BUILT_IN
                    && relation.is_none_or(|relation| {
                        relation.columns.iter().any(|column| FIRST_USER_OID <= column.type_oid)
                    })
            }
            _ => false,
        })
    }

    fn function(&self, name: &[Node]) -> bool {
        matches!(name, [name] if self.all || string(name).is_none_or(|name| self.code().has_function(name)))
    }

    fn type_name(&self, name: &[Node]) -> bool {
        let is_hidden = |name: &str| {
            self.temporary.iter().any(|it| it == name)
                || self.code().types_named(name).next().is_some()
        };
        matches!(name, [name] if self.all || string(name).is_none_or(is_hidden))
    }

    /// Gives every bare name that may be hidden its schema.
    ///
    /// Errors: 0A000 for what has an operator in it that cannot be given one.
    pub(super) fn qualify(&self, tree: &mut NodeEnum) -> Result<(), Refusal> {
        if !self.may_hide() {
            return Ok(());
        }
        let mut named = Vec::new();
        note_queries(tree, &mut named);
        let compares_users_types = self.may_compare_users_types(tree, &named);
        Self { compares_users_types, ..*self }.qualify_in(tree, &named)
    }

    /// The same for an expression's text.
    pub(super) fn qualified(&self, text: &str) -> Result<String, Refusal> {
        if !self.may_hide() {
            return Ok(text.to_owned());
        }
        let Some(mut expression) = parse_expression(text) else {
            return Err(unreadable("Its text cannot be read."));
        };
        if let Some(node) = &mut expression.node {
            self.qualify(node)?;
        }
        deparse_expression(&expression)
    }

    fn qualify_in(&self, tree: &mut NodeEnum, named: &[String]) -> Result<(), Refusal> {
        match tree {
            NodeEnum::FuncCall(call) if self.function(&call.funcname) => {
                add_schema(&mut call.funcname)
            }
            NodeEnum::AExpr(expression) => {
                let by_words: &[&str] = match expression.kind() {
                    AExprKind::AexprOp | AExprKind::AexprOpAny | AExprKind::AexprOpAll => {
                        if self.operator(&expression.name) {
                            add_schema(&mut expression.name);
                        }
                        &[]
                    }
                    AExprKind::AexprDistinct
                    | AExprKind::AexprNotDistinct
                    | AExprKind::AexprNullif => &["="],
                    _ => &["=", "<>", "<", "<=", ">", ">=", "~~", "!~~", "~~*", "!~~*", "~", "!~"],
                };
                if by_words.iter().any(|name| self.hides_by_words(name)) {
                    return Err(unreadable(
                        "It compares by words, such as IS DISTINCT FROM or NULLIF.",
                    ));
                }
            }
            NodeEnum::CaseExpr(case) if case.arg.is_some() && self.hides_by_words("=") => {
                return Err(unreadable("It compares by CASE with an operand."));
            }
            NodeEnum::JoinExpr(join)
                if (join.is_natural || !join.using_clause.is_empty())
                    && self.hides_by_words("=") =>
            {
                return Err(unreadable("It compares by JOIN … USING."));
            }
            NodeEnum::SubLink(link) if link.testexpr.is_some() => {
                if link.oper_name.is_empty() && self.hides_operator("=") {
                    link.oper_name.push(word("="));
                }
                if self.operator(&link.oper_name) {
                    add_schema(&mut link.oper_name);
                }
            }
            NodeEnum::SortBy(sort) if self.operator(&sort.use_op) => add_schema(&mut sort.use_op),
            NodeEnum::CollateClause(collate) if self.all => add_schema(&mut collate.collname),
            NodeEnum::TypeCast(cast) => self.qualify_type(&mut cast.type_name),
            NodeEnum::XmlSerialize(serialize) => self.qualify_type(&mut serialize.type_name),
            NodeEnum::ColumnDef(column) => self.qualify_type(&mut column.type_name),
            NodeEnum::RangeVar(range)
                if self.all && range.schemaname.is_empty() && !named.contains(&range.relname) =>
            {
                range.schemaname = BUILT_IN.to_owned();
            }
            _ => (),
        }
        let mut result = Ok(());
        walk::write::children(tree, &mut |child| {
            if let (Ok(()), Some(child)) = (&result, &mut child.node) {
                result = self.qualify_in(child, named);
            }
        });
        result
    }

    fn qualify_type(&self, name: &mut Option<TypeName>) {
        if let Some(name) = name
            && self.type_name(&name.names)
        {
            add_schema(&mut name.names);
        }
    }
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
    use crate::catalog::Catalog;

    #[test]
    fn bare_names_get_their_schema() {
        let catalog = Catalog::default();
        let scope = NameScope {
            search_path: vec!["public".to_owned(), "pg_catalog".to_owned()],
            ..NameScope::default()
        };
        let qualified = |text: &str| Hiding::of(&Context::new(&catalog, &scope)).qualified(text);
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
