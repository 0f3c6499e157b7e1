//! EXPLAIN: for what one node runs, PostgreSQL's own output with a line of ours after it; else
//! Tutti's plan with what the nodes say about their parts.
//!
//! Owns: the answer's lines, and which statements the gateway describes itself.
//! Never: chooses a plan.

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{
    Access, Collect, CollectFrom, DataPlan, Explain, Gather, Plan, Planned, PreparedCommand,
    SessionPlan, Setting, TuttiCall,
};
use tutti_sql::planner::{explain_lines, unique_line};
use tutti_wire::backend::{ColumnDescription, put_data_row, put_row_description};

use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::executor::estimate::{Sizes, Way};
use crate::executor::filled::fill_template;
use crate::plans::request::{Call, Done};
use crate::transaction::settings::is_own_setting;

/// What the gateway answers by itself: `Some(None)`: no rows; `Some(columns)`: these.
/// `None`: a node describes the statement.
pub(crate) fn local_columns(plan: &Plan) -> Option<Option<Vec<ColumnDescription>>> {
    let plan = match plan {
        Plan::Data(DataPlan::Explain(explain)) if explain.text_format => {
            return Some(Some(query_plan()));
        }
        Plan::Data(_) | Plan::Schema(_) => return None,
        Plan::Session(plan) => plan,
    };
    let columns = match plan {
        // It may have a parameter.
        SessionPlan::Tutti(TuttiCall::Signal { .. }) => return None,
        SessionPlan::Tutti(function) => super::own_functions::columns_of(function),
        SessionPlan::Setting(Setting::Show { name }) if is_own_setting(name) => {
            vec![ColumnDescription::text(name)]
        }
        SessionPlan::PreparedCommand(PreparedCommand::Within { before, .. })
            if begins_with_explain(before) =>
        {
            query_plan()
        }
        SessionPlan::Transaction(_) | SessionPlan::PreparedCommand(_) | SessionPlan::Empty => {
            return Some(None);
        }
        _ => return None,
    };
    Some(Some(columns))
}

fn query_plan() -> Vec<ColumnDescription> {
    vec![ColumnDescription::text("QUERY PLAN")]
}

fn begins_with_explain(text: &str) -> bool {
    text.trim_start().get(..7).is_some_and(|word| word.eq_ignore_ascii_case("explain"))
}

