//! A plan over several nodes as a document: EXPLAIN's JSON, YAML and XML.
//!
//! Owns: the names of a document's parts, which are PostgreSQL's where it has one, so that what reads its documents
//! reads ours; and the three ways to write one.
//! Never: asks a node. What nodes have said stands in the tree as they said it.
//! Start reading at [`document`].

use serde_json::{Map, Value, json};
use tutti_sql::plan::ExplainFormat;

use super::plan_tree::{Branch, NodePlan, Said, milliseconds};

/// Estimates that a branch takes over from what is below it.
const COSTS: [&str; 4] = ["Startup Cost", "Total Cost", "Plan Rows", "Plan Width"];
/// What a branch is, where all nodes do the same below it: who reads documents looks for these at their top.
const WHAT: [&str; 4] = ["Operation", "Schema", "Relation Name", "Alias"];
const ACTUAL: [&str; 4] =
    ["Actual Startup Time", "Actual Total Time", "Actual Rows", "Actual Loops"];

/// The document of this tree; `total_ms`: how long all of it took, if that is to be shown.
pub(super) fn document(branch: &Branch, times: bool, total_ms: Option<f64>) -> Value {
    let mut query = Map::new();
    query.insert("Plan".to_owned(), value_of(branch, true, times));
    if let Some(total) = total_ms {
        query.insert("Execution Time".to_owned(), rounded(total));
    }
    Value::Array(vec![Value::Object(query)])
}

/// As PostgreSQL writes it in this format.
pub(super) fn written(document: &Value, format: ExplainFormat) -> String {
    match format {
        ExplainFormat::Yaml => {
            let mut text = String::new();
            add_yaml(document, 0, &mut text);
            text.trim_start_matches('\n').to_owned()
        }
        ExplainFormat::Xml => {
            let mut text =
                "<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n".to_owned();
            for query in document.as_array().into_iter().flatten() {
                add_xml("Query", query, 1, &mut text);
            }
            text + "</explain>"
        }
        ExplainFormat::Text | ExplainFormat::Json => {
            serde_json::to_string_pretty(document).unwrap_or_default()
        }
    }
}

fn rounded(number: f64) -> Value {
    json!((number * 1000.0).round() / 1000.0)
}

fn value_of(branch: &Branch, is_root: bool, times: bool) -> Value {
    let mut value = custom(branch.kind, is_root);
    let plans: Vec<Value> = (branch.said.iter().filter_map(of_node))
        .chain(branch.below.iter().map(|branch| value_of(branch, false, times)))
        .collect();
    let own = branch.said.iter().filter_map(|said| plan_of(&said.plan)).collect::<Vec<_>>();
    for key in WHAT {
        let mut of_nodes = own.iter().map(|plan| plan.get(key));
        let first = of_nodes.next().flatten();
        if let Some(first) = first.filter(|first| of_nodes.all(|other| other == Some(*first))) {
            value.insert(key.to_owned(), first.clone());
        }
    }
    for key in COSTS {
        let all = own.iter().filter_map(|plan| plan.get(key)?.as_f64());
        let all: Vec<f64> = all.collect();
        if all.is_empty() {
            continue;
        }
        let of_all = match key {
            "Plan Rows" | "Total Cost" => all.iter().sum(),
            _ => all.iter().copied().fold(0.0, f64::max),
        };
        let is_count = key.starts_with("Plan");
        value.insert(
            key.to_owned(),
            if is_count { json!(of_all.round() as i64) } else { rounded(of_all) },
        );
    }
    if branch.measured.is_none() {
        for key in ACTUAL {
            let all: Vec<_> = own.iter().filter_map(|plan| plan.get(key)?.as_f64()).collect();
            let most = all.iter().copied().fold(0.0, f64::max);
            match key {
                _ if all.is_empty() => continue,
                "Actual Rows" => {
                    value.insert(key.to_owned(), json!(all.iter().sum::<f64>() as i64))
                }
                "Actual Loops" => value.insert(key.to_owned(), json!(1)),
                _ => value.insert(key.to_owned(), rounded(most)),
            };
        }
    }
    if let Some(measured) = branch.measured {
        if times {
            value.insert("Actual Startup Time".to_owned(), json!(0.0));
            let elapsed = rounded(milliseconds(measured.elapsed));
            value.insert("Actual Total Time".to_owned(), elapsed);
        }
        if let Some(rows) = measured.rows {
            value.insert("Actual Rows".to_owned(), json!(rows));
        }
        value.insert("Actual Loops".to_owned(), json!(1));
        if let Some(bytes) = measured.bytes {
            value.insert("Bytes".to_owned(), json!(bytes));
        }
    }
    value.insert("Description".to_owned(), json!(branch.title));
    if !branch.details.is_empty() {
        value.insert("Details".to_owned(), json!(branch.details));
    }
    let nodes: Vec<u16> = branch.said.iter().map(|said| said.node.0).collect();
    if !nodes.is_empty() {
        value.insert("Nodes".to_owned(), json!(nodes));
    }
    if !plans.is_empty() {
        value.insert("Plans".to_owned(), Value::Array(plans));
    }
    Value::Object(value)
}

