//! SQL text of rewritten trees, and the trees of expressions' texts.
//!
//! Owns: writing trees out and reading expressions, and the places where the library's writer would change their meaning.
//! Never: rewrites anything else.
//! Start reading at [`deparse`].

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, TypeName};

use super::syntax::string;
use crate::refusal::Refusal;
use crate::walk;

/// The SQL text of a whole statement's tree.
pub(crate) fn deparse(statement: &NodeEnum) -> Result<String, Refusal> {
    let write = |tree: &NodeEnum| {
        tree.deparse(pg_query::DeparseOptions::default()).map_err(|error| {
            Refusal::postgres(
                "XX000",
                format!("a statement could not be written out again: {error}"),
            )
        })
    };
    let types = Types::of(statement);
    if types.has_odd_modifier {
        let message = "type modifiers must be simple constants or identifiers";
        return Err(Refusal::postgres("42601", message));
    }
    if !types.has_bare_bpchar {
        return write(statement);
    }
    let mut plain = statement.clone();
    keep_bpchar(&mut plain);
    write(&plain)
}

/// The SQL text of an expression's tree.
pub(crate) fn deparse_expression(expression: &Node) -> Result<String, Refusal> {
    // A SELECT of our own making would lack what only the parser sets, and deparsing would abort.
    let carrier = crate::statement::parse("SELECT 1")?.pop().map(|statement| statement.tree);
    let Some(NodeEnum::SelectStmt(mut select)) = carrier else {
        return Err(Refusal::postgres("XX000", "cannot read our own SQL: SELECT 1"));
    };
    for target in &mut select.target_list {
        if let Some(NodeEnum::ResTarget(target)) = &mut target.node {
            target.val = Some(Box::new(expression.clone()));
        }
    }
    let text = deparse(&NodeEnum::SelectStmt(select))?;
    Ok(text.trim_start_matches("SELECT ").to_owned())
}

/// The tree of an expression's text.
pub(super) fn parse_expression(text: &str) -> Option<Node> {
    let statement = crate::statement::parse(&format!("SELECT {text}")).ok()?.pop()?;
    let NodeEnum::SelectStmt(mut select) = statement.tree else { return None };
    match select.target_list.pop()?.node? {
        NodeEnum::ResTarget(target) if select.target_list.is_empty() => {
            target.val.map(|value| *value)
        }
        _ => None,
    }
}

/// Whether a type is `pg_catalog.bpchar` without a length. The library writes it as `char`, which
/// is one character long: it would cut values.
fn is_bare_bpchar(name: &TypeName) -> bool {
    let names = || name.names.iter().filter_map(string);
    name.typmods.is_empty() && names().eq(["pg_catalog", "bpchar"])
}

/// What the library does not write as it is.
#[derive(Clone, Copy, Debug, Default)]
struct Types {
    /// A cast to such a type.
    has_bare_bpchar: bool,
    /// `numeric(1 + 1)`, which no PostgreSQL accepts, and with which the library would end the process.
    has_odd_modifier: bool,
}

impl Types {
    fn of(tree: &NodeEnum) -> Self {
        let mut types = Self::default();
        types.add(tree);
        types
    }

    fn add(&mut self, tree: &NodeEnum) {
        let named = match tree {
            NodeEnum::TypeCast(cast) => {
                self.has_bare_bpchar |= cast.type_name.as_ref().is_some_and(is_bare_bpchar);
                &cast.type_name
            }
            NodeEnum::ColumnDef(column) => &column.type_name,
            NodeEnum::XmlSerialize(of) => &of.type_name,
            NodeEnum::RangeTableFuncCol(column) => &column.type_name,
            NodeEnum::JsonTableColumn(column) => &column.type_name,
            NodeEnum::JsonOutput(output) => &output.type_name,
            NodeEnum::FunctionParameter(parameter) => &parameter.arg_type,
            NodeEnum::CreateDomainStmt(domain) => &domain.type_name,
            NodeEnum::CreateFunctionStmt(function) => &function.return_type,
            _ => &None,
        };
        self.has_odd_modifier |= named.as_ref().is_some_and(has_odd_modifier);
        let visit = &mut |child: &Node| {
            if let Some(child) = &child.node {
                self.add(child);
            }
        };
        match tree {
            NodeEnum::CreateTableAsStmt(create) => {
                create.query.as_deref().into_iter().for_each(visit);
            }
            NodeEnum::CopyStmt(copy) => {
                copy.query.as_deref().into_iter().for_each(&mut *visit);
                copy.where_clause.as_deref().into_iter().for_each(visit);
            }
            NodeEnum::CreateStmt(create) => create.table_elts.iter().for_each(visit),
            NodeEnum::AlterTableStmt(alter) => alter.cmds.iter().for_each(visit),
            NodeEnum::AlterTableCmd(command) => {
                command.def.as_deref().into_iter().for_each(visit);
            }
            NodeEnum::RangeFunction(function) => {
                function.coldeflist.iter().for_each(&mut *visit);
                walk::read::children(tree, visit);
            }
            NodeEnum::RangeTableFunc(function) => {
                function.columns.iter().for_each(&mut *visit);
                walk::read::children(tree, visit);
            }
            _ => walk::read::children(tree, visit),
        }
    }
}

