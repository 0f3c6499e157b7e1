//! Node 1 is away: what does not need its rows goes on, logins and new sessions included.
//!
//! Owns: what that is, and that nothing is mistaken for what node 1 alone has.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tutti_embed::Cluster;
use tutti_gateway::DefaultDistribution;
use tutti_tests::client::{Client, Endpoint, Flight, Request};
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::{gateway, servers};

use crate::stops::until;

fn start() -> Result<(Cluster, GatewayProcess)> {
    let servers = servers::durable(3)?;
    process::init(&servers)?;
    let gateway = GatewayProcess::start(&servers)?;
    Ok((servers, gateway))
}

/// The rows of `t` on a node (by index).
fn ids(servers: &Cluster, node: usize) -> Result<Vec<String>> {
    let mut client = Client::connect(&servers::endpoint(servers, node))?;
    let rows = client.query("SELECT id FROM t ORDER BY id")?;
    rows.into_iter().map(|row| row[0].clone().context("an id")).collect()
}

fn kill_home(servers: &mut Cluster, gateway: &Endpoint) -> Result<()> {
    servers.server_mut(0).kill9()?;
    // Until the gateway has noticed.
    until("node 1 is missed", || Ok(Client::connect_as(gateway, "nobody_knows_it").is_err()))?;
    sleep(Duration::from_secs(1));
    Ok(())
}

fn refused(client: &mut Client, sql: &str) -> Result<String> {
    let answer = client.simple(sql, b"")?;
    Ok(answer.error().with_context(|| format!("{sql} was done"))?.sqlstate().to_owned())
}

