//! What node 1 knows of an application: its tables, how large they are, and the statements that it sends.
//!
//! Owns: asking for that. Never: judges it (`tutti_sql::advice` does), or changes anything.
//! Start reading at [`workload`].

use std::collections::HashMap;

use tutti_configuration::Config;
use tutti_link::Endpoints;
use tutti_link::connection::{Credentials, NodeConnection};
use tutti_sql::advice::{Asked, Reference, TableFacts};
use tutti_sql::catalog::{Catalog, NameScope, NodeId, Relation, quote_identifier};

use crate::Boxed;
use crate::catalog::{self, Answer};
use crate::error::GatewayError;
use crate::setup::check_identity;

/// So many statements, those that took most time, are looked at.
const STATEMENTS_MAX: usize = 500;

/// What there is to go by.
#[derive(Debug)]
pub struct Workload {
    /// All tables, as they are now.
    pub catalog: Catalog,
    /// How a session of the gateway's role sees names.
    pub scope: NameScope,
    /// By OID on node 1.
    pub facts: HashMap<u32, TableFacts>,
    /// What `pg_stat_statements` has counted; `None` without it.
    pub asked: Option<Vec<Asked>>,
}

/// Asks node 1.
///
/// Errors: it does not answer, or is none of the cluster's.
///
/// A box, so that not every calling program compiles it again.
pub fn workload(config: &Config) -> Boxed<'_, Result<Workload, GatewayError>> {
    Box::pin(ask(config))
}

async fn ask(config: &Config) -> Result<Workload, GatewayError> {
    let endpoints = Endpoints::new(config);
    let home = endpoints.iter().find(|endpoint| endpoint.node() == NodeId::HOME);
    let home = home.expect("a cluster has a node 1");
    let settings = [("application_name", "tutti advise"), ("client_encoding", "UTF8")];
    let own = home.config();
    let mut connection =
        NodeConnection::open(home, &own.user, &Credentials::of_gateway(own), &settings).await?;
    check_identity(&mut connection, config, None).await?;
    let catalog = catalog::load(&mut connection).await?;
    let rows = connection
        .rows("SELECT pg_catalog.unnest(pg_catalog.current_schemas(true))::pg_catalog.text")
        .await?;
    let answer = Answer { node: NodeId::HOME, what: "its search path", rows: &rows };
    let schemas = (0..answer.len()).map(|row| answer.text(row, 0).map(str::to_owned));
    let scope =
        NameScope { search_path: schemas.collect::<Result<_, _>>()?, ..NameScope::default() };
    let facts = facts(&mut connection, &catalog).await?;
    let asked = asked(&mut connection).await?;
    connection.close();
    Ok(Workload { catalog, scope, facts, asked })
}

/// Sizes, unique indexes and foreign keys.
async fn facts(
    connection: &mut NodeConnection,
    catalog: &Catalog,
) -> Result<HashMap<u32, TableFacts>, GatewayError> {
    let relations = catalog.relations.values().flat_map(|all| all.values());
    let by_oid: HashMap<u32, &Relation> =
        relations.map(|relation| (relation.oid, &**relation)).collect();
    let places = |oid: u32, names: &str| -> Vec<usize> {
        let relation = by_oid.get(&oid);
        let place = |name: &str| relation.and_then(|relation| relation.column(name));
        names.split('\n').filter_map(place).collect()
    };
    let rows = connection
        .rows(
            "SELECT c.oid, CASE WHEN 0 <= c.reltuples THEN c.reltuples::pg_catalog.int8
         ELSE pg_catalog.pg_stat_get_live_tuples(c.oid) END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND n.nspname <> ALL ('{pg_catalog,information_schema,pg_toast,tutti}')",
        )
        .await?;
    let answer = Answer { node: NodeId::HOME, what: "sizes of tables", rows: &rows };
    let mut facts: HashMap<u32, TableFacts> = HashMap::new();
    for row in 0..answer.len() {
        let rows = answer.number::<u64>(row, 1)? as f64;
        facts.insert(answer.number(row, 0)?, TableFacts { rows, ..TableFacts::default() });
    }
    const NAMES: &str = "(SELECT pg_catalog.string_agg(a.attname, E'\\n' ORDER BY k.place)
    FROM pg_catalog.unnest({keys}) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = {of} AND a.attnum = k.attnum)";
    let names = |keys: &str, of: &str| NAMES.replace("{keys}", keys).replace("{of}", of);
    let uniques = format!(
        "SELECT i.indrelid, c.relname, COALESCE({}, '')
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
WHERE i.indisunique AND i.indislive",
        names("i.indkey::pg_catalog.int2[]", "i.indrelid")
    );
    let rows = connection.rows(&uniques).await?;
    let answer = Answer { node: NodeId::HOME, what: "unique indexes", rows: &rows };
    for row in 0..answer.len() {
        let oid = answer.number(row, 0)?;
        if let Some(of) = facts.get_mut(&oid) {
            of.uniques.push((answer.text(row, 1)?.to_owned(), places(oid, answer.text(row, 2)?)));
        }
    }
    let references = format!(
        "SELECT f.conrelid, f.conname, COALESCE({}, ''), f.confrelid, COALESCE({}, '')
FROM pg_catalog.pg_constraint f WHERE f.contype = 'f' AND f.conparentid = 0",
        names("f.conkey", "f.conrelid"),
        names("f.confkey", "f.confrelid")
    );
    let rows = connection.rows(&references).await?;
    let answer = Answer { node: NodeId::HOME, what: "foreign keys", rows: &rows };
    for row in 0..answer.len() {
        let (oid, parent) = (answer.number(row, 0)?, answer.number(row, 3)?);
        if let Some(of) = facts.get_mut(&oid) {
            of.references.push(Reference {
                name: answer.text(row, 1)?.to_owned(),
                columns: places(oid, answer.text(row, 2)?),
                parent,
                parent_columns: places(parent, answer.text(row, 4)?),
            });
        }
    }
    Ok(facts)
}

/// What clients have sent, as `pg_stat_statements` has it.
async fn asked(connection: &mut NodeConnection) -> Result<Option<Vec<Asked>>, GatewayError> {
    let place = "SELECT n.nspname FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_stat_statements'";
    let rows = connection.rows(place).await?;
    let Some(schema) = rows.text(0, 0) else { return Ok(None) };
    let sql = format!(
        "SELECT s.query, pg_catalog.sum(s.calls) FROM {}.pg_stat_statements s
WHERE s.dbid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
    AND s.query !~ 'tutti[._]' AND s.query ~* '^[[:space:](]*(select|insert|update|delete|merge|with)'
GROUP BY s.query ORDER BY pg_catalog.sum(s.total_exec_time) DESC LIMIT {STATEMENTS_MAX}",
        quote_identifier(schema)
    );
    let rows = connection.rows(&sql).await?;
    let answer = Answer { node: NodeId::HOME, what: "statements", rows: &rows };
    let asked = (0..answer.len()).map(|row| {
        let calls = answer.number::<u64>(row, 1)? as f64;
        Ok(Asked { text: answer.text(row, 0)?.to_owned(), calls })
    });
    asked.collect::<Result<_, GatewayError>>().map(Some)
}
