//! The table of routes: what there is, who may context for it, and who answers.
//!
//! The router is made from it, the document describes it, and the tests go through it, so that none
//! of them can forget a route.

use std::sync::{Arc, LazyLock};

use axum::http::Method;
use futures_util::future::BoxFuture;

use crate::request_context::{HandlerResult, RequestContext};
use crate::router::Api;
use crate::{calls, status, timers, trace};

/// Who may context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody who can reach the API: nothing of a tenant is shown.
    Open,
    /// Who has a token of the tenant in the path, or of all.
    Tenant,
    /// Who has a token of all tenants.
    Everything,
}

type Handler = fn(Arc<Api>, RequestContext) -> BoxFuture<'static, HandlerResult>;

/// One method of one address.
#[derive(Debug, Clone)]
pub struct Route {
    /// The method; who answers GET answers HEAD too.
    pub method: Method,
    /// The address, with names in braces for what varies.
    pub template: &'static str,
    /// Who may context.
    pub access: Access,
    /// The parameters that its query may have.
    pub query: &'static [&'static str],
    /// Whether it needs a body.
    pub body: bool,
    pub(crate) handler: Handler,
}

/// Turns an `async fn` into what the table holds.
macro_rules! handler {
    ($path:path) => {
        |api, context| Box::pin($path(api, context))
    };
}

const CALLS: &str = "/api/tenants/{tenantId}/service-calls";
const CALL: &str = "/api/tenants/{tenantId}/service-calls/{serviceCallId}";
const TIMERS: &str = "/api/tenants/{tenantId}/timers:batch";
const TIMER: &str = "/api/tenants/{tenantId}/timers/{serviceCallId}";
const TRACE: &str = "/api/correlations/{correlationId}";

/// All routes.
pub fn routes() -> &'static [Route] {
    static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
        vec![
            of_tenant(Method::POST, CALLS, handler!(calls::submit)).with_body(),
            of_tenant(Method::GET, CALLS, handler!(calls::list))
                .with_query(&["status", "tag", "from", "to", "limit", "cursor"]),
            of_tenant(Method::GET, CALL, handler!(calls::show)),
            of_tenant(Method::DELETE, CALL, handler!(calls::delete)),
            of_tenant(Method::POST, TIMERS, handler!(timers::schedule_all)).with_body(),
            of_tenant(Method::PUT, TIMER, handler!(timers::schedule)).with_body(),
            of_tenant(Method::GET, TIMER, handler!(timers::show)),
            of_tenant(Method::DELETE, TIMER, handler!(timers::delete)),
            route(
                Access::Everything,
                Method::GET,
                TRACE,
                handler!(trace::show),
            )
            .with_query(&["limit", "cursor"]),
            open("/healthz", handler!(status::health)),
            open("/readyz", handler!(status::ready)),
            open("/metrics", handler!(status::metrics)),
            open("/openapi.json", handler!(status::openapi)),
        ]
    });
    &ROUTES
}

fn route(access: Access, method: Method, template: &'static str, handler: Handler) -> Route {
    Route {
        method,
        template,
        access,
        query: &[],
        body: false,
        handler,
    }
}

fn of_tenant(method: Method, template: &'static str, handler: Handler) -> Route {
    route(Access::Tenant, method, template, handler)
}

fn open(template: &'static str, handler: Handler) -> Route {
    route(Access::Open, Method::GET, template, handler)
}

impl Route {
    fn with_body(self) -> Self {
        Self { body: true, ..self }
    }

    fn with_query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }
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
