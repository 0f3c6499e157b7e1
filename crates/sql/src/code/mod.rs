//! The code of users' that a database has: functions, operators, casts, types, policies, triggers, rules.
//!
//! Owns: the facts of all such code ([`Code`]), how a body is read (`body`), and which of PostgreSQL's own
//! functions are more than functions of their arguments (`builtins`).
//! Never: searches (`closure` does), or believes a declared volatility.
//! Start reading at [`Code`].

mod assigned;
mod body;
mod builtins;
mod facts;
mod layout;
mod tables;
mod volatility;
mod words;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

pub use body::Body;
pub use builtins::{BuiltIn, classify};
pub use layout::Layout;
pub use volatility::Volatility;
pub(crate) use words::{
    Called, Name, Words, certain_tokens, is_cut_from, may_name, reads_uncounted, types_of_name,
    words_of,
};
pub use words::{dotted_names, names_accounting};

/// The first OID that a user's object can have.
pub(crate) const FIRST_USER_OID: u32 = 16384;

/// What was declared of a function (`tutti_function`).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Declaration {
    /// All that it touches belongs to the key of the row at hand: it may run where the row is.
    Row,
    /// It reads replicated tables only: it may run on any node.
    Replicated,
    /// It touches home tables only: it runs on node 1.
    Home,
}

impl Declaration {
    /// As it is written and stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::Replicated => "replicated",
            Self::Home => "home",
        }
    }

    /// The reverse.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Row, Self::Replicated, Self::Home].into_iter().find(|it| it.as_str() == name)
    }
}

/// Something that code refers to. OIDs are node 1's.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Use {
    /// Calls a function, the user's or a built-in one.
    Function(u32),
    /// Applies an operator of the user's.
    Operator(u32),
    /// Makes values of a type of the user's.
    Type(u32),
    /// Reads a relation: schema and name.
    Relation(String, String),
}

/// A function, procedure or aggregate of the user's.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionCode {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The search path that it sets for itself.
    pub path: Option<Vec<String>>,
    /// It runs as its owner, or as a role that it sets, who may see other schemas by the same search path.
    pub is_definer: bool,
    /// Types of its arguments and its result.
    pub types: Vec<u32>,
    /// It can be called with one argument, and so be written as if it were a column.
    pub takes_one: bool,
    /// Its code.
    pub body: Arc<Body>,
    /// What it refers to by number: an aggregate its functions, an SQL body that was parsed when it
    /// was made everything.
    pub uses: Vec<Use>,
    /// It sets for itself what accounting for it rests on.
    pub hides: bool,
    /// What was declared of it.
    pub declared: Option<Declaration>,
}

impl FunctionCode {
    /// As it is called in a message.
    pub(crate) fn in_words(&self) -> String {
        match self.schema.as_str() {
            "public" => format!("function {}()", self.name),
            schema => format!("function {schema}.{}()", self.name),
        }
    }
}

/// An operator of the user's.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorCode {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Its function, and those that estimate it.
    pub uses: Vec<Use>,
    /// Not both operands are of base types of the user's: its name, said of values of PostgreSQL's own types,
    /// may mean it.
    pub over_built_in: bool,
}

/// What kind of type a type of the user's is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TypeKind {
    /// A base type, or an enum: its values have no parts.
    #[default]
    Base,
    /// A row type, a table's or one of its own.
    Row,
    /// A domain: its values are read as those of the type that it is made of, and checked later.
    Domain,
    /// A range of its one part.
    Range,
    /// Ranges of its one part.
    Multirange,
}

/// A type of the user's that has code, or parts that may have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypeCode {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Run whenever such a value is looked at: casts from and to it, what compares it, what prints it.
    pub seen: Vec<Use>,
    /// Run when one is made: checks of a domain, what reads it.
    pub made: Vec<Use>,
    /// Run where a value is left out: a domain's default.
    pub defaults: Vec<Use>,
    /// Types that it is made of.
    pub parts: Vec<u32>,
    /// What kind of type it is.
    pub kind: TypeKind,
    /// What a domain's values are where none is given, as SQL.
    pub default: Option<String>,
    /// The relation whose rows have this type.
    pub row_of: Option<u32>,
}

