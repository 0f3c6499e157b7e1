//! The connection to a node is lost at each point of a commit; a node cannot be reached; votes do
//! not come.
//!
//! Owns: a gateway that reaches its nodes through proxies.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use tutti_gateway::Switches;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::{self, TestCluster};
use tutti_tests::servers;
use tutti_txn::coordinator::Form;

use super::proxy::{Proxy, Rule, When};
use super::support::*;

/// Two nodes behind proxies, and accounts on them.
struct Proxied {
    cluster: TestCluster,
    proxies: Vec<Proxy>,
    accounts: (i64, i64),
}

fn proxied(switches: Switches) -> Result<Proxied> {
    let servers = servers::durable(2)?;
    let mut config = gateway::config(&servers, String::new());
    config.switches = switches;
    let proxies = config.nodes.iter_mut().map(Proxy::before).collect::<Result<Vec<_>>>()?;
    let cluster = TestCluster::start_configured(servers, config)?;
    make_accounts(&cluster.endpoint())?;
    let accounts = accounts_on_two_nodes(&cluster.nodes())?;
    Ok(Proxied { cluster, proxies, accounts })
}

/// One transfer in a session of its own, tried until it is believed to have got as far as COMMIT.
fn transfer_somehow(gateway: &Endpoint, number: i64, (from, to): (i64, i64)) -> Result<Believed> {
    let mut client = eventually("the gateway takes a session", || Client::connect(gateway))?;
    Ok(transfer(&mut client, number, from, to))
}

