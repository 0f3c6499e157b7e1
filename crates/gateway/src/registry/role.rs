//! What node 1 says about the role that a client wants to log in as.
//!
//! Owns: the question, and reading its answer; what the role's sessions begin with, and when what was last said of it is believed.
//! Never: goes by that while node 1 is there (ALTER ROLE takes effect at the next login), nor by it alone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::time::timeout;
use tutti_link::connection::{NodeError, Rows};
use tutti_link::pool::RoleSettings;
use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_wire::error_fields::ErrorFields;
use zeroize::Zeroizing;

use crate::client::failure::Failure;
use crate::client::gate::Gate;
use crate::registry::Registry;
use crate::registry::known_roles::{Known, Role};

const HOME_IS_SILENT: &str = "the cluster's node 1 cannot be asked who may log in";

/// How long other nodes may take to say by which numbers they know a role. They do while commits over several nodes
/// wait.
const NUMBERS_PATIENCE: Duration = Duration::from_millis(300);
/// Until they are asked again where some lack the role.
const NUMBERS_PAUSE: Duration = Duration::from_secs(60);
/// The same where some have not answered that do now.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Longest name of a role, in bytes (NAMEDATALEN - 1).
const NAME_LEN_MAX: usize = 63;

/// Asks node 1. `None`: there is no such role.
///
/// While node 1 is away, another node is asked, which has the same roles, and a role is taken for one that node 1 has
/// told of before if it has the number there that it had then, and the same verifier: a name alone may have been given
/// to another.
pub(crate) async fn ask(
    registry: &Registry,
    gate: &Gate,
    name: &str,
    groups: bool,
) -> Result<Option<Role>, Failure> {
    let availability = &registry.cluster.availability;
    if !availability.is_there(NodeId::HOME)
        && let Some(known) = registry.known_roles.of(name)
        && let Some((&node, number)) =
            known.elsewhere.iter().find(|(node, _)| availability.is_open(**node))
    {
        let there = ask_node(registry, gate, name, groups, node).await?;
        let is_same =
            |there: &Role| Some(there.oid) == *number && there.verifier == known.role.verifier;
        let Some(there) = there.filter(is_same) else {
            return Err(ErrorFields::fatal("57P03", HOME_IS_SILENT)
                .with(b'D', "Another node has the role otherwise than it was last seen there.")
                .with(b'H', "Retrying is safe: nothing was done.")
                .into());
        };
        let expires = known.role.expires;
        let is_valid = there.is_valid && expires.is_none_or(|at| Instant::now() < at);
        return Ok(Some(Role { oid: known.role.oid, is_valid, ..there }));
    }
    let asked = ask_node(registry, gate, name, groups, NodeId::HOME).await?;
    let known = match &asked {
        Some(role) => Some(know(registry, name, role).await),
        None => None,
    };
    registry.known_roles.note(name, known);
    Ok(asked)
}

/// What is to be known of a role that node 1 has just told of.
async fn know(registry: &Registry, name: &str, role: &Role) -> Known {
    let before = registry.known_roles.of(name).filter(|known| known.role.oid == role.oid);
    let mut elsewhere = BTreeMap::new();
    if let Some(known) = before {
        let availability = &registry.cluster.availability;
        let catalog = registry.cluster.catalog();
        let may_say = |node: &NodeId| {
            *node != NodeId::HOME
                && !known.elsewhere.contains_key(node)
                && availability.is_open(*node)
        };
        let pause = match catalog.nodes.iter().any(may_say) {
            true => Some(RETRY_PAUSE),
            false => known.elsewhere.values().any(Option::is_none).then_some(NUMBERS_PAUSE),
        };
        if pause.is_none_or(|pause| known.at.elapsed() < pause) {
            return Known { role: role.clone(), ..known };
        }
        elsewhere = known.elsewhere;
    }
    match timeout(NUMBERS_PATIENCE, numbers(registry, name, role.oid)).await {
        Ok(Ok(Some(numbers))) => elsewhere.extend(numbers),
        // It is another's name by now.
        Ok(Ok(None)) => elsewhere.clear(),
        Ok(Err(_)) | Err(_) => (),
    }
    Known { role: role.clone(), elsewhere, at: Instant::now() }
}

/// The role's numbers on the other nodes that are open, as of a moment at which no change of roles is becoming visible.
/// `None` if it is another's name by now.
async fn numbers(
    registry: &Registry,
    name: &str,
    at_home: u32,
) -> Result<Option<BTreeMap<NodeId, Option<u32>>>, NodeError> {
    let cluster = &registry.cluster;
    let is_prompt =
        |node: &NodeId| cluster.availability.is_open(*node) && !cluster.availability.is_late(*node);
    let nodes: Vec<_> = cluster.catalog().nodes.iter().copied().filter(is_prompt).collect();
    let sql = format!(
        "SELECT r.oid FROM pg_catalog.pg_authid AS r WHERE r.rolname = {}::pg_catalog.name",
        quote_literal(name)
    );
    if !nodes.contains(&NodeId::HOME) {
        return Err(NodeError::Closed { node: NodeId::HOME, reason: None });
    }
    let _visit = cluster.enter_snapshot_room(&nodes).await?;
    let mut numbers = BTreeMap::new();
    for node in nodes {
        let asked = async {
            let mut connection = cluster.connections.checkout(node).await?;
            let rows = connection.rows(&sql).await?;
            cluster.connections.release(connection);
            Ok::<_, NodeError>(rows)
        };
        let rows = match asked.await {
            Ok(rows) => rows,
            Err(error) if node == NodeId::HOME => return Err(error),
            // What others say is as good without it.
            Err(_) => continue,
        };
        numbers.insert(node, rows.text(0, 0).and_then(|oid| oid.parse().ok()));
    }
    let is_its = numbers.remove(&NodeId::HOME) == Some(Some(at_home));
    Ok(is_its.then_some(numbers))
}

