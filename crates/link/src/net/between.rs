//! TLS between gateways.
//!
//! Owns: the key that a gateway draws when it starts, its certificate, and what holds for the one at the other end: that it
//! has the certificate whose fingerprint it has proven to be its own.
//! Never: proves that (the gateway's `door` does, by what only gateways of the cluster know), or trusts an authority.

use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use super::no_authority::{Fingerprint, NoAuthority, fingerprint_of};
use super::stream::{Stream, TlsStream};

/// A name is asked for and looked at by nobody.
const NAME: &str = "tutti.invalid";

/// The side of TLS on which a gateway is brought clients.
#[derive(Debug)]
pub struct Between {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
}

impl Between {
    /// Draws a key, which lasts as long as the process.
    pub fn draw() -> Self {
        let drawn = rcgen::generate_simple_self_signed([NAME.to_owned()]);
        let drawn = drawn.expect("the system has randomness");
        let certificate = drawn.cert.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(drawn.signing_key.serialize_der()));
        let fingerprint = fingerprint_of(&certificate);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![certificate], key)
            })
            .expect("the library knows TLS 1.3, and a key that it has drawn");
        Self { config: Arc::new(config), fingerprint }
    }

    /// By which the other side knows the certificate.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Performs the handshake with a gateway that brings a client.
    pub async fn accept(&self, under: Stream) -> io::Result<Stream> {
        let session = ServerConnection::new(self.config.clone()).map_err(io::Error::other)?;
        Ok(Stream::Carried(Box::new(TlsStream::shake_hands(under, session).await?)))
    }
}

/// Performs the handshake with a gateway that has this certificate.
///
/// Errors: it has another one; the connection's.
pub async fn connect(under: Stream, fingerprint: Fingerprint) -> io::Result<Stream> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let known = Arc::new(NoAuthority::only(fingerprint, provider.clone()));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(known)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(Stream::Carried(Box::new(TlsStream::shake_hands(under, session).await?)))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn pair() -> (Stream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        (Stream::Plain(Arc::new(one.unwrap())), Stream::Plain(Arc::new(other.unwrap().0)))
    }

    async fn read(from: &mut Stream, len: usize) -> BytesMut {
        let mut into = BytesMut::new();
        while into.len() < len {
            from.readable().await.unwrap();
            match from.try_read(&mut into, 4096) {
                Ok(0) => break,
                Ok(_) => (),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
                Err(error) => panic!("{error}"),
            }
        }
        into
    }

    /// A stream through TLS, and one through TLS within TLS, carry all of what is written, both ways.
    #[tokio::test]
    async fn all_that_is_written_arrives_also_within_another() {
        let between = Between::draw();
        let (one, other) = pair().await;
        let (one, other) =
            tokio::join!(connect(one, *between.fingerprint()), between.accept(other));
        let (mut one, mut other) = (one.unwrap(), other.unwrap());
        let data: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
        for is_within in [false, true] {
            if is_within {
                // As where a client has its own TLS, through the gateway in between.
                let inner = Between::draw();
                let (client, server) =
                    tokio::join!(connect(one, *inner.fingerprint()), inner.accept(other));
                (one, other) = (client.unwrap(), server.unwrap());
            }
            let mut sent = BytesMut::from(&data[..]);
            let (written, read_there) =
                tokio::join!(one.write_all(&mut sent), read(&mut other, data.len()));
            written.unwrap();
            assert!(read_there == data, "{} bytes", read_there.len());
            let mut sent = BytesMut::from(&data[..]);
            let (written, read_here) =
                tokio::join!(other.write_all(&mut sent), read(&mut one, data.len()));
            written.unwrap();
            assert!(read_here == data, "{} bytes", read_here.len());
            let mut first = BytesMut::from(&b"\x16x"[..]);
            one.write_all(&mut first).await.unwrap();
            assert_eq!(other.first_byte().await.unwrap(), Some(0x16));
            assert_eq!(&read(&mut other, 2).await[..], b"\x16x", "it is there still");
        }
        drop(one);
        assert!(read(&mut other, 1).await.is_empty());
    }

    #[tokio::test]
    async fn another_certificate_is_not_taken() {
        let (between, another) = (Between::draw(), Between::draw());
        let (one, other) = pair().await;
        let (refused, _) =
            tokio::join!(connect(one, *another.fingerprint()), between.accept(other));
        assert!(refused.is_err());
    }
}
