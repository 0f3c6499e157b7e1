//! What holds when something fails: gateways and nodes are killed, cut off or held up, and what clients were
//! told is judged against what is left.
//!
//! Owns: the tests that make faults, and the judge of histories with its own tests.
//! Start reading at [`kill9`], then [`recovery`].

mod gateways;
mod history;
mod history_checker;
mod home_away;
mod kill9;
mod recovery;
mod requests;
mod stops;
mod storm;
