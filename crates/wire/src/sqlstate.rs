//! SQLSTATEs that decide what is done next, by PostgreSQL's names for them (appendix A of its documentation).
//!
//! Owns: their spelling. Never: says what follows from one; whoever compares with it does.

/// A connection is lost.
pub const CONNECTION_FAILURE: &str = "08006";
/// A transaction may be committed or not.
pub const TRANSACTION_RESOLUTION_UNKNOWN: &str = "08007";
/// There is no prepared statement of that name.
pub const INVALID_SQL_STATEMENT_NAME: &str = "26000";
/// There is no savepoint of that name.
pub const INVALID_SAVEPOINT_SPECIFICATION: &str = "3B001";
/// The transaction met another one.
pub const SERIALIZATION_FAILURE: &str = "40001";
/// It was the victim of a deadlock.
pub const DEADLOCK_DETECTED: &str = "40P01";
/// There is no table of that name.
pub const UNDEFINED_TABLE: &str = "42P01";
/// A lock could not be had in time.
pub const LOCK_NOT_AVAILABLE: &str = "55P03";
/// A cancel request, or a timeout, has ended the statement.
pub const QUERY_CANCELED: &str = "57014";
/// The session was ended by an administrator.
pub const ADMIN_SHUTDOWN: &str = "57P01";
