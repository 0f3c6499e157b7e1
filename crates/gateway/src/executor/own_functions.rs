//! Tutti's own functions, called like any function of PostgreSQL.
//!
//! Owns: the columns and rows of their answers.
//! Never: moves a table (`distribute` does), declares a function (`unseen` does), or decides what became of a
//! transaction (`recovery` does).
//! Start reading at [`Executor::call_own_function`]; a further function begins at [`TuttiCall`].

use tutti_cluster::audit;
use tutti_cluster::recovery::{self, InDoubt, Recoverer};
use tutti_sql::catalog::{NodeId, Placement, RelationKind};
use tutti_sql::closure::{Declaration, FunctionCode};
use tutti_sql::plan::{Access, RequestCall, Shown, TuttiCall};
use tutti_wire::backend::ColumnDescription;

use super::distribute::Step;
use crate::client::failure::Failure;
use crate::executor::{Executor, lag, progress};
use crate::plans::request::{Call, Done};

/// An answer of one row and column.
fn one(value: String) -> Vec<Vec<Option<String>>> {
    vec![vec![Some(value)]]
}

/// The columns of a function's answer.
pub(super) fn columns_of(function: &TuttiCall) -> Vec<ColumnDescription> {
    let texts = |names: &[&str]| names.iter().map(|name| ColumnDescription::text(*name)).collect();
    match function {
        TuttiCall::Distribute { function, .. } => texts(&[function]),
        // It is a statement that answers no rows.
        TuttiCall::Place(_) => Vec::new(),
        TuttiCall::Signal { terminates, .. } => {
            let name = if *terminates { "pg_terminate_backend" } else { "pg_cancel_backend" };
            // bool
            let (type_oid, type_len) = (16, 1);
            vec![ColumnDescription { type_oid, type_len, ..ColumnDescription::text(name) }]
        }
        TuttiCall::Declare { .. } => texts(&["tutti_function"]),
        TuttiCall::Outcome { .. } => texts(&["tutti_outcome"]),
        TuttiCall::Request(asked) => match asked {
            RequestCall::Begin { .. } | RequestCall::Remember { .. } => {
                texts(&["state", "instance", "result"])
            }
            RequestCall::Prepare { .. } | RequestCall::Look { .. } => {
                texts(&["instance", "state", "result", "request"])
            }
            // It is a COMMIT.
            RequestCall::Commit { .. } => Vec::new(),
        },
        TuttiCall::Show(shown) => match shown {
            Shown::Version => texts(&[shown.function()]),
            Shown::Nodes => texts(&["node", "address"]),
            Shown::Tables => texts(&["table", "placement", "key"]),
            Shown::Functions => texts(&["function", "declared"]),
            Shown::InDoubt => texts(&["gid", "nodes", "since", "decision"]),
            Shown::Check => texts(&["difference"]),
            Shown::Lag => texts(&lag::COLUMNS),
            Shown::Progress => texts(&progress::COLUMNS),
        },
    }
}

