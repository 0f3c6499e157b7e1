//! What the role and the database gave a session at its login (`ALTER ROLE … SET`, `ALTER DATABASE … SET`),
//! which it keeps when others change them.
//!
//! Owns: keeping it, and finding which of it newly opened connections would lack.
//! Never: sets anything: [`super::settings::Settings::hold`] makes it part of what connections are
//! brought to.
//!
//! As long as that is not changed, a session costs nothing here: servers give each connection what they gave
//! the session. After a change ([`tutti_link::pool::Pool::renew`]) the differences are set explicitly on
//! every connection that the session checks out, and RESET goes back to them.

use tutti_sql::catalog::{NodeId, quote_literal};

use super::settings::is_placeholder;
use crate::client::failure::Failure;
use crate::registry::role::settings_of;
use crate::transaction::TransactionContext;

impl TransactionContext {
    /// Whether connections that are opened now are known to begin as this session did, except for what
    /// it holds.
    pub(crate) fn begins_as_others_do(&self) -> bool {
        self.begun_with.renewal == self.registry.pool.renewal()
    }

    /// Finds out what the session has to hold, if what sessions begin with has changed.
    pub(crate) async fn hold_what_it_began_with(&mut self) -> Result<(), Failure> {
        if self.begins_as_others_do() {
            return Ok(());
        }
        let renewal = self.registry.pool.renewal();
        let now = settings_of(&self.registry, self.role).await?;
        let then = &self.begun_with.settings;
        let has_changed = |name: &&String| now.get(*name) != then.get(*name);
        let changed: Vec<_> = now.keys().chain(then.keys()).filter(has_changed).cloned().collect();
        let held = match changed.is_empty() {
            true => Vec::new(),
            false => self.values_then(changed).await?,
        };
        self.settings.hold(held);
        self.begun_with.renewal = renewal;
        Ok(())
    }

    /// Values of these settings at the session's login, among those that a session may set.
    ///
    /// What neither role nor database set then is the server's default: a connection of the gateway's own
    /// knows it, except for what that connection itself is given.
    async fn values_then(&self, names: Vec<String>) -> Result<Vec<(String, String)>, Failure> {
        let list: Vec<_> = names.iter().map(|name| quote_literal(name)).collect();
        let sql = format!(
            "SELECT pg_catalog.lower(s.name), s.context,
                 CASE WHEN s.source IN ('default', 'configuration file', 'command line', 'environment variable')
                     THEN s.reset_val
                     ELSE coalesce((SELECT f.setting FROM pg_catalog.pg_file_settings AS f
                         WHERE pg_catalog.lower(f.name) = pg_catalog.lower(s.name) AND f.applied
                         ORDER BY f.seqno DESC LIMIT 1), s.boot_val) END,
                 (SELECT r.rolsuper FROM pg_catalog.pg_authid AS r WHERE r.oid = {role})
             FROM pg_catalog.pg_settings AS s
             WHERE pg_catalog.lower(s.name) = ANY (ARRAY[{list}]::pg_catalog.text[])",
            role = self.role,
            list = list.join(", "),
        );
        let registry = &self.registry;
        let mut connection = registry.cluster.connections.checkout(NodeId::HOME).await?;
        let answer = connection.rows(&sql).await;
        registry.cluster.connections.release(connection);
        let rows = answer?;
        let value_then = |name: String| {
            let then = self.begun_with.settings.get(&name);
            let row = (0..rows.rows.len()).find(|row| rows.text(*row, 0) == Some(&*name));
            let value = match row {
                Some(row) => {
                    let is_superuser = rows.text(row, 3) == Some("t");
                    match rows.text(row, 1) {
                        Some("user") => (),
                        Some("superuser") if is_superuser => (),
                        // It cannot be set in a session.
                        _ => return None,
                    }
                    then.cloned().or_else(|| rows.text(row, 2).map(str::to_owned))?
                }
                None if is_placeholder(&name) => then.cloned().unwrap_or_default(),
                None => return None,
            };
            Some((name, value))
        };
        Ok(names.into_iter().filter_map(value_then).collect())
    }
}
