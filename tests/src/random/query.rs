//! Random queries.
//!
//! Owns: the forms of SELECT, and that each has one answer: what ORDER BY, LIMIT, aggregates and windows depend on is
//! ordered by everything that can be seen of it.
//! Start reading at [`Writer::query`].

use super::schema::{Class, Column, Table, kind_of};
use super::writer::{Scope, Source, Writer, source};

/// A query with what it gives.
#[derive(Clone, Debug)]
pub struct Query {
    /// Its text.
    pub sql: String,
    /// Of its columns; `None`: of a type that nothing is made of.
    pub classes: Vec<Option<Class>>,
    /// Its rows have one order.
    pub is_ordered: bool,
}

/// What is asked for at the top of a query where nothing says it.
const TOP: [Class; 16] = [
    Class::Int,
    Class::Int,
    Class::Int,
    Class::Text,
    Class::Text,
    Class::Number,
    Class::Bool,
    Class::Date,
    Class::Zoned,
    Class::Float,
    Class::Json,
    Class::Array,
    Class::Pair,
    Class::Mood,
    Class::Bytes,
    Class::Uuid,
];
/// What most columns are.
pub const PLAIN: [Class; 4] = [Class::Int, Class::Int, Class::Text, Class::Number];

impl Writer<'_> {
    /// A query at the top of a statement.
    pub fn top_query(&mut self) -> Query {
        let columns = self.dice.between(1, 4);
        if self.dice.chance(10) {
            return self.with_ctes();
        }
        if self.dice.chance(3) {
            return self.whole_rows();
        }
        if self.dice.chance(3) {
            return self.by_primary_key();
        }
        if self.dice.chance(2) {
            return self.locking();
        }
        let of = if self.dice.chance(60) { &PLAIN[..] } else { &TOP[..] };
        let classes: Vec<_> = (0..columns).map(|_| *self.dice.pick(of)).collect();
        let query = self.query(&Scope::new(), &classes, 3);
        self.in_order(query, 45)
    }

    /// A query that gives these classes.
    pub fn query(&mut self, outer: &Scope, classes: &[Class], depth: usize) -> Query {
        if depth == 0 {
            return self.select(outer, classes, 0);
        }
        if depth == 2 && outer.is_empty() && self.ctes.is_empty() && self.dice.chance(4) {
            return self.with_cte_of(classes);
        }
        match self.dice.weighted(&[50, 25, 9, 9, 5, 2]) {
            0 => self.select(outer, classes, depth - 1),
            1 => self.aggregate(outer, classes, depth - 1),
            2 => self.set_operation(outer, classes, depth - 1),
            3 => self.windows(outer, classes, depth - 1),
            4 => self.distinct_on(outer, classes, depth - 1),
            _ => self.values(classes),
        }
    }

    /// The same with ORDER BY, sometimes with a limit.
    fn in_order(&mut self, query: Query, percent: u32) -> Query {
        if query.is_ordered || !self.dice.chance(percent) {
            return query;
        }
        let directions = ["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST"];
        let mut keys: Vec<_> = (1..=query.classes.len())
            .map(|column| format!("{column}{}", self.dice.pick(&directions)))
            .collect();
        let first = self.dice.below(keys.len());
        keys.swap(0, first);
        let keys = keys.join(", ");
        let limit = match self.dice.below(9) {
            0 => " LIMIT 3".to_owned(),
            1 => " LIMIT 2 OFFSET 1".to_owned(),
            2 => " OFFSET 2".to_owned(),
            3 => " FETCH FIRST 2 ROWS WITH TIES".to_owned(),
            4 => " LIMIT 1".to_owned(),
            6 if self.dice.chance(30) => " LIMIT (SELECT 2)".to_owned(),
            6 if self.dice.chance(30) => " OFFSET (SELECT count(*) / 2 FROM t0)".to_owned(),
            5 if self.parameters.as_ref().is_some_and(|parameters| parameters.len() < 8) => {
                let value = self.dice.below(5).to_string();
                let parameters = self.parameters.get_or_insert_default();
                parameters.push(Some(value));
                format!(" LIMIT ${}", parameters.len())
            }
            _ => String::new(),
        };
        Query { sql: format!("{} ORDER BY {keys}{limit}", query.sql), is_ordered: true, ..query }
    }

    /// Outputs of these classes.
    pub fn outputs(&mut self, scope: &Scope, classes: &[Class]) -> Vec<String> {
        let output = |class: &Class| {
            let depth = self.dice.below(3);
            let value = self.expression(scope, *class, depth);
            let is_bare = !self.one_collation && !value.contains([' ', '(']);
            let is_simple = *class != Class::Text || value.ends_with("COLLATE \"C\"") || is_bare;
            if is_simple { value } else { format!("({value}) COLLATE \"C\"") }
        };
        classes.iter().map(output).collect()
    }

    /// FROM with what it gives, and with all that an expression may name.
    pub fn place_of(&mut self, outer: &Scope, depth: usize) -> (String, Scope, Scope) {
        let sources = [1, 1, 1, 2, 2, 2, 3][self.dice.below(7)];
        let (from, own) = self.from(outer, sources, depth);
        let all: Scope = own.iter().chain(outer).cloned().collect();
        (from, own, all)
    }

    /// WHERE, in so many of a hundred.
    pub fn filter(&mut self, scope: &Scope, percent: u32, depth: usize) -> String {
        if !self.dice.chance(percent) {
            return String::new();
        }
        let depth = depth.clamp(1, 2);
        let mut conditions = vec![self.condition(scope, depth)];
        if self.dice.chance(25) {
            conditions.push(self.condition(scope, 1));
        }
        format!(" WHERE {}", conditions.join(" AND "))
    }

    fn select(&mut self, outer: &Scope, classes: &[Class], depth: usize) -> Query {
        let (from, own, scope) = self.place_of(outer, depth);
        let filter = self.filter(&scope, 65, depth);
        let mut outputs = self.outputs(&scope, classes);
        if self.dice.chance(9) {
            // By what is not given, and by all that makes a row.
            let by = *self.dice.pick(&[Class::Int, Class::Text, Class::Zoned, Class::Number]);
            let first = self.outputs(&own, &[by]).join(", ");
            let direction = self.dice.pick(&["", " DESC", " NULLS FIRST"]);
            let limit =
                self.dice.pick(&["", " LIMIT 2", " LIMIT 5", " OFFSET 1", " LIMIT 3 OFFSET 2"]);
            let total = Self::all_columns(&own);
            let sql = format!(
                "SELECT {} FROM {from}{filter} ORDER BY {first}{direction}, {total}{limit}",
                outputs.join(", ")
            );
            let classes = classes.iter().copied().map(Some).collect();
            return Query { sql, classes, is_ordered: true };
        }
        if depth > 0 && self.dice.chance(4) {
            // As many rows as the function gives for each.
            let value = self.expression(&scope, Class::Int, 0);
            for (output, _) in outputs.iter_mut().zip(classes).filter(|(_, of)| **of == Class::Int)
            {
                *output = format!("generate_series(1, abs({value} % 3)::int)");
            }
        }
        let distinct = if self.dice.chance(18) { "DISTINCT " } else { "" };
        let mut classes: Vec<_> = classes.iter().copied().map(Some).collect();
        if outer.is_empty() && depth == 2 && self.dice.chance(4) {
            outputs.push(self.risky(&scope));
            classes.push(None);
            let sql = format!("SELECT {} FROM {from}{filter}", outputs.join(", "));
            return Query { sql, classes, is_ordered: false };
        }
        let sql = format!("SELECT {distinct}{} FROM {from}{filter}", outputs.join(", "));
        Query { sql, classes, is_ordered: false }
    }

    /// All columns of a table, or its rows as values.
    pub fn whole_rows(&mut self) -> Query {
        let (from, own, scope) = self.place_of(&Scope::new(), 1);
        let filter = self.filter(&scope, 60, 1);
        let Source { alias, is_table, .. } = self.dice.pick(&own);
        let what = match self.dice.below(3) {
            0 => format!("{alias}.*"),
            // The row of a view that is written out is a record without a name: not repaired.
            _ if !is_table => "*".to_owned(),
            1 => "*".to_owned(),
            _ => alias.clone(),
        };
        Query {
            sql: format!("SELECT {what} FROM {from}{filter}"),
            classes: Vec::new(),
            is_ordered: true,
        }
    }

    /// Rows of one table, locked.
    fn locking(&mut self) -> Query {
        let at = self.table();
        let table = self.schema.relations[at].clone();
        let own = vec![source("x", table.columns.clone())];
        let condition = self.condition(&own, 1);
        let strength = self.dice.pick(&["UPDATE", "SHARE", "NO KEY UPDATE", "KEY SHARE"]);
        let (order, is_ordered) = match self.dice.below(3) {
            0 => (format!(" ORDER BY {} LIMIT 3", Self::all_columns(&own)), true),
            _ => (String::new(), false),
        };
        let sql = format!(
            "SELECT x.id, x.k FROM {} x WHERE {condition}{order} FOR {strength}",
            table.name
        );
        Query { sql, classes: Vec::new(), is_ordered: is_ordered || order.is_empty() }
    }

    fn set_operation(&mut self, outer: &Scope, classes: &[Class], depth: usize) -> Query {
        let before = std::mem::replace(&mut self.one_collation, true);
        let mut query = self.query(outer, classes, depth.min(1));
        for _ in 0..self.dice.between(1, 2) {
            let other = self.query(outer, classes, depth.min(1));
            let other = self.in_order(other, 12);
            let operation = self.dice.pick(&[
                "UNION",
                "UNION",
                "UNION ALL",
                "UNION ALL",
                "UNION ALL",
                "INTERSECT",
                "INTERSECT ALL",
                "EXCEPT",
                "EXCEPT ALL",
            ]);
            query.sql = format!("({}) {operation} ({})", query.sql, other.sql);
        }
        self.one_collation = before;
        Query { is_ordered: false, ..query }
    }

    /// Every column of these.
    fn all_columns(scope: &Scope) -> String {
        let columns = scope.iter().flat_map(|source| {
            source.columns.iter().map(move |column| format!("{}.{}", source.alias, column.name))
        });
        columns.collect::<Vec<_>>().join(", ")
    }

    fn windows(&mut self, outer: &Scope, classes: &[Class], depth: usize) -> Query {
        let sources = self.dice.between(1, 2);
        let (from, own) = self.from(outer, sources, depth);
        let scope: Scope = own.iter().chain(outer).cloned().collect();
        let filter = self.filter(&scope, 40, depth);
        let total = Self::all_columns(&own);
        let mut outputs = self.outputs(&scope, classes);
        for (output, class) in outputs.iter_mut().zip(classes) {
            if *class != Class::Int || !self.dice.chance(80) {
                continue;
            }
            let (alias, column) = self.any_column(&own);
            let part = match self.dice.chance(65) {
                true => format!("PARTITION BY {alias}.{} ", column.name),
                false => String::new(),
            };
            let int = self.expression(&own, Class::Int, 0);
            *output = match self.dice.below(12) {
                8 => {
                    let condition = self.condition(&own, 0);
                    format!("count(*) FILTER (WHERE {condition}) OVER ({part}ORDER BY {int})")
                }
                9 => format!("first_value({int}) OVER ({part}ORDER BY {total} DESC)"),
                10 => format!(
                    "nth_value({int}, 2) OVER ({part}ORDER BY {total} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW)"
                ),
                11 => format!("ntile(3) OVER ({part}ORDER BY {total})"),
                0 => format!("row_number() OVER ({part}ORDER BY {total})"),
                1 => format!("rank() OVER ({part}ORDER BY {int})"),
                2 => format!("(sum({int}) OVER ({part}ORDER BY {int}))::bigint"),
                3 => format!("count(*) OVER ({part})"),
                4 => format!("lag({int}) OVER ({part}ORDER BY {total})"),
                5 => format!(
                    "(sum({int}) OVER ({part}ORDER BY {total} ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING))::bigint"
                ),
                6 => format!(
                    "(max({int}) OVER ({part}ORDER BY {int} GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW))::bigint"
                ),
                _ => format!("dense_rank() OVER ({part}ORDER BY {int} DESC NULLS LAST)"),
            };
        }
        let distinct = if self.dice.chance(10) { "DISTINCT " } else { "" };
        let mut sql = format!("SELECT {distinct}{} FROM {from}{filter}", outputs.join(", "));
        if self.dice.chance(30) {
            let alias = self.name("d");
            let columns = self.columns_for(classes, "e");
            let names: Vec<_> = columns.iter().map(|column| column.name.clone()).collect();
            let names = names.join(", ");
            let of = vec![source(&alias, columns)];
            let condition = self.condition(&of, 1);
            sql = format!("SELECT {names} FROM ({sql}) {alias} ({names}) WHERE {condition}");
        }
        let classes = classes.iter().copied().map(Some).collect();
        Query { sql, classes, is_ordered: false }
    }

    fn distinct_on(&mut self, outer: &Scope, classes: &[Class], depth: usize) -> Query {
        let (from, own, scope) = self.place_of(outer, depth);
        let filter = self.filter(&scope, 40, depth);
        let total = Self::all_columns(&own);
        let (alias, column) = self.any_column(&own);
        let key = format!("{alias}.{}", column.name);
        let outputs = self.outputs(&scope, classes).join(", ");
        let sql = format!(
            "SELECT DISTINCT ON ({key}) {outputs} FROM {from}{filter} ORDER BY {key}, {total}"
        );
        // As a part of another query, which may have an order of its own.
        let alias = self.name("d");
        let names: Vec<_> = (0..classes.len()).map(|column| format!("e{column}")).collect();
        let sql =
            format!("SELECT {} FROM ({sql}) {alias} ({})", names.join(", "), names.join(", "));
        let classes = classes.iter().copied().map(Some).collect();
        Query { sql, classes, is_ordered: false }
    }

    fn values(&mut self, classes: &[Class]) -> Query {
        let row = |writer: &mut Self| {
            let values = classes.iter().map(|class| {
                let value = writer.constant_of(*class);
                if *class == Class::Text { format!("{value} COLLATE \"C\"") } else { value }
            });
            format!("({})", values.collect::<Vec<_>>().join(", "))
        };
        let rows: Vec<_> = (0..self.dice.between(1, 4)).map(|_| row(self)).collect();
        let sql = format!("VALUES {}", rows.join(", "));
        Query { sql, classes: classes.iter().copied().map(Some).collect(), is_ordered: false }
    }

    fn with_ctes(&mut self) -> Query {
        if self.dice.chance(20) {
            return self.recursive();
        }
        let mut ctes = Vec::new();
        for _ in 0..self.dice.between(1, 2) {
            let classes = [Class::Int, *self.dice.pick(&PLAIN), *self.dice.pick(&TOP)];
            let query = self.query(&Scope::new(), &classes, 2);
            let name = self.name("w");
            let columns = self.columns_for(&classes, "x");
            let names: Vec<_> = columns.iter().map(|column| column.name.clone()).collect();
            let how = self.dice.pick(&["", "", " MATERIALIZED", " NOT MATERIALIZED"]);
            ctes.push(format!("{name} ({}) AS{how} ({})", names.join(", "), query.sql));
            self.ctes.push(Table::view(name, columns));
        }
        let classes: Vec<_> =
            (0..self.dice.between(1, 3)).map(|_| *self.dice.pick(&PLAIN)).collect();
        let query = self.query(&Scope::new(), &classes, 2);
        let query = self.in_order(query, 40);
        self.ctes.clear();
        Query { sql: format!("WITH {} {}", ctes.join(", "), query.sql), ..query }
    }

    /// The same within another query.
    fn with_cte_of(&mut self, classes: &[Class]) -> Query {
        let of = [Class::Int, Class::Text];
        let before = std::mem::replace(&mut self.one_collation, false);
        let inner = self.query(&Scope::new(), &of, 1);
        self.one_collation = before;
        let name = self.name("w");
        let columns = self.columns_for(&of, "x");
        self.ctes.push(Table::view(name.clone(), columns));
        let query = self.query(&Scope::new(), classes, 1);
        self.ctes.pop();
        let sql = format!("WITH {name} (x0, x1) AS ({}) {}", inner.sql, query.sql);
        Query { sql, ..query }
    }

    fn recursive(&mut self) -> Query {
        let (one, other) = (self.relation(), self.relation());
        let union = self.dice.pick(&["UNION", "UNION ALL"]);
        let (name, alias) = (self.name("r"), self.name("a"));
        let on = self.dice.pick(&["k", "id"]);
        let of = |table: &Table| table.column("id").is_some() && table.column("k").is_some();
        if !of(&one) || !of(&other) {
            return self.whole_rows();
        }
        let sql = format!(
            "WITH RECURSIVE {name} (n, depth) AS (SELECT id::bigint, 0 FROM {} WHERE id < 4 {union} \
             SELECT {alias}.id::bigint, {name}.depth + 1 FROM {name} JOIN {} {alias} ON {alias}.{on} = {name}.n \
             WHERE {name}.depth < 2) SELECT n, depth, count(*) FROM {name} GROUP BY n, depth",
            one.name, other.name
        );
        Query { sql, classes: vec![Some(Class::Int); 3], is_ordered: false }
    }

    /// Columns of these classes, by number.
    pub fn columns_for(&self, classes: &[Class], prefix: &str) -> Vec<Column> {
        let column = |(number, class): (usize, &Class)| Column {
            name: format!("{prefix}{number}"),
            class: *class,
            kind: kind_of(*class),
            may_be_null: true,
            is_generated: false,
            is_mixed: true,
        };
        classes.iter().enumerate().map(column).collect()
    }

    /// Whether rows are there that belong to one around it.
    pub fn correlated(&mut self, outer: &Scope, depth: usize) -> String {
        let sources = self.dice.between(1, 2);
        let (from, own) = self.from(&Scope::new(), sources, 0);
        let link = self.link(&own, outer);
        let all: Scope = own.iter().chain(outer).cloned().collect();
        let more = match self.dice.chance(40) {
            true => format!(" AND {}", self.condition(&all, depth.min(1))),
            false => String::new(),
        };
        let what = self.dice.pick(&["1", "*", "NULL"]);
        format!("SELECT {what} FROM {from} WHERE {link}{more}")
    }

    /// An equation between two scopes.
    pub fn link(&mut self, own: &Scope, outer: &Scope) -> String {
        let mut class =
            *self.dice.pick(&[Class::Int, Class::Int, Class::Int, Class::Int, Class::Text]);
        if self.dice.chance(20) {
            // Any that both have.
            class = self.any_column(own).1.class;
        }
        let (one, other) = (self.columns_of(own, class), self.columns_of(outer, class));
        if one.is_empty() || other.is_empty() {
            return "true".to_owned();
        }
        let ((a, one), (b, other)) = (self.dice.pick(&one).clone(), self.dice.pick(&other).clone());
        let collate = if class == Class::Text { " COLLATE \"C\"" } else { "" };
        format!("{a}.{} = {b}.{}{collate}", one.name, other.name)
    }

    /// A query of one column.
    pub fn column_of(&mut self, outer: &Scope, class: Class, depth: usize) -> String {
        // Half of them know nothing of what is around them.
        let none = Scope::new();
        let outer = if self.dice.chance(50) { &none } else { outer };
        let query = self.query(outer, &[class], depth.min(1));
        let query = self.in_order(query, 8);
        query.sql
    }

    /// A query of one value.
    pub fn scalar_subquery(&mut self, outer: &Scope, class: Class) -> String {
        let (from, own) = self.from(&Scope::new(), 1, 0);
        let mut filter = match self.dice.chance(75) {
            true => format!(" WHERE {}", self.link(&own, outer)),
            false => String::new(),
        };
        if !filter.is_empty() && self.dice.chance(25) {
            let condition = self.condition(&own, 0);
            filter.push_str(&format!(" AND {condition}"));
        }
        if self.dice.chance(70) {
            let value = self.aggregate_of(&own, class);
            return format!("(SELECT {value} FROM {from}{filter})");
        }
        let value = self.outputs(&own, &[class]).join(", ");
        let total = Self::all_columns(&own);
        format!("(SELECT {value} FROM {from}{filter} ORDER BY {total} LIMIT 1)")
    }
}
