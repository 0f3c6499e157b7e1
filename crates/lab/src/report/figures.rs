//! How a figure is written, and the middle of several.
//!
//! Owns: both. Never: knows what is counted.

/// With three digits that mean something, as people read a figure.
pub(crate) fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let digits = match value.abs() {
        0.0 => 0,
        large if 100.0 <= large => 0,
        middle if 10.0 <= middle => 1,
        small if 1.0 <= small => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// The middle one; of an even number the mean of the two in the middle. NaN of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let of = [0.0, 0.012_34, 1.234, 12.34, 123.4, f64::NAN].map(figure);
        assert_eq!(of, ["0", "0.012", "1.23", "12.3", "123", "-"]);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert!(median(Vec::new()).is_nan());
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
    }
}
