//! What a statement is, and where it has to run.
//!
//! Owns: parsing (by PostgreSQL's own grammar), the immutable catalog view, the planner, the hash
//! that places rows, and every refusal.
//! Never: talks to a node, knows how transactions commit, reads a clock.
//! Start reading at [`plan`], whose types are the contract between planner and executor.

pub mod advice;
mod built_in_types;
pub mod catalog;
pub mod closure;
mod code;
pub mod hash;
pub mod plan;
pub mod planner;
pub mod refusal;
pub mod settings;
pub mod shape;
pub mod statement;
mod walk;
