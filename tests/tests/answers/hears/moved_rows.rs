//! A row whose key changes: a statement that waits for it follows it or is retried, a row that stays is
//! updated where it is, and what must not happen to a row that leaves is refused only for one that does.

use anyhow::{Result, ensure};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

use super::{begin, ended, finish, keys_by_node};

fn cluster() -> Result<TestCluster> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE m (k int PRIMARY KEY, name text, v int) DISTRIBUTE BY HASH (k)")?;
    Ok(cluster)
}

/// Fills the table; gives a key on node 1 that is free, one on node 2 that is, and one on each that is
/// taken: `x` on node 1, `y` on node 2.
fn fill(cluster: &TestCluster) -> Result<[i64; 4]> {
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("DELETE FROM m")?;
    client.query("INSERT INTO m SELECT g, 'other', 0 FROM generate_series(1, 60) g")?;
    let keys = keys_by_node(&cluster.nodes(), "m", "k")?;
    let (stays, leaves) = (keys[0][1], keys[1][1]);
    client.query(&format!("DELETE FROM m WHERE k IN ({stays}, {leaves})"))?;
    let (x, y) = (keys[0][0], keys[1][0]);
    client.query(&format!("UPDATE m SET name = 'x' WHERE k = {x}"))?;
    client.query(&format!("UPDATE m SET name = 'y' WHERE k = {y}"))?;
    Ok([stays, leaves, x, y])
}

const WAITERS: [&str; 7] = [
    "UPDATE m SET v = v + 1 WHERE name = 'x'",
    "DELETE FROM m WHERE name = 'x'",
    "SELECT k FROM m WHERE name = 'x' FOR UPDATE",
    "UPDATE m SET k = k + 1000 WHERE name = 'x'",
    "UPDATE m SET v = v + 1",
    "WITH gone AS (SELECT 1) UPDATE m SET v = v + 1 WHERE name = 'x' AND k < 10000",
    "UPDATE m SET v = v + 1 WHERE name = 'x' RETURNING k",
];

