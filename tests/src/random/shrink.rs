//! A case that shows a difference, made smaller.
//!
//! Owns: what is left out: units, statements of the schema, rows, then parts of the statement itself. Each time it is run
//! again, and stays out if there is a difference still.
//! Start reading at [`shrunk`].

use std::time::{Duration, Instant};

use anyhow::Result;

use super::case::{Case, Statement};
use super::judge::{Arena, Figures, Finding};

/// How long is spent on one case.
const PATIENCE: Duration = Duration::from_secs(60);

/// The smallest case that was found, with its difference.
pub fn shrunk(arena: &Arena, case: &Case, finding: Finding) -> Result<(Case, Finding)> {
    let mut work = Work { arena, begun: Instant::now(), case: case.clone(), finding };
    work.case.units.truncate(work.finding.unit + 1);
    let last = work.case.units.len().saturating_sub(1);
    // Most need nothing but the tables.
    let mut alone = work.case.clone();
    alone.units.drain(..last);
    if !work.accept(alone) {
        work.drop_units();
    }
    work.drop_statements();
    work.drop_settings();
    work.drop_setup();
    work.shorten()?;
    Ok((work.case, work.finding))
}

struct Work<'a> {
    arena: &'a Arena,
    begun: Instant,
    case: Case,
    finding: Finding,
}

impl Work<'_> {
    fn accept(&mut self, case: Case) -> bool {
        if self.begun.elapsed() > PATIENCE {
            return false;
        }
        match self.arena.run(&case, &mut Figures::default()) {
            Ok(Some(finding)) => {
                (self.case, self.finding) = (case, finding);
                true
            }
            // A case that cannot be run shows nothing.
            Ok(None) | Err(_) => false,
        }
    }

    fn drop_units(&mut self) {
        let mut size = self.case.units.len() / 2;
        while size != 0 {
            let mut at = 0;
            while at + size < self.case.units.len() {
                let mut case = self.case.clone();
                case.units.drain(at..at + size);
                if !self.accept(case) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    fn drop_statements(&mut self) {
        for unit in 0..self.case.units.len() {
            let mut at = self.case.units[unit].statements.len();
            while at != 0 && self.case.units[unit].statements.len() > 1 {
                at -= 1;
                let mut case = self.case.clone();
                case.units[unit].statements.remove(at);
                self.accept(case);
            }
        }
    }

    fn drop_settings(&mut self) {
        for at in (0..self.case.settings.len()).rev() {
            let mut case = self.case.clone();
            case.settings.remove(at);
            self.accept(case);
        }
    }

    fn drop_setup(&mut self) {
        let mut at = self.case.setup.len();
        while at != 0 {
            at -= 1;
            let mut case = self.case.clone();
            case.setup.remove(at);
            self.accept(case);
        }
        for at in 0..self.case.setup.len() {
            self.drop_rows(at);
        }
    }

    /// Of `INSERT … VALUES (…), (…)`.
    fn drop_rows(&mut self, at: usize) {
        let sql = self.case.setup[at].sql.clone();
        let Some((head, rows)) = sql.split_once(" VALUES (") else { return };
        let mut rows: Vec<String> =
            rows.trim_end_matches(')').split("), (").map(str::to_owned).collect();
        let mut size = rows.len() / 2;
        while size != 0 {
            let mut from = 0;
            while from < rows.len() && rows.len() > size {
                let mut fewer = rows.clone();
                fewer.drain(from..(from + size).min(rows.len()));
                let mut case = self.case.clone();
                case.setup[at].sql = format!("{head} VALUES ({})", fewer.join("), ("));
                if self.accept(case) { rows = fewer } else { from += size }
            }
            size /= 2;
        }
    }

    /// Parts of a statement that only reads, one pair of parentheses after the other.
    fn shorten(&mut self) -> Result<()> {
        let Some(unit) = self.case.units.last() else { return Ok(()) };
        let (draw, statement) = (unit.draw, self.finding.statement.clone());
        if !statement.only_reads || unit.statements.len() != 1 || unit.begin.is_some() {
            return Ok(());
        }
        // The state that the last run left need not be the one that shows it.
        self.arena.run(&self.case, &mut Figures::default())?;
        let mut best = statement;
        let mut at = 0;
        while at < best.sql.len() && self.begun.elapsed() < PATIENCE * 2 {
            let next = shorter(&best.sql, at).into_iter().find_map(|sql| {
                let candidate = Statement { sql, ..best.clone() };
                let finding = self.arena.differs_now(&self.case, &candidate, draw).ok()??;
                (!finding.what.contains("lost")).then_some((candidate, finding))
            });
            match next {
                Some((statement, finding)) => {
                    best = statement;
                    self.finding = Finding { unit: self.finding.unit, ..finding };
                }
                None => at += 1,
            }
        }
        if let Some(unit) = self.case.units.last_mut() {
            unit.statements = vec![best];
        }
        Ok(())
    }
}

/// The text with less at this place.
fn shorter(sql: &str, at: usize) -> Vec<String> {
    if !sql.is_char_boundary(at) {
        return Vec::new();
    }
    let (before, rest) = sql.split_at(at);
    let mut texts = Vec::new();
    if rest.starts_with('(')
        && let Some(end) = end_of_group(rest)
    {
        for instead in ["true", "1", "NULL"] {
            texts.push(format!("{before}{instead}{}", &rest[end..]));
        }
    }
    for word in [
        " WHERE ",
        " HAVING ",
        " ORDER BY ",
        " AND ",
        " OR ",
        " LIMIT ",
        "DISTINCT ",
        ", ",
        " LEFT JOIN ",
        " JOIN ",
    ] {
        if rest.starts_with(word) {
            // Up to the next of them, or the end of the parentheses around it.
            let ends = ends_behind(rest, word.len());
            texts.extend(ends.into_iter().map(|end| format!("{before}{}", &rest[end..])));
        }
    }
    texts.retain(|text| text.len() < sql.len());
    texts
}

/// Where the parentheses that `text` begins with are closed.
fn end_of_group(text: &str) -> Option<usize> {
    let (mut depth, mut in_quotes) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '\'' => in_quotes = !in_quotes,
            '(' if !in_quotes => depth += 1,
            ')' if !in_quotes => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => (),
        }
    }
    None
}

/// Where what begins at `text` may end: before each further clause of its level, the farthest first.
fn ends_behind(text: &str, from: usize) -> Vec<usize> {
    let (mut depth, mut in_quotes, mut ends) = (0_i32, false, vec![from]);
    for (at, c) in text.char_indices().skip_while(|(at, _)| *at < from) {
        match c {
            '\'' => in_quotes = !in_quotes,
            '(' if !in_quotes => depth += 1,
            ')' if !in_quotes => {
                depth -= 1;
                if depth < 0 {
                    ends.push(at);
                    ends.reverse();
                    return ends;
                }
            }
            ' ' | ',' if !in_quotes && depth == 0 => ends.push(at),
            _ => (),
        }
    }
    ends.push(text.len());
    ends.reverse();
    ends
}
