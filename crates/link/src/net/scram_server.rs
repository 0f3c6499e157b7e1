//! The server's side of SCRAM: a client proves that it knows a role's password.
//!
//! Owns: the two steps, what each side must have said about channel binding, and the client's key
//! that comes out.
//! Never: chooses its own nonce or verifier; both are given.
//! Source: PostgreSQL, `src/backend/libpq/auth-scram.c`, whose wording the errors use.

use tutti_wire::error_fields::ErrorFields;

use super::scram::{
    END_POINT, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramKeys, Verifier, attribute, decode, encode,
    sign,
};

/// Why an exchange ends.
#[derive(Debug)]
pub enum Refused {
    /// The client violates the protocol, or there is a man in the middle; it may be told why.
    Protocol(Box<ErrorFields>),
    /// The proof is wrong. The caller words which role and why.
    WrongProof,
}

/// After the client's first message.
pub struct Challenged {
    verifier: Verifier,
    /// What the client's last message must repeat: its own header, with the certificate's hash.
    binding: String,
    nonce: String,
    client_first_bare: String,
    server_first: String,
}

/// Handles the client's first message. `end_point` is the hash of the certificate, on connections
/// where channel binding was offered; `server_nonce` is printable.
pub fn challenge(
    verifier: Verifier,
    mechanism: &str,
    end_point: Option<&[u8]>,
    client_first: &[u8],
    server_nonce: &str,
) -> Result<Challenged, Refused> {
    let message =
        std::str::from_utf8(client_first).map_err(|_| malformed("The message is not UTF-8."))?;
    let binds = match mechanism {
        SCRAM_SHA_256 => false,
        SCRAM_SHA_256_PLUS if end_point.is_some() => true,
        _ => return Err(violation("client selected an invalid SASL authentication mechanism")),
    };
    let (flag, rest) =
        message.split_once(',').ok_or_else(|| malformed("The message has no header."))?;
    let mut bound = format!("{flag},,").into_bytes();
    match (flag, binds) {
        ("n", false) => (),
        ("y", false) if end_point.is_none() => (),
        // The client would have used it, and was told not to by someone in between.
        ("y", false) => {
            let message = "SCRAM channel binding negotiation error";
            let detail = "The client supports SCRAM channel binding but thinks the server does \
                          not.  However, this server does support channel binding.";
            return Err(refusal("28000", message, detail));
        }
        ("n" | "y", true) => {
            return Err(malformed(
                "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include \
                 channel binding data.",
            ));
        }
        (_, false) if flag.starts_with("p=") => {
            return Err(malformed(
                "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message \
                 includes channel binding data.",
            ));
        }
        (_, true) if flag.strip_prefix("p=") == Some(END_POINT) => {
            bound.extend_from_slice(end_point.unwrap_or_default());
        }
        (_, true) if flag.starts_with("p=") => {
            return Err(violation("unsupported SCRAM channel-binding type"));
        }
        _ => return Err(malformed("Unexpected channel-binding flag.")),
    }
    let (identity, bare) =
        rest.split_once(',').ok_or_else(|| malformed("The message has no user name."))?;
    if !identity.is_empty() {
        let message = "client uses authorization identity, but it is not supported";
        return Err(refusal("0A000", message, ""));
    }
    let mut attributes = bare;
    if attributes.starts_with("m=") {
        return Err(refusal("0A000", "client requires an unsupported SCRAM extension", ""));
    }
    // PostgreSQL ignores this name, too: the startup packet's counts.
    attribute(&mut attributes, 'n').ok_or_else(|| malformed("Attribute \"n\" expected."))?;
    let client_nonce =
        attribute(&mut attributes, 'r').ok_or_else(|| malformed("Attribute \"r\" expected."))?;
    if client_nonce.is_empty() || !client_nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(violation("non-printable characters in SCRAM nonce"));
    }
    let nonce = format!("{client_nonce}{server_nonce}");
    let server_first = format!("r={nonce},s={},i={}", encode(&verifier.salt), verifier.iterations);
    let (binding, client_first_bare) = (encode(&bound), bare.to_owned());
    Ok(Challenged { verifier, binding, nonce, client_first_bare, server_first })
}

impl Challenged {
    /// The server's first message.
    pub fn message(&self) -> &str {
        &self.server_first
    }

    /// Handles the client's last message. Returns the server's, which proves the server, and the
    /// keys.
    pub fn check(self, client_final: &[u8]) -> Result<(String, ScramKeys), Refused> {
        let message = std::str::from_utf8(client_final)
            .map_err(|_| malformed("The message is not UTF-8."))?;
        let mut rest = message;
        let binding =
            attribute(&mut rest, 'c').ok_or_else(|| malformed("Attribute \"c\" expected."))?;
        if binding != self.binding {
            return Err(refusal("28000", "SCRAM channel binding check failed", ""));
        }
        let nonce =
            attribute(&mut rest, 'r').ok_or_else(|| malformed("Attribute \"r\" expected."))?;
        if nonce != self.nonce {
            return Err(refusal("08P01", "invalid SCRAM response", "Nonce does not match."));
        }
        let (without_proof, proof) =
            message.rsplit_once(",p=").ok_or_else(|| malformed("Attribute \"p\" expected."))?;
        let proof = decode(proof).ok_or_else(|| malformed("Malformed proof."))?;
        let auth_message =
            format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
        let auth_message = auth_message.as_bytes();
        let client_key =
            self.verifier.client_key(auth_message, &proof).ok_or(Refused::WrongProof)?;
        let signature = sign(&self.verifier.server_key, auth_message);
        let keys = ScramKeys::new(&self.verifier, client_key);
        Ok((format!("v={}", encode(&signature[..])), keys))
    }
}

fn malformed(detail: &str) -> Refused {
    refusal("08P01", "malformed SCRAM message", detail)
}

fn violation(message: &str) -> Refused {
    refusal("08P01", message, "")
}

fn refusal(sqlstate: &str, message: &str, detail: &str) -> Refused {
    let fields = ErrorFields::fatal(sqlstate, message);
    let fields = if detail.is_empty() { fields } else { fields.with(b'D', detail) };
    Refused::Protocol(Box::new(fields))
}
