//! The search from a statement, or from a write to a table, through all code that may run.
//!
//! Every object is visited once for each search path under which it may run: a chain of any length
//! costs in proportion to its length. Names are looked up as PostgreSQL does, in the schemas of the path, but
//! all overloads count, for types are not known here.
//!
//! Owns: what a name may mean, and what follows from what was reached. Never: stops at the first
//! opaque piece: what may be set or undone counts of all.
//! Start reading at [`Search::finish`].

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use pg_query::protobuf::Token;

use super::marks::{Seen, mark_of};
use super::reach::{DECLARED_HOME, Reach, Reason};
use crate::built_in_types::is_built_in;
use crate::catalog::{Catalog, NameScope, Placement, Relation, RelationKind};
use crate::code::{
    Attached, AttachedKind, Body, BuiltIn, Code, Declaration, FIRST_USER_OID, FunctionCode, Name,
    TypeCode, TypeKind, Use, Words, WrittenWith, certain_tokens, events, is_cut_from,
    names_accounting, reads_uncounted, types_of_name, words_of,
};

/// Whose code is searched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Writing {
    /// A statement's.
    Statement,
    /// What runs on a node with the rows that are written there.
    Row,
    /// What runs on every node, with each copy of the rows.
    Copies,
    /// What runs where stored rows are read from their text on their way, as the role that reads them. On one
    /// server no one would run it, so no one's word for it counts, and no code that any role may have
    /// written.
    Transit,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Item {
    Function(u32),
    Operator(u32),
    /// Values of the type are looked at.
    Seen(u32),
    /// Such values are made.
    Made(u32),
    /// A constant of the type is read where a text is analysed.
    Read(u32),
    /// A relation's rows are looked at.
    Rows(u32),
    /// A query of a relation is planned; its indexes are built, perhaps.
    Planned(u32, bool),
    /// Statements of these kinds are made on a relation.
    Written(u32, u8),
    /// Code reads a relation, and may write it, by name.
    Named(u32, bool),
}

/// A search path, as an index in [`Search::paths`].
type Path = usize;

/// The path of the session.
const SESSION: Path = 0;
/// Names that PostgreSQL itself has written: whatever is not in `pg_catalog` is qualified.
const EXACT: Path = 1;

/// Of so many schemas it is tried what they would mean to a function that runs as its owner.
const OWNERS_SCHEMAS_MAX: usize = 32;

/// See the module's documentation.
pub(crate) struct Search<'a> {
    catalog: &'a Catalog,
    code: &'a Code,
    scope: &'a NameScope,
    writing: Writing,
    paths: Vec<Vec<String>>,
    seen: HashSet<(Item, Path)>,
    queue: Vec<(Item, Path)>,
    /// Of paths of owners: which path they were made from.
    of_owners: HashMap<Path, Path>,
    /// Of paths that none was made from: those that were made from them, or that these would be too many.
    paths_of_others: HashMap<Path, Option<Vec<Path>>>,
    /// Whether it must be proven that all is on node 1.
    proves: bool,
    reach: Reach,
}

impl<'a> Search<'a> {
    pub(crate) fn new(catalog: &'a Catalog, scope: &'a NameScope, writing: Writing) -> Self {
        let mut search = Self {
            catalog,
            code: &catalog.code,
            scope,
            writing,
            paths: vec![scope.search_path.clone(), Vec::new()],
            seen: HashSet::new(),
            queue: Vec::new(),
            of_owners: HashMap::new(),
            paths_of_others: HashMap::new(),
            proves: false,
            reach: Reach::default(),
        };
        // Rows on their way are neither cast nor compared.
        let everywhere = search.code.everywhere.iter().filter(|_| writing != Writing::Transit);
        for uses in everywhere {
            search.add_use(uses, SESSION, None);
        }
        search
    }

    /// Adds a statement's own text.
    pub(crate) fn text(&mut self, text: &str) {
        self.reach.samples |= reads_uncounted(text);
        self.reach.hides |= names_accounting(text);
        // What the scanner cannot read, the grammar has refused; odd literals are the planner's.
        match crate::statement::tokens::scan(text) {
            Ok(tokens) if tokens.iter().any(|token| token.token == Token::Uident) => {
                self.opaque("this statement", "spells names by numbers of characters (U&)");
            }
            Ok(tokens) => {
                let words = words_of(&tokens);
                self.mark_words(&words, SESSION);
                self.words(&words, SESSION, None);
            }
            Err(_) => self.opaque("this statement", "cannot be read"),
        }
    }

    /// Adds what a server runs to analyse a text, without executing it: it reads constants, as values of types that
    /// the text names, or of arguments of functions and operators, or of columns of tables.
    pub(crate) fn analysed(&mut self, text: &str) {
        let Ok(tokens) = crate::statement::tokens::scan(text) else {
            return self.opaque("this statement", "cannot be read");
        };
        let is_constant = |token| matches!(token, Token::Sconst | Token::Usconst);
        if !tokens.iter().any(|token| is_constant(token.token)) {
            return;
        }
        let words = words_of(&tokens);
        self.mark_words(&words, SESSION);
        let code = self.code;
        for name in &words.names {
            for oid in self.types_meant(name, SESSION) {
                let is_array = name.listed || name.name.starts_with('_');
                self.push(if is_array { Item::Made(oid) } else { Item::Read(oid) }, SESSION);
            }
            for function in self.functions_meant(name, SESSION) {
                self.arguments(function);
            }
            if let Some(relation) = self.relation_named(name.before.as_deref(), &name.name, SESSION)
            {
                for column in &relation.columns {
                    self.push(Item::Read(column.type_oid), SESSION);
                }
            }
        }
        for operator in self.operators_meant(&words, SESSION) {
            for used in code.operators.get(&operator).into_iter().flat_map(|it| &it.uses) {
                if let Use::Function(function) = used {
                    self.arguments(*function);
                }
            }
        }
    }

