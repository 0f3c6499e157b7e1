//! The simulator's model of one node's SERIALIZABLE against a real server: the same scripts, the same
//! refusals, the same rows.
//!
//! Owns: the SQL that each step stands for, and the scripts, drawn from seeds.
//! Never: lets a session wait: a step that would is not drawn.
//! Start reading at [`Pair::step`].
//!
//! Where the model deviates it shows here, in both directions: what the server refuses and the model does
//! not, and the reverse. Every row is a table of its own, read as a whole, so that SIREAD locks are as
//! coarse on the server as they are in the model.

use anyhow::{Context, Result, bail, ensure};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tutti_embed::Cluster;
use tutti_sim::serial::ssi::{Node, Refused, Row, Sx};
use tutti_tests::answer::Outcome;
use tutti_tests::client::Client;
use tutti_tests::servers;

const SESSIONS: usize = 4;
const ROWS: u8 = 3;
/// As many as a set of the model can hold.
const TRANSACTIONS: u8 = 15;
const SCRIPTS: u64 = 400;
/// Those with a restart in the middle.
const RESTARTS: u64 = 40;

/// What a session does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin { read_only: bool },
    Read(Row),
    Write(Row),
    InsertTicket,
    ReadTickets,
    Savepoint,
    RollbackTo,
    Commit,
    Prepare,
    Rollback,
    CommitPrepared(Sx),
    RollbackPrepared(Sx),
}

/// A session's transaction.
#[derive(Clone, Copy, Debug)]
struct Open {
    sx: Sx,
    is_read_only: bool,
    has_snapshot: bool,
    has_failed: bool,
    /// What it had written, and whether it had a ticket, at its savepoint.
    savepoint: Option<(u16, bool)>,
}

/// A server and its model.
struct Pair {
    clients: Vec<Client>,
    model: Node,
    open: [Option<Open>; SESSIONS],
    prepared: Vec<Sx>,
    begun: u8,
    may_begin: u8,
    refusals: u32,
    done: Vec<String>,
}

fn sql(step: Step, sx: Sx) -> String {
    let Sx(number) = sx;
    match step {
        Step::Begin { read_only: false } => "BEGIN ISOLATION LEVEL SERIALIZABLE".to_owned(),
        Step::Begin { read_only: true } => {
            "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY".to_owned()
        }
        Step::Read(Row(row)) => format!("SELECT v FROM row{row}"),
        Step::Write(Row(row)) => format!("UPDATE row{row} SET v = {number} RETURNING v"),
        Step::InsertTicket => format!("INSERT INTO ticket VALUES ({number})"),
        Step::ReadTickets => "SELECT count(*) FROM ticket".to_owned(),
        Step::Savepoint => "SAVEPOINT s".to_owned(),
        Step::RollbackTo => "ROLLBACK TO SAVEPOINT s".to_owned(),
        Step::Commit => "COMMIT".to_owned(),
        Step::Prepare => format!("PREPARE TRANSACTION 'p{number}'"),
        Step::Rollback => "ROLLBACK".to_owned(),
        Step::CommitPrepared(Sx(number)) => format!("COMMIT PREPARED 'p{number}'"),
        Step::RollbackPrepared(Sx(number)) => format!("ROLLBACK PREPARED 'p{number}'"),
    }
}

/// `Ok`: the value of the row, where one is read.
type Answer = Result<Option<String>, Refused>;

impl Pair {
    fn new(endpoint: &tutti_tests::client::Endpoint) -> Result<Self> {
        let mut admin = Client::connect(endpoint)?;
        admin.query("DROP TABLE IF EXISTS ticket; CREATE TABLE ticket (sx int)")?;
        for row in 0..ROWS {
            admin.query(&format!(
                "DROP TABLE IF EXISTS row{row}; CREATE TABLE row{row} (v int); \
                 INSERT INTO row{row} VALUES (-1)"
            ))?;
        }
        let clients = (0..SESSIONS).map(|_| Client::connect(endpoint)).collect::<Result<_>>()?;
        Ok(Self {
            clients,
            model: Node::new(ROWS),
            open: [None; SESSIONS],
            prepared: Vec::new(),
            begun: 0,
            may_begin: TRANSACTIONS,
            refusals: 0,
            done: Vec::new(),
        })
    }

    /// The same on both, which must answer alike.
    fn step(&mut self, session: usize, step: Step) -> Result<()> {
        let sx = match self.open[session] {
            Some(open) => open.sx,
            None => Sx(self.begun),
        };
        let text = sql(step, sx);
        self.done.push(format!("{session}: {text}"));
        let told = self.ask_server(session, &text).with_context(|| format!("{:#?}", self.done))?;
        let expected = self.ask_model(session, step, sx);
        ensure!(told == expected, "server {told:?}, model {expected:?}: {:#?}", self.done);
        if told.is_err() {
            self.refusals += 1;
            self.refused(session, step)?;
        }
        Ok(())
    }

