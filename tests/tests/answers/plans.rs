//! Plans that sessions share: right for each value, and never for a schema or names that have changed.
//!
//! The gateway of every test compares each plan that was kept with the one that its statement would
//! get (`Switches::check_plans`), so that a statement fails if they differ; what is tested here are
//! the answers, and what makes a plan wrong.

use anyhow::{Context, Result, ensure};
use tutti_tests::answer::Answer;
use tutti_tests::client::Client;
use tutti_tests::gateway::TestCluster;

const ROWS: i32 = 60;

/// A cluster of three nodes with `t`, hash-distributed by `id`, whose `v` is ten times `id`.
fn start() -> Result<TestCluster> {
    let cluster = TestCluster::start(3)?;
    Client::connect(&cluster.endpoint())?.query(&format!(
        "CREATE TABLE t (id int PRIMARY KEY, v int, name text) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT n, n * 10, 'it''s ' || n FROM generate_series(1, {ROWS}) n"
    ))?;
    Ok(cluster)
}

fn refused(client: &mut Client, sql: &str) -> Result<String> {
    let error = client.query(sql).err().with_context(|| format!("{sql} is not refused"))?;
    Ok(format!("{error:#}"))
}

#[test]
fn each_value_finds_its_row() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for id in 1..=ROWS {
        let v = (id * 10).to_string();
        ensure!(client.value(&format!("SELECT v FROM t WHERE id = {id}"))? == v);
        ensure!(client.value(&format!("SELECT v FROM t WHERE id = '{id}';"))? == v);
        ensure!(client.value(&format!("SELECT v FROM t WHERE id = {id}::bigint -- {id}"))? == v);
        let name =
            client.value(&format!("SELECT name FROM t WHERE id = {id} AND name <> 'it''s'"))?;
        ensure!(name == format!("it's {id}"));
        let both = format!("SELECT count(*) FROM t WHERE id IN ({id}, {})", id % ROWS + 1);
        ensure!(client.value(&both)? == "2");
        client.query(&format!("UPDATE t SET v = v + 1 WHERE id = {id}"))?;
        client.query(&format!("INSERT INTO t (id, v, name) VALUES (-{id}, 0, 'now')"))?;
        ensure!(client.value(&format!("SELECT v FROM t WHERE id = -{id}"))? == "0");
    }
    ensure!(client.value("SELECT sum(v) FROM t WHERE id > 0")? == "18360");
    ensure!(client.value("SELECT count(*) FROM t")? == "120");
    Ok(())
}

#[test]
fn errors_point_into_the_clients_text() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    let mut plain = Client::connect(&cluster.nodes()[0])?;
    for id in 1..4 {
        let sql = format!("/* who */  SELECT missing FROM t WHERE id = {id} ;");
        let (ours, theirs) = (client.simple(&sql, &[])?, plain.simple(&sql, &[])?);
        let position = |answer: &Answer| {
            let error = answer.error()?;
            error.fields.iter().find(|(code, _)| *code == b'P').map(|(_, at)| at.clone())
        };
        ensure!(position(&ours) == Some("19".to_owned()), "{ours:?}");
        ensure!(position(&ours) == position(&theirs));
    }
    Ok(())
}

#[test]
fn a_changed_schema_is_planned_anew() -> Result<()> {
    let cluster = start()?;
    let mut one = Client::connect(&cluster.endpoint())?;
    let mut other = Client::connect(&cluster.endpoint())?;
    let read =
        |client: &mut Client, id: i32| client.value(&format!("SELECT v FROM t WHERE id = {id}"));
    ensure!(read(&mut one, 1)? == "10" && read(&mut other, 2)? == "20");
    // Every node has every row now, and no row is where the old plan looks for it alone.
    one.query("SELECT tutti_replicate('t')")?;
    one.query("UPDATE t SET v = v + 1")?;
    for id in 1..=ROWS {
        ensure!(read(&mut other, id)? == (id * 10 + 1).to_string());
    }
    other.query("UPDATE t SET v = 0 WHERE id = 7")?;
    ensure!(read(&mut one, 7)? == "0");
    one.query("ALTER TABLE t RENAME TO was_t")?;
    ensure!(refused(&mut other, "SELECT v FROM t WHERE id = 1")?.contains("42P01"));
    Ok(())
}

