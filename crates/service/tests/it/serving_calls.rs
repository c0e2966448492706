//! Service calls as their users meet them: over HTTP, by `call` and `trace`, on one file or on two.

use std::time::Duration;

use punctual_ports::ClockPort;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api_client::{
    Answer, Api, CALLS, FINISHED, call, calls_command, clock, due_in, serve_calls,
};
use crate::running::{Home, run};
use crate::target::Target;

#[test]
fn a_call_is_scheduled_made_once_logged_found_and_traced() {
    let (home, target) = (Home::new(), Target::start());
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    let due_at = due_in(Duration::from_secs(1));
    let mut body = call(&target.url("/slow/300/hello"), due_at);
    body["tags"] = json!(["greeting", "first"]);
    body["requestSpec"]["method"] = json!("POST");
    body["requestSpec"]["body"] = json!("{\"say\":\"hello\"}");
    let answer = api.ask("POST", CALLS, Some(&body));
    assert_eq!(answer.status, 202, "{answer:?}");
    let accepted = answer.json();
    let id = accepted["serviceCallId"].as_str().unwrap();
    assert_eq!(
        answer.header("location"),
        Some(format!("{CALLS}/{id}").as_str())
    );
    assert_eq!(api.get(&format!("{CALLS}/{id}"))["status"], "Scheduled");
    api.wait_for(id, &["Running"]);
    let made = api.wait_for(id, FINISHED);
    assert_eq!(made["status"], "Succeeded", "{made}");
    assert_eq!(made["outcome"]["responseMeta"]["status"], 200);
    assert_eq!(
        made["executionLog"][0]["responseMeta"]["bodySnippet"],
        "hello"
    );
    assert_eq!(made["timer"]["state"], "Reached");

    let seen = target.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    let request = &seen[0];
    assert!(request.at >= due_at);
    assert_eq!(
        (request.method.as_str(), request.body.as_str()),
        ("POST", "{\"say\":\"hello\"}")
    );
    let execution = made["executionLog"][0]["executionId"].as_str().unwrap();
    assert_eq!(request.header("idempotency-key"), Some(execution));
    let correlation = accepted["correlationId"].as_str().unwrap();
    assert_eq!(request.header("x-correlation-id"), Some(correlation));
    let trace_id = correlation.replace('-', "");
    assert!(
        request
            .header("traceparent")
            .unwrap()
            .starts_with(&format!("00-{trace_id}-"))
    );

    for (query, count) in [
        ("tag=greeting&tag=first&status=Succeeded", 1),
        ("tag=greeting&tag=other", 0),
        ("status=Failed", 0),
    ] {
        let page = api.get(&format!("{CALLS}?{query}"));
        assert_eq!(
            page["items"].as_array().unwrap().len(),
            count,
            "{query}: {page}"
        );
    }
    let what = |trace: &Value| -> Vec<String> {
        let steps = trace["steps"].as_array().unwrap().iter();
        steps
            .map(|step| step["what"].as_str().unwrap().to_owned())
            .collect()
    };
    let whole = [
        "ServiceCallSubmitted",
        "ScheduleTimer",
        "ServiceCallScheduled",
        "DueTimeReached",
        "ServiceCallRunning",
        "StartExecution",
        "ExecutionStarted",
        "ExecutionSucceeded",
        "ServiceCallSucceeded",
    ];
    assert_eq!(
        what(&api.get(&format!("/api/correlations/{correlation}"))),
        whole
    );
    let mut command = home.command(&format!("trace --correlation {correlation}"));
    command
        .env_remove("MODULES")
        .env_remove("TIMER_DB_PATH")
        .env("DB_PATH", home.path("calls.db"));
    let traced = run(&mut command);
    assert_eq!(traced.code, Some(0), "{traced:?}");
    assert_eq!(what(&serde_json::from_str(&traced.stdout).unwrap()), whole);
    let table = run(command.args(["--output", "table"]));
    assert!(table.stdout.contains("(greet): Succeeded"), "{table:?}");
}

