//! What a statement may leave behind in the server session it runs in.
//!
//! Owns: its kinds. Never: says what is done about it; the gateway does.
//! Start reading at [`Residue`].

/// What a statement may leave behind in the server session it runs in, beyond its transaction.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Residue {
    /// What `currval` and `lastval` answer, or `random` continues from.
    pub sequences: bool,
    /// Notifications, whose sender some later listeners identify by the connection.
    pub notifies: bool,
    /// Values of any settings, which unseen code may have set.
    pub values: bool,
    /// Values of these settings (lower-case names) that only the server knows.
    pub settings: Vec<String>,
    /// Anything: session locks, temporary tables, channels, cursors, or what unseen code has set.
    pub anything: bool,
    /// The schema may be another one: the catalog has to be read again, once the transaction has
    /// ended.
    pub schema: bool,
}

impl Residue {
    /// Adds what `other` leaves.
    pub fn merge(&mut self, other: Self) {
        self.sequences |= other.sequences;
        self.notifies |= other.notifies;
        self.anything |= other.anything;
        self.values |= other.values;
        self.schema |= other.schema;
        self.settings.extend(other.settings);
    }
}
