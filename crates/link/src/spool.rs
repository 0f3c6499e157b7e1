//! Bytes that wait until they are wanted: few of them in memory, many in a temporary table of node 1.
//!
//! Owns: where they are, in which order, and a connection of the gateway's own for those that are many, which is closed
//! with its table when they are no longer wanted.
//! Never: looks into them; waits for a place in the pool, for whoever writes here has connections that others wait for.
//! Start reading at [`Spool`], then [`Kept`].

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use tutti_sql::catalog::NodeId;
use tutti_wire::frontend::{Arguments, put_bind, put_execute, put_parse, put_sync};

use crate::connection::{NodeConnection, NodeError};
use crate::control_pool::ControlPool;
use crate::pool::{Permit, Room};

/// Whether the table is made unseen: what watches for changes of the schema would take it for somebody's.
const IS_WATCHED: &str =
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_event_trigger WHERE evtenabled IN ('A', 'R'))";

/// The table. (Bytes are not compressed: that would cost more than it saves.)
const MAKE: &str = "BEGIN; SET LOCAL session_replication_role = replica; \
     CREATE TEMPORARY TABLE tutti_spool (number pg_catalog.int8, portion pg_catalog.bytea) ON COMMIT DROP; \
     ALTER TABLE pg_temp.tutti_spool ALTER COLUMN portion SET STORAGE EXTERNAL";
const PUT: &str = "INSERT INTO pg_temp.tutti_spool VALUES ($1, $2)";
/// By their numbers: PostgreSQL may put a row where an earlier page has room. (What is sorted are pointers to the bytes.)
const READ: &str = "DECLARE tutti_spool NO SCROLL CURSOR FOR SELECT portion FROM pg_temp.tutti_spool \
     ORDER BY number USING OPERATOR(pg_catalog.<)";
const TAKE: &str = "FETCH NEXT FROM tutti_spool";

/// What a [`Spool`] may use.
#[derive(Clone, Debug)]
pub struct Means {
    /// The gateway's own connections.
    pub connections: Arc<ControlPool>,
    /// By which it is bounded how many there are.
    pub room: Room,
    /// So many bytes are kept in memory.
    pub kept_bytes_max: usize,
    /// So many if there is no room elsewhere.
    pub bytes_max: usize,
    /// So many are a row of the table, and are in memory when they are read. Above 0.
    pub portion_bytes: usize,
}

/// Why bytes could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// They were too many for memory, and could not be elsewhere.
    #[error("there is no room for {bytes_max} bytes")]
    TooMany {
        /// The limit.
        bytes_max: usize,
    },
    /// Node 1 did not take them.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// Bytes that come. They are appended to [`Self::buffer`], and [`Self::make_room`] is called from time to time.
#[derive(Debug)]
pub struct Spool {
    means: Means,
    /// Those that are not in the table.
    buffer: BytesMut,
    store: Option<Store>,
    /// There is no room on node 1.
    is_refused: bool,
    failed: Option<SpoolError>,
}

impl Spool {
    /// Empty.
    pub fn new(means: Means) -> Self {
        Self { means, buffer: BytesMut::new(), store: None, is_refused: false, failed: None }
    }

    /// Where to append what comes.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Sends what is too much for memory to node 1. If that fails, what comes is dropped, and [`Self::end`] says so.
    pub async fn make_room(&mut self) {
        let most = match (&self.store, self.is_refused) {
            (Some(_), _) => self.means.portion_bytes,
            (None, false) => self.means.kept_bytes_max,
            (None, true) => self.means.bytes_max,
        };
        if self.failed.is_none() && self.buffer.len() <= most {
            return;
        }
        if self.failed.is_none()
            && let Err(error) = self.store_all().await
        {
            self.store = None;
            self.failed = Some(error);
        }
        if self.failed.is_some() {
            self.buffer = BytesMut::new();
        }
    }