    fn ask_server(&mut self, session: usize, text: &str) -> Result<Answer> {
        let answer = self.clients[session].simple(text, &[])?;
        if let Some(error) = answer.error() {
            ensure!(error.sqlstate() == "40001", "{text}: {error:?}");
            return Ok(Err(Refused));
        }
        let reads = text.starts_with("SELECT v") || text.starts_with("UPDATE");
        match answer.outcomes.last() {
            Some(Outcome::Rows { rows, .. }) if reads => {
                let value = rows[0][0].as_ref().context("a value")?;
                Ok(Ok(Some(String::from_utf8_lossy(value).into_owned())))
            }
            Some(Outcome::Done { tag }) if tag == "ROLLBACK" && text.starts_with("PREPARE") => {
                bail!("prepared a failed transaction")
            }
            _ => Ok(Ok(None)),
        }
    }

    fn ask_model(&mut self, session: usize, step: Step, sx: Sx) -> Answer {
        let value = |writer: Option<Sx>| writer.map_or("-1".to_owned(), |Sx(n)| n.to_string());
        if let Some(open) = &mut self.open[session] {
            let queries = matches!(
                step,
                Step::Read(_) | Step::Write(_) | Step::InsertTicket | Step::ReadTickets
            );
            if queries && !open.has_snapshot {
                open.has_snapshot = true;
                self.model.begin(sx, self.model.snapshot(), open.is_read_only);
            }
        }
        let has_begun = self.open[session].is_some_and(|open| open.has_snapshot);
        match step {
            Step::Begin { read_only: is_read_only } => {
                self.begun += 1;
                self.open[session] = Some(Open {
                    sx,
                    is_read_only,
                    has_snapshot: false,
                    has_failed: false,
                    savepoint: None,
                });
            }
            Step::Read(row) => return Ok(Some(value(self.model.read(sx, row)?))),
            Step::Write(row) => {
                self.model.write(sx, row)?;
                return Ok(Some(value(Some(sx))));
            }
            Step::InsertTicket => self.model.insert_ticket(sx)?,
            Step::ReadTickets => self.model.read_tickets(sx)?,
            Step::Savepoint => {
                let state = (self.model.pending(sx), self.model.has_ticket(sx));
                if let Some(open) = &mut self.open[session] {
                    open.savepoint = Some(state);
                }
            }
            Step::RollbackTo => {
                if let Some(open) = &mut self.open[session]
                    && let Some((rows, ticket)) = open.savepoint
                {
                    open.has_failed = false;
                    self.model.undo(sx, !rows, !ticket);
                }
            }
            Step::Commit => {
                if has_begun {
                    self.model.prepare(sx, false)?;
                    self.model.commit(sx);
                }
                self.open[session] = None;
            }
            Step::Prepare => {
                self.model.prepare(sx, true)?;
                self.prepared.push(sx);
                self.open[session] = None;
            }
            Step::Rollback => {
                if has_begun {
                    self.model.roll_back(sx);
                }
                self.open[session] = None;
            }
            Step::CommitPrepared(sx) => {
                self.prepared.retain(|other| *other != sx);
                self.model.commit(sx);
            }
            Step::RollbackPrepared(sx) => {
                self.prepared.retain(|other| *other != sx);
                self.model.roll_back(sx);
            }
        }
        Ok(None)
    }

    /// The transaction has failed; it can go back to its savepoint, unless that was its end.
    fn refused(&mut self, session: usize, step: Step) -> Result<()> {
        let Some(open) = &mut self.open[session] else { return Ok(()) };
        open.has_failed = true;
        let sx = open.sx;
        if matches!(step, Step::Commit | Step::Prepare) {
            self.model.roll_back(sx);
            self.open[session] = None;
        } else if let Some((rows, ticket)) = open.savepoint {
            // The server undoes it now, not when it is told to roll back.
            self.model.undo(sx, !rows, !ticket);
        } else {
            self.step(session, Step::Rollback)?;
        }
        Ok(())
    }

