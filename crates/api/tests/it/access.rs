//! Who may see what: every route of the table, with every kind of token.

use axum::body::Body;
use axum::http::{Method, Request};
use punctual_api::{Access, Route, routes};
use serde_json::json;

use crate::world::{CALLS, ID, OTHER_ID, Reply, World, request, submission, with_body};

/// A request to a route that would be right, for tenant `a`.
fn right(route: &Route) -> Request<Body> {
    let path = route
        .template
        .replace("{tenantId}", "a")
        .replace("{serviceCallId}", OTHER_ID)
        .replace("{correlationId}", OTHER_ID);
    if !route.body {
        return request(route.method.clone(), &path);
    }
    let body = match path.as_str() {
        CALLS => submission(),
        batch if batch.ends_with(":batch") => {
            json!({ "timers": [{ "serviceCallId": ID, "dueAt": "2027-01-01T00:00:00Z" }] })
        }
        _ => json!({ "dueAt": "2027-01-01T00:00:00Z" }),
    };
    with_body(route.method.clone(), &path, body.to_string())
}

/// The names of an answer's headers.
fn names(reply: &Reply) -> Vec<String> {
    reply.headers.keys().map(ToString::to_string).collect()
}

async fn ask_as(world: &World, route: &Route, authorization: Option<&str>) -> Reply {
    let mut request = right(route);
    if let Some(value) = authorization {
        let value = value.parse().unwrap();
        request.headers_mut().insert("authorization", value);
    }
    world.call(request).await
}

#[tokio::test]
async fn every_route_knows_who_may_ask() {
    for route in routes() {
        let world = World::new().with_tokens();
        let what = format!("{} {}", route.method, route.template);
        let answers = |authorization| ask_as(&world, route, authorization);
        let unknown = [
            None,
            Some("Bearer nobodys"),
            Some("Bearer "),
            Some("Bearer"),
            Some("Basic of-a"),
            Some("of-a"),
        ];
        for authorization in unknown {
            let reply = answers(authorization).await;
            if route.access == Access::Open {
                assert!(reply.status.is_success(), "{what}");
            } else {
                let reply = reply.expect(401);
                let challenge = reply.header("www-authenticate");
                assert!(challenge.starts_with("Bearer "), "{what}");
            }
        }
        // What is right is found out last: it may change what is there.
        let elsewhere = answers(Some("Bearer of-b")).await;
        let of_tenant = answers(Some("bearer of-a")).await;
        let of_all = answers(Some("Bearer of-all")).await;
        match route.access {
            Access::Open => {
                assert!(elsewhere.status.is_success() && of_tenant.status.is_success());
            }
            Access::Tenant => {
                elsewhere.expect(404);
                let allowed = of_tenant.status.as_u16();
                assert!([200, 201, 202, 404].contains(&allowed), "{what}: {allowed}");
                if allowed == 404 {
                    // Nothing is there, so the two answers may differ in nothing.
                    let elsewhere = answers(Some("Bearer of-b")).await;
                    assert_eq!(names(&elsewhere), names(&of_tenant));
                    assert_eq!(
                        elsewhere.without_correlation(),
                        of_tenant.without_correlation()
                    );
                }
            }
            Access::Everything => {
                elsewhere.clone().expect(404);
                of_tenant.clone().expect(404);
                // What a tenant's token may not see reads as if it were absent.
                assert_eq!(names(&of_tenant), names(&elsewhere));
                let nothing = elsewhere.without_correlation();
                assert_eq!(of_tenant.without_correlation(), nothing);
                if of_all.status.as_u16() == 404 {
                    assert_eq!(of_all.without_correlation(), nothing);
                } else {
                    of_all.clone().expect(200);
                }
            }
        }
        assert_ne!(of_all.status.as_u16(), 401, "{what}");
    }
}

#[tokio::test]
async fn nothing_below_api_is_open() {
    for route in routes() {
        let below_api = route.template.starts_with("/api/");
        assert_eq!(
            below_api,
            route.access != Access::Open,
            "{}",
            route.template
        );
        let names_tenant = route.template.starts_with("/api/tenants/{tenantId}/");
        assert_eq!(
            names_tenant,
            route.access == Access::Tenant,
            "{}",
            route.template
        );
    }
}

#[tokio::test]
async fn another_tenants_call_is_indistinguishable_from_an_absent_one() {
    let world = World::new();
    let mut body = submission();
    body["serviceCallId"] = json!(ID);
    world.submit(&body).await.expect(202);
    for method in [Method::GET, Method::DELETE] {
        let of = |tenant: &str, id: &str| {
            let path = format!("/api/tenants/{tenant}/service-calls/{id}");
            request(method.clone(), &path)
        };
        let theirs = world.call(of("b", ID)).await.expect(404);
        let absent = world.call(of("b", OTHER_ID)).await.expect(404);
        assert_eq!(theirs.without_correlation(), absent.without_correlation());
        assert_eq!(names(&theirs), names(&absent));
    }
    let found = world.get(&format!("{CALLS}/{ID}")).await;
    found.expect(200);
}

#[tokio::test]
async fn authorisation_comes_before_validation() {
    let world = World::new().with_tokens();
    let mut bad = with_body(Method::POST, "/api/tenants/a.b/service-calls?x=1", "{");
    let wrong = "not-a-uuid".parse().unwrap();
    bad.headers_mut().insert("x-correlation-id", wrong);
    world.call(bad).await.expect(401);
    let mut bad = with_body(Method::POST, "/api/tenants/a.b/service-calls", "{}");
    let token = "Bearer of-a".parse().unwrap();
    bad.headers_mut().insert("authorization", token);
    world.call(bad).await.expect(404);
}

#[tokio::test]
async fn a_trace_is_for_who_may_see_all() {
    let world = World::new();
    let reply = world.submit(&submission()).await.expect(202);
    let correlation = reply.json()["correlationId"].as_str().unwrap().to_owned();
    let path = format!("/api/correlations/{correlation}");
    let trace = world.get(&path).await.expect(200).json();
    assert_eq!(trace["calls"][0]["name"], "remind Ada");
    assert_eq!(trace["steps"][0]["what"], "ServiceCallSubmitted");
    let world = world.with_tokens();
    for (token, status) in [("of-a", 404), ("of-b", 404), ("of-all", 200)] {
        let mut req = request(Method::GET, &path);
        let value = format!("Bearer {token}").parse().unwrap();
        req.headers_mut().insert("authorization", value);
        world.call(req).await.expect(status);
    }
}

#[tokio::test]
async fn two_tokens_are_none() {
    let world = World::new().with_tokens();
    let mut req = request(Method::GET, CALLS);
    for token in ["Bearer of-b", "Bearer of-a"] {
        req.headers_mut()
            .append("authorization", token.parse().unwrap());
    }
    world.call(req).await.expect(401);
}

/// A page whose name leads to this machine speaks through a browser that believes it.
#[tokio::test]
async fn without_tokens_only_this_machine_is_answered() {
    for route in routes() {
        let world = World::new();
        let call = async |host: &str| {
            let mut request = right(route);
            request.headers_mut().insert("host", host.parse().unwrap());
            world.call(request).await.status.as_u16()
        };
        let what = format!("{} {}", route.method, route.template);
        if route.access == Access::Open {
            assert_eq!(call("evil.example").await, 200, "{what}");
        } else {
            assert_eq!(call("evil.example:8080").await, 401, "{what}");
        }
        for host in ["127.0.0.1:8080", "localhost:8080", "[::1]"] {
            assert_ne!(call(host).await, 401, "{what} {host}");
        }
    }
}