    /// Adds what makes values that a function is given.
    fn arguments(&mut self, function: u32) {
        let code = self.code;
        for of in code.functions.get(&function).into_iter().flat_map(|it| &it.types) {
            self.push(Item::Read(*of), SESSION);
        }
    }

    /// What reads a constant: a domain's is one of the type below it, which is checked when it is used.
    fn read_constant(&mut self, oid: u32, path: Path) {
        let code = self.code;
        match code.types.get(&oid) {
            Some(of) if of.kind == TypeKind::Domain => {
                of.parts.iter().for_each(|below| self.push(Item::Read(*below), path));
            }
            _ => self.push(Item::Made(oid), path),
        }
    }

    /// Adds what a text means to another role, the owner of a table.
    pub(crate) fn text_of_owner(&mut self, text: &str) {
        let Ok(tokens) = crate::statement::tokens::scan(text) else { return };
        let words = words_of(&tokens);
        let does = "is run as an owner who may see other schemas";
        self.as_owner(SESSION, "this statement", does, |search, path| {
            search.mark_words(&words, path);
            search.words(&words, path, None);
        });
    }

    /// Notes what words may come to mean by a path.
    fn mark_words(&mut self, words: &Words, path: Path) {
        let calls = &mut self.reach.calls;
        if self.of_owners.contains_key(&path) {
            calls.extend(words.calls().map(|(_, call)| mark_of(Seen::ByOwner, call)));
            return;
        }
        let path = &self.paths[path];
        for (schema, call) in words.calls() {
            match schema {
                Some(schema) => {
                    calls.insert(mark_of(Seen::In(schema), call));
                }
                None => {
                    let schemas = path.iter().map(String::as_str).chain(["pg_catalog"]);
                    calls.extend(schemas.map(|schema| mark_of(Seen::In(schema), call)));
                }
            }
            calls.insert(mark_of(Seen::Anew, call));
        }
    }

    /// Adds what the statement's text names of the session's temporary objects.
    pub(crate) fn temporary_code(&mut self, text: &str) {
        if self.scope.temporary_code.is_empty() && self.scope.temporary_types.is_empty() {
            return;
        }
        let Ok(tokens) = crate::statement::tokens::scan(text) else {
            return self.opaque("this statement", "cannot be read");
        };
        let words = words_of(&tokens);
        let is_named = |code: &&String| words.names.iter().any(|word| word.may_mean(code));
        let named = self.scope.temporary_code.iter().find(is_named);
        if let Some(named) = named {
            self.opaque(&format!("the temporary object \"{named}\""), "may run code");
            self.reach.sets = true;
        }
        for (table, of) in &self.scope.temporary_types {
            if words.names.iter().any(|word| word.name == *table) {
                self.push(Item::Made(*of), SESSION);
            }
        }
    }

    /// Adds code that a statement brings with it: a DO.
    pub(crate) fn block(&mut self, language: &str, text: &str) {
        let body = Body::of_block(language, text);
        if certain_tokens(text).is_none() && body.opaque.is_none() {
            self.opaque("this DO block", "cannot be read");
        }
        self.mark_words(&body.words, SESSION);
        self.body(&body, SESSION, "this DO block");
    }

    /// Adds a read of a relation in the statement itself: where its rows are is the planner's concern.
    pub(crate) fn read(&mut self, relation: &Arc<Relation>) {
        self.push(Item::Rows(relation.oid), SESSION);
        self.fields(relation, SESSION);
    }

    /// Adds a write to a relation.
    pub(crate) fn write(&mut self, relation: &Arc<Relation>, events: u8) {
        self.push(Item::Written(relation.oid, events), SESSION);
        self.make_rows(relation);
    }

    /// Adds what a server computes of a table to plan a query of it, or to build or prove something about it.
    pub(crate) fn plan(&mut self, relation: u32, builds: bool) {
        self.push(Item::Planned(relation, builds), SESSION);
    }

    /// Adds what compares, casts or shows values of a relation's columns, and makes none.
    pub(crate) fn see(&mut self, relation: &Relation) {
        for column in &relation.columns {
            self.push(Item::Seen(column.type_oid), SESSION);
        }
    }

    /// Adds what runs where rows of a relation are read from their text.
    pub(crate) fn make_rows(&mut self, relation: &Arc<Relation>) {
        for column in &relation.columns {
            self.push(Item::Made(column.type_oid), SESSION);
        }
    }

    /// Adds a function, an operator or a type.
    pub(super) fn object(&mut self, uses: &Use) {
        self.add_use(uses, SESSION, None);
        if let Use::Type(oid) = uses {
            self.push(Item::Seen(*oid), SESSION);
        }
    }

    /// Adds what runs where a value of a type is read from its text.
    pub(crate) fn make(&mut self, type_oid: u32) {
        self.push(Item::Made(type_oid), SESSION);
    }

    /// Adds the default of a column.
    pub(crate) fn default(&mut self, relation: &Relation, column: &str) {
        // A domain brings a default of its own.
        if let Some(at) = relation.column(column) {
            self.push(Item::Made(relation.columns[at].type_oid), SESSION);
        }
        self.default_of(relation.oid, column, SESSION);
    }

    fn default_of(&mut self, relation: u32, column: &str, path: Path) {
        let attached = self.code.attached.get(&relation);
        for attached in attached.into_iter().flatten() {
            if attached.kind == AttachedKind::Default && attached.name == column {
                self.add_attached(attached, path);
            }
        }
    }

    /// Adds an object of a relation's.
    pub(crate) fn attached(&mut self, attached: &Attached) {
        self.add_attached(attached, SESSION);
    }

