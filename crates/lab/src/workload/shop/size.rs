//! How large a shop is, and how what is altered comes to all servers.
//!
//! Owns: these choices. Never: makes a row.

use super::data::Data;

/// How much there is of everything.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Size {
    /// Who buys.
    pub shoppers: i64,
    /// Statements of an alter, which is one transaction.
    pub statements: u32,
    /// What each item carries besides its numbers.
    pub data: Data,
    /// Bytes of that.
    pub data_bytes: u32,
}

impl Size {
    /// Items that are for sale: ten for each shopper.
    pub fn items(self) -> i64 {
        self.shoppers * 10
    }
}

/// How an alter comes to all servers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Commit {
    /// It commits on all of them or on none.
    Acid,
    /// Each row is written on one of them, these commit one by one, and rows are carried to the others afterwards.
    Base,
}
