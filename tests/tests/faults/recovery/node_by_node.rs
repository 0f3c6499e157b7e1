//! `tutti.commit = 'base'` where a node or the connection to it is lost: what the client is told of each node
//! is true, and nothing is left to be settled.
//!
//! Owns: the same points at which `cuts` strikes commits with votes. What a node refuses is in
//! `cluster/base.rs`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use tutti_embed::Cluster;
use tutti_gateway::Config;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::{gateway, servers};

use super::proxy::{Proxy, Rule, Strike, When};
use super::support::*;

/// The bare COMMIT: its text ends with the message.
const COMMIT: &str = "\0\0\0\x0bCOMMIT\0";
/// Long enough for the gateway to see that a node has gone.
const NOTICE: Duration = Duration::from_secs(2);

/// Two nodes behind proxies, an account on each, and a gateway that can be killed.
struct World {
    servers: Arc<Mutex<Cluster>>,
    gateway: Arc<Mutex<Option<GatewayProcess>>>,
    proxies: Vec<Proxy>,
    config: Config,
    accounts: [i64; 2],
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn start() -> Result<Self> {
        let servers = servers::durable(2)?;
        process::init(&servers)?;
        let mut config = gateway::config(&servers, String::new());
        config.switches = tutti_gateway::Switches::default();
        let proxies = config.nodes.iter_mut().map(Proxy::before).collect::<Result<Vec<_>>>()?;
        let servers = Arc::new(Mutex::new(servers));
        let gateway = Arc::default();
        let mut world = Self { servers, gateway, proxies, config, accounts: [0, 0] };
        world.revive()?;
        make_accounts(&world.endpoint()?)?;
        let (one, two) = accounts_on_two_nodes(&world.nodes())?;
        world.accounts = [one, two];
        Ok(world)
    }

    fn nodes(&self) -> Vec<Endpoint> {
        let servers = locked(&self.servers);
        (0..2).map(|index| servers::endpoint(&servers, index)).collect()
    }

    fn endpoint(&self) -> Result<Endpoint> {
        Ok(locked(&self.gateway).as_ref().context("there is no gateway")?.endpoint())
    }

    /// What was killed comes back.
    fn revive(&self) -> Result {
        for index in 0..2 {
            let mut servers = locked(&self.servers);
            if !servers.server_mut(index).is_running() {
                servers.server_mut(index).start()?;
            }
        }
        let mut gateway = locked(&self.gateway);
        if gateway.is_none() {
            *gateway = Some(GatewayProcess::start_configured(self.config.clone(), &[])?);
        }
        Ok(())
    }

    fn session(&self) -> Result<Client> {
        eventually("the gateway takes a session", || {
            let settings = [("tutti.commit", "base")];
            let mut client = Client::connect_with(&self.endpoint()?, "postgres", &settings)?;
            for account in self.accounts {
                client.value(&balance_sql(account))?;
            }
            Ok(client)
        })
    }

    /// What the nodes themselves say.
    fn balances(&self) -> Result<[i64; 2]> {
        let nodes = self.nodes();
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
        come_to_rest(&self.nodes())?;
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
    for (index, proxy) in world.proxies.iter().enumerate() {
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
            come_to_rest(&world.nodes())?;
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
        let servers = Arc::downgrade(&world.servers);
        let strike: Strike = Arc::new(move || {
            let Some(there) = servers.upgrade() else { return };
            let _ = locked(&there).server_mut(1).kill9();
        });
        let rule = Rule { text: COMMIT, when, then_away: false };
        world.proxies[1].set_with(rule, strike);
        let told = commit(&mut client)?;
        world.proxies[1].set(None);
        let (sqlstate, detail) = told.context("the client is told")?;
        println!("{when:?}: {sqlstate} {detail}");
        ensure!(sqlstate == "08007", "{sqlstate} {detail}");
        ensure!(
            detail.starts_with("It is committed on node n1; not known of node n2 ("),
            "{detail}"
        );
        // What lives elsewhere can be read and written while the node is away.
        let mut other =
            Client::connect_with(&world.endpoint()?, "postgres", &[("tutti.commit", "base")])?;
        let first = world.accounts[0];
        other.query(&format!("UPDATE account SET balance = balance - 1 WHERE id = {first}"))?;
        world.revive()?;
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
    locked(&world.servers).server_mut(1).kill9()?;
    thread::sleep(NOTICE);
    let (sqlstate, hint) = commit(&mut client)?.context("the client is told")?;
    ensure!(sqlstate == "08006" && hint.contains("Nothing was committed"), "{sqlstate} {hint}");
    // In a moment its server is there again, and the transaction's part is not.
    world.revive()?;
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
            let gateway = Arc::downgrade(&world.gateway);
            let strike: Strike = Arc::new(move || {
                let killed = gateway.upgrade().and_then(|gateway| locked(&gateway).take());
                let _ = killed.map(GatewayProcess::kill9);
            });
            let rule = Rule { text: COMMIT, when, then_away: false };
            world.proxies[index].set_with(rule, strike);
            ensure!(commit(&mut client).is_err(), "the connection is lost");
            world.proxies[index].set(None);
            // Nothing of it is prepared, before there is anyone to settle it.
            come_to_rest(&world.nodes())?;
            world.revive()?;
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
