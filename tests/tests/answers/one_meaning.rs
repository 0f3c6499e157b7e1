//! A node reads a text as the gateway has read it, whatever a session sets: what would make it read
//! another one is refused however it comes, and no other setting changes where a row is looked for.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tutti_gateway::{Config, DefaultDistribution};
use tutti_sql::settings::{Effect, effect_of};
use tutti_tests::answer::{Answer, Outcome};
use tutti_tests::client::{Client, Flight, Request, text_arguments};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

/// One literal here. Where a backslash escapes, it is three statements.
const PROBE: &str = r"SELECT '\'' AS x; PREPARE TRANSACTION $$junk$$; --'";
const MEANING: &str = r"\' AS x; PREPARE TRANSACTION $$junk$$; --";

fn start(spread: bool) -> Result<TestCluster> {
    let servers = servers::start(2)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE ROLE app LOGIN; GRANT ALL ON SCHEMA public TO app;
         CREATE FUNCTION sets(a text, b text) RETURNS text LANGUAGE plpgsql AS
             $$ BEGIN RETURN set_config(a, b, false); END $$;
         CREATE FUNCTION claims(a text, b text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
             $$ BEGIN EXECUTE format('SET %I = %L', a, b); RETURN ''; END $$",
    )?;
    if spread {
        client.query("CREATE TABLE spread (k text PRIMARY KEY) DISTRIBUTE BY HASH (k)")?;
        client.query("GRANT ALL ON spread TO app")?;
    }
    Ok(cluster)
}

/// Statements of one session that set it, one after another.
fn ways(name: &str, value: &str) -> Vec<Vec<String>> {
    let (head, tail) = name.split_at(5);
    let quoted = format!("'{name}', '{value}'");
    let built = format!("'{head}' || '{tail}', '' || '{value}'");
    [
        vec![format!("SET {name} = '{value}'")],
        vec![format!("SET SESSION {name} TO {value}")],
        vec!["BEGIN".to_owned(), format!("SET LOCAL {name} = '{value}'")],
        vec![format!("SELECT set_config({quoted}, false)")],
        vec!["BEGIN".to_owned(), format!("SELECT set_config({quoted}, true)")],
        vec![format!("SELECT set_config({built}, false)")],
        vec!["BEGIN".to_owned(), format!("SELECT pg_catalog.set_config({built}, true)")],
        vec![format!("SELECT sets({quoted})")],
        vec![format!("SELECT claims({built})")],
        vec![format!("DO $$ BEGIN PERFORM set_config({built}, false); END $$")],
        vec![format!("UPDATE pg_settings SET setting = '{value}' WHERE name = '{name}'")],
        vec![
            format!("PREPARE p AS SELECT set_config($1, $2, false)"),
            format!("EXECUTE p({quoted})"),
        ],
        vec![format!("CREATE TEMP VIEW v AS SELECT sets({quoted})"), "SELECT * FROM v".to_owned()],
        vec![format!("SELECT 1; SELECT sets({quoted})")],
    ]
    .into()
}

/// The session is over, or reads the probe as one literal.
fn is_read_alike(client: &mut Client, way: &str) -> Result<()> {
    if let Ok(answer) = client.simple(PROBE, b"")
        && answer.error().is_none()
    {
        ensure!(answer.texts() == [[Some(MEANING.to_owned())]], "{way}: {answer:?}");
    }
    Ok(())
}

fn nothing_is_prepared(cluster: &TestCluster) -> Result<()> {
    for node in cluster.nodes() {
        let left = Client::connect(&node)?.value("SELECT count(*) FROM pg_prepared_xacts")?;
        ensure!(left == "0", "{left} prepared transactions");
    }
    Ok(())
}

