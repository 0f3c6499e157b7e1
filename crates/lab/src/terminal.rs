//! What goes to standard output.
//!
//! Owns: that a reader who has seen enough (`tutti-lab report DIR | head`) ends nothing. Never: knows what is said.

use std::io::{ErrorKind, Write};

use anyhow::Context;

/// Prints a text as it is.
///
/// Errors: it cannot be written, for another reason than that nobody reads it any more.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
