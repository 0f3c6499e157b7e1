//! A plan over several nodes as one tree, and the tree as EXPLAIN's text.
//!
//! Owns: what a branch of it shows, and the text format's lines.
//! Never: asks a node, or measures.
//! Start reading at [`Branch`]; the other formats are `plan_document.rs`.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tutti_sql::catalog::NodeId;

/// What the gateway does, over what nodes do below it.
#[derive(Debug)]
pub(super) struct Branch {
    /// As PostgreSQL's documents name what is not its own: a kind of scan.
    pub(super) kind: &'static str,
    /// What it does, for people.
    pub(super) title: String,
    /// What else there is to say of it.
    pub(super) details: Vec<String>,
    /// What it was, if it was run.
    pub(super) measured: Option<Measured>,
    /// What nodes do for it.
    pub(super) said: Vec<Said>,
    /// What comes before it.
    pub(super) below: Vec<Self>,
}

/// How much came, and how long that took, as seen by the gateway.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Measured {
    /// Where they were counted.
    pub(super) rows: Option<u64>,
    /// Where rows travel.
    pub(super) bytes: Option<u64>,
    pub(super) elapsed: Duration,
}

/// What has been brought together, in the order in which it was, while a statement is explained and carried out.
#[derive(Debug)]
pub(crate) struct Exchanges {
    /// With which nodes are asked to explain what they have read.
    pub(super) prefix: String,
    pub(super) done: Vec<Exchange>,
}

/// What has been brought together at once, and what the nodes say of it, as they said it.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) kind: &'static str,
    pub(super) title: String,
    pub(super) details: Vec<String>,
    pub(super) measured: Measured,
    pub(super) said: Vec<(NodeId, Vec<Vec<Option<Bytes>>>)>,
}

/// A node's own plan of what it does.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) node: NodeId,
    pub(super) plan: NodePlan,
}

/// As it was asked for.
#[derive(Debug)]
pub(super) enum NodePlan {
    /// FORMAT TEXT.
    Lines(Vec<String>),
    /// FORMAT JSON: what is within its list.
    Document(Value),
}

/// What the client wants to see.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Every node's plan, also where it is as another's.
    pub(super) verbose: bool,
    /// How long each branch took.
    pub(super) times: bool,
}

impl Branch {
    pub(super) fn new(kind: &'static str, title: impl Into<String>) -> Self {
        Self {
            kind,
            title: title.into(),
            details: Vec::new(),
            measured: None,
            said: Vec::new(),
            below: Vec::new(),
        }
    }

    /// As text, one line each.
    pub(super) fn lines(&self, wanted: Wanted) -> Vec<String> {
        let mut lines = Vec::new();
        self.add_lines(wanted, 0, &mut lines);
        lines
    }

    fn add_lines(&self, wanted: Wanted, depth: usize, lines: &mut Vec<String>) {
        let measured = self.measured.map(|measured| measured.words(wanted)).unwrap_or_default();
        let (arrow, margin) = match depth {
            0 => (String::new(), "  ".to_owned()),
            _ => (format!("{}->  ", " ".repeat(depth * 6 - 4)), " ".repeat(depth * 6 + 2)),
        };
        lines.push(format!("{arrow}{}{measured}", self.title));
        lines.extend(self.details.iter().map(|detail| format!("{margin}{detail}")));
        let mut shown: Vec<(NodeId, String)> = Vec::new();
        for Said { node, plan } in &self.said {
            let NodePlan::Lines(plan) = plan else { continue };
            let shape = shape(plan);
            match shown.iter().find(|(_, known)| *known == shape && !wanted.verbose) {
                Some((first, _)) => {
                    lines.push(format!("{margin}Node {node}: as node {first}{}", numbers(plan)));
                }
                None => {
                    lines.push(format!("{margin}Node {node}:"));
                    lines.extend(plan.iter().map(|line| format!("{margin}  {line}")));
                    shown.push((*node, shape));
                }
            }
        }
        self.below.iter().for_each(|branch| branch.add_lines(wanted, depth + 1, lines));
    }
}

impl Measured {
    /// In the manner of PostgreSQL's own.
    fn words(self, wanted: Wanted) -> String {
        let rows = self.rows.map(|rows| format!(" rows={rows}")).unwrap_or_default();
        let bytes = self.bytes.map(|bytes| format!(" bytes={bytes}")).unwrap_or_default();
        let time = match wanted.times {
            true => format!(" time={:.3} ms", milliseconds(self.elapsed)),
            false => String::new(),
        };
        format!("  (actual{rows}{bytes}{time})")
    }
}

