//! That no password leaves the gateway: not to its log, not to a node's.

use std::fs;

use anyhow::{Result, ensure};
use tutti_tests::process::{self, GatewayProcess};

use super::clients::{Knock, assert_refused, psql};
use super::place::{OWN_PASSWORD, closed_servers, configured};

#[test]
fn no_log_holds_a_password() -> Result<()> {
    let (servers, authority) = closed_servers(2)?;
    let config = configured(&servers, &authority);
    process::init_configured(&config)?;
    let gateway = GatewayProcess::start_configured(config, &[("TUTTI_LOG", "trace")])?;
    let knock = |user: &str, password: &str| {
        let root = authority.path("ca.crt").display().to_string();
        let knock = Knock::at(gateway.endpoint().port).with("user", user).password(password);
        knock.with("sslmode", "verify-full").with("sslrootcert", &root)
    };
    let owner = knock("postgres", OWN_PASSWORD);
    for index in 0..2 {
        let node = owner.clone().at_port(servers.server(index).port());
        psql(&node, "ALTER SYSTEM SET log_statement = 'all'")?;
        psql(&node, "SELECT pg_reload_conf()")?;
    }
    psql(&owner, "CREATE ROLE ann LOGIN PASSWORD 'hush-one'")?;
    psql(&owner, "ALTER ROLE ann PASSWORD $$hush-two$$ CONNECTION LIMIT 5")?;
    let wrong = psql(&owner, "CREATE ROLE ann LOGIN PASSWORD 'hush-three'");
    assert_refused(wrong, "role \"ann\" already exists");
    psql(&knock("ann", "hush-two"), "SELECT 1")?;
    assert_refused(psql(&knock("ann", "hush-four"), "SELECT 1"), "authentication failed");

    let mut logs = vec![gateway.log()];
    for server in servers.servers() {
        logs.push(fs::read_to_string(server.log_path())?);
    }
    // The logs must be worth looking at.
    ensure!(!logs[0].is_empty(), "the gateway's log is empty");
    ensure!(logs[1].contains("PASSWORD 'SCRAM-SHA-256$"), "{}", logs[1]);
    for log in logs {
        ensure!(!log.contains("hush") && !log.contains(OWN_PASSWORD), "{log}");
    }
    Ok(())
}
