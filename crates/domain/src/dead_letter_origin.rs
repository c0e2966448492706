//! The origin of a dead letter, as a type, so that the message can be sent there again.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use crate::Topic;

/// Origin of a dead letter: what dead-lettered the message, and so what would accept it again.
///
/// Stored and listed as text: `firing`,
/// `outbox orchestration.events`, `timer.commands.acme.4f0c on COMMANDS for timer`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadLetterOrigin {
    /// The firing of a timer, whose event was refused.
    Firing,
    /// A message of the outbox, and its topic; `None` if the message could not be decoded.
    Outbox(Option<Topic>),
    /// A message that a broker delivered to a consumer. Other consumers may have handled it.
    Delivery {
        /// Its subject.
        subject: String,
        /// The stream that stores it.
        stream: String,
        /// The consumer that refused it.
        consumer: String,
    },
    /// Any other text: a topic or a subject, as stored by an earlier version, or the origin of a
    /// third-party adapter.
    Other(String),
}

const FIRING: &str = "firing";
const OUTBOX: &str = "outbox";

impl fmt::Display for DeadLetterOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Firing => f.write_str(FIRING),
            Self::Outbox(None) => f.write_str(OUTBOX),
            Self::Outbox(Some(topic)) => write!(f, "{OUTBOX} {topic}"),
            Self::Delivery {
                subject,
                stream,
                consumer,
            } => write!(f, "{subject} on {stream} for {consumer}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl FromStr for DeadLetterOrigin {
    type Err = Infallible;

    /// Every text is an origin: a dead letter of unknown origin must still be listed.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let topic_named = |name: &str| Topic::ALL.into_iter().find(|topic| topic.as_str() == name);
        // Neither a subject nor the name of a stream or a consumer has a space.
        let words: Vec<&str> = text.split(' ').collect();
        Ok(match words[..] {
            [FIRING] => Self::Firing,
            [OUTBOX] => Self::Outbox(None),
            [OUTBOX, name] if let Some(topic) = topic_named(name) => Self::Outbox(Some(topic)),
            [subject, "on", stream, "for", consumer] => Self::Delivery {
                subject: subject.to_owned(),
                stream: stream.to_owned(),
                consumer: consumer.to_owned(),
            },
            _ => Self::Other(text.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_the_same_after_it_was_text() {
        let delivery = DeadLetterOrigin::Delivery {
            subject: "acme.timer.commands.a.7".to_owned(),
            stream: "acme-COMMANDS".to_owned(),
            consumer: "timer_timer-commands".to_owned(),
        };
        let outbox = Topic::ALL.map(|topic| DeadLetterOrigin::Outbox(Some(topic)));
        let others = [
            DeadLetterOrigin::Firing,
            DeadLetterOrigin::Outbox(None),
            delivery,
        ];
        for origin in outbox.into_iter().chain(others) {
            assert_eq!(origin.to_string().parse(), Ok(origin));
        }
    }

    #[test]
    fn a_text_of_an_earlier_version_is_kept_as_it_is() {
        let texts = [
            "timer.events",
            "timer.commands.a.7",
            "outbox nowhere",
            "",
            "a on b for",
        ];
        for text in texts {
            let origin = DeadLetterOrigin::Other(text.to_owned());
            assert_eq!(text.parse(), Ok(origin.clone()));
            assert_eq!(origin.to_string(), text);
        }
    }
}
