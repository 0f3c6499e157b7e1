//! What one node runs and commits by itself, and its connection is lost: it is unknown whether it was
//! committed, and the client is told just that. For what only reads, or is in a transaction that is not
//! committed yet, an error is reported.
//!
//! Owns: statements of every kind, by both protocols, where node 1 has all tables and where it has not.

use std::time::Duration;

use anyhow::{Context, ensure};
use tutti_gateway::{DefaultDistribution, Switches};
use tutti_tests::client::Client;
use tutti_tests::conversation;
use tutti_tests::gateway::{self, TestCluster};
use tutti_tests::servers;

use super::proxy::{Proxy, Rule, When};
use super::support::*;

/// A statement, in the language of conversations. `#` stands for a number that no other case has; the connection
/// is cut at the message in which it stands.
struct Case {
    /// What the session has said before.
    before: &'static str,
    said: &'static str,
    /// Counts what is there of it.
    look: &'static str,
}

const fn case(said: &'static str) -> Case {
    Case { before: "", said, look: "SELECT count(*) FROM home WHERE k = #" }
}

const fn behind(before: &'static str, said: &'static str) -> Case {
    Case { before, ..case(said) }
}

/// What its node commits by itself.
static ALONE: [Case; 14] = [
    case("Q INSERT INTO home VALUES (#)"),
    case("Q INSERT INTO home VALUES (#) RETURNING k"),
    case("Q WITH x AS (INSERT INTO home VALUES (#) RETURNING k) SELECT * FROM x"),
    case("Q EXPLAIN ANALYZE INSERT INTO home VALUES (#)"),
    case("Q COPY home FROM STDIN\nd #\nc"),
    case("Q COPY (INSERT INTO home VALUES (#) RETURNING k) TO STDOUT"),
    case("P |INSERT INTO home VALUES (#)\nB |\nE |0\nS"),
    case("P |INSERT INTO home VALUES ($1)\nB ||#\nE |0\nS"),
    case("P |INSERT INTO home VALUES (#) RETURNING k\nB p|\nE p|5\nS"),
    case("P |INSERT INTO home VALUES (#)\nB |\nE |0\nP |SELECT 1\nB |\nE |0\nS"),
    behind("Q PREPARE p (int) AS INSERT INTO home VALUES ($1)", "Q EXECUTE p (#)"),
    // The first time it goes the long way.
    behind("P s|INSERT INTO home VALUES ($1)\nB |s|0\nE |0\nS", "B |s|#\nE |0\nS"),
    behind(
        "Q BEGIN\n--\nQ INSERT INTO home VALUES (#)\n--\nQ PREPARE TRANSACTION 'g#'",
        "Q COMMIT PREPARED 'g#'",
    ),
    Case {
        look: "SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'h#'",
        ..behind("Q BEGIN\n--\nQ INSERT INTO home VALUES (0)", "Q PREPARE TRANSACTION 'h#'")
    },
];

/// The same, where node 1 has all tables.
static ALONE_AT_HOME: [Case; 5] = [
    case("Q SELECT f(#)"),
    case("P |SELECT f($1)\nB ||#\nE |0\nS"),
    // The text does not say that it writes, and the view has not been read.
    behind("Q CREATE VIEW v# AS SELECT f(#) AS written", "Q SELECT written FROM v#"),
    case("Q CALL p(#)"),
    case("Q DO 'BEGIN INSERT INTO home VALUES (#); END'"),
];

/// The same, when the schema has been read: the view's query writes.
static ALONE_BY_VIEW: [Case; 2] = [
    behind("Q SET a.k = '#'", "Q SELECT written, # FROM writes"),
    behind(
        "Q SET a.k = '0'\n--\nP s|SELECT written, $1 FROM writes\nB |s|0\nE |0\nS\n--\nQ SET a.k = '#'",
        "B |s|#\nE |0\nS",
    ),
];

/// The same, on the node of a key.
static ALONE_BY_KEY: [Case; 3] = [
    Case {
        look: "SELECT count(*) FROM spread WHERE k = #",
        ..case("Q INSERT INTO spread VALUES (#)")
    },
    Case {
        look: "SELECT count(*) FROM spread WHERE k = #",
        ..case("P |INSERT INTO spread VALUES ($1) RETURNING k\nB ||#\nE |0\nS")
    },
    Case {
        look: "SELECT count(*) FROM spread WHERE k = #",
        ..behind("P s|INSERT INTO spread VALUES ($1)\nB |s|0\nE |0\nS", "B |s|#\nE |0\nS")
    },
];

/// What surely has changed nothing.
static NOTHING: [Case; 9] = [
    case("Q SELECT # AS a"),
    case("Q SELECT count(*) FROM home WHERE k = #"),
    case("P |SELECT k FROM home WHERE k = $1\nB ||#\nE |0\nS"),
    behind("P s|SELECT k FROM home WHERE k = $1\nB |s|0\nE |0\nS", "B |s|#\nE |0\nS"),
    case("Q COPY (SELECT k FROM home WHERE k = #) TO STDOUT"),
    behind("Q BEGIN", "Q INSERT INTO home VALUES (#)"),
    behind("Q BEGIN", "P |INSERT INTO home VALUES ($1)\nB ||#\nE |0\nS"),
    behind("Q BEGIN", "Q COPY home FROM STDIN\nd #\nc"),
    case("Q INSERT INTO home VALUES (#); SELECT 1"),
];

