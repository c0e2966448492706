//! Names of the metrics about the broker.

/// Whether messages can be published: 1 or 0. Alert if it stays 0.
pub const READY: &str = "broker_ready";
/// Number of connections made.
pub const CONNECTIONS: &str = "broker_connections_total";
/// Messages that the broker acknowledged.
pub const ACKNOWLEDGED: &str = "broker_publishes_acknowledged_total";
/// Acknowledged messages that were duplicates.
pub const DUPLICATES: &str = "broker_publishes_duplicate_total";
/// Messages without an acknowledgement, which are published again.
pub const UNKNOWN: &str = "broker_publishes_unknown_total";
/// Messages delivered by the broker.
pub const RECEIVED: &str = "broker_messages_received_total";
/// Delivered messages that were redeliveries.
pub const REDELIVERED: &str = "broker_messages_redelivered_total";
/// Messages that could not be handled and were dead-lettered. Alert on any.
pub const DEAD_LETTERS: &str = "broker_dead_letters_total";
/// Pauses of fetching because the store of a handler could not be used.
pub const PAUSED: &str = "broker_paused_total";

/// Describes the metrics to the recorder. Call it once, after the recorder is installed.
pub fn describe() {
    use metrics::{describe_counter, describe_gauge};
    describe_gauge!(READY, "whether messages can be published");
    describe_counter!(CONNECTIONS, "connections made to the broker");
    describe_counter!(ACKNOWLEDGED, "messages the broker acknowledged");
    describe_counter!(DUPLICATES, "acknowledged messages the broker had already");
    describe_counter!(UNKNOWN, "messages without an acknowledgement");
    describe_counter!(RECEIVED, "messages delivered by the broker");
    describe_counter!(REDELIVERED, "messages delivered more than once");
    describe_counter!(DEAD_LETTERS, "messages put down as dead letters");
    describe_counter!(PAUSED, "times a handler's store could not be used");
}
