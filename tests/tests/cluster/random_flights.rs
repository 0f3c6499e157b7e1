//! Random flights, strings and blocks beside changes of what they use: what one PostgreSQL without changes
//! answers, message by message, or an error that says to retry; and replaced code is never run unasked.
//!
//! Owns: the flights and the changes, both made from numbers. Never: judges a single case (`flights`, `grown_code`
//! and `schema_changes` keep those that were found here).
//! Start reading at [`Kind`] and [`case`].

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tutti_gateway::Switches;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;
use tutti_tests::{conversation, environment, servers};

/// Where the randomness starts; timing is not repeated with it.
const SEED: &str = "TUTTI_FLIGHTS_SEED";
/// How long each kind of changes is tried.
const SECONDS: &str = "TUTTI_FLIGHTS_SECONDS";
const SECONDS_DEFAULT: u64 = 8;
/// The clients that hold conversations, beside one that changes.
const CLIENTS: u64 = 3;
/// Of the cases that were held last, so many are shown where code has run unasked.
const SHOWN: usize = 12;

/// Writes rows of the hash table `b` on whichever node runs it.
const WRITES: &str = "INSERT INTO public.b VALUES (1, 1), (2, 2), (3, 3);";

/// What is changed beside the conversations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Changes {
    /// What no conversation uses: every answer is as without them.
    Unrelated,
    /// Tables, columns, placements and code that they use: they may be told to retry, or that what they would run
    /// is refused.
    Related,
}

impl Changes {
    fn may_be_told(self, sqlstate: &str, text: &str) -> bool {
        let retries = ["40001", "0A000", "40P01"].contains(&sqlstate);
        // A server looks a function up that was dropped since it has analysed its call: "cache lookup failed".
        let misses = sqlstate == "XX000" && text.contains("ov(");
        self == Self::Related && (retries || misses)
    }

    /// A change and what undoes it.
    fn choose(self, rng: &mut StdRng) -> (String, String) {
        let of = |change: &str, undo: &str| (change.to_owned(), undo.to_owned());
        let unrelated = [
            ("CREATE TABLE u (k int PRIMARY KEY, j int) DISTRIBUTE BY HASH (k)", "DROP TABLE u"),
            ("CREATE TABLE u (k int) DISTRIBUTE BY HOME", "DROP TABLE u"),
            ("ALTER TABLE other ADD COLUMN w int", "ALTER TABLE other DROP COLUMN w"),
            ("SELECT tutti_distribute('moving', 'k')", "SELECT tutti_home('moving')"),
            ("CREATE VIEW uv AS SELECT k FROM other", "DROP VIEW uv"),
        ];
        let related = [
            ("ALTER TABLE x ADD COLUMN w int", "ALTER TABLE x DROP COLUMN w"),
            ("ALTER TABLE h ADD COLUMN w int DEFAULT 7", "ALTER TABLE h DROP COLUMN w"),
            ("ALTER TABLE h DROP COLUMN spare", "ALTER TABLE h ADD COLUMN spare text"),
            ("ALTER TABLE x DROP COLUMN spare", "ALTER TABLE x ADD COLUMN spare text"),
            ("SELECT tutti_distribute('h', 'id')", "SELECT tutti_home('h')"),
            ("SELECT tutti_replicate('h')", "SELECT tutti_home('h')"),
            ("CREATE INDEX hi ON h (v)", "DROP INDEX hi"),
        ];
        let code = [
            (function("fd()", WRITES), function("fd()", "")),
            (function("ov(int)", WRITES), "DROP FUNCTION ov(int)".to_owned()),
            (trigger(WRITES), trigger("")),
        ];
        match (self, rng.random_range(0..3)) {
            (Self::Unrelated, _) | (Self::Related, 0) => {
                let (change, undo) = unrelated.choose(rng).expect("some");
                of(change, undo)
            }
            (Self::Related, 1) => {
                let (change, undo) = related.choose(rng).expect("some");
                of(change, undo)
            }
            _ => code.choose(rng).expect("some").clone(),
        }
    }
}

fn function(signature: &str, with: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION {signature} RETURNS int LANGUAGE plpgsql AS $$ BEGIN {with} RETURN 5; END $$"
    )
}

