//! Adopting a database that already holds tables as node 1.
//!
//! Owns: bringing node 1's schema to the other nodes with PostgreSQL's own `pg_dump`, and what the
//! adopted tables are registered as.
//! Never: moves a row. A table that holds rows keeps them on node 1 (kind `home`) until
//! `tutti_distribute` or `tutti_replicate` is called; an empty one is replicated like any new
//! table.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tokio::process::Command;
use tutti_configuration::{Config, SslMode};
use tutti_link::Endpoint;
use tutti_link::connection::NodeConnection;
use tutti_sql::catalog::NodeId;

use crate::catalog::{Answer, PlacementKind, Registration};
use crate::error::GatewayError;

/// What the nodes receive beyond the schema `tutti`.
#[derive(Debug, Default)]
pub(super) struct Adopted {
    /// SQL that creates the roles and objects of node 1, for the other nodes.
    pub(super) create: String,
    /// SQL that registers the tables, for every node, after the schema `tutti` is there.
    pub(super) register: String,
}

/// Reads the schema of node 1. `major`: its PostgreSQL version.
pub(super) async fn read_schema(
    home_endpoint: &Endpoint,
    config: &Config,
    home: &mut NodeConnection,
    major: u32,
) -> Result<Adopted, GatewayError> {
    let roles = read_roles(home).await?;
    let program = find_pg_dump(major).await.ok_or(GatewayError::NoDumpTool { major })?;
    let dump = run_pg_dump(home_endpoint, program).await?;
    let nodes: Vec<_> = config.nodes.iter().map(|node| NodeId(node.id)).collect();
    let registrations = choose_registrations(home).await?;
    let register: Vec<_> = registrations.iter().map(|table| table.sql(&nodes)).collect();
    Ok(Adopted { create: roles + &dump, register: register.join(";\n") })
}

/// SQL that creates the roles of node 1 where they are missing. Roles are not part of a database, so
/// `pg_dump` leaves them out, but its GRANTs and owners name them. Passwords are left out: clients
/// of the gateway authenticate against node 1.
async fn read_roles(home: &mut NodeConnection) -> Result<String, GatewayError> {
    const SQL: &str = "SELECT coalesce(string_agg(format(
    'DO $tutti$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = %L) THEN '
    'CREATE ROLE %I %s %s %s %s %s %s; END IF; END $tutti$;', rolname, rolname,
    CASE WHEN rolsuper THEN 'SUPERUSER' ELSE 'NOSUPERUSER' END,
    CASE WHEN rolinherit THEN 'INHERIT' ELSE 'NOINHERIT' END,
    CASE WHEN rolcreaterole THEN 'CREATEROLE' ELSE 'NOCREATEROLE' END,
    CASE WHEN rolcreatedb THEN 'CREATEDB' ELSE 'NOCREATEDB' END,
    CASE WHEN rolcanlogin THEN 'LOGIN' ELSE 'NOLOGIN' END,
    CASE WHEN rolbypassrls THEN 'BYPASSRLS' ELSE 'NOBYPASSRLS' END), E'\\n'), '')
FROM pg_roles WHERE rolname !~ '^pg_';
SELECT coalesce(string_agg(format('GRANT %I TO %I;', r.rolname, m.rolname), E'\\n'), '')
FROM pg_auth_members g JOIN pg_roles r ON r.oid = g.roleid JOIN pg_roles m ON m.oid = g.member
WHERE m.rolname !~ '^pg_'";
    let results = home.query(SQL).await?;
    let node = home.node();
    let mut sql = String::new();
    for rows in &results {
        sql.push_str(Answer { node, what: "roles", rows }.text(0, 0)?);
        sql.push('\n');
    }
    Ok(sql)
}

/// A `pg_dump` that can read a server of version `major`, from PATH or where distributions put it.
async fn find_pg_dump(major: u32) -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    for version in (major..major + 10).rev() {
        folders.push(format!("/usr/lib/postgresql/{version}/bin").into());
        folders.push(format!("/usr/pgsql-{version}/bin").into());
        folders.push(format!("/opt/homebrew/opt/postgresql@{version}/bin").into());
    }
    folders.push("/usr/local/pgsql/bin".into());
    for folder in folders {
        let program = folder.join("pg_dump");
        let Ok(output) = Command::new(&program).arg("--version").output().await else { continue };
        // pg_dump (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_whitespace().nth(2).and_then(|word| word.split('.').next());
        let found: u32 = version.and_then(|digits| digits.parse().ok()).unwrap_or(0);
        if major <= found {
            return Some(program);
        }
    }
    None
}

