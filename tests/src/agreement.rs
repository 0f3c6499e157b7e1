//! What must hold between the nodes of a cluster, whatever clients have done to it.
//!
//! Owns: the questions, asked of the nodes themselves: equal schemas, equal registrations, equal
//! copies of replicated tables, each hashed row on the node of its bucket, nothing left prepared or
//! open. Never: asks the gateway.
//! Start reading at [`disagreements`].

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use tutti_sql::hash::KeyType;

use crate::client::{Client, Endpoint};

/// How long a session may take to end its transactions after its client has left.
const END_LIMIT: Duration = Duration::from_secs(3);

/// Relations with their columns, constraints and indexes, as far as names say.
const SCHEMA: &str = "
    SELECT c.oid::regclass::text || ' ' || c.relkind::text || ' ' || coalesce((
        SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull::text
                          || ' ' || coalesce(pg_get_expr(adbin, adrelid), ''), ', ' ORDER BY attnum)
        FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped), '')
        || coalesce((SELECT string_agg(pg_get_constraintdef(k.oid), ', ' ORDER BY conname)
                     FROM pg_constraint k WHERE conrelid = c.oid), '')
    FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'tutti') ORDER BY 1";

/// Registrations, by name. Of a table that is on node 1 alone other nodes need not know.
const PLACEMENTS: &str = "
    SELECT relation::regclass::text || ' ' || kind || ' ' || coalesce(attname, '') || ' '
           || coalesce(map::text, '')
    FROM tutti.placement LEFT JOIN pg_attribute ON attrelid = relation AND attnum = key_attnum
    WHERE kind <> 'home' ORDER BY 1";

/// Backends of clients in an open transaction, and prepared transactions. A gateway keeps its lock in one as
/// long as it serves.
const LEFT_OPEN: &str = "
    SELECT 'prepared ' || gid FROM pg_prepared_xacts
    UNION ALL
    SELECT 'open: ' || query FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
          AND state LIKE 'idle in transaction%'
          AND NOT EXISTS (SELECT FROM pg_locks l
              WHERE l.pid = pg_stat_activity.pid AND l.relation = to_regclass('tutti.serving'))";

/// What of node 1's schema the other nodes have.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Others {
    /// All of it.
    #[default]
    HaveAll,
    /// What is spread, and what that needs.
    HaveWhatIsSpread,
}

/// Says in which ways the nodes do not agree, if all of them have the whole schema; empty if they do. No client may be at work meanwhile.
///
/// Errors: a node cannot be asked.
pub fn disagreements(nodes: &[Endpoint]) -> Result<Vec<String>> {
    disagreements_where(nodes, Others::HaveAll)
}

/// The same, where the other nodes have all of the schema or not.
pub fn disagreements_where(nodes: &[Endpoint], others: Others) -> Result<Vec<String>> {
    let mut clients = nodes.iter().map(Client::connect).collect::<Result<Vec<_>>>()?;
    let mut found = Vec::new();
    compare(&mut clients, "schema", SCHEMA, others, &mut found)?;
    compare(&mut clients, "placements", PLACEMENTS, Others::HaveAll, &mut found)?;
    compare_copies(&mut clients, &mut found)?;
    for (index, client) in clients.iter_mut().enumerate() {
        let node = index + 1;
        for stray in strays(client, node)? {
            found.push(format!("node {node}: {stray}"));
        }
        for left in left_open(client)? {
            found.push(format!("node {node}: {left}"));
        }
    }
    Ok(found)
}

/// Says which copies of replicated tables are not equal; nothing while a transaction is prepared
/// somewhere, for what it has written is on some nodes only.
///
/// Errors: a node cannot be asked.
pub fn differing_copies(nodes: &[Endpoint]) -> Result<Vec<String>> {
    let mut clients = nodes.iter().map(Client::connect).collect::<Result<Vec<_>>>()?;
    let mut found = Vec::new();
    for client in &mut clients {
        if client.value("SELECT count(*) FROM pg_prepared_xacts")? != "0" {
            return Ok(found);
        }
    }
    compare_copies(&mut clients, &mut found)?;
    Ok(found)
}

