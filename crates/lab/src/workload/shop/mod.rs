//! A shop of which every server has all rows: shoppers look at it, buy, sell, ship, and give items other prices.
//!
//! Owns: the workload as the lab runs it, with what must hold of purchases, stock, prices and shipments. Its tables
//! and statements are those of the thesis's study, which measures with them. Never: chooses clients or their number.
//! What an alter buys, sells and prices anew follows from its number alone, so that a check knows what each was meant
//! to do; what it ships depends on what was bought before, and is noted.
//! Source: "Two-phase commit against none, on replicated PostgreSQL"; what differs is in docs/lab/workloads.md.
//! Start reading at [`Shop`], then [`statements`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::dialect::Dialect;
use super::session::Session;
use super::steps::{Stop, Work, bail_impossible, carry_out};
use super::transfers::integers;
use super::{Asked, Believed, Found, Outcome, Workload, those};

mod data;
mod size;
mod statements;
mod tables;

pub use data::Data;
pub use size::{Commit, Size};
pub use statements::{Alteration, Look};
pub use tables::{STOCK, TABLES, converge, make};

/// Kinds of transactions.
const SELECT: &str = "select";
const ALTER: &str = "alter";
/// A purchase that there never is.
const NO_PURCHASE: i64 = 0;
/// After so many steps an item has its first price again.
const PRICE_ROUND: i64 = 45;

/// The shop.
#[derive(Debug)]
pub struct Shop {
    size: Size,
    /// Of a hundred transactions so many alter, the others select.
    alters_percent: u32,
    commit: Commit,
    dialect: Dialect,
    /// Purchases of alters that were acknowledged.
    bought: Mutex<Vec<i64>>,
    /// What each alter was to ship, by its number.
    shipments: Mutex<BTreeMap<i64, Vec<i64>>>,
}

/// An alter's statements.
struct Alter<'a> {
    size: Size,
    statements: &'a [Alteration],
}

impl Work for Alter<'_> {
    async fn work<S: Session>(&self, session: &mut S) -> Result<(), Stop> {
        for alteration in self.statements {
            let meant = match alteration {
                Alteration::Ship { purchase: NO_PURCHASE } => 0,
                _ => 1,
            };
            match alteration.perform(session, self.size).await? {
                Some(rows) if rows != meant => {
                    return bail_impossible(format!("{alteration:?} was about {rows} rows"));
                }
                _ => (),
            }
        }
        Ok(())
    }
}

/// What became of an alter, as far as that is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Done,
    Absent,
    /// Of each of its statements it may be another.
    Unknown,
}

/// How often something was done: at least, and at most.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    least: i64,
    most: i64,
}

impl Times {
    fn add(&mut self, fate: Fate) {
        self.least += i64::from(fate == Fate::Done);
        self.most += i64::from(fate != Fate::Absent);
    }
}

/// A purchase as it is there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Purchase {
    shopper: i64,
    item: i64,
    is_shipped: bool,
}

/// Rows of one copy.
#[derive(Clone, Debug, Default)]
struct There {
    shoppers: i64,
    /// Price and stock by item.
    items: BTreeMap<i64, (i64, i64)>,
    purchases: BTreeMap<i64, Purchase>,
}

impl There {
    async fn read<S: Session>(part: &mut S) -> anyhow::Result<Self> {
        let shoppers = integers(part, "SELECT count(*) FROM shopper").await?[0][0];
        let items = integers(part, "SELECT id, price, stock FROM item").await?;
        let sql = "SELECT id, shopper, item, shipped::integer FROM purchase";
        let purchase = |row: &Vec<i64>| {
            (row[0], Purchase { shopper: row[1], item: row[2], is_shipped: row[3] != 0 })
        };
        Ok(Self {
            shoppers,
            items: items.iter().map(|row| (row[0], (row[1], row[2]))).collect(),
            purchases: integers(part, sql).await?.iter().map(purchase).collect(),
        })
    }
}

impl Shop {
    /// Of such a size, where so many of a hundred transactions alter.
    pub fn new(size: Size, alters_percent: u32, commit: Commit, dialect: Dialect) -> Self {
        let (bought, shipments) = (Mutex::default(), Mutex::default());
        Self { size, alters_percent, commit, dialect, bought, shipments }
    }

