//! A broker beside the binary: the shared one under a prefix of the test's own, or a private one.

use std::process::Command;
use std::time::Duration;

use punctual_adapters_nats::async_nats::jetstream::consumer::pull;
use punctual_adapters_nats::async_nats::jetstream::stream::{Config, RetentionPolicy, State};
use punctual_adapters_nats::async_nats::{self, jetstream};
use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use punctual_test_servers::{shared_nats_url, unique_prefix};
use tokio::runtime::Runtime;

use crate::running::{Home, PATIENCE};

/// What a test knows of its broker, and a connection to it.
pub(crate) struct Broker {
    pub(crate) url: String,
    pub(crate) prefix: String,
    runtime: Runtime,
    jetstream: jetstream::Context,
}

impl Broker {
    /// The one that all tests share, with names of this test's own; `None` if there is none.
    pub(crate) fn shared() -> Option<Self> {
        shared_nats_url().map(|url| Self::at(&url))
    }

    /// One that asks nobody who they are.
    pub(crate) fn at(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let connecting = async { jetstream::new(async_nats::connect(url).await.unwrap()) };
        let jetstream = runtime.block_on(connecting);
        Self {
            url: url.to_owned(),
            prefix: unique_prefix(),
            runtime,
            jetstream,
        }
    }

    /// The binary with this broker.
    pub(crate) fn command(&self, home: &Home, line: &str) -> Command {
        let mut command = home.command(line);
        self.set(&mut command);
        command
    }

    pub(crate) fn set(&self, command: &mut Command) {
        command
            .env("TIMER_BROKER_URL", &self.url)
            .env("TIMER_BROKER_PREFIX", &self.prefix);
    }

    pub(crate) fn stream_name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Makes the streams, as somebody who serves does.
    pub(crate) fn make_streams(&self) {
        for (name, topic, retention) in [
            ("COMMANDS", "commands", RetentionPolicy::WorkQueue),
            ("EVENTS", "events", RetentionPolicy::Limits),
        ] {
            let prefix = &self.prefix;
            self.make_stream(Config {
                name: self.stream_name(name),
                subjects: vec![
                    format!("{prefix}.*.{topic}"),
                    format!("{prefix}.*.{topic}.>"),
                ],
                retention,
                ..Config::default()
            });
        }
    }

    pub(crate) fn make_stream(&self, config: Config) {
        let made = self.jetstream.create_stream(config);
        self.runtime.block_on(made).unwrap();
    }

    /// Makes a consumer of commands that gives up on them.
    pub(crate) fn make_bad_consumer(&self, durable: &str) {
        let config = pull::Config {
            durable_name: Some(durable.to_owned()),
            filter_subject: format!("{}.timer.commands.>", self.prefix),
            max_deliver: 5,
            ..pull::Config::default()
        };
        let stream = self.stream_name("COMMANDS");
        let made = self.jetstream.create_consumer_on_stream(config, stream);
        self.runtime.block_on(made).unwrap();
    }

    pub(crate) fn remove_stream(&self, name: &str) {
        let removed = self.jetstream.delete_stream(name);
        self.runtime.block_on(removed).unwrap();
    }

    /// Stores a message.
    pub(crate) fn publish(&self, subject: &str, payload: &[u8]) {
        let subject = format!("{}.{subject}", self.prefix);
        self.runtime.block_on(async {
            let payload = payload.to_vec().into();
            let sent = self.jetstream.publish(subject, payload).await.unwrap();
            sent.await.unwrap();
        });
    }

    /// The names of the streams that are there.
    pub(crate) fn streams(&self) -> Vec<String> {
        let names = ["COMMANDS", "EVENTS"].map(|name| self.stream_name(name));
        let is_there = |name: &String| {
            self.runtime
                .block_on(self.jetstream.get_stream(name))
                .is_ok()
        };
        names.into_iter().filter(is_there).collect()
    }

    /// Waits for the message with a sequence number, and returns it.
    pub(crate) fn wait_for(&self, stream: &str, sequence: u64) -> (String, String, Vec<u8>) {
        self.until(stream, &format!("message {sequence}"), |state| {
            state.last_sequence >= sequence
        });
        self.message(stream, sequence)
    }

    /// Waits until every message of a work queue was handled.
    pub(crate) fn wait_until_empty(&self, stream: &str) {
        self.until(stream, "end of its messages", |state| state.messages == 0);
    }

    /// Waits until a consumer has nothing left to handle.
    pub(crate) fn wait_until_settled(&self, stream: &str, durable: &str) {
        let name = self.stream_name(stream);
        self.runtime.block_on(async {
            let clock = SystemClock::start().unwrap();
            let begun = clock.monotonic();
            let stream = self.jetstream.get_stream(&name).await.unwrap();
            loop {
                let found = stream.get_consumer::<pull::Config>(durable).await;
                let is_settled = found.is_ok_and(|found| {
                    let info = found.cached_info();
                    info.num_pending == 0 && info.num_ack_pending == 0
                });
                if is_settled {
                    return;
                }
                let waited = clock.monotonic().saturating_sub(begun);
                assert!(waited < PATIENCE, "{durable} has messages left");
                clock.sleep_for(Duration::from_millis(20)).await;
            }
        });
    }

    /// The number of the last message.
    pub(crate) fn last_sequence(&self, stream: &str) -> u64 {
        let name = self.stream_name(stream);
        let found = self.runtime.block_on(self.jetstream.get_stream(name));
        found.unwrap().cached_info().state.last_sequence
    }

    fn until(&self, stream: &str, what: &str, condition: impl Fn(&State) -> bool) {
        let name = self.stream_name(stream);
        self.runtime.block_on(async {
            let clock = SystemClock::start().unwrap();
            let begun = clock.monotonic();
            loop {
                let found = self.jetstream.get_stream(&name).await;
                if found.is_ok_and(|found| condition(&found.cached_info().state)) {
                    return;
                }
                let waited = clock.monotonic().saturating_sub(begun);
                assert!(waited < PATIENCE, "no {what} in {name}");
                clock.sleep_for(Duration::from_millis(20)).await;
            }
        });
    }

    /// A message of a stream: its subject, its id for deduplication and its payload.
    pub(crate) fn message(&self, stream: &str, sequence: u64) -> (String, String, Vec<u8>) {
        self.runtime.block_on(async {
            let stream = self.jetstream.get_stream(self.stream_name(stream)).await;
            let message = stream.unwrap().get_raw_message(sequence).await.unwrap();
            let id = message.headers.get("Nats-Msg-Id").unwrap().to_string();
            (message.subject.to_string(), id, message.payload.to_vec())
        })
    }
}
