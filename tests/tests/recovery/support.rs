//! A cluster for one test, and what tests do to it.
//!
//! Owns: connections to the nodes past the gateway; accounts, transfers between them, what their
//! client believes, and what must hold when all has come to rest.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tutti_embed::Cluster;
use tutti_gateway::{Config, init};
use tutti_link::{Credentials, NodeConnection};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::{gateway, servers};
use tutti_txn::gid::Gid;

pub type Result<T = (), E = anyhow::Error> = std::result::Result<T, E>;

/// Servers with the catalog on them, and no gateway.
pub async fn initialised(nodes: u16) -> Result<(Cluster, Config)> {
    let servers = servers::start(nodes)?;
    let config = gateway::config(&servers, "127.0.0.1:0".to_owned());
    init(&config, false).await?;
    Ok((servers, config))
}

/// A connection to a node; node 1 has number 1.
pub async fn open(config: &Config, node: u16) -> Result<NodeConnection> {
    let place = &config.nodes[usize::from(node) - 1];
    Ok(NodeConnection::open(
        &tutti_link::Endpoint::new(place, "postgres"),
        "postgres",
        &Credentials::Nothing,
        &[],
    )
    .await?)
}

/// The first value of an answer.
pub async fn text(connection: &mut NodeConnection, sql: &str) -> Result<String> {
    Ok(connection.rows(sql).await?.text(0, 0).unwrap_or("NULL").to_owned())
}

/// A transaction of the cluster `test`.
pub fn gid(incarnation: u64, number: u64, anchor: u16) -> Gid {
    format!("tutti_test_{incarnation}_{number}_{anchor}").parse().expect("one of ours")
}

pub const ACCOUNTS: i64 = 40;
pub const OPENING_BALANCE: i64 = 1_000;
/// How long everything may take to come to rest.
pub const REST_LIMIT: Duration = Duration::from_secs(60);

/// What a client may believe about a transfer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Believed {
    Acknowledged,
    Refused,
    /// 08007, or nothing at all; with the gid to ask about if there was one.
    Unknown(Option<String>),
}

/// Makes accounts and entries, one entry per transfer and account.
pub fn make_accounts(gateway: &Endpoint) -> Result {
    let mut client = Client::connect(gateway)?;
    for statement in [
        "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE entry (account bigint, transfer bigint, PRIMARY KEY (account, transfer)) \
         DISTRIBUTE BY HASH (account)",
    ] {
        client.query(statement)?;
    }
    client.query(&format!(
        "INSERT INTO account SELECT n, {OPENING_BALANCE} FROM generate_series(1, {ACCOUNTS}) n"
    ))?;
    Ok(())
}

/// One account on each of the first two nodes.
pub fn accounts_on_two_nodes(nodes: &[Endpoint]) -> Result<(i64, i64)> {
    let one_of = |node: &Endpoint| -> Result<i64> {
        Ok(Client::connect(node)?.value("SELECT min(id) FROM account")?.parse()?)
    };
    Ok((one_of(&nodes[0])?, one_of(&nodes[1])?))
}

/// Moves 1 from one account to another. Refused: the session may be in a failed transaction.
pub fn transfer(client: &mut Client, number: i64, from: i64, to: i64) -> Believed {
    let work = [
        "BEGIN".to_owned(),
        format!("UPDATE account SET balance = balance - 1 WHERE id = {from}"),
        format!("UPDATE account SET balance = balance + 1 WHERE id = {to}"),
        format!("INSERT INTO entry VALUES ({from}, {number}), ({to}, {number})"),
    ];
    for statement in &work {
        match client.simple(statement, &[]) {
            Ok(answer) if answer.error().is_none() => (),
            // Nobody asked for COMMIT, so nobody may have done it.
            Ok(_) | Err(_) => return Believed::Refused,
        }
    }
    let Ok(answer) = client.simple("COMMIT", &[]) else { return Believed::Unknown(None) };
    match answer.error() {
        None => Believed::Acknowledged,
        Some(error) if error.sqlstate() == "08007" => {
            let hint = error.get(b'H').unwrap_or_default();
            Believed::Unknown(hint.split('\'').nth(1).map(str::to_owned))
        }
        Some(_) => Believed::Refused,
    }
}

/// Tries until it works, at most [`REST_LIMIT`].
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + REST_LIMIT;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if deadline < Instant::now() => {
                return Err(error.context(format!("not in {REST_LIMIT:?}: {what}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Waits until nothing is prepared on any node.
pub fn come_to_rest(nodes: &[Endpoint]) -> Result {
    eventually("no prepared transaction is left", || {
        for node in nodes {
            let listed = Client::connect(node)?
                .value("SELECT coalesce(string_agg(gid, ' '), '') FROM pg_prepared_xacts")?;
            ensure!(listed.is_empty(), "prepared on port {}: {listed}", node.port);
        }
        Ok(())
    })
}

/// Looks at nodes that have come to rest: each transfer is there whole or not at all, as its client
/// believes, and so is the money. Through the gateway the same is seen, and what was unknown is
/// told.
pub fn check(nodes: &[Endpoint], gateway: &Endpoint, asked: &BTreeMap<i64, Believed>) -> Result {
    let mut entries: BTreeMap<i64, usize> = BTreeMap::new();
    let mut total = 0;
    for node in nodes {
        let mut node = Client::connect(node)?;
        total += node.value("SELECT coalesce(sum(balance), 0) FROM account")?.parse::<i64>()?;
        for row in node.query("SELECT transfer FROM entry")? {
            *entries.entry(row[0].as_deref().unwrap_or_default().parse()?).or_default() += 1;
        }
    }
    ensure!(total == ACCOUNTS * OPENING_BALANCE, "the total is {total}");
    let seen = eventually("the gateway reads all nodes", || {
        Client::connect(gateway)?.value("SELECT sum(balance) FROM account")
    })?;
    ensure!(seen == total.to_string(), "the gateway sees a total of {seen}");
    for (number, count) in &entries {
        ensure!(*count == 2, "transfer {number} is half done");
        ensure!(asked.contains_key(number), "nobody asked for transfer {number}");
    }
    let mut client = Client::connect(gateway)?;
    for (number, believed) in asked {
        let is_there = entries.contains_key(number);
        match believed {
            Believed::Acknowledged => ensure!(is_there, "{number} was acknowledged and is gone"),
            Believed::Refused => ensure!(!is_there, "{number} was refused and is there"),
            Believed::Unknown(None) => (),
            Believed::Unknown(Some(gid)) => {
                let told = client
                    .value(&format!("SELECT tutti_outcome('{gid}')"))
                    .with_context(|| format!("ask for {gid}"))?;
                let expected = if is_there { "committed" } else { "aborted" };
                ensure!(told == expected, "{gid}, transfer {number}: told {told}, is {expected}");
            }
        }
    }
    Ok(())
}
