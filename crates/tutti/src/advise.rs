//! `tutti advise`: shows which tables to spread, and by which column.
//!
//! Owns: reading a server's log, and laying out what is proposed.
//! Never: decides what is proposed (`tutti_gateway::advice` does), asks a server, or changes anything.
//! Start reading at [`advise`].

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde_json::json;
use tutti_gateway::advice::{self, Advice, Asked, Choice, TableAdvice, Way};
use tutti_gateway::catalog::{quote_identifier, quote_literal};
use tutti_gateway::workload;

use crate::{AdviseArgs, operate, up};

/// So many statements are shown of those that cost more than one node's work.
const SHOWN: usize = 10;
/// Of each so much.
const SHOWN_CHARS: usize = 100;

pub(crate) async fn advise(args: AdviseArgs) -> anyhow::Result<()> {
    let AdviseArgs { cluster, log, nodes, json } = args;
    let config = match cluster.config {
        Some(path) => operate::read_config(&path)?,
        None => up::config_of_directory(cluster.data)?,
    };
    let node_count = nodes.unwrap_or_else(|| u16::try_from(config.nodes.len()).unwrap_or(2).max(2));
    let known = workload(&config).await.context("cannot ask node 1")?;
    let (asked, source) = match (log, known.asked) {
        (Some(path), _) => (read_log(&path)?, path.display().to_string()),
        (None, Some(asked)) => (asked, "pg_stat_statements of node 1".to_owned()),
        (None, None) => bail!(
            "node 1 has no pg_stat_statements: put it into shared_preload_libraries, CREATE EXTENSION, and let \
             the application run for a while; or give a log with --log"
        ),
    };
    ensure!(!asked.is_empty(), "there are no statements in {source}");
    let advice = advice::advise(&known.catalog, &known.scope, &known.facts, &asked, node_count);
    match json {
        true => println!("{}", serde_json::to_string_pretty(&as_json(&advice, &asked))?),
        false => print!("{}", as_text(&advice, &asked, &source, node_count)),
    }
    Ok(())
}

/// Statements of a log, in the format that `log_statement` and `log_min_duration_statement` write, whatever
/// `log_line_prefix` is.
fn read_log(path: &Path) -> anyhow::Result<Vec<Asked>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(statements_of(&String::from_utf8_lossy(&bytes)))
}

fn statements_of(log: &str) -> Vec<Asked> {
    let mut counted: HashMap<String, f64> = HashMap::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(message) = line.split_once("LOG:  ").map(|(_, message)| message) else { continue };
        // `duration: 0.1 ms  ` may come before, `parse` and `bind` are no execution.
        let message = match message.strip_prefix("duration: ") {
            Some(timed) => timed.split_once(" ms  ").map_or("", |(_, message)| message),
            None => message,
        };
        let text = match message.split_once(": ") {
            Some((kind, text)) if kind == "statement" || kind.starts_with("execute ") => text,
            _ => continue,
        };
        let mut text = text.to_owned();
        // Further lines of one message begin with a tab.
        while let Some(more) = lines.next_if(|line| line.starts_with('\t')) {
            text.push('\n');
            text.push_str(&more[1..]);
        }
        *counted.entry(text).or_default() += 1.0;
    }
    let mut asked: Vec<_> =
        counted.into_iter().map(|(text, calls)| Asked { text, calls }).collect();
    asked.sort_by(|a, b| b.calls.total_cmp(&a.calls).then_with(|| a.text.cmp(&b.text)));
    asked
}

