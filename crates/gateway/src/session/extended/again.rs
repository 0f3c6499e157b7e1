//! A flight outside of transactions that a change has ended, and of which the client has been told nothing, is handled
//! once more: on one PostgreSQL it would have waited for the change.
//!
//! Owns: which flights these are, and that nothing of the first run is left.
//! Never: handles a message (see `extended`).
//! Start reading at [`Session::run_flight_again`].

use tutti_wire::frame::Frame;
use tutti_wire::frontend::{self, Message};

use super::due::Kept;
use crate::client::failure::Failure;
use crate::session::Session;
use crate::session::run_again::RUNS_MAX;
use crate::transaction::Mode;

impl Session {
    /// From here on messages are kept, if nothing has run since the last Sync.
    pub(super) fn keep_from_here(&mut self) {
        let is_outside = self.tx.transaction.mode == Mode::None
            && self.pipeline.expects.is_empty()
            && self.nodes_of_flight().is_empty()
            && self.tx.portals.is_empty();
        self.pipeline.kept = is_outside.then(|| Kept::from(self.client.written()));
    }

    /// Before a message is handled: keeps it, if its flight could be run again.
    pub(super) fn keep_message(&mut self, frame: &Frame) {
        if !std::mem::replace(&mut self.pipeline.has_begun, true) {
            self.keep_from_here();
        }
        let kept = self.pipeline.kept.take();
        self.pipeline.kept = kept.and_then(|kept| kept.with(frame));
    }

    /// After the messages of a flight so far, and its end if `ends`: where only a change has ended them, they are
    /// handled once more.
    pub(super) async fn run_flight_again(
        &mut self,
        ran: Result<(), Failure>,
        ends: bool,
    ) -> Result<(), Failure> {
        let ran = self.run_until_ended_otherwise(ran, ends).await;
        self.tx.starving = None;
        self.tx.locks_in_turn = false;
        ran
    }

    async fn run_until_ended_otherwise(
        &mut self,
        mut ran: Result<(), Failure>,
        ends: bool,
    ) -> Result<(), Failure> {
        let mut overtaken = 0;
        while ran.is_err()
            && overtaken < RUNS_MAX
            && self.tx.transaction.mode != Mode::Explicit
            && let Some(kept) = &self.pipeline.kept
            && let Some(start) = self.client.said_again(kept.written)
            && self.is_to_run_again(&ran, overtaken)
        {
            let (frames, begun) = (kept.frames.clone(), kept.begun);
            self.undo_messages(&frames).await?;
            self.take_back(start, &mut overtaken);
            self.heed_timeout(begun).await?;
            ran = self.take_messages(&frames).await;
            if ends && ran.is_ok() {
                ran = self.finish_pipeline().await;
            }
        }
        ran
    }

    async fn take_messages(&mut self, frames: &[Frame]) -> Result<(), Failure> {
        for frame in frames {
            self.take_message(frame).await?;
        }
        Ok(())
    }

    /// Leaves nothing of what a flight has done.
    async fn undo_messages(&mut self, frames: &[Frame]) -> Result<(), Failure> {
        self.skip_rest();
        self.rest_after_failure();
        self.undo_flight().await?;
        if self.tx.transaction.mode == Mode::Implicit {
            self.rollback().await;
        }
        self.tx.portals.clear();
        for frame in frames {
            if let Message::Parse(parse) = frontend::decode(frame)? {
                self.tx.statements.remove(&parse.name);
            }
        }
        self.pipeline.in_progress = None;
        self.pipeline.skipping = false;
        Ok(())
    }
}
