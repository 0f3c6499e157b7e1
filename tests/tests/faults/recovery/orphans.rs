//! Prepared transactions without a coordinator, and questions about transactions.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use tutti_tests::client::Client;
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

use super::support::*;

#[test]
fn what_nobody_coordinates_is_settled_by_its_record_or_refused() -> Result {
    let cluster = TestCluster::start_on(servers::durable(2)?)?;
    let (gateway, nodes) = (cluster.endpoint(), cluster.nodes());
    let mut client = Client::connect(&gateway)?;
    client.query("CREATE TABLE t (x bigint) DISTRIBUTE BY ROUND ROBIN")?;
    let mut first = Client::connect(&nodes[0])?;
    let incarnation: u64 = first.value("SELECT last_value FROM tutti.incarnation")?.parse()?;
    let (with_record, without) = (gid(incarnation, 1_000_001, 1), gid(incarnation, 1_000_002, 1));
    first.query(&format!(
        "INSERT INTO tutti.decision (gid, decision) VALUES ('{with_record}', 'committed')"
    ))?;
    let mut second = Client::connect(&nodes[1])?;
    for (value, gid) in [(1, &with_record), (2, &without)] {
        for statement in [
            "BEGIN".to_owned(),
            format!("INSERT INTO t VALUES ({value})"),
            format!("PREPARE TRANSACTION '{gid}'"),
        ] {
            second.query(&statement)?;
        }
    }
    let listed = client.query("SELECT * FROM tutti_in_doubt()")?;
    for row in &listed {
        ensure!(row[1].as_deref() == Some("n2"), "{listed:?}");
    }
    come_to_rest(&nodes)?;
    assert_eq!(second.value("SELECT string_agg(x::text, ',') FROM t")?, "1");
    assert_eq!(client.value("SELECT count(*) FROM t")?, "1");
    for (gid, expected) in [(with_record, "committed"), (without, "aborted")] {
        assert_eq!(client.value(&format!("SELECT tutti_outcome('{gid}')"))?, expected);
    }
    assert_eq!(client.query("SELECT * FROM tutti_in_doubt()")?.len(), 0);
    // Never prepared, never recorded: no client was told to ask.
    let never = gid(incarnation, 1_000_003, 2);
    assert_eq!(client.value(&format!("SELECT tutti_outcome('{never}')"))?, "unknown");
    for bad in
        ["", "tutti_other_1_1_1", "tutti_test_1_1_3", "tutti_test_9999999999999999999_1_1", "x"]
    {
        let answer = client.simple(&format!("SELECT tutti_outcome('{bad}')"), &[])?;
        assert_eq!(answer.error().map(|error| error.sqlstate().to_owned()), Some("22023".into()));
    }
    Ok(())
}

