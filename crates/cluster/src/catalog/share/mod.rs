//! Bringing to the other nodes what a table needs that is no longer on node 1 alone.
//!
//! Owns: asking node 1 for definitions and creating them elsewhere, inside the client's
//! transaction. What is walked and written is in `definitions.sql`.
//! Never: moves a row, registers a placement, or changes what exists already.
//! Start reading at [`read_definitions`].

use tutti_link::connection::{NodeConnection, NodeError};
use tutti_link::seals::Seals;
use tutti_sql::catalog::quote_literal;

use super::Answer;
use crate::error::GatewayError;

/// What is wanted on other nodes too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wanted<'a> {
    /// These relations (OIDs on node 1), their partitions and children, and everything they need.
    Relations(&'a [u32]),
    /// Schemas, types, functions, operators, casts, as far as they can be there; and nothing else.
    Definitions,
    /// Those of these that the transaction has created itself: others may be dropping theirs.
    Own,
}

impl Wanted<'_> {
    /// Roles alone, which come with all of these.
    pub const ROLES: Self = Wanted::Relations(&[]);
}

/// How to create things, as node 1 describes it and [`make_definitions`] sends it to others.
#[derive(Debug)]
pub struct Definitions {
    /// With their verifiers, which is why they travel alone.
    roles: String,
    others: String,
}

/// Waits for other sessions that spread the first table, as part of the transaction that `home` is
/// in. False: a table is spread already.
pub async fn spread_first(home: &mut NodeConnection, seals: &Seals) -> Result<bool, GatewayError> {
    let seal = seals.seal(home, "spread first").await?;
    let rows = home.query_with("SELECT tutti.spread_first($1)", vec![Some(seal.into())]).await?;
    Answer { node: home.node(), what: "whether a table is spread", rows: &rows }.boolean(0, 0)
}

/// A text that changes whenever a change of what [`Wanted::Definitions`] brings is committed.
/// `own`: a connection of the gateway's own, which sees what is committed and nothing else.
pub async fn committed_definitions(own: &mut NodeConnection) -> Result<String, GatewayError> {
    const SQL: &str = "SELECT pg_catalog.md5(pg_catalog.string_agg(x, ',' ORDER BY x)) FROM (
    SELECT 'p ' || oid || ' ' || xmin AS x FROM pg_catalog.pg_proc WHERE oid >= 16384
    UNION ALL SELECT 't ' || t.oid || ' ' || t.xmin FROM pg_catalog.pg_type t
        LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
        WHERE t.oid >= 16384 AND t.typcategory <> 'A' AND coalesce(c.relkind, 'c') = 'c'
    UNION ALL SELECT 'a ' || a.attrelid || ' ' || a.attnum || ' ' || a.xmin FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid WHERE c.relkind = 'c'
    UNION ALL SELECT 'e ' || oid || ' ' || xmin FROM pg_catalog.pg_enum
    UNION ALL SELECT 'k ' || oid || ' ' || xmin FROM pg_catalog.pg_constraint WHERE contypid <> 0
    UNION ALL SELECT 'o ' || oid || ' ' || xmin FROM pg_catalog.pg_operator WHERE oid >= 16384
    UNION ALL SELECT 'c ' || oid || ' ' || xmin FROM pg_catalog.pg_cast WHERE oid >= 16384
    UNION ALL SELECT 'l ' || oid || ' ' || xmin FROM pg_catalog.pg_collation WHERE oid >= 16384
    UNION ALL SELECT 'x ' || oid || ' ' || xmin FROM pg_catalog.pg_extension
    UNION ALL SELECT 'tp ' || oid || ' ' || xmin FROM pg_catalog.pg_ts_parser WHERE oid >= 16384
    UNION ALL SELECT 'tt ' || oid || ' ' || xmin FROM pg_catalog.pg_ts_template WHERE oid >= 16384
    UNION ALL SELECT 'td ' || oid || ' ' || xmin FROM pg_catalog.pg_ts_dict WHERE oid >= 16384
    UNION ALL SELECT 'tc ' || oid || ' ' || xmin FROM pg_catalog.pg_ts_config WHERE oid >= 16384
    UNION ALL SELECT 'tm ' || mapcfg || ' ' || maptokentype || ' ' || mapseqno || ' ' || xmin
        FROM pg_catalog.pg_ts_config_map WHERE mapcfg >= 16384
    UNION ALL SELECT 'of ' || oid || ' ' || xmin FROM pg_catalog.pg_opfamily WHERE oid >= 16384
    UNION ALL SELECT 'oc ' || oid || ' ' || xmin FROM pg_catalog.pg_opclass WHERE oid >= 16384
    UNION ALL SELECT 'n ' || oid || ' ' || xmin FROM pg_catalog.pg_namespace
        WHERE nspname !~ '^pg_(toast_)?temp_'
    UNION ALL SELECT 'd ' || oid || ' ' || xmin FROM pg_catalog.pg_database
        WHERE datname = pg_catalog.current_database()
    UNION ALL SELECT 'D ' || oid || ' ' || xmin FROM pg_catalog.pg_default_acl
    UNION ALL SELECT 'r ' || oid || ' ' || xmin FROM pg_catalog.pg_authid
    UNION ALL SELECT 'm ' || roleid || ' ' || member || ' ' || xmin FROM pg_catalog.pg_auth_members
    UNION ALL SELECT 's ' || setrole || ' ' || setdatabase || ' ' || xmin
        FROM pg_catalog.pg_db_role_setting) AS definitions (x)";
    let rows = own.rows(SQL).await?;
    let answer = Answer { node: own.node(), what: "committed definitions", rows: &rows };
    Ok(answer.text(0, 0)?.to_owned())
}

