//! Several gateways before the same nodes: any of them takes any client, one leads, and another takes its place when
//! it is killed, stopped, asked to end or cut off.
//!
//! Owns: what clients of each get meanwhile, what gateways must prove to each other, and how long it takes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use socket2::{Domain, Socket, Type};
use tutti_cluster::gateways::Said;
use tutti_embed::Cluster;
use tutti_link::net::between;
use tutti_link::net::no_authority::FINGERPRINT_LEN;
use tutti_link::net::stream::Stream;
use tutti_link::seals::Seals;
use tutti_sql::catalog::NodeId;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::{gateway, servers};
use tutti_wire::startup::{NONCE_LEN, put_cancel, put_forward_request, put_forwarded, put_startup};

use crate::kill9::count_prepared;
use crate::stops::until;

/// How long a gateway may say nothing to who breaks the protocol.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where the gateway that leads is reached.
const LEADER: &str = "SELECT address FROM tutti.gateway_there WHERE leads";
const SUM: &str = "SELECT sum(v) FROM t";

/// Two nodes with a table of twenty rows, whose values add up to 1000, and so many gateways; the first leads.
fn fleet(count: usize) -> Result<(Cluster, Vec<GatewayProcess>)> {
    let servers = servers::durable(2)?;
    process::init(&servers)?;
    let mut gateways = vec![GatewayProcess::start(&servers)?];
    Client::connect(&gateways[0].endpoint())?.query(
        "CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT n, 50 FROM generate_series(1, 20) AS n",
    )?;
    while gateways.len() < count {
        gateways.push(GatewayProcess::start(&servers)?);
    }
    Ok((servers, gateways))
}

fn ask(gateway: &Endpoint, sql: &str) -> Result<String> {
    Client::connect(gateway)?.value(sql)
}

/// Moves some from a row to those of all nodes.
fn transfer(client: &mut Client) -> Result<()> {
    client.query("BEGIN; UPDATE t SET v = v - 19 WHERE id = 1")?;
    client.query("UPDATE t SET v = v + 1 WHERE id > 1")?;
    client.query("COMMIT")?;
    Ok(())
}

/// The one that leads.
fn take_leader(servers: &Cluster, gateways: &mut Vec<GatewayProcess>) -> Result<GatewayProcess> {
    let address = ask(&servers::endpoint(servers, 0), LEADER)?;
    let leads = |it: &GatewayProcess| address.ends_with(&format!(":{}", it.endpoint().port));
    let index = gateways.iter().position(leads).context("none of them leads")?;
    Ok(gateways.remove(index))
}

fn is_listed(servers: &Cluster, states: &[&str]) -> Result<bool> {
    let config = gateway::config(servers, "127.0.0.1:0".to_owned());
    let status = tutti_gateway::runtime()?.block_on(tutti_gateway::status(&config))?;
    let found: Vec<_> =
        status.gateways.iter().map(|it| if it.leads { "leads" } else { "follows" }).collect();
    Ok(found == states)
}