fn compare_copies(clients: &mut [Client], found: &mut Vec<String>) -> Result<()> {
    let Some(home) = clients.first_mut() else { return Ok(()) };
    let replicated = home.query(
        "SELECT relation::regclass::text FROM tutti.placement JOIN pg_class c ON c.oid = relation \
         WHERE kind = 'replicated' AND relkind IN ('r', 'p') ORDER BY 1",
    )?;
    for table in replicated.into_iter().flatten().flatten() {
        let row = "ROW(t.*)::text";
        let rows = format!("SELECT {row} FROM {table} t ORDER BY {row} COLLATE \"C\"");
        let what = format!("replicated table {table}");
        compare(clients, &what, &rows, Others::HaveAll, found)?;
    }
    Ok(())
}

/// What is still prepared or open after [`END_LIMIT`]: a session that has just been left may need a
/// moment to end.
fn left_open(client: &mut Client) -> Result<Vec<String>> {
    let deadline = Instant::now() + END_LIMIT;
    loop {
        let left: Vec<String> = client.query(LEFT_OPEN)?.into_iter().flatten().flatten().collect();
        if left.is_empty() || Instant::now() > deadline {
            return Ok(left);
        }
        sleep(Duration::from_millis(50));
    }
}

/// Asks all nodes the same; every answer must be node 1's, or a part of it.
fn compare(
    clients: &mut [Client],
    what: &str,
    question: &str,
    others: Others,
    found: &mut Vec<String>,
) -> Result<()> {
    let mut first = None;
    for (index, client) in clients.iter_mut().enumerate() {
        let rows =
            client.query(question).with_context(|| format!("{what} on node {}", index + 1))?;
        let Some(expected) = &first else {
            first = Some(rows);
            continue;
        };
        let agrees = match others {
            Others::HaveAll => rows == *expected,
            Others::HaveWhatIsSpread => rows.iter().all(|row| expected.contains(row)),
        };
        if !agrees {
            let example = rows
                .iter()
                .find(|row| !expected.contains(row))
                .or_else(|| expected.iter().find(|row| !rows.contains(row)));
            found.push(format!(
                "{what}: node {} has {} rows, node 1 {}, for example {example:?} on one only",
                index + 1,
                rows.len(),
                expected.len()
            ));
        }
    }
    Ok(())
}

/// Rows of tables distributed by hash or range that are on a node which is not their bucket's. The server
/// reckons the buckets, by its own hash functions, or its own `width_bucket`.
fn strays(client: &mut Client, node: usize) -> Result<Vec<String>> {
    let tables = client.query(
        "SELECT relation::regclass::text, quote_ident(attname), map::text, \
                (CASE typtype WHEN 'd' THEN typbasetype ELSE t.oid END)::text, m.splits::text, \
                format_type(t.oid, -1) \
         FROM tutti.placement JOIN pg_class c ON c.oid = relation AND relkind = 'r' \
         JOIN pg_attribute ON attrelid = relation AND attnum = key_attnum \
         JOIN pg_type t ON t.oid = atttypid JOIN tutti.map m ON m.id = map WHERE kind = 'hash'",
    )?;
    let mut found = Vec::new();
    for table in tables {
        let [Some(name), Some(key), Some(map), Some(type_oid), splits, Some(type_name)] =
            table.as_slice()
        else {
            found.push(format!("a placement without its key: {table:?}"));
            continue;
        };
        let key_type = KeyType::from_oid(type_oid.parse()?)
            .with_context(|| format!("{name} is distributed by a type with OID {type_oid}"))?;
        let key = format!("{name}.{key}");
        let bucket = match splits {
            None => key_type.sql_hash_bucket(&key),
            Some(splits) => {
                let collation = if key_type.family() == "text" { " COLLATE \"C\"" } else { "" };
                let splits = splits.replace('\'', "''");
                format!("coalesce(width_bucket({key}{collation}, '{splits}'::{type_name}[]), 0)")
            }
        };
        let count = client.value(&format!(
            "SELECT count(*) FROM {name} JOIN tutti.bucket b ON b.map = {map} \
             AND b.bucket = {bucket} AND b.node <> {node}"
        ))?;
        if count != "0" {
            found.push(format!("{count} rows of {name} belong to other nodes"));
        }
    }
    Ok(found)
}
