//! Passwords in CREATE ROLE and ALTER ROLE become verifiers before anything else sees them.
//!
//! Owns: that all nodes store the same verifier, so that one login works on all of them, and that
//! no node, log or error gets to see the password.
//! Never: touches what is a verifier already, or how long a password is valid.

use postgres_protocol::password::scram_sha_256;
use tutti_link::net::scram::Verifier;
use tutti_sql::refusal::Refusal;
use tutti_sql::statement::{self, Statement};

/// Replaces the passwords in these statements by verifiers: once, here, so that every node gets the
/// same.
pub(crate) fn seal(statements: &mut [Statement]) -> Result<(), Refusal> {
    statements.iter_mut().try_for_each(|statement| {
        statement::replace_passwords(statement, |password| {
            (!is_stored_form(password)).then(|| scram_sha_256(password.as_bytes()))
        })
    })
}

/// What PostgreSQL stores as it is. The empty password it does not store at all.
fn is_stored_form(password: &str) -> bool {
    let is_md5 = password
        .strip_prefix("md5")
        .is_some_and(|hash| hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    password.is_empty() || is_md5 || Verifier::parse(password).is_some()
}
