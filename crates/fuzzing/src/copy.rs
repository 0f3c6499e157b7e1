//! Checks of the splitter of COPY data and of what reads and extends rows.
//!
//! Owns: what holds for every stream in every format: its pieces are the stream, however it
//! arrives; a field that was appended to a row is read back.
//! Never: compares with a server; `tests/tests/answers/copy.rs` does.

use bytes::Bytes;
use tutti_wire::copy::{
    CopyError, CopyFormat, CopyPiece, CsvFormat, FieldSet, RowSplitter, TextFormat,
};

/// More fields than this are not checked one by one: each costs a pass over all before it.
const FIELDS_MAX: usize = 40;

/// Text format; the first byte chooses options, the second how the stream arrives.
pub fn text(data: &[u8]) {
    let [options, chunk_len, stream @ ..] = data else { return };
    let usual = TextFormat::default();
    let format = TextFormat {
        delimiter: if options & 1 == 0 { usual.delimiter } else { b'|' },
        null: if options & 2 == 0 { usual.null } else { Vec::new() },
        default: (options & 4 != 0).then(|| b"\\D".to_vec()),
        header: options & 8 != 0,
    };
    check(&CopyFormat::Text(format), *chunk_len, stream);
}

/// CSV; the first byte chooses options, the second how the stream arrives.
pub fn csv(data: &[u8]) {
    let [options, chunk_len, stream @ ..] = data else { return };
    let usual = CsvFormat::default();
    let format = CsvFormat {
        delimiter: if options & 1 == 0 { usual.delimiter } else { b';' },
        escape: if options & 2 == 0 { usual.escape } else { b'\\' },
        null: if options & 4 == 0 { usual.null } else { b"N".to_vec() },
        header: options & 8 != 0,
        end_marker: options & 16 == 0,
        force_null: if options & 32 == 0 { FieldSet::None } else { FieldSet::All },
        ..usual
    };
    check(&CopyFormat::Csv(format), *chunk_len, stream);
}

/// Binary format; the first byte says how the stream arrives.
pub fn binary(data: &[u8]) {
    let [chunk_len, stream @ ..] = data else { return };
    check(&CopyFormat::Binary, *chunk_len, stream);
}

fn check(format: &CopyFormat, chunk_len: u8, stream: &[u8]) {
    let (pieces, error) = split(format, stream, stream.len());
    let in_chunks = split(format, stream, usize::from(chunk_len));
    assert_eq!(in_chunks, (pieces.clone(), error.clone()), "how a stream arrives changes nothing");
    let mut joined = Vec::new();
    for piece in &pieces {
        let (CopyPiece::Header(bytes) | CopyPiece::Row(bytes) | CopyPiece::End(bytes)) = piece;
        joined.extend_from_slice(bytes);
    }
    assert!(stream.starts_with(&joined), "pieces are the stream");
    let has_end = matches!(pieces.last(), Some(CopyPiece::End(_)));
    assert!(has_end || error.is_some() || joined == stream, "nothing is left out");
    for piece in &pieces {
        if let CopyPiece::Row(row) = piece {
            check_row(format, row);
        }
    }
    // Bytes that are no row are read or refused as well.
    let _ = format.field(stream, usize::from(chunk_len));
    let _ = format.append_fields(stream, &[Some(stream), None]);
}

/// A row's fields can be read; appended ones are read back, and the others stay the same.
fn check_row(format: &CopyFormat, row: &[u8]) {
    let mut fields = Vec::new();
    loop {
        match format.field(row, fields.len()) {
            Err(CopyError::MissingField { .. }) => break,
            // Such a row is for the server to refuse.
            Err(CopyError::FieldIsDefault { .. }) => fields.push(None),
            Err(_) => return,
            Ok(value) => fields.push(Some(value.map(|value| value.into_owned()))),
        }
        if FIELDS_MAX < fields.len() {
            return;
        }
    }
    let more: [Option<&[u8]>; 2] = [Some(b"a\t,\\\"\n|N"), None];
    let Ok(longer) = format.append_fields(row, &more) else { return };
    for (index, before) in fields.iter().enumerate() {
        if let Some(before) = before {
            let after = format.field(&longer, index).expect("the field was there");
            assert_eq!(after.as_deref(), before.as_deref(), "field {index} of {row:?}");
        }
    }
    for (index, value) in more.iter().enumerate() {
        let read = format.field(&longer, fields.len() + index).expect("the field was appended");
        assert_eq!(read.as_deref(), *value, "appended to {row:?}");
    }
}

/// The pieces up to the first error, and the error.
fn split(
    format: &CopyFormat,
    stream: &[u8],
    chunk_len: usize,
) -> (Vec<CopyPiece>, Option<CopyError>) {
    let mut splitter = RowSplitter::new(format);
    let mut pieces = Vec::new();
    for chunk in stream.chunks(chunk_len.max(1)) {
        splitter.push(Bytes::copy_from_slice(chunk));
        loop {
            match splitter.next_piece() {
                Ok(Some(piece)) => pieces.push(piece),
                Ok(None) => break,
                Err(error) => return (pieces, Some(error)),
            }
        }
    }
    match splitter.finish() {
        Ok(last) => pieces.extend(last),
        Err(error) => return (pieces, Some(error)),
    }
    (pieces, None)
}
