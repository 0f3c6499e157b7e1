//! Certificates and keys from PEM files, for both sides of TLS.
//!
//! Owns: reading them, and saying what is wrong with a file.
//! Never: decides whom to trust.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The protocol name that PostgreSQL's clients send where TLS begins with the first byte.
pub const ALPN: &[u8] = b"postgresql";

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or does not contain what it should.
    #[error("cannot read {what} from {}: {problem}", path.display())]
    File {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The contents of the files do not match.
    #[error("cannot use the certificate in {}: {problem}", path.display())]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// Certificates, leaf first.
pub fn read_certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |problem: String| TlsError::File { what, path: path.to_owned(), problem };
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| failed(error.to_string()))?;
    if chain.is_empty() { Err(failed("it holds no certificate".to_owned())) } else { Ok(chain) }
}

/// A private key.
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::File {
        what: "the private key",
        path: path.to_owned(),
        problem: error.to_string(),
    })
}

/// Certificates of authorities.
pub fn read_roots(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates("root certificates", path)? {
        roots.add(certificate).map_err(|error| TlsError::Unusable {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
    }
    Ok(Arc::new(roots))
}
