//! Inbound HTTP: service calls, timers on their own, traces, health and metrics.
//!
//! - [`routes`] is the table of all routes; [`router`] answers them, [`serve()`] serves connections;
//! - [`Tokens`] says who may see what, and [`check_bind`] where to listen without them;
//! - [`openapi_document`] describes it all; it is served as `/openapi.json` and kept as
//!   `docs/openapi.json`.
//!
//! Everything that goes wrong is an `application/problem+json`. Handlers know use cases and ports
//! only.

mod bind;
mod body;
mod budget;
mod calls;
mod host;
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
pub use openapi::document as openapi_document;
pub use parts::{ApiParts, ApiSettings, CallsApi, Readiness, ReadinessCheck, TimersApi};
pub use router::router;
pub use routes::{Access, Route, routes};
pub use serve::{Served, serve};
pub use tokens::{Tokens, TokensError, hash_token};
pub use views::TraceView;
