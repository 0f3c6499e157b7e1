//! Keys that are generated columns: which can be, what moves with them, and that many writers leave every row where it
//! belongs.
//!
//! Owns: that. That the answers are PostgreSQL's is `differential`'s business (`generated_keys.sql`).

use std::thread;

use anyhow::{Result, ensure};
use tutti_gateway::{Config, Switches};
use tutti_tests::client::Client;
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

const USERS: &str = "CREATE TABLE users (id int, email text, visits int DEFAULT 0, \
    key text GENERATED ALWAYS AS (lower(email)) STORED, UNIQUE (key)) DISTRIBUTE BY HASH (key)";

fn start() -> Result<(TestCluster, Client)> {
    let servers = servers::start(3)?;
    let switches = Switches { check_plans: true, ..Switches::default() };
    let config = Config { switches, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &[USERS])?;
    Ok((cluster, client))
}

fn run(client: &mut Client, statements: &[&str]) -> Result<()> {
    for sql in statements {
        let answer = client.simple(sql, b"")?;
        ensure!(answer.error().is_none(), "{sql}\n{answer}");
    }
    Ok(())
}

fn sqlstate(client: &mut Client, sql: &str) -> Result<String> {
    let answer = client.simple(sql, b"")?;
    Ok(answer.error().map(|error| error.sqlstate().to_owned()).unwrap_or_default())
}

