//! What node 1 says about the role that a client wants to log in as.
//!
//! Owns: the question, and reading its answer; what the role's sessions begin with; and what was last said of each role,
//! for while node 1 is away.
//! Never: goes by that while node 1 is there (ALTER ROLE takes effect at the next login), nor by it alone.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use tutti_link::connection::{NodeError, Rows};
use tutti_link::pool::RoleSettings;
use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_wire::error_fields::ErrorFields;
use zeroize::Zeroizing;

use crate::client::failure::Failure;
use crate::client::gate::Gate;
use crate::registry::Registry;

const HOME_IS_SILENT: &str = "the cluster's node 1 cannot be asked who may log in";

/// Longest name of a role, in bytes (NAMEDATALEN - 1).
const NAME_LEN_MAX: usize = 63;

/// A role that exists. Its verifier is not printed.
#[derive(Clone)]
pub(crate) struct Role {
    /// Its number on node 1: names can be reused.
    pub(crate) oid: u32,
    pub(crate) is_superuser: bool,
    pub(crate) may_login: bool,
    /// Its password, if it has one, has not expired.
    pub(crate) is_valid: bool,
    /// Most sessions at a time.
    pub(crate) limit: Option<usize>,
    /// It has the privilege CONNECT on the cluster's database.
    pub(crate) may_connect: bool,
    /// `rolpassword`.
    pub(crate) verifier: Option<Zeroizing<String>>,
    /// Roles that it is a member of, itself included; empty unless asked for.
    pub(crate) groups: Vec<String>,
    /// What its sessions begin with.
    pub(crate) settings: RoleSettings,
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("oid", &self.oid).finish_non_exhaustive()
    }
}

/// What node 1 has said of roles that were looked up, by name.
#[derive(Debug, Default)]
pub(crate) struct KnownRoles(Mutex<HashMap<String, Role>>);

impl KnownRoles {
    fn note(&self, name: &str, role: Option<&Role>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match role {
            Some(role) => known.insert(name.to_owned(), role.clone()),
            None => known.remove(name),
        };
    }

    fn of(&self, name: &str) -> Option<Role> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// Asks node 1. `None`: there is no such role. While node 1 is away, a role that it has told of before is believed to
/// be as it was if another node, which has the same roles, still has it with the same verifier and rights to log in.
pub(crate) async fn ask(
    registry: &Registry,
    gate: &Gate,
    name: &str,
    groups: bool,
) -> Result<Option<Role>, Failure> {
    let availability = &registry.cluster.availability;
    if !availability.is_there(NodeId::HOME)
        && let Some(known) = registry.known_roles.of(name)
    {
        let nodes = registry.cluster.catalog().nodes.clone();
        if let Some(other) = nodes.into_iter().find(|node| availability.is_open(*node)) {
            return confirmed(registry, gate, name, known, other).await.map(Some);
        }
    }
    let asked = ask_home(registry, gate, name, groups).await?;
    registry.known_roles.note(name, asked.as_ref());
    Ok(asked)
}

/// The role as it was known, if `node` has it like that.
async fn confirmed(
    registry: &Registry,
    gate: &Gate,
    name: &str,
    known: Role,
    node: NodeId,
) -> Result<Role, Failure> {
    let sql = format!(
        "SELECT r.rolsuper, r.rolcanlogin,
             r.rolvaliduntil IS NULL OR pg_catalog.now() < r.rolvaliduntil, r.rolpassword
         FROM pg_catalog.pg_authid AS r WHERE r.rolname = {}::pg_catalog.name",
        quote_literal(name)
    );
    let turn = gate.lookups.acquire().await.expect("never closed");
    let lent = registry.cluster.connections.checkout(node).await;
    let mut connection = lent.map_err(without_address)?;
    let answer = connection.rows(&sql).await;
    registry.cluster.connections.release(connection);
    drop(turn);
    let rows = answer.map_err(without_address)?;
    let is = |column, flag| rows.text(0, column) == Some(if flag { "t" } else { "f" });
    let is_same = is(0, known.is_superuser)
        && is(1, known.may_login)
        && rows.text(0, 3) == known.verifier.as_ref().map(|verifier| verifier.as_str());
    if !is_same {
        return Err(ErrorFields::fatal("57P03", HOME_IS_SILENT)
            .with(b'D', "Another node has the role otherwise than it was last seen there.")
            .with(b'H', "Retrying is safe: nothing was done.")
            .into());
    }
    Ok(Role { is_valid: is(2, true), ..known })
}

async fn ask_home(
    registry: &Registry,
    gate: &Gate,
    name: &str,
    groups: bool,
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
             r.rolpassword, r.oid
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
    let lent = registry.cluster.connections.checkout(NodeId::HOME).await;
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
    let groups = groups.map_or_else(Vec::new, |groups| {
        (0..groups.rows.len()).filter_map(|row| groups.text(row, 0).map(str::to_owned)).collect()
    });
    Role {
        oid: rows.text(0, 6).and_then(|oid| oid.parse().ok()).unwrap_or_default(),
        is_superuser: is(0),
        may_login: is(1),
        is_valid: is(2),
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
