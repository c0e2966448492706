//! The OpenAPI document: it is kept, it is complete, and what it says is so.

use std::collections::BTreeSet;
use std::path::Path;

use axum::http::Method;
use punctual_api::{Access, openapi_document, routes};
use punctual_domain::service_call::{CallName, RequestBody, Tags, TargetUrl};
use serde_json::Value;

use crate::world::{ID, World, request, submission, with_body};

/// Set to anything, it lets the test below write the file instead of comparing it.
const WRITE: &str = "PUNCTUAL_WRITE_OPENAPI";

#[tokio::test]
async fn the_document_that_is_kept_is_the_one_that_is_served() {
    let served = World::new().get("/openapi.json").await.expect(200).json();
    let text = format!("{}\n", serde_json::to_string_pretty(&served).unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/openapi.json is not what is served: run this test with {WRITE}=1, and read the difference"
    );
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let document = openapi_document();
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let methods = item
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| *key != "parameters");
        described.extend(methods.map(|method| (path.clone(), method.to_uppercase())));
    }
    let table: BTreeSet<_> = routes()
        .iter()
        .map(|route| (route.template.to_owned(), route.method.to_string()))
        .collect();
    assert_eq!(described, table);
    for route in routes() {
        let operation = &document["paths"][route.template][route.method.as_str().to_lowercase()];
        let what = format!("{} {}", route.method, route.template);
        assert!(operation["operationId"].is_string(), "{what}");
        assert!(operation["summary"].is_string(), "{what}");
        let answers = operation["responses"].as_object().unwrap();
        assert!(
            answers.keys().any(|status| status.starts_with('2')),
            "{what}"
        );
        assert_eq!(
            answers.contains_key("401"),
            route.access != Access::Open,
            "{what}"
        );
        assert_eq!(answers.contains_key("413"), route.body, "{what}");
        let parameters = operation["parameters"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for name in route.query {
            let reference = format!("#/components/parameters/{name}");
            assert!(
                parameters.iter().any(|it| it["$ref"] == reference.as_str()),
                "{what} {name}"
            );
        }
    }
}

/// Everything that a reference points to is there.
fn check_references(document: &Value, part: &Value) {
    match part {
        Value::Object(fields) => {
            if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
            fields
                .values()
                .for_each(|value| check_references(document, value));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|value| check_references(document, value)),
        _ => {}
    }
}

#[test]
fn nothing_refers_to_what_is_not_there() {
    let document = openapi_document();
    check_references(&document, &document);
}

#[test]
fn its_limits_are_the_domains() {
    let document = openapi_document();
    let schema = |pointer: &str| {
        document
            .pointer(&format!("/components/schemas/{pointer}"))
            .unwrap()
            .clone()
    };
    assert_eq!(
        schema("Submission/properties/name/maxLength"),
        CallName::LONGEST
    );
    assert_eq!(schema("Submission/properties/tags/maxItems"), Tags::MOST);
    assert_eq!(
        schema("RequestSpec/properties/url/maxLength"),
        TargetUrl::LONGEST
    );
    assert_eq!(
        schema("RequestSpec/properties/body/maxLength"),
        RequestBody::LONGEST
    );
    assert_eq!(
        document
            .pointer("/components/parameters/limit/schema/maximum")
            .unwrap(),
        1_000
    );
    assert_eq!(
        document
            .pointer("/components/parameters/tenantId/schema/maxLength")
            .unwrap(),
        128
    );
}

#[tokio::test]
async fn its_examples_work() {
    let world = World::new();
    let document = openapi_document();
    let mut tried = 0;
    for route in routes().iter().filter(|route| route.body) {
        let operation = &document["paths"][route.template][route.method.as_str().to_lowercase()];
        let example = &operation["requestBody"]["content"]["application/json"]["example"];
        let path = route
            .template
            .replace("{tenantId}", "a")
            .replace("{serviceCallId}", ID);
        let method = Method::from_bytes(route.method.as_str().as_bytes()).unwrap();
        let reply = world.send(method, &path, example).await;
        assert!(reply.status.is_success(), "{path}: {reply:?}");
        tried += 1;
    }
    assert_eq!(tried, 3);
}

/// Method, path and body of a `curl` command.
fn read_curl(command: &str) -> (Method, String, Option<Value>) {
    let (_, rest) = command.split_once("http://127.0.0.1:8080").unwrap();
    let end = rest.find([' ', '\'', '\n']).unwrap_or(rest.len());
    let path = rest[..end].to_owned();
    let data = command.split_once("-d '").map(|(_, data)| {
        let (data, _) = data.rsplit_once('\'').unwrap();
        serde_json::from_str(data).unwrap()
    });
    let method = match command.split_once("-X ") {
        Some((_, rest)) => rest.split(' ').next().unwrap().parse().unwrap(),
        None if data.is_some() => Method::POST,
        None => Method::GET,
    };
    (method, path, data)
}

#[tokio::test]
async fn the_commands_of_the_page_for_users_work() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let page = std::fs::read_to_string(path).unwrap();
    // The page's id stands for whatever the reader has got: here for a call that is there.
    let mut call = submission();
    call["serviceCallId"] = Value::from(ID);
    let mut tried = 0;
    for block in page.split("```sh\n").skip(1) {
        let (method, path, body) = read_curl(block.split("```").next().unwrap());
        let world = World::new();
        let calls = "/api/tenants/tenant-a/service-calls";
        let mut there = with_body(Method::POST, calls, call.to_string());
        let id = ID.parse().unwrap();
        there.headers_mut().insert("x-correlation-id", id);
        world.call(there).await.expect(202);
        let reply = match body {
            Some(body) => world.send(method, &path, &body).await,
            None => world.call(request(method, &path)).await,
        };
        assert!(reply.status.is_success(), "{path}: {reply:?}");
        tried += 1;
    }
    assert_eq!(tried, 7);
}
