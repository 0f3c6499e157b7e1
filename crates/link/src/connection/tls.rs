//! TLS to nodes.
//!
//! Owns: whether a connection to a node is encrypted, and whose certificate is trusted.
//! Never: falls back to an unencrypted connection where encryption was asked for.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::net::TcpStream;
use tutti_configuration::{Address, NodeTls, SslMode};

use crate::net::no_authority::NoAuthority;
use crate::net::pem::{ALPN, TlsError, read_certificates, read_key, read_roots};
use crate::net::stream::{Stream, TlsStream};

/// The TLS configuration made from a node's certificates, read once at its first use and shared by
/// all copies of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Connector(Arc<OnceLock<Arc<ClientConfig>>>);

/// What was read at run time is not part of the configuration.
impl PartialEq for Connector {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Connector {}

impl Connector {
    fn config(&self, tls: &NodeTls, mode: SslMode) -> Result<Arc<ClientConfig>, TlsError> {
        if let Some(config) = self.0.get() {
            return Ok(config.clone());
        }
        let config = Arc::new(client_config(tls, mode)?);
        Ok(self.0.get_or_init(|| config).clone())
    }
}

/// Wraps a fresh connection to `address` as its configuration asks. Nothing has been sent on it yet.
pub(super) async fn secure(
    socket: Arc<TcpStream>,
    address: &Address,
    tls: &NodeTls,
    connector: &Connector,
) -> io::Result<Stream> {
    let mode = tls.mode(address);
    if mode == SslMode::Disable {
        return Ok(Stream::Plain(socket));
    }
    let config = connector.config(tls, mode).map_err(io::Error::other)?;
    let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
    request_encryption(&socket).await?;
    let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let stream = TlsStream::shake_hands(Stream::Plain(socket), session).await?;
    Ok(Stream::Tls(Box::new(stream)))
}

/// Sends SSLRequest and reads exactly its answer: what comes after it belongs to TLS, no matter who
/// sent it.
async fn request_encryption(socket: &TcpStream) -> io::Result<()> {
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    let mut rest = &SSL_REQUEST[..];
    while !rest.is_empty() {
        socket.writable().await?;
        match socket.try_write(rest) {
            Ok(len) => rest = &rest[len..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            Err(error) => return Err(error),
        }
    }
    let mut answer = [0];
    loop {
        socket.readable().await?;
        match socket.try_read(&mut answer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            Err(error) => return Err(error),
        }
    }
    match answer {
        [b'S'] => Ok(()),
        _ => Err(io::Error::other(
            "the server does not support TLS, but the configuration requires it (sslmode)",
        )),
    }
}

fn client_config(tls: &NodeTls, mode: SslMode) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let path = || tls.sslrootcert.clone().or_else(|| tls.sslcert.clone()).unwrap_or_default();
    let unusable = |error: &dyn std::error::Error| TlsError::Unusable {
        path: path(),
        problem: error.to_string(),
    };
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let builder = match mode {
        SslMode::VerifyFull => {
            let roots = match &tls.sslrootcert {
                Some(path) => read_roots(path)?,
                None => {
                    return Err(TlsError::File {
                        what: "root certificates",
                        path: path(),
                        problem: "verify-full needs sslrootcert".to_owned(),
                    });
                }
            };
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| unusable(&error))?;
            builder.with_webpki_verifier(verifier)
        }
        SslMode::Require | SslMode::Disable => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(NoAuthority::any(provider))),
    };
    let mut config = match (&tls.sslcert, &tls.sslkey) {
        (Some(certificate), Some(key)) => builder
            .with_client_auth_cert(
                read_certificates("the certificate", certificate)?,
                read_key(key)?,
            )
            .map_err(|error| unusable(&error))?,
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}
