//! Requests that are executed once: every form of asking for it, over every way in which an instance commits; beside earlier
//! instances that hold locks; and the node's rules beside the model's.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_cluster::requests::keeper_of;
use tutti_sql::catalog::NodeId;
use tutti_tests::answer::{Answer, Outcome};
use tutti_tests::client::{Client, Flight, Request, text_arguments};
use tutti_tests::gateway::{self, TestCluster};
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::servers;
use tutti_txn::request_family::{Begun, Family, Refused};

const NODES: u16 = 3;
/// How long a later instance may need: it waits for nobody.
const PROMPT: Duration = Duration::from_secs(20);

fn start() -> Result<(TestCluster, Client)> {
    let cluster = TestCluster::start_at_home(servers::start(NODES)?)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE TABLE stock (id int PRIMARY KEY, amount int) DISTRIBUTE BY HASH (id);
         INSERT INTO stock SELECT g, 100 FROM generate_series(1, 60) g;
         CREATE TABLE orders (family text PRIMARY KEY, item int) DISTRIBUTE BY HASH (family);
         CREATE TABLE notes (n int) DISTRIBUTE BY REPLICATED",
    )?;
    Ok((cluster, client))
}

/// Which rows of `stock` are on each node.
fn ids_of(cluster: &TestCluster, node: usize) -> Result<Vec<i32>> {
    let rows =
        Client::connect(&cluster.nodes()[node])?.query("SELECT id FROM stock ORDER BY id")?;
    let ids = rows.into_iter().flatten().flatten().map(|id| Ok(id.parse()?));
    ids.collect()
}

/// A family's name that this node keeps.
fn family_kept_by(node: u16, stem: &str) -> String {
    let nodes: Vec<_> = (1..=NODES).map(NodeId).collect();
    let mut names = (0..).map(|number| format!("{stem} {number}"));
    names.find(|name| keeper_of(name, &nodes) == NodeId(node)).expect("every node keeps some")
}

fn row(values: &[&str]) -> Vec<Option<String>> {
    values.iter().map(|value| (!value.is_empty()).then(|| (*value).to_owned())).collect()
}

fn sqlstate(answer: &Answer) -> &str {
    answer.error().map_or("", |error| error.sqlstate())
}

/// Each way in which an instance can commit, and how its writes are asked for.
fn ways(cluster: &TestCluster) -> Result<Vec<(&'static str, String, u16)>> {
    let on: Vec<Vec<i32>> = (0..3).map(|node| ids_of(cluster, node)).collect::<Result<_>>()?;
    let take =
        |node: usize| format!("UPDATE stock SET amount = amount - 1 WHERE id = {}", on[node][0]);
    Ok(vec![
        ("on its keeper alone", take(1), 2),
        ("on another node alone", take(2), 1),
        ("on several, its keeper among them", format!("{}; {}", take(0), take(1)), 2),
        ("on several others", format!("{}; {}", take(1), take(2)), 1),
        ("on all", "UPDATE stock SET amount = amount - 1".to_owned(), 3),
        ("replicated", "INSERT INTO notes VALUES (1)".to_owned(), 3),
        ("nothing", "SELECT count(*) FROM stock".to_owned(), 2),
    ])
}