/// What kind of object is attached to a relation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AttachedKind {
    /// Row security.
    Policy,
    /// A trigger, its condition too.
    Trigger,
    /// A rule that is no view's query.
    Rule,
    /// A view's query.
    View,
    /// A constraint, or what computes a generated column.
    Check,
    /// A column's default; named after the column.
    Default,
    /// An index's expressions and operator classes, a partition's key.
    Index,
    /// Expressions of extended statistics.
    Statistics,
}

impl AttachedKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Trigger => "trigger",
            Self::Rule => "rule",
            Self::View => "view",
            Self::Check => "constraint",
            Self::Default => "default of column",
            Self::Index => "index",
            Self::Statistics => "statistics",
        }
    }
}

/// Which statements fire a trigger or a rule: a set of these.
pub mod events {
    /// INSERT.
    pub const INSERT: u8 = 1;
    /// UPDATE.
    pub const UPDATE: u8 = 2;
    /// DELETE.
    pub const DELETE: u8 = 4;
    /// TRUNCATE.
    pub const TRUNCATE: u8 = 8;
    /// All of them.
    pub const ALL: u8 = 15;
}

/// Code that belongs to a relation.
#[derive(Clone, Debug, PartialEq)]
pub struct Attached {
    /// Of which kind.
    pub kind: AttachedKind,
    /// Its name.
    pub name: String,
    /// What fires it (triggers and rules).
    pub events: u8,
    /// A BEFORE trigger for each row: it may change the row.
    pub changes_row: bool,
    /// What it refers to.
    pub uses: Vec<Use>,
    /// A part of it is constant, and runs code: a server computes that to plan a query, or to build something.
    pub is_folded: bool,
}

impl Attached {
    /// As it is called in a message.
    pub(crate) fn in_words(&self) -> String {
        format!("{} \"{}\"", self.kind.word(), self.name)
    }

    /// Whether statements of these kinds run it.
    pub fn runs_for(&self, fired: u8) -> bool {
        match self.kind {
            AttachedKind::Trigger | AttachedKind::Rule => self.events & fired != 0,
            // A row's values come with it, except what the planner leaves to the node.
            AttachedKind::View | AttachedKind::Default => false,
            // ANALYZE computes them.
            AttachedKind::Statistics => false,
            AttachedKind::Policy | AttachedKind::Check | AttachedKind::Index => true,
        }
    }
}

/// A table whose rows are written with those of another: a child, or one that refers to it by a
/// foreign key with an action.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WrittenWith {
    /// The other relation.
    pub relation: u32,
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Statements on the first that write the second; 0: none, the foreign key is only checked.
    pub by: u8,
    /// What they are there; 0: the same, for it is a child.
    pub as_event: u8,
    /// What a foreign key refers to, and what its action sets.
    pub columns: Vec<KeyColumn>,
}

/// A column of a foreign key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyColumn {
    /// The column that is referred to.
    pub referred: String,
    /// The referring column.
    pub referring: String,
    /// The action gives the referring column a value.
    pub is_set: bool,
    /// The value is the column's default.
    pub to_default: bool,
}

impl WrittenWith {
    /// Whether it is a child or a partition, and no foreign key.
    pub fn is_child(&self) -> bool {
        self.as_event == 0
    }
}

/// All code of the users' in the database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Code {
    pub(crate) functions: HashMap<u32, FunctionCode>,
    pub(crate) function_names: HashMap<String, Vec<u32>>,
    pub(crate) operators: HashMap<u32, OperatorCode>,
    pub(crate) operator_names: HashMap<String, Vec<u32>>,
    pub(crate) types: HashMap<u32, TypeCode>,
    pub(crate) type_names: HashMap<String, Vec<u32>>,
    /// Types of relations' rows, by relation.
    pub(crate) row_types: HashMap<u32, u32>,
    /// Array types, and what they are arrays of.
    pub(crate) elements: HashMap<u32, u32>,
    pub(crate) attached: HashMap<u32, Vec<Attached>>,
    pub(crate) written_with: HashMap<u32, Vec<WrittenWith>>,
    /// What may run in any statement: casts between built-in types, and such.
    pub(crate) everywhere: Vec<Use>,
    pub(crate) event_triggers: Vec<Attached>,
    /// Settings with a dot that views, policies, defaults and the like name.
    pub(crate) settings: BTreeSet<String>,
    pub(crate) built_in: Arc<BuiltInCode>,
}

/// Built-in functions that are more than functions of their arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BuiltInCode {
    pub(crate) by_oid: HashMap<u32, (String, BuiltIn)>,
    pub(crate) by_name: HashMap<String, BuiltIn>,
}

