//! What all studies do in the same way: progress, records that one can carry on with, the page at the end.
//!
//! Owns: the order of runs, that what was made is kept when the user interrupts, and that a directory has runs of one
//! configuration. Never: knows what a run does, nor which studies there are.
//! Start reading at [`Series`].

use std::future::Future;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Instant;

use anyhow::{anyhow, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::configuration::{Configuration, Planned};
use crate::files;
use crate::ground::begun;
use crate::interrupt::Interrupt;
use crate::password::hidden;
use crate::record::{Machine, Record, Records};
use crate::report::{Block, Page, html};
use crate::terminal::print;

/// The name of the page in a study's directory.
const PAGE: &str = "index.html";

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
    /// Of these runs.
    ///
    /// Errors: the directory cannot be written, another process writes it, or its runs are another study's or were
    /// made in another way than these.
    pub(crate) fn begin(
        study: &'static str,
        configuration: Configuration,
        output: &OutputArgs,
        planned: &[Planned],
    ) -> anyhow::Result<Self> {
        let unnamed = output.out.is_none().then(tempfile::tempdir).transpose()?;
        let dir = match (&output.out, &unnamed) {
            (Some(dir), _) => dir.clone(),
            (None, Some(unnamed)) => unnamed.path().to_owned(),
            (None, None) => unreachable!("one of them is there"),
        };
        let records = Records::carry_on(&dir, study)?;
        if let Some(why) = configuration.refusal(records.all(), planned) {
            bail!("{}: {why}: name another --out", dir.display());
        }
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} runs  {eta} left  {msg}")?;
        let bar = ProgressBar::new(planned.len() as u64).with_style(style);
        // The page is there to be shown to others.
        let arguments = std::env::args().skip(1).map(|argument| hidden(&argument));
        let command = format!("tutti-lab {}", arguments.collect::<Vec<_>>().join(" "));
        let interrupt = Interrupt::listen()?;
        Ok(Self { study, records, bar, interrupt, dir, _unnamed: unnamed, command })
    }

    /// What a run's record says of the machine.
    pub(crate) fn machine(&self, server: &str) -> Machine {
        Machine::this(server, &self.command)
    }

    /// Whether all of these runs are there from before; then they are passed over.
    pub(crate) fn passes_over<'a>(&mut self, runs: impl IntoIterator<Item = &'a Planned>) -> bool {
        let mut count = 0;
        let are_there = runs.into_iter().all(|run| {
            count += 1;
            self.records.has(&run.name)
        });
        if are_there {
            self.bar.inc(count);
        }
        are_there
    }

    /// Makes what runs need, servers above all.
    ///
    /// Errors: those of `work`; the user has interrupted it, and what it had begun is ended.
    pub(crate) async fn make<T>(
        &mut self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        self.bar.set_message("starting servers");
        let mut work = pin!(work);
        tokio::select! {
            made = &mut work => return made,
            () = self.interrupt.came() => (),
        }
        begun::end(work, begun::is_servers).await;
        Err(self.interrupted())
    }

    /// What is said when the user has interrupted it.
    fn interrupted(&self) -> anyhow::Error {
        self.bar.abandon();
        match self.records.all().len() {
            0 => anyhow!("interrupted before the first run had ended"),
            made => anyhow!(
                "interrupted; {made} runs are in {}: the same command carries on",
                self.dir.display()
            ),
        }
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
            () = self.interrupt.came() => return Err(self.interrupted()),
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
        // First, for what was found is worth more than the page: the disk may be full.
        print(&format!("{}\n", page.in_terminal()))?;
        let path = write(&self.dir, &page, self.records.all())?;
        match self._unnamed {
            None => print(&format!("{}\n", path.display())),
            Some(_) => print("Nothing was kept: --out DIR keeps the runs and a page with plots.\n"),
        }
    }
}

/// Writes a page into a directory of runs: `index.html`, a CSV file for each plot, and what else it has. Says where.
pub(super) fn write(dir: &Path, page: &Page, records: &[Record]) -> anyhow::Result<PathBuf> {
    let mut all = page.files.clone();
    for block in &page.blocks {
        if let Block::Plot(chart) = block {
            all.push((chart.csv_name(), chart.csv()?));
        }
    }
    all.push((PAGE.to_owned(), html::render(page, records)?));
    files::write_all(dir, all.iter().map(|(name, contents)| (name.as_str(), contents.as_str())))?;
    Ok(dir.join(PAGE))
}

/// What is there of the data beside the repository: `shared/data` in this directory, or any above it.
pub(crate) fn shared_data(what: &str) -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let mut places = here.ancestors().map(|dir| dir.join("shared/data").join(what));
    places.find(|path| path.exists())
}
