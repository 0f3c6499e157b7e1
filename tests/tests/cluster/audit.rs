//! The auditor: every kind of damage, planted on the nodes themselves, is found and named; and nothing is
//! found where there is none, whatever happens meanwhile.
//!
//! Owns: the plants. Auditing the cluster of every other test is up to `tutti_tests::audit`.
//! Start reading at [`every_kind_of_damage_is_found_and_named`].

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_gateway::audit::{Finding, Kind, Report};
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::{programs, servers};

const SCHEMA: &[&str] = &[
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE TABLE r (id int PRIMARY KEY, n numeric, f float8, t text, m mood, a mood[], at timestamptz,
        j jsonb) DISTRIBUTE BY REPLICATED",
    "INSERT INTO r SELECT g, g, g / 3.0, 't' || g, 'ok', '{sad,happy}', '2026-01-01', '{\"a\": 1}'
        FROM generate_series(1, 500) g",
    "CREATE TABLE bag (v int, w text) DISTRIBUTE BY REPLICATED",
    "INSERT INTO bag SELECT g % 5, 'w' FROM generate_series(1, 50) g",
    "CREATE TABLE h (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id)",
    "INSERT INTO h SELECT g, 'v' || g FROM generate_series(1, 300) g",
    "CREATE TABLE parted (id int, k date, PRIMARY KEY (id, k)) PARTITION BY RANGE (k) DISTRIBUTE BY HASH (id)",
    "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
    "INSERT INTO parted SELECT g, '2026-02-02' FROM generate_series(1, 100) g",
    "CREATE TABLE words (w varchar(20), v int) DISTRIBUTE BY HASH (w)",
    "INSERT INTO words SELECT 'word ' || g, g FROM generate_series(1, 100) g",
    "CREATE TABLE rr (v int) DISTRIBUTE BY ROUND ROBIN",
    "INSERT INTO rr SELECT g FROM generate_series(1, 100) g",
    "CREATE TABLE home (id serial PRIMARY KEY, v int) DISTRIBUTE BY HOME",
    "INSERT INTO home (v) SELECT g FROM generate_series(1, 20) g",
    "CREATE SEQUENCE s",
    "CREATE INDEX r_t ON r (t)",
    "CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2'",
    "CREATE ROLE audited NOLOGIN",
    "GRANT SELECT ON r TO audited",
];

fn start() -> Result<TestCluster> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for sql in SCHEMA {
        client.query(sql).with_context(|| (*sql).to_owned())?;
    }
    Ok(cluster)
}

/// What is done to a node, how it is undone, and what must be found.
struct Plant {
    node: usize,
    damage: &'static str,
    repair: &'static str,
    kind: Kind,
    object: &'static str,
    /// In the finding's text.
    says: &'static str,
}

