//! What finishes global transactions.
//!
//! Owns: the connections over which they are finished and decisions recorded, which transactions are being
//! committed here, and which of them recovery must finish.
//! Never: chooses what comes next (`tutti_txn` does).
//! Start reading at [`finishers::Finishers`].

pub mod coordinators;
mod decision_log;
pub mod finishers;
mod pipelined;
pub mod unsettled;