    /// Adds what any change of the schema runs.
    pub(crate) fn event_triggers(&mut self) {
        self.event_triggers_that(|_| true);
    }

    /// Adds what those of them run that are meant.
    pub(crate) fn event_triggers_that(&mut self, are_meant: impl Fn(&Attached) -> bool) {
        for trigger in self.code.event_triggers.iter().filter(|it| are_meant(it)) {
            self.add_attached(trigger, SESSION);
        }
    }

    /// Adds what the statement has that only an effect on the session can have.
    pub(crate) fn note_sets(&mut self) {
        self.reach.sets = true;
    }

    /// From here on it must be proven that all is on node 1: what the statement's own words may mean, and all
    /// that it reaches.
    pub(crate) fn prove_home(&mut self, text: &str) {
        self.proves = true;
        if let Ok(tokens) = crate::statement::tokens::scan(text) {
            self.names_of(&words_of(&tokens), false, SESSION, "this statement");
        }
    }

    /// Adds a reason of the caller's own.
    pub(crate) fn opaque(&mut self, code: &str, does: &str) {
        self.opaque_at_home(code, does);
        self.beyond_home(code, does);
    }

    /// The same, of what is node 1's alone for certain.
    fn opaque_at_home(&mut self, code: &str, does: &str) {
        self.reach
            .opaque
            .get_or_insert_with(|| Reason { code: code.to_owned(), does: does.to_owned() });
    }

    fn beyond_home(&mut self, code: &str, does: &str) {
        self.reach
            .beyond_home
            .get_or_insert_with(|| Reason { code: code.to_owned(), does: does.to_owned() });
    }

    /// Visits everything that can be reached.
    pub(crate) fn finish(mut self) -> Reach {
        if !self.proves {
            self.beyond_home("this statement", "was not looked at for that");
        }
        while let Some((item, path)) = self.queue.pop() {
            match item {
                Item::Function(oid) => self.function(oid, path),
                Item::Operator(oid) => {
                    let code = self.code;
                    self.reach.calls.insert(oid);
                    if let Some(operator) = code.operators.get(&oid) {
                        self.uses(&operator.uses, path, None);
                    }
                }
                Item::Seen(oid) => self.type_parts(oid, path, false),
                Item::Made(oid) => self.type_parts(oid, path, true),
                Item::Read(oid) => self.read_constant(oid, path),
                Item::Rows(oid) => self.rows(oid, path),
                Item::Planned(oid, builds) => self.planned(oid, builds, path),
                Item::Written(oid, events) => self.written(oid, events, path),
                // What is to be looked at has been added with it.
                Item::Named(..) => (),
            }
        }
        self.reach
    }

    fn push(&mut self, item: Item, path: Path) {
        if self.seen.insert((item, path)) {
            self.queue.push((item, path));
        }
    }

    fn uses(&mut self, uses: &[Use], path: Path, of: Option<&str>) {
        for uses in uses {
            self.add_use(uses, path, of);
        }
    }

    /// `of`: the code that uses it; `None` for what belongs to the statement, or has no name.
    fn add_use(&mut self, uses: &Use, path: Path, of: Option<&str>) {
        match uses {
            Use::Function(oid) if *oid < FIRST_USER_OID => {
                if let Some((name, class)) = self.code.built_in.by_oid.get(oid) {
                    let of = of.map_or_else(|| format!("function {name}()"), str::to_owned);
                    self.built_in(name, *class, Some(&of));
                }
            }
            Use::Function(oid) => self.push(Item::Function(*oid), path),
            Use::Operator(oid) => self.push(Item::Operator(*oid), path),
            Use::Type(oid) => self.push(Item::Made(*oid), path),
            Use::Relation(schema, name) => {
                let found = self.catalog.relations.get(schema).and_then(|all| all.get(name));
                self.relation(found.cloned().as_ref(), name, path, of);
            }
        }
    }

    fn function(&mut self, oid: u32, path: Path) {
        let code = self.code;
        self.reach.calls.insert(oid);
        let Some(function) = code.functions.get(&oid) else {
            // Newer than the catalog.
            self.reach.catches = true;
            return self.opaque("a function", "is not known yet");
        };
        let path = match &function.path {
            Some(own) => self.path_of(own),
            None => path,
        };
        self.mark_words(&function.body.words, path);
        if function.body.sets {
            // The path, too, perhaps.
            let calls = function.body.words.calls();
            self.reach.calls.extend(calls.map(|(_, call)| mark_of(Seen::ByOwner, call)));
        }
        let name = function.in_words();
        if self.writing == Writing::Transit {
            if !function.body.is_of_superusers() || function.body.opaque.is_some() {
                self.opaque(&name, "is not PostgreSQL's own");
            }
            return;
        }
        if function.declared.is_some() {
            self.reach.leaves |= function.body.opaque.is_some();
            self.reach.sets |= function.body.sets && self.writing == Writing::Statement;
        }
        match (function.declared, self.writing) {
            (Some(Declaration::Row), Writing::Row | Writing::Copies | Writing::Transit) => return,
            (Some(Declaration::Row), Writing::Statement) => {
                return self.opaque(&name, "is declared 'row': it may run beside its row only");
            }
            (Some(Declaration::Replicated), _) => {
                self.reach.reads.insert(format!("what {name} reads"));
                return;
            }
            (Some(Declaration::Home), _) => self.opaque_at_home(&name, DECLARED_HOME),
            (None, _) => (),
        }
        for of in &function.types {
            self.push(Item::Made(*of), path);
        }
        self.reach.hides |= function.hides;
        self.uses(&function.uses, path, Some(&name));
        self.body(&function.body, path, &name);
        let depends_on_role =
            function.path.as_ref().is_none_or(|own| own.iter().any(|schema| schema == "$user"));
        if function.is_definer && depends_on_role {
            let does = "runs as its owner, who may see other schemas";
            self.as_owner(path, &name, does, |search, path| {
                search.mark_words(&function.body.words, path);
                search.body(&function.body, path, &name);
            });
        }
    }