#[test]
fn sessions_of_other_nodes_begin_and_go_on() -> Result<()> {
    let (mut servers, gateway) = start()?;
    let at = gateway.endpoint();
    let mut old = Client::connect(&at)?;
    old.query(
        "CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN;
         CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT n, 0 FROM generate_series(1, 60) n;
         CREATE TABLE r (id int PRIMARY KEY, v int) DISTRIBUTE BY REPLICATED;
         INSERT INTO r VALUES (1, 7); GRANT ALL ON t, r TO ann",
    )?;
    old.query("CREATE TABLE alone (a int) DISTRIBUTE BY HOME; GRANT ALL ON alone TO ann")?;
    ensure!(Client::connect_as(&at, "ann")?.value("SELECT v FROM r")? == "7");
    let (two, three) = (ids(&servers, 1)?[0].clone(), ids(&servers, 2)?[0].clone());
    let one = ids(&servers, 0)?[0].clone();
    kill_home(&mut servers, &at)?;
    let begun = Instant::now();
    let mut new = Client::connect_as(&at, "ann")?;
    for client in [&mut old, &mut new] {
        ensure!(client.value("SELECT 1 + 1")? == "2");
        client.query("SET work_mem = '5MB'; SET search_path = public, pg_catalog")?;
        ensure!(client.value("SHOW work_mem")? == "5MB");
        ensure!(client.value("SELECT set_config('statement_timeout', '30s', false)")? == "30s");
        ensure!(refused(client, "SET work_mem = 'much'")? == "22023");
        client.query(&format!("UPDATE t SET v = v + 1 WHERE id = {two}"))?;
        client.query(&format!(
            "BEGIN; SET LOCAL work_mem = '6MB'; UPDATE t SET v = v - 1 WHERE id = {two};
             UPDATE t SET v = v + 1 WHERE id = {three}; COMMIT"
        ))?;
        ensure!(client.value("SHOW work_mem")? == "5MB");
        client.query("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
        ensure!(client.value(&format!("SELECT v FROM t WHERE id = {two}"))? == "0");
        client.value(&format!("SELECT v FROM t WHERE id = {three}"))?;
        ensure!(client.value("SELECT v FROM r")? == "7");
        client.query("COMMIT")?;
        let sql = format!("SELECT v, current_user FROM t WHERE id = {three}");
        let asked = Request { sql: &sql, ..Request::default() };
        let answer = client.extended(&asked, Flight::TwoFlights, b"")?;
        ensure!(answer.error().is_none(), "{answer}");
    }
    ensure!(new.value("SELECT current_user")? == "ann");
    ensure!(new.value(&format!("SELECT v FROM t WHERE id = {three}"))? == "2");
    println!("two sessions did all that in {:.1} s", begun.elapsed().as_secs_f64());
    // Not seen before, so nothing is known of it.
    let unknown = Client::connect_as(&at, "bob").err().context("bob was let in")?;
    ensure!(format!("{unknown:#}").contains("node 1 cannot be asked"), "{unknown:#}");
    // What needs node 1 says so: its rows, its numbers of things, and types that others lack.
    for sql in [
        &format!("SELECT v FROM t WHERE id = {one}"),
        "SELECT 't'::regclass::oid",
        "SELECT 1 WHERE 't'::regclass::int = 1",
        "SELECT 'alone'::regclass",
        "SELECT NULL::alone",
    ] {
        let state = refused(&mut new, sql)?;
        ensure!(state == "57P03", "{state}: {sql}");
    }
    servers.server_mut(0).start()?;
    until("node 1 is taken back", || Ok(new.value("SELECT count(*) FROM t").is_ok()))?;
    // The session is the same there.
    ensure!(
        new.value(&format!("SELECT current_setting('work_mem') FROM t WHERE id = {one}"))? == "5MB"
    );
    ensure!(new.value("SHOW search_path")? == "public, pg_catalog");
    ensure!(new.value("SELECT sum(v) FROM t")? == "2");
    ensure!(Client::connect_as(&at, "bob").is_ok());
    Ok(())
}

/// A name was given to another role since its last login; and one that cannot make a temporary table stops nobody.
#[test]
fn a_role_is_not_taken_for_another_of_its_name() -> Result<()> {
    let (mut servers, gateway) = start()?;
    let at = gateway.endpoint();
    let mut old = Client::connect(&at)?;
    old.query(
        "CREATE TABLE t (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT n, 'secret' FROM generate_series(1, 60) n;
         CREATE ROLE ra LOGIN; CREATE ROLE same LOGIN; CREATE ROLE gone LOGIN; CREATE ROLE locked LOGIN;
         CREATE ROLE expires LOGIN VALID UNTIL '2020-01-01'; GRANT ALL ON t TO ra, same",
    )?;
    for role in ["ra", "same", "gone", "locked", "expires"] {
        Client::connect_as(&at, role)?;
    }
    old.query("ALTER ROLE ra RENAME TO rb; CREATE ROLE ra LOGIN; DROP ROLE gone; ALTER ROLE locked NOLOGIN")?;
    let two = ids(&servers, 1)?[0].clone();
    // After a change of roles a session asks node 1 once what it has begun with.
    old.query(&format!("SELECT v FROM t WHERE id = {two}"))?;
    let who = format!("SELECT session_user || ' ' || v FROM t WHERE id = {two}");
    kill_home(&mut servers, &at)?;
    for role in ["ra", "rb", "gone", "locked"] {
        ensure!(Client::connect_as(&at, role).is_err(), "{role} was let in");
    }
    let mut same = Client::connect_as(&at, "same")?;
    ensure!(same.value(&who)? == "same secret");
    let state = refused(&mut same, "CREATE TEMPORARY TABLE x (i int)")?;
    ensure!(state == "57P03", "{state}");
    let begun = Instant::now();
    ensure!(old.value(&format!("SELECT v FROM t WHERE id = {two}"))? == "secret");
    ensure!(begun.elapsed() < Duration::from_secs(8), "it waited for {:?}", begun.elapsed());
    servers.server_mut(0).start()?;
    until("rb is let in", || Ok(Client::connect_as(&at, "rb").is_ok()))?;
    let mut rb = Client::connect_as(&at, "rb")?;
    for id in [&ids(&servers, 0)?[0], &two, &ids(&servers, 2)?[0]] {
        let who = format!("SELECT session_user || ' ' || v FROM t WHERE id = {id}");
        ensure!(rb.value(&who)? == "rb secret");
    }
    Ok(())
}

/// Node 1 alone has a table of a name that another one has elsewhere.
#[test]
fn what_node_1_alone_has_is_not_mistaken() -> Result<()> {
    let mut servers = servers::durable(2)?;
    let mut config = gateway::config(&servers, String::new());
    config.default_distribution = DefaultDistribution::Home;
    process::init_configured(&config)?;
    let gateway = GatewayProcess::start_configured(config, &[])?;
    let at = gateway.endpoint();
    let mut old = Client::connect(&at)?;
    old.query(
        "CREATE TABLE t (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT n, 'spread' FROM generate_series(1, 20) n;
         CREATE SCHEMA app; CREATE TABLE app.t (id int PRIMARY KEY, v text);
         INSERT INTO app.t SELECT n, 'home' FROM generate_series(1, 20) n;
         CREATE ROLE app LOGIN; GRANT ALL ON SCHEMA app TO app; GRANT ALL ON t, app.t TO app",
    )?;
    let id = ids(&servers, 1)?[0].clone();
    let sql = format!("SELECT v FROM t WHERE id = {id}");
    ensure!(old.value(&sql)? == "spread");
    ensure!(Client::connect_as(&at, "app")?.value(&sql)? == "home");
    kill_home(&mut servers, &at)?;
    // Its role is on node 1 alone, or its path begins with a schema that is.
    if let Ok(mut new) = Client::connect_as(&at, "app") {
        ensure!(new.value(&sql).is_err(), "the other table was read");
    }
    ensure!(old.value(&sql)? == "spread");
    let set = refused(&mut old, "SET search_path = app, public");
    ensure!(set.is_ok_and(|state| state == "57P03") || old.value(&sql).is_err());
    servers.server_mut(0).start()?;
    Ok(())
}
