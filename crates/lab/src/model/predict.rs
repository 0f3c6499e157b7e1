//! What slowdown to expect, and whether that is known at all.
//!
//! The model knows the deployments that were measured, and nothing between them: what it has is a step for each. So a
//! question is first held against what was measured, by its nodes, its round trip and its workers; then the figures are
//! those of the measured deployments that come nearest, with everything said in which they differ from the question.
//! Owns: that comparison, and the figures. Never: fits, never goes beyond what was measured.
//! Start reading at [`Predictor::answer`].

use std::fmt::Write;

use serde::Serialize;

use super::distance::{
    DETOUR_MAX, DETOUR_TYPICAL, KM_PER_MS, SAME_PLACE_MS, mean_of_pairs_km, possible_km,
};
use super::lack_of_fit::LackOfFit;
use super::ols::{Estimate, FitError};
use super::published;
use super::residuals::Residuals;
use super::runs::Run;
use super::specification::{Setting, Specification, distributed};

/// Above this the spread of runs of one deployment is too unlike another's for one interval to fit both.
const DEVIATION_RATIO_MAX: f64 = 2.0;
/// Below this probability residuals are not taken for normal.
const NORMAL_P_MIN: f64 = 0.05;
/// Below this probability the model is not taken to fit.
const FITS_P_MIN: f64 = 0.05;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Question {
    /// Nodes of the distributed database, from 1.
    pub nodes: u32,
    /// Milliseconds of a round trip between two nodes, the mean over their pairs; nothing where there is one node.
    pub rtt_ms: f64,
    /// Concurrent clients that write.
    pub workers: u32,
}

/// What there is to say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// What was asked.
    pub question: Question,
    /// Whose runs the figures come from.
    pub basis: String,
    /// Whether the question lies within what was measured. If not, the figures are of something else, near it.
    pub is_known: bool,
    /// Which deployments the round trip stands for, and why.
    pub deployment: String,
    /// A line for each deployment that the question may be; two if it lies between them.
    pub expected: Vec<Expected>,
    /// In what the question lies outside of what was measured; empty if it is known.
    pub not_known: Vec<String>,
    /// What the intervals do not say even so.
    pub caveats: Vec<String>,
}

/// The slowdown of one measured deployment.
///
/// Factors are of the run time of the same work on the baseline. The model is one of logarithms, so that the typical factor is
/// the median (the geometric mean), and runs that are far off are so by a factor too.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// The deployment in words.
    pub deployment: String,
    /// Its workers: the question's, or the nearest number that was measured.
    pub workers: u32,
    /// The typical factor.
    pub factor: f64,
    /// 95 % confidence interval of the typical factor.
    pub factor_confidence: (f64, f64),
    /// 95 % prediction interval of the factor of one run.
    pub factor_prediction: (f64, f64),
    /// Of the baseline's throughput: 100 · (1 - 1 / factor).
    pub throughput_lost_percent: f64,
}

/// A deployment that was measured, whatever the number of workers.
#[derive(Clone, Debug, PartialEq)]
struct Measured {
    setting: Setting,
    nodes: u32,
    /// Mean distance between two nodes.
    km: f64,
}

impl Measured {
    fn of(setting: Setting) -> Self {
        let nodes = if setting.is_multi_node { setting.multi_node_count } else { 1 };
        let km = mean_of_pairs_km(setting.total_distance_km, nodes);
        Self { setting: Setting { workers: 0, ..setting }, nodes, km }
    }

    fn name(&self) -> String {
        let Self { setting, nodes, km } = self;
        let place = match (setting.is_multi_continent, setting.is_multi_dc) {
            _ if !setting.is_multi_node => return "one node".to_owned(),
            (true, _) => "on several continents",
            (false, true) => "in several data centres",
            (false, false) => "in one data centre",
        };
        if *km == 0.0 {
            format!("{nodes} nodes {place}")
        } else {
            format!("{nodes} nodes {place}, {km:.0} km apart")
        }
    }
}

/// Repetitions: the runs of a deployment with one number of workers.
#[derive(Clone, Debug)]
struct Cell {
    of: Measured,
    workers: u32,
    /// The factors of the run time, ascending.
    factors: Vec<f64>,
    residuals: Vec<f64>,
}

