//! TPC-C: the five transactions of a wholesale supplier, and what must hold of its books.
//!
//! Owns: the workload as the lab runs it. Never: chooses clients; claims that a figure is a TPC result.
//! What a transaction does follows from its number alone, so that a check knows what each was meant to do.
//! Source: TPC Benchmark C, revision 5.11; what differs is in docs/lab/workloads.md.
//! Start reading at [`TpcC`], then [`input`].

use std::time::Duration;

use anyhow::ensure;
use rand::Rng;
use rand::rngs::StdRng;

use super::dialect::Dialect;
use super::session::Session;
use super::{Asked, Found, Outcome, Workload, steps, those};

mod conditions;
mod input;
mod load;
mod transactions;

use conditions::{Totals, numbers};
use input::{Input, Size};

/// Think times are cut off at so many means (clause 5.2.5.4).
const THOUGHT_MAX: f64 = 10.0;

/// The wholesale supplier.
#[derive(Clone, Debug)]
pub struct TpcC {
    size: Size,
    dialect: Dialect,
    thinks: bool,
}

impl TpcC {
    /// With so many warehouses. `scale`: what part of the standard's items, customers and orders there is, 1 at
    /// most.
    pub fn new(warehouses: i64, scale: f64, dialect: Dialect) -> Self {
        Self { size: Size::new(warehouses, scale), dialect, thinks: false }
    }

    /// Clients key and think as long as the standard's do.
    pub fn thinking(self, thinks: bool) -> Self {
        Self { thinks, ..self }
    }

    /// The transactions of a kind.
    fn of_kind(&self, asked: &Asked, kind: &str) -> Asked {
        those(asked, |number| Input::of(number, self.size).kind() == kind)
    }
}

impl Workload for TpcC {
    async fn setup<S: Session>(&self, session: &mut S) -> anyhow::Result<()> {
        load::load(session, self.size, self.dialect).await
    }

    async fn transaction<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        _: &mut StdRng,
    ) -> anyhow::Result<Outcome> {
        let input = Input::of(number, self.size);
        let asked = transactions::Asked { number, input: &input };
        steps::carry_out(session, input.kind(), number, asked).await
    }

    async fn check<S: Session>(
        &self,
        parts: &mut [S],
        whole: Option<&mut S>,
        asked: &Asked,
    ) -> anyhow::Result<Found> {
        let totals = Totals::read(parts, self.size).await?;
        totals.check(self.size)?;
        if let Some(gateway) = whole {
            let seen = Totals::read(std::slice::from_mut(gateway), self.size).await?;
            ensure!(seen == totals, "the gateway sees {seen:?}, there is {totals:?}");
        }
        let [orders, payments] = numbers(parts).await?;
        let new_orders = Found::compare("order", &self.of_kind(asked, "new-order"), &orders)?;
        Ok(new_orders + Found::compare("payment", &self.of_kind(asked, "payment"), &payments)?)
    }

    /// Clause 5.2.5.7: keying and thinking, by kind.
    fn pause(&self, kind: &str, random: &mut StdRng) -> Duration {
        let (keying_s, thinking_s) = match kind {
            _ if !self.thinks => return Duration::ZERO,
            "new-order" => (18.0, 12.0),
            "payment" => (3.0, 12.0),
            "order-status" => (2.0, 10.0),
            _ => (2.0, 5.0),
        };
        let means = (-(1.0 - random.random::<f64>()).ln()).min(THOUGHT_MAX);
        Duration::from_secs_f64(keying_s + means * thinking_s)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn those_who_think_take_as_long_as_the_standards() {
        let random = &mut StdRng::seed_from_u64(1);
        let tpcc = TpcC::new(1, 0.01, Dialect::Plain);
        assert_eq!(tpcc.pause("new-order", random), Duration::ZERO);
        let tpcc = tpcc.thinking(true);
        let sum: Duration = (0..2_000).map(|_| tpcc.pause("new-order", random)).sum();
        let mean = sum.as_secs_f64() / 2_000.0;
        assert!((29.0..31.0).contains(&mean), "{mean}");
    }
}
