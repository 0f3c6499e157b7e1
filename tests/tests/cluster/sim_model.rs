//! The simulator's model of a node against a real server: the same scripts, the same answers.
//!
//! Owns: the SQL that each statement of the model stands for, scripts drawn from seeds and written
//! ones, and the comparison: every answer, every SQLSTATE, and who waits for whom. A crash is a
//! SIGKILL of the whole server.
//! Never: depends on a time. Whether a session waits is read from `pg_locks`.
//! Start reading at [`Pair::step`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tutti_embed::Cluster;
use tutti_sim::node::statement::{
    Answer, BackendId, ExportId, FIRST_TABLE, Isolation, Key, Statement, TxnNo, is_table,
};
use tutti_sim::node::{Node, Output};
use tutti_tests::answer::Outcome;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::servers;
use tutti_txn::Gid;

const SESSIONS: usize = 3;
const KEYS: Key = 2;
const GIDS: u64 = 3;
const TABLES: [Key; 2] = [FIRST_TABLE, FIRST_TABLE + 1];
/// How often a waiting session is checked before it is taken for one that does not wait.
const LOOKS: u32 = 3_000;
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// What a real server answered, in words that the model's answers have too.
type Words = String;

/// A session of the real server, in a thread of its own, because it may wait.
pub(super) struct Session {
    requests: Sender<String>,
    answers: Receiver<Result<Words>>,
    pub(super) pid: i32,
    pub(super) backend: BackendId,
    is_waiting: bool,
}

/// A server and its model.
pub(super) struct Pair {
    servers: Cluster,
    pub(super) admin: Client,
    pub(super) model: Node,
    pub(super) sessions: Vec<Session>,
    /// Names of exported snapshots; read by the SQL of an import.
    exports: BTreeMap<ExportId, String>,
    /// What was done, to be shown with a difference.
    pub(super) done: Vec<String>,
}

fn gid(number: u64) -> Gid {
    format!("tutti_sim_1_{number}_1").parse().expect("a gid")
}

fn registers(keys: &BTreeSet<Key>) -> BTreeSet<Key> {
    let registers = keys.iter().copied().filter(|key| !is_table(*key));
    // At least one that no row has, so that it is a list.
    registers.chain([0]).collect()
}

fn content(table: Key) -> String {
    format!("SELECT {table}, coalesce(array_agg(txn ORDER BY txn), '{{}}') FROM movable_{table}")
}

fn insert(table: Key, txns: &[TxnNo]) -> String {
    let rows: Vec<_> = txns.iter().map(|txn| format!("({txn})")).collect();
    format!("INSERT INTO movable_{table} (txn) VALUES {}; {}", rows.join(", "), content(table))
}