/// What stands for a branch that is none of PostgreSQL's, in its documents.
fn custom(kind: &str, is_root: bool) -> Map<String, Value> {
    let mut value = Map::new();
    value.insert("Node Type".to_owned(), json!("Custom Scan"));
    if !is_root {
        value.insert("Parent Relationship".to_owned(), json!("Outer"));
    }
    value.insert("Custom Plan Provider".to_owned(), json!(kind));
    value.insert("Parallel Aware".to_owned(), json!(false));
    value.insert("Async Capable".to_owned(), json!(false));
    value
}

fn plan_of(plan: &NodePlan) -> Option<&Map<String, Value>> {
    match plan {
        NodePlan::Document(document) => document.get("Plan")?.as_object(),
        NodePlan::Lines(_) => None,
    }
}

/// A node's plan, below a branch that says which node it is, with what the node says of the whole.
fn of_node(Said { node, plan }: &Said) -> Option<Value> {
    let NodePlan::Document(document) = plan else { return None };
    let mut value = custom("Tutti Node", false);
    value.insert("Node".to_owned(), json!(node.0));
    let own = plan_of(plan);
    for key in COSTS.into_iter().chain(ACTUAL) {
        if let Some(known) = own.and_then(|own| own.get(key)) {
            value.insert(key.to_owned(), known.clone());
        }
    }
    for (key, said) in document.as_object().into_iter().flatten() {
        if key != "Plan" {
            value.insert(key.clone(), said.clone());
        }
    }
    if let Some(own) = own {
        let mut own = own.clone();
        own.entry("Parent Relationship").or_insert(json!("Outer"));
        value.insert("Plans".to_owned(), json!([own]));
    }
    Some(Value::Object(value))
}

/// In PostgreSQL's manner every text is in double quotes, as in JSON.
fn add_yaml(value: &Value, depth: usize, text: &mut String) {
    let margin = "  ".repeat(depth);
    match value {
        Value::Array(items) => {
            for item in items {
                text.push('\n');
                text.push_str(&margin);
                text.push_str("- ");
                match item {
                    Value::Object(map) => add_yaml_map(map, depth + 1, true, text),
                    Value::Array(_) => add_yaml(item, depth + 1, text),
                    scalar => text.push_str(&scalar.to_string()),
                }
            }
        }
        Value::Object(map) => add_yaml_map(map, depth, false, text),
        scalar => text.push_str(&scalar.to_string()),
    }
}

fn add_yaml_map(map: &Map<String, Value>, depth: usize, in_line: bool, text: &mut String) {
    let mut in_line = in_line;
    for (key, value) in map {
        if !std::mem::take(&mut in_line) {
            text.push('\n');
            text.push_str(&"  ".repeat(depth));
        }
        text.push_str(key);
        text.push_str(": ");
        match value {
            Value::Array(items) if items.is_empty() => text.push_str("[]"),
            Value::Object(map) if map.is_empty() => text.push_str("{}"),
            value => add_yaml(value, depth + 1, text),
        }
    }
}

