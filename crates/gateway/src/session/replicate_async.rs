//! Making tables asynchronously replicated, and replicated again.
//!
//! Owns: the steps, each a transaction of its own, for what carries rows cannot be changed in one with the
//! placement. Never: says what nodes publish or subscribe to (`tutti_cluster::carrying` does).
//! Start reading at [`Session::replicate`]; the reasons are in docs/decisions/2026-11-25-replicated-async.md.
//!
//! Between the steps the table is *pending*: every node has the same rows, and no one may write it. If the
//! gateway dies there, it stays so, and either call goes on from there.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tutti_cluster::carrying::{Awaited, CarriedTable, Carriers, Connections, reached_at};
use tutti_cluster::carrying_monitor::{self, with_all};
use tutti_cluster::error::GatewayError;
use tutti_sql::catalog::{Catalog, NodeId, Placement, Relation, Stage, quote_literal};
use tutti_sql::plan::{
    Access, CreatedTable, Ddl, Plan, Planned, SchemaPlan, SessionPlan, TuttiCall,
};
use tutti_sql::statement::DistributeBy;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::Session;
use crate::client::failure::Failure;
use crate::executor::distribute::Step;
use crate::plans::request::{Call, Done};
use crate::transaction::Mode;

/// Kept while tables become asynchronously replicated, or something else.
type Carrying = Arc<tokio::sync::OwnedMutexGuard<()>>;

/// How long rows that are on their way are waited for.
const ARRIVAL_PATIENCE: Duration = Duration::from_secs(20);
/// How long rows that are to be dropped are waited for: they may be behind many of other tables.
const PASSING_PATIENCE: Duration = Duration::from_secs(60);

impl Session {
    /// Carries out what makes a table asynchronously replicated, or such a one something else. `None`: it is
    /// neither.
    pub(super) async fn replicate(
        &mut self,
        planned: &Planned,
        text: &str,
        call: &Call,
    ) -> Result<Option<Done>, Failure> {
        match &planned.plan {
            Plan::Schema(SchemaPlan::Ddl(Ddl { creates: Some(created), .. }))
                if created.distribute_by == Some(DistributeBy::ReplicatedAsync) =>
            {
                self.refuse_in_block()?;
                let held = self.lock_carrying().await?;
                let done = self.create(&held, created, planned, text, call).await;
                self.remove_unused(&held).await;
                done.map(Some)
            }
            Plan::Schema(SchemaPlan::CreateTableAs {
                ddl: Ddl { creates: Some(created), .. },
                ..
            }) if created.distribute_by == Some(DistributeBy::ReplicatedAsync) => {
                Err(Failure::unsupported(
                    "CREATE TABLE AS cannot make an asynchronously replicated table",
                    "Its rows are carried when it has a primary key, and not before.",
                    "Create it REPLICATED, add the key, then SELECT tutti_replicate('table', async => true).",
                ))
            }
            Plan::Session(SessionPlan::Tutti(function @ TuttiCall::Distribute { tables, .. })) => {
                let Some(words) = self.redistribute_async(tables).await? else { return Ok(None) };
                Ok(Some(self.executor().tell_function(function, vec![vec![Some(words)]], call)))
            }
            Plan::Session(SessionPlan::Tutti(TuttiCall::Place(placing))) => {
                if self.executor().is_skipped(placing).await? {
                    return Ok(None);
                }
                let table = (placing.table.clone(), placing.distribute_by.clone());
                let done = self.redistribute_async(&[table]).await?;
                Ok(done.map(|_| Done::Tag("ALTER TABLE".to_owned())))
            }
            _ => Ok(None),
        }
    }

