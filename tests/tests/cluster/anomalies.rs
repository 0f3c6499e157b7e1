//! The classic anomalies by name, and what transactions say, as scripted interleavings: on one
//! PostgreSQL, on a cluster with the rows together on a node, and with the rows apart.
//!
//! Owns: which script runs where: with the rows apart all of them, in other ways every other one, and all with
//! `TUTTI_WHOLE`. The scripts are in `tests/anomalies`, the rules in
//! `tutti_tests::interleaving`. `TUTTI_ANOMALIES=write_skew` runs only what has this in its name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tutti_tests::client::Client;
use tutti_tests::gateway::TestCluster;
use tutti_tests::interleaving::judge::{Case, Rule, appears, difference};
use tutti_tests::interleaving::record::{Record, Told};
use tutti_tests::interleaving::run::{Protocol, run};
use tutti_tests::interleaving::script::{Level, Script, read_directory};
use tutti_tests::interleaving::stage::Stage;
use tutti_tests::servers;
use tutti_tests::suite::Part;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("anomalies")
}

/// The scripts that the environment asks for.
fn scripts() -> Result<Vec<Script>> {
    let chosen = std::env::var("TUTTI_ANOMALIES").unwrap_or_default();
    let mut scripts = read_directory(&directory())?;
    scripts.retain(|script| script.name().contains(&chosen));
    ensure!(!scripts.is_empty(), "no script has {chosen:?} in its name");
    Ok(scripts)
}

/// The levels a script is run at; one that names none is run as it is written.
fn levels(script: &Script) -> Vec<Option<Level>> {
    match script.levels.is_empty() {
        true => vec![None],
        false => script.levels.iter().copied().map(Some).collect(),
    }
}

/// What went wrong, told at the end, so that one failure does not hide another.
#[derive(Default)]
struct Findings {
    cases: usize,
    told: Vec<String>,
}

impl Findings {
    fn add(
        &mut self,
        script: &Script,
        level: Option<Level>,
        stage: &Stage,
        what: &str,
        runs: &str,
    ) {
        let level = level.map_or("as written", Level::name);
        let name = script.name();
        self.told.push(format!("──── {name}, {level}, {}: {what}\n{runs}", stage.name));
    }

    fn judge(self) {
        println!("{} runs, {} findings", self.cases, self.told.len());
        let mut text = String::new();
        for finding in &self.told {
            let _ = writeln!(text, "{finding}");
        }
        println!("{text}");
        for finding in &self.told {
            println!("{}", finding.lines().next().unwrap_or_default());
        }
        assert!(self.told.is_empty(), "{} findings, see above", self.told.len());
    }
}

/// Runs every script on one PostgreSQL and at each stage, and compares.
fn compare(stages: &[(Stage, Rule, Protocol)], share: Part) -> Result<()> {
    let server = servers::start(1)?;
    let endpoint = servers::endpoint(&server, 0);
    let mut judge = Client::connect(&endpoint)?;
    let mut findings = Findings::default();
    for (_, script) in scripts()?.into_iter().enumerate().filter(|(number, _)| share.has(*number)) {
        for level in levels(&script) {
            let mut told_by_one: BTreeMap<_, Record> = BTreeMap::new();
            for (stage, rule, protocol) in stages {
                let way = (stage.ids.clone(), *protocol);
                if !told_by_one.contains_key(&way) {
                    let plain = Stage::plain(endpoint.clone(), &stage.ids);
                    let record = run(&script, &plain, level, *protocol)
                        .with_context(|| format!("{} on PostgreSQL", script.name()))?;
                    told_by_one.insert(way.clone(), record);
                }
                let expected = &told_by_one[&way];
                findings.cases += 1;
                let found = match run(&script, stage, level, *protocol) {
                    Ok(found) => found,
                    Err(error) => {
                        let runs = format!("one PostgreSQL told\n{expected}");
                        findings.add(&script, level, stage, &format!("{error:#}"), &runs);
                        continue;
                    }
                };
                let case = Case { script: &script, level, expected, found: &found };
                if let Some(what) = difference(&case, *rule, &mut judge)? {
                    let runs = format!("one PostgreSQL told\n{expected}found\n{found}");
                    findings.add(&script, level, stage, &what, &runs);
                }
            }
        }
    }
    findings.judge();
    Ok(())
}