    /// Adds what something means to the role that it runs as, who is not the session's: by each path that this may
    /// be. `of` and `does`: what is said of it where there are too many.
    fn as_owner(&mut self, path: Path, of: &str, does: &str, mut add: impl FnMut(&mut Self, Path)) {
        match self.paths_of_owners(path) {
            Some(paths) => paths.into_iter().for_each(|path| add(self, path)),
            None => self.opaque(of, does),
        }
    }

    /// The paths that the session's may be for another role: any schema may come before the others, "$user" among
    /// them. `None`: there are too many.
    fn paths_of_owners(&mut self, path: Path) -> Option<Vec<Path>> {
        // One owner's code may run another's.
        let base = self.of_owners.get(&path).copied().unwrap_or(path);
        if let Some(paths) = self.paths_of_others.get(&base) {
            return paths.clone();
        }
        let paths = self.make_paths_of_owners(base);
        self.paths_of_others.insert(base, paths.clone());
        paths
    }

    fn make_paths_of_owners(&mut self, base: Path) -> Option<Vec<Path>> {
        let mut others = schemas_with_names(self.catalog);
        others.retain(|schema| !self.paths[base].contains(schema));
        if OWNERS_SCHEMAS_MAX < others.len() {
            return None;
        }
        let mut paths = Vec::new();
        for schema in others {
            let mut wanted = vec![schema];
            wanted.extend(self.paths[base].iter().cloned());
            let path = self.known_path(wanted);
            self.of_owners.insert(path, base);
            paths.push(path);
        }
        Some(paths)
    }

    fn path_of(&mut self, own: &[String]) -> Path {
        let mut wanted: Vec<String> = own.to_vec();
        if own.iter().any(|schema| schema == "$user") {
            // Whose schema that is, only the session knows.
            wanted.extend(self.paths[SESSION].iter().cloned());
        }
        self.known_path(wanted)
    }

    fn known_path(&mut self, wanted: Vec<String>) -> Path {
        let known = self.paths.iter().skip(EXACT + 1).position(|path| *path == wanted);
        known.map_or_else(
            || {
                self.paths.push(wanted);
                self.paths.len() - 1
            },
            |position| position + EXACT + 1,
        )
    }

    fn body(&mut self, body: &Body, path: Path, of: &str) {
        self.reach.sets |= body.sets;
        self.reach.catches |= body.catches;
        self.reach.samples |= body.samples;
        self.reach.differs |= body.differs;
        self.reach.hides |= body.hides;
        if body.commits {
            self.reach.commits.get_or_insert_with(|| of.to_owned());
        }
        if let Some(does) = &body.opaque {
            // What it runs may undo what that has touched.
            self.reach.catches = true;
            self.opaque_at_home(of, does);
        }
        if let Some(does) = &body.beyond {
            self.beyond_home(of, does);
        }
        self.words(&body.words, path, Some(of));
        self.names_of(&body.words, body.writes, path, of);
        for read in &body.reads {
            let is_temporary = read.schema.is_none() && self.scope.temporary.contains(&read.name);
            if is_temporary {
                self.opaque_at_home(of, &format!("reads the temporary table \"{}\"", read.name));
                continue;
            }
            let found = self.relation_named(read.schema.as_deref(), &read.name, path);
            if found.is_some() || !read.may_be_with {
                self.relation(found.as_ref(), &read.name, path, Some(of));
            }
        }
        for name in body.words.names.iter().filter(|name| body.reads_by_word && !name.called) {
            if name.before.is_none() && self.scope.temporary.contains(&name.name) {
                self.opaque_at_home(of, &format!("may read the temporary table \"{}\"", name.name));
                continue;
            }
            if let Some(found) = self.relation_named(name.before.as_deref(), &name.name, path) {
                self.relation(Some(&found), &name.name, path, Some(of));
            }
        }
    }

    /// Values of columns' types may be made wherever the columns are read: a literal beside a column becomes one of
    /// its type, code gives a field of a row another value.
    fn fields(&mut self, relation: &Relation, path: Path) {
        for column in &relation.columns {
            let of = column.type_oid;
            self.push(
                if self.writing == Writing::Transit { Item::Seen(of) } else { Item::Made(of) },
                path,
            );
        }
    }

    /// The relations that words of code may mean, in any schema of the path.
    fn names_of(&mut self, words: &Words, writes: bool, path: Path, of: &str) {
        if !self.proves {
            return;
        }
        for name in &words.names {
            if self.scope.temporary_code.contains(&name.name) {
                self.beyond_home(of, &format!("uses the temporary object \"{}\"", name.name));
            }
            let schemas = match &name.before {
                Some(schema) => vec![schema.clone()],
                None => self.paths[path].clone(),
            };
            for schema in schemas {
                let relations = &self.catalog.relations;
                if let Some(found) = relations.get(&schema).and_then(|all| all.get(&name.name)) {
                    self.named(found, writes, path, of);
                }
            }
        }
    }

