//! Scripts of the differential tester: statements to run from top to bottom, with what to compare.
//!
//! Owns: the format, described in `tests/differential/README.md`. Never: runs anything.
//! Start reading at [`Script::parse`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// Table name (lower case, as written in CREATE TABLE) to the clause after `DISTRIBUTE BY`.
pub type Placement = BTreeMap<String, String>;

/// One file.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Where it was read.
    pub path: PathBuf,
    /// Name of the file in `setup/` that makes its tables.
    pub setup: Option<String>,
    /// Whether later scripts must not find the tables as this one leaves them.
    pub changes_data: bool,
    /// It is run only where tables that say nothing are on node 1 alone.
    pub only_at_home: bool,
    /// By name: where its own tables go.
    pub distributions: BTreeMap<String, Placement>,
    /// The statements.
    pub steps: Vec<Step>,
}

/// What of an answer must be equal.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Compare {
    /// Everything; rows in order if the statement has an ORDER BY at its top level.
    #[default]
    All,
    /// Everything, the order of rows not (ORDER BY leaves ties).
    AnyOrder,
    /// Columns, number of rows, tag and errors, but not the values (they differ between servers).
    Shape,
}

/// A statement that Tutti refuses on purpose.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// Only in these distributions; `None`: in all.
    pub only_in: Option<Vec<String>>,
    /// Why.
    pub reason: String,
}

/// Data for COPY … FROM STDIN.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CopyData {
    /// As written in the script.
    Inline(String),
    /// The first lines of a Lahman CSV file, its header included.
    File {
        /// File name.
        name: String,
        /// Lines after the header.
        rows: usize,
    },
    /// What the last COPY … TO STDOUT gave.
    Previous,
}

/// One Query string (usually one statement).
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Line of the file, from 1.
    pub line: usize,
    /// The text without its final semicolon.
    pub sql: String,
    /// Several statements in one string: sent by the simple protocol only.
    pub several: bool,
    /// For COPY … FROM STDIN.
    pub copy_in: Option<CopyData>,
    /// What to compare.
    pub compare: Compare,
    /// Set if it is refused on purpose.
    pub refused: Option<Refusal>,
    /// Parameter values; executed once for each.
    pub bind: Vec<Vec<Option<String>>>,
    /// Types of the parameters, as OIDs.
    pub types: Vec<u32>,
    /// Most rows per Execute, 0 for all.
    pub row_limit: i32,
}

impl Step {
    /// Whether it is refused on purpose in this distribution.
    pub fn is_refused_in(&self, distribution: &str) -> bool {
        self.refused.as_ref().is_some_and(|refusal| match &refusal.only_in {
            None => true,
            Some(names) => names.iter().any(|name| name == distribution),
        })
    }

    /// The text for a plain server, where every unique index holds over all rows.
    pub fn plain(&self) -> String {
        self.sql.replace(" WITH (tutti.global_unique)", "")
    }

    /// The text for a cluster: a CREATE TABLE gets its DISTRIBUTE BY clause.
    pub fn placed(&self, placement: &Placement) -> String {
        let Some(table) = created_table(&self.sql) else { return self.sql.clone() };
        match placement.get(&table) {
            Some(clause) => format!("{} DISTRIBUTE BY {clause}", self.sql),
            None => self.sql.clone(),
        }
    }
}