/// Of [`SCHEMA`] beside a gateway that runs. Keys: bucket 0 of NULL is node 1's.
const PLANTS: &[Plant] = &[
    Plant {
        node: 2,
        damage: "UPDATE r SET t = 'other' WHERE id = 7",
        repair: "UPDATE r SET t = 't7' WHERE id = 7",
        kind: Kind::CopiesDiffer,
        object: "public.r",
        says: "(id) = (7) differs",
    },
    Plant {
        node: 3,
        damage: "DELETE FROM r WHERE id IN (8, 9)",
        repair: "INSERT INTO r SELECT g, g, g / 3.0, 't' || g, 'ok', '{sad,happy}', '2026-01-01',
            '{\"a\": 1}' FROM generate_series(8, 9) g",
        kind: Kind::CopiesDiffer,
        object: "public.r",
        says: "(id) = (9) missing on n3",
    },
    Plant {
        node: 1,
        damage: "INSERT INTO r (id) VALUES (1000)",
        repair: "DELETE FROM r WHERE id = 1000",
        kind: Kind::CopiesDiffer,
        object: "public.r",
        says: "(id) = (1000) missing on n2",
    },
    // Values that are equal and not the same.
    Plant {
        node: 2,
        damage: "UPDATE r SET n = 7.0 WHERE id = 7",
        repair: "UPDATE r SET n = 7 WHERE id = 7",
        kind: Kind::CopiesDiffer,
        object: "public.r",
        says: "(id) = (7) differs",
    },
    Plant {
        node: 2,
        damage: "UPDATE r SET t = NULL WHERE id = 11",
        repair: "UPDATE r SET t = 't11' WHERE id = 11",
        kind: Kind::CopiesDiffer,
        object: "public.r",
        says: "(id) = (11) differs",
    },
    Plant {
        node: 3,
        damage: "UPDATE r SET a = '[0:1]={sad,happy}' WHERE id = 12",
        repair: "UPDATE r SET a = '{sad,happy}' WHERE id = 12",
        kind: Kind::CopiesDiffer,
        object: "public.r",
        says: "(id) = (12) differs",
    },
    Plant {
        node: 3,
        damage: "UPDATE r SET f = f + 1e-14 WHERE id = 1",
        repair: "UPDATE r SET f = 1 / 3.0 WHERE id = 1",
        kind: Kind::CopiesDiffer,
        object: "public.r",
        says: "(id) = (1) differs",
    },
    // As many rows as elsewhere, and the same ones, but not so often.
    Plant {
        node: 2,
        damage: "UPDATE bag SET v = 3 WHERE ctid = (SELECT min(ctid) FROM bag WHERE v = 2)",
        repair: "UPDATE bag SET v = 2 WHERE ctid = (SELECT max(ctid) FROM bag WHERE v = 3)",
        kind: Kind::CopiesDiffer,
        object: "public.bag",
        says: "row (3, w) differs",
    },
    Plant {
        node: 2,
        damage: "INSERT INTO h SELECT g, 'stray' FROM generate_series(100001, 100200) g
            WHERE (SELECT b.node FROM tutti.bucket b JOIN tutti.placement p USING (map)
                WHERE p.relation = 'h'::regclass AND b.bucket = hashint4extended(g, 0) & 1023) = 3 LIMIT 1",
        repair: "DELETE FROM h WHERE v = 'stray'",
        kind: Kind::StrayRows,
        object: "public.h",
        says: "belongs to n3",
    },
    Plant {
        node: 1,
        damage: "INSERT INTO parted SELECT g, '2026-03-03' FROM generate_series(1, 200) g
            WHERE (SELECT b.node FROM tutti.bucket b JOIN tutti.placement p USING (map)
                WHERE p.relation = 'parted'::regclass AND b.bucket = hashint4extended(g, 0) & 1023) = 2 LIMIT 1",
        repair: "DELETE FROM parted WHERE k = '2026-03-03'",
        kind: Kind::StrayRows,
        object: "public.parted_1",
        says: "belongs to n2",
    },
    Plant {
        node: 3,
        damage: "INSERT INTO words VALUES (NULL, 1)",
        repair: "DELETE FROM words WHERE w IS NULL",
        kind: Kind::StrayRows,
        object: "public.words",
        says: "(NULL) belongs to n1",
    },
    Plant {
        node: 3,
        damage: "INSERT INTO h SELECT g, 'twice' FROM generate_series(1, 300) g
            WHERE (SELECT b.node FROM tutti.bucket b JOIN tutti.placement p USING (map)
                WHERE p.relation = 'h'::regclass AND b.bucket = hashint4extended(g, 0) & 1023) = 1 LIMIT 1",
        repair: "DELETE FROM h WHERE v = 'twice'",
        kind: Kind::DuplicateKeys,
        object: "public.h",
        says: "are here and on n3 too",
    },
    Plant {
        node: 2,
        damage: "INSERT INTO home (id, v) VALUES (1, 1)",
        repair: "DELETE FROM home",
        kind: Kind::HomeRows,
        object: "public.home",
        says: "1 rows here",
    },
    Plant {
        node: 2,
        damage: "ALTER TABLE h ALTER v SET DEFAULT 'x'",
        repair: "ALTER TABLE h ALTER v DROP DEFAULT",
        kind: Kind::Definition,
        object: "public.h.v",
        says: "'x'::text",
    },
    Plant {
        node: 3,
        damage: "DROP INDEX r_t",
        repair: "CREATE INDEX r_t ON r (t)",
        kind: Kind::Definition,
        object: "public.r.r_t",
        says: "missing here",
    },
    Plant {
        node: 3,
        damage: "REVOKE SELECT ON r FROM audited",
        repair: "GRANT SELECT ON r TO audited",
        kind: Kind::Definition,
        object: "public.r",
        says: "rights",
    },
    Plant {
        node: 2,
        damage: "CREATE OR REPLACE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 3'",
        repair: "CREATE OR REPLACE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2'",
        kind: Kind::Definition,
        object: "public.twice(integer)",
        says: "function",
    },
    Plant {
        node: 2,
        damage: "ALTER ROLE audited CREATEROLE",
        repair: "ALTER ROLE audited NOCREATEROLE",
        kind: Kind::Definition,
        object: "audited",
        says: "createrole t",
    },
    Plant {
        node: 3,
        damage: "CREATE ROLE past_the_gateway",
        repair: "DROP ROLE past_the_gateway",
        kind: Kind::Definition,
        object: "past_the_gateway",
        says: "missing on n1",
    },
    Plant {
        node: 2,
        damage: "ALTER SCHEMA public OWNER TO audited",
        repair: "ALTER SCHEMA public OWNER TO pg_database_owner",
        kind: Kind::Definition,
        object: "public",
        says: "of audited",
    },
    Plant {
        node: 3,
        damage: "ALTER TYPE mood OWNER TO audited",
        repair: "ALTER TYPE mood OWNER TO postgres",
        kind: Kind::Definition,
        object: "public.mood",
        says: "of audited",
    },
    Plant {
        node: 2,
        damage: "ALTER EVENT TRIGGER tutti_guard ENABLE",
        repair: "ALTER EVENT TRIGGER tutti_guard ENABLE ALWAYS",
        kind: Kind::Schema,
        object: "guard of the schema",
        says: "off",
    },
    Plant {
        node: 3,
        damage: "CREATE FUNCTION planted() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER FUNCTION planted() OWNER TO audited",
        repair: "DROP FUNCTION planted()",
        kind: Kind::Definition,
        object: "routine public.planted()",
        says: "missing on n1",
    },
    Plant {
        node: 2,
        damage: "CREATE TABLE past_the_gateway (id int)",
        repair: "DROP TABLE past_the_gateway",
        kind: Kind::Definition,
        object: "public.past_the_gateway",
        says: "missing on n1",
    },
    Plant {
        node: 3,
        damage: "UPDATE tutti.placement SET kind = 'round_robin', key_attnum = NULL, key_type = NULL,
            key_typmod = NULL, map = NULL WHERE relation = 'words'::regclass",
        repair: "UPDATE tutti.placement SET kind = 'hash', key_attnum = 1, key_type = 'varchar'::regtype,
            key_typmod = 24, map = 2 WHERE relation = 'words'::regclass",
        kind: Kind::Placement,
        object: "public.words",
        says: "round_robin here",
    },
    Plant {
        node: 2,
        damage: "INSERT INTO tutti.placement (relation, kind) VALUES (4242424, 'replicated')",
        repair: "DELETE FROM tutti.placement WHERE relation = 4242424",
        kind: Kind::Placement,
        object: "OID 4242424",
        says: "not there",
    },
    Plant {
        node: 3,
        damage: "UPDATE tutti.bucket SET node = 3 - node WHERE bucket IN (1, 2) AND map = 1",
        repair: "UPDATE tutti.bucket SET node = 3 - node WHERE bucket IN (1, 2) AND map = 1",
        kind: Kind::Map,
        object: "map 1",
        says: "map",
    },
    Plant {
        node: 2,
        damage: "DELETE FROM tutti.bucket WHERE map = 1 AND bucket = 77",
        repair: "INSERT INTO tutti.bucket VALUES (1, 77, 1)",
        kind: Kind::Map,
        object: "map 1",
        says: "not 1024",
    },
    Plant {
        node: 2,
        damage: "ALTER FUNCTION tutti.insert_ticket() SECURITY INVOKER",
        repair: "ALTER FUNCTION tutti.insert_ticket() SECURITY DEFINER",
        kind: Kind::Schema,
        object: "function insert_ticket()",
        says: "tutti",
    },
    Plant {
        node: 3,
        damage: "GRANT INSERT ON tutti.decision TO audited",
        repair: "REVOKE INSERT ON tutti.decision FROM audited",
        kind: Kind::Schema,
        object: "table decision",
        says: "audited INSERT",
    },
    Plant {
        node: 2,
        damage: "SELECT setval('s', 5)",
        repair: "SELECT setval('s', 9223372036854775807)",
        kind: Kind::Sequence,
        object: "public.s",
        says: "only node 1",
    },
    Plant {
        node: 2,
        damage: "INSERT INTO tutti.decision VALUES ('tutti_test_1_70_2', 'committed', now() - interval '9 days')",
        repair: "DELETE FROM tutti.decision WHERE gid = 'tutti_test_1_70_2'",
        kind: Kind::Decision,
        object: "tutti_test_1_70_2",
        says: "9 days old",
    },
    Plant {
        node: 2,
        damage: "INSERT INTO tutti.decision VALUES ('tutti_test_1_71_3', 'aborted')",
        repair: "DELETE FROM tutti.decision WHERE gid = 'tutti_test_1_71_3'",
        kind: Kind::Decision,
        object: "tutti_test_1_71_3",
        says: "belongs to its anchor n3",
    },
    Plant {
        node: 1,
        damage: "INSERT INTO tutti.decision VALUES ('nonsense', 'aborted')",
        repair: "DELETE FROM tutti.decision WHERE gid = 'nonsense'",
        kind: Kind::Decision,
        object: "nonsense",
        says: "no transaction",
    },
    // Past the gateway, which goes on with what it knows.
    Plant {
        node: 1,
        damage: "CREATE TABLE unknown_to_the_gateway (id int)",
        repair: "DROP TABLE unknown_to_the_gateway",
        kind: Kind::Memory,
        object: "catalog in memory",
        says: "unknown_to_the_gateway",
    },
];

