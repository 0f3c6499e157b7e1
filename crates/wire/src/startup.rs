//! The packets before the first message: startup, TLS and GSS requests, cancel.
//!
//! Owns: their layout, which has a length but no tag.
//! Never: decides who may connect.

use bytes::{Bytes, BytesMut};

use crate::frame::{Fields, WireError, put_string};

/// Longest startup packet that PostgreSQL accepts, in bytes.
pub const STARTUP_LEN_MAX: usize = 10_000;

/// Protocol version 3.0.
pub const PROTOCOL_3_0: i32 = 3 << 16;
const CANCEL_REQUEST: i32 = (1234 << 16) | 5678;
const SSL_REQUEST: i32 = (1234 << 16) | 5679;
const GSSENC_REQUEST: i32 = (1234 << 16) | 5680;
/// Tutti's own: another gateway has a client for this one.
const FORWARD_REQUEST: i32 = (1234 << 16) | 7432;
const FORWARDED: i32 = (1234 << 16) | 7433;
/// Length of a number used once, in bytes.
pub const NONCE_LEN: usize = 32;

/// What a client opens a connection with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Startup {
    /// Asks for TLS; answered by one byte.
    SslRequest,
    /// Asks for GSS encryption; answered by one byte.
    GssEncRequest,
    /// Asks to cancel what another connection runs; never answered.
    Cancel {
        /// From that connection's BackendKeyData.
        process_id: i32,
        /// From that connection's BackendKeyData.
        secret: i32,
    },
    /// Another gateway has a client for this one; answered by a number used once and a proof.
    ForwardRequest {
        /// A number used once.
        nonce: Bytes,
    },
    /// Where that client comes from. What follows is the client's own.
    Forwarded {
        /// That the gateway which says this is of the same cluster.
        proof: Bytes,
        /// Address and port.
        address: String,
    },
    /// Begins a session of a protocol other than 3: what follows its number is not known.
    OtherProtocol {
        /// Major version in the upper half, minor in the lower.
        version: i32,
    },
    /// Begins a session.
    Session {
        /// Major version, which is 3, in the upper half, minor in the lower.
        version: i32,
        /// Names and values in order: `user`, `database`, `options`, settings.
        parameters: Vec<(String, String)>,
    },
}

/// Whether a connection that begins with these bytes is another gateway's, which has a client for this one.
pub fn is_forward_request(first: &[u8; 8]) -> bool {
    first[4..] == FORWARD_REQUEST.to_be_bytes()
}

/// Length of the startup packet at the start of `bytes`; `None` if the length is not whole yet.
///
/// Errors: [`WireError::Length`] outside 8..=[`STARTUP_LEN_MAX`].
pub fn packet_len(bytes: &[u8]) -> Result<Option<usize>, WireError> {
    let Some(header) = bytes.get(..4) else { return Ok(None) };
    let length = i32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    match usize::try_from(length) {
        Ok(len) if (8..=STARTUP_LEN_MAX).contains(&len) => Ok(Some(len)),
        _ => Err(WireError::Length { length: i64::from(length) }),
    }
}

/// Reads a whole packet, its length included.
pub fn decode(packet: Bytes) -> Result<Startup, WireError> {
    let mut fields = Fields::of_body(packet);
    fields.int32()?;
    match fields.int32()? {
        CANCEL_REQUEST => {
            let (process_id, secret) = (fields.int32()?, fields.int32()?);
            fields.end()?;
            Ok(Startup::Cancel { process_id, secret })
        }
        SSL_REQUEST => Ok(Startup::SslRequest),
        GSSENC_REQUEST => Ok(Startup::GssEncRequest),
        FORWARD_REQUEST => {
            let nonce = fields.take(NONCE_LEN)?;
            fields.end()?;
            Ok(Startup::ForwardRequest { nonce })
        }
        FORWARDED => {
            let (proof, address) = (fields.take(NONCE_LEN)?, fields.string()?);
            fields.end()?;
            Ok(Startup::Forwarded { proof, address })
        }
        version if version >> 16 != PROTOCOL_3_0 >> 16 => Ok(Startup::OtherProtocol { version }),
        version => {
            let mut parameters = Vec::new();
            loop {
                let name = fields.string()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name, fields.string()?));
            }
            fields.end()?;
            Ok(Startup::Session { version, parameters })
        }
    }
}

