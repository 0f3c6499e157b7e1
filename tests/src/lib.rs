//! Tests of the whole product: the support they share. The tests are in `tests/`.
//!
//! Owns: servers and gateways that live as long as a test, a client with exact control over the
//! protocol, the differential tester, the data.
//! Never: starts anything that survives the test.
//! Start reading at [`servers`], then [`differential`].

pub mod agreement;
pub mod answer;
pub mod audit;
pub mod client;
pub mod compare;
pub mod conversation;
pub mod differential;
pub mod environment;
pub mod gateway;
pub mod history;
pub mod interleaving;
pub mod lahman;
pub mod layers;
pub mod network;
pub mod process;
pub mod programs;
pub mod random;
pub mod script;
pub mod servers;
pub mod suite;
pub mod workload;
