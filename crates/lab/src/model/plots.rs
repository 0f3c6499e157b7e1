//! The runs and what the fit leaves of them, as SVG pictures.
//!
//! Owns: the drawing. Colours are Okabe and Ito's, distinguishable for the colour-blind; in print without colour, shapes
//! of points and labels say the same. Never: fits.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use statrs::statistics::{Data, OrderStatistics};

use super::runs::Run;
use crate::palette::COLOURS;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Pixels.
const SIZE: (u32, u32) = (860, 520);
const LEGEND_HEIGHT: u32 = 54;
const LEGEND_COLUMNS: usize = 3;
const FONT: &str = "sans-serif";
const TITLE_SIZE: u32 = 20;
const LABEL_SIZE: u32 = 14;
/// Tukey's fences: points farther than so many heights of the box from it are no part of the whiskers.
const FENCE: f64 = 1.5;
/// Half the width of a box, and where the points of its runs lie beside it; a deployment has the width 1.
const BOX_HALF: f64 = 0.18;
const POINTS_AT: f64 = 0.30;

/// Run times relative to the baseline by deployment: a box plot on a logarithmic scale, each run a point beside its box.
///
/// Box: quartiles (by Hyndman and Fan's type 8, "Sample quantiles in statistical packages", 1996), line: median, whiskers:
/// the farthest runs within 1.5 heights of the box.
pub fn by_deployment(file: &Path, runs: &[Run]) -> anyhow::Result<()> {
    let deployments = deployments(runs);
    let factors: Vec<f64> = runs.iter().map(|run| run.runtime_factor).collect();
    let (low, high) = padded(&factors);
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Run time by deployment", (FONT, TITLE_SIZE))
        .margin(12)
        .x_label_area_size(64)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..deployments.len() as f64, low..high)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_labels(0)
        .y_labels(0)
        .x_desc("deployment")
        .y_desc("run time / baseline's run time (log scale; 2× is an increase of 100 %)")
        .axis_desc_style((FONT, LABEL_SIZE))
        .draw()?;
    factor_axis(&root, &mut chart, low, high, deployments.len() as f64)?;
    let below = text_style(HPos::Center, VPos::Top);
    for (place, deployment) in deployments.iter().enumerate() {
        let middle = place as f64 + 0.5;
        let colour = COLOURS[place % COLOURS.len()];
        let mut factors: Vec<f64> = runs
            .iter()
            .filter(|run| run.batch_description == *deployment)
            .map(|run| run.runtime_factor)
            .collect();
        factors.sort_by(f64::total_cmp);
        draw_box(&mut chart, middle, colour, &factors)?;
        // Two lines: names are long, and the axis itself would label positions.
        let (x, y) = chart.backend_coord(&(middle, low));
        for (line, part) in label_lines(deployment).into_iter().enumerate() {
            root.draw(&Text::new(part, (x, y + 8 + 17 * line as i32), below.clone()))?;
        }
    }
    root.present()?;
    Ok(())
}

fn draw_box(
    chart: &mut Chart<'_, '_>,
    middle: f64,
    colour: RGBColor,
    sorted: &[f64],
) -> anyhow::Result<()> {
    let mut data = Data::new(sorted.to_vec());
    let (lower, median, upper) = (data.lower_quartile(), data.median(), data.upper_quartile());
    let reach = FENCE * (upper - lower);
    let lowest = sorted.iter().copied().find(|it| lower - reach <= *it).unwrap_or(lower);
    let highest = sorted.iter().copied().rfind(|it| *it <= upper + reach).unwrap_or(upper);
    let (left, right) = (middle - BOX_HALF, middle + BOX_HALF);
    let cap = BOX_HALF / 2.0;
    chart.draw_series([
        Rectangle::new([(left, lower), (right, upper)], colour.mix(0.45).filled()),
        Rectangle::new([(left, lower), (right, upper)], BLACK.stroke_width(1)),
    ])?;
    chart.draw_series([
        PathElement::new([(left, median), (right, median)], BLACK.stroke_width(3)),
        PathElement::new([(middle, upper), (middle, highest)], BLACK),
        PathElement::new([(middle, lower), (middle, lowest)], BLACK),
        PathElement::new([(middle - cap, highest), (middle + cap, highest)], BLACK),
        PathElement::new([(middle - cap, lowest), (middle + cap, lowest)], BLACK),
    ])?;
    chart.draw_series(
        sorted.iter().map(|it| Circle::new((middle + POINTS_AT, *it), 3, BLACK.mix(0.6))),
    )?;
    Ok(())
}