    /// What the session may do now without waiting.
    fn draw(&self, session: usize, rng: &mut ChaCha8Rng) -> Option<Step> {
        let row = Row(rng.random_range(0..ROWS));
        let Some(open) = self.open[session] else {
            let prepared = self.prepared.get(rng.random_range(0..SESSIONS)).copied();
            return match (prepared, rng.random_range(0..4)) {
                (Some(sx), 0) => Some(Step::CommitPrepared(sx)),
                (Some(sx), 1) if rng.random_range(0..3) == 0 => Some(Step::RollbackPrepared(sx)),
                _ => {
                    let begin = Step::Begin { read_only: rng.random_range(0..5) == 0 };
                    (self.begun < self.may_begin).then_some(begin)
                }
            };
        };
        if open.has_failed {
            return Some(if rng.random() { Step::RollbackTo } else { Step::Rollback });
        }
        if open.is_read_only {
            return Some(match rng.random_range(0..100) {
                0..60 => Step::Read(row),
                60..80 => Step::ReadTickets,
                80..95 => Step::Commit,
                _ => Step::Rollback,
            });
        }
        Some(match rng.random_range(0..100) {
            0..30 => Step::Read(row),
            30..58 if open.has_snapshot && self.model.waits(open.sx, row) => return None,
            30..58 if !open.has_snapshot && self.is_held(row) => return None,
            30..58 => Step::Write(row),
            58..68 => Step::InsertTicket,
            68..74 => Step::ReadTickets,
            74..79 if open.has_snapshot && open.savepoint.is_none() => Step::Savepoint,
            79..82 if open.savepoint.is_some() => Step::RollbackTo,
            82..92 => Step::Commit,
            92..98 if open.has_snapshot => Step::Prepare,
            98 => Step::Rollback,
            _ => return None,
        })
    }

    fn is_held(&self, row: Row) -> bool {
        // There is no number 15.
        self.model.waits(Sx(TRANSACTIONS), row)
    }

    /// The server comes down and up again.
    fn restart(&mut self, servers: &mut Cluster) -> Result<()> {
        self.done.push("restart".to_owned());
        servers.server_mut(0).kill9()?;
        servers.server_mut(0).start()?;
        let endpoint = servers::endpoint(servers, 0);
        self.clients = (0..SESSIONS).map(|_| Client::connect(&endpoint)).collect::<Result<_>>()?;
        self.open = [None; SESSIONS];
        self.model.restart();
        Ok(())
    }

    /// So many steps of the script.
    fn play(&mut self, steps: u32, rng: &mut ChaCha8Rng) -> Result<()> {
        for _ in 0..steps {
            let session = rng.random_range(0..SESSIONS);
            if let Some(step) = self.draw(session, rng) {
                self.step(session, step)?;
            }
        }
        Ok(())
    }

    /// Ends whatever is left.
    fn finish(&mut self) -> Result<()> {
        for session in 0..SESSIONS {
            if self.open[session].is_some() {
                self.step(session, Step::Rollback)?;
            }
        }
        for sx in self.prepared.clone() {
            self.step(0, Step::CommitPrepared(sx))?;
        }
        Ok(())
    }
}

/// Goal: the model refuses what a server refuses, and nothing else.
/// Method: scripts of four sessions drawn from seeds, with prepared transactions and savepoints.
#[test]
fn the_model_refuses_what_a_server_refuses() -> Result<()> {
    let servers = servers::durable_with(1, &[("autovacuum", "off")])?;
    let endpoint = servers::endpoint(&servers, 0);
    let mut refusals = 0;
    for seed in 0..SCRIPTS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut pair = Pair::new(&endpoint)?;
        pair.play(120, &mut rng).with_context(|| format!("script {seed}"))?;
        pair.finish().with_context(|| format!("script {seed}"))?;
        refusals += pair.refusals;
    }
    println!("{SCRIPTS} scripts, {refusals} refusals on both");
    ensure!(
        SCRIPTS / 2 < u64::from(refusals),
        "only {refusals} refusals; the scripts prove little"
    );
    Ok(())
}

/// Goal: the model knows what a restart leaves of those who are prepared.
/// Method: the same, with a restart in the middle of each script.
#[test]
fn the_model_knows_what_a_restart_leaves() -> Result<()> {
    let mut servers = servers::durable_with(1, &[("autovacuum", "off")])?;
    let mut refusals = 0;
    for seed in 0..RESTARTS {
        let mut rng = ChaCha8Rng::seed_from_u64(10_000 + seed);
        let mut pair = Pair::new(&servers::endpoint(&servers, 0))?;
        pair.may_begin = TRANSACTIONS / 2;
        // Not before one has prepared.
        for _ in 0..10 {
            pair.play(10, &mut rng).with_context(|| format!("script {seed}"))?;
            if 2 <= pair.prepared.len() {
                break;
            }
        }
        pair.restart(&mut servers)?;
        let before = pair.refusals;
        pair.may_begin = TRANSACTIONS;
        pair.play(60, &mut rng).with_context(|| format!("script {seed}"))?;
        pair.finish().with_context(|| format!("script {seed}"))?;
        refusals += pair.refusals - before;
    }
    println!("{RESTARTS} scripts, {refusals} refusals behind the restart on both");
    ensure!(RESTARTS / 2 < u64::from(refusals), "only {refusals} refusals");
    Ok(())
}