#[test]
fn any_gateway_takes_any_client() -> Result<()> {
    let (servers, gateways) = fleet(3)?;
    let mut clients =
        gateways.iter().map(|it| Client::connect(&it.endpoint())).collect::<Result<Vec<_>>>()?;
    for client in &mut clients {
        transfer(client)?;
        ensure!(client.value(SUM)? == "1000");
    }
    // What one has defined, all know; and none sees half of a transaction.
    clients[1].query("CREATE TABLE u (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    clients[2].query("BEGIN; INSERT INTO u SELECT generate_series(1, 100)")?;
    ensure!(clients[0].value("SELECT count(*) FROM u")? == "0");
    clients[2].query("COMMIT")?;
    for client in &mut clients {
        ensure!(client.value("SELECT count(*) FROM u")? == "100");
    }
    // A session that came through one is cancelled through another.
    let (id, secret) = (clients[2].process_id, clients[2].secret);
    let sleeps = std::thread::spawn(move || {
        let slept = clients[2].simple("SELECT pg_sleep(60)", b"");
        (clients, slept)
    });
    let mut packet = BytesMut::new();
    put_cancel(&mut packet, id, secret);
    until("it is cancelled", || {
        TcpStream::connect(("127.0.0.1", gateways[1].endpoint().port))?.write_all(&packet)?;
        Ok(sleeps.is_finished())
    })?;
    let (mut clients, slept) = sleeps.join().ok().context("who sleeps panicked")?;
    ensure!(slept?.error().context("it was cancelled")?.sqlstate() == "57014");
    until("all are listed", || is_listed(&servers, &["leads", "follows", "follows"]))?;
    // A client that goes away takes its transaction with it, through whichever gateway it came.
    clients[2].query("BEGIN; UPDATE t SET v = 0 WHERE id = 1")?;
    clients.truncate(2);
    clients[1].query("SET statement_timeout = '20s'; UPDATE t SET v = v WHERE id = 1")?;
    ensure!(clients[0].value(SUM)? == "1000");
    Ok(())
}

/// Whoever leads is killed, stopped, or asked to end; each time the others go on within seconds, and what was left
/// half-way is settled. Prints how long it takes.
#[test]
fn another_takes_the_place_of_one_that_is_killed_stopped_or_asked_to_end() -> Result<()> {
    let (servers, mut gateways) = fleet(3)?;
    for way in ["SIGKILL", "SIGSTOP", "SIGTERM"] {
        let mut led = take_leader(&servers, &mut gateways)?;
        let mut inside = Client::connect(&gateways[0].endpoint())?;
        inside.query("BEGIN; UPDATE t SET v = v + 1000 WHERE id = 1")?;
        let begun = Instant::now();
        let left = match way {
            "SIGKILL" => {
                led.leave_unaudited("it is killed");
                led.kill9()?;
                None
            }
            "SIGSTOP" => {
                led.pause()?;
                Some(led)
            }
            _ => {
                // Transactions are waited for; this one is rolled back.
                drop(inside);
                led.terminate()?;
                Some(led)
            }
        };
        for gateway in &gateways {
            // A client that was passed on to one that is stopped waits until another leads.
            until("it answers", || {
                Ok(ask(&gateway.endpoint(), SUM).is_ok_and(|sum| sum == "1000"))
            })?;
        }
        println!("{way}: all others answer after {:.1} s", begun.elapsed().as_secs_f64());
        match left {
            None => gateways.push(GatewayProcess::start(&servers)?),
            Some(mut led) if way == "SIGTERM" => {
                until("it ends", || led.has_ended())?;
            }
            Some(led) => {
                led.resume()?;
                until("it passes clients on", || {
                    Ok(ask(&led.endpoint(), SUM).is_ok_and(|sum| sum == "1000"))
                })?;
                gateways.push(led);
            }
        }
        transfer(&mut Client::connect(&gateways[0].endpoint())?)?;
        for gateway in &gateways {
            ensure!(ask(&gateway.endpoint(), SUM)? == "1000", "{way}");
        }
        ensure!(count_prepared(&servers)? == 0, "{way}");
    }
    until("two are left", || is_listed(&servers, &["leads", "follows"]))?;
    Ok(())
}

/// Node 1 is restarted: nobody knows who leads, and the one that did goes on.
#[test]
fn the_one_that_leads_goes_on_when_node_1_was_away() -> Result<()> {
    let (mut servers, gateways) = fleet(2)?;
    let before = ask(&servers::endpoint(&servers, 0), LEADER)?;
    servers.server_mut(0).kill9()?;
    sleep(Duration::from_secs(1));
    servers.server_mut(0).start()?;
    for gateway in &gateways {
        until("it answers", || Ok(ask(&gateway.endpoint(), SUM).is_ok_and(|sum| sum == "1000")))?;
    }
    let mut node = Client::connect(&servers::endpoint(&servers, 0))?;
    until("it is listed", || Ok(node.value(LEADER).is_ok_and(|address| address == before)))?;
    Ok(())
}

/// Node 1 fails just when others would take the lead: they try again, and are there when it is back.
#[test]
fn whoever_cannot_take_the_lead_goes_on_following() -> Result<()> {
    let (mut servers, mut gateways) = fleet(3)?;
    for delay_ms in [250, 350, 500] {
        let mut led = take_leader(&servers, &mut gateways)?;
        led.leave_unaudited("it is killed");
        led.kill9()?;
        sleep(Duration::from_millis(delay_ms));
        servers.server_mut(0).kill9()?;
        sleep(Duration::from_secs(2));
        servers.server_mut(0).start()?;
        for gateway in &mut gateways {
            let at = gateway.endpoint();
            until("it answers", || Ok(ask(&at, SUM).is_ok_and(|sum| sum == "1000")))?;
            ensure!(!gateway.has_ended()?, "{delay_ms} ms");
        }
        gateways.push(GatewayProcess::start(&servers)?);
    }
    Ok(())
}

/// An address that leads back to a gateway that follows is no gateway that leads: a client is not passed on in a circle.
#[test]
fn nobody_passes_on_what_was_passed_on_already() -> Result<()> {
    let (servers, gateways) = fleet(2)?;
    let mut node = Client::connect(&servers::endpoint(&servers, 0))?;
    let right = node.value(LEADER)?;
    let follows = gateways[1].endpoint().port;
    let set = |to: &str| format!("UPDATE tutti.gateway_there SET address = '{to}' WHERE leads");
    node.query(&set(&format!("127.0.0.1:{follows}")))?;
    sleep(Duration::from_secs(1));
    let mut startup = BytesMut::new();
    put_startup(&mut startup, &[("user", "postgres"), ("database", "postgres")]);
    let mut client = TcpStream::connect(("127.0.0.1", follows))?;
    client.write_all(&startup)?;
    client.set_read_timeout(Some(Duration::from_secs(2)))?;
    ensure!(client.read(&mut [0; 1]).is_err(), "somebody answered");
    let files = gateways[1].open_files()?;
    ensure!(files < 60, "it has {files} files open for one client");
    drop(client);
    node.query(&set(&right))?;
    until("it answers", || Ok(ask(&gateways[1].endpoint(), SUM).is_ok_and(|sum| sum == "1000")))?;
    Ok(())
}

/// Asked to end, one that follows lets nobody in, and waits for those that it has.
#[test]
fn a_follower_that_is_asked_to_end_lets_nobody_in() -> Result<()> {
    let (_servers, mut gateways) = fleet(2)?;
    let mut last = gateways.remove(1);
    let mut inside = Client::connect(&last.endpoint())?;
    inside.query("BEGIN; UPDATE t SET v = v + 5 WHERE id = 1")?;
    last.terminate()?;
    until("it does not listen", || {
        Ok(TcpStream::connect(("127.0.0.1", last.endpoint().port)).is_err())
    })?;
    inside.query("UPDATE t SET v = v - 5 WHERE id = 1; COMMIT")?;
    drop(inside);
    until("it ends", || last.has_ended())?;
    ensure!(ask(&gateways[0].endpoint(), SUM)? == "1000");
    Ok(())
}

/// Where a client comes from decides which rule it meets; so only a gateway of the cluster may say it of another's.
#[test]
fn only_a_gateway_of_the_cluster_says_where_a_client_comes_from() -> Result<()> {
    let (servers, gateways) = fleet(2)?;
    let mut node = Client::connect(&servers::endpoint(&servers, 0))?;
    let secret = node.value("SELECT encode(secret, 'hex') FROM tutti.secret")?;
    let identity: u64 =
        node.value("SELECT identity FROM tutti.gateway_there WHERE leads")?.parse()?;
    let right = Seals::default();
    right.learn(NodeId::HOME, secret);
    let wrong = Seals::default();
    wrong.learn(NodeId::HOME, "00".repeat(32));
    let at = gateways[0].endpoint().port;
    // By the rules, clients of this machine are let in, and nobody else.
    ensure!(introduced(at, &right, identity, "127.0.0.1:5000")? == b'R');
    ensure!(introduced(at, &right, identity, "[::1]:5000")? == b'R');
    ensure!(introduced(at, &right, identity, "203.0.113.9:5000")? == b'E');
    for (seals, identity, address) in [
        (&wrong, identity, "127.0.0.1:5000"),
        (&right, identity + 1, "127.0.0.1:5000"),
        (&right, identity, "nowhere"),
    ] {
        let said = introduced(at, seals, identity, address);
        ensure!(said.is_err(), "{address} of {identity} was taken: {said:?}");
    }
    // Without having been asked for, twice, or as a client's own.
    let mut packet = BytesMut::new();
    put_forwarded(&mut packet, &[0; NONCE_LEN], "127.0.0.1:5000");
    let mut twice = BytesMut::new();
    put_forward_request(&mut twice, &[0; NONCE_LEN]);
    put_forward_request(&mut twice, &[0; NONCE_LEN]);
    for (packet, answered) in [(&packet, 0), (&twice, 3 * NONCE_LEN)] {
        for gateway in &gateways {
            let mut stream = TcpStream::connect(("127.0.0.1", gateway.endpoint().port))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(packet)?;
            let mut said = Vec::new();
            let ended = stream.read_to_end(&mut said);
            // Its end, with or without what was not read; but no silence.
            let has_ended = match &ended {
                Ok(_) => true,
                Err(error) => error.kind() == ErrorKind::ConnectionReset,
            };
            ensure!(has_ended && said.len() <= answered + 200, "{ended:?} {said:?}");
            ensure!(!said.contains(&b'W') || said.len() != 1, "{said:?}");
        }
    }
    // And all that has harmed nobody.
    ensure!(ask(&gateways[1].endpoint(), SUM)? == "1000");
    Ok(())
}

/// The first byte that a client is told which a gateway passes on that has this secret.
fn introduced(port: u16, seals: &Seals, identity: u64, address: &str) -> Result<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (nonce, mut out) = ([7; NONCE_LEN], BytesMut::new());
    put_forward_request(&mut out, &nonce);
    stream.write_all(&out.split())?;
    let (mut own, mut fingerprint) = ([0; NONCE_LEN], [0; FINGERPRINT_LEN]);
    let mut proof = [0; NONCE_LEN];
    for part in [&mut own, &mut fingerprint, &mut proof] {
        stream.read_exact(part)?;
    }
    let (numbers, identity) = ([&nonce[..], &own[..]], identity.to_be_bytes());
    let is_meant = seals.is_proven(&Said::Leads.parts(numbers, &identity, &fingerprint), &proof);
    // Whoever answers: it sends on what it has, as an attacker would.
    let parts = Said::Forwards.parts(numbers, &identity, address.as_bytes());
    put_forwarded(&mut out, &seals.proof(&parts).context("it has a secret")?, address);
    stream.set_nonblocking(true)?;
    let conversation = async {
        let stream = Stream::Plain(Arc::new(tokio::net::TcpStream::from_std(stream)?));
        let mut stream = between::connect(stream, fingerprint).await?;
        stream.write_all(&mut out).await?;
        match next_byte(&mut stream).await {
            Ok(None) => bail!("refused"),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => bail!("refused"),
            Ok(Some(b'E')) => bail!("refused, and told so"),
            said => ensure!(matches!(said, Ok(Some(b'W'))), "{said:?}"),
        }
        if !is_meant {
            // Taken by one that it did not mean.
            return Ok(b'W');
        }
        put_startup(&mut out, &[("user", "postgres"), ("database", "postgres")]);
        stream.write_all(&mut out).await?;
        next_byte(&mut stream).await?.context("it has ended")
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(PATIENCE, conversation).await? })
}

