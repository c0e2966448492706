//! Checks whether the store accepts writes, by a small write if there was no other.

use std::sync::Arc;
use std::time::Duration;

use punctual_ports::{Backend, ClockPort, PortError};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::clock::current_runtime;

/// An answer holds for this long, so that frequent checks cost nothing.
const FRESH: Duration = Duration::from_secs(2);
/// Maximum wait for the small write.
const PATIENCE: Duration = Duration::from_secs(2);
const NOTHING_WRITTEN: &str = "nothing could be written for two seconds: another program holds a lock, or the database or its disk does not answer";

/// When a small write is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Unless something was written a moment ago.
    IfUnsure,
    /// Only while writing is known to fail.
    IfFailing,
}

/// What is known of one store. One checks at a time; others wait for the same answer.
#[derive(Default)]
pub(crate) struct WriteCheck(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// By the monotonic clock.
    checked_at: Option<Duration>,
    commits: u64,
    problem: Option<String>,
    /// A small write that has not come back.
    probing: Option<Probing>,
}

type Probing = JoinHandle<Result<(), PortError>>;

impl WriteCheck {
    /// Why nothing new can be stored in a store now, if so.
    pub(crate) async fn problem(
        &self,
        store: &Arc<dyn Backend>,
        clock: &dyn ClockPort,
        probe: Probe,
    ) -> Option<String> {
        let mut known = self.0.lock().await;
        let health = store.write_health();
        let since_check = known
            .checked_at
            .map(|at| clock.monotonic().saturating_sub(at));
        let is_fresh = since_check.is_some_and(|since| since < FRESH);
        let is_suspect = health.problem.is_some() || known.problem.is_some();
        let has_written = health.problem.is_none() && health.commits != known.commits;
        known.commits = health.commits;
        if !is_suspect && (is_fresh || probe == Probe::IfFailing) || is_fresh && has_written {
            known.problem = None;
            return None;
        }
        if !is_fresh || known.problem.is_none() {
            known.problem = known.probe(store, clock).await;
            known.checked_at = Some(clock.monotonic());
        }
        known.problem.clone()
    }
}

impl Known {
    /// Why the small write failed, if it did. One that has not come back is waited for again, whoever
    /// has ceased to wait for it: while the disk hangs there is one, however many check.
    async fn written(&mut self, begin: impl FnOnce() -> Probing) -> Option<String> {
        let under_way = self.probing.take().filter(|probing| !probing.is_finished());
        let probing = self.probing.insert(under_way.unwrap_or_else(begin));
        let probed = probing.await;
        self.probing = None;
        match probed {
            Ok(written) => written.err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    async fn probe(&mut self, store: &Arc<dyn Backend>, clock: &dyn ClockPort) -> Option<String> {
        let runtime = match current_runtime() {
            Ok(runtime) => runtime,
            Err(error) => return Some(error.to_string()),
        };
        let begin = || {
            let store = Arc::clone(store);
            runtime.spawn(async move { store.probe_write().await })
        };
        tokio::select! {
            biased;
            problem = self.written(begin) => problem,
            () = clock.sleep_for(PATIENCE) => {
                let health = store.write_health();
                match health.problem {
                    Some(problem) => Some(problem.to_string()),
                    // It waits behind others, which come to their end.
                    None if health.commits != self.commits => None,
                    None => Some(NOTHING_WRITTEN.to_owned()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_cancelled_check_leaves_its_write_to_the_next() {
        let (mut known, mut writes) = (Known::default(), 0);
        for _ in 0..3 {
            let begin = || {
                writes += 1;
                tokio::spawn(pending())
            };
            tokio::select! {
                biased;
                problem = known.written(begin) => panic!("it hangs, and is not {problem:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert_eq!(writes, 1);
    }
}
