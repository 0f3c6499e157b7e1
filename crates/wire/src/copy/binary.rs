//! Binary format: where its rows end, their fields, and further fields for them.
//!
//! Owns: signature, header, rows and trailer. Never: looks into a value.
//!
//! Source: PostgreSQL manual, "COPY", "Binary Format"; `src/backend/commands/copyfromparse.c`
//! (`ReceiveCopyBinaryHeader`, `NextCopyFrom`, `CopyReadBinaryAttribute`).

use std::borrow::Cow;

use super::CopyError;
use super::scan::{PieceKind, ROW_BYTES_MAX, Scan};

/// With which the data begins.
pub const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// Length of the signature, the flags and an extension that is empty, as servers send them, in bytes.
pub const HEADER_LEN: usize = 19;
/// A field count of -1, with which the data ends.
pub const TRAILER: [u8; 2] = [0xff, 0xff];
/// Signature, flags, and the length of what the header may still have.
const HEADER_LEN_MIN: usize = SIGNATURE.len() + 8;
const FLAG_OIDS: u32 = 1 << 16;
/// Flags above must be understood, those below need not.
const FLAGS_CRITICAL: u32 = 0xffff_0000;

/// Finds the end of the header, then of one row after the other.
#[derive(Debug)]
pub(super) struct TupleScanner {
    header_seen: bool,
    /// How many bytes the current piece has at least.
    len_min: usize,
    /// Fields of the current row from `len_min` on; `None` before their number is known.
    fields_left: Option<i16>,
}

impl TupleScanner {
    pub(super) fn new() -> Self {
        Self { header_seen: false, len_min: HEADER_LEN_MIN, fields_left: None }
    }

    /// How many bytes are missing at least after `known` ones.
    pub(super) fn wanted(&self, known: usize) -> usize {
        self.len_min.saturating_sub(known)
    }

    /// Looks for the end of the header or row that `bytes` begins with.
    ///
    /// After `Incomplete`, the next call must be given the same bytes and more, or the same bytes
    /// and `at_end`: no more will come.
    pub(super) fn scan(&mut self, bytes: &[u8], at_end: bool) -> Result<Scan, CopyError> {
        let scan = if self.header_seen { self.scan_row(bytes)? } else { self.scan_header(bytes)? };
        match scan {
            Scan::Found { .. } => {
                self.header_seen = true;
                self.len_min = 2;
                self.fields_left = None;
            }
            Scan::Incomplete if at_end && !self.header_seen => {
                let in_signature = bytes.len() < SIGNATURE.len();
                return Err(match in_signature {
                    true => CopyError::SignatureNotRecognized,
                    false => CopyError::HeaderLength,
                });
            }
            Scan::Incomplete if at_end && !bytes.is_empty() => {
                return Err(CopyError::UnexpectedEnd);
            }
            Scan::Incomplete => (),
        }
        Ok(scan)
    }

    fn scan_header(&mut self, bytes: &[u8]) -> Result<Scan, CopyError> {
        let compared = bytes.len().min(SIGNATURE.len());
        if bytes[..compared] != SIGNATURE[..compared] {
            return Err(CopyError::SignatureNotRecognized);
        }
        if bytes.len() < HEADER_LEN_MIN {
            return Ok(Scan::Incomplete);
        }
        let flags = i32_at(bytes, SIGNATURE.len())? as u32;
        if flags & FLAG_OIDS != 0 {
            return Err(CopyError::HeaderWithOids);
        }
        if flags & FLAGS_CRITICAL != 0 {
            return Err(CopyError::HeaderFlags);
        }
        let extension_len = usize::try_from(i32_at(bytes, SIGNATURE.len() + 4)?)
            .map_err(|_| CopyError::HeaderLength)?;
        self.len_min = HEADER_LEN_MIN + extension_len;
        Ok(self.found_or_incomplete(PieceKind::Header, bytes))
    }

    fn scan_row(&mut self, bytes: &[u8]) -> Result<Scan, CopyError> {
        if bytes.len() < self.len_min {
            return Ok(Scan::Incomplete);
        }
        let mut fields_left = match self.fields_left {
            Some(fields_left) => fields_left,
            None => match i16_at(bytes, 0)? {
                -1 => return Ok(Scan::Found { kind: PieceKind::End, len: 2 }),
                count if count < 0 => return Err(CopyError::InvalidFieldCount { count }),
                count => count,
            },
        };
        while 0 < fields_left {
            match field_at(bytes, self.len_min) {
                // A field's size is the only thing that can be cut here.
                Err(CopyError::UnexpectedEnd) => break,
                Err(error) => return Err(error),
                Ok(field) => self.len_min = field.end,
            }
            fields_left -= 1;
            if bytes.len() < self.len_min {
                break;
            }
        }
        if ROW_BYTES_MAX < self.len_min {
            return Err(CopyError::RowTooLong);
        }
        self.fields_left = Some(fields_left);
        if 0 < fields_left {
            return Ok(Scan::Incomplete);
        }
        Ok(self.found_or_incomplete(PieceKind::Row, bytes))
    }

