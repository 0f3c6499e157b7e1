//! A page as one HTML file that needs nothing else.
//!
//! Owns: the markup and the style. Never: computes a figure.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot::Chart;
use super::{Block, Page, Table};
use crate::password::hidden;
use crate::record::Record;

/// Plots are drawn on white; in the dark their lightness is turned round and their hues stay.
const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --rule: #bbb; --soft: #555; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #141414; --rule: #555; --soft: #aaa; }
  figure svg { filter: invert(1) hue-rotate(180deg); }
}
@media print { :root { --ink: #000; --paper: #fff; } figure, table { break-inside: avoid; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 58rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.lead { font-size: 1.1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }
caption, figcaption { text-align: left; color: var(--soft); padding: .3rem 0; font-size: .92rem; }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; } figure { margin: 1.5rem 0; } figure svg { max-width: 100%; height: auto; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: .6rem; }
";

/// The whole file.
pub(crate) fn render(page: &Page, records: &[Record]) -> anyhow::Result<String> {
    let mut blocks = Vec::new();
    for block in &page.blocks {
        blocks.push(render_block(block)?);
    }
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (page.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (page.title) }
                p.lead { (page.lead) }
                @for block in &blocks { (block) }
                (made_on(records))
            }
        }
    };
    Ok(document.into_string())
}

fn render_block(block: &Block) -> anyhow::Result<Markup> {
    Ok(match block {
        Block::Heading(text) => html! { h2 { (text) } },
        Block::Text(text) => html! { p { (text) } },
        Block::Plain(text) => html! { pre { (text) } },
        Block::Table(Table { caption, columns, lines }) => html! {
            div.wide { table {
                caption { (caption) }
                thead { tr { @for column in columns { th { (column) } } } }
                tbody { @for line in lines { tr { @for field in line { td { (field) } } } } }
            } }
        },
        Block::Plot(chart) => render_plot(chart)?,
    })
}

fn render_plot(chart: &Chart) -> anyhow::Result<Markup> {
    let data = format!("data:text/csv;base64,{}", STANDARD.encode(chart.csv()?));
    let svg = chart.svg()?;
    Ok(html! {
        figure role="img" aria-label=(chart.caption) {
            (PreEscaped(svg))
            figcaption { (chart.caption) " " a href=(data) download=(chart.csv_name()) { "Data (CSV)" } }
        }
    })
}

/// What one needs to make the same again.
fn made_on(records: &[Record]) -> Markup {
    let machines: BTreeSet<_> = records.iter().map(|record| &record.made_on).collect();
    let checked: BTreeSet<_> = records.iter().map(|record| record.checked.as_str()).collect();
    html! {
        h2 { "How this was made" }
        p { (records.len()) " runs. Checked after each: "
            (checked.into_iter().collect::<Vec<_>>().join("; ")) "." }
        @for machine in machines {
            p { (machine.processors) " threads of " (machine.processor) ", Linux " (machine.kernel)
                "; " (machine.server) "; tutti-lab " (machine.lab) ". The command:" }
            // Runs of older versions have it as it was given.
            pre { (hidden(&machine.command)) }
        }
    }
}
