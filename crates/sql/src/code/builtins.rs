//! Which of PostgreSQL's own functions are more than functions of their arguments.
//!
//! Owns: that list. A function is built in by its number (below 16384), never by its name alone.
//! Never: looks at user-defined functions.
//! Start reading at [`classify`].

use super::volatility::Volatility;

/// What a built-in function does besides returning a value.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum BuiltIn {
    /// Nothing: any node may call it.
    #[default]
    Plain,
    /// Its effect or answer is node 1's: sequences, advisory locks, large objects, the server itself.
    Home,
    /// It makes a row of whichever type its argument has, which runs the code of the columns' types: any
    /// node may call it if there is no such code.
    MakesRows,
    /// It makes a value of whichever type it is told by name or number, likewise.
    MakesValues,
    /// It changes a setting.
    Sets,
    /// It runs SQL that it gets as text, or reads tables that it gets as names.
    RunsSql,
}

/// Volatile functions that any node may call: a value of their own, or nothing that stays.
const PLAIN_VOLATILE: [&str; 24] = [
    "random",
    "random_normal",
    "gen_random_uuid",
    "uuidv4",
    "uuidv7",
    "clock_timestamp",
    "timeofday",
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
    "pg_trigger_depth",
    "current_query",
    "tsvector_update_trigger",
    "tsvector_update_trigger_column",
    "suppress_redundant_updates_trigger",
    "unique_key_recheck",
    "pg_event_trigger_ddl_commands",
    "pg_event_trigger_dropped_objects",
    "pg_event_trigger_table_rewrite_oid",
    "pg_event_trigger_table_rewrite_reason",
    "array_shuffle",
    "array_sample",
    "pg_relation_size",
    "pg_table_size",
];
/// What runs SQL from a text, or reads what it gets the name of.
const RUNS_SQL: [&str; 11] = [
    "query_to_",
    "cursor_to_",
    "table_to_",
    "schema_to_",
    "database_to_",
    "ts_stat",
    "ts_rewrite",
    "pg_restore_",
    // Computes what is constant in the partition key of a table that it gets the number of.
    "satisfies_hash_partition",
    // Compute an index's expressions, or compare what it has.
    "brin_summarize_",
    "gin_clean_pending_list",
];
/// Functions that are not volatile, and yet tell of one server's state, session or catalog: of a home
/// table only node 1 knows.
const HOME_STABLE: [&str; 36] = [
    "txid_",
    "pg_current_xact_id",
    "pg_current_snapshot",
    "pg_export_snapshot",
    "currval",
    "lastval",
    "lo_",
    "pg_lock_status",
    "pg_cursor",
    "pg_listening_channels",
    "pg_my_temp_schema",
    "pg_prepared_",
    "to_reg",
    "has_any_column_privilege",
    "has_column_privilege",
    "has_function_privilege",
    "has_schema_privilege",
    "has_sequence_privilege",
    "has_table_privilege",
    "has_type_privilege",
    "row_security_active",
    "format_type",
    "obj_description",
    "col_description",
    "shobj_description",
    "pg_get_",
    "pg_describe_object",
    "pg_identify_object",
    "pg_table_is_visible",
    "pg_type_is_visible",
    "pg_function_is_visible",
    "pg_sequence_parameters",
    "pg_indexam_",
    "pg_index_",
    "pg_relation_",
    "pg_stat_get_",
];

/// What reads values of types of users, by the type's number, or name.
const MAKES_VALUES: [&str; 12] = [
    "domain_in",
    "domain_recv",
    "array_in",
    "array_recv",
    "record_in",
    "record_recv",
    "range_in",
    "range_recv",
    "multirange_in",
    "multirange_recv",
    "pg_input_is_valid",
    "pg_input_error_info",
];

/// What the built-in function `name` is. `volatility` is that of PostgreSQL's own catalog, which can
/// be believed.
pub fn classify(name: &str, volatility: Volatility) -> BuiltIn {
    // Referential integrity, and what only the server itself can call.
    if name.starts_with("RI_FKey_") || name.ends_with("_call_handler") {
        return BuiltIn::Plain;
    }
    if RUNS_SQL.iter().any(|prefix| name.starts_with(prefix)) {
        return BuiltIn::RunsSql;
    }
    if name == "set_config" {
        return BuiltIn::Sets;
    }
    if name.contains("populate_record") {
        return BuiltIn::MakesRows;
    }
    if MAKES_VALUES.contains(&name) {
        return BuiltIn::MakesValues;
    }
    let is_home = match volatility {
        Volatility::Volatile => !PLAIN_VOLATILE.contains(&name),
        Volatility::Stable | Volatility::Immutable => {
            HOME_STABLE.iter().any(|prefix| name.starts_with(prefix))
        }
    };
    if is_home { BuiltIn::Home } else { BuiltIn::Plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_sql_or_has_an_effect_is_not_plain() {
        use Volatility::{Immutable, Stable, Volatile};
        for (name, volatility, expected) in [
            ("query_to_xml", Volatile, BuiltIn::RunsSql),
            ("table_to_xml_and_xmlschema", Stable, BuiltIn::RunsSql),
            ("ts_stat", Volatile, BuiltIn::RunsSql),
            ("set_config", Volatile, BuiltIn::Sets),
            ("jsonb_populate_recordset", Stable, BuiltIn::MakesRows),
            ("domain_in", Stable, BuiltIn::MakesValues),
            ("nextval", Volatile, BuiltIn::Home),
            ("pg_advisory_xact_lock", Volatile, BuiltIn::Home),
            ("pg_create_restore_point", Volatile, BuiltIn::Home),
            ("txid_current", Stable, BuiltIn::Home),
            ("to_regclass", Stable, BuiltIn::Home),
            ("has_table_privilege", Stable, BuiltIn::Home),
            ("pg_has_role", Stable, BuiltIn::Plain),
            ("pg_get_viewdef", Stable, BuiltIn::Home),
            ("random", Volatile, BuiltIn::Plain),
            ("now", Stable, BuiltIn::Plain),
            ("lower", Immutable, BuiltIn::Plain),
        ] {
            assert_eq!(classify(name, volatility), expected, "{name}");
        }
    }
}
