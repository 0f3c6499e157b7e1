//! EXPLAIN: for what one node runs, PostgreSQL's own output with a line of ours after it; else one tree of what the
//! gateway does and what the nodes say about their parts.
//!
//! Owns: what the nodes are asked, and that ANALYZE runs the statement once, as it would run without it.
//! Never: chooses a plan.
//! Start reading at [`Executor::explain`].
//!
//! Where ANALYZE collects rows, these are collected as always and counted; the nodes are then asked to explain what they
//! have read, and read it once more. What runs finally, runs only as what is explained. Writes of which a node's answer is
//! needed to go on (an INSERT whose rows are dealt out, copies of replicated tables) run as always, without their answer
//! reaching the client: of these, nodes say what they expect.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{
    Access, Brought, Collect, CollectFrom, DataPlan, Explain, ExplainFormat, Gather, Partial, Plan,
    Planned, PreparedCommand, RequestCall, RunOn, SessionPlan, Setting, Template, TuttiCall,
};
use tutti_sql::planner::{entries_line, explain_lines};
use tutti_wire::backend::{ColumnDescription, put_data_row, put_row_description};
use tutti_wire::frame::{frame_len, take_frame};

use super::estimate::{Sizes, Way};
use super::fan_out::SnapshotNeed;
use super::filled::{fill_template, of_node};
use super::gather::Filled;
use super::plan_document::{document, written};
use super::plan_tree::{
    Branch, Exchange, Exchanges, Measured, NodePlan, Said, Wanted, milliseconds, nodes_in_words,
};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done, Rows};
use crate::transaction::settings::is_own_setting;

/// What the gateway answers by itself: `Some(None)`: no rows; `Some(columns)`: these.
/// `None`: a node describes the statement.
pub(crate) fn local_columns(plan: &Plan) -> Option<Option<Vec<ColumnDescription>>> {
    let plan = match plan {
        Plan::Data(DataPlan::Explain(explain)) => {
            return Some(Some(query_plan(explain.format)));
        }
        Plan::Data(_) | Plan::Schema(_) => return None,
        Plan::Session(plan) => plan,
    };
    let columns = match plan {
        // It may have a parameter.
        SessionPlan::Tutti(TuttiCall::Signal { .. }) => return None,
        SessionPlan::Tutti(
            TuttiCall::Place(_) | TuttiCall::Request(RequestCall::Commit { .. }),
        ) => return Some(None),
        SessionPlan::Tutti(function) => super::own_functions::columns_of(function),
        SessionPlan::Setting(Setting::Show { name }) if is_own_setting(name) => {
            vec![ColumnDescription::text(name)]
        }
        SessionPlan::PreparedCommand(PreparedCommand::Within { before, .. })
            if begins_with_explain(before) =>
        {
            query_plan(ExplainFormat::Text)
        }
        SessionPlan::Transaction(_) | SessionPlan::PreparedCommand(_) | SessionPlan::Empty => {
            return Some(None);
        }
        _ => return None,
    };
    Some(Some(columns))
}