    /// A relation that code reads or writes by name: whether that is proven to be node 1's business.
    fn named(&mut self, relation: &Arc<Relation>, writes: bool, path: Path, of: &str) {
        if !self.proves {
            return;
        }
        let mut found = vec![relation.clone()];
        while let Some(relation) = found.pop() {
            if !self.seen.insert((Item::Named(relation.oid, writes), path)) {
                continue;
            }
            let (catalog, code) = (self.catalog, self.code);
            let table =
                |schema: &str, name: &str| catalog.relations.get(schema)?.get(name).cloned();
            match (&relation.kind, &relation.placement) {
                (RelationKind::Sequence, _) => continue,
                (RelationKind::View { .. }, _) => {
                    let read = code.read_by_view(relation.oid);
                    found.extend(read.filter_map(|(schema, name)| table(schema, name)));
                }
                (RelationKind::Table | RelationKind::MaterializedView, Placement::Home) => {
                    self.reach.home_tables.insert(relation.oid);
                }
                (RelationKind::Table | RelationKind::MaterializedView, Placement::Replicated)
                    if !writes =>
                {
                    self.reach.home_tables.insert(relation.oid);
                }
                _ => {
                    let does = if writes { "uses" } else { "reads" };
                    self.beyond_home(of, &format!("{does} {}", relation.sql_name()));
                    continue;
                }
            }
            self.push(Item::Rows(relation.oid), path);
            if !writes {
                continue;
            }
            self.push(Item::Written(relation.oid, events::ALL), path);
            for column in &relation.columns {
                self.push(Item::Made(column.type_oid), path);
            }
            for attached in code.attached.get(&relation.oid).into_iter().flatten() {
                if attached.kind == AttachedKind::Default {
                    self.add_attached(attached, path);
                }
            }
            let others = code.written_with.get(&relation.oid).into_iter().flatten();
            found.extend(others.filter_map(|other| table(&other.schema, &other.name)));
        }
    }

    fn relation_named(
        &self,
        schema: Option<&str>,
        name: &str,
        path: Path,
    ) -> Option<Arc<Relation>> {
        let relations = &self.catalog.relations;
        match schema {
            Some(schema) => relations.get(schema)?.get(name).cloned(),
            None => self.paths[path].iter().find_map(|it| relations.get(it)?.get(name)).cloned(),
        }
    }

    /// A relation that code reads, or the statement where `of` is `None`.
    fn relation(
        &mut self,
        relation: Option<&Arc<Relation>>,
        name: &str,
        path: Path,
        of: Option<&str>,
    ) {
        let Some(of) = of else {
            if let Some(relation) = relation {
                self.read(relation);
            }
            return;
        };
        let Some(relation) = relation else {
            return self.opaque_at_home(of, &format!("reads \"{name}\", which is node 1's"));
        };
        self.named(relation, false, path, of);
        self.push(Item::Rows(relation.oid), path);
        self.fields(relation, path);
        match (&relation.kind, &relation.placement) {
            (RelationKind::View { .. }, _) => self.view_of(relation.oid, path, of),
            (RelationKind::Table | RelationKind::MaterializedView, Placement::Replicated) => {
                self.reach.reads.insert(relation.sql_name());
            }
            (_, placement) => {
                let what = if placement.is_distributed() { "distributed table" } else { "table" };
                self.opaque_at_home(of, &format!("reads the {what} {}", relation.sql_name()));
            }
        }
    }

    /// What a view reads, where code reads the view.
    fn view_of(&mut self, view: u32, path: Path, of: &str) {
        let code = self.code;
        for attached in code.attached.get(&view).into_iter().flatten() {
            if attached.kind == AttachedKind::View
                && self.seen.insert((Item::Written(view, 0), path))
            {
                self.uses(&attached.uses, path, Some(of));
            }
        }
    }

    fn rows(&mut self, relation: u32, path: Path) {
        let code = self.code;
        if let Some(row) = code.row_types.get(&relation) {
            self.push(Item::Seen(*row), path);
        }
        for attached in code.attached.get(&relation).into_iter().flatten() {
            match attached.kind {
                AttachedKind::Policy => self.add_attached(attached, path),
                // The statement reads what its view reads.
                AttachedKind::View => self.uses(&attached.uses, path, None),
                _ => (),
            }
        }
        self.push(Item::Planned(relation, false), path);
    }

    /// What a server computes to plan a query: what is constant in expressions of indexes and statistics and in
    /// checks, be it only when a function's body or the defaults of its arguments have taken its place.
    fn planned(&mut self, relation: u32, builds: bool, path: Path) {
        let code = self.code;
        for attached in code.attached.get(&relation).into_iter().flatten() {
            let is_planned_with = matches!(
                attached.kind,
                AttachedKind::Index | AttachedKind::Check | AttachedKind::Statistics
            );
            if !is_planned_with {
                continue;
            }
            let is_computed =
                attached.is_folded || attached.uses.iter().any(|used| self.may_be_replaced(used));
            if is_computed && !self.is_declared_for_rows(attached) {
                match builds {
                    true => self.add_attached(attached, path),
                    // As the role that reads.
                    false => self.run_attached(attached, path),
                }
            }
            for used in &attached.uses {
                if let Use::Function(oid) = used {
                    self.reach.calls.insert(*oid);
                }
            }
        }
        for child in code.written_with.get(&relation).into_iter().flatten() {
            if child.is_child() {
                self.push(Item::Planned(child.relation, builds), path);
            }
        }
    }

    /// Whether all that it calls was said to belong beside rows, wherever they are.
    fn is_declared_for_rows(&self, attached: &Attached) -> bool {
        attached.uses.iter().all(|used| match used {
            Use::Function(oid) => self
                .code
                .functions
                .get(oid)
                .is_some_and(|function| function.declared == Some(Declaration::Row)),
            _ => false,
        })
    }

    /// Whether a server puts something else in the place of a call, with constants of its own: the body of a function
    /// in SQL, or defaults of arguments. (What a function in another language refers to is in these.)
    fn may_be_replaced(&self, used: &Use) -> bool {
        let code = self.code;
        match used {
            Use::Function(oid) => {
                let replaces = |it: &FunctionCode| it.body.is_sql() || !it.uses.is_empty();
                FIRST_USER_OID <= *oid && code.functions.get(oid).is_none_or(replaces)
            }
            Use::Operator(oid) => code.operators.get(oid).is_none_or(|operator| {
                let functions = operator.uses.iter();
                functions
                    .filter(|it| matches!(it, Use::Function(_)))
                    .any(|it| self.may_be_replaced(it))
            }),
            Use::Type(_) | Use::Relation(..) => false,
        }
    }

