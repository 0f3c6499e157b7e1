//! The protocol message by message: the gateway says what one PostgreSQL says, in the same order.
//!
//! Owns: conversations that drivers' ordinary use does not reach: pipelines with errors inside,
//! portals by row limit, statements and portals that live and die, COPY inside the extended protocol.

use anyhow::{Result, ensure};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::conversation;
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

/// Run before each conversation, in a session of its own.
const TABLES: &str = "
    DROP TABLE IF EXISTS person, country, ticket, late;
    CREATE TABLE late (id int, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED) DISTRIBUTE BY HASH (id);
    CREATE TABLE ticket (id serial PRIMARY KEY, n int) DISTRIBUTE BY HASH (id);
    CREATE TABLE person (id int PRIMARY KEY, name text) DISTRIBUTE BY HASH (id);
    CREATE TABLE country (code text PRIMARY KEY);
    INSERT INTO person SELECT n, 'p' || n FROM generate_series(1, 9) n;
    INSERT INTO country VALUES ('fr'), ('jp')";

const CONVERSATIONS: &[(&str, &str)] = &[
    (
        "statements on several nodes in one flight answer in order",
        "P one|SELECT name FROM person WHERE id = $1
         B |one|1
         E |0
         B |one|2
         E |0
         B |one|3
         E |0
         B |one|77
         E |0
         P |SELECT count(*) FROM person
         B |
         E |0
         S",
    ),
    (
        "a flight with reads of one node, of all nodes and of none",
        "P a|SELECT name FROM person WHERE id = $1
         P b|SELECT count(*) FROM person
         P c|SELECT 1
         B |a|4
         D P
         E |0
         B |b
         D P
         E |0
         B |c
         D P
         E |0
         S",
    ),
    (
        "a Parse that is skipped does not replace the unnamed statement",
        "P |SELECT 7
         S
         P x|SELECT 1 / (id - 1) FROM person WHERE id = 1
         B |x
         E |0
         P |SELECT 2
         P |SELECT name FROM person WHERE id = 2
         B |
         E |0
         S
         B |
         E |0
         S",
    ),
    (
        "a Parse that is refused does",
        "P |SELECT 7
         S
         P x|SELECT name FROM person WHERE id = 1
         B |x
         E |0
         P |SELECT nothing FROM person WHERE id = 2
         P |SELECT 3
         S
         B |
         S
         P |SELECT 8
         S
         P |SELECT nothing
         S
         B |
         S",
    ),
    (
        "after an error everything is skipped up to Sync",
        "P |SELECT 1 / 0
         B |
         E |0
         P |SELECT 2
         B |
         E |0
         S
         P |SELECT 3
         B |
         E |0
         S",
    ),
    (
        "what a flight wrote before its error is undone",
        "P i|INSERT INTO person VALUES ($1, 'new')
         B |i|101
         E |0
         B |i|102
         E |0
         B |i|1
         E |0
         B |i|103
         E |0
         S
         --
         Q SELECT count(*) FROM person WHERE id > 100",
    ),
    (
        "a flight without error is one transaction up to Sync",
        "P i|INSERT INTO person VALUES ($1, 'new')
         B |i|201
         E |0
         B |i|202
         E |0
         P |INSERT INTO country VALUES ('de')
         B |
         E |0
         S
         --
         Q SELECT count(*) FROM person WHERE id > 200
         --
         Q SELECT count(*) FROM country",
    ),
    (
        "values that are made before the row has a place are undone with their flight",
        "P |INSERT INTO ticket (n) VALUES (1)
         B |
         E |0
         P |INSERT INTO ticket (n) VALUES (2) RETURNING n
         B |
         E |0
         P |INSERT INTO person VALUES (1, 'taken')
         B |
         E |0
         S
         --
         Q SELECT count(*) FROM ticket
         --
         P |INSERT INTO ticket (n) SELECT count(*) FROM person
         B |
         E |0
         P |SELECT 1 / 0
         B |
         E |0
         S
         --
         Q SELECT count(*) FROM ticket
         --
         P |INSERT INTO ticket (n) VALUES (4)
         B |
         E |0
         S
         --
         Q SELECT n FROM ticket",
    ),
    (
        "row limits suspend a portal, and another Execute goes on",
        "P |SELECT id FROM person ORDER BY id
         B p|
         E p|4
         E p|4
         E p|4
         E p|4
         S",
    ),
    (
        "row limits on one node",
        "P |SELECT generate_series(1, 5) FROM person WHERE id = $1
         B p||3
         D P p
         E p|2
         E p|2
         E p|2
         S",
    ),
    (
        "a portal does not outlive its transaction",
        "P |SELECT id FROM person ORDER BY id
         B p|
         E p|2
         S
         E p|2
         S",
    ),
    (
        "a portal lives through Syncs inside a transaction block",
        "Q BEGIN
         --
         P |SELECT id FROM person ORDER BY id
         B p|
         E p|2
         S
         --
         E p|3
         S
         --
         Q SELECT 5
         --
         E p|0
         C P p
         E p|1
         S
         --
         Q ROLLBACK",
    ),
    (
        "describing statements and portals",
        "P s|SELECT id, name FROM person WHERE id = $1 AND name <> $2
         D S s
         P t|INSERT INTO person VALUES ($1, $2)
         D S t
         P u|INSERT INTO person VALUES ($1, $2) RETURNING name
         D S u
         P v|UPDATE person SET name = $1
         D S v
         P w|SELECT count(*), max(name) FROM person GROUP BY length(name)
         D S w
         P x|BEGIN
         D S x
         P y|SHOW TimeZone
         D S y
         P z|
         D S z
         S",
    ),
    (
        "names that are there and names that are not",
        "P s|SELECT 1
         S
         P s|SELECT 2
         S
         D S nobody
         S
         D P nobody
         S
         E nobody|0
         S
         B p|nobody
         S
         C S nobody
         C P nobody
         S
         C S s
         P s|SELECT 2
         B p|s
         E p|0
         S",
    ),
    (
        "wrong numbers and forms of parameters",
        "P s|SELECT name FROM person WHERE id = $1
         B |s
         S
         B |s|1|2
         S
         B |s|x
         S
         B |s|NULL
         E |0
         S",
    ),
    (
        "errors at Parse",
        "P |SELEC 1
         S
         P |SELECT 1; SELECT 2
         S
         P |SELECT nothing FROM person
         S
         P |SELECT * FROM nowhere
         S
         P |SELECT $1
         D S
         S",
    ),
    (
        "empty statements and comments",
        "Q
         --
         Q ;
         --
         Q -- only a remark
         --
         P |
         B |
         E |0
         S
         P |;
         B |
         D P
         E |0
         S",
    ),
    (
        "COPY by the simple protocol",
        "Q COPY person FROM STDIN
         d 301\tone
         d 302\ttwo
         d 303\tthree
         c
         --
         Q SELECT count(*) FROM person WHERE id > 300
         --
         Q COPY person FROM STDIN
         d 304\tone
         f no more
         --
         Q SELECT count(*) FROM person WHERE id > 300",
    ),
    (
        "COPY by the extended protocol",
        "P |COPY person FROM STDIN
         B |
         D P
         E |0
         d 401\tone
         d 402\ttwo
         c
         S
         --
         Q SELECT count(*) FROM person WHERE id > 400
         --
         P |COPY (SELECT id FROM person ORDER BY id) TO STDOUT
         B |
         D P
         E |0
         S",
    ),
    (
        "transaction blocks by the extended protocol",
        "P b|BEGIN
         P u|UPDATE person SET name = 'x' WHERE id = $1
         P c|COMMIT
         P r|ROLLBACK
         B |b
         E |0
         B |u|1
         E |0
         B |u|2
         E |0
         B |c
         E |0
         S
         --
         B |b
         E |0
         B |u|3
         E |0
         P |SELECT 1 / 0
         B |
         E |0
         S
         --
         B |u|4
         E |0
         S
         --
         B |r
         E |0
         S
         --
         Q SELECT id FROM person WHERE name = 'x' ORDER BY id",
    ),
    (
        "several statements in a Query, with an error",
        "Q SELECT 1; INSERT INTO person VALUES (501, 'a'), (502, 'b'); SELECT count(*) FROM person; SELECT 1 / 0; SELECT 2
         --
         Q SELECT count(*) FROM person
         --
         Q BEGIN; INSERT INTO person VALUES (503, 'c'); COMMIT; INSERT INTO person VALUES (504, 'd'); SELECT 1 / 0
         --
         Q SELECT id FROM person WHERE id > 500 ORDER BY id",
    ),
    (
        "Flush brings answers before Sync",
        "P |SELECT 1
         H
         B |
         H
         E |0
         H
         S",
    ),
    (
        "a prepared statement of SQL and of the protocol share a name space",
        "Q PREPARE s AS SELECT name FROM person WHERE id = $1
         --
         B |s|5
         D P
         E |0
         S
         --
         P t|SELECT 7
         S
         --
         Q EXECUTE t
         --
         Q DEALLOCATE t
         --
         B |t
         S",
    ),
    (
        "settings are told",
        "Q SET TimeZone = 'Asia/Tokyo'
         --
         P |SET DateStyle = 'German'
         B |
         E |0
         S
         --
         Q BEGIN; SET TimeZone = 'UTC'; ROLLBACK
         --
         Q DISCARD ALL",
    ),
    (
        // From the second on each goes the short way.
        "whole flights of the unnamed statement",
        "P |SELECT name FROM person WHERE id = $1
         B ||1
         D P
         E |0
         S
         --
         P |SELECT name FROM person WHERE id = $1
         B ||2
         D P
         E |0
         S
         --
         P |SELECT name FROM person WHERE id = $1
         B ||NULL
         E |0
         S
         P |SELECT name FROM person WHERE id = $1
         B ||77
         E |1
         S
         P |SELECT name FROM person WHERE id = $1
         B ||3
         D P
         E |1
         S
         --
         B ||4
         E |0
         S
         --
         P |SELECT name FROM person WHERE id = $1
         B |
         E |0
         S
         --
         P |SELECT name FROM person WHERE id = $1
         B ||5|6
         E |0
         S
         --
         B ||7
         E |0
         S
         --
         Q SELECT 1
         --
         B ||1
         E |0
         S",
    ),
    (
        "what is left of a whole flight that has failed",
        "P |SELECT 10 / (id - 1) FROM person WHERE id = $1
         B ||2
         E |0
         S
         --
         P |SELECT 10 / (id - 1) FROM person WHERE id = $1
         B ||1
         D P
         E |0
         S
         --
         B ||3
         E |0
         S
         --
         P |SELECT 10 / (id - 1) FROM person WHERE id = $1
         B ||x
         E |0
         S
         --
         B ||6
         E |0
         S
         --
         E |0
         S
         --
         P |INSERT INTO person VALUES ($1, 'twice')
         B ||50
         E |0
         S
         --
         P |INSERT INTO person VALUES ($1, 'twice')
         B ||50
         E |0
         S
         --
         P |INSERT INTO person VALUES ($1, 'twice')
         B ||51
         E |0
         S
         --
         Q SELECT count(*) FROM person WHERE name = 'twice'",
    ),
    (
        "a statement that is wrong by now leaves nothing behind",
        "P |SELECT code FROM country WHERE code = $1
         B ||fr
         E |0
         S
         --
         P |SELECT code FROM country WHERE code = $1
         B ||jp
         E |0
         S
         --
         Q ALTER TABLE country RENAME code TO letters
         --
         P |SELECT code FROM country WHERE code = $1
         B ||jp
         E |0
         S
         --
         B ||fr
         E |0
         S
         --
         Q ALTER TABLE country RENAME letters TO code
         --
         P |SELECT code FROM country WHERE code = $1
         B ||jp
         E |0
         S",
    ),
    (
        "whole flights in transaction blocks, from their first statement on each node",
        "P |UPDATE person SET name = concat(name, '!') WHERE id = $1 RETURNING name
         B ||1
         E |0
         S
         --
         Q BEGIN
         --
         P |UPDATE person SET name = concat(name, '!') WHERE id = $1 RETURNING name
         B ||1
         D P
         E |0
         S
         --
         E |0
         S
         --
         P |UPDATE person SET name = concat(name, '!') WHERE id = $1 RETURNING name
         B ||2
         E |0
         S
         P |UPDATE person SET name = concat(name, '!') WHERE id = $1 RETURNING name
         B ||3
         E |0
         S
         --
         B ||4
         E |0
         S
         --
         Q ROLLBACK
         --
         Q SELECT name FROM person WHERE id = 3
         --
         Q BEGIN
         --
         P |UPDATE person SET name = concat(name, '!') WHERE id = $1 RETURNING name
         B ||x
         E |0
         S
         --
         P |UPDATE person SET name = concat(name, '!') WHERE id = $1 RETURNING name
         B ||4
         E |0
         S
         --
         Q COMMIT
         --
         Q BEGIN
         --
         P |UPDATE person SET name = concat(name, '!') WHERE id = $1 RETURNING name
         B ||5
         E |0
         S
         --
         P |UPDATE person SET name = concat(name, '!') WHERE id = $1 RETURNING name
         B ||6
         E |0
         S
         --
         Q COMMIT
         --
         Q SELECT count(*) FROM person WHERE name LIKE '%!'",
    ),
    (
        "first statements of transaction blocks",
        "Q SELECT name FROM person WHERE id = 1
         --
         Q UPDATE person SET name = 'x' WHERE id = 2
         --
         Q SELECT 1 / (id - 3) FROM person WHERE id = 2
         --
         Q BEGIN
         --
         Q SELECT name FROM person WHERE id = 2
         --
         Q UPDATE person SET name = 'y' WHERE id = 3
         --
         Q COMMIT
         --
         Q BEGIN
         --
         Q SELECT 1 / (id - 3) FROM person WHERE id = 3
         --
         Q SELECT name FROM person WHERE id = 3
         --
         Q ROLLBACK
         --
         Q BEGIN READ ONLY
         --
         Q UPDATE person SET name = 'z' WHERE id = 4
         --
         Q ROLLBACK
         --
         Q BEGIN
         --
         Q SAVEPOINT a
         --
         Q UPDATE person SET name = 'z' WHERE id = 5
         --
         Q SELECT 1 / (id - 3) FROM person WHERE id = 3
         --
         Q ROLLBACK TO a
         --
         Q SELECT name FROM person WHERE id = 5
         --
         Q UPDATE person SET name = 'u' WHERE id = 6
         --
         Q COMMIT
         --
         Q BEGIN
         --
         Q SET LOCAL statement_timeout = '5min'
         --
         Q SELECT name FROM person WHERE id = 6
         --
         Q COMMIT AND CHAIN
         --
         Q SELECT name FROM person WHERE id = 3
         --
         Q COMMIT",
    ),
    (
        "BEGIN, COMMIT and ROLLBACK again and again, prepared and not",
        "P begin|BEGIN
         P commit|COMMIT
         P back|ROLLBACK
         P late|INSERT INTO late VALUES ($1)
         S
         --
         B |begin
         E |0
         S
         --
         B |late|1
         E |0
         S
         --
         B |commit
         E |0
         S
         --
         B |begin
         D P
         E |0
         S
         --
         B |late|1
         E |0
         S
         --
         B |commit
         D P
         E |0
         S
         --
         B |begin
         E |0
         S
         --
         B |late|2
         E |0
         S
         B |back
         D P
         E |0
         S
         B |commit
         E |0
         S
         B |begin|1
         E |0
         S
         --
         B |begin
         E |0
         S
         B |begin
         E |0
         S
         --
         Q SELECT 1 / 0
         --
         B |commit
         E |0
         S
         --
         P |BEGIN
         B |
         D P
         E |0
         S
         --
         P |ROLLBACK
         B |
         E |0
         S
         --
         P |BEGIN
         B |
         D P
         E |0
         S
         --
         P |INSERT INTO late VALUES ($1)
         B ||1
         E |0
         S
         --
         P |COMMIT
         B |
         D P
         E |0
         S
         --
         B |
         E |0
         S
         --
         P |BEGIN
         B |
         E |0
         S
         --
         Q INSERT INTO late VALUES (3)
         --
         P |COMMIT
         B |
         D P
         E |0
         S
         --
         Q BEGIN
         --
         Q INSERT INTO late VALUES (3)
         --
         Q COMMIT
         --
         Q COMMIT
         --
         Q BEGIN
         --
         B |
         E |0
         S
         --
         Q ROLLBACK
         --
         P |BEGIN
         B |
         E |0
         S
         --
         E |0
         S
         --
         D P
         S
         --
         Q ROLLBACK
         --
         B |begin
         E |0
         S
         --
         D P
         S
         --
         E |0
         S
         --
         Q ROLLBACK
         --
         Q SELECT id FROM late ORDER BY id",
    ),
];

