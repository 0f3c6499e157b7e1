//! Money that moves between accounts: none may be lost or made.
//!
//! Owns: the accounts' table and what is written with each transfer (an entry for each of its two
//! accounts, and a row of a replicated table, if asked for), and what must hold of all of it.
//! Never: chooses clients, nor what fails while they run. Start reading at [`Transfers`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context, ensure};
use rand::Rng;
use rand::rngs::StdRng;

use super::dialect::Dialect;
use super::session::{Failure, Session};
use super::{Asked, Believed, Found, Outcome, Workload};
use crate::accounts::Transfer;

/// What the accounts given at random are moved at most, either way.
const AMOUNT_MAX: i64 = 20;

/// What is written of each transfer beside the balances.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Books {
    /// Nothing: only sums can be checked.
    None,
    /// In `entry` what each of the two accounts was given.
    Entries,
    /// The same, and in `journal`, which every node has, that there was one.
    EntriesAndJournal,
}

/// Transfers between accounts.
#[derive(Clone, Debug)]
pub struct Transfers {
    accounts: i64,
    opening_balance: i64,
    books: Books,
    dialect: Dialect,
    make_table: Vec<String>,
    table: String,
    update: String,
    sum: String,
}

impl Transfers {
    /// With this many accounts, each of which holds `opening_balance` at first, in a table `account`.
    pub fn new(accounts: i64, opening_balance: i64, books: Books) -> Self {
        let this = Self {
            accounts,
            opening_balance,
            books,
            dialect: Dialect::Tutti,
            make_table: Vec::new(),
            table: String::new(),
            update: String::new(),
            sum: String::new(),
        };
        this.in_table("account", "id").on(Dialect::Tutti)
    }

    /// On an endpoint that is told so of its tables.
    pub fn on(self, dialect: Dialect) -> Self {
        let columns = "id bigint PRIMARY KEY, balance bigint NOT NULL";
        Self { dialect, make_table: dialect.by_hash("account", columns, "id"), ..self }
    }

    /// In another table, with another key. Keeps no books, and is not made by
    /// [`setup`](Workload::setup) unless [`made_by`](Self::made_by) says how.
    pub fn without_books(accounts: i64, opening_balance: i64, table: &str, key: &str) -> Self {
        Self { make_table: Vec::new(), ..Self::new(accounts, opening_balance, Books::None) }
            .in_table(table, key)
    }

    /// The statement that makes the table of accounts.
    pub fn made_by(self, statement: &str) -> Self {
        Self { make_table: vec![statement.to_owned()], ..self }
    }

    fn in_table(self, table: &str, key: &str) -> Self {
        Self {
            table: table.to_owned(),
            update: format!("UPDATE {table} SET balance = balance + $1 WHERE {key} = $2"),
            sum: format!("SELECT sum(balance)::bigint FROM {table}"),
            ..self
        }
    }

    /// All the money there is; no transfer changes it.
    pub fn money(&self) -> i64 {
        self.accounts * self.opening_balance
    }

    /// The statement that sums all of it.
    pub fn sum_sql(&self) -> &str {
        &self.sum
    }

    /// The statement that gives an account (`$2`) an amount (`$1`).
    pub fn update_sql(&self) -> &str {
        &self.update
    }

