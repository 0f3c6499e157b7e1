//! Random queries that aggregate.
//!
//! Owns: the aggregates, each with one value whatever order rows come in, and what may stand beside them.
//! Start reading at [`Writer::aggregate`].

use super::query::{PLAIN, Query};
use super::schema::Class;
use super::writer::{Scope, Source, Writer, source};

impl Writer<'_> {
    /// Grouped by a primary key, with what depends on it.
    pub fn by_primary_key(&mut self) -> Query {
        let tables = self.schema.relations.iter().filter(|table| !table.key.is_empty());
        let tables: Vec<_> = tables.cloned().collect();
        if tables.is_empty() {
            return self.whole_rows();
        }
        let table = self.dice.pick(&tables).clone();
        let alias = self.name("x");
        let (from, other) = self.from(&Scope::new(), 1, 0);
        let own = vec![source(&alias, table.columns.clone())];
        let link = self.link(&other, &own);
        let join = self.dice.pick(&["JOIN", "LEFT JOIN"]);
        let keys: Vec<_> = table.key.iter().map(|key| format!("{alias}.{key}")).collect();
        let class = *self.dice.pick(&PLAIN);
        let (free, aggregate) =
            (self.outputs(&own, &[class]).join(", "), self.aggregate_of(&other, Class::Int));
        let sql = format!(
            "SELECT {free}, {alias}.s, {aggregate} FROM {} {alias} {join} {from} ON {link} GROUP BY {}",
            table.name,
            keys.join(", ")
        );
        Query {
            sql,
            classes: vec![Some(class), Some(Class::Text), Some(Class::Int)],
            is_ordered: false,
        }
    }

    /// An aggregate of this class.
    pub fn aggregate_of(&mut self, scope: &Scope, class: Class) -> String {
        if class == Class::Text && self.dice.chance(40) {
            let columns = self.columns_of(scope, Class::Text);
            if !columns.is_empty() {
                let (alias, column) = self.dice.pick(&columns).clone();
                return format!("{}({alias}.{})", self.dice.pick(&["min", "max"]), column.name);
            }
        }
        let int = self.expression(scope, Class::Int, 1);
        let number = self.expression(scope, Class::Number, 1);
        let text = self.expression(scope, Class::Text, 1);
        let value = self.expression(scope, class, 1);
        let plain = match class {
            Class::Int => match self.dice.below(12) {
                0 | 1 => "count(*)".to_owned(),
                2 => format!("count({text})"),
                3 => format!("count(DISTINCT {int})"),
                4 => format!("sum({int})::bigint"),
                5 => format!("sum(DISTINCT {int})::bigint"),
                6 => format!("max({int})::bigint"),
                7 => format!("min({int})::bigint"),
                8 => return format!("percentile_disc(0.5) WITHIN GROUP (ORDER BY {int})::bigint"),
                9 => return format!("rank(2) WITHIN GROUP (ORDER BY ({int})::bigint)"),
                10 => format!("count(DISTINCT ({int}, {text} COLLATE \"C\"))"),
                _ => format!("bit_or(({int})::bigint)"),
            },
            Class::Number => match self.dice.below(6) {
                0 => format!("sum({number})"),
                1 => format!("round(avg({int}), 2)"),
                2 => return format!("round(avg(DISTINCT {number}), 2)"),
                3 => return format!("round(stddev_pop({number}), 2)"),
                4 => return format!("round(var_samp({int}), 2)"),
                _ => format!("max({number})"),
            },
            Class::Text => match self.dice.below(4) {
                0 => format!("max({text} COLLATE \"C\")"),
                1 => format!("string_agg({text}, ',' ORDER BY {text} COLLATE \"C\")"),
                2 => format!("string_agg(DISTINCT {text} COLLATE \"C\", '|')"),
                _ => format!("min({text} COLLATE \"C\")"),
            },
            Class::Bool => match self.dice.below(2) {
                0 => format!("bool_or({value})"),
                _ => format!("every({value})"),
            },
            Class::Json => match self.dice.below(2) {
                0 => format!("jsonb_agg({int} ORDER BY {int} DESC)"),
                _ => format!("jsonb_object_agg(coalesce({text}, 'none'), 1)"),
            },
            Class::Float
            | Class::Date
            | Class::Stamp
            | Class::Zoned
            | Class::Mood
            | Class::Span
            | Class::Time
            | Class::Padded
            | Class::Address => {
                format!("{}({value})", self.dice.pick(&["min", "max"]))
            }
            Class::Array => format!("array_agg((({int}) % 9)::int ORDER BY ({int}) % 9)"),
            Class::Uuid | Class::Bytes | Class::Pair | Class::Range | Class::Words => {
                return format!("(array_agg({value} ORDER BY {value}))[1]");
            }
        };
        if self.dice.chance(20) {
            let condition = self.condition(scope, 1);
            let (call, cast) = match plain.strip_suffix("::bigint") {
                Some(call) => (call.to_owned(), "::bigint"),
                None => (plain.clone(), ""),
            };
            if call.starts_with("round(") {
                return plain;
            }
            return format!("{call} FILTER (WHERE {condition}){cast}");
        }
        plain
    }

    /// A query that groups rows, or all of them.
    pub fn aggregate(&mut self, outer: &Scope, classes: &[Class], depth: usize) -> Query {
        let (from, own, scope) = self.place_of(outer, depth);
        let filter = self.filter(&scope, 50, depth);
        if self.dice.chance(12) {
            let mut outputs = self.outputs(&scope, &classes[..1]);
            for class in &classes[1..] {
                outputs.push(self.aggregate_of(&own, *class));
            }
            if self.one_collation {
                for (output, _) in
                    outputs.iter_mut().zip(classes).filter(|(_, of)| **of == Class::Text)
                {
                    *output = format!("({output}) COLLATE \"C\"");
                }
            }
            let sql = format!("SELECT {} FROM {from}{filter} GROUP BY 1", outputs.join(", "));
            let classes = classes.iter().copied().map(Some).collect();
            return Query { sql, classes, is_ordered: false };
        }
        // Keys are columns of its own: an expression that is repeated need not be the same to PostgreSQL.
        let mut keys: Vec<(String, Class)> = Vec::new();
        if self.dice.chance(75) {
            for _ in 0..self.dice.between(1, 2) {
                let (alias, column) = self.any_column(&own);
                let key = (format!("{alias}.{}", column.name), column.class);
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        // What is grouped by may stand anywhere.
        let mut grouped = Scope::new();
        for source in &own {
            let columns = source.columns.iter().filter(|column| {
                keys.iter().any(|(key, _)| *key == format!("{}.{}", source.alias, column.name))
            });
            let columns: Vec<_> = columns.cloned().collect();
            if !columns.is_empty() {
                grouped.push(Source { alias: source.alias.clone(), columns, is_table: false });
            }
        }
        let mut outputs = Vec::new();
        for class in classes {
            let key = keys.iter().find(|(_, of)| of == class).cloned();
            let value = match key {
                Some((key, _)) if self.dice.chance(50) => key,
                _ if !grouped.is_empty() && self.dice.chance(15) => {
                    let depth = self.dice.between(1, 2);
                    self.expression(&grouped, *class, depth)
                }
                _ => {
                    let aggregate = self.aggregate_of(&own, *class);
                    match (class, self.dice.chance(12)) {
                        (Class::Int, true) if self.dice.chance(30) => {
                            "(sum(count(*)) OVER ())::bigint".to_owned()
                        }
                        (Class::Int, true) => format!("coalesce({aggregate}, 0) + 1"),
                        _ => aggregate,
                    }
                }
            };
            let is_text = *class == Class::Text;
            let is_bare = !self.one_collation && !value.contains(' ') && self.dice.chance(70);
            let collated = is_text && !is_bare;
            outputs.push(if collated { format!("({value}) COLLATE \"C\"") } else { value });
        }
        let names: Vec<_> = keys.iter().map(|(key, _)| key.as_str()).collect();
        let group = match (names.as_slice(), self.dice.below(10)) {
            ([], 0) => " GROUP BY ()".to_owned(),
            ([], _) => String::new(),
            (names, 0) => format!(" GROUP BY ROLLUP ({})", names.join(", ")),
            (names, 1) => format!(" GROUP BY CUBE ({})", names.join(", ")),
            (names, 3) if self.dice.chance(40) => {
                format!(" GROUP BY DISTINCT ROLLUP ({}), ({})", names.join(", "), names[0])
            }
            (names, 2) => {
                format!(" GROUP BY GROUPING SETS (({}), ({}), ())", names.join(", "), names[0])
            }
            (names, _) => format!(" GROUP BY {}", names.join(", ")),
        };
        let having = match self.dice.below(8) {
            0 => " HAVING count(*) > 1".to_owned(),
            1 => format!(" HAVING {} > 1", self.aggregate_of(&own, Class::Int)),
            2 => format!(" HAVING {}", self.aggregate_of(&own, Class::Bool)),
            _ => String::new(),
        };
        let sql = format!("SELECT {} FROM {from}{filter}{group}{having}", outputs.join(", "));
        let classes = classes.iter().copied().map(Some).collect();
        Query { sql, classes, is_ordered: false }
    }
}