fn find<'a>(report: &'a Report, kind: Kind, object: &str) -> Option<&'a Finding> {
    report.findings.iter().find(|finding| finding.kind == kind && finding.object == object)
}

fn must_find(report: &Report, plant: &Plant) -> Result<()> {
    let Plant { node, damage, kind, object, says, .. } = plant;
    let all = report.findings.iter().filter(|it| it.kind == *kind && it.object == *object);
    let told: Vec<_> = all.map(ToString::to_string).collect();
    ensure!(
        told.iter().any(|told| told.contains(says)),
        "node {node}, {damage}: {kind:?} of {object} that says {says:?} is not in\n{report}"
    );
    Ok(())
}

fn must_be_clean(report: &Report) -> Result<()> {
    ensure!(report.is_clean(), "{report}");
    Ok(())
}

#[test]
fn every_kind_of_damage_is_found_and_named() -> Result<()> {
    let cluster = start()?;
    must_be_clean(&cluster.audit()?)?;
    let nodes = cluster.nodes();
    for plant in PLANTS {
        let mut node = Client::connect(&nodes[plant.node - 1])?;
        node.query(plant.damage).with_context(|| plant.damage.to_owned())?;
        let report = cluster.audit()?;
        node.query(plant.repair).with_context(|| plant.repair.to_owned())?;
        must_find(&report, plant)?;
        // What the gateway has in memory is as it was: it was not told of a change and back.
        must_be_clean(&cluster.audit()?).with_context(|| plant.repair.to_owned())?;
    }
    Ok(())
}

