//! Functions, types and names that come to mean more while statements, portals and cursors that may use them are
//! under way: a node looks them up when it comes to them, whatever locks there are.
//!
//! Owns: that nothing planned before runs code without a question that it was not planned for, nor means another
//! table. Never: judges what a statement that is planned with the change does (`answers` does).
//! Start reading at [`nothing_under_way_runs_what_was_put_in_its_place`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::client::Client;
use tutti_tests::conversation;
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

use crate::flights::{joined, meanwhile, one, vote_slowly};

/// Writes rows of the hash table `b` on whichever node runs it.
const WRITES: &str = "INSERT INTO public.b SELECT g, 7 FROM generate_series(1, 9) g;";

fn start() -> Result<TestCluster> {
    let servers = servers::durable(2)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    Client::connect(&cluster.endpoint())?.query(
        "CREATE TABLE b (k int, j int) DISTRIBUTE BY HASH (k);
         CREATE TABLE x (k int PRIMARY KEY, v int) DISTRIBUTE BY HASH (k);
         INSERT INTO x SELECT n, 0 FROM generate_series(1, 40) n",
    )?;
    Ok(cluster)
}

/// A function of no arguments that is harmless, or has this in its body.
fn function(name: &str, with: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION {name}() RETURNS int LANGUAGE plpgsql AS $$ BEGIN {with} RETURN 5; END $$"
    )
}

/// The same for a trigger.
fn trigger(with: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION tf() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {with} RETURN new; END $$"
    )
}

/// A harmless one that rows of `h` leave to the end of their transaction.
fn deferred() -> String {
    format!(
        "{}; CREATE CONSTRAINT TRIGGER t AFTER INSERT ON h DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         EXECUTE FUNCTION tf()",
        trigger("")
    )
}

/// The home table `h`, with this around it.
fn make_h(admin: &mut Client, setup: &str) -> Result<()> {
    admin.query(
        "DROP TABLE IF EXISTS h CASCADE; DROP FUNCTION IF EXISTS tf() CASCADE;
         DROP FUNCTION IF EXISTS fd() CASCADE; DROP FUNCTION IF EXISTS ov(bigint);
         DROP FUNCTION IF EXISTS ov(int); DROP DOMAIN IF EXISTS dm CASCADE;
         DROP FUNCTION IF EXISTS fdc(int)",
    )?;
    admin.query("CREATE TABLE h (id int, v int) DISTRIBUTE BY HOME")?;
    admin.query("INSERT INTO h VALUES (1, 1), (2, 2)")?;
    admin.query(setup)?;
    Ok(())
}

/// No row of `b` was written: whoever runs the new code is asked, and refused.
fn nothing_was_written(cluster: &TestCluster, what: &str, said: &[String]) -> Result<()> {
    for node in cluster.nodes() {
        let rows = Client::connect(&node)?.value("SELECT count(*) FROM b")?;
        ensure!(rows == "0", "{what}: {rows} rows of b on {node:?}; {said:#?}");
    }
    Ok(())
}

fn refused_rightly(said: &[String]) -> bool {
    let mut errors = said.iter().filter(|line| line.starts_with("Error"));
    errors.all(|line| ["Error 40001", "Error 0A000", "Error 25P02"].contains(&line.as_str()))
}

/// A statement is only parsed and described, or is behind others, with a constant by whose type code is called, when
/// its client pauses; and that code is replaced: it is not run by the analysis, which may not have been sent yet.
#[test]
fn what_waits_to_be_analysed_runs_no_code_that_was_replaced() -> Result<()> {
    let mut cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let check = |with: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION chk(i int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN {with} RETURN true; END $$"
        )
    };
    admin.query(&check(""))?;
    admin.query("CREATE DOMAIN dm AS int CHECK (chk(VALUE)); CREATE TABLE w (q dm[])")?;
    let read = one("SELECT v FROM x WHERE k = 7");
    let constant = "P s|SELECT * FROM w WHERE q = '{5}'";
    let before = ["", &read, &format!("{read}H"), &one("SELECT count(*) FROM x"), &one("BEGIN")]
        .map(str::to_owned);
    let parsed = [
        format!("{constant}\nD S s"),
        format!("{constant}\nP other|SELECT 1"),
        constant.to_owned(),
    ];
    let ends = [("", "H"), ("Q BEGIN", "H"), ("", "S"), ("Q BEGIN", "B |s\nE |0\nS")];
    let cases = before.iter().flat_map(|before| parsed.iter().map(move |parsed| (before, parsed)));
    for ((before, parsed), (begin, then)) in cases.zip(ends.into_iter().cycle()) {
        let what = format!("{begin}, {before}, {parsed}, then {then}");
        let mut client = Client::connect(&cluster.endpoint())?;
        conversation::hold(&mut client, &format!("{begin}\n--\n{before}\n{parsed}\n~ 20"))?;
        let changer = Client::connect(&cluster.endpoint())?;
        let (changed, _) = joined(meanwhile(changer, format!("Q {}", check(WRITES))))?;
        ensure!(!changed.iter().any(|line| line.starts_with("Error")), "{what}: {changed:#?}");
        let said = conversation::hold(&mut client, &format!("{then}\nS"))?;
        ensure!(refused_rightly(&said), "{what}: {said:#?}");
        let held = nothing_was_written(&cluster, &what, &said);
        if held.is_err() {
            cluster.leave_unaudited("what is wrong is said with the conversation");
        }
        held?;
        drop(client);
        admin.query(&check(""))?;
    }
    Ok(())
}

/// A statement waits for a lock; what it will call is replaced by what writes a table of several nodes, hidden by
/// a better overload, or comes with a domain.
#[test]
fn nothing_under_way_runs_what_was_put_in_its_place() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let on_update = format!(
        "{}; CREATE TRIGGER t AFTER UPDATE ON h FOR EACH ROW EXECUTE FUNCTION tf()",
        trigger("")
    );
    let on_insert = format!(
        "{}; CREATE TRIGGER t BEFORE INSERT ON h FOR EACH ROW EXECUTE FUNCTION tf()",
        trigger("")
    );
    let overload =
        "CREATE FUNCTION ov(i bigint) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 5; END $$";
    let better = format!(
        "CREATE FUNCTION ov(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN {WRITES} RETURN 6; END $$"
    );
    let check = |with: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION fdc(i int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN {with} RETURN true; END $$"
        )
    };
    let checked = format!(
        "{}; CREATE DOMAIN dm AS int CHECK (fdc(VALUE)); DROP TABLE h;
         CREATE TABLE h (id int, v dm) DISTRIBUTE BY HOME; INSERT INTO h VALUES (1, 1)",
        check("")
    );
    let checks = check(WRITES);
    let row = "UPDATE h SET v = v WHERE id = 1";
    let table = "LOCK TABLE x IN ACCESS EXCLUSIVE MODE";
    let tf = trigger(WRITES);
    let fd = function("fd", WRITES);
    for (setup, lock, sql, change) in [
        (on_update, row, "UPDATE h SET v = v + 1 WHERE id = 1", &tf),
        (function("fd", ""), row, "UPDATE h SET v = fd() WHERE id = 1", &fd),
        (on_insert, table, "INSERT INTO h SELECT k, 1 FROM x WHERE k < 30", &tf),
        (function("fd", ""), table, "INSERT INTO h SELECT k, fd() FROM x WHERE k < 30", &fd),
        (overload.to_owned(), table, "INSERT INTO h SELECT k, ov(k) FROM x WHERE k < 30", &better),
        (checked, table, "INSERT INTO h SELECT k, 1 FROM x WHERE k < 30", &checks),
    ] {
        for flight in [
            format!("Q {sql}"),
            format!("Q BEGIN\n--\nQ {sql}"),
            format!("{}{}S", one("SELECT v FROM x WHERE k = 1"), one(sql)),
            format!("{}{}{}S", one(row), one(sql), one("SELECT v FROM x WHERE k = 2")),
        ] {
            make_h(&mut admin, &setup)?;
            let mut locker = Client::connect(&cluster.endpoint())?;
            locker.query(&format!("BEGIN; {lock}"))?;
            let asked = meanwhile(Client::connect(&cluster.endpoint())?, flight.clone());
            ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?, "nobody waits");
            let changer = Client::connect(&cluster.endpoint())?;
            let (changed, _) = joined(meanwhile(changer, format!("Q {change}")))?;
            ensure!(changed.iter().any(|line| line.starts_with("CommandComplete")), "{changed:#?}");
            locker.query("COMMIT")?;
            let (mut said, mut client) = joined(asked)?;
            said.extend(conversation::hold(&mut client, "Q COMMIT")?);
            ensure!(refused_rightly(&said), "{flight}, {change}: {said:#?}");
            nothing_was_written(&cluster, &format!("{flight}, {change}"), &said)?;
        }
    }
    Ok(())
}

