//! The statements whose price is measured, and the tables that they are about.
//!
//! Owns: their texts, and what undoes what they change. Never: runs one.
//! Start reading at [`SHAPES`].

/// How a statement is sent, and what of it takes the time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Work {
    /// Rows come, and are compared with those of the other endpoint.
    Query,
    /// Something is changed.
    Change,
    /// COPY … FROM STDIN, of so many rows for each hundred of `sales`.
    CopyIn,
    /// COPY … TO STDOUT.
    CopyOut,
}

/// Of which kind a statement is; each has an aim, or none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Each node answers for its own rows.
    ByNode,
    /// The same in parts, which a final step puts together.
    InParts,
    /// Rows travel between nodes.
    Travelling,
    /// Rows are changed, or brought in or out.
    Changing,
    /// Tables and indexes are made.
    Defining,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::ByNode, Self::InParts, Self::Travelling, Self::Changing, Self::Defining];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ByNode => "node by node",
            Self::InParts => "in parts",
            Self::Travelling => "rows travel",
            Self::Changing => "changes",
            Self::Defining => "definitions",
        }
    }
}

/// One statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub name: &'static str,
    pub kind: Kind,
    pub work: Work,
    pub sql: &'static str,
    /// Makes the tables what they were; not measured. Empty: nothing to undo.
    pub undo: &'static str,
}

const fn query(kind: Kind, name: &'static str, sql: &'static str) -> Shape {
    Shape { name, kind, work: Work::Query, sql, undo: "" }
}

const fn change(kind: Kind, name: &'static str, sql: &'static str, undo: &'static str) -> Shape {
    Shape { name, kind, work: Work::Change, sql, undo }
}

/// A table: its name, its columns, where its rows are, and the SELECT that fills it. `{rows}` stands for how many rows
/// `sales` has.
pub(super) const TABLES: [[&str; 4]; 5] = [
    [
        "customers",
        "id int PRIMARY KEY, name text NOT NULL, region int NOT NULL",
        "HASH (id)",
        "SELECT g, 'customer ' || g, g % 25 FROM generate_series(1, {rows} / 50) g",
    ],
    [
        "items",
        "id int PRIMARY KEY, name text NOT NULL, price numeric(8,2) NOT NULL",
        "REPLICATED",
        "SELECT g, 'item ' || g, (g * 7919 % 10000) / 100.0 FROM generate_series(1, 1000) g",
    ],
    [
        "sales",
        "customer int, id bigint, item int NOT NULL, amount numeric(10,2) NOT NULL, day date NOT NULL, note text, \
         PRIMARY KEY (customer, id)",
        "HASH (customer)",
        "SELECT 1 + g * 7919 % ({rows} / 50), g, 1 + g * 104729 % 1000, (g * 31 % 100000) / 100.0, \
         date '2020-01-01' + (g % 1500)::int, 'sale number ' || g FROM generate_series(1, {rows}::bigint) g",
    ],
    [
        "visits",
        "id bigint PRIMARY KEY, customer int NOT NULL, day date NOT NULL",
        "HASH (id)",
        "SELECT g, 1 + g * 6151 % ({rows} / 50), date '2020-01-01' + (g * 13 % 1500)::int \
         FROM generate_series(1, {rows}::bigint / 10) g",
    ],
    ["copied", "customer int, id bigint, note text", "HASH (customer)", ""],
];

