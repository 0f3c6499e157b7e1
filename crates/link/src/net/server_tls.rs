//! TLS to clients: the gateway's certificate, and which client certificates are trusted.
//!
//! Owns: reading the files, also again while running, and handing out sessions.
//! Never: lets a file that cannot be used replace one that works.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use tutti_configuration::{ClientTls, TlsVersion};

use super::certificate;
use super::pem::{ALPN, TlsError, read_certificates, read_key, read_roots};
use super::stream::{Stream, TlsStream};

/// One reading of the files.
#[derive(Debug)]
struct Served {
    config: Arc<ServerConfig>,
    end_point: Option<Vec<u8>>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct ServerTls {
    settings: ClientTls,
    served: RwLock<Arc<Served>>,
}

impl ServerTls {
    /// Reads the files.
    pub fn new(settings: &ClientTls) -> Result<Self, TlsError> {
        let served = RwLock::new(Arc::new(read(settings)?));
        Ok(Self { settings: settings.clone(), served })
    }

    /// Reads the files again. Connections that are open keep what they have.
    pub fn reload(&self) -> Result<(), TlsError> {
        let served = Arc::new(read(&self.settings)?);
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = served;
        Ok(())
    }

    /// Performs the handshake with a client. Returns the stream and the hash for channel binding.
    pub async fn accept(&self, under: Stream) -> io::Result<(Stream, Option<Vec<u8>>)> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner).clone();
        let session = ServerConnection::new(served.config.clone()).map_err(io::Error::other)?;
        let stream = Stream::Tls(Box::new(TlsStream::shake_hands(under, session).await?));
        Ok((stream, served.end_point.clone()))
    }
}

fn read(settings: &ClientTls) -> Result<Served, TlsError> {
    let unusable = |error: &dyn std::error::Error| TlsError::Unusable {
        path: settings.certificate.clone(),
        problem: error.to_string(),
    };
    let chain = read_certificates("the certificate", &settings.certificate)?;
    let key = read_key(&settings.key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions(settings.min_version))
        .map_err(|error| unusable(&error))?;
    let builder = match &settings.client_ca {
        Some(path) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(read_roots(path)?, provider)
                // Which clients need one is for the rules to say.
                .allow_unauthenticated()
                .build()
                .map_err(|error| unusable(&error))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let end_point = certificate::end_point(&chain[0]);
    let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable(&error))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Served { config: Arc::new(config), end_point })
}

fn versions(min: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    const SINCE_1_2: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];
    const SINCE_1_3: &[&SupportedProtocolVersion] = &[&TLS13];
    match min {
        TlsVersion::V1_2 => SINCE_1_2,
        TlsVersion::V1_3 => SINCE_1_3,
    }
}