#[test]
fn whoever_waits_for_a_row_that_leaves_follows_it_or_retries() -> Result<()> {
    let cluster = cluster()?;
    for waiter in WAITERS {
        for is_in_block in [false, true] {
            let [_, leaves, x, _] = fill(&cluster)?;
            let mut mover = Client::connect(&cluster.endpoint())?;
            mover.query("BEGIN")?;
            mover.query(&format!("UPDATE m SET k = {leaves} WHERE k = {x}"))?;
            let mut other = Client::connect(&cluster.endpoint())?;
            let mut third = Client::connect(&cluster.endpoint())?;
            if is_in_block {
                other.query("BEGIN")?;
                third.query("BEGIN")?;
            }
            let waiting = begin(other, waiter);
            ensure!(!waiting.is_finished(), "{waiter} does not wait");
            // Another waits after the first.
            let behind = begin(third, "UPDATE m SET v = v + 10 WHERE name = 'x'");
            mover.query("COMMIT")?;
            let (mut other, answer) = finish(waiting)?;
            if is_in_block {
                ensure!(ended(&answer) == "40001", "{waiter}: {answer}");
                other.query("ROLLBACK")?;
            } else {
                // What has told its client something cannot be run again.
                let has_rows = waiter.starts_with("SELECT") || waiter.ends_with("RETURNING k");
                let retries = has_rows && ended(&answer) == "40001";
                ensure!(retries || answer.error().is_none(), "{waiter}: {answer}");
                let found = answer.to_string();
                ensure!(!found.contains("UPDATE 0") && !found.contains("DELETE 0"), "{answer}");
                ensure!(!found.contains("SELECT 0"), "{waiter}: {answer}");
            }
            let (mut third, answer) = finish(behind)?;
            let is_deleted = waiter.starts_with("DELETE") && !is_in_block;
            if !is_deleted && !is_in_block {
                ensure!(answer.to_string().contains("UPDATE 1"), "behind {waiter}: {answer}");
            }
            if is_in_block {
                // It may find the row in its new place, if it had not begun to wait.
                let told = ended(&answer);
                ensure!(told == "40001" || answer.to_string().contains("UPDATE 1"), "{answer}");
                third.query("ROLLBACK")?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_prepared_statement_of_one_node_that_waits_retries_too() -> Result<()> {
    let cluster = cluster()?;
    let [_, leaves, x, _] = fill(&cluster)?;
    let mut other = Client::connect(&cluster.endpoint())?;
    other.query("PREPARE p AS UPDATE m SET v = v + 1 WHERE k = $1 OR k = $2")?;
    let mut mover = Client::connect(&cluster.endpoint())?;
    mover.query("BEGIN")?;
    mover.query(&format!("UPDATE m SET k = {leaves} WHERE k = {x}"))?;
    let waiting = begin(other, &format!("EXECUTE p ({x}, {leaves})"));
    mover.query("COMMIT")?;
    let (_, answer) = finish(waiting)?;
    ensure!(answer.to_string().contains("UPDATE 1") || ended(&answer) == "40001", "{answer}");
    Ok(())
}

#[test]
fn readers_and_writers_of_other_tables_are_left_alone() -> Result<()> {
    let cluster = cluster()?;
    let [_, leaves, x, _] = fill(&cluster)?;
    let mut mover = Client::connect(&cluster.endpoint())?;
    mover.query("CREATE TABLE o (k int PRIMARY KEY, v int) DISTRIBUTE BY HASH (k)")?;
    mover.query("INSERT INTO o SELECT g, 0 FROM generate_series(1, 20) g")?;
    let sleeper = |sql| Ok::<_, anyhow::Error>(begin(Client::connect(&cluster.endpoint())?, sql));
    let reading = sleeper("SELECT k, pg_sleep(2) FROM m WHERE name = 'x'")?;
    let mut blocker = Client::connect(&cluster.endpoint())?;
    blocker.query("BEGIN; UPDATE o SET v = 1 WHERE k = 1")?;
    let writing = sleeper("UPDATE o SET v = v + 1 WHERE k = 1")?;
    mover.query(&format!("UPDATE m SET k = {leaves} WHERE k = {x}"))?;
    blocker.query("COMMIT")?;
    for running in [reading, writing] {
        let (_, answer) = finish(running)?;
        ensure!(answer.error().is_none(), "{answer}");
    }
    Ok(())
}

/// The table as it is, whatever the order of its rows.
fn contents(endpoint: &Endpoint, table: &str) -> Result<String> {
    let sql = format!("SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM {table} t");
    Client::connect(endpoint)?.value(&sql)
}

#[test]
fn a_key_that_stays_is_updated_in_place() -> Result<()> {
    let cluster = cluster()?;
    for (set, waiter) in [
        ("k = k, v = 7", "UPDATE m SET v = v + 1 WHERE name = 'x'"),
        ("k = abs(k), v = 7", "UPDATE m SET v = v + 1 WHERE name = 'x'"),
        ("k = {stays}, v = 7", "UPDATE m SET v = v + 1 WHERE name = 'x'"),
        ("k = k + 0, name = name", "DELETE FROM m WHERE name = 'x'"),
    ] {
        let [stays, _, x, _] = fill(&cluster)?;
        let set = set.replace("{stays}", &stays.to_string());
        let mut mover = Client::connect(&cluster.endpoint())?;
        mover.query("BEGIN")?;
        mover.query(&format!("UPDATE m SET {set} WHERE k = {x}"))?;
        let mut other = Client::connect(&cluster.endpoint())?;
        other.query("BEGIN")?;
        let waiting = begin(other, waiter);
        ensure!(!waiting.is_finished(), "{set}: {waiter} does not wait");
        mover.query("COMMIT")?;
        let (mut other, answer) = finish(waiting)?;
        // One PostgreSQL follows a row that is updated.
        ensure!(ended(&answer).ends_with(" 1"), "{set}: {answer}");
        other.query("COMMIT")?;
    }
    Ok(())
}

#[test]
fn what_refers_to_a_row_that_stays_stays() -> Result<()> {
    let cluster = cluster()?;
    let [stays, leaves, x, y] = fill(&cluster)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for statement in [
        "CREATE TABLE line (k int REFERENCES m ON DELETE CASCADE, n int) \
         DISTRIBUTE BY HASH (k)",
        "CREATE TABLE seen (what text) DISTRIBUTE BY HOME",
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN NEW.v := NEW.v + 100; RETURN NEW; END'",
    ] {
        client.query(statement)?;
    }
    client.query(&format!("INSERT INTO line VALUES ({x}, 1), ({y}, 2)"))?;
    // Nothing is deleted, so no action of a foreign key runs.
    client.query(&format!("UPDATE m SET k = k, name = 'z' WHERE k = {x}"))?;
    client.query("UPDATE m SET k = abs(k)")?;
    ensure!(client.value("SELECT count(*) FROM line")? == "2");
    let refused = client.simple(&format!("UPDATE m SET k = {leaves} WHERE k = {x}"), &[])?;
    ensure!(ended(&refused) == "0A000", "{refused}");
    client.query("DROP TABLE line")?;

    // Triggers for UPDATE fire for it, as for any update.
    client.query("CREATE TRIGGER keep BEFORE UPDATE ON m FOR EACH ROW EXECUTE FUNCTION keep()")?;
    let answer = client.simple(&format!("UPDATE m SET k = k WHERE k = {x}"), &[])?;
    ensure!(answer.error().is_none() || ended(&answer) == "0A000", "{answer}");
    if answer.error().is_none() {
        ensure!(client.value(&format!("SELECT v FROM m WHERE k = {x}"))? == "100");
        let refused = client.simple(&format!("UPDATE m SET k = {leaves} WHERE k = {x}"), &[])?;
        ensure!(ended(&refused) == "0A000", "{refused}");
    }
    let _ = stays;
    Ok(())
}

/// UPDATEs of keys, some of which fail.
const UPDATES: [&str; 10] = [
    "UPDATE m SET k = k + 100",
    "UPDATE m SET k = k + 1, v = v + k WHERE v = 0",
    "UPDATE m SET k = -k, name = NULL WHERE k % 3 = 0",
    "UPDATE m SET k = DEFAULT WHERE k = 7",
    "UPDATE m SET k = 5 WHERE k IN (5, 6)",
    "UPDATE m SET k = k, v = k, name = name || '''\"\\,()'",
    "UPDATE m AS a SET k = a.k + 1000 WHERE a.name LIKE '%x%'",
    "UPDATE m SET k = k + 5000, v = NULL WHERE EXISTS (SELECT 1)",
    "UPDATE m SET k = v WHERE v > 1000",
    "UPDATE m SET k = 2 * k + 100000 WHERE k > 5100",
];

#[test]
fn tables_are_what_one_postgresql_has() -> Result<()> {
    let cluster = cluster()?;
    let plain = servers::start(1)?;
    let one = servers::endpoint(&plain, 0);
    Client::connect(&one)?
        .query("CREATE TABLE m (k int PRIMARY KEY DEFERRABLE, name text, v int)")?;
    for endpoint in [&one, &cluster.endpoint()] {
        let insert = "INSERT INTO m SELECT g, 'x' || g, g % 2 FROM generate_series(1, 40) g";
        Client::connect(endpoint)?.query(insert)?;
    }
    for update in UPDATES {
        let mut told = Vec::new();
        for endpoint in [&one, &cluster.endpoint()] {
            told.push(ended(&Client::connect(endpoint)?.simple(update, &[])?));
        }
        ensure!(told[0] == told[1], "{update}: {told:?}");
        let (expected, found) = (contents(&one, "m")?, contents(&cluster.endpoint(), "m")?);
        ensure!(expected == found, "{update}\n{expected}\n{found}");
        // And each row is found by its key.
        let mut client = Client::connect(&cluster.endpoint())?;
        for row in client.query("SELECT k FROM m")? {
            let key = row[0].clone().unwrap_or_default();
            let by_key = client.value(&format!("SELECT count(*) FROM m WHERE k = {key}"))?;
            ensure!(by_key == "1", "{update}: {by_key} rows have key {key}");
        }
    }
    Ok(())
}
