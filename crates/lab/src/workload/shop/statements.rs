//! What shoppers ask and do, statement by statement.
//!
//! Owns: the selects and the alters, how they are drawn, and which rows each is about. Never: begins or commits.
//! Start reading at [`Look`] and [`Alteration`].

use std::ops::RangeInclusive;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::session::{Failure, Session};
use super::size::Size;
use super::tables::{PRICE_STEP, PRICES};

/// Items behind the first one of a shelf.
const SHELF: i64 = 20;

/// A select.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Look {
    /// At a shopper.
    Shopper(i64),
    /// At an item.
    Item(i64),
    /// At what a shopper has bought.
    Bought(i64),
    /// At an item and those behind it.
    Shelf(i64),
}

impl Look {
    /// One of the four, each as often as the others.
    pub fn draw(size: Size, random: &mut StdRng) -> Self {
        let shopper = random.random_range(1..=size.shoppers);
        let item = random.random_range(1..=size.items());
        match random.random_range(0..4) {
            0 => Self::Shopper(shopper),
            1 => Self::Item(item),
            2 => Self::Bought(shopper),
            _ => Self::Shelf(item),
        }
    }

    /// Asks, and gives the number of rows.
    pub async fn ask<S: Session>(self, session: &mut S) -> Result<u64, Failure> {
        let shelf = format!(
            "SELECT id, name FROM item WHERE id BETWEEN $1 AND $1 + {SHELF} ORDER BY price"
        );
        let (sql, value) = match self {
            Self::Shopper(shopper) => ("SELECT name, spent FROM shopper WHERE id = $1", shopper),
            Self::Item(item) => ("SELECT name, price, stock FROM item WHERE id = $1", item),
            Self::Bought(shopper) => (
                "SELECT i.name FROM purchase p JOIN item i ON i.id = p.item WHERE p.shopper = $1",
                shopper,
            ),
            Self::Shelf(item) => (&*shelf, item),
        };
        session.execute(sql, &[value]).await
    }

    /// How many rows there can be.
    pub fn rows(self, size: Size) -> RangeInclusive<u64> {
        match self {
            Self::Shopper(_) | Self::Item(_) => 1..=1,
            Self::Bought(_) => 0..=u64::MAX,
            Self::Shelf(item) => {
                let there = (size.items() - item).min(SHELF).unsigned_abs() + 1;
                there..=there
            }
        }
    }
}

/// A statement of an alter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Alteration {
    /// A shopper buys an item.
    Buy {
        /// The number of the purchase, which no other has.
        purchase: i64,
        /// Who.
        shopper: i64,
        /// What.
        item: i64,
    },
    /// One less is in stock.
    Sell {
        /// Of what.
        item: i64,
    },
    /// An item has another price, and what it carries is written anew.
    Reprice {
        /// Which.
        item: i64,
        /// What is written follows from it.
        seed: u64,
    },
    /// What was bought is shipped.
    Ship {
        /// By its number.
        purchase: i64,
    },
}

impl Alteration {
    /// The statements of an alter, of each of the four kinds as many as of the others, in the order of their rows,
    /// items first: no two alters wait for each other in a circle. `bought` gives each purchase its number,
    /// `to_ship` says what is to be shipped.
    pub fn draw(
        size: Size,
        random: &mut StdRng,
        mut bought: impl FnMut() -> i64,
        mut to_ship: impl FnMut(&mut StdRng) -> i64,
    ) -> Vec<Self> {
        let (mut of_items, mut shipped) = (Vec::new(), Vec::new());
        for _ in 0..size.statements {
            let item = random.random_range(1..=size.items());
            match random.random_range(0..4) {
                // With draws of its own: whatever it draws, the others do not change.
                0 => shipped.push(to_ship(&mut StdRng::seed_from_u64(random.random()))),
                1 => {
                    let shopper = random.random_range(1..=size.shoppers);
                    of_items.push((item, Self::Buy { purchase: bought(), shopper, item }));
                }
                2 => of_items.push((item, Self::Sell { item })),
                _ => of_items.push((item, Self::Reprice { item, seed: random.random() })),
            }
        }
        of_items.sort_by_key(|(item, _)| *item);
        shipped.sort_unstable();
        let shipped = shipped.into_iter().map(|purchase| Self::Ship { purchase });
        of_items.into_iter().map(|(_, alteration)| alteration).chain(shipped).collect()
    }

    /// Does it, and gives the number of rows that it was about, where that is told.
    pub async fn perform<S: Session>(
        self,
        session: &mut S,
        size: Size,
    ) -> Result<Option<u64>, Failure> {
        let rows = match self {
            Self::Buy { purchase, shopper, item } => {
                let sql = "INSERT INTO purchase VALUES ($1, $2, $3, false)";
                session.execute(sql, &[purchase, shopper, item]).await
            }
            Self::Sell { item } => {
                session.execute("UPDATE item SET stock = stock - 1 WHERE id = $1", &[item]).await
            }
            Self::Reprice { item, seed } => {
                let mut random = StdRng::seed_from_u64(seed);
                let about = size.data.literal(&mut random, size.data_bytes);
                // A text, for a parameter would have to be of the data's type.
                let sql = format!(
                    "UPDATE item SET price = 1 + (price + {PRICE_STEP}) % {PRICES}, about = {about} \
                     WHERE id = {item}"
                );
                session.query(&sql).await?;
                return Ok(None);
            }
            Self::Ship { purchase } => {
                let sql = "UPDATE purchase SET shipped = true WHERE id = $1";
                session.execute(sql, &[purchase]).await
            }
        };
        rows.map(Some)
    }
}