fn has_odd_modifier(name: &TypeName) -> bool {
    name.typmods.iter().any(|modifier| {
        !matches!(
            modifier.node,
            Some(NodeEnum::AConst(_) | NodeEnum::ParamRef(_) | NodeEnum::ColumnRef(_))
        )
    })
}

/// Takes the schema away: `bpchar` alone is written as it is.
fn keep_bpchar(tree: &mut NodeEnum) {
    if let NodeEnum::TypeCast(cast) = tree
        && let Some(name) = cast.type_name.as_mut().filter(|name| is_bare_bpchar(name))
    {
        name.names.remove(0);
    }
    let visit = &mut |child: &mut Node| {
        if let Some(node) = &mut child.node {
            keep_bpchar(node);
        }
    };
    match tree {
        NodeEnum::CreateTableAsStmt(create) => {
            create.query.as_deref_mut().into_iter().for_each(visit);
        }
        NodeEnum::CopyStmt(copy) => {
            copy.query.as_deref_mut().into_iter().for_each(&mut *visit);
            copy.where_clause.as_deref_mut().into_iter().for_each(visit);
        }
        _ => walk::write::children(tree, visit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(sql: &str) -> String {
        deparse(&crate::statement::parse(sql).unwrap().pop().unwrap().tree).unwrap()
    }

    #[test]
    fn a_cast_to_bpchar_does_not_get_a_length() {
        for sql in [
            "SELECT a::bpchar, ARRAY(SELECT b::bpchar[] FROM t)",
            "CREATE TABLE u AS SELECT a::bpchar FROM t",
            "COPY (SELECT a::bpchar FROM t) TO STDOUT",
        ] {
            assert_eq!(again(&sql.replace("bpchar", "pg_catalog.bpchar")), sql);
        }
        assert_eq!(again("SELECT a::char, a::char(3)"), "SELECT a::char(1), a::char(3)");
    }

    #[test]
    fn a_modifier_that_is_computed_is_refused_as_postgresql_refuses_it() {
        for sql in [
            "SELECT a::numeric(1 + 1) FROM t",
            "SELECT * FROM f() AS t (a numeric(g()))",
            "CREATE TABLE u (a numeric(x || 1))",
            "CREATE TABLE u AS SELECT a::numeric(1::int) FROM t",
            "ALTER TABLE t ADD COLUMN a numeric(2 - 1)",
            "SELECT xmlserialize(CONTENT a AS numeric(1 + 1)) FROM t",
        ] {
            let refused = deparse(&crate::statement::parse(sql).unwrap().pop().unwrap().tree);
            let sqlstate = refused.map_err(|refusal| refusal.sqlstate);
            assert!(sqlstate.as_ref().is_err_and(|state| *state == "42601"), "{sql}: {sqlstate:?}");
        }
        assert_eq!(again("SELECT a::numeric(8, 2)"), "SELECT a::numeric(8, 2)");
    }

    #[test]
    fn other_types_without_a_length_keep_their_meaning() {
        let sql = "SELECT a::pg_catalog.bit, a::pg_catalog.varbit, a::bit, a::pg_catalog.\"char\"";
        let written = "SELECT a::pg_catalog.bit, a::pg_catalog.varbit, a::pg_catalog.bit(1), a::pg_catalog.char";
        assert_eq!(again(sql), written);
        assert_eq!(again(written), written);
    }
}
