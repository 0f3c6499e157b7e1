//! pgbench: run, and its report and log read.
//!
//! Owns: its options, and what counts of what it did. Never: knows what it runs against.
//! Start reading at [`Pgbench::run`].

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use tokio::process::Command;
use tokio::time::timeout;

use super::target::{Load, Protocol, Script, name};
use super::tpcb::{self, BRANCHES};

/// The part of a measurement that is not counted, because connections and plans are still made.
const WARM_UP_US: u64 = 500_000;
/// What a run may take beyond its time.
const PATIENCE: Duration = Duration::from_secs(120);
/// More threads than processors only get in their own way, and two are enough for any target.
const THREADS_MAX: u16 = 2;
/// Digits that a histogram keeps of each duration.
const DIGITS: u8 = 3;
const LOG_PREFIX: &str = "transactions";

/// The program, and a directory for its logs.
#[derive(Debug)]
pub(super) struct Pgbench {
    program: PathBuf,
    dir: PathBuf,
    script_file: PathBuf,
}

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ran {
    /// In all of its time.
    pub processed: u64,
    pub failed: u64,
    /// Of what ended after the first half second.
    pub counted: Counted,
}

/// Transactions that count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub per_s: f64,
    /// Of none where none counts: so long did the target stand still.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub count: u64,
}

impl Pgbench {
    /// Takes the program of this PostgreSQL, or the one on the search path; its files go to `dir`.
    pub(super) fn new(postgresql: &Path, dir: &Path) -> anyhow::Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = [postgresql.to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&path))
            .map(|dir| dir.join("pgbench"))
            .find(|program| program.is_file())
            .context("pgbench is not installed (Debian: apt-get install postgresql)")?;
        let script_file = dir.join("tpcb-local.sql");
        fs::write(&script_file, tpcb::tpcb_local())?;
        Ok(Self { program, dir: dir.to_owned(), script_file })
    }

    /// Makes its tables: these steps of `--init-steps`, so many times 100,000 accounts.
    pub(super) async fn initialise(
        &self,
        port: u16,
        steps: &str,
        scale: u32,
    ) -> anyhow::Result<()> {
        let mut command = self.command(port);
        command.args(["--initialize", "--quiet", "--init-steps", steps]);
        command.args(["--scale", &scale.to_string(), "postgres"]);
        self.output(&mut command, PATIENCE).await?;
        Ok(())
    }

    /// Runs a load for so many seconds.
    ///
    /// Errors: a client is told one; it does not end.
    pub(super) async fn run(
        &self,
        load: Load,
        port: u16,
        database: &str,
        seconds: u64,
    ) -> anyhow::Result<Ran> {
        self.remove_logs()?;
        let mut command = self.command(port);
        command.args(["--no-vacuum", "--log", "--log-prefix"]).arg(self.dir.join(LOG_PREFIX));
        command.arg(format!("--protocol={}", name(load.protocol)));
        command.arg(format!("--client={}", load.clients));
        let threads = match (load.protocol, load.script) {
            // pgbench waits for each PREPARE with all clients of the thread. Where connections are fewer
            // than clients, it would wait for one that only another of these clients can give back.
            (Protocol::Prepared, Script::Tpcb | Script::TpcbLocal) => load.clients,
            _ => load.clients.min(THREADS_MAX),
        };
        command.arg(format!("--jobs={threads}"));
        command.arg(format!("--time={seconds}"));
        match load.script {
            Script::Select => command.arg("--select-only"),
            Script::Tpcb => command.arg("--builtin=tpcb-like"),
            Script::TpcbLocal => command
                .arg(format!("--define=branches={BRANCHES}"))
                .arg("--file")
                .arg(&self.script_file),
        };
        command.arg(database);
        let report = self.output(&mut command, Duration::from_secs(seconds) + PATIENCE).await?;
        let (processed, failed) = parse_report(&report)
            .with_context(|| format!("cannot understand what pgbench says: {report}"))?;
        let counted = count(&self.take_log()?, seconds * 1_000_000)?;
        Ok(Ran { processed, failed, counted })
    }

    /// For every run: where, as whom, and without TLS, which is not what is compared.
    fn command(&self, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command.env("PGSSLMODE", "disable").env("PGGSSENCMODE", "disable").env("LC_ALL", "C");
        command.args(["--host=127.0.0.1", "--username=postgres", &format!("--port={port}")]);
        command.kill_on_drop(true).process_group(0);
        command
    }

    /// Runs it to its end and gives its standard output; its failure is an error with what it said.
    async fn output(&self, command: &mut Command, limit: Duration) -> anyhow::Result<String> {
        let output = timeout(limit, command.output()).await;
        let output = output.context("pgbench does not end")?.context("cannot run pgbench")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let first = errors.lines().find(|line| line.contains("rror")).unwrap_or(errors.trim());
        ensure!(output.status.success(), "pgbench ended with {}: {first}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Its logs, one for each thread: `PREFIX.PID`, `PREFIX.PID.1`, …
    fn logs(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut logs = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(LOG_PREFIX) {
                logs.push(entry.path());
            }
        }
        Ok(logs)
    }

    fn remove_logs(&self) -> anyhow::Result<()> {
        self.logs()?.into_iter().try_for_each(|log| Ok(fs::remove_file(log)?))
    }

    /// The lines of all its logs, in any order.
    fn take_log(&self) -> anyhow::Result<String> {
        let logs: Vec<String> =
            self.logs()?.iter().map(fs::read_to_string).collect::<Result<_, _>>()?;
        self.remove_logs()?;
        Ok(logs.concat())
    }
}

