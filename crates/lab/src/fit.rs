//! `tutti-lab fit`: the cost model's regression on a file of runs.
//!
//! Owns: the options, and what is printed and drawn. Never: computes a figure; that is `model`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde_json::json;
use tutti_lab::model::ols::{Coefficient, Fit};
use tutti_lab::model::residuals::Residuals;
use tutti_lab::model::specification::{Specification, distributed};
use tutti_lab::model::words::{Reading, readings};
use tutti_lab::model::{plots, runs, summary};

use crate::terminal::print;

/// The column that is explained.
const DEPENDENT: &str = "RuntimeFactor";

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// Runs, one a line; columns by name, others ignored: BatchDescription, Workers, IsDistributedDB,
    /// IsMultiNode, IsMultiDC, IsMultiContinent, MultiNodeCount, TotalNetworkDistance (kilometres,
    /// summed over all pairs of nodes), RuntimeFactor (ln of the run time over the baseline's).
    file: PathBuf,

    /// Which terms explain the run time.
    #[arg(long, value_enum, default_value_t = Model::Published)]
    model: Model,

    /// Print JSON, with all digits.
    #[arg(long)]
    json: bool,

    /// Draw run times by deployment and residuals into this directory, as SVG.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Model {
    /// Steps for several nodes, data centres and continents, and the workers.
    Published,
    /// A step for several data centres, the workers, the number of nodes, and their distance.
    Draft,
}

impl From<Model> for Specification {
    fn from(model: Model) -> Self {
        match model {
            Model::Published => Self::Published,
            Model::Draft => Self::Draft,
        }
    }
}

/// Fits and prints.
pub(crate) fn fit(args: &FitArgs) -> anyhow::Result<()> {
    let all = runs::read(&args.file)?;
    let fitted = distributed(&all);
    let file = args.file.display();
    ensure!(
        !fitted.is_empty(),
        "{file} has no run on a distributed database (IsDistributedDB is TRUE in none of {} lines)",
        all.len()
    );
    let specification = Specification::from(args.model);
    let fit = specification.fit(&fitted).with_context(|| format!("cannot fit {file}"))?;
    let coefficients = fit.estimate.coefficients();
    let readings = readings(specification, &coefficients);
    if args.json {
        let value = as_json(specification, &fit, &coefficients, &readings);
        print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?;
    } else {
        let sentences: String =
            readings.iter().map(|reading| format!("- {}\n", reading.sentence)).collect();
        print(&format!(
            "{}\n{}\nIn words (the baseline is one PostgreSQL server, with as many workers):\n{sentences}",
            specification.title(),
            summary::table(DEPENDENT, &fit)
        ))?;
    }
    if let Some(dir) = &args.plots {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let (deployments, residuals) = (dir.join("deployments.svg"), dir.join("residuals.svg"));
        plots::by_deployment(&deployments, &all)
            .with_context(|| format!("cannot draw {}", deployments.display()))?;
        plots::residuals(&residuals, &fitted, fit.fitted.as_slice(), fit.residuals.as_slice())
            .with_context(|| format!("cannot draw {}", residuals.display()))?;
        eprintln!("tutti-lab: drew {} and {}", deployments.display(), residuals.display());
    }
    Ok(())
}

/// NaN and infinity, which JSON has not, are null.
fn as_json(
    specification: Specification,
    fit: &Fit,
    coefficients: &[Coefficient],
    readings: &[Reading],
) -> serde_json::Value {
    let Residuals { skew, kurtosis, omnibus, jarque_bera, durbin_watson } =
        Residuals::of(&fit.residuals);
    let coefficients: Vec<serde_json::Value> = coefficients
        .iter()
        .zip(readings)
        .map(|(of, reading)| {
            json!({
                "term": of.term,
                "coefficient": of.value,
                "standard_error": of.standard_error,
                "t": of.t,
                "p": of.p,
                "low": of.low,
                "high": of.high,
                "per": reading.per,
                "factor": reading.factor,
                "factor_low": reading.factor_low,
                "factor_high": reading.factor_high,
                "sentence": reading.sentence,
            })
        })
        .collect();
    json!({
        "model": specification,
        "dependent": DEPENDENT,
        "observations": fit.observations,
        "df_residual": fit.estimate.df_residual,
        "df_model": fit.df_model,
        "r_squared": fit.r_squared,
        "r_squared_adjusted": fit.r_squared_adjusted,
        "f": fit.f,
        "f_p": fit.f_p,
        "log_likelihood": fit.log_likelihood,
        "aic": fit.aic,
        "bic": fit.bic,
        "residual_variance": fit.estimate.residual_variance,
        "condition_number": fit.condition_number,
        "coefficients": coefficients,
        "residuals": {
            "skew": skew,
            "kurtosis": kurtosis,
            "omnibus": omnibus.statistic,
            "omnibus_p": omnibus.p,
            "jarque_bera": jarque_bera.statistic,
            "jarque_bera_p": jarque_bera.p,
            "durbin_watson": durbin_watson,
        },
    })
}
