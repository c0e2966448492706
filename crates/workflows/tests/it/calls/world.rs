//! A service of calls in memory: stores, bus, clock, all workers, and a target that notes requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use punctual_adapters_memory::faults::{Faults, Faulty};
use punctual_adapters_memory::{
    Driving, FakeClock, MemoryCallStore, MemoryTimerStore, SequentialIds,
};
use punctual_adapters_system::{Handlers, InProcessBus};
use punctual_domain::messages::Listeners;
use punctual_domain::service_call::{
    CallName, CallStatus, ErrorKind, Headers, Method, Outcome, RequestBody, RequestSpec,
    ServiceCall, Submission, Tags,
};
use punctual_domain::{MessageEnvelope, TenantId, TimerKey, Timestamp, Topic};
use punctual_ports::{
    Answer, ClockPort, ConsumerName, EventBusPort, ExecutionEntry, ExecutionLogPort, IdPort,
    MessageHandler, Receipt, ServiceCallPersistencePort, Stepped, SubmitOutcome, Subscribe,
    Subscription, TimerPersistencePort, TimerQueuePort,
};
use punctual_workflows::calls::{
    AcceptExecutions, CallPorts, CallRetention, CallSettings, CallSweeper, DeleteCallTimers,
    DispatchOutbox, ExecuteCalls, ReactToEvents, ReadCalls, SubmitCalls,
};
use punctual_workflows::{
    Driven, InFlightEpoch, LastPoll, Notifier, ScheduleTimers, TimerPorts, TimerWorker, WakeSignal,
    WorkerSettings,
};

use super::http::FakeHttp;
use super::wire::Wire;
use crate::world::{START, key_of};

/// What outlives a process.
#[derive(Clone)]
pub(crate) struct Outside {
    pub clock: FakeClock,
    pub ids: Arc<SequentialIds>,
    pub timers: MemoryTimerStore,
    pub store: MemoryCallStore,
    pub bus: InProcessBus,
    pub wire: Arc<Wire>,
    pub http: Arc<FakeHttp>,
    /// Who receives what is published.
    pub listeners: Listeners,
}

/// One life of the process.
pub(crate) struct Process {
    pub faults: Faults,
    pub ports: CallPorts,
    pub submit: SubmitCalls,
    pub read: ReadCalls,
    drivings: Vec<Driving>,
    subscriptions: Vec<(Topic, Box<dyn Subscription>)>,
}

pub(crate) struct CallWorld {
    pub outside: Outside,
    pub process: Process,
    settings: CallSettings,
}

/// A call of a tenant to a host, under an id that its name gives.
pub(crate) fn call_to(tenant: &str, host: &str, name: &str, due_at: Timestamp) -> Submission {
    let headers = vec![("Authorization".to_owned(), "canary".to_owned())];
    Submission {
        tenant_id: TenantId::new(tenant).unwrap(),
        service_call_id: Some(key_of(tenant, name).service_call_id),
        name: CallName::new(name).unwrap(),
        due_at,
        request: RequestSpec {
            method: Method::Post,
            url: format!("https://{host}/{name}").parse().unwrap(),
            headers: Headers::new(headers).unwrap(),
            body: Some(RequestBody::new("{}").unwrap()),
        },
        tags: Tags::default(),
        idempotency_key: None,
    }
}

pub(crate) fn call(name: &str, due_at: Timestamp) -> Submission {
    call_to("tenant-a", "target.example", name, due_at)
}

impl Outside {
    pub(crate) fn new() -> Self {
        let clock = FakeClock::new(START.parse().unwrap());
        let timers = MemoryTimerStore::new();
        let bus = InProcessBus::new(Handlers::Inline);
        Self {
            ids: Arc::new(SequentialIds::new()),
            store: MemoryCallStore::beside(&timers),
            wire: Wire::new(&bus, &clock),
            http: FakeHttp::new(&clock),
            listeners: Listeners::Anyone,
            timers,
            bus,
            clock,
        }
    }

    /// The same for another instance, which has its own handle of the store.
    pub(crate) fn another_instance(&self) -> Self {
        let store = self.store.another_instance();
        Self {
            timers: store.timers(),
            store,
            ..self.clone()
        }
    }

