//! Answering a node's authentication request with the configured password.
//!
//! Owns: cleartext, MD5 and SCRAM-SHA-256 answers, by the `postgres-protocol` library.
//! Never: stores or logs a password.

use bytes::{BufMut, BytesMut};
use postgres_protocol::authentication::{
    md5_hash,
    sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256},
};
use tutti_wire::frame::{Fields, Frame, put_frame, put_string};

use super::connection::NodeError;

/// What to do after an authentication message.
pub(super) enum Step {
    /// Send these bytes and read on.
    Answer(BytesMut),
    /// Nothing to send; read on.
    Wait,
    /// Done.
    Granted,
}

/// One authentication exchange.
pub(super) struct Exchange<'a> {
    user: &'a str,
    password: Option<&'a str>,
    scram: Option<ScramSha256>,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(user: &'a str, password: Option<&'a str>) -> Self {
        Self { user, password, scram: None }
    }

    /// Takes an `R` frame.
    pub(super) fn step(&mut self, frame: &Frame) -> Result<Step, NodeError> {
        let refused = || NodeError::Authentication { method: "SASL" };
        let mut fields = Fields::of(frame);
        let mut answer = BytesMut::new();
        match fields.int32()? {
            0 => return Ok(Step::Granted),
            3 => put_frame(&mut answer, b'p', |body| put_string(body, self.password.unwrap_or(""))),
            5 => {
                let salt = fields.rest();
                let salt: [u8; 4] =
                    salt[..].try_into().map_err(|_| NodeError::Authentication { method: "MD5" })?;
                let password = self.password.unwrap_or("").as_bytes();
                let hash = md5_hash(self.user.as_bytes(), password, salt);
                put_frame(&mut answer, b'p', |body| put_string(body, &hash));
            }
            10 => {
                let password = self.password.unwrap_or("").as_bytes();
                let scram = ScramSha256::new(password, ChannelBinding::unsupported());
                put_frame(&mut answer, b'p', |body| {
                    put_string(body, SCRAM_SHA_256);
                    body.put_u32(u32::try_from(scram.message().len()).expect("short message"));
                    body.extend_from_slice(scram.message());
                });
                self.scram = Some(scram);
            }
            11 => {
                let scram = self.scram.as_mut().ok_or_else(refused)?;
                scram.update(&fields.rest()).map_err(|_| refused())?;
                put_frame(&mut answer, b'p', |body| body.extend_from_slice(scram.message()));
            }
            12 => {
                let scram = self.scram.as_mut().ok_or_else(refused)?;
                scram.finish(&fields.rest()).map_err(|_| refused())?;
                return Ok(Step::Wait);
            }
            _ => return Err(NodeError::Authentication { method: "an unknown method" }),
        }
        Ok(Step::Answer(answer))
    }
}
