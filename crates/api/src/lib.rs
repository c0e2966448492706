//! Inbound HTTP: service calls, timers on their own, traces, health and metrics.
//!
//! - [`routes`] is the table of all routes; [`router`] answers them, [`serve()`] serves connections;
//! - [`Tokens`] are the accepted tokens, and [`check_bind`] allows only loopback without them;
//! - [`openapi_document`] describes it all; it is served as `/openapi.json` and kept as
//!   `docs/openapi.json`.
//!
//! Every error is an `application/problem+json`. Handlers know use cases and ports
//! only.

mod bind;
mod body;
mod budget;
mod calls;
mod host;
mod instances;
pub mod metric_names;
mod openapi;
mod parts;
mod problem;
mod recent;
mod request_context;
mod router;
mod routes;
mod serve;
mod status;
mod strict;
mod timers;
mod tokens;
mod trace;
mod views;

pub use bind::check_bind;
pub use instances::InstancesView;
pub use openapi::document as openapi_document;
pub use parts::{ApiParts, ApiSettings, CallsApi, Instances, Readiness, ReadinessCheck, TimersApi};
pub use router::router;
pub use routes::{Access, Route, routes};
pub use serve::{Served, serve};
pub use tokens::{Tokens, hash_token};
pub use views::TraceView;
