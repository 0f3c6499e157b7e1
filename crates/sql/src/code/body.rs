//! What the text of a function's body says: names that it may call, relations that it reads, and what
//! makes it unreadable.
//!
//! SQL is read by PostgreSQL's grammar, PL/pgSQL by its tokens. Either way nothing is guessed: what a
//! word may mean counts, so a body may be taken for worse than it is, never for better.
//!
//! Owns: that reading. Never: resolves a name (`search` does), or runs anything.
//! Start reading at [`Body::of_function`].

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SelectStmt, Token};

use crate::statement::tokens::{Lexeme, scan};
use crate::walk;

/// What PostgreSQL makes for each range type, under the type's name: it puts arguments together.
const RANGE_CONSTRUCTORS: [&str; 2] = ["range_constructor", "multirange_constructor"];

/// Extensions of PostgreSQL's own whose functions in C look at their arguments, or at random numbers.
const PLAIN_EXTENSIONS: [&str; 16] = [
    "btree_gin",
    "btree_gist",
    "citext",
    "cube",
    "earthdistance",
    "fuzzystrmatch",
    "hstore",
    "intarray",
    "isn",
    "ltree",
    "pg_trgm",
    "pgcrypto",
    "seg",
    "tsm_system_rows",
    "unaccent",
    "uuid-ossp",
];

/// Functions in C of these extensions that change a setting, on the node that runs them.
const SETTERS: [(&str, &str); 1] = [("pg_trgm", "set_limit")];

/// Words that make a PL/pgSQL body more than a computation, with what they do.
const EFFECTS: [(&str, &str); 41] = [
    ("execute", "runs SQL that it builds (EXECUTE)"),
    ("insert", "writes (INSERT)"),
    ("update", "writes or locks rows (UPDATE)"),
    ("delete", "writes (DELETE)"),
    ("merge", "writes (MERGE)"),
    ("truncate", "writes (TRUNCATE)"),
    ("copy", "writes or reads by COPY"),
    ("create", "changes the schema (CREATE)"),
    ("alter", "changes the schema (ALTER)"),
    ("drop", "changes the schema (DROP)"),
    ("grant", "changes rights (GRANT)"),
    ("revoke", "changes rights (REVOKE)"),
    ("reassign", "changes rights (REASSIGN)"),
    ("comment", "changes the schema (COMMENT)"),
    ("security", "changes the schema (SECURITY LABEL)"),
    ("import", "changes the schema (IMPORT)"),
    ("refresh", "writes (REFRESH)"),
    ("reset", "changes settings (RESET)"),
    ("lock", "locks tables (LOCK)"),
    ("notify", "notifies (NOTIFY)"),
    ("listen", "listens (LISTEN)"),
    ("unlisten", "listens (UNLISTEN)"),
    ("call", "calls a procedure (CALL)"),
    ("do", "runs code (DO)"),
    ("prepare", "prepares statements (PREPARE)"),
    ("deallocate", "prepares statements (DEALLOCATE)"),
    ("open", "opens cursors (OPEN)"),
    ("fetch", "reads cursors (FETCH)"),
    ("move", "reads cursors (MOVE)"),
    ("vacuum", "maintains tables (VACUUM)"),
    ("analyze", "maintains tables (ANALYZE)"),
    ("analyse", "maintains tables (ANALYZE)"),
    ("cluster", "maintains tables (CLUSTER)"),
    ("reindex", "maintains tables (REINDEX)"),
    ("checkpoint", "maintains the server (CHECKPOINT)"),
    ("load", "loads libraries (LOAD)"),
    ("discard", "changes the session (DISCARD)"),
    ("explain", "explains statements (EXPLAIN)"),
    ("table", "reads a table (TABLE)"),
    ("commit", "ends transactions (COMMIT)"),
    ("rollback", "ends transactions (ROLLBACK)"),
];

/// Those of [`EFFECTS`] that write or lock what the body's other words mean, and nothing else.
const WRITES_WHAT_IS_NAMED: [&str; 7] =
    ["insert", "update", "delete", "merge", "truncate", "copy", "lock"];

/// Those that reach nothing but that either.
const ON_WHAT_IS_NAMED: [&str; 8] =
    ["notify", "call", "open", "fetch", "move", "table", "commit", "rollback"];

/// A name in a text.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Name {
    /// What stands before the dot, if one does: a schema, or anything that has columns.
    pub(crate) before: Option<String>,
    pub(crate) name: String,
    /// A parenthesis follows.
    pub(crate) called: bool,
    /// It stands where a type may, and a table may not: after `::`, AS, or another name.
    pub(crate) typed: bool,
}

