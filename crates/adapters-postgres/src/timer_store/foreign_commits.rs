//! Notifications between instances: whoever stores a timer that is due soon wakes those that fire.
//!
//! Nothing depends on them. A worker polls at its own interval, and while notifications do not arrive it
//! polls four times a second.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_domain::Timestamp;
use punctual_ports::OnChange;
use tokio::sync::Notify;
use tokio_postgres::Notification;
use uuid::Uuid;

use super::PostgresTimerStore;
use super::reading::text;
use crate::connect::{Connected, connect_listening};
use crate::metric_names;
use crate::settings::CommitNotify;

/// The channel of all instances of a database.
pub(crate) const CHANNEL: &str = "punctual_timers";
/// How long notifications are collected.
const COLLECT: Duration = Duration::from_millis(5);
/// A worker polls at least this often, and needs no notification for what is due later.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of polls while no notifications arrive.
const UNHEARD_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long a notification of our own may take.
const TEST_TIME: Duration = Duration::from_secs(2);
/// Interval of such tests, which notice a connection that died silently.
const TEST_INTERVAL: Duration = Duration::from_secs(30);
/// The word in the place of a due time in a test.
const TEST: &str = "test";

/// What is still to be told to others.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    first: Mutex<Option<Timestamp>>,
}

impl Notifier {
    /// Adds an instant; true if nothing was to be told before.
    fn add(&self, at: Timestamp) -> bool {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = first.is_none();
        *first = Some(first.map_or(at, |first| first.min(at)));
        is_first
    }

    fn take(&self) -> Option<Timestamp> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.take()
    }
}

impl PostgresTimerStore {
    /// Tells others of a timer that is due soon, unless a worker polls here that does it all itself.
    pub(super) fn notify_of_saved(&self, due_at: Timestamp) {
        let clock = &self.inner.connector.clock;
        if !self.polling().is_polled(clock.monotonic()) {
            self.notify(due_at);
        }
    }

    /// Tells others of a timer that is free, if it is due soon.
    pub(super) fn notify(&self, ready_at: Timestamp) {
        let clock = &self.inner.connector.clock;
        let is_soon = ready_at <= clock.now().saturating_add(POLL_INTERVAL);
        if !self.inner.time.is_server() || !is_soon || !self.inner.notifier.add(ready_at) {
            return;
        }
        let store = self.clone();
        drop(tokio::spawn(async move {
            store.inner.connector.clock.sleep_for(COLLECT).await;
            store.send_collected().await;
        }));
    }

    /// What a commit of a caller's tells all instances, this one included, about a timer in it; `None` if
    /// the settings say that it is not worth it.
    pub(crate) fn notification_in(&self, due_at: Timestamp) -> Option<String> {
        let clock = &self.inner.connector.clock;
        let is_worth_it = match self.inner.commit_notify {
            CommitNotify::Never => false,
            CommitNotify::Always => true,
            CommitNotify::IfSoon => {
                due_at <= clock.now().saturating_add(POLL_INTERVAL)
                    && !self.polling().is_polled(clock.monotonic())
            }
        };
        let (nobody, schema) = (Uuid::nil(), &self.inner.connector.schema);
        is_worth_it.then(|| format!("{nobody}:{}:{schema}", due_at.as_millis()))
    }

    /// Sends what is collected so far.
    pub(super) async fn send_collected(&self) {
        if let Some(first) = self.inner.notifier.take()
            && let Err(error) = self.send(&first.as_millis().to_string()).await
        {
            tracing::debug!(%error, "other instances will notice a timer by polling");
        }
    }

    async fn send(&self, what: &str) -> Result<(), punctual_ports::PortError> {
        let inner = &self.inner;
        let payload = format!("{}:{what}:{}", inner.instance, inner.connector.schema);
        let params = vec![text(CHANNEL), text(&payload)];
        let sent = self.read(
            "notify other instances",
            |sql| &sql.notify,
            params,
            |_| Ok(()),
        );
        sent.await.map(drop)
    }