#[test]
fn a_request_is_executed_once_however_it_commits() -> Result<()> {
    let (cluster, mut client) = start()?;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for (way, sql, keeper) in ways(&cluster)? {
            let family = family_kept_by(keeper, &format!("{way} at {level}"));
            let state = "SELECT (SELECT sum(amount) FROM stock), (SELECT count(*) FROM notes)";
            let before = client.query(state)?;
            let mut of_first = Vec::new();
            for attempt in 1..=3 {
                let begun = client.query(&format!("BEGIN_MIP '{family}', {attempt}"))?;
                let what = format!("{way}, {level}, attempt {attempt}");
                if attempt == 1 {
                    ensure!(begun == [row(&["begun", "1", ""])], "{what}: {begun:?}");
                    client.query(&format!("SET TRANSACTION ISOLATION LEVEL {level}"))?;
                    client.query(&sql)?;
                    client.query("SELECT tutti_remember('it''s \\ done')")?;
                    ensure!(client.query("SELECT 1")?.len() == 1, "{what}");
                    client.query("COMMIT")?;
                    of_first = client.query(state)?;
                    let is_changed = of_first != before;
                    ensure!(is_changed != (way == "nothing"), "{what}: {before:?} {of_first:?}");
                } else {
                    ensure!(
                        begun == [row(&["committed", "1", "it's \\ done"])],
                        "{what}: {begun:?}"
                    );
                    // Who does not look does not execute it again.
                    let refused = client.simple(&sql, b"")?;
                    ensure!(sqlstate(&refused) == "25P02", "{what}: {refused}");
                    let answer = client.simple("COMMIT", b"")?;
                    let is_over =
                        |it: &Outcome| matches!(it, Outcome::Done { tag } if tag == "ROLLBACK");
                    ensure!(answer.outcomes.iter().all(is_over), "{what}: {answer}");
                    ensure!(client.query(state)? == of_first, "{what}");
                }
            }
            // The same number once more: it may do its work, and cannot commit.
            client.query(&format!("SELECT tutti_begin('{family}', 1)"))?;
            client.query(&sql)?;
            let refused = client.simple("COMMIT", b"")?;
            ensure!(sqlstate(&refused) == "40001", "{way}, {level}: {refused}");
            ensure!(client.query(state)? == of_first, "{way}, {level}: executed twice");
            let known = client.query(&format!("SELECT tutti_request('{family}')"))?;
            ensure!(known == [row(&["1", "committed", "it's \\ done", ""])], "{known:?}");
        }
    }
    for node in cluster.nodes() {
        let mut node = Client::connect(&node)?;
        ensure!(node.value("SELECT count(*) FROM pg_prepared_xacts")? == "0");
    }
    Ok(())
}

#[test]
fn a_request_that_only_reads_is_kept_too() -> Result<()> {
    let (cluster, mut client) = start()?;
    let read = |node: usize| -> Result<String> {
        Ok(format!("SELECT amount FROM stock WHERE id = {}", ids_of(&cluster, node)?[0]))
    };
    for (way, sql) in [
        ("its keeper", read(1)?),
        ("another node", read(0)?),
        ("both", format!("{}; {}", read(0)?, read(1)?)),
        ("all", "SELECT sum(amount) FROM stock".to_owned()),
    ] {
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            for attempt in [1, 2] {
                let family = family_kept_by(2, &format!("{way} at {level}, {attempt}"));
                client.query(&format!("BEGIN ISOLATION LEVEL {level} READ ONLY"))?;
                client.query(&format!("SELECT tutti_begin('{family}', {attempt})"))?;
                client.query(&sql)?;
                client.query("SELECT tutti_remember('read')")?;
                let committed = client.simple("COMMIT", b"")?;
                ensure!(committed.error().is_none(), "{way}, {level}: {committed}");
                let known = client.query(&format!("SELECT tutti_request('{family}')"))?;
                let number = attempt.to_string();
                ensure!(known == [row(&[&number, "committed", "read", ""])], "{way}: {known:?}");
            }
        }
    }
    for node in cluster.nodes() {
        let mut node = Client::connect(&node)?;
        ensure!(node.value("SELECT count(*) FROM pg_prepared_xacts")? == "0");
    }
    Ok(())
}

