//! What is measured, by the names that operators see.
//!
//! No tenant and no id is ever a label: their number has no bound.

/// Commands that arrived, by whatever outcome.
pub const COMMANDS_RECEIVED: &str = "timer_commands_received_total";
/// Firings that were acknowledged, also of timers that were rescheduled meanwhile.
pub const SCHEDULES_PROCESSED: &str = "timer_schedules_processed_total";
/// How long a look at the store took.
pub const POLLING_DURATION: &str = "timer_polling_duration_seconds";
/// How long after its due time a timer fired.
pub const LATENESS: &str = "timer_lateness_seconds";
/// When the store was last looked at. Alert if that is over 30 s ago.
pub const LAST_POLL: &str = "timer_last_poll_timestamp_seconds";
/// Whether new timers and calls can be stored: 1, or 0 while writing fails. Alert on 0.
pub const STORE_WRITABLE: &str = "store_writable";
/// Timers that wait, counted up to a million.
pub const PENDING: &str = "timer_pending";
/// Those of them whose time has come.
pub const OVERDUE: &str = "timer_overdue";
/// Firings that will not succeed by themselves. Alert if over 1 % of those processed.
pub const PERMANENT_ERRORS: &str = "timer_permanent_errors_total";
/// Firings that failed and are tried again later.
pub const RETRIES: &str = "timer_retries_total";
/// Firings that failed after their timer was rescheduled, by its own handler for example: the new
/// schedule stands, and the failure is neither retried nor a dead letter.
pub const FAILURES_SUPERSEDED: &str = "timer_failures_superseded_total";
/// Claims given back unused because the bus was not there.
pub const RELEASED: &str = "timer_claims_released_total";
/// Rows that retention has removed.
pub const PURGED: &str = "timer_rows_purged_total";
/// Times that the broker may have lost what it had acknowledged, and there was something to lose.
pub const BROKER_LOST: &str = "broker_lost_total";
/// Firings that were published again for that, under the same ids.
pub const REPUBLISHED: &str = "timer_firings_republished_total";

/// Calls that were accepted.
pub const CALLS_SUBMITTED: &str = "calls_submitted_total";
/// Calls that were deleted before their due time.
pub const CALLS_DELETED: &str = "calls_deleted_total";
/// Calls that have their outcome, by status.
pub const CALLS_FINISHED: &str = "calls_finished_total";
/// How long after its due time the request of a call was begun.
pub const CALL_LATENESS: &str = "call_lateness_seconds";
/// Calls that were helped on because a message about them was late or lost, by how.
pub const CALLS_RESCUED: &str = "calls_rescued_total";
/// Rows of calls, messages and submissions that retention has removed.
pub const CALL_ROWS_PURGED: &str = "call_rows_purged_total";
/// How long attempts took, by outcome.
pub const EXECUTION_DURATION: &str = "execution_duration_seconds";
/// Attempts that wait for their turn, counted up to 100 000.
pub const EXECUTIONS_WAITING: &str = "executions_waiting";
/// Attempts under way.
pub const EXECUTIONS_RUNNING: &str = "executions_running";
/// Commands for attempts that were not made: a second one of a call, or of a call that is gone.
pub const EXECUTIONS_REFUSED: &str = "executions_refused_total";
/// Messages that wait to be published, counted up to 100 000.
pub const OUTBOX_UNPUBLISHED: &str = "outbox_unpublished";
/// Messages that were published.
pub const OUTBOX_PUBLISHED: &str = "outbox_published_total";
/// Times that a message failed by itself and was set aside.
pub const OUTBOX_PARKED: &str = "outbox_parked_total";

/// How large a database file is, by `database`: `timers` or `calls`.
pub const DATABASE_BYTES: &str = "database_size_bytes";
/// How large its log is, which is folded into it now and then.
pub const DATABASE_LOG_BYTES: &str = "database_log_size_bytes";
/// Times that the wall clock was set while the process ran, by `direction`: `forward` or `back`.
pub const CLOCK_STEPS: &str = "clock_steps_total";

/// Tells the recorder what each of them means. Call it once, after the recorder is installed.
pub fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_counter!(COMMANDS_RECEIVED, "commands received");
    describe_counter!(SCHEDULES_PROCESSED, "firings acknowledged");
    describe_histogram!(
        POLLING_DURATION,
        Unit::Seconds,
        "duration of a look at the store"
    );
    describe_histogram!(LATENESS, Unit::Seconds, "firing minus due time");
    describe_gauge!(
        LAST_POLL,
        Unit::Seconds,
        "when the store was last looked at"
    );
    describe_counter!(
        PERMANENT_ERRORS,
        "firings that will not succeed by themselves"
    );
    describe_counter!(RETRIES, "firings to be tried again");
    describe_counter!(
        FAILURES_SUPERSEDED,
        "firings that failed after their timer was rescheduled"
    );
    describe_counter!(RELEASED, "claims given back unused");
    describe_counter!(PURGED, "rows removed by retention");
    describe_counter!(BROKER_LOST, "possible losses of the broker");
    describe_counter!(REPUBLISHED, "firings published again after a loss");
    describe_gauge!(
        STORE_WRITABLE,
        "1 if new timers and calls can be stored, 0 while writing fails"
    );
    describe_gauge!(PENDING, "timers that wait");
    describe_gauge!(OVERDUE, "timers whose time has come");
    describe_counter!(CALLS_SUBMITTED, "calls accepted");
    describe_counter!(CALLS_DELETED, "calls deleted before their due time");
    describe_counter!(CALLS_FINISHED, "calls with their outcome, by status");
    describe_histogram!(
        CALL_LATENESS,
        Unit::Seconds,
        "beginning of a call's request minus its due time"
    );
    describe_gauge!(EXECUTIONS_WAITING, "attempts that wait for their turn");
    describe_gauge!(EXECUTIONS_RUNNING, "attempts under way");
    describe_gauge!(DATABASE_BYTES, Unit::Bytes, "size of a database file");
    describe_gauge!(DATABASE_LOG_BYTES, Unit::Bytes, "size of its log");
    describe_counter!(CLOCK_STEPS, "times that the wall clock was set");
    describe_counter!(
        CALLS_RESCUED,
        "calls helped on after a late or lost message"
    );
    describe_counter!(CALL_ROWS_PURGED, "rows of calls removed by retention");
    describe_histogram!(
        EXECUTION_DURATION,
        Unit::Seconds,
        "duration of an attempt, by outcome"
    );
    describe_counter!(EXECUTIONS_REFUSED, "attempts asked for and not made");
    describe_gauge!(OUTBOX_UNPUBLISHED, "messages that wait to be published");
    describe_counter!(OUTBOX_PUBLISHED, "messages published from the outbox");
    describe_counter!(OUTBOX_PARKED, "messages set aside to be tried again");
}