    async fn create(
        &mut self,
        held: &Carrying,
        created: &CreatedTable,
        planned: &Planned,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let schema = match &created.schema {
            Some(schema) => schema.clone(),
            None => self.ask_home("SELECT pg_catalog.current_schema()").await?.unwrap_or_default(),
        };
        // Who may not make it there is told so by the node, and sets nothing up.
        let may = format!(
            "SELECT pg_catalog.has_schema_privilege(n.oid, 'CREATE') FROM pg_catalog.pg_namespace AS n
WHERE n.nspname OPERATOR(pg_catalog.=) {}",
            quote_literal(&schema)
        );
        if self.ask_home(&may).await?.as_deref() == Some("t") {
            self.set_up_carriers(held).await?;
        }
        let done = self.executor().execute(planned, text, call).await?;
        self.commit().await?;
        self.begin_statement("").await?;
        let table = self.tx.catalog.relations.get(&schema).and_then(|it| it.get(&created.name));
        // IF NOT EXISTS leaves another table of the name what it is.
        if let Some(relation) = table.cloned()
            && matches!(relation.placement, Placement::Async { stage: Stage::Pending, .. })
        {
            self.make_async(held, &relation.sql_name()).await?;
        }
        Ok(done)
    }

    async fn redistribute_async(
        &mut self,
        tables: &[(String, DistributeBy)],
    ) -> Result<Option<String>, Failure> {
        let wants_async = tables.iter().any(|(_, by)| *by == DistributeBy::ReplicatedAsync);
        if !wants_async && !self.concerns_async(tables).await? {
            return Ok(None);
        }
        self.refuse_in_block()?;
        let held = self.lock_carrying().await?;
        // Who held it before may have changed them.
        self.begin_statement("").await?;
        let done = self.convert(&held, tables).await;
        self.remove_unused(&held).await;
        done.map(Some)
    }

    async fn concerns_async(&mut self, tables: &[(String, DistributeBy)]) -> Result<bool, Failure> {
        if !self.tx.catalog.has_async {
            return Ok(false);
        }
        for (table, _) in tables {
            let relation = self.executor().table_named(table).await?;
            if matches!(relation.placement, Placement::Async { .. }) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn convert(
        &mut self,
        held: &Carrying,
        tables: &[(String, DistributeBy)],
    ) -> Result<String, Failure> {
        let [(table, by)] = tables else { return Err(refuse_others()) };
        let relation = self.executor().table_named(table).await?;
        self.refuse_others_table(&relation).await?;
        match (&relation.placement, by) {
            (_, DistributeBy::ReplicatedAsync) => {
                if !matches!(relation.placement, Placement::Async { .. }) {
                    self.set_up_carriers(held).await?;
                }
                self.make_async(held, table).await
            }
            (Placement::Async { .. }, DistributeBy::Replicated) => {
                self.make_replicated(held, table).await
            }
            (Placement::Async { key, .. }, DistributeBy::Hash(column))
                if relation.columns[*key].name == *column =>
            {
                self.keep_at_home(held, table).await
            }
            // It is not what it was when it was looked at before.
            (placement, _) if !matches!(placement, Placement::Async { .. }) => {
                Err(vanished(&relation))
            }
            _ => Err(refuse_others()),
        }
    }

    /// Errors: 42501 for whoever could not ALTER it.
    async fn refuse_others_table(&mut self, relation: &Relation) -> Result<(), Failure> {
        let owns = format!(
            "SELECT pg_catalog.pg_has_role(c.relowner, 'USAGE') FROM pg_catalog.pg_class AS c
WHERE c.oid OPERATOR(pg_catalog.=) {}::pg_catalog.oid",
            relation.oid
        );
        match self.ask_home(&owns).await?.as_deref() {
            Some("t") => Ok(()),
            _ => {
                let message = format!("must be owner of table {}", relation.name);
                Err(Failure::error("42501", message))
            }
        }
    }

    /// One value that node 1 says to the client's role.
    async fn ask_home(&mut self, sql: &str) -> Result<Option<String>, Failure> {
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(sql).await?;
        Ok(rows.first().and_then(|rows| rows.text(0, 0)).map(str::to_owned))
    }

    fn refuse_in_block(&self) -> Result<(), Failure> {
        if self.tx.transaction.mode == Mode::None {
            return Ok(());
        }
        let message = "asynchronous replication cannot begin or end inside a transaction block";
        Err(ErrorFields::error("25001", message)
            .with(b'D', "Slots and subscriptions are not part of a transaction.")
            .with(b'H', "Send it alone, outside of a transaction.")
            .into())
    }

    /// The table's rows are carried from now on. Says so.
    async fn make_async(&mut self, held: &Carrying, table: &str) -> Result<String, Failure> {
        let relation = self.executor().table_named(table).await?;
        let words = format!("{} is replicated asynchronously", relation.name);
        match relation.placement {
            Placement::Async { stage: Stage::Carried, .. } => return Ok(words),
            Placement::Async { stage: Stage::Pending, .. } => self.refuse_faults(held).await?,
            Placement::Async { stage: Stage::Ending, .. } => return Err(refuse_ending(&relation)),
            _ => self.step(table, DistributeBy::ReplicatedAsync).await?,
        }
        let relation = self.executor().table_named(table).await?;
        let carried = carried_table(&relation)?;
        let catalog = self.tx.catalog.clone();
        let Placement::Async { map, .. } = relation.placement else {
            return Err(vanished(&relation));
        };
        let map = catalog.maps.get(&map).cloned().ok_or_else(|| vanished(&relation))?;
        let cluster = self.tx.registry.cluster.clone();
        let beginning = async move {
            let begin = async |carriers: &Carriers, connections: &mut Connections<'_>| {
                carriers.begin(connections, &carried, &map).await
            };
            with_all(&cluster, begin).await
        };
        self.finish_in_any_case(held, beginning).await?;
        self.step(table, DistributeBy::Carried).await?;
        Ok(words)
    }

    /// The table is replicated at once again: what is on its way has arrived. Says so.
    async fn make_replicated(&mut self, held: &Carrying, table: &str) -> Result<String, Failure> {
        self.refuse_faults(held).await?;
        let carried = self.make_pending(table).await?;
        let (cluster, ended) = (self.tx.registry.cluster.clone(), carried.clone());
        let ending = async move {
            let end = async |carriers: &Carriers, connections: &mut Connections<'_>| {
                let missing =
                    carriers.wait_for_all(Awaited::Arrival, connections, ARRIVAL_PATIENCE).await?;
                if missing.is_none() {
                    carriers.end(connections, &ended).await?;
                }
                Ok(missing)
            };
            with_all(&cluster, end).await
        };
        let missing = self.finish_in_any_case(held, ending).await?;
        let relation = self.executor().table_named(table).await?;
        if let Some(missing) = missing {
            let message = format!("node {missing} has not received all rows of {}", relation.name);
            let (name, key) = (relation.sql_name(), &carried.key);
            return Err(ErrorFields::error("55000", message)
                .with(b'D', "Until then the table can be read, and not written.")
                .with(
                    b'H',
                    format!(
                        "Call it again when the node is there; tutti_lag() says how far it is. If rows cannot arrive, \
                         SELECT tutti_distribute({}, {}) keeps each row at its home, where it is newest.",
                        quote_literal(&name),
                        quote_literal(key)
                    ),
                )
                .into());
        }
        self.step(table, DistributeBy::Replicated).await?;
        Ok(format!("{} is replicated", relation.name))
    }

