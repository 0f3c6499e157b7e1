//! CREATE INDEX CONCURRENTLY and DROP INDEX CONCURRENTLY of tables that several nodes have.
//!
//! Owns: what each node has of an index when the statement has ended, well or not, and that writers go on meanwhile.
//! Never: asks what a single server does with the words; `answers::home` does.
//! Start reading at [`an_index_is_on_every_node`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use tutti_gateway::{Config, DefaultDistribution, Switches};
use tutti_tests::agreement::differing_copies;
use tutti_tests::client::Client;
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

/// The indexes that a node has of tables of users, and whether they are valid.
const INDEXES: &str = "SELECT coalesce(string_agg(concat_ws(' ', x.relname, i.indisvalid), ', ' ORDER BY x.relname), '')
    FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_namespace n ON n.oid = x.relnamespace
    WHERE n.nspname = 'public'";

fn start(default_distribution: DefaultDistribution) -> Result<TestCluster> {
    let servers = servers::start(2)?;
    let switches = Switches::default();
    let config = Config { default_distribution, switches, ..config(&servers, String::new()) };
    TestCluster::start_configured(servers, config)
}

fn run(client: &mut Client, statements: &[&str]) -> Result<()> {
    for sql in statements {
        client.query(sql)?;
    }
    Ok(())
}

fn indexes(cluster: &TestCluster) -> Result<Vec<String>> {
    cluster.nodes().iter().map(|node| Client::connect(node)?.value(INDEXES)).collect()
}

/// SQLSTATE, message, detail and hint.
fn refusal(client: &mut Client, sql: &str) -> Result<String> {
    let answer = client.simple(sql, b"")?;
    let Some(error) = answer.error() else { anyhow::bail!("{sql} succeeded: {answer}") };
    let more = |code| error.get(code).unwrap_or_default().to_owned();
    Ok(format!("{} {}\n{}\n{}", error.sqlstate(), error.message(), more(b'D'), more(b'H')))
}

const TABLES: [&str; 4] = [
    "CREATE TABLE spread (id int, v int, w text) DISTRIBUTE BY HASH (id)",
    "INSERT INTO spread SELECT g, g, 'w' || g FROM generate_series(1, 200) g",
    "CREATE TABLE everywhere (id int, v int) DISTRIBUTE BY REPLICATED",
    "INSERT INTO everywhere SELECT g, g FROM generate_series(1, 200) g",
];