/// What was bound or declared before its code was replaced, and what the end of a transaction runs.
#[test]
fn what_was_bound_before_does_not_run_what_was_put_in_its_place() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let on_insert = format!(
        "{}; CREATE TRIGGER t BEFORE INSERT ON h FOR EACH ROW EXECUTE FUNCTION tf()",
        trigger("")
    );
    let deferred = deferred();
    let harmless = function("fd", "");
    let (tf, fd) = (trigger(WRITES), function("fd", WRITES));
    let made =
        format!("{tf}; CREATE TRIGGER t BEFORE INSERT ON h FOR EACH ROW EXECUTE FUNCTION tf()");
    // What is run a second time may take the short way.
    let (unnamed, prepared) = ("P |SELECT fd() FROM h\nB |\nE |1\nS", "B |s\nE |1\nS");
    let unnamed = format!("{unnamed}\n--\n{unnamed}");
    // A flight has begun that has nothing to do with it.
    let behind_another = |before: &str| {
        let sync = if before.starts_with('Q') { "" } else { "\nS" };
        format!("{before}{sync}\n--\n{}", one("SELECT v FROM x WHERE k = 7"))
    };
    let prepared = format!("C S s\nP s|SELECT fd() FROM h\n{prepared}\n--\n{prepared}");
    for (setup, before, change, after) in [
        (&on_insert, "P |COPY h FROM STDIN\nB p|\nS", &tf, "E p|0\nd 50\t777\nc\nS"),
        (&harmless, "P |COPY h FROM STDIN\nB p|\nS", &made, "E p|0\nd 50\t777\nc\nS"),
        (&on_insert, "P |INSERT INTO h VALUES (3, 3)\nB p|\nS", &tf, "E p|0\nS"),
        (&harmless, "P |SELECT fd() FROM h\nB p|\nS", &fd, "E p|0\nS"),
        (&harmless, "P |SELECT fd() FROM h\nB p|\nE p|1\nS", &fd, "E p|1\nS"),
        (&harmless, "P |SELECT fd() FROM x\nB p|\nS", &fd, "E p|1\nS"),
        (&harmless, &behind_another("P |SELECT fd() FROM h\nB p|\nE p|1"), &fd, "E p|1\nS"),
        (&harmless, &behind_another("P |SELECT fd() FROM h\nB p|"), &fd, "E p|1\nS"),
        (&harmless, &behind_another("Q DECLARE p CURSOR FOR SELECT fd() FROM h"), &fd, "E p|1\nS"),
        (&harmless, &unnamed, &fd, "E |1\nS"),
        (&harmless, "P |SELECT fd() FROM h\nB p|\nE p|1\nS", &fd, "Q FETCH p"),
        (&harmless, "P |SELECT fd() FROM h\nB p|\nS", &fd, "Q FETCH p"),
        (&harmless, "P |INSERT INTO h VALUES (3, fd()) RETURNING v\nB p|\nS", &fd, "Q FETCH p"),
        (&harmless, &prepared, &fd, "E |1\nS"),
        (&harmless, "Q DECLARE p CURSOR FOR SELECT fd() FROM h", &fd, "Q FETCH p"),
        (&harmless, "Q DECLARE p CURSOR FOR SELECT fd() FROM h", &fd, "E p|1\nS"),
        (&harmless, "Q DECLARE p CURSOR WITH HOLD FOR SELECT fd() FROM h", &fd, "Q COMMIT"),
        (
            &harmless,
            "Q DECLARE p CURSOR WITH HOLD FOR SELECT fd() FROM h",
            &fd,
            "Q SELECT count(*) FROM x; FETCH p",
        ),
        (&deferred, "Q INSERT INTO h VALUES (3, 3)", &tf, "Q COMMIT"),
        (&deferred, "P |INSERT INTO h VALUES (3, 3)\nB |\nE |0\nS", &tf, "P |COMMIT\nB |\nE |0\nS"),
        (&deferred, "Q INSERT INTO h VALUES (3, 3); INSERT INTO x VALUES (0, 0)", &tf, "Q COMMIT"),
        (&deferred, "Q INSERT INTO h VALUES (3, 3)", &tf, "Q PREPARE TRANSACTION 'p'"),
    ] {
        make_h(&mut admin, setup)?;
        let mut client = Client::connect(&cluster.endpoint())?;
        client.query("BEGIN")?;
        let said = conversation::hold(&mut client, before)?;
        ensure!(!said.iter().any(|line| line.starts_with("Error")), "{before}: {said:#?}");
        let changer = Client::connect(&cluster.endpoint())?;
        let (changed, _) = joined(meanwhile(changer, format!("Q {change}")))?;
        ensure!(!changed.iter().any(|line| line.starts_with("Error")), "{changed:#?}");
        let said = conversation::hold(&mut client, after)?;
        ensure!(said.iter().any(|line| line.starts_with("Error")), "{before}, {after}: {said:#?}");
        ensure!(refused_rightly(&said), "{before}, {after}: {said:#?}");
        client.query("ROLLBACK")?;
        nothing_was_written(&cluster, &format!("{before}, {after}"), &said)?;
        // A function that does no more than before is no one's business.
        make_h(&mut admin, setup)?;
        client.query("BEGIN")?;
        conversation::hold(&mut client, before)?;
        let harmless = [trigger("new.v = 7;"), function("fd", "PERFORM 1;")];
        admin.query(&if setup.contains("tf()") { &harmless[0] } else { &harmless[1] }.clone())?;
        let said = conversation::hold(&mut client, after)?;
        ensure!(!said.iter().any(|line| line.starts_with("Error")), "{before}, {after}: {said:#?}");
        match after.contains("PREPARE TRANSACTION") {
            true => client.query("ROLLBACK PREPARED 'p'")?,
            false => client.query("ROLLBACK")?,
        };
    }
    Ok(())
}

/// The same that comes while the change is being committed, for long, and so waits for its end.
#[test]
fn what_was_bound_before_waits_for_code_that_is_being_replaced() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut second = Client::connect(&cluster.nodes()[1])?;
    let (harmless, fd) = (function("fd", ""), function("fd", WRITES));
    let suspended = "P |SELECT fd() FROM h\nB p|\nE p|1\nS";
    let bound = "P |SELECT fd() FROM h\nB p|\nS";
    let declared = "Q DECLARE p CURSOR FOR SELECT fd() FROM h";
    let point = one("SELECT v FROM x WHERE k = 7");
    for (before, after) in [
        (suspended, "E p|1\nS".to_owned()),
        (suspended, format!("{point}E p|1\nS")),
        (suspended, "Q FETCH p".to_owned()),
        (bound, "E p|1\nS".to_owned()),
        (declared, "E p|1\nS".to_owned()),
        (declared, "Q FETCH p".to_owned()),
    ] {
        make_h(&mut admin, &harmless)?;
        let mut client = Client::connect(&cluster.endpoint())?;
        client.query("BEGIN")?;
        conversation::hold(&mut client, before)?;
        let changer = Client::connect(&cluster.endpoint())?;
        vote_slowly(&mut second, true)?;
        let changed = meanwhile(changer, format!("Q {fd}"));
        std::thread::sleep(Duration::from_millis(400));
        let asked = meanwhile(client, after.clone());
        std::thread::sleep(Duration::from_millis(400));
        ensure!(!asked.is_finished() && !changed.is_finished(), "{before}, {after}: it is held");
        vote_slowly(&mut second, false)?;
        let (changed, _) = joined(changed)?;
        ensure!(!changed.iter().any(|line| line.starts_with("Error")), "{changed:#?}");
        let (said, mut client) = joined(asked)?;
        ensure!(said.iter().any(|line| line.starts_with("Error")), "{before}, {after}: {said:#?}");
        ensure!(refused_rightly(&said), "{before}, {after}: {said:#?}");
        client.query("ROLLBACK")?;
        nothing_was_written(&cluster, &format!("{before}, {after}"), &said)?;
    }
    Ok(())
}

/// A node keeps what it has read of functions until its transaction gets a lock that it does not have. What has come
/// to do less, and is not asked about any more, is not run there as it was before.
#[test]
fn what_a_node_remembers_of_code_is_not_run_unasked() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let (harmless, fd) = (function("fd", ""), function("fd", WRITES));
    let overload = format!(
        "CREATE OR REPLACE FUNCTION ov(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN {WRITES} RETURN 5; END $$"
    );
    let with_overloads =
        format!("{harmless}; {}", function("ov", "").replace("ov()", "ov(bigint)"));
    let insert = "INSERT INTO h VALUES (3, fd()) RETURNING v";
    let held = "DECLARE c CURSOR WITH HOLD FOR SELECT fd() FROM h";
    let deferred = deferred();
    let point = one("SELECT v FROM h WHERE id = 1");
    let one_of = |sql: &str| one(sql) + "S";
    for (setup, evil, uses, undo, then) in [
        (&with_overloads, &fd, "SELECT fd()", &harmless, "Q SELECT fd()".to_owned()),
        (&with_overloads, &fd, "SELECT fd()", &harmless, one_of("SELECT fd()")),
        (
            &with_overloads,
            &fd,
            "SELECT fd()",
            &harmless,
            format!("{point}{}", one_of("SELECT fd()")),
        ),
        (&with_overloads, &fd, "SELECT fd()", &harmless, format!("{point}--\n{}", one_of(insert))),
        (&with_overloads, &fd, "SELECT fd()", &harmless, format!("Q {insert}")),
        (&with_overloads, &fd, "SELECT fd()", &harmless, format!("Q {held}\n--\nQ FETCH c")),
        (
            &with_overloads,
            &fd,
            "SELECT fd()",
            &harmless,
            "Q EXPLAIN ANALYZE SELECT fd()".to_owned(),
        ),
        (
            &with_overloads,
            &overload,
            "SELECT ov(1)",
            &"DROP FUNCTION ov(int)".to_owned(),
            "Q SELECT ov(1)".to_owned(),
        ),
        (
            &with_overloads,
            &overload,
            "SELECT ov(1)",
            &"DROP FUNCTION ov(int)".to_owned(),
            one_of("SELECT ov(1)"),
        ),
        (
            &deferred,
            &trigger(WRITES),
            "INSERT INTO h VALUES (3, 3); SET CONSTRAINTS ALL IMMEDIATE",
            &trigger(""),
            "Q INSERT INTO h VALUES (4, 4)".to_owned(),
        ),
    ] {
        for begin in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", ""] {
            make_h(&mut admin, setup)?;
            admin.query(evil)?;
            let mut client = Client::connect(&cluster.endpoint())?;
            let what = format!("{begin}: {uses}, then {undo}, then {then}");
            let said = match begin {
                // In a flight, which is a transaction of its node.
                "" => {
                    ensure!(client.query(uses).is_err(), "{what}");
                    conversation::hold(&mut client, &format!("{point}H"))?;
                    std::thread::sleep(Duration::from_millis(50));
                    admin.query(undo)?;
                    if then.starts_with('Q') {
                        continue;
                    }
                    conversation::hold(&mut client, &then)?
                }
                begin => {
                    client.query(&format!("{begin}; SAVEPOINT s"))?;
                    ensure!(client.query(uses).is_err(), "{what}");
                    client.query("ROLLBACK TO s")?;
                    admin.query(undo)?;
                    conversation::hold(&mut client, &format!("{then}\n--\nQ COMMIT"))?
                }
            };
            ensure!(!said.iter().any(|line| line.starts_with("Error")), "{what}: {said:#?}");
            nothing_was_written(&cluster, &what, &said)?;
        }
    }
    Ok(())
}

