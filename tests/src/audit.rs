//! The auditor at the end of tests.
//!
//! Owns: that every cluster of a test is audited before it is removed, unless the test says why
//! not.
//! Never: judges nodes that are down, or a test that has failed already.
//! Start reading at [`at_the_end`].

use std::thread;

use anyhow::{Context, Result, ensure};
use tutti_gateway::audit::{self, Gateway, Progress, Report};
use tutti_gateway::{Address, Config};

use crate::client::Endpoint;

/// Set (to anything) to see what the auditor costs: nothing is audited.
const OFF: &str = "TUTTI_TESTS_WITHOUT_AUDIT";

/// Audits a cluster, with what the gateway that listens there has in memory, if one does.
pub fn run(config: Config, at: Option<Endpoint>) -> Result<Report> {
    let gateway = match at {
        Some(Endpoint { host, port, .. }) => Gateway::At(Address { host: host.to_string(), port }),
        None => Gateway::Unasked,
    };
    // A thread of its own: a cluster may be dropped inside a runtime.
    let looking = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        anyhow::Ok(runtime.block_on(audit::check(&config, &gateway, &Progress::silent()))?)
    });
    looking.join().ok().context("the auditor panicked")?
}

/// What a cluster is like when its test ends; `None` if that does not matter.
pub fn at_the_end(
    unaudited: Option<&'static str>,
    look: impl FnOnce() -> Result<Report>,
) -> Option<Report> {
    if thread::panicking() || unaudited.is_some() || std::env::var_os(OFF).is_some() {
        return None;
    }
    match look() {
        Ok(report) => Some(report),
        // Servers that a test has killed.
        Err(error) => {
            eprintln!("not audited: {error:#}");
            None
        }
    }
}

/// Fails the test if anything was found.
pub fn insist(audited: Option<Report>) {
    if let Err(error) = judge(audited) {
        panic!("{error}");
    }
}

/// An error if anything was found.
pub fn judge(audited: Option<Report>) -> Result<()> {
    let Some(report) = audited else { return Ok(()) };
    println!("audit: {report}");
    ensure!(report.findings.is_empty(), "the auditor found\n{report}");
    Ok(())
}
