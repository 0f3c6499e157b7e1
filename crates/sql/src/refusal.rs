//! Why a statement is not run: the error a client receives, as data.
//!
//! Owns: SQLSTATE, message, detail and hint of everything the planner refuses.
//! Never: decides; the planner does.

/// A statement that Tutti does not run, with the error for the client.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// SQLSTATE (PostgreSQL manual, appendix A). `0A000` for what is not supported.
    pub sqlstate: &'static str,
    /// The primary message, in PostgreSQL's manner: lower case, no full stop.
    pub message: String,
    /// Why.
    pub detail: Option<String>,
    /// What to do instead.
    pub hint: Option<String>,
    /// Where in the statement, in characters from 1, as PostgreSQL's `P` field counts.
    pub position: Option<usize>,
}

impl Refusal {
    /// Something that PostgreSQL can and Tutti does not (SQLSTATE 0A000): what, why, what instead.
    pub fn unsupported(
        message: impl Into<String>,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            sqlstate: "0A000",
            message: message.into(),
            detail: Some(detail.into()),
            hint: Some(hint.into()),
            position: None,
        }
    }

    /// An error that PostgreSQL itself would have raised.
    pub fn postgres(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), detail: None, hint: None, position: None }
    }

    /// The same refusal with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same refusal with a detail.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}