/// A FETCH that is refused has not run the portal: behind a savepoint it is judged anew.
#[test]
fn a_portal_whose_fetch_was_refused_has_not_run() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    make_h(&mut admin, &function("fd", "PERFORM sum(v) FROM r;"))?;
    for after in ["E p|1\nS", "Q FETCH p"] {
        admin.query(
            "DROP TABLE IF EXISTS r; CREATE TABLE r (id int, v int) DISTRIBUTE BY REPLICATED;
             INSERT INTO r SELECT n, n FROM generate_series(1, 20) n",
        )?;
        let mut client = Client::connect(&cluster.endpoint())?;
        client.query("BEGIN")?;
        let bound = "P |SELECT fd() FROM h\nB p|\nS\n--\nQ SAVEPOINT s";
        conversation::hold(&mut client, bound)?;
        admin.query("SELECT tutti_distribute('r', 'id')")?;
        let said = conversation::hold(&mut client, "Q FETCH p\n--\nQ ROLLBACK TO s")?;
        ensure!(said.iter().any(|line| line == "Error 40001"), "{said:#?}");
        let said = conversation::hold(&mut client, after)?;
        ensure!(said.iter().any(|line| line == "Error 40001"), "{after}: {said:#?}");
    }
    Ok(())
}

/// The session's own search path changes what functions mean, or read, by the time that a portal, a cursor or its
/// transaction's end calls them.
#[test]
fn what_is_bound_calls_no_other_code_by_a_path_that_was_set_since() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE SCHEMA other; CREATE TABLE r (id int, v int) DISTRIBUTE BY REPLICATED;
         CREATE TABLE other.r (id int, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO r SELECT n, n FROM generate_series(1, 20) n;
         INSERT INTO other.r SELECT n, 100 * n FROM generate_series(1, 40) n",
    )?;
    let portal = "P |SELECT g(v) FROM h\nB p|\nE p|1\nS";
    let cursor = "Q DECLARE p CURSOR FOR SELECT g(v) FROM h\n--\nQ FETCH p";
    for body in ["RETURN fd();", "RETURN (SELECT sum(v) FROM r);"] {
        make_h(&mut admin, &function("fd", ""))?;
        admin.query(&function("other.fd", WRITES))?;
        let g = format!("FUNCTION g(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN {body} END $$");
        admin.query(&format!("CREATE OR REPLACE {g}"))?;
        admin.query(&trigger("PERFORM g(1);"))?;
        admin.query(
            "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON h DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION tf()",
        )?;
        let inserted = "Q INSERT INTO h VALUES (3, 3)";
        for set in [
            "SET search_path = other, public",
            "SELECT set_config('search_path', 'other, public', true)",
            "DO 'BEGIN SET LOCAL search_path = other, public; END'",
        ] {
            for (before, after) in [
                (portal, "E p|1\nS"),
                (portal, "Q FETCH p"),
                (cursor, "E p|1\nS"),
                (cursor, "Q FETCH p"),
                (inserted, "Q COMMIT"),
                (inserted, "Q SET CONSTRAINTS ALL IMMEDIATE"),
            ] {
                let what = format!("{body} {before}, {set}, {after}");
                let mut client = Client::connect(&cluster.endpoint())?;
                client.query("BEGIN")?;
                let said = conversation::hold(&mut client, &format!("{before}\n--\nQ {set}"))?;
                ensure!(!said.iter().any(|line| line.starts_with("Error")), "{what}: {said:#?}");
                let said = conversation::hold(&mut client, after)?;
                ensure!(said.iter().any(|line| line.starts_with("Error")), "{what}: {said:#?}");
                ensure!(refused_rightly(&said), "{what}: {said:#?}");
                drop(client);
                eprintln!("CASE {what} {said:?}");
                nothing_was_written(&cluster, &what, &said)?;
            }
        }
    }
    Ok(())
}

/// SET CONSTRAINTS runs what was deferred, as a COMMIT does.
#[test]
fn constraints_that_are_set_immediate_run_no_code_that_was_replaced() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    for set in [
        "Q SET CONSTRAINTS ALL IMMEDIATE",
        "Q SET CONSTRAINTS t IMMEDIATE",
        "P |SET CONSTRAINTS ALL IMMEDIATE\nB |\nE |0\nS",
        "Q SAVEPOINT s; RELEASE s; SET CONSTRAINTS ALL IMMEDIATE",
    ] {
        for is_own in [false, true] {
            make_h(&mut admin, &deferred())?;
            let mut client = Client::connect(&cluster.endpoint())?;
            client.query("BEGIN; INSERT INTO h VALUES (3, 3)")?;
            match is_own {
                true => client.query(&trigger(WRITES))?,
                false => admin.query(&trigger(WRITES))?,
            };
            let said = conversation::hold(&mut client, &format!("{set}\n--\nQ COMMIT"))?;
            ensure!(said.iter().any(|line| line.starts_with("Error")), "{set}: {said:#?}");
            ensure!(refused_rightly(&said), "{set}: {said:#?}");
            nothing_was_written(&cluster, set, &said)?;
        }
    }
    Ok(())
}

/// A client pauses in the middle of its COPY, which calls a function that another session replaces: the gateway ends
/// the COPY, for its node would heed nothing before more data come.
#[test]
fn a_copy_that_pauses_is_ended_as_others_are() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    for flight in [
        "Q COPY h FROM STDIN\nd 5\t5",
        "P |COPY h FROM STDIN\nB |\nE |0\nd 5\t5",
        "Q COPY hd FROM STDIN\nd 5\t5",
        "P |COPY hd FROM STDIN\nB |\nE |0\nd 5\t5",
    ] {
        make_h(&mut admin, &trigger(""))?;
        admin.query(
            "DROP TABLE IF EXISTS hd; CREATE TABLE hd (id int, v int) DISTRIBUTE BY HASH (id);
             CREATE TRIGGER t BEFORE INSERT ON hd FOR EACH ROW EXECUTE FUNCTION tf()",
        )?;
        admin.query("CREATE TRIGGER t BEFORE INSERT ON h FOR EACH ROW EXECUTE FUNCTION tf()")?;
        let mut client = Client::connect(&cluster.endpoint())?;
        client.send_bytes(&conversation::messages(flight)?)?;
        std::thread::sleep(Duration::from_millis(200));
        admin.query(&trigger(WRITES))?;
        let rest = if flight.starts_with('Q') { "d 6\t6\nc" } else { "d 6\t6\nc\nS" };
        client.send_bytes(&conversation::messages(rest)?)?;
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.starts_with("ReadyForQuery")) {
            said.push(conversation::told(&client.receive()?)?);
        }
        ensure!(said.iter().any(|line| line == "Error 40001"), "{flight}: {said:#?}");
        let rows = "SELECT (SELECT count(*) FROM h WHERE id > 2) + (SELECT count(*) FROM hd)";
        ensure!(client.value(rows)? == "0", "{flight}");
        nothing_was_written(&cluster, flight, &said)?;
    }
    Ok(())
}

/// A function that runs as its owner, by a search path with "$user" in it, as the default is, calls and reads what its
/// owner's schema has.
#[test]
fn a_function_that_runs_as_its_owner_is_read_as_its_owner_means_it() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE ROLE owner1 SUPERUSER; CREATE SCHEMA owner1;
         CREATE TABLE r (id int, v int) DISTRIBUTE BY REPLICATED; INSERT INTO r VALUES (1, 1);
         CREATE TABLE owner1.r (id int, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO owner1.r SELECT n, 100 * n FROM generate_series(1, 40) n",
    )?;
    admin.query(&function("fd", ""))?;
    admin.query(&function("owner1.fd", WRITES))?;
    for (name, body) in [("calls", "RETURN fd();"), ("reads", "RETURN (SELECT sum(v) FROM r);")] {
        admin.query(&format!(
            "CREATE FUNCTION {name}() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS \
             $$ BEGIN {body} END $$; ALTER FUNCTION {name}() OWNER TO owner1"
        ))?;
        let said = conversation::hold(&mut admin, &format!("Q SELECT {name}()"))?;
        ensure!(said.iter().any(|line| line == "Error 0A000"), "{name}: {said:#?}");
        nothing_was_written(&cluster, name, &said)?;
    }
    Ok(())
}

