//! What is read from a certificate.
//!
//! Owns: the hash that channel binding uses, and the name of the role that it is issued for.
//! Never: decides whether it is to be trusted; that is TLS's.

use ring::digest;
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::oid::db::rfc5912;
use x509_cert::der::{Decode, Tag, Tagged};

/// The hash of `tls-server-end-point`; `None` for a signature algorithm without a hash of its own
/// (Ed25519), with which PostgreSQL has no channel binding either.
///
/// Source: RFC 5929, section 4.1.
pub fn end_point(der: &[u8]) -> Option<Vec<u8>> {
    let certificate = Certificate::from_der(der).ok()?;
    let algorithm = digest_of(certificate.signature_algorithm.oid)?;
    Some(digest::digest(algorithm, der).as_ref().to_vec())
}

fn digest_of(signature: ObjectIdentifier) -> Option<&'static digest::Algorithm> {
    match signature {
        // MD5 and SHA-1 are replaced by SHA-256.
        rfc5912::MD_5_WITH_RSA_ENCRYPTION
        | rfc5912::SHA_1_WITH_RSA_ENCRYPTION
        | rfc5912::SHA_256_WITH_RSA_ENCRYPTION
        | rfc5912::ECDSA_WITH_SHA_256 => Some(&digest::SHA256),
        rfc5912::SHA_384_WITH_RSA_ENCRYPTION | rfc5912::ECDSA_WITH_SHA_384 => Some(&digest::SHA384),
        rfc5912::SHA_512_WITH_RSA_ENCRYPTION | rfc5912::ECDSA_WITH_SHA_512 => Some(&digest::SHA512),
        _ => None,
    }
}

/// The subject's common name: the role that a client's certificate is issued for.
pub fn common_name(der: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(der).ok()?;
    let names = certificate.tbs_certificate.subject.0;
    let name = names
        .iter()
        .flat_map(|relative| relative.0.iter())
        .find(|attribute| attribute.oid == COMMON_NAME)?;
    let tag = name.value.tag();
    if !matches!(tag, Tag::Utf8String | Tag::PrintableString | Tag::Ia5String) {
        return None;
    }
    let name = std::str::from_utf8(name.value.value()).ok()?;
    // A NUL inside could make one name look like another.
    (!name.contains('\0')).then(|| name.to_owned())
}