fn sql(statement: &Statement, exports: &BTreeMap<ExportId, String>) -> String {
    let keys =
        |keys: &BTreeSet<Key>| keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match statement {
        Statement::Begin(Isolation::ReadCommitted) => "BEGIN".to_owned(),
        Statement::Begin(Isolation::RepeatableRead) => {
            "BEGIN ISOLATION LEVEL REPEATABLE READ".to_owned()
        }
        Statement::Import(export) => format!("SET TRANSACTION SNAPSHOT '{}'", exports[export]),
        Statement::Export => "SELECT pg_export_snapshot()".to_owned(),
        Statement::Read(of) | Statement::Bind(of) => {
            let registers =
                format!("SELECT key, value FROM register WHERE key IN ({})", keys(&registers(of)));
            let tables = of.iter().filter(|key| is_table(**key)).map(|table| content(*table));
            let parts: Vec<_> = [registers].into_iter().chain(tables).collect();
            format!("{} ORDER BY key", parts.join(" UNION ALL "))
        }
        // Without a Sync the locks are kept as in a transaction.
        Statement::Parse(of) => {
            let locks =
                of.iter().map(|key| format!("LOCK TABLE movable_{key} IN ACCESS SHARE MODE"));
            locks.collect::<Vec<_>>().join("; ")
        }
        Statement::LockTable(table) => format!("LOCK TABLE movable_{table}"),
        Statement::TakeOut(table) => format!(
            "WITH gone AS (DELETE FROM movable_{table} RETURNING *) \
             SELECT {table} AS key, coalesce(array_agg(txn ORDER BY txn), '{{}}') FROM gone"
        ),
        Statement::Append(table, txn) if is_table(*table) => insert(*table, &[*txn]),
        Statement::PutIn(table, txns) => insert(*table, txns),
        Statement::Execute => "EXECUTE".to_owned(),
        Statement::Append(key, txn) => format!(
            "UPDATE register SET value = value || {txn} WHERE key = {key} RETURNING key, value"
        ),
        Statement::Commit => "COMMIT".to_owned(),
        Statement::Rollback => "ROLLBACK".to_owned(),
        Statement::Prepare(gid) => format!("PREPARE TRANSACTION '{gid}'"),
        Statement::CommitPrepared(gid) => format!("COMMIT PREPARED '{gid}'"),
        Statement::RollbackPrepared(gid) => format!("ROLLBACK PREPARED '{gid}'"),
        Statement::RecordDecision(gid) => {
            format!("INSERT INTO decision VALUES ('{gid}', 'committed')")
        }
        Statement::Decide(gid) => format!(
            "INSERT INTO decision VALUES ('{gid}', 'committed') ON CONFLICT DO NOTHING \
             RETURNING gid"
        ),
        Statement::ReadOrRefuse(gid) => format!(
            "INSERT INTO decision VALUES ('{gid}', 'aborted') ON CONFLICT DO NOTHING; \
             SELECT decision FROM decision WHERE gid = '{gid}'"
        ),
        Statement::ReadDecision(gid) => {
            format!("SELECT decision FROM decision WHERE gid = '{gid}'")
        }
        Statement::ForgetDecision(gid) => format!("DELETE FROM decision WHERE gid = '{gid}'"),
        Statement::ListPrepared => "SELECT gid FROM pg_prepared_xacts ORDER BY gid".to_owned(),
        Statement::Cancel(_) | Statement::Look { .. } => unreachable!("it needs the sessions"),
        Statement::TakeLock => {
            "BEGIN; LOCK TABLE tutti.serving IN EXCLUSIVE MODE NOWAIT".to_owned()
        }
        Statement::ReadNewest => "SELECT incarnation FROM tutti.gateway".to_owned(),
        Statement::Serve(number) => format!("DO $$BEGIN PERFORM tutti.serve({number}, ''); END$$"),
        Statement::Raise(number) => format!(
            "BEGIN; LOCK TABLE tutti.backend IN SHARE ROW EXCLUSIVE MODE; \
             UPDATE tutti.gateway SET incarnation = {number} WHERE incarnation < {number}; COMMIT"
        ),
        Statement::EndListed(number) => format!(
            "WITH listed AS (SELECT pg_terminate_backend(a.pid) \
             FROM tutti.backend b JOIN pg_stat_activity a \
             ON a.pid = b.pid AND a.backend_start = b.started WHERE b.incarnation < {number}) \
             SELECT count(*) FROM listed"
        ),
        Statement::ClearList(number) => {
            format!("DELETE FROM tutti.backend WHERE incarnation < {number}")
        }
        Statement::EndBackends(_) | Statement::Harden | Statement::NextIncarnation => {
            unreachable!("not in these scripts")
        }
    }
}

/// The model's answer, as [`words_of`] says a server's.
fn words(statement: &Statement, answer: &Answer) -> Words {
    match answer {
        Answer::Done => "done".to_owned(),
        Answer::RolledBack => "rolled back".to_owned(),
        Answer::Rows(rows) => rows
            .iter()
            .map(|(key, txns)| {
                let mut txns = txns.clone();
                if is_table(*key) {
                    // Rows of a table have no order.
                    txns.sort_unstable();
                }
                let txns: Vec<_> = txns.iter().map(ToString::to_string).collect();
                format!("{key}|{{{}}}", txns.join(","))
            })
            .collect::<Vec<_>>()
            .join(" "),
        Answer::Exported(_) => "exported".to_owned(),
        Answer::Decision(decision) => decision.map_or(String::new(), |d| d.to_string()),
        Answer::Inserted(true) => match statement {
            Statement::Decide(gid) => gid.to_string(),
            _ => "inserted".to_owned(),
        },
        Answer::Inserted(false) => String::new(),
        Answer::Prepared(gids) => {
            gids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        }
        Answer::Incarnation(number) => number.to_string(),
        Answer::Count(count) => count.to_string(),
        Answer::Activity(found) => found
            .iter()
            .map(|(backend, seen)| {
                let tf = |is: bool| if is { "t" } else { "f" };
                let (ours, active) = (tf(seen.waits_for_ours), tf(seen.is_active));
                format!("{backend}|{ours}|{active}|{}", tf(seen.waits_for_table))
            })
            .collect::<Vec<_>>()
            .join(" "),
        Answer::Error(state) => format!("error {}", state.code()),
    }
}