#[test]
fn a_later_instance_waits_for_no_earlier_one() -> Result<()> {
    let (cluster, mut client) = start()?;
    for (way, sql, keeper) in ways(&cluster)?.into_iter().filter(|(way, ..)| *way != "nothing") {
        let family = family_kept_by(keeper, &format!("taken over {way}"));
        let state = "SELECT (SELECT sum(amount) FROM stock), (SELECT count(*) FROM notes)";
        let before = client.query(state)?;
        let mut earlier = Client::connect(&cluster.endpoint())?;
        earlier.query(&format!("BEGIN_MIP '{family}', 1"))?;
        earlier.query(&sql)?;
        let begun = Instant::now();
        let told = client.query(&format!("BEGIN_MIP '{family}', 2"))?;
        ensure!(told == [row(&["begun", "2", ""])], "{way}: {told:?}");
        client.query(&sql)?;
        client.query("SELECT tutti_remember('second')")?;
        client.query("COMMIT")?;
        ensure!(begun.elapsed() < PROMPT, "{way}: {:?}", begun.elapsed());
        let after = client.query(state)?;
        ensure!(after != before, "{way}");
        // The earlier one is gone, and could not have committed.
        ensure!(
            earlier.simple("COMMIT", b"").is_ok_and(|it| sqlstate(&it) == "57P01")
                || earlier.query("SELECT 1").is_err(),
            "{way}"
        );
        let mut again = Client::connect(&cluster.endpoint())?;
        let told = again.query(&format!("BEGIN_MIP '{family}', 3"))?;
        ensure!(told == [row(&["committed", "2", "second"])], "{way}: {told:?}");
        ensure!(client.query(state)? == after, "{way}");
    }
    Ok(())
}

#[test]
fn whoever_is_overtaken_cannot_commit() -> Result<()> {
    let (cluster, mut client) = start()?;
    // A gateway that has forgotten its sessions, or another one: only the keeper knows.
    for (number, (way, sql, keeper)) in ways(&cluster)?.into_iter().enumerate() {
        let family = family_kept_by(keeper, &format!("fenced {way}"));
        client.query(&format!("BEGIN_MIP '{family}', 1"))?;
        client.query(&sql)?;
        let mut node = Client::connect(&cluster.nodes()[usize::from(keeper) - 1])?;
        let owner = client.value("SELECT oid FROM pg_roles WHERE rolname = session_user")?;
        node.query(&format!("SELECT tutti.begin_request('{owner}', '{family}', 7)"))?;
        let refused = client.simple("COMMIT", b"")?;
        ensure!(sqlstate(&refused) == "40001", "{way}: {refused}");
        let told = client.simple(&format!("BEGIN_MIP '{family}', 3"), b"")?;
        ensure!(sqlstate(&told) == "40001", "{way}: {told}");
        client.query("ROLLBACK")?;
        ensure!(client.value("SELECT sum(amount) FROM stock")? == "6000", "{way}");
        let told = client.query(&format!("BEGIN_MIP '{family}', {}", 8 + number))?;
        ensure!(told.len() == 1 && told[0][0].as_deref() == Some("begun"), "{told:?}");
        client.query("ROLLBACK")?;
    }
    Ok(())
}

