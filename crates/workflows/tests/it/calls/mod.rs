//! The life of service calls, driven by a fake clock over in-memory adapters.

mod causes;
mod dispatching;
mod executing;
mod fairness;
mod http;
mod life;
mod repeating;
mod simulation;
mod sweeping;
mod wire;
mod world;
