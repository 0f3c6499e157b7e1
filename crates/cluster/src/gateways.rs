//! The gateways of a cluster, as they know of each other through node 1.
//!
//! Owns: where each is reached, who leads, what a gateway that follows looks at and does ([`Following`] decides), and
//! what gateways prove to each other.
//! Never: passes a client on (the gateway's `door` does), nor takes the lead itself (`start` does).
//! Start reading at [`Follower`]. The reasons: docs/protocol/many-gateways.md.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tutti_configuration::Config;
use tutti_link::net::random;
use tutti_link::seals::Seals;
use tutti_link::{Endpoint, Endpoints, NodeConnection};
use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_txn::Following;
use tutti_txn::following::{Next, Seen};

use crate::catalog::{Answer, learn_secret_as_it_is};
use crate::error::GatewayError;
use crate::recovery::open;
use crate::setup::check_identity;

/// How often one that follows looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long node 1 may take to answer a look. Longer: it is away, and says nothing of who leads.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

/// Who has the lock, since when and when it last said something, in microseconds, and which gateway that is.
const LEADER: &str = "SELECT a.pid,
    (pg_catalog.date_part('epoch', a.backend_start) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8,
    coalesce((pg_catalog.date_part('epoch', a.state_change) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8, 0),
    g.identity, g.address
FROM pg_catalog.pg_locks AS l
JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
LEFT JOIN tutti.gateway_there AS g ON g.leads AND g.pid OPERATOR(pg_catalog.=) a.pid
    AND g.started OPERATOR(pg_catalog.=) a.backend_start
WHERE l.relation OPERATOR(pg_catalog.=) 'tutti.serving'::pg_catalog.regclass::pg_catalog.oid
    AND l.granted AND l.mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
    AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d
        WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())";

/// A gateway that leads, as the others know it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Leader {
    /// Its incarnation.
    pub identity: u64,
    /// Where it is reached, `host:port`.
    pub address: String,
}

/// A gateway as `tutti status` shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GatewayThere {
    /// Where it is reached.
    pub address: String,
    /// Whether it leads.
    pub leads: bool,
    /// Since when it is there, by node 1's clock.
    pub since: String,
}

/// What a gateway proves to another, and what about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Said {
    /// The one that leads: this is it.
    Leads,
    /// One that follows: its client has this address.
    Forwards,
}

impl Said {
    /// What is proven, with the numbers used once that both have drawn.
    pub fn parts<'a>(
        self,
        numbers: [&'a [u8]; 2],
        identity: &'a [u8],
        what: &'a [u8],
    ) -> [&'a [u8]; 5] {
        let word: &[u8] = match self {
            Self::Leads => b"leads",
            Self::Forwards => b"forwards",
        };
        [word, numbers[0], numbers[1], identity, what]
    }
}

/// Tells the other gateways that this one is there: with `leads`, by the session `pid` that has the lock, otherwise by
/// the connection's own. Those that are gone are forgotten.
///
/// Errors: the node's.
pub(crate) async fn announce(
    home: &mut NodeConnection,
    config: &Config,
    identity: u64,
    leads: Option<i32>,
) -> Result<(), GatewayError> {
    let pid = leads.unwrap_or_else(|| home.backend_key().0);
    home.query(&format!(
        "DELETE FROM tutti.gateway_there AS g WHERE g.identity OPERATOR(pg_catalog.=) {identity}
    OR NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS a WHERE a.pid OPERATOR(pg_catalog.=) g.pid
        AND a.backend_start OPERATOR(pg_catalog.=) g.started);
INSERT INTO tutti.gateway_there (identity, address, leads, pid, started)
    SELECT {identity}, {}, {}, a.pid, a.backend_start FROM pg_catalog.pg_stat_activity AS a
    WHERE a.pid OPERATOR(pg_catalog.=) {pid}
    ON CONFLICT DO NOTHING",
        address_sql(config),
        leads.is_some(),
    ))
    .await?;
    Ok(())
}

/// Where this gateway is reached, in SQL: where it listens on any address, the one that node 1 sees.
fn address_sql(config: &Config) -> String {
    if let Some(address) = &config.gateways.address {
        return quote_literal(address);
    }
    let (host, port) = config.listen.rsplit_once(':').unwrap_or((&config.listen, ""));
    match host {
        "0.0.0.0" | "[::]" | "*" | "" => format!(
            "pg_catalog.concat(coalesce(CASE pg_catalog.family(pg_catalog.inet_client_addr())
                WHEN 6 THEN pg_catalog.concat('[', pg_catalog.host(pg_catalog.inet_client_addr()), ']')
                ELSE pg_catalog.host(pg_catalog.inet_client_addr()) END, '127.0.0.1'), {})",
            quote_literal(&format!(":{port}"))
        ),
        _ => quote_literal(&config.listen),
    }
}

/// The gateways that are there, the one that leads first.
///
/// Errors: the node's; its schema is of another version.
pub(crate) async fn all(home: &mut NodeConnection) -> Result<Vec<GatewayThere>, GatewayError> {
    let rows = home
        .rows(
            "SELECT g.address, g.leads, g.since::pg_catalog.timestamptz(0)
FROM tutti.gateway_there AS g JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) g.pid
    AND a.backend_start OPERATOR(pg_catalog.=) g.started
ORDER BY g.leads DESC, g.since, g.address",
        )
        .await?;
    let answer = Answer { node: home.node(), what: "the gateways", rows: &rows };
    let read = |row| {
        let (address, since) = (answer.text(row, 0)?.to_owned(), answer.text(row, 2)?.to_owned());
        Ok(GatewayThere { address, leads: answer.boolean(row, 1)?, since })
    };
    (0..answer.len()).map(read).collect()
}

