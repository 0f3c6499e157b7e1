//! Queries that ask node 1 how large relations are, or how many rows they have, made to ask every node.
//!
//! Owns: which calls and columns of a query these are, and the query with what other nodes add to each.
//! Never: refuses: a query of which no such plan can be made is node 1's, as any other of its system catalog.
//! Start reading at [`planned_with`].
//!
//! `pg_table_size(c.oid)` becomes `tutti.pg_table_size(c.oid, (SELECT sizes FROM tutti_table_bytes))`, and WITH gets a query
//! `tutti_table_bytes` that reads the cluster view `tutti.relation_sizes`: what nodes other than node 1 have, by schema and
//! name, for their OIDs are others. Joined with node 1's system catalog it becomes one value, sizes by node 1's OIDs. What
//! results is planned as any query of a client's.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    ColumnRef, FuncCall, Node, RangeVar, SelectStmt, SetOperation, String as PgString, WithClause,
};

use super::context::Context;
use super::functions::means_built_in;
use super::gaps::{expression, output_name, parse_select};
use super::sql_text::deparse;
use super::syntax::{bare_name, contains, name_of, string};
use crate::catalog::{quote_identifier, quote_literal};
use crate::refusal::Refusal;
use crate::walk;

/// Begins the names of the queries in WITH. No statement that has it is looked at.
const PREFIX: &str = "tutti_";
/// Functions of a relation, with the column of `tutti.relation_sizes` that has what they give.
const OF_RELATION: [(&str, &str); 4] = [
    ("pg_relation_size", "main_bytes"),
    ("pg_table_size", "table_bytes"),
    ("pg_indexes_size", "index_bytes"),
    ("pg_total_relation_size", "total_bytes"),
];
/// The function of a database.
const OF_DATABASE: &str = "pg_database_size";
/// Columns of `pg_class`, with that of `tutti.relation_sizes`.
const OF_CLASS: [(&str, &str); 2] = [("relpages", "pages"), ("reltuples", "tuples")];

/// Plans the query with what all nodes say of sizes, if it asks for any and that can be planned, else as it is.
pub(super) fn planned_with<T>(
    select: &SelectStmt,
    context: &Context<'_>,
    plan: &dyn Fn(&SelectStmt) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    match of_all_nodes(select, context) {
        Some(of_all) => plan(&of_all).or_else(|_| plan(select)),
        None => plan(select),
    }
}

/// The query that asks all nodes. `None`: it asks for no sizes, or does what is left to node 1.
fn of_all_nodes(select: &SelectStmt, context: &Context<'_>) -> Option<Box<SelectStmt>> {
    if context.catalog.is_solo() || context.opaque.is_some() {
        return None;
    }
    context.catalog.resolve(context.scope, Some("tutti"), "relation_sizes")?;
    let tree = NodeEnum::SelectStmt(Box::new(select.clone()));
    let asks = |of: &NodeEnum| match of {
        NodeEnum::FuncCall(call) => {
            let (_, name) = name_of(call);
            name == OF_DATABASE || OF_RELATION.iter().any(|(of, _)| *of == name)
        }
        NodeEnum::ColumnRef(reference) => column_of_class(reference).is_some(),
        _ => false,
    };
    if !contains(&tree, &asks) || contains(&tree, &|of| is_beyond(of, context)) {
        return None;
    }
    let mut search = Search {
        context,
        levels: Vec::new(),
        found: BTreeSet::new(),
        named: Some(BTreeSet::new()),
    };
    let mut tree = tree;
    search.visit(&mut tree);
    if search.found.is_empty() {
        return None;
    }
    let queries = search.queries().ok()?;
    let NodeEnum::SelectStmt(select) = &mut tree else { return None };
    let with = select.with_clause.get_or_insert_with(WithClause::default);
    with.ctes.splice(0..0, queries);
    // Read again, so that each place in it is another.
    parse_select(&deparse(&tree).ok()?).ok()
}

