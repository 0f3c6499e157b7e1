//! Random statements that change rows.
//!
//! Owns: the forms of INSERT, UPDATE, DELETE, MERGE and changes in WITH, and that each has one outcome: a row is changed
//! by one row of another table at most, and where two constraints could be violated one is.
//! Start reading at [`Writer::change`].

use super::schema::{Class, Column, Table};
use super::writer::{Scope, Writer, source};

impl Writer<'_> {
    /// One of them.
    pub fn change(&mut self) -> String {
        match self.dice.weighted(&[20, 12, 8, 26, 18, 8, 8, 4, 5]) {
            0 => self.insert_values(),
            1 => self.insert_query(),
            2 => self.insert_conflict(),
            3 => self.update(),
            4 => self.delete(),
            5 => self.merge(),
            6 => self.change_in_with(),
            7 => self.change_view(),
            _ => self.change_by_cte(),
        }
    }

    fn returning(&mut self, table: &Table, alias: &str) -> String {
        if self.dice.chance(60) {
            return String::new();
        }
        let scope = vec![source(alias, table.columns.clone())];
        let what = match self.dice.below(3) {
            0 => format!("{alias}.*"),
            1 => format!("{alias}.id, {alias}.k"),
            _ => {
                let value = self.expression(&scope, Class::Int, 1);
                let text = self.expression(&scope, Class::Text, 1);
                // A subquery would see other rows than on one server where the statement is split.
                match (value.contains("SELECT"), text.contains("SELECT")) {
                    (false, false) => format!("{value} AS n, {text} AS t"),
                    _ => format!("{alias}.id + 1 AS n"),
                }
            }
        };
        format!(" RETURNING {what}")
    }

    fn insert_values(&mut self) -> String {
        let at = self.table();
        let table = self.schema.relations[at].clone();
        let rows = *self.dice.pick(&[1, 1, 1, 2, 3, 6]);
        let mut sql = match self.dice.chance(75) {
            true if self.parameters.is_none() && self.dice.chance(60) => {
                self.schema.insert(self.dice, at, rows)
            }
            true => {
                let columns = table.written();
                let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
                let values: Vec<_> = (0..rows).map(|_| self.row(at, &columns)).collect();
                format!(
                    "INSERT INTO {} ({}) VALUES {}",
                    table.name,
                    names.join(", "),
                    values.join(", ")
                )
            }
            false => {
                // What is left out has its default.
                let needed = |column: &Column| {
                    !column.may_be_null || table.by.as_ref() == Some(&column.name)
                };
                let all = table.written();
                let columns: Vec<_> = all
                    .into_iter()
                    .filter(|column| needed(column) || self.dice.chance(50))
                    .collect();
                let values: Vec<_> =
                    (0..rows).map(|_| self.schema.row(self.dice, at, &columns)).collect();
                let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
                format!(
                    "INSERT INTO {} ({}) VALUES {}",
                    table.name,
                    names.join(", "),
                    values.join(", ")
                )
            }
        };
        if self.dice.chance(10) && !table.key.is_empty() {
            // Once more, with a key that is there.
            self.schema.relations[at].next_id =
                self.schema.relations[at].next_id.saturating_sub(1).max(1);
        }
        sql.push_str(&self.returning(&table, &table.name));
        sql
    }

    fn insert_query(&mut self) -> String {
        let at = self.table();
        let table = self.schema.relations[at].clone();
        let offset = table.next_id;
        let of = self.dice.pick(&self.schema.relations).clone();
        let Some(id) = of.column("id").filter(|_| !of.is_view) else { return self.insert_values() };
        self.schema.relations[at].next_id += of.next_id + 1;
        let id = format!("o.{} + {offset}", id.name);
        let scope = vec![source("o", of.columns.clone())];
        // Rows of equal ids would violate a key.
        let grouped = of.key.len() != 1 && !table.key.is_empty();
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for column in table.written() {
            let value = match (column.name.as_str(), column.may_be_null) {
                ("id", _) => id.clone(),
                ("f", _) => "NULL".to_owned(),
                _ if grouped => {
                    let columns = self.columns_of(&scope, column.class);
                    let ordered = matches!(
                        column.class,
                        Class::Int | Class::Date | Class::Number | Class::Zoned
                    );
                    match self.dice.below(columns.len() + 1) {
                        at if at < columns.len() && ordered && column.kind.cast != "small" => {
                            let constant = column.kind.literal(column.kind.values[0]);
                            format!(
                                "coalesce(max(o.{}), {constant})::{}",
                                columns[at].1.name, column.kind.cast
                            )
                        }
                        _ => self.constant(column.kind),
                    }
                }
                _ => {
                    let constant = column.kind.literal(column.kind.values[0]);
                    let columns: Vec<_> = self
                        .columns_of(&scope, column.class)
                        .into_iter()
                        .filter(|(_, of)| std::ptr::eq(of.kind, column.kind))
                        .collect();
                    match columns.is_empty() {
                        true => self.constant(column.kind),
                        false => {
                            format!("coalesce(o.{}, {constant})", self.dice.pick(&columns).1.name)
                        }
                    }
                }
            };
            names.push(column.name);
            values.push(value);
        }
        let mut filter = String::new();
        if self.dice.chance(60) {
            filter = format!(" WHERE {}", self.condition(&scope, 1));
        }
        let group = if grouped { " GROUP BY o.id" } else { "" };
        let returning = self.returning(&table, &table.name);
        format!(
            "INSERT INTO {} ({}) SELECT {} FROM {} o{filter}{group}{returning}",
            table.name,
            names.join(", "),
            values.join(", "),
            of.name
        )
    }

    fn insert_conflict(&mut self) -> String {
        let at = self.table();
        let table = self.schema.relations[at].clone();
        if table.key.is_empty() {
            return self.insert_values();
        }
        let rows = *self.dice.pick(&[1, 1, 2, 3]);
        // Some of them are there already.
        let next = self.schema.relations[at].next_id;
        self.schema.relations[at].next_id = next.saturating_sub(self.dice.below(4)).max(1);
        let sql = self.schema.insert(self.dice, at, rows);
        self.schema.relations[at].next_id = self.schema.relations[at].next_id.max(next);
        let key = table.key.join(", ");
        let conflict = match self.dice.below(4) {
            0 => " ON CONFLICT DO NOTHING".to_owned(),
            1 => format!(" ON CONFLICT ({key}) DO NOTHING"),
            _ => {
                let set = match self.dice.below(2) {
                    0 => "s = excluded.s".to_owned(),
                    _ => format!("s = coalesce({}.s, 'z')", table.name),
                };
                let filter = match self.dice.chance(30) {
                    true => format!(" WHERE {}.id > 2", table.name),
                    false => String::new(),
                };
                format!(" ON CONFLICT ({key}) DO UPDATE SET {set}{filter}")
            }
        };
        let returning = self.returning(&table, &table.name);
        format!("{sql}{conflict}{returning}")
    }

    /// `SET` of some columns.
    fn assignments(&mut self, table: &Table, scope: &Scope) -> String {
        let mut written = table.written();
        written.retain(|column| {
            // Rows whose key changes are for statements of their own.
            let is_key =
                table.by.as_ref() == Some(&column.name) || table.key.contains(&column.name);
            !["id", "f"].contains(&column.name.as_str()) && !is_key
        });
        let mut sets = Vec::new();
        for _ in 0..self.dice.between(1, 2) {
            if written.is_empty() {
                break;
            }
            let column = written.swap_remove(self.dice.below(written.len()));
            let value = self.value_for(&column, scope);
            sets.push(format!("{} = {value}", column.name));
        }
        match (sets.is_empty(), &table.by) {
            (false, _) => sets.join(", "),
            (true, Some(by)) if by == "id" => "id = id".to_owned(),
            (true, _) => "id = id + 0".to_owned(),
        }
    }

    /// A value that fits into a column.
    fn value_for(&mut self, column: &Column, scope: &Scope) -> String {
        match column.class {
            // Its domain has a check, and its words a length.
            Class::Int if column.kind.cast == "small" => self.constant(column.kind),
            Class::Int => format!("({}) % 100", self.expression(scope, Class::Int, 2)),
            Class::Number => format!("round({} / 10, 2)", self.expression(scope, Class::Number, 1)),
            Class::Text => {
                let depth = self.dice.below(3);
                format!("left({}, 6)", self.expression(scope, Class::Text, depth))
            }
            Class::Float if column.kind.cast == "real" => self.constant(column.kind),
            class => self.expression(scope, class, 1),
        }
    }

    /// Rows of another table, one for each `n`, by which rows are changed.
    fn unique_source(&mut self) -> (String, Vec<Column>) {
        let of = loop {
            let of = self.dice.pick(&self.schema.relations).clone();
            if of.column("k").is_some_and(|k| k.class == Class::Int) {
                break of;
            }
        };
        let key = if of.column("id").is_some() && self.dice.chance(50) { "id" } else { "k" };
        let filter = match self.dice.chance(40) {
            true => {
                let scope = vec![source("o", of.columns.clone())];
                format!(" WHERE {}", self.condition(&scope, 1))
            }
            false => String::new(),
        };
        let sql = format!(
            "(SELECT o.{key}::bigint AS y0, max(o.k)::bigint AS y1, min(o.s COLLATE \"C\") AS y2 FROM {} o{filter} GROUP BY o.{key})",
            of.name
        );
        (sql, self.columns_for(&[Class::Int, Class::Int, Class::Text], "y"))
    }

    fn update(&mut self) -> String {
        let at = self.table();
        let table = self.schema.relations[at].clone();
        let own = vec![source("u", table.columns.clone())];
        if self.dice.chance(12) {
            return self.update_key(&table, &own);
        }
        if self.dice.chance(25) {
            let (from, columns) = self.unique_source();
            let both: Scope = own.iter().cloned().chain([source("m", columns)]).collect();
            let sets = self.assignments(&table, &both);
            let on = self.dice.pick(&["id", "id", "k"]);
            let more = match self.dice.chance(40) {
                true => format!(" AND {}", self.condition(&own, 1)),
                false => String::new(),
            };
            let returning = self.returning(&table, "u");
            return format!(
                "UPDATE {} u SET {sets} FROM {from} m WHERE u.{on} = m.y0{more}{returning}",
                table.name
            );
        }
        let mut sets = self.assignments(&table, &own);
        if self.dice.chance(10) && table.by.as_deref() != Some("s") {
            let value = self.scalar_subquery(&own, Class::Text);
            sets = format!("s = left({value}, 6)");
        }
        let depth = self.dice.between(1, 2);
        let filter = match self.dice.chance(85) {
            true => format!(" WHERE {}", self.condition(&own, depth)),
            false => String::new(),
        };
        let returning = self.returning(&table, "u");
        format!("UPDATE {} u SET {sets}{filter}{returning}", table.name)
    }

    /// By what a query in WITH has read.
    fn change_by_cte(&mut self) -> String {
        let at = self.table();
        let table = self.schema.relations[at].clone();
        let own = vec![source("u", table.columns.clone())];
        let (from, columns) = self.unique_source();
        let both: Scope = own.iter().cloned().chain([source("m", columns)]).collect();
        let with =
            format!("WITH m AS {} (SELECT * FROM {from} q)", self.dice.pick(&["", "MATERIALIZED"]));
        let condition = self.condition(&own, 1);
        match self.dice.below(3) {
            0 => format!(
                "{with} DELETE FROM {} u USING m WHERE u.id = m.y0 AND {condition}",
                table.name
            ),
            1 => format!(
                "{with} DELETE FROM {} u WHERE u.k IN (SELECT y1 FROM m) AND {condition} AND u.id % 4 = 2",
                table.name
            ),
            _ => {
                let sets = self.assignments(&table, &both);
                format!(
                    "{with} UPDATE {} u SET {sets} FROM m WHERE u.k = m.y0 AND {condition}",
                    table.name
                )
            }
        }
    }

    /// Through a view over one table, if there is one.
    fn change_view(&mut self) -> String {
        let views = self.schema.relations.iter().filter(|of| of.is_view).cloned();
        let views: Vec<_> = views.collect();
        if views.is_empty() {
            return self.update();
        }
        let view = self.dice.pick(&views).clone();
        let own = vec![source("u", view.columns.clone())];
        let condition = self.condition(&own, 1);
        match self.dice.below(2) {
            0 => format!("UPDATE {} u SET s = 'v' WHERE {condition}", view.name),
            _ => format!("DELETE FROM {} u WHERE {condition} AND id % 3 = 1", view.name),
        }
    }

    fn update_key(&mut self, table: &Table, own: &Scope) -> String {
        let columns = table.written();
        let by = table.by.clone().unwrap_or_else(|| "k".to_owned());
        let Some(column) = columns.iter().find(|column| column.name == by) else {
            return self.delete();
        };
        let value = match (column.name.as_str(), column.class) {
            ("id", _) => "id + 1000".to_owned(),
            (_, Class::Int) if !table.key.contains(&by) && column.kind.cast != "small" => {
                format!("({by} + 1) % 100")
            }
            _ => self.constant(column.kind),
        };
        let filter = format!(" WHERE {}", self.condition(own, 1));
        let returning = self.returning(table, "u");
        format!("UPDATE {} u SET {by} = {value}{filter}{returning}", table.name)
    }

    fn delete(&mut self) -> String {
        let at = self.table();
        let table = self.schema.relations[at].clone();
        let own = vec![source("u", table.columns.clone())];
        let condition = self.condition(&own, 2);
        let returning = self.returning(&table, "u");
        if self.dice.chance(30) {
            let other = self.relation();
            let both: Scope = vec![source("m", other.columns.clone())];
            let link = self.link(&both, &own);
            return format!(
                "DELETE FROM {} u USING {} m WHERE {link} AND {condition}{returning}",
                table.name, other.name
            );
        }
        format!(
            "DELETE FROM {} u WHERE {condition} AND u.id % 3 = {}{returning}",
            table.name,
            self.dice.below(3)
        )
    }

    fn merge(&mut self) -> String {
        let at = self.table();
        let table = self.schema.relations[at].clone();
        let own = [source("u", table.columns.clone())];
        let (from, columns) = self.unique_source();
        let both: Scope = own.iter().cloned().chain([source("m", columns)]).collect();
        let sets = self.assignments(&table, &both);
        let on = match table.by.as_deref() {
            Some("k") if self.dice.chance(60) => "k",
            _ => "id",
        };
        let mut sql = format!("MERGE INTO {} u USING {from} m ON u.{on} = m.y0", table.name);
        if self.dice.chance(30) {
            sql.push_str(" WHEN MATCHED AND m.y1 > 2 THEN DELETE");
        }
        sql.push_str(&format!(" WHEN MATCHED THEN UPDATE SET {sets}"));
        if self.dice.chance(40) && table.key.is_empty() {
            let all = table.written();
            let needed: Vec<_> =
                all.iter().filter(|column| !column.may_be_null || column.name == on).collect();
            let names: Vec<_> = needed.iter().map(|column| column.name.as_str()).collect();
            let values = needed.iter().map(|column| match column.name.as_str() {
                name if name == on => "m.y0".to_owned(),
                _ => self.constant(column.kind),
            });
            let values: Vec<_> = values.collect();
            sql.push_str(&format!(
                " WHEN NOT MATCHED AND m.y0 < 30 THEN INSERT ({}) VALUES ({})",
                names.join(", "),
                values.join(", ")
            ));
        }
        sql
    }

    fn change_in_with(&mut self) -> String {
        let (one, other) = (self.table(), self.table());
        let (table, of) =
            (self.schema.relations[one].clone(), self.schema.relations[other].clone());
        let own = vec![source("u", table.columns.clone())];
        let condition = self.condition(&own, 1);
        let sets = self.assignments(&table, &own);
        let change = match self.dice.below(3) {
            0 => format!(
                "DELETE FROM {} u WHERE {condition} RETURNING u.id::bigint, u.k::bigint",
                table.name
            ),
            1 => format!(
                "UPDATE {} u SET {sets} WHERE {condition} RETURNING u.id::bigint, u.k::bigint",
                table.name
            ),
            _ => {
                format!("{} RETURNING id::bigint, k::bigint", self.schema.insert(self.dice, one, 2))
            }
        };
        let rest = match self.dice.below(4) {
            0 => "SELECT * FROM w".to_owned(),
            1 => "SELECT count(*), sum(y1) FROM w".to_owned(),
            2 => format!(
                "SELECT w.y0, count(o.id) FROM w LEFT JOIN {} o ON o.k = w.y1 GROUP BY w.y0",
                of.name
            ),
            _ if one != other => format!("DELETE FROM {} o USING w WHERE o.id = w.y0", of.name),
            _ => "SELECT y0 FROM w".to_owned(),
        };
        format!("WITH w (y0, y1) AS ({change}) {rest}")
    }
}
