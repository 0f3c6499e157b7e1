//! What a run's file says.
//!
//! Owns: the format, what it leaves open, and what it may not say. Never: starts anything.
//! Start reading at [`RunFile`]; examples are in docs/lab/examples.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::requests::Requests;
use crate::ground::{Component, Distances, Fault, FaultKind, System};
use crate::password::without_password;
use tutti_lab::distance::{Shipped, Stretch};
use tutti_lab::workload::dialect::Dialect;
use tutti_lab::workload::lahman::Placement;
use tutti_lab::workload::shop::{Commit, Data, Size};
use tutti_lab::workload::tpcw;
use tutti_lab::workload::ycsb::Mix;

const CLIENTS_MAX: u16 = 1_000;
const NODES_MAX: u16 = 32;
const SECONDS_BY_DEFAULT: u64 = 10;
/// A server that was killed takes half a second to come back.
const QUICK_SECONDS_OF_FAULTS: u64 = 6;
/// The files have fewer than half of it.
const LAHMAN_RECORDS_MAX: usize = 1_000_000;
/// Of the shop's; the numbers of purchases are made of a transaction's and a statement's.
const ALTER_STATEMENTS_MAX: u32 = 10_000;
const SHOPPERS_MAX: i64 = 10_000_000;
const DATA_BYTES_MAX: u32 = 1_000_000;

/// A file.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct RunFile {
    /// For the page.
    pub title: String,
    system: SystemSection,
    #[serde(default)]
    distances: DistancesSection,
    pub workload: WorkloadSection,
    pub load: LoadSection,
    #[serde(default)]
    faults: Vec<FaultSection>,
}

/// What goes wrong in each run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct FaultSection {
    kind: FaultName,
    /// A server by its number. With neither it is what clients connect to.
    node: Option<u16>,
    /// The standby of one PostgreSQL.
    #[serde(default)]
    standby: bool,
    /// After what is counted has begun.
    at_s: f64,
    /// Not of a reset, which is a moment.
    lasts_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum FaultName {
    Kill,
    Refuse,
    Reset,
    Silence,
}

impl FaultSection {
    fn kind(&self) -> FaultKind {
        match self.kind {
            FaultName::Kill => FaultKind::Kill,
            FaultName::Refuse => FaultKind::Refuse,
            FaultName::Reset => FaultKind::Reset,
            FaultName::Silence => FaultKind::Silence,
        }
    }

    fn component(&self) -> Component {
        match self.node {
            Some(number) => Component::Node(number),
            None if self.standby => Component::Standby,
            None => Component::Endpoint,
        }
    }

    fn lasts_s(&self) -> f64 {
        self.lasts_s.unwrap_or(0.0)
    }

    fn in_words(&self) -> String {
        let Self { at_s, .. } = self;
        let of = match self.component() {
            Component::Node(number) => format!("node {number}"),
            Component::Standby => "the standby".to_owned(),
            Component::Endpoint => "the server".to_owned(),
        };
        let until = at_s + self.lasts_s();
        match self.kind {
            FaultName::Kill => format!("{of} killed at {at_s} s, back at {until} s"),
            FaultName::Refuse => format!("{of} not to be reached from {at_s} s to {until} s"),
            FaultName::Reset => format!("connections to {of} reset at {at_s} s"),
            FaultName::Silence => format!("the link to {of} silent from {at_s} s to {until} s"),
        }
    }
}

/// What is measured: a kind, or a URL.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct SystemSection {
    kind: Option<Kind>,
    /// Of a Tutti.
    nodes: Option<u16>,
    /// Hundredths of a processor that each server has, once the tables are filled.
    share_percent: Option<f64>,
    url: Option<String>,
    /// Of an endpoint; without it, as the endpoint says of itself.
    dialect: Option<DialectName>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Tutti,
    Postgresql,
    PostgresqlWithStandby,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum DialectName {
    Tutti,
    Citus,
    Plain,
}

/// How far things are apart: round trips with what every link has besides, or a profile.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct DistancesSection {
    /// Between clients and what they connect to.
    clients_rtt_ms: Option<f64>,
    /// Between the gateway and each node.
    nodes_rtt_ms: Option<f64>,
    /// Between a server and its standby.
    standby_rtt_ms: Option<f64>,
    /// By how much a round trip is longer on average, on each of these links.
    jitter_ms: Option<f64>,
    /// What each of these links carries in each direction, all its connections together.
    bandwidth_mbit: Option<f64>,
    profile: Option<String>,
}

