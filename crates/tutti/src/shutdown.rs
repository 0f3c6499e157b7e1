//! The request to end: Ctrl-C, SIGTERM, or the terminal closing.
//!
//! Owns: turning these signals into something many tasks can wait for. Never: ends anything itself.

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Tells all holders of a clone that the program must end.
#[derive(Clone, Debug)]
pub(crate) struct Shutdown {
    /// How often.
    asked: watch::Receiver<u32>,
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
        let (sender, asked) = watch::channel(0);
        for kind in kinds.iter().copied() {
            let mut signals = signal(kind).context("cannot listen for signals")?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    sender.send_modify(|times| *times += 1);
                }
            });
        }
        Ok(Self { asked })
    }

    /// Returns when the end is requested, immediately if it already was.
    pub(crate) async fn asked(&mut self) {
        // The sender lives in tasks that never end, so there cannot be an error; it would mean the
        // end.
        let _ = self.asked.wait_for(|times| 1 <= *times).await;
    }

    /// Returns when it is requested a second time, by somebody who will not wait for what is still running.
    pub(crate) async fn asked_again(&mut self) {
        let _ = self.asked.wait_for(|times| 2 <= *times).await;
    }
}
