//! `tutti-lab bench pool`, as small as it can be: that every target answers and every file is written.
//!
//! How fast anything is, is not tested. Needs PostgreSQL 15 or newer with pgbench, and pgbouncer;
//! where `TUTTI_TESTS_MAY_SKIP` is set, pgbouncer may be missing and is left out.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn every_target_answers() {
    let dir = tempfile::tempdir().unwrap();
    let (json, plot) = (dir.path().join("run.jsonl"), dir.path().join("run.svg"));
    let mut targets = vec!["direct", "tutti-2"];
    let is_there = ["/usr/sbin", "/usr/local/sbin"]
        .map(Path::new)
        .iter()
        .any(|dir| dir.join("pgbouncer").is_file())
        || Command::new("pgbouncer").arg("--version").output().is_ok();
    if is_there || std::env::var_os("TUTTI_TESTS_MAY_SKIP").is_none() {
        targets.push("pgbouncer");
    } else {
        eprintln!("left out: pgbouncer is not installed");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_tutti-lab"))
        .args([
            "bench",
            "pool",
            "--seconds",
            "1",
            "--rounds",
            "1",
            "--clients",
            "1",
            "--scale",
            "1",
        ])
        .args(["--protocols", "prepared", "--scripts", "select,tpcb-local", "--idle", "3"])
        .args(["--targets", &targets.join(",")])
        .arg("--json")
        .arg(&json)
        .arg("--plot")
        .arg(&plot)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("== select, prepared"), "{printed}");

    let lines: Vec<Value> = std::fs::read_to_string(&json)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for target in targets {
        let of = |kind: &str| {
            lines.iter().filter(|line| line["kind"] == kind && line["target"] == target).count()
        };
        assert_eq!(of("load"), 2, "{target}: {lines:?}");
        // PostgreSQL itself has a process for each client, and none to watch.
        assert_eq!(of("idle"), usize::from(target != "direct"), "{target}: {lines:?}");
    }
    for line in &lines {
        match line["kind"].as_str() {
            Some("load") => {
                assert!(
                    line["processed"].as_u64().is_some_and(|processed| 0 < processed),
                    "{line}"
                );
                assert_eq!(line["failed"], 0, "{line}");
            }
            Some("idle") => assert_eq!(line["opened"], 3, "{line}"),
            _ => panic!("what is this: {line}"),
        }
    }
    assert!(std::fs::read_to_string(&plot).unwrap().starts_with("<svg"));
}
