//! Logins by password: who gets in, who does not and with which words, and that the login carries to
//! every node.

use anyhow::{Result, ensure};
use tokio_postgres::NoTls;

use super::clients::{assert_refused, psql, psycopg};
use super::place::{OWN_PASSWORD, Place};

const ROLES: &str = "
    CREATE ROLE ann LOGIN PASSWORD 'ann''s';
    CREATE ROLE group_only PASSWORD 'x';
    CREATE ROLE late LOGIN PASSWORD 'x' VALID UNTIL '2020-01-01';
    CREATE ROLE bare LOGIN;
    CREATE ROLE old LOGIN PASSWORD 'md5aabbccddeeff00112233445566778899';
    CREATE ROLE single LOGIN PASSWORD 'x' CONNECTION LIMIT 1;
    CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id);
    INSERT INTO t SELECT generate_series(1, 100);
    GRANT SELECT ON t TO ann, single";

const COUNT: &str = "SELECT count(*), current_user FROM t";

#[test]
fn a_password_opens_every_node_and_nothing_else_does() -> Result<()> {
    let place = Place::start(|_, _| ())?;
    place.run(ROLES)?;
    let ann = place.knock("ann", "ann's");

    // With and without TLS, with and without channel binding, by three clients.
    assert_eq!(psql(&ann, COUNT)?, "100|ann");
    assert_eq!(psql(&ann.clone().with("channel_binding", "require"), COUNT)?, "100|ann");
    assert_eq!(psql(&ann.clone().with("channel_binding", "disable"), COUNT)?, "100|ann");
    assert_eq!(psql(&ann.clone().plainly(), COUNT)?, "100|ann");
    let script = format!("print(connection.execute('{COUNT}').fetchone())");
    let bound = ann.clone().with("channel_binding", "require");
    assert_eq!(psycopg(&bound, &script)?, "(100, 'ann')");
    // TLS from the first byte, without asking first: libpq 17 and newer.
    assert_eq!(psycopg(&bound.with("sslnegotiation", "direct"), &script)?, "(100, 'ann')");
    assert_eq!(by_tokio_postgres(&place, "ann", "ann's")?, 100);

    let failed = |user: &str| format!("password authentication failed for user \"{user}\"");
    let knock = |user: &str| psql(&place.knock(user, "x"), "SELECT 1");
    assert_refused(knock("ann"), &failed("ann"));
    assert_refused(knock("nobody"), &failed("nobody"));
    assert_refused(knock("late"), &failed("late"));
    assert_refused(knock("bare"), &failed("bare"));
    assert_refused(knock("old"), &failed("old"));
    assert_refused(knock("old"), "ALTER ROLE");
    assert_refused(knock("group_only"), "role \"group_only\" is not permitted to log in");
    let by_wrong = psql(&place.knock("group_only", "y"), "SELECT 1");
    assert_refused(by_wrong, &failed("group_only"));
    assert!(by_tokio_postgres(&place, "ann", "wrong").is_err());
    let required = ann.clone().plainly().with("channel_binding", "require");
    assert_refused(psql(&required, "SELECT 1"), "channel binding required");

    let held = "print(connection.execute('SELECT 1').fetchone()); \
                print(psycopg.connect(sys.argv[1], password=os.environ['KNOCK']))";
    let second = psycopg(&place.knock("single", "x"), held);
    assert_refused(second, "too many connections for role \"single\"");
    assert_eq!(psql(&place.knock("single", "x"), "SELECT 1")?, "1");

    place.run("REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")?;
    assert_refused(psql(&ann, "SELECT 1"), "permission denied for database \"postgres\"");
    assert_refused(psql(&ann.with("dbname", "other"), "SELECT 1"), "\"other\" does not exist");
    Ok(())
}

#[test]
fn a_password_that_is_changed_through_the_gateway_is_changed_everywhere() -> Result<()> {
    let place = Place::start(|_, _| ())?;
    place.run(
        "CREATE ROLE ann LOGIN PASSWORD 'first'; CREATE TABLE t (id int) DISTRIBUTE BY ROUND ROBIN",
    )?;
    place.run("GRANT ALL ON t TO ann")?;
    let everywhere = |password: &str| -> Result<()> {
        assert_eq!(psql(&place.knock("ann", password), "SELECT count(*) FROM t")?, "0");
        for node in 0..2 {
            let knock = place.knock_at_node(node, "ann", password);
            let bound = knock.with("channel_binding", "require");
            assert_eq!(psql(&bound, "SELECT current_user")?, "ann");
        }
        let verifier = "SELECT rolpassword FROM pg_authid WHERE rolname = 'ann'";
        let stored = place.run_at_node(0, verifier)?;
        ensure!(stored.starts_with("SCRAM-SHA-256$4096:"), "{stored}");
        ensure!(place.run_at_node(1, verifier)? == stored, "the nodes have other salts");
        Ok(())
    };
    everywhere("first")?;

    place.run("ALTER ROLE ann PASSWORD 'second'")?;
    everywhere("second")?;
    assert_refused(
        psql(&place.knock("ann", "first"), "SELECT 1"),
        "password authentication failed for user \"ann\"",
    );

    // By herself, by the extended protocol, and in psql's way, which sends the verifier.
    let change = "connection.execute(\"ALTER USER ann PASSWORD 'third'\", prepare=True)";
    psycopg(&place.knock("ann", "second"), change)?;
    everywhere("third")?;
    let change = "connection.pgconn.exec_(b\"ALTER USER ann PASSWORD '\" + \
                  connection.pgconn.encrypt_password(b'fourth', b'ann', b'scram-sha-256') + b\"'\")";
    psycopg(&place.knock("ann", "third"), change)?;
    everywhere("fourth")?;

    // Past the gateway, a node makes another verifier, which the keys do not fit.
    place.run_at_node(1, "ALTER ROLE ann PASSWORD 'fourth'")?;
    // Connections that are open stay so.
    place.run_at_node(
        1,
        "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE usename = 'ann'",
    )?;
    let refused = psql(&place.knock("ann", "fourth"), "SELECT count(*) FROM t");
    assert_refused(refused, "node n2 has another password for role \"ann\" than node n1");
    place.run("ALTER ROLE ann PASSWORD 'fourth'")?;
    everywhere("fourth")?;

    // The gateway's own role, whose verifiers differ from the start.
    place.run("ALTER ROLE postgres PASSWORD 'the-gateways-own'")?;
    assert_eq!(psql(&place.knock("postgres", OWN_PASSWORD), "SELECT count(*) FROM t")?, "0");
    place.run("ALTER ROLE ann PASSWORD NULL")?;
    assert_refused(
        psql(&place.knock("ann", "fourth"), "SELECT 1"),
        "password authentication failed for user \"ann\"",
    );
    Ok(())
}

fn by_tokio_postgres(place: &Place, user: &str, password: &str) -> Result<i64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(place.cluster.endpoint().port);
        config.dbname("postgres").user(user).password(password);
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client.query_one("SELECT count(*) FROM t", &[]).await?.get(0))
    })
}
