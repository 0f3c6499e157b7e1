//! What the benchmark prints: each statement's times, and how they compare.
//!
//! Owns: the wording, and the aims. Never: measures.

use std::fmt::Display;

use super::args::SqlArgs;
use super::figures::{Figures, POSTGRESQL, TUTTI};
use super::shapes::{Kind, Shape};
use crate::bench::aim::{Aim, Limit};
use crate::bench::median::Median;
use tutti_lab::table::layout;

/// What statements whose parts are put together may take, of one PostgreSQL's time.
const IN_PARTS_MAX: f64 = 1.3;

/// On what is measured.
pub(super) fn about(args: &SqlArgs, version: impl Display) -> String {
    let mut text = format!(
        "{} nodes beside one server, PostgreSQL {version}, fsync on, one client; {} rows; {} rounds\n",
        args.nodes, args.rows, args.rounds
    );
    if cfg!(debug_assertions) {
        text.push_str("This program was not built for speed; figures that count need --release.\n");
    }
    text
}

/// A table of all statements, and the means of each kind.
pub(super) fn tables(shapes: &[&Shape], figures: &Figures) -> String {
    let title = ["statement", "", "one PostgreSQL, ms", "Tutti, ms", "ratio"];
    let mut lines = vec![title.map(str::to_owned).to_vec()];
    let middle =
        |ms: Vec<f64>| Median::of(ms).map_or_else(String::new, |of| format!("{:.1}", of.median));
    for shape in shapes {
        lines.push(vec![
            shape.name.to_owned(),
            shape.kind.name().to_owned(),
            middle(figures.ms(shape, POSTGRESQL)),
            middle(figures.ms(shape, TUTTI)),
            figures.ratio(shape).map_or_else(String::new, |ratio| ratio.to_string()),
        ]);
    }
    let mut text = format!("\n{}", layout(&lines));
    text.push_str("\n== Geometric means of the ratios ==\n\n");
    for kind in Kind::ALL {
        let of_kind: Vec<_> = shapes.iter().filter(|shape| shape.kind == kind).collect();
        let logs: Vec<f64> =
            of_kind.iter().filter_map(|shape| Some(figures.ratio(shape)?.median.ln())).collect();
        if !logs.is_empty() {
            let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
            text += &format!("{}: {mean:.2}\n", kind.name());
        }
    }
    text.push_str("\n== The aim ==\n\n");
    for shape in shapes.iter().filter(|shape| shape.kind == Kind::InParts) {
        let limit = Limit::AtMost(IN_PARTS_MAX);
        let aim = Aim { says: shape.name.to_owned(), limit, found: figures.ratio(shape) };
        if let Some(verdict) = aim.verdict() {
            text += &format!("{}, {}: {verdict}\n", aim.says, aim.limit());
        }
    }
    text
}
