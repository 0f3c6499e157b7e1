//! What no client may do: write the gateway's own tables, make it believe what is not, or give a
//! table that is not its own another placement.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use tokio::runtime::Runtime;
use tutti_gateway::{Config, DefaultDistribution, Switches};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

const DENIED: &str = "42501";

/// A cluster with an ordinary role and one that may read and write all tables of users, and a
/// distributed table of the former's.
fn cluster() -> Result<TestCluster> {
    let cluster = TestCluster::start(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE ROLE test_app LOGIN")?;
    admin.query("CREATE ROLE test_all LOGIN IN ROLE pg_read_all_data, pg_write_all_data")?;
    admin.query("GRANT CREATE ON SCHEMA public TO test_app")?;
    let mut app = app(&cluster.endpoint())?;
    app.query("CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
    app.query("INSERT INTO t SELECT n, 0 FROM generate_series(1, 30) n")?;
    Ok(cluster)
}

fn app(endpoint: &Endpoint) -> Result<Client> {
    Client::connect_as(endpoint, "test_app")
}

/// The statement must fail with this SQLSTATE.
fn fails(client: &mut Client, sql: &str, sqlstate: &str) -> Result<()> {
    let answer = client.simple(sql, &[])?;
    let found = answer.error().map(|error| error.sqlstate().to_owned());
    ensure!(found.as_deref() == Some(sqlstate), "{sql}: {answer}, not {sqlstate}");
    Ok(())
}

/// Everything that the gateways keep: as one text, and the records of decisions, which the gateway
/// removes when no node needs them any more.
fn contents(node: &Endpoint) -> Result<(String, BTreeSet<String>)> {
    let mut admin = Client::connect(node)?;
    let mut text = String::new();
    for table in ["cluster", "node", "map", "bucket", "placement", "change", "ticket"] {
        let sql = format!("SELECT string_agg(r::text, ' ' ORDER BY r::text) FROM tutti.{table} r");
        text.push_str(&admin.value(&sql)?);
    }
    let decisions = admin.query("SELECT r::text FROM tutti.decision r")?;
    Ok((text, decisions.into_iter().flatten().flatten().collect()))
}

/// Nothing is there now that was not there before, and but for records of decisions the other way round.
fn nothing_was_written(
    (text, decisions): &(String, BTreeSet<String>),
    node: &Endpoint,
) -> Result<()> {
    let (text_now, decisions_now) = contents(node)?;
    ensure!(*text == text_now, "something was written: {text} {text_now}");
    ensure!(decisions_now.is_subset(decisions), "decisions: {decisions:?} {decisions_now:?}");
    Ok(())
}

#[test]
fn nobody_else_writes_the_schema() -> Result<()> {
    let cluster = cluster()?;
    let before: Vec<_> = cluster.nodes().iter().map(contents).collect::<Result<_>>()?;
    const WRITES: [&str; 16] = [
        "INSERT INTO tutti.decision (gid, decision) VALUES ('tutti_test_1_1_1', 'committed')",
        "DELETE FROM tutti.decision",
        "INSERT INTO tutti.placement (relation, kind) VALUES (1, 'home')",
        "UPDATE tutti.placement SET kind = 'replicated', key_attnum = NULL, key_type = NULL, key_typmod = NULL, map = NULL",
        "DELETE FROM tutti.placement",
        "INSERT INTO tutti.map VALUES (99, 'x')",
        "INSERT INTO tutti.bucket VALUES (1, 1, 1)",
        "UPDATE tutti.bucket SET node = 1",
        "INSERT INTO tutti.change VALUES (-100)",
        "INSERT INTO tutti.node VALUES (9)",
        "UPDATE tutti.cluster SET node = 2",
        "INSERT INTO tutti.ticket VALUES ('x')",
        "UPDATE tutti.secret SET secret = ''",
        "INSERT INTO tutti.secret (shape, secret) VALUES (1, '')",
        "CREATE TABLE tutti.mine (id int)",
        "TRUNCATE tutti.decision, tutti.placement",
    ];
    const CALLS: [&str; 6] = [
        "SELECT tutti.record_decision('tutti_test_1_1_1', '')",
        "SELECT tutti.record_decision('tutti_test_1_1_1', NULL)",
        "SELECT tutti.record_decision(NULL, NULL)",
        "SELECT tutti.register('public', 'x', 'home', '', 0, '', '', '')",
        "SELECT tutti.register('public', 'x', 'home', '', 0, '', '', NULL)",
        "SELECT tutti.is_sealed('decision x', '')",
    ];
    for node in cluster.nodes() {
        for role in ["test_app", "test_all"] {
            let mut client = Client::connect_as(&node, role)?;
            for sql in WRITES {
                let answer = client.simple(sql, &[])?;
                // Row security lets a role with the right to write find no row.
                let harmless = ["UPDATE 0", "DELETE 0"];
                let done = answer.to_string();
                let nothing = role == "test_all" && harmless.iter().any(|tag| done.contains(tag));
                let denied = answer.error().is_some_and(|error| error.sqlstate() == DENIED);
                ensure!(denied || nothing, "{role}: {sql}: {done}");
            }
            if role == "test_app" {
                for sql in CALLS {
                    fails(&mut client, sql, DENIED)?;
                }
            } else {
                fails(&mut client, CALLS[0], DENIED)?;
                let seen = client.query("SELECT * FROM tutti.secret")?;
                ensure!(seen.is_empty(), "the secret is seen");
            }
        }
        let mut client = app(&node)?;
        for table in ["secret", "decision", "ticket"] {
            fails(&mut client, &format!("SELECT * FROM tutti.{table}"), DENIED)?;
        }
    }
    // The same through the gateway, also where it cannot see it.
    let mut client = app(&cluster.endpoint())?;
    for sql in WRITES.iter().filter(|sql| !sql.starts_with("CREATE")).chain(&CALLS) {
        let sql = sql.replacen("SELECT ", "PERFORM ", usize::from(sql.starts_with("SELECT")));
        fails(&mut client, &format!("DO $$BEGIN {sql}; END$$"), DENIED)?;
    }
    for (before, node) in before.iter().zip(cluster.nodes()) {
        nothing_was_written(before, &node)?;
    }
    Ok(())
}

/// What a gateway would say, made by a client that knows the secret.
fn seal(node: &Endpoint, client: &mut Client, message: &str) -> Result<String> {
    let of =
        client.value("SELECT pg_backend_pid() || ' ' || encode(timestamptz_send(now()), 'hex')")?;
    Client::connect(node)?.value(&format!(
        "SELECT encode(sha256(secret || sha256(secret || \
         convert_to('{of} {message}', 'UTF8'))), 'hex') FROM tutti.secret"
    ))
}

#[test]
fn a_seal_is_good_for_one_decision_on_one_backend_in_one_transaction() -> Result<()> {
    let mut cluster = cluster()?;
    cluster.leave_unaudited("a decision is recorded that no transaction has");
    let node = &cluster.nodes()[0];
    let (mut one, mut other) = (app(node)?, app(node)?);
    one.query("BEGIN")?;
    let seal = seal(node, &mut one, "decision tutti_test_1_9_9")?;
    let record = |gid: &str| format!("SELECT tutti.record_decision('{gid}', '{seal}')");
    fails(&mut other, &record("tutti_test_1_9_9"), DENIED)?;
    one.query("SAVEPOINT s")?;
    fails(&mut one, &record("tutti_test_1_9_8"), DENIED)?;
    one.query("ROLLBACK TO s")?;
    one.query(&record("tutti_test_1_9_9"))?;
    one.query("SAVEPOINT s")?;
    fails(&mut one, &record("tutti_test_1_9_9"), "23505")?;
    one.query("ROLLBACK")?;
    // A client that has seen it comes too late.
    for begin in ["BEGIN", "ROLLBACK", "BEGIN ISOLATION LEVEL SERIALIZABLE"] {
        one.query(begin)?;
        fails(&mut one, &record("tutti_test_1_9_9"), DENIED)?;
    }
    Ok(())
}

/// Other sessions of a role see what its sessions run, and a log has every text.
#[test]
fn no_text_of_a_statement_holds_a_seal() -> Result<()> {
    let settings = [("log_statement", "all"), ("log_parameter_max_length", "0")];
    let servers = servers::start_with(3, &settings)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE ROLE test_app LOGIN; GRANT ALL ON SCHEMA public TO test_app")?;
    let mut app = app(&cluster.endpoint())?;
    for sql in [
        "CREATE FUNCTION quiet(n int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN n; END'",
        "CREATE TABLE spread (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE copies (id int PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED",
        "INSERT INTO spread SELECT n, 'x' FROM generate_series(1, 30) n",
        "INSERT INTO copies SELECT n, random()::text FROM generate_series(1, 30) n",
        "UPDATE copies SET v = random()::text WHERE id < 9",
        "UPDATE copies SET v = 'x'",
        "BEGIN; CREATE ROLE",
        "BEGIN",
        "CREATE TEMPORARY TABLE seen (id int)",
        "UPDATE spread SET v = 'y'",
        "COMMIT",
        "BEGIN",
        "SAVEPOINT s",
        "SET LOCAL enable_sort = off",
        "CREATE TABLE more (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
        "COMMIT",
        "SELECT tutti_function('quiet', 'row')",
    ] {
        let answer = app.simple(sql, b"")?;
        ensure!(answer.error().is_none() || sql.ends_with("ROLE"), "{sql}: {answer}");
    }
    app.query("ROLLBACK")?;
    for sql in
        ["tutti_replicate('spread')", "tutti_distribute('spread', 'id')", "tutti_home('copies')"]
    {
        admin.query(&format!("SELECT {sql}"))?;
    }
    let is_seal =
        |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut calls = 0;
    for server in cluster.servers().servers() {
        let log = std::fs::read_to_string(server.log_path())?;
        calls += log.matches("SELECT tutti.").count();
        let found = log.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| is_seal(word));
        ensure!(found.is_none(), "a statement holds {found:?}");
    }
    ensure!(20 < calls, "only {calls} calls were logged");
    Ok(())
}

#[test]
fn ordinary_roles_commit_on_several_nodes_in_every_form() -> Result<()> {
    let mut cluster = cluster()?;
    let mut client = app(&cluster.endpoint())?;
    let levels = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
    for level in levels {
        client.query(&format!("BEGIN ISOLATION LEVEL {level}"))?;
        client.query("UPDATE t SET v = v + 1")?;
        client.query("COMMIT")?;
    }
    // What node 1 cannot prepare makes it the anchor, and the record part of the client's COMMIT.
    for turn in 0..2 {
        client.query("BEGIN")?;
        client.query(&format!("CREATE TEMPORARY TABLE seen_{turn} (id int)"))?;
        client.query("UPDATE t SET v = v + 1")?;
        client.query("COMMIT")?;
    }
    assert_eq!(client.value("SELECT DISTINCT v FROM t")?, "5");
    cluster.stop_gateway()
}

#[test]
fn rights_of_alter_table_are_needed_for_another_placement() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE ROLE test_other LOGIN")?;
    admin.query("CREATE ROLE test_formal LOGIN NOINHERIT IN ROLE test_app")?;
    admin.query("GRANT ALL ON t TO test_other")?;
    let before = contents(&cluster.nodes()[1])?;
    let all = ["tutti_round_robin('t')", "tutti_replicate('t')", "tutti_distribute('t', 'v')"];
    for role in ["test_other", "test_formal", "test_all"] {
        let mut client = Client::connect_as(&cluster.endpoint(), role)?;
        for function in all {
            fails(&mut client, &format!("SELECT {function}"), DENIED)?;
        }
    }
    nothing_was_written(&before, &cluster.nodes()[1])?;
    assert_eq!(admin.value("SELECT count(*) FROM t")?, "30");
    // As the owner: what needs no row to travel works, what does wants a superuser.
    let mut formal = Client::connect_as(&cluster.endpoint(), "test_formal")?;
    formal.query("SET ROLE test_app")?;
    formal.query("ALTER TABLE t DROP CONSTRAINT t_pkey")?;
    formal.query("SELECT tutti_round_robin('t')")?;
    fails(&mut formal, "SELECT tutti_replicate('t')", "0A000")?;
    admin.query("SELECT tutti_replicate('t')")?;
    assert_eq!(admin.value("SELECT count(*) FROM t")?, "30");
    Ok(())
}

