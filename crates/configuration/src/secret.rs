//! A password as configured.
//!
//! Owns: that it is wiped and never printed.
//! Never: checks one.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// A password in memory: wiped when dropped, and never printed.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The password itself, for the one place that uses it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
