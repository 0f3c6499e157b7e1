//! What the role and the database gave a session at its login (`ALTER ROLE … SET`, `ALTER DATABASE … SET`).
//!
//! Owns: the type of that. Never: determines what has changed since (`begun_with` does).

use tutti_link::pool::RoleSettings;

/// What the role and the database gave a session at its login, which it keeps while others change that.
#[derive(Debug)]
pub(crate) struct BegunWith {
    pub(super) settings: RoleSettings,
    /// Of the pool: after how many changes its differences from new sessions are known.
    pub(super) renewal: u64,
}

impl BegunWith {
    /// `renewal`: the pool's, from before the settings were read.
    pub(crate) fn new(settings: RoleSettings, renewal: u64) -> Self {
        Self { settings, renewal }
    }
}
