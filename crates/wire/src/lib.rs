//! PostgreSQL's wire protocol 3.0 as data: bytes to messages and back.
//!
//! Owns: frames, the messages that a gateway must understand or make, error fields, COPY streams.
//! Never: reads a socket, allocates per row, or knows what a statement means.
//! Start reading at [`frame`]; then [`frontend`] (what clients say) and [`backend`] (what servers say).
//!
//! Source: PostgreSQL manual, part "Frontend/Backend Protocol".

pub mod backend;
pub mod copy;
pub mod error_fields;
pub mod flight;
pub mod frame;
pub mod frontend;
pub mod sqlstate;
pub mod startup;
