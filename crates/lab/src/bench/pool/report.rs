//! What the comparison prints: on what it ran, the tables, the aims.
//!
//! Owns: the wording, and the aims. Never: measures.
//! Start reading at [`tables`].

use super::bouncer::Bouncer;
use super::figures::{Figures, Idle, Measured};
use super::place::Place;
use super::plan::Plan;
use super::target::{Load, Protocol, Script, Target, name};
use crate::bench::aim::{Aim, Limit};
use crate::bench::median::Median;
use tutti_lab::table::layout;

/// From so many clients on, the gateway is to do what PgBouncer does.
const AIM_CLIENTS_MIN: u16 = 8;
/// Of PgBouncer's throughput with pgbench -S.
const PREPARED_SHARE_MIN: f64 = 1.0;
const SIMPLE_SHARE_MIN: f64 = 0.9;
/// What an idle client may cost, in thousands of bytes.
const IDLE_KB_MAX: f64 = 10.0;

/// On what is measured.
pub(super) fn about(plan: &Plan, place: &Place, bouncer: Option<&Bouncer>) -> String {
    let mut text = format!(
        "PostgreSQL {}, fsync on, scale {}, in {}; {} rounds of {} s for each measurement\n",
        place.postgresql(),
        plan.scale,
        place.dir().display(),
        plan.rounds,
        plan.seconds
    );
    if let Some(bouncer) = bouncer {
        let how: Vec<String> = plan
            .protocols
            .iter()
            .map(|&protocol| format!("{} by {}", name(protocol), bouncer.database(protocol)))
            .collect();
        text += &format!("PgBouncer {} pools {}.\n", bouncer.version(), how.join(", "));
    }
    text += &match plan.pool {
        Some(pool) => format!("Poolers have {pool} connections to each server for clients.\n"),
        None => {
            "Poolers have as many connections to a server as they have by default.\n".to_owned()
        }
    };
    if cfg!(debug_assertions) {
        text.push_str("This program was not built for speed; figures that count need --release.\n");
    }
    text
}

/// A table for each script and protocol, and one of idle clients.
pub(super) fn tables(plan: &Plan, figures: &Figures) -> String {
    let mut text = String::new();
    if !figures.records.is_empty() {
        for &script in &plan.scripts {
            for &protocol in &plan.protocols {
                text += &table(plan, figures, script, protocol);
            }
        }
        text += "\nµs: processor time of the process per transaction. Ratios: median (lowest-highest of the rounds).\n";
    }
    if figures.failed() != 0 {
        text += &format!("{} transactions failed and are not counted.\n", figures.failed());
    }
    text + &idle_table(&figures.idle)
}

fn table(plan: &Plan, figures: &Figures, script: Script, protocol: Protocol) -> String {
    // What others are compared with, where it was measured.
    let compared = [Target::Direct, Target::Bouncer];
    let compared: Vec<&Target> =
        compared.iter().filter(|target| plan.targets.contains(target)).collect();
    let mut names =
        ["clients", "target", "per second", "p50 / p99 in ms", "µs"].map(str::to_owned).to_vec();
    for of in ["per second", "p99"] {
        names.extend(compared.iter().map(|other| format!("{of} : {other}")));
    }
    let mut lines = vec![names];
    let mut pooling = None;
    for &clients in &plan.clients {
        let load = Load { script, protocol, clients };
        pooling = pooling.or(figures.pooling(load));
        for target in &plan.targets {
            lines.push(line(figures, load, target, &compared));
        }
    }
    let pooled = pooling.map_or_else(String::new, |by| format!(" (pgbouncer by {by})"));
    let (script, protocol) = (name(script), name(protocol));
    format!("\n== {script}, {protocol}{pooled} ==\n\n{}", layout(&lines))
}

fn line(figures: &Figures, load: Load, target: &Target, compared: &[&Target]) -> Vec<String> {
    let median = |figure: fn(&Measured) -> Option<f64>| {
        figures.over_rounds(load, target, figure).map(|spread| spread.median)
    };
    let shown = |figure: Option<f64>| figure.map_or_else(String::new, |of| format!("{of:>6.0}"));
    let latencies = median(|of| of.p50_us).zip(median(|of| of.p99_us));
    let mut line = vec![
        format!("{:>7}", load.clients),
        target.to_string(),
        shown(median(|of| Some(of.per_s))),
        latencies.map_or_else(String::new, |(p50_us, p99_us)| {
            format!("{:>6.2} / {:>6.2}", p50_us / 1_000.0, p99_us / 1_000.0)
        }),
        shown(median(|of| of.cpu_us)),
    ];
    for figure in [|of: &Measured| Some(of.per_s), |of: &Measured| of.p99_us] {
        for other in compared {
            let ratio = (*other != target).then(|| figures.ratio(load, target, other, figure));
            line.push(ratio.flatten().map_or_else(String::new, |ratio| ratio.to_string()));
        }
    }
    line
}

