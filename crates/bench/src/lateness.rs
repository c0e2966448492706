//! How late timers fire: a steady load of them, and what each of them says when it fires.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use punctual_domain::{Message, MessageEnvelope, Timestamp};
use punctual_workflows::{ScheduleTimers, TimerRequest};
use tokio::task::JoinSet;

use crate::Outcome;
use crate::ours::all_created;
use crate::rows::Rows;

/// How late the timers were that fired within a span of time.
#[derive(Debug)]
pub(crate) struct Lateness {
    from: Timestamp,
    until: Timestamp,
    late: Mutex<Vec<f64>>,
    early: AtomicUsize,
}

impl Lateness {
    /// Counts what is due within this span, and nothing else.
    pub(crate) fn of(from: Timestamp, until: Timestamp) -> Arc<Self> {
        Arc::new(Self {
            from,
            until,
            late: Mutex::default(),
            early: AtomicUsize::new(0),
        })
    }

    /// Something that was due then has happened now; returns whether it was in the span.
    pub(crate) fn note(&self, due_at: Timestamp) -> bool {
        let Ok(late) = SystemTime::now().duration_since(due_at.into()) else {
            self.early.fetch_add(1, Ordering::Relaxed);
            return true;
        };
        let counts = due_at >= self.from && due_at < self.until;
        if counts {
            let mut list = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            list.push(late.as_secs_f64() * 1e3);
        }
        counts
    }

    /// A timer has fired; returns whether it was in the span.
    pub(crate) fn note_event(&self, envelope: &MessageEnvelope) -> bool {
        match &envelope.message {
            Message::DueTimeReached(event) => self.note(event.due_at),
            _ => false,
        }
    }

    pub(crate) fn count(&self) -> usize {
        let list = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        list.len()
    }

    /// All of them in milliseconds, the least late first. An early one is no figure but a fault.
    pub(crate) fn sorted(&self) -> Outcome<Vec<f64>> {
        let early = self.early.load(Ordering::Relaxed);
        if early > 0 {
            return Err(format!("{early} timers fired before they were due").into());
        }
        let list = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sorted = list.clone();
        sorted.sort_by(f64::total_cmp);
        Ok(sorted)
    }
}

/// A steady load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) per_second: u32,
    pub(crate) lasts: Duration,
    /// How far ahead the timers are due: at random between these two.
    pub(crate) ahead: (Duration, Duration),
}

impl Load {
    /// Schedules timers steadily, each by an independent call; returns
    /// how many there were, when the last is stored.
    pub(crate) async fn schedule(
        self,
        scheduling: &ScheduleTimers,
        mut rows: Rows,
    ) -> Outcome<usize> {
        let mut calls = JoinSet::new();
        let count = self
            .paced(|now| {
                let timer = rows.soon(now, self.ahead);
                let scheduling = scheduling.clone();
                calls.spawn(async move { one(&scheduling, timer).await });
                while let Some(ended) = calls.try_join_next() {
                    ended??;
                }
                Ok(())
            })
            .await?;
        while let Some(ended) = calls.join_next().await {
            ended??;
        }
        Ok(count)
    }

    /// The same with nothing but a sleep of the runtime's for each.
    pub(crate) async fn sleep(self, mut rows: Rows, lateness: &Arc<Lateness>) -> Outcome<usize> {
        let mut sleeps = JoinSet::new();
        let count = self
            .paced(|now| {
                let due_at = rows.soon(now, self.ahead).due_at;
                let lateness = Arc::clone(lateness);
                sleeps.spawn(async move {
                    let wait = SystemTime::from(due_at).duration_since(SystemTime::now());
                    tokio::time::sleep(wait.unwrap_or_default()).await;
                    lateness.note(due_at);
                });
                while let Some(ended) = sleeps.try_join_next() {
                    ended?;
                }
                Ok(())
            })
            .await?;
        while let Some(ended) = sleeps.join_next().await {
            ended?;
        }
        Ok(count)
    }

    async fn paced(self, mut each: impl FnMut(Timestamp) -> Outcome<()>) -> Outcome<usize> {
        let count = (self.lasts.as_secs_f64() * f64::from(self.per_second)).round();
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / self.per_second);
        let mut done = 0_usize;
        while f64::from(u32::try_from(done)?) < count {
            ticks.tick().await;
            each(Timestamp::from(SystemTime::now()))?;
            done += 1;
        }
        Ok(done)
    }
}

async fn one(scheduling: &ScheduleTimers, timer: TimerRequest) -> Outcome<()> {
    all_created(scheduling.schedule(vec![timer]).await)
}

/// The value that this part of a sorted list does not exceed.
pub(crate) fn percentile(sorted: &[f64], part: f64) -> Outcome<f64> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "lists here are far shorter than what a double holds exactly"
    )]
    let rank = (part * sorted.len() as f64).ceil() as usize;
    let value = sorted.get(rank.saturating_sub(1)).copied();
    value.ok_or_else(|| "nothing was measured".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_value_that_its_share_does_not_exceed() {
        let sorted: Vec<f64> = (1..=200).map(f64::from).collect();
        let of = |part| percentile(&sorted, part).unwrap();
        assert!((of(0.5) - 100.0).abs() < 1e-9);
        assert!((of(0.99) - 198.0).abs() < 1e-9);
        assert!((of(1.0) - 200.0).abs() < 1e-9);
        assert!((percentile(&[7.0], 0.5).unwrap() - 7.0).abs() < 1e-9);
        assert!(percentile(&[], 0.5).is_err());
    }

    #[test]
    fn what_is_early_is_a_fault() {
        let lateness = Lateness::of(Timestamp::MIN, Timestamp::MAX);
        lateness.note(Timestamp::MIN);
        assert_eq!(lateness.sorted().unwrap().len(), 1);
        lateness.note(Timestamp::MAX);
        assert!(lateness.sorted().is_err());
    }
}
