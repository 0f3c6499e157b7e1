//! How a figure is written.
//!
//! Owns: that. Never: knows what is counted.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let of = [0.0, 0.012_34, 1.234, 12.34, 123.4, f64::NAN].map(figure);
        assert_eq!(of, ["0", "0.012", "1.23", "12.3", "123", "-"]);
    }
}
