//! The table of routes: their paths, who is authorized for each, and its handler.
//!
//! The router is made from it, the document describes it, and the tests go through it, so that none
//! of them can forget a route.

use std::sync::{Arc, LazyLock};

use axum::http::Method;
use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::openapi::{Schemas, operations};
use crate::request_context::{HandlerResult, RequestContext};
use crate::router::Api;
use crate::{calls, instances, status, timers, trace};

/// Who is authorized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody who can reach the API: nothing of a tenant is in the response.
    Open,
    /// Holders of a token of the tenant in the path, or of all.
    Tenant,
    /// Holders of a token of all tenants.
    Everything,
}

type Handler = fn(Arc<Api>, RequestContext) -> BoxFuture<'static, HandlerResult>;

/// One method of one address.
#[derive(Debug, Clone)]
pub struct Route {
    /// The method; a route for GET serves HEAD too.
    pub method: Method,
    /// The address, with names in braces for what varies.
    pub template: &'static str,
    /// Who is authorized.
    pub access: Access,
    /// The parameters that its query may have.
    pub query: &'static [&'static str],
    /// Whether it needs a body: POST and PUT do.
    pub body: bool,
    pub(crate) handler: Handler,
    /// Its operation in the document, and the tag that this is under.
    pub(crate) tag: &'static str,
    pub(crate) operation: fn(&mut Schemas) -> Value,
}

const CALLS: &str = "/api/tenants/{tenantId}/service-calls";
const CALL: &str = "/api/tenants/{tenantId}/service-calls/{serviceCallId}";
const TIMERS: &str = "/api/tenants/{tenantId}/timers:batch";
const TIMER: &str = "/api/tenants/{tenantId}/timers/{serviceCallId}";
const TRACE: &str = "/api/correlations/{correlationId}";

const PAGE: &[&str] = &["limit", "cursor"];
const LIST: &[&str] = &["status", "tag", "from", "to", "limit", "cursor"];

/// The table: access, method, address, parameters of the query, the `async fn` that handles it, and
/// the tag and operation in the document.
macro_rules! table {
    ($($access:ident $method:ident $template:expr, $query:expr => $handler:path, $tag:literal $operation:ident;)*) => {
        vec![$(Route {
            access: Access::$access,
            method: Method::$method,
            template: $template,
            query: $query,
            body: Method::$method == Method::POST || Method::$method == Method::PUT,
            handler: |api, context| Box::pin($handler(api, context)),
            tag: $tag,
            operation: operations::$operation,
        },)*]
    };
}

/// All routes.
pub fn routes() -> &'static [Route] {
    static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
        table! {
            Tenant POST CALLS, &[] => calls::submit, "service calls" submit;
            Tenant GET CALLS, LIST => calls::list, "service calls" list;
            Tenant GET CALL, &[] => calls::show, "service calls" show;
            Tenant DELETE CALL, &[] => calls::delete, "service calls" delete;
            Tenant POST TIMERS, &[] => timers::schedule_all, "timers" schedule_all;
            Tenant PUT TIMER, &[] => timers::schedule, "timers" schedule;
            Tenant GET TIMER, &[] => timers::show, "timers" show_timer;
            Tenant DELETE TIMER, &[] => timers::delete, "timers" delete_timer;
            Everything GET TRACE, PAGE => trace::show, "traces" trace;
            Everything GET "/api/instances", &[] => instances::list, "status" instances;
            Open GET "/healthz", &[] => status::health, "status" health;
            Open GET "/readyz", &[] => status::ready, "status" ready;
            Open GET "/metrics", &[] => status::metrics, "status" metrics;
            Open GET "/openapi.json", &[] => status::openapi, "status" openapi;
        }
    });
    &ROUTES
}

/// The methods of an address, for the `Allow` header.
pub(crate) fn allowed(template: &str) -> String {
    let mut methods = Vec::new();
    for route in routes().iter().filter(|it| it.template == template) {
        methods.push(route.method.as_str());
        if route.method == Method::GET {
            methods.push("HEAD");
        }
    }
    methods.join(", ")
}
