//! Was it atomic, a snapshot, serializable? Decided from what clients saw.
//!
//! Owns: recorded histories of transactions over registers and lists, the checker that finds
//! anomalies in them by name, and the runs that record histories of real servers under faults.
//! Never: believes a server. What is wrong is proved from answers that clients got, and the proof is
//! printed. The checker ([`model`] to [`report`]) is pure; sockets begin at [`run`].
//! Start reading at [`model`], then [`checker`].
//!
//! Sources: A. Adya, "Weak Consistency: A Generalized Theory and Optimistic Implementations for
//! Distributed Transactions", MIT 1999 (the anomalies and their graphs); K. Kingsbury, P. Alvaro,
//! "Elle: Inferring Isolation Anomalies from Experimental Observations", VLDB 2020 (lists whose
//! elements tell the order of versions).

pub mod anomaly;
pub mod changes;
pub mod checker;
mod cycles;
mod graph;
pub mod intent;
pub mod model;
mod notation;
mod reads;
pub mod report;
pub mod run;
mod session;
mod versions;