fn trigger(with: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION tf() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {with} RETURN new; END $$"
    )
}

/// What each client has for itself, and what all have.
fn set_up(client: &mut Client, is_plain: bool) -> Result<()> {
    let by = |how: &str| match is_plain {
        true => String::new(),
        false => format!("DISTRIBUTE BY {how}"),
    };
    let (hash, home) = (by("HASH (k)"), by("HOME"));
    let mut sql = format!(
        "CREATE TABLE b (k int, j int) {hash};
         CREATE TABLE x (k int PRIMARY KEY, spare text, v int) {hash};
         INSERT INTO x SELECT n, 'spare', 10 * n FROM generate_series(1, 40) n;
         CREATE TABLE h (spare text, id int PRIMARY KEY, v int) {home};
         INSERT INTO h SELECT 'spare', n, 100 * n FROM generate_series(1, 10) n;
         CREATE TABLE other (k int, j int) {hash};
         CREATE TABLE moving (k int, j int) {home};
         INSERT INTO moving SELECT n, n FROM generate_series(1, 20) n"
    );
    for number in 0..CLIENTS {
        write!(
            sql,
            "; CREATE TABLE d{number} (id int, v int) {home};
             CREATE TABLE y{number} (k int PRIMARY KEY, v int) {hash}"
        )?;
    }
    client.query(&sql)?;
    for sql in [function("fd()", ""), function("ov(bigint)", ""), trigger("")] {
        client.query(&sql)?;
    }
    for number in 0..CLIENTS {
        client.query(&format!(
            "CREATE TRIGGER t BEFORE INSERT ON d{number} FOR EACH ROW EXECUTE FUNCTION tf()"
        ))?;
    }
    Ok(())
}

/// One statement of a client's, and what goes with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// One node answers.
    Point,
    /// All do, and their answers are brought together.
    Whole,
    /// Rows of several nodes are brought to one.
    Joined,
    /// Several rows of node 1, each by a function.
    Called,
    /// One value by a function.
    Value,
    /// A function that a better overload can hide.
    Overloaded,
    /// Rows of node 1, with a trigger and a function.
    InsertsAtHome,
    /// One row on one node.
    Inserts,
    /// Rows of all nodes.
    InsertsMany,
    Updates,
    /// What the client has written.
    Own,
    OwnAtHome,
}

const KINDS: [Kind; 12] = [
    Kind::Point,
    Kind::Whole,
    Kind::Joined,
    Kind::Called,
    Kind::Value,
    Kind::Overloaded,
    Kind::InsertsAtHome,
    Kind::Inserts,
    Kind::InsertsMany,
    Kind::Updates,
    Kind::Own,
    Kind::OwnAtHome,
];

impl Kind {
    /// The statement, with one parameter or none.
    fn sql(self, client: u64) -> String {
        match self {
            Self::Point => "SELECT v FROM x WHERE k = $1".to_owned(),
            Self::Whole => "SELECT count(*), sum(v) FROM x".to_owned(),
            Self::Joined => "SELECT x.v, h.v FROM x JOIN h ON h.id = x.k WHERE x.k = $1".to_owned(),
            Self::Called => "SELECT id, fd() FROM h ORDER BY id".to_owned(),
            Self::Value => "SELECT fd() + $1".to_owned(),
            Self::Overloaded => "SELECT v + ov(1) FROM h WHERE id = $1".to_owned(),
            Self::InsertsAtHome => format!("INSERT INTO d{client} VALUES ($1, fd())"),
            Self::Inserts => format!("INSERT INTO y{client} VALUES ($1, 1) ON CONFLICT DO NOTHING"),
            Self::InsertsMany => format!(
                "INSERT INTO y{client} SELECT k, v FROM x WHERE k <= $1 ON CONFLICT DO NOTHING"
            ),
            Self::Updates => format!("UPDATE y{client} SET v = v + 1 WHERE k = $1"),
            Self::Own => format!("SELECT count(*), sum(v) FROM y{client}"),
            Self::OwnAtHome => format!("SELECT id, v FROM d{client} ORDER BY id, v"),
        }
    }

