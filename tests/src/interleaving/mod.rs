//! Scripted interleavings: several sessions, one statement at a time, on one PostgreSQL and on clusters.
//!
//! Owns: the scripts' format, running them with statements that wait for locks, and comparing what
//! two runs were told. Never: knows what an anomaly is; scripts state theirs as a condition.
//! The scripts are in `tests/anomalies`, with their format in the README there. The manner is that of
//! PostgreSQL's isolation tester (`src/test/isolation/README`).
//! Start reading at [`script`], then [`run`], then [`judge`].

pub mod judge;
pub mod record;
pub mod run;
pub mod script;
pub mod stage;
pub mod watch;
