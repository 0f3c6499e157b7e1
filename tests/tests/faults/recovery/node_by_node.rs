//! `tutti.commit = 'base'` where a node or the connection to it is lost: what the client is told of each node
//! is true, and nothing is left to be settled.
//!
//! Owns: the same points at which `cuts` strikes commits with votes. What a node refuses is in
//! `cluster/base.rs`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use tutti_tests::client::Client;
use tutti_tests::process::GatewayProcess;

use super::proxy::{Rule, Strike, When};
use super::struck::{Struck, locked};
use super::support::*;

/// The bare COMMIT: its text ends with the message.
const COMMIT: &str = "\0\0\0\x0bCOMMIT\0";
/// Long enough for the gateway to see that a node has gone.
const NOTICE: Duration = Duration::from_secs(2);

/// Two nodes behind proxies, an account on each, and a gateway that can be killed.
struct World {
    struck: Struck,
    accounts: [i64; 2],
}

impl World {
    fn start() -> Result<Self> {
        let struck = Struck::start(2)?;
        make_accounts(&struck.endpoint()?)?;
        let (one, two) = accounts_on_two_nodes(&struck.nodes())?;
        Ok(Self { struck, accounts: [one, two] })
    }

    fn session(&self) -> Result<Client> {
        eventually("the gateway takes a session", || {
            let settings = [("tutti.commit", "base")];
            let mut client = Client::connect_with(&self.struck.endpoint()?, "postgres", &settings)?;
            for account in self.accounts {
                client.value(&balance_sql(account))?;
            }
            Ok(client)
        })
    }

    /// What the nodes themselves say.
    fn balances(&self) -> Result<[i64; 2]> {
        let nodes = self.struck.nodes();
        let of = |index: usize| -> Result<i64> {
            eventually("a node answers", || {
                let mut node = Client::connect(&nodes[index])?;
                Ok(node.value(&balance_sql(self.accounts[index]))?.parse()?)
            })
        };
        Ok([of(0)?, of(1)?])
    }

    /// Adds 1 to both accounts.
    fn add(&self, client: &mut Client) -> Result {
        client.query("BEGIN")?;
        for account in self.accounts {
            client
                .query(&format!("UPDATE account SET balance = balance + 1 WHERE id = {account}"))?;
        }
        Ok(())
    }

    /// Nothing is left prepared or locked, and what failed can be done again.
    fn goes_on(&self) -> Result {
        come_to_rest(&self.struck.nodes())?;
        let before = self.balances()?;
        eventually("it works again", || {
            let mut client = self.session()?;
            self.add(&mut client)?;
            let told = commit(&mut client)?;
            ensure!(told.is_none(), "{told:?}");
            Ok(())
        })?;
        let now = self.balances()?;
        ensure!(now == before.map(|balance| balance + 1), "{before:?}, then {now:?}");
        Ok(())
    }
}

/// SQLSTATE and detail, if it fails.
fn commit(client: &mut Client) -> Result<Option<(String, String)>> {
    let answer = client.simple("COMMIT", b"")?;
    Ok(answer.error().map(|error| {
        let detail = error.get(b'D').or(error.get(b'H')).unwrap_or_default();
        (error.sqlstate().to_owned(), detail.to_owned())
    }))
}

fn balance_sql(account: i64) -> String {
    format!("SELECT balance FROM account WHERE id = {account}")
}

#[test]
fn a_connection_lost_at_a_commit_is_told_as_not_known_of_its_node_alone() -> Result {
    let world = World::start()?;
    for (index, proxy) in world.struck.proxies.iter().enumerate() {
        for when in [When::Before, When::After, When::Meanwhile] {
            let before = world.balances()?;
            let mut client = world.session()?;
            world.add(&mut client)?;
            proxy.set(Some(Rule { text: COMMIT, when, then_away: false }));
            let told = commit(&mut client)?;
            ensure!(proxy.has_cut(), "{when:?} on node {index}: not cut");
            proxy.set(None);
            let (sqlstate, detail) = told.context("the client is told")?;
            println!("{when:?} on node n{}: {sqlstate} {detail}", index + 1);
            ensure!(sqlstate == "08007", "{sqlstate} {detail}");
            let (other, this) = (2 - index, 1 + index);
            let expected = format!("It is committed on node n{other}; not known of node n{this} (");
            ensure!(detail.starts_with(&expected), "{detail}");
            // A backend that has the message goes on with it.
            come_to_rest(&world.struck.nodes())?;
            thread::sleep(Duration::from_millis(200));
            let now = world.balances()?;
            let (there, here) = (now[1 - index] - before[1 - index], now[index] - before[index]);
            ensure!(there == 1, "it was told to be committed: {before:?}, then {now:?}");
            let expected = match when {
                When::Before => 0..=0,
                When::After => 1..=1,
                When::Meanwhile => 0..=1,
            };
            ensure!(expected.contains(&here), "{when:?}: {before:?}, then {now:?}");
            world.goes_on()?;
        }
    }
    Ok(())
}

