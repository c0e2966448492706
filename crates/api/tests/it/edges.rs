//! Whatever is sent, the answer is one of the document, and never the server's fault.

use axum::body::Body;
use axum::http::{Method, Request};
use proptest::prelude::*;
use punctual_api::{openapi_document, routes};
use serde_json::{Value, json};

use crate::world::{CALLS, World, submission, with_body};

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    runtime.block_on(work)
}

/// Some JSON.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(".{0,8}", inner, 0..5)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

/// Where something may be put into a submission.
const POINTERS: &[&str] = &[
    "",
    "/name",
    "/dueAt",
    "/requestSpec",
    "/requestSpec/method",
    "/requestSpec/url",
    "/requestSpec/headers",
    "/requestSpec/body",
    "/tags",
    "/serviceCallId",
    "/idempotencyKey",
    "/other",
];

fn put(body: &mut Value, pointer: &str, value: Value) {
    match pointer.rsplit_once('/') {
        Some((parent, name)) => {
            if let Some(Value::Object(fields)) = body.pointer_mut(parent) {
                fields.insert(name.to_owned(), value);
            }
        }
        None => *body = value,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_field_of_a_submission_may_be_anything(
        changes in prop::collection::vec((prop::sample::select(POINTERS), any_json()), 1..4),
    ) {
        let mut body = submission();
        for (pointer, value) in changes {
            put(&mut body, pointer, value);
        }
        let reply = run(World::new().submit(&body));
        prop_assert!([202, 422].contains(&reply.status.as_u16()), "{body} {reply:?}");
        if reply.status == 422 {
            prop_assert!(!reply.pointers().is_empty());
        }
    }

    #[test]
    fn any_bytes_are_an_answerable_body(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let reply = run(World::new().call(with_body(Method::POST, CALLS, bytes)));
        prop_assert!([400, 422].contains(&reply.status.as_u16()), "{reply:?}");
    }

    #[test]
    fn any_path_and_query_is_answered_as_documented(
        route in prop::sample::select(routes()),
        parameter in ".{0,40}",
        query in "[ -~]{0,40}",
        correlation in prop::option::of("[ -~]{0,40}"),
    ) {
        let encoded: String = form_urlencoded::byte_serialize(parameter.as_bytes()).collect();
        let mut path = route.template.to_owned();
        for name in ["{tenantId}", "{serviceCallId}", "{correlationId}"] {
            path = path.replace(name, &encoded);
        }
        let query: String = query.chars().filter(|c| !" \"<>#`{}|\\^".contains(*c)).collect();
        let mut req = Request::builder().method(route.method.clone()).uri(format!("{path}?{query}"));
        if let Some(correlation) = correlation {
            req = req.header("x-correlation-id", correlation);
        }
        let Ok(req) = req.header("content-type", "application/json").body(Body::from("{}")) else {
            return Ok(());
        };
        let reply = run(World::new().call(req));
        let document = openapi_document();
        let operation = &document["paths"][route.template][route.method.as_str().to_lowercase()];
        let status = reply.status.as_u16().to_string();
        prop_assert!(reply.status.as_u16() < 500, "{reply:?}");
        prop_assert!(operation["responses"].get(&status).is_some(), "{path} {status}");
    }
}

#[tokio::test]
async fn names_that_mean_something_elsewhere_are_refused_or_inert() {
    let world = World::new();
    for name in [
        "'; DROP TABLE service_calls; --",
        "a.b",
        "*",
        ">",
        "\"",
        "日本",
    ] {
        let mut body = submission();
        body["name"] = json!(name);
        body["tags"] = json!([name]);
        world.submit(&body).await.expect(202);
        let tag: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let found = world
            .get(&format!("{CALLS}?tag={tag}"))
            .await
            .expect(200)
            .json();
        assert_eq!(found["items"][0]["name"], name);
        assert_eq!(found["items"].as_array().unwrap().len(), 1, "{name}");
    }
}
