//! Routing: from a request to its response, with authorisation, checks and deadlines.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use axum::routing::any;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use percent_encoding::percent_decode_str;
use punctual_domain::CorrelationId;
use punctual_domain::service_call::FieldErrors;
use punctual_workflows::LogLimiter;
use tokio::sync::Semaphore;

use crate::body::Bodies;
use crate::host::is_of_this_machine;
use crate::metric_names;
use crate::parts::{ApiParts, ReadinessCheck};
use crate::problem::{Kind, Problem};
use crate::recent::Recent;
use crate::request_context::{HandlerResult, RequestContext, path_value, refuse_unknown, step};
use crate::routes::{Access, Route, allowed, routes};
use crate::serve::Connection;
use crate::tokens::Grant;

const CHALLENGE: &str = "Bearer realm=\"punctual\"";
const CORRELATION: HeaderName = HeaderName::from_static("x-correlation-id");

/// The shared state of all handlers.
pub(crate) struct Api {
    pub(crate) parts: ApiParts,
    /// The slots of requests that are carried out.
    requests: Semaphore,
    bodies: Bodies,
    pub(crate) readiness: Recent<Arc<Vec<ReadinessCheck>>>,
    pub(crate) metrics: Recent<Bytes>,
    failure_log: LogLimiter,
}

/// The API as a router, to be served by [`serve`](crate::serve()) or by a test.
pub fn router(parts: ApiParts) -> Router {
    let settings = parts.settings;
    let api = Arc::new(Api {
        requests: Semaphore::new(settings.requests),
        bodies: Bodies::new(&settings, Arc::clone(&parts.clock)),
        readiness: Recent::default(),
        metrics: Recent::default(),
        failure_log: LogLimiter::default(),
        parts,
    });
    let mut templates: Vec<&'static str> = routes().iter().map(|route| route.template).collect();
    templates.dedup();
    let mut router = Router::new();
    for template in templates {
        let api = Arc::clone(&api);
        let answer = move |path: Result<RawPathParams, _>, request: Request| {
            let path = path.ok().map(|path| {
                let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
                path.iter().map(owned).collect()
            });
            let api = Arc::clone(&api);
            async move { api.handle(Some(template), path, request).await }
        };
        router = router.route(template, any(answer));
    }
    router.fallback(move |request: Request| {
        let api = Arc::clone(&api);
        async move { api.handle(None, None, request).await }
    })
}

impl Api {
    async fn handle(
        self: Arc<Self>,
        template: Option<&'static str>,
        path: Option<Vec<(String, String)>>,
        request: Request,
    ) -> Response<Body> {
        let began = self.parts.clock.monotonic();
        let (head, body) = request.into_parts();
        let method = head.method.clone();
        let given = given_correlation(&head);
        let correlation_id = match &given {
            Some(Ok(id)) => *id,
            _ => CorrelationId::from_uuid(self.parts.ids.next_id()),
        };
        let found = one_host(&head).and_then(|()| find(template, &method));
        let result = match found {
            Ok(route) => {
                let context = self.context(route, path, head, correlation_id, given);
                let result = self.answer(route, context, body);
                // A panic of one request is reported to its client only.
                let caught = AssertUnwindSafe(result).catch_unwind().await;
                caught.unwrap_or_else(|_| Err(Problem::internal()))
            }
            Err(problem) => Err(problem),
        };
        let mut response = result.unwrap_or_else(|problem| {
            self.report(&problem);
            problem.into_response(correlation_id)
        });
        finish(&mut response, correlation_id);
        let took = self.parts.clock.monotonic().saturating_sub(began);
        count(template, &method, &response, took.as_secs_f64());
        tracing::debug!(
            %method,
            route = template.unwrap_or("none"),
            status = response.status().as_u16(),
            %correlation_id,
            "answered"
        );
        response
    }

    /// Counts what the store could not carry out, and logs some of it.
    fn report(&self, problem: &Problem) {
        let Some(error) = problem.cause() else { return };
        metrics::counter!(metric_names::NOT_CARRIED_OUT).increment(1);
        if let Some(left_out) = self.failure_log.try_acquire(self.parts.clock.monotonic()) {
            tracing::warn!(%error, left_out, "a request could not be carried out");
        }
    }