#[test]
fn names_of_a_clients_own_deceive_nobody_else() -> Result<()> {
    let cluster = cluster()?;
    let mut evil = app(&cluster.endpoint())?;
    for catalog in ["pg_class", "pg_namespace", "pg_proc", "pg_type"] {
        evil.query(&format!("CREATE TEMPORARY TABLE {catalog} (LIKE pg_catalog.{catalog})"))?;
    }
    // Its own DDL may fail; what others are sent must not change.
    let _ = evil.simple("CREATE TABLE public.more (id int)", &[])?;
    drop(evil);
    let mut admin = Client::connect(&cluster.endpoint())?;
    assert_eq!(admin.value("SELECT count(*) FROM t")?, "30");
    assert_eq!(admin.value("SELECT count(*) FROM t a JOIN t b ON a.id = b.id + 1")?, "29");
    Ok(())
}

#[test]
fn policies_must_say_the_same_on_every_node() -> Result<()> {
    let cluster = cluster()?;
    let mut app = app(&cluster.endpoint())?;
    app.query("CREATE TABLE members (t int, member text) DISTRIBUTE BY HASH (t)")?;
    app.query("CREATE TABLE everywhere (t int, member text) DISTRIBUTE BY REPLICATED")?;
    app.query("CREATE VIEW seen AS SELECT * FROM members")?;
    app.query("CREATE VIEW seen_everywhere AS SELECT * FROM everywhere")?;
    app.query(
        "CREATE FUNCTION banned(int) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER AS \
         $$SELECT EXISTS (SELECT FROM members m WHERE m.t = $1)$$",
    )?;
    app.query(
        "CREATE FUNCTION banned_too(int) RETURNS boolean LANGUAGE sql STABLE AS \
         $$SELECT banned($1)$$",
    )?;
    for condition in [
        "NOT EXISTS (SELECT FROM members m WHERE m.t = t.id)",
        "NOT EXISTS (SELECT FROM seen m WHERE m.t = t.id)",
        "NOT banned(id)",
        "NOT banned_too(id)",
        "id < (SELECT currval('s'))",
    ] {
        let _ = app.simple("CREATE SEQUENCE IF NOT EXISTS s", &[])?;
        fails(&mut app, &format!("CREATE POLICY p ON t USING ({condition})"), "0A000")?;
        fails(&mut app, &format!("CREATE POLICY p ON t WITH CHECK ({condition})"), "0A000")?;
    }
    app.query("CREATE POLICY p ON t USING (id > 0)")?;
    fails(&mut app, "ALTER POLICY p ON t USING (banned(id))", "0A000")?;
    app.query(
        "ALTER POLICY p ON t USING (EXISTS (SELECT FROM seen_everywhere e WHERE e.t = t.id))",
    )?;
    // What it refers to must stay on every node.
    fails(&mut app, "SELECT tutti_round_robin('everywhere')", "0A000")?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    fails(&mut admin, "SELECT tutti_round_robin('everywhere')", "0A000")?;
    app.query("DROP POLICY p ON t")?;
    admin.query("SELECT tutti_round_robin('everywhere')")?;
    Ok(())
}

