//! Waiting until a moment, more exactly than the runtime's own timers do.
//!
//! Owns: one timer of the operating system. Never: spins, or holds a thread.
//!
//! The runtime's timers count in whole milliseconds, upwards: half of a round trip inside of a data
//! centre, 0.25 ms, would last five times as long. On Linux a timer is a file (timerfd), for which
//! the runtime waits as for a socket.

use std::io;
use std::time::Instant;

#[cfg(target_os = "linux")]
pub use exact::Alarm;
#[cfg(not(target_os = "linux"))]
pub use rounding::Alarm;

#[cfg(target_os = "linux")]
mod exact {
    use std::os::fd::{AsFd, AsRawFd, RawFd};

    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::{Instant, io};

    /// Wakes one task at a moment.
    #[derive(Debug, Default)]
    pub struct Alarm {
        /// Made when first needed: a link without delay needs none.
        timer: Option<AsyncFd<Timer>>,
    }

    /// The runtime wants the number of the file. Keeps: always the same, and open as long as it lives.
    #[derive(Debug)]
    struct Timer(TimerFd);

    impl AsRawFd for Timer {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_fd().as_raw_fd()
        }
    }

    impl Alarm {
        /// Returns at `moment` or soon after, never before. May be dropped and called anew.
        ///
        /// Errors: the process has too many open files.
        pub async fn until(&mut self, moment: Instant) -> io::Result<()> {
            let timer = match &mut self.timer {
                Some(timer) => timer,
                none => none.insert(timer()?),
            };
            loop {
                let left = moment.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(());
                }
                let expiration = Expiration::OneShot(TimeSpec::from_duration(left));
                timer.get_ref().0.set(expiration, TimerSetTimeFlags::empty())?;
                // It may be ready of an earlier moment that nobody waited for to the end; setting
                // it anew has made it unread.
                loop {
                    let mut ready = timer.readable().await?;
                    match ready.try_io(|timer| Ok(timer.get_ref().0.wait()?)) {
                        Ok(read) => break read?,
                        Err(_would_block) => continue,
                    }
                }
            }
        }
    }

    #[expect(
        deprecated,
        reason = "its successor is unsafe, for files that may be closed meanwhile; \
                                   a `Timer` owns its file"
    )]
    fn timer() -> io::Result<AsyncFd<Timer>> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        AsyncFd::with_interest(Timer(timer), Interest::READABLE)
    }
}

#[cfg(not(target_os = "linux"))]
mod rounding {
    use super::{Instant, io};

    /// Wakes one task at a moment, up to a millisecond late.
    #[derive(Debug, Default)]
    pub struct Alarm;

    impl Alarm {
        /// Returns at `moment` or soon after, never before. May be dropped and called anew.
        ///
        /// Errors: none.
        pub async fn until(&mut self, moment: Instant) -> io::Result<()> {
            tokio::time::sleep_until(moment.into()).await;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn it_is_never_early() {
        let mut alarm = Alarm::default();
        for micros in [0, 1, 50, 250, 1_000, 3_000] {
            let moment = Instant::now() + Duration::from_micros(micros);
            alarm.until(moment).await.unwrap();
            assert!(moment <= Instant::now(), "{micros}");
        }
    }

    #[tokio::test]
    async fn a_moment_that_was_not_waited_for_does_not_end_a_later_one() {
        let mut alarm = Alarm::default();
        for _ in 0..20 {
            let soon = Instant::now() + Duration::from_micros(300);
            tokio::select! {
                biased;
                () = tokio::time::sleep(Duration::from_millis(2)) => (),
                done = alarm.until(soon + Duration::from_millis(1)) => done.unwrap(),
            }
            let later = Instant::now() + Duration::from_millis(2);
            alarm.until(later).await.unwrap();
            assert!(later <= Instant::now());
        }
    }
}
