//! Plots: lines, bars and boxes, readable in print and by the colour-blind.
//!
//! Owns: how they look, and the data behind each as CSV. Never: computes a figure, but the quartiles of a box.
//! Start reading at [`Chart`].

use anyhow::Context;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figures::figure;
use tutti_lab::palette::COLOURS;

/// Pixels.
const SIZE: (u32, u32) = (860, 430);
/// What the names of the series take at the right.
const LEGEND: u32 = 190;
const FONT: &str = "sans-serif";

/// A plot and its data.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// Part of the CSV file's name: letters, digits, hyphens.
    pub name: String,
    /// What it shows.
    pub caption: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    pub marks: Marks,
}

/// What an axis says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Axis {
    /// With its unit.
    pub label: String,
    /// Equal distances are equal factors.
    pub is_logarithmic: bool,
    /// Names at 0, 1, 2, … instead of numbers.
    pub names: Vec<String>,
}

impl Axis {
    /// Of numbers.
    pub(crate) fn of(label: &str) -> Self {
        Self { label: label.to_owned(), ..Self::default() }
    }

    /// Of names.
    pub(crate) fn named(label: &str, names: Vec<String>) -> Self {
        Self { label: label.to_owned(), names, ..Self::default() }
    }

    /// The same with equal factors at equal distances.
    pub(crate) fn logarithmic(self) -> Self {
        Self { is_logarithmic: true, ..self }
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value }
    }

    fn label_at(&self, place: f64) -> String {
        let value = if self.is_logarithmic { 10_f64.powf(place) } else { place };
        if self.names.is_empty() {
            // No "-0".
            return figure((value * 1e6).round() / 1e6 + 0.0);
        }
        let is_whole = (value - value.round()).abs() < 1e-6 && 0.0 <= value.round();
        let name = is_whole.then(|| self.names.get(value.round() as usize)).flatten();
        name.cloned().unwrap_or_default()
    }
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Drawn dashed, such as what others have published.
    pub is_dashed: bool,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Marks {
    /// Joined by lines; the points are marked where there are few.
    Lines,
    /// Points alone.
    Points,
    /// For each x of a series the quartiles as a box, and from the least to the greatest a line.
    Boxes,
    /// Bars side by side from zero, one for each point.
    Bars,
}

impl Chart {
    /// The name of the file with its data.
    pub(crate) fn csv_name(&self) -> String {
        format!("{}.csv", self.name)
    }

    /// The data: a line for each point.
    pub(crate) fn csv(&self) -> anyhow::Result<String> {
        let mut out = csv::Writer::from_writer(Vec::new());
        out.write_record(["series", &self.x.label, &self.y.label])?;
        for Series { name, points, .. } in &self.series {
            for (x, y) in points {
                let x = match self.x.names.is_empty() {
                    true => x.to_string(),
                    false => self.x.label_at(*x),
                };
                out.write_record([name.as_str(), &x, &y.to_string()])?;
            }
        }
        Ok(String::from_utf8(out.into_inner().context("write CSV")?)?)
    }

    /// The picture, as an SVG element.
    pub(crate) fn svg(&self) -> anyhow::Result<String> {
        let mut svg = String::new();
        self.draw(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())?;
        Ok(svg)
    }