#[test]
fn what_only_a_transaction_sees_is_not_shared() -> Result<()> {
    let cluster = start()?;
    let mut one = Client::connect(&cluster.endpoint())?;
    let mut other = Client::connect(&cluster.endpoint())?;
    for _ in 0..2 {
        one.query("BEGIN")?;
        one.query("CREATE TABLE u (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
        one.query("INSERT INTO u (id, v) VALUES (5, 50)")?;
        one.query("INSERT INTO u (id, v) VALUES (6, 60)")?;
        ensure!(one.value("SELECT v FROM u WHERE id = 6")? == "60");
        ensure!(refused(&mut other, "SELECT v FROM u WHERE id = 6")?.contains("42P01"));
        one.query("ROLLBACK")?;
        ensure!(refused(&mut one, "SELECT v FROM u WHERE id = 6")?.contains("42P01"));
    }
    // Another table by that name, placed otherwise.
    other.query("CREATE TABLE u (id int, v int) DISTRIBUTE BY REPLICATED")?;
    other.query("INSERT INTO u (id, v) VALUES (6, 61)")?;
    ensure!(one.value("SELECT v FROM u WHERE id = 6")? == "61");
    for node in cluster.nodes() {
        ensure!(Client::connect(&node)?.value("SELECT count(*) FROM u")? == "1");
    }
    Ok(())
}

#[test]
fn names_mean_what_the_session_sees() -> Result<()> {
    let cluster = start()?;
    let mut one = Client::connect(&cluster.endpoint())?;
    let mut other = Client::connect(&cluster.endpoint())?;
    one.query(
        "CREATE SCHEMA s; CREATE TABLE s.t (id int, v int, name text) DISTRIBUTE BY REPLICATED;
         INSERT INTO s.t (id, v) VALUES (1, 111)",
    )?;
    let sql = "SELECT v FROM t WHERE id = 1";
    ensure!(one.value(sql)? == "10" && other.value(sql)? == "10");
    one.query("SET search_path = s, public")?;
    ensure!(one.value(sql)? == "111" && other.value(sql)? == "10");
    other.query("CREATE TEMPORARY TABLE t AS SELECT 1 AS id, 222 AS v")?;
    ensure!(one.value(sql)? == "111" && other.value(sql)? == "222");
    other.query("DROP TABLE pg_temp.t")?;
    one.query("RESET search_path")?;
    ensure!(one.value(sql)? == "10" && other.value(sql)? == "10");
    Ok(())
}

#[test]
fn a_shared_plan_gives_no_rights() -> Result<()> {
    let cluster = start()?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    for role in ["reader", "nobody"] {
        owner.query(&format!("CREATE ROLE {role}"))?;
    }
    owner.query("ALTER TABLE t ENABLE ROW LEVEL SECURITY")?;
    owner.query("GRANT SELECT ON t TO reader")?;
    owner.query("CREATE POLICY few ON t FOR SELECT TO reader USING (id <= 3)")?;
    let as_role = |role: &str| -> Result<Client> {
        let mut client = Client::connect(&cluster.endpoint())?;
        client.query(&format!("SET ROLE {role}"))?;
        Ok(client)
    };
    let (mut reader, mut nobody) = (as_role("reader")?, as_role("nobody")?);
    let texts =
        ["SELECT count(*) FROM t WHERE id = 7", "SELECT count(*) FROM t", "SELECT * FROM t"];
    for sql in texts {
        owner.query(sql)?;
        ensure!(refused(&mut nobody, sql)?.contains("42501"), "{sql}");
    }
    ensure!(owner.value(texts[0])? == "1" && reader.value(texts[0])? == "0");
    ensure!(owner.value(texts[1])? == "60" && reader.value(texts[1])? == "3");
    ensure!(reader.query("SELECT * FROM t")?.len() == 3);
    ensure!(refused(&mut reader, "UPDATE t SET v = 0 WHERE id = 1")?.contains("42501"));
    Ok(())
}

#[test]
fn a_failed_transaction_accepts_no_plan() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    ensure!(client.value("SELECT v FROM t WHERE id = 1")? == "10");
    client.query("BEGIN")?;
    refused(&mut client, "SELECT 1 / 0")?;
    ensure!(refused(&mut client, "SELECT v FROM t WHERE id = 2")?.contains("25P02"));
    client.query("ROLLBACK")?;
    ensure!(client.value("SELECT v FROM t WHERE id = 2")? == "20");
    Ok(())
}

#[test]
fn settings_are_not_taken_for_plain_functions() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for name in ["a", "b", "c"] {
        client.query(&format!("SELECT set_config('application_name', '{name}', false)"))?;
        for id in 1..=9 {
            // Each node is asked what it believes.
            let sql = format!("SELECT current_setting('application_name') FROM t WHERE id = {id}");
            ensure!(client.value(&sql)? == name);
        }
    }
    Ok(())
}

#[test]
fn execute_uses_the_shape_of_its_statement() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("PREPARE p (int) AS SELECT v FROM t WHERE id = $1")?;
    for id in [1, 2, 3, 17, 42] {
        ensure!(client.value(&format!("EXECUTE p ({id})"))? == (id * 10).to_string());
    }
    Ok(())
}