fn idle_table(idle: &[Idle]) -> String {
    if idle.is_empty() {
        return String::new();
    }
    let names = ["target", "idle clients", "kB each", "MB before", "MB with them", "MB after"];
    let mut lines = vec![names.map(str::to_owned).to_vec()];
    for of in idle {
        let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1_000_000.0);
        lines.push(vec![
            of.target.to_string(),
            of.opened.to_string(),
            of.bytes_per_client().map_or_else(String::new, |each| format!("{:.1}", each / 1_000.0)),
            mb(of.before_bytes),
            mb(of.with_bytes),
            mb(of.after_bytes),
        ]);
    }
    let mut text =
        format!("\n== Memory of idle clients, each after one query ==\n\n{}", layout(&lines));
    for of in idle {
        if let Some(refusal) = &of.refusal {
            text +=
                &format!("{}: no more than {} of {}: {refusal}\n", of.target, of.opened, of.asked);
        }
    }
    text
}

/// The aims of the project and whether this run meets them.
pub(super) fn aims(plan: &Plan, figures: &Figures) -> String {
    let aims = all_aims(plan, figures);
    let measured: Vec<(&Aim, String)> =
        aims.iter().filter_map(|aim| Some((aim, aim.verdict()?))).collect();
    if measured.is_empty() {
        return String::new();
    }
    let mut lines = vec![["figure", "aim", "found"].map(str::to_owned).to_vec()];
    lines.extend(
        measured.into_iter().map(|(aim, verdict)| vec![aim.says.clone(), aim.limit(), verdict]),
    );
    format!(
        "\n== The aims: median (lowest-highest of the rounds; \"?\": some rounds say otherwise) ==\n\n{}",
        layout(&lines)
    )
}

fn all_aims(plan: &Plan, figures: &Figures) -> Vec<Aim> {
    let gateways = || plan.targets.iter().filter(|of| matches!(of, Target::Tutti { .. }));
    let mut aims = Vec::new();
    for (protocol, share) in
        [(Protocol::Prepared, PREPARED_SHARE_MIN), (Protocol::Simple, SIMPLE_SHARE_MIN)]
    {
        for &clients in plan.clients.iter().filter(|clients| AIM_CLIENTS_MIN <= **clients) {
            let load = Load { script: Script::Select, protocol, clients };
            for target in gateways() {
                aims.push(Aim {
                    says: format!(
                        "select, {}, {clients} clients, per second, {target} : pgbouncer",
                        name(protocol)
                    ),
                    limit: Limit::AtLeast(share),
                    found: figures.ratio(load, target, &Target::Bouncer, |of| Some(of.per_s)),
                });
            }
        }
    }
    for target in gateways() {
        // The aim is about as many as were asked for; fewer may cost less each, and more.
        let of_it =
            figures.idle.iter().filter(|idle| idle.target == *target && idle.refusal.is_none());
        aims.push(Aim {
            says: format!("kB of an idle client, {target}"),
            limit: Limit::AtMost(IDLE_KB_MAX),
            found: Median::of(of_it.filter_map(Idle::bytes_per_client).map(|each| each / 1_000.0)),
        });
    }
    aims
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::{LOAD, record};
    use super::*;

    const OWN: Target = Target::Tutti { nodes: 1, build: None };

    fn plan() -> Plan {
        Plan {
            seconds: 1,
            rounds: 1,
            clients: vec![1, 8],
            protocols: vec![Protocol::Prepared],
            scripts: vec![Script::Select],
            targets: vec![Target::Direct, Target::Bouncer, OWN],
            idle: 10,
            scale: 1,
            pool: None,
        }
    }

    fn figures(own_per_s: f64) -> Figures {
        let mut figures = Figures::default();
        for (target, per_s) in [(Target::Direct, 200.0), (Target::Bouncer, 100.0), (OWN, own_per_s)]
        {
            figures.records.push(record(1, LOAD, target, per_s));
        }
        figures
    }

    #[test]
    fn a_target_is_compared_with_the_others_but_not_with_itself() {
        let figures = figures(50.0);
        let compared = [&Target::Direct, &Target::Bouncer];
        let line = |target| line(&figures, LOAD, target, &compared).join("|");
        assert_eq!(
            line(&OWN),
            "      8|tutti-1|    50|  1.00 /   2.00|    12|0.25 (0.25-0.25)|0.50 (0.50-0.50)|1.00 (1.00-1.00)|1.00 (1.00-1.00)"
        );
        assert_eq!(
            line(&Target::Direct),
            "      8|direct|   200|  1.00 /   2.00|||2.00 (2.00-2.00)||1.00 (1.00-1.00)"
        );
    }

    #[test]
    fn the_aim_is_pgbouncers_throughput() {
        assert!(aims(&plan(), &figures(100.0)).contains("| met 1.00"));
        assert!(aims(&plan(), &figures(99.0)).contains("| NOT MET 0.99"));
        assert_eq!(aims(&plan(), &Figures::default()), "");
    }

    #[test]
    fn idle_clients_meet_the_aim_only_if_none_was_refused() {
        let with = |opened, refusal: Option<&str>| {
            let mut figures = figures(50.0);
            figures.idle.push(Idle {
                target: OWN,
                asked: 10,
                opened,
                refusal: refusal.map(str::to_owned),
                before_bytes: 1_000_000,
                with_bytes: 1_000_000 + u64::from(opened) * 10_000,
                after_bytes: 1_000_000,
            });
            tables(&plan(), &figures) + &aims(&plan(), &figures)
        };
        assert!(with(10, None).contains("| met 10.00 (10.00-10.00)"));
        let refused = with(4, Some("too many"));
        assert!(refused.contains("tutti-1: no more than 4 of 10: too many\n"), "{refused}");
        assert!(!refused.contains("| met"), "{refused}");
    }
}
