//! Requests that clients send again until they have an answer, while gateways are killed: each is executed once, and every
//! attempt that is told of a result is told of the same.
//!
//! Owns: the load, the kills and what must hold afterwards. A client moves money between accounts on different nodes, or
//! on one, and notes the attempt in a ledger that would take a second note of it as well. Whatever it is told but a result, it
//! asks again, with the next number, wherever a gateway serves by then; now and then also when it was told of its
//! commit.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_tests::answer::Answer;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::environment;
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::servers;

use crate::kill9::count_prepared;

/// How many times to kill; more finds more.
const ROUNDS: &str = "TUTTI_REQUESTS_ROUNDS";
const ROUNDS_DEFAULT: u64 = 10;
/// Where the randomness starts; printed, so that a run can be repeated as far as timing allows.
const SEED: &str = "TUTTI_REQUESTS_SEED";
const NODES: u16 = 3;
const CLIENTS: u64 = 4;
const ACCOUNTS: i64 = 40;
const OPENING_BALANCE: i64 = 1_000;
const DISK_FULL: &str = "53100";
/// What no transfer changes.
pub(crate) const TOTAL: i64 = ACCOUNTS * OPENING_BALANCE;
/// Reads it.
pub(crate) const SUM: &str = "SELECT sum(balance) FROM account";
/// Attempts after which something other than a fault keeps a request from its end.
const ATTEMPTS_MAX: u32 = 2_000;

/// What one request was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Results, by whichever attempt.
    results: Vec<String>,
    attempts: u32,
    /// The last error.
    refused: String,
    /// An attempt was told that another has committed.
    was_told_by_another: bool,
}

/// What all clients share.
pub(crate) struct Load<'a> {
    /// Where there are gateways, as far as anybody knows.
    pub(crate) gateways: &'a Mutex<Vec<Endpoint>>,
    pub(crate) stop: &'a AtomicBool,
    pub(crate) next: &'a AtomicI64,
}

/// A session of any of these gateways, if one can be had.
pub(crate) fn connect(gateways: &Mutex<Vec<Endpoint>>, rng: &mut StdRng) -> Option<Client> {
    let all = gateways.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Client::connect(&all[rng.random_range(0..all.len())]).ok()
}

/// Accounts and a ledger.
pub(crate) fn create_tables(gateway: &Endpoint) -> Result<()> {
    Client::connect(gateway)?.query(&format!(
        "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL) DISTRIBUTE BY HASH (id);
         INSERT INTO account SELECT g, {OPENING_BALANCE} FROM generate_series(1, {ACCOUNTS}) g;
         CREATE TABLE ledger (family text, result text) DISTRIBUTE BY HASH (family)"
    ))?;
    Ok(())
}

#[test]
fn a_request_that_is_sent_again_is_executed_once() -> Result<()> {
    sent_again(1)
}

/// The same where each attempt goes to any of three gateways, of which any is killed, or stopped for longer than the
/// lease.
#[test]
fn a_request_that_is_sent_again_through_another_gateway_is_executed_once() -> Result<()> {
    sent_again(3)
}

fn sent_again(count: usize) -> Result<()> {
    let rounds = environment::number(ROUNDS, ROUNDS_DEFAULT);
    let seed = environment::number(SEED, rand::random());
    println!("{SEED}={seed} {ROUNDS}={rounds}");
    let mut rng = StdRng::seed_from_u64(seed);
    let servers = servers::durable(NODES)?;
    process::init(&servers)?;
    let mut gateways = vec![GatewayProcess::start(&servers)?];
    create_tables(&gateways[0].endpoint())?;
    while gateways.len() < count {
        gateways.push(GatewayProcess::start(&servers)?);
    }
    let endpoints = |all: &[GatewayProcess]| all.iter().map(GatewayProcess::endpoint).collect();
    let known = Mutex::new(endpoints(&gateways));
    let (stop, next) = (AtomicBool::new(false), AtomicI64::new(1));
    let load = Load { gateways: &known, stop: &stop, next: &next };
    let mut told = BTreeMap::new();
    thread::scope(|scope| -> Result<()> {
        let load = &load;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || run_client(load, seed.wrapping_add(client))))
            .collect();
        let troubled = (0..rounds).try_for_each(|round| {
            thread::sleep(Duration::from_millis(rng.random_range(150..900)));
            let one = gateways.remove(rng.random_range(0..count));
            // (One alone that is stopped is only slow.)
            if count > 1 && round % 3 == 2 {
                one.pause()?;
                thread::sleep(Duration::from_millis(rng.random_range(3_000..9_000)));
                one.resume()?;
                gateways.push(one);
            } else {
                one.kill9()?;
                gateways.push(GatewayProcess::start(&servers)?);
            }
            *known.lock().unwrap_or_else(PoisonError::into_inner) = endpoints(&gateways);
            Ok::<_, anyhow::Error>(())
        });
        thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            told.extend(client.join().expect("a client does not panic")?);
        }
        troubled?;
        let last = gateways.last().context("one serves")?;
        check(&mut Client::connect(&last.endpoint())?, &told)
            .with_context(|| format!("{SEED}={seed}\n{}", last.log()))
    })?;
    ensure!(count_prepared(&servers)? == 0);
    let again = told.values().filter(|it| 1 < it.attempts).count();
    let by_another = told.values().filter(|it| it.was_told_by_another).count();
    println!(
        "{} requests, {again} of them in several attempts, {by_another} told of an earlier one's result",
        told.len()
    );
    // A test in which nobody asked twice proves nothing.
    ensure!(0 < by_another, "no attempt was told of an earlier one's result");
    Ok(())
}

