//! One text, one meaning: how a server must be set so that it reads a text as the gateway does.
//!
//! Owns: which settings decide that, and how to recognise a server that reads differently.
//! Never: sets anything.
//!
//! Both settings are among those that a server reports whenever they change, by whatever means: SET, a
//! function, a view, the role's defaults, its configuration. So its report is decisive: a connection that
//! has reported another value for one of them is no longer used ([`super::NodeConnection`]), and the session
//! that it worked for ends. The report comes with ReadyForQuery, so no text that the two may read
//! differently ([`may_mean_more`]) goes to a node between code that may have set something and that report.
//!
//! What all other settings do to a text is in `tutti_sql::settings`.

use std::collections::BTreeMap;

use tutti_wire::error_fields::ErrorFields;

/// Strings begin and end where standard SQL says.
const STRINGS: &str = "standard_conforming_strings";
/// Bytes are the characters that the gateway sees.
const ENCODING: &str = "client_encoding";

/// What connections for clients are opened with: whatever the server, the database or the role specifies,
/// RESET returns to these.
pub const SETTINGS_OF_READING: [(&str, &str); 2] = [(STRINGS, "on"), (ENCODING, "UTF8")];

/// The error for a client whose role's or database's defaults would make a node read its texts differently.
/// What the client itself asks for would take precedence, but is not what other sessions of the
/// role mean by a text.
pub fn refused_default(settings: &BTreeMap<String, String>) -> Option<ErrorFields> {
    let of = |name: &'static str| {
        let value = settings.get(name).filter(|value| is_refused_setting(name, value))?;
        Some(Misreading { name, value: value.clone() })
    };
    let found = of(STRINGS).or_else(|| of(ENCODING))?;
    let mut fields = found.to_fields();
    fields.fields.retain(|(code, _)| *code != b'H');
    let hint = format!("ALTER ROLE (or DATABASE) … RESET {}.", found.name);
    Some(fields.with(b'H', hint))
}

/// A server that reads texts differently from the gateway, by its own report.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Misreading {
    name: &'static str,
    value: String,
}

impl Misreading {
    /// What a reported setting says about that.
    pub fn reported(name: &str, value: &str) -> Option<Self> {
        let (name, is_right) = match name {
            STRINGS => (STRINGS, value == "on"),
            // Servers do not convert SQL_ASCII; what is in a statement must be of their own encoding.
            ENCODING => (ENCODING, matches!(value, "UTF8" | "SQL_ASCII")),
            _ => return None,
        };
        (!is_right).then(|| Self { name, value: value.to_owned() })
    }

    /// As the client is told.
    pub fn to_fields(&self) -> ErrorFields {
        let Self { name, value } = self;
        let hint = match *name {
            STRINGS => "Leave it on, and write E'...' where backslashes shall escape.",
            _ => "Use UTF8.",
        };
        ErrorFields::fatal("0A000", format!("{name} = {value} is not supported"))
            .with(
                b'D',
                "The gateway and the nodes would read different statements out of one text.",
            )
            .with(b'H', hint)
    }
}

/// Whether a client explicitly sets what would make a server unusable. `value`: as written, with whatever is
/// around it; an unrecognised value is left to the server.
pub fn is_refused_setting(name: &str, value: &str) -> bool {
    let word = value
        .rsplit(|c: char| c.is_whitespace() || matches!(c, '=' | '\'' | '"' | ';'))
        .find(|word| !word.is_empty())
        .unwrap_or_default()
        .to_ascii_lowercase();
    match name {
        STRINGS => {
            ["off", "no", "0", "false", "f", "n", "fa", "fal", "fals", "of"].contains(&&*word)
        }
        ENCODING => {
            let word = word.replace(['-', '_'], "");
            !["utf8", "unicode", "sqlascii", "default"].iter().any(|known| word.contains(known))
        }
        _ => false,
    }
}

/// Whether a server with other settings could read a text differently: all encodings contain ASCII,
/// and a string without a backslash ends at the same place.
pub fn may_mean_more(text: &str) -> bool {
    text.bytes().any(|byte| byte == b'\\' || !byte.is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_decides() {
        assert_eq!(Misreading::reported("standard_conforming_strings", "on"), None);
        assert_eq!(Misreading::reported("client_encoding", "UTF8"), None);
        assert_eq!(Misreading::reported("DateStyle", "German"), None);
        assert!(Misreading::reported("standard_conforming_strings", "off").is_some());
        assert!(Misreading::reported("client_encoding", "SJIS").is_some());
    }

    #[test]
    fn settings_are_recognised_as_they_are_written() {
        for text in
            ["SET standard_conforming_strings = off", "set x to 'OFF' ;", "SET x=0", "false"]
        {
            assert!(is_refused_setting("standard_conforming_strings", text), "{text}");
        }
        for text in ["SET x = on", "SET x TO DEFAULT", "1", "SET LOCAL x = 'yes'"] {
            assert!(!is_refused_setting("standard_conforming_strings", text), "{text}");
        }
        assert!(is_refused_setting("client_encoding", "SET NAMES 'latin1'"));
        assert!(!is_refused_setting("client_encoding", "SET client_encoding TO 'utf-8'"));
    }

    #[test]
    fn a_plain_text_means_one_thing() {
        assert!(!may_mean_more("SELECT 'it''s'"));
        assert!(may_mean_more(r"SELECT '\'"));
        assert!(may_mean_more("SELECT 'ö'"));
    }
}