/// An estimate of the published model, and what it was measured on.
#[derive(Clone, Debug)]
pub struct Predictor {
    estimate: Estimate,
    basis: String,
    measured: Vec<Measured>,
    workers_min: u32,
    workers_max: u32,
    caveats: Vec<String>,
    /// What the model does not fit, with all that was measured; nothing where it fits, or where that cannot be told.
    not_fitted: Option<(LackOfFit, Vec<Cell>)>,
}

impl Predictor {
    /// By the paper's published figures, without its data.
    pub fn published() -> Self {
        let [first, .., last] = published::WORKERS;
        Self {
            estimate: published::estimate(),
            basis: "the published figures of the cost model's paper: 60 runs of CockroachDB"
                .to_owned(),
            measured: published::deployments().into_iter().map(Measured::of).collect(),
            workers_min: first,
            workers_max: last,
            // The first is published (Prob(JB) 1.72e-21); the second is what its spreadsheet gives.
            caveats: vec![
                not_normal(),
                "runs between continents varied three times as much as others: the intervals, which take \
                 all for alike, are too narrow for them and too wide for the others"
                    .to_owned(),
                "measured on CockroachDB, by inserts that do not conflict: other databases and other work \
                 have other figures; fit your own runs with --from"
                    .to_owned(),
            ],
            // Without the runs it cannot be told.
            not_fitted: None,
        }
    }

    /// By the runs on a distributed database among `runs`, which are from `source`.
    pub fn of_runs(runs: &[Run], source: &str) -> Result<Self, FitError> {
        let runs = distributed(runs);
        let fit = Specification::Published.fit(&runs)?;
        let mut measured: Vec<Measured> = Vec::new();
        let mut residuals: Vec<Vec<f64>> = Vec::new();
        for (run, residual) in runs.iter().zip(fit.residuals.iter()) {
            let of = Measured::of(Setting::from(run));
            let place = measured.iter().position(|it| *it == of).unwrap_or_else(|| {
                measured.push(of);
                residuals.push(Vec::new());
                measured.len() - 1
            });
            residuals[place].push(*residual);
        }
        let mut caveats = Vec::new();
        if Residuals::of(&fit.residuals).jarque_bera.p < NORMAL_P_MIN {
            caveats.push(not_normal());
        }
        caveats.extend(unlike_deviations(&measured, &residuals));
        let cells = cells(&runs, fit.residuals.as_slice());
        let residuals: Vec<Vec<f64>> = cells.iter().map(|cell| cell.residuals.clone()).collect();
        let lack = LackOfFit::of(&residuals, fit.estimate.terms.len());
        let not_fitted = lack.filter(|lack| lack.p < FITS_P_MIN).map(|lack| (lack, cells));
        let workers = || runs.iter().map(|run| run.workers);
        Ok(Self {
            basis: format!("{source}: {} runs on a distributed database", runs.len()),
            estimate: fit.estimate,
            measured,
            workers_min: workers().min().unwrap_or_default(),
            workers_max: workers().max().unwrap_or_default(),
            caveats,
            not_fitted,
        })
    }

    /// The slowdown to expect, as far as it is known.
    pub fn answer(&self, question: Question) -> Answer {
        let mut not_known = Vec::new();
        let (near, deployment) = self.deployments(question, &mut not_known);
        let workers = question.workers.clamp(self.workers_min, self.workers_max);
        if workers != question.workers {
            not_known.push(format!(
                "{} workers: measured were {} to {}; the figures are those of {workers}",
                question.workers, self.workers_min, self.workers_max
            ));
        }
        let mut caveats = self.caveats.clone();
        if let Some((lack, cells)) = &self.not_fitted {
            caveats.push(self.lack_in_words(lack, cells, &near, workers));
        }
        Answer {
            question,
            basis: self.basis.clone(),
            is_known: not_known.is_empty(),
            deployment,
            expected: near.into_iter().map(|of| self.expected(of, workers)).collect(),
            not_known,
            caveats,
        }
    }