#[test]
fn no_way_to_set_it_makes_nodes_read_another_text() -> Result<()> {
    for spread in [false, true] {
        let cluster = start(spread)?;
        for (name, value) in [("standard_conforming_strings", "off"), ("client_encoding", "SJIS")] {
            for way in ways(name, value) {
                let mut client = Client::connect_as(&cluster.endpoint(), "app")?;
                let told = way
                    .iter()
                    .map(|sql| client.simple(sql, b""))
                    .find(|answer| answer.as_ref().map_or(true, |answer| answer.error().is_some()));
                // By a word of the client's own it is refused, and the session goes on.
                if let Some(Ok(answer)) = &told {
                    let error = answer.error().context("an error")?;
                    ensure!(error.sqlstate() == "0A000", "{way:?}: {error:?}");
                }
                is_read_alike(&mut client, &format!("{way:?}"))?;
                if told.is_none() {
                    ensure!(client.query("SELECT 1").is_err(), "{way:?}: the session goes on");
                }
            }
            // In one message, after it.
            let mut client = Client::connect_as(&cluster.endpoint(), "app")?;
            let both = format!("SELECT sets('{name}', '{value}'); {PROBE}");
            let answer = client.simple(&both, b"");
            let alike = match &answer {
                Ok(answer) => answer.texts().last() == Some(&vec![Some(MEANING.to_owned())]),
                Err(_) => true,
            };
            ensure!(alike, "{answer:?}");
            // Bound, and by names of a pipeline.
            let mut client = Client::connect_as(&cluster.endpoint(), "app")?;
            let arguments = [text_arguments(&[Some(name.to_owned()), Some(value.to_owned())])];
            for flight in [Flight::OneFlight, Flight::TwoFlights] {
                let sql = "SELECT set_config($1, $2, false)";
                let request = Request { sql, arguments: &arguments, ..Request::default() };
                let _ = client.extended(&request, flight, b"");
                is_read_alike(&mut client, "bound")?;
            }
            nothing_is_prepared(&cluster)?;
            let mut next = Client::connect_as(&cluster.endpoint(), "app")?;
            is_read_alike(&mut next, "the next session")?;
            ensure!(next.value("SELECT txid_current_if_assigned() IS NULL")? == "t");
        }
    }
    Ok(())
}

#[test]
fn no_session_begins_with_it() -> Result<()> {
    let cluster = start(true)?;
    let endpoint = cluster.endpoint();
    let refused = |settings: &[(&str, &str)]| match Client::connect_with(&endpoint, "app", settings)
    {
        Ok(_) => anyhow::bail!("{settings:?} was not refused"),
        Err(error) => {
            ensure!(error.to_string().contains("0A000"), "{settings:?}: {error}");
            Ok(())
        }
    };
    refused(&[("standard_conforming_strings", "off")])?;
    refused(&[("options", "-c standard_conforming_strings=off")])?;
    refused(&[("client_encoding", "LATIN1")])?;
    refused(&[("options", "-c client_encoding=SJIS")])?;
    refused(&[("options", "--client-encoding=EUC_JP")])?;

    let mut dba = Client::connect(&endpoint)?;
    let mut before = Client::connect_as(&endpoint, "app")?;
    ensure!(before.value("SELECT 1")? == "1");
    for (what, name, value) in [
        ("ROLE app", "standard_conforming_strings", "off"),
        ("ROLE app", "client_encoding", "LATIN1"),
        ("DATABASE postgres", "standard_conforming_strings", "off"),
        ("DATABASE postgres", "client_encoding", "LATIN1"),
        ("ROLE app IN DATABASE postgres", "standard_conforming_strings", "off"),
        ("ROLE ALL", "standard_conforming_strings", "off"),
        ("ROLE ALL", "client_encoding", "SJIS"),
    ] {
        dba.query(&format!("ALTER {what} SET {name} = '{value}'"))?;
        refused(&[("client_encoding", "UTF8")])?;
        // A session from before does not get it by going back to its defaults.
        for sql in ["RESET ALL", "SET standard_conforming_strings TO DEFAULT", "DISCARD ALL"] {
            let _ = before.simple(sql, b"");
            is_read_alike(&mut before, sql)?;
        }
        // Who can put it right is let in.
        is_read_alike(&mut Client::connect(&endpoint)?, "a superuser")?;
        before = Client::connect(&endpoint)?;
        dba.query(&format!("ALTER {what} RESET {name}"))?;
    }
    nothing_is_prepared(&cluster)
}

