//! The status of the process: liveness, readiness and metrics. Nothing of a tenant is in it.

use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::openapi;
use crate::request_context::{HandlerResult, RequestContext, json, response};
use crate::router::Api;

#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    #[schemars(extend("const" = "ok"))]
    status: &'static str,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Readiness")]
pub(crate) struct ReadinessView<'a> {
    #[schemars(extend("enum" = ["ready", "notReady"]))]
    status: &'static str,
    checks: Vec<ReadinessCheckView<'a>>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReadinessCheck")]
struct ReadinessCheckView<'a> {
    name: &'static str,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

/// Liveness: it answers, so it lives.
pub(crate) async fn health(_api: Arc<Api>, _context: RequestContext) -> HandlerResult {
    json(StatusCode::OK, &Health { status: "ok" })
}

/// Readiness: whether the process can do its work.
pub(crate) async fn ready(api: Arc<Api>, _context: RequestContext) -> HandlerResult {
    let check = async { Arc::new((api.parts.readiness)().await) };
    let checks = api.readiness.get(api.parts.clock.as_ref(), check).await;
    let (code, status) = if checks.iter().all(|check| check.problem.is_none()) {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "notReady")
    };
    let checks = checks.iter().map(|check| ReadinessCheckView {
        name: check.name,
        ok: check.problem.is_none(),
        problem: check.problem.as_deref(),
    });
    let checks = checks.collect();
    json(code, &ReadinessView { status, checks })
}

/// Metrics, in Prometheus' text format.
pub(crate) async fn metrics(api: Arc<Api>, _context: RequestContext) -> HandlerResult {
    let render = async { Bytes::from((api.parts.metrics)()) };
    let rendered = api.metrics.get(api.parts.clock.as_ref(), render).await;
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    Ok(response(StatusCode::OK, content_type, rendered))
}

/// The OpenAPI document. It never changes, so it is written once.
pub(crate) async fn openapi(_api: Arc<Api>, _context: RequestContext) -> HandlerResult {
    static DOCUMENT: LazyLock<Bytes> =
        LazyLock::new(|| Bytes::from(openapi::document().to_string()));
    Ok(response(
        StatusCode::OK,
        "application/json",
        DOCUMENT.clone(),
    ))
}
