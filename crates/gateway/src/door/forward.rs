//! Passing clients on to the gateway that leads.
//!
//! Owns: the bytes of a client between its socket and the leading gateway, and what the two gateways prove to each
//! other before the first of them ([`receive`] is the leading one's side), which TLS between them rests on.
//! Never: reads what a client says: cancel requests, TLS and logins are the leading gateway's.
//! Start reading at [`Forwarder::pass_on`]. The reasons: docs/protocol/many-gateways.md.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tutti_cluster::gateways::{Leader, Said};
use tutti_link::net::no_authority::FINGERPRINT_LEN;
use tutti_link::net::stream::{Stream, keep_alive};
use tutti_link::net::{between, random};
use tutti_link::seals::{PROOF_LEN, Seals};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::WireError;
use tutti_wire::startup::{
    NONCE_LEN, Startup, is_encryption_request, is_forward_request, packet_len, put_forward_request,
    put_forwarded,
};

use crate::client::gate::{Gate, HandshakeSlot, too_many_handshakes};
use crate::client::{Client, ClientError};

/// So many bytes the leading gateway answers: its number used once, of its certificate the fingerprint, its proof.
const ANSWER_LEN: usize = NONCE_LEN + FINGERPRINT_LEN + PROOF_LEN;
/// So many bytes a connection begins with at least: the length of a packet, and what it is.
const FIRST_LEN: usize = 8;
/// The last byte that the leading gateway says of its own: it takes the client …
const WELCOME: u8 = b'W';
/// … or has too many that log in.
const TOO_MANY: u8 = b'T';
/// How long the leading gateway may take to be reached, and to answer.
const REACH_PATIENCE: Duration = Duration::from_secs(3);
/// How long the rest of a startup packet is waited for that is not looked at.
const REST_PATIENCE: Duration = Duration::from_millis(300);
/// So many bytes are carried at a time, about.
const CARRIED_BYTES: usize = 64 * 1024;
/// Until the leading gateway is tried again; each time twice as long, up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// What one that follows knows, for all of its clients.
#[derive(Debug)]
pub(super) struct Forwarder {
    /// Who leads, as far as is known.
    pub(super) leader: watch::Receiver<Option<Leader>>,
    /// By which gateways prove themselves.
    pub(super) seals: Arc<Seals>,
    pub(super) gate: Arc<Gate>,
}

