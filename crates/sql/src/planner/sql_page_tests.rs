//! `docs/sql.md`: what runs how, as the planner says it of examples.
//!
//! Owns: the examples, and the words for each kind of plan. Never: says which plan is right; the tests of each part do.
//! Start reading at [`PAGE`].

use expect_test::expect_file;

use super::context::Context;
use super::fixture::{shop, shop_scope};
use super::plan;
use crate::plan::{
    CopyToPlan, DataPlan, Gather, InsertSource, NodeChoice, Plan, Planned, RunOn, SchemaPlan,
    SessionPlan, TuttiCall,
};
use crate::statement::parse;

/// A section of the page: its title, what it says first, and statements.
struct Section {
    title: &'static str,
    says: &'static str,
    statements: &'static [&'static str],
}

const PAGE: [Section; 8] = [
    Section {
        title: "On one node",
        says: "A statement whose rows are all on one node goes there as it was written: the distribution key is compared \
               with a value, or follows from one by joins; or every node has the rows. That is as fast as a connection \
               to the node.",
        statements: &[
            "SELECT * FROM customers WHERE id = $1",
            "SELECT c.name, o.total FROM customers c JOIN orders o ON o.customer_id = c.id WHERE c.id = 5",
            "SELECT name FROM customers WHERE id IN ($1, $2)",
            "UPDATE orders SET total = 0 WHERE customer_id = $1 AND id = $2",
            "INSERT INTO customers VALUES ($1, 'name')",
            "DELETE FROM lines l USING orders o WHERE o.customer_id = l.customer_id AND l.customer_id = 7",
            "SELECT * FROM items WHERE id = 3",
            "SELECT * FROM home",
        ],
    },
    Section {
        title: "Node by node",
        says: "Where each node can answer for its own rows, it does, and the answers are put one after the other. Joins on \
               the distribution keys and with replicated tables, and groups by the key, are of this kind.",
        statements: &[
            "SELECT name FROM customers WHERE name > 'm'",
            "SELECT c.name, o.total FROM customers c LEFT JOIN orders o ON o.customer_id = c.id",
            "SELECT customer_id, count(*), sum(total) FROM orders GROUP BY customer_id",
            "SELECT o.id, i.name FROM lines o JOIN items i ON i.name = o.item",
            "SELECT id FROM customers c WHERE EXISTS (SELECT FROM orders o WHERE o.customer_id = c.id AND total > 5)",
            "UPDATE orders SET total = total * 2 WHERE placed < '2024-01-01'",
            "DELETE FROM lines WHERE number = 0",
            "INSERT INTO lines SELECT customer_id, 'gift', 1 FROM orders WHERE total > 100",
        ],
    },
    Section {
        title: "Each node's part, put together",
        says: "Aggregates, groups by other columns, DISTINCT, and the first rows of an order: each node answers for its \
               rows, and a final statement, which PostgreSQL runs, puts the parts together \
               ([how](decisions/2026-11-27-partial-aggregates.md)).",
        statements: &[
            "SELECT count(*), max(total) FROM orders",
            "SELECT placed, count(*), sum(total) FROM orders GROUP BY placed HAVING count(*) > 3 ORDER BY 2 DESC",
            "SELECT DISTINCT item FROM lines",
            "SELECT count(DISTINCT item) FROM lines",
            "SELECT i.name, sum(l.number) FROM lines l JOIN items i ON i.name = l.item GROUP BY i.name",
            "SELECT * FROM orders ORDER BY total DESC LIMIT 10",
            "SELECT max(n) FROM (SELECT placed, count(*) AS n FROM orders GROUP BY placed) AS days",
            "WITH o AS (SELECT placed, count(*) AS n FROM orders GROUP BY placed), l AS (SELECT item, max(number) AS m FROM lines GROUP BY item) SELECT * FROM o JOIN l ON l.m = o.n",
            "INSERT INTO home SELECT count(*) FROM orders GROUP BY placed",
        ],
    },
    Section {
        title: "Rows that travel",
        says: "Joins on other columns. Which rows travel is known when the statement is run: the smaller tables are brought \
               to the nodes (each row to the one node that joins it, where that is the other's key), or the rows of both \
               sides meet by the hash of what joins them, or all are gathered on one node, and of a table only those \
               rows that match others that are there \
               ([brought](decisions/2026-11-27-brought-tables.md), [met](decisions/2026-11-29-rows-that-meet.md), \
               [semi-joins](decisions/2026-11-27-semi-joins.md)). All that cannot be answered otherwise is gathered, so \
               every SELECT has an answer. `EXPLAIN` says what was \
               chosen.",
        statements: &[
            "SELECT o.id, l.item FROM orders o JOIN lines l ON l.number = o.id",
            "SELECT c.name, count(*) FROM customers c JOIN tickets t ON t.title = c.name GROUP BY c.name",
            "SELECT name FROM customers WHERE id IN (SELECT number FROM lines WHERE item = 'x')",
            "SELECT total FROM orders WHERE total > (SELECT max(number) FROM lines)",
            "SELECT id, (SELECT max(number) FROM lines l WHERE l.number = o.id) FROM orders o",
            "SELECT name FROM customers EXCEPT SELECT item FROM lines",
            "SELECT string_agg(name, ',' ORDER BY name) FROM customers",
            "SELECT row_number() OVER (ORDER BY total), * FROM orders",
            "SELECT * FROM orders TABLESAMPLE BERNOULLI (1) ORDER BY 1",
            "SELECT ctid, * FROM orders ORDER BY total",
            "SELECT pg_total_relation_size('orders')",
            "WITH RECURSIVE r AS (SELECT id FROM orders WHERE id = 1 UNION SELECT o.id FROM orders o, r WHERE o.customer_id = r.id) SELECT * FROM r",
        ],
    },
    Section {
        title: "Changes of several nodes",
        says: "All of a statement's changes are one transaction: on all nodes or on none, and seen so.",
        statements: &[
            "INSERT INTO customers VALUES (1, 'a'), (2, 'b'), (3, 'c')",
            "INSERT INTO tickets (title) SELECT name FROM customers",
            "UPDATE customers SET name = t.title FROM tickets t WHERE t.id = customers.id + 1",
            "UPDATE orders SET total = h.a FROM home h WHERE h.a = orders.id",
            "UPDATE customers SET name = random()::text",
            "UPDATE customers SET id = id + 1000 RETURNING *",
            "UPDATE customers SET id = i.id FROM items i WHERE i.name = customers.name",
            "MERGE INTO customers c USING orders o ON c.id = o.customer_id WHEN MATCHED THEN UPDATE SET name = 'has orders'",
            "MERGE INTO customers c USING (VALUES (1, 'a'), (2, 'b')) v (id, name) ON c.id = v.id WHEN MATCHED THEN UPDATE SET name = v.name WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.name)",
            "WITH gone AS (DELETE FROM lines WHERE number = 0 RETURNING *) INSERT INTO tickets (title) SELECT item FROM gone",
            "INSERT INTO items (name) VALUES ('new')",
            "UPDATE items SET name = upper(name)",
            "COPY customers FROM STDIN",
            "COPY (SELECT count(*) FROM customers) TO STDOUT",
            "COPY (DELETE FROM lines WHERE number = 0 RETURNING item) TO STDOUT",
        ],
    },
    Section {
        title: "Locks and cursors",
        says: "Rows are locked where they are; with LIMIT those that one server would lock, and no others \
               ([how](decisions/2026-11-27-row-locks.md)). A cursor over several nodes has all its rows \
               gathered first: on a connection of its own if they are many ([how](decisions/2026-11-28-rows-that-wait.md)).",
        statements: &[
            "SELECT * FROM orders WHERE customer_id = 3 FOR UPDATE",
            "SELECT * FROM tickets WHERE title = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED",
            "UPDATE tickets SET title = 'taken' WHERE id = (SELECT id FROM tickets WHERE title = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)",
            "DECLARE c CURSOR FOR SELECT * FROM customers",
            "LOCK TABLE orders",
        ],
    },
    Section {
        title: "Definitions",
        says: "",
        statements: &[
            "CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
            "ALTER TABLE orders ADD COLUMN seen timestamptz DEFAULT now()",
            "ALTER TABLE items DISTRIBUTE BY HASH (id)",
            "ALTER TABLE customers DISTRIBUTE BY HOME CASCADE",
            "CREATE INDEX ON orders (placed)",
            "CREATE INDEX CONCURRENTLY orders_placed ON orders (placed)",
            "CREATE UNIQUE INDEX customers_name ON customers (name) WITH (tutti.global_unique)",
            "CREATE TABLE sums DISTRIBUTE BY HASH (customer_id) AS SELECT customer_id, sum(total) FROM orders GROUP BY 1",
            "TRUNCATE orders",
            "VACUUM orders",
        ],
    },
    Section {
        title: "Refused",
        says: "With SQLSTATE 0A000, what, why, and what to do instead. A refusal changes nothing.",
        statements: &[
            "INSERT INTO audited VALUES (1), (2), (3)",
            "UPDATE customers SET id = i.id FROM items i WHERE i.name = customers.name RETURNING i.id",
            "MERGE INTO customers c USING tickets t ON c.name = t.title WHEN NOT MATCHED THEN INSERT VALUES (t.id, t.title)",
            "WITH a AS (UPDATE customers SET name = 'x' RETURNING id) UPDATE customers SET name = 'y' WHERE id IN (SELECT id + 1 FROM a)",
            "SELECT count(DISTINCT ctid) FROM orders",
            "SELECT * FROM orders WHERE ctid = '(0,1)'",
            "SELECT * FROM orders TABLESAMPLE system_rows (9) ORDER BY 1",
            "SELECT * FROM orders o, items i WHERE i.id = o.id FOR UPDATE",
            "CREATE DATABASE other",
        ],
    },
];

