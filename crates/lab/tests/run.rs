//! `tutti-lab run`: every example of docs/lab/examples in its quick form, on real servers.
//!
//! How fast anything is, is not tested. Needs PostgreSQL 15 or newer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tutti_embed::{Cluster, ServerOptions};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab/examples")
}

fn run(file: &Path, out: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tutti-lab"))
        .args(["run", "--quick"])
        .arg(file)
        .arg("--out")
        .arg(out)
        .output()
        .unwrap()
}

/// Runs an example; gives the line of its one run, and what was printed.
fn quick(file: &Path, out: &Path) -> (Value, String) {
    let output = run(file, out);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{complained}");
    let lines = std::fs::read_to_string(out.join("runs.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.contains("throughput-by-second.csv"), "{page}");
    (serde_json::from_str(&lines).unwrap(), printed)
}

/// Every change that was acknowledged was found, and some were; each of these kinds was done.
fn check(line: &Value, kinds: &[&str]) {
    for kind in kinds {
        assert!(0 < line["clients"][kind]["count"].as_u64().unwrap(), "{kind}: {line}");
    }
    assert!(0.0 < line["figures"]["found_acknowledged"].as_f64().unwrap(), "{line}");
    assert_eq!(line["figures"]["told_nothing"], 0.0, "{line}");
}

fn example(name: &str, kinds: &[&str]) -> (Value, String) {
    let out = tempfile::tempdir().unwrap();
    let (line, printed) = quick(&examples().join(name), out.path());
    check(&line, kinds);
    (line, printed)
}

#[test]
fn every_example_has_a_test() {
    let here: BTreeSet<String> = std::fs::read_dir(examples())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let tested = [
        "endpoint.toml",
        "faults.toml",
        "lahman.toml",
        "shop.toml",
        "ssb.toml",
        "tpcc.toml",
        "tpch.toml",
        "tpcw-ordering.toml",
        "tpcw-requests.toml",
        "transfers-one-region.toml",
        "ycsb-open.toml",
        "ycsb.toml",
    ];
    assert_eq!(here, tested.map(str::to_owned).into());
}

/// Servers are killed, a link is silent, clients lose their sessions; the run ends with a check of every transfer, and
/// has figures only if that holds.
#[test]
fn transfers_are_whole_whatever_plug_is_pulled() {
    let out = tempfile::tempdir().unwrap();
    let (line, printed) = quick(&examples().join("faults.toml"), out.path());
    assert!(0.0 < line["figures"]["found_acknowledged"].as_f64().unwrap(), "{line}");
    let all = &line["clients"]["all"];
    assert!(0 < all["failed"]["lost"].as_u64().unwrap(), "{line}");
    // A server that is away for 0.6 s is felt: somebody is told, or waits for it to be back.
    let refused = line["figures"]["told_refused"].as_f64().unwrap();
    assert!(0.0 < refused || 300.0 <= all["max_ms"].as_f64().unwrap(), "{line}");
    assert!(printed.contains("node 2 killed at"), "{printed}");
}

#[test]
fn reads_and_updates_on_a_tutti() {
    let (line, printed) = example("ycsb.toml", &["all", "read", "update"]);
    assert_eq!(line["figures"]["told_refused"], 0.0, "{line}");
    assert!(printed.contains("Tutti, 3 nodes, YCSB A, 2000 records"), "{printed}");
}

#[test]
fn records_read_and_written_at_a_rate_with_a_standby() {
    let (line, _) = example("ycsb-open.toml", &["all", "read", "read-modify-write"]);
    // Not before the answer has come: it is 5 ms away.
    assert!(5.0 <= line["clients"]["read"]["p50_ms"].as_f64().unwrap(), "{line}");
    assert!(line["clients"]["all"]["per_s"].as_f64().unwrap() <= 301.0, "{line}");
}

#[test]
fn a_bookshop_sells() {
    let kinds = ["all", "home", "search-results", "shopping-cart", "registration", "buy-confirm"];
    example("tpcw-ordering.toml", &kinds);
}

/// Each order is a request, and a file that says so runs the same with an instance before each that stays where it is.
#[test]
fn orders_are_requests_that_are_executed_once() {
    let requests = examples().join("tpcw-requests.toml");
    example("tpcw-requests.toml", &["all", "buy-confirm"]);
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(requests).unwrap();
    let after = text.replace("requests = \"each\"", "requests = \"after-sibling\"");
    assert_ne!(after, text);
    let file = dir.path().join("after.toml");
    std::fs::write(&file, after).unwrap();
    let (line, printed) = quick(&file, &dir.path().join("out"));
    assert!(0.0 < line["figures"]["found_acknowledged"].as_f64().unwrap(), "{line}");
    assert!(printed.contains("as requests after pending siblings"), "{printed}");
}

#[test]
fn the_wholesale_suppliers_books_add_up_on_a_tutti() {
    let kinds = ["all", "new-order", "payment", "order-status", "delivery", "stock-level"];
    let (line, printed) = example("tpcc.toml", &kinds);
    let told = |what: &str| line["figures"][what].as_f64().unwrap();
    // Reads and deliveries leave no row of their own.
    assert!(told("found_acknowledged") < told("told_acknowledged"), "{line}");
    assert!(printed.contains("New-Orders per minute"), "{printed}");
}

/// Every answer is the one that is kept with the lab, from three nodes as from one PostgreSQL; each query is asked twice.
fn answered_alike_everywhere(name: &str, queries: &[&str]) {
    let answers = 2.0 * queries.len() as f64;
    let (line, _) = example(name, queries);
    assert_eq!(line["figures"]["found_acknowledged"], answers, "{line}");

    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join(name), dir.path().join("out"));
    let text = std::fs::read_to_string(examples().join(name)).unwrap();
    let text = text.replace("\"tutti\"\nnodes = 3", "\"postgresql\"");
    assert!(text.contains("postgresql\"\n\n[workload]"), "{text}");
    std::fs::write(&file, &text).unwrap();
    let (line, _) = quick(&file, &out);
    check(&line, queries);
    assert_eq!(line["figures"]["found_acknowledged"], answers, "{line}");
}

#[test]
fn a_wholesale_suppliers_questions_are_answered_alike_everywhere() {
    let all: Vec<String> = (1..=22).map(|number| format!("Q{number:02}")).collect();
    let kinds: Vec<&str> = all.iter().map(String::as_str).collect();
    answered_alike_everywhere("tpch.toml", &kinds);
}

#[test]
fn questions_about_a_star_of_tables_are_answered_alike_everywhere() {
    let flights = [(1, 3), (2, 3), (3, 4), (4, 3)];
    let all: Vec<String> = flights
        .iter()
        .flat_map(|(flight, count)| (1..=*count).map(move |query| format!("Q{flight}.{query}")))
        .collect();
    let kinds: Vec<&str> = all.iter().map(String::as_str).collect();
    answered_alike_everywhere("ssb.toml", &kinds);
}

/// Dialect and on every node; generated, and from files.
#[test]
fn records_are_inserted_and_read_back() {
    let kinds = ["all", "batting", "fielding", "pitching"];
    let (line, printed) = example("lahman.toml", &kinds);
    assert!(printed.contains("inserts of 90 records of the Lahman database's shape"), "{printed}");
    // More than there are, so that they begin anew: what was told is what was found, record by record.
    assert_eq!(line["clients"]["all"]["count"], 200, "{line}");
    assert_eq!(line["figures"]["found_acknowledged"], 200.0, "{line}");

    let dir = tempfile::tempdir().unwrap();
    let header = "playerID,yearID,stint,teamID,lgID,G,ERA\n";
    for name in ["Batting", "Fielding", "Pitching"] {
        let path = dir.path().join(name).with_extension("csv");
        let rows = "o'neijo01,1901,1,MLA,NA,,\n\"a, $1\",1902,1,BRO,NL,10.0,2.25\n";
        std::fs::write(path, format!("{header}{rows}")).unwrap();
    }
    let text = std::fs::read_to_string(examples().join("lahman.toml")).unwrap();
    let given = format!("placement = \"replicated\"\ncsv_dir = \"{}\"", dir.path().display());
    let text = text.replace("placement = \"hash\"", &given);
    assert!(text.contains(&given), "{text}");
    let (file, out) = (dir.path().join("lahman.toml"), dir.path().join("out"));
    std::fs::write(&file, &text).unwrap();
    let (line, printed) = quick(&file, &out);
    check(&line, &kinds);
    assert!(printed.contains("records of the Lahman database, replicated"), "{printed}");
    assert_eq!(line["figures"]["found_acknowledged"], 200.0, "{line}");

    std::fs::remove_file(dir.path().join("Fielding.csv")).unwrap();
    let refused = run(&file, &dir.path().join("other"));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("workload.csv_dir") && said.contains("Fielding.csv"), "{said}");
}

