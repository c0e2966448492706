//! Every limit, just below it, at it and just above.

use axum::http::Method;
use serde_json::{Value, json};

use crate::world::{CALLS, World, submission, with_body};

/// Submits with one thing changed; says whether it was taken, or which field was named.
async fn submit(change: impl FnOnce(&mut Value)) -> Result<(), Vec<String>> {
    let mut body = submission();
    change(&mut body);
    let reply = World::new().submit(&body).await;
    match reply.status.as_u16() {
        202 => Ok(()),
        _ => Err(reply.expect(422).pointers()),
    }
}

/// A limit of something that a submission has.
struct Limit {
    pointer: &'static str,
    most: usize,
    of: fn(usize) -> Value,
}

const LIMITS: &[Limit] = &[
    Limit {
        pointer: "/name",
        most: 200,
        of: |n| json!("n".repeat(n)),
    },
    Limit {
        pointer: "/name",
        most: 200,
        of: |n| json!("ä".repeat(n)),
    },
    Limit {
        pointer: "/idempotencyKey",
        most: 200,
        of: |n| json!("k".repeat(n)),
    },
    Limit {
        pointer: "/tags/0",
        most: 64,
        of: |n| json!("t".repeat(n)),
    },
    Limit {
        pointer: "/tags",
        most: 50,
        of: |n| (0..n).map(|i| i.to_string()).collect(),
    },
    Limit {
        pointer: "/requestSpec/url",
        most: 2_048,
        of: |n| json!(format!("http://a/{}", "u".repeat(n - 9))),
    },
    Limit {
        pointer: "/requestSpec/headers",
        most: 64,
        of: |n| {
            (0..n)
                .map(|i| (format!("h{i}"), json!("v")))
                .collect::<serde_json::Map<_, _>>()
                .into()
        },
    },
    Limit {
        pointer: "/requestSpec/headers",
        most: 16_384,
        of: |n| json!({ "x": "v".repeat(n - 1) }),
    },
    Limit {
        pointer: "/requestSpec/body",
        most: 262_144,
        of: |n| json!("b".repeat(n)),
    },
    Limit {
        pointer: "/requestSpec/body",
        most: 262_144,
        of: |n| json!("\u{1}".repeat(n)),
    },
];

#[tokio::test]
async fn every_limit_of_a_submission_holds_at_its_edge() {
    for limit in LIMITS {
        for (length, fits) in [
            (limit.most - 1, true),
            (limit.most, true),
            (limit.most + 1, false),
        ] {
            let value = (limit.of)(length);
            let answer = submit(|body| match limit.pointer {
                "/tags/0" => body["tags"] = json!([value]),
                "/name" => body["name"] = value,
                "/tags" => body["tags"] = value,
                "/idempotencyKey" => body["idempotencyKey"] = value,
                inner => body["requestSpec"][inner.rsplit('/').next().unwrap()] = value,
            })
            .await;
            let expected = if fits {
                Ok(())
            } else {
                Err(vec![limit.pointer.to_owned()])
            };
            assert_eq!(answer, expected, "{} {length}", limit.pointer);
        }
    }
}

#[tokio::test]
async fn what_has_a_least_length_has_it() {
    for (pointer, field) in [("/name", "name"), ("/idempotencyKey", "idempotencyKey")] {
        let answer = submit(|body| body[field] = json!("")).await;
        assert_eq!(answer, Err(vec![pointer.to_owned()]));
    }
    assert_eq!(
        submit(|body| body["tags"] = json!([""])).await,
        Err(vec!["/tags/0".to_owned()])
    );
}

#[tokio::test]
async fn instants_reach_from_1970_to_9998() {
    for (instant, fits) in [
        ("1969-12-31T23:59:59.999Z", false),
        ("1970-01-01T00:00:00Z", true),
        ("9998-12-31T23:59:59.999Z", true),
        ("9999-01-01T00:00:00Z", false),
        ("2026-12-24T23:59:60Z", false),
        ("2026-02-30T00:00:00Z", false),
    ] {
        let answer = submit(|body| body["dueAt"] = json!(instant)).await;
        assert_eq!(answer.is_ok(), fits, "{instant}");
        let encoded = instant.replace('+', "%2B");
        let reply = World::new().get(&format!("{CALLS}?from={encoded}")).await;
        assert_eq!(reply.status.is_success(), fits, "{instant}");
    }
}

#[tokio::test]
async fn a_page_has_one_to_a_thousand() {
    let world = World::new();
    for (limit, fits) in [
        ("0", false),
        ("1", true),
        ("999", true),
        ("1000", true),
        ("1001", false),
        ("-1", false),
        ("+1", false),
        ("1.0", false),
        ("", false),
        ("x", false),
        ("99999999999999999999999", false),
    ] {
        let reply = world.get(&format!("{CALLS}?limit={limit}")).await;
        let reply = reply.expect(if fits { 200 } else { 422 });
        if !fits {
            assert_eq!(reply.pointers(), ["/query/limit"], "{limit}");
        }
    }
}

#[tokio::test]
async fn a_tenant_has_128_characters() {
    let world = World::new();
    for (length, fits) in [(127, true), (128, true), (129, false)] {
        let path = format!("/api/tenants/{}/service-calls", "t".repeat(length));
        let reply = world.get(&path).await.expect(if fits { 200 } else { 422 });
        if !fits {
            assert_eq!(reply.pointers(), ["/path/tenantId"]);
        }
    }
}

#[tokio::test]
async fn fifty_tags_can_be_queried() {
    let world = World::new();
    for (number, status) in [(49, 200), (50, 200), (51, 422)] {
        let tags: Vec<String> = (0..number).map(|n| format!("tag=t{n}")).collect();
        let path = format!("{CALLS}?{}", tags.join("&"));
        world.get(&path).await.expect(status);
    }
}

#[tokio::test]
async fn a_body_has_two_mebibytes() {
    let world = World::new();
    let most = 2 * 1_024 * 1_024;
    let right = submission().to_string();
    for (length, status) in [
        (most - 1, 202),
        (most, 202),
        (most + 1, 413),
        (most * 3, 413),
    ] {
        // Blanks after the JSON are no part of it, but of the body.
        let body = format!("{right}{}", " ".repeat(length - right.len()));
        world
            .call(with_body(Method::POST, CALLS, body.clone()))
            .await
            .expect(status);
        // The same without a length that is announced.
        let pieces: Vec<Result<_, std::io::Error>> = body
            .as_bytes()
            .chunks(100_000)
            .map(|piece| Ok(axum::body::Bytes::copy_from_slice(piece)))
            .collect();
        let stream = axum::body::Body::from_stream(futures_util::stream::iter(pieces));
        world
            .call(with_body(Method::POST, CALLS, stream))
            .await
            .expect(status);
    }
}

#[tokio::test]
async fn a_body_of_escapes_fits() {
    let world = World::new();
    let mut body = submission();
    body["requestSpec"]["body"] = json!("\u{1}".repeat(262_144));
    body["name"] = json!("\u{1F600}".repeat(200));
    assert!(body.to_string().len() > 6 * 262_144);
    world.submit(&body).await.expect(202);
}
