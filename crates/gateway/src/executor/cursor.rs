//! SQL cursors: each lives on one node.
//!
//! Owns: which node.
//! Never: moves one.

use std::collections::BTreeSet;

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, DataPlan, NodeChoice, Plan, Planned, RunOn};

use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done};
use crate::transaction::named::{Cursor, Portal};

impl Executor<'_> {
    pub(super) async fn declare(
        &mut self,
        name: &str,
        planned: &Planned,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if self.tx.cursors.contains_key(name) {
            let message = format!("cursor \"{name}\" already exists");
            return Err(Failure::error("42P03", message));
        }
        let holds = text.to_ascii_lowercase().contains("with hold");
        let (node, access, filled) = match &planned.plan {
            Plan::Data(DataPlan::One { node, access, otherwise }) => {
                // A transaction commits with such a cursor on one node only; where any has the rows, that is where
                // the rest is that it can have on one: temporary tables, notifications.
                let anchored = self.tx.transaction.must_anchor.unwrap_or(NodeId::HOME);
                let chosen = match node {
                    NodeChoice::Any if holds => Some(anchored),
                    node => self.choose(node, call),
                };
                match (chosen, otherwise) {
                    (Some(node), _) => (node, *access, None),
                    (None, Some(otherwise)) => {
                        return Box::pin(self.declare(name, otherwise, text, call)).await;
                    }
                    (None, None) => return Err(Failure::error("XX000", "the cursor has no node")),
                }
            }
            Plan::Data(DataPlan::Gather(gather)) => {
                let RunOn::One(choice) = &gather.run_on else {
                    return Err(Failure::error("XX000", "a cursor cannot be on several nodes"));
                };
                let filled = self.fill(gather, call).await?;
                let node = self.choose(choice, call).unwrap_or(NodeId::HOME);
                (node, gather.access, Some(filled))
            }
            other => {
                tracing::error!(?other, "a cursor's query has a plan that no node can hold");
                return Err(Failure::error("XX000", "the cursor's query cannot be run"));
            }
        };
        if holds {
            self.tx.must_anchor(node)?;
        }
        let (text, call) = match &filled {
            Some((filled, carrying)) => (filled.as_str(), carrying),
            None => (text, call),
        };
        let done = self.run_on_one(node, access, text, call).await?;
        // Outside of a transaction, its node has already committed it.
        let made = self.tx.transaction.is_open().then(|| self.tx.transaction.step_count());
        let (then, concerns) = (self.tx.bound_now(), self.tx.activity.plan.concerns());
        self.tx.cursors.insert(name.to_owned(), Cursor { node, holds, then, concerns, made });
        Ok(done)
    }

    pub(super) async fn use_cursor(
        &mut self,
        name: Option<&str>,
        close: bool,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let Some(name) = name else {
            let of_portals = self.tx.portals.values().filter_map(Portal::node);
            let of_cursors = self.tx.cursors.values().map(|cursor| cursor.node);
            let nodes: BTreeSet<_> = of_cursors.chain(of_portals).collect();
            for node in nodes {
                self.internal_rows(node, Access::Read, text, call).await?;
            }
            self.tx.cursors.clear();
            // All but the one that runs this.
            self.tx.portals.retain(|_, portal| portal.is_of_close_all());
            return Ok(Done::Tag("CLOSE CURSOR ALL".to_owned()));
        };
        if close && self.tx.portals.get(name).is_some_and(|portal| portal.node().is_none()) {
            // No node knows it.
            self.tx.portals.remove(name);
            return Ok(Done::Tag("CLOSE CURSOR".to_owned()));
        }
        if !close {
            self.tx.refuse_cursor_of_one_node()?;
            if self.tx.portals.get(name).is_some_and(|portal| portal.node().is_none()) {
                return Err(Failure::unsupported(
                    format!("FETCH from portal \"{name}\", which no single node has"),
                    "Its statement is carried out by the gateway: it reads several nodes, or calls code \
                     of which is asked afterwards what it has touched.",
                    "Execute the portal by the protocol, or declare a cursor by SQL.",
                ));
            }
        }
        let node = self.tx.node_of_cursor(name);
        // WHERE CURRENT OF writes; FETCH and MOVE may lock or call functions, except on a cursor held beyond
        // its transaction: its rows are materialized.
        let reads = close || !self.tx.transaction.is_open();
        let access = if reads { Access::Read } else { Access::Write };
        let done = self.run_on_one(node, access, text, call).await?;
        if close {
            self.tx.cursors.remove(name);
            self.tx.portals.remove(name);
        }
        Ok(done)
    }
}
