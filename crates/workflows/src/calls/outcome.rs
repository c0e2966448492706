//! What a failed call of a store means for the message that was being handled.

use punctual_ports::{Answer, PortError, PortErrorKind};

/// Whose fault it was: a store that cannot be used now is no fault of the message.
pub(super) fn answer_of(error: &PortError) -> Answer {
    let reason = error.to_string();
    match error.kind() {
        PortErrorKind::Rejected => Answer::Poison { reason },
        kind if kind.concerns_the_item() => Answer::RetryLater { reason },
        _ => Answer::Pause { reason },
    }
}

/// Silence is not consent.
pub(super) fn no_answer() -> Answer {
    Answer::RetryLater {
        reason: "the store gave no answer for this message".to_owned(),
    }
}
