//! Questions to the shop, each printed with its answer.
//!
//! Owns: the questions. Never: changes a row.

use anyhow::Context;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

use crate::client;
use crate::table::layout;

/// A question: what it shows, and the SQL.
struct Question {
    shows: &'static str,
    sql: &'static str,
}

const QUESTIONS: [Question; 3] = [
    Question {
        shows: "One customer's orders: one node has all of them",
        sql: "SELECT o.order_id, o.ordered_on, sum(l.quantity * i.price) AS total
FROM shop.orders o
JOIN shop.order_lines l USING (customer_id, order_id)
JOIN shop.items i USING (item_id)
WHERE o.customer_id = 42
GROUP BY o.order_id, o.ordered_on
ORDER BY o.ordered_on",
    },
    Question {
        shows: "What sells best: every node is asked",
        sql: "SELECT i.name, sum(l.quantity) AS sold, count(DISTINCT l.customer_id) AS customers
FROM shop.order_lines l
JOIN shop.items i USING (item_id)
GROUP BY i.name
ORDER BY sold DESC, i.name
LIMIT 5",
    },
    Question {
        shows: "Tables that are distributed differently, joined",
        sql: "SELECT c.city, count(*) AS lines_that_empty_the_stock
FROM shop.order_lines l
JOIN shop.stock s USING (item_id)
JOIN shop.customers c USING (customer_id)
WHERE s.on_hand - l.quantity < 992
GROUP BY c.city
ORDER BY c.city",
    },
];

/// Prints where the rows are, and then each question with its answer.
pub(super) async fn ask(client: &Client, node_urls: &[String]) -> anyhow::Result<()> {
    println!("\n== Where the rows are (asked of each node itself) ==");
    for (node, url) in (1..).zip(node_urls) {
        let counts = client::connect(url)
            .await?
            .query_one(
                "SELECT (SELECT count(*) FROM shop.customers), (SELECT count(*) FROM shop.orders),
                        (SELECT count(*) FROM shop.accounts), (SELECT count(*) FROM shop.items)",
                &[],
            )
            .await
            .with_context(|| format!("cannot ask node {node}"))?;
        let count = |column: usize| counts.get::<_, i64>(column);
        println!(
            "node {node}: {:>5} customers {:>6} orders {:>4} accounts {:>4} items (replicated)",
            count(0),
            count(1),
            count(2),
            count(3)
        );
    }
    for Question { shows, sql } in QUESTIONS {
        println!("\n== {shows} ==\n{sql};\n");
        let answer =
            client.simple_query(sql).await.with_context(|| format!("the question: {shows}"))?;
        let rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        print_table(&rows.collect::<Vec<_>>());
    }
    Ok(())
}

/// Prints rows as psql would: columns of equal width, a line under the names.
fn print_table(rows: &[&SimpleQueryRow]) {
    let Some(first) = rows.first() else {
        println!(" (no rows)");
        return;
    };
    let names = first.columns().iter().map(|column| column.name().to_owned()).collect();
    let mut lines: Vec<Vec<String>> = vec![names];
    for row in rows {
        lines.push((0..row.len()).map(|i| row.get(i).unwrap_or("").to_owned()).collect());
    }
    print!("{}", layout(&lines));
}