fn query_plan(format: ExplainFormat) -> Vec<ColumnDescription> {
    let type_oid = format.type_oid();
    vec![ColumnDescription { type_oid, ..ColumnDescription::text("QUERY PLAN") }]
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
        // A cursor's query is explained, wherever it would be.
        let of_one = match &of.plan {
            Plan::Data(DataPlan::DeclareCursor { query, .. }) => &query.plan,
            plan => plan,
        };
        if let Plan::Data(DataPlan::One { node, access, otherwise }) = of_one {
            return match (self.choose(node, call), otherwise) {
                (None, Some(otherwise)) => self.explain_several(otherwise, explain, call).await,
                (node, _) => {
                    let node = node.unwrap_or(NodeId::HOME);
                    match explain.format {
                        ExplainFormat::Text => {
                            self.explain_one(node, *access, of, text, call).await
                        }
                        _ => self.run_on_one(node, *access, text, call).await,
                    }
                }
            };
        }
        self.explain_several(of, explain, call).await
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
        lines.extend(entries_line(of).map(|line| format!("  {line}")));
        Ok(self.put_plan(lines, ExplainFormat::Text, call))
    }

    /// `of`: the plan to show, the statement's own or what replaces it.
    async fn explain_several(
        &mut self,
        of: &Planned,
        explain: &Explain,
        call: &Call,
    ) -> Result<Done, Failure> {
        if explain.generic {
            return Err(Failure::unsupported(
                "EXPLAIN (GENERIC_PLAN) of a statement of several nodes is not supported",
                "Rows travel as parameters, beside which there are none without a value.",
                "Use EXPLAIN with values.",
            ));
        }
        let begun = Instant::now();
        let branch = match explain.analyze {
            true => self.run_explained(of, &explain.statement, explain, call).await,
            false => self.foresee(of, &explain.statement, explain, call).await,
        };
        // It would count in another text than the client's.
        let branch = branch.map_err(Failure::without_position)?;
        let wanted = Wanted { verbose: explain.verbose, times: explain.timing };
        let total = (explain.analyze && explain.summary).then(|| milliseconds(begun.elapsed()));
        let lines = match explain.format {
            ExplainFormat::Text => {
                let mut lines = branch.lines(wanted);
                lines.extend(total.map(|total| format!("Tutti: all of it took {total:.3} ms")));
                lines
            }
            format => vec![written(&document(&branch, explain.timing, total), format)],
        };
        Ok(self.put_plan(lines, explain.format, call))
    }

    fn put_plan(&mut self, lines: Vec<String>, format: ExplainFormat, call: &Call) -> Done {
        let rows = lines.into_iter().map(|line| vec![Some(line)]).collect::<Vec<_>>();
        self.put_rows(&query_plan(format), &rows, call);
        Done::Tag("EXPLAIN".to_owned())
    }

    /// The tree of a plan, of which nothing is run.
    async fn foresee(
        &mut self,
        of: &Planned,
        statement: &str,
        explain: &Explain,
        call: &Call,
    ) -> Result<Branch, Failure> {
        let mut branch = described(of, explain);
        match &of.plan {
            Plan::Data(DataPlan::Scatter { .. }) => {
                let texts = self.on_all(&format!("{}{statement}", explain.estimate_prefix));
                branch.said = self.said_of(&texts, Runs::Nothing, explain, call).await?;
            }
            Plan::Data(DataPlan::Gather(gather)) => {
                self.foresee_gather(gather, &mut branch, explain, call).await?;
            }
            Plan::Data(DataPlan::DeclareCursor { query, .. }) => {
                if let Plan::Data(DataPlan::Gather(gather)) = &query.plan {
                    self.foresee_gather(gather, &mut branch, explain, call).await?;
                }
            }
            _ => {
                let sql = format!("{}{statement}", explain.estimate_prefix);
                let texts = [(NodeId::HOME, sql)];
                branch.said = self.said_of(&texts, Runs::Nothing, explain, call).await?;
            }
        }
        Ok(branch)
    }

    async fn foresee_gather(
        &mut self,
        gather: &Gather,
        branch: &mut Branch,
        explain: &Explain,
        call: &Call,
    ) -> Result<(), Failure> {
        if let Some(first) = &gather.first {
            // The rest is planned when they are known.
            let texts: Vec<_> = first.subqueries.iter().map(|of| of.text.as_str()).collect();
            let chosen =
                format!("Chosen, if these are numbers or times: first {}", texts.join("; "));
            branch.details.push(chosen);
            return Ok(());
        }
        let way = match &gather.partial {
            Some(_) => Way::gathering(),
            None => self.least_moving(gather, call).await?,
        };
        let finally = match (way.brought, &gather.partial) {
            (Some(Brought::Rows { statement, collects }), _) => {
                branch.details.extend(chosen(collects));
                branch.below = self.foresee_each(collects, way.sizes, explain, call).await?;
                (statement, collects.len(), self.tx.catalog.nodes.clone())
            }
            (Some(Brought::Parts(partial)), _) | (None, Some(partial)) => {
                branch.details.extend(chosen(&partial.collects));
                let mut below = Vec::new();
                let all: Vec<&Partial> = partial.all().collect();
                for parts in all {
                    below.push(self.foresee_parts(parts, explain, call).await?);
                }
                below.extend(self.foresee_each(&partial.collects, way.sizes, explain, call).await?);
                branch.below = below;
                let gaps = partial.collects.len() + partial.width();
                (&partial.statement, gaps, self.final_nodes(gather, call))
            }
            (None, None) => {
                branch.below =
                    self.foresee_each(&gather.collects, way.sizes, explain, call).await?;
                (&gather.statement, gather.collects.len(), self.final_nodes(gather, call))
            }
        };
        let (statement, gaps, nodes) = finally;
        branch.said = self.said_without_rows(statement, gaps, &nodes, explain, call).await?;
        if !branch.said.is_empty() && 0 < gaps {
            branch
                .details
                .push("The final statement is planned for no rows, for none have come.".to_owned());
        }
        Ok(())
    }

    /// Where a final statement is planned.
    fn final_nodes(&self, gather: &Gather, call: &Call) -> Vec<NodeId> {
        match &gather.run_on {
            RunOn::One(choice) => vec![self.choose(choice, call).unwrap_or(NodeId::HOME)],
            RunOn::EachNode => self.tx.catalog.nodes.clone(),
            RunOn::Replicas { .. } | RunOn::Rows(_) => vec![NodeId::HOME],
        }
    }

    /// What nodes say of a statement into which no rows have come.
    async fn said_without_rows(
        &mut self,
        statement: &Template,
        gaps: usize,
        nodes: &[NodeId],
        explain: &Explain,
        call: &Call,
    ) -> Result<Vec<Said>, Failure> {
        if !call.can_carry(gaps) {
            return Ok(Vec::new());
        }
        let times = self.times_for([statement]).await?;
        let text = |node: &NodeId| {
            let template = of_node(statement, *node, &self.tx.catalog);
            let text = fill_template(&template, call, &times);
            (*node, format!("{}{text}", explain.estimate_prefix))
        };
        let texts: Vec<_> = nodes.iter().map(text).collect();
        let none = vec![Bytes::from_static(b"{}"); gaps];
        let carrying = match gaps {
            0 => call,
            _ => &call.carrying(Rows::Everywhere(none), self.travelling_bytes_max())?,
        };
        self.said_of(&texts, Runs::Nothing, explain, carrying).await
    }

    async fn foresee_parts(
        &mut self,
        partial: &Partial,
        explain: &Explain,
        call: &Call,
    ) -> Result<Branch, Failure> {
        let nodes = self.tx.catalog.nodes.clone();
        let gaps = partial.collects.len();
        let mut branch = parts_branch(&nodes);
        branch.said = self.said_without_rows(&partial.select, gaps, &nodes, explain, call).await?;
        Ok(branch)
    }

    /// What is collected, each by itself.
    async fn foresee_each(
        &mut self,
        collects: &[Collect],
        sizes: Option<Vec<Sizes>>,
        explain: &Explain,
        call: &Call,
    ) -> Result<Vec<Branch>, Failure> {
        let mut branches = Vec::new();
        for (index, way) in self.rounds_of(collects, sizes, call).await?.into_iter().flatten() {
            let collect = &collects[index];
            let nodes = match &collect.from {
                CollectFrom::AllNodes => self.tx.catalog.nodes.clone(),
                CollectFrom::One(choice) => vec![self.choose(choice, call).unwrap_or(NodeId::HOME)],
                CollectFrom::Returned(_) | CollectFrom::Moments => continue,
            };
            let title =
                format!("Collect {} from {}", collect.relation.name, nodes_in_words(&nodes));
            let mut branch = Branch::new("Tutti Collect", title);
            let select = match way.map(|way| &collect.reduced[way]) {
                None => &collect.select,
                Some(reduced) => {
                    let by = &collects[reduced.by].relation.name;
                    branch.title += &format!(", what matches {by}");
                    branch
                        .details
                        .push(format!("In its place, of what a node has of {by} itself:"));
                    &reduced.expected
                }
            };
            let times = self.times_for([select]).await?;
            let sql = format!("{}{}", explain.estimate_prefix, fill_template(select, call, &times));
            let texts: Vec<_> = nodes.iter().map(|node| (*node, sql.clone())).collect();
            branch.said = self.said_of(&texts, Runs::Nothing, explain, call).await?;
            branches.push(branch);
        }
        Ok(branches)
    }

    /// The tree of a plan that is carried out.
    async fn run_explained(
        &mut self,
        of: &Planned,
        statement: &str,
        explain: &Explain,
        call: &Call,
    ) -> Result<Branch, Failure> {
        let gather = match &of.plan {
            Plan::Data(DataPlan::Scatter { access }) => {
                if *access == Access::Write {
                    self.need_transaction();
                }
                let mut branch = described(of, explain);
                let texts = self.on_all(&format!("{}{statement}", explain.prefix));
                branch.said = self.said_of(&texts, Runs::Statement(*access), explain, call).await?;
                return Ok(branch);
            }
            Plan::Data(DataPlan::One { node, access, .. }) => {
                let mut branch = described(of, explain);
                let node = self.choose(node, call).unwrap_or(NodeId::HOME);
                let texts = [(node, format!("{}{statement}", explain.prefix))];
                branch.said = self.said_of(&texts, Runs::Statement(*access), explain, call).await?;
                return Ok(branch);
            }
            Plan::Data(DataPlan::Gather(gather))
                if matches!(gather.run_on, RunOn::One(_) | RunOn::EachNode) =>
            {
                gather
            }
            Plan::Data(DataPlan::DeclareCursor { query, .. }) => match &query.plan {
                Plan::Data(DataPlan::Gather(gather)) => gather,
                _ => return Err(explain_analyze_refused()),
            },
            Plan::Data(
                DataPlan::Gather(_)
                | DataPlan::Replicas { .. }
                | DataPlan::Rows(_)
                | DataPlan::Insert(_)
                | DataPlan::Move(_)
                | DataPlan::Steps(_),
            ) if of.unseen.is_none() => {
                return self.run_aside(of, statement, explain, call).await;
            }
            _ => return Err(explain_analyze_refused()),
        };
        self.run_gather_explained(of, gather, explain, call).await
    }

    async fn run_gather_explained(
        &mut self,
        of: &Planned,
        gather: &Gather,
        explain: &Explain,
        call: &Call,
    ) -> Result<Branch, Failure> {
        let mut branch = described(of, explain);
        if let Some(first) = &gather.first {
            let begun = Instant::now();
            if let Some((planned, statement)) = self.plan_computed_first(first, call).await? {
                let texts: Vec<_> = first.subqueries.iter().map(|of| of.text.as_str()).collect();
                branch.details.push(format!("Chosen: first {}", texts.join("; ")));
                branch.measured = Some(Measured {
                    rows: Some(first.subqueries.len() as u64),
                    bytes: None,
                    elapsed: begun.elapsed(),
                });
                let rest = self.run_explained(&planned, &statement.text, explain, call);
                branch.below.push(Box::pin(rest).await?);
                return Ok(branch);
            }
        }
        let exchanges = Exchanges { prefix: explain.prefix.clone(), done: Vec::new() };
        self.exchanges = Some(exchanges);
        let filled = self.fill_way(gather, call).await;
        let exchanges = self.exchanges.take().map(|exchanges| exchanges.done);
        let (texts, call) = match filled? {
            Filled::OnEach(text, call) => (self.on_all(&text), call),
            Filled::OfNodes(texts, call) => (texts, call),
            Filled::Finally(text, call) => {
                let nodes = self.final_nodes(gather, &call);
                (nodes.into_iter().map(|node| (node, text.clone())).collect(), call)
            }
            Filled::Received(..) => {
                let message = "rows that were to be explained have been passed on";
                return Err(Failure::error("XX000", message));
            }
        };
        for exchange in exchanges.into_iter().flatten() {
            branch.below.insert(0, branch_of(exchange, explain.format)?);
        }
        if gather.access == Access::Write && 1 < texts.len() {
            self.need_transaction();
        }
        let prefixed =
            texts.into_iter().map(|(node, text)| (node, format!("{}{text}", explain.prefix)));
        let texts: Vec<_> = prefixed.collect();
        branch.said = self.said_of(&texts, Runs::Statement(gather.access), explain, &call).await?;
        Ok(branch)
    }

    /// Runs the statement as always, and keeps from the client what it returns.
    async fn run_aside(
        &mut self,
        of: &Planned,
        statement: &str,
        explain: &Explain,
        call: &Call,
    ) -> Result<Branch, Failure> {
        let mut branch = Box::pin(self.foresee(of, statement, explain, call)).await?;
        branch
            .details
            .push("It was run as always: what nodes say below is what they expect.".to_owned());
        let begun = Instant::now();
        let around = self.client.take_capture();
        let bytes_max = self.travelling_bytes_max();
        self.client.begin_capture(bytes_max);
        self.tx.is_part = true;
        let ran = Box::pin(self.execute(of, statement, &call.returning_text())).await;
        self.tx.is_part = false;
        let kept = self.client.end_capture();
        self.client.resume_capture(around);
        let done = ran?;
        let elapsed = begun.elapsed();
        let mut rest = BytesMut::from(&kept.unwrap_or_default()[..]);
        while frame_len(&rest)?.is_some() {
            let Some(frame) = take_frame(&mut rest)? else { break };
            // The rest are notices, say.
            if !matches!(frame.tag(), b'D' | b'T' | b'C' | b'n') {
                self.client.out().extend_from_slice(frame.as_bytes());
            }
        }
        let rows = match &done {
            Done::Tag(tag) => tag.rsplit(' ').next().and_then(|rows| rows.parse().ok()),
            Done::Told | Done::Empty => None,
        };
        branch.measured = Some(Measured { rows, bytes: None, elapsed });
        Ok(branch)
    }

    fn on_all(&self, sql: &str) -> Vec<(NodeId, String)> {
        self.tx.catalog.nodes.iter().map(|node| (*node, sql.to_owned())).collect()
    }

    /// What nodes say of statements that explain.
    async fn said_of(
        &mut self,
        texts: &[(NodeId, String)],
        runs: Runs,
        explain: &Explain,
        call: &Call,
    ) -> Result<Vec<Said>, Failure> {
        let texts: Vec<_> = texts.iter().map(|(node, text)| (*node, text.as_str())).collect();
        let (access, need) = match runs {
            Runs::Nothing => (Access::Read, SnapshotNeed::Nothing),
            // EXPLAIN takes its snapshot when it is executed, as DECLARE does.
            Runs::Statement(access) => (access, SnapshotNeed::RowsOfCursor),
        };
        let rows = self.internal_rows_with(&texts, access, need, call).await?;
        let nodes = texts.iter().map(|(node, _)| *node);
        nodes.zip(rows).map(|(node, rows)| said(node, &rows, explain.format)).collect()
    }

    /// The lines of a plan that a node says.
    pub(super) async fn ask_explain(
        &mut self,
        node: NodeId,
        access: Access,
        sql: &str,
        call: &Call,
    ) -> Result<Vec<String>, Failure> {
        Ok(lines_of(&self.internal_rows(node, access, sql, call).await?))
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

fn branch_of(exchange: Exchange, format: ExplainFormat) -> Result<Branch, Failure> {
    let said = exchange.said.iter().map(|(node, rows)| said(*node, rows, format));
    Ok(Branch {
        kind: exchange.kind,
        said: said.collect::<Result<_, _>>()?,
        title: exchange.title,
        details: exchange.details,
        measured: Some(exchange.measured),
        below: Vec::new(),
    })
}

/// Whether a node that explains a statement runs it.
#[derive(Clone, Copy, Debug)]
enum Runs {
    Nothing,
    Statement(Access),
}

/// The plan in words, of which the first line is what it does, and the last why.
fn described(of: &Planned, explain: &Explain) -> Branch {
    let lines = explain_lines(of);
    let kind = match &of.plan {
        Plan::Data(DataPlan::Scatter { .. }) => "Tutti Scatter",
        Plan::Data(DataPlan::Gather(_) | DataPlan::DeclareCursor { .. }) => "Tutti Gather",
        Plan::Data(DataPlan::Insert(_)) => "Tutti Insert",
        Plan::Data(DataPlan::Steps(_)) => "Tutti Steps",
        _ => "Tutti Statement",
    };
    let mut lines = lines.into_iter();
    let mut branch = Branch::new(kind, lines.next().unwrap_or_default());
    let is_tree = matches!(&of.plan, Plan::Data(DataPlan::Gather(_)));
    // Of a tree the words say again what stands below, and which other ways there are.
    branch.details = match is_tree && !explain.verbose {
        true => vec![format!("Why: {}", of.why)],
        false => lines.map(|line| line.strip_prefix("  ").unwrap_or(&line).to_owned()).collect(),
    };
    branch
}

/// Which tables are brought to nodes, for there are other ways.
fn chosen(collects: &[Collect]) -> impl Iterator<Item = String> {
    collects.iter().map(|collect| {
        let to = match collect.route {
            Some(_) => "the node that each belongs to",
            None => "every node",
        };
        format!("Chosen by its rows: bring {} to {to}", collect.relation.name)
    })
}

/// What every node answers for its own rows.
fn parts_branch(nodes: &[NodeId]) -> Branch {
    Branch::new("Tutti Parts", format!("Parts of {}", nodes_in_words(nodes)))
}

fn said(node: NodeId, rows: &[Vec<Option<Bytes>>], format: ExplainFormat) -> Result<Said, Failure> {
    let lines = lines_of(rows);
    let plan = match format {
        ExplainFormat::Text => NodePlan::Lines(lines),
        _ => {
            let document: serde_json::Value = serde_json::from_str(&lines.join("\n"))
                .map_err(|error| Failure::error("XX000", format!("node {node}'s plan: {error}")))?;
            let first = document.get(0).cloned();
            NodePlan::Document(first.ok_or_else(|| {
                Failure::error("XX000", format!("node {node} said nothing of its plan"))
            })?)
        }
    };
    Ok(Said { node, plan })
}

fn lines_of(rows: &[Vec<Option<Bytes>>]) -> Vec<String> {
    let line = |row: &Vec<Option<Bytes>>| {
        Some(String::from_utf8_lossy(row.first()?.as_ref()?).into_owned())
    };
    rows.iter().filter_map(line).collect()
}

fn explain_analyze_refused() -> Failure {
    Failure::unsupported(
        "EXPLAIN ANALYZE of this statement is not supported",
        "It runs in several steps on several nodes, and one of them changes definitions or runs code that is not seen.",
        "Use EXPLAIN without ANALYZE.",
    )
}
