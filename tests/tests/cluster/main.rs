//! What several nodes are to several sessions: isolation, the schema and its changes, who may do what, and
//! what the auditor finds.
//!
//! Owns: the tests whose question is a state that sessions or nodes share, a module per subject.
//! Never: kills a gateway or judges what is left of it; that is `faults`. Compares single answers; that is
//! `answers`.
//! Start reading at [`anomalies`], or in ARCHITECTURE.md at the table of tests.

mod advise;
mod anomalies;
mod audit;
mod base;
mod carrying;
mod catalog;
mod changes_of_one_moment;
mod concurrently;
mod cost_of_a_cluster;
mod deadlock;
mod default_isolation;
mod flights;
mod global_references;
mod global_unique;
mod grown_code;
mod placement_by_sql;
mod privileges;
mod processes;
mod published_catalog;
mod random_flights;
mod range_placement;
mod reach;
mod reads_apart;
mod replicated_async;
mod replicated_async_changes;
mod requests;
mod row_locks;
mod schema_changes;
mod security;
mod sentinel;
mod serial_model;
mod serializable;
mod sessions;
mod sim_gateways;
mod sim_model;
mod statement_snapshot;