/// Keys with backslashes are found where they were put, or no client is served.
fn keys_are_found(client: &mut Client, way: &str) -> Result<()> {
    is_read_alike(client, way)?;
    for key in [r"a\b", r"\", r"\\", r"it''s \'' x", "ä"] {
        let inserted = client.simple(&format!("INSERT INTO spread VALUES ('{key}')"), b"")?;
        ensure!(inserted.error().is_none(), "{way}: {inserted}");
        for sql in [
            format!("SELECT count(*) FROM spread WHERE k = '{key}'"),
            format!("SELECT count(*) FROM spread WHERE k || '' = '{key}'"),
        ] {
            ensure!(client.value(&sql)? == "1", "{way}: {sql}");
        }
    }
    client.query("DELETE FROM spread")?;
    Ok(())
}

/// Serves as ever, or refuses to.
fn is_served_alike(cluster: &TestCluster, role: &str, way: &str) -> Result<()> {
    match Client::connect_as(&cluster.endpoint(), role) {
        Ok(mut client) => keys_are_found(&mut client, way),
        Err(error) => {
            ensure!(error.to_string().contains("0A000"), "{way}: {error}");
            Ok(())
        }
    }
}

#[test]
fn no_servers_configuration_makes_it_read_otherwise() -> Result<()> {
    let cluster = start(true)?;
    for (name, value) in [("standard_conforming_strings", "off"), ("client_encoding", "SJIS")] {
        for (index, endpoint) in cluster.nodes().iter().enumerate() {
            let way = format!("{name} of node {}", index + 1);
            let mut before = Client::connect_as(&cluster.endpoint(), "app")?;
            before.query("SELECT 1")?;
            let mut node = Client::connect(endpoint)?;
            node.query(&format!("ALTER SYSTEM SET {name} = '{value}'"))?;
            node.query("SELECT pg_reload_conf()")?;
            std::thread::sleep(std::time::Duration::from_millis(300));
            // Existing sessions either continue as before, or end.
            match keys_are_found(&mut before, &way) {
                Err(error) if before.query("SELECT 1").is_ok() => return Err(error),
                Ok(()) | Err(_) => (),
            }
            for role in ["app", "postgres"] {
                is_served_alike(&cluster, role, &way)?;
            }
            for sql in ["RESET ALL", "DISCARD ALL", "SET standard_conforming_strings TO DEFAULT"] {
                if let Ok(mut client) = Client::connect_as(&cluster.endpoint(), "app") {
                    let _ = client.simple(sql, b"");
                    is_read_alike(&mut client, &format!("{way}: {sql}"))?;
                }
            }
            node.query(&format!("ALTER SYSTEM RESET {name}"))?;
            node.query("SELECT pg_reload_conf()")?;
            std::thread::sleep(std::time::Duration::from_millis(300));
            keys_are_found(&mut Client::connect_as(&cluster.endpoint(), "app")?, "as before")?;
        }
    }
    nothing_is_prepared(&cluster)
}

#[test]
fn servers_that_begin_so_serve_alike_or_not_at_all() -> Result<()> {
    for (name, value) in [("standard_conforming_strings", "off"), ("client_encoding", "SJIS")] {
        let servers = servers::start_with(2, &[(name, value)])?;
        let default_distribution = DefaultDistribution::Home;
        let config = Config { default_distribution, ..config(&servers, String::new()) };
        let cluster = match TestCluster::start_configured(servers, config) {
            Ok(cluster) => cluster,
            // Or says so before it begins.
            Err(error) => {
                ensure!(format!("{error:#}").contains(name), "{name}: {error:#}");
                continue;
            }
        };
        let mut boss = Client::connect(&cluster.endpoint())?;
        is_read_alike(&mut boss, name)?;
        boss.query("CREATE TABLE spread (k text PRIMARY KEY) DISTRIBUTE BY HASH (k)")?;
        boss.query("CREATE ROLE app LOGIN; GRANT ALL ON spread TO app")?;
        for role in ["app", "postgres"] {
            is_served_alike(&cluster, role, &format!("{name} in the file"))?;
        }
    }
    Ok(())
}

