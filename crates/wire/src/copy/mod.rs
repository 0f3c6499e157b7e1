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
mod format;
mod line;
mod options;
mod scan;
mod splitter;
mod text;

use std::borrow::Cow;

pub use self::binary::{
    HEADER_LEN as BINARY_HEADER_LEN, SIGNATURE as BINARY_SIGNATURE, TRAILER as BINARY_TRAILER,
};
pub use self::error::CopyError;
pub use self::format::{CopyFormat, CsvFormat, FieldSet, TextFormat};
pub use self::splitter::{CopyPiece, RowSplitter};

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
}