    /// The context of a request: authorised, and checked as far as its head goes.
    fn context(
        &self,
        route: &Route,
        path: Option<Vec<(String, String)>>,
        head: Parts,
        correlation_id: CorrelationId,
        given: Option<Result<CorrelationId, String>>,
    ) -> Result<RequestContext, Problem> {
        let is_text = path.is_some();
        let path = path.unwrap_or_default();
        self.authorize(route, &path, &head)?;
        let mut errors = FieldErrors::default();
        let mut given_correlation_id = None;
        let mut query = Vec::new();
        if route.access != Access::Open {
            if !is_text {
                errors.add("/path", "is not UTF-8: encode its characters so");
            }
            if let Some(given) = given {
                given_correlation_id = errors.check("/header/X-Correlation-Id", given);
            }
            query = read_query(&head, &mut errors);
            let names = query.iter().map(|(name, _)| name);
            refuse_unknown(&mut errors, "/query", names, route.query);
        }
        Ok(RequestContext {
            connection: head.extensions.get::<Connection>().cloned(),
            path,
            query,
            headers: head.headers,
            body: Bytes::new(),
            correlation_id,
            given_correlation_id,
            errors,
        })
    }

    /// The result of a request, or of its deadline.
    async fn answer(
        self: &Arc<Self>,
        route: &Route,
        context: Result<RequestContext, Problem>,
        body: Body,
    ) -> HandlerResult {
        let arrived = AtomicBool::new(!route.body);
        let limit = self.parts.settings.request_timeout;
        let work = self.carry_out(route, context?, body, &arrived);
        let too_late = self.parts.clock.sleep_for(limit);
        match select(std::pin::pin!(work), too_late).await {
            Either::Left((result, _)) => result,
            Either::Right(_) if arrived.load(Ordering::Relaxed) => Err(Problem::unavailable(
                format!(
                    "there was no answer within {} s, and whether it was done is not known: \
                     send it again, with the same id or idempotency key",
                    limit.as_secs()
                ),
                5,
            )),
            Either::Right(_) => Err(Problem::new(
                Kind::Timeout,
                format!("the body did not arrive within {} s", limit.as_secs()),
            )
            .closing()),
        }
    }

    async fn carry_out(
        self: &Arc<Self>,
        route: &Route,
        mut context: RequestContext,
        body: Body,
        arrived: &AtomicBool,
    ) -> HandlerResult {
        let mut _room = None;
        if route.body {
            let tenant = path_value(&context.path, "tenantId");
            let (bytes, room) = self.bodies.read(tenant, &context.headers, body).await?;
            (context.body, _room) = (bytes, Some(room));
            arrived.store(true, Ordering::Relaxed);
        }
        // Health is wanted most urgently when all slots are taken. What needs no token takes none,
        // and its connection may be closed for another.
        if route.access == Access::Open {
            return (route.handler)(Arc::clone(self), context).await;
        }
        // Only a request whose body has arrived takes a slot: a slow client delays no other.
        let _slot = self.requests.try_acquire().map_err(|_| {
            Problem::unavailable("too many requests are being carried out: try again", 1)
        })?;
        let connection = context.connection.clone();
        let _busy = connection.as_ref().map(Connection::busy);
        (route.handler)(Arc::clone(self), context).await
    }

    /// Authorisation. No token: 401. A token of another tenant: as if there were nothing.
    fn authorize(
        &self,
        route: &Route,
        path: &[(String, String)],
        head: &Parts,
    ) -> Result<(), Problem> {
        let tokens = &self.parts.tokens;
        let tenant = match route.access {
            Access::Open => return Ok(()),
            Access::Tenant => Some(path_value(path, "tenantId")),
            Access::Everything => None,
        };
        if tokens.is_empty() {
            if is_of_this_machine(&head.headers) {
                return Ok(());
            }
            let detail = "without tokens only an address or localhost is served as host, and no other \
                          name: use one, or set API_TOKENS_FILE";
            return Err(unauthorized(detail, CHALLENGE));
        }
        let Some(token) = bearer(head) else {
            let detail = "there is no token: send Authorization: Bearer and the token";
            return Err(unauthorized(detail, CHALLENGE));
        };
        match tokens.grant(token, tenant) {
            Grant::Here => {
                if let Some(connection) = head.extensions.get::<Connection>() {
                    connection.authenticate();
                }
                Ok(())
            }
            // In nothing, headers included, does it differ from what is absent.
            Grant::Elsewhere => Err(Problem::not_found()),
            Grant::Unknown => Err(unauthorized(
                "this token is unknown: is it the token itself, and not its hash?",
                "Bearer realm=\"punctual\", error=\"invalid_token\"",
            )),
        }
    }
}