    /// Whether it is one node's alone, so that SQL can FETCH from its portal.
    fn is_of_one_node(self) -> bool {
        matches!(self, Self::Point | Self::Called | Self::Overloaded | Self::OwnAtHome)
    }

    fn writes(self) -> bool {
        matches!(self, Self::InsertsAtHome | Self::Inserts | Self::InsertsMany | Self::Updates)
    }

    fn returns_rows(self) -> bool {
        matches!(self, Self::Called | Self::OwnAtHome)
    }
}

/// A client's next conversation, in the language of [`conversation`].
fn case(rng: &mut StdRng, client: u64) -> String {
    match rng.random_range(0..10) {
        0 => format!("Q {}", string(rng, client)),
        1 => format!("Q BEGIN\n--\nQ {}\n--\nQ COMMIT", string(rng, client)),
        2..=5 => {
            let mut text = "Q BEGIN\n--\n".to_owned();
            if rng.random_bool(0.3) {
                text.push_str("Q DECLARE c CURSOR FOR SELECT id, fd() FROM h ORDER BY id\n--\n");
            }
            let has_cursor = text.contains("DECLARE");
            for _ in 0..rng.random_range(1..4) {
                text.push_str(&flight(rng, client, true));
                pause(rng, &mut text);
                if has_cursor && rng.random_bool(0.6) {
                    text.push_str(["Q FETCH c\n--\n", "E c|1\nS\n--\n"].choose(rng).expect("some"));
                }
            }
            text + "Q COMMIT"
        }
        _ => flight(rng, client, false),
    }
}

/// A Query of some statements.
fn string(rng: &mut StdRng, client: u64) -> String {
    let statement = |rng: &mut StdRng| {
        let value = rng.random_range(1..=10).to_string();
        KINDS.choose(rng).expect("some").sql(client).replace("$1", &value)
    };
    let statements: Vec<_> = (0..rng.random_range(1..4)).map(|_| statement(rng)).collect();
    statements.join("; ")
}

fn pause(rng: &mut StdRng, text: &mut String) {
    match rng.random_range(0..4) {
        0 => _ = writeln!(text, "~ {}", rng.random_range(1..60)),
        _ => text.push_str("--\n"),
    }
}

/// Messages up to a Sync. `in_block`: portals outlive it.
fn flight(rng: &mut StdRng, client: u64, in_block: bool) -> String {
    let mut text = String::new();
    let count = rng.random_range(1..4);
    let mut kept = Vec::new();
    for index in 0..count {
        let kind = *KINDS.choose(rng).expect("some");
        let name = if rng.random_bool(0.3) { format!("s{index}") } else { String::new() };
        // An unnamed portal ends with the next.
        let portal = if rng.random_bool(0.3) { format!("p{index}") } else { String::new() };
        let sql = kind.sql(client);
        _ = writeln!(text, "P {name}|{sql}");
        interrupt(rng, &mut text);
        if rng.random_bool(0.2) {
            _ = writeln!(text, "D S {name}");
        }
        match sql.contains("$1") {
            true => _ = writeln!(text, "B {portal}|{name}|{}", rng.random_range(1..=10)),
            false => _ = writeln!(text, "B {portal}|{name}"),
        }
        interrupt(rng, &mut text);
        if rng.random_bool(0.3) {
            _ = writeln!(text, "D P {portal}");
        }
        // A query of several nodes is carried out when it is executed, and refused behind a write.
        let may_wait = kind.is_of_one_node() || kind.writes();
        if !portal.is_empty() && may_wait && rng.random_bool(0.4) {
            kept.push((portal, kind));
        } else if kind.returns_rows() && rng.random_bool(0.6) {
            for _ in 0..rng.random_range(1..4) {
                _ = writeln!(text, "E {portal}|{}", rng.random_range(1..4));
                interrupt(rng, &mut text);
            }
            if !portal.is_empty() {
                kept.push((portal, kind));
            } else if in_block && rng.random_bool(0.5) {
                text.push_str("S\n");
                pause(rng, &mut text);
                text.push_str("E |1\n");
            }
        } else {
            _ = writeln!(text, "E {portal}|0");
            interrupt(rng, &mut text);
        }
        if !name.is_empty() {
            _ = writeln!(text, "C S {name}");
        }
    }
    if in_block && rng.random_bool(0.4) {
        text.push_str("S\n");
        pause(rng, &mut text);
    }
    for (portal, kind) in &kept {
        match rng.random_bool(0.2) && text.ends_with("--\n") && kind.is_of_one_node() {
            true => _ = write!(text, "Q FETCH {portal}\n--\n"),
            false => _ = writeln!(text, "E {portal}|{}", rng.random_range(0..3)),
        }
        if rng.random_bool(0.5) {
            interrupt(rng, &mut text);
        }
    }
    for (portal, _) in kept {
        _ = writeln!(text, "C P {portal}");
    }
    text + "S\n"
}