    fn found_or_incomplete(&self, kind: PieceKind, bytes: &[u8]) -> Scan {
        if bytes.len() < self.len_min {
            return Scan::Incomplete;
        }
        Scan::Found { kind, len: self.len_min }
    }
}

/// Where a field's value lies, `start == end` for NULL; the next field begins at `end`.
struct Field {
    start: usize,
    end: usize,
    null: bool,
}

/// The field whose size stands at `at`; its value may reach beyond the bytes at hand.
fn field_at(bytes: &[u8], at: usize) -> Result<Field, CopyError> {
    let start = at + 4;
    match i32_at(bytes, at)? {
        -1 => Ok(Field { start, end: start, null: true }),
        size => {
            let size = usize::try_from(size).map_err(|_| CopyError::InvalidFieldSize)?;
            Ok(Field { start, end: start + size, null: false })
        }
    }
}

pub(super) fn field(row: &[u8], index: usize) -> Result<Option<Cow<'_, [u8]>>, CopyError> {
    let count = i16_at(row, 0)?;
    if usize::try_from(count).map_or(true, |count| count <= index) {
        return Err(CopyError::MissingField { index });
    }
    let mut field = field_at(row, 2)?;
    for _ in 0..index {
        field = field_at(row, field.end)?;
    }
    if field.null {
        return Ok(None);
    }
    let value = row.get(field.start..field.end).ok_or(CopyError::UnexpectedEnd)?;
    Ok(Some(Cow::Borrowed(value)))
}

pub(super) fn append_fields(row: &[u8], fields: &[Option<&[u8]>]) -> Result<Vec<u8>, CopyError> {
    let count = i16_at(row, 0)?;
    let count = i16::try_from(fields.len())
        .ok()
        .and_then(|more| count.checked_add(more))
        .ok_or(CopyError::TooManyFields)?;
    let mut longer = count.to_be_bytes().to_vec();
    longer.extend_from_slice(&row[2..]);
    for field in fields {
        match field {
            None => longer.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(value) => {
                let size = i32::try_from(value.len()).map_err(|_| CopyError::RowTooLong)?;
                longer.extend_from_slice(&size.to_be_bytes());
                longer.extend_from_slice(value);
            }
        }
    }
    Ok(longer)
}

fn i16_at(bytes: &[u8], at: usize) -> Result<i16, CopyError> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map(|word| i16::from_be_bytes(*word)).ok_or(CopyError::UnexpectedEnd)
}

fn i32_at(bytes: &[u8], at: usize) -> Result<i32, CopyError> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map(|word| i32::from_be_bytes(*word)).ok_or(CopyError::UnexpectedEnd)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &[u8] = b"\x00\x03\x00\x00\x00\x02ab\xff\xff\xff\xff\x00\x00\x00\x00";

    #[test]
    fn fields_are_counted_and_sized() {
        assert_eq!(field(ROW, 0), Ok(Some(Cow::Borrowed(&b"ab"[..]))));
        assert_eq!(field(ROW, 1), Ok(None));
        assert_eq!(field(ROW, 2), Ok(Some(Cow::Borrowed(&b""[..]))));
        assert_eq!(field(ROW, 3), Err(CopyError::MissingField { index: 3 }));
        assert_eq!(field(&ROW[..7], 0), Err(CopyError::UnexpectedEnd));
        assert_eq!(field(b"", 0), Err(CopyError::UnexpectedEnd));
    }

    #[test]
    fn appended_fields_are_counted() {
        let longer = append_fields(ROW, &[Some(b"x"), None]).expect("a row");
        assert_eq!(longer[..2], [0, 5]);
        assert_eq!(field(&longer, 0), field(ROW, 0));
        assert_eq!(field(&longer, 3), Ok(Some(Cow::Borrowed(&b"x"[..]))));
        assert_eq!(field(&longer, 4), Ok(None));
        assert_eq!(append_fields(b"\x7f\xff", &[None]), Err(CopyError::TooManyFields));
    }
}
