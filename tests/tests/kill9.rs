//! SIGKILL of the gateway in the middle of global commits, many times: nothing is half done.
//!
//! Owns: the load, the kill and what must hold afterwards. Clients move money between accounts on
//! different nodes (each move also writes two entries and one row of a replicated table) and insert
//! batches of rows that land on every node. After each kill the gateway starts again on the same nodes; then
//! a move is there whole or not at all, an acknowledged one is there, the total is what it was, and
//! no node holds a prepared transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_embed::Cluster;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::servers;

/// How many times to kill; more finds more.
const ROUNDS: &str = "TUTTI_KILL9_ROUNDS";
const ROUNDS_DEFAULT: u64 = 15;
/// Where the randomness starts; printed, so that a run can be repeated as far as timing allows.
const SEED: &str = "TUTTI_KILL9_SEED";
const NODES: u16 = 3;
const MOVERS: u64 = 4;
const BATCHERS: u64 = 2;
const ACCOUNTS: i64 = 60;
const OPENING_BALANCE: i64 = 1_000;
/// Rows per batch: enough that every node gets some.
const BATCH_ROWS: i64 = 12;

/// What a client may believe about something it asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Believed {
    Acknowledged,
    Refused,
    Unknown,
}

/// Everything that was asked for, by number.
#[derive(Debug, Default)]
struct Asked {
    moves: BTreeMap<u64, Believed>,
    batches: BTreeMap<u64, Believed>,
}

/// How what clients believed turned out.
#[derive(Debug, Default)]
struct Tally {
    acknowledged: usize,
    unknown_done: usize,
    unknown_absent: usize,
}

fn number_from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn a_killed_gateway_leaves_nothing_half_done() -> Result<()> {
    let rounds = number_from_environment(ROUNDS, ROUNDS_DEFAULT);
    let seed = number_from_environment(SEED, rand::random());
    println!("{SEED}={seed} {ROUNDS}={rounds}");
    let mut rng = StdRng::seed_from_u64(seed);

    let servers = servers::start(NODES)?;
    process::init(&servers)?;
    make_tables(&GatewayProcess::start(&servers)?.endpoint())?;
    let mut asked = Asked::default();
    let mut left_prepared = 0;
    let mut tally = Tally::default();
    let next = AtomicU64::new(1);
    for round in 1..=rounds {
        let gateway = GatewayProcess::start(&servers)?;
        let load_ms = rng.random_range(80..500);
        let clients_seed = rng.random();
        let found = run_and_kill(gateway, Duration::from_millis(load_ms), &next, clients_seed)?;
        asked.moves.extend(found.moves);
        asked.batches.extend(found.batches);
        left_prepared += count_prepared(&servers)?;

        // A gateway that answers has settled what its predecessor left.
        let gateway = GatewayProcess::start(&servers)?;
        tally = check(&servers, &gateway.endpoint(), &asked)
            .with_context(|| format!("round {round}, {SEED}={seed}\n{}", gateway.log()))?;
    }
    println!("{left_prepared} prepared transactions were left by kills; {tally:?}");
    // A test whose kills never hit a commit proves nothing about commits.
    ensure!(tally.acknowledged > 0, "no move was ever acknowledged");
    ensure!(left_prepared > 0, "no kill ever left a prepared transaction behind");
    Ok(())
}

fn make_tables(gateway: &Endpoint) -> Result<()> {
    let mut client = Client::connect(gateway)?;
    let statements = [
        "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE entry (account bigint, move bigint, amount bigint, PRIMARY KEY (account, move)) \
         DISTRIBUTE BY HASH (account)",
        "CREATE TABLE journal (move bigint PRIMARY KEY) DISTRIBUTE BY REPLICATED",
        "CREATE TABLE marker (slot bigint, batch bigint, PRIMARY KEY (slot, batch)) \
         DISTRIBUTE BY HASH (slot)",
    ];
    for statement in statements {
        client.query(statement)?;
    }
    client.query(&format!(
        "INSERT INTO account SELECT n, {OPENING_BALANCE} FROM generate_series(1, {ACCOUNTS}) n"
    ))?;
    Ok(())
}

