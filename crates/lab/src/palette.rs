//! The colours of all plots.
//!
//! Owns: their order. Never: draws.

use plotters::style::RGBColor;

/// Distinguishable for the colour-blind, and in print (Okabe and Ito, "Color Universal Design").
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