impl BuiltInCode {
    /// Adds a built-in function.
    pub fn add(&mut self, oid: u32, name: &str, class: BuiltIn) {
        if class == BuiltIn::Plain {
            return;
        }
        self.by_oid.insert(oid, (name.to_owned(), class));
        let known = self.by_name.entry(name.to_owned()).or_insert(class);
        *known = (*known).max(class);
    }

    /// What calling a built-in function of this name may mean.
    pub fn of_name(&self, name: &str) -> BuiltIn {
        self.by_name.get(name).copied().unwrap_or_default()
    }

    /// What the built-in function of this number is.
    pub fn of_oid(&self, oid: u32) -> BuiltIn {
        self.by_oid.get(&oid).map_or(BuiltIn::Plain, |(_, class)| *class)
    }

    /// Whether the function of this number is built in and, called by a client, touches no table of
    /// users'.
    pub fn touches_no_table(&self, oid: u32) -> bool {
        oid < FIRST_USER_OID && matches!(self.of_oid(oid), BuiltIn::Plain | BuiltIn::Home)
    }

    /// The OIDs of those that are not plain functions.
    pub fn oids(&self) -> impl Iterator<Item = u32> {
        self.by_oid.keys().copied()
    }
}

impl Code {
    /// No user-defined code, over these built-in functions.
    pub fn new(built_in: Arc<BuiltInCode>) -> Self {
        Self { built_in, ..Self::default() }
    }

    /// Whether all that statements can name, or run without naming it, is the same in both, but for what
    /// belongs to relations: a plan that knows which relations it uses may depend on more if it is not.
    pub fn calls_the_same(&self, other: &Self) -> bool {
        let everywhere = |code: &Self| (code.everywhere.clone(), code.event_triggers.clone());
        self.functions == other.functions
            && self.operators == other.operators
            && self.types == other.types
            && everywhere(self) == everywhere(other)
    }

    /// The built-in functions.
    pub fn built_in(&self) -> &Arc<BuiltInCode> {
        &self.built_in
    }

    /// Adds a function.
    pub fn add_function(&mut self, oid: u32, function: FunctionCode) {
        self.function_names.entry(function.name.clone()).or_default().push(oid);
        self.functions.insert(oid, function);
    }

    /// Adds an operator.
    pub fn add_operator(&mut self, oid: u32, operator: OperatorCode) {
        self.operator_names.entry(operator.name.clone()).or_default().push(oid);
        self.operators.insert(oid, operator);
    }

    /// Adds a type, whose array type has the number `array` (0: none).
    pub fn add_type(&mut self, oid: u32, array: u32, of: TypeCode) {
        self.type_names.entry(of.name.clone()).or_default().push(oid);
        if let Some(relation) = of.row_of {
            self.row_types.insert(relation, oid);
        }
        self.types.insert(oid, of);
        if array != 0 {
            self.elements.insert(array, oid);
        }
    }

    /// Types of this name, or of whose arrays it is the name: that begins with underscores.
    pub(crate) fn types_named(&self, name: &str) -> impl Iterator<Item = u32> {
        let element = name.trim_start_matches('_');
        let of_arrays = (element.len() < name.len()).then(|| self.type_names.get(element));
        let all = [self.type_names.get(name), of_arrays.flatten()];
        all.into_iter().flatten().flatten().copied()
    }

    /// What domains of this name, in whichever schema, have as their defaults.
    pub(crate) fn defaults_of_domains(&self, name: &str) -> impl Iterator<Item = &str> {
        let all = self.type_names.get(name).into_iter().flatten();
        all.filter_map(|oid| self.types.get(oid)?.default.as_deref())
    }

    /// Tables that the foreign keys of this one refer to.
    pub(crate) fn referred_by(&self, relation: u32) -> impl Iterator<Item = u32> {
        let refers = move |other: &WrittenWith| other.relation == relation && !other.is_child();
        let all = self.written_with.iter();
        all.filter(move |(_, others)| others.iter().any(refers)).map(|(referred, _)| *referred)
    }

    /// The function with this number.
    pub fn function(&self, oid: u32) -> Option<&FunctionCode> {
        self.functions.get(&oid)
    }

    /// The same, to be completed while facts are read.
    pub fn function_mut(&mut self, oid: u32) -> Option<&mut FunctionCode> {
        self.functions.get_mut(&oid)
    }

