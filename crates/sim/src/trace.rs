//! What happened, to find the cause of a failure.
//!
//! Owns: the lines and the choice of those that matter.
//! Never: changes what happens; without a reader no line is even written.
//! Start reading at [`Trace::tail`].

use crate::clock::Time;

/// How many lines are shown for a failure.
const LINES_SHOWN: usize = 120;

/// Lines, each of a time.
#[derive(Debug)]
pub struct Trace {
    is_kept: bool,
    lines: Vec<(Time, String)>,
}

impl Trace {
    /// Empty; with `is_kept` false it stays so.
    pub fn new(is_kept: bool) -> Self {
        Self { is_kept, lines: Vec::new() }
    }

    /// Adds a line.
    pub fn note(&mut self, now: Time, text: impl FnOnce() -> String) {
        if self.is_kept {
            self.lines.push((now, text()));
        }
    }

    /// The last lines that mention one of these words, or the last ones of all without words.
    pub fn tail(&self, words: &[String]) -> Vec<String> {
        let matters = |text: &str| words.is_empty() || words.iter().any(|word| text.contains(word));
        let mut shown: Vec<_> = self
            .lines
            .iter()
            .rev()
            .filter(|(_, text)| matters(text))
            .take(LINES_SHOWN)
            .map(|(time, text)| format!("{time:>8} µs  {text}"))
            .collect();
        shown.reverse();
        shown
    }
}
