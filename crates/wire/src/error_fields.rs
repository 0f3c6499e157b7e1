//! ErrorResponse and NoticeResponse: their fields, read and written.
//!
//! Owns: the field codes.
//! Never: decides what an error means.

use bytes::BytesMut;

use crate::frame::{Fields, Frame, WireError, put_frame, put_string};

/// An error or notice, as the protocol carries it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ErrorFields {
    /// Code and text of every field, in the order of the wire.
    pub fields: Vec<(u8, String)>,
}

impl ErrorFields {
    /// An error of our own.
    pub fn error(sqlstate: &str, message: impl Into<String>) -> Self {
        Self::with_severity("ERROR", sqlstate, message)
    }

    /// An error after which the connection ends.
    pub fn fatal(sqlstate: &str, message: impl Into<String>) -> Self {
        Self::with_severity("FATAL", sqlstate, message)
    }

    /// A notice or warning, by its severity.
    pub fn with_severity(severity: &str, sqlstate: &str, message: impl Into<String>) -> Self {
        Self {
            fields: vec![
                (b'S', severity.to_owned()),
                (b'V', severity.to_owned()),
                (b'C', sqlstate.to_owned()),
                (b'M', message.into()),
            ],
        }
    }

    /// Adds a field: `D` detail, `H` hint, `P` position, `W` context…
    #[must_use]
    pub fn with(mut self, code: u8, text: impl Into<String>) -> Self {
        self.fields.push((code, text.into()));
        self
    }

    /// Text of the first field with this code.
    pub fn get(&self, code: u8) -> Option<&str> {
        self.fields.iter().find(|(found, _)| *found == code).map(|(_, text)| text.as_str())
    }

    /// The five characters of the SQLSTATE; `XX000` if the field is missing.
    pub fn sqlstate(&self) -> &str {
        self.get(b'C').unwrap_or("XX000")
    }

    /// The primary message.
    pub fn message(&self) -> &str {
        self.get(b'M').unwrap_or_default()
    }

    /// The same for a client that is told of it but keeps its connection.
    #[must_use]
    pub fn not_fatal(mut self) -> Self {
        if self.is_fatal() {
            for (code, text) in &mut self.fields {
                if matches!(code, b'S' | b'V') {
                    *text = "ERROR".to_owned();
                }
            }
        }
        self
    }

    /// Whether the sender closes the connection after it.
    pub fn is_fatal(&self) -> bool {
        matches!(self.get(b'V').or(self.get(b'S')), Some("FATAL" | "PANIC"))
    }

    /// Reads the body of an `E` or `N` frame. Text that is not UTF-8 (an error raised before the
    /// encoding is known) is kept as far as it can be.
    pub fn decode(frame: &Frame) -> Result<Self, WireError> {
        let mut rest = Fields::of(frame);
        let mut fields = Vec::new();
        loop {
            let code = rest.byte()?;
            if code == 0 {
                break;
            }
            fields.push((code, rest.string_lossy()?));
        }
        Ok(Self { fields })
    }

    /// Appends the frame; `tag` is `E` or `N`.
    pub fn put(&self, out: &mut BytesMut, tag: u8) {
        put_frame(out, tag, |body| {
            for (code, text) in &self.fields {
                body.extend_from_slice(&[*code]);
                put_string(body, text);
            }
            body.extend_from_slice(&[0]);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::take_frame;

    #[test]
    fn fields_survive_the_way_there_and_back() {
        let error = ErrorFields::error("40P01", "deadlock detected").with(b'H', "Retry.");
        let mut out = BytesMut::new();
        error.put(&mut out, b'E');
        let frame = take_frame(&mut out).unwrap().unwrap();
        let read = ErrorFields::decode(&frame).unwrap();
        assert_eq!(read, error);
        assert_eq!((read.sqlstate(), read.is_fatal()), ("40P01", false));
    }

    #[test]
    fn text_in_another_encoding_does_not_hide_the_error() {
        let mut out = BytesMut::new();
        put_frame(&mut out, b'E', |body| {
            body.extend_from_slice(b"C28000\0Mrole \"\xff\" does not exist\0\0");
        });
        let frame = take_frame(&mut out).unwrap().unwrap();
        let read = ErrorFields::decode(&frame).unwrap();
        assert_eq!(read.sqlstate(), "28000");
        assert_eq!(read.message(), "role \"\u{fffd}\" does not exist");
    }
}