/// So does one that sets a role for itself, and a trigger that a foreign key fires as the owner of its table.
#[test]
fn what_runs_as_another_role_is_read_as_that_means_it() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE ROLE owner2 SUPERUSER; CREATE SCHEMA owner2;
         CREATE TABLE parent (id int PRIMARY KEY) DISTRIBUTE BY HOME;
         CREATE TABLE child (id int REFERENCES parent ON DELETE CASCADE) DISTRIBUTE BY HOME;
         INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1);
         ALTER TABLE child OWNER TO owner2",
    )?;
    admin.query(&function("fd", ""))?;
    admin.query(
        "CREATE FUNCTION g(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
         $$ BEGIN PERFORM fd(); RETURN i; END $$;
         CREATE TABLE indexed (v int) DISTRIBUTE BY HOME; CREATE INDEX ON indexed (g(v));
         INSERT INTO indexed SELECT generate_series(1, 9); ALTER TABLE indexed OWNER TO owner2;
         CREATE TABLE counted (v int) DISTRIBUTE BY HOME; CREATE STATISTICS s ON (g(v)) FROM counted;
         INSERT INTO counted SELECT generate_series(1, 9); ALTER TABLE counted OWNER TO owner2",
    )?;
    admin.query(&function("owner2.fd", WRITES))?;
    admin.query(
        "CREATE FUNCTION sets() RETURNS int LANGUAGE plpgsql SET role = owner2 AS \
         $$ BEGIN RETURN fd(); END $$",
    )?;
    admin.query(&trigger("PERFORM fd();").replace("RETURN new", "RETURN old"))?;
    admin.query("CREATE TRIGGER t BEFORE DELETE ON child FOR EACH ROW EXECUTE FUNCTION tf()")?;
    for statement in
        ["SELECT sets()", "DELETE FROM parent WHERE id = 1", "ANALYZE indexed", "ANALYZE counted"]
    {
        let said = conversation::hold(&mut admin, &format!("Q {statement}"))?;
        ensure!(said.iter().any(|line| line == "Error 0A000"), "{statement}: {said:#?}");
        nothing_was_written(&cluster, statement, &said)?;
    }
    Ok(())
}

/// What a domain checks is run wherever one of its values is made: by defaults of arguments and of other domains, by
/// what computes indexes and partitions, for OUT parameters, for states of aggregates, by input functions that are
/// called by name, and by literals that a view or a function has; so is what compares the ends of ranges, and what is
/// constant in indexes, which a server computes to plan or to build.
#[test]
fn code_behind_types_is_not_run_unasked() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let check = |body: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION chk(i int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS \
             $$ BEGIN {body} RETURN true; END $$"
        )
    };
    let compare = |body: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION cmp(i int, j int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
             $$ BEGIN {body} RETURN i - j; END $$"
        )
    };
    for (setup, statement) in [
        (
            "CREATE FUNCTION fa(a int DEFAULT ('5'::text)::dm) RETURNS int LANGUAGE plpgsql AS \
             $$ BEGIN RETURN a; END $$",
            "SELECT fa()",
        ),
        ("CREATE INDEX hi ON h ((v::dm))", "INSERT INTO h VALUES (5, 5)"),
        ("CREATE INDEX hi ON h (id) WHERE (v::dm) > 3", "INSERT INTO h VALUES (5, 5)"),
        ("CREATE STATISTICS hs ON (v::dm) FROM h", "ANALYZE h"),
        (
            "CREATE TABLE pt (id int, v int) PARTITION BY RANGE ((id::dm)) DISTRIBUTE BY HOME;
             CREATE TABLE pt1 PARTITION OF pt FOR VALUES FROM (1) TO (9)",
            "INSERT INTO pt VALUES (5, 5)",
        ),
        (
            "CREATE DOMAIN d1 AS int DEFAULT (('5'::text)::dm)::int;
             CREATE TABLE hd (id int, v d1) DISTRIBUTE BY HOME",
            "INSERT INTO hd (id) VALUES (1)",
        ),
        (
            "CREATE TABLE w (q dm) DISTRIBUTE BY REPLICATED; INSERT INTO w VALUES (1);
             CREATE FUNCTION fa() RETURNS int LANGUAGE plpgsql AS \
             $$ DECLARE rec record; BEGIN SELECT * INTO rec FROM w; rec.q := 7; RETURN 7; END $$",
            "SELECT fa()",
        ),
        (
            "CREATE TABLE w (id int, q dm[]) DISTRIBUTE BY HASH (id); INSERT INTO w VALUES (1, '{1}')",
            "SELECT array_append(q, '5') FROM w WHERE id = 1",
        ),
        (
            "CREATE TABLE w (id int, q dm[]) DISTRIBUTE BY HOME; INSERT INTO w VALUES (1, '{1}')",
            "SELECT id FROM w WHERE q = '{5}'",
        ),
        (
            "CREATE TABLE w (id int, q dm) DISTRIBUTE BY HASH (id); INSERT INTO w VALUES (1, 1);
             CREATE FUNCTION fa(a anyelement) RETURNS int LANGUAGE plpgsql AS $$ BEGIN a := 7; RETURN 1; END $$",
            "SELECT fa(q) FROM w WHERE id = 1",
        ),
        (
            "CREATE INDEX hb ON h USING brin ((v::dm))",
            "SELECT brin_desummarize_range('hb'::regclass, 0), brin_summarize_range('hb'::regclass, 0)",
        ),
        ("SELECT 1", "SELECT domain_in('5'::cstring, 'dm'::regtype::oid, -1) IS NULL"),
        ("SELECT 1", "SELECT array_in('{5}'::cstring, 'dm'::regtype::oid, -1) IS NULL"),
        (
            "CREATE FUNCTION vf(a int, OUT o1 dm, OUT o2 int) LANGUAGE plpgsql AS \
             $$ BEGIN o1 := a; o2 := a; END $$",
            "SELECT * FROM vf(1)",
        ),
        (
            "CREATE FUNCTION vf(a int) RETURNS TABLE (o1 dm, o2 int) LANGUAGE plpgsql AS \
             $$ BEGIN o1 := a; RETURN NEXT; END $$",
            "SELECT * FROM vf(1)",
        ),
        (
            "CREATE FUNCTION fst(s dm, i int) RETURNS dm LANGUAGE sql AS 'SELECT s';
             CREATE AGGREGATE ag (int) (SFUNC = fst, STYPE = dm, INITCOND = '4')",
            "SELECT ag(v) FROM h",
        ),
        ("SELECT 1", "SELECT '{5}'::_dm"),
        (
            "CREATE TABLE w (v int) DISTRIBUTE BY HOME;
             CREATE TABLE child (CHECK (chk(5))) INHERITS (w) DISTRIBUTE BY HOME",
            "SELECT * FROM w WHERE v = 1",
        ),
        (
            "CREATE TABLE w (v int) DISTRIBUTE BY HOME; CREATE TABLE child () INHERITS (w) DISTRIBUTE BY HOME;
             CREATE INDEX ON child ((cmp(5, 4) + v))",
            "SELECT * FROM w WHERE v = 1",
        ),
        (
            "CREATE TABLE w (v int PRIMARY KEY) DISTRIBUTE BY HOME; INSERT INTO w VALUES (1);
             CREATE INDEX ON w ((cmp(5, 4) + v)); CREATE TABLE hd (v int REFERENCES w) DISTRIBUTE BY HOME",
            "INSERT INTO hd VALUES (1)",
        ),
        (
            "CREATE TABLE w (v int PRIMARY KEY) DISTRIBUTE BY HOME; INSERT INTO w VALUES (1);
             CREATE TABLE hd (v int REFERENCES w) DISTRIBUTE BY HOME; CREATE INDEX ON hd ((cmp(5, 4) + v))",
            "DELETE FROM w",
        ),
        ("CREATE INDEX ON x ((cmp(5, 4) + v))", "SELECT count(*) FROM x WHERE v = 0"),
        ("CREATE INDEX ON x ((cmp(5, 4) + v))", "SELECT v FROM x WHERE k = 1 FOR UPDATE"),
        (
            "CREATE INDEX ON x ((cmp(5, 4) + v)); CREATE TABLE w (k int PRIMARY KEY) DISTRIBUTE BY HASH (k)",
            "ALTER TABLE w ADD FOREIGN KEY (k) REFERENCES x",
        ),
        ("CREATE INDEX ON x ((cmp(5, 4) + v))", "TRUNCATE x"),
        ("CREATE INDEX ON x ((cmp(5, 4) + v))", "ALTER TABLE x ALTER v SET NOT NULL"),
        ("CREATE INDEX ON h ((cmp(5, 4) + v))", "TRUNCATE h"),
        ("CREATE INDEX ON h ((cmp(5, 4) + v))", "CREATE TABLE w (LIKE h INCLUDING ALL)"),
        ("SELECT 1", "CREATE VIEW w AS SELECT '{5}'::_dm"),
        ("SELECT 1", "CREATE TABLE w (q dm[] DEFAULT '{5}')"),
        ("SELECT 1", "CREATE FUNCTION fa() RETURNS _dm LANGUAGE sql AS $$ SELECT '{5}'::_dm $$"),
        ("CREATE TEMP TABLE one (q dm)", "INSERT INTO one VALUES ('5')"),
        ("CREATE TEMP TABLE many (q dm[])", "INSERT INTO many VALUES ('{5}')"),
        ("CREATE STATISTICS xs ON (cmp(5, 4) + v), v FROM x", "SELECT count(*) FROM x WHERE v = 0"),
        ("CREATE TABLE hr (r rng); INSERT INTO hr VALUES ('[1,5)'), ('[2,4)')", "ANALYZE hr"),
        ("CREATE TABLE hr (r rng); INSERT INTO hr VALUES ('[1,5)'), ('[2,4)')", "CREATE INDEX ON hr (r)"),
        ("SELECT 1", "CREATE TABLE w (v int CHECK (v > cmp(5, 4)), i int PRIMARY KEY) DISTRIBUTE BY REPLICATED"),
        ("SELECT 1", "CREATE TABLE w (v int, g int GENERATED ALWAYS AS (v + cmp(5, 4)) STORED)"),
        ("SELECT 1", "CREATE SCHEMA made CREATE VIEW w AS SELECT '{5}'::public._dm"),
        ("SELECT 1", "CREATE FUNCTION fa(a dm[]) RETURNS bool LANGUAGE sql AS $$ SELECT a = '{5}' $$"),
        ("CREATE TABLE w (q dm[])", "CREATE INDEX ON w (array_length(q, 1)) WHERE q = '{5}'"),
        ("CREATE TABLE w (q dm[])", "PREPARE p AS SELECT * FROM w WHERE q = '{5}'"),
        ("CREATE TABLE w (q dm[])", "P |SELECT * FROM w WHERE q = '{5}'\nD S \nS"),
        ("CREATE TABLE w (q dm)", "P |INSERT INTO w VALUES ($1)\nB ||5\nE |0\nS"),
        ("SELECT 1", "P |SELECT $1::dm FROM x WHERE k = 1\nB ||5\nE |0\nS"),
        ("SELECT 1", "P |SELECT count(*) FROM x WHERE v <> $1::dm\nB ||5\nE |0\nS"),
        ("SELECT 1", "SELECT rng(1, 5)"),
        ("SELECT 1", "SELECT '[1,5)'::rng"),
        ("SELECT 1", "SELECT count(*) FROM x WHERE rng(1, 5) @> rng(v, v + 1)"),
    ] {
        admin.query(
            "DROP TABLE IF EXISTS h, pt, hd, hr, child, w CASCADE; DROP FUNCTION IF EXISTS chk, cmp, fa, vf, fst CASCADE;
             DROP OPERATOR FAMILY IF EXISTS ops USING btree CASCADE",
        )?;
        admin.query("DROP DOMAIN IF EXISTS d1, dm CASCADE; DROP TYPE IF EXISTS rng CASCADE")?;
        admin.query(&check(""))?;
        admin.query(&compare(""))?;
        admin.query("CREATE TABLE h (id int, v int) DISTRIBUTE BY HOME")?;
        admin.query("CREATE DOMAIN dm AS int CHECK (chk(VALUE)); INSERT INTO h VALUES (1, 1)")?;
        admin.query(
            "CREATE OPERATOR CLASS ops FOR TYPE int4 USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, \
             OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 cmp(int, int)",
        )?;
        admin.query("CREATE TYPE rng AS RANGE (SUBTYPE = int4, SUBTYPE_OPCLASS = ops)")?;
        admin.query(setup)?;
        admin.query(&check(WRITES))?;
        admin.query(&compare(WRITES))?;
        let lines = match statement.starts_with("P |") {
            true => statement.to_owned(),
            false => format!("Q {statement}"),
        };
        let said = conversation::hold(&mut admin, &lines)?;
        ensure!(said.iter().any(|line| line == "Error 0A000"), "{setup}; {statement}: {said:#?}");
        nothing_was_written(&cluster, statement, &said)?;
    }
    Ok(())
}

