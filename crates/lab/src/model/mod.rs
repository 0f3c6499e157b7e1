//! The cost model: how much longer the same work takes on a distributed system than on one PostgreSQL server.
//!
//! The source is M. McGraw, "In Search of a General Cost Model for ACID Compliant Distributed Databases" (2020),
//! called *the paper* here: a regression of the logarithm of the relative run time on the deployment and the
//! number of workers.
//! Owns: least squares with their statistics, reading runs, the paper's two specifications and its published
//! figures, the summary, predictions, plots. Never: makes a run, writes to standard output.
//! Start reading at [`ols::fit`], then [`specification::Specification`] and [`predict::Predictor`].

pub mod distance;
pub mod lack_of_fit;
pub mod ols;
pub mod plots;
pub mod predict;
pub mod published;
pub mod residuals;
pub mod runs;
pub mod specification;
pub mod summary;
mod tails;
pub mod words;