/// A gateway that follows another.
#[derive(Debug)]
pub struct Follower {
    config: Config,
    endpoint: Endpoint,
    /// `None`: node 1 is away.
    home: Option<NodeConnection>,
    /// What shows that this gateway is one of the cluster's.
    seals: Arc<Seals>,
    /// By which the others know it.
    identity: u64,
    following: Following,
}

impl Follower {
    /// Joins the gateways of a cluster. Waits for a node 1 that says that it is starting: that it will be over.
    ///
    /// Errors: node 1 cannot be reached, is not the cluster's, or its schema is of another version (which is for a
    /// gateway that leads to change).
    pub async fn join(config: &Config) -> Result<Self, GatewayError> {
        let mut follower = Self::again(config, Arc::default());
        let mut is_told = false;
        loop {
            match follower.connect().await.map(drop) {
                Err(error) if error.is_starting() => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(%error, "waiting for node 1, which is starting");
                    }
                    sleep(LOOK_INTERVAL).await;
                }
                connected => return connected.map(|()| follower),
            }
        }
    }

    /// One that has been among them joins them again, as soon as node 1 answers. `seals`: what it proves itself by.
    pub fn again(config: &Config, seals: Arc<Seals>) -> Self {
        let endpoint = Endpoints::new(config).of(NodeId::HOME).clone();
        let looks = Duration::from_secs(config.gateways.lease_s.into()).as_millis()
            / LOOK_INTERVAL.as_millis();
        Self {
            config: config.clone(),
            endpoint,
            home: None,
            seals,
            // Positive, for a bigint, and beyond every incarnation.
            identity: u64::from_be_bytes(random()) >> 1 | 1 << 62,
            following: Following::begin(u32::try_from(looks).unwrap_or(u32::MAX)),
        }
    }

    /// What this gateway proves itself by.
    pub fn seals(&self) -> Arc<Seals> {
        self.seals.clone()
    }

    /// How long clients get to end when this gateway is asked to.
    pub fn drain_timeout(&self) -> Duration {
        Duration::from_secs(self.config.drain_timeout_s)
    }

    async fn connect(&mut self) -> Result<&mut NodeConnection, GatewayError> {
        let mut home = open(&self.endpoint).await?;
        check_identity(&mut home, &self.config, None).await?;
        if !learn_secret_as_it_is(&self.seals, &mut home).await? {
            return Err(GatewayError::Unreadable {
                node: home.node(),
                what: "the secret of a schema of this version",
            });
        }
        announce(&mut home, &self.config, self.identity, None).await?;
        Ok(self.home.insert(home))
    }

    /// Who leads now; `None`: nobody, or one that does not serve yet.
    ///
    /// Errors: node 1 does not answer.
    pub async fn leader(&mut self) -> Result<Option<Leader>, GatewayError> {
        Ok(self.look().await?.1)
    }

    async fn look(&mut self) -> Result<(Seen, Option<Leader>), GatewayError> {
        let home = match &mut self.home {
            Some(home) => home,
            None => self.connect().await?,
        };
        let rows = home.rows(LEADER).await?;
        let answer = Answer { node: home.node(), what: "the gateway that leads", rows: &rows };
        if answer.is_empty() {
            return Ok((Seen::Nobody, None));
        }
        let session = (answer.number(0, 0)?, answer.number(0, 1)?);
        let leader = match answer.optional(0, 4) {
            Some(address) => {
                Some(Leader { identity: answer.number(0, 3)?, address: address.to_owned() })
            }
            None => None,
        };
        Ok((Seen::Leader { session, said: answer.number(0, 2)? }, leader))
    }

    /// Looks at node 1 and tells who leads, until this gateway is to lead itself.
    pub async fn follow(&mut self, tell: &watch::Sender<Option<Leader>>) {
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let looked = timeout(LOOK_PATIENCE, self.look()).await;
            let seen = match looked {
                Ok(Ok((seen, leader))) => {
                    // One that has only lost its lock is still there.
                    if leader.is_some() {
                        tell.send_if_modified(|known| {
                            let is_new = *known != leader;
                            *known = leader;
                            is_new
                        });
                    }
                    seen
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, "node 1 does not say who leads");
                    self.home = None;
                    Seen::Silence
                }
                Err(_) => {
                    self.home = None;
                    Seen::Silence
                }
            };
            match self.following.look(seen) {
                Next::Follow => (),
                Next::Lead => return,
                Next::Depose { session } => self.depose(session).await,
            }
        }
    }

    /// Ends the session that has the lock, if it still is the same.
    async fn depose(&mut self, (pid, started): (i32, i64)) {
        let lease_s = self.config.gateways.lease_s;
        tracing::warn!(lease_s, pid, "the gateway that leads says nothing; taking its place");
        let sql = format!(
            "SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity AS a
WHERE a.pid OPERATOR(pg_catalog.=) {pid} AND (pg_catalog.date_part('epoch', a.backend_start)
    OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 OPERATOR(pg_catalog.=) {started}"
        );
        let Some(home) = &mut self.home else { return };
        let deposed = timeout(LOOK_PATIENCE, home.query(&sql)).await;
        if !matches!(deposed, Ok(Ok(_))) {
            self.home = None;
        }
    }
}
