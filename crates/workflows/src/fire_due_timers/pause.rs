//! Holding back after failures that are not one timer's own.

use std::time::Duration;

use punctual_domain::Backoff;

/// A port that fails is left alone for a while, longer each time.
#[derive(Debug)]
pub(super) struct Pause {
    backoff: Backoff,
    name: &'static str,
    failures: u32,
    until: Option<Duration>,
}

impl Pause {
    pub(super) const fn new(name: &'static str, first: Duration, limit: Duration) -> Self {
        Self {
            backoff: Backoff { first, limit },
            name,
            failures: 0,
            until: None,
        }
    }

    /// Until when to hold back, if that is not over yet.
    pub(super) fn until(&self, monotonic: Duration) -> Option<Duration> {
        self.until.filter(|until| *until > monotonic)
    }

    /// Whether the last try failed, so that the next one is a careful one.
    pub(super) const fn is_probing(&self) -> bool {
        self.failures > 0
    }

    /// Notes a failure. Many that happen together, while held back already, count as one; false if
    /// this was such a one.
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
        let mut pause = Pause::new("test", second, second * 8);
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
