//! The answer to one simple query, frame by frame.
//!
//! Owns: what of an answer has been read so far, so that its reader can wait for other things
//! between two frames. Never: reads or writes.

use bytes::{Bytes, BytesMut};
use tutti_wire::backend::{decode_command_complete, decode_data_row};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::{Frame, WireError, take_frame};

use super::NodeError;

/// The rows of one statement of a simple query; `None` is NULL.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Values in text form.
    pub rows: Vec<Vec<Option<Bytes>>>,
    /// The command tag.
    pub tag: String,
}

impl Rows {
    /// The value at `row` and `column` as text; `None` if it is NULL or not there.
    pub fn text(&self, row: usize, column: usize) -> Option<&str> {
        std::str::from_utf8(self.rows.get(row)?.get(column)?.as_ref()?).ok()
    }
}

/// An error or a notice of a node's, without a context that shows the gateway's own functions or parameters:
/// among these are seals, and rows that the client may not see.
pub fn told(frame: &Frame) -> Result<ErrorFields, WireError> {
    let mut fields = ErrorFields::decode(frame)?;
    let is_own = fields.get(b'W').is_some_and(|it| it.contains("tutti.") || it.contains("$1 = "));
    // An empty field was raised again by the gateway's own functions, which cannot omit a field.
    fields.fields.retain(|(code, text)| !(text.is_empty() || (is_own && b"Wqp".contains(code))));
    Ok(fields)
}

/// The same for a notice that is passed on as it is.
pub fn told_notice(frame: Frame) -> Result<Frame, WireError> {
    let has = |text: &[u8]| frame.as_bytes().windows(text.len()).any(|it| it == text);
    if !has(b"tutti.") && !has(b"$1 = ") {
        return Ok(frame);
    }
    let mut out = BytesMut::new();
    told(&frame)?.put(&mut out, b'N');
    Ok(take_frame(&mut out)?.expect("a frame was put"))
}

/// Rows and the first refusal, until ReadyForQuery.
#[derive(Debug, Default)]
pub struct PartialAnswer {
    results: Vec<Rows>,
    current: Rows,
    refused: Option<ErrorFields>,
}

/// What a frame did to an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// More is to come.
    Going,
    /// ReadyForQuery: [`PartialAnswer::finish`] has it all.
    Complete,
    /// The node says why it closes the connection. Nothing follows.
    Fatal,
}

impl PartialAnswer {
    /// Takes the next frame.
    pub fn take(&mut self, frame: &Frame) -> Result<Progress, WireError> {
        match frame.tag() {
            b'D' => self.current.rows.push(decode_data_row(frame)?),
            b'C' => {
                self.current.tag = decode_command_complete(frame)?;
                self.results.push(std::mem::take(&mut self.current));
            }
            b'E' => {
                let fields = told(frame)?;
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
    pub fn finish(&mut self) -> Result<Vec<Rows>, NodeError> {
        let Self { results, refused, .. } = std::mem::take(self);
        refused.map_or(Ok(results), |fields| Err(NodeError::Refused(Box::new(fields))))
    }
}