async fn run_pg_dump(endpoint: &Endpoint, program: PathBuf) -> Result<String, GatewayError> {
    let (home, address) = (endpoint.config(), endpoint.address());
    let mut command = Command::new(&program);
    command
        .args(["--schema-only", "--exclude-schema=tutti", "--encoding=UTF8", "--no-password"])
        .args(["--no-publications", "--no-subscriptions", "--no-tablespaces"])
        .args(["--host", &address.host, "--port", &address.port.to_string()])
        .args(["--username", &home.user, "--dbname", endpoint.database()])
        .kill_on_drop(true);
    if let Some(password) = &home.password {
        command.env("PGPASSWORD", password.reveal());
    }
    let sslmode = match home.tls.mode(&address) {
        SslMode::Disable => "disable",
        SslMode::Require => "require",
        SslMode::VerifyFull => "verify-full",
    };
    command.env("PGSSLMODE", sslmode);
    let files = [
        ("PGSSLROOTCERT", &home.tls.sslrootcert),
        ("PGSSLCERT", &home.tls.sslcert),
        ("PGSSLKEY", &home.tls.sslkey),
    ];
    command.envs(files.into_iter().filter_map(|(name, file)| Some((name, file.as_ref()?))));
    let output = match command.output().await {
        Ok(output) => output,
        Err(source) => return Err(GatewayError::RunDump { program, source }),
    };
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(GatewayError::Dump { program, message });
    }
    Ok(without_meta_commands(&String::from_utf8_lossy(&output.stdout)))
}

/// Newer versions of `pg_dump` frame their output with psql's `\restrict` and `\unrestrict`.
fn without_meta_commands(dump: &str) -> String {
    let is_sql = |line: &&str| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict");
    dump.lines().filter(is_sql).collect::<Vec<_>>().join("\n")
}

/// Empty tables become replicated, tables with rows stay at home; and so do those that the rules
/// of [`crate::catalog::verify()`] then tie to them: whole inheritance trees, and tables that refer
/// to one by a foreign key.
async fn choose_registrations(
    home: &mut NodeConnection,
) -> Result<Vec<Registration>, GatewayError> {
    const TABLES: &str = "SELECT c.oid, n.nspname, c.relname, format('%I.%I', n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
    AND n.nspname <> ALL ('{pg_catalog,information_schema,pg_toast,tutti}')
ORDER BY c.oid";
    // The first stays at home if the second does.
    const TIES: &str = "SELECT inhrelid, inhparent FROM pg_inherits
UNION SELECT inhparent, inhrelid FROM pg_inherits
UNION SELECT conrelid, confrelid FROM pg_constraint WHERE contype = 'f'";
    let tables = home.rows(TABLES).await?;
    let ties = home.rows(TIES).await?;
    let node = home.node();
    let tables = Answer { node, what: "tables to adopt", rows: &tables };
    let ties = Answer { node, what: "foreign keys", rows: &ties };

    let mut at_home: BTreeSet<u32> = BTreeSet::new();
    for row in 0..tables.len() {
        let sql = format!("SELECT EXISTS (SELECT FROM {})", tables.text(row, 3)?);
        let rows = home.rows(&sql).await?;
        if (Answer { node, what: "whether a table has rows", rows: &rows }).boolean(0, 0)? {
            at_home.insert(tables.number(row, 0)?);
        }
    }
    loop {
        let before = at_home.len();
        for row in 0..ties.len() {
            if at_home.contains(&ties.number(row, 1)?) {
                at_home.insert(ties.number(row, 0)?);
            }
        }
        if at_home.len() == before {
            break;
        }
    }
    let registration = |row| {
        let stays = at_home.contains(&tables.number(row, 0)?);
        Ok(Registration {
            schema: tables.text(row, 1)?.to_owned(),
            table: tables.text(row, 2)?.to_owned(),
            placement: if stays { PlacementKind::Home } else { PlacementKind::Replicated },
        })
    };
    (0..tables.len()).map(registration).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psql_commands_are_taken_out_of_a_dump() {
        let dump = "--\n\\restrict abc\nSET x = 1;\n\\unrestrict abc\n";
        assert_eq!(without_meta_commands(dump), "--\nSET x = 1;");
    }
}
