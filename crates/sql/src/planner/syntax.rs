//! What nodes of a syntax tree say: a name, a called function, an option and its value, INTO, DEFAULT.
//!
//! Owns: reading them as PostgreSQL does. Never: looks a name up.
//! Start reading at [`string`] and [`option`].

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    self, AlterTableStmt, AlterTableType, BoolExprType, ColumnDef, ColumnRef, DefElem, FuncCall,
    Node, RangeVar, SelectStmt, SubLink, SubLinkType, a_const,
};

use crate::walk;

/// The location of a cast that is put into a statement, to a type that is there wherever it is run: what a client names
/// may be node 1's alone.
pub(super) const OWN_CAST: i32 = -2;

/// Whether a node of this kind is in the tree.
pub(super) fn contains(tree: &NodeEnum, is_it: &dyn Fn(&NodeEnum) -> bool) -> bool {
    let mut found = is_it(tree);
    walk::read::children(tree, &mut |child| {
        found = found || child.node.as_ref().is_some_and(|child| contains(child, is_it));
    });
    found
}

/// The names of all queries in WITH, however deep.
#[derive(Debug, Default)]
pub(super) struct WithNames(BTreeSet<String>);

impl WithNames {
    pub(super) fn of(tree: &NodeEnum) -> Self {
        let mut names = Self::default();
        names.add(tree);
        names
    }

    fn add(&mut self, tree: &NodeEnum) {
        if let NodeEnum::CommonTableExpr(query) = tree {
            self.0.insert(query.ctename.clone());
        }
        walk::read::children(tree, &mut |child| {
            if let Some(child) = &child.node {
                self.add(child);
            }
        });
    }

    /// Whether the tree reads what may be one of these queries.
    pub(super) fn are_read_in(&self, tree: &NodeEnum) -> bool {
        contains(tree, &|of| {
            matches!(of, NodeEnum::RangeVar(range)
                if range.schemaname.is_empty() && self.0.contains(&range.relname))
        })
    }
}

/// `EXISTS (…)` or `NOT EXISTS (…)`.
pub(super) fn exists(node: &NodeEnum) -> Option<&SubLink> {
    match node {
        NodeEnum::SubLink(link) if link.sub_link_type() == SubLinkType::ExistsSublink => Some(link),
        NodeEnum::BoolExpr(not) if not.boolop() == BoolExprType::NotExpr => {
            let [argument] = &not.args[..] else { return None };
            match argument.node.as_ref()? {
                NodeEnum::BoolExpr(_) => None,
                of => exists(of),
            }
        }
        _ => None,
    }
}

/// Whether it is a subquery in an expression.
pub(super) fn is_subquery(tree: &NodeEnum) -> bool {
    matches!(tree, NodeEnum::SubLink(_))
}

/// Whether a subquery is in the expression.
pub(super) fn has_subquery(node: &Node) -> bool {
    node.node.as_ref().is_some_and(|tree| contains(tree, &is_subquery))
}

/// The column that an output is, where GROUP BY says the output's name or number.
pub(super) fn named_output<'n>(grouped: &Node, outputs: &'n [Node]) -> Option<&'n ColumnRef> {
    use pg_query::protobuf::a_const::Val;
    let targets = || {
        outputs.iter().map_while(|node| match node.node.as_ref()? {
            NodeEnum::ResTarget(target) => Some(&**target),
            _ => None,
        })
    };
    let column =
        |target: &'n pg_query::protobuf::ResTarget| match target.val.as_ref()?.node.as_ref()? {
            NodeEnum::ColumnRef(reference) => Some(reference),
            _ => None,
        };
    match grouped.node.as_ref()? {
        NodeEnum::ColumnRef(reference) => {
            let [name] = &reference.fields[..] else { return None };
            let name = string(name)?;
            targets().find(|target| target.name == name).and_then(column)
        }
        NodeEnum::AConst(constant) => {
            let Some(Val::Ival(number)) = &constant.val else { return None };
            let index = usize::try_from(number.ival).ok()?.checked_sub(1)?;
            if outputs.iter().take(index).any(is_star_output) {
                return None;
            }
            targets().nth(index).and_then(column)
        }
        _ => None,
    }
}

/// Whose rows an INSERT, UPDATE, DELETE or MERGE changes; `None`: it is another statement.
pub(crate) fn written(tree: &NodeEnum) -> Option<&RangeVar> {
    match tree {
        NodeEnum::InsertStmt(insert) => insert.relation.as_ref(),
        NodeEnum::UpdateStmt(update) => update.relation.as_ref(),
        NodeEnum::DeleteStmt(delete) => delete.relation.as_ref(),
        NodeEnum::MergeStmt(merge) => merge.relation.as_ref(),
        _ => None,
    }
}

/// The same of a query of WITH.
pub(super) fn written_in_with(node: &Node) -> Option<&RangeVar> {
    match &node.node {
        Some(NodeEnum::CommonTableExpr(cte)) => written(cte.ctequery.as_ref()?.node.as_ref()?),
        _ => None,
    }
}

/// The name that an expression is nothing but.
pub(super) fn bare_name(node: &Node) -> Option<&str> {
    match node.node.as_ref()? {
        NodeEnum::ColumnRef(reference) => match &reference.fields[..] {
            [name] => string(name),
            _ => None,
        },
        _ => None,
    }
}

/// Whether it stands for all columns of one table, or of all.
pub(super) fn is_star(reference: &ColumnRef) -> bool {
    reference.fields.last().is_some_and(|node| matches!(node.node, Some(NodeEnum::AStar(_))))
}

/// Whether an output stands for several columns: such a star, or one behind a composite value, `(f(x)).*`.
pub(super) fn is_star_output(target: &Node) -> bool {
    output_value(target).is_some_and(is_any_star)
}