/// All that is measured.
pub(super) const SHAPES: [Shape; 37] = [
    query(
        Kind::ByNode,
        "groups of the key",
        "SELECT customer, count(*), sum(amount) FROM sales GROUP BY customer HAVING 40 < sum(amount) % 1000 ORDER BY 1 LIMIT 100",
    ),
    query(
        Kind::ByNode,
        "join on the key",
        "SELECT c.region, s.id FROM customers c JOIN sales s ON s.customer = c.id WHERE s.amount < 1 AND c.region < 5",
    ),
    query(
        Kind::ByNode,
        "window by the key",
        "SELECT id FROM (SELECT id, amount, row_number() OVER (PARTITION BY customer ORDER BY amount, id) AS place FROM sales) q \
         WHERE place = 1 AND amount < 2",
    ),
    query(
        Kind::ByNode,
        "EXISTS on the key",
        "SELECT id FROM customers c WHERE NOT EXISTS (SELECT FROM sales s WHERE s.customer = c.id AND s.day > '2024-02-01')",
    ),
    query(Kind::InParts, "count(*)", "SELECT count(*) FROM sales"),
    query(
        Kind::InParts,
        "sums",
        "SELECT count(*), sum(amount), avg(amount), min(day), max(day) FROM sales WHERE item < 500",
    ),
    query(
        Kind::InParts,
        "deviations",
        "SELECT stddev(amount), variance(amount), bool_and(amount >= 0) FROM sales",
    ),
    query(
        Kind::InParts,
        "groups",
        "SELECT day, count(*), sum(amount) FROM sales GROUP BY day ORDER BY day",
    ),
    query(
        Kind::InParts,
        "grouping sets",
        "SELECT item % 10, day, count(*), sum(amount) FROM sales GROUP BY ROLLUP (item % 10, day) ORDER BY 1, 2",
    ),
    query(Kind::InParts, "DISTINCT", "SELECT DISTINCT item, day FROM sales WHERE item < 40"),
    query(
        Kind::InParts,
        "count(DISTINCT)",
        "SELECT count(DISTINCT item), count(DISTINCT day) FROM sales",
    ),
    query(
        Kind::InParts,
        "top ten",
        "SELECT id, amount, note FROM sales ORDER BY amount DESC, id LIMIT 10",
    ),
    query(
        Kind::InParts,
        "join with copies",
        "SELECT i.name, count(*), sum(s.amount * i.price) FROM sales s JOIN items i ON i.id = s.item GROUP BY i.name ORDER BY 3 DESC, 1 LIMIT 20",
    ),
    query(
        Kind::InParts,
        "join on the key",
        "SELECT c.region, sum(s.amount) FROM sales s JOIN customers c ON c.id = s.customer GROUP BY c.region ORDER BY 1",
    ),
    query(
        Kind::InParts,
        "self-join on the key",
        "SELECT count(*), max(b.amount) FROM sales a JOIN sales b ON b.customer = a.customer AND b.id = a.id + 1 WHERE a.item < 100",
    ),
    query(
        Kind::InParts,
        "over groups",
        "SELECT count(*), avg(amount) FROM (SELECT day, sum(amount) AS amount FROM sales GROUP BY day) q",
    ),
    query(
        Kind::InParts,
        "over two groups",
        "WITH s AS (SELECT day, sum(amount) AS amount FROM sales GROUP BY day), v AS (SELECT day, count(*) AS n FROM visits GROUP BY day) \
         SELECT day, amount / n FROM s JOIN v USING (day) ORDER BY 1",
    ),
    query(
        Kind::InParts,
        "join with copies in a block",
        "BEGIN; SELECT i.name, count(*), sum(s.amount * i.price) FROM sales s JOIN items i ON i.id = s.item GROUP BY i.name ORDER BY 3 DESC, 1 LIMIT 20; COMMIT",
    ),
    query(
        Kind::Travelling,
        "join on another column in a block",
        "BEGIN; SELECT c.region, count(*) FROM visits v JOIN customers c ON c.id = v.customer GROUP BY c.region ORDER BY 1; COMMIT",
    ),
    query(
        Kind::Travelling,
        "subquery computed first in a block",
        "BEGIN; SELECT count(*) FROM sales WHERE amount > (SELECT avg(amount) FROM sales); COMMIT",
    ),
    query(
        Kind::Travelling,
        "join on another column",
        "SELECT c.region, count(*) FROM visits v JOIN customers c ON c.id = v.customer GROUP BY c.region ORDER BY 1",
    ),
    query(
        Kind::Travelling,
        "semi-join",
        "SELECT count(*) FROM customers WHERE id IN (SELECT customer FROM visits WHERE day < '2020-02-01')",
    ),
    query(
        Kind::Travelling,
        "join of two by a third",
        "SELECT s.day, count(*) FROM visits v JOIN sales s ON s.customer = v.customer AND s.day = v.day GROUP BY s.day ORDER BY 2 DESC, 1 LIMIT 10",
    ),
    query(
        Kind::Travelling,
        "correlated subquery",
        "SELECT count(*) FROM sales s WHERE s.amount > (SELECT avg(price) * 10 FROM items i WHERE i.id = s.item)",
    ),
    query(
        Kind::Travelling,
        "subquery computed first",
        "SELECT count(*) FROM sales WHERE amount > (SELECT avg(amount) FROM sales)",
    ),
    query(
        Kind::Travelling,
        "ordered window",
        "SELECT id FROM (SELECT id, lag(day) OVER (ORDER BY id) AS before, day FROM visits) q WHERE before > day AND id < 2000 ORDER BY 1",
    ),
    query(
        Kind::Travelling,
        "EXCEPT",
        "SELECT count(*) FROM (SELECT id FROM customers EXCEPT SELECT customer FROM visits) q",
    ),
    change(
        Kind::Changing,
        "UPDATE of many",
        "UPDATE sales SET note = 'seen' WHERE item = 7",
        "UPDATE sales SET note = 'sale number ' || id WHERE item = 7",
    ),
    change(
        Kind::Changing,
        "UPDATE … FROM another",
        "UPDATE customers SET name = upper(name) FROM visits v WHERE v.customer = customers.id AND v.day < '2020-01-05'",
        "UPDATE customers SET name = lower(name) WHERE name <> lower(name)",
    ),
    change(
        Kind::Changing,
        "INSERT … SELECT",
        "INSERT INTO copied SELECT customer, id, note FROM sales WHERE item < 100",
        "TRUNCATE copied",
    ),
    change(
        Kind::Changing,
        "INSERT … SELECT, other key",
        "INSERT INTO copied SELECT item, id, note FROM sales WHERE item < 50",
        "TRUNCATE copied",
    ),
    change(
        Kind::Changing,
        "INSERT … SELECT of sums",
        "INSERT INTO copied SELECT item, count(*), max(note) FROM sales GROUP BY item",
        "TRUNCATE copied",
    ),
    Shape {
        name: "COPY out of sums",
        kind: Kind::Changing,
        work: Work::CopyOut,
        sql: "COPY (SELECT day, sum(amount) FROM sales GROUP BY day) TO STDOUT",
        undo: "",
    },
    Shape {
        name: "COPY in",
        kind: Kind::Changing,
        work: Work::CopyIn,
        sql: "COPY copied FROM STDIN",
        undo: "TRUNCATE copied",
    },
    Shape {
        name: "COPY out",
        kind: Kind::Changing,
        work: Work::CopyOut,
        sql: "COPY sales TO STDOUT",
        undo: "",
    },
    change(
        Kind::Defining,
        "CREATE INDEX",
        "CREATE INDEX sales_day ON sales (day)",
        "DROP INDEX sales_day",
    ),
    change(
        Kind::Defining,
        "CREATE TABLE AS",
        "CREATE TABLE by_day {distribute HASH (day)} AS SELECT day, sum(amount) AS amount FROM sales GROUP BY day",
        "DROP TABLE by_day",
    ),
];

/// `sql` for an endpoint that knows DISTRIBUTE BY, or for one that does not.
pub(super) fn written_for(sql: &str, distributes: bool) -> String {
    let Some((before, rest)) = sql.split_once("{distribute ") else { return sql.to_owned() };
    let Some((how, after)) = rest.split_once('}') else { return sql.to_owned() };
    match distributes {
        true => format!("{before}DISTRIBUTE BY {how}{after}"),
        false => format!("{before}{after}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_rows_go_is_said_only_to_who_knows_it() {
        let sql = "CREATE TABLE t {distribute HASH (day)} AS SELECT";
        assert_eq!(written_for(sql, true), "CREATE TABLE t DISTRIBUTE BY HASH (day) AS SELECT");
        assert_eq!(written_for(sql, false), "CREATE TABLE t  AS SELECT");
        assert_eq!(written_for("SELECT 1", true), "SELECT 1");
    }

    #[test]
    fn what_changes_is_undone() {
        for shape in &SHAPES {
            let changes = !matches!(shape.work, Work::Query | Work::CopyOut);
            assert_eq!(changes, !shape.undo.is_empty(), "{}", shape.name);
        }
    }
}