    fn ports(&self, faults: &Faults) -> (CallPorts, TimerPorts) {
        let clock: Arc<dyn ClockPort> = Arc::new(self.clock.clone());
        let ids: Arc<dyn IdPort> = self.ids.clone();
        let wire: Arc<Wire> = Arc::clone(&self.wire);
        let bus: Arc<dyn EventBusPort> = Arc::new(Faulty::new(wire, faults));
        let timers: Arc<MemoryTimerStore> = Arc::new(self.timers.clone());
        let timers = Arc::new(Faulty::new(timers, faults));
        let store: Arc<MemoryCallStore> = Arc::new(self.store.clone());
        let store = Arc::new(Faulty::new(store, faults));
        let timer_ports = TimerPorts {
            clock: Arc::clone(&clock),
            ids: Arc::clone(&ids),
            persistence: Arc::clone(&timers) as Arc<dyn TimerPersistencePort>,
            queue: Arc::clone(&timers) as Arc<dyn TimerQueuePort>,
            bus: Arc::clone(&bus),
            wake: WakeSignal::new(),
            in_flight_epoch: InFlightEpoch::default(),
            last_poll: LastPoll::default(),
        };
        let ports = CallPorts {
            clock,
            ids,
            bus,
            calls: Arc::<Faulty<_>>::clone(&store),
            listeners: self.listeners,
            outbox: Arc::<Faulty<_>>::clone(&store),
            executions: store,
            timers,
            to_publish: Notifier::default(),
            to_execute: Notifier::default(),
        };
        (ports, timer_ports)
    }
}

impl Process {
    pub(crate) async fn start(outside: &Outside, settings: CallSettings, faults: Faults) -> Self {
        let (ports, timer_ports) = outside.ports(&faults);
        let react = Arc::new(ReactToEvents::new(&ports, settings));
        let submit = SubmitCalls::new(&ports, settings);
        let mut process = Self {
            read: ReadCalls::new(&ports),
            submit: submit.clone(),
            drivings: Vec::new(),
            subscriptions: Vec::new(),
            faults,
            ports,
        };
        let timers = Arc::new(ScheduleTimers::new(&timer_ports));
        let accept = Arc::new(AcceptExecutions::new(&process.ports));
        let forget = Arc::new(DeleteCallTimers::new(&process.ports));
        let handlers: [(Topic, &'static str, Arc<dyn MessageHandler>); 6] = [
            (Topic::OrchestrationCommands, "calls", Arc::new(submit)),
            (Topic::TimerCommands, "timer", timers),
            (Topic::ExecutionCommands, "execution", accept),
            (Topic::TimerEvents, "calls", react.clone()),
            (Topic::ExecutionEvents, "calls", react),
            (Topic::OrchestrationEvents, "timer", forget),
        ];
        for (topic, name, handler) in handlers {
            process.subscribe(outside, topic, name, handler).await;
        }
        let timer_worker = TimerWorker::new(&timer_ports, WorkerSettings::default()).unwrap();
        let executor = ExecuteCalls::new(&process.ports, outside.http.clone(), settings).unwrap();
        let workers: [Arc<dyn Stepped>; 5] = [
            Driven::new(timer_worker),
            Driven::new(DispatchOutbox::worker(&process.ports, settings)),
            Driven::new(CallSweeper::worker(&process.ports, settings)),
            Driven::new(CallRetention::worker(&process.ports, settings)),
            Driven::new(executor),
        ];
        let drive = |worker| outside.clock.drive(worker);
        process.drivings = workers.into_iter().map(drive).collect();
        process
    }

    pub(crate) async fn subscribe(
        &mut self,
        outside: &Outside,
        topic: Topic,
        name: &'static str,
        handler: Arc<dyn MessageHandler>,
    ) {
        let faults = self.faults.clone();
        let request = Subscribe {
            topic,
            consumer: ConsumerName::new(name),
            max_batch: 1_000,
            handler: Arc::new(Mortal { handler, faults }),
        };
        let subscription = outside.bus.subscribe(request).await.unwrap();
        self.subscriptions.push((topic, subscription));
    }

    pub(crate) fn unsubscribe(&mut self, topic: Topic) {
        self.subscriptions.retain(|(of, _)| *of != topic);
    }

    /// Nobody executes here any more, so that a test can.
    pub(crate) fn without_executor(&mut self) {
        self.drivings.pop();
    }
}

/// A handler that ends with its process: whoever publishes to it is told, and does not wait for ever.
struct Mortal {
    handler: Arc<dyn MessageHandler>,
    faults: Faults,
}

#[async_trait]
impl MessageHandler for Mortal {
    async fn handle(&self, batch: Vec<MessageEnvelope>) -> Vec<Answer> {
        let reason = "the process has ended".to_owned();
        let ended = vec![Answer::Pause { reason }; batch.len()];
        tokio::select! {
            biased;
            answers = self.handler.handle(batch) => answers,
            () = self.faults.crashed() => ended,
        }
    }
}

impl CallWorld {
    pub(crate) async fn new() -> Self {
        Self::with(CallSettings::default()).await
    }