fn hold(endpoint: &Endpoint, with_distribution: bool, text: &str) -> Result<Vec<String>> {
    let tables = if with_distribution {
        TABLES.to_owned()
    } else {
        TABLES.replace(" DISTRIBUTE BY HASH (id)", "")
    };
    let mut maker = Client::connect(endpoint)?;
    // One by one: in one message they would be one transaction.
    for statement in tables.split(';') {
        maker.query(statement)?;
    }
    conversation::hold(&mut Client::connect(endpoint)?, text)
}

#[test]
fn the_gateway_says_what_postgresql_says() -> Result<()> {
    let plain = servers::start(1)?;
    let cluster = TestCluster::start(3)?;
    let mut wrong = Vec::new();
    for (name, text) in CONVERSATIONS {
        let expected = hold(&servers::endpoint(&plain, 0), false, text)?;
        ensure!(expected.len() > 2, "{name}: the conversation says nothing");
        let found = hold(&cluster.endpoint(), true, text)
            .unwrap_or_else(|error| vec![format!("the session was lost: {error:#}")]);
        if expected != found {
            let (expected, found) = (expected.join("\n  "), found.join("\n  "));
            wrong.push(format!("──── {name}\nexpected\n  {expected}\nfound\n  {found}\n"));
        }
    }
    ensure!(wrong.is_empty(), "{} conversations differ\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// A change of the schema that is undone, and another one behind it, lead to schemas of the same number.
#[test]
fn no_other_columns_come_than_were_told_after_a_change_that_was_undone() -> Result<()> {
    let cluster = TestCluster::start(2)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE told (id int, v int) DISTRIBUTE BY HASH (id)")?;
    client.query("INSERT INTO told SELECT g, g FROM generate_series(1, 9) g")?;
    client.query("PREPARE all_of AS SELECT * FROM told WHERE id = 3")?;
    let mut state = |sql: &str| -> Result<String> {
        let answer = client.simple(sql, b"")?;
        Ok(answer.error().map_or_else(String::new, |error| error.sqlstate().to_owned()))
    };
    for change in ["ALTER TABLE told ALTER v TYPE text USING 'abcd'", "ALTER TABLE told ADD q int"]
    {
        for (sql, expected) in [
            ("BEGIN", ""),
            ("SAVEPOINT a", ""),
            ("CREATE TABLE beside (a int)", ""),
            ("ROLLBACK TO a", ""),
            ("EXECUTE all_of", ""),
            (change, ""),
            ("EXECUTE all_of", "0A000"),
            ("ROLLBACK", ""),
            ("EXECUTE all_of", ""),
        ] {
            assert_eq!(state(sql)?, expected, "{sql} ({change})");
        }
    }
    Ok(())
}
