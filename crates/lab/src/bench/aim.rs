//! What a figure should be, and whether it is.
//!
//! Owns: what "met" means. Never: knows the aims; each benchmark has its own.

use super::median::Median;

/// What a figure must not pass.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

/// An aim and what was found.
#[derive(Clone, Debug)]
pub(super) struct Aim {
    pub says: String,
    pub limit: Limit,
    pub found: Option<Median>,
}

impl Aim {
    /// The verdict by the median, with a question mark where the rounds do not agree on it; nothing
    /// where it was not measured.
    pub(super) fn verdict(&self) -> Option<String> {
        let found = self.found?;
        let is_met = |ratio: f64| match self.limit {
            Limit::AtLeast(least) => least <= ratio,
            Limit::AtMost(most) => ratio <= most,
        };
        let verdict = if is_met(found.median) { "met" } else { "NOT MET" };
        let doubt = if is_met(found.low) == is_met(found.high) { "" } else { "?" };
        Some(format!("{verdict}{doubt} {found}"))
    }

    /// The limit in words.
    pub(super) fn limit(&self) -> String {
        match self.limit {
            Limit::AtLeast(least) => format!("at least {least:.2}"),
            Limit::AtMost(most) => format!("at most {most:.2}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_on_which_the_rounds_disagree_is_doubtful() {
        let found = Median::of([0.7, 0.9, 1.0]);
        let aim = Aim { says: String::new(), limit: Limit::AtLeast(0.85), found };
        assert_eq!(aim.verdict().unwrap(), "met? 0.90 (0.70-1.00)");
    }
}