#[test]
fn the_papers_statements_and_their_calls_do_the_same() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query("BEGIN_MIP 'paper', 1")?;
    client.query("INSERT INTO orders VALUES ('paper', 1)")?;
    let table = client.query("PREPARE_MIP 'paper', 1 'one of item 1' 'order 88'")?;
    ensure!(table == [row(&["1", "prepared", "order 88", "one of item 1"])], "{table:?}");
    let answer = client.simple("COMMIT_MIP 'paper', 1; SELECT 5", b"")?;
    ensure!(answer.texts() == [[Some("5".to_owned())]], "{answer}");
    ensure!(matches!(&answer.outcomes[0], Outcome::Done { tag } if tag == "COMMIT"), "{answer}");
    let table = client.query("SELECT * FROM tutti_request('paper')")?;
    ensure!(table == [row(&["1", "committed", "order 88", "one of item 1"])], "{table:?}");

    // By parameters, inside a block of the client's own, as drivers do it; types left open, and named.
    for (name, types, flight) in [
        ("open", &[0, 0][..], Flight::OneFlight),
        ("named", &[25, 20], Flight::TwoFlights),
        ("none", &[], Flight::TwoFlights),
    ] {
        client.query("BEGIN")?;
        let arguments = [text_arguments(&[Some(name.to_owned()), Some("1".to_owned())])];
        let sql = "SELECT * FROM tutti_begin($1, $2::int8)";
        let request = Request { sql, types, arguments: &arguments, row_limit: 0 };
        let answer = client.extended(&request, flight, b"")?;
        ensure!(answer.texts() == [row(&["begun", "1", ""])], "{name}: {answer}");
        client.query(&format!("INSERT INTO orders VALUES ('{name}', 2)"))?;
        let arguments = [text_arguments(&[Some(format!("result of {name}"))])];
        let sql = "SELECT tutti_remember($1)";
        let request = Request { sql, types: &[], arguments: &arguments, row_limit: 0 };
        let answer = client.extended(&request, flight, b"")?;
        ensure!(answer.error().is_none(), "{name}: {answer}");
        client.query("COMMIT")?;
        let told = client.query(&format!("SELECT tutti_begin('{name}', 2)"))?;
        ensure!(told == [row(&["committed", "1", &format!("result of {name}")])], "{told:?}");
        client.query("ROLLBACK")?;
    }

    // What is wrong is said, and nothing begins.
    for (sql, expected) in [
        ("BEGIN_MIP 'x', 0", "22023"),
        ("BEGIN_MIP '', 1", "22023"),
        ("BEGIN_MIP 'x'", "42601"),
        ("BEGIN_MIP 'x', 'y'", "22P02"),
        ("SELECT tutti_begin(NULL, 1)", "22023"),
        ("SELECT tutti_begin('x', NULL)", "22P02"),
        ("SELECT tutti_begin('x')", "42883"),
        ("SELECT tutti_remember('x')", "25P01"),
        ("COMMIT_MIP 'x', 1", "25P01"),
        ("PREPARE_MIP 'x', 1 'a' 'b'", "25P01"),
        ("BEGIN; SELECT 1; SELECT tutti_begin('x', 1)", "25001"),
        ("BEGIN_MIP 'x', 1; SELECT tutti_begin('y', 1)", "25001"),
        ("BEGIN_MIP 'x', 1; COMMIT_MIP 'x', 2", "22023"),
        ("BEGIN_MIP 'x', 1; PREPARE TRANSACTION 'p'", "0A000"),
        ("BEGIN_MIP 'x', 1; SELECT nothing", "42703"),
    ] {
        let answer = client.simple(sql, b"")?;
        ensure!(sqlstate(&answer) == expected, "{sql}: {answer}");
        client.simple("ROLLBACK", b"")?;
    }
    // A statement that fails fails the instance, and another may follow.
    client.query("BEGIN_MIP 'y', 1")?;
    client.simple("SELECT 1 / 0", b"")?;
    let answer = client.simple("COMMIT_MIP", b"")?;
    ensure!(matches!(&*answer.outcomes, [Outcome::Done { tag }] if tag == "ROLLBACK"), "{answer}");
    ensure!(client.query("SELECT tutti_request('y')")?.is_empty());
    drop(cluster);
    Ok(())
}

#[test]
fn a_family_is_its_roles_own() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query("CREATE ROLE other LOGIN; GRANT ALL ON orders TO other")?;
    client.query("BEGIN_MIP 'shared name', 1; SELECT tutti_remember('secret'); COMMIT")?;
    let mut other = Client::connect_as(&cluster.endpoint(), "other")?;
    ensure!(other.query("SELECT tutti_request('shared name')")?.is_empty());
    let told = other.query("BEGIN_MIP 'shared name', 2")?;
    ensure!(told == [row(&["begun", "2", ""])], "{told:?}");
    // Nor does it end the other role's.
    let mut at_work = Client::connect(&cluster.endpoint())?;
    at_work.query("BEGIN_MIP 'at work', 1")?;
    other.query("ROLLBACK")?;
    other.query("BEGIN_MIP 'at work', 2; COMMIT")?;
    at_work.query("INSERT INTO orders VALUES ('at work', 1); COMMIT")?;
    for sql in [
        "SELECT * FROM tutti.request",
        "SELECT tutti.begin_request('postgres', 'shared name', 9)",
        "SELECT tutti.keep_request('postgres', 'shared name', 9, '', '', '')",
        "SELECT tutti.decide_request('g', 'postgres', 'shared name', 9, '', '')",
        "SELECT tutti.keep_own_request('postgres', 'shared name', 9, '', '', 'seal')",
    ] {
        let mut other = Client::connect_as(&cluster.nodes()[0], "other")?;
        let refused = other.simple(sql, b"")?;
        ensure!(sqlstate(&refused) == "42501", "{sql}: {refused}");
    }
    Ok(())
}