async fn ask_node(
    registry: &Registry,
    gate: &Gate,
    name: &str,
    groups: bool,
    node: NodeId,
) -> Result<Option<Role>, Failure> {
    // PostgreSQL would cut a longer name, and rules would then be about another one.
    if NAME_LEN_MAX < name.len() {
        return Ok(None);
    }
    // As in pg_hba.conf, superusers do not count as members of every role.
    let groups_sql = "WITH RECURSIVE of (role) AS (
             SELECT r.oid
             UNION SELECT m.roleid FROM pg_catalog.pg_auth_members AS m JOIN of ON m.member = of.role)
         SELECT pg_catalog.array_agg(g.rolname) FROM of JOIN pg_catalog.pg_authid AS g ON g.oid = of.role";
    let groups_sql = if groups { groups_sql } else { "SELECT NULL::pg_catalog.name[]" };
    let sql = format!(
        "SELECT r.rolsuper, r.rolcanlogin,
             r.rolvaliduntil IS NULL OR pg_catalog.now() < r.rolvaliduntil,
             r.rolconnlimit,
             pg_catalog.has_database_privilege(r.oid, pg_catalog.current_database(), 'CONNECT'),
             r.rolpassword, r.oid,
             CASE WHEN pg_catalog.isfinite(r.rolvaliduntil)
                 THEN pg_catalog.date_part('epoch', r.rolvaliduntil - pg_catalog.now()) END
         FROM pg_catalog.pg_authid AS r WHERE r.rolname = {literal}::pg_catalog.name;
         SELECT pg_catalog.unnest(groups) FROM (
             SELECT ({groups_sql}) AS groups
             FROM pg_catalog.pg_authid AS r WHERE r.rolname = {literal}::pg_catalog.name) AS found;
         {settings_sql}",
        literal = quote_literal(name),
        settings_sql = settings_sql(&format!(
            "(SELECT r.oid FROM pg_catalog.pg_authid AS r WHERE r.rolname = {}::pg_catalog.name)",
            quote_literal(name)
        )),
    );
    let turn = gate.lookups.acquire().await.expect("never closed");
    let lent = registry.cluster.connections.checkout(node).await;
    let mut connection = lent.map_err(without_address)?;
    let answer = connection.query(&sql).await;
    registry.cluster.connections.release(connection);
    drop(turn);
    let answer = answer.map_err(|error| match error {
        NodeError::Refused(_) => unreadable(error),
        error => without_address(error),
    })?;
    let role = answer.first().filter(|rows| !rows.rows.is_empty());
    Ok(role.map(|rows| read(rows, answer.get(1), answer.get(2))))
}

/// What sessions of the role of this number would begin with now.
pub(crate) async fn settings_of(registry: &Registry, role: u32) -> Result<RoleSettings, Failure> {
    let mut connection = registry.cluster.connections.checkout(NodeId::HOME).await?;
    let answer = connection.rows(&settings_sql(&role.to_string())).await;
    registry.cluster.connections.release(connection);
    Ok(read_settings(&answer.map_err(unreadable)?))
}

/// Lines `name=value`; later ones win, as PostgreSQL's `process_settings` has it.
fn settings_sql(role: &str) -> String {
    format!(
        "SELECT line FROM pg_catalog.pg_db_role_setting AS s, pg_catalog.unnest(s.setconfig) AS line
         WHERE s.setrole IN (0, {role}) AND s.setdatabase IN (0, (
             SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()))
         ORDER BY s.setrole <> 0, s.setdatabase <> 0"
    )
}

fn read_settings(rows: &Rows) -> RoleSettings {
    let lines = (0..rows.rows.len()).filter_map(|row| rows.text(row, 0)?.split_once('='));
    lines.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect()
}

fn read(rows: &Rows, groups: Option<&Rows>, settings: Option<&Rows>) -> Role {
    let is = |column| rows.text(0, column) == Some("t");
    let limit = rows.text(0, 3).and_then(|limit| limit.parse().ok());
    let valid_s = rows.text(0, 7).and_then(|s| s.parse::<f64>().ok()).filter(|s| s.is_finite());
    let valid = valid_s.and_then(|s| Duration::try_from_secs_f64(s.max(0.0)).ok());
    let groups = groups.map_or_else(Vec::new, |groups| {
        (0..groups.rows.len()).filter_map(|row| groups.text(row, 0).map(str::to_owned)).collect()
    });
    Role {
        oid: rows.text(0, 6).and_then(|oid| oid.parse().ok()).unwrap_or_default(),
        is_superuser: is(0),
        may_login: is(1),
        is_valid: is(2),
        expires: valid.and_then(|valid| Instant::now().checked_add(valid)),
        limit,
        may_connect: is(4),
        verifier: rows.text(0, 5).map(|verifier| Zeroizing::new(verifier.to_owned())),
        groups,
        settings: settings.map(read_settings).unwrap_or_default(),
    }
}

/// The client is not authenticated yet and must not learn where nodes are.
fn without_address(error: NodeError) -> Failure {
    let sqlstate = error.to_fields().sqlstate().to_owned();
    tracing::warn!(%error, "a login cannot be looked at");
    ErrorFields::fatal(&sqlstate, HOME_IS_SILENT)
        .with(b'H', "Retrying is safe: nothing was done.")
        .into()
}

/// The gateway's own role must be allowed to read this.
fn unreadable(error: NodeError) -> Failure {
    let mut fields = error.to_fields();
    if fields.sqlstate() == "42501" {
        fields = fields.with(b'H', "The gateway's own role must be a superuser of the nodes.");
    }
    fields.into()
}