    /// That the model does not fit, and by how much where it is asked.
    fn lack_in_words(
        &self,
        lack: &LackOfFit,
        cells: &[Cell],
        near: &[&Measured],
        workers: u32,
    ) -> String {
        let LackOfFit { f, df_model, df_error, .. } = lack;
        let p = if lack.p < 0.001 { "p < 0.001".to_owned() } else { format!("p = {:.3}", lack.p) };
        let mut text = format!(
            "the model does not fit these runs: it is farther from them than repetitions are from each other (F test \
             of lack of fit: F = {f:.1} with {df_model} and {df_error} degrees of freedom, {p}), so the typical run \
             time may well be outside of its interval"
        );
        for of in near {
            let here = cells.iter().filter(|cell| cell.of == **of);
            let Some(cell) = here.min_by_key(|cell| cell.workers.abs_diff(workers)) else {
                continue;
            };
            let middle = median(&cell.factors);
            let typical = self.expected(of, cell.workers).factor;
            let percent = 100.0 * (typical / middle - 1.0).abs();
            let direction = if typical < middle { "less" } else { "more" };
            let (least, most) = (cell.factors[0], cell.factors[cell.factors.len() - 1]);
            let _ = write!(
                text,
                "; the median measured with {} and {} workers is {middle:.2} ({least:.2} to {most:.2} in {} runs), \
                 while the model's typical run time there is {typical:.2}, {percent:.0} % {direction}",
                of.name(),
                cell.workers,
                cell.factors.len()
            );
        }
        text
    }

    /// The measured deployments that the question may be or lies between, and why these.
    fn deployments(
        &self,
        question: Question,
        not_known: &mut Vec<String>,
    ) -> (Vec<&Measured>, String) {
        let nodes = self.nearest_nodes(question.nodes);
        if nodes != question.nodes {
            let counts: Vec<String> = self.node_counts().iter().map(u32::to_string).collect();
            not_known.push(format!(
                "{} nodes: measured were {}; the figures are those of {nodes}",
                question.nodes,
                counts.join(" and ")
            ));
        }
        let mut candidates: Vec<&Measured> =
            self.measured.iter().filter(|it| it.nodes == nodes).collect();
        candidates.sort_by(|one, other| one.km.total_cmp(&other.km));
        if nodes == 1 {
            return (candidates, "one node has no other to wait for".to_owned());
        }
        let (least, most) = possible_km(question.rtt_ms);
        let reach = format!(
            "a round trip of {} ms is {least:.0} to {most:.0} km between two nodes",
            question.rtt_ms
        );
        let names = |of: &[&Measured]| -> String {
            of.iter().map(|it| it.name()).collect::<Vec<_>>().join(", or ")
        };
        let within: Vec<&Measured> =
            candidates.iter().copied().filter(|it| least <= it.km && it.km <= most).collect();
        if !within.is_empty() {
            let why = format!("{reach}, and measured were {}", names(&within));
            return (within, why);
        }
        let nearer = candidates.iter().copied().rfind(|it| it.km < least);
        let farther = candidates.iter().copied().find(|it| most < it.km);
        let around: Vec<&Measured> = nearer.into_iter().chain(farther).collect();
        let lies = match (nearer, farther) {
            (Some(_), Some(_)) => "nothing was measured there; the figures are those of both sides",
            (None, _) => "nothing was measured as near; the figures are those of the nearest",
            (_, None) => "nothing was measured as far; the figures are those of the farthest",
        };
        not_known.push(format!("{} ms between nodes: {lies}", question.rtt_ms));
        let why = format!("{reach}, and measured were {}", names(&around));
        (around, why)
    }

    /// How many nodes were measured, each once, ascending.
    fn node_counts(&self) -> Vec<u32> {
        let mut counts: Vec<u32> = self.measured.iter().map(|it| it.nodes).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Several nodes are never answered by one, where several were measured.
    fn nearest_nodes(&self, nodes: u32) -> u32 {
        let counts = self.node_counts();
        let is_several = |count: &u32| (1 < *count) == (1 < nodes);
        let alike = counts.iter().copied().filter(is_several).min_by_key(|it| it.abs_diff(nodes));
        alike
            .or(counts.first().copied())
            .expect("something was measured, or it could not be fitted")
    }

    fn expected(&self, of: &Measured, workers: u32) -> Expected {
        let row = Specification::Published.row(&Setting { workers, ..of.setting });
        let point = self.estimate.at(&row);
        let factors = |(low, high): (f64, f64)| (low.exp(), high.exp());
        let factor = point.mean.exp();
        Expected {
            deployment: of.name(),
            workers,
            factor,
            factor_confidence: factors(point.confidence),
            factor_prediction: factors(point.prediction),
            throughput_lost_percent: 100.0 * (1.0 - 1.0 / factor),
        }
    }
}

/// Runs by deployment and workers, with what the model leaves of each.
fn cells(runs: &[Run], residuals: &[f64]) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for (run, residual) in runs.iter().zip(residuals) {
        let (of, workers) = (Measured::of(Setting::from(run)), run.workers);
        let place = cells.iter().position(|cell| cell.of == of && cell.workers == workers);
        let place = place.unwrap_or_else(|| {
            cells.push(Cell { of, workers, factors: Vec::new(), residuals: Vec::new() });
            cells.len() - 1
        });
        cells[place].factors.push(run.runtime_factor.exp());
        cells[place].residuals.push(*residual);
    }
    for cell in &mut cells {
        cell.factors.sort_by(f64::total_cmp);
    }
    cells
}