/// How it runs, in a few words.
fn way(planned: &Planned) -> String {
    match &planned.plan {
        Plan::Data(plan) => way_of_data(plan),
        Plan::Schema(plan) => match plan {
            SchemaPlan::Ddl(_) => "on all nodes, in one transaction",
            SchemaPlan::CreateTableAs { .. } => "on all nodes, then as INSERT … SELECT",
            SchemaPlan::TemporaryDdl { .. } => "on node 1",
            SchemaPlan::EveryNodeAlone { .. } => "on every node, each by itself",
            SchemaPlan::Concurrently(_) => "on one node after the other",
            SchemaPlan::LockEverywhere { .. } => "on every node, node 1 first",
        }
        .to_owned(),
        Plan::Session(SessionPlan::Tutti(TuttiCall::Place(_))) => {
            "by the gateway, which moves the rows, in one transaction".to_owned()
        }
        Plan::Session(_) => "by the session".to_owned(),
    }
}

fn way_of_data(plan: &DataPlan) -> String {
    match plan {
        DataPlan::One { node: NodeChoice::Pinned(_), otherwise: Some(otherwise), .. } => {
            format!("on the key's node; where values are on several: {}", way(otherwise))
        }
        DataPlan::One { node: NodeChoice::Pinned(_), .. } => "on the key's node".to_owned(),
        DataPlan::One { node: NodeChoice::Any, .. } => "on any one node".to_owned(),
        DataPlan::One { node: NodeChoice::Home | NodeChoice::Speaker, .. } => {
            "on node 1".to_owned()
        }
        DataPlan::Scatter { .. } => "node by node".to_owned(),
        DataPlan::Replicas { .. } => "on every node, node 1 first".to_owned(),
        DataPlan::Rows(_) => "on node 1; what it wrote goes to the others".to_owned(),
        DataPlan::Gather(gather) => way_of_gather(gather),
        DataPlan::Insert(insert) => match &insert.source {
            InsertSource::Values { .. } => "each row to its node".to_owned(),
            InsertSource::Select { plan, .. } => {
                format!("the query {}, then each row to its node", way(plan))
            }
        },
        DataPlan::Move(_) => {
            "node by node; rows whose new key is another node's move there".to_owned()
        }
        DataPlan::CopyFrom(_) => "each row to its node".to_owned(),
        DataPlan::CopyTo(copy) => match &copy.plan {
            CopyToPlan::One(..) => "on one node".to_owned(),
            CopyToPlan::Scatter => "node by node".to_owned(),
            CopyToPlan::Gather(gather) => way_of_gather(gather),
        },
        DataPlan::DeclareCursor { query, .. } => way(query),
        DataPlan::Cursor { .. } => "on the cursor's node".to_owned(),
        DataPlan::Explain(explain) => way(&explain.of),
        DataPlan::Steps(steps) => {
            let steps: Vec<_> = steps.all().map(|step| way(&step.planned)).collect();
            format!("in {} steps: {}", steps.len(), steps.join("; "))
        }
        DataPlan::Refused(refusal) => format!("refused: {}", refusal.message),
    }
}

