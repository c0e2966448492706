//! Scheduling many timers: a line in, and once it is stored, a line out.
//!
//! A thread reads, and whatever has been read by the time the last write is done is stored by the
//! next, so that a slow source is acknowledged line by line and a fast one in large transactions.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use punctual_adapters_system::UuidIds;
use punctual_domain::{CorrelationId, ServiceCallId, TenantId, Timestamp};
use punctual_ports::{IdPort, SaveOutcome};
use punctual_workflows::TimerRequest;
use serde::Serialize;
use tokio::sync::mpsc;

use super::batch_line::BatchLine;
use super::output::Answers;
use super::{Session, described, schedule};
use crate::failure::Failure;

/// Maximum number of lines in one transaction.
const BATCH: usize = 1_000;

/// Maximum length of a line: the largest data, escaped, and the other fields.
const LONGEST_LINE: usize = 128 * 1024;

/// Where lines come from.
pub(super) struct Source {
    lines: Box<dyn BufRead + Send>,
    name: String,
}

impl Source {
    /// A file, or standard input if it is called `-`.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self {
                lines: Box::new(BufReader::new(std::io::stdin())),
                name: "standard input".to_owned(),
            });
        }
        let name = crate::display::path(path);
        let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
        Ok(Self {
            lines: Box::new(BufReader::new(file)),
            name,
        })
    }
}

fn unreadable(name: &str, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot read {name}: {error}"))
}

/// What the reading thread hands over.
enum Item {
    Line {
        number: usize,
        parsed: Result<BatchLine, String>,
    },
    Unreadable(Failure),
}

/// The acknowledgement of a stored line.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Acknowledgement {
    line: usize,
    outcome: &'static str,
    tenant_id: TenantId,
    service_call_id: ServiceCallId,
    correlation_id: Option<CorrelationId>,
    due_at: Timestamp,
}

/// Schedules every line, and fails in the end if one of them was not scheduled.
pub(super) async fn schedule_all(
    session: &Session,
    source: Source,
    replaces: bool,
) -> Result<(), Failure> {
    let mut answers = Answers::open_for_changes()?;
    let (queue, mut items) = mpsc::channel(BATCH);
    std::thread::Builder::new()
        .name("batch-lines".to_owned())
        .spawn(move || read(source, &queue))
        .map_err(|error| Failure::failed(format!("no thread can be started: {error}")))?;

    let (mut total, mut refused) = (0, 0);
    let mut waiting = Vec::with_capacity(BATCH);
    while items.recv_many(&mut waiting, BATCH).await > 0 {
        let mut lines = Vec::with_capacity(waiting.len());
        let mut unreadable = None;
        for item in waiting.drain(..) {
            match item {
                Item::Unreadable(failure) => unreadable = Some(failure),
                Item::Line { number, parsed } => {
                    total += 1;
                    match parsed {
                        Ok(line) => lines.push((number, request(line))),
                        Err(reason) => {
                            refused += 1;
                            crate::say(&format!("line {number}: {reason}"));
                        }
                    }
                }
            }
        }
        refused += store(session, lines, replaces, &mut answers).await?;
        if let Some(failure) = unreadable {
            return Err(failure);
        }
    }
    match refused {
        0 => Ok(()),
        _ => Err(Failure::failed(format!(
            "{refused} of {total} lines were not scheduled"
        ))),
    }
}

