//! Links that stand for distances: what passes, when, in which order, and how it is counted; and a
//! real PostgreSQL server behind one.
//!
//! A delay is held at least as long as it should be; how much longer is up to the machine, so it is
//! only required that a test ends.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{self, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tutti_lab::client;
use tutti_lab::distance::{Counts, Link, Stretch};

/// Nothing here takes nearly as long on the slowest machine.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// Long enough that what passes would have passed.
const NOTHING_FOR: Duration = Duration::from_millis(200);

fn stretch(rtt_ms: f64, jitter_ms: f64, bandwidth_mbit: Option<f64>) -> Stretch {
    Stretch::new(rtt_ms, jitter_ms, bandwidth_mbit).unwrap()
}

/// A link and the two ends of a first connection over it.
struct Pair {
    link: Link,
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

async fn pair(stretch: Stretch) -> Pair {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let link = Link::open(listener.local_addr().unwrap().to_string(), stretch).await.unwrap();
    let (client, server) = connected(&link, &listener).await;
    Pair { link, listener, client, server }
}

async fn connected(link: &Link, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(link.address()).await.unwrap();
    let (server, _) = within(listener.accept()).await.unwrap();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    (client, server)
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    timeout(ENDS_WITHIN, what).await.expect("this took too long")
}

async fn say(to: &mut TcpStream, text: &str) {
    to.write_all(text.as_bytes()).await.unwrap();
}

async fn hear(from: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    within(from.read_exact(&mut heard)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), text);
}

/// That the other side has closed, and not broken, the connection.
async fn hear_the_end(from: &mut TcpStream) {
    assert_eq!(within(from.read(&mut [0; 1])).await.unwrap(), 0);
}

/// That the connection is broken.
async fn hear_it_break(from: &mut TcpStream) {
    let error = within(from.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

async fn hear_nothing(from: &mut TcpStream) {
    let heard = timeout(NOTHING_FOR, from.read(&mut [0; 1])).await;
    assert!(heard.is_err(), "{heard:?}");
}

#[tokio::test]
async fn each_direction_takes_half_a_round_trip_at_least() {
    for rtt_ms in [0.4, 3.0, 50.0] {
        let mut it = pair(stretch(rtt_ms, 0.2, None)).await;
        let half = Duration::from_secs_f64(rtt_ms / 2_000.0);
        for _ in 0..5 {
            let asked = Instant::now();
            say(&mut it.client, "ask").await;
            hear(&mut it.server, "ask").await;
            assert!(half <= asked.elapsed());
            let answered = Instant::now();
            say(&mut it.server, "answer").await;
            hear(&mut it.client, "answer").await;
            assert!(half <= answered.elapsed());
        }
    }
}

#[tokio::test]
async fn to_connect_costs_a_round_trip() {
    let begun = Instant::now();
    let mut it = pair(stretch(40.0, 0.0, None)).await;
    assert!(Duration::from_millis(40) <= begun.elapsed());
    say(&mut it.client, "ask").await;
    hear(&mut it.server, "ask").await;
    say(&mut it.server, "answer").await;
    hear(&mut it.client, "answer").await;
    assert!(Duration::from_millis(80) <= begun.elapsed());
}

#[tokio::test]
async fn many_bytes_are_under_way_at_the_same_time() {
    // One after another, each for half of a round trip, they would take longer than the test may.
    const MESSAGES: usize = 2_000;
    let mut it = pair(stretch(200.0, 0.0, None)).await;
    let sending = tokio::spawn(async move {
        for _ in 0..MESSAGES {
            say(&mut it.client, "message").await;
            // So that each is read by itself.
            tokio::task::yield_now().await;
        }
        it.client
    });
    for _ in 0..MESSAGES {
        hear(&mut it.server, "message").await;
    }
    sending.await.unwrap();
}

/// Sends bytes that a seed gives, in pieces of all sizes, and says that they have ended.
fn sending(mut to: tokio::net::tcp::OwnedWriteHalf, seed: u64, length: usize) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut bytes = vec![0; length];
        StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
        let mut sizes = StdRng::seed_from_u64(!seed);
        let mut left = &bytes[..];
        while !left.is_empty() {
            let (piece, rest) = left.split_at(sizes.random_range(1..200_000).min(left.len()));
            to.write_all(piece).await.unwrap();
            left = rest;
        }
        to.shutdown().await.unwrap();
    })
}

