//! What is said of code that no plan can run rightly.
//!
//! Owns: the words. Never: decides that it cannot be run.
//! Start reading at [`refusal`].

use crate::closure::Reason;
use crate::refusal::Refusal;

/// What is said of opaque code that cannot run on node 1 for this statement.
pub(crate) fn refusal(reason: &Reason) -> Refusal {
    Refusal::unsupported(
        format!("{} cannot run on one node", reason.code),
        format!("It {}, and a node sees only its own rows.", reason.does),
        hint(reason, "replicated"),
    )
}

/// What to do about opaque code.
pub(super) fn hint(reason: &Reason, declaration: &str) -> String {
    match reason.code.strip_prefix("function ").and_then(|it| it.strip_suffix("()")) {
        Some(function) => format!(
            "Send its statements from the client; or, if all that it touches {}, say so: SELECT \
             tutti_function('{function}', '{declaration}').",
            match declaration {
                "row" => "belongs to the row's key",
                _ => "are replicated tables that it reads",
            }
        ),
        None => "Drop it, or send the statements that it stands for from the client.".to_owned(),
    }
}
