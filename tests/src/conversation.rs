//! Conversations in single protocol messages, as texts, to compare servers message by message.
//!
//! Owns: the language. One message per line: `P name|sql`, `B portal|statement|value|value`,
//! `D S name`, `D P name`, `E portal|limit`, `C S name`, `C P name`, `Q sql`, `H` (Flush), `S` (Sync),
//! `d data`, `c` (CopyDone), `f reason`. A line `--` ends a flight: what was written is sent, and
//! answers are read up to as many ReadyForQuery as the flight asked for. `~ 20` does the same, and then
//! waits for so many milliseconds.
//! Never: judges.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::BytesMut;
use tutti_wire::backend;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::Frame;
use tutti_wire::frontend::{self, Target};

use crate::answer::row_text;
use crate::client::{Client, text_arguments};

/// Appends the message that a line means; says whether it asks for a ReadyForQuery.
fn put_line(out: &mut BytesMut, line: &str) -> Result<bool> {
    let (kind, rest) = line.split_at(1);
    let rest = rest.trim_start();
    let parts: Vec<&str> = rest.split('|').collect();
    match (kind, parts.as_slice()) {
        ("P", [name, sql]) => frontend::put_parse(out, name, sql, &[]),
        ("B", [portal, statement, values @ ..]) => {
            let values: Vec<Option<String>> =
                values.iter().map(|v| (*v != "NULL").then(|| (*v).to_owned())).collect();
            frontend::put_bind(out, portal, statement, &text_arguments(&values));
        }
        ("E", [portal, limit]) => frontend::put_execute(out, portal, limit.parse()?),
        ("D" | "C", _) => {
            let (target, name) = rest.split_at(1);
            let target = match target {
                "S" => Target::Statement,
                "P" => Target::Portal,
                other => bail!("S or P expected, not {other}"),
            };
            let put = if kind == "D" { frontend::put_describe } else { frontend::put_close };
            put(out, target, name.trim_start());
        }
        ("Q", _) => {
            frontend::put_query(out, rest);
            return Ok(true);
        }
        ("S", _) => {
            frontend::put_sync(out);
            return Ok(true);
        }
        ("H", _) => frontend::put_flush(out),
        ("d", _) => frontend::put_copy_data(out, format!("{rest}\n").as_bytes()),
        ("c", _) => frontend::put_copy_done(out),
        ("f", _) => frontend::put_copy_fail(out, rest),
        _ => bail!("no such message: {line}"),
    }
    Ok(false)
}

/// What a server's message says, in one line. Texts of errors are left out, and so is what differs
/// between servers by nature.
pub fn told(frame: &Frame) -> Result<String> {
    Ok(match frame.tag() {
        b'1' => "ParseComplete".to_owned(),
        b'2' => "BindComplete".to_owned(),
        b'3' => "CloseComplete".to_owned(),
        b'n' => "NoData".to_owned(),
        b's' => "PortalSuspended".to_owned(),
        b'I' => "EmptyQueryResponse".to_owned(),
        b'c' => "CopyDone".to_owned(),
        b'G' => "CopyInResponse".to_owned(),
        b'H' => "CopyOutResponse".to_owned(),
        b'd' => format!("CopyData {}", frame.body().escape_ascii()),
        b't' => format!("ParameterDescription {:?}", backend::decode_parameter_description(frame)?),
        b'T' => {
            let columns = backend::decode_row_description(frame)?;
            let names: Vec<String> =
                columns.iter().map(|c| format!("{}:{}", c.name, c.type_oid)).collect();
            format!("RowDescription {}", names.join(" "))
        }
        b'D' => format!("DataRow {}", row_text(&backend::decode_data_row(frame)?)),
        b'C' => format!("CommandComplete {}", backend::decode_command_complete(frame)?),
        b'Z' => format!("ReadyForQuery {}", frame.body().escape_ascii()),
        b'E' => format!("Error {}", ErrorFields::decode(frame)?.sqlstate()),
        b'N' => format!("Notice {}", ErrorFields::decode(frame)?.sqlstate()),
        b'S' => format!("ParameterStatus {:?}", backend::decode_parameter_status(frame)?),
        tag => format!("{:?}", char::from(tag)),
    })
}

/// The messages that a text without flights and pauses means.
///
/// Errors: it is not in the language.
pub fn messages(text: &str) -> Result<BytesMut> {
    let mut out = BytesMut::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        put_line(&mut out, line)?;
    }
    Ok(out)
}

/// Holds a conversation and gives all that the server said, line by line.
///
/// Errors: the session is lost; the text is not in the language.
pub fn hold(client: &mut Client, text: &str) -> Result<Vec<String>> {
    let mut said = Vec::new();
    let mut flight = BytesMut::new();
    let mut expected = 0;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()).chain(["--"]) {
        let pause = line.strip_prefix('~').map(|pause| pause.trim().parse()).transpose()?;
        if line != "--" && pause.is_none() {
            expected += usize::from(put_line(&mut flight, line)?);
            continue;
        }
        client.send_bytes(&flight.split())?;
        while expected > 0 {
            let frame = client.receive()?;
            expected -= usize::from(frame.tag() == b'Z');
            said.push(told(&frame)?);
        }
        if let Some(pause) = pause {
            sleep(Duration::from_millis(pause));
        }
    }
    Ok(said)
}
