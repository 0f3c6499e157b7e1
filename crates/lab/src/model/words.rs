//! Coefficients in plain words.
//!
//! Owns: one sentence for each term. The response is a logarithm, so that a coefficient is a factor of the run time:
//! exp(coefficient), for so many units of its term. Never: computes a coefficient.

use super::ols::{CONFIDENCE, Coefficient};
use super::specification::{Specification, Term};

/// What a coefficient says of the run time.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The term, as in the table.
    pub term: String,
    /// Units of the term that the factor is for: 10 workers, 1000 km, one node, one step.
    pub per: f64,
    /// exp(coefficient · per): what the run time is multiplied by.
    pub factor: f64,
    /// Lower end of its 95 % confidence interval.
    pub factor_low: f64,
    /// Upper end of its 95 % confidence interval.
    pub factor_high: f64,
    /// All of it as a sentence.
    pub sentence: String,
}

/// Reads every coefficient of a specification's fit, in their order.
pub fn readings(specification: Specification, coefficients: &[Coefficient]) -> Vec<Reading> {
    specification
        .terms()
        .iter()
        .zip(coefficients)
        .map(|(term, coefficient)| reading(specification, *term, coefficient))
        .collect()
}

fn reading(specification: Specification, term: Term, coefficient: &Coefficient) -> Reading {
    let (per, subject) = match (term, specification) {
        (Term::Intercept, _) => (
            1.0,
            "one distributed node instead of the baseline, with the line of the workers drawn back to \
             none, multiplies",
        ),
        (Term::MultiNode, _) => (1.0, "several nodes in one place instead of one multiply"),
        (Term::MultiDc, Specification::Published) => {
            (1.0, "nodes in several data centres instead of one multiply")
        }
        (Term::MultiDc, Specification::Draft) => {
            (1.0, "several data centres, beside what their distance does, multiply")
        }
        (Term::MultiContinent, _) => {
            (1.0, "nodes on several continents instead of several data centres of one multiply")
        }
        (Term::Workers, _) => (10.0, "ten more workers multiply"),
        (Term::MultiNodeCount, _) => {
            (1.0, "each of several nodes (a single one is not counted) multiplies")
        }
        (Term::TotalDistance, _) => {
            (1000.0, "each further 1000 km, summed over all pairs of nodes, multiply")
        }
    };
    let scaled = |value: f64| (value * per).exp();
    let (factor, factor_low, factor_high) =
        (scaled(coefficient.value), scaled(coefficient.low), scaled(coefficient.high));
    let doubt = if 1.0 - CONFIDENCE <= coefficient.p {
        "; that it makes no difference is not excluded"
    } else {
        ""
    };
    let sentence = format!(
        "{}: {subject} the run time by {factor:.3} (95 %: {factor_low:.3} to {factor_high:.3}){doubt}.",
        coefficient.term
    );
    Reading { term: coefficient.term.clone(), per, factor, factor_low, factor_high, sentence }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coefficient_is_read_as_a_factor_for_so_many_units() {
        let coefficient = Coefficient {
            term: "Workers".to_owned(),
            value: -0.01,
            standard_error: 0.01,
            t: -1.0,
            p: 0.32,
            low: -0.03,
            high: 0.01,
        };
        let reading = reading(Specification::Published, Term::Workers, &coefficient);
        assert_eq!(
            reading.sentence,
            "Workers: ten more workers multiply the run time by 0.905 (95 %: 0.741 to 1.105); \
             that it makes no difference is not excluded."
        );
    }
}