    /// The table is distributed by hash: each row stays where it was written, whatever has arrived elsewhere. Says so.
    async fn keep_at_home(&mut self, held: &Carrying, table: &str) -> Result<String, Failure> {
        let relation = self.executor().table_named(table).await?;
        let may_drop =
            "SELECT pg_catalog.has_parameter_privilege('session_replication_role', 'SET')";
        if self.ask_home(may_drop).await?.as_deref() != Some("t") {
            return Err(Failure::unsupported(
                format!("only a superuser can redistribute table {}", relation.sql_name()),
                "Copies of its rows are deleted, which takes the right to set session_replication_role.",
                "Connect as a superuser, or GRANT SET ON PARAMETER session_replication_role on every node.",
            ));
        }
        if !matches!(relation.placement, Placement::Async { stage: Stage::Ending, .. }) {
            // From here on there is one way, for rows may be dropped.
            self.step(table, DistributeBy::Ending).await?;
        }
        let carried = carried_table(&relation)?;
        let (cluster, ended) = (self.tx.registry.cluster.clone(), carried.clone());
        let ending = async move {
            let end = async |carriers: &Carriers, connections: &mut Connections<'_>| {
                carriers.end_early(connections, &ended).await
            };
            with_all(&cluster, end).await
        };
        self.finish_in_any_case(held, ending).await?;
        self.wait_until_passed(held, &relation).await?;
        self.step(table, DistributeBy::Hash(carried.key.clone())).await?;
        Ok(format!("{} is distributed by {}", carried.name, carried.key))
    }

    /// What was on its way of a table that is carried no longer has been dropped by all who receive rows of others.
    /// It would come to whatever has its name later: to the same table, made asynchronous again, as if it were new; to
    /// another one, which it may not fit, and stop all that is behind it.
    async fn wait_until_passed(
        &mut self,
        held: &Carrying,
        ended: &Relation,
    ) -> Result<(), Failure> {
        let catalog = self.tx.catalog.clone();
        let mut tables = catalog.relations.values().flat_map(|tables| tables.values());
        let is_other = |table: &Arc<Relation>| {
            table.oid != ended.oid
                && matches!(table.placement, Placement::Async { stage, .. } if stage != Stage::Ending)
        };
        if !tables.any(is_other) {
            // All that carries rows is removed when the last of them has ended, and with it what is on its way. Until
            // then none is made asynchronous (see `set_up_carriers`).
            return Ok(());
        }
        let cluster = self.tx.registry.cluster.clone();
        let passing = async move {
            let pass = async |carriers: &Carriers, connections: &mut Connections<'_>| {
                carriers.wait_for_all(Awaited::Passing, connections, PASSING_PATIENCE).await
            };
            with_all(&cluster, pass).await
        };
        let Some(behind) = self.finish_in_any_case(held, passing).await? else { return Ok(()) };
        let message = format!("node {behind} has not passed what is on its way of {}", ended.name);
        Err(ErrorFields::error("55000", message)
            .with(b'D', "Rows of other tables come before it. Until then the table can be read, and not written.")
            .with(
                b'H',
                "Call it again; tutti_lag() says how far the node is. If rows of another table cannot arrive there, \
                 distribute that one by its key too, and then call it again.",
            )
            .into())
    }

    /// Nobody writes the table from now on.
    async fn make_pending(&mut self, table: &str) -> Result<CarriedTable, Failure> {
        let relation = self.executor().table_named(table).await?;
        match relation.placement {
            // Who writes has ended then, and no one begins.
            Placement::Async { stage: Stage::Carried, .. } => {
                self.step(table, DistributeBy::ReplicatedAsync).await?;
            }
            Placement::Async { stage: Stage::Ending, .. } => return Err(refuse_ending(&relation)),
            _ => (),
        }
        let relation = self.executor().table_named(table).await?;
        carried_table(&relation)
    }

    /// One change of the table's placement, in a transaction of its own.
    async fn step(&mut self, table: &str, by: DistributeBy) -> Result<(), Failure> {
        self.begin_statement("").await?;
        let ran = self.executor().redistribute(&[(table.to_owned(), by)], Step::OfAsync).await;
        if let Err(failure) = ran {
            self.rollback().await;
            return Err(failure);
        }
        self.commit().await?;
        self.begin_statement("").await
    }

    /// What carries rows is there. Where tables are carried already, nothing of it may be missing: what was made anew
    /// would begin with what is written from now on.
    async fn set_up_carriers(&mut self, held: &Carrying) -> Result<(), Failure> {
        let catalog = self.tx.registry.cluster.catalog();
        if catalog.has_async {
            if let Some(ending) = ending_alone(&catalog) {
                return Err(refuse_ending(&ending));
            }
            return self.refuse_faults(held).await;
        }
        let cluster = self.tx.registry.cluster.clone();
        let setting_up = async move {
            let reached_at = reached_at(&cluster.config);
            let set_up = async |carriers: &Carriers, connections: &mut Connections<'_>| {
                // What was left by somebody who did not come to an end.
                if carriers.is_anywhere(connections).await? {
                    carriers.take_down(connections).await?;
                }
                carriers.set_up(connections, &reached_at).await
            };
            with_all(&cluster, set_up).await
        };
        self.finish_in_any_case(held, setting_up).await
    }

    async fn refuse_faults(&mut self, held: &Carrying) -> Result<(), Failure> {
        let cluster = self.tx.registry.cluster.clone();
        let looking = async move {
            let look = async |carriers: &Carriers, connections: &mut Connections<'_>| {
                carriers.faults(connections).await
            };
            with_all(&cluster, look).await
        };
        let faults = self.finish_in_any_case(held, looking).await?;
        if faults.is_empty() {
            return Ok(());
        }
        let message = "rows of asynchronously replicated tables are lost on their way";
        Err(ErrorFields::error("55000", message)
            .with(b'D', format!("{}.", faults.join("; ")))
            .with(
                b'H',
                "Distribute all of these tables by the columns that tutti_tables() gives (tutti_distribute), which keeps \
                 each row at its home, where it is newest; then make them asynchronous again.",
            )
            .into())
    }

    /// As far as it can be done now; the gateway looks after it later.
    async fn remove_unused(&mut self, held: &Carrying) {
        let cluster = self.tx.registry.cluster.clone();
        let removing = async move { carrying_monitor::remove_unused(&cluster).await };
        if let Err(failure) = self.finish_in_any_case(held, removing).await {
            tracing::warn!(?failure, "what carried rows is removed later");
        }
    }

    /// Nobody else changes which tables are replicated asynchronously until this is dropped.
    async fn lock_carrying(&mut self) -> Result<Carrying, Failure> {
        let carrying = self.tx.registry.cluster.carrying.clone();
        Ok(Arc::new(self.tx.while_wanted(carrying.lock_owned()).await?))
    }

    /// Waits for something that is done to its end though the client may not want it any more, or go: a node does what
    /// it was told, and nobody else may tell it something else before.
    async fn finish_in_any_case<T: Send + 'static>(
        &mut self,
        held: &Carrying,
        work: impl Future<Output = Result<T, GatewayError>> + Send + 'static,
    ) -> Result<T, Failure> {
        let held = held.clone();
        let working = tokio::spawn(async move {
            let _held = held;
            work.await
        });
        match self.tx.while_wanted(working).await? {
            Ok(done) => Ok(done?),
            Err(error) => Err(Failure::error("XX000", format!("a bug: {error}"))),
        }
    }
}

