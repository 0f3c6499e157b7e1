//! The cluster's catalog, as it is stored on the nodes in the schema `tutti`.
//!
//! Owns: what the schema looks like, reading it into [`tutti_sql::catalog::Catalog`], changing it as
//! part of a client's DDL, and the rules that a schema must satisfy to be distributable.
//! Never: decides where a statement runs, nor begins or ends a transaction.
//! Start reading at [`schema`], then [`load()`], then [`placement`].

pub mod changes;
pub mod check;
mod code;
pub mod colocation;
mod computed_keys;
pub mod entries;
mod folding;
mod functions;
pub mod keys;
pub mod lending;
pub mod load;
pub mod maps;
mod new_table;
pub mod oids;
mod own_changes;
pub mod placement;
pub mod publisher;
pub mod reading;
pub mod redistribute;
mod rows;
pub mod schema;
pub mod seals;
pub mod sequences;
pub mod share;
mod text_array;
mod upgrade;
pub mod verify;

pub use load::{load, reload, reload_own};
pub use new_table::{Chosen, choose_placement};
pub use oids::NodeOids;
pub use placement::{
    PlacementKind, Registration, RowsOf, lock_tables_sql, note_change, register, table_rows_sql,
    unregister_dropped,
};
pub use publisher::Publisher;
pub use redistribute::Redistribution;
pub use rows::Answer;
pub use seals::learn_secret;
pub(crate) use seals::learn_secret_as_it_is;
pub use sequences::{disarm_sequences, rearm_sequences};
pub use upgrade::upgrade_schema;
pub use verify::verify;
