//! What the client was told is what happened: whatever a transaction carries, at whatever step of its
//! commit whatever process is struck.
//!
//! Owns: a generator over steps, victims and cargo, and the one rule that all must keep: COMMIT, and it is
//! there; an error, and nothing of it is there; 08007 or silence, and it is there whole or not at all, as
//! `tutti_outcome` says. Also what a session has of it (settings, temporary tables, channels), what others
//! are notified of, and which schema the gateway plans by.
//!
//! `TUTTI_TOLD_CASES` more cases find more; `TUTTI_TOLD_SEED` repeats a run as far as timing allows.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_tests::client::Client;
use tutti_tests::process::GatewayProcess;
use tutti_tests::{agreement, conversation, environment};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frontend;

use super::proxy::{Proxy, Rule, Strike, When};
use super::struck::{Struck, locked};
use super::support::*;

const CASES: &str = "TUTTI_TOLD_CASES";
const SEED: &str = "TUTTI_TOLD_SEED";
const NODES: usize = 3;
/// How long a session may say nothing to COMMIT.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// The messages of a commit at which a process is struck.
const PREPARE: &str = "PREPARE TRANSACTION";
const DECIDE: &str = "INSERT INTO tutti.decision";
const APPLY: &str = "COMMIT PREPARED";
/// As part of the anchor's own transaction.
const RECORD: &str = "tutti.record_decision";
/// The bare COMMIT of a lone writer, or of an anchor: its text ends with the message.
const COMMIT: &str = "\0\0\0\x0bCOMMIT\0";
/// The catalog is read after a schema change.
const READ_CATALOG: &str = "tutti.";

/// Who is struck, besides the connection that the message is on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Victim {
    Connection,
    /// All connections of the gateway's to the node, ended by the node.
    Backends,
    Node,
    Gateway,
}

const VICTIMS: [Victim; 4] = [Victim::Connection, Victim::Backends, Victim::Node, Victim::Gateway];

/// What a transaction does besides writing a row on each node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cargo {
    Nothing,
    /// Only one row, on one node.
    OneRow,
    Replicated,
    Home,
    Set,
    SetLocal,
    Temporary,
    Create,
    Alter,
    Placement,
    Notify,
    Listen,
}

const CARGO: [Cargo; 12] = [
    Cargo::Nothing,
    Cargo::OneRow,
    Cargo::Replicated,
    Cargo::Home,
    Cargo::Set,
    Cargo::SetLocal,
    Cargo::Temporary,
    Cargo::Create,
    Cargo::Alter,
    Cargo::Placement,
    Cargo::Notify,
    Cargo::Listen,
];

impl Cargo {
    /// Steps that its commit has.
    fn steps(self) -> &'static [&'static str] {
        match self {
            Self::OneRow => &[COMMIT],
            // They cannot be prepared, so their node decides by its own COMMIT.
            Self::Temporary | Self::Notify | Self::Listen => &[PREPARE, RECORD, COMMIT, APPLY],
            Self::Create | Self::Alter | Self::Placement => &[PREPARE, DECIDE, APPLY, READ_CATALOG],
            _ => &[PREPARE, DECIDE, APPLY],
        }
    }
}

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

#[derive(Clone, Copy, Debug)]
struct Case {
    number: usize,
    step: &'static str,
    when: When,
    /// `None`: whichever gets the message first.
    node: Option<usize>,
    victim: Victim,
    cargo: Cargo,
    level: &'static str,
    /// When a node that was killed comes back.
    away: Duration,
}

impl Case {
    /// What the transaction does, and before it, what it needs.
    fn statements(&self, keys: &[i64]) -> (Vec<String>, Vec<String>) {
        let n = self.number;
        let rows = |keys: &[i64]| {
            let insert = |key: &i64| format!("INSERT INTO mark VALUES ({key}, {n})");
            keys.iter().map(insert).collect::<Vec<_>>()
        };
        let mut before = Vec::new();
        let mut work = vec![format!("BEGIN ISOLATION LEVEL {}", self.level)];
        work.extend(match self.cargo {
            Cargo::OneRow => rows(&keys[..1]),
            _ => rows(keys),
        });
        work.extend(match self.cargo {
            Cargo::Nothing | Cargo::OneRow => None,
            Cargo::Replicated => Some(format!("INSERT INTO log VALUES ({n})")),
            Cargo::Home => Some(format!("INSERT INTO at_home VALUES ({n})")),
            Cargo::Set => Some("SET search_path = public, pg_catalog".to_owned()),
            Cargo::SetLocal => Some("SET LOCAL search_path = public, pg_catalog".to_owned()),
            Cargo::Temporary => Some(format!("CREATE TEMPORARY TABLE temporary_{n} (x int)")),
            Cargo::Create => {
                Some(format!("CREATE TABLE new_{n} (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)"))
            }
            Cargo::Alter => Some(format!("ALTER TABLE wide ADD COLUMN c_{n} int DEFAULT 7")),
            Cargo::Placement => {
                before.push(format!(
                    "CREATE TABLE spread_{n} (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED"
                ));
                before
                    .push(format!("INSERT INTO spread_{n} SELECT g FROM generate_series(1, 30) g"));
                Some(format!("SELECT tutti_distribute('spread_{n}', 'id')"))
            }
            Cargo::Notify => Some(format!("NOTIFY news, '{n}'")),
            Cargo::Listen => Some(format!("LISTEN channel_{n}")),
        });
        (before, work)
    }
}

