//! What a benchmark prints: what was measured on what, the tables, the aims.
//!
//! Owns: the wording, and the aims. Never: measures.
//! Start reading at [`aims`].

use std::iter::once;

use super::args::CommitArgs;
use super::figures::{Figures, Which};
use super::load::Load;
use super::measured::{Measured, Who};
use super::place::Place;
use super::variant::{DIRECT, ROOMS_OFF, ROOMS_ON};
use crate::bench::aim::{Aim, Limit};
use tutti_lab::table::layout;

/// What the rooms may cost of the transfers per second, with a reader.
const TRANSFERS_LEFT_MIN: f64 = 0.85;
/// What they may cost of the local statements per second, without global transactions.
const LOCAL_LEFT_MIN: f64 = 0.95;
/// What a global COMMIT may take, of two local ones and two round trips.
const COMMIT_SHARE_MAX: f64 = 1.0;

/// On what is measured.
pub(super) fn about(args: &CommitArgs, place: &Place) -> String {
    let mut text = format!(
        "{} nodes, PostgreSQL {}, fsync on, in {}; {} rounds of {} s for each measurement\n",
        args.nodes,
        place.postgresql(),
        place.dir().display(),
        args.rounds,
        args.seconds
    );
    if 0 < args.flush_us {
        text += &format!("Every flush takes {} µs more than the disk needs.\n", args.flush_us);
    }
    if cfg!(debug_assertions) {
        text.push_str("This program was not built for speed; figures that count need --release.\n");
    }
    text
}

/// A row of the tables.
#[derive(Clone, Copy, Debug)]
struct Row {
    name: &'static str,
    workload: Load,
    who: Who,
}

/// All workloads, and in between what others did beside them.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for workload in Load::ALL {
        rows.push(Row { name: workload.name(), workload, who: Who::Clients });
        if workload == Load::LocalBesideGlobal {
            rows.push(Row { name: "  (the global beside)", workload, who: Who::Neighbours });
        }
        if workload == Load::GlobalAndReader {
            rows.push(Row { name: "  (the reader)", workload, who: Who::Reader });
        }
    }
    rows
}

/// One table for each number of clients: every workload in every way, and how the ways compare.
pub(super) fn tables(args: &CommitArgs, figures: &Figures) -> String {
    let variants: Vec<&str> = args.variants.iter().map(|variant| variant.name).collect();
    let (base, others) = (variants[0], &variants[1..]);
    let mut text = String::new();
    for &clients in &args.clients {
        let mut names = vec![String::new(), DIRECT.to_owned()];
        names.extend(variants.iter().map(|name| (*name).to_owned()));
        names.extend(others.iter().map(|other| format!("{base} : {other}")));
        let mut lines = vec![names];
        for Row { name, workload, who } in rows() {
            let which = |way| Which { clients, workload, who, way };
            let mut line = vec![name.to_owned()];
            let ways = once(DIRECT).chain(variants.iter().copied());
            line.extend(ways.map(|way| measured_text(figures, which(way))));
            let ratios = others.iter().map(|other| figures.ratio(which(base), which(other)));
            line.extend(
                ratios.map(|ratio| ratio.map_or_else(String::new, |ratio| ratio.to_string())),
            );
            lines.push(line);
        }
        text += &format!("\n== Clients: {clients} (per second, p50 / p99 in ms) ==\n\n");
        text += &layout(&lines);
    }
    text
}

/// Medians over the rounds; empty where nothing was measured.
fn measured_text(figures: &Figures, which: Which) -> String {
    let median = |figure: fn(&Measured) -> f64| {
        figures.over_rounds(|round| figures.at(round, which).map(figure)).map(|of| of.median)
    };
    let per_s = median(|of| of.per_s);
    let (p50_us, p99_us) = (median(|of| of.p50_us), median(|of| of.p99_us));
    match (per_s, p50_us, p99_us) {
        (Some(per_s), Some(p50_us), Some(p99_us)) => {
            format!("{per_s:>6.0}  {:>5.2} / {:>5.2}", p50_us / 1_000.0, p99_us / 1_000.0)
        }
        _ => String::new(),
    }
}