/// The next byte; what has come with it is not looked at.
async fn next_byte(stream: &mut Stream) -> std::io::Result<Option<u8>> {
    let first = stream.first_byte().await?;
    stream.try_read(&mut BytesMut::new(), 4096)?;
    Ok(first)
}

/// What is read of a connection, and written to another, while both last.
fn copied(mut from: TcpStream, mut to: TcpStream, change: fn(&mut [u8], usize)) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..len];
        change(bytes, all.len());
        all.extend_from_slice(bytes);
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    _ = to.shutdown(std::net::Shutdown::Write);
    all
}

/// Connections to `to`, and what passes over each, both ways, once it has ended.
fn overheard(to: u16, change: fn(&mut [u8], usize)) -> Result<(u16, Receiver<Vec<u8>>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let (tell, heard) = channel();
    spawn(move || {
        for client in listener.incoming() {
            let server = TcpStream::connect(("127.0.0.1", to));
            let (Ok(client), Ok(server)) = (client, server) else { return };
            let (Ok(from), Ok(back)) = (client.try_clone(), server.try_clone()) else { return };
            let tell = tell.clone();
            spawn(move || {
                let there = spawn(move || copied(from, server, |_, _| ()));
                let mut all = copied(back, client, change);
                all.extend(there.join().unwrap_or_default());
                _ = tell.send(all);
            });
        }
    });
    Ok((port, heard))
}

