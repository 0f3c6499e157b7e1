//! Runs as they are kept: a CSV file with a line for each, in the format of the paper's spreadsheet.
//!
//! Owns: the names of the columns that matter, reading them (others are ignored, in any order) and writing them.
//! Never: computes a figure from them.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use csv::StringRecord;

/// A run: the same records inserted once, on one deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What people call the deployment; runs of one deployment share it.
    pub batch_description: String,
    /// Concurrent clients that insert.
    pub workers: u32,
    /// A distributed database, not one server: only these runs are fitted, the others are what they are
    /// compared with.
    pub is_distributed: bool,
    /// Several nodes.
    pub is_multi_node: bool,
    /// Nodes in several data centres.
    pub is_multi_dc: bool,
    /// Nodes on several continents.
    pub is_multi_continent: bool,
    /// Nodes where there are several, 0 where there is one.
    pub multi_node_count: u32,
    /// Sum of the distances between all pairs of nodes, in kilometres; see [`super::distance`].
    pub total_distance_km: f64,
    /// ln(run time / that of the baseline with as many workers). The paper's are rounded to two digits, and 0 where they
    /// would be negative, which only runs on one server are.
    pub runtime_factor: f64,
}

/// Why a file gives no runs. Its Display names the file and every line that is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunsError {
    /// The system does not give the file.
    #[error("cannot read {file}")]
    Unreadable {
        /// Its path.
        file: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },

    /// Columns that the model needs are not there.
    #[error("{file} has no column {}", missing.join(", "))]
    MissingColumns {
        /// Its path.
        file: String,
        /// All of them.
        missing: Vec<&'static str>,
    },

    /// Lines that are no runs. A fit of the others alone would be a fit of something else.
    #[error("{file} has lines that are no runs:{}", listed(lines))]
    BadLines {
        /// Its path.
        file: String,
        /// All of them.
        lines: Vec<BadLine>,
    },
}

/// A line that is no run.
#[derive(Clone, Debug, PartialEq)]
pub struct BadLine {
    /// As an editor counts them: the names of the columns are line 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

fn listed(lines: &[BadLine]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}

/// In the order of the spreadsheet.
const COLUMNS: [&str; 9] = [
    "BatchDescription",
    "Workers",
    "IsDistributedDB",
    "IsMultiNode",
    "IsMultiDC",
    "IsMultiContinent",
    "MultiNodeCount",
    "TotalNetworkDistance",
    "RuntimeFactor",
];

/// What no one has: beyond these a number is a mistake, and not to be computed with.
const WORKERS_MAX: u32 = 1_000_000;
const NODES_MAX: u32 = 1_000_000;
const DISTANCE_KM_MAX: f64 = 1e12;
/// Of a logarithm: 500 million times as long, or as short.
const FACTOR_MAX: f64 = 20.0;

/// In seconds, for people: nothing is computed from it.
const RUN_TIME: &str = "Runtime";

/// The text of a file of runs, each with its run time in seconds: what [`read`] reads.
///
/// Errors: none that a text in memory has.
pub fn text_of(runs: impl IntoIterator<Item = (Run, f64)>) -> csv::Result<String> {
    let mut out = csv::Writer::from_writer(Vec::new());
    let (before, factor) = COLUMNS.split_at(COLUMNS.len() - 1);
    out.write_record(before.iter().chain([&RUN_TIME]).chain(factor))?;
    let truth = |is: bool| if is { "TRUE" } else { "FALSE" }.to_owned();
    for (run, run_time_s) in runs {
        out.write_record([
            run.batch_description,
            run.workers.to_string(),
            truth(run.is_distributed),
            truth(run.is_multi_node),
            truth(run.is_multi_dc),
            truth(run.is_multi_continent),
            run.multi_node_count.to_string(),
            run.total_distance_km.to_string(),
            run_time_s.to_string(),
            run.runtime_factor.to_string(),
        ])?;
    }
    let bytes = out.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8(bytes).expect("made of texts"))
}

/// Reads the runs of a file, in its order.
pub fn read(path: &Path) -> Result<Vec<Run>, RunsError> {
    let file = path.display().to_string();
    match fs::read(path) {
        Ok(bytes) => read_all(file, &bytes),
        Err(source) => Err(RunsError::Unreadable { file, source }),
    }
}

