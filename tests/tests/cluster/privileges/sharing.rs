//! Sessions of one role that follow each other on the same connections to nodes: none gets what
//! another has become.
//!
//! The gateway has one connection to each node here, so the second session certainly gets the
//! first one's.

use anyhow::{Result, ensure};
use tutti_gateway::{Config, PoolConfig};
use tutti_tests::answer::Answer;
use tutti_tests::client::{Client, Flight, Request};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

fn cluster() -> Result<TestCluster> {
    let servers = servers::start(2)?;
    let own = config(&servers, String::new());
    let pool = PoolConfig { size: 1, ..own.pool.clone() };
    let cluster = TestCluster::start_configured(servers, Config { pool, ..own })?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE ROLE test_group",
        "CREATE ROLE test_formal LOGIN NOINHERIT IN ROLE test_group",
        "CREATE ROLE test_other LOGIN",
        "CREATE TABLE docs (id int, tenant text) DISTRIBUTE BY HASH (id)",
        "INSERT INTO docs SELECT n, 'a' FROM generate_series(1, 20) n",
        "GRANT SELECT ON docs TO test_group",
        "CREATE TABLE rows (id int, tenant text) DISTRIBUTE BY HASH (id)",
        "INSERT INTO rows SELECT n, 'a' FROM generate_series(1, 20) n",
        "GRANT SELECT ON rows TO test_formal, test_other",
        "ALTER TABLE rows ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON rows USING (tenant = current_setting('app.tenant', true))",
        "CREATE FUNCTION become(text, text) RETURNS text LANGUAGE sql VOLATILE AS \
         $$SELECT pg_catalog.set_config($1, $2, false)$$",
    ] {
        admin.query(sql)?;
    }
    Ok(cluster)
}

const WHO: &str = "SELECT DISTINCT current_user::text || ' ' || session_user FROM rows \
                   RIGHT JOIN (VALUES (1)) v (x) ON rows.id = v.x";

#[test]
fn roles_and_settings_stay_with_their_session() -> Result<()> {
    let cluster = cluster()?;
    let mut one = Client::connect_as(&cluster.endpoint(), "test_formal")?;
    let mut two = Client::connect_as(&cluster.endpoint(), "test_formal")?;
    // What a function does behind the gateway's back need not follow its own session everywhere,
    // but must not reach another one.
    for (change, seen) in [
        ("SET ROLE test_group", true),
        ("SELECT set_config('role', 'test_group', false)", true),
        ("SELECT become('role', 'test_group')", false),
        ("DO $$BEGIN PERFORM set_config('role', 'test_group', false); END$$", false),
    ] {
        one.query(change)?;
        if seen {
            assert_eq!(one.value("SELECT count(*) FROM docs")?, "20", "after {change}");
        }
        for _ in 0..2 {
            assert_eq!(two.value(WHO)?, "test_formal test_formal", "after {change}");
            let answer = two.simple("SELECT count(*) FROM docs", &[])?;
            ensure!(
                answer.error().is_some_and(|error| error.sqlstate() == "42501"),
                "after {change}: {answer}"
            );
        }
        one.query("RESET ROLE")?;
        one.query("DISCARD ALL")?;
    }
    for change in [
        "SET app.tenant = 'a'",
        "SELECT set_config('app.tenant', 'a', false)",
        "SELECT become('app.tenant', 'a')",
        "DO $$BEGIN PERFORM set_config('app.tenant', 'a', false); END$$",
        "DO $$BEGIN SET app.tenant = 'a'; END$$",
    ] {
        one.query(change)?;
        for count in [
            "SELECT count(*) FROM rows",
            "SELECT count(*) FROM rows a JOIN rows b ON a.id = b.id + 1",
        ] {
            assert_eq!(two.value(count)?, "0", "after {change}");
        }
        one.query("DISCARD ALL")?;
    }
    Ok(())
}

#[test]
fn superusers_who_become_others_are_followed_by_superusers() -> Result<()> {
    let cluster = cluster()?;
    let mut one = Client::connect(&cluster.endpoint())?;
    let mut two = Client::connect(&cluster.endpoint())?;
    for (change, seen) in [
        ("SET SESSION AUTHORIZATION test_other", true),
        ("SET ROLE test_other", true),
        ("SELECT become('session_authorization', 'test_other')", false),
    ] {
        one.query(change)?;
        assert_eq!(two.value("SELECT current_user || ' ' || session_user")?, "postgres postgres");
        assert_eq!(two.value("SELECT count(*) FROM docs a JOIN docs b ON a.id = b.id + 1")?, "19");
        let count =
            one.simple("SELECT count(*) FROM docs a JOIN docs b ON a.id = b.id + 1", &[])?;
        ensure!(
            !seen || count.error().is_some_and(|error| error.sqlstate() == "42501"),
            "after {change}: {count}"
        );
        one.query("RESET SESSION AUTHORIZATION")?;
        one.query("RESET ROLE")?;
    }
    Ok(())
}

/// By the extended protocol: the gateway shares what is prepared among the clients of a role.
fn prepared(client: &mut Client, sql: &str) -> Result<Answer> {
    client.extended(&Request { sql, ..Request::default() }, Flight::TwoFlights, &[])
}

#[test]
fn what_one_session_has_prepared_is_checked_for_the_next() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut one = Client::connect_as(&cluster.endpoint(), "test_formal")?;
    let mut two = Client::connect_as(&cluster.endpoint(), "test_formal")?;
    let denied = |answer: &Answer| answer.error().is_some_and(|error| error.sqlstate() == "42501");
    one.query("SET ROLE test_group")?;
    for sql in [
        "SELECT count(*) FROM docs",
        "SELECT id FROM docs WHERE id = 3",
        "SELECT count(*) FROM docs a JOIN docs b ON a.id = b.id + 1",
    ] {
        for _ in 0..3 {
            let answer = prepared(&mut one, sql)?;
            ensure!(answer.error().is_none(), "{answer}");
            let answer = prepared(&mut two, sql)?;
            ensure!(denied(&answer), "{sql}: {answer}");
        }
        admin.query("REVOKE SELECT ON docs FROM test_group")?;
        let answer = prepared(&mut one, sql)?;
        ensure!(denied(&answer), "{sql}: {answer}");
        admin.query("GRANT SELECT ON docs TO test_group")?;
    }
    // Rows by a policy that reads a setting.
    one.query("RESET ROLE")?;
    one.query("SET app.tenant = 'a'")?;
    for (sql, rows) in [
        ("SELECT id FROM rows", 20),
        ("SELECT a.id FROM rows a JOIN rows b ON a.id = b.id + 1", 19),
    ] {
        for _ in 0..3 {
            ensure!(prepared(&mut one, sql)?.texts().len() == rows);
            ensure!(prepared(&mut two, sql)?.texts().is_empty());
        }
        admin.query("DROP POLICY p ON rows")?;
        ensure!(prepared(&mut one, sql)?.texts().is_empty());
        admin.query(
            "CREATE POLICY p ON rows USING (tenant = current_setting('app.tenant', true))",
        )?;
        ensure!(prepared(&mut one, sql)?.texts().len() == rows);
        ensure!(prepared(&mut two, sql)?.texts().is_empty());
    }
    Ok(())
}
