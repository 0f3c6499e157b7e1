//! Where the lines of text and CSV format end.
//!
//! Owns: line ends of the three styles, the backslash of text format, the quotes of CSV, and the
//! end-of-copy marker. Never: splits fields.
//!
//! Source: PostgreSQL `src/backend/commands/copyfromparse.c` (`CopyReadLineText`).

use memchr::{memchr, memchr2, memchr3};

use super::scan::{PieceKind, Scan};
use super::{CopyError, CsvFormat};

/// How the first line ended; all others must end the same way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LineEnd {
    Unknown,
    Newline,
    CarriageReturn,
    Both,
}

/// The bytes that matter to CSV's lines.
#[derive(Clone, Copy, Debug)]
struct Quoting {
    quote: u8,
    /// Only if it is another byte than the quote: a doubled quote opens again what it closed.
    escape: Option<u8>,
    end_marker: bool,
}

/// Finds the end of one line after the other.
#[derive(Debug)]
pub(super) struct LineScanner {
    /// `None` in text format.
    quoting: Option<Quoting>,
    line_end: LineEnd,
    /// How much of the current line needs no second look.
    scanned: usize,
    /// Whether the byte after `scanned` stands within CSV quotes.
    in_quotes: bool,
}

/// What follows `\.` at the beginning of a line.
enum MarkerEnd {
    Found { len: usize },
    Unknown,
    Corrupt,
    NewlineDiffers,
}

impl LineScanner {
    pub(super) fn text() -> Self {
        Self { quoting: None, line_end: LineEnd::Unknown, scanned: 0, in_quotes: false }
    }

    pub(super) fn csv(format: &CsvFormat) -> Self {
        let quoting = Quoting {
            quote: format.quote,
            escape: (format.escape != format.quote).then_some(format.escape),
            end_marker: format.end_marker,
        };
        Self { quoting: Some(quoting), ..Self::text() }
    }

    /// Looks for the end of the line that `line` begins with.
    ///
    /// After `Incomplete`, the next call must be given the same bytes and more, or the same bytes
    /// and `at_end`: no more will come.
    pub(super) fn scan(&mut self, line: &[u8], at_end: bool) -> Result<Scan, CopyError> {
        let scan = match self.quoting {
            None => self.scan_text(line, at_end)?,
            Some(quoting) => self.scan_csv(quoting, line, at_end)?,
        };
        if let Scan::Found { .. } = scan {
            self.scanned = 0;
            self.in_quotes = false;
        }
        Ok(scan)
    }

    /// How many bytes of `more` may complete the line.
    pub(super) fn wanted(more: &[u8]) -> usize {
        memchr2(b'\n', b'\r', more).map_or(more.len(), |at| at + 1)
    }

    fn scan_text(&mut self, line: &[u8], at_end: bool) -> Result<Scan, CopyError> {
        let mut at = self.scanned;
        while let Some(distance) = memchr3(b'\n', b'\r', b'\\', &line[at..]) {
            at += distance;
            if line[at] != b'\\' {
                return self.line_ends(line, at, at_end);
            }
            match line.get(at + 1) {
                None if at_end => break,
                None => return Ok(self.incomplete(at)),
                Some(b'.') if at != 0 => return Err(CopyError::EndMarkerNotAlone),
                Some(b'.') => {
                    return match self.marker_end(line, at_end) {
                        MarkerEnd::Found { len } => Ok(Scan::Found { kind: PieceKind::End, len }),
                        MarkerEnd::Unknown => Ok(self.incomplete(at)),
                        MarkerEnd::Corrupt => Err(CopyError::EndMarkerCorrupt),
                        MarkerEnd::NewlineDiffers => Err(CopyError::EndMarkerNewlineDiffers),
                    };
                }
                // Whatever it is, it is data: a newline too.
                Some(_) => at += 2,
            }
        }
        Ok(self.line_goes_on(line, at_end))
    }

