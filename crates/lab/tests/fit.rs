//! `tutti-lab fit` and `tutti-lab predict`, held against what the cost model's paper published.
//!
//! The paper's runs and the output of its regression lie beside the repository, not in it; where they are not, what needs
//! them says that it was skipped. What needs only runs makes some.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tutti-lab")).args(arguments).output().unwrap()
}

#[track_caller]
fn said(arguments: &[&str]) -> String {
    let output = lab(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = lab(arguments);
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// The paper's spreadsheet and log.
fn paper() -> Option<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Beside the repository, or beside the folder of its work trees.
    let dir = ["../shared", "../../shared"]
        .into_iter()
        .map(|shared| root.join(shared).join("data/cost-model"))
        .find(|dir| dir.join("master_spreadsheet.csv").is_file());
    let Some(dir) = dir else {
        println!(
            "skipped: the paper's runs (shared/data/cost-model) are not beside this repository"
        );
        return None;
    };
    let log = fs::read_to_string(dir.join("regression.log")).unwrap();
    Some((dir.join("master_spreadsheet.csv").to_str().unwrap().to_owned(), log))
}

/// The part of the log below a title, to the next one.
fn logged<'a>(log: &'a str, title: &str) -> Vec<&'a str> {
    let is_title = |line: &&str| line.starts_with("RuntimeFactor") && line.contains(" -- ");
    let mut lines = log.lines().skip_while(|line| *line != title);
    let first = lines.next().expect("the log has this table");
    std::iter::once(first).chain(lines.take_while(|line| !is_title(line))).collect()
}

/// A line of the log without the day and the time at which it was made.
fn undated(line: &str) -> &str {
    // What stands beside them begins after the left half of the table.
    if line.starts_with("Date:") || line.starts_with("Time:") { &line[40..] } else { line }
}

/// Compares a table with the log's, token by token; returns how many tokens there were.
#[track_caller]
fn compare(model: &str, title: &str) -> Option<usize> {
    let (file, log) = paper()?;
    let printed = said(&["fit", &file, "--model", model]);
    let expected = logged(&log, title);
    let printed: Vec<&str> = printed.lines().take(expected.len()).collect();
    assert_eq!(printed.len(), expected.len());
    let mut tokens = 0;
    for (found, expected) in printed.iter().zip(expected) {
        let found: Vec<&str> = found.split_whitespace().collect();
        let expected: Vec<&str> = undated(expected).split_whitespace().collect();
        assert_eq!(found, expected, "in the table {title}");
        tokens += expected.len();
    }
    println!("{title}: {tokens} tokens agree");
    Some(tokens)
}

#[test]
fn every_digit_of_the_published_table_is_met() {
    if let Some(tokens) = compare("published", "RuntimeFactorAllDummy -- Published Version") {
        assert!(120 < tokens, "{tokens}");
    }
}

#[test]
fn every_digit_of_the_draft_table_is_met() {
    if let Some(tokens) = compare("draft", "RuntimeFactor -- Draft Version") {
        assert!(120 < tokens, "{tokens}");
    }
}

/// The layout too, to the last space between figures.
#[test]
fn the_tables_are_laid_out_as_the_published_ones() {
    let Some((file, log)) = paper() else { return };
    for (model, title) in [
        ("published", "RuntimeFactorAllDummy -- Published Version"),
        ("draft", "RuntimeFactor -- Draft Version"),
    ] {
        let printed = said(&["fit", &file, "--model", model]);
        for (found, expected) in printed.lines().zip(logged(&log, title)) {
            let found = if undated(expected) == expected { found } else { &found[40..] };
            assert_eq!(found.trim_end(), undated(expected).trim_end());
        }
    }
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&said(arguments)).unwrap()
}

#[test]
fn json_has_the_figures_of_the_table() {
    let Some((file, _)) = paper() else { return };
    let fit = json(&["fit", &file, "--json"]);
    assert_eq!(fit["model"], "published");
    assert_eq!(fit["observations"], 60);
    let continents = &fit["coefficients"][3];
    assert_eq!(continents["term"], "IsMultiContinent[T.True]");
    let near = |value: &Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 1e-9;
    // To more digits than are published: by statsmodels 0.15, from the same runs.
    assert!(near(&continents["coefficient"], 1.918), "{continents}");
    assert!(near(&continents["factor"], 1.918_f64.exp()), "{continents}");
    assert!(near(&fit["log_likelihood"], -0.860_058_565_385_692_5), "{}", fit["log_likelihood"]);
    assert!(continents["sentence"].as_str().unwrap().contains("multiply the run time by 6.807"));
}

