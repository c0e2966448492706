//! A reminder service with an HTTP front of its own, in one process and one file.
//!
//! Run it with `cargo run --release -p punctual --example reminder_service`, then:
//!
//! ```sh
//! curl -X PUT localhost:3000/reminders/tea -H 'content-type: application/json' -d '{"seconds": 3, "text": "tea is ready"}'
//! curl localhost:3000/reminders/tea
//! curl -X DELETE localhost:3000/reminders/tea
//! ```

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::put;
use axum::{Json, Router};
use punctual::{
    CancelOutcome, DueTimeReached, Error, Punctual, ScheduleOutcome, TenantId, Timer, TimerEntry,
    TimerKey,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Reminder {
    seconds: u64,
    text: String,
}

type Answer<T> = Result<T, (StatusCode, String)>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let punctual = Punctual::builder()
        .sqlite("data/reminder_service.db")
        .on_due(|due: DueTimeReached| async move {
            println!("{}", due.read::<String>()?); // here you would send a mail
            Ok(())
        })
        .build()
        .await?;
    let running = punctual.start().await?;

    let reminder = put(schedule).get(find).delete(cancel);
    let routes = Router::new().route("/reminders/{name}", reminder);
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:3000");
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let front = axum::serve(listener, routes.with_state(punctual));
    tokio::select! {
        served = async { front.await } => served?,
        why = running.stopped() => return Err(why.into()),
        _ = tokio::signal::ctrl_c() => {}
    }
    running.shutdown().await?; // finishes what is in flight
    println!("stopped");
    Ok(())
}

fn key(name: &str) -> TimerKey {
    TimerKey::named(TenantId::default(), name)
}

async fn schedule(
    State(punctual): State<Punctual>,
    Path(name): Path<String>,
    Json(reminder): Json<Reminder>,
) -> Answer<StatusCode> {
    let timer = Timer::after(key(&name), Duration::from_secs(reminder.seconds));
    let timer = timer
        .data(&reminder.text)
        .map_err(Error::from)
        .map_err(|error| failed(&error))?;
    // Once this has returned, the reminder fires, even if the process is killed now.
    match punctual
        .replace(timer)
        .await
        .map_err(|error| failed(&error))?
    {
        ScheduleOutcome::Created => Ok(StatusCode::CREATED),
        _ => Ok(StatusCode::OK),
    }
}

async fn find(
    State(punctual): State<Punctual>,
    Path(name): Path<String>,
) -> Answer<Json<TimerEntry>> {
    let found = punctual
        .find(&key(&name))
        .await
        .map_err(|error| failed(&error))?;
    found.map(Json).ok_or_else(not_found)
}

async fn cancel(State(punctual): State<Punctual>, Path(name): Path<String>) -> Answer<StatusCode> {
    match punctual
        .cancel(&key(&name))
        .await
        .map_err(|error| failed(&error))?
    {
        CancelOutcome::Cancelled => Ok(StatusCode::NO_CONTENT),
        CancelOutcome::NotFound => Err(not_found()),
        late => Err((StatusCode::CONFLICT, format!("too late: {late:?}"))),
    }
}

fn not_found() -> (StatusCode, String) {
    (
        StatusCode::NOT_FOUND,
        "there is no such reminder".to_owned(),
    )
}

/// What can be tried again says so, and what is the caller's fault too.
fn failed(error: &Error) -> (StatusCode, String) {
    let status = match error.kind() {
        punctual::ErrorKind::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
        _ if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, format!("{error}: {}", error.advice()))
}
