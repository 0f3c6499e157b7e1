//! Row security policies: what their conditions may refer to.
//!
//! Owns: the rule that a condition must say the same on every node that has rows of its table.
//! Never: reads a condition; what it refers to is asked of the server, and what functions reach is
//! `functions`' business.
//! Start reading at [`check_policies`].
//!
//! Each node checks policies by itself. A condition that looks into a distributed table would be
//! asked of the node's share of it: rows could be kept back, or shown (`NOT EXISTS (SELECT … FROM
//! banned …)`) that nobody may see.

use tutti_sql::catalog::{Placement, RelationKind};
use tutti_sql::refusal::Refusal;

use super::functions::{Taint, Taints};
use super::load::{VIEW_USES, functions};
use super::rows::Answer;
use crate::error::GatewayError;
use crate::node::{NodeConnection, Rows};

/// Policies with what they refer to beyond their own table.
pub(super) const POLICIES: &str =
    "SELECT p.polname, c.relname, coalesce(placed.kind, 'home'), d.refobjid
FROM pg_catalog.pg_policy p
JOIN pg_catalog.pg_class c ON c.oid = p.polrelid
LEFT JOIN tutti.placement placed ON placed.relation = c.oid
JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass
    AND d.objid = p.oid AND d.refobjid <> p.polrelid
    AND d.refclassid IN ('pg_catalog.pg_class'::pg_catalog.regclass,
        'pg_catalog.pg_proc'::pg_catalog.regclass)
ORDER BY c.relname, p.polname;";

const RELATIONS: &str = "SELECT c.oid, c.relname, c.relkind, coalesce(p.kind, 'home')
FROM pg_catalog.pg_class c LEFT JOIN tutti.placement p ON p.relation = c.oid
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND c.oid >= 16384;";

/// Refuses the first policy that cannot be checked where its table's rows are. `policies` is the
/// answer to [`POLICIES`].
pub(super) async fn check_policies(
    home: &mut NodeConnection,
    policies: &Rows,
) -> Result<(), GatewayError> {
    if policies.rows.is_empty() {
        return Ok(());
    }
    let taints = read_taints(home).await?;
    let answer = Answer { node: home.node(), what: "row security policies", rows: policies };
    for row in 0..answer.len() {
        let is_home = answer.text(row, 2)? == "home";
        let why = match taints.of(answer.number(row, 3)?) {
            Taint::None => continue,
            Taint::Home if is_home => continue,
            Taint::Home => "It refers to what only node 1 has; the table's rows are elsewhere too.",
            Taint::Cluster => {
                "It refers to a distributed table, perhaps by a view or a function: each node would \
                 look into its own share only."
            }
        };
        let (policy, table) = (answer.text(row, 0)?, answer.text(row, 1)?);
        return Err(Refusal::unsupported(
            format!("policy \"{policy}\" of table \"{table}\" cannot be enforced"),
            why,
            "Make the tables that the condition refers to REPLICATED.",
        )
        .into());
    }
    Ok(())
}

async fn read_taints(home: &mut NodeConnection) -> Result<Taints, GatewayError> {
    let sql = [RELATIONS, VIEW_USES, &functions()].join("\n");
    let node = home.node();
    let results: [Rows; 3] = home
        .query(&sql)
        .await?
        .try_into()
        .map_err(|_| GatewayError::Unreadable { node, what: "what policies refer to" })?;
    let answer = |rows| Answer { node, what: "what policies refer to", rows };
    let [relations, uses, functions] = results.each_ref().map(answer);
    let mut taints = Taints::new();
    for row in 0..relations.len() {
        let (kind, every_node) = match relations.text(row, 2)? {
            "v" => (RelationKind::View { definition: String::new() }, false),
            "m" => (RelationKind::MaterializedView, true),
            _ => (RelationKind::Table, false),
        };
        let placement = match relations.text(row, 3)? {
            "replicated" => Placement::Replicated,
            _ if every_node => Placement::Replicated,
            "home" => Placement::Home,
            // That no node has all rows is what matters here.
            _ => Placement::RoundRobin,
        };
        taints.add_relation(relations.number(row, 0)?, relations.text(row, 1)?, &kind, &placement);
    }
    for row in 0..uses.len() {
        taints.add_use(uses.number(row, 0)?, uses.number(row, 1)?);
    }
    for row in 0..functions.len() {
        let (oid, name) = (functions.number(row, 0)?, functions.text(row, 2)?);
        taints.add_function(oid, name, functions.optional(row, 6));
    }
    taints.spread();
    Ok(taints)
}
