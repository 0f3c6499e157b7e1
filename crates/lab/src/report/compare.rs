//! Two directories of the same study side by side, with the noise of their repetitions.
//!
//! Owns: which runs belong together. Never: reads a file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::ensure;

use super::{Block, Page, Table, figure, median};
use crate::record::Record;

/// What clients of a kind did in the repetitions of a run: per second, and p99 in milliseconds.
type Repeated = BTreeMap<(String, String), Vec<(f64, f64)>>;

/// The page that compares `new` with `old`.
///
/// Errors: they are of different studies.
pub(crate) fn page(
    old: &[Record],
    new: &[Record],
    old_dir: &Path,
    new_dir: &Path,
) -> anyhow::Result<Page> {
    let (one, other) = (&old[0].study, &new[0].study);
    ensure!(one == other, "one has runs of the study {one}, the other of {other}");
    let (before, after) = (repeated(old), repeated(new));
    let mut lines = Vec::new();
    let (mut changed, mut compared) = (0, 0);
    for ((run, clients), was) in &before {
        let Some(is) = after.get(&(run.clone(), clients.clone())) else { continue };
        let (was_per_s, is_per_s) = (rates(was), rates(is));
        let (was_range, is_range) = (range(&was_per_s), range(&is_per_s));
        // Outside of each other's repetitions: more than their noise.
        let is_changed = is_range.1 < was_range.0 || was_range.1 < is_range.0;
        compared += 1;
        changed += usize::from(is_changed);
        let p99 = |of: &[(f64, f64)]| figure(median(of.iter().map(|(_, p99)| *p99).collect()));
        lines.push(vec![
            run.clone(),
            clients.clone(),
            with_range(&was_per_s),
            with_range(&is_per_s),
            figure(median(is_per_s) / median(was_per_s)),
            if is_changed { "yes" } else { "no" }.to_owned(),
            p99(was),
            p99(is),
        ]);
    }
    let (old_dir, new_dir) = (old_dir.display(), new_dir.display());
    Ok(Page {
        title: format!("{one}: {new_dir} beside {old_dir}"),
        lead: format!(
            "{changed} of {compared} figures differ by more than the noise of their repetitions: no \
             repetition of one is within those of the other. With few repetitions that happens by chance."
        ),
        files: Vec::new(),
        blocks: vec![
            Table::block(
                "Done per second: the median, and in brackets the lowest and the highest repetition",
                &[
                    "run",
                    "clients",
                    "before",
                    "after",
                    "ratio",
                    "beyond noise",
                    "p99 ms",
                    "p99 ms after",
                ],
                lines,
            ),
            Block::Text("Runs that only one of the two has are left out.".to_owned()),
        ],
    })
}

fn repeated(records: &[Record]) -> Repeated {
    let mut all = Repeated::new();
    for record in records {
        // The repetition is the last word of a run's name.
        let run = record.run.rsplit_once(" #").map_or(record.run.as_str(), |(run, _)| run);
        for (clients, figures) in &record.clients {
            let key = (run.to_owned(), clients.clone());
            all.entry(key).or_default().push((figures.per_s, figures.p99_ms));
        }
    }
    all
}

fn rates(of: &[(f64, f64)]) -> Vec<f64> {
    of.iter().map(|(per_s, _)| *per_s).collect()
}

fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    (low, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

fn with_range(values: &[f64]) -> String {
    let (low, high) = range(values);
    let middle = figure(median(values.to_vec()));
    if values.len() == 1 { middle } else { format!("{middle} ({}-{})", figure(low), figure(high)) }
}
