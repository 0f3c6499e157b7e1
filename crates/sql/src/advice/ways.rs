//! How a statement would be run, and what that costs beside one node's work.
//!
//! Owns: the few ways that plans fall into, and their weights. Never: plans; the planner does.
//! Start reading at [`Way`].

use std::collections::BTreeSet;

use pg_query::NodeEnum;

use crate::catalog::{Catalog, NameScope};
use crate::plan::{Access, DataPlan, InsertSource, Plan, Planned, RunOn};
use crate::planner::{Context, plan, written};
use crate::statement::Statement;
use crate::walk;

/// How a statement would be run.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Way {
    /// By one node alone.
    OneNode,
    /// Each node reads its own rows.
    EachNode,
    /// Each node changes its own rows, in one transaction.
    ChangedOnEach,
    /// A copy is written on every node.
    Copies,
    /// Rows travel between nodes.
    Travels,
    /// Not at all: it must be written otherwise.
    Refused,
}

impl Way {
    /// All of them, the best first.
    pub const ALL: [Self; 6] = [
        Self::OneNode,
        Self::EachNode,
        Self::ChangedOnEach,
        Self::Copies,
        Self::Travels,
        Self::Refused,
    ];

    /// For people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::OneNode => "one node alone",
            Self::EachNode => "each node reads its own rows",
            Self::ChangedOnEach => "each node changes its own rows",
            Self::Copies => "every node writes its copy",
            Self::Travels => "rows travel between nodes",
            Self::Refused => "refused",
        }
    }

    /// In visits of nodes: one node's work is 1; a vote is one more, and rows that travel are read, sent, and read again.
    pub(super) fn cost(self, node_count: u16) -> f64 {
        let nodes = f64::from(node_count);
        match self {
            Self::OneNode => 1.0,
            Self::EachNode => nodes + 1.0,
            Self::ChangedOnEach | Self::Copies => nodes + 2.0,
            Self::Travels => 3.0 * nodes + 5.0,
            Self::Refused => 100.0,
        }
    }

    fn of(planned: &Planned) -> Self {
        let Plan::Data(plan) = &planned.plan else { return Self::OneNode };
        match plan {
            DataPlan::One { .. } | DataPlan::Cursor { .. } => Self::OneNode,
            DataPlan::Scatter { access: Access::Read } => Self::EachNode,
            DataPlan::Scatter { access: Access::Write } => Self::ChangedOnEach,
            DataPlan::Replicas { .. } | DataPlan::Rows(_) => Self::Copies,
            DataPlan::Gather(gather) => match (&gather.run_on, gather.access) {
                (RunOn::EachNode, Access::Write) if gather.collects.is_empty() => {
                    Self::ChangedOnEach
                }
                (RunOn::EachNode, Access::Read) if gather.collects.is_empty() => Self::EachNode,
                _ if gather.partial.as_ref().is_some_and(|of| of.collects.is_empty()) => {
                    Self::EachNode
                }
                _ => Self::Travels,
            },
            DataPlan::Insert(insert) => match &insert.source {
                // Most have one row.
                InsertSource::Values { rows, .. } if rows.len() == 1 => Self::OneNode,
                InsertSource::Values { .. } => Self::ChangedOnEach,
                InsertSource::Select { plan, .. } => match Self::of(plan) {
                    Self::OneNode => Self::OneNode,
                    _ => Self::Travels,
                },
            },
            DataPlan::DeclareCursor { query, .. } => Self::of(query),
            DataPlan::Explain(_) => Self::OneNode,
            DataPlan::CopyFrom(_) => Self::ChangedOnEach,
            DataPlan::CopyTo(_) => Self::EachNode,
            DataPlan::Move(_) | DataPlan::Steps(_) => Self::Travels,
            DataPlan::Refused(_) => Self::Refused,
        }
    }
}

/// A statement, and what it names.
#[derive(Debug)]
pub(super) struct Parsed {
    /// Its place among those asked.
    pub(super) asked: usize,
    statement: Statement,
    /// Tables, without their schemas.
    names: BTreeSet<String>,
}

impl Parsed {
    pub(super) fn of(asked: usize, statement: Statement) -> Self {
        let mut names = BTreeSet::new();
        add_names(&statement.tree, &mut names);
        Self { asked, statement, names }
    }

    pub(super) fn names_one_of(&self, names: &BTreeSet<&str>) -> bool {
        names.iter().any(|name| self.names.contains(*name))
    }

    fn judge(&self, context: &Context<'_>) -> Way {
        plan(&self.statement, context).map_or(Way::Refused, |planned| Way::of(&planned))
    }
}

fn add_names(tree: &NodeEnum, names: &mut BTreeSet<String>) {
    let read = match tree {
        NodeEnum::RangeVar(range) => Some(range),
        _ => None,
    };
    names.extend(read.into_iter().chain(written(tree)).map(|range| range.relname.clone()));
    walk::read::children(tree, &mut |child| {
        if let Some(child) = &child.node {
            add_names(child, names);
        }
    });
}

/// How each statement would be run, in their order.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    ways: Vec<Way>,
}

impl Judged {
    pub(super) fn of(statements: &[Parsed], catalog: &Catalog, scope: &NameScope) -> Self {
        let context = Context::new(catalog, scope);
        Self { ways: statements.iter().map(|statement| statement.judge(&context)).collect() }
    }

    /// The same, where only statements that name one of these tables are planned anew.
    pub(super) fn again_where(
        &self,
        names: &BTreeSet<&str>,
        statements: &[Parsed],
        catalog: &Catalog,
        scope: &NameScope,
    ) -> Self {
        let context = Context::new(catalog, scope);
        let ways = self.ways.iter().zip(statements).map(|(way, statement)| {
            if statement.names_one_of(names) { statement.judge(&context) } else { *way }
        });
        Self { ways: ways.collect() }
    }

    pub(super) fn ways(&self) -> &[Way] {
        &self.ways
    }
}