/// Whether these bytes begin a request for encryption, which is answered by one byte before the client says more.
pub fn is_encryption_request(first: &[u8; 8]) -> bool {
    [SSL_REQUEST, GSSENC_REQUEST].iter().any(|code| first[4..] == code.to_be_bytes())
}

/// Appends a startup packet for protocol 3.0.
pub fn put_startup(out: &mut BytesMut, parameters: &[(&str, &str)]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&PROTOCOL_3_0.to_be_bytes());
    for (name, value) in parameters {
        put_string(out, name);
        put_string(out, value);
    }
    out.extend_from_slice(&[0]);
    put_length(out, start);
}

/// Appends a cancel request.
pub fn put_cancel(out: &mut BytesMut, process_id: i32, secret: i32) {
    out.extend_from_slice(&16_i32.to_be_bytes());
    out.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
    out.extend_from_slice(&process_id.to_be_bytes());
    out.extend_from_slice(&secret.to_be_bytes());
}

/// Appends the request of a gateway that has a client for another, with a number used once.
pub fn put_forward_request(out: &mut BytesMut, nonce: &[u8; NONCE_LEN]) {
    put_own(out, FORWARD_REQUEST, nonce, None);
}

/// Appends where that client comes from, with the proof of who says it.
pub fn put_forwarded(out: &mut BytesMut, proof: &[u8; NONCE_LEN], address: &str) {
    put_own(out, FORWARDED, proof, Some(address));
}

fn put_own(out: &mut BytesMut, code: i32, bytes: &[u8; NONCE_LEN], text: Option<&str>) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(bytes);
    if let Some(text) = text {
        put_string(out, text);
    }
    put_length(out, start);
}

fn put_length(out: &mut BytesMut, start: usize) {
    let length = u32::try_from(out.len() - start).expect("startup packets are short");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn startup_survives_the_way_there_and_back() {
        let mut out = BytesMut::new();
        put_startup(&mut out, &[("user", "ann"), ("database", "shop")]);
        assert_eq!(packet_len(&out).unwrap(), Some(out.len()));
        let expected = Startup::Session {
            version: PROTOCOL_3_0,
            parameters: vec![("user".into(), "ann".into()), ("database".into(), "shop".into())],
        };
        assert_eq!(decode(out.freeze()).unwrap(), expected);
    }

    #[test]
    fn cancel_survives_the_way_there_and_back() {
        let mut out = BytesMut::new();
        put_cancel(&mut out, 7, -9);
        assert_eq!(decode(out.freeze()).unwrap(), Startup::Cancel { process_id: 7, secret: -9 });
    }

    #[test]
    fn what_gateways_say_survives_the_way_there_and_back() {
        let number = [7; NONCE_LEN];
        let mut out = BytesMut::new();
        put_forward_request(&mut out, &number);
        let nonce = Bytes::copy_from_slice(&number);
        assert_eq!(decode(out.split().freeze()).unwrap(), Startup::ForwardRequest { nonce });
        put_forwarded(&mut out, &number, "10.0.0.7:5000");
        let proof = Bytes::copy_from_slice(&number);
        let address = "10.0.0.7:5000".to_owned();
        assert_eq!(decode(out.freeze()).unwrap(), Startup::Forwarded { proof, address });
    }

    proptest! {
        #[test]
        fn any_packet_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 8..100)) {
            let _ = decode(Bytes::from(bytes));
        }
    }
}
