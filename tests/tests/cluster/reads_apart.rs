//! Reads of a READ COMMITTED block that are carried out apart from it, on connections of their own.
//!
//! Owns: that they see whole transactions, what the block has set, and whose rights; and that they wait for nobody who
//! waits for the block. Which statements answer as on one server: `differential/read_apart.sql`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;

/// Where the accounts are; as many in each, found by `k`, which is nowhere the key.
const PLACED: [(&str, &str); 4] =
    [("big", "HASH (id)"), ("other", "HASH (id)"), ("mine", "HASH (id)"), ("copies", "REPLICATED")];
const ACCOUNTS: usize = 3_000;

/// Statements that read all accounts of two tables, and these.
const SUMS: [(&str, [usize; 2]); 6] = [
    ("SELECT sum(b.n + o.n) FROM big b JOIN other o ON o.k = b.k", [0, 1]),
    (
        "WITH x AS (SELECT g, sum(n) AS s FROM big GROUP BY g), y AS (SELECT g, sum(n) AS s FROM other GROUP BY g)
            SELECT sum(x.s + y.s) FROM x JOIN y USING (g)",
        [0, 1],
    ),
    ("SELECT sum(n) FROM (SELECT n FROM big UNION ALL SELECT n FROM other) q", [0, 1]),
    ("SELECT (SELECT sum(n) FROM other) + sum(n) FROM big", [0, 1]),
    // Parts of nodes, in the block itself.
    ("SELECT sum(m.n + c.n) FROM mine m JOIN copies c ON c.k = m.k", [2, 3]),
    (
        "SELECT sum(s) FROM (SELECT m.g, sum(m.n + c.n) AS s FROM mine m JOIN copies c ON c.k = m.k GROUP BY m.g) q",
        [2, 3],
    ),
];

fn fill(owner: &mut Client) -> Result<()> {
    for (table, placed) in PLACED {
        owner.query(&format!(
            "CREATE TABLE {table} (id int, k int, g int, n int) DISTRIBUTE BY {placed}"
        ))?;
        owner.query(&format!(
            "INSERT INTO {table} SELECT i, {ACCOUNTS} - i, i % 40, 100 FROM generate_series(1, {ACCOUNTS}) i"
        ))?;
    }
    owner.query("ANALYZE")?;
    Ok(())
}

/// Moves money between accounts of `pair`'s tables until `stop`.
fn move_money(endpoint: &Endpoint, pair: [usize; 2], stop: Instant) -> Result<usize> {
    let mut client = Client::connect(endpoint)?;
    let mut moved = 0;
    let mut step = pair[0];
    while Instant::now() < stop {
        step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = |bits: usize| 1 + (step >> bits) % 10;
        let turn = (step >> 33) % 2;
        let [from, to] = [PLACED[pair[turn]].0, PLACED[pair[1 - turn]].0];
        let statements = [
            "BEGIN".to_owned(),
            format!("UPDATE {from} SET n = n - 3 WHERE id = {}", pick(37)),
            format!("UPDATE {to} SET n = n + 3 WHERE id = {}", pick(41)),
            "COMMIT".to_owned(),
        ];
        match statements.iter().try_for_each(|sql| client.query(sql).map(drop)) {
            Ok(()) => moved += 1,
            Err(_) => drop(client.query("ROLLBACK")?),
        }
    }
    Ok(moved)
}

fn plan(client: &mut Client, sql: &str) -> Result<String> {
    let lines = client.query(&format!("EXPLAIN {sql}"))?;
    Ok(lines.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n"))
}

#[test]
fn whole_transactions_are_seen() -> Result<()> {
    const RUN: Duration = Duration::from_secs(8);
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    let mut owner = Client::connect(&endpoint)?;
    fill(&mut owner)?;
    owner.query("BEGIN")?;
    let said = plan(&mut owner, SUMS[0].0)?;
    ensure!(!said.contains("Collect big"), "all rows are brought to one node in a block:\n{said}");
    owner.query("COMMIT")?;
    let stop = Instant::now() + RUN;
    let movers = [[0, 1], [2, 3]].map(|pair| {
        let endpoint = endpoint.clone();
        std::thread::spawn(move || move_money(&endpoint, pair, stop))
    });
    let total = (2 * ACCOUNTS * 100).to_string();
    let mut readings = 0;
    while Instant::now() < stop {
        owner.query("BEGIN")?;
        for (sql, of) in SUMS {
            let seen = owner.value(sql).with_context(|| sql.to_owned())?;
            ensure!(
                seen == total,
                "{sql}: {seen}, of {}",
                of.map(|table| PLACED[table].0).join(", ")
            );
            readings += 1;
        }
        owner.query("COMMIT")?;
    }
    for mover in movers {
        let moved = mover.join().expect("a mover does not panic")?;
        ensure!(0 < moved, "nothing was moved beside {readings} readings");
    }
    Ok(())
}

/// Who alters a table waits for a block that has read it, and the block reads on.
#[test]
fn what_waits_for_the_block_is_not_waited_for() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    let mut owner = Client::connect(&endpoint)?;
    fill(&mut owner)?;
    let mut reader = Client::connect(&endpoint)?;
    for first in ["SELECT n FROM big WHERE id = 5", "SELECT sum(n) FROM other", SUMS[0].0] {
        reader.query("BEGIN")?;
        reader.query(first)?;
        // Whatever was read apart has left no lock.
        reader.query("SELECT n FROM big WHERE id = 7")?;
        let alter = {
            let endpoint = endpoint.clone();
            std::thread::spawn(move || {
                Client::connect(&endpoint)?.query("ALTER TABLE big ALTER n TYPE bigint")
            })
        };
        let waits = cluster.comes_to_wait_for_a_lock(Duration::from_secs(20))?;
        ensure!(waits, "after {first}: nobody waits for the block");
        let seen = reader.value(SUMS[0].0).with_context(|| format!("after {first}"))?;
        ensure!(seen == (2 * ACCOUNTS * 100).to_string(), "after {first}: {seen}");
        ensure!(!alter.is_finished(), "after {first}: the table was altered under the block");
        reader.query("COMMIT")?;
        alter.join().expect("it does not panic")?;
        owner.query("ALTER TABLE big ALTER n TYPE int")?;
    }
    Ok(())
}

