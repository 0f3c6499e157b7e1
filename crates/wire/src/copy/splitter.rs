//! Cuts a COPY data stream, which arrives in chunks of any size, into rows.
//!
//! Owns: what is left over between chunks. Never: copies a row that lies whole in one chunk; of a
//! row that does not, every byte once.
//! Start reading at [`RowSplitter::next_piece`].

use bytes::Bytes;

use super::binary::TupleScanner;
use super::line::LineScanner;
use super::scan::{PieceKind, ROW_BYTES_MAX, Scan};
use super::{CopyError, CopyFormat};

/// A part of the stream, byte for byte. All pieces together are the stream, but for what text and
/// CSV data may have after their end marker, which is nothing to anybody.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CopyPiece {
    /// The header line, or the binary header. Every node whose COPY has the same options as the
    /// client's needs it before its first row, also if it gets no row.
    Header(Bytes),
    /// A row with its line end; the last one may lack that.
    Row(Bytes),
    /// The line `\.`, or the binary trailer. CopyDone says the same, so nobody needs it.
    End(Bytes),
}

/// Splits the data of one COPY into rows.
///
/// For each CopyData message: [`Self::push`], then [`Self::next_piece`] until it returns `None`.
/// At CopyDone: [`Self::finish`]. After an error the COPY has failed and every call returns the
/// error again.
#[derive(Debug)]
pub struct RowSplitter {
    scanner: Scanner,
    /// The beginning of a row that earlier chunks did not complete.
    pending: Vec<u8>,
    /// What follows `pending` and was not looked at.
    chunk: Bytes,
    state: State,
}

#[derive(Debug)]
enum Scanner {
    Lines(LineScanner),
    Tuples(TupleScanner),
}

/// In order; `Failed` can follow each.
#[derive(Debug)]
enum State {
    /// The next line is the header.
    HeaderLine,
    Rows,
    /// The end marker or trailer has been seen.
    Ended,
    Failed(CopyError),
}

impl RowSplitter {
    /// A splitter for the data of one COPY.
    pub fn new(format: &CopyFormat) -> Self {
        let scanner = match format {
            CopyFormat::Text(_) => Scanner::Lines(LineScanner::text()),
            CopyFormat::Csv(format) => Scanner::Lines(LineScanner::csv(format)),
            CopyFormat::Binary => Scanner::Tuples(TupleScanner::new()),
        };
        let state = if format.has_header_line() { State::HeaderLine } else { State::Rows };
        Self { scanner, pending: Vec::new(), chunk: Bytes::new(), state }
    }