/// Whoever listens between two gateways learns nothing of a client, and one that puts itself in between is not served.
#[test]
fn what_passes_between_gateways_is_encrypted() -> Result<()> {
    let (servers, gateways) = fleet(2)?;
    let mut node = Client::connect(&servers::endpoint(&servers, 0))?;
    let right = node.value(LEADER)?;
    let leads = right.rsplit_once(':').context("it has a port")?.1.parse()?;
    let set = |to: &str| format!("UPDATE tutti.gateway_there SET address = '{to}' WHERE leads");
    let (port, heard) = overheard(leads, |_, _| ())?;
    node.query(&set(&format!("127.0.0.1:{port}")))?;
    sleep(Duration::from_secs(1));
    let marked = "SELECT repeat('a mark', 3) || 'a mark'";
    let mut client = Client::connect(&gateways[1].endpoint())?;
    ensure!(client.value(marked)? == "a marka marka marka mark");
    drop(client);
    let heard = heard.recv_timeout(PATIENCE)?;
    ensure!(2_000 < heard.len(), "only {} bytes have passed", heard.len());
    for word in ["a mark", "postgres", "server_version"] {
        let is_there = heard.windows(word.len()).any(|it| it == word.as_bytes());
        ensure!(!is_there, "{word} was heard");
    }
    // Of another certificate nothing is proven.
    let (port, _) = overheard(leads, |bytes, at| {
        if let Some(byte) = (NONCE_LEN + 1).checked_sub(at).and_then(|at| bytes.get_mut(at)) {
            *byte ^= 1;
        }
    })?;
    node.query(&set(&format!("127.0.0.1:{port}")))?;
    sleep(Duration::from_secs(1));
    let mut stream = TcpStream::connect(("127.0.0.1", gateways[1].endpoint().port))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut startup = BytesMut::new();
    put_startup(&mut startup, &[("user", "postgres"), ("database", "postgres")]);
    stream.write_all(&startup)?;
    ensure!(stream.read(&mut [0; 1]).is_err(), "somebody answered");
    drop(stream);
    node.query(&set(&right))?;
    until("it answers", || Ok(ask(&gateways[1].endpoint(), SUM).is_ok_and(|sum| sum == "1000")))?;
    Ok(())
}

