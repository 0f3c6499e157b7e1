//! Any workload against any endpoint, as a file says.
//!
//! Owns: the clients of a run, what each of them was told, and that a run counts only if what the workload left
//! is what was told. Never: knows what a workload does.
//! Start reading at [`run`]; the file is the matter of `file`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::series::{OutputArgs, Series};
use crate::configuration::{Configuration, Planned};
use crate::ground::share::Shares;
use crate::ground::{Ground, System};
use crate::load::{Client, Crew, Done, Driven, Pace, Step, Window, drive};
use crate::record::Record;
use tutti_lab::workload::dialect::Dialect;
use tutti_lab::workload::lahman::{Inserts, Lahman};
use tutti_lab::workload::session::{Failure, PreparingSession, Session};
use tutti_lab::workload::shop::Shop;
use tutti_lab::workload::ssb::Ssb;
use tutti_lab::workload::tpcc::TpcC;
use tutti_lab::workload::tpch::TpcH;
use tutti_lab::workload::tpcw::TpcW;
use tutti_lab::workload::transfers::{Books, Transfers};
use tutti_lab::workload::ycsb::Ycsb;
use tutti_lab::workload::{Asked, Believed, Found, Outcome, Workload};

mod file;
mod page;
mod requests;

use file::{RunFile, WorkloadSection};
use page::ALL;
pub(crate) use page::page;
use requests::{Requesting, Requests};

pub(crate) const NAME: &str = "run";

/// Files of several systems and workloads may be run into one directory; each is a part of the page of its own.
const CONFIGURATION: Configuration = Configuration {
    kind: &["system", "distances", "workload", "isolation", "requests", "pace", "faults"],
    varies: &["clients", "repetition"],
    shared: &[],
};

const WARM_UP: Duration = Duration::from_millis(500);
/// What a client whose session was lost has to get another one.
const RECONNECT_LIMIT: Duration = Duration::from_secs(30);
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);
/// Where tables are at an endpoint that is somebody's.
const SCHEMA: &str = "lab_run";
const OPENING_BALANCE: i64 = 1_000;

/// `tutti-lab run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// What to run; examples are in docs/lab/examples
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,

    /// The same within seconds: few rows, one number of clients, two seconds
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs what the file says.
pub(crate) async fn run(args: RunArgs) -> anyhow::Result<()> {
    let mut file = RunFile::read(&args.file)?;
    if args.quick {
        file.be_quick();
    }
    match file.workload.clone() {
        WorkloadSection::Lahman(part) => {
            let lahman = Lahman::of(part.csv_dir.as_deref(), Some(part.records))
                .context("workload.csv_dir")?;
            let placement = part.placement();
            run_all(&args, &file, |dialect| Inserts::new(lahman, placement, dialect)).await
        }
        WorkloadSection::Shop(part) => {
            let (size, commit) = (part.size(), part.commit());
            run_all(&args, &file, |dialect| Shop::new(size, part.alters_percent, commit, dialect))
                .await
        }
        WorkloadSection::Transfers(part) => {
            let books = if part.entries { Books::Entries } else { Books::None };
            let make = |dialect| Transfers::new(part.accounts, OPENING_BALANCE, books).on(dialect);
            run_all(&args, &file, make).await
        }
        WorkloadSection::TpcC(part) => {
            let make = |dialect| {
                TpcC::new(part.warehouses, part.scale, dialect).thinking(part.think_times)
            };
            run_all(&args, &file, make).await
        }
        WorkloadSection::Ssb(part) => {
            run_all(&args, &file, |dialect| Ssb::new(part.scale, dialect)).await
        }
        WorkloadSection::TpcH(part) => {
            run_all(&args, &file, |dialect| TpcH::new(part.scale, dialect)).await
        }
        WorkloadSection::TpcW(part) => {
            let make = |dialect| TpcW::new(part.mix(), part.items, part.customers, dialect);
            run_all(&args, &file, make).await
        }
        WorkloadSection::Ycsb(part) => {
            run_all(&args, &file, |dialect| Ycsb::new(part.mix(), part.records, dialect)).await
        }
    }
}

/// Clients and the repetition of a run.
#[derive(Clone, Copy, Debug)]
struct Which {
    clients: u16,
    repetition: u32,
}

