//! Pausing after failures of a port, as opposed to those of one timer.

use std::time::Duration;

use punctual_domain::Backoff;

/// A pause in the use of a port that fails, longer each time.
#[derive(Debug)]
pub(super) struct Pause {
    backoff: Backoff,
    name: &'static str,
    failures: u32,
    until: Option<Duration>,
}

impl Pause {
    pub(super) const fn new(name: &'static str, backoff: Backoff) -> Self {
        Self {
            backoff,
            name,
            failures: 0,
            until: None,
        }
    }

    /// The end of the pause, if it is not over yet.
    pub(super) fn until(&self, monotonic: Duration) -> Option<Duration> {
        self.until.filter(|until| *until > monotonic)
    }

    /// Whether the last use failed, so that the next one is a probe.
    pub(super) const fn is_probing(&self) -> bool {
        self.failures > 0
    }

    /// Records a failure; false during a pause, since failures that happen together count as one.
    pub(super) fn failed(&mut self, monotonic: Duration) -> bool {
        if self.until(monotonic).is_some() {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        let wait = self.backoff.after(self.failures, &self.name);
        self.until = Some(monotonic.saturating_add(wait));
        true
    }

    pub(super) const fn succeeded(&mut self) {
        self.failures = 0;
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_happen_together_count_as_one_and_a_success_ends_it_all() {
        let second = Duration::from_secs(1);
        let mut pause = Pause::new("test", Backoff::new(second, second * 8));
        for _ in 0..10 {
            pause.failed(Duration::ZERO);
        }
        let until = pause.until(Duration::ZERO).unwrap();
        assert!(until <= second && until >= second * 3 / 4);
        assert_eq!(pause.until(second), None);
        assert!(pause.is_probing());
        pause.failed(second);
        assert!(pause.until(second).unwrap() > second + second);
        pause.succeeded();
        assert_eq!(pause.until(second), None);
        assert!(!pause.is_probing());
    }
}
