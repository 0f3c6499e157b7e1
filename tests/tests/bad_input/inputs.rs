//! What can be wrong with bytes that a client sends.
//!
//! Owns: the inputs, each with a name; before a session begins, and in one. Never: sends them.

use bytes::{Bytes, BytesMut};
use tutti_wire::frame::{put_count, put_frame, put_string};
use tutti_wire::frontend::{
    Arguments, Target, put_bind, put_close, put_copy_data, put_copy_done, put_copy_fail,
    put_describe, put_execute, put_flush, put_parse, put_query, put_sync,
};
use tutti_wire::startup::{put_cancel, put_startup};

use super::raw::startup_packet;

/// Something to send.
pub struct Input {
    /// What is wrong with it.
    pub name: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

fn input(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Input {
    Input { name: name.into(), bytes: bytes.into() }
}

fn made(name: &str, put: impl FnOnce(&mut BytesMut)) -> Input {
    let mut out = BytesMut::new();
    put(&mut out);
    input(name, out.to_vec())
}

/// A message with any body.
fn message(name: &str, tag: u8, body: &[u8]) -> Input {
    made(name, |out| put_frame(out, tag, |rest| rest.extend_from_slice(body)))
}

/// A header with any length, and a little after it.
fn with_length(tag: u8, length: i32) -> Input {
    let mut bytes = vec![tag];
    bytes.extend(length.to_be_bytes());
    bytes.extend(b"abc\0");
    input(format!("{} of length {length}", char::from(tag)), bytes)
}

fn packet(name: &str, length: i32, rest: &[u8]) -> Input {
    input(name, [&length.to_be_bytes()[..], rest].concat())
}

/// Instead of a startup packet.
pub fn before_a_session() -> Vec<Input> {
    let good = startup_packet();
    let mut inputs: Vec<Input> = [0, 1, 3, 4, 7, 10_001, -1, i32::MIN, i32::MAX]
        .map(|length| packet(&format!("a packet of length {length}"), length, &good[4..]))
        .into();
    inputs.extend([
        input("nothing", b""),
        input("half a length", &good[..2]),
        input("half a packet", &good[..good.len() / 2]),
        input("another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        input("TLS without asking", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        made("a message first", |out| put_query(out, "SELECT 1")),
        packet("a version alone", 8, &[0, 3, 0, 0]),
        packet("protocol 4", 9, &[0, 4, 0, 0, 0]),
        packet("no terminator", 13, b"\0\x03\0\0user\0"),
        packet("a name without value", 14, b"\0\x03\0\0user\0\0"),
        packet("a string without end", 12, b"\0\x03\0\0user"),
        packet("something behind the end", 24, b"\0\x03\0\0user\0postgres\0\0x"),
        packet("no user", 9, b"\0\x03\0\0\0"),
        packet("a user of no text", 16, b"\0\x03\0\0user\0\xff\0\0"),
        packet("half a cancel request", 8, &[4, 210, 22, 46]),
        made("a cancel request of nobody's", |out| put_cancel(out, 1, 2)),
        made("a long user", |out| put_startup(out, &[("user", "u".repeat(9_000).as_str())])),
        made("unknown settings", |out| {
            put_startup(out, &[("user", "postgres"), ("no such setting", "1")]);
        }),
    ]);
    inputs
}

/// In a session, whatever its state.
pub fn in_a_session() -> Vec<Input> {
    let mut inputs = Vec::new();
    for tag in [0, b'!', b'z', 0x80, 0xff, b'T', b'Z', b'R', b'1', b'v', b'G'] {
        inputs.push(message(&format!("tag {tag:#04x}"), tag, b"\0\0\0\0"));
    }
    for tag in [b'Q', b'B', b'S', b'd', b'X'] {
        inputs.extend([0, 1, 3, -1, i32::MIN, i32::MAX].map(|length| with_length(tag, length)));
    }
    inputs.extend(malformed());
    inputs.extend(out_of_order());
    inputs.extend(texts());
    inputs.extend(sizes());
    inputs
}

/// A Bind with any body, to a statement that is there if statements can be.
fn bind(name: &str, body: &[u8]) -> Input {
    made(name, |out| {
        put_parse(out, "", "SELECT 1", &[]);
        put_frame(out, b'B', |rest| rest.extend_from_slice(body));
    })
}

fn malformed() -> Vec<Input> {
    vec![
        input("half a header", b"Q\0\0"),
        input("half a message", b"Q\0\0\0\x20SELECT"),
        message("a Query without end", b'Q', b"SELECT 1"),
        message("an empty Query message", b'Q', b""),
        message("a Query with something behind", b'Q', b"SELECT 1\0x"),
        message("a Parse without end", b'P', b"s\0SELECT 1"),
        message("a Parse without count", b'P', b"s\0SELECT 1\0"),
        message("a Parse with too large a count", b'P', b"s\0SELECT 1\0\xff\xff\0\0\0\x17"),
        bind("a Bind without counts", b"\0\0"),
        bind("a Bind with too many formats", b"\0\0\x7f\xff\0\0\0\0"),
        bind("a Bind with too many values", b"\0\0\0\0\xff\xff\0\0\0\x01x\0\0"),
        bind("a value that is too long", b"\0\0\0\0\0\x01\x7f\xff\xff\xffx\0\0"),
        bind("a value of negative length", b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
        bind("a Bind with something behind", b"\0\0\0\0\0\0\0\0x"),
        message("a Describe of neither", b'D', b"Xname\0"),
        message("an empty Describe", b'D', b""),
        message("a Close of neither", b'C', b"Xname\0"),
        message("a Close without end", b'C', b"Sname"),
        message("an Execute without limit", b'E', b"\0"),
        message("an Execute with half a limit", b'E', b"\0\0\0"),
        message("a FunctionCall without arguments", b'F', b"\0\0\0\x01"),
        message("an empty FunctionCall", b'F', b""),
    ]
}

fn out_of_order() -> Vec<Input> {
    let none = Arguments::default();
    vec![
        made("a Bind to a missing statement", |out| put_bind(out, "", "missing", &none)),
        made("an Execute without a Bind", |out| put_execute(out, "missing", 0)),
        made("a Describe of a missing statement", |out| {
            put_describe(out, Target::Statement, "missing");
        }),
        made("a Describe of a missing portal", |out| put_describe(out, Target::Portal, "missing")),
        made("a Close of what is missing", |out| put_close(out, Target::Portal, "missing")),
        made("CopyData", |out| put_copy_data(out, b"77\tseventy-seven\n")),
        made("CopyDone", put_copy_done),
        made("CopyFail", |out| put_copy_fail(out, "no reason")),
        made("Syncs and Flushes", |out| {
            put_sync(out);
            put_flush(out);
            put_flush(out);
            put_sync(out);
        }),
        made("a Query", |out| put_query(out, "SELECT 7")),
        made("a flight", |out| {
            put_parse(out, "", "SELECT 8", &[]);
            put_bind(out, "", "", &none);
            put_execute(out, "", 0);
        }),
        input("a second startup packet", startup_packet()),
        input("a request for encryption", b"\0\0\0\x08\x04\xd2\x16\x2f"),
        message("a password", b'p', b"secret\0"),
    ]
}

fn texts() -> Vec<Input> {
    let value =
        Arguments { values: vec![Some(Bytes::from_static(b"\xff"))], ..Arguments::default() };
    vec![
        message("NUL in a Query", b'Q', b"SELECT 1\0SELECT 2\0"),
        message("no UTF-8 in a Query", b'Q', b"SELECT '\xff'\0"),
        message("half a character in a Query", b'Q', b"SELECT '\xc3\0"),
        message("no UTF-8 in a Parse", b'P', b"s\0SELECT '\xff'\0\0\0"),
        message("no UTF-8 in a statement's name", b'P', b"\xff\0SELECT 1\0\0\0"),
        message("no UTF-8 in a portal's name", b'B', b"\xff\0\0\0\0\0\0\0\0"),
        message("no UTF-8 in a Describe", b'D', b"S\xff\0"),
        made("no UTF-8 in a value", |out| {
            put_parse(out, "", "SELECT $1::text", &[]);
            put_bind(out, "", "", &value);
            put_execute(out, "", 0);
        }),
        made("no UTF-8 in a key", |out| {
            put_parse(out, "", "SELECT v FROM t WHERE id = $1", &[]);
            put_bind(out, "", "", &value);
            put_execute(out, "", 0);
        }),
    ]
}

fn sizes() -> Vec<Input> {
    let long = "n".repeat(1 << 20);
    let none = Arguments::default();
    let many = Arguments {
        values: vec![Some(Bytes::from_static(b"1")); usize::from(u16::MAX)],
        ..Arguments::default()
    };
    vec![
        made("a long name of a statement", |out| {
            put_parse(out, &long, "SELECT 1", &[]);
            put_bind(out, "", &long, &none);
            put_execute(out, "", 0);
        }),
        made("a long name of a missing statement", |out| put_bind(out, "", &long, &none)),
        made("a long word in a Query", |out| put_query(out, &format!("SELECT 1 AS {long}"))),
        made("too many values", |out| {
            put_parse(out, "", "SELECT $1::int", &[]);
            put_bind(out, "", "", &many);
            put_execute(out, "", 0);
        }),
        made("types of many parameters", |out| {
            put_frame(out, b'P', |body| {
                put_string(body, "");
                put_string(body, "SELECT 1");
                put_count(body, usize::from(u16::MAX));
                body.extend_from_slice(&[0_u8; 4].repeat(usize::from(u16::MAX)));
            });
            put_bind(out, "", "", &none);
            put_execute(out, "", 0);
        }),
    ]
}