#[test]
fn no_secret_comes_out_anywhere_but_at_the_target() {
    let (home, target) = (Home::new(), Target::start());
    let mut command = calls_command(&home);
    let (serving, api) = serve_calls(command.args(["--log-level", "trace"]));
    let mut body = call(&target.url("/echo?token=query-canary"), clock().now());
    body["requestSpec"]["headers"] = json!({
        "Authorization": "Bearer header-canary", "Cookie": "session=cookie-canary", "X-Api-Key": "key-canary",
    });
    let accepted = api.ask("POST", CALLS, Some(&body));
    let id = accepted.json()["serviceCallId"]
        .as_str()
        .unwrap()
        .to_owned();
    let made = api.wait_for(&id, FINISHED);
    assert_eq!(made["status"], "Succeeded", "{made}");
    let seen = target.seen();
    assert_eq!(
        seen[0].header("authorization"),
        Some("Bearer header-canary")
    );
    let correlation = made["correlationId"].as_str().unwrap().to_owned();
    // Also in a refusal that is about the very value.
    let mut refused = body.clone();
    refused["requestSpec"]["headers"]["Authorization"] = json!("Bearer header-canary\r\n");
    let said: Vec<Answer> = [
        api.ask("POST", CALLS, Some(&refused)),
        api.ask("GET", CALLS, None),
        api.ask("GET", &format!("/api/correlations/{correlation}"), None),
        api.ask("GET", "/metrics", None),
    ]
    .into();
    for answer in said
        .iter()
        .map(|answer| format!("{answer:?}"))
        .chain([made.to_string()])
    {
        assert!(!answer.contains("canary"), "{answer}");
    }
    serving.signal(Signal::TERM);
    let ended = serving.end();
    assert_eq!(ended.code, Some(0));
    assert!(!ended.stderr.contains("canary"), "the log has a secret");
    assert!(!ended.stdout.contains("canary"));
    let database = rusqlite::Connection::open(home.path("calls.db")).unwrap();
    for table in [
        "service_calls",
        "http_execution_log",
        "outbox",
        "submissions",
    ] {
        let mut rows = database.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for column in 0..columns {
                let value = format!("{:?}", row.get_ref(column).unwrap());
                let text = row.get::<_, String>(column).unwrap_or(value);
                assert!(!text.contains("canary"), "{table}: {text}");
            }
        }
    }
}

#[test]
fn who_may_listen_where_and_who_may_ask() {
    let home = Home::new();
    let open = run(calls_command(&home).args(["--listen", "0.0.0.0:0"]));
    assert_eq!(open.code, Some(2), "given twice: {open:?}");
    let mut command = home.command("serve --listen 0.0.0.0:0");
    let open = run(command.env_remove("MODULES").env_remove("TIMER_DB_PATH"));
    assert_eq!(open.code, Some(3), "{open:?}");
    assert!(open.stderr.contains("API_TOKENS_FILE"), "{open:?}");
    assert!(!home.path("data").exists(), "nothing was made");

    let hash = punctual_api::hash_token("sesame");
    let tokens = home.path("tokens");
    std::fs::write(&tokens, format!("demo:{hash}\n")).unwrap();
    let mut command = calls_command(&home);
    let (_serving, api) = serve_calls(command.arg("--tokens").arg(&tokens));
    let ask =
        |path: &str, token: &[(&str, &str)]| api.try_send("GET", path, token, None).unwrap().status;
    let right = [("Authorization", "Bearer sesame")];
    assert_eq!(ask(CALLS, &[]), 401);
    assert_eq!(ask(CALLS, &[("Authorization", "Bearer open")]), 401);
    assert_eq!(ask(CALLS, &right), 200);
    assert_eq!(ask("/api/tenants/other/service-calls", &right), 404);
    assert_eq!(ask("/healthz", &[]), 200);
}

#[test]
fn an_address_that_is_taken_is_refused_before_anything_is_made() {
    let (home, other) = (Home::new(), Home::new());
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    let mut command = other.command(&format!("serve --listen {}", api.0));
    let refused = run(command.env_remove("MODULES").env_remove("TIMER_DB_PATH"));
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("--listen"), "{refused:?}");
    assert!(!other.path("data").exists(), "nothing was made");
}

