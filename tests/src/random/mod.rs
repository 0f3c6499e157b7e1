//! Random SQL on one PostgreSQL and on a cluster: equal answers, and equal tables afterwards.
//!
//! A **case** is made of one number: a schema with its placements, rows, and statements that read and change them, alone
//! and in blocks of each isolation level. What the gateway refuses (0A000) is counted, not compared.
//! Owns: the generator, the comparison, and the reduction of a case that shows a difference.
//! Never: asks what PostgreSQL does not promise. Where one finds such a question, another plan of PostgreSQL's own gives
//! another answer, and the difference is counted as undetermined ([`judge`]).
//! Start reading at [`case`], then [`judge`].

pub mod aggregate;
pub mod case;
pub mod change;
pub mod dice;
pub mod expression;
pub mod from;
pub mod judge;
pub mod query;
pub mod schema;
pub mod shrink;
pub mod writer;
