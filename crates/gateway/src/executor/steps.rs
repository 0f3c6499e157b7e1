//! Statements that are run part by part.
//!
//! Owns: running the parts in order, and keeping what those have returned that later ones need.
//! Never: decides what the parts are, or that they may be run so; the planner does.
//! Start reading at [`Executor::run_steps`].

use bytes::{Bytes, BytesMut};
use tutti_sql::plan::{DataPlan, Plan, Step, Steps};
use tutti_wire::backend::decode_data_row;
use tutti_wire::frame::{frame_len, take_frame};

use super::array_literal::ArrayText;
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done, too_large};

impl Executor<'_> {
    /// All parts run in one transaction. The client is told of the last one's answer.
    pub(super) async fn run_steps(
        &mut self,
        steps: &Steps,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        self.need_transaction();
        if !call.is_extended() {
            // The parts would report less than the whole: errors of analysis must be those of the client's statement.
            self.describe_text(text, &[]).await?;
        }
        self.tx.returned = Some(Vec::new());
        let ran = self.run_all(steps, call).await;
        self.tx.returned = None;
        ran.map_err(Failure::without_position)
    }

    async fn run_all(&mut self, steps: &Steps, call: &Call) -> Result<Done, Failure> {
        for step in &steps.before {
            let returned = self.run_kept(step, &call.returning_text()).await?;
            self.tx.returned.get_or_insert_default().push(returned);
        }
        self.run_step(&steps.rest, call).await
    }

    /// Runs a part, and keeps the rows that it returns, as the text of an array.
    async fn run_kept(&mut self, step: &Step, call: &Call) -> Result<Bytes, Failure> {
        let around = self.client.take_capture();
        let bytes_max = self.travelling_bytes_max();
        self.client.begin_capture(bytes_max);
        self.tx.is_part = true;
        let ran = self.run_step(step, call).await;
        self.tx.is_part = false;
        let kept = self.client.end_capture();
        self.client.resume_capture(around);
        ran?;
        let kept = kept.ok_or_else(|| too_large(bytes_max))?;
        let mut rows = ArrayText::default();
        let mut rest = BytesMut::from(&kept[..]);
        while frame_len(&rest)?.is_some() {
            let Some(frame) = take_frame(&mut rest)? else { break };
            match frame.tag() {
                b'D' if step.returns => {
                    let row = decode_data_row(&frame)?;
                    let row =
                        row.first().and_then(|value| std::str::from_utf8(value.as_ref()?).ok());
                    let row = row.ok_or_else(|| {
                        Failure::error("XX000", "a node returned an unreadable row")
                    })?;
                    rows.push_composite(row);
                }
                b'D' | b'T' | b'C' | b'n' => (),
                // A notice, say.
                _ => self.client.out().extend_from_slice(frame.as_bytes()),
            }
        }
        Ok(rows.into_bytes())
    }

    /// What comes before and after any statement is done for the whole.
    async fn run_step(&mut self, step: &Step, call: &Call) -> Result<Done, Failure> {
        let mut planned = &*step.planned;
        while let Plan::Data(DataPlan::One { node, otherwise: Some(otherwise), .. }) = &planned.plan
            && self.choose(node, call).is_none()
        {
            planned = otherwise;
        }
        Box::pin(self.obey(planned, &step.text, call)).await
    }
}
