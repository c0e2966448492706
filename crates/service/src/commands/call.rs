//! `call`: submits a service call to a running service, and follows it to its outcome.

use std::path::PathBuf;
use std::time::Duration;

use punctual::http::{AllowedNets, HyperHttpClient, Roots};
use punctual_adapters_system::{SystemClock, UuidIds};
use punctual_domain::service_call::{
    CallStatus, Headers, Method, RequestBody, RequestSpec, TargetUrl,
};
use punctual_domain::{CorrelationId, EnvelopeId, ServiceCallId, TimerKey, Timestamp};
use punctual_ports::{ClockPort, HttpAttempt, HttpClientPort, HttpResponse, IdPort};
use serde_json::{Map, Value, json};

use super::clock;
use super::output::Answers;
use crate::cli::{ApiArgs, CallArgs, Output};
use crate::display::cut_to;
use crate::failure::Failure;

/// Interval between two polls of a call.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum duration of one request to the service.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum length of a foreign response in a sentence.
const LONGEST_ANSWER: usize = 500;

/// Submits a call and waits for its outcome: fails unless that is a success.
pub(crate) async fn run(args: CallArgs) -> Result<(), Failure> {
    let clock = clock()?;
    let service = Service::new(&args.api, clock.clone(), args.correlation)?;
    let due_at = match (args.due, args.after) {
        (Some(due_at), _) => due_at,
        (None, Some(after)) => clock.now().next().saturating_add(after),
        (None, None) => clock.now(),
    };
    let path = format!("/api/tenants/{}/service-calls", args.tenant);
    let (accepted, due_at) = service.submit(&path, &args, due_at).await?;
    let Some(id) = accepted["serviceCallId"].as_str().map(str::to_owned) else {
        return Err(service.is_no_service());
    };
    let mut answers = Answers::open()?;
    if args.no_wait {
        return answers.line(&accepted);
    }
    crate::say(&format!(
        "accepted: call {id} of tenant {}, due at {due_at}",
        args.tenant
    ));
    let give_up = due_at.max(clock.now()).saturating_add(args.wait);
    let outcome = service.follow(&format!("{path}/{id}"), give_up).await?;
    if args.output == Output::Json {
        answers.line(&outcome)?;
    }
    if outcome["status"] != CallStatus::Succeeded.as_str() {
        return Err(Failure::failed(in_words(&outcome)));
    }
    if args.output == Output::Table {
        crate::say(&in_words(&outcome));
    }
    Ok(())
}

/// What is submitted. What is wrong with it the service says, for all fields at once.
fn body(args: &CallArgs, due_at: Timestamp) -> Value {
    let method = args.method.as_deref().unwrap_or(match args.body {
        Some(_) => "POST",
        None => "GET",
    });
    let described = || cut_to(&format!("{method} {}", redacted_url(&args.url)), 100);
    let headers: Map<String, Value> = args
        .header
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    json!({
        "name": args.name.clone().unwrap_or_else(described),
        "dueAt": due_at,
        "requestSpec": { "method": method, "url": args.url, "headers": headers, "body": args.body },
        "tags": args.tag,
        "serviceCallId": args.id,
        "idempotencyKey": args.key,
    })
}

/// A URL without its secrets: it becomes part of the name of the call.
fn redacted_url(url: &str) -> String {
    let Ok(url) = url.parse::<TargetUrl>() else {
        // The service will refuse it, so what in it is secret is unknown.
        return url.split(['?', '#']).next().unwrap_or_default().to_owned();
    };
    let request = RequestSpec {
        method: Method::Get,
        url,
        headers: Headers::default(),
        body: None,
    };
    request.redacted().url.to_string()
}