#[test]
fn an_index_is_on_every_node() -> Result<()> {
    for default in [DefaultDistribution::Home, DefaultDistribution::Replicated] {
        let mut cluster = start(default)?;
        let mut client = Client::connect(&cluster.endpoint())?;
        run(&mut client, &TABLES)?;
        let both = |expected: &str| -> Result<()> {
            let found = indexes(&cluster)?;
            ensure!(found == [expected, expected], "{found:?} and not {expected}");
            Ok(())
        };
        run(&mut client, &["CREATE INDEX CONCURRENTLY spread_v ON spread (v)"])?;
        both("spread_v t")?;
        ensure!(
            refusal(&mut client, "CREATE INDEX CONCURRENTLY spread_v ON spread (w)")?
                .starts_with("42P07")
        );
        run(&mut client, &["CREATE INDEX CONCURRENTLY IF NOT EXISTS spread_v ON spread (w)"])?;
        both("spread_v t")?;
        // One that has no name gets the one that PostgreSQL would give it, if all nodes have it free.
        run(
            &mut client,
            &[
                "CREATE INDEX CONCURRENTLY ON spread (v, lower(w), (v + 1)) INCLUDE (id) WHERE v > 5",
                "CREATE INDEX CONCURRENTLY ON spread (v, lower(w), (v + 1)) INCLUDE (id)",
            ],
        )?;
        both("spread_v t, spread_v_lower_expr_id_idx t, spread_v_lower_expr_id_idx1 t")?;
        run(
            &mut client,
            &[
                "DROP INDEX CONCURRENTLY spread_v_lower_expr_id_idx",
                "DROP INDEX CONCURRENTLY IF EXISTS public.spread_v_lower_expr_id_idx1",
                "DROP INDEX CONCURRENTLY IF EXISTS nosuch",
            ],
        )?;
        both("spread_v t")?;
        ensure!(refusal(&mut client, "DROP INDEX CONCURRENTLY nosuch")?.starts_with("42704"));
        // Unique where that can be said.
        run(&mut client, &["CREATE UNIQUE INDEX CONCURRENTLY spread_id ON spread (v, id)"])?;
        run(&mut client, &["CREATE UNIQUE INDEX CONCURRENTLY everywhere_v ON everywhere (v)"])?;
        both("everywhere_v t, spread_id t, spread_v t")?;
        let told = refusal(&mut client, "CREATE UNIQUE INDEX CONCURRENTLY bad ON spread (v)")?;
        ensure!(told.starts_with("0A000") && told.contains("\"id\""), "{told}");
        ensure!(refusal(&mut client, "INSERT INTO everywhere VALUES (0, 7)")?.starts_with("23505"));
        run(
            &mut client,
            &[
                "INSERT INTO everywhere VALUES (7, 7) ON CONFLICT (v) DO UPDATE SET id = excluded.id + 1",
                "INSERT INTO spread VALUES (7, 7, 'new') ON CONFLICT (id, v) DO UPDATE SET w = excluded.w",
            ],
        )?;
        ensure!(client.value("SELECT w FROM spread WHERE id = 7")? == "new");
        // Outside of a transaction block.
        for sql in
            ["CREATE INDEX CONCURRENTLY more ON spread (w)", "DROP INDEX CONCURRENTLY spread_v"]
        {
            client.query("BEGIN")?;
            ensure!(refusal(&mut client, sql)?.starts_with("25001"));
            client.query("ROLLBACK")?;
            let two = format!("SELECT 1; {sql}");
            ensure!(refusal(&mut client, &two)?.starts_with("25001"), "{two}");
        }
        both("everywhere_v t, spread_id t, spread_v t")?;
        ensure!(differing_copies(&cluster.nodes())?.is_empty());
        cluster.stop_gateway()?;
    }
    Ok(())
}

/// By roles that are no superusers, which other nodes let change nothing without a warrant; and no further statement.
#[test]
fn the_owner_may_and_another_may_not() -> Result<()> {
    let mut cluster = start(DefaultDistribution::Home)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &TABLES)?;
    run(
        &mut client,
        &[
            "CREATE ROLE owns LOGIN",
            "CREATE ROLE other LOGIN",
            "GRANT CREATE ON SCHEMA public TO owns, other",
            "ALTER TABLE spread OWNER TO owns",
            "ALTER TABLE everywhere OWNER TO owns",
        ],
    )?;
    let mut owner = Client::connect_as(&cluster.endpoint(), "owns")?;
    let mut other = Client::connect_as(&cluster.endpoint(), "other")?;
    run(
        &mut owner,
        &[
            "CREATE INDEX CONCURRENTLY a ON spread (v)",
            "CREATE INDEX CONCURRENTLY b ON everywhere (v)",
            "CREATE INDEX CONCURRENTLY ON everywhere (id)",
        ],
    )?;
    ensure!(refusal(&mut other, "CREATE INDEX CONCURRENTLY c ON spread (v)")?.starts_with("42501"));
    ensure!(refusal(&mut other, "DROP INDEX CONCURRENTLY a")?.starts_with("42501"));
    ensure!(indexes(&cluster)? == vec!["a t, b t, everywhere_id_idx t"; 2]);
    run(&mut owner, &["DROP INDEX CONCURRENTLY a", "REINDEX INDEX CONCURRENTLY b"])?;
    ensure!(indexes(&cluster)? == vec!["b t, everywhere_id_idx t"; 2]);
    // What has failed leaves no warrant.
    let node =
        Client::connect(&cluster.nodes()[1])?.value("SELECT count(*) FROM tutti.lone_warrant")?;
    ensure!(node == "0", "{node} warrants are left");
    cluster.stop_gateway()
}