/// Code that an index calls for each row is run for nobody who only reads, whatever it has come to do.
#[test]
fn an_index_by_code_that_came_to_do_more_stops_writers_and_no_reader() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let slug = |body: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION slug(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
             $$ BEGIN {body} RETURN i; END $$"
        )
    };
    admin.query(&slug(""))?;
    admin.query("CREATE INDEX ON x (slug(v)); ALTER TABLE x ADD CHECK (slug(v) < 1000)")?;
    admin.query(&slug(WRITES))?;
    ensure!(admin.value("SELECT count(*) FROM x WHERE v = 0")? == "40");
    ensure!(admin.value("SELECT v FROM x WHERE k = 1 FOR UPDATE")? == "0");
    admin.query("ALTER TABLE x ADD COLUMN more int; ALTER TABLE x ALTER v SET NOT NULL")?;
    let said = conversation::hold(&mut admin, "Q UPDATE x SET v = 1 WHERE k = 1")?;
    ensure!(said.iter().any(|line| line == "Error 0A000"), "{said:#?}");
    nothing_was_written(&cluster, "reads and a refused write", &said)
}

/// What `client` is told of a statement that waits for a lock of `lock_of` while a change is made.
fn behind_a_lock(
    cluster: &TestCluster,
    mut client: Client,
    statement: &str,
    admin: &mut Client,
    change: &str,
) -> Result<Vec<String>> {
    let mut holder = Client::connect(&cluster.endpoint())?;
    holder.query("BEGIN; LOCK TABLE lock_of IN ACCESS EXCLUSIVE MODE")?;
    client.send_bytes(&conversation::messages(&format!("Q {statement}"))?)?;
    std::thread::sleep(Duration::from_millis(200));
    admin.query(change)?;
    holder.query("COMMIT")?;
    let mut said = Vec::new();
    while !said.last().is_some_and(|line: &String| line.starts_with("ReadyForQuery")) {
        said.push(conversation::told(&client.receive()?)?);
    }
    Ok(said)
}

/// While a query waits for another table's lock, code is added to what it comes to behind that: a cast of the rows of
/// a table that it does not name, another query of a view, another condition of a policy.
#[test]
fn who_waits_for_a_lock_does_not_run_what_is_added_behind_it() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE ROLE ann LOGIN")?;
    let cast = format!(
        "CREATE FUNCTION evt(h) RETURNS text LANGUAGE plpgsql AS $$ BEGIN {WRITES} RETURN 'evt'; END $$"
    );
    let rows = format!("CREATE VIEW vv AS SELECT h AS r FROM h; {cast}");
    let arrays = format!("CREATE VIEW vv AS SELECT ARRAY[h] AS r FROM h; {cast}");
    let make_cast = "CREATE CAST (h AS text) WITH FUNCTION evt(h)";
    for (setup, query, change) in [
        (&*rows, "SELECT vv.r::text FROM lock_of, vv", make_cast),
        (&*arrays, "SELECT vv.r::text[] FROM lock_of, vv", make_cast),
        (
            "CREATE VIEW vv AS SELECT id FROM h",
            "SELECT vv.id FROM lock_of, vv",
            "CREATE OR REPLACE VIEW vv AS SELECT fd() AS id FROM h",
        ),
        (
            "ALTER TABLE h ENABLE ROW LEVEL SECURITY; CREATE POLICY p0 ON h USING (true)",
            "SELECT h.id FROM lock_of, h",
            "ALTER POLICY p0 ON h USING (fd() > 0)",
        ),
    ] {
        for begin in ["BEGIN", ""] {
            make_h(&mut admin, "DROP TABLE IF EXISTS lock_of; DROP VIEW IF EXISTS vv")?;
            admin.query(
                "CREATE TABLE lock_of (i int) DISTRIBUTE BY HOME; INSERT INTO lock_of VALUES (1)",
            )?;
            admin.query("GRANT ALL ON b, h, lock_of TO PUBLIC")?;
            admin.query(&function("fd", WRITES))?;
            admin.query(setup)?;
            let role = if setup.contains("POLICY") { "ann" } else { "postgres" };
            let mut client = Client::connect_as(&cluster.endpoint(), role)?;
            if !begin.is_empty() {
                client.query(begin)?;
            }
            let said = behind_a_lock(&cluster, client, query, &mut admin, change)?;
            let what = format!("{begin} {query} beside {change}");
            ensure!(said.iter().any(|line| line.starts_with("Error")), "{what}: {said:#?}");
            ensure!(refused_rightly(&said), "{what}: {said:#?}");
            nothing_was_written(&cluster, &what, &said)?;
        }
    }
    Ok(())
}

/// An event trigger is made, or enabled, while a change of the schema waits that would fire it.
#[test]
fn who_changes_the_schema_does_not_fire_an_event_trigger_that_was_made_meanwhile() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let fires = |name: &str, body: &str| {
        format!(
            "CREATE FUNCTION {name}() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
             CREATE EVENT TRIGGER {name} ON ddl_command_end EXECUTE FUNCTION {name}()"
        )
    };
    for (setup, change) in [
        (
            "DROP EVENT TRIGGER et",
            "CREATE EVENT TRIGGER et ON ddl_command_end EXECUTE FUNCTION et()",
        ),
        ("ALTER EVENT TRIGGER et DISABLE", "ALTER EVENT TRIGGER et ENABLE"),
    ] {
        for harmless in [true, false] {
            admin.query("DROP EVENT TRIGGER IF EXISTS et")?;
            admin.query("DROP EVENT TRIGGER IF EXISTS harmless")?;
            admin
                .query("DROP FUNCTION IF EXISTS et(), harmless(); DROP TABLE IF EXISTS lock_of")?;
            admin.query("CREATE TABLE lock_of (i int) DISTRIBUTE BY HOME")?;
            if harmless {
                admin.query(&fires("harmless", ""))?;
            }
            admin.query(&fires("et", WRITES))?;
            admin.query(setup)?;
            let client = Client::connect(&cluster.endpoint())?;
            let waits = "ALTER TABLE lock_of ADD c int";
            let said = behind_a_lock(&cluster, client, waits, &mut admin, change)?;
            let what = format!("{change}, beside a harmless one: {harmless}");
            ensure!(said.iter().any(|line| line.starts_with("Error")), "{what}: {said:#?}");
            ensure!(refused_rightly(&said), "{what}: {said:#?}");
            nothing_was_written(&cluster, &what, &said)?;
        }
    }
    Ok(())
}

/// A function of one session's own that a table's trigger calls is run by all.
#[test]
fn temporary_code_that_others_run_is_not_replaced() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    make_h(&mut admin, "SELECT 1")?;
    let function =
        |name: &str, with: &str| trigger(with).replace("tf()", &format!("pg_temp.{name}()"));
    admin.query(&function("tt", ""))?;
    admin.query(&function("other", ""))?;
    admin.query(&function("other", "PERFORM 1;"))?;
    admin
        .query("CREATE TRIGGER t BEFORE INSERT ON h FOR EACH ROW EXECUTE FUNCTION pg_temp.tt()")?;
    let said = conversation::hold(&mut admin, &format!("Q {}", function("tt", WRITES)))?;
    ensure!(said.iter().any(|line| line == "Error 0A000"), "{said:#?}");
    admin.query("DROP TRIGGER t ON h")?;
    admin.query(&function("tt", WRITES))?;
    Ok(())
}

