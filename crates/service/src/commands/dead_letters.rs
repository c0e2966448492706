//! `dead-letters`: lists dead letters, and removes one.

use std::fmt::Write as _;

use punctual_domain::{TenantId, Timestamp};
use punctual_ports::{RemoveOutcome, StoredDeadLetter};
use serde::Serialize;

use super::output::{Answers, say_rest};
use super::{Session, only};
use crate::cli::{DeadLettersArgs, Output};
use crate::display::cut_to;
use crate::failure::Failure;
use crate::settings::Environment;

/// Maximum number of bytes of a payload that are printed.
const LONGEST_PAYLOAD: usize = 4 * 1024;

/// Column widths of the table.
const SOURCE_WIDTH: usize = 40;
const REASON_WIDTH: usize = 80;

/// The view of a dead letter. Its payload may be secret, so it is printed only with `--payload`.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeadLetterView<'a> {
    sequence: u64,
    id: &'a str,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<&'a TenantId>,
    reason: &'a str,
    failed_at: Timestamp,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
}

/// A page of the list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    items: Vec<DeadLetterView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_after: Option<u64>,
}

/// Lists dead letters, or removes one.
pub(crate) async fn run(
    args: DeadLettersArgs,
    environment: &Environment<'_>,
) -> Result<(), Failure> {
    let session = Session::open(&args.answer.database, environment).await?;
    let done = match args.remove {
        Some(sequence) => remove(&session, sequence).await,
        None => list(&session, &args).await,
    };
    session.close().await;
    done
}

async fn list(session: &Session, args: &DeadLettersArgs) -> Result<(), Failure> {
    let one_more = args.limit.saturating_add(1);
    let stored = session.stores.dead_letters.list(args.after, one_more);
    let mut dead_letters = stored.await?;
    let has_more = dead_letters.len() > args.limit;
    dead_letters.truncate(args.limit);
    let last = dead_letters.last().map(|it| it.sequence);
    let next_after = last.filter(|_| has_more);
    let items: Vec<DeadLetterView<'_>> = dead_letters
        .iter()
        .map(|it| view(it, args.payload))
        .collect();
    let page = Page { items, next_after };
    Answers::open()?.show(args.answer.output, &page, || table(&page.items))?;
    if args.answer.output == Output::Table {
        say_rest(page.items.is_empty(), next_after);
    }
    Ok(())
}

async fn remove(session: &Session, sequence: u64) -> Result<(), Failure> {
    // Nothing is removed if its removal cannot be reported.
    let mut answers = Answers::open_for_changes()?;
    let removed = session.stores.dead_letters.remove(vec![sequence]);
    match only(removed.await?)? {
        RemoveOutcome::Removed => answers.line(&serde_json::json!({ "removed": sequence })),
        _ => Err(Failure::failed(format!(
            "there is no dead letter {sequence}"
        ))),
    }
}

fn view(stored: &StoredDeadLetter, with_payload: bool) -> DeadLetterView<'_> {
    let dead_letter = &stored.dead_letter;
    DeadLetterView {
        sequence: stored.sequence,
        id: &dead_letter.id,
        source: dead_letter.origin.to_string(),
        tenant_id: dead_letter.tenant_id.as_ref(),
        reason: &dead_letter.reason,
        failed_at: dead_letter.failed_at,
        bytes: dead_letter.payload.len(),
        payload: with_payload.then(|| text(&dead_letter.payload)).flatten(),
    }
}

/// What a payload says, if it is text, cut where it becomes too long.
fn text(payload: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(payload).ok()?;
    if text.len() <= LONGEST_PAYLOAD {
        return Some(text.to_owned());
    }
    let end = text.floor_char_boundary(LONGEST_PAYLOAD);
    Some(format!("{}…", text.get(..end).unwrap_or_default()))
}

fn table(dead_letters: &[DeadLetterView<'_>]) -> String {
    let mut table = format!(
        "{:>8}  {:24}  {:SOURCE_WIDTH$}  {:>8}  REASON\n",
        "SEQUENCE", "FAILED AT", "SOURCE", "BYTES"
    );
    for dead_letter in dead_letters {
        // Writing to a string does not fail.
        let _ = writeln!(
            table,
            "{:>8}  {:24}  {:SOURCE_WIDTH$}  {:>8}  {}",
            dead_letter.sequence,
            dead_letter.failed_at,
            cut_to(&dead_letter.source, SOURCE_WIDTH),
            dead_letter.bytes,
            cut_to(dead_letter.reason, REASON_WIDTH),
        );
        if let Some(payload) = &dead_letter.payload {
            let _ = writeln!(table, "{:>8}  {}", "", cut_to(payload, LONGEST_PAYLOAD));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_printed_if_it_is_text_and_cut_between_characters() {
        assert_eq!(text(b"{}"), Some("{}".to_owned()));
        assert_eq!(text(&[0xff, 0xfe]), None);
        let long = "ä".repeat(LONGEST_PAYLOAD);
        let cut = text(format!("x{long}").as_bytes()).unwrap();
        assert_eq!(cut, format!("x{}…", "ä".repeat(LONGEST_PAYLOAD / 2 - 1)));
    }
}
