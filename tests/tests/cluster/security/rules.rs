//! Rules: the first that matches decides, and certificates of clients.

use anyhow::Result;
use tutti_configuration::Rule;
use tutti_gateway::Config;

use super::clients::{assert_refused, psql};
use super::place::{Authority, OWN_PASSWORD, Place};

#[derive(serde::Deserialize)]
struct Rules {
    rules: Vec<Rule>,
}

const RULES: &str = r#"
    [[rules]]
    users = ["eve", "+banned"]
    method = "reject"
    [[rules]]
    type = "hostssl"
    users = ["ann"]
    address = "127.0.0.0/8"
    method = "cert"
    [[rules]]
    type = "hostssl"
    address = "loopback"
    method = "scram-sha-256"
    [[rules]]
    users = ["all"]
    address = "192.0.2.0/24"
    method = "scram-sha-256"
"#;

fn with_rules(config: &mut Config, authority: &Authority) {
    config.rules = toml::from_str::<Rules>(RULES).expect("rules").rules;
    for name in ["ann", "bob"] {
        authority.issue(name, &[]).expect("a certificate");
    }
}

#[test]
fn the_first_rule_decides_how_and_whether_one_gets_in() -> Result<()> {
    let place = Place::start(with_rules)?;
    place.run(
        "CREATE ROLE banned; CREATE ROLE bob LOGIN PASSWORD 'x'; CREATE ROLE ann LOGIN PASSWORD 'x';
         CREATE ROLE eve LOGIN PASSWORD 'x'; CREATE ROLE mal LOGIN PASSWORD 'x' IN ROLE banned",
    )?;
    let knock = |user: &str| place.knock(user, "x");
    let certified = |user: &str, certificate: &str| {
        let file = |kind: &str| place.authority.path(&format!("{certificate}.{kind}"));
        knock(user)
            .with("sslcert", &file("crt").display().to_string())
            .with("sslkey", &file("key").display().to_string())
    };
    let rejected = "a rule of the gateway rejects connection for host \"127.0.0.1\"";
    assert_refused(psql(&knock("eve"), "SELECT 1"), rejected);
    assert_refused(psql(&knock("mal"), "SELECT 1"), rejected);
    assert_refused(
        psql(&knock("bob").plainly(), "SELECT 1"),
        "no rule of the gateway lets in connection for host \"127.0.0.1\", user \"bob\", database \
         \"postgres\", no encryption",
    );
    assert_eq!(psql(&knock("bob"), "SELECT current_user")?, "bob");

    let without = psql(&knock("ann"), "SELECT 1");
    assert_refused(without, "connection requires a valid client certificate");
    let another = psql(&certified("ann", "bob"), "SELECT 1");
    assert_refused(another, "certificate authentication failed for user \"ann\"");
    // The certificate lets her in here; the nodes ask for a password, which was not given.
    assert_refused(psql(&certified("ann", "ann"), "SELECT 1"), "nothing to answer with");
    // Who is let in by password may show any certificate of the authority.
    assert_eq!(psql(&certified("bob", "bob"), "SELECT current_user")?, "bob");
    assert_eq!(psql(&place.knock("postgres", OWN_PASSWORD), "SELECT 1")?, "1");
    Ok(())
}
