//! COPY … FROM STDIN: where the rows of a data stream begin and end, and what single fields hold.
//!
//! Owns: the three formats as PostgreSQL reads them, byte for byte, so that rows can be sent to
//! different nodes exactly as the client wrote them. Never: interprets a value, judges a row's
//! number of columns (the server that receives the row does), or copies a row that lies whole in
//! one chunk.
//!
//! Start reading at [`RowSplitter`] for the stream, at [`CopyFormat::field`] for a row.
//! Source: PostgreSQL `src/backend/commands/copyfromparse.c`; manual, "COPY", "File Formats".
//!
//! The stream must be in an encoding whose multi-byte characters have no ASCII bytes in them: every
//! server encoding, but not the client-only ones (SJIS, BIG5, GBK, UHC, JOHAB, GB18030, SHIFT_JIS_2004).

mod binary;
mod csv;
mod error;
mod line;
mod options;
mod splitter;
mod text;

use std::borrow::Cow;

pub use self::error::CopyError;
pub use self::splitter::{CopyPiece, RowSplitter};

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
    fn contains(&self, index: usize) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Indexes(indexes) => indexes.contains(&index),
        }
    }
}

impl CopyFormat {
    /// The value of one field of a row, escapes undone; `None` for NULL.
    ///
    /// `row` is a row from [`RowSplitter`], with or without its line end. `index` counts from 0.
    /// Text and CSV give the value's text form in the stream's encoding, binary its send format.
    /// Costs a look at everything before the field's end.
    ///
    /// Errors: `MissingField`: the row is too short. `FieldIsDefault`: the row asks for the
    /// column's default. Both only say that the value is not in the row: a server that is given
    /// the row accepts or refuses it. `UnterminatedQuote`, `UnexpectedEnd`, `InvalidFieldSize`:
    /// not a row of [`RowSplitter`].
    pub fn field<'r>(
        &self,
        row: &'r [u8],
        index: usize,
    ) -> Result<Option<Cow<'r, [u8]>>, CopyError> {
        match self {
            Self::Text(format) => text::field(format, row, index),
            Self::Csv(format) => csv::field(format, row, index),
            Self::Binary => binary::field(row, index),
        }
    }

    /// The row with further fields before its line end; `None` is NULL.
    ///
    /// Text and CSV take values in text form and escape them; binary takes them in send format. A
    /// header line is extended by its columns' names in the same way.
    ///
    /// Errors: `NotRepresentable`: the format's NULL string looks like the value whatever is done.
    /// `TooManyFields`: binary counts fields in 16 bits. `UnexpectedEnd`: not a row.
    pub fn append_fields(
        &self,
        row: &[u8],
        fields: &[Option<&[u8]>],
    ) -> Result<Vec<u8>, CopyError> {
        match self {
            Self::Text(format) => text::append_fields(format, row, fields),
            Self::Csv(format) => csv::append_fields(format, row, fields),
            Self::Binary => binary::append_fields(row, fields),
        }
    }

    fn has_header_line(&self) -> bool {
        match self {
            Self::Text(format) => format.header,
            Self::Csv(format) => format.header,
            Self::Binary => false,
        }
    }
}
