//! Ends what is being started: making servers is work of threads and programs that do not hear that they may stop.
//!
//! Owns: finding these programs among this process's children, and ending them. Never: touches others.
//! Start reading at [`end`].

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Another program may be started just behind one that was ended.
const AGAIN: Duration = Duration::from_millis(20);
/// Whoever does not end in spite of everything is left to the next command, as after a crash.
const LIMIT: Duration = Duration::from_secs(10);
/// It heeds signals only between its steps, and nothing it makes is wanted.
const INITDB: &str = "initdb";

/// Ends the programs of this process that are called so, again and again, until `work`, which waits for them, has
/// ended. Then nothing of it is left: what fails while servers are made removes what was made.
pub(crate) async fn end<T>(work: Pin<&mut impl Future<Output = T>>, is_its: fn(&str) -> bool) {
    let ending = async {
        loop {
            end_programs(is_its);
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::select! {
        _ = work => (),
        () = ending => (),
        () = tokio::time::sleep(LIMIT) => (),
    }
}

/// What servers are made by, and they themselves.
pub(crate) fn is_servers(program: &str) -> bool {
    program == INITDB || program.starts_with("pg_") || program.starts_with("postgres")
}

fn end_programs(is_its: fn(&str) -> bool) {
    for pid in children(std::process::id()) {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = name.trim_end();
        if !is_its(name) {
            continue;
        }
        // Both may have ended since they were listed.
        if name == INITDB {
            for its in children(pid) {
                let _ = kill(as_pid(its), Signal::SIGKILL);
            }
            let _ = kill(as_pid(pid), Signal::SIGKILL);
        } else {
            // Of a server: at once, without a checkpoint.
            let _ = kill(as_pid(pid), Signal::SIGQUIT);
        }
    }
}

/// The processes that a process has started, by any of its threads, and that run.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let of_thread = |thread: std::fs::DirEntry| {
        std::fs::read_to_string(thread.path().join("children")).unwrap_or_default()
    };
    let listed: Vec<String> = threads.flatten().map(of_thread).collect();
    listed.iter().flat_map(|of| of.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
}

fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(pid.try_into().expect("the system's process numbers fit its own type"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::pin::pin;
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn what_a_thread_waits_for_is_ended() {
        let work = tokio::task::spawn_blocking(|| Command::new("sleep").arg("600").status());
        let mut status = None;
        let work = async { status = Some(work.await.unwrap().unwrap()) };
        end(pin!(work), |program| program == "sleep").await;
        assert_eq!(status.unwrap().signal(), Some(Signal::SIGQUIT as i32));
    }

    #[test]
    fn only_what_servers_are_made_of_is_ended() {
        assert!(["initdb", "postgres", "pg_basebackup"].into_iter().all(is_servers));
        assert!(!["tutti-lab", "sh", "pgbench"].into_iter().any(is_servers));
    }
}
