//! The answer to one simple query, frame by frame.
//!
//! Owns: what of an answer has been read so far, so that its reader may wait for other things
//! between two frames. Never: reads or writes.

use tutti_wire::backend::{decode_command_complete, decode_data_row};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::{Frame, WireError};

use super::{NodeError, Rows};

/// Rows and the first refusal, until ReadyForQuery.
#[derive(Debug, Default)]
pub(crate) struct PartialAnswer {
    results: Vec<Rows>,
    current: Rows,
    refused: Option<ErrorFields>,
}

/// What a frame did to an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// More is to come.
    Going,
    /// ReadyForQuery: [`PartialAnswer::finish`] has it all.
    Complete,
    /// The node says why it closes the connection. Nothing follows.
    Fatal,
}

impl PartialAnswer {
    /// Takes the next frame.
    pub(crate) fn take(&mut self, frame: &Frame) -> Result<Progress, WireError> {
        match frame.tag() {
            b'D' => self.current.rows.push(decode_data_row(frame)?),
            b'C' => {
                self.current.tag = decode_command_complete(frame)?;
                self.results.push(std::mem::take(&mut self.current));
            }
            b'E' => {
                let fields = ErrorFields::decode(frame)?;
                let fatal = fields.is_fatal();
                if self.refused.is_none() {
                    self.refused = Some(fields);
                }
                if fatal {
                    return Ok(Progress::Fatal);
                }
            }
            b'Z' => return Ok(Progress::Complete),
            _ => (),
        }
        Ok(Progress::Going)
    }

    /// The rows of all statements, or the first refusal. Ready for the next answer afterwards.
    pub(crate) fn finish(&mut self) -> Result<Vec<Rows>, NodeError> {
        let Self { results, refused, .. } = std::mem::take(self);
        refused.map_or(Ok(results), |fields| Err(NodeError::Refused(Box::new(fields))))
    }
}
