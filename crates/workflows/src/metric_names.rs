//! Names and descriptions of the metrics.
//!
//! No tenant and no id is ever a label: their number is unbounded.

use metrics::describe_histogram as histogram;
use metrics::{Unit, describe_counter as counter, describe_gauge as gauge};

/// Declares each metric once: its kind, its constant with the unit, its name, and its description.
macro_rules! metric_names {
    ($($(#[$doc:meta])* $kind:ident $name:ident $(in $unit:ident)? = $text:literal, $description:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*

        /// Registers the descriptions. Call it once, after the recorder is installed.
        pub fn describe() {
            $($kind!($name, $(Unit::$unit,)? $description);)*
        }
    };
}

metric_names! {
    /// Commands received, whatever their outcome.
    counter COMMANDS_RECEIVED = "timer_commands_received_total", "commands received";
    /// Firings that were acknowledged, also of timers that were rescheduled meanwhile.
    counter SCHEDULES_PROCESSED = "timer_schedules_processed_total", "firings acknowledged";
    /// Duration of a poll.
    histogram POLLING_DURATION in Seconds = "timer_polling_duration_seconds", "duration of a poll";
    /// How long after its due time a timer fired.
    histogram LATENESS in Seconds = "timer_lateness_seconds", "firing minus due time";
    /// Time of the last poll. Alert if that is over 30 s ago.
    gauge LAST_POLL in Seconds = "timer_last_poll_timestamp_seconds", "time of the last poll";
    /// Whether new timers and calls can be stored: 1, or 0 while writing fails. Alert on 0.
    gauge STORE_WRITABLE = "store_writable", "1 if new timers and calls can be stored, 0 while writing fails";
    /// Scheduled timers, counted up to a million.
    gauge PENDING = "timer_pending", "scheduled timers";
    /// Scheduled timers whose due time has passed.
    gauge OVERDUE = "timer_overdue", "scheduled timers whose due time has passed";
    /// Firings that need an operator. Alert if over 1 % of those processed.
    counter PERMANENT_ERRORS = "timer_permanent_errors_total", "firings that will not succeed by themselves";
    /// Firings that failed and are retried later.
    counter RETRIES = "timer_retries_total", "firings to be retried";
    /// Firings that failed after their timer was rescheduled, by its own handler for example: the new
    /// schedule stands, and the failure is neither retried nor a dead letter.
    counter FAILURES_SUPERSEDED = "timer_failures_superseded_total", "firings that failed after their timer was rescheduled";
    /// Claims released unused because the bus was unavailable.
    counter RELEASED = "timer_claims_released_total", "claims released unused";
    /// Rows purged by retention.
    counter PURGED = "timer_rows_purged_total", "rows purged by retention";
    /// Possible data losses of the broker that affect at least one firing.
    counter BROKER_LOST = "broker_lost_total", "possible data losses of the broker";
    /// Firings republished after a data loss, under the same ids.
    counter REPUBLISHED = "timer_firings_republished_total", "firings republished after a data loss";

    /// Calls accepted.
    counter CALLS_SUBMITTED = "calls_submitted_total", "calls accepted";
    /// Calls deleted before their due time.
    counter CALLS_DELETED = "calls_deleted_total", "calls deleted before their due time";
    /// Calls finished, by status.
    counter CALLS_FINISHED = "calls_finished_total", "calls with their outcome, by status";
    /// How long after its due time the attempt of a call started.
    histogram CALL_LATENESS in Seconds = "call_lateness_seconds", "start of a call's attempt minus its due time";
    /// Calls rescued after a late or lost message, by action.
    counter CALLS_RESCUED = "calls_rescued_total", "calls rescued after a late or lost message";
    /// Rows of calls, messages and submissions purged by retention.
    counter CALL_ROWS_PURGED = "call_rows_purged_total", "rows of calls purged by retention";
    /// Duration of attempts, by outcome.
    histogram EXECUTION_DURATION in Seconds = "execution_duration_seconds", "duration of an attempt, by outcome";
    /// Attempts that wait for their turn, counted up to 100 000.
    gauge EXECUTIONS_WAITING = "executions_waiting", "attempts that wait for their turn";
    /// Attempts in flight.
    gauge EXECUTIONS_RUNNING = "executions_running", "attempts in flight";
    /// Commands for attempts that were refused: a second one of a call, or one of a deleted call.
    counter EXECUTIONS_REFUSED = "executions_refused_total", "attempts refused";
    /// Messages that wait to be published, counted up to 100 000.
    gauge OUTBOX_UNPUBLISHED = "outbox_unpublished", "messages that wait to be published";
    /// Messages published from the outbox.
    counter OUTBOX_PUBLISHED = "outbox_published_total", "messages published from the outbox";
    /// Times that a message was parked because it failed by itself.
    counter OUTBOX_PARKED = "outbox_parked_total", "messages parked to be retried";

    /// Size of a database file, by `database`: `timers` or `calls`.
    gauge DATABASE_BYTES in Bytes = "database_size_bytes", "size of a database file";
    /// Size of its write-ahead log, which checkpoints copy into the database file.
    gauge DATABASE_LOG_BYTES in Bytes = "database_log_size_bytes", "size of its log";
    /// Times that the wall clock was set while the process ran, by `direction`: `forward` or `back`.
    counter CLOCK_STEPS = "clock_steps_total", "times that the wall clock was set";
}