/// Something that a client may do between any two messages.
fn interrupt(rng: &mut StdRng, text: &mut String) {
    match rng.random_range(0..8) {
        0 => text.push_str("H\n"),
        1 => _ = writeln!(text, "~ {}", rng.random_range(1..50)),
        2 => _ = write!(text, "H\n~ {}\n", rng.random_range(1..50)),
        _ => (),
    }
}

/// What is held against the answers of the plain server.
fn judge(text: &str, found: &[String], plain: &[String], changes: Changes) -> Result<bool> {
    if found == plain {
        return Ok(false);
    }
    let first = found.iter().zip(plain).position(|(one, other)| one != other);
    let first = first.unwrap_or_else(|| found.len().min(plain.len()));
    let told = found.get(first).and_then(|line| line.strip_prefix("Error "));
    match told.is_some_and(|sqlstate| changes.may_be_told(sqlstate, text)) {
        true => Ok(true),
        false => bail!("from message {first} on\nTutti {found:#?}\nplain {plain:#?}"),
    }
}

fn is_told_of_an_end(failure: &str) -> bool {
    failure.contains("57P01") && failure.contains("and with it the session's unknown state")
}

/// What the clients have held last.
type Held = Mutex<VecDeque<String>>;

struct Run<'a> {
    changes: Changes,
    gateway: Endpoint,
    plain: Endpoint,
    ends: &'a AtomicBool,
    held: &'a Held,
    cases: &'a AtomicUsize,
    refused: &'a AtomicUsize,
    ended: &'a AtomicUsize,
}

impl Run<'_> {
    /// Holds conversations until the end.
    fn hold(&self, number: u64, mut rng: StdRng) -> Result<()> {
        let connect = || -> Result<_> {
            Ok((Client::connect(&self.gateway)?, Client::connect(&self.plain)?))
        };
        let (mut subject, mut plain) = connect()?;
        while !self.ends.load(Ordering::Relaxed) {
            let text = case(&mut rng, number);
            let begun = Instant::now();
            let found = conversation::hold(&mut subject, &text).with_context(|| text.clone())?;
            {
                let mut held = self.held.lock().expect("no one panics with it");
                held.push_back(format!("{:?}: {text}\n{found:#?}", begun.elapsed()));
                if SHOWN < held.len() {
                    held.pop_front();
                }
            }
            // Pauses say nothing to who has no changes beside him.
            let without: String = text
                .lines()
                .map(|line| if line.starts_with('~') { "--" } else { line })
                .fold(String::new(), |text, line| text + line + "\n");
            let expected = conversation::hold(&mut plain, &without)?;
            let is_refused =
                judge(&text, &found, &expected, self.changes).with_context(|| text.clone())?;
            self.cases.fetch_add(1, Ordering::Relaxed);
            self.refused.fetch_add(usize::from(is_refused), Ordering::Relaxed);
            let clear = format!("DEALLOCATE ALL; DELETE FROM d{number}; DELETE FROM y{number}");
            plain.query(&clear)?;
            // That, too, may meet a change.
            let mut failed = Vec::new();
            while let Err(failure) = subject.query(&clear) {
                failed.push(format!("{failure:#}"));
                ensure!(failed.len() < 20, "{text}, then {clear}: {failed:#?}; {found:#?}");
                // Whoever is stopped and does not end within seconds, as on a busy machine, has his connections
                // ended; and his session ends if code that is not seen may have left something on them.
                if self.changes == Changes::Related
                    && failed.last().is_some_and(|it| is_told_of_an_end(it))
                {
                    self.ended.fetch_add(1, Ordering::Relaxed);
                    subject = Client::connect(&self.gateway)?;
                }
            }
        }
        Ok(())
    }

    /// Changes and undoes until the end; after each, no row of `b` is there.
    fn change(&self, mut rng: StdRng, nodes: &[Endpoint]) -> Result<usize> {
        let mut admin = Client::connect(&self.gateway)?;
        let mut nodes = nodes.iter().map(Client::connect).collect::<Result<Vec<_>>>()?;
        let mut count = 0;
        while !self.ends.load(Ordering::Relaxed) {
            let (change, undo) = self.changes.choose(&mut rng);
            for sql in [&change, &undo] {
                let mut done = admin.query(sql);
                for _ in 0..50 {
                    if done.is_ok() {
                        break;
                    }
                    done = admin.query(sql);
                }
                done.with_context(|| sql.clone())?;
                count += 1;
                for node in &mut nodes {
                    let rows = node.value("SELECT count(*) FROM b")?;
                    let held = self.held.lock().expect("no one panics with it");
                    ensure!(rows == "0", "{rows} rows of b after {sql}; last: {held:#?}");
                }
                sleep(Duration::from_millis(rng.random_range(1..40)));
            }
        }
        Ok(count)
    }
}