/// A relation that a text reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Read {
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
    /// A WITH query of the same text has the name.
    pub(crate) may_be_with: bool,
}

/// Names and operators of a text, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    pub(crate) names: BTreeSet<Name>,
    /// Operators, with the schema if written.
    pub(crate) operators: BTreeSet<(Option<String>, String)>,
}

/// What a trigger function may do to the row that it is given.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Assigned {
    columns: BTreeSet<String>,
    /// All of it, or it returns another.
    whole: bool,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Body {
    language: String,
    text: String,
    /// What makes it opaque by itself, as the rest of a sentence.
    pub(crate) opaque: Option<String>,
    pub(crate) words: Words,
    pub(crate) reads: Vec<Read>,
    pub(crate) sets: bool,
    pub(crate) catches: bool,
    pub(crate) samples: bool,
    /// It may turn off what its accounting rests on.
    pub(crate) hides: bool,
    /// Any of its words may be a relation that it reads: where a clause ends cannot be told.
    pub(crate) reads_by_word: bool,
    pub(crate) commits: bool,
    /// It may write or lock relations that its words mean.
    pub(crate) writes: bool,
    /// What makes its words not tell what it touches, as the rest of a sentence.
    pub(crate) beyond: Option<String>,
    settings: BTreeSet<String>,
    assigned: Assigned,
}

/// All else is read out of the text.
impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        (&self.language, &self.text) == (&other.language, &other.text)
    }
}

impl Body {
    /// Reads a function's body. `trusted`: PostgreSQL is told that it is IMMUTABLE, which for code in C
    /// is a superuser's word; `extension`: whose it is.
    pub fn of_function(language: &str, text: &str, trusted: bool, extension: Option<&str>) -> Self {
        let is_plain_extension = extension
            .is_some_and(|it| PLAIN_EXTENSIONS.contains(&it) && !SETTERS.contains(&(it, text)));
        let mut body = match language {
            "sql" => Self::of_sql(text),
            "plpgsql" => Self::of_plpgsql(text),
            "c" if trusted => Self::default(),
            "c" | "internal" if is_plain_extension => Self::default(),
            "c" => Self::unreadable("is written in C"),
            "internal" if RANGE_CONSTRUCTORS.iter().any(|prefix| text.starts_with(prefix)) => {
                Self::default()
            }
            "internal" => Self::unreadable("is one of the server's functions by another name"),
            other => Self::unreadable(&format!("is written in {other}")),
        };
        body.samples = reads_uncounted(text);
        body.hides = names_accounting(text);
        body.language = language.to_owned();
        body.text = text.to_owned();
        body
    }

    /// An aggregate: its functions say what it does.
    pub fn of_aggregate() -> Self {
        Self::default()
    }

    /// Code that a statement brings with it.
    pub(crate) fn of_block(language: &str, text: &str) -> Self {
        let body = match language {
            "plpgsql" => Self::of_plpgsql(text),
            other => Self::unreadable(&format!("is written in {other}")),
        };
        Self { samples: reads_uncounted(text), hides: names_accounting(text), ..body }
    }

    /// Code that cannot be read.
    pub(crate) fn unreadable(does: &str) -> Self {
        let does = Some(does.to_owned());
        let assigned = Assigned { whole: true, ..Assigned::default() };
        Self {
            opaque: does.clone(),
            beyond: does,
            sets: true,
            catches: true,
            assigned,
            ..Self::default()
        }
    }

    /// Whether only a superuser can have written it.
    pub(crate) fn is_of_superusers(&self) -> bool {
        matches!(self.language.as_str(), "c" | "internal")
    }

    /// Whether it is the body that this text has.
    pub fn is_of(&self, language: &str, text: &str) -> bool {
        self.language == language && self.text == text && language != "c"
    }

    /// What was read.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Names of settings with a dot that it mentions.
    pub fn settings(&self) -> impl Iterator<Item = &String> {
        self.settings.iter()
    }

    /// Whether a BEFORE trigger with this body may give the row another value of this column.
    pub(crate) fn may_assign(&self, column: &str) -> bool {
        self.assigned.whole || self.assigned.columns.contains(column)
    }