/// How many transactions a report tells of, and how many failed ones.
fn parse_report(report: &str) -> Option<(u64, u64)> {
    // `number of transactions actually processed: 1234`, also with `/2000` after it;
    // `number of failed transactions: 0 (0.000%)`, which older versions leave out.
    let number_after = |label: &str| {
        let rest = report.lines().find_map(|line| line.strip_prefix(label))?;
        rest.trim().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let processed = number_after("number of transactions actually processed:")?;
    Some((processed, number_after("number of failed transactions:").unwrap_or(0)))
}

/// A line of the log: a transaction that ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Line {
    latency_us: u64,
    /// Since 1970.
    ended_us: u64,
}

impl Line {
    /// Reads `client transaction latency script seconds microseconds …`; nothing where the
    /// transaction failed or was skipped, which has a word in the place of the latency.
    fn parse(line: &str) -> anyhow::Result<Option<Self>> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, latency, _, seconds, microseconds, ..] = fields[..] else {
            anyhow::bail!("cannot understand a line of pgbench's log: {line}");
        };
        if matches!(latency, "failed" | "skipped") {
            return Ok(None);
        }
        let number = |text: &str| {
            let number = text.parse::<u64>();
            number.with_context(|| format!("cannot understand a line of pgbench's log: {line}"))
        };
        let ended_us = number(seconds)? * 1_000_000 + number(microseconds)?;
        Ok(Some(Self { latency_us: number(latency)?, ended_us }))
    }
}

/// What counts of a run of this length: transactions that ended after the warm-up and before its
/// end. The run begins with its first transaction.
fn count(log: &str, lasts_us: u64) -> anyhow::Result<Counted> {
    let mut lines = Vec::new();
    for line in log.lines() {
        lines.extend(Line::parse(line)?);
    }
    let begun_us = lines.iter().map(|line| line.ended_us - line.latency_us).min();
    let begun_us = begun_us.unwrap_or_default();
    let window = begun_us + WARM_UP_US..begun_us + lasts_us;
    let mut latency = Histogram::<u64>::new(DIGITS)?;
    for line in lines.iter().filter(|line| window.contains(&line.ended_us)) {
        latency.record(line.latency_us)?;
    }
    let quantile = |of| (!latency.is_empty()).then(|| latency.value_at_quantile(of) as f64);
    Ok(Counted {
        per_s: latency.len() as f64 * 1_000_000.0 / (lasts_us - WARM_UP_US) as f64,
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        count: latency.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_run_is_read() {
        let report = "\
pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: <builtin: select only>
number of clients: 8
duration: 2 s
number of transactions actually processed: 12345
number of failed transactions: 3 (0.024%)
latency average = 0.182 ms
tps = 5494.203615 (without initial connection time)
";
        assert_eq!(parse_report(report), Some((12_345, 3)));
        let by_count = "number of transactions actually processed: 200/400\n";
        assert_eq!(parse_report(by_count), Some((200, 0)));
        assert_eq!(parse_report("pgbench: error: Run was aborted\n"), None);
    }

    #[test]
    fn a_line_of_the_log_is_read() {
        let line = Line::parse("12 1 29023 0 1795253188 729435").unwrap().unwrap();
        assert_eq!(line, Line { latency_us: 29_023, ended_us: 1_795_253_188_729_435 });
        // With a rate and with retries there are more fields.
        assert!(Line::parse("0 3 1914 0 1795253186 470629 17 0").unwrap().is_some());
        assert_eq!(Line::parse("0 3 failed 0 1795253186 470629").unwrap(), None);
        assert!(Line::parse("0 3 1914").is_err());
        assert!(Line::parse("0 3 x 0 1795253186 470629").is_err());
    }

    #[test]
    fn what_ends_in_the_first_half_second_or_after_the_end_does_not_count() {
        // A run of a second that begins at 10.0; one transaction that is slow because it is first.
        let log = "\
0 1 400000 0 10 400000
1 1 450000 0 10 450000
0 2 100000 0 10 500000
1 2 200000 0 10 650000
0 3 300000 0 10 800000
1 3 500000 0 11 150000
0 4 failed 0 10 900000
";
        let counted = count(log, 1_000_000).unwrap();
        assert_eq!((counted.count, counted.per_s), (3, 6.0));
        let near = |found: Option<f64>, expected: f64| {
            found.is_some_and(|found| (found - expected).abs() < expected / 500.0)
        };
        assert!(near(counted.p50_us, 200_000.0), "{counted:?}");
        assert!(near(counted.p99_us, 300_000.0), "{counted:?}");
    }

    #[test]
    fn a_run_may_stand_still() {
        let nothing = Counted { per_s: 0.0, p50_us: None, p99_us: None, count: 0 };
        assert_eq!(count("", 1_000_000).unwrap(), nothing);
        assert_eq!(count("0 1 400000 0 10 400000\n", 1_000_000).unwrap(), nothing);
    }
}
