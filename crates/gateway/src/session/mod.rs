//! One client's session: its messages in, answers out.
//!
//! Owns: the loop over a client's messages, and the state of the protocol. What its statements run in is
//! [`TransactionContext`]'s.
//! Never: decides where a statement runs, or in which steps a commit proceeds.
//! Start reading at [`Session::run`]; `simple` and `extended` are the two protocols.

mod channels;
mod code_at_commit;
mod commit;
mod dispatch;
mod extended;
mod fast_control;
mod fast_path;
mod global_commit;
mod node_by_node;
mod planning;
mod prepared;
mod replicate_async;
mod requests;
mod return_links;
mod run_again;
mod settings;
mod simple;
mod sql_statements;

use std::sync::Arc;
use std::time::Duration;

use tutti_link::pool::link::StatementId;
use tutti_sql::catalog::NodeId;
use tutti_wire::backend::{put_authentication_ok, put_backend_key_data};
use tutti_wire::error_fields::ErrorFields;

use crate::client::failure::{Failure, as_fatal};
use crate::client::identity::ClientIdentity;
use crate::client::{Client, ClientError};
use crate::executor::Executor;
use crate::registry::Registry;
use crate::registry::activity::Activity;
use crate::transaction::{Mode, TransactionContext};

const IDLE_IN_TRANSACTION: &str = "terminating connection due to idle-in-transaction timeout";
const IDLE_SESSION: &str = "terminating connection due to idle-session timeout";

/// A client's session.
pub struct Session {
    /// What its statements run in.
    tx: TransactionContext,
    client: Client,
    pipeline: extended::Pipeline,
    next_statement: StatementId,
}

