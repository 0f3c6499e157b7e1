//! What is known of functions: volatility, and whether one node alone can run them rightly.
//!
//! Owns: the reading of function bodies for names of distributed tables, sequences and writes.
//! Never: parses a body. Languages are many; a name that occurs as a whole word counts as a use, so
//! a function may be refused that would be harmless, never the other way round for static SQL.
//! Bodies that build SQL as text are taken for the worst.
//! Start reading at [`Taints::spread`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tutti_sql::catalog::{Function, Placement, RelationKind, Volatility};

use super::rows::Answer;
use crate::error::GatewayError;
use crate::node::NodeConnection;

/// Columns 0 to 4 are what [`fold`] reads.
const BUILTINS: &str = "SELECT p.proname, p.provolatile, p.prokind, p.proretset
FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace";

/// Reads the functions of `pg_catalog`. They do not change while a server runs: once is enough.
pub(super) async fn load_builtin_functions(
    home: &mut NodeConnection,
) -> Result<Arc<HashMap<String, Function>>, GatewayError> {
    let rows = home.rows(BUILTINS).await?;
    let answer = Answer { node: home.node(), what: "built-in functions", rows: &rows };
    let mut functions = HashMap::with_capacity(answer.len());
    for row in 0..answer.len() {
        let function = function_at(&answer, row, 1)?;
        fold(&mut functions, answer.text(row, 0)?, function);
    }
    Ok(Arc::new(functions))
}

/// Reads volatility, kind and set-returning from three columns.
pub(super) fn function_at(
    answer: &Answer<'_>,
    row: usize,
    first_column: usize,
) -> Result<Function, GatewayError> {
    let volatility = match answer.text(row, first_column)? {
        "i" => Volatility::Immutable,
        "s" => Volatility::Stable,
        _ => Volatility::Volatile,
    };
    let kind = answer.text(row, first_column + 1)?;
    Ok(Function {
        volatility,
        needs_cluster: false,
        aggregate: kind == "a",
        window: kind == "w",
        returns_set: answer.boolean(row, first_column + 2)?,
    })
}

/// Adds an overload to what is known of its name.
pub(super) fn fold(functions: &mut HashMap<String, Function>, name: &str, overload: Function) {
    let Some(known) = functions.get_mut(name) else {
        functions.insert(name.to_owned(), overload);
        return;
    };
    known.volatility = known.volatility.max(overload.volatility);
    known.needs_cluster |= overload.needs_cluster;
    known.aggregate |= overload.aggregate;
    known.window |= overload.window;
    known.returns_set |= overload.returns_set;
}

/// How far code reaches beyond the node that runs it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Taint {
    /// Any node runs it rightly.
    #[default]
    None,
    /// Node 1 runs it rightly: it draws from sequences or uses tables whose rows are there.
    Home,
    /// No single node does: it uses distributed tables, or writes what every node must write.
    Cluster,
}

/// A relation, function or view while taints spread.
struct Piece {
    oid: u32,
    /// Lower case, so that it is found in a body however it was written there.
    name: String,
    taint: Taint,
    /// The body, lower case; empty for relations, and for functions in C.
    body: String,
    /// Oids of what a view's query uses.
    uses: Vec<u32>,
    /// A table or view that every node would have to write.
    written_everywhere: bool,
}

/// Taints of everything in user schemas, by oid. Oids of relations and functions do not collide in
/// practice but may in principle; then the worse counts for both.
pub(super) struct Taints {
    pieces: Vec<Piece>,
    of_oid: HashMap<u32, Taint>,
}

/// These draw from or look at a sequence, whose values count on node 1 only.
const SEQUENCE_FUNCTIONS: [&str; 4] = ["nextval", "setval", "currval", "lastval"];
/// With the name of a replicated table these mean that every node must do it.
const WRITE_WORDS: [&str; 6] = ["insert", "update", "delete", "truncate", "merge", "copy"];
/// SQL built as text, or the schema changed: nobody can say what is touched.
const UNREADABLE_WORDS: [&str; 7] =
    ["execute", "create", "alter", "drop", "spi_exec_query", "spi_query", "spi_prepare"];