    /// A body in SQL.
    fn of_sql(text: &str) -> Self {
        let Some(tokens) = certain_tokens(text) else { return uncertain() };
        let text = without_atomic(text);
        let mut body = Self { words: words_of(&tokens), ..Self::default() };
        body.note_settings(&tokens);
        let Ok(statements) = crate::statement::parse(&text) else {
            return Self::unreadable("has a body that cannot be read");
        };
        for statement in &statements {
            body.sets |= matches!(statement.tree, NodeEnum::VariableSetStmt(_));
            if !matches!(statement.tree, NodeEnum::SelectStmt(_)) {
                body.note("does more than read");
            }
            match &statement.tree {
                NodeEnum::SelectStmt(_) => (),
                NodeEnum::InsertStmt(_)
                | NodeEnum::UpdateStmt(_)
                | NodeEnum::DeleteStmt(_)
                | NodeEnum::MergeStmt(_)
                | NodeEnum::TruncateStmt(_)
                | NodeEnum::NotifyStmt(_)
                | NodeEnum::CallStmt(_) => body.writes = true,
                _ => body.note_beyond("does more than read and write rows"),
            }
            let mut with = BTreeSet::new();
            with_names(&statement.tree, &mut with);
            body.read_tree(&statement.tree, &with);
        }
        body
    }

    /// The relations that a tree reads, and what in it is more than reading.
    fn read_tree(&mut self, tree: &NodeEnum, with: &BTreeSet<String>) {
        match tree {
            NodeEnum::RangeVar(range) => {
                let schema = Some(range.schemaname.clone()).filter(|schema| !schema.is_empty());
                let may_be_with = schema.is_none() && with.contains(&range.relname);
                let name = range.relname.clone();
                self.reads.push(Read { schema, name, may_be_with });
            }
            NodeEnum::SelectStmt(select) => self.note_clauses(select),
            NodeEnum::InsertStmt(_)
            | NodeEnum::UpdateStmt(_)
            | NodeEnum::DeleteStmt(_)
            | NodeEnum::MergeStmt(_) => {
                self.note("writes");
                self.writes = true;
            }
            _ => (),
        }
        walk::read::children(tree, &mut |child: &Node| {
            if let Some(child) = &child.node {
                self.read_tree(child, with);
            }
        });
        // The walk goes through set operations, whose parts may have clauses of their own.
        if let NodeEnum::SelectStmt(select) = tree {
            for part in [&select.larg, &select.rarg].into_iter().flatten() {
                self.note_clauses(part);
            }
        }
    }

    fn note_clauses(&mut self, select: &SelectStmt) {
        if select.into_clause.is_some() || !select.locking_clause.is_empty() {
            self.note("locks rows or makes tables");
            self.writes = true;
        }
        if select.into_clause.is_some() {
            self.note_beyond("makes tables (INTO)");
        }
    }

    fn note(&mut self, does: &str) {
        self.opaque.get_or_insert_with(|| does.to_owned());
    }

    fn note_beyond(&mut self, does: &str) {
        self.beyond.get_or_insert_with(|| does.to_owned());
    }

    /// A body in PL/pgSQL, also that of a DO.
    pub(crate) fn of_plpgsql(text: &str) -> Self {
        let Some(tokens) = certain_tokens(text) else { return uncertain() };
        let mut body = Self { words: words_of(&tokens), reads_by_word: true, ..Self::default() };
        body.note_settings(&tokens);
        let words: Vec<String> = tokens.iter().map(word).collect();
        for (index, name) in words.iter().enumerate() {
            let is_first = begins_statement(index, &tokens, &words);
            if name == "set" && is_first {
                body.sets = true;
                body.note("changes settings (SET)");
                body.note_beyond("changes settings (SET)");
            }
            if let Some((_, does)) = EFFECTS.iter().find(|(effect, _)| effect == name) {
                body.note(does);
                if WRITES_WHAT_IS_NAMED.contains(&&**name) {
                    body.writes = true;
                } else if !ON_WHAT_IS_NAMED.contains(&&**name) {
                    body.note_beyond(does);
                }
                body.sets |= matches!(&**name, "execute" | "call" | "do" | "reset" | "discard");
                body.commits |= is_first && matches!(&**name, "commit" | "rollback");
            }
            body.catches |= name == "exception";
        }
        body.read_sources(&tokens, &words);
        body.assigned = assigned(&tokens, &words);
        body
    }