/// What a client may believe.
#[derive(Clone, Debug)]
enum Told {
    Committed,
    /// An error, and what it said.
    Refused(String),
    Unknown(Option<String>),
}

struct Place {
    struck: Struck,
    /// One key per node, and so on: keys of node i are at i.
    keys: Vec<Vec<i64>>,
}

impl Place {
    fn start() -> Result<Self> {
        let struck = Struck::start(u16::try_from(NODES)?)?;
        let mut place = Self { struck, keys: Vec::new() };
        let mut client = place.client()?;
        for statement in [
            "CREATE TABLE mark (id int, number int, PRIMARY KEY (id, number)) DISTRIBUTE BY HASH (id)",
            "CREATE TABLE log (number int PRIMARY KEY) DISTRIBUTE BY REPLICATED",
            "CREATE TABLE at_home (number int PRIMARY KEY) DISTRIBUTE BY HOME",
            "CREATE TABLE wide (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
            "INSERT INTO wide SELECT g FROM generate_series(1, 30) g",
        ] {
            client.query(statement)?;
        }
        for node in place.struck.nodes() {
            let rows = Client::connect(&node)?.query("SELECT id FROM wide ORDER BY id")?;
            let id = |row: &Vec<Option<String>>| Ok(row[0].as_deref().unwrap_or("0").parse()?);
            place.keys.push(rows.iter().map(id).collect::<Result<Vec<i64>>>()?);
        }
        Ok(place)
    }

    /// A session that works.
    fn client(&self) -> Result<Client> {
        eventually("a session works", || {
            let mut client = Client::connect(&self.struck.endpoint()?)?;
            client.value("SELECT 1")?;
            Ok(client)
        })
    }

    fn strike(&self, case: Case, index: usize) -> Strike {
        // A proxy's threads keep the strike beyond the test: servers and gateway must end with it.
        let (servers, gateway) =
            (Arc::downgrade(&self.struck.servers), Arc::downgrade(&self.struck.gateway));
        let node = self.struck.nodes()[index].clone();
        Arc::new(move || match case.victim {
            Victim::Connection => (),
            Victim::Backends => {
                let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                           WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
                let _ = Client::connect(&node).and_then(|mut node| node.query(end));
            }
            Victim::Node => {
                let Some(there) = servers.upgrade() else { return };
                let _ = locked(&there).server_mut(index).kill9();
                let servers = servers.clone();
                thread::spawn(move || {
                    thread::sleep(case.away);
                    if let Some(there) = servers.upgrade() {
                        let _ = locked(&there).server_mut(index).start();
                    }
                });
            }
            Victim::Gateway => {
                let killed = gateway.upgrade().and_then(|gateway| locked(&gateway).take());
                let _ = killed.map(GatewayProcess::kill9);
            }
        })
    }