impl Taints {
    pub(super) fn new() -> Self {
        Self { pieces: Vec::new(), of_oid: HashMap::new() }
    }

    /// Adds a relation that is no view.
    pub(super) fn add_relation(
        &mut self,
        oid: u32,
        name: &str,
        kind: &RelationKind,
        placement: &Placement,
    ) {
        let is_view = matches!(kind, RelationKind::View { .. });
        let taint = match placement {
            _ if is_view => Taint::None,
            Placement::Hash { .. } | Placement::RoundRobin => Taint::Cluster,
            Placement::Home => Taint::Home,
            Placement::Replicated => Taint::None,
        };
        self.pieces.push(Piece {
            oid,
            name: name.to_lowercase(),
            taint,
            body: String::new(),
            uses: Vec::new(),
            written_everywhere: is_view || matches!(placement, Placement::Replicated),
        });
    }

    /// Says that the query of view `oid` uses the relation or function `used`.
    pub(super) fn add_use(&mut self, oid: u32, used: u32) {
        if let Some(view) = self.pieces.iter_mut().find(|piece| piece.oid == oid) {
            view.uses.push(used);
        }
    }

    /// Adds a function; `body` is `None` for those in C.
    pub(super) fn add_function(&mut self, oid: u32, name: &str, body: Option<&str>) {
        self.pieces.push(Piece {
            oid,
            name: name.to_lowercase(),
            taint: Taint::None,
            body: body.unwrap_or_default().to_lowercase(),
            uses: Vec::new(),
            written_everywhere: false,
        });
    }

