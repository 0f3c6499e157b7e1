//! Load: many clients that do the same again and again, for a time or so many times.
//!
//! Owns: when a client begins (closed and open loops), the clock, and what is counted of each step.
//! Never: knows what a step does, nor connects.
//! Start reading at [`drive`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

mod tally;

pub(crate) use tally::{Figures, Tally};

/// What a client does once, as a future of its own.
pub(crate) type Step<'a> = Pin<Box<dyn Future<Output = anyhow::Result<Done>> + Send + 'a>>;

/// A client of a server, with what it does.
pub(crate) trait Client: Send + 'static {
    /// Does it once.
    ///
    /// Errors: an answer that cannot be, or that ends the whole run.
    fn step(&mut self) -> Step<'_>;

    /// Which kind of step the last one was, where there are several: those are counted by themselves, too.
    fn kind(&self) -> Option<&'static str> {
        None
    }

    /// How long it pauses before its next step, beside what the crew's pace says. No part of a latency.
    fn pause(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// What came of a step.
#[derive(Clone, Debug)]
pub(crate) enum Done {
    /// What was meant to be done.
    Right,
    /// An answer that no serial order of transactions gives.
    Wrong,
    /// The server said no; with its SQLSTATE, or `lost`.
    Failed(String),
    /// Nothing is left to do for this client.
    Nothing,
}

/// When a client begins its next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// When it has the answer to the last one, and has thought for so long.
    Closed {
        /// Between an answer and the next step.
        think: Duration,
    },
    /// At fixed times, so many per second over all clients of the crew, whether the server is fast or not.
    /// What takes long delays those after it, and the wait is part of their latency: what is called
    /// coordinated omission (Tene, "How NOT to measure latency") is not possible.
    Open {
        /// Of the whole crew.
        per_s: f64,
    },
}

/// Clients that do the same.
pub(crate) struct Crew {
    /// What they do, for the tables.
    pub kind: &'static str,
    pub pace: Pace,
    pub clients: Vec<Box<dyn Client>>,
    /// The run is over when all crews of which this is true have nothing left to do.
    pub decides: bool,
}

/// When a run is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Not counted.
    pub warm_up: Duration,
    /// What is counted; `None`: until those that decide have nothing left to do.
    pub lasts: Option<Duration>,
}

/// What a run has shown.
#[derive(Debug)]
pub(crate) struct Driven {
    /// What was counted lasted so long.
    pub lasted: Duration,
    /// One for each crew, in order; behind them one for each kind of step.
    pub tallies: Vec<(&'static str, Tally)>,
}

impl Driven {
    /// The figures of each crew, and of each kind of step.
    pub(crate) fn figures(&self) -> Vec<(String, Figures)> {
        let of = |(kind, tally): &(&'static str, Tally)| {
            ((*kind).to_owned(), tally.figures(self.lasted))
        };
        self.tallies.iter().map(of).collect()
    }
}

/// Lets all crews work at once. `steps` counts all steps while they are done, those of the warm-up, too.
///
/// Errors: a client's.
pub(crate) async fn drive(
    crews: Vec<Crew>,
    window: Window,
    steps: Arc<AtomicU64>,
) -> anyhow::Result<Driven> {
    let from = Instant::now() + window.warm_up;
    let until = window.lasts.map(|lasts| from + lasts);
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let mut tallies: Vec<_> = crews.iter().map(|crew| (crew.kind, Tally::default())).collect();
    let (crew_count, mut deciding) = (crews.len(), 0_usize);
    for (number, crew) in crews.into_iter().enumerate() {
        let count = crew.clients.len();
        for (place, client) in crew.clients.into_iter().enumerate() {
            deciding += usize::from(crew.decides);
            let schedule = Schedule::of(crew.pace, from - window.warm_up, place, count);
            let (steps, over) = (steps.clone(), over.clone());
            let decides = crew.decides;
            tasks.spawn(async move {
                let tally = run(client, schedule, from, until, &over, &steps).await;
                (number, decides, tally)
            });
        }
    }
    let mut last_decided = from;
    while let Some(ended) = tasks.join_next().await {
        let (number, decides, tally) = ended.context("a client panicked")?;
        let tally = tally.with_context(|| format!("a client of “{}”", tallies[number].0));
        let (all, by_kind) = tally?;
        tallies[number].1.add(&all);
        for (kind, tally) in by_kind {
            of_kind(&mut tallies, crew_count, kind).add(&tally);
        }
        if decides {
            deciding -= 1;
            last_decided = Instant::now();
            if deciding == 0 {
                over.store(true, Ordering::Relaxed);
            }
        }
    }
    let lasted = window.lasts.unwrap_or_else(|| last_decided.duration_since(from));
    Ok(Driven { lasted, tallies })
}

/// The tally of a kind of step, behind so many others.
fn of_kind<'a>(
    tallies: &'a mut Vec<(&'static str, Tally)>,
    behind: usize,
    kind: &'static str,
) -> &'a mut Tally {
    let known = tallies[behind..].iter().position(|(name, _)| *name == kind);
    let place = known.map_or(tallies.len(), |place| behind + place);
    if place == tallies.len() {
        tallies.push((kind, Tally::default()));
    }
    &mut tallies[place].1
}

