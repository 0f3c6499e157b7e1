//! The catalog and recovery on real servers. Every test has servers of its own and talks to them as
//! the gateway does.

mod recovery;
mod redistribution;
mod rules;
mod setup;
mod support;