/// Whether `other` lacks a role that node 1 has. Over connections of the gateway's own.
pub async fn lacks_a_role(
    home: &mut NodeConnection,
    other: &mut NodeConnection,
) -> Result<bool, GatewayError> {
    const NAMES: &str =
        "SELECT pg_catalog.array_agg(rolname)::pg_catalog.text FROM pg_catalog.pg_roles";
    let rows = home.rows(NAMES).await?;
    let answer = Answer { node: home.node(), what: "its roles", rows: &rows };
    let names = quote_literal(answer.text(0, 0)?);
    let sql = format!(
        "SELECT EXISTS (SELECT FROM pg_catalog.unnest({names}::pg_catalog.name[]) AS wanted (name) \
         WHERE name NOT IN (SELECT rolname FROM pg_catalog.pg_roles))"
    );
    let rows = other.rows(&sql).await?;
    Answer { node: other.node(), what: "its roles", rows: &rows }.boolean(0, 0)
}

/// Reads from node 1, as the transaction that `home` is in sees it, how to create the wanted
/// things.
pub async fn read_definitions(
    home: &mut NodeConnection,
    wanted: Wanted<'_>,
    seals: &Seals,
) -> Result<Definitions, GatewayError> {
    let (roots, everything) = match wanted {
        Wanted::Relations(relations) => {
            (relations.iter().map(u32::to_string).collect::<Vec<_>>().join(","), "false")
        }
        Wanted::Definitions => (String::new(), "true"),
        Wanted::Own => (String::new(), "NULL"),
    };
    let seal = seals.seal(home, &format!("definitions {{{roots}}} {everything}")).await?;
    let sql =
        format!("SELECT roles, others FROM tutti.definitions('{{{roots}}}', {everything}, $1)");
    let rows = home.query_with(&sql, vec![Some(seal.into())]).await?;
    let answer = Answer { node: home.node(), what: "definitions", rows: &rows };
    Ok(Definitions { roles: answer.text(0, 0)?.to_owned(), others: answer.text(0, 1)?.to_owned() })
}

/// Whether tables that other nodes have may need what these nodes lack, after a change to them on
/// node 1.
pub async fn need_more(home: &mut NodeConnection, relations: &[u32]) -> Result<bool, GatewayError> {
    let relations: Vec<_> = relations.iter().map(u32::to_string).collect();
    let sql = format!("SELECT tutti.need_more('{{{}}}')", relations.join(","));
    let rows = home.rows(&sql).await?;
    Answer { node: home.node(), what: "what tables need", rows: &rows }.boolean(0, 0)
}

/// Creates on another node what does not exist there yet, inside the transaction that is open there.
/// Returns whether anything but tables was missing.
///
/// Errors: the node's; 0A000 with the name of what cannot be created there, if `wanted` are
/// relations.
pub async fn make_definitions(
    other: &mut NodeConnection,
    definitions: &Definitions,
    wanted: Wanted<'_>,
    seals: &Seals,
) -> Result<bool, NodeError> {
    let more = make(other, &definitions.roles, false, seals).await?;
    // User-defined code may run here, and see what its statement was given.
    let whatever_can_be = !matches!(wanted, Wanted::Relations(_));
    Ok(make(other, &definitions.others, whatever_can_be, seals).await? || more)
}

async fn make(
    other: &mut NodeConnection,
    definitions: &str,
    whatever_can_be: bool,
    seals: &Seals,
) -> Result<bool, NodeError> {
    let message = format!("make {} {definitions}", if whatever_can_be { "t" } else { "f" });
    let seal = seals.seal(other, &message).await?;
    let sql = format!("SELECT tutti.make_definitions($1, {whatever_can_be}, $2)");
    let values = [definitions.to_owned(), seal].map(|value| Some(value.into()));
    let rows = other.query_with(&sql, values.into()).await?;
    Ok(rows.text(0, 0) != Some("f"))
}

/// Code that sees this table (its OID on node 1) and would no longer see it, or only a part of it,
/// once it is on several nodes; in words, with names.
pub async fn objections(
    home: &mut NodeConnection,
    relation: u32,
) -> Result<Vec<String>, GatewayError> {
    let rows = home.rows(&format!("SELECT tutti.objections({relation})")).await?;
    let answer = Answer { node: home.node(), what: "what speaks against it", rows: &rows };
    (0..answer.len()).map(|row| Ok(answer.text(row, 0)?.to_owned())).collect()
}
