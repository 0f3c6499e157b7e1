//! Which tables to spread, and by which column: proposed from the statements that an application sends.
//!
//! Owns: the search for placements by which most calls go to one node, judged by the planner itself, and what a table
//! must change for them.
//! Never: asks a server, or changes a placement.
//! Start reading at [`advise`].
//!
//! The search climbs: from a first guess, the change of one table, or of a table with those that refer to it, that saves
//! most is made, until none saves anything. As Schism (Curino et al., VLDB 2010) and Horticulture (Pavlo et al., SIGMOD
//! 2012) it is led by the workload; unlike these it needs no trace of transactions.

mod ways;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::catalog::{
    BucketMap, Catalog, MapId, NameScope, NodeId, Placement, Relation, RelationKind,
};
use crate::hash::{BUCKET_COUNT, KeyType};
use crate::statement;
pub use ways::Way;
use ways::{Judged, Parsed};

/// A table with more rows is not proposed to be on all nodes.
pub const REPLICATED_ROWS_MAX: f64 = 100_000.0;
/// By how much a change of a table's keys counts against a placement, as a part of all costs.
const COST_OF_CHANGED_KEY: f64 = 0.02;
const COST_OF_LOST_REFERENCE: f64 = 0.05;
const MAP: MapId = MapId(1);

/// A statement, and how often it was sent.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its text; parameters may stand for values.
    pub text: String,
    /// How often.
    pub calls: f64,
}

/// What a server knows of a table.
#[derive(Clone, Debug, Default)]
pub struct TableFacts {
    /// About how many rows it has.
    pub rows: f64,
    /// Columns of its unique constraints and indexes, the primary key among them: their names, and the columns by their
    /// places in [`Relation::columns`].
    pub uniques: Vec<(String, Vec<usize>)>,
    /// Its foreign keys.
    pub references: Vec<Reference>,
}

/// A foreign key.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Its name.
    pub name: String,
    /// Columns by their places.
    pub columns: Vec<usize>,
    /// OID of the table that is referred to.
    pub parent: u32,
    /// Its columns, in the order of `columns`.
    pub parent_columns: Vec<usize>,
}

/// Where a table would be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Choice {
    /// On every node.
    Replicated,
    /// By the hash of this column.
    Key(usize),
}

/// What is proposed for a table.
#[derive(Clone, Debug)]
pub struct TableAdvice {
    /// Which.
    pub relation: Arc<Relation>,
    /// Where to.
    pub choice: Choice,
    /// What the table must change for that, each as a sentence's end ("its primary key …").
    pub needs: Vec<String>,
}

/// What is proposed.
#[derive(Clone, Debug)]
pub struct Advice {
    /// Tables, those that belong together next to each other.
    pub tables: Vec<TableAdvice>,
    /// Each statement as it would be run: its place among those asked, and how. Those that could not be planned are not
    /// among them.
    pub statements: Vec<(usize, Way)>,
    /// How many of them were not understood.
    pub unread: usize,
}

impl Advice {
    /// The part of all calls that would be run in this way, from 0 to 1.
    pub fn share(&self, asked: &[Asked], way: Way) -> f64 {
        let calls = |of: &(usize, Way)| asked[of.0].calls;
        let all: f64 = self.statements.iter().map(calls).sum();
        let of_way: f64 = self.statements.iter().filter(|of| of.1 == way).map(calls).sum();
        if all == 0.0 { 0.0 } else { of_way / all }
    }
}

/// Proposes placements for the tables that are at home, or are said to have `facts`, on so many nodes.
pub fn advise(
    catalog: &Catalog,
    scope: &NameScope,
    facts: &HashMap<u32, TableFacts>,
    asked: &[Asked],
    node_count: u16,
) -> Advice {
    let mut tables: Vec<_> = catalog
        .relations
        .values()
        .flat_map(|all| all.values())
        .filter(|relation| facts.contains_key(&relation.oid) && is_spreadable(relation))
        .cloned()
        .collect();
    tables.sort_by(|a, b| (&a.schema, &a.name).cmp(&(&b.schema, &b.name)));
    let mut unread = 0;
    let mut statements = Vec::new();
    for (index, of) in asked.iter().enumerate() {
        match statement::parse(&of.text) {
            Ok(parsed) => statements.extend(parsed.into_iter().map(|it| Parsed::of(index, it))),
            Err(_) => unread += 1,
        }
    }
    let search = Search { catalog, scope, facts, asked, node_count, tables, statements };
    let choices = search.climb();
    search.advice(&choices, unread)
}

