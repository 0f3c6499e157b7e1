//! Making tables asynchronously replicated, and replicated again.
//!
//! Owns: the steps, each a transaction of its own, for what carries rows cannot be changed in one with the
//! placement. Never: says what nodes publish or subscribe to (`tutti_cluster::carrying` does).
//! Start reading at [`Session::replicate`]; the reasons are in docs/decisions/2026-11-25-replicated-async.md.
//!
//! Between the steps the table is *pending*: every node has the same rows, and no one may write it. If the
//! gateway dies there, it stays so, and either call goes on from there.

use std::collections::BTreeMap;
use std::time::Duration;

use tutti_cluster::carrying::{CarriedTable, Carriers, Connections};
use tutti_cluster::error::GatewayError;
use tutti_link::connection::NodeConnection;
use tutti_sql::catalog::{NodeId, Placement, Relation, quote_identifier};
use tutti_sql::plan::{Ddl, Plan, Planned, SchemaPlan, SessionPlan, TuttiCall};
use tutti_sql::statement::DistributeBy;
use tutti_wire::error_fields::ErrorFields;

use super::Session;
use crate::client::failure::Failure;
use crate::executor::lag::reached_at;
use crate::plans::request::{Call, Done};
use crate::transaction::Mode;

/// How long rows that are on their way are waited for.
const ARRIVAL_PATIENCE: Duration = Duration::from_secs(20);

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
                self.set_up_carriers().await?;
                let done = self.executor().execute(planned, text, call).await?;
                self.commit().await?;
                let name = quote_identifier(&created.name);
                let name = match &created.schema {
                    Some(schema) => format!("{}.{name}", quote_identifier(schema)),
                    None => name,
                };
                self.begin_statement("").await?;
                self.make_async(&name).await?;
                Ok(Some(done))
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
            Plan::Session(SessionPlan::Tutti(TuttiCall::Distribute { tables, .. })) => {
                let Some(words) = self.redistribute_async(tables).await? else { return Ok(None) };
                let Plan::Session(SessionPlan::Tutti(function)) = &planned.plan else {
                    return Ok(None);
                };
                Ok(Some(self.executor().tell_function(function, vec![vec![Some(words)]], call)))
            }
            _ => Ok(None),
        }
    }

    async fn redistribute_async(
        &mut self,
        tables: &[(String, DistributeBy)],
    ) -> Result<Option<String>, Failure> {
        let wants_async = tables.iter().any(|(_, by)| *by == DistributeBy::ReplicatedAsync);
        if !wants_async && !self.tx.catalog.has_async {
            return Ok(None);
        }
        let mut carried = wants_async;
        for (table, _) in tables {
            let relation = self.executor().table_named(table).await?;
            carried |= matches!(relation.placement, Placement::Async { .. });
        }
        if !carried {
            return Ok(None);
        }
        self.refuse_in_block()?;
        match tables {
            [(table, DistributeBy::ReplicatedAsync)] => {
                self.set_up_carriers().await?;
                self.make_async(table).await.map(Some)
            }
            [(table, DistributeBy::Replicated)] => self.make_replicated(table).await.map(Some),
            _ => Err(Failure::unsupported(
                "an asynchronously replicated table cannot be redistributed like this",
                "Rows may still be on their way to some nodes.",
                "First make it replicated, alone: SELECT tutti_replicate('table').",
            )),
        }
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
    async fn make_async(&mut self, table: &str) -> Result<String, Failure> {
        let relation = self.executor().table_named(table).await?;
        let words = format!("{} is replicated asynchronously", relation.name);
        match relation.placement {
            Placement::Async { is_carried: true, .. } => return Ok(words),
            Placement::Async { is_carried: false, .. } => (),
            _ => self.step(table, DistributeBy::ReplicatedAsync).await?,
        }
        let relation = self.executor().table_named(table).await?;
        let carried = carried_table(&relation)?;
        let catalog = self.tx.catalog.clone();
        let Placement::Async { map, .. } = relation.placement else {
            return Err(vanished(&relation));
        };
        let map = catalog.maps.get(&map).cloned().ok_or_else(|| vanished(&relation))?;
        let carriers = self.carriers();
        let mut open = self.open_all().await?;
        let mut connections = by_node(&mut open);
        let begun = carriers.begin(&mut connections, &carried, &map).await;
        self.release_all(open);
        begun?;
        self.step(table, DistributeBy::Carried).await?;
        Ok(words)
    }

    /// The table is replicated at once again: what is on its way has arrived. Says so.
    async fn make_replicated(&mut self, table: &str) -> Result<String, Failure> {
        let relation = self.executor().table_named(table).await?;
        if let Placement::Async { is_carried: true, .. } = relation.placement {
            // Who writes has ended then, and no one begins.
            self.step(table, DistributeBy::ReplicatedAsync).await?;
        }
        let carried = carried_table(&relation)?;
        let carriers = self.carriers();
        let mut open = self.open_all().await?;
        let ended = end_carrying(&carriers, &mut by_node(&mut open), &carried).await;
        self.release_all(open);
        if let Some(missing) = ended? {
            let message = format!("node {missing} has not received all rows of {}", relation.name);
            return Err(ErrorFields::error("55000", message)
                .with(b'D', "Until then the table can be read, and not written.")
                .with(b'H', "Call it again when the node is there; tutti_lag() says how far it is.")
                .into());
        }
        self.step(table, DistributeBy::Replicated).await?;
        Ok(format!("{} is replicated", relation.name))
    }

    /// One change of the table's placement, in a transaction of its own.
    async fn step(&mut self, table: &str, by: DistributeBy) -> Result<(), Failure> {
        self.begin_statement("").await?;
        let ran = self.executor().redistribute(&[(table.to_owned(), by)]).await;
        if let Err(failure) = ran {
            self.rollback().await;
            return Err(failure);
        }
        self.commit().await?;
        self.begin_statement("").await
    }

    fn carriers(&self) -> Carriers {
        let cluster = &self.tx.registry.cluster;
        Carriers::new(&cluster.config.cluster, self.tx.catalog.nodes.iter().copied())
    }

    async fn set_up_carriers(&mut self) -> Result<(), Failure> {
        let carriers = self.carriers();
        let reached_at = reached_at(&self.tx.registry.cluster.config);
        let mut open = self.open_all().await?;
        let done = carriers.set_up(&mut by_node(&mut open), &reached_at).await;
        self.release_all(open);
        Ok(done?)
    }

    async fn open_all(&self) -> Result<Vec<NodeConnection>, Failure> {
        let mut open = Vec::new();
        for node in self.tx.catalog.nodes.clone() {
            open.push(self.tx.registry.cluster.connections.checkout(node).await?);
        }
        Ok(open)
    }

    fn release_all(&self, open: Vec<NodeConnection>) {
        for connection in open {
            self.tx.registry.cluster.connections.release(connection);
        }
    }
}

fn by_node(open: &mut [NodeConnection]) -> Connections<'_> {
    open.iter_mut().map(|connection| (connection.node(), connection)).collect::<BTreeMap<_, _>>()
}

/// Returns a node that lacks rows, if one does.
async fn end_carrying(
    carriers: &Carriers,
    connections: &mut Connections<'_>,
    table: &CarriedTable,
) -> Result<Option<NodeId>, GatewayError> {
    for connection in connections.values_mut() {
        let place = carriers.place(connection).await?;
        let missing = carriers.wait_for_arrival(connection, &place, ARRIVAL_PATIENCE).await?;
        if let Some(missing) = missing.first() {
            return Ok(Some(*missing));
        }
    }
    carriers.end(connections, table).await?;
    Ok(None)
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
    Failure::error("40001", message)
}
