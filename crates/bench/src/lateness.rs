//! How late timers fire: a steady load of them, and what each of them says when it fires.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use punctual_domain::{Message, MessageEnvelope, Timestamp};
use punctual_ports::MessageHandler;
use punctual_workflows::{ScheduleTimers, TimerRequest, WorkerSettings};
use tokio::task::JoinSet;

use crate::Outcome;
use crate::ours::{Ours, Running, Store, all_created, join};
use crate::rows::Rows;
use crate::stats::float;

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
            self.late().push(late.as_secs_f64() * 1e3);
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

    fn late(&self) -> MutexGuard<'_, Vec<f64>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self) -> usize {
        self.late().len()
    }

    /// All of them in milliseconds, the least late first. An early one is no figure but a fault.
    pub(crate) fn sorted(&self) -> Outcome<Vec<f64>> {
        let early = self.early.load(Ordering::Relaxed);
        if early > 0 {
            return Err(format!("{early} timers fired before they were due").into());
        }
        let mut sorted = self.late().clone();
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
    /// Schedules timers steadily, each by an independent call, until the last is stored.
    pub(crate) async fn schedule(self, scheduling: &ScheduleTimers, rows: Rows) -> Outcome<()> {
        self.spawn(rows, |timer| {
            let scheduling = scheduling.clone();
            async move { all_created(scheduling.schedule(vec![timer]).await) }
        })
        .await
    }

    /// The same with nothing but a sleep of the runtime's for each.
    pub(crate) async fn sleep(self, rows: Rows, lateness: &Arc<Lateness>) -> Outcome<()> {
        self.spawn(rows, |timer| {
            let lateness = Arc::clone(lateness);
            async move {
                let wait = SystemTime::from(timer.due_at).duration_since(SystemTime::now());
                tokio::time::sleep(wait.unwrap_or_default()).await;
                lateness.note(timer.due_at);
                Ok(())
            }
        })
        .await
    }

    /// Spawns a task for each timer when its time has come, and waits for all of them.
    async fn spawn<F>(self, mut rows: Rows, task: impl Fn(TimerRequest) -> F) -> Outcome<()>
    where
        F: Future<Output = Outcome<()>> + Send + 'static,
    {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / self.per_second);
        let mut running = JoinSet::new();
        for _ in 0..self.lasts.as_millis() * u128::from(self.per_second) / 1_000 {
            ticks.tick().await;
            let now = Timestamp::from(SystemTime::now());
            running.spawn(task(rows.soon(now, self.ahead)));
            while let Some(ended) = running.try_join_next() {
                ended??;
            }
        }
        join(running).await
    }
}

/// A steady load of timers that are due soon, of which those are counted that were scheduled under
/// the full load.
pub(crate) struct Steady {
    pub(crate) load: Load,
    lasts: Duration,
    pub(crate) lateness: Arc<Lateness>,
}

/// Before this, what fires was not scheduled under the full load.
const WARM_UP: Duration = Duration::from_secs(2);
const AHEAD: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(1_500));

impl Steady {
    /// From now on.
    pub(crate) fn new(per_second: u32, lasts: Duration) -> Self {
        Self::ahead(per_second, lasts, AHEAD)
    }

    /// The same for timers that are due this far ahead.
    pub(crate) fn ahead(per_second: u32, lasts: Duration, ahead: (Duration, Duration)) -> Self {
        let from = Timestamp::from(SystemTime::now()).saturating_add(WARM_UP);
        Self {
            load: Load {
                per_second,
                lasts: WARM_UP + lasts + ahead.1,
                ahead,
            },
            lasts,
            lateness: Lateness::of(from, from.saturating_add(lasts)),
        }
    }

    /// Schedules all of them, and returns the engine that has fired them.
    pub(crate) async fn fire<S: Store>(
        &self,
        ours: &Ours<S>,
        rows: Rows,
        handler: Arc<dyn MessageHandler>,
    ) -> Outcome<Running> {
        let running = ours.run(WorkerSettings::default(), handler).await?;
        self.schedule(&ours.scheduling(), rows).await?;
        Ok(running)
    }

    /// Schedules all of them, until the last is due.
    pub(crate) async fn schedule(&self, scheduling: &ScheduleTimers, rows: Rows) -> Outcome<()> {
        self.load.schedule(scheduling, rows).await?;
        tokio::time::sleep(self.load.ahead.1).await;
        Ok(())
    }

    /// How late each was, if about as many fired as were to: the load is random within each second.
    pub(crate) fn sorted(&self) -> Outcome<Vec<f64>> {
        let wanted = self.lasts.as_secs_f64() * f64::from(self.load.per_second);
        let fired = float(self.lateness.count() as u64);
        if (fired / wanted - 1.0).abs() > 0.1 {
            return Err(format!("{fired} timers fired where {wanted} were to").into());
        }
        self.lateness.sorted()
    }
}

/// The value that this part of a sorted list does not exceed.
pub(crate) fn percentile(sorted: &[f64], part: f64) -> Outcome<f64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "lists here are far shorter than what a double holds exactly"
    )]
    let rank = (part * float(sorted.len() as u64)).ceil() as usize;
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
