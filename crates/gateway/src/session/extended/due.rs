//! What is due to the client for messages that went to a node, in the order of its answers.
//!
//! Owns: the kinds of answers, how what was noted for them is undone, and what is kept of the messages.
//! Never: reads or writes one (see `pipeline`).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use tutti_cluster::authority::serializable_in_progress::InProgress;
use tutti_link::pool::link::StatementId;
use tutti_sql::catalog::NodeId;
use tutti_wire::frame::Frame;

use crate::transaction::named::PreparedStatement;

/// An answer that is due to the client.
#[derive(Debug)]
pub(super) enum Expect {
    /// ParseComplete of this statement for the client, and its number if it has a name.
    Parse(String, Option<u64>),
    /// ParseComplete that the client does not know of.
    SilentParse(Option<u64>),
    /// CloseComplete that the client does not know of.
    SilentClose,
    /// BindComplete.
    Bind,
    /// BindComplete that the client does not know of.
    SilentBind,
    /// ParameterDescription and RowDescription or NoData; kept for the statement.
    DescribeStatement { name: String, id: StatementId },
    /// RowDescription or NoData.
    DescribePortal,
    /// The same of this portal, for the gateway itself.
    SilentDescribePortal(String),
    /// Rows and what ends them; the portal, if its rows say numbers ([`Pipeline::numbered`]).
    Execute(Option<String>),
    /// The same of a statement of the gateway's own.
    SilentExecute,
    /// An answer of the gateway's own that is sent when its turn comes; else it is undone.
    Own(BytesMut, Undo),
}

/// How to undo a message that the gateway has acted on already, when it turns out that an earlier one
/// failed: PostgreSQL would never have looked at it.
#[derive(Debug)]
pub(super) enum Undo {
    /// It changed nothing that outlives the flight.
    Nothing,
    /// It made this statement.
    Forget(String),
    /// It closed this statement.
    Restore(String, Box<PreparedStatement>),
}

/// A flight of more messages is not kept, ...
const MESSAGES_MAX: usize = 12;
/// ... nor is one of more bytes.
const BYTES_MAX: usize = 256 * 1024;

/// The messages of a client's flight, from its begin on or from where all was answered.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) frames: Vec<Frame>,
    bytes: usize,
    /// What the client had been told before, in bytes.
    pub(super) written: u64,
    pub(super) begun: Instant,
}

impl Kept {
    pub(super) fn from(written: u64) -> Self {
        Self { frames: Vec::new(), bytes: 0, written, begun: Instant::now() }
    }

    /// With a further message; `None`: it is too much, or undoes what was there before the flight.
    pub(super) fn with(mut self, frame: &Frame) -> Option<Self> {
        self.bytes += frame.as_bytes().len();
        let fits = self.frames.len() < MESSAGES_MAX && self.bytes < BYTES_MAX;
        let is_kept = fits && frame.tag() != b'C';
        is_kept.then(|| {
            self.frames.push(frame.clone());
            self
        })
    }
}

/// Messages that were sent to a node and not answered yet.
#[derive(Debug, Default)]
pub(in crate::session) struct Pipeline {
    /// The node they went to.
    pub(super) node: Option<NodeId>,
    pub(super) expects: VecDeque<Expect>,
    /// A Parse that no node has seen yet: statement name.
    pub(super) unchecked: Option<String>,
    /// Something that may have written ran since the last Sync.
    pub(super) wrote: bool,
    /// The same for READ ONLY DEFERRABLE to wait for, if it is SERIALIZABLE.
    pub(super) in_progress: Option<InProgress>,
    /// Bytes of answers that were due and have been written for the client, since the session began.
    pub(super) passed_on: u64,
    /// A message has come since the last Sync.
    pub(super) has_begun: bool,
    /// The flight's messages, if it could be run again.
    pub(super) kept: Option<Kept>,
    /// An error was found: messages are skipped until Sync.
    pub(super) skipping: bool,
    /// Portals on nodes whose rows are in binary format: their columns, as from [`tutti_link::Link::numbered`].
    pub(super) numbered: HashMap<String, Option<Arc<[u32]>>>,
}

impl Pipeline {
    /// Whether a message has come since the last Sync.
    pub(in crate::session) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The portals that there were are gone, and nothing of theirs is due.
    pub(in crate::session) fn forget_portals(&mut self) {
        self.numbered.clear();
    }

    /// Whether a statement's rows are due.
    pub(super) fn executes(&self) -> bool {
        self.expects.iter().any(|due| matches!(due, Expect::Execute(_)))
    }
}