#[test]
fn what_a_gateway_leaves_behind_is_found() -> Result<()> {
    let mut cluster = start()?;
    cluster.stop_gateway()?;
    cluster.leave_unaudited("a backend of a dead gateway is left");
    let nodes = cluster.nodes();
    must_be_clean(&cluster.audit()?)?;

    let mut node = Client::connect(&nodes[1])?;
    for sql in
        ["BEGIN", "UPDATE r SET t = 'half' WHERE id = 3", "PREPARE TRANSACTION 'tutti_test_1_99_1'"]
    {
        node.query(sql)?;
    }
    let report = cluster.audit()?;
    let found = find(&report, Kind::Prepared, "tutti_test_1_99_1").context("orphan")?;
    ensure!(found.message.contains("not decided") && found.node == Some(2), "{found}");
    ensure!(report.findings.len() == 1 && report.unchecked.is_empty(), "{report}");

    // Decided: what the copies are is not known yet.
    let mut home = Client::connect(&nodes[0])?;
    home.query("UPDATE r SET t = 'half' WHERE id = 3")?;
    home.query("INSERT INTO tutti.decision VALUES ('tutti_test_1_99_1', 'committed')")?;
    let report = cluster.audit()?;
    let found = find(&report, Kind::Prepared, "tutti_test_1_99_1").context("orphan")?;
    ensure!(found.message.contains("committed"), "{found}");
    ensure!(report.findings.len() == 1, "{report}");
    ensure!(report.unchecked.iter().any(|it| it.what == "table public.r"), "{report}");
    node.query("COMMIT PREPARED 'tutti_test_1_99_1'")?;
    Client::connect(&nodes[2])?.query("UPDATE r SET t = 'half' WHERE id = 3")?;

    // Recorded both ways.
    node.query("INSERT INTO tutti.decision VALUES ('tutti_test_1_99_1', 'aborted')")?;
    let report = cluster.audit()?;
    let both = report.findings.iter().any(|it| it.message.contains("and as aborted"));
    ensure!(both, "{report}");
    for node in [&mut node, &mut home] {
        node.query("DELETE FROM tutti.decision")?;
    }

    node.query("INSERT INTO tutti.ticket SELECT '' FROM generate_series(1, 100001)")?;
    let report = cluster.audit()?;
    ensure!(report.kinds() == [Kind::Tickets].into(), "{report}");
    node.query("TRUNCATE tutti.ticket")?;

    // A foreign one is reported, and is nothing wrong.
    for sql in ["BEGIN", "UPDATE h SET v = v", "PREPARE TRANSACTION 'mine'"] {
        node.query(sql)?;
    }
    let report = cluster.audit()?;
    ensure!(report.is_clean() && report.notes.iter().any(|it| it.contains("mine")), "{report}");
    node.query("ROLLBACK PREPARED 'mine'")?;

    // It must be old enough.
    let mut left = Client::connect(&nodes[1])?;
    left.query("SET application_name = 'tutti exporter'")?;
    sleep(Duration::from_secs(11));
    let report = cluster.audit()?;
    ensure!(report.kinds() == [Kind::Backend].into(), "{report}");
    drop(left);
    Ok(())
}