/// Rows of one node alone contradict: the client learns where it stands, and can go on or back.
#[test]
fn what_one_node_refuses_can_be_completed_or_undone() -> Result<()> {
    let mut cluster = start(DefaultDistribution::Home)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &TABLES)?;
    let mut node2 = Client::connect(&cluster.nodes()[1])?;
    let id = node2.value("SELECT min(id) FROM spread")?;
    run(&mut client, &[&format!("INSERT INTO spread VALUES ({id}, {id}, 'again')")])?;
    let create = "CREATE UNIQUE INDEX CONCURRENTLY u ON spread (id)";
    let told = refusal(&mut client, create)?;
    ensure!(
        told.starts_with("23505")
            && told.contains("complete on n1; on n2")
            && told.contains("IF NOT EXISTS"),
        "{told}"
    );
    ensure!(indexes(&cluster)? == ["u t", "u f"]);
    // Nobody relies on it: the statement is refused by the node that has it not.
    let upsert = format!("INSERT INTO spread VALUES ({id}, 0, 'up') ON CONFLICT (id) DO NOTHING");
    ensure!(refusal(&mut client, &upsert)?.starts_with("42P10"));
    run(&mut client, &[&format!("DELETE FROM spread WHERE id = {id} AND w = 'again'")])?;
    run(&mut client, &["CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS u ON spread (id)"])?;
    ensure!(indexes(&cluster)? == ["u t", "u t"]);
    client.query(&upsert)?;
    run(&mut client, &["DROP INDEX CONCURRENTLY u"])?;
    // And undone.
    run(&mut client, &[&format!("INSERT INTO spread VALUES ({id}, {id}, 'again')")])?;
    ensure!(refusal(&mut client, create)?.starts_with("23505"));
    run(&mut client, &["DROP INDEX CONCURRENTLY IF EXISTS u"])?;
    ensure!(indexes(&cluster)? == ["", ""]);
    // On node 1 alone, it is as on one PostgreSQL.
    let id = Client::connect(&cluster.nodes()[0])?.value("SELECT min(id) FROM spread")?;
    run(&mut client, &[&format!("INSERT INTO spread VALUES ({id}, {id}, 'again')")])?;
    ensure!(refusal(&mut client, create)?.starts_with("23505"));
    ensure!(indexes(&cluster)? == ["u f", ""]);
    run(&mut client, &["CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS u ON spread (id)"])?;
    ensure!(indexes(&cluster)? == ["u f", ""]);
    run(&mut client, &["DROP INDEX CONCURRENTLY u"])?;
    ensure!(indexes(&cluster)? == ["", ""]);
    cluster.stop_gateway()
}

/// Writers of one row, of rows of both nodes, and of copies go on while indexes come and go; nothing hangs.
#[test]
fn writers_go_on_meanwhile() -> Result<()> {
    let mut cluster = start(DefaultDistribution::Home)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &TABLES)?;
    let ends = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..4_u64)
        .map(|number| {
            let (endpoint, ends, written) = (cluster.endpoint(), ends.clone(), written.clone());
            thread::spawn(move || -> Result<()> {
                let mut client = Client::connect(&endpoint)?;
                let mut round = number * 1_000_000;
                while !ends.load(Ordering::SeqCst) {
                    round += 1;
                    let level = if number == 3 { "SERIALIZABLE" } else { "READ COMMITTED" };
                    let sql = format!(
                        "BEGIN ISOLATION LEVEL {level}; INSERT INTO spread VALUES ({0}, {0}, 'n'), ({0} + 500000, {0}, 'n');
                         UPDATE spread SET w = 'm' WHERE id IN ({0}, {1});
                         INSERT INTO everywhere VALUES ({0} + 1000, {0} + 1000); COMMIT",
                        round,
                        1 + round % 200
                    );
                    let answer = client.simple(&sql, b"")?;
                    match answer.error().map(|error| error.sqlstate().to_owned()).as_deref() {
                        None => drop(written.fetch_add(1, Ordering::SeqCst)),
                        Some("40001" | "40P01") => drop(client.simple("ROLLBACK", b"")?),
                        Some(_) => anyhow::bail!("{answer}"),
                    }
                }
                Ok(())
            })
        })
        .collect();
    for round in 0..3 {
        run(
            &mut client,
            &[
                "SET statement_timeout = '60s'",
                "CREATE INDEX CONCURRENTLY sv ON spread (v)",
                "CREATE UNIQUE INDEX CONCURRENTLY ev ON everywhere (v)",
                "REINDEX INDEX CONCURRENTLY sv",
                "DROP INDEX CONCURRENTLY sv",
                "DROP INDEX CONCURRENTLY ev",
            ],
        )?;
        let so_far = written.load(Ordering::SeqCst);
        ensure!(so_far > 0, "nothing was written in round {round}");
    }
    run(&mut client, &["CREATE UNIQUE INDEX CONCURRENTLY ev ON everywhere (v)"])?;
    ends.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.join().expect("a writer does not panic")?;
    }
    ensure!(indexes(&cluster)? == vec!["ev t"; 2]);
    let differing = differing_copies(&cluster.nodes())?;
    ensure!(differing.is_empty(), "{differing:?}");
    cluster.stop_gateway()
}

