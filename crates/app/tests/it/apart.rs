//! Modules of service calls in engines of their own, each with a file, and one bus between them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use punctual::service_calls::{
    CallStatus, DeleteCallOutcome, HttpAttempt, HttpClientPort, HttpFailure, HttpResponse,
    ServiceCall, Submission, SubmitOutcome, UnknownFields,
};
use punctual::testing::{ClockPort, FakeClock};
use punctual::{
    Builder, CallModules, CallOptions, ErrorKind, Punctual, Running, ServiceCalls, SqliteSettings,
    TenantId, TimerKey, Timestamp,
};
use punctual_adapters_memory::MemoryCallStore;
use punctual_adapters_system::{Handlers, InProcessBus};
use punctual_ports::{ExecutionLogPort, OutboxPort};
use tempfile::TempDir;

use crate::fixture::clock;

/// A target that writes down which paths it was asked for.
#[derive(Clone, Default)]
struct Target(Arc<Mutex<Vec<String>>>);

impl Target {
    fn seen(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl HttpClientPort for Target {
    async fn attempt(&self, attempt: HttpAttempt) -> Result<HttpResponse, HttpFailure> {
        let path = attempt.request.url.path_and_query().into_owned();
        self.0.lock().unwrap().push(path);
        Ok(HttpResponse {
            truncated: false,
            status: 200,
            headers: Vec::new(),
            body: Vec::new(),
        })
    }
}

const ORCHESTRATION: CallModules = CallModules {
    orchestration: true,
    ..CallModules::NONE
};
const TIMER: CallModules = CallModules {
    timer: true,
    ..CallModules::NONE
};
const EXECUTION: CallModules = CallModules {
    execution: true,
    ..CallModules::NONE
};

struct World {
    clock: FakeClock,
    bus: InProcessBus,
    target: Target,
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        Self {
            clock: clock(),
            bus: InProcessBus::new(Handlers::Inline),
            target: Target::default(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn options(&self, modules: CallModules) -> CallOptions {
        CallOptions {
            modules,
            ..CallOptions::new(self.target.clone())
        }
    }

    fn builder(&self, settings: SqliteSettings) -> Builder {
        Punctual::builder()
            .sqlite_with(settings)
            .fake_clock(self.clock.clone())
            .bus(self.bus.clone())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    async fn start(&self, builder: Builder) -> (Punctual, Running) {
        let punctual = builder.build().await.unwrap();
        let running = punctual.start().await.unwrap();
        (punctual, running)
    }

    async fn orchestration(&self) -> (Punctual, Running) {
        let file = SqliteSettings::calls_alone(self.path("calls.db"));
        let builder = self.builder(file);
        self.start(builder.service_calls(self.options(ORCHESTRATION)))
            .await
    }

    async fn timer(&self) -> (Punctual, Running) {
        let builder = self.builder(SqliteSettings::timers(self.path("timer.db")));
        self.start(builder.take_commands().hear_deletions()).await
    }

    async fn execution(&self) -> (Punctual, Running) {
        let file = SqliteSettings::execution(self.path("execution.db"));
        let builder = self.builder(file);
        self.start(builder.service_calls(self.options(EXECUTION)))
            .await
    }

    fn in_(&self, from_now: Duration) -> Timestamp {
        self.clock.now().saturating_add(from_now)
    }
}

async fn submit(calls: &ServiceCalls, path: &str, due_at: Timestamp) -> TimerKey {
    let json = serde_json::json!({
        "name": "call", "dueAt": due_at,
        "requestSpec": {"method": "GET", "url": format!("http://target{path}")},
    });
    let submission = Submission::read(TenantId::default(), &json, UnknownFields::Refused);
    match calls
        .submit
        .submit(submission.unwrap(), None)
        .await
        .unwrap()
    {
        SubmitOutcome::Accepted(receipt) => {
            TimerKey::new(TenantId::default(), receipt.service_call_id)
        }
        other => panic!("{other:?}"),
    }
}

async fn found(calls: &ServiceCalls, key: &TimerKey) -> ServiceCall {
    calls.read.find(key.clone()).await.unwrap().unwrap().call
}

#[tokio::test]
async fn a_call_lives_in_three_engines_and_each_keeps_its_own() {
    let world = World::new();
    let (orchestration, o_runs) = world.orchestration().await;
    let (timer, t_runs) = world.timer().await;
    let (execution, e_runs) = world.execution().await;
    assert!(!orchestration.fires() && timer.fires() && !execution.fires());
    let calls = orchestration.calls().unwrap();
    let due_at = world.in_(Duration::from_hours(2));
    let good = submit(&calls, "/good", due_at).await;
    let gone = submit(&calls, "/gone", due_at).await;
    let past = submit(&calls, "/past", world.in_(Duration::ZERO)).await;
    world.clock.advance(Duration::from_hours(1)).await;
    assert_eq!(found(&calls, &past).await.status(), CallStatus::Succeeded);
    for key in [&good, &gone] {
        assert_eq!(found(&calls, key).await.status(), CallStatus::Scheduled);
        let scheduled = timer.find(key).await.unwrap().unwrap();
        assert_eq!(scheduled.timer().registration.due_at, due_at);
        // When it will run, the call itself says.
        let view = calls.read.find(key.clone()).await.unwrap().unwrap();
        assert_eq!(view.call.details().due_at, due_at);
        assert_eq!((view.timer, view.attempts), (None, Vec::new()));
    }
    let deleted = calls.submit.delete(gone.clone(), None).await.unwrap();
    assert_eq!(deleted, DeleteCallOutcome::Deleted);
    world.clock.advance(Duration::from_mins(1)).await;
    assert!(timer.find(&gone).await.unwrap().is_none());
    world.clock.advance(Duration::from_hours(2)).await;
    assert_eq!(found(&calls, &good).await.status(), CallStatus::Succeeded);
    assert_eq!(world.target.seen(), ["/past", "/good"]);
    let made = execution.calls().unwrap().read;
    assert_eq!(made.waiting_attempts(10).await.unwrap(), 0);
    // What is not theirs they refuse.
    let submitted = execution.calls().unwrap().submit;
    let deleted = submitted.delete(good.clone(), None).await.unwrap();
    assert_eq!(deleted, DeleteCallOutcome::NotFound);
    for running in [o_runs, t_runs, e_runs] {
        running.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn modules_that_are_away_get_their_messages_when_they_are_back() {
    let world = World::new();
    let (orchestration, o_runs) = world.orchestration().await;
    let calls = orchestration.calls().unwrap();
    let due_at = world.in_(Duration::from_hours(1));
    let first = submit(&calls, "/first", due_at).await;
    let gone = submit(&calls, "/gone", due_at).await;
    world.clock.advance(Duration::from_mins(1)).await;
    let deleted = calls.submit.delete(gone.clone(), None).await.unwrap();
    assert_eq!(deleted, DeleteCallOutcome::Deleted);
    world.clock.advance(Duration::from_mins(1)).await;
    let (timer, t_runs) = world.timer().await;
    world.clock.advance(Duration::from_mins(90)).await;
    // Its deletion may come after it has fired, which starts nothing.
    let fired = timer.find(&gone).await.unwrap();
    assert!(fired.is_none_or(|it| it.reached_at().is_some()));
    assert_eq!(found(&calls, &first).await.status(), CallStatus::Running);
    let (_execution, e_runs) = world.execution().await;
    world.clock.advance(Duration::from_hours(2)).await;
    assert_eq!(found(&calls, &first).await.status(), CallStatus::Succeeded);
    assert_eq!(world.target.seen(), ["/first"]);
    e_runs.shutdown().await.unwrap();
    // Its restart makes nothing again.
    let (_execution, e_runs) = world.execution().await;
    world.clock.advance(Duration::from_hours(2)).await;
    assert_eq!(world.target.seen(), ["/first"]);
    for running in [o_runs, t_runs, e_runs] {
        running.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn timers_and_attempts_may_share_an_engine() {
    let world = World::new();
    let (orchestration, o_runs) = world.orchestration().await;
    let both = CallModules {
        timer: true,
        ..EXECUTION
    };
    let builder = world
        .builder(SqliteSettings::timers(world.path("timer.db")))
        .calls_in(SqliteSettings::execution(world.path("execution.db")))
        .service_calls(world.options(both));
    let (others, others_run) = world.start(builder).await;
    let calls = orchestration.calls().unwrap();
    let key = submit(&calls, "/", world.in_(Duration::from_mins(1))).await;
    world.clock.advance(Duration::from_mins(2)).await;
    assert_eq!(found(&calls, &key).await.status(), CallStatus::Succeeded);
    assert!(others.find(&key).await.unwrap().is_some());
    o_runs.shutdown().await.unwrap();
    others_run.shutdown().await.unwrap();
}

#[tokio::test]
async fn modules_apart_without_a_bus_between_them_are_refused() {
    let world = World::new();
    for modules in [ORCHESTRATION, TIMER, EXECUTION] {
        let builder = Punctual::builder()
            .sqlite_with(SqliteSettings::calls_alone(world.path("calls.db")))
            .fake_clock(world.clock.clone())
            .service_calls(world.options(modules));
        let error = builder.build().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("need the bus"), "{error}");
    }
}

#[tokio::test]
async fn an_engine_without_modules_submits_what_others_do() {
    let world = World::new();
    let store = MemoryCallStore::new();
    let engine = |store: MemoryCallStore, modules| {
        Punctual::builder()
            .store(store)
            .fake_clock(world.clock.clone())
            .service_calls(world.options(modules))
    };
    let api = engine(store.another_instance(), CallModules::NONE);
    let (api, api_runs) = world.start(api).await;
    let calls = api.calls().unwrap();
    let early = submit(&calls, "/early", world.in_(Duration::from_mins(1))).await;
    world.clock.advance(Duration::from_mins(2)).await;
    assert_eq!(found(&calls, &early).await.status(), CallStatus::Scheduled);
    let all = engine(store.clone(), CallModules::ALL);
    let (_all, all_runs) = world.start(all).await;
    let later = submit(&calls, "/later", world.in_(Duration::from_mins(1))).await;
    world.clock.advance(Duration::from_mins(5)).await;
    for key in [early, later] {
        assert_eq!(found(&calls, &key).await.status(), CallStatus::Succeeded);
        // Nobody else is on the bus of that engine: what only tells of the call waits for nobody.
        let messages = store.about(key, 100).await.unwrap();
        assert!(messages.iter().all(|it| it.published_at.is_some()));
    }
    assert_eq!(OutboxPort::count(&store, 10).await.unwrap(), 0);
    all_runs.shutdown().await.unwrap();
    api_runs.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_attempt_is_made_once_although_what_was_made_is_purged() {
    let world = World::new();
    let attempts = MemoryCallStore::executions_alone();
    let (orchestration, o_runs) = world.orchestration().await;
    let (_timer, t_runs) = world.timer().await;
    let builder = Punctual::builder()
        .store(attempts.clone())
        .fake_clock(world.clock.clone())
        .bus(world.bus.clone())
        .service_calls(world.options(EXECUTION));
    let (_execution, e_runs) = world.start(builder).await;
    let calls = orchestration.calls().unwrap();
    let key = submit(&calls, "/", world.in_(Duration::ZERO)).await;
    world.clock.advance(Duration::from_mins(1)).await;
    assert_eq!(found(&calls, &key).await.status(), CallStatus::Succeeded);
    assert_eq!(attempts.entries(key.clone(), 10).await.unwrap().len(), 1);
    world
        .clock
        .advance(Duration::from_hours(30 * 24 + 12))
        .await;
    assert_eq!(attempts.entries(key.clone(), 10).await.unwrap().len(), 1);
    world.clock.advance(Duration::from_hours(24)).await;
    assert_eq!(attempts.entries(key.clone(), 10).await.unwrap(), []);
    assert_eq!(world.target.seen(), ["/"]);
    for running in [o_runs, t_runs, e_runs] {
        running.shutdown().await.unwrap();
    }
}