/// What changes or locks rows, has names that would be taken for ours, or is a dump's: pg_dump orders its work by
/// `toastpages`, or carries statistics of one server with them, and lets no view be read meanwhile.
fn is_beyond(of: &NodeEnum, context: &Context<'_>) -> bool {
    match of {
        NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_) => true,
        NodeEnum::SelectStmt(select) => !select.locking_clause.is_empty(),
        NodeEnum::ResTarget(target) => target.name == "toastpages",
        NodeEnum::ColumnRef(reference) => reference
            .fields
            .last()
            .and_then(string)
            .is_some_and(|name| ["relallvisible", "relallfrozen"].contains(&name)),
        NodeEnum::CommonTableExpr(cte) => {
            cte.ctename.starts_with(PREFIX) || cte.ctename == "pg_class"
        }
        NodeEnum::RangeVar(range) => {
            range.relname.starts_with(PREFIX) && context.relation(range).is_none()
        }
        _ => false,
    }
}

/// What the query in WITH is called that gives what other nodes have of this.
fn query_name(column: &str) -> String {
    format!("{PREFIX}{column}")
}

/// Which of [`OF_CLASS`] a reference may be.
fn column_of_class(reference: &ColumnRef) -> Option<(&'static str, &'static str)> {
    let name = reference.fields.last().and_then(string)?;
    OF_CLASS.into_iter().find(|(column, _)| *column == name)
}

/// An entry of FROM.
struct Entry {
    /// What qualifies its columns.
    name: String,
    is_class: bool,
    /// A system catalog: its columns are not called as those of `pg_class` are.
    is_known: bool,
}

struct Search<'a> {
    context: &'a Context<'a>,
    /// The FROM of each query around.
    levels: Vec<Vec<Entry>>,
    /// The columns of `tutti.relation_sizes` that are asked for, and [`OF_DATABASE`].
    found: BTreeSet<&'static str>,
    /// The last parts of the names of all relations whose sizes are asked for, if all are literals.
    named: Option<BTreeSet<String>>,
}

