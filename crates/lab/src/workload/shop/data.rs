//! What each item of the shop carries besides its numbers.
//!
//! Owns: the kinds, and values of any size in SQL. Never: knows a table.

use rand::Rng;
use rand::rngs::StdRng;

/// Kinds of data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "bench", derive(clap::ValueEnum))]
pub enum Data {
    /// Letters
    Text,
    /// A JSON object, which is parsed and indexed by nothing
    Json,
    /// Bytes
    Binary,
}

impl Data {
    /// As it is written on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Binary => "binary",
        }
    }

    pub(super) fn sql_type(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "jsonb",
            Self::Binary => "bytea",
        }
    }

    /// So many bytes that depend on the integer that `number` is in SQL.
    pub(super) fn sql_value(self, number: &str, bytes: u32) -> String {
        // Of hash values, for what is all alike is compressed to nothing.
        let letters = format!(
            "left((SELECT coalesce(string_agg(md5(({number} + n)::text), ''), '') FROM generate_series(1, {}) n), \
             {bytes})",
            bytes.div_ceil(32)
        );
        match self {
            Self::Text => letters,
            Self::Json => format!("jsonb_build_object('about', {letters})"),
            Self::Binary => format!("convert_to({letters}, 'SQL_ASCII')"),
        }
    }

    /// So many bytes by chance, as a literal.
    pub(super) fn literal(self, random: &mut StdRng, bytes: u32) -> String {
        let letters: String = (0..bytes).map(|_| random.random_range('a'..='z')).collect();
        match self {
            Self::Text => format!("'{letters}'"),
            Self::Json => format!("'{{\"about\": \"{letters}\"}}'"),
            Self::Binary => format!("'{letters}'::bytea"),
        }
    }
}