impl Session {
    /// What carries out plans for this session.
    fn executor(&mut self) -> Executor<'_> {
        Executor { tx: &mut self.tx, client: &mut self.client, exchanges: None }
    }

    /// Begins the session of a client that has logged in: opens node 1 (another, while it is away) as the client's role,
    /// and passes on the parameters that it reports. `startup`: settings of its startup packet, names and values. `renewal`: the
    /// pool's, from before the login. `None`: refused, and the client has been told.
    pub async fn open(
        registry: Arc<Registry>,
        client: Client,
        identity: ClientIdentity,
        startup: Vec<(String, String)>,
        renewal: u64,
    ) -> Result<Option<Self>, ClientError> {
        let stream = Arc::downgrade(client.stream());
        let (tx, secret) = TransactionContext::new(registry, identity, startup, renewal, stream);
        let pipeline = extended::Pipeline::default();
        let mut session = Self { tx, client, pipeline, next_statement: 0 };
        session.client.heed(session.tx.activity.stops());
        match session.greet(secret).await {
            Ok(()) => {
                session.return_links().await?;
                Ok(Some(session))
            }
            Err(Failure::Client(error)) => Err(error),
            Err(Failure::Statement(error)) => {
                session.client.put_error(&as_fatal(*error));
                session.client.flush().await?;
                Ok(None)
            }
        }
    }

    async fn greet(&mut self, secret: i32) -> Result<(), Failure> {
        let admitted = self.tx.registry.pool.admit_short(&self.tx.share).await;
        self.tx.permit = Some(admitted.map_err(|full| Failure::from(full.to_fields()))?);
        let speaker = self.tx.speaker();
        self.tx.link(speaker).await?;
        self.tx.refresh_scope().await?;
        let parameters = self.tx.link(speaker).await?.connection().parameters().to_vec();
        let process_id = self.tx.process_id;
        put_authentication_ok(self.client.out());
        for (name, value) in parameters {
            self.client.report(name, value);
        }
        self.client.put_reports();
        put_backend_key_data(self.client.out(), process_id, secret);
        self.client.put_ready(self.tx.transaction.status());
        Ok(())
    }

    /// Serves the client until it leaves.
    ///
    /// An idle session keeps the memory of this future, and there may be thousands: what is large or rare, and
    /// not on the fast path, is boxed (`Box::pin`) and freed when it is done.
    pub async fn run(&mut self) -> Result<(), ClientError> {
        loop {
            self.tx.end_if_misread();
            if self.is_at_rest() {
                self.tx.activity.plan.end();
                if !self.tx.transaction.is_open() {
                    self.tx.transaction.late_calls = None;
                }
                self.tx.inspect_links();
            }
            self.return_links().await?;
            self.tx.reading = None;
            self.tx.activity.end_message();
            if !self.wait_for_message().await? {
                break;
            }
            self.tx.activity.begin_message();
            if self.tx.hears_node_1_alone {
                self.listen_further().await;
            }
            if self.take_fast_path().await? {
                continue;
            }
            let Some(frame) = self.client.next_frame().await? else { break };
            match frame.tag() {
                b'Q' => Box::pin(self.simple_query(&frame)).await?,
                b'P' | b'B' | b'D' | b'E' | b'C' | b'H' | b'S' => {
                    Box::pin(self.extended_message(&frame)).await?;
                }
                b'X' => {
                    // A client that sends Terminate right after its requests still reads the
                    // answers.
                    self.client.flush().await?;
                    break;
                }
                // Left over from a COPY that failed: the protocol says to ignore them.
                b'd' | b'c' | b'f' => (),
                b'F' => Box::pin(self.function_call(&frame)).await?,
                tag => {
                    let message = format!("invalid frontend message type {tag}");
                    self.client.put_error(&ErrorFields::fatal("08P01", message));
                    self.client.flush().await?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits until the client's next message is there. False: the session is over, whichever side
    /// ended it.
    async fn wait_for_message(&mut self) -> Result<bool, ClientError> {
        let is_outside = self.tx.transaction.mode == Mode::None && self.is_at_rest();
        // What a flight has committed is not told of before its Sync: sent away before that, a client takes it for
        // undone.
        let may_drain = is_outside && !self.pipeline.has_begun();
        if let Some(why) = self.tx.ended_by.take() {
            return self.send_away(&why).await;
        }
        if (may_drain && self.tx.registry.drains(self.tx.number))
            || self.tx.activity.is_terminated()
        {
            return self.send_away(&self.tx.activity.farewell()).await;
        }
        if self.client.has_frame() {
            return Ok(true);
        }
        let idle = self.tx.settings.idle;
        let (timeout, sqlstate, why) = match self.tx.transaction.mode {
            Mode::Explicit => (idle.in_transaction, "25P03", IDLE_IN_TRANSACTION),
            Mode::None | Mode::Implicit => (idle.outside, "57P05", IDLE_SESSION),
        };
        loop {
            let waited = if !self.is_at_rest() {
                let activity = self.tx.activity.clone();
                Box::pin(wait(self.wait_for_client_or_answer(), &activity, timeout)).await
            } else if self.tx.listening {
                let activity = self.tx.activity.clone();
                Box::pin(wait(self.wait_for_client_or_notification(), &activity, timeout)).await
            } else {
                wait(self.client.wait_for_frame(), &self.tx.activity, timeout).await
            };
            match waited {
                Waited::Message(is_there) => return is_there,
                Waited::TooLong => return self.send_away(&ErrorFields::fatal(sqlstate, why)).await,
                Waited::LookUp => {
                    if is_outside && self.tx.hears_node_1_alone {
                        self.listen_further().await;
                    }
                    if let Some(why) = self.tx.ended_by.take() {
                        return self.send_away(&why).await;
                    }
                    if (may_drain && self.tx.registry.drains(self.tx.number))
                        || self.tx.activity.is_terminated()
                    {
                        return self.send_away(&self.tx.activity.farewell()).await;
                    }
                }
            }
        }
    }

    /// Tells the client that the session ends, and ends it.
    async fn send_away(&mut self, why: &ErrorFields) -> Result<bool, ClientError> {
        self.client.put_error(why);
        self.client.flush().await?;
        Ok(false)
    }

    /// Waits for the client's next message; passes on notifications meanwhile.
    async fn wait_for_client_or_notification(&mut self) -> Result<bool, ClientError> {
        loop {
            // What came while the gateway was asking something of its own, or after the last
            // answer.
            self.pass_notifications();
            self.client.flush().await?;
            // Answers that have not been read yet must not be taken for something else.
            let busy =
                self.tx.links.iter().find(|(_, link)| !link.is_quiet()).map(|(node, _)| *node);
            if let Some(node) = busy {
                let link = self.tx.links.get_mut(&node).expect("just found");
                if let Err(error) = link.come_to_rest().await {
                    tracing::debug!(%node, %error, "a node is gone while a client listens");
                    return self.end_listening(node).await;
                }
                continue;
            }
            let (node, frame) = tokio::select! {
                is_there = self.client.wait_for_frame() => return is_there,
                frame = self.tx.links.next_frame() => frame,
            };
            let Some(link) = self.tx.links.get_mut(&node) else { continue };
            match frame {
                Ok(frame) if frame.tag() == b'N' => {
                    self.client.out().extend_from_slice(frame.as_bytes());
                }
                Ok(frame) if frame.tag() == b'A' => {
                    link.put_notification(self.client.out(), &frame);
                }
                Ok(frame) if frame.tag() == b'E' => return self.end_listening(node).await,
                Ok(_) => (),
                Err(error) => {
                    tracing::debug!(%node, %error, "a node is gone while a client listens");
                    return self.end_listening(node).await;
                }
            }
        }
    }

    /// A connection that listened is lost: the client must know, for it may have missed something.
    async fn end_listening(&mut self, node: NodeId) -> Result<bool, ClientError> {
        self.tx.links.remove(&node);
        self.tx.end_if_bound(node);
        if let Some(why) = self.tx.ended_by.take() {
            self.client.put_error(&why);
        }
        self.client.flush().await?;
        Ok(false)
    }

    /// Notifications that came in answers to the gateway's own queries.
    fn pass_notifications(&mut self) {
        for link in self.tx.links.values_mut() {
            for frame in link.connection().take_notifications() {
                link.put_notification(self.client.out(), &frame);
            }
        }
    }

    fn next_statement_id(&mut self) -> StatementId {
        self.next_statement += 1;
        self.next_statement
    }
}

/// How waiting for a client's message ended.
enum Waited {
    /// The result of waiting for a message.
    Message(Result<bool, ClientError>),
    /// The session was asked to notice that the gateway's state has changed.
    LookUp,
    TooLong,
}

/// Waits for a message, and for anything else that may end the wait.
async fn wait(
    message: impl Future<Output = Result<bool, ClientError>>,
    activity: &Activity,
    timeout: Option<Duration>,
) -> Waited {
    let patience = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        is_there = message => Waited::Message(is_there),
        () = activity.asked_to_look_up() => Waited::LookUp,
        () = patience => Waited::TooLong,
    }
}