/// What the auditor runs as a superuser must not be user-defined code: planning a scan of these tables
/// would run it.
#[test]
fn no_code_of_users_runs_and_such_tables_are_compared_all_the_same() -> Result<()> {
    const TRAP: &str =
        "CREATE FUNCTION trap(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
        IF current_setting('application_name') = 'tutti check' THEN
            RAISE EXCEPTION 'caught %', current_user;
        END IF;
        RETURN $1; END $$";
    let cluster = start()?;
    let nodes = cluster.nodes();
    for node in &nodes {
        let mut node = Client::connect(node)?;
        for sql in [
            TRAP,
            "CREATE INDEX r_trap ON r ((id + trap(1)))",
            "CREATE INDEX h_trap ON h (id) WHERE trap(2) = 2",
            "CREATE STATISTICS bag_trap ON (v + trap(3)), w FROM bag",
            "CREATE CAST (mood AS text) WITH FUNCTION mood_text(mood)",
        ] {
            if sql.starts_with("CREATE CAST") {
                node.query(
                    "CREATE FUNCTION mood_text(mood) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
                     $$ BEGIN RETURN 'm' || trap(4); END $$",
                )?;
            }
            node.query(sql)?;
        }
        // As an operator that every name would find.
        node.query(
            "CREATE FUNCTION public.sum(bigint) RETURNS bigint LANGUAGE plpgsql AS
             $$ BEGIN RETURN trap(5); END $$",
        )?;
    }
    let report = cluster.audit()?;
    // The gateway was told nothing of these.
    ensure!(report.kinds() == [Kind::Memory].into(), "{report}");
    ensure!(report.unchecked.is_empty(), "{report}");
    let mut node = Client::connect(&nodes[1])?;
    for sql in [
        "UPDATE r SET n = 1.0 WHERE id = 1",
        "UPDATE bag SET w = 'x' WHERE v = 1",
        "INSERT INTO h SELECT g, 'stray' FROM generate_series(100001, 100200) g
            WHERE (SELECT b.node FROM tutti.bucket b JOIN tutti.placement p USING (map)
                WHERE p.relation = 'h'::regclass AND b.bucket = hashint4extended(g, 0) & 1023) = 3 LIMIT 1",
    ] {
        node.query(sql)?;
    }
    let report = cluster.audit()?;
    for (kind, object) in [
        (Kind::CopiesDiffer, "public.r"),
        (Kind::CopiesDiffer, "public.bag"),
        (Kind::StrayRows, "public.h"),
    ] {
        ensure!(find(&report, kind, object).is_some_and(|it| it.node == Some(2)), "{report}");
    }
    ensure!(report.unchecked.is_empty(), "{report}");
    for sql in [
        "UPDATE r SET n = 1 WHERE id = 1",
        "UPDATE bag SET w = 'w' WHERE v = 1",
        "DELETE FROM h WHERE v = 'stray'",
    ] {
        node.query(sql)?;
    }
    let mut cluster = cluster;
    cluster.leave_unaudited("its gateway was not told of functions");
    Ok(())
}

