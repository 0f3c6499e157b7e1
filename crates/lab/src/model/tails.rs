//! Probabilities of values as far out, or farther: what tests of a fit are judged by.
//!
//! Owns: that any number has an answer, where statrs takes some numbers only and ends the program otherwise.
//! Never: computes a statistic.

use statrs::distribution::{ChiSquared, ContinuousCDF, FisherSnedecor, StudentsT};

/// P(F ≥ f) of Fisher's F with so many degrees of freedom, both at least 1. NaN where `f` is none.
pub(super) fn of_f(f: f64, df_numerator: usize, df_denominator: usize) -> f64 {
    let distribution = FisherSnedecor::new(df_numerator as f64, df_denominator as f64);
    // What rounding has made negative is 0.
    of(if f < 0.0 { 0.0 } else { f }, f64::MAX.sqrt(), distribution)
}

/// P(|T| ≥ |t|) of Student's T with so many degrees of freedom, at least 1. NaN where `t` is none.
pub(super) fn of_t(t: f64, df: usize) -> f64 {
    2.0 * of(t.abs(), f64::MAX.sqrt() / 2.0, StudentsT::new(0.0, 1.0, df as f64))
}

/// P(χ² ≥ statistic) with two degrees of freedom. NaN where `statistic` is none.
pub(super) fn of_chi_squared(statistic: f64) -> f64 {
    of(statistic, f64::MAX.sqrt(), ChiSquared::new(2.0))
}

/// `most` is what can still be squared; beyond it no probability is left.
fn of<E>(value: f64, most: f64, of: Result<impl ContinuousCDF<f64, f64>, E>) -> f64 {
    match of {
        Ok(_) if most < value => 0.0,
        // NaN stands for "not to be told".
        Ok(distribution) if !value.is_nan() => distribution.sf(value),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_an_answer() {
        for value in [f64::INFINITY, f64::MAX, 1e200, 1e155] {
            assert_eq!((of_f(value, 3, 8), of_t(value, 8), of_chi_squared(value)), (0.0, 0.0, 0.0));
            assert_eq!(of_t(-value, 8), 0.0);
        }
        assert!(of_f(f64::NAN, 3, 8).is_nan() && of_t(f64::NAN, 8).is_nan());
        assert!(of_chi_squared(f64::NAN).is_nan() && of_f(1.0, 0, 8).is_nan());
        assert_eq!((of_f(-1e-9, 3, 8), of_t(0.0, 8)), (1.0, 1.0));
    }

    /// With 2 and 2 degrees of freedom P(F ≥ f) = 1 / (1 + f); T with 1 is Cauchy's.
    #[test]
    fn probabilities_are_those_of_the_distributions() {
        assert!((of_f(3.0, 2, 2) - 0.25).abs() < 1e-12);
        assert!((of_t(1.0, 1) - 0.5).abs() < 1e-12);
        assert!((of_chi_squared(2.0) - (-1.0_f64).exp()).abs() < 1e-12);
    }
}