/// The end of a call in one sentence.
fn in_words(call: &Value) -> String {
    let outcome = &call["outcome"];
    let status = call["status"].as_str().unwrap_or("unknown");
    if let Some(error) = outcome.get("errorMeta") {
        let kind = error["kind"].as_str().unwrap_or("unknown");
        let message = error["message"].as_str().unwrap_or("no more is known");
        return format!("the call has {}: {kind}: {message}", status.to_lowercase());
    }
    let answer = &outcome["responseMeta"];
    format!(
        "the call has {}: the target answered {} in {} ms",
        status.to_lowercase(),
        answer["status"],
        answer["latencyMs"]
    )
}

/// A problem that the service returned.
struct Refused {
    status: u16,
    problem: Value,
}

impl Refused {
    /// Which call has the id or the key that was given.
    fn taken_by(&self) -> Option<ServiceCallId> {
        let detail = self.problem["detail"]
            .as_str()
            .filter(|_| self.status == 409)?;
        let mut words = detail.split(|c: char| !(c.is_ascii_hexdigit() || c == '-'));
        words.find_map(|word| word.parse().ok())
    }

    fn into_failure(self) -> Failure {
        let Self { status, problem } = self;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let what = text(&problem["detail"]).or_else(|| text(&problem["title"]));
        let mut parts = vec![what.unwrap_or_default()];
        for error in problem["errors"].as_array().into_iter().flatten() {
            let place = text(&error["pointer"]).unwrap_or_default();
            parts.push(format!(
                "{place} {}",
                text(&error["detail"]).unwrap_or_default()
            ));
        }
        let sentence = format!("the service answers {status}: {}", parts.join("; "));
        let sentence = cut_to(&sentence, LONGEST_ANSWER * 4);
        match status {
            400..=499 => Failure::usage(sentence),
            _ => Failure::failed(sentence),
        }
    }
}

/// A service that runs somewhere.
struct Service {
    base: String,
    token: Option<String>,
    client: HyperHttpClient,
    clock: SystemClock,
    correlation_id: CorrelationId,
}