/// A COMMIT computes the rows of a cursor WITH HOLD that code has declared, and the expressions of an exclusion
/// constraint that was deferred, by code that was replaced meanwhile.
#[test]
fn what_a_commit_computes_is_not_run_unasked() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let g = |body: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION g(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
             $$ BEGIN {body} RETURN i; END $$"
        )
    };
    for statements in [
        &["DO $$ BEGIN EXECUTE 'DECLARE cc CURSOR WITH HOLD FOR SELECT g(v) FROM h'; END $$"][..],
        &[
            "INSERT INTO excluded VALUES (1, 1), (2, 3)",
            "INSERT INTO excluded VALUES (3, 3)",
            "DELETE FROM excluded WHERE id = 2",
        ],
    ] {
        make_h(&mut admin, "DROP TABLE IF EXISTS excluded")?;
        admin.query(&g("IF i > 1 THEN PERFORM 1; END IF;"))?;
        admin.query(
            "CREATE TABLE excluded (id int, v int, \
             EXCLUDE USING btree (g(v) WITH =) DEFERRABLE INITIALLY DEFERRED) DISTRIBUTE BY HOME",
        )?;
        let mut client = Client::connect(&cluster.endpoint())?;
        client.query("BEGIN")?;
        let mut said = Vec::new();
        for statement in statements {
            said.extend(conversation::hold(&mut client, &format!("Q {statement}"))?);
        }
        admin.query(&g(WRITES))?;
        said.extend(conversation::hold(&mut client, "Q COMMIT")?);
        ensure!(said.iter().any(|line| line.starts_with("Error")), "{statements:?}: {said:#?}");
        ensure!(refused_rightly(&said), "{statements:?}: {said:#?}");
        nothing_was_written(&cluster, &format!("{statements:?}"), &said)?;
    }
    Ok(())
}

/// A function reads a replicated table, or a view of it, which every node can answer; that is moved, or its name
/// comes to mean another, before a portal or cursor goes on that calls the function, or a transaction ends that has
/// left such a call.
#[test]
fn what_code_reads_is_what_it_was_when_its_caller_was_bound() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let (portal, fetch) = ("P |SELECT g(v) FROM h\nB p|\nE p|1\nS", "Q FETCH p");
    let cursor = "Q DECLARE p CURSOR FOR SELECT g(v) FROM h\n--\nQ FETCH p";
    let held = "Q DECLARE p CURSOR WITH HOLD FOR SELECT g(v) FROM h";
    let view = "CREATE OR REPLACE VIEW rv AS SELECT k, v FROM x";
    let code = "CREATE OR REPLACE VIEW rv AS SELECT k, writes() AS v FROM r";
    let swap = "ALTER TABLE r RENAME TO r_old; ALTER TABLE x RENAME TO r";
    let first = "CREATE TABLE first.r (k int, v int) DISTRIBUTE BY HASH (k)";
    for (reads, change) in [
        ("r", "SELECT tutti_distribute('r', 'k')"),
        ("rv", view),
        ("rv", code),
        ("r", swap),
        ("r", first),
    ] {
        for (before, after) in [
            (portal, "E p|1\nS"),
            (portal, fetch),
            (cursor, fetch),
            (cursor, "E p|1\nS"),
            (held, "Q COMMIT"),
            ("Q INSERT INTO h VALUES (5, 5)", "Q COMMIT"),
        ] {
            make_h(&mut admin, "DROP TABLE IF EXISTS x, r, r_old CASCADE")?;
            admin.query(
                "DROP SCHEMA IF EXISTS first CASCADE; CREATE SCHEMA first;
                 CREATE TABLE x (k int, v int) DISTRIBUTE BY HASH (k);
                 INSERT INTO x SELECT n, 100 * n FROM generate_series(1, 40) n;
                 CREATE TABLE r (k int, v int) DISTRIBUTE BY REPLICATED;
                 INSERT INTO r SELECT n, n FROM generate_series(1, 20) n;
                 CREATE VIEW rv AS SELECT k, v FROM r",
            )?;
            admin.query(&function("writes", WRITES))?;
            let g = format!(
                "CREATE OR REPLACE FUNCTION g(i int) RETURNS int LANGUAGE plpgsql AS \
                 $$ BEGIN IF i > 1 THEN RETURN (SELECT sum(v) FROM {reads}); END IF; RETURN i; END $$"
            );
            admin.query(&g)?;
            let tf = trigger("RAISE NOTICE '%', g(2);");
            admin.query(&format!(
                "{tf}; CREATE CONSTRAINT TRIGGER t AFTER INSERT ON h DEFERRABLE INITIALLY DEFERRED \
                 FOR EACH ROW EXECUTE FUNCTION tf()"
            ))?;
            let what = format!("{before}; {change}; {after}");
            for change in [change, "CREATE TABLE u (k int) DISTRIBUTE BY HASH (k); DROP TABLE u"] {
                let mut client = Client::connect(&cluster.endpoint())?;
                client.query("SET search_path = first, public; BEGIN")?;
                let said = conversation::hold(&mut client, before)?;
                ensure!(!said.iter().any(|line| line.starts_with("Error")), "{what}: {said:#?}");
                let changer = Client::connect(&cluster.endpoint())?;
                let (changed, _) = joined(meanwhile(changer, format!("Q {change}")))?;
                ensure!(!changed.iter().any(|line| line.starts_with("Error")), "{changed:#?}");
                let said = conversation::hold(&mut client, after)?;
                let is_refused = said.iter().any(|line| line.starts_with("Error"));
                ensure!(is_refused != change.contains("TABLE u"), "{what}: {change}: {said:#?}");
                ensure!(refused_rightly(&said), "{what}: {said:#?}");
                drop(client);
                eprintln!("CASE {what} {said:?}");
                nothing_was_written(&cluster, &what, &said)?;
                if is_refused {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// A statement, or a FETCH, is at work, and the code that it calls comes later to a replicated table, which is moved
/// meanwhile: it reads all of it, or is refused.
#[test]
fn what_code_reads_is_not_moved_while_its_caller_is_at_work() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    make_h(&mut admin, "SELECT 1")?;
    admin.query(
        "CREATE FUNCTION later(i int) RETURNS int LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_sleep(0.5); RETURN (SELECT sum(v) FROM r); END $$",
    )?;
    let query = "SELECT later(v) FROM h";
    for (before, flight) in [
        ("Q SELECT 1".to_owned(), format!("Q {query}")),
        ("Q SELECT 1".to_owned(), one(query) + "S"),
        ("Q BEGIN".to_owned(), one(query) + "S"),
        (format!("Q BEGIN; DECLARE c CURSOR FOR {query}"), "Q FETCH 2 FROM c".to_owned()),
        (format!("Q BEGIN; DECLARE c CURSOR FOR {query}"), "E c|2\nS".to_owned()),
    ] {
        admin.query(
            "DROP TABLE IF EXISTS r; CREATE TABLE r (id int, v int) DISTRIBUTE BY REPLICATED;
             INSERT INTO r SELECT n, n FROM generate_series(1, 20) n",
        )?;
        let mut client = Client::connect(&cluster.endpoint())?;
        conversation::hold(&mut client, &before)?;
        let asked = meanwhile(client, flight.clone());
        std::thread::sleep(Duration::from_millis(200));
        admin.query("SELECT tutti_distribute('r', 'id')")?;
        let (said, _) = joined(asked)?;
        ensure!(refused_rightly(&said), "{before}, {flight}: {said:#?}");
        let is_refused = said.iter().any(|line| line.starts_with("Error"));
        let mut rows = said.iter().filter(|line| line.starts_with("DataRow"));
        let are_all_right = rows.all(|row| row == "DataRow 210");
        ensure!(is_refused || are_all_right, "{before}, {flight}: {said:#?}");
    }
    Ok(())
}

/// A statement of node 1 is at work, and comes to a further table by a foreign key, or for a row of a partition, when
/// that has a trigger which writes tables of several nodes.
#[test]
fn what_comes_to_a_table_later_does_not_run_what_it_has_got_meanwhile() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let on =
        |what: &str| format!("CREATE TRIGGER t BEFORE {what} FOR EACH ROW EXECUTE FUNCTION tf()");
    let insert = "INSERT INTO parts VALUES (1, 1), (3, 3) ON CONFLICT DO NOTHING";
    for (lock, statement, change) in [
        (
            "UPDATE parent SET v = v WHERE id = 1",
            "DELETE FROM parent WHERE id = 1",
            on("DELETE ON child"),
        ),
        ("INSERT INTO parts VALUES (1, 1)", insert, on("INSERT ON part2")),
    ] {
        admin.query("DROP TABLE IF EXISTS child, parent, parts CASCADE")?;
        make_h(&mut admin, &trigger(WRITES).replace("RETURN new", "RETURN coalesce(new, old)"))?;
        admin.query(
            "CREATE TABLE parent (id int PRIMARY KEY, v int) DISTRIBUTE BY HOME;
             INSERT INTO parent SELECT n, n FROM generate_series(1, 9) n;
             CREATE TABLE child (id int REFERENCES parent ON DELETE CASCADE, v int) DISTRIBUTE BY HOME;
             INSERT INTO child SELECT n, n FROM generate_series(1, 9) n;
             CREATE TABLE parts (id int, v int) PARTITION BY LIST (id) DISTRIBUTE BY HOME;
             CREATE TABLE part1 PARTITION OF parts FOR VALUES IN (1, 2);
             CREATE TABLE part2 PARTITION OF parts FOR VALUES IN (3, 4);
             CREATE UNIQUE INDEX ON part1 (id)",
        )?;
        let mut locker = Client::connect(&cluster.endpoint())?;
        locker.query(&format!("BEGIN; {lock}"))?;
        let client = Client::connect(&cluster.endpoint())?;
        let asked = meanwhile(client, format!("Q {statement}"));
        ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(2))?, "{statement}");
        std::thread::sleep(Duration::from_millis(100));
        admin.query(&change)?;
        locker.query("COMMIT")?;
        let (said, _) = joined(asked)?;
        ensure!(refused_rightly(&said), "{statement}: {said:#?}");
        nothing_was_written(&cluster, statement, &said)?;
    }
    Ok(())
}

