//! Studies: series of runs that answer a question, each one command.
//!
//! Owns: which studies there are, and the page about a directory of runs. Never: measures.
//! Start reading at `transfer`, then [`series`].

use std::path::Path;

use anyhow::bail;

use crate::record::{self, Record};
use crate::report::{Page, compare, html};

mod bank;
pub(crate) mod cost;
pub(crate) mod price;
pub(crate) mod run;
pub(crate) mod scale;
mod series;
pub(crate) mod thesis;
pub(crate) mod transfer;

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
    if let Some(other) = other {
        let page = compare::page(&records, &record::read(other)?, dir, other)?;
        let path = other.join("compared.html");
        std::fs::write(&path, html::render(&page, &records)?)?;
        println!("{}\n{}", page.in_terminal(), path.display());
        return Ok(());
    }
    let page = page(&records)?;
    let path = series::write(dir, &page, &records)?;
    println!("{}\n{}", page.in_terminal(), path.display());
    Ok(())
}
