//! The gateway's own SQL means one thing whatever a client's search path says: read from the source.
//!
//! Much of it runs on clients' connections, under their search path, their settings and their rights. A bare
//! operator, function, type or table there is the first one in the path, whoever owns it. So all of it names
//! the schema; what runs on connections of the gateway's own, whose path is `pg_catalog`, is listed here by
//! file, and functions of the schema `tutti` set the path themselves.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Where SQL runs on connections of the gateway's own only, or under a path that it has set itself.
const OWN_CONNECTIONS: [(&str, &str); 27] = [
    ("cluster/src/audit", "own connections"),
    ("cluster/src/catalog/code.rs", "read by load.rs"),
    ("cluster/src/catalog/functions.rs", "read by load.rs"),
    ("cluster/src/catalog/load.rs", "sets search_path = pg_catalog behind a savepoint"),
    ("cluster/src/catalog/schema.rs", "made by the gateway's role; its functions set their path"),
    (
        "cluster/src/catalog/share/mod.rs",
        "own connections; else functions of the schema tutti alone",
    ),
    ("cluster/src/catalog/seals.rs", "own connections"),
    ("gateway/src/monitor/wait_edges.rs", "own connections"),
    ("gateway/src/executor/fan_out.rs", "own connections"),
    ("cluster/src/commit/decision_log.rs", "own connections"),
    ("cluster/src/setup/adopt.rs", "own connections"),
    ("cluster/src/setup/mod.rs", "own connections"),
    ("link/src/connection/control.rs", "own connections"),
    ("link/src/availability.rs", "a connection that nobody has used, before it has a session"),
    ("gateway/src/plans/tests.rs", "clients' statements, of tests"),
    ("cluster/src/recovery/mod.rs", "own connections"),
    ("cluster/src/recovery/driver.rs", "own connections"),
    ("cluster/src/recovery/forget.rs", "own connections"),
    ("cluster/src/recovery/outcome.rs", "own connections"),
    ("gateway/src/registry/role.rs", "own connections"),
    ("cluster/src/authority/sentinels.rs", "own connections"),
    ("gateway/src/transaction/begun_with.rs", "own connections"),
    ("gateway/src/transaction/placement_change.rs", "own connections"),
    ("cluster/src/status.rs", "own connections"),
    ("cluster/src/workload.rs", "own connections"),
    ("link/src/spool.rs", "own connections"),
    ("sql/src/planner/fixture.rs", "clients' statements, of tests"),
];

/// What begins as a statement does and is the name of one in an error, as PostgreSQL says it.
const NO_SQL: [&str; 1] = ["SELECT FOR UPDATE/SHARE"];

/// Words of the grammar itself, which are no functions.
const WORDS: [&str; 38] = [
    "all",
    "and",
    "any",
    "array",
    "as",
    "by",
    "case",
    "cast",
    "coalesce",
    "conflict",
    "cube",
    "current_user",
    "else",
    "end",
    "exists",
    "filter",
    "from",
    "greatest",
    "in",
    "into",
    "json",
    "lateral",
    "least",
    "limit",
    "not",
    "on",
    "operator",
    "or",
    "over",
    "returning",
    "row",
    "rows",
    "select",
    "session_user",
    "then",
    "values",
    "when",
    "where",
];

/// A token of SQL.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Token {
    Word(String),
    Literal,
    Operator(String),
    Other(char),
}

/// Cuts SQL; what `format!` fills in is the word `tutti_gap`.
fn tokens(sql: &str) -> Vec<Token> {
    let chars: Vec<char> = sql.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if c.is_whitespace() {
            at += 1;
        } else if c.is_alphabetic() || c == '_' {
            let start = at;
            while at < chars.len() && (chars[at].is_alphanumeric() || chars[at] == '_') {
                at += 1;
            }
            tokens.push(Token::Word(chars[start..at].iter().collect::<String>().to_lowercase()));
        } else if c.is_ascii_digit() {
            while at < chars.len() && (chars[at].is_alphanumeric() || chars[at] == '.') {
                at += 1;
            }
            tokens.push(Token::Literal);
        } else if c == '\'' || c == '"' {
            at += 1;
            while at < chars.len() && chars[at] != c {
                at += 1;
            }
            at += 1;
            tokens.push(if c == '"' { Token::Word("quoted".to_owned()) } else { Token::Literal });
        } else if c == '-' && chars.get(at + 1) == Some(&'-') {
            while at < chars.len() && chars[at] != '\n' {
                at += 1;
            }
        } else if c == ':' && chars.get(at + 1) == Some(&':') {
            tokens.push(Token::Operator("::".to_owned()));
            at += 2;
        } else if "+-*/<>=~!@#%^&|?".contains(c) {
            let start = at;
            while at < chars.len() && "+-*/<>=~!@#%^&|?".contains(chars[at]) {
                at += 1;
            }
            tokens.push(Token::Operator(chars[start..at].iter().collect()));
        } else {
            tokens.push(Token::Other(c));
            at += 1;
        }
    }
    tokens
}