    /// Calls `on_change` when another instance has stored something, for ever.
    pub(super) async fn listen(&self, on_change: OnChange) {
        let clock = Arc::clone(&self.inner.connector.clock);
        let mut pause = UNHEARD_POLL_INTERVAL;
        let mut was_heard = true;
        loop {
            let heard = Arc::new(Notify::new());
            let listening = self.start_listening(&heard, &on_change).await;
            match listening {
                Ok(connected) => {
                    tracing::info!("notifications of other instances arrive");
                    metrics::gauge!(metric_names::LISTENING).set(1.0);
                    (was_heard, pause) = (true, UNHEARD_POLL_INTERVAL);
                    // Whatever was said before.
                    self.polling().expect(Timestamp::MIN);
                    on_change();
                    self.stay(&connected, &heard).await;
                }
                Err(reason) if was_heard => {
                    was_heard = false;
                    tracing::warn!(reason, "notifications do not arrive: polling instead");
                }
                Err(_) => {}
            }
            metrics::gauge!(metric_names::LISTENING).set(0.0);
            let until = clock.monotonic().saturating_add(pause);
            while clock.monotonic() < until {
                clock.sleep_for(UNHEARD_POLL_INTERVAL).await;
                on_change();
            }
            pause = pause.saturating_mul(2).min(TEST_INTERVAL);
        }
    }

    async fn start_listening(
        &self,
        heard: &Arc<Notify>,
        on_change: &OnChange,
    ) -> Result<Connected, String> {
        let inner = &self.inner;
        let (store, heard_test) = (self.clone(), Arc::clone(heard));
        let on_change = Arc::clone(on_change);
        let on_notification = move |notification: Notification| {
            let Some(said) = Said::parse(notification.payload(), &store.inner.connector.schema)
            else {
                return;
            };
            match said {
                Said::Test(instance) if instance == store.inner.instance => {
                    heard_test.notify_one();
                }
                Said::Ready(instance, at) if instance != store.inner.instance => {
                    store.polling().expect(at);
                    on_change();
                }
                Said::Test(_) | Said::Ready(..) => {}
            }
        };
        let schema = Some(inner.connector.schema.as_str());
        let clock = inner.connector.clock.as_ref();
        let connected =
            connect_listening(&inner.listen_url, schema, clock, "listen", on_notification)
                .await
                .map_err(|error| error.to_string())?;
        let listen = format!("LISTEN {CHANNEL}");
        connected
            .client
            .batch_execute(&listen)
            .await
            .map_err(|error| error.to_string())?;
        self.test(heard).await.then_some(connected).ok_or_else(|| {
            "a notification of our own did not come back: behind a pooler, set DATABASE_LISTEN_URL to the address of the server itself".to_owned()
        })
    }

    /// Returns when notifications do not arrive any more.
    async fn stay(&self, connected: &Connected, heard: &Arc<Notify>) {
        let clock = &self.inner.connector.clock;
        loop {
            tokio::select! {
                reason = connected.driver.ended() => {
                    tracing::warn!(reason, "the connection for notifications has ended");
                    return;
                }
                () = clock.sleep_for(TEST_INTERVAL) => {}
            }
            if !self.test(heard).await {
                tracing::warn!("notifications do not arrive any more");
                return;
            }
        }
    }

    /// Whether a notification of our own comes back.
    async fn test(&self, heard: &Notify) -> bool {
        if self.send(TEST).await.is_err() {
            return false;
        }
        tokio::select! {
            () = heard.notified() => true,
            () = self.inner.connector.clock.sleep_for(TEST_TIME) => false,
        }
    }
}

/// A notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// Of an instance to itself.
    Test(Uuid),
    /// Something is, or becomes, free to be claimed.
    Ready(Uuid, Timestamp),
}

impl Said {
    /// Everybody in the database may send on the channel: what is not ours is left alone.
    fn parse(payload: &str, schema: &str) -> Option<Self> {
        let mut parts = payload.splitn(3, ':');
        let instance = parts.next()?.parse().ok()?;
        let what = parts.next()?;
        if parts.next()? != schema {
            return None;
        }
        if what == TEST {
            return Some(Self::Test(instance));
        }
        let at = Timestamp::from_millis(what.parse().ok()?).ok()?;
        Some(Self::Ready(instance, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_instance_of_the_same_schema_says_is_understood() {
        let id = "0190a8f4-0000-7000-8000-000000000001";
        let instance: Uuid = id.parse().unwrap();
        let parse = |payload: String| Said::parse(&payload, "a:b");
        assert_eq!(parse(format!("{id}:test:a:b")), Some(Said::Test(instance)));
        let at = Timestamp::from_millis(1_800_000_000_000).unwrap();
        assert_eq!(
            parse(format!("{id}:1800000000000:a:b")),
            Some(Said::Ready(instance, at))
        );
        for other in ["", ":", "x:1:a:b", "::a:b"] {
            assert_eq!(parse(other.to_owned()), None);
        }
        assert_eq!(parse(format!("{id}:1800000000000:a")), None);
        assert_eq!(parse(format!("{id}:soon:a:b")), None);
    }
}