fn read_all(file: String, bytes: &[u8]) -> Result<Vec<Run>, RunsError> {
    let mut reader = csv::Reader::from_reader(bytes);
    let names = match reader.headers() {
        Ok(names) => names.iter().map(str::trim).collect::<StringRecord>(),
        Err(error) => {
            let lines = vec![BadLine { line: 1, why: error.to_string() }];
            return Err(RunsError::BadLines { file, lines });
        }
    };
    let missing: Vec<&str> =
        COLUMNS.into_iter().filter(|column| !names.iter().any(|name| name == *column)).collect();
    if !missing.is_empty() {
        return Err(RunsError::MissingColumns { file, missing });
    }
    // Which of the two is meant is not ours to say.
    let twice = |column: &&str| 1 < names.iter().filter(|name| name == column).count();
    if let Some(column) = COLUMNS.into_iter().find(|column| twice(column)) {
        let why = format!("there are several columns {column}");
        return Err(RunsError::BadLines { file, lines: vec![BadLine { line: 1, why }] });
    }
    let (mut runs, mut lines) = (Vec::new(), Vec::new());
    for record in reader.records() {
        let (position, run) = match &record {
            Ok(record) => (record.position(), run_of(record, &names)),
            Err(error) => (error.position(), Err(what_is_wrong(error))),
        };
        match run {
            Ok(run) => runs.push(run),
            Err(why) => {
                let line = position.map_or(0, |position| line_of(bytes, position));
                lines.push(BadLine { line, why });
            }
        }
    }
    if lines.is_empty() { Ok(runs) } else { Err(RunsError::BadLines { file, lines }) }
}

fn what_is_wrong(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("it has {len} fields, and the names of the columns are {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "it is not UTF-8".to_owned(),
        _ => error.to_string(),
    }
}

/// The line of a record. The reader's own position is where the previous record ended, before lines that are empty.
fn line_of(bytes: &[u8], position: &csv::Position) -> u64 {
    let rest = bytes.get(position.byte() as usize..).unwrap_or_default();
    let ends = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    position.line() + ends.filter(|byte| **byte == b'\n').count() as u64
}

fn run_of(record: &StringRecord, names: &StringRecord) -> Result<Run, String> {
    let fields = Fields { record, names };
    if fields.truth("IsMultiNode")? && fields.count("MultiNodeCount", NODES_MAX)? < 2 {
        return Err(fields.must("MultiNodeCount", "2 or more where IsMultiNode is TRUE"));
    }
    Ok(Run {
        batch_description: fields.text("BatchDescription").to_owned(),
        workers: fields.count("Workers", WORKERS_MAX)?,
        is_distributed: fields.truth("IsDistributedDB")?,
        is_multi_node: fields.truth("IsMultiNode")?,
        is_multi_dc: fields.truth("IsMultiDC")?,
        is_multi_continent: fields.truth("IsMultiContinent")?,
        multi_node_count: fields.count("MultiNodeCount", NODES_MAX)?,
        total_distance_km: fields.measure("TotalNetworkDistance")?,
        runtime_factor: fields.logarithm("RuntimeFactor")?,
    })
}

/// A record whose fields are asked for by name. Errors name the column, and what it should have been.
struct Fields<'a> {
    record: &'a StringRecord,
    names: &'a StringRecord,
}

