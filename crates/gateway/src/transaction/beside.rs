//! Cursors over many rows: each has a connection of its own, beside those of its session.
//!
//! Owns: that connection, and when what it has is computed.
//! Never: declares a cursor or fetches from it (`executor::cursor` does).
//! Start reading at [`Beside`].

use std::sync::Arc;

use tutti_link::Link;
use tutti_link::pool::{Permit, SessionState};

use crate::client::failure::Failure;

/// Where such a cursor is: in a transaction that has nothing but the rows that were collected for it, and that is thrown
/// away. It is closed with the cursor.
#[derive(Debug)]
pub(crate) struct Beside {
    /// `None`: the cursor has failed, and what it was in with it.
    pub link: Option<Box<Link>>,
    pub _permit: Permit,
    /// What the session had set when it was last told.
    pub set: Set,
    /// All its rows are computed, and it is in no transaction.
    pub is_held: bool,
}

/// What a session has set, for good and in its transaction.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub state: Arc<SessionState>,
    pub steps: String,
}

impl Beside {
    /// The rows of a cursor WITH HOLD are computed now, as PostgreSQL does it when the transaction that has declared it
    /// ends.
    ///
    /// Errors: one cannot be computed.
    pub(crate) async fn hold(&mut self) -> Result<(), Failure> {
        if let Some(link) = self.link.as_mut().filter(|_| !self.is_held) {
            link.query("COMMIT").await?;
            self.is_held = true;
        }
        Ok(())
    }
}