#[test]
fn a_request_that_a_node_cannot_prepare_is_refused() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query("CREATE TEMP TABLE mine (n int)")?;
    let elsewhere = family_kept_by(2, "with temporary rows");
    client.query(&format!("BEGIN_MIP '{elsewhere}', 1"))?;
    client.query("INSERT INTO mine VALUES (1)")?;
    let refused = client.simple("COMMIT", b"")?;
    ensure!(sqlstate(&refused) == "0A000", "{refused}");
    // Where node 1 keeps it, it does.
    let at_home = family_kept_by(1, "with temporary rows");
    client.query(&format!("BEGIN_MIP '{at_home}', 1; INSERT INTO mine VALUES (1); COMMIT"))?;
    ensure!(client.value("SELECT count(*) FROM mine")? == "1");
    drop(cluster);
    Ok(())
}

/// The rules of a node are the model's: the same random steps of a few families, one after the other.
#[test]
fn a_node_keeps_families_as_the_model_does() -> Result<()> {
    let (cluster, _client) = start()?;
    let mut node = Client::connect(&cluster.nodes()[1])?;
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut families: Vec<Family<String>> = vec![Family::default(); 40];
    for step in 0..600 {
        let which = rng.random_range(0..families.len());
        let number = rng.random_range(1..6_u32);
        let family = &mut families[which];
        let context = || format!("seed {seed}, step {step}, family {which}, instance {number}");
        if rng.random_bool(0.5) {
            let sql = format!(
                "SELECT fence, instance, result FROM tutti.begin_request('o', 'f{which}', {number})"
            );
            let [kept] = &node.query(&sql)?[..] else { anyhow::bail!("{}: no row", context()) };
            let expected = match family.begin(number.into()) {
                Begun::GoOn => row(&[&number.to_string(), "", ""]),
                Begun::Committed { by, result } => {
                    row(&[&family.fence().to_string(), &by.to_string(), &result])
                }
                Begun::TooLate { latest } => row(&[&latest.to_string(), "", ""]),
            };
            ensure!(*kept == expected, "{}: {kept:?}, not {expected:?}", context());
        } else {
            let result = format!("r{step}");
            let sql = format!(
                "SELECT tutti.decide_request('g{step}', 'o', 'f{which}', {number}, NULL, '{result}')"
            );
            let answer = node.simple(&sql, b"")?;
            let said = answer.error().map(|error| error.message().to_owned());
            let expected = match family.commit(number.into(), result) {
                Ok(()) => None,
                Err(Refused::Committed(by)) => {
                    Some(format!("instance {by} of request \"f{which}\" has committed already"))
                }
                Err(Refused::Fenced(by)) => Some(format!(
                    "instance {by} of request \"f{which}\" has begun, and this one is not to commit any more"
                )),
            };
            ensure!(said == expected, "{}: {said:?}, not {expected:?}", context());
            // The decision is there with the family's row, or neither.
            let decided =
                node.value(&format!("SELECT count(*) FROM tutti.decision WHERE gid = 'g{step}'"))?;
            ensure!((decided == "1") == expected.is_none(), "{}", context());
        }
    }
    node.query("DELETE FROM tutti.decision WHERE gid LIKE 'g%'").context("those of the test")?;
    Ok(())
}