/// The last answer to a request.
fn words_of(client: &mut Client, sql: &str) -> Result<Words> {
    let answer = client.simple(sql, &[])?;
    if let Some(error) = answer.error() {
        return Ok(format!("error {}", error.sqlstate()));
    }
    let ends = sql == "COMMIT" || sql.starts_with("PREPARE");
    match answer.outcomes.last() {
        Some(Outcome::Rows { rows, .. }) => {
            let row = |row: &Vec<Option<bytes::Bytes>>| {
                let values = row.iter().flatten().map(|value| String::from_utf8_lossy(value));
                values.collect::<Vec<_>>().join("|")
            };
            Ok(rows.iter().map(row).collect::<Vec<_>>().join(" "))
        }
        Some(Outcome::Done { tag }) if ends && tag == "ROLLBACK" => Ok("rolled back".to_owned()),
        Some(Outcome::Done { .. }) => Ok("done".to_owned()),
        other => bail!("{sql}: {other:?}"),
    }
}

impl Session {
    pub(super) fn open(endpoint: &Endpoint, backend: BackendId) -> Result<Self> {
        let mut client = Client::connect(endpoint)?;
        let pid = client.process_id;
        let (requests, to_do) = channel::<String>();
        let (told, answers) = channel();
        thread::spawn(move || {
            for sql in to_do {
                if told.send(words_of(&mut client, &sql)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { requests, answers, pid, backend, is_waiting: false })
    }
}

impl Pair {
    pub(super) fn start() -> Result<Self> {
        // The model finds no deadlocks; a script that makes one waits until the next crash.
        let servers = servers::durable_with(1, &[("deadlock_timeout", "2147483647")])?;
        let mut admin = Client::connect(&servers::endpoint(&servers, 0))?;
        admin.query("CREATE TABLE register (key int PRIMARY KEY, value int[] NOT NULL)")?;
        admin.query("CREATE TABLE decision (gid text PRIMARY KEY, decision text NOT NULL)")?;
        let fill =
            format!("INSERT INTO register SELECT k, '{{}}' FROM generate_series(1, {KEYS}) k");
        admin.query(&fill)?;
        for table in TABLES {
            admin.query(&format!("CREATE TABLE movable_{table} (txn int)"))?;
        }
        let mut pair = Self {
            servers,
            admin,
            model: Node::default(),
            sessions: Vec::new(),
            exports: BTreeMap::new(),
            done: Vec::new(),
        };
        pair.connect()?;
        Ok(pair)
    }

    fn connect(&mut self) -> Result<()> {
        let endpoint = servers::endpoint(&self.servers, 0);
        self.admin = Client::connect(&endpoint)?;
        for _ in 0..SESSIONS {
            let backend = self.model.connect();
            self.sessions.push(Session::open(&endpoint, backend)?);
        }
        Ok(())
    }

    /// A session that has ended is replaced by a new one.
    pub(super) fn replace(&mut self, index: usize) -> Result<()> {
        let pid = self.sessions[index].pid;
        let asks = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
        for _ in 0..LOOKS {
            if self.admin.value(&asks)? == "0" {
                let backend = self.model.connect();
                let endpoint = servers::endpoint(&self.servers, 0);
                self.sessions[index] = Session::open(&endpoint, backend)?;
                return Ok(());
            }
            thread::sleep(LOOK_PAUSE);
        }
        bail!("{:#?}\nthe model ends {index}, the server does not", self.done)
    }

    /// SIGKILL and start again.
    pub(super) fn crash(&mut self) -> Result<()> {
        self.done.push("crash".to_owned());
        self.servers.server_mut(0).kill9()?;
        self.servers.server_mut(0).start()?;
        self.sessions.clear();
        self.exports.clear();
        // The scripts' DELETE waits for its flush, the product's does not and so the model's neither;
        // everything else that was answered is flushed in both.
        let kept = self.model.log().len();
        self.model.restart(kept);
        self.connect()
    }

    /// A session sends a statement; every session that is answered by that, is answered alike.
    pub(super) fn step(
        &mut self,
        index: usize,
        statement: &Statement,
        asked: &mut Asked,
    ) -> Result<()> {
        self.done.push(format!("{index}: {statement}"));
        let sql = match statement {
            Statement::Cancel(backends) => {
                let pids = self.pids(backends);
                let cancels =
                    pids.iter().map(|(pid, _)| format!("PERFORM pg_cancel_backend({pid});"));
                format!("DO $$BEGIN {} END$$", cancels.collect::<String>())
            }
            Statement::Look { of, ours } => self.look(of, ours),
            statement => sql(statement, &self.exports),
        };
        asked.insert(index, statement.clone());
        self.sessions[index].is_waiting = true;
        self.model.submit(self.sessions[index].backend, statement.clone());
        let answers = self.settle_model();
        self.sessions[index].requests.send(sql)?;
        for (backend, answer) in answers {
            let found = self.sessions.iter().position(|session| session.backend == backend);
            let answered = found.context("an answer to nobody")?;
            let of = asked.remove(&answered).context("an answer to nothing")?;
            let expected = self.receive(answered, &of, &answer)?;
            let got = words(&of, &answer);
            let difference = || format!("{:#?}\nserver {expected:?}, model {got:?}", self.done);
            ensure!(expected == got, "session {answered}, {of}: {}", difference());
        }
        for waiting in asked.keys().copied().collect::<Vec<_>>() {
            self.see_it_wait(waiting)?;
        }
        Ok(())
    }

    /// The server's processes for these backends of the model.
    fn pids(&self, backends: &BTreeSet<BackendId>) -> Vec<(i32, BackendId)> {
        let sessions = self.sessions.iter().filter(|session| backends.contains(&session.backend));
        sessions.map(|session| (session.pid, session.backend)).collect()
    }

    /// What a placement change asks, in the words of the model's answer.
    fn look(&self, of: &BTreeSet<BackendId>, ours: &BTreeSet<BackendId>) -> String {
        let ours: Vec<_> = self.pids(ours).iter().map(|(pid, _)| pid.to_string()).collect();
        let of: Vec<_> =
            self.pids(of).iter().map(|(pid, backend)| format!("({pid}, {backend})")).collect();
        format!(
            "SELECT b.backend, pg_blocking_pids(a.pid) && '{{{}}}', a.state = 'active', \
             a.wait_event IS NOT DISTINCT FROM 'relation' \
             FROM pg_stat_activity a JOIN (VALUES {}) b (pid, backend) USING (pid) ORDER BY 1",
            ours.join(","),
            of.join(", ")
        )
    }

    /// The model's flushes take no time here.
    fn settle_model(&mut self) -> Vec<(BackendId, Answer)> {
        let mut answers = Vec::new();
        loop {
            let outputs = self.model.take_outputs();
            if outputs.is_empty() {
                return answers;
            }
            for output in outputs {
                match output {
                    Output::Answered(backend, answer) => answers.push((backend, answer)),
                    Output::Flushes(backend) => self.model.flush(backend),
                    Output::Waits(..)
                    | Output::Ended(_)
                    | Output::PartCommitted(_)
                    | Output::Voted(_) => (),
                }
            }
        }
    }

    fn receive(&mut self, index: usize, of: &Statement, model: &Answer) -> Result<Words> {
        let session = &mut self.sessions[index];
        let answered = match session.answers.recv_timeout(Duration::from_secs(40)) {
            Ok(answered) => answered?,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                bail!("{:#?}\nthe model answers {index}, {of}; the server does not", self.done)
            }
        };
        session.is_waiting = false;
        if let Answer::Exported(export) = model {
            self.exports.insert(*export, answered);
            return Ok("exported".to_owned());
        }
        Ok(answered)
    }

    /// The server says that the session waits for a lock, and it has not answered.
    fn see_it_wait(&mut self, index: usize) -> Result<()> {
        let pid = self.sessions[index].pid;
        for _ in 0..LOOKS {
            let asks = format!("SELECT count(*) FROM pg_locks WHERE pid = {pid} AND NOT granted");
            if self.admin.value(&asks)? != "0" {
                return Ok(());
            }
            if let Ok(answered) = self.sessions[index].answers.try_recv() {
                bail!("{:#?}\nthe model lets {index} wait, the server: {answered:?}", self.done);
            }
            thread::sleep(LOOK_PAUSE);
        }
        bail!("{:#?}\nthe model lets {index} wait, the server does not", self.done)
    }
}

/// What each session waits for an answer to.
pub(super) type Asked = BTreeMap<usize, Statement>;

/// What a script may say next of a session.
#[derive(Clone, Copy, Default)]
struct Open {
    in_transaction: Option<Isolation>,
    has_imported: bool,
}

/// Draws a statement that the session may send. The product never sends the others: PREPARE or
/// COMMIT outside a transaction, COMMIT PREPARED inside one.
fn draw(
    rng: &mut ChaCha8Rng,
    open: Open,
    just_begun: bool,
    exports: &BTreeMap<ExportId, String>,
    next_txn: &mut TxnNo,
) -> Statement {
    let gid = gid(rng.random_range(1..=GIDS));
    let key = rng.random_range(1..=KEYS);
    *next_txn += 1;
    let drawn = rng.random_range(0..100);
    if open.in_transaction.is_none() {
        return match drawn {
            0..30 => Statement::Begin(Isolation::ReadCommitted),
            30..50 => Statement::Begin(Isolation::RepeatableRead),
            50..60 => Statement::Append(key, *next_txn),
            60..68 => Statement::Read((1..=KEYS).collect()),
            68..78 => Statement::CommitPrepared(gid),
            78..86 => Statement::RollbackPrepared(gid),
            86..90 => Statement::ListPrepared,
            90..93 => Statement::Decide(gid),
            93..96 => Statement::ReadOrRefuse(gid),
            96..98 => Statement::ReadDecision(gid),
            _ => Statement::ForgetDecision(gid),
        };
    }
    let may_import = just_begun && open.in_transaction == Some(Isolation::RepeatableRead);
    if may_import
        && drawn < 60
        && let Some(export) = exports.keys().last()
    {
        return Statement::Import(*export);
    }
    match drawn {
        0..35 => Statement::Append(key, *next_txn),
        35..50 => Statement::Read((1..=KEYS).collect()),
        50..60 if !open.has_imported => Statement::Export,
        50..65 => Statement::RecordDecision(gid),
        65..82 => Statement::Prepare(gid),
        82..94 => Statement::Commit,
        _ => Statement::Rollback,
    }
}

/// The same of tables: for transactions that read, write, lock, empty and fill them, and for what others
/// ask about those that wait.
fn draw_of_tables(
    rng: &mut ChaCha8Rng,
    in_transaction: Option<Isolation>,
    backends: &[BackendId],
    next_txn: &mut TxnNo,
) -> Statement {
    let gid = gid(rng.random_range(1..=GIDS));
    let table = TABLES[rng.random_range(0..TABLES.len())];
    let other = backends[rng.random_range(0..backends.len())];
    *next_txn += 1;
    let drawn = rng.random_range(0..100);
    if in_transaction.is_none() {
        return match drawn {
            0..45 => Statement::Begin(Isolation::ReadCommitted),
            45..60 => Statement::Begin(Isolation::RepeatableRead),
            60..70 => Statement::Append(table, *next_txn),
            70..78 => Statement::Read(TABLES.into()),
            78..84 => Statement::Cancel([other].into()),
            84..90 => Statement::CommitPrepared(gid),
            90..93 => Statement::RollbackPrepared(gid),
            _ => Statement::Look {
                of: backends.iter().copied().filter(|backend| *backend != other).collect(),
                ours: [other].into(),
            },
        };
    }
    match drawn {
        0..20 => Statement::Append(table, *next_txn),
        20..35 => Statement::Read([1, table].into()),
        35..40 => Statement::Parse([table].into()),
        40..60 => Statement::LockTable(table),
        60..65 => Statement::PutIn(table, vec![*next_txn, *next_txn + 1_000]),
        65..75 => Statement::Prepare(gid),
        75..92 => Statement::Commit,
        _ => Statement::Rollback,
    }
}

/// The row that a statement locks.
fn wants(statement: &Statement) -> Option<String> {
    match statement {
        Statement::Append(key, _) => Some(key.to_string()),
        Statement::RecordDecision(gid) | Statement::Decide(gid) | Statement::ReadOrRefuse(gid) => {
            Some(gid.to_string())
        }
        _ => None,
    }
}

/// One of the sessions that wait for no answer, the likelier the more there are.
fn draw_free(rng: &mut ChaCha8Rng, asked: &Asked) -> Option<usize> {
    let mut free = (0..SESSIONS).filter(|index| !asked.contains_key(index));
    free.nth(rng.random_range(0..SESSIONS))
}

/// One script. Ends with a crash and a look at everything.
fn run_script(pair: &mut Pair, rng: &mut ChaCha8Rng, steps: u32) -> Result<usize> {
    let mut asked = Asked::new();
    let mut open = [Open::default(); SESSIONS];
    let mut just_begun = [false; SESSIONS];
    let mut next_txn = 0;
    let mut waits = 0;
    for _ in 0..steps {
        if asked.len() == SESSIONS {
            break;
        }
        let Some(index) = draw_free(rng, &asked) else { continue };
        let exports: BTreeMap<_, _> = pair.exports.clone();
        let statement = draw(rng, open[index], just_begun[index], &exports, &mut next_txn);
        // Two that wait for one row race for it when it becomes free: PostgreSQL promises no order,
        // the model has the order of asking.
        let races = wants(&statement)
            .is_some_and(|row| asked.values().any(|other| wants(other).as_ref() == Some(&row)));
        if races {
            continue;
        }
        just_begun[index] = false;
        match &statement {
            Statement::Begin(isolation) => {
                open[index] = Open { in_transaction: Some(*isolation), has_imported: false };
                just_begun[index] = true;
            }
            Statement::Import(_) => open[index].has_imported = true,
            Statement::Commit | Statement::Rollback | Statement::Prepare(_) => {
                open[index] = Open::default();
                // A snapshot lasts as long as its exporter's transaction; whose that was is not
                // kept, so none is imported after any end.
                pair.exports.clear();
            }
            _ => (),
        }
        pair.step(index, &statement, &mut asked)?;
        waits += asked.len();
    }
    pair.crash()?;
    let mut asked = Asked::new();
    pair.step(0, &Statement::Read((1..=KEYS).collect()), &mut asked)?;
    pair.step(0, &Statement::ListPrepared, &mut asked)?;
    for number in 1..=GIDS {
        pair.step(1, &Statement::ReadDecision(gid(number)), &mut asked)?;
        // What is prepared kept its locks over the crash, and gives them up when it ends.
        pair.step(0, &Statement::RollbackPrepared(gid(number)), &mut asked)?;
        pair.step(1, &Statement::ForgetDecision(gid(number)), &mut asked)?;
    }
    Ok(waits)
}

/// Runs scripts from so many seeds; in all of them together so many statements must have waited.
fn judge_scripts(
    seeds: u64,
    waits_min: usize,
    run: fn(&mut Pair, &mut ChaCha8Rng, u32) -> Result<usize>,
) -> Result<()> {
    let mut pair = Pair::start()?;
    let mut waits = 0;
    for seed in 0..seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        pair.done.clear();
        waits += run(&mut pair, &mut rng, 80).with_context(|| format!("script {seed}"))?;
    }
    ensure!(waits_min < waits, "only {waits} statements waited; the scripts prove little");
    Ok(())
}

/// Goal: the model answers as PostgreSQL does, and lets those wait whom PostgreSQL lets wait.
/// Method: scripts of three sessions drawn from seeds, each ended by a SIGKILL.
#[test]
fn the_model_answers_as_a_server_does() -> Result<()> {
    judge_scripts(12, 20, run_script)
}

/// One script about tables. Ends with a crash, and with tables that are as they were left.
fn run_script_of_tables(pair: &mut Pair, rng: &mut ChaCha8Rng, steps: u32) -> Result<usize> {
    let mut asked = Asked::new();
    let mut open = [None; SESSIONS];
    let mut used: [BTreeSet<Key>; SESSIONS] = Default::default();
    let (mut next_txn, mut waits) = (0, 0);
    for _ in 0..steps {
        if asked.len() == SESSIONS {
            break;
        }
        let Some(index) = draw_free(rng, &asked) else { continue };
        let own = pair.sessions[index].backend;
        let backends: Vec<_> = pair.sessions.iter().map(|session| session.backend).collect();
        let mut statement = draw_of_tables(rng, open[index], &backends, &mut next_txn);
        if let Statement::Look { of, .. } = &mut statement {
            // It would see itself at work.
            of.remove(&own);
        }
        match &statement {
            Statement::Cancel(of) if of.contains(&own) => continue,
            Statement::Look { of, .. } if of.is_empty() => continue,
            // Two that have a lock and want a stronger one deadlock, which the model does not find.
            Statement::LockTable(table) if used[index].contains(table) => continue,
            Statement::Begin(isolation) => open[index] = Some(*isolation),
            Statement::Commit | Statement::Rollback | Statement::Prepare(_) => open[index] = None,
            _ => (),
        }
        match &statement {
            Statement::Append(table, _) | Statement::PutIn(table, _) => {
                used[index].insert(*table);
            }
            Statement::Read(tables) | Statement::Parse(tables) => used[index].extend(tables),
            _ => (),
        }
        if open[index].is_none() {
            used[index].clear();
        }
        pair.step(index, &statement, &mut asked)?;
        if statement == Statement::LockTable(TABLES[0])
            && open[index] == Some(Isolation::ReadCommitted)
            && !asked.contains_key(&index)
        {
            pair.step(index, &Statement::TakeOut(TABLES[0]), &mut asked)?;
        }
        waits += asked.len();
    }
    pair.crash()?;
    let mut asked = Asked::new();
    for number in 1..=GIDS {
        // What is prepared has kept its tables over the crash.
        pair.step(0, &Statement::Read(TABLES.into()), &mut asked)?;
        pair.step(1, &Statement::CommitPrepared(gid(number)), &mut asked)?;
        if asked.contains_key(&0) {
            pair.step(2, &Statement::Cancel([pair.sessions[0].backend].into()), &mut asked)?;
        }
    }
    pair.step(0, &Statement::Read(TABLES.into()), &mut asked)?;
    ensure!(asked.is_empty(), "somebody still waits");
    Ok(waits)
}

/// Goal: tables are locked, waited for, emptied and filled in the model as on a server, who waits can be
/// cancelled, and a look says the same of those that wait. Method: as above.
#[test]
fn the_model_locks_tables_as_a_server_does() -> Result<()> {
    judge_scripts(16, 40, run_script_of_tables)
}

/// Goal: the arbitration of the commit protocol. Method: recovery's insert waits for the
/// coordinator's open one, and learns what became of it; also by a crash.
#[test]
fn the_record_is_waited_for() -> Result<()> {
    let mut pair = Pair::start()?;
    let mut asked = Asked::new();
    let script = [
        (0, Statement::Begin(Isolation::ReadCommitted)),
        (0, Statement::Append(1, 7)),
        (0, Statement::RecordDecision(gid(1))),
        (1, Statement::ReadOrRefuse(gid(1))),
        (0, Statement::Commit),
        (2, Statement::ReadOrRefuse(gid(2))),
        (0, Statement::Begin(Isolation::ReadCommitted)),
        (0, Statement::RecordDecision(gid(2))),
        (0, Statement::Commit),
        (2, Statement::CommitPrepared(gid(3))),
    ];
    for (index, statement) in script {
        pair.step(index, &statement, &mut asked)?;
    }
    ensure!(asked.is_empty(), "somebody still waits");
    for statement in [
        Statement::Begin(Isolation::ReadCommitted),
        Statement::Append(2, 8),
        Statement::Prepare(gid(3)),
    ] {
        pair.step(0, &statement, &mut asked)?;
    }
    pair.crash()?;
    // The part is there again, and holds its row.
    pair.step(0, &Statement::ListPrepared, &mut asked)?;
    pair.step(1, &Statement::Append(2, 9), &mut asked)?;
    ensure!(asked.contains_key(&1), "the row of a prepared part was free after a crash");
    pair.step(0, &Statement::CommitPrepared(gid(3)), &mut asked)?;
    ensure!(asked.is_empty(), "somebody still waits");
    Ok(())
}
