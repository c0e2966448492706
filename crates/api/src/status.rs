//! How the process is: alive, ready, and in numbers. Nothing here shows anything of a tenant.

use std::sync::{Arc, LazyLock};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::json as value;

use crate::ask::{Ask, json};
use crate::openapi;
use crate::problem::Problem;
use crate::router::Api;

/// It answers, so it lives.
pub(crate) async fn health(_api: Arc<Api>, _ask: Ask) -> Result<Response<Body>, Problem> {
    json(StatusCode::OK, &value!({ "status": "ok" }))
}

/// Whether it can do its work.
pub(crate) async fn ready(api: Arc<Api>, _ask: Ask) -> Result<Response<Body>, Problem> {
    let look = async { Arc::new((api.parts.readiness)().await) };
    let checks = api.readiness.get(api.parts.clock.as_ref(), look).await;
    let ready = checks.iter().all(|check| check.problem.is_none());
    let checks: Vec<_> = checks
        .iter()
        .map(|check| match &check.problem {
            None => value!({ "name": check.name, "ok": true }),
            Some(problem) => value!({ "name": check.name, "ok": false, "problem": problem }),
        })
        .collect();
    let (status, word) = if ready {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "notReady")
    };
    json(status, &value!({ "status": word, "checks": checks }))
}

/// In numbers, for Prometheus.
pub(crate) async fn metrics(api: Arc<Api>, _ask: Ask) -> Result<Response<Body>, Problem> {
    let render = async { Bytes::from((api.parts.metrics)()) };
    let rendered = api.metrics.get(api.parts.clock.as_ref(), render).await;
    let mut response = Response::new(Body::from(rendered));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    Ok(response)
}

/// What there is, for programs. It is the same for everybody and always, so it is written once.
pub(crate) async fn openapi(_api: Arc<Api>, _ask: Ask) -> Result<Response<Body>, Problem> {
    static DOCUMENT: LazyLock<Bytes> =
        LazyLock::new(|| Bytes::from(openapi::document().to_string()));
    let mut response = Response::new(Body::from(DOCUMENT.clone()));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    Ok(response)
}
