//! `tutti init`: makes the configured servers a cluster.
//!
//! Owns: what a server must offer, writing the schema `tutti`, and recognising a server that is
//! not the expected node.
//! Never: serves clients, nor changes a cluster that exists.
//! Start reading at [`init`].
//!
//! The nodes are set up one after the other, each in one transaction of its own, node 1 last. A
//! transaction over all nodes would need what is being set up; repeatable steps need nothing: if
//! `init` is interrupted, running it again completes it, and until then no gateway
//! serves the cluster because [`check_identity`] fails. Node 1 comes last so that its own tables
//! are still recognised as not adopted when the others are done.

mod adopt;

use tutti_configuration::{Config, DefaultDistribution};
use tutti_link::connection::{Credentials, NodeConnection, NodeError};
use tutti_link::{Endpoint, Endpoints};
use tutti_sql::catalog::{NodeId, quote_literal};

use self::adopt::Adopted;
use crate::Boxed;
use crate::catalog::{Answer, schema, sequences};
use crate::error::GatewayError;

/// Oldest major version, times 10000 as in `server_version_num`.
const VERSION_MIN: u32 = 150_000;

/// Held on node 1 by a running `init`, so that two do not create a cluster each. Not an advisory lock, which
/// any client can take; ordinary roles have no right to lock a catalog, and ordinary use of it does not wait.
const INIT_LOCK: &str = "BEGIN; LOCK TABLE pg_catalog.pg_extension IN SHARE UPDATE EXCLUSIVE MODE";

/// Makes the configured servers a cluster, or completes what an earlier run began. Does nothing to a
/// cluster that is complete.
///
/// `adopt`: tables that node 1 already holds become part of the cluster (see [`adopt`]).
///
/// Errors: what a server lacks, or that it belongs to another cluster or is another node; nothing is
/// written then.
///
/// A box, so that not every calling program compiles it again.
pub fn init(config: &Config, adopt: bool) -> Boxed<'_, Result<(), GatewayError>> {
    Box::pin(make_cluster(config, adopt))
}

async fn make_cluster(config: &Config, adopt: bool) -> Result<(), GatewayError> {
    let mut connections = Vec::with_capacity(config.nodes.len());
    let endpoints = Endpoints::new(config);
    for endpoint in endpoints.iter() {
        connections.push(connect(endpoint).await?);
    }
    let (home, others) = connections.split_first_mut().expect("Config::check wants a node");
    let mut lock = connect(endpoints.of(NodeId::HOME)).await?;
    lock.query(INIT_LOCK).await?;

    let mut cluster_id = None;
    let mut missing = Vec::new();
    let mut major = 0;
    for connection in std::iter::once(&mut *home).chain(others.iter_mut()) {
        major = check_server(connection).await?;
        match read_identity(connection).await? {
            Some(identity) => {
                check_one(connection.node(), &identity, config, cluster_id.as_deref())?;
                cluster_id = Some(identity.cluster_id);
            }
            None => missing.push(connection.node()),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }

    let mut adopted = Adopted::default();
    if missing.contains(&NodeId::HOME)
        && let Some(table) = first_user_table(home).await?
    {
        if !adopt {
            return Err(GatewayError::HoldsTables { table });
        }
        // Home tables stay where they are, and a table that is not registered is one.
        if config.default_distribution != DefaultDistribution::Home {
            adopted = adopt::read_schema(endpoints.of(NodeId::HOME), config, home, major).await?;
        }
    }
    for connection in others.iter_mut().filter(|c| missing.contains(&c.node())) {
        if let Some(table) = first_user_table(connection).await? {
            return Err(GatewayError::HoldsTablesToo { node: connection.node(), table });
        }
    }

    let cluster_id = match cluster_id {
        Some(id) => id,
        None => {
            let rows = home.rows("SELECT pg_catalog.gen_random_uuid()").await?;
            let answer = Answer { node: NodeId::HOME, what: "a new cluster id", rows: &rows };
            answer.text(0, 0)?.to_owned()
        }
    };
    let mut set_ups: Vec<_> = others.iter_mut().collect();
    set_ups.push(home);
    for connection in set_ups.into_iter().filter(|c| missing.contains(&c.node())) {
        set_up(connection, config, &cluster_id, &adopted).await?;
    }
    lock.query("COMMIT").await?;
    Ok(())
}

async fn connect(endpoint: &Endpoint) -> Result<NodeConnection, GatewayError> {
    // A role that may create functions in another schema must not have them run by a superuser.
    let settings = [
        ("application_name", "tutti"),
        ("client_encoding", "UTF8"),
        ("search_path", "pg_catalog, pg_temp"),
    ];
    let own = endpoint.config();
    let credentials = Credentials::of_gateway(own);
    Ok(NodeConnection::open(endpoint, &own.user, &credentials, &settings).await?)
}

/// Which node a server says it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeIdentity {
    /// Name of its cluster.
    pub cluster: String,
    /// The cluster's id, made up when it was initialised.
    pub cluster_id: String,
    /// Which node it is.
    pub node: NodeId,
    /// How many nodes the cluster has.
    pub node_count: usize,
}