    fn is_alter(&self, number: i64) -> bool {
        StdRng::seed_from_u64(number.unsigned_abs()).random_range(0..100) < self.alters_percent
    }

    /// The statements of an alter. Its purchases have numbers that tell its own.
    fn statements(&self, number: i64, to_ship: impl FnMut(&mut StdRng) -> i64) -> Vec<Alteration> {
        // Not what has decided its kind: that is alike for all alters.
        let mut random = StdRng::seed_from_u64(!number.unsigned_abs());
        let first = number * i64::from(self.size.statements);
        let mut next = first..;
        let bought = || next.next().unwrap_or(first);
        Alteration::draw(self.size, &mut random, bought, to_ship)
    }

    /// What an alter does to items, whatever it ships.
    fn of_items(&self, number: i64) -> Vec<Alteration> {
        let mut all = self.statements(number, |_| NO_PURCHASE);
        all.retain(|it| !matches!(it, Alteration::Ship { .. }));
        all
    }

    /// The purchases of an alter as it makes them.
    fn purchases(&self, number: i64) -> BTreeMap<i64, (i64, i64)> {
        let bought = |alteration: Alteration| match alteration {
            Alteration::Buy { purchase, shopper, item } => Some((purchase, (shopper, item))),
            _ => None,
        };
        self.of_items(number).into_iter().filter_map(bought).collect()
    }

    fn bought(&self) -> MutexGuard<'_, Vec<i64>> {
        self.bought.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shipments(&self) -> MutexGuard<'_, BTreeMap<i64, Vec<i64>>> {
        self.shipments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn select<S: Session>(&self, session: &mut S, number: i64) -> anyhow::Result<Outcome> {
        let mut random = StdRng::seed_from_u64(!number.unsigned_abs());
        let look = Look::draw(self.size, &mut random);
        let begun = Instant::now();
        let answer = look.ask(session).await;
        if let Ok(rows) = answer {
            let is_possible = look.rows(self.size).contains(&rows);
            ensure!(is_possible, "{look:?}, number {number}: {rows} rows");
        }
        Ok(Outcome::decided(answer.map(|_| ()), begun.elapsed()).of_kind(SELECT))
    }

    async fn alter<S: Session>(&self, session: &mut S, number: i64) -> anyhow::Result<Outcome> {
        let mut shipped = Vec::new();
        let statements = self.statements(number, |random| {
            let bought = self.bought();
            let purchase = match bought.len() {
                0 => NO_PURCHASE,
                count => bought[random.random_range(0..count)],
            };
            shipped.push(purchase);
            purchase
        });
        self.shipments().insert(number, shipped);
        let work = Alter { size: self.size, statements: &statements };
        let outcome = carry_out(session, ALTER, number, work).await?;
        if outcome.believed == Believed::Acknowledged {
            self.bought().extend(self.purchases(number).into_keys());
        }
        Ok(outcome)
    }

    /// Whether purchases, stock, prices and shipments are what alters have made of them.
    fn judge(&self, there: &There, asked: &Asked) -> anyhow::Result<Found> {
        let alters = those(asked, |number| self.is_alter(number));
        let mut of_alter: BTreeMap<i64, BTreeMap<i64, (i64, i64)>> = BTreeMap::new();
        for (number, purchase) in &there.purchases {
            let alter = number.div_euclid(i64::from(self.size.statements));
            let purchases = of_alter.entry(alter).or_default();
            purchases.insert(*number, (purchase.shopper, purchase.item));
        }
        let mut buying = Asked::new();
        let mut fates: BTreeMap<i64, Fate> = BTreeMap::new();
        for (number, believed) in &alters {
            let meant = self.purchases(*number);
            let is = of_alter.get(number).cloned().unwrap_or_default();
            let may_be_part =
                self.commit == Commit::Base && matches!(believed, Believed::Unknown(_));
            let is_right = match may_be_part {
                true => is.iter().all(|(purchase, of)| meant.get(purchase) == Some(of)),
                false => is.is_empty() || is == meant,
            };
            ensure!(is_right, "alter {number} is half done or another: {is:?} of {meant:?}");
            let fate = match believed {
                Believed::Acknowledged => Fate::Done,
                Believed::Refused => Fate::Absent,
                Believed::Unknown(_) if may_be_part || meant.is_empty() => Fate::Unknown,
                // Whole or not at all, so that its purchases tell of all of it.
                Believed::Unknown(_) if is.is_empty() => Fate::Absent,
                Believed::Unknown(_) => Fate::Done,
            };
            fates.insert(*number, fate);
            if !meant.is_empty() {
                buying.insert(*number, believed.clone());
            }
        }
        let done: BTreeSet<i64> = of_alter.into_keys().collect();
        let found = Found::compare("alter", &buying, &done)?;
        self.judge_items(there, &fates)?;
        self.judge_shipments(there, &fates)?;
        Ok(found)
    }

