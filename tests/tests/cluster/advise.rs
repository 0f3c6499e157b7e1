//! `tutti advise`: what it goes by, from a real server, and that what it proposes can be done.
//!
//! Owns: that sizes, unique indexes, foreign keys and counted statements are read as they are. How placements are judged
//! is tested where that is decided (`crates/sql/src/advice`).

use anyhow::{Result, ensure};
use tutti_gateway::advice::{self, Asked, Choice, Way};
use tutti_tests::client::Client;
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

#[test]
fn a_proposal_from_counted_statements_can_be_carried_out() -> Result<()> {
    let servers = servers::start_with(3, &[("shared_preload_libraries", "pg_stat_statements")])?;
    let mut cluster = TestCluster::start_at_home(servers)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE country (id int PRIMARY KEY, name text UNIQUE)",
        "CREATE TABLE customer (id int PRIMARY KEY, country_id int REFERENCES country, \"Full name\" text)",
        "CREATE TABLE purchase (customer_id int REFERENCES customer, number int, total int, PRIMARY KEY (customer_id, number))",
        "INSERT INTO country SELECT g, 'c' || g FROM generate_series(1, 20) AS g",
        "INSERT INTO customer SELECT g, g % 20 + 1, 'n' || g FROM generate_series(1, 400) AS g",
        "INSERT INTO purchase SELECT g % 400 + 1, g, 1 FROM generate_series(1, 2000) AS g",
        "ANALYZE",
        "CREATE EXTENSION pg_stat_statements",
    ] {
        client.query(sql)?;
    }
    for id in 1..=50 {
        client.query(&format!("SELECT sum(total) FROM purchase WHERE customer_id = {id}"))?;
        client.query(&format!("SELECT p.total FROM customer c JOIN purchase p ON p.customer_id = c.id WHERE c.id = {id}"))?;
    }
    let known = cluster.workload()?;
    let asked: Vec<Asked> = known.asked.unwrap_or_default();
    let counted = asked.iter().find(|of| of.text.contains("JOIN purchase"));
    ensure!(counted.is_some_and(|of| of.calls == 50.0), "{asked:?}");
    // As if they were large.
    let mut facts = known.facts;
    for of in facts.values_mut().filter(|of| 100.0 < of.rows) {
        of.rows *= 1e6;
    }
    let advice = advice::advise(&known.catalog, &known.scope, &facts, &asked, 3);
    let mut shown: Vec<_> = advice
        .tables
        .iter()
        .map(|of| match of.choice {
            Choice::Key(key) => format!("{} {}", of.relation.name, of.relation.columns[key].name),
            Choice::Replicated => format!("{} everywhere", of.relation.name),
        })
        .collect();
    shown.sort_unstable();
    assert_eq!(shown, ["country everywhere", "customer id", "purchase customer_id"]);
    ensure!(advice.tables.iter().all(|of| of.needs.is_empty()), "{:?}", advice.tables);
    ensure!(0.9 < advice.share(&asked, Way::OneNode), "{:?}", advice.statements);
    client.query("SELECT tutti_replicate('country')")?;
    client.query("SELECT tutti_distribute('customer', 'id', 'purchase', 'customer_id')")?;
    ensure!(client.value("SELECT sum(total) FROM purchase")? == "2000");
    cluster.stop_gateway()
}