/// Runs clients for a while, kills the gateway under them, and gives what they asked for.
fn run_and_kill(
    gateway: GatewayProcess,
    load: Duration,
    next: &AtomicU64,
    seed: u64,
) -> Result<Asked> {
    let endpoint = gateway.endpoint();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let movers: Vec<_> = (0..MOVERS)
            .map(|n| {
                let (endpoint, stop) = (&endpoint, &stop);
                scope.spawn(move || run_mover(endpoint, next, stop, seed.wrapping_add(n)))
            })
            .collect();
        let batchers: Vec<_> =
            (0..BATCHERS).map(|_| scope.spawn(|| run_batcher(&endpoint, next, &stop))).collect();
        thread::sleep(load);
        let killed = gateway.kill9();
        stop.store(true, Ordering::Relaxed);
        let mut asked = Asked::default();
        for mover in movers {
            asked.moves.extend(mover.join().expect("a mover panicked")?);
        }
        for batcher in batchers {
            asked.batches.extend(batcher.join().expect("a batcher panicked")?);
        }
        killed?;
        Ok(asked)
    })
}

fn run_mover(
    endpoint: &Endpoint,
    next: &AtomicU64,
    stop: &AtomicBool,
    seed: u64,
) -> Result<BTreeMap<u64, Believed>> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut asked = BTreeMap::new();
    let Ok(mut client) = Client::connect(endpoint) else { return Ok(asked) };
    while !stop.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        // In order of the accounts, so that movers do not deadlock.
        let from = rng.random_range(1..ACCOUNTS);
        let to = rng.random_range(from + 1..=ACCOUNTS);
        let amount = rng.random_range(-20..=20_i64);
        let believed = move_money(&mut client, number, from, to, amount);
        asked.insert(number, believed);
        match believed {
            Believed::Acknowledged => (),
            Believed::Refused => {
                if client.query("ROLLBACK").is_err() {
                    break;
                }
            }
            Believed::Unknown => break,
        }
    }
    Ok(asked)
}

fn move_money(client: &mut Client, number: u64, from: i64, to: i64, amount: i64) -> Believed {
    let work = [
        "BEGIN".to_owned(),
        format!("UPDATE account SET balance = balance - {amount} WHERE id = {from}"),
        format!("UPDATE account SET balance = balance + {amount} WHERE id = {to}"),
        format!(
            "INSERT INTO entry VALUES ({from}, {number}, -{amount}::bigint), ({to}, {number}, {amount})"
        ),
        format!("INSERT INTO journal VALUES ({number})"),
    ];
    for statement in &work {
        match client.simple(statement, &[]) {
            Ok(answer) if answer.error().is_none() => (),
            Ok(_) => return Believed::Refused,
            // Nobody asked for COMMIT, so nobody may have done it.
            Err(_) => return Believed::Refused,
        }
    }
    believed(client, "COMMIT")
}

fn run_batcher(
    endpoint: &Endpoint,
    next: &AtomicU64,
    stop: &AtomicBool,
) -> Result<BTreeMap<u64, Believed>> {
    let mut asked = BTreeMap::new();
    let Ok(mut client) = Client::connect(endpoint) else { return Ok(asked) };
    while !stop.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let rows: Vec<String> =
            (1..=BATCH_ROWS).map(|slot| format!("({slot}, {number})")).collect();
        let outcome =
            believed(&mut client, &format!("INSERT INTO marker VALUES {}", rows.join(", ")));
        asked.insert(number, outcome);
        if outcome == Believed::Unknown {
            break;
        }
    }
    Ok(asked)
}

/// Runs the statement that decides.
fn believed(client: &mut Client, statement: &str) -> Believed {
    match client.simple(statement, &[]) {
        // 08007: transaction resolution unknown.
        Ok(answer) => match answer.error().map(|error| error.sqlstate().to_owned()) {
            None => Believed::Acknowledged,
            Some(sqlstate) if sqlstate == "08007" => Believed::Unknown,
            Some(_) => Believed::Refused,
        },
        Err(_) => Believed::Unknown,
    }
}

fn count_prepared(servers: &Cluster) -> Result<u64> {
    let mut count = 0;
    for index in 0..servers.servers().len() {
        let mut node = Client::connect(&servers::endpoint(servers, index))?;
        count += node.value("SELECT count(*) FROM pg_prepared_xacts")?.parse::<u64>()?;
    }
    Ok(count)
}