/// What holds while a function runs has ended with it, and what its own statements are, its server reads.
#[test]
fn a_functions_own_setting_ends_with_it() -> Result<()> {
    let cluster = start(true)?;
    let mut client = Client::connect_as(&cluster.endpoint(), "app")?;
    client.query(
        "CREATE FUNCTION other_way() RETURNS text LANGUAGE plpgsql SET standard_conforming_strings = off
             AS $$ DECLARE r text; BEGIN EXECUTE $x$SELECT '\\'x'$x$ INTO r; RETURN r; END $$;
         CREATE FUNCTION encoded() RETURNS text LANGUAGE plpgsql SET client_encoding = 'LATIN1'
             AS $$ BEGIN RETURN 'ä'; END $$",
    )?;
    for sql in ["SELECT other_way()", "SELECT encoded()", "DO $$ BEGIN PERFORM other_way(); END $$"]
    {
        let _ = client.simple(sql, b"")?;
        keys_are_found(&mut client, sql)?;
        let answer = client.simple(&format!("{sql}; {PROBE}"), b"")?;
        if answer.error().is_none() {
            ensure!(answer.texts() == [[Some(MEANING.to_owned())]], "{sql}: {answer:?}");
        }
    }
    nothing_is_prepared(&cluster)
}

/// A server in a transaction that the gateway did not begin serves no other session.
#[test]
fn a_transaction_that_nobody_has_begun_is_not_handed_on() -> Result<()> {
    let cluster = start(true)?;
    let mut client = Client::connect_as(&cluster.endpoint(), "app")?;
    client.query("CREATE TABLE mine (k int PRIMARY KEY)")?;
    // The text of a procedure may end transactions; what it leaves is none.
    client.query(
        "CREATE PROCEDURE ends() LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO mine VALUES (1); COMMIT; INSERT INTO mine VALUES (2); ROLLBACK; END $$",
    )?;
    client.query("CALL ends()")?;
    drop(client);
    let mut next = Client::connect_as(&cluster.endpoint(), "app")?;
    next.query("INSERT INTO mine VALUES (3)")?;
    drop(next);
    let mut other = Client::connect(&cluster.endpoint())?;
    ensure!(other.value("SELECT string_agg(k::text, ',' ORDER BY k) FROM mine")? == "1,3");
    Ok(())
}

/// Tables by a key of every type whose text or hash a setting could touch, and texts of values: in the
/// spellings that the gateway hashes itself, and in such as it leaves to a node.
const TABLES: [(&str, &str, [&str; 6]); 8] = [
    (
        "dates",
        "date",
        ["'2024-02-03'", "'03/02/2024'", "'20240305'", "'3 Feb 2025'", "'infinity'", "NULL"],
    ),
    (
        "stamps",
        "timestamp",
        [
            "'2024-02-03 04:05:06'",
            "'03/02/2024 01:02'",
            "'2024-02-03'",
            "'epoch'",
            "'2024-02-03T04:05'",
            "NULL",
        ],
    ),
    (
        "zoned",
        "timestamptz",
        [
            "'2024-02-03 04:05:06+02'",
            "'2024-02-03 04:05:06'",
            "'03/02/2024 01:02 IST'",
            "'2024-07-01 12:00 PST'",
            "'infinity'",
            "NULL",
        ],
    ),
    (
        "times",
        "time",
        ["'04:05:06'", "'4:05 PM'", "'040506'", "'23:59:59.123456'", "'00:00'", "NULL"],
    ),
    ("floats", "float8", ["0.1", "'0.30000000000000004'", "1e-300", "'-0'", "'NaN'", "NULL"]),
    ("bytes", "bytea", [r"'\x0102'", r"'\001\002\003'", "'abc'", r"E'\\xff'", "''", "NULL"]),
    ("texts", "text", [r"'a\b'", r"E'a\\b'", "'ä'", "' A '", "$$it's$$", "NULL"]),
    ("numbers", "numeric", ["1.10", "'1.1'", "1000000", "'1e6'", "'NaN'", "NULL"]),
];

