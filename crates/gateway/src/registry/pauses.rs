//! A role that made all sessions wait must itself wait before it does so again.
//!
//! Owns: until when each of them waits. Never: measures what others wait for; the session that makes them
//! wait reports it.
//!
//! New statements are held while a change of the schema or moved rows are committed, and the commit room is
//! closed while an anchor that cannot prepare commits. Each of these ends soon, and nothing in PostgreSQL
//! makes it end sooner; but a client that does one after the other could stop all others for as long as it
//! likes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// A wait no longer than this is followed by no pause.
const UNNOTICED: Duration = Duration::from_millis(100);
/// For so many times as long, other sessions do not wait for this role.
const PAUSE_FACTOR: u32 = 9;
/// A longer wait counts as this: the pausing session keeps its locks meanwhile.
const LONGEST: Duration = Duration::from_secs(3);

/// When a role may again make all sessions wait.
#[derive(Debug, Default)]
pub struct Pauses(Mutex<BTreeMap<String, Instant>>);

impl Pauses {
    /// Waits until it may.
    pub(crate) async fn wait(&self, role: &str) {
        while let Some(until) = self.until(role) {
            sleep_until(until).await;
        }
    }

    /// All sessions have waited for it for `took`.
    pub(crate) fn note(&self, role: &str, took: Duration) {
        if took < UNNOTICED {
            return;
        }
        let until = Instant::now() + took.min(LONGEST) * PAUSE_FACTOR;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, until| Instant::now() < *until);
        let known = known.entry(role.to_owned()).or_insert(until);
        *known = until.max(*known);
    }

    pub(crate) fn until(&self, role: &str) -> Option<Instant> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(role).copied().filter(|until| Instant::now() < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_stopped_others_waits_nine_times_as_long_and_nobody_else_does() {
        let pauses = Pauses::default();
        let wait_of = |role: &str| pauses.until(role).map(|until| until - Instant::now());
        pauses.note("ann", Duration::from_millis(99));
        assert_eq!(wait_of("ann"), None);
        pauses.note("ann", Duration::from_secs(1));
        pauses.note("ann", Duration::from_millis(200));
        assert_eq!(wait_of("bob"), None);
        let wait = wait_of("ann").expect("it pauses");
        assert!(Duration::from_secs(2) < wait && wait <= Duration::from_secs(9), "{wait:?}");
        pauses.note("ann", Duration::from_secs(100));
        let wait = wait_of("ann").expect("it pauses");
        assert!(Duration::from_secs(9) < wait && wait <= Duration::from_secs(27), "{wait:?}");
    }
}
