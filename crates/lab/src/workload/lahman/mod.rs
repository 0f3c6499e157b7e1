//! Inserts of the Lahman records by concurrent clients, none of which waits for another.
//!
//! Owns: the workload as the lab runs it: one record is one transaction, and what is there afterwards is compared
//! with the records one by one. Records, tables and comparison are those of the cost model's study, which measures
//! with them. Never: reads or changes a record that is there, but to check.
//! Source: the cost model's paper; what differs is in docs/lab/workloads.md.
//! Start reading at [`Inserts`], then [`records`].

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context, ensure};
use rand::rngs::StdRng;

use super::dialect::Dialect;
use super::session::{Session, Value};
use super::{Asked, Found, Outcome, Workload};

mod records;

pub use records::{Lahman, Placement, Table, insert};

/// The inserts. Transaction n inserts the n-th record of all, tables in proportion; behind the last one they begin
/// anew, and only the number of the row is another.
#[derive(Debug)]
pub struct Inserts {
    lahman: Lahman,
    placement: Placement,
    dialect: Dialect,
    /// Table and place of each record, so that those of each table are spread evenly over all.
    order: Vec<(usize, usize)>,
    /// One for each table.
    inserts: Vec<String>,
}

impl Inserts {
    /// Of these records.
    pub fn new(lahman: Lahman, placement: Placement, dialect: Dialect) -> Self {
        let mut order: Vec<(usize, usize)> = Vec::new();
        for (number, table) in lahman.tables.iter().enumerate() {
            order.extend((0..table.records.len()).map(|place| (number, place)));
        }
        // How far into its table a record is; compared as fractions, so that nothing is rounded.
        let part = |(table, place): (usize, usize)| {
            (2 * place + 1, 2 * lahman.tables[table].records.len())
        };
        order.sort_by(|one, other| {
            let (one, other) = (part(*one), part(*other));
            (one.0 * other.1).cmp(&(other.0 * one.1))
        });
        let inserts = lahman.tables.iter().map(Table::insert_sql).collect();
        Self { lahman, placement, dialect, order, inserts }
    }

    /// The table and the record of a transaction; `None`: no transaction has that number.
    fn of(&self, number: i64) -> Option<(usize, &Vec<Value>)> {
        let place = usize::try_from(number).ok()?.checked_sub(1)? % self.order.len();
        let (table, record) = self.order[place];
        Some((table, &self.lahman.tables[table].records[record]))
    }

    /// The numbers of the rows that are there, each of which is the record that it is to be.
    async fn read<S: Session>(&self, parts: &mut [S]) -> anyhow::Result<BTreeSet<i64>> {
        let mut done = BTreeSet::new();
        for (number, table) in self.lahman.tables.iter().enumerate() {
            let mut rows = Vec::new();
            for part in &mut *parts {
                let sql = table.select_sql();
                rows.extend(part.query(&sql).await.context(sql)?);
            }
            let meant = |row: i64| self.of(row).filter(|(of, _)| *of == number).map(|(_, it)| it);
            done.extend(table.compare(&rows, meant)?);
        }
        Ok(done)
    }

    /// The same of all servers together, or of each of them where each has all.
    async fn read_all<S: Session>(&self, parts: &mut [S]) -> anyhow::Result<BTreeSet<i64>> {
        if self.placement == Placement::Hash {
            return self.read(parts).await;
        }
        let mut first: Option<BTreeSet<i64>> = None;
        for part in parts {
            let here = self.read(std::slice::from_mut(part)).await?;
            if let Some(first) = &first {
                let differs = first.symmetric_difference(&here).next();
                ensure!(differs.is_none(), "record {differs:?} is not on every node");
            }
            first = Some(here);
        }
        Ok(first.unwrap_or_default())
    }
}

impl Workload for Inserts {
    async fn setup<S: Session>(&self, session: &mut S) -> anyhow::Result<()> {
        for table in &self.lahman.tables {
            for statement in table.create_sql(self.dialect, self.placement) {
                session.query(&statement).await.context(statement)?;
            }
        }
        Ok(())
    }