#[test]
fn call_submits_and_follows_to_the_outcome() {
    let (home, target) = (Home::new(), Target::start());
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    let call = |url: &str, more: &str| {
        home.run(&format!(
            "call --tenant demo --in 100ms --url {url} --api http://{} {more}",
            api.0
        ))
    };
    let good = call(
        &target.url("/hello"),
        "--header Accept:text/plain --tag one",
    );
    assert_eq!(good.code, Some(0), "{good:?}");
    let outcome: Value = serde_json::from_str(&good.stdout).unwrap();
    assert_eq!(outcome["status"], "Succeeded");
    assert!(good.stderr.contains("Scheduled"), "{good:?}");
    let bad = call(&target.url("/status/500"), "--output table");
    assert_eq!(bad.code, Some(1), "{bad:?}");
    let said = bad.stderr.matches("HttpStatus: the target answered 500");
    assert_eq!(said.count(), 1, "{bad:?}");
    let forbidden = call("http://10.1.2.3/", "--output table");
    assert!(
        forbidden.stderr.contains("TargetNotAllowed"),
        "{forbidden:?}"
    );
    assert!(
        forbidden.stderr.contains("EXECUTION_ALLOW_NETS"),
        "{forbidden:?}"
    );
    let wrong = call("ftp://nowhere", "");
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("/requestSpec/url"), "{wrong:?}");
    let nobody = home.run("call --tenant demo --url http://a --api http://127.0.0.1:9");
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    assert!(nobody.stderr.contains("no service answers"), "{nobody:?}");
}

#[test]
fn a_target_that_hangs_holds_up_no_other_and_is_cut_off_when_we_stop() {
    let (home, target) = (Home::new(), Target::start());
    let mut command = calls_command(&home);
    let (serving, api) = serve_calls(command.env("EXECUTION_TIMEOUT", "1500"));
    let now = clock().now();
    let hanging: Vec<String> = (0..20)
        .map(|n| api.submit(&call(&target.url(&format!("/slow/600000/{n}")), now)))
        .collect();
    let quick = api.submit(&call(&target.url("/quick"), now));
    assert_eq!(api.wait_for(&quick, FINISHED)["status"], "Succeeded");
    for id in &hanging {
        let call = api.wait_for(id, FINISHED);
        assert_eq!(call["outcome"]["errorMeta"]["kind"], "Timeout", "{call}");
    }
    let last = api.submit(&call(&target.url("/slow/1000/last"), clock().now()));
    api.wait_for(&last, &["Running"]);
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    let last = api.wait_for(&last, FINISHED);
    assert_eq!(last["status"], "Succeeded", "it was drained: {last}");
}

#[test]
fn timers_may_have_a_file_of_their_own_and_then_an_interface_too() {
    let (home, target) = (Home::new(), Target::start());
    let mut command = calls_command(&home);
    let (serving, api) = serve_calls(command.env("TIMER_DB_PATH", home.path("timer.db")));
    // By its timer, in the other file.
    let soon = due_in(Duration::from_millis(200));
    let id = api.submit(&call(&target.url("/two"), soon));
    assert_eq!(api.wait_for(&id, FINISHED)["status"], "Succeeded");
    let later = api.submit(&call(
        &target.url("/never"),
        due_in(Duration::from_hours(1)),
    ));
    assert_eq!(
        api.ask("DELETE", &format!("{CALLS}/{later}"), None).status,
        204
    );
    let timer = "/api/tenants/demo/timers/0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";
    let own = json!({"dueAt": "2100-01-01T00:00:00Z"});
    let put = api.ask("PUT", timer, Some(&own));
    assert_eq!(put.status, 201, "{put:?}");
    assert_eq!(api.get(timer)["state"], "Scheduled");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
    assert!(home.path("timer.db").exists() && home.path("calls.db").exists());
}

#[test]
fn timers_alone_can_be_scheduled_over_http_and_fire_as_lines() {
    let home = Home::new();
    let mut command = home.command("serve --modules api,timer --listen 127.0.0.1:0");
    let mut serving = crate::running::Running::start(command.env_remove("MODULES"));
    let line = serving.wait_until_it_says("serving timers");
    let line: Value = serde_json::from_str(&line).unwrap();
    let address = line["api"].as_str().unwrap().trim_start_matches("http://");
    let api = Api(address.parse().unwrap());
    let timer = "/api/tenants/demo/timers/0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e";
    let now = clock().now();
    assert_eq!(
        api.ask("PUT", timer, Some(&json!({"dueAt": now, "data": 7})))
            .status,
        201
    );
    assert_eq!(serving.firing().due_at, now);
    let absent = api.ask("GET", CALLS, None);
    assert_eq!(absent.status, 404, "{absent:?}");
}

