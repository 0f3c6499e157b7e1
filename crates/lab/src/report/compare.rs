//! Two directories of the same study side by side, with the noise of their repetitions.
//!
//! Owns: which runs belong together, what is known of their noise, and in what they were made differently.
//! Never: reads a file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::ensure;

use super::{Block, Page, Table, figure, median};
use crate::configuration::is_same;
use crate::record::Record;

/// What clients of a kind did in the repetitions of a run: per second, and p99 in milliseconds.
type Repeated = BTreeMap<(String, String), Vec<(f64, f64)>>;

/// What is to be said of a difference.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Noise {
    /// Every repetition of one is above every repetition of the other.
    Exceeded,
    Within,
    /// One of the two has a single repetition, whose noise nobody knows.
    NotKnown,
}

impl Noise {
    fn of(was: &[f64], is: &[f64]) -> Self {
        if was.len().min(is.len()) < 2 {
            return Self::NotKnown;
        }
        let (was, is) = (range(was), range(is));
        if is.1 < was.0 || was.1 < is.0 { Self::Exceeded } else { Self::Within }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Exceeded => "yes",
            Self::Within => "no",
            Self::NotKnown => "not known",
        }
    }
}

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
    let mut noises = Vec::new();
    let mut repetitions = BTreeSet::new();
    for ((run, clients), was) in &before {
        let Some(is) = after.get(&(run.clone(), clients.clone())) else { continue };
        let (was_per_s, is_per_s) = (rates(was), rates(is));
        let noise = Noise::of(&was_per_s, &is_per_s);
        noises.push(noise);
        if noise != Noise::NotKnown {
            repetitions.insert((was.len(), is.len()));
        }
        let p99 = |of: &[(f64, f64)]| figure(median(of.iter().map(|(_, p99)| *p99).collect()));
        lines.push(vec![
            run.clone(),
            clients.clone(),
            with_range(&was_per_s),
            with_range(&is_per_s),
            figure(median(is_per_s) / median(was_per_s)),
            noise.name().to_owned(),
            p99(was),
            p99(is),
        ]);
    }
    let (old_dir, new_dir) = (old_dir.display(), new_dir.display());
    let mut lead = in_words(&noises, &repetitions);
    lead.extend(differences(old, new));
    Ok(Page {
        title: format!("{one}: {new_dir} beside {old_dir}"),
        lead: lead.join(" "),
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

/// How many figures differ, and what that is worth.
fn in_words(noises: &[Noise], repetitions: &BTreeSet<(usize, usize)>) -> Vec<String> {
    let count = |of: Noise| noises.iter().filter(|noise| **noise == of).count();
    let (exceeded, within, not_known) =
        (count(Noise::Exceeded), count(Noise::Within), count(Noise::NotKnown));
    let known = exceeded + within;
    let mut said = Vec::new();
    if noises.is_empty() {
        said.push("No run is in both.".to_owned());
    }
    if 0 < known {
        let by_chance: Vec<String> = repetitions
            .iter()
            .map(|(was, is)| {
                let percent = figure(100.0 * chance(*was, *is));
                format!("{percent} % of figures with {was} repetitions beside {is}")
            })
            .collect();
        said.push(format!(
            "{exceeded} of {known} figures differ by more than the noise of their repetitions: every repetition \
             of one is above every repetition of the other. Where nothing has changed, that happens by chance \
             in {}.",
            by_chance.join(", ")
        ));
    }
    if 0 < not_known {
        said.push(format!(
            "Of {not_known} of {} figures it is not known whether they differ by more than noise, for one of the \
             two has them once only.",
            noises.len()
        ));
    }
    said
}

/// The probability that all of one are above all of the other where both are of one distribution: of the orders
/// in which they may come, two.
fn chance(was: usize, is: usize) -> f64 {
    // 2 · was! · is! / (was + is)!
    (1..=was).fold(2.0, |chance, place| chance * place as f64 / (is + place) as f64)
}

/// In what runs that both have were made differently. What one does not say, as older versions did not say
/// everything, is not counted as different.
fn differences(old: &[Record], new: &[Record]) -> Option<String> {
    let mut differing: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for was in old {
        for is in new.iter().filter(|is| kind(is) == kind(was)) {
            for (name, was) in was.parameters.iter().filter(|(name, _)| *name != "repetition") {
                let Some(is) = is.parameters.get(name) else { continue };
                if !is_same(was, is) {
                    differing.entry(name).or_default().insert(format!("{was} before, {is} after"));
                }
            }
        }
    }
    let said: Vec<String> = differing
        .into_iter()
        .map(|(name, values)| {
            format!("{name} ({})", values.into_iter().collect::<Vec<_>>().join("; "))
        })
        .collect();
    (!said.is_empty())
        .then(|| format!("They were made with different parameters: {}.", said.join(", ")))
}

/// A run's name without its last word, the repetition.
fn kind(record: &Record) -> &str {
    record.run.rsplit_once(" #").map_or(record.run.as_str(), |(run, _)| run)
}

fn repeated(records: &[Record]) -> Repeated {
    let mut all = Repeated::new();
    for record in records {
        for (clients, figures) in &record.clients {
            let key = (kind(record).to_owned(), clients.clone());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Figures;
    use crate::record::Machine;

    /// Repetitions of one run, with so many done per second.
    fn runs(rtt_ms: f64, rates: &[f64]) -> Vec<Record> {
        let run = |(number, per_s): (usize, &f64)| Record {
            study: "thesis".to_owned(),
            run: format!("2 nodes #{number}"),
            parameters: BTreeMap::from([
                ("rtt_ms".to_owned(), rtt_ms.into()),
                ("repetition".to_owned(), number.into()),
            ]),
            lasted_s: 1.0,
            clients: BTreeMap::from([(
                "selects".to_owned(),
                Figures { per_s: *per_s, ..Figures::default() },
            )]),
            figures: BTreeMap::new(),
            checked: String::new(),
            made_on: Machine::this("none", "none"),
        };
        rates.iter().enumerate().map(run).collect()
    }

    fn compared(old: &[Record], new: &[Record]) -> (String, String) {
        let page = page(old, new, Path::new("old"), Path::new("new")).unwrap();
        let Block::Table(table) = &page.blocks[0] else { panic!("a table") };
        (page.lead, table.lines[0][5].clone())
    }

    #[test]
    fn the_noise_of_one_repetition_is_not_known() {
        let (lead, noise) = compared(&runs(0.0, &[130.0]), &runs(0.0, &[129.7]));
        assert_eq!(noise, "not known");
        assert!(lead.starts_with("Of 1 of 1 figures it is not known"), "{lead}");
        assert!(!lead.contains("differ by more than the noise of"), "{lead}");
        let (_, noise) = compared(&runs(0.0, &[100.0, 101.0, 102.0]), &runs(0.0, &[200.0]));
        assert_eq!(noise, "not known");
    }

    #[test]
    fn ranges_that_are_apart_are_told_with_the_chance_of_it() {
        let (three, higher) =
            (runs(0.0, &[100.0, 101.0, 102.0]), runs(0.0, &[103.0, 105.0, 104.0]));
        let (lead, noise) = compared(&three, &higher);
        assert_eq!(noise, "yes");
        assert!(
            lead.contains("1 of 1 figures differ") && lead.contains("in 10.0 % of figures"),
            "{lead}"
        );
        let (lead, noise) = compared(&three, &runs(0.0, &[101.5, 105.0]));
        assert_eq!(noise, "no");
        assert!(lead.contains("0 of 1 figures differ"), "{lead}");
    }

    #[test]
    fn chances_are_those_of_orders() {
        // 6 values have 20 ways to be 3 and 3, 4 have 6 to be 2 and 2.
        assert!((chance(3, 3) - 0.1).abs() < 1e-12);
        assert!((chance(2, 2) - 1.0 / 3.0).abs() < 1e-12);
        assert!((chance(5, 3) - chance(3, 5)).abs() < 1e-12);
    }

    #[test]
    fn what_was_made_differently_is_named() {
        let (lead, _) = compared(&runs(0.0, &[1.0, 2.0]), &runs(5.0, &[1.0, 2.0]));
        let said = "They were made with different parameters: rtt_ms (0.0 before, 5.0 after).";
        assert!(lead.ends_with(said), "{lead}");
        let (lead, _) = compared(&runs(5.0, &[1.0, 2.0]), &runs(5.0, &[1.0, 2.0, 3.0]));
        assert!(!lead.contains("different parameters"), "{lead}");
        // What an older version did not record.
        let mut old = runs(0.0, &[1.0]);
        old[0].parameters.remove("rtt_ms");
        assert!(!compared(&old, &runs(5.0, &[1.0])).0.contains("different parameters"));
    }
}
