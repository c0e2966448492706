//! The life of service calls, driven by a fake clock over in-memory adapters.

mod apart;
mod causes;
mod chaos;
mod dispatching;
mod executing;
mod fairness;
mod foreign_messages;
mod http;
mod life;
mod repeating;
mod simulation;
mod standalone_timers;
mod sweeping;
mod telemetry;
mod wire;
mod world;
