//! The paper's model without the paper's data: what its published figures determine.
//!
//! An interval needs the covariance of the coefficients, s²(X'X)⁻¹, and the printed table has only its diagonal, to two or
//! three digits. But the experiment's design is published: four deployments of CockroachDB, three numbers of workers, five
//! runs of each. That is all of X. And s² follows from the log-likelihood, which is printed to five digits.
//! So the intervals are those of the original data but for rounding; that the standard errors come out as printed is
//! tested.
//! Owns: these figures. Never: a run.

use std::f64::consts::TAU;

use nalgebra::DVector;

use super::ols::Estimate;
use super::specification::{Setting, Specification};

/// As printed, in the order of [`Specification::Published`]. The last one, of the workers, is printed as -0.0040, to two
/// digits; its t times its standard error gives more, see [`estimate`].
const COEFFICIENTS: [f64; 4] = [1.7200, -0.2493, 0.2167, 1.9180];
const WORKERS_T: f64 = -1.974;
const LOG_LIKELIHOOD: f64 = -0.860_06;

/// The numbers of workers; the paper says that they are three, its spreadsheet which.
pub const WORKERS: [u32; 3] = [20, 40, 60];
/// Runs of each deployment with each number of workers.
pub const REPETITIONS: usize = 5;
/// Nodes of those deployments that have several.
pub const NODES: u32 = 3;

/// The paper's deployments iii to vi, without the workers: one node, three in one region (Toronto), three in three
/// (two of New York, Toronto), three on three continents (New York, London, Singapore).
pub fn deployments() -> [Setting; 4] {
    let one = Setting {
        is_multi_node: false,
        is_multi_dc: false,
        is_multi_continent: false,
        multi_node_count: 0,
        total_distance_km: 0.0,
        workers: 0,
    };
    let near = Setting { is_multi_node: true, multi_node_count: NODES, ..one };
    let regions = Setting { is_multi_dc: true, total_distance_km: 1500.0, ..near };
    let continents = Setting { is_multi_continent: true, total_distance_km: 31_763.0, ..regions };
    [one, near, regions, continents]
}

/// The published model's estimate.
pub fn estimate() -> Estimate {
    let mut settings = Vec::new();
    for deployment in deployments() {
        for workers in WORKERS {
            settings.extend([Setting { workers, ..deployment }; REPETITIONS]);
        }
    }
    let specification = Specification::Published;
    let design = specification.design(&settings);
    let inverse_gram =
        design.tr_mul(&design).try_inverse().expect("the published design is of full rank");
    let n = settings.len() as f64;
    let df_residual = settings.len() - specification.terms().len();
    // The log-likelihood's definition (`Fit::log_likelihood`), solved for SSR.
    let unexplained = n * (-2.0 * LOG_LIKELIHOOD / n - 1.0).exp() / TAU;
    let residual_variance = unexplained / df_residual as f64;

    let workers = COEFFICIENTS.len();
    let workers_error = (residual_variance * inverse_gram[(workers, workers)]).sqrt();
    let mut coefficients = COEFFICIENTS.to_vec();
    coefficients.push(WORKERS_T * workers_error);
    Estimate {
        terms: specification.names(),
        coefficients: DVector::from_vec(coefficients),
        inverse_gram,
        residual_variance,
        df_residual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The printed table: standard error, t, P>|t| and both ends, none of which but one t was put in.
    #[test]
    fn the_rest_of_the_published_table_follows() {
        let printed = [
            "0.105 16.43 0.000 1.510 1.930",
            "0.094 -2.66 0.010 -0.437 -0.062",
            "0.094 2.31 0.024 0.029 0.404",
            "0.094 20.49 0.000 1.730 2.106",
            "0.002 -1.97 0.053 -0.008 0.000",
        ];
        let found: Vec<String> = estimate()
            .coefficients()
            .iter()
            .map(|it| {
                let (error, t, p) = (it.standard_error, it.t, it.p);
                format!("{error:.3} {t:.2} {p:.3} {:.3} {:.3}", it.low, it.high)
            })
            .collect();
        assert_eq!(found, printed);
    }

    /// Printed as 6.19e-05, the upper end of the workers' interval has the most digits of all.
    #[test]
    fn the_smallest_printed_figure_is_met_to_a_digit() {
        let workers = &estimate().coefficients()[4];
        assert!((workers.high - 6.19e-5).abs() < 2e-6, "{}", workers.high);
        assert_eq!(format!("{:.4}", workers.value), "-0.0040");
    }
}