#[test]
fn a_node_that_is_down_is_told_and_the_others_are_looked_at() -> Result<()> {
    let mut cluster = start()?;
    Client::connect(&cluster.nodes()[1])?.query("UPDATE r SET t = 'other' WHERE id = 7")?;
    for (down, finds) in [(2, true), (0, false)] {
        cluster.servers_mut().server_mut(down).stop()?;
        let report = cluster.audit()?;
        let name = format!("node n{}", down + 1);
        ensure!(report.unchecked.iter().any(|it| it.what == name), "{report}");
        let found = find(&report, Kind::CopiesDiffer, "public.r").is_some();
        // Two of the copies are left, in either case.
        ensure!(found, "{down}, {finds}: {report}");
        cluster.servers_mut().server_mut(down).start()?;
    }
    Client::connect(&cluster.nodes()[1])?.query("UPDATE r SET t = 't7' WHERE id = 7")?;
    Ok(())
}

/// Transactions over all nodes, keys that move, placements that change, tables that come, go and are
/// emptied: nothing of it is damage.
#[test]
fn beside_load_nothing_is_found() -> Result<()> {
    const SECONDS: u64 = 12;
    let cluster = start()?;
    let endpoint = cluster.endpoint();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let (endpoint, ended) = (&endpoint, &ended);
        let workers: Vec<_> = (0..4)
            .map(|seed| scope.spawn(move || work(endpoint, seed, ended)))
            .chain([scope.spawn(move || rearrange(endpoint, ended))])
            .collect();
        let begun = Instant::now();
        let mut audits = 0;
        let mut judged = Ok(());
        let mut unchecked = 0;
        while begun.elapsed() < Duration::from_secs(SECONDS) && judged.is_ok() {
            let report = cluster.audit()?;
            audits += 1;
            unchecked += report.unchecked.len();
            if !report.findings.is_empty() {
                judged = Err(anyhow::anyhow!("{report}"));
            }
        }
        ended.store(true, Ordering::Relaxed);
        let mut done = 0;
        for worker in workers {
            done += worker.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        println!("{audits} audits beside {done} transactions, {unchecked} things not checked");
        judged?;
        ensure!(audits > 3 && done > 50, "{audits} audits beside {done} transactions");
        Ok(())
    })?;
    must_be_clean(&cluster.audit()?)
}

const EXPECTED: &[&str] = &["40001", "40P01", "42P01", "55P03", "23505", "57P03", "25P02"];

fn run(client: &mut Client, sql: &str) -> Result<bool> {
    let answer = client.simple(sql, b"")?;
    match answer.error() {
        None => Ok(true),
        Some(error) if EXPECTED.contains(&error.sqlstate()) => {
            client.simple("ROLLBACK", b"")?;
            Ok(false)
        }
        Some(error) => bail!("{sql}: {} {}", error.sqlstate(), error.message()),
    }
}

fn work(endpoint: &Endpoint, seed: u64, ended: &AtomicBool) -> Result<u32> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut client = Client::connect(endpoint)?;
    let mut done = 0;
    while !ended.load(Ordering::Relaxed) {
        let (a, b) = (random.random_range(1..=300), random.random_range(1..=300));
        let new = random.random_range(1000..100_000);
        let statements = match random.random_range(0..6) {
            0 => vec![format!("UPDATE r SET t = 'x{new}' WHERE id = {a}")],
            1 => vec![format!("UPDATE h SET id = {new} WHERE id = {a}")],
            2 => vec![
                "BEGIN".to_owned(),
                format!("UPDATE h SET v = 'y{new}' WHERE id IN ({a}, {b})"),
                format!("DELETE FROM r WHERE id = {b}"),
                format!("INSERT INTO r (id, n) VALUES ({b}, {new}.50)"),
                "COMMIT".to_owned(),
            ],
            3 => vec![format!("INSERT INTO bag VALUES ({a}, 'b{b}')")],
            4 => vec![format!("INSERT INTO words VALUES ('new {new}', 1), ('also {new}', 2)")],
            _ => vec![format!("DELETE FROM words WHERE w = 'word {a}'")],
        };
        let mut all = true;
        for sql in &statements {
            all = all && run(&mut client, sql)?;
        }
        done += u32::from(all);
    }
    Ok(done)
}

