//! Answering a node's authentication request.
//!
//! Owns: SCRAM-SHA-256 with keys or a password, channel binding where the connection allows it, and
//! for the configured password cleartext (only where no one can eavesdrop) and MD5 too.
//! Never: stores or logs a password.

use bytes::{BufMut, BytesMut};
use postgres_protocol::authentication::md5_hash;
use tutti_sql::catalog::NodeId;
use tutti_wire::frame::{Fields, Frame, put_frame, put_string};

use super::credentials::{Credentials, Has};
use super::error::NodeError;
use crate::net::nonce;
use crate::net::scram::{SCRAM_SHA_256, SCRAM_SHA_256_PLUS};
use crate::net::scram_client::{Answered, Binding, Opened, Proof, ServerRefused};

/// What to do after an authentication message.
pub(super) enum Step {
    /// Send these bytes and read on.
    Answer(BytesMut),
    /// Nothing to send; read on.
    Wait,
    /// Done.
    Granted,
}

/// How far SCRAM has got.
enum Scram {
    Not,
    Opened(Opened),
    Answered(Answered),
}

/// One authentication exchange.
pub(super) struct Exchange<'a> {
    node: NodeId,
    user: &'a str,
    credentials: &'a Credentials,
    /// No one else can read what is sent: TLS, or the same machine.
    is_private: bool,
    /// Hash of the node's certificate, on TLS.
    end_point: Option<Vec<u8>>,
    scram: Scram,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        node: NodeId,
        user: &'a str,
        credentials: &'a Credentials,
        is_private: bool,
        end_point: Option<Vec<u8>>,
    ) -> Self {
        Self { node, user, credentials, is_private, end_point, scram: Scram::Not }
    }

    /// Handles an `R` frame.
    pub(super) fn step(&mut self, frame: &Frame) -> Result<Step, NodeError> {
        let mut fields = Fields::of(frame);
        let mut answer = BytesMut::new();
        match fields.int32()? {
            0 => return Ok(Step::Granted),
            3 => {
                let password = self.password("password")?;
                if !self.is_private {
                    return Err(self.refused("password over an unencrypted connection"));
                }
                put_frame(&mut answer, b'p', |body| put_string(body, password));
            }
            5 => {
                let password = self.password("md5")?;
                let salt = fields.rest();
                let salt: [u8; 4] = salt[..].try_into().map_err(|_| self.refused("md5"))?;
                let hash = md5_hash(self.user.as_bytes(), password.as_bytes(), salt);
                put_frame(&mut answer, b'p', |body| put_string(body, &hash));
            }
            10 => {
                let mut offered = Vec::new();
                loop {
                    match fields.string()? {
                        last if last.is_empty() => break,
                        mechanism => offered.push(mechanism),
                    }
                }
                let (mechanism, message) = self.open(&offered)?;
                put_frame(&mut answer, b'p', |body| {
                    put_string(body, mechanism);
                    body.put_u32(u32::try_from(message.len()).expect("short message"));
                    body.extend_from_slice(&message);
                });
            }
            11 => {
                let message = self.answer(&fields.rest())?;
                put_frame(&mut answer, b'p', |body| body.extend_from_slice(&message));
            }
            12 => {
                let message = fields.rest();
                match std::mem::replace(&mut self.scram, Scram::Not) {
                    Scram::Answered(answered) => {
                        answered.check(&message).map_err(|_| self.refused(SCRAM_SHA_256))?;
                    }
                    Scram::Not | Scram::Opened(_) => return Err(self.refused(SCRAM_SHA_256)),
                }
                return Ok(Step::Wait);
            }
            _ => return Err(self.refused("an unknown method")),
        }
        Ok(Step::Answer(answer))
    }

    /// Chooses the mechanism and makes the first message.
    fn open(&mut self, offered: &[String]) -> Result<(&'static str, Vec<u8>), NodeError> {
        let offers = |mechanism: &str| offered.iter().any(|name| name == mechanism);
        let binding = match self.end_point.clone() {
            Some(hash) if offers(SCRAM_SHA_256_PLUS) => Binding::EndPoint(hash),
            Some(_) => Binding::NotOffered,
            None => Binding::None,
        };
        let mechanism = binding.mechanism();
        if !offers(mechanism) {
            return Err(self.refused("an unknown method of SASL"));
        }
        let proof = match self.credentials {
            Credentials::Keys(keys) => Proof::Keys((**keys).clone()),
            Credentials::Password(password) => Proof::Password(password.clone()),
            Credentials::Nothing => return Err(self.refused(SCRAM_SHA_256)),
        };
        let opened = Opened::new(proof, binding, nonce());
        let message = opened.message().into_bytes();
        self.scram = Scram::Opened(opened);
        Ok((mechanism, message))
    }

    fn answer(&mut self, server_first: &[u8]) -> Result<Vec<u8>, NodeError> {
        match std::mem::replace(&mut self.scram, Scram::Not) {
            Scram::Opened(opened) => match opened.answer(server_first) {
                Ok((message, answered)) => {
                    self.scram = Scram::Answered(answered);
                    Ok(message.into_bytes())
                }
                Err(ServerRefused::OtherVerifier) => {
                    Err(NodeError::OtherVerifier { node: self.node, user: self.user.to_owned() })
                }
                Err(ServerRefused::NotProved) => Err(self.refused(SCRAM_SHA_256)),
            },
            Scram::Not | Scram::Answered(_) => Err(self.refused(SCRAM_SHA_256)),
        }
    }

    /// Keys are not a password: only SCRAM can use them.
    fn password(&self, method: &'static str) -> Result<&'a str, NodeError> {
        match self.credentials {
            Credentials::Password(password) => Ok(password.reveal()),
            Credentials::Nothing | Credentials::Keys(_) => Err(self.refused(method)),
        }
    }

    fn refused(&self, method: &'static str) -> NodeError {
        let has = match self.credentials {
            Credentials::Nothing => Has::Nothing,
            Credentials::Keys(_) => Has::Keys,
            Credentials::Password(_) => Has::Password,
        };
        NodeError::Authentication { node: self.node, user: self.user.to_owned(), method, has }
    }
}