/// What the block has set goes with it: a role, and what policies look at.
#[test]
fn the_blocks_settings_and_rights_hold() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    let mut owner = Client::connect(&endpoint)?;
    fill(&mut owner)?;
    owner.query("CREATE ROLE nobody_much")?;
    owner.query("CREATE ROLE tenant")?;
    owner.query("GRANT SELECT ON big, other TO tenant")?;
    owner.query("ALTER TABLE big ENABLE ROW LEVEL SECURITY")?;
    owner.query(
        "CREATE POLICY own_rows ON big USING (g = current_setting('tests.tenant', true)::int)",
    )?;
    const READ: &str = "SELECT count(*) FROM big b JOIN other o ON o.k = b.k";
    let count = |client: &mut Client| client.value(READ);
    owner.query("BEGIN")?;
    owner.query("SET LOCAL ROLE nobody_much")?;
    let refused = owner.simple(READ, b"")?;
    let refused = refused.error().map(|error| error.sqlstate().to_owned());
    ensure!(refused.as_deref() == Some("42501"), "another's rights: {refused:?}");
    owner.query("ROLLBACK")?;
    for tenant in [3, 4] {
        owner.query("BEGIN")?;
        owner.query("SET LOCAL ROLE tenant")?;
        owner.query(&format!("SET LOCAL tests.tenant = {tenant}"))?;
        let seen = count(&mut owner)?;
        owner.query("COMMIT")?;
        ensure!(seen == (ACCOUNTS / 40).to_string(), "tenant {tenant}: {seen}");
    }
    owner.query("BEGIN")?;
    let seen = count(&mut owner)?;
    owner.query("COMMIT")?;
    ensure!(seen == ACCOUNTS.to_string(), "the owner: {seen}");
    Ok(())
}

/// And stays nowhere: neither what is said of the block alone, nor what its COMMIT keeps, or its ROLLBACK takes back.
#[test]
fn what_a_block_sets_stays_on_no_connection() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    let mut owner = Client::connect(&endpoint)?;
    fill(&mut owner)?;
    owner.query("CREATE ROLE tenant SUPERUSER")?;
    const SET: [&str; 4] = [
        "tests.tenant = 'mine'",
        "timezone = 'Asia/Tokyo'",
        "ROLE tenant",
        "search_path = pg_catalog, public",
    ];
    const SEEN: &str = "SELECT DISTINCT coalesce(current_setting('tests.tenant', true), 'none'), current_setting('timezone'), \
                        current_user, current_setting('search_path') FROM big";
    let begun = Client::connect(&endpoint)?.query(SEEN)?;
    for (set, end) in SET.iter().flat_map(|set| ["COMMIT", "ROLLBACK"].map(|end| (set, end))) {
        for local in ["", "LOCAL "] {
            let mut client = Client::connect(&endpoint)?;
            let before = client.query(SEEN)?;
            client.query("BEGIN")?;
            client.query(&format!("SET {local}{set}"))?;
            for _ in 0..2 {
                let seen = client.value(SUMS[0].0).with_context(|| format!("SET {local}{set}"))?;
                ensure!(seen == (2 * ACCOUNTS * 100).to_string(), "SET {local}{set}: {seen}");
            }
            client.query(end)?;
            let after = client.query(SEEN)?;
            let is_kept = local.is_empty() && end == "COMMIT";
            // PostgreSQL, too, remembers that there was such a setting.
            let is_empty = |row: &Vec<Option<String>>| row[0].as_deref() == Some("");
            let is_as_before = after == before || after.iter().all(is_empty);
            ensure!(
                is_kept || is_as_before,
                "SET {local}{set}, {end}: {after:?} in the same session"
            );
            drop(client);
            let mut others: Vec<_> =
                (0..3).map(|_| Client::connect(&endpoint)).collect::<Result<_>>()?;
            for other in &mut others {
                let seen = other.query(SEEN)?;
                ensure!(seen == begun, "SET {local}{set}, {end}: {seen:?} in another session");
            }
        }
    }
    Ok(())
}

/// Where there is no room for further connections, the block has its answer all the same; and none stays.
#[test]
fn blocks_need_no_further_connections() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    fill(&mut Client::connect(&endpoint)?)?;
    let blocks: Vec<_> = (0..12)
        .map(|_| {
            let endpoint = endpoint.clone();
            std::thread::spawn(move || -> Result<()> {
                let mut client = Client::connect(&endpoint)?;
                for _ in 0..4 {
                    client.query("BEGIN")?;
                    client.query("SELECT n FROM big WHERE id = 5")?;
                    let seen = client.value(SUMS[0].0)?;
                    ensure!(seen == (2 * ACCOUNTS * 100).to_string(), "{seen}");
                    client.query("COMMIT")?;
                }
                Ok(())
            })
        })
        .collect();
    for block in blocks {
        block.join().expect("a block does not panic")?;
    }
    cluster.ensure_no_backend_where("state LIKE 'idle in transaction%' AND query LIKE '%big%'")
}
