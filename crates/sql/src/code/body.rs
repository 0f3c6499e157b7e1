//! What the text of a function's body says: names that it may call, relations that it reads, and what
//! makes it unreadable.
//!
//! SQL is read by PostgreSQL's grammar, PL/pgSQL by its tokens. Either way nothing is guessed: what a
//! word may mean counts, so a body may be taken for worse than it is, never for better.
//!
//! Owns: that reading. Never: resolves a name (`search` does), or runs anything. What words may be names is
//! said by `words`, what a trigger function assigns by `assigned`.
//! Start reading at [`Body::of_function`].

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SelectStmt, Token};

use super::assigned::{Assigned, assigned, begins_statement};
use super::words::{
    Words, certain_tokens, dotted_names, names_accounting, names_what_differs, reads_uncounted,
    word, words_of,
};
use crate::statement::tokens::Lexeme;
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

/// A relation that a text reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Read {
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
    /// A WITH query of the same text has the name.
    pub(crate) may_be_with: bool,
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
    /// It may give the current time, or what another server has otherwise.
    pub(crate) differs: bool,
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
    /// Whether a server may put it in the place of a call.
    pub(crate) fn is_sql(&self) -> bool {
        self.language == "sql"
    }

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
        body.differs = names_what_differs(text);
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

fn uncertain() -> Body {
    Body::unreadable("has a body whose literals cannot be read with certainty")
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