/// The scripts themselves: each anomaly appears on one PostgreSQL exactly where it is said to, so its
/// condition is one that can be met; and where none needs to be refused, none is.
#[test]
fn anomalies_appear_on_one_postgresql_where_the_scripts_say() -> Result<()> {
    let server = servers::start(1)?;
    let endpoint = servers::endpoint(&server, 0);
    let mut judge = Client::connect(&endpoint)?;
    let plain = Stage::plain(endpoint, &('a'..='f').zip(1..).collect());
    let mut findings = Findings::default();
    for script in scripts()? {
        for level in levels(&script) {
            findings.cases += 1;
            let record = match run(&script, &plain, level, Protocol::Simple) {
                Ok(record) => record,
                Err(error) => {
                    findings.add(&script, level, &plain, &format!("{error:#}"), "");
                    continue;
                }
            };
            if let (Some(anomaly), Some(level)) = (&script.anomaly, level) {
                let found = appears(anomaly, &script, &record, &mut judge)
                    .with_context(|| script.name())?;
                if found != anomaly.appears_at.contains(&level) {
                    let what = format!("the anomaly appears: {found}");
                    findings.add(&script, Some(level), &plain, &what, &record.to_string());
                }
            }
            if script.none_refused
                && level == Some(Level::Serializable)
                && record.refused().is_some()
            {
                let what = "marked as none refused, and one is";
                findings.add(&script, level, &plain, what, &record.to_string());
            }
        }
    }
    findings.judge();
    Ok(())
}

#[test]
fn a_cluster_of_one_node_is_isolated_like_postgresql() -> Result<()> {
    let mut cluster = TestCluster::start(1)?;
    compare(&[(Stage::apart(&cluster)?, Rule::Equal, Protocol::Simple)], Part::EVEN)?;
    cluster.stop_gateway()
}

#[test]
fn rows_together_on_a_node_of_two_are_isolated_like_postgresql() -> Result<()> {
    let mut cluster = TestCluster::start(2)?;
    compare(&[(Stage::together(&cluster)?, Rule::MayRefuse, Protocol::Extended)], Part::ODD)?;
    cluster.stop_gateway()
}

#[test]
fn rows_apart_on_two_nodes_are_isolated_like_postgresql() -> Result<()> {
    let mut cluster = TestCluster::start(2)?;
    compare(&[(Stage::apart(&cluster)?, Rule::MayRefuse, Protocol::Simple)], Part::WHOLE)?;
    cluster.stop_gateway()
}

#[test]
fn rows_apart_are_isolated_by_the_extended_protocol_too() -> Result<()> {
    let mut cluster = TestCluster::start(2)?;
    compare(&[(Stage::apart(&cluster)?, Rule::MayRefuse, Protocol::Extended)], Part::EVEN)?;
    cluster.stop_gateway()
}

/// Only over several nodes: on one server PostgreSQL ends the one that checks first, and in which
/// order a statement meets its rows is up to the plan.
fn break_deadlocks(stage: &Stage) -> Result<()> {
    let server = servers::start(1)?;
    let mut judge = Client::connect(&servers::endpoint(&server, 0))?;
    let mut findings = Findings::default();
    for script in read_directory(&directory().join("deadlocks"))? {
        findings.cases += 1;
        let record = match run(&script, stage, None, Protocol::Simple) {
            Ok(record) => record,
            Err(error) => {
                findings.add(&script, None, stage, &format!("{error:#}"), "");
                continue;
            }
        };
        let is_deadlock = |told: &Told| told.sqlstate.as_deref() == Some("40P01");
        let ended: BTreeSet<String> = record
            .answers()
            .filter(|answered| is_deadlock(&answered.told))
            .map(|answered| answered.session.clone())
            .collect();
        if ended != script.victims {
            let what = format!("{ended:?} end with 40P01, not {:?}", script.victims);
            findings.add(&script, None, stage, &what, &record.to_string());
        } else if let Some(anomaly) = &script.anomaly
            && appears(anomaly, &script, &record, &mut judge)?
        {
            let what = format!("it ends in {}", anomaly.condition);
            findings.add(&script, None, stage, &what, &record.to_string());
        }
    }
    findings.judge();
    Ok(())
}

#[test]
fn deadlocks_over_two_nodes_end_the_youngest() -> Result<()> {
    let mut cluster = TestCluster::start(2)?;
    break_deadlocks(&Stage::apart(&cluster)?)?;
    cluster.stop_gateway()
}

#[test]
fn deadlocks_over_three_nodes_end_the_youngest() -> Result<()> {
    let mut cluster = TestCluster::start(3)?;
    break_deadlocks(&Stage::apart(&cluster)?)?;
    cluster.stop_gateway()
}
