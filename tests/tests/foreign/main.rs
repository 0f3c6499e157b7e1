//! Suites that others wrote: drivers' own, and PostgreSQL's. All of them are ignored but for `./dev foreign`.
//!
//! Owns: starting them, and that what they find is what is listed. Never: knows a test of theirs.
//! Start reading at [`clients`].

mod clients;
mod regress;