impl Service {
    fn new(
        args: &ApiArgs,
        clock: SystemClock,
        correlation_id: Option<CorrelationId>,
    ) -> Result<Self, Failure> {
        let base = args.api.as_str().trim_end_matches('/').to_owned();
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).map_err(|error| {
                let path = crate::display::path(path);
                Failure::refused(format!("--token-file {path} cannot be read: {error}"))
            });
            text.map(|text| text.trim().to_owned())
        };
        let token = args.token_file.as_ref().map(read).transpose()?;
        // The address was typed, so any network is allowed.
        let everywhere: AllowedNets = "0.0.0.0/0,::/0"
            .parse()
            .map_err(|error| Failure::failed(format!("{error}")))?;
        let client = HyperHttpClient::new(everywhere, Roots::of_this_machine())
            .map_err(Failure::refused)?
            .without_idempotency_key();
        let drawn = || CorrelationId::from_uuid(UuidIds.next_id());
        Ok(Self {
            base,
            token,
            client,
            clock,
            correlation_id: correlation_id.unwrap_or_else(drawn),
        })
    }

    /// Sends a request, and returns the body or the problem of the response.
    async fn answer_to(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Result<Value, Refused>, Failure> {
        let mut headers = Vec::new();
        if body.is_some() {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        if let Some(token) = &self.token {
            headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
        }
        let url: TargetUrl = format!("{}{path}", self.base)
            .parse()
            .map_err(|error| Failure::usage(format!("--api: {error}")))?;
        let request = RequestSpec {
            method,
            url,
            headers: Headers::new(headers).map_err(|_| {
                Failure::usage("the token is not one: give printable ASCII on one line")
            })?,
            body: body
                .map(|body| RequestBody::new(body.to_string()))
                .transpose()
                .map_err(Failure::usage)?,
        };
        let attempt = HttpAttempt {
            execution_id: EnvelopeId::from_uuid(UuidIds.next_id()),
            key: TimerKey::new(
                punctual_domain::TenantId::default(),
                ServiceCallId::from_uuid(UuidIds.next_id()),
            ),
            correlation_id: self.correlation_id,
            request,
        };
        let answered = tokio::select! {
            answered = self.client.attempt(attempt) => answered.map_err(|failure| failure.message),
            () = self.clock.sleep_for(PATIENCE) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        let response = answered.map_err(|reason| {
            Failure::failed(format!(
                "no service answers at {}: {reason}; start one with `timer-service`, or name it with --api",
                self.base
            ))
        })?;
        self.read(&response)
    }

    /// Submits a call. One that was submitted before under the same id or key is the same if all but
    /// a due time that counts from now is: then it keeps the one that it has.
    async fn submit(
        &self,
        path: &str,
        args: &CallArgs,
        due_at: Timestamp,
    ) -> Result<(Value, Timestamp), Failure> {
        let first = body(args, due_at);
        let refused = match self.answer_to(Method::Post, path, Some(&first)).await? {
            Ok(accepted) => return Ok((accepted, due_at)),
            Err(problem) => problem,
        };
        let is_repeatable = args.due.is_none() && (args.id.is_some() || args.key.is_some());
        if let Some(taken) = refused.taken_by().filter(|_| is_repeatable) {
            let before = format!("{path}/{taken}");
            let before = self.answer_to(Method::Get, &before, None).await?;
            let due_at = before
                .ok()
                .and_then(|call| call["dueAt"].as_str()?.parse().ok());
            if let Some(due_at) = due_at {
                let again = body(args, due_at);
                if let Ok(accepted) = self.answer_to(Method::Post, path, Some(&again)).await? {
                    return Ok((accepted, due_at));
                }
            }
        }
        Err(refused.into_failure())
    }

    /// The body of a successful response, or the problem that it reports.
    fn read(&self, response: &HttpResponse) -> Result<Result<Value, Refused>, Failure> {
        let json: Option<Value> = serde_json::from_slice(&response.body).ok();
        if (200..300).contains(&response.status) {
            return json.map(Ok).ok_or_else(|| self.is_no_service());
        }
        match json.filter(|json| json["title"].is_string()) {
            Some(problem) => Ok(Err(Refused {
                status: response.status,
                problem,
            })),
            None => Err(self.is_no_service()),
        }
    }

    fn is_no_service(&self) -> Failure {
        Failure::failed(format!(
            "what answers at {} is no timer-service with service calls: name it with --api",
            self.base
        ))
    }

    /// Polls a call until it has an outcome, and prints each change of its status.
    async fn follow(&self, path: &str, give_up: Timestamp) -> Result<Value, Failure> {
        let mut last = String::new();
        loop {
            let answer = self.answer_to(Method::Get, path, None).await?;
            let call = answer.map_err(Refused::into_failure)?;
            let status = call["status"].as_str().unwrap_or_default().to_owned();
            if status != last {
                crate::say(&format!("{}  {status}", self.clock.now()));
                last.clone_from(&status);
            }
            match status.parse::<CallStatus>() {
                Ok(CallStatus::Scheduled | CallStatus::Running) => {}
                Ok(_) => return Ok(call),
                Err(_) => return Err(self.is_no_service()),
            }
            let now = self.clock.now();
            if now >= give_up {
                return Err(Failure::failed(format!(
                    "the call is still {status}: wait longer with --wait, or read it with GET {}{path}",
                    self.base
                )));
            }
            self.clock.sleep_for(POLL_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_a_name_is_named_by_its_url_without_secrets() {
        for (url, shown) in [
            ("http://a/b?page=2", "http://a/b?page=2"),
            ("http://a/b?code=canary&x=1", "http://a/b?code=redacted&x=1"),
            ("http://a/b?SIG=canary", "http://a/b?SIG=redacted"),
            ("a/b?sig=canary", "a/b"),
            ("http://a/#token=canary", "http://a/"),
        ] {
            assert_eq!(redacted_url(url), shown);
        }
    }
}