    /// Takes the contents of one CopyData message.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            self.chunk = [&self.chunk[..], &chunk[..]].concat().into();
        }
    }

    /// The next part of the stream, or `None` if more data is needed.
    ///
    /// Errors: as the server would find them; send the client this one and fail the nodes' COPYs.
    pub fn next_piece(&mut self) -> Result<Option<CopyPiece>, CopyError> {
        self.guarded(|splitter| splitter.advance())
    }

    /// The last row, if it had no line end. Call it when the client has said CopyDone and
    /// [`Self::next_piece`] has returned `None`.
    ///
    /// Errors: as [`Self::next_piece`], also if the data is cut short.
    pub fn finish(&mut self) -> Result<Option<CopyPiece>, CopyError> {
        self.guarded(|splitter| {
            debug_assert!(splitter.chunk.is_empty(), "next_piece had not returned None");
            if let State::Ended = splitter.state {
                return Ok(None);
            }
            match splitter.scanner.scan(&splitter.pending, true)? {
                Scan::Incomplete => Ok(None),
                Scan::Found { kind, len } => {
                    debug_assert_eq!(len, splitter.pending.len(), "a whole row was left over");
                    let bytes = std::mem::take(&mut splitter.pending).into();
                    Ok(Some(splitter.piece(kind, bytes)))
                }
            }
        })
    }

    fn guarded(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<Option<CopyPiece>, CopyError>,
    ) -> Result<Option<CopyPiece>, CopyError> {
        if let State::Failed(error) = &self.state {
            return Err(error.clone());
        }
        work(self).inspect_err(|error| self.state = State::Failed(error.clone()))
    }

    fn advance(&mut self) -> Result<Option<CopyPiece>, CopyError> {
        while !self.chunk.is_empty() {
            if let State::Ended = self.state {
                // Text and CSV may have anything after their end marker; binary nothing.
                if let Scanner::Tuples(_) = self.scanner {
                    return Err(CopyError::DataAfterTrailer);
                }
                self.chunk.clear();
                return Ok(None);
            }
            if self.pending.is_empty() {
                match self.scanner.scan(&self.chunk, false)? {
                    Scan::Found { kind, len } => {
                        let bytes = self.chunk.split_to(len);
                        return Ok(Some(self.piece(kind, bytes)));
                    }
                    Scan::Incomplete => {
                        self.pending.extend_from_slice(&self.chunk);
                        self.chunk.clear();
                    }
                }
            } else {
                let known = self.pending.len();
                let wanted = self.scanner.wanted(known, &self.chunk);
                self.pending.extend_from_slice(&self.chunk[..wanted]);
                match self.scanner.scan(&self.pending, false)? {
                    Scan::Found { kind, len } => {
                        // Not all that was wanted need belong to the row, but all that was known
                        // does, or it would have been found before.
                        let taken = len.checked_sub(known).expect("a row ends in its last chunk");
                        self.pending.truncate(len);
                        let _ = self.chunk.split_to(taken);
                        let bytes = std::mem::take(&mut self.pending).into();
                        return Ok(Some(self.piece(kind, bytes)));
                    }
                    Scan::Incomplete => {
                        let _ = self.chunk.split_to(wanted);
                    }
                }
            }
            if ROW_BYTES_MAX < self.pending.len() {
                return Err(CopyError::RowTooLong);
            }
        }
        Ok(None)
    }

    fn piece(&mut self, kind: PieceKind, bytes: Bytes) -> CopyPiece {
        match (kind, &self.state) {
            (PieceKind::Row, State::HeaderLine) => {
                self.state = State::Rows;
                CopyPiece::Header(bytes)
            }
            (PieceKind::Header, _) => CopyPiece::Header(bytes),
            (PieceKind::Row, _) => CopyPiece::Row(bytes),
            (PieceKind::End, _) => {
                self.state = State::Ended;
                CopyPiece::End(bytes)
            }
        }
    }
}

impl Scanner {
    fn scan(&mut self, bytes: &[u8], at_end: bool) -> Result<Scan, CopyError> {
        match self {
            Self::Lines(lines) => lines.scan(bytes, at_end),
            Self::Tuples(tuples) => tuples.scan(bytes, at_end),
        }
    }

