//! Ordinary least squares: what is estimated, and how well.
//!
//! Owns: the estimate, its covariance, intervals of it, and the figures of the whole fit. Never: knows what is
//! fitted; terms are names and columns here.
//! Start reading at [`fit`].

use nalgebra::{DMatrix, DVector, RowDVector, SVD};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::tails;

/// By how much a fit of nothing may be worse than the mean, by rounding alone.
const ROUNDING_MAX: f64 = 1e-6;

/// The level of all intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Why nothing can be fitted. None of these is mended by trying again with the same observations.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FitError {
    /// No degree of freedom is left to estimate the errors from.
    #[error(
        "{observations} observations are too few for {terms} terms: at least {} are needed",
        terms + 1
    )]
    TooFewObservations {
        /// Rows of the design.
        observations: usize,
        /// Columns of the design.
        terms: usize,
    },

    /// A column says nothing that the ones before it do not say already.
    #[error(
        "{term} cannot be estimated: in these observations it is a combination of the terms before it ({before})"
    )]
    RankDeficient {
        /// The first such column.
        term: String,
        /// The columns before it, as a list.
        before: String,
    },

    /// The response is the same in all rows, so there is nothing to explain.
    #[error("the response is {value} in every observation: there is nothing to explain")]
    ConstantResponse {
        /// What it always is.
        value: f64,
    },

    /// Numbers whose squares are infinite, or 0 where they are not.
    #[error(
        "{name} cannot be computed with: its values, or their differences, are too large or too small"
    )]
    OutOfRange {
        /// The term, or "the response".
        name: String,
    },

    /// What the terms say is lost in rounding: the fit is worse than none.
    #[error(
        "these observations cannot be fitted: the values of {term} differ by too little for their size, so that \
         rounding decides"
    )]
    Rounding {
        /// The term whose values differ least for their size.
        term: String,
    },

    /// A number that is none: NaN, or infinite.
    #[error("observation {observation}: {name} is not a finite number")]
    NotFinite {
        /// Counted from 1.
        observation: usize,
        /// The term, or "the response".
        name: String,
    },
}

/// What least squares says of the coefficients, with all that intervals need.
///
/// k terms; the unit of a coefficient is that of the response per unit of its term.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// Names of the terms, k of them, in the order of the columns.
    pub terms: Vec<String>,
    /// The coefficients b, shape (k), solving min |y - Xb|.
    pub coefficients: DVector<f64>,
    /// (X'X)⁻¹, shape (k, k).
    pub inverse_gram: DMatrix<f64>,
    /// s² = SSR / (n - k), in the response's unit squared.
    pub residual_variance: f64,
    /// n - k.
    pub df_residual: usize,
}

/// A coefficient with what is usually printed of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Coefficient {
    /// The term's name.
    pub term: String,
    /// Response per unit of the term.
    pub value: f64,
    /// Square root of the diagonal of s²(X'X)⁻¹ ("nonrobust": errors independent, of one variance).
    pub standard_error: f64,
    /// value / `standard_error`.
    pub t: f64,
    /// P(|T| ≥ |t|) for Student's T with n - k degrees of freedom.
    pub p: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end of the 95 % confidence interval.
    pub high: f64,
}

/// A point on the fitted plane, in the response's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The expected response x'b.
    pub mean: f64,
    /// 95 % confidence interval of the expected response: x'b ± t·s·√(x'(X'X)⁻¹x).
    pub confidence: (f64, f64),
    /// 95 % prediction interval of one further response: x'b ± t·s·√(1 + x'(X'X)⁻¹x).
    pub prediction: (f64, f64),
}

impl Estimate {
    /// Each coefficient with its test against zero and its interval.
    pub fn coefficients(&self) -> Vec<Coefficient> {
        let reach = self.t_quantile();
        self.terms
            .iter()
            .enumerate()
            .map(|(column, term)| {
                let value = self.coefficients[column];
                let standard_error =
                    (self.residual_variance * self.inverse_gram[(column, column)]).sqrt();
                let t = value / standard_error;
                Coefficient {
                    term: term.clone(),
                    value,
                    standard_error,
                    t,
                    // NaN of 0 / 0: a coefficient of 0 without any error.
                    p: tails::of_t(t, self.df_residual),
                    low: value - reach * standard_error,
                    high: value + reach * standard_error,
                }
            })
            .collect()
    }