    async fn transaction<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        _: &mut StdRng,
    ) -> anyhow::Result<Outcome> {
        let (table, record) = self.of(number).context("transactions are counted from 1")?;
        let begun = Instant::now();
        let answer = records::insert(session, &self.inserts[table], number, record).await;
        if let Ok(rows) = answer {
            ensure!(rows == 1, "insert {number} says that it made {rows} rows");
        }
        let outcome = Outcome::decided(answer.map(|_| ()), begun.elapsed());
        Ok(outcome.of_kind(self.lahman.tables[table].name))
    }

    async fn check<S: Session>(
        &self,
        parts: &mut [S],
        whole: Option<&mut S>,
        asked: &Asked,
    ) -> anyhow::Result<Found> {
        let done = self.read_all(parts).await?;
        if let Some(gateway) = whole {
            let seen = self.read(std::slice::from_mut(gateway)).await.context("by the gateway")?;
            let differs = seen.symmetric_difference(&done).next();
            ensure!(differs.is_none(), "the gateway and the nodes differ in record {differs:?}");
        }
        Found::compare("record", asked, &done)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Believed;
    use super::super::session::{Failure, Rows};
    use super::*;

    /// A server that has rows, by table.
    #[derive(Clone, Debug, Default)]
    struct Server {
        rows: Vec<(&'static str, Vec<Option<String>>)>,
    }

    impl Session for Server {
        async fn query(&mut self, sql: &str) -> Result<Rows, Failure> {
            let table = sql.rsplit(' ').next().unwrap();
            let here = self.rows.iter().filter(|(of, _)| *of == table);
            Ok(here.map(|(_, row)| row.clone()).collect())
        }

        async fn execute(&mut self, _: &str, _: &[i64]) -> Result<u64, Failure> {
            unreachable!("records are not of integers alone")
        }

        async fn execute_with(&mut self, sql: &str, values: &[Value]) -> Result<u64, Failure> {
            let table = ["batting", "fielding", "pitching"].into_iter().find(|it| sql.contains(it));
            self.rows.push((table.unwrap(), values.iter().map(Value::text).collect()));
            Ok(1)
        }
    }

    fn inserts(placement: Placement) -> Inserts {
        Inserts::new(Lahman::generated(Some(30)), placement, Dialect::Tutti)
    }

    /// Inserts these by turns on two servers.
    async fn filled(inserts: &Inserts, numbers: std::ops::RangeInclusive<i64>) -> [Server; 2] {
        let mut servers = [Server::default(), Server::default()];
        let mut random = rand::SeedableRng::seed_from_u64(0);
        for number in numbers {
            let server = &mut servers[usize::try_from(number).unwrap() % 2];
            let outcome = inserts.transaction(server, number, &mut random).await.unwrap();
            assert_eq!(outcome.believed, Believed::Acknowledged);
        }
        servers
    }

    fn asked(numbers: std::ops::RangeInclusive<i64>) -> Asked {
        numbers.map(|number| (number, Believed::Acknowledged)).collect()
    }

    #[test]
    fn tables_come_in_proportion_and_begin_anew() {
        let inserts = inserts(Placement::Hash);
        let count = i64::try_from(inserts.order.len()).unwrap();
        let tables: BTreeSet<usize> = (1..=8).map(|n| inserts.of(n).unwrap().0).collect();
        assert_eq!(tables.len(), 3);
        let all: BTreeSet<_> = inserts.order.iter().collect();
        assert_eq!(all.len(), inserts.lahman.len());
        assert_eq!(inserts.of(1), inserts.of(1 + count));
        assert_eq!(inserts.of(0), None);
    }

    #[tokio::test]
    async fn every_record_is_compared() {
        let inserts = inserts(Placement::Hash);
        let servers = filled(&inserts, 1..=40).await;
        let mut whole = Server { rows: servers.iter().flat_map(|it| it.rows.clone()).collect() };
        let found = inserts.check(&mut servers.clone(), Some(&mut whole), &asked(1..=40)).await;
        assert_eq!(found.unwrap().acknowledged, 40);
        let refusal = async |change: &dyn Fn(&mut Server)| {
            let mut servers = servers.clone();
            change(&mut servers[0]);
            let checked = inserts.check(&mut servers, None, &asked(1..=40)).await;
            checked.unwrap_err().to_string()
        };
        let said = refusal(&|it| drop(it.rows.remove(3))).await;
        assert!(said.contains("was acknowledged and is gone"), "{said}");
        let said = refusal(&|it| it.rows.push(it.rows[2].clone())).await;
        assert!(said.contains("twice"), "{said}");
        let said = refusal(&|it| it.rows[2].1[2] = Some("7".to_owned())).await;
        assert!(said.contains(" is [") && said.contains("not ["), "{said}");
        // A record that another transaction was to insert.
        let said = refusal(&|it| it.rows[2].1[0] = Some("5000".to_owned())).await;
        assert!(said.contains("record"), "{said}");
        whole.rows.pop();
        let checked = inserts.check(&mut servers.clone(), Some(&mut whole), &asked(1..=40)).await;
        assert!(checked.unwrap_err().to_string().starts_with("the gateway and the nodes differ"));
    }

    #[tokio::test]
    async fn copies_must_be_alike() {
        let inserts = inserts(Placement::Replicated);
        let [one, other] = filled(&inserts, 1..=6).await;
        let all = Server { rows: [one.rows, other.rows].concat() };
        let check =
            async |servers: &mut [Server]| inserts.check(servers, None, &asked(1..=6)).await;
        assert_eq!(check(&mut [all.clone(), all.clone()]).await.unwrap().acknowledged, 6);
        let mut less = all.clone();
        less.rows.pop();
        let said = check(&mut [all, less]).await.unwrap_err().to_string();
        assert!(said.ends_with("is not on every node"), "{said}");
    }
}