/// A transaction that is open when the one that leads is asked to end keeps nobody else waiting, and can be committed.
#[test]
fn whoever_ends_serves_until_it_is_over() -> Result<()> {
    let (servers, mut gateways) = fleet(3)?;
    let mut leader = take_leader(&servers, &mut gateways)?;
    let mut open = Client::connect(&leader.endpoint())?;
    open.query("BEGIN; UPDATE t SET v = v - 1 WHERE id = 1")?;
    let mut idle = Client::connect(&gateways[0].endpoint())?;
    ensure!(idle.value(SUM)? == "1000");
    leader.terminate()?;
    until("idle sessions end", || Ok(idle.value(SUM).is_err()))?;
    let refused = Client::connect(&leader.endpoint()).err().context("it lets clients in")?;
    ensure!(format!("{refused:#}").contains("57P03"), "{refused:#}");
    let mut through = Client::connect(&gateways[0].endpoint())?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        for gateway in &gateways {
            ensure!(ask(&gateway.endpoint(), SUM)? == "1000");
        }
        through.query("BEGIN; UPDATE t SET v = v + 1 WHERE id = 20")?;
        through.query("UPDATE t SET v = v - 1 WHERE id = 3; COMMIT")?;
    }
    ensure!(!leader.has_ended()?, "it does not wait for the transaction");
    open.query("UPDATE t SET v = v + 1 WHERE id = 2; COMMIT")?;
    until("it ends", || leader.has_ended())?;
    until(
        "another leads",
        || Ok(ask(&gateways[1].endpoint(), SUM).is_ok_and(|sum| sum == "1000")),
    )?;
    let moved = "SELECT v FROM t WHERE id = 20";
    ensure!(ask(&gateways[0].endpoint(), moved)?.parse::<i64>()? > 50);
    Ok(())
}

