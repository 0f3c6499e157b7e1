//! What is sent over a link to learn what it does: single bytes that come back, and many that do not.
//!
//! Owns: both servers and both clients. Never: knows what is between them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// As long as a short query and a short answer.
const MESSAGE: [u8; 32] = *b"as long as a short query or so..";
/// Round trips that are made before any is counted.
const WARM_UP: u32 = 3;
/// Significant digits of durations.
const DIGITS: u8 = 3;

const BLOCK: usize = 64 * 1024;
/// Which part of a measurement of bandwidth is left to get up to speed, as its divisor.
const SPEED_UP_PART: u32 = 4;

/// A server in this process that ends with its value.
#[derive(Debug)]
pub(super) struct Server {
    pub address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Sends back what it gets.
pub(super) async fn echo_server() -> anyhow::Result<Server> {
    let listener = listen().await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                client.set_nodelay(true)?;
                let mut message = MESSAGE;
                loop {
                    client.read_exact(&mut message).await?;
                    client.write_all(&message).await?;
                }
                #[expect(unreachable_code, reason = "it names the type of `?`")]
                std::io::Result::Ok(())
            });
        }
    });
    Ok(Server { address, serving })
}

/// Sends as much as goes, for as long as anybody reads.
pub(super) async fn pouring_server() -> anyhow::Result<Server> {
    let listener = listen().await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let block = vec![0; BLOCK];
                // Until the other side has gone.
                while client.write_all(&block).await.is_ok() {}
            });
        }
    });
    Ok(Server { address, serving })
}

async fn listen() -> anyhow::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on 127.0.0.1")
}

/// Round trips to the echo server that is reached at an address, in nanoseconds, one after another.
pub(super) async fn round_trips(at: SocketAddr, lasts: Duration) -> anyhow::Result<Histogram<u64>> {
    let mut server = TcpStream::connect(at).await.context("cannot reach the echo")?;
    server.set_nodelay(true)?;
    let mut taken_ns = Histogram::new(DIGITS)?;
    let mut answer = MESSAGE;
    let mut warmed_up = 0;
    let mut begun = Instant::now();
    // One at least, however far it is.
    while taken_ns.is_empty() || begun.elapsed() < lasts {
        let sent = Instant::now();
        server.write_all(&MESSAGE).await?;
        server.read_exact(&mut answer).await?;
        if warmed_up < WARM_UP {
            warmed_up += 1;
            begun = Instant::now();
        } else {
            taken_ns.record(u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX))?;
        }
    }
    Ok(taken_ns)
}

/// Megabits in a second that come from the pouring server that is reached at an address.
pub(super) async fn bandwidth_mbit(at: SocketAddr, lasts: Duration) -> anyhow::Result<f64> {
    let mut server = TcpStream::connect(at).await.context("cannot reach the source")?;
    let mut block = vec![0; BLOCK];
    // The first of them are on their way.
    server.read_exact(&mut block[..1]).await?;
    read_for(&mut server, &mut block, lasts / SPEED_UP_PART).await?;
    let begun = Instant::now();
    let read = read_for(&mut server, &mut block, lasts).await?;
    Ok(read as f64 * 8.0 / 1e6 / begun.elapsed().as_secs_f64())
}

/// Reads for a time; how many bytes there were.
async fn read_for(
    server: &mut TcpStream,
    block: &mut [u8],
    lasts: Duration,
) -> anyhow::Result<usize> {
    let begun = Instant::now();
    let mut read = 0;
    while let Some(left) = lasts.checked_sub(begun.elapsed()) {
        match timeout(left, server.read(block)).await {
            Ok(more) => read += more?,
            Err(_over) => break,
        }
    }
    Ok(read)
}
