//! A store in a schema of its own on the shared server.

use std::sync::{Arc, Mutex, PoisonError};

use punctual_adapters_postgres::{
    ConnectionProbe, PostgresSettings, PostgresTimerStore, PostgresUrl, SchemaSet, StoreClock,
    TestClock,
};
use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_domain::TimerKey;
use punctual_ports::{ClockPort, IdPort};
use punctual_test_servers::SharedSchema;
use uuid::Uuid;

/// Schemas whose test has ended. A random history takes one of them instead of making a new one.
static USED: Mutex<Vec<(SchemaSet, SharedSchema)>> = Mutex::new(Vec::new());

/// Empties the tables of service calls.
const EMPTY_CALLS: &str = "TRUNCATE service_calls, service_call_tags, submissions, outbox, outbox_claims, \
    http_execution_log RESTART IDENTITY CASCADE";

/// Empties the tables of attempts whose calls are elsewhere.
const EMPTY_EXECUTION: &str = "TRUNCATE http_execution_log, outbox, outbox_claims, tombstones, dead_letters, \
    bus_positions, republications, instances, database_id RESTART IDENTITY";

/// Empties all tables that a store of timers writes, as a migration leaves them.
const EMPTY: &str = "TRUNCATE timers, timer_queue, timer_firings, timer_claims, dead_letters, bus_positions, \
    republications, instances, database_id RESTART IDENTITY CASCADE; \
    INSERT INTO timer_claims (timer_id, token, instance_id, lease_until) \
    VALUES (0, 0, '00000000-0000-0000-0000-000000000000', '-infinity')";

/// The machine's clock, which connections wait by.
pub(crate) fn machine_clock() -> Arc<dyn ClockPort> {
    Arc::new(SystemClock::start().unwrap())
}

/// The id of another instance.
pub(crate) fn new_instance() -> Uuid {
    UuidIds.next_id()
}

/// An open store whose clock a test sets, with a connection of another program beside it.
pub(crate) struct InSchema {
    schema: Option<SharedSchema>,
    pub(crate) settings: PostgresSettings,
    pub(crate) clock: TestClock,
    pub(crate) store: PostgresTimerStore,
    pub(crate) outsider: ConnectionProbe,
}

impl InSchema {
    /// An empty store; `None`, with a line that says so, if there is no server.
    pub(crate) async fn new(set: SchemaSet) -> Option<Self> {
        let used = {
            let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
            let of_set = used.iter().position(|(of, _)| *of == set);
            of_set.map(|position| used.swap_remove(position).1)
        };
        let is_used = used.is_some();
        let schema = match used {
            Some(schema) => schema,
            None => SharedSchema::create()?,
        };
        let named = format!("{}?application_name={}", schema.url(), schema.name());
        let url = PostgresUrl::new(&named).unwrap();
        let clock = TestClock::default();
        let mut settings = PostgresSettings::timers(url);
        settings.schema = Some(schema.name().to_owned());
        settings.set = set;
        settings.time = StoreClock::Set(clock.clone());
        let store = open(&settings).await;
        let machine = machine_clock();
        let plain = PostgresUrl::new(schema.url()).unwrap();
        let path = settings.schema.as_deref();
        let outsider = ConnectionProbe::connect(&plain, path, machine.as_ref());
        let outsider = Box::pin(outsider).await.unwrap();
        let client = outsider.client();
        let path = format!("SET search_path = {}", schema.name());
        client.batch_execute(&path).await.unwrap();
        if is_used {
            let empty: &[&str] = match set {
                SchemaSet::TimersOnly => &[EMPTY],
                SchemaSet::Shared => &[EMPTY, EMPTY_CALLS],
                SchemaSet::ExecutionOnly => &[EMPTY_EXECUTION],
            };
            for empty in empty {
                client.batch_execute(empty).await.unwrap();
            }
        }
        Some(Self {
            schema: Some(schema),
            settings,
            clock,
            store,
            outsider,
        })
    }

    /// Another instance on the same tables and by the same clock.
    pub(crate) async fn another(&self) -> PostgresTimerStore {
        let mut settings = self.settings.clone();
        settings.url = PostgresUrl::new(self.outsider.server()).unwrap();
        open(&settings).await
    }

    /// The process ends without a word, and another one opens the store.
    pub(crate) async fn crash_and_reopen(&mut self) {
        self.store = open(&self.settings).await;
    }

    /// Puts a scheduled call under a timer, as another program might.
    pub(crate) async fn put_call(&self, key: &TimerKey) {
        let put = format!(
            "INSERT INTO service_calls (tenant_id, service_call_id, name, status, submitted_at, due_at, \
                 request_spec, correlation_id, command_id, version) \
             VALUES ('{}', '{}', 'a call', 'Scheduled', now(), now(), '{{}}', '{nil}', '{nil}', 1) \
             ON CONFLICT DO NOTHING",
            key.tenant_id.as_str().replace('\'', "''"),
            key.service_call_id,
            nil = Uuid::nil(),
        );
        self.outsider.client().batch_execute(&put).await.unwrap();
    }

    /// Ends the connections of the first instance, and waits until it has noticed.
    pub(crate) async fn disconnect(&self) {
        let end = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name LIKE '{} %'",
            self.settings.schema.as_deref().unwrap_or_default()
        );
        self.outsider.client().batch_execute(&end).await.unwrap();
        self.store.disconnected().await;
    }

    /// What a crash of the server leaves of the claims.
    pub(crate) async fn lose_claims(&self) {
        let client = self.outsider.client();
        client.batch_execute("TRUNCATE timer_claims").await.unwrap();
    }
}

impl Drop for InSchema {
    fn drop(&mut self) {
        if let Some(schema) = self.schema.take() {
            let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
            used.push((self.settings.set, schema));
        }
    }
}

/// Opens a store as an instance of its own.
pub(crate) async fn open(settings: &PostgresSettings) -> PostgresTimerStore {
    let opened = PostgresTimerStore::open(settings, machine_clock(), new_instance());
    opened.await.unwrap()
}
