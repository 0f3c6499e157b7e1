//! Running one interleaving at one stage.
//!
//! Owns: the sessions (a thread each, for a statement may wait) and the moment at which a step is
//! over: every session has been answered or waits for another of the script. A session that waits
//! can be given further statements; they follow in order.
//! Never: judges. Start reading at [`run`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::record::{Answered, Entry, Record, Told};
use super::script::{Level, Script, Step};
use super::stage::Stage;
use super::watch::{Watch, naming};
use crate::client::{Client, Endpoint, Flight, Request};

/// How long a statement may do neither: answer, or wait for a session of the script. Long, because
/// reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(30);
/// A gateway may let a statement wait without any node knowing (READ ONLY DEFERRABLE). In scripts
/// whose reads may be of another moment, one that is silent for so long counts as waiting: whether it
/// does changes when its answer is collected, not whether the condition holds.
const SILENCE: Duration = Duration::from_secs(1);
/// How long to listen for answers between two checks of which sessions wait.
const LOOK_EVERY: Duration = Duration::from_millis(4);
/// For so long a failed transaction may hold locks that it gives back.
const LOCKS_GIVEN_BACK: Duration = Duration::from_millis(500);

/// By which protocol statements are sent.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Protocol {
    /// Query messages.
    Simple,
    /// Parse, Bind, Describe, Execute and Sync in one write.
    Extended,
}

/// A statement on its way to a session, or its answer on the way back.
struct Mail<T> {
    session: String,
    line: usize,
    content: T,
}

/// The sessions of a run.
struct Cast<'a> {
    stage: &'a Stage,
    watch: Watch,
    may_wait_unseen: bool,
    inboxes: BTreeMap<String, Sender<Mail<String>>>,
    answers: Receiver<Mail<Told>>,
    /// Statements without an answer, per session.
    unanswered: BTreeMap<String, usize>,
    /// Sessions inside a transaction as far as they were told, and whether that has failed.
    in_transaction: BTreeMap<String, bool>,
}

/// Runs a script at a stage, on fresh tables.
///
/// Errors: the stage cannot be set up; a statement neither answers nor waits for another session; a
/// transaction is left open.
pub fn run(
    script: &Script,
    stage: &Stage,
    level: Option<Level>,
    protocol: Protocol,
) -> Result<Record> {
    stage.set_up(script).context("set up")?;
    let mut cast = Cast::assemble(script, stage, protocol)?;
    let mut record = Record::default();
    for (line, step) in &script.steps {
        let told = cast.play(*line, step, level);
        record.entries.push(told.with_context(|| format!("line {line}, after\n{record}"))?);
    }
    let left: Vec<_> = cast.pending().into_iter().chain(cast.in_transaction.into_keys()).collect();
    ensure!(left.is_empty(), "{left:?} do not come to an end:\n{record}");
    drop(cast.inboxes);
    // Every thread ends its session before it drops its end of the channel.
    while cast.answers.recv().is_ok() {}
    stage.check_clean()?;
    Ok(record)
}

