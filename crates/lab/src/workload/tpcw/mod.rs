//! TPC-W: what the customers of a bookshop on the web ask its database, and what must hold of its books.
//!
//! Owns: the workload as the lab runs it; with the mix for shopping it is what DBT-1 does. Never: chooses clients;
//! claims that a figure is a TPC result.
//! What a transaction does follows from its number alone, so that a check knows what each was meant to do.
//! Source: TPC Benchmark W, revision 1.8; what differs is in docs/lab/workloads.md.
//! Start reading at [`TpcW`], then [`input`].

use anyhow::ensure;
use rand::rngs::StdRng;

use super::dialect::Dialect;
use super::session::Session;
use super::{Asked, Found, Outcome, Workload, steps, those};

mod input;
mod load;
mod totals;
mod transactions;

pub use input::Mix;
use input::{Input, Interaction, Size};
use totals::Totals;

/// The bookshop.
#[derive(Clone, Debug)]
pub struct TpcW {
    size: Size,
    mix: Mix,
    dialect: Dialect,
}

impl TpcW {
    /// With so many books and, at first, customers.
    pub fn new(mix: Mix, items: i64, customers: i64, dialect: Dialect) -> Self {
        Self { size: Size { items, customers }, mix, dialect }
    }

    fn of(&self, number: i64) -> Input {
        Input::of(number, self.mix, self.size)
    }

    /// The transactions that were interactions of this kind.
    fn that_were(&self, asked: &Asked, kind: Interaction) -> Asked {
        those(asked, |number| self.of(number).interaction == kind)
    }
}

impl Workload for TpcW {
    async fn setup<S: Session>(&self, session: &mut S) -> anyhow::Result<()> {
        load::load(session, self.size, self.dialect).await
    }

    async fn transaction<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        _: &mut StdRng,
    ) -> anyhow::Result<Outcome> {
        let input = self.of(number);
        let asked = transactions::Asked { number, input, size: self.size };
        steps::carry_out(session, input.interaction.kind(), number, asked).await
    }

    fn key_of(&self, number: i64) -> Option<i64> {
        let Input { interaction, customer, item, .. } = self.of(number);
        Some(if interaction == Interaction::AdminConfirm { item } else { customer })
    }

    async fn check<S: Session>(
        &self,
        parts: &mut [S],
        whole: Option<&mut S>,
        asked: &Asked,
    ) -> anyhow::Result<Found> {
        let totals = Totals::read(parts, self.size).await?;
        let bought = self.that_were(asked, Interaction::BuyConfirm);
        let registered = self.that_were(asked, Interaction::Registration);
        totals.check(&self.that_were(asked, Interaction::AdminConfirm))?;
        if let Some(gateway) = whole {
            let seen = Totals::read(std::slice::from_mut(gateway), self.size).await?;
            ensure!(seen == totals, "the gateway sees {seen:?}, there is {totals:?}");
        }
        let orders = Found::compare("order", &bought, &totals.orders())?;
        Ok(orders + Found::compare("customer", &registered, &totals.registered)?)
    }
}