/// Where it is unknown whether there is anything: the answer that is cut off comes before the Sync.
static EITHER: [Case; 1] = [case("P |COPY home FROM STDIN\nB |\nE |0\nd #\nc\nS")];

/// How long the schema must be unchanged before it is read where node 1 has all of it; and a little more.
const LEISURE: Duration = Duration::from_secs(3);

fn lose(default: DefaultDistribution, more: &[Case], by_view: &[Case]) -> Result {
    let servers = servers::durable(2)?;
    let mut config = gateway::config(&servers, String::new());
    config.switches = Switches::default();
    config.default_distribution = default;
    let proxies = config.nodes.iter_mut().map(Proxy::before).collect::<Result<Vec<_>>>()?;
    let cluster = TestCluster::start_configured(servers, config)?;
    let gateway = cluster.endpoint();
    let mut maker = Client::connect(&gateway)?;
    for statement in [
        "CREATE TABLE home (k int) DISTRIBUTE BY HOME",
        "CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO home VALUES ($1); RETURN 1; END'",
        "CREATE PROCEDURE p(int) LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO home VALUES ($1); COMMIT; END'",
        "CREATE VIEW writes AS SELECT f(current_setting('a.k')::int) AS written",
    ] {
        maker.query(statement)?;
    }
    if default == DefaultDistribution::Replicated {
        maker.query("CREATE TABLE spread (k int) DISTRIBUTE BY HASH (k)")?;
    }
    let alone = ALONE.iter().chain(more).chain(by_view);
    let cases = alone.chain(&EITHER).chain(&NOTHING);
    let mut number = 770_000;
    let mut wrong = Vec::new();
    for case in cases {
        let is_either = EITHER.iter().any(|of| std::ptr::eq(of, case));
        let may_be_committed = !NOTHING.iter().any(|of| std::ptr::eq(of, case));
        if by_view.first().is_some_and(|first| std::ptr::eq(first, case)) {
            std::thread::sleep(LEISURE);
            maker.query("SELECT 1")?;
            std::thread::sleep(LEISURE);
        }
        for when in [When::After, When::Before] {
            number += 1;
            let mark: &'static str = Box::leak(number.to_string().into_boxed_str());
            let text = |of: &str| of.replace('#', mark);
            let said = text(case.said);
            let mut client = eventually("a session", || Client::connect(&gateway))?;
            let before = conversation::hold(&mut client, &text(case.before))?;
            ensure!(!before.iter().any(|line| line.starts_with("Error")), "{said}: {before:?}");
            for proxy in &proxies {
                proxy.set(Some(Rule { text: mark, when, then_away: false }));
            }
            let told = conversation::hold(&mut client, &said).with_context(|| said.clone())?;
            eventually("it is cut", || {
                ensure!(proxies.iter().any(Proxy::has_cut), "{said}: nothing was cut, {told:?}");
                Ok(())
            })?;
            proxies.iter().for_each(|proxy| proxy.set(None));
            // The session goes on, unless it cannot know what it has lost with the connection.
            if let Ok(after) = conversation::hold(&mut client, "Q ROLLBACK\n--\nQ SELECT 1") {
                ensure!(after.contains(&"DataRow 1".to_owned()), "{said}: {after:?}");
            }
            let look = text(case.look);
            let there = eventually("it is looked at", || Client::connect(&gateway)?.value(&look))?;
            if case.look.contains("pg_prepared_xacts") && there == "1" {
                Client::connect(&gateway)?.query(&text("ROLLBACK PREPARED 'h#'"))?;
            }
            let errors: Vec<_> =
                told.iter().filter_map(|line| line.strip_prefix("Error ")).collect();
            let expected = if may_be_committed { "08007" } else { "08006" };
            let is_committed = may_be_committed && when == When::After;
            let is_as_told = is_either || (there == "1") == is_committed;
            if errors != [expected] || !is_as_told {
                wrong.push(format!("{said}, cut {when:?}: told {errors:?}, {there} there"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn what_one_node_commits_by_itself_is_told_as_unknown() -> Result {
    lose(DefaultDistribution::Replicated, &ALONE_BY_KEY, &[])
}

#[test]
fn what_node_1_commits_by_itself_is_told_as_unknown() -> Result {
    lose(DefaultDistribution::Home, &ALONE_AT_HOME, &ALONE_BY_VIEW)
}

/// A client's own PREPARE TRANSACTION that may have been done keeps its locks: the error names it.
#[test]
fn a_lost_prepare_transaction_is_named() -> Result {
    let servers = servers::durable(2)?;
    let mut config = gateway::config(&servers, String::new());
    let proxy = Proxy::before(&mut config.nodes[0])?;
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE home (k int) DISTRIBUTE BY HOME")?;
    client.query("BEGIN; INSERT INTO home VALUES (1)")?;
    proxy.set(Some(Rule {
        text: "PREPARE TRANSACTION 'mine'",
        when: When::After,
        then_away: false,
    }));
    let answer = client.simple("PREPARE TRANSACTION 'mine'", &[])?;
    let error = answer.error().context("its answer was cut off")?;
    let detail = error.get(b'D').unwrap_or_default();
    ensure!(error.sqlstate() == "08007" && detail.contains("\"mine\""), "{error:?}");
    ensure!(answer.status == b'I', "{answer}");
    client.query("COMMIT PREPARED 'mine'")?;
    ensure!(client.value("SELECT count(*) FROM home")? == "1");
    Ok(())
}