    fn draw(&self, root: &DrawingArea<SVGBackend<'_>, Shift>) -> anyhow::Result<()> {
        root.fill(&WHITE)?;
        let (body, legend) = root.split_horizontally(SIZE.0 - LEGEND);
        let (x, y) = (self.x_range(), self.y_range());
        let mut chart = ChartBuilder::on(&body)
            .margin(10)
            .x_label_area_size(46)
            .y_label_area_size(66)
            .build_cartesian_2d(x.0..x.1, y.0..y.1)?;
        let x_labels = if self.x.names.is_empty() { 8 } else { self.x.names.len() * 2 + 1 };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_labels(if self.x.names.is_empty() { x_labels } else { 0 })
            .y_labels(7)
            .x_label_formatter(&|place| self.x.label_at(*place))
            .y_label_formatter(&|place| self.y.label_at(*place))
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .draw()?;
        let centred = TextStyle::from((FONT, 13)).pos(Pos::new(HPos::Center, VPos::Top));
        for (place, name) in self.x.names.iter().enumerate() {
            let at = chart.backend_coord(&(place as f64, y.0));
            root.draw(&Text::new(name.clone(), (at.0, at.1 + 8), centred.clone()))?;
        }
        for (number, series) in self.series.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            let at = |(x, y): &(f64, f64)| (self.x.place(*x), self.y.place(*y));
            let points: Vec<_> = series.points.iter().map(at).collect();
            match self.marks {
                Marks::Lines => {
                    let style = colour.stroke_width(2);
                    match series.is_dashed {
                        true => chart.draw_series(std::iter::once(DashedPathElement::new(
                            points.clone(),
                            6,
                            4,
                            style,
                        )))?,
                        false => chart.draw_series(LineSeries::new(points.clone(), style))?,
                    };
                    if points.len() <= 40 {
                        chart.draw_series(mark(number, &points, colour))?;
                    }
                }
                Marks::Points => drop(chart.draw_series(mark(number, &points, colour))?),
                Marks::Boxes => {
                    for (middle, quartiles) in self.boxes(series) {
                        let half = 0.3 / self.series.len() as f64;
                        let (from, to) = (middle - half, middle + half);
                        let [least, low, median, high, greatest] =
                            quartiles.map(|q| self.y.place(q));
                        let line = |a, b| PathElement::new([a, b], colour.stroke_width(2));
                        let middle = f64::midpoint(from, to);
                        chart.draw_series([
                            line((middle, least), (middle, low)),
                            line((middle, high), (middle, greatest)),
                            line((from, median), (to, median)),
                        ])?;
                        chart.draw_series([
                            Rectangle::new([(from, low), (to, high)], colour.mix(0.25).filled()),
                            Rectangle::new([(from, low), (to, high)], colour.stroke_width(1)),
                        ])?;
                    }
                }
                Marks::Bars => {
                    let width = 0.8 / self.series.len() as f64;
                    chart.draw_series(points.iter().map(|(middle, height)| {
                        let left = middle - 0.4 + number as f64 * width;
                        let bar = [(left, y.0), (left + width * 0.92, *height)];
                        Rectangle::new(bar, colour.filled())
                    }))?;
                }
            }
            let top = 24 + 22 * number as i32;
            match series.is_dashed {
                true => legend.draw(&DashedPathElement::new(
                    [(6, top + 6), (34, top + 6)],
                    6,
                    4,
                    colour.stroke_width(2),
                ))?,
                false => {
                    legend.draw(&PathElement::new(
                        [(6, top + 6), (34, top + 6)],
                        colour.stroke_width(3),
                    ))?;
                }
            }
            legend.draw(&Text::new(series.name.clone(), (40, top), (FONT, 13)))?;
        }
        Ok(root.present()?)
    }

    /// Quartiles of what a series has at each x, by the middle of its box.
    fn boxes(&self, series: &Series) -> Vec<(f64, [f64; 5])> {
        let number = self.series.iter().position(|other| other.name == series.name);
        let count = self.series.len() as f64;
        let offset = (number.unwrap_or_default() as f64 - (count - 1.0) / 2.0) * 0.7 / count;
        let mut places: Vec<f64> = series.points.iter().map(|(x, _)| *x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let of = |place: f64| {
            let here = series.points.iter().filter(|(x, _)| (*x - place).abs() < 1e-9);
            let mut values: Vec<f64> = here.map(|(_, y)| *y).collect();
            values.sort_by(f64::total_cmp);
            (place + offset, [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| quantile(&values, part)))
        };
        places.into_iter().map(of).collect()
    }

    fn x_range(&self) -> (f64, f64) {
        if !self.x.names.is_empty() {
            return (-0.5, self.x.names.len() as f64 - 0.5);
        }
        let places = self.places(|(x, _)| self.x.place(*x));
        let (low, high) = extent(&places);
        let room = (high - low).max(1e-9) * 0.03;
        (low - room, high + room)
    }

    fn y_range(&self) -> (f64, f64) {
        let places = self.places(|(_, y)| self.y.place(*y));
        let (low, high) = extent(&places);
        let room = (high - low).max(1e-9) * 0.06;
        // From zero, so that heights can be compared; factors have no zero.
        let low = if self.y.is_logarithmic || low < 0.0 { low - room } else { 0.0 };
        (low, high + room)
    }

    fn places(&self, of: impl Fn(&(f64, f64)) -> f64) -> Vec<f64> {
        self.series.iter().flat_map(|series| series.points.iter().map(&of)).collect()
    }
}

/// Another shape for each series, for those who print in black.
fn mark<'a>(
    number: usize,
    points: &[(f64, f64)],
    colour: RGBColor,
) -> Vec<DynElement<'static, SVGBackend<'a>, (f64, f64)>> {
    let shape = |at: &(f64, f64)| match number % 3 {
        0 => Circle::new(*at, 4, colour.filled()).into_dyn(),
        1 => TriangleMarker::new(*at, 6, colour.filled()).into_dyn(),
        _ => Cross::new(*at, 4, colour.stroke_width(2)).into_dyn(),
    };
    points.iter().map(shape).collect()
}

fn extent(values: &[f64]) -> (f64, f64) {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

/// Between the two values around it, in proportion (Hyndman and Fan, definition 7).
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len().saturating_sub(1)) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(low), Some(high)) => low + (high - low) * (place - place.floor()),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(marks: Marks) -> Chart {
        let series = |name: &str, is_dashed| Series {
            name: name.to_owned(),
            points: vec![(0.0, 1.0), (0.0, 3.0), (1.0, 10.0), (1.0, 20.0)],
            is_dashed,
        };
        Chart {
            name: "a-chart".to_owned(),
            caption: "A chart".to_owned(),
            x: Axis::named("where", vec!["here".to_owned(), "there".to_owned()]),
            y: Axis::of("per second").logarithmic(),
            series: vec![series("one", false), series("two", true)],
            marks,
        }
    }

    #[test]
    fn every_kind_of_plot_is_drawn_with_its_names() {
        for marks in [Marks::Lines, Marks::Points, Marks::Boxes, Marks::Bars] {
            let svg = chart(marks).svg().unwrap();
            for said in ["<svg", "per second", "here", "there", "one", "two"] {
                assert!(svg.contains(said), "{marks:?}: no {said}");
            }
        }
    }

    #[test]
    fn the_data_behind_a_plot_has_its_names() {
        let csv = chart(Marks::Boxes).csv().unwrap();
        assert!(csv.starts_with("series,where,per second\none,here,1\none,here,3\n"), "{csv}");
    }

    #[test]
    fn quartiles_are_between_values() {
        let of = |part| quantile(&[1.0, 2.0, 3.0, 4.0], part);
        assert!((of(0.25) - 1.75).abs() < 1e-9 && (of(0.5) - 2.5).abs() < 1e-9);
        assert!((of(1.0) - 4.0).abs() < 1e-9 && quantile(&[], 0.5).is_nan());
    }
}
