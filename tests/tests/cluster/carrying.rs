//! Rows that are carried from their home to the other nodes by PostgreSQL's own logical replication.
//!
//! Owns: that all arrive once and go no further, whatever is down meanwhile; how far behind nodes are said to
//! be; what servers cannot do it; that nothing is left behind. No gateway takes part.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::runtime::Runtime;
use tutti_cluster::carrying::{CarriedTable, Carriers, Connections};
use tutti_cluster::catalog::maps::even_map;
use tutti_embed::Cluster;
use tutti_gateway::NodeConfig;
use tutti_link::{Credentials, Endpoint, NodeConnection};
use tutti_sql::catalog::{BucketMap, NodeId, quote_identifier};
use tutti_sql::hash::KeyType;
use tutti_tests::client::Client;
use tutti_tests::servers;

const NODES: u16 = 3;
const PATIENCE: Duration = Duration::from_secs(30);
const COPY: &str = "SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM t";

struct World {
    servers: Cluster,
    runtime: Runtime,
    carriers: Carriers,
    map: BucketMap,
}

fn ids() -> Vec<NodeId> {
    (1..=NODES).map(NodeId).collect()
}

fn table(name: &str, key: &str, key_type: KeyType) -> CarriedTable {
    CarriedTable {
        schema: "public".to_owned(),
        name: name.to_owned(),
        key: key.to_owned(),
        key_type,
    }
}

impl World {
    fn start(settings: &[(&str, &str)]) -> Result<Self> {
        let servers = servers::durable_with(NODES, settings)?;
        let runtime = Runtime::new()?;
        Ok(Self { servers, runtime, carriers: Carriers::new("test", ids()), map: even_map(&ids()) })
    }

    /// The table `t` on all nodes, whose rows are carried.
    fn carry(&self) -> Result<()> {
        self.on_each("CREATE TABLE t (id int PRIMARY KEY, v text)")?;
        self.with_all(async |carriers, connections| {
            carriers.set_up(connections, &self.reached_at()).await?;
            // Again, which changes nothing.
            carriers.set_up(connections, &self.reached_at()).await?;
            carriers.begin(connections, &table("t", "id", KeyType::Int4), &self.map).await?;
            Ok(())
        })
    }

    fn reached_at(&self) -> BTreeMap<NodeId, String> {
        let of = |(index, node)| {
            let port = servers::endpoint(&self.servers, index).port;
            (node, format!("host=127.0.0.1 port={port} user=postgres dbname=postgres"))
        };
        ids().into_iter().enumerate().map(of).collect()
    }

    async fn open(&self, index: usize) -> Result<NodeConnection> {
        let place = NodeConfig {
            id: u16::try_from(index + 1)?,
            host: "127.0.0.1".to_owned(),
            port: servers::endpoint(&self.servers, index).port,
            ..NodeConfig::default()
        };
        let endpoint = Endpoint::new(&place, "postgres");
        Ok(NodeConnection::open(&endpoint, "postgres", &Credentials::Nothing, &[]).await?)
    }

