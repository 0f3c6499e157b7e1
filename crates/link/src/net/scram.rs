//! SCRAM-SHA-256: what a role's verifier holds, and the arithmetic that both sides share.
//!
//! Owns: verifiers as PostgreSQL stores them, and the keys that a client's proof reveals.
//! Never: does I/O, chooses nonces, or shows a key: nothing here prints one.
//! Start reading at [`Verifier`]; the exchanges are in `scram_server` and `scram_client`.
//! Source: RFC 5802 and RFC 7677; PostgreSQL, `src/common/scram-common.c`.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Name of the mechanism without channel binding.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
/// Name of the mechanism with channel binding.
pub const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// The only channel binding that PostgreSQL knows.
pub const END_POINT: &str = "tls-server-end-point";

const KEY_LEN: usize = digest::SHA256_OUTPUT_LEN;

/// One of the keys; wiped when dropped.
type Key = Zeroizing<[u8; KEY_LEN]>;

/// What a server keeps of a password: enough to check a proof, not enough to make one.
#[derive(Clone, Eq, PartialEq)]
pub struct Verifier {
    /// Rounds of the key derivation.
    pub iterations: u32,
    /// The role's salt.
    pub salt: Vec<u8>,
    pub(super) stored_key: Key,
    pub(super) server_key: Key,
}

impl Verifier {
    /// Reads `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once('$')?;
        let (cost, keys) = rest.split_once('$')?;
        let (iterations, salt) = cost.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let salt = BASE64.decode(salt).ok()?;
        let iterations = iterations.parse().ok().filter(|count| 0 < *count)?;
        if scheme != SCRAM_SHA_256 || salt.is_empty() {
            return None;
        }
        let (stored_key, server_key) = (key(stored_key)?, key(server_key)?);
        Some(Self { iterations, salt, stored_key, server_key })
    }

    /// A verifier that no password fits, for a role that cannot log in by one: a client must not
    /// learn that from the conversation. The same for one role as long as `secret` is the same.
    pub fn mock(user: &str, secret: &[u8]) -> Self {
        const ITERATIONS: u32 = 4096;
        const SALT_LEN: usize = 16;
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived = hmac_of(key.clone(), user.as_bytes());
        let stored_key = hmac_of(key.clone(), &derived[..]);
        let server_key = hmac_of(key, &stored_key[..]);
        Self { iterations: ITERATIONS, salt: derived[..SALT_LEN].to_vec(), stored_key, server_key }
    }

    /// The client's key, if `proof` proves it for this conversation. Constant time.
    pub(super) fn client_key(&self, auth_message: &[u8], proof: &[u8]) -> Option<Key> {
        let proof: &[u8; KEY_LEN] = proof.try_into().ok()?;
        let mut client_key = sign(&self.stored_key, auth_message);
        client_key.iter_mut().zip(proof).for_each(|(byte, mask)| *byte ^= mask);
        let found = hash(&client_key);
        bool::from(found.ct_eq(&self.stored_key[..])).then_some(client_key)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// What a client's login leaves: enough to log in with the same verifier elsewhere, until the
/// password changes. Lives in memory only.
#[derive(Clone)]
pub struct ScramKeys {
    /// The verifier's, as are the salt and the server's key: another verifier needs other keys.
    pub iterations: u32,
    /// See there.
    pub salt: Vec<u8>,
    pub(super) client_key: Key,
    pub(super) server_key: Key,
}

impl ScramKeys {
    pub(super) fn new(verifier: &Verifier, client_key: Key) -> Self {
        Self {
            iterations: verifier.iterations,
            salt: verifier.salt.clone(),
            client_key,
            server_key: verifier.server_key.clone(),
        }
    }

    /// The keys of a password, at the salt and the rounds that a server names.
    pub(super) fn derive(password: &str, salt: &[u8], iterations: NonZeroU32) -> Self {
        // PostgreSQL uses a password that cannot be prepared unchanged (`scram_build_secret`).
        let prepared = stringprep::saslprep(password).unwrap_or(Cow::Borrowed(password));
        let mut salted: Key = Zeroizing::new([0; KEY_LEN]);
        let secret = prepared.as_bytes();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, secret, &mut salted[..]);
        Self {
            iterations: iterations.get(),
            salt: salt.to_vec(),
            client_key: sign(&salted, b"Client Key"),
            server_key: sign(&salted, b"Server Key"),
        }
    }

    /// ClientProof for this conversation.
    pub(super) fn proof(&self, auth_message: &[u8]) -> Key {
        let stored_key = hash(&self.client_key);
        let mut proof = sign(&stored_key, auth_message);
        proof.iter_mut().zip(&self.client_key[..]).for_each(|(byte, key)| *byte ^= key);
        proof
    }

    /// Whether the server has shown that it has the verifier. Constant time.
    pub(super) fn is_servers(&self, auth_message: &[u8], signature: &[u8]) -> bool {
        sign(&self.server_key, auth_message)[..].ct_eq(signature).into()
    }
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScramKeys(..)")
    }
}

/// ServerSignature or ClientSignature.
pub(super) fn sign(key: &[u8; KEY_LEN], message: &[u8]) -> Key {
    hmac_of(hmac::Key::new(hmac::HMAC_SHA256, key), message)
}

fn hmac_of(key: hmac::Key, message: &[u8]) -> Key {
    let tag = hmac::sign(&key, message);
    Zeroizing::new(tag.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

fn hash(bytes: &[u8; KEY_LEN]) -> Key {
    let hash = digest::digest(&digest::SHA256, bytes);
    Zeroizing::new(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

fn key(text: &str) -> Option<Key> {
    Some(Zeroizing::new(Zeroizing::new(BASE64.decode(text).ok()?).as_slice().try_into().ok()?))
}

/// Bytes in base 64, as all of SCRAM writes them.
pub(super) fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Bytes from base 64; `None` if it is not valid.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// The value of attribute `name` at the beginning of `rest`, which moves after it.
pub(super) fn attribute<'a>(rest: &mut &'a str, name: char) -> Option<&'a str> {
    let value = rest.strip_prefix(name)?.strip_prefix('=')?;
    let (value, behind) = value.split_once(',').unwrap_or((value, ""));
    *rest = behind;
    Some(value)
}
