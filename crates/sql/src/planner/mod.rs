//! From a statement, the catalog and a name scope to a plan that says why.
//!
//! Owns: the choice between one node, scatter, aggregates or first rows of each node, and gather, for everything
//! that reads or changes rows, and the plans of all other statements.
//! Never: looks at parameter values (they come at Bind) or runs anything.
//! Start reading at [`plan`] (`dispatch.rs`), then `query.rs`. What may use what is a block of layers in
//! ARCHITECTURE.md.

mod alike;
mod analyse;
mod analysis;
mod brought;
mod by_shape;
mod cannot_fail;
mod carried;
mod cluster_sizes;
mod computed_first;
mod computed_keys;
mod context;
mod copy;
mod current_time;
mod ddl;
mod defaults;
mod dependencies;
mod described_table;
mod determinism;
mod dispatch;
mod dml;
mod entries;
mod explain;
mod filters;
#[cfg(test)]
mod fixture;
mod function_use;
mod functions;
mod gaps;
mod gather;
mod guards;
mod holes;
mod in_tables;
mod insert;
mod known_views;
mod local_locks;
mod locality;
mod mentions;
mod modifying_steps;
mod modifying_with;
mod named;
mod names;
mod namesakes;
mod oids;
mod output_names;
mod over_groups;
mod own_rows;
mod own_schema;
mod partial;
mod pins;
mod printed;
mod query;
mod replicas;
mod residue;
mod row_conditions;
mod row_locks;
mod row_security;
mod row_types;
mod samples;
mod scatter;
mod semi_joins;
mod session_names;
mod solo;
#[cfg(test)]
mod sql_page_tests;
mod sql_text;
#[cfg(test)]
mod statements_tests;
mod stored_types;
mod syntax;
mod system_columns;
mod temporary;
mod texts_as_times;
mod time_gaps;
mod time_types;
mod top_rows;
mod unseen;
mod utility;
mod view_references;
mod view_rows;
mod views;
mod written_defaults;
mod written_views;

pub use by_shape::{OneNode, ShapePlan, Unfit, are_alike, plan_shape};
pub use carried::check_unchanged;
pub use computed_keys::renamed_columns;
pub use context::Context;
pub use current_time::names_current_time;
pub use ddl::{index_name, leaves_index_unnamed, lending_of};
pub use dependencies::{ReadByCode, read_by_code, relations_of, shows_other_nodes};
pub use dispatch::{plan, plan_by_itself};
pub use explain::{entries_line, explain_lines};
pub use gather::is_read_alike;
pub use insert::plan_filling;
pub(crate) use syntax::written;
pub use unseen::{
    check_event_triggers, check_policies, fires_event_triggers, gathers, gathers_to_write,
    may_be_checked, refuse_analysis, refuse_moving, refuse_transit, refuse_types, runs_script,
};
pub use utility::{are_constants, bind_arguments, name_parameters, say_queries};