    /// How many bytes of `more`, at least 1, may complete what `known` bytes did not.
    fn wanted(&self, known: usize, more: &[u8]) -> usize {
        match self {
            Self::Lines(_) => LineScanner::wanted(more),
            Self::Tuples(tuples) => tuples.wanted(known).clamp(1, more.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{CsvFormat, TextFormat};
    use super::*;

    fn text() -> CopyFormat {
        CopyFormat::Text(TextFormat::default())
    }

    fn csv() -> CopyFormat {
        CopyFormat::Csv(CsvFormat::default())
    }

    /// Splits a stream that arrives in these chunks; pieces up to the first error, and the error.
    fn split(format: &CopyFormat, chunks: &[&[u8]]) -> (Vec<CopyPiece>, Option<CopyError>) {
        let mut splitter = RowSplitter::new(format);
        let mut pieces = Vec::new();
        for chunk in chunks {
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

    /// Pieces as text: `H` header, `R` row, `E` end.
    fn shown(pieces: &[CopyPiece]) -> Vec<String> {
        let show = |piece: &CopyPiece| match piece {
            CopyPiece::Header(bytes) => format!("H {}", bytes.escape_ascii()),
            CopyPiece::Row(bytes) => format!("R {}", bytes.escape_ascii()),
            CopyPiece::End(bytes) => format!("E {}", bytes.escape_ascii()),
        };
        pieces.iter().map(show).collect()
    }

    /// The stream in one chunk and in chunks of one byte.
    fn check(format: &CopyFormat, stream: &[u8], rows: &[&str], error: Option<CopyError>) {
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        for chunks in [&[stream][..], &single] {
            let (pieces, found) = split(format, chunks);
            assert_eq!(shown(&pieces), rows, "{}", stream.escape_ascii());
            assert_eq!(found, error, "{}", stream.escape_ascii());
        }
    }

    #[test]
    fn text_lines_end_where_nothing_escapes_the_end() {
        check(&text(), b"", &[], None);
        check(&text(), b"a\tb\nc\n", &["R a\\tb\\n", "R c\\n"], None);
        check(&text(), b"a\n\nb", &["R a\\n", "R \\n", "R b"], None);
        check(&text(), b"a\\\nb\nc", &["R a\\\\\\nb\\n", "R c"], None);
        check(&text(), b"a\\\\\nb\\", &["R a\\\\\\\\\\n", "R b\\\\"], None);
        check(&text(), b"a\r\nb\r\n", &["R a\\r\\n", "R b\\r\\n"], None);
        check(&text(), b"a\rb\r", &["R a\\r", "R b\\r"], None);
        check(&text(), b"a\\\r\nb\n", &["R a\\\\\\r\\n", "R b\\n"], None);
        check(&text(), b"\"a\nb\"\n", &["R \\\"a\\n", "R b\\\"\\n"], None);
    }

    #[test]
    fn line_ends_must_not_change() {
        let newline = |csv| Some(CopyError::NewlineInData { csv });
        let carriage_return = |csv| Some(CopyError::CarriageReturnInData { csv });
        check(&text(), b"a\nb\r\n", &["R a\\n"], carriage_return(false));
        check(&text(), b"a\r\nb\n", &["R a\\r\\n"], newline(false));
        check(&text(), b"a\r\nb\rc", &["R a\\r\\n"], carriage_return(false));
        check(&text(), b"a\r\nb\r", &["R a\\r\\n"], carriage_return(false));
        check(&csv(), b"a\rb\n", &["R a\\r"], newline(true));
        check(&csv(), b"a\nb\rc", &["R a\\n"], carriage_return(true));
    }

    #[test]
    fn the_text_end_marker_ends_everything() {
        check(&text(), b"a\n\\.\nb\rx", &["R a\\n", "E \\\\.\\n"], None);
        check(&text(), b"a\r\n\\.\r\nb", &["R a\\r\\n", "E \\\\.\\r\\n"], None);
        check(&text(), b"\\\\.\n", &["R \\\\\\\\.\\n"], None);
        check(&text(), b"\\.x\n", &[], Some(CopyError::EndMarkerCorrupt));
        check(&text(), b"\\.", &[], Some(CopyError::EndMarkerCorrupt));
        check(&text(), b"a\\.\n", &[], Some(CopyError::EndMarkerNotAlone));
        check(&text(), b"a\r\n\\.\n", &["R a\\r\\n"], Some(CopyError::EndMarkerNewlineDiffers));
    }

    #[test]
    fn csv_lines_end_outside_quotes() {
        check(&csv(), b"a,\"b\nc\"\nd\n", &["R a,\\\"b\\nc\\\"\\n", "R d\\n"], None);
        check(&csv(), b"\"\"\"\n\"\"\"\nd", &["R \\\"\\\"\\\"\\n\\\"\\\"\\\"\\n", "R d"], None);
        check(&csv(), b"\"\r\"\n", &["R \\\"\\r\\\"\\n"], None);
        check(&csv(), b"a\\\nb\n", &["R a\\\\\\n", "R b\\n"], None);
        check(&csv(), b"a\n\"b\n", &["R a\\n"], Some(CopyError::UnterminatedQuote));
        let escaping = CopyFormat::Csv(CsvFormat { escape: b'\\', ..CsvFormat::default() });
        check(&escaping, b"\"\\\"\n\"\n", &["R \\\"\\\\\\\"\\n\\\"\\n"], None);
        check(&escaping, b"\"\\\\\"\nx\n", &["R \\\"\\\\\\\\\\\"\\n", "R x\\n"], None);
        check(&escaping, b"\"\\", &[], Some(CopyError::UnterminatedQuote));
    }

    #[test]
    fn the_csv_end_marker_stands_alone_on_its_line() {
        check(&csv(), b"a\n\\.\nb\n", &["R a\\n", "E \\\\.\\n"], None);
        check(&csv(), b"\\.,b\n\\.", &["R \\\\.,b\\n", "R \\\\."], None);
        check(&csv(), b"a\\.\n", &["R a\\\\.\\n"], None);
        let newer = CopyFormat::Csv(CsvFormat { end_marker: false, ..CsvFormat::default() });
        check(&newer, b"\\.\nb\n", &["R \\\\.\\n", "R b\\n"], None);
    }

    #[test]
    fn a_header_line_is_no_row() {
        let format = CopyFormat::Csv(CsvFormat { header: true, ..CsvFormat::default() });
        check(&format, b"\"a\nb\"\n1\n", &["H \\\"a\\nb\\\"\\n", "R 1\\n"], None);
        check(&format, b"a", &["H a"], None);
        let format = CopyFormat::Text(TextFormat { header: true, ..TextFormat::default() });
        check(&format, b"a\nb", &["H a\\n", "R b"], None);
    }

    const BINARY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\x03ext";

    fn binary(rest: &[u8]) -> Vec<u8> {
        [BINARY_HEADER, rest].concat()
    }

    #[test]
    fn binary_rows_are_counted_and_sized() {
        let header = format!("H {}", BINARY_HEADER.escape_ascii());
        let row = b"\0\x02\0\0\0\x02\n\n\xff\xff\xff\xff";
        let row_shown = format!("R {}", row.escape_ascii());
        let two_rows = binary(&[&row[..], row, b"\xff\xff"].concat());
        let pieces = [header.as_str(), &row_shown, &row_shown, "E \\xff\\xff"];
        check(&CopyFormat::Binary, &two_rows, &pieces, None);
        check(&CopyFormat::Binary, &two_rows[..two_rows.len() - 2], &pieces[..3], None);
        check(&CopyFormat::Binary, &binary(b"\0\0"), &[&header, "R \\x00\\x00"], None);
        let failures: [(&[u8], CopyError); 6] = [
            (b"\0\x01\0\0", CopyError::UnexpectedEnd),
            (b"\0\x01\0\0\0\x02a", CopyError::UnexpectedEnd),
            (b"\0", CopyError::UnexpectedEnd),
            (b"\0\x01\xff\xff\xff\xfe", CopyError::InvalidFieldSize),
            (b"\xff\xfe", CopyError::InvalidFieldCount { count: -2 }),
            (b"\0\x01\x7f\xff\xff\xff", CopyError::RowTooLong),
        ];
        for (rest, error) in failures {
            check(&CopyFormat::Binary, &binary(rest), &[&header], Some(error));
        }
        check(
            &CopyFormat::Binary,
            &binary(b"\xff\xff\0"),
            &[&header, "E \\xff\\xff"],
            Some(CopyError::DataAfterTrailer),
        );
    }

    #[test]
    fn binary_headers_are_understood_or_refused() {
        let cases: [(&[u8], CopyError); 6] = [
            (b"", CopyError::SignatureNotRecognized),
            (b"PGCOPY\n\n", CopyError::SignatureNotRecognized),
            (b"PGCOPY\n\xff\r\n\0\0\0", CopyError::HeaderLength),
            (b"PGCOPY\n\xff\r\n\0\0\x01\0\0\0\0\0\0", CopyError::HeaderWithOids),
            (b"PGCOPY\n\xff\r\n\0\x80\0\0\0\0\0\0\0", CopyError::HeaderFlags),
            (b"PGCOPY\n\xff\r\n\0\0\0\0\0\xff\0\0\0", CopyError::HeaderLength),
        ];
        for (stream, error) in cases {
            check(&CopyFormat::Binary, stream, &[], Some(error));
        }
    }

    #[test]
    fn whole_rows_are_not_copied() {
        let chunk = Bytes::from_static(b"first\nsecond\n");
        let mut splitter = RowSplitter::new(&text());
        splitter.push(chunk.clone());
        let Ok(Some(CopyPiece::Row(row))) = splitter.next_piece() else { panic!("a row") };
        assert_eq!(row.as_ptr(), chunk.as_ptr());
    }

    #[test]
    fn an_error_stays() {
        let mut splitter = RowSplitter::new(&text());
        splitter.push(Bytes::from_static(b"\\.x\n"));
        assert_eq!(splitter.next_piece(), Err(CopyError::EndMarkerCorrupt));
        assert_eq!(splitter.next_piece(), Err(CopyError::EndMarkerCorrupt));
        assert_eq!(splitter.finish(), Err(CopyError::EndMarkerCorrupt));
    }

    fn any_format() -> impl Strategy<Value = CopyFormat> {
        let escaping =
            CsvFormat { quote: b'\'', escape: b'\\', header: true, ..CsvFormat::default() };
        prop::sample::select(vec![text(), csv(), CopyFormat::Csv(escaping), CopyFormat::Binary])
    }

    fn cut(stream: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| stream[pair[0]..pair[1]].to_vec()).collect()
    }

    /// Any cutting gives the same pieces and the same error, and the pieces are the stream.
    fn check_cut(format: &CopyFormat, stream: &[u8], cuts: &[usize]) -> Result<(), TestCaseError> {
        let chunks = cut(stream, cuts);
        let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let (pieces, error) = split(format, &chunks);
        prop_assert_eq!(
            (&pieces, &error),
            (&split(format, &[stream]).0, &split(format, &[stream]).1)
        );
        let joined: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| match piece {
                CopyPiece::Header(bytes) | CopyPiece::Row(bytes) | CopyPiece::End(bytes) => {
                    bytes.to_vec()
                }
            })
            .collect();
        prop_assert!(stream.starts_with(&joined));
        let ended = matches!(pieces.last(), Some(CopyPiece::End(_)));
        prop_assert!(ended || error.is_some() || joined == stream);
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn cutting_changes_nothing_in_lines(
            format in any_format(),
            stream in "[ab.,\t'\"\\\\\n\r]{0,40}",
            cuts in prop::collection::vec(any::<usize>(), 0..8),
        ) {
            check_cut(&format, stream.as_bytes(), &cuts)?;
        }

        #[test]
        fn cutting_changes_nothing_in_ordinary_lines(
            format in any_format(),
            lines in prop::collection::vec("(a|\\\\n|'[b\n]*'|\"[b\n,]*\"|,|\t|\\\\\\\\){0,6}", 0..8),
            line_end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
            cuts in prop::collection::vec(any::<usize>(), 0..8),
        ) {
            check_cut(&format, lines.join(line_end).as_bytes(), &cuts)?;
        }

        #[test]
        fn cutting_changes_nothing_in_tuples(
            rows in prop::collection::vec(
                prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..9)), 0..5),
                0..6,
            ),
            tail in prop::sample::select(vec![&b""[..], b"\xff\xff", b"\0", b"\0\x01\0\0\0\x05abc"]),
            cuts in prop::collection::vec(any::<usize>(), 0..8),
        ) {
            let mut stream = BINARY_HEADER.to_vec();
            for row in &rows {
                let fields: Vec<Option<&[u8]>> = row.iter().map(Option::as_deref).collect();
                stream.extend(CopyFormat::Binary.append_fields(b"\0\0", &fields)?);
            }
            stream.extend_from_slice(tail);
            check_cut(&CopyFormat::Binary, &stream, &cuts)?;
        }

        #[test]
        fn nothing_panics(
            format in any_format(),
            row in prop::collection::vec(any::<u8>(), 0..30),
            index in 0..4_usize,
        ) {
            let _ = format.field(&row, index);
            let _ = format.append_fields(&row, &[Some(b"x"), None]);
            let _ = split(&format, &[&row]);
        }
    }
}