#[test]
fn plots_are_drawn_with_titles_and_axes() {
    let Some((file, _)) = paper() else { return };
    let dir = tempfile::tempdir().unwrap();
    let plots = dir.path().join("new/plots");
    said(&["fit", &file, "--plots", plots.to_str().unwrap()]);
    let deployments = fs::read_to_string(plots.join("deployments.svg")).unwrap();
    let residuals = fs::read_to_string(plots.join("residuals.svg")).unwrap();
    for text in ["Run time by deployment", "log scale", "Multi Continental", "100×"] {
        assert!(deployments.contains(text), "{text}");
    }
    for text in ["residuals by fitted run time", "ln(run time", "Distributed, Multi DC Cluster"] {
        assert!(residuals.contains(text), "{text}");
    }
    // A point for each run, and in the legend for each deployment; those with boxes are all 90.
    assert_eq!(deployments.matches("<circle").count(), 90);
    // Circles, full and hollow, are two of the four shapes.
    assert_eq!(residuals.matches("<circle").count(), 30 + 2);
}

/// (factor, confidence interval, prediction interval) of the only deployment expected.
fn factors(answer: &Value) -> [f64; 5] {
    let expected = answer["expected"].as_array().unwrap();
    assert_eq!(expected.len(), 1, "{answer}");
    let expected = &expected[0];
    [
        &expected["factor"],
        &expected["factor_confidence"][0],
        &expected["factor_confidence"][1],
        &expected["factor_prediction"][0],
        &expected["factor_prediction"][1],
    ]
    .map(|value| value.as_f64().unwrap())
}

/// By statsmodels 0.15 (`get_prediction`), from the same runs: factor, confidence, prediction.
const STATSMODELS: [(&str, &str, [f64; 5]); 4] = [
    ("1", "0", [4.758_821_25, 4.167_593_25, 5.433_922_71, 2.799_259_3, 8.090_132_85]),
    ("3", "0.4", [3.708_645_32, 3.247_889_43, 4.234_765_5, 2.181_519_2, 6.304_803_6]),
    ("3", "12", [4.605_878_09, 4.033_651_5, 5.259_282_56, 2.709_294_26, 7.830_125_09]),
    ("3", "150", [31.353_732_95, 27.458_397_62, 35.801_672_9, 18.443_060_62, 53.302_246_86]),
];

#[test]
fn predictions_from_the_papers_runs_are_those_of_statsmodels() {
    let Some((file, _)) = paper() else { return };
    for (nodes, rtt_ms, expected) in STATSMODELS {
        let asked = ["--nodes", nodes, "--rtt-ms", rtt_ms, "--workers", "40", "--json"];
        let answer = json(&[&["predict", "--from", &file], &asked[..]].concat());
        assert_eq!(answer["is_known"], true);
        for (found, expected) in factors(&answer).into_iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-7, "{found} is not {expected}");
        }
    }
}

/// What the published figures alone give differs by their rounding only.
#[test]
fn predictions_without_runs_are_nearly_the_same() {
    for (nodes, rtt_ms, expected) in STATSMODELS {
        let asked = ["predict", "--nodes", nodes, "--rtt-ms", rtt_ms, "--workers", "40", "--json"];
        for (found, expected) in factors(&json(&asked)).into_iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-3, "{found} is not {expected}");
        }
    }
}

#[test]
fn what_is_said_of_the_papers_spread_is_so() {
    let Some((file, _)) = paper() else { return };
    let text = said(&["predict", "--nodes", "1", "--workers", "20", "--from", &file]);
    assert!(text.contains("runs vary most with 3 nodes on several continents"), "{text}");
    assert!(text.contains("by 3.0 to 1"), "{text}");
    assert!(text.contains("the errors are not normal"), "{text}");
}

