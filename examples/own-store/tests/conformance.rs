//! Store and bus, held to their contracts by the suites that those of Punctual pass.

use std::fs::{OpenOptions, read_to_string};
use std::io::Write;
use std::sync::Arc;

use own_store::{FileBus, LogStore};
use punctual::conformance::{EventBusFixture, TimerStoreFixture};
use punctual::ports::{
    Backend, EnvelopeId, EventBusPort, MessageEnvelope, MessageMetadata, ScheduleTimer,
    ServiceCallId, TenantId, TimerData, TimerStores, Timestamp, async_trait,
};
use tempfile::TempDir;

/// A log in a folder of its own.
struct StoreFixture {
    folder: TempDir,
    store: LogStore,
}

impl StoreFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = LogStore::open(folder.path().join("timers.log")).unwrap();
        Self { folder, store }
    }
}

#[async_trait]
impl TimerStoreFixture for StoreFixture {
    fn timer_stores(&self) -> TimerStores {
        self.store.timer_stores()
    }

    /// The process ends in the middle of a write that it has not answered.
    async fn crash_and_reopen(&mut self) {
        self.store.close().await;
        let path = self.folder.path().join("timers.log");
        let mut log = OpenOptions::new().append(true).open(&path).unwrap();
        log.write_all(br#"[{"Timer":{"entry":{"tenantId":"ten"#)
            .unwrap();
        self.store = LogStore::open(path).unwrap();
    }

    fn claims_survive_a_crash(&self) -> bool {
        false
    }
}

mod store {
    use super::StoreFixture;
    punctual::conformance::timer_store_suites!(StoreFixture::new());
}

#[test]
fn a_log_is_open_once_and_a_damaged_one_is_refused() {
    let fixture = StoreFixture::new();
    let path = fixture.folder.path().join("timers.log");
    assert!(LogStore::open(&path).is_err(), "it is open already");
    drop(fixture.store);
    std::fs::write(&path, "[]\n[{\"Timer\":0}]\n[]\n").unwrap();
    assert!(LogStore::open(&path).is_err(), "nothing is skipped");
}

/// A file in a folder of its own.
struct BusFixture {
    folder: TempDir,
    bus: Arc<FileBus>,
}

impl BusFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bus = FileBus::open(folder.path().join("events.jsonl")).unwrap();
        let bus = Arc::new(bus);
        Self { folder, bus }
    }

    fn read(&self) -> Vec<MessageEnvelope> {
        let lines = read_to_string(self.folder.path().join("events.jsonl")).unwrap();
        let read = |line: &str| MessageEnvelope::from_json(line.as_bytes());
        lines.lines().filter_map(|line| read(line).ok()).collect()
    }
}

#[async_trait]
impl EventBusFixture for BusFixture {
    fn bus(&self) -> Arc<dyn EventBusPort> {
        self.bus.clone()
    }

    fn delivers(&self) -> bool {
        false
    }

    fn keeps_messages_for_later(&self) -> bool {
        true
    }

    async fn until(&self, what: &str, _condition: &(dyn Fn() -> bool + Sync)) {
        panic!("{what}: nobody is waited for, since nothing is delivered");
    }
}

mod bus {
    use super::BusFixture;
    punctual::conformance::event_bus_suite!(BusFixture::new());
}

#[tokio::test]
async fn an_event_after_a_torn_one_is_a_line_of_its_own() {
    let fixture = BusFixture::new();
    let path = fixture.folder.path().join("events.jsonl");
    let timer = ScheduleTimer {
        tenant_id: TenantId::default(),
        service_call_id: ServiceCallId::MIN,
        due_at: Timestamp::MIN,
        data: Some(TimerData::from_json("[1,\n2]").unwrap()),
    };
    let envelope = MessageEnvelope {
        id: EnvelopeId::MIN,
        timestamp: Timestamp::MIN,
        metadata: MessageMetadata::default(),
        message: timer.into(),
    };
    std::fs::write(&path, &envelope.to_json().unwrap()[..20]).unwrap();
    let bus = FileBus::open(path).unwrap();
    let published = bus.publish(vec![envelope.clone(), envelope.clone()]).await;
    assert!(published.unwrap().iter().all(Result::is_ok));
    let ids: Vec<EnvelopeId> = fixture.read().iter().map(|it| it.id).collect();
    assert_eq!(ids, [envelope.id, envelope.id]);
}