    /// The type with this number, to be completed while facts are read.
    pub fn type_mut(&mut self, oid: u32) -> Option<&mut TypeCode> {
        self.types.get_mut(&oid)
    }

    /// Adds an object of a relation's. One of the same kind and name gets what this one refers to.
    pub fn attach(&mut self, relation: u32, attached: Attached) {
        let all = self.attached.entry(relation).or_default();
        let same =
            |known: &&mut Attached| known.kind == attached.kind && known.name == attached.name;
        match all.iter_mut().find(same) {
            Some(known) => {
                known.uses.extend(attached.uses);
                known.is_folded |= attached.is_folded;
            }
            None => all.push(attached),
        }
    }

    /// Whether any change of the schema runs code.
    pub(crate) fn has_event_triggers(&self) -> bool {
        !self.event_triggers.is_empty()
    }

    /// Adds an event trigger.
    pub fn add_event_trigger(&mut self, trigger: Attached) {
        self.event_triggers.push(trigger);
    }

    /// Adds a table that is written with `relation`.
    pub fn write_with(&mut self, relation: u32, other: WrittenWith) {
        self.written_with.entry(relation).or_default().push(other);
    }

    /// Whether a function of the users' is proven to be one of its arguments by its own body.
    pub fn is_plain(&self, uses: &Use) -> bool {
        match uses {
            Use::Function(oid) => self.functions.get(oid).is_some_and(|function| {
                function.body.opaque.is_none()
                    && function.body.reads.is_empty()
                    && function.body.words.names.is_empty()
            }),
            _ => false,
        }
    }

    /// Adds what any statement may run.
    pub fn add_everywhere(&mut self, uses: Use) {
        self.everywhere.push(uses);
    }

    /// The bodies that have been read, by text and language, for reading the catalog again.
    pub fn bodies(&self) -> impl Iterator<Item = (u32, &Arc<Body>)> {
        self.functions.iter().map(|(oid, function)| (*oid, &function.body))
    }

    /// The objects of a relation.
    pub fn attached_to(&self, relation: u32) -> &[Attached] {
        self.attached.get(&relation).map_or(&[], Vec::as_slice)
    }

    /// The relations that have such objects.
    pub fn attached_relations(&self) -> impl Iterator<Item = u32> {
        self.attached.keys().copied()
    }

    /// Its policies.
    pub fn policies_of(&self, relation: u32) -> impl Iterator<Item = &Attached> {
        self.attached_to(relation).iter().filter(|it| it.kind == AttachedKind::Policy)
    }

    /// What a view's query names.
    pub fn read_by_view(&self, view: u32) -> impl Iterator<Item = (&String, &String)> {
        let queries = self.attached_to(view).iter().filter(|it| it.kind == AttachedKind::View);
        queries.flat_map(|query| &query.uses).filter_map(|uses| match uses {
            Use::Relation(schema, name) => Some((schema, name)),
            _ => None,
        })
    }

    /// The tables that are written with a relation.
    pub fn written_with(&self, relation: u32) -> &[WrittenWith] {
        self.written_with.get(&relation).map_or(&[], Vec::as_slice)
    }

    /// Whether writing the relation runs code of the users'.
    pub fn fires(&self, relation: u32) -> bool {
        let fires = |attached: &Attached| {
            matches!(attached.kind, AttachedKind::Trigger | AttachedKind::Rule)
        };
        self.attached.get(&relation).is_some_and(|all| all.iter().any(fires))
    }

    /// Whether a user's operator has this name.
    pub(crate) fn has_operator(&self, name: &str) -> bool {
        self.operator_names.contains_key(name)
    }