/// Values that a setting of `pg_settings` is given: name, type, values of an enumeration, least and most.
fn values_of(row: &[Option<String>]) -> Vec<String> {
    let text = |index: usize| row[index].clone().unwrap_or_default();
    let name = text(0);
    let special: &[&str] = match &*name {
        "DateStyle" => &["ISO, DMY", "SQL, DMY", "German", "Postgres, YMD", "SQL, MDY"],
        "IntervalStyle" => &["iso_8601", "sql_standard", "postgres_verbose"],
        "TimeZone" => &["Asia/Kolkata", "America/Los_Angeles", "UTC", "<+03>-03"],
        "timezone_abbreviations" => &["India", "Australia"],
        "lc_numeric" | "lc_monetary" | "lc_time" | "lc_messages" => &["C"],
        "default_text_search_config" => &["simple"],
        "search_path" => &["\"$user\", public, pg_catalog", "public"],
        "extra_float_digits" => &["-15", "0", "3"],
        "client_encoding" => &["UTF8", "SQL_ASCII"],
        // Nothing more could be told of the session.
        "statement_timeout"
        | "lock_timeout"
        | "transaction_timeout"
        | "idle_session_timeout"
        | "idle_in_transaction_session_timeout" => &["60000"],
        "role"
        | "session_authorization"
        | "transaction_isolation"
        | "transaction_read_only"
        | "transaction_deferrable"
        | "default_transaction_read_only"
        | "seed" => &[],
        "default_table_access_method" => &["heap"],
        "client_min_messages" => &["error", "debug1"],
        "log_statement_sample_rate" | "log_transaction_sample_rate" => &["0"],
        _ => match &*text(1) {
            "bool" => &["on", "off"],
            "enum" => {
                return text(2).trim_matches(['{', '}']).split(',').map(unquoted).collect();
            }
            "integer" | "real" => return vec![text(3), text(4)],
            _ => &[""],
        },
    };
    special.iter().map(|&value| value.to_owned()).collect()
}

fn unquoted(value: &str) -> String {
    value.trim_matches('"').to_owned()
}

/// What a session is sent, except settings in effect and words that are its own.
fn told(answer: &Answer) -> Vec<String> {
    let outcome = |outcome: &Outcome| match outcome {
        Outcome::Failed(error) => format!("{}: {}", error.sqlstate(), error.message()),
        Outcome::Rows { tag, .. } | Outcome::Done { tag } => tag.clone(),
        other => format!("{other:?}"),
    };
    let mut told: Vec<_> = answer.outcomes.iter().map(outcome).collect();
    told.extend(answer.texts().into_iter().map(|row| format!("{row:?}")));
    told
}

fn keyed_statements() -> Vec<String> {
    let mut statements = Vec::new();
    for (table, key_type, values) in TABLES {
        for (index, value) in values.iter().enumerate() {
            statements.push(format!("INSERT INTO {table} VALUES ({value}, {index})"));
            statements.push(format!("SELECT n FROM {table} WHERE k = {value} ORDER BY n"));
            statements.push(format!("UPDATE {table} SET n = n + 10 WHERE k = {value}::{key_type}"));
            statements.push(format!("SELECT k, n FROM {table} WHERE k IN ({value}) ORDER BY n"));
        }
        statements.push(format!("SELECT n FROM {table} WHERE k IS NULL ORDER BY n"));
        statements.push(format!("SELECT k, n FROM {table} ORDER BY n"));
        statements.push(format!("SELECT count(*) FROM {table} a JOIN {table} b ON a.n = b.n"));
        statements.push(format!("INSERT INTO {table} SELECT k, n + 100 FROM {table} WHERE n = 11"));
        statements.push(format!("DELETE FROM {table} WHERE k = {}", values[0]));
    }
    statements
}