fn plan(file: &RunFile) -> anyhow::Result<Vec<(Which, Planned)>> {
    let (system, distances) = (file.system_in_words()?, file.distances_in_words());
    let faults = file.faults_in_words();
    let workload = file.workload_in_words();
    let isolation = file.load.isolation.map(file::IsolationName::name).unwrap_or_default();
    let requests = file.load.requests.in_words();
    let pace = match (file.load.rate_per_s, file.load.think_ms) {
        (Some(rate), _) => format!("{rate} per s"),
        (None, 0.0) => String::new(),
        (None, think_ms) => format!("thinking {think_ms} ms"),
    };
    let dialect = file.dialect().map_or_else(|| "Guess".to_owned(), |it| format!("{it:?}"));
    let mut planned = Vec::new();
    for clients in file.load.clients.iter().copied() {
        for repetition in 1..=file.load.repetitions {
            let said = [&*system, &distances, &workload, isolation, requests, &pace, &faults];
            let said: Vec<&str> = said.into_iter().filter(|word| !word.is_empty()).collect();
            let name = format!("{}, {clients} clients #{repetition}", said.join(", "));
            let mut parameters = BTreeMap::from([
                ("title".to_owned(), Value::from(file.title.as_str())),
                ("system".to_owned(), Value::from(system.as_str())),
                ("distances".to_owned(), Value::from(distances.as_str())),
                ("workload".to_owned(), Value::from(workload.as_str())),
                ("workload_parameters".to_owned(), serde_json::to_value(&file.workload)?),
                ("isolation".to_owned(), Value::from(isolation)),
                ("requests".to_owned(), Value::from(requests)),
                ("pace".to_owned(), Value::from(pace.as_str())),
                ("faults".to_owned(), Value::from(faults.as_str())),
                ("dialect".to_owned(), Value::from(dialect.as_str())),
                ("clients".to_owned(), Value::from(clients)),
                ("repetition".to_owned(), Value::from(repetition)),
            ]);
            if let Some(seconds) = file.seconds() {
                parameters.insert("seconds".to_owned(), Value::from(seconds));
            }
            if let Some(transactions) = file.load.transactions {
                parameters.insert("transactions".to_owned(), Value::from(transactions));
            }
            planned.push((Which { clients, repetition }, Planned { name, parameters }));
        }
    }
    Ok(planned)
}

async fn run_all<W: Workload + Send + Sync + 'static>(
    args: &RunArgs,
    file: &RunFile,
    make: impl FnOnce(Dialect) -> W,
) -> anyhow::Result<()> {
    let planned = plan(file)?;
    let all: Vec<Planned> = planned.iter().map(|(_, run)| run.clone()).collect();
    let mut series = Series::begin(NAME, CONFIGURATION, &args.output, &all)?;
    if series.passes_over(&all) {
        return series.end(page);
    }
    let place = series.make(Place::make(file, make)).await?;
    for (which, Planned { name, parameters }) in planned {
        let machine = series.machine(&place.ground.name);
        let record = async {
            place.ground.tidy().await?;
            let (driven, found) = place.measure(file, which).await?;
            Ok(Record {
                figures: place.figures(found),
                ..Record::of_clients(
                    NAME,
                    &name,
                    parameters,
                    &driven,
                    "what the workload left is what its clients were told",
                    machine,
                )
            })
        };
        series.run(&name, record).await?;
    }
    place.remove().await?;
    series.end(page)
}

/// A system with the tables of a workload.
struct Place<W> {
    ground: Ground,
    /// Somebody's endpoint: what is made there is removed.
    is_others: bool,
    preamble: Vec<String>,
    workload: Arc<W>,
    told: Arc<Told>,
    /// By which the names of this run's requests differ from those of others.
    families: u64,
    _shares: Shares,
}

/// What all clients were told since the tables were made.
#[derive(Debug, Default)]
struct Told {
    /// The number of the last transaction.
    last: AtomicI64,
    asked: Mutex<Asked>,
}

