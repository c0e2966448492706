//! From a request to its answer: who asks, what is wrong with it, how long it may take.

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
use punctual_domain::CorrelationId;
use punctual_domain::service_call::FieldErrors;
use punctual_workflows::Sparing;
use tokio::sync::Semaphore;

use crate::body::Bodies;
use crate::host::is_of_this_machine;
use crate::metric_names;
use crate::parts::{ApiParts, ReadinessCheck};
use crate::problem::{Kind, Problem};
use crate::recent::Recent;
use crate::request_context::{HandlerResult, RequestContext, path_value, step};
use crate::routes::{Access, Route, allowed, routes};
use crate::serve::Connection;
use crate::tokens::Grant;

const CORRELATION: HeaderName = HeaderName::from_static("x-correlation-id");

/// What handlers work with.
pub(crate) struct Api {
    pub(crate) parts: ApiParts,
    /// How many requests may still begin.
    requests: Semaphore,
    bodies: Bodies,
    pub(crate) readiness: Recent<Arc<Vec<ReadinessCheck>>>,
    pub(crate) metrics: Recent<Bytes>,
    troubles: Sparing,
}

/// The API as a router, to be served by [`serve`](crate::serve()) or by a test.
pub fn router(parts: ApiParts) -> Router {
    let settings = parts.settings;
    let api = Arc::new(Api {
        requests: Semaphore::new(settings.requests),
        bodies: Bodies::new(&settings, Arc::clone(&parts.clock)),
        readiness: Recent::default(),
        metrics: Recent::default(),
        troubles: Sparing::default(),
        parts,
    });
    let mut templates: Vec<&'static str> = routes().iter().map(|route| route.template).collect();
    templates.dedup();
    let mut router = Router::new();
    for template in templates {
        let api = Arc::clone(&api);
        let answer = move |path: Result<RawPathParams, _>, request: Request| {
            let path = path.ok().map(|path| decoded(&path));
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

fn decoded(path: &RawPathParams) -> Vec<(String, String)> {
    path.iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
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
        let answer = match found {
            Ok(route) => {
                let asked = self.ask(route, path, head, correlation_id, given);
                let answer = self.answer(route, asked, body);
                // A panic of one request is told to its client, and to nobody else.
                let caught = AssertUnwindSafe(answer).catch_unwind().await;
                caught.unwrap_or_else(|_| Err(Problem::internal()))
            }
            Err(problem) => Err(problem),
        };
        let mut response = answer.unwrap_or_else(|problem| {
            self.note(&problem);
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

    /// Counts what the store could not carry out, and tells of some of it.
    fn note(&self, problem: &Problem) {
        let Some(error) = problem.cause() else { return };
        metrics::counter!(metric_names::NOT_CARRIED_OUT).increment(1);
        if let Some(left_out) = self.troubles.may_say(self.parts.clock.monotonic()) {
            tracing::warn!(%error, left_out, "a request could not be carried out");
        }
    }

    /// Checks who asks, and then what can be said of the request before its body is there.
    fn ask(
        &self,
        route: &Route,
        path: Option<Vec<(String, String)>>,
        head: Parts,
        correlation_id: CorrelationId,
        given: Option<Result<CorrelationId, String>>,
    ) -> Result<(RequestContext, Option<Connection>), Problem> {
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
            for (name, _) in &query {
                if !route.query.contains(&name.as_str()) {
                    let known = match route.query {
                        [] => "there are none here".to_owned(),
                        known => format!("{} are known", known.join(", ")),
                    };
                    let pointer = format!("/query/{}", step(name));
                    errors.add(pointer, format!("is unknown: {known}"));
                }
            }
        }
        let connection = head.extensions.get::<Connection>().cloned();
        let ask = RequestContext {
            path,
            query,
            headers: head.headers,
            body: Bytes::new(),
            correlation_id,
            given_correlation_id,
            errors,
        };
        Ok((ask, connection))
    }

    /// The answer, in time.
    async fn answer(
        self: &Arc<Self>,
        route: &Route,
        asked: Result<(RequestContext, Option<Connection>), Problem>,
        body: Body,
    ) -> HandlerResult {
        let (ask, connection) = asked?;
        let arrived = AtomicBool::new(!route.body);
        let limit = self.parts.settings.request_timeout;
        let work = self.carry_out(route, ask, connection, body, &arrived);
        let too_late = self.parts.clock.sleep_for(limit);
        match select(std::pin::pin!(work), too_late).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) if arrived.load(Ordering::Relaxed) => Err(Problem::unavailable(
                format!(
                    "there was no answer within {} s, and whether it was done is not known: \
                     ask again, with the same id or idempotency key",
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
        mut ask: RequestContext,
        connection: Option<Connection>,
        body: Body,
        arrived: &AtomicBool,
    ) -> HandlerResult {
        let mut _room = None;
        if route.body {
            let tenant = path_value(&ask.path, "tenantId");
            let (bytes, room) = self.bodies.read(tenant, &ask.headers, body).await?;
            (ask.body, _room) = (bytes, Some(room));
            arrived.store(true, Ordering::Relaxed);
        }
        // Health is asked for most urgently when all places are taken. Who needs no token takes none,
        // and may be cut for another.
        if route.access == Access::Open {
            return (route.handler)(Arc::clone(self), ask).await;
        }
        // Only what is there as a whole takes a place: a slow client keeps nobody waiting.
        let _place = self.requests.try_acquire().map_err(|_| {
            Problem::unavailable("too many requests are being carried out: try again", 1)
        })?;
        let _at_work = connection.as_ref().map(Connection::at_work);
        (route.handler)(Arc::clone(self), ask).await
    }

    /// No token: 401. Somebody else's: as if there were nothing.
    fn authorize(
        &self,
        route: &Route,
        path: &[(String, String)],
        head: &Parts,
    ) -> Result<(), Problem> {
        let tokens = &self.parts.tokens;
        if route.access == Access::Open {
            return Ok(());
        }
        if tokens.is_empty() {
            if is_of_this_machine(&head.headers) {
                return Ok(());
            }
            let detail = "without tokens we answer to an address or to localhost, and not to another \
                          name: ask so, or set API_TOKENS_FILE";
            let challenge = HeaderValue::from_static("Bearer realm=\"punctual\"");
            return Err(Problem::new(Kind::Unauthorized, detail)
                .with_header(header::WWW_AUTHENTICATE, challenge)
                .closing());
        }
        let tenant = match route.access {
            Access::Tenant => Some(path_value(path, "tenantId")),
            _ => None,
        };
        let refused = |detail: &str, challenge| {
            let challenge = HeaderValue::from_static(challenge);
            Problem::new(Kind::Unauthorized, detail)
                .with_header(header::WWW_AUTHENTICATE, challenge)
                .closing()
        };
        let Some(token) = bearer(head) else {
            let detail = "there is no token: send Authorization: Bearer and the token";
            return Err(refused(detail, "Bearer realm=\"punctual\""));
        };
        match tokens.grant(token, tenant) {
            Grant::Here => {
                if let Some(connection) = head.extensions.get::<Connection>() {
                    connection.is_known();
                }
                Ok(())
            }
            // In nothing, headers included, does it differ from what is absent.
            Grant::Elsewhere => Err(Problem::not_found()),
            Grant::Unknown => Err(refused(
                "nobody knows this token: is it the token itself, and not its hash?",
                "Bearer realm=\"punctual\", error=\"invalid_token\"",
            )),
        }
    }
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

/// Of two hosts, a proxy may have looked at the one and we at the other.
fn one_host(head: &Parts) -> Result<(), Problem> {
    if head.headers.get_all(header::HOST).iter().count() < 2 {
        return Ok(());
    }
    let detail = "the header Host is given twice: give it once";
    Err(Problem::new(Kind::Malformed, detail).closing())
}

/// The parameters that can be read; what is wrong with the others is added.
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

/// What is wrong with how a part of a query is encoded.
fn encoding_problem(part: &str) -> Option<&'static str> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    let mut decoded = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Some("has a % without two hexadecimal digits after it: write % itself as %25");
        };
        decoded.extend(u8::try_from(high * 16 + low));
    }
    let is_text = std::str::from_utf8(&decoded).is_ok();
    (!is_text).then_some("is not UTF-8: encode its characters so")
}

/// What every answer has.
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