/// Residuals over fitted values, a shape and a colour for each deployment.
///
/// `fitted` and `residuals` are those of `runs`, in their order.
pub fn residuals(
    file: &Path,
    runs: &[Run],
    fitted: &[f64],
    residuals: &[f64],
) -> anyhow::Result<()> {
    assert!(runs.len() == fitted.len() && runs.len() == residuals.len(), "one of each for a run");
    let deployments = deployments(runs);
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (body, legend) = root.split_vertically(SIZE.1 - LEGEND_HEIGHT);
    let ((left, right), (low, high)) = (padded(fitted), padded(residuals));
    let mut chart = ChartBuilder::on(&body)
        .caption("What the fit leaves: residuals by fitted run time", (FONT, TITLE_SIZE))
        .margin(12)
        .x_label_area_size(52)
        .y_label_area_size(70)
        .build_cartesian_2d(left..right, low..high)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc("fitted ln(run time / baseline's run time)")
        .y_desc("residual: ln(run time / fitted run time)")
        .axis_desc_style((FONT, LABEL_SIZE))
        .label_style((FONT, LABEL_SIZE))
        .x_label_formatter(&tenths)
        .y_label_formatter(&tenths)
        .draw()?;
    chart.draw_series([PathElement::new([(left, 0.0), (right, 0.0)], BLACK.stroke_width(2))])?;
    for ((run, x), y) in runs.iter().zip(fitted).zip(residuals) {
        let place = deployments.iter().position(|it| *it == run.batch_description);
        chart.draw_series([mark(place.expect("they are those of the runs"), (*x, *y))])?;
    }
    draw_legend(&legend, &deployments)?;
    root.present()?;
    Ok(())
}

fn draw_legend(area: &Area<'_>, deployments: &[&str]) -> anyhow::Result<()> {
    let beside = text_style(HPos::Left, VPos::Center);
    let step = (SIZE.0 as i32 - 80) / LEGEND_COLUMNS as i32;
    for (place, deployment) in deployments.iter().enumerate() {
        let x = 80 + step * (place % LEGEND_COLUMNS) as i32;
        let y = 10 + 20 * (place / LEGEND_COLUMNS) as i32;
        area.draw(&mark(place, (x, y)))?;
        area.draw(&Text::new((*deployment).to_owned(), (x + 12, y), beside.clone()))?;
    }
    Ok(())
}

/// The point of a deployment: shape and colour by its place.
fn mark<'a, Coord: Clone + 'static>(
    place: usize,
    at: Coord,
) -> DynElement<'static, SVGBackend<'a>, Coord> {
    let colour = COLOURS[place % COLOURS.len()];
    match place % 4 {
        0 => Circle::new(at, 5, colour.filled()).into_dyn(),
        1 => TriangleMarker::new(at, 7, colour.filled()).into_dyn(),
        2 => Cross::new(at, 5, colour.stroke_width(2)).into_dyn(),
        _ => Circle::new(at, 5, colour.stroke_width(2)).into_dyn(),
    }
}

/// Lines and labels of a logarithmic axis: factors, where the coordinate is their logarithm.
fn factor_axis(
    root: &Area<'_>,
    chart: &mut Chart<'_, '_>,
    low: f64,
    high: f64,
    right: f64,
) -> anyhow::Result<()> {
    let style = text_style(HPos::Right, VPos::Center);
    let factors = (-6..7).flat_map(|power| [1.0, 2.0, 5.0].map(|it| it * 10.0_f64.powi(power)));
    for factor in factors.filter(|factor| (low..=high).contains(&factor.ln())) {
        let y = factor.ln();
        let strength = if factor == 1.0 { 0.5 } else { 0.12 };
        chart.draw_series([PathElement::new([(0.0, y), (right, y)], BLACK.mix(strength))])?;
        let (pixel_x, pixel_y) = chart.backend_coord(&(0.0, y));
        root.draw(&Text::new(format!("{factor}×"), (pixel_x - 8, pixel_y), style.clone()))?;
    }
    Ok(())
}

fn text_style(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    TextStyle::from((FONT, LABEL_SIZE).into_font()).pos(Pos::new(horizontal, vertical))
}

/// One digit, and no sign of what is rounded to zero.
fn tenths(value: &f64) -> String {
    format!("{:.1}", (value * 10.0).round() / 10.0 + 0.0)
}

/// Deployments in the order in which they appear.
fn deployments(runs: &[Run]) -> Vec<&str> {
    let mut deployments: Vec<&str> = Vec::new();
    for run in runs {
        if !deployments.contains(&run.batch_description.as_str()) {
            deployments.push(&run.batch_description);
        }
    }
    deployments
}

/// The range of values with a margin, so that no point is on an edge.
fn padded(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let margin = (0.06 * (high - low)).max(0.05);
    (low - margin, high + margin)
}

/// A name in two lines, broken at its comma.
fn label_lines(name: &str) -> Vec<String> {
    match name.split_once(", ") {
        Some((first, second)) => vec![format!("{first},"), second.to_owned()],
        None => vec![name.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(tenths(&-1e-17), "0.0");
        assert_eq!(tenths(&-0.26), "-0.3");
    }

    #[test]
    fn names_are_broken_at_their_comma() {
        assert_eq!(label_lines("Distributed, Multi DC"), ["Distributed,", "Multi DC"]);
        assert_eq!(label_lines("near"), ["near"]);
    }
}
