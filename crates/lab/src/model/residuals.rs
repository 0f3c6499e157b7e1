//! Whether residuals look like independent normal errors.
//!
//! Owns: their moments, and the tests that statsmodels prints. Never: decides what follows from them.

use nalgebra::DVector;

use super::tails;

/// Fewer observations say nothing of skew by the test of D'Agostino.
const OMNIBUS_OBSERVATIONS_MIN: usize = 8;

/// What residuals are like. Without a unit, all of it; NaN if all residuals are zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residuals {
    /// Third standardised moment m₃ / m₂^(3/2); 0 for a normal distribution. Moments are divided by n.
    pub skew: f64,
    /// Fourth standardised moment m₄ / m₂²; 3 for a normal distribution. Moments are divided by n.
    pub kurtosis: f64,
    /// D'Agostino and Pearson's K²: both moments against those of a normal distribution.
    pub omnibus: Tested,
    /// Jarque and Bera's n/6 · (skew² + (kurtosis - 3)² / 4) ("Efficient tests for normality,
    /// homoscedasticity and serial independence of regression residuals", Economics Letters 6(3), 1980).
    pub jarque_bera: Tested,
    /// Σ(eᵢ - eᵢ₋₁)² / Σeᵢ² (Durbin and Watson, Biometrika 37, 1950): about 2 if an observation's error says nothing
    /// of the next one's. Depends on the order of the observations.
    pub durbin_watson: f64,
}

/// A statistic and the probability of one as large or larger under normal errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tested {
    /// The statistic, χ² with two degrees of freedom if the errors are normal.
    pub statistic: f64,
    /// P(χ²₂ ≥ statistic).
    pub p: f64,
}

impl Tested {
    fn of(statistic: f64) -> Self {
        Self { statistic, p: tails::of_chi_squared(statistic) }
    }
}

impl Residuals {
    /// Of `residuals`, shape (n), in the order of the observations. With fewer than 8 the omnibus test is NaN.
    pub fn of(residuals: &DVector<f64>) -> Self {
        let n = residuals.len() as f64;
        let centred = residuals.add_scalar(-residuals.mean());
        let moment = |power: i32| centred.map(|value| value.powi(power)).sum() / n;
        let skew = moment(3) / moment(2).powf(1.5);
        let kurtosis = moment(4) / moment(2).powi(2);
        let omnibus = if residuals.len() < OMNIBUS_OBSERVATIONS_MIN {
            f64::NAN
        } else {
            skew_z(skew, n).powi(2) + kurtosis_z(kurtosis, n).powi(2)
        };
        let excess = kurtosis - 3.0;
        let steps = residuals.rows_range(1..) - residuals.rows_range(..residuals.len() - 1);
        Self {
            skew,
            kurtosis,
            omnibus: Tested::of(omnibus),
            jarque_bera: Tested::of(n / 6.0 * (skew.powi(2) + excess.powi(2) / 4.0)),
            durbin_watson: steps.norm_squared() / residuals.norm_squared(),
        }
    }
}

/// The skew of n normal values as a standard normal one.
///
/// Source: D'Agostino, "Transformation to normality of the null distribution of g1", Biometrika 57(3), 1970.
fn skew_z(skew: f64, n: f64) -> f64 {
    let y = skew * ((n + 1.0) * (n + 3.0) / (6.0 * (n - 2.0))).sqrt();
    let kurtosis_of_skew = 3.0 * (n * n + 27.0 * n - 70.0) * (n + 1.0) * (n + 3.0)
        / ((n - 2.0) * (n + 5.0) * (n + 7.0) * (n + 9.0));
    let w_squared = (2.0 * (kurtosis_of_skew - 1.0)).sqrt() - 1.0;
    let delta = 1.0 / (0.5 * w_squared.ln()).sqrt();
    let alpha = (2.0 / (w_squared - 1.0)).sqrt();
    delta * (y / alpha).asinh()
}

/// The kurtosis of n normal values as a standard normal one.
///
/// Source: Anscombe and Glynn, "Distribution of the kurtosis statistic b2 for normal samples", Biometrika 70(1), 1983.
fn kurtosis_z(kurtosis: f64, n: f64) -> f64 {
    let expected = 3.0 * (n - 1.0) / (n + 1.0);
    let variance = 24.0 * n * (n - 2.0) * (n - 3.0) / ((n + 1.0).powi(2) * (n + 3.0) * (n + 5.0));
    let x = (kurtosis - expected) / variance.sqrt();
    let skew_of_kurtosis = 6.0 * (n * n - 5.0 * n + 2.0) / ((n + 7.0) * (n + 9.0))
        * (6.0 * (n + 3.0) * (n + 5.0) / (n * (n - 2.0) * (n - 3.0))).sqrt();
    let a = 6.0
        + 8.0 / skew_of_kurtosis
            * (2.0 / skew_of_kurtosis + (1.0 + 4.0 / skew_of_kurtosis.powi(2)).sqrt());
    let root = ((1.0 - 2.0 / a) / (1.0 + x * (2.0 / (a - 4.0)).sqrt())).cbrt();
    (1.0 - 2.0 / (9.0 * a) - root) / (2.0 / (9.0 * a)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9, "{found} is not {expected}");
    }

    /// -1, 1, -1, 1: each step is 2, so Σ4 / Σ1; half of the mass at each of ±1 has kurtosis 1.
    #[test]
    fn alternating_residuals_have_their_closed_form() {
        let found = Residuals::of(&DVector::from_row_slice(&[-1.0, 1.0, -1.0, 1.0]));
        near(found.durbin_watson, 3.0);
        near(found.skew, 0.0);
        near(found.kurtosis, 1.0);
        near(found.jarque_bera.statistic, 4.0 / 6.0);
        // χ² with two degrees of freedom is exponential.
        near(found.jarque_bera.p, (-1.0_f64 / 3.0).exp());
        assert!(found.omnibus.statistic.is_nan() && found.omnibus.p.is_nan());
    }

    /// Moments about the mean: 0, 0, 3 has m₂ = 2 and m₃ = 2.
    #[test]
    fn a_far_value_skews() {
        let found = Residuals::of(&DVector::from_row_slice(&[0.0, 0.0, 3.0]));
        near(found.skew, 2.0 / 2.0_f64.powf(1.5));
        near(found.kurtosis, 1.5);
    }

    /// Examples of SciPy's documentation (`skewtest`, `kurtosistest`), by SciPy 1.17; and both together.
    #[test]
    fn the_omnibus_test_is_scipys() {
        let eight = DVector::from_row_slice(&[2.0, 8.0, 0.0, 4.0, 1.0, 9.0, 9.0, 0.0]);
        let found = Residuals::of(&eight);
        near(skew_z(found.skew, 8.0), 0.446_263_853_741_969_75);
        near(found.omnibus.statistic, 3.624_177_160_503_061_5);
        near(found.omnibus.p, 0.163_312_688_699_500_44);
        let twenty = DVector::from_iterator(20, (0..20).map(f64::from));
        near(kurtosis_z(Residuals::of(&twenty).kurtosis, 20.0), -1.705_810_415_212_206_2);
    }

    #[test]
    fn a_perfect_fit_leaves_nothing_to_test() {
        let found = Residuals::of(&DVector::from_element(10, 0.0));
        assert!(found.skew.is_nan() && found.omnibus.p.is_nan() && found.jarque_bera.p.is_nan());
    }
}
