//! How much of everything the shop has.
//!
//! Owns: these numbers. Never: makes a row (see `fill`).

/// How much there is of everything. Small enough to be filled in seconds on a slow machine.
pub(super) const CUSTOMERS: i32 = 2_000;
pub(super) const ITEMS: i32 = 200;
pub(super) const ORDERS: i32 = 10_000;
pub(super) const ACCOUNTS: i64 = 600;
pub(super) const OPENING_BALANCE: i64 = 1_000;
/// All the money there is; no transfer changes it.
pub(super) const MONEY: i64 = ACCOUNTS * OPENING_BALANCE;