fn explained(client: &mut Client, sql: &str) -> Result<String> {
    let lines = client.query(&format!("EXPLAIN {sql}"))?;
    Ok(lines.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n"))
}

fn ensure_in_place(cluster: &TestCluster) -> Result<()> {
    let findings = cluster.audit()?.findings;
    ensure!(findings.is_empty(), "{findings:#?}");
    Ok(())
}

#[test]
fn only_what_every_node_computes_alike_can_be_a_key() -> Result<()> {
    let (_cluster, mut client) = start()?;
    run(
        &mut client,
        &[
            "CREATE FUNCTION f(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT lower($1)'",
            "CREATE TABLE parents (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED",
            "CREATE TABLE digits (n int, k int GENERATED ALWAYS AS (n % 10) STORED) DISTRIBUTE BY HASH (k)",
            "CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.n := 5; RETURN NEW; END'",
        ],
    )?;
    for sql in [
        // What a user has written may become another function, on one node before another.
        "CREATE TABLE a (e text, k text GENERATED ALWAYS AS (f(e)) STORED) DISTRIBUTE BY HASH (k)",
        "CREATE TABLE a (e int, k oid GENERATED ALWAYS AS (tableoid) STORED) DISTRIBUTE BY HASH (k)",
        "CREATE TABLE a (e int, k int GENERATED ALWAYS AS (e) STORED, PRIMARY KEY (k, e)) DISTRIBUTE BY REPLICATED ASYNC",
        "CREATE TABLE a (e text) DISTRIBUTE BY HASH (lower(e))",
        "CREATE TABLE a (e int) DISTRIBUTE BY HASH (e / 2, e)",
        "ALTER TABLE digits ADD FOREIGN KEY (n) REFERENCES parents ON DELETE SET NULL",
        "ALTER TABLE digits ADD FOREIGN KEY (n) REFERENCES parents ON UPDATE CASCADE",
        "CREATE UNIQUE INDEX digits_n ON digits (n) WITH (tutti.global_unique)",
        "MERGE INTO digits USING parents ON k = id WHEN NOT MATCHED THEN INSERT (n) VALUES (id)",
        "MERGE INTO digits USING parents ON k = id WHEN MATCHED THEN UPDATE SET n = 5",
        "INSERT INTO users (email) VALUES ('a') ON CONFLICT (key) DO UPDATE SET email = 'b'",
    ] {
        assert_eq!(sqlstate(&mut client, sql)?, "0A000", "{sql}");
    }
    run(
        &mut client,
        &["CREATE TRIGGER t BEFORE INSERT ON digits FOR EACH ROW EXECUTE FUNCTION change()"],
    )?;
    assert_eq!(sqlstate(&mut client, "INSERT INTO digits VALUES (1)")?, "0A000");
    Ok(())
}

#[test]
fn conditions_on_the_expression_find_rows_by_it() -> Result<()> {
    let (_cluster, mut client) = start()?;
    run(
        &mut client,
        &[
            "CREATE TABLE short (name varchar(9), v int, k text GENERATED ALWAYS AS (upper(name)) STORED) \
           DISTRIBUTE BY HASH (k)",
            "CREATE TABLE digits (n int, k text GENERATED ALWAYS AS (n::text) STORED) DISTRIBUTE BY HASH (k)",
            "CREATE TABLE printed (x float8, k text GENERATED ALWAYS AS (x::text) STORED) DISTRIBUTE BY HASH (k)",
            "CREATE TABLE zones (at timestamptz, k timestamp GENERATED ALWAYS AS (timezone('IST', at)) STORED) \
           DISTRIBUTE BY HASH (k)",
            "CREATE TABLE loose (e text COLLATE \"en-x-icu\", k text GENERATED ALWAYS AS (lower(e)) STORED) \
           DISTRIBUTE BY HASH (k)",
        ],
    )?;
    for (sql, pinned) in [
        ("SELECT * FROM digits WHERE n::text = '5'", true),
        // What a session has set is in such texts and times; and the two sides have other collations.
        ("SELECT * FROM printed WHERE x::text = '0.5'", false),
        ("SELECT * FROM zones WHERE timezone('IST', at) = '2026-01-01'", false),
        ("SELECT * FROM loose WHERE lower(e) = 'a'", false),
        ("SELECT * FROM loose WHERE k = 'a'", true),
        ("SELECT * FROM users WHERE lower(email) = 'a'", true),
        ("SELECT * FROM users u WHERE pg_catalog.lower(u.email) IN ('a', 'a')", true),
        ("DELETE FROM users WHERE key = 'a'", true),
        ("SELECT * FROM short WHERE upper(name) = 'A'", true),
        ("SELECT * FROM short WHERE upper(name::text) = 'A'", true),
        ("SELECT * FROM users WHERE upper(email) = 'A'", false),
        ("SELECT * FROM users WHERE lower(key) = 'a'", false),
        ("SELECT * FROM users WHERE lower(email) = email", false),
        ("SELECT * FROM users WHERE lower(email) <> 'a'", false),
        ("SELECT * FROM users WHERE lower(email COLLATE \"C\") = 'a'", false),
    ] {
        let told = explained(&mut client, sql)?;
        assert_eq!(told.contains("runs on node"), pinned, "{sql}\n{told}");
    }
    // Who has a function of the name may mean that.
    run(
        &mut client,
        &[
            "CREATE FUNCTION lower(varchar) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1::text'",
        ],
    )?;
    let told = explained(&mut client, "SELECT * FROM users WHERE lower(email) = 'a'")?;
    ensure!(!told.contains("runs on node"), "{told}");
    Ok(())
}

/// A type of the session's own has the name of the key's, and is another.
#[test]
fn keys_are_cast_to_their_own_types() -> Result<()> {
    let (cluster, mut client) = start()?;
    run(
        &mut client,
        &[
            "CREATE TABLE m (id int, at timestamp, k date GENERATED ALWAYS AS (at::date) STORED) DISTRIBUTE BY HASH (k)",
            "CREATE TABLE d (id int, k date) DISTRIBUTE BY HASH (k)",
            "CREATE SCHEMA hiding",
            "CREATE DOMAIN hiding.date AS timestamp",
            "SET search_path = hiding, pg_catalog, public",
            "INSERT INTO m SELECT i, timestamp '2026-01-01 12:00' + i * interval '1 day' FROM pg_catalog.generate_series(1, 20) i",
            "INSERT INTO m VALUES (21, '2026-03-01 12:00'), (22, '2026-03-02 12:00')",
            "UPDATE m SET at = at + interval '1 month' WHERE id < 9",
            "INSERT INTO d VALUES (1, 'January 5 2026'), (2, 'January 6 2026'), (3, 'January 7 2026')",
            "RESET search_path",
        ],
    )?;
    assert_eq!(client.value("SELECT count(*) FROM m WHERE k = '2026-03-02'")?, "1");
    assert_eq!(client.value("SELECT count(*) FROM d WHERE k = '2026-01-06'")?, "1");
    ensure_in_place(&cluster)
}

#[test]
fn they_move_with_their_tables() -> Result<()> {
    let (cluster, mut client) = start()?;
    run(&mut client, &["INSERT INTO users SELECT i, 'User' || i FROM generate_series(1, 300) i"])?;
    for by in ["REPLICATED", "HASH (key)", "HOME", "HASH (key)"] {
        run(&mut client, &[&format!("ALTER TABLE users DISTRIBUTE BY {by}")])?;
        assert_eq!(client.value("SELECT id FROM users WHERE lower(email) = 'user77'")?, "77");
        run(&mut client, &["UPDATE users SET email = upper(email) WHERE id % 3 = 0"])?;
        run(&mut client, &["UPDATE users SET email = email || 'x' WHERE id = 200"])?;
        ensure_in_place(&cluster)?;
    }
    assert_eq!(client.value("SELECT id FROM users WHERE lower(email) = 'user200xxxx'")?, "200");
    Ok(())
}

#[test]
fn many_writers_leave_every_row_where_it_belongs() -> Result<()> {
    const WRITERS: usize = 4;
    const STEPS: usize = 40;
    let (cluster, mut client) = start()?;
    run(&mut client, &["INSERT INTO users SELECT i, 'User' || i FROM generate_series(1, 40) i"])?;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let endpoint = cluster.endpoint();
            thread::spawn(move || -> Result<()> {
                let mut client = Client::connect(&endpoint)?;
                for step in 0..STEPS {
                    let id = 1 + (writer * 7 + step * 3) % 40;
                    let sql = match step % 3 {
                        0 => format!(
                            "UPDATE users SET email = 'User{id}-{writer}-{step}', visits = visits + 1 WHERE id = {id}"
                        ),
                        1 => format!(
                            "UPDATE users SET visits = visits + 1 WHERE lower(email) LIKE 'user{id}-%' OR id = {id}"
                        ),
                        _ => format!("INSERT INTO users (id, email) VALUES (100, 'New{writer}.{step}')"),
                    };
                    // A row that has gone to another node meanwhile is one to be found again.
                    while let "40001" | "40P01" = sqlstate(&mut client, &sql)?.as_str() {}
                }
                Ok(())
            })
        })
        .collect();
    for writer in writers {
        writer.join().expect("a writer")?;
    }
    let added = WRITERS * (0..STEPS).filter(|step| step % 3 == 2).count();
    assert_eq!(client.value("SELECT count(*) FROM users")?, (40 + added).to_string());
    assert_eq!(client.value("SELECT count(*) FROM users WHERE key <> lower(email)")?, "0");
    ensure_in_place(&cluster)
}