/// Of values in ascending order, at least one.
fn median(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

fn not_normal() -> String {
    "the errors are not normal: more runs than 5 in 100 may lie far outside of the interval of runs"
        .to_owned()
}

/// Says so if runs of one deployment vary much more than another's: the intervals take all for alike.
fn unlike_deviations(measured: &[Measured], residuals: &[Vec<f64>]) -> Option<String> {
    let spread = |of: &[f64]| (of.iter().map(|it| it * it).sum::<f64>() / of.len() as f64).sqrt();
    let spreads = measured.iter().zip(residuals.iter().map(|of| spread(of)));
    let (least, most) = (
        spreads.clone().min_by(|one, other| one.1.total_cmp(&other.1))?,
        spreads.max_by(|one, other| one.1.total_cmp(&other.1))?,
    );
    let ratio = most.1 / least.1;
    // Also where the least is 0.
    (DEVIATION_RATIO_MAX < ratio).then(|| {
        format!(
            "runs vary most with {} and least with {}, by {ratio:.1} to 1: the intervals, which take all for \
             alike, are too narrow for the one and too wide for the other",
            most.0.name(),
            least.0.name()
        )
    })
}

/// The answer for people.
pub fn text(answer: &Answer) -> String {
    let Question { nodes, rtt_ms, workers } = answer.question;
    let between = if nodes == 1 { String::new() } else { format!(", {rtt_ms} ms between them") };
    let s = if nodes == 1 { "" } else { "s" };
    let mut text = format!("{nodes} node{s}{between}, {workers} workers\nby {}\n\n", answer.basis);
    if !answer.is_known {
        text.push_str("Not known:\n");
        list(&mut text, &answer.not_known);
        text.push('\n');
    }
    for expected in &answer.expected {
        let Expected { deployment, workers, factor, .. } = expected;
        let (low, high) = expected.factor_confidence;
        let (run_low, run_high) = expected.factor_prediction;
        let lost = expected.throughput_lost_percent;
        let _ = write!(
            text,
            "{deployment}, {workers} workers:\n  \
             run time {factor:.2} times the baseline's, {lost:.0} % less throughput\n  \
             95 % confidence interval of the typical run time   {low:.2} to {high:.2}\n  \
             95 % prediction interval of one run                {run_low:.2} to {run_high:.2}\n"
        );
    }
    text.push_str(
        "\nBaseline: the same inserts by as many workers on one PostgreSQL server, on another host of the\n\
         client's data centre. Typical: the median.\n",
    );
    let _ = writeln!(text, "\nDeployment: {}.", answer.deployment);
    if nodes != 1 {
        let _ = write!(
            text,
            "Light in fibre makes {KM_PER_MS:.0} km and back in 1 ms; cables and routers typically take \
             {DETOUR_TYPICAL} times\nas long, and up to {DETOUR_MAX} times are allowed for here. Up to \
             {SAME_PLACE_MS} ms may be one data centre.\n"
        );
    }
    if !answer.caveats.is_empty() {
        text.push_str("\nMind:\n");
        list(&mut text, &answer.caveats);
    }
    text
}

fn list(text: &mut String, items: &[String]) {
    for item in items {
        let _ = writeln!(text, "- {item}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(nodes: u32, rtt_ms: f64, workers: u32) -> Answer {
        Predictor::published().answer(Question { nodes, rtt_ms, workers })
    }

    fn deployments(answer: &Answer) -> Vec<&str> {
        answer.expected.iter().map(|expected| expected.deployment.as_str()).collect()
    }

    const HERE: &str = "3 nodes in one data centre";
    const REGIONS: &str = "3 nodes in several data centres, 500 km apart";
    const CONTINENTS: &str = "3 nodes on several continents, 10588 km apart";

    #[test]
    fn a_round_trip_stands_for_the_measured_distance_that_it_may_be() {
        for (rtt_ms, expected) in [
            (0.0, HERE),
            (0.3, HERE),
            (1.0, HERE),
            (5.0, REGIONS),
            (12.0, REGIONS),
            (21.0, REGIONS),
            (106.0, CONTINENTS),
            (220.0, CONTINENTS),
        ] {
            let answer = ask(3, rtt_ms, 40);
            assert!(answer.is_known, "{rtt_ms}: {:?}", answer.not_known);
            assert_eq!(deployments(&answer), [expected], "{rtt_ms}");
        }
        assert_eq!(deployments(&ask(1, 0.0, 40)), ["one node"]);
    }

    #[test]
    fn between_two_distances_both_are_given_and_it_is_not_known() {
        for (rtt_ms, both) in [(3.0, [HERE, REGIONS]), (50.0, [REGIONS, CONTINENTS])] {
            let answer = ask(3, rtt_ms, 40);
            assert!(!answer.is_known);
            assert_eq!(deployments(&answer), both);
            assert!(answer.not_known[0].contains("nothing was measured there"));
        }
    }

    #[test]
    fn beyond_the_farthest_it_is_not_known() {
        let answer = ask(3, 900.0, 40);
        assert!(!answer.is_known);
        assert_eq!(deployments(&answer), [CONTINENTS]);
        assert_eq!(
            answer.not_known,
            [
                "900 ms between nodes: nothing was measured as far; the figures are those of the farthest"
            ]
        );
    }

    #[test]
    fn other_nodes_and_workers_than_measured_are_not_known_and_not_extrapolated() {
        let answer = ask(5, 0.5, 200);
        assert_eq!(
            answer.not_known,
            [
                "5 nodes: measured were 1 and 3; the figures are those of 3",
                "200 workers: measured were 20 to 60; the figures are those of 60",
            ]
        );
        assert_eq!(answer.expected, ask(3, 0.5, 60).expected);
        // Two nodes are nearer to three: both wait for another.
        assert_eq!(deployments(&ask(2, 0.5, 20)), [HERE]);
        assert!(text(&answer).contains("Not known:\n- 5 nodes"));
        // Between measured numbers the line is drawn.
        assert!(ask(3, 0.5, 33).is_known);
    }

    #[test]
    fn intervals_are_around_the_factor_and_a_runs_is_the_wider() {
        for (nodes, rtt_ms) in [(1, 0.0), (3, 0.5), (3, 12.0), (3, 150.0)] {
            for workers in [20, 40, 60] {
                let answer = ask(nodes, rtt_ms, workers);
                let [expected] = &answer.expected[..] else { panic!("one deployment") };
                let (low, high) = expected.factor_confidence;
                let (run_low, run_high) = expected.factor_prediction;
                let factor = expected.factor;
                assert!(run_low < low && low < factor && factor < high && high < run_high);
            }
        }
    }

    /// exp(1.7200 - 40 · 0.0040) by hand; and further nodes, regions and continents by their coefficients.
    #[test]
    fn factors_are_those_of_the_published_coefficients() {
        let factor = |nodes, rtt_ms| ask(nodes, rtt_ms, 40).expected[0].factor;
        let one = factor(1, 0.0);
        assert!((one.ln() - 1.56).abs() < 0.003, "{one}");
        let step = |from: f64, to: f64, coefficient: f64| {
            assert!(((to / from).ln() - coefficient).abs() < 1e-9, "{from} to {to}");
        };
        step(one, factor(3, 0.5), -0.2493);
        step(factor(3, 0.5), factor(3, 12.0), 0.2167);
        step(factor(3, 12.0), factor(3, 150.0), 1.9180);
    }

    /// Four deployments, the farthest 200 km away, by 10 and 80 workers, each twice, `noise` above and below its mean; the
    /// noise of the farthest is `far_noise`.
    fn runs(noise: f64, far_noise: f64) -> Vec<Run> {
        let mut runs = Vec::new();
        for (place, total_distance_km) in [0.0, 0.0, 60.0, 600.0].into_iter().enumerate() {
            for (workers, sign) in [(10, 1.0), (10, -1.0), (80, 1.0), (80, -1.0)] {
                let noise = if place == 3 { far_noise } else { noise };
                runs.push(Run {
                    batch_description: place.to_string(),
                    workers,
                    is_distributed: true,
                    is_multi_node: 1 <= place,
                    is_multi_dc: 2 <= place,
                    is_multi_continent: 3 <= place,
                    multi_node_count: if place == 0 { 0 } else { 3 },
                    total_distance_km,
                    runtime_factor: 1.0 + 0.5 * place as f64 + sign * noise,
                });
            }
        }
        let one_server = Run { is_distributed: false, runtime_factor: 9.0, ..runs[0].clone() };
        runs.push(one_server);
        runs
    }

    #[test]
    fn ranges_and_distances_are_those_of_the_runs() {
        let predictor = Predictor::of_runs(&runs(0.1, 0.1), "ours.csv").unwrap();
        let answer = predictor.answer(Question { nodes: 3, rtt_ms: 4.0, workers: 70 });
        assert!(answer.is_known, "{:?}", answer.not_known);
        assert_eq!(answer.basis, "ours.csv: 16 runs on a distributed database");
        assert_eq!(deployments(&answer), ["3 nodes on several continents, 200 km apart"]);
        assert!((answer.expected[0].factor.ln() - 2.5).abs() < 1e-9);
        // Two distances are near enough to each other for this round trip to be either.
        let answer = predictor.answer(Question { nodes: 3, rtt_ms: 0.5, workers: 9 });
        assert_eq!(deployments(&answer).len(), 2);
        assert_eq!(answer.not_known.len(), 1);
        assert!(answer.not_known[0].starts_with("9 workers: measured were 10 to 80"));
    }

    /// As the lab's own runs are: more workers help far away and harm near by, while the model has one slope for all.
    #[test]
    fn a_model_that_does_not_fit_is_told_with_how_far_it_is_off() {
        let mut bent = runs(0.1, 0.1);
        for run in bent.iter_mut().filter(|run| run.workers == 80) {
            run.runtime_factor += if run.is_multi_continent { -0.9 } else { 0.3 };
        }
        let predictor = Predictor::of_runs(&bent, "ours.csv").unwrap();
        // The slope is that of all: (0.3 · 3 - 0.9) / 4 = 0. So the farthest is 2.05 in the mean, 1.6 with 80 workers.
        let answer = predictor.answer(Question { nodes: 3, rtt_ms: 4.0, workers: 70 });
        let caveats = answer.caveats.join(" ");
        let said = "the model does not fit these runs: it is farther from them than repetitions are from each other";
        assert!(caveats.contains(said), "{caveats}");
        assert!(caveats.contains("with 3 and 8 degrees of freedom, p < 0.001"), "{caveats}");
        let (typical, middle) = (2.05_f64.exp(), f64::midpoint(1.7_f64.exp(), 1.5_f64.exp()));
        let said = format!(
            "the median measured with 3 nodes on several continents, 200 km apart and 80 workers is {middle:.2} ({:.2} to \
             {:.2} in 2 runs), while the model's typical run time there is {typical:.2}, {:.0} % more",
            1.5_f64.exp(),
            1.7_f64.exp(),
            100.0 * (typical / middle - 1.0)
        );
        assert!(caveats.contains(&said), "{said}: {caveats}");
        assert!(text(&answer).contains("the model does not fit these runs"));
        // One that fits says nothing of it.
        let fits = Predictor::of_runs(&runs(0.1, 0.1), "ours.csv").unwrap();
        let answer = fits.answer(Question { nodes: 3, rtt_ms: 4.0, workers: 70 });
        assert!(!answer.caveats.join(" ").contains("does not fit"));
    }

    #[test]
    fn spreads_that_are_unlike_are_told() {
        let caveats = |far_noise| {
            Predictor::of_runs(&runs(0.1, far_noise), "ours.csv").unwrap().caveats.join(" ")
        };
        assert!(!caveats(0.15).contains("runs vary most"));
        assert!(caveats(0.3).contains("runs vary most with 3 nodes on several continents"));
        assert!(caveats(0.3).contains("by 3.0 to 1"));
    }
}
