//! What the settings of a session do to a text, all of them: in one table.
//!
//! Owns: which settings may make a statement mean something else, and what the planner relies on.
//! Never: knows a session's values: plans do not depend on them. Where one could matter, what is planned
//! is what all values have in common.
//! Start reading at [`TABLE`]. `tests/tests/answers/one_meaning.rs` asks a server for all of its settings, and
//! compares keyed statements under each of their values with one PostgreSQL.

use crate::refusal::Refusal;

/// The gateway's own setting that says how transactions over several nodes are committed.
pub const COMMIT: &str = "tutti.commit";
/// The one that says what becomes of a foreign key that no node can check by itself, when it is added.
pub const FOREIGN_KEYS: &str = "tutti.foreign_keys";
/// Settings of the gateway's own that take one of a few values, the default first. To servers, any value of a
/// name with a dot is right.
const CHOICES: [(&str, &[&str]); 2] =
    [(COMMIT, &["acid", "base"]), (FOREIGN_KEYS, &["colocated", "global"])];

/// Whether a setting may have this value, as far as the gateway knows it.
///
/// Errors: 22023, as a server says it of its own.
pub fn check_value(name: &str, value: &str) -> Result<(), Refusal> {
    let known = CHOICES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    match known {
        Some((name, values)) if !values.iter().any(|known| known.eq_ignore_ascii_case(value)) => {
            let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
            let hint = format!("Available values: {}.", values.join(", "));
            Err(Refusal::postgres("22023", message).with_hint(hint))
        }
        _ => Ok(()),
    }
}

/// What a setting does to a statement that the gateway has read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Effect {
    /// The text itself is cut into other tokens. Refused: a server that reports another value than the
    /// gateway's is no longer used.
    OtherText,
    /// The text of a literal becomes another value. Keys are hashed here only in the spellings that every
    /// value of the setting reads alike (`hash`); of all others a node is asked, under the session's own
    /// settings.
    ReadsValues,
    /// A value becomes another text. Rows that travel are written and read under settings of the gateway's
    /// own.
    WritesValues,
    /// A name means another object, or a role has other rights. The gateway asks for it, and plans by it.
    Names,
    /// An operator or a function means something else. The plan must be right for both.
    Operators,
    /// How a transaction is isolated, what it may write, how long it may take. The gateway asks for it, or
    /// sees it in what is refused.
    Transactions,
    /// Of one server's repair and debugging, by superusers: not followed, and not promised.
    OneServer,
    /// Speed, sizes, logs, and what new objects are like: any plan is right.
    Nothing,
}

/// Every setting that is more than [`Effect::Nothing`], and is not so by its category.
pub const TABLE: [(&str, Effect); 35] = [
    ("standard_conforming_strings", Effect::OtherText),
    ("client_encoding", Effect::OtherText),
    // Whether `\'` is refused in E'…'. Never another string.
    ("backslash_quote", Effect::ReadsValues),
    // Order of day and month; ISO 8601 with four digits of the year is read alike by all.
    ("DateStyle", Effect::ReadsValues),
    ("IntervalStyle", Effect::ReadsValues),
    // Without an offset a timestamptz is of the session's zone; zones' names are never read here.
    ("TimeZone", Effect::ReadsValues),
    ("timezone_abbreviations", Effect::ReadsValues),
    // Of money and to_char, of which no key is.
    ("lc_monetary", Effect::ReadsValues),
    ("lc_numeric", Effect::ReadsValues),
    ("lc_time", Effect::ReadsValues),
    // NULL as an element of an array, of which no key is.
    ("array_nulls", Effect::ReadsValues),
    ("xmloption", Effect::ReadsValues),
    ("extra_float_digits", Effect::WritesValues),
    ("bytea_output", Effect::WritesValues),
    ("xmlbinary", Effect::WritesValues),
    // Of definitions as a server writes them; both forms mean the same.
    ("quote_all_identifiers", Effect::WritesValues),
    ("search_path", Effect::Names),
    ("role", Effect::Names),
    ("session_authorization", Effect::Names),
    ("row_security", Effect::Names),
    ("temp_tablespaces", Effect::Names),
    ("default_text_search_config", Effect::Operators),
    // `k = NULL` may be `k IS NULL`: both are planned to where keys that are NULL are.
    ("transform_null_equals", Effect::Operators),
    ("session_replication_role", Effect::Transactions),
    ("default_transaction_isolation", Effect::Transactions),
    ("default_transaction_read_only", Effect::Transactions),
    ("default_transaction_deferrable", Effect::Transactions),
    ("transaction_isolation", Effect::Transactions),
    ("transaction_read_only", Effect::Transactions),
    ("transaction_deferrable", Effect::Transactions),
    ("statement_timeout", Effect::Transactions),
    ("lock_timeout", Effect::Transactions),
    // Others see what a backend runs by these, and the gateway asks what code has touched.
    ("track_counts", Effect::OneServer),
    ("track_activities", Effect::OneServer),
    ("max_stack_depth", Effect::OneServer),
];

/// Categories of `pg_settings` whose settings do nothing to a text, unless the table says so.
const HARMLESS: [&str; 11] = [
    "Client Connection Defaults",
    "Connections and Authentication",
    "File Locations",
    "Lock Management",
    "Query Tuning",
    "Replication",
    "Reporting and Logging",
    "Resource Usage",
    "Statistics",
    "Version and Platform Compatibility",
    "Write-Ahead Log",
];

/// What a setting does; `category`: its category in `pg_settings`. `None`: not reviewed.
pub fn effect_of(name: &str, category: &str) -> Option<Effect> {
    let known = TABLE.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    if let Some((_, effect)) = known {
        return Some(*effect);
    }
    let is_of = |known: &&str| category.starts_with(*known);
    if ["Developer Options", "Error Handling", "Customized Options"].iter().any(&is_of) {
        return Some(Effect::OneServer);
    }
    // What these two have is of texts: each must be thought about.
    let is_of_texts = [
        "Client Connection Defaults / Locale and Formatting",
        "Version and Platform Compatibility / Other Platforms and Clients",
    ];
    if is_of_texts.iter().any(&is_of) && name != "lc_messages" {
        return None;
    }
    HARMLESS.iter().any(is_of).then_some(Effect::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_values_of_its_own_settings_are_taken() {
        assert_eq!(check_value("Tutti.Commit", "BASE"), Ok(()));
        assert_eq!(check_value("work_mem", "anything"), Ok(()));
        let refused = check_value("tutti.commit", "fast").expect_err("there is no such value");
        assert_eq!(refused.sqlstate, "22023");
        assert_eq!(refused.message, r#"invalid value for parameter "tutti.commit": "fast""#);
        assert_eq!(refused.hint.as_deref(), Some("Available values: acid, base."));
    }

    #[test]
    fn what_is_new_must_be_thought_about() {
        assert_eq!(effect_of("datestyle", "anything"), Some(Effect::ReadsValues));
        assert_eq!(effect_of("enable_sort", "Query Tuning / Planner"), Some(Effect::Nothing));
        assert_eq!(effect_of("x", "Client Connection Defaults / Locale and Formatting"), None);
        assert_eq!(effect_of("x", "Brand New"), None);
    }
}