/// One client: requests until it is told to stop, each to its end.
pub(crate) fn run_client(load: &Load<'_>, seed: u64) -> Result<BTreeMap<String, Told>> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut all = BTreeMap::new();
    let mut client = None;
    while !load.stop.load(Ordering::Relaxed) {
        let number = load.next.fetch_add(1, Ordering::Relaxed);
        let from = rng.random_range(1..=ACCOUNTS);
        let to = match rng.random_bool(0.2) {
            true => from,
            false => 1 + (from + rng.random_range(1..ACCOUNTS)) % ACCOUNTS,
        };
        // Some are kept where their first row is.
        let family = match rng.random_bool(0.3) {
            true => format!("{{{from}}}/{number}"),
            false => format!("request {number}"),
        };
        let mut told = Told::default();
        while told.results.is_empty() || rng.random_bool(0.15) {
            ensure!(told.attempts < ATTEMPTS_MAX, "{family}: {told:?}");
            told.attempts += 1;
            let Some(session) = client.take().or_else(|| connect(load.gateways, &mut rng)) else {
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            client = attempt(session, &family, (from, to), &mut told)?;
            if told.refused.starts_with(DISK_FULL) {
                thread::sleep(Duration::from_millis(100));
            }
        }
        all.insert(family, told);
    }
    Ok(all)
}

/// One attempt. The session, if it can be used again.
fn attempt(
    mut client: Client,
    family: &str,
    (from, to): (i64, i64),
    told: &mut Told,
) -> Result<Option<Client>> {
    let number = told.attempts;
    let Ok(begun) = client.simple(&format!("BEGIN_MIP '{family}', {number}"), b"") else {
        return Ok(None);
    };
    if begun.error().is_some() {
        return goes_on(client, family, &begun, told);
    }
    match &begun.texts()[..] {
        [row] if row[0].as_deref() == Some("committed") => {
            told.was_told_by_another = true;
            told.results.push(row[2].clone().context("a result was to be remembered")?);
            return Ok(client.simple("ROLLBACK", b"").is_ok().then_some(client));
        }
        [row] if row[0].as_deref() == Some("begun") => (),
        rows => bail!("{family}: {rows:?}"),
    }
    let result = format!("attempt {number}");
    let statements = [
        format!("UPDATE account SET balance = balance - 1 WHERE id = {from}"),
        format!("UPDATE account SET balance = balance + 1 WHERE id = {to}"),
        format!("INSERT INTO ledger VALUES ('{family}', '{result}')"),
        format!("SELECT tutti_remember('{result}')"),
        "COMMIT".to_owned(),
    ];
    for sql in &statements {
        let Ok(answer) = client.simple(sql, b"") else { return Ok(None) };
        if answer.error().is_some() {
            return goes_on(client, family, &answer, told);
        }
    }
    told.results.push(result);
    Ok(Some(client))
}

/// After an error: a session that can be used again. Errors that no retry helps are the test's.
fn goes_on(
    mut client: Client,
    family: &str,
    answer: &Answer,
    told: &mut Told,
) -> Result<Option<Client>> {
    const RETRIED: [&str; 9] =
        ["40001", "40P01", "40000", "08006", "08007", "57P01", "57P03", "08001", DISK_FULL];
    let error = answer.error().context("there is one")?;
    let is_retried = RETRIED.contains(&error.sqlstate()) || error.sqlstate().starts_with("08");
    told.refused = format!("{} {}", error.sqlstate(), error.message());
    ensure!(is_retried, "{family}: {}", told.refused);
    Ok(client.simple("ROLLBACK", b"").is_ok().then_some(client))
}

pub(crate) fn check(client: &mut Client, told: &BTreeMap<String, Told>) -> Result<()> {
    let sum = client.value(SUM)?;
    ensure!(sum == TOTAL.to_string(), "the sum is {sum}");
    let mut noted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in client.query("SELECT family, result FROM ledger")? {
        let [Some(family), Some(result)] = &row[..] else { bail!("{row:?}") };
        noted.entry(family.clone()).or_default().push(result.clone());
    }
    for (family, told) in told {
        let noted = noted.remove(family).unwrap_or_default();
        ensure!(
            noted.len() == 1,
            "{family} was executed {} times: {noted:?} {told:?}",
            noted.len()
        );
        ensure!(told.results.iter().all(|it| *it == noted[0]), "{family}: {noted:?}, {told:?}");
    }
    ensure!(noted.is_empty(), "nobody has asked for these: {noted:?}");
    Ok(())
}