    fn run(&self, case: Case) -> Result<bool> {
        let keys: Vec<i64> = self.keys.iter().map(|of| of[case.number % of.len()]).collect();
        let (before, work) = case.statements(&keys);
        let mut maker = self.client()?;
        for statement in &before {
            maker.query(statement)?;
        }
        let mut listener = self.client()?;
        listener.query("LISTEN news")?;
        // What a strike before has left may still cost a transaction or two.
        let mut client = eventually("the work before COMMIT is done", || {
            let mut client = self.client()?;
            for statement in &work {
                client.query(statement)?;
            }
            Ok(client)
        })?;
        let path = client.value("SELECT pg_catalog.current_setting('search_path')")?;
        let rule = Rule { text: case.step, when: case.when, then_away: false };
        let aimed = |index: usize| case.node.is_none_or(|node| node == index);
        for (index, proxy) in
            self.struck.proxies.iter().enumerate().filter(|(index, _)| aimed(*index))
        {
            proxy.set_with(rule, self.strike(case, index));
        }
        let told = commit(&mut client)?;
        // The kill may be noticed before the killer has returned.
        thread::sleep(Duration::from_millis(50));
        let has_struck = self.struck.proxies.iter().any(Proxy::has_cut);
        for proxy in &self.struck.proxies {
            proxy.set(None);
        }
        println!("{case:?}: {has_struck}, {told:?}");

        if has_struck && case.victim == Victim::Node {
            thread::sleep(case.away);
        }
        self.struck.revive()?;
        come_to_rest(&self.struck.nodes())?;
        let happened = self.happened(case, &keys)?;
        match &told {
            Told::Committed => ensure!(happened, "COMMIT was told, and it is not there"),
            Told::Refused(what) => ensure!(!happened, "{what} was told, and it is there"),
            Told::Unknown(None) => (),
            Told::Unknown(Some(gid)) => {
                let outcome = self.client()?.value(&format!("SELECT tutti_outcome('{gid}')"))?;
                let expected = if happened { "committed" } else { "aborted" };
                ensure!(outcome == expected, "{gid} is {expected}, and told to be {outcome}");
            }
        }
        self.look_at_session(case, client, &path, happened && matches!(told, Told::Committed))?;
        if case.cargo == Cargo::Notify {
            hears(&mut listener, case.number, happened)?;
        }
        Ok(has_struck)
    }

    /// Whether the transaction is there.
    ///
    /// Errors: it is there in part, or seen otherwise through the gateway.
    fn happened(&self, case: Case, keys: &[i64]) -> Result<bool> {
        let n = case.number;
        let mut found = Vec::new();
        for (index, node) in self.struck.nodes().iter().enumerate() {
            let mut node = Client::connect(node)?;
            let mut count = |sql: &str| -> Result<bool> { Ok(node.value(sql)? != "0") };
            if case.cargo != Cargo::OneRow || index == 0 {
                let key = keys[index];
                let sql = format!("SELECT count(*) FROM mark WHERE number = {n} AND id = {key}");
                found.push((format!("row on node {}", index + 1), count(&sql)?));
            }
            let more = match case.cargo {
                Cargo::Replicated => format!("SELECT count(*) FROM log WHERE number = {n}"),
                Cargo::Home if index == 0 => {
                    format!("SELECT count(*) FROM at_home WHERE number = {n}")
                }
                Cargo::Create => format!("SELECT count(to_regclass('new_{n}'))"),
                Cargo::Alter => format!(
                    "SELECT count(*) FROM pg_attribute WHERE attrelid = 'wide'::regclass \
                     AND attname = 'c_{n}'"
                ),
                Cargo::Placement => format!("SELECT (count(*) < 30)::int FROM spread_{n}"),
                _ => continue,
            };
            found.push((format!("{:?} on node {}", case.cargo, index + 1), count(&more)?));
        }
        let happened = found.iter().all(|(_, is_there)| *is_there);
        ensure!(happened || found.iter().all(|(_, is_there)| !is_there), "in part: {found:?}");

        // What the gateway plans by is what there is.
        let mut client = self.client()?;
        let seen = client.value(&format!("SELECT count(*) FROM mark WHERE number = {n}"))?;
        let rows = if case.cargo == Cargo::OneRow { 1 } else { NODES };
        let expected = if happened { rows } else { 0 };
        ensure!(seen == expected.to_string(), "the gateway sees {seen} rows, not {expected}");
        match case.cargo {
            Cargo::Create if happened => {
                client.query(&format!(
                    "INSERT INTO new_{n} SELECT g FROM generate_series(1, 20) g"
                ))?;
                for id in 1..=20 {
                    let sql = format!("SELECT count(*) FROM new_{n} WHERE id = {id}");
                    ensure!(client.value(&sql)? == "1", "row {id} of new_{n} is not found by key");
                }
            }
            Cargo::Create => {
                client.query(&format!("CREATE TABLE new_{n} (id int)"))?;
            }
            Cargo::Alter if happened => {
                let sql = format!("SELECT count(c_{n}) FROM wide");
                ensure!(client.value(&sql)? == "30", "the gateway does not know column c_{n}");
            }
            Cargo::Placement => {
                let count = client.value(&format!("SELECT count(*) FROM spread_{n}"))?;
                ensure!(count == "30", "the gateway sees {count} of 30 rows");
                client.query(&format!("INSERT INTO spread_{n} VALUES (1000)"))?;
                let count = client.value(&format!("SELECT count(*) FROM spread_{n}"))?;
                ensure!(count == "31", "the gateway sees {count} of 31 rows");
            }
            _ => (),
        }
        Ok(happened)
    }