    /// Runs this transfer. Errors: an account is not one row.
    pub async fn transfer<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        transfer: Transfer,
    ) -> anyhow::Result<Outcome> {
        match self.work(session, number, transfer).await? {
            Ok(()) => (),
            Err(failure) => return Ok(Outcome::not_asked(failure)),
        }
        let begun = Instant::now();
        let answer = session.query("COMMIT").await.map(|_| ());
        Ok(Outcome::decided(answer, begun.elapsed()))
    }

    /// All before the COMMIT.
    async fn work<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        transfer: Transfer,
    ) -> anyhow::Result<Result<(), Failure>> {
        if let Err(failure) = session.query("BEGIN").await {
            return Ok(Err(failure));
        }
        for (account, amount) in transfer {
            match session.execute(&self.update, &[amount, account]).await {
                Ok(rows) => ensure!(rows == 1, "account {account} is {rows} rows"),
                Err(failure) => return Ok(Err(failure)),
            }
        }
        Ok(self.keep_books(session, number, transfer).await)
    }

    async fn keep_books<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        [from, to]: Transfer,
    ) -> Result<(), Failure> {
        if self.books != Books::None {
            let values = [from.0, number, from.1, to.0, to.1];
            session.execute("INSERT INTO entry VALUES ($1, $2, $3), ($4, $2, $5)", &values).await?;
        }
        if self.books == Books::EntriesAndJournal {
            session.execute("INSERT INTO journal VALUES ($1)", &[number]).await?;
        }
        Ok(())
    }

    /// What the accounts of these sessions hold together.
    pub async fn total<S: Session>(&self, parts: &mut [S]) -> anyhow::Result<i64> {
        let mut total = 0;
        for part in parts {
            // A part without accounts has no sum.
            total += integers(part, &self.sum).await?[0][0];
        }
        Ok(total)
    }

    async fn check_total<S: Session>(&self, parts: &mut [S]) -> anyhow::Result<()> {
        let (at_rest, money) = (self.total(parts).await?, self.money());
        ensure!(at_rest == money, "at rest the accounts hold {at_rest}, not {money}");
        Ok(())
    }

    /// Reads the books: the numbers of the transfers that are there, each of them whole, and all
    /// balances as their entries say.
    async fn read_books<S: Session>(&self, parts: &mut [S]) -> anyhow::Result<BTreeSet<i64>> {
        let mut balances = Vec::new();
        let mut moved: BTreeMap<i64, i64> = BTreeMap::new();
        let mut traces: BTreeMap<i64, Traces> = BTreeMap::new();
        for (index, part) in parts.iter_mut().enumerate() {
            balances
                .extend(integers(part, &format!("SELECT id, balance FROM {}", self.table)).await?);
            for row in integers(part, "SELECT account, transfer, amount FROM entry").await? {
                *moved.entry(row[0]).or_default() += row[2];
                traces.entry(row[1]).or_default().entries += 1;
            }
            if self.books == Books::EntriesAndJournal {
                for row in integers(part, "SELECT transfer FROM journal").await? {
                    traces.entry(row[0]).or_default().journals.insert(index);
                }
            }
        }
        self.check_balances(&balances, &moved)?;
        let journals = if self.books == Books::EntriesAndJournal { parts.len() } else { 0 };
        for (number, found) in &traces {
            let is_whole = found.entries == 2 && found.journals.len() == journals;
            ensure!(is_whole, "transfer {number} is half done: {found:?}");
        }
        Ok(traces.into_keys().collect())
    }

    fn check_balances(
        &self,
        balances: &[Vec<i64>],
        moved: &BTreeMap<i64, i64>,
    ) -> anyhow::Result<()> {
        ensure!(balances.len() as i64 == self.accounts, "{} accounts", balances.len());
        for row in balances {
            let (account, balance) = (row[0], row[1]);
            let meant = self.opening_balance + moved.get(&account).copied().unwrap_or_default();
            ensure!(balance == meant, "account {account} has {balance}, its entries say {meant}");
        }
        Ok(())
    }
}

/// What is there of a transfer.
#[derive(Debug, Default)]
struct Traces {
    entries: usize,
    /// The parts that have its row of the journal.
    journals: BTreeSet<usize>,
}

impl Workload for Transfers {
    async fn setup<S: Session>(&self, session: &mut S) -> anyhow::Result<()> {
        let mut statements = self.make_table.clone();
        if self.books != Books::None {
            let columns = "account bigint, transfer bigint, amount bigint, \
                           PRIMARY KEY (account, transfer)";
            statements.extend(self.dialect.by_hash("entry", columns, "account"));
        }
        if self.books == Books::EntriesAndJournal {
            statements.extend(self.dialect.replicated("journal", "transfer bigint PRIMARY KEY"));
        }
        statements.push(format!(
            "INSERT INTO {} SELECT n, {} FROM generate_series(1, {}) n",
            self.table, self.opening_balance, self.accounts
        ));
        for statement in statements {
            session.query(&statement).await.with_context(|| statement.clone())?;
        }
        Ok(())
    }

    /// Between any two accounts, in the order of their numbers, so that none waits in a cycle.
    async fn transaction<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        random: &mut StdRng,
    ) -> anyhow::Result<Outcome> {
        let from = random.random_range(1..self.accounts);
        let to = random.random_range(from + 1..=self.accounts);
        let amount = random.random_range(-AMOUNT_MAX..=AMOUNT_MAX);
        self.transfer(session, number, [(from, -amount), (to, amount)]).await
    }

    async fn check<S: Session>(
        &self,
        parts: &mut [S],
        whole: Option<&mut S>,
        asked: &Asked,
    ) -> anyhow::Result<Found> {
        self.check_total(parts).await?;
        let done = match self.books {
            Books::None => return Ok(Found::default()),
            _ => self.read_books(parts).await?,
        };
        if let Some(gateway) = whole {
            self.check_total(std::slice::from_mut(gateway)).await.context("by the gateway")?;
            check_told(gateway, asked, &done).await?;
        }
        Found::compare("transfer", asked, &done)
    }
}