impl Told {
    fn note(&self, number: i64, believed: Believed) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(number, believed);
    }

    fn asked(&self) -> Asked {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<W: Workload + Send + Sync + 'static> Place<W> {
    async fn make(file: &RunFile, make: impl FnOnce(Dialect) -> W) -> anyhow::Result<Self> {
        let system = file.system()?;
        // One more looks afterwards.
        let clients_max = file.load.clients.iter().max().map_or(1, |clients| clients + 1);
        let ground = Ground::make(&system, clients_max, &file.distances()?).await?;
        let is_others = matches!(system, System::Endpoint(_));
        let mut preamble = Vec::new();
        if is_others {
            preamble.push(format!("SET search_path = {SCHEMA}"));
        }
        if let Some(isolation) = file.load.isolation {
            preamble.push(format!("SET default_transaction_isolation = '{}'", isolation.name()));
        }
        let mut session = connect(&ground.url, &preamble).await?;
        let dialect = match file.dialect() {
            Some(dialect) => dialect,
            None => Dialect::guess(&mut session).await?,
        };
        let workload = Arc::new(make(dialect));
        if is_others {
            for sql in [
                format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"),
                format!("CREATE SCHEMA {SCHEMA}"),
            ] {
                session.query(&sql).await.context(sql)?;
            }
        }
        workload.setup(&mut session).await.context("cannot make the tables")?;
        preamble.extend(workload.settings());
        // Only now, for to fill the tables would take long with so little.
        let shares = match file.share_percent() {
            Some(percent) => Shares::give(&ground.pids(), percent)
                .context("system.share_percent: the processor cannot be limited here")?,
            None => Shares::default(),
        };
        Ok(Self {
            ground,
            is_others,
            preamble,
            workload,
            told: Arc::default(),
            families: rand::random(),
            _shares: shares,
        })
    }

    async fn measure(&self, file: &RunFile, run: Which) -> anyhow::Result<(Driven, Found)> {
        let left = file.load.transactions.map(|count| Arc::new(AtomicU64::new(count)));
        let mut clients: Vec<Box<dyn Client>> = Vec::new();
        for number in 0..run.clients {
            let seed = u64::from(number) << 32 | u64::from(run.repetition);
            clients.push(Box::new(Worker {
                session: connect(&self.ground.url, &self.preamble).await?,
                url: self.ground.url.clone(),
                preamble: self.preamble.clone(),
                random: StdRng::seed_from_u64(seed),
                workload: self.workload.clone(),
                told: self.told.clone(),
                left: left.clone(),
                kind: "",
                requests: file.load.requests,
                sibling: None,
                families: self.families,
            }));
        }
        let pace = match file.load.rate_per_s {
            Some(per_s) => Pace::Open { per_s },
            None => Pace::Closed { think: Duration::from_secs_f64(file.load.think_ms / 1_000.0) },
        };
        let crew = Crew { kind: ALL, pace, clients, decides: true };
        let lasts = file.seconds().map(Duration::from_secs);
        // What is counted out begins at once: all of it counts.
        let warm_up = if lasts.is_some() { WARM_UP } else { Duration::ZERO };
        let faults = file.faults();
        let from = Instant::now() + warm_up;
        let driving = drive(vec![crew], Window { warm_up, lasts }, Arc::default());
        let (driven, ()) = tokio::try_join!(driving, self.ground.suffer(&faults, from))?;
        if !faults.is_empty() {
            self.ground.settle().await?;
        }
        Ok((driven, self.check().await.context("after the run")?))
    }

    /// Where the servers can be asked themselves, they and the gateway must say the same.
    async fn check(&self) -> anyhow::Result<Found> {
        let asked = self.told.asked();
        let mut gateway = connect(&self.ground.url, &self.preamble).await?;
        if self.ground.node_urls.len() < 2 || self.ground.standby_url.is_some() {
            return self.workload.check(&mut [gateway], None, &asked).await;
        }
        let mut nodes = Vec::new();
        for url in &self.ground.node_urls {
            nodes.push(PreparingSession::connect(url).await?);
        }
        self.workload.check(&mut nodes, Some(&mut gateway), &asked).await
    }

    /// How what all clients believed since the tables were made has turned out.
    fn figures(&self, found: Found) -> BTreeMap<String, f64> {
        let told = self.workload.figures(&self.told.asked());
        let counts = [
            ("told_acknowledged", told.acknowledged),
            ("told_refused", told.refused),
            ("told_nothing", told.unknown),
            ("found_acknowledged", found.acknowledged),
            ("found_unknown_done", found.unknown_done),
            ("found_unknown_absent", found.unknown_absent),
        ];
        counts.into_iter().map(|(name, count)| (name.to_owned(), count as f64)).collect()
    }

    async fn remove(self) -> anyhow::Result<()> {
        if self.is_others {
            let mut session = connect(&self.ground.url, &[]).await?;
            session.query(&format!("DROP SCHEMA {SCHEMA} CASCADE")).await?;
        }
        self.ground.remove().await
    }
}

