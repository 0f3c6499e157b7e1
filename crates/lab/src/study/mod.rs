//! Studies: series of runs that answer a question, each one command.
//!
//! Owns: which studies there are, and the page about a directory of runs. Never: measures.
//! Start reading at `transfer`, then [`series`].

use std::path::Path;

use anyhow::bail;

use crate::files;
use crate::record::{self, Record};
use crate::report::{Page, compare, html};
use crate::terminal::print;

mod bank;
pub(crate) mod cost;
pub(crate) mod price;
pub(crate) mod run;
pub(crate) mod scale;
mod series;
pub(crate) mod thesis;
pub(crate) mod transfer;

/// The name of the page that compares a directory with another one.
const COMPARISON: &str = "compared.html";

/// The page about runs of one study.
///
/// Errors: a study that this program does not know.
fn page(records: &[Record]) -> anyhow::Result<Page> {
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

/// `tutti-lab report`.
pub(crate) fn report(dir: &Path, other: Option<&Path>) -> anyhow::Result<()> {
    let records = record::read(dir)?;
    // Printed first: a directory that cannot be written, or a full disk, is no reason to say nothing.
    if let Some(other) = other {
        let page = compare::page(&records, &record::read(other)?, dir, other)?;
        print(&format!("{}\n", page.in_terminal()))?;
        files::write_all(other, [(COMPARISON, html::render(&page, &records)?.as_str())])?;
        return print(&format!("{}\n", other.join(COMPARISON).display()));
    }
    let page = page(&records)?;
    print(&format!("{}\n", page.in_terminal()))?;
    let path = series::write(dir, &page, &records)?;
    print(&format!("{}\n", path.display()))
}
