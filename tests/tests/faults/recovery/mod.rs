//! Recovery while the gateway runs, against real servers.
//!
//! Owns: what fails, when, and what must hold afterwards. `support` has the cluster and what is
//! believed of each transfer, `proxy` cuts connections at a chosen message, `struck` is what can be killed
//! at one.

mod alone;
mod cuts;
mod failover;
mod finishers;
mod left;
mod node_by_node;
mod orphans;
mod patroni;
mod proxy;
mod replaced;
mod restarts;
mod struck;
pub(crate) mod support;
mod told;