impl Forwarder {
    /// One client, until it or the leading gateway ends, or another one leads. While nobody leads it waits, as long
    /// as it may take to log in. A gateway is none: nobody passes on what was passed on already.
    ///
    /// `knocking`: until the leading gateway has it, it counts among those that have not logged in.
    pub(super) async fn pass_on(
        self: Arc<Self>,
        mut client: TcpStream,
        peer: SocketAddr,
        knocking: HandshakeSlot,
    ) {
        let prepared = client.set_nodelay(true);
        keep_alive(&client, self.gate.keepalive());
        let mut known = self.leader.clone();
        let mut first = [0; FIRST_LEN];
        let deadline = Instant::now() + self.gate.patience();
        // What it wants is not known, or it is a gateway.
        match timeout_at(deadline, client.read_exact(&mut first)).await {
            Ok(Ok(_)) if !is_forward_request(&first) => (),
            _ => return,
        }
        let reached = tokio::select! {
            reached = self.reach(&mut known, peer, deadline) => reached,
            () = is_gone(&client) => return,
        };
        // The leading gateway counts it from here on, if it has taken it.
        drop(knocking);
        let (leader, mut stream) = match reached {
            Ok(reached) => reached,
            Err(unreached) => {
                _ = timeout(REACH_PATIENCE, unreached.tell(client, first)).await;
                return;
            }
        };
        let mut client = Stream::Plain(Arc::new(client));
        let replaced = async {
            let other = |now: &Option<Leader>| {
                now.as_ref().is_some_and(|now| now.identity != leader.identity)
            };
            if known.wait_for(other).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let ended = tokio::select! {
            carried = carry(&mut client, &mut stream, &first) => carried,
            () = replaced => Err(ErrorKind::ConnectionAborted.into()),
        };
        if let Err(error) = prepared.and(ended) {
            tracing::debug!(%peer, %error, "a client that was passed on has ended");
        }
    }

    /// A connection to the gateway that leads, over which the client goes on.
    async fn reach(
        &self,
        known: &mut watch::Receiver<Option<Leader>>,
        peer: SocketAddr,
        deadline: Instant,
    ) -> Result<(Leader, Stream), Unreached> {
        let mut pause = RETRY;
        loop {
            let now = timeout_at(deadline, known.wait_for(Option::is_some)).await;
            let leader = now.ok().and_then(Result::ok).and_then(|leader| leader.clone());
            let leader = leader.ok_or(Unreached::NobodyLeads)?;
            match timeout(REACH_PATIENCE, self.introduce(&leader, peer)).await {
                Ok(Ok(Some(stream))) => return Ok((leader, stream)),
                Ok(Ok(None)) => return Err(Unreached::TooMany),
                Ok(Err(error)) => {
                    tracing::debug!(%error, leader = leader.address, "cannot reach the gateway that leads");
                }
                Err(_) => tracing::debug!(
                    leader = leader.address,
                    "the gateway that leads does not answer"
                ),
            }
            if deadline < Instant::now() {
                return Err(Unreached::NobodyLeads);
            }
            // It has just begun, or ended.
            tokio::select! {
                () = sleep(pause) => pause = (pause * 2).min(RETRY_MAX),
                _ = known.changed() => (),
            }
        }
    }

    /// Both prove that they are of the same cluster, and that the one is whom node 1 has named; what comes next is
    /// encrypted for it alone. `None`: too many are logging in there, or too many of them from where this one comes.
    async fn introduce(&self, leader: &Leader, peer: SocketAddr) -> io::Result<Option<Stream>> {
        let mut stream = TcpStream::connect(&leader.address).await?;
        stream.set_nodelay(true)?;
        keep_alive(&stream, self.gate.keepalive());
        let nonce: [u8; NONCE_LEN] = random();
        let mut out = BytesMut::new();
        put_forward_request(&mut out, &nonce);
        stream.write_all(&out.split()).await?;
        let mut answer = Vec::with_capacity(ANSWER_LEN);
        let read = (&mut stream).take(ANSWER_LEN as u64).read_to_end(&mut answer).await;
        if is_too_many(&answer) {
            return Ok(None);
        }
        if answer.len() < ANSWER_LEN {
            return Err(read.err().unwrap_or(ErrorKind::UnexpectedEof.into()));
        }
        let (its_nonce, rest) = answer.split_at(NONCE_LEN);
        let (fingerprint, proof) = rest.split_at(FINGERPRINT_LEN);
        let fingerprint: [u8; FINGERPRINT_LEN] =
            fingerprint.try_into().map_err(io::Error::other)?;
        let numbers = [&nonce[..], its_nonce];
        let identity = leader.identity.to_be_bytes();
        if !self.seals.is_proven(&Said::Leads.parts(numbers, &identity, &fingerprint), proof) {
            return Err(io::Error::other("what answers there is not the gateway that leads"));
        }
        let mut stream = between::connect(Stream::Plain(Arc::new(stream)), fingerprint).await?;
        let address = peer.to_string();
        let parts = Said::Forwards.parts(numbers, &identity, address.as_bytes());
        let proof = self.seals.proof(&parts).ok_or(ErrorKind::Other)?;
        put_forwarded(&mut out, &proof, &address);
        stream.write_all(&mut out).await?;
        // It says nothing else before the client has.
        let mut said = BytesMut::new();
        while said.is_empty() {
            stream.readable().await?;
            if receive_from(&mut stream, &mut said)? {
                break;
            }
        }
        match said[..] {
            [WELCOME] => Ok(Some(stream)),
            [TOO_MANY] => Ok(None),
            _ => Err(ErrorKind::ConnectionRefused.into()),
        }
    }
}

/// Whether a gateway has answered that it lets nobody in because too many are logging in: before it knew who knocks.
fn is_too_many(answer: &[u8]) -> bool {
    let mut refusal = BytesMut::new();
    too_many_handshakes().put(&mut refusal, b'E');
    answer == &refusal[..refusal.len().min(ANSWER_LEN)]
}

/// Reads what has arrived; true at the end.
fn receive_from(stream: &mut Stream, into: &mut BytesMut) -> io::Result<bool> {
    match stream.try_read(into, CARRIED_BYTES) {
        Ok(len) => Ok(len == 0),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Carries bytes both ways, of the client's first those that were read already, until the leader ends. What is read of one
/// side waits for the other.
async fn carry(client: &mut Stream, leader: &mut Stream, first: &[u8]) -> io::Result<()> {
    let (mut up, mut down) = (BytesMut::from(first), BytesMut::new());
    let (mut has_client_ended, mut is_leader_told) = (false, false);
    loop {
        leader.write_at_once(&mut up)?;
        client.write_at_once(&mut down)?;
        // A client that has ended may wait for what the leader has still to say.
        let sent = match up.is_empty() && has_client_ended && !is_leader_told {
            true => leader.try_end().map(|()| is_leader_told = true),
            false => leader.try_flush(),
        };
        sent.or_else(|error| match error.kind() {
            ErrorKind::WouldBlock => Ok(()),
            _ => Err(error),
        })?;
        let (up_is_due, down_is_due) = (!up.is_empty() || leader.holds_output(), !down.is_empty());
        tokio::select! {
            readable = client.readable(), if !up_is_due && !has_client_ended => {
                readable?;
                has_client_ended = receive_from(client, &mut up)?;
            }
            readable = leader.readable(), if !down_is_due => {
                readable?;
                if receive_from(leader, &mut down)? {
                    return client.write_all(&mut down).await;
                }
            }
            writable = leader.writable(), if up_is_due => writable?,
            writable = client.writable(), if down_is_due => writable?,
        }
    }
}

/// Returns when a client has ended its connection, if it has sent nothing else meanwhile.
async fn is_gone(client: &TcpStream) {
    if !matches!(client.peek(&mut [0; 1]).await, Ok(0) | Err(_)) {
        std::future::pending::<()>().await;
    }
}

/// Why a client does not come to the gateway that leads.
#[derive(Clone, Copy, Debug)]
enum Unreached {
    /// There is none that can be reached.
    NobodyLeads,
    /// Too many are logging in there.
    TooMany,
}

impl Unreached {
    /// Tells the client, whose connection begins with `first`, when it has said all of its startup packet: before that,
    /// libpq takes an error for the server's not knowing TLS, and does not show it. Whether it learns why does not
    /// matter.
    async fn tell(self, mut client: TcpStream, mut first: [u8; FIRST_LEN]) -> io::Result<()> {
        let error = match self {
            Self::NobodyLeads => {
                tracing::warn!("a client is turned away: no gateway that leads can be reached");
                let message = "the cluster has no gateway that leads at the moment";
                ErrorFields::fatal("57P03", message).with(
                    b'H',
                    "Connect again: another one takes the lead in a few seconds, where node 1 can be reached.",
                )
            }
            Self::TooMany => too_many_handshakes(),
        };
        // GSS, then TLS, then neither.
        for _ in 0..2 {
            if is_encryption_request(&first) {
                client.write_all(b"N").await?;
                client.read_exact(&mut first).await?;
            }
        }
        if let Ok(Some(len)) = packet_len(&first) {
            // What is not read when the connection ends may take the error with it.
            let mut rest = vec![0; len - FIRST_LEN];
            _ = timeout(REST_PATIENCE, client.read_exact(&mut rest)).await;
        }
        let mut refusal = BytesMut::new();
        error.put(&mut refusal, b'E');
        client.write_all(&refusal).await
    }
}

/// The leading gateway's side: another one has a client for it. When this returns, what is read next is the client's,
/// which is then known by its own address.
///
/// Errors: the other one is no gateway of this cluster, or means another one; there are too many clients from there.
pub(super) async fn receive(
    client: &mut Client,
    seals: &Seals,
    incarnation: u64,
    nonce: Bytes,
) -> Result<(), ClientError> {
    let own: [u8; NONCE_LEN] = random();
    let numbers = [&nonce[..], &own[..]];
    let identity = incarnation.to_be_bytes();
    let fingerprint = *client.gate().between.fingerprint();
    let proof = seals.proof(&Said::Leads.parts(numbers, &identity, &fingerprint));
    let proof = proof.ok_or(ClientError::Lost(ErrorKind::NotConnected.into()))?;
    client.answer_at_once(&[&own[..], &fingerprint[..], &proof[..]].concat()).await?;
    client.encrypt_between().await?;
    let Some(Startup::Forwarded { proof, address }) = client.startup().await? else {
        return Err(WireError::Malformed.into());
    };
    let is_proven =
        seals.is_proven(&Said::Forwards.parts(numbers, &identity, address.as_bytes()), &proof);
    let peer = address.parse().ok().filter(|_| is_proven && !client.has_read_on());
    let peer: SocketAddr = peer.ok_or(WireError::Malformed)?;
    if !client.comes_from(peer) {
        client.answer_at_once(&[TOO_MANY]).await?;
        return Err(ClientError::SentAway);
    }
    client.answer_at_once(&[WELCOME]).await
}