fn way_of_gather(gather: &Gather) -> String {
    if gather
        .collects
        .iter()
        .any(|collect| collect.locks.as_ref().is_some_and(|it| it.first.is_some()))
    {
        return "rows locked in their order over all nodes".to_owned();
    }
    if gather.partial.is_some() {
        return "each node's part, put together".to_owned();
    }
    if matches!(gather.run_on, RunOn::EachNode) {
        return match gather.collects.is_empty() {
            true => "node by node, with one time".to_owned(),
            false => "rows brought to every node, then node by node".to_owned(),
        };
    }
    let mut ways = Vec::new();
    if gather.first.is_some() {
        ways.push("subqueries computed first");
    }
    if !gather.brought.is_empty() {
        let is_routed =
            gather.brought.iter().any(|way| way.collects().iter().any(|it| it.route.is_some()));
        ways.push(if is_routed {
            "brought, each row to its node"
        } else {
            "brought to every node"
        });
    }
    ways.push(match gather.collects.iter().any(|collect| !collect.reduced.is_empty()) {
        true => "gathered, by semi-joins",
        false => "gathered",
    });
    ways.join(", or ")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[test]
fn the_page_says_what_the_planner_does() {
    let scope = shop_scope();
    let catalog = shop(3);
    let context = Context::new(&catalog, &scope);
    let mut page = "# What runs how\n\n\
        For whoever wants to know what a statement costs before it is run; `EXPLAIN` says it of yours.\n\
        The planner writes this page from examples (`UPDATE_EXPECT=1 cargo test -p tutti-sql sql_page`).\n\n\
        The tables: `customers` by the hash of `id`; `orders (id, customer_id, total, placed)` and `lines (customer_id, \
        item, number)` by `customer_id`; `tickets (id, title)` by `id`; `items` and `rates` replicated; `events` round \
        robin; `home` on node 1; `audited` by `id`, with a trigger that writes another table.\n"
        .to_owned();
    for Section { title, says, statements } in PAGE {
        page.push_str(&format!("\n## {title}\n\n"));
        if !says.is_empty() {
            page.push_str(&format!("{says}\n\n"));
        }
        page.push_str("| statement | |\n|---|---|\n");
        for sql in statements {
            let parsed = parse(sql).unwrap_or_else(|refusal| panic!("{sql}: {}", refusal.message));
            let how = match plan(&parsed[0], &context) {
                Ok(planned) => way(&planned),
                Err(refusal) => {
                    assert_eq!(title, "Refused", "{sql}: {refusal}");
                    [Some(refusal.message), refusal.detail, refusal.hint]
                        .into_iter()
                        .flatten()
                        .map(|part| part.trim_end_matches('.').to_owned() + ".")
                        .collect::<Vec<_>>()
                        .join(" ")
                }
            };
            page.push_str(&format!("| `{}` | {} |\n", cell(sql), cell(&how)));
        }
    }
    expect_file!["../../../../docs/sql.md"].assert_eq(&page);
}