impl Search<'_> {
    fn visit(&mut self, tree: &mut NodeEnum) {
        match tree {
            NodeEnum::SelectStmt(select) => self.select(select),
            NodeEnum::ResTarget(target) => {
                let name = output_name(target);
                self.children(tree);
                if let (NodeEnum::ResTarget(target), Some(name)) = (tree, name)
                    && output_name(target).as_ref() != Some(&name)
                {
                    target.name = name;
                }
            }
            _ => self.children(tree),
        }
    }

    fn children(&mut self, tree: &mut NodeEnum) {
        walk::write::children(tree, &mut |child| self.node(child));
    }

    fn node(&mut self, node: &mut Node) {
        let Some(tree) = &mut node.node else { return };
        self.visit(tree);
        let replacement = match tree {
            NodeEnum::FuncCall(call) => {
                self.call(call);
                None
            }
            NodeEnum::ColumnRef(reference) => self.column(reference),
            _ => None,
        };
        if let Some(replacement) = replacement {
            *node = replacement;
        }
    }

    fn select(&mut self, select: &mut SelectStmt) {
        if select.op() != SetOperation::SetopNone {
            // Its ORDER BY names outputs.
            if let Some(with) = &mut select.with_clause {
                with.ctes.iter_mut().for_each(|cte| self.node(cte));
            }
            select.larg.as_deref_mut().into_iter().for_each(|side| self.select(side));
            select.rarg.as_deref_mut().into_iter().for_each(|side| self.select(side));
            return;
        }
        let mut level = Vec::new();
        select.from_clause.iter().for_each(|node| self.note_entry(node, &mut level));
        self.levels.push(level);
        // A bare name in these is an output's, if one is called so.
        let outputs: Vec<_> = select.target_list.iter().filter_map(output).collect();
        let is_output = |node: &Node| {
            let of = match &node.node {
                Some(NodeEnum::SortBy(by)) => by.node.as_deref(),
                _ => Some(node),
            };
            of.and_then(bare_name).is_some_and(|name| outputs.iter().any(|output| output == name))
        };
        let mut kept = Vec::new();
        for clause in [&mut select.sort_clause, &mut select.distinct_clause] {
            let of_inputs = clause.iter().map(|node| !is_output(node)).collect::<Vec<_>>();
            kept.push((std::mem::take(clause), of_inputs));
        }
        walk::write::select(select, &mut |child| self.node(child));
        for (clause, of_inputs) in &mut kept {
            let visited = clause.iter_mut().zip(of_inputs).filter(|(_, of_inputs)| **of_inputs);
            visited.for_each(|(node, _)| self.node(node));
        }
        let mut kept = kept.into_iter().map(|(clause, _)| clause);
        select.sort_clause = kept.next().unwrap_or_default();
        select.distinct_clause = kept.next().unwrap_or_default();
        self.levels.pop();
    }

    fn note_entry(&self, node: &Node, level: &mut Vec<Entry>) {
        let unknown =
            |name: &str| Entry { name: name.to_owned(), is_class: false, is_known: false };
        match &node.node {
            Some(NodeEnum::RangeVar(range)) => level.push(self.entry(range)),
            Some(NodeEnum::JoinExpr(join)) => {
                // After the alias of a join the names within it are hidden.
                if let Some(alias) = &join.alias {
                    return level.push(unknown(&alias.aliasname));
                }
                let sides = [&join.larg, &join.rarg].into_iter().flatten();
                sides.for_each(|side| self.note_entry(side, level));
            }
            Some(NodeEnum::RangeSubselect(of)) => {
                level.push(unknown(of.alias.as_ref().map_or("", |alias| &alias.aliasname)));
            }
            Some(NodeEnum::RangeFunction(of)) => {
                level.push(unknown(of.alias.as_ref().map_or("", |alias| &alias.aliasname)));
            }
            _ => level.push(unknown("")),
        }
    }

    fn entry(&self, range: &RangeVar) -> Entry {
        let (alias, name) = (range.alias.as_ref(), &range.relname);
        let may_be_system = match range.schemaname.as_str() {
            "pg_catalog" => true,
            "" => name.starts_with("pg_") && self.context.relation(range).is_none(),
            _ => false,
        };
        let is_renamed = alias.is_some_and(|alias| !alias.colnames.is_empty());
        Entry {
            name: alias.map_or(name, |alias| &alias.aliasname).clone(),
            is_class: may_be_system && name == "pg_class" && !is_renamed,
            is_known: may_be_system && !is_renamed,
        }
    }

    /// What stands for a column of `pg_class`.
    fn column(&mut self, reference: &ColumnRef) -> Option<Node> {
        let (name, column) = column_of_class(reference)?;
        let entry = match &reference.fields[..] {
            [_] => {
                let with_class = |level: &&Vec<Entry>| level.iter().any(|entry| entry.is_class);
                let level = self.levels.iter().rev().find(with_class)?;
                // With another table beside it the name may be that one's, or no one's.
                level.iter().all(|entry| entry.is_known).then_some(())?;
                let mut classes = level.iter().filter(|entry| entry.is_class);
                classes.next().filter(|_| classes.next().is_none())?
            }
            [qualifier, _] => {
                let qualifier = string(qualifier)?;
                let mut entries = self.levels.iter().rev().flatten();
                entries.find(|entry| entry.name == qualifier).filter(|entry| entry.is_class)?
            }
            _ => return None,
        };
        let of = quote_identifier(&entry.name);
        let query = query_name(column);
        let value = format!("tutti.{name}({of}.oid, {of}.{name}, (SELECT sizes FROM {query}))");
        let value = expression(&value).ok()?;
        self.found.insert(column);
        self.named = None;
        Some(value)
    }

    /// Makes a call ask all nodes, if it asks for a size.
    fn call(&mut self, call: &mut FuncCall) {
        let (schema, name) = name_of(call);
        let of_relation = OF_RELATION.into_iter().find(|(of, _)| *of == name);
        let (name, column) = match of_relation {
            Some(of) => of,
            None if name == OF_DATABASE => (OF_DATABASE, OF_DATABASE),
            None => return,
        };
        let is_plain = call.args.len() == 1 && !call.func_variadic && call.over.is_none();
        if !is_plain || !means_built_in(schema, name, self.context) {
            return;
        }
        let query = query_name(column);
        let Ok(elsewhere) = expression(&format!("(SELECT sizes FROM {query})")) else { return };
        if column != OF_DATABASE {
            match (call.args.first().and_then(relation_name), &mut self.named) {
                (Some(name), Some(named)) => _ = named.insert(name),
                _ => self.named = None,
            }
        }
        call.args.push(elsewhere);
        let part =
            |name: &str| Node { node: Some(NodeEnum::String(PgString { sval: name.to_owned() })) };
        call.funcname = vec![part("tutti"), part(name)];
        self.found.insert(column);
    }

    /// The queries of WITH that give what other nodes have.
    fn queries(&self) -> Result<Vec<Node>, Refusal> {
        let condition = match &self.named {
            Some(named) if !named.is_empty() => {
                let named: Vec<_> = named.iter().map(|name| quote_literal(name)).collect();
                let named = named.join(", ");
                format!(
                    " WHERE s.relname OPERATOR(pg_catalog.=) ANY (ARRAY[{named}]::pg_catalog.name[])"
                )
            }
            _ => String::new(),
        };
        let queries = self.found.iter().map(|column| {
            let query = match *column {
                // Beside a relation that only node 1 has, which is where the rest is known.
                OF_DATABASE => "SELECT pg_catalog.sum(s.bytes)::pg_catalog.int8 FROM tutti.database_sizes s \
                     WHERE EXISTS (SELECT FROM pg_catalog.pg_database)"
                    .to_owned(),
                column => format!(
                    "SELECT pg_catalog.jsonb_object_agg(o.number, o.value) FROM (\
                     SELECT CASE WHEN s.is_toast THEN c.reltoastrelid ELSE c.oid END, pg_catalog.sum(s.{column}) \
                     FROM tutti.relation_sizes s \
                     JOIN pg_catalog.pg_namespace n ON n.nspname OPERATOR(pg_catalog.=) s.schemaname \
                     JOIN pg_catalog.pg_class c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid \
                     AND c.relname OPERATOR(pg_catalog.=) s.relname{condition} GROUP BY 1) AS o (number, value) \
                     WHERE o.value IS NOT NULL"
                ),
            };
            let name = query_name(column);
            let select = parse_select(&format!("WITH {name} (sizes) AS ({query}) SELECT"))?;
            let of_with = select.with_clause.map(|with| with.ctes).unwrap_or_default();
            Ok(of_with)
        });
        let queries = queries.collect::<Result<Vec<_>, Refusal>>()?;
        Ok(queries.into_iter().flatten().collect())
    }
}

/// The name of an output, which its expression may have given to it.
fn output(target: &Node) -> Option<String> {
    match &target.node {
        Some(NodeEnum::ResTarget(target)) => {
            output_name(target).or_else(|| Some(target.name.clone()))
        }
        _ => None,
    }
}

/// The last part of the name that a literal says, where nothing in it is quoted. Of a number there is none.
fn relation_name(value: &Node) -> Option<String> {
    use pg_query::protobuf::a_const::Val;
    match value.node.as_ref()? {
        NodeEnum::TypeCast(cast) => relation_name(cast.arg.as_deref()?),
        NodeEnum::AConst(constant) => {
            let Some(Val::Sval(text)) = &constant.val else { return None };
            let name = text.sval.rsplit('.').next()?;
            let is_plain = |c: char| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit();
            let begins = name.starts_with(|c: char| c == '_' || c.is_ascii_lowercase());
            (begins && text.sval.chars().all(|c| c == '.' || is_plain(c))).then(|| name.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