    fn with_all<T>(
        &self,
        doing: impl AsyncFnOnce(&Carriers, &mut Connections<'_>) -> Result<T>,
    ) -> Result<T> {
        self.runtime.block_on(async {
            let mut open = Vec::new();
            for index in 0..usize::from(NODES) {
                open.push(self.open(index).await?);
            }
            let mut connections: Connections<'_> = ids().into_iter().zip(&mut open).collect();
            doing(&self.carriers, &mut connections).await
        })
    }

    fn node(&self, index: usize) -> Result<Client> {
        Client::connect(&servers::endpoint(&self.servers, index))
    }

    fn on_each(&self, sql: &str) -> Result<()> {
        (0..usize::from(NODES)).try_for_each(|index| self.node(index)?.query(sql).map(drop))
    }

    /// Whether a row is of this node's home, as SQL over `id`.
    fn is_home(&self, index: usize) -> String {
        tutti_cluster::carrying::filter_sql("id", KeyType::Int4, &self.map, ids()[index])
    }

    /// Rows of this node's home among these numbers.
    fn write(&self, index: usize, from: i32, to: i32) -> Result<()> {
        let home = self.is_home(index);
        self.node(index)?.query(&format!(
            "INSERT INTO t SELECT id, 'of node {index}' FROM generate_series({from}, {to}) id WHERE {home}"
        ))?;
        Ok(())
    }

    /// Waits until all copies are alike.
    fn converge(&self) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let copies: Vec<_> = (0..usize::from(NODES))
                .map(|index| self.node(index)?.value(COPY))
                .collect::<Result<_>>()?;
            if copies.iter().all(|copy| *copy == copies[0]) {
                return Ok(copies[0].clone());
            }
            ensure!(Instant::now() < deadline, "copies differ: {copies:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for what was written on every node by now.
    fn arrive(&self) -> Result<()> {
        self.with_all(async |carriers, connections| {
            for connection in connections.values_mut() {
                let place = carriers.place(connection).await?;
                let missing = carriers.wait_for_arrival(connection, &place, PATIENCE).await?;
                ensure!(missing.is_empty(), "not arrived on {missing:?}");
            }
            Ok(())
        })
    }
}

#[test]
fn what_is_written_at_its_home_arrives_everywhere_once_and_goes_no_further() -> Result<()> {
    let world = World::start(&[])?;
    world.carry()?;
    for index in 0..usize::from(NODES) {
        world.write(index, 1, 60)?;
    }
    world.arrive()?;
    // Waiting was enough: no copy has to be waited for again.
    let copies: Vec<_> = (0..usize::from(NODES))
        .map(|index| world.node(index)?.value(COPY))
        .collect::<Result<_>>()?;
    ensure!(copies.iter().all(|copy| *copy == copies[0]), "{copies:#?}");
    ensure!(world.node(0)?.value("SELECT count(*) FROM t")? == "60");
    for index in 0..usize::from(NODES) {
        let home = world.is_home(index);
        let mut node = world.node(index)?;
        node.query(&format!("UPDATE t SET v = v || ', changed' WHERE id % 2 = 0 AND ({home})"))?;
        node.query(&format!("DELETE FROM t WHERE id % 3 = 0 AND ({home})"))?;
        node.query("BEGIN")?;
        node.query(&format!("UPDATE t SET v = 'prepared' WHERE id % 5 = 0 AND ({home})"))?;
        node.query("PREPARE TRANSACTION 'one'")?;
        node.query("COMMIT PREPARED 'one'")?;
    }
    world.arrive()?;
    world.converge()?;
    ensure!(world.node(2)?.value("SELECT count(*) FROM t")? == "40");
    // Nothing goes round: no transaction writes any more.
    let next = |world: &World| -> Result<Vec<String>> {
        let of = |index| world.node(index)?.value("SELECT pg_snapshot_xmax(pg_current_snapshot())");
        (0..usize::from(NODES)).map(of).collect()
    };
    let before = next(&world)?;
    std::thread::sleep(Duration::from_secs(2));
    let now = next(&world)?;
    ensure!(before == now, "something is still being written: {before:?}, then {now:?}");
    Ok(())
}

#[test]
fn a_node_that_is_down_stops_nobody_and_has_all_when_it_is_back() -> Result<()> {
    let mut world = World::start(&[])?;
    world.carry()?;
    for down in 0..usize::from(NODES) {
        let base = i32::try_from(down)? * 1000;
        for index in 0..usize::from(NODES) {
            world.write(index, base, base + 100)?;
        }
        // With what it has written and not carried yet.
        world.servers.server_mut(down).kill9()?;
        for index in (0..usize::from(NODES)).filter(|index| *index != down) {
            world.write(index, base + 101, base + 200)?;
            let home = world.is_home(index);
            world
                .node(index)?
                .query(&format!("UPDATE t SET v = 'later' WHERE id % 7 = 0 AND ({home})"))?;
        }
        // The others have each other's rows, and say who lacks what.
        let other = (down + 1) % usize::from(NODES);
        let lag = world.runtime.block_on(async {
            let mut node = world.open(other).await?;
            anyhow::Ok(world.carriers.lag(&mut node).await?)
        })?;
        let of_down = lag.iter().find(|lag| lag.to == ids()[down]).context("it is told")?;
        ensure!(of_down.bytes > Some(0) && of_down.behind.is_none(), "{lag:?}");
        world.servers.server_mut(down).start()?;
        world.arrive()?;
        world.converge()?;
    }
    ensure!(world.node(0)?.value("SELECT count(*) > 500 FROM t")? == "t");
    let lag = world.with_all(async |carriers, connections| {
        let mut found = Vec::new();
        for connection in connections.values_mut() {
            found.extend(carriers.lag(connection).await?);
        }
        Ok(found)
    })?;
    ensure!(lag.len() == usize::from(NODES * (NODES - 1)), "{lag:?}");
    ensure!(lag.iter().all(|lag| lag.behind.is_some()), "{lag:?}");
    Ok(())
}

/// What a server cannot apply is told, with whose rows wait; and no more when nothing is in the way.
#[test]
fn rows_that_a_server_cannot_apply_are_told() -> Result<()> {
    let world = World::start(&[])?;
    world.carry()?;
    let refusals =
        || world.with_all(async |carriers, connections| Ok(carriers.refusals(connections).await?));
    ensure!(refusals()?.is_empty());
    let of_first = world.is_home(0);
    let id = world
        .node(0)?
        .value(&format!("SELECT min(id) FROM generate_series(1, 90) id WHERE {of_first}"))?;
    world.node(2)?.query(&format!("INSERT INTO t VALUES ({id}, 'in the way')"))?;
    world.write(0, 1, 90)?;
    let deadline = Instant::now() + PATIENCE;
    let told = loop {
        let told = refusals()?;
        if told.values().any(|failed| 1 < *failed) {
            break told;
        }
        ensure!(Instant::now() < deadline, "{told:?}");
        std::thread::sleep(Duration::from_millis(100));
    };
    ensure!(told.keys().eq(["node n3 cannot apply the rows of node n1"]), "{told:?}");
    world.node(2)?.query(&format!("DELETE FROM t WHERE id = {id}"))?;
    world.arrive()?;
    let failed = refusals()?;
    std::thread::sleep(Duration::from_secs(6));
    ensure!(refusals()? == failed, "it goes on failing: {failed:?}");
    Ok(())
}

/// A published condition may use built-in functions only; those by which rows of every type are placed are.
#[test]
fn every_type_of_key_can_be_carried_and_nothing_is_left_when_it_is_taken_down() -> Result<()> {
    let world = World::start(&[])?;
    world.with_all(async |carriers, connections| {
        carriers.set_up(connections, &world.reached_at()).await?;
        for (number, key_type) in KeyType::ALL.into_iter().enumerate() {
            let name = format!("k{number}");
            for connection in connections.values_mut() {
                let sql = format!("SELECT pg_catalog.format_type({}, NULL)", key_type.oid());
                let rows = connection.rows(&sql).await?;
                let type_name = rows.text(0, 0).unwrap_or_default().to_owned();
                let key = quote_identifier("a Key");
                let create = format!("CREATE TABLE {name} ({key} {type_name} PRIMARY KEY)");
                connection.rows(&create).await?;
            }
            let table = table(&name, "a Key", key_type);
            carriers.begin(connections, &table, &world.map).await.with_context(|| name.clone())?;
            if number % 2 == 0 {
                carriers.end(connections, &table).await?;
            }
        }
        carriers.take_down(connections).await?;
        for connection in connections.values_mut() {
            for catalog in ["pg_publication", "pg_subscription", "pg_replication_slots"] {
                let rows = connection.rows(&format!("SELECT count(*) FROM {catalog}")).await?;
                ensure!(rows.text(0, 0) == Some("0"), "{catalog} on {}", connection.node());
            }
        }
        // With a node of which nothing is there any more, too.
        carriers.take_down(connections).await?;
        Ok(())
    })
}

#[test]
fn servers_that_cannot_carry_are_refused_with_what_to_set() -> Result<()> {
    for (settings, name) in [
        (vec![("wal_level", "replica")], "wal_level"),
        (vec![("max_replication_slots", "1")], "max_replication_slots"),
        (vec![("max_logical_replication_workers", "1")], "max_logical_replication_workers"),
        (vec![("max_worker_processes", "2")], "max_worker_processes"),
    ] {
        let world = World::start(&settings)?;
        let error = world.with_all(async |carriers, connections| {
            carriers.set_up(connections, &world.reached_at()).await.err().context("refused")
        })?;
        let fields = error.to_fields();
        ensure!(fields.sqlstate() == "0A000", "{fields:?}");
        let hint = fields.get(b'H').unwrap_or_default();
        ensure!(hint.contains(&format!("Set {name} = ")), "{hint}");
    }
    Ok(())
}
