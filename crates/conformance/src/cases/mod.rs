//! The cases, a suite a file. A new case is a function and a line in its file's `suite!`.

pub mod attempt_instances;
pub mod attempt_steps;
pub mod attempt_turns;
pub mod bus_position;
pub mod call_change;
pub mod call_delete;
pub mod call_page;
pub mod call_purge;
pub mod call_read;
pub mod call_submit;
pub mod clock;
pub mod dead_letter;
pub mod event_bus;
pub mod ids;
pub mod outbox;
pub mod timer_claim;
pub mod timer_delete;
pub mod timer_fairness;
pub mod timer_fired;
pub mod timer_instances;
pub mod timer_mark;
pub mod timer_purge;
pub mod timer_read;
pub mod timer_save;
pub mod timer_settle;
pub mod timer_store_clock;
