//! What goes wrong while a system is measured: servers that are killed, links that are cut.
//!
//! Owns: doing it at its time, and undoing it. Never: says what clients make of it.
//! Start reading at [`Ground::suffer`].

use std::sync::PoisonError;
use std::time::Duration;

use anyhow::Context;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Component, Ground};
use tutti_lab::client;

/// What gateways may need to settle what a fault has left.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
const SETTLE_POLL: Duration = Duration::from_millis(200);

/// Something that goes wrong, and when.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub kind: FaultKind,
    /// Which server, or the link to what.
    pub of: Component,
    /// After what is counted has begun.
    pub at: Duration,
    /// Until it is over; nothing of a reset.
    pub lasts: Duration,
}

/// In which way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FaultKind {
    /// SIGKILL to all processes of a server, which is started again at the end.
    Kill,
    /// The link answers that nobody listens; what is open goes on.
    Refuse,
    /// Both sides of all that is open on a link get a reset.
    Reset,
    /// Nothing passes on a link, and nobody is told; what was under way arrives at the end.
    Silence,
}

impl Ground {
    /// Does all of it, each at its time, and returns when the last one is over. `from`: when what is counted begins.
    ///
    /// Errors: there is no such server or link; a server does not come back.
    pub(crate) async fn suffer(&self, faults: &[Fault], from: Instant) -> anyhow::Result<()> {
        let mut moments: Vec<(Duration, &Fault, bool)> = Vec::new();
        for fault in faults {
            moments.push((fault.at, fault, true));
            moments.push((fault.at + fault.lasts, fault, false));
        }
        moments.sort_by_key(|(at, ..)| *at);
        for (at, fault, begins) in moments {
            sleep_until(from + at).await;
            let done = if begins { self.begin(fault).await } else { self.end(fault).await };
            done.with_context(|| format!("{:?} of {:?}", fault.kind, fault.of))?;
        }
        Ok(())
    }

    async fn begin(&self, fault: &Fault) -> anyhow::Result<()> {
        match fault.kind {
            FaultKind::Kill => self.with_server(fault.of, |server| server.kill9()).await,
            FaultKind::Refuse => self.link(fault.of)?.refuse().await,
            FaultKind::Reset => {
                self.link(fault.of)?.reset();
                Ok(())
            }
            FaultKind::Silence => self.link(fault.of)?.silence().await,
        }
    }

    async fn end(&self, fault: &Fault) -> anyhow::Result<()> {
        match fault.kind {
            FaultKind::Kill => self.with_server(fault.of, |server| server.start()).await,
            FaultKind::Reset => Ok(()),
            FaultKind::Refuse | FaultKind::Silence => self.link(fault.of)?.restore().await,
        }
    }

    fn link(&self, of: Component) -> anyhow::Result<&tutti_lab::distance::Link> {
        self.links.get(&of).with_context(|| format!("there is no link to {of:?}"))
    }

    async fn with_server(
        &self,
        of: Component,
        act: impl FnOnce(&mut tutti_embed::Server) -> Result<(), tutti_embed::EmbedError>
        + Send
        + 'static,
    ) -> anyhow::Result<()> {
        let Component::Node(number) = of else { anyhow::bail!("{of:?} is no server") };
        let cluster = self.cluster.clone().context("these servers are somebody else's")?;
        let acted = spawn_blocking(move || {
            let mut cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
            act(cluster.server_mut(usize::from(number) - 1))
        });
        Ok(acted.await??)
    }

    /// Waits until no server has a transaction left that was prepared and not ended.
    ///
    /// Errors: one has, after a minute.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut settled = 0;
        while settled < 2 {
            let mut left = 0;
            for url in &self.node_urls {
                let count = "SELECT count(*) FROM pg_prepared_xacts";
                left += client::connect(url).await?.query_one(count, &[]).await?.get::<_, i64>(0);
            }
            // A session that nobody waits for any more may have been about to prepare when it was looked first.
            settled = if left == 0 { settled + 1 } else { 0 };
            anyhow::ensure!(
                begun.elapsed() < SETTLE_LIMIT,
                "{left} prepared transactions are left a minute after the last fault"
            );
            sleep(SETTLE_POLL).await;
        }
        Ok(())
    }
}