/// Reads to the end and compares with what the seed gives.
fn receiving(mut from: tokio::net::tcp::OwnedReadHalf, seed: u64, length: usize) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut expected = vec![0; length];
        StdRng::seed_from_u64(seed).fill_bytes(&mut expected);
        let mut received = Vec::new();
        within(from.read_to_end(&mut received)).await.unwrap();
        assert_eq!(received.len(), length);
        assert!(received == expected, "what came is not what was sent");
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_is_what_was_sent_in_both_directions() {
    for (stretch, length) in [
        (Stretch::NONE, 20_000_000),
        (stretch(4.0, 3.0, None), 8_000_000),
        (stretch(2.0, 1.0, Some(80.0)), 4_000_000),
    ] {
        let begun = Instant::now();
        let it = pair(stretch).await;
        let (from_server, to_server) = it.client.into_split();
        let (from_client, to_client) = it.server.into_split();
        let tasks = [
            sending(to_server, 1, length),
            sending(to_client, 2, length),
            receiving(from_client, 1, length),
            receiving(from_server, 2, length),
        ];
        for task in tasks {
            task.await.unwrap();
        }
        if let Some(mbit) = stretch.bandwidth_mbit() {
            let at_least = Duration::from_secs_f64(length as f64 * 8.0 / (mbit * 1e6));
            assert!(at_least <= begun.elapsed(), "{:?} is too fast", begun.elapsed());
        }
        let counts = it.link.counts();
        let expected = length as u64;
        assert_eq!((counts.bytes_forth, counts.bytes_back), (expected, expected));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_share_the_bandwidth() {
    const LENGTH: usize = 500_000;
    let begun = Instant::now();
    let first = pair(stretch(1.0, 0.0, Some(40.0))).await;
    let (client, server) = connected(&first.link, &first.listener).await;
    let mut tasks = Vec::new();
    for (client, server, seed) in [(first.client, first.server, 1), (client, server, 2)] {
        // Dropped, the other halves would end what is not read from them.
        let ((client, to_server), (from_client, server)) =
            (client.into_split(), server.into_split());
        let (sends, receives) =
            (sending(to_server, seed, LENGTH), receiving(from_client, seed, LENGTH));
        tasks.push(tokio::spawn(async move {
            sends.await.unwrap();
            receives.await.unwrap();
            drop((client, server));
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    // A megabyte, at 5 MB/s.
    assert!(Duration::from_millis(200) <= begun.elapsed(), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn who_does_not_read_stops_who_sends() {
    // 10 ms of 1 Gbit/s are 1.25 MB; what more goes in is in the buffers of sockets.
    let mut it = pair(stretch(20.0, 0.0, Some(1_000.0))).await;
    let block = vec![0; 1_000_000];
    let mut sent = 0;
    while let Ok(written) = timeout(NOTHING_FOR, it.client.write(&block)).await {
        sent += written.unwrap();
        assert!(sent < 100_000_000, "nobody reads, and {sent} bytes were sent");
    }
    // It all arrives once it is read.
    let mut read = 0;
    let mut buffer = vec![0; 100_000];
    while read < sent {
        read += within(it.server.read(&mut buffer)).await.unwrap();
    }
    assert_eq!(read, sent);
}

#[tokio::test]
async fn one_direction_may_end_before_the_other() {
    let mut it = pair(stretch(4.0, 1.0, None)).await;
    say(&mut it.client, "that is all").await;
    it.client.shutdown().await.unwrap();
    hear(&mut it.server, "that is all").await;
    hear_the_end(&mut it.server).await;
    say(&mut it.server, "here is more").await;
    hear(&mut it.client, "here is more").await;
    say(&mut it.server, " and more").await;
    drop(it.server);
    hear(&mut it.client, " and more").await;
    hear_the_end(&mut it.client).await;
    until(|| !it.link.connections()[0].open).await;
}

#[tokio::test]
async fn a_break_passes_on_behind_what_was_said() {
    let mut it = pair(stretch(4.0, 0.0, None)).await;
    say(&mut it.client, "goodb").await;
    hear(&mut it.server, "goodb").await;
    it.client.set_zero_linger().unwrap();
    drop(it.client);
    hear_it_break(&mut it.server).await;
    until(|| !it.link.connections()[0].open).await;
}

#[tokio::test]
async fn who_talks_to_nobody_learns_it() {
    let mut it = pair(stretch(4.0, 0.0, None)).await;
    // It answers, and goes without reading.
    say(&mut it.server, "too many clients").await;
    drop(it.server);
    hear(&mut it.client, "too many clients").await;
    let block = vec![0; 100_000];
    let told = async { while it.client.write_all(&block).await.is_ok() {} };
    within(told).await;
    until(|| !it.link.connections()[0].open).await;
}

#[tokio::test]
async fn nobody_behind_it_is_a_reset() {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let link = Link::open(address.to_string(), Stretch::NONE).await.unwrap();
    let mut client = TcpStream::connect(link.address()).await.unwrap();
    hear_it_break(&mut client).await;
}

#[tokio::test]
async fn it_refuses_new_connections_and_keeps_the_old() {
    let mut it = pair(stretch(1.0, 0.0, None)).await;
    for _ in 0..3 {
        it.link.refuse().await.unwrap();
        let error = TcpStream::connect(it.link.address()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        say(&mut it.client, "still here").await;
        hear(&mut it.server, "still here").await;

        it.link.restore().await.unwrap();
        let (mut client, mut server) = connected(&it.link, &it.listener).await;
        say(&mut client, "here again").await;
        hear(&mut server, "here again").await;
    }
    assert_eq!(it.link.counts().connections, 4);
}

#[tokio::test]
async fn it_resets_what_is_open_and_serves_what_comes() {
    // What is under way is lost, however far away.
    let mut it = pair(stretch(200.0, 0.0, None)).await;
    say(&mut it.client, "never heard").await;
    until(|| it.link.counts().bytes_forth == 11).await;
    it.link.reset();
    hear_it_break(&mut it.client).await;
    hear_it_break(&mut it.server).await;

    it.link.set_stretch(Stretch::NONE);
    let (mut client, mut server) = connected(&it.link, &it.listener).await;
    say(&mut client, "heard").await;
    hear(&mut server, "heard").await;
}

#[tokio::test]
async fn it_is_silent_and_then_speaks() {
    let mut it = pair(stretch(1.0, 0.0, None)).await;
    it.link.silence().await.unwrap();
    say(&mut it.client, "forth").await;
    say(&mut it.server, "back").await;
    hear_nothing(&mut it.server).await;
    hear_nothing(&mut it.client).await;
    // Nobody learns that nobody answers.
    let mut second = TcpStream::connect(it.link.address()).await.unwrap();
    say(&mut second, "hello").await;
    assert!(timeout(NOTHING_FOR, it.listener.accept()).await.is_err());

    it.link.restore().await.unwrap();
    hear(&mut it.server, "forth").await;
    hear(&mut it.client, "back").await;
    let (mut second_server, _) = within(it.listener.accept()).await.unwrap();
    hear(&mut second_server, "hello").await;
}

#[tokio::test]
async fn it_is_reset_out_of_silence() {
    let mut it = pair(stretch(1.0, 0.0, None)).await;
    it.link.silence().await.unwrap();
    say(&mut it.client, "never heard").await;
    hear_nothing(&mut it.server).await;
    it.link.reset();
    hear_it_break(&mut it.client).await;
    hear_it_break(&mut it.server).await;
}

#[tokio::test]
async fn the_distance_changes_while_it_is_open() {
    let mut it = pair(Stretch::NONE).await;
    say(&mut it.client, "near").await;
    hear(&mut it.server, "near").await;
    it.link.set_stretch(stretch(100.0, 0.0, None));
    let asked = Instant::now();
    say(&mut it.client, "far").await;
    // Nearer again, it does not overtake.
    until(|| it.link.counts().bytes_forth == 7).await;
    it.link.set_stretch(Stretch::NONE);
    say(&mut it.client, "near").await;
    hear(&mut it.server, "farnear").await;
    assert!(Duration::from_millis(50) <= asked.elapsed());
}

#[tokio::test]
async fn a_link_that_is_dropped_breaks_its_connections() {
    let mut it = pair(stretch(1.0, 0.0, None)).await;
    let address = it.link.address();
    drop(it.link);
    hear_it_break(&mut it.client).await;
    hear_it_break(&mut it.server).await;
    let refused = async { while TcpStream::connect(address).await.is_ok() {} };
    within(refused).await;
}

async fn until(mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    within(wait).await;
}

#[tokio::test]
async fn a_scripted_conversation_is_counted() {
    let mut it = pair(stretch(2.0, 0.5, None)).await;
    // A question in two pieces, which the server reads one by one, is one flight.
    say(&mut it.client, "sel").await;
    hear(&mut it.server, "sel").await;
    say(&mut it.client, "ect").await;
    hear(&mut it.server, "ect").await;
    say(&mut it.server, "row").await;
    say(&mut it.server, "row").await;
    hear(&mut it.client, "rowrow").await;
    let one = it.link.counts();
    let expected = Counts {
        connections: 1,
        bytes_forth: 6,
        bytes_back: 6,
        flights_forth: 1,
        flights_back: 1,
        round_trips: 1,
    };
    assert_eq!(one, expected);

    // Questions that do not wait for answers are one, though answers come before the last is there.
    it.link.set_stretch(stretch(100.0, 0.0, None));
    for _ in 0..3 {
        say(&mut it.client, "question").await;
        sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..3 {
        hear(&mut it.server, "question").await;
        say(&mut it.server, "answer").await;
    }
    for _ in 0..3 {
        hear(&mut it.client, "answer").await;
    }
    assert_eq!((it.link.counts() - one).round_trips, 1);

    // Another connection is counted by itself, and in the total.
    it.link.set_stretch(Stretch::NONE);
    let (mut client, mut server) = connected(&it.link, &it.listener).await;
    for _ in 0..4 {
        say(&mut client, "ask").await;
        hear(&mut server, "ask").await;
        say(&mut server, "answer").await;
        hear(&mut client, "answer").await;
    }
    let each: Vec<u64> =
        it.link.connections().iter().map(|connection| connection.counts.round_trips).collect();
    assert_eq!(each, [2, 4]);
    assert_eq!(it.link.counts().round_trips, 6);
    assert_eq!(it.link.counts().connections, 2);
}

/// Round trips and flights forth of what is done, on one connection.
async fn counted<T>(link: &Link, what: impl Future<Output = T>) -> (u64, u64) {
    let before = link.counts();
    within(what).await;
    let passed = link.counts() - before;
    (passed.round_trips, passed.flights_forth)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trips_of_postgresql_are_what_its_protocol_says() {
    let cluster = tokio::task::spawn_blocking(|| tutti_embed::Cluster::create_temp(1))
        .await
        .unwrap()
        .unwrap();
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, cluster.server(0).port()));
    let link = Link::open(server.to_string(), stretch(5.0, 0.5, Some(1_000.0))).await.unwrap();
    let url = client::url(link.address(), "postgres");

    // The startup packet and all that follows; the server trusts us.
    let session = within(client::connect(&url)).await.unwrap();
    assert_eq!(link.counts().round_trips, 1, "{:?}", link.counts());
    assert_eq!(link.counts().connections, 1);

    let begun = Instant::now();
    let simple = counted(&link, async { session.simple_query("SELECT 1").await.unwrap() }).await;
    assert_eq!(simple, (1, 1));
    assert!(Duration::from_millis(5) <= begun.elapsed());

    // However many statements a text has.
    let two = counted(&link, async { session.simple_query("SELECT 1; SELECT 2").await.unwrap() });
    assert_eq!(two.await, (1, 1));

    // Parse and Describe, then Bind and Execute again and again.
    let before = link.counts();
    let select = within(session.prepare("SELECT $1::int4 + 1")).await.unwrap();
    assert_eq!((link.counts() - before).round_trips, 1);
    for value in [1, 2, 3] {
        let query = async { session.query_one(&select, &[&value]).await.unwrap() };
        assert_eq!(counted(&link, query).await, (1, 1));
    }
    // Close; nobody waits for its answer, but it is one.
    let before = link.counts();
    drop(select);
    until(|| link.counts().round_trips == before.round_trips + 1).await;

    // BEGIN, an UPDATE and COMMIT, one by one: three. In one text: one.
    let transaction = async {
        for text in ["BEGIN", "CREATE TEMP TABLE t (i int)", "COMMIT"] {
            session.simple_query(text).await.unwrap();
        }
    };
    assert_eq!(counted(&link, transaction).await, (3, 3));
    let at_once = async { session.simple_query("BEGIN; TABLE t; COMMIT").await.unwrap() };
    assert_eq!(counted(&link, at_once).await, (1, 1));

    // Terminate is not answered.
    let before = link.counts();
    drop(session);
    until(|| !link.connections()[0].open).await;
    assert_eq!((link.counts() - before).round_trips, 0);
}

fn tutti_lab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tutti-lab"))
}

#[test]
fn the_program_measures_what_a_file_describes() {
    let dir = tempfile::tempdir().unwrap();
    let (profile, json) = (dir.path().join("two.toml"), dir.path().join("run.jsonl"));
    let text = "name = 'two'\nsource = 'a test'\nsites = ['a', 'b']\ninside = { rtt_ms = 0.5 }\n\
                [[between]]\nsites = ['a', 'b']\nrtt_ms = 3\nbandwidth_mbit = 50\n";
    std::fs::write(&profile, text).unwrap();
    let output = tutti_lab()
        .args(["distance", "--seconds", "1", "--profile"])
        .arg(&profile)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("two: a test"), "{printed}");
    let lines: Vec<Value> = std::fs::read_to_string(&json)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str, link: &str| {
        let mut found = lines.iter().filter(|line| line["kind"] == kind && line["link"] == link);
        found.next().unwrap_or_else(|| panic!("{kind} of {link}: {lines:?}"))
    };
    for (link, rtt_ms) in [("link without distance", 0.0), ("inside", 0.5), ("a - b", 3.0)] {
        let round_trips = of("round_trips", link);
        assert_eq!(round_trips["configured"]["rtt_ms"], rtt_ms);
        // A histogram keeps three digits.
        assert!(rtt_ms * 0.999 <= round_trips["measured"]["min_ms"].as_f64().unwrap());
        assert!(0.0 < of("bandwidth", link)["mbit"].as_f64().unwrap());
    }
    assert!(of("bandwidth", "a - b")["configured"]["bandwidth_mbit"] == 50.0);
}

#[test]
fn the_program_keeps_a_link_until_it_is_interrupted() {
    let server = net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = server.local_addr().unwrap().to_string();
    let mut program = tutti_lab()
        .args(["distance", "--listen", "0", "--to", &to, "--rtt-ms", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(program.stdout.take().unwrap());
    let mut said = String::new();
    printed.read_line(&mut said).unwrap();
    assert!(said.contains(&format!("leads to {to}, a round trip of 1 ms away")), "{said}");
    let address: SocketAddr = said.split(' ').next().unwrap().parse().unwrap();

    let mut client = net::TcpStream::connect(address).unwrap();
    let (mut served, _) = server.accept().unwrap();
    let mut heard = [0; 3];
    for _ in 0..2 {
        client.write_all(b"ask").unwrap();
        served.read_exact(&mut heard).unwrap();
        served.write_all(b"yes").unwrap();
        client.read_exact(&mut heard).unwrap();
    }
    kill(Pid::from_raw(program.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let mut summary = String::new();
    printed.read_to_string(&mut summary).unwrap();
    assert!(program.wait().unwrap().success(), "{summary}");
    let total = summary.lines().find(|line| line.starts_with(" all 1 ")).expect(&summary);
    let figures: Vec<&str> = total.split('|').skip(1).map(str::trim).collect();
    assert_eq!(figures, ["2", "2", "2", "6", "6"], "{summary}");
}