/// What in a piece of SQL the search path decides.
fn loose(sql: &str) -> Vec<String> {
    let tokens = tokens(sql);
    let word = |at: Option<usize>| match at.and_then(|at| tokens.get(at)) {
        Some(Token::Word(word)) => word.as_str(),
        _ => "",
    };
    let is =
        |at: Option<usize>, c: char| at.and_then(|at| tokens.get(at)) == Some(&Token::Other(c));
    let mut found = Vec::new();
    let mut sets = false;
    for (at, token) in tokens.iter().enumerate() {
        let (before, next) = (at.checked_sub(1), Some(at + 1));
        let is_qualified = is(before, '.');
        match token {
            Token::Operator(operator) if operator == "::" => {
                let of_schema =
                    matches!(word(next), "pg_catalog" | "tutti_gap" | "tutti" | "quoted");
                if !of_schema {
                    found.push(format!("type {}", word(next)));
                }
            }
            Token::Operator(operator) => {
                let is_star = operator == "*"
                    && (is(before, '.')
                        || is(before, '(')
                        || is(before, ',')
                        || word(before) == "select");
                let assigns = operator == "=" && sets;
                let is_sign = operator == "-"
                    && !matches!(
                        before.map(|b| &tokens[b]),
                        Some(Token::Word(_) | Token::Literal | Token::Other(')'))
                    );
                if !(is_star || assigns || is_sign || is_qualified) {
                    found.push(format!("operator {operator}"));
                }
            }
            Token::Word(name) => {
                match name.as_str() {
                    "set" => sets = true,
                    "where" | "from" | "returning" | "select" => sets = false,
                    _ => (),
                }
                let is_column = is_qualified;
                match name.as_str() {
                    "like" | "ilike" | "similar" | "between" | "nullif" | "natural" | "using"
                        // DELETE … USING names tables.
                        if !is_column && (name != "using" || is(next, '(')) =>
                    {
                        found.push(name.clone());
                    }
                    "in" if !is_column && !matches!(word(before), "" | "for") && is(next, '(') => {
                        found.push("in".to_owned());
                    }
                    "distinct" if word(before) != "select" && word(next) == "from" => {
                        found.push("is distinct from".to_owned());
                    }
                    "case"
                        if !is_column
                            && word(next) != "when"
                            && next.is_some_and(|n| n < tokens.len()) =>
                    {
                        found.push("case … when".to_owned());
                    }
                    "from" | "join" if !is_column && word(before) != "distinct" => {
                        let known = [
                            "pg_catalog",
                            "tutti",
                            "tutti_gap",
                            "only",
                            "lateral",
                            "select",
                            "quoted",
                            "rows",
                            "unnest",
                        ];
                        let target = word(next);
                        if !target.is_empty()
                            && !known.contains(&target)
                            && !is(Some(at + 2), '.')
                            && !is_local(&tokens, target)
                        {
                            found.push(format!("relation {target}"));
                        }
                    }
                    // A function.
                    _ if is(next, '(') && !is_qualified && !WORDS.contains(&name.as_str()) => {
                        let is_alias = matches!(
                            word(before),
                            "as" | "recursive" | "with" | "table"
                        ) || is(before, ')')
                            || name == "tutti_gap"
                            || matches!(before.map(|b| &tokens[b]), Some(Token::Word(b)) if !WORDS.contains(&b.as_str()) && b != "distinct");
                        if !is_alias {
                            found.push(format!("function {name}"));
                        }
                    }
                    _ => (),
                }
            }
            Token::Literal | Token::Other(_) => (),
        }
    }
    found
}

/// Whether a name is one that the statement itself gives (WITH).
fn is_local(tokens: &[Token], name: &str) -> bool {
    tokens.windows(2).any(|pair| {
        matches!(pair, [Token::Word(with), Token::Word(given)]
            if matches!(with.as_str(), "with" | "recursive") && given == name)
    }) || tokens.windows(4).any(|four| {
        // A further query of the same WITH.
        matches!(four, [Token::Other(','), Token::Word(given), Token::Word(is), Token::Other('(')]
            if is == "as" && given == name)
    })
}