async fn connect(url: &str, preamble: &[String]) -> anyhow::Result<PreparingSession> {
    let mut session = PreparingSession::connect(url).await?;
    for sql in preamble {
        session.query(sql).await.with_context(|| sql.clone())?;
    }
    Ok(session)
}

/// A client that runs transactions of a workload.
struct Worker<W> {
    session: PreparingSession,
    url: String,
    preamble: Vec<String>,
    random: StdRng,
    workload: Arc<W>,
    told: Arc<Told>,
    /// How many are left to do for all clients, where they are counted out.
    left: Option<Arc<AtomicU64>>,
    kind: &'static str,
    requests: Requests,
    /// The session of the last request's first instance, where there are two.
    sibling: Option<PreparingSession>,
    families: u64,
}

impl<W: Workload + Send + Sync + 'static> Worker<W> {
    /// Whether there is one more to do.
    fn takes_one(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        self.left.as_ref().is_none_or(|left| {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
        })
    }

    async fn work(&mut self) -> anyhow::Result<Done> {
        if !self.takes_one() {
            return Ok(Done::Nothing);
        }
        let number = self.told.last.fetch_add(1, Ordering::Relaxed) + 1;
        let outcome = match self.requests {
            Requests::None => {
                self.workload.transaction(&mut self.session, number, &mut self.random).await?
            }
            Requests::Each => self.request(number, 1).await?,
            Requests::AfterSibling => {
                self.leave_pending(number).await?;
                self.request(number, 2).await?
            }
        };
        self.kind = outcome.kind;
        self.told.note(number, outcome.believed);
        match outcome.failure {
            // Also what was to be rolled back, and was.
            None => Ok(Done::Right),
            Some(Failure::Error { sqlstate, .. }) => {
                match self.session.query("ROLLBACK").await {
                    Err(lost @ Failure::Lost { .. }) => self.connect_again(number, &lost).await?,
                    rolled_back => drop(rolled_back?),
                }
                Ok(Done::Failed(sqlstate))
            }
            Some(lost @ Failure::Lost { .. }) => {
                self.connect_again(number, &lost).await?;
                Ok(Done::Failed("lost".to_owned()))
            }
        }
    }

    /// Kept where the rows are that the transaction is about, if it says which.
    fn family(&self, number: i64) -> String {
        let kept = self.workload.key_of(number).map(|key| format!("{{{key}}}/"));
        format!("{}{:x}/{number}", kept.unwrap_or_default(), self.families)
    }

    async fn request(&mut self, number: i64, instance: u32) -> anyhow::Result<Outcome> {
        let family = self.family(number);
        let session = &mut self.session;
        let mut session = Requesting { session, family, instance, stays_pending: false };
        self.workload.transaction(&mut session, number, &mut self.random).await
    }

    /// The first instance does all that the second will, and stays there. What it is told does not matter.
    async fn leave_pending(&mut self, number: i64) -> anyhow::Result<()> {
        let family = self.family(number);
        // The one before has been ended by its second instance.
        let session = self.sibling.insert(connect(&self.url, &self.preamble).await?);
        let mut session = Requesting { session, family, instance: 1, stays_pending: true };
        let mut random = self.random.clone();
        self.workload.transaction(&mut session, number, &mut random).await.map(drop)
    }

    /// After transaction `number` lost its session.
    async fn connect_again(&mut self, number: i64, lost: &Failure) -> anyhow::Result<()> {
        tracing::warn!(%lost, number, "a session is lost");
        let begun = Instant::now();
        loop {
            match connect(&self.url, &self.preamble).await {
                Ok(session) => {
                    self.session = session;
                    return Ok(());
                }
                Err(error) if RECONNECT_LIMIT < begun.elapsed() => return Err(error),
                Err(_) => sleep(RECONNECT_PAUSE).await,
            }
        }
    }
}

impl<W: Workload + Send + Sync + 'static> Client for Worker<W> {
    fn step(&mut self) -> Step<'_> {
        Box::pin(self.work())
    }

    fn pause(&mut self) -> Duration {
        self.workload.pause(self.kind, &mut self.random)
    }

    fn kind(&self) -> Option<&'static str> {
        (!self.kind.is_empty()).then_some(self.kind)
    }
}