/// Every setting that a session may set, with values of its own: keyed rows are written, found, changed
/// and moved as on one PostgreSQL.
#[test]
fn no_setting_changes_where_a_row_is_looked_for() -> Result<()> {
    let cluster = start(true)?;
    let plain = servers::start(1)?;
    let mut here = Client::connect(&cluster.endpoint())?;
    let mut there = Client::connect(&servers::endpoint(&plain, 0))?;
    for (table, key_type, _) in TABLES {
        let create = format!("CREATE TABLE {table} (k {key_type}, n int)");
        here.query(&format!("{create} DISTRIBUTE BY HASH (k)"))?;
        there.query(&create)?;
    }
    let settings = there.query(
        "SELECT name, vartype, enumvals, min_val, max_val, category FROM pg_settings
         WHERE context IN ('user', 'superuser') ORDER BY name",
    )?;
    let statements = keyed_statements();
    let mut tried = BTreeSet::new();
    let mut turn = 0;
    for row in &settings {
        let name = row[0].as_deref().context("a name")?;
        let category = row[5].as_deref().context("a category")?;
        let effect = effect_of(name, category);
        ensure!(effect.is_some(), "{name} ({category}): nobody has said what it does to a text");
        if effect == Some(Effect::OneServer) {
            continue;
        }
        for value in values_of(row) {
            if effect == Some(Effect::OtherText) && !["on", "UTF8", "SQL_ASCII"].contains(&&*value)
            {
                continue;
            }
            let set = format!("SET {name} = '{value}'");
            let (mut here, mut there) = (
                Client::connect(&cluster.endpoint())?,
                Client::connect(&servers::endpoint(&plain, 0))?,
            );
            let set = match name {
                "search_path" => format!("SET search_path = {value}"),
                _ => set,
            };
            let (set_here, set_there) = (here.simple(&set, b"")?, there.simple(&set, b"")?);
            ensure!(told(&set_here) == told(&set_there), "{set}: {set_here:?} {set_there:?}");
            if set_here.error().is_some() {
                continue;
            }
            tried.insert(name.to_owned());
            // Costs of plans, sizes and logs are many, and touch no text.
            let every = if effect == Some(Effect::Nothing) { 61 } else { 2 };
            turn += 1;
            let chosen = statements.iter().enumerate();
            for (index, sql) in chosen.filter(|(index, _)| index % every == turn % every) {
                let (one, other) = (here.simple(sql, b""), there.simple(sql, b""));
                let (one, other) = (one.with_context(|| format!("{set}; {sql}"))?, other?);
                ensure!(
                    told(&one) == told(&other),
                    "{set}; statement {index}: {sql}\n{:?}\n{:?}",
                    told(&one),
                    told(&other)
                );
            }
            let counts = TABLES.map(|(table, ..)| format!("(SELECT count(*) FROM {table})"));
            let counts = format!("SELECT {}", counts.join(", "));
            ensure!(here.query(&counts)? == there.query(&counts)?, "{set}");
            let empty = TABLES.map(|(table, ..)| format!("DELETE FROM {table}")).join("; ");
            // A session that may not write any more has written nothing.
            let _ = (here.simple(&empty, b"")?, there.simple(&empty, b"")?);
        }
    }
    ensure!(100 < tried.len(), "only {} settings were tried", tried.len());
    Ok(())
}

/// A bound name and value in one pipeline with a text that would be read otherwise.
#[test]
fn a_pipeline_waits_for_what_code_has_set() -> Result<()> {
    use tutti_wire::frontend::{put_bind, put_execute, put_parse, put_sync};
    let cluster = start(true)?;
    let mut client = Client::connect_as(&cluster.endpoint(), "app")?;
    let mut out = bytes::BytesMut::new();
    let of = |value: &str| Some(Bytes::copy_from_slice(value.as_bytes()));
    let arguments = tutti_wire::frontend::Arguments {
        values: vec![of("standard_conforming_strings"), of("off")],
        ..Default::default()
    };
    put_parse(&mut out, "", "SELECT set_config($1, $2, false)", &[25, 25]);
    put_bind(&mut out, "", "", &arguments);
    put_execute(&mut out, "", 0);
    put_parse(&mut out, "", r"INSERT INTO spread VALUES ('a\\b')", &[]);
    put_bind(&mut out, "", "", &Default::default());
    put_execute(&mut out, "", 0);
    put_sync(&mut out);
    client.send_bytes(&out)?;
    while let Ok(frame) = client.receive() {
        if frame.tag() == b'Z' {
            break;
        }
    }
    let mut next = Client::connect_as(&cluster.endpoint(), "app")?;
    let found = next.query("SELECT k FROM spread")?;
    for row in found {
        let key = row[0].clone().unwrap_or_default();
        ensure!(
            next.value(&format!("SELECT count(*) FROM spread WHERE k = '{key}'"))? == "1",
            "{key}"
        );
    }
    Ok(())
}