/// A statement was sent, and its server process does not come to its turn for a while, as where processors are
/// rationed; a trigger comes meanwhile. It is not run by a statement that was planned without.
#[test]
fn a_process_that_is_held_up_does_not_run_what_came_meanwhile() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut node = Client::connect(&cluster.nodes()[0])?;
    let made = "CREATE TRIGGER t BEFORE INSERT ON h FOR EACH ROW EXECUTE FUNCTION tf()";
    let insert = "INSERT INTO h VALUES (7, 7)";
    let mut held_up = 0;
    for (flight, named) in [
        (format!("Q {insert}"), false),
        (one(insert) + "S", false),
        ("B |s\nE |0\nS".to_owned(), true),
        (format!("{}{}S", one("SELECT v FROM h WHERE id = 1"), one(insert)), false),
    ] {
        make_h(&mut admin, &trigger(WRITES))?;
        let mut client = Client::connect(&cluster.endpoint())?;
        if named {
            conversation::hold(&mut client, &format!("P s|{insert}\nS"))?;
        }
        // Its plan is known, and its process is the first that the next statement gets.
        conversation::hold(&mut client, &flight)?;
        let process = node.value(
            "SELECT pid FROM pg_stat_activity WHERE query LIKE 'INSERT INTO h VALUES (7, 7)%' \
             ORDER BY state_change DESC LIMIT 1",
        )?;
        signal("-STOP", &process)?;
        let asked = meanwhile(client, flight.clone());
        std::thread::sleep(Duration::from_millis(100));
        let changer = Client::connect(&cluster.endpoint())?;
        let changed = meanwhile(changer, format!("Q {made}"));
        std::thread::sleep(Duration::from_millis(300));
        held_up += usize::from(!asked.is_finished());
        signal("-CONT", &process)?;
        let (changed, _) = joined(changed)?;
        ensure!(!changed.iter().any(|line| line.starts_with("Error")), "{changed:#?}");
        let (said, _) = joined(asked)?;
        ensure!(refused_rightly(&said), "{flight}: {said:#?}");
        nothing_was_written(&cluster, &flight, &said)?;
    }
    ensure!(0 < held_up, "another process has run each statement");
    Ok(())
}

fn signal(signal: &str, process: &str) -> Result<()> {
    let status = std::process::Command::new("kill").args([signal, process]).status()?;
    ensure!(status.success(), "kill {signal} {process}: {status}");
    Ok(())
}

/// A schema gets another name, or a role does not see one any more, while a flight of the role's waits whose next
/// statement names a table that is in two schemas.
#[test]
fn a_schema_that_goes_out_of_sight_concerns_who_may_have_meant_its_tables() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE ROLE looker LOGIN; CREATE ROLE sees")?;
    let key = Client::connect(&cluster.nodes()[1])?.value("SELECT min(k) FROM x")?;
    for change in [
        "ALTER SCHEMA s1 RENAME TO s2",
        "REVOKE USAGE ON SCHEMA s1 FROM looker, sees",
        "REVOKE sees FROM looker",
    ] {
        for own in ["DISTRIBUTE BY HASH (j)", "DISTRIBUTE BY HOME"] {
            for begins in [true, false] {
                admin.query(&format!(
                    "DROP SCHEMA IF EXISTS s1, s2 CASCADE; CREATE SCHEMA s1;
                     CREATE TABLE s1.b (k int, j int) {own}; GRANT ALL ON s1.b, b, x TO looker;
                     TRUNCATE b; GRANT sees TO looker"
                ))?;
                let sees = if change.contains("sees FROM") { "sees" } else { "looker" };
                admin.query(&format!("GRANT USAGE ON SCHEMA s1 TO {sees}"))?;
                let mut locker = Client::connect(&cluster.endpoint())?;
                locker.query(&format!("BEGIN; UPDATE x SET v = 1 WHERE k = {key}"))?;
                let mut client = Client::connect_as(&cluster.endpoint(), "looker")?;
                client.query("SET search_path = s1, public")?;
                if begins {
                    client.query("BEGIN")?;
                }
                let first = one(&format!("UPDATE x SET v = v + 1 WHERE k = {key}"));
                let flight =
                    format!("{first}{}S", one(&format!("INSERT INTO b VALUES ({key}, 103)")));
                let asked = meanwhile(client, flight);
                ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?, "nobody waits");
                let changer = Client::connect(&cluster.endpoint())?;
                let (changed, _) = joined(meanwhile(changer, format!("Q {change}")))?;
                ensure!(!changed.iter().any(|line| line.starts_with("Error")), "{changed:#?}");
                locker.query("COMMIT")?;
                let (said, mut client) = joined(asked)?;
                client.query("COMMIT")?;
                ensure!(refused_rightly(&said), "{change}, {own}: {said:#?}");
                // Where its rows are the auditor looks.
                let audited = cluster.audit()?;
                ensure!(audited.is_clean(), "{change}, {own}, {begins}: {audited:?}; {said:#?}");
            }
        }
    }
    Ok(())
}

/// A schema comes into the path of a session whose transaction is open: what it plans from then on means what its
/// nodes mean, tables and functions.
#[test]
fn a_schema_that_comes_into_sight_is_in_sight_for_open_transactions_too() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE ROLE newcomer LOGIN; CREATE TABLE yy (k int, v int) DISTRIBUTE BY HOME")?;
    admin.query(
        "INSERT INTO yy SELECT n, n FROM generate_series(1, 10) n; GRANT ALL ON yy, x TO newcomer;
         CREATE FUNCTION f(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN i; END $$",
    )?;
    for change in ["GRANT USAGE ON SCHEMA s1 TO newcomer", "ALTER SCHEMA s1 RENAME TO newcomer"] {
        for before in
            ["SELECT 1", "SELECT count(*) FROM yy", "SELECT f(v) FROM yy", "SELECT count(*) FROM x"]
        {
            admin.query(&format!(
                "DROP SCHEMA IF EXISTS s1, newcomer CASCADE; CREATE SCHEMA s1;
                 CREATE TABLE s1.yy (k int, v int) DISTRIBUTE BY HASH (k);
                 INSERT INTO s1.yy SELECT n, n FROM generate_series(1, 40) n;
                 GRANT ALL ON s1.yy, b TO newcomer;
                 CREATE FUNCTION s1.f(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN {WRITES} RETURN i; END $$",
            ))?;
            let name = match change.starts_with("ALTER") {
                true => {
                    admin.query("GRANT USAGE ON SCHEMA s1 TO newcomer")?;
                    "\"$user\""
                }
                false => "s1",
            };
            let mut client = Client::connect_as(&cluster.endpoint(), "newcomer")?;
            client.query(&format!("SET search_path = {name}, public; BEGIN; {before}"))?;
            admin.query(change)?;
            let rows = client.value("SELECT count(*) FROM yy")?;
            ensure!(rows == "40", "{change}, {before}: {rows} rows");
            let said = conversation::hold(&mut client, "Q SELECT f(v) FROM x WHERE k = 1")?;
            ensure!(said.iter().any(|line| line == "Error 0A000"), "{change}, {before}: {said:#?}");
            client.query("ROLLBACK")?;
            nothing_was_written(&cluster, change, &said)?;
        }
    }
    Ok(())
}

/// A function that comes into the sight of a role hides one that is harmless, beside a statement, a cursor and a
/// deferred trigger of the role's.
#[test]
fn a_function_that_comes_into_sight_is_not_run_unasked() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE ROLE newcomer LOGIN; GRANT ALL ON x, b TO newcomer")?;
    for before in
        ["Q SELECT 1", "Q DECLARE p CURSOR FOR SELECT fd() FROM h", "Q INSERT INTO h VALUES (7, 7)"]
    {
        make_h(
            &mut admin,
            &format!(
                "DROP SCHEMA IF EXISTS s1 CASCADE; CREATE SCHEMA s1; {}; {};
                 CREATE CONSTRAINT TRIGGER t AFTER INSERT ON h DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
                 EXECUTE FUNCTION tf(); GRANT ALL ON h TO newcomer; {}",
                function("fd", ""),
                trigger("PERFORM fd();"),
                function("s1.fd", WRITES)
            ),
        )?;
        let mut client = Client::connect_as(&cluster.endpoint(), "newcomer")?;
        client.query("SET search_path = s1, public; BEGIN")?;
        conversation::hold(&mut client, before)?;
        let mut locker = Client::connect(&cluster.endpoint())?;
        let waits = before == "Q SELECT 1";
        let change = "GRANT USAGE ON SCHEMA s1 TO newcomer";
        let said = if waits {
            locker.query("BEGIN; UPDATE h SET v = v WHERE id = 1")?;
            let asked = meanwhile(client, "Q UPDATE h SET v = fd() WHERE id = 1".to_owned());
            ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?, "nobody waits");
            let changer = Client::connect(&cluster.endpoint())?;
            joined(meanwhile(changer, format!("Q {change}")))?;
            locker.query("ROLLBACK")?;
            let (mut said, mut client) = joined(asked)?;
            said.extend(conversation::hold(&mut client, "Q COMMIT")?);
            said
        } else {
            admin.query(change)?;
            conversation::hold(
                &mut client,
                if before.contains("CURSOR") { "Q FETCH p" } else { "Q COMMIT" },
            )?
        };
        ensure!(said.iter().any(|line| line.starts_with("Error")), "{before}: {said:#?}");
        ensure!(refused_rightly(&said), "{before}: {said:#?}");
        nothing_was_written(&cluster, before, &said)?;
    }
    Ok(())
}

/// Makes those wait who come to row 1 of `h` or to `x`, and fires a trigger.
const LOCKS: &str = "BEGIN; UPDATE h SET v = v WHERE id = 1; INSERT INTO g VALUES (9); LOCK TABLE x IN ACCESS EXCLUSIVE MODE";