/// Connections that say nothing, or half of what they should, take no room from others, through whichever gateway.
#[test]
fn who_floods_one_that_follows_is_counted_there() -> Result<()> {
    let servers = servers::durable(2)?;
    let mut config = gateway::config(&servers, "127.0.0.1:0".to_owned());
    config.limits.max_handshakes_per_address = 6;
    process::init_configured(&config)?;
    let leader = GatewayProcess::start_configured(config.clone(), &[])?;
    ensure!(ask(&leader.endpoint(), "SELECT 1")? == "1");
    let follower = GatewayProcess::start_configured(config, &[])?;
    let at = follower.endpoint();
    ensure!(ask(&at, "SELECT 2")? == "2");
    let from_elsewhere = |first: &[u8]| -> Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into())?;
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], at.port)).into())?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(first)?;
        Ok(stream)
    };
    let told = |stream: &mut TcpStream| -> Result<String> {
        let mut said = Vec::new();
        stream.read_to_end(&mut said)?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    };
    let silent = (0..6).map(|_| from_elsewhere(b"")).collect::<Result<Vec<_>>>()?;
    let refused = told(&mut from_elsewhere(b"")?)?;
    ensure!(refused.contains("53300"), "{refused}");
    ensure!(ask(&at, "SELECT 3")? == "3");
    drop(silent);
    // Half of a startup packet is the leading gateway's to wait for; it is told by whom.
    let half = [0, 0, 0, 80, 0, 3, 0, 0];
    let mut waiting = Vec::new();
    until("one of them is refused", || {
        let mut next = from_elsewhere(&half)?;
        next.set_read_timeout(Some(Duration::from_millis(500)))?;
        let said = told(&mut next);
        waiting.push(next);
        Ok(6 < waiting.len() && said.is_ok_and(|said| said.contains("53300")))
    })?;
    // Who asks for TLS first, as libpq does, is told in the end: an error in place of the answer to that is shown by none.
    let mut secret = from_elsewhere(&[0, 0, 0, 8, 4, 210, 22, 47])?;
    let mut answer = [0; 1];
    secret.read_exact(&mut answer)?;
    ensure!(answer == *b"N", "{answer:?}");
    let mut startup = BytesMut::new();
    put_startup(&mut startup, &[("user", "postgres"), ("database", "postgres")]);
    secret.write_all(&startup)?;
    let refused = told(&mut secret)?;
    ensure!(refused.starts_with('E') && refused.contains("53300"), "{refused}");
    drop(waiting);
    ensure!(ask(&at, "SELECT 4")? == "4" && ask(&leader.endpoint(), "SELECT 5")? == "5");
    // The leading gateway turns others away before it knows that they are gateways: their clients are told so at once.
    let address = ("127.0.0.1", leader.endpoint().port);
    let knocking = (0..6).map(|_| TcpStream::connect(address)).collect::<Result<Vec<_>, _>>()?;
    let refused = told(&mut from_elsewhere(&startup)?)?;
    ensure!(refused.contains("53300"), "{refused}");
    drop(knocking);
    ensure!(ask(&at, "SELECT 6")? == "6");
    Ok(())
}