/// Who may log in to a node prepares under names of any form: ours are not kept from theirs, a start is not
/// stopped, and what is not ours is shown and left alone.
#[test]
fn foreign_prepared_transactions_harm_nobody() -> Result {
    let mut cluster = TestCluster::start_on(servers::durable(2)?)?;
    let nodes = cluster.nodes();
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (x bigint PRIMARY KEY) DISTRIBUTE BY HASH (x)")?;
    client.query("CREATE TABLE other (x bigint) DISTRIBUTE BY ROUND ROBIN")?;
    let mut second = Client::connect(&nodes[1])?;
    let drawn: u64 =
        Client::connect(&nodes[0])?.value("SELECT last_value FROM tutti.incarnation")?.parse()?;
    let left_alone = [
        "junk".to_owned(),
        "tutti_other_1_1_1".to_owned(),
        // No node of the cluster is its anchor.
        format!("tutti_test_{drawn}_1_99"),
        "tutti_test_1_1_1_1".to_owned(),
    ];
    // Of our form, of this life or an earlier or a later one, under numbers to come.
    let lives = [1, drawn, drawn << 31, (drawn + 1) << 31];
    let guessed = lives.iter().flat_map(|life| (1..=10).map(move |number| gid(*life, number, 1)));
    let guessed: BTreeSet<_> = guessed.map(|gid| gid.to_string()).collect();
    for gid in left_alone.iter().chain(&guessed) {
        second.query("BEGIN; INSERT INTO other VALUES (1)")?;
        second.query(&format!("PREPARE TRANSACTION '{gid}'"))?;
    }
    for round in 0..20 {
        client
            .query(&format!("INSERT INTO t SELECT g FROM generate_series({round}0, {round}9) g"))?;
    }
    assert_eq!(client.value("SELECT count(*) FROM t")?, "200");
    let config = tutti_tests::gateway::config(cluster.servers(), String::new());
    let runtime = tokio::runtime::Runtime::new()?;
    let shown = runtime.block_on(tutti_cluster::status(&config))?.to_string();
    for gid in &left_alone {
        ensure!(shown.contains(&format!("{gid} ")), "{gid} is not in {shown}");
    }
    // A start with them there, and with a backend that says PREPARE and does not end.
    cluster.stop_gateway()?;
    let endpoint = nodes[1].clone();
    let blocks = std::thread::spawn(move || -> Result {
        let mut client = Client::connect(&endpoint)?;
        let _ = client.simple("PREPARE TRANSACTION 'tutti_test_0_1_1'; SELECT pg_sleep(20)", b"");
        Ok(())
    });
    std::thread::sleep(Duration::from_millis(300));
    let mut recoverer = tutti_cluster::recovery::Recoverer::new(&config)?;
    // As the next gateway would, whose number is made of the next draw and of chance.
    let settled = runtime.block_on(recoverer.settle_in_doubt(((drawn + 1) << 31) + 1));
    ensure!(settled.is_ok(), "{settled:?}");
    let left = second.value("SELECT string_agg(gid, ' ' ORDER BY gid) FROM pg_prepared_xacts")?;
    let mut expected = left_alone.to_vec();
    expected.sort();
    assert_eq!(left, expected.join(" "));
    for gid in left_alone {
        second.query(&format!("ROLLBACK PREPARED '{gid}'"))?;
    }
    second.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'PREPARE TR%'",
    )?;
    let _ = blocks.join();
    Ok(())
}

#[test]
fn records_go_when_everybody_has_applied_them() -> Result {
    let cluster = TestCluster::start_on(servers::durable(2)?)?;
    let (gateway, nodes) = (cluster.endpoint(), cluster.nodes());
    make_accounts(&gateway)?;
    let (from, to) = accounts_on_two_nodes(&nodes)?;
    let mut client = Client::connect(&gateway)?;
    for number in 1..=20 {
        assert_eq!(transfer(&mut client, number, from, to), Believed::Acknowledged);
    }
    eventually("no record is left", || {
        for node in &nodes {
            let left = Client::connect(node)?.value("SELECT count(*) FROM tutti.decision")?;
            ensure!(left == "0", "{left} records");
        }
        Ok(())
    })
}

#[test]
fn a_watch_that_is_ended_is_replaced_and_the_node_opened_again() -> Result {
    let cluster = TestCluster::start_on(servers::durable(2)?)?;
    let (gateway, nodes) = (cluster.endpoint(), cluster.nodes());
    make_accounts(&gateway)?;
    let mut client = Client::connect(&gateway)?;
    for _ in 0..5 {
        for node in &nodes {
            let ended = Client::connect(node)?.value(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE application_name LIKE 'tutti watch%'",
            )?;
            ensure!(ended != "0", "nobody watches port {}", node.port);
        }
        // Waits until the nodes are open.
        client.value("SELECT sum(balance) FROM account")?;
        eventually("both nodes are watched again", || {
            for node in &nodes {
                let count = Client::connect(node)?.value(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tutti watch%'",
                )?;
                ensure!(count == "1", "{count} watches");
            }
            Ok(())
        })?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
