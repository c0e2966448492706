//! Serving timers from PostgreSQL: alone, several at once, and through outages of any of them.

use std::process::Command;
use std::time::Duration;

use punctual_adapters_system::SystemClock;
use punctual_ports::ClockPort;
use punctual_test_servers::{PgBouncer, PostgresServer, SharedSchema, psql};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::api_client::Api;
use crate::broker::Broker;
use crate::running::{Ended, Home, PATIENCE, Running, firings, instant, run};

/// Where the timers of a test are.
pub(crate) struct Database {
    home: Home,
    url: String,
    schema: Option<SharedSchema>,
}

impl Database {
    /// A schema of its own on the shared server; `None` if there is none.
    pub(crate) fn shared() -> Option<Self> {
        let schema = SharedSchema::create()?;
        Some(Self {
            home: Home::new(),
            url: schema.url().to_owned(),
            schema: Some(schema),
        })
    }

    /// A server of the test's own.
    fn on(server: &PostgresServer) -> Self {
        Self {
            home: Home::new(),
            url: server.url(),
            schema: None,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The schema of the tables.
    pub(crate) fn schema(&self) -> &str {
        self.schema.as_ref().map_or("public", SharedSchema::name)
    }

    /// The binary with this database.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = self.home.command(line);
        self.set(&mut command);
        command
    }

    fn set(&self, command: &mut Command) {
        command
            .env_remove("TIMER_DB_PATH")
            .env("DATABASE_URL", &self.url);
        if let Some(schema) = &self.schema {
            command.env("DATABASE_SCHEMA", schema.name());
        }
    }

    fn run(&self, line: &str) -> Ended {
        run(&mut self.command(line))
    }

    /// Runs a command that has to succeed, and reads its one line of JSON.
    fn json(&self, line: &str) -> Value {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
        serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{line}: {ended:?}"))
    }

    fn serve(&self) -> Running {
        let mut serving = Running::start(&mut self.command("serve"));
        serving.wait_until_ready();
        serving
    }

    /// Serves with an API.
    fn serve_api(&self) -> (Running, Api) {
        let mut command = self.command("serve --modules api,timer --listen 127.0.0.1:0");
        let mut serving = Running::start(&mut command);
        let line = serving.wait_until_it_says("serving timers");
        let said: Value = serde_json::from_str(&line).unwrap();
        let api = said["api"].as_str().unwrap().trim_start_matches("http://");
        (serving, Api(api.parse().unwrap()))
    }

    /// Schedules many timers, named by their numbers.
    fn schedule_many(&self, count: usize, after: Duration, data: &str) {
        let clock = SystemClock::start().unwrap();
        let due = clock.now().saturating_add(after);
        let mut lines = String::new();
        for n in 0..count {
            let timer = json!({"tenantId": "a", "name": n.to_string(), "dueAt": due, "data": data});
            lines.push_str(&timer.to_string());
            lines.push('\n');
        }
        let file = self.home.path("batch.jsonl");
        std::fs::write(&file, lines).unwrap();
        let ended = self.run(&format!("schedule --batch {}", file.display()));
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    fn wait_until_all_have_fired(&self, limit: Duration) {
        until(limit, || {
            let left = self.json("list --tenant a --state scheduled --limit 1");
            let is_empty = left["items"].as_array().is_some_and(Vec::is_empty);
            is_empty.then_some(()).ok_or_else(|| left.to_string())
        });
    }
}

/// Repeats a check until it succeeds.
fn until<T>(limit: Duration, mut check: impl FnMut() -> Result<T, String>) -> T {
    let clock = SystemClock::start().unwrap();
    let begun = clock.monotonic();
    loop {
        match check() {
            Ok(found) => return found,
            Err(why) => {
                let waited = clock.monotonic().saturating_sub(begun);
                assert!(waited < limit, "still after {waited:?}: {why}");
            }
        }
    }
}

fn stop(serving: Running) -> Ended {
    serving.signal(Signal::TERM);
    let ended = serving.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

#[test]
fn timers_are_served_and_every_command_works_beside_it() {
    let Some(database) = Database::shared() else {
        return;
    };
    let before = database.json("migrate --status");
    assert_eq!(before["pending"], 5, "{before}");
    let missing = database.run("get --tenant a --name x");
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(
        missing.stderr.contains("has no tables of ours"),
        "{missing:?}"
    );
    let migrated = database.json("migrate");
    assert_eq!(
        (&migrated["appliedNow"], &migrated["pending"]),
        (&5.into(), &0.into())
    );
    let serving = database.serve();
    let timer = database.json("schedule --tenant a --name x --in 300ms --data {\"say\":\"tea\"}");
    let event = serving.firing();
    assert_eq!(event.service_call_id.to_string(), timer["serviceCallId"]);
    assert!(event.reached_at >= event.due_at && event.due_at == instant(&timer["dueAt"]));
    assert!(event.reached_at.since(event.due_at) < Duration::from_millis(500));
    assert_eq!(event.data.unwrap().as_json(), "{\"say\":\"tea\"}");
    database.json("schedule --tenant a --name later --in 1h");
    assert_eq!(
        database.json("cancel --tenant a --name later")["outcome"],
        "deleted"
    );
    let again = database.run("schedule --tenant a --name x --in 1h");
    assert!(
        again.stderr.contains("has fired already: give --replace"),
        "{again:?}"
    );
    // Only the mark is not awaited: the line is written before it.
    let correlation = timer["correlationId"].as_str().unwrap();
    let traced = database.json(&format!("trace --correlation {correlation}"));
    assert_eq!(traced["items"][0]["serviceCallId"], timer["serviceCallId"]);
    assert_eq!(
        database.json("list --tenant a")["items"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(
        database.json("dead-letters")["items"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
    let ended = stop(serving);
    assert_eq!(ended.stdout, "");
    assert_eq!(database.json("get --tenant a --name x")["state"], "Reached");
    assert!(!database.home.db().exists() && !database.home.path("data").exists());
}

#[test]
fn two_instances_fire_each_timer_of_one_database_once() {
    let Some(database) = Database::shared() else {
        return;
    };
    let (one, other) = (database.serve(), database.serve());
    database.schedule_many(1_000, Duration::from_secs(1), "");
    database.wait_until_all_have_fired(PATIENCE);
    let (one, other) = (stop(one), stop(other));
    let fired = [firings(&one.stdout), firings(&other.stdout)].concat();
    let mut ids: Vec<String> = fired.iter().map(|it| it.firing_id.to_string()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((fired.len(), ids.len()), (1_000, 1_000));
    assert!(fired.iter().all(|it| it.reached_at >= it.due_at));
}

#[test]
fn what_a_killed_instance_had_claimed_is_fired_by_another_within_nine_seconds() {
    let Some(database) = Database::shared() else {
        return;
    };
    // Nobody reads what it writes, so that it holds its claims.
    let mut one = Running::start_unread(
        database
            .command("serve")
            .stdout(std::process::Stdio::piped()),
    );
    one.wait_until_ready();
    database.schedule_many(200, Duration::ZERO, &"x".repeat(2_000));
    one.wait_until_it_says("standard output");
    let other = database.serve();
    one.kill();
    database.wait_until_all_have_fired(Duration::from_secs(9));
    let fired = firings(&stop(other).stdout);
    assert!(!fired.is_empty());
    drop(one);
}

#[test]
fn an_outage_of_the_server_loses_nothing_and_shows_in_readiness() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    let database = Database::on(&server);
    let (serving, api) = database.serve_api();
    becomes(api, 200);
    database.schedule_many(50, Duration::from_secs(1), "");
    server.kill();
    let away = format!("{:?}", becomes(api, 503));
    assert!(away.contains("does not answer"), "{away}");
    let refused = database.run("schedule --tenant a --in 0s");
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("does not answer"), "{refused:?}");
    server.restart();
    becomes(api, 200);
    let mut ids: Vec<String> = Vec::new();
    while ids.len() < 50 {
        ids.push(serving.firing().firing_id.to_string());
        ids.sort_unstable();
        ids.dedup();
    }
    let metrics = api.ask("GET", "/metrics", None).body;
    for name in [
        "postgres_claims_total",
        "postgres_clock_offset_seconds",
        "postgres_listening 1",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
    stop(serving);
}

#[test]
fn a_start_waits_for_the_server_and_only_as_long_as_it_may() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    let database = Database::on(&server);
    server.stop();
    let mut serving = Running::start(&mut database.command("serve"));
    let waits = serving.wait_until_it_says("waiting for the database");
    assert!(waits.contains("does not answer"), "{waits}");
    let listed = database.run("list --tenant a");
    assert_eq!(listed.code, Some(3), "{listed:?}");
    server.restart();
    serving.wait_until_ready();
    stop(serving);
    server.stop();
    let ended = run(database.command("serve").env("DATABASE_WAIT", "200"));
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let (warned, refused) = ended.stderr.split_once('\n').unwrap();
    assert!(warned.contains("waiting for the database"), "{ended:?}");
    assert!(refused.starts_with("error: the database"), "{ended:?}");
    assert_eq!(refused.lines().count(), 1, "{ended:?}");
    let mut waiting = Running::start(&mut database.command("serve"));
    waiting.wait_until_it_says("waiting for the database");
    stop(waiting);
}

/// Asks until it is so, each time with an answer that does not wait for the database. Returns the checks that
/// failed, with their problems.
fn becomes(api: Api, status: u16) -> Vec<(String, String)> {
    let clock = SystemClock::start().unwrap();
    until(PATIENCE, || {
        let asked_at = clock.monotonic();
        let answer = api.ask("GET", "/readyz", None);
        let took = clock.monotonic().saturating_sub(asked_at);
        assert!(took < Duration::from_secs(4), "{took:?}: {answer:?}");
        let checks = answer.json()["checks"].as_array().unwrap().clone();
        let checks = checks.iter().filter(|check| check["ok"] == false);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let failed = checks.map(|check| (text(&check["name"]), text(&check["problem"])));
        if answer.status == status {
            Ok(failed.collect())
        } else {
            Err(format!("{answer:?}"))
        }
    })
}

#[test]
fn readiness_answers_soon_while_the_server_does_not() {
    let Some(server) = PostgresServer::start() else {
        return;
    };
    let database = Database::on(&server);
    let (serving, api) = database.serve_api();
    becomes(api, 200);
    server.pause();
    let failed = becomes(api, 503);
    assert!(
        failed.iter().any(|(check, problem)| check == "database"
            && problem == "it has not answered for two seconds"),
        "{failed:?}"
    );
    server.resume();
    becomes(api, 200);
    stop(serving);
}

/// Everything else works.
#[test]
fn an_instance_that_cannot_claim_is_not_ready() {
    let Some(database) = Database::shared() else {
        return;
    };
    let (serving, api) = database.serve_api();
    becomes(api, 200);
    let schema = database.schema.as_ref().unwrap().name();
    let lock = format!(
        "BEGIN; LOCK TABLE {schema}.timer_claims IN SHARE MODE; SELECT pg_sleep(60), '{schema}'"
    );
    let url = database.url.clone();
    let locking = std::thread::spawn(move || psql(&url, &lock));
    let of_lock = format!(
        "FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%{schema}%' AND pid <> pg_backend_pid()"
    );
    until(PATIENCE, || {
        let held = psql(&database.url, &format!("SELECT count(*) {of_lock}"))?;
        (held == "1").then_some(()).ok_or(held)
    });
    database.json("schedule --tenant a --in 0s");
    let failed = becomes(api, 503);
    assert!(
        matches!(&failed[..], [(check, problem)] if check == "worker"
            && problem.contains("no poll for due timers has succeeded for")),
        "{failed:?}"
    );
    let end = format!("SELECT pg_terminate_backend(pid) {of_lock}");
    psql(&database.url, &end).unwrap();
    assert!(locking.join().unwrap().is_err(), "the lock has ended");
    becomes(api, 200);
    serving.firing();
    stop(serving);
}

#[test]
fn behind_a_pooler_it_polls_or_listens_to_the_server_itself() {
    let Some(database) = Database::shared() else {
        return;
    };
    let Some(pooler) = PgBouncer::start(&database.url) else {
        return;
    };
    let through = |line: &str| {
        let mut command = database.command(line);
        command.env("DATABASE_URL", pooler.url());
        command
    };
    let mut unheard = Running::start(&mut through("serve"));
    let said = unheard.wait_until_it_says("notifications do not arrive: polling instead");
    assert!(said.contains("set DATABASE_LISTEN_URL"), "{said}");
    let scheduled = run(&mut through("schedule --tenant a --in 0s"));
    assert_eq!(scheduled.code, Some(0), "{scheduled:?}");
    unheard.firing();
    stop(unheard);
    let mut command = through("serve");
    let mut heard = Running::start(command.env("DATABASE_LISTEN_URL", &database.url));
    heard.wait_until_it_says("notifications of other instances arrive");
    let scheduled = run(&mut through("schedule --tenant a --in 0s"));
    assert_eq!(scheduled.code, Some(0), "{scheduled:?}");
    heard.firing();
    stop(heard);
}

#[test]
fn commands_come_from_a_broker_and_events_leave_through_it() {
    let (Some(database), Some(broker)) = (Database::shared(), Broker::shared()) else {
        return;
    };
    let command = |line: &str| {
        let mut command = broker.command(&database.home, line);
        database.set(&mut command);
        command
    };
    let mut one = Running::start(&mut command("serve"));
    one.wait_until_ready();
    let mut other = Running::start(&mut command("serve"));
    other.wait_until_ready();
    let sent = run(&mut command("send --tenant a --in 300ms --name x"));
    assert_eq!(sent.code, Some(0), "{sent:?}");
    let event = sent.stdout.lines().nth(1).unwrap();
    assert_eq!(firings(event).len(), 1, "{sent:?}");
    let timer = database.json("schedule --tenant a --in 0s");
    let (_, id, _) = broker.wait_for("EVENTS", 2);
    assert!(
        id.contains(timer["serviceCallId"].as_str().unwrap()),
        "{id}: {timer}"
    );
    assert_eq!(stop(one).stdout, "");
    assert_eq!(stop(other).stdout, "");
}