    fn written(&mut self, relation: u32, events: u8, path: Path) {
        let code = self.code;
        // A foreign key is checked by queries of the other table.
        for referred in code.referred_by(relation) {
            self.push(Item::Planned(referred, false), path);
        }
        for attached in code.attached.get(&relation).into_iter().flatten() {
            if attached.runs_for(events) {
                self.run_attached(attached, path);
            }
        }
        for other in code.written_with.get(&relation).into_iter().flatten() {
            self.push(Item::Planned(other.relation, false), path);
            if other.by & events != 0 {
                let event = if other.is_child() { events } else { other.as_event };
                self.push(Item::Written(other.relation, event), path);
                let relations = self.catalog.relations.get(&other.schema);
                if let Some(table) = relations.and_then(|all| all.get(&other.name)).cloned() {
                    self.fields(&table, path);
                }
                for column in other.columns.iter().filter(|it| it.is_set && it.to_default) {
                    self.default_of(other.relation, &column.referring, path);
                }
                if !other.is_child() {
                    self.written_as_owner(other, event, path);
                }
            }
        }
    }

    /// What a foreign key does to rows that refer to others, it does as their table's owner.
    fn written_as_owner(&mut self, other: &WrittenWith, event: u8, path: Path) {
        if !self.acts_with_code(other, event) {
            return;
        }
        let does = "acts as its table's owner, who may see other schemas";
        self.as_owner(path, "a foreign key", does, |search, path| {
            search.push(Item::Written(other.relation, event), path);
            for column in other.columns.iter().filter(|it| it.is_set && it.to_default) {
                search.default_of(other.relation, &column.referring, path);
            }
        });
    }

    /// Whether anything runs by it but foreign keys themselves, which look up no names.
    fn acts_with_code(&self, other: &WrittenWith, event: u8) -> bool {
        let code = self.code;
        let to_default = |it: &WrittenWith| it.columns.iter().any(|it| it.is_set && it.to_default);
        let mut reached = vec![(other.relation, event, to_default(other))];
        let mut at = 0;
        while let Some((relation, event, to_default_here)) = reached.get(at).copied() {
            at += 1;
            let runs = |it: &&Attached| {
                it.runs_for(event) || (to_default_here && it.kind == AttachedKind::Default)
            };
            let attached = code.attached.get(&relation).into_iter().flatten();
            if attached.filter(runs).any(|it| !it.uses.is_empty()) {
                return true;
            }
            for other in code.written_with.get(&relation).into_iter().flatten() {
                if other.by & event == 0 {
                    // What is only looked at is planned, which may run code of its indexes.
                    let mut attached = code.attached.get(&other.relation).into_iter().flatten();
                    if attached.any(|it| !it.uses.is_empty()) {
                        return true;
                    }
                    continue;
                }
                let event = if other.is_child() { event } else { other.as_event };
                let next = (other.relation, event, to_default(other));
                if !reached.contains(&next) {
                    reached.push(next);
                }
            }
        }
        false
    }

    /// Adds what an object of a relation's runs for the role that the path is of.
    fn run_attached(&mut self, attached: &Attached, path: Path) {
        let name = attached.in_words();
        if attached.kind == AttachedKind::Rule && attached.uses.iter().any(is_relation) {
            self.opaque(&name, "runs a statement of its own");
        }
        self.uses(&attached.uses, path, Some(&name));
    }

    /// The same, and what it runs where it is built or analysed.
    fn add_attached(&mut self, attached: &Attached, path: Path) {
        self.run_attached(attached, path);
        let name = attached.in_words();
        let calls_users = attached.uses.iter().any(|it| matches!(it, Use::Function(_)));
        if matches!(attached.kind, AttachedKind::Index | AttachedKind::Statistics) && calls_users {
            // That is done as the table's owner.
            let does = "is built as its owner, who may see other schemas";
            self.as_owner(path, &name, does, |search, path| {
                search.uses(&attached.uses, path, Some(&name));
            });
        }
    }

    fn type_parts(&mut self, oid: u32, path: Path, is_made: bool) {
        let code = self.code;
        let oid = code.elements.get(&oid).copied().unwrap_or(oid);
        // One that is not known has no code, but may be given a cast.
        if FIRST_USER_OID <= oid {
            self.reach.calls.insert(oid);
        }
        let Some(of) = code.types.get(&oid) else { return };
        let name = format!("type \"{}\"", of.name);
        let is_transit = self.writing == Writing::Transit;
        if !is_transit {
            self.uses(&of.seen, path, Some(&name));
        }
        if is_made {
            self.uses(&of.made, path, Some(&name));
        }
        // Rows have all their values.
        if is_made && !is_transit {
            self.uses(&of.defaults, path, Some(&name));
        }
        for part in &of.parts {
            let rows = code.types.get(code.elements.get(part).unwrap_or(part));
            if let Some(table) = rows.and_then(|rows| home_rows(self.catalog, rows)) {
                self.opaque_at_home(&name, &format!("is made of rows of {table}, on node 1 alone"));
            }
            self.push(if is_made { Item::Made(*part) } else { Item::Seen(*part) }, path);
        }
    }

    // Names

    fn words(&mut self, words: &Words, path: Path, of: Option<&str>) {
        for name in &words.names {
            self.name(name, path, of);
        }
        for oid in self.operators_meant(words, path) {
            self.push(Item::Operator(oid), path);
        }
    }