/// Whether an output's value is such a star.
pub(super) fn is_any_star(value: &NodeEnum) -> bool {
    match value {
        NodeEnum::ColumnRef(reference) => is_star(reference),
        value => is_star_of_value(value),
    }
}

/// Whether an output is a star of tables' columns.
pub(super) fn is_star_of_tables(target: &Node) -> bool {
    matches!(output_value(target), Some(NodeEnum::ColumnRef(reference)) if is_star(reference))
}

/// Whether it stands for all columns of a composite value.
pub(super) fn is_star_of_value(value: &NodeEnum) -> bool {
    match value {
        NodeEnum::AIndirection(of) => {
            of.indirection.last().is_some_and(|it| matches!(it.node, Some(NodeEnum::AStar(_))))
        }
        _ => false,
    }
}

fn output_value(target: &Node) -> Option<&NodeEnum> {
    match &target.node {
        Some(NodeEnum::ResTarget(target)) => target.val.as_ref()?.node.as_ref(),
        _ => None,
    }
}

/// The text of a `String` node.
pub(super) fn string(node: &Node) -> Option<&str> {
    match node.node.as_ref()? {
        NodeEnum::String(protobuf::String { sval }) => Some(sval),
        _ => None,
    }
}

/// Schema as written and name of a called function.
pub(super) fn name_of(call: &FuncCall) -> (Option<&str>, &str) {
    match &call.funcname[..] {
        [name] => (None, string(name).unwrap_or_default()),
        [.., schema, name] => (string(schema), string(name).unwrap_or_default()),
        [] => (None, ""),
    }
}

/// Whether DEFAULT stands there, or somewhere below: in a row that several columns are assigned from, say.
pub(super) fn says_default(tree: &NodeEnum) -> bool {
    let mut found = matches!(tree, NodeEnum::SetToDefault(_));
    walk::read::children(tree, &mut |child| {
        found = found || child.node.as_ref().is_some_and(says_default);
    });
    found
}

/// The same of any of these.
pub(super) fn say_default(nodes: &[Node]) -> bool {
    nodes.iter().filter_map(|node| node.node.as_ref()).any(says_default)
}

/// The option with this name in a statement's list of options.
pub(super) fn option<'a>(options: &'a [Node], name: &str) -> Option<&'a DefElem> {
    options.iter().find_map(|option| match &option.node {
        Some(NodeEnum::DefElem(element)) if element.defname == name => Some(&**element),
        _ => None,
    })
}

/// An option's value as text: what was written, without quotes. `None` if it has no value.
pub(super) fn option_text(element: &DefElem) -> Option<String> {
    match element.arg.as_ref()?.node.as_ref()? {
        NodeEnum::String(text) => Some(text.sval.clone()),
        NodeEnum::Integer(number) => Some(number.ival.to_string()),
        NodeEnum::Float(number) => Some(number.fval.clone()),
        NodeEnum::Boolean(value) => Some(value.boolval.to_string()),
        NodeEnum::AStar(_) => Some("*".to_owned()),
        NodeEnum::AConst(constant) => match constant.val.as_ref()? {
            a_const::Val::Sval(text) => Some(text.sval.clone()),
            a_const::Val::Ival(number) => Some(number.ival.to_string()),
            a_const::Val::Fval(number) => Some(number.fval.clone()),
            a_const::Val::Boolval(value) => Some(value.boolval.to_string()),
            a_const::Val::Bsval(_) => None,
        },
        NodeEnum::TypeName(name) => match name.names.last()?.node.as_ref()? {
            NodeEnum::String(text) => Some(text.sval.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an option is on, as PostgreSQL's `defGetBoolean` reads it.
pub(super) fn is_on(element: &DefElem) -> bool {
    if element.arg.is_none() {
        return true;
    }
    option_text(element)
        .is_some_and(|value| ["true", "on", "1"].contains(&value.to_ascii_lowercase().as_str()))
}

/// Whether `option` is the option `name` and on.
pub(super) fn is_set(option: &Node, name: &str) -> bool {
    match &option.node {
        Some(NodeEnum::DefElem(element)) => element.defname == name && is_on(element),
        _ => false,
    }
}

/// SELECT … INTO, which in a set operation is written in the leftmost query.
pub(super) fn has_into(select: &SelectStmt) -> bool {
    select.into_clause.is_some() || select.larg.as_deref().is_some_and(has_into)
}

/// Whether it adds a column whose sequence every node makes by itself. Brought there before, that would have the name
/// which the node's own one is to have.
pub(super) fn adds_sequence(alter: &AlterTableStmt) -> bool {
    alter.cmds.iter().any(|command| match &command.node {
        Some(NodeEnum::AlterTableCmd(command)) => {
            match &command.def.as_ref().and_then(|it| it.node.as_ref()) {
                Some(NodeEnum::ColumnDef(column)) => {
                    command.subtype() == AlterTableType::AtAddColumn
                        && column_makes_sequence(column)
                }
                _ => false,
            }
        }
        _ => false,
    })
}

/// Whether adding this column makes a sequence.
pub(super) fn column_makes_sequence(column: &ColumnDef) -> bool {
    const SERIAL: [&str; 6] =
        ["serial", "serial2", "serial4", "serial8", "bigserial", "smallserial"];
    let serial = column
        .type_name
        .as_ref()
        .and_then(|name| string(name.names.last()?))
        .is_some_and(|name| SERIAL.contains(&name));
    let identity = column.constraints.iter().any(|constraint| match &constraint.node {
        Some(NodeEnum::Constraint(constraint)) => {
            constraint.contype() == protobuf::ConstrType::ConstrIdentity
        }
        _ => false,
    });
    serial || identity
}
