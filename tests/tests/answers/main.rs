//! What is answered: the same statements on one PostgreSQL and on clusters, by every way in which a client
//! may ask.
//!
//! Owns: the tests whose question is an answer, a module per subject. One program for them all: each
//! program of tests links the whole gateway with the grammar, and runs after the others, never beside them.
//! Never: kills a gateway or judges what is left of it; that is `faults`.
//! Start reading at [`differential`], or in ARCHITECTURE.md at the table of tests.

mod cluster_sizes;
mod cluster_views;
mod code_at_commit;
mod copies;
mod copy;
mod declared_types;
mod differential;
mod execute_arguments;
mod explain;
mod generated_keys;
mod hash;
mod hears;
mod home;
mod home_sessions;
mod home_statements;
mod hostile;
mod kept_rows;
mod keys_of_several;
mod numbered_values;
mod one_meaning;
mod own_sql;
mod passed_on;
mod pg_dump;
mod pgbench;
mod plans;
mod printed;
mod protocol;
mod psql;
mod psycopg;
mod random;
mod samples;
mod scripts;
mod transit;
mod unseen;
mod unseen_errors;
mod ways;