impl Executor<'_> {
    pub(super) async fn explain(
        &mut self,
        explain: &Explain,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let of = &*explain.of;
        if !explain.text_format {
            // It is machine-readable: one document, of one node.
            let node = self.explained_node(of, call);
            return self.run_on_one(node, Access::Write, text, call).await;
        }
        // A cursor's query is explained, wherever it would be.
        let of_one = match &of.plan {
            Plan::Data(DataPlan::DeclareCursor { query, .. }) => &query.plan,
            plan => plan,
        };
        if let Plan::Data(DataPlan::One { node, access, otherwise }) = of_one {
            return match (self.choose(node, call), otherwise) {
                (None, Some(otherwise)) => {
                    self.explain_several(otherwise, explain, text, call).await
                }
                (node, _) => {
                    let node = node.unwrap_or(NodeId::HOME);
                    self.explain_one(node, *access, of, text, call).await
                }
            };
        }
        self.explain_several(of, explain, text, call).await
    }

    /// What PostgreSQL says, as it says it: tools read it. Ours is one more line at the end.
    async fn explain_one(
        &mut self,
        node: NodeId,
        access: Access,
        of: &Planned,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let mut lines = self.ask_explain(node, access, text, call).await?;
        lines.push(format!("Tutti: runs on node {node}: {}", of.why));
        lines.extend(unique_line(of).map(|line| format!("  {line}")));
        self.put_plan(lines, call)
    }

    /// `of`: the plan to show, the statement's own or what replaces it.
    async fn explain_several(
        &mut self,
        of: &Planned,
        Explain { statement, prefix, analyze, .. }: &Explain,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let mut lines = explain_lines(of);
        match &of.plan {
            Plan::Data(DataPlan::Scatter { access }) => {
                let nodes = match *analyze {
                    true => self.tx.catalog.nodes.clone(),
                    false => vec![NodeId::HOME],
                };
                if *analyze && *access == Access::Write {
                    self.need_transaction();
                }
                for node in nodes {
                    lines.push(format!("Node {node}:"));
                    lines.extend(indented(self.ask_explain(node, *access, text, call).await?));
                }
            }
            Plan::Data(DataPlan::Gather(gather)) => {
                if *analyze && (gather.access == Access::Write || gather.locks_rows()) {
                    return Err(explain_analyze_refused());
                }
                self.explain_collects(gather, prefix, call, &mut lines).await?;
            }
            _ if *analyze => return Err(explain_analyze_refused()),
            _ => {
                lines.push(format!("Node {}:", NodeId::HOME));
                let sql = format!("{prefix}{statement}");
                let shown = self.ask_explain(NodeId::HOME, Access::Read, &sql, call).await?;
                lines.extend(indented(shown));
            }
        }
        self.put_plan(lines, call)
    }

    fn put_plan(&mut self, lines: Vec<String>, call: &Call) -> Result<Done, Failure> {
        let rows = lines.into_iter().map(|line| vec![Some(line)]).collect::<Vec<_>>();
        self.put_rows(&query_plan(), &rows, call);
        Ok(Done::Tag("EXPLAIN".to_owned()))
    }

    fn explained_node(&self, of: &Planned, call: &Call) -> NodeId {
        match &of.plan {
            Plan::Data(DataPlan::One { node, .. }) => {
                self.choose(node, call).unwrap_or(NodeId::HOME)
            }
            _ => NodeId::HOME,
        }
    }

    async fn explain_collects(
        &mut self,
        gather: &Gather,
        prefix: &str,
        call: &Call,
        lines: &mut Vec<String>,
    ) -> Result<(), Failure> {
        if let Some(first) = &gather.first {
            // The rest is planned when they are known.
            let texts: Vec<_> = first.subqueries.iter().map(|of| of.text.as_str()).collect();
            lines
                .push(format!("Chosen, if these are numbers or times: first {}", texts.join("; ")));
            return Ok(());
        }
        let way = match &gather.partial {
            Some(_) => Way::gathering(),
            None => self.least_moving(gather, call).await?,
        };
        if let Some(brought) = way.brought {
            for collect in brought.collects() {
                let where_to = match collect.route {
                    Some(_) => "the node that each belongs to",
                    None => "every node",
                };
                let name = &collect.relation.name;
                lines.push(format!("Chosen by its rows: bring {name} to {where_to}"));
            }
            return self.explain_each(brought.collects(), way.sizes, prefix, call, lines).await;
        }
        if let Some(partial) = &gather.partial {
            lines.push("Parts of every node, here n1:".to_owned());
            let times = self.times_for([&partial.select]).await?;
            let sql = format!("{prefix}{}", fill_template(&partial.select, call, &times));
            lines.extend(indented(self.ask_explain(NodeId::HOME, Access::Read, &sql, call).await?));
            return Ok(());
        }
        self.explain_each(&gather.collects, way.sizes, prefix, call, lines).await
    }

    async fn explain_each(
        &mut self,
        collects: &[Collect],
        sizes: Option<Vec<Sizes>>,
        prefix: &str,
        call: &Call,
        lines: &mut Vec<String>,
    ) -> Result<(), Failure> {
        for (index, way) in self.rounds_of(collects, sizes, call).await?.into_iter().flatten() {
            let collect = &collects[index];
            let (node, on) = match &collect.from {
                CollectFrom::AllNodes => (NodeId::HOME, "on every node, here n1".to_owned()),
                CollectFrom::One(choice) => {
                    let node = self.choose(choice, call).unwrap_or(NodeId::HOME);
                    (node, format!("on {node}"))
                }
                CollectFrom::Returned(_) | CollectFrom::Moments => continue,
            };
            let name = &collect.relation.name;
            let select = match way.map(|way| &collect.reduced[way]) {
                None => {
                    lines.push(format!("Collect {name} {on}:"));
                    &collect.select
                }
                Some(reduced) => {
                    let by = &collects[reduced.by].relation.name;
                    lines.push(format!("Then collect {name}, what matches {by}, {on}, in place:"));
                    &reduced.expected
                }
            };
            let times = self.times_for([select]).await?;
            let sql = format!("{prefix}{}", fill_template(select, call, &times));
            lines.extend(indented(self.ask_explain(node, Access::Read, &sql, call).await?));
        }
        Ok(())
    }

    /// The lines of a plan that a node says.
    pub(super) async fn ask_explain(
        &mut self,
        node: NodeId,
        access: Access,
        sql: &str,
        call: &Call,
    ) -> Result<Vec<String>, Failure> {
        let rows = self.internal_rows(node, access, sql, call).await?;
        let line = |row: &Vec<Option<bytes::Bytes>>| {
            Some(String::from_utf8_lossy(row.first()?.as_ref()?).into_owned())
        };
        Ok(rows.iter().filter_map(line).collect())
    }

    /// Answers SHOW of a setting known only to the gateway.
    pub(crate) fn show(&mut self, name: &str, value: &str, call: &Call) {
        let rows = [vec![Some(value.to_owned())]];
        self.put_rows(&[ColumnDescription::text(name)], &rows, call);
    }

    /// Writes rows that the gateway has made itself.
    pub(super) fn put_rows(
        &mut self,
        columns: &[ColumnDescription],
        rows: &[Vec<Option<String>>],
        call: &Call,
    ) {
        let out = self.client.out();
        if !call.is_extended() {
            put_row_description(out, columns);
        }
        for row in rows {
            let values = row.iter().map(|value| value.as_ref().map(String::as_bytes));
            put_data_row(out, values.collect::<Vec<_>>().into_iter());
        }
    }
}

fn indented(lines: Vec<String>) -> impl Iterator<Item = String> {
    lines.into_iter().map(|line| format!("  {line}"))
}

fn explain_analyze_refused() -> Failure {
    Failure::unsupported(
        "EXPLAIN ANALYZE of this statement is not supported",
        "It runs in several steps on several nodes, and one of them writes.",
        "Use EXPLAIN without ANALYZE.",
    )
}