    /// What the session has of the transaction, if it lives.
    fn look_at_session(
        &self,
        case: Case,
        mut client: Client,
        path_inside: &str,
        is_committed: bool,
    ) -> Result {
        let n = case.number;
        let Ok(path) = client.value("SELECT pg_catalog.current_setting('search_path')") else {
            return Ok(());
        };
        let is_set = path == path_inside && path != "\"$user\", public";
        let keeps = is_committed && case.cargo == Cargo::Set;
        ensure!(is_set == keeps, "search_path is {path}");
        if case.cargo == Cargo::Temporary {
            let there = client.value(&format!("SELECT to_regclass('pg_temp.temporary_{n}')"))?;
            ensure!(there.is_empty() != is_committed, "the temporary table is {there:?}");
        }
        if case.cargo == Cargo::Listen {
            self.client()?.query(&format!("NOTIFY channel_{n}, '{n}'"))?;
            hears(&mut client, n, is_committed)?;
        }
        Ok(())
    }
}

/// Whether a listening session is notified of this, and of nothing otherwise.
fn hears(client: &mut Client, number: usize, expected: bool) -> Result {
    let deadline = Instant::now() + Duration::from_secs(if expected { 5 } else { 0 });
    loop {
        let Ok(answer) = client.simple("SELECT 1", &[]) else {
            // It has lost a connection, and was told so.
            return Ok(());
        };
        let heard = answer.notifications.iter().any(|(_, payload)| *payload == number.to_string());
        if heard {
            ensure!(expected, "a notification of what did not happen was heard");
            return Ok(());
        }
        if deadline <= Instant::now() {
            ensure!(!expected, "a notification was not heard");
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Sends COMMIT and reads what is said to it, to the end.
fn commit(client: &mut Client) -> Result<Told> {
    let mut message = bytes::BytesMut::new();
    frontend::put_query(&mut message, "COMMIT");
    let began = Instant::now();
    if client.send_bytes(&message).is_err() {
        return Ok(Told::Unknown(None));
    }
    let mut told = Told::Unknown(None);
    while let Ok(frame) = client.receive() {
        match frame.tag() {
            b'C' if conversation::told(&frame)? == "CommandComplete COMMIT" => {
                told = Told::Committed;
            }
            b'C' => told = Told::Refused(conversation::told(&frame)?),
            b'E' => {
                let error = ErrorFields::decode(&frame)?;
                let hint = error.get(b'H').unwrap_or_default();
                let said = format!("{} {} ({hint})", error.sqlstate(), error.message());
                told = match (error.sqlstate(), &told) {
                    // The session may end after the transaction's outcome was reported.
                    (_, Told::Committed) => Told::Committed,
                    ("08007", _) => Told::Unknown(hint.split('\'').nth(1).map(str::to_owned)),
                    (_, Told::Unknown(Some(_))) => break,
                    _ => Told::Refused(said),
                };
            }
            b'Z' => break,
            _ => (),
        }
    }
    ensure!(began.elapsed() < ANSWER_LIMIT, "COMMIT was answered after {:?}", began.elapsed());
    Ok(told)
}

fn choose<T: Copy>(rng: &mut StdRng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

#[test]
fn what_was_told_is_what_happened() -> Result {
    let seed = environment::number(SEED, rand::random());
    let cases = usize::try_from(environment::number(CASES, 40))?;
    println!("{SEED}={seed} {CASES}={cases}");
    let mut rng = StdRng::seed_from_u64(seed);
    let place = Place::start()?;
    let mut strikes = 0;
    for number in 1..=cases {
        // All pairs of a cargo and a step come in turn, starting where the seed says.
        let turn = number.wrapping_add(usize::try_from(seed % 1_000)?);
        let cargo = CARGO[turn % CARGO.len()];
        let step = cargo.steps()[(turn / CARGO.len()) % cargo.steps().len()];
        let one = Some(rng.random_range(0..NODES));
        let level = match cargo {
            // Rows are moved at this level only.
            Cargo::Placement => LEVELS[0],
            _ => choose(&mut rng, &LEVELS),
        };
        let case = Case {
            number,
            step,
            cargo,
            when: choose(&mut rng, &[When::Before, When::After]),
            node: if [PREPARE, APPLY].contains(&step) { one } else { None },
            victim: choose(&mut rng, &VICTIMS),
            level,
            away: Duration::from_millis(rng.random_range(100..2500)),
        };
        let ran = place.run(case);
        strikes += usize::from(ran.with_context(|| format!("{case:?}, {SEED}={seed}"))?);
    }
    println!("{strikes} of {cases} strikes found their message");
    ensure!(cases < 2 * strikes, "only {strikes} of {cases} strikes found their message");
    come_to_rest(&place.struck.nodes())?;
    let differing = agreement::differing_copies(&place.struck.nodes())?;
    ensure!(differing.is_empty(), "copies differ: {}", differing.join("\n"));
    Ok(())
}
