//! What all studies do in the same way: progress, records that one can carry on with, the page at the end.
//!
//! Owns: the order of runs, and that what was made is kept when the user interrupts. Never: knows what a run does,
//! nor which studies there are.
//! Start reading at [`Series`].

use std::future::Future;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::interrupt::Interrupt;
use crate::record::{Machine, Record, Records};
use crate::report::{Block, Page, html};

/// What every study takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutputArgs {
    /// Directory for the runs (runs.jsonl) and the page about them (index.html); what it has already is
    /// carried on with
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
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

    /// Whether all of these runs are there from before; then they are passed over.
    pub(crate) fn passes_over<'a>(&mut self, runs: impl IntoIterator<Item = &'a String>) -> bool {
        let mut count = 0;
        let are_there = runs.into_iter().all(|run| {
            count += 1;
            self.records.has(run)
        });
        if are_there {
            self.bar.inc(count);
        }
        are_there
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
    pub(crate) fn end(self, page: fn(&[Record]) -> anyhow::Result<Page>) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        let page = page(self.records.all())?;
        let path = write(&self.dir, &page, self.records.all())?;
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

/// Writes a page into a directory of runs: `index.html`, a CSV file for each plot, and what else it has. Says where.
pub(super) fn write(dir: &Path, page: &Page, records: &[Record]) -> anyhow::Result<PathBuf> {
    let path = dir.join("index.html");
    for chart in page.blocks.iter().filter_map(|block| match block {
        Block::Plot(chart) => Some(chart),
        _ => None,
    }) {
        let csv = dir.join(chart.csv_name());
        std::fs::write(&csv, chart.csv()?).with_context(|| format!("write {}", csv.display()))?;
    }
    for (name, contents) in &page.files {
        std::fs::write(dir.join(name), contents)?;
    }
    let html = html::render(page, records)?;
    std::fs::write(&path, html).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// What is there of the data beside the repository: `shared/data` in this directory, or any above it.
pub(crate) fn shared_data(what: &str) -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let mut places = here.ancestors().map(|dir| dir.join("shared/data").join(what));
    places.find(|path| path.exists())
}
