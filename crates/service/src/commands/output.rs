//! Showing timers: a line of JSON for programs, a table for people.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;

use punctual_domain::{TimerEntry, TimerState};
use serde::Serialize;

use crate::failure::Failure;
use crate::stdout::{self, Patient};

/// Where the answers of a command go.
pub(crate) struct Answers(File);

impl Answers {
    pub(crate) fn open() -> Result<Self, Failure> {
        let (file, _) = stdout::open().map_err(|error| unwritable(&error))?;
        Ok(Self(file))
    }

    /// Writes each as a line of JSON, all of them at once.
    pub(crate) fn lines<T: Serialize>(&mut self, answers: &[T]) -> Result<(), Failure> {
        let mut text = Vec::new();
        for answer in answers {
            serde_json::to_writer(&mut text, answer)
                .map_err(|error| Failure::failed(format!("an answer is no JSON: {error}")))?;
            text.push(b'\n');
        }
        Patient(&self.0)
            .write_all(&text)
            .map_err(|error| unwritable(&error))
    }

    pub(super) fn line<T: Serialize>(&mut self, answer: &T) -> Result<(), Failure> {
        self.lines(std::slice::from_ref(answer))
    }

    pub(super) fn table(&mut self, timers: &[TimerEntry]) -> Result<(), Failure> {
        self.text(&table(timers))
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        Patient(&self.0)
            .write_all(text.as_bytes())
            .map_err(|error| unwritable(&error))
    }
}

fn unwritable(error: &std::io::Error) -> Failure {
    Failure::failed(format!("standard output cannot be written: {error}"))
}

fn table(timers: &[TimerEntry]) -> String {
    let tenants = timers.iter().map(|it| it.timer().key.tenant_id.as_str());
    let width = tenants.map(str::len).max().unwrap_or(0).max("TENANT".len());
    let mut text = format!(
        "{:width$}  {:36}  {:9}  {:24}  REACHED AT\n",
        "TENANT", "SERVICE CALL ID", "STATE", "DUE AT"
    );
    for entry in timers {
        let timer = entry.timer();
        let state = match entry.state() {
            TimerState::Scheduled => "Scheduled",
            TimerState::Reached => "Reached",
        };
        let reached = entry.reached_at().map(|at| at.to_string());
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:width$}  {:36}  {state:9}  {:24}  {}",
            timer.key.tenant_id.as_str(),
            timer.key.service_call_id.to_string(),
            timer.registration.due_at,
            reached.as_deref().unwrap_or("-"),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_a_table_stand_below_each_other() {
        let json = |tenant: &str, more: &str| {
            format!(
                r#"{{"tenantId":"{tenant}","serviceCallId":"0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e","correlationId":"0190a6e0-7a3b-7c11-9d2e-3f4a5b6c7d8e","dueAt":"2026-12-24T18:00:00.000Z","registeredAt":"2026-12-24T17:00:00.000Z",{more}}}"#
            )
        };
        let timers: Vec<TimerEntry> = [
            json("a", r#""state":"Scheduled""#),
            json(
                "a-long-tenant",
                r#""state":"Reached","reachedAt":"2026-12-24T18:00:00.001Z""#,
            ),
        ]
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
        let text = table(&timers);
        let lines: Vec<&str> = text.lines().collect();
        let column = lines[0].find("DUE AT").unwrap();
        assert!(lines[1][column..].starts_with("2026-12-24T18:00:00.000Z  -"));
        assert!(lines[2][column..].ends_with("2026-12-24T18:00:00.001Z"));
    }
}
