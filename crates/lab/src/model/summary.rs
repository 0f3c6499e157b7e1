//! A fit as a table, laid out as statsmodels' `summary()`: so that it can be compared with published ones.
//!
//! Owns: the layout, and the digits of each figure. Never: computes a figure.
//! Source of both: statsmodels 0.11, `iolib/summary.py` and `RegressionResults.summary`.

use std::fmt::Write;

use super::ols::Fit;
use super::residuals::Residuals;

const WIDTH: usize = 78;
/// The two halves of the upper and the lower block, with three spaces between them.
const LEFT: usize = 37;
const RIGHT: usize = 38;
/// The least width of the names of terms.
const NAMES_MIN: usize = 10;
/// Above this statsmodels warns of a condition number.
const CONDITION_MAX: f64 = 1000.0;

/// The table, with what statsmodels warns of. Without the date and the time of the computation.
pub fn table(dependent: &str, fit: &Fit) -> String {
    let residuals = Residuals::of(&fit.residuals);
    let names = fit.estimate.terms.iter().map(String::len).max().unwrap_or_default().max(NAMES_MIN);
    let wide = names + 68;
    let mut text = format!("{:^WIDTH$}\n{}\n", "OLS Regression Results", "=".repeat(WIDTH));
    let count = |count: usize| count.to_string();
    let upper = [
        ("Dep. Variable:", dependent.to_owned(), "R-squared:", format!("{:.3}", fit.r_squared)),
        ("Model:", "OLS".into(), "Adj. R-squared:", format!("{:.3}", fit.r_squared_adjusted)),
        ("Method:", "Least Squares".into(), "F-statistic:", general(fit.f, 4, Zeros::Kept)),
        ("", "".into(), "Prob (F-statistic):", general(fit.f_p, 3, Zeros::Kept)),
        ("", "".into(), "Log-Likelihood:", general(fit.log_likelihood, 5, Zeros::Kept)),
        ("No. Observations:", count(fit.observations), "AIC:", general(fit.aic, 4, Zeros::Kept)),
        (
            "Df Residuals:",
            count(fit.estimate.df_residual),
            "BIC:",
            general(fit.bic, 4, Zeros::Kept),
        ),
        ("Df Model:", count(fit.df_model), "", "".into()),
        ("Covariance Type:", "nonrobust".into(), "", "".into()),
    ];
    halves(&mut text, &upper);

    let _ = writeln!(text, "{}", "=".repeat(wide));
    let heading = ["coef", "std err", "t", "P>|t|", "[0.025", "0.975]"].map(str::to_owned);
    row(&mut text, names, "", heading);
    let _ = writeln!(text, "{}", "-".repeat(wide));
    for coefficient in fit.estimate.coefficients() {
        let cells = [
            fixed_or_general(coefficient.value, 4),
            fixed_or_general(coefficient.standard_error, 3),
            fixed_or_general(coefficient.t, 3),
            format!("{:.3}", coefficient.p),
            fixed_or_general(coefficient.low, 3),
            fixed_or_general(coefficient.high, 3),
        ];
        row(&mut text, names, &coefficient.term, cells);
    }
    let _ = writeln!(text, "{}", "=".repeat(WIDTH));
    let three = |value: f64| format!("{value:.3}");
    let lower = [
        (
            "Omnibus:",
            three(residuals.omnibus.statistic),
            "Durbin-Watson:",
            three(residuals.durbin_watson),
        ),
        (
            "Prob(Omnibus):",
            three(residuals.omnibus.p),
            "Jarque-Bera (JB):",
            three(residuals.jarque_bera.statistic),
        ),
        (
            "Skew:",
            three(residuals.skew),
            "Prob(JB):",
            general(residuals.jarque_bera.p, 3, Zeros::Kept),
        ),
        (
            "Kurtosis:",
            three(residuals.kurtosis),
            "Cond. No.",
            general(fit.condition_number, 3, Zeros::Kept),
        ),
    ];
    halves(&mut text, &lower);
    let _ = writeln!(text, "{}", "=".repeat(WIDTH));

    text.push_str(
        "\nWarnings:\n\
         [1] Standard Errors assume that the covariance matrix of the errors is correctly specified.\n",
    );
    if CONDITION_MAX < fit.condition_number {
        let number = general(fit.condition_number, 3, Zeros::Cut);
        let _ = write!(
            text,
            "[2] The condition number is large, {number:>6}. This might indicate that there are\n\
             strong multicollinearity or other numerical problems.\n"
        );
    }
    text
}

/// Lines of two figures each: name, value, name, value.
fn halves(text: &mut String, lines: &[(&str, String, &str, String)]) {
    for (left, left_value, right, right_value) in lines {
        let (left_width, right_width) = (LEFT - left.len(), RIGHT - right.len());
        let _ =
            writeln!(text, "{left}{left_value:>left_width$}   {right}{right_value:>right_width$}");
    }
}

fn row(text: &mut String, names: usize, name: &str, cells: [String; 6]) {
    let [coef, std_err, t, p, low, high] = cells;
    let _ =
        writeln!(text, "{name:<names$}{coef:>11}{std_err:>11}{t:>11}{p:>11}{low:>12}{high:>12}");
}

/// Digits after the point, or as many significant ones where that would show too few or too many.
fn fixed_or_general(value: f64, digits: usize) -> String {
    if value.is_nan() || (1e-4..1e4).contains(&value.abs()) {
        format!("{value:.digits$}")
    } else {
        general(value, digits, Zeros::Cut)
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Zeros {
    /// C's `%g`.
    Cut,
    /// C's `%#g`.
    Kept,
}

/// `digits` significant digits, with an exponent where C's `%g` has one.
fn general(value: f64, digits: usize, zeros: Zeros) -> String {
    if !value.is_finite() {
        return format!("{value}").to_lowercase();
    }
    // Rounded first: the exponent of 9.9996 to four digits is that of 10.
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("it was asked for");
    let exponent: i32 = exponent.parse().expect("it is a number");
    let cut = |number: &str| match zeros {
        Zeros::Cut if number.contains('.') => {
            number.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        Zeros::Kept if !number.contains('.') => format!("{number}."),
        _ => number.to_owned(),
    };
    if (-4..digits as i32).contains(&exponent) {
        let after_point = (digits as i32 - 1 - exponent) as usize;
        cut(&format!("{value:.after_point$}"))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", cut(mantissa), exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_c_writes_them() {
        let kept = |value, digits| general(value, digits, Zeros::Kept);
        assert_eq!(kept(167.4, 3), "167.");
        assert_eq!(kept(50_800.0, 3), "5.08e+04");
        assert_eq!(kept(2.594e-30, 3), "2.59e-30");
        assert_eq!(kept(-0.860_06, 5), "-0.86006");
        assert_eq!(kept(11.7, 4), "11.70");
        assert_eq!(kept(9.999_96, 4), "10.00");
        assert_eq!(kept(0.0, 3), "0.00");
        let cut = |value, digits| general(value, digits, Zeros::Cut);
        assert_eq!(cut(6.190e-5, 3), "6.19e-05");
        assert_eq!(cut(6.0e-5, 3), "6e-05");
        assert_eq!(cut(12_300.0, 4), "1.23e+04");
        assert_eq!(cut(100.0, 4), "100");
        assert_eq!(cut(f64::NAN, 4), "nan");
        assert_eq!(fixed_or_general(-0.004, 3), "-0.004");
        assert_eq!(fixed_or_general(6.338e-5, 4), "6.338e-05");
    }
}
