//! How the data of a COPY is written: its format, and the format's options.
//!
//! Owns: PostgreSQL's defaults. Never: reads options (see `options`) or data.

/// How the data of one COPY is written. Made by [`CopyFormat::from_options`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CopyFormat {
    /// `FORMAT text`, the default.
    Text(TextFormat),
    /// `FORMAT csv`.
    Csv(CsvFormat),
    /// `FORMAT binary`.
    Binary,
}

/// Options of text format; the default is PostgreSQL's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TextFormat {
    /// Stands between fields.
    pub delimiter: u8,
    /// What NULL looks like before escapes are undone.
    pub null: Vec<u8>,
    /// What the column's default looks like, if that can be asked for (PostgreSQL 16).
    pub default: Option<Vec<u8>>,
    /// Whether the first line is a header and no row.
    pub header: bool,
}

impl Default for TextFormat {
    fn default() -> Self {
        Self { delimiter: b'\t', null: b"\\N".to_vec(), default: None, header: false }
    }
}

/// Options of CSV format; the default is PostgreSQL's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CsvFormat {
    /// Stands between fields.
    pub delimiter: u8,
    /// Stands around fields that need it.
    pub quote: u8,
    /// Stands before a quote or itself within a quoted field. Equal to the quote by default.
    pub escape: u8,
    /// What NULL looks like; never quoted.
    pub null: Vec<u8>,
    /// What the column's default looks like, if that can be asked for (PostgreSQL 16).
    pub default: Option<Vec<u8>>,
    /// Whether the first line is a header and no row.
    pub header: bool,
    /// Fields that are NULL also when the NULL string is quoted.
    pub force_null: FieldSet,
    /// Fields that are never NULL: there the NULL string is a value.
    pub force_not_null: FieldSet,
    /// Whether a line `\.` ends the data: true for servers up to 17; for 18 and later it is a row.
    pub end_marker: bool,
}

impl Default for CsvFormat {
    fn default() -> Self {
        Self {
            delimiter: b',',
            quote: b'"',
            escape: b'"',
            null: Vec::new(),
            default: None,
            header: false,
            force_null: FieldSet::None,
            force_not_null: FieldSet::None,
            end_marker: true,
        }
    }
}

/// Some of a row's fields.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FieldSet {
    /// No field.
    None,
    /// Every field.
    All,
    /// The fields with these indexes, counted from 0 in the data's order.
    Indexes(Vec<usize>),
}

impl FieldSet {
    pub(super) fn contains(&self, index: usize) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Indexes(indexes) => indexes.contains(&index),
        }
    }
}

impl CopyFormat {
    pub(super) fn has_header_line(&self) -> bool {
        match self {
            Self::Text(format) => format.header,
            Self::Csv(format) => format.header,
            Self::Binary => false,
        }
    }
}
