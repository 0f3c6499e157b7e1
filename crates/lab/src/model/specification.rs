//! The regressions of the paper: which terms explain the relative run time.
//!
//! Owns: the terms, in the order of the published tables, and the design that they make of runs.
//! Never: fits.

use nalgebra::{DMatrix, DVector, RowDVector};

use super::ols::{self, Fit, FitError};
use super::runs::Run;

/// A regression of `RuntimeFactor`, the logarithm of the relative run time.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Specification {
    /// The paper's figure 1: a step for each kind of distance, and the workers.
    Published,
    /// The one before it: the number of nodes and their distance instead of two of the steps.
    Draft,
}

/// What a term counts. Each is a number of the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Term {
    /// 1.
    Intercept,
    /// 1 where there are several nodes, else 0.
    MultiNode,
    /// 1 where nodes are in several data centres, else 0.
    MultiDc,
    /// 1 where nodes are on several continents, else 0.
    MultiContinent,
    /// Concurrent clients.
    Workers,
    /// Nodes where there are several, else 0.
    MultiNodeCount,
    /// Kilometres, summed over all pairs of nodes.
    TotalDistance,
}

impl Term {
    /// As the published tables write it. `[T.True]` marks a step, which is 0 or 1.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intercept => "Intercept",
            Self::MultiNode => "IsMultiNode[T.True]",
            Self::MultiDc => "IsMultiDC[T.True]",
            Self::MultiContinent => "IsMultiContinent[T.True]",
            Self::Workers => "Workers",
            Self::MultiNodeCount => "MultiNodeCount",
            Self::TotalDistance => "TotalNetworkDistance",
        }
    }

    fn of(self, setting: &Setting) -> f64 {
        let step = f64::from;
        match self {
            Self::Intercept => 1.0,
            Self::MultiNode => step(setting.is_multi_node),
            Self::MultiDc => step(setting.is_multi_dc),
            Self::MultiContinent => step(setting.is_multi_continent),
            Self::Workers => f64::from(setting.workers),
            Self::MultiNodeCount => f64::from(setting.multi_node_count),
            Self::TotalDistance => setting.total_distance_km,
        }
    }
}

/// Where and with how many workers work is done: what a run is explained by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Several nodes.
    pub is_multi_node: bool,
    /// In several data centres.
    pub is_multi_dc: bool,
    /// On several continents.
    pub is_multi_continent: bool,
    /// Nodes where there are several, else 0.
    pub multi_node_count: u32,
    /// Sum over all pairs of nodes.
    pub total_distance_km: f64,
    /// Concurrent clients.
    pub workers: u32,
}

impl From<&Run> for Setting {
    fn from(run: &Run) -> Self {
        Self {
            is_multi_node: run.is_multi_node,
            is_multi_dc: run.is_multi_dc,
            is_multi_continent: run.is_multi_continent,
            multi_node_count: run.multi_node_count,
            total_distance_km: run.total_distance_km,
            workers: run.workers,
        }
    }
}

impl Specification {
    /// Its terms, in the order of the published table: patsy, which made the table's design, puts steps first.
    pub fn terms(self) -> &'static [Term] {
        match self {
            Self::Published => &[
                Term::Intercept,
                Term::MultiNode,
                Term::MultiDc,
                Term::MultiContinent,
                Term::Workers,
            ],
            Self::Draft => &[
                Term::Intercept,
                Term::MultiDc,
                Term::Workers,
                Term::MultiNodeCount,
                Term::TotalDistance,
            ],
        }
    }

    /// The heading of the published table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Published => "RuntimeFactorAllDummy -- Published Version",
            Self::Draft => "RuntimeFactor -- Draft Version",
        }
    }

    /// The terms' values at a setting, shape (k).
    pub fn row(self, setting: &Setting) -> RowDVector<f64> {
        RowDVector::from_iterator(
            self.terms().len(),
            self.terms().iter().map(|term| term.of(setting)),
        )
    }

    /// A row for each setting, shape (n, k).
    pub fn design(self, settings: &[Setting]) -> DMatrix<f64> {
        DMatrix::from_fn(settings.len(), self.terms().len(), |row, column| {
            self.terms()[column].of(&settings[row])
        })
    }

    /// The terms' names, in order.
    pub fn names(self) -> Vec<String> {
        self.terms().iter().map(|term| term.name().to_owned()).collect()
    }

    /// Fits `runs`, all of them: which are to be fitted is the caller's choice (the paper's are those on a
    /// distributed database, [`distributed`]).
    pub fn fit(self, runs: &[Run]) -> Result<Fit, FitError> {
        let settings: Vec<Setting> = runs.iter().map(Setting::from).collect();
        let response =
            DVector::from_iterator(runs.len(), runs.iter().map(|run| run.runtime_factor));
        ols::fit(self.names(), &self.design(&settings), &response)
    }
}

/// The runs that are fitted: those on a distributed database. The others are their baseline.
pub fn distributed(runs: &[Run]) -> Vec<Run> {
    runs.iter().filter(|run| run.is_distributed).cloned().collect()
}
