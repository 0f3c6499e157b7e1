//! Whether a model fits, where runs were repeated: how far repetitions are from each other says what error is, and
//! how far their means are from the model says what else there is.
//!
//! Owns: the test. Never: decides what follows from it.
//! Source: Draper and Smith, "Applied Regression Analysis", 3rd ed., section 2.1.
//! Start reading at [`LackOfFit::of`].

use super::tails;

/// What is not explained by error, against what is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LackOfFit {
    /// (Σ over cells of n(mean - fitted)² / `df_model`) / (Σ(y - its cell's mean)² / `df_error`).
    pub f: f64,
    /// Cells less terms.
    pub df_model: usize,
    /// Observations less cells.
    pub df_error: usize,
    /// P(F ≥ f) if the model is right and errors are independent, normal, of one variance.
    pub p: f64,
}

impl LackOfFit {
    /// Of residuals by cell, which is all observations at one value of each term, of a fit of so many terms.
    ///
    /// `None` where it cannot be told: nothing was repeated, or there are no more cells than terms.
    pub fn of(cells: &[Vec<f64>], terms: usize) -> Option<Self> {
        let observations: usize = cells.iter().map(Vec::len).sum();
        let df_model = cells.len().checked_sub(terms).filter(|df| 0 < *df)?;
        let df_error = observations.checked_sub(cells.len()).filter(|df| 0 < *df)?;
        // The model says the same in a whole cell, so that residuals differ by as much as observations do.
        let mean = |cell: &[f64]| cell.iter().sum::<f64>() / cell.len() as f64;
        let (mut of_model, mut of_error) = (0.0, 0.0);
        for cell in cells.iter().filter(|cell| !cell.is_empty()) {
            let mean = mean(cell);
            of_model += cell.len() as f64 * mean * mean;
            of_error += cell.iter().map(|residual| (residual - mean).powi(2)).sum::<f64>();
        }
        let f = (of_model / df_model as f64) / (of_error / df_error as f64);
        Some(Self { f, df_model, df_error, p: tails::of_f(f, df_model, df_error) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Means 1, -2, 1 of two each, 0.5 around them: Σn·mean² = 12 with 3 - 2, Σ(y - mean)² = 1.5 with 6 - 3.
    #[test]
    fn it_is_what_means_lack_against_what_repetitions_differ_by() {
        let cells = [vec![0.5, 1.5], vec![-2.5, -1.5], vec![1.5, 0.5]];
        let found = LackOfFit::of(&cells, 2).unwrap();
        assert_eq!((found.df_model, found.df_error), (1, 3));
        assert!((found.f - 24.0).abs() < 1e-12, "{}", found.f);
        // F with 1 and 3 is T's square with 3, whose density has a closed form.
        let t = 24.0_f64.sqrt();
        let root = 3.0_f64.sqrt();
        let below =
            0.5 + ((t / root) / (1.0 + t * t / 3.0) + (t / root).atan()) / std::f64::consts::PI;
        assert!((found.p - 2.0 * (1.0 - below)).abs() < 1e-9, "{}", found.p);
    }

    #[test]
    fn without_repetitions_or_cells_to_spare_nothing_is_told() {
        assert_eq!(LackOfFit::of(&[vec![1.0], vec![-1.0], vec![0.0]], 2), None);
        assert_eq!(LackOfFit::of(&[vec![1.0, -1.0], vec![0.5, -0.5]], 2), None);
        // Repetitions that are all the same, and a model that is none of them.
        let found = LackOfFit::of(&[vec![1.0, 1.0], vec![-2.0, -2.0], vec![1.0, 1.0]], 2).unwrap();
        assert_eq!(found.p, 0.0);
    }
}