/// Reads which node a server is; `None` if it belongs to no cluster.
pub async fn read_identity(
    connection: &mut NodeConnection,
) -> Result<Option<NodeIdentity>, GatewayError> {
    const SQL: &str = "SELECT name, id, node, (SELECT count(*) FROM tutti.node) FROM tutti.cluster";
    let node = connection.node();
    let rows = match connection.rows(SQL).await {
        Ok(rows) => rows,
        Err(NodeError::Refused(fields)) if matches!(fields.sqlstate(), "42P01" | "3F000") => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let answer = Answer { node, what: "its identity", rows: &rows };
    if answer.is_empty() {
        return Ok(None);
    }
    Ok(Some(NodeIdentity {
        cluster: answer.text(0, 0)?.to_owned(),
        cluster_id: answer.text(0, 1)?.to_owned(),
        node: NodeId(answer.number(0, 2)?),
        node_count: answer.number(0, 3)?,
    }))
}

/// Refuses a server that is not the configured node of the configured cluster. For every new
/// connection where that is not certain.
///
/// `cluster_id`: that of the other nodes, if known. Returns the server's.
pub async fn check_identity(
    connection: &mut NodeConnection,
    config: &Config,
    cluster_id: Option<&str>,
) -> Result<String, GatewayError> {
    let node = connection.node();
    let identity = read_identity(connection).await?.ok_or(GatewayError::NotInitialised { node })?;
    check_one(node, &identity, config, cluster_id)?;
    Ok(identity.cluster_id)
}

/// Refuses a default that the cluster was not created with: one has all definitions on all nodes,
/// the other on node 1 until a table is spread, and each relies on what it finds. On node 1.
pub async fn check_default(home: &mut NodeConnection, config: &Config) -> Result<(), GatewayError> {
    let configured = config.default_distribution == DefaultDistribution::Home;
    // A cluster of an earlier version did not record it.
    let sql = format!(
        "UPDATE tutti.cluster SET home_by_default = {configured} WHERE home_by_default IS NULL; \
         SELECT home_by_default FROM tutti.cluster"
    );
    let rows = home.rows(&sql).await?;
    let answer = Answer { node: home.node(), what: "its default distribution", rows: &rows };
    match (answer.boolean(0, 0)?, configured) {
        (true, false) => Err(GatewayError::MadeWithHome),
        (false, true) => Err(GatewayError::MadeWithoutHome),
        _ => Ok(()),
    }
}

fn check_one(
    node: NodeId,
    identity: &NodeIdentity,
    config: &Config,
    cluster_id: Option<&str>,
) -> Result<(), GatewayError> {
    if identity.cluster != config.cluster {
        let (found, expected) = (identity.cluster.clone(), config.cluster.clone());
        return Err(GatewayError::OtherClusterName { node, found, expected });
    }
    if let Some(expected) = cluster_id.filter(|id| *id != identity.cluster_id) {
        let (found, expected) = (identity.cluster_id.clone(), expected.to_owned());
        return Err(GatewayError::OtherCluster { node, found, expected });
    }
    if identity.node != node {
        return Err(GatewayError::OtherNode { node, found: identity.node });
    }
    if identity.node_count != config.nodes.len() {
        let (configured, stored) = (config.nodes.len(), identity.node_count);
        return Err(GatewayError::NodeCount { configured, stored });
    }
    Ok(())
}

/// Refuses a server that cannot be a node, warns about one that may lose commits. Returns its major
/// version.
async fn check_server(connection: &mut NodeConnection) -> Result<u32, GatewayError> {
    const SQL: &str =
        "SELECT current_setting('server_version_num'), current_setting('server_version'),
        current_setting('max_prepared_transactions'), current_setting('server_encoding'),
        current_setting('fsync'), current_setting('is_superuser'), session_user";
    let node = connection.node();
    let rows = connection.rows(SQL).await?;
    let answer = Answer { node, what: "its settings", rows: &rows };
    let version: u32 = answer.number(0, 0)?;
    if version < VERSION_MIN {
        return Err(GatewayError::OldServer { node, version: answer.text(0, 1)?.to_owned() });
    }
    if answer.text(0, 2)? == "0" {
        return Err(GatewayError::NoPreparedTransactions { node });
    }
    let encoding = answer.text(0, 3)?;
    if encoding != "UTF8" {
        return Err(GatewayError::Encoding { node, found: encoding.to_owned() });
    }
    if answer.text(0, 4)? == "off" {
        tracing::warn!(
            %node,
            "fsync is off: after a crash of this server, transactions over several nodes can be \
             half done"
        );
    }
    if answer.text(0, 5)? != "on" {
        tracing::warn!(
            %node,
            role = answer.text(0, 6)?,
            "the gateway's role is no superuser: after a crash it cannot settle transactions that \
             other roles have prepared"
        );
    }
    Ok(version / 10_000)
}

/// A user's table, or `None`. Tables of extensions do not count.
async fn first_user_table(connection: &mut NodeConnection) -> Result<Option<String>, GatewayError> {
    const SQL: &str = "SELECT format('%I.%I', n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND c.relpersistence <> 't'
    AND n.nspname <> ALL ('{pg_catalog,information_schema,pg_toast,tutti}')
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass
        AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY n.nspname, c.relname LIMIT 1";
    let rows = connection.rows(SQL).await?;
    Ok(rows.text(0, 0).map(str::to_owned))
}

/// Writes schema, identity and what is adopted, in one step.
async fn set_up(
    connection: &mut NodeConnection,
    config: &Config,
    cluster_id: &str,
    adopted: &Adopted,
) -> Result<(), GatewayError> {
    let node = connection.node();
    let nodes: Vec<_> = config.nodes.iter().map(|node| format!("({})", node.id)).collect();
    let (create, disarm) = if node == NodeId::HOME {
        ("", String::new())
    } else {
        (adopted.create.as_str(), sequences::disarm_sql())
    };
    // A dump leaves search_path empty and more settings changed: everything here is qualified, and
    // the settings are reset. As one string it is one transaction, however the dump is written.
    let sql = format!(
        "{create};\nRESET ALL;\n{}
INSERT INTO tutti.node (id) VALUES {} ON CONFLICT DO NOTHING;
INSERT INTO tutti.cluster (name, id, node, home_by_default) VALUES ({}, {}, {}, {})
    ON CONFLICT DO NOTHING;
SELECT tutti.set_guard();
{};
INSERT INTO tutti.change DEFAULT VALUES;
RESET client_min_messages;
{disarm}",
        schema::CREATE_SCHEMA,
        nodes.join(", "),
        quote_literal(&config.cluster),
        quote_literal(cluster_id),
        node.0,
        config.default_distribution == DefaultDistribution::Home,
        adopted.register
    );
    connection.query(&sql).await.map_err(|source| GatewayError::SetUp { node, source })?;
    Ok(())
}
