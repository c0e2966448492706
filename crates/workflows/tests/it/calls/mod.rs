//! The life of service calls, driven by a fake clock over in-memory adapters.

mod causes;
mod dispatching;
mod executing;
mod fairness;
mod http;
mod life;
mod other_timers;
mod repeating;
mod simulation;
mod sweeping;
mod telemetry;
mod wire;
mod world;