fn rearrange(endpoint: &Endpoint, ended: &AtomicBool) -> Result<u32> {
    let mut client = Client::connect(endpoint)?;
    let mut done = 0;
    while !ended.load(Ordering::Relaxed) {
        for sql in [
            "SELECT tutti_replicate('words')",
            "SELECT tutti_distribute('words', 'w')",
            "TRUNCATE bag",
            "ALTER TABLE bag ALTER v TYPE bigint",
            "SELECT tutti_home('rr')",
            "SELECT tutti_round_robin('rr')",
            "ALTER TABLE bag ALTER v TYPE int",
            "CREATE TABLE passing (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED",
            "INSERT INTO passing VALUES (1), (2)",
            "DROP TABLE passing",
            "CREATE INDEX again ON r (n)",
            "DROP INDEX again",
        ] {
            done += u32::from(run(&mut client, sql)?);
            sleep(Duration::from_millis(30));
        }
    }
    Ok(done)
}

#[test]
fn the_command_says_what_it_found_by_its_exit_status_and_in_json() -> Result<()> {
    let servers = servers::start(2)?;
    process::init(&servers)?;
    let gateway = GatewayProcess::start(&servers)?;
    let mut client = Client::connect(&gateway.endpoint())?;
    for sql in &SCHEMA[..5] {
        client.query(sql)?;
    }
    let check = |more: &[&str]| -> Result<(Option<i32>, String)> {
        let mut command = Command::new(programs::tutti()?);
        command.arg("check").arg("--config").arg(gateway.config_file()).args(more);
        let output = command.output()?;
        Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    let (status, said) = check(&[])?;
    ensure!(status == Some(0) && said.contains("nothing found"), "{status:?}: {said}");
    let mut node = Client::connect(&servers::endpoint(&servers, 1))?;
    node.query("DELETE FROM r WHERE id = 5")?;
    let (status, said) = check(&[])?;
    ensure!(status == Some(1) && said.contains("(id) = (5) missing on n2"), "{status:?}: {said}");
    let (status, said) = check(&["--json"])?;
    ensure!(
        status == Some(1) && said.contains("\"kind\": \"copies_differ\""),
        "{status:?}: {said}"
    );
    client.query("INSERT INTO bag VALUES (1, 'w')")?;
    node.query(
        "INSERT INTO r SELECT g, g, g / 3.0, 't' || g, 'ok', '{sad,happy}', '2026-01-01', '{\"a\": 1}'
         FROM generate_series(5, 5) g",
    )?;
    let (status, said) = check(&["--gateway", "127.0.0.1:1"])?;
    ensure!(status == Some(2) && said.contains("not checked"), "{status:?}: {said}");
    let (status, said) = check(&[])?;
    ensure!(status == Some(0), "{status:?}: {said}");
    Ok(())
}

#[test]
fn an_audit_in_the_background_is_seen_in_the_status() -> Result<()> {
    let servers = servers::start(2)?;
    let mut with_audit: Config = config(&servers, String::new());
    with_audit.audit.interval_s = 1;
    with_audit.default_distribution = DefaultDistribution::Home;
    let cluster = TestCluster::start_configured(servers, with_audit.clone())?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE r (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED")?;
    let mut node = Client::connect(&cluster.nodes()[1])?;
    node.query("INSERT INTO r VALUES (42)")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let status = || -> Result<String> {
        Ok(runtime.block_on(tutti_gateway::status(&with_audit))?.to_string())
    };
    let until = |wanted: &str| -> Result<()> {
        let give_up = Instant::now() + Duration::from_secs(20);
        while !status()?.contains(wanted) {
            ensure!(Instant::now() < give_up, "no {wanted:?} in {}", status()?);
            sleep(Duration::from_millis(200));
        }
        Ok(())
    };
    until("(id) = (42) on n2 only")?;
    node.query("DELETE FROM r")?;
    until(": 0 findings")
}

#[test]
fn tutti_check_is_for_superusers() -> Result<()> {
    let cluster = TestCluster::start(1)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE ROLE nobody NOLOGIN")?;
    ensure!(client.query("SELECT * FROM tutti_check()")?.is_empty());
    client.query("SET ROLE nobody")?;
    let answer = client.simple("SELECT * FROM tutti_check()", b"")?;
    ensure!(answer.error().map(|it| it.sqlstate()) == Some("42501"), "{answer}");
    Ok(())
}
