//! TLS: nodes that are impostors, clients behind a man in the middle, cancel requests.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tutti_configuration::SslMode;
use tutti_gateway::{Config, init};
use tutti_tests::client::SILENCE_LIMIT;
use tutti_tests::process::{self, GatewayProcess};

use super::clients::{Knock, assert_refused, psql, psycopg};
use super::place::{Authority, OWN_PASSWORD, Place, closed_servers, configured};

/// SSLRequest.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

#[test]
fn a_node_must_be_who_its_certificate_says() -> Result<()> {
    let (servers, authority) = closed_servers(1)?;
    let stranger = Authority::new()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = |change: &dyn Fn(&mut Config)| {
        let mut config = configured(&servers, &authority);
        change(&mut config);
        config.complete();
        match runtime.block_on(init(&config, false)) {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("{:#}", anyhow::Error::new(error)),
        }
    };
    // Its certificate is for 127.0.0.1.
    let misnamed = outcome(&|config| config.nodes[0].host = "localhost".to_owned());
    ensure!(misnamed.contains("not valid for name"), "{misnamed}");
    let untrusted = outcome(&|config| {
        config.nodes[0].tls.sslrootcert = Some(stranger.path("ca.crt"));
    });
    ensure!(untrusted.contains("invalid peer certificate"), "{untrusted}");
    let plain = outcome(&|config| config.nodes[0].tls.sslmode = Some(SslMode::Disable));
    ensure!(plain.contains("no encryption"), "{plain}");
    // Without looking at the certificate, but bound to it by SCRAM.
    let any = outcome(&|config| {
        config.nodes[0].tls.sslmode = Some(SslMode::Require);
        config.nodes[0].host = "localhost".to_owned();
    });
    ensure!(any == "done", "{any}");
    let verified = outcome(&|_| ());
    ensure!(verified == "done", "{verified}");
    Ok(())
}

#[test]
fn certificates_are_read_anew_at_sighup_if_they_can_be() -> Result<()> {
    let (servers, authority) = closed_servers(1)?;
    let config = configured(&servers, &authority);
    process::init_configured(&config)?;
    let gateway = GatewayProcess::start_configured(config, &[])?;
    let by = |authority: &Authority| {
        let root = authority.path("ca.crt").display().to_string();
        let knock = Knock::at(gateway.endpoint().port).with("user", "postgres");
        let knock = knock.with("sslmode", "verify-full").with("sslrootcert", &root);
        psql(&knock.password(OWN_PASSWORD), "SELECT 1")
    };
    assert_eq!(by(&authority)?, "1");
    let successor = Authority::new()?;
    successor.issue("gateway", &["127.0.0.1"])?;
    assert_refused(by(&successor), "certificate verify failed");

    let until = |is_done: &dyn Fn() -> bool| -> Result<()> {
        let deadline = Instant::now() + SILENCE_LIMIT;
        while !is_done() {
            ensure!(Instant::now() < deadline, "SIGHUP shows no effect: {}", gateway.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    };
    fs::write(authority.path("gateway.crt"), "no certificate")?;
    gateway.hang_up()?;
    until(&|| gateway.log().contains("the certificates stay as they were"))?;
    assert_eq!(by(&authority)?, "1");

    for file in ["gateway.crt", "gateway.key"] {
        fs::copy(successor.path(file), authority.path(file))?;
    }
    gateway.hang_up()?;
    until(&|| by(&successor).is_ok())
}

#[test]
fn a_cancel_request_comes_and_goes_by_tls() -> Result<()> {
    let place = Place::start(|_, _| ())?;
    place.run("CREATE ROLE ann LOGIN PASSWORD 'x'")?;
    let script = "
def cancel():
    time.sleep(0.5)
    connection.cancel_safe()
threading.Thread(target=cancel).start()
try:
    connection.execute('SELECT pg_sleep(60)')
except psycopg.errors.QueryCanceled:
    print('cancelled')
print(connection.execute('SELECT 1').fetchone())";
    let answer = psycopg(&place.knock("ann", "x"), script)?;
    ensure!(answer == "cancelled\n(1,)", "{answer}");
    Ok(())
}

#[test]
fn what_comes_before_the_handshake_is_not_taken_for_the_clients() -> Result<()> {
    let place = Place::start(|_, _| ())?;
    let connect = || TcpStream::connect(("127.0.0.1", place.cluster.endpoint().port));
    // A startup packet smuggled in after the request, to be read as if it came through TLS.
    let mut early = connect()?;
    let mut bytes = SSL_REQUEST.to_vec();
    bytes.extend([0, 0, 0, 8, 0, 3, 0, 0]);
    early.write_all(&bytes)?;
    let mut answer = Vec::new();
    early.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    ensure!(answer.contains("received unencrypted data after SSL request"), "{answer}");

    // What is no TLS gets an end, not a session.
    let mut wrong = connect()?;
    wrong.write_all(&SSL_REQUEST)?;
    let mut answer = [0];
    wrong.read_exact(&mut answer)?;
    assert_eq!(&answer, b"S");
    wrong.write_all(b"this is no handshake, and it is longer than a record's header")?;
    let mut rest = Vec::new();
    // An alert, and then the end, which may come as a reset.
    let _ = wrong.read_to_end(&mut rest);
    ensure!(rest.len() < 16, "{rest:?}");

    // A client that trusts another authority leaves by itself.
    let stranger = Authority::new()?;
    let root = stranger.path("ca.crt").display().to_string();
    let knock = place.knock("postgres", "x").with("sslrootcert", &root);
    assert_refused(psql(&knock, "SELECT 1"), "certificate verify failed");
    Ok(())
}