/// What keeps an earlier instance busy, and the session that it is in.
fn earlier(cluster: &TestCluster, family: &str, row: i32, then: &str) -> Result<Client> {
    let mut earlier = Client::connect(&cluster.endpoint())?;
    earlier.query(&format!("BEGIN_MIP '{family}', 1"))?;
    earlier.query(&format!("UPDATE stock SET amount = amount - 1 WHERE id = {row}"))?;
    let mut message = vec![b'Q'];
    message.extend(u32::try_from(then.len() + 5)?.to_be_bytes());
    message.extend(then.as_bytes());
    message.push(0);
    // Its answer is not read.
    earlier.send_bytes(&message)?;
    Ok(earlier)
}

#[test]
fn whatever_an_earlier_instance_does_its_locks_are_released() -> Result<()> {
    let (cluster, mut client) = start()?;
    client.query("CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1)")?;
    client.query("CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")?;
    let mut third = Client::connect(&cluster.endpoint())?;
    third.query("BEGIN; SELECT * FROM parent FOR UPDATE")?;
    let row_there = ids_of(&cluster, 0)?[0];
    for (number, then) in [
        "COPY stock FROM STDIN",
        "SELECT repeat('x', 1000) FROM generate_series(1, 300000)",
        "DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(100); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$",
        "SELECT pg_sleep(100)",
        "INSERT INTO child VALUES (1); COMMIT",
    ]
    .into_iter()
    .enumerate()
    {
        for keeper in [1, 2] {
            let family = family_kept_by(keeper, &format!("busy {number}"));
            let busy = earlier(&cluster, &family, row_there, then)?;
            std::thread::sleep(Duration::from_millis(500));
            let begun = Instant::now();
            let told = client.query(&format!("BEGIN_MIP '{family}', 2"))?;
            ensure!(told == [row(&["begun", "2", ""])], "{then}, keeper {keeper}: {told:?}");
            client.query(&format!("UPDATE stock SET amount = amount - 1 WHERE id = {row_there}"))?;
            client.query("COMMIT")?;
            ensure!(begun.elapsed() < PROMPT, "{then}, keeper {keeper}: {:?}", begun.elapsed());
            drop(busy);
        }
    }
    third.query("ROLLBACK")?;
    let taken = client.value("SELECT sum(amount) FROM stock")?;
    ensure!(taken == "5990", "each of ten requests takes one: {taken}");
    cluster.ensure_no_backend_where("query LIKE '%begin_request%' AND state = 'active'")?;
    Ok(())
}

#[test]
fn who_is_refused_leaves_nothing() -> Result<()> {
    let (cluster, mut client) = start()?;
    let mut listener = Client::connect(&cluster.endpoint())?;
    listener.query("LISTEN told")?;
    for keeper in 1..=NODES {
        let family = family_kept_by(keeper, "large objects");
        let made = 5000 + u32::from(keeper);
        for (oid, expected) in [(made, ""), (made + 100, "40001")] {
            client.query(&format!("BEGIN_MIP '{family}', 1"))?;
            client.query(&format!("SELECT lo_from_bytea({oid}, 'a')"))?;
            let answer = client.simple("COMMIT", b"")?;
            ensure!(sqlstate(&answer) == expected, "keeper {keeper}, {oid}: {answer}");
        }
        // It cannot be prepared: where the keeper is another node, it is refused.
        client.query(&format!("BEGIN_MIP '{family}', 1; SELECT pg_notify('told', 'wrong')"))?;
        ensure!(!sqlstate(&client.simple("COMMIT", b"")?).is_empty());
    }
    let objects = client.query("SELECT oid FROM pg_largeobject_metadata ORDER BY oid")?;
    ensure!(objects.len() == usize::from(NODES), "{objects:?}");
    let heard = listener.simple("SELECT 1", b"")?;
    ensure!(!heard.to_string().contains("wrong"), "{heard}");
    Ok(())
}

