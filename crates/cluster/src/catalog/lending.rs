//! Rows of other nodes that node 1 has for a while, to fill a materialized view by its own query.
//!
//! Owns: the SQL that gives tables children, stores rows in these, and drops them, with the seals it takes.
//! Never: sends any of it, or reads a row; the gateway's executor does.
//! Start reading at [`lend_sql`]; what it calls is `lending.sql`.

use tutti_link::connection::{NodeConnection, Rows};
use tutti_link::seals::{Seals, digest};
use tutti_sql::catalog::{quote_identifier, quote_literal};
use tutti_sql::plan::Lending;

use super::placement::sealed_message;

/// A table, and its child.
#[derive(Clone, Debug)]
pub struct Lent {
    /// The table's schema.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// Qualified and quoted.
    child: String,
    /// Those of its columns that can be written, quoted.
    columns: Vec<String>,
}

/// What asks node 1 about a materialized view: its OID, its query, whether the client may refresh it, and whether it
/// is populated; no row: it is none.
pub fn view_sql(schema: &str, name: &str) -> String {
    let [schema, name] = [schema, name].map(quote_literal);
    format!(
        "SELECT number, definition, may_refresh, is_populated, \
         pg_catalog.current_setting('transaction_read_only') \
         FROM tutti.materialized_view({schema}, {name})"
    )
}

/// SQL that gives these tables children, and its parameters. `keeps`: nobody else may change the tables that are read
/// until the transaction ends. `refreshed`: the view, if it is there. Requires: the connection knows its moment.
///
/// Its errors are the node's: 42501 for tables that the client may not read, 0A000 for such as can have no child.
pub fn lend_sql(
    connection: &NodeConnection,
    lending: &Lending,
    keeps: bool,
    refreshed: Option<u32>,
    seals: &Seals,
) -> (String, Vec<String>) {
    let list = |oids: &[u32]| oids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let views: Vec<u32> = lending.views.iter().copied().chain(refreshed).collect();
    let kept = match keeps {
        true => [&lending.tables[..], &lending.whole[..]].concat(),
        false => Vec::new(),
    };
    let parts = [
        list(&lending.tables),
        list(&views),
        list(&kept),
        refreshed.map_or_else(String::new, |oid| oid.to_string()),
    ];
    let seal = seals.seal_now(connection, &format!("lend {}", parts.join(" ")));
    let parts = parts.map(|part| quote_literal(&part)).join(", ");
    let sql = format!(
        "SELECT in_schema, called, child, \
         (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(c.name), ',' ORDER BY c.at) \
             FROM pg_catalog.unnest(columns) WITH ORDINALITY AS c (name, at)), \
         pg_catalog.cardinality(columns) FROM tutti.lend({parts}, $1)"
    );
    (sql, vec![seal])
}

/// What [`lend_sql`] was answered; `None` if it is not readable.
pub fn lent(rows: &Rows) -> Option<Vec<Lent>> {
    (0..rows.rows.len())
        .map(|row| {
            let text = |column| rows.text(row, column).map(str::to_owned);
            let count: usize = text(4)?.parse().ok()?;
            let columns = split_quoted(text(3).as_deref().unwrap_or_default());
            (columns.len() == count).then_some(())?;
            Some(Lent { schema: text(0)?, table: text(1)?, child: text(2)?, columns })
        })
        .collect()
}

/// Quoted names with commas between them.
fn split_quoted(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let (mut name, mut is_quoted) = (String::new(), false);
    for char in list.chars() {
        is_quoted ^= char == '"';
        match char {
            ',' if !is_quoted => names.push(std::mem::take(&mut name)),
            char => name.push(char),
        }
    }
    if !list.is_empty() {
        names.push(name);
    }
    names
}

impl Lent {
    fn name(&self) -> String {
        format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.table))
    }

    /// Reads the rows of the table on another node: this number and the row's text.
    pub fn select(&self, number: usize) -> String {
        format!(
            "SELECT {number}, tutti.row_output(ROW(tutti_lent.*)) FROM ONLY {} AS tutti_lent",
            self.name()
        )
    }

    /// Stores rows in the child, as the table's owner: the checks of the table are code of his. `rows` is the text of an
    /// array. Requires: the connection knows its moment.
    pub fn store_sql(
        &self,
        connection: &NodeConnection,
        rows: String,
        seals: &Seals,
    ) -> (String, Vec<String>) {
        let Self { schema, table, child, columns } = self;
        let of_row: Vec<_> = columns.iter().map(|column| format!("u.{column}")).collect();
        let into = match columns.is_empty() {
            true => String::from(" SELECT"),
            false => format!("({}) SELECT {}", columns.join(", "), of_row.join(", ")),
        };
        let statement = format!("INSERT INTO {child} {into} FROM pg_catalog.unnest($1) AS u");
        let message = sealed_message("as owner", &[schema, table, &statement, &digest(&rows)]);
        let seal = seals.seal_now(connection, &message);
        // The code of the table has the search path of the session.
        let sql = format!(
            "SELECT tutti.as_owner({}, {}, $1, $2, pg_catalog.current_setting('search_path'), $3)",
            quote_literal(schema),
            quote_literal(table)
        );
        (sql, vec![statement, rows, seal])
    }
}

/// SQL that drops the children, and its parameters. Requires: the connection knows its moment.
pub fn take_back_sql(
    connection: &NodeConnection,
    lent: &[Lent],
    seals: &Seals,
) -> (String, Vec<String>) {
    let children: Vec<_> = lent.iter().map(|lent| lent.child.as_str()).collect();
    let children = children.join(", ");
    let seal = seals.seal_now(connection, &format!("take back {children}"));
    (format!("SELECT tutti.take_back({}, $1)", quote_literal(&children)), vec![seal])
}

#[cfg(test)]
mod tests {
    use super::split_quoted;

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(split_quoted(""), Vec::<String>::new());
        assert_eq!(split_quoted("id"), ["id"]);
        assert_eq!(split_quoted("id,\"a,b\",\"c\"\"d,\""), ["id", "\"a,b\"", "\"c\"\"d,\""]);
    }
}