fn as_text(advice: &Advice, asked: &[Asked], source: &str, node_count: u16) -> String {
    let mut text = String::new();
    let calls: f64 = asked.iter().map(|of| of.calls).sum();
    let _ = writeln!(
        text,
        "{} statements, {calls} calls, from {source}; for {node_count} nodes:\n",
        asked.len()
    );
    let width = advice.tables.iter().map(|of| name(of).len()).max().unwrap_or(0);
    for of in &advice.tables {
        let _ = writeln!(text, "  {:width$}  {}", name(of), placed(of));
        for need in &of.needs {
            let _ = writeln!(text, "  {:width$}  needs {need}", "");
        }
    }
    text.push_str("\nCalls would be run by\n");
    for way in Way::ALL {
        let share = advice.share(asked, way) * 100.0;
        if 0.0 < share {
            let _ = writeln!(text, "  {share:5.1} %  {}", way.words());
        }
    }
    if 0 < advice.unread {
        let _ = writeln!(text, "  ({} statements could not be read)", advice.unread);
    }
    let mut dear: Vec<_> =
        advice.statements.iter().filter(|(_, way)| *way != Way::OneNode).collect();
    dear.sort_by(|a, b| asked[b.0].calls.total_cmp(&asked[a.0].calls));
    if !dear.is_empty() {
        text.push_str("\nNot by one node alone:\n");
    }
    for (index, way) in dear.iter().take(SHOWN) {
        let share = asked[*index].calls / calls * 100.0;
        let shown = asked[*index].text.split_whitespace().collect::<Vec<_>>().join(" ");
        let cut: String = shown.chars().take(SHOWN_CHARS).collect();
        let _ = writeln!(text, "  {share:5.1} %  {}: {cut}", way.words());
    }
    text.push_str("\nCommands:\n");
    for command in commands(advice) {
        let _ = writeln!(text, "  {command}");
    }
    text
}

fn as_json(advice: &Advice, asked: &[Asked]) -> serde_json::Value {
    let tables = advice.tables.iter().map(|of| {
        let key = match of.choice {
            Choice::Key(key) => json!(of.relation.columns[key].name),
            Choice::Replicated => json!(null),
        };
        let placement = if key.is_null() { "replicated" } else { "hash" };
        json!({"table": name(of), "placement": placement, "key": key, "needs": of.needs})
    });
    let shares = Way::ALL.map(|way| (way.words().to_owned(), json!(advice.share(asked, way))));
    let statements = advice.statements.iter().map(|(index, way)| {
        json!({"statement": asked[*index].text, "calls": asked[*index].calls, "way": way.words()})
    });
    json!({
        "tables": tables.collect::<Vec<_>>(),
        "shares": serde_json::Map::from_iter(shares),
        "statements": statements.collect::<Vec<_>>(),
        "unread": advice.unread,
        "commands": commands(advice),
    })
}

fn name(of: &TableAdvice) -> String {
    match of.relation.schema.as_str() {
        "public" => quote_identifier(&of.relation.name),
        _ => of.relation.sql_name(),
    }
}

fn placed(of: &TableAdvice) -> String {
    match of.choice {
        Choice::Key(key) => format!("by {}", of.relation.columns[key].name),
        Choice::Replicated => "on every node".to_owned(),
    }
}

/// Copies first, for others may refer to them; those that are spread by their keys together, for they may refer to each
/// other.
fn commands(advice: &Advice) -> Vec<String> {
    let mut commands = Vec::new();
    let mut spread = Vec::new();
    for of in &advice.tables {
        let table = quote_literal(&name(of));
        match of.choice {
            Choice::Replicated => commands.push(format!("SELECT tutti_replicate({table});")),
            Choice::Key(key) => {
                spread.push(format!("{table}, {}", quote_literal(&of.relation.columns[key].name)));
            }
        }
    }
    if !spread.is_empty() {
        commands.push(format!("SELECT tutti_distribute({});", spread.join(", ")));
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_found_in_logs_of_any_prefix() {
        let log = "\
2026-11-28 01:00:00.000 UTC [7] LOG:  statement: SELECT 1
\tFROM t
2026-11-28 01:00:00.000 UTC [7] user@db LOG:  duration: 0.034 ms  statement: SELECT 2
7 LOG:  duration: 0.011 ms  parse <unnamed>: SELECT 3
7 LOG:  duration: 0.011 ms  execute <unnamed>: SELECT x FROM t WHERE id = $1
7 DETAIL:  parameters: $1 = '5'
7 LOG:  execute s1/c1: SELECT x FROM t WHERE id = $1
7 LOG:  duration: 3.1 ms
7 ERROR:  no statement: of ours
";
        let found = statements_of(log);
        let shown: Vec<_> = found.iter().map(|of| (of.text.as_str(), of.calls)).collect();
        assert_eq!(
            shown,
            [("SELECT x FROM t WHERE id = $1", 2.0), ("SELECT 1\nFROM t", 1.0), ("SELECT 2", 1.0)]
        );
    }
}