/// A session's life: statement by statement, until no more can be sent.
fn live(
    endpoint: &Endpoint,
    name: &str,
    protocol: Protocol,
    inbox: &Receiver<Mail<String>>,
    answers: &Sender<Mail<Told>>,
) {
    let mut client = Client::connect(endpoint).and_then(|mut client| {
        client.query(&naming(name))?;
        Ok(client)
    });
    while let Ok(Mail { session, line, content: sql }) = inbox.recv() {
        let answer = match &mut client {
            Ok(client) => send(client, &sql, protocol),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        let told = answer.map_or_else(|error| Told::lost(&error), |answer| Told::by(&answer));
        if answers.send(Mail { session, line, content: told }).is_err() {
            return;
        }
    }
}

fn send(client: &mut Client, sql: &str, protocol: Protocol) -> Result<crate::answer::Answer> {
    match protocol {
        Protocol::Extended if !sql.contains(';') => {
            client.extended(&Request { sql, ..Request::default() }, Flight::OneFlight, &[])
        }
        Protocol::Extended | Protocol::Simple => client.simple(sql, &[]),
    }
}

impl<'a> Cast<'a> {
    fn assemble(script: &Script, stage: &'a Stage, protocol: Protocol) -> Result<Self> {
        let (answered, answers) = mpsc::channel();
        let mut inboxes = BTreeMap::new();
        for name in script.sessions() {
            let (inbox, statements) = mpsc::channel();
            inboxes.insert(name.to_owned(), inbox);
            let (endpoint, answered) = (stage.endpoint.clone(), answered.clone());
            let name = name.to_owned();
            thread::spawn(move || live(&endpoint, &name, protocol, &statements, &answered));
        }
        Ok(Self {
            stage,
            watch: Watch::over(&stage.servers)?,
            may_wait_unseen: script.other_moment,
            inboxes,
            answers,
            unanswered: BTreeMap::new(),
            in_transaction: BTreeMap::new(),
        })
    }

    fn pending(&self) -> BTreeSet<String> {
        self.unanswered.keys().cloned().collect()
    }

    fn play(&mut self, line: usize, step: &Step, level: Option<Level>) -> Result<Entry> {
        let mut answers = Vec::new();
        let text = match step {
            Step::Say { session, sql, .. } => {
                let sql = self.stage.fill(sql, level);
                let text = format!("{session}: {sql}");
                self.say(session, line, sql)?;
                text
            }
            Step::Await => {
                answers.extend(self.await_one()?);
                "await".to_owned()
            }
        };
        let waiting = self.settle(&mut answers)?;
        answers.sort_by(|x, y| (&x.session, x.line).cmp(&(&y.session, y.line)));
        Ok(Entry { line, step: text, answers, waiting })
    }

    fn say(&mut self, session: &str, line: usize, sql: String) -> Result<()> {
        *self.unanswered.entry(session.to_owned()).or_default() += 1;
        let mail = Mail { session: session.to_owned(), line, content: sql };
        let inbox = self.inboxes.get(session).context("no such session")?;
        inbox.send(mail).ok().context("the session's thread is gone")
    }

    /// The next answer to a session that waits; `None` if none does any more.
    fn await_one(&mut self) -> Result<Option<Answered>> {
        if self.unanswered.is_empty() {
            return Ok(None);
        }
        let Ok(mail) = self.answers.recv_timeout(PATIENCE) else {
            bail!("{:?} wait for ever", self.pending());
        };
        Ok(Some(self.note(mail)))
    }

    fn note(&mut self, mail: Mail<Told>) -> Answered {
        let Mail { session, line, content: told } = mail;
        if let Some(count) = self.unanswered.get_mut(&session) {
            *count -= 1;
            if *count == 0 {
                self.unanswered.remove(&session);
            }
        }
        match told.status {
            status @ ('T' | 'E') => self.in_transaction.insert(session.clone(), status == 'E'),
            _ => self.in_transaction.remove(&session),
        };
        Answered { session, line, told }
    }

    /// Whether all of these wait for one another, or for sessions in transactions that have failed or not, as
    /// `is_meant` says.
    fn wait_for(
        &mut self,
        pending: &BTreeSet<String>,
        is_meant: impl Fn(bool) -> bool,
    ) -> Result<bool> {
        let holders = self.in_transaction.iter().filter(|(_, failed)| is_meant(**failed));
        let holders: BTreeSet<_> =
            holders.map(|(session, _)| session).chain(pending).cloned().collect();
        Ok(self.watch.blocked_by(&holders)?.is_superset(pending))
    }

    /// Collects answers until every session that is left waits for another of the script.
    ///
    /// Seen twice in a row: the servers are checked one after another, and between two checks a
    /// waiter may have been released. One that waits for none that could hold a lock is about to
    /// proceed; one that waits for a failed transaction, too, unless that holds locks from before a savepoint: servers tell
    /// of an error before they give back what it had locked.
    fn settle(&mut self, answers: &mut Vec<Answered>) -> Result<Vec<String>> {
        let began = Instant::now();
        let limit = began + PATIENCE;
        let (mut was_still, mut still_since) = (false, None);
        loop {
            let before = answers.len();
            while !self.unanswered.is_empty() {
                let Ok(mail) = self.answers.recv_timeout(LOOK_EVERY) else { break };
                answers.push(self.note(mail));
            }
            let pending = self.pending();
            if pending.is_empty() {
                return Ok(Vec::new());
            }
            let is_silent = self.may_wait_unseen && SILENCE < began.elapsed();
            let is_still = if is_silent || self.wait_for(&pending, |failed| !failed)? {
                true
            } else if self.wait_for(&pending, |_| true)? {
                LOCKS_GIVEN_BACK < still_since.get_or_insert_with(Instant::now).elapsed()
            } else {
                still_since = None;
                false
            };
            if is_still && was_still && answers.len() == before {
                return Ok(pending.into_iter().collect());
            }
            was_still = is_still;
            ensure!(
                Instant::now() < limit,
                "{pending:?} neither answer nor wait for another session"
            );
        }
    }
}
