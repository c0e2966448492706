//! Plays a history on a store and on the model, and compares every answer and every row.

use std::collections::BTreeMap;

use punctual_domain::claim_sharing::earlier;
use punctual_domain::{TimerEntry, TimerKey, Timestamp};
use punctual_ports::{Claim, ClaimBatch, ClaimOutcome, SaveTimer};

use super::history::{Event, Step};
use super::instances::Instances;
use super::model::{Lease, Model};
use crate::TimerStoreFixture;
use crate::store::{LEASE, Store, at, command, direct, ensured, key_of, replacement, with_data};

struct Runner<F> {
    store: Instances<F>,
    model: Model,
    now: Timestamp,
    claims: Vec<Claim>,
    last_command: BTreeMap<u8, SaveTimer>,
    saves: u32,
}

/// The timers of a history, of three tenants.
fn timer_key(timer: u8) -> TimerKey {
    key_of(
        ["a", "b", "c"][usize::from(timer % 3)],
        u128::from(timer) + 1,
    )
}

pub(super) async fn run<F: TimerStoreFixture>(
    store: Instances<F>,
    history: &[Step],
) -> Result<(), String> {
    let mut runner = Runner {
        store,
        model: Model::default(),
        now: at(1_000_000),
        claims: Vec::new(),
        last_command: BTreeMap::new(),
        saves: 0,
    };
    for (number, step) in history.iter().enumerate() {
        runner.store.choose(step.on_second);
        let outcome = runner.play(&step.event).await;
        let outcome = match outcome {
            Ok(()) => runner.compare_rows().await,
            failed => failed,
        };
        outcome.map_err(|why| format!("step {number}, {step:?} at {}: {why}", runner.now))?;
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(store: &T, model: &T) -> Result<(), String> {
    if store == model {
        return Ok(());
    }
    Err(format!("the store says {store:?}, the model {model:?}"))
}

impl<F: TimerStoreFixture> Runner<F> {
    async fn play(&mut self, event: &Event) -> Result<(), String> {
        match *event {
            Event::Schedule { timer, due_in } => {
                self.save(direct(timer_key(timer), self.in_millis(due_in)))
                    .await
            }
            Event::Replace { timer, due_in } => {
                self.save(replacement(timer_key(timer), self.in_millis(due_in)))
                    .await
            }
            Event::Ensure { timer, due_in } => {
                self.save(ensured(timer_key(timer), self.in_millis(due_in)))
                    .await
            }
            Event::Command { timer, age, due_in } => {
                let sent_at = self.in_millis(-age);
                let sent = command(timer_key(timer), sent_at, self.in_millis(due_in));
                self.last_command.insert(timer, sent.clone());
                self.save(sent).await
            }
            Event::Redeliver { timer } => match self.last_command.get(&timer).cloned() {
                Some(sent) => self.save(sent).await,
                None => Ok(()),
            },
            Event::Delete { timer } => {
                let key = timer_key(timer);
                let store = self.store.delete(key.clone(), self.now.as_millis()).await;
                same(&store, &self.model.delete(&key, self.now))
            }
            Event::Claim { limit } => self.claim(limit).await,
            Event::Purge { age, limit } => self.purge(age, limit).await,
            Event::Crash => {
                self.store.crash_and_reopen().await;
                if !self.store.claims_survive_a_crash() {
                    self.model.crash();
                }
                Ok(())
            }
            Event::Disconnect => {
                self.store.disconnect().await;
                Ok(())
            }
            // Whether a lease that has ended begins again when the clock is set back is left open by
            // the contract, so the history does not ask.
            Event::Jump { millis } if millis < 0 && self.model.has_ended_leases(self.now) => Ok(()),
            Event::Pass { millis } | Event::Jump { millis } => {
                self.now = at(self.in_millis(millis));
                Ok(())
            }
            Event::Fire { claim }
            | Event::Retry { claim, .. }
            | Event::Release { claim }
            | Event::Renew { claim }
            | Event::DeadLetter { claim } => match self.claims.get(usize::from(claim)).cloned() {
                Some(claim) => self.settle(event, &claim).await,
                None => Ok(()),
            },
        }
    }

    fn in_millis(&self, millis: i64) -> i64 {
        self.now.as_millis() + millis
    }

    async fn save(&mut self, timer: SaveTimer) -> Result<(), String> {
        self.saves += 1;
        let timer = with_data(timer, &self.saves.to_string());
        let store = self.store.save(timer.clone(), self.now.as_millis()).await;
        same(&store, &self.model.save(&timer, self.now))
    }

    async fn claim(&mut self, limit: usize) -> Result<(), String> {
        let claimable = self.model.claimable(self.now);
        let due = claimable
            .iter()
            .filter(|(ready_at, _)| *ready_at <= self.now)
            .count();
        let next = claimable
            .iter()
            .map(|(ready_at, _)| *ready_at)
            .find(|at| *at > self.now);
        let batch = self.store.claim_batch(self.now.as_millis(), limit).await;
        same(&batch.claims.len(), &due.min(limit))?;
        if self.store.has_others() {
            self.compare_hints(&batch, due > limit, next)?;
        } else {
            same(&batch.more_due, &(due > limit))?;
            same(&batch.next_due_at, &next)?;
        }
        for claim in batch.claims {
            self.model.claim(&claim, self.store.number(), self.now)?;
            self.claims
                .retain(|old| old.timer.key != claim.timer.key || old.token != claim.token);
            self.claims.insert(0, claim);
            self.claims.truncate(8);
        }
        Ok(())
    }

    /// What a claim says about the rest, where other instances may have claims: it may ask for another poll
    /// without need, but never for one in a busy loop or too late.
    fn compare_hints(
        &self,
        batch: &ClaimBatch,
        is_more_due: bool,
        next: Option<Timestamp>,
    ) -> Result<(), String> {
        if is_more_due && !batch.more_due {
            return Err("more is due than the store says".to_owned());
        }
        let foreign = self.model.foreign_lease_end(self.store.number(), self.now);
        let latest = earlier(next, foreign);
        let is_soon_enough = match (batch.next_due_at, latest) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(at), Some(latest)) => at <= latest,
        };
        if !is_soon_enough || batch.next_due_at.is_some_and(|at| at <= self.now) {
            let next = batch.next_due_at;
            return Err(format!("{next:?} is not after now or after {latest:?}"));
        }
        Ok(())
    }

    async fn settle(&mut self, event: &Event, claim: &Claim) -> Result<(), String> {
        if let Event::Fire { .. } = event {
            return self.fire(claim).await;
        }
        // Whether a claim whose lease has ended is lost before another worker takes it is left
        // open by the contract, so the history does not ask.
        if self.model.lease_has_ended(claim, self.now) {
            return Ok(());
        }
        let (now, until) = (self.now.as_millis(), self.now.saturating_add(LEASE));
        let (store, model) = match *event {
            Event::Retry { later, .. } => (
                self.store.retry(claim, now + later).await,
                self.model.settle_failed(claim, |row| {
                    row.attempts += 1;
                    row.retry_at = Some(at(now + later));
                    row.claim = None;
                }),
            ),
            Event::Release { .. } => (
                self.store.release(claim).await,
                self.model.settle(claim, |row| row.claim = None),
            ),
            Event::Renew { .. } => (
                self.store.renew(claim, now).await,
                self.model.settle(claim, |row| {
                    row.claim = row.claim.map(|lease| Lease { until, ..lease });
                }),
            ),
            _ => self.dead_letter(claim).await,
        };
        same(&store, &model)
    }

    async fn fire(&mut self, claim: &Claim) -> Result<(), String> {
        // As the worker does: the clock may have been set back since the claim.
        let reached_at = self.now.max(claim.timer.registration.due_at);
        let marked = self.store.try_mark(&claim.timer, reached_at.as_millis());
        let store = marked.await.map_err(|e| e.to_string())?;
        same(&store, &self.model.mark(claim, reached_at))
    }

    async fn dead_letter(&mut self, claim: &Claim) -> (ClaimOutcome, ClaimOutcome) {
        let reached_at = self.now.max(claim.timer.registration.due_at);
        let store = self.store.dead_letter(claim, reached_at.as_millis()).await;
        let model = self.model.settle_failed(claim, |row| {
            row.reached_at = Some(reached_at);
            row.claim = None;
            row.retry_at = None;
        });
        if model == ClaimOutcome::Applied {
            self.model
                .dead_letters
                .insert(claim.timer.firing_id().to_string());
        }
        (store, model)
    }

    async fn purge(&mut self, age: i64, limit: usize) -> Result<(), String> {
        let before = at(self.in_millis(-age));
        let old = self.model.old(before);
        let purged = self.store.purge(before.as_millis(), limit).await;
        same(&purged, &old.min(limit))?;
        if old > limit {
            // Which ones went is the store's choice: take the rest too, so that both agree again.
            let rest = self.store.purge(before.as_millis(), old).await;
            same(&rest, &(old - limit))?;
        }
        self.model
            .rows
            .retain(|_, row| row.reached_at.is_none_or(|at| at >= before));
        self.model
            .deleted
            .retain(|_, deleted_at| *deleted_at >= before);
        Ok(())
    }

    /// Every row of the store is a row of the model, and the other way round.
    async fn compare_rows(&self) -> Result<(), String> {
        for timer in 0..6 {
            let key = timer_key(timer);
            let found = self.store.find(key.clone()).await;
            let model = self.model.rows.get(&key);
            same(
                &found.as_ref().map(|entry| entry.timer().registration),
                &model.map(|row| row.registration),
            )?;
            same(
                &found.as_ref().and_then(TimerEntry::reached_at),
                &model.and_then(|row| row.reached_at),
            )?;
            same(
                &found.as_ref().map(|entry| entry.failures().attempts),
                &model.map(|row| row.attempts),
            )?;
        }
        let dead_letters = self.store.dead_letters().list(None, 1_000).await;
        let dead_letters = dead_letters.map_err(|e| e.to_string())?.into_iter();
        let mut ids: Vec<String> = dead_letters.map(|stored| stored.dead_letter.id).collect();
        ids.sort();
        same(&ids, &self.model.dead_letters.iter().cloned().collect())
    }
}