/// What has nothing to do with new code neither waits for it nor delays it.
#[test]
fn who_calls_nothing_of_it_is_left_alone() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    make_h(&mut admin, &function("fd", ""))?;
    admin.query(&trigger(""))?;
    admin.query(
        "CREATE TABLE g (id int) DISTRIBUTE BY HOME;
         CREATE TRIGGER t AFTER INSERT ON g FOR EACH ROW EXECUTE FUNCTION tf()",
    )?;
    let mut locker = Client::connect(&cluster.endpoint())?;
    locker.query(LOCKS)?;
    for flight in [
        "Q UPDATE h SET v = (SELECT max(of_others) FROM (SELECT 3 AS of_others) AS it) WHERE id = 1"
            .to_owned(),
        "Q UPDATE h SET v = fd() WHERE id = 1".to_owned(),
        "Q UPDATE h SET v = lower('3')::int WHERE id = 1".to_owned(),
        "Q INSERT INTO h SELECT k, fd() FROM x".to_owned(),
        one("UPDATE h SET v = fd() WHERE id = 1") + "S",
    ] {
        let asked = meanwhile(Client::connect(&cluster.endpoint())?, flight.clone());
        ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?, "nobody waits");
        admin.query(&function("of_others", WRITES))?;
        ensure!(!asked.is_finished(), "{flight}: it was ended");
        // What its triggers have done is done: nothing is left to its end.
        admin.query(&trigger(WRITES))?;
        admin.query(&trigger(""))?;
        locker.query("COMMIT")?;
        let (said, _) = joined(asked)?;
        ensure!(!said.iter().any(|line| line.starts_with("Error")), "{flight}: {said:#?}");
        locker.query(LOCKS)?;
    }
    Ok(())
}

/// A client that has flushed a flight and comes with its Sync later keeps no change waiting, and is told if what its
/// node may run at the Sync was replaced.
#[test]
fn who_has_flushed_and_waits_delays_no_change() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut node = Client::connect(&cluster.nodes()[0])?;
    let setup = format!("{}; {}", deferred(), function("of_others", ""));
    let insert = one("INSERT INTO h VALUES (3, 3)");
    let select = one("SELECT v FROM h WHERE id = 1");
    let (tf, others) = (trigger(WRITES), function("of_others", WRITES));
    for (before, change, after, is_refused) in [
        (&insert, &tf, "S", true),
        (&insert, &tf, "P |SELECT 1\nB |\nE |0\nS", true),
        (&insert, &tf, "P |SELECT count(*) FROM x\nB |\nE |0\nS", true),
        (&insert, &others, "S", false),
        (&insert, &others, "P |SELECT v FROM x WHERE k = 7\nB |\nE |0\nS", false),
        (&select, &tf, "P |SELECT count(*) FROM x\nB |\nE |0\nS", false),
    ] {
        make_h(&mut admin, &setup)?;
        let mut client = Client::connect(&cluster.endpoint())?;
        let nothing = conversation::hold(&mut client, &format!("{before}H"))?;
        ensure!(nothing.is_empty(), "answers are read with those to what follows: {nothing:#?}");
        let locked = "SELECT count(*) FROM pg_locks WHERE relation = 'h'::regclass AND granted";
        while node.value(locked)? == "0" {
            std::thread::sleep(Duration::from_millis(5));
        }
        admin.query(change)?;
        let said = conversation::hold(&mut client, after)?;
        let errors: Vec<_> = said.iter().filter(|line| line.starts_with("Error")).collect();
        match is_refused {
            true => ensure!(errors == ["Error 40001"], "{before}, {change}, {after}: {said:#?}"),
            false => ensure!(errors.is_empty(), "{before}, {change}, {after}: {said:#?}"),
        }
        nothing_was_written(&cluster, &format!("{before}, {change}, {after}"), &said)?;
        let kept = admin.value("SELECT count(*) FROM h WHERE id = 3")?;
        ensure!((kept == "1") == (before == &insert && !is_refused), "{before}: {kept} rows");
    }
    Ok(())
}

/// An unnamed portal is bound in one flight and executed in another, between which the gateway has asked its node
/// something: it is still there, as on one server.
#[test]
fn an_unnamed_portal_survives_what_the_gateway_asks() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    make_h(&mut admin, &function("fd", ""))?;
    for sql in ["UPDATE h SET v = $1::int + 1 WHERE id = 1 RETURNING v", "SELECT fd() + $1::int"] {
        for after in ["E |0\nS", "D P \nE |0\nS", "E |1\nE |0\nS"] {
            let mut client = Client::connect(&cluster.endpoint())?;
            client.query("BEGIN")?;
            conversation::hold(&mut client, &format!("P |{sql}\nB ||41\nS"))?;
            // Names may mean others now, which node 1 is asked about.
            admin.query("DROP SCHEMA IF EXISTS elsewhere; CREATE SCHEMA elsewhere")?;
            let said = conversation::hold(&mut client, after)?;
            ensure!(
                !said.iter().any(|line| line.starts_with("Error")),
                "{sql}, {after}: {said:#?}"
            );
            let rows: Vec<_> = said.iter().filter(|line| line.starts_with("DataRow")).collect();
            ensure!(rows.len() == 1, "{sql}, {after}: {said:#?}");
            client.query("COMMIT")?;
        }
    }
    // Nor does the analysis of a write that will lock its tables end one that is suspended.
    admin.query(
        "CREATE TABLE copied (k int) DISTRIBUTE BY REPLICATED; INSERT INTO copied SELECT generate_series(1, 4)",
    )?;
    let suspended = "Q BEGIN\nP |SELECT k FROM copied ORDER BY k\nB |\nE |2\nS\n--\n";
    let parsed =
        "P s|INSERT INTO copied VALUES ($1)\nD S s\nE |0\nS\n--\nB |s|5\nE |0\nS\n--\nQ COMMIT";
    let said = conversation::hold(&mut admin, &format!("{suspended}{parsed}"))?;
    ensure!(!said.iter().any(|line| line.starts_with("Error")), "{said:#?}");
    let rows = said.iter().filter(|line| line.starts_with("DataRow"));
    ensure!(rows.eq(["DataRow 1", "DataRow 2", "DataRow 3", "DataRow 4"]), "{said:#?}");
    Ok(())
}

/// A query of several statements of which a later one calls a function, and looks at the catalog anew for that,
/// beside changes of other tables.
#[test]
fn a_later_statement_of_a_query_is_planned_again_alone() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    make_h(&mut admin, &function("fd", ""))?;
    let text = "SELECT v FROM x WHERE k = 5; SELECT fd(); SELECT v FROM x WHERE k = 6";
    let ends = Arc::new(AtomicBool::new(false));
    let asked: Vec<_> = (0..3)
        .map(|_| {
            let (mut client, ends) = (Client::connect(&cluster.endpoint())?, ends.clone());
            Ok(std::thread::spawn(move || -> Result<u32> {
                let mut times = 0;
                while !ends.load(Ordering::SeqCst) {
                    let said = conversation::hold(&mut client, &format!("Q {text}"))?;
                    ensure!(!said.iter().any(|line| line.starts_with("Error")), "{said:#?}");
                    times += 1;
                }
                Ok(times)
            }))
        })
        .collect::<Result<_>>()?;
    for _ in 0..120 {
        admin.query("DROP TABLE IF EXISTS unrelated; CREATE TABLE unrelated (a int)")?;
    }
    ends.store(true, Ordering::SeqCst);
    for asked in asked {
        ensure!(0 < joined(asked)?, "no query was answered");
    }
    Ok(())
}

/// What a statement or transaction replaces itself, and then runs.
#[test]
fn who_replaces_code_and_runs_it_unasked_is_refused() -> Result<()> {
    let cluster = start()?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let fires = |with: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION ef() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN {with} END $$"
        )
    };
    make_h(&mut admin, &format!("{}; {}", function("fd", ""), fires("PERFORM fd();")))?;
    admin.query("CREATE EVENT TRIGGER et ON ddl_command_end EXECUTE FUNCTION ef()")?;
    for change in [fires(WRITES), function("fd", WRITES)] {
        for text in [change.clone(), format!("BEGIN; {change}; SELECT 1; COMMIT")] {
            let said = conversation::hold(&mut admin, &format!("Q {text}"))?;
            ensure!(said.iter().any(|line| line == "Error 0A000"), "{text}: {said:#?}");
            admin.query("ROLLBACK")?;
            nothing_was_written(&cluster, &text, &said)?;
        }
    }
    admin.query(&fires("PERFORM 1;"))?;
    admin.query("DROP EVENT TRIGGER et")?;
    let deferred = deferred();
    let (tf, fd) = (trigger(WRITES), function("fd", WRITES));
    let insert = "INSERT INTO h VALUES (3, 3)";
    let declare = "DECLARE p CURSOR WITH HOLD FOR SELECT fd() FROM h";
    let immediate = format!("{insert}; SET CONSTRAINTS ALL IMMEDIATE");
    for (before, change, is_refused) in [
        (insert, &tf, true),
        (declare, &fd, true),
        (insert, &fd, false),
        (immediate.as_str(), &tf, false),
        ("SELECT 1", &tf, false),
    ] {
        make_h(&mut admin, &format!("{deferred}; {}", function("fd", "")))?;
        let mut client = Client::connect(&cluster.endpoint())?;
        client.query(&format!("BEGIN; {before}; {change}"))?;
        let said = conversation::hold(&mut client, "Q COMMIT")?;
        match is_refused {
            true => ensure!(said.iter().any(|line| line == "Error 0A000"), "{before}: {said:#?}"),
            false => {
                ensure!(!said.iter().any(|line| line.starts_with("Error")), "{before}: {said:#?}")
            }
        }
        nothing_was_written(&cluster, before, &said)?;
    }
    Ok(())
}