    async fn store_all(&mut self) -> Result<(), SpoolError> {
        if self.store.is_none() && !self.is_refused {
            self.store = Store::open(&self.means).await?;
            self.is_refused = self.store.is_none();
        }
        let Some(store) = &mut self.store else {
            let bytes_max = self.means.bytes_max;
            return match bytes_max < self.buffer.len() {
                true => Err(SpoolError::TooMany { bytes_max }),
                false => Ok(()),
            };
        };
        // The rest waits for more, and at last comes behind all.
        let portion_bytes = self.means.portion_bytes;
        while portion_bytes <= self.buffer.len() {
            store.put(&self.buffer[..portion_bytes]).await?;
            self.buffer.advance(portion_bytes);
        }
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
        Ok(())
    }

    /// Nothing more will come.
    ///
    /// Errors: what was appended is not all there.
    pub async fn end(mut self) -> Result<Kept, SpoolError> {
        self.make_room().await;
        if let Some(error) = self.failed {
            return Err(error);
        }
        if let Some(store) = &mut self.store {
            store.settle().await?;
            store.connection.query(READ).await?;
        }
        Ok(Kept { store: self.store, rest: self.buffer })
    }
}

/// Bytes that are taken in the order in which they came.
#[derive(Debug)]
pub struct Kept {
    /// The first of them, if they were many.
    store: Option<Store>,
    /// The last of them.
    rest: BytesMut,
}

impl Kept {
    /// Whether node 1 has some of them.
    pub fn is_elsewhere(&self) -> bool {
        self.store.is_some()
    }

    /// Appends the next of them. False: there are no more.
    pub async fn take_more(&mut self, into: &mut BytesMut) -> Result<bool, NodeError> {
        if let Some(store) = &mut self.store {
            if let Some(portion) = store.take().await? {
                into.extend_from_slice(&portion);
                return Ok(true);
            }
            self.store = None;
        }
        let rest = std::mem::take(&mut self.rest);
        let is_something = !rest.is_empty();
        match into.is_empty() {
            true => *into = rest,
            false => into.extend_from_slice(&rest),
        }
        Ok(is_something)
    }
}

/// The table, with the transaction that it is part of.
#[derive(Debug)]
struct Store {
    connection: NodeConnection,
    _permit: Permit,
    /// Of the next portion.
    number: i64,
    /// The answer to the last portion is not read.
    is_owed: bool,
}

impl Store {
    /// `None`: there is no room for it.
    async fn open(means: &Means) -> Result<Option<Self>, NodeError> {
        let Some(permit) = means.room.admit_to_wait() else { return Ok(None) };
        let mut connection = means.connections.checkout(NodeId::HOME).await?;
        if connection.rows(IS_WATCHED).await?.text(0, 0) != Some("f") {
            means.connections.release(connection);
            return Ok(None);
        }
        connection.query(MAKE).await?;
        Ok(Some(Self { connection, _permit: permit, number: 0, is_owed: false }))
    }

    async fn put(&mut self, portion: &[u8]) -> Result<(), NodeError> {
        self.settle().await?;
        let out = self.connection.outgoing();
        put_parse(out, "", PUT, &[]);
        let number = Bytes::copy_from_slice(&self.number.to_be_bytes());
        let values = vec![Some(number), Some(Bytes::copy_from_slice(portion))];
        self.number += 1;
        put_bind(out, "", "", &Arguments { values, formats: vec![1], result_formats: Vec::new() });
        put_execute(out, "", 0);
        put_sync(out);
        // It is stored while further ones come.
        self.is_owed = true;
        self.connection.flush().await
    }

    async fn settle(&mut self) -> Result<(), NodeError> {
        if std::mem::take(&mut self.is_owed) {
            self.connection.finish_query().await?;
        }
        Ok(())
    }

    /// The next portion; `None`: that was the last.
    async fn take(&mut self) -> Result<Option<Bytes>, NodeError> {
        let out = self.connection.outgoing();
        put_parse(out, "", TAKE, &[]);
        let in_binary = Arguments { result_formats: vec![1], ..Arguments::default() };
        put_bind(out, "", "", &in_binary);
        put_execute(out, "", 0);
        put_sync(out);
        self.connection.flush().await?;
        let mut answers = self.connection.finish_query().await?;
        let mut rows = answers.pop().unwrap_or_default().rows;
        Ok(rows.pop().and_then(|mut row| row.pop().flatten()))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Its table goes with it.
        self.connection.say_goodbye();
    }
}