    fn operators_meant(&self, words: &Words, path: Path) -> Vec<u32> {
        let code = self.code;
        let mut found = Vec::new();
        for (schema, name) in &words.operators {
            let named = code.operator_names.get(name).into_iter().flatten();
            found.extend(named.filter(|oid| {
                code.operators.get(oid).is_some_and(|operator| match schema {
                    Some(schema) => *schema == operator.schema,
                    None => self.sees(path, &operator.schema),
                })
            }));
        }
        found
    }

    fn name(&mut self, name: &Name, path: Path, of: Option<&str>) {
        let code = self.code;
        if name.before.as_deref().is_some_and(|before| before.starts_with("pg_temp")) {
            self.opaque(of.unwrap_or("this statement"), "uses temporary objects");
        }
        if let Some(does) = self.mistakes(name, path) {
            self.opaque_at_home(of.unwrap_or("this statement"), &does);
        }
        let functions = self.functions_meant(name, path);
        // Other nodes lack it, and which of several is meant is for a node to say that has them all.
        if let Some(table) = functions.iter().find_map(|oid| home_rows_of(self.catalog, *oid)) {
            let does = format!("may call {}, which is of rows of {table}, on node 1", name.name);
            self.opaque_at_home(of.unwrap_or("this statement"), &does);
        }
        for oid in functions {
            self.push(Item::Function(oid), path);
        }
        for oid in self.types_meant(name, path) {
            self.push(Item::Made(oid), path);
        }
        let may_be_built_in = name.before.as_deref().is_none_or(|before| before == "pg_catalog");
        if name.called && may_be_built_in {
            let class = code.built_in.of_name(&name.name);
            self.built_in(&name.name, class, of);
        }
    }

    /// Why a node that lacks what node 1 has would find no type of this name, or take another for it.
    fn mistakes(&self, name: &Name, path: Path) -> Option<String> {
        if let Some(schema) = &name.before {
            let table = rows_of_home(self.catalog, std::slice::from_ref(schema), &name.name);
            return table.filter(|_| name.casts).map(of_home_rows);
        }
        // Types of its own that the session has; tables may be meant by the same words.
        if path == SESSION
            && let Some(of) = self.scope.temporary_code.iter().find(|of| name.may_mean(of))
        {
            return Some(format!("names the temporary \"{of}\""));
        }
        // What may be an array's type is hardly anything else, wherever it stands.
        if !name.casts && !name.name.starts_with('_') {
            return None;
        }
        if path == SESSION
            && let Some(of) = self.scope.temporary.iter().find(|of| name.may_mean(of))
        {
            return Some(format!("has values of the type of rows of the temporary \"{of}\""));
        }
        let schemas = &self.paths[path];
        // PostgreSQL's own come first, in most paths.
        let hides = schemas.iter().position(|it| it == "pg_catalog") > Some(0);
        if types_of_name(&name.name).any(is_built_in) && !hides {
            return None;
        }
        let table = match name.casts {
            true => rows_of_home(self.catalog, schemas, &name.name),
            false => mistakable_rows(self.catalog, schemas, &name.name),
        };
        table.map(of_home_rows)
    }

    fn functions_meant(&self, name: &Name, path: Path) -> Vec<u32> {
        let code = self.code;
        let all = code.function_names.get(&name.name).into_iter().flatten();
        let are_meant = |oid: &&u32| {
            let Some(function) = code.functions.get(oid) else { return false };
            let is_visible = self.sees(path, &function.schema);
            // `t.f` calls f if t has no such column.
            let is_column_like = name.before.is_some() && function.takes_one && is_visible;
            name.before.as_deref() == Some(&function.schema)
                || is_column_like
                || (name.before.is_none() && name.called && is_visible)
        };
        all.filter(are_meant).copied().collect()
    }

    fn types_meant(&self, name: &Name, path: Path) -> Vec<u32> {
        let code = self.code;
        let is_meant = |oid: &u32| {
            code.types.get(oid).is_some_and(|of| {
                let is_visible = name.before.is_none() && self.sees(path, &of.schema);
                (of.row_of.is_none() || name.typed)
                    && (is_visible || name.before.as_deref() == Some(&of.schema))
            })
        };
        code.types_named(&name.name).filter(is_meant).collect()
    }

    /// A call of a built-in function, in the statement itself where `of` is `None`.
    fn built_in(&mut self, name: &str, class: BuiltIn, of: Option<&str>) {
        match (class, of) {
            (BuiltIn::Plain, _) | (BuiltIn::Home, None) => (),
            // Which table the alias that it gets stands for has not been looked up.
            (BuiltIn::MakesRows, _) => {
                let code = self.code;
                let rows = code.types.iter().filter(|(_, of)| of.row_of.is_some());
                rows.for_each(|(oid, _)| self.push(Item::Made(*oid), SESSION));
            }
            (BuiltIn::MakesValues, _) => {
                let code = self.code;
                code.types.keys().for_each(|oid| self.push(Item::Made(*oid), SESSION));
            }
            (BuiltIn::Sets, None) => {
                self.reach.sets = true;
                self.beyond_home("this statement", "changes settings");
            }
            (BuiltIn::RunsSql, None) => {
                self.reach.sets = true;
                self.reach.catches = true;
                self.opaque(&format!("function {name}()"), "runs SQL that it gets as text");
            }
            // A session that listens does so on all nodes.
            (_, Some(_)) if name == "pg_notify" && self.writing == Writing::Row => {
                self.reach.leaves = true;
            }
            (class, Some(of)) => {
                self.reach.sets |= class != BuiltIn::Home;
                self.reach.catches |= class == BuiltIn::RunsSql;
                let does = format!("calls {name}()");
                self.opaque_at_home(of, &does);
                if class != BuiltIn::Home || !touches_no_table(name) {
                    self.beyond_home(of, &does);
                }
            }
        }
    }