    /// What stands after each FROM.
    fn read_sources(&mut self, tokens: &[Lexeme<'_>], words: &[String]) {
        /// In these calls FROM is a comma.
        const WITH_FROM: [&str; 4] = ["extract", "substring", "trim", "overlay"];
        let mut openers: Vec<bool> = Vec::new();
        for (index, token) in tokens.iter().enumerate() {
            match token.text {
                "(" => {
                    let before = index.checked_sub(1).map(|before| words[before].as_str());
                    openers.push(before.is_some_and(|before| WITH_FROM.contains(&before)));
                }
                ")" => {
                    openers.pop();
                }
                _ => (),
            }
            let is_from = words[index] == "from"
                && !openers.last().copied().unwrap_or(false)
                && !(0 < index && words[index - 1] == "distinct");
            if is_from && self.read_from_list(index + 1, tokens, words).is_none() {
                // (Every one of its words is looked at all the same.)
                self.note("reads what cannot be told from its text");
            }
        }
    }

    /// The entries of the FROM clause that begins at `at`; `None` if they cannot be told.
    fn read_from_list(
        &mut self,
        mut at: usize,
        tokens: &[Lexeme<'_>],
        words: &[String],
    ) -> Option<()> {
        const ENDS: [&str; 15] = [
            "where",
            "group",
            "order",
            "limit",
            "having",
            "union",
            "intersect",
            "except",
            "window",
            "offset",
            "for",
            "loop",
            "into",
            "then",
            "end",
        ];
        let mut depth = 0_usize;
        let mut wants_source = true;
        while let Some(token) = tokens.get(at) {
            let name = words[at].as_str();
            if wants_source {
                match name {
                    "only" | "lateral" => (),
                    "" if token.text == "(" => {
                        // A query is read where its own FROM is; a join in parentheses is not.
                        let next = words.get(at + 1)?;
                        if !matches!(next.as_str(), "select" | "with" | "values") {
                            return None;
                        }
                        depth += 1;
                        wants_source = false;
                    }
                    "" => return None,
                    _ => {
                        let text_at = |at: usize| tokens.get(at).map_or("", |token| token.text);
                        let (mut schema, mut last) = (None, at);
                        if text_at(at + 1) == "." {
                            schema = Some(name.to_owned());
                            last = at + 2;
                        }
                        let name = words.get(last).filter(|name| !name.is_empty())?;
                        if text_at(last + 1) == "." {
                            return None;
                        }
                        if text_at(last + 1) != "(" {
                            let name = name.clone();
                            self.reads.push(Read { schema, name, may_be_with: false });
                        }
                        at = last;
                        wants_source = false;
                    }
                }
                at += 1;
                continue;
            }
            match token.text {
                "(" => depth += 1,
                ")" if depth == 0 => return Some(()),
                ")" => depth -= 1,
                ";" => return Some(()),
                "," if depth == 0 => wants_source = true,
                _ if depth == 0 && name == "join" => wants_source = true,
                _ if depth == 0 && ENDS.contains(&name) => return Some(()),
                _ => (),
            }
            at += 1;
        }
        Some(())
    }

    /// Settings with a dot in its literals and after SET.
    fn note_settings(&mut self, tokens: &[Lexeme<'_>]) {
        for (index, token) in tokens.iter().enumerate() {
            if token.token == Token::Sconst {
                self.settings.extend(dotted_names(token.text));
            }
            let is_set = token.is_word("set") || token.is_word("local") || token.is_word("session");
            if is_set
                && let [name, dot, rest, ..] = &tokens[index + 1..]
                && dot.text == "."
            {
                self.settings.insert(format!("{}.{}", word(name), word(rest)));
            }
        }
    }
}

/// Names of the form of a setting with a dot in a text.
pub fn dotted_names(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == '.';
    text.split(move |c| !is_part(c))
        .map(|word| word.trim_matches('.'))
        .filter(|word| {
            word.contains('.')
                && word.len() < 64
                && word
                    .split('.')
                    .all(|part| part.starts_with(|c: char| c.is_alphabetic() || c == '_'))
        })
        .map(str::to_lowercase)
}

fn uncertain() -> Body {
    Body::unreadable("has a body whose literals cannot be read with certainty")
}

/// The tokens of a text that every setting of `standard_conforming_strings` reads alike.
pub(crate) fn certain_tokens(text: &str) -> Option<Vec<Lexeme<'_>>> {
    let tokens = scan(text).ok()?;
    let is_odd = |token: &Lexeme<'_>| {
        matches!(token.token, Token::Uident | Token::Usconst)
            || (token.token == Token::Sconst
                && token.text.starts_with('\'')
                && (token.text.contains("\\'") || token.text.ends_with("\\'")))
    };
    (!tokens.iter().any(is_odd)).then_some(tokens)
}

/// `BEGIN ATOMIC … END` and `RETURN …` as plain statements.
fn without_atomic(text: &str) -> std::borrow::Cow<'_, str> {
    let trimmed = text.trim();
    let starts = |word: &str| {
        trimmed.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    if starts("BEGIN ATOMIC") {
        let inner = &trimmed["BEGIN ATOMIC".len()..];
        let end = inner.trim_end().len().saturating_sub("END".len());
        return inner.get(..end).unwrap_or_default().to_owned().into();
    }
    if starts("RETURN ") || starts("RETURN(") {
        return format!("SELECT {}", &trimmed["RETURN".len()..]).into();
    }
    text.into()
}

/// Names of WITH queries anywhere in a tree.
fn with_names(tree: &NodeEnum, names: &mut BTreeSet<String>) {
    if let NodeEnum::CommonTableExpr(cte) = tree {
        names.insert(cte.ctename.clone());
    }
    walk::read::children(tree, &mut |child: &Node| {
        if let Some(child) = &child.node {
            with_names(child, names);
        }
    });
}

/// The name that a token spells, keywords too; empty if it is no word.
pub(crate) fn word(token: &Lexeme<'_>) -> String {
    if let Some(quoted) = token.text.strip_prefix('"') {
        return cut(quoted.strip_suffix('"').unwrap_or(quoted).replace("\"\"", "\""));
    }
    match token.text.chars().next() {
        Some(first) if first.is_alphabetic() || first == '_' => {
            if token.token == Token::Sconst || token.token == Token::Xconst {
                return String::new();
            }
            // As PostgreSQL does where characters have several bytes.
            cut(token.text.to_ascii_lowercase())
        }
        _ => String::new(),
    }
}

/// Whether a table's name, not a type's, follows this word.
fn is_before_table(word: &str) -> bool {
    matches!(
        word,
        "from"
            | "join"
            | "into"
            | "update"
            | "only"
            | "using"
            | "table"
            | "truncate"
            | "copy"
            | "lock"
            | "select"
            | "where"
            | "on"
            | "and"
            | "or"
            | "by"
            | "set"
            | "returning"
            | "distinct"
    )
}

/// As much of a name as PostgreSQL takes.
fn cut(mut name: String) -> String {
    const NAME_BYTES_MAX: usize = 63;
    if NAME_BYTES_MAX < name.len() {
        name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    }
    name
}

/// Whether a PL/pgSQL statement begins at this token.
fn begins_statement(index: usize, tokens: &[Lexeme<'_>], words: &[String]) -> bool {
    let Some(before) = index.checked_sub(1) else { return true };
    tokens[before].text == ";"
        || tokens[before].text == ">>"
        || matches!(words[before].as_str(), "begin" | "then" | "else" | "loop" | "atomic")
}

/// Names and operators among tokens.
pub(crate) fn words_of(tokens: &[Lexeme<'_>]) -> Words {
    let mut words = Words::default();
    let text_at = |index: Option<usize>| index.and_then(|at| tokens.get(at)).map_or("", |t| t.text);
    let implied = |of: &[&str], words: &mut Words| {
        words.operators.extend(of.iter().map(|name| (None, (*name).to_owned())));
    };
    for (index, token) in tokens.iter().enumerate() {
        let before = index.checked_sub(1);
        let qualifier = (text_at(before) == ".")
            .then(|| before.and_then(|at| at.checked_sub(1)).and_then(|at| tokens.get(at)))
            .flatten()
            .map(word)
            .filter(|name| !name.is_empty())
            // After an expression: a column of it, or a function.
            .or_else(|| (text_at(before) == ".").then(String::new));
        let name = word(token);
        if !name.is_empty() {
            match name.as_str() {
                "in" | "distinct" | "nullif" | "case" | "using" | "natural" | "any" | "all"
                | "some" | "group" | "union" | "intersect" | "except" | "row" => {
                    implied(&["=", "<>"], &mut words);
                }
                "between" | "order" | "min" | "max" | "greatest" | "least" | "partition" => {
                    implied(&["<", ">", "<=", ">=", "="], &mut words);
                }
                "like" | "ilike" => implied(&["~~", "!~~", "~~*", "!~~*"], &mut words),
                "similar" => implied(&["~", "!~"], &mut words),
                _ => (),
            }
            let called = text_at(Some(index + 1)) == "(";
            let begins = if qualifier.is_some() { index.saturating_sub(2) } else { index };
            let typed = begins.checked_sub(1).is_some_and(|at| {
                let word = word(&tokens[at]);
                tokens[at].text == "::" || !(word.is_empty() || is_before_table(&word))
            });
            words.names.insert(Name { before: qualifier, name, called, typed });
            continue;
        }
        let is_operator = match token.token {
            Token::Op | Token::LessEquals | Token::GreaterEquals => true,
            Token::NotEquals => {
                words.operators.insert((qualifier, "<>".to_owned()));
                continue;
            }
            _ => matches!(token.text, "+" | "-" | "*" | "/" | "%" | "^" | "<" | ">" | "="),
        };
        if is_operator {
            words.operators.insert((qualifier, token.text.to_owned()));
        }
    }
    words
}

/// Whether a text may read rows by their place: a server counts no such scan, only the pages that it
/// reads. Literals count, for they may be run.
pub(crate) fn reads_uncounted(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("tablesample") || text.contains("ctid")
}

/// Whether a text names a setting by which a server stops telling what code has touched: it counts no
/// scans, or has workers run code, whose locks and counts are their own. Literals count.
pub fn names_accounting(text: &str) -> bool {
    const SETTINGS: [&str; 2] = ["track_counts", "max_parallel_workers"];
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = text.split(move |c| !is_part(c));
    words.any(|word| SETTINGS.iter().any(|setting| word.eq_ignore_ascii_case(setting)))
}

/// What a trigger function's text may assign to NEW.
fn assigned(tokens: &[Lexeme<'_>], words: &[String]) -> Assigned {
    let mut assigned = Assigned::default();
    let text_at = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let word_at = |at: usize| words.get(at).map_or("", String::as_str);
    let mut target = |at: usize| {
        // NEW, or NEW.column, at `at`; returns what follows.
        if text_at(at + 1) == "." {
            assigned.columns.insert(word_at(at + 2).to_owned());
        } else {
            assigned.whole = true;
        }
    };
    let mut returns_other = false;
    for (index, name) in words.iter().enumerate() {
        match name.as_str() {
            "new" => {
                let behind = if text_at(index + 1) == "." { index + 3 } else { index + 1 };
                // A block's name may stand before it.
                let first = match text_at(index.wrapping_sub(1)) {
                    "." => index.saturating_sub(2),
                    _ => index,
                };
                let assigns = text_at(behind) == ":="
                    || text_at(behind) == "["
                    || (matches!(text_at(behind), "=" | ".")
                        && begins_statement(first, tokens, words));
                let is_target = matches!(
                    first.checked_sub(1).map(word_at),
                    Some("into" | "strict" | "for" | "foreach" | "diagnostics")
                );
                let is_listed =
                    text_at(first.wrapping_sub(1)) == "," && is_in_into(first, words, tokens);
                // A procedure gives values to its arguments.
                if assigns || is_target || is_listed || is_in_call(index, words, tokens) {
                    target(index);
                }
            }
            "return" => {
                let ends = text_at(index + 2) == ";";
                returns_other |= !(ends && matches!(word_at(index + 1), "new" | "old" | "null"))
                    && text_at(index + 1) != ";";
            }
            _ => (),
        }
    }
    assigned.whole |= returns_other;
    assigned
}

/// Whether the token stands in a CALL.
fn is_in_call(index: usize, words: &[String], tokens: &[Lexeme<'_>]) -> bool {
    let statement = (0..index).rev().take_while(|at| tokens[*at].text != ";");
    statement.into_iter().any(|at| words[at] == "call")
}

/// Whether the token stands in the list after an INTO, or of what a FOR gives values to.
fn is_in_into(index: usize, words: &[String], tokens: &[Lexeme<'_>]) -> bool {
    // Brackets hold expressions.
    let mut depth = 0_usize;
    for at in (0..index).rev() {
        match tokens[at].text {
            "]" => depth += 1,
            "[" => depth = depth.saturating_sub(1),
            _ => (),
        }
        if 0 < depth {
            continue;
        }
        match (tokens[at].text, words[at].as_str()) {
            (_, "into" | "diagnostics" | "for" | "foreach") => return true,
            ("," | "." | "[" | "]" | "=", _) => (),
            (_, "") => return false,
            (_, "from" | "select" | "where") => return false,
            _ => (),
        }
    }
    false
}
