//! What is tried on clusters, and what must hold afterwards.
//!
//! Owns: workloads (a setup, a transaction, a check, figures), which the tests that kill and cut use
//! as the demo and the benchmarks do; the demo; distances between machines on one machine; and the cost
//! model. The benchmarks and the studies are the program `tutti-lab`.
//! Never: starts a server or a gateway; that is up to what runs a workload.
//! Start reading at [`workload`]; which slowdown to expect is the matter of `model`.

pub mod accounts;
pub mod client;
#[cfg(feature = "demo")]
pub mod demo;
#[cfg(feature = "distance")]
pub mod distance;
#[cfg(feature = "model")]
pub mod model;
#[cfg(feature = "model")]
pub mod palette;
pub mod table;
pub mod workload;