/// What clients were not told, the gateway tells those who ask.
async fn check_told<S: Session>(
    gateway: &mut S,
    asked: &Asked,
    done: &BTreeSet<i64>,
) -> anyhow::Result<()> {
    for (number, believed) in asked {
        let Believed::Unknown(Some(gid)) = believed else { continue };
        let rows = gateway.query(&format!("SELECT tutti_outcome('{gid}')")).await;
        let rows = rows.with_context(|| format!("ask for {gid}"))?;
        let told = rows[0][0].as_deref().unwrap_or_default();
        let is = if done.contains(number) { "committed" } else { "aborted" };
        ensure!(told == is, "{gid}, transfer {number}: told {told}, is {is}");
    }
    Ok(())
}

/// A query's rows of integers; NULL, the sum of no rows, is 0.
pub(super) async fn integers<S: Session>(
    session: &mut S,
    sql: &str,
) -> anyhow::Result<Vec<Vec<i64>>> {
    let rows = session.query(sql).await.with_context(|| sql.to_owned())?;
    let integer = |value: &Option<String>| value.as_deref().unwrap_or("0").parse::<i64>();
    let integers = |row: &Vec<Option<String>>| row.iter().map(integer).collect();
    Ok(rows.iter().map(integers).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::super::session::{Rows, Value};
    use super::*;

    /// A node that only answers what a check asks.
    #[derive(Clone)]
    struct Node {
        balances: Vec<[i64; 2]>,
        entries: Vec<[i64; 3]>,
        journal: Vec<i64>,
    }

    impl Session for Node {
        async fn query(&mut self, sql: &str) -> Result<Rows, Failure> {
            let rows: Vec<Vec<i64>> = if sql.starts_with("SELECT sum") {
                vec![vec![self.balances.iter().map(|row| row[1]).sum()]]
            } else if sql.starts_with("SELECT id") {
                self.balances.iter().map(|row| row.to_vec()).collect()
            } else if sql.starts_with("SELECT account") {
                self.entries.iter().map(|row| row.to_vec()).collect()
            } else {
                self.journal.iter().map(|number| vec![*number]).collect()
            };
            let text = |value: &i64| Some(value.to_string());
            Ok(rows.iter().map(|row| row.iter().map(text).collect()).collect())
        }

        async fn execute(&mut self, _: &str, _: &[i64]) -> Result<u64, Failure> {
            unreachable!("a check changes nothing")
        }

        async fn execute_with(&mut self, _: &str, _: &[Value]) -> Result<u64, Failure> {
            unreachable!("a check changes nothing")
        }
    }

    /// Two nodes with an account each, between which transfer 7 has moved 3.
    fn nodes() -> [Node; 2] {
        let node = |account, balance, amount| Node {
            balances: vec![[account, balance]],
            entries: vec![[account, 7, amount]],
            journal: vec![7],
        };
        [node(1, 97, -3), node(2, 103, 3)]
    }

    async fn refusal(mut nodes: [Node; 2]) -> String {
        let transfers = Transfers::new(2, 100, Books::EntriesAndJournal);
        let asked = Asked::from([(7, Believed::Unknown(None))]);
        let checked = transfers.check(&mut nodes, None, &asked).await;
        checked.map_or_else(|error| error.to_string(), |found| format!("{found:?}"))
    }

    #[tokio::test]
    async fn what_is_lost_made_or_half_done_is_found() {
        let fine = Found { unknown_done: 1, ..Found::default() };
        assert_eq!(refusal(nodes()).await, format!("{fine:?}"));

        let mut lost = nodes();
        lost[1].balances[0][1] = 100;
        assert_eq!(refusal(lost).await, "at rest the accounts hold 197, not 200");
        let mut elsewhere = nodes();
        elsewhere.iter_mut().for_each(|node| node.balances[0][1] = 100);
        assert_eq!(refusal(elsewhere).await, "account 1 has 100, its entries say 97");
        let mut no_journal = nodes();
        no_journal[1].journal.clear();
        assert!(refusal(no_journal).await.starts_with("transfer 7 is half done"));
        let mut stranger = nodes();
        stranger.iter_mut().for_each(|node| node.journal.push(8));
        assert!(refusal(stranger).await.starts_with("transfer 8 is half done"));
    }
}
