//! How a workload's tables come to be spread on an endpoint.
//!
//! Owns: the words that Tutti and Citus have for it. Never: runs a statement but to ask which of them is there.
//! Start reading at [`Dialect`].

use super::session::{Failure, Session};

/// What an endpoint is told of each table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Dialect {
    /// `DISTRIBUTE BY` at the end of CREATE TABLE.
    #[default]
    Tutti,
    /// `create_distributed_table` after it.
    Citus,
    /// Nothing: one server, or a proxy whose own configuration shards.
    Plain,
}

impl Dialect {
    /// As the endpoint says of itself.
    ///
    /// Errors: it does not answer.
    pub async fn guess<S: Session>(session: &mut S) -> Result<Self, Failure> {
        match session.query("SELECT tutti_tables()").await {
            Ok(_) => return Ok(Self::Tutti),
            Err(lost @ Failure::Lost { .. }) => return Err(lost),
            Err(Failure::Error { .. }) => (),
        }
        let citus = session.query("SELECT FROM pg_extension WHERE extname = 'citus'").await?;
        Ok(if citus.is_empty() { Self::Plain } else { Self::Citus })
    }

    /// The statements that make a table whose rows are where the hash of `key` says. `columns`: what is between
    /// the brackets of CREATE TABLE.
    pub fn by_hash(self, table: &str, columns: &str, key: &str) -> Vec<String> {
        let create = format!("CREATE TABLE {table} ({columns})");
        match self {
            Self::Tutti => vec![format!("{create} DISTRIBUTE BY HASH ({key})")],
            Self::Citus => {
                vec![create, format!("SELECT create_distributed_table('{table}', '{key}')")]
            }
            Self::Plain => vec![create],
        }
    }

    /// The statements that make a table of which every server has all rows.
    pub fn replicated(self, table: &str, columns: &str) -> Vec<String> {
        let create = format!("CREATE TABLE {table} ({columns})");
        match self {
            Self::Tutti => vec![format!("{create} DISTRIBUTE BY REPLICATED")],
            Self::Citus => vec![create, format!("SELECT create_reference_table('{table}')")],
            Self::Plain => vec![create],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tutti_and_citus_are_told() {
        let of = |dialect: Dialect| dialect.by_hash("t", "id bigint PRIMARY KEY", "id").join("; ");
        let create = "CREATE TABLE t (id bigint PRIMARY KEY)";
        assert_eq!(of(Dialect::Plain), create);
        assert_eq!(of(Dialect::Tutti), format!("{create} DISTRIBUTE BY HASH (id)"));
        assert_eq!(
            of(Dialect::Citus),
            format!("{create}; SELECT create_distributed_table('t', 'id')")
        );
        let all = Dialect::Tutti.replicated("t", "id bigint PRIMARY KEY");
        assert_eq!(all, [format!("{create} DISTRIBUTE BY REPLICATED")]);
    }
}
