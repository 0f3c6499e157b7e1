//! Code that a statement may run and does not show: what it means for the statement's plan.
//!
//! Owns, in a file each: what code a statement can reach (`reach`), with what a change of the schema makes servers run
//! (`change`); what may run with rows where they are written (`rows`), and what all that means for a plan that was
//! chosen (`settle`).
//! Never: reads a body (`closure` does).
//! Start reading at [`of_statement`], then [`settle`].

mod accounting;
mod change;
mod reach;
mod rows;
mod wording;

pub(super) use accounting::account;
pub use accounting::{check_event_triggers, gathers, gathers_to_write};
pub(super) use change::for_each_table;
pub(super) use reach::{calls_of, of_statement};
pub use reach::{fires_event_triggers, refuse_analysis, runs_script};
pub use rows::{check_policies, may_be_checked, refuse_moving, refuse_transit, refuse_types};
pub(super) use rows::{
    default_is_opaque, leaves_anything, refuse_opaque_default, refuse_unsafe_code,
};
pub(super) use wording::refusal;
