//! The door: too many, too slow, too long.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tutti_configuration::Limits;
use tutti_gateway::Config;
use tutti_tests::client::{Client, SILENCE_LIMIT};
use tutti_tests::gateway::{self, TestCluster};
use tutti_tests::servers;

const TIMEOUT_S: u64 = 2;

fn narrow(limits: Limits) -> Result<TestCluster> {
    let servers = servers::start(1)?;
    let config = Config { limits, ..gateway::config(&servers, String::new()) };
    TestCluster::start_configured(servers, config)
}

fn knock(cluster: &TestCluster) -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", cluster.endpoint().port))?;
    stream.set_read_timeout(Some(SILENCE_LIMIT))?;
    Ok(stream)
}

/// Everything until the connection ends.
fn read_out(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn who_is_one_too_many_is_told_so() -> Result<()> {
    let limits = Limits { max_clients: 2, reserved_for_superusers: 1, ..Limits::default() };
    let cluster = narrow(limits)?;
    let first = Client::connect(&cluster.endpoint())?;
    let second = Client::connect(&cluster.endpoint())?;
    let third = Client::connect(&cluster.endpoint()).map(|_| ());
    ensure!(format!("{third:?}").contains("53300 sorry, too many clients already"), "{third:?}");
    drop(first);
    drop(second);
    let deadline = Instant::now() + SILENCE_LIMIT;
    while let Err(error) = Client::connect(&cluster.endpoint()) {
        ensure!(Instant::now() < deadline, "the places stay taken: {error:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn who_dribbles_or_says_nothing_is_sent_away_and_keeps_nobody_out() -> Result<()> {
    let limits =
        Limits { max_handshakes: 2, authentication_timeout_s: TIMEOUT_S, ..Limits::default() };
    let cluster = narrow(limits)?;
    let mut dribbling = knock(&cluster)?;
    let mut silent = knock(&cluster)?;
    // Both are accepted before any other.
    dribbling.write_all(&[0])?;
    let refused = read_out(&mut knock(&cluster)?);
    ensure!(refused.contains("53300"), "{refused}");
    // One byte at a time does not buy more time.
    let begun = Instant::now();
    for byte in [0, 0, 200, 0, 3, 0, 0].into_iter().cycle() {
        if dribbling.write_all(&[byte]).is_err() {
            break;
        }
        ensure!(begun.elapsed() < SILENCE_LIMIT, "the dribbling client is still there");
        std::thread::sleep(Duration::from_millis(100));
    }
    ensure!(read_out(&mut silent).is_empty(), "the silent client was answered");
    Client::connect(&cluster.endpoint())?;
    Ok(())
}

#[test]
fn lengths_that_cannot_be_are_refused_before_memory_is_spent() -> Result<()> {
    let servers = servers::start(1)?;
    let mut config = gateway::config(&servers, String::new());
    config.rules.clear();
    let cluster = TestCluster::start_configured(servers, config)?;
    for length in [u32::MAX, 0x7fff_ffff, 10_001, 7, 0] {
        let mut stream = knock(&cluster)?;
        stream.write_all(&length.to_be_bytes())?;
        stream.write_all(&[0, 3, 0, 0])?;
        let answer = read_out(&mut stream);
        ensure!(answer.contains("invalid startup packet"), "{length}: {answer}");
    }
    // In the place of a password.
    let mut stream = knock(&cluster)?;
    let mut startup = bytes::BytesMut::new();
    tutti_wire::startup::put_startup(&mut startup, &[("user", "postgres")]);
    stream.write_all(&startup)?;
    let mut request = [0; 24];
    stream.read_exact(&mut request)?;
    ensure!(request.starts_with(b"R"), "{request:?}");
    stream.write_all(b"p\x3f\xff\xff\xff")?;
    ensure!(read_out(&mut stream).is_empty(), "a huge message was waited for");
    // A statement in the place of a proof.
    let mut stream = knock(&cluster)?;
    stream.write_all(&startup)?;
    stream.read_exact(&mut request)?;
    stream.write_all(b"Q\0\0\0\x0dSELECT 1\0")?;
    let answer = read_out(&mut stream);
    ensure!(answer.contains("expected SASL response"), "{answer}");
    Ok(())
}