    /// For tests whose failure a poll would hide.
    pub(crate) async fn with_rare_polls() -> Self {
        Self::with(CallSettings {
            polling_interval: Duration::from_hours(6),
            ..CallSettings::default()
        })
        .await
    }

    pub(crate) async fn with(settings: CallSettings) -> Self {
        Self::on(Outside::new(), settings).await
    }

    /// Nobody but the modules is on the bus.
    pub(crate) async fn of_modules_alone() -> Self {
        let outside = Outside {
            listeners: Listeners::Modules,
            ..Outside::new()
        };
        Self::on(outside, CallSettings::default()).await
    }

    pub(crate) async fn on(outside: Outside, settings: CallSettings) -> Self {
        let faults = Faults::new(Arc::new(outside.clock.clone()));
        let process = Process::start(&outside, settings, faults).await;
        Self {
            outside,
            process,
            settings,
        }
    }

    /// The process ends, as by SIGKILL, and begins again.
    pub(crate) async fn restart(&mut self) {
        self.process.drivings.clear();
        self.process.subscriptions.clear();
        self.outside.store.crash_and_reopen();
        let faults = Faults::new(Arc::new(self.outside.clock.clone()));
        self.process = Process::start(&self.outside, self.settings, faults).await;
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.outside.clock.now()
    }

    pub(crate) fn in_(&self, from_now: Duration) -> Timestamp {
        self.now().saturating_add(from_now)
    }

    pub(crate) async fn advance(&self, by: Duration) {
        self.outside.clock.advance(by).await;
    }

    pub(crate) async fn advance_to(&self, instant: Timestamp) {
        self.outside.clock.advance_to(instant).await;
    }

    /// Lets everybody do what can be done at this instant.
    pub(crate) async fn settle(&self) {
        self.advance(Duration::ZERO).await;
    }

    pub(crate) async fn try_submit(&self, submission: Submission) -> SubmitOutcome {
        self.process.submit.submit(submission, None).await.unwrap()
    }

    pub(crate) async fn submit(&self, submission: Submission) -> Receipt {
        match self.try_submit(submission).await {
            SubmitOutcome::Accepted(receipt) => receipt,
            other => panic!("a new submission is accepted, not {other:?}"),
        }
    }

    pub(crate) async fn find(&self, key: &TimerKey) -> Option<ServiceCall> {
        let found = ServiceCallPersistencePort::find(&self.outside.store, vec![key.clone()]).await;
        found.unwrap().remove(0).map(|stored| stored.call)
    }

    pub(crate) async fn status(&self, key: &TimerKey) -> Option<CallStatus> {
        self.find(key).await.map(|call| call.status())
    }

    /// As what a call has failed, and since when; `None` if it has not.
    pub(crate) async fn failure(&self, key: &TimerKey) -> Option<(ErrorKind, Timestamp)> {
        match self.find(key).await? {
            ServiceCall::Finished(call) => match call.outcome() {
                Outcome::Failed(error) => error.kind.known().map(|kind| (kind, call.finished_at())),
                Outcome::Succeeded(_) => None,
            },
            _ => None,
        }
    }

    pub(crate) async fn attempts(&self, key: &TimerKey) -> Vec<ExecutionEntry> {
        let entries = self.outside.store.entries(key.clone(), 10).await;
        entries.unwrap()
    }

    /// How many calls of a port's method there will be.
    pub(crate) fn count_calls(&self, operation: &'static str) -> Arc<AtomicU64> {
        let count = Arc::new(AtomicU64::new(0));
        let counting = Arc::clone(&count);
        self.process.faults.decide(move |call| {
            if call.operation == operation {
                counting.fetch_add(1, Ordering::SeqCst);
            }
            None
        });
        count
    }
}