#[test]
fn a_node_killed_at_its_commit_leaves_what_the_other_has_committed() -> Result {
    let world = World::start()?;
    for when in [When::Before, When::After] {
        let before = world.balances()?;
        let mut client = world.session()?;
        world.add(&mut client)?;
        let servers = Arc::downgrade(&world.struck.servers);
        let strike: Strike = Arc::new(move || {
            let Some(there) = servers.upgrade() else { return };
            let _ = locked(&there).server_mut(1).kill9();
        });
        let rule = Rule { text: COMMIT, when, then_away: false };
        world.struck.proxies[1].set_with(rule, strike);
        let told = commit(&mut client)?;
        world.struck.proxies[1].set(None);
        let (sqlstate, detail) = told.context("the client is told")?;
        println!("{when:?}: {sqlstate} {detail}");
        ensure!(sqlstate == "08007", "{sqlstate} {detail}");
        ensure!(
            detail.starts_with("It is committed on node n1; not known of node n2 ("),
            "{detail}"
        );
        // What lives elsewhere can be read and written while the node is away.
        let mut other = Client::connect_with(
            &world.struck.endpoint()?,
            "postgres",
            &[("tutti.commit", "base")],
        )?;
        let first = world.accounts[0];
        other.query(&format!("UPDATE account SET balance = balance - 1 WHERE id = {first}"))?;
        world.struck.revive()?;
        let now = world.balances()?;
        ensure!(now[0] == before[0], "committed, and then taken away again: {now:?}");
        let expected = if when == When::Before { before[1] } else { before[1] + 1 };
        ensure!(now[1] == expected, "{when:?}: {before:?}, then {now:?}");
        world.goes_on()?;
    }
    Ok(())
}

#[test]
fn a_node_that_is_lost_before_the_commit_keeps_the_others_from_committing() -> Result {
    let world = World::start()?;
    let before = world.balances()?;
    let mut client = world.session()?;
    world.add(&mut client)?;
    locked(&world.struck.servers).server_mut(1).kill9()?;
    thread::sleep(NOTICE);
    let (sqlstate, hint) = commit(&mut client)?.context("the client is told")?;
    ensure!(sqlstate == "08006" && hint.contains("Nothing was committed"), "{sqlstate} {hint}");
    // In a moment its server is there again, and the transaction's part is not.
    world.struck.revive()?;
    ensure!(world.balances()? == before);
    world.goes_on()
}

#[test]
fn a_gateway_killed_at_a_commit_leaves_nothing_to_settle() -> Result {
    let world = World::start()?;
    for index in 0..2 {
        for when in [When::Before, When::After] {
            let before = world.balances()?;
            let mut client = world.session()?;
            world.add(&mut client)?;
            let gateway = Arc::downgrade(&world.struck.gateway);
            let strike: Strike = Arc::new(move || {
                let killed = gateway.upgrade().and_then(|gateway| locked(&gateway).take());
                let _ = killed.map(GatewayProcess::kill9);
            });
            let rule = Rule { text: COMMIT, when, then_away: false };
            world.struck.proxies[index].set_with(rule, strike);
            ensure!(commit(&mut client).is_err(), "the connection is lost");
            world.struck.proxies[index].set(None);
            // Nothing of it is prepared, before there is anyone to settle it.
            come_to_rest(&world.struck.nodes())?;
            world.struck.revive()?;
            let now = world.balances()?;
            println!("{when:?} on node n{}: {before:?}, then {now:?}", index + 1);
            for node in 0..2 {
                ensure!((0..=1).contains(&(now[node] - before[node])), "{before:?}, then {now:?}");
            }
            if when == When::After {
                ensure!(now[index] == before[index] + 1, "{before:?}, then {now:?}");
            }
            world.goes_on()?;
        }
    }
    Ok(())
}