/// A view shows what its owner may see. Where its query is written out it would be what the client may.
#[test]
fn views_that_are_written_out_show_no_rows_by_others_policies() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE spread (k int PRIMARY KEY, a int) DISTRIBUTE BY HASH (k)",
        "CREATE TABLE other (k int PRIMARY KEY, a int) DISTRIBUTE BY HASH (k)",
        "INSERT INTO spread SELECT n, n FROM generate_series(1, 20) n",
        "INSERT INTO other SELECT n, n FROM generate_series(1, 20) n",
        "CREATE POLICY few ON spread USING (k <= 6)",
        "ALTER TABLE spread ENABLE ROW LEVEL SECURITY",
        "GRANT ALL ON spread, other TO test_app",
        "CREATE VIEW of_admin AS SELECT s.k FROM spread s JOIN other o ON s.k = o.a",
        "CREATE VIEW own_rows AS SELECT k FROM spread",
        "GRANT SELECT ON of_admin, own_rows TO test_app",
    ] {
        admin.query(sql)?;
    }
    let mut client = app(&cluster.endpoint())?;
    client.query("CREATE VIEW of_app AS SELECT s.k FROM spread s JOIN other o ON s.k = o.a")?;
    client.query("CREATE VIEW summed AS SELECT count(*) AS n, sum(a) AS a FROM spread")?;
    client.query("CREATE VIEW over AS SELECT o.a FROM of_app v JOIN other o ON o.a = v.k")?;
    client.query(
        "CREATE VIEW of_asker WITH (security_invoker) AS SELECT s.k FROM spread s JOIN other o ON s.k = o.a",
    )?;
    let count =
        |client: &mut Client, view: &str| client.value(&format!("SELECT count(*) FROM {view}"));
    for view in ["of_app", "summed", "over"] {
        fails(&mut admin, &format!("SELECT count(*) FROM {view}"), "0A000")?;
        fails(&mut admin, &format!("COPY (SELECT * FROM {view}) TO STDOUT"), "0A000")?;
        for kept in ["TABLE kept", "TEMPORARY TABLE kept", "TABLE pg_temp.kept"] {
            fails(&mut admin, &format!("CREATE {kept} AS SELECT * FROM {view}"), "0A000")?;
        }
        fails(&mut admin, &format!("SELECT * INTO TEMPORARY kept FROM {view}"), "0A000")?;
        fails(&mut admin, &format!("INSERT INTO other SELECT 100 FROM {view}"), "0A000")?;
    }
    fails(&mut client, "SELECT count(*) FROM of_admin", "0A000")?;
    // To make one over it reads nothing.
    admin.query("CREATE VIEW over_summed AS SELECT * FROM summed")?;
    fails(&mut admin, "SELECT count(*) FROM over_summed", "0A000")?;
    ensure!(count(&mut client, "of_app")? == "6" && count(&mut client, "over")? == "6");
    ensure!(client.value("SELECT n FROM summed")? == "6");
    // As any role that it is.
    admin.query("SET ROLE test_app")?;
    ensure!(count(&mut admin, "of_app")? == "6");
    admin.query("RESET ROLE")?;
    ensure!(count(&mut admin, "of_admin")? == "20");
    ensure!(count(&mut admin, "of_asker")? == "20" && count(&mut client, "of_asker")? == "6");
    // Each node answers as the owner.
    ensure!(count(&mut client, "own_rows")? == "20");
    admin.query("ALTER TABLE spread DISABLE ROW LEVEL SECURITY")?;
    ensure!(count(&mut admin, "of_app")? == "20" && count(&mut client, "of_admin")? == "20");
    Ok(())
}