/// The aims of the project and whether this run meets them, and what else is asked of it.
pub(super) fn aims(args: &CommitArgs, figures: &Figures) -> String {
    let by_clients: Vec<Vec<Aim>> =
        args.clients.iter().map(|clients| aims_with(*clients, figures)).collect();
    let mut names = vec!["ratio".to_owned(), "aim".to_owned()];
    names.extend(args.clients.iter().map(|clients| format!("{clients} clients")));
    let mut lines = vec![names];
    for (index, aim) in by_clients[0].iter().enumerate() {
        let mut line = vec![aim.says.clone(), aim.limit()];
        line.extend(by_clients.iter().map(|aims| aims[index].verdict().unwrap_or_default()));
        lines.push(line);
    }
    let mut control = vec![format!("SELECT 1, {ROOMS_ON} : {ROOMS_OFF}"), "the noise".to_owned()];
    control.extend(args.clients.iter().map(|&clients| {
        let (workload, who) = (Load::RoundTrip, Who::Clients);
        let which = |way| Which { clients, workload, who, way };
        let ratio = figures.ratio(which(ROOMS_ON), which(ROOMS_OFF));
        ratio.map_or_else(String::new, |ratio| ratio.to_string())
    }));
    lines.push(control);
    for variant in &args.variants {
        let mut line = vec![format!("local beside global : beside local, {}", variant.name)];
        line.push(String::new());
        line.extend(args.clients.iter().map(|&clients| {
            let which =
                |workload| Which { clients, workload, who: Who::Clients, way: variant.name };
            let ratio =
                figures.ratio(which(Load::LocalBesideGlobal), which(Load::LocalBesideLocal));
            ratio.map_or_else(String::new, |ratio| ratio.to_string())
        }));
        lines.push(line);
    }
    let mut text =
        format!("\n== The aims: median (lowest-highest of the rounds) ==\n\n{}", layout(&lines));
    text += "\n\"?\": some rounds say otherwise; SELECT 1 shows how far the machine alone moves ratios.\n";
    text += "\n== Readings of the sum while money moved ==\n\n";
    for variant in &args.variants {
        let (readings, wrong) = figures.readings(variant.name);
        text += &format!("{}: {readings} readings, {wrong} wrong\n", variant.name);
    }
    text
}

fn aims_with(clients: u16, figures: &Figures) -> Vec<Aim> {
    let which = |workload, way| Which { clients, workload, who: Who::Clients, way };
    let left = |workload| figures.ratio(which(workload, ROOMS_ON), which(workload, ROOMS_OFF));
    let commit_share = |local_way| {
        figures.over_rounds(|round| {
            let p50_us = |workload, way| Some(figures.at(round, which(workload, way))?.p50_us);
            let local = p50_us(Load::Local, local_way)?;
            let round_trip = p50_us(Load::RoundTrip, local_way)?;
            Some(p50_us(Load::Global, ROOMS_ON)? / (2.0 * local + 2.0 * round_trip))
        })
    };
    let mut aims = vec![Aim {
        says: format!("global transfers with a reader, {ROOMS_ON} : {ROOMS_OFF}"),
        limit: Limit::AtLeast(TRANSFERS_LEFT_MIN),
        found: left(Load::GlobalAndReader),
    }];
    for (local_way, of) in [(ROOMS_ON, "of the gateway's"), (DIRECT, "of a plain node's")] {
        aims.push(Aim {
            says: format!("a global COMMIT : two local ones and two round trips {of}"),
            limit: Limit::AtMost(COMMIT_SHARE_MAX),
            found: commit_share(local_way),
        });
    }
    for workload in [Load::Select, Load::Update, Load::Local] {
        aims.push(Aim {
            says: format!("{}, {ROOMS_ON} : {ROOMS_OFF}", workload.name()),
            limit: Limit::AtLeast(LOCAL_LEFT_MIN),
            found: left(workload),
        });
    }
    aims
}

#[cfg(test)]
mod tests {
    use super::super::figures::Record;
    use super::*;

    fn figures(of: &[(Load, Who, &'static str, f64, f64)]) -> Figures {
        let mut figures = Figures::default();
        for &(workload, who, way, per_s, p50_us) in of {
            let measured = Measured { per_s, p50_us, p99_us: p50_us, count: 9, wrong: 0 };
            figures.push(Record { round: 1, clients: 8, workload, who, way, measured });
        }
        figures
    }

    fn verdicts(figures: &Figures) -> String {
        let aims = aims_with(8, figures);
        aims.iter().filter_map(Aim::verdict).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_aim_is_met_up_to_its_limit_and_not_beyond() {
        let with = |on| {
            let (workload, who) = (Load::GlobalAndReader, Who::Clients);
            verdicts(&figures(&[
                (workload, who, ROOMS_ON, on, 1.0),
                (workload, who, ROOMS_OFF, 100.0, 1.0),
            ]))
        };
        assert_eq!(with(85.0), "met 0.85 (0.85-0.85)");
        assert_eq!(with(84.0), "NOT MET 0.84 (0.84-0.84)");
    }

    #[test]
    fn a_global_commit_is_compared_with_two_local_ones_and_two_round_trips() {
        let with = |global_us| {
            let clients = Who::Clients;
            verdicts(&figures(&[
                (Load::Global, clients, ROOMS_ON, 1.0, global_us),
                (Load::Local, clients, DIRECT, 1.0, 900.0),
                (Load::RoundTrip, clients, DIRECT, 1.0, 100.0),
            ]))
        };
        assert_eq!(with(2_000.0), "met 1.00 (1.00-1.00)");
        assert_eq!(with(2_100.0), "NOT MET 1.05 (1.05-1.05)");
    }

    #[test]
    fn what_was_not_measured_has_no_verdict() {
        assert_eq!(verdicts(&Figures::default()), "");
    }
}
