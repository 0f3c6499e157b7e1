//! The request to end: Ctrl-C, SIGTERM, or the terminal closing.
//!
//! Owns: turning these signals into something many tasks can wait for. Never: ends anything itself.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Tells all holders of a clone that the program must end.
#[derive(Clone, Debug)]
pub(crate) struct Shutdown {
    asked: watch::Receiver<bool>,
}

impl Shutdown {
    /// Listens for the signals from now on; they no longer end the process by themselves.
    pub(crate) fn on_signals() -> anyhow::Result<Self> {
        Self::on(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])
    }

    /// The same without the terminal closing: SIGHUP has another meaning for this gateway.
    pub(crate) fn on_signals_but_hangup() -> anyhow::Result<Self> {
        Self::on(&[SignalKind::interrupt(), SignalKind::terminate()])
    }

    fn on(kinds: &[SignalKind]) -> anyhow::Result<Self> {
        let (sender, asked) = watch::channel(false);
        for kind in kinds.iter().copied() {
            let mut signals = signal(kind).context("cannot listen for signals")?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    sender.send_replace(true);
                }
            });
        }
        Ok(Self { asked })
    }

    /// Returns when the end is requested, immediately if it already was.
    pub(crate) async fn asked(&mut self) {
        // The sender lives in tasks that never end, so there cannot be an error; it would mean the
        // end.
        let _ = self.asked.wait_for(|asked| *asked).await;
    }
}
