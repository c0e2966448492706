//! Output of commands: a line of JSON for programs, a table for people.

use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io::{ErrorKind, Write};

use punctual_domain::{TimerEntry, TimerState};
use serde::Serialize;

use crate::cli::Output;
use crate::display::{cut_to, reason};
use crate::failure::Failure;
use crate::stdout::{self, Blocking};

/// Maximum width of the data column.
const DATA_WIDTH: usize = 40;

/// Where the answers of a command go.
pub(crate) struct Answers {
    file: File,
    /// Whether the reader may close the pipe when it has seen enough, as in `list | head`.
    reader_may_leave: bool,
}

impl Answers {
    /// For a command that only reads.
    pub(crate) fn open() -> Result<Self, Failure> {
        Self::open_for(true)
    }

    /// For a command that changes something, and fails if that cannot be reported.
    pub(super) fn open_for_changes() -> Result<Self, Failure> {
        Self::open_for(false)
    }

    fn open_for(reader_may_leave: bool) -> Result<Self, Failure> {
        let (file, _) = stdout::open().map_err(|error| unwritable(&error))?;
        Ok(Self {
            file,
            reader_may_leave,
        })
    }

    /// Writes each as a line of JSON, all of them at once.
    pub(crate) fn lines<T: Serialize>(&mut self, answers: &[T]) -> Result<(), Failure> {
        let mut text = String::new();
        for answer in answers {
            text += &serde_json::to_string(answer)
                .map_err(|error| Failure::failed(format!("an answer is no JSON: {error}")))?;
            text.push('\n');
        }
        self.text(&text)
    }

    pub(super) fn line<T: Serialize>(&mut self, answer: &T) -> Result<(), Failure> {
        self.lines(std::slice::from_ref(answer))
    }

    /// Writes an answer as a line of JSON, or as text for people.
    pub(super) fn show<T: Serialize>(
        &mut self,
        output: Output,
        answer: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match output {
            Output::Json => self.line(answer),
            Output::Table => self.text(&text()),
        }
    }

    pub(super) fn timer(&mut self, output: Output, timer: &TimerEntry) -> Result<(), Failure> {
        self.show(output, timer, || table(std::slice::from_ref(timer)))
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        match Blocking(&self.file).write_all(text.as_bytes()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe && self.reader_may_leave => Ok(()),
            written => written.map_err(|error| unwritable(&error)),
        }
    }
}

pub(super) fn unwritable(error: &std::io::Error) -> Failure {
    Failure::failed(format!(
        "standard output cannot be written: {}",
        reason(error)
    ))
}

/// Prints a note after a page in a table: that it is empty, or how to go on.
pub(super) fn say_rest(is_empty: bool, next: Option<impl Display>) {
    if is_empty {
        crate::say("there are none");
    }
    if let Some(next) = next {
        crate::say(&format!("there are more: --after {next}"));
    }
}

pub(super) fn table(timers: &[TimerEntry]) -> String {
    let tenants = timers.iter().map(|it| it.timer().key.tenant_id.as_str());
    let width = tenants.map(str::len).max().unwrap_or(0).max("TENANT".len());
    let mut text = format!(
        "{:width$}  {:36}  {:9}  {:24}  {:24}  DATA\n",
        "TENANT", "SERVICE CALL ID", "STATE", "DUE AT", "REACHED AT"
    );
    for entry in timers {
        let timer = entry.timer();
        let state = match entry.state() {
            TimerState::Scheduled => "Scheduled",
            TimerState::Reached => "Reached",
        };
        let reached = entry.reached_at().map(|at| at.to_string());
        let data = timer.data.as_ref();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:width$}  {:36}  {state:9}  {:24}  {:24}  {}",
            timer.key.tenant_id.as_str(),
            timer.key.service_call_id.to_string(),
            timer.registration.due_at,
            reached.as_deref().unwrap_or("-"),
            data.map_or_else(|| "-".to_owned(), |data| cut_to(data.as_json(), DATA_WIDTH)),
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
                r#""state":"Reached","reachedAt":"2026-12-24T18:00:00.001Z","data":["a long text that goes on and on"]"#,
            ),
        ]
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
        let text = table(&timers);
        let lines: Vec<&str> = text.lines().collect();
        let column = lines[0].find("DUE AT").unwrap();
        assert!(lines[1][column..].starts_with("2026-12-24T18:00:00.000Z  -"));
        let column = lines[0].find("REACHED AT").unwrap();
        assert!(lines[2][column..].starts_with("2026-12-24T18:00:00.001Z  "));
        let column = lines[0].find("DATA").unwrap();
        assert_eq!(&lines[1][column..], "-");
        assert_eq!(
            &lines[2][column..],
            r#"["a long text that goes on and on"]"#
        );
    }
}