/// A cancel request reaches the node that is at work.
#[test]
fn it_can_be_cancelled() -> Result<()> {
    let mut cluster = start(DefaultDistribution::Home)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &TABLES)?;
    // Each node waits for this one, which holds the table there alone.
    let mut holder = Client::connect(&cluster.nodes()[1])?;
    run(&mut holder, &["BEGIN", "LOCK TABLE spread IN ROW EXCLUSIVE MODE"])?;
    let endpoint = cluster.endpoint();
    let told = thread::spawn(move || -> Result<String> {
        let mut client = Client::connect(&endpoint)?;
        client.query("SET statement_timeout = '3s'")?;
        refusal(&mut client, "CREATE INDEX CONCURRENTLY c ON spread (v)")
    });
    thread::sleep(Duration::from_secs(1));
    // Writers are not kept.
    run(&mut client, &["INSERT INTO spread SELECT g, g FROM generate_series(1000, 1100) g"])?;
    let told = told.join().expect("it does not panic")?;
    ensure!(told.starts_with("57014") && told.contains("complete on n1; on n2"), "{told}");
    ensure!(indexes(&cluster)? == ["c t", "c f"]);
    run(&mut holder, &["COMMIT"])?;
    run(&mut client, &["CREATE INDEX CONCURRENTLY IF NOT EXISTS c ON spread (v)"])?;
    ensure!(indexes(&cluster)? == vec!["c t"; 2]);
    cluster.stop_gateway()
}

/// Another session changes the schema without end, and waits for a while before each commit.
fn change(cluster: &TestCluster, statements: &[&str], is_over: &AtomicBool) -> Result<u32> {
    let mut client = Client::connect(&cluster.endpoint())?;
    let mut times = 0;
    while !is_over.load(Ordering::SeqCst) {
        for sql in statements {
            client.simple(sql, b"")?;
        }
        times += 1;
    }
    Ok(times)
}

#[test]
fn it_is_not_run_again_beside_changes_and_nodes_have_the_same() -> Result<()> {
    let mut cluster = start(DefaultDistribution::Home)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &TABLES)?;
    client.query("CREATE TABLE beside (id int, v int) DISTRIBUTE BY HASH (id)")?;
    let of_another = [
        "BEGIN",
        "ALTER TABLE beside ADD COLUMN w timestamptz DEFAULT now()",
        "SELECT pg_sleep(0.05)",
        "COMMIT",
        "ALTER TABLE beside DROP COLUMN w",
    ];
    let of_the_same = ["DROP INDEX CONCURRENTLY IF EXISTS meant", "SELECT pg_sleep(0.02)"];
    for (others, always_made) in [(&of_another[..], true), (&of_the_same[..], false)] {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| -> Result<()> {
            let changing = scope.spawn(|| change(&cluster, others, &is_over));
            let made = (0..8).try_for_each(|_| -> Result<()> {
                const CREATE: &str = "CREATE INDEX CONCURRENTLY IF NOT EXISTS meant ON spread (v)";
                if !always_made {
                    // That it was dropped meanwhile is an error.
                    client.simple(CREATE, b"")?;
                } else {
                    client.query(CREATE)?;
                    let on_nodes = indexes(&cluster)?;
                    ensure!(on_nodes == ["meant t", "meant t"], "{on_nodes:?}");
                    client.query("DROP INDEX CONCURRENTLY meant")?;
                }
                Ok(())
            });
            is_over.store(true, Ordering::SeqCst);
            ensure!(0 < changing.join().expect("it does not panic")?);
            made
        })?;
        let on_nodes = indexes(&cluster)?;
        ensure!(on_nodes[0] == on_nodes[1], "{on_nodes:?}");
    }
    cluster.stop_gateway()
}