    /// Lets taints go from what is used to what uses it until nothing changes.
    pub(super) fn spread(&mut self) {
        let bodies: Vec<_> = self.pieces.iter().map(|piece| words(&piece.body)).collect();
        let mut written = Names::default();
        for piece in self.pieces.iter().filter(|piece| piece.written_everywhere) {
            written.add(&piece.name, Taint::Cluster);
        }
        for (piece, body) in self.pieces.iter_mut().zip(&bodies) {
            piece.taint = piece.taint.max(taint_of_words(body));
            if WRITE_WORDS.iter().any(|word| body.contains(*word)) {
                piece.taint = piece.taint.max(written.worst_in(&piece.body, body));
            }
        }
        loop {
            self.of_oid.clear();
            let mut names = Names::default();
            for piece in self.pieces.iter().filter(|piece| piece.taint > Taint::None) {
                let by_oid = self.of_oid.entry(piece.oid).or_default();
                *by_oid = (*by_oid).max(piece.taint);
                names.add(&piece.name, piece.taint);
            }
            let mut changed = false;
            for (piece, body) in self.pieces.iter_mut().zip(&bodies) {
                let used = piece.uses.iter().filter_map(|oid| self.of_oid.get(oid)).max();
                let named = names.worst_in(&piece.body, body);
                let reached = used.copied().unwrap_or_default().max(named);
                if piece.taint < reached {
                    piece.taint = reached;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// The taint of a relation or function. Requires: [`Self::spread`] ran.
    pub(super) fn of(&self, oid: u32) -> Taint {
        self.of_oid.get(&oid).copied().unwrap_or_default()
    }

    /// The taint of a piece of SQL that is no function: a rule.
    pub(super) fn of_text(&self, text: &str) -> Taint {
        let text = text.to_lowercase();
        let body = words(&text);
        let writes = WRITE_WORDS.iter().any(|word| body.contains(*word));
        let mut names = Names::default();
        for piece in &self.pieces {
            let written = writes && piece.written_everywhere;
            names.add(&piece.name, if written { Taint::Cluster } else { self.of(piece.oid) });
        }
        let reached = names.worst_in(&text, &body);
        // Every rule's text has CREATE in it, so the words of a rule say less than its names.
        let sequence = SEQUENCE_FUNCTIONS.iter().any(|word| body.contains(*word));
        reached.max(if sequence { Taint::Home } else { Taint::None })
    }
}

/// Names and how bad it is to use them, for a quick look at many bodies.
#[derive(Default)]
struct Names {
    words: HashMap<String, Taint>,
    /// Names with spaces, quotes and the like, which no splitting into words finds.
    odd: Vec<(String, Taint)>,
}

impl Names {
    fn add(&mut self, name: &str, taint: Taint) {
        if name.chars().all(is_word) {
            let known = self.words.entry(name.to_owned()).or_default();
            *known = (*known).max(taint);
        } else {
            // A body may have it as an identifier, quotes doubled, or as text.
            self.odd.push((name.replace('"', "\"\""), taint));
            self.odd.push((name.to_owned(), taint));
        }
    }

    /// The worst of the names that occur: as whole words, or odd ones anywhere.
    fn worst_in(&self, body: &str, words: &HashSet<String>) -> Taint {
        let named = words.iter().filter_map(|word| self.words.get(word)).copied();
        let odd = self.odd.iter().filter(|(name, _)| body.contains(name.as_str()));
        named.chain(odd.map(|(_, taint)| *taint)).max().unwrap_or_default()
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn words(text: &str) -> HashSet<String> {
    text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn taint_of_words(words: &HashSet<String>) -> Taint {
    let has = |list: &[&str]| list.iter().any(|word| words.contains(*word));
    if has(&UNREADABLE_WORDS) {
        Taint::Cluster
    } else if has(&SEQUENCE_FUNCTIONS) {
        Taint::Home
    } else {
        Taint::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> Taints {
        let mut taints = Taints::new();
        let table = RelationKind::Table;
        let view = RelationKind::View { definition: String::new() };
        taints.add_relation(1, "orders", &table, &Placement::RoundRobin);
        taints.add_relation(2, "items", &table, &Placement::Replicated);
        taints.add_relation(3, "Odd \"name\"", &table, &Placement::RoundRobin);
        taints.add_relation(4, "order_sums", &view, &Placement::Home);
        taints.add_use(4, 1);
        taints
    }

    fn taint_of(body: &str) -> Taint {
        let mut taints = world();
        taints.add_function(10, "f", Some(body));
        taints.spread();
        taints.of(10)
    }

    #[test]
    fn names_count_as_whole_words_in_any_case() {
        assert_eq!(taint_of("SELECT count(*) FROM Orders"), Taint::Cluster);
        assert_eq!(taint_of("SELECT count(*) FROM orders_archive"), Taint::None);
        assert_eq!(taint_of("SELECT * FROM \"Odd \"\"name\"\"\""), Taint::Cluster);
        assert_eq!(taint_of("SELECT * FROM order_sums"), Taint::Cluster);
    }

    #[test]
    fn replicated_tables_may_be_read_but_not_written() {
        assert_eq!(taint_of("SELECT price FROM items"), Taint::None);
        assert_eq!(taint_of("UPDATE items SET price = 0"), Taint::Cluster);
    }

    #[test]
    fn sequences_are_for_node_1_and_text_sql_for_nobody() {
        assert_eq!(taint_of("SELECT NextVal('s')"), Taint::Home);
        assert_eq!(taint_of("BEGIN EXECUTE 'SELECT ' || x; END"), Taint::Cluster);
    }

    #[test]
    fn taints_go_through_functions_that_call_functions() {
        let mut taints = world();
        taints.add_function(10, "inner_sum", Some("SELECT sum(x) FROM orders"));
        taints.add_function(11, "middle", Some("SELECT inner_sum()"));
        taints.add_function(12, "outer_sum", Some("SELECT Middle() + 1"));
        taints.add_function(13, "in_c", None);
        taints.spread();
        assert_eq!(
            [10, 11, 12, 13].map(|oid| taints.of(oid)),
            [Taint::Cluster, Taint::Cluster, Taint::Cluster, Taint::None]
        );
    }
}
