//! The cases, a suite a file. A new case is a function and a line in its file's `suite!`.

pub mod bus_position;
pub mod clock;
pub mod dead_letter;
pub mod event_bus;
pub mod ids;
pub mod timer_claim;
pub mod timer_delete;
pub mod timer_fairness;
pub mod timer_fired;
pub mod timer_mark;
pub mod timer_purge;
pub mod timer_read;
pub mod timer_save;
pub mod timer_settle;