/// When a client's steps are due.
#[derive(Clone, Copy, Debug)]
enum Schedule {
    AfterAnswer { think: Duration },
    At { next: Instant, every: Duration },
}

impl Schedule {
    /// The clients of a crew take turns.
    fn of(pace: Pace, begins: Instant, place: usize, count: usize) -> Self {
        match pace {
            Pace::Closed { think } => Self::AfterAnswer { think },
            Pace::Open { per_s } => {
                let apart = Duration::from_secs_f64(1.0 / per_s);
                let place = u32::try_from(place).unwrap_or(u32::MAX);
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                Self::At { next: begins + apart * place, every: apart * count }
            }
        }
    }

    /// Waits until the next step is due, and says when that was.
    async fn due(&mut self, is_first: bool) -> Instant {
        match self {
            Self::AfterAnswer { think } => {
                if !think.is_zero() && !is_first {
                    tokio::time::sleep(*think).await;
                }
                Instant::now()
            }
            Self::At { next, every } => {
                let due = *next;
                *next += *every;
                sleep_until(due).await;
                due
            }
        }
    }
}

async fn run(
    mut client: Box<dyn Client>,
    mut schedule: Schedule,
    from: Instant,
    until: Option<Instant>,
    over: &AtomicBool,
    steps: &AtomicU64,
) -> anyhow::Result<(Tally, Vec<(&'static str, Tally)>)> {
    let (mut tally, mut by_kind) = (Tally::default(), Vec::new());
    let mut is_first = true;
    loop {
        let due = schedule.due(is_first).await;
        is_first = false;
        if until.is_some_and(|until| until <= due) || over.load(Ordering::Relaxed) {
            return Ok((tally, by_kind));
        }
        let done = client.step().await?;
        if matches!(done, Done::Nothing) {
            return Ok((tally, by_kind));
        }
        steps.fetch_add(1, Ordering::Relaxed);
        if from <= due {
            let (at, took) = (due.duration_since(from), due.elapsed());
            tally.note(&done, at, took)?;
            if let Some(kind) = client.kind() {
                of_kind(&mut by_kind, 0, kind).note(&done, at, took)?;
            }
        }
        let pause = client.pause();
        if !pause.is_zero() {
            // Nobody waits for one who pauses beyond the end.
            let ends = Instant::now() + pause;
            sleep_until(until.map_or(ends, |until| until.min(ends))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so long for each of so many steps; the second one takes longer.
    struct Slow {
        left: u32,
        takes: Duration,
        second: Duration,
        done: u32,
    }

    impl Client for Slow {
        fn step(&mut self) -> Step<'_> {
            Box::pin(async move {
                if self.left == 0 {
                    return Ok(Done::Nothing);
                }
                (self.left, self.done) = (self.left - 1, self.done + 1);
                tokio::time::sleep(if self.done == 2 { self.second } else { self.takes }).await;
                Ok(if self.done == 3 { Done::Failed("40001".to_owned()) } else { Done::Right })
            })
        }

        fn kind(&self) -> Option<&'static str> {
            Some(if self.done.is_multiple_of(2) { "even" } else { "odd" })
        }
    }

    fn crew(pace: Pace, left: u32, decides: bool) -> Crew {
        let second = Duration::from_millis(500);
        let slow = Slow { left, takes: Duration::from_millis(1), second, done: 0 };
        Crew { kind: "slow", pace, clients: vec![Box::new(slow)], decides }
    }

    const CLOSED: Pace = Pace::Closed { think: Duration::ZERO };

    async fn driven(crews: Vec<Crew>, lasts: Option<Duration>) -> Driven {
        let window = Window { warm_up: Duration::ZERO, lasts };
        drive(crews, window, Arc::default()).await.unwrap()
    }

    #[tokio::test]
    async fn a_wait_for_a_slow_answer_is_part_of_the_latency_of_those_behind_it() {
        let open = Pace::Open { per_s: 100.0 };
        let late = driven(vec![crew(open, 20, true)], None).await.figures()[0].1.clone();
        // Those that were due while the slow one ran have waited for it, though each took a millisecond.
        assert!(250.0 < late.p50_ms, "{late:?}");
        assert_eq!((late.count, late.failed["40001"]), (19, 1));
    }

    #[tokio::test]
    async fn kinds_of_steps_are_counted_by_themselves_too() {
        let figures = driven(vec![crew(CLOSED, 5, true)], None).await.figures();
        let counts: Vec<_> = figures.iter().map(|(kind, it)| (kind.as_str(), it.count)).collect();
        assert_eq!(counts, [("slow", 4), ("odd", 2), ("even", 2)]);
    }

    #[tokio::test]
    async fn a_run_is_over_when_those_that_decide_are_done_or_its_time_is() {
        let endless = crew(CLOSED, u32::MAX, false);
        let counted = driven(vec![crew(CLOSED, 5, true), endless], None).await;
        assert!(Duration::from_millis(500) < counted.lasted, "{:?}", counted.lasted);
        assert_eq!(counted.figures()[0].1.count, 4);
        let timed = driven(vec![crew(CLOSED, u32::MAX, true)], Some(Duration::from_secs(2))).await;
        assert_eq!(timed.lasted, Duration::from_secs(2));
        let series = &timed.figures()[0].1.per_second;
        assert_eq!(series.len(), 2, "{series:?}");
    }
}
