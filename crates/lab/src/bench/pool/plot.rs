//! The comparison as a picture: throughput, a panel for each script and protocol.
//!
//! Owns: the drawing. Never: computes a figure.

use std::path::Path;

use plotters::prelude::*;

use super::figures::Figures;
use super::plan::Plan;
use super::target::{Load, Protocol, Script, name};
use tutti_lab::palette::COLOURS;

/// Pixels.
const PANEL: (u32, u32) = (380, 250);
const HEADER: u32 = 40;
const LEGEND_STEP: u32 = 150;
const FONT: &str = "sans-serif";
/// What the bars of one number of clients fill of their place.
const GROUP_WIDTH: f64 = 0.8;

/// A bar: how far along, how wide, how high, and from where to where the rounds went.
struct Bar {
    left: f64,
    right: f64,
    low: f64,
    median: f64,
    high: f64,
    colour: RGBColor,
}

/// Draws medians as bars, and the lowest and highest of the rounds as lines on them.
pub(super) fn draw(file: &Path, plan: &Plan, figures: &Figures) -> anyhow::Result<()> {
    let (columns, rows) = (plan.protocols.len(), plan.scripts.len());
    // Never narrower than the legend.
    let width = (PANEL.0 * columns as u32).max(LEGEND_STEP * plan.targets.len() as u32);
    let size = (width, HEADER + PANEL.1 * rows as u32);
    let root = SVGBackend::new(file, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (header, body) = root.split_vertically(HEADER);
    for (target, (colour, left)) in
        plan.targets.iter().zip(COLOURS.iter().cycle().zip((16..).step_by(LEGEND_STEP as usize)))
    {
        header.draw(&Rectangle::new([(left, 14), (left + 14, 28)], colour.filled()))?;
        header.draw(&Text::new(target.to_string(), (left + 20, 14), (FONT, 15)))?;
    }
    let panels = body.split_evenly((rows, columns));
    let places = plan
        .scripts
        .iter()
        .flat_map(|script| plan.protocols.iter().map(move |protocol| (*script, *protocol)));
    for (panel, (script, protocol)) in panels.iter().zip(places) {
        let bars = bars(plan, figures, script, protocol);
        let highest = bars.iter().map(|bar| bar.high).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(panel)
            .caption(format!("{}, {}: per second", name(script), name(protocol)), (FONT, 15))
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..plan.clients.len() as f64, 0.0..highest * 1.05)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(0)
            .light_line_style(WHITE)
            .y_labels(6)
            .y_label_formatter(&|per_s| format!("{per_s:.0}"))
            .draw()?;
        chart.draw_series(bars.iter().map(|bar| {
            Rectangle::new([(bar.left, 0.0), (bar.right, bar.median)], bar.colour.filled())
        }))?;
        chart.draw_series(bars.iter().map(|bar| {
            let middle = f64::midpoint(bar.left, bar.right);
            PathElement::new([(middle, bar.low), (middle, bar.high)], RED)
        }))?;
        // Under each group; the axis itself would label positions that mean nothing.
        for (group, clients) in plan.clients.iter().enumerate() {
            let (x, y) = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            let label = format!("{clients} client{}", if *clients == 1 { "" } else { "s" });
            root.draw(&Text::new(label, (x - 28, y + 8), (FONT, 13)))?;
        }
    }
    root.present()?;
    Ok(())
}

/// The bars of a panel, grouped by the number of clients.
fn bars(plan: &Plan, figures: &Figures, script: Script, protocol: Protocol) -> Vec<Bar> {
    let width = GROUP_WIDTH / plan.targets.len() as f64;
    let mut bars = Vec::new();
    for (group, &clients) in plan.clients.iter().enumerate() {
        let load = Load { script, protocol, clients };
        for (number, (target, colour)) in
            plan.targets.iter().zip(COLOURS.into_iter().cycle()).enumerate()
        {
            let Some(per_s) = figures.over_rounds(load, target, |of| Some(of.per_s)) else {
                continue;
            };
            let left = group as f64 + (1.0 - GROUP_WIDTH) / 2.0 + number as f64 * width;
            let (low, median, high) = (per_s.low, per_s.median, per_s.high);
            bars.push(Bar { left, right: left + width, low, median, high, colour });
        }
    }
    bars
}
