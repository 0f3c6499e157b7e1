//! Random FROM clauses.
//!
//! Owns: what stands in them and how it is joined. Never: draws conditions of its own but those of joins.

use super::schema::{Class, KINDS};
use super::writer::{Scope, Source, Writer, source};

impl Writer<'_> {
    /// So many sources, joined; what is LATERAL may name `outer`, too.
    pub fn from(&mut self, outer: &Scope, sources: usize, depth: usize) -> (String, Scope) {
        let (mut text, mut scope) = match sources > 1 && self.dice.chance(6) {
            true => self.nested(depth),
            false => {
                let (text, first) = self.item(depth);
                (text, vec![first])
            }
        };
        for _ in 1..sources {
            if self.dice.chance(10) {
                let (lateral, added) = self.lateral(&scope, outer);
                text.push_str(&lateral);
                scope.push(added);
                continue;
            }
            if self.dice.chance(6) {
                let (item, right) = self.nested(depth);
                let on = self.on(&right, &scope);
                let join = self.dice.pick(&["JOIN", "LEFT JOIN"]);
                text = format!("{text} {join} {item} ON {on}");
                scope.extend(right);
                continue;
            }
            let (item, added) = self.item(depth);
            let right = vec![added.clone()];
            let join = match self.dice.weighted(&[30, 25, 8, 8, 6, 4, 4]) {
                0 => "JOIN",
                1 => "LEFT JOIN",
                2 => "RIGHT JOIN",
                3 => "FULL JOIN",
                4 => "CROSS JOIN",
                5 => "USING",
                _ => "NATURAL",
            };
            let shared = |name: &str| {
                let has = |source: &Source| {
                    source
                        .columns
                        .iter()
                        .filter(|c| c.name == name && c.class == Class::Int)
                        .count()
                };
                has(&added) == 1 && scope.iter().map(has).sum::<usize>() == 1
            };
            match join {
                "USING" if shared("id") || shared("k") => {
                    let name = if shared("k") { "k" } else { "id" };
                    let join = self.dice.pick(&["JOIN", "LEFT JOIN", "FULL JOIN"]);
                    text = format!("{text} {join} {item} USING ({name})");
                }
                "NATURAL" if scope.len() == 1 && are_alike(&scope[0], &added) => {
                    text =
                        format!("{text} NATURAL {} {item}", self.dice.pick(&["JOIN", "LEFT JOIN"]));
                }
                "CROSS JOIN" if scope.len() == 1 => text = format!("{text} CROSS JOIN {item}"),
                "FULL JOIN" => {
                    let on = self.link(&right, &scope);
                    text = format!("{text} FULL JOIN {item} ON {on}");
                }
                "LEFT JOIN" | "RIGHT JOIN" => {
                    let on = self.on(&right, &scope);
                    text = format!("{text} {join} {item} ON {on}");
                }
                _ => {
                    let on = self.on(&right, &scope);
                    text = format!("{text} JOIN {item} ON {on}");
                }
            }
            scope.push(added);
        }
        (text, scope)
    }

    /// Two sources that are joined first.
    fn nested(&mut self, depth: usize) -> (String, Scope) {
        let ((one, left), (other, right)) = (self.item(depth), self.item(depth));
        let (left, right) = (vec![left], vec![right]);
        let on = self.on(&right, &left);
        let join = self.dice.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN"]);
        let scope = left.into_iter().chain(right).collect();
        (format!("({one} {join} {other} ON {on})"), scope)
    }

    fn on(&mut self, right: &Scope, left: &Scope) -> String {
        let link = match (left.first(), right.first(), self.dice.chance(40)) {
            // Keys by which rows may be on one node are called alike.
            (Some(one), Some(other), true) if has_int(one, "k") && has_int(other, "k") => {
                format!("{}.k = {}.k", one.alias, other.alias)
            }
            _ => self.link(right, left),
        };
        if !self.dice.chance(20) {
            return link;
        }
        let both: Scope = left.iter().chain(right).cloned().collect();
        format!("{link} AND {}", self.condition(&both, 1))
    }

    fn item(&mut self, depth: usize) -> (String, Source) {
        let alias = self.name("x");
        match self.dice.weighted(&[80, if depth == 0 { 0 } else { 10 }, 3, 3]) {
            0 => {
                let table = self.relation();
                if self.dice.chance(5) {
                    // By other names.
                    let mut columns = table.columns.clone();
                    for (number, column) in columns.iter_mut().enumerate() {
                        column.name = format!("n{number}");
                    }
                    let names: Vec<_> = columns.iter().map(|column| column.name.clone()).collect();
                    let text = format!("{} {alias} ({})", table.name, names.join(", "));
                    return (text, source(&alias, columns));
                }
                let is_table = !table.is_view;
                let source = Source { is_table, ..source(&alias, table.columns) };
                (format!("{} {alias}", table.name), source)
            }
            1 => {
                let classes =
                    [Class::Int, *self.dice.pick(&[Class::Text, Class::Int, Class::Number])];
                let query = self.query(&Scope::new(), &classes, depth - 1);
                let columns = self.columns_for(&classes, "y");
                let source = source(&alias, columns);
                (format!("({}) {alias} (y0, y1)", query.sql), source)
            }
            2 => {
                let columns = self.columns_for(&[Class::Int, Class::Text], "y");
                let text =
                    format!("(VALUES (1, 'a'), (2, 'b'), (NULL, 'a'), (3, NULL)) {alias} (y0, y1)");
                (text, source(&alias, columns))
            }
            _ => {
                let columns = self.columns_for(&[Class::Int], "y");
                (format!("generate_series(0, 4) {alias} (y0)"), source(&alias, columns))
            }
        }
    }

    /// A subquery that knows what stands before it.
    fn lateral(&mut self, scope: &Scope, outer: &Scope) -> (String, Source) {
        let alias = self.name("l");
        let before: Scope = scope.iter().chain(outer).cloned().collect();
        let (from, own) = self.from(&Scope::new(), 1, 0);
        let link = self.link(&own, &before);
        let both: Scope = own.iter().chain(&before).cloned().collect();
        let value = self.expression(&both, Class::Int, 1);
        let columns = self.columns_of(&own, Class::Int);
        let query = match (self.dice.below(4), columns.first()) {
            (3, _) => {
                let arrays = self.expression(&before, Class::Array, 0);
                format!("SELECT n, count(*) OVER () FROM unnest({arrays}) WITH ORDINALITY u (n, o)")
            }
            (0, Some((alias, column))) => {
                format!(
                    "SELECT count(*), max({alias}.{})::bigint FROM {from} WHERE {link}",
                    column.name
                )
            }
            (1, _) => {
                format!("SELECT ({value})::bigint, 1 FROM {from} WHERE {link} ORDER BY 1 LIMIT 2")
            }
            _ => format!("SELECT ({value})::bigint, 2 FROM {from} WHERE {link}"),
        };
        let columns = self.columns_for(&[Class::Int, Class::Int], "y");
        let join = match self.dice.below(2) {
            0 => format!(" CROSS JOIN LATERAL ({query}) {alias} (y0, y1)"),
            _ => format!(" LEFT JOIN LATERAL ({query}) {alias} (y0, y1) ON true"),
        };
        (join, source(&alias, columns))
    }
}

fn has_int(source: &Source, name: &str) -> bool {
    source.columns.iter().any(|column| column.name == name && column.class == Class::Int)
}

/// Columns of one name have types that can be compared.
fn are_alike(one: &Source, other: &Source) -> bool {
    let fits = |column: &super::schema::Column| {
        let same = other.columns.iter().find(|of| of.name == column.name);
        same.is_none_or(|same| {
            // Collations must not differ.
            std::ptr::eq(same.kind, column.kind)
                || (same.class, column.class) == (Class::Int, Class::Int)
        })
    };
    !KINDS.is_empty() && one.columns.iter().all(fits)
}