/// Whose query is written out: nodes ask for the rights on the tables, and nobody but the gateway for those on the view.
#[test]
fn views_that_are_written_out_are_read_by_who_may_read_them() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE d (k int PRIMARY KEY, o int) DISTRIBUTE BY HASH (k)",
        "INSERT INTO d SELECT n, n % 3 FROM generate_series(1, 20) n",
        "GRANT SELECT ON d TO test_app",
        "CREATE SCHEMA closed",
        "CREATE VIEW sums AS SELECT o, count(*) AS n FROM d GROUP BY o",
        "CREATE VIEW firsts AS SELECT k, 'secret' AS x FROM d ORDER BY k LIMIT 3",
        "CREATE VIEW closed.sums AS SELECT o, count(*) AS n FROM d GROUP BY o",
        "GRANT SELECT ON closed.sums TO test_app",
        "CREATE VIEW partly AS SELECT o, count(*) AS n FROM d GROUP BY o",
        "GRANT SELECT (n) ON partly TO test_app",
    ] {
        admin.query(sql)?;
    }
    let mut client = app(&cluster.endpoint())?;
    for view in ["sums", "firsts", "closed.sums"] {
        for sql in [
            format!("SELECT * FROM {view}"),
            format!("SELECT count(*) FROM {view} v JOIN d ON true"),
            format!("COPY (SELECT * FROM {view}) TO STDOUT"),
            format!("CREATE TEMPORARY TABLE kept AS SELECT * FROM {view}"),
            format!("INSERT INTO d SELECT 100, 1 FROM {view}"),
        ] {
            fails(&mut client, &sql, DENIED)?;
        }
    }
    fails(&mut client, "SELECT n FROM partly", "0A000")?;
    // To make one over it reads nothing; to read that does, as who made it.
    client.query(
        "CREATE VIEW own AS SELECT * FROM sums; CREATE VIEW over_own AS SELECT * FROM own",
    )?;
    fails(&mut client, "SELECT * FROM own", DENIED)?;
    fails(&mut client, "SELECT * FROM over_own", DENIED)?;
    fails(&mut admin, "SELECT * FROM own", DENIED)?;
    client.query("PREPARE sums AS SELECT * FROM sums ORDER BY o")?;
    admin.query(
        "GRANT SELECT ON sums, firsts TO test_app; GRANT USAGE ON SCHEMA closed TO test_app",
    )?;
    for _ in 0..2 {
        ensure!(client.query("EXECUTE sums")?.len() == 3);
        ensure!(client.query("SELECT * FROM closed.sums")?.len() == 3);
        ensure!(client.query("SELECT * FROM over_own")?.len() == 3);
    }
    admin.query("REVOKE SELECT ON sums, firsts FROM test_app")?;
    fails(&mut client, "EXECUTE sums", DENIED)?;
    fails(&mut client, "SELECT * FROM firsts", DENIED)
}