/// Stores lines in one transaction and acknowledges each; returns how many were not stored.
async fn store(
    session: &Session,
    lines: Vec<(usize, TimerRequest)>,
    replaces: bool,
    answers: &mut Answers,
) -> Result<usize, Failure> {
    let requests = lines.iter().map(|(_, request)| request.clone()).collect();
    let timers = session.timers();
    let outcomes = if replaces {
        timers.replace(requests).await
    } else {
        timers.schedule(requests).await
    };
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(error) if error.kind().is_critical() => return Err(error.into()),
        Err(error) => vec![Err(error); lines.len()],
    };
    let mut acknowledged = Vec::with_capacity(lines.len());
    let mut refused = 0;
    for ((line, request), outcome) in lines.into_iter().zip(outcomes) {
        let stored = outcome.map_err(|error| error.to_string());
        let stored = stored.and_then(|outcome| {
            let timer = described(&request.key, None);
            schedule::refusal(outcome, &timer).map_or(Ok(outcome), Err)
        });
        match stored {
            Ok(outcome) => acknowledged.push(acknowledgement(line, request, outcome)),
            Err(reason) => {
                refused += 1;
                crate::say(&format!("line {line}: {reason}"));
            }
        }
    }
    answers.lines(&acknowledged)?;
    Ok(refused)
}

/// The timer that a line requests, with ids for those that it leaves out; the acknowledgement reports
/// them.
fn request(line: BatchLine) -> TimerRequest {
    let new = || CorrelationId::from_uuid(UuidIds.next_id());
    TimerRequest {
        key: schedule::key_or_new(line.tenant_id, line.service_call_id, None),
        due_at: line.due_at,
        correlation_id: Some(line.correlation_id.unwrap_or_else(new)),
        data: line.data,
    }
}

fn acknowledgement(line: usize, request: TimerRequest, outcome: SaveOutcome) -> Acknowledgement {
    Acknowledgement {
        line,
        outcome: match outcome {
            SaveOutcome::Created => "created",
            SaveOutcome::Rescheduled => "rescheduled",
            _ => "unchanged",
        },
        tenant_id: request.key.tenant_id,
        service_call_id: request.key.service_call_id,
        correlation_id: request.correlation_id,
        due_at: request.due_at,
    }
}

/// Reads lines until the end, or until the receiver is dropped. Empty ones are skipped.
fn read(mut source: Source, queue: &mpsc::Sender<Item>) {
    for number in 1.. {
        let mut line = next_line(&mut source.lines);
        if let (1, Ok(Some(Ok(first)))) = (number, &mut line) {
            without_mark(first);
        }
        let item = match line {
            Ok(None) => return,
            Ok(Some(Ok(line))) if line.trim_ascii().is_empty() => continue,
            Ok(Some(line)) => Item::Line {
                number,
                parsed: line.and_then(|line| BatchLine::parse(&line)),
            },
            Err(error) => Item::Unreadable(unreadable(&source.name, &error)),
        };
        let is_last = matches!(item, Item::Unreadable(_));
        if queue.blocking_send(item).is_err() || is_last {
            return;
        }
    }
}

/// Editors of some systems begin a file with a mark that means nothing.
fn without_mark(first: &mut Vec<u8>) {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    if first.starts_with(MARK) {
        first.drain(..MARK.len());
    }
}

/// The next line without its end; one that is too long is skipped, and takes no memory.
fn next_line(lines: &mut dyn BufRead) -> std::io::Result<Option<Result<Vec<u8>, String>>> {
    let mut line = Vec::new();
    let limit = u64::try_from(LONGEST_LINE).unwrap_or(u64::MAX);
    if lines.take(limit).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.ends_with(b"\n") || line.len() < LONGEST_LINE {
        return Ok(Some(Ok(line)));
    }
    lines.skip_until(b'\n')?;
    Ok(Some(Err(format!(
        "it is too long: at most {LONGEST_LINE} bytes are read"
    ))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_one_read() {
        let mut text = vec![b'x'; LONGEST_LINE + 5];
        text.extend_from_slice(b"\nshort\nlast");
        let mut lines = text.as_slice();
        let mut next = || next_line(&mut lines).unwrap();
        assert!(next().unwrap().is_err());
        assert_eq!(next().unwrap().unwrap(), b"short\n");
        assert_eq!(next().unwrap().unwrap(), b"last");
        assert!(next().is_none());
    }
}
