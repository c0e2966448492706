//! The answer to a message whose handling failed in the store.

use punctual_ports::{Answer, PortError, PortErrorKind};

/// A store that is unavailable pauses the consumer; a failure of this message retries it alone.
pub(super) fn answer_of(error: &PortError) -> Answer {
    let reason = error.to_string();
    match error.kind() {
        PortErrorKind::Rejected => Answer::Poison { reason },
        kind if kind.concerns_the_item() => Answer::RetryLater { reason },
        _ => Answer::Pause { reason },
    }
}

/// The answer when the store gave none.
pub(super) fn no_answer() -> Answer {
    Answer::RetryLater {
        reason: "the store gave no answer for this message".to_owned(),
    }
}
