//! Seals: how a node knows that a statement in a client's transaction was made by the gateway.
//!
//! Owns: the nodes' secrets as this gateway has read them, and how a seal is made.
//! Never: shows a secret, not even for debugging.
//! Start reading at [`Seals::seal`].
//!
//! Some statements of the gateway must be part of a client's transaction, and so run under the
//! client's role: the record of a decision, the registration of a table. The client could send the
//! same text. So it comes with a seal, a hash over a secret that only the gateway's role can read,
//! what the statement does, the process id of the backend that must do it, and the time at which the
//! transaction began. A seal is a parameter, which no other session is shown; should one be seen
//! nevertheless (a log may have parameters), it is useless in any other transaction.
//! `tutti.is_sealed` makes the same hash. The secret is hashed twice, inside and outside, so that a
//! message whose seal was seen cannot be extended.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use ring::digest::{Context, SHA256};
use ring::hmac;
use tutti_sql::catalog::NodeId;

use crate::connection::{NodeConnection, NodeError};

/// Length of what [`Seals::proof`] makes, in bytes.
pub const PROOF_LEN: usize = 32;

/// The secrets of all nodes.
#[derive(Default)]
pub struct Seals {
    secrets: RwLock<BTreeMap<NodeId, String>>,
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secrets = self.secrets();
        f.debug_struct("Seals").field("nodes", &secrets.keys()).finish_non_exhaustive()
    }
}

impl Seals {
    /// A node's secret, in hexadecimal digits, as it was read there.
    pub fn learn(&self, node: NodeId, secret: String) {
        self.secrets.write().unwrap_or_else(PoisonError::into_inner).insert(node, secret);
    }

    /// Whether the node's secret was learned.
    pub fn knows(&self, node: NodeId) -> bool {
        self.secrets().contains_key(&node)
    }

    fn secrets(&self) -> RwLockReadGuard<'_, BTreeMap<NodeId, String>> {
        self.secrets.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seal that `tutti.is_sealed` accepts for this message, from this backend in the transaction
    /// that it is in alone.
    ///
    /// Errors and requirement: as [`NodeConnection::learn_moment`].
    pub async fn seal(
        &self,
        connection: &mut NodeConnection,
        message: &str,
    ) -> Result<String, NodeError> {
        connection.learn_moment().await?;
        Ok(self.seal_now(connection, message))
    }

    /// The same, where the node has already reported when the transaction began.
    ///
    /// No node accepts it where it has not, nor for a node whose secret was not learned.
    pub fn seal_now(&self, connection: &NodeConnection, message: &str) -> String {
        self.seal_as_of(connection, connection.moment(), message)
    }

    /// Lets the next statement (or several) sent over the connection change the schema of its node, which is not
    /// node 1: what `guard.sql` asks for, a word, a number used once, and a seal.
    pub fn warrant(&self, connection: &NodeConnection, scope: Warranted) -> String {
        let word = match scope {
            Warranted::One => "once",
            Warranted::Many => "many",
            Warranted::CreateIndex => "make",
            Warranted::DropIndex => "drop",
        };
        let warrant = format!("{word} {:032x}", rand::random::<u128>());
        let seal = self.seal_as_of(connection, "warrant", &warrant);
        format!("{warrant} {seal}")
    }

    /// What shows another gateway of the cluster that who says this one knows the secret of node 1: HMAC-SHA256 over
    /// the parts. `None`: it was not learned.
    pub fn proof(&self, parts: &[&[u8]]) -> Option<[u8; PROOF_LEN]> {
        hmac::sign(&self.key()?, &joined(parts)).as_ref().try_into().ok()
    }

    /// Whether another gateway has made this [`Self::proof`].
    pub fn is_proven(&self, parts: &[&[u8]], proof: &[u8]) -> bool {
        self.key().is_some_and(|key| hmac::verify(&key, &joined(parts), proof).is_ok())
    }

    fn key(&self) -> Option<hmac::Key> {
        let secret = bytes_of_hex(self.secrets().get(&NodeId::HOME)?)?;
        Some(hmac::Key::new(hmac::HMAC_SHA256, &secret))
    }

    fn seal_as_of(&self, connection: &NodeConnection, moment: &str, message: &str) -> String {
        let (process_id, _) = connection.backend_key();
        self.secrets()
            .get(&connection.node())
            .and_then(|secret| bytes_of_hex(secret))
            .map_or_else(String::new, |secret| seal(&secret, process_id, moment, message))
    }
}

/// The parts, each after its length, so that no others give the same.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let of = |part: &&[u8]| [&(part.len() as u64).to_be_bytes()[..], part].concat();
    parts.iter().flat_map(of).collect()
}

/// What may change the schema of a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Warranted {
    /// One statement of the open transaction.
    One,
    /// Several.
    Many,
    /// CREATE INDEX CONCURRENTLY, outside of a transaction.
    CreateIndex,
    /// DROP INDEX CONCURRENTLY, the same.
    DropIndex,
}

fn seal(secret: &[u8], process_id: i32, moment: &str, message: &str) -> String {
    let digest = |message: &[u8]| {
        let mut context = Context::new(&SHA256);
        context.update(secret);
        context.update(message);
        context.finish()
    };
    let inner = digest(format!("{process_id} {moment} {message}").as_bytes());
    let outer = digest(inner.as_ref());
    outer.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What stands in a message for a text that may be long: PostgreSQL's `sha256`, in hexadecimal digits.
pub fn digest(text: &str) -> String {
    let digest = ring::digest::digest(&SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    digits.map(|digits| u8::from_str_radix(digits?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_for_one_secret_one_backend_one_transaction_and_one_message() {
        let all = [
            seal(b"one", 1, "a0", "decision a"),
            seal(b"two", 1, "a0", "decision a"),
            seal(b"one", 2, "a0", "decision a"),
            seal(b"one", 1, "a1", "decision a"),
            seal(b"one", 1, "a0", "decision b"),
        ];
        for (index, one) in all.iter().enumerate() {
            assert_eq!(one.len(), 64);
            assert!(all[index + 1..].iter().all(|other| other != one));
        }
    }

    #[test]
    fn a_proof_is_of_one_secret_and_of_what_is_said_in_its_parts() {
        let knowing = |secret: &str| {
            let seals = Seals::default();
            seals.learn(NodeId::HOME, secret.to_owned());
            seals
        };
        let (one, other) = (knowing("c0ffee"), knowing("c0ffef"));
        let proof = one.proof(&[b"leads", b"ab"]).unwrap();
        assert!(one.is_proven(&[b"leads", b"ab"], &proof));
        for parts in [[b"leads".as_slice(), b"ac"], [b"lead", b"sab"], [b"leadsab", b""]] {
            assert!(!one.is_proven(&parts, &proof));
        }
        assert!(!other.is_proven(&[b"leads", b"ab"], &proof));
        assert!(!one.is_proven(&[b"leads", b"ab"], &proof[..31]));
        assert_eq!(Seals::default().proof(&[]), None);
    }

    #[test]
    fn secrets_are_not_shown() {
        let seals =
            Seals { secrets: RwLock::new(BTreeMap::from([(NodeId(1), "c0ffee".to_owned())])) };
        assert!(!format!("{seals:?}").contains("c0ffee"));
    }
}