#[test]
fn a_prediction_says_what_it_does_not_know() {
    let text = said(&["predict", "--nodes", "7", "--rtt-ms", "50", "--workers", "400"]);
    for part in [
        "Not known:",
        "7 nodes: measured were 1 and 3",
        "50 ms between nodes: nothing was measured there",
        "400 workers: measured were 20 to 60",
        "500 km apart, 60 workers:",
        "10588 km apart, 60 workers:",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = said(&["predict", "--nodes", "3", "--rtt-ms", "12", "--workers", "40"]);
    assert!(!text.contains("Not known"), "{text}");
    assert!(text.contains("a round trip of 12 ms is 286 to 1200 km between two nodes"), "{text}");
}

#[test]
fn questions_without_an_answer_are_refused() {
    let text = refused(&["predict", "--nodes", "3", "--workers", "40"]);
    assert!(text.contains("--rtt-ms is needed"), "{text}");
    for (nodes, rtt_ms, part) in [
        ("3", "-1", "a number of milliseconds, from 0"),
        ("3", "NaN", "a number of milliseconds, from 0"),
        ("3", "1e308", "a number of milliseconds, from 0 to 100000"),
        ("0", "1", "0 is not in 1.."),
    ] {
        let (nodes, rtt_ms) = (format!("--nodes={nodes}"), format!("--rtt-ms={rtt_ms}"));
        let text = refused(&["predict", &nodes, &rtt_ms, "--workers=40"]);
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// As with `tutti-lab predict … | head -1`, where the reader has gone.
#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_tutti-lab"))
        .args(["predict", "--nodes=1", "--workers=40"])
        .stdout(writer)
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// A file of runs: `workers`, the deployment's steps, `RuntimeFactor`.
fn runs(dir: &tempfile::TempDir, lines: &[&str]) -> PathBuf {
    let names = "BatchDescription,Workers,IsDistributedDB,IsMultiNode,IsMultiDC,IsMultiContinent,\
                 MultiNodeCount,TotalNetworkDistance,RuntimeFactor";
    let file = dir.path().join("runs.csv");
    fs::write(&file, format!("{names}\n{}\n", lines.join("\n"))).unwrap();
    file
}

#[test]
fn runs_that_cannot_be_fitted_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let refused_with = |lines: &[&str], part: &str| {
        let file = runs(&dir, lines);
        let text = refused(&["fit", file.to_str().unwrap()]);
        assert!(text.contains(part), "{part}: {text}");
        let asked = ["predict", "--nodes=1", "--workers=20", "--from", file.to_str().unwrap()];
        let text = refused(&asked);
        assert!(text.contains(part), "{part}: {text}");
    };
    let one = "one,20,TRUE,FALSE,FALSE,FALSE,0,0,1.4";
    refused_with(&[one, one], "2 observations are too few for 5 terms: at least 6 are needed");
    refused_with(&["one,20,FALSE,FALSE,FALSE,FALSE,0,0,0"], "has no run on a distributed database");
    refused_with(&[one, "one,20,TRUE,yes,FALSE,FALSE,0,0,1.4"], "line 3: IsMultiNode is \"yes\"");
    let near = "near,20,TRUE,TRUE,FALSE,FALSE,3,0,1.2";
    let far = "far,40,TRUE,TRUE,TRUE,FALSE,3,1500,1.5";
    refused_with(
        &[one, one, near, near, far, far],
        "IsMultiContinent[T.True] cannot be estimated: in these observations",
    );
    let numbers = |workers: &str, factor: &str| {
        let line = |step: &str| format!("x,{workers},TRUE,{step},{factor}");
        let steps = [
            "FALSE,FALSE,FALSE,0,0",
            "TRUE,FALSE,FALSE,3,0",
            "TRUE,TRUE,FALSE,3,9",
            "TRUE,TRUE,TRUE,3,99",
        ];
        steps.iter().chain(&steps).map(|step| line(step)).collect::<Vec<_>>()
    };
    let refused_all = |lines: Vec<String>, part: &str| {
        refused_with(&lines.iter().map(String::as_str).collect::<Vec<_>>(), part);
    };
    refused_all(
        numbers("4294967295", "1.5"),
        "Workers is \"4294967295\" and must be 1000000 at most",
    );
    refused_all(numbers("20", "1e308"), "RuntimeFactor is \"1e308\" and must be a logarithm");
    let mut tiny = numbers("20", "1e-200");
    tiny.extend(numbers("40", "2e-200"));
    refused_all(tiny, "the response cannot be computed with");
    let text = refused(&["fit", "/no/such.csv"]);
    assert!(text.contains("cannot read /no/such.csv: No such file"), "{text}");
}