fn cut_everywhere(form: Form, texts: &[&'static str]) -> Result {
    let proxied = proxied(Switches { form, ..Switches::default() })?;
    let (gateway, nodes) = (proxied.cluster.endpoint(), proxied.cluster.nodes());
    let mut asked = BTreeMap::new();
    let mut number = 0;
    let mut cuts = 0;
    for text in texts {
        for when in [When::Before, When::After] {
            for proxy in &proxied.proxies {
                // Each session may choose the other node as anchor, and the message goes there.
                for _ in 0..2 {
                    number += 1;
                    proxy.set(Some(Rule { text, when, then_away: false }));
                    let believed = transfer_somehow(&gateway, number, proxied.accounts)?;
                    let cut = proxy.has_cut();
                    cuts += usize::from(cut);
                    println!(
                        "{form:?}, {text:?} {when:?} on {}: {cut}, {believed:?}",
                        proxy.port()
                    );
                    proxy.set(None);
                    asked.insert(number, believed);
                    come_to_rest(&nodes)?;
                }
            }
        }
    }
    ensure!(texts.len() * 2 <= cuts, "only {cuts} cuts hit anything");
    // All nodes are open again.
    eventually("a transfer works again", || {
        number += 1;
        let believed = transfer_somehow(&gateway, number, proxied.accounts)?;
        asked.insert(number, believed.clone());
        ensure!(believed == Believed::Acknowledged, "{believed:?}");
        Ok(())
    })?;
    come_to_rest(&nodes)?;
    check(&nodes, &gateway, &asked)
}

#[test]
fn a_connection_lost_at_each_point_of_a_commit_with_the_decision_apart() -> Result {
    cut_everywhere(
        Form::Apart,
        &["PREPARE TRANSACTION", "INSERT INTO tutti.decision", "COMMIT PREPARED"],
    )
}

#[test]
fn a_connection_lost_at_each_point_of_an_anchored_commit() -> Result {
    // The bare COMMIT is the anchor's: its text ends with the message.
    cut_everywhere(
        Form::Anchored,
        &["PREPARE TRANSACTION", "tutti.record_decision", "\0\0\0\x0bCOMMIT\0", "COMMIT PREPARED"],
    )
}

#[test]
fn an_anchor_out_of_reach_leaves_the_outcome_unknown_until_it_is_back() -> Result {
    for when in [When::Before, When::After] {
        let proxied = proxied(Switches::default())?;
        let (gateway, nodes) = (proxied.cluster.endpoint(), proxied.cluster.nodes());
        // Only the anchor gets this message.
        for proxy in &proxied.proxies {
            proxy.set(Some(Rule { text: "INSERT INTO tutti.decision", when, then_away: true }));
        }
        let believed = transfer_somehow(&gateway, 1, proxied.accounts)?;
        let Believed::Unknown(Some(gid)) = &believed else { panic!("{when:?}: {believed:?}") };
        let anchor = proxied.proxies.iter().position(Proxy::has_cut).expect("one has cut");
        for proxy in &proxied.proxies {
            proxy.set(None);
        }

        // The other node holds a part that may be visible on the anchor by now.
        let other = if anchor == 0 { proxied.accounts.1 } else { proxied.accounts.0 };
        if let Ok(mut client) = Client::connect(&gateway) {
            let read =
                client.simple(&format!("SELECT balance FROM account WHERE id = {other}"), &[])?;
            let error = read.error().expect("the node is closed to reads");
            ensure!(["57P03", "08001"].contains(&error.sqlstate()), "{error:?}");
        }

        proxied.proxies[anchor].come_back();
        let told = eventually("the outcome is told", || {
            Client::connect(&gateway)?.value(&format!("SELECT tutti_outcome('{gid}')"))
        })?;
        assert_eq!(told, if when == When::After { "committed" } else { "aborted" });
        come_to_rest(&nodes)?;
        check(&nodes, &gateway, &BTreeMap::from([(1, believed)]))?;
    }
    Ok(())
}

/// The lock is lost with the connection to node 1, and taken again within a second: what the gateway has
/// open elsewhere meanwhile is not left behind.
#[test]
fn a_gateway_that_takes_its_lock_again_is_not_taken_for_gone() -> Result {
    let proxied = proxied(Switches::default())?;
    // Younger backends may be about to end.
    std::thread::sleep(Duration::from_secs(11));
    let home = &proxied.proxies[0];
    home.set(Some(Rule { text: "cut_here", when: When::Before, then_away: true }));
    let mut client = Client::connect(&proxied.cluster.endpoint())?;
    // A client that is affected may be told, or lose the connection.
    let _ = client.simple("LISTEN cut_here", b"");
    ensure!(home.has_cut());
    std::thread::sleep(Duration::from_millis(200));
    home.come_back();
    let report = eventually("the auditor looks", || proxied.cluster.audit())?;
    ensure!(report.findings.is_empty(), "{report}");
    Ok(())
}

#[test]
fn a_vote_that_does_not_come_aborts_and_leaves_nothing() -> Result {
    let switches = Switches { vote_deadline: Duration::from_millis(500), ..Switches::default() };
    let mut proxied = proxied(switches)?;
    proxied.cluster.leave_unaudited("a trigger is made on one node, past the gateway");
    let (gateway, nodes) = (proxied.cluster.endpoint(), proxied.cluster.nodes());
    // Its check waits, at PREPARE, for a lock that another session holds.
    let mut node = Client::connect(&nodes[1])?;
    node.query(
        "CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END'",
    )?;
    node.query(
        "CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON entry DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION wait_for_lock()",
    )?;
    node.query("SELECT pg_advisory_lock(7)")?;
    let mut asked = BTreeMap::new();
    for number in [1, 2] {
        asked.insert(number, transfer_somehow(&gateway, number, proxied.accounts)?);
        assert_eq!(asked[&number], Believed::Refused);
        come_to_rest(&nodes)?;
    }
    node.query("SELECT pg_advisory_unlock(7)")?;
    asked.insert(3, transfer_somehow(&gateway, 3, proxied.accounts)?);
    assert_eq!(asked[&3], Believed::Acknowledged);
    come_to_rest(&nodes)?;
    check(&nodes, &gateway, &asked)
}
