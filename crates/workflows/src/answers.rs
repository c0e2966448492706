//! Answers to messages that were not handled.

use punctual_domain::Message;
use punctual_ports::{Answer, PortError, PortErrorKind};

/// A store that is unavailable pauses the consumer; a failure of this message retries it alone.
pub(crate) fn answer_of(error: &PortError) -> Answer {
    let reason = error.to_string();
    match error.kind() {
        PortErrorKind::Rejected => Answer::Poison { reason },
        kind if kind.concerns_the_item() => Answer::RetryLater { reason },
        _ => Answer::Pause { reason },
    }
}

/// The answer when the store gave none.
pub(crate) fn no_answer() -> Answer {
    Answer::RetryLater {
        reason: "the store gave no answer for this message".to_owned(),
    }
}

/// The answer to a message that is not what the handler's topic is for.
pub(crate) fn unexpected(message: &Message, expected: &str) -> Answer {
    let reason = format!("{} is not {expected}", message.type_name());
    Answer::Poison { reason }
}