    fn judge_items(&self, there: &There, fates: &BTreeMap<i64, Fate>) -> anyhow::Result<()> {
        let mut sales: BTreeMap<i64, Times> = BTreeMap::new();
        let mut steps: BTreeMap<i64, Times> = BTreeMap::new();
        for (number, fate) in fates {
            for alteration in self.of_items(*number) {
                match alteration {
                    Alteration::Sell { item } => sales.entry(item).or_default().add(*fate),
                    Alteration::Reprice { item, .. } => steps.entry(item).or_default().add(*fate),
                    Alteration::Buy { .. } | Alteration::Ship { .. } => (),
                }
            }
        }
        for item in 1..=self.size.items() {
            let (price, stock) =
                there.items.get(&item).with_context(|| format!("no item {item}"))?;
            let Times { least, most } = sales.get(&item).copied().unwrap_or_default();
            let sold = STOCK - stock;
            ensure!(
                (least..=most).contains(&sold),
                "item {item}: {sold} were sold, and clients were told of {least} to {most}"
            );
            let Times { least, most } = steps.get(&item).copied().unwrap_or_default();
            // Every price comes again after a round, so that more steps need not be tried.
            let mut possible =
                (least..=most.min(least + PRICE_ROUND)).map(|it| price_after(item, it));
            ensure!(
                possible.any(|it| it == *price),
                "item {item} costs {price}, which is none of its prices after {least} to {most} changes"
            );
        }
        Ok(())
    }

    fn judge_shipments(&self, there: &There, fates: &BTreeMap<i64, Fate>) -> anyhow::Result<()> {
        let mut shipments: BTreeMap<i64, Times> = BTreeMap::new();
        for (number, purchases) in &*self.shipments() {
            let fate = fates.get(number).copied().unwrap_or(Fate::Absent);
            for purchase in purchases {
                shipments.entry(*purchase).or_default().add(fate);
            }
        }
        for (number, purchase) in &there.purchases {
            let Times { least, most } = shipments.get(number).copied().unwrap_or_default();
            let is_right = match purchase.is_shipped {
                true => 0 < most,
                false => least == 0,
            };
            ensure!(
                is_right,
                "purchase {number}: shipped is {}, and clients were told of {least} to {most} shipments",
                purchase.is_shipped
            );
        }
        Ok(())
    }
}

/// What an item costs after so many changes of its price.
fn price_after(item: i64, changes: i64) -> i64 {
    1 + (item + changes * (1 + tables::PRICE_STEP)) % tables::PRICES
}

impl Workload for Shop {
    async fn setup<S: Session>(&self, session: &mut S) -> anyhow::Result<()> {
        make(session, self.size, self.dialect, self.commit).await
    }

    fn settings(&self) -> Vec<String> {
        match self.commit {
            Commit::Acid => Vec::new(),
            Commit::Base => vec![BASE.to_owned()],
        }
    }

    async fn transaction<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        _: &mut StdRng,
    ) -> anyhow::Result<Outcome> {
        match self.is_alter(number) {
            true => self.alter(session, number).await,
            false => self.select(session, number).await,
        }
    }

    async fn check<S: Session>(
        &self,
        parts: &mut [S],
        whole: Option<&mut S>,
        asked: &Asked,
    ) -> anyhow::Result<Found> {
        converge(parts, self.commit).await?;
        if let Some(gateway) = whole {
            let (seen, is) = (tables::state(gateway).await?, tables::state(&mut parts[0]).await?);
            ensure!(seen == is, "the gateway sees {seen:?}, the nodes have {is:?}");
        }
        let there = There::read(&mut parts[0]).await?;
        let (shoppers, items) = (self.size.shoppers, self.size.items());
        ensure!(there.shoppers == shoppers, "{} of {shoppers} shoppers", there.shoppers);
        ensure!(there.items.len() as i64 == items, "{} of {items} items", there.items.len());
        self.judge(&there, asked)
    }
}

