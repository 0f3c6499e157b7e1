//! What can go wrong while a session works, sorted by who is told.
//!
//! Owns: the one error type of sessions and the executor.
//! Never: is shown to a client as it is (see [`tutti_wire::error_fields`]).

use tutti_link::connection::NodeError;
use tutti_sql::refusal::Refusal;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::WireError;
use tutti_wire::sqlstate;

use crate::client::ClientError;

/// Why a statement or a session cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The statement failed; the client is told, the session goes on.
    #[error("{}", .0.message())]
    Statement(Box<ErrorFields>),
    /// The client can no longer be reached; the session ends.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Failure {
    /// An error of the gateway's own.
    pub fn error(sqlstate: &str, message: impl Into<String>) -> Self {
        ErrorFields::error(sqlstate, message).into()
    }

    /// SQLSTATE 0A000: what, why, and what to do instead.
    pub fn unsupported(
        message: impl Into<String>,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        ErrorFields::error("0A000", message).with(b'D', detail).with(b'H', hint).into()
    }
}

impl Failure {
    /// A node cannot be reached, or is closed: nothing was sent to it.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, Self::Statement(fields) if fields.sqlstate() == "57P03")
    }

    /// The same without a position: it counts characters of a text that is not the client's.
    #[must_use]
    pub fn without_position(mut self) -> Self {
        if let Self::Statement(fields) = &mut self {
            fields.fields.retain(|(code, _)| *code != b'P');
        }
        self
    }

    /// The same with another position, if it has one; `None`: it is left out.
    #[must_use]
    pub fn map_position(mut self, map: impl Fn(usize) -> Option<usize>) -> Self {
        if let Self::Statement(fields) = &mut self {
            fields.fields.retain_mut(|(code, value)| {
                if *code != b'P' {
                    return true;
                }
                match value.parse().ok().and_then(&map) {
                    Some(position) => *value = position.to_string(),
                    None => return false,
                }
                true
            });
        }
        self
    }
}

impl From<ErrorFields> for Failure {
    fn from(mut fields: ErrorFields) -> Self {
        // A node ended its connection; the client's own goes on.
        for (code, text) in &mut fields.fields {
            if matches!(code, b'S' | b'V') && matches!(text.as_str(), "FATAL" | "PANIC") {
                "ERROR".clone_into(text);
            }
        }
        Self::Statement(Box::new(fields))
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        let fields = error.to_fields();
        match is_lost_snapshot(&fields) {
            true => ErrorFields::error(
                sqlstate::SERIALIZATION_FAILURE,
                "the transaction's snapshot is gone on a node",
            )
            .with(b'D', fields.message())
            .with(b'H', "The transaction might succeed if retried.")
            .into(),
            false => fields.into(),
        }
    }
}

/// Any failure before a session has begun ends it.
pub(crate) fn as_fatal(mut error: ErrorFields) -> ErrorFields {
    for (code, text) in &mut error.fields {
        if matches!(code, b'S' | b'V') {
            *text = "FATAL".to_owned();
        }
    }
    error
}

/// Whether a node could not import a snapshot: its exporter is gone, lost with its node or
/// terminated. Clients cannot import snapshots themselves, so it is never one of theirs.
fn is_lost_snapshot(error: &ErrorFields) -> bool {
    let message = error.message();
    match error.sqlstate() {
        "22023" => message.starts_with("invalid snapshot identifier"),
        "55000" => message.starts_with("could not import the requested snapshot"),
        _ => false,
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        let sqlstate = match error {
            WireError::NotUtf8 => "22021",
            _ => "08P01",
        };
        ErrorFields::error(sqlstate, error.to_string()).into()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let mut fields = ErrorFields::error(refusal.sqlstate, refusal.message);
        if let Some(detail) = refusal.detail {
            fields = fields.with(b'D', detail);
        }
        if let Some(hint) = refusal.hint {
            fields = fields.with(b'H', hint);
        }
        if let Some(position) = refusal.position {
            fields = fields.with(b'P', position.to_string());
        }
        fields.into()
    }
}