/// What clients do.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum WorkloadSection {
    Lahman(LahmanSection),
    Shop(ShopSection),
    Ssb(SsbSection),
    TpcC(TpcCSection),
    TpcH(TpcHSection),
    TpcW(TpcWSection),
    Transfers(TransfersSection),
    Ycsb(YcsbSection),
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LahmanSection {
    /// Of all tables together; behind the last one they begin anew.
    pub records: usize,
    placement: PlacementName,
    /// Where Batting.csv, Fielding.csv and Pitching.csv are; without it records of the same shape are made.
    pub csv_dir: Option<PathBuf>,
}

impl Default for LahmanSection {
    fn default() -> Self {
        Self { records: 6_000, placement: PlacementName::Hash, csv_dir: None }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum PlacementName {
    Hash,
    Replicated,
}

impl LahmanSection {
    pub(super) fn placement(&self) -> Placement {
        match self.placement {
            PlacementName::Hash => Placement::Hash,
            PlacementName::Replicated => Placement::Replicated,
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ShopSection {
    commit: CommitName,
    /// Of a hundred transactions so many alter, the others select.
    pub alters_percent: u32,
    /// Statements of an alter.
    statements: u32,
    shoppers: i64,
    data: DataName,
    data_bytes: u32,
}

impl Default for ShopSection {
    fn default() -> Self {
        Self {
            commit: CommitName::Acid,
            alters_percent: 20,
            statements: 50,
            shoppers: 400,
            data: DataName::Text,
            data_bytes: 20,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum CommitName {
    Acid,
    Base,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum DataName {
    Text,
    Json,
    Binary,
}

impl ShopSection {
    pub(super) fn size(&self) -> Size {
        let data = match self.data {
            DataName::Text => Data::Text,
            DataName::Json => Data::Json,
            DataName::Binary => Data::Binary,
        };
        let Self { statements, shoppers, data_bytes, .. } = *self;
        Size { shoppers, statements, data, data_bytes }
    }

    pub(super) fn commit(&self) -> Commit {
        match self.commit {
            CommitName::Acid => Commit::Acid,
            CommitName::Base => Commit::Base,
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TpcCSection {
    pub warehouses: i64,
    /// What part of the standard's items, customers and orders of each warehouse there is.
    pub scale: f64,
    /// Clients key and think as long as the standard's do.
    pub think_times: bool,
}

impl Default for TpcCSection {
    fn default() -> Self {
        Self { warehouses: 4, scale: 1.0, think_times: false }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SsbSection {
    /// What part of the original's rows there is: 1 has six million lines of orders.
    pub scale: f64,
}

impl Default for SsbSection {
    fn default() -> Self {
        Self { scale: 0.01 }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TpcHSection {
    /// What part of the standard's rows there is: 1 is about a gigabyte.
    pub scale: f64,
}

impl Default for TpcHSection {
    fn default() -> Self {
        Self { scale: 0.01 }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TpcWSection {
    mix: ShopMixName,
    /// Books.
    pub items: i64,
    /// At first.
    pub customers: i64,
}

impl Default for TpcWSection {
    fn default() -> Self {
        Self { mix: ShopMixName::Shopping, items: 1_000, customers: 2_880 }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum ShopMixName {
    Browsing,
    Shopping,
    Ordering,
    BuyConfirm,
    AdminConfirm,
}

impl TpcWSection {
    pub(super) fn mix(&self) -> tpcw::Mix {
        match self.mix {
            ShopMixName::Browsing => tpcw::Mix::Browsing,
            ShopMixName::Shopping => tpcw::Mix::Shopping,
            ShopMixName::Ordering => tpcw::Mix::Ordering,
            ShopMixName::BuyConfirm => tpcw::Mix::BuyConfirm,
            ShopMixName::AdminConfirm => tpcw::Mix::AdminConfirm,
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TransfersSection {
    pub accounts: i64,
    /// Written beside the balances, so that single transfers can be checked; without it, only sums are.
    pub entries: bool,
}

impl Default for TransfersSection {
    fn default() -> Self {
        Self { accounts: 1_000, entries: true }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct YcsbSection {
    mix: MixName,
    pub records: i64,
}

impl Default for YcsbSection {
    fn default() -> Self {
        Self { mix: MixName::A, records: 100_000 }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum MixName {
    A,
    B,
    C,
    D,
    E,
    F,
}

impl YcsbSection {
    pub(super) fn mix(&self) -> Mix {
        match self.mix {
            MixName::A => Mix::A,
            MixName::B => Mix::B,
            MixName::C => Mix::C,
            MixName::D => Mix::D,
            MixName::E => Mix::E,
            MixName::F => Mix::F,
        }
    }
}

/// Who does it, how often, and for how long.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadSection {
    /// A run for each of these numbers of clients.
    pub clients: Vec<u16>,
    /// What is counted of each run.
    seconds: Option<u64>,
    /// Instead of a time: so many, of all clients together.
    pub transactions: Option<u64>,
    /// Between an answer and the next transaction.
    #[serde(default)]
    pub think_ms: f64,
    /// So many begin per second, of all clients together, whether those before them have ended or not.
    pub rate_per_s: Option<f64>,
    pub isolation: Option<IsolationName>,
    /// Of a Tutti.
    #[serde(default)]
    pub requests: Requests,
    #[serde(default = "one")]
    pub repetitions: u32,
}

fn one() -> u32 {
    1
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum IsolationName {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl IsolationName {
    /// As SQL calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}

impl RunFile {
    /// Reads one.
    ///
    /// Errors: it cannot be read, or says what it may not, by the name of the key.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the run {}", path.display()))?;
        Self::from_toml(&text).with_context(|| path.display().to_string())
    }

    fn from_toml(text: &str) -> anyhow::Result<Self> {
        let this: Self = toml::from_str(text).context("this describes no run")?;
        let LoadSection { clients, seconds, transactions, think_ms, rate_per_s, .. } = &this.load;
        ensure!(!clients.is_empty(), "load.clients: no number of clients");
        for number in clients {
            let is_possible = (1..=CLIENTS_MAX).contains(number);
            ensure!(is_possible, "load.clients: 1 to {CLIENTS_MAX}, not {number}");
        }
        ensure!(
            seconds.is_none() || transactions.is_none(),
            "load.seconds and load.transactions: one of them says when a run ends"
        );
        ensure!(*seconds != Some(0), "load.seconds: 1 or more");
        ensure!(*transactions != Some(0), "load.transactions: 1 or more");
        ensure!((0.0..=1e6).contains(think_ms), "load.think_ms: 0 to 1000000, not {think_ms}");
        if let Some(rate) = rate_per_s {
            ensure!((0.01..=1e6).contains(rate), "load.rate_per_s: 0.01 to 1000000, not {rate}");
            ensure!(*think_ms == 0.0, "load.think_ms and load.rate_per_s: one sets the pace");
        }
        ensure!(1 <= this.load.repetitions, "load.repetitions: 1 or more");
        match &this.workload {
            WorkloadSection::Lahman(part) => {
                let is_possible = (3..=LAHMAN_RECORDS_MAX).contains(&part.records);
                ensure!(
                    is_possible,
                    "workload.records: 3 to {LAHMAN_RECORDS_MAX}, not {}",
                    part.records
                );
            }
            WorkloadSection::Shop(part) => this.judge_shop(part)?,
            WorkloadSection::TpcC(TpcCSection { warehouses, scale, .. }) => {
                ensure!((1..=10_000).contains(warehouses), "workload.warehouses: 1 to 10000");
                let is_part = 0.0 < *scale && *scale <= 1.0;
                ensure!(is_part, "workload.scale: more than 0 and 1 at most, not {scale}");
            }
            WorkloadSection::Ssb(SsbSection { scale })
            | WorkloadSection::TpcH(TpcHSection { scale }) => {
                ensure!(
                    (0.001..=100.0).contains(scale),
                    "workload.scale: 0.001 to 100, not {scale}"
                );
            }
            WorkloadSection::TpcW(part) => {
                ensure!(1 <= part.items, "workload.items: 1 or more");
                ensure!(1 <= part.customers, "workload.customers: 1 or more");
            }
            WorkloadSection::Transfers(part) => {
                ensure!(2 <= part.accounts, "workload.accounts: 2 or more");
            }
            WorkloadSection::Ycsb(part) => {
                ensure!(3 <= part.records, "workload.records: 3 or more")
            }
        }
        this.system()?;
        this.judge_faults()?;
        this.distances()?;
        Ok(this)
    }

    fn judge_faults(&self) -> anyhow::Result<()> {
        if self.faults.is_empty() {
            return Ok(());
        }
        let system = self.system()?;
        ensure!(
            !matches!(system, System::Endpoint(_)),
            "faults: only of the lab's own systems, whose servers and links it can stop"
        );
        let Some(seconds) = self.seconds() else {
            anyhow::bail!("faults: of runs that last load.seconds, for they have a time");
        };
        for fault in &self.faults {
            let FaultSection { kind, node, standby, at_s, lasts_s } = fault;
            ensure!(node.is_none() || !standby, "faults: of a node or of the standby");
            let nodes = match system {
                System::Tutti { nodes } => nodes,
                _ => 1,
            };
            if let Some(node) = node {
                ensure!((1..=nodes).contains(node), "faults.node: 1 to {nodes}, not {node}");
            }
            let has_standby = system == System::PostgreSqlWithStandby;
            ensure!(!standby || has_standby, "faults.standby: there is none");
            if *kind == FaultName::Kill {
                ensure!(node.is_some(), "faults.node: which server is to be killed");
            } else {
                let is_linked = node.is_none() || matches!(system, System::Tutti { .. });
                ensure!(
                    is_linked,
                    "faults.node: no link leads to a server that clients connect to"
                );
            }
            let is_moment = *kind == FaultName::Reset;
            ensure!(is_moment == lasts_s.is_none(), "faults.lasts_s: of all but a reset");
            let (begins, lasts) = (*at_s, fault.lasts_s());
            ensure!(0.0 <= begins && 0.0 <= lasts, "faults.at_s and faults.lasts_s: 0 or more");
            ensure!(
                begins + lasts <= seconds as f64,
                "faults: over when the run is, after {seconds} s, not after {} s",
                begins + lasts
            );
        }
        let overlaps = |one: &FaultSection, other: &FaultSection| {
            one.component() == other.component()
                && one.at_s <= other.at_s + other.lasts_s()
                && other.at_s <= one.at_s + one.lasts_s()
        };
        for (number, fault) in self.faults.iter().enumerate() {
            let before = &self.faults[..number];
            ensure!(
                !before.iter().any(|it| overlaps(it, fault)),
                "faults: one at a time of a thing"
            );
        }
        Ok(())
    }

    /// What goes wrong, and when.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let of = |part: &FaultSection| Fault {
            kind: part.kind(),
            of: part.component(),
            at: Duration::from_secs_f64(part.at_s),
            lasts: Duration::from_secs_f64(part.lasts_s()),
        };
        self.faults.iter().map(of).collect()
    }

    /// The same in words; empty where nothing does.
    pub(super) fn faults_in_words(&self) -> String {
        self.faults.iter().map(FaultSection::in_words).collect::<Vec<_>>().join(", ")
    }

    fn judge_shop(&self, part: &ShopSection) -> anyhow::Result<()> {
        let ShopSection { alters_percent, statements, shoppers, data_bytes, .. } = part;
        ensure!(*alters_percent <= 100, "workload.alters_percent: 0 to 100, not {alters_percent}");
        let is_possible = (1..=ALTER_STATEMENTS_MAX).contains(statements);
        ensure!(is_possible, "workload.statements: 1 to {ALTER_STATEMENTS_MAX}, not {statements}");
        let is_possible = (1..=SHOPPERS_MAX).contains(shoppers);
        ensure!(is_possible, "workload.shoppers: 1 to {SHOPPERS_MAX}, not {shoppers}");
        ensure!(
            *data_bytes <= DATA_BYTES_MAX,
            "workload.data_bytes: 0 to {DATA_BYTES_MAX}, not {data_bytes}"
        );
        if part.commit == CommitName::Base {
            // Tables that are replicated asynchronously are no one else's, and cannot be dropped with their schema.
            ensure!(
                self.system.kind == Some(Kind::Tutti),
                "workload.commit: \"base\" is of a Tutti of the lab's own alone"
            );
            ensure!(
                self.load.isolation != Some(IsolationName::Serializable),
                "workload.commit: \"base\" is not for load.isolation = \"serializable\", at which such \
                 tables are not read"
            );
        }
        Ok(())
    }

    /// The same within seconds: few rows, one number of clients.
    pub(super) fn be_quick(&mut self) {
        self.load.clients.truncate(1);
        self.load.clients[0] = self.load.clients[0].min(4);
        self.load.repetitions = 1;
        match &mut self.load.transactions {
            Some(transactions) => *transactions = (*transactions).min(200),
            None => {
                let seconds = self.load.seconds.unwrap_or(SECONDS_BY_DEFAULT);
                let quick = if self.faults.is_empty() { 2 } else { QUICK_SECONDS_OF_FAULTS };
                for fault in &mut self.faults {
                    let shorter = quick.min(seconds) as f64 / seconds as f64;
                    fault.at_s *= shorter;
                    fault.lasts_s = fault.lasts_s.map(|lasts_s| lasts_s * shorter);
                }
                self.load.seconds = Some(quick.min(seconds));
            }
        }
        match &mut self.workload {
            WorkloadSection::Lahman(part) => part.records = part.records.min(90),
            WorkloadSection::Shop(part) => {
                part.shoppers = part.shoppers.min(40);
                part.statements = part.statements.min(10);
                part.data_bytes = part.data_bytes.min(200);
            }
            WorkloadSection::TpcC(part) => {
                part.warehouses = part.warehouses.min(3);
                part.scale = part.scale.min(0.01);
                part.think_times = false;
            }
            WorkloadSection::Ssb(part) => part.scale = part.scale.min(0.01),
            WorkloadSection::TpcH(part) => part.scale = part.scale.min(0.01),
            WorkloadSection::TpcW(part) => {
                part.items = part.items.min(200);
                part.customers = part.customers.min(288);
            }
            WorkloadSection::Transfers(part) => part.accounts = part.accounts.min(500),
            WorkloadSection::Ycsb(part) => part.records = part.records.min(2_000),
        }
    }

    /// How long what is counted lasts, unless transactions are counted out.
    pub(super) fn seconds(&self) -> Option<u64> {
        match self.load.transactions {
            Some(_) => None,
            None => Some(self.load.seconds.unwrap_or(SECONDS_BY_DEFAULT)),
        }
    }

    /// What is measured.
    pub(super) fn system(&self) -> anyhow::Result<System> {
        let SystemSection { kind, nodes, share_percent, url, dialect } = &self.system;
        let is_tutti = *kind == Some(Kind::Tutti);
        ensure!(
            share_percent.is_none_or(|percent| url.is_none() && (1.0..=100.0).contains(&percent)),
            "system.share_percent: 1 to 100, only where there is a kind"
        );
        ensure!(nodes.is_none() || is_tutti, "system.nodes: only of kind = \"tutti\"");
        ensure!(dialect.is_none() || url.is_some(), "system.dialect: only where there is a url");
        Ok(match (kind, url) {
            (Some(Kind::Tutti), None) => {
                let nodes = nodes.unwrap_or(3);
                ensure!((1..=NODES_MAX).contains(&nodes), "system.nodes: 1 to {NODES_MAX}");
                System::Tutti { nodes }
            }
            (Some(Kind::Postgresql), None) => System::PostgreSql,
            (Some(Kind::PostgresqlWithStandby), None) => System::PostgreSqlWithStandby,
            (None, Some(url)) => System::Endpoint(url.clone()),
            _ => anyhow::bail!("system: either a kind or a url"),
        })
    }

    /// Hundredths of a processor that each server has.
    pub(super) fn share_percent(&self) -> Option<f64> {
        self.system.share_percent
    }

    /// What is said of tables, where the file or the system says so.
    pub(super) fn dialect(&self) -> Option<Dialect> {
        match (self.system.kind, self.system.dialect) {
            (Some(Kind::Tutti), _) | (_, Some(DialectName::Tutti)) => Some(Dialect::Tutti),
            (Some(_), _) | (_, Some(DialectName::Plain)) => Some(Dialect::Plain),
            (_, Some(DialectName::Citus)) => Some(Dialect::Citus),
            (None, None) => None,
        }
    }

    /// How far things are apart. In a profile clients and the gateway are at the first site, as are one PostgreSQL
    /// and node 1; the other servers are dealt out in turn. Its jitter and bandwidth are taken with its round trips.
    ///
    /// What is to be cut off is behind a link, be it without distance.
    pub(super) fn distances(&self) -> anyhow::Result<Distances> {
        let mut distances = self.distances_by_file()?;
        for fault in self.faults().iter().filter(|fault| fault.kind != FaultKind::Kill) {
            let link = match fault.of {
                Component::Endpoint => &mut distances.clients,
                Component::Standby => &mut distances.standby,
                Component::Node(number) => {
                    let place = usize::from(number) - 1;
                    if distances.nodes.len() <= place {
                        distances.nodes.resize(place + 1, None);
                    }
                    &mut distances.nodes[place]
                }
            };
            if link.is_none() {
                *link = Some(Stretch::of_rtt_ms(0.0)?);
            }
        }
        Ok(distances)
    }

    fn distances_by_file(&self) -> anyhow::Result<Distances> {
        let DistancesSection {
            clients_rtt_ms,
            nodes_rtt_ms,
            standby_rtt_ms,
            jitter_ms,
            bandwidth_mbit,
            profile,
        } = &self.distances;
        if self.distances == DistancesSection::default() {
            return Ok(Distances::default());
        }
        let system = self.system()?;
        ensure!(
            !matches!(system, System::Endpoint(_)),
            "distances: only of the lab's own systems; `tutti-lab distance --listen` puts another far away"
        );
        let nodes = match system {
            System::Tutti { nodes } => usize::from(nodes),
            _ => 0,
        };
        for (key, value, possible) in [
            ("clients_rtt_ms", clients_rtt_ms, Stretch::RTT_MS),
            ("nodes_rtt_ms", nodes_rtt_ms, Stretch::RTT_MS),
            ("standby_rtt_ms", standby_rtt_ms, Stretch::RTT_MS),
            ("jitter_ms", jitter_ms, Stretch::JITTER_MS),
            ("bandwidth_mbit", bandwidth_mbit, Stretch::BANDWIDTH_MBIT),
        ] {
            let Some(value) = value else { continue };
            let (least, most) = (possible.start(), possible.end());
            ensure!(possible.contains(value), "distances.{key}: {least} to {most}, not {value}");
            ensure!(profile.is_none(), "distances.{key}: not beside a profile");
        }
        ensure!(nodes_rtt_ms.is_none() || 0 < nodes, "distances.nodes_rtt_ms: only of a Tutti");
        let has_standby = system == System::PostgreSqlWithStandby;
        ensure!(standby_rtt_ms.is_none() || has_standby, "distances.standby_rtt_ms: no standby");
        let Some(profile) = profile else {
            let is_anywhere =
                [clients_rtt_ms, nodes_rtt_ms, standby_rtt_ms].iter().any(|it| it.is_some());
            for (key, value) in [("jitter_ms", jitter_ms), ("bandwidth_mbit", bandwidth_mbit)] {
                ensure!(
                    value.is_none() || is_anywhere,
                    "distances.{key}: of no link; its round trip says which one, and may be 0"
                );
            }
            let there = |rtt_ms: &Option<f64>| {
                rtt_ms
                    .map(|it| Stretch::new(it, jitter_ms.unwrap_or(0.0), *bandwidth_mbit))
                    .transpose()
            };
            return Ok(Distances {
                clients: there(clients_rtt_ms)?,
                nodes: there(nodes_rtt_ms)?.map_or_else(Vec::new, |it| vec![Some(it); nodes]),
                standby: there(standby_rtt_ms)?,
            });
        };
        let profile = profile.parse::<Shipped>().context("distances.profile")?.profile();
        let from_first = |machine: usize| profile.between(0, profile.site_of(machine));
        Ok(Distances {
            clients: from_first(0),
            nodes: (0..nodes).map(from_first).collect(),
            standby: has_standby.then(|| from_first(1)).flatten(),
        })
    }

    /// What is measured, in words.
    pub(super) fn system_in_words(&self) -> anyhow::Result<String> {
        let system = match self.system()? {
            System::Tutti { nodes: 1 } => "Tutti, 1 node".to_owned(),
            System::Tutti { nodes } => format!("Tutti, {nodes} nodes"),
            System::PostgreSql => "PostgreSQL".to_owned(),
            System::PostgreSqlWithStandby => "PostgreSQL with a synchronous standby".to_owned(),
            System::Endpoint(url) => without_password(&url),
        };
        Ok(match self.share_percent() {
            Some(percent) => format!("{system}, {percent} % of a processor each"),
            None => system,
        })
    }

    /// How far things are apart, in words; empty where nothing is in between.
    pub(super) fn distances_in_words(&self) -> String {
        let DistancesSection {
            clients_rtt_ms,
            nodes_rtt_ms,
            standby_rtt_ms,
            jitter_ms,
            bandwidth_mbit,
            profile,
        } = &self.distances;
        let of = |what: &str, ms: &Option<f64>| ms.map(|ms| format!("{what} {ms} ms away"));
        let parts = [
            profile.clone(),
            of("server", clients_rtt_ms),
            of("nodes", nodes_rtt_ms),
            of("standby", standby_rtt_ms),
            jitter_ms.map(|ms| format!("jitter {ms} ms")),
            bandwidth_mbit.map(|mbit| format!("{mbit} Mbit/s")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// What clients do, in words.
    pub(super) fn workload_in_words(&self) -> String {
        match &self.workload {
            WorkloadSection::Lahman(part) => {
                let source = match part.csv_dir {
                    Some(_) => "of the Lahman database",
                    None => "of the Lahman database's shape",
                };
                format!("inserts of {} records {source}, {}", part.records, part.placement().name())
            }
            WorkloadSection::Shop(part) => {
                let commit = match part.commit {
                    CommitName::Acid => "ACID",
                    CommitName::Base => "BASE",
                };
                format!(
                    "a shop, {commit}, {} % alters of {} statements, {} shoppers, {} bytes of {} in an item",
                    part.alters_percent,
                    part.statements,
                    part.shoppers,
                    part.data_bytes,
                    part.size().data.name()
                )
            }
            WorkloadSection::TpcC(TpcCSection { warehouses, scale, think_times }) => {
                let part = if *scale < 1.0 { format!(" of scale {scale}") } else { String::new() };
                let pauses = if *think_times { ", with think times" } else { "" };
                format!("TPC-C's transactions, {warehouses} warehouses{part}{pauses}")
            }
            WorkloadSection::Ssb(SsbSection { scale }) => {
                format!("the Star Schema Benchmark's queries at scale {scale}")
            }
            WorkloadSection::TpcH(TpcHSection { scale }) => {
                format!("TPC-H's queries at scale {scale}")
            }
            WorkloadSection::TpcW(part) => {
                let TpcWSection { items, customers, .. } = part;
                format!("TPC-W {:?}, {items} books, {customers} customers", part.mix)
            }
            WorkloadSection::Transfers(part) => {
                let books = if part.entries { "" } else { ", no entries" };
                format!("transfers, {} accounts{books}", part.accounts)
            }
            WorkloadSection::Ycsb(part) => {
                format!("YCSB {:?}, {} records", part.mix, part.records)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "title = 'x'\n[system]\nkind = 'tutti'\n[workload]\nkind = 'ycsb'\n\
                         [load]\nclients = [8, 32]\n";

    fn refusal(text: &str) -> String {
        RunFile::from_toml(text).map_or_else(|error| format!("{error:#}"), |_| "none".to_owned())
    }

    #[test]
    fn what_a_file_leaves_open_has_a_value() {
        let file = RunFile::from_toml(LEAST).unwrap();
        assert_eq!(file.system().unwrap(), System::Tutti { nodes: 3 });
        assert_eq!(file.distances().unwrap(), Distances::default());
        assert_eq!((file.seconds(), file.load.repetitions), (Some(SECONDS_BY_DEFAULT), 1));
        assert_eq!(file.workload_in_words(), "YCSB A, 100000 records");
        assert_eq!(file.dialect(), Some(Dialect::Tutti));
    }

    #[test]
    fn a_key_that_is_not_known_is_named() {
        for (from, to, named) in [
            ("title", "titel = 'y'\ntitle", "titel"),
            ("kind = 'tutti'", "kind = 'tutti'\nnode = 2", "node"),
            ("kind = 'ycsb'", "kind = 'ycsb'\nrecord = 2", "record"),
            ("clients =", "seconds = 1\nsecs = 2\nclients =", "secs"),
            ("[load]", "[distances]\nclient_ms = 1\n[load]", "client_ms"),
            ("kind = 'ycsb'", "kind = 'tpc-z'", "tpc-z"),
        ] {
            let said = refusal(&LEAST.replace(from, to));
            assert!(said.contains(&format!("`{named}`")), "{named}: {said}");
        }
    }

    #[test]
    fn what_cannot_be_is_said_with_its_key() {
        for (from, to, named) in [
            ("[8, 32]", "[]", "load.clients"),
            ("[8, 32]", "[0]", "load.clients"),
            ("[8, 32]", "[1]\nseconds = 1\ntransactions = 2", "load.seconds"),
            ("[8, 32]", "[1]\nthink_ms = 1\nrate_per_s = 2", "load.rate_per_s"),
            ("[8, 32]", "[1]\nrepetitions = 0", "load.repetitions"),
            ("kind = 'tutti'", "kind = 'tutti'\nurl = 'postgres://x'", "system"),
            ("kind = 'tutti'", "kind = 'postgresql'\nnodes = 2", "system.nodes"),
            ("kind = 'tutti'", "kind = 'tutti'\nshare_percent = 0", "system.share_percent"),
            ("kind = 'tutti'", "url = 'postgres://x'\nshare_percent = 20", "system.share_percent"),
            ("kind = 'tutti'", "kind = 'tutti'\ndialect = 'plain'", "system.dialect"),
            ("[load]", "[distances]\nprofile = 'one-planet'\n[load]", "distances.profile"),
            ("[load]", "[distances]\nstandby_rtt_ms = 1\n[load]", "distances.standby_rtt_ms"),
            ("[load]", "[distances]\nclients_rtt_ms = -1\n[load]", "distances.clients_rtt_ms"),
            ("[load]", "[distances]\njitter_ms = 1\n[load]", "distances.jitter_ms"),
            ("[load]", "[distances]\nbandwidth_mbit = 1\n[load]", "distances.bandwidth_mbit"),
            (
                "[load]",
                "[distances]\nnodes_rtt_ms = 1\nbandwidth_mbit = 0\n[load]",
                "distances.bandwidth_mbit",
            ),
            (
                "[load]",
                "[distances]\nprofile = 'one-region'\njitter_ms = 1\n[load]",
                "distances.jitter_ms",
            ),
            ("kind = 'ycsb'", "kind = 'ycsb'\nrecords = 1", "workload.records"),
            ("kind = 'ycsb'", "kind = 'tpc-c'\nscale = 2.0", "workload.scale"),
            ("kind = 'ycsb'", "kind = 'tpc-w'\nitems = 0", "workload.items"),
            ("kind = 'ycsb'", "kind = 'shop'\nshoppers = 0", "workload.shoppers"),
            ("kind = 'ycsb'", "kind = 'lahman'\nrecords = 2", "workload.records"),
            ("kind = 'ycsb'", "kind = 'shop'\nstatements = 0", "workload.statements"),
            ("kind = 'ycsb'", "kind = 'shop'\nalters_percent = 101", "workload.alters_percent"),
            ("kind = 'ycsb'", "kind = 'shop'\ndata_bytes = 1000001", "workload.data_bytes"),
            ("kind = 'ycsb'", "kind = 'tpc-h'\nscale = 0.0", "workload.scale"),
        ] {
            let said = refusal(&LEAST.replace(from, to));
            assert!(said.contains(named), "{named}: {said}");
        }
    }

    #[test]
    fn nodes_commit_one_by_one_only_where_they_can() {
        let text = LEAST.replace("kind = 'ycsb'", "kind = 'shop'\ncommit = 'base'");
        assert_eq!(refusal(&text), "none");
        for (from, to) in [
            ("kind = 'tutti'", "kind = 'postgresql'"),
            ("kind = 'tutti'", "url = 'postgres://x'\ndialect = 'tutti'"),
            ("[8, 32]", "[8]\nisolation = 'serializable'"),
        ] {
            let said = refusal(&text.replace(from, to));
            assert!(said.starts_with("workload.commit"), "{to}: {said}");
        }
    }

    #[test]
    fn faults_are_of_what_there_is_and_end_with_the_run() {
        let with = |fault: &str| LEAST.replace("[load]", "[load]\nseconds = 9") + fault;
        let kill = "[[faults]]\nkind = 'kill'\nnode = 2\nat_s = 3\nlasts_s = 1.5\n";
        let reset = "[[faults]]\nkind = 'reset'\nat_s = 5\n";
        let file = RunFile::from_toml(&with(&format!("{kill}{reset}"))).unwrap();
        assert_eq!(
            file.faults_in_words(),
            "node 2 killed at 3 s, back at 4.5 s, connections to the server reset at 5 s"
        );
        let is_there = |link: Option<Stretch>| link.is_some_and(|link| link.rtt_ms() == 0.0);
        assert!(is_there(file.distances().unwrap().clients), "what is reset is behind a link");
        for (fault, named) in [
            (kill.replace("node = 2", "node = 4"), "faults.node"),
            (kill.replace("node = 2\n", ""), "faults.node"),
            (kill.replace("lasts_s = 1.5\n", ""), "faults.lasts_s"),
            (kill.replace("at_s = 3", "at_s = 8"), "faults: over"),
            (kill.replace("kill", "trip"), "trip"),
            (format!("{kill}{kill}"), "faults: one at a time"),
            (format!("{reset}lasts_s = 1"), "faults.lasts_s"),
            (format!("{reset}standby = true"), "faults.standby"),
        ] {
            let said = refusal(&with(&fault));
            assert!(said.contains(named), "{named}: {said}");
        }
    }

    #[test]
    fn a_profile_deals_the_nodes_out() {
        let far = "[distances]\nprofile = 'three-continents'\n[load]";
        let distances = RunFile::from_toml(&LEAST.replace("[load]", far)).unwrap().distances();
        let rtts: Vec<_> =
            distances.unwrap().nodes.into_iter().flatten().map(|it| it.rtt_ms()).collect();
        assert_eq!(rtts.len(), 3);
        assert!(rtts[0] < 1.0 && 50.0 < rtts[1] && 50.0 < rtts[2], "{rtts:?}");
    }

    #[test]
    fn links_have_their_jitter_and_bandwidth() {
        let far = "[distances]\nprofile = 'three-continents'\n[load]";
        let distances = RunFile::from_toml(&LEAST.replace("[load]", far)).unwrap().distances();
        let profile = Shipped::ThreeContinents.profile();
        let stretches: Vec<_> = distances.unwrap().nodes.into_iter().flatten().collect();
        assert_eq!(stretches[1..], [1, 2].map(|site| profile.between(0, site).unwrap()));
        for stretch in &stretches[1..] {
            assert!(0.0 < stretch.jitter_ms() && stretch.bandwidth_mbit().is_some(), "{stretch:?}");
        }

        let narrow = "[distances]\nclients_rtt_ms = 0\nnodes_rtt_ms = 2\njitter_ms = 0.5\n\
                      bandwidth_mbit = 20\n[load]";
        let file = RunFile::from_toml(&LEAST.replace("[load]", narrow)).unwrap();
        let of_rtt_ms = |rtt_ms| Some(Stretch::new(rtt_ms, 0.5, Some(20.0)).unwrap());
        assert_eq!(
            file.distances().unwrap(),
            Distances { clients: of_rtt_ms(0.0), nodes: vec![of_rtt_ms(2.0); 3], standby: None }
        );
        assert_eq!(
            file.distances_in_words(),
            "server 0 ms away, nodes 2 ms away, jitter 0.5 ms, 20 Mbit/s"
        );
    }
}