#[test]
fn it_says_how_it_is_and_what_it_counts() {
    let (home, target) = (Home::new(), Target::start());
    let (_serving, api) = serve_calls(&mut calls_command(&home));
    let soon = due_in(Duration::from_millis(200));
    let id = api.submit(&call(&target.url("/counted"), soon));
    api.wait_for(&id, FINISHED);
    assert_eq!(api.ask("GET", "/healthz", None).status, 200);
    let alone = api.get("/api/instances");
    assert_eq!(alone["instances"].as_array().unwrap().len(), 1, "{alone}");
    let ready = api.ask("GET", "/readyz", None);
    assert_eq!(ready.status, 200, "{ready:?}");
    let metrics = api.ask("GET", "/metrics", None).body;
    for name in [
        "timer_commands_received_total",
        "timer_schedules_processed_total",
        "timer_polling_duration_seconds",
        "timer_lateness_seconds",
        "timer_pending",
        "timer_overdue",
        "timer_last_poll_timestamp_seconds",
        "timer_permanent_errors_total",
        "outbox_unpublished",
        "execution_duration_seconds",
        "calls_submitted_total",
        "calls_finished_total",
        "http_requests_total",
        "call_lateness_seconds_count 1",
        "executions_waiting 0",
        "executions_running 0",
        "database_size_bytes{database=\"timers\"}",
        "database_log_size_bytes{database=\"timers\"}",
        "clock_steps_total{direction=\"back\"} 0",
    ] {
        assert!(metrics.contains(name), "{name} is not in {metrics}");
    }
    assert!(!metrics.contains("demo"), "a tenant is in a label");
}

#[test]
fn a_hangup_reads_the_tokens_again_and_never_ends_it() {
    let home = Home::new();
    let tokens = home.path("tokens");
    let write = |token: &str| {
        let hash = punctual_api::hash_token(token);
        std::fs::write(&tokens, format!("demo:{hash}\n")).unwrap();
    };
    write("old");
    let mut command = calls_command(&home);
    let (mut serving, api) = serve_calls(command.arg("--tokens").arg(&tokens));
    let ask = |token: &str| {
        let bearer = format!("Bearer {token}");
        let answer = api.try_send("GET", CALLS, &[("Authorization", &bearer)], None);
        answer.unwrap().status
    };
    assert_eq!((ask("old"), ask("new")), (200, 401));
    write("new");
    serving.signal(Signal::HUP);
    let said = serving.wait_until_it_says("SIGHUP");
    assert!(said.contains("\"tokens\":1"), "{said}");
    assert_eq!((ask("old"), ask("new")), (401, 200));
    std::fs::write(&tokens, "demo:sesame\n").unwrap();
    serving.signal(Signal::HUP);
    let said = serving.wait_until_it_says("tokens were not reloaded");
    assert!(said.contains("ERROR") && !said.contains("sesame"), "{said}");
    assert_eq!((ask("old"), ask("new")), (401, 200));
    let metrics = api.ask("GET", "/metrics", None).body;
    assert!(metrics.contains("http_unauthorized_total 3"), "{metrics}");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
}

#[test]
fn a_hangup_with_nothing_to_read_again_ends_nothing() {
    let home = Home::new();
    let mut serving = home.serve();
    for _ in 0..2 {
        serving.signal(Signal::HUP);
        serving.wait_until_it_says("SIGHUP");
    }
    home.json("schedule --tenant a --in 0s");
    serving.firing();
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, Some(0));
}

#[test]
fn a_failed_call_is_a_line_of_the_log_and_many_are_a_few() {
    const FAILING: usize = 40;
    let (home, target) = (Home::new(), Target::start());
    let (serving, api) = serve_calls(&mut calls_command(&home));
    let ids: Vec<String> = (0..FAILING)
        .map(|_| {
            api.submit(&call(
                &target.url("/status/500?token=canary"),
                clock().now(),
            ))
        })
        .collect();
    for id in &ids {
        assert_eq!(api.wait_for(id, FINISHED)["status"], "Failed");
    }
    let metrics = api.ask("GET", "/metrics", None).body;
    let counted = format!("calls_finished_total{{status=\"Failed\"}} {FAILING}");
    assert!(metrics.contains(&counted), "{metrics}");
    serving.signal(Signal::TERM);
    let log = serving.end().stderr;
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("a call has failed"))
        .collect();
    // Five in each ten seconds, however long it took.
    assert!((5..FAILING).contains(&lines.len()), "{lines:?}");
    for line in lines {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "INFO", "{line}");
        assert_eq!(line["kind"], "HttpStatus", "{line}");
        assert_eq!(line["reason"], "the target answered 500", "{line}");
    }
    assert!(!log.contains("canary"), "{log}");
}