    fn sees(&self, path: Path, schema: &str) -> bool {
        schema == "pg_catalog"
            || schema.starts_with("pg_temp_")
            || self.paths[path].iter().any(|known| known == schema)
    }
}

/// The home table of whose rows' type an argument or the result of the function is.
fn home_rows_of(catalog: &Catalog, function: u32) -> Option<String> {
    let code = &catalog.code;
    code.functions
        .get(&function)?
        .types
        .iter()
        .find_map(|oid| home_rows(catalog, code.types.get(code.elements.get(oid).unwrap_or(oid))?))
}

/// The home table whose rows have this type.
fn home_rows(catalog: &Catalog, of: &TypeCode) -> Option<String> {
    of.row_of?;
    let relation = catalog.relations.get(&of.schema)?.get(&of.name)?;
    (relation.placement == Placement::Home).then(|| relation.sql_name())
}

/// Whether a function of this name, in this schema or in any, has an argument or a result that is of a home table's rows:
/// other nodes lack it.
pub(crate) fn is_of_home_rows(catalog: &Catalog, schema: Option<&str>, name: &str) -> bool {
    let mut named = catalog.code.function_names.get(name).into_iter().flatten();
    named.any(|oid| {
        let is_there = |of: &str| {
            catalog.code.functions.get(oid).is_some_and(|function| function.schema == of)
        };
        schema.is_none_or(is_there) && home_rows_of(catalog, *oid).is_some()
    })
}

/// What a statement does that names the type of a home table's rows.
fn of_home_rows(table: &Arc<Relation>) -> String {
    format!("has values of the type of rows of {}, which node 1 alone has", table.sql_name())
}

/// The home table that gives its name to a type, or to one of arrays, as the first of these schemas that has one of that
/// name: other nodes have none, or a type of arrays that is called so because nothing else is.
fn rows_of_home<'c>(
    catalog: &'c Catalog,
    path: &[String],
    name: &str,
) -> Option<&'c Arc<Relation>> {
    named_by_home(catalog, path, name, first_of_home)
}

/// The home table that gives its name to a type, or to one of arrays, as the first schema of a search path that has one
/// of that name, where a later schema has another: nodes that lack the table would take that.
pub(crate) fn mistakable_rows<'c>(
    catalog: &'c Catalog,
    path: &[String],
    name: &str,
) -> Option<&'c Arc<Relation>> {
    named_by_home(catalog, path, name, mistakable)
}

/// Of the names that an array's type of this name may be made from, and itself, the first that `of` knows something of.
fn named_by_home<'c>(
    catalog: &'c Catalog,
    path: &[String],
    name: &str,
    of: fn(&'c Catalog, &[String], &str) -> Option<&'c Arc<Relation>>,
) -> Option<&'c Arc<Relation>> {
    let cut =
        path.iter().filter_map(|schema| catalog.relations.get(schema)).flat_map(|all| all.keys());
    let mut cut = cut.filter(|of| is_cut_from(name, of));
    types_of_name(name)
        .find_map(|name| of(catalog, path, name))
        .or_else(|| cut.find_map(|name| of(catalog, path, name)))
}

/// The home table of this name in the first of these schemas that has a relation or a type of it.
fn first_of_home<'c>(
    catalog: &'c Catalog,
    path: &[String],
    name: &str,
) -> Option<&'c Arc<Relation>> {
    let relation = |schema: &String| catalog.relations.get(schema)?.get(name);
    let has_type = |schema: &String| catalog.code.has_type(schema, name);
    let first = path.iter().find(|schema| relation(schema).is_some() || has_type(schema))?;
    relation(first)
        .filter(|it| it.placement == Placement::Home && it.kind != RelationKind::Sequence)
}

fn mistakable<'c>(catalog: &'c Catalog, path: &[String], name: &str) -> Option<&'c Arc<Relation>> {
    let relation = |schema: &String| catalog.relations.get(schema)?.get(name);
    let has_type = |schema: &String| catalog.code.has_type(schema, name);
    let first = path.iter().position(|schema| relation(schema).is_some() || has_type(schema))?;
    let table = relation(&path[first]).filter(|table| table.placement == Placement::Home)?;
    let is_elsewhere = |schema: &String| {
        relation(schema).is_some_and(|other| other.placement != Placement::Home) || has_type(schema)
    };
    // Where nothing else is called so, that is the type of arrays of what is called as the rest.
    let is_of_arrays = |schema: &String| {
        let rest = name.strip_prefix('_').unwrap_or_default();
        let relation = catalog.relations.get(schema).and_then(|all| all.get(rest));
        relation.is_some_and(|other| other.placement != Placement::Home)
            || catalog.code.has_type(schema, rest)
    };
    let is_mistaken =
        path[first + 1..].iter().any(is_elsewhere) || path[first..].iter().any(is_of_arrays);
    is_mistaken.then_some(table)
}

/// The schemas in which something is that a name may mean.
pub(super) fn schemas_with_names(catalog: &Catalog) -> BTreeSet<String> {
    let code = &catalog.code;
    (catalog.relations.keys())
        .chain(code.functions.values().map(|it| &it.schema))
        .chain(code.operators.values().map(|it| &it.schema))
        .chain(code.types.values().map(|it| &it.schema))
        .cloned()
        .collect()
}

/// Built-in functions of node 1's that code may call which must be proven to touch its tables only.
fn touches_no_table(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "nextval",
        "setval",
        "currval",
        "lastval",
        "pg_notify",
        "txid_current",
        "pg_current_xact_id",
        "pg_current_snapshot",
    ];
    NAMES.contains(&name)
        || name.starts_with("pg_advisory_")
        || name.starts_with("pg_try_advisory_")
}

fn is_relation(uses: &Use) -> bool {
    matches!(uses, Use::Relation(..))
}
