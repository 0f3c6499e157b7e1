//! A server's certificate where nobody is asked who has issued it.
//!
//! Owns: whether such a certificate is taken: any, or one that is known. Never: leaves a proof of its key unchecked.
//! Start reading at [`NoAuthority`].

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// SHA-256 of a certificate, in bytes.
pub const FINGERPRINT_LEN: usize = 32;

/// What a certificate is known by.
pub type Fingerprint = [u8; FINGERPRINT_LEN];

pub(super) fn fingerprint_of(certificate: &CertificateDer<'_>) -> Fingerprint {
    digest(&SHA256, certificate).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct NoAuthority {
    /// Of the only certificate that is taken, if it is one.
    fingerprint: Option<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl NoAuthority {
    /// Takes any certificate: protects against eavesdroppers, not impostors.
    pub(crate) fn any(provider: Arc<CryptoProvider>) -> Self {
        Self { fingerprint: None, provider }
    }

    /// Takes one.
    pub(crate) fn only(fingerprint: Fingerprint, provider: Arc<CryptoProvider>) -> Self {
        Self { fingerprint: Some(fingerprint), provider }
    }
}

impl ServerCertVerifier for NoAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.fingerprint.is_none_or(|known| fingerprint_of(end_entity) == known) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
