//! Before an engine is started, and starting it from anywhere.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual::{NotReady, Timer};

use crate::fixture::{Heard, SECOND, clock, key};

#[tokio::test]
async fn an_engine_is_ready_from_its_start_to_its_end() {
    let (clock, heard) = (clock(), Heard::default());
    let punctual = heard.builder().in_memory(clock).build().await.unwrap();
    let not_started = punctual.readiness().unwrap_err();
    assert_eq!(not_started, NotReady::NotStarted);
    assert!(not_started.to_string().contains("call `start`"));
    let running = punctual.start().await.unwrap();
    assert_eq!(punctual.readiness(), Ok(()));
    running.shutdown().await.unwrap();
    let stopped = punctual.readiness().unwrap_err();
    assert!(matches!(stopped, NotReady::Stopped(_)), "{stopped}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn warnings(&self) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.matches("holds timers and was not started").count()
    }
}

/// What is logged by this thread from now on.
fn log() -> (Log, tracing::subscriber::DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || writer.clone())
        .finish();
    // Whether a line is enabled is remembered for the whole process.
    let guard = tracing::subscriber::set_default(subscriber);
    tracing::callsite::rebuild_interest_cache();
    (log, guard)
}

#[tokio::test]
async fn an_engine_that_holds_timers_and_was_not_started_warns_once() {
    let (log, _guard) = log();
    let (clock, heard) = (clock(), Heard::default());
    let built = heard.builder().in_memory(clock.clone()).build().await;
    let punctual = built.unwrap();
    clock.advance(Duration::from_mins(1)).await;
    assert_eq!(log.warnings(), 0, "it holds none");
    punctual
        .ensure(Timer::after(key("a"), SECOND))
        .await
        .unwrap();
    clock.advance(Duration::from_millis(4_999)).await;
    assert_eq!(log.warnings(), 0);
    clock.advance(Duration::from_millis(1)).await;
    assert_eq!(log.warnings(), 1);
    punctual
        .ensure(Timer::after(key("b"), SECOND))
        .await
        .unwrap();
    clock.advance(Duration::from_hours(1)).await;
    assert_eq!(log.warnings(), 1);
    let running = punctual.start().await.unwrap();
    clock.advance(Duration::from_hours(1)).await;
    assert_eq!(heard.count(), 2);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_engine_that_finds_timers_in_its_file_warns_and_one_that_is_started_does_not() {
    let (log, _guard) = log();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("timers.db");
    let (clock, heard) = (clock(), Heard::default());
    let build = || {
        heard
            .builder()
            .sqlite(&file)
            .fake_clock(clock.clone())
            .build()
    };
    let first = build().await.unwrap();
    first
        .ensure(Timer::after(key("a"), Duration::from_hours(9)))
        .await
        .unwrap();
    let running = first.start().await.unwrap();
    clock.advance(Duration::from_mins(1)).await;
    running.shutdown().await.unwrap();
    assert_eq!(log.warnings(), 0, "it was started");
    let second = build().await.unwrap();
    clock.advance(Duration::from_mins(1)).await;
    assert_eq!(log.warnings(), 1);
    second.close().await;
    drop(build().await.unwrap());
    clock.advance(Duration::from_mins(1)).await;
    assert_eq!(log.warnings(), 1, "one that is gone has nothing to say");
}

/// On the machine's clock the check is a task, and it does not outlive the engine.
#[tokio::test]
async fn an_engine_that_is_dropped_leaves_no_task_behind() {
    let folder = tempfile::tempdir().unwrap();
    let heard = Heard::default();
    let file = folder.path().join("timers.db");
    let punctual = heard.builder().sqlite(&file).build().await.unwrap();
    let tasks = || {
        let runtime = tokio::runtime::Handle::current();
        runtime.metrics().num_alive_tasks()
    };
    assert!(tasks() > 0);
    drop(punctual);
    while tasks() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_can_be_started_inside_a_spawned_task() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("timers.db");
    let heard = Heard::default();
    let builder = heard.builder().sqlite(file);
    let task = tokio::spawn(async move {
        let punctual = builder.build().await?;
        let running = punctual.start().await?;
        running.shutdown().await
    });
    assert_eq!(task.await.unwrap().unwrap().unfinished, 0);
}

/// Every future that the library gives can be awaited in a spawned task. Never called: to compile is
/// the test.
#[expect(dead_code, reason = "it is compiled and never run")]
mod every_public_future_is_send {
    use punctual::service_calls::{CallPageQuery, Submission};
    use punctual::testing::FakeClock;
    use punctual::{Builder, Punctual, Running, ServiceCalls, Timer, TimerKey, TimerPageQuery};

    const fn send<F: Future + Send>(_: &F) {}

    fn of_the_engine(builder: Builder, punctual: &Punctual, key: &TimerKey, query: TimerPageQuery) {
        let timer = || Timer::after(key.clone(), std::time::Duration::ZERO);
        send(&builder.build());
        send(&punctual.start());
        send(&punctual.schedule(timer()));
        send(&punctual.schedule_all([timer()]));
        send(&punctual.ensure(timer()));
        send(&punctual.replace(timer()));
        send(&punctual.cancel(key));
        send(&punctual.find(key));
        send(&punctual.list(query));
        send(&punctual.trace("".parse().unwrap(), 1));
        send(&punctual.backlog(1));
        send(&punctual.dead_letters(None, 1));
        send(&punctual.forget_dead_letter(1));
        send(&punctual.backup_to("copy.db"));
        send(&punctual.close());
    }

    fn of_what_runs(running: Running, clock: &FakeClock) {
        send(&running.stopped());
        send(&running.shutdown());
        send(&clock.advance(std::time::Duration::ZERO));
        send(&clock.advance_to(punctual::Timestamp::MIN));
    }

    fn of_calls(calls: &ServiceCalls, key: TimerKey, query: CallPageQuery, submission: Submission) {
        send(&calls.submit.submit(submission, None));
        send(&calls.submit.delete(key.clone(), None));
        send(&calls.read.find(key));
        send(&calls.read.page(query));
        send(&calls.read.trace("".parse().unwrap(), None, 1));
    }
}
