//! The client's side of SCRAM, with a password, or with keys instead of one.
//!
//! Owns: logging in to a node as the gateway's own role, and as a role whose client has proved itself to
//! us: the keys that this left work on every node that has the same verifier.
//! Never: chooses its own nonce; it is given.
//! Source: RFC 5802, section 5; PostgreSQL, `src/interfaces/libpq/fe-auth-scram.c`.

use std::num::NonZeroU32;

use tutti_configuration::Secret;

use super::scram::{
    END_POINT, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramKeys, attribute, decode, encode,
};

/// What binds an exchange to its connection.
#[derive(Clone, Debug)]
pub enum Binding {
    /// The connection is not encrypted.
    None,
    /// It is, but the server does not offer channel binding.
    NotOffered,
    /// The hash of the server's certificate.
    EndPoint(Vec<u8>),
}

impl Binding {
    /// Which mechanism to ask for.
    pub fn mechanism(&self) -> &'static str {
        match self {
            Self::None | Self::NotOffered => SCRAM_SHA_256,
            Self::EndPoint(_) => SCRAM_SHA_256_PLUS,
        }
    }

    fn header(&self) -> String {
        match self {
            Self::None => "n,,".to_owned(),
            Self::NotOffered => "y,,".to_owned(),
            Self::EndPoint(_) => format!("p={END_POINT},,"),
        }
    }
}

/// Why an exchange ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServerRefused {
    /// The node has another verifier for this role: another password, or the same one with a new
    /// salt.
    OtherVerifier,
    /// The node violates the protocol, or does not know the verifier itself.
    NotProved,
}

/// What the client proves itself by.
#[derive(Clone, Debug)]
pub enum Proof {
    /// What an earlier login left.
    Keys(ScramKeys),
    /// The password, from which the keys that the server asks for are derived.
    Password(Secret),
}

impl Proof {
    /// The keys for the server's salt and rounds.
    fn keys(self, salt: &[u8], iterations: u32) -> Result<ScramKeys, ServerRefused> {
        match self {
            Self::Keys(keys) if keys.salt == salt && keys.iterations == iterations => Ok(keys),
            Self::Keys(_) => Err(ServerRefused::OtherVerifier),
            Self::Password(password) => {
                let iterations = NonZeroU32::new(iterations).ok_or(ServerRefused::NotProved)?;
                Ok(ScramKeys::derive(password.reveal(), salt, iterations))
            }
        }
    }
}

/// After our first message.
pub struct Opened {
    proof: Proof,
    binding: Binding,
    first_bare: String,
    nonce: String,
}

impl Opened {
    /// `nonce` is printable.
    pub fn new(proof: Proof, binding: Binding, nonce: String) -> Self {
        Self { proof, binding, first_bare: format!("n=,r={nonce}"), nonce }
    }

    /// Our first message.
    pub fn message(&self) -> String {
        format!("{}{}", self.binding.header(), self.first_bare)
    }

    /// Handles the server's first message. Returns our last one.
    pub fn answer(self, server_first: &[u8]) -> Result<(String, Answered), ServerRefused> {
        let message = std::str::from_utf8(server_first).map_err(|_| ServerRefused::NotProved)?;
        let mut rest = message;
        let mut take = |name| attribute(&mut rest, name).ok_or(ServerRefused::NotProved);
        let (nonce, salt, iterations) = (take('r')?, take('s')?, take('i')?);
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err(ServerRefused::NotProved);
        }
        let salt = decode(salt).ok_or(ServerRefused::NotProved)?;
        let iterations = iterations.parse().map_err(|_| ServerRefused::NotProved)?;
        let keys = self.proof.keys(&salt, iterations)?;
        let mut bound = self.binding.header().into_bytes();
        if let Binding::EndPoint(hash) = &self.binding {
            bound.extend_from_slice(hash);
        }
        let without_proof = format!("c={},r={nonce}", encode(&bound));
        let auth_message = format!("{},{message},{without_proof}", self.first_bare).into_bytes();
        let proof = keys.proof(&auth_message);
        let answer = format!("{without_proof},p={}", encode(&proof[..]));
        Ok((answer, Answered { keys, auth_message }))
    }
}

/// After our last message.
pub struct Answered {
    keys: ScramKeys,
    auth_message: Vec<u8>,
}

impl Answered {
    /// Handles the server's last message, by which it proves itself.
    pub fn check(&self, server_final: &[u8]) -> Result<(), ServerRefused> {
        let signature = std::str::from_utf8(server_final)
            .ok()
            .and_then(|mut message| attribute(&mut message, 'v'))
            .and_then(decode);
        match signature {
            Some(signature) if self.keys.is_servers(&self.auth_message, &signature) => Ok(()),
            _ => Err(ServerRefused::NotProved),
        }
    }
}
