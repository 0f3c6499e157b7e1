//! What a look at the bytes of a COPY stream finds, in every format.
//!
//! Owns: the words that the scanners of lines and tuples share with the splitter. Never: looks itself.

/// Rows that PostgreSQL could hold are shorter (`MaxAllocSize`).
pub(super) const ROW_BYTES_MAX: usize = 0x3fff_ffff;

/// What the bytes at hand begin with.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Scan {
    Found { kind: PieceKind, len: usize },
    Incomplete,
}

/// A [`CopyPiece`](super::CopyPiece) without its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PieceKind {
    Header,
    Row,
    End,
}
