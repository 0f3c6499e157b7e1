//! How much of the gateway's resources reading large texts may take.
//!
//! Owns: how many of them are read and planned concurrently, how much memory their trees may take
//! together, and that reading one does not block the threads that serve others.
//! Never: reads a text, or delays ordinary statements.
//! Start reading at [`Reading::begin`].
//!
//! PostgreSQL gives every client a process, and running out of memory fails that client only. Here
//! all share one process. So what a text will cost is estimated first ([`cost`]); small ones are
//! read in place, the others one after another, as memory allows.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tutti_sql::refusal::Refusal;
use tutti_sql::statement::cost;

/// Shorter texts are read in place.
pub const SMALL_BYTES: usize = 16 * 1024;
/// What one memory permit stands for.
const UNIT_BYTES: usize = 1 << 20;
/// How long a text waits for memory that others hold.
const MEMORY_PATIENCE: Duration = Duration::from_secs(30);
/// Assumed where the system does not say how much memory there is.
const MEMORY_BYTES_DEFAULT: usize = 1 << 30;

/// See the module's documentation.
#[derive(Debug)]
pub struct Reading {
    /// Memory, in units.
    memory: Arc<Semaphore>,
    units: usize,
    /// Each reading takes a processor.
    permits: Arc<Semaphore>,
}

/// The right to read one large text. Kept as long as its tree.
#[derive(Debug)]
pub struct ReadingPermit {
    _memory: OwnedSemaphorePermit,
    permit: Option<OwnedSemaphorePermit>,
}

impl ReadingPermit {
    /// The text is read: another may be read, beside the memory that this tree takes.
    pub fn end_reading(&mut self) {
        self.permit = None;
    }
}

impl Default for Reading {
    fn default() -> Self {
        Self::of_size(memory_bytes() / 3)
    }
}

impl Reading {
    fn of_size(bytes: usize) -> Self {
        let units = (bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let permits = Arc::new(Semaphore::new(processors.div_ceil(2)));
        Self { memory: Arc::new(Semaphore::new(units)), units, permits }
    }

    /// Waits until a large text may be read. `None`: it is small and needs no permit.
    ///
    /// Errors: 54000 if it needs more memory than there is; 53200 if others hold on to it.
    pub async fn begin(&self, text: &str) -> Result<Option<ReadingPermit>, Refusal> {
        if text.len() < SMALL_BYTES {
            return Ok(None);
        }
        let needed = cost(text).div_ceil(UNIT_BYTES);
        if self.units < needed {
            return Err(Refusal::postgres("54000", "statement is too large to be planned")
                .with_detail(format!(
                    "It would take about {needed} MB of memory; the gateway has {} MB for that.",
                    self.units
                ))
                .with_hint("Split it; values can be sent as parameters or by COPY."));
        }
        let permit = self.permits.clone().acquire_owned().await.expect("never closed");
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        let memory = self.memory.clone().acquire_many_owned(needed);
        let Ok(memory) = tokio::time::timeout(MEMORY_PATIENCE, memory).await else {
            return Err(Refusal::postgres("53200", "out of memory")
                .with_detail("Other large statements have what the gateway has for them.")
                .with_hint("Retrying is safe: nothing was sent to a node."));
        };
        let memory = memory.expect("never closed");
        Ok(Some(ReadingPermit { _memory: memory, permit: Some(permit) }))
    }
}

/// Does what may take long, if the text is large, without blocking the threads that serve others.
pub fn apart<T>(text: &str, work: impl FnOnce() -> T) -> T {
    let is_apart = SMALL_BYTES <= text.len()
        && Handle::try_current()
            .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_apart { tokio::task::block_in_place(work) } else { work() }
}

/// How much memory this machine has.
fn memory_bytes() -> usize {
    let known = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().trim_end_matches(" kB").parse::<usize>().ok()
    });
    known.map_or(MEMORY_BYTES_DEFAULT, |kilobytes| kilobytes.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large(calls: usize) -> String {
        format!("SELECT {}", vec!["f(g(h(1)))"; calls].join(","))
    }

    #[tokio::test]
    async fn small_texts_wait_for_nothing_and_large_ones_for_memory() {
        let reading = Reading::of_size(48 << 20);
        let text = large(2_000);
        let mut first = reading.begin(&text).await.unwrap().expect("it is large");
        first.end_reading();
        assert!(reading.begin("SELECT 1").await.unwrap().is_none());
        let second = reading.begin(&text);
        tokio::pin!(second);
        let soon = tokio::time::timeout(Duration::from_millis(20), &mut second).await;
        assert!(soon.is_err(), "there is no memory for two");
        drop(first);
        second.await.unwrap().expect("now there is");
        let refused = reading.begin(&large(20_000)).await.unwrap_err();
        assert_eq!(refused.sqlstate, "54000");
    }
}