    /// The response to expect at `row`, shape (k), in the order of the terms.
    ///
    /// Source: Draper and Smith, "Applied Regression Analysis", 3rd ed., sections 3.1 and 5.6.
    pub fn at(&self, row: &RowDVector<f64>) -> Point {
        let mean = row.transpose().dot(&self.coefficients);
        let leverage = (row * &self.inverse_gram * row.transpose())[(0, 0)];
        let reach = self.t_quantile();
        let around = |variance: f64| {
            let half = reach * (self.residual_variance * variance).sqrt();
            (mean - half, mean + half)
        };
        Point { mean, confidence: around(leverage), prediction: around(1.0 + leverage) }
    }

    fn student(&self) -> StudentsT {
        StudentsT::new(0.0, 1.0, self.df_residual as f64).expect("a fit leaves degrees of freedom")
    }

    fn t_quantile(&self) -> f64 {
        self.student().inverse_cdf(f64::midpoint(1.0, CONFIDENCE))
    }
}

/// A fit: the estimate, and the figures of the whole.
///
/// n observations, k terms of which one is the intercept. Logarithms are natural.
/// Where no source is named, see Greene, "Econometric Analysis", 7th ed., chapters 3 to 5.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The coefficients with their covariance.
    pub estimate: Estimate,
    /// Xb, shape (n), in the response's unit.
    pub fitted: DVector<f64>,
    /// y - Xb, shape (n), in the response's unit and in the order of the observations.
    pub residuals: DVector<f64>,
    /// n.
    pub observations: usize,
    /// k - 1: the intercept is not counted.
    pub df_model: usize,
    /// 1 - SSR / SST, SST about the mean.
    pub r_squared: f64,
    /// 1 - (1 - R²)(n - 1) / (n - k).
    pub r_squared_adjusted: f64,
    /// (SSE / (k - 1)) / s²: do the terms together explain anything?
    pub f: f64,
    /// P(F ≥ f) with k - 1 and n - k degrees of freedom.
    pub f_p: f64,
    /// Of normal errors with the variance SSR / n: -n/2 · (ln 2π + ln(SSR / n) + 1).
    pub log_likelihood: f64,
    /// 2k - 2 · log-likelihood (Akaike 1974; the variance is not counted among the parameters).
    pub aic: f64,
    /// k · ln n - 2 · log-likelihood (Schwarz 1978).
    pub bic: f64,
    /// The largest singular value of X over the smallest (Belsley, Kuh and Welsch 1980): how much of the
    /// coefficients a small change of the observations may move. Depends on the terms' units.
    pub condition_number: f64,
}