    fn scan_csv(&mut self, quoting: Quoting, line: &[u8], at_end: bool) -> Result<Scan, CopyError> {
        let mut at = self.scanned;
        if at == 0 && quoting.end_marker && line.first() == Some(&b'\\') {
            match line.get(1) {
                None if !at_end => return Ok(self.incomplete(0)),
                Some(b'.') => match self.marker_end(line, at_end) {
                    MarkerEnd::Found { len } => {
                        return Ok(Scan::Found { kind: PieceKind::End, len });
                    }
                    MarkerEnd::Unknown => return Ok(self.incomplete(0)),
                    MarkerEnd::NewlineDiffers => return Err(CopyError::EndMarkerNewlineDiffers),
                    // In CSV it is a value like any other.
                    MarkerEnd::Corrupt => (),
                },
                None | Some(_) => (),
            }
        }
        loop {
            let rest = &line[at..];
            let found = match (self.in_quotes, quoting.escape) {
                (false, _) => memchr3(b'\n', b'\r', quoting.quote, rest),
                (true, None) => memchr(quoting.quote, rest),
                (true, Some(escape)) => memchr2(quoting.quote, escape, rest),
            };
            let Some(distance) = found else { break };
            at += distance;
            if line[at] == quoting.quote {
                self.in_quotes = !self.in_quotes;
                at += 1;
            } else if !self.in_quotes {
                return self.line_ends(line, at, at_end);
            } else if at + 1 < line.len() {
                // What follows an escape neither closes the quotes nor escapes.
                at += 2;
            } else if at_end {
                break;
            } else {
                return Ok(self.incomplete(at));
            }
        }
        if at_end && self.in_quotes {
            return Err(CopyError::UnterminatedQuote);
        }
        Ok(self.line_goes_on(line, at_end))
    }

    /// Judges the newline or carriage return at `at`, which is no data.
    fn line_ends(&mut self, line: &[u8], at: usize, at_end: bool) -> Result<Scan, CopyError> {
        let csv = self.quoting.is_some();
        let (line_end, len) = if line[at] == b'\n' {
            (LineEnd::Newline, at + 1)
        } else if self.line_end == LineEnd::CarriageReturn {
            (LineEnd::CarriageReturn, at + 1)
        } else {
            match line.get(at + 1) {
                Some(b'\n') => (LineEnd::Both, at + 2),
                None if !at_end && self.line_end != LineEnd::Newline => {
                    return Ok(self.incomplete(at));
                }
                None | Some(_) => (LineEnd::CarriageReturn, at + 1),
            }
        };
        if self.line_end != LineEnd::Unknown && self.line_end != line_end {
            return Err(match line[at] {
                b'\n' => CopyError::NewlineInData { csv },
                _ => CopyError::CarriageReturnInData { csv },
            });
        }
        self.line_end = line_end;
        Ok(Scan::Found { kind: PieceKind::Row, len })
    }

    fn marker_end(&self, line: &[u8], at_end: bool) -> MarkerEnd {
        match (self.line_end, &line[2..]) {
            (LineEnd::Both, [b'\r', b'\n', ..]) => MarkerEnd::Found { len: 4 },
            (LineEnd::Both, [] | [b'\r']) if !at_end => MarkerEnd::Unknown,
            (LineEnd::Both, [b'\n', ..] | [b'\r', b'\r', ..]) => MarkerEnd::NewlineDiffers,
            (LineEnd::Both, _) => MarkerEnd::Corrupt,
            (_, []) if !at_end => MarkerEnd::Unknown,
            (LineEnd::CarriageReturn, [b'\n', ..]) | (LineEnd::Newline, [b'\r', ..]) => {
                MarkerEnd::NewlineDiffers
            }
            (_, [b'\n' | b'\r', ..]) => MarkerEnd::Found { len: 3 },
            (_, _) => MarkerEnd::Corrupt,
        }
    }

    fn incomplete(&mut self, scanned: usize) -> Scan {
        self.scanned = scanned;
        Scan::Incomplete
    }

    /// All of `line` was looked at: it is a last line without line end, or not yet whole.
    fn line_goes_on(&mut self, line: &[u8], at_end: bool) -> Scan {
        if at_end && !line.is_empty() {
            return Scan::Found { kind: PieceKind::Row, len: line.len() };
        }
        self.incomplete(line.len())
    }
}
