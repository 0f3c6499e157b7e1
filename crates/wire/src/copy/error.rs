//! What can be wrong with a COPY data stream.
//!
//! Owns: the errors, in the words and codes of the server that would have found them. Never:
//! counts lines; whoever reads the rows knows which one it is at.

/// Why a COPY stream or a row of it could not be taken apart.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A carriage return that neither ends a line as the first line ended nor is escaped.
    #[error("{} carriage return found in data", if *csv { "unquoted" } else { "literal" })]
    CarriageReturnInData {
        /// Whether the format is CSV.
        csv: bool,
    },
    /// A newline that does not end a line as the first line ended, nor is escaped.
    #[error("{} newline found in data", if *csv { "unquoted" } else { "literal" })]
    NewlineInData {
        /// Whether the format is CSV.
        csv: bool,
    },
    /// `\.` with something after it.
    #[error("end-of-copy marker corrupt")]
    EndMarkerCorrupt,
    /// `\.` with something before it. (PostgreSQL 16 and older took that something as a row.)
    #[error("end-of-copy marker is not alone on its line")]
    EndMarkerNotAlone,
    /// `\.` with another line end than the first line's.
    #[error("end-of-copy marker does not match previous newline style")]
    EndMarkerNewlineDiffers,
    /// The data ended within quotes.
    #[error("unterminated CSV quoted field")]
    UnterminatedQuote,
    /// Binary data that does not begin with PostgreSQL's signature.
    #[error("COPY file signature not recognized")]
    SignatureNotRecognized,
    /// Binary data with row oids, which PostgreSQL 12 gave up.
    #[error("invalid COPY file header (WITH OIDS)")]
    HeaderWithOids,
    /// Binary data with a flag in its header that must be understood and is not.
    #[error("unrecognized critical flags in COPY file header")]
    HeaderFlags,
    /// Binary data whose header is cut or has a negative length.
    #[error("invalid COPY file header (wrong length)")]
    HeaderLength,
    /// Binary data with a negative number of fields other than the trailer's -1.
    #[error("row field count is {count}")]
    InvalidFieldCount {
        /// The number found.
        count: i16,
    },
    /// Binary data with a negative field size other than NULL's -1.
    #[error("invalid field size")]
    InvalidFieldSize,
    /// The data ended within a binary row.
    #[error("unexpected EOF in COPY data")]
    UnexpectedEnd,
    /// Binary data goes on after its trailer.
    #[error("received copy data after EOF marker")]
    DataAfterTrailer,
    /// A row longer than any PostgreSQL value may be.
    #[error("COPY row is longer than 1 GB")]
    RowTooLong,
    /// The row has no field with this index.
    #[error("missing data for column {}", index + 1)]
    MissingField {
        /// Counted from 0.
        index: usize,
    },
    /// The field stands for its column's default, which is not in the row.
    #[error("column {} asks for its default", index + 1)]
    FieldIsDefault {
        /// Counted from 0.
        index: usize,
    },
    /// A value to be appended would be read as NULL or default, or NULL as a value.
    #[error("a value cannot be told from NULL in this COPY format")]
    NotRepresentable,
    /// More fields than a row can have.
    #[error("too many fields in a COPY row")]
    TooManyFields,
    /// An option of COPY has a value that PostgreSQL would not accept either.
    #[error("invalid value for COPY option \"{name}\": \"{value}\"")]
    InvalidOption {
        /// The option's name, lower case.
        name: String,
        /// Its value as written.
        value: String,
    },
}

impl CopyError {
    /// SQLSTATE of the error that the client receives (PostgreSQL manual, appendix A).
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::CarriageReturnInData { .. }
            | Self::NewlineInData { .. }
            | Self::EndMarkerCorrupt
            | Self::EndMarkerNotAlone
            | Self::EndMarkerNewlineDiffers
            | Self::UnterminatedQuote
            | Self::SignatureNotRecognized
            | Self::HeaderWithOids
            | Self::HeaderFlags
            | Self::HeaderLength
            | Self::InvalidFieldCount { .. }
            | Self::InvalidFieldSize
            | Self::UnexpectedEnd
            | Self::DataAfterTrailer
            | Self::MissingField { .. } => "22P04",
            Self::RowTooLong | Self::TooManyFields => "54000",
            Self::FieldIsDefault { .. } | Self::NotRepresentable => "0A000",
            Self::InvalidOption { .. } => "22023",
        }
    }

    /// The hint that PostgreSQL gives with the error, if it gives one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::CarriageReturnInData { csv: false } => {
                Some("Use \"\\r\" to represent carriage return.")
            }
            Self::CarriageReturnInData { csv: true } => {
                Some("Use quoted CSV field to represent carriage return.")
            }
            Self::NewlineInData { csv: false } => Some("Use \"\\n\" to represent newline."),
            Self::NewlineInData { csv: true } => Some("Use quoted CSV field to represent newline."),
            _ => None,
        }
    }
}