impl<'a> Fields<'a> {
    fn text(&self, name: &str) -> &'a str {
        let place = self.names.iter().position(|it| it == name);
        place.and_then(|place| self.record.get(place)).unwrap_or_default().trim()
    }

    fn count(&self, name: &str, most: u32) -> Result<u32, String> {
        match self.text(name).parse::<u32>() {
            Ok(count) if count <= most => Ok(count),
            Ok(_) => Err(self.must(name, &format!("{most} at most"))),
            Err(_) => Err(self.must(name, "a whole number from 0")),
        }
    }

    fn number(&self, name: &str) -> Result<f64, String> {
        match self.text(name).parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            _ => Err(self.must(name, "a number")),
        }
    }

    fn measure(&self, name: &str) -> Result<f64, String> {
        match self.number(name) {
            Ok(value) if DISTANCE_KM_MAX < value => {
                Err(self.must(name, &format!("{DISTANCE_KM_MAX} at most")))
            }
            Ok(value) if 0.0 <= value => Ok(value),
            _ => Err(self.must(name, "a number from 0")),
        }
    }

    fn logarithm(&self, name: &str) -> Result<f64, String> {
        let value = self.number(name)?;
        match value.abs() <= FACTOR_MAX {
            true => Ok(value),
            false => {
                Err(self.must(name, &format!("a logarithm, from -{FACTOR_MAX} to {FACTOR_MAX}")))
            }
        }
    }

    /// Spreadsheets write TRUE, pandas True, and Rust true.
    fn truth(&self, name: &str) -> Result<bool, String> {
        match self.text(name).to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.must(name, "TRUE or FALSE")),
        }
    }

    fn must(&self, name: &str, be: &str) -> String {
        format!("{name} is {:?} and must be {be}", self.text(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "RuntimeFactor,Note,BatchDescription,Workers,IsDistributedDB,IsMultiNode,IsMultiDC,\
                         IsMultiContinent,MultiNodeCount,TotalNetworkDistance";

    fn read_text(text: &str) -> Result<Vec<Run>, RunsError> {
        read_all("runs.csv".to_owned(), text.as_bytes())
    }

    #[test]
    fn columns_are_found_by_name_and_others_ignored() {
        let text = format!(
            "{NAMES}\n1.33,hot day,\"Distributed, near\",20,TRUE,true,False,FALSE,3,1500\n"
        );
        let [run] = &read_text(&text).unwrap()[..] else { panic!("one run") };
        assert_eq!(run.batch_description, "Distributed, near");
        assert!(run.is_distributed && run.is_multi_node && !run.is_multi_dc);
        assert_eq!((run.workers, run.multi_node_count), (20, 3));
        assert_eq!((run.total_distance_km, run.runtime_factor), (1500.0, 1.33));
    }

    #[test]
    fn every_bad_line_is_named_with_what_is_wrong() {
        let text = format!(
            "{NAMES}\n\
             1.33,,near,20,TRUE,TRUE,FALSE,FALSE,3,1500\n\
             1.33,,near,many,TRUE,TRUE,FALSE,FALSE,3,1500\n\
             \n\
             1.33,,near,20,perhaps,TRUE,FALSE,FALSE,3,1500\n\
             1.33,,near\n\
             nan,,near,20,TRUE,TRUE,FALSE,FALSE,3,1500\n\
             -0.5,,near,20,TRUE,TRUE,FALSE,FALSE,3,-3\n\
             -0.5,,near,20,TRUE,TRUE,FALSE,FALSE,0,0\n"
        );
        let said = read_text(&text).unwrap_err().to_string();
        assert_eq!(
            said,
            "runs.csv has lines that are no runs:\n  \
             line 3: Workers is \"many\" and must be a whole number from 0\n  \
             line 5: IsDistributedDB is \"perhaps\" and must be TRUE or FALSE\n  \
             line 6: it has 3 fields, and the names of the columns are 10\n  \
             line 7: RuntimeFactor is \"nan\" and must be a number\n  \
             line 8: TotalNetworkDistance is \"-3\" and must be a number from 0\n  \
             line 9: MultiNodeCount is \"0\" and must be 2 or more where IsMultiNode is TRUE"
        );
    }

    #[test]
    fn what_nobody_measures_is_refused() {
        let text = format!(
            "{NAMES}\n\
             1.33,,near,4294967295,TRUE,TRUE,FALSE,FALSE,3,1500\n\
             1e308,,near,20,TRUE,TRUE,FALSE,FALSE,3,1500\n\
             1.33,,near,20,TRUE,TRUE,FALSE,FALSE,3,1e300\n"
        );
        let said = read_text(&text).unwrap_err().to_string();
        for part in [
            "line 2: Workers is \"4294967295\" and must be 1000000 at most",
            "line 3: RuntimeFactor is \"1e308\" and must be a logarithm, from -20 to 20",
            "line 4: TotalNetworkDistance is \"1e300\" and must be 1000000000000 at most",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn names_of_columns_are_trimmed_and_each_is_there_once() {
        let line = "1.33,,near,20,TRUE,TRUE,FALSE,FALSE,3,1500";
        let text = format!("{}\n{line}\n", NAMES.replace(",Workers", ", Workers "));
        assert_eq!(read_text(&text).unwrap()[0].workers, 20);
        let text = format!("{NAMES},Workers\n{line},40\n");
        let said = read_text(&text).unwrap_err().to_string();
        assert!(said.ends_with("line 1: there are several columns Workers"), "{said}");
    }

    #[test]
    fn missing_columns_are_named() {
        let said = read_text("BatchDescription,Workers,IsMultiNode\n").unwrap_err().to_string();
        assert_eq!(
            said,
            "runs.csv has no column IsDistributedDB, IsMultiDC, IsMultiContinent, MultiNodeCount, \
             TotalNetworkDistance, RuntimeFactor"
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let said = read(Path::new("/no/such.csv")).unwrap_err().to_string();
        assert_eq!(said, "cannot read /no/such.csv");
    }
}
