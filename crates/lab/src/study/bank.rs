//! Accounts on a system of the lab's own, and clients that move money between them: what several studies measure.
//!
//! Owns: the table, the movers, and that no money is lost or made. Never: decides where accounts are far from.
//! Start reading at [`Bank`].

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::ground::{Distances, Ground, System};
use crate::load::{Client, Crew, Done, Driven, Pace, Step, Window, drive};
use tutti_lab::accounts::Accounts;
use tutti_lab::workload::session::{Failure, PreparingSession, Session};
use tutti_lab::workload::transfers::Transfers;
use tutti_lab::workload::{Asked, Workload};

/// The table of accounts, and its key.
pub(super) const TABLE: &str = "lab_account";
pub(super) const KEY: &str = "id";
pub(super) const OPENING_BALANCE: i64 = 1_000;
/// What the movers are called in figures.
pub(super) const TRANSFERS: &str = "transfers";
/// What [`check`] has shown.
pub(super) const CHECKED: &str = "at rest the accounts hold all the money there is";

/// A system with accounts.
#[derive(Debug)]
pub(super) struct Bank {
    pub ground: Ground,
    accounts: Accounts,
    transfers: Transfers,
}

impl Bank {
    /// Starts the system for so many clients, and makes so many accounts.
    pub(super) async fn open(
        system: &System,
        clients: u16,
        distances: &Distances,
        accounts: i64,
    ) -> anyhow::Result<Self> {
        let ground = Ground::make(system, clients, distances).await?;
        let columns = format!(
            "CREATE TABLE {TABLE} ({KEY} bigint PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50)"
        );
        let made_by = match system {
            System::Tutti { .. } => format!("{columns} DISTRIBUTE BY HASH ({KEY})"),
            _ => columns,
        };
        let transfers = Transfers::without_books(accounts, OPENING_BALANCE, TABLE, KEY);
        let transfers = transfers.made_by(&made_by);
        let mut session = PreparingSession::connect(&ground.url).await?;
        transfers.setup(&mut session).await.context("cannot make the accounts")?;
        let accounts = Accounts::ask_nodes(&ground.node_urls, TABLE, KEY).await?;
        Ok(Self { ground, accounts, transfers })
    }

    /// So many clients, dealt out over the nodes, that move money on their node, or between two with a
    /// probability of `global`. Each says `preamble` first.
    pub(super) async fn movers(
        &self,
        count: u16,
        global: f64,
        preamble: Option<&str>,
    ) -> anyhow::Result<Crew> {
        let mut clients: Vec<Box<dyn Client>> = Vec::new();
        for number in 0..count {
            let mut session = PreparingSession::connect(&self.ground.url).await?;
            if let Some(said) = preamble {
                session.query(said).await.with_context(|| said.to_owned())?;
            }
            session.prepare(self.transfers.update_sql()).await?;
            clients.push(Box::new(Mover {
                session,
                random: StdRng::seed_from_u64(u64::from(number)),
                accounts: self.accounts.clone(),
                transfers: self.transfers.clone(),
                node: usize::from(number),
                global,
            }));
        }
        let pace = Pace::Closed { think: Duration::ZERO };
        Ok(Crew { kind: TRANSFERS, pace, clients, decides: true })
    }

    /// Lets them work for so many seconds behind a warm-up; `steps` counts those of the warm-up, too.
    pub(super) async fn work(
        &self,
        movers: Crew,
        warm_up: Duration,
        seconds: u64,
        steps: Arc<AtomicU64>,
    ) -> anyhow::Result<Driven> {
        let window = Window { warm_up, lasts: Some(Duration::from_secs(seconds)) };
        drive(vec![movers], window, steps).await
    }

    /// See [`check`].
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        check(&self.ground.url, &self.transfers).await
    }
}

/// Errors: the accounts do not hold all the money there is.
pub(super) async fn check(url: &str, transfers: &Transfers) -> anyhow::Result<()> {
    let mut whole = vec![PreparingSession::connect(url).await?];
    transfers.check(&mut whole, None, &Asked::new()).await.context("after the run")?;
    Ok(())
}

/// What came of a transaction, which is rolled back and counted if it was refused.
///
/// Errors: the session is lost: a run whose clients vanish measures nothing.
pub(super) async fn done(
    session: &mut PreparingSession,
    failure: Option<Failure>,
) -> anyhow::Result<Done> {
    match failure {
        None => Ok(Done::Right),
        Some(Failure::Error { sqlstate, .. }) => {
            session.query("ROLLBACK").await?;
            Ok(Done::Failed(sqlstate))
        }
        Some(lost @ Failure::Lost { .. }) => Err(lost.into()),
    }
}

/// Moves money on its node, or between two.
struct Mover {
    session: PreparingSession,
    random: StdRng,
    accounts: Accounts,
    transfers: Transfers,
    node: usize,
    /// The probability that a transfer is between nodes.
    global: f64,
}

impl Client for Mover {
    fn step(&mut self) -> Step<'_> {
        Box::pin(async {
            let transfer = match self.random.random_bool(self.global) {
                true => self.accounts.transfer_between_nodes(&mut self.random),
                false => self.accounts.transfer_on(self.node, &mut self.random),
            };
            let outcome = self.transfers.transfer(&mut self.session, 0, transfer).await?;
            done(&mut self.session, outcome.failure).await
        })
    }
}