/// What a session says that lets nodes commit one by one.
pub const BASE: &str = "SET tutti.commit = 'base'";

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { shoppers: 3, statements: 8, data: Data::Text, data_bytes: 5 };

    fn shop(commit: Commit) -> Shop {
        Shop::new(SIZE, 100, commit, Dialect::Tutti)
    }

    /// What is there after these alters, each of which is done whole; the second one ships what the first has bought
    /// first.
    fn after(shop: &Shop, done: &[i64]) -> There {
        let mut there = There { shoppers: SIZE.shoppers, ..There::default() };
        for item in 1..=SIZE.items() {
            there.items.insert(item, (price_after(item, 0), STOCK));
        }
        for number in done {
            for alteration in shop.of_items(*number) {
                match alteration {
                    Alteration::Buy { purchase, shopper, item } => {
                        let new = Purchase { shopper, item, is_shipped: false };
                        assert!(there.purchases.insert(purchase, new).is_none());
                    }
                    Alteration::Sell { item } => there.items.get_mut(&item).unwrap().1 -= 1,
                    Alteration::Reprice { item, .. } => {
                        let price = &mut there.items.get_mut(&item).unwrap().0;
                        *price = 1 + (*price + tables::PRICE_STEP) % tables::PRICES;
                    }
                    Alteration::Ship { .. } => unreachable!("not of items"),
                }
            }
            for purchase in shop.shipments().get(number).into_iter().flatten() {
                there.purchases.get_mut(purchase).unwrap().is_shipped = true;
            }
        }
        there
    }

    /// Two alters that each buy, sell and price, the second of which ships a purchase of the first.
    fn two(shop: &Shop) -> [i64; 2] {
        let does_all = |number: &i64| {
            let of = |wanted: fn(&Alteration) -> bool| shop.of_items(*number).iter().any(wanted);
            2 <= shop.purchases(*number).len()
                && of(|it| matches!(it, Alteration::Sell { .. }))
                && of(|it| matches!(it, Alteration::Reprice { .. }))
        };
        let mut numbers = (1..).filter(does_all);
        let two = [numbers.next().unwrap(), numbers.next().unwrap()];
        let first = *shop.purchases(two[0]).keys().next().unwrap();
        shop.shipments().extend([(two[0], Vec::new()), (two[1], vec![first])]);
        two
    }

    fn judge(shop: &Shop, there: &There, believed: [Believed; 2]) -> Result<Found, String> {
        let asked = two(shop).into_iter().zip(believed).collect();
        shop.judge(there, &asked).map_err(|error| error.to_string())
    }

    #[test]
    fn so_many_of_a_hundred_alter() {
        let shop = Shop::new(SIZE, 20, Commit::Acid, Dialect::Tutti);
        let alters = (1..=10_000).filter(|number| shop.is_alter(*number)).count();
        assert!((1_800..2_200).contains(&alters), "{alters}");
    }

    #[test]
    fn rows_are_written_in_one_order_and_each_kind_comes() {
        let mut kinds = [0; 4];
        let shop = shop(Commit::Acid);
        for number in 1..1_000 {
            let statements = shop.statements(number, |random| random.random_range(1..9));
            assert_eq!(statements.len(), 8);
            let place = |it: &Alteration| match it {
                Alteration::Buy { item, .. } => (0, *item, 0),
                Alteration::Sell { item } | Alteration::Reprice { item, .. } => (0, *item, 0),
                Alteration::Ship { purchase } => (1, *purchase, 0),
            };
            assert!(statements.is_sorted_by_key(place), "{statements:?}");
            // What is done to items follows from the number, whatever is shipped.
            let is_of_items = |it: &&Alteration| !matches!(it, Alteration::Ship { .. });
            let of_items: Vec<_> = statements.iter().filter(is_of_items).copied().collect();
            assert_eq!(of_items, shop.of_items(number));
            for it in &statements {
                kinds[match it {
                    Alteration::Buy { .. } => 0,
                    Alteration::Sell { .. } => 1,
                    Alteration::Reprice { .. } => 2,
                    Alteration::Ship { .. } => 3,
                }] += 1;
            }
        }
        assert!(kinds.iter().all(|count| (1_800..2_200).contains(count)), "{kinds:?}");
    }

    #[test]
    fn what_was_told_is_there() {
        let shop = shop(Commit::Acid);
        let [first, second] = two(&shop);
        let both = after(&shop, &[first, second]);
        let done = Believed::Acknowledged;
        assert_eq!(judge(&shop, &both, [done.clone(), done.clone()]).unwrap().acknowledged, 2);
        let unknown = [done.clone(), Believed::Unknown(None)];
        assert_eq!(judge(&shop, &both, unknown.clone()).unwrap().unknown_done, 1);
        let one = after(&shop, &[first]);
        assert_eq!(judge(&shop, &one, unknown).unwrap().unknown_absent, 1);
        assert_eq!(judge(&shop, &one, [done.clone(), Believed::Refused]).unwrap().acknowledged, 1);
        assert!(judge(&shop, &one, [done.clone(), done.clone()]).unwrap_err().contains("is gone"));
        let said = judge(&shop, &both, [done, Believed::Refused]).unwrap_err();
        assert!(said.contains("was refused and is there"), "{said}");
    }

    #[test]
    fn what_is_lost_made_or_half_done_is_found() {
        let shop = shop(Commit::Acid);
        let [first, second] = two(&shop);
        let both = after(&shop, &[first, second]);
        let told = [Believed::Acknowledged, Believed::Acknowledged];
        let refusal = |change: &dyn Fn(&mut There)| {
            let mut changed = both.clone();
            change(&mut changed);
            judge(&shop, &changed, told.clone()).unwrap_err()
        };
        let bought = *shop.purchases(second).keys().next().unwrap();
        let said = refusal(&|there| assert!(there.purchases.remove(&bought).is_some()));
        assert!(said.starts_with(&format!("alter {second} is half done")), "{said}");
        let said = refusal(&|there| there.purchases.get_mut(&bought).unwrap().item += 1);
        assert!(said.contains("or another"), "{said}");
        let stranger = Purchase { shopper: 1, item: 1, is_shipped: false };
        let said = refusal(&|there| assert!(there.purchases.insert(1_000_000, stranger).is_none()));
        assert!(said.contains("nobody asked for it"), "{said}");
        for by in [1, -1] {
            let said = refusal(&|there| there.items.get_mut(&3).unwrap().1 += by);
            assert!(said.starts_with("item 3:"), "{said}");
        }
        let said = refusal(&|there| there.items.get_mut(&4).unwrap().0 = price_after(4, 7));
        assert!(said.starts_with("item 4 costs"), "{said}");
        let shipped = *shop.purchases(first).keys().next().unwrap();
        for (purchase, is_shipped) in [(shipped, false), (bought, true)] {
            let said = refusal(&|there| {
                there.purchases.get_mut(&purchase).unwrap().is_shipped = is_shipped
            });
            assert!(said.starts_with(&format!("purchase {purchase}: shipped is")), "{said}");
        }
    }

    /// Nodes that commit one by one leave a part, and only of what clients were not told.
    #[test]
    fn a_part_is_left_only_where_it_may_be() {
        let base = shop(Commit::Base);
        let [first, second] = two(&base);
        let mut part = after(&base, &[first, second]);
        let bought = *base.purchases(second).keys().next().unwrap();
        part.purchases.remove(&bought);
        let unknown = [Believed::Acknowledged, Believed::Unknown(None)];
        assert_eq!(judge(&base, &part, unknown.clone()).unwrap().unknown_done, 1);
        let told = [Believed::Acknowledged, Believed::Acknowledged];
        assert!(judge(&base, &part, told).unwrap_err().contains("half done"));
        assert!(judge(&shop(Commit::Acid), &part, unknown).unwrap_err().contains("half done"));
    }
}