/// One object of a list that a node does not have keeps the others from nothing there.
#[test]
fn rights_on_several_views_are_given_and_taken_on_every_node() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE at_home (k int PRIMARY KEY) DISTRIBUTE BY HOME",
        "CREATE TABLE spread (k int PRIMARY KEY) DISTRIBUTE BY HASH (k)",
        "INSERT INTO spread SELECT generate_series(1, 9)",
        "CREATE VIEW of_home AS SELECT * FROM at_home",
        "CREATE VIEW of_spread AS SELECT * FROM spread",
        "CREATE VIEW of_none AS SELECT 1 AS one",
        "CREATE VIEW of_both AS SELECT s.k FROM spread s JOIN at_home h ON h.k = s.k",
    ] {
        admin.query(sql)?;
    }
    let mut client = app(&cluster.endpoint())?;
    let on_nodes = |right: &str| -> Result<Vec<String>> {
        let asked = format!(
            "SELECT string_agg(relname || ' ' || has_table_privilege('test_app', oid, '{right}'), ', ' ORDER BY relname)
             FROM pg_class WHERE relname IN ('of_spread', 'of_none')"
        );
        cluster.nodes().iter().map(|node| Client::connect(node)?.value(&asked)).collect()
    };
    for list in ["of_home, of_spread, of_none", "of_none, of_both, of_spread, spread"] {
        for (sql, holds) in [
            (format!("GRANT SELECT, UPDATE ON {list} TO test_app"), true),
            (format!("REVOKE SELECT, UPDATE ON {list} FROM test_app"), false),
        ] {
            admin.query(&sql)?;
            for right in ["SELECT", "UPDATE"] {
                let said = on_nodes(right)?;
                let expected = format!("of_none {holds}, of_spread {holds}");
                ensure!(said.iter().all(|it| *it == expected), "{sql}: {said:?}");
            }
            for k in 1..=9 {
                let sql = format!("SELECT k FROM of_spread WHERE k = {k}");
                match holds {
                    true => ensure!(client.value(&sql)? == k.to_string()),
                    false => fails(&mut client, &sql, DENIED)?,
                }
            }
        }
    }
    Ok(())
}

