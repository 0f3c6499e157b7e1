//! What is large but right: fields of 64 MB, and results that a client reads slowly.
//!
//! Owns: that they pass whole, that the gateway holds no more of them than it must, and that
//! no one else waits for them. Never: measures time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use tutti_tests::answer::Answer;
use tutti_tests::client::{Client, Endpoint, Flight, Request, SILENCE_LIMIT};
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::servers;
use tutti_wire::frontend::{Arguments, put_query};

use super::neighbour::{self, Neighbour};
use super::raw::startup_packet;

const FIELD_BYTES: usize = 64 << 20;
/// Rows of a kilobyte.
const ROWS: usize = 300_000;
/// What the gateway may grow by while such a result passes.
const GROWTH_MAX: u64 = 64 << 20;

/// The only value, by its length and whether it is all of this letter.
fn check_field(answer: &Answer, letter: char) -> Result<()> {
    if let Some(error) = answer.error() {
        anyhow::bail!("{} {}", error.sqlstate(), error.message());
    }
    let texts = answer.texts();
    let field = texts.first().and_then(|row| row.last()).and_then(Option::as_ref);
    let field = field.context("no field")?;
    ensure!(field.len() == FIELD_BYTES, "{} bytes", field.len());
    ensure!(field.chars().all(|found| found == letter), "something else than {letter}");
    Ok(())
}

fn check_done(answer: &Answer) -> Result<()> {
    match answer.error() {
        Some(error) => anyhow::bail!("{} {}", error.sqlstate(), error.message()),
        None => Ok(()),
    }
}

#[test]
fn fields_of_64_mb_pass_both_ways() -> Result<()> {
    let cluster = neighbour::start(1)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE big (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id)")?;
    let text = format!("SELECT repeat('x', {FIELD_BYTES})");
    check_field(&client.simple(&text, &[])?, 'x')?;
    // In a Query, by value and by Bind.
    let literal = "y".repeat(FIELD_BYTES);
    check_done(&client.simple(&format!("INSERT INTO big VALUES (1, '{literal}')"), &[])?)?;
    drop(literal);
    let value = Some(Bytes::from(vec![b'z'; FIELD_BYTES]));
    let arguments = [Arguments { values: vec![value], ..Arguments::default() }];
    let request = Request {
        sql: "INSERT INTO big VALUES (2, $1)",
        arguments: &arguments,
        ..Request::default()
    };
    check_done(&client.extended(&request, Flight::OneFlight, &[])?)?;
    // From one node, and from all of them.
    check_field(&client.simple("SELECT v FROM big WHERE id = 1", &[])?, 'y')?;
    check_field(&client.simple("SELECT id, v FROM big WHERE v LIKE 'z%'", &[])?, 'z')?;
    Neighbour::of(&cluster)?.check()
}

/// A client that asks for something and then reads only what it is told to.
struct SlowReader {
    stream: TcpStream,
    read_bytes: usize,
}

impl SlowReader {
    fn ask(endpoint: &Endpoint, sql: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", endpoint.port))?;
        stream.set_read_timeout(Some(SILENCE_LIMIT))?;
        let mut out = BytesMut::from(&startup_packet()[..]);
        put_query(&mut out, sql);
        stream.write_all(&out)?;
        Ok(Self { stream, read_bytes: 0 })
    }

    fn read(&mut self, bytes: usize) -> Result<()> {
        let mut piece = vec![0; bytes];
        self.stream.read_exact(&mut piece).context("the result ends early")?;
        self.read_bytes += bytes;
        Ok(())
    }

    /// Reads on until the gateway has said that the statement is done.
    fn read_rest(mut self) -> Result<usize> {
        let mut piece = vec![0; 64 * 1024];
        let mut tail = Vec::new();
        while !tail.ends_with(b"Z\0\0\0\x05I") {
            let len = self.stream.read(&mut piece)?;
            ensure!(0 < len, "closed after {} bytes", self.read_bytes);
            self.read_bytes += len;
            tail.extend_from_slice(&piece[..len]);
            tail.drain(..tail.len().saturating_sub(6));
        }
        Ok(self.read_bytes)
    }
}

/// Waits until backends are stuck because what they send is not read.
fn wait_until_stuck(nodes: &[Endpoint]) -> Result<()> {
    const STUCK: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite'";
    let mut watchers = Vec::new();
    for node in nodes {
        watchers.push(Client::connect(node)?);
    }
    let deadline = Instant::now() + SILENCE_LIMIT;
    let mut seen = 0;
    // Also one that is about to go on is found waiting now and then.
    while seen < 10 {
        let mut stuck = 0;
        for watcher in &mut watchers {
            stuck += watcher.value(STUCK)?.parse::<usize>()?;
        }
        seen = if 0 < stuck { seen + 1 } else { 0 };
        ensure!(Instant::now() < deadline, "the node sends on though nobody reads");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn a_slow_reader_costs_no_memory_and_holds_up_nobody() -> Result<()> {
    let servers = servers::start(2)?;
    process::init(&servers)?;
    let gateway = GatewayProcess::start(&servers)?;
    let nodes = [servers::endpoint(&servers, 0), servers::endpoint(&servers, 1)];
    let mut other = Client::connect(&gateway.endpoint())?;
    for statement in neighbour::TABLES {
        other.query(statement)?;
    }
    let one_node = format!("SELECT repeat('x', 1000) FROM generate_series(1, {ROWS})");
    let all_nodes =
        format!("SELECT repeat('x', 1000) FROM witness, generate_series(1, {})", ROWS / 20);
    for sql in [&one_node, &format!("COPY ({one_node}) TO STDOUT"), &all_nodes] {
        let before = gateway.peak_resident_bytes()?;
        let mut reader = SlowReader::ask(&gateway.endpoint(), sql)?;
        reader.read(1 << 20)?;
        wait_until_stuck(&nodes).context(sql.clone())?;
        for _ in 0..20 {
            ensure!(other.value("SELECT count(*) FROM witness")? == "20", "another answer");
        }
        let passed = reader.read_rest()?;
        ensure!(ROWS * 1000 < passed, "only {passed} bytes of {sql}");
        // Linux counts per CPU and sums up lazily: a peak told later can be a little lower.
        let grown = gateway.peak_resident_bytes()?.saturating_sub(before);
        println!("{sql}: {passed} bytes passed, the gateway's peak grew by {grown}");
        ensure!(grown < GROWTH_MAX, "the gateway grew by {grown} bytes at {sql}");
    }
    Ok(())
}
