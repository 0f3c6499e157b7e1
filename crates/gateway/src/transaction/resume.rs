//! Portals and cursors that go on after their session, or others, have done something else.
//!
//! Owns: whether they may, by what has changed since they were bound or declared, and what changes must know of
//! them from then on. Never: runs them.
//! Start reading at [`TransactionContext::concerns_with_cursor`].

use std::collections::BTreeSet;
use std::sync::Arc;

use tutti_sql::catalog::{Catalog, NodeId, Relation};
use tutti_sql::plan::{Concerns, DataPlan, Plan, Planned};
use tutti_sql::planner::{self, Context};
use tutti_sql::statement::Statement;

use super::planning::{as_it_was, refuse_if_moved};
use crate::client::failure::Failure;
use crate::registry::activity::overtaken;
use crate::transaction::TransactionContext;
use crate::transaction::beside::{Beside, Set};
use crate::transaction::bound_with::BoundWith;
use crate::transaction::named::{Bound, Cursor, Portal};

impl TransactionContext {
    /// Whether a cursor is on a connection of its own.
    pub(crate) fn is_beside(&self, cursor: &str) -> bool {
        self.cursors.get(cursor).is_some_and(|cursor| cursor.beside.is_some())
    }

    /// That of this cursor.
    pub(crate) fn beside(&mut self, cursor: &str) -> Option<&mut Beside> {
        self.cursors.get_mut(cursor)?.beside.as_mut()
    }

    /// What the session has set by now.
    pub(crate) fn set_by_now(&self) -> Set {
        Set { state: self.settings.state().clone(), steps: self.transaction.steps_sql() }
    }

    /// Whether the session may have set something since.
    pub(crate) fn may_have_set(&self, before: &Set) -> bool {
        let now = self.set_by_now();
        !now.state.is_like(&before.state)
            || now.steps != before.steps
            || self.may_leave_on(NodeId::HOME)
            || self.bindings.contains_key(&NodeId::HOME)
    }

    /// What a statement depends on; one that uses a cursor, as SQL calls portals too, also on what the cursor's
    /// query does, which goes on. To be called while changes must take it to depend on anything.
    ///
    /// Errors: 40001, 0A000 if that query must not go on.
    pub(crate) fn concerns_with_cursor(
        &mut self,
        planned: &Planned,
    ) -> Result<Option<Arc<Concerns>>, Failure> {
        let own = planned.concerns.clone();
        let Plan::Data(DataPlan::Cursor { name: Some(name), close: false }) = &planned.plan else {
            return Ok(own);
        };
        let of_query = match (self.cursors.get(name), self.portals.get(name)) {
            (Some(cursor), _) if cursor.has_all_rows() => return Ok(own),
            (Some(cursor), _) => {
                self.refuse_declared_otherwise(cursor)?;
                cursor.concerns.clone()
            }
            (None, Some(Portal::Node { bound: Some(bound), runs, .. })) => {
                let (bound, ran) = (bound.clone(), *runs);
                let of_query = self.refuse_bound_otherwise(&bound, bound.begins(ran))?;
                if let Some(Portal::Node { runs, .. }) = self.portals.get_mut(name) {
                    *runs = true;
                }
                of_query
            }
            (None, _) => return Ok(own),
        };
        Ok(match own {
            Some(own) => of_query.map(|of_query| Arc::new(own.with(&of_query))),
            // A FETCH by itself depends on nothing.
            None => of_query,
        })
    }

    /// Before more is asked of a cursor whose query runs when rows are.
    ///
    /// Errors: 40001 if its tables, or the code that it runs, are not as they were; 0A000 if its session sees others.
    pub(crate) fn refuse_declared_otherwise(&self, cursor: &Cursor) -> Result<(), Failure> {
        if cursor.has_all_rows() {
            return Ok(());
        }
        self.refuse_moved_since(&cursor.then.catalog, cursor.concerns.as_deref())?;
        self.refuse_grown_since(&cursor.then, cursor.concerns.as_deref())
    }

    /// Before a portal goes on that changes have not seen all the time since it was bound; `begins`: it has not
    /// run, and nothing has kept its tables as they were. Returns what it depends on.
    ///
    /// Errors: 40001 if its tables, or the code that it runs, are not as they were; 0A000 if its names mean others.
    pub(crate) fn refuse_bound_otherwise(
        &mut self,
        bound: &Bound,
        begins: bool,
    ) -> Result<Option<Arc<Concerns>>, Failure> {
        if begins || self.transaction.catalog_changed {
            self.refuse_moved_since(&bound.then.catalog, bound.planned.concerns.as_deref())?;
        }
        if !begins {
            self.refuse_grown_since(&bound.then, bound.planned.concerns.as_deref())?;
            return Ok(bound.planned.concerns.clone());
        }
        if let Some(named) = &bound.unheld {
            // Its node looks its names up when it runs.
            self.refuse_named_otherwise(&bound.statement, named)?;
        }
        let planned = self.plan(&bound.statement)?;
        match planner::are_alike(&planned, &bound.planned) {
            true => Ok(planned.concerns.clone()),
            false => Err(overtaken().into()),
        }
    }

    /// Before what the transaction itself has bound or declared with an older catalog goes on. A table that was
    /// only made since is none that it uses, unless node 1 had all tables, and statements came to any.
    ///
    /// Errors: 40001 if a table was moved since.
    pub(crate) fn refuse_moved_since(
        &self,
        old: &Arc<Catalog>,
        concerns: Option<&Concerns>,
    ) -> Result<(), Failure> {
        let relations = concerns.and_then(|concerns| concerns.relations.as_deref());
        let may_be_used = |relation: &Arc<Relation>| match relations {
            Some(relations) if !old.is_solo() => relations.contains(&relation.oid),
            _ => old.is_solo() || as_it_was(relation, old).is_some(),
        };
        refuse_if_moved(old, &self.catalog, may_be_used)
    }

    /// Before what was bound or declared with an older catalog goes on: functions are looked up when they are
    /// called.
    ///
    /// Errors: 40001 if code that it may call has come to do more since than its plan reckons with.
    pub(crate) fn refuse_grown_since(
        &self,
        old: &BoundWith,
        concerns: Option<&Concerns>,
    ) -> Result<(), Failure> {
        self.refuse_if_grown(old, &self.catalog, concerns)
    }

    /// The relations that a statement names, by OID, as names are now.
    pub(crate) fn named_by(&self, statement: &Statement) -> BTreeSet<u32> {
        let context = Context::new(&self.catalog, &self.scope);
        let named = planner::relations_of(statement, &context);
        named.iter().map(|relation| relation.oid).collect()
    }

    /// Before a portal is executed whose names may mean something else than when it was bound. On one PostgreSQL
    /// it goes on with what it was bound to; here its text would be sent, and mean the other.
    ///
    /// Errors: 0A000 if they do.
    pub(crate) fn refuse_named_otherwise(
        &self,
        statement: &Statement,
        named: &BTreeSet<u32>,
    ) -> Result<(), Failure> {
        match self.named_by(statement) == *named {
            true => Ok(()),
            false => Err(Failure::unsupported(
                "executing a portal whose names mean other tables than when it was bound",
                "The search path, or a table of such a name, has changed since.",
                "Bind the statement again.",
            )),
        }
    }
}
