//! `tutti check`: the auditor's command line.
//!
//! Owns: where the gateway is asked, how the report is printed, the exit status. Never: audits
//! itself.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use tutti_gateway::audit::{self, Gateway, Progress, Report};
use tutti_gateway::{Address, Config};

use crate::CheckArgs;
use crate::operate;
use crate::up;

/// Something was found.
const FOUND: u8 = 1;
/// Nothing was found, but not everything could be checked.
pub(crate) const NOT_CHECKED: u8 = 2;

/// Audits, and prints what was found.
pub(crate) async fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let CheckArgs { cluster, gateway, json } = args;
    let (config, listens) = match cluster.config {
        Some(path) => {
            let config = operate::read_config(&path)?;
            let listens = config.listen.clone();
            (config, listens)
        }
        None => (up::config_of_directory(cluster.data)?, Config::default().listen),
    };
    let listens = gateway.unwrap_or(listens);
    let place = address(&listens).with_context(|| format!("{listens:?} is not HOST:PORT"))?;
    // A line that is overwritten, for interactive use only.
    let shows = std::io::stderr().is_terminal();
    let progress = Progress::to(|what| {
        if shows {
            let _ = write!(std::io::stderr(), "\r\x1b[K{what}");
        }
    });
    let looked = audit::check(&config, &Gateway::At(place), &progress).await;
    if shows {
        eprint!("\r\x1b[K");
    }
    let report = looked.context("cannot look at the nodes")?;
    match json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => println!("{report}"),
    }
    Ok(status_of(&report))
}

fn status_of(report: &Report) -> ExitCode {
    match (report.findings.is_empty(), report.unchecked.is_empty()) {
        (false, _) => ExitCode::from(FOUND),
        (true, false) => ExitCode::from(NOT_CHECKED),
        (true, true) => ExitCode::SUCCESS,
    }
}

/// A gateway that listens on all addresses listens on this one.
fn address(listens: &str) -> Option<Address> {
    let (host, port) = listens.rsplit_once(':')?;
    let host = match host.trim_start_matches('[').trim_end_matches(']') {
        "" | "0.0.0.0" | "*" => "127.0.0.1",
        "::" => "::1",
        host => host,
    };
    Some(Address { host: host.to_owned(), port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_everywhere_is_asked_here() {
        let shown = |text| address(text).map(|it| it.to_string());
        assert_eq!(shown("0.0.0.0:7432").as_deref(), Some("127.0.0.1:7432"));
        assert_eq!(shown("[::]:7432").as_deref(), Some("[::1]:7432"));
        assert_eq!(shown("db:1").as_deref(), Some("db:1"));
        assert_eq!(shown("db"), None);
    }
}