/// All rows of a query over all nodes, as integers, with the node they are on.
fn rows_of_nodes(servers: &Cluster, sql: &str) -> Result<Vec<(usize, Vec<i64>)>> {
    let mut all = Vec::new();
    for index in 0..servers.servers().len() {
        let mut node = Client::connect(&servers::endpoint(servers, index))?;
        for row in node.query(sql)? {
            let numbers = row.iter().map(|value| value.as_deref().unwrap_or("0").parse());
            all.push((index, numbers.collect::<Result<Vec<i64>, _>>()?));
        }
    }
    Ok(all)
}

/// Looks at the nodes themselves, and at the whole through the gateway.
fn check(servers: &Cluster, gateway: &Endpoint, asked: &Asked) -> Result<Tally> {
    let left = count_prepared(servers)?;
    ensure!(left == 0, "{left} prepared transactions are left");

    // The money: per account, in total, and as the gateway sees it.
    let balances = rows_of_nodes(servers, "SELECT id, balance FROM account")?;
    ensure!(balances.len() as i64 == ACCOUNTS, "{} accounts", balances.len());
    let total: i64 = balances.iter().map(|(_, row)| row[1]).sum();
    ensure!(total == ACCOUNTS * OPENING_BALANCE, "the total is {total}");
    let entries = rows_of_nodes(servers, "SELECT account, move, amount FROM entry")?;
    for (_, account) in &balances {
        let moved: i64 =
            entries.iter().filter(|(_, e)| e[0] == account[0]).map(|(_, e)| e[2]).sum();
        ensure!(
            account[1] == OPENING_BALANCE + moved,
            "account {} has {}, its entries say {}",
            account[0],
            account[1],
            OPENING_BALANCE + moved
        );
    }
    let mut client = Client::connect(gateway)?;
    let seen_total = client.value("SELECT sum(balance) FROM account")?;
    ensure!(seen_total == total.to_string(), "the gateway sees a total of {seen_total}");

    // Each move: two entries and a row of the journal on every node, or none of them.
    let journal = rows_of_nodes(servers, "SELECT move FROM journal")?;
    let mut parts: BTreeMap<i64, (usize, BTreeSet<usize>)> = BTreeMap::new();
    for (_, entry) in &entries {
        parts.entry(entry[1]).or_default().0 += 1;
    }
    for (node, row) in &journal {
        parts.entry(row[0]).or_default().1.insert(*node);
    }
    for (number, (entry_count, nodes)) in &parts {
        ensure!(
            *entry_count == 2 && nodes.len() == usize::from(NODES),
            "move {number} is half done: {entry_count} entries, journal on nodes {nodes:?}"
        );
    }
    let done: BTreeSet<i64> = parts.into_keys().collect();
    let mut tally = Tally::default();
    compare("move", &asked.moves, &done, &mut tally)?;

    let batches = rows_of_nodes(servers, "SELECT batch, count(*) FROM marker GROUP BY batch")?;
    let mut rows_of_batch: BTreeMap<i64, i64> = BTreeMap::new();
    for (_, row) in &batches {
        *rows_of_batch.entry(row[0]).or_default() += row[1];
    }
    for (number, rows) in &rows_of_batch {
        ensure!(*rows == BATCH_ROWS, "batch {number} is half done: {rows} rows");
    }
    compare("batch", &asked.batches, &rows_of_batch.into_keys().collect(), &mut tally)?;
    Ok(tally)
}

/// What was believed against what is there.
fn compare(
    what: &str,
    asked: &BTreeMap<u64, Believed>,
    done: &BTreeSet<i64>,
    tally: &mut Tally,
) -> Result<()> {
    for (number, believed) in asked {
        let is_there = done.contains(&i64::try_from(*number)?);
        match (believed, is_there) {
            (Believed::Acknowledged, true) => tally.acknowledged += 1,
            (Believed::Acknowledged, false) => {
                anyhow::bail!("{what} {number} was acknowledged and is gone")
            }
            (Believed::Refused, true) => {
                anyhow::bail!("{what} {number} was refused and is there")
            }
            (Believed::Refused, false) => (),
            (Believed::Unknown, true) => tally.unknown_done += 1,
            (Believed::Unknown, false) => tally.unknown_absent += 1,
        }
    }
    let strangers = done.iter().filter(|number| {
        u64::try_from(**number).map_or(true, |number| !asked.contains_key(&number))
    });
    ensure!(strangers.count() == 0, "there is a {what} that nobody asked for");
    Ok(())
}
