//! Where interleavings run: one PostgreSQL, or a gateway with rows together or apart.
//!
//! Owns: the ids that scripts call `{a}`, `{b}`…, chosen so that the rows lie where they must, and what
//! of a script depends on the place. Never: runs a script.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::script::{Level, Script};
use crate::client::{Client, Endpoint};
use crate::gateway::TestCluster;

/// What scripts call their ids.
const NAMES: [char; 6] = ['a', 'b', 'c', 'd', 'e', 'f'];
/// Ids among which those of every node are searched.
const IDS_TRIED: i32 = 400;

/// What `{a}`, `{b}`… stand for. They ascend, so ORDER BY orders rows by these names.
pub type Ids = BTreeMap<char, i32>;

/// A place to run at.
#[derive(Clone, Debug)]
pub struct Stage {
    /// For messages.
    pub name: String,
    /// Where sessions connect.
    pub endpoint: Endpoint,
    /// The servers on which sessions may wait for each other.
    pub servers: Vec<Endpoint>,
    /// Whether DISTRIBUTE BY is understood.
    pub is_gateway: bool,
    /// The ids.
    pub ids: Ids,
}

impl Stage {
    /// One PostgreSQL, with the ids of the stage that is to be compared with it.
    pub fn plain(endpoint: Endpoint, ids: &Ids) -> Self {
        Self {
            name: "one PostgreSQL".to_owned(),
            servers: vec![endpoint.clone()],
            endpoint,
            is_gateway: false,
            ids: ids.clone(),
        }
    }

    /// A cluster, with `{a}` on node 1, `{b}` on node 2, and so on in turn.
    pub fn apart(cluster: &TestCluster) -> Result<Self> {
        let nodes = cluster.nodes().len();
        Self::of(cluster, format!("rows apart on {nodes} nodes"), |turn| turn % nodes)
    }

    /// A cluster, with all ids on its last node.
    pub fn together(cluster: &TestCluster) -> Result<Self> {
        let nodes = cluster.nodes().len();
        Self::of(cluster, format!("rows together on one of {nodes} nodes"), |_| nodes - 1)
    }

    fn of(
        cluster: &TestCluster,
        name: String,
        node_of_turn: impl Fn(usize) -> usize,
    ) -> Result<Self> {
        let by_node = ids_by_node(cluster)?;
        let mut ids = Ids::new();
        let mut last = 0;
        for (turn, name) in NAMES.into_iter().enumerate() {
            let of_node = &by_node[node_of_turn(turn)];
            last = *of_node.iter().find(|id| **id > last).context("too few ids of a node")?;
            ids.insert(name, last);
        }
        let (endpoint, servers) = (cluster.endpoint(), cluster.nodes());
        Ok(Self { name, endpoint, servers, is_gateway: true, ids })
    }

    /// A statement with its placeholders filled in.
    pub fn fill(&self, sql: &str, level: Option<Level>) -> String {
        let mut filled = sql.to_owned();
        for (name, id) in &self.ids {
            filled = filled.replace(&format!("{{{name}}}"), &id.to_string());
        }
        if let Some(level) = level {
            filled = filled.replace("{level}", level.name());
        }
        filled
    }

    /// Recreates the script's tables.
    pub fn set_up(&self, script: &Script) -> Result<()> {
        let mut client = Client::connect(&self.endpoint)?;
        let left = client.query(
            "SELECT quote_ident(tablename) FROM pg_catalog.pg_tables WHERE schemaname = 'public'",
        )?;
        let left: Vec<String> = left.into_iter().flatten().flatten().collect();
        if !left.is_empty() {
            client.query(&format!("DROP TABLE {}", left.join(", ")))?;
        }
        for statement in &script.setup {
            let statement = self.fill(statement, None);
            let place = statement.find(" DISTRIBUTE BY ").filter(|_| !self.is_gateway);
            client.query(&statement[..place.unwrap_or(statement.len())])?;
        }
        Ok(())
    }

    /// Nothing of a script may be left on the servers.
    pub fn check_clean(&self) -> Result<()> {
        for server in &self.servers {
            let left = Client::connect(server)?
                .value("SELECT count(*) FROM pg_catalog.pg_prepared_xacts")?;
            ensure!(left == "0", "{left} prepared transactions are left");
        }
        Ok(())
    }
}

/// Which ids live on which node: a table is filled, and the nodes are asked.
fn ids_by_node(cluster: &TestCluster) -> Result<Vec<Vec<i32>>> {
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE placed (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    client.query(&format!("INSERT INTO placed SELECT n FROM generate_series(1, {IDS_TRIED}) n"))?;
    let mut by_node = Vec::new();
    for node in cluster.nodes() {
        let ids = Client::connect(&node)?.query("SELECT id FROM placed ORDER BY id")?;
        let ids = ids.into_iter().flatten().flatten().map(|id| id.parse());
        by_node.push(ids.collect::<Result<Vec<i32>, _>>()?);
    }
    client.query("DROP TABLE placed")?;
    Ok(by_node)
}
