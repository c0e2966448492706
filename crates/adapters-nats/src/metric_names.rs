//! What is measured of the broker, by the names that operators see.

/// Whether messages can be published: 1 or 0. Alert if it stays 0.
pub const READY: &str = "broker_ready";
/// How often the connection was made.
pub const CONNECTIONS: &str = "broker_connections_total";
/// Messages that the broker has acknowledged.
pub const ACKNOWLEDGED: &str = "broker_publishes_acknowledged_total";
/// Of these, those that it had already.
pub const DUPLICATES: &str = "broker_publishes_duplicate_total";
/// Messages whose acknowledgement did not come: they are published again.
pub const UNKNOWN: &str = "broker_publishes_unknown_total";
/// Messages that came from the broker.
pub const RECEIVED: &str = "broker_messages_received_total";
/// Of these, those that it had delivered before.
pub const REDELIVERED: &str = "broker_messages_redelivered_total";
/// Messages that could not be handled and were put down as dead letters. Alert on any.
pub const DEAD_LETTERS: &str = "broker_dead_letters_total";
/// Times when no more was fetched because the handler's store could not be used.
pub const PAUSED: &str = "broker_paused_total";

/// Tells the recorder what each of them means. Call it once, after the recorder is installed.
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
