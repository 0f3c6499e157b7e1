//! Checks of the protocol's decoders.
//!
//! Owns: what holds for every byte stream: frames are as long as their headers say and together are
//! the stream; what is decoded is encoded back to the bytes it came from.
//! Never: knows which messages make sense.

use bytes::{Bytes, BytesMut};
use tutti_wire::backend as said_by_server;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::flight::{Execution, Flight};
use tutti_wire::frame::{Frame, HEADER_LEN, WireError, frame_len, take_frame};
use tutti_wire::frontend::{self as said_by_client, Arguments, Message, Parse, Target};
use tutti_wire::startup::{self as opening, PROTOCOL_3_0, STARTUP_LEN_MAX, Startup};

/// Frames that a stream begins with, and why it cannot be followed further, if that is so.
fn cut(stream: &[u8], chunk_len: usize) -> (Vec<Frame>, Option<WireError>) {
    let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
    for chunk in stream.chunks(chunk_len.max(1)) {
        buffer.extend_from_slice(chunk);
        loop {
            match take_frame(&mut buffer) {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

/// Cutting a stream into frames; the first byte says into which chunks it is split.
pub fn frames(data: &[u8]) {
    let Some((chunk_len, stream)) = data.split_first() else { return };
    let (whole, error) = cut(stream, stream.len());
    let mut at = 0;
    for frame in &whole {
        let bytes = frame.as_bytes();
        assert_eq!(frame_len(bytes), Ok(Some(bytes.len())), "a frame is as long as it says");
        assert_eq!(bytes, &stream[at..at + bytes.len()], "frames are the stream");
        assert_eq!(frame.tag(), bytes[0]);
        assert_eq!(frame.body(), &bytes[HEADER_LEN..]);
        at += bytes.len();
    }
    let rest = &stream[at..];
    match frame_len(rest) {
        Ok(None) => assert!(rest.len() < HEADER_LEN && error.is_none()),
        Ok(Some(len)) => assert!(rest.len() < len && error.is_none()),
        Err(expected) => assert_eq!(error, Some(expected)),
    }
    let in_chunks = cut(stream, usize::from(*chunk_len));
    assert_eq!(in_chunks, (whole, error), "how a stream arrives changes nothing");
}

/// What is recognised in place agrees with the messages decoded one by one.
pub fn flights(data: &[u8]) {
    let Some(flight) = Flight::peek(data) else { return };
    let len = match &flight {
        Flight::Query { len, .. } | Flight::Unnamed { len, .. } => *len,
        Flight::Execution(execution) => execution.len,
    };
    let (frames, error) = cut(&data[..len], len);
    assert_eq!(error, None, "it is whole messages");
    match flight {
        Flight::Query { text, .. } => {
            assert_eq!(decode_all(&frames), [Message::Query(text.to_owned())]);
        }
        Flight::Execution(execution) => check_execution(&execution, &frames),
        Flight::Unnamed { text, types, execution, .. } => {
            let types: Vec<u32> = types
                .chunks_exact(4)
                .map(|it| u32::from_be_bytes(it.try_into().expect("four bytes")))
                .collect();
            let parse = Parse { name: String::new(), sql: text.to_owned(), types };
            assert_eq!(decode_all(&frames[..1]), [Message::Parse(parse)]);
            assert_eq!(execution.statement, "");
            check_execution(&execution, &frames[1..]);
        }
    }
}

fn decode_all(frames: &[Frame]) -> Vec<Message> {
    frames.iter().map(|it| said_by_client::decode(it).expect("they are right")).collect()
}

fn check_execution(execution: &Execution<'_>, frames: &[Frame]) {
    let messages = decode_all(frames);
    let [Message::Bind(bind), behind @ ..] = &messages[..] else {
        panic!("{messages:?} begins with no Bind");
    };
    assert_eq!((&*bind.portal, &*bind.statement), ("", execution.statement));
    let Arguments { formats, values, .. } = &bind.arguments;
    assert_eq!(execution.value_count(), values.len());
    let fits = formats.len() <= 1 || formats.len() == values.len();
    assert_eq!(execution.has_formats_for_values(), fits);
    for (index, value) in values.iter().enumerate() {
        let (format, found) = execution.value(index).expect("it was counted");
        assert_eq!(found, value.as_deref());
        assert!(!fits || format == bind.arguments.format(index));
    }
    assert_eq!(execution.value(values.len()), None);
    assert!(frames[0].as_bytes().ends_with(execution.arguments));
    let unnamed = Message::Describe(Target::Portal, String::new());
    let behind = behind.strip_prefix(&[unnamed]).unwrap_or(behind);
    let is_run = |it: &Message| matches!(it, Message::Execute { portal, .. } if portal.is_empty());
    assert!(matches!(behind, [run, Message::Sync] if is_run(run)), "{behind:?}");
}

/// A client's messages.
pub fn frontend(data: &[u8]) {
    for frame in cut(data, data.len()).0 {
        let Ok(message) = said_by_client::decode(&frame) else { continue };
        let mut out = BytesMut::new();
        match &message {
            Message::Query(sql) => said_by_client::put_query(&mut out, sql),
            Message::Parse(it) => {
                said_by_client::put_parse(&mut out, &it.name, &it.sql, &it.types);
            }
            Message::Bind(it) => {
                said_by_client::put_bind(&mut out, &it.portal, &it.statement, &it.arguments);
                // Indexes beyond what was sent have an answer too.
                it.arguments.format(it.arguments.values.len());
                it.arguments.result_format(it.arguments.result_formats.len());
            }
            Message::Describe(target, name) => {
                said_by_client::put_describe(&mut out, *target, name);
            }
            Message::Execute { portal, row_limit } => {
                said_by_client::put_execute(&mut out, portal, *row_limit);
            }
            Message::Close(target, name) => said_by_client::put_close(&mut out, *target, name),
            Message::Flush => said_by_client::put_flush(&mut out),
            Message::Sync => said_by_client::put_sync(&mut out),
            Message::Terminate => said_by_client::put_terminate(&mut out),
            Message::CopyData(data) => said_by_client::put_copy_data(&mut out, data),
            Message::CopyDone => said_by_client::put_copy_done(&mut out),
            Message::CopyFail(reason) => said_by_client::put_copy_fail(&mut out, reason),
            // Passed on or answered as they are, never written.
            Message::FunctionCall | Message::Password(_) => continue,
        }
        assert_eq!(&out[..], frame.as_bytes(), "{message:?}");
    }
}

/// What servers send, as far as the gateway decodes it.
pub fn backend(data: &[u8]) {
    for frame in cut(data, data.len()).0 {
        let mut out = BytesMut::new();
        let is_exact = match put_again(&frame, &mut out) {
            Ok(is_exact) => is_exact,
            Err(_) => continue,
        };
        if is_exact {
            assert_eq!(&out[..], frame.as_bytes());
            continue;
        }
        // A server may send more than the gateway reads; what it reads must be encoded again.
        let (said, read) = (&out[HEADER_LEN..], frame.body());
        // Errors may be in any encoding; what is not UTF-8 is replaced.
        let is_replaced = said.windows(3).any(|bytes| bytes == "\u{fffd}".as_bytes());
        assert!(read.starts_with(said) || is_replaced, "{read:?} became {said:?}");
        let again = take_frame(&mut out).expect("a frame").expect("a whole one");
        put_again(&again, &mut out).expect("what was encoded is decoded");
        assert_eq!(&out[..], again.as_bytes());
    }
}

/// Decodes and encodes; says whether the decoder reads up to the end.
fn put_again(frame: &Frame, out: &mut BytesMut) -> Result<bool, WireError> {
    match frame.tag() {
        b'T' => {
            let columns = said_by_server::decode_row_description(frame)?;
            said_by_server::put_row_description(out, &columns);
            return Ok(true);
        }
        b'D' => {
            let values = said_by_server::decode_data_row(frame)?;
            said_by_server::put_data_row(out, values.iter().map(Option::as_deref));
            return Ok(true);
        }
        b't' => {
            let types = said_by_server::decode_parameter_description(frame)?;
            said_by_server::put_parameter_description(out, &types);
        }
        b'C' => {
            let tag = said_by_server::decode_command_complete(frame)?;
            said_by_server::put_command_complete(out, &tag);
        }
        b'S' => {
            let (name, value) = said_by_server::decode_parameter_status(frame)?;
            said_by_server::put_parameter_status(out, &name, &value);
        }
        b'E' | b'N' => {
            let fields = ErrorFields::decode(frame)?;
            // Whatever is missing has an answer.
            let _ = (fields.sqlstate(), fields.message(), fields.is_fatal());
            fields.put(out, frame.tag());
        }
        tag => return Err(WireError::UnknownTag { tag }),
    }
    Ok(false)
}

/// The packet that a connection begins with.
pub fn startup(data: &[u8]) {
    let Ok(Some(len)) = opening::packet_len(data) else { return };
    assert!((8..=STARTUP_LEN_MAX).contains(&len));
    let Some(packet) = data.get(..len) else { return };
    let mut out = BytesMut::new();
    match opening::decode(Bytes::copy_from_slice(packet)) {
        Ok(Startup::Session { version, parameters }) => {
            let parameters: Vec<_> =
                parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            opening::put_startup(&mut out, &parameters);
            if version != PROTOCOL_3_0 {
                out[4..8].copy_from_slice(&version.to_be_bytes());
            }
        }
        Ok(Startup::Cancel { process_id, secret }) => {
            opening::put_cancel(&mut out, process_id, secret);
        }
        Ok(Startup::ForwardRequest { nonce }) => {
            opening::put_forward_request(
                &mut out,
                &nonce[..].try_into().expect("it has that length"),
            );
        }
        Ok(Startup::Forwarded { proof, address }) => {
            let proof = proof[..].try_into().expect("it has that length");
            opening::put_forwarded(&mut out, &proof, &address);
        }
        Ok(Startup::OtherProtocol { version }) => {
            assert_ne!(version >> 16, PROTOCOL_3_0 >> 16);
            return;
        }
        Ok(Startup::SslRequest | Startup::GssEncRequest) | Err(_) => return,
    }
    assert_eq!(&out[..], packet);
}