impl Executor<'_> {
    /// Carries out a call to one of Tutti's functions, and answers it.
    pub(crate) async fn call_own_function(
        &mut self,
        function: &TuttiCall,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let rows = match function {
            TuttiCall::Signal { terminates, target } => {
                let target = self.signal_target(*target, call);
                let Some(sent) = self.signal(target, *terminates).await? else {
                    return self.run_on_one(NodeId::HOME, Access::Read, text, call).await;
                };
                one(if sent { "t" } else { "f" }.to_owned())
            }
            TuttiCall::Distribute { tables, .. } => {
                one(self.redistribute(tables, Step::OfClient).await?)
            }
            TuttiCall::Place(placing) => return self.place(placing).await,
            TuttiCall::Declare { function, declared } => {
                one(self.declare_function(function, *declared).await?)
            }
            TuttiCall::Request(_) => unreachable!("the session carries it out"),
            TuttiCall::Outcome { gid } => {
                one(recovery::outcome(&self.tx.registry.cluster, gid).await?.to_string())
            }
            TuttiCall::Show(shown) => match shown {
                Shown::Version => one(format!("Tutti {}", env!("CARGO_PKG_VERSION"))),
                Shown::Nodes => self.node_rows(),
                Shown::Tables => self.table_rows(),
                Shown::Functions => self.function_rows(),
                Shown::InDoubt => self.in_doubt().await?,
                Shown::Check => self.check_memory().await?,
                Shown::Lag => self.lag().await?,
                Shown::Progress => self.progress().await?,
            },
        };
        Ok(self.tell_function(function, rows, call))
    }

    /// Writes what one of Tutti's functions answers.
    pub(crate) fn tell_function(
        &mut self,
        function: &TuttiCall,
        rows: Vec<Vec<Option<String>>>,
        call: &Call,
    ) -> Done {
        let tag = format!("SELECT {}", rows.len());
        self.put_rows(&columns_of(function), &rows, call);
        Done::Tag(tag)
    }

    /// What is prepared somewhere and not being committed here at the moment.
    async fn in_doubt(&self) -> Result<Vec<Vec<Option<String>>>, Failure> {
        let found = recovery::list_in_doubt(&mut Recoverer::of(&self.tx.registry.cluster)).await;
        let found = found.map_err(|error| error.to_fields())?;
        let left = found
            .into_iter()
            .filter(|doubt| !self.tx.registry.cluster.coordinators.contains(&doubt.gid));
        let row = |doubt: InDoubt| {
            let nodes = doubt.nodes_text();
            let decision = doubt.decision.map(|decision| decision.to_string());
            vec![Some(doubt.gid.to_string()), Some(nodes), Some(doubt.since), decision]
        };
        Ok(left.map(row).collect())
    }

    /// How the catalog in memory differs from the nodes'. The whole catalog is read again.
    ///
    /// Errors: 42501 for a role that is not a superuser.
    async fn check_memory(&mut self) -> Result<Vec<Vec<Option<String>>>, Failure> {
        const I_AM_SUPERUSER: &str = "SELECT rolsuper FROM pg_catalog.pg_roles \
             WHERE rolname OPERATOR(pg_catalog.=) current_user";
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(I_AM_SUPERUSER).await?;
        if rows.first().and_then(|rows| rows.text(0, 0)) != Some("t") {
            return Err(Failure::error("42501", "must be superuser to call tutti_check()"));
        }
        let registry = self.tx.registry.clone();
        let found = audit::memory::differences(&registry.cluster).await;
        Ok(found.into_iter().map(|difference| vec![Some(difference)]).collect())
    }

    fn node_rows(&self) -> Vec<Vec<Option<String>>> {
        let endpoints = &self.tx.registry.cluster.endpoints;
        endpoints
            .iter()
            .map(|it| vec![Some(it.node().to_string()), Some(it.address().to_string())])
            .collect()
    }

    fn function_rows(&self) -> Vec<Vec<Option<String>>> {
        let row = |(function, declared): (&FunctionCode, Declaration)| {
            let name = format!("{}.{}", function.schema, function.name);
            vec![Some(name), Some(declared.as_str().to_owned())]
        };
        let mut rows: Vec<_> = self.tx.catalog.code.declarations().map(row).collect();
        rows.sort();
        rows
    }

    fn table_rows(&self) -> Vec<Vec<Option<String>>> {
        let mut rows: Vec<_> = self
            .tx
            .catalog
            .relations
            .values()
            .flat_map(|relations| relations.values())
            .filter(|relation| relation.kind == RelationKind::Table)
            .map(|relation| {
                let (placement, key) = match &relation.placement {
                    Placement::Hash { map, .. } | Placement::HashOfSeveral { map, .. } => {
                        let maps = &self.tx.catalog.maps;
                        let word = maps.get(map).map_or("hash", |it| it.bucketing.word());
                        (word, relation.key_names())
                    }
                    Placement::RoundRobin => ("round robin", None),
                    Placement::Replicated => ("replicated", None),
                    Placement::Async { key, stage, .. } => {
                        (stage.words(), Some(relation.columns[*key].name.clone()))
                    }
                    Placement::Home => ("node 1 only", None),
                };
                let name = format!("{}.{}", relation.schema, relation.name);
                vec![Some(name), Some(placement.to_owned()), key]
            })
            .collect();
        rows.sort();
        rows
    }
}