impl Script {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let mut script = Self::parse(&text).with_context(|| path.display().to_string())?;
        script.path = path.to_owned();
        Ok(script)
    }

    /// Reads a script's text.
    pub fn parse(text: &str) -> Result<Self> {
        let mut script = Self::default();
        let mut next = Step::default();
        let mut pending = String::new();
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            let number = index + 1;
            let trimmed = line.trim();
            if pending.is_empty() {
                if trimmed.is_empty() {
                    continue;
                }
                if let Some(header) = trimmed.strip_prefix("--!") {
                    script.read_header(header.trim()).with_context(|| format!("line {number}"))?;
                    continue;
                }
                if let Some(comment) = trimmed.strip_prefix("--") {
                    read_directive(comment.trim(), &mut next)
                        .with_context(|| format!("line {number}"))?;
                    continue;
                }
                next.line = number;
            } else {
                pending.push('\n');
            }
            pending.push_str(line);
            if !trimmed.ends_with(';') || is_inside_dollar_quotes(&pending) {
                continue;
            }
            let sql = pending.trim().trim_end_matches(';').to_owned();
            pending.clear();
            next.several = sql.contains("\\;");
            next.sql = sql.replace("\\;", ";");
            if next.sql.to_lowercase().contains("from stdin") {
                next.copy_in = Some(read_copy_data(&mut lines)?);
            }
            script.steps.push(std::mem::take(&mut next));
        }
        ensure!(pending.is_empty(), "the last statement has no semicolon: {pending}");
        Ok(script)
    }

    fn read_header(&mut self, header: &str) -> Result<()> {
        if let Some(name) = header.strip_prefix("setup:") {
            self.setup = Some(name.trim().to_owned());
        } else if header == "changes data" {
            self.changes_data = true;
        } else if header == "only where tables are at home" {
            self.only_at_home = true;
        } else if let Some(rest) = header.strip_prefix("distribution ") {
            let (name, tables) = rest.split_once(':').context("no colon behind the name")?;
            let mut placement = Placement::new();
            for entry in tables.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
                let (table, clause) = entry.split_once(' ').context("TABLE CLAUSE expected")?;
                placement.insert(table.to_lowercase(), clause.to_owned());
            }
            self.distributions.entry(name.trim().to_owned()).or_default().extend(placement);
        } else {
            bail!("unknown header {header:?}");
        }
        Ok(())
    }
}

/// Directives stand in comments before their statement; other comments are for readers.
fn read_directive(comment: &str, step: &mut Step) -> Result<()> {
    let Some((head, rest)) = comment.split_once(':') else { return Ok(()) };
    let rest = rest.trim();
    match head.trim() {
        "shape only" => step.compare = Compare::Shape,
        "any order" => step.compare = Compare::AnyOrder,
        "rows at a time" => step.row_limit = rest.parse()?,
        "bind" => {
            let value = |text: &str| match text.trim() {
                "NULL" => None,
                text => Some(text.to_owned()),
            };
            step.bind.push(rest.split(" | ").map(value).collect());
        }
        "types" => {
            step.types = rest.split(" | ").map(type_oid).collect::<Result<_>>()?;
        }
        head if head == "refused" || head.starts_with("refused in ") => {
            ensure!(!rest.is_empty(), "a refusal needs its reason");
            let names = head.strip_prefix("refused in ");
            let only_in =
                names.map(|names| names.split(',').map(|name| name.trim().to_owned()).collect());
            step.refused = Some(Refusal { only_in, reason: rest.to_owned() });
        }
        _ => (),
    }
    Ok(())
}

fn type_oid(name: &str) -> Result<u32> {
    Ok(match name.trim() {
        "unknown" => 0,
        "bool" => 16,
        "bytea" => 17,
        "int8" => 20,
        "int2" => 21,
        "int4" => 23,
        "text" => 25,
        "float8" => 701,
        "date" => 1082,
        "timestamptz" => 1184,
        "numeric" => 1700,
        "uuid" => 2950,
        "int4[]" => 1007,
        other => bail!("no OID known for type {other:?}"),
    })
}

fn read_copy_data<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>) -> Result<CopyData> {
    let mut data = String::new();
    for (_, line) in lines {
        if line == "\\." {
            return Ok(CopyData::Inline(data));
        }
        if line == "\\previous" {
            return Ok(CopyData::Previous);
        }
        if let Some(file) = line.strip_prefix("\\file ") {
            let (name, rows) = file.split_once(' ').context("\\file NAME ROWS expected")?;
            return Ok(CopyData::File { name: name.to_owned(), rows: rows.trim().parse()? });
        }
        data.push_str(line);
        data.push('\n');
    }
    bail!("COPY data without a line \\.")
}