fn is_spreadable(relation: &Relation) -> bool {
    relation.kind == RelationKind::Table && relation.schema != "tutti"
}

struct Search<'a> {
    catalog: &'a Catalog,
    scope: &'a NameScope,
    facts: &'a HashMap<u32, TableFacts>,
    asked: &'a [Asked],
    node_count: u16,
    tables: Vec<Arc<Relation>>,
    statements: Vec<Parsed>,
}

/// One for each table.
type Choices = Vec<Choice>;

impl Search<'_> {
    fn climb(&self) -> Choices {
        let mut choices: Choices =
            self.tables.iter().map(|table| self.first_guess(table)).collect();
        let mut judged = self.judge_all(&choices);
        let mut cost = self.cost(&choices, &judged);
        loop {
            let mut best: Option<(Choices, Judged, f64)> = None;
            for candidate in self.neighbours(&choices) {
                let found = self.judge_changed(&choices, &candidate, &judged);
                let cost_there = self.cost(&candidate, &found);
                let least = best.as_ref().map_or(cost, |(.., cost)| *cost);
                // What saves next to nothing is no reason.
                if cost_there < least * 0.9999 {
                    best = Some((candidate, found, cost_there));
                }
            }
            let Some((next, found, cost_there)) = best else { return choices };
            (choices, judged, cost) = (next, found, cost_there);
        }
    }

    /// Small tables on all nodes, others by their primary key.
    fn first_guess(&self, table: &Relation) -> Choice {
        match (self.may_be_replicated(table), self.keys(table).first()) {
            (false, Some(key)) => Choice::Key(*key),
            _ => Choice::Replicated,
        }
    }

    fn may_be_replicated(&self, table: &Relation) -> bool {
        self.facts[&table.oid].rows <= REPLICATED_ROWS_MAX
    }

    /// Columns by which its rows can be hashed, those of keys first.
    fn keys(&self, table: &Relation) -> Vec<usize> {
        let facts = &self.facts[&table.oid];
        let of_uniques = facts.uniques.iter().flat_map(|(_, columns)| columns);
        let of_references = facts.references.iter().flat_map(|of| &of.columns);
        let all = 0..table.columns.len();
        let mut keys = Vec::new();
        for column in
            table.primary_key.iter().chain(of_uniques).chain(of_references).copied().chain(all)
        {
            let of = &table.columns[column];
            let can_be =
                KeyType::from_oid(of.type_oid).is_some() && !of.generated && !of.nondeterministic;
            if can_be && !keys.contains(&column) {
                keys.push(column);
            }
        }
        keys
    }

    /// What differs in one table, or in one and those that refer to it.
    fn neighbours(&self, choices: &Choices) -> Vec<Choices> {
        let mut all = Vec::new();
        for (index, table) in self.tables.iter().enumerate() {
            let keys = self.keys(table);
            let replicated = self.may_be_replicated(table).then_some(Choice::Replicated);
            for choice in keys.iter().map(|key| Choice::Key(*key)).chain(replicated) {
                if choice != choices[index] {
                    let mut changed = choices.clone();
                    changed[index] = choice;
                    all.push(changed);
                }
            }
            for key in keys {
                let mut changed = choices.clone();
                changed[index] = Choice::Key(key);
                self.add_referring(index, key, &mut changed, &mut BTreeSet::from([index]));
                all.push(changed);
            }
        }
        all
    }

    /// Tables that refer to this one by its key, and those that refer to them by what they have of it.
    fn add_referring(
        &self,
        parent: usize,
        key: usize,
        choices: &mut Choices,
        seen: &mut BTreeSet<usize>,
    ) {
        let oid = self.tables[parent].oid;
        for (index, table) in self.tables.iter().enumerate() {
            let paired = self.facts[&table.oid].references.iter().find_map(|of| {
                let at = of.parent_columns.iter().position(|column| *column == key)?;
                (of.parent == oid).then(|| of.columns[at])
            });
            if let Some(column) = paired
                && self.keys(table).contains(&column)
                && seen.insert(index)
            {
                choices[index] = Choice::Key(column);
                self.add_referring(index, column, choices, seen);
            }
        }
    }

    /// The catalog as it would be.
    fn catalog_of(&self, choices: &Choices) -> Catalog {
        let mut catalog = self.catalog.clone();
        catalog.nodes = (1..=self.node_count).map(NodeId).collect();
        let nodes = catalog.nodes.iter().copied().cycle();
        let buckets = nodes.take(usize::from(BUCKET_COUNT)).collect();
        catalog.maps.insert(MAP, BucketMap::by_hash(buckets));
        catalog.is_spread = true;
        for (table, choice) in self.tables.iter().zip(choices) {
            let placement = match *choice {
                Choice::Replicated => Placement::Replicated,
                Choice::Key(key) => {
                    let key_type = KeyType::from_oid(table.columns[key].type_oid);
                    Placement::Hash { key, key_type: key_type.expect("a key has one"), map: MAP }
                }
            };
            let moved = Relation { placement, ..(**table).clone() };
            let of_schema = catalog.relations.get_mut(&table.schema);
            of_schema.expect("it was there").insert(table.name.clone(), Arc::new(moved));
        }
        catalog
    }

    fn judge_all(&self, choices: &Choices) -> Judged {
        let catalog = self.catalog_of(choices);
        Judged::of(&self.statements, &catalog, self.scope)
    }

    /// The same, where only statements that name a table that has been changed are planned anew.
    fn judge_changed(&self, before: &Choices, after: &Choices, judged: &Judged) -> Judged {
        let changed = self.tables.iter().zip(before.iter().zip(after));
        let names = changed.filter(|(_, (before, after))| before != after);
        let names: BTreeSet<&str> = names.map(|(table, _)| table.name.as_str()).collect();
        // Most tables are in few statements, or in none.
        match self.statements.iter().any(|statement| statement.names_one_of(&names)) {
            true => {
                let catalog = self.catalog_of(after);
                judged.again_where(&names, &self.statements, &catalog, self.scope)
            }
            false => judged.clone(),
        }
    }

    fn cost(&self, choices: &Choices, judged: &Judged) -> f64 {
        let calls = judged.ways().iter().zip(&self.statements);
        let sum: f64 =
            calls.map(|(way, of)| self.asked[of.asked].calls * way.cost(self.node_count)).sum();
        let changes: f64 = (0..self.tables.len())
            .map(|index| {
                let (keys, references) = self.needs(index, choices);
                keys.len() as f64 * COST_OF_CHANGED_KEY
                    + references.len() as f64 * COST_OF_LOST_REFERENCE
            })
            .sum();
        sum * (1.0 + changes)
    }

    /// Unique constraints that would not hold over all nodes, and foreign keys that could not be checked on one.
    fn needs(&self, index: usize, choices: &Choices) -> (Vec<&str>, Vec<&str>) {
        let facts = &self.facts[&self.tables[index].oid];
        let keys = match choices[index] {
            Choice::Replicated => Vec::new(),
            Choice::Key(key) => {
                let lacks = facts.uniques.iter().filter(|(_, columns)| !columns.contains(&key));
                lacks.map(|(name, _)| name.as_str()).collect()
            }
        };
        let can_be_checked = |of: &&Reference| {
            let parent = self.tables.iter().position(|table| table.oid == of.parent);
            match (parent.map(|parent| choices[parent]), choices[index]) {
                (Some(Choice::Replicated), _) => true,
                (Some(Choice::Key(parent)), Choice::Key(key)) => {
                    of.columns.iter().zip(&of.parent_columns).any(|pair| pair == (&key, &parent))
                }
                (Some(Choice::Key(_)), Choice::Replicated) | (None, _) => false,
            }
        };
        let references = facts.references.iter().filter(|of| !can_be_checked(of));
        (keys, references.map(|of| of.name.as_str()).collect())
    }

    fn advice(&self, choices: &Choices, unread: usize) -> Advice {
        let mut tables: Vec<_> = (0..self.tables.len())
            .map(|index| {
                let relation = self.tables[index].clone();
                let (keys, references) = self.needs(index, choices);
                let column = match choices[index] {
                    Choice::Key(key) => relation.columns[key].name.clone(),
                    Choice::Replicated => String::new(),
                };
                let keys = keys.into_iter().map(|name| {
                    format!("{name} to contain {column}, or to be a unique index WITH (tutti.global_unique)")
                });
                let references = references.into_iter().map(|name| {
                    format!("{name} to be dropped, for no node alone could check it")
                });
                let needs = keys.chain(references).collect();
                TableAdvice { choice: choices[index], needs, relation }
            })
            .collect();
        // Copies last; the others by the name of their key.
        tables.sort_by_key(|of| match of.choice {
            Choice::Key(key) => (false, of.relation.columns[key].name.clone()),
            Choice::Replicated => (true, String::new()),
        });
        let judged = self.judge_all(choices);
        let ways = judged.ways().iter().copied();
        let statements = self.statements.iter().map(|of| of.asked).zip(ways).collect();
        Advice { tables, statements, unread }
    }
}

#[cfg(test)]
mod tests;