/// The string literals of a Rust source, as they are at run time but for what is filled in; with the lines
/// they begin on. Tests are left out.
fn literals(source: &str) -> Vec<(usize, String)> {
    let end = source.find("#[cfg(test)]\nmod tests").unwrap_or(source.len());
    let chars: Vec<char> = source[..end].chars().collect();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let c = chars[at];
        line += usize::from(c == '\n');
        if c == '/' && chars.get(at + 1) == Some(&'/') {
            while at < chars.len() && chars[at] != '\n' {
                at += 1;
            }
            continue;
        }
        if c == '\'' {
            // A character, or a lifetime.
            if chars.get(at + 1) == Some(&'\\') {
                at += 2;
                while at < chars.len() && chars[at] != '\'' {
                    at += 1;
                }
            } else if chars.get(at + 2) == Some(&'\'') {
                at += 2;
            }
            at += 1;
            continue;
        }
        let hashes = (c == 'r').then(|| chars[at + 1..].iter().take_while(|c| **c == '#').count());
        if let Some(hashes) = hashes
            && chars.get(at + 1 + hashes) == Some(&'"')
            && !at.checked_sub(1).is_some_and(|b| chars[b].is_alphanumeric() || chars[b] == '_')
        {
            let (start, first) = (at + 2 + hashes, line);
            let close: String = format!("\"{}", "#".repeat(hashes));
            let rest: String = chars[start..].iter().collect();
            let text = &rest[..rest.find(&close).unwrap_or(rest.len())];
            line += text.matches('\n').count();
            at = start + text.chars().count() + 1 + hashes;
            found.push((first, filled(text)));
            continue;
        }
        if c != '"' {
            at += 1;
            continue;
        }
        let first = line;
        let mut text = String::new();
        at += 1;
        while at < chars.len() && chars[at] != '"' {
            line += usize::from(chars[at] == '\n');
            if chars[at] != '\\' {
                text.push(chars[at]);
                at += 1;
                continue;
            }
            match chars.get(at + 1) {
                Some('\n') => {
                    at += 1;
                    while chars.get(at).is_some_and(|c| c.is_whitespace()) {
                        line += usize::from(chars[at] == '\n');
                        at += 1;
                    }
                    continue;
                }
                Some('n') => text.push('\n'),
                Some(other) => text.push(*other),
                None => (),
            }
            at += 2;
        }
        at += 1;
        found.push((first, filled(&text)));
    }
    found
}

/// With what is filled in as a word.
fn filled(text: &str) -> String {
    let text = text.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let mut filled = String::new();
    let mut rest = text.as_str();
    while let Some((before, behind)) = rest.split_once('{') {
        filled.push_str(before);
        filled.push_str("tutti_gap");
        rest = behind.split_once('}').map_or("", |(_, rest)| rest);
    }
    filled.push_str(rest);
    filled.replace(['\u{1}', '\u{2}'], "")
}

/// Whether a text is a statement, or a part of one that has a shape of its own.
fn is_sql(text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    let begins = [
        "SELECT ",
        "SELECT\n",
        "WITH ",
        "INSERT INTO ",
        "DELETE FROM ",
        "UPDATE ",
        "FROM ",
        "UNION ",
        "WHERE ",
        "EXISTS (",
        "CASE WHEN",
        "DO $",
        "CASE ",
        "COALESCE(",
    ];
    // Not what people are told.
    let is_prose =
        text.contains(['…', '.']) && !text.contains(['(', '_']) && !text.contains("FROM");
    begins.iter().any(|word| text.starts_with(word)) && !is_prose
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

#[test]
fn the_search_path_of_a_client_decides_nothing_in_the_gateways_own_sql() -> Result<()> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut files = Vec::new();
    for dir in ["link/src", "cluster/src", "gateway/src", "sql/src"] {
        sources(&crates.join(dir), &mut files)?;
    }
    for (file, why) in OWN_CONNECTIONS {
        ensure!(crates.join(file).exists(), "{file} ({why}) is not there any more");
    }
    files.sort();
    let (mut complaints, mut read) = (Vec::new(), 0);
    for file in files {
        let name = file.strip_prefix(&crates)?.to_string_lossy().into_owned();
        let is_test = name.ends_with("tests.rs");
        if is_test || OWN_CONNECTIONS.iter().any(|(own, _)| name.starts_with(own)) {
            continue;
        }
        for (line, text) in literals(&fs::read_to_string(&file)?) {
            // What the planner reads to take a piece out of.
            if !is_sql(&text) || text.contains("FROM t FOR UPDATE") || NO_SQL.contains(&&*text) {
                continue;
            }
            read += 1;
            let found = loose(&text);
            if !found.is_empty() {
                complaints.push(format!("{name}:{line}: {}", found.join(", ")));
            }
        }
    }
    ensure!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
    ensure!(60 < read, "only {read} statements were found in the source");
    Ok(())
}

#[test]
fn what_is_loose_is_seen() {
    let found = |sql: &str| loose(sql).join(", ");
    assert_eq!(found("SELECT c.oid FROM pg_catalog.pg_class c WHERE c.oid = 1"), "operator =");
    assert_eq!(
        found("SELECT now(), 1::int FROM pg_class"),
        "function now, type int, relation pg_class"
    );
    assert_eq!(found("SELECT a.x IN (1), b IS DISTINCT FROM c"), "in, is distinct from");
    assert_eq!(found("SELECT CASE x WHEN 1 THEN 2 END, a || b"), "case … when, operator ||");
    for exact in [
        "SELECT count.*, pg_catalog.now() FROM pg_catalog.pg_class AS c (a, b)",
        "SELECT a OPERATOR(pg_catalog.=) ANY (ARRAY[1]::pg_catalog.int4[])",
        "UPDATE pg_catalog.x SET a = b WHERE a OPERATOR(pg_catalog.<>) 1",
        "WITH RECURSIVE f (oid) AS (SELECT 1) SELECT * FROM f",
        "SELECT EXISTS (SELECT FROM tutti.bucket), 'a = b'",
    ] {
        assert_eq!(found(exact), "", "{exact}");
    }
}
