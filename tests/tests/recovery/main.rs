//! Recovery while the gateway runs, against real servers.
//!
//! Owns: what fails, when, and what must hold afterwards. `support` has the cluster and the load.

mod finishers;
mod support;
