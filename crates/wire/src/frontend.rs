//! What clients say after startup: read from them, and written to nodes.
//!
//! Owns: the layout of the messages that the gateway must decode; others are forwarded unread.
//! Never: keeps state between messages.

use bytes::{Bytes, BytesMut};

use crate::frame::{Fields, Frame, WireError, put_count, put_frame, put_string, put_values};

/// Prepared statement or portal: the two things with names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Target {
    /// `S`.
    Statement,
    /// `P`.
    Portal,
}

impl Target {
    fn code(self) -> u8 {
        match self {
            Self::Statement => b'S',
            Self::Portal => b'P',
        }
    }
}

/// A parsed `Parse`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parse {
    /// Name; empty for the unnamed statement.
    pub name: String,
    /// The text.
    pub sql: String,
    /// Parameter types that the client fixed; 0 leaves one to the server.
    pub types: Vec<u32>,
}

/// A parsed `Bind`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bind {
    /// Portal name; empty for the unnamed portal.
    pub portal: String,
    /// Name of the prepared statement.
    pub statement: String,
    /// Parameters and formats.
    pub arguments: Arguments,
}

/// Parameter values and formats: the part of a `Bind` after its names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Arguments {
    /// 0 text, 1 binary; none: all text; one: for all; else one per value.
    pub formats: Vec<i16>,
    /// The values; `None` is NULL.
    pub values: Vec<Option<Bytes>>,
    /// Formats wanted for result columns, same convention.
    pub result_formats: Vec<i16>,
}

impl Arguments {
    /// Format of the value at `index`.
    pub fn format(&self, index: usize) -> i16 {
        format_of(&self.formats, index)
    }

    /// Format of the result column at `index`.
    pub fn result_format(&self, index: usize) -> i16 {
        format_of(&self.result_formats, index)
    }
}

fn format_of(formats: &[i16], index: usize) -> i16 {
    match formats {
        [] => 0,
        [all] => *all,
        each => each.get(index).copied().unwrap_or(0),
    }
}

/// One message of a client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// `Q`: a string of statements.
    Query(String),
    /// `P`.
    Parse(Parse),
    /// `B`.
    Bind(Bind),
    /// `D`.
    Describe(Target, String),
    /// `E`.
    Execute {
        /// Portal name.
        portal: String,
        /// Most rows to return; 0 or less for all.
        row_limit: i32,
    },
    /// `C`.
    Close(Target, String),
    /// `H`.
    Flush,
    /// `S`.
    Sync,
    /// `X`.
    Terminate,
    /// `d`.
    CopyData(Bytes),
    /// `c`.
    CopyDone,
    /// `f`, with the reason.
    CopyFail(String),
    /// `F`.
    FunctionCall,
    /// `p`: password, SASL.
    Password(Bytes),
}

/// Reads one message.
///
/// Errors: [`WireError::UnknownTag`], [`WireError::Malformed`], [`WireError::NotUtf8`].
pub fn decode(frame: &Frame) -> Result<Message, WireError> {
    let mut fields = Fields::of(frame);
    let message = match frame.tag() {
        b'Q' => Message::Query(fields.string()?),
        b'P' => {
            let (name, sql) = (fields.string()?, fields.string()?);
            let count = fields.count()?;
            let types = (0..count)
                .map(|_| fields.int32().map(i32::cast_unsigned))
                .collect::<Result<_, _>>()?;
            Message::Parse(Parse { name, sql, types })
        }
        b'B' => {
            let (portal, statement) = (fields.string()?, fields.string()?);
            let formats = int16s(&mut fields)?;
            let count = fields.count()?;
            let values = (0..count).map(|_| fields.value()).collect::<Result<_, _>>()?;
            let result_formats = int16s(&mut fields)?;
            let arguments = Arguments { formats, values, result_formats };
            Message::Bind(Bind { portal, statement, arguments })
        }
        b'D' => Message::Describe(target(&mut fields)?, fields.string()?),
        b'E' => Message::Execute { portal: fields.string()?, row_limit: fields.int32()? },
        b'C' => Message::Close(target(&mut fields)?, fields.string()?),
        b'H' => Message::Flush,
        b'S' => Message::Sync,
        b'X' => Message::Terminate,
        b'd' => return Ok(Message::CopyData(fields.rest())),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(fields.string()?),
        b'F' => return Ok(Message::FunctionCall),
        b'p' => return Ok(Message::Password(fields.rest())),
        tag => return Err(WireError::UnknownTag { tag }),
    };
    fields.end()?;
    Ok(message)
}

fn int16s(fields: &mut Fields) -> Result<Vec<i16>, WireError> {
    let count = fields.count()?;
    (0..count).map(|_| fields.int16()).collect()
}

