//! Studies: series of runs that answer a question, each one command.
//!
//! Owns: which studies there are, and what all of them do in the same way: progress, records that one can carry
//! on with, the page at the end. Never: knows what a run does.
//! Start reading at [`Series`], then `transfer`.

use std::future::Future;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::bail;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::interrupt::Interrupt;
use crate::record::{Machine, Record, Records};
use crate::report::{self, Page};

pub(crate) mod cost;
pub(crate) mod price;
pub(crate) mod run;
pub(crate) mod scale;
pub(crate) mod thesis;
pub(crate) mod transfer;

/// What every study takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArgs {
    /// Directory for the runs (runs.jsonl) and the page about them (index.html); what it has already is
    /// carried on with
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
}

/// The page about runs of one study.
///
/// Errors: a study that this program does not know.
pub(crate) fn page(records: &[Record]) -> anyhow::Result<Page> {
    match records.first().map(|record| record.study.as_str()) {
        Some(cost::NAME) => cost::page(records),
        Some(price::NAME) => price::page(records),
        Some(run::NAME) => run::page(records),
        Some(scale::NAME) => scale::page(records),
        Some(thesis::NAME) => thesis::page(records),
        Some(transfer::NAME) => transfer::page(records),
        other => bail!("no study is called {other:?}"),
    }
}

/// The runs of a study, one after the other.
pub(crate) struct Series {
    study: &'static str,
    records: Records,
    bar: ProgressBar,
    interrupt: Interrupt,
    dir: PathBuf,
    /// Removed at the end, with the runs, where no directory was named.
    _unnamed: Option<tempfile::TempDir>,
    command: String,
}

impl Series {
    /// Of so many runs.
    ///
    /// Errors: the directory cannot be written, or is another study's.
    pub(crate) fn begin(
        study: &'static str,
        output: &OutputArgs,
        runs: usize,
    ) -> anyhow::Result<Self> {
        let unnamed = output.out.is_none().then(tempfile::tempdir).transpose()?;
        let dir = match (&output.out, &unnamed) {
            (Some(dir), _) => dir.clone(),
            (None, Some(unnamed)) => unnamed.path().to_owned(),
            (None, None) => unreachable!("one of them is there"),
        };
        let records = Records::carry_on(&dir, study)?;
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} runs  {eta} left  {msg}")?;
        let bar = ProgressBar::new(runs as u64).with_style(style);
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        let command = format!("tutti-lab {command}");
        let interrupt = Interrupt::listen()?;
        Ok(Self { study, records, bar, interrupt, dir, _unnamed: unnamed, command })
    }

    /// What a run's record says of the machine.
    pub(crate) fn machine(&self, server: &str) -> Machine {
        Machine::this(server, &self.command)
    }

    /// A run that is there from before.
    pub(crate) fn record(&self, run: &str) -> Option<&Record> {
        self.records.all().iter().find(|record| record.run == run)
    }

    /// Whether all of these runs are there from before.
    pub(crate) fn has_all<'a>(&self, runs: impl IntoIterator<Item = &'a String>) -> bool {
        runs.into_iter().all(|run| self.records.has(run))
    }

    /// Makes a run and keeps its record, unless it is there from before.
    ///
    /// Errors: the run's; the user has interrupted it.
    pub(crate) async fn run(
        &mut self,
        run: &str,
        work: impl Future<Output = anyhow::Result<Record>>,
    ) -> anyhow::Result<()> {
        if self.records.has(run) {
            self.bar.inc(1);
            return Ok(());
        }
        self.bar.set_message(run.to_owned());
        let begun = Instant::now();
        let made = tokio::select! {
            made = work => made?,
            () = self.interrupt.came() => {
                self.bar.abandon();
                match self.records.all().len() {
                    0 => bail!("interrupted before the first run had ended"),
                    made => bail!(
                        "interrupted; {made} runs are in {}: the same command carries on",
                        self.dir.display()
                    ),
                }
            }
        };
        if !std::io::stderr().is_terminal() {
            let seconds = begun.elapsed().as_secs_f64();
            eprintln!("{}: {run} ({seconds:.1} s)", self.study);
        }
        self.records.add(made)?;
        self.bar.inc(1);
        Ok(())
    }

    /// Prints what came of it; writes the page where a directory was named.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        let (page, path) = report::write(&self.dir, self.records.all())?;
        println!("{}", page.in_terminal());
        match self._unnamed {
            None => println!("{}", path.display()),
            Some(_) => {
                println!("Nothing was kept: --out DIR keeps the runs and a page with plots.")
            }
        }
        Ok(())
    }
}

/// The directory of the tests' data beside the checkout, if it is there.
pub(crate) fn shared_data(what: &str) -> Option<PathBuf> {
    let places = ["../shared/data", "shared/data", "../../../shared/data"];
    places.iter().map(|place| Path::new(place).join(what)).find(|path| path.exists())
}