/// Function bodies are quoted with `$$` in the scripts.
fn is_inside_dollar_quotes(sql: &str) -> bool {
    sql.matches("$$").count() % 2 == 1
}

/// The name of the table that a CREATE TABLE (with columns in parentheses) makes.
fn created_table(sql: &str) -> Option<String> {
    let mut words = sql.split(|c: char| c.is_whitespace() || c == '(').filter(|w| !w.is_empty());
    let is = |word: Option<&str>, expected: &str| {
        word.is_some_and(|word| word.eq_ignore_ascii_case(expected))
    };
    if !is(words.next(), "create") || !is(words.next(), "table") {
        return None;
    }
    let mut name = words.next()?;
    if name.eq_ignore_ascii_case("if") {
        // IF NOT EXISTS
        name = words.nth(2)?;
    }
    Some(name.to_lowercase())
}

/// Whether rows have a fixed order: ORDER BY outside all parentheses and quotes.
pub fn has_top_level_order_by(sql: &str) -> bool {
    let mut depth = 0_usize;
    let mut quote: Option<char> = None;
    let mut bare = String::new();
    for c in sql.chars() {
        match (quote, c) {
            (Some(open), _) => {
                if c == open {
                    quote = None;
                }
            }
            (None, '\'' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.saturating_sub(1),
            (None, _) if depth == 0 => bare.push(c),
            (None, _) => (),
        }
    }
    let words: Vec<String> = bare.split_whitespace().map(str::to_lowercase).collect();
    words.windows(2).any(|pair| pair[0] == "order" && pair[1] == "by")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read() {
        let text = "--! setup: shop\n--! changes data\n--! distribution by_a: t HASH (a); u REPLICATED\n\
                    -- just a remark\n-- refused in by_a: no such thing\nSELECT 1,\n  2;\n\n\
                    -- bind: 1 | NULL\n-- types: int4 | text\nSELECT $1, $2;\n\
                    COPY t FROM STDIN;\n1\t2\n\\.\nSELECT 1\\; SELECT 2;\n\
                    CREATE TABLE T (a int);\n";
        let script = Script::parse(text).unwrap();
        assert_eq!(script.setup.as_deref(), Some("shop"));
        assert!(script.changes_data);
        assert_eq!(script.steps.len(), 5);
        assert_eq!((script.steps[0].line, script.steps[0].sql.as_str()), (6, "SELECT 1,\n  2"));
        assert!(script.steps[0].is_refused_in("by_a") && !script.steps[0].is_refused_in("other"));
        assert_eq!(script.steps[1].bind, [vec![Some("1".to_owned()), None]]);
        assert_eq!(script.steps[1].types, [23, 25]);
        assert_eq!(script.steps[2].copy_in, Some(CopyData::Inline("1\t2\n".to_owned())));
        assert!(script.steps[3].several);
        let placed = script.steps[4].placed(&script.distributions["by_a"]);
        assert_eq!(placed, "CREATE TABLE T (a int) DISTRIBUTE BY HASH (a)");
    }

    #[test]
    fn order_by_counts_only_at_the_top() {
        assert!(has_top_level_order_by("SELECT a FROM t\nORDER  BY a"));
        assert!(!has_top_level_order_by("SELECT string_agg(a, ',' ORDER BY a) FROM t"));
        assert!(!has_top_level_order_by("SELECT 'x order by y' FROM (SELECT 1 ORDER BY 1) s"));
    }

    #[test]
    fn mistakes_in_directives_are_reported() {
        assert!(Script::parse("--! distributions x: t\nSELECT 1;").is_err());
        assert!(Script::parse("-- refused:\nSELECT 1;").is_err());
        assert!(Script::parse("SELECT 1").is_err());
        assert!(Script::parse("COPY t FROM STDIN;\n1\n").is_err());
    }
}