fn target(fields: &mut Fields) -> Result<Target, WireError> {
    match fields.byte()? {
        b'S' => Ok(Target::Statement),
        b'P' => Ok(Target::Portal),
        _ => Err(WireError::Malformed),
    }
}

/// Appends a `Query`.
pub fn put_query(out: &mut BytesMut, sql: &str) {
    put_frame(out, b'Q', |body| put_string(body, sql));
}

/// Appends a `Parse`.
pub fn put_parse(out: &mut BytesMut, name: &str, sql: &str, types: &[u32]) {
    put_frame(out, b'P', |body| {
        put_string(body, name);
        put_string(body, sql);
        put_count(body, types.len());
        for type_oid in types {
            body.extend_from_slice(&type_oid.to_be_bytes());
        }
    });
}

/// Appends a `Bind`.
pub fn put_bind(out: &mut BytesMut, portal: &str, statement: &str, arguments: &Arguments) {
    put_frame(out, b'B', |body| {
        put_string(body, portal);
        put_string(body, statement);
        put_int16s(body, &arguments.formats);
        put_values(body, arguments.values.iter().map(Option::as_deref));
        put_int16s(body, &arguments.result_formats);
    });
}

/// Appends a `Describe`.
pub fn put_describe(out: &mut BytesMut, target: Target, name: &str) {
    put_frame(out, b'D', |body| put_target(body, target, name));
}

/// Appends a `Close`.
pub fn put_close(out: &mut BytesMut, target: Target, name: &str) {
    put_frame(out, b'C', |body| put_target(body, target, name));
}

/// Appends an `Execute`.
pub fn put_execute(out: &mut BytesMut, portal: &str, row_limit: i32) {
    put_frame(out, b'E', |body| {
        put_string(body, portal);
        body.extend_from_slice(&row_limit.to_be_bytes());
    });
}

/// Appends a `Sync`.
pub fn put_sync(out: &mut BytesMut) {
    put_frame(out, b'S', |_| ());
}

/// Appends a `Flush`.
pub fn put_flush(out: &mut BytesMut) {
    put_frame(out, b'H', |_| ());
}

/// Appends a `Terminate`.
pub fn put_terminate(out: &mut BytesMut) {
    put_frame(out, b'X', |_| ());
}

/// Appends a `CopyData`.
pub fn put_copy_data(out: &mut BytesMut, data: &[u8]) {
    put_frame(out, b'd', |body| body.extend_from_slice(data));
}

/// Appends a `CopyDone`.
pub fn put_copy_done(out: &mut BytesMut) {
    put_frame(out, b'c', |_| ());
}

/// Appends a `CopyFail`.
pub fn put_copy_fail(out: &mut BytesMut, reason: &str) {
    put_frame(out, b'f', |body| put_string(body, reason));
}

fn put_target(body: &mut BytesMut, target: Target, name: &str) {
    body.extend_from_slice(&[target.code()]);
    put_string(body, name);
}

fn put_int16s(body: &mut BytesMut, values: &[i16]) {
    put_count(body, values.len());
    for value in values {
        body.extend_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::take_frame;

    fn read(out: &mut BytesMut) -> Message {
        decode(&take_frame(out).unwrap().unwrap()).unwrap()
    }

    #[test]
    fn messages_survive_the_way_there_and_back() {
        let arguments = Arguments {
            formats: vec![1],
            values: vec![None, Some(Bytes::from_static(b"\0\x01"))],
            result_formats: vec![0, 1],
        };
        let mut out = BytesMut::new();
        put_parse(&mut out, "s", "select $1, $2", &[23, 0]);
        put_bind(&mut out, "p", "s", &arguments);
        put_describe(&mut out, Target::Portal, "p");
        put_execute(&mut out, "p", 5);
        put_close(&mut out, Target::Statement, "s");
        put_sync(&mut out);
        let parse = Parse { name: "s".into(), sql: "select $1, $2".into(), types: vec![23, 0] };
        assert_eq!(read(&mut out), Message::Parse(parse));
        let bind = Bind { portal: "p".into(), statement: "s".into(), arguments };
        assert_eq!(read(&mut out), Message::Bind(bind));
        assert_eq!(read(&mut out), Message::Describe(Target::Portal, "p".into()));
        assert_eq!(read(&mut out), Message::Execute { portal: "p".into(), row_limit: 5 });
        assert_eq!(read(&mut out), Message::Close(Target::Statement, "s".into()));
        assert_eq!(read(&mut out), Message::Sync);
    }

    proptest! {
        #[test]
        fn any_frame_is_read_or_refused(
            tag in any::<u8>(),
            body in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut out = BytesMut::new();
            put_frame(&mut out, tag, |rest| rest.extend_from_slice(&body));
            let frame = take_frame(&mut out).unwrap().unwrap();
            let _ = decode(&frame);
        }
    }
}
