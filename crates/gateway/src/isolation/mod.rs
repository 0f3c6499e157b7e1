//! Isolation over several nodes: drives the rooms, the turns and the snapshots of the whole cluster.
//!
//! Owns: who waits for whom inside this gateway, and the keepers of snapshots.
//! Never: decides who may go on (`tutti_txn` does), or when a statement needs which snapshot (the
//! session and the executor do).
//! Start reading at [`rooms::Doors`], then [`snapshots::Snapshots`].

pub mod applying;
pub mod connections;
pub mod rooms;
pub mod serial;
pub mod snapshots;
pub mod turns;