pub(super) fn milliseconds(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1000.0
}

/// Nodes, as `n1-n3` where they are neighbours.
pub(super) fn nodes_in_words(nodes: &[NodeId]) -> String {
    let are_neighbours = nodes.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0);
    match nodes {
        [first, _, .., last] if are_neighbours => format!("{first}-{last}"),
        _ => nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// What tells a plan that was run from another that is like it.
fn numbers(plan: &[String]) -> String {
    let actual = plan.first().and_then(|line| line.rfind("(actual ").map(|at| &line[at..]));
    let time = plan.iter().find(|line| line.starts_with("Execution Time"));
    let time = time.map(|line| format!(", {line}")).unwrap_or_default();
    let actual = actual.map(|actual| format!(" {actual}")).unwrap_or_default();
    format!("{actual}{time}")
}

/// A plan without its numbers.
fn shape(plan: &[String]) -> String {
    let text = plan.join("\n");
    text.chars().filter(|char| !char.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(node: u16, lines: &[&str]) -> Said {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        Said { node: NodeId(node), plan: NodePlan::Lines(lines) }
    }

    fn tree() -> Branch {
        let measured =
            Measured { rows: Some(20), bytes: Some(300), elapsed: Duration::from_micros(1500) };
        let collect = Branch {
            measured: Some(measured),
            said: vec![
                said(1, &["Seq Scan on t  (cost=0.00..1.10 rows=10 width=4)"]),
                said(
                    2,
                    &["Seq Scan on t  (cost=0.00..1.25 rows=25 width=4)", "Execution Time: 2 ms"],
                ),
                said(3, &["Seq Scan on t  (cost=0.00..1.30 rows=30 width=4)"]),
                said(
                    5,
                    &[
                        "Seq Scan on t  (cost=0.00..1.30 rows=3 width=4) (actual rows=4 loops=1)",
                        "Execution Time: 1 ms",
                    ],
                ),
                said(
                    6,
                    &[
                        "Seq Scan on t  (cost=0.00..1.30 rows=3 width=4) (actual rows=7 loops=1)",
                        "Execution Time: 3 ms",
                    ],
                ),
                said(4, &["Index Scan using t_i on t  (cost=0.00..1.00 rows=1 width=4)"]),
            ],
            ..Branch::new("Tutti Collect", "Collect t from n1-n4")
        };
        Branch {
            details: vec!["Why: so".to_owned()],
            said: vec![said(1, &["Aggregate", "  ->  Function Scan on unnest"])],
            below: vec![collect],
            ..Branch::new("Tutti Gather", "Tutti: gather, then read on node 1")
        }
    }

    #[test]
    fn plans_that_differ_in_numbers_alone_are_shown_once() {
        let shown = tree().lines(Wanted { verbose: false, times: true }).join("\n");
        let expected = "\
Tutti: gather, then read on node 1
  Why: so
  Node n1:
    Aggregate
      ->  Function Scan on unnest
  ->  Collect t from n1-n4  (actual rows=20 bytes=300 time=1.500 ms)
        Node n1:
          Seq Scan on t  (cost=0.00..1.10 rows=10 width=4)
        Node n2:
          Seq Scan on t  (cost=0.00..1.25 rows=25 width=4)
          Execution Time: 2 ms
        Node n3: as node n1
        Node n5:
          Seq Scan on t  (cost=0.00..1.30 rows=3 width=4) (actual rows=4 loops=1)
          Execution Time: 1 ms
        Node n6: as node n5 (actual rows=7 loops=1), Execution Time: 3 ms
        Node n4:
          Index Scan using t_i on t  (cost=0.00..1.00 rows=1 width=4)";
        assert_eq!(shown, expected);
    }

    #[test]
    fn verbose_shows_all_and_timing_can_be_off() {
        let shown = tree().lines(Wanted { verbose: true, times: false }).join("\n");
        assert!(shown.contains("(actual rows=20 bytes=300)"), "{shown}");
        assert!(shown.contains("rows=30"), "{shown}");
    }

    #[test]
    fn neighbours_are_a_range() {
        let words =
            |nodes: &[u16]| nodes_in_words(&nodes.iter().copied().map(NodeId).collect::<Vec<_>>());
        assert_eq!(words(&[1]), "n1");
        assert_eq!(words(&[1, 2]), "n1, n2");
        assert_eq!(words(&[1, 2, 3]), "n1-n3");
        assert_eq!(words(&[1, 3]), "n1, n3");
    }
}