/// Fits `response` (shape (n)) to `design` (shape (n, k)), whose columns are `terms` and whose first column is the
/// intercept.
///
/// By the singular value decomposition, as NumPy and statsmodels do it: columns of very different size, such as
/// 0/1 and kilometres, lose less than by the normal equations.
pub fn fit(
    terms: Vec<String>,
    design: &DMatrix<f64>,
    response: &DVector<f64>,
) -> Result<Fit, FitError> {
    let (observations, width) = design.shape();
    assert_eq!(terms.len(), width, "a name for each column");
    assert_eq!(response.len(), observations, "a response for each row");
    assert!(0 < width && design.column(0).iter().all(|one| *one == 1.0), "the intercept is first");
    check_finite(&terms, design, response)?;
    if observations <= width {
        return Err(FitError::TooFewObservations { observations, terms: width });
    }
    let mean = response.mean();
    let sum_of_squares = response.add_scalar(-mean).norm_squared();
    if response.iter().all(|value| *value == response[0]) {
        return Err(FitError::ConstantResponse { value: response[0] });
    }
    if !has_range(sum_of_squares) {
        return Err(FitError::OutOfRange { name: "the response".to_owned() });
    }
    for (column, term) in design.column_iter().zip(&terms) {
        // A column of zeros is a combination of those before it.
        if !column.iter().all(|value| *value == 0.0) && !has_range(column.norm_squared()) {
            return Err(FitError::OutOfRange { name: term.clone() });
        }
    }
    if let Some(column) = (0..width).find(|column| !is_of_full_rank(design, column + 1)) {
        let before = terms[..column].join(", ");
        return Err(FitError::RankDeficient { term: terms[column].clone(), before });
    }

    let svd = SVD::new(design.clone(), true, true);
    let (u, v_t) = (svd.u.expect("asked for"), svd.v_t.expect("asked for"));
    let inverted = svd.singular_values.map(|value| 1.0 / value);
    // V S⁻¹: with it b = (V S⁻¹) U'y, and (X'X)⁻¹ = (V S⁻¹)(V S⁻¹)'.
    let scaled = v_t.transpose() * DMatrix::from_diagonal(&inverted);
    let coefficients = &scaled * u.transpose() * response;
    let fitted = design * &coefficients;
    let residuals = response - &fitted;
    let unexplained = residuals.norm_squared();

    // The intercept alone leaves the sum of squares: a fit of more terms that leaves more is one of rounding.
    let is_number = unexplained.is_finite() && coefficients.iter().all(|value| value.is_finite());
    if !is_number || sum_of_squares * (1.0 + ROUNDING_MAX) < unexplained {
        return Err(FitError::Rounding { term: least_varied(&terms, design) });
    }

    let (n, k) = (observations as f64, width as f64);
    let df_residual = observations - width;
    let df_model = width - 1;
    let residual_variance = unexplained / df_residual as f64;
    let r_squared = 1.0 - unexplained / sum_of_squares;
    let f = (sum_of_squares - unexplained) / df_model as f64 / residual_variance;
    let f_p = tails::of_f(f, df_model, df_residual);
    let log_likelihood = -n / 2.0 * (std::f64::consts::TAU.ln() + (unexplained / n).ln() + 1.0);
    Ok(Fit {
        estimate: Estimate {
            terms,
            coefficients,
            inverse_gram: &scaled * scaled.transpose(),
            residual_variance,
            df_residual,
        },
        fitted,
        residuals,
        observations,
        df_model,
        r_squared,
        r_squared_adjusted: 1.0 - (1.0 - r_squared) * (n - 1.0) / df_residual as f64,
        f,
        f_p,
        log_likelihood,
        aic: 2.0 * k - 2.0 * log_likelihood,
        bic: k * n.ln() - 2.0 * log_likelihood,
        condition_number: svd.singular_values.max() / svd.singular_values.min(),
    })
}

/// Whether a sum of squares is one that a double can hold.
fn has_range(sum_of_squares: f64) -> bool {
    sum_of_squares.is_normal()
}

/// The term, but the intercept, whose values differ least for their size.
fn least_varied(terms: &[String], design: &DMatrix<f64>) -> String {
    let variation = |column: usize| {
        let of = design.column(column);
        of.add_scalar(-of.mean()).norm() / of.norm()
    };
    let least = (1..terms.len()).min_by(|one, other| variation(*one).total_cmp(&variation(*other)));
    terms[least.unwrap_or_default()].clone()
}

fn check_finite(
    terms: &[String],
    design: &DMatrix<f64>,
    response: &DVector<f64>,
) -> Result<(), FitError> {
    for (row, value) in response.iter().enumerate() {
        let term = (0..terms.len()).find(|column| !design[(row, *column)].is_finite());
        let name = match term {
            Some(column) => terms[column].clone(),
            None if !value.is_finite() => "the response".to_owned(),
            None => continue,
        };
        return Err(FitError::NotFinite { observation: row + 1, name });
    }
    Ok(())
}

