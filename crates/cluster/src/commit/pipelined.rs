//! One pipelined connection to one node.
//!
//! Owns: which requests are outstanding, in order, and reopening after a break.
//! Never: sends a request twice: only the caller knows whether that is right.
//! Start reading at [`Driver::serve`].

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tutti_link::Endpoint;
use tutti_link::connection::{
    Durability, NodeConnection, NodeError, PartialAnswer, Progress, Rows, open_own,
};
use tutti_sql::catalog::NodeId;
use tutti_wire::frontend::put_query;

/// A connection with outstanding requests and no answer for so long is given up.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

type Answered = Result<Vec<Rows>, NodeError>;

/// A statement and where its answer goes.
#[derive(Debug)]
struct Request {
    sql: String,
    answer: oneshot::Sender<Answered>,
}

/// Handle for a connection's driver.
#[derive(Debug)]
pub(super) struct PipelinedConnection {
    node: NodeId,
    // Unbounded, but a session has at most one request per node.
    requests: mpsc::UnboundedSender<Request>,
    load: Arc<AtomicUsize>,
}

impl PipelinedConnection {
    /// Opened when there is something to send.
    pub(super) fn new(endpoint: Endpoint, name: &'static str, durability: Durability) -> Self {
        let (requests, incoming) = mpsc::unbounded_channel();
        let (node, load) = (endpoint.node(), Arc::new(AtomicUsize::new(0)));
        let driver = Driver {
            endpoint,
            name,
            durability,
            incoming,
            outstanding: VecDeque::new(),
            load: load.clone(),
        };
        // Ends by itself when the value is dropped.
        tokio::spawn(driver.run());
        Self { node, requests, load }
    }

    /// How many requests have no answer yet.
    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// See [`super::Finishers::run`].
    pub(super) async fn run(&self, sql: String) -> Answered {
        let (answer, answered) = oneshot::channel();
        self.load.fetch_add(1, Ordering::Relaxed);
        let gone = || NodeError::not_connected(self.node);
        self.requests.send(Request { sql, answer }).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Serves one connection's requests.
struct Driver {
    endpoint: Endpoint,
    name: &'static str,
    durability: Durability,
    incoming: mpsc::UnboundedReceiver<Request>,
    /// Sent and not yet answered, oldest first.
    outstanding: VecDeque<Request>,
    load: Arc<AtomicUsize>,
}

impl Driver {
    async fn run(mut self) {
        while let Some(first) = self.incoming.recv().await {
            match open_own(&self.endpoint, self.name, self.durability).await {
                Ok(mut connection) => {
                    self.outstanding.push_back(first);
                    if let Err(error) = self.serve(&mut connection).await {
                        tracing::warn!(node = %self.endpoint.node(), %error, "a finisher lost its connection");
                    }
                    connection.close();
                    while let Some(request) = self.outstanding.pop_front() {
                        let source = io::ErrorKind::ConnectionAborted.into();
                        self.answer(
                            request,
                            Err(NodeError::Lost { node: self.endpoint.node(), source }),
                        );
                    }
                }
                Err(error) => {
                    tracing::warn!(node = %self.endpoint.node(), %error, "a finisher cannot connect");
                    // Requests that came meanwhile must not each wait for an attempt of their own.
                    while let Ok(request) = self.incoming.try_recv() {
                        let source = io::ErrorKind::NotConnected.into();
                        self.answer(request, Err(NodeError::unreachable(&self.endpoint, source)));
                    }
                    self.answer(first, Err(error));
                }
            }
        }
    }

    /// Sends requests and hands out answers, until the connection breaks or no more requests can
    /// come. What is outstanding then has no answer.
    async fn serve(&mut self, connection: &mut NodeConnection) -> Result<(), NodeError> {
        for request in &self.outstanding {
            put_query(connection.outgoing(), &request.sql);
        }
        connection.flush().await?;
        let mut answer = PartialAnswer::default();
        let silence = tokio::time::sleep(ANSWER_PATIENCE);
        tokio::pin!(silence);
        loop {
            let frame = tokio::select! {
                frame = connection.next_frame() => frame?,
                request = self.incoming.recv() => {
                    let Some(request) = request else { return Ok(()) };
                    if self.outstanding.is_empty() {
                        silence.as_mut().reset(tokio::time::Instant::now() + ANSWER_PATIENCE);
                    }
                    self.put(request, connection);
                    while let Ok(request) = self.incoming.try_recv() {
                        self.put(request, connection);
                    }
                    connection.flush().await?;
                    continue;
                }
                () = &mut silence, if !self.outstanding.is_empty() => {
                    let source = io::ErrorKind::TimedOut.into();
                    return Err(NodeError::Lost { node: self.endpoint.node(), source });
                }
            };
            match answer.take(&frame)? {
                Progress::Going => (),
                Progress::Complete => {
                    silence.as_mut().reset(tokio::time::Instant::now() + ANSWER_PATIENCE);
                    let answered = answer.finish();
                    if let Some(request) = self.outstanding.pop_front() {
                        self.answer(request, answered);
                    }
                }
                // What it interrupted may have been executed.
                Progress::Fatal => return answer.finish().map(drop),
            }
        }
    }

    fn put(&mut self, request: Request, connection: &mut NodeConnection) {
        put_query(connection.outgoing(), &request.sql);
        self.outstanding.push_back(request);
    }

    fn answer(&self, request: Request, answered: Answered) {
        self.load.fetch_sub(1, Ordering::Relaxed);
        // The caller may be gone.
        let _ = request.answer.send(answered);
    }
}
