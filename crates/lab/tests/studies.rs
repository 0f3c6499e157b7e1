//! The studies in their quick forms, as people run them.
//!
//! Owns: that each runs to its end on servers of its own, says what it found, and leaves a page with the data
//! behind its plots. Never: judges a figure, for a machine may be busy; but that no sum is wrong.

use std::path::Path;
use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tutti-lab")).args(arguments).output().unwrap()
}

/// Runs a study into a directory and gives what it printed.
fn study(dir: &Path, arguments: &[&str]) -> String {
    let dir = dir.to_str().unwrap();
    let output = lab(&[arguments, &["--quick", "--out", dir]].concat());
    let (said, failed) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {said}\n{failed}");
    said.into_owned()
}

/// The page, which needs nothing else: no address in it is fetched.
fn page(dir: &Path) -> String {
    let page = std::fs::read_to_string(dir.join("index.html")).unwrap();
    assert!(!page.contains("src=\"http") && !page.contains("@import"), "it fetches something");
    page
}

#[test]
fn no_sum_is_wrong_while_money_moves() {
    let dir = tempfile::tempdir().unwrap();
    let said = study(dir.path(), &["transfer", "--nodes", "2"]);
    assert!(said.contains("every sum of all accounts was all the money there is"), "{said}");
    let page = page(dir.path());
    assert!(page.contains("<svg") && page.contains("data:text/csv;base64,"));
    assert!(dir.path().join("wrong-sums.csv").is_file());
    // The same again is there already; and a directory is compared with itself.
    let again = study(dir.path(), &["transfer", "--nodes", "2"]);
    assert!(again.contains("every sum"), "{again}");
    let dir = dir.path().to_str().unwrap();
    let compared = lab(&["report", dir, dir]);
    let compared = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert!(compared.contains("Of 4 of 4 figures it is not known"), "{compared}");
    assert!(compared.contains("| not known "), "{compared}");
    // Another configuration is another directory's.
    let other = lab(&["transfer", "--nodes", "2", "--writers", "3", "--quick", "--out", dir]);
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && said.contains("with writers 8, not 3"), "{said}");
    assert!(said.contains("name another --out"), "{said}");
}

/// A copy of a directory of runs that is shipped.
fn shipped(name: &str) -> tempfile::TempDir {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab/runs").join(name);
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(runs.join("runs.jsonl"), dir.path().join("runs.jsonl")).unwrap();
    dir
}

/// All of these are refused, or carried on with, before any server is started.
#[test]
fn shipped_runs_are_carried_on_with_by_their_own_command_alone() {
    let thesis = shipped("thesis");
    let out = thesis.path().to_str().unwrap();
    let before = std::fs::read(thesis.path().join("runs.jsonl")).unwrap();
    for (options, said) in [
        (
            &["--rtt-ms", "5", "--selects", "100"][..],
            "with rtt_ms 0.0, not 5.0, with selects 4800, not 100",
        ),
        // A kind of run that is not there yet would stand beside the others.
        (&["-n", "3", "-s", "0.3", "--shoppers", "20"], "with shoppers 400, not 20"),
    ] {
        let refused = lab(&[&["thesis", "--out", out][..], options].concat());
        let why = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && why.contains(said), "{why}");
        assert!(why.contains("name another --out"), "{why}");
    }
    let same = lab(&["thesis", "--out", out]);
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stderr));
    assert_eq!(std::fs::read(thesis.path().join("runs.jsonl")).unwrap(), before);

    // These do not say for how many seconds each run was.
    for study in ["price", "scale", "transfer"] {
        let dir = shipped(study);
        let out = dir.path().to_str().unwrap();
        let refused = lab(&[study, "--out", out]);
        let why = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && why.contains("does not say its seconds"), "{why}");
        let report = lab(&["report", out]);
        assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
        assert!(page(dir.path()).contains("</html>"));
    }
}

#[test]
fn an_interrupt_is_heard_while_servers_are_made_and_nothing_is_left() {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    let dir = tempfile::tempdir().unwrap();
    // The servers' account passes through.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let made = || std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.path());
    let child = Command::new(env!("CARGO_BIN_EXE_tutti-lab"))
        .args(["transfer", "--nodes", "5", "--quick"])
        .env("TMPDIR", dir.path())
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !made().any(|it| it.join("node1").exists()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("interrupted before the first run had ended"), "{said}");
    assert_eq!(made().count(), 0, "{:?}", made().collect::<Vec<_>>());
}

#[test]
fn every_record_is_there_however_far_its_node_is() {
    let dir = tempfile::tempdir().unwrap();
    let said = study(dir.path(), &["cost", "--records", "45"]);
    assert!(said.contains("IsMultiContinent[T.True]"), "{said}");
    assert!(page(dir.path()).contains("every record was read back"));
    // Its runs are a spreadsheet that the model reads.
    let runs = dir.path().join("runs.csv");
    let fitted = lab(&["fit", runs.to_str().unwrap()]);
    assert!(fitted.status.success(), "{}", String::from_utf8_lossy(&fitted.stderr));
}

#[test]
fn throughput_by_nodes_is_beside_what_was_published() {
    let dir = tempfile::tempdir().unwrap();
    let said = study(dir.path(), &["scale"]);
    assert!(said.contains("Postgres-XC (published)") && said.contains("0.710"), "{said}");
    assert!(page(dir.path()).contains("Throughput by number of nodes"));
}

#[test]
fn two_phase_commit_is_set_beside_none_as_published() {
    let dir = tempfile::tempdir().unwrap();
    let said = study(dir.path(), &["thesis"]);
    assert!(said.contains("2 nodes, BASE") && said.contains("604"), "{said}");
    assert!(said.contains("With 2 nodes ACID grows"), "{said}");
    let page = page(dir.path());
    assert!(page.contains("Queries per second by the time between alters"));
    assert!(page.contains("in the end all nodes had the same rows"), "it was not checked");
    for run in ["1-nodes--one--sleep-0-5-s--1", "2-nodes--base--sleep-0-1-s--1"] {
        assert!(dir.path().join(format!("over-time-{run}.csv")).is_file(), "{run}");
    }
    // One run, as the thesis calls its program.
    let dir = tempfile::tempdir().unwrap();
    let called = "thesis -st 2 -at 2 -n 2 -s 0.2 --tpc --data json --data-bytes 200 --rtt-ms 1";
    let said = study(dir.path(), &called.split(' ').collect::<Vec<_>>());
    assert!(said.contains("240 selects by 2 threads") && said.contains("2 nodes, ACID"), "{said}");
}

#[test]
fn round_trips_and_flushes_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let said = study(dir.path(), &["price", "--guarantees", "one,standby,global"]);
    let page = page(dir.path());
    assert!(page.contains("Median time of a transaction by distance"));
    // A transaction of four statements, each of which waits for its answer.
    let one = said.lines().find(|line| line.contains("one PostgreSQL") && line.contains("| 5 "));
    let trips: f64 = one.unwrap().split('|').nth(6).unwrap().trim().parse().unwrap();
    assert!((4.0..4.6).contains(&trips), "{said}");
}

#[test]
fn what_is_not_there_is_said() {
    let output = lab(&["report", "/nowhere"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("/nowhere has no runs"), "{said}");
}