fn hold_all_beside(changes: Changes) -> Result<()> {
    let seconds = environment::number(SECONDS, SECONDS_DEFAULT);
    let seed = environment::number(SEED, rand::random::<u32>().into());
    println!("{SEED}={seed} {SECONDS}={seconds}");
    let mut cluster = TestCluster::start_with(servers::durable(2)?, Switches::default())?;
    let plain = servers::start(1)?;
    let (gateway, plain) = (cluster.endpoint(), servers::endpoint(&plain, 0));
    set_up(&mut Client::connect(&gateway)?, false)?;
    set_up(&mut Client::connect(&plain)?, true)?;
    let (ends, held) = (AtomicBool::new(false), Held::default());
    let [cases, refused, ended] = [const { AtomicUsize::new(0) }; 3];
    let run = Run {
        changes,
        gateway,
        plain,
        ends: &ends,
        held: &held,
        cases: &cases,
        refused: &refused,
        ended: &ended,
    };
    let until = Instant::now() + Duration::from_secs(seconds);
    let nodes = cluster.nodes();
    let changed = thread::scope(|scope| -> Result<usize> {
        let run = &run;
        let rng =
            |number: u64| StdRng::seed_from_u64(seed.wrapping_mul(1_000).wrapping_add(number));
        let nodes = &nodes;
        let mut at_work: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || run.hold(number, rng(number)).map(|()| 0)))
            .collect();
        at_work.push(scope.spawn(move || run.change(rng(CLIENTS), nodes)));
        while Instant::now() < until && !at_work.iter().any(thread::ScopedJoinHandle::is_finished) {
            sleep(Duration::from_millis(50));
        }
        run.ends.store(true, Ordering::Relaxed);
        let mut changed = 0;
        for thread in at_work {
            changed += thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        Ok(changed)
    });
    if changed.is_err() {
        cluster.leave_unaudited("what is wrong is said with the conversation");
    }
    let changed = changed.with_context(|| format!("{SEED}={seed} {SECONDS}={seconds}"))?;
    let [cases, refused, ended] = [cases, refused, ended].map(AtomicUsize::into_inner);
    println!(
        "{cases} conversations, {refused} of them told to retry, and {ended} sessions ended, beside {changed} changes"
    );
    ensure!(0 < cases && 0 < changed);
    Ok(())
}

/// What has nothing to do with what a client sends changes no message that it gets.
#[test]
fn changes_of_other_things_are_not_noticed() -> Result<()> {
    hold_all_beside(Changes::Unrelated)
}

/// What has to do with it is met whole, or the client is told.
#[test]
fn changes_of_what_is_used_are_met_whole_or_not_at_all() -> Result<()> {
    hold_all_beside(Changes::Related)
}
