//! The signals that end a run: Ctrl-C, SIGTERM, or the terminal going away.
//!
//! Owns: waiting for one. Never: ends anything itself; servers are stopped by what started them.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens from the moment it is made: a signal that came meanwhile is not lost.
#[derive(Debug)]
pub(crate) struct Interrupt {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Interrupt {
    /// From now on these signals no longer end the process by themselves.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Returns when one has come.
    pub(crate) async fn came(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
            _ = self.hangup.recv() => (),
        }
    }
}