#[test]
fn who_does_not_look_executes_nothing_twice() -> Result<()> {
    let (cluster, mut client) = start()?;
    let take = "UPDATE stock SET amount = amount - 1 WHERE id = 1";
    let left = |client: &mut Client| client.value("SELECT amount FROM stock WHERE id = 1");
    client.query("BEGIN_MIP 'once', 2")?;
    client.query(take)?;
    client.query("COMMIT")?;
    // No savepoint takes a block back to where it was not told.
    client.query("BEGIN; SAVEPOINT s")?;
    ensure!(sqlstate(&client.simple("BEGIN_MIP 'once', 3", b"")?) == "25001");
    client.query("ROLLBACK")?;
    client.query("BEGIN; SELECT tutti.tutti_begin('once', 3)")?;
    for (sql, expected) in [("SAVEPOINT s", "25P02"), (take, "25P02"), ("ROLLBACK TO s", "3B001")] {
        let refused = client.simple(sql, b"")?;
        ensure!(sqlstate(&refused) == expected, "{sql}: {refused}");
    }
    client.query("COMMIT")?;
    ensure!(left(&mut client)? == "99");

    // An error leaves a block that has failed, too.
    let mut at_work = Client::connect(&cluster.endpoint())?;
    at_work.query("BEGIN_MIP 'other', 5")?;
    for (begin, expected) in [
        ("BEGIN_MIP 'other', 4", "40001"),
        ("BEGIN_MIP 'other', 5", "55006"),
        ("BEGIN_MIP 'other', 0", "22023"),
        ("SELECT tutti_begin('other', 'x')", "22P02"),
    ] {
        let refused = client.simple(begin, b"")?;
        ensure!(sqlstate(&refused) == expected, "{begin}: {refused}");
        ensure!(sqlstate(&client.simple(take, b"")?) == "25P02", "{begin}");
        client.query("COMMIT")?;
    }
    at_work.query("COMMIT")?;
    ensure!(left(&mut client)? == "99");

    // The statement is nobody's function.
    client.query("CREATE FUNCTION public.tutti_begin(text, bigint) RETURNS text LANGUAGE sql AS $$ SELECT 'stolen' $$")?;
    let told = client.query("BEGIN_MIP 'own name', 1")?;
    ensure!(told == [row(&["begun", "1", ""])], "{told:?}");
    // What was said after a savepoint goes with it.
    client.query("SELECT tutti_remember('kept'); SAVEPOINT s; SELECT tutti_remember('undone')")?;
    client.query("ROLLBACK TO s; SAVEPOINT t")?;
    client.query("SELECT tutti_remember('of t'); RELEASE t; ROLLBACK TO s; COMMIT")?;
    let known = client.query("SELECT tutti_request('own name')")?;
    ensure!(known == [row(&["1", "committed", "kept", ""])], "{known:?}");
    drop(cluster);
    Ok(())
}

#[test]
fn requests_are_forgotten_when_their_time_is_over() -> Result<()> {
    let servers = servers::start(2)?;
    let mut config = gateway::config(&servers, String::new());
    config.requests.keep_hours = 2;
    process::init_configured(&config)?;
    let mut nodes = (0..2)
        .map(|node| Client::connect(&servers::endpoint(&servers, node)))
        .collect::<Result<Vec<_>>>()?;
    for node in &mut nodes {
        node.query(
            "INSERT INTO tutti.request (owner, family, fence, instance, at)
             SELECT '10', 'f' || hours, 1, 1, now() - make_interval(hours => hours)
             FROM generate_series(0, 5) AS hours",
        )?;
    }
    let _gateway = GatewayProcess::start_configured(config, &[])?;
    let begun = Instant::now();
    for node in &mut nodes {
        let left = "SELECT string_agg(family, ' ' ORDER BY family) FROM tutti.request";
        while node.value(left)? != "f0 f1" {
            ensure!(begun.elapsed() < PROMPT, "kept: {}", node.value(left)?);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}