fn add_xml(name: &str, value: &Value, depth: usize, text: &mut String) {
    let margin = "  ".repeat(depth);
    let tag: String = name
        .chars()
        .map(|char| if char.is_ascii_alphanumeric() || "-_.".contains(char) { char } else { '-' })
        .collect();
    match value {
        Value::Array(items) => {
            text.push_str(&format!("{margin}<{tag}>\n"));
            for item in items {
                let of_many = match item {
                    // `Plans` have a `Plan` each.
                    Value::Object(_) => name.strip_suffix('s').unwrap_or("Item"),
                    _ => "Item",
                };
                add_xml(of_many, item, depth + 1, text);
            }
            text.push_str(&format!("{margin}</{tag}>\n"));
        }
        Value::Object(map) => {
            text.push_str(&format!("{margin}<{tag}>\n"));
            map.iter().for_each(|(key, value)| add_xml(key, value, depth + 1, text));
            text.push_str(&format!("{margin}</{tag}>\n"));
        }
        Value::String(said) => {
            text.push_str(&format!("{margin}<{tag}>{}</{tag}>\n", escaped(said)));
        }
        scalar => text.push_str(&format!("{margin}<{tag}>{scalar}</{tag}>\n")),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\r', "&#x0d;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tutti_sql::catalog::NodeId;

    use super::*;
    use crate::executor::plan_tree::Measured;

    fn tree() -> Branch {
        let of_node = json!({
            "Plan": {"Node Type": "Seq Scan", "Relation Name": "t", "Total Cost": 1.5, "Plan Rows": 7, "Plan Width": 4,
                "Filter": "(a < '\"')", "Output": ["a", "b"]},
            "Triggers": [],
        });
        let said = |node| Said { node: NodeId(node), plan: NodePlan::Document(of_node.clone()) };
        let measured =
            Measured { rows: Some(9), bytes: Some(80), elapsed: Duration::from_millis(2) };
        Branch {
            measured: Some(measured),
            said: vec![said(1), said(2)],
            ..Branch::new("Tutti Collect", "Collect t from n1-n2")
        }
    }

    #[test]
    fn branches_are_custom_scans_over_the_nodes_plans() {
        let document = document(&tree(), true, Some(3.0));
        let plan = &document[0]["Plan"];
        assert_eq!(document[0]["Execution Time"], 3.0);
        assert_eq!(plan["Node Type"], "Custom Scan");
        assert_eq!(plan["Relation Name"], "t");
        assert_eq!(plan["Plan Rows"], 14);
        assert_eq!(plan["Total Cost"], 3.0);
        assert_eq!(plan["Actual Rows"], 9);
        assert_eq!(plan["Bytes"], 80);
        assert_eq!(plan["Plans"][1]["Node"], 2);
        assert_eq!(plan["Plans"][1]["Plans"][0]["Filter"], "(a < '\"')");
    }

    #[test]
    fn yaml_and_xml_are_written_as_postgresql_does() {
        let small = json!([{"Plan": {"Node Type": "A", "I/O Time": 1.5, "Output": ["a<b"], "Plans": [{"Node": 1}]}}]);
        let yaml = "- Plan: \n    Node Type: \"A\"\n    I/O Time: 1.5\n    Output: \n      - \"a<b\"\n    \
             Plans: \n      - Node: 1";
        assert_eq!(written(&small, ExplainFormat::Yaml), yaml);
        let xml = "<explain xmlns=\"http://www.postgresql.org/2009/explain\">\n  <Query>\n    <Plan>\n      \
             <Node-Type>A</Node-Type>\n      <I-O-Time>1.5</I-O-Time>\n      <Output>\n        \
             <Item>a&lt;b</Item>\n      </Output>\n      <Plans>\n        <Plan>\n          <Node>1</Node>\n        \
             </Plan>\n      </Plans>\n    </Plan>\n  </Query>\n</explain>";
        assert_eq!(written(&small, ExplainFormat::Xml), xml);
    }
}