/// Rows of it may be lost everywhere but at their homes.
/// One of the tables that are asynchronous, where all are being distributed by their keys: what is on its way of such a
/// table that has ended is dropped with the last of them.
fn ending_alone(catalog: &Catalog) -> Option<Arc<Relation>> {
    let tables = catalog.relations.values().flat_map(|tables| tables.values());
    let of_async: Vec<_> =
        tables.filter(|it| matches!(it.placement, Placement::Async { .. })).collect();
    let is_ending =
        |it: &&Arc<Relation>| matches!(it.placement, Placement::Async { stage: Stage::Ending, .. });
    of_async.first().filter(|_| of_async.iter().all(is_ending)).map(|it| Arc::clone(it))
}

fn refuse_ending(relation: &Relation) -> Failure {
    let Placement::Async { key, .. } = relation.placement else { return vanished(relation) };
    let (name, key) = (relation.sql_name(), &relation.columns[key].name);
    let message = format!("{name} is being distributed by its key, and that is not finished");
    ErrorFields::error("55000", message)
        .with(b'D', "Rows that were on their way may be nowhere but at their homes.")
        .with(
            b'H',
            format!(
                "Finish it: SELECT tutti_distribute({}, {}).",
                quote_literal(&name),
                quote_literal(key)
            ),
        )
        .into()
}

fn refuse_others() -> Failure {
    Failure::unsupported(
        "an asynchronously replicated table cannot be redistributed like this",
        "Rows may still be on their way to some nodes.",
        "First make it replicated, alone: SELECT tutti_replicate('table').",
    )
}

fn carried_table(relation: &Relation) -> Result<CarriedTable, Failure> {
    let Placement::Async { key, key_type, .. } = relation.placement else {
        return Err(vanished(relation));
    };
    Ok(CarriedTable {
        schema: relation.schema.clone(),
        name: relation.name.clone(),
        key: relation.columns[key].name.clone(),
        key_type,
    })
}

fn vanished(relation: &Relation) -> Failure {
    let message = format!("table \"{}\" was changed meanwhile", relation.name);
    Failure::error(sqlstate::SERIALIZATION_FAILURE, message)
}