/// With commits on all nodes, with nodes that commit one by one, and on one PostgreSQL.
#[test]
fn a_shop_is_looked_at_and_altered() {
    let kinds = ["all", "select", "alter"];
    let (line, printed) = example("shop.toml", &kinds);
    assert!(printed.contains("a shop, BASE, 20 % alters of 10 statements"), "{printed}");
    // Selects leave nothing.
    let figure = |what: &str| line["figures"][what].as_f64().unwrap();
    assert!(figure("found_acknowledged") < figure("told_acknowledged"), "{line}");

    let dir = tempfile::tempdir().unwrap();
    let base = std::fs::read_to_string(examples().join("shop.toml")).unwrap();
    let acid = base.replace("commit = \"base\"", "commit = \"acid\"\ndata = \"json\"");
    assert!(acid != base, "{base}");
    let one = acid.replace("kind = \"tutti\"\nnodes = 3", "kind = \"postgresql\"");
    assert!(one != acid, "{acid}");
    let one = one.replace("data = \"json\"", "data = \"binary\"");
    for (name, text) in [("acid", acid), ("one", one)] {
        let (file, out) = (dir.path().join(format!("{name}.toml")), dir.path().join(name));
        std::fs::write(&file, text).unwrap();
        let (line, _) = quick(&file, &out);
        check(&line, &kinds);
    }
}