    /// The same of a function, procedure or aggregate.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.function_names.contains_key(name)
    }

    /// Whether this schema has a type of the user's of this name, other than of a relation's rows.
    pub(crate) fn has_type(&self, schema: &str, name: &str) -> bool {
        let mut named = self.types_named(name).filter_map(|oid| self.types.get(&oid));
        named.any(|of| of.schema == schema && of.row_of.is_none())
    }

    /// Whether there is any of these, or a type.
    pub(crate) fn has_names(&self) -> bool {
        !(self.functions.is_empty() && self.operators.is_empty() && self.types.is_empty())
    }

    /// Whether `OPERATOR(pg_catalog.name)` may mean a user's, put there by a superuser.
    pub(crate) fn adds_to_built_in_operator(&self, name: &str) -> bool {
        let mut named = self.operator_names.get(name).into_iter().flatten();
        named.any(|oid| self.operators.get(oid).is_some_and(|of| of.schema == "pg_catalog"))
    }

    /// Whether a user's operator of this name may be of values of PostgreSQL's own types, in whatever schema.
    pub(crate) fn is_over_built_in(&self, name: &str) -> bool {
        let mut named = self.operator_names.get(name).into_iter().flatten();
        named.any(|oid| self.operators.get(oid).is_some_and(|of| of.over_built_in))
    }

    /// Whether an operator's name, said of values of PostgreSQL's own types and without a schema, may mean one of
    /// the user's: which of two on the search path is meant depends on how exactly the operands' types match.
    pub(crate) fn replaces_operator(&self, name: &str, search_path: &[String]) -> bool {
        let mut named = self.operator_names.get(name).into_iter().flatten();
        named.any(|oid| {
            let of = self.operators.get(oid);
            of.is_some_and(|of| of.over_built_in && search_path.contains(&of.schema))
        })
    }

    /// The names of users' types, in whatever schema.
    pub(crate) fn type_names(&self) -> impl Iterator<Item = &str> {
        self.types.values().map(|of| of.name.as_str())
    }

    /// Whether the type of a relation's rows has code of its own: casts, operators.
    pub fn has_code_for_rows(&self, relation: u32) -> bool {
        let row = self.row_types.get(&relation).and_then(|oid| self.types.get(oid));
        row.is_some_and(|row| !row.seen.is_empty() || !row.made.is_empty())
    }

    /// The same with what `part` knows of some relations in place of what was known of them.
    pub fn with_relations(&self, is_meant: impl Fn(u32) -> bool, part: &Self) -> Self {
        let mut code = self.clone();
        // Names of what is gone do no harm.
        code.settings.extend(part.settings.iter().cloned());
        code.attached.retain(|relation, _| !is_meant(*relation));
        code.attached.extend(part.attached.iter().map(|(oid, all)| (*oid, all.clone())));
        for (relation, all) in &mut code.written_with {
            all.retain(|other| !is_meant(*relation) && !is_meant(other.relation));
        }
        code.written_with.retain(|_, all| !all.is_empty());
        for (relation, others) in &part.written_with {
            code.written_with.entry(*relation).or_default().extend(others.iter().cloned());
        }
        let rows = self.row_types.iter().filter(|(relation, _)| is_meant(**relation));
        rows.for_each(|(_, oid)| code.forget_type(*oid));
        for (oid, of) in &part.types {
            let array = part.elements.iter().find(|(_, element)| *element == oid);
            code.add_type(*oid, array.map_or(0, |(array, _)| *array), of.clone());
        }
        code
    }

    fn forget_type(&mut self, oid: u32) {
        let Some(of) = self.types.remove(&oid) else { return };
        self.elements.retain(|_, element| *element != oid);
        self.row_types.retain(|_, row| *row != oid);
        if let Some(named) = self.type_names.get_mut(&of.name) {
            named.retain(|known| *known != oid);
            if named.is_empty() {
                self.type_names.remove(&of.name);
            }
        }
    }

    /// Names of settings with a dot that some code mentions: what no server lists.
    pub fn setting_names(&self) -> BTreeSet<String> {
        let names = self.functions.values().flat_map(|function| function.body.settings());
        names.chain(&self.settings).cloned().collect()
    }

    /// Adds the settings that a literal in code that is no function's may name.
    pub fn add_literal(&mut self, literal: &str) {
        self.settings.extend(dotted_names(literal));
    }

    /// Whether some function may turn off what accounting for code rests on.
    pub fn may_hide(&self) -> bool {
        self.functions.values().any(|function| function.hides || function.body.hides)
    }

    /// All functions of the users'.
    pub(crate) fn all_functions(&self) -> impl Iterator<Item = (u32, &FunctionCode)> {
        self.functions.iter().map(|(oid, function)| (*oid, function))
    }

    /// Those that have a declaration.
    pub(crate) fn declared_functions(&self) -> impl Iterator<Item = (u32, &FunctionCode)> {
        self.all_functions().filter(|(_, function)| function.declared.is_some())
    }

    /// What was declared: function and declaration.
    pub fn declarations(&self) -> impl Iterator<Item = (&FunctionCode, Declaration)> {
        self.functions.values().filter_map(|function| Some((function, function.declared?)))
    }
}
