//! What roles may do: the same statements by the same roles on one PostgreSQL and on clusters, with
//! equal answers and SQLSTATEs; and what no client may do to the schema `tutti`.
//!
//! The scripts are in `tests/privileges`, their format in the README there. `forging` is about the
//! gateway's own tables, `owners_code` about code that hangs on tables, `planted` about what code puts in
//! another's place, `sharing` about sessions that use one connection after the other.

mod forging;
mod owners_code;
mod planted;
mod scripts;
mod sharing;
