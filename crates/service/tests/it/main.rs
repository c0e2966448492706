//! The binary as its users meet it: every test starts the real `timer-service`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod alerts;
mod apart;
mod api_client;
mod asyncapi;
mod backup;
mod batch;
mod broker;
mod broker_calls;
mod broker_kill;
mod broker_outage;
mod broker_repeats;
mod broker_traffic;
mod call_ledger;
mod check;
mod check_broker;
mod commands;
mod completions;
mod dead_letters;
mod demo;
mod deployment;
mod full_disk;
mod hanging_targets;
mod help_examples;
mod hostile_clients;
mod kill;
mod kill_calls;
mod ledger;
mod moved_file;
mod other_timers;
mod postgres;
mod postgres_calls;
mod postgres_clock;
mod postgres_fleet;
mod postgres_kill;
mod postgres_kill_calls;
mod postgres_refusals;
mod previous_version;
mod python_client;
mod refusals;
mod running;
mod send;
mod sentences;
mod serve_broker;
mod serving;
mod serving_calls;
mod settings_file;
mod shapes;
mod stdout;
mod target;
mod writable;
