//! Names and descriptions of the metrics.
//!
//! No tenant and no id is ever a label: their number is unbounded.

/// Commands received, whatever their outcome.
pub const COMMANDS_RECEIVED: &str = "timer_commands_received_total";
/// Firings that were acknowledged, also of timers that were rescheduled meanwhile.
pub const SCHEDULES_PROCESSED: &str = "timer_schedules_processed_total";
/// Duration of a poll.
pub const POLLING_DURATION: &str = "timer_polling_duration_seconds";
/// How long after its due time a timer fired.
pub const LATENESS: &str = "timer_lateness_seconds";
/// Time of the last poll. Alert if that is over 30 s ago.
pub const LAST_POLL: &str = "timer_last_poll_timestamp_seconds";
/// Whether new timers and calls can be stored: 1, or 0 while writing fails. Alert on 0.
pub const STORE_WRITABLE: &str = "store_writable";
/// Scheduled timers, counted up to a million.
pub const PENDING: &str = "timer_pending";
/// Scheduled timers whose due time has passed.
pub const OVERDUE: &str = "timer_overdue";
/// Firings that need an operator. Alert if over 1 % of those processed.
pub const PERMANENT_ERRORS: &str = "timer_permanent_errors_total";
/// Firings that failed and are retried later.
pub const RETRIES: &str = "timer_retries_total";
/// Firings that failed after their timer was rescheduled, by its own handler for example: the new
/// schedule stands, and the failure is neither retried nor a dead letter.
pub const FAILURES_SUPERSEDED: &str = "timer_failures_superseded_total";
/// Claims released unused because the bus was unavailable.
pub const RELEASED: &str = "timer_claims_released_total";
/// Rows purged by retention.
pub const PURGED: &str = "timer_rows_purged_total";
/// Possible data losses of the broker that affect at least one firing.
pub const BROKER_LOST: &str = "broker_lost_total";
/// Firings republished after a data loss, under the same ids.
pub const REPUBLISHED: &str = "timer_firings_republished_total";

/// Calls accepted.
pub const CALLS_SUBMITTED: &str = "calls_submitted_total";
/// Calls deleted before their due time.
pub const CALLS_DELETED: &str = "calls_deleted_total";
/// Calls finished, by status.
pub const CALLS_FINISHED: &str = "calls_finished_total";
/// How long after its due time the attempt of a call started.
pub const CALL_LATENESS: &str = "call_lateness_seconds";
/// Calls rescued after a late or lost message, by action.
pub const CALLS_RESCUED: &str = "calls_rescued_total";
/// Rows of calls, messages and submissions purged by retention.
pub const CALL_ROWS_PURGED: &str = "call_rows_purged_total";
/// Duration of attempts, by outcome.
pub const EXECUTION_DURATION: &str = "execution_duration_seconds";
/// Attempts that wait for their turn, counted up to 100 000.
pub const EXECUTIONS_WAITING: &str = "executions_waiting";
/// Attempts in flight.
pub const EXECUTIONS_RUNNING: &str = "executions_running";
/// Commands for attempts that were refused: a second one of a call, or one of a deleted call.
pub const EXECUTIONS_REFUSED: &str = "executions_refused_total";
/// Messages that wait to be published, counted up to 100 000.
pub const OUTBOX_UNPUBLISHED: &str = "outbox_unpublished";
/// Messages published from the outbox.
pub const OUTBOX_PUBLISHED: &str = "outbox_published_total";
/// Times that a message was parked because it failed by itself.
pub const OUTBOX_PARKED: &str = "outbox_parked_total";

/// Size of a database file, by `database`: `timers` or `calls`.
pub const DATABASE_BYTES: &str = "database_size_bytes";
/// Size of its write-ahead log, which checkpoints copy into the database file.
pub const DATABASE_LOG_BYTES: &str = "database_log_size_bytes";
/// Times that the wall clock was set while the process ran, by `direction`: `forward` or `back`.
pub const CLOCK_STEPS: &str = "clock_steps_total";

/// Registers the descriptions. Call it once, after the recorder is installed.
pub fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_counter!(COMMANDS_RECEIVED, "commands received");
    describe_counter!(SCHEDULES_PROCESSED, "firings acknowledged");
    describe_histogram!(POLLING_DURATION, Unit::Seconds, "duration of a poll");
    describe_histogram!(LATENESS, Unit::Seconds, "firing minus due time");
    describe_gauge!(LAST_POLL, Unit::Seconds, "time of the last poll");
    describe_counter!(
        PERMANENT_ERRORS,
        "firings that will not succeed by themselves"
    );
    describe_counter!(RETRIES, "firings to be retried");
    describe_counter!(
        FAILURES_SUPERSEDED,
        "firings that failed after their timer was rescheduled"
    );
    describe_counter!(RELEASED, "claims released unused");
    describe_counter!(PURGED, "rows purged by retention");
    describe_counter!(BROKER_LOST, "possible data losses of the broker");
    describe_counter!(REPUBLISHED, "firings republished after a data loss");
    describe_gauge!(
        STORE_WRITABLE,
        "1 if new timers and calls can be stored, 0 while writing fails"
    );
    describe_gauge!(PENDING, "scheduled timers");
    describe_gauge!(OVERDUE, "scheduled timers whose due time has passed");
    describe_counter!(CALLS_SUBMITTED, "calls accepted");
    describe_counter!(CALLS_DELETED, "calls deleted before their due time");
    describe_counter!(CALLS_FINISHED, "calls with their outcome, by status");
    describe_histogram!(
        CALL_LATENESS,
        Unit::Seconds,
        "start of a call's attempt minus its due time"
    );
    describe_gauge!(EXECUTIONS_WAITING, "attempts that wait for their turn");
    describe_gauge!(EXECUTIONS_RUNNING, "attempts in flight");
    describe_gauge!(DATABASE_BYTES, Unit::Bytes, "size of a database file");
    describe_gauge!(DATABASE_LOG_BYTES, Unit::Bytes, "size of its log");
    describe_counter!(CLOCK_STEPS, "times that the wall clock was set");
    describe_counter!(CALLS_RESCUED, "calls rescued after a late or lost message");
    describe_counter!(CALL_ROWS_PURGED, "rows of calls purged by retention");
    describe_histogram!(
        EXECUTION_DURATION,
        Unit::Seconds,
        "duration of an attempt, by outcome"
    );
    describe_counter!(EXECUTIONS_REFUSED, "attempts refused");
    describe_gauge!(OUTBOX_UNPUBLISHED, "messages that wait to be published");
    describe_counter!(OUTBOX_PUBLISHED, "messages published from the outbox");
    describe_counter!(OUTBOX_PARKED, "messages parked to be retried");
}
