//! Random expressions and conditions.
//!
//! Owns: which of them fail, and where: none, but those of [`Writer::risky`], which stand where every row of the
//! answer computes them. What PostgreSQL computes first it does not promise.
//! Start reading at [`Writer::expression`], then [`Writer::condition`].

use super::schema::Class;
use super::writer::{Scope, Writer};

impl Writer<'_> {
    /// An expression of this class over `scope`.
    pub fn expression(&mut self, scope: &Scope, class: Class, depth: usize) -> String {
        let columns = self.columns_of(scope, class);
        if depth == 0 || self.dice.chance(45) {
            if !columns.is_empty() && self.dice.chance(85) {
                let (alias, column) = self.dice.pick(&columns).clone();
                return format!("{alias}.{}", column.name);
            }
            return match self.dice.chance(6) {
                true => format!("NULL::{}", super::schema::kind_of(class).cast),
                false => self.constant_of(class),
            };
        }
        let depth = depth - 1;
        if self.dice.chance(12) {
            let (one, other) =
                (self.expression(scope, class, depth), self.expression(scope, class, depth));
            let collate = if class == Class::Text { " COLLATE \"C\"" } else { "" };
            return match self.dice.below(3) {
                0 => {
                    let condition = self.condition(scope, depth);
                    format!("(CASE WHEN {condition} THEN {one} ELSE {other} END){collate}")
                }
                1 => format!("coalesce({one}, {other}){collate}"),
                _ if class == Class::Json => format!("coalesce({one}, {other})"),
                _ => format!("nullif({one}, {other}{collate})"),
            };
        }
        match class {
            Class::Int => self.int(scope, depth),
            Class::Number => {
                let one = self.expression(scope, Class::Number, depth);
                match self.dice.below(4) {
                    0 => format!("({one} + {})", self.expression(scope, Class::Number, depth)),
                    1 => format!("({one} - {})", self.expression(scope, Class::Number, depth)),
                    2 => format!("round({one} / 4, 2)"),
                    _ => format!("({} + 0.00)", self.expression(scope, Class::Int, depth)),
                }
            }
            Class::Float => {
                let (one, other) = (
                    self.expression(scope, Class::Float, depth),
                    self.expression(scope, Class::Int, depth),
                );
                format!("({one} * 2 + {other})")
            }
            Class::Text => self.text(scope, depth),
            Class::Bool => self.condition(scope, depth),
            Class::Date => format!("({} + 1)", self.expression(scope, Class::Date, depth)),
            Class::Stamp => match self.dice.below(2) {
                0 => {
                    format!("({} + interval '1 day')", self.expression(scope, Class::Stamp, depth))
                }
                _ => format!("{}::timestamp", self.expression(scope, Class::Date, depth)),
            },
            Class::Zoned => match self.dice.below(2) {
                0 => {
                    format!("date_trunc('month', {})", self.expression(scope, Class::Zoned, depth))
                }
                _ => {
                    format!("({} - interval '1 hour')", self.expression(scope, Class::Zoned, depth))
                }
            },
            Class::Json => match self.dice.below(3) {
                0 => format!("to_jsonb({})", self.expression(scope, Class::Int, depth)),
                1 => format!("({} -> 'a')", self.expression(scope, Class::Json, depth)),
                _ => format!(
                    "jsonb_build_object('x', {}, 'y', {})",
                    self.expression(scope, Class::Int, depth),
                    self.expression(scope, Class::Text, depth)
                ),
            },
            Class::Array => match self.dice.below(2) {
                0 => format!("array_append({}, 9)", self.flat_array(scope)),
                _ => format!("({} || ARRAY[7])", self.flat_array(scope)),
            },
            Class::Pair => {
                let text = self.expression(scope, Class::Text, 0);
                let number = self.dice.below(3);
                format!("ROW({number}, {text})::pair")
            }
            Class::Span => {
                let number = self.dice.below(3);
                format!("({} * {number})", self.expression(scope, Class::Span, 0))
            }
            Class::Uuid
            | Class::Bytes
            | Class::Mood
            | Class::Padded
            | Class::Time
            | Class::Address
            | Class::Range
            | Class::Words => self.expression(scope, class, 0),
        }
    }

    /// Of one dimension: `||` fails where they have others.
    fn flat_array(&mut self, scope: &Scope) -> String {
        let number = self.dice.below(4);
        format!("ARRAY[{number}, {}::int % 5]", self.small_int(scope))
    }

    /// An integer that fits into four bytes.
    fn small_int(&mut self, scope: &Scope) -> String {
        let value = self.expression(scope, Class::Int, 0);
        format!("({value} % 100)")
    }

    fn int(&mut self, scope: &Scope, depth: usize) -> String {
        let one = self.expression(scope, Class::Int, depth);
        match self.dice.below(15) {
            11 => {
                let condition = self.condition(scope, depth);
                format!("({condition})::int")
            }
            12 => {
                let (link, from) = self.own_rows(scope);
                format!("(SELECT count(*) FROM {from} WHERE {link})")
            }
            13 => {
                format!("date_part('hour', {})::int", self.expression(scope, Class::Zoned, depth))
            }
            14 => {
                let other = self.expression(scope, Class::Date, depth);
                format!("({} - {other})", self.expression(scope, Class::Date, depth))
            }
            0 => format!("({one} + {})", self.expression(scope, Class::Int, depth)),
            1 => format!("({one} - {})", self.dice.below(4)),
            2 => format!("({one} % 3)"),
            3 => format!("greatest({one}, {})", self.expression(scope, Class::Int, depth)),
            4 => format!("twice({one})"),
            5 => format!("length({})", self.expression(scope, Class::Text, depth)),
            6 => {
                let by = self.expression(scope, Class::Int, depth);
                // The division must not be computed before its condition.
                format!("(CASE WHEN {by} <> 0 THEN ({one}) / ({by}) END)")
            }
            7 => format!("extract(day from {})::int", self.expression(scope, Class::Date, depth)),
            8 => {
                format!("coalesce(array_length({}, 1), 0)", self.expression(scope, Class::Array, 0))
            }
            9 => self.scalar_subquery(scope, Class::Int),
            _ => format!("abs({one})"),
        }
    }

    fn text(&mut self, scope: &Scope, depth: usize) -> String {
        let one = self.expression(scope, Class::Text, depth);
        match self.dice.below(11) {
            8 => format!(
                "to_char({}, 'YYYY-MM-DD HH24:MI')",
                self.expression(scope, Class::Stamp, depth)
            ),
            9 => format!("{}::text", self.expression(scope, Class::Number, depth)),
            10 => {
                let (alias, column) = self.any_column(scope);
                format!("({alias}.{}::text)", column.name)
            }
            0 => {
                let other = self.expression(scope, Class::Text, depth);
                format!("({one} || {other}) COLLATE \"C\"")
            }
            1 => format!("upper({one} COLLATE \"C\")"),
            2 => format!("left({one}, 1)"),
            3 => format!("{}::text", self.expression(scope, Class::Int, depth)),
            4 => format!("{}::text", self.expression(scope, Class::Zoned, depth)),
            5 => format!("({} ->> 'a')", self.expression(scope, Class::Json, depth)),
            6 => format!("replace({one} COLLATE \"C\", 'a', 'xy')"),
            _ => format!("substr(md5({one}), 1, 3)"),
        }
    }

    /// What is true, false or NULL.
    pub fn condition(&mut self, scope: &Scope, depth: usize) -> String {
        if depth == 0 || self.dice.chance(25) {
            return self.comparison_with_constant(scope);
        }
        let depth = depth - 1;
        let operator = *self.dice.pick(&["=", "<", ">", "<=", ">=", "<>"]);
        match self.dice.weighted(&[4, 3, 3, 2, 2, 2, 1, 1, 1, 6, 2, 1, 4]) {
            12 => self.further_condition(scope, depth),
            0 => {
                let class = *self.dice.pick(&[
                    Class::Int,
                    Class::Int,
                    Class::Number,
                    Class::Float,
                    Class::Date,
                    Class::Stamp,
                    Class::Zoned,
                ]);
                let class = match self.dice.chance(25) {
                    true => self.any_column(scope).1.class,
                    false => class,
                };
                let (one, other) =
                    (self.expression(scope, class, depth), self.expression(scope, class, depth));
                let collate = if class == Class::Text { " COLLATE \"C\"" } else { "" };
                format!("({one} {operator} {other}{collate})")
            }
            1 => {
                let one = self.condition(scope, depth);
                format!("({one} AND {})", self.condition(scope, depth))
            }
            2 => {
                let one = self.condition(scope, depth);
                format!("({one} OR {})", self.condition(scope, depth))
            }
            3 => format!("(NOT {})", self.condition(scope, depth)),
            4 => {
                let (alias, column) = self.any_column(scope);
                let not = self.dice.pick(&["", "NOT "]);
                // Of a composite value IS NULL asks for its parts.
                format!("({alias}.{} IS {not}NULL)", column.name)
            }
            5 => {
                let columns = self.columns_of(scope, Class::Text);
                if columns.len() > 1 && self.dice.chance(40) {
                    let (one, other) =
                        (self.dice.pick(&columns).clone(), self.dice.pick(&columns).clone());
                    if one.1.kind.sql == other.1.kind.sql && !one.1.is_mixed {
                        return format!(
                            "({}.{} {operator} {}.{})",
                            one.0, one.1.name, other.0, other.1.name
                        );
                    }
                }
                let (one, other) = (
                    self.expression(scope, Class::Text, depth),
                    self.expression(scope, Class::Text, depth),
                );
                format!("({one} {operator} {other} COLLATE \"C\")")
            }
            6 => format!("({} LIKE '%a%')", self.expression(scope, Class::Text, depth)),
            7 => {
                let (one, other) = (
                    self.expression(scope, Class::Int, depth),
                    self.expression(scope, Class::Int, depth),
                );
                let not = self.dice.pick(&["", "NOT "]);
                format!("({one} IS {not}DISTINCT FROM {other})")
            }
            8 => {
                let zoned = self.expression(scope, Class::Zoned, depth);
                format!("({zoned} {operator} now() - interval '1 day')")
            }
            9 => self.subquery_condition(scope, depth),
            10 => {
                let (one, other) = (
                    self.expression(scope, Class::Int, depth),
                    self.expression(scope, Class::Int, depth),
                );
                format!("(({one}, {other}) {operator} ({other}, 2))")
            }
            _ if self.dice.chance(20) => {
                let source = self.dice.pick(scope);
                let not = if source.columns.len() > 1 { "NOT " } else { "" };
                format!("({} IS {not}NULL)", source.alias)
            }
            _ => {
                let columns = self.columns_of(scope, Class::Bool);
                match columns.is_empty() {
                    true => "true".to_owned(),
                    false => {
                        let (alias, column) = self.dice.pick(&columns).clone();
                        format!("{alias}.{}", column.name)
                    }
                }
            }
        }
    }

    /// Conditions of rarer forms.
    fn further_condition(&mut self, scope: &Scope, depth: usize) -> String {
        match self.dice.below(11) {
            0 => {
                let truth = self.dice.pick(&["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "UNKNOWN"]);
                format!("(({}) IS {truth})", self.condition(scope, depth))
            }
            1 => {
                let (one, other) = (
                    self.expression(scope, Class::Int, depth),
                    self.expression(scope, Class::Int, 0),
                );
                format!("({one} BETWEEN SYMMETRIC {other} AND 2)")
            }
            2 => format!("({} ~ '^[ab]')", self.expression(scope, Class::Text, depth)),
            3 => {
                let one = self.expression(scope, Class::Int, 0);
                format!("({one} = ANY ({}))", self.expression(scope, Class::Array, 0))
            }
            4 => format!("({} @> '{{\"a\": 1}}')", self.expression(scope, Class::Json, 0)),
            5 => format!("({} && ARRAY[1, 3])", self.expression(scope, Class::Array, 0)),
            6 => format!("({} @> 3)", self.expression(scope, Class::Range, 0)),
            7 => {
                // Two columns at once.
                let (one, other) =
                    (self.expression(scope, Class::Int, 0), self.expression(scope, Class::Int, 0));
                let not = self.dice.pick(&["", "NOT "]);
                let outer = if self.dice.chance(50) { Scope::new() } else { scope.clone() };
                let query = self.query(&outer, &[Class::Int, Class::Int], depth.min(1));
                format!("(({one}, {other}) {not}IN ({}))", query.sql)
            }
            8 => {
                let one = self.expression(scope, Class::Int, 0);
                format!("({one} IN (VALUES (1), (3), (NULL)))")
            }
            9 => {
                let (one, other) = (self.condition(scope, depth), self.condition(scope, 0));
                format!("(({one}) = ({other}))")
            }
            _ => format!("(NOT ({}))", self.subquery_condition(scope, depth)),
        }
    }

    /// Rows of a table that belong to one around them: a condition, and FROM.
    fn own_rows(&mut self, scope: &Scope) -> (String, String) {
        let (from, own) = self.from(&Scope::new(), 1, 0);
        (self.link(&own, scope), from)
    }

    /// A column compared with constants: that of the distribution key says where rows are.
    fn comparison_with_constant(&mut self, scope: &Scope) -> String {
        let (alias, column) = self.any_column(scope);
        let name = format!("{alias}.{}", column.name);
        if let Some(value) = self.other_constant(column.kind) {
            return match self.dice.below(4) {
                0 => format!("{value} = {name}"),
                1 => format!("{name} IN ({value}, {})", self.constant(column.kind)),
                _ => format!("{name} = {value}"),
            };
        }
        let one = self.constant(column.kind);
        match (column.class, self.dice.below(8)) {
            (_, 0 | 1) => format!("{name} = {one}"),
            (_, 2) => format!("{name} IN ({one}, {})", self.constant(column.kind)),
            (Class::Int | Class::Number | Class::Date, 3) => {
                format!("{name} BETWEEN {one} AND {}", self.constant(column.kind))
            }
            (Class::Int, 4) => {
                let other = self.constant(column.kind);
                format!("{name} = ANY (ARRAY[{one}, {other}, NULL])")
            }
            (Class::Int, 5) => format!("{one} < {name}"),
            (_, 6) => format!("{name} IS NOT DISTINCT FROM {one}"),
            (Class::Int, _) => format!("{name} >= {one}"),
            _ => format!("{name} <> {one}"),
        }
    }

    fn subquery_condition(&mut self, scope: &Scope, depth: usize) -> String {
        let class =
            *self.dice.pick(&[Class::Int, Class::Int, Class::Int, Class::Text, Class::Number]);
        let mut value = self.expression(scope, class, 0);
        if class == Class::Text {
            value.push_str(" COLLATE \"C\"");
        }
        let operator = *self.dice.pick(&["=", "<", ">=", "<>"]);
        match self.dice.weighted(&[4, 3, 4, 3, 2, 2, 2]) {
            0 => format!("EXISTS ({})", self.correlated(scope, depth)),
            1 => format!("NOT EXISTS ({})", self.correlated(scope, depth)),
            2 => format!("{value} IN ({})", self.column_of(scope, class, depth)),
            3 => format!("{value} NOT IN ({})", self.column_of(scope, class, depth)),
            4 => format!("{value} {operator} ANY ({})", self.column_of(scope, class, depth)),
            5 => format!("{value} {operator} ALL ({})", self.column_of(scope, class, depth)),
            _ => format!("{value} {operator} {}", self.scalar_subquery(scope, class)),
        }
    }

    /// What fails for some rows.
    pub fn risky(&mut self, scope: &Scope) -> String {
        let (one, other) =
            (self.expression(scope, Class::Int, 0), self.expression(scope, Class::Text, 0));
        match self.dice.below(2) {
            0 => format!("100 / {one}"),
            _ => format!("({other})::numeric"),
        }
    }
}