/// Whether the first `width` columns are independent, as far as doubles can tell.
///
/// Columns are brought to length 1 first: whether one is a combination of others does not depend on its unit.
fn is_of_full_rank(design: &DMatrix<f64>, width: usize) -> bool {
    let mut columns = design.columns(0, width).into_owned();
    for mut column in columns.column_iter_mut() {
        if column.norm() == 0.0 {
            return false;
        }
        column.normalize_mut();
    }
    let tolerance = design.nrows() as f64 * f64::EPSILON;
    let singular_values = columns.singular_values();
    singular_values.max() * tolerance < singular_values.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// y on one regressor.
    fn line(x: &[f64], y: &[f64]) -> Result<Fit, FitError> {
        let mut design = DMatrix::from_element(x.len(), 2, 1.0);
        design.set_column(1, &DVector::from_row_slice(x));
        fit(vec!["one".to_owned(), "x".to_owned()], &design, &DVector::from_row_slice(y))
    }

    #[track_caller]
    fn near(found: f64, expected: f64) {
        let error = (found - expected).abs();
        assert!(error <= 1e-9 * expected.abs().max(1.0), "{found} is not {expected}");
    }

    /// x̄ = 3, Sxx = 10; ȳ = 4, Syy = 6, Sxy = 6: the slope is 0.6, and all else follows by hand.
    #[test]
    fn a_line_through_five_points_has_its_closed_form() {
        let fit = line(&[1.0, 2.0, 3.0, 4.0, 5.0], &[2.0, 4.0, 5.0, 4.0, 5.0]).unwrap();
        let [intercept, slope] = &fit.estimate.coefficients()[..] else { panic!("two terms") };
        near(intercept.value, 2.2);
        near(slope.value, 0.6);
        // SSR = 6 - 0.6 · 6 = 2.4, with 3 degrees of freedom.
        near(fit.estimate.residual_variance, 0.8);
        near(slope.standard_error, (0.8_f64 / 10.0).sqrt());
        near(intercept.standard_error, (0.8_f64 * (1.0 / 5.0 + 9.0 / 10.0)).sqrt());
        near(fit.r_squared, 0.6);
        near(fit.r_squared_adjusted, 1.0 - 0.4 * 4.0 / 3.0);
        // One regressor: F = t², and both tests are the same.
        near(fit.f, 4.5);
        near(slope.t, 4.5_f64.sqrt());
        near(fit.f_p, slope.p);
        let likelihood = -2.5 * (std::f64::consts::TAU.ln() + (2.4_f64 / 5.0).ln() + 1.0);
        near(fit.log_likelihood, likelihood);
        near(fit.aic, 4.0 - 2.0 * likelihood);
        near(fit.bic, 2.0 * 5.0_f64.ln() - 2.0 * likelihood);
    }

    /// With 2 degrees of freedom Student's T has P(T ≤ t) = 1/2 + t / (2√(2 + t²)), so both directions are known.
    #[test]
    fn t_probabilities_and_quantiles_are_those_of_student() {
        let fit = line(&[1.0, 2.0, 3.0, 4.0], &[1.0, 3.0, 2.0, 5.0]).unwrap();
        for coefficient in fit.estimate.coefficients() {
            let t = coefficient.t.abs();
            near(coefficient.p, 1.0 - t / (2.0 + t * t).sqrt());
            let reach = (coefficient.high - coefficient.value) / coefficient.standard_error;
            near(reach, CONFIDENCE * (2.0 / (1.0 - CONFIDENCE * CONFIDENCE)).sqrt());
        }
    }

    /// The mean alone: its confidence is s/√n, and a further value's s√(1 + 1/n).
    #[test]
    fn a_fit_of_the_mean_predicts_as_the_sample_does() {
        let design = DMatrix::from_element(3, 1, 1.0);
        let response = DVector::from_row_slice(&[1.0, 2.0, 3.0]);
        let fit = fit(vec!["one".to_owned()], &design, &response).unwrap();
        let point = fit.estimate.at(&RowDVector::from_row_slice(&[1.0]));
        near(point.mean, 2.0);
        let reach = CONFIDENCE * (2.0 / (1.0 - CONFIDENCE * CONFIDENCE)).sqrt();
        near(point.confidence.1, 2.0 + reach * (1.0_f64 / 3.0).sqrt());
        near(point.prediction.0, 2.0 - reach * (4.0_f64 / 3.0).sqrt());
        near(fit.condition_number, 1.0);
    }

    /// Independent columns of lengths 2 and 2·1000: the condition number is their ratio.
    #[test]
    fn the_condition_number_is_the_ratio_of_singular_values() {
        let fit = line(&[1000.0, -1000.0, 1000.0, -1000.0], &[1.0, 2.0, 1.5, 2.0]).unwrap();
        near(fit.condition_number, 1000.0);
    }

    #[test]
    fn a_fit_without_errors_is_one() {
        let fit = line(&[-1.0, 1.0, -1.0, 1.0], &[-1.0, 1.0, -1.0, 1.0]).unwrap();
        near(fit.r_squared, 1.0);
        let [intercept, slope] = &fit.estimate.coefficients()[..] else { panic!("two terms") };
        near(intercept.value, 0.0);
        near(slope.value, 1.0);
        assert!(slope.p < 1e-9 && fit.f_p < 1e-9, "{} {}", slope.p, fit.f_p);
    }

    #[test]
    fn what_cannot_be_fitted_says_why() {
        let says = |fit: Result<Fit, FitError>| fit.unwrap_err().to_string();
        assert_eq!(
            says(line(&[1.0, 2.0], &[1.0, 2.0])),
            "2 observations are too few for 2 terms: at least 3 are needed"
        );
        assert_eq!(
            says(line(&[7.0, 7.0, 7.0], &[1.0, 2.0, 3.0])),
            "x cannot be estimated: in these observations it is a combination of the terms before it (one)"
        );
        assert!(says(line(&[0.0, 0.0, 0.0], &[1.0, 2.0, 3.0])).starts_with("x cannot"));
        assert_eq!(
            says(line(&[1.0, 2.0, 3.0], &[4.0, 4.0, 4.0])),
            "the response is 4 in every observation: there is nothing to explain"
        );
        assert_eq!(
            says(line(&[1.0, f64::NAN, 3.0], &[1.0, 2.0, 3.0])),
            "observation 2: x is not a finite number"
        );
        assert_eq!(
            says(line(&[1.0, 2.0, 3.0], &[1.0, 2.0, f64::INFINITY])),
            "observation 3: the response is not a finite number"
        );
    }

    /// Numbers at the edge of what a double can hold, and beyond what it can tell apart.
    #[test]
    fn numbers_at_the_edge_are_refused_and_end_nothing() {
        let says = |x: &[f64], y: &[f64]| line(x, y).unwrap_err().to_string();
        let x = [1.0, 2.0, 3.0, 4.0];
        assert!(
            says(&x, &[1e308, -1e308, 1e308, 0.0])
                .starts_with("the response cannot be computed with")
        );
        assert!(says(&x, &[1e-200, 2e-200, 4e-200, 3e-200]).starts_with("the response cannot"));
        assert!(says(&[1e300, 1.0, 2.0, 3.0], &x).starts_with("x cannot be computed with"));
        // In whatever way it ends, it does.
        for offset in [4e9, 1e12, 1e14, 4_294_967_291.0] {
            for step in [1.0, 0.5] {
                let x: Vec<f64> =
                    (0..12).map(|place| offset + step * f64::from(place % 3)).collect();
                let y: Vec<f64> = (0..12).map(|place| f64::from(place * 7 % 5)).collect();
                if let Ok(fit) = line(&x, &y) {
                    assert!((0.0..=1.0).contains(&fit.f_p), "{}", fit.f_p);
                }
            }
        }
    }

    /// A column in units so large or small that its length is far from the intercept's is no combination of it.
    #[test]
    fn the_unit_of_a_column_does_not_make_it_dependent() {
        for unit in [1e-12, 1e12] {
            let fit = line(&[unit, 2.0 * unit, 4.0 * unit], &[1.0, 2.0, 2.5]).unwrap();
            assert!(fit.r_squared > 0.8, "{}", fit.r_squared);
        }
    }
}
