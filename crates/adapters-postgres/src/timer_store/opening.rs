//! Opening and closing a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use punctual_domain::Backoff;
use punctual_ports::{ClockPort, OnChange};
use tokio::sync::Notify;
use uuid::Uuid;

use super::blocked_keys::BlockedKeys;
use super::foreign_commits::Notifier;
use super::save_queue::{SaveQueue, commit_all, is_drained};
use super::{Inner, PostgresTimerStore};
use crate::call_store::Calls;
use crate::connect::connect;
use crate::health::Health;
use crate::lane::{Connector, Lane};
use crate::migrate::{check, migrate, quoted};
use crate::open_error::{OpenError, Place};
use crate::settings::{PostgresSettings, Role};
use crate::sql::Statements;

/// How long closing waits for what is under way.
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// Backoff of attempts to open a store whose server is away.
const WAIT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
/// Interval of the warnings meanwhile.
const WAIT_WARNING_INTERVAL: Duration = Duration::from_secs(10);

impl PostgresTimerStore {
    /// Opens a store, and creates or migrates its tables unless it is a client's. `instance` is unique to
    /// this opening.
    ///
    /// # Errors
    /// If the database cannot be used, or not in the time to wait for it. Nothing was written to it then.
    pub async fn open(
        settings: &PostgresSettings,
        clock: Arc<dyn ClockPort>,
        instance: Uuid,
    ) -> Result<Self, OpenError> {
        let begun = clock.monotonic();
        let mut attempts = 0;
        let mut warn_after = Duration::ZERO;
        loop {
            let opened = Box::pin(Self::try_open(settings, &clock, instance)).await;
            let waited = clock.monotonic().saturating_sub(begun);
            let left = settings.wait.saturating_sub(waited);
            match opened {
                Err(error) if error.is_retryable() && !left.is_zero() => {
                    if waited >= warn_after {
                        tracing::warn!(%error, left_s = left.as_secs(), "waiting for the database");
                        warn_after = waited.saturating_add(WAIT_WARNING_INTERVAL);
                    }
                    attempts += 1;
                    let pause = WAIT_BACKOFF.after(attempts, &instance);
                    clock.sleep_for(pause.min(left)).await;
                }
                opened => return opened,
            }
        }
    }

    async fn try_open(
        settings: &PostgresSettings,
        clock: &Arc<dyn ClockPort>,
        instance: Uuid,
    ) -> Result<Self, OpenError> {
        let wanted = settings.schema.as_deref();
        let connected = connect(&settings.url, wanted, clock.as_ref(), "open").await?;
        let place = Place {
            server: connected.facts.server.clone(),
            // The check of the connection has found one.
            schema: connected.facts.schema.clone().unwrap_or_default(),
        };
        let prepared = async {
            match settings.role {
                Role::Timer => migrate(&connected, &place, settings.set, clock.now())
                    .await
                    .map(|()| settings.set),
                Role::Client => check(&connected.client, &place, settings.set).await,
            }
        };
        let set = prepared.await?;
        drop(connected);
        let settings = PostgresSettings {
            set,
            ..settings.clone()
        };
        Ok(Self::start(&settings, Arc::clone(clock), instance, &place))
    }

    fn start(
        settings: &PostgresSettings,
        clock: Arc<dyn ClockPort>,
        instance: Uuid,
        place: &Place,
    ) -> Self {
        let connector = Arc::new(Connector {
            url: settings.url.clone(),
            schema: place.schema.clone(),
            clock,
            time_limit: settings.time_limit,
            is_closed: AtomicBool::new(false),
            closing: Notify::new(),
            health: Health::default(),
        });
        let (queue, waiting) = SaveQueue::new();
        let schema = quoted(&place.schema);
        let (set, time) = (settings.set, settings.time.clone());
        let with_calls = set.has_attempts();
        let inner = Inner {
            sql: Statements::of(&schema),
            calls: with_calls.then(|| Calls::start(&connector, &schema, instance, set, time)),
            instance,
            set: settings.set,
            role: settings.role,
            time: settings.time.clone(),
            label: settings.label.clone(),
            commit_notify: settings.commit_notify,
            listen_url: settings
                .listen_url
                .clone()
                .unwrap_or_else(|| settings.url.clone()),
            name: format!("the schema {} of {}", place.schema, place.server),
            claims: Lane::new(&connector, "claim"),
            settle: Lane::new(&connector, "settle"),
            saves: [
                Lane::durable(&connector, "save"),
                Lane::durable(&connector, "save"),
            ],
            write: Lane::durable(&connector, "write"),
            blocked: BlockedKeys::default(),
            reads: [Lane::new(&connector, "read"), Lane::new(&connector, "read")],
            queue,
            waiting: Arc::clone(&waiting),
            polling: std::sync::Mutex::default(),
            notifier: Notifier::default(),
            offset: AtomicI64::new(0),
            database: tokio::sync::Mutex::default(),
            connector,
        };
        let store = Self {
            inner: Arc::new(inner),
        };
        for lane in 0..store.inner.saves.len() {
            let committing = commit_all(Arc::downgrade(&store.inner), lane, Arc::clone(&waiting));
            drop(tokio::spawn(committing));
        }
        store
    }

    /// Finishes the operations in flight and ends all connections. Operations on any clone then fail with
    /// `Stopped`.
    pub async fn close(&self) {
        let ended = async {
            self.inner.queue.close();
            // Each turn waits for a transaction in progress.
            while !is_drained(&self.inner.waiting).await {
                for lane in &self.inner.saves {
                    lane.close().await;
                }
                tokio::task::yield_now().await;
            }
            if let Some(calls) = &self.inner.calls {
                calls.drain().await;
            }
            for lane in &self.inner.saves {
                lane.close().await;
            }
            // Nobody would send it any more.
            self.send_collected().await;
            if self.inner.role == Role::Timer {
                self.forget_instances().await;
            }
        };
        tokio::select! {
            () = ended => {}
            () = self.inner.connector.clock.sleep_for(CLOSE_TIME) => {}
        }
        self.close_soon();
        for lane in self.inner.lanes() {
            lane.close().await;
        }
    }

    /// Waits until all connections are known to have ended, for tests that cut them.
    #[doc(hidden)]
    pub async fn disconnected(&self) {
        for lane in self.inner.lanes() {
            lane.ended().await;
        }
    }

    /// The schema and the server, for messages.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Calls `on_change` after commits of other instances, and keeps the queue in order, until the store is
    /// closed. Without it, an instance relies on its polls alone.
    pub async fn watch_others(&self, on_change: OnChange) {
        if self.inner.role == Role::Client || !self.inner.time.is_server() {
            return self.closed().await;
        }
        if !self.inner.set.has_timers() {
            tokio::select! {
                () = Box::pin(self.clean_up()) => {}
                () = self.heartbeats() => {}
                () = self.closed() => {}
            }
            return;
        }
        tokio::select! {
            () = Box::pin(self.listen(Arc::clone(&on_change))) => {}
            () = self.sweep(Arc::clone(&on_change)) => {}
            () = self.poll_regularly(on_change) => {}
            () = self.heartbeats() => {}
            () = Box::pin(self.clean_up()) => {}
            () = self.closed() => {}
        }
    }

    async fn closed(&self) {
        let closing = self.inner.connector.closing.notified();
        if !self.inner.connector.is_closed.load(Ordering::Acquire) {
            closing.await;
        }
    }

    /// Ends all connections without waiting for what is under way. Needs no runtime.
    pub fn close_soon(&self) {
        self.inner
            .connector
            .is_closed
            .store(true, Ordering::Release);
        self.inner.connector.closing.notify_waiters();
    }
}