#[test]
fn rows_of_copies_are_written_and_read_by_the_gateway_only() -> Result<()> {
    let cluster = cluster()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE TABLE secrets (id int PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED")?;
    admin.query("INSERT INTO secrets VALUES (1, 'a'), (2, 'b')")?;
    let mut client = app(&cluster.endpoint())?;
    for forged in [
        "SELECT tutti.table_rows('public', 'secrets', '')",
        "SELECT tutti.write_rows('public', 'secrets', 'delete', '', '')",
        "SELECT tutti.write_rows('public', 'secrets', 'all', '', NULL)",
    ] {
        fails(&mut client, forged, "42501")?;
        for node in cluster.nodes() {
            fails(&mut app(&node)?, forged, "42501")?;
        }
    }
    // A role that may write some of it without seeing it can do so by row, too.
    admin.query("GRANT INSERT, UPDATE (v) ON secrets TO test_app")?;
    client.query("INSERT INTO secrets VALUES (3, random()::text)")?;
    client.query("INSERT INTO secrets VALUES (4, 'x') ON CONFLICT DO NOTHING")?;
    client.query("UPDATE secrets SET v = random()::text")?;
    fails(&mut client, "UPDATE secrets SET v = random()::text RETURNING v", "42501")?;
    fails(&mut client, "UPDATE secrets SET id = id + (random() * 0)::int", "42501")?;
    fails(&mut client, "DELETE FROM secrets WHERE random() < 2", "42501")?;
    // Row security decides on node 1, for all copies.
    admin.query(
        "ALTER TABLE secrets ENABLE ROW LEVEL SECURITY;
         CREATE POLICY p ON secrets TO test_app USING (id < 3);
         GRANT SELECT, DELETE ON secrets TO test_app",
    )?;
    client.query("UPDATE secrets SET v = 'seen' || random()")?;
    client.query("DELETE FROM secrets WHERE random() < 2 AND id = 2")?;
    assert_eq!(admin.value("SELECT string_agg(id::text, ',' ORDER BY id) FROM secrets")?, "1,3,4");
    assert_eq!(admin.value("SELECT count(*) FROM secrets WHERE v LIKE 'seen%'")?, "1");
    Ok(())
}

#[test]
fn the_schema_of_an_earlier_version_is_closed_at_the_start() -> Result<()> {
    let servers = servers::start(2)?;
    let runtime = Runtime::new()?;
    runtime.block_on(tutti_gateway::init(&config(&servers, "127.0.0.1:1".to_owned()), false))?;
    for index in 0..2 {
        let mut admin = Client::connect(&servers::endpoint(&servers, index))?;
        admin.query("CREATE ROLE test_app LOGIN")?;
        admin.query("GRANT CREATE ON SCHEMA public TO test_app")?;
        admin.query("DROP TABLE tutti.secret CASCADE")?;
        admin.query(
            "DROP FUNCTION tutti.is_sealed, tutti.record_decision, tutti.register, \
             tutti.note_change, tutti.forget_dropped, tutti.insert_ticket CASCADE",
        )?;
        for table in
            ["cluster", "node", "map", "bucket", "placement", "change", "decision", "ticket"]
        {
            admin.query(&format!("DROP POLICY IF EXISTS readable ON tutti.{table}"))?;
            admin.query(&format!("ALTER TABLE tutti.{table} DISABLE ROW LEVEL SECURITY"))?;
        }
        admin.query("GRANT SELECT ON ALL TABLES IN SCHEMA tutti TO PUBLIC")?;
        admin.query(
            "GRANT INSERT ON tutti.decision, tutti.ticket, tutti.change, tutti.map, tutti.bucket \
             TO PUBLIC",
        )?;
        admin.query("GRANT INSERT, UPDATE, DELETE ON tutti.placement TO PUBLIC, test_app")?;
        // What the new tables would be given to.
        admin.query("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO test_app")?;
    }
    drop(runtime);
    let mut cluster = TestCluster::start_with(servers, Switches::default())?;
    let mut client = app(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int) DISTRIBUTE BY HASH (id)")?;
    client.query("INSERT INTO t SELECT n FROM generate_series(1, 30) n")?;
    assert_eq!(client.value("SELECT count(*) FROM t")?, "30");
    for node in cluster.nodes() {
        let mut client = app(&node)?;
        fails(&mut client, "DELETE FROM tutti.placement", DENIED)?;
        fails(&mut client, "SELECT * FROM tutti.secret", DENIED)?;
        fails(
            &mut client,
            "INSERT INTO tutti.decision (gid, decision) VALUES ('tutti_test_1_1_1', 'committed')",
            DENIED,
        )?;
    }
    cluster.stop_gateway()
}

/// What an ordinary role has written runs under roles of clients, never under the gateway's.
#[test]
fn code_of_users_does_not_run_as_the_gateway() -> Result<()> {
    let servers = servers::start(2)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE ROLE test_app LOGIN; GRANT CREATE ON SCHEMA public TO test_app")?;
    let mut app = app(&cluster.endpoint())?;
    for sql in [
        "CREATE FUNCTION rises() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
            IF current_user = 'postgres' THEN EXECUTE 'ALTER ROLE test_app SUPERUSER'; END IF; END $$",
        "CREATE FUNCTION harmless(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
            'BEGIN PERFORM public.rises(); RETURN true; END'",
        "CREATE FUNCTION same(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
            'BEGIN PERFORM public.rises(); RETURN x; END'",
        "CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM public.rises(); RETURN new; END'",
        "CREATE DOMAIN checked AS int CHECK (harmless(1) AND harmless(value))",
        "CREATE FUNCTION adds(checked, int) RETURNS checked LANGUAGE sql IMMUTABLE AS 'SELECT $1'",
        "CREATE AGGREGATE total(int) (SFUNC = adds, STYPE = checked, INITCOND = '1')",
        "CREATE TABLE folded (id int PRIMARY KEY, n int, CHECK (harmless(1))) DISTRIBUTE BY REPLICATED",
        "SELECT tutti_function('rises', 'row'); SELECT tutti_function('harmless', 'row');
         SELECT tutti_function('same', 'row'); SELECT tutti_function('stays', 'row')",
        "CREATE TABLE by_check (id int PRIMARY KEY, n int, CHECK (harmless(n))) DISTRIBUTE BY REPLICATED",
        "CREATE TABLE by_type (id int PRIMARY KEY, n checked) DISTRIBUTE BY REPLICATED",
        "CREATE TABLE by_column (id int PRIMARY KEY, n int, s int GENERATED ALWAYS AS (same(n)) STORED)
            DISTRIBUTE BY REPLICATED",
        "CREATE TABLE by_index (id int PRIMARY KEY, n int) DISTRIBUTE BY REPLICATED",
        "CREATE INDEX ON by_index (same(n))",
        "CREATE TABLE by_trigger (id int PRIMARY KEY, n int) DISTRIBUTE BY REPLICATED",
        "CREATE TRIGGER t BEFORE INSERT OR UPDATE ON by_trigger FOR EACH ROW EXECUTE FUNCTION stays()",
        "ALTER TABLE by_trigger ENABLE ALWAYS TRIGGER t",
        "CREATE TABLE plain (id int PRIMARY KEY, n int CHECK (n >= 0)) DISTRIBUTE BY REPLICATED",
    ] {
        // An index of such code is refused.
        let answer = app.simple(sql, &[])?;
        let told = answer.error().map(|error| error.sqlstate().to_owned());
        ensure!(told.as_deref().is_none_or(|told| told == "0A000"), "{sql}: {answer}");
    }
    for table in ["folded", "by_check", "by_type", "by_column", "by_index", "by_trigger", "plain"] {
        for sql in [
            format!(
                "INSERT INTO {table} (id, n) SELECT g, 10 * random() FROM generate_series(1, 20) g"
            ),
            format!("UPDATE {table} SET n = n + (10 * random())::int"),
            format!("DELETE FROM {table} WHERE random() < 0.2"),
        ] {
            // Some of it is refused; whatever is not leaves equal copies.
            let answer = app.simple(&sql, &[])?;
            let told = answer.error().map(|error| error.sqlstate().to_owned());
            ensure!(told.as_deref().is_none_or(|told| told == "0A000"), "{sql}: {answer}");
            ensure!(told.is_none() || table != "plain", "{sql}: {answer}");
        }
        let rows =
            format!("SELECT coalesce(string_agg(t::text, ' ' ORDER BY id), '') FROM {table} t");
        let nodes = cluster.nodes();
        let copies = nodes.iter().map(|node| Client::connect(node)?.value(&rows));
        let copies = copies.collect::<Result<BTreeSet<_>>>()?;
        ensure!(copies.len() == 1, "{table}: {copies:?}");
    }
    for node in cluster.nodes() {
        let mut node = Client::connect(&node)?;
        let rose = node.value("SELECT rolsuper FROM pg_roles WHERE rolname = 'test_app'")?;
        ensure!(rose == "f", "test_app has become a superuser");
    }
    Ok(())
}