fn unauthorized(detail: &str, challenge: &'static str) -> Problem {
    let challenge = HeaderValue::from_static(challenge);
    Problem::new(Kind::Unauthorized, detail)
        .with_header(header::WWW_AUTHENTICATE, challenge)
        .closing()
}

fn find(template: Option<&'static str>, method: &Method) -> Result<&'static Route, Problem> {
    let Some(template) = template else {
        let detail = "there is no such address: /openapi.json says which there are";
        return Err(Problem::new(Kind::NotFound, detail).closing());
    };
    let wanted = if method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    let mut here = routes().iter().filter(|route| route.template == template);
    here.find(|route| route.method == *wanted).ok_or_else(|| {
        let allowed = allowed(template);
        let detail = format!("this address knows {allowed}");
        let problem = Problem::new(Kind::MethodNotAllowed, detail).closing();
        match HeaderValue::from_str(&allowed) {
            Ok(value) => problem.with_header(header::ALLOW, value),
            Err(_) => problem,
        }
    })
}

fn given_correlation(head: &Parts) -> Option<Result<CorrelationId, String>> {
    let value = head.headers.get(CORRELATION)?;
    let text = value.to_str().unwrap_or("text beyond ASCII");
    Some(text.parse().map_err(|error| format!("{error}")))
}

/// The token, if there is exactly one.
fn bearer(head: &Parts) -> Option<&str> {
    let mut given = head.headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (given.next()?, given.next());
    let (scheme, token) = first.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let is_one = second.is_none() && scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
    is_one.then_some(token)
}

/// Refuses two hosts, of which a proxy may have judged by the one and we by the other.
fn one_host(head: &Parts) -> Result<(), Problem> {
    if head.headers.get_all(header::HOST).iter().count() < 2 {
        return Ok(());
    }
    let detail = "the header Host is given twice: give it once";
    Err(Problem::new(Kind::Malformed, detail).closing())
}

/// The parameters of the query that can be read; what is wrong with the others is added.
fn read_query(head: &Parts, errors: &mut FieldErrors) -> Vec<(String, String)> {
    let query = head.uri.query().unwrap_or_default();
    let mut read = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let parsed = form_urlencoded::parse(pair.as_bytes()).into_owned().next();
        let (name, value) = parsed.unwrap_or_default();
        match encoding_problem(pair) {
            None => read.push((name, value)),
            Some(problem) => errors.add(format!("/query/{}", step(&name)), problem),
        }
    }
    read
}

/// The mistake in how a part of a query is encoded.
fn encoding_problem(part: &str) -> Option<&'static str> {
    let is_escape = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !part.split('%').skip(1).all(is_escape) {
        return Some("has a % without two hexadecimal digits after it: write % itself as %25");
    }
    let is_text = percent_decode_str(part).decode_utf8().is_ok();
    (!is_text).then_some("is not UTF-8: encode its characters so")
}

/// Adds the headers that every response has.
fn finish(response: &mut Response<Body>, correlation_id: CorrelationId) {
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&correlation_id.to_string()) {
        headers.insert(CORRELATION, value);
    }
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

fn count(template: Option<&'static str>, method: &Method, response: &Response<Body>, took: f64) {
    let route = template.unwrap_or("none");
    // Anybody may invent a method, and each would be a series of its own.
    let method = match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => "other",
    };
    let status = match response.status().as_u16() / 100 {
        2 => "2xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    };
    if response.status() == StatusCode::UNAUTHORIZED {
        metrics::counter!(metric_names::UNAUTHORIZED).increment(1);
    }
    metrics::counter!(metric_names::REQUESTS, "route" => route, "method" => method, "status" => status)
        .increment(1);
    metrics::histogram!(metric_names::REQUEST_DURATION, "route" => route).record(took);
}