#[test]
fn money_over_a_region() {
    let (line, _) = example("transfers-one-region.toml", &["all"]);
    assert_eq!(line["parameters"]["distances"], "one-region", "{line}");
}

/// Records of 1000 characters pass a link whose bandwidth says how long 200 of them need at least, however fast or
/// slow this machine is.
#[test]
fn little_bandwidth_makes_a_run_the_longer() {
    const MBIT: f64 = 1.0;
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("narrow.toml"), dir.path().join("out"));
    let text = format!(
        "title = 'x'\n[system]\nkind = 'postgresql'\n[distances]\nclients_rtt_ms = 0\n\
         bandwidth_mbit = {MBIT}\n[workload]\nkind = 'ycsb'\nmix = 'C'\nrecords = 1000\n\
         [load]\nclients = [4]\ntransactions = 200\n"
    );
    std::fs::write(&file, text).unwrap();
    let (line, _) = quick(&file, &out);
    assert_eq!(line["clients"]["all"]["count"], 200, "{line}");
    let least_s = 200.0 * 1_000.0 * 8.0 / (MBIT * 1e6);
    assert!(least_s <= line["lasted_s"].as_f64().unwrap(), "{line}");
    assert_eq!(line["parameters"]["distances"], "server 0 ms away, 1 Mbit/s", "{line}");
}

#[test]
fn somebodys_endpoint_is_left_as_it_was_and_runs_are_carried_on_with() {
    let cluster = Cluster::create_temp_with(1, ServerOptions::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(examples().join("endpoint.toml")).unwrap();
    let url = "postgres://postgres@127.0.0.1:5432/postgres";
    assert!(text.contains(url), "{text}");
    let text = text.replace(url, &cluster.server(0).url());
    let (file, out) = (dir.path().join("endpoint.toml"), dir.path().join("out"));
    std::fs::write(&file, &text).unwrap();
    let (line, _) = quick(&file, &out);
    check(&line, &["all", "scan", "insert"]);
    // Counted out, and all of it counted.
    assert_eq!(line["clients"]["all"]["count"], 200, "{line}");

    let psql = Command::new("psql")
        .arg(cluster.server(0).url())
        .args(["-Atc", "SELECT count(*) FROM pg_namespace WHERE nspname = 'lab_run'"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&psql.stdout), "0\n", "{psql:?}");

    // What is there is not run again: the server is not needed any more.
    drop(cluster);
    let (again, _) = quick(&file, &out);
    assert_eq!(again, line);
    std::fs::write(&file, text.replace("transactions = 20_000", "transactions = 50")).unwrap();
    let refused = run(&file, &out);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("name another --out"), "{said}");
}

#[test]
fn a_key_that_is_not_known_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.toml");
    let text = std::fs::read_to_string(examples().join("ycsb.toml")).unwrap();
    std::fs::write(&file, text.replace("records =", "recods =")).unwrap();
    let output = run(&file, dir.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("run.toml") && said.contains("`recods`"), "{said}");
}
